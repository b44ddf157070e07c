/* Tests of the lake with several streams, of what no row of tests/play says: captures that the
   driver cannot be asked about, backends that lack something, and many streams and blocks. */
#include "fixture.h"

static gmlake_stream A, B;

/* A lake that knows two idle streams. */
static void open_two(size_t chunks) {
  start(chunks);
  A = open_stream();
  B = open_stream();
}

static void hold(gmlake_stream stream) { gmlake_mock_stream_hold(mock, stream); }

/* Destroys a lake that may have live blocks. */
static void abandon(void) {
  assert_ok(gmlake_check(lake));
  assert_ok(gmlake_destroy(lake));
  close_mock();
}

/* Of a long queue the part that has completed is known early: fences stand in between. Every
   other chunk is freed, so that no two are one range of memory. */
CASE(a_long_queue_of_frees_completes_in_parts) {
  void *b[300];
  size_t i;
  open_two(400);
  gmlake_mock_stream_set_lag(mock, A, 1000);
  for (i = 0; i < 300; i++) b[i] = take_on(C, A);
  (void)take_on(512, B);
  for (i = 0; i < 150; i++) {
    gmlake_mock_set_clock(mock, 1 + i);
    drop_on(b[2 * i], A);
  }
  gmlake_mock_set_clock(mock, 1000 + 100); /* the first hundred are done */
  (void)take_on(90 * C, B);
  assert_int_equal(stats().reserved_bytes, 301 * C);
  assert_int_equal(stats().stream_wait_count, 0);
  gmlake_mock_set_clock(mock, 10000);
  abandon();
}

/* Eight programs of two streams that repeat themselves. All work is complete at once, but only who
   asks knows that. In the last twenty steps they hardly need new windows. */
CASE(programs_of_two_streams_settle) {
  enum { STEPS = 80, BLOCKS = 120 };
  uint64_t late = 0;
  uint32_t seed, steps, i;
  for (seed = 1; seed <= 8; seed++) {
    uint64_t stitches = 0;
    open_two(4096);
    for (steps = 0; steps < STEPS; steps++) {
      uint32_t random = seed * 2654435761u, live = 0;
      void *b[BLOCKS];
      if (steps == STEPS - 20) stitches = stats().stitch_count;
      for (i = 0; i < 6 * BLOCKS || live; i++) {
        random = random * 1664525u + 1013904223u;
        if (i < 6 * BLOCKS && live < BLOCKS && (random >> 24) % 16 < 9) {
          const size_t bytes = 512 * (1 + (random >> 8) % 24 * (1 + (random >> 13) % 40));
          assert_ok(gmlake_alloc(lake, bytes, random >> 31 ? A : B, &b[live++]));
        } else if (live) {
          const uint32_t one = (random >> 9) % live;
          assert_ok(gmlake_free(lake, b[one], random >> 31 ? A : B));
          b[one] = b[--live];
        }
      }
    }
    late += stats().stitch_count - stitches;
    assert_ok(gmlake_check(lake));
    abandon();
  }
  assert_in_range(late, 0, 40); /* 22; and 404 where requests ask only when memory is short */
}

/* ---- Forgotten streams ----------------------------------------------------------------------- */

/* 65,533 streams at a time, all but the last of which are one record here. */
CASE(numbers_of_streams_end) {
  static gmlk_stream *items[GMLK_STREAMS_MAX + 1];
  gmlk_stream used;
  gmlk_streams streams;
  gmlk_host host;
  size_t i;
  memset(&used, 0, sizeof(used));
  memset(&streams, 0, sizeof(streams));
  memset(&host, 0, sizeof(host));
  used.is_used = 1;
  for (i = GMLK_FIRST_STREAM; i < GMLK_STREAMS_MAX; i++) items[i] = &used;
  items[GMLK_STREAMS_MAX - 1] = NULL;
  streams.items = items;
  streams.capacity = GMLK_STREAMS_MAX + 1;
  streams.count = GMLK_STREAMS_MAX - 1;
  streams.event_capacity = (size_t)GMLK_STREAMS_MAX * (GMLK_FENCES + 1); /* as if there was room */
  assert_int_equal(gmlk_stream_add(&streams, &host, LEGACY, 0, 0), GMLK_STREAMS_MAX - 1);
  assert_int_equal(streams.count, GMLK_STREAMS_MAX);
  assert_int_equal(gmlk_stream_add(&streams, &host, NONE, 0, 0), 0);
  assert_int_equal(streams.count, GMLK_STREAMS_MAX);
  items[GMLK_STREAMS_MAX - 1]->is_used = 0;
  assert_int_equal(gmlk_stream_add(&streams, &host, NONE, 1, 0), GMLK_STREAMS_MAX - 1);
  gmlk_host_free(&host, items[GMLK_STREAMS_MAX - 1], sizeof(gmlk_stream));
  assert_int_equal(host.bytes, 0);
}

/* ---- Captures -------------------------------------------------------------------------------- */

static void begin_capture(gmlake_stream stream, gmlake_pool *pool) {
  step(gmlake_capture_begin(lake, stream, pool));
  assert_ok(gmlake_mock_capture_begin(mock, stream));
}

/* ---- Captures that end untold: by an exception, or by an illegal call ---- */

static int question_count, question_fails;
static gmlake_result count_questions(void *user, gmlake_stream stream, int *out_is, int *code) {
  question_count++;
  if (question_fails) return GMLAKE_ERROR_DRIVER;
  return mock->is_capturing(user, stream, out_is, code);
}

/* A stream that may be gone is asked about in calls that name it only, and an answer that tells
   nothing ends nothing; nor does a backend that cannot be asked. */
