/* Bugs that models, faults, fuzzing and reviews found, each as a case that fails on the code that
   had it; those that a row can say are in tests/play/rows.h. */
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
      cmocka_unit_test(the_fatal_error_stays_the_last_one),
      cmocka_unit_test(a_capture_hides_no_error),
      cmocka_unit_test(a_capture_hides_no_lost_device),
      cmocka_unit_test(another_lakes_pool_is_refused_in_a_capture),
      cmocka_unit_test(a_pools_block_is_in_no_home_windows_way),
      cmocka_unit_test(a_free_window_is_found_behind_any_number),
      cmocka_unit_test(the_end_of_a_chunk_is_found_behind_sixteen_longer_ranges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
