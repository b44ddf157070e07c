/* Tests of bench/policy_paper.h: BestFit's states after the GMLake paper's Figure 9 and Algorithm
   1, the fragmentation limit in each of its readings, StitchFree, slabs, and what the authors' code
   does instead.

   In the drawings a chunk stands between two bars, live blocks are capitals, free ones small
   letters; chunks side by side with one letter are one pBlock. Sizes are in chunks. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"
#include "policy_paper.h"

static gmlake_paper paper;
static gmlake_policy policy;
static gmlake_stats mark;

/* A lake by the paper without a fragmentation limit; settings may be changed before open_paper. */
static void prepare_paper(size_t chunks) {
  prepare(chunks);
  gmlake_paper_init(&paper);
  paper.chunk_bytes = C;
  paper.limit_bytes = 0;
}

static void open_paper(void) {
  policy = gmlake_policy_paper(&paper);
  desc.policy = &policy;
  desc.stitch_bytes_min = C;
  open_lake();
}

static void start_paper(size_t chunks) {
  prepare_paper(chunks);
  open_paper();
}

/* A new lake's pBlocks, live, one behind the other: sizes in chunks. */
static void lay_out(char **blocks, const char *sizes) {
  size_t i;
  for (i = 0; sizes[i]; i++) {
    blocks[i] = (char *)take((size_t)(sizes[i] - '0') * C);
    if (i) assert_ptr_equal(blocks[i], blocks[i - 1] + (size_t)(sizes[i - 1] - '0') * C);
  }
}

static void *take_marked(size_t bytes) {
  mark = stats();
  mark.driver_call_count -= census().reservation_count;
  return take(bytes);
}

/* The request since then was served so. */
static void assert_state(int number, uint64_t stitches, uint64_t reuses, size_t new_chunks) {
  gmlake_stats now = stats();
  int i;
  for (i = 0; i < 5; i++)
    assert_int_equal(now.state_count[i] - mark.state_count[i], i + 1 == number);
  assert_int_equal(now.stitch_count - mark.stitch_count, stitches);
  assert_int_equal(now.stitch_reuse_count - mark.stitch_reuse_count, reuses);
  assert_int_equal(now.chunk_count - mark.chunk_count, new_chunks);
  if (number == 1) /* windows get their addresses when a policy is asked for the first one */
    assert_int_equal(now.driver_call_count - census().reservation_count, mark.driver_call_count);
}

static void drop_all(char **blocks, size_t count) {
  size_t i;
  for (i = 0; i < count; i++)
    if (blocks[i]) drop(blocks[i]);
}

/* ---- The five states ------------------------------------------------------------------------- */

/* S1, exact pBlock: ask 2
     before  | A | b   b | C | d   d   d |      pPool {d 3, b 2}
     after   | A | B   B | C | d   d   d |      pPool {d 3} */
static void s1_takes_an_exact_pblock(void **state) {
  char *b[4];
  (void)state;
  start_paper(8);
  lay_out(b, "1213");
  drop_these(b[3], b[1]);
  assert_ptr_equal(take_marked(2 * C), b[1]);
  assert_state(1, 0, 0, 0);
  drop_all(b, 3);
  finish();
}

/* S1, exact sBlock: ask 2 after w was freed
     before  | a | B | c | D |                  pPool {a, c}   sPool {w = a c, idle}
     after   | W | B | W | D |                  pPool {}       sPool {w live} */
static void s1_takes_an_exact_sblock(void **state) {
  char *b[4], *w;
  (void)state;
  start_paper(4);
  lay_out(b, "1111");
  drop_these(b[0], b[2]);
  w = (char *)take_marked(2 * C);
  assert_state(3, 1, 0, 0);
  drop(w);
  assert_ptr_equal(take_marked(2 * C), w);
  assert_state(1, 0, 1, 0);
  drop_these(w, b[1], b[3]);
  finish();
}

/* S1 over both pools before S2: ask 2, 2
     before  | a | B | c | D | e   e | F | g   g   g |    sPool {w = a c}
     first   | a | B | c | D | E   E | F | g   g   g |
     second  | W | B | W | D | E   E | F | g   g   g | */
