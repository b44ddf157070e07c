/* Invariants one by one: a row builds a lake in the words of tests/play/language.h, and breaks
   there single conditions of gmlake_check, leaving all those that are asked before. The last case
   looks whether each invariant that gmlake.h numbers is told here, but for those that no look at
   the books can tell. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
static unsigned unit_chunks; /* each lake has its own, which player.h sets */
#define GMLK_UNIT_CHUNKS unit_chunks
#include "gmlake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "play/player.h"

#define C (16 * UNIT) /* a chunk, in rows 1 */
#define NONE GMLAKE_STREAM_NONE

static int stage; /* of a row: how often it has broken something, and played on */

/* Words that are played then; behind them the row goes on, with the next stage. */
static void then(const char *words) {
  if (program_read(w.program, words)) judge(0, "not of the language");
}

static void is(int holds) { judge(holds, "the world is another"); }

static gmlk_block *block_of(char name) {
  return gmlk_index_get(&lake->index, w.blocks[name - 'a'].at);
}

/* What lies where the block was, which is free or pending. */
static gmlk_block *tile_of(char name) {
  const uint64_t offset = w.starts[name - 'a'] - gmlk_home(&lake->home, 0);
  return gmlk_locate(&lake->home, (uint32_t)(offset / GMLK_GRAIN));
}

static gmlk_stream *number_of(char stream) {
  const gmlake_stream value = value_in((unsigned char)(stream - 'A' + 1));
  return lake->streams.items[gmlk_stream_find(&lake->streams, value)];
}

static gmlk_arena *pool_0(void) { return &w.pools[1].value->arena; }

static int was_told[128][10]; /* which invariants have been, by letter and digit */

static void note_told(const char *text) {
  for (; text[0] >= 'A' && text[0] <= 'Z'; text += 4) { /* "W6, B3: ..." is of two */
    was_told[(unsigned char)text[0]][text[1] - '0'] = 1;
    if (text[2] != ',') return;
  }
}

static void assert_broken_at(const char *invariant, int line) {
  char rule[200];
  gmlake_error_info error;
  judge(gmlake_check(lake) == GMLAKE_ERROR_CORRUPT, invariant);
  must(gmlake_get_last_error(lake, &error), "gmlake_get_last_error");
  note_told(error.text);
  (void)snprintf(rule, sizeof(rule), "line %d: \"%s\", not \"%s\"", line, error.text, invariant);
  judge(strncmp(error.text, invariant, strlen(invariant)) == 0, rule);
}

#define assert_broken(invariant) assert_broken_at(invariant, __LINE__)

static void holds(void) { must(gmlake_check(lake), "gmlake_check"); }

/* The value in that place breaks the invariant; the one before does not. */
#define breaks(type, place, value, invariant) \
  do {                                        \
    type *const place_ = &(place);            \
    type const kept_ = *place_;               \
    *place_ = (type)(value);                  \
    assert_broken(invariant);                 \
    *place_ = kept_;                          \
    holds();                                  \
  } while (0)

/* ---- The lake -------------------------------------------------------------------------------- */

/* The first that is broken is told, and nothing behind it is taken to hold. */
static void the_first_is_told(void **state) {
  gmlk_checker checker;
  (void)state;
  memset(&checker, 0, sizeof(checker));
  assert_true(gmlk_expect(&checker, 1, "one"));
  assert_null(checker.broken);
  assert_false(gmlk_expect(&checker, 0, "two"));
  assert_false(gmlk_expect(&checker, 1, "three"));
  assert_false(gmlk_expect(&checker, 0, "four"));
  assert_string_equal(checker.broken, "two");
}

static void sizes_of_tables(void) {
  breaks(size_t, lake->index.row_count, 8, "I2: the index is not of its size");
  breaks(unsigned, lake->index.shift, 63, "I2: the index is not of its size");
  breaks(size_t, lake->view_bytes, 1, "L2: a table is missing, or has no size");
  breaks(size_t, lake->host.bytes, lake->host.bytes + 1, "L2: the host's bytes");
  breaks(size_t, lake->records.page_count, 7, "R1: the pages are wrong");
  breaks(size_t, lake->records.unused_count, 1, "R1: the unused records are wrong");
}

/* What is there while calls are under way, and only then. */
static void the_lake_between_calls(void) {
  gmlk_request none;
  memset(&none, 0, sizeof(none));
  breaks(int, lake->is_restricted, 1, "L1: is_restricted is wrong");
  breaks(const gmlk_request *, lake->served, &none, "L1: served names a request that is over");
  breaks(unsigned, lake->message_count, GMLK_LOG_QUEUE + 1,
         "L1: more messages wait than there is room for, or no logger reads them");
  breaks(size_t, lake->arena_count, lake->arena_capacity + 1,
         "L1: an arena is not where the list has it");
  breaks(size_t, lake->home.limit_bytes, C, "L5: a pool's limit has changed");
  breaks(size_t, lake->streams.count, lake->streams.capacity + 1, "F5: more streams than room");
  breaks(size_t, lake->streams.event_capacity, GMLK_FENCES, "F5: more streams");
  breaks(size_t, lake->streams.event_count, 1000000, "F5: more events than room");
  breaks(uint32_t, lake->home.tail.at, 1, "A4: the end is wrong");
  breaks(uint8_t, lake->home.head.state, GMLK_FREE, "A1: blocks do not tile the arena");
}

/* An arena's own fields, one against the other. */
static void the_shape_of_an_arena(void) {
  gmlk_arena *a = pool_0();
  breaks(uint32_t, a->number, 9, "L1: an arena is not where the list has it");
  breaks(size_t, a->chunk_bytes, 256, "A8: a chunk is not of its size");
  breaks(uint32_t, a->chunk_log, a->chunk_log + 1, "A8: a chunk is not of its size");
  breaks(uint32_t, a->area.limit, a->area.limit + 1, "X1: the slots are not those");
  breaks(uint32_t, a->area.most, a->area.limit - 1, "X1: there are more addresses than");
  breaks(size_t, a->area.count, a->area.capacity + 1, "X1: there are more addresses than");
  breaks(size_t, a->area.count, 0, "A8: an arena has no addresses, or is bare");
  breaks(uint32_t, a->area.extents->first, 1, "X1: an extent is not of its slots");
  breaks(uint32_t, a->area.extents->end, 0, "X1: an extent is not of its slots");
  breaks(uint64_t, a->area.extents->base, a->area.extents->base + 512,
         "X1: an extent is not of its slots");
  breaks(uint32_t, a->slot_count, a->slot_capacity + 1, "A8: more slots than there is room for");
  breaks(uint32_t, a->chunks.quarantined_end, a->slot_capacity + 1,
         "A8: more slots than there is room for");
  breaks(size_t, a->chunks.capacity, a->slot_capacity - 1, "A8: more slots than there is room for");
  breaks(size_t, a->chunks.capacity, (size_t)a->area.most + 1,
         "A8: more slots than there is room for");
  breaks(size_t, a->slot_capacity, a->chunks.capacity + 1, "A8: more slots than there is room for");
  breaks(uint64_t, lake->records.serial, GMLK_ENDLESS, "A9: the serial numbers are used up");
  breaks(int, a->is_bare, 1, "A8: an arena has no addresses, or is bare");
  breaks(size_t, a->void_count, 1, "B4: the count of destroyed buffers is wrong");
  breaks(gmlk_chunk *, a->chunks.items, NULL, "L2: a table is missing, or has no size");
  breaks(gmlk_block **, a->firsts, NULL, "L2: a table is missing, or has no size");
}

