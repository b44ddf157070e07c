/* Fuzz target: the input is a file for the reader of bench/graph.h, plain; and gzipped, which must
   read the same. What is accepted keeps the reader's promises; each iteration becomes a graph or is
   refused with a reason, and small ones are planned and run, with the bytes of a run that moves
   nothing. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#include "gmlake_offload.h"

#include "graph.h"

#include "fuzz_file.h"
#include "../host.h"

#define OPS_MAX 200
#define DIVISOR ((size_t)1 << 40)

/* ---- What the reader promises ---------------------------------------------------------------- */

static void check_refused(const graph *g, const char *path, const char *error) {
  size_t length = strlen(path);
  REQUIRE(!strncmp(error, path, length) && error[length] == ':' && strstr(error, ": "));
  REQUIRE(!g->tensors && !g->ops && !g->refs && !g->marks && !g->op_count);
}

static void check_accepted(const graph *g) {
  size_t i, n;
  REQUIRE(g->op_count);
  for (i = 0; i < g->tensor_count; i++) {
    REQUIRE(g->tensors[i].bytes <= GRAPH_BYTES_MAX && strchr("pia", g->tensors[i].kind));
    REQUIRE(g->tensors[i].device < GRAPH_DEVICES_MAX);
  }
  for (i = 0; i < g->op_count; i++) {
    const graph_op *op = &g->ops[i];
    REQUIRE(op->first_ref + op->read_count + op->write_count <= g->ref_count);
    REQUIRE(op->time_ns <= GRAPH_TIME_NS_MAX && memchr(op->name, 0, sizeof op->name));
    for (n = 0; n < op->read_count + op->write_count; n++) {
      REQUIRE(g->refs[op->first_ref + n] < g->tensor_count);
    }
  }
  for (i = 0; i < g->mark_count; i++) {
    REQUIRE(g->marks[i] <= g->op_count && (i == 0 || g->marks[i - 1] <= g->marks[i]));
  }
}

static void check_same(const graph *a, const graph *b) {
  REQUIRE(a->tensor_count == b->tensor_count && a->op_count == b->op_count);
  REQUIRE(a->ref_count == b->ref_count && a->mark_count == b->mark_count);
  REQUIRE(!a->ref_count || !memcmp(a->refs, b->refs, a->ref_count * sizeof *a->refs));
}

/* ---- Plans and runs -------------------------------------------------------------------------- */

static uint64_t run(const gmlake_offload_graph *graph, const gmlake_offload_plan *plan,
                    size_t limit_bytes) {
  gmlake_offload_mock_desc mock_desc;
  gmlake_offload_run_desc desc;
  gmlake_offload_mock_census census;
  gmlake_offload_backend *mock;
  gmlake_offload_run *r;
  uint32_t job;
  memset(&mock_desc, 0, sizeof mock_desc);
  memset(&desc, 0, sizeof desc);
  mock_desc.divisor = DIVISOR;
  mock_desc.host = desc.host = counted;
  REQUIRE(gmlake_offload_mock_create(&mock_desc, &mock) == GMLAKE_OFFLOAD_OK);
  desc.backend = mock;
  desc.limit_bytes = limit_bytes;
  REQUIRE(gmlake_offload_run_create(&desc, &r) == GMLAKE_OFFLOAD_OK);
  REQUIRE(gmlake_offload_run_add_job(r, graph, plan, &job) == GMLAKE_OFFLOAD_OK);
  REQUIRE(gmlake_offload_run_iterations(r, 2) == GMLAKE_OFFLOAD_OK);
  gmlake_offload_mock_get_census(mock, &census);
  REQUIRE(census.race_count == 0);
  REQUIRE(limit_bytes == 0 || census.device_bytes_peak <= limit_bytes);
  gmlake_offload_run_destroy(r);
  gmlake_offload_mock_destroy(mock);
  return census.digest;
}

static void plan_and_run(const gmlake_offload_graph *graph, const gmlake_offload_graph_info *info,
                         unsigned flags) {
  gmlake_offload_planner_desc desc;
  gmlake_offload_job_desc job_desc;
  gmlake_offload_plan_info plan_info;
  gmlake_offload_planner *planner;
  gmlake_offload_plan *plan;
  uint64_t digest = run(graph, NULL, 0);
  uint32_t job;
  memset(&desc, 0, sizeof desc);
  memset(&job_desc, 0, sizeof job_desc);
  desc.flags = flags;
  desc.overhead_max = .5;
  desc.target_bytes = info->op_bytes_max;
  desc.tensor_bytes_min = 1;
  desc.try_count_max = 4;
  desc.host = counted;
  job_desc.graph = graph;
  REQUIRE(gmlake_offload_planner_create(&desc, &planner) == GMLAKE_OFFLOAD_OK);
  REQUIRE(gmlake_offload_add_job(planner, &job_desc, &job) == GMLAKE_OFFLOAD_OK);
  REQUIRE(gmlake_offload_replan(planner) == GMLAKE_OFFLOAD_OK);
  REQUIRE(gmlake_offload_take_plan(planner, job, &plan) == GMLAKE_OFFLOAD_OK);
  REQUIRE(gmlake_offload_plan_get_info(plan, &plan_info) == GMLAKE_OFFLOAD_OK);
  REQUIRE(plan_info.peak_bytes <= info->peak_bytes);
  REQUIRE(run(graph, plan, 0) == digest);
  REQUIRE(run(graph, plan, info->op_bytes_max) == digest);
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_planner_destroy(planner);
  REQUIRE(host_bytes == 0);
}

static void use(const graph *g) {
  char error[300];
  size_t i, first, end;
  for (i = 0; i < graph_iteration_count(g); i++) {
    gmlake_offload_graph_info info;
    gmlake_offload_graph *graph;
    graph_iteration_range(g, i, &first, &end);
    REQUIRE(first <= end && end <= g->op_count);
    graph = graph_make(g, i, error, sizeof error);
    REQUIRE(graph || strlen(error) > 10);
    if (!graph) continue;
    REQUIRE(gmlake_offload_graph_get_info(graph, &info) == GMLAKE_OFFLOAD_OK);
    REQUIRE(info.op_count == end - first && info.op_bytes_max <= info.peak_bytes);
    if (info.op_count <= OPS_MAX && info.tensor_count <= OPS_MAX && info.device_count == 1) {
      plan_and_run(graph, &info, 0);
      plan_and_run(graph, &info, GMLAKE_OFFLOAD_PAPER);
    }
    gmlake_offload_graph_destroy(graph);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64], packed_path[64], error[300] = "", packed_error[300] = "";
  uint8_t *packed = (uint8_t *)malloc(size + 1000);
  graph g, packed_g;
  int file = open_memory(data, size, path, sizeof path), packed_file, ok;
  REQUIRE(packed);
  ok = graph_load(path, &g, error, sizeof error);
  packed_file =
      open_memory(packed, gzip(data, size, packed, size + 1000), packed_path, sizeof packed_path);
  REQUIRE(graph_load(packed_path, &packed_g, packed_error, sizeof packed_error) == ok);
  if (ok) {
    check_accepted(&g);
    check_same(&g, &packed_g);
    use(&g);
    graph_free(&packed_g);
    graph_free(&g);
  } else {
    check_refused(&g, path, error);
  }
  free(packed);
  (void)close(file);
  (void)close(packed_file);
  return 0;
}
