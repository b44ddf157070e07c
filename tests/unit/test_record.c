/* examples/record.h: a recording of a replayed trace is that trace; threads leave a valid one; what
   is not to be recorded is not; a child of fork and a second process leave it alone; failures are
   reported. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "cases.h"
#include "examples/record.h"
#include "patience.h"
#include "trace.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define THREADS 4
#define SHELF 64
#define ROUNDS 5000

#define assert_ok(call) assert_int_equal(call, GMLAKE_OK)

static struct fixture {
  char dir[1024], path[1100];
  gmlake_recorder *recorder;
  gmlake_backend *mock;
  gmlake *lake;
  unsigned flags;        /* of the lakes that are opened */
  pthread_mutex_t mutex; /* guards the shelf */
  void *shelf[SHELF];    /* blocks that any thread may free */
} f;

static int set_up(void **state) {
  const char *const parent = getenv("TMPDIR");
  (void)state;
  memset(&f, 0, sizeof f);
  snprintf(f.dir, sizeof f.dir, "%s/record.XXXXXX", parent ? parent : "/tmp");
  if (!mkdtemp(f.dir)) return -1;
  snprintf(f.path, sizeof f.path, "%s/run.gmtrace", f.dir);
  return pthread_mutex_init(&f.mutex, NULL);
}

static int tear_down(void **state) {
  (void)state;
  (void)pthread_mutex_destroy(&f.mutex);
  (void)unlink(f.path); /* not every case makes one */
  return rmdir(f.dir);
}

static void open_lake(const char *path, size_t capacity_bytes) {
  gmlake_mock_desc mock;
  gmlake_desc desc;
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.capacity_bytes = capacity_bytes;
  mock.bookkeeping_only = 1;
  assert_ok(gmlake_mock_create(&mock, &f.mock));
  f.recorder = gmlake_recorder_open(path);
  assert_non_null(f.recorder);
  f.recorder->poll_us = 0;                     /* else what is recorded would depend on the clock */
  gmlake_recorder_set_sampling(f.recorder, 0); /* and on how long calls take */
  desc.backend = f.mock;
  desc.flags = f.flags;
  gmlake_recorder_attach(f.recorder, &desc);
  assert_ok(gmlake_create(&desc, &f.lake));
}

/* Returns what close of the recorder does. */
static int close_lake(void) {
  gmlake_mock_census left;
  int error;
  assert_ok(gmlake_destroy(f.lake));
  error = gmlake_recorder_close(f.recorder);
  gmlake_mock_get_census(f.mock, &left);
  assert_int_equal(left.event_count, 0);
  gmlake_mock_destroy(f.mock);
  return error;
}

static void *take(size_t bytes, gmlake_stream stream) {
  void *ptr = NULL;
  assert_ok(gmlake_alloc(f.lake, bytes, stream, &ptr));
  return ptr;
}

static trace load(const char *path) {
  static char error[512];
  trace t;
  if (!trace_load(path, &t, error, sizeof error)) fail_msg("%s", error);
  return t;
}

/* The recording behind its first two lines; times and peaks left out. */
static void assert_recorded(const char *expected) {
  static const char head[] = "gmtrace 2\n# recorder: gmlake\n";
  char line[512], text[4096] = "";
  FILE *const file = fopen(f.path, "r");
  assert_non_null(file);
  assert_int_equal(fread(line, 1, sizeof head - 1, file), sizeof head - 1);
  assert_memory_equal(line, head, sizeof head - 1);
  while (fgets(line, sizeof line, file)) {
    size_t times = strchr("aufbcx", *line) ? 1 : *line == 'd' ? 2 : 0;
    if (!strncmp(line, "# peak", 6) || !strncmp(line, "# grow", 6)) continue;
    while (times--) strcpy(strrchr(line, ' '), times ? "" : "\n");
    assert_true(strlen(text) + strlen(line) < sizeof text);
    strcat(text, line);
  }
  (void)fclose(file);
  assert_string_equal(text, expected);
}

/* ---- Round trip ------------------------------------------------------------------------------ */

