/* usage: test_offload_session [--play LINE] [--trace 1] [--first N] [--count N]
   Sessions of gmlake_offload.h, on the mock: rows (session_rows.h), each of them a line of
   language.h; rows in which every call fails once; random programs, which are told as a line,
   shrunk, where one breaks a rule; and what only C can say. --play plays a line, --first and
   --count random programs. Memory is a lake's, whose mock maps real memory. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLAKE_OFFLOAD_LAKE
#include "gmlake.h"

#include "offload_fixture.h"
#include "session_rows.h"
#include "sessions.h"
#include "shrink.h"

#define CHUNK ((size_t)4096)

/* ---- Rows ------------------------------------------------------------------------------------ */

static void a_row(void **state) { play_row(state, &sessions, NULL); }
static void every_call_fails_once(void **state) { play_row(state, &sessions, play_faults); }

/* ---- Random programs ------------------------------------------------------------------------- */

#define LIVE 24

typedef struct chooser {
  program p;
  uint64_t seed;
  text line;
} chooser;

static void add(chooser *c, const char *format, ...) {
  char words_of_it[160];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(words_of_it, sizeof words_of_it, format, list);
  va_end(list);
  text_add(&c->line, words_of_it, strlen(words_of_it));
}

/* A step of a program that the seed and `at` decide: makes, uses or frees tensors. It is the same
   in each iteration, as far as its tensors live. */
static void choose_step(chooser *c, uint64_t seed, size_t at) {
  const uint64_t x = mix(seed + at * 77);
  const unsigned a = x % LIVE, b = (x >> 8) % LIVE, w = (x >> 16) % LIVE;
  if (x >> 60 < 3) {
    add(c, "-a%u? ", w);
    return;
  }
  if (a != b) add(c, "a%u,", b);
  add(c, "a%u>a%u=%uk/%u ", a, w, (unsigned)((x >> 24) % 32) + 1, (unsigned)at + 100);
}

/* What a program does that is no step. */
static void choose_event(chooser *c, uint64_t x, size_t limit) {
  if (x % 4 == 0)
    add(c, "pin:a%u unpin:a%u ", (unsigned)(x >> 8) % LIVE, (unsigned)(x >> 8) % LIVE);
  if (x % 4 == 1) add(c, "room:%u ", (unsigned)(x >> 16) % 64);
  if (x % 4 == 2) add(c, "limit:%u ", (unsigned)(limit - (x >> 16) % (limit / 8)));
  if (x % 4 == 3) add(c, "view ");
}

/* Without marks its iterations are alike but for the thirteenth. */
static void choose_program(chooser *c, uint64_t seed, int is_unmarked) {
  const size_t limit = 64 + seed % 5 * 16, length = 40 + seed % 60;
  size_t i, n;
  add(c, "{free limit:%zu link:%u jitter:.5", limit, 125000000u * (unsigned)(1 + seed % 9));
  if (seed % 4 == 0) add(c, " map:100us");
  if (seed % 7 < 3) add(c, " host-max:%u", 12 + (unsigned)(seed % 181));
  if (seed % 11 < 3) add(c, " threads:%u", 1 + (unsigned)(seed % 11));
  add(c, "} ");
  for (n = 0; n < (is_unmarked ? 16 : 10); n++) {
    if (!is_unmarked) add(c, "mark ");
    for (i = 0; i < length; i++) {
      choose_step(c, seed, i);
      if (mix(seed ^ (n << 20) ^ i) % 97 == 0 && (n == 12 || !is_unmarked))
        choose_step(c, seed + 1, i);
      if (mix(seed ^ (n << 21) ^ i) % 53 == 0) choose_event(c, mix(seed + n * 99 + i), limit);
      if (seed % 3 == 0) add(c, "spend:50 ");
    }
    add(c, "limit:%zu ", limit);
    if (seed % 2 == 0) add(c, "sync ");
  }
}

/* An iteration of so many layers that are regions. */
static void choose_regions_turn(chooser *c, uint64_t x, unsigned layers, unsigned size) {
  char count[8], bytes[8], twice[8], turn[2000];
  (void)snprintf(count, sizeof count, "%u", layers);
  (void)snprintf(bytes, sizeof bytes, "%u", size);
  (void)snprintf(twice, sizeof twice, "%u", 2 * size);
  (void)snprintf(turn, sizeof turn, REGIONS_OF("%s", "%s", "%s", "%s", "%s", "%s"), count,
                 x >> 40 & 3 ? "" : ">/209 ", bytes, twice, bytes, count, bytes, count, bytes,
                 x >> 8 & 3 ? "200" : "208", twice, x >> 40 & 3 ? "" : "kept~:>/207 ", bytes, bytes,
                 count);
  text_add(&c->line, turn, strlen(turn));
}

/* Regions that match or not; sizes, depths and limits change at any time, and sizes also from one
   iteration to the next. */
