/* What finds errors of the program's: filled memory, guards behind windows, and the checks that
   gmlake_check makes of windows against their chunks. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_with(unsigned flags) {
  prepare(16);
  desc.flags = flags;
  open_lake();
}

static int is_filled(const void *ptr, size_t bytes, unsigned byte) {
  const unsigned char *at = (const unsigned char *)ptr;
  while (bytes && *at == byte) at++, bytes--;
  return bytes == 0;
}

/* A window of a tail and a head, with a block between them. */
static void *take_window(void **b) {
  lay(b, 5);
  drop(b[1]);
  drop(b[3]);
  return take(2 * C);
}

static void memory_is_filled_when_handed_out_and_when_freed(void **state) {
  char *block, *small;
  (void)state;
  open_with(GMLAKE_FILL);
  flood(2);
  block = (char *)take(C + 100);
  assert_true(is_filled(block, C + 512, GMLAKE_FILL_NEW));
  memset(block, 1, C + 100);
  drop(block);
  assert_true(is_filled(block, C + 512, GMLAKE_FILL_FREE));
  small = (char *)take(512);
  assert_ptr_equal(small, block);
  assert_true(is_filled(small, 512, GMLAKE_FILL_NEW));
  assert_true(is_filled(small + 512, C, GMLAKE_FILL_FREE));
  drop(small);
  finish();
}

static void small_blocks_are_filled(void **state) {
  char *block;
  (void)state;
  prepare(16);
  desc.flags = GMLAKE_FILL;
  desc.small_bytes_max = 4096;
  open_lake();
  block = (char *)take(4096);
  memset(block, 1, 4096);
  drop(block);
  assert_true(is_filled(block, 4096, GMLAKE_FILL_FREE));
  assert_ptr_equal(take(4096), block);
  assert_true(is_filled(block, 4096, GMLAKE_FILL_NEW));
  drop(block);
  finish();
}

static void windows_are_filled_in_all_their_pieces(void **state) {
  void *b[5], *window;
  (void)state;
  open_with(GMLAKE_FILL);
  window = take_window(b);
  assert_int_equal(piece_count(window), 2);
  assert_true(is_filled(window, 2 * C, GMLAKE_FILL_NEW));
  memset(b[2], 7, C);
  memset(window, 1, 2 * C);
  drop(window);
  assert_true(is_filled(b[1], C, GMLAKE_FILL_FREE));
  assert_true(is_filled(b[2], C, 7));
  assert_true(is_filled(b[3], C, GMLAKE_FILL_FREE));
  finish();
}

static void what_streams_still_use_is_not_filled(void **state) {
  gmlake_stream other;
  char *block;
  (void)state;
  open_with(GMLAKE_FILL);
  other = open_stream();
  block = (char *)take(C);
  memset(block, 1, C);
  step(gmlake_record_stream(lake, block, other));
  gmlake_mock_stream_hold(mock, other);
  drop(block);
  assert_true(is_filled(block, C, 1));
  gmlake_mock_stream_finish(mock, other);
  (void)trim_to(C);
  assert_true(is_filled(block, C, GMLAKE_FILL_FREE));
  finish();
}

static void without_the_flag_nothing_is_filled(void **state) {
  char *block;
  (void)state;
  open_with(0);
  block = (char *)take(C);
  memset(block, 1, C);
  drop(block);
  assert_ptr_equal(take(C), block);
  assert_true(is_filled(block, C, 1));
  drop(block);
  finish();
}

static void a_device_whose_memory_the_host_cannot_write_is_not_filled(void **state) {
  gmlake_mock_desc with;
  gmlake_device_properties properties;
  int code;
  (void)state;
  memset(&with, 0, sizeof(with));
  with.bookkeeping_only = 1;
  assert_ok(gmlake_mock_create(&with, &mock));
  assert_ok(mock->get_properties(mock->user, &properties, &code));
  assert_false(properties.is_host_memory);
  memset(&desc, 0, sizeof(desc));
  desc.backend = mock;
  desc.flags = GMLAKE_FILL;
  assert_error(gmlake_create(&desc, &lake), UNSUPPORTED);
  gmlake_mock_destroy(mock);
}