static void replay(const trace *t) {
  gmlake_stream streams[TRACE_STREAMS_MAX];
  void **const blocks = (void **)calloc(t->id_count, sizeof *blocks);
  size_t i, mark = 0, used = 0;
  assert_non_null(blocks);
  memset(streams, 0, sizeof streams);
  for (i = 0; i < t->stream_count; i++)
    if (i == t->no_stream)
      streams[i] = GMLAKE_STREAM_NONE;
    else if (t->streams[i])
      assert_ok(gmlake_mock_stream_create(f.mock, &streams[i]));
  for (i = 0; i < t->op_count; i++) {
    const trace_op *const op = &t->ops[i];
    for (; mark < t->mark_count && t->marks[mark] == i; mark++)
      gmlake_recorder_mark(f.recorder, "iteration");
    for (; used < t->use_count && t->uses[used].op == i; used++)
      assert_ok(
          gmlake_record_stream(f.lake, blocks[t->uses[used].id], streams[t->uses[used].stream]));
    if (op->type == TRACE_ALLOC)
      blocks[op->id] = take(op->bytes, streams[op->stream]);
    else
      assert_ok(gmlake_free(f.lake, blocks[op->id], streams[op->stream]));
  }
  for (; mark < t->mark_count; mark++) gmlake_recorder_mark(f.recorder, "iteration");
  free(blocks);
}

/* The reader numbers ids and streams anew, by first use: equal traces are equal as read. */
static void assert_same(const trace *a, const trace *b) {
  size_t i;
  assert_int_equal(a->op_count, b->op_count);
  assert_int_equal(a->id_count, b->id_count);
  assert_int_equal(a->stream_count, b->stream_count);
  assert_int_equal(a->mark_count, b->mark_count);
  assert_int_equal(a->use_count, b->use_count);
  assert_int_equal(a->no_stream, b->no_stream);
  assert_int_equal(a->active_bytes_peak, b->active_bytes_peak);
  for (i = 0; i < a->stream_count; i++) assert_int_equal(!a->streams[i], !b->streams[i]);
  for (i = 0; i < a->use_count; i++) {
    assert_int_equal(a->uses[i].op, b->uses[i].op);
    assert_int_equal(a->uses[i].id, b->uses[i].id);
    assert_int_equal(a->uses[i].stream, b->uses[i].stream);
  }
  for (i = 0; i < a->mark_count; i++) assert_int_equal(a->marks[i], b->marks[i]);
  for (i = 0; i < a->op_count; i++) {
    assert_int_equal(a->ops[i].type, b->ops[i].type);
    assert_int_equal(a->ops[i].id, b->ops[i].id);
    assert_int_equal(a->ops[i].bytes, b->ops[i].bytes);
    assert_int_equal(a->ops[i].stream, b->ops[i].stream);
  }
}

static void round_trip(const char *path) {
  const uint64_t begin_us = gmlake_recorder_clock_ns() / 1000;
  trace t = load(path), recording;
  open_lake(f.path, 140 * GIB);
  replay(&t);
  assert_int_equal(close_lake(), 0);
  recording = load(f.path);
  assert_same(&t, &recording);
  assert_int_equal(recording.done_count != 0, t.stream_count > 1);
  assert_true(recording.is_of_lake && recording.recorded_reserved_bytes_peak);
  assert_int_equal(recording.grown_bytes, recording.recorded_reserved_bytes_peak);
  assert_in_range(recording.grow_ns / (recording.grown_bytes / (16 * MIB)), 20000, 40000);
  assert_int_equal(recording.recorded_active_bytes_peak, t.active_bytes_peak);
  assert_true(recording.ops[recording.op_count - 1].time_us <=
              gmlake_recorder_clock_ns() / 1000 - begin_us + 100); /* ticks are not exact */
  trace_free(&t);
  trace_free(&recording);
}

static size_t a_stack(void *user, char *out, size_t capacity) {
  const int *const which = (const int *)user;
  const int length = snprintf(out, capacity, "main; layer %d\n", *which);
  return length > 0 ? (size_t)length : 0;
}

static void take_labelled(const char *label, gmlake_pool *pool, void **out) {
  gmlake_alloc_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.bytes = 512;
  desc.label = label;
  desc.pool = pool;
  assert_ok(gmlake_alloc_with(f.lake, &desc, NULL, out));
}