static void choose_regions(chooser *c, uint64_t seed) {
  uint64_t x = mix(seed);
  const unsigned most = 60 + (unsigned)(x % 100);
  unsigned phase, size = 4;
  add(c, "{limit:%u link:%u%s%s} " WEIGHTS_8, most, 31250000u * (unsigned)(1 + x / 128 % 8),
      x >> 12 & 1 ? " told" : "", x >> 13 & 3 ? "" : " threads:2");
  for (phase = 0; phase < 6; phase++) {
    unsigned layers;
    x = mix(x);
    layers = 2 + (unsigned)(x % 7);
    if ((x >> 16 & 3) == 0) size = 1 + x % 5;
    if ((x >> 18 & 3) == 0) add(c, "limit:%u ", most - (unsigned)(x % 20));
    add(c, "[%u ", 1 + (unsigned)(x >> 20 & 15));
    choose_regions_turn(c, x, layers, size);
    if ((x >> 24 & 3) == 0) choose_regions_turn(c, x, layers, 1 + (unsigned)(x >> 26) % 5);
    add(c, "] ");
  }
}

enum { MARKED, UNMARKED_PROGRAM, WITH_REGIONS, KINDS };

/* NULL, or the rule that it breaks; s.stats has its figures. */
static const char *play_chosen(int kind, uint64_t seed) {
  static chooser c;
  const char *rule;
  program_free(&c.p);
  c.line.count = 0;
  c.p.unit = CHUNK;
  if (kind == WITH_REGIONS)
    choose_regions(&c, seed);
  else
    choose_program(&c, seed, kind == UNMARKED_PROGRAM);
  rule = program_read(&c.p, c.line.chars);
  if (!rule) rule = play_and_shrink(&c.p, &sessions);
  if (rule) (void)fprintf(stderr, "kind %d, seed %llu\n", kind, (unsigned long long)seed);
  return rule;
}

CASE(random_programs) {
  uint64_t seed;
  for (seed = 1; seed <= part_of(120); seed++) assert_null(play_chosen(MARKED, seed));
}

CASE(random_programs_without_marks) {
  uint64_t seed, found = 0, planned = 0, drifted = 0, count = part_of(60);
  for (seed = 1; seed <= count; seed++) {
    assert_null(play_chosen(UNMARKED_PROGRAM, seed));
    found += s.stats.iteration_count != 0;
    planned += s.stats.plan_count != 0;
    drifted += s.stats.drift_count != 0;
  }
  print_message("%u found, %u planned, %u drifted of %u\n", (unsigned)found, (unsigned)planned,
                (unsigned)drifted, (unsigned)count);
  assert_true(found >= count * 4 / 5 && planned >= count * 2 / 5 && drifted >= count / 4);
  /* A plan from within an iteration, whose steps take no time yet: the last one is its end. */
  assert_null(play_chosen(UNMARKED_PROGRAM, 100352));
}

CASE(regions_at_random) {
  uint64_t seed;
  size_t kept = 0;
  for (seed = 1; seed <= 2 * part_of(40); seed++) {
    assert_null(play_chosen(WITH_REGIONS, seed));
    kept += (size_t)s.stats.kept_region_count;
  }
  assert_true(kept > 5);
}

/* ---- What lines cannot say ------------------------------------------------------------------- */

static size_t divided_by; /* 0: the mock has no divisor */

/* Memory as the options say, without a session. A rule that breaks ends the case. */
static void with_memory(size_t limit, void (*test)(void)) {
  static program p;
  p.unit = CHUNK;
  memset(&player, 0, sizeof player);
  player.program = &p;
  player.options[OPT_LIMIT] = (double)limit;
  player.options[OPT_LINK] = LINK;
  player.options[OPT_DIVISOR] = (double)divided_by;
  host_bytes = 0;
  sessions.begin();
  if (setjmp(verdict.out)) fail_msg("%s", verdict.rule);
  open_memory();
  test();
  gmlake_offload_mock_get_census(s.mock, &s.census);
  assert_int_equal(s.session_table.stream_sync(s.session_table.user, &program_stream), 0);
  close_lake();
  gmlake_offload_mock_destroy(s.mock);
  assert_int_equal(host_bytes, 0);
}

typedef struct in_memory {
  void (*test)(void);
  size_t limit;
} in_memory;

static void test_in_memory(void **state) {
  const in_memory *of = (const in_memory *)*state;
  with_memory(of->limit, of->test);
}

#define IN_MEMORY(name, limit) CASE_OF(in_memory, test_in_memory, (void), name, limit)

static uint64_t mock_now(void) {
  uint64_t ns;
  assert_int_equal(s.mock->now(s.mock->user, &ns), 0);
  return ns;
}

static int commit(void *range, void *stream) {
  uint32_t any = NONE;
  return s.memory.commit(s.memory.user, range, CHUNK, &any, stream);
}
static void discard(void *range, void *stream) {
  assert_int_equal(s.memory.discard(s.memory.user, range, CHUNK, stream), 0);
}

