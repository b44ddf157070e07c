/* Bugs that models, faults, fuzzing and reviews found, each as a case that fails on the code that
   had it. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

static void open_faulty(size_t chunks) {
  prepare(chunks);
  use_faults();
  open_lake();
}

/* An idle window, as the only thing that evicting could take. */
static void leave_window(void) {
  void *blocks[4], *window;
  lay(blocks, 4);
  drop(blocks[0]);
  drop(blocks[2]);
  window = take(2 * C);
  assert_int_equal(piece_count(window), 2);
  drop(window);
}

/* What only follows the exchange had not been tried, yet every window was given up for good. */
static void a_failed_exchange_gives_up_no_window(void **state) {
  long n;
  (void)state;
  for (n = 1; n < 8; n++) {
    open_faulty(4);
    leave_window();
    fail_call(ON_EXCHANGE, n, GMLAKE_ERROR_DRIVER, 0);
    (void)gmlake_trim(lake, 0, NULL);
    fail_call(ON_EXCHANGE, 0, GMLAKE_OK, 0);
    assert_ok(gmlake_check(lake));
    assert_int_equal(stats().quarantined_bytes, 0);
    (void)trim_to(0);
    assert_int_equal(stats().window_count, 0);
    finish();
  }
}

/* A backend's INVALID_ARGUMENT came out as if the caller had been wrong. */
static void trim_blames_the_driver(void **state) {
  (void)state;
  open_faulty(4);
  drop(take(C));
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_INVALID_ARGUMENT, 0);
  step_error(gmlake_trim(lake, 0, NULL), DRIVER);
  assert_int_equal(last_error().result, GMLAKE_ERROR_DRIVER);
  finish();
}

static void creating_a_pool_blames_the_driver(void **state) {
  gmlake_pool *pool = NULL;
  (void)state;
  open_faulty(4);
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_INVALID_ARGUMENT, 0);
  step_error(gmlake_pool_create(lake, NULL, &pool), DRIVER);
  assert_null(pool);
  finish();
}

static void creating_a_lake_blames_the_driver(void **state) {
  (void)state;
  prepare(4);
  use_faults();
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_INVALID_ARGUMENT, 0);
  assert_error(gmlake_create(&desc, &lake), DRIVER);
  close_mock();
}

/* INVALID_ARGUMENT means that it has live blocks. */
static void destroying_a_pool_blames_the_driver(void **state) {
  static const int kinds[] = {ON_RECORD, ON_HOST_WAIT};
  gmlake_pool *pool;
  gmlake_stream stream;
  size_t i;
  (void)state;
  for (i = 0; i < 2; i++) {
    open_faulty(8);
    pool = open_pool(0);
    stream = open_stream();
    drop_on(take_on(C, stream), stream);
    fail_call(kinds[i], 1, GMLAKE_ERROR_INVALID_ARGUMENT, 0);
    step_error(gmlake_pool_destroy(lake, pool), DRIVER);
    step(gmlake_pool_destroy(lake, pool));
    finish();
  }
}

/* It answered the driver's error, though the pool was gone: trying again was a use after free. */
static void a_pool_whose_memory_stays_is_destroyed(void **state) {
  static const int kinds[] = {ON_UNRESERVE, ON_UNMAP, ON_RELEASE};
  gmlake_pool *pool;
  size_t i;
  (void)state;
  for (i = 0; i < 3; i++) {
    open_faulty(8);
    pool = open_pool(0);
    drop(take_from(pool, C, LEGACY));
    fail_call(kinds[i], 1, GMLAKE_ERROR_DRIVER, 0);
    step(gmlake_pool_destroy(lake, pool));
    assert_int_equal(stats().quarantined_bytes, i ? C : 0);
    finish();
  }
}

/* The event that such a wait made for itself was lost where it could not be destroyed. */
static void waiting_without_host_memory_loses_no_event(void **state) {
  gmlake_pool *pool;
  gmlake_alloc_desc wanted;
  gmlake_stream stream;
  (void)state;
  open_faulty(8);
  pool = open_pool(0);
  stream = open_stream();
  wanted = request(C, 0, pool);
  gmlake_mock_stream_hold(mock, stream);
  drop_on(take_with(&wanted, stream), stream);
  host_fail_in = host_fails_on = 1;
  fail_call(ON_EVENT_DESTROY, 1, GMLAKE_ERROR_DRIVER, 1);
  assert_ok(gmlake_pool_destroy(lake, pool));
  assert_true(census().host_wait_count > 0);
  host_fail_in = host_fails_on = 0;
  fail_call(ON_EVENT_DESTROY, 0, GMLAKE_OK, 0);
  finish();
}

/* Calls that follow a fatal error replaced it as the last one. */
static void the_fatal_error_stays_the_last_one(void **state) {
  long n;
  (void)state;
  for (n = 1; n < 8; n++) {
    gmlake_result result;
    open_faulty(4);
    leave_window();
    fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
    fail_call(ON_EXCHANGE, n, GMLAKE_ERROR_DRIVER, 1);
    result = gmlake_trim(lake, 0, NULL);
    assert_int_equal(last_error().result, result);
    fail_call(ON_UNMAP, 0, GMLAKE_OK, 0);
    fail_call(ON_EXCHANGE, 0, GMLAKE_OK, 0);
    (void)gmlake_destroy(lake);
    close_mock();
  }
}

/* Large sizes, multiples of a large power of two, all fell into one bucket of the windows' table. */
static void sizes_of_windows_spread_over_their_table(void **state) {
  gmlk_window *buckets[64];
  gmlk_spool spool;
  size_t used = 0, i;
  (void)state;
  memset(&spool, 0, sizeof(spool));
  memset(buckets, 0, sizeof(buckets));
  spool.buckets = buckets;
  spool.bucket_count = 64;
  for (i = 1; i <= 64; i++) {
    gmlk_window **bucket = gmlk_bucket(&spool, (uint32_t)i << 15);
    used += *bucket == NULL;
    *bucket = (gmlk_window *)(void *)bucket;
  }
  assert_true(used > 32);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failed_exchange_gives_up_no_window),
      cmocka_unit_test(trim_blames_the_driver),
      cmocka_unit_test(creating_a_pool_blames_the_driver),
      cmocka_unit_test(creating_a_lake_blames_the_driver),
      cmocka_unit_test(destroying_a_pool_blames_the_driver),
      cmocka_unit_test(a_pool_whose_memory_stays_is_destroyed),
      cmocka_unit_test(waiting_without_host_memory_loses_no_event),
      cmocka_unit_test(the_fatal_error_stays_the_last_one),
      cmocka_unit_test(sizes_of_windows_spread_over_their_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