CASE_BETWEEN(set_up, tear_down, labels_pools_and_stacks) {
  const char weights[] = "the weights\n";
  char expected[512];
  gmlake_buffer_desc desc;
  gmlake_buffer *buffer;
  gmlake_pool *pool;
  trace recording;
  void *p[3];
  int which = 1;
  open_lake(f.path, GIB);
  gmlake_recorder_set_stacks(f.recorder, a_stack, &which);
  assert_ok(gmlake_pool_create(f.lake, NULL, &pool));
  take_labelled(weights, NULL, &p[0]);
  which = 2;
  take_labelled(weights, pool, &p[1]);
  take_labelled(NULL, NULL, &p[2]);
  memset(&desc, 0, sizeof desc);
  desc.max_bytes = 2 * MIB;
  desc.label = "cache";
  assert_ok(gmlake_buffer_create(f.lake, &desc, &buffer));
  assert_ok(gmlake_free(f.lake, p[0], NULL));
  assert_ok(gmlake_free(f.lake, p[1], NULL));
  assert_ok(gmlake_free(f.lake, p[2], NULL));
  assert_int_equal(close_lake(), 0);
  snprintf(
      expected, sizeof expected,
      "# label: 1 the_weights_\n# stack: 1 main; layer 1 \na 0 512 0\n# of: 1 0 1\n"
      "# pool: 1 %p\n# stack: 2 main; layer 2 \na 1 512 0\n# of: 1 1 2\na 2 512 0\n# of: 0 0 2\n"
      "# label: 2 cache\nb 3 2097152 2097152\n# of: 2 0 2\nf 0 0\nd 0\nf 1 0\nd 0\nf 2 0\n",
      (void *)pool);
  assert_recorded(expected);
  recording = load(f.path);
  assert_int_equal(recording.label_count, 2);
  assert_string_equal(recording.labels[0], "the_weights_");
  assert_int_equal(recording.ops[0].label, 1);
  assert_int_equal(recording.ops[2].label, 0);
  assert_int_equal(recording.ops[3].label, 2);
  trace_free(&recording);
}

/* Of more names than there is room for, the later ones are not told; the recording goes on. */
CASE_BETWEEN(set_up, tear_down, too_many_labels) {
  static char labels[GMLAKE_RECORDER_NAMES][8];
  trace recording;
  void *p;
  size_t i;
  open_lake(f.path, GIB);
  for (i = 0; i < GMLAKE_RECORDER_NAMES; i++) {
    snprintf(labels[i], sizeof labels[i], "l%u", (unsigned)i);
    take_labelled(labels[i], NULL, &p);
  }
  take_labelled(labels[7], NULL, &p);
  (void)close_lake();
  recording = load(f.path);
  assert_int_equal(recording.op_count, GMLAKE_RECORDER_NAMES + 1);
  assert_int_equal(recording.label_count, GMLAKE_RECORDER_NAMES / 2 - 1);
  assert_int_equal(recording.ops[GMLAKE_RECORDER_NAMES - 1].label, 0);
  assert_int_equal(recording.ops[GMLAKE_RECORDER_NAMES].label, 8);
  trace_free(&recording);
}

/* Ticks stand for the clock only while they follow it. */
CASE_BETWEEN(set_up, tear_down, ticks_follow_the_clock) {
  gmlake_recorder *r;
  uint64_t before, after, told;
  size_t i;
  r = gmlake_recorder_open(f.path);
  assert_non_null(r);
  for (i = 0; i < 300000; i++) {
    before = gmlake_recorder_clock_ns() / 1000;
    told = gmlake_recorder_now_ns(r) / 1000;
    after = gmlake_recorder_clock_ns() / 1000;
    assert_in_range(told, before - 20, after + 20);
  }
  if (r->ns_per_tick > 0) {
    r->clock_ns -= 1000000000; /* the counter has stood still for a second */
    r->clock_ticks = gmlake_recorder_ticks() - GMLAKE_RECORDER_TICKS;
    before = gmlake_recorder_clock_ns() / 1000;
    assert_true(gmlake_recorder_now_ns(r) / 1000 >= before);
  }
  assert_int_equal(gmlake_recorder_close(r), 0);
}