/* Room for streams that there are not yet. */
static void tables_of_streams_to_come(void) {
  gmlk_arena *a;
  static gmlk_bins table;
  unsigned bin;
  a = &lake->home;
  memset(&table, 0, sizeof(table));
  for (bin = 0; bin < GMLK_BINS; bin++) gmlk_ring_init(&table.rings[bin]);
  a->bins[7] = &table;
  assert_broken("A8: bins are of no stream");
  a->bins[7] = NULL;
}

/* The last number that a stream can have makes tables for twice as many. */
static void the_largest_table_of_pools(void) {
  const unsigned last = GMLK_STREAMS_MAX - 1;
  gmlk_arena *a = &lake->home;
  if (stage) return;
  is(gmlk_arena_admit(a, last));
  is(a->bins_capacity == last * 2);
  gmlk_bins_destroy(a->bins[last], &lake->host);
  a->bins[last] = NULL;
  holds();
  then("+a=1@A -a@A");
}

/* ---- Pools that are gone --------------------------------------------------------------------- */

static void dead_pools(void) {
  gmlake_pool *dead = lake->released_pools;
  is(dead != NULL);
  breaks(size_t, dead->capture_count, 1, "L1: a destroyed pool is in use");
  breaks(gmlake *, dead->lake, lake, "L1: a destroyed pool is in use");
  breaks(size_t, lake->stats.quarantined_bytes, 1,
         "L4: quarantined_bytes is not what a walk counts");
}

static void fail_next(unsigned char kind, size_t in, unsigned char result, int stays) {
  op o;
  memset(&o, 0, sizeof(o));
  o.verb = 'F';
  o.two = kind;
  o.bytes = in;
  o.result = result;
  o.flags = (unsigned char)stays;
  now = &o;
  do_fault();
}

/* One that has no table of windows, and one that was never given addresses. */
static void dead_pools_that_never_lived(void) {
  gmlake_pool *pool = NULL;
  size_t n;
  for (n = 1; n < 20 && !lake->released_pools; n++) {
    gmlake_result result;
    fail_next(ON_HOST, n, 0, 0);
    fail_next(ON_UNRESERVE, 1, 'R', 1);
    result = gmlake_pool_create(lake, NULL, &pool);
    disarm();
    holds();
    if (!result) break;
  }
  is(lake->released_pools != NULL);
  fail_next(ON_RESERVE, 1, 'R', 0);
  fail_next(ON_EXCHANGE, 3, 'G', 0);
  is(gmlake_pool_create(lake, NULL, &pool) == GMLAKE_ERROR_DEVICE_LOST);
  is(lake->released_pools->arena.area.count == 0);
  w.lost = GMLAKE_ERROR_DEVICE_LOST;
}

/* With windows that were idle, and that could not be unmapped. */
static void dead_pools_with_windows(void) {
  is(lake->released_pools && !lake->released_pools->arena.windows.quarantine);
}