CASE(who_is_asked_whether_a_capture_runs) {
  gmlake_backend shorter;
  gmlake_pool *pool;
  void *p;
  int may_end;
  for (may_end = 0; may_end < 2; may_end++) {
    prepare(8);
    if (may_end) desc.flags = GMLAKE_STREAMS_MAY_END;
    use_hooks();
    hooked.is_capturing = count_questions;
    open_lake();
    A = open_stream();
    begin_capture(A, (pool = open_pool(0)));
    question_count = 0;
    p = take_on(C, A); /* growth takes the driver lock, and asks again */
    assert_int_equal(question_count, may_end ? 1 : 2);
    drop_on(p, A);
    drop_on(take_on(C, A), A); /* it is known to run */
    assert_int_equal(question_count, may_end ? 1 : 2);
    question_fails = 1;
    assert_ok(gmlake_mock_capture_end(mock, A));
    (void)trim_to(0);
    assert_int_equal(question_count, may_end ? 1 : 3);
    step_error(gmlake_capture_begin(lake, A, pool), CAPTURING);
    assert_int_equal(question_count, may_end ? 2 : 4);
    question_fails = 0;
    (void)trim_to(0);
    assert_int_equal(lake->streams.capture_count, (size_t)may_end);
    step(gmlake_capture_end(lake, A));
    finish();
  }
  prepare(8);
  shorter = *mock;
  shorter.struct_bytes = offsetof(gmlake_backend, is_capturing);
  desc.backend = &shorter;
  open_lake();
  A = open_stream();
  begin_capture(A, (pool = open_pool(0)));
  drop_on(take_on(C, A), A);
  assert_ok(gmlake_mock_capture_end(mock, A));
  step_error(gmlake_capture_begin(lake, A, pool), CAPTURING);
  step(gmlake_capture_end(lake, A));
  finish();
}

/* More events than a stream has fences: 93 frees of a chunk on A complete one by one. Three of four
   chunks are freed, joined, so clean with the third. What is idle is never more than what is
   complete. */
CASE(thinned_fences_make_nothing_clean_too_early) {
  gmlake_budget budget;
  void *p[124];
  size_t i;
  prepare(256);
  open_lake();
  A = open_stream();
  B = open_stream();
  drop_on(take_on(512, B), B);
  trim_to(0);
  for (i = 0; i < 124; i++) p[i] = take_on(C, A);
  gmlake_mock_stream_set_lag(mock, A, 100000);
  for (i = 0; i < 93; i++) {
    gmlake_mock_set_clock(mock, i * 10);
    drop_on(p[i / 3 * 4 + i % 3], A);
  }
  for (i = 0; i < 93; i++) {
    gmlake_mock_set_clock(mock, 100000 + i * 10 + 5);
    step(gmlake_get_budget(lake, &budget));
    assert_true(budget.idle_bytes <= (i + 1) / 3 * 3 * C);
  }
  abandon();
}

/* ---- Streams that are destroyed untold ------------------------------------------------------- */

static gmlake_backend shorter; /* the mock's table, less what a backend may lack */

static void open_may_end(size_t chunks) {
  prepare(chunks);
  desc.flags = GMLAKE_STREAMS_MAY_END;
  use_hooks();
  open_lake();
  A = open_stream();
  B = open_stream();
}

/* Streams that were gone before they could be fenced. */
static size_t lost_streams(void) {
  size_t i, count = 0;
  for (i = GMLK_FIRST_STREAM; i < lake->streams.count; i++)
    count += lake->streams.items[i]->is_forgotten && lake->streams.items[i]->is_dirty;
  return count;
}

/* An answer that tells nothing leaves the number as it is. */
CASE(an_id_that_cannot_be_had_changes_nothing) {
  void *p;
  open_may_end(2);
  p = take_on(C, A);
  hold(A);
  drop_on(p, A);
  assert_ok(gmlake_mock_capture_begin(mock, A)); /* the lake is not told */
  assert_ptr_equal(take_on(C, A), p);
  assert_ok(gmlake_mock_capture_end(mock, A));
  abandon();
}

/* A backend that cannot wait for the device: what is lost stays pending, and says so. */
CASE(a_backend_that_cannot_wait_for_the_device) {
  void *p;
  prepare(2);
  shorter = *mock;
  shorter.struct_bytes = offsetof(gmlake_backend, stream_id);
  desc.backend = &shorter;
  open_lake();
  A = open_stream();
  p = take_on(C / 2, A);
  drop_on(p, A);
  gmlake_mock_stream_destroy(mock, A);
  assert_int_equal(trim_to(0), 0);
  assert_error(try_on(2 * C, LEGACY), DRIVER);
  assert_non_null(strstr(last_error().text, "cannot wait for the whole device"));
  assert_error(gmlake_destroy(lake), DRIVER);
  close_mock();
  prepare(2); /* and where nothing is lost, destroy asks for no such wait */
  shorter = *mock;
  shorter.struct_bytes = offsetof(gmlake_backend, device_wait);
  desc.backend = &shorter;
  desc.flags = GMLAKE_STREAMS_MAY_END;
  open_lake();
  A = open_stream();
  drop_on(take_on(C / 2, A), A);
  finish();
}

/* The lake never saw the stream before it was gone. */
CASE(a_free_on_a_stream_that_never_was) {
  void *p;
  open_may_end(2);
  p = take_on(C, B);
  gmlake_mock_stream_destroy(mock, A);
  drop_on(p, A);
  drop_on(take_on(C, B), B);
  assert_int_equal(lost_streams(), 1);
  abandon();
}

int main(void) { return run_cases("streams"); }
