/* What executes graphs here is gmlake_offload.h's CUDA backend over the driver without a device
   (fake_cuda.h): graphs.h has it in the mock's place. Operators are stand-ins, whose copies and
   kernels take effect as late as order allows. A call that is to fail is one of the driver's, also
   where the backend is created and destroyed. What the options mean here: device, what the caller's
   memory has (else cuMemAlloc gives it); jitter, the seed of the driver's delays, in hundredths. */
#if !defined(OFFLOAD_CUDA_MACHINE_H)
#define OFFLOAD_CUDA_MACHINE_H

#define gmlake_offload_mock_create device_create
#define gmlake_offload_mock_destroy device_destroy
#define gmlake_offload_mock_get_census device_get_census
#define gmlake_offload_mock_fail_at(device, call) ((void)(device), (void)(call))
#define digest_of device_digest
#define be_odd device_is_odd
#define IS_MOCK 0

#define JOBS 2
#define DEVICES 2

static gpu_driver gpu; /* the fake: its soname is what the backend opens */
static const fake_cuda_control *control;

/* Ways in which the device is odd, from here on; behind the last `cuEventQuery` fails for good,
   after so many calls. */
enum { ODD_STREAMS = 1, ODD_EVENTS, ODD_HOST, ODD_PEERS, ODD_ZEROS, ODD_QUERIES };

typedef struct half { /* one device */
  CUcontext context;
  standin operators[JOBS];
} half;

static struct device_world {
  half halves[DEVICES];
  int device_count; /* 0: one, which has no list */
  uint32_t jobs;
  size_t taken, room; /* room: what alloc_fn hands out; 0: cuMemAlloc does */
  size_t wrong_contexts, early_frees, transfers;
  uint64_t first; /* calls of the driver before the backend's */
  int stops, odd;
} d;

static int zero_sides; /* where tensors that nobody filled lay: 1 on the device, 2 on the host */

static void device_is_odd(int how) {
  static const char *const names[] = {"", "cuStreamCreate", "cuEventCreate", "cuMemHostAlloc"};
  d.odd = how;
  if (how >= ODD_STREAMS && how <= ODD_HOST)
    control->fail_function(names[how], 1, CUDA_ERROR_OUT_OF_MEMORY, 1);
}

static int device_count(void) { return d.device_count ? d.device_count : 1; }

/* The context of the caller's functions is the device's primary one. */
static void check_context(const half *h) {
  CUcontext current = NULL;
  d.wrong_contexts += gpu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != h->context;
}

static int device_take(void *user, size_t bytes, void *stream, void **out_ptr) {
  CUdeviceptr address;
  check_context((const half *)user);
  if (!stream || bytes > d.room - d.taken || gpu.cuMemAlloc(&address, bytes)) return 1;
  d.taken += bytes;
  *out_ptr = (void *)(uintptr_t)address;
  return 0;
}

/* When the machine is closed nothing may be under way. */
static void device_give(void *user, void *ptr, size_t bytes, void *stream) {
  fake_cuda_census census;
  check_context((const half *)user);
  control->get_census(&census);
  d.early_frees += !stream || (d.stops && census.pending);
  d.taken -= bytes;
  (void)gpu.cuMemFree((CUdeviceptr)(uintptr_t)ptr);
}

static int device_launch(void *user, const gmlake_offload_launch *what, void *stream) {
  half *h = &d.halves[d.device_count ? what->desc.device : 0];
  gmlake_offload_launch own = *what;
  (void)user;
  check_context(h);
  d.transfers += d.device_count && (what->desc.flags & GMLAKE_OFFLOAD_TRANSFER) != 0;
  own.job = 0; /* a job has stand-ins of its own */
  return standin_launch(&h->operators[what->job], &own, stream);
}

static int device_fill(void *user, uint32_t job, uint32_t id, void *ptr, size_t bytes, int on_host,
                       void *stream) {
  half *h = &d.halves[d.device_count && !on_host ? g.graph->tensors[id].device : 0];
  (void)user;
  check_context(h);
  return standin_fill(&h->operators[job], job, id, ptr, bytes, on_host, stream);
}

