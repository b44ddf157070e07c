/* Which stream is made to wait for which by measured times. Marked streams are in
   tests/play/rows.h. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#define MS ((uint64_t)1000000)

static gmlake_stream A, B;
static uint64_t now_ns;

static uint64_t clock_ns(void *user) {
  (void)user;
  return now_ns;
}

static void open_order(size_t chunks, gmlake_cross_stream order) {
  prepare(chunks);
  use_faults();
  faulty.clock_ns = clock_ns;
  now_ns = 1000 * MS;
  desc.cross_stream = order;
  open_lake();
  assert_ok(gmlake_mock_stream_create(mock, &A));
  assert_ok(gmlake_mock_stream_create(mock, &B));
  drop_on(take_on(512, B), B);
  drop_on(take_on(512, A), A);
}

/* The stream frees memory that its work still uses. */
static void leave(gmlake_stream stream, size_t chunks) {
  void *block = take_on(chunks * C, stream);
  gmlake_mock_stream_hold(mock, stream);
  drop_on(block, stream);
}

/* The lake sees that work of the stream takes so long. */
static void measure(gmlake_stream stream, uint64_t ns) {
  leave(stream, 1);
  now_ns += ns;
  gmlake_mock_stream_finish(mock, stream);
  step(gmlake_trim(lake, SIZE_MAX, NULL));
}

/* The stream asks for so many chunks. Returns whether it was made to wait for them. */
static int waits(gmlake_stream stream, size_t chunks) {
  const gmlake_stats was = stats();
  void *block = take_on(chunks * C, stream);
  const int has_waited = stats().stream_wait_count > was.stream_wait_count;
  assert_int_equal(stats().host_wait_count, was.host_wait_count);
  assert_int_equal(stats().reserved_bytes > was.reserved_bytes, !has_waited);
  drop_on(block, stream);
  return has_waited;
}

static void finish_order(void) {
  gmlake_mock_stream_finish(mock, A);
  gmlake_mock_stream_finish(mock, B);
  finish();
}

static void what_was_never_measured_is_not_waited_for(void **state) {
  (void)state;
  open_order(32, GMLAKE_WAIT_IF_SOON);
  leave(A, 4);
  assert_false(waits(B, 4));
  finish_order();
}

static void what_takes_long_is_not_waited_for(void **state) {
  (void)state;
  open_order(32, GMLAKE_WAIT_IF_SOON);
  measure(A, 10 * MS);
  leave(A, 4);
  now_ns += 5 * MS;
  assert_false(waits(B, 4));
  finish_order();
}

static void what_is_about_to_complete_is_waited_for(void **state) {
  (void)state;
  open_order(32, GMLAKE_WAIT_IF_SOON);
  measure(A, 10 * MS);
  leave(A, 4);
  now_ns += 10 * MS - MS / 10;
  assert_true(waits(B, 4));
  finish_order();
}

/* Its new work would begin no sooner anyway. */
static void a_stream_that_is_behind_waits(void **state) {
  (void)state;
  open_order(32, GMLAKE_WAIT_IF_SOON);
  measure(A, 10 * MS);
  measure(B, 40 * MS); /* it was idle before: half counts */
  leave(A, 4);
  assert_true(waits(B, 4));
  finish_order();
}

static void new_measures_count_half(void **state) {
  (void)state;
  open_order(32, GMLAKE_WAIT_IF_SOON);
  measure(A, 10 * MS);
  measure(A, 2 * MS);
  assert_in_range(lake->streams.items[gmlk_stream_find(&lake->streams, A)]->lag_ns, 6 * MS,
                  6 * MS + 1);
  leave(A, 4);
  now_ns += 5 * MS;
  assert_false(waits(B, 4));
  now_ns += MS;
  assert_true(waits(B, 4 + 4)); /* what it has, and A's */
  finish_order();
}

static void a_query_tells_the_same(void **state) {
  const gmlake_alloc_desc wanted = request(4 * C, 0, NULL);
  gmlake_query_info info;
  (void)state;
  open_order(32, GMLAKE_WAIT_IF_SOON);
  measure(A, 10 * MS);
  leave(A, 4);
  step(gmlake_query(lake, &wanted, B, &info));
  assert_int_equal(info.wait, GMLAKE_NO_WAIT);
  assert_true(info.new_bytes);
  now_ns += 10 * MS;
  step(gmlake_query(lake, &wanted, B, &info));
  assert_int_equal(info.wait, GMLAKE_DEVICE_WAIT);
  assert_int_equal(info.new_bytes, 0);
  finish_order();
}

/* Growth is refused, so it waits as with GMLAKE_GROW_FIRST. */
static void a_shortage_is_waited_for_however_long(void **state) {
  void *block;
  (void)state;
  open_order(6, GMLAKE_WAIT_IF_SOON);
  measure(A, 10 * MS);
  leave(A, 4);
  block = take_on(5 * C, B);
  assert_int_equal(stats().stream_wait_count, 1);
  assert_int_equal(stats().host_wait_count, 0);
  drop_on(block, B);
  finish_order();
}

static void other_orders_read_no_clock_for_events(void **state) {
  (void)state;
  open_order(32, GMLAKE_WAIT_FIRST);
  measure(A, 10 * MS);
  assert_int_equal(lake->streams.items[gmlk_stream_find(&lake->streams, A)]->lag_ns, 0);
  leave(A, 4);
  assert_true(waits(B, 4));
  finish_order();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_never_measured_is_not_waited_for),
      cmocka_unit_test(what_takes_long_is_not_waited_for),
      cmocka_unit_test(what_is_about_to_complete_is_waited_for),
      cmocka_unit_test(a_stream_that_is_behind_waits),
      cmocka_unit_test(new_measures_count_half),
      cmocka_unit_test(a_query_tells_the_same),
      cmocka_unit_test(a_shortage_is_waited_for_however_long),
      cmocka_unit_test(other_orders_read_no_clock_for_events),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
