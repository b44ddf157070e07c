/* gmlake_offload.h's TURNIP, beside the rows of graph_rows.h: every error, and failures at every
   call; defects planted in memgraphs that the checker has to find; random graphs of several
   devices, proved right by the checker and by one that tries all pairs of nodes, and run in random
   orders against the same operators with nothing moved. */
#include "graph_rows.h"
#include "graphs.h"
#include "options.h"
#include "part.h"

/* ---- Helpers --------------------------------------------------------------------------------- */

#define UNIT ((size_t)64) /* of the small graphs' tensors */

static gmlake_offload_memgraph *compile(const gmlake_offload_graph *graph, size_t bytes) {
  gmlake_offload_memgraph_desc desc = compile_desc(graph, bytes);
  gmlake_offload_memgraph *m;
  assert_ok(gmlake_offload_memgraph_create(&desc, &m));
  return m;
}

static gmlake_offload_result checked(const gmlake_offload_memgraph *m) {
  return gmlake_offload_memgraph_check(m, NULL);
}

/* The second reload finds the first version where the second should be: nothing else is wrong. */
static void test_old_version(void **state) {
  gmlake_offload_graph *graph = graph_of("x=1 >x >y=3 x>x >z=3 x> >v=3", UNIT);
  gmlake_offload_memgraph *m = compile(graph, 3 * UNIT);
  gmlake_offload_memgraph_fault fault;
  uint32_t v, second = NONE;
  (void)state;
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

static void test_create_errors(void **state) {
  gmlake_offload_graph *graph = graph_of(THERE_AND_BACK, UNIT), *open = new_graph(0);
  gmlake_offload_memgraph_desc good = compile_desc(graph, 4 * UNIT), desc;
  gmlake_offload_memgraph *m;
  size_t each = 3 * UNIT;
  (void)state;
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

static void test_other_errors(void **state) {
  gmlake_offload_graph *graph = graph_of(THERE_AND_BACK, UNIT);
  gmlake_offload_memgraph *m = compile(graph, 4 * UNIT);
  gmlake_offload_backend *mock = new_mock(0, 1);
  gmlake_offload_engine *engine = new_engine(mock, m, 0, 0, 0, 1);
  gmlake_offload_memgraph_info info;
  gmlake_offload_engine_stats stats;
  gmlake_offload_place place;
  gmlake_offload_node node;
  void *ptr;
  (void)state;
  info.struct_bytes = stats.struct_bytes = 1;
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
  assert_error(gmlake_offload_engine_run(NULL, 1), INVALID_ARGUMENT);
  assert_error(gmlake_offload_engine_run(engine, (uint64_t)1 << 32), INVALID_ARGUMENT);
  assert_error(gmlake_offload_engine_locate(NULL, 0, &ptr, &ptr), INVALID_ARGUMENT);
  assert_error(gmlake_offload_engine_locate(engine, 0, NULL, &ptr), INVALID_ARGUMENT);
  assert_error(gmlake_offload_engine_locate(engine, 0, &ptr, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_engine_locate(engine, 4, &ptr, &ptr), UNKNOWN_ID);
  assert_error(gmlake_offload_engine_get_stats(NULL, &stats), INVALID_ARGUMENT);
  assert_error(gmlake_offload_engine_get_stats(engine, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_engine_get_stats(engine, &stats), INVALID_ARGUMENT);
  gmlake_offload_engine_destroy(NULL);
  gmlake_offload_memgraph_destroy(NULL);
  gmlake_offload_engine_destroy(engine);
  gmlake_offload_mock_destroy(mock);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

static void test_engine_errors(void **state) {
  gmlake_offload_graph *graph = graph_of(THERE_AND_BACK, UNIT);
  gmlake_offload_memgraph *m = compile(graph, 4 * UNIT);
  gmlake_offload_backend *mock = new_mock(0, 1), *coarse, table = *mock;
  gmlake_offload_engine_desc good, desc;
  gmlake_offload_engine *engine;
  gmlake_offload_mock_desc scaled;
  (void)state;
  memset(&scaled, 0, sizeof scaled);
  scaled.divisor = 5; /* 64 / 16 is 4 */
  assert_ok(gmlake_offload_mock_create(&scaled, &coarse));
  memset(&good, 0, sizeof good);
  good.backend = mock;
  good.memgraph = m;
  assert_error(gmlake_offload_engine_create(&good, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_engine_create(NULL, &engine), INVALID_ARGUMENT);
#define NO_ENGINE(change)                                                         \
  do {                                                                            \
    desc = good;                                                                  \
    change;                                                                       \
    engine = (gmlake_offload_engine *)1;                                          \
    assert_error(gmlake_offload_engine_create(&desc, &engine), INVALID_ARGUMENT); \
    assert_null(engine);                                                          \
  } while (0)
  table.wait = NULL;
  NO_ENGINE(desc.backend = NULL);
  NO_ENGINE(desc.backend = &table);
  NO_ENGINE(desc.backend = coarse);
  NO_ENGINE(desc.memgraph = NULL);
  NO_ENGINE(desc.flags = GMLAKE_OFFLOAD_FIXED_ORDER | GMLAKE_OFFLOAD_RANDOM_ORDER);
  NO_ENGINE(desc.flags = GMLAKE_OFFLOAD_SIMULATED_ORDER | GMLAKE_OFFLOAD_FIXED_OPS);
  NO_ENGINE(desc.flags = GMLAKE_OFFLOAD_FIXED_OPS * 2);
  NO_ENGINE(desc.launch_ahead_max = 1; desc.stream_count = 2);
  NO_ENGINE(desc.host.malloc_fn = counted.malloc_fn);
  gmlake_offload_mock_destroy(coarse);
  gmlake_offload_mock_destroy(mock);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* Runs the memgraph on such a mock, on two streams if the order is any; what was written, as a
   digest. */
static uint64_t run_on(const gmlake_offload_memgraph *m, const gmlake_offload_mock_desc *desc,
                       unsigned flags, uint64_t iterations,
                       gmlake_offload_engine_stats *out_stats) {
  const uint32_t streams = flags == GMLAKE_OFFLOAD_RANDOM_ORDER ? 2 : 1;
  gmlake_offload_backend *mock;
  gmlake_offload_engine *engine;
  uint64_t digest;
  assert_ok(gmlake_offload_mock_create(desc, &mock));
  engine = new_engine(mock, m, flags, streams, 0, 1 + desc->divisor);
  assert_ok(gmlake_offload_engine_run(engine, iterations));
  out_stats->struct_bytes = 0;
  assert_ok(gmlake_offload_engine_get_stats(engine, out_stats));
  assert_int_equal(out_stats->iteration_count, iterations);
  assert_int_equal(out_stats->op_count, iterations * m->graph->op_count);
  assert_int_equal(census_of(mock).race_count, 0);
  digest = census_of(mock).digest;
  gmlake_offload_engine_destroy(engine);
  gmlake_offload_mock_destroy(mock);
  return digest;
}

/* ---- Random graphs --------------------------------------------------------------------------- */

#define WORLD_DEVICES 3

typedef struct world {
  gmlake_offload_graph *graph;
  uint32_t live[WORLD_DEVICES][200]; /* tensors that may be read */
  size_t count[WORLD_DEVICES];
  uint32_t devices;
} world;

static uint32_t world_tensor(world *w, gmlake_offload_kind kind, uint32_t device) {
  uint32_t id;
  size_t bytes =
      random_below(12) ? (1 + random_below(12)) * 8 * (1 + random_below(6)) : random_below(9);
  assert_ok(try_tensor(w->graph, bytes, kind, device, &id));
  return id;
}

static uint32_t world_pick(world *w, uint32_t device) {
  uint32_t count = (uint32_t)w->count[device];
  return w->live[device][random_below(2) ? count - 1 - random_below(count < 5 ? count : 5)
                                         : random_below(count)];
}

static void world_transfer(world *w, uint32_t from) {
  uint32_t to = (from + 1 + random_below(w->devices - 1)) % w->devices, id, copy;
  uint32_t source = world_pick(w, from);
  gmlake_offload_tensor_desc desc;
  assert_ok(gmlake_offload_get_tensor(w->graph, source, &desc));
  assert_ok(try_tensor(w->graph, desc.bytes, GMLAKE_OFFLOAD_INTERMEDIATE, to, &copy));
  assert_ok(gmlake_offload_add_transfer(w->graph, source, copy, 500, &id));
  w->live[to][w->count[to]++] = copy;
}

/* Reads some, updates or overwrites one in place now and then, makes one or two. */
static void world_op(world *w, uint32_t device) {
  gmlake_offload_op_desc desc;
  gmlake_offload_tensor_desc t;
  uint32_t reads[4], writes[3], id, pick;
  size_t i, n, wanted = random_below(4), more = random_below(4) ? 1 : random_below(3);
  memset(&desc, 0, sizeof desc);
  desc.device = device;
  desc.reads = reads;
  desc.writes = writes;
  desc.time_ns = random_below(4000);
  for (i = 0; i < wanted; i++) {
    pick = world_pick(w, device);
    for (n = 0; n < desc.read_count && reads[n] != pick; n++) continue;
    if (n == desc.read_count) reads[desc.read_count++] = pick;
  }
  if (random_below(3) == 0) {
    pick = desc.read_count && random_below(3) ? reads[0] : world_pick(w, device);
    assert_ok(gmlake_offload_get_tensor(w->graph, pick, &t));
    if (t.kind != GMLAKE_OFFLOAD_INPUT) writes[desc.write_count++] = pick;
  }
  for (i = 0; i < more; i++) {
    gmlake_offload_kind kind =
        random_below(8) ? GMLAKE_OFFLOAD_INTERMEDIATE : GMLAKE_OFFLOAD_OUTPUT;
    writes[desc.write_count++] = w->live[device][w->count[device]++] =
        world_tensor(w, kind, device);
  }
  assert_ok(gmlake_offload_add_op(w->graph, &desc, &id));
  if (id > 2 && random_below(10) == 0) {
    assert_ok(gmlake_offload_add_dependency(w->graph, random_below(id), id));
  }
}

/* Of one to three devices, ordered, sealed. */
static gmlake_offload_graph *random_world_of(uint64_t seed, size_t op_count) {
  world w;
  size_t i;
  uint32_t d;
  memset(&w, 0, sizeof w);
  random_state = seed * 2654435761u + 7;
  w.devices = 1 + random_below(WORLD_DEVICES);
  w.graph = new_graph(random_below(2) ? GMLAKE_OFFLOAD_UNORDERED : 0);
  for (d = 0; d < w.devices; d++) {
    for (i = 0; i < 5; i++) {
      gmlake_offload_kind kind = i < 3 ? GMLAKE_OFFLOAD_PERSISTENT : GMLAKE_OFFLOAD_INPUT;
      w.live[d][w.count[d]++] = world_tensor(&w, kind, d);
    }
  }
  for (i = 0; i < op_count; i++) {
    d = random_below(w.devices);
    if (w.devices > 1 && random_below(5) == 0) {
      world_transfer(&w, d);
    } else {
      world_op(&w, d);
    }
  }
  assert_ok(gmlake_offload_graph_seal(w.graph));
  return w.graph;
}

/* What the largest operator takes of the device. */
static size_t least_bytes(const gmlake_offload_memgraph_desc *desc, uint32_t device) {
  size_t id, least = 1;
  for (id = 0; id < desc->graph->op_count; id++) {
    size_t used = gmlo_op_footprint(desc, (uint32_t)id, device);
    if (used > least) least = used;
  }
  return least;
}

/* Compiled for a random amount of memory, from what its operators need at least. */
static gmlake_offload_memgraph *random_memgraph(const gmlake_offload_graph *graph) {
  static const uint64_t ahead[] = {1, 3000, 20000, 0};
  gmlake_offload_memgraph_desc desc = compile_desc(graph, 0);
  gmlake_offload_memgraph *m;
  size_t bytes[WORLD_DEVICES], d, t;
  desc.align_bytes = (size_t)16 << random_below(3);
  for (d = 0; d < graph->device_count; d++) {
    size_t least = least_bytes(&desc, (uint32_t)d), all = 0;
    for (t = 0; t < graph->tensor_count; t++) all += graph->tensors[t].bytes;
    bytes[d] = random_below(3) ? least + (all - least) / 8 * random_below(9) / 8 : least;
    if (bytes[d] < least) bytes[d] = least;
  }
  desc.bytes_by_device = bytes;
  desc.tensor_bytes_min = random_below(2) ? 1 : 200;
  desc.flags = random_below(4) ? 0 : GMLAKE_OFFLOAD_LETTER;
  desc.alloc_ahead_ns = ahead[random_below(4)];
  desc.reload_ahead_ns = ahead[random_below(4)];
  assert_ok(gmlake_offload_memgraph_create(&desc, &m));
  return m;
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

static void test_device_info(void **state) {
  gmlake_offload_device_info info;
  gmlake_offload_graph *graph = new_graph(0);
  uint64_t seed;
  uint32_t d, op_id;
  (void)state;
  info.struct_bytes = 0;
  assert_error(gmlake_offload_graph_get_device_info(graph, 0, &info), NOT_SEALED);
  gmlake_offload_graph_destroy(graph);
  for (seed = 1; seed <= 60; seed++) {
    gmlake_offload_memgraph_desc desc;
    uint64_t time_ns = 0, all_ns = 0;
    size_t tensor_bytes = 0, persistent_bytes = 0;
    graph = random_world_of(seed, 5 + seed % 40);
    desc = compile_desc(graph, 0);
    desc.align_bytes = 1;
    for (d = 0; d < graph->device_count; d++) {
      size_t least = least_bytes(&desc, d);
      info.struct_bytes = 0;
      assert_ok(gmlake_offload_graph_get_device_info(graph, d, &info));
      assert_int_equal(info.peak_bytes, most_bytes(graph, d));
      assert_true(info.op_bytes_max <= least && least - info.op_bytes_max <= 8); /* empty ones */
      time_ns += info.time_ns;
      tensor_bytes += info.tensor_bytes;
      persistent_bytes += info.persistent_bytes;
    }
    for (op_id = 0; op_id < graph->op_count; op_id++) {
      gmlake_offload_op_desc o;
      assert_ok(gmlake_offload_get_op(graph, op_id, &o));
      all_ns += (o.flags & GMLAKE_OFFLOAD_TRANSFER) != 0 ? 0 : o.time_ns;
    }
    assert_int_equal(time_ns, all_ns);
    assert_int_equal(tensor_bytes, info_of(graph).tensor_bytes);
    assert_int_equal(persistent_bytes, info_of(graph).persistent_bytes);
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

/* Whether each two nodes in conflict are ordered, and no edge is implied by others. */
static int pairs_are_ordered(const gmlake_offload_memgraph *m) {
  unsigned char *reach = all_paths(m);
  touch a[16], b[16];
  size_t v, w, e, f, count = m->node_count;
  int ordered = 1;
  for (v = 0; v < count && ordered; v++) {
    size_t a_count = touches(m, (uint32_t)v, a);
    for (w = 0; w < v && ordered; w++) {
      if (reach[w * count + v]) continue;
      ordered = !touch_conflicts(a, a_count, b, touches(m, (uint32_t)w, b));
    }
    for (e = m->before_begin[v]; e < m->before_begin[v + 1]; e++) {
      for (f = m->before_begin[v]; f < m->before_begin[v + 1]; f++) {
        assert_false(reach[m->before[e] * count + m->before[f]]);
      }
    }
  }
  free(reach);
  return ordered;
}

static void test_random(void **state) {
  uint64_t seed;
  size_t moved = 0;
  (void)state;
  for (seed = 1; seed <= part_of(250); seed++) {
    gmlake_offload_graph *graph = random_world_of(seed, 10 + seed % 90);
    gmlake_offload_memgraph *m = random_memgraph(graph);
    assert_right(m);
    assert_true(pairs_are_ordered(m));
    assert_runs(m, 6, seed);
    moved += memgraph_info(m).reload_count;
    gmlake_offload_memgraph_destroy(m);
    gmlake_offload_graph_destroy(graph);
  }
  assert_true(moved > 2000 / test_part() / 2);
  assert_int_equal(host_bytes, 0);
}

/* Whatever the divisor, power of two or not, tensors lie inside their arenas (offload_fixture.h
   looks at the bytes behind each) and beside each other. */
static void test_divisors(void **state) {
  size_t divisor, moved = 0;
  uint64_t seed;
  gmlake_offload_engine_stats stats;
  gmlake_offload_mock_desc mock;
  (void)state;
  memset(&mock, 0, sizeof mock);
  mock.jitter = .5;
  mock.host = counted;
  for (divisor = 1; divisor <= 70; divisor += test_part()) {
    size_t align = 16;
    mock.divisor = divisor;
    while (align < 16 * divisor) align *= 2;
    for (seed = 1; seed <= 3; seed++) {
      gmlake_offload_graph *graph = random_world_of(divisor + seed * 100, 20);
      gmlake_offload_memgraph_desc desc = compile_desc(graph, 0);
      gmlake_offload_memgraph *all, *tight;
      size_t d, least = 0;
      desc.align_bytes = align;
      assert_ok(gmlake_offload_memgraph_create(&desc, &all));
      for (d = 0; d < graph->device_count; d++) {
        size_t bytes = least_bytes(&desc, (uint32_t)d);
        if (bytes > least) least = bytes;
      }
      desc.device_bytes = least;
      assert_ok(gmlake_offload_memgraph_create(&desc, &tight));
      moved += memgraph_info(tight).reload_count;
      assert_true(run_on(all, &mock, GMLAKE_OFFLOAD_RANDOM_ORDER, 3, &stats) ==
                  run_on(tight, &mock, GMLAKE_OFFLOAD_RANDOM_ORDER, 3, &stats));
      gmlake_offload_memgraph_destroy(tight);
      gmlake_offload_memgraph_destroy(all);
      gmlake_offload_graph_destroy(graph);
    }
  }
  assert_true(moved > 1000 / test_part());
  assert_int_equal(host_bytes, 0);
}

/* ---- Planted defects ------------------------------------------------------------------------- */

/* No edge is there for nothing: without it the memgraph is wrong, and the checker says so. */
static void test_every_edge_is_needed(void **state) {
  uint64_t seed;
  (void)state;
  for (seed = 1; seed <= part_of(25); seed++) {
    gmlake_offload_graph *graph = random_world_of(seed, 30);
    gmlake_offload_memgraph *m = random_memgraph(graph);
    size_t v, e, i;
    for (e = m->edge_count; e-- > 0;) {
      uint32_t from = m->before[e];
      gmlake_offload_result result;
      for (v = 0; m->before_begin[v + 1] <= e; v++) continue;
      memmove(m->before + e, m->before + e + 1, (m->edge_count - e - 1) * sizeof *m->before);
      for (i = v + 1; i <= m->node_count; i++) m->before_begin[i]--;
      m->edge_count--;
      result = checked(m);
      if (result != GMLAKE_OFFLOAD_ERROR_RACE) assert_error(result, INCOMPLETE);
      if (graph->asked_count == 0) assert_error(result, RACE);
      memmove(m->before + e + 1, m->before + e, (m->edge_count - e) * sizeof *m->before);
      m->before[e] = from;
      for (i = v + 1; i <= m->node_count; i++) m->before_begin[i]++;
      m->edge_count++;
    }
    assert_right(m);
    gmlake_offload_memgraph_destroy(m);
    gmlake_offload_graph_destroy(graph);
  }
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
static void test_defects(void **state) {
  gmlake_offload_graph *graph = graph_of(THERE_AND_BACK, UNIT);
  gmlake_offload_memgraph *m = compile(graph, 4 * UNIT);
  gmlake_offload_memgraph_fault fault;
  gmlo_node node;
  uint32_t from;
  (void)state;
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
  m->before[0] = 4;
  assert_error(gmlake_offload_memgraph_check(m, &fault), CYCLE);
  assert_true(fault.node >= 1 && fault.node <= 4);
  m->before[0] = 99;
  assert_error(checked(m), INCOMPLETE);
  m->before[0] = from;
  from = m->before[3]; /* x in waits for op 2, and so does x out, for op 0 now */
  m->before[3] = 2;
  assert_error(gmlake_offload_memgraph_check(m, &fault), RACE);
  assert_int_equal(fault.node, 4);
  assert_int_equal(fault.other, 3);
  m->before[3] = from;
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

/* What is read in one place and written in another is no update in place. */
static void test_defect_of_an_update(void **state) {
  gmlake_offload_graph *graph = graph_of("x=1 >x x>x x>", UNIT);
  gmlake_offload_memgraph *m;
  (void)state;
  m = compile(graph, UNIT);
  assert_right(m);
  m->device_bytes[0] += UNIT;
  m->ref_offsets[2] = m->ref_offsets[3] = UNIT; /* written by the second, read by the third */
  assert_error(checked(m), BAD_PLACE);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* Tensors that live on: where they begin and end. */
static void test_defects_of_homes(void **state) {
  gmlake_offload_graph *graph = graph_of(FOUR_LAYERS, UNIT);
  gmlake_offload_memgraph *m = compile(graph, 8 * UNIT);
  gmlake_offload_place former = m->begins[1];
  size_t t, away = 0;
  (void)state;
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

/* ---- Failures -------------------------------------------------------------------------------- */

static void test_host_memory(void **state) {
  gmlake_offload_graph *graph = random_world_of(11, 60);
  gmlake_offload_memgraph_desc desc = compile_desc(graph, 0);
  gmlake_offload_memgraph *m = NULL;
  size_t before = host_bytes, bytes[WORLD_DEVICES], d;
  long n;
  (void)state;
  for (d = 0; d < WORLD_DEVICES; d++) bytes[d] = least_bytes(&desc, (uint32_t)d);
  desc.bytes_by_device = bytes;
  desc.reload_ahead_ns = 0;
  for (n = 1; m == NULL; n++) {
    gmlake_offload_result result;
    host_fail_in = n;
    result = gmlake_offload_memgraph_create(&desc, &m);
    if (result != GMLAKE_OFFLOAD_OK) assert_error(result, OUT_OF_HOST_MEMORY);
    if (result != GMLAKE_OFFLOAD_OK) assert_int_equal(host_bytes, before);
  }
  assert_true(n > 100);
  before = host_bytes;
  for (host_fail_in = n = 1; checked(m) != GMLAKE_OFFLOAD_OK; host_fail_in = ++n) {
    assert_int_equal(host_bytes, before);
  }
  assert_true(n > 15);
  assert_int_equal(host_bytes, before);
  host_fail_in = 0;
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

static void test_engine_host_memory(void **state) {
  gmlake_offload_graph *graph = graph_of(FOUR_LAYERS, UNIT);
  gmlake_offload_memgraph *m = compile(graph, 6 * UNIT);
  gmlake_offload_backend *mock = new_mock(0, 1);
  gmlake_offload_engine_desc desc;
  gmlake_offload_engine *engine = NULL;
  size_t before = host_bytes;
  long n;
  (void)state;
  memset(&desc, 0, sizeof desc);
  desc.backend = mock;
  desc.memgraph = m;
  desc.host = counted;
  for (n = 1; engine == NULL; n++) {
    host_fail_in = n;
    if (gmlake_offload_engine_create(&desc, &engine) == GMLAKE_OFFLOAD_OK) break;
    assert_int_equal(host_bytes, before);
  }
  assert_true(n > 5);
  host_fail_in = 0;
  gmlake_offload_engine_destroy(engine);
  gmlake_offload_mock_destroy(mock);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* The backend fails at every call in turn; whatever was taken is given back. */
static void test_backend(void **state) {
  gmlake_offload_graph *graph = graph_of(FOUR_LAYERS, UNIT);
  gmlake_offload_memgraph *m = compile(graph, 6 * UNIT);
  gmlake_offload_engine_desc desc;
  uint64_t n, calls = 1;
  (void)state;
  memset(&desc, 0, sizeof desc);
  desc.memgraph = m;
  for (n = 1; n <= calls; n++) {
    gmlake_offload_backend *mock = new_mock(.3, n);
    gmlake_offload_engine *engine;
    gmlake_offload_result result;
    desc.backend = mock;
    gmlake_offload_mock_fail_at(mock, n);
    result = gmlake_offload_engine_create(&desc, &engine);
    if (n == 1) assert_error(result, OUT_OF_DEVICE_MEMORY);
    if (n == 2) assert_error(result, OUT_OF_HOST_MEMORY);
    if (result == GMLAKE_OFFLOAD_OK) {
      result = gmlake_offload_engine_run(engine, 2);
      if (n < calls) assert_error(result, BACKEND);
      assert_int_equal(gmlake_offload_engine_run(engine, 0), result);
    }
    gmlake_offload_engine_destroy(engine);
    gmlake_offload_mock_fail_at(mock, 0);
    if (n == calls && result != GMLAKE_OFFLOAD_OK) calls++;
    assert_int_equal(census_of(mock).device_bytes + census_of(mock).host_bytes, 0);
    gmlake_offload_mock_destroy(mock);
  }
  assert_true(calls > 20);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* ---- Engines --------------------------------------------------------------------------------- */

/* Two chains on one device, the first held up by a reload: in any order the second goes on. */
static void test_any_order_overlaps(void **state) {
  gmlake_offload_graph *graph =
      graph_of("a=1 w=40mp v=4mp w>a >b0=1:200 [3 b#>b#+1=1:200 ] a,v>", UNIT);
  gmlake_offload_engine_stats stats[2];
  gmlake_offload_memgraph_desc desc;
  gmlake_offload_memgraph *m;
  size_t i;
  (void)state;
  desc = compile_desc(graph, 40 * MIB + 8 * 16384); /* room for w or v beside the chain */
  desc.align_bytes = 16384;
  assert_ok(gmlake_offload_memgraph_create(&desc, &m));
  for (i = 0; i < 2; i++) {
    gmlake_offload_mock_desc mock_desc;
    memset(&mock_desc, 0, sizeof mock_desc);
    mock_desc.divisor = 1024;
    (void)run_on(m, &mock_desc, i ? GMLAKE_OFFLOAD_FIXED_ORDER : 0, 3, &stats[i]);
  }
  assert_true(stats[1].time_ns > stats[0].time_ns * 3 / 2);
  assert_true(stats[1].stall_ns > stats[0].stall_ns * 5);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

static uint64_t time_of(const gmlake_offload_memgraph *m, unsigned flags) {
  gmlake_offload_engine_stats stats;
  gmlake_offload_mock_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.copy_ns = 10000;
  desc.both_bytes_per_s = 110e9; /* as the simulation: no direction slows the other one */
  desc.host = counted;
  (void)run_on(m, &desc, flags, 1, &stats);
  return stats.time_ns;
}

/* The simulated order is one in which nodes may run, and takes as long as any order where times are
   as expected. With only operators in order, copies are no later than with everything in order. */
static void test_simulated_order(void **state) {
  uint64_t seed;
  size_t better = 0, copies = 0;
  (void)state;
  for (seed = 1; seed <= 20; seed++) {
    gmlake_offload_graph *graph = random_world_of(seed, 60);
    gmlake_offload_memgraph *m = random_memgraph(graph);
    gmlake_offload_node node, other;
    unsigned char *seen = (unsigned char *)calloc(memgraph_info(m).node_count, 1);
    uint64_t any, simulated;
    uint32_t v;
    size_t i;
    assert_non_null(seen);
    for (v = 0; gmlake_offload_memgraph_get_node(m, v, &node) == GMLAKE_OFFLOAD_OK; v++) {
      assert_true(node.start < memgraph_info(m).node_count && !seen[node.start]);
      seen[node.start] = 1;
      copies += node.kind != GMLAKE_OFFLOAD_NODE_OP;
      for (i = 0; i < node.before_count; i++) {
        assert_ok(gmlake_offload_memgraph_get_node(m, node.before[i], &other));
        assert_true(other.start < node.start);
      }
    }
    any = time_of(m, 0);
    simulated = time_of(m, GMLAKE_OFFLOAD_SIMULATED_ORDER);
    assert_true(simulated <= any + any / 1000 && any <= simulated + any / 1000);
    better += simulated < time_of(m, GMLAKE_OFFLOAD_FIXED_ORDER) / 100 * 99;
    free(seen);
    gmlake_offload_memgraph_destroy(m);
    gmlake_offload_graph_destroy(graph);
  }
  assert_true(copies > 100 && better >= 3);
  assert_int_equal(host_bytes, 0);
}

/* The most operators under way at once in two iterations. */
static size_t run_ahead(const gmlake_offload_memgraph *m, unsigned flags, uint32_t depth) {
  still s = new_still(m->graph);
  gmlake_offload_backend *mock = new_mock(.5, depth);
  gmlake_offload_engine *engine = new_engine(watched(mock), m, flags, 3, depth, 1);
  assert_ok(gmlake_offload_engine_run(engine, 2));
  still_run(&s, 0);
  still_run(&s, 1);
  assert_true(census_of(mock).digest == census_of(s.mock).digest);
  assert_int_equal(census_of(mock).race_count, 0);
  gmlake_offload_engine_destroy(engine);
  gmlake_offload_mock_destroy(mock);
  free_still(&s);
  assert_int_equal(watch.most_stream, 0);
  return (size_t)watch.most_under_way;
}

/* Operators that wait for operators only are launched behind them; the others wait for copies. */
static void test_launched_ahead(void **state) {
  static const unsigned ways[] = {0, GMLAKE_OFFLOAD_FIXED_ORDER, GMLAKE_OFFLOAD_RANDOM_ORDER};
  gmlake_offload_graph *graph = graph_of(THERE_AND_BACK, UNIT);
  gmlake_offload_memgraph *roomy = compile(graph, 8 * UNIT), *tight = compile(graph, 4 * UNIT);
  uint32_t depth, way;
  (void)state;
  assert_int_equal(memgraph_info(roomy).node_count, 4);
  for (way = 0; way < 3; way++) {
    for (depth = 1; depth < 6; depth++) {
      assert_int_equal(run_ahead(roomy, ways[way], depth), depth < 4 ? depth + 1 : 4);
      assert_int_equal(run_ahead(tight, ways[way], depth), 2);
    }
    assert_int_equal(run_ahead(roomy, ways[way], UINT32_MAX), 4);
  }
  gmlake_offload_memgraph_destroy(tight);
  gmlake_offload_memgraph_destroy(roomy);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

/* A transfer beside operators of its device is on a stream of its own. */
static void test_streams_of_transfers(void **state) {
  gmlake_offload_graph *graph = new_graph(0);
  uint32_t from[4], to, id, i, streams;
  (void)state;
  for (i = 0; i < 4; i++) {
    from[i] = tensor(graph, UNIT, GMLAKE_OFFLOAD_PERSISTENT);
    assert_ok(try_tensor(graph, UNIT, GMLAKE_OFFLOAD_PERSISTENT, 1, &to));
    assert_ok(gmlake_offload_add_transfer(graph, from[i], to, 5000, &id));
    op(graph, 4000, from[i], NONE, NONE);
  }
  assert_ok(gmlake_offload_graph_seal(graph));
  for (streams = 1; streams <= 3; streams++) {
    gmlake_offload_memgraph *m = compile(graph, 0);
    gmlake_offload_backend *mock = new_mock(.5, 3);
    gmlake_offload_engine *engine = new_engine(watched(mock), m, 0, streams, 0, 1);
    assert_ok(gmlake_offload_engine_run(engine, 3));
    assert_int_equal(watch.clashes, 0);
    assert_int_equal(watch.most_stream, 2 * streams - 1);
    gmlake_offload_engine_destroy(engine);
    gmlake_offload_mock_destroy(mock);
    gmlake_offload_memgraph_destroy(m);
  }
  gmlake_offload_graph_destroy(graph);
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
static void test_operators_of_the_caller(void **state) {
  gmlake_offload_graph *graph = new_graph(0);
  gmlake_offload_mock_desc desc;
  gmlake_offload_engine *engine;
  gmlake_offload_memgraph *m;
  gmlake_offload_backend *mock;
  uint32_t from = tensor(graph, 61, GMLAKE_OFFLOAD_PERSISTENT), to, copy, id;
  size_t bytes = 61, i;
  void *device, *host;
  (void)state;
  assert_ok(try_tensor(graph, 61, GMLAKE_OFFLOAD_PERSISTENT, 1, &to));
  op(graph, 100, from, NONE, from);
  assert_ok(gmlake_offload_add_transfer(graph, from, to, 100, &copy));
  assert_ok(try_tensor(graph, 0, GMLAKE_OFFLOAD_INTERMEDIATE, 1, &id)); /* of no bytes, too */
  assert_ok(gmlake_offload_add_transfer(graph, tensor(graph, 0, GMLAKE_OFFLOAD_INPUT), id, 1, &id));
  assert_ok(gmlake_offload_graph_seal(graph));
  m = compile(graph, 0);
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.launch_fn = add_one;
  desc.fill_fn = fill_fives;
  desc.user = &bytes;
  assert_ok(gmlake_offload_mock_create(&desc, &mock));
  engine = new_engine(mock, m, 0, 1, 0, 0);
  assert_ok(gmlake_offload_engine_run(engine, 3));
  assert_ok(gmlake_offload_engine_locate(engine, to, &device, &host));
  for (i = 0; i < bytes; i++) assert_int_equal(((char *)(device ? device : host))[i], 8);
  assert_int_equal(census_of(mock).race_count, 0);
  gmlake_offload_engine_destroy(engine);
  gmlake_offload_mock_destroy(mock);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

/* A backend that tells of what is not under way fails, whatever it tells. */
static void test_odd_tokens(void **state) {
  gmlake_offload_graph *graph = graph_of(THERE_AND_BACK, UNIT);
  gmlake_offload_memgraph *m = compile(graph, 4 * UNIT);
  int lie;
  (void)state;
  for (lie = 0; lie <= 5; lie++) {
    gmlake_offload_backend *mock = new_mock(.5, 3);
    gmlake_offload_engine *engine = new_engine(watched(mock), m, 0, 2, 0, 1);
    assert_ok(gmlake_offload_engine_run(engine, 1));
    watch.lie = lie;
    if (lie == 0) assert_ok(gmlake_offload_engine_run(engine, 1));
    if (lie != 0) assert_error(gmlake_offload_engine_run(engine, 1), BACKEND);
    gmlake_offload_engine_destroy(engine);
    gmlake_offload_mock_destroy(mock);
  }
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* On a link that takes years for a copy the simulated time ends, and does not begin anew. */
static void test_years(void **state) {
  gmlake_offload_graph *graph = graph_of("[70 >y#=1:1ns ] [70 y#>:1ns ]", UNIT);
  gmlake_offload_memgraph_desc desc;
  gmlake_offload_memgraph *m;
  (void)state;
  desc = compile_desc(graph, 3 * UNIT);
  desc.copy_ns = UINT64_MAX / 64;
  assert_ok(gmlake_offload_memgraph_create(&desc, &m));
  assert_true(memgraph_info(m).offload_count > 64);
  assert_true(memgraph_info(m).time_ns > UINT64_MAX / 2);
  assert_right(m);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

static void soak(size_t executions, uint64_t seed) {
  for (;; seed++) {
    gmlake_offload_graph *graph = random_world_of(seed, 10 + seed % 150);
    gmlake_offload_memgraph *m = random_memgraph(graph);
    print_message("seed %lu: %lu nodes\n", (unsigned long)seed, (unsigned long)m->node_count);
    assert_right(m);
    assert_true(pairs_are_ordered(m));
    assert_runs(m, executions, seed);
    gmlake_offload_memgraph_destroy(m);
    gmlake_offload_graph_destroy(graph);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_old_version),
      cmocka_unit_test(test_create_errors),
      cmocka_unit_test(test_other_errors),
      cmocka_unit_test(test_engine_errors),
      cmocka_unit_test(test_random),
      cmocka_unit_test(test_divisors),
      cmocka_unit_test(test_device_info),
      cmocka_unit_test(test_every_edge_is_needed),
      cmocka_unit_test(test_defects),
      cmocka_unit_test(test_defects_of_homes),
      cmocka_unit_test(test_host_memory),
      cmocka_unit_test(test_engine_host_memory),
      cmocka_unit_test(test_backend),
      cmocka_unit_test(test_any_order_overlaps),
      cmocka_unit_test(test_simulated_order),
      cmocka_unit_test(test_defect_of_an_update),
      cmocka_unit_test(test_streams_of_transfers),
      cmocka_unit_test(test_operators_of_the_caller),
      cmocka_unit_test(test_odd_tokens),
      cmocka_unit_test(test_years),
      cmocka_unit_test(test_launched_ahead),
  };
  uint64_t executions = 0, seed = 1;
  const option_row rows[] = {
      {"executions", OPTION_COUNT, &executions, 0, 1e9, "N",
       "run random graphs N times each, without end, instead of the tests"},
      {"seed", OPTION_COUNT, &seed, 0, 1e18, "S", "of the first of these graphs; default 1"},
  };
  const option_reader reader = {"test_turnip", "[OPTION]...", "", "", rows, 2};
  options_alone(&reader, argc, argv);
  if (executions) soak((size_t)executions, seed);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