/* What a range mapped is unmapped when the host knows that its last use has ended: it does not wait
   for what the stream was given since. */
IN_MEMORY(only_the_last_use_is_waited_for, 4 * CHUNK) {
  void *ranges[3], *ptr, *stream = &program_stream;
  uint64_t begin;
  size_t i;
  for (i = 0; i < 3; i++)
    assert_int_equal(s.memory.reserve(s.memory.user, CHUNK, &ranges[i], &ptr), 0);
  assert_int_equal(commit(ranges[0], stream), 0);
  assert_ok(gmlake_offload_mock_work(s.mock, stream, 1000 * US, NULL, NULL));
  discard(ranges[0], stream);
  assert_int_equal(commit(ranges[1], stream), 0); /* that chunk */
  assert_int_equal(commit(ranges[2], stream), 0);
  assert_ok(gmlake_offload_mock_work(s.mock, stream, 100000 * US, NULL, NULL));
  discard(ranges[2], stream);
  begin = mock_now();
  assert_int_equal(commit(ranges[0], stream), 0);
  assert_in_range(mock_now() - begin, 1, 2000 * US);
  assert_int_equal(gmlake_check(s.lake), GMLAKE_OK);
  for (i = 0; i < 2; i++) discard(ranges[i], stream);
  for (i = 0; i < 3; i++) s.memory.release(s.memory.user, ranges[i], stream);
}

/* An iteration may have many steps: the row of their prints grows, and in the end goes around. */
CASE(periods) {
  gmlo_detector r;
  uint64_t i, period;
  host_bytes = 0;
  memset(&r, 0, sizeof r);
  for (i = 0; i < 3000; i++) { /* 1,000 steps, of which each but the last is there three times */
    period = gmlo_detector_note(&r, &counted, i % 1000 == 999 ? 7 : mix(i % 1000 % 333), 1);
    if (i < 665) assert_int_equal(period, 0);
    if (i >= 665 && i < 999) assert_int_equal(period, 333);
    if (i == 999 || i == 1999) assert_int_equal(period, 0);
    if (i >= 2998) assert_int_equal(period, 1000);
  }
  for (; i < 3100; i++) assert_int_equal(gmlo_detector_note(&r, &counted, mix(~i), 1), 0);
  host_fail_in = 1;
  for (; i < 2 * GMLO_PAST_MAX; i++) (void)gmlo_detector_note(&r, &counted, mix(~i), 1);
  assert_int_equal(r.capacity, GMLO_PAST_MAX);
  for (i = 0; i < 40; i++) period = gmlo_detector_note(&r, &counted, i % 2, 1);
  assert_int_equal(period, 2);
  for (i = 0; i < 40; i++) period = gmlo_detector_note(&r, &counted, i % 2, 0);
  assert_int_equal(period, 2);
  for (i = 0; i < 40; i++) period = gmlo_detector_note(&r, &counted, 5 + i % 2, 0);
  assert_int_equal(period, 0); /* they name nothing */
  gmlo_free(&counted, r.past);
  assert_int_equal(host_bytes, 0);
}

/* What is not used again counts by its death: until then alone its memory would serve others. */
CASE(next_uses_and_deaths) {
  gmlo_recording l;
  uint32_t used, ends, stays;
  uint64_t step;
  memset(&l, 0, sizeof l);
  l.host = counted;
  for (step = 0; step < 6; step++) gmlo_recording_add_step(&l, step);
  used = gmlo_recording_add_slot(&l, 1, 1, GMLAKE_OFFLOAD_NONE);
  ends = gmlo_recording_add_slot(&l, 1, 1, 0);
  stays = gmlo_recording_add_slot(&l, 1, 1, 0);
  l.slots[ends].freed = 4;
  gmlo_recording_name(&l, used, GMLO_READS); /* in the last step */
  assert_true(gmlo_recording_close(&l));
  assert_int_equal(gmlo_recording_expect(&l, used, 2), 3);
  assert_int_equal(gmlo_recording_expect(&l, ends, 1), 3);
  assert_int_equal(gmlo_recording_expect(&l, ends, 5), 0);
  assert_int_equal(gmlo_recording_expect(&l, stays, 1), 5);
  gmlo_recording_free(&l);
  assert_int_equal(host_bytes, 0);
}

/* ---- What planning costs ---- */

#define PLANNED_MOST 2000 /* layers */

static uint32_t layers;
static int is_tight; /* the limit holds from the begin on */
static gmlake_offload_session_stats planned;

/* Whether tensor a leaves before b, or there is no b: the schedule lets it go, its next use is
   farther away, or it is larger. */
