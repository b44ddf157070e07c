/* Shows how to train with less memory by swapping a model's optimizer state. The moments of the
   optimizer are four times as large as the weights, but each is needed only when its weights are
   updated. With the plan they are in host memory at all other times. The program prints the memory
   with and without the plan, what moves in an iteration, and on the mock how long an iteration
   takes.

   Compile it in the directory of gmlake.h. On the mock:
     cc -I. examples/offload_optimizer.c -o offload_optimizer -lpthread -ldl
   On a GPU, with memory from a lake and with fills in the place of kernels:
     cc -I. -I/usr/local/cuda/include -DOFFLOAD_CUDA examples/offload_optimizer.c \
       -o offload_optimizer -lcuda -lpthread -ldl */
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#if defined(OFFLOAD_CUDA)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#include "gmlake.h"
#else
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#endif
#include "gmlake_offload.h"

#include <stdio.h>
#if defined(OFFLOAD_CUDA)
#include <cuda.h>
#endif

#define MIB ((size_t)1 << 20)
#define LAYERS 12
#define NONE GMLAKE_OFFLOAD_NONE

static int failed(const char *what, gmlake_offload_result result) {
  if (result == GMLAKE_OFFLOAD_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_offload_result_name(result));
  return 1;
}

/* ---- The device: the mock or CUDA ---- */

#if defined(OFFLOAD_CUDA)
static gmlake *lake;

/* The run takes device memory by these two functions, here from a lake. */
static int take(void *user, size_t bytes, void *stream, void **out_ptr) {
  (void)user;
  return gmlake_alloc(lake, bytes, stream, out_ptr) != GMLAKE_OK;
}
static void give(void *user, void *ptr, size_t bytes, void *stream) {
  (void)user, (void)bytes;
  (void)gmlake_free(lake, ptr, stream);
}
/* The run calls this for each operator, when its tensors are on the device. A program launches its
   kernels on the stream here. This one fills what the operator writes. */
static int launch(void *user, const gmlake_offload_launch *op, void *stream) {
  const uint32_t word = (uint32_t)op->iteration;
  size_t i;
  (void)user;
  for (i = 0; i < op->desc.write_count; i++)
    if (cuMemsetD32Async((CUdeviceptr)(uintptr_t)op->writes[i], word, MIB / 4, (CUstream)stream))
      return 1;
  return 0;
}
static int device_open(gmlake_offload_backend **out_backend) {
  gmlake_offload_cuda_desc desc = {0};
  if (gmlake_create(NULL, &lake)) return puts("no lake: make doctor says why") != 0;
  desc.alloc_fn = take;
  desc.free_fn = give;
  desc.launch_fn = launch;
  return failed("cuda_create", gmlake_offload_cuda_create(&desc, out_backend));
}
static void device_close(gmlake_offload_backend *backend) {
  (void)gmlake_destroy(lake); /* first, because it may still use the backend's stream */
  gmlake_offload_cuda_destroy(backend);
}
#else
static int device_open(gmlake_offload_backend **out_backend) {
  gmlake_offload_mock_desc desc = {0};
  desc.divisor = MIB; /* a MiB of a tensor is one real byte */
  return failed("mock_create", gmlake_offload_mock_create(&desc, out_backend));
}
static void device_close(gmlake_offload_backend *backend) { gmlake_offload_mock_destroy(backend); }
#endif

/* ---- The model ---- */

static uint32_t tensor(gmlake_offload_graph *graph, size_t bytes, gmlake_offload_kind kind) {
  gmlake_offload_tensor_desc desc = {0};
  uint32_t id = NONE;
  desc.bytes = bytes;
  desc.kind = kind;
  (void)failed("add_tensor", gmlake_offload_add_tensor(graph, &desc, &id));
  return id;
}

/* Adds an operator of `ms` milliseconds. It reads a, b and c, except those that are NONE. It writes
   `write`, and also b if write_count is 2. */
static void step(gmlake_offload_graph *graph, double ms, uint32_t a, uint32_t b, uint32_t c,
                 uint32_t write, size_t write_count) {
  gmlake_offload_op_desc desc = {0};
  uint32_t reads[3], writes[2], id;
  if (a != NONE) reads[desc.read_count++] = a;
  if (b != NONE) reads[desc.read_count++] = b;
  if (c != NONE) reads[desc.read_count++] = c;
  writes[0] = write;
  writes[1] = b;
  desc.time_ns = (uint64_t)(ms * 1e6);
  desc.reads = reads;
  desc.writes = writes;
  desc.write_count = write_count;
  (void)failed("add_op", gmlake_offload_add_op(graph, &desc, &id));
}

