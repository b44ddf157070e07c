/* Lend and recall, beside the rows of tests/play/rows.h: what is told, what fails, what another
   thread does meanwhile. And the mock's launches of graphs: which it refuses, which it takes. */
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

/* What stands in the way is named: the borrower, then the loan; and a stream that is gone. */
static void refusals_say_why(void **state) {
  char text[64];
  void *ptr;
  (void)state;
  prepare(16);
  desc.flags = GMLAKE_STREAMS_MAY_END;
  open_lake();
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
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
  drop_on(ptr, A);
  step_error(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, NULL), BUSY);
  assert_non_null(strstr(last_error().text, "gmlake_pool_recall"));
  recall(A);
  drop_on(take_on(C / 2, B), B);
  gmlake_mock_stream_destroy(mock, B);
  step_error(gmlake_pool_lend(lake, pool, B), DRIVER);
  assert_non_null(strstr(last_error().text, "was it destroyed?"));
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refusals_say_why),
      cmocka_unit_test(every_call_may_fail),
      cmocka_unit_test(rounds_leave_nothing_behind),
      cmocka_unit_test(a_loan_while_recall_waits_is_not_recalled),
      cmocka_unit_test(waits_for_borrowers_are_told),
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
