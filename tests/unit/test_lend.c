/* Lend and recall: what a graph's pool has free serves transient requests, behind whoever used it,
   and is the graphs' again; what lives stays; nothing is lent that may not be. And the mock's
   launches of graphs: which it refuses, which it takes. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

static gmlake_stream A, B;
static gmlake_pool *pool;
static char *known[8]; /* what a graph knows */

static void capture(size_t count, size_t bytes) {
  size_t i;
  step(gmlake_capture_begin(lake, A, pool));
  assert_ok(gmlake_mock_capture_begin(mock, A));
  for (i = 0; i < count; i++) known[i] = (char *)take_on(bytes, A);
  for (i = 0; i < count; i++) drop_on(known[i], A);
  assert_ok(gmlake_mock_capture_end(mock, A));
  step(gmlake_capture_end(lake, A));
}

static void start_lending(size_t chunks) {
  start(chunks);
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
}

static void *borrow_on(size_t bytes, gmlake_stream stream) {
  gmlake_alloc_desc wanted = request(bytes, GMLAKE_TRANSIENT, NULL);
  wanted.label = "borrowed";
  return take_with(&wanted, stream);
}

static int is_lent(const void *ptr) {
  gmlake_allocation_info info;
  assert_ok(gmlake_get_allocation(lake, ptr, &info));
  assert_int_equal(info.pool == pool, (info.flags & GMLAKE_TRANSIENT) != 0);
  return info.pool == pool;
}

static void lend(gmlake_stream stream) { step(gmlake_pool_lend(lake, pool, stream)); }
static void recall(gmlake_stream stream) { step(gmlake_pool_recall(lake, pool, stream)); }

