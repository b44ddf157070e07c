/* Bugs that models, faults, fuzzing and reviews found, each as a case that fails on the code that
   had it. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

static void open_faulty(size_t chunks) { start_with_faults(chunks); }

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

/* INVALID_ARGUMENT means that it has live blocks; of a record, that the stream is gone, whose work
   is waited for with the whole device's. */
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
    gmlake_mock_stream_hold(mock, stream);
    drop_on(take_from(pool, C, stream), stream);
    fail_call(kinds[i], 1, GMLAKE_ERROR_INVALID_ARGUMENT, 0);
    if (i) step_error(gmlake_pool_destroy(lake, pool), DRIVER);
    step(gmlake_pool_destroy(lake, pool));
    assert_error(last_error().result, DRIVER);
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

/* The event of such a wait was lost where it could not be destroyed. */
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
    if (lake->lost) assert_int_equal(result, lake->lost);
    fail_call(ON_UNMAP, 0, GMLAKE_OK, 0);
    fail_call(ON_EXCHANGE, 0, GMLAKE_OK, 0);
    (void)gmlake_destroy(lake);
    close_mock();
  }
}

/* Its chunks counted as returned, though the window that stayed mapped kept their memory. */
static void a_pool_whose_window_stays_keeps_its_chunks(void **state) {
  gmlake_pool *pool;
  void *b[4], *window;
  int i;
  (void)state;
  open_faulty(8);
  pool = open_pool(0);
  for (i = 0; i < 4; i++) b[i] = take_from(pool, C, LEGACY);
  drop(b[0]);
  drop(b[2]);
  window = take_from(pool, 2 * C, LEGACY);
  assert_int_equal(piece_count(window), 2);
  drop(window);
  drop(b[1]);
  drop(b[3]);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(stats().reserved_bytes, census().physical_bytes);
  assert_int_equal(stats().quarantined_bytes, 2 * C);
  finish();
}

/* The answer of a stream that is being captured hid what another one's was. */
static void a_capture_hides_no_error(void **state) {
  gmlake_pool *pool;
  gmlake_stream captured;
  (void)state;
  open_faulty(8);
  captured = open_stream();
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, captured, pool));
  drop_on(take_on(C, open_stream()), LEGACY);
  (void)take_on(C, open_stream());
  fail_call(ON_RECORD, 1, GMLAKE_ERROR_DRIVER, 1);
  assert_error(gmlake_destroy(lake), DRIVER);
  close_mock();
}

/* The same, a fatal one: the climb went on, and its report replaced the error. */
static void a_capture_hides_no_lost_device(void **state) {
  gmlake_pool *pool;
  gmlake_stream captured;
  gmlake_result result;
  void *ptr;
  long n;
  int met = 0;
  (void)state;
  for (n = 1; n < 40; n++) {
    prepare(4);
    use_faults();
    desc.limit_bytes = 2 * C;
    open_lake();
    captured = open_stream();
    pool = open_pool(0);
    step(gmlake_capture_begin(lake, captured, pool));
    (void)take(C);
    drop(take(C / 2));
    fail_call(ON_EXCHANGE, n, GMLAKE_ERROR_SHUTTING_DOWN, 0);
    result = gmlake_alloc(lake, 2 * C, LEGACY, &ptr);
    met += result == GMLAKE_ERROR_SHUTTING_DOWN;
    if (lake->lost) assert_int_equal(result, lake->lost);
    assert_int_equal(last_error().result, result);
    (void)gmlake_destroy(lake);
    close_mock();
  }
  assert_true(met > 0);
}

static void count_errors(void *user, int level, const gmlake_error_info *info) {
  (void)info;
  *(int *)user += level == GMLAKE_LOG_ERROR;
}

static void a_lost_device_is_told_once(void **state) {
  gmlake_pool *pool;
  int told = 0;
  (void)state;
  prepare(8);
  desc.logger.fn = count_errors;
  desc.logger.user = &told;
  open_lake();
  gmlake_mock_fail_at(mock, census().call_count + 2, GMLAKE_ERROR_DEVICE_LOST, 1);
  assert_error(gmlake_pool_create(lake, NULL, &pool), DEVICE_LOST);
  assert_int_equal(told, 1);
  gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  close_mock();
}