static int leaves_before(gmlake_offload_session *session, uint32_t a, uint32_t b) {
  const gmlo_session_tensor *x = &session->tensors[a], *y = &session->tensors[b];
  size_t x_way, y_way;
  if (b == GMLAKE_OFFLOAD_NONE) return 1;
  if (x->is_released != y->is_released) return x->is_released;
  x_way = gmlo_session_expect(session, x);
  y_way = gmlo_session_expect(session, y);
  return x_way > y_way || (x_way == y_way && x->bytes > y->bytes);
}

/* Who leaves next and what may not leave, found by looking at all tensors. */
static void check_ranks(gmlake_offload_session *session) {
  uint32_t victim = GMLAKE_OFFLOAD_NONE, clean = victim, i;
  size_t stuck = 0;
  for (i = 0; i < session->tensor_count; i++) {
    const gmlo_session_tensor *g = &session->tensors[i];
    int may_leave = gmlo_session_may_leave(session, g);
    if (g->lives && !may_leave && (g->has_memory || gmlo_session_is_locked(session, g)))
      stuck += g->bytes;
    if (may_leave && leaves_before(session, i, victim)) victim = i;
    if (may_leave && g->is_clean && leaves_before(session, i, clean)) clean = i;
  }
  assert_int_equal(session->stuck_bytes, stuck);
  assert_int_equal(gmlo_session_victim(session, 0), victim);
  assert_int_equal(gmlo_session_victim(session, 1), clean);
}

/* A call has ended: it did no more work than the statistics say of one. */
static void note_work(gmlake_offload_session *session) {
  uint64_t before = planned.plan_work;
  if (layers < 100) check_ranks(session);
  planned.struct_bytes = 0;
  assert_ok(gmlake_offload_session_get_stats(session, &planned));
  assert_true(planned.plan_work - before <= planned.plan_work_max);
}

/* A step of a layer; forward it makes an activation, backward that is freed. */
static void layer_step(gmlake_offload_session *session, uint32_t layer, int is_back,
                       const uint32_t *weights, uint32_t *made_by) {
  gmlake_offload_step step;
  uint32_t reads[2];
  void *ptr;
  memset(&step, 0, sizeof step);
  reads[0] = weights[layer];
  reads[1] = made_by[is_back || layer == 0 ? layer : layer - 1];
  step.stream = &program_stream;
  step.key = layer + (is_back ? layers : 0) + 1;
  step.reads = reads;
  step.read_count = is_back || layer != 0 ? 2 : 1;
  step.writes = &weights[layer];
  step.write_count = (size_t)is_back;
  assert_ok(gmlake_offload_session_begin(session, &step));
  note_work(session);
  if (!is_back)
    assert_ok(
        gmlake_offload_session_alloc(session, 2 * CHUNK, &program_stream, &made_by[layer], &ptr));
  assert_ok(gmlake_offload_mock_work(s.mock, &program_stream, 100 * US, NULL, NULL));
  assert_ok(gmlake_offload_session_end(session));
  if (is_back) assert_ok(gmlake_offload_session_free(session, made_by[layer], &program_stream));
}

/* A thread is asked to stop when it asks for host memory so many times more. */
static size_t stops_in, calls_since; /* since then it has asked so often */
static int stops;

static void *stopping_malloc(void *user, size_t bytes) {
  calls_since += (size_t)stops;
  if (stops_in != 0 && --stops_in == 0) stops = 1;
  return host_malloc(user, bytes);
}

/* Wherever planning is when it is to end, it ends soon, and nothing is left. */
static void check_given_up(gmlake_offload_session *session) {
  gmlake_offload_planner_desc desc = gmlo_session_planner(session);
  gmlo_recording *l = gmlo_session_known(session);
  size_t bytes = host_bytes, after, all = SIZE_MAX;
  const gmlake_offload_host host = l->host;
  gmlo_making m;
  int done;
  l->host = desc.host = counted;
  l->host.malloc_fn = desc.host.malloc_fn = stopping_malloc;
  for (after = 0; after < all; after += 1 + after / 8) {
    const size_t before = host_calls;
    stops_in = after;
    stops = 0;
    calls_since = 0;
    gmlo_making_begin(&m, l, &desc, &session->memory, NULL, &stops);
    done = gmlo_making_run(&m);
    assert_int_equal(done, after == 0 || m.has_best);
    assert_in_range(calls_since, 0, 64);
    if (after == 0) all = host_calls - before;
    gmlo_making_leave(&m);
    assert_int_equal(host_bytes, bytes);
  }
  l->host = host;
}

static gmlake_offload_session *new_session(size_t limit_bytes, double in_bytes_per_s) {
  gmlake_offload_session_desc desc;
  gmlake_offload_session *session;
  memset(&desc, 0, sizeof desc);
  desc.backend = &s.session_table;
  desc.memory = &s.memory;
  desc.limit_bytes = limit_bytes;
  desc.tensor_bytes_min = 1;
  desc.in_bytes_per_s = in_bytes_per_s;
  assert_ok(gmlake_offload_session_create(&desc, &session));
  return session;
}