static void free_memory_serves(void **state) {
  void *ptr;
  uint64_t calls;
  size_t held;
  (void)state;
  start_lending(16);
  capture(1, 4 * C);
  held = stats().reserved_bytes;
  lend(A);
  calls = stats().driver_call_count;
  ptr = borrow_on(4 * C, A);
  assert_ptr_equal(ptr, known[0]);
  assert_true(is_lent(ptr));
  drop_on(ptr, A);
  recall(A);
  assert_int_equal(stats().driver_call_count, calls); /* one stream: no event, no wait */
  assert_int_equal(stats().reserved_bytes, held);
  ptr = borrow_on(4 * C, A); /* it is not lent now */
  assert_false(is_lent(ptr));
  assert_int_equal(stats().reserved_bytes, held + 4 * C);
  drop_on(ptr, A);
  capture(1, 4 * C); /* the graph's again */
  assert_int_equal(stats().reserved_bytes, held + 4 * C);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void pieces_are_stitched(void **state) {
  char *block, *again;
  gmlake_alloc_desc live;
  void *between;
  (void)state;
  start_lending(16);
  step(gmlake_capture_begin(lake, A, pool));
  known[0] = (char *)take_on(3 * C, A);
  live = request(C, 0, pool);
  between = take_with(&live, A);
  known[1] = (char *)take_on(3 * C, A);
  drop_on(known[0], A);
  drop_on(known[1], A);
  step(gmlake_capture_end(lake, A));
  lend(A);
  live = request(6 * C, GMLAKE_TRANSIENT | GMLAKE_NO_GROW, NULL);
  drop_on(take_with(&live, A), A);
  block = (char *)borrow_on(6 * C, A);
  assert_true(is_lent(block));
  assert_int_equal(piece_count(block), 2);
  memset(block, 1, 6 * C);
  memset(between, 2, C); /* stays */
  drop_on(block, A);
  again = (char *)borrow_on(6 * C, A);
  assert_ptr_equal(again, block); /* its window */
  drop_on(again, A);
  recall(A);
  assert_int_equal(((char *)between)[C - 1], 2);
  assert_int_equal(stats().window_count, 1);
  lend(A);
  assert_ptr_equal(borrow_on(6 * C, A), block); /* with no driver call, later too */
  drop_on(block, A);
  recall(A);
  step(gmlake_pool_destroy(lake, (drop_on(between, A), pool)));
  finish();
}

/* What a graph knows stays mapped and held, however short memory is. */
static void what_graphs_know_is_not_given_up(void **state) {
  gmlake_alloc_desc live;
  void *between, *window;
  (void)state;
  start_lending(8);
  step(gmlake_capture_begin(lake, A, pool));
  known[0] = (char *)take_on(C, A);
  live = request(C, 0, pool);
  between = take_with(&live, A);
  known[1] = (char *)take_on(C, A);
  drop_on(known[0], A);
  drop_on(known[1], A);
  window = take_on(2 * C, A);
  assert_int_equal(piece_count(window), 2);
  drop_on(window, A);
  step(gmlake_capture_end(lake, A));
  lend(A);
  assert_int_equal(trim_to(0), 0);
  assert_error(try_on(6 * C, A), OUT_OF_DEVICE_MEMORY);
  memset(window, 3, 2 * C);
  assert_int_equal(stats().window_count, 1);
  assert_ptr_equal(borrow_on(2 * C, A), window);
  drop_on(window, A);
  recall(A);
  assert_error(try_on(6 * C, A), OUT_OF_DEVICE_MEMORY);
  memset(window, 4, 2 * C);
  drop_on(between, A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* Nor when windows are dropped because there are too many. */
static void windows_of_graphs_stay(void **state) {
  gmlake_alloc_desc live;
  void *between, *window, *other, *blocks[4];
  size_t i;
  (void)state;
  prepare(16);
  desc.stitched_bytes_max = 2 * C;
  open_lake();
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, A, pool));
  known[0] = (char *)take_on(C, A);
  live = request(C, 0, pool);
  between = take_with(&live, A);
  known[1] = (char *)take_on(C, A);
  drop_on(known[0], A);
  drop_on(known[1], A);
  window = take_on(2 * C, A);
  assert_int_equal(piece_count(window), 2);
  drop_on(window, A);
  step(gmlake_capture_end(lake, A));
  lend(A);
  recall(A);
  live.pool = NULL;
  for (i = 0; i < 4; i++) blocks[i] = take_with(&live, A);
  drop_on(blocks[0], A);
  drop_on(blocks[2], A);
  other = take_on(2 * C, A);
  assert_int_equal(piece_count(other), 2);
  drop_on(other, A);
  memset(window, 4, 2 * C);
  drop_on(blocks[1], A);
  drop_on(blocks[3], A);
  drop_on(between, A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* Nor a window that was made for a borrower, once a capture has used it. */
static void a_borrowers_window_may_become_a_graphs(void **state) {
  gmlake_alloc_desc live;
  void *between, *window, *other, *blocks[4];
  size_t i;
  (void)state;
  prepare(16);
  desc.stitched_bytes_max = 2 * C;
  open_lake();
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, A, pool));
  known[0] = (char *)take_on(C, A);
  live = request(C, 0, pool);
  between = take_with(&live, A);
  known[1] = (char *)take_on(C, A);
  drop_on(known[0], A);
  drop_on(known[1], A);
  step(gmlake_capture_end(lake, A));
  lend(A);
  live = request(2 * C, GMLAKE_TRANSIENT | GMLAKE_NO_GROW, NULL);
  window = take_with(&live, A);
  assert_int_equal(piece_count(window), 2);
  drop_on(window, A);
  recall(A);
  capture(1, 2 * C);
  assert_ptr_equal(known[0], window);
  lend(A);
  recall(A);
  flood(1); /* whatever A did is seen complete */
  for (i = 0; i < 4; i++) blocks[i] = take_on(C, A);
  drop_on(blocks[0], A);
  drop_on(blocks[2], A);
  other = take_on(2 * C, A); /* too many windows */
  assert_int_equal(piece_count(other), 2);
  drop_on(other, A);
  assert_true(gmlake_mock_has_access(mock, window, 2 * C, 0));
  drop_on(blocks[1], A);
  drop_on(blocks[3], A);
  drop_on(between, A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* Each stream that takes some waits for all others that used it; recall waits for all. */
static void streams_wait_for_each_other(void **state) {
  uint64_t waits;
  void *ptr;
  (void)state;
  start_lending(16);
  capture(1, 4 * C);
  gmlake_mock_stream_hold(mock, A);
  gmlake_mock_stream_hold(mock, B);
  lend(A);
  waits = stats().stream_wait_count;
  ptr = borrow_on(2 * C, B); /* behind the graphs' work on A */
  assert_true(is_lent(ptr));
  assert_int_equal(stats().stream_wait_count, ++waits);
  drop_on(borrow_on(C, B), B); /* it has waited */
  assert_int_equal(stats().stream_wait_count, waits);
  drop_on(borrow_on(C, A), A); /* behind B's work */
  assert_int_equal(stats().stream_wait_count, ++waits);
  drop_on(ptr, B);
  recall(A);
  assert_int_equal(stats().stream_wait_count, ++waits);
  gmlake_mock_stream_finish(mock, A);
  gmlake_mock_stream_finish(mock, B);
  lend(B);
  drop_on(borrow_on(C, B), B);
  recall(B);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* GMLAKE_STREAM_NONE and streams that communicate wait for nobody. */
static void who_may_not_wait_gets_other_memory(void **state) {
  void *ptr;
  (void)state;
  start_lending(32);
  capture(1, 4 * C);
  gmlake_mock_stream_hold(mock, A);
  step(gmlake_mark_stream(lake, B, GMLAKE_STREAM_COMMUNICATION));
  lend(A);
  ptr = borrow_on(C, B);
  assert_false(is_lent(ptr));
  drop_on(ptr, B);
  ptr = borrow_on(C, NONE);
  assert_false(is_lent(ptr));
  drop_on(ptr, NONE);
  gmlake_mock_stream_finish(mock, A);
  drop_on(borrow_on(C, A), A);
  (void)trim_to(SIZE_MAX); /* asks what is complete */
  ptr = borrow_on(C, NONE);
  assert_true(is_lent(ptr));
  drop_on(ptr, NONE);
  ptr = borrow_on(C, B);
  assert_true(is_lent(ptr));
  drop_on(ptr, B);
  recall(A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* No event may be recorded on the legacy stream during a capture, so nobody can be told to wait for
   it, and nothing is made ready for who would have to. */
static void what_cannot_be_waited_for_is_not_stitched(void **state) {
  gmlake_pool *other;
  void *between, *ptr;
  gmlake_alloc_desc live;
  (void)state;
  start_lending(32);
  step(gmlake_capture_begin(lake, A, pool));
  known[0] = (char *)take_on(3 * C, A);
  live = request(C, 0, pool);
  between = take_with(&live, A);
  known[1] = (char *)take_on(3 * C, A);
  drop_on(known[0], A);
  drop_on(known[1], A);
  step(gmlake_capture_end(lake, A));
  gmlake_mock_stream_hold(mock, LEGACY);
  other = open_pool(0);
  step(gmlake_capture_begin(lake, A, other));
  lend(LEGACY);
  ptr = borrow_on(6 * C, B);
  assert_false(is_lent(ptr));
  assert_int_equal(stats().stitch_count, 0);
  drop_on(ptr, B);
  step(gmlake_capture_end(lake, A));
  ptr = borrow_on(6 * C, B); /* behind a wait on the device */
  assert_true(is_lent(ptr));
  assert_int_equal(stats().stitch_count, 1);
  drop_on(ptr, B);
  recall(B);
  drop_on(between, B);
  step(gmlake_pool_destroy(lake, pool));
  step(gmlake_pool_destroy(lake, other));
  finish();
}

static void a_borrower_keeps_it_lent(void **state) {
  char text[64];
  void *ptr;
  (void)state;
  start_lending(16);
  capture(2, 2 * C);
  lend(A);
  ptr = borrow_on(C - 100, A);
  step_error(gmlake_pool_recall(lake, pool, A), BUSY);
  assert_non_null(strstr(last_error().text, "(borrowed)"));
  (void)snprintf(text, sizeof(text), "0x%llx of %llu bytes", (unsigned long long)(uintptr_t)ptr,
                 (unsigned long long)(C - 100));
  assert_non_null(strstr(last_error().text, text));
  step_error(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, NULL), BUSY);
  assert_non_null(strstr(last_error().text, "(borrowed)"));
  step_error(gmlake_pool_destroy(lake, pool), BUSY);
  step_error(gmlake_capture_begin(lake, A, pool), BUSY);
  step_error(gmlake_pool_lend(lake, pool, A), BUSY);
  drop_on(ptr, A);
  step_error(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, NULL), BUSY);
  assert_non_null(strstr(last_error().text, "gmlake_pool_recall"));
  recall(A);
  step_error(gmlake_pool_recall(lake, pool, A), INVALID_ARGUMENT);
  step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, NULL));
  step_error(gmlake_pool_lend(lake, pool, A), ASLEEP);
  step(gmlake_pool_wake(lake, pool));
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void captures_and_loans_exclude_each_other(void **state) {
  void *ptr;
  (void)state;
  start_lending(16);
  capture(1, 2 * C);
  step(gmlake_capture_begin(lake, A, pool));
  step_error(gmlake_pool_lend(lake, pool, B), CAPTURING);
  step(gmlake_capture_end(lake, A));
  lend(A);
  ptr = borrow_on(C, B);
  drop_on(ptr, B);
  gmlake_mock_stream_hold(mock, A);
  drop_on(borrow_on(C, A), A);
  {
    gmlake_pool *other = open_pool(0);
    step(gmlake_capture_begin(lake, B, other));
    assert_ok(gmlake_mock_capture_begin(mock, B));
    ptr = borrow_on(C, B); /* the capture's pool serves it */
    assert_false(is_lent(ptr));
    drop_on(ptr, B);
    step_error(gmlake_pool_lend(lake, other, B), CAPTURING);
    step_error(gmlake_pool_recall(lake, pool, B), CAPTURING);
    assert_ok(gmlake_mock_capture_end(mock, B));
    step(gmlake_capture_end(lake, B));
    recall(B);
    gmlake_mock_stream_finish(mock, A);
    step(gmlake_pool_destroy(lake, other));
  }
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* A freed borrower that other streams still use: recall makes the stream wait for them, too. */
static void pending_borrowers_do_not_keep_it(void **state) {
  gmlake_stream third;
  uint64_t waits;
  void *ptr;
  (void)state;
  start_lending(16);
  capture(1, 2 * C);
  lend(A);
  ptr = borrow_on(2 * C, A);
  third = open_stream();
  step(gmlake_record_stream(lake, ptr, B));
  step(gmlake_record_stream(lake, ptr, third));
  gmlake_mock_stream_hold(mock, B);
  gmlake_mock_stream_hold(mock, third);
  drop_on(ptr, A);
  waits = stats().stream_wait_count;
  recall(A);
  assert_int_equal(stats().stream_wait_count, waits + 2);
  gmlake_mock_stream_finish(mock, B);
  gmlake_mock_stream_finish(mock, third);
  (void)trim_to(SIZE_MAX);
  capture(1, 2 * C);
  assert_ptr_equal(known[0], ptr); /* the graphs' */
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* A loan's memory is not for requests without the flag, nor for others' pools. */
/* The slot of a chunk that is freed while its pool sleeps is nobody's: a graph does not know what
   borrowers are given there later. */
static void what_slept_and_went_is_no_graphs(void **state) {
  void *block, *borrowed;
  (void)state;
  start_lending(16);
  block = take_from(pool, C, A);
  capture(1, C);
  step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, NULL));
  drop_on(block, NONE);
  step(gmlake_pool_wake(lake, pool));
  assert_int_equal(stats().reserved_bytes, C);
  lend(A);
  borrowed = borrow_on(2 * C, A);
  assert_true(is_lent(borrowed));
  drop_on(borrowed, A);
  recall(A);
  flood(1);
  (void)trim_to(0);
  assert_int_equal(stats().reserved_bytes, C); /* what the graph knows */
  finish();
}

static void others_do_not_get_it(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_pool *other;
  void *ptr;
  (void)state;
  start_lending(16);
  other = open_pool(0);
  capture(1, 2 * C);
  lend(A);
  ptr = take_on(C, A);
  assert_false(is_lent(ptr));
  drop_on(ptr, A);
  wanted = request(C, 0, pool);
  ptr = take_with(&wanted, A);
  assert_true(ptr != known[0]);
  drop_on(ptr, A);
  wanted = request(C, GMLAKE_TRANSIENT, other);
  ptr = take_with(&wanted, A);
  assert_false(is_lent(ptr));
  drop_on(ptr, A);
  wanted = request(C, GMLAKE_TRANSIENT, pool);
  ptr = take_with(&wanted, A);
  assert_true(is_lent(ptr));
  drop_on(ptr, A);
  recall(A);
  step(gmlake_pool_destroy(lake, pool));
  step(gmlake_pool_destroy(lake, other));
  finish();
}

/* Together with what it has, few chunks serve; no graph knows them, so they can be returned. */
static void a_pool_grows_by_what_is_missing(void **state) {
  void *ptr;
  size_t held;
  (void)state;
  start_lending(16);
  capture(1, 4 * C);
  held = stats().reserved_bytes;
  lend(A);
  ptr = borrow_on(6 * C, A);
  assert_true(is_lent(ptr));
  assert_int_equal(stats().reserved_bytes, held + 2 * C);
  drop_on(ptr, A);
  recall(A);
  lend(A);
  ptr = borrow_on(6 * C, A); /* lent again */
  assert_int_equal(stats().reserved_bytes, held + 2 * C);
  drop_on(ptr, A);
  recall(A);
  assert_int_equal(trim_to(0), 2 * C);
  assert_int_equal(stats().reserved_bytes, held);
  drop_on(take_on(6 * C, A), A); /* free memory elsewhere comes before growth */
  lend(A);
  ptr = borrow_on(6 * C, A);
  assert_false(is_lent(ptr));
  assert_int_equal(stats().reserved_bytes, held + 6 * C);
  drop_on(ptr, A);
  {
    gmlake_alloc_desc wanted = request(8 * C, GMLAKE_TRANSIENT | GMLAKE_NO_GROW, NULL);
    assert_error(try_with(&wanted, A), OUT_OF_DEVICE_MEMORY);
  }
  recall(A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* What was lent in a chunk that no graph knows is as any free memory again, also beside a block. */
static void beside_live_blocks_all_is_returned(void **state) {
  gmlake_alloc_desc live;
  void *ptr;
  (void)state;
  start_lending(16);
  live = request(C / 4, 0, pool);
  drop_on(take_with(&live, A), A);
  lend(A);
  ptr = take_with(&live, A); /* no borrower: of what nobody has used */
  drop_on(borrow_on(C / 4, A), A);
  recall(A);
  assert_int_equal(trim_to(0), 0);
  drop_on(ptr, A);
  assert_int_equal(trim_to(0), C);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* Any call of the driver or of malloc fails, in a program that lends, borrows and recalls. */
static int lend_a_little(void) { /* returns whether it was recalled behind B's work */
  gmlake_alloc_desc wanted = request(3 * C, GMLAKE_TRANSIENT, NULL);
  void *a = NULL, *b = NULL;
  gmlake_result recalled;
  wanted.label = "borrowed";
  (void)gmlake_pool_lend(lake, pool, A);
  assert_ok(gmlake_check(lake));
  (void)gmlake_alloc_with(lake, &wanted, A, &a);
  assert_ok(gmlake_check(lake));
  (void)gmlake_alloc_with(lake, &wanted, B, &b);
  assert_ok(gmlake_check(lake));
  while (a && gmlake_free(lake, a, B) == GMLAKE_ERROR_OUT_OF_HOST_MEMORY) continue;
  while (b && gmlake_free(lake, b, A) == GMLAKE_ERROR_OUT_OF_HOST_MEMORY) continue;
  assert_ok(gmlake_check(lake));
  recalled = gmlake_pool_recall(lake, pool, A);
  assert_ok(gmlake_check(lake));
  return recalled == GMLAKE_OK && a;
}

static gmlake_result launch(uint64_t graph, gmlake_stream stream) {
  return gmlake_mock_launch(mock, pool, graph, stream);
}

static void *record_on(gmlake_stream stream) {
  void *event = NULL;
  int code;
  assert_ok(mock->event_create(mock->user, &event, &code));
  assert_ok(mock->event_record(mock->user, event, stream, &code));
  return event;
}

static void wait_on(gmlake_stream stream, void *event) {
  int code;
  assert_ok(mock->stream_wait(mock->user, stream, event, &code));
}

static void end_event(void *event) {
  int code;
  assert_ok(mock->event_destroy(mock->user, event, &code));
}

/* A block that was borrowed was freed on B, which is held: what A does now is behind that. */
static void launch_behind_borrowers(void) {
  void *event;
  int done, code;
  assert_ok(launch(1, A));
  event = record_on(A);
  gmlake_mock_stream_finish(mock, A);
  assert_ok(mock->event_query(mock->user, event, &done, &code));
  assert_false(done);
  end_event(event);
  gmlake_mock_stream_hold(mock, A);
}

static void make_holes(void) {
  gmlake_alloc_desc live = request(C, 0, NULL);
  size_t i;
  void *held[6];
  live.pool = pool;
  step(gmlake_capture_begin(lake, A, pool));
  for (i = 0; i < 6; i++) held[i] = take_with(&live, A);
  for (i = 0; i < 6; i++)
    if (i != 2) drop_on(held[i], A);
  step(gmlake_capture_end(lake, A));
  known[0] = (char *)held[2];
}

static void every_call_may_fail(void **state) {
  static const gmlake_result results[] = {GMLAKE_ERROR_DRIVER, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                          GMLAKE_ERROR_DEVICE_LOST};
  size_t i;
  long at;
  int is_behind;
  (void)state;
  for (i = 0; i < 3; i++)
    for (at = 1;; at++) {
      uint64_t calls;
      start_lending(32);
      make_holes();
      gmlake_mock_stream_hold(mock, A);
      gmlake_mock_stream_hold(mock, B);
      calls = census().call_count;
      gmlake_mock_fail_at(mock, calls + (uint64_t)at, results[i], 0);
      is_behind = lend_a_little();
      calls = census().call_count - calls;
      gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
      if (is_behind) launch_behind_borrowers();
      if (results[i] == GMLAKE_ERROR_DRIVER) (void)lend_a_little();
      (void)gmlake_destroy(lake);
      gmlake_mock_stream_destroy(mock, A);
      close_mock();
      if (calls < (uint64_t)at) break;
    }
  for (at = 1; at < 100; at++) {
    long left;
    start_lending(32);
    make_holes();
    host_fail_in = at;
    (void)lend_a_little();
    left = host_fail_in;
    host_fail_in = 0;
    (void)lend_a_little();
    lend(A);
    recall(A);
    drop_on(known[0], A);
    step(gmlake_pool_destroy(lake, pool));
    finish();
    if (left) break;
  }
  assert_true(at > 4 && at < 100);
}

/* Many shapes, each in and out: what is held does not grow, and pools come and go. */
static void rounds_leave_nothing_behind(void **state) {
  size_t held = 0, metadata = 0;
  unsigned round;
  (void)state;
  start_lending(64);
  capture(6, 3 * C);
  for (round = 0; round < 200; round++) {
    void *blocks[4];
    unsigned i;
    lend(round % 2 ? A : B);
    for (i = 0; i < 4; i++) blocks[i] = borrow_on((round % 7 + i + 1) * C / 2, i % 2 ? A : B);
    for (i = 0; i < 4; i++) drop_on(blocks[i], (round + i) % 2 ? A : B);
    recall(A);
    if (round == 20) held = stats().reserved_bytes;
    if (round == 20) metadata = stats().metadata_bytes;
  }
  assert_int_equal(stats().reserved_bytes, held);
  assert_true(stats().metadata_bytes <= metadata + metadata / 4);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void streams_may_end(void **state) {
  void *ptr;
  (void)state;
  prepare(16);
  desc.flags = GMLAKE_STREAMS_MAY_END;
  open_lake();
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  capture(1, 4 * C);
  lend(A);
  ptr = borrow_on(2 * C, B);
  drop_on(ptr, B);
  gmlake_mock_stream_destroy(mock, B);
  B = open_stream();
  ptr = borrow_on(2 * C, B);
  drop_on(ptr, B);
  gmlake_mock_stream_destroy(mock, A);
  A = open_stream();
  recall(A);
  lend(A);
  ptr = borrow_on(6 * C, A); /* the pool grows */
  drop_on(ptr, A);
  recall(A);
  gmlake_mock_stream_destroy(mock, A);
  assert_int_equal(trim_to(0), 2 * C); /* nobody has to wait for the device */
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* A stream that ended untold, of which the driver says so. */
static void no_loan_on_a_stream_that_is_gone(void **state) {
  (void)state;
  prepare(16);
  use_faults();
  desc.flags = GMLAKE_STREAMS_MAY_END;
  open_lake();
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  capture(1, 4 * C);
  drop_on(take_on(C / 2, B), B);
  gmlake_mock_stream_destroy(mock, B);
  step_error(gmlake_pool_lend(lake, pool, B), DRIVER);
  assert_non_null(strstr(last_error().text, "was it destroyed?"));
  lend(A);
  step_error(gmlake_pool_recall(lake, pool, B), DRIVER);
  recall(A);
  fail_call(ON_RECORD, 1, GMLAKE_ERROR_DEVICE_LOST, 1);
  assert_error(gmlake_pool_lend(lake, pool, A),
               DEVICE_LOST); /* an event behind what is before it */
  fail_call(ON_RECORD, 0, GMLAKE_OK, 0);
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  close_mock();
}

/* Graphs were launched on the legacy stream before the loan. While another stream is captured no
   event can be recorded behind them, so the pool cannot go. */
static void a_pool_that_was_lent_stays_while_launches_may_run(void **state) {
  gmlake_pool *other;
  (void)state;
  start_lending(16);
  capture(1, 4 * C);
  other = open_pool(0);
  gmlake_mock_stream_hold(mock, LEGACY);
  step(gmlake_capture_begin(lake, B, other));
  lend(LEGACY);
  recall(LEGACY);
  step_error(gmlake_pool_destroy(lake, pool), CAPTURING);
  step(gmlake_capture_end(lake, B));
  gmlake_mock_stream_finish(mock, LEGACY);
  step(gmlake_pool_destroy(lake, pool));
  step(gmlake_pool_destroy(lake, other));
  finish();
}

static void *borrowed_meanwhile;

static gmlake_result wait_while_another_borrows(void *user, int *out_code) {
  gmlake_alloc_desc wanted = request(C, GMLAKE_TRANSIENT, NULL);
  if (!borrowed_meanwhile) assert_ok(gmlake_alloc_with(lake, &wanted, B, &borrowed_meanwhile));
  return mock->device_wait(user, out_code);
}

/* A borrower has no event, and may have ended: recall waits for the device, and meanwhile another
   thread borrows. */
static void a_loan_while_recall_waits_is_not_recalled(void **state) {
  (void)state;
  prepare(16);
  use_faults();
  faulty.device_wait = wait_while_another_borrows;
  desc.flags = GMLAKE_STREAMS_MAY_END;
  open_lake();
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  capture(1, 4 * C);
  lend(A);
  borrowed_meanwhile = borrow_on(2 * C, B);
  fail_call(ON_RECORD, 1, GMLAKE_ERROR_UNSUPPORTED, 0);
  drop_on(borrowed_meanwhile, B);
  borrowed_meanwhile = NULL;
  step_error(gmlake_pool_recall(lake, pool, A), BUSY);
  assert_true(is_lent(borrowed_meanwhile));
  drop_on(borrowed_meanwhile, B);
  recall(A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* Pools that are gone, or not lent, have free memory, too. */
static void only_pools_that_are_lent_serve(void **state) {
  gmlake_pool *others[2];
  void *ptr;
  int i;
  (void)state;
  start_lending(24);
  others[0] = pool;
  others[1] = open_pool(0);
  pool = open_pool(0);
  for (i = 0; i < 2; i++) drop_on(take_from(others[i], 4 * C, A), A);
  capture(1, 4 * C);
  step(gmlake_pool_destroy(lake, others[0]));
  lend(A);
  ptr = borrow_on(3 * C, A);
  assert_true(is_lent(ptr));
  drop_on(ptr, A);
  recall(A);
  step(gmlake_pool_destroy(lake, pool));
  step(gmlake_pool_destroy(lake, others[1]));
  finish();
}

/* What borrowers stitched is dropped for a newer window, as no graph knows it. */
static void windows_of_borrowers_may_go(void **state) {
  gmlake_alloc_desc live;
  void *between;
  (void)state;
  prepare(16);
  desc.stitched_bytes_max = 8 * C;
  open_lake();
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  live = request(C, 0, pool);
  step(gmlake_capture_begin(lake, A, pool));
  known[0] = (char *)take_on(3 * C, A);
  between = take_with(&live, A);
  known[1] = (char *)take_on(3 * C, A);
  drop_on(known[0], A);
  drop_on(known[1], A);
  step(gmlake_capture_end(lake, A));
  lend(A);
  drop_on(borrow_on(6 * C, A), A);
  recall(A);
  assert_int_equal(stats().window_count, 1);
  lend(A);
  drop_on(borrow_on(5 * C, A), A);
  assert_int_equal(stats().stitch_evict_count, 1);
  recall(A);
  step(gmlake_pool_destroy(lake, (drop_on(between, A), pool)));
  finish();
}

static unsigned waits_told;

static void hear_waits(void *user, const gmlake_step *told) {
  (void)user;
  waits_told += told->kind == GMLAKE_STEP_WAIT && told->stream == B && !told->driver_ns;
}

/* The observer hears of each wait; without leave to stitch or to grow what lies there serves. */
static void waits_for_borrowers_are_told(void **state) {
  const gmlake_alloc_desc wanted =
      request(C, GMLAKE_TRANSIENT | GMLAKE_NO_STITCH | GMLAKE_NO_GROW, NULL);
  void *ptr;
  (void)state;
  prepare(16);
  desc.observer.fn = hear_waits;
  open_lake();
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  capture(1, 4 * C);
  gmlake_mock_stream_hold(mock, A);
  lend(A);
  waits_told = 0;
  ptr = take_with(&wanted, B);
  assert_true(is_lent(ptr));
  assert_int_equal(waits_told, 1);
  assert_int_equal(stats().stream_wait_count, 1);
  drop_on(ptr, B);
  gmlake_mock_stream_finish(mock, A);
  recall(A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* Asks, borrows and compares. Returns the block; NULL: it is refused. */
static void *foretold_on(const gmlake_alloc_desc *wanted, gmlake_stream stream, gmlake_wait wait,
                         size_t new_bytes) {
  const gmlake_stats before = stats();
  gmlake_query_info info;
  gmlake_result result;
  void *ptr = NULL;
  step(gmlake_query(lake, wanted, stream, &info));
  assert_int_equal(stats().reserved_bytes, before.reserved_bytes);
  result = gmlake_alloc_with(lake, wanted, stream, &ptr);
  assert_ok(gmlake_check(lake));
  assert_int_equal(info.result, result);
  assert_int_equal(info.wait, wait);
  assert_int_equal(info.new_bytes, new_bytes);
  if (result) return NULL;
  assert_int_equal(stats().reserved_bytes - before.reserved_bytes, new_bytes);
  assert_int_equal(stats().stream_wait_count > before.stream_wait_count,
                   wait == GMLAKE_DEVICE_WAIT);
  return ptr;
}

/* A question knew nothing of what is lent: it foretold a refusal, or new memory. */
static void what_is_borrowed_is_foretold(void **state) {
  gmlake_alloc_desc wanted = request(4 * C, GMLAKE_TRANSIENT, NULL);
  void *ptr, *other;
  (void)state;
  start_lending(8);
  capture(1, 4 * C);
  gmlake_mock_stream_hold(mock, A);
  lend(A);
  ptr = foretold_on(&wanted, A, GMLAKE_NO_WAIT, 0);
  assert_true(is_lent(ptr));
  drop_on(ptr, A);
  ptr = foretold_on(&wanted, B, GMLAKE_DEVICE_WAIT, 0); /* for what A did there */
  assert_true(is_lent(ptr));
  drop_on(ptr, B);
  gmlake_mock_stream_finish(mock, A);
  gmlake_mock_stream_finish(mock, B);
  wanted.bytes = 6 * C;
  ptr = foretold_on(&wanted, B, GMLAKE_NO_WAIT, 2 * C); /* the pool grows by what it lacks */
  assert_true(is_lent(ptr));
  wanted.bytes = 2 * C;
  other = foretold_on(&wanted, B, GMLAKE_NO_WAIT, 2 * C);
  drop_on(other, B);
  other = foretold_on(&wanted, B, GMLAKE_NO_WAIT, 0);
  assert_true(is_lent(other));
  wanted.bytes = C;
  assert_null(foretold_on(&wanted, A, GMLAKE_NO_WAIT, 0));
  drop_on(other, B);
  drop_on(ptr, B);
  wanted.bytes = 6 * C;
  wanted.flags |= GMLAKE_NO_GROW;
  ptr = foretold_on(&wanted, B, GMLAKE_NO_WAIT, 0);
  drop_on(ptr, B);
  recall(B);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static struct {
  uint64_t request, driver_ns;
  int stitches, is_labelled;
} heard;

static void hear_stitches(void *user, const gmlake_step *s) {
  (void)user;
  if (s->kind == GMLAKE_STEP_STITCH) {
    heard.stitches++;
    heard.request = s->request;
    heard.is_labelled = s->label && !strcmp(s->label, "borrower");
  }
  if (s->kind == GMLAKE_STEP_ALLOC && heard.request == s->request) heard.driver_ns = s->driver_ns;
}

/* What is done for a borrower is told with its request, label and time. */
static void steps_of_borrowers_are_told(void **state) {
  gmlake_alloc_desc wanted = request(4 * C, GMLAKE_TRANSIENT | GMLAKE_NO_GROW, NULL);
  void *blocks[4], *ptr;
  int i;
  (void)state;
  prepare(16);
  desc.observer.fn = hear_stitches;
  open_lake();
  A = open_stream();
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, A, pool));
  for (i = 0; i < 4; i++) blocks[i] = take_on(2 * C, A);
  for (i = 0; i < 4; i += 2) drop_on(blocks[i], A);
  step(gmlake_capture_end(lake, A));
  lend(A);
  memset(&heard, 0, sizeof(heard));
  wanted.label = "borrower";
  ptr = take_with(&wanted, A);
  assert_true(is_lent(ptr));
  assert_int_equal(heard.stitches, 1);
  assert_true(heard.is_labelled);
  assert_true(heard.request);
  assert_true(heard.driver_ns);
  drop_on(ptr, A);
  for (i = 1; i < 4; i += 2) drop_on(blocks[i], A);
  recall(A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* For its records and the index of many blocks, at whatever time they are full. */
static void host_memory_may_lack_for_many_borrowers(void **state) {
  const gmlake_alloc_desc wanted = request(512, GMLAKE_TRANSIENT, NULL);
  void *blocks[150];
  size_t i;
  (void)state;
  start_lending(16);
  capture(1, 4 * C);
  lend(A);
  for (i = 0; i < 150; i++) { /* one attempt lacks it, and the next one serves */
    host_fail_in = 1;
    blocks[i] = take_with(&wanted, A);
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    assert_true(is_lent(blocks[i]));
  }
  while (i) drop_on(blocks[--i], A);
  recall(A);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

/* ---- Launches: what the mock refuses where a driver would let it pass ------------------------ */

static void finish_launching(void) {
  gmlake_mock_stream_finish(mock, A);
  gmlake_mock_stream_finish(mock, B);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void no_launch_while_lent(void **state) {
  void *ptr;
  (void)state;
  start_lending(16);
  capture(2, 2 * C);
  assert_ok(launch(1, A));
  lend(A);
  assert_error(launch(1, A), BUSY);
  ptr = borrow_on(2 * C, B);
  assert_error(launch(1, A), BUSY);
  drop_on(ptr, B);
  assert_error(launch(1, B), BUSY);
  recall(A);
  assert_ok(launch(1, A));
  finish_launching();
}

/* A plain allocation between two launches is none of what the graphs know. */
static void no_launch_of_no_pool(void **state) {
  (void)state;
  start_lending(4);
  assert_error(gmlake_mock_launch(mock, NULL, 1, A), INVALID_ARGUMENT);
  finish();
}

static void graphs_take_turns_on_a_stream(void **state) {
  gmlake_alloc_desc plain;
  unsigned graph, round;
  char *first;
  (void)state;
  start_lending(16);
  capture(2, 2 * C);
  first = known[0];
  capture(1, 3 * C);
  assert_ptr_equal(known[0], first); /* both graphs have this memory */
  plain = request(2 * C, 0, pool);
  for (round = 0; round < 3; round++)
    for (graph = 1; graph <= 2; graph++) {
      char *ptr;
      assert_ok(launch(graph, A));
      ptr = (char *)take_with(&plain, A);
      assert_true(ptr < first || ptr >= first + 4 * C);
      drop_on(ptr, A);
    }
  finish_launching();
}

static void graphs_of_a_pool_need_an_order(void **state) {
  void *early, *event, *other;
  gmlake_stream between;
  (void)state;
  start_lending(16);
  between = open_stream();
  capture(1, 2 * C);
  capture(1, 2 * C);
  gmlake_mock_stream_hold(mock, A);
  gmlake_mock_stream_hold(mock, B);
  early = record_on(A);
  assert_ok(launch(1, A));
  assert_error(launch(2, B), INVALID_ARGUMENT);
  wait_on(B, early); /* before the launch */
  assert_error(launch(2, B), INVALID_ARGUMENT);
  event = record_on(A);
  wait_on(between, event);
  assert_error(launch(2, B), INVALID_ARGUMENT);
  other = record_on(between);
  wait_on(B, other); /* behind it by way of a third stream */
  assert_ok(launch(2, B));
  assert_ok(launch(2, B));
  assert_error(launch(1, A), INVALID_ARGUMENT); /* not behind the one on B */
  assert_error(launch(3, between), INVALID_ARGUMENT);
  end_event(early);
  end_event(event);
  end_event(other);
  gmlake_mock_stream_finish(mock, A);
  assert_error(launch(1, A), INVALID_ARGUMENT);
  gmlake_mock_stream_finish(mock, B); /* complete, so no event is needed */
  assert_ok(launch(1, A));
  assert_error(launch(2, B), INVALID_ARGUMENT);
  finish_launching();
}

static void what_the_host_waited_for_is_before(void **state) {
  void *event;
  int code;
  (void)state;
  start_lending(16);
  capture(1, 2 * C);
  assert_ok(launch(1, A));
  event = record_on(A);
  assert_ok(launch(1, A));
  assert_ok(mock->event_wait(mock->user, event, &code));
  assert_error(launch(2, B), INVALID_ARGUMENT); /* the second one may still run */
  assert_ok(mock->device_wait(mock->user, &code));
  assert_ok(launch(2, B));
  end_event(event);
  finish_launching();
}

/* The driver orders the launches of one graph by itself. */
static void a_graph_is_behind_itself(void **state) {
  void *event;
  int done, code;
  (void)state;
  start_lending(16);
  capture(1, 2 * C);
  assert_ok(launch(1, A));
  assert_ok(launch(1, B));
  assert_ok(launch(2, B)); /* behind both */
  assert_error(launch(2, A), INVALID_ARGUMENT);
  event = record_on(B);
  gmlake_mock_stream_finish(mock, B); /* what stands behind A's launch still waits */
  assert_ok(mock->event_query(mock->user, event, &done, &code));
  assert_false(done);
  gmlake_mock_stream_finish(mock, A);
  assert_ok(mock->event_query(mock->user, event, &done, &code));
  assert_true(done);
  end_event(event);
  finish_launching();
}

static void pools_have_nothing_to_do_with_each_other(void **state) {
  gmlake_pool *other;
  (void)state;
  start_lending(16);
  other = open_pool(0);
  capture(1, 2 * C);
  assert_ok(launch(1, A));
  assert_ok(gmlake_mock_launch(mock, other, 2, B));
  lend(A);
  assert_ok(gmlake_mock_launch(mock, other, 2, B));
  recall(A);
  gmlake_mock_stream_finish(mock, B);
  step(gmlake_pool_destroy(lake, other));
  finish_launching();
}

static void no_launch_while_asleep(void **state) {
  (void)state;
  start_lending(16);
  capture(1, 2 * C);
  assert_ok(launch(1, A));
  gmlake_mock_stream_finish(mock, A);
  step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_KEEP, NULL));
  assert_error(launch(1, A), ASLEEP);
  step(gmlake_pool_wake(lake, pool));
  assert_ok(launch(1, A));
  finish_launching();
}

static void no_launch_on_a_captured_stream(void **state) {
  (void)state;
  start_lending(16);
  capture(1, 2 * C);
  assert_ok(gmlake_mock_capture_begin(mock, B));
  assert_error(launch(1, B), CAPTURING);
  assert_error(gmlake_mock_capture_end(mock, B), CAPTURING); /* it was spoilt */
  assert_ok(gmlake_mock_capture_begin(mock, B));
  assert_ok(launch(1, A));
  assert_ok(gmlake_mock_capture_end(mock, B));
  assert_ok(gmlake_mock_capture_begin(mock, B));
  assert_error(launch(1, LEGACY), CAPTURING);
  assert_error(gmlake_mock_capture_end(mock, B), CAPTURING);
  assert_ok(launch(1, LEGACY));
  assert_error(launch(1, NONE), INVALID_ARGUMENT);
  gmlake_mock_stream_finish(mock, LEGACY);
  finish_launching();
}

/* Recall makes its stream wait for borrowers: a launch there is behind their work. */
static void recall_is_behind_the_borrowers(void **state) {
  void *event, *ptr;
  int done, code;
  (void)state;
  start_lending(16);
  capture(1, 4 * C);
  assert_ok(launch(1, A));
  gmlake_mock_stream_hold(mock, B);
  lend(A);
  ptr = borrow_on(4 * C, B);
  drop_on(ptr, B);
  recall(A);
  assert_ok(launch(1, A));
  event = record_on(A);
  gmlake_mock_stream_finish(mock, A);
  assert_ok(mock->event_query(mock->user, event, &done, &code));
  assert_false(done); /* B's work is before it */
  gmlake_mock_stream_finish(mock, B);
  assert_ok(mock->event_query(mock->user, event, &done, &code));
  assert_true(done);
  end_event(event);
  finish_launching();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(free_memory_serves),
      cmocka_unit_test(pieces_are_stitched),
      cmocka_unit_test(what_graphs_know_is_not_given_up),
      cmocka_unit_test(windows_of_graphs_stay),
      cmocka_unit_test(a_borrowers_window_may_become_a_graphs),
      cmocka_unit_test(streams_wait_for_each_other),
      cmocka_unit_test(who_may_not_wait_gets_other_memory),
      cmocka_unit_test(what_cannot_be_waited_for_is_not_stitched),
      cmocka_unit_test(a_borrower_keeps_it_lent),
      cmocka_unit_test(captures_and_loans_exclude_each_other),
      cmocka_unit_test(pending_borrowers_do_not_keep_it),
      cmocka_unit_test(what_slept_and_went_is_no_graphs),
      cmocka_unit_test(others_do_not_get_it),
      cmocka_unit_test(a_pool_grows_by_what_is_missing),
      cmocka_unit_test(beside_live_blocks_all_is_returned),
      cmocka_unit_test(every_call_may_fail),
      cmocka_unit_test(rounds_leave_nothing_behind),
      cmocka_unit_test(a_pool_that_was_lent_stays_while_launches_may_run),
      cmocka_unit_test(streams_may_end),
      cmocka_unit_test(no_loan_on_a_stream_that_is_gone),
      cmocka_unit_test(a_loan_while_recall_waits_is_not_recalled),
      cmocka_unit_test(only_pools_that_are_lent_serve),
      cmocka_unit_test(windows_of_borrowers_may_go),
      cmocka_unit_test(waits_for_borrowers_are_told),
      cmocka_unit_test(what_is_borrowed_is_foretold),
      cmocka_unit_test(steps_of_borrowers_are_told),
      cmocka_unit_test(host_memory_may_lack_for_many_borrowers),
      cmocka_unit_test(no_launch_while_lent),
      cmocka_unit_test(no_launch_of_no_pool),
      cmocka_unit_test(graphs_take_turns_on_a_stream),
      cmocka_unit_test(graphs_of_a_pool_need_an_order),
      cmocka_unit_test(what_the_host_waited_for_is_before),
      cmocka_unit_test(a_graph_is_behind_itself),
      cmocka_unit_test(pools_have_nothing_to_do_with_each_other),
      cmocka_unit_test(no_launch_while_asleep),
      cmocka_unit_test(no_launch_on_a_captured_stream),
      cmocka_unit_test(recall_is_behind_the_borrowers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