/* Non-zero: a child that writes there dies of it. */
static int writing_kills(char *at) {
  const struct rlimit none = {0, 0};
  int status = 0;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGSEGV, SIG_DFL);
    *(volatile char *)at = 1;
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void a_guard_lies_behind_each_window(void **state) {
  void *b[5];
  char *first, *second;
  (void)state;
  open_with(GMLAKE_GUARD);
  first = (char *)take_window(b);
  drop(b[0]);
  drop(b[2]);
  drop(b[4]);
  second = (char *)take_flags(2 * C, GMLAKE_NO_STITCH);
  drop(second);
  assert_false(writing_kills(first + 2 * C - 1));
  assert_true(writing_kills(first + 2 * C));
  second = (char *)take(3 * C);
  assert_int_equal(stats().window_count, 2);
  assert_true(second - first >= (ptrdiff_t)(3 * C) || first - second >= (ptrdiff_t)(4 * C));
  assert_true(writing_kills(second + 3 * C));
  drop(first);
  drop(second);
  (void)trim_to(0);
  assert_int_equal(stats().window_count, 0);
  finish();
}

static void without_guards_windows_lie_side_by_side(void **state) {
  void *b[5];
  char *first, *second;
  (void)state;
  open_with(0);
  first = (char *)take_window(b);
  drop(b[0]);
  drop(b[2]);
  drop(b[4]);
  second = (char *)take(3 * C);
  assert_int_equal(stats().window_count, 2);
  assert_ptr_equal(second, first + 2 * C);
  drop(first);
  drop(second);
  finish();
}

/* The message of the invariant that is found broken begins with this. */
static void assert_broken(const char *invariant) {
  assert_error(gmlake_check(lake), CORRUPT);
  assert_memory_equal(last_error().text, invariant, strlen(invariant));
}

static void check_counts_the_mappings_of_each_chunk(void **state) {
  void *b[5], *window;
  (void)state;
  open_with(0);
  window = take_window(b);
  lake->home.chunks[1].map_count--; /* the sum stays what it was */
  lake->home.chunks[2].map_count++;
  assert_broken("W6");
  lake->home.chunks[1].map_count++;
  lake->home.chunks[2].map_count--;
  drop(window);
  finish();
}

static void check_finds_a_chunk_twice_in_a_window(void **state) {
  void *b[5], *window;
  gmlk_window *w;
  gmlk_span last;
  (void)state;
  open_with(0);
  window = take_window(b);
  drop(window);
  w = lake->home.spool.oldest;
  last = w->spans[1];
  w->spans[1].at = w->spans[0].at;
  assert_broken("W2");
  w->spans[1] = last;
  finish();
}

static void check_finds_a_tag_of_the_future(void **state) {
  uint64_t *epoch, now;
  (void)state;
  open_with(0);
  drop(take(C));
  epoch = &lake->streams.items[GMLK_FIRST_STREAM]->epoch;
  now = *epoch;
  lake->home.head.next->ticket = now + 1;
  assert_broken("S1");
  lake->home.head.next->ticket = now;
  finish();
}

/* With that value in its place the invariant is broken; else all is well. */
#define assert_breaks(place, value, invariant) \
  do {                                         \
    unsigned char kept_[sizeof(place)];        \
    memcpy(kept_, &(place), sizeof(place));    \
    (place) = (value);                         \
    assert_broken(invariant);                  \
    memcpy(&(place), kept_, sizeof(place));    \
    assert_ok(gmlake_check(lake));             \
  } while (0)

/* Five blocks of a chunk, the second and the fourth free: their records. */
static void lay_stripes(gmlk_block **records) {
  void *b[5];
  size_t i;
  open_with(0);
  lay(b, 5);
  drop(b[1]);
  drop(b[3]);
  records[0] = lake->home.head.next;
  for (i = 1; i < 5; i++) records[i] = records[i - 1]->next;
}

/* Destroys a lake with live blocks. */
static void abandon(void) {
  assert_ok(gmlake_check(lake));
  assert_ok(gmlake_destroy(lake));
  close_mock();
}