static void s1_comes_before_s2(void **state) {
  char *b[7], *w;
  (void)state;
  start_paper(10);
  lay_out(b, "1111213");
  drop_these(b[0], b[2]);
  w = (char *)take(2 * C);
  drop_these(w, b[4], b[6]);
  assert_ptr_equal(take_marked(2 * C), b[4]);
  assert_state(1, 0, 0, 0);
  assert_ptr_equal(take_marked(2 * C), w);
  assert_state(1, 0, 1, 0);
  drop_these(w, b[1], b[3], b[4], b[5]);
  finish();
}

/* An sBlock of which one piece has been taken is active and cannot serve: ask 2
     before  | A | B | c | D |                  sPool {w = a c, active with A}
     after   | A | B | X | D | X |              sPool {w, x = c and a new chunk} */
static void s1_passes_an_active_sblock(void **state) {
  char *b[4], *w, *x;
  (void)state;
  start_paper(8);
  lay_out(b, "1111");
  drop_these(b[0], b[2]);
  w = (char *)take(2 * C);
  drop(w);
  assert_ptr_equal(take_marked(C), b[0]);
  x = (char *)take_marked(2 * C);
  assert_state(4, 1, 0, 1);
  assert_ptr_not_equal(x, w);
  assert_piece(x, 0, b[2], C);
  drop(x);
  b[2] = NULL;
  drop_all(b, 4);
  finish();
}

/* S2, the smallest larger pBlock, Split; the former block is kept as an sBlock: ask 1, then 2
     before  | a   a   a | B | c   c | D |      pPool {a 3, c 2}
     after   | a   a   a | B | E | c | D |      pPool {a 3, c 1}   sPool {w = e c, active}
     freed   | a   a   a | B | e | c | D |      pPool {a 3, e 1, c 1}   sPool {w}
     then    | a   a   a | B | W | W | D |      pPool {a 3}   sPool {w live} */
static void s2_splits_the_smallest_larger_pblock(void **state) {
  char *b[4], *w;
  (void)state;
  start_paper(8);
  lay_out(b, "3121");
  drop_these(b[0], b[2]);
  assert_ptr_equal(take_marked(C), b[2]);
  assert_state(2, 1, 0, 0);
  assert_int_equal(stats().split_count - mark.split_count, 1);
  assert_int_equal(stats().stitched_bytes, 2 * C);
  drop(b[2]);
  w = (char *)take_marked(2 * C);
  assert_state(1, 0, 1, 0);
  assert_int_equal(piece_count(w), 2);
  assert_piece(w, 0, b[2], C);
  assert_piece(w, 1, b[2] + C, C);
  drop_these(w, b[1], b[3]);
  finish();
}

/* S3, greedily in descending size, here exactly: ask 5
     before  | a | B | c   c | D | e   e   e | F |    pPool {e 3, c 2, a 1}
     after   | a | B | W   W | D | W   W   W | F |    pPool {a 1}   sPool {w = e c} */
static void s3_stitches_in_descending_size(void **state) {
  char *b[6], *w;
  (void)state;
  start_paper(9);
  lay_out(b, "112131");
  drop_these(b[0], b[2], b[4]);
  w = (char *)take_marked(5 * C);
  assert_state(3, 1, 0, 0);
  assert_int_equal(piece_count(w), 2);
  assert_piece(w, 0, b[4], 3 * C);
  assert_piece(w, 1, b[2], 2 * C);
  assert_ptr_equal(take_marked(C), b[0]);
  assert_state(1, 0, 0, 0);
  drop(w);
  b[2] = b[4] = NULL;
  drop_all(b, 6);
  finish();
}

/* S3, Split of the last, equal sizes by address: ask 6
     before  | a   a | B | c   c   c | D | e   e | F |    pPool {c 3, a 2, e 2}
     after   | W   W | B | W   W   W | D | W | e | F |    pPool {e 1}   sPool {w = c a e} */
