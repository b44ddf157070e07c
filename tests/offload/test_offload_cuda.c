/* gmlake_offload.h's CUDA backend over the driver without a device (fake_cuda.h), whose copies and
   stand-in operators take effect as late as order allows: plans give the bytes of a run that moves
   nothing, in steady state the driver is asked for nothing new, and whatever call fails, nothing
   stays behind. */
#define _GNU_SOURCE
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#include "graphs.h"

#include <cuda.h>

#include "gpu/fake_cuda.h"
#include "gpu.h"
#include "offload/standin.h"

#if !defined(BUILD)
#define BUILD "build" /* the Makefile's folder */
#endif

#define KIB ((size_t)1 << 10)
#define JOBS 2
#define DEVICES 2
#define ITERATIONS 4
#define PERSISTENT 3 /* the first tensors of a world */

static gpu_driver gpu; /* the fake: its soname is what the backend opens */
static const fake_cuda_control *control;

static void start_fake(unsigned seed, int device_count) {
  fake_cuda_options options;
  memset(&options, 0, sizeof options);
  options.seed = seed;
  options.device_count = device_count;
  options.device_bytes = (size_t)1 << 30;
  control->reset(&options);
}

static fake_cuda_census fake_census(void) {
  fake_cuda_census census;
  control->get_census(&census);
  return census;
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* Some layers forth and back, with weights w and state m. */
static gmlake_offload_graph *make_graph(int layers) {
  char line[300];
  (void)snprintf(line, sizeof line,
                 "w=300k+4bp k0=40ki m=500kp [%d k#,w>k#+1=200k+#6b:30 ] k%d>g=37b:20 "
                 "[%d k~+1,g>g:40 ] g,m>m:25 m,w>w:25",
                 layers, layers, layers);
  return graph_of(line, MIB);
}

static gmlake_offload_plan *planned_for(const gmlake_offload_graph *graph) {
  gmlake_offload_planner_desc desc;
  gmlake_offload_job_desc job_desc;
  gmlake_offload_planner *planner;
  gmlake_offload_plan *plan;
  uint32_t job;
  memset(&desc, 0, sizeof desc);
  memset(&job_desc, 0, sizeof job_desc);
  desc.host = counted;
  desc.overhead_max = .5;
  desc.tensor_bytes_min = 1;
  desc.copy_ns = 1000;
  job_desc.graph = graph;
  assert_ok(gmlake_offload_planner_create(&desc, &planner));
  assert_ok(gmlake_offload_add_job(planner, &job_desc, &job));
  assert_ok(gmlake_offload_replan(planner));
  assert_ok(gmlake_offload_take_plan(planner, job, &plan));
  gmlake_offload_planner_destroy(planner);
  return plan;
}

static uint32_t tensor_on(gmlake_offload_graph *graph, size_t bytes, gmlake_offload_kind kind,
                          uint32_t device) {
  uint32_t id;
  assert_ok(try_tensor(graph, bytes, kind, device, &id));
  return id;
}

static void op_on(gmlake_offload_graph *graph, uint32_t device, uint32_t a, uint32_t b,
                  uint32_t c) {
  gmlake_offload_op_desc desc;
  uint32_t reads[2], id;
  memset(&desc, 0, sizeof desc);
  reads[0] = a;
  reads[1] = b;
  desc.device = device;
  desc.time_ns = 20 * US;
  desc.reads = reads;
  desc.writes = &c;
  desc.read_count = 2;
  desc.write_count = 1;
  assert_ok(gmlake_offload_add_op(graph, &desc, &id));
}

/* Layers in turn on two devices, forth and back: what each makes is copied to the other. The first
   tensors are an input, and a weight on each device. */
static gmlake_offload_graph *make_pair_graph(size_t layers) {
  gmlake_offload_graph *graph = new_graph(0);
  uint32_t x, w[DEVICES], kept[16], id;
  size_t i;
  x = tensor_on(graph, 90 * KIB, GMLAKE_OFFLOAD_INPUT, 0);
  w[0] = tensor_on(graph, 200 * KIB + 8, GMLAKE_OFFLOAD_PERSISTENT, 0);
  w[1] = tensor_on(graph, 300 * KIB + 4, GMLAKE_OFFLOAD_PERSISTENT, 1);
  for (i = 0; i < 2 * layers; i++) {
    size_t d = i / layers ? (2 * layers - 1 - i) % DEVICES : i % DEVICES;
    uint32_t made_here = tensor_on(graph, 90 * KIB, GMLAKE_OFFLOAD_INTERMEDIATE, (uint32_t)d);
    uint32_t copy = tensor_on(graph, 90 * KIB, GMLAKE_OFFLOAD_INTERMEDIATE, (uint32_t)(1 - d));
    if (i < layers) kept[i] = made_here;
    op_on(graph, (uint32_t)d, x, i <= layers ? w[d] : kept[2 * layers - 1 - i], made_here);
    assert_ok(gmlake_offload_add_transfer(graph, made_here, copy, 5 * US, &id));
    x = i + 1 == layers ? made_here : copy;
  }
  op_on(graph, 0, kept[0], w[0], w[0]);
  op_on(graph, 1, kept[1], w[1], w[1]);
  assert_ok(gmlake_offload_graph_seal(graph));
  return graph;
}

static gmlake_offload_memgraph *compile_for(const gmlake_offload_graph *graph, size_t bytes) {
  gmlake_offload_memgraph_desc desc;
  gmlake_offload_memgraph *m;
  memset(&desc, 0, sizeof desc);
  desc.graph = graph;
  desc.device_bytes = bytes;
  desc.tensor_bytes_min = 1;
  desc.host = counted;
  assert_ok(gmlake_offload_memgraph_create(&desc, &m));
  assert_ok(gmlake_offload_memgraph_check(m, NULL));
  return m;
}

/* ---- Runs and engines ------------------------------------------------------------------------ */

/* One device of a world. */
typedef struct half {
  struct world *w;
  CUcontext context;
  standin operators[JOBS];
} half;

/* A run of the graph, or an engine of the memgraph. */
typedef struct world {
  half halves[DEVICES]; /* the first: a pointer to the world is one to its first device */
  int device_count;     /* 0: one, which has no list */
  const gmlake_offload_graph *graph;
  const gmlake_offload_plan *plan;
  const gmlake_offload_memgraph *memgraph;
  size_t limit_bytes, room; /* room: what alloc_fn hands out; 0: cuMemAlloc does */
  uint32_t jobs, ahead, streams;
  unsigned flags;
  int zeros; /* persistent tensors are not filled */
  gmlake_offload_backend *backend;
  gmlake_offload_run *run;
  gmlake_offload_engine *engine;
  size_t taken, wrong_contexts, early_frees, transfers;
  uint64_t calls;    /* of the driver, when it was closed */
  int blocked_peers; /* a device cannot reach the other one */
  int stops;
} world;

static world new_world(const gmlake_offload_graph *graph, const gmlake_offload_plan *plan,
                       const gmlake_offload_memgraph *memgraph) {
  world w;
  memset(&w, 0, sizeof w);
  w.graph = graph;
  w.plan = plan;
  w.memgraph = memgraph;
  w.jobs = w.streams = 1;
  w.device_count = info_of(graph).device_count > 1 ? DEVICES : 0;
  return w;
}

static int device_count(const world *w) { return w->device_count ? w->device_count : 1; }

/* The context of the caller's functions is the device's primary one. */
static void check_context(half *h) {
  CUcontext current = NULL;
  h->w->wrong_contexts += gpu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != h->context;
}

static int take(void *user, size_t bytes, void *stream, void **out_ptr) {
  half *h = (half *)user;
  CUdeviceptr address;
  check_context(h);
  if (!stream || bytes > h->w->room - h->w->taken || gpu.cuMemAlloc(&address, bytes)) return 1;
  h->w->taken += bytes;
  *out_ptr = (void *)(uintptr_t)address;
  return 0;
}

static void give(void *user, void *ptr, size_t bytes, void *stream) {
  half *h = (half *)user;
  check_context(h);
  assert_non_null(stream);
  h->w->early_frees += h->w->stops && fake_census().pending; /* then nothing may be under way */
  h->w->taken -= bytes;
  (void)gpu.cuMemFree((CUdeviceptr)(uintptr_t)ptr);
}

static int launch(void *user, const gmlake_offload_launch *what, void *stream) {
  world *w = (world *)user;
  half *h = &w->halves[w->device_count ? what->desc.device : 0];
  gmlake_offload_launch own = *what;
  check_context(h);
  w->transfers += w->device_count && (what->desc.flags & GMLAKE_OFFLOAD_TRANSFER) != 0;
  own.job = 0; /* a job has stand-ins of its own */
  return standin_launch(&h->operators[what->job], &own, stream);
}

static int fill(void *user, uint32_t job, uint32_t id, void *ptr, size_t bytes, int on_host,
                void *stream) {
  world *w = (world *)user;
  gmlake_offload_tensor_desc desc;
  half *h;
  assert_ok(gmlake_offload_get_tensor(w->graph, id, &desc));
  h = &w->halves[w->device_count && !on_host ? desc.device : 0];
  check_context(h);
  return standin_fill(&h->operators[job], job, id, ptr, bytes, on_host, stream);
}

/* What the fake needs to run stand-ins: the caller's own references to the contexts. */
static void open_world(world *w, unsigned seed) {
  int d;
  uint32_t j;
  start_fake(seed, w->device_count);
  assert_int_equal(gpu.cuInit(0), 0);
  for (d = 0; d < device_count(w); d++) {
    half *h = &w->halves[d];
    h->w = w;
    assert_int_equal(gpu.cuDevicePrimaryCtxRetain(&h->context, d), 0);
    assert_int_equal(gpu.cuCtxPushCurrent(h->context), 0);
    for (j = 0; j < w->jobs; j++) assert_true(standin_create(&h->operators[j], &gpu, w->graph, 64));
    assert_int_equal(gpu.cuCtxPopCurrent(&h->context), 0);
  }
  if (w->blocked_peers)
    control->fail_function("cuCtxEnablePeerAccess", 1, CUDA_ERROR_INVALID_DEVICE, 1);
}

static gmlake_offload_result create_backend(world *w) {
  static const int devices[DEVICES] = {0, 1};
  void *users[DEVICES];
  gmlake_offload_cuda_desc desc;
  memset(&desc, 0, sizeof desc);
  users[0] = &w->halves[0];
  users[1] = &w->halves[1];
  desc.host = counted;
  desc.alloc_fn = w->room ? take : NULL;
  desc.free_fn = w->room ? give : NULL;
  desc.launch_fn = launch;
  desc.fill_fn = w->zeros ? NULL : fill;
  desc.user = w;
  if (w->device_count) {
    desc.devices = devices;
    desc.device_count = DEVICES;
    desc.alloc_users = users;
  }
  return gmlake_offload_cuda_create(&desc, &w->backend);
}

static gmlake_offload_result create_engine(world *w) {
  gmlake_offload_engine_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.backend = w->backend;
  desc.memgraph = w->memgraph;
  desc.flags = w->flags;
  desc.stream_count = desc.copy_count = desc.seed = w->streams;
  desc.launch_ahead_max = w->ahead;
  return gmlake_offload_engine_create(&desc, &w->engine);
}

static gmlake_offload_result create_run(world *w) {
  gmlake_offload_run_desc desc;
  gmlake_offload_result result;
  uint32_t j, id;
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.backend = w->backend;
  desc.limit_bytes = w->limit_bytes;
  desc.launch_ahead_max = w->ahead;
  result = gmlake_offload_run_create(&desc, &w->run);
  for (j = 0; j < w->jobs && !result; j++)
    result = gmlake_offload_run_add_job(w->run, w->graph, w->plan, &id);
  return result;
}

/* From create to so many iterations. */
static gmlake_offload_result try_world(world *w, uint64_t iterations) {
  gmlake_offload_result result = create_backend(w);
  if (!result) result = w->memgraph ? create_engine(w) : create_run(w);
  if (result || !iterations) return result;
  return w->memgraph ? gmlake_offload_engine_run(w->engine, iterations)
                     : gmlake_offload_run_iterations(w->run, iterations);
}

/* The name of the call that was made to fail, or NULL. */
static const char *close_world(world *w) {
  const char *failed;
  uint32_t j;
  int d;
  w->stops = 1;
  gmlake_offload_engine_destroy(w->engine);
  gmlake_offload_run_destroy(w->run);
  gmlake_offload_cuda_destroy(w->backend);
  host_fail_in = 0;
  w->calls = control->calls();
  failed = control->failed();
  control->fail_at(0, CUDA_SUCCESS, 0);
  for (d = 0; d < device_count(w); d++) {
    half *h = &w->halves[d];
    assert_int_equal(gpu.cuCtxPushCurrent(h->context), 0);
    for (j = 0; j < w->jobs; j++) standin_destroy(&h->operators[j]);
    assert_int_equal(gpu.cuCtxPopCurrent(&h->context), 0);
    assert_int_equal(gpu.cuDevicePrimaryCtxRelease(d), 0);
  }
  assert_int_equal(w->transfers, 0); /* between devices they are the backend's */
  assert_int_equal(w->early_frees, 0);
  return failed;
}

/* resting: bytes of graphs and plans that live on. */
static void check_nothing_left(size_t resting) {
  fake_cuda_census census = fake_census();
  assert_int_equal(census.streams + census.events + census.modules + census.hosts, 0);
  assert_int_equal(census.allocations + census.pending + census.retains + census.pushed, 0);
  assert_int_equal(host_bytes, resting);
}

/* What a run has read and left behind, all jobs together. */
typedef struct result {
  uint64_t totals[DEVICES][JOBS][ITERATIONS], persistent[JOBS][PERSISTENT];
} result;

static void look_at_tensor(world *w, half *h, uint32_t job, uint32_t t, uint64_t *out) {
  gmlake_offload_tensor_desc desc;
  void *device, *host;
  assert_ok(gmlake_offload_get_tensor(w->graph, t, &desc));
  if (w->device_count && h != &w->halves[desc.device]) return;
  assert_ok(w->engine ? gmlake_offload_engine_locate(w->engine, t, &device, &host)
                      : gmlake_offload_run_locate(w->run, job, t, &device, &host));
  assert_true(device || host);
  assert_int_equal(
      standin_digest(&h->operators[job], device ? device : host, desc.bytes, NULL, out), 0);
}

static void look(world *w, result *out) {
  uint64_t wrong;
  uint32_t j, t;
  int d;
  memset(out, 0, sizeof *out);
  for (d = 0; d < device_count(w); d++) {
    half *h = &w->halves[d];
    assert_int_equal(gpu.cuCtxPushCurrent(h->context), 0);
    for (j = 0; j < w->jobs; j++) {
      assert_int_equal(standin_totals(&h->operators[j], out->totals[d][j], ITERATIONS, &wrong), 0);
      assert_true(w->engine || wrong == 0);
      for (t = 0; t < PERSISTENT; t++) look_at_tensor(w, h, j, t, &out->persistent[j][t]);
    }
    assert_int_equal(gpu.cuCtxPopCurrent(&h->context), 0);
  }
}

static gmlake_offload_run_stats run_world(world *w, unsigned seed, result *out) {
  gmlake_offload_run_stats stats;
  memset(&stats, 0, sizeof stats);
  open_world(w, seed);
  assert_ok(try_world(w, ITERATIONS));
  look(w, out);
  if (w->run) assert_ok(gmlake_offload_run_get_stats(w->run, &stats));
  assert_true(!w->limit_bytes || stats.device_bytes_peak <= w->limit_bytes);
  close_world(w);
  assert_int_equal(w->wrong_contexts, 0);
  assert_int_equal(fake_census().pushed, 0);
  return stats;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* The same bytes with any plan, limit, depth and delay, from cuMemAlloc or the caller's memory. */
static void plans_give_the_same_bytes(void **state) {
  gmlake_offload_graph *graph = make_graph(8);
  gmlake_offload_plan *plan = planned_for(graph);
  const size_t peak = plan_info(plan).peak_bytes;
  result expected, got;
  unsigned i;
  (void)state;
  assert_true(peak < info_of(graph).peak_bytes * 3 / 4);
  for (i = 0; i < 12; i++) {
    gmlake_offload_run_stats stats;
    world w = new_world(graph, NULL, NULL);
    w.jobs = 1 + i % 2;
    w.room = (size_t)1 << 29;
    (void)run_world(&w, 0, &expected);
    assert_true(expected.totals[0][0][0] != expected.totals[0][0][1]);
    w = new_world(graph, i % 3 == 2 ? NULL : plan, NULL);
    w.jobs = 1 + i % 2;
    w.ahead = i % 4;
    w.limit_bytes = i == 5 ? 0 : peak * w.jobs;
    w.room = i % 2 ? 0 : (size_t)1 << 29;
    if (i >= 10) { /* a refusal is a limit */
      w.room = w.limit_bytes;
      w.limit_bytes = 0;
    }
    stats = run_world(&w, i, &got);
    assert_true(i == 5 || (stats.out_count > 0 && stats.in_count > 0));
    assert_memory_equal(&got, &expected, sizeof got);
  }
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(graph);
  check_nothing_left(0);
}

/* An engine gives the bytes of a run, in any order, on one stream and on several; where a call of
   the driver fails it says so, and leaves nothing behind. */
static void engines_give_the_same_bytes(void **state) {
  static const unsigned flags[] = {0, GMLAKE_OFFLOAD_SIMULATED_ORDER, GMLAKE_OFFLOAD_RANDOM_ORDER};
  static const char *const names[] = {"cuEventRecord", "cuEventQuery", "cuMemHostAlloc",
                                      "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"};
  gmlake_offload_graph *graph = make_graph(8);
  gmlake_offload_memgraph *m = compile_for(graph, info_of(graph).op_bytes_max + 2048);
  result expected, got;
  size_t resting = host_bytes;
  unsigned i;
  world w = new_world(graph, NULL, NULL);
  (void)state;
  (void)run_world(&w, 0, &expected);
  for (i = 0; i < 14; i++) {
    w = new_world(graph, NULL, m);
    if (i < 9) {
      w.streams = 1 + i / 3;
      w.flags = flags[i % 3];
      (void)run_world(&w, i, &got);
      assert_memory_equal(&got, &expected, sizeof got);
    } else {
      open_world(&w, i);
      control->fail_function(names[i - 9], 1, CUDA_ERROR_UNKNOWN, 0);
      assert_true(try_world(&w, ITERATIONS) != GMLAKE_OFFLOAD_OK);
      close_world(&w);
    }
    check_nothing_left(resting);
  }
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* Two devices: the same bytes in little memory as in much, in any order; functions are called in
   their device's context, and transfers are the backend's. Peers that cannot be enabled cost no
   bytes. */
static void devices_give_the_same_bytes(void **state) {
  static const unsigned flags[] = {0, GMLAKE_OFFLOAD_SIMULATED_ORDER, GMLAKE_OFFLOAD_RANDOM_ORDER};
  gmlake_offload_graph *graph = make_pair_graph(6);
  gmlake_offload_memgraph *all = compile_for(graph, 0);
  gmlake_offload_memgraph *m = compile_for(graph, info_of(graph).op_bytes_max + 2048);
  result expected, got;
  size_t resting = host_bytes;
  unsigned i;
  (void)state;
  assert_true(memgraph_info(m).offload_count && memgraph_info(m).reload_count);
  for (i = 0; i < 13; i++) {
    world w = new_world(graph, NULL, i == 0 || i == 11 ? all : m);
    w.room = i % 2 ? 0 : (size_t)1 << 30;
    w.zeros = i >= 11;
    w.streams = 1 + i / 4;
    w.ahead = w.streams == 1 ? 2 : 0;
    w.flags = flags[i % 3];
    w.blocked_peers = i == 10;
    (void)run_world(&w, i, &got);
    if (i == 0 || i == 11) expected = got;
    assert_memory_equal(&got, &expected, sizeof got);
    check_nothing_left(resting);
  }
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_memgraph_destroy(all);
  gmlake_offload_graph_destroy(graph);
}

/* After some iterations no stream, event, pinned piece or allocation more is asked for. */
static void steady_state_asks_for_nothing(void **state) {
  static const char *const names[] = {"cuStreamCreate", "cuEventCreate", "cuMemHostAlloc"};
  gmlake_offload_graph *graph = make_graph(8);
  gmlake_offload_plan *plan = planned_for(graph);
  size_t i, resting = host_bytes;
  (void)state;
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    world w = new_world(graph, plan, NULL);
    w.ahead = 3;
    w.limit_bytes = plan_info(plan).peak_bytes;
    open_world(&w, 1);
    assert_ok(try_world(&w, 10));
    control->fail_function(names[i], 1, CUDA_ERROR_OUT_OF_MEMORY, 1);
    assert_ok(gmlake_offload_run_iterations(w.run, 10));
    assert_null(control->failed());
    close_world(&w);
    check_nothing_left(resting);
  }
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(graph);
}

/* Without fill_fn tensors begin as zeros, on either side. */
static void tensors_begin_as_zeros(void **state) {
  gmlake_offload_graph *graph = make_graph(2);
  static char bytes[512 << 10], zeros[512 << 10];
  world w = new_world(graph, NULL, NULL);
  int sides = 0;
  uint32_t t;
  (void)state;
  w.zeros = 1;
  w.limit_bytes = 600 * KIB; /* not for all of them */
  open_world(&w, 2);
  assert_ok(try_world(&w, 0));
  for (t = 0; t < PERSISTENT; t++) {
    gmlake_offload_tensor_desc desc;
    void *device, *host;
    assert_ok(gmlake_offload_get_tensor(graph, t, &desc));
    assert_ok(gmlake_offload_run_locate(w.run, 0, t, &device, &host));
    assert_int_equal(gpu.cuCtxPushCurrent(w.halves[0].context), 0);
    if (device)
      assert_int_equal(gpu.cuMemcpyDtoH(bytes, (CUdeviceptr)(uintptr_t)device, desc.bytes), 0);
    else
      memcpy(bytes, host, desc.bytes);
    assert_int_equal(gpu.cuCtxPopCurrent(&w.halves[0].context), 0);
    assert_memory_equal(bytes, zeros, desc.bytes);
    sides |= device ? 1 : 2;
  }
  assert_int_equal(sides, 3);
  close_world(&w);
  gmlake_offload_graph_destroy(graph);
  check_nothing_left(0);
}

/* Pieces of pinned memory do not overlap, and join again: one segment serves them all. */
static void pinned_memory_is_used_again(void **state) {
  enum { PIECES = 64 };
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  char *ptrs[PIECES] = {NULL};
  size_t sizes[PIECES], i, n, round;
  void *all, *more, *none;
  (void)state;
  start_fake(0, 0);
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.host_bytes = 1;
  desc.launch_fn = launch;
  assert_ok(gmlake_offload_cuda_create(&desc, &backend));
  assert_int_equal(fake_census().hosts, 1);
  random_state = 7;
  for (round = 0; round < 3000; round++) {
    i = random_below(PIECES);
    if (ptrs[i]) {
      for (n = 0; n < sizes[i]; n += 512) assert_int_equal(ptrs[i][n], (char)i);
      backend->host_free(backend->user, ptrs[i], sizes[i]);
      ptrs[i] = NULL;
      continue;
    }
    sizes[i] = 1 + random_below(100000);
    assert_int_equal(backend->host_alloc(backend->user, sizes[i], (void **)&ptrs[i]), 0);
    memset(ptrs[i], (int)i, sizes[i]);
  }
  for (i = 0; i < PIECES; i++) {
    if (ptrs[i]) backend->host_free(backend->user, ptrs[i], sizes[i]);
  }
  assert_int_equal(backend->host_alloc(backend->user, (size_t)256 << 20, &all), 0);
  assert_int_equal(fake_census().hosts, 1);
  assert_int_equal(backend->host_alloc(backend->user, (size_t)300 << 20, &more), 0);
  assert_int_equal(fake_census().hosts, 2);
  assert_int_equal(backend->host_alloc(backend->user, SIZE_MAX, &none), 1);
  backend->host_free(backend->user, all, (size_t)256 << 20);
  backend->host_free(backend->user, more, (size_t)300 << 20); /* segments stay apart */
  assert_int_equal(backend->host_alloc(backend->user, (size_t)256 << 20, &all), 0);
  assert_int_equal(backend->host_alloc(backend->user, (size_t)300 << 20, &more), 0);
  assert_int_equal(fake_census().hosts, 2);
  gmlake_offload_cuda_destroy(backend);
  check_nothing_left(0);
}

/* Timers come when their time has, in its order; nothing under way is an error, not a wait. */
static void timers_come_in_order(void **state) {
  static const uint64_t delays[] = {300, 100, 200, 0, 100};
  static const uint64_t order[] = {3, 1, 4, 2, 0};
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  uint64_t began, now, token;
  size_t i;
  (void)state;
  start_fake(0, 0);
  memset(&desc, 0, sizeof desc);
  desc.launch_fn = launch;
  assert_ok(gmlake_offload_cuda_create(&desc, &backend));
  assert_int_equal(backend->wait(backend->user, &token), 1);
  assert_int_equal(backend->now(backend->user, &began), 0);
  for (i = 0; i < 5; i++) {
    assert_int_equal(backend->timer(backend->user, began + delays[i] * US, i), 0);
  }
  for (i = 0; i < 5; i++) {
    assert_int_equal(backend->wait(backend->user, &token), 0);
    assert_int_equal(backend->now(backend->user, &now), 0);
    assert_int_equal(token, order[i]);
    assert_true(now >= began + delays[order[i]] * US);
  }
  gmlake_offload_cuda_destroy(backend);
  gmlake_offload_cuda_destroy(NULL);
}

static void wrong_descriptions_are_refused(void **state) {
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  fake_cuda_options none;
  (void)state;
  start_fake(0, 0);
  memset(&desc, 0, sizeof desc);
  assert_error(gmlake_offload_cuda_create(NULL, &backend), INVALID_ARGUMENT);
  assert_error(gmlake_offload_cuda_create(&desc, NULL), INVALID_ARGUMENT);
  desc.launch_fn = launch;
  desc.alloc_fn = take;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.alloc_fn = NULL;
  desc.host.free_fn = host_free;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.host.free_fn = NULL;
  desc.device = -1;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.device = 1; /* there is one device */
  assert_error(gmlake_offload_cuda_create(&desc, &backend), BACKEND);
  assert_null(backend);
  memset(&none, 0, sizeof none);
  none.device_count = -1;
  control->reset(&none);
  desc.device = 0;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), BACKEND);
  assert_null(backend);
}