CASE_BETWEEN(set_up, tear_down, one_stream) { round_trip("bench/traces/opt-1.3b-LRO.gmtrace.gz"); }

/* ---- What is recorded ------------------------------------------------------------------------ */

/* When work is complete is said of each stream on which it was queued, at the next call. */
CASE_BETWEEN(set_up, tear_down, completion) {
  gmlake_stream a, b;
  void *x, *y;
  trace t;
  open_lake(f.path, 64 * MIB);
  assert_ok(gmlake_mock_stream_create(f.mock, &a));
  assert_ok(gmlake_mock_stream_create(f.mock, &b));
  x = take(1000, a);
  assert_ok(gmlake_free(f.lake, take(5, a), a)); /* one stream: nothing is sampled */
  assert_ok(gmlake_record_stream(f.lake, x, b));
  gmlake_mock_stream_hold(f.mock, a);
  y = take(5, b); /* b has completed what was queued until it was recorded */
  assert_ok(gmlake_free(f.lake, x, a));
  assert_ok(gmlake_free(f.lake, y, GMLAKE_STREAM_NONE)); /* a has not yet */
  gmlake_mock_stream_finish(f.mock, a);
  (void)take(6, GMLAKE_STREAM_NONE);
  assert_int_equal(gmlake_recorder_flush(f.recorder), 0);
  assert_recorded(
      "a 0 1000 1\na 1 5 1\nf 1 1\nu 0 2\nd 2\na 2 5 2\nd 2\nf 0 1\nd 2\nf 2 -\nd 1\n"
      "a 3 6 -\n");
  assert_int_equal(close_lake(), 0);
  t = load(f.path);
  assert_int_equal(t.use_count, 1);
  assert_int_equal(t.done_count, 4);
  assert_int_equal(t.done[3].queued_us, t.ops[4].time_us); /* the free of x */
  assert_true(t.done[3].done_us <= t.ops[6].time_us);
  trace_free(&t);
}

/* More samples than there is room for: every second one is given up, and the last stays. */
CASE_BETWEEN(set_up, tear_down, many_samples) {
  gmlake_stream a, b;
  size_t i;
  trace t;
  open_lake(f.path, GIB);
  assert_ok(gmlake_mock_stream_create(f.mock, &a));
  assert_ok(gmlake_mock_stream_create(f.mock, &b));
  (void)take(1, b);
  gmlake_mock_stream_hold(f.mock, a);
  for (i = 0; i < 1000; i++) assert_ok(gmlake_free(f.lake, take(1 + i, a), a));
  gmlake_mock_stream_finish(f.mock, a);
  (void)take(1, b);
  assert_int_equal(close_lake(), 0);
  t = load(f.path);
  assert_int_equal(t.op_count, 2002);
  i = t.done_count - 1;
  assert_int_equal(t.streams[t.done[i].stream], 2);
  assert_int_equal(t.done[i].queued_us, t.ops[2000].time_us);
  assert_int_equal(t.done_first[t.done[i].stream], i + 1); /* all at once */
  trace_free(&t);
}

/* Without a backend the file says what it leaves out, and so it does if an event fails. */
CASE_BETWEEN(set_up, tear_down, not_sampled) {
  gmlake_mock_census census;
  gmlake_stream a;
  gmlake_desc desc;
  void *x;
  memset(&desc, 0, sizeof desc);
  desc.flags = GMLAKE_STREAMS_MAY_END;
  f.recorder = gmlake_recorder_open(f.path);
  gmlake_recorder_attach(f.recorder, &desc);
  assert_int_equal(gmlake_recorder_flush(f.recorder), 0);
  assert_recorded(
      "# left out: when work was complete (desc.backend is NULL)\n# streams_may_end: 1\n");
  assert_int_equal(gmlake_recorder_close(f.recorder), 0);
  assert_int_equal(unlink(f.path), 0);
  gmlake_recorder_attach(NULL, &desc);
  assert_null(desc.observer.fn);
  f.flags = GMLAKE_SINGLE_THREADED;
  open_lake(f.path, 64 * MIB);
  assert_ok(gmlake_mock_stream_create(f.mock, &a));
  x = take(7, a);
  (void)take(5, NULL);
  gmlake_mock_get_census(f.mock, &census);
  gmlake_mock_fail_at(f.mock, census.call_count + 3, GMLAKE_ERROR_DRIVER, 0);
  assert_ok(gmlake_free(f.lake, x, a));
  assert_int_equal(gmlake_recorder_flush(f.recorder), 0);
  assert_recorded(
      "a 0 7 1\na 1 5 0\n# left out from here on: when work was complete (event_query failed: "
      "999)\n"
      "f 0 1\n");
  assert_int_equal(close_lake(), 0);
}

