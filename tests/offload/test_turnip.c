/* gmlake_turnip.h, beside the rows of graph_rows.h: every error; defects planted in memgraphs that
   the checker has to find; random graphs of several devices, as lines, each of which graphs.h
   proves right and runs, in orders that random times lead to, against the same operators with
   nothing moved. */
#include "graph_rows.h"
#include "graphs.h"
#include "options.h"
#include "part.h"

/* ---- Helpers --------------------------------------------------------------------------------- */

#define UNIT ((size_t)64) /* of the small graphs' tensors */

static gmlake_offload_memgraph *compile(const gmlake_offload_graph *graph) {
  gmlake_offload_memgraph_desc desc = compile_desc(graph, 0);
  gmlake_offload_memgraph *m;
  assert_ok(gmlake_offload_memgraph_create(&desc, &m));
  return m;
}

static gmlake_offload_result checked(const gmlake_offload_memgraph *m) {
  return gmlake_offload_memgraph_check(m, NULL);
}

/* The second reload finds the first version where the second should be: nothing else is wrong. */
CASE(test_old_version) {
  gmlake_offload_memgraph *m;
  gmlake_offload_graph *graph = memgraph_of(
      "x=1 >x >y=3 x>x >z=3 x> >v=3"
      " compile:3",
      UNIT, &m);
  gmlake_offload_memgraph_fault fault;
  uint32_t v, second = NONE;
  assert_int_equal(memgraph_info(m).offload_count, 2);
  assert_int_equal(memgraph_info(m).reload_count, 2);
  assert_right(m);
  assert_runs(m, 3, 1);
  for (v = 0; v < m->node_count; v++) {
    if (m->nodes[v].kind == GMLAKE_OFFLOAD_NODE_OFFLOAD) second = v;
  }
  m->info.host_bytes += UNIT;
  m->nodes[second].host_offset += UNIT;
  assert_error(gmlake_offload_memgraph_check(m, &fault), STALE_READ);
  assert_true(fault.node > second);
  assert_int_equal(fault.tensor, 0);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

CASE(test_create_errors) {
  gmlake_offload_graph *graph = graph_of(THERE_AND_BACK, UNIT), *open = new_graph(0);
  gmlake_offload_memgraph_desc good = compile_desc(graph, 4 * UNIT), desc;
  gmlake_offload_memgraph *m;
  size_t each = 3 * UNIT;
  assert_error(gmlake_offload_memgraph_create(&good, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_create(NULL, &m), INVALID_ARGUMENT);
#define REFUSED(change, name)                                      \
  do {                                                             \
    desc = good;                                                   \
    change;                                                        \
    m = (gmlake_offload_memgraph *)1;                              \
    assert_error(gmlake_offload_memgraph_create(&desc, &m), name); \
    assert_null(m);                                                \
  } while (0)
  REFUSED(desc.graph = NULL, INVALID_ARGUMENT);
  REFUSED(desc.graph = open, NOT_SEALED);
  REFUSED(desc.flags = 2, INVALID_ARGUMENT);
  REFUSED(desc.align_bytes = 48, INVALID_ARGUMENT);
  REFUSED(desc.align_bytes = (size_t)1 << 31, INVALID_ARGUMENT);
  REFUSED(desc.device_bytes = SIZE_MAX, INVALID_ARGUMENT);
  REFUSED(desc.out_bytes_per_s = -1, INVALID_ARGUMENT);
  REFUSED(desc.in_bytes_per_s = -1, INVALID_ARGUMENT);
  REFUSED(desc.copy_ns = UINT64_MAX, INVALID_ARGUMENT);
  REFUSED(desc.host.free_fn = NULL, INVALID_ARGUMENT);
  REFUSED(desc.device_bytes = 4 * UNIT - 1, OUT_OF_DEVICE_MEMORY);
  REFUSED(desc.bytes_by_device = &each, OUT_OF_DEVICE_MEMORY);
  each = SIZE_MAX;
  REFUSED(desc.bytes_by_device = &each, INVALID_ARGUMENT);
  gmlake_offload_graph_destroy(open);
  open = new_graph(0);
  op(open, 1, NONE, NONE, made(open, SIZE_MAX / 4));
  assert_ok(gmlake_offload_graph_seal(open));
  REFUSED((desc.graph = open, desc.device_bytes = 0), SIZE_OVERFLOW);
  gmlake_offload_graph_destroy(open);
  gmlake_offload_graph_destroy(graph);
}

CASE(test_other_errors) {
  gmlake_offload_memgraph *m;
  gmlake_offload_graph *graph = memgraph_of(THERE_AND_BACK " compile:4", UNIT, &m);
  gmlake_offload_backend *mock = new_mock(0, 1);
  gmlake_offload_run *run = new_runner(mock, m, 0, 0, 0);
  gmlake_offload_memgraph_info info;
  gmlake_offload_place place;
  gmlake_offload_node node;
  void *ptr;
  info.struct_bytes = 1;
  assert_error(gmlake_offload_memgraph_get_info(m, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_get_info(NULL, &info), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_get_info(m, &info), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_get_node(NULL, 0, &node), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_get_node(m, 0, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_get_node(m, 6, &node), UNKNOWN_ID);
  assert_error(gmlake_offload_memgraph_get_place(NULL, 0, &place, &place), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_get_place(m, 0, NULL, &place), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_get_place(m, 0, &place, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_memgraph_get_place(m, 4, &place, &place), UNKNOWN_ID);
  assert_error(checked(NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_run_iterations(run, (uint64_t)1 << 32), INVALID_ARGUMENT);
  assert_error(gmlake_offload_run_locate(run, 0, 4, &ptr, &ptr), UNKNOWN_ID);
  assert_error(gmlake_offload_run_set_plan(run, 0, NULL), WRONG_PLAN);
  gmlake_offload_memgraph_destroy(NULL);
  gmlake_offload_run_destroy(run);
  gmlake_offload_mock_destroy(mock);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

CASE(test_run_errors) {
  gmlake_offload_memgraph *m;
  gmlake_offload_graph *graph = memgraph_of(THERE_AND_BACK " compile:4", UNIT, &m);
  gmlake_offload_backend *mock = new_mock(0, 1), *coarse, table = *mock;
  gmlake_offload_run_desc good, desc;
  gmlake_offload_run *run;
  gmlake_offload_mock_desc scaled;
  uint32_t job;
  memset(&scaled, 0, sizeof scaled);
  scaled.divisor = 5; /* 64 / 16 is 4 */
  assert_ok(gmlake_offload_mock_create(&scaled, &coarse));
  memset(&good, 0, sizeof good);
  good.backend = mock;
  assert_error(gmlake_offload_run_create(&good, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_run_create(NULL, &run), INVALID_ARGUMENT);
#define NO_RUN(change)                                                      \
  do {                                                                      \
    desc = good;                                                            \
    change;                                                                 \
    run = (gmlake_offload_run *)1;                                          \
    assert_error(gmlake_offload_run_create(&desc, &run), INVALID_ARGUMENT); \
    assert_null(run);                                                       \
  } while (0)
  table.now = NULL;
  NO_RUN(desc.backend = NULL);
  NO_RUN(desc.backend = &table);
  NO_RUN(desc.flags = GMLAKE_OFFLOAD_FIXED_ORDER | GMLAKE_OFFLOAD_SIMULATED_ORDER);
  NO_RUN(desc.flags = GMLAKE_OFFLOAD_SIMULATED_ORDER | GMLAKE_OFFLOAD_FIXED_OPS);
  NO_RUN(desc.flags = GMLAKE_OFFLOAD_SIMULATED_ORDER * 2);
  NO_RUN(desc.launch_ahead_max = 1; desc.stream_count = 2);
  NO_RUN(desc.stream_count = 1025);
  NO_RUN(desc.host.malloc_fn = counted.malloc_fn);
  good.backend = coarse;
  good.limit_bytes = 2 * UNIT;
  assert_ok(gmlake_offload_run_create(&good, &run));
  assert_error(gmlake_offload_run_add_memgraph(run, m, &job), INVALID_ARGUMENT);
  assert_error(gmlake_offload_run_add_memgraph(run, NULL, &job), INVALID_ARGUMENT);
  assert_error(gmlake_offload_run_add_memgraph(NULL, m, &job), INVALID_ARGUMENT);
  assert_error(gmlake_offload_run_add_memgraph(run, m, NULL), INVALID_ARGUMENT);
  gmlake_offload_run_destroy(run);
  good.backend = mock;
  assert_ok(gmlake_offload_run_create(&good, &run));
  assert_error(gmlake_offload_run_add_memgraph(run, m, &job), OUT_OF_DEVICE_MEMORY);
  assert_ok(gmlake_offload_run_set_limit(run, 4 * UNIT));
  assert_ok(gmlake_offload_run_add_memgraph(run, m, &job));
  gmlake_offload_run_destroy(run);
  gmlake_offload_mock_destroy(coarse);
  gmlake_offload_mock_destroy(mock);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* ---- Random graphs --------------------------------------------------------------------------- */

/* The line of a graph of one to three devices, compiled for a random amount of memory from what its
   operators need at least. */
static const char *random_line(uint64_t seed, size_t op_count) {
  static const unsigned ahead[] = {2, 3001, 20001, 1};
  static char line[200];
  random_state = seed * 77;
  (void)snprintf(
      line, sizeof line,
      "{tight spare:%.3f align:%ub min:%ub alloc:%u reload:%u%s} random:%u,%u,%d compile ",
      random_below(3) ? random_below(9) / 64. : 0, 16u << random_below(3),
      random_below(2) ? 1 : 200, ahead[random_below(4)], ahead[random_below(4)],
      random_below(4) ? "" : " paper", (unsigned)seed, (unsigned)op_count, RANDOM_DEVICES);
  return line;
}

/* ---- What devices need ----------------------------------------------------------------------- */

/* The positions at which the tensor exists, by its operators alone; 0: it never does. */
static int exists(const gmlake_offload_graph *graph, uint32_t id, size_t *first, size_t *last) {
  gmlake_offload_graph_info info = info_of(graph);
  gmlake_offload_tensor_desc t;
  size_t p, i;
  assert_ok(gmlake_offload_get_tensor(graph, id, &t));
  *first = info.op_count;
  *last = 0;
  for (p = 0; p < info.op_count; p++) {
    gmlake_offload_op_desc o;
    assert_ok(gmlake_offload_get_op(graph, info.op_order[p], &o));
    for (i = 0; i < o.read_count + o.write_count; i++) {
      if ((i < o.read_count ? o.reads[i] : o.writes[i - o.read_count]) != id) continue;
      if (*first == info.op_count) *first = p;
      *last = p;
    }
  }
  if (t.kind <= GMLAKE_OFFLOAD_INPUT) *first = 0;
  if (t.kind != GMLAKE_OFFLOAD_INTERMEDIATE) *last = info.op_count - 1;
  return *first != info.op_count;
}

/* Bytes of the device, or of all (NONE), at the worst position. */
static size_t most_bytes(const gmlake_offload_graph *graph, uint32_t device) {
  gmlake_offload_graph_info info = info_of(graph);
  size_t *bytes = (size_t *)calloc(info.op_count, sizeof *bytes), p, first, last, most = 0;
  uint32_t id;
  assert_non_null(bytes);
  for (id = 0; id < info.tensor_count; id++) {
    gmlake_offload_tensor_desc t;
    assert_ok(gmlake_offload_get_tensor(graph, id, &t));
    if ((device != NONE && t.device != device) || !exists(graph, id, &first, &last)) continue;
    for (p = first; p <= last; p++) bytes[p] += t.bytes;
  }
  for (p = 0; p < info.op_count; p++) most = bytes[p] > most ? bytes[p] : most;
  free(bytes);
  return most;
}

CASE(test_device_info) {
  gmlake_offload_device_info info;
  gmlake_offload_graph *graph = new_graph(0);
  uint64_t seed;
  uint32_t d, op_id;
  info.struct_bytes = 0;
  assert_error(gmlake_offload_graph_get_device_info(graph, 0, &info), NOT_SEALED);
  gmlake_offload_graph_destroy(graph);
  for (seed = 1; seed <= 60; seed++) {
    gmlake_offload_memgraph_desc desc;
    uint64_t time_ns = 0, all_ns = 0;
    graph = random_graph(seed, 5 + seed % 40, RANDOM_DEVICES);
    desc = compile_desc(graph, 0);
    desc.align_bytes = 1;
    for (d = 0; d < graph->device_count; d++) {
      size_t least = least_bytes(&desc, d);
      info.struct_bytes = 0;
      assert_ok(gmlake_offload_graph_get_device_info(graph, d, &info));
      assert_int_equal(info.peak_bytes, most_bytes(graph, d));
      assert_true(info.op_bytes_max <= least && least - info.op_bytes_max <= 8); /* empty ones */
      time_ns += info.time_ns;
    }
    for (op_id = 0; op_id < graph->op_count; op_id++) {
      gmlake_offload_op_desc o;
      assert_ok(gmlake_offload_get_op(graph, op_id, &o));
      all_ns += (o.flags & GMLAKE_OFFLOAD_TRANSFER) != 0 ? 0 : o.time_ns;
    }
    assert_int_equal(time_ns, all_ns);
    assert_int_equal(info_of(graph).peak_bytes, most_bytes(graph, NONE));
    if (seed == 60) break;
    gmlake_offload_graph_destroy(graph);
  }
  assert_error(gmlake_offload_graph_get_device_info(graph, d, &info), UNKNOWN_ID);
  assert_error(gmlake_offload_graph_get_device_info(NULL, 0, &info), INVALID_ARGUMENT);
  assert_error(gmlake_offload_graph_get_device_info(graph, 0, NULL), INVALID_ARGUMENT);
  info.struct_bytes = 1;
  assert_error(gmlake_offload_graph_get_device_info(graph, 0, &info), INVALID_ARGUMENT);
  gmlake_offload_graph_destroy(graph);
}

CASE(test_random) {
  uint64_t seed;
  size_t moved = 0;
  for (seed = 1; seed <= part_of(250); seed++) {
    play_text("%s", random_line(seed, 10 + seed % 90));
    moved += g.compiled.reload_count;
  }
  assert_true(moved > 2000 / test_part() / 2);
}

/* ---- Planted defects ------------------------------------------------------------------------- */

/* Without an edge that no path of others implies the memgraph is wrong, and the checker says so. */
CASE(test_edges_are_needed) {
  size_t needed = 0;
  uint64_t seed;
  for (seed = 1; seed <= part_of(25); seed++) {
    gmlake_offload_memgraph *m;
    gmlake_offload_graph *graph = memgraph_of(random_line(seed, 30), UNIT, &m);
    unsigned char *reach = all_paths(m);
    size_t v, e, i;
    for (e = m->edge_count; e-- > 0;) {
      uint32_t from = m->before[e];
      gmlake_offload_result result;
      int is_implied = 0;
      for (v = 0; m->before_begin[v + 1] <= e; v++) continue;
      for (i = m->before_begin[v]; i < m->before_begin[v + 1]; i++)
        is_implied |= reach[from * m->node_count + m->before[i]];
      memmove(m->before + e, m->before + e + 1, (m->edge_count - e - 1) * sizeof *m->before);
      for (i = v + 1; i <= m->node_count; i++) m->before_begin[i]--;
      m->edge_count--;
      result = checked(m);
      needed += !is_implied;
      if (is_implied) assert_ok(result);
      if (!is_implied) assert_error(result, RACE);
      memmove(m->before + e + 1, m->before + e, (m->edge_count - e) * sizeof *m->before);
      m->before[e] = from;
      for (i = v + 1; i <= m->node_count; i++) m->before_begin[i]++;
      m->edge_count++;
    }
    assert_right(m);
    free(reach);
    gmlake_offload_memgraph_destroy(m);
    gmlake_offload_graph_destroy(graph);
  }
  assert_true(needed > 100);
}

static gmlake_offload_result with_offset(gmlake_offload_memgraph *m, size_t *offset, size_t value) {
  size_t former = *offset;
  gmlake_offload_result result;
  *offset = value;
  result = checked(m);
  *offset = former;
  assert_right(m);
  return result;
}

/* The nodes of test_moves_by_hand: op 0, x out, op 1, op 2, x in, op 3. */
CASE(test_defects) {
  gmlake_offload_memgraph *m;
  gmlake_offload_graph *graph = memgraph_of(THERE_AND_BACK " compile:4", UNIT, &m);
  gmlake_offload_memgraph_fault fault;
  gmlake_offload_node node;
  uint32_t from;
  size_t e;
  assert_error(with_offset(m, &m->nodes[1].device_offset, UNIT), STALE_READ);
  assert_error(with_offset(m, &m->nodes[4].host_offset, 3 * UNIT), BAD_PLACE);
  assert_error(with_offset(m, &m->nodes[4].device_offset, 3 * UNIT), BAD_PLACE);
  assert_error(with_offset(m, &m->nodes[4].device_offset, GMLAKE_OFFLOAD_NOWHERE), BAD_PLACE);
  assert_error(with_offset(m, &m->ref_offsets[0], UNIT), STALE_READ);
  assert_error(with_offset(m, &m->ref_offsets[3], 2 * UNIT), BAD_PLACE); /* z upon y */
  assert_error(with_offset(m, &m->ends[3].device_offset, 0), STALE_READ);
  assert_error(with_offset(m, &m->ends[3].device_offset, GMLAKE_OFFLOAD_NOWHERE), INCOMPLETE);
  assert_error(with_offset(m, &m->begins[0].device_offset, 0), INCOMPLETE);
  from = m->before[0]; /* x out waits for op 0 */
  m->before[0] = 99;
  assert_error(checked(m), INCOMPLETE);
  m->before[0] = from;
  for (e = m->before_begin[4]; m->before[e] != 3; e++) continue;
  m->before[e] = 2; /* x in waits for op 2, and for op 1 now */
  assert_error(gmlake_offload_memgraph_check(m, &fault), RACE);
  assert_int_equal(fault.node, 4);
  assert_int_equal(fault.other, 3);
  m->before[e] = 3;
  node = m->nodes[2];
  m->nodes[2].op = 0;
  assert_error(checked(m), INCOMPLETE);
  m->nodes[2].op = 77;
  assert_error(checked(m), INCOMPLETE);
  m->nodes[2] = node;
  node = m->nodes[1];
  m->nodes[1].tensor = 9;
  assert_error(checked(m), INCOMPLETE);
  m->nodes[1] = node;
  m->nodes[1].device = 1;
  assert_error(checked(m), INCOMPLETE);
  m->nodes[1] = node;
  m->nodes[1].kind = GMLAKE_OFFLOAD_NODE_RELOAD;
  assert_error(checked(m), STALE_READ);
  m->nodes[1] = node;
  m->node_count = 5;
  m->edge_count = m->before_begin[5];
  assert_error(checked(m), INCOMPLETE);
  m->node_count = 6;
  m->edge_count = m->before_begin[6];
  assert_right(m);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* An edge from a node behind, by number or in the simulated order. */
CASE(test_defects_of_orders) {
  gmlake_offload_memgraph *m;
  gmlake_offload_graph *graph = memgraph_of(THERE_AND_BACK " compile:4", UNIT, &m);
  gmlake_offload_memgraph_fault fault;
  m->before[0] = 4; /* x out waits for op 0 */
  assert_error(gmlake_offload_memgraph_check(m, &fault), CYCLE);
  assert_int_equal(fault.node, 1);
  assert_int_equal(fault.other, 4);
  m->before[0] = 0;
  m->nodes[0].start = 1;
  m->nodes[1].start = 0;
  assert_error(gmlake_offload_memgraph_check(m, &fault), CYCLE);
  assert_int_equal(fault.node, 1);
  assert_int_equal(fault.other, 0);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* Tensors that live on: where they begin and end. */
CASE(test_defects_of_homes) {
  gmlake_offload_memgraph *m;
  gmlake_offload_graph *graph = memgraph_of(FOUR_LAYERS " compile:8", UNIT, &m);
  gmlake_offload_place former = m->begins[1];
  size_t t, away = 0;
  for (t = 1; t < 5; t++) {
    if (m->begins[t].device_offset == GMLAKE_OFFLOAD_NOWHERE) away = t;
  }
  assert_true(away != 0);
  assert_error(with_offset(m, &m->begins[1].device_offset, GMLAKE_OFFLOAD_NOWHERE), INCOMPLETE);
  assert_error(with_offset(m, &m->ends[away].host_offset, 0), INCOMPLETE);
  m->begins[1].device_offset = m->ends[1].device_offset = m->begins[0].device_offset;
  assert_error(checked(m), BAD_PLACE);
  m->begins[1] = m->ends[1] = former;
  m->begins[away].host_offset = m->ends[away].host_offset = GMLAKE_OFFLOAD_NOWHERE;
  assert_error(checked(m), INCOMPLETE);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static uint64_t time_of(uint64_t seed, int order) {
  play_text("%s {copy:10 both:110e9 order:%d} execute:1 time>0", random_line(seed, 60), order);
  return g.stats.time_ns;
}

/* The simulated order takes as long as any order where times are as expected. With only operators
   in order, copies are no later than with everything in order. */
CASE(test_simulated_order) {
  uint64_t seed;
  size_t better = 0, copies = 0;
  for (seed = 1; seed <= 20; seed++) {
    const uint64_t any = time_of(seed, 0), simulated = time_of(seed, 3);
    assert_true(simulated <= any + any / 1000 && any <= simulated + any / 1000);
    better += simulated < time_of(seed, 2) / 100 * 99;
    copies += g.compiled.offload_count + g.compiled.reload_count;
  }
  assert_true(copies > 100 && better >= 3);
}

/* A memgraph beside a job without a plan, in one limit: their bytes are those of each alone, in any
   order of leaving. */
CASE(test_memgraph_beside_a_job) {
  gmlake_offload_memgraph *m;
  gmlake_offload_graph *graph = memgraph_of(THERE_AND_BACK " compile:4", UNIT, &m);
  const size_t arenas = memgraph_info(m).device_bytes;
  still alone = new_still(graph);
  uint32_t second, job, i;
  void *device, *host;
  for (i = 0; i < 3; i++) still_run(&alone, i);
  for (i = 0; i < 2; i++) {
    gmlake_offload_backend *mock = new_mock(.5, 3 + i);
    gmlake_offload_run *run = new_runner(mock, m, 0, 2, 0);
    gmlake_offload_run_stats stats;
    stats.struct_bytes = 0;
    assert_ok(gmlake_offload_run_set_limit(run, arenas + info_of(graph).op_bytes_max));
    assert_ok(gmlake_offload_run_add_job(run, graph, NULL, &second));
    assert_ok(gmlake_offload_run_iterations(run, 3));
    assert_ok(gmlake_offload_run_get_stats(run, &stats));
    assert_int_equal(stats.iteration_count, 6);
    assert_int_equal(stats.device_bytes_peak, arenas + info_of(graph).op_bytes_max);
    assert_true(stats.on_demand_out_count > 0);
    assert_int_equal(census_of(mock).race_count, 0);
    assert_same_tensors(&alone, run);
    gmlake_offload_mock_spend(mock, 1000 * MS); /* is no time of the run */
    assert_ok(gmlake_offload_run_remove_job(run, i ? second : 0));
    assert_error(gmlake_offload_run_locate(run, i ? second : 0, 0, &device, &host), UNKNOWN_ID);
    assert_ok(gmlake_offload_run_iterations(run, 1));
    if (!i) {
      assert_ok(gmlake_offload_run_add_memgraph(run, m, &job));
      assert_int_equal(job, 0);
      assert_ok(gmlake_offload_run_iterations(run, 3));
      assert_same_tensors(&alone, run);
    }
    assert_ok(gmlake_offload_run_get_stats(run, &stats));
    assert_true(stats.stall_ns < 1000 * MS && stats.time_ns < 1000 * MS);
    gmlake_offload_run_destroy(run);
    assert_int_equal(census_of(mock).device_bytes + census_of(mock).host_bytes, 0);
    gmlake_offload_mock_destroy(mock);
  }
  free_still(&alone);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

static int add_one(void *user, const gmlake_offload_launch *launch, void *stream) {
  size_t i, bytes = *(const size_t *)user;
  assert_null(stream);
  assert_true((launch->desc.flags & GMLAKE_OFFLOAD_TRANSFER) == 0);
  for (i = 0; i < bytes; i++)
    ((unsigned char *)launch->writes[0])[i] = (unsigned char)(((char *)launch->reads[0])[i] + 1);
  return 0;
}

static int fill_fives(void *user, uint32_t job, uint32_t id, void *ptr, size_t bytes, int on_host,
                      void *stream) {
  (void)user, (void)job, (void)id, (void)on_host, (void)stream;
  memset(ptr, 5, bytes);
  return 0;
}

/* The caller's operators on two devices; the mock itself copies what goes from one to the other. */
CASE(test_operators_of_the_caller) {
  gmlake_offload_graph *graph = new_graph(0);
  gmlake_offload_mock_desc desc;
  gmlake_offload_run *run;
  gmlake_offload_memgraph *m;
  gmlake_offload_backend *mock;
  uint32_t from = tensor(graph, 61, GMLAKE_OFFLOAD_PERSISTENT), to, copy, id;
  size_t bytes = 61, i;
  void *device, *host;
  assert_ok(try_tensor(graph, 61, GMLAKE_OFFLOAD_PERSISTENT, 1, &to));
  op(graph, 100, from, NONE, from);
  assert_ok(gmlake_offload_add_transfer(graph, from, to, 100, &copy));
  assert_ok(try_tensor(graph, 0, GMLAKE_OFFLOAD_INTERMEDIATE, 1, &id)); /* of no bytes, too */
  assert_ok(gmlake_offload_add_transfer(graph, tensor(graph, 0, GMLAKE_OFFLOAD_INPUT), id, 1, &id));
  assert_ok(gmlake_offload_graph_seal(graph));
  m = compile(graph);
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.launch_fn = add_one;
  desc.fill_fn = fill_fives;
  desc.user = &bytes;
  assert_ok(gmlake_offload_mock_create(&desc, &mock));
  run = new_runner(mock, m, 0, 1, 0);
  assert_ok(gmlake_offload_run_iterations(run, 3));
  assert_ok(gmlake_offload_run_locate(run, 0, to, &device, &host));
  for (i = 0; i < bytes; i++) assert_int_equal(((char *)(device ? device : host))[i], 8);
  assert_int_equal(census_of(mock).race_count, 0);
  gmlake_offload_run_destroy(run);
  gmlake_offload_mock_destroy(mock);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

static void soak(uint64_t executions, uint64_t seed) {
  for (;; seed++) {
    print_message("seed %lu\n", (unsigned long)seed);
    play_text("%s {order:1 streams:2 jitter:.5} execute:%u", random_line(seed, 10 + seed % 150),
              (unsigned)executions);
  }
}

int main(int argc, char **argv) {
  uint64_t executions = 0, seed = 1;
  const option_row rows[] = {
      {"executions", OPTION_COUNT, &executions, 0, 1e9, "N",
       "run random graphs N times each, without end, instead of the tests"},
      {"seed", OPTION_COUNT, &seed, 0, 1e18, "S", "of the first of these graphs; default 1"},
  };
  const option_reader reader = {"test_turnip", "[OPTION]...", "", "", rows, 2};
  options_alone(&reader, argc, argv);
  if (executions) soak(executions, seed);
  return run_cases("turnip");
}
