/* Tests of what the lake does with memory: BestFit's states after the GMLake paper's Figure 9,
   windows and StitchFree, the options of a request, growth, trim, limits, budget.

   In the drawings a chunk stands between two bars, live blocks are capitals, free ones small
   letters, dots are address space without memory. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"
#include "part.h"

/* ---- BestFit, after the paper's Figure 9 ----------------------------------------------------- */

static gmlake_stats mark;

static void assert_state(int number, uint64_t splits, uint64_t stitches, uint64_t reuses) {
  gmlake_stats now = stats();
  int i;
  for (i = 0; i < 5; i++)
    assert_int_equal(now.state_count[i] - mark.state_count[i], i + 1 == number);
  assert_int_equal(now.split_count - mark.split_count, splits);
  assert_int_equal(now.stitch_count - mark.stitch_count, stitches);
  assert_int_equal(now.stitch_reuse_count - mark.stitch_reuse_count, reuses);
}

static void *take_marked(size_t bytes) {
  mark = stats();
  return take(bytes);
}

/* S2, one larger pBlock, the smallest that holds it: ask 1
     before  | a   a   a | B | c   c | D |      pPool {c 2, a 3}
     after   | a   a   a | B | E | c | D |      pPool {c 1, a 3} */
static void s2_splits_the_best_larger_pblock(void **state) {
  void *a, *b, *c, *d, *e;
  (void)state;
  start(8);
  flood(7);
  a = take(3 * C);
  b = take(C);
  c = take(2 * C);
  d = take(C);
  drop_these(a, c);
  e = take_marked(C);
  assert_ptr_equal(e, c);
  assert_state(2, 1, 0, 0);
  assert_int_equal(stats().driver_call_count, mark.driver_call_count);
  assert_ptr_equal(take_marked(C), (char *)c + C); /* the remainder */
  assert_state(1, 0, 0, 0);
  drop(e);
  drop((char *)c + C);
  drop_these(b, d);
  finish();
}

/* A lake of 32 chunks, with one small block in the last one, that may have so many more. Short:
   they are taken, too. */
static void *start_with_crumbs(size_t more, int is_short) {
  const gmlake_alloc_desc others = request(more * C, GMLAKE_EXCLUSIVE, NULL);
  void *small;
  start(32 + more);
  (void)take(31 * C);
  small = take_marked(512);
  assert_state(4, 1, 0, 0);
  assert_int_equal(stats().reserved_bytes, 32 * C);
  if (is_short) (void)take_with(&others, LEGACY);
  return small;
}

/* S2, small blocks that know only the arena's end lie side by side: a large one in between does not
   get the rest of their chunk, until the last of them is freed. */
static void s2_keeps_small_blocks_together(void **state) {
  char *small = (char *)start_with_crumbs(40, 0), *large = (char *)take(C - 512);
  (void)state;
  assert_true(large > small + 512);
  assert_ptr_equal(take_marked(2048), small + 512);
  assert_state(2, 1, 0, 0);
  assert_true(take(2560) != small + 2560);
  drop(small);
  assert_ptr_equal(take(512), small);
  assert_ptr_equal(take(512), small + 2560);
  drop(small + 2560);
  assert_true(take_on(C / 8, LEGACY) == small + 2560);
  finish();
}

/* Where the arena can hardly grow, the last hole stays whole for a request of just its size. */
static void s2_leaves_the_last_hole_whole(void **state) {
  char *small = (char *)start_with_crumbs(31, 0), *rest;
  (void)state;
  rest = (char *)take(2 * C - 1024);
  assert_ptr_equal(rest, small + 512);
  assert_ptr_equal(take(512), rest + 2 * C - 1024);
  (void)take(30 * C);
  assert_int_equal(stats().reserved_bytes, 63 * C);
  finish();
}

/* In a pool, too: after a peak small blocks keep few chunks. */
static void s2_keeps_small_blocks_of_a_pool_together(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_pool *pool = NULL;
  void *large[64];
  size_t i, released = 0;
  (void)state;
  start(1024);
  step(gmlake_pool_create(lake, NULL, &pool));
  for (i = 0; i < 96; i++) {
    wanted = request(512, 0, pool);
    (void)take_with(&wanted, LEGACY);
    wanted = request(C, 0, pool);
    if (i < 64) large[i] = take_with(&wanted, LEGACY);
  }
  for (i = 0; i < 64; i++) drop(large[i]);
  step(gmlake_trim(lake, 0, &released));
  assert_true(stats().reserved_bytes <= 40 * C);
  finish();
}