static gmlake_backend watched; /* the mock, as the recorder calls it */
static unsigned calls_outside, calls_in_captures;

static void note_call(void) {
  int is_capturing = 0, code = 0;
  assert_ok(f.mock->is_capturing(f.mock->user, NULL, &is_capturing, &code));
  if (is_capturing)
    calls_in_captures++;
  else
    calls_outside++;
}

static gmlake_result watched_record(void *user, void *event, gmlake_stream stream, int *out_code) {
  note_call();
  return f.mock->event_record(user, event, stream, out_code);
}

static gmlake_result watched_query(void *user, void *event, int *out_done, int *out_code) {
  note_call();
  return f.mock->event_query(user, event, out_done, out_code);
}

/* While a capture is under way the recorder touches no stream and no event. */
CASE_BETWEEN(set_up, tear_down, captures_are_not_spoilt) {
  gmlake_stream a, b;
  gmlake_pool *pool;
  void *x, *y;
  int i;
  open_lake(f.path, 64 * MIB);
  assert_ok(gmlake_mock_stream_create(f.mock, &a));
  assert_ok(gmlake_mock_stream_create(f.mock, &b));
  assert_ok(gmlake_pool_create(f.lake, NULL, &pool));
  watched = *f.mock;
  watched.event_record = watched_record;
  watched.event_query = watched_query;
  f.recorder->backend = &watched;
  calls_outside = calls_in_captures = 0;
  for (i = 0; i < 3; i++) { /* with work that is pending, and work that completes meanwhile */
    gmlake_mock_stream_hold(f.mock, b);
    x = take(5, a);
    y = take(6, NULL);
    assert_ok(gmlake_record_stream(f.lake, x, b));
    assert_ok(gmlake_free(f.lake, x, a));
    assert_ok(gmlake_capture_begin(f.lake, a, pool));
    assert_ok(gmlake_mock_capture_begin(f.mock, a));
    assert_ok(gmlake_free(f.lake, take(7, a), a));
    assert_ok(gmlake_free(f.lake, y, NULL));
    gmlake_mock_stream_finish(f.mock, b);
    assert_ok(gmlake_free(f.lake, take(8, a), a));
    assert_ok(gmlake_mock_capture_end(f.mock, a));
    assert_ok(gmlake_capture_end(f.lake, a));
    assert_true(f.recorder->is_sampling);
  }
  assert_true(calls_outside > 5);
  assert_int_equal(calls_in_captures, 0);
  assert_ok(gmlake_pool_destroy(f.lake, pool));
  assert_int_equal(close_lake(), 0);
}

static gmlake_backend slow; /* the mock, whose events take 50 us */
static struct pace {        /* of one kind of call */
  uint64_t begun_ns, ended_ns;
  double shortest_gap; /* before a call, divided by what the call before it took */
  size_t count;
} pace_of_record, pace_of_query;

static void keep_pace(struct pace *p) {
  const uint64_t begun = gmlake_recorder_clock_ns();
  const double gap = (double)(begun - p->ended_ns) / (double)(p->ended_ns - p->begun_ns);
  if (p->count++ && (p->shortest_gap <= 0 || gap < p->shortest_gap)) p->shortest_gap = gap;
  while (gmlake_recorder_clock_ns() - begun < 50000) continue;
  p->begun_ns = begun;
  p->ended_ns = gmlake_recorder_clock_ns();
}

static gmlake_result slow_record(void *user, void *event, gmlake_stream stream, int *out_code) {
  keep_pace(&pace_of_record);
  return f.mock->event_record(user, event, stream, out_code);
}

static gmlake_result slow_query(void *user, void *event, int *out_done, int *out_code) {
  keep_pace(&pace_of_query);
  return f.mock->event_query(user, event, out_done, out_code);
}