/* Learns without a limit; then plans for half of the memory. */
static void train_layers(void) {
  static uint32_t weights[PLANNED_MOST], made_by[PLANNED_MOST];
  gmlake_offload_session *session = new_session(is_tight ? layers * 3 / 2 * CHUNK : 0, 0);
  uint32_t i, iteration;
  void *ptr;
  memset(&planned, 0, sizeof planned);
  for (i = 0; i < layers; i++)
    assert_ok(gmlake_offload_session_alloc(session, CHUNK, &program_stream, &weights[i], &ptr));
  for (iteration = 5; iteration < 10; iteration++) {
    assert_ok(gmlake_offload_session_mark(session));
    note_work(session);
    for (i = 0; i < layers; i++) layer_step(session, i, 0, weights, made_by);
    for (i = layers; i-- != 0;) {
      if (iteration == 7 && i == 0)
        assert_ok(gmlake_offload_session_set_limit(session, layers * 3 / 2 * CHUNK));
      layer_step(session, i, 1, weights, made_by);
    }
    assert_int_equal(s.session_table.stream_sync(s.session_table.user, &program_stream), 0);
  }
  assert_true(planned.plan_count != 0 && planned.planned_bytes <= layers * 3 / 2 * CHUNK);
  if (layers < 100) check_given_up(session);
  gmlake_offload_session_destroy(session);
}

/* Twice the steps take little more than twice the work. */
CASE(planning_is_bounded) {
  const unsigned most = test_part() == 1 ? PLANNED_MOST : PLANNED_MOST / 2;
  uint64_t work, plans, before = 0;
  for (layers = most / 4; layers <= most; layers *= 2) {
    with_memory(0, train_layers);
    plans = planned.plan_count;
    work = planned.plan_work / plans;
    if (is_traced)
      (void)printf("%u steps: %llu plans, %llu each\n", 2 * layers, (unsigned long long)plans,
                   (unsigned long long)work);
    if (before != 0) assert_true(work < 3 * before);
    assert_true(work < 10000 * (uint64_t)layers);
    assert_true(work > 100 * (uint64_t)layers);
    before = work;
  }
}

/* Of all tensors that may leave the one whose next use is farthest away does. */
CASE(the_farthest_next_use_leaves) {
  is_tight = 1;
  for (layers = 8; layers < 100; layers *= 2) {
    with_memory(0, train_layers);
    assert_true(planned.demand_out_count > layers);
  }
  is_tight = 0;
}

/* Where no idle range has all its chunks, and no more addresses are to be had, one is taken that
   maps the fewest anew: the second of three. */
CASE(the_range_that_lacks_the_fewest_chunks) {
  uint32_t ids[3], holder;
  gmlo_space t;
  size_t i;
  (void)state;
  gmlo_space_init(&t, &counted, CHUNK, 1);
  for (i = 0; i < 3; i++) {
    ids[i] = gmlo_space_add(&t, 2 * CHUNK);
    t.ranges[ids[i]].used = 2 * CHUNK;
    t.ranges[ids[i]].chunks[0] = (uint32_t)(2 * i);
    t.ranges[ids[i]].chunks[1] = (uint32_t)(2 * i + 1);
    gmlo_space_hold(&t, ids[i], 1);
    gmlo_space_hold(&t, ids[i], 0);
  }
  holder = gmlo_space_add(&t, 5 * CHUNK);
  t.ranges[holder].used = 5 * CHUNK;
  for (i = 0; i < 5; i++) t.ranges[holder].chunks[i] = (uint32_t)(i < 3 ? i : i + 1);
  gmlo_space_lift(&t, holder, 0);
  gmlo_space_hold(&t, holder, 1);
  assert_int_equal(gmlo_space_idle(&t, 2 * CHUNK, GMLAKE_OFFLOAD_NONE, 0), ids[1]);
  assert_int_equal(gmlo_space_wish(&t, ids[1]), 1);
  gmlo_space_leave(&t);
}

/* A chunk whose number was refused is nobody's, and free once. */
CASE(a_refused_number) {
  gmlo_space t;
  uint32_t a, b;
  gmlo_space_init(&t, &counted, CHUNK, 1);
  a = gmlo_space_add(&t, CHUNK);
  b = gmlo_space_add(&t, CHUNK);
  t.ranges[a].used = t.ranges[b].used = CHUNK;
  *t.ranges[a].chunks = 20;
  *t.ranges[b].chunks = 30;
  host_fail_in = 1;
  gmlo_space_hold(&t, a, 1);
  gmlo_space_hold(&t, b, 1); /* now there is room for number 20, too */
  gmlo_space_hold(&t, a, 0);
  assert_int_equal(t.free_count, 0);
  gmlo_space_hold(&t, a, 1);
  gmlo_space_hold(&t, a, 0);
  assert_int_equal(t.free_count, 1);
  assert_true(t.oldest == 20 && t.newest == 20);
  gmlo_space_leave(&t);
}