/* What a capture set aside is its pool's free memory when it has ended. */
static void s2_sets_nothing_aside_past_a_capture(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_pool *pool = NULL;
  gmlake_stream stream = NULL;
  void *last;
  (void)state;
  start(1024);
  step(gmlake_mock_stream_create(mock, &stream));
  step(gmlake_pool_create(lake, NULL, &pool));
  wanted = request(31 * C, 0, pool);
  (void)take_with(&wanted, stream);
  step(gmlake_capture_begin(lake, stream, pool));
  wanted = request(C, 0, pool);
  last = take_with(&wanted, stream);
  step(gmlake_free(lake, last, stream));
  wanted = request(512, 0, pool);
  assert_ptr_equal(take_with(&wanted, stream), last);
  assert_non_null(pool->arena.crumbs);
  step(gmlake_capture_end(lake, stream));
  assert_null(pool->arena.crumbs);
  step(gmlake_check(lake));
  finish();
}

/* What is set aside is free memory where memory is short, for trim, and for the budget. */
static void s2_sets_nothing_aside_for_good(void **state) {
  char *small = (char *)start_with_crumbs(32, 1), *large;
  gmlake_query_info info;
  gmlake_alloc_desc wanted = request(C - 512, 0, NULL);
  gmlake_budget budget;
  size_t released = 0;
  (void)state;
  step(gmlake_query(lake, &wanted, LEGACY, &info));
  assert_int_equal(info.result, GMLAKE_OK);
  assert_int_equal(info.wait, GMLAKE_NO_WAIT);
  assert_int_equal(info.new_bytes, 0);
  assert_ptr_equal(take(C - 512), small + 512);
  finish();
  small = (char *)start_with_crumbs(32, 1);
  assert_ptr_equal(take(C - 512), small + 512);
  finish();
  small = (char *)start_with_crumbs(32, 1);
  wanted = request(C - 512, GMLAKE_NO_GROW, NULL);
  assert_ptr_equal(take_with(&wanted, LEGACY), small + 512);
  finish();
  (void)start_with_crumbs(40, 0);
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.idle_bytes, C - 512);
  assert_int_equal(budget.pending_bytes, 0);
  finish();
  start(72);
  (void)take(32 * C - 1024);
  large = (char *)take(2 * C);
  drop(large);
  assert_ptr_equal(take(512), large);
  step(gmlake_trim(lake, 0, &released));
  assert_int_equal(released, 2 * C);
  finish();
}

/* S3, several and Split of the last: ask 3
     before  | a | B | c | D | e   e | F |      pPool {a 1, c 1, e 2}
     after   | W | B | W | D | W | e | F |      pPool {e 1}   sPool {w = a c e} */
static void s3_stitches_and_splits_the_last(void **state) {
  void *b[5], *e, *w;
  (void)state;
  start(12);
  flood(7);
  b[0] = take(C);
  b[1] = take(C);
  b[2] = take(C);
  b[3] = take(C);
  e = take(2 * C);
  b[4] = take(C);
  drop_these(b[0], b[2], e);
  w = take_marked(3 * C);
  assert_state(3, 0, 1, 0);
  assert_int_equal(piece_count(w), 3);
  assert_piece(w, 0, b[0], C);
  assert_piece(w, 1, b[2], C);
  assert_piece(w, 2, e, C);
  assert_int_equal(stats().stitched_bytes, 3 * C);
  assert_int_equal(census().mapping_count, 10);
  assert_ptr_equal(take_marked(C), (char *)e + C);
  assert_state(1, 0, 0, 0);
  drop((char *)e + C);
  drop_these(w, b[1], b[3], b[4]);
  finish();
}

/* S3, contents: what is written through the window is read at the pieces' homes, in order, and
   nowhere else. */
static void s3_window_aliases_its_pieces(void **state) {
  void *b[5], *w;
  unsigned char *bytes;
  size_t i;
  (void)state;
  start(5);
  lay(b, 5);
  for (i = 0; i < 5; i++) memset(b[i], (int)(0xE0 + i), C);
  drop_these(b[0], b[2], b[4]);
  w = take(3 * C);
  bytes = (unsigned char *)w;
  for (i = 0; i < 3 * C; i++) bytes[i] = (unsigned char)(i / C + i % 251);
  for (i = 0; i < 3 * C; i++) {
    const unsigned char *home = (const unsigned char *)piece(w, i / C).home;
    i % 4096 ? (void)0 : assert_memory_equal(home + i % C, bytes + i, 4096);
  }
  for (i = 0; i < C; i++) {
    assert_int_equal(((unsigned char *)b[1])[i], 0xE1);
    assert_int_equal(((unsigned char *)b[3])[i], 0xE3);
  }
  drop_these(w, b[1], b[3]);
  finish();
}

