/* Tests of what the lake does with memory, of what no row of tests/play/rows.h can say: calls with
   other arguments, and many blocks. */
#include "fixture.h"

/* More than may be stitched is left: a window that is live does not go. */
CASE(stitch_free_drops_many_windows_at_once) {
  enum { WINDOWS = 130 };
  void *b[4 * WINDOWS], *w[WINDOWS];
  size_t i;
  prepare(4 * WINDOWS);
  desc.stitched_bytes_max = 2 * WINDOWS * C;
  open_lake();
  lay(b, 4 * WINDOWS);
  for (i = 0; i < 4 * WINDOWS; i += 2) drop(b[i]);
  for (i = 0; i < WINDOWS; i++) w[i] = take(2 * C);
  for (i = 0; i < WINDOWS; i++) drop(w[i]);
  assert_int_equal(stats().window_count, WINDOWS);
  assert_int_equal(stats().stitch_evict_count, 0);
  w[0] = take(2 * WINDOWS * C);
  assert_int_equal(stats().stitch_evict_count, WINDOWS);
  assert_int_equal(stats().window_count, 1);
  drop(w[0]);
  for (i = 1; i < 4 * WINDOWS; i += 2) drop(b[i]);
  finish();
}

/* ---- Bugs that models, faults, fuzzing and reviews found ---- */

static void *take_flags_on(size_t bytes, gmlake_stream stream) {
  const gmlake_alloc_desc wanted = request(bytes, GMLAKE_NO_GROW, NULL);
  return take_with(&wanted, stream);
}

/* A search looked at 32 windows of a size that other streams hold back, and not behind them. */
CASE(a_free_window_is_found_behind_any_number) {
  gmlake_stream a, b;
  void *blocks[82], *windows[41];
  int i;
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
CASE(the_end_of_a_chunk_is_found_behind_sixteen_longer_ranges) {
  void *holes[21 + 52 * 8], **next = holes, *tail;
  uint64_t chunks;
  int i;
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

int main(void) { return run_cases("bestfit"); }
