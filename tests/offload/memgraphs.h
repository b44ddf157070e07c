/* What the tests of memgraphs share: compiling, and running, in orders that random times
   lead to, against the same operators with nothing moved. */
#if !defined(OFFLOAD_MEMGRAPHS_H)
#define OFFLOAD_MEMGRAPHS_H

#include "offload_fixture.h"

#define GMLAKE_TURNIP_IMPLEMENTATION
#include "gmlake_turnip.h"

static gmlake_offload_memgraph_desc compile_desc(const gmlake_offload_graph *graph, size_t bytes) {
  gmlake_offload_memgraph_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.graph = graph;
  desc.device_bytes = bytes;
  desc.align_bytes = 64;
  desc.tensor_bytes_min = 1;
  desc.alloc_ahead_ns = desc.reload_ahead_ns = 1;
  desc.host = counted;
  return desc;
}

/* What the largest operator takes of the device. */
static size_t least_bytes(const gmlake_offload_memgraph_desc *desc, uint32_t device) {
  size_t id, least = 1;
  for (id = 0; id < desc->graph->op_count; id++) {
    size_t used = gmlo_graph_op_bytes(desc->graph, (uint32_t)id, device, desc->align_bytes);
    if (used > least) least = used;
  }
  return least;
}

static gmlake_offload_memgraph_info memgraph_info(const gmlake_offload_memgraph *m) {
  gmlake_offload_memgraph_info info;
  info.struct_bytes = 0;
  assert_ok(gmlake_offload_memgraph_get_info(m, &info));
  return info;
}

/* ---- The other checker: all pairs of nodes --------------------------------------------------- */

/* reach[a * count + b]: a path leads from a to b. */
static unsigned char *all_paths(const gmlake_offload_memgraph *m) {
  size_t count = m->node_count, v, e, i;
  unsigned char *reach = (unsigned char *)calloc(count, count);
  assert_non_null(reach);
  for (v = 0; v < count; v++) {
    for (e = m->before_begin[v]; e < m->before_begin[v + 1]; e++) {
      size_t from = m->before[e];
      assert_true(from < v);
      reach[from * count + v] = 1;
      for (i = 0; i < from; i++) reach[i * count + v] |= reach[i * count + from];
    }
  }
  return reach;
}

typedef struct touch {
  size_t arena, begin, end;
  int writes;
} touch;

/* What a node touches; how many. */
static size_t touches(const gmlake_offload_memgraph *m, uint32_t id, touch *out) {
  const gmlake_offload_graph *graph = m->graph;
  gmlake_offload_node node;
  gmlake_offload_op_desc desc;
  size_t i, count = 0;
  assert_ok(gmlake_offload_memgraph_get_node(m, id, &node));
  if (node.kind != GMLAKE_OFFLOAD_NODE_OP) {
    out[0].arena = node.device;
    out[0].begin = node.device_offset;
    out[0].writes = node.kind == GMLAKE_OFFLOAD_NODE_RELOAD;
    out[1].arena = graph->device_count;
    out[1].begin = node.host_offset;
    out[1].writes = !out[0].writes;
    out[0].end = out[0].begin + graph->tensors[node.tensor].bytes;
    out[1].end = out[1].begin + graph->tensors[node.tensor].bytes;
    return 2;
  }
  assert_ok(gmlake_offload_get_op(graph, node.op, &desc));
  for (i = 0; i < desc.read_count + desc.write_count; i++, count++) {
    int writes = i >= desc.read_count;
    uint32_t t = writes ? desc.writes[i - desc.read_count] : desc.reads[i];
    out[count].arena = graph->tensors[t].device;
    out[count].begin = writes ? node.write_offsets[i - desc.read_count] : node.read_offsets[i];
    out[count].end = out[count].begin + graph->tensors[t].bytes;
    out[count].writes = writes;
  }
  return count;
}

static int touch_conflicts(const touch *a, size_t a_count, const touch *b, size_t b_count) {
  size_t i, n;
  for (i = 0; i < a_count; i++) {
    for (n = 0; n < b_count; n++) {
      if (a[i].arena != b[n].arena || (!a[i].writes && !b[n].writes)) continue;
      if (a[i].begin < b[n].end && b[n].begin < a[i].end) return 1;
    }
  }
  return 0;
}

/* Whether each two nodes in conflict are ordered. */
static int pairs_are_ordered(const gmlake_offload_memgraph *m) {
  unsigned char *reach = all_paths(m);
  touch a[16], b[16];
  size_t v, w, count = m->node_count;
  int ordered = 1;
  for (v = 0; v < count && ordered; v++) {
    size_t a_count = touches(m, (uint32_t)v, a);
    for (w = 0; w < v && ordered; w++) {
      if (reach[w * count + v]) continue;
      ordered = !touch_conflicts(a, a_count, b, touches(m, (uint32_t)w, b));
    }
  }
  free(reach);
  return ordered;
}

static void assert_right(const gmlake_offload_memgraph *m) {
  gmlake_offload_memgraph_fault fault;
  gmlake_offload_result result = gmlake_offload_memgraph_check(m, &fault);
  if (result)
    print_error("node %u, %u, tensor %u: %s\n", fault.node, fault.other, fault.tensor, fault.text);
  assert_ok(result);
  assert_true(pairs_are_ordered(m));
}

static gmlake_offload_backend *new_mock(double jitter, uint64_t seed) {
  gmlake_offload_mock_desc desc;
  gmlake_offload_backend *mock;
  memset(&desc, 0, sizeof desc);
  desc.jitter = desc.copy_jitter = jitter;
  desc.seed = seed;
  desc.host = counted;
  assert_ok(gmlake_offload_mock_create(&desc, &mock));
  return mock;
}