static void assert_ends_are_on_chunks(const void *ptr) {
  size_t count = piece_count(ptr), i;
  for (i = 0; i < count; i++) {
    uintptr_t home = (uintptr_t)piece(ptr, i).home;
    if (i) assert_int_equal(home % C, 0);
    if (i + 1 < count) assert_int_equal((home + piece(ptr, i).bytes) % C, 0);
  }
}

/* S3, partial ends: the free tail of one chunk and the free head of another: ask 56K
     before  | A 24K, b 40K | C | d 16K, E 48K | F |
     after   | A 24K, W 40K | C | W 16K, E 48K | F | */
static void s3_begins_in_a_tail_and_ends_in_a_head(void **state) {
  char *a, *b, *c, *d, *e, *f, *w;
  size_t i;
  (void)state;
  start(4);
  flood(4);
  a = (char *)take(24 * K);
  b = (char *)take(40 * K);
  c = (char *)take(C);
  d = (char *)take(16 * K);
  e = (char *)take(48 * K);
  f = (char *)take(C);
  memset(a, 1, 24 * K);
  memset(e, 2, 48 * K);
  drop_these(b, d);
  w = (char *)take_marked(56 * K);
  assert_state(3, 0, 1, 0);
  assert_int_equal(piece_count(w), 2);
  assert_piece(w, 0, b, 40 * K);
  assert_piece(w, 1, d, 16 * K);
  assert_ends_are_on_chunks(w);
  assert_int_equal((uintptr_t)w % C, 24 * K);
  assert_int_equal(stats().stitched_bytes, 2 * C); /* handles map whole */
  for (i = 0; i < 56 * K; i++) w[i] = (char)(i % 127);
  for (i = 0; i < 40 * K; i++) assert_int_equal(b[i], i % 127);
  for (i = 0; i < 16 * K; i++) assert_int_equal(d[i], (i + 40 * K) % 127);
  for (i = 0; i < 24 * K; i++) assert_int_equal(a[i], 1);
  for (i = 0; i < 48 * K; i++) assert_int_equal(e[i], 2);
  drop_these(w, a, c, e, f);
  finish();
}

/* S3 with a whole chunk between the ends: ask 40K + 64K + 8K
     before  | A 24K, b 40K | C | d | E | f 16K, G 48K |
     after   | A 24K, W 40K | C | W | E | W 8K, f 8K, G 48K | */
static void s3_puts_whole_chunks_between_its_ends(void **state) {
  void *a, *b, *c, *d, *e, *f, *g, *w;
  (void)state;
  start(5);
  flood(5);
  a = take(24 * K);
  b = take(40 * K);
  c = take(C);
  d = take(C);
  e = take(C);
  f = take(16 * K);
  g = take(48 * K);
  drop_these(b, d, f);
  w = take(112 * K);
  assert_int_equal(piece_count(w), 3);
  assert_piece(w, 0, b, 40 * K);
  assert_piece(w, 1, d, C);
  assert_piece(w, 2, f, 8 * K);
  assert_ends_are_on_chunks(w);
  drop_these(w, a, c, e, g);
  finish();
}

/* The last piece is the shortest free head that holds it: ask 64K + 10K
     | a | B | c 40K, D 24K | e 16K, F 48K | g 8K, H 56K |     the window ends in e */
static void s3_ends_in_the_shortest_head_that_will_do(void **state) {
  void *b[8], *w;
  size_t i;
  const size_t sizes[] = {C, C, 40 * K, 24 * K, 16 * K, 48 * K, 8 * K, 56 * K};
  (void)state;
  start(5);
  flood(5);
  for (i = 0; i < 8; i++) b[i] = take(sizes[i]);
  for (i = 0; i < 8; i += 2) drop(b[i]);
  w = take(74 * K);
  assert_int_equal(piece_count(w), 2);
  assert_piece(w, 0, b[0], C);
  assert_piece(w, 1, b[4], 10 * K);
  drop(w);
  for (i = 1; i < 8; i += 2) drop(b[i]);
  finish();
}