/* A tensor that comes back waits for its chunks while others have them, half of the way to its use,
   or for as long as its copy has time; one that is used soon does not wait. */
IN_MEMORY(tensors_wait_for_their_chunks, 64 * CHUNK) {
  gmlake_offload_session *session;
  gmlo_session_tensor *g;
  gmlo_range *range;
  gmlo_late late;
  uint32_t tensor, other;
  size_t way;
  void *ptr;
  memset(&late, 0, sizeof late);
  s.memory.map_ns = 100000;
  session = new_session(0, 1e9 * CHUNK); /* a chunk takes 1 ns */
  assert_ok(gmlake_offload_session_alloc(session, CHUNK, &program_stream, &tensor, &ptr));
  assert_ok(gmlake_offload_session_alloc(session, CHUNK, &program_stream, &other, &ptr));
  g = &session->tensors[tensor];
  range = &session->space.ranges[g->range];
  session->step = 1000;
  g->step = 900; /* no iteration is known: the next use is as far as the last one */
  way = gmlo_session_expect(session, g);
  assert_true(way > 90 && way < SIZE_MAX);
  assert_int_equal(gmlo_session_wait_until(session, g), 0); /* there is no schedule */
  session->schedule.step_count = 100;
  session->schedule.step_ns = 100 * 100;
  assert_int_equal(gmlo_session_wait_until(session, g), 1000 + way / 2);
  session->desc.in_bytes_per_s = 1e7 * CHUNK; /* 100 ns: a step; and so many are left */
  assert_int_equal(gmlo_session_wait_until(session, g), 1000 + way / 2);
  session->desc.in_bytes_per_s = 1e6 * CHUNK;
  assert_int_equal(gmlo_session_wait_until(session, g), 1000 + way - 10 * GMLO_COPIES_LEFT);
  session->desc.in_bytes_per_s = 5e5 * CHUNK;
  assert_int_equal(gmlo_session_wait_until(session, g), 0);
  late.tensor = tensor;
  late.until = 1001;
  session->has_schedule = 1;
  assert_true(gmlo_session_is_planned(session));
  g->has_memory = 0;
  assert_true(session->space.map_ns != 0);
  gmlo_space_hold(&session->space, g->range, 0);
  assert_false(gmlo_session_waits(session, &late)); /* nobody has its chunk */
  range->chunks[0] = session->space.ranges[session->tensors[other].range].chunks[0];
  assert_true(gmlo_session_waits(session, &late));
  late.until = 1000;
  assert_false(gmlo_session_waits(session, &late));
  late.until = 1001;
  session->space.ranges[session->tensors[other].range].is_released = 1;
  assert_false(gmlo_session_waits(session, &late)); /* it can be had */
  session->space.ranges[session->tensors[other].range].is_released = 0;
  g->has_memory = 1;
  assert_false(gmlo_session_waits(session, &late));
  session->has_schedule = 0;
  session->schedule.step_count = 0;
  gmlake_offload_session_destroy(session);
}

/* Tensors of many sizes that live by turns: ranges end at so many times the limit. */
IN_MEMORY(addresses_are_bounded, 0) {
  enum { LIMIT = 40, TENSORS_MOST = 4 };
  gmlake_offload_session *session;
  uint32_t tensors[TENSORS_MOST];
  unsigned i;
  void *ptr;
  s.memory.map_ns = 100000;
  session = new_session(LIMIT * CHUNK, 0);
  random_state = 3;
  for (i = 0; i < 4000; i++) {
    size_t chunks = 1 + random_below(LIMIT / TENSORS_MOST);
    if (i >= TENSORS_MOST)
      assert_ok(gmlake_offload_session_free(session, tensors[i % TENSORS_MOST], &program_stream));
    assert_ok(gmlake_offload_session_alloc(session, chunks * CHUNK, &program_stream,
                                           &tensors[i % TENSORS_MOST], &ptr));
  }
  assert_in_range(session->space.bytes, 0, (GMLO_ADDRESSES + 1) * LIMIT * CHUNK);
  gmlake_offload_session_destroy(session);
}

/* An iteration whose last copy goes on behind its last step: it is not over before. */
IN_MEMORY(the_last_copy_is_waited_for, 0) {
  const size_t bytes = 2 * GMLO_MEASURED_BYTES;
  gmlake_offload_session *session = new_session(0, 0);
  gmlake_offload_step step;
  uint32_t tensor;
  size_t room;
  void *ptr;
  memset(&step, 0, sizeof step);
  assert_ok(gmlake_offload_session_mark(session));
  assert_ok(gmlake_offload_session_alloc(session, bytes, &program_stream, &tensor, &ptr));
  step.stream = &program_stream;
  step.writes = &tensor;
  step.write_count = 1;
  assert_ok(gmlake_offload_session_begin(session, &step));
  assert_ok(gmlake_offload_session_end(session));
  assert_ok(gmlake_offload_session_make_room(session, bytes, &room));
  assert_int_equal(room, bytes);
  assert_ok(gmlake_offload_session_mark(session));
  assert_int_equal(s.session_table.stream_sync(s.session_table.user, &program_stream), 0);
  assert_false(gmlo_session_is_over(session));
  assert_int_equal(s.session_table.stream_sync(s.session_table.user, s.session_table.out_stream),
                   0);
  assert_true(gmlo_session_is_over(session));
  gmlake_offload_session_destroy(session);
}

