/* The device of tests/play is here a driver, behind the CUDA backend. It stands in the place of the
   mock that small_lake.h names. DRIVER_PATH says which: the one without a device (fake_cuda.h), or
   the machine's. A call that is to fail fails below the backend: the driver without a device
   refuses one of the calls that the entry makes, by a number of its own, and what the backend has
   to make of that number is what the player expects to be told.

   With has_kernels, over either driver, work takes its own time, and is done: each use of a block
   by the program is a kernel that verifies what the one before has written, and writes something
   else; captured uses are nodes of a graph, which is launched. The device is then as small as the
   line says, and a call that is to fail fails above the backend. */
#if !defined(CUDA_DEVICE_H)
#define CUDA_DEVICE_H

#define gmlake_mock_create device_create
#define gmlake_mock_destroy device_destroy
#define gmlake_mock_get_census device_get_census
#define gmlake_mock_stream_create device_stream_create
#define gmlake_mock_stream_destroy device_stream_destroy
#define gmlake_mock_stream_hold device_stream_hold
#define gmlake_mock_stream_finish device_stream_finish
#define gmlake_mock_capture_begin device_capture_begin
#define gmlake_mock_capture_end device_capture_end
#define gmlake_mock_stream_set_lag device_stream_set_lag
#define gmlake_mock_set_clock(device, ns) judge(has_kernels, "no clock to be set")

#define DEVICES 4                                   /* the first, and all its peers */
#define HELD_NS ((uint64_t)10 * 1000 * 1000 * 1000) /* work that does not end by itself */
#define SPIN_NS (fake ? (uint64_t)300 * 1000 : (uint64_t)2 * 1000 * 1000) /* work that does */

#define WORDS_BYTES 1024

static int has_kernels;
static unsigned fake_seed; /* of how long work takes without a device; 0: none but what is held */

/* Every other lake shares its memory by fabric handles, and can do no other. */
static int is_fabric;
#define SHARED_AS (is_fabric ? GMLAKE_HANDLE_FABRIC : GMLAKE_HANDLE_POSIX_FD)

static void device_get_census(gmlake_backend *device, gmlake_mock_census *out);
static inline int has_own_time(void) { return has_kernels; }

#include "play/judge.h"

static struct launchable { /* of each of w.graphs */
  CUgraphExec exec;        /* NULL: none */
  uint32_t seeds[HELD];    /* of blocks from outside, as they were captured */
} launchables[GRAPHS];

static graph *graph_of(int serial); /* of player.h */
static block *held_block(uint32_t id);

static const fake_cuda_control *fake; /* NULL: it is the machine's driver */
static gpu_driver gpu;                /* the same driver, for the program around the lake */
static gpu_kernels kernels;
static CUcontext context, around; /* around: current where the lake is called; NULL: none is */
static CUdeviceptr wrong;         /* words that kernels found to differ */
static CUstreamCaptureMode program_mode;

/* What a line may ask for that is not here: a line with both words is not played. */
static const struct absence {
  const char *word, *other;
} absent[] = {
    {" t:", ""},
    {" gA:", ""},       /* a clock that may be set */
    {"fill", ""},       /* memory that the host fills */
    {"addresses=", ""}, /* figures of the mock, and its number of errors */
    {"driver-host-waits=", ""},
    {"told-code=1234", ""},
    {"WAIT~", ""}, /* what two waits took, to the nanosecond */
    {"hA EA", ""}, /* work that does not end: here it is captured with the rest */
    /* the legacy stream waits for the others' work, and theirs for its, of streams that end too */
    {"z1:0@A T:5", ""},
    {"fail:wait=1N", ""},
    {"D0 host-waits=2", ""},
    {"D0 host-waits=3", ""},
    {"shows@A", ""},
    {"numbers=38", ""},
    {"host-waits=38", ""},
    {"may-end", "host-waits=1"},
    {"may-end", "off:q=p behind:A=0"},
#if !defined(HAS_MEMINFO)
    {"integrated", ""},
#endif
};

static inline int is_playable(const char *words) {
  const size_t count = sizeof(absent) / sizeof(absent[0]);
  size_t i = 0;
  while (i < count && (!strstr(words, absent[i].word) || !strstr(words, absent[i].other))) i++;
  return i == count;
}