static void check_finds_what_is_wrong_with_a_block(void **state) {
  gmlk_block *b[5];
  gmlk_note note;
  (void)state;
  lay_stripes(b);
  assert_breaks(b[0]->grains, 0, "A1: blocks do not tile");
  assert_breaks(b[0]->grains, b[0]->grains + 1, "A1: blocks do not tile");
  assert_breaks(b[2]->prev, b[0], "A1: blocks do not tile");
  assert_breaks(b[0]->arena, 7, "A1: a block names another arena");
  assert_breaks(lake->home.chunks[1].first, b[0], "A4: a slot's first block");
  assert_breaks(lake->home.chunks[1].handle, 0, "A5");
  assert_breaks(b[1]->hole, 0, "A3: a hole's size is off");
  assert_breaks(b[1]->stream, (uint16_t)lake->streams.count, "S1: a tag names no stream");
  assert_breaks(b[0]->state, GMLK_RESERVED, "A1: a block is in a state that does not last");
  assert_breaks(b[0]->state, GMLK_UNUSED, "A1: a block is in a state that does not last");
  assert_breaks(b[0]->state, GMLK_IDLE, "A1: a block is in a state that does not last");
  assert_breaks(b[1]->state, GMLK_LIVE, "N1: a live block's note is another's");
  assert_breaks(b[0]->state, GMLK_PENDING, "N1: a pending block is not in the list");
  memset(&note, 0, sizeof(note));
  lake->pending = b[0]->as.live.note = &note;
  lake->host.bytes += sizeof(note);
  b[0]->state = GMLK_PENDING;
  assert_broken("N1: a pending block's note is not its own");
  note.block = b[2];
  assert_broken("N1: a pending block's note is not its own");
  note.block = b[0];
  assert_broken("I1: a pending block is indexed");
  b[0]->state = GMLK_LIVE;
  lake->host.bytes -= sizeof(note);
  lake->pending = b[0]->as.live.note = NULL;
  b[2]->stream = b[1]->stream;
  assert_breaks(b[2]->state, GMLK_FREE, "A2");
  b[2]->stream = 0;
  abandon();
}

static void check_finds_what_is_wrong_with_a_pool(void **state) {
  gmlk_block *b[5];
  gmlk_holes *pool;
  uint32_t whole;
  unsigned bin;
  (void)state;
  lay_stripes(b);
  whole = b[1]->hole;
  bin = gmlk_bin_of(whole);
  pool = lake->home.pools[b[1]->stream];
  gmlk_holes_remove(pool, b[1]);
  gmlk_holes_insert(pool, b[1], whole / 2);
  pool->grains += whole / 2;
  b[1]->hole = whole;
  assert_broken("H1");
  b[1]->hole = whole / 2;
  pool->grains -= whole / 2;
  gmlk_holes_remove(pool, b[1]);
  gmlk_holes_insert(pool, b[1], whole);
  lake->home.free_grains -= whole;
  b[1]->state = GMLK_EDGE;
  assert_broken("A3: an owned block has a hole");
  b[1]->state = GMLK_FREE;
  lake->home.free_grains += whole;
  assert_breaks(b[1]->as.link.prev, NULL, "H3");
  assert_breaks(b[3]->as.link.prev, NULL, "H3");
  assert_breaks(pool->bits[bin / 64], 0, "H2: a bin and its bit differ");
  assert_breaks(pool->bits[bin / 64], ~(uint64_t)0, "H2: a bin and its bit differ");
  assert_breaks(pool->words, 0, "H2: a word of bits and its bit differ");
  assert_breaks(pool->words, pool->words ^ 1, "H2: a word of bits and its bit differ");
  assert_breaks(pool->words, ~(uint64_t)0, "H2: a word of bits and its bit differ");
  assert_breaks(pool->count, pool->count + 1, "H4");
  assert_breaks(pool->grains, pool->grains + 1, "H4");
  abandon();
}

static void check_finds_what_is_wrong_with_an_arena(void **state) {
  gmlk_arena *a;
  gmlk_block *b[5];
  (void)state;
  lay_stripes(b);
  a = &lake->home;
  assert_int_equal(trim_to(3 * C), 2 * C);
  assert_int_equal(b[1]->state, GMLK_UNBACKED);
  assert_breaks(a->head.next, b[1], "A1: blocks do not tile");
  assert_breaks(a->chunks[a->slot_count].first, NULL, "A4: the arena's end is off");
  assert_breaks(a->tail.at, a->tail.at + 1, "A4: the arena's end is off");
  assert_breaks(a->free_grains, a->free_grains + 1, "A6");
  assert_breaks(a->backed_count, a->backed_count + 1, "A6");
  assert_breaks(a->live_count, a->live_count + 1, "L4: the arena's live count is off");
  assert_breaks(a->chunks[1].handle, 5, "A5");
  assert_breaks(a->chunks[1].stuck, 1, "A5");
  assert_breaks(b[1]->hole, 1, "A7: a gap is none");
  assert_breaks(b[1]->as.link.prev, NULL, "A7: the ring of gaps is not linked");
  assert_breaks(b[3]->as.link.prev, NULL, "A7: the ring of gaps is not linked");
  assert_breaks(a->gaps.next, &a->gaps, "A7: the ring of gaps is not linked");
  assert_breaks(a->gaps.next, a->gaps.next->next, "A7");
  abandon();
}

