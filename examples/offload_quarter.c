/* Shows how to run a computation in a quarter of its memory with gmlake_offload.h. The model has 32
   layers. The weights of a layer come from host memory while the layer before is computed, and
   leave the device after their own layer. The program runs the model three times on the mock, which
   has a clock of its own: with everything on the device, with a plan in a quarter of the memory,
   and in the same memory without a plan, where a tensor moves only when memory is short. It prints
   the time that each takes, and checks that the results are the same.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/offload_quarter.c -o offload_quarter -lpthread -ldl && ./offload_quarter */
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#include "gmlake_offload.h"

#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define LAYERS 32

static int failed(const char *what, gmlake_offload_result result) {
  if (result == GMLAKE_OFFLOAD_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_offload_result_name(result));
  return 1;
}

/* Adds a tensor to the graph and returns its id. An INPUT has a copy in host memory. */
static uint32_t tensor(gmlake_offload_graph *graph, size_t bytes, gmlake_offload_kind kind) {
  gmlake_offload_tensor_desc desc = {0};
  uint32_t id = GMLAKE_OFFLOAD_NONE;
  desc.bytes = bytes;
  desc.kind = kind;
  (void)failed("add_tensor", gmlake_offload_add_tensor(graph, &desc, &id));
  return id;
}

/* Describes the computation: each layer reads the output of the layer before and its own weights,
   and takes 4 ms. No more tensors or operators can be added after seal. */
static int build(gmlake_offload_graph *graph) {
  uint32_t i, id, reads[2], x = tensor(graph, 16 * MIB, GMLAKE_OFFLOAD_INPUT);
  for (i = 0; i < LAYERS; i++) {
    gmlake_offload_op_desc op = {0};
    reads[0] = x;
    reads[1] = tensor(graph, 128 * MIB, GMLAKE_OFFLOAD_INPUT);
    x = tensor(graph, 16 * MIB, GMLAKE_OFFLOAD_INTERMEDIATE);
    op.time_ns = 4000000;
    op.reads = reads;
    op.read_count = 2;
    op.writes = &x;
    op.write_count = 1;
    if (failed("add_op", gmlake_offload_add_op(graph, &op, &id))) return 1;
  }
  return failed("seal", gmlake_offload_graph_seal(graph));
}

/* Runs ten iterations and returns a digest of all results. plan NULL: there is no plan. limit 0:
   there is no limit, so nothing moves. */
static uint64_t run(const char *how, const gmlake_offload_graph *graph,
                    const gmlake_offload_plan *plan, size_t limit) {
  gmlake_offload_mock_desc mock = {0};
  gmlake_offload_run_desc desc = {0};
  gmlake_offload_mock_census census;
  gmlake_offload_run_stats stats = {0};
  gmlake_offload_backend *backend;
  gmlake_offload_run *run;
  uint32_t job;
  mock.divisor = MIB; /* a MiB of a tensor is one real byte */
  if (failed("mock_create", gmlake_offload_mock_create(&mock, &backend))) return 0;
  desc.backend = backend;
  desc.limit_bytes = limit;
  if (failed("run_create", gmlake_offload_run_create(&desc, &run))) return 0;
  (void)failed("run_add_job", gmlake_offload_run_add_job(run, graph, plan, &job));
  (void)failed("run_iterations", gmlake_offload_run_iterations(run, 10));
  (void)failed("run_get_stats", gmlake_offload_run_get_stats(run, &stats));
  gmlake_offload_mock_get_census(backend, &census);
  printf("%-12s %4zu MiB, %5.1f ms an iteration, of which %5.1f are waits\n", how,
         stats.device_bytes_peak / MIB, (double)stats.time_ns / 1e7, (double)stats.stall_ns / 1e7);
  gmlake_offload_run_destroy(run);
  gmlake_offload_mock_destroy(backend);
  return census.digest;
}

int main(void) {
  gmlake_offload_planner_desc desc = {0}; /* default: the link of an H200 */
  gmlake_offload_job_desc job_desc = {0};
  gmlake_offload_graph_info info = {0};
  gmlake_offload_graph *graph;
  gmlake_offload_planner *planner;
  gmlake_offload_plan *plan;
  uint64_t all, planned, demand;
  uint32_t job;
  if (failed("graph_create", gmlake_offload_graph_create(NULL, &graph)) || build(graph)) return 1;
  (void)failed("graph_get_info", gmlake_offload_graph_get_info(graph, &info));
  /* The planner gets the graph and the memory that it may use, and makes a plan. */
  job_desc.graph = graph;
  desc.target_bytes = info.peak_bytes / 4;
  if (failed("planner_create", gmlake_offload_planner_create(&desc, &planner)) ||
      failed("add_job", gmlake_offload_add_job(planner, &job_desc, &job)) ||
      failed("replan", gmlake_offload_replan(planner)) ||
      failed("take_plan", gmlake_offload_take_plan(planner, job, &plan)))
    return 1;
  all = run("in place", graph, NULL, 0);
  planned = run("planned", graph, plan, info.peak_bytes / 4);
  demand = run("on demand", graph, NULL, info.peak_bytes / 4);
  printf("the results are %s\n", planned == all && demand == all ? "the same" : "WRONG");
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(graph);
  return planned != all || demand != all;
}