static void start_fake(unsigned seed, int count) {
  fake_cuda_options options;
  memset(&options, 0, sizeof options);
  options.seed = seed;
  options.device_count = count;
  options.device_bytes = (size_t)1 << 30;
  control->reset(&options);
}

/* What the fake needs to run stand-ins: the caller's own references to the contexts. */
static void device_open(const gmlake_offload_mock_desc *desc) {
  int i;
  uint32_t j;
  const int odd = d.odd;
  memset(&d, 0, sizeof d);
  d.odd = odd;
  d.device_count = g.info.device_count > 1 ? DEVICES : 0;
  d.jobs = option_is_set(OPT_JOBS) ? (uint32_t)player.options[OPT_JOBS] : 1;
  d.room = desc->device_bytes;
  start_fake((unsigned)(desc->jitter * 100 + .5), d.device_count);
  JUDGE(gpu.cuInit(0) == 0);
  for (i = 0; i < device_count(); i++) {
    half *h = &d.halves[i];
    JUDGE(gpu.cuDevicePrimaryCtxRetain(&h->context, i) == 0);
    JUDGE(gpu.cuCtxPushCurrent(h->context) == 0);
    for (j = 0; j < d.jobs; j++) JUDGE(standin_create(&h->operators[j], &gpu, g.graph, 64));
    JUDGE(gpu.cuCtxPopCurrent(&h->context) == 0);
  }
  d.first = control->calls();
  if (g.fail_at)
    control->fail_function(NULL, g.fail_at,
                           g.fail_at % 2 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY, 0);
  if (odd == ODD_PEERS)
    control->fail_function("cuCtxEnablePeerAccess", 1, CUDA_ERROR_INVALID_DEVICE, 1);
  if (odd >= ODD_QUERIES)
    control->fail_function("cuEventQuery", (uint64_t)(odd - ODD_QUERIES), CUDA_ERROR_UNKNOWN, 1);
}

/* What the driver refuses to take back, or the way to it, stays; else nothing may. */
static int takes_back(const char *name) {
  static const char *const names[] = {"Destroy", "Free",       "Release",   "Pop",
                                      "Push",    "GetCurrent", "Unregister"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++)
    if (strstr(name, names[i])) return 1;
  return 0;
}

static void check_nothing_left(void) {
  fake_cuda_census census;
  control->get_census(&census);
  JUDGE(census.streams + census.events + census.modules + census.hosts == 0);
  JUDGE(census.allocations + census.pending + census.retains + census.pushed == 0);
}

static void device_close(void) {
  const char *const failed = control->failed();
  int i;
  uint32_t j;
  if (g.fail_at) player.reached = failed != NULL;
  control->fail_function(NULL, 0, CUDA_SUCCESS, 0);
  for (i = 0; i < device_count(); i++) {
    half *h = &d.halves[i];
    JUDGE(gpu.cuCtxPushCurrent(h->context) == 0);
    for (j = 0; j < d.jobs; j++) standin_destroy(&h->operators[j]);
    JUDGE(gpu.cuCtxPopCurrent(&h->context) == 0);
    JUDGE(gpu.cuDevicePrimaryCtxRelease(i) == 0);
  }
  JUDGE(d.transfers == 0); /* between devices they are the backend's */
  JUDGE(d.early_frees == 0);
  if (!failed || !takes_back(failed)) check_nothing_left();
  if (!failed) JUDGE(d.wrong_contexts == 0);
  if (d.odd <= ODD_HOST) d.odd = 0; /* the others are so for good */
}