static void check_finds_what_is_wrong_with_small_blocks(void **state) {
  gmlk_small *small;
  gmlk_block *b;
  void *first, *second;
  (void)state;
  prepare(16);
  desc.small_bytes_max = 4096;
  open_lake();
  first = take(512);
  second = take(512);
  drop(first);
  drop(second);
  b = lake->home.head.next;
  assert_int_equal(b->state, GMLK_CACHED);
  small = lake->home.smalls[b->stream];
  assert_int_equal(small->counts[1], 2);
  assert_breaks(b->stream, 1, "S1: a tag is of an epoch to come");
  assert_breaks(b->state, GMLK_EDGE, "A1: a block is in a state");
  assert_breaks(small->lists[2], b, "M1: a cached block is in a wrong list");
  assert_breaks(small->counts[1], 1, "M1: a list's count is off");
  assert_breaks(small->counts[GMLK_SMALL_GRAINS], 1, "M1: a list's count is off");
  b = small->lists[1];
  small->lists[1] = NULL;
  small->counts[1] = 0;
  assert_broken("M1: a cached block is in no list");
  small->lists[1] = b;
  small->counts[1] = 2;
  finish();
}

static void check_finds_what_is_wrong_with_a_live_window(void **state) {
  gmlk_window *w;
  gmlk_block *piece;
  void *b[5];
  (void)state;
  open_with(0);
  (void)take_window(b);
  piece = lake->home.head.next->next;
  w = piece->as.live.window;
  assert_int_equal(w->span_count, 2);
  assert_breaks(piece->as.live.window, NULL, "W4: a piece without a live window");
  assert_breaks(w->self.state, GMLK_IDLE, "W4: a piece without a live window");
  assert_breaks(w->spans[0].grains, w->spans[0].grains - 1, "W1: a piece ends inside");
  assert_breaks(w->spans[1].at, w->spans[1].at + 1, "W1: a piece begins inside");
  piece = w->spans[1].block;
  assert_breaks(piece->state, GMLK_EDGE, "A1: a block is in a state");
  assert_breaks(piece->as.live.window, NULL, "W4: a piece without a live window");
  assert_breaks(w->spans[1].at, piece->next->at, "W4: a live window's piece is not its own");
  assert_breaks(w->spans[1].grains, piece->grains - 1, "W3");
  assert_breaks(w->self.grains, w->self.grains + 1, "W3");
  assert_breaks(w->chunk_count, 3, "W2: a window's chunks do not match");
  assert_breaks(w->va->slack, 3, "W2: a window's chunks do not match");
  assert_breaks(w->va->grains, 3, "V1: blocks do not tile the address space");
  assert_breaks(w->address, w->address + 512, "W2: a window is not where");
  assert_breaks(lake->home.spool.count, 0, "L4: the windows' count or bytes");
  assert_breaks(lake->home.spool.bytes, 0, "L4: the windows' count or bytes");
  abandon();
}

static void check_finds_what_is_wrong_with_idle_windows(void **state) {
  gmlk_window *w[2];
  gmlk_spool *spool;
  void *b[5], *first, *second;
  (void)state;
  open_with(0);
  first = take_window(b);
  drop(b[0]);
  drop(b[4]);
  second = take(2 * C);
  drop(first);
  drop(second);
  spool = &lake->home.spool;
  w[0] = spool->oldest;
  w[1] = spool->newest;
  assert_ptr_equal(w[0]->newer, w[1]);
  assert_breaks(w[0]->self.state, GMLK_LIVE, "W5: an idle window is not where");
  assert_breaks(w[0]->older, w[1], "W5: an idle window is not where");
  assert_breaks(w[1]->older, NULL, "W5: an idle window is not where");
  assert_breaks(*gmlk_bucket(spool, w[0]->self.grains), NULL, "W5: an idle window is not where");
  assert_breaks(w[1]->bucket_next, NULL, "W5: an idle window is not where");
  assert_breaks(spool->newest, w[0], "W5: the list by age");
  assert_breaks(w[1]->self.grains, w[1]->self.grains - 1, "W");
  assert_breaks(w[0]->chunk_count, 3, "W2: a window's chunks do not match");
  assert_breaks(spool->count, 1, "L4: the windows' count or bytes");
  assert_breaks(spool->bytes, 2 * C, "L4: the windows' count or bytes");
  assert_breaks(spool->va->count, spool->va->count + 1, "H4");
  abandon();
}

