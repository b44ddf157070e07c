/* Tests of the lake with several streams: tags, fences, waits, recorded and forgotten streams, the
   rungs of the out-of-memory ladder that wait, pools and captures.

   In the drawings a chunk stands between two bars, live blocks are capitals; free memory is named
   by its stream in small letters, or a dash where it is clean. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

static gmlake_stream A, B;

/* A lake that knows two idle streams. */
static void open_two(size_t chunks) {
  start(chunks);
  A = open_stream();
  B = open_stream();
}

static void open_faulty(size_t chunks) {
  start_with_faults(chunks);
  A = open_stream();
  B = open_stream();
}

static void hold(gmlake_stream stream) { gmlake_mock_stream_hold(mock, stream); }
static void complete(gmlake_stream stream) { gmlake_mock_stream_finish(mock, stream); }

/* Free memory of A: so many chunks side by side, their work pending, the event recorded. */
static void *leave_pending(size_t chunks) {
  void *ptr = take_on(chunks * C, A);
  (void)take_on(512, B); /* the second stream; lives in a chunk of its own */
  hold(A);
  drop_on(ptr, A);
  return ptr;
}

/* Destroys a lake that may have live blocks. */
static void abandon(void) {
  assert_ok(gmlake_check(lake));
  assert_ok(gmlake_destroy(lake));
  close_mock();
}

/* ---- Which values are streams ---------------------------------------------------------------- */

static void null_and_one_are_the_legacy_stream(void **state) {
  const gmlake_stream one = (gmlake_stream)(uintptr_t)1;
  gmlake_allocation_info info;
  void *p;
  (void)state;
  start(4);
  hold(LEGACY);
  p = take_on(C, LEGACY);
  drop_on(p, one);
  assert_ptr_equal(take_on(C, one), p);
  step(gmlake_record_stream(lake, p, LEGACY));
  drop_on(p, LEGACY);
  assert_ptr_equal(take_on(C, LEGACY), p);
  step(gmlake_get_allocation(lake, p, &info));
  assert_true((uintptr_t)info.stream <= 1);
  assert_int_equal(stats().event_count, 0);
  assert_int_equal(stats().pending_bytes_peak, 0);
  complete(LEGACY);
  drop_on(p, one);
  finish();
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void events_are_recorded_by_the_chunk_freed(void **state) {
  void *b[12];
  size_t i;
  uint64_t before;
  (void)state;
  open_two(8);
  for (i = 0; i < 12; i++) b[i] = take_on(C / 4, A);
  drop_on(take_on(512, B), B);
  before = stats().event_count;
  for (i = 0; i < 12; i++) {
    drop_on(b[i], A);
    assert_int_equal(stats().event_count - before, (i + 1) / 4);
  }
  drop_on(take_on(3 * C, A), A); /* one event for one free, however large */
  assert_int_equal(stats().event_count - before, 4);
  finish();
}

static void metadata_of_streams_is_counted_to_the_byte(void **state) {
  size_t i;
  (void)state;
  start(64);
  for (i = 0; i < 40; i++) {
    gmlake_stream stream = open_stream();
    hold(stream);
    drop_on(take_on(C, stream), stream);
    assert_int_equal(stats().metadata_bytes, host_bytes);
  }
  finish();
}

/* ---- Own memory, clean memory, other streams' memory ----------------------------------------- */

static void own_memory_is_reused_at_once(void **state) {
  size_t reserved;
  void *p;
  (void)state;
  open_two(4);
  drop_on(take_on(512, B), B);
  hold(A);
  p = take_on(2 * C, A);
  reserved = stats().reserved_bytes;
  drop_on(p, A);
  assert_ptr_equal(take_on(2 * C, A), p);
  assert_int_equal(stats().stream_wait_count, 0);
  assert_int_equal(stats().reserved_bytes, reserved);
  complete(A);
  drop_on(p, A);
  finish();
}

/* | a | b |: side by side, both pending: neither stream has two chunks. */
static void tags_of_two_streams_do_not_merge(void **state) {
  char *a, *b, *p;
  (void)state;
  open_two(8);
  flood(2);
  a = (char *)take_on(C, A);
  b = (char *)take_on(C, B);
  assert_ptr_equal(b, a + C);
  hold(A);
  hold(B);
  drop_on(a, A);
  drop_on(b, B);
  p = (char *)take_on(2 * C, A);
  if (piece_count(p) == 1) assert_true(p >= b + C);
  assert_ptr_not_equal(piece(p, piece_count(p) - 1).home, b);
  assert_int_equal(stats().stream_wait_count, 0);
  assert_ptr_equal(take_on(C, B), b); /* still its own */
  complete(A);
  complete(B);
  abandon();
}

/* Sixty times | - | a | A |: A's holes are of two chunks; the clean chunks are parts of them, and
   sixteen are passed over in search of one that is a hole by itself. A chunk is had at the begin of
   a hole, without growth or wait, wherever the search ends. */
static void a_chunk_of_sixty_holes_that_clean_chunks_begin(void **state) {
  gmlake_alloc_desc wanted;
  char *p[180], *taken;
  size_t i, at;
  (void)state;
  open_two(200);
  flood(180);
  for (i = 0; i < 180; i++) p[i] = (char *)take_on(C, A);
  hold(A);
  for (i = 0; i < 180; i += 3) {
    drop_on(p[i], NONE);
    drop_on(p[i + 1], A);
  }
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = C;
  taken = (char *)take_with(&wanted, A);
  at = (size_t)(taken - p[0]) / C;
  assert_true(at < 180);
  assert_int_equal(at % 3, 0);
  assert_int_equal(stats().reserved_bytes, 180 * C);
  assert_int_equal(stats().stream_wait_count, 0);
  complete(A);
  abandon();
}

/* The clean hole that fits begins a run of the stream's own, and those beside it in its bin are too
   short: it is had as part of the run. */
static void a_hole_of_a_run_among_shorter_ones(void **state) {
  static const size_t grains[8] = {136, 10, 138, 118, 10, 136, 10, 136};
  char *p[8];
  size_t i;
  (void)state;
  open_two(16);
  flood(8);
  for (i = 0; i < 8; i++) p[i] = (char *)take_on(grains[i] * 512, A);
  (void)take_on(8 * C - 694 * 512, A);
  hold(A);
  drop_on(p[3], A);
  drop_on(p[0], NONE);
  drop_on(p[2], NONE);
  drop_on(p[5], NONE);
  drop_on(p[7], NONE);
  assert_ptr_equal(take_on((size_t)137 * 512, A), p[2]);
  assert_int_equal(stats().reserved_bytes, 8 * C);
  complete(A);
  abandon();
}

/* ---- No stream ------------------------------------------------------------------------------- */

/* What is smaller than a chunk is fenced by the chunk. */
static void none_reuses_small_blocks_by_the_chunk(void **state) {
  int i;
  (void)state;
  open_two(64);
  for (i = 0; i < 1000; i++) drop_on(take_on(C / 4, NONE), A);
  assert_in_range(stats().reserved_bytes_peak, C, 3 * C);
  assert_in_range(stats().event_count, 240, 252);
  finish();
}

/* ---- The ladder: waits on the device --------------------------------------------------------- */

static void borrow_and_grow_six_chunks(gmlake_cross_stream order) {
  void *w;
  prepare(8);
  desc.cross_stream = order;
  open_lake();
  A = open_stream();
  B = open_stream();
  (void)leave_pending(4);
  w = take_on(6 * C, B);
  assert_int_equal(stats().reserved_bytes, 7 * C);
  assert_int_equal(stats().stream_wait_count, 1);
  assert_int_equal(stats().host_wait_count, 0);
  memset(w, 1, 6 * C);
  complete(A);
  abandon();
}

static void borrowing_and_growth_together_serve(void **state) {
  (void)state;
  borrow_and_grow_six_chunks(GMLAKE_GROW_FIRST);
  borrow_and_grow_six_chunks(GMLAKE_WAIT_FIRST);
}

static void an_idle_window_is_borrowed_behind_a_wait(void **state) {
  char *p[3], *w;
  size_t i, mapped;
  (void)state;
  open_two(3);
  flood(3);
  for (i = 0; i < 3; i++) p[i] = (char *)take_on(C, i == 1 ? B : A);
  drop_on(p[0], A);
  drop_on(p[2], A);
  w = (char *)take_on(2 * C, A);
  hold(A);
  drop_on(w, A);
  mapped = census().mapping_count;
  assert_ptr_equal(take_on(2 * C, B), w);
  assert_int_equal(stats().stream_wait_count, 1);
  assert_int_equal(stats().stitch_reuse_count, 1);
  assert_int_equal(census().mapping_count, mapped);
  complete(A);
  abandon();
}

/* A device that is lost while a window is waited for is asked for nothing more. */
static void a_lost_device_ends_the_borrowing(void **state) {
  void *p[5], *window;
  size_t i;
  (void)state;
  start_with_faults(6);
  A = open_stream();
  B = open_stream();
  flood(6);
  for (i = 0; i < 5; i++) p[i] = take_on(C, A);
  (void)take_on(512, B);
  drop_on(p[0], A);
  drop_on(p[2], A);
  window = take_on(2 * C, A);
  hold(A);
  drop_on(window, A);
  drop_on(p[3], A); /* one hole with the chunk before and the one behind */
  drop_on(p[4], A);
  fail_call(ON_STREAM_WAIT, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_error(try_on(2 * C, B), DEVICE_LOST);
  assert_int_equal(stats().stream_wait_count, 0);
  complete(A);
  (void)gmlake_destroy(lake);
  close_mock();
}

/* What a stream freed since its last event serves another stream before that grows, if complete. */
static void what_has_no_event_yet_is_fenced_before_growth(void **state) {
  void *p;
  (void)state;
  open_two(8);
  p = take_on(C - 512, A); /* less than a chunk: no event */
  (void)take_on(512, B);
  drop_on(p, A);
  assert_int_equal(stats().event_count, 0);
  assert_ptr_equal(take_on(C - 512, B), p);
  assert_int_equal(stats().event_count, 1);
  abandon();
}

/* Of many events that are complete few are asked for; so of those that are not. */
static void events_are_asked_for_in_steps(void **state) {
  uint64_t calls;
  void *b[60];
  size_t i;
  (void)state;
  open_two(128);
  for (i = 0; i < 60; i++) b[i] = take_on(C, A);
  (void)take_on(512, B);
  hold(A);
  for (i = 0; i < 60; i++) drop_on(b[i], A);
  assert_int_equal(stats().event_count, 60);
  calls = stats().driver_call_count;
  (void)take_on(C, B); /* grows: the oldest is not complete */
  assert_int_equal(stats().driver_call_count - calls, 1 + 3);
  complete(A);
  calls = stats().driver_call_count;
  (void)take_on(60 * C, B);
  assert_int_equal(stats().driver_call_count - calls, 6); /* 1, 2, 4, 8, 16, and the rest */
  assert_int_equal(stats().pending_bytes, 0);
  abandon();
}

/* More events than a stream has fences for: all of it can still be had behind waits. There is an
   event for each 128th of the 200 chunks: for every second one. */
static void a_long_queue_of_frees_can_be_borrowed(void **state) {
  void *b[199];
  size_t i;
  (void)state;
  open_two(200);
  for (i = 0; i < 199; i++) b[i] = take_on(C, A);
  (void)take_on(512, B);
  hold(A);
  for (i = 0; i < 199; i++) drop_on(b[i], A);
  assert_int_equal(stats().event_count, 99);
  (void)take_on(199 * C, B);
  assert_true(stats().stream_wait_count >= 1);
  assert_int_equal(stats().host_wait_count, 0);
  complete(A);
  abandon();
}

static void frees_ask_for_nothing_while_there_are_fences(void **state) {
  void *b[8];
  size_t i;
  (void)state;
  start_with_faults(8);
  A = open_stream();
  B = open_stream();
  for (i = 0; i < 7; i++) b[i] = take_on(C, A);
  (void)take_on(512, B);
  hold(A);
  fail_call(ON_QUERY, 1, GMLAKE_ERROR_DRIVER, 0);
  for (i = 0; i < 7; i++) drop_on(b[i], A);
  assert_int_equal(faults[ON_QUERY].in, 1);
  assert_int_equal(stats().event_count, 7);
  fail_call(ON_QUERY, 0, GMLAKE_OK, 0);
  complete(A);
  abandon();
}

/* Whether the host has waited for the stream. */
static int is_awaited(gmlake_stream stream) {
  return gmlk_mock_find_queue((const gmlk_mock *)mock->user, stream)->wanted != 0;
}

/* A frees what is enough, B what is not needed; either may come first, and be recorded. */
static void the_host_waits_for_whichever_is_enough(void **state) {
  enum { ON_NONE, COMMUNICATION, DESTROY, SLEEP, WAKE, WAYS };
  unsigned way, is_later, is_recorded;
  (void)state;
  for (way = 0; way < WAYS; way++)
    for (is_later = 0; is_later < 2; is_later++)
      for (is_recorded = 0; is_recorded < 2; is_recorded++) {
        gmlake_pool *pool, *asleep;
        gmlake_stream own;
        void *p, *q;
        start(8);
        own = open_stream();
        A = open_stream();
        B = open_stream();
        asleep = open_pool(0);
        (void)take_from(asleep, 2 * C, own);
        if (way == WAKE) step(gmlake_pool_sleep(lake, asleep, GMLAKE_SLEEP_DROP, NULL));
        pool = open_pool(0);
        step(gmlake_mark_stream(lake, is_later ? B : A, GMLAKE_STREAM_STAYS)); /* first */
        p = take_from(way < WAKE ? pool : NULL, 3 * C, is_recorded ? own : A);
        q = take_on(3 * C, is_recorded ? own : B);
        gmlake_mock_stream_set_lag(mock, A, 1000000);
        hold(B);
        if (is_recorded) step(gmlake_record_stream(lake, p, A));
        if (is_recorded) step(gmlake_record_stream(lake, q, B));
        drop_on(is_later ? p : q, is_recorded ? own : is_later ? A : B);
        drop_on(is_later ? q : p, is_recorded ? own : is_later ? B : A);
        if (way == COMMUNICATION) step(gmlake_mark_stream(lake, own, GMLAKE_STREAM_COMMUNICATION));
        if (way == ON_NONE) (void)take_from(pool, 3 * C, NONE);
        if (way == COMMUNICATION) (void)take_from(pool, 3 * C, own);
        if (way == DESTROY) step(gmlake_pool_destroy(lake, pool));
        if (way == SLEEP) step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, NULL));
        if (way == WAKE) (void)take_from(pool, 2 * C, own);
        if (way == WAKE) step(gmlake_pool_wake(lake, asleep));
        assert_true(is_awaited(A));
        assert_false(is_awaited(B));
        abandon();
      }
}

