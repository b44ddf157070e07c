/* gmlake_offload.h's CUDA backend over the driver without a device (fake_cuda.h), whose copies and
   stand-in operators take effect as late as order allows: plans give the bytes of a run that moves
   nothing, in steady state the driver is asked for nothing new, and whatever call fails, nothing
   stays behind. */
#define _GNU_SOURCE
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#include "offload_fixture.h"

#include <cuda.h>

#include "gpu/fake_cuda.h"
#include "gpu.h"
#include "offload/standin.h"

#if !defined(BUILD)
#define BUILD "build" /* the Makefile's folder */
#endif

#define KIB ((size_t)1 << 10)
#define JOBS 2
#define ITERATIONS 4
#define PERSISTENT 3 /* the first tensors of a world */

static gpu_driver gpu; /* the fake: its soname is what the backend opens */
static const fake_cuda_control *control;

static void start_fake(unsigned seed) {
  fake_cuda_options options;
  memset(&options, 0, sizeof options);
  options.seed = seed;
  options.device_bytes = (size_t)1 << 30;
  control->reset(&options);
}

static fake_cuda_census census_of(void) {
  fake_cuda_census census;
  control->get_census(&census);
  return census;
}

/* ---- A graph: some layers forth and back, with weights and state ----------------------------- */

static gmlake_offload_graph *make_graph(size_t layers) {
  gmlake_offload_graph *graph = new_graph(0);
  uint32_t w = tensor(graph, 300 * KIB + 4, GMLAKE_OFFLOAD_PERSISTENT), kept[16], id, x, g;
  uint32_t in = tensor(graph, 40 * KIB, GMLAKE_OFFLOAD_INPUT);
  uint32_t m = tensor(graph, 500 * KIB, GMLAKE_OFFLOAD_PERSISTENT);
  size_t i;
  x = in;
  for (i = 0; i < layers; i++) {
    kept[i] = made(graph, 200 * KIB + 16 * i);
    op(graph, 30 * US, x, w, kept[i]);
    x = kept[i];
  }
  g = made(graph, 37);
  op(graph, 20 * US, x, NONE, g);
  while (i-- > 0) op(graph, 40 * US, kept[i], g, g);
  assert_ok(try_op(graph, 25 * US, g, m, m, NONE, &id));
  assert_ok(try_op(graph, 25 * US, m, w, w, NONE, &id));
  assert_ok(gmlake_offload_graph_seal(graph));
  return graph;
}

