/* The mock's launches of graphs: which it refuses where a driver would let them pass, and which it
   takes. What is lent and recalled is in tests/play/rows.h and tests/play/fault_rows.h. */
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

static void lend(gmlake_stream stream) { step(gmlake_pool_lend(lake, pool, stream)); }
static void recall(gmlake_stream stream) { step(gmlake_pool_recall(lake, pool, stream)); }

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