static void s3_splits_the_last(void **state) {
  char *b[6], *w;
  (void)state;
  start_paper(10);
  lay_out(b, "213121");
  drop_these(b[0], b[2], b[4]);
  w = (char *)take_marked(6 * C);
  assert_state(3, 1, 0, 0);
  assert_int_equal(piece_count(w), 3);
  assert_piece(w, 0, b[2], 3 * C);
  assert_piece(w, 1, b[0], 2 * C);
  assert_piece(w, 2, b[4], C);
  assert_ptr_equal(take_marked(C), b[4] + C);
  assert_state(1, 0, 0, 0);
  drop(b[4] + C);
  drop(w);
  b[0] = b[2] = b[4] = NULL;
  drop_all(b, 6);
  finish();
}

/* S4, Alloc of the shortfall, Stitch of all: ask 5
     before  | a | B | c   c | D |              pPool {c 2, a 1}
     after   | W | B | W   W | D | W   W |      sPool {w = c a and 2 new chunks} */
static void s4_creates_the_shortfall(void **state) {
  char *b[4], *w;
  (void)state;
  start_paper(8);
  lay_out(b, "1121");
  drop_these(b[0], b[2]);
  w = (char *)take_marked(5 * C);
  assert_state(4, 1, 0, 2);
  assert_int_equal(piece_count(w), 3);
  assert_piece(w, 0, b[2], 2 * C);
  assert_piece(w, 1, b[0], C);
  assert_piece(w, 2, b[3] + C, 2 * C);
  drop_these(w, b[1], b[3]);
  finish();
}

/* S4 where the pPool is empty: a pBlock, no sBlock. Sizes are rounded up to chunks. */
static void s4_creates_all_where_nothing_is_free(void **state) {
  gmlake_allocation_info info;
  char *a;
  (void)state;
  start_paper(4);
  a = (char *)take_marked(2 * C + 1);
  assert_state(4, 0, 0, 3);
  assert_ok(gmlake_get_allocation(lake, a, &info));
  assert_int_equal(info.bytes, 3 * C);
  assert_int_equal(info.piece_count, 1);
  drop(a);
  assert_ptr_equal(take_marked(3 * C), a);
  assert_state(1, 0, 0, 0);
  drop(a);
  finish();
}

/* S5: of a device of 4 chunks 2 are live: ask 3, then 2
     before  | a | B | c | D |
     after   |   | B |   | D |                  what is free was returned, in vain
     then    | E   E | B | D | in some order */