/* However slow the driver is, samples take their share of the time: a fortieth for each kind. */
CASE_BETWEEN(set_up, tear_down, samples_take_their_share) {
  gmlake_mock_desc mock;
  gmlake_desc desc;
  gmlake_stream stream;
  uint64_t begun;
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.capacity_bytes = 64 * MIB;
  mock.bookkeeping_only = 1;
  assert_ok(gmlake_mock_create(&mock, &f.mock));
  assert_ok(gmlake_mock_stream_create(f.mock, &stream));
  slow = *f.mock;
  slow.event_record = slow_record;
  slow.event_query = slow_query;
  f.recorder = gmlake_recorder_open(f.path);
  gmlake_recorder_set_sampling(f.recorder, 20);
  desc.backend = &slow;
  desc.flags = GMLAKE_SINGLE_THREADED;
  gmlake_recorder_attach(f.recorder, &desc);
  desc.backend = f.mock; /* what the lake itself records is not slow */
  assert_ok(gmlake_create(&desc, &f.lake));
  assert_ok(gmlake_free(f.lake, take(1, NULL), NULL));
  memset(&pace_of_record, 0, sizeof pace_of_record);
  memset(&pace_of_query, 0, sizeof pace_of_query);
  begun = gmlake_recorder_clock_ns();
  while (pace_of_query.count < 8 && gmlake_recorder_clock_ns() - begun < 20000000000u)
    assert_ok(gmlake_free(f.lake, take(1, stream), stream));
  assert_true(pace_of_record.count >= 4);
  assert_true(pace_of_query.count >= 8);
  assert_true(pace_of_record.shortest_gap > 38);
  assert_true(f.recorder->may_poll_ns > pace_of_query.ended_ns + 38 * 50000);
  assert_int_equal(close_lake(), 0);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Puts a block on the shelf and frees the one that lay there, whoever put it. */
static void *trade(void *seed) {
  unsigned long x = *(const unsigned long *)seed;
  size_t i, failures = 0;
  for (i = 0; i < ROUNDS; i++) {
    void *mine = NULL, *other;
    size_t at;
    x = x * 1103515245u + 12345u;
    at = x >> 16 & (SHELF - 1);
    failures += gmlake_alloc(f.lake, 1 + (x >> 8 & 0xfffff), NULL, &mine) != GMLAKE_OK;
    (void)pthread_mutex_lock(&f.mutex);
    other = f.shelf[at];
    f.shelf[at] = mine;
    (void)pthread_mutex_unlock(&f.mutex);
    failures += gmlake_free(f.lake, other, NULL) != GMLAKE_OK;
    if (i % 1000 == 0) gmlake_recorder_mark(f.recorder, "round");
  }
  return failures ? seed : NULL;
}

CASE_BETWEEN(set_up, tear_down, threads) {
  pthread_t handles[THREADS];
  unsigned long seeds[THREADS];
  size_t i, bytes = 0;
  trace t;
  open_lake(f.path, 4 * GIB);
  for (i = 0; i < THREADS; i++) {
    seeds[i] = 77 + i;
    assert_int_equal(pthread_create(&handles[i], NULL, trade, &seeds[i]), 0);
  }
  for (i = 0; i < THREADS; i++) {
    void *failed = NULL;
    assert_int_equal(pthread_join(handles[i], &failed), 0);
    assert_null(failed);
  }
  for (i = 0; i < SHELF; i++) assert_ok(gmlake_free(f.lake, f.shelf[i], NULL));
  assert_int_equal(close_lake(), 0);
  t = load(f.path); /* it refuses a free of an id that is not live */
  assert_int_equal(t.op_count, 2 * THREADS * ROUNDS);
  assert_int_equal(t.mark_count, THREADS * ((ROUNDS + 999) / 1000));
  for (i = 0; i < t.op_count; i++)
    bytes += t.ops[i].type == TRACE_ALLOC ? t.ops[i].bytes : (size_t)0 - t.ops[i].bytes;
  assert_int_equal(bytes, 0); /* nothing is live at the end */
  trace_free(&t);
}

static gmlake_buffer *open_buffer(size_t max_bytes) {
  gmlake_buffer_desc desc;
  gmlake_buffer *buffer = NULL;
  memset(&desc, 0, sizeof desc);
  desc.max_bytes = max_bytes;
  assert_ok(gmlake_buffer_create(f.lake, &desc, &buffer));
  return buffer;
}

/* Ranges are in whole chunks, and their work is sampled although there is one stream. */
CASE_BETWEEN(set_up, tear_down, buffers) {
  gmlake_buffer *one, *other;
  trace t;
  open_lake(f.path, 64 * MIB);
  (void)take(1000, NULL);
  one = open_buffer(8 * MIB);
  assert_ok(gmlake_buffer_resize(f.lake, one, 3 * MIB, NULL));
  other = open_buffer(5 * MIB);
  assert_ok(gmlake_buffer_commit(f.lake, other, 4 * MIB, MIB, NULL, NULL));
  assert_ok(gmlake_buffer_commit(f.lake, one, 6 * MIB, 2 * MIB, NULL, NULL));
  assert_ok(gmlake_buffer_discard(f.lake, one, 0, 4 * MIB, NULL));
  assert_int_equal(gmlake_buffer_resize(f.lake, one, 9 * MIB, NULL), GMLAKE_ERROR_INVALID_ARGUMENT);
  assert_ok(gmlake_buffer_destroy(f.lake, one, NULL));
  (void)open_buffer(2 * MIB);
  assert_ok(gmlake_buffer_resize(f.lake, other, 0, GMLAKE_STREAM_NONE));
  assert_ok(gmlake_buffer_destroy(f.lake, other, GMLAKE_STREAM_NONE));
  assert_int_equal(gmlake_recorder_flush(f.recorder), 0);
  assert_recorded(
      "a 0 1000 0\nb 1 8388608 2097152\nc 1 0 4194304 0\nd 0\nb 2 5242880 2097152\n"
      "c 2 4194304 2097152 0\nd 0\nc 1 6291456 2097152 0\nd 0\nx 1 0 4194304 0\nd 0\n"
      "x 1 0 8388608 0\nd 0\nf 1 0\nd 0\nb 3 2097152 2097152\n"
      "x 2 0 6291456 -\nf 2 -\n");
  assert_int_equal(close_lake(), 0);
  t = load(f.path);
  assert_int_equal(t.buffer_count, 3);
  assert_int_equal(t.active_bytes_peak, 8 * MIB + 1024);
  assert_int_equal(t.recorded_active_bytes_peak, 8 * MIB + 1024);
  trace_free(&t);
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* The child's end, as its parent sees it. */
static void assert_ends_well(pid_t child) {
  int status = -1;
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* A child of fork frees what it inherited, marks, flushes, closes and ends, by exit() or _exit(),
   while its parent goes on. */
CASE_BETWEEN(set_up, tear_down, fork_records_nothing) {
  void *blocks[400];
  size_t i, round;
  trace t;
  open_lake(f.path, 64 * MIB);
  gmlake_recorder_mark(f.recorder, "parent");
  for (i = 0; i < 400; i++) blocks[i] = take(4096, NULL);
  for (round = 0; round < 4; round++) {
    pid_t child;
    (void)fflush(NULL); /* else cmocka's text comes twice */
    child = fork();
    if (child == 0) {
      int failures = 0;
      for (i = 0; i < 400; i++) failures += gmlake_free(f.lake, blocks[i], NULL) != GMLAKE_OK;
      gmlake_recorder_mark(f.recorder, "child");
      if (round & 1) failures += gmlake_recorder_flush(f.recorder) != 0;
      if (round & 1) failures += gmlake_recorder_close(f.recorder) != 0;
      if (round & 2) _exit(failures);
      exit(failures);
    }
    assert_ends_well(child);
  }
  for (i = 0; i < 400; i++) assert_ok(gmlake_free(f.lake, blocks[i], NULL));
  assert_int_equal(close_lake(), 0);
  t = load(f.path);
  assert_int_equal(t.op_count, 800);
  assert_int_equal(t.mark_count, 1);
  trace_free(&t);
}

/* A thread of the parent holds the recorder as the child is made, which must not wait for it. */
CASE_BETWEEN(set_up, tear_down, fork_while_recording) {
  void *block;
  pid_t child;
  open_lake(f.path, 64 * MIB);
  block = take(4096, NULL);
  (void)fflush(NULL);
  assert_int_equal(pthread_mutex_lock(&f.recorder->mutex), 0); /* as that thread would */
  child = fork();
  if (child == 0) {
    (void)alarm(patience());
    exit(gmlake_free(f.lake, block, NULL) != GMLAKE_OK);
  }
  assert_int_equal(pthread_mutex_unlock(&f.recorder->mutex), 0);
  assert_ends_well(child);
  assert_int_equal(close_lake(), 0);
}

/* A process that ends by exit() may leave its recordings open. */
CASE_BETWEEN(set_up, tear_down, left_open) {
  char other[1104];
  pid_t child;
  trace t;
  snprintf(other, sizeof other, "%s.2", f.path);
  (void)fflush(NULL);
  child = fork();
  if (child == 0) {
    gmlake_recorder *const closed = gmlake_recorder_open(other);
    if (!closed) exit(1);
    open_lake(f.path, 64 * MIB);
    (void)take(MIB, NULL);
    exit(gmlake_recorder_close(closed));
  }
  assert_ends_well(child);
  t = load(f.path);
  assert_int_equal(t.op_count, 1);
  trace_free(&t);
  assert_int_equal(unlink(other), 0);
}

/* What is there already is not written anew, unless it is no file. */
CASE_BETWEEN(set_up, tear_down, refuses_to_overwrite) {
  trace t;
  open_lake(f.path, 64 * MIB);
  (void)take(MIB, NULL);
  errno = 0;
  assert_null(gmlake_recorder_open(f.path)); /* while it is written */
  assert_int_equal(errno, EEXIST);
  assert_int_equal(close_lake(), 0);
  errno = 0;
  assert_null(gmlake_recorder_open(f.path));
  assert_int_equal(errno, EEXIST);
  t = load(f.path);
  assert_int_equal(t.op_count, 1);
  trace_free(&t);
  assert_int_equal(gmlake_recorder_close(gmlake_recorder_open("/dev/null")), 0);
}

/* ---- Failures -------------------------------------------------------------------------------- */

CASE_BETWEEN(set_up, tear_down, cannot_open) {
  errno = 0;
  assert_null(gmlake_recorder_open("/nonexistent/run.gmtrace"));
  assert_int_equal(errno, ENOENT);
  assert_int_equal(gmlake_recorder_close(NULL), 0);
}

/* Few records fail as they are flushed, many before; the program is not disturbed. */
CASE_BETWEEN(set_up, tear_down, cannot_write) {
  size_t counts[] = {1, 20000}, i, j;
  if (access("/dev/full", W_OK)) skip();
  for (i = 0; i < 2; i++) {
    open_lake("/dev/full", 64 * MIB);
    for (j = 0; j < counts[i]; j++) assert_ok(gmlake_free(f.lake, take(MIB, NULL), NULL));
    assert_int_equal(close_lake(), ENOSPC);
  }
}

/* The first error stays, and what was written before it is a trace. */
CASE_BETWEEN(set_up, tear_down, too_many_streams) {
  gmlake_step event;
  gmlake_observer observer;
  trace t;
  size_t i;
  f.recorder = gmlake_recorder_open(f.path);
  assert_non_null(f.recorder);
  observer = gmlake_recorder_observer(f.recorder);
  memset(&event, 0, sizeof event);
  event.kind = GMLAKE_STEP_ALLOC;
  event.state = 1;
  for (i = 1; i <= TRACE_STREAMS_MAX; i++) {
    event.address = i * 512;
    event.stream = (gmlake_stream)(uintptr_t)(i + 1); /* 1 is the legacy stream */
    observer.fn(observer.user, &event);
    assert_int_equal(gmlake_recorder_flush(f.recorder), i < TRACE_STREAMS_MAX ? 0 : ERANGE);
  }
  event.kind = GMLAKE_STEP_FREE;
  observer.fn(observer.user, &event);
  assert_int_equal(gmlake_recorder_close(f.recorder), ERANGE);
  t = load(f.path);
  assert_int_equal(t.op_count, TRACE_STREAMS_MAX - 1);
  trace_free(&t);
}

int main(void) { return run_cases("record"); }