static gmlake_offload_result device_create(const gmlake_offload_mock_desc *mock_desc,
                                           gmlake_offload_backend **out) {
  static const int devices[DEVICES] = {0, 1};
  void *users[DEVICES];
  gmlake_offload_cuda_desc desc;
  gmlake_offload_result result;
  device_open(mock_desc);
  memset(&desc, 0, sizeof desc);
  users[0] = desc.user = &d.halves[0];
  users[1] = &d.halves[1];
  desc.host = counted;
  desc.alloc_fn = d.room ? device_take : NULL;
  desc.free_fn = d.room ? device_give : NULL;
  desc.launch_fn = device_launch;
  desc.fill_fn = d.odd == ODD_ZEROS ? NULL : device_fill;
  if (d.device_count) {
    desc.devices = devices;
    desc.device_count = DEVICES;
    desc.alloc_users = users;
  }
  result = gmlake_offload_cuda_create(&desc, out);
  if (result == GMLAKE_OFFLOAD_OK) return result;
  *out = NULL;
  device_close();
  return result;
}

static void device_destroy(gmlake_offload_backend *backend) {
  if (!backend) return;
  gmlake_offload_cuda_destroy(backend);
  device_close();
}

static void device_get_census(const gmlake_offload_backend *backend,
                              gmlake_offload_mock_census *out) {
  (void)backend;
  memset(out, 0, sizeof *out);
  out->call_count = control->calls() - d.first;
}

/* Without fill_fn tensors begin as zeros, on either side. */
static void look_for_zeros(const void *device, const void *host, size_t bytes) {
  static char found[512 << 10], zeros[512 << 10];
  if (device)
    JUDGE(gpu.cuMemcpyDtoH(found, (CUdeviceptr)(uintptr_t)device, bytes) == 0);
  else
    memcpy(found, host, bytes);
  JUDGE(memcmp(found, zeros, bytes) == 0);
  zero_sides |= device ? 1 : 2;
}

static uint64_t digest_of_job(const machine *m, half *h, uint32_t job) {
  uint64_t totals[64] = {0}, wrong, one, digest = 0;
  uint32_t t;
  JUDGE(standin_totals(&h->operators[job], totals, 64, &wrong) == 0);
  JUDGE(m->is_memgraph || wrong == 0);
  for (t = 0; t < 64; t++) digest = digest * 31 + totals[t];
  for (t = 0; t < g.info.tensor_count; t++) {
    const gmlo_tensor *tensor = &g.graph->tensors[t];
    void *device, *host;
    if (tensor->kind > GMLAKE_OFFLOAD_INPUT || tensor->bytes == 0) continue;
    if (d.device_count && h != &d.halves[tensor->device]) continue;
    JUDGE_OK(gmlake_offload_run_locate(m->run, job, t, &device, &host));
    JUDGE(device || host);
    JUDGE(standin_digest(&h->operators[job], device ? device : host, tensor->bytes, NULL, &one) ==
          0);
    digest = digest * 31 + one;
    if (d.odd == ODD_ZEROS && g.acts[g.act_count - 1].number == 0)
      look_for_zeros(device, host, tensor->bytes);
  }
  return digest;
}

/* Of what each iteration read and wrote, and of what lives on. A call that is to fail, and is none
   of those before, is then counted on from here. */
static uint64_t device_digest(const machine *m, const gmlake_offload_mock_census *census) {
  uint64_t digest = 0;
  uint32_t j;
  int i;
  if (g.fail_at) control->fail_function(NULL, 0, CUDA_SUCCESS, 0);
  for (i = 0; i < device_count() && !g.has_failed; i++) {
    JUDGE(gpu.cuCtxPushCurrent(d.halves[i].context) == 0);
    for (j = 0; j < d.jobs; j++) digest = digest * 31 + digest_of_job(m, &d.halves[i], j);
    JUDGE(gpu.cuCtxPopCurrent(&d.halves[i].context) == 0);
  }
  d.stops = 1;
  if (g.fail_at > census->call_count)
    control->fail_function(NULL, g.fail_at - census->call_count, CUDA_ERROR_UNKNOWN, 0);
  return digest;
}

#endif /* OFFLOAD_CUDA_MACHINE_H */