/* The time of a step is from the end of the last one, with what the device waits for the host; but
   behind one of another stream it is from its own begin. */
IN_MEMORY(times_of_steps, 0) {
  static const unsigned spent[] = {0, 1500, 500, 600}, took[] = {1000, 100, 200, 700},
                        counted[] = {1000, 100, 200, 700 + 400}; /* us */
  gmlake_offload_session *session = new_session(0, 0);
  gmlake_offload_step step;
  char other;
  size_t i;
  memset(&step, 0, sizeof step);
  session->is_delayed = 1; /* as if it had mapped a chunk: that is of the first step alone */
  for (i = 0; i < 12; i++) {
    if (i % 4 == 0) {
      assert_int_equal(s.session_table.stream_sync(s.session_table.user, &program_stream), 0);
      assert_ok(gmlake_offload_session_mark(session));
    }
    gmlake_offload_mock_spend(s.mock, spent[i % 4] * 1000);
    step.stream = i % 4 == 1 ? &other : &program_stream;
    step.key = i % 4;
    assert_ok(gmlake_offload_session_begin(session, &step));
    assert_ok(gmlake_offload_mock_work(s.mock, step.stream, took[i % 4] * 1000, NULL, NULL));
    assert_ok(gmlake_offload_session_end(session));
  }
  for (i = 0; i < 4; i++)
    assert_int_equal(session->recordings[session->known].steps[i].time_ns, counted[i] * 1000);
  gmlake_offload_session_destroy(session);
}

CASE(plans_are_given_up_at_once) {
  layers = 32;
  with_memory(0, train_layers);
}

/* ---- Wrong arguments ---- */

static void wrong_descriptions(gmlake_offload_session_desc *desc) {
  gmlake_offload_session *session;
  assert_error(gmlake_offload_session_create(NULL, &session), INVALID_ARGUMENT);
  assert_null(session);
  assert_error(gmlake_offload_session_create(desc, &session), INVALID_ARGUMENT);
  desc->backend = &s.session_table;
  desc->memory = &s.memory;
  desc->flags = 1u << 30;
  assert_error(gmlake_offload_session_create(desc, &session), INVALID_ARGUMENT);
  desc->flags = 0;
  desc->in_bytes_per_s = -1;
  assert_error(gmlake_offload_session_create(desc, &session), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_create(desc, NULL), INVALID_ARGUMENT);
  desc->in_bytes_per_s = 0;
}

