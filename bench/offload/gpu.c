/* build/offload_gpu: runs recorded graphs on a GPU in less than their memory, by both planners, and
   on the mock, and compares. Memory comes from a lake, copies run on streams of their own, and
   operators are stand-ins (standin.h). The text of --help says what it takes and what its columns
   mean. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_CUDA
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_TURNIP_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#include "gmlake.h"
#include "gmlake_turnip.h"

#include "../graph.h"
#include "../options.h"
#include "figures.h"
#include "standin.h"

#include "captured.h"

#define ITERATIONS_MAX 256
#define CHECKED 3 /* iterations after which persistent tensors are looked at */
#define LINK_BYTES ((size_t)64 << 20)
#define ALIGN_BYTES ((size_t)64 << 10) /* of places in a memgraph, before --divide */

static const char about[] =
    "Runs recorded graphs on a GPU in less than their memory. Operators are stand-ins: they take "
    "the\n"
    "time that was recorded, and fill what they write with what follows from every byte that they\n"
    "read. Without GRAPH: vgg16-b64, resnet50-b64 and llama-7b-lora-b8-1k of bench/graphs. GRAPH "
    "is a\n"
    ".gmgraph file, or one of those that build/turnip makes up (its --help names them), which may "
    "use\n"
    "several GPUs: then there are no plans of the planner, and transfers are copies from GPU to "
    "GPU.\n"
    "Without a GPU it says so and succeeds.\n";
static const char columns[] =
    "\nThree rows for each graph, with --fixed three and with --graph one more:\n"
    "  none          nothing moves\n"
    "  tensile+      in --part of the memory that `none` takes, by a plan of gmlake_offload.h's\n"
    "                planner: the one that adds least time of those whose peak fits, else the one "
    "of\n"
    "                the lowest peak, and the run's on-demand swaps make up for the rest\n"
    "  turnip        in as much memory, or in --budget-gib, by a memgraph that is compiled for "
    "it;\n"
    "                whatever is ready runs\n"
    "  turnip-sim    the same; each queue runs in the order of the compiler's simulation\n"
    "  turnip-ops    the same; operators run in the order of compilation, copies in any\n"
    "  turnip-fixed  the same; each queue runs in the order of compilation\n"
    "  turnip-graph  the order of turnip-sim, captured as one CUDA graph. An iteration is one "
    "launch\n"
    "                of it. No host decides anything meanwhile, so that nobody knows its stalls\n"
    "Each runs on the GPU and, with the same plan, limit and --ahead, on the mock, whose link has "
    "the\n"
    "speeds that were measured at the start. Columns:\n"
    "  peak GB   most bytes of tensors on the device at once; `turnip`: of its arena; the sum of "
    "all\n"
    "  lake GB   most memory that the lakes held\n"
    "  time ms   an iteration: the median of --iterations in a row, after --settle others\n"
    "  mock ms   an iteration by the mock's clock\n"
    "  ratio     time ms / mock ms\n"
    "  stall ms  time in an iteration without an operator that was launched; by mock: the same "
    "there\n"
    "  out GB    copied to the host in an iteration,\n"
    "  in GB     and back\n"
    "  looked    part of the bytes read from which the stand-ins' results follow\n"
    "and whether all bytes are those of `none`: of each operator in each iteration, and of all\n"
    "persistent tensors after each of the first three iterations and at the end: ok, or what is\n"
    "wrong. A figure that does not exist, as the ratio where nothing takes time, is -.\n"
    "\nExit status: 0; 1 where a graph cannot be read or a row is not ok; 2 for wrong options.\n";

typedef struct options {
  int json, fixed, graph;
  uint64_t iterations, settle, ahead, divide, pin_mib;
  double part, budget_gib, jitter;
} options;

typedef struct link_speed {
  double out, in, both; /* bytes a second */
} link_speed;

static gpu_driver gpu;
static CUcontext contexts[GRAPH_DEVICES_MAX]; /* the primary ones; NULL: not retained */

typedef struct subject {
  const options *opts;
  const char *name;
  const gmlake_offload_graph *graph;
  gmlake_offload_graph_info info;
  link_speed link;
  size_t device_peak; /* the most that one device holds when nothing moves */
} subject;

/* By a plan or none, or by a memgraph. */
typedef struct way {
  const char *name;
  const gmlake_offload_plan *plan;
  size_t limit;
  const gmlake_offload_memgraph *memgraph;
  unsigned flags; /* of its run */
  int captured;   /* one CUDA graph in place of the run on the GPU */
} way;

/* What has happened so far. */
typedef struct figures {
  uint64_t stall_ns, on_demand_count, recompute_count;
  size_t out_bytes, in_bytes, peak_bytes, pinned_bytes;
} figures;

/* One run, on the GPU or on the mock. */
typedef struct outcome {
  gmlake_offload_result result;
  double time_ms, stall_ms; /* an iteration */
  size_t peak_bytes, reserved_bytes, pinned_bytes;
  double out_bytes, in_bytes; /* an iteration */
  uint64_t on_demand_count, recompute_count;
  double looked_at;
  uint64_t totals[ITERATIONS_MAX], wrong;
  uint64_t *persistent; /* digests: CHECKED times, and at the end */
  size_t persistent_count;
} outcome;