/* A hole that touches no chunk's end is of no use to a window: ask 80K
     | A 8K, b 48K, C 8K | d | E |              48K + 64K free, 64K of them stitchable */
static void s3_cannot_use_a_hole_inside_a_chunk(void **state) {
  void *a, *b, *c, *d, *e;
  (void)state;
  start(3);
  flood(3);
  a = take(8 * K);
  b = take(48 * K);
  c = take(8 * K);
  d = take(C);
  e = take(C);
  drop_these(b, d);
  assert_error(try_on(80 * K, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(last_error().free_bytes, 112 * K);
  assert_int_equal(last_error().stitchable_bytes, C);
  drop_these(a, c, e);
  finish();
}

/* S4, Alloc of the shortfall, then Stitch: ask 3
     before  | a | B | c | D | . | .            pPool {a 1, c 1}
     after   | W | B | W | D | W | .            sPool {w = a c and the new chunk} */
static void s4_allocates_the_shortfall_and_stitches(void **state) {
  void *b[4], *w;
  (void)state;
  start(6);
  lay(b, 4);
  drop_these(b[0], b[2]);
  w = take_marked(3 * C);
  assert_state(4, 0, 1, 0);
  assert_int_equal(stats().reserved_bytes, mark.reserved_bytes + C);
  assert_int_equal(stats().chunk_count, 5);
  assert_int_equal(piece_count(w), 3);
  assert_ends_are_on_chunks(w);
  memset(w, 3, 3 * C);
  drop_these(w, b[1], b[3]);
  finish();
}

/* S4 without a window, where one range takes no more new chunks: ask 3
     before  | A | B | c | . | .
     after   | A | B | D   D   D | */
static void s4_grows_contiguously_where_that_takes_no_more(void **state) {
  void *b[3], *d;
  (void)state;
  start(6);
  lay(b, 3);
  drop(b[2]);
  d = take_marked(3 * C);
  assert_ptr_equal(d, b[2]);
  assert_int_equal(piece_count(d), 1);
  assert_int_equal(stats().reserved_bytes, mark.reserved_bytes + 2 * C);
  assert_int_equal(stats().stitch_count, 0);
  assert_int_equal(stats().state_count[3], mark.state_count[3] + 1);
  drop_these(b[0], b[1], d);
  finish();
}

/* S5, out of memory: ask 3 of a device of 5
     | a | B | c | D | E |                      and the report has the figures */
static void s5_reports_the_figures(void **state) {
  gmlake_error_info info;
  void *b[5];
  (void)state;
  start(5);
  lay(b, 5);
  drop_these(b[0], b[2]);
  mark = stats();
  assert_error(try_on(3 * C - 1, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_state(5, 0, 0, 0);
  assert_int_equal(stats().oom_count, 1);
  assert_int_equal(stats().allocation_count, mark.allocation_count);
  info = last_error();
  assert_error(info.result, OUT_OF_DEVICE_MEMORY);
  assert_string_equal(info.call, "gmlake_alloc");
  assert_true(strlen(info.text) > 0);
  assert_int_equal(info.asked_bytes, 3 * C - 1);
  assert_int_equal(info.live_bytes, 3 * C);
  assert_int_equal(info.free_bytes, 2 * C);
  assert_int_equal(info.stitchable_bytes, 2 * C);
  assert_int_equal(info.pending_bytes, 0);
  assert_int_equal(info.reserved_bytes, 5 * C);
  assert_int_equal(info.limit_bytes, 0);
  assert_int_equal(info.driver_free_bytes, 0);
  drop_these(b[1], b[3], b[4]);
  finish();
}

static void every_allocation_is_in_one_state(void **state) {
  void *b[6];
  gmlake_stats now;
  uint64_t sum = 0;
  int i;
  (void)state;
  start(6);
  lay(b, 6);
  for (i = 0; i < 6; i += 2) drop(b[i]);
  b[0] = take(C + 512);
  b[2] = take(C / 2);
  assert_error(try_on(2 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  b[4] = NULL;
  for (i = 0; i < 6; i++) drop(b[i]);
  now = stats();
  for (i = 0; i < 5; i++) sum += now.state_count[i];
  assert_int_equal(sum, now.allocation_count + now.oom_count);
  finish();
}

static void get_pieces_fills_what_there_is_room_for(void **state) {
  gmlake_piece two[2];
  void *b[5], *w;
  size_t count = 0;
  (void)state;
  start(5);
  lay(b, 5);
  drop_these(b[0], b[2], b[4]);
  w = take(3 * C);
  memset(two, 0, sizeof(two));
  step(gmlake_get_pieces(lake, w, two, 1, &count));
  assert_int_equal(count, 3);
  assert_ptr_equal(two[0].home, b[0]);
  assert_null(two[1].home);
  step(gmlake_get_pieces(lake, b[1], two, 2, &count));
  assert_int_equal(count, 1);
  assert_ptr_equal(two[0].home, b[1]);
  assert_int_equal(two[0].bytes, C);
  assert_null(two[1].home);
  drop_these(w, b[1], b[3]);
  finish();
}

/* A window of a and c is idle, and e is free: ask 2
     | a | B | c | D | e   e   e |      the window, so that e stays whole
     | a | B | c | D | e   e   eF |     of e less than a chunk is left, so it is split */
static void a_window_spares_a_chunk(void **state) {
  int is_short;
  (void)state;
  for (is_short = 0; is_short < 2; is_short++) {
    void *b[6], *w;
    start(7);
    lay(b, 4);
    b[4] = take(3 * C - (is_short ? 512 : 0));
    b[5] = is_short ? take(512) : NULL;
    drop_these(b[0], b[2]);
    w = take(2 * C);
    assert_int_equal(piece_count(w), 2);
    drop_these(w, b[4]);
    w = take_marked(2 * C);
    assert_state(is_short ? 2 : 1, (unsigned)is_short, 0, !is_short);
    assert_int_equal(piece_count(w), is_short ? 1 : 2);
    drop_these(w, b[1], b[3]);
    if (b[5]) drop(b[5]);
    finish();
  }
}

/* ---- StitchFree ------------------------------------------------------------------------------ */

/* | a | B | c | D | e | F | g | H |: windows of two, three and four chunks can be made. */
static void open_comb(void **b, size_t stitched_bytes_max) {
  size_t i;
  prepare(8);
  desc.stitched_bytes_max = stitched_bytes_max;
  open_lake();
  lay(b, 8);
  for (i = 0; i < 8; i += 2) drop(b[i]);
}

static void close_comb(void **b) {
  size_t i;
  for (i = 1; i < 8; i += 2) drop(b[i]);
  finish();
}

/* Each arena gives up 64 windows a call, and the one that asks is asked twice. */
static void stitch_free_drops_64_windows_a_call(void **state) {
  enum { WINDOWS = 130 };
  void *b[4 * WINDOWS], *w[WINDOWS];
  size_t i;
  (void)state;
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
  assert_int_equal(stats().stitch_evict_count, 2 * 64);
  assert_int_equal(stats().window_count, WINDOWS - 2 * 64 + 1);
  drop(w[0]);
  for (i = 1; i < 4 * WINDOWS; i += 2) drop(b[i]);
  finish();
}

static void stitch_free_leaves_windows_of_pending_work(void **state) {
  void *b[8];
  (void)state;
  open_comb(b, 8 * C);
  gmlake_mock_stream_hold(mock, LEGACY);
  drop(take(2 * C));
  drop(take(3 * C));
  drop(take(4 * C));
  assert_int_equal(stats().stitch_evict_count, 0);
  assert_int_equal(stats().stitched_bytes, 9 * C);
  assert_int_equal(census().host_wait_count, 0);
  gmlake_mock_stream_finish(mock, LEGACY);
  drop(take(3 * C + 512)); /* a fourth window */
  assert_true(stats().stitch_evict_count > 0);
  assert_true(stats().stitched_bytes <= 8 * C);
  close_comb(b);
}

/* ---- Options of a request -------------------------------------------------------------------- */

static void no_stitch_takes_one_piece(void **state) {
  void *b[4], *p;
  (void)state;
  start(8);
  lay(b, 4);
  drop_these(b[0], b[2]);
  p = take_flags(2 * C, GMLAKE_NO_STITCH);
  assert_int_equal(piece_count(p), 1);
  assert_ptr_equal(piece(p, 0).home, p);
  assert_int_equal(stats().stitch_count, 0);
  assert_int_equal(stats().reserved_bytes, 6 * C);
  drop_these(p, b[1], b[3]);
  finish();
}

static size_t growths[4], growth_count; /* bytes of each */

static void note_growth(void *user, const gmlake_step *event) {
  (void)user;
  if (event->kind != GMLAKE_STEP_GROW) return;
  assert_true(growth_count < 4);
  growths[growth_count++] = (size_t)event->bytes;
}

/* | . | s h h t | s h h t | ...: a chunk's worth of 512-byte grains less 6, of which each hole h
   is one, begins misaligned in them. Best fit does not see the new chunk, in the gap, behind the
   holes. One is enough nonetheless. */
static void one_growth_serves_what_best_fit_overlooks(void **state) {
  gmlake_alloc_desc wanted = request(C - 6 * 512, GMLAKE_NO_STITCH, NULL);
  void *gap, *s[24], *h[24], *t[24], *aligned;
  size_t i;
  (void)state;
  prepare(32);
  desc.observer.fn = note_growth;
  open_lake();
  drop_on(take_on(25 * C, NONE), NONE);
  gap = take_on(C, NONE);
  for (i = 0; i < 24; i++) {
    s[i] = take_on(512, NONE);
    h[i] = take_on(wanted.bytes, NONE);
    t[i] = take_on(5 * 512, NONE);
  }
  assert_int_equal(stats().reserved_bytes, 25 * C);
  drop_on(gap, NONE);
  assert_int_equal(trim_to(0), C);
  for (i = 24; i--;) drop_on(h[i], NONE);
  wanted.alignment = 4 * K;
  growth_count = 0;
  aligned = take_with(&wanted, NONE);
  assert_int_equal((uintptr_t)aligned % (4 * K), 0);
  assert_int_equal(growth_count, 1);
  assert_int_equal(growths[0], C);
  drop_on(aligned, NONE);
  for (i = 0; i < 24; i++) {
    drop_on(s[i], NONE);
    drop_on(t[i], NONE);
  }
  finish();
}

static void exclusive_owns_whole_chunks(void **state) {
  gmlake_allocation_info info;
  char *a, *x, *y;
  (void)state;
  start(8);
  flood(3);
  a = (char *)take(24 * K);
  x = (char *)take_flags(10 * K, GMLAKE_EXCLUSIVE);
  assert_ptr_equal(x, a - 24 * K + C + 24 * K);
  assert_int_equal((uintptr_t)x % C, 0);
  step(gmlake_get_allocation(lake, x, &info));
  assert_int_equal(info.bytes, C);
  assert_int_equal(info.requested_bytes, 10 * K);
  assert_int_equal(info.flags, GMLAKE_EXCLUSIVE);
  y = (char *)take(20 * K);
  assert_true(y < x || y >= x + C); /* nobody else is in it */
  assert_int_equal(stats().active_bytes, 44 * K + C);
  drop_these(a, x, y);
  finish();
}

static void alignment_is_kept(void **state) {
  gmlake_alloc_desc wanted = request(3000, 0, NULL);
  void *p[12];
  size_t i, alignment = 1;
  (void)state;
  start(8);
  p[0] = take(512);
  for (i = 1; i < 12; i++, alignment *= 4) {
    wanted.alignment = alignment > C ? C : alignment;
    p[i] = take_with(&wanted, LEGACY);
    assert_int_equal((uintptr_t)p[i] % wanted.alignment, 0);
    assert_int_equal((uintptr_t)p[i] % 512, 0);
  }
  for (i = 0; i < 12; i++) drop(p[i]);
  finish();
}

/* ---- Growth, trim, limits, budget ------------------------------------------------------------ */

static void limit_is_reached_and_not_passed(void **state) {
  void *a;
  (void)state;
  prepare(16);
  desc.limit_bytes = 4 * C + C / 2;
  open_lake();
  assert_error(try_on(4 * C + 1, LEGACY), LIMIT_REACHED);
  assert_int_equal(last_error().limit_bytes, 4 * C + C / 2);
  assert_null(last_error().pool);
  assert_int_equal(last_error().driver_free_bytes, 16 * C);
  a = take(4 * C); /* just below works */
  assert_error(try_on(512, LEGACY), LIMIT_REACHED);
  assert_int_equal(stats().oom_count, 2);
  assert_int_equal(stats().state_count[4], 2);
  drop(a);
  drop(take(4 * C));
  finish();
}

static void pool_limits_are_reached(void **state) {
  gmlake_pool *pool;
  gmlake_alloc_desc wanted;
  void *a;
  (void)state;
  start(16);
  pool = open_pool(2 * C);
  wanted = request(2 * C + 1, 0, pool);
  assert_error(try_with(&wanted, LEGACY), LIMIT_REACHED);
  assert_int_equal(last_error().limit_bytes, 2 * C); /* the limit in force */
  assert_ptr_equal(last_error().pool, pool);
  a = take_from(pool, 2 * C, LEGACY);
  wanted.bytes = 512;
  assert_error(try_with(&wanted, LEGACY), LIMIT_REACHED);
  drop(take(4 * C)); /* the lake itself has none */
  drop(a);
  finish();
}

static void budget_adds_up(void **state) {
  gmlake_budget budget;
  void *a, *b;
  (void)state;
  prepare(16);
  desc.limit_bytes = 10 * C;
  open_lake();
  flood(4);
  a = take(C);
  b = take(C);
  gmlake_mock_stream_hold(mock, LEGACY);
  drop(b);
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.total_bytes, 16 * C);
  assert_int_equal(budget.driver_free_bytes, 12 * C);
  assert_int_equal(budget.reserved_bytes, 4 * C);
  assert_int_equal(budget.idle_bytes, 2 * C);
  assert_int_equal(budget.pending_bytes, C);
  assert_int_equal(budget.allocatable_bytes, 9 * C);
  assert_int_equal(census().host_wait_count, 0);
  gmlake_mock_stream_finish(mock, LEGACY);
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.idle_bytes, 3 * C);
  assert_int_equal(budget.pending_bytes, 0);
  drop(a);
  finish();
}

/* The limit that the report of a shortage names. */
static size_t limit_told(gmlake_pool *from, size_t bytes, unsigned flags) {
  gmlake_alloc_desc wanted = request(bytes, flags, from);
  assert_int_not_equal(try_with(&wanted, LEGACY), GMLAKE_OK);
  return last_error().limit_bytes;
}

static void a_shortage_names_the_limit_that_counts(void **state) {
  gmlake_pool *two;
  (void)state;
  prepare(16);
  desc.limit_bytes = 8 * C;
  open_lake();
  two = open_pool(2 * C);
  (void)take(7 * C);
  assert_int_equal(limit_told(two, 3 * C, 0), 2 * C); /* the lake's is in the way, too */
  assert_int_equal(limit_told(two, 2 * C, 0), 8 * C);
  (void)take_from(two, C, LEGACY);
  assert_int_equal(limit_told(NULL, C, 0), 8 * C);
  finish();
  prepare(16);
  open_lake();
  two = open_pool(2 * C);
  assert_int_equal(limit_told(two, C, GMLAKE_NO_GROW), 2 * C);
  assert_int_equal(limit_told(NULL, C, GMLAKE_NO_GROW), 0);
  finish();
}

/* ---- What the budget promises ---- */

static uint32_t random_bits;

static uint32_t below(uint32_t count) {
  random_bits = random_bits * 1664525u + 1013904223u;
  return (random_bits >> 8) % count;
}

/* A block as large as the budget says is served; none that is a chunk larger, where windows are
   allowed. */
static void assert_promised(void) {
  gmlake_budget budget;
  void *ptr = NULL;
  step(gmlake_get_budget(lake, &budget));
  if (budget.allocatable_bytes) {
    step(gmlake_alloc(lake, budget.allocatable_bytes, LEGACY, &ptr));
    drop(ptr);
  }
  if (desc.stitch_bytes_min) return;
  step(gmlake_get_budget(lake, &budget));
  assert_int_not_equal(try_on(budget.allocatable_bytes + C, LEGACY), GMLAKE_OK);
}

/* Blocks, buffers of two chunk sizes and a pool come and go in a lake with limits of each kind. */
static void play_budget(uint32_t seed) {
  void *live[12] = {NULL};
  gmlake_buffer *buffers[2];
  gmlake_buffer_desc wanted = buffer_desc(16 * C);
  gmlake_pool *pool;
  size_t i, n;
  random_bits = seed;
  prepare(40);
  if (seed & 1) desc.limit_bytes = (20 + below(18)) * C;
  if (seed & 2) desc.driver_free_bytes_min = below(8 * C);
  if (seed & 4) desc.arena_bytes = (8 + below(32)) * C;
  if (seed & 8) desc.stitch_bytes_min = below(12 * C);
  if (seed & 16) desc.cross_stream = GMLAKE_WAIT_FIRST;
  open_lake();
  pool = open_pool(0);
  buffers[0] = open_buffer(16);
  wanted.chunk_bytes = 4 * C;
  step(gmlake_buffer_create(lake, &wanted, &buffers[1]));
  for (n = 0; n < 40; n++) {
    i = below(12);
    if (live[i]) {
      drop(live[i]);
      live[i] = NULL;
    } else {
      gmlake_alloc_desc block = request(1 + below(below(3) ? 4 * C : C), 0, below(4) ? NULL : pool);
      (void)gmlake_alloc_with(lake, &block, LEGACY, &live[i]);
    }
    if (!below(3)) (void)gmlake_buffer_resize(lake, buffers[below(2)], below(12 * C), LEGACY);
    assert_promised();
  }
  (void)gmlake_destroy(lake);
  close_mock();
}

static void what_the_budget_promises_is_served(void **state) {
  uint32_t seed;
  (void)state;
  for (seed = 0; seed < part_of(96); seed++) play_budget(seed);
}

/* Half of each chunk is free: a window takes one end of a chunk, and another one's beginning. */
static void the_budget_counts_no_holes_that_cannot_be_joined(void **state) {
  gmlake_budget budget;
  void *b[8];
  size_t i;
  (void)state;
  start(5);
  for (i = 0; i < 8; i++) b[i] = take(C / 2);
  for (i = 0; i < 8; i += 2) drop(b[i]);
  step(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.idle_bytes, 2 * C);
  assert_int_equal(budget.allocatable_bytes, C + C / 2);
  assert_promised();
  (void)gmlake_destroy(lake);
  close_mock();
}

static void budget_leaves_the_thread_its_capture_mode(void **state) {
  gmlake_budget budget;
  int mode = 1, code = 0;
  (void)state;
  start(4);
  assert_ok(mock->capture_exchange(mock->user, &mode, &code));
  step(gmlake_get_budget(lake, &budget));
  mode = 0;
  assert_ok(mock->capture_exchange(mock->user, &mode, &code));
  assert_int_equal(mode, 1);
  finish();
}

/* ---- Scenes -------------------------------------------------------------------------------- */

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(s2_splits_the_best_larger_pblock),
      cmocka_unit_test(s2_keeps_small_blocks_together),
      cmocka_unit_test(s2_leaves_the_last_hole_whole),
      cmocka_unit_test(s2_keeps_small_blocks_of_a_pool_together),
      cmocka_unit_test(s2_sets_nothing_aside_past_a_capture),
      cmocka_unit_test(s2_sets_nothing_aside_for_good),
      cmocka_unit_test(s3_stitches_and_splits_the_last),
      cmocka_unit_test(s3_window_aliases_its_pieces),
      cmocka_unit_test(s3_begins_in_a_tail_and_ends_in_a_head),
      cmocka_unit_test(s3_puts_whole_chunks_between_its_ends),
      cmocka_unit_test(s3_ends_in_the_shortest_head_that_will_do),
      cmocka_unit_test(s3_cannot_use_a_hole_inside_a_chunk),
      cmocka_unit_test(s4_allocates_the_shortfall_and_stitches),
      cmocka_unit_test(s4_grows_contiguously_where_that_takes_no_more),
      cmocka_unit_test(s5_reports_the_figures),
      cmocka_unit_test(every_allocation_is_in_one_state),
      cmocka_unit_test(a_window_spares_a_chunk),
      cmocka_unit_test(get_pieces_fills_what_there_is_room_for),
      cmocka_unit_test(stitch_free_drops_64_windows_a_call),
      cmocka_unit_test(stitch_free_leaves_windows_of_pending_work),
      cmocka_unit_test(no_stitch_takes_one_piece),
      cmocka_unit_test(one_growth_serves_what_best_fit_overlooks),
      cmocka_unit_test(exclusive_owns_whole_chunks),
      cmocka_unit_test(alignment_is_kept),
      cmocka_unit_test(limit_is_reached_and_not_passed),
      cmocka_unit_test(pool_limits_are_reached),
      cmocka_unit_test(budget_adds_up),
      cmocka_unit_test(what_the_budget_promises_is_served),
      cmocka_unit_test(the_budget_counts_no_holes_that_cannot_be_joined),
      cmocka_unit_test(budget_leaves_the_thread_its_capture_mode),
      cmocka_unit_test(a_shortage_names_the_limit_that_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