static int allocate_in_handler(void *user, gmlake *l, const gmlake_error_info *info) {
  void *ptr;
  (void)user, (void)info;
  assert_error(gmlake_alloc(l, 512, LEGACY, &ptr), INVALID_ARGUMENT);
  return 0;
}

static void the_last_error_is_not_the_handlers(void **state) {
  (void)state;
  prepare(8);
  desc.oom.fn = allocate_in_handler;
  open_lake();
  assert_error(try_on(9 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_error(last_error().result, OUT_OF_DEVICE_MEMORY);
  assert_int_equal(last_error().asked_bytes, 9 * C);
  finish();
}

static void pools_reserve_nothing_for_windows(void **state) {
  gmlake_pool *pool;
  (void)state;
  start(8);
  pool = open_pool(0);
  drop(take_from(pool, C, LEGACY));
  assert_int_equal(census().reservation_count, 2); /* the lake's and the pool's */
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(census().reservation_count, 1);
  finish();
}

/* A fatal error in a wait did not end the climb, which went on to ask the device. */
static void a_lost_device_ends_the_climb(void **state) {
  gmlake_stream a, b;
  void *ptr = NULL;
  uint64_t calls;
  (void)state;
  prepare(4);
  use_faults();
  desc.cross_stream = GMLAKE_WAIT_FIRST;
  open_lake();
  a = open_stream();
  b = open_stream();
  gmlake_mock_stream_hold(mock, a);
  ptr = take_on(2 * C, a);
  drop_on(take_on(512, b), b);
  drop_on(ptr, a);
  fail_call(ON_STREAM_WAIT, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_error(gmlake_alloc(lake, 2 * C, b, &ptr), DEVICE_LOST);
  assert_null(ptr);
  assert_int_equal(faults[ON_STREAM_WAIT].in, 0);
  calls = census().call_count;
  assert_error(gmlake_alloc(lake, C, b, &ptr), DEVICE_LOST);
  assert_int_equal(census().call_count, calls);
  (void)gmlake_destroy(lake);
  close_mock();
}

/* A block of a capture, freed behind it on the same stream, needed host memory to be freed. */
static void a_graphs_block_is_freed_without_host_memory(void **state) {
  gmlake_pool *pool;
  gmlake_stream stream;
  void *ptr;
  (void)state;
  open_faulty(8);
  pool = open_pool(0);
  stream = open_stream();
  step(gmlake_capture_begin(lake, stream, pool));
  ptr = take_on(C, stream);
  step(gmlake_capture_end(lake, stream));
  host_fail_in = host_fails_on = 1;
  drop_on(ptr, stream);
  host_fail_in = host_fails_on = 0;
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void a_backend_with_a_hole_is_refused(void **state) {
  (void)state;
  prepare(8);
  use_faults();
  faulty.clock_ns = NULL;
  assert_error(gmlake_create(&desc, &lake), INVALID_ARGUMENT);
  use_faults();
  faulty.unreserve = NULL;
  assert_error(gmlake_create(&desc, &lake), INVALID_ARGUMENT);
  close_mock();
}

/* It answered CAPTURING, after a look into the other lake. */
static void another_lakes_pool_is_refused_in_a_capture(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_stream stream;
  gmlake_pool *pool, *others;
  gmlake *other;
  (void)state;
  open_faulty(8);
  assert_ok(gmlake_create(&desc, &other));
  assert_ok(gmlake_pool_create(other, NULL, &others));
  pool = open_pool(0);
  stream = open_stream();
  step(gmlake_capture_begin(lake, stream, pool));
  wanted = request(C, 0, others);
  assert_error(try_with(&wanted, stream), INVALID_ARGUMENT);
  step(gmlake_capture_end(lake, stream));
  assert_ok(gmlake_destroy(other));
  finish();
}

/* Its addresses were given back with a mapping left in them, against the table's own pre. */
static void addresses_stay_while_anything_is_mapped_there(void **state) {
  gmlake_pool *pool;
  (void)state;
  open_faulty(8);
  pool = open_pool(0);
  drop(take_from(pool, C, LEGACY));
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_UNRESERVE, 1, GMLAKE_ERROR_DRIVER, 0);
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(faults[ON_UNRESERVE].in, 1);
  fail_call(ON_UNRESERVE, 0, GMLAKE_OK, 0);
  finish();
}

/* Host memory lacked, the device was lost while that was undone, and the answer hid it. */
static void a_pool_that_loses_the_device_says_so(void **state) {
  gmlake_result result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  gmlake_pool *pool = NULL;
  long n;
  (void)state;
  open_faulty(8);
  fail_call(ON_UNRESERVE, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  for (n = 1; n < 20 && result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY; n++) {
    host_fail_in = n; /* the first ones before anything is reserved */
    result = gmlake_pool_create(lake, NULL, &pool);
  }
  assert_error(result, DEVICE_LOST);
  assert_null(pool);
  assert_int_equal(last_error().result, GMLAKE_ERROR_DEVICE_LOST);
  host_fail_in = 0;
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  close_mock();
}

/* gmlake_check looked into its chunks, which it never got. */
static void a_pool_that_never_became_one_is_checked(void **state) {
  gmlake_pool *pool = NULL;
  long n;
  (void)state;
  for (n = 1; n < 16; n++) {
    open_faulty(8);
    host_fail_in = n;
    fail_call(ON_UNRESERVE, 1, GMLAKE_ERROR_DRIVER, 0);
    if (!gmlake_pool_create(lake, NULL, &pool)) break;
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    fail_call(ON_UNRESERVE, 0, GMLAKE_OK, 0);
    finish();
  }
  assert_in_range(n, 3, 15);
  host_fail_in = 0;
  fail_call(ON_UNRESERVE, 0, GMLAKE_OK, 0);
  finish();
}

/* Its quarantined chunk was released behind the arena's end, and gmlake_check missed it there. */
static void a_dead_pool_may_have_released_its_quarantine(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_pool *pool;
  void *ptr;
  (void)state;
  open_faulty(8);
  pool = open_pool(0);
  wanted = request(C, 0, pool);
  fail_call(ON_MAP, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_alloc_with(lake, &wanted, LEGACY, &ptr), DRIVER);
  assert_int_equal(stats().quarantined_bytes, C);
  fail_call(ON_UNRESERVE, 1, GMLAKE_ERROR_DRIVER, 0);
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(faults[ON_UNRESERVE].in, 0);
  assert_int_equal(stats().quarantined_bytes, 0);
  finish();
}

/* Ownerships were numbered by arena, but block records are the lake's: what a pool took in the
   record of a block that had been in a window's way was held to be that block. */
static void a_pools_block_is_in_no_home_windows_way(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_pool *pool;
  void *blocks[4], *window, *part, *taken;
  uint64_t reused;
  int serials;
  (void)state;
  for (serials = 0; serials < 20; serials++) { /* one of the pool's is the part's */
    int i;
    start(16);
    pool = open_pool(0);
    lay(blocks, 4);
    drop(blocks[0]);
    drop(blocks[2]);
    window = take(2 * C);
    assert_int_equal(piece_count(window), 2);
    drop(window);
    for (i = 0; i <= serials; i++) taken = take_from(pool, 512, LEGACY);
    part = take(512);
    wanted = request(2 * C, GMLAKE_NO_GROW, NULL);
    assert_error(try_with(&wanted, LEGACY), OUT_OF_DEVICE_MEMORY);
    drop(part);
    taken = take_from(pool, 512, LEGACY);
    assert_non_null(taken);
    reused = stats().stitch_reuse_count;
    window = take_flags(2 * C, GMLAKE_NO_GROW);
    assert_int_equal(stats().stitch_reuse_count, reused + 1);
    finish();
  }
}

static void *take_flags_on(size_t bytes, gmlake_stream stream) {
  const gmlake_alloc_desc wanted = request(bytes, GMLAKE_NO_GROW, NULL);
  return take_with(&wanted, stream);
}

/* A search looked at 32 windows of a size that other streams hold back, and not behind them. */
static void a_free_window_is_found_behind_any_number(void **state) {
  gmlake_stream a, b;
  void *blocks[82], *windows[41];
  int i;
  (void)state;
  start(170);
  assert_ok(gmlake_mock_stream_create(mock, &a));
  assert_ok(gmlake_mock_stream_create(mock, &b));
  for (i = 0; i < 82; i++) {
    blocks[i] = take_on(C, a);
    (void)take_on(C, a);
  }
  for (i = 0; i < 82; i++) drop_on(blocks[i], a);
  for (i = 0; i < 41; i++) windows[i] = take_flags_on(2 * C, a);
  gmlake_mock_stream_hold(mock, b);
  for (i = 0; i < 40; i++) drop_on(windows[i], b);
  drop_on(windows[40], a);
  for (i = 0; i < 3; i++) {
    void *ptr = take_flags_on(2 * C, a);
    assert_ptr_equal(ptr, windows[40]);
    drop_on(ptr, a);
  }
  assert_int_equal(stats().stitch_count, 41);
  gmlake_mock_stream_finish(mock, b);
  finish();
}

/* Lays a chunk of so many equal pairs: the first of a pair has `bytes` and goes into *list. */
static void lay_pairs(void ***list, size_t bytes, size_t pair) {
  size_t at;
  for (at = 0; at < C; at += pair) {
    *(*list)++ = take(bytes);
    (void)take(pair - bytes);
  }
}

/* Only the sixteen longest free ranges were looked at for a window's ends, however many there were:
   the lake grew. Here they begin chunks, and the one that ends a chunk is the 22nd. */
static void the_end_of_a_chunk_is_found_behind_sixteen_longer_ranges(void **state) {
  void *holes[21 + 52 * 8], **next = holes, *tail;
  uint64_t chunks;
  int i;
  (void)state;
  start(100);
  for (i = 0; i < 21; i++) lay_pairs(&next, C / 8 * 5, C);
  for (i = 0; i < 52; i++) lay_pairs(&next, C / 16, C / 8);
  (void)take(C / 2);
  tail = take(C / 2);
  (void)take(C);
  while (next > holes) drop(*--next);
  drop(tail);
  chunks = stats().chunk_count;
  assert_int_equal(piece_count(take(C / 8 * 9)), 2);
  assert_int_equal(stats().chunk_count, chunks);
  finish();
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
      cmocka_unit_test(a_pool_whose_window_stays_keeps_its_chunks),
      cmocka_unit_test(a_capture_hides_no_error),
      cmocka_unit_test(a_capture_hides_no_lost_device),
      cmocka_unit_test(a_lost_device_is_told_once),
      cmocka_unit_test(the_last_error_is_not_the_handlers),
      cmocka_unit_test(pools_reserve_nothing_for_windows),
      cmocka_unit_test(a_lost_device_ends_the_climb),
      cmocka_unit_test(a_graphs_block_is_freed_without_host_memory),
      cmocka_unit_test(a_backend_with_a_hole_is_refused),
      cmocka_unit_test(another_lakes_pool_is_refused_in_a_capture),
      cmocka_unit_test(addresses_stay_while_anything_is_mapped_there),
      cmocka_unit_test(a_pool_that_loses_the_device_says_so),
      cmocka_unit_test(a_pool_that_never_became_one_is_checked),
      cmocka_unit_test(a_dead_pool_may_have_released_its_quarantine),
      cmocka_unit_test(a_pools_block_is_in_no_home_windows_way),
      cmocka_unit_test(a_free_window_is_found_behind_any_number),
      cmocka_unit_test(the_end_of_a_chunk_is_found_behind_sixteen_longer_ranges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
