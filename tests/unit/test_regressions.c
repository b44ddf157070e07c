/* Bugs that models, faults, fuzzing and reviews found, each as a case that fails on the code that
   had it; those that a row can say are in tests/play/rows.h. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

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
      cmocka_unit_test(a_pools_block_is_in_no_home_windows_way),
      cmocka_unit_test(a_free_window_is_found_behind_any_number),
      cmocka_unit_test(the_end_of_a_chunk_is_found_behind_sixteen_longer_ranges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