typedef struct bench_device {
  gmlake *lake;
  standin operators;
} bench_device;

typedef struct bench {
  const subject *s;
  const gmlake_offload_backend *backend;
  gmlake_offload_run *run;                 /* this, */
  captured captured;                       /* or this, if it has an exec */
  bench_device devices[GRAPH_DEVICES_MAX]; /* on the GPU */
  int on_gpu;
  uint64_t ends[ITERATIONS_MAX + 1]; /* of the iterations measured, by the backend's clock */
  size_t end_count;
  uint64_t iteration_count; /* of a memgraph */
} bench;

static double host_ms(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void fail(outcome *o, gmlake_offload_result result) {
  if (!o->result) o->result = result;
}

/* ---- The link -------------------------------------------------------------------------------- */

/* Copies eight times each way asked for; the bytes a second of them all, 0 where one fails. */
static double link_rate(CUdeviceptr device, char *host, size_t bytes, CUstream out, CUstream in) {
  double began = host_ms(), count = 0;
  int i;
  for (i = 0; i < 8; i++) {
    if (out && gpu.cuMemcpyDtoHAsync(host, device, bytes, out)) return 0;
    if (in && gpu.cuMemcpyHtoDAsync(device + bytes, host + bytes, bytes, in)) return 0;
    count += (out != NULL) + (in != NULL);
  }
  if (gpu.cuCtxSynchronize()) return 0;
  return count * (double)bytes * 1e3 / (host_ms() - began);
}

static int measure_link(size_t bytes, link_speed *speed) {
  CUdeviceptr device = 0;
  CUstream out = NULL, in = NULL;
  void *host = NULL;
  int ok = !gpu.cuMemAlloc(&device, 2 * bytes) && !gpu.cuMemHostAlloc(&host, 2 * bytes, 0) &&
           !gpu.cuStreamCreate(&out, CU_STREAM_NON_BLOCKING) &&
           !gpu.cuStreamCreate(&in, CU_STREAM_NON_BLOCKING);
  if (ok) {
    (void)link_rate(device, (char *)host, bytes, out, in);
    speed->out = link_rate(device, (char *)host, bytes, out, NULL);
    speed->in = link_rate(device, (char *)host, bytes, NULL, in);
    speed->both = link_rate(device, (char *)host, bytes, out, in);
    ok = speed->out > 0 && speed->in > 0 && speed->both > 0;
  }
  if (in) (void)gpu.cuStreamDestroy(in);
  if (out) (void)gpu.cuStreamDestroy(out);
  if (host) (void)gpu.cuMemFreeHost(host);
  if (device) (void)gpu.cuMemFree(device);
  return ok;
}

/* ---- Several devices ------------------------------------------------------------------------- */

/* Retains the contexts of so many devices, and makes the first one current. 0: there are fewer. */
static int open_contexts(size_t count) {
  CUdevice device;
  size_t i;
  for (i = 0; i < count; i++) {
    if (contexts[i]) continue;
    if (gpu.cuDeviceGet(&device, (int)i)) return 0;
    if (gpu.cuDevicePrimaryCtxRetain(&contexts[i], device)) {
      contexts[i] = NULL;
      return 0;
    }
  }
  return !gpu.cuCtxSetCurrent(contexts[0]);
}

static void close_contexts(void) {
  size_t i;
  for (i = 0; i < GRAPH_DEVICES_MAX; i++) {
    if (contexts[i]) (void)gpu.cuDevicePrimaryCtxRelease((CUdevice)i);
  }
}

/* A lake for each device, from whose memory copies reach the others. */
static int make_lakes(gmlake **lakes, size_t count) {
  int peers[GRAPH_DEVICES_MAX];
  gmlake_desc desc;
  size_t i, n;
  for (i = 0; i < count; i++) {
    memset(&desc, 0, sizeof desc);
    desc.device = (int)i;
    desc.peer_devices = count > 1 ? peers : NULL;
    for (n = 0; n < count; n++) {
      if (n != i) peers[desc.peer_count++] = (int)n;
    }
    if (gmlake_create(&desc, &lakes[i])) return 0;
  }
  return 1;
}

/* Bytes a second of copies from the first device to the second, between the lakes' memory. 0: one
   fails. */
static double peer_rate(size_t bytes) {
  gmlake *lakes[2] = {NULL, NULL};
  void *from = NULL, *to = NULL;
  double began = 0, ms = 0;
  int i, ok = make_lakes(lakes, 2) && !gmlake_alloc(lakes[0], bytes, NULL, &from) &&
              !gmlake_alloc(lakes[1], bytes, NULL, &to);
  for (i = 0; ok && i < 9; i++) {
    if (i == 1) { /* the first one only warms up */
      ok = !gpu.cuCtxSynchronize();
      began = host_ms();
    }
    ok = ok && !gpu.cuMemcpyPeerAsync((CUdeviceptr)(uintptr_t)to, contexts[1],
                                      (CUdeviceptr)(uintptr_t)from, contexts[0], bytes, NULL);
  }
  ok = ok && !gpu.cuCtxSynchronize();
  ms = host_ms() - began;
  if (from) (void)gmlake_free(lakes[0], from, NULL);
  if (to) (void)gmlake_free(lakes[1], to, NULL);
  for (i = 0; i < 2; i++) (void)gmlake_destroy(lakes[i]);
  return ok ? 8 * (double)bytes * 1e3 / ms : 0;
}

/* ---- The kernels against standin_c.h --------------------------------------------------------- */

#define CHECK_BYTES 70001

static int check_kernels(const subject *s, unsigned shift) {
  static unsigned char got[CHECK_BYTES], expected[CHECK_BYTES];
  standin_item item;
  standin_end end;
  standin op;
  CUdeviceptr at = 0;
  uint64_t digest = 0;
  int ok = standin_create(&op, &gpu, s->graph, 1);
  if (!ok) return 0;
  memset(expected, 0, sizeof expected);
  memset(&end, 0, sizeof end);
  end.slot = op.memory + STANDIN_ZERO;
  end.seed = 5;
  ok = !gpu.cuMemAlloc(&at, CHECK_BYTES) && !gpu.cuMemcpyHtoD(at, expected, CHECK_BYTES);
  item = standin_item_of((void *)(uintptr_t)at, CHECK_BYTES, shift);
  ok = ok && !standin_start_write(&op, &item, 1, &end, NULL) && !gpu.cuCtxSynchronize() &&
       !gpu.cuMemcpyDtoH(got, at, CHECK_BYTES) &&
       !standin_start_read(&op, &item, 1, op.memory, 9, NULL) && !gpu.cuCtxSynchronize() &&
       !gpu.cuMemcpyDtoH(&digest, op.memory, 8);
  item = standin_item_of(expected, CHECK_BYTES, shift);
  standin_write(&item, standin_mix(5), 0);
  ok = ok && !memcmp(got, expected, sizeof got) && digest == standin_read(&item, 9, 0);
  if (at) (void)gpu.cuMemFree(at);
  standin_destroy(&op);
  return ok;
}

/* ---- A run ----------------------------------------------------------------------------------- */

/* The tensor's device; of memory on the host the first one, whose streams write it. */
static bench_device *device_of(bench *b, uint32_t tensor, int on_host) {
  gmlake_offload_tensor_desc desc;
  memset(&desc, 0, sizeof desc);
  if (!on_host) (void)gmlake_offload_get_tensor(b->s->graph, tensor, &desc);
  return &b->devices[desc.device];
}

static int lake_alloc(void *user, size_t bytes, void *stream, void **out_ptr) {
  return gmlake_alloc(((bench_device *)user)->lake, bytes, stream, out_ptr) != GMLAKE_OK;
}

static void lake_free(void *user, void *ptr, size_t bytes, void *stream) {
  (void)bytes;
  (void)gmlake_free(((bench_device *)user)->lake, ptr, stream);
}

static int launch(void *user, const gmlake_offload_launch *what, void *stream) {
  return standin_launch(&((bench *)user)->devices[what->desc.device].operators, what, stream);
}

static int fill(void *user, uint32_t job, uint32_t tensor, void *ptr, size_t bytes, int on_host,
                void *stream) {
  bench *b = (bench *)user;
  return standin_fill(&device_of(b, tensor, on_host)->operators, job, tensor, ptr, bytes, on_host,
                      stream);
}

static void note_end(void *user, uint32_t job, uint64_t iteration) {
  bench *b = (bench *)user;
  (void)job;
  (void)iteration;
  if (b->end_count > ITERATIONS_MAX) return;
  (void)b->backend->now(b->backend->user, &b->ends[b->end_count++]);
}

static int before(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median of the iterations measured. */
static double median_ms(const bench *b) {
  double times[ITERATIONS_MAX];
  size_t i;
  for (i = 0; i + 1 < b->end_count; i++) {
    times[i] = (double)(b->ends[i + 1] - b->ends[i]) / 1e6;
  }
  qsort(times, i, sizeof *times, before);
  return i ? (times[i / 2] + times[(i - 1) / 2]) / 2 : 0;
}

/* Digests of all persistent tensors, wherever they are. */
static void look_at_persistent(bench *b, outcome *o) {
  CUresult code = CUDA_SUCCESS;
  uint32_t t;
  for (t = 0; t < b->s->info.tensor_count && !code; t++) {
    gmlake_offload_tensor_desc desc;
    void *device = NULL, *host = NULL;
    memset(&desc, 0, sizeof desc);
    (void)gmlake_offload_get_tensor(b->s->graph, t, &desc);
    if (desc.kind > GMLAKE_OFFLOAD_INPUT || !desc.bytes) continue;
    if (b->captured.exec) {
      captured_locate(&b->captured, t, &device, &host);
    } else {
      fail(o, gmlake_offload_run_locate(b->run, 0, t, &device, &host));
    }
    if (o->result) return;
    if (!device) desc.device = 0;
    code = gpu.cuCtxSetCurrent(contexts[desc.device]);
    if (code) break;
    code = standin_digest(&b->devices[desc.device].operators, device ? device : host, desc.bytes,
                          NULL, &o->persistent[o->persistent_count++]);
  }
  if (gpu.cuCtxSetCurrent(contexts[0])) code = CUDA_ERROR_UNKNOWN;
  if (code) fail(o, GMLAKE_OFFLOAD_ERROR_BACKEND);
}

static void iterate(bench *b, outcome *o, uint64_t count) {
  if (b->run && !o->result) fail(o, gmlake_offload_run_iterations(b->run, count));
  for (; !b->run && count && !o->result; count--) {
    if (b->captured.exec && captured_run(&b->captured)) fail(o, GMLAKE_OFFLOAD_ERROR_BACKEND);
    b->iteration_count++;
    note_end(b, 0, 0);
  }
}

static figures run_figures(const bench *b) {
  gmlake_offload_run_stats stats;
  figures f;
  memset(&f, 0, sizeof f);
  memset(&stats, 0, sizeof stats);
  if (gmlake_offload_run_get_stats(b->run, &stats)) return f;
  f.stall_ns = stats.stall_ns;
  f.on_demand_count = stats.on_demand_out_count;
  f.recompute_count = stats.recompute_count;
  f.out_bytes = stats.out_bytes;
  f.in_bytes = stats.in_bytes;
  f.peak_bytes = stats.device_bytes_peak;
  f.pinned_bytes = stats.host_bytes_peak;
  return f;
}

static figures captured_figures(const bench *b) {
  const gmlake_offload_memgraph_info *info = &b->captured.info;
  figures f;
  memset(&f, 0, sizeof f);
  f.out_bytes = info->offload_bytes * b->iteration_count;
  f.in_bytes = info->reload_bytes * b->iteration_count;
  f.peak_bytes = info->device_bytes;
  f.pinned_bytes = info->host_bytes;
  return f;
}

static figures figures_of(const bench *b) {
  if (b->captured.exec) return captured_figures(b);
  return run_figures(b);
}

static void measure(bench *b, outcome *o) {
  const options *opts = b->s->opts;
  figures first, last;
  double count = (double)opts->iterations;
  iterate(b, o, opts->settle);
  if (b->run) (void)gmlake_offload_run_reset_peaks(b->run);
  first = figures_of(b);
  b->end_count = 0;
  (void)b->backend->now(b->backend->user, &b->ends[b->end_count++]);
  iterate(b, o, opts->iterations);
  last = figures_of(b);
  o->time_ms = median_ms(b);
  o->stall_ms = b->captured.exec ? NAN : (double)(last.stall_ns - first.stall_ns) / 1e6 / count;
  o->peak_bytes = last.peak_bytes;
  o->pinned_bytes = last.pinned_bytes;
  o->out_bytes = (double)(last.out_bytes - first.out_bytes) / count;
  o->in_bytes = (double)(last.in_bytes - first.in_bytes) / count;
  o->on_demand_count = last.on_demand_count - first.on_demand_count;
  o->recompute_count = last.recompute_count - first.recompute_count;
}

static void start_run(bench *b, outcome *o, const way *w) {
  gmlake_offload_run_desc desc;
  uint32_t job;
  memset(&desc, 0, sizeof desc);
  desc.backend = b->backend;
  desc.flags = w->flags;
  desc.limit_bytes = w->limit;
  desc.launch_ahead_max = (uint32_t)b->s->opts->ahead;
  desc.iteration_fn = note_end;
  desc.user = b;
  fail(o, gmlake_offload_run_create(&desc, &b->run));
  if (o->result) return;
  fail(o, w->memgraph ? gmlake_offload_run_add_memgraph(b->run, w->memgraph, &job)
                      : gmlake_offload_run_add_job(b->run, b->s->graph, w->plan, &job));
}

static void start(bench *b, outcome *o, const way *w) {
  if (w->captured && b->on_gpu) {
    if (!captured_create(&b->captured, b->backend, w->memgraph, &b->devices[0].operators)) {
      fail(o, GMLAKE_OFFLOAD_ERROR_BACKEND);
    }
  } else {
    start_run(b, o, w);
  }
}

static void end(bench *b) {
  captured_destroy(&b->captured);
  gmlake_offload_run_destroy(b->run);
}

/* What the operators of all devices have read, and how much of it they looked at. */
static void add_totals(bench *b, outcome *o, uint64_t count) {
  uint64_t totals[ITERATIONS_MAX], wrong;
  double bytes = 0, looked_at = 0;
  size_t d, i;
  for (d = 0; d < b->s->info.device_count && !o->result; d++) {
    const standin *operators = &b->devices[d].operators;
    if (gpu.cuCtxSetCurrent(contexts[d]) || standin_totals(operators, totals, count, &wrong)) {
      fail(o, GMLAKE_OFFLOAD_ERROR_BACKEND);
      break;
    }
    for (i = 0; i < count; i++) o->totals[i] += totals[i];
    o->wrong += wrong;
    bytes += operators->bytes;
    looked_at += operators->looked_at;
  }
  if (gpu.cuCtxSetCurrent(contexts[0])) fail(o, GMLAKE_OFFLOAD_ERROR_BACKEND);
  o->looked_at = bytes > 0 ? looked_at / bytes : 1;
}

static void run_on_gpu(bench *b, outcome *o, const way *w) {
  uint64_t i, all = CHECKED + b->s->opts->settle + b->s->opts->iterations;
  o->persistent = (uint64_t *)calloc(CHECKED + 1, b->s->info.tensor_count * sizeof(uint64_t));
  if (!o->persistent) fail(o, GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY);
  if (!o->result) start(b, o, w);
  for (i = 0; i < CHECKED && !o->result; i++) {
    iterate(b, o, 1);
    if (!o->result) look_at_persistent(b, o);
  }
  measure(b, o);
  if (!o->result) look_at_persistent(b, o);
  if (!o->result) add_totals(b, o, all);
  end(b);
}

/* A stand-in for each device. 0: something is refused. */
static int make_operators(bench *b) {
  size_t i;
  int ok = 1;
  for (i = 0; ok && i < b->s->info.device_count; i++) {
    standin *operators = &b->devices[i].operators;
    ok = !gpu.cuCtxSetCurrent(contexts[i]) &&
         standin_create(operators, &gpu, b->s->graph, ITERATIONS_MAX);
    operators->jitter = b->s->opts->jitter;
    operators->is_frozen = b->s->opts->graph;
  }
  return !gpu.cuCtxSetCurrent(contexts[0]) && ok;
}

static void destroy_operators(bench *b) {
  size_t i;
  for (i = 0; i < b->s->info.device_count; i++) {
    (void)gpu.cuCtxSetCurrent(contexts[i]);
    standin_destroy(&b->devices[i].operators);
  }
  (void)gpu.cuCtxSetCurrent(contexts[0]);
}

/* NULL: refused. */
static gmlake_offload_backend *make_backend(bench *b) {
  int devices[GRAPH_DEVICES_MAX];
  void *users[GRAPH_DEVICES_MAX];
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  size_t i;
  memset(&desc, 0, sizeof desc);
  for (i = 0; i < b->s->info.device_count; i++) {
    devices[i] = (int)i;
    users[i] = &b->devices[i];
  }
  desc.alloc_fn = lake_alloc;
  desc.free_fn = lake_free;
  desc.launch_fn = launch;
  desc.fill_fn = fill;
  desc.user = b;
  desc.devices = devices;
  desc.device_count = (uint32_t)b->s->info.device_count;
  desc.alloc_users = users;
  return gmlake_offload_cuda_create(&desc, &backend) ? NULL : backend;
}

/* pre: the contexts of all devices; the first one's is current. */
static void on_gpu(const subject *s, const way *w, outcome *o) {
  gmlake *lakes[GRAPH_DEVICES_MAX];
  gmlake_offload_backend *backend = NULL;
  bench b;
  size_t i;
  memset(&b, 0, sizeof b);
  memset(o, 0, sizeof *o);
  memset(lakes, 0, sizeof lakes);
  b.s = s;
  b.on_gpu = 1;
  if (!make_lakes(lakes, s->info.device_count)) fail(o, GMLAKE_OFFLOAD_ERROR_BACKEND);
  for (i = 0; i < s->info.device_count; i++) b.devices[i].lake = lakes[i];
  if (!o->result) b.backend = backend = make_backend(&b);
  if (!backend || !make_operators(&b)) fail(o, GMLAKE_OFFLOAD_ERROR_BACKEND);
  if (!o->result) run_on_gpu(&b, o, w);
  destroy_operators(&b);
  for (i = 0; i < s->info.device_count && lakes[i]; i++) {
    gmlake_stats stats;
    memset(&stats, 0, sizeof stats);
    (void)gmlake_get_stats(lakes[i], &stats);
    o->reserved_bytes += stats.reserved_bytes_peak;
    if (gmlake_destroy(lakes[i]))
      fail(o, GMLAKE_OFFLOAD_ERROR_BACKEND); /* before its stream goes */
  }
  gmlake_offload_cuda_destroy(backend);
}

/* The mock scales tensors down by a 16th of it: it is quick where places are coarse. */
static size_t align_bytes(const subject *s) {
  size_t align = ALIGN_BYTES;
  while (align > 512 && align * s->opts->divide > ALIGN_BYTES) align /= 2;
  return align;
}

/* The same on the mock's clock, whose operators begin without any delay. */
static void on_mock(const subject *s, const way *w, outcome *o) {
  gmlake_offload_mock_desc desc;
  gmlake_offload_backend *backend = NULL;
  bench b;
  memset(&b, 0, sizeof b);
  memset(o, 0, sizeof *o);
  memset(&desc, 0, sizeof desc);
  b.s = s;
  desc.divisor = w->memgraph ? align_bytes(s) / 16 : (size_t)1 << 20;
  desc.out_bytes_per_s = s->link.out;
  desc.in_bytes_per_s = s->link.in;
  desc.both_bytes_per_s = s->link.both;
  desc.copy_ns = 10000;
  desc.jitter = s->opts->jitter;
  fail(o, gmlake_offload_mock_create(&desc, &backend));
  if (o->result) return;
  b.backend = backend;
  start(&b, o, w);
  iterate(&b, o, CHECKED);
  measure(&b, o);
  end(&b);
  gmlake_offload_mock_destroy(backend);
}

/* ---- Plans and memgraphs --------------------------------------------------------------------- */

/* The plan of least overhead whose peak is the limit at most, else the lowest. NULL: none. */
static gmlake_offload_plan *make_plan(const subject *s, size_t limit) {
  static const double overheads[] = {.02, .05, .1, .2, .4, .8};
  gmlake_offload_plan *best = NULL;
  size_t i, best_bytes = SIZE_MAX;
  for (i = 0; i < sizeof overheads / sizeof *overheads && best_bytes > limit; i++) {
    gmlake_offload_planner_desc desc;
    gmlake_offload_job_desc job_desc;
    gmlake_offload_plan_info info;
    gmlake_offload_planner *planner;
    gmlake_offload_plan *plan = NULL;
    uint32_t job;
    memset(&desc, 0, sizeof desc);
    memset(&job_desc, 0, sizeof job_desc);
    desc.overhead_max = overheads[i];
    desc.target_bytes = limit;
    desc.out_bytes_per_s = s->link.out;
    desc.in_bytes_per_s = s->link.in;
    desc.both_bytes_per_s = s->link.both;
    job_desc.graph = s->graph;
    if (gmlake_offload_planner_create(&desc, &planner)) break;
    if (!gmlake_offload_add_job(planner, &job_desc, &job) && !gmlake_offload_replan(planner)) {
      (void)gmlake_offload_take_plan(planner, job, &plan);
    }
    gmlake_offload_planner_destroy(planner);
    if (!plan || gmlake_offload_plan_get_info(plan, &info)) break;
    if (info.peak_bytes < best_bytes) {
      gmlake_offload_plan_destroy(best);
      best = plan;
      best_bytes = info.peak_bytes;
    } else {
      gmlake_offload_plan_destroy(plan);
    }
  }
  return best;
}

/* Proved right; NULL: none. */
static gmlake_offload_memgraph *make_memgraph(const subject *s, size_t bytes) {
  gmlake_offload_memgraph_desc desc;
  gmlake_offload_memgraph *memgraph;
  gmlake_offload_result result;
  memset(&desc, 0, sizeof desc);
  desc.graph = s->graph;
  desc.device_bytes = bytes;
  desc.align_bytes = align_bytes(s);
  desc.out_bytes_per_s = s->link.out;
  desc.in_bytes_per_s = s->link.in;
  result = gmlake_offload_memgraph_create(&desc, &memgraph);
  if (!result) result = gmlake_offload_memgraph_check(memgraph, NULL);
  if (!result) return memgraph;
  fprintf(stderr, "%s: no memgraph: %s\n", s->name, gmlake_offload_result_name(result));
  gmlake_offload_memgraph_destroy(memgraph);
  return NULL;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static int is_equal(const subject *s, const outcome *none, const outcome *o) {
  const options *opts = s->opts;
  size_t all = CHECKED + opts->settle + opts->iterations;
  return !none->result && !o->result && !o->wrong &&
         !memcmp(o->totals, none->totals, all * sizeof *o->totals) &&
         o->persistent_count == none->persistent_count &&
         !memcmp(o->persistent, none->persistent, o->persistent_count * sizeof(uint64_t));
}

static void print_row(const subject *s, const char *way, const outcome *real, const outcome *mock,
                      int equal) {
  const char *state = real->result   ? gmlake_offload_result_name(real->result)
                      : mock->result ? gmlake_offload_result_name(mock->result)
                      : equal        ? "ok"
                                     : "WRONG BYTES";
  figure stall = figure_of(real->stall_ms, "%.3f", s->opts->json ? "null" : "-");
  if (s->opts->json) {
    printf(
        "{\"graph\":\"%s\",\"way\":\"%s\",\"state\":\"%s\",\"peak_bytes\":%zu,"
        "\"reserved_bytes\":%zu,\"pinned_bytes\":%zu,\"time_ms\":%.3f,\"mock_ms\":%.3f,"
        "\"stall_ms\":%s,\"mock_stall_ms\":%.3f,\"out_bytes\":%.0f,\"in_bytes\":%.0f,"
        "\"mock_out_bytes\":%.0f,\"mock_in_bytes\":%.0f,\"on_demand\":%llu,"
        "\"mock_on_demand\":%llu,\"recomputed\":%llu,\"digests\":%zu,\"looked_at\":%.4f}\n",
        s->name, way, state, real->peak_bytes, real->reserved_bytes, real->pinned_bytes,
        real->time_ms, mock->time_ms, stall.text, mock->stall_ms, real->out_bytes, real->in_bytes,
        mock->out_bytes, mock->in_bytes, (unsigned long long)real->on_demand_count,
        (unsigned long long)mock->on_demand_count, (unsigned long long)real->recompute_count,
        real->persistent_count, real->looked_at);
  } else {
    figure slower = figure_of(ratio(real->time_ms, mock->time_ms), "%.3f", "-");
    printf("%-20s %-12s %7.3f %7.3f %9.3f %9.3f %6s %8s %8.3f %7.3f %7.3f %7.2f  %s\n", s->name,
           way, (double)real->peak_bytes / 1e9, (double)real->reserved_bytes / 1e9, real->time_ms,
           mock->time_ms, slower.text, stall.text, mock->stall_ms, real->out_bytes / 1e9,
           real->in_bytes / 1e9, real->looked_at, state);
  }
  (void)fflush(stdout);
}

/* A row; `none` is what came of moving nothing, the first time NULL. */
static int bench_way(const subject *s, const way *w, const outcome *none, outcome *real) {
  outcome mock;
  int equal;
  on_mock(s, w, &mock);
  on_gpu(s, w, real);
  equal = none ? is_equal(s, none, real) : !real->wrong;
  print_row(s, w->name, real, &mock, equal);
  return equal && !real->result && !mock.result;
}

static int bench_moved(const subject *s, const way *w, const outcome *none) {
  outcome o;
  int ok = bench_way(s, w, none, &o);
  free(o.persistent);
  return ok;
}

static int bench_tensile(const subject *s, const outcome *none, size_t limit) {
  gmlake_offload_plan *plan = make_plan(s, limit);
  way w;
  int ok;
  memset(&w, 0, sizeof w);
  w.name = "tensile+";
  w.plan = plan;
  w.limit = limit;
  ok = plan && bench_moved(s, &w, none);
  gmlake_offload_plan_destroy(plan);
  return ok;
}

static int bench_turnip(const subject *s, const outcome *none, size_t limit) {
  static const struct {
    const char *name;
    unsigned flags;
    int captured;
  } orders[] = {{"turnip-sim", GMLAKE_OFFLOAD_SIMULATED_ORDER, 0},
                {"turnip-ops", GMLAKE_OFFLOAD_FIXED_OPS, 0},
                {"turnip-fixed", GMLAKE_OFFLOAD_FIXED_ORDER, 0},
                {"turnip-graph", GMLAKE_OFFLOAD_SIMULATED_ORDER, 1}};
  double bytes = s->opts->budget_gib * (double)((size_t)1 << 30);
  gmlake_offload_memgraph *memgraph = make_memgraph(s, bytes > 0 ? (size_t)bytes : limit);
  size_t i;
  way w;
  int ok;
  memset(&w, 0, sizeof w);
  w.name = "turnip";
  w.memgraph = memgraph;
  ok = memgraph && bench_moved(s, &w, none);
  for (i = 0; memgraph && i < sizeof orders / sizeof *orders; i++) {
    w.name = orders[i].name;
    w.flags = orders[i].flags;
    w.captured = orders[i].captured;
    if (w.captured ? s->opts->graph && s->info.device_count == 1 : s->opts->fixed) {
      ok &= bench_moved(s, &w, none);
    }
  }
  gmlake_offload_memgraph_destroy(memgraph);
  return ok;
}

/* What moves nothing: a run without a plan, or a memgraph with room for everything. */
static int bench_still(const subject *s, outcome *none) {
  gmlake_offload_memgraph *memgraph = NULL;
  way w;
  int ok;
  memset(&w, 0, sizeof w);
  memset(none, 0, sizeof *none);
  w.name = "none";
  if (s->info.device_count > 1) {
    memgraph = make_memgraph(s, 0);
    if (!memgraph) return 0;
    w.memgraph = memgraph;
  }
  ok = bench_way(s, &w, NULL, none);
  gmlake_offload_memgraph_destroy(memgraph);
  return ok;
}

static int bench_subject(const subject *s) {
  size_t limit = (size_t)((double)s->device_peak * s->opts->part);
  outcome none;
  int ok;
  if (limit < s->info.op_bytes_max) limit = s->info.op_bytes_max;
  ok = bench_still(s, &none);
  if (s->info.device_count == 1) ok &= bench_tensile(s, &none, limit);
  ok &= bench_turnip(s, &none, limit);
  free(none.persistent);
  return ok;
}

static void print_peers(const options *opts) {
  double rate = peer_rate(LINK_BYTES / opts->divide);
  if (opts->json) {
    printf("{\"peer_bytes_per_s\":%.0f}\n", rate);
  } else {
    printf("from GPU to GPU: %.1f GB/s\n", rate / 1e9);
  }
}

static int bench_graph(const options *opts, const link_speed *link, const char *path) {
  char error[400], name[64];
  gmlake_offload_graph *made = graph_open(path, opts->divide, error, sizeof error);
  gmlake_offload_device_info device;
  subject s;
  uint32_t d;
  int ok;
  memset(&s, 0, sizeof s);
  if (!made) {
    fprintf(stderr, "%s\n", error);
    return 0;
  }
  graph_name(path, name, sizeof name);
  s.opts = opts;
  s.name = name;
  s.graph = made;
  s.link = *link;
  (void)gmlake_offload_graph_get_info(made, &s.info);
  device.struct_bytes = 0;
  for (d = 0; !gmlake_offload_graph_get_device_info(made, d, &device); d++) {
    if (device.peak_bytes > s.device_peak) s.device_peak = device.peak_bytes;
  }
  ok = open_contexts(s.info.device_count);
  if (!ok) fprintf(stderr, "%s: it takes %zu GPUs\n", name, s.info.device_count);
  if (ok && s.info.device_count > 1) print_peers(opts);
  if (ok && (!check_kernels(&s, 0) || !check_kernels(&s, 2))) {
    fprintf(stderr, "the kernels do not do what standin_c.h does\n");
    ok = 0;
  }
  ok = ok && bench_subject(&s);
  gmlake_offload_graph_destroy(made);
  return ok;
}

static int bench_all(const options *opts, char **paths, int count) {
  static const char *const names[] = {"bench/graphs/vgg16-b64.gmgraph.gz",
                                      "bench/graphs/resnet50-b64.gmgraph.gz",
                                      "bench/graphs/llama-7b-lora-b8-1k.gmgraph.gz"};
  link_speed link;
  int i, ok = 1;
  if (!measure_link(LINK_BYTES / opts->divide, &link)) {
    fprintf(stderr, "the link cannot be measured\n");
    return 0;
  }
  if (opts->json) {
    printf("{\"out_bytes_per_s\":%.0f,\"in_bytes_per_s\":%.0f,\"both_bytes_per_s\":%.0f}\n",
           link.out, link.in, link.both);
  } else {
    printf("link: %.1f GB/s out, %.1f in, %.1f both together\n", link.out / 1e9, link.in / 1e9,
           link.both / 1e9);
    printf(
        "graph                way          peak GB lake GB   time ms   mock ms  ratio stall ms  "
        "by mock  out GB   in GB  looked  state\n");
  }
  for (i = 0; i < count; i++) ok &= bench_graph(opts, &link, paths[i]);
  for (i = 0; !count && i < 3; i++) ok &= bench_graph(opts, &link, names[i]);
  return ok;
}

/* Three times each: what is first to touch memory of a virtual machine also waits for its host. */
static int bench_pin(const options *opts) {
  const size_t bytes = (size_t)opts->pin_mib << 20;
  const double gib = (double)bytes / (1 << 30);
  gmlake_offload_cuda_desc desc;
  int i, ok = 1;
  memset(&desc, 0, sizeof desc);
  desc.host_bytes_max = 2 * bytes;
  for (i = 0; ok && i < 3; i++) {
    gmlake_offload_backend *backend;
    void *ptr = NULL;
    double from = host_ms(), own, as_backend;
    ok = !gpu.cuMemHostAlloc(&ptr, bytes, 0);
    own = (host_ms() - from) / 1e3;
    ok = ok && !gpu.cuMemFreeHost(ptr) &&
         gmlake_offload_cuda_create(&desc, &backend) == GMLAKE_OFFLOAD_OK;
    if (!ok) break;
    from = host_ms();
    ok = !backend->host_alloc(backend->user, bytes, &ptr);
    as_backend = (host_ms() - from) / 1e3;
    gmlake_offload_cuda_destroy(backend);
    printf("pinning %.2f GiB: driver %.3f, backend %.3f s a GiB\n", gib, own / gib,
           as_backend / gib);
  }
  if (!ok) fprintf(stderr, "so much host memory could not be pinned\n");
  return ok;
}

int main(int argc, char **argv) {
  options opts = {0, 0, 0, 10, 6, 4, 1, 0, .5, 0, 0};
  const option_row rows[] = {
      {"json", OPTION_FLAG, &opts.json, 0, 0, NULL, "print one JSON object a row"},
      {"iterations", OPTION_COUNT, &opts.iterations, 1, 200, "N",
       "measure N iterations; default 10"},
      {"settle", OPTION_COUNT, &opts.settle, 0, 50, "N",
       "run N iterations before these and after the three that are\nchecked; default 6"},
      {"ahead", OPTION_COUNT, &opts.ahead, 0, 1000, "N",
       "launch up to N operators behind the one that runs; default 4"},
      {"part", OPTION_NUMBER, &opts.part, .01, 1, "PART",
       "run in PART of the memory that nothing moved takes, or in what the\n"
       "largest operator needs if that is more; default .5"},
      {"budget-gib", OPTION_NUMBER, &opts.budget_gib, .0001, 1000, "GIB",
       "compile memgraphs for GIB instead"},
      {"fixed", OPTION_FLAG, &opts.fixed, 0, 0, NULL,
       "add the rows turnip-sim, turnip-ops and turnip-fixed"},
      {"graph", OPTION_FLAG, &opts.graph, 0, 0, NULL,
       "add the row turnip-graph, for graphs of one GPU. Random operators then write the same, "
       "and\n"
       "operators take the same time, in every iteration, as in a CUDA graph"},
      {"jitter", OPTION_NUMBER, &opts.jitter, 0, .99, "PART",
       "operators take up to PART more or less time than recorded; default 0"},
      {"divide", OPTION_COUNT, &opts.divide, 1, 1 << 20, "N",
       "divide the sizes and times of graphs by N; default 1"},
      {"pin-mib", OPTION_COUNT, &opts.pin_mib, 1, 1 << 20, "MIB",
       "run no graph: pin MIB of host memory by the driver's own call and as a\n"
       "backend does, in turn, and print the seconds a GiB"},
  };
  const option_reader reader = {"offload_gpu", "[OPTION]... [GRAPH]...",  about, columns,
                                rows,          sizeof rows / sizeof *rows};
  int first = options_read(&reader, argc, argv), ok, count = 0;
  if (!gpu_open(&gpu, "libcuda.so.1") || gpu.cuInit(0) || gpu.cuDeviceGetCount(&count) || !count) {
    printf("skipped: no GPU\n");
    return 0;
  }
  if (!open_contexts(1)) {
    fprintf(stderr, "the device has no context\n");
    return 1;
  }
  ok = opts.pin_mib ? bench_pin(&opts) : bench_all(&opts, argv + first, argc - first);
  close_contexts();
  return ok ? 0 : 1;
}