/* What both streams freed is not enough, so the host waits for both. */
static void a_request_that_is_refused_has_waited_for_all(void **state) {
  (void)state;
  open_two(4);
  gmlake_mock_stream_set_lag(mock, A, 1000000);
  hold(B);
  drop_on(take_on(C, A), A);
  drop_on(take_on(C, B), B);
  assert_error(try_on(5 * C, NONE), OUT_OF_DEVICE_MEMORY);
  assert_true(is_awaited(A) && is_awaited(B));
  abandon();
}

/* 40 streams freed what one request needs all of. The host waits for at most 32 at once. */
static void the_host_waits_for_many_streams(void **state) {
  gmlake_stream streams[40];
  void *blocks[40];
  size_t i;
  (void)state;
  prepare(40);
  open_lake();
  for (i = 0; i < 40; i++) {
    streams[i] = open_stream();
    gmlake_mock_stream_set_lag(mock, streams[i], 1000000);
    blocks[i] = take_on(C, streams[i]);
  }
  for (i = 0; i < 40; i++) drop_on(blocks[i], streams[i]);
  (void)take_on(40 * C, NONE);
  for (i = 0; i < 40; i++) assert_true(is_awaited(streams[i]));
  abandon();
}

static int wait_count;

static gmlake_result wait_badly(void *user, void *event, int *out_code) {
  (void)user;
  (void)event;
  *out_code = 1234;
  return wait_count++ ? GMLAKE_ERROR_DRIVER : GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* The first one that fails ends the call. */
static void a_failed_wait_is_told(void **state) {
  gmlake_pool *pool;
  (void)state;
  start_with_faults(8);
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  hold(A);
  hold(B);
  drop_on(take_from(pool, C, A), A);
  drop_on(take_from(pool, C, B), B);
  faulty.event_wait = wait_badly;
  wait_count = 0;
  step_error(gmlake_pool_destroy(lake, pool), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(wait_count, 1);
  faulty.event_wait = mock->event_wait;
  step(gmlake_pool_destroy(lake, pool));
  abandon();
}

/* No chunk can be created, then the host cannot wait: the ladder tells what failed first, however
   many rungs fail behind it. */
static void of_failed_rungs_the_first_is_told(void **state) {
  gmlake_error_info info;
  (void)state;
  start_with_faults(8);
  A = open_stream();
  hold(A);
  drop_on(take_on(C, A), A);
  fail_call(ON_CREATE, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_HOST_WAIT, 1, GMLAKE_ERROR_DRIVER, 1);
  step_error(try_on(C, NONE), DRIVER);
  assert_int_equal(faults[ON_CREATE].in, 0);
  info = last_error();
  assert_int_equal(info.result, GMLAKE_ERROR_DRIVER);
  assert_string_equal(info.call, "create");
  fail_call(ON_HOST_WAIT, 1, GMLAKE_ERROR_DEVICE_LOST, 0); /* but for what ends the lake */
  fail_call(ON_CREATE, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(try_on(C, NONE), DEVICE_LOST);
  info = last_error();
  assert_int_equal(info.result, GMLAKE_ERROR_DEVICE_LOST);
  assert_string_equal(info.call, "event_wait");
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  close_mock();
}

static void a_long_queue_of_frees_can_be_waited_for(void **state) {
  void *b[199];
  size_t i;
  (void)state;
  open_two(200);
  for (i = 0; i < 199; i++) b[i] = take_on(C, A);
  (void)take_on(512, B);
  hold(A);
  for (i = 0; i < 199; i++) drop_on(b[i], A);
  (void)take_on(199 * C, NONE);
  assert_true(stats().host_wait_count >= 1);
  abandon();
}

/* Of a long queue the part that has completed is known early: fences stand in between. Every
   other chunk is freed, so that no two are one range of memory. */
static void a_long_queue_of_frees_completes_in_parts(void **state) {
  void *b[300];
  size_t i;
  (void)state;
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
static void programs_of_two_streams_settle(void **state) {
  enum { STEPS = 80, BLOCKS = 120 };
  uint64_t late = 0;
  uint32_t seed, steps, i;
  (void)state;
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

/* Out of memory for good: nothing is left pending where the host could wait for it. */
static void out_of_memory_is_the_last_answer(void **state) {
  gmlake_error_info info;
  (void)state;
  open_two(4);
  (void)leave_pending(2);
  assert_error(try_on(4 * C, B), OUT_OF_DEVICE_MEMORY);
  info = last_error();
  assert_int_equal(info.free_bytes + info.pending_bytes, 3 * C - 512);
  assert_int_equal(info.live_bytes, 512);
  complete(A);
  abandon();
}

/* ---- Calls about streams that fail ----------------------------------------------------------- */

/* A free needs no event: it succeeds, and the next one covers its memory. */
static void a_free_survives_a_failed_record(void **state) {
  void *p, *q;
  (void)state;
  open_faulty(4);
  p = take_on(2 * C, A);
  q = take_on(C, A);
  (void)take_on(512, B);
  hold(A);
  fail_call(ON_RECORD, 1, GMLAKE_ERROR_DRIVER, 0);
  drop_on(p, A);
  assert_int_equal(stats().event_count, 0);
  assert_non_null(strstr(last_error().text, "destroyed before gmlake_forget_stream"));
  drop_on(q, A);
  assert_int_equal(stats().event_count, 1);
  complete(A);
  assert_ptr_equal(take_on(3 * C, B), p);
  assert_int_equal(stats().stream_wait_count, 0);
  abandon();
}

/* Without the wait the memory may not be had; what is free stays so. */
static void a_failed_wait_on_the_device_is_undone(void **state) {
  gmlake_stats before, after;
  void *p;
  (void)state;
  open_faulty(3);
  p = leave_pending(2);
  before = stats();
  fail_call(ON_STREAM_WAIT, 1, GMLAKE_ERROR_DRIVER, 1);
  fail_call(ON_HOST_WAIT, 1, GMLAKE_ERROR_DRIVER, 1);
  assert_error(try_on(2 * C, B), DRIVER);
  after = stats();
  assert_int_equal(after.active_bytes, before.active_bytes);
  assert_int_equal(after.stream_wait_count, 0);
  fail_call(ON_STREAM_WAIT, 0, GMLAKE_OK, 0);
  fail_call(ON_HOST_WAIT, 0, GMLAKE_OK, 0);
  assert_ptr_equal(take_on(2 * C, B), p);
  assert_int_equal(stats().stream_wait_count, 1);
  complete(A);
  abandon();
}

/* ---- Recorded streams ------------------------------------------------------------------------ */

static void a_stream_is_recorded_once(void **state) {
  size_t flat;
  void *p;
  int i;
  (void)state;
  open_two(8);
  p = take_on(C, LEGACY);
  step(gmlake_record_stream(lake, p, A));
  step(gmlake_record_stream(lake, p, B));
  flat = stats().metadata_bytes;
  for (i = 0; i < 100; i++) step(gmlake_record_stream(lake, p, i % 2 ? A : B));
  assert_int_equal(stats().metadata_bytes, flat);
  drop(p);
  finish();
}

static void a_pending_block_cannot_be_freed_again(void **state) {
  gmlake_stats before, after;
  void *p;
  (void)state;
  open_two(4);
  p = take_on(C, A);
  step(gmlake_record_stream(lake, p, B));
  hold(B);
  drop_on(p, A);
  before = stats();
  step_error(gmlake_free(lake, p, A), DOUBLE_FREE);
  step_error(gmlake_record_stream(lake, p, B), UNKNOWN_POINTER);
  after = stats();
  assert_memory_equal(&before, &after, sizeof(after));
  complete(B);
  finish();
}

static void every_recorded_stream_counts(void **state) {
  gmlake_stream others[5];
  void *p;
  size_t i;
  (void)state;
  open_two(16);
  p = take_on(C, A);
  for (i = 0; i < 5; i++) {
    others[i] = open_stream();
    hold(others[i]);
    step(gmlake_record_stream(lake, p, others[i]));
    step(gmlake_record_stream(lake, p, others[i])); /* again is the same */
  }
  drop_on(p, A);
  for (i = 0; i < 5; i++) {
    assert_ptr_not_equal(take_on(C, A), p);
    complete(others[4 - i]);
  }
  assert_ptr_equal(take_on(C, A), p);
  abandon();
}

static void notice_nothing(void *user, const gmlake_step *event) {
  (void)user;
  (void)event;
}

/* Each recorded stream is waited for, watched or not, whichever is the last at work. */
static void every_recorded_stream_is_waited_for(void **state) {
  gmlake_stream streams[9];
  size_t last, i;
  (void)state;
  for (last = 1; last < 9; last++) {
    void *p;
    prepare(2);
    if (last % 2) desc.observer.fn = notice_nothing;
    open_lake();
    for (i = 0; i < 9; i++) streams[i] = open_stream();
    p = take_on(4096, streams[0]);
    for (i = 1; i < 9; i++) step(gmlake_record_stream(lake, p, streams[i]));
    hold(streams[last]);
    drop_on(p, streams[0]);
    (void)trim_to(SIZE_MAX);
    assert_int_equal(stats().pending_bytes, 4096);
    complete(streams[last]);
    (void)trim_to(SIZE_MAX);
    assert_int_equal(stats().pending_bytes, 0);
    finish();
  }
}

static void record_stream_survives_lack_of_host_memory(void **state) {
  gmlake_stream stream;
  void *p;
  long n;
  gmlake_result result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  (void)state;
  start(4);
  stream = open_stream();
  p = take(C);
  for (n = 1; n < 10 && result; n++) {
    host_fail_in = n;
    result = gmlake_record_stream(lake, p, stream);
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    if (result) assert_error(result, OUT_OF_HOST_MEMORY);
  }
  assert_ok(result);
  assert_true(n > 2);
  hold(stream);
  drop(p);
  assert_int_equal(stats().pending_bytes, C); /* it was recorded in the end */
  complete(stream);
  finish();
}

/* ---- Forgotten streams ----------------------------------------------------------------------- */

/* The driver hands the value out again: the new stream is not the old one, whose work goes on. */
static void a_reused_value_is_another_stream(void **state) {
  gmlake_stream again;
  void *p, *q;
  (void)state;
  start(8);
  A = open_stream();
  p = take_on(2 * C, A);
  hold(A);
  drop_on(p, A);
  step(gmlake_forget_stream(lake, A));
  gmlake_mock_stream_destroy(mock, A);
  again = open_stream();
  assert_ptr_equal(again, A);
  q = take_on(2 * C, again);
  assert_ptr_not_equal(q, p);
  assert_int_equal(stats().stream_wait_count, 0);
  assert_int_equal(stats().reserved_bytes, 4 * C);
  drop_on(q, again);
  finish();
}

static void a_forgotten_streams_memory_is_had_behind_its_fence(void **state) {
  gmlake_stream again;
  void *p;
  (void)state;
  start(2);
  A = open_stream();
  p = take_on(2 * C, A);
  hold(A);
  drop_on(p, A);
  step(gmlake_forget_stream(lake, A));
  gmlake_mock_stream_destroy(mock, A);
  again = open_stream();
  assert_ptr_equal(take_on(2 * C, again), p);
  assert_int_equal(stats().stream_wait_count + stats().host_wait_count, 1);
  drop_on(p, again);
  finish();
}

static void a_forgotten_streams_blocks_live_on(void **state) {
  gmlake_allocation_info info;
  void *p;
  (void)state;
  open_two(4);
  p = take_on(C, A);
  step(gmlake_forget_stream(lake, A));
  gmlake_mock_stream_destroy(mock, A);
  step(gmlake_get_allocation(lake, p, &info));
  drop_on(p, B);
  assert_ptr_equal(take_on(C, B), p);
  drop_on(p, B);
  finish();
}

/* The stream that a block names is one that can be used. */
static void a_block_names_no_forgotten_stream(void **state) {
  gmlake_allocation_info info;
  gmlake_stream other;
  void *p;
  int i;
  (void)state;
  open_two(4);
  p = take_on(C, A);
  for (i = 0; i < 3; i++) {
    step(gmlake_get_allocation(lake, p, &info));
    assert_ptr_equal(info.stream, i ? NONE : A);
    step(gmlake_forget_stream(lake, i ? other : A));
    other = open_stream();
    drop_on(take_on(512, other), other); /* under A's number, the first of them */
  }
  drop_on(p, B);
  finish();
}

/* Streams that come and go: a block of each stays, and so does a use of each of another block. */
static void live_blocks_keep_no_numbers(void **state) {
  void *kept, *p;
  size_t metadata = 0, i;
  (void)state;
  start(300);
  kept = take(512);
  (void)take_on(C * 200, NONE);
  for (i = 0; i < 600; i++) {
    gmlake_stream stream = open_stream();
    p = take_on(C / 8, stream);
    step(gmlake_record_stream(lake, kept, stream));
    step(gmlake_forget_stream(lake, stream));
    gmlake_mock_stream_destroy(mock, stream);
    drop_on(p, LEGACY);
    if (i == 20) metadata = stats().metadata_bytes;
  }
  assert_in_range(lake->streams.count, GMLK_FIRST_STREAM + 2, GMLK_FIRST_STREAM + 4);
  assert_int_equal(stats().metadata_bytes, metadata);
  drop(kept);
  (void)trim_to(SIZE_MAX);
  assert_int_equal(stats().pending_bytes, 0);
  abandon();
}

/* A number does not serve again while its stream is at work; many at work do not bar the line. */
static void a_number_at_work_does_not_serve_again(void **state) {
  gmlake_stream busy[3], other;
  void *p[3], *q;
  size_t i;
  (void)state;
  open_two(64);
  (void)take_on(512, B);
  for (i = 0; i < 3; i++) {
    busy[i] = open_stream();
    p[i] = take_on(C, busy[i]);
    hold(busy[i]);
    drop_on(p[i], busy[i]);
  }
  for (i = 0; i < 3; i++) step(gmlake_forget_stream(lake, busy[i]));
  for (i = 0; i < 20; i++) {
    other = open_stream();
    q = take_on(C, other);
    assert_true(q != p[0] && q != p[1] && q != p[2]);
    drop_on(q, other);
    step(gmlake_forget_stream(lake, other));
    gmlake_mock_stream_destroy(mock, other);
  }
  assert_in_range(lake->streams.count, GMLK_FIRST_STREAM + 5, GMLK_FIRST_STREAM + 7);
  for (i = 0; i < 3; i++) complete(busy[i]);
  (void)trim_to(SIZE_MAX);
  assert_int_equal(lake->streams.used_count, 1);
  abandon();
}

/* Records an event behind the stream's work, as a program does that looks how far it is. */
static void look_at(gmlake_stream stream) {
  void *event = NULL;
  int code, done;
  assert_ok(mock->event_create(mock->user, &event, &code));
  assert_ok(mock->event_record(mock->user, event, stream, &code));
  assert_ok(mock->event_query(mock->user, event, &done, &code));
  assert_ok(mock->event_destroy(mock->user, event, &code));
}

/* A pending block has the tag of a stream whose number is another's when it is freed at last. */
static void a_pending_tag_outlives_its_streams_number(void **state) {
  gmlake_stream other, late;
  unsigned number;
  void *p;
  (void)state;
  open_two(2);
  late = open_stream();
  (void)take_on(512, late);
  p = take_on(C, A);
  step(gmlake_record_stream(lake, p, B));
  hold(B);
  drop_on(p, A);
  number = gmlk_stream_find(&lake->streams, A);
  step(gmlake_forget_stream(lake, A));
  other = open_stream();
  hold(other);
  (void)take_on(512, other);
  assert_int_equal(gmlk_stream_find(&lake->streams, other), number);
  look_at(other);
  complete(B);
  assert_ptr_equal(take_on(C, late), p); /* nothing to wait for: other never had it */
  assert_int_equal(stats().stream_wait_count + stats().host_wait_count, 0);
  complete(other);
  abandon();
}

/* The same of a place of a buffer: it is unmapped without a wait. */
static void a_place_outlives_its_streams_number(void **state) {
  gmlake_buffer *buffer;
  gmlake_stream other;
  unsigned number;
  (void)state;
  open_two(4);
  buffer = open_buffer(2);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, A));
  step(gmlake_buffer_resize(lake, buffer, 0, A));
  number = gmlk_stream_find(&lake->streams, A);
  step(gmlake_forget_stream(lake, A));
  (void)take_on(512, LEGACY);
  other = open_stream();
  (void)take_on(512, other);
  if (gmlk_stream_find(&lake->streams, other) != number) {
    other = open_stream();
    (void)take_on(512, other);
  }
  hold(other);
  look_at(other);
  assert_int_equal(trim_to(0), C); /* the other chunk was given to the block of 512 bytes */
  assert_int_equal(stats().host_wait_count, 0);
  complete(other);
  abandon();
}

/* A block recorded on a stream whose number is another's: that one is not waited for. */
static void a_recorded_use_outlives_its_streams_number(void **state) {
  gmlake_stream other;
  unsigned number;
  void *p;
  (void)state;
  open_two(4);
  p = take_on(C, A);
  step(gmlake_record_stream(lake, p, B));
  number = gmlk_stream_find(&lake->streams, B);
  step(gmlake_forget_stream(lake, B));
  other = open_stream();
  hold(other);
  (void)take_on(512, other);
  assert_int_equal(gmlk_stream_find(&lake->streams, other), number);
  drop_on(p, A);
  assert_int_equal(stats().pending_bytes, 0);
  p = take_on(C, A);
  step(gmlake_record_stream(lake, p, other)); /* which a stale use does not hide */
  drop_on(p, A);
  assert_int_equal(stats().pending_bytes, C);
  complete(other);
  abandon();
}

/* A block's own stream is gone and its number is a recorded one's: NONE does not speak for that. */
static void none_does_not_speak_for_the_number(void **state) {
  gmlake_stream other;
  unsigned number;
  void *p;
  (void)state;
  open_two(4);
  p = take_on(C, A);
  number = gmlk_stream_find(&lake->streams, A);
  step(gmlake_forget_stream(lake, A));
  other = open_stream();
  step(gmlake_record_stream(lake, p, other));
  assert_int_equal(gmlk_stream_find(&lake->streams, other), number);
  hold(other);
  drop_on(p, NONE);
  assert_int_equal(stats().pending_bytes, C);
  complete(other);
  abandon();
}

/* A capture takes no number that free memory may name: what it pins is the graph's alone. */
static void a_capture_has_a_number_of_its_own(void **state) {
  gmlake_pool *pool;
  (void)state;
  open_two(4);
  pool = open_pool(0);
  drop_on(take_from(pool, C, A), A);
  step(gmlake_forget_stream(lake, A));
  step(gmlake_capture_begin(lake, B, pool));
  step(gmlake_capture_end(lake, B));
  assert_int_equal(trim_to(0), C);
  step(gmlake_capture_begin(lake, B, pool)); /* and the same again */
  step(gmlake_capture_end(lake, B));
  assert_int_equal(lake->streams.count, GMLK_FIRST_STREAM + 2); /* B took that of A */
  finish();
}

/* Nor one that a pending block's tag names: the graph does not know that block. */
static void a_capture_leaves_pending_tags_alone(void **state) {
  gmlake_stream captured;
  gmlake_pool *pool;
  void *p;
  (void)state;
  open_two(4);
  pool = open_pool(0);
  captured = open_stream();
  (void)take_on(512, captured);
  p = take_from(pool, C, A);
  step(gmlake_record_stream(lake, p, B));
  hold(B);
  drop_on(p, A);
  step(gmlake_forget_stream(lake, A));
  (void)trim_to(SIZE_MAX); /* A is known to be done */
  step(gmlake_capture_begin(lake, captured, pool));
  step(gmlake_capture_end(lake, captured));
  complete(B);
  assert_int_equal(trim_to(0), C);
  abandon();
}

/* 65,533 streams at a time, all but the last of which are one record here. */
static void numbers_of_streams_end(void **state) {
  static gmlk_stream *items[GMLK_STREAMS_MAX + 1];
  gmlk_stream used;
  gmlk_streams streams;
  gmlk_host host;
  size_t i;
  (void)state;
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
  gmlk_stream_drop(&streams, GMLK_STREAMS_MAX - 1);
  assert_int_equal(gmlk_stream_add(&streams, &host, NONE, 1, 0), GMLK_STREAMS_MAX - 1);
  gmlk_host_free(&host, items[GMLK_STREAMS_MAX - 1], sizeof(gmlk_stream));
  assert_int_equal(host.bytes, 0);
}

static void a_busy_stream_with_many_frees_can_be_forgotten(void **state) {
  void *b[150];
  size_t i;
  (void)state;
  open_two(200);
  for (i = 0; i < 150; i++) b[i] = take_on(C, A);
  (void)take_on(512, B);
  hold(A);
  for (i = 0; i < 150; i++) drop_on(b[i], A);
  step(gmlake_forget_stream(lake, A));
  complete(A);
  assert_int_equal(trim_to(C), 150 * C);
  abandon();
}

/* Ten thousand streams, one after the other: numbers and host memory serve again. */
static void numbers_of_streams_are_recycled(void **state) {
  size_t flat = 0;
  int round;
  (void)state;
  start(8);
  for (round = 0; round < 10000; round++) {
    gmlake_stream stream = open_stream();
    void *p = NULL;
    assert_ok(gmlake_alloc(lake, C, stream, &p));
    assert_ok(gmlake_free(lake, p, stream));
    assert_ok(gmlake_forget_stream(lake, stream));
    gmlake_mock_stream_destroy(mock, stream);
    if (round % 500 == 0) assert_ok(gmlake_check(lake));
    if (round == 999) flat = stats().metadata_bytes;
    if (round > 999) assert_int_equal(stats().metadata_bytes, flat);
  }
  assert_int_equal(stats().metadata_bytes, host_bytes);
  assert_true(census().event_count < 1000);
  finish();
}

/* B waited for a stream that is gone. A new stream with its number has not been waited for. */
static void a_recycled_number_has_not_been_waited_for(void **state) {
  gmlake_stream old;
  uint64_t waits;
  void *p, *small;
  int i;
  (void)state;
  start(3);
  B = open_stream();
  small = take_on(512, B);
  old = open_stream();
  p = take_on(2 * C, old);
  hold(old);
  drop_on(p, old);
  assert_ptr_equal(take_on(2 * C, B), p); /* behind a wait */
  assert_int_equal(stats().stream_wait_count, 1);
  drop_on(p, B);
  complete(old);
  for (i = 0; i < 32; i++) { /* enough for numbers to serve again */
    step(gmlake_forget_stream(lake, old));
    gmlake_mock_stream_destroy(mock, old);
    old = open_stream();
    drop_on(take_on(512, old), old);
  }
  p = take_on(2 * C, old);
  hold(old);
  drop_on(p, old);
  waits = stats().stream_wait_count + stats().host_wait_count;
  assert_ptr_equal(take_on(2 * C, B), p);
  assert_int_equal(stats().stream_wait_count + stats().host_wait_count, waits + 1);
  complete(old);
  drop_on(p, B);
  drop_on(small, B);
  finish();
}

static void a_stream_that_the_driver_captures_cannot_be_forgotten(void **state) {
  void *p;
  (void)state;
  open_two(4);
  p = take_on(C, A);
  assert_ok(gmlake_mock_capture_begin(mock, A));
  step_error(gmlake_forget_stream(lake, A), CAPTURING);
  (void)gmlake_mock_capture_end(mock, A);
  step(gmlake_forget_stream(lake, A));
  drop_on(p, B);
  finish();
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static void pools_are_apart(void **state) {
  gmlake_pool *pool;
  gmlake_allocation_info info;
  void *p, *q;
  (void)state;
  start(8);
  pool = open_pool(0);
  p = take_from(pool, 16 * K, LEGACY);
  q = take(16 * K);
  assert_int_equal(stats().reserved_bytes, 2 * C); /* no chunk in common */
  step(gmlake_get_allocation(lake, p, &info));
  assert_ptr_equal(info.pool, pool);
  step(gmlake_get_allocation(lake, q, &info));
  assert_null(info.pool);
  drop(p);
  drop(q);
  assert_ptr_equal(take(C), q); /* not p's, though it is free as well */
  assert_ptr_equal(take_from(pool, C, LEGACY), p);
  assert_int_equal(stats().reserved_bytes, 2 * C);
  drop(p);
  drop(q);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void pools_have_their_own_chunk_size(void **state) {
  gmlake_pool_desc pool_desc;
  gmlake_pool *pool;
  size_t chunks;
  (void)state;
  start(16);
  memset(&pool_desc, 0, sizeof(pool_desc));
  for (chunks = 4; chunks <= 16; chunks *= 4) { /* 16: the device */
    pool_desc.chunk_bytes = chunks * C;
    step(gmlake_pool_create(lake, &pool_desc, &pool));
    drop(take_from(pool, 512, LEGACY));
    assert_int_equal(stats().reserved_bytes, chunks * C);
    assert_int_equal(stats().chunk_count, 1);
    step(gmlake_pool_destroy(lake, pool));
  }
  finish();
}

static void a_pool_that_cannot_be_made_leaves_nothing(void **state) {
  gmlake_pool *pool = NULL;
  size_t bytes;
  long n;
  gmlake_result result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  (void)state;
  start_with_faults(8);
  bytes = host_bytes;
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
  step_error(gmlake_pool_create(lake, NULL, &pool), OUT_OF_DEVICE_MEMORY);
  assert_null(pool);
  assert_int_equal(host_bytes, bytes);
  fail_call(ON_RESERVE, 0, GMLAKE_OK, 0);
  for (n = 1; n < 20 && result; n++) {
    host_fail_in = n;
    result = gmlake_pool_create(lake, NULL, &pool);
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    if (result) assert_error(result, OUT_OF_HOST_MEMORY);
    if (result) assert_int_equal(census().reservation_count, 1);
  }
  assert_ok(result);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void a_pool_with_live_blocks_stays(void **state) {
  gmlake_pool *pool;
  void *p, *q;
  (void)state;
  start(8);
  q = take(C);
  pool = open_pool(0);
  p = take_from(pool, 3 * C, LEGACY);
  step_error(gmlake_pool_destroy(lake, pool), INVALID_ARGUMENT);
  memset(p, 1, 3 * C);
  drop(p);
  assert_int_equal(stats().reserved_bytes, 4 * C);
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(stats().reserved_bytes, C);
  assert_int_equal(stats().chunk_count, 1);
  assert_int_equal(census().physical_bytes, C);
  assert_int_equal(census().reservation_count, 1);
  step_error(gmlake_free(lake, p, LEGACY), UNKNOWN_POINTER);
  drop(q);
  finish();
}

/* What other threads do while pool_destroy waits. */
static gmlake_pool *waited_pool;
static void *waited_block, *waited_event; /* the event is recorded behind the block's last use */

static gmlake_result meddle(void *user, void *event, int *out_code) {
  if (waited_block) {
    assert_ok(mock->event_record(user, waited_event, B, out_code));
    assert_ok(gmlake_free(lake, waited_block, B));
  } else {
    assert_ok(gmlake_capture_begin(lake, B, waited_pool));
  }
  faulty.event_wait = mock->event_wait;
  return mock->event_wait(user, event, out_code);
}

/* A pool with free memory that A still uses. */
static void open_waited_pool(void) {
  start_with_faults(8);
  A = open_stream();
  B = open_stream();
  waited_pool = open_pool(0);
  (void)take_on(512, B);
}

static void pool_destroy_ends_where_a_capture_begins_meanwhile(void **state) {
  (void)state;
  open_waited_pool();
  drop_on(take_from(waited_pool, C, A), A);
  hold(A);
  drop_on(take_from(waited_pool, C, A), A);
  waited_block = NULL;
  faulty.event_wait = meddle;
  step_error(gmlake_pool_destroy(lake, waited_pool), CAPTURING);
  assert_string_equal(last_error().text, "1 captures into the pool are under way: end them first");
  step(gmlake_capture_end(lake, B));
  step(gmlake_pool_destroy(lake, waited_pool));
  abandon();
}

static void *waited_blocks[8];
static size_t waited_count;

static gmlake_result free_another(void *user, void *event, int *out_code) {
  if (waited_count) assert_ok(gmlake_free(lake, waited_blocks[--waited_count], A));
  return mock->event_wait(user, event, out_code);
}

/* No capture is to blame: the pool is in use. */
static void pool_destroy_ends_where_frees_do_not(void **state) {
  void *first;
  (void)state;
  open_waited_pool();
  first = take_from(waited_pool, C / 2, A);
  for (waited_count = 0; waited_count < 8; waited_count++)
    waited_blocks[waited_count] = take_from(waited_pool, C / 2, A);
  hold(A);
  drop_on(first, A);
  faulty.event_wait = free_another;
  step_error(gmlake_pool_destroy(lake, waited_pool), INVALID_ARGUMENT);
  assert_string_equal(
      last_error().text,
      "other threads free the pool's blocks while it is destroyed: stop them first");
  assert_int_equal(waited_count, 0);
  step(gmlake_pool_destroy(lake, waited_pool));
  abandon();
}

static void pool_destroy_waits_for_what_is_freed_meanwhile(void **state) {
  void *b[3];
  size_t i;
  int of_window, is_done = 0, code = 0;
  (void)state;
  for (of_window = 0; of_window < 2; of_window++) {
    open_waited_pool();
    assert_ok(mock->event_create(mock->user, &waited_event, &code));
    drop_on(take_from(waited_pool, 3 * C, NONE), NONE);
    for (i = 0; i < 3; i++) b[i] = take_from(waited_pool, C, B);
    drop_on(b[0], B);
    drop_on(b[2], B);
    waited_block = of_window ? take_from(waited_pool, 2 * C, B) : b[1];
    if (of_window) drop_on(b[1], B);
    hold(A);
    hold(B);
    drop_on(take_from(waited_pool, C, A), A);
    faulty.event_wait = meddle;
    step(gmlake_pool_destroy(lake, waited_pool));
    assert_ok(mock->event_query(mock->user, waited_event, &is_done, &code));
    assert_true(is_done);
    assert_ok(mock->event_destroy(mock->user, waited_event, &code));
    abandon();
  }
}

static void *freed_in_turn[12];
static size_t wait_rounds;

/* Another thread that frees a block of the pool's during each wait. */
static gmlake_result wait_and_free(void *user, void *event, int *out_code) {
  assert_true(wait_rounds < 12);
  assert_ok(gmlake_free(lake, freed_in_turn[wait_rounds++], B));
  return mock->event_wait(user, event, out_code);
}

static void pool_destroy_waits_eight_times_at_most(void **state) {
  size_t i;
  (void)state;
  start_with_faults(16);
  B = open_stream();
  waited_pool = open_pool(0);
  for (i = 0; i < 12; i++) freed_in_turn[i] = take_from(waited_pool, C, B);
  hold(B);
  drop_on(take_from(waited_pool, C, B), B);
  faulty.event_wait = wait_and_free;
  wait_rounds = 0;
  step_error(gmlake_pool_destroy(lake, waited_pool), INVALID_ARGUMENT);
  assert_int_equal(wait_rounds, 8);
  faulty.event_wait = mock->event_wait;
  for (i = wait_rounds; i < 12; i++) drop_on(freed_in_turn[i], B);
  step(gmlake_pool_destroy(lake, waited_pool));
  finish();
}

static void destroy_takes_the_pools_along(void **state) {
  gmlake_pool *pool;
  (void)state;
  start(8);
  (void)open_pool(0);
  pool = open_pool(0);
  (void)take_from(pool, C, LEGACY);
  abandon();
}

static void pools_come_and_go_without_growth_of_metadata(void **state) {
  size_t flat = 0;
  int round;
  (void)state;
  start(8);
  for (round = 0; round < 200; round++) {
    gmlake_pool *first = open_pool(0), *second = open_pool(0);
    drop(take_from(first, C, LEGACY));
    drop(take_from(second, C, LEGACY));
    step(gmlake_pool_destroy(lake, first));
    step(gmlake_pool_destroy(lake, second));
    if (round == 9) flat = stats().metadata_bytes;
    if (round > 9) assert_int_equal(stats().metadata_bytes, flat);
  }
  finish();
}

/* ---- Captures -------------------------------------------------------------------------------- */

static void begin_capture(gmlake_stream stream, gmlake_pool *pool) {
  step(gmlake_capture_begin(lake, stream, pool));
  assert_ok(gmlake_mock_capture_begin(mock, stream));
}

/* The driver says here whether anything spoilt the capture. */
static void end_capture(gmlake_stream stream) {
  assert_ok(gmlake_mock_capture_end(mock, stream));
  step(gmlake_capture_end(lake, stream));
}

/* ---- Captures that end untold: by an exception, or by an illegal call ---- */

static int question_count, question_fails;
static gmlake_result count_questions(void *user, gmlake_stream stream, int *out_is, int *code) {
  question_count++;
  if (question_fails) return GMLAKE_ERROR_DRIVER;
  return mock->is_capturing(user, stream, out_is, code);
}

/* Whatever ended it, the stream can be captured again, and the pool goes. */
static void a_capture_that_ended_untold_is_over(void **state) {
  gmlake_pool *pools[6];
  void *p = NULL;
  int i, way;
  (void)state;
  for (way = 0; way < 3; way++) { /* nothing was allocated, something was, the capture was spoilt */
    open_two(32);
    for (i = 0; i < 5; i++) {
      int is_done, code;
      begin_capture(A, (pools[i] = open_pool(0)));
      if (way) p = take_on(4 * C, A);
      if (way == 2) {
        void *event;
        assert_ok(mock->event_create(mock->user, &event, &code));
        assert_error(mock->event_record(mock->user, event, A, &code), CAPTURING);
        assert_ok(mock->event_destroy(mock->user, event, &code));
      }
      is_done = gmlake_mock_capture_end(mock, A) == GMLAKE_OK;
      assert_int_equal(is_done, way < 2);
      if (way) drop_on(p, A);
      if (!way) continue;
      if (i % 2) step(gmlake_pool_destroy(lake, pools[i])); /* the others go with the rest */
    }
    begin_capture(A, (pools[5] = open_pool(0)));
    drop_on(take_on(4 * C, A), A);
    end_capture(A);
    step_error(gmlake_capture_end(lake, A), INVALID_ARGUMENT);
    for (i = 0; i < 6; i++)
      if (i == 5 || !way || i % 2 == 0) step(gmlake_pool_destroy(lake, pools[i]));
    (void)trim_to(0);
    assert_int_equal(stats().reserved_bytes, 0);
    finish();
  }
}

/* The lake finds out in a call that takes the driving lock; the end that is told later is none. */
static void the_end_may_be_told_after_the_lake_knows_it(void **state) {
  gmlake_pool *pool;
  void *p;
  (void)state;
  open_two(8);
  begin_capture(A, (pool = open_pool(0)));
  p = take_on(C, A);
  drop_on(p, A);
  (void)trim_to(0); /* it runs still */
  assert_int_equal(lake->streams.capture_count, 1);
  step_error(gmlake_pool_destroy(lake, pool), CAPTURING);
  assert_ok(gmlake_mock_capture_end(mock, A));
  (void)trim_to(0);
  assert_int_equal(lake->streams.capture_count, 0);
  assert_true(take_on(C, A) != p); /* a graph knows it */
  step(gmlake_capture_end(lake, A));
  step_error(gmlake_capture_end(lake, A), INVALID_ARGUMENT);
  begin_capture(A, pool);
  assert_ptr_equal(take_on(C, A), p);
  assert_ok(gmlake_mock_capture_end(mock, A));
  (void)trim_to(0);
  begin_capture(A, pool); /* which forgets that the lake ended the former one */
  end_capture(A);
  step_error(gmlake_capture_end(lake, A), INVALID_ARGUMENT);
  drop_on(p, NONE);
  finish();
}

/* A capture that only the lake was told of may be about to begin: it ends where a call says so. */
static void a_capture_that_was_never_seen_ends_by_its_stream(void **state) {
  gmlake_pool *pool, *other;
  int is_forgotten;
  (void)state;
  for (is_forgotten = 0; is_forgotten < 2; is_forgotten++) {
    open_two(8);
    pool = open_pool(0);
    other = open_pool(0);
    step(gmlake_capture_begin(lake, A, pool));
    (void)trim_to(0);
    step_error(gmlake_pool_destroy(lake, pool), CAPTURING);
    assert_ok(gmlake_mock_capture_begin(mock, A));
    step_error(gmlake_capture_begin(lake, A, other), CAPTURING); /* it runs */
    step_error(gmlake_forget_stream(lake, A), CAPTURING);
    assert_ok(gmlake_mock_capture_end(mock, A));
    if (is_forgotten) {
      step(gmlake_forget_stream(lake, A));
    } else {
      begin_capture(A, other);
      end_capture(A);
    }
    step(gmlake_pool_destroy(lake, pool));
    step(gmlake_pool_destroy(lake, other));
    finish();
  }
}

/* Memory that a dead capture would keep the host from waiting for serves. */
static void a_request_ends_dead_captures(void **state) {
  void *p, *q;
  (void)state;
  open_two(4);
  q = take_on(3 * C, B);
  begin_capture(A, open_pool(0));
  p = take_on(C, A);
  assert_ok(gmlake_mock_capture_end(mock, A));
  hold(B);
  drop_on(q, B);
  q = take_on(3 * C, NONE); /* after a wait of the host */
  assert_int_equal(lake->streams.capture_count, 0);
  drop_on(q, NONE);
  drop_on(p, NONE);
  finish();
}

/* A stream that may be gone is asked about in calls that name it only, and an answer that tells
   nothing ends nothing; nor does a backend that cannot be asked. */
static void who_is_asked_whether_a_capture_runs(void **state) {
  gmlake_backend shorter;
  gmlake_pool *pool;
  void *p;
  int may_end;
  (void)state;
  for (may_end = 0; may_end < 2; may_end++) {
    prepare(8);
    if (may_end) desc.flags = GMLAKE_STREAMS_MAY_END;
    use_faults();
    faulty.is_capturing = count_questions;
    open_lake();
    A = open_stream();
    begin_capture(A, (pool = open_pool(0)));
    question_count = 0;
    p = take_on(C, A); /* growth takes the driving lock, and asks again */
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

static void captured_memory_stays_pinned(void **state) {
  gmlake_pool *pool;
  void *inside, *kept, *p;
  (void)state;
  open_two(16);
  pool = open_pool(0);
  begin_capture(A, pool);
  inside = take_on(2 * C, A);
  kept = take_on(C, A);
  drop_on(inside, A);
  end_capture(A);
  drop_on(kept, B); /* freed later, and pinned all the same */
  p = take_from(pool, C, A);
  assert_true((char *)p < (char *)inside || (char *)p >= (char *)inside + 3 * C);
  drop_on(p, NONE);
  assert_int_equal(trim_to(0), C); /* p's */
  assert_int_equal(stats().reserved_bytes, 3 * C);
  assert_error(try_on(14 * C, B), OUT_OF_DEVICE_MEMORY); /* not even then */
  assert_int_equal(stats().reserved_bytes, 3 * C);
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(stats().reserved_bytes, 0);
  finish();
}

/* The first graph knows four chunks, the second captures one: the other three are still known to
   the first, so ordinary allocations do not get them and trim leaves them. */
static void graphs_that_share_a_pool_keep_what_they_know(void **state) {
  gmlake_pool *pool;
  char *first, *p;
  (void)state;
  open_two(16);
  pool = open_pool(0);
  begin_capture(A, pool);
  first = (char *)take_on(4 * C, A);
  drop_on(first, A);
  end_capture(A);
  begin_capture(A, pool);
  p = (char *)take_on(C, A);
  assert_true(p >= first && p < first + 4 * C); /* later captures do */
  assert_int_equal(trim_to(0), 0);
  drop_on(p, A);
  end_capture(A);
  p = (char *)take_from(pool, C, B);
  assert_true(p < first || p >= first + 4 * C);
  drop_on(p, NONE);
  assert_int_equal(trim_to(0), C);
  assert_int_equal(stats().reserved_bytes, 4 * C);
  finish();
}

static void captured_windows_stay_mapped_and_serve_again(void **state) {
  gmlake_pool *pool;
  void *b[3], *w;
  size_t i;
  uint64_t calls;
  (void)state;
  prepare(3);
  desc.stitched_bytes_max = 1;
  open_lake();
  A = open_stream();
  pool = open_pool(0);
  begin_capture(A, pool);
  drop_on(take_on(3 * C, A), A);
  for (i = 0; i < 3; i++) b[i] = take_on(C, A);
  drop_on(b[0], A);
  drop_on(b[2], A);
  w = take_on(2 * C, A);
  assert_int_equal(piece_count(w), 2);
  drop_on(w, A);
  end_capture(A);
  assert_int_equal(trim_to(0), 0);
  assert_error(try_on(C, A), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(stats().window_count, 1);
  begin_capture(A, pool);
  calls = stats().driver_call_count;
  assert_ptr_equal(take_on(2 * C, A), w);
  assert_int_equal(stats().driver_call_count, calls);
  end_capture(A);
  drop_on(w, A);
  drop_on(b[1], A);
  finish();
}

static void recapturing_needs_no_more_memory(void **state) {
  gmlake_pool *pool;
  void *p[4];
  size_t i, reserved = 0, metadata = 0;
  int round;
  (void)state;
  open_two(32);
  drop_on(take_on(C, B), B);
  pool = open_pool(0);
  for (round = 0; round < 1000; round++) {
    assert_ok(gmlake_capture_begin(lake, A, pool));
    assert_ok(gmlake_mock_capture_begin(mock, A));
    for (i = 0; i < 4; i++) assert_ok(gmlake_alloc(lake, (i + 1) * C, A, &p[i]));
    for (i = 0; i < 3; i++) assert_ok(gmlake_free(lake, p[i], A));
    assert_ok(gmlake_mock_capture_end(mock, A));
    assert_ok(gmlake_capture_end(lake, A));
    assert_ok(gmlake_free(lake, p[3], A));
    if (round % 50 == 0) assert_ok(gmlake_check(lake));
    if (round == 1) reserved = stats().reserved_bytes;
    if (round == 1) metadata = stats().metadata_bytes;
    if (round <= 1) continue;
    assert_int_equal(stats().reserved_bytes, reserved);
    assert_int_equal(stats().metadata_bytes, metadata);
  }
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void outside_memory_freed_inside_is_had_by_others_after_the_end(void **state) {
  gmlake_pool *pool;
  void *p;
  (void)state;
  open_two(3);
  pool = open_pool(0);
  p = take_on(2 * C, A);
  (void)take_on(512, B);
  begin_capture(A, pool);
  drop_on(p, A);
  assert_error(try_on(2 * C, B), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(last_error().pending_bytes, 2 * C);
  end_capture(A);
  assert_ptr_equal(take_on(2 * C, B), p);
  abandon();
}

/* Whatever the only stream freed before its capture is had there once it is complete, the pool's
   and the lake's, whether a fence was recorded before or not. */
static void a_capture_has_what_its_stream_freed_before(void **state) {
  int in_pool, is_fenced, is_late;
  (void)state;
  for (in_pool = 0; in_pool < 2; in_pool++)
    for (is_fenced = 0; is_fenced < 2; is_fenced++)
      for (is_late = 0; is_late < 2; is_late++) {
        gmlake_pool *pool;
        void *p;
        prepare(4);
        desc.limit_bytes = 2 * C;
        open_lake();
        A = open_stream();
        pool = open_pool(0);
        p = take_from(in_pool ? pool : NULL, 2 * C, A);
        hold(A);
        drop_on(p, A);
        if (is_fenced) assert_int_equal(trim_to(0), 0);
        if (!is_late) complete(A);
        begin_capture(A, pool);
        (void)take_on(2 * C, A);
        assert_int_equal(stats().reserved_bytes, 2 * C);
        assert_int_equal(stats().host_wait_count, is_late);
        end_capture(A);
        abandon();
      }
}

/* What is freed on a stream in its capture, or on the legacy stream in any, cannot be fenced. What
   was fenced there before is waited for all the same, and what little was not is, when the capture
   begins. */
static void a_capture_has_what_was_fenced_before(void **state) {
  int is_legacy, is_within;
  (void)state;
  for (is_legacy = 0; is_legacy < 2; is_legacy++)
    for (is_within = 0; is_within < 2; is_within++) {
      gmlake_pool *pool;
      gmlake_stream busy;
      void *p, *little;
      open_two(8);
      busy = is_legacy ? LEGACY : A;
      pool = open_pool(0);
      (void)take_on(512, B);
      p = take_on(5 * C, busy);
      if (is_within) (void)take_on(512, busy); /* between them, or they were one */
      little = take_on(512, busy);
      hold(busy);
      drop_on(p, busy);
      if (!is_within) drop_on(little, busy);
      begin_capture(A, pool);
      if (is_within) drop_on(little, busy);
      (void)take_on(4 * C, A);
      assert_int_equal(stats().host_wait_count, is_within ? 1 : 2); /* one an event */
      end_capture(A);
      abandon();
    }
}

/* Whose use was fenced before a capture, though another pool's was not. */
static void a_pool_is_destroyed_during_a_capture(void **state) {
  gmlake_pool *pool, *doomed, *kept;
  void *p, *q, *last;
  (void)state;
  start_with_faults(8);
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  doomed = open_pool(0);
  kept = open_pool(0);
  (void)take_on(512, B);
  p = take_from(doomed, 2 * C, A);
  q = take_from(kept, C, A);
  last = take_from(kept, C, A);
  hold(A);
  drop_on(p, A);
  drop_on(q, A);
  begin_capture(A, pool);
  drop_on(last, A);
  fail_call(ON_HOST_WAIT, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_pool_destroy(lake, kept), DRIVER);
  step_error(gmlake_pool_destroy(lake, kept), CAPTURING);
  assert_string_equal(last_error().text,
                      "work on the pool's memory is pending, and a capture forbids to record an "
                      "event behind it: end the capture first");
  assert_int_equal(stats().host_wait_count, 3);
  step(gmlake_pool_destroy(lake, doomed));
  end_capture(A);
  step(gmlake_pool_destroy(lake, kept));
  abandon();
}

static void a_device_lost_before_a_capture_ends_it(void **state) {
  gmlake_pool *pool;
  (void)state;
  start_with_faults(4);
  A = open_stream();
  pool = open_pool(0);
  drop_on(take_on(512, A), A);
  fail_call(ON_RECORD, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_error(gmlake_capture_begin(lake, A, pool), DEVICE_LOST);
  assert_string_equal(last_error().text,
                      "the backend's function failed, its driver's code is 1234");
  (void)gmlake_destroy(lake);
  close_mock();
}

static void capture_begin_survives_lack_of_host_memory(void **state) {
  gmlake_pool *pool;
  gmlake_stream streams[12];
  gmlake_result result;
  long n;
  size_t i, failed = 0;
  (void)state;
  start(8);
  pool = open_pool(0);
  for (i = 0; i < 12; i++) {
    streams[i] = open_stream();
    result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    for (n = 1; n < 10 && result; n++) {
      host_fail_in = n;
      result = gmlake_capture_begin(lake, streams[i], pool);
      host_fail_in = 0;
      assert_ok(gmlake_check(lake));
      failed += result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
      if (result) step_error(gmlake_capture_end(lake, streams[i]), INVALID_ARGUMENT);
    }
    assert_ok(result);
  }
  assert_true(failed >= 12);
  for (i = 0; i < 12; i++) step(gmlake_capture_end(lake, streams[i]));
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void destroy_during_a_capture_frees_everything(void **state) {
  gmlake_pool *pool;
  (void)state;
  open_two(8);
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, A, pool));
  drop_on(take_on(C, A), A);
  (void)take_on(2 * C, A);
  abandon();
}

/* ---- Waiting where it is hard ---------------------------------------------------------------- */

/* The events' array cannot be had: the wait makes do with an event of its own. */
static void pools_and_lakes_wait_without_host_memory(void **state) {
  gmlake_pool *pool;
  gmlake_alloc_desc wanted;
  int in_destroy;
  (void)state;
  for (in_destroy = 0; in_destroy < 2; in_destroy++) {
    open_two(8);
    pool = open_pool(0);
    wanted = request(C, 0, pool);
    hold(A);
    drop_on(take_with(&wanted, A), A);
    host_fail_in = host_fails_on = 1;
    if (in_destroy) {
      assert_ok(gmlake_destroy(lake));
    } else {
      assert_ok(gmlake_pool_destroy(lake, pool));
    }
    assert_true(census().host_wait_count > 0);
    host_fail_in = host_fails_on = 0;
    if (!in_destroy) assert_ok(gmlake_destroy(lake));
    close_mock();
  }
}

/* The legacy stream may not wait, and no captured stream either, whatever was planned before. */
static void nothing_waits_on_the_legacy_stream_during_a_capture(void **state) {
  gmlake_pool *pool;
  gmlk_drive drive;
  unsigned legacy, a, b;
  (void)state;
  open_two(8);
  pool = open_pool(0);
  drop(take(C));
  drop_on(take_on(C, B), B);
  legacy = gmlk_stream_find(&lake->streams, LEGACY);
  b = gmlk_stream_find(&lake->streams, B);
  step(gmlake_capture_begin(lake, A, pool));
  a = gmlk_stream_find(&lake->streams, A);
  assert_ok(gmlake_mock_capture_begin(mock, A));
  assert_ok(gmlk_drive_begin(&drive, &lake->driver));
  assert_error(gmlk_stream_wait(&lake->streams, &lake->host, &drive, legacy, b, 1),
               OUT_OF_DEVICE_MEMORY);
  assert_error(gmlk_stream_wait(&lake->streams, &lake->host, &drive, a, b, 1),
               OUT_OF_DEVICE_MEMORY);
  gmlk_drive_end(&drive);
  assert_int_equal(drive.calls, 0);
  assert_ok(gmlake_mock_capture_end(mock, A)); /* not spoilt */
  step(gmlake_capture_end(lake, A));
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* More events than the ring has: 93 frees of a chunk on A complete one by one. Three of four chunks
   are freed, joined, so clean with the third. What is idle is never more than what is complete. */
static void a_thinned_ring_makes_nothing_clean_too_early(void **state) {
  gmlake_budget budget;
  void *p[124];
  size_t i;
  (void)state;
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

#define MANY 40u /* streams that hold memory back */

/* Each of them has two halves of chunks behind one event: what was waited for is not waited for
   again, neither by one request nor by many. What completes makes room for other notes. */
static void no_wait_on_the_device_is_queued_twice(void **state) {
  gmlake_stream many[MANY];
  void *blocks[2 * MANY];
  size_t at_once, i;
  const gmlk_stream *s;
  (void)state;
  for (at_once = 1; at_once <= 2 * MANY; at_once *= 2 * MANY) {
    prepare(MANY);
    open_lake();
    A = open_stream();
    for (i = 0; i < MANY; i++) many[i] = open_stream();
    for (i = 0; i < 2 * MANY; i++) blocks[i] = take_on(C / 2, many[i % MANY]);
    for (i = 0; i < MANY; i++) hold(many[i]);
    for (i = 0; i < 2 * MANY; i++) drop_on(blocks[i], many[i % MANY]);
    for (i = 0; i < 2 * MANY; i += at_once) blocks[i] = take_on(at_once * C / 2, A);
    assert_int_equal(stats().stream_wait_count, MANY);
    assert_int_equal(stats().host_wait_count, 0);
    s = lake->streams.items[gmlk_stream_find(&lake->streams, A)];
    assert_int_equal(s->wait_count, MANY);
    for (i = 0; i < 2 * MANY; i += at_once) drop_on(blocks[i], A);
    for (i = 0; i < MANY; i++) complete(many[i]);
    for (i = 0; i < MANY; i++) {
      gmlake_stream next = open_stream();
      void *p = take_on(MANY * C, next);
      hold(next);
      drop_on(p, next);
      drop_on(take_on(MANY * C, A), A);
      complete(next);
    }
    assert_in_range(s->wait_capacity, MANY, 2 * MANY);
    finish();
  }
}

/* ---- Streams that are destroyed untold ------------------------------------------------------- */

static gmlake_backend shorter; /* the mock's table, less what a backend may lack */

static void open_may_end(size_t chunks) {
  prepare(chunks);
  desc.flags = GMLAKE_STREAMS_MAY_END;
  use_faults();
  open_lake();
  A = open_stream();
  B = open_stream();
}

/* Destroys a stream and gets its value back as another one's. */
static void replace(gmlake_stream stream) {
  gmlake_mock_stream_destroy(mock, stream);
  assert_ptr_equal(open_stream(), stream);
}

/* A stream of which the driver says that it is gone, as its capture is to begin. */
static void no_capture_begins_on_a_stream_that_is_gone(void **state) {
  gmlake_pool *pool;
  (void)state;
  open_faulty(8);
  pool = open_pool(0);
  drop_on(take_on(C / 2, A), A);
  gmlake_mock_stream_destroy(mock, A);
  step_error(gmlake_capture_begin(lake, A, pool), DRIVER);
  assert_string_equal(last_error().call, "gmlake_capture_begin");
  step_error(gmlake_capture_end(lake, A), INVALID_ARGUMENT);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* The legacy stream never ends, so it is asked nothing and needs no event. */
static void each_free_is_fenced_but_on_the_legacy_stream(void **state) {
  uint64_t calls;
  (void)state;
  open_may_end(4);
  calls = census().call_count;
  drop(take(512));
  calls = census().call_count - calls;
  drop(take(512));
  assert_int_equal(stats().event_count, 0);
  drop_on(take_on(512, A), A); /* and the second stream closes the first one's epoch */
  drop_on(take_on(512, A), A);
  assert_int_equal(stats().event_count, 3);
  finish();
}

/* A stream that stays costs what it costs in a lake without the flag, until it is forgotten. */
static void a_stream_that_stays_is_asked_and_fenced_as_others(void **state) {
  uint64_t calls;
  (void)state;
  open_may_end(4);
  (void)take_on(512, B);
  step(gmlake_mark_stream(lake, A, GMLAKE_STREAM_STAYS));
  step(gmlake_mark_stream(lake, A, GMLAKE_STREAM_URGENT)); /* is something else */
  drop_on(take_on(512, A), A);
  calls = census().call_count;
  drop_on(take_on(512, A), A);
  assert_int_equal(census().call_count, calls);
  assert_int_equal(stats().event_count, 0);
  step(gmlake_forget_stream(lake, A));
  assert_int_equal(stats().event_count, 1);
  drop_on(take_on(512, A), A);
  assert_int_equal(stats().event_count, 2);
  abandon();
}

/* What it freed since its last event can be had behind a wait: it may be fenced at any time. */
static void a_stream_that_stays_is_fenced_by_others(void **state) {
  void *p;
  (void)state;
  open_may_end(1);
  step(gmlake_mark_stream(lake, A, GMLAKE_STREAM_STAYS));
  p = take_on(C - 512, A);
  (void)take_on(512, B);
  hold(A);
  drop_on(p, A);
  assert_int_equal(stats().event_count, 0);
  assert_ptr_equal(take_on(C - 512, B), p);
  assert_int_equal(stats().stream_wait_count, 1);
  assert_int_equal(stats().host_wait_count, 0);
  complete(A);
  abandon();
}

/* Freed on a value that no stream has: pending for the whole device, under one number. */
static void a_free_on_a_stream_that_is_gone(void **state) {
  void *p[3];
  size_t i, numbers;
  (void)state;
  open_may_end(4);
  for (i = 0; i < 3; i++) p[i] = take_on(C, A);
  (void)take_on(512, B);
  gmlake_mock_stream_destroy(mock, A);
  drop_on(p[0], A);
  numbers = lake->streams.used_count;
  drop_on(p[1], A);
  drop_on(p[2], A);
  assert_int_equal(lake->streams.used_count, numbers);
  assert_int_equal(lake->streams.lost_count, 1);
  assert_int_equal(trim_to(0), 0);
  assert_ptr_equal(take_on(3 * C, B), p[0]);
  assert_int_equal(stats().host_wait_count, 1);
  assert_int_equal(lake->streams.lost_count, 0);
  abandon();
}

/* To forget a value is not to forget the stream that had it before. */
static void a_stream_is_forgotten_under_a_former_ones_value(void **state) {
  void *p;
  (void)state;
  open_may_end(2);
  p = take_on(C, A);
  hold(A);
  drop_on(p, A);
  replace(A);
  step(gmlake_forget_stream(lake, A));
  assert_int_equal(lake->streams.live_count, 0);
  assert_ptr_not_equal(take_on(C, A), p);
  step(gmlake_forget_stream(lake, A));
  step(gmlake_forget_stream(lake, A));
  abandon();
}

/* No id is asked for a stream that is being captured: that could spoil the capture. */
static void a_captured_stream_is_not_asked(void **state) {
  gmlake_pool *pool;
  void *p;
  (void)state;
  open_may_end(4);
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, A, pool));
  assert_ok(gmlake_mock_capture_begin(mock, A));
  p = take_on(C, A);
  drop_on(p, A);
  assert_ok(gmlake_mock_capture_end(mock, A));
  step(gmlake_capture_end(lake, A));
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* It went while it was captured, and another has its value when the capture ends: what it freed
   then waits for the device. */
static void a_captured_stream_that_went_is_not_its_successor(void **state) {
  gmlake_pool *pool;
  void *p;
  (void)state;
  open_may_end(2);
  pool = open_pool(0);
  p = take_on(C, A);
  step(gmlake_capture_begin(lake, A, pool));
  drop_on(p, A);
  hold(A);
  replace(A);
  step(gmlake_capture_end(lake, A));
  assert_int_equal(lake->streams.lost_count, 1);
  assert_ptr_not_equal(take_on(C, B), p);
  assert_int_equal(stats().host_wait_count, 0);
  assert_ptr_equal(take_on(C, B), p);
  assert_int_equal(stats().host_wait_count, 1);
  abandon();
}

/* An answer that tells nothing leaves the number as it is. */
static void an_id_that_cannot_be_had_changes_nothing(void **state) {
  void *p;
  (void)state;
  open_may_end(2);
  p = take_on(C, A);
  hold(A);
  drop_on(p, A);
  assert_ok(gmlake_mock_capture_begin(mock, A)); /* the lake is not told */
  assert_ptr_equal(take_on(C, A), p);
  assert_ok(gmlake_mock_capture_end(mock, A));
  abandon();
}

/* Nobody said that streams may end, and the driver says that one has: the others go on. */
static void a_stream_found_destroyed_is_left_out(void **state) {
  gmlake_budget budget;
  void *p, *q;
  (void)state;
  open_faulty(4);
  p = take_on(C / 2, A);
  q = take_on(2 * C, B);
  hold(A);
  drop_on(p, A);
  drop_on(q, B);
  gmlake_mock_stream_destroy(mock, A);
  assert_int_equal(trim_to(0), 2 * C);
  assert_error(last_error().result, DRIVER);
  assert_non_null(strstr(last_error().text, "destroyed before gmlake_forget_stream"));
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.pending_bytes, C / 2);
  assert_int_equal(budget.idle_bytes, C / 2);
  assert_int_equal(stats().host_wait_count, 0);
  q = take_on(4 * C, B); /* all there is, after a wait for the whole device */
  assert_int_equal(stats().host_wait_count, 1);
  drop_on(q, B);
  finish();
}

/* One call records on three streams: two of them are gone. */
static void two_streams_are_found_destroyed(void **state) {
  gmlake_stream other;
  void *p, *q, *r;
  (void)state;
  open_faulty(4);
  other = open_stream();
  p = take_on(C / 2, A);
  q = take_on(C / 2, B);
  r = take_on(C / 2, other);
  drop_on(p, A);
  drop_on(q, B);
  drop_on(r, other);
  gmlake_mock_stream_destroy(mock, A);
  gmlake_mock_stream_destroy(mock, B);
  (void)trim_to(0);
  assert_int_equal(lake->streams.lost_count, 2);
  assert_error(last_error().result, DRIVER);
  (void)take_on(4 * C, other);
  assert_int_equal(lake->streams.lost_count, 0);
  abandon();
}

/* A backend that cannot wait for the device: what is lost stays pending, and says so. */
static void a_backend_that_cannot_wait_for_the_device(void **state) {
  void *p;
  (void)state;
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
}

/* A capture forbids to wait for the device; the others' memory is waited for. */
static void the_device_is_not_waited_for_in_a_capture(void **state) {
  gmlake_pool *pool;
  void *p;
  (void)state;
  open_faulty(2);
  pool = open_pool(0);
  p = take_on(C, A);
  drop_on(p, A);
  gmlake_mock_stream_destroy(mock, A);
  assert_int_equal(trim_to(0), 0);
  step(gmlake_capture_begin(lake, B, pool));
  assert_ok(gmlake_mock_capture_begin(mock, B));
  assert_error(try_on(2 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_ok(gmlake_mock_capture_end(mock, B));
  step(gmlake_capture_end(lake, B));
  assert_ptr_equal(take_on(2 * C, LEGACY), p);
  abandon();
}

static gmlake_result refuse_device_wait(void *user, int *out_code) {
  (void)user;
  *out_code = 999;
  return GMLAKE_ERROR_DRIVER;
}

/* Memory that could not be waited for is as it was. */
static void a_wait_for_the_device_fails(void **state) {
  void *p;
  (void)state;
  prepare(2);
  shorter = *mock;
  shorter.device_wait = refuse_device_wait;
  desc.backend = &shorter;
  open_lake();
  A = open_stream();
  p = take_on(C, A);
  drop_on(p, A);
  gmlake_mock_stream_destroy(mock, A);
  assert_int_equal(trim_to(0), 0);
  assert_error(try_on(2 * C, LEGACY), DRIVER);
  assert_int_equal(last_error().driver_code, 999);
  assert_int_equal(lake->streams.lost_count, 1);
  assert_error(gmlake_destroy(lake), DRIVER);
  close_mock();
}

/* ---- Scenes -------------------------------------------------------------------------------- */

/* The lake never saw the stream before it was gone. */
static void a_free_on_a_stream_that_never_was(void **state) {
  void *p;
  (void)state;
  open_may_end(2);
  p = take_on(C, B);
  gmlake_mock_stream_destroy(mock, A);
  drop_on(p, A);
  drop_on(take_on(C, B), B);
  assert_int_equal(lake->streams.lost_count, 1);
  abandon();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_free_on_a_stream_that_never_was),
      cmocka_unit_test(null_and_one_are_the_legacy_stream),
      cmocka_unit_test(events_are_recorded_by_the_chunk_freed),
      cmocka_unit_test(metadata_of_streams_is_counted_to_the_byte),
      cmocka_unit_test(own_memory_is_reused_at_once),
      cmocka_unit_test(tags_of_two_streams_do_not_merge),
      cmocka_unit_test(a_chunk_of_sixty_holes_that_clean_chunks_begin),
      cmocka_unit_test(a_hole_of_a_run_among_shorter_ones),
      cmocka_unit_test(none_reuses_small_blocks_by_the_chunk),
      cmocka_unit_test(borrowing_and_growth_together_serve),
      cmocka_unit_test(an_idle_window_is_borrowed_behind_a_wait),
      cmocka_unit_test(a_lost_device_ends_the_borrowing),
      cmocka_unit_test(what_has_no_event_yet_is_fenced_before_growth),
      cmocka_unit_test(events_are_asked_for_in_steps),
      cmocka_unit_test(a_long_queue_of_frees_can_be_borrowed),
      cmocka_unit_test(a_long_queue_of_frees_can_be_waited_for),
      cmocka_unit_test(frees_ask_for_nothing_while_there_are_fences),
      cmocka_unit_test(the_host_waits_for_whichever_is_enough),
      cmocka_unit_test(a_request_that_is_refused_has_waited_for_all),
      cmocka_unit_test(the_host_waits_for_many_streams),
      cmocka_unit_test(a_failed_wait_is_told),
      cmocka_unit_test(of_failed_rungs_the_first_is_told),
      cmocka_unit_test(a_long_queue_of_frees_completes_in_parts),
      cmocka_unit_test(programs_of_two_streams_settle),
      cmocka_unit_test(out_of_memory_is_the_last_answer),
      cmocka_unit_test(a_free_survives_a_failed_record),
      cmocka_unit_test(a_failed_wait_on_the_device_is_undone),
      cmocka_unit_test(a_stream_is_recorded_once),
      cmocka_unit_test(a_pending_block_cannot_be_freed_again),
      cmocka_unit_test(every_recorded_stream_counts),
      cmocka_unit_test(every_recorded_stream_is_waited_for),
      cmocka_unit_test(record_stream_survives_lack_of_host_memory),
      cmocka_unit_test(a_reused_value_is_another_stream),
      cmocka_unit_test(a_forgotten_streams_memory_is_had_behind_its_fence),
      cmocka_unit_test(a_forgotten_streams_blocks_live_on),
      cmocka_unit_test(numbers_of_streams_end),
      cmocka_unit_test(a_block_names_no_forgotten_stream),
      cmocka_unit_test(live_blocks_keep_no_numbers),
      cmocka_unit_test(a_number_at_work_does_not_serve_again),
      cmocka_unit_test(a_pending_tag_outlives_its_streams_number),
      cmocka_unit_test(a_place_outlives_its_streams_number),
      cmocka_unit_test(a_recorded_use_outlives_its_streams_number),
      cmocka_unit_test(none_does_not_speak_for_the_number),
      cmocka_unit_test(a_capture_has_a_number_of_its_own),
      cmocka_unit_test(a_capture_leaves_pending_tags_alone),
      cmocka_unit_test(a_busy_stream_with_many_frees_can_be_forgotten),
      cmocka_unit_test(numbers_of_streams_are_recycled),
      cmocka_unit_test(a_recycled_number_has_not_been_waited_for),
      cmocka_unit_test(a_stream_that_the_driver_captures_cannot_be_forgotten),
      cmocka_unit_test(pools_are_apart),
      cmocka_unit_test(pools_have_their_own_chunk_size),
      cmocka_unit_test(a_pool_that_cannot_be_made_leaves_nothing),
      cmocka_unit_test(a_pool_with_live_blocks_stays),
      cmocka_unit_test(pool_destroy_waits_eight_times_at_most),
      cmocka_unit_test(pool_destroy_ends_where_a_capture_begins_meanwhile),
      cmocka_unit_test(pool_destroy_ends_where_frees_do_not),
      cmocka_unit_test(pool_destroy_waits_for_what_is_freed_meanwhile),
      cmocka_unit_test(destroy_takes_the_pools_along),
      cmocka_unit_test(pools_come_and_go_without_growth_of_metadata),
      cmocka_unit_test(a_capture_that_ended_untold_is_over),
      cmocka_unit_test(the_end_may_be_told_after_the_lake_knows_it),
      cmocka_unit_test(a_capture_that_was_never_seen_ends_by_its_stream),
      cmocka_unit_test(a_request_ends_dead_captures),
      cmocka_unit_test(who_is_asked_whether_a_capture_runs),
      cmocka_unit_test(captured_memory_stays_pinned),
      cmocka_unit_test(graphs_that_share_a_pool_keep_what_they_know),
      cmocka_unit_test(captured_windows_stay_mapped_and_serve_again),
      cmocka_unit_test(recapturing_needs_no_more_memory),
      cmocka_unit_test(outside_memory_freed_inside_is_had_by_others_after_the_end),
      cmocka_unit_test(a_capture_has_what_its_stream_freed_before),
      cmocka_unit_test(a_capture_has_what_was_fenced_before),
      cmocka_unit_test(a_pool_is_destroyed_during_a_capture),
      cmocka_unit_test(a_device_lost_before_a_capture_ends_it),
      cmocka_unit_test(capture_begin_survives_lack_of_host_memory),
      cmocka_unit_test(destroy_during_a_capture_frees_everything),
      cmocka_unit_test(pools_and_lakes_wait_without_host_memory),
      cmocka_unit_test(nothing_waits_on_the_legacy_stream_during_a_capture),
      cmocka_unit_test(no_capture_begins_on_a_stream_that_is_gone),
      cmocka_unit_test(a_thinned_ring_makes_nothing_clean_too_early),
      cmocka_unit_test(no_wait_on_the_device_is_queued_twice),
      cmocka_unit_test(each_free_is_fenced_but_on_the_legacy_stream),
      cmocka_unit_test(a_stream_that_stays_is_asked_and_fenced_as_others),
      cmocka_unit_test(a_stream_that_stays_is_fenced_by_others),
      cmocka_unit_test(a_free_on_a_stream_that_is_gone),
      cmocka_unit_test(a_stream_is_forgotten_under_a_former_ones_value),
      cmocka_unit_test(a_captured_stream_is_not_asked),
      cmocka_unit_test(a_captured_stream_that_went_is_not_its_successor),
      cmocka_unit_test(an_id_that_cannot_be_had_changes_nothing),
      cmocka_unit_test(a_stream_found_destroyed_is_left_out),
      cmocka_unit_test(two_streams_are_found_destroyed),
      cmocka_unit_test(a_backend_that_cannot_wait_for_the_device),
      cmocka_unit_test(the_device_is_not_waited_for_in_a_capture),
      cmocka_unit_test(a_wait_for_the_device_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