static gmlake_offload_mock_census census_of(const gmlake_offload_backend *mock) {
  gmlake_offload_mock_census census;
  gmlake_offload_mock_get_census(mock, &census);
  return census;
}

/* A run of that memgraph alone. With launches ahead operators have one stream. */
static gmlake_offload_run *new_runner(const gmlake_offload_backend *mock,
                                      const gmlake_offload_memgraph *m, unsigned flags,
                                      uint32_t streams, uint32_t ahead) {
  gmlake_offload_run_desc desc;
  gmlake_offload_run *run;
  uint32_t job;
  memset(&desc, 0, sizeof desc);
  desc.backend = mock;
  desc.flags = flags;
  desc.stream_count = ahead ? 1 : streams;
  desc.launch_ahead_max = ahead;
  desc.host = counted;
  assert_ok(gmlake_offload_run_create(&desc, &run));
  assert_ok(gmlake_offload_run_add_memgraph(run, m, &job));
  assert_int_equal(job, 0);
  return run;
}

/* ---- Nothing moved: each tensor has memory of its own, operators run in order ---------------- */

typedef struct still {
  gmlake_offload_backend *mock;
  const gmlake_offload_graph *graph;
  void **tensors;
} still;

static still new_still(const gmlake_offload_graph *graph) {
  still s;
  size_t t;
  s.mock = new_mock(0, 1);
  s.graph = graph;
  s.tensors = (void **)calloc(graph->tensor_count, sizeof *s.tensors);
  assert_non_null(s.tensors);
  for (t = 0; t < graph->tensor_count; t++) {
    size_t bytes = graph->tensors[t].bytes;
    s.tensors[t] = calloc(1, bytes + 16);
    assert_non_null(s.tensors[t]);
    if (gmlo_kind_is_made(graph->tensors[t].kind) || bytes == 0) continue;
    assert_int_equal(s.mock->fill(s.mock->user, 0, 0, (uint32_t)t, s.tensors[t], bytes, 0), 0);
  }
  return s;
}

static void still_run(still *s, uint64_t iteration) {
  size_t p, i;
  for (p = 0; p < s->graph->op_count; p++) {
    void *reads[64], *writes[64];
    gmlake_offload_launch launch;
    void *stream;
    assert_int_equal(s->mock->stream(s->mock->user, 0, 2, &stream), 0);
    memset(&launch, 0, sizeof launch);
    launch.graph = s->graph;
    launch.op = s->graph->order[p];
    launch.iteration = iteration;
    assert_ok(gmlake_offload_get_op(s->graph, launch.op, &launch.desc));
    for (i = 0; i < launch.desc.read_count; i++) reads[i] = s->tensors[launch.desc.reads[i]];
    for (i = 0; i < launch.desc.write_count; i++) writes[i] = s->tensors[launch.desc.writes[i]];
    launch.reads = reads;
    launch.writes = writes;
    assert_int_equal(s->mock->launch(s->mock->user, &launch, stream), 0);
    assert_int_equal(s->mock->stream_sync(s->mock->user, stream), 0);
  }
}

static void free_still(still *s) {
  size_t t;
  for (t = 0; t < s->graph->tensor_count; t++) free(s->tensors[t]);
  free(s->tensors);
  gmlake_offload_mock_destroy(s->mock);
}

/* What lives on between iterations has the same bytes wherever it is. */
static void assert_same_tensors(const still *s, gmlake_offload_run *run) {
  size_t t;
  for (t = 0; t < s->graph->tensor_count; t++) {
    const gmlo_tensor *tensor = &s->graph->tensors[t];
    void *device, *host;
    assert_ok(gmlake_offload_run_locate(run, 0, (uint32_t)t, &device, &host));
    if (tensor->kind == GMLAKE_OFFLOAD_INTERMEDIATE) assert_true(!device && !host);
    if (tensor->kind <= GMLAKE_OFFLOAD_INPUT) assert_true(device || host);
    if (device) assert_memory_equal(device, s->tensors[t], tensor->bytes / 8 * 8);
    if (host) assert_memory_equal(host, s->tensors[t], tensor->bytes / 8 * 8);
  }
}

/* Runs the memgraph so often, in the orders that random times lead to, and by the other ways. */
static void assert_runs(const gmlake_offload_memgraph *m, size_t executions, uint64_t seed) {
  static const unsigned ways[] = {0, GMLAKE_OFFLOAD_FIXED_ORDER, GMLAKE_OFFLOAD_SIMULATED_ORDER,
                                  GMLAKE_OFFLOAD_FIXED_OPS};
  size_t way, i;
  for (way = 0; way < 4; way++) {
    still s = new_still(m->graph);
    gmlake_offload_backend *mock = new_mock(.9, seed);
    uint32_t streams = (uint32_t)(1 + (seed + way) % 3);
    uint32_t ahead = (uint32_t)((seed / 3 + way) % 5);
    gmlake_offload_run *run = new_runner(mock, m, ways[way], streams, ahead);
    for (i = 0; i < (way == 0 ? executions : 2); i++) {
      assert_ok(gmlake_offload_run_iterations(run, 1));
      still_run(&s, i);
      assert_true(census_of(mock).digest == census_of(s.mock).digest);
      assert_int_equal(census_of(mock).race_count, 0);
    }
    assert_same_tensors(&s, run);
    gmlake_offload_run_destroy(run);
    assert_int_equal(census_of(mock).device_bytes + census_of(mock).host_bytes, 0);
    gmlake_offload_mock_destroy(mock);
    free_still(&s);
  }
}

#endif /* OFFLOAD_MEMGRAPHS_H */