static void wrong_devices_are_refused(void **state) {
  static const int devices[] = {0, 1, -1};
  gmlake_offload_graph *graph = make_pair_graph(2);
  gmlake_offload_memgraph *m = compile_for(graph, 0);
  gmlake_offload_engine_desc engine_desc;
  gmlake_offload_engine *engine;
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  size_t resting = host_bytes;
  (void)state;
  start_fake(0, 0);
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.launch_fn = launch;
  desc.device_count = 1;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.devices = devices;
  desc.device_count = 0;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.device_count = 3; /* the last one is -1 */
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.device_count = 2; /* there is one */
  assert_error(gmlake_offload_cuda_create(&desc, &backend), BACKEND);
  assert_null(backend);
  check_nothing_left(resting);
  desc.device_count = 1; /* the graph has two */
  assert_ok(gmlake_offload_cuda_create(&desc, &backend));
  memset(&engine_desc, 0, sizeof engine_desc);
  engine_desc.backend = backend;
  engine_desc.memgraph = m;
  assert_error(gmlake_offload_engine_create(&engine_desc, &engine), OUT_OF_DEVICE_MEMORY);
  gmlake_offload_cuda_destroy(backend);
  check_nothing_left(resting);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* ---- Every failure --------------------------------------------------------------------------- */

/* What the driver refuses to take back, or the way to it, stays; else nothing may. */
static int takes_back(const char *name) {
  static const char *const names[] = {"Destroy", "Free", "Release", "Pop", "Push"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    if (strstr(name, names[i])) return 1;
  }
  return 0;
}

static int is_refusal(gmlake_offload_result result) {
  return result == GMLAKE_OFFLOAD_ERROR_BACKEND ||
         result == GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY ||
         result == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* The n-th variant of a world, in which the n-th call of the driver fails, or the request for host
   memory of that number, if it is not 0. What became of it; *calls: how many there were. */
static gmlake_offload_result fail_once(const gmlake_offload_graph *graph,
                                       const gmlake_offload_memgraph *m, uint64_t n, long refused,
                                       uint64_t *calls) {
  const size_t resting = host_bytes;
  gmlake_offload_result end;
  const char *name;
  uint64_t first;
  world w = new_world(graph, NULL, m);
  w.ahead = 2;
  w.room = n % 4 < 2 ? (size_t)1 << 29 : 0;
  if (m) w.zeros = n % 3 == 0;
  if (!m) w.limit_bytes = info_of(graph).op_bytes_max;
  open_world(&w, (unsigned)n % 3);
  first = control->calls();
  if (n && !refused)
    control->fail_at(first + n, n % 2 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY, 0);
  host_fail_in = refused;
  end = try_world(&w, 2);
  if (!n) assert_ok(end);
  assert_true(!end || is_refusal(end));
  name = close_world(&w);
  *calls = w.calls - first;
  if (!name || !takes_back(name)) check_nothing_left(resting);
  assert_int_equal(host_bytes, resting);
  return end;
}

/* Whichever call of the driver fails, and whichever request for host memory, the run or the engine
   says so or does without, nothing is left behind, and what goes on gives the right bytes. */
static void fail_everywhere(const gmlake_offload_graph *graph, const gmlake_offload_memgraph *m) {
  size_t failed = 0, passed = 0;
  uint64_t n, calls, all;
  long refused = 1;
  (void)fail_once(graph, m, 0, 0, &all);
  for (n = 1; n < all; n++) {
    const gmlake_offload_result end = fail_once(graph, m, n, 0, &calls);
    failed += end != GMLAKE_OFFLOAD_OK;
    passed += end == GMLAKE_OFFLOAD_OK;
  }
  assert_true(failed > 50 && passed > 5);
  while (fail_once(graph, m, 4, refused, &calls) != GMLAKE_OFFLOAD_OK) refused++;
  assert_true(refused > 15);
}

static void calls_of_the_driver_fail(void **state) {
  gmlake_offload_graph *graph = make_graph(2);
  (void)state;
  fail_everywhere(graph, NULL);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

static void calls_of_two_devices_fail(void **state) {
  gmlake_offload_graph *graph = make_pair_graph(2);
  gmlake_offload_memgraph *m = compile_for(graph, info_of(graph).op_bytes_max + 2048);
  (void)state;
  fail_everywhere(graph, m);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

/* Where nothing can be asked about any more, what is under way ends before its memory goes. */
static void questions_fail_for_good(void **state) {
  gmlake_offload_graph *graph = make_graph(2);
  size_t resting = host_bytes;
  unsigned n;
  (void)state;
  for (n = 1; n < 40; n++) {
    world w = new_world(graph, NULL, NULL);
    w.jobs = 2;
    w.ahead = 3;
    w.room = (size_t)1 << 29;
    w.limit_bytes = info_of(graph).op_bytes_max;
    open_world(&w, n);
    control->fail_function("cuEventQuery", n, CUDA_ERROR_UNKNOWN, 1);
    assert_error(try_world(&w, 2), BACKEND);
    close_world(&w);
    check_nothing_left(resting);
  }
  gmlake_offload_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plans_give_the_same_bytes),
      cmocka_unit_test(engines_give_the_same_bytes),
      cmocka_unit_test(steady_state_asks_for_nothing),
      cmocka_unit_test(tensors_begin_as_zeros),
      cmocka_unit_test(pinned_memory_is_used_again),
      cmocka_unit_test(timers_come_in_order),
      cmocka_unit_test(wrong_descriptions_are_refused),
      cmocka_unit_test(devices_give_the_same_bytes),
      cmocka_unit_test(wrong_devices_are_refused),
      cmocka_unit_test(calls_of_the_driver_fail),
      cmocka_unit_test(calls_of_two_devices_fail),
      cmocka_unit_test(questions_fail_for_good),
  };
  if (!gpu_open(&gpu, BUILD "/fake/libcuda.so.1")) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  control = (const fake_cuda_control *)dlsym(gpu.library, "fake_cuda_control");
  return control ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