static void dead_pools_with_stuck_windows(void) {
  is(lake->released_pools && lake->released_pools->arena.windows.quarantine);
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* The number found last may be that of any stream that is asked for by its value. */
static void each_number_as_the_last(gmlk_streams *all) {
  unsigned used;
  for (used = GMLK_FIRST_STREAM; used < all->count; used++) {
    const gmlk_stream *s = all->items[used];
    gmlake_stream kept = all->last_value;
    unsigned kept_last = all->last;
    all->last = used;
    all->last_value = s->value;
    if (s->is_forgotten || s->is_capture)
      assert_broken("F5: last is not the number");
    else
      holds();
    all->last = kept_last;
    all->last_value = kept;
  }
}

static void numbers(void) {
  gmlk_streams *all = &lake->streams;
  gmlk_stream *b, *captured;
  if (stage) {
    all->last = (unsigned)(all->count - 1); /* that of the capture, which serves again */
    is(!all->items[all->last]->is_used);
    assert_broken("F5: last is not the number");
    all->last = 0;
    return;
  }
  b = number_of('B');
  breaks(gmlake_stream, b->value, (gmlake_stream)(uintptr_t)1,
         "F5: a stream has a value that no stream can have");
  breaks(gmlake_stream, b->value, (gmlake_stream)(uintptr_t)2,
         "F5: a stream has a value that no stream can have");
  breaks(gmlake_stream, b->value, NONE, "F5: a stream has a value that no stream can have");
  breaks(gmlake_stream, b->value, value_in(1), "L3: two numbers stand for one stream");
  breaks(uint8_t, b->is_used, 2, "F5: a stream is in no known state");
  breaks(unsigned, b->kind, GMLAKE_STREAM_URGENT + 1, "F5: a stream is of no kind");
  breaks(uint64_t, b->born, lake->records.serial + 1, "F5: a stream is of a time to come");
  breaks(uint8_t, b->is_used, 0, "F5: a stream is in no known state");
  breaks(unsigned, b->capture, 1, "F5: a capture is another stream's");
  breaks(unsigned, b->capture, (unsigned)all->count, "F5: a capture is another");
  captured = number_of('D');
  breaks(uint8_t, captured->is_forgotten, 1, "F5: a capture has no stream");
  breaks(uint8_t, captured->is_used, 0, "F5: a stream is in no known state");
  breaks(uint8_t, captured->is_capture, 1, "F5: a capture has no stream");
  breaks(size_t, all->live_count, all->live_count + 1, "F5: a count of streams or captures");
  breaks(size_t, all->used_count, all->used_count - 1, "F5: a count of streams or captures");
  breaks(size_t, all->capture_count, 0, "F5: a count of streams or captures");
  breaks(uint32_t, captured->arena, 0, "F5: a capture has no pool");
  breaks(uint32_t, captured->arena, 1, "F5: a capture has no pool");
  breaks(uint32_t, captured->arena, 99, "F5: a capture has no pool");
  each_number_as_the_last(all);
  breaks(unsigned, all->last, (unsigned)all->count, "F5: last is not the number");
  then("ED");
}

static void events(void) {
  is(number_of('A')->fence_count == 1);
  breaks(uint32_t, number_of('A')->uses, 1,
         "F7: a stream's count of the blocks recorded on it is wrong");
  breaks(uint64_t, number_of('A')->id, 1, "F8: a stream's id was not asked");
  breaks(size_t, lake->streams.event_count, lake->streams.event_capacity, "F5: no room");
}

/* Of three epochs with an event each, and one that is open. */
static void fences(void) {
  gmlk_stream *s = number_of('A');
  gmlk_fence *fence = s->fences;
  is(s->fence_head == 0 && s->fence_count == 3 && !s->is_dirty);
  is(fence[0].epoch < fence[1].epoch && fence[1].epoch < fence[2].epoch);
  breaks(uint64_t, fence[0].epoch, 0, "F2: fences out of order");
  breaks(uint64_t, fence[0].epoch, fence[1].epoch, "F2: fences out of order");
  breaks(uint64_t, fence[1].epoch, fence[0].epoch, "F2: fences out of order");
  breaks(uint64_t, fence[1].epoch, fence[2].epoch + 1, "F2: fences out of order");
  breaks(uint64_t, fence[2].epoch, s->epoch, "F2: fences out of order");
  breaks(uint64_t, fence[2].epoch, fence[1].epoch, "F2: fences out of order");
  breaks(void *, fence[1].event, NULL, "F2: a fence has no event");
  breaks(void *, fence[1].event, fence[0].event, "L3: one event is in two places");
}

/* B waits on the device for what A freed. */
static void waits_on_the_device(void) {
  gmlk_stream *s = number_of('B');
  is(s->wait_count == 1 && lake->streams.items[s->waits[0].stream] == number_of('A'));
  breaks(size_t, s->wait_count, s->wait_capacity + 1, "F6: more waits than room");
  breaks(unsigned, s->waits[0].stream, 99, "F6: a wait names no stream");
  breaks(unsigned, s->waits[0].stream, 0, "F6: a wait names no stream");
  breaks(uint64_t, s->waits[0].epoch, number_of('A')->epoch, "F6: a wait is for an epoch to come");
}

/* What is freed carries an epoch that there was; what is closed, one that an event covers. */
static void epochs_and_tags(void) {
  gmlk_stream *s;
  gmlk_block *b = tile_of('a');
  s = number_of('A');
  is(b->state == GMLK_FREE && b->u.epoch < s->epoch && !s->is_dirty);
  breaks(uint64_t, s->done, s->epoch, "F1: epochs are out of order");
  breaks(uint64_t, s->epoch, GMLK_ENDLESS, "F1: epochs are out of order");
  breaks(uint64_t, s->epoch, s->epoch + 1, "F4: an epoch has no fence");
  breaks(uint64_t, b->u.epoch, 0, "F1: a tag is of an epoch to come");
  breaks(uint64_t, b->u.epoch, s->epoch + 1, "F1: a tag is of an epoch to come");
  breaks(uint64_t, b->u.epoch, s->epoch, "F4: no fence is to cover a tag");
  breaks(uint16_t, b->stream, (uint16_t)lake->streams.count, "F1: a tag names no stream");
}

/* An event is of one fence, or idle once. */
static void events_are_had_once(void) {
  gmlk_streams *all;
  if (stage) return;
  all = &lake->streams;
  is(all->event_count >= 2);
  breaks(void *, all->events[1], all->events[0], "L3: one event is in two places");
  breaks(void *, all->events[0], NULL, "F5: an idle event is NULL");
  then("+a=1@A -a@A");
}

static void uses_of_blocks(void) {
  static unsigned capture;
  gmlk_block *b = block_of('a');
  gmlk_extra *note = b->as.live.extra;
  if (stage == 0) {
    capture = number_of('C')->capture;
    breaks(gmlk_block *, note->block, b, "N1: an extra record names another block");
    breaks(unsigned, note->used[0].stream, 1, "N2: a block is used on no stream");
    breaks(unsigned, note->used[0].stream, 99, "N2: a block is used on no stream");
    breaks(unsigned, note->used[0].stream, capture, "N2: a block is used on no stream");
    then("EC");
  } else if (stage == 1) {
    breaks(unsigned, note->used[0].stream, capture, "N2: a block is used on no stream");
    breaks(uint16_t, b->stream, capture, "A9");
    then("+z=512b@D -z@D +b=1@A rb@B hB -b@A");
  } else {
    b = tile_of('b');
    is(b->state == GMLK_PENDING);
    note = b->as.live.extra;
    b->as.live.extra = NULL;
    is(gmlake_check(lake) == GMLAKE_ERROR_CORRUPT);
    b->as.live.extra = note;
    breaks(size_t, note->uses_left, 2, "N4: a count of uses in queues is wrong");
    breaks(gmlk_extra *, note->used[0].extra, NULL, "N4: a pending use is in no queue");
  }
}

/* Two blocks that wait for B, in the order in which they were freed. */
static void queues_of_uses(void) {
  gmlk_stream *s;
  gmlk_used *first;
  gmlk_extra *newest;
  s = number_of('B');
  first = s->uses_first;
  newest = lake->home.pending;
  is(first->next == s->uses_last && first->epoch < s->uses_last->epoch);
  breaks(gmlk_used *, s->uses_first, first->next, "N4: a pending use is in no queue");
  breaks(gmlk_used *, s->uses_last, first, "N4: a queue's end is wrong");
  breaks(gmlk_used *, number_of('A')->uses_first, first,
         "N4: a use stands in another stream's queue");
  breaks(gmlk_extra *, newest->next->prev, NULL, "N1: a pending block's neighbour is wrong");
}

/* | A | b | C | d | E | f | G | h | I |  a window of b and d that is idle, one of f and half of h
   that is live. */
#define WITH_WINDOWS \
  "{granule:16 cap:16} +z.3=9@n -z.3@n +a-i=1 -bdfh +x=2 pieces:x=2 +y=1+32k pieces:y=2 -x "

/* Freed, but used by a stream that is at work: what it was asked for, and a window of it blocks no
   other. */
static void pending_blocks(void) {
  gmlk_block *self = lake->home.pending->block;
  is(self->state == GMLK_PENDING);
  breaks(uint8_t, self->flags, GMLK_APART, "A9: a block was asked for in no such way");
}

/* A block that shares its chunk, and a window: what they were asked for, how much, and when. */
static void live_blocks(void) {
  gmlk_block *b, *self;
  gmlk_chunk *chunk;
  uint32_t slot;
  b = block_of('s');
  self = block_of('w');
  is(self == &self->as.live.window->self);
  breaks(uint8_t, b->flags, 8, "A9: a block was asked for in no such way");
  breaks(uint8_t, b->flags, GMLK_IN_GRAPH, "A9: a block was asked for in no such way");
  breaks(uint8_t, b->flags, GMLAKE_EXCLUSIVE, "A9: an exclusive block shares a chunk");
  breaks(uint8_t, self->flags, GMLAKE_NO_STITCH, "A9: a window is forbidden");
  breaks(uint64_t, b->u.serial, 0, "A9: a serial was never given");
  breaks(uint64_t, b->u.serial, lake->records.serial + 1, "A9: a serial was never given");
  breaks(uint32_t, b->slack, 3072, "A9: a block's rounding is as large as it");
  breaks(uint16_t, b->stream, GMLK_GRAPH_OWNED, "A9: a block is of no stream");
  breaks(uint32_t, b->hole, 6, "A3: an owned block has a hole");
  breaks(uint32_t, b->arena, 1, "A1: a block names another arena");
  slot = gmlk_slot_of(&lake->home, b->at);
  chunk = &lake->home.chunks.items[slot];
  is(lake->home.firsts[slot] == b);
  breaks(uint64_t, chunk->handle, 0, "A5: a handle and a state differ");
  breaks(gmlk_block *, lake->home.firsts[slot], b->next, "A4: a slot's first block is wrong");
  breaks(uint32_t, chunk->map_count, chunk->map_count + 1,
         "W6, B3: a chunk's mappings do not add up");
  breaks(uint32_t, chunk->page_count, chunk->page_count + 1,
         "B3: a chunk's mappings by buffers do not add up");
  breaks(uint8_t, chunk->is_marked, 1, "P2: a chunk is marked");
  chunk = &lake->home.chunks.items[lake->home.chunks.capacity - 1];
  is(chunk->handle == 0);
  breaks(uint8_t, chunk->is_known, 1, "P6: a graph knows an empty slot");
  chunk = &lake->home.chunks.items[slot];
  breaks(uint8_t, chunk->is_home, 0, "P3: a chunk is not mapped as it is said to be");
  breaks(size_t, lake->home.chunks.backed_count, 0, "P1: the chunks' totals are wrong");
  breaks(size_t, lake->home.chunks.quarantined_count, 1, "P1: the chunks' totals are wrong");
  breaks(uint32_t, lake->home.chunks.quarantined_end, 1, "P1: stuck_end is not");
  breaks(uint64_t, lake->home.free_grains, lake->home.free_grains + 1, "A6: the arena's totals");
  breaks(size_t, lake->index.count, lake->index.count + 1, "I1: the index's count is wrong");
}

/* Of everything there is some: no peak is lower than that, and all of it was owned. */
static void peaks(void) {
  gmlake_stats *s = &lake->stats;
  breaks(size_t, lake->desc.limit_bytes, s->reserved_bytes - 1, "L5: a limit or a choice");
  breaks(size_t, lake->desc.driver_free_bytes_min, 1, "L5: a limit or a choice");
  breaks(size_t, lake->desc.stitch_bytes_min, 1, "L5: a limit or a choice");
  breaks(gmlake_cross_stream, lake->desc.cross_stream, 1, "L5: a limit or a choice");
  lake->desc.limit_bytes = s->reserved_bytes - 1;
  lake->checksum = gmlk_desc_checksum(&lake->desc);
  assert_broken("L4: the limit is exceeded");
  lake->desc.limit_bytes = 0;
  lake->checksum = gmlk_desc_checksum(&lake->desc);
  breaks(size_t, s->requested_bytes_peak, s->requested_bytes - 1,
         "L4: a peak is below requested_bytes");
  breaks(size_t, s->active_bytes_peak, s->active_bytes - 1, "L4: a peak is below active_bytes");
  breaks(size_t, s->reserved_bytes_peak, s->reserved_bytes - 1,
         "L4: a peak is below reserved_bytes");
  breaks(size_t, s->stitched_bytes_peak, s->stitched_bytes - 1,
         "L4: a peak is below stitched_bytes");
  breaks(size_t, s->pending_bytes_peak, s->pending_bytes - 1, "L4: a peak is below pending_bytes");
  breaks(size_t, s->buffer_bytes_peak, s->buffer_bytes - 1, "L4: a peak is below buffer_bytes");
  breaks(size_t, lake->host.bytes_peak, lake->host.bytes - 1,
         "L4: a peak is below the host's bytes");
}

static void pieces(void) {
  gmlk_block *tile = block_of('w')->as.live.window->pieces[0].block;
  breaks(uint64_t, tile->u.serial, 0, "A9: a serial was never given");
  breaks(uint64_t, tile->u.serial, lake->records.serial + 1, "A9: a serial was never given");
  breaks(uint8_t, tile->flags, GMLAKE_NO_GROW, "A9: a block was asked for in no such way");
  tile = gmlk_page_block(w.buffers[0].value->arena, w.buffers[0].value->pages);
  is(tile->state == GMLK_COMMITTED);
  breaks(uint64_t, tile->u.serial, 0, "A9: a serial was never given");
}

/* A row that others passed over, as many blocks as it takes. */
static uint64_t *row_passed_over(void) {
  gmlk_index *index = &lake->index;
  size_t row;
  for (row = 0; row < index->row_count; row++)
    if (index->rows[row].address[0] % GMLK_GRAIN) return &index->rows[row].address[0];
  return NULL;
}

static void a_full_row(void) {
  uint64_t *first = NULL;
  size_t i;
  for (i = 0; i < 500 && !first; i++) {
    void *ptr;
    must(gmlake_alloc(lake, 512 * (1 + i * i * i % 13), NULL, &ptr), "gmlake_alloc");
    first = row_passed_over();
  }
  is(first != NULL);
  breaks(uint64_t, *first, *first - *first % GMLK_GRAIN, "I1: a row counts too few");
  breaks(uint64_t, *first, *first + 1, "I1: a row counts what is not there");
}

/* ---- The index, sorted pools, gaps ----------------------------------------------------------- */

static void the_index(void) {
  gmlk_index *index = &lake->index;
  const uint64_t inside = w.blocks[0].at + 512;
  size_t row;
  for (row = 0; index->rows[row].address[0]; row++) {
  }
  index->rows[row].address[0] = GMLK_PASSED_MAX; /* it may stay so: nobody knows how many passed */
  holds();
  index->rows[row].address[0] = 0;
  breaks(gmlk_block *, index->rows[row].block[0], lake->home.head.next,
         "I1: an address has no block");
  gmlk_index_put(index, inside, lake->home.head.next);
  assert_broken("L4: the index and the live blocks differ");
  gmlk_index_remove_from(index, gmlk_index_find(index, inside), gmlk_index_home(index, inside));
}

/* What is set aside for small blocks. */
static void small_reserve(void) {
  static gmlk_block *c;
  gmlk_arena *a = &lake->home;
  const gmlake_stream stream = value_in(1);
  if (stage == 0) {
    c = a->small_reserve;
    is(c != NULL);
    breaks(uint32_t, a->small_most, 0, "U2: small_most is wrong");
    breaks(gmlk_block *, a->small_reserve, NULL, "A1: a block is in a state that does not last");
    breaks(gmlk_block *, a->small_reserve, c->next, "A1: a block is in a state that does not last");
    breaks(uint64_t, c->u.epoch, 1, "U1: a clean small-block reserve is of an epoch");
    breaks(uint8_t, c->flags, GMLK_APART, "U1: the small-block reserve has flags");
    then("-a@A");
  } else if (stage == 1) {
    is(!a->small_reserve);
    breaks(gmlk_block *, a->small_reserve, c, "U1: the small-block reserve is not there");
    then("+a=512b@A +b=512b@A at:b=a+512b");
  } else {
    c = a->small_reserve;
    is(c->stream == gmlk_stream_find(&lake->streams, stream));
    breaks(uint64_t, c->u.epoch, GMLK_ENDLESS,
           "U1: the small-block reserve is of an epoch to come");
    is(c->prev->state == GMLK_LIVE);
    a->small_reserve = NULL;
    must(gmlake_free(lake, (void *)(uintptr_t)w.blocks[1].at, stream), "gmlake_free");
    w.blocks[1].id = 0;
    a->small_reserve = c;
    assert_broken("U1: the small-block reserve is out of place");
    gmlk_small_reserve_end(a);
  }
}

static void sorted_pools(void) {
  gmlk_bins *clean;
  gmlk_block *b, fake;
  int i;
  clean = lake->home.bins[GMLK_CLEAN];
  breaks(uint32_t, clean->count, 7, "H4: the count of bins is wrong");
  breaks(uint64_t, clean->bits[0], 3, "H2: a bit is wrong");
  b = lake->home.head.next;
  is(b->state == GMLK_FREE);
  fake = *b;
  gmlk_link_insert(&clean->rings[gmlk_bin_of(b->hole)], &fake.as.link);
  assert_broken("H4");
  for (i = 0; i < 5; i++) {
    fake = *b;
    fake.as.link.prev = &clean->rings[gmlk_bin_of(b->hole)];
    fake.as.link.next = &b->as.link;
    if (i == 0) fake.hole = 0;
    if (i == 1) fake.hole = b->hole * 2;
    if (i == 2) fake.state = GMLK_LIVE;
    if (i == 3) fake.stream = GMLK_GRAPH_OWNED;
    if (i == 4) fake.arena = 7;
    if (i == 2) clean->count++; /* from here on bins and block agree, but it is not theirs */
    if (i == 2) clean->grains += b->hole;
    assert_broken(i < 2 ? "H1" : "A3: bins have another's block");
  }
  clean->count--;
  clean->grains -= b->hole;
  gmlk_link_remove(&fake.as.link);
  holds();
  breaks(gmlk_link *, b->as.link.prev, &b->as.link, "H3: a ring's links differ");
  breaks(uint64_t, clean->bits[0], clean->bits[0] ^ 8, "H2: a bit is wrong");
  breaks(uint64_t, clean->words, clean->words ^ 8, "H2: a word of bits and its bit differ");
  breaks(uint32_t, clean->none_count, UINT32_MAX, "H5: a hole said to be absent");
}

static void no_gaps(void) {
  breaks(gmlk_block *, lake->home.gaps, lake->home.head.next,
         "A7: the tree of gaps holds another block");
}

static void gaps(void) {
  gmlk_block **root, *gap, *other, fake;
  if (stage) return;
  root = &lake->home.gaps;
  gap = *root;
  is(gap->state == GMLK_UNBACKED);
  breaks(uint32_t, gap->hole, gap->hole * 2, "A7: a gap is not");
  breaks(gmlk_block *, *root, NULL, "A7: the tree of gaps is wrong");
  fake = *gap;
  fake.arena = 9;
  breaks(gmlk_block *, *root, &fake, "A7: the tree of gaps is wrong");
  fake.arena = gap->arena;
  fake.state = GMLK_FREE;
  breaks(gmlk_block *, *root, &fake, "A7: the tree of gaps holds another block");
  other = gap->as.fork.less ? gap->as.fork.less : gap->as.fork.more;
  gmlk_tree_remove(root, other);
  assert_broken("A7: the tree of gaps is wrong");
  other->as.fork.less = gap; /* one of a lower rank on top */
  other->as.fork.more = NULL;
  *root = other;
  assert_broken("T2: a block stands above a higher rank");
  gap->as.fork.less = gap->as.fork.more = NULL;
  *root = NULL;
  for (gap = lake->home.head.next; gap->state != GMLK_EDGE; gap = gap->next)
    if (gap->state == GMLK_UNBACKED) gmlk_tree_insert(root, gap);
  holds();
  for (gap = *root; gap->as.fork.less;) gap = gap->as.fork.less;
  fake = *gap; /* one that no tile is, below the gap that comes first */
  fake.as.fork.more = NULL;
  for (fake.at = gap->at - 1; !gmlk_tree_above(gap, &fake);) fake.at--;
  breaks(gmlk_block *, gap->as.fork.less, &fake, "A7: the tree of gaps is wrong");
  for (fake.at = gap->at; !gmlk_tree_above(gap, &fake);) fake.at++;
  breaks(gmlk_block *, gap->as.fork.less, &fake, "T1: a block stands on the wrong side");
  then("-aceg");
}

/* A run's second block, and what else may stand in the tree of such. */
static void seconds(void) {
  static gmlk_block **root;
  gmlk_block *lead, *second, *third;
  if (stage) {
    is(stage > 1 || !*root); /* one block is left, and clean memory */
    if (stage > 1) return;
    breaks(gmlk_block *, *root, lake->home.tail.prev, "A3: a tree of seconds holds another");
    then("-a-d@C");
    return;
  }
  lead = lake->home.head.next;
  second = lead->next->next;
  third = second->next->next;
  is(lead->hole == 6 * C / 512);
  root = &lake->home.bins[lead->stream]->run_seconds;
  is(*root == second);
  breaks(gmlk_block *, *root, NULL, "A3: a tree of second blocks is wrong");
  breaks(gmlk_block *, second->as.fork.less, third, "A3: a tree of seconds holds another");
  breaks(gmlk_block *, lake->home.bins[GMLK_CLEAN]->run_seconds, second,
         "A3: clean memory makes no");
  breaks(gmlk_block *, lake->home.window_space.holes->run_seconds, second,
         "V1: free space is in no bin");
  then("-gh +a-d=1@C");
}

static void neighbours(void) {
  gmlk_block *first = lake->home.head.next;
  is(first->flags == GMLK_APART && first->next->flags == GMLK_APART);
  first->flags = 0;
  breaks(uint8_t, first->next->flags, 0, "A2: neighbours of one tag are apart");
}

static void free_addresses(void) {
  gmlk_space *space;
  gmlk_block *va;
  space = &lake->home.window_space;
  va = space->tail.prev;
  is(va->state == GMLK_FREE);
  breaks(gmlk_block *, space->used, va, "V3: the tree holds free addresses");
  breaks(uint64_t, va->u.epoch, 1, "V1: free address space is somebody's");
  gmlk_bins_remove(space->holes, va);
  va->hole = va->grains;
  assert_broken("V1: free space is in no bin");
  gmlk_bins_insert(space->holes, va, va->grains);
}

static void a_limit(void) {
  gmlk_arena *a = pool_0();
  if (!stage) {
    breaks(size_t, a->limit_bytes, C, "L5: a pool's limit has changed");
    breaks(size_t, a->limit_bytes, 0, "L5: a pool's limit has changed");
    a->limit_bytes = C;
    a->checksum = gmlk_checksum(0, C);
    assert_broken("L4: a pool's limit");
    a->limit_bytes = 4 * C;
    a->checksum = gmlk_checksum(0, 4 * C);
    then("fail:release=1R T:1!R");
    return;
  }
  is(a->chunks.quarantined_count == 1);
  a->limit_bytes = C / 2; /* what the driver keeps may pass it */
  a->checksum = gmlk_checksum(0, C / 2);
  holds();
}

/* ---- Windows and buffers --------------------------------------------------------------------- */

static void windows(void) {
  gmlk_window *live;
  gmlk_block fake, *kept, *tile;
  live = block_of('y')->as.live.window;
  is(live != NULL);
  kept = live->pieces[1].block;
  live->pieces[1].block = live->pieces[0].block;
  assert_broken("W4");
  fake = *kept;
  fake.arena = 9;
  live->pieces[1].block = &fake;
  assert_broken("W4");
  live->pieces[1].block = kept;
  live->pieces[1].grains++;
  live->self.grains++;
  assert_broken("W4");
  live->pieces[1].grains--;
  live->self.grains--;
  for (tile = lake->home.head.next; tile->state != GMLK_LIVE;) tile = tile->next;
  fake = *tile;
  tile->state = GMLK_PIECE;
  tile->as.live.window = live;
  tile->as.live.extra = NULL;
  assert_broken("W4: a piece is of no window");
  *tile = fake;
}

static void mappings_of_each_chunk(void) {
  lake->home.chunks.items[1].map_count--; /* the sum stays what it was */
  lake->home.chunks.items[2].map_count++;
  assert_broken("W6");
  lake->home.chunks.items[1].map_count++;
  lake->home.chunks.items[2].map_count--;
}

static void a_chunk_twice_in_a_window(void) {
  gmlk_window *idle = lake->home.windows.idle_first;
  breaks(uint32_t, idle->pieces[1].at, idle->pieces[0].at, "W2");
}

static void what_stays_with_the_driver_may_exceed_the_limit(void) {
  lake->desc.limit_bytes = C / 2;
  lake->checksum = gmlk_desc_checksum(&lake->desc);
  holds();
}

static void idle_windows(void) {
  const uint32_t half = C / 512 / 2;
  gmlk_window *window;
  gmlk_piece kept[2];
  window = lake->home.windows.idle_first;
  is(window && window->piece_count == 2);
  memcpy(kept, window->pieces, sizeof(kept));
  breaks(uint32_t, window->pieces[0].at, half, "W1: a piece ends inside a chunk");
  breaks(uint32_t, window->pieces[1].at, kept[1].at - half, "W1: a piece begins inside a chunk");
  breaks(uint32_t, window->pieces[1].at, lake->home.tail.at, "W2: a window's piece lies outside");
  breaks(uint32_t, window->pieces[1].grains, 0, "W2: a window's piece lies outside the arena");
  breaks(uint32_t, window->pieces[1].grains, half, "W3: a window's pieces do not add up");
  breaks(uint32_t, window->chunk_count, 3, "W2: a window's chunks do not match");
  window->pieces[0].at += half;
  window->pieces[0].grains = window->pieces[1].grains = half;
  window->pieces[1].at = kept[0].at; /* before the first, in the same chunk */
  assert_broken("W2: a window's ends share a chunk");
  memcpy(window->pieces, kept, sizeof(kept));
  breaks(uint64_t, window->number, 0, "W8: a window is newer than any");
  breaks(uint64_t, lake->home.windows.number, window->number - 1, "W8: a window is newer than any");
  breaks(uint32_t, lake->home.windows.grains_min, 4 * half + 1, "W8: a window is smaller than any");
  breaks(uint64_t, window->address, window->address + C,
         "W2: a window is not where its address space is");
  breaks(gmlk_window *, lake->home.windows.open, NULL, "W5: an idle window is not where it should");
  breaks(uint64_t, window->key, window->key + 1, "W7: nothing is in a window's way");
  breaks(uint64_t, window->key, GMLK_BLOCKED, "W7: nothing is in a window's way");
  breaks(size_t, lake->home.windows.bytes, 3 * C, "L4: the bytes of an arena's windows are wrong");
  breaks(gmlk_window *, lake->home.windows.idle_last, NULL,
         "W5: the list of idle windows has a wrong end");
  breaks(gmlk_window *, window->idle_prev, window, "W5: an idle window is not where it should be");
  breaks(uint32_t, window->self.arena, 1, "A1: a block names another arena");
}

static void windows_that_stay(void) {
  gmlk_window *window = lake->home.windows.quarantine;
  is(window != NULL);
  breaks(uint32_t, window->va->slack, 0, "W2");
  breaks(uint32_t, window->va->slack, window->chunk_count + 1, "W2");
  window->va->slack = window->chunk_count - 1; /* perhaps mapped in part */
  (void)gmlake_check(lake);
  window->va->slack = window->chunk_count;
}

static void ends(void) {
  gmlake_buffer *buffer = w.buffers[0].value;
  breaks(uint32_t, buffer->count, 3, "B1: a buffer's committed pages are wrong");
  breaks(uint8_t, buffer->arena->head.next->state, GMLK_PIECE, "B1: a chunk is no buffer's");
  breaks(size_t, buffer->bytes, 2 * C + 1, "B1: a buffer's end is behind its addresses");
  breaks(size_t, buffer->bytes, C, "B1: memory lies behind a buffer's end");
  breaks(gmlake *, buffer->lake, NULL, "B4: a destroyed buffer has memory");
  lake->host.bytes += sizeof(gmlk_page);
  buffer->page_count++; /* more than the addresses that it has */
  assert_broken("B1: pages are missing");
  buffer->page_count--;
  lake->host.bytes -= sizeof(gmlk_page);
}

/* A hole, and memory behind it; another buffer. */
static void ends_behind_a_hole(void) {
  gmlake_buffer *buffer = w.buffers[0].value, *other = w.buffers[1].value;
  breaks(uint8_t, buffer->pages[0].state, GMLK_PAGE_COMMITTED,
         "B1: a buffer's committed pages are wrong");
  breaks(size_t, buffer->bytes, C, "B1: memory lies behind a buffer's end");
  breaks(gmlk_block *, other->va, buffer->va, "V2: address space is another buffer's");
  breaks(gmlk_block *, buffer->arena->buffer_space.used, NULL, "V3: used address space is not in");
  breaks(gmlake_buffer *, buffer->arena->buffers, buffer, "V2: address space is nobody's");
  breaks(gmlake_pool *, buffer->arena->owner, buffer->arena->pool, "L1: an owner is no pool");
  breaks(gmlake_pool *, lake->home.owner, buffer->arena->pool, "L1: an arena is of no pool");
}

static void while_it_sleeps(gmlk_arena *a, gmlake_buffer *buffer) {
  is(!a->chunks.items[0].handle);
  breaks(uint64_t, a->chunks.items[0].handle, 77, "A5: a handle and a state differ");
  breaks(uint8_t, a->chunks.items[0].is_asleep, 0, "A5: a handle and a state differ");
  breaks(size_t, a->chunks.asleep_count, 0, "P1: the chunks' totals are wrong");
  breaks(unsigned, a->sleep, GMLK_AWAKE, "V1: address space is in a state");
  breaks(unsigned, buffer->arena->sleep, GMLK_AWAKE, "B2: a page is in a state");
  breaks(size_t, lake->stats.sleeping_bytes, 0, "L4: sleeping_bytes is not what a walk counts");
  breaks(uint64_t, a->copies[1].offset, 0, "Q1: copies are out of order");
  breaks(uint32_t, a->copies[0].grains, 0, "Q1: a copy lies outside the arena");
  breaks(uint32_t, a->copies[0].at, a->tail.at, "Q1: a copy lies outside the arena");
  breaks(uint32_t, a->copies[0].at, 1, "Q1: a copy is of 2 chunks");
  breaks(size_t, a->host_copy_bytes, C, "Q1: the host copy is not of its size");
  breaks(uint64_t, a->copies[1].offset, 1 << 30, "Q1: a copy lies outside the host copy");
  breaks(size_t, a->host_copy_count, 2, "Q1: more pieces of a host copy than room for them");
  breaks(uint64_t, a->host_copies[0].offset, 512,
         "Q1: a piece of the host copy is not in its place");
  breaks(void *, a->host_copies[0].memory, NULL,
         "Q1: a piece of the host copy is not in its place");
  breaks(size_t, a->copy_count, 1, "Q2: more copies are done than there are");
  breaks(size_t, a->copy_count, a->copy_capacity + 1, "Q1: more copies than room for them");
}

/* A pool that sleeps with a block, a window and a buffer; one chunk could not be released. */
static void sleepers(void) {
  gmlk_arena *a = pool_0();
  gmlake_buffer *buffer = w.buffers[0].value;
  gmlk_chunk *first = a->chunks.items, kept = *first;
  gmlk_block *va;
  gmlk_copy copy = {0, 0, 0, 0};
  if (stage == 1) {
    is(a->chunks.backed_count + buffer->arena->chunks.backed_count == 1);
    while_it_sleeps(a, buffer);
    then("W0");
    return;
  }
  if (stage == 2) {
    first->is_asleep = 1;
    first->handle = 0;
    assert_broken("E2: a chunk of an awake arena is asleep");
    *first = kept;
    return;
  }
  va = a->window_space.head.next;
  breaks(uint8_t, va->state, GMLK_UNBACKED, "V1: address space is in a state");
  breaks(uint8_t, buffer->pages[0].mark, 1, "B2: a page is in a state");
  breaks(unsigned, a->sleep, GMLK_ASLEEP + 1, "E1: a pool's arenas are not in one state");
  breaks(unsigned, buffer->arena->sleep, GMLK_CHANGING, "E1: a pool's arenas are not in one state");
  breaks(size_t, a->copy_count, 1, "Q1: more copies than room for them");
  breaks(size_t, a->host_copy_bytes, 1, "Q1: the host copy is not of its size");
  lake->host.bytes += sizeof(copy);
  a->copy_capacity = 1;
  a->copies = &copy;
  assert_broken("E3: an arena that is awake has copies");
  a->copies = NULL;
  a->copy_capacity = 0;
  lake->host.bytes -= sizeof(copy);
  then("fail:release=2R S0:k");
}

/* While no stream is known none can be named, not by a place whose tag is not read yet either. */
static void places(void) {
  gmlake_buffer *buffer = w.buffers[0].value;
  gmlk_page *place = buffer->pages;
  is(lake->streams.count <= GMLK_FIRST_STREAM);
  breaks(uint16_t, place[0].stream, GMLK_FIRST_STREAM, "B2: a page's tag names no stream");
  breaks(uint16_t, place[1].stream, GMLK_FIRST_STREAM, "B2: a page's tag names no stream");
  breaks(uint32_t, place[0].slot, buffer->arena->slot_count, "B3: a page maps no chunk");
  breaks(uint8_t, place[1].state, GMLK_PAGE_COMMITTED + 1, "B2: a page is in a state");
  breaks(uint8_t, place[0].mark, 1, "B2: a page is in a state");
  breaks(uint64_t, place[1].address, place[1].address + C, "B5: a page is not where");
}

/* What gmlake.h numbers in brackets and gmlake_check tells is told above. */
static int is_of_the_books(const char *name) {
  if (!strncmp(name, "S3", 2)) return 0; /* which calls are made, and when */
  if (!strncmp(name, "N3", 2)) return 0; /* what streams still do */
  return strchr("ABEHILNQRSTUVW", name[0]) != NULL;
}

/* What other processes know: a block, live and freed. */
static void shared_memory(void) {
  gmlk_block *b = stage ? tile_of('a') : block_of('a');
  gmlk_chunk *chunk = &lake->home.chunks.items[gmlk_slot_of(&lake->home, b->at)];
  if (stage == 0) {
    breaks(uint8_t, chunk->is_shared, 0, "P5: the count of shared chunks is wrong");
    breaks(size_t, lake->home.chunks.shared_count, 2, "P5: the count of shared chunks is wrong");
    breaks(size_t, lake->return_count, 1, "N5: the count of blocks to return is wrong");
    then("hA -a@A");
  } else if (stage == 1) {
    breaks(size_t, lake->return_count, 0, "N5: the count of blocks to return is wrong");
    breaks(int, b->as.live.extra->is_shared, 0, "N5: the count of blocks to return is wrong");
    breaks(gmlk_extra *, lake->returns, lake->home.pending,
           "N5: a pending block is in another list");
    breaks(gmlk_extra *, lake->home.pending, NULL, "N1: a list of pending blocks is wrong");
    then("eA T:99 -b@A T:99");
  } else {
    b = tile_of('b');
    is(b->state == GMLK_FREE);
    chunk = &lake->home.chunks.items[gmlk_slot_of(&lake->home, b->at)];
    lake->home.chunks.shared_count = chunk->is_shared = 1;
    assert_broken("P5: a chunk that other processes know is free");
    lake->home.chunks.shared_count = chunk->is_shared = 0;
  }
}

/* A pool that is lent, with a borrower. */
static void loans(void) {
  gmlake_pool *pool = w.pools[1].value;
  if (stage) return;
  breaks(size_t, lake->loan_count, 0, "F5: a capture's number is lost");
  breaks(size_t, pool->loan.count, 9, "G1: more streams borrow than there is room for");
  breaks(unsigned, pool->loan.number, GMLK_FIRST_STREAM, "G1: a loan's number is none");
  breaks(unsigned, pool->loan.number, 0, "A9: a block was asked for in no such way");
  breaks(size_t, pool->capture_count, 1, "G1: what is lent has a capture");
  then("-b@A L0@A");
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static const struct relation {
  const char *name, *line;
  void (*act)(void);
} relations[] = {
    {"sizes_of_tables", "{granule:16 cap:8}", sizes_of_tables},
    {"the_lake_between_calls", "{granule:16 cap:8} +a=512b@A -a@A", the_lake_between_calls},
    {"the_shape_of_an_arena", "{granule:16 cap:8} P0 +a=1/0 -a", the_shape_of_an_arena},
    {"tables_of_streams_to_come", "{granule:16 cap:8} +a=512b@A -a@A", tables_of_streams_to_come},
    {"the_largest_table_of_pools", "{granule:16 cap:8}", the_largest_table_of_pools},
    {"dead_pools", "{granule:16 cap:8} P0 +a=2/0 -a fail:unreserve=1R* D0 fail:any=0R", dead_pools},
    {"dead_pools_that_never_lived", "{granule:16 cap:8}", dead_pools_that_never_lived},
    {"dead_pools_with_windows",
     "{granule:16 cap:8} P0 +z.3=3@n/0 -z.3@n +a-c=1/0 -ac +w=2/0 -wb fail:unreserve=1R* D0 "
     "fail:any=0R",
     dead_pools_with_windows},
    {"dead_pools_with_stuck_windows",
     "{granule:16 cap:8} P0 +z.3=3@n/0 -z.3@n +a-c=1/0 -ac +w=2/0 -wb fail:unmap=1R* T:0!R "
     "fail:unreserve=1R* D0 fail:any=0R",
     dead_pools_with_stuck_windows},
    {"numbers", "{granule:16 cap:16} P0 P1 D0 +a=1@A -a@A +b=1@B -b@B +c=512b@C -c@C fC BD:1/0",
     numbers},
    {"events", "{granule:16 cap:8} hA +b=512b@B -b@B +a=1@A -a@A", events},
    {"fences", "{granule:16 cap:8} +z=512b@B -z@B +a-d=1@A hA -a-c@A", fences},
    {"waits_on_the_device", "{granule:16 cap:2} +a=2@A hA -a@A +b=2@B at:b=a", waits_on_the_device},
    {"epochs_and_tags", "{granule:16 cap:8} +z=512b@B -z@B +a=1@A hA -a@A", epochs_and_tags},
    {"events_are_had_once",
     "{granule:16 cap:8} +z=512b@B -z@B [2 hA +a=1@A -a@A +b=1@B -b@B ] eA T:0",
     events_are_had_once},
    {"uses_of_blocks", "{granule:16 cap:16} +a=1@A ra@B P0 BC:0/0", uses_of_blocks},
    {"queues_of_uses", "{granule:16 cap:16} +a=1@A ra@B +b=1@A rb@B hB -ab@A", queues_of_uses},
    {"pending_blocks", WITH_WINDOWS "hA ry@A -y", pending_blocks},
    {"live_blocks", "{granule:16 cap:8} +z.3=3@n -z.3@n +a-c=1 +s=3000b -ac +w=2", live_blocks},
    {"peaks", "{granule:16 cap:16} +z.3=3@n -z.3@n +a-c=1 -ac +w=2 N0:2^1 z0:1 +p=1@A rp@B hB -p@A",
     peaks},
    {"pieces",
     "{granule:16 cap:16} +z.3=3@n -z.3@n +a-c=1 -ac +w=2 N0:2^1 z0:1 +p=1@A rp@B hB -p@A "
     "reset-peaks",
     pieces},
    {"a_full_row", "{granule:16 cap:64}", a_full_row},
    {"the_index", "{granule:16 cap:8} +a=1", the_index},
    {"small_reserve", "{granule:16 cap:72} +x=31@A +a=512b@A", small_reserve},
    {"sorted_pools", "{granule:16 cap:8} +a=1@n +b=512b@n -a@n", sorted_pools},
    {"gaps", "{granule:16 cap:8} +z.3=7@n -z.3@n +a-g=1 -bdf@n T:0 released=3", gaps},
    {"no_gaps", "{granule:16 cap:8} +z.3=7@n -z.3@n +a-g=1", no_gaps},
    {"seconds", "{granule:16 cap:8} +z.3=8@n -z.3@n +a-h=1@C -bdf@n -ace@C", seconds},
    {"neighbours", "{granule:16 cap:8 policy:4} a:/c +z.3=3@n -z.3@n +a-c=1 -ab", neighbours},
    {"free_addresses", "{granule:16 cap:8} +z.3=4@n -z.3@n +a-d=1 -ac +w=2 -w", free_addresses},
    {"a_limit", "{granule:16 cap:8} P0:4 +a=2@n/0 -a@n", a_limit},
    {"windows", WITH_WINDOWS, windows},
    {"mappings_of_each_chunk", "{granule:16 cap:16} +z.3=5@n -z.3@n +a-e=1 -bd +w=2",
     mappings_of_each_chunk},
    {"a_chunk_twice_in_a_window", "{granule:16 cap:16} +z.3=5@n -z.3@n +a-e=1 -bd +w=2 -w",
     a_chunk_twice_in_a_window},
    {"what_stays_with_the_driver_may_exceed_the_limit",
     "{granule:16 cap:8} +a=1 -a fail:release=1R T:0!R quarantined=1",
     what_stays_with_the_driver_may_exceed_the_limit},
    {"idle_windows", "{granule:16 cap:8} +z.3=3@n -z.3@n +a-c=1 -ac +w=2 -w", idle_windows},
    {"windows_that_stay",
     "{granule:16 cap:4} +z.3=3@n -z.3@n +a-c=1 -ac fail:access=1R* fail:unmap=1R* +w=2!R "
     "fail:any=0R",
     windows_that_stay},
    {"ends", "{granule:16 chunk:2 cap:8} N0:2^1 z0:2", ends},
    {"ends_behind_a_hole", "{granule:16 chunk:2 cap:8} N0:2^1 z0:2 d0:0,1 N1:2^1",
     ends_behind_a_hole},
    {"sleepers", "{granule:16 cap:16} P0 N0:4/0^2 z0:1 +z.3=4@n/0 -z.3@n +a-d=1/0 -ac +w=2/0",
     sleepers},
    {"places", "{granule:16 cap:8} N0:2^1 z0:2@n z0:1@n", places},
    {"shared_memory", "{granule:16 cap:8 share} +a=1/x +b=1 xa", shared_memory},
    {"loans", "{granule:16 cap:8} P0 BA:0/0 +a=2@A -a@A EA l0@A +b=1@A/t", loans},
};
#define RELATIONS (sizeof(relations) / sizeof(relations[0]))

static const struct relation *played;

static int acts(program *p, size_t at) {
  (void)at;
  played->act();
  stage++;
  return at < p->count;
}

static void a_relation(void **state) {
  static program p;
  const char *wrong, *rule;
  played = (const struct relation *)*state;
  memset(p.options, 0, sizeof(p.options));
  p.count = 0;
  stage = 0;
  reading_unit = UNIT;
  wrong = program_read(&p, played->line);
  if (wrong) fail_msg("not of the language: %s", wrong);
  p.options[OPT_EXACT] = 1;
  rule = play(&p, acts);
  if (rule) fail_msg("word %zu: %s", verdict.at + 1, rule);
}

static void each_invariant_is_told(void **state) {
  FILE *header = fopen("gmlake.h", "r");
  char line[256];
  (void)state;
  assert_non_null(header); /* the tests run in the repository's root */
  while (fgets(line, sizeof(line), header)) {
    const char *at = line;
    while ((at = strchr(at, '[')) != NULL) {
      at++;
      if (at[0] < 'A' || at[0] > 'Z' || at[1] < '0' || at[1] > '9' || at[2] != ']') continue;
      if (!was_told[(unsigned char)at[0]][at[1] - '0'] && is_of_the_books(at))
        fail_msg("[%.2s] is told nowhere", at);
    }
  }
  (void)fclose(header);
}

int main(void) {
  static struct CMUnitTest tests[RELATIONS + 2] = {cmocka_unit_test(the_first_is_told)};
  const struct CMUnitTest last = cmocka_unit_test(each_invariant_is_told);
  size_t i;
  is_strict = 1;
  for (i = 0; i < RELATIONS; i++) {
    tests[i + 1].name = relations[i].name;
    tests[i + 1].test_func = a_relation;
    tests[i + 1].initial_state = (void *)(uintptr_t)&relations[i];
  }
  tests[i + 1] = last;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