static int open_driver(void) {
  if (!gpu.library && gpu_open(&gpu, DRIVER_PATH))
    fake = (const fake_cuda_control *)dlsym(gpu.library, "fake_cuda_control");
  if (!gpu.library) (void)fprintf(stderr, "%s: it cannot be opened\n", DRIVER_PATH);
  return gpu.library != NULL;
}

static void check(CUresult code, const char *what) { judge(code == CUDA_SUCCESS, what); }

/* The program's calls stand between these two, which spare what is captured. */
static void make_current(void) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  check(gpu.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  check(gpu.cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  program_mode = mode;
}

static void make_former_current(void) {
  CUcontext popped;
  check(gpu.cuThreadExchangeStreamCaptureMode(&program_mode), "cuThreadExchangeStreamCaptureMode");
  check(gpu.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
}

/* ---- A device as small as the line says ------------------------------------------------------ */

static struct small {
  gmlake_backend *cuda, table;
  size_t bytes;
} small;

static size_t physical_bytes(void) {
  size_t i, bytes = 0;
  for (i = 0; i < HANDLES; i++) bytes += w.handles[i].value ? w.handles[i].bytes : 0;
  return bytes;
}

static gmlake_result small_properties(void *user, gmlake_device_properties *out, int *code) {
  const gmlake_result result = small.cuda->get_properties(user, out, code);
  if (!result) out->device_bytes = small.bytes;
  return result;
}

static gmlake_result small_info(void *user, size_t *free_bytes, size_t *total_bytes, int *code) {
  const gmlake_result result = small.cuda->get_memory_info(user, free_bytes, total_bytes, code);
  if (!result) *free_bytes = small.bytes - physical_bytes(), *total_bytes = small.bytes;
  return result;
}

static gmlake_result small_create(void *user, size_t bytes, unsigned types, uint64_t *out,
                                  int *code) {
  if (bytes <= small.bytes - physical_bytes())
    return small.cuda->create(user, bytes, types, out, code);
  *code = CUDA_ERROR_OUT_OF_MEMORY;
  return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* The backend's own streams, for copies: created later they could have the value of one of the
   program's that is gone. */
static void make_copy_streams(gmlake_backend *cuda) {
  void *host = NULL;
  int i, code = 0;
  must(cuda->host_alloc(cuda->user, sizeof(uint64_t), &host, &code), "host memory");
  for (i = 0; i < 2; i++)
    must(cuda->copy(cuda->user, wrong, host, sizeof(uint64_t), 1, &code), "a copy");
  must(cuda->copy(cuda->user, 0, NULL, 0, 0, &code), "a copy");
  must(cuda->host_free(cuda->user, host, &code), "host memory");
}

static gmlake_backend *make_small(gmlake_backend *cuda, size_t bytes) {
  memset(&small, 0, sizeof(small));
  small.cuda = cuda;
  small.bytes = bytes;
  small.table = *cuda;
  small.table.get_properties = small_properties;
  small.table.get_memory_info = small_info;
  small.table.create = small_create;
  return &small.table;
}

/* ---- Its begin and its end ------------------------------------------------------------------- */

static void clear_words(void) {
  const uint64_t zero = 0;
  make_current();
  check(gpu.cuMemcpyHtoD(wrong, &zero, sizeof(zero)), "cuMemcpyHtoD");
  make_former_current();
}

/* What a first launch loads is loaded before a capture. */
static void open_words(void) {
  CUdeviceptr words;
  check(gpu.cuMemAlloc(&wrong, 2 * WORDS_BYTES), "cuMemAlloc");
  words = wrong + WORDS_BYTES;
  check(gpu_fill(&gpu, &kernels, NULL, words, WORDS_BYTES / 4, 1), "fill");
  check(gpu_verify(&gpu, &kernels, NULL, words, WORDS_BYTES / 4, 1, wrong), "verify");
  check(gpu_spin(&gpu, &kernels, NULL, 1), "spin");
  check(gpu.cuCtxSynchronize(), "cuCtxSynchronize");
}

/* What the program around the lake needs. The machine's driver keeps it from lake to lake. */
static void open_context(void) {
  check(gpu.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  make_current();
  check(gpu_load_kernels(&gpu, &kernels), "kernels");
  if (has_kernels) open_words();
  make_former_current();
}

#if defined(HAS_MEMINFO)
#undef fopen
static size_t available_bytes; /* of an integrated device, before anything is created */

static FILE *open_meminfo(const char *name, const char *mode) {
  static char text[128];
  fake_cuda_census now_there;
  if (strcmp(name, "/proc/meminfo")) return fopen(name, mode);
  fake->get_census(&now_there);
  (void)snprintf(text, sizeof(text),
                 "MemTotal: 9 kB\nMemFree: 8 kB\nMemAvailable:  %zu kB\nX: 7 kB\n",
                 (available_bytes - now_there.physical_bytes) / 1024);
  return fmemopen(text, strlen(text), mode);
}
#endif

static void start_fake(const gmlake_mock_desc *desc_of) {
  fake_cuda_options options;
  memset(&options, 0, sizeof(options));
#if defined(HAS_MEMINFO)
  options.integrated = desc_of->available_bytes != 0;
  available_bytes = desc_of->available_bytes;
#endif
  options.device_count = DEVICES;
  options.device_bytes = has_kernels ? 0 : desc_of->capacity_bytes;
  options.granularity_bytes = desc_of->granularity_bytes;
  options.bookkeeping_only = desc_of->bookkeeping_only && !has_kernels;
  options.fabric = options.no_posix_fd = is_fabric = !is_fabric;
  options.seed = fake_seed;
  fake->reset(&options);
  context = NULL;
}

/* In turn no context is current, the lake's own, another device's. */
static void choose_context(void) {
  static unsigned turn;
  int count = 0;
  around = NULL;
  check(gpu.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (++turn % 3 == 1) around = context;
  if (turn % 3 == 2 && count > 1)
    check(gpu.cuDevicePrimaryCtxRetain(&around, 1), "cuDevicePrimaryCtxRetain");
  if (around) check(gpu.cuCtxPushCurrent(around), "cuCtxPushCurrent");
}

static gmlake_result device_create(const gmlake_mock_desc *desc_of, gmlake_backend **out) {
  gmlake_result result;
  if (!open_driver()) return GMLAKE_ERROR_NO_DRIVER;
  if (fake) start_fake(desc_of);
  result = gmlake_cuda_create(0, out);
  if (result) return result;
  if (!context) open_context();
  choose_context();
  if (!has_kernels) return GMLAKE_OK;
  clear_words();
  make_copy_streams(*out);
  *out = make_small(*out, desc_of->capacity_bytes);
  return GMLAKE_OK;
}

static void device_destroy(gmlake_backend *device) {
  CUcontext popped;
  int i;
  for (i = 1; i < w.line_count && has_kernels; i++)
    if (w.lines[i].is_alive) (void)gpu.cuStreamDestroy((CUstream)w.lines[i].value);
  gmlake_cuda_destroy(has_kernels ? small.cuda : device);
  for (i = 0; i < GRAPHS; i++)
    if (launchables[i].exec) (void)gpu.cuGraphExecDestroy(launchables[i].exec);
  if (around) (void)gpu.cuCtxPopCurrent(&popped);
  if (around && around != context) (void)gpu.cuDevicePrimaryCtxRelease(1);
  memset(launchables, 0, sizeof(launchables));
}

/* What is accessible is so to the devices that the description names, and to no others. */
static void judge_access(const map *m) {
  const int count = has_kernels ? 1 : DEVICES;
  const unsigned peers = (1u << desc.peer_count) - 1; /* devices 1 and up */
  CUmemLocation location;
  unsigned long long flags;
  memset(&location, 0, sizeof(location));
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  for (; m->is_accessible && location.id < count; location.id++) {
    check(gpu.cuMemGetAccess(&flags, &location, (CUdeviceptr)m->at), "cuMemGetAccess");
    judge(flags == ((peers << 1 | 1u) >> location.id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE),
          "other devices may use the memory than the description names");
  }
}

/* What the judge has seen of the driver, whose own figures are others' too. */
static void count_seen(gmlake_mock_census *out) {
  size_t i;
  for (i = 0; i < HANDLES; i++)
    out->handle_count += w.handles[i].value && !w.handles[i].is_released;
  out->mapping_count = w.map_count;
  out->reservation_count = w.reservations;
  out->event_count = w.event_count - (lake ? 0 : own_events()); /* which are gone by then */
  out->host_count = w.hosts;
  out->physical_bytes = physical_bytes();
}

static void count_all(gmlake_mock_census *out) {
  fake_cuda_census now_there;
  fake->get_census(&now_there);
  judge(now_there.pushed == (around != NULL), "the thread's stack of contexts has changed");
  out->handle_count = now_there.handles;
  out->mapping_count = now_there.mappings;
  out->reservation_count = now_there.reservations;
  out->event_count = now_there.events;
  out->host_count = now_there.hosts;
  out->physical_bytes = now_there.physical_bytes;
}

/* When the lake is gone, all kernels have run. */
static void judge_words(void) {
  uint64_t count = 0;
  make_current();
  check(gpu.cuCtxSynchronize(), "cuCtxSynchronize");
  check(gpu.cuMemcpyDtoH(&count, wrong, sizeof(count)), "cuMemcpyDtoH");
  make_former_current();
  judge(!count, "a kernel has read what no kernel wrote there last");
}

static void device_get_census(gmlake_backend *device, gmlake_mock_census *out) {
  CUcontext current;
  size_t i;
  (void)device;
  check(gpu.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  judge(current == around, "another context is current");
  for (i = 0; w.called[ON_ACCESS] && i < w.map_count; i++) judge_access(w.maps[i]);
  memset(out, 0, sizeof(*out));
  if (has_kernels)
    count_seen(out);
  else
    count_all(out);
  if (has_kernels && !lake && w.at) judge_words();
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* Where work is done, one in two ignores the legacy stream. Else none does: the legacy stream may
   then not be used while one is captured. */
static gmlake_result device_stream_create(gmlake_backend *device, gmlake_stream *out) {
  CUstream stream;
  (void)device;
  make_current();
  check(gpu.cuStreamCreate(
            &stream, has_kernels && w.line_count % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT),
        "cuStreamCreate");
  make_former_current();
  *out = (gmlake_stream)stream;
  return GMLAKE_OK;
}

static void device_stream_destroy(gmlake_backend *device, gmlake_stream stream) {
  (void)device;
  make_current();
  check(gpu.cuStreamDestroy((CUstream)stream), "cuStreamDestroy");
  make_former_current();
}

/* Where the program may queue work, outside of graphs. */
static int is_open(gmlake_stream stream) { return is_quiet((int)(line_of(stream) - w.lines)); }

static void device_stream_set_lag(gmlake_backend *device, gmlake_stream stream, uint64_t ns) {
  (void)device;
  judge(has_kernels || ns >= HELD_NS, "no lags of streams");
  if (has_kernels && !is_open(stream)) return;
  make_current();
  check(gpu_spin(&gpu, &kernels, (CUstream)stream, ns), "cuLaunchKernel");
  make_former_current();
}

static void device_stream_hold(gmlake_backend *device, gmlake_stream stream) {
  device_stream_set_lag(device, stream, has_kernels ? SPIN_NS : HELD_NS);
}

static void device_stream_finish(gmlake_backend *device, gmlake_stream stream) {
  (void)device;
  if (has_kernels && !is_open(stream)) return;
  make_current();
  check(gpu.cuStreamSynchronize((CUstream)stream), "cuStreamSynchronize");
  make_former_current();
}

/* ---- Kernels and graphs ---------------------------------------------------------------------- */

static uint32_t last_seed;

static void verify(const block *b, CUstream stream) {
  if (b->seed)
    check(gpu_verify(&gpu, &kernels, stream, (CUdeviceptr)b->at, b->bytes / 4, b->seed, wrong),
          "cuLaunchKernel");
}

static void fill(block *b, CUstream stream) {
  b->seed = ++last_seed;
  check(gpu_fill(&gpu, &kernels, stream, (CUdeviceptr)b->at, b->bytes / 4, b->seed),
        "cuLaunchKernel");
}

/* Whether the program's kernels alone write there, ordered behind one another on this line: graphs
   write to their own blocks, and what is shared is another block's too. */
static int is_kernels(const block *b, int on) {
  return has_kernels && !b->graph && !b->is_imported && !b->is_exported && is_quiet(on) &&
         covers(&w.lines[on].now, &w.known, &b->used);
}

/* A kernel of the line's, captured where the line is, and in a block of the capture's own writes
   first. What a graph reads stays as it is. */
static void device_use(block *b, int on) {
  const CUstream stream = (CUstream)w.lines[on].value;
  const graph *g = graph_of(w.lines[on].graph);
  const int is_own = g && b->graph == g->serial;
  if (!has_kernels || (!g && !is_kernels(b, on))) return;
  if (g && !is_own && (!g->held_count || g->held[g->held_count - 1] != b->id)) return;
  make_current();
  if (is_own) fill(b, stream);
  verify(b, stream);
  if (is_own) b->seed = 0; /* until it is launched */
  if (g && !is_own) launchables[g - w.graphs].seeds[g->held_count - 1] = b->seed;
  if (!g && !b->held) fill(b, stream);
  make_former_current();
}

/* In each of the modes in turn. */
static gmlake_result device_capture_begin(gmlake_backend *device, gmlake_stream stream) {
  const CUresult code =
      gpu.cuStreamBeginCapture((CUstream)stream, (CUstreamCaptureMode)(w.serial % 3));
  (void)device;
  return code ? GMLAKE_ERROR_DRIVER : GMLAKE_OK;
}

static gmlake_result device_capture_end(gmlake_backend *device, gmlake_stream stream) {
  struct launchable *of = &launchables[graph_of(line_of(stream)->graph) - w.graphs];
  const CUgraphExec before = of->exec;
  CUgraph graph = NULL;
  (void)device;
  if (gpu.cuStreamEndCapture((CUstream)stream, &graph)) return GMLAKE_ERROR_DRIVER;
  make_current();
  if (has_kernels)
    check(gpu.cuGraphInstantiateWithFlags(&of->exec, graph, 0), "cuGraphInstantiateWithFlags");
  check(gpu.cuGraphDestroy(graph), "cuGraphDestroy");
  if (before) check(gpu.cuGraphExecDestroy(before), "cuGraphExecDestroy");
  make_former_current();
  return GMLAKE_OK;
}

/* Where a block that it reads was not given up meanwhile, with its pool's contents. What a driver
   lets pass is not launched. */
static int device_launch(const graph *g, int on, gmlake_result wanted) {
  const struct launchable *of = &launchables[g - w.graphs];
  size_t i;
  if (wanted || !of->exec) return !wanted;
  for (i = 0; i < g->held_count; i++)
    if (held_block(g->held[i])->seed != of->seeds[i]) return 1;
  make_current();
  check(gpu.cuGraphLaunch(of->exec, (CUstream)w.lines[on].value), "cuGraphLaunch");
  make_former_current();
  return 1;
}

/* Of each call the driver refuses in turn the question for the current context, its change, and
   what is asked for. A number that says nothing of the device is refused there alone: with no
   context current it would be taken for the device's. */
static int device_fails(int kind, gmlake_result *result, int *code) {
  const int is_unknown = *result == GMLAKE_ERROR_DRIVER;
  const uint64_t calls = around == context ? 2 : 3; /* its own context need not be changed */
  const uint64_t place = kind == ON_EXCHANGE ? 1 : is_unknown ? calls : w.all_calls % calls + 1;
  *code = 1234;
  if (has_kernels || kind == ON_PROPERTIES) return 0; /* the backend has them at hand */
  switch (*result) {
  case GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY:
    *code = CUDA_ERROR_OUT_OF_MEMORY;
    if (kind == ON_HOST_ALLOC) *result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    break;
  case GMLAKE_ERROR_OUT_OF_HOST_MEMORY:
    *code = kind == ON_HOST_ALLOC ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    break;
  case GMLAKE_ERROR_INVALID_ARGUMENT:
    *code =
        kind == ON_RECORD && place == calls ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    break;
  case GMLAKE_ERROR_UNSUPPORTED:
    *code = CUDA_ERROR_NOT_SUPPORTED;
    break;
  case GMLAKE_ERROR_DEVICE_LOST:
    *code = CUDA_ERROR_ILLEGAL_ADDRESS;
    break;
  case GMLAKE_ERROR_SHUTTING_DOWN:
    *code = CUDA_ERROR_DEINITIALIZED;
    break;
  default:
    *code = CUDA_ERROR_UNKNOWN;
    break;
  }
  fake->fail_function(NULL, place, (CUresult)*code, 0);
  return 1;
}

#endif