/* For each layer: x is its input, w its weights, m its moments, g the gradient of its input. */
static int build(gmlake_offload_graph *graph) {
  uint32_t x[LAYERS + 1], w[LAYERS], m[LAYERS], g[LAYERS], i;
  x[0] = tensor(graph, 2 * MIB, GMLAKE_OFFLOAD_INPUT);
  for (i = 0; i < LAYERS; i++) {
    w[i] = tensor(graph, 2 * MIB, GMLAKE_OFFLOAD_PERSISTENT);
    m[i] = tensor(graph, 8 * MIB, GMLAKE_OFFLOAD_PERSISTENT);
    g[i] = tensor(graph, 2 * MIB, GMLAKE_OFFLOAD_INTERMEDIATE);
    x[i + 1] = tensor(graph, 2 * MIB, GMLAKE_OFFLOAD_INTERMEDIATE);
    step(graph, .25, x[i], w[i], NONE, x[i + 1], 1); /* forward */
  }
  while (i-- > 0) { /* backward, and the update */
    step(graph, .5, x[i + 1], w[i], i + 1 < LAYERS ? g[i + 1] : NONE, g[i], 1);
    step(graph, .125, g[i], m[i], w[i], w[i], 2); /* writes w and m */
  }
  return failed("seal", gmlake_offload_graph_seal(graph));
}

/* ---- Ten iterations with a plan, which the measured times keep up to date ---- */

/* The run calls this with the measured time of an operator. If times have changed much,
   gmlake_offload_update makes new plans; this program does not need it. */
static void observe(void *user, uint32_t job, uint32_t op, uint64_t time_ns) {
  (void)gmlake_offload_observe((gmlake_offload_planner *)user, job, op, time_ns);
}

static int train(gmlake_offload_backend *backend, const gmlake_offload_graph *graph,
                 gmlake_offload_planner *planner, const gmlake_offload_plan *plan, size_t limit) {
  gmlake_offload_run_desc desc = {0};
  gmlake_offload_run_stats stats = {0};
  gmlake_offload_run *run;
  uint32_t job;
  int status;
  desc.backend = backend;
  desc.limit_bytes = limit;
  desc.launch_ahead_max = 4; /* operators launched before the running one has ended */
  desc.observe_fn = observe;
  desc.user = planner;
  if (failed("run_create", gmlake_offload_run_create(&desc, &run))) return 1;
  status = failed("run_add_job", gmlake_offload_run_add_job(run, graph, plan, &job)) ||
           failed("run_iterations", gmlake_offload_run_iterations(run, 10)) ||
           failed("run_get_stats", gmlake_offload_run_get_stats(run, &stats));
  printf("ran in %zu MiB; %zu MiB out and %zu MiB in an iteration\n", stats.device_bytes_peak / MIB,
         stats.out_bytes / 10 / MIB, stats.in_bytes / 10 / MIB);
#if !defined(OFFLOAD_CUDA)
  printf("%.2f ms an iteration, of which %.2f are waits\n", (double)stats.time_ns / 1e7,
         (double)stats.stall_ns / 1e7);
#endif
  gmlake_offload_run_destroy(run);
  return status;
}

int main(void) {
  gmlake_offload_planner_desc desc = {0}; /* default: the link of an H200, and no time added */
  gmlake_offload_job_desc job_desc = {0};
  gmlake_offload_job_info info = {0};
  gmlake_offload_backend *backend;
  gmlake_offload_graph *graph;
  gmlake_offload_planner *planner;
  gmlake_offload_plan *plan;
  uint32_t job;
  int status;
  if (failed("graph_create", gmlake_offload_graph_create(NULL, &graph)) || build(graph)) return 1;
  job_desc.graph = graph;
  desc.target_bytes = 70 * MIB; /* everything but the moments, plus the moments of two layers */
  if (failed("planner_create", gmlake_offload_planner_create(&desc, &planner)) ||
      failed("add_job", gmlake_offload_add_job(planner, &job_desc, &job)) ||
      failed("replan", gmlake_offload_replan(planner)) ||
      failed("take_plan", gmlake_offload_take_plan(planner, job, &plan)) ||
      failed("get_job_info", gmlake_offload_get_job_info(planner, job, &info)) ||
      device_open(&backend))
    return 1;
  printf("%zu MiB with everything in place, %zu planned\n", info.unplanned_bytes / MIB,
         info.planned_bytes / MIB);
  status = train(backend, graph, planner, plan, info.planned_bytes);
  device_close(backend);
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(graph);
  return status;
}