static void wrong_arguments_of(gmlake_offload_session *session) {
  gmlake_offload_session_stats stats;
  gmlake_offload_session_plan *plan = NULL;
  gmlake_offload_step step;
  uint64_t number;
  uint32_t id = 7;
  size_t offset;
  int is_kept;
  void *ptr;
  memset(&step, 0, sizeof step);
  assert_error(gmlake_offload_session_end(session), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_begin(session, NULL), INVALID_ARGUMENT);
  step.stream = s.session_table.out_stream;
  assert_error(gmlake_offload_session_begin(session, &step), INVALID_ARGUMENT);
  step.stream = s.session_table.in_stream;
  assert_error(gmlake_offload_session_begin(session, &step), INVALID_ARGUMENT);
  step.stream = NULL;
  step.reads = &id;
  step.read_count = 1;
  assert_error(gmlake_offload_session_begin(session, &step), UNKNOWN_ID);
  step.reads = NULL;
  assert_error(gmlake_offload_session_begin(session, &step), INVALID_ARGUMENT);
  step.read_count = 0;
  assert_ok(gmlake_offload_session_begin(session, &step));
  assert_error(gmlake_offload_session_begin(session, &step), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_mark(session), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_hold(session, 1), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_region(session, &number, &is_kept), INVALID_ARGUMENT);
  assert_ok(gmlake_offload_session_end(session));
  assert_ok(gmlake_offload_session_region(session, &number, &is_kept));
  assert_ok(gmlake_offload_session_begin(session, &step));
  assert_error(gmlake_offload_session_region_end(session, 0), INVALID_ARGUMENT);
  assert_ok(gmlake_offload_session_end(session));
  assert_ok(gmlake_offload_session_region_end(session, 0));
  assert_ok(gmlake_offload_session_begin(session, &step));
  assert_error(gmlake_offload_session_recompute(session, number), INVALID_ARGUMENT);
  assert_ok(gmlake_offload_session_end(session));
  assert_error(gmlake_offload_session_free(session, 7, NULL), UNKNOWN_ID);
  assert_error(gmlake_offload_session_pin(session, 7, NULL), UNKNOWN_ID);
  assert_error(gmlake_offload_session_alloc(session, SIZE_MAX, NULL, &id, &ptr), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_alloc(session, 1, NULL, NULL, &ptr), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_find(session, &s, &id, &offset), UNKNOWN_ID);
  assert_error(gmlake_offload_session_get_stats(session, NULL), INVALID_ARGUMENT);
  stats.struct_bytes = 3;
  assert_error(gmlake_offload_session_get_stats(session, &stats), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_take_plan(session, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_take_plan(NULL, &plan), INVALID_ARGUMENT);
  session->is_busy = 1; /* another call is under way */
  assert_error(gmlake_offload_session_take_plan(session, &plan), INVALID_ARGUMENT);
  session->is_busy = 0;
  assert_error(gmlake_offload_session_take_plan(session, &plan), NOT_SEALED);
  assert_null(plan);
  gmlake_offload_session_plan_destroy(NULL);
  assert_error(gmlake_offload_session_region(session, NULL, &is_kept), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_region(session, &number, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_region(NULL, &number, &is_kept), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_recompute(session, 0), UNKNOWN_ID);
}

/* With a divisor an allocation has so much less memory: pieces of pinned memory lie in it. */
static void use_divided_memory(void) {
  gmlake_offload_session_desc desc;
  gmlake_offload_session *session;
  uint32_t ids[8];
  size_t i, pieces = 0;
  void *ptr;
  memset(&desc, 0, sizeof desc);
  desc.backend = s.mock;
  desc.memory = &s.memory;
  desc.host = counted;
  desc.limit_bytes = 4 * CHUNK;
  desc.tensor_bytes_min = 1;
  assert_ok(gmlake_offload_session_create(&desc, &session));
  for (i = 0; i < 8; i++)
    assert_ok(gmlake_offload_session_alloc(session, 2 * CHUNK, NULL, &ids[i], &ptr));
  for (i = 0; i < session->piece_count; i += pieces + 1) { /* of each slab */
    const char *first = session->pieces[i].ptr;
    size_t real;
    for (pieces = 0; session->pieces[i + pieces].ptr != NULL; pieces++) {
    }
    real = pieces * CHUNK / s.mock->divisor;
    if (real < GMLO_REAL_MIN) real = GMLO_REAL_MIN;
    assert_true(session->pieces[i + pieces - 1].ptr + GMLO_REAL_MIN <= first + real);
  }
  assert_true(pieces != 0);
  gmlake_offload_session_destroy(session);
}

CASE(pinned_memory_is_divided) {
  size_t divisor;
  for (divisor = 1; divisor <= 4096; divisor *= 64) {
    divided_by = divisor;
    with_memory(0, use_divided_memory);
  }
  divided_by = 0;
}

IN_MEMORY(wrong_arguments, 0) {
  gmlake_offload_session_desc desc;
  gmlake_offload_session *session;
  memset(&desc, 0, sizeof desc);
  wrong_descriptions(&desc);
  assert_ok(gmlake_offload_session_create(&desc, &session));
  wrong_arguments_of(session);
  gmlake_offload_session_destroy(session);
}

/* ---- Main ------------------------------------------------------------------------------------ */

static int play_random(uint64_t first, uint64_t count) {
  uint64_t seed;
  int kind;
  for (seed = first; seed < first + count; seed++)
    for (kind = 0; kind < KINDS; kind++)
      if (play_chosen(kind, seed)) return 1;
  return 0;
}

int main(int argc, char **argv) {
  const char *wanted = NULL;
  uint64_t first = 0, count = 1;
  size_t i;
  int n;
  for (n = 1; n + 1 < argc; n += 2) {
    const char *value = argv[n + 1];
    if (strcmp(argv[n], "--play") == 0) wanted = value;
    if (strcmp(argv[n], "--trace") == 0) is_traced = atoi(value);
    if (strcmp(argv[n], "--first") == 0) first = strtoull(value, NULL, 10);
    if (strcmp(argv[n], "--count") == 0) count = strtoull(value, NULL, 10);
  }
  if (wanted) {
    const char *rule = play_line(wanted, &sessions, NULL);
    (void)printf("%s\n", rule ? rule : "nothing is found");
    return rule != NULL;
  }
  if (first) return play_random(first, count);
  for (i = 0; i < SESSION_ROWS; i++) add_case(session_rows[i].name, a_row, &session_rows[i]);
  for (i = 0; i < FAULT_ROWS; i++)
    add_case(fault_rows[i].name, every_call_fails_once, &fault_rows[i]);
  return run_cases("sessions");
}
