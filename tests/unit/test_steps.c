/* That time and memory grow no faster than they should, counted in steps and bytes, which are the
   same on every machine: the readers of bench/, and plans and memgraphs of large graphs. Where this
   is compiled without tests/unit/step_count.c, the cases that count steps are skipped. */
#define _GNU_SOURCE 1
#include "offload/offload_fixture.h"

#define GMLAKE_TURNIP_IMPLEMENTATION
#include "gmlake_turnip.h"

#define LINES_MEMORY_MAX ((size_t)4 << 20)
#include "graph.h"
#include "trace.h"

#include "steps.h"

#include <sys/mman.h>
#include <unistd.h>

#define UNIT ((size_t)64) /* of the made-up graphs' tensors */

/* ---- Readers --------------------------------------------------------------------------------- */

static char path[32], error[200];

/* A file in memory: a test that is stopped leaves nothing. */
static FILE *new_file(void) {
  const int file = memfd_create("input", MFD_CLOEXEC);
  FILE *stream = file < 0 ? NULL : fdopen(file, "w");
  assert_non_null(stream);
  (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  return stream;
}

/* Ids that a multiplication by `factor` spreads over a table would bring to the same place. */
static uint64_t inverse_of(uint64_t factor) {
  uint64_t inverse = factor;
  int i;
  for (i = 0; i < 6; i++) inverse *= 2 - factor * inverse;
  return inverse;
}

/* Steps of reading `count` allocations whose ids are `factor` apart. */
static uint64_t steps_of_trace(size_t count, uint64_t factor) {
  FILE *file = new_file();
  uint64_t before;
  size_t i;
  trace t;
  (void)fprintf(file, "gmtrace 1\n");
  for (i = 1; i <= count; i++)
    (void)fprintf(file, "a %llu 512 0 0\n", (unsigned long long)(i * factor));
  assert_int_equal(fflush(file), 0);
  before = step_count;
  assert_true(trace_load(path, &t, error, sizeof error));
  before = step_count - before;
  assert_int_equal(t.op_count, count);
  trace_free(&t);
  (void)fclose(file);
  return before;
}

CASE(a_trace_takes_as_long_as_it_is) {
  static const uint64_t factors[] = {1, 512, (uint64_t)1 << 40, 0x9E3779B97F4A7C15u};
  const uint64_t common = steps_of_trace(2000, 1);
  size_t i;
  need_steps();
  for (i = 0; i < sizeof factors / sizeof *factors; i++) {
    const uint64_t factor = i == 3 ? inverse_of(factors[i]) : factors[i];
    const uint64_t few = steps_of_trace(2000, factor);
    assert_in_range(few, common / 2, 3 * common);
    assert_in_range(steps_of_trace(16000, factor), 4 * few, 12 * few);
  }
}

/* Steps of reading a graph of one operator that reads so many tensors, each twice. */
static uint64_t steps_of_graph(size_t count) {
  FILE *file = new_file();
  uint64_t before;
  size_t i;
  graph g;
  (void)fprintf(file, "gmgraph 1\n");
  for (i = 0; i < count; i++) (void)fprintf(file, "t %zu 512 a\n", i);
  (void)fprintf(file, "o x 1 r");
  for (i = 0; i < 2 * count; i++) (void)fprintf(file, " %zu", i % count);
  (void)fprintf(file, " w 0 0\n");
  assert_int_equal(fflush(file), 0);
  before = step_count;
  assert_true(graph_load(path, &g, error, sizeof error));
  before = step_count - before;
  assert_int_equal(g.ops[0].read_count, count);
  assert_int_equal(g.ops[0].write_count, 1);
  graph_free(&g);
  (void)fclose(file);
  return before;
}

CASE(a_graph_takes_as_long_as_it_is) {
  need_steps();
  assert_in_range(steps_of_graph(4000), 0, 6 * steps_of_graph(1000));
}

/* A file that unpacks to more than may be held is refused by that name; one that fits is read. */
CASE(a_trace_of_any_size_needs_bounded_memory) {
  FILE *file = new_file();
  size_t i;
  trace t;
  (void)fprintf(file, "gmtrace 1\n");
  for (i = 0; i < 32768; i++) (void)fprintf(file, "a 1 512 0 0\nf 1 0\n");
  assert_int_equal(fflush(file), 0);
  assert_true(trace_load(path, &t, error, sizeof error));
  assert_int_equal(t.op_count, 65536);
  trace_free(&t);
  (void)fprintf(file, "a 1 512 0 0\nf 1 0\n");
  assert_int_equal(fflush(file), 0);
  assert_false(trace_load(path, &t, error, sizeof error));
  assert_non_null(strstr(
      error, ":65538: more than 4 MiB would be held (-DLINES_MEMORY_MAX=BYTES allows more)"));
  assert_null(t.ops);
  (void)fclose(file);
}

CASE(a_graph_of_any_size_needs_bounded_memory) {
  FILE *file = new_file();
  size_t i;
  graph g;
  (void)fprintf(file, "gmgraph 1\nt 0 512 p\n");
  for (i = 0; i < 100000; i++) (void)fprintf(file, "o x 1 r 0 w 0\n");
  assert_int_equal(fflush(file), 0);
  assert_false(graph_load(path, &g, error, sizeof error));
  assert_non_null(strstr(error, "LINES_MEMORY_MAX"));
  (void)fclose(file);
}

CASE(lines_may_end_as_on_windows) {
  FILE *file = new_file();
  trace t;
  (void)fprintf(file, "gmtrace 1\r\n# peak_reserved: 4096\r\nm step\r\na 1 512 0 7\r\nf 1 8\r\n");
  assert_int_equal(fflush(file), 0);
  assert_true(trace_load(path, &t, error, sizeof error));
  assert_int_equal(t.op_count, 2);
  assert_int_equal(t.mark_count, 1);
  assert_int_equal(t.ops[1].time_us, 15);
  assert_int_equal(t.recorded_reserved_bytes_peak, 4096);
  trace_free(&t);
  (void)fclose(file);
}

/* ---- Memgraphs ------------------------------------------------------------------------------- */

static gmlake_offload_memgraph_desc letter_desc(const gmlake_offload_graph *g, size_t bytes) {
  gmlake_offload_memgraph_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.graph = g;
  desc.flags = GMLAKE_OFFLOAD_PAPER;
  desc.device_bytes = bytes;
  desc.align_bytes = UNIT;
  desc.tensor_bytes_min = 1;
  return desc;
}

/* Compiles the graph, which is destroyed. */
static uint64_t steps_of_memgraph(gmlake_offload_graph *g,
                                  const gmlake_offload_memgraph_desc *desc) {
  gmlake_offload_memgraph *m;
  uint64_t before = step_count;
  assert_ok(gmlake_offload_memgraph_create(desc, &m));
  before = step_count - before;
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(g);
  return before;
}

static uint64_t steps_of_readers(size_t readers) {
  gmlake_offload_graph *g = new_graph(0);
  gmlake_offload_memgraph_desc desc;
  uint32_t big = made(g, readers * UNIT);
  size_t n, bytes;
  op(g, 1000, NONE, NONE, big);
  for (n = 0; n < readers; n++) op(g, 1000, big, NONE, NONE);
  for (n = 0; n < readers; n++) op(g, 1000, NONE, NONE, tensor(g, UNIT, GMLAKE_OFFLOAD_OUTPUT));
  assert_ok(gmlake_offload_graph_seal(g));
  bytes = info_of(g).peak_bytes / 2 + UNIT;
  desc = letter_desc(g, bytes < info_of(g).op_bytes_max ? info_of(g).op_bytes_max : bytes);
  return steps_of_memgraph(g, &desc);
}

/* Many readers of one tensor, whose memory many others take: edges of each to each. Four times as
   many take 16 times as long, not 64. */
CASE(dense_edges_take_as_long_as_they_are_many) {
  need_steps();
  assert_in_range(steps_of_readers(1600), 0, 20 * steps_of_readers(400));
}

static uint64_t steps_of_holes(size_t count) {
  gmlake_offload_graph *g = new_graph(0);
  gmlake_offload_memgraph_desc desc;
  uint32_t x = NONE, id;
  size_t n;
  random_state = 5;
  for (n = 0; n < count; n++) {
    uint32_t kept = tensor(g, UNIT * (1 + random_below(4000)), GMLAKE_OFFLOAD_OUTPUT);
    uint32_t hole = made(g, UNIT * (1 + random_below(1000)));
    assert_ok(try_op(g, 1000, x, NONE, kept, hole, &id));
    x = kept;
  }
  assert_ok(gmlake_offload_graph_seal(g));
  desc = letter_desc(g, 0);
  return steps_of_memgraph(g, &desc);
}

/* Holes of many sizes between what is kept: eight times the operators, no 64 times the steps. */
CASE(many_holes_take_no_square_of_steps) {
  need_steps();
  assert_in_range(steps_of_holes(8000), 0, 16 * steps_of_holes(1000));
}

static uint64_t steps_of_chain(size_t count) {
  gmlake_offload_graph *g = new_graph(0);
  gmlake_offload_memgraph_desc desc;
  uint32_t x = tensor(g, UNIT, GMLAKE_OFFLOAD_INPUT);
  size_t n;
  for (n = 0; n < count; n++) {
    uint32_t w = n % 2 ? NONE : tensor(g, 4 * UNIT, GMLAKE_OFFLOAD_PERSISTENT), y = made(g, UNIT);
    op(g, 20000, x, w, y);
    x = y;
  }
  assert_ok(gmlake_offload_graph_seal(g));
  desc = letter_desc(g, info_of(g).peak_bytes / 2);
  desc.flags = 0; /* in paper mode each tensor that leaves is looked for among all */
  return steps_of_memgraph(g, &desc);
}

/* A chain: where all that comes before leads to a node, its paths are not looked through. Eight
   times the operators take no more than ten times the steps. */
CASE(a_chain_takes_no_square_of_steps) {
  need_steps();
  assert_in_range(steps_of_chain(32000), 0, 10 * steps_of_chain(4000));
}

/* A graph of several devices in half of what nothing moved would take. */
static uint64_t steps_in_half(gmlake_offload_graph *g, size_t devices) {
  gmlake_offload_memgraph_desc desc;
  assert_non_null(g);
  desc = letter_desc(g, info_of(g).peak_bytes / devices / 2);
  desc.flags = 0;
  return steps_of_memgraph(g, &desc);
}

/* 19,319 operators, and 20,000 of mixed sizes: a thousand million steps, most of them tries for a
   better order, whose number is bounded. */
CASE(large_graphs_are_compiled_soon) {
  need_steps();
  assert_in_range(steps_in_half(graph_make_transformer(4, 420, 512, 1024), 4), 0, 4000000000u);
  assert_in_range(steps_in_half(graph_make_random(1, 20000, 4096, 1), 1), 0, 4000000000u);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

#define MIB2 ((size_t)2 << 20)
#define LAYERS_MOST 1600

static uintptr_t next_address;

static int ranges_reserve(void *user, size_t bytes, void **out_range, void **out_ptr) {
  (void)user;
  *out_range = *out_ptr = (void *)next_address;
  next_address += bytes;
  return 0;
}
static void ranges_release(void *user, void *range, void *stream) {
  (void)user, (void)range, (void)stream;
}
/* A session wants chunks that nobody has, or any. */
static uint32_t next_chunk;
static int ranges_commit(void *user, void *range, size_t bytes, uint32_t *chunks, void *stream) {
  size_t i;
  (void)user, (void)range, (void)stream;
  for (i = 0; i < bytes / MIB2; i++)
    if (chunks[i] == UINT32_MAX) chunks[i] = next_chunk++;
  return 0;
}

static int ranges_discard(void *user, void *range, size_t bytes, void *stream) {
  (void)user, (void)range, (void)bytes, (void)stream;
  return 0;
}

typedef struct training {
  gmlake_offload_backend *mock;
  gmlake_offload_session *session;
  uint32_t layers, weights[LAYERS_MOST], made_by[LAYERS_MOST];
  uint64_t longest; /* steps of a call */
} training;

static char training_stream;

/* The session's thread, whose steps are not those of calls: it works between two of them. */
static void (*asked_run)(void *arg);
static void *asked_arg;

static void do_asked(void) {
  void (*run)(void *arg) = asked_run;
  asked_run = NULL;
  if (run) run(asked_arg);
}
static int later_start(void *user, void (*run)(void *arg), void *arg, void **out_thread) {
  (void)user;
  asked_run = run;
  *out_thread = asked_arg = arg;
  return 0;
}
static void later_join(void *user, void *thread) {
  (void)user, (void)thread;
  do_asked();
}

/* A call has ended that began at so many steps. */
static void note_call(training *t, uint64_t before) {
  if (step_count - before > t->longest) t->longest = step_count - before;
}

static void train_layer(training *t, uint32_t layer, int is_back) {
  gmlake_offload_step step;
  uint32_t reads[2];
  uint64_t before;
  void *ptr;
  do_asked();
  before = step_count;
  memset(&step, 0, sizeof step);
  reads[0] = t->weights[layer];
  reads[1] = t->made_by[is_back || layer == 0 ? layer : layer - 1];
  step.stream = &training_stream;
  step.key = layer + (is_back ? t->layers : 0) + 1;
  step.reads = reads;
  step.read_count = is_back || layer != 0 ? 2 : 1;
  step.writes = reads;
  step.write_count = (size_t)is_back;
  assert_ok(gmlake_offload_session_begin(t->session, &step));
  note_call(t, before);
  before = step_count;
  if (!is_back)
    assert_ok(gmlake_offload_session_alloc(t->session, 2 * MIB2, &training_stream,
                                           &t->made_by[layer], &ptr));
  note_call(t, before);
  assert_ok(gmlake_offload_mock_work(t->mock, &training_stream, 200000, NULL, NULL));
  before = step_count;
  assert_ok(gmlake_offload_session_end(t->session));
  if (is_back)
    assert_ok(gmlake_offload_session_free(t->session, t->made_by[layer], &training_stream));
  note_call(t, before);
  assert_int_equal(t->mock->stream_sync(t->mock->user, &training_stream), 0);
}

/* Steps of three iterations of so many layers, in half of their memory: one is learnt, and two are
   planned. *out_longest: the longest call. */
static uint64_t steps_of_training(uint32_t layers, uint64_t *out_longest) {
  static training t;
  gmlake_offload_mock_desc mock;
  gmlake_offload_memory memory;
  gmlake_offload_session_desc desc;
  gmlake_offload_session_stats stats;
  uint64_t before;
  uint32_t i, iteration;
  void *ptr;
  memset(&t, 0, sizeof t);
  memset(&mock, 0, sizeof mock);
  memset(&memory, 0, sizeof memory);
  memset(&desc, 0, sizeof desc);
  memset(&stats, 0, sizeof stats);
  next_address = (uintptr_t)1 << 40;
  next_chunk = 0;
  mock.bookkeeping_only = 1;
  mock.divisor = 1 << 16;
  assert_ok(gmlake_offload_mock_create(&mock, &t.mock));
  t.mock->thread_start = later_start;
  t.mock->thread_join = later_join;
  memory.struct_bytes = sizeof memory;
  memory.abi_version = 3;
  memory.chunk_bytes = MIB2;
  memory.map_ns = 100000;
  memory.reserve = ranges_reserve;
  memory.release = ranges_release;
  memory.commit = ranges_commit;
  memory.discard = ranges_discard;
  desc.backend = t.mock;
  desc.memory = &memory;
  desc.limit_bytes = layers * 3 / 2 * MIB2;
  assert_ok(gmlake_offload_session_create(&desc, &t.session));
  t.layers = layers;
  before = step_count;
  for (i = 0; i < layers; i++)
    assert_ok(gmlake_offload_session_alloc(t.session, MIB2, &training_stream, &t.weights[i], &ptr));
  for (iteration = 0; iteration < 3; iteration++) {
    uint64_t begun = step_count;
    assert_ok(gmlake_offload_session_mark(t.session));
    note_call(&t, begun);
    for (i = 0; i < layers; i++) train_layer(&t, i, 0);
    for (i = layers; i-- != 0;) train_layer(&t, i, 1);
  }
  before = step_count - before;
  assert_ok(gmlake_offload_session_get_stats(t.session, &stats));
  assert_true(stats.plan_count != 0 && stats.demand_out_count > layers);
  gmlake_offload_session_destroy(t.session);
  gmlake_offload_mock_destroy(t.mock);
  *out_longest = t.longest;
  return before;
}

/* Learning, making tensors leave and planning: twice the steps take little more than twice as long.
   Where a thread plans no call does more than a little for each step of an iteration. */
CASE(a_session_takes_as_long_as_its_program) {
  uint64_t few, many, few_longest, many_longest;
  need_steps();
  few = steps_of_training(LAYERS_MOST / 2, &few_longest);
  many = steps_of_training(LAYERS_MOST, &many_longest);
  assert_true(many < few * 9 / 4);
  assert_true(many_longest < few_longest * 9 / 4);
  assert_true(many_longest < 2 * LAYERS_MOST * (uint64_t)40);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* 10,805 operators, as recorded: 164 million steps. */
CASE(a_large_graph_is_planned_soon) {
  gmlake_offload_planner_desc desc;
  gmlake_offload_job_desc job_desc;
  gmlake_offload_planner *planner;
  gmlake_offload_graph *planned;
  uint64_t steps;
  uint32_t job;
  graph g;
  need_steps();
  memset(&desc, 0, sizeof desc);
  memset(&job_desc, 0, sizeof job_desc);
  desc.overhead_max = .05;
  assert_true(graph_load("bench/graphs/llama-7b-lora-b8-1k.gmgraph.gz", &g, error, sizeof error));
  planned = graph_make(&g, graph_iteration_count(&g) - 1, error, sizeof error);
  assert_non_null(planned);
  graph_free(&g);
  job_desc.graph = planned;
  assert_ok(gmlake_offload_planner_create(&desc, &planner));
  assert_ok(gmlake_offload_add_job(planner, &job_desc, &job));
  steps = step_count;
  assert_ok(gmlake_offload_replan(planner));
  steps = step_count - steps;
  assert_in_range(steps, 0, 800000000);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(planned);
}

int main(void) { return run_cases("steps"); }