static void check_finds_what_is_wrong_with_a_stream(void **state) {
  gmlake_stream stream;
  gmlk_stream *s;
  void *a, *b;
  (void)state;
  start(8);
  stream = open_stream();
  a = take_on(C, stream);
  b = take_on(C, stream);
  (void)take(512); /* a second stream: events are recorded */
  gmlake_mock_stream_hold(mock, stream);
  drop_on(a, stream);
  drop_on(b, stream);
  s = lake->streams.items[gmlk_stream_find(&lake->streams, stream)];
  assert_int_equal(s->fence_count, 2);
  assert_breaks(s->done, s->epoch, "S1: a stream's epochs are out of order");
  assert_breaks(s->fences[(s->fence_head + 1) % GMLK_FENCES].epoch, s->epoch, "S2");
  assert_breaks(s->fences[(s->fence_head + 1) % GMLK_FENCES].epoch, s->fences[s->fence_head].epoch,
                "S2");
  assert_breaks(s->fences[s->fence_head].epoch, s->fences[s->fence_head].epoch + 1, "S2");
  abandon();
}

static void check_finds_what_is_wrong_with_the_figures(void **state) {
  gmlk_block *b[5];
  gmlake_stats *figures;
  (void)state;
  lay_stripes(b);
  figures = &lake->stats;
  assert_breaks(lake->index.count, 2, "I1: the index's count is off");
  assert_breaks(figures->live_count, 4, "L4: the index and the live blocks differ");
  assert_breaks(figures->requested_bytes, 0, "L4: the live bytes are off");
  assert_breaks(figures->active_bytes, 0, "L4: the live bytes are off");
  assert_breaks(figures->pending_bytes, 512, "L4: the pending bytes are off");
  assert_breaks(figures->buffer_bytes, C, "the buffers' count or bytes are off");
  assert_breaks(figures->buffer_count, 1, "the buffers' count or bytes are off");
  assert_breaks(figures->reserved_bytes, 6 * C, "L4: the reserved bytes are off");
  assert_breaks(lake->desc.limit_bytes, 5 * C - 1, "L4: the limit is exceeded");
  lake->desc.limit_bytes = 5 * C;
  assert_ok(gmlake_check(lake));
  lake->desc.limit_bytes = 0;
  assert_breaks(figures->quarantined_bytes, C, "L4: the quarantined bytes are off");
  assert_breaks(figures->chunk_count, 4, "L4: the reserved bytes are off");
  assert_breaks(figures->free_count, 7, "L4: what was allocated");
  assert_breaks(figures->active_bytes_peak, 0, "L4: a peak is below its figure");
  assert_breaks(lake->host.bytes, lake->host.bytes + 8, "L2: the host's bytes");
  abandon();
}

static void what_stays_with_the_driver_may_exceed_the_limit(void **state) {
  (void)state;
  prepare(8);
  use_faults();
  open_lake();
  drop(take(C));
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(gmlake_trim(lake, 0, NULL), DRIVER);
  assert_int_equal(stats().quarantined_bytes, C);
  lake->desc.limit_bytes = C / 2;
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_filled_when_handed_out_and_when_freed),
      cmocka_unit_test(small_blocks_are_filled),
      cmocka_unit_test(windows_are_filled_in_all_their_pieces),
      cmocka_unit_test(what_streams_still_use_is_not_filled),
      cmocka_unit_test(without_the_flag_nothing_is_filled),
      cmocka_unit_test(a_device_whose_memory_the_host_cannot_write_is_not_filled),
      cmocka_unit_test(a_guard_lies_behind_each_window),
      cmocka_unit_test(without_guards_windows_lie_side_by_side),
      cmocka_unit_test(check_counts_the_mappings_of_each_chunk),
      cmocka_unit_test(check_finds_a_chunk_twice_in_a_window),
      cmocka_unit_test(check_finds_a_tag_of_the_future),
      cmocka_unit_test(check_finds_what_is_wrong_with_a_block),
      cmocka_unit_test(check_finds_what_is_wrong_with_a_pool),
      cmocka_unit_test(check_finds_what_is_wrong_with_an_arena),
      cmocka_unit_test(check_finds_what_is_wrong_with_small_blocks),
      cmocka_unit_test(check_finds_what_is_wrong_with_a_live_window),
      cmocka_unit_test(check_finds_what_is_wrong_with_idle_windows),
      cmocka_unit_test(check_finds_what_is_wrong_with_a_stream),
      cmocka_unit_test(check_finds_what_is_wrong_with_the_figures),
      cmocka_unit_test(what_stays_with_the_driver_may_exceed_the_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