static gmlake_offload_plan *make_plan(const gmlake_offload_graph *graph) {
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

/* ---- Runs ------------------------------------------------------------------------------------ */

typedef struct world {
  const gmlake_offload_graph *graph;
  const gmlake_offload_plan *plan;
  size_t limit_bytes, room; /* room: what alloc_fn hands out; 0: cuMemAlloc does */
  uint32_t jobs, ahead;
  int zeros; /* persistent tensors are not filled */
  standin operators[JOBS];
  gmlake_offload_backend *backend;
  gmlake_offload_run *run;
  size_t taken, wrong_contexts, early_frees;
  int stops;
  CUcontext context;
} world;

/* The context of the caller's functions is the primary one. */
static void check_context(world *w) {
  CUcontext current = NULL;
  w->wrong_contexts += gpu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != w->context;
}

static int take(void *user, size_t bytes, void *stream, void **out_ptr) {
  world *w = (world *)user;
  CUdeviceptr address;
  check_context(w);
  if (!stream || bytes > w->room - w->taken || gpu.cuMemAlloc(&address, bytes)) return 1;
  w->taken += bytes;
  *out_ptr = (void *)(uintptr_t)address;
  return 0;
}

static void give(void *user, void *ptr, size_t bytes, void *stream) {
  world *w = (world *)user;
  check_context(w);
  assert_non_null(stream);
  w->early_frees += w->stops && census_of().pending; /* then nothing may be under way */
  w->taken -= bytes;
  (void)gpu.cuMemFree((CUdeviceptr)(uintptr_t)ptr);
}

static int launch(void *user, const gmlake_offload_launch *what, void *stream) {
  world *w = (world *)user;
  gmlake_offload_launch own = *what;
  check_context(w);
  own.job = 0; /* a job has stand-ins of its own */
  return standin_launch(&w->operators[what->job], &own, stream);
}

static int fill(void *user, uint32_t job, uint32_t id, void *ptr, size_t bytes, int on_host,
                void *stream) {
  world *w = (world *)user;
  check_context(w);
  return standin_fill(&w->operators[job], job, id, ptr, bytes, on_host, stream);
}

/* What the fake needs to run stand-ins: the caller's own reference to the context. */
static void open_context(world *w) {
  CUdevice device;
  uint32_t j;
  assert_int_equal(gpu.cuInit(0) | gpu.cuDeviceGet(&device, 0), 0);
  assert_int_equal(gpu.cuDevicePrimaryCtxRetain(&w->context, device), 0);
  assert_int_equal(gpu.cuCtxPushCurrent(w->context), 0);
  for (j = 0; j < w->jobs; j++) {
    assert_true(standin_create(&w->operators[j], &gpu, w->graph, 64));
  }
  assert_int_equal(gpu.cuCtxPopCurrent(&w->context), 0);
}

static void close_context(world *w) {
  uint32_t j;
  assert_int_equal(gpu.cuCtxPushCurrent(w->context), 0);
  for (j = 0; j < w->jobs; j++) standin_destroy(&w->operators[j]);
  assert_int_equal(gpu.cuCtxPopCurrent(&w->context), 0);
  assert_int_equal(gpu.cuDevicePrimaryCtxRelease(0), 0);
}

static gmlake_offload_result try_start(world *w) {
  gmlake_offload_cuda_desc desc;
  gmlake_offload_run_desc run;
  gmlake_offload_result result;
  uint32_t j, id;
  memset(&desc, 0, sizeof desc);
  memset(&run, 0, sizeof run);
  desc.host = run.host = counted;
  desc.alloc_fn = w->room ? take : NULL;
  desc.free_fn = w->room ? give : NULL;
  desc.launch_fn = launch;
  desc.fill_fn = w->zeros ? NULL : fill;
  desc.user = w;
  result = gmlake_offload_cuda_create(&desc, &w->backend);
  run.backend = w->backend;
  run.limit_bytes = w->limit_bytes;
  run.launch_ahead_max = w->ahead;
  if (!result) result = gmlake_offload_run_create(&run, &w->run);
  for (j = 0; j < w->jobs && !result; j++) {
    result = gmlake_offload_run_add_job(w->run, w->graph, w->plan, &id);
  }
  return result;
}

static void stop(world *w) {
  w->stops = 1;
  gmlake_offload_run_destroy(w->run);
  gmlake_offload_cuda_destroy(w->backend);
  w->run = NULL;
  w->backend = NULL;
}

/* What a run has read and left behind, all jobs together. */
typedef struct result {
  uint64_t totals[JOBS][ITERATIONS], persistent[JOBS][PERSISTENT];
} result;

static void look(world *w, result *out) {
  uint64_t wrong;
  uint32_t j, t;
  memset(out, 0, sizeof *out);
  assert_int_equal(gpu.cuCtxPushCurrent(w->context), 0);
  for (j = 0; j < w->jobs; j++) {
    assert_int_equal(standin_totals(&w->operators[j], out->totals[j], ITERATIONS, &wrong), 0);
    assert_int_equal(wrong, 0);
    for (t = 0; t < PERSISTENT; t++) {
      gmlake_offload_tensor_desc desc;
      void *device, *host;
      assert_ok(gmlake_offload_get_tensor(w->graph, t, &desc));
      assert_ok(gmlake_offload_run_locate(w->run, j, t, &device, &host));
      assert_true(device || host);
      assert_int_equal(standin_digest(&w->operators[j], device ? device : host, desc.bytes, NULL,
                                      &out->persistent[j][t]),
                       0);
    }
  }
  assert_int_equal(gpu.cuCtxPopCurrent(&w->context), 0);
}

/* resting: bytes of graphs and plans that live on. */
static void check_nothing_left(size_t resting) {
  fake_cuda_census census = census_of();
  assert_int_equal(census.streams + census.events + census.modules + census.hosts, 0);
  assert_int_equal(census.allocations + census.pending + census.retains + census.pushed, 0);
  assert_int_equal(host_bytes, resting);
}

static gmlake_offload_run_stats run_world(world *w, unsigned seed, result *out) {
  gmlake_offload_run_stats stats;
  start_fake(seed);
  open_context(w);
  assert_ok(try_start(w));
  assert_ok(gmlake_offload_run_iterations(w->run, ITERATIONS));
  look(w, out);
  stats.struct_bytes = 0;
  assert_ok(gmlake_offload_run_get_stats(w->run, &stats));
  assert_true(!w->limit_bytes || stats.device_bytes_peak <= w->limit_bytes);
  stop(w);
  close_context(w);
  assert_int_equal(w->wrong_contexts, 0);
  assert_int_equal(census_of().pushed, 0);
  return stats;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* The same bytes with any plan, limit, depth and delay, from cuMemAlloc or the caller's memory. */
static void plans_give_the_same_bytes(void **state) {
  gmlake_offload_graph *graph = make_graph(8);
  gmlake_offload_plan *plan = make_plan(graph);
  gmlake_offload_plan_info info;
  result expected, got;
  unsigned i;
  (void)state;
  assert_ok(gmlake_offload_plan_get_info(plan, &info));
  assert_true(info.peak_bytes < info_of(graph).peak_bytes * 3 / 4);
  for (i = 0; i < 12; i++) {
    gmlake_offload_run_stats stats;
    world w;
    memset(&w, 0, sizeof w);
    w.graph = graph;
    w.jobs = 1 + i % 2;
    w.room = (size_t)1 << 29;
    (void)run_world(&w, 0, &expected);
    assert_true(expected.totals[0][0] != expected.totals[0][1]);
    w.plan = i % 3 == 2 ? NULL : plan;
    w.ahead = i % 4;
    w.limit_bytes = info.peak_bytes * w.jobs;
    if (i % 2) w.room = 0;
    if (i == 5) w.limit_bytes = 0;
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

static gmlake_offload_result try_engine(world *w, const gmlake_offload_memgraph *m,
                                        uint32_t streams, unsigned flags, result *out) {
  gmlake_offload_cuda_desc desc;
  gmlake_offload_engine_desc engine_desc;
  gmlake_offload_engine *engine = NULL;
  gmlake_offload_result end;
  uint64_t wrong;
  uint32_t t;
  memset(&desc, 0, sizeof desc);
  memset(&engine_desc, 0, sizeof engine_desc);
  desc.host = engine_desc.host = counted;
  desc.launch_fn = launch;
  desc.fill_fn = fill;
  desc.user = w;
  end = gmlake_offload_cuda_create(&desc, &w->backend);
  engine_desc.backend = w->backend;
  engine_desc.memgraph = m;
  engine_desc.flags = flags;
  engine_desc.stream_count = engine_desc.copy_count = streams;
  engine_desc.seed = streams;
  if (!end) end = gmlake_offload_engine_create(&engine_desc, &engine);
  if (!end) end = gmlake_offload_engine_run(engine, ITERATIONS);
  assert_int_equal(gpu.cuCtxPushCurrent(w->context), 0);
  if (!end) assert_int_equal(standin_totals(w->operators, out->totals[0], ITERATIONS, &wrong), 0);
  for (t = 0; t < PERSISTENT && !end; t++) {
    gmlake_offload_tensor_desc tensor_desc;
    void *device, *host;
    assert_ok(gmlake_offload_get_tensor(w->graph, t, &tensor_desc));
    assert_ok(gmlake_offload_engine_locate(engine, t, &device, &host));
    assert_int_equal(standin_digest(w->operators, device ? device : host, tensor_desc.bytes, NULL,
                                    &out->persistent[0][t]),
                     0);
  }
  assert_int_equal(gpu.cuCtxPopCurrent(&w->context), 0);
  gmlake_offload_engine_destroy(engine);
  gmlake_offload_cuda_destroy(w->backend);
  return end;
}

/* An engine gives the bytes of a run, in any order, on one stream and on several; where a call of
   the driver fails it says so, and leaves nothing behind. */
static void engines_give_the_same_bytes(void **state) {
  static const unsigned flags[] = {0, GMLAKE_OFFLOAD_SIMULATED_ORDER, GMLAKE_OFFLOAD_RANDOM_ORDER};
  static const char *const names[] = {"cuEventRecord", "cuEventQuery", "cuMemHostAlloc",
                                      "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"};
  gmlake_offload_graph *graph = make_graph(8);
  gmlake_offload_memgraph_desc desc;
  gmlake_offload_memgraph *m;
  result expected, got;
  size_t resting;
  unsigned i;
  world w;
  (void)state;
  memset(&w, 0, sizeof w);
  w.graph = graph;
  w.jobs = 1;
  (void)run_world(&w, 0, &expected);
  memset(&desc, 0, sizeof desc);
  desc.graph = graph;
  desc.device_bytes = info_of(graph).op_bytes_max + 2048; /* and what rounding takes */
  desc.tensor_bytes_min = 1;
  desc.host = counted;
  assert_ok(gmlake_offload_memgraph_create(&desc, &m));
  assert_ok(gmlake_offload_memgraph_check(m, NULL));
  resting = host_bytes;
  for (i = 0; i < 14; i++) {
    memset(&w, 0, sizeof w);
    memset(&got, 0, sizeof got);
    w.graph = graph;
    w.jobs = 1;
    start_fake(i);
    open_context(&w);
    if (i >= 9) {
      control->fail_function(names[i - 9], 1, CUDA_ERROR_UNKNOWN, 0);
      assert_true(try_engine(&w, m, 1, 0, &got) != GMLAKE_OFFLOAD_OK);
    } else {
      assert_ok(try_engine(&w, m, 1 + i / 3, flags[i % 3], &got));
      assert_memory_equal(&got, &expected, sizeof got);
    }
    close_context(&w);
    assert_int_equal(w.wrong_contexts, 0);
    check_nothing_left(resting);
  }
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* After some iterations no stream, event, pinned piece or allocation more is asked for. */
static void steady_state_asks_for_nothing(void **state) {
  static const char *const names[] = {"cuStreamCreate", "cuEventCreate", "cuMemHostAlloc"};
  gmlake_offload_graph *graph = make_graph(8);
  gmlake_offload_plan *plan = make_plan(graph);
  gmlake_offload_plan_info info;
  size_t i, resting = host_bytes;
  (void)state;
  assert_ok(gmlake_offload_plan_get_info(plan, &info));
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    world w;
    memset(&w, 0, sizeof w);
    w.graph = graph;
    w.plan = plan;
    w.jobs = 1;
    w.ahead = 3;
    w.limit_bytes = info.peak_bytes;
    start_fake(1);
    open_context(&w);
    assert_ok(try_start(&w));
    assert_ok(gmlake_offload_run_iterations(w.run, 10));
    control->fail_function(names[i], 1, CUDA_ERROR_OUT_OF_MEMORY, 1);
    assert_ok(gmlake_offload_run_iterations(w.run, 10));
    assert_null(control->failed());
    stop(&w);
    close_context(&w);
    check_nothing_left(resting);
  }
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(graph);
}

/* Without fill_fn tensors begin as zeros, on either side. */
static void tensors_begin_as_zeros(void **state) {
  gmlake_offload_graph *graph = make_graph(2);
  static char bytes[512 << 10], zeros[512 << 10];
  int sides = 0;
  world w;
  uint32_t t;
  (void)state;
  memset(&w, 0, sizeof w);
  w.graph = graph;
  w.jobs = 1;
  w.zeros = 1;
  w.limit_bytes = 600 * KIB; /* not for all of them */
  start_fake(2);
  open_context(&w);
  assert_ok(try_start(&w));
  for (t = 0; t < PERSISTENT; t++) {
    gmlake_offload_tensor_desc desc;
    void *device, *host;
    assert_ok(gmlake_offload_get_tensor(graph, t, &desc));
    assert_ok(gmlake_offload_run_locate(w.run, 0, t, &device, &host));
    assert_int_equal(gpu.cuCtxPushCurrent(w.context), 0);
    if (device) {
      assert_int_equal(gpu.cuMemcpyDtoH(bytes, (CUdeviceptr)(uintptr_t)device, desc.bytes), 0);
    } else {
      memcpy(bytes, host, desc.bytes);
    }
    assert_int_equal(gpu.cuCtxPopCurrent(&w.context), 0);
    assert_memory_equal(bytes, zeros, desc.bytes);
    sides |= device ? 1 : 2;
  }
  assert_int_equal(sides, 3);
  stop(&w);
  close_context(&w);
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
  start_fake(0);
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.host_bytes = 1;
  desc.launch_fn = launch;
  assert_ok(gmlake_offload_cuda_create(&desc, &backend));
  assert_int_equal(census_of().hosts, 1);
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
  assert_int_equal(census_of().hosts, 1);
  assert_int_equal(backend->host_alloc(backend->user, (size_t)300 << 20, &more), 0);
  assert_int_equal(census_of().hosts, 2);
  assert_int_equal(backend->host_alloc(backend->user, SIZE_MAX, &none), 1);
  backend->host_free(backend->user, all, (size_t)256 << 20);
  backend->host_free(backend->user, more, (size_t)300 << 20); /* segments stay apart */
  assert_int_equal(backend->host_alloc(backend->user, (size_t)256 << 20, &all), 0);
  assert_int_equal(backend->host_alloc(backend->user, (size_t)300 << 20, &more), 0);
  assert_int_equal(census_of().hosts, 2);
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
  start_fake(0);
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
  start_fake(0);
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

/* ---- Several devices ------------------------------------------------------------------------- */

#define PAIR 2

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
  uint32_t x, w[PAIR], kept[16], id;
  size_t i;
  x = tensor_on(graph, 90 * KIB, GMLAKE_OFFLOAD_INPUT, 0);
  w[0] = tensor_on(graph, 200 * KIB + 8, GMLAKE_OFFLOAD_PERSISTENT, 0);
  w[1] = tensor_on(graph, 300 * KIB + 4, GMLAKE_OFFLOAD_PERSISTENT, 1);
  for (i = 0; i < 2 * layers; i++) {
    size_t d = i / layers ? (2 * layers - 1 - i) % PAIR : i % PAIR;
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

static gmlake_offload_memgraph *compile_pair(const gmlake_offload_graph *graph, size_t bytes) {
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

/* One device of a pair, and all of it. */
typedef struct half {
  struct pair *pair;
  CUcontext context;
  standin operators;
} half;

typedef struct pair {
  const gmlake_offload_graph *graph;
  half halves[PAIR];
  int zeros; /* persistent tensors are not filled */
  int own;   /* memory of cuMemAlloc, not by alloc_fn */
  size_t wrong_contexts, transfers;
} pair;

static void check_half(half *h) {
  CUcontext current = NULL;
  h->pair->wrong_contexts += gpu.cuCtxGetCurrent(&current) || current != h->context;
}

static int take_half(void *user, size_t bytes, void *stream, void **out_ptr) {
  CUdeviceptr address;
  check_half((half *)user);
  if (!stream || gpu.cuMemAlloc(&address, bytes)) return 1;
  *out_ptr = (void *)(uintptr_t)address;
  return 0;
}

static void give_half(void *user, void *ptr, size_t bytes, void *stream) {
  (void)bytes;
  check_half((half *)user);
  assert_non_null(stream);
  (void)gpu.cuMemFree((CUdeviceptr)(uintptr_t)ptr);
}

static int launch_half(void *user, const gmlake_offload_launch *what, void *stream) {
  half *h = &((pair *)user)->halves[what->desc.device];
  check_half(h);
  h->pair->transfers += (what->desc.flags & GMLAKE_OFFLOAD_TRANSFER) != 0;
  return standin_launch(&h->operators, what, stream);
}

static int fill_half(void *user, uint32_t job, uint32_t id, void *ptr, size_t bytes, int on_host,
                     void *stream) {
  pair *p = (pair *)user;
  gmlake_offload_tensor_desc desc;
  half *h;
  assert_ok(gmlake_offload_get_tensor(p->graph, id, &desc));
  h = &p->halves[on_host ? 0 : desc.device];
  check_half(h);
  return standin_fill(&h->operators, job, id, ptr, bytes, on_host, stream);
}

static void open_pair(pair *p, unsigned seed) {
  fake_cuda_options options;
  int d;
  memset(&options, 0, sizeof options);
  options.seed = seed;
  options.device_count = PAIR;
  options.device_bytes = (size_t)1 << 30;
  control->reset(&options);
  assert_int_equal(gpu.cuInit(0), 0);
  for (d = 0; d < PAIR; d++) {
    half *h = &p->halves[d];
    h->pair = p;
    assert_int_equal(gpu.cuDevicePrimaryCtxRetain(&h->context, d), 0);
    assert_int_equal(gpu.cuCtxPushCurrent(h->context), 0);
    assert_true(standin_create(&h->operators, &gpu, p->graph, 64));
    assert_int_equal(gpu.cuCtxPopCurrent(&h->context), 0);
  }
}

/* Nobody else holds a context. */
static void close_pair(pair *p) {
  int d;
  for (d = 0; d < PAIR; d++) {
    half *h = &p->halves[d];
    assert_int_equal(gpu.cuCtxPushCurrent(h->context), 0);
    standin_destroy(&h->operators);
    assert_int_equal(gpu.cuCtxPopCurrent(&h->context), 0);
    assert_int_equal(gpu.cuDevicePrimaryCtxRelease(d), 0);
  }
  assert_int_equal(p->transfers, 0);
}

typedef struct pair_result {
  uint64_t totals[PAIR][ITERATIONS], persistent[PERSISTENT];
} pair_result;

static void look_at_pair(pair *p, const gmlake_offload_engine *engine, pair_result *out) {
  uint64_t wrong;
  uint32_t t;
  int d;
  for (d = 0; d < PAIR; d++) {
    half *h = &p->halves[d];
    assert_int_equal(gpu.cuCtxPushCurrent(h->context), 0);
    assert_int_equal(standin_totals(&h->operators, out->totals[d], ITERATIONS, &wrong), 0);
    for (t = 0; t < PERSISTENT; t++) {
      gmlake_offload_tensor_desc desc;
      void *device, *host;
      assert_ok(gmlake_offload_get_tensor(p->graph, t, &desc));
      assert_ok(gmlake_offload_engine_locate(engine, t, &device, &host));
      if (desc.device != (uint32_t)d) continue;
      assert_int_equal(standin_digest(&h->operators, device ? device : host, desc.bytes, NULL,
                                      &out->persistent[t]),
                       0);
    }
    assert_int_equal(gpu.cuCtxPopCurrent(&h->context), 0);
  }
}

static gmlake_offload_result try_pair(pair *p, const gmlake_offload_memgraph *m, uint32_t streams,
                                      unsigned flags, pair_result *out) {
  static const int devices[PAIR] = {0, 1};
  void *users[PAIR];
  gmlake_offload_cuda_desc desc;
  gmlake_offload_engine_desc engine_desc;
  gmlake_offload_engine *engine = NULL;
  gmlake_offload_backend *backend;
  gmlake_offload_result end;
  memset(&desc, 0, sizeof desc);
  memset(&engine_desc, 0, sizeof engine_desc);
  users[0] = &p->halves[0];
  users[1] = &p->halves[1];
  desc.host = engine_desc.host = counted;
  desc.alloc_fn = p->own ? NULL : take_half;
  desc.free_fn = p->own ? NULL : give_half;
  desc.launch_fn = launch_half;
  desc.fill_fn = p->zeros ? NULL : fill_half;
  desc.user = p;
  desc.devices = devices;
  desc.device_count = PAIR;
  desc.alloc_users = users;
  end = gmlake_offload_cuda_create(&desc, &backend);
  engine_desc.backend = backend;
  engine_desc.memgraph = m;
  engine_desc.flags = flags;
  engine_desc.stream_count = engine_desc.copy_count = streams;
  if (streams == 1) engine_desc.launch_ahead_max = 2;
  if (!end) end = gmlake_offload_engine_create(&engine_desc, &engine);
  if (!end) end = gmlake_offload_engine_run(engine, ITERATIONS);
  if (!end && out) look_at_pair(p, engine, out);
  gmlake_offload_engine_destroy(engine);
  gmlake_offload_cuda_destroy(backend);
  return end;
}

/* Two devices: the same bytes in little memory as in much, in any order; functions are called in
   their device's context, and transfers are the backend's. Peers that cannot be enabled cost no
   bytes. */
static void devices_give_the_same_bytes(void **state) {
  static const unsigned flags[] = {0, GMLAKE_OFFLOAD_SIMULATED_ORDER, GMLAKE_OFFLOAD_RANDOM_ORDER};
  gmlake_offload_graph *graph = make_pair_graph(6);
  gmlake_offload_memgraph *all = compile_pair(graph, 0);
  gmlake_offload_memgraph *m = compile_pair(graph, info_of(graph).op_bytes_max + 2048);
  gmlake_offload_memgraph_info info;
  pair_result expected, got;
  size_t resting = host_bytes;
  unsigned i;
  (void)state;
  info.struct_bytes = 0;
  assert_ok(gmlake_offload_memgraph_get_info(m, &info));
  assert_true(info.offload_count && info.reload_count);
  for (i = 0; i < 13; i++) {
    pair p;
    memset(&p, 0, sizeof p);
    memset(&got, 0, sizeof got);
    p.graph = graph;
    p.own = i % 2 == 1;
    p.zeros = i >= 11;
    open_pair(&p, i);
    if (i == 10) {
      control->fail_function("cuCtxEnablePeerAccess", 1, CUDA_ERROR_INVALID_DEVICE, 1);
    }
    assert_ok(try_pair(&p, i == 0 || i == 11 ? all : m, 1 + i / 4, flags[i % 3], &got));
    if (i == 0 || i == 11) expected = got;
    assert_memory_equal(&got, &expected, sizeof got);
    close_pair(&p);
    assert_int_equal(p.wrong_contexts, 0);
    check_nothing_left(resting);
  }
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_memgraph_destroy(all);
  gmlake_offload_graph_destroy(graph);
}

static void wrong_devices_are_refused(void **state) {
  static const int devices[] = {0, 1, -1};
  gmlake_offload_graph *graph = make_pair_graph(2);
  gmlake_offload_memgraph *m = compile_pair(graph, 0);
  gmlake_offload_engine_desc engine_desc;
  gmlake_offload_engine *engine;
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  size_t resting = host_bytes;
  (void)state;
  start_fake(0);
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

/* One world from create to destroy. */
static gmlake_offload_result try_world(world *w, uint64_t iterations) {
  gmlake_offload_result end = try_start(w);
  if (!end) end = gmlake_offload_run_iterations(w->run, iterations);
  stop(w);
  return end;
}

/* Whichever call of the driver fails, the run says so or does without, nothing is left behind, and
   what goes on gives the right bytes. */
static void calls_of_the_driver_fail(void **state) {
  gmlake_offload_graph *graph = make_graph(2);
  size_t failed = 0, passed = 0, resting = host_bytes;
  uint64_t n, first, calls = 1;
  (void)state;
  for (n = 0; n < calls; n++) {
    gmlake_offload_result end;
    const char *name;
    world w;
    memset(&w, 0, sizeof w);
    w.graph = graph;
    w.jobs = 1;
    w.ahead = 2;
    w.room = n % 4 < 2 ? (size_t)1 << 29 : 0;
    w.limit_bytes = info_of(graph).op_bytes_max;
    start_fake((unsigned)n % 3);
    open_context(&w);
    first = control->calls();
    if (n) control->fail_at(first + n, n % 2 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY, 0);
    end = try_world(&w, 2);
    if (!n) {
      assert_ok(end);
      calls = control->calls() - first;
    }
    failed += end != GMLAKE_OFFLOAD_OK;
    passed += end == GMLAKE_OFFLOAD_OK;
    assert_true(!end || end == GMLAKE_OFFLOAD_ERROR_BACKEND ||
                end == GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY ||
                end == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY);
    name = control->failed();
    control->fail_at(0, CUDA_SUCCESS, 0);
    close_context(&w);
    if (!name || !takes_back(name)) check_nothing_left(resting);
    assert_int_equal(host_bytes, resting);
    assert_int_equal(w.early_frees, 0);
  }
  assert_true(failed > 50 && passed > 5);
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
    world w;
    memset(&w, 0, sizeof w);
    w.graph = graph;
    w.jobs = 2;
    w.ahead = 3;
    w.room = (size_t)1 << 29;
    w.limit_bytes = info_of(graph).op_bytes_max;
    start_fake(n);
    open_context(&w);
    control->fail_function("cuEventQuery", n, CUDA_ERROR_UNKNOWN, 1);
    assert_error(try_world(&w, 2), BACKEND);
    assert_int_equal(w.early_frees, 0);
    close_context(&w);
    check_nothing_left(resting);
  }
  gmlake_offload_graph_destroy(graph);
}

/* The same for an engine on two devices, and for memory of the host. */
static void calls_of_two_devices_fail(void **state) {
  gmlake_offload_graph *graph = make_pair_graph(2);
  gmlake_offload_memgraph *m = compile_pair(graph, info_of(graph).op_bytes_max + 2048);
  size_t failed = 0, resting = host_bytes;
  uint64_t n, first, calls = 1;
  long refused = 0;
  (void)state;
  for (n = 0; n < calls || refused; n++) {
    gmlake_offload_result end;
    const char *name;
    pair p;
    memset(&p, 0, sizeof p);
    p.graph = graph;
    p.own = n % 4 < 2;
    p.zeros = n % 3 == 0;
    open_pair(&p, (unsigned)n % 3);
    first = control->calls();
    if (n && !refused) control->fail_at(first + n, CUDA_ERROR_UNKNOWN, 0);
    host_fail_in = refused;
    end = try_pair(&p, m, 1, 0, NULL);
    host_fail_in = 0;
    if (!n) calls = control->calls() - first;
    failed += end != GMLAKE_OFFLOAD_OK;
    name = control->failed();
    control->fail_at(0, CUDA_SUCCESS, 0);
    assert_true(!end || end == GMLAKE_OFFLOAD_ERROR_BACKEND ||
                end == GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY ||
                end == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY);
    close_pair(&p);
    if (!name || !takes_back(name)) check_nothing_left(resting);
    assert_int_equal(host_bytes, resting);
    if (n + 1 >= calls) refused = refused && !end ? 0 : refused + 1;
  }
  assert_true(failed > 50);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

static void host_memory_is_refused(void **state) {
  gmlake_offload_graph *graph = make_graph(2);
  size_t resting = host_bytes;
  gmlake_offload_result end = GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  long n;
  (void)state;
  for (n = 1; end; n++) {
    world w;
    memset(&w, 0, sizeof w);
    w.graph = graph;
    w.jobs = 2;
    w.limit_bytes = info_of(graph).op_bytes_max;
    start_fake(0);
    open_context(&w);
    host_fail_in = n;
    end = try_world(&w, 1);
    host_fail_in = 0;
    close_context(&w);
    check_nothing_left(resting);
  }
  assert_true(n > 15);
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
      cmocka_unit_test(host_memory_is_refused),
  };
  if (!gpu_open(&gpu, BUILD "/fake/libcuda.so.1")) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  control = (const fake_cuda_control *)dlsym(gpu.library, "fake_cuda_control");
  return control ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