static void s5_is_out_of_memory(void **state) {
  char *b[4], *e;
  (void)state;
  start_paper(4);
  lay_out(b, "1111");
  drop_these(b[0], b[2]);
  mark = stats();
  assert_error(try_on(3 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(stats().state_count[4] - mark.state_count[4], 1);
  assert_int_equal(last_error().asked_bytes, 3 * C);
  e = (char *)take(2 * C);
  drop_these(e, b[1], b[3]);
  finish();
}

/* As the built-in policy's: no plan is asked for what no arena has addresses for. */
static void s5_whatever_the_size(void **state) {
  const size_t sizes[] = {33 * C, (size_t)1 << 40, ((size_t)1 << 40) + 1, SIZE_MAX / 2, SIZE_MAX};
  size_t i;
  int is_limited;
  (void)state;
  for (is_limited = 0; is_limited < 2; is_limited++) {
    prepare_paper(4);
    desc.limit_bytes = is_limited ? 2 * C : 0;
    open_paper();
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
      mark = stats();
      assert_error(try_on(sizes[i], LEGACY), OUT_OF_DEVICE_MEMORY);
      assert_int_equal(stats().state_count[4] - mark.state_count[4], 1);
      assert_true(last_error().asked_bytes == sizes[i]);
    }
    finish();
  }
}

/* Another stream's memory is no part of the pools before it has been waited for: ask 2 on t, where
   the device has no more
     | a   a |                                  freed on s, whose work is pending */
static void s5_waits_for_other_streams(void **state) {
  gmlake_stream s, t;
  char *a;
  (void)state;
  start_paper(2);
  s = open_stream();
  t = open_stream();
  a = (char *)take_on(2 * C, s);
  gmlake_mock_stream_hold(mock, s);
  drop_on(a, s);
  assert_ptr_equal(take_on(2 * C, t), a);
  assert_int_equal(stats().host_wait_count, 1);
  drop_on(a, t);
  finish();
}

/* ---- Update ---------------------------------------------------------------------------------- */

/* Neighbours that are free stay two pBlocks: ask 2
     before  | a | b | C |                      pPool {a 1, b 1}
     after   | W | W | C |                      sPool {w = a b} */
static void freed_blocks_do_not_coalesce(void **state) {
  char *b[3], *w;
  (void)state;
  start_paper(4);
  lay_out(b, "111");
  drop_these(b[0], b[1]);
  w = (char *)take_marked(2 * C);
  assert_state(3, 1, 0, 0);
  assert_int_equal(piece_count(w), 2);
  drop_these(w, b[2]);
  finish();
}

/* The same with `coalesces`: S1. */
static void freed_blocks_coalesce_if_asked(void **state) {
  char *b[3];
  (void)state;
  prepare_paper(4);
  paper.coalesces = 1;
  open_paper();
  lay_out(b, "111");
  drop_these(b[0], b[1]);
  assert_ptr_equal(take_marked(2 * C), b[0]);
  assert_state(1, 0, 0, 0);
  drop_these(b[0], b[2]);
  finish();
}

/* The same sizes again and again: what was stitched or split once is met again as it is. */
static void a_program_that_repeats_itself_converges(void **state) {
  static const size_t sizes[] = {3, 1, 2, 1, 4, 2};
  char *blocks[6], *wide;
  size_t iteration, i;
  (void)state;
  start_paper(32);
  for (iteration = 0; iteration < 6; iteration++) {
    gmlake_stats now;
    mark = stats();
    for (i = 0; i < 6; i++) blocks[i] = (char *)take(sizes[i] * C);
    for (i = 0; i < 6; i += 2) drop(blocks[i]);
    wide = (char *)take(7 * C);
    drop(wide);
    for (i = 1; i < 6; i += 2) drop(blocks[i]);
    now = stats();
    if (iteration < 2) continue;
    assert_int_equal(now.state_count[0] - mark.state_count[0], 7);
    assert_int_equal(now.driver_call_count, mark.driver_call_count);
  }
  finish();
}

/* ---- The fragmentation limit ----------------------------------------------------------------- */

static void start_limited(gmlake_paper_limit reading, size_t limit, char **blocks,
                          const char *sizes) {
  size_t i;
  prepare_paper(24);
  paper.limit_reading = reading;
  paper.limit_bytes = limit * C;
  open_paper();
  lay_out(blocks, sizes);
  for (i = 0; sizes[i]; i += 2) drop(blocks[i]);
}

/* Limit 4 of what is asked for: 3 is not stitched, 4 is
     before  | a | B | c   c | D |
     ask 3   | a | B | c   c | D | E   E   E |
     ask 4   | W | B | W   W | D | E   E   E | W | */
static void limit_of_requests(void **state) {
  char *b[4], *e, *w;
  (void)state;
  start_limited(GMLAKE_PAPER_LIMIT_REQUEST, 4, b, "1121");
  e = (char *)take_marked(3 * C);
  assert_state(4, 0, 0, 3);
  w = (char *)take_marked(4 * C);
  assert_state(4, 1, 0, 1);
  assert_int_equal(piece_count(w), 3);
  drop_these(w, e, b[1], b[3]);
  finish();
}

/* Limit 4 of what is asked for: 3 splits a larger pBlock, but keeps no sBlock of it
     before  | a   a   a   a   a | B |
     ask 3   | E   E   E | a   a | B | */
static void limit_of_requests_splits(void **state) {
  char *b[2];
  (void)state;
  start_limited(GMLAKE_PAPER_LIMIT_REQUEST, 4, b, "51");
  assert_ptr_equal(take_marked(3 * C), b[0]);
  assert_state(2, 0, 0, 0);
  drop_all(b, 2);
  finish();
}

/* Limit 4 of what is asked for, strictly: 3 splits nothing, 4 does
     before  | a   a   a   a   a | B |
     ask 3   | a   a   a   a   a | B | E   E   E |
     ask 4   | F   F   F   F | a | B | E   E   E | */
static void limit_of_requests_strictly(void **state) {
  char *b[2], *e;
  (void)state;
  start_limited(GMLAKE_PAPER_LIMIT_EXACT, 4, b, "51");
  e = (char *)take_marked(3 * C);
  assert_state(4, 0, 0, 3);
  assert_ptr_equal(take_marked(4 * C), b[0]);
  assert_state(2, 1, 0, 0);
  drop(e);
  drop_all(b, 2);
  finish();
}

/* Limit 4 of what is free: a is split for nobody, but serves its own size; c is stitched alone
     before  | a   a   a | B | c   c   c   c | D |
     ask 6   | a   a   a | B | W   W   W   W | D | W   W |
     ask 2   | a   a   a | B | W   W   W   W | D | W   W | E   E |
     ask 3   | A   A   A | ... */
static void limit_of_blocks(void **state) {
  char *b[4], *e, *w;
  (void)state;
  start_limited(GMLAKE_PAPER_LIMIT_BLOCK, 4, b, "3141");
  w = (char *)take_marked(6 * C);
  assert_state(4, 1, 0, 2);
  assert_piece(w, 0, b[2], 4 * C);
  e = (char *)take_marked(2 * C);
  assert_state(4, 0, 0, 2);
  assert_ptr_equal(take_marked(3 * C), b[0]);
  assert_state(1, 0, 0, 0);
  drop_these(w, e);
  b[2] = NULL;
  drop_all(b, 4);
  finish();
}

/* Limit 4 of what is free: what is large enough is split, also into less; then no sBlock is kept
     before  | a   a   a   a   a   a   a   a   a | B |
     ask 4   | E   E   E   E | a   a   a   a   a | B |     sPool {w = e a, active}
     ask 3   | E   E   E   E | F   F   F | a   a | B | */
static void limit_of_blocks_splits_what_is_larger(void **state) {
  char *b[2];
  (void)state;
  start_limited(GMLAKE_PAPER_LIMIT_BLOCK, 4, b, "91");
  assert_ptr_equal(take_marked(4 * C), b[0]);
  assert_state(2, 1, 0, 0);
  assert_ptr_equal(take_marked(3 * C), b[0] + 4 * C);
  assert_state(2, 0, 0, 0);
  drop(b[0] + 4 * C);
  drop_all(b, 2);
  finish();
}

/* Limit 4 of what is free, handed out whole: ask 2
     before  | a   a   a | B |
     after   | A   A   A | B |                  3 chunks for a request of 2 */
static void limit_of_blocks_hands_out_whole(void **state) {
  gmlake_allocation_info info;
  char *b[2];
  (void)state;
  start_limited(GMLAKE_PAPER_LIMIT_WHOLE, 4, b, "31");
  assert_ptr_equal(take_marked(2 * C), b[0]);
  assert_state(2, 0, 0, 0);
  assert_int_equal(stats().split_count, mark.split_count);
  assert_ok(gmlake_get_allocation(lake, b[0], &info));
  assert_int_equal(info.bytes, 3 * C);
  drop_all(b, 2);
  finish();
}

/* ---- StitchFree ------------------------------------------------------------------------------ */

/* Threshold 6 on the sPool: ask 2 and 3, free both, 2 again: v was used last. Ask 4:
     before  | a | B | c | D | e | F | g | H | i |    sPool {v = a c, w = e g i}
     after   | X | B | X | D | X | F | X | H | i |    sPool {v active, x live}, w dropped */
static void stitchfree_drops_the_one_longest_unused(void **state) {
  char *b[9], *v, *w, *x;
  size_t i;
  (void)state;
  prepare_paper(12);
  paper.stitched_bytes_max = 6 * C;
  open_paper();
  lay_out(b, "111111111");
  for (i = 0; i < 9; i += 2) drop(b[i]);
  v = (char *)take(2 * C);
  w = (char *)take(3 * C);
  drop_these(v, w);
  assert_ptr_equal(take_marked(2 * C), v);
  assert_state(1, 0, 1, 0);
  drop(v);
  assert_int_equal(stats().stitched_bytes, 5 * C);
  x = (char *)take_marked(4 * C);
  assert_state(3, 1, 0, 0);
  assert_int_equal(stats().stitch_evict_count, 1);
  assert_int_equal(stats().stitched_bytes, 6 * C);
  drop(x);
  assert_ptr_equal(take_marked(2 * C), v);
  assert_state(1, 0, 1, 0);
  w = (char *)take_marked(3 * C);
  assert_state(3, 1, 0, 0);
  drop_these(v, w);
  for (i = 1; i < 9; i += 2) drop(b[i]);
  finish();
}

/* Live windows stay, and so do those that work may still use, whatever the threshold. */
static void stitchfree_spares_what_is_in_use(void **state) {
  char *b[6], *v, *w;
  gmlake_stream s;
  (void)state;
  prepare_paper(8);
  paper.stitched_bytes_max = C;
  open_paper();
  s = open_stream();
  lay_out(b, "111111");
  drop_on(b[0], s);
  drop_on(b[2], s);
  v = (char *)take_on(2 * C, s);
  gmlake_mock_stream_hold(mock, s);
  drop_on(v, s);
  drop(b[4]);
  w = (char *)take(3 * C);
  assert_int_equal(stats().stitch_evict_count, 0);
  assert_int_equal(stats().window_count, 2);
  drop(w);
  gmlake_mock_stream_finish(mock, s);
  drop_these(b[1], b[3], b[5]);
  finish();
}

/* ---- Slabs ----------------------------------------------------------------------------------- */

/* Below a chunk: best fit inside one, holes that touch are one
     | A 10K, B 10K, C 44K |,   then | a, b, C |, ask 20K: | D 20K, C 44K | */
static void small_requests_share_a_slab(void **state) {
  char *a, *b, *c;
  (void)state;
  start_paper(4);
  a = (char *)take(10 * K);
  assert_int_equal(stats().chunk_count, 1);
  b = (char *)take_marked(10 * K);
  assert_state(2, 0, 0, 0);
  assert_ptr_equal(b, a + 10 * K);
  c = (char *)take_marked(44 * K);
  assert_state(1, 0, 0, 0);
  drop_these(b, a);
  assert_ptr_equal(take_marked(20 * K), a);
  assert_state(1, 0, 0, 0);
  drop_these(a, c);
  assert_ptr_equal(take_marked(C), a); /* a slab that is all free is a pBlock */
  assert_state(1, 0, 0, 0);
  drop(a);
  finish();
}

/* The smallest hole of a slab, not a pBlock; where no hole will do, the smallest pBlock's front; a
   slab's free part does not grow into the pBlock beside it, whose size stays
     | A 4K, b 12K, C 48K | d | E | f   f   f | G |
     ask 8K   in b;   ask 20K   in d;   then 3   is f;   E freed, then 1   is e */
static void slabs_spare_pblocks(void **state) {
  char *a, *b, *c, *x, *y, *d[4];
  (void)state;
  start_paper(12);
  a = (char *)take(4 * K);
  b = (char *)take(12 * K);
  c = (char *)take(48 * K);
  lay_out(d, "1131");
  drop_these(b, d[0], d[2]);
  x = (char *)take_marked(8 * K);
  assert_ptr_equal(x, b);
  y = (char *)take_marked(20 * K);
  assert_ptr_equal(y, d[0]);
  assert_ptr_equal(take_marked(3 * C), d[2]);
  assert_state(1, 0, 0, 0);
  drop(d[1]);
  assert_ptr_equal(take_marked(C), d[1]);
  assert_state(1, 0, 0, 0);
  drop_these(a, c, x, y);
  d[0] = NULL;
  drop_all(d, 4);
  finish();
}

/* A slab cut off a larger pBlock leaves the rest of it a pBlock, which can be split in turn: ask
   1K, 1 and 1
     before  | a   a   a | B |
     after   | C 1K, hole | D | E | B | */
static void a_slab_is_cut_off_a_pblock(void **state) {
  char *b[2], *c;
  (void)state;
  start_paper(4);
  lay_out(b, "31");
  drop(b[0]);
  c = (char *)take_marked(K);
  assert_state(2, 0, 0, 0);
  assert_ptr_equal(c, b[0]);
  assert_ptr_equal(take_marked(C), b[0] + C);
  assert_state(2, 0, 0, 0);
  assert_ptr_equal(take_marked(C), b[0] + 2 * C);
  assert_state(1, 0, 0, 0);
  drop(b[0] + C);
  drop(b[0] + 2 * C);
  drop_these(c, b[1]);
  finish();
}

/* ---- Options --------------------------------------------------------------------------------- */

/* | a | B | c | D |: pinned memory of 2 is created; a small EXCLUSIVE block has a chunk of its own;
   alignment holds inside slabs; memory that may not grow is stitched or refused. */
static void options_of_requests(void **state) {
  gmlake_alloc_desc wanted;
  char *b[4], *x, *y;
  (void)state;
  start_paper(8);
  lay_out(b, "1111");
  drop_these(b[0], b[2]);
  x = (char *)take_flags(2 * C, GMLAKE_NO_STITCH);
  assert_int_equal(piece_count(x), 1);
  drop(x);
  x = (char *)take_flags(K, GMLAKE_EXCLUSIVE);
  assert_ptr_equal(x, b[0]);
  wanted = request(K, 0, NULL);
  y = (char *)take_with(&wanted, LEGACY);
  assert_ptr_equal(y, b[2]);
  wanted.alignment = 8 * K;
  b[0] = (char *)take_with(&wanted, LEGACY);
  assert_ptr_equal(b[0], y + 8 * K);
  drop(x);
  x = (char *)take_flags(3 * C, GMLAKE_NO_GROW);
  assert_int_equal(piece_count(x), 2);
  wanted = request(C, GMLAKE_NO_GROW, NULL);
  assert_error(try_with(&wanted, LEGACY), OUT_OF_DEVICE_MEMORY);
  drop_these(x, y);
  b[2] = NULL;
  drop_all(b, 4);
  finish();
}

/* ---- What the authors' code does instead ----------------------------------------------------- */

/* A larger pBlock goes before an exact sBlock: ask 2
     before  | a | B | c | D | e   e   e |      sPool {w = a c}
     after   | a | B | c | D | F   F | e |      pPool {a 1, c 1, e 1} */
static void a_larger_pblock_may_go_first(void **state) {
  char *b[5], *w;
  (void)state;
  prepare_paper(8);
  paper.takes_block_first = 1;
  paper.keeps_former = 0;
  open_paper();
  lay_out(b, "11113");
  drop_these(b[0], b[2]);
  w = (char *)take(2 * C);
  drop_these(w, b[4]);
  assert_ptr_equal(take_marked(2 * C), b[4]);
  assert_state(2, 0, 0, 0);
  drop_these(b[1], b[3], b[4]);
  finish();
}

/* S4 creates all of the request: ask 3
     before  | a | B | c | D |
     after   | a | B | c | D | E   E   E | */
static void all_of_a_request_may_be_created(void **state) {
  char *b[4], *e;
  (void)state;
  prepare_paper(8);
  paper.allocates_whole = 1;
  open_paper();
  lay_out(b, "1111");
  drop_these(b[0], b[2]);
  e = (char *)take_marked(3 * C);
  assert_state(4, 0, 0, 3);
  drop_these(e, b[1], b[3]);
  finish();
}

/* Stitching only where nothing can be created: ask 2 and 2 on a device of 6
     before  | a | B | c | D |
     first   | a | B | c | D | E   E |
     second  | W | B | W | D | E   E | */
static void stitching_may_come_late(void **state) {
  char *b[4], *e, *w;
  (void)state;
  prepare_paper(6);
  paper.stitches_late = 1;
  open_paper();
  lay_out(b, "1111");
  drop_these(b[0], b[2]);
  e = (char *)take_marked(2 * C);
  assert_state(4, 0, 0, 2);
  w = (char *)take_marked(2 * C);
  assert_state(3, 1, 0, 0);
  drop_these(w, e, b[1], b[3]);
  finish();
}

/* An sBlock of up to so much of the request, whole: ask 2
     before  | a | B | c | D | e | F |          sPool {w = a c e}
     after   | W | B | W | D | W | F | */
static void a_larger_sblock_may_be_reused(void **state) {
  gmlake_allocation_info info;
  char *b[6], *w;
  (void)state;
  prepare_paper(8);
  paper.reuse_percent = 150;
  open_paper();
  lay_out(b, "111111");
  drop_these(b[0], b[2], b[4]);
  w = (char *)take(3 * C);
  drop(w);
  assert_ptr_equal(take_marked(2 * C), w);
  assert_state(1, 0, 1, 0);
  assert_ok(gmlake_get_allocation(lake, w, &info));
  assert_int_equal(info.bytes, 3 * C);
  drop_these(w, b[1], b[3], b[5]);
  finish();
}

static void the_settings_are_the_papers_and_the_authors(void **state) {
  (void)state;
  gmlake_paper_init(&paper);
  assert_int_equal(paper.chunk_bytes, 2048 * K);
  assert_int_equal(paper.limit_bytes, 128 * 1024 * K);
  assert_true(paper.keeps_former && !paper.coalesces && !paper.allocates_whole);
  gmlake_paper_init_official(&paper);
  assert_int_equal(paper.limit_bytes, 512 * 1024 * K);
  assert_int_equal(paper.limit_reading, GMLAKE_PAPER_LIMIT_REQUEST);
  assert_true(!paper.keeps_former && paper.coalesces && paper.allocates_whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(s1_takes_an_exact_pblock),
                                     cmocka_unit_test(s1_takes_an_exact_sblock),
                                     cmocka_unit_test(s1_comes_before_s2),
                                     cmocka_unit_test(s1_passes_an_active_sblock),
                                     cmocka_unit_test(s2_splits_the_smallest_larger_pblock),
                                     cmocka_unit_test(s3_stitches_in_descending_size),
                                     cmocka_unit_test(s3_splits_the_last),
                                     cmocka_unit_test(s4_creates_the_shortfall),
                                     cmocka_unit_test(s4_creates_all_where_nothing_is_free),
                                     cmocka_unit_test(s5_is_out_of_memory),
                                     cmocka_unit_test(s5_whatever_the_size),
                                     cmocka_unit_test(s5_waits_for_other_streams),
                                     cmocka_unit_test(freed_blocks_do_not_coalesce),
                                     cmocka_unit_test(freed_blocks_coalesce_if_asked),
                                     cmocka_unit_test(a_program_that_repeats_itself_converges),
                                     cmocka_unit_test(limit_of_requests),
                                     cmocka_unit_test(limit_of_requests_splits),
                                     cmocka_unit_test(limit_of_requests_strictly),
                                     cmocka_unit_test(limit_of_blocks),
                                     cmocka_unit_test(limit_of_blocks_splits_what_is_larger),
                                     cmocka_unit_test(limit_of_blocks_hands_out_whole),
                                     cmocka_unit_test(stitchfree_drops_the_one_longest_unused),
                                     cmocka_unit_test(stitchfree_spares_what_is_in_use),
                                     cmocka_unit_test(small_requests_share_a_slab),
                                     cmocka_unit_test(slabs_spare_pblocks),
                                     cmocka_unit_test(a_slab_is_cut_off_a_pblock),
                                     cmocka_unit_test(options_of_requests),
                                     cmocka_unit_test(a_larger_pblock_may_go_first),
                                     cmocka_unit_test(all_of_a_request_may_be_created),
                                     cmocka_unit_test(stitching_may_come_late),
                                     cmocka_unit_test(a_larger_sblock_may_be_reused),
                                     cmocka_unit_test(the_settings_are_the_papers_and_the_authors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
