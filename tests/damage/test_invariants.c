/* Invariants one by one: each breaks a single condition of gmlake_check and leaves all those that
   are asked before it. The last test looks whether each invariant that gmlake.h numbers is told
   here, but for those that no look at the books can tell. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

static gmlake_stream A, B;

static gmlk_stream *number_of(gmlake_stream stream) {
  return lake->streams.items[gmlk_stream_find(&lake->streams, stream)];
}

static int is_told[128][10]; /* which invariants have been, by letter and digit */

static void note_told(const char *text) {
  for (; text[0] >= 'A' && text[0] <= 'Z'; text += 4) { /* "W6, B3: ..." is of two */
    is_told[(unsigned char)text[0]][text[1] - '0'] = 1;
    if (text[2] != ',') return;
  }
}

static void assert_broken_at(const char *invariant, int line) {
  gmlake_error_info error;
  assert_error(gmlake_check(lake), CORRUPT);
  error = last_error();
  note_told(error.text);
  if (strncmp(error.text, invariant, strlen(invariant)) != 0)
    fail_msg("line %d: \"%s\", not \"%s\"", line, error.text, invariant);
}

#define assert_broken(invariant) assert_broken_at(invariant, __LINE__)

/* The value in that place breaks the invariant; the one before does not. */
#define breaks(type, place, value, invariant) \
  do {                                        \
    type *const place_ = &(place);            \
    type const kept_ = *place_;               \
    *place_ = (type)(value);                  \
    assert_broken(invariant);                 \
    *place_ = kept_;                          \
    assert_ok(gmlake_check(lake));            \
  } while (0)

static void open_faulty(size_t chunks, unsigned flags) {
  prepare(chunks);
  desc.flags = flags;
  desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  use_faults();
  open_lake();
  A = open_stream();
  B = open_stream();
}

static void abandon(void) {
  memset(faults, 0, sizeof(faults));
  assert_ok(gmlake_check(lake));
  (void)gmlake_destroy(lake);
  close_mock();
}

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

static void sizes_of_tables(void **state) {
  (void)state;
  open_faulty(8, 0);
  breaks(size_t, lake->index.row_count, 8, "I2: the index is not of its size");
  breaks(unsigned, lake->index.shift, 63, "I2: the index is not of its size");
  breaks(size_t, lake->view_bytes, 1, "L2: a table is missing, or has no size");
  breaks(size_t, lake->host.bytes, lake->host.bytes + 1, "L2: the host's bytes");
  breaks(size_t, lake->records.page_count, 7, "R1: the pages are wrong");
  breaks(size_t, lake->records.unused_count, 1, "R1: the unused records are wrong");
  abandon();
}

/* What is there while calls are under way, and only then. */
static void the_lake_between_calls(void **state) {
  gmlk_attempt none;
  (void)state;
  open_faulty(8, 0);
  memset(&none, 0, sizeof(none));
  breaks(int, lake->is_barred, 1, "L1: is_barred is wrong");
  breaks(const gmlk_attempt *, lake->served, &none, "L1: served names a request that is over");
  breaks(unsigned, lake->message_count, GMLK_LOG_QUEUE + 1,
         "L1: more messages wait than there is room for, or no logger reads them");
  breaks(size_t, lake->arena_count, lake->arena_capacity + 1,
         "L1: an arena is not where the list has it");
  breaks(size_t, lake->home.limit_bytes, C, "L5: a pool's limit has changed");
  breaks(size_t, lake->streams.count, lake->streams.capacity + 1, "F5: more streams than room");
  drop_on(take_on(512, A), A);
  breaks(size_t, lake->streams.event_capacity, GMLK_FENCES, "F5: more streams");
  breaks(size_t, lake->streams.event_count, 1000000, "F5: more events than room");
  breaks(uint32_t, lake->home.tail.at, 1, "A4: the end is wrong");
  breaks(uint8_t, lake->home.head.state, GMLK_FREE, "A1: blocks do not tile the arena");
  abandon();
}

/* An arena's own fields, one against the other. */
static void the_shape_of_an_arena(void **state) {
  gmlake_pool *pool;
  gmlk_arena *a;
  (void)state;
  open_faulty(8, 0);
  pool = open_pool(0);
  drop(take_from(pool, C, LEGACY));
  a = &pool->arena;
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
  breaks(uint32_t, a->chunks.stuck_end, a->slot_capacity + 1,
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
  abandon();
}

/* Room for streams that there are not yet. */
static void tables_of_streams_to_come(void **state) {
  gmlk_arena *a;
  static gmlk_bins table;
  unsigned bin;
  (void)state;
  open_faulty(8, 0);
  drop_on(take_on(512, A), A);
  a = &lake->home;
  memset(&table, 0, sizeof(table));
  for (bin = 0; bin < GMLK_BINS; bin++) gmlk_ring_init(&table.rings[bin]);
  a->bins[7] = &table;
  assert_broken("A8: bins are of no stream");
  a->bins[7] = NULL;
  abandon();
}

/* The last number that a stream can have makes tables for twice as many. */
static void the_largest_table_of_pools(void **state) {
  const unsigned last = GMLK_STREAMS_MAX - 1;
  gmlk_arena *a;
  (void)state;
  open_faulty(8, 0);
  a = &lake->home;
  assert_true(gmlk_arena_admit(a, last));
  assert_int_equal(a->bins_capacity, last * 2);
  gmlk_bins_destroy(a->bins[last], &lake->host);
  a->bins[last] = NULL;
  assert_ok(gmlake_check(lake));
  drop_on(take_on(C, A), A);
  abandon();
}

/* ---- Pools that are gone --------------------------------------------------------------------- */

static void dead_pools(void **state) {
  gmlake_pool *pool, *dead;
  (void)state;
  open_faulty(8, 0);
  pool = open_pool(0);
  drop(take_from(pool, 2 * C, LEGACY));
  fail_call(ON_UNRESERVE, 1, GMLAKE_ERROR_DRIVER, 1);
  step(gmlake_pool_destroy(lake, pool));
  dead = lake->dead;
  assert_non_null(dead);
  breaks(size_t, dead->capture_count, 1, "L1: a destroyed pool is in use");
  breaks(gmlake *, dead->lake, lake, "L1: a destroyed pool is in use");
  breaks(size_t, lake->stats.quarantined_bytes, 1,
         "L4: quarantined_bytes is not what a walk counts");
  abandon();
}

/* One that has no table of windows, and one that was never given addresses. */
static void dead_pools_that_never_lived(void **state) {
  gmlake_pool *pool = NULL;
  long n;
  (void)state;
  open_faulty(8, 0);
  for (n = 1; n < 20 && !lake->dead; n++) {
    gmlake_result result;
    host_fail_in = n;
    fail_call(ON_UNRESERVE, 1, GMLAKE_ERROR_DRIVER, 1);
    result = gmlake_pool_create(lake, NULL, &pool);
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    if (!result) break;
  }
  assert_non_null(lake->dead);
  fail_call(ON_UNRESERVE, 0, GMLAKE_OK, 0);
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_EXCHANGE, 3, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_error(gmlake_pool_create(lake, NULL, &pool), DEVICE_LOST);
  assert_int_equal(lake->dead->arena.area.count, 0);
  abandon();
}

/* With windows that were idle, and that could not be unmapped. */
static void dead_pools_with_windows(void **state) {
  int is_stuck;
  (void)state;
  for (is_stuck = 0; is_stuck < 2; is_stuck++) {
    gmlake_pool *pool;
    void *b[3];
    size_t i;
    open_faulty(8, 0);
    pool = open_pool(0);
    drop_on(take_from(pool, 3 * C, NONE), NONE);
    for (i = 0; i < 3; i++) b[i] = take_from(pool, C, LEGACY);
    drop(b[0]);
    drop(b[2]);
    drop(take_from(pool, 2 * C, LEGACY));
    drop(b[1]);
    if (is_stuck) {
      fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 1);
      assert_error(gmlake_trim(lake, 0, NULL), DRIVER);
      assert_non_null(pool->arena.windows.quarantine);
    }
    fail_call(ON_UNRESERVE, 1, GMLAKE_ERROR_DRIVER, 1);
    step(gmlake_pool_destroy(lake, pool));
    assert_non_null(lake->dead);
    assert_int_equal(lake->dead->arena.windows.quarantine != NULL, is_stuck);
    abandon();
  }
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
      assert_ok(gmlake_check(lake));
    all->last = kept_last;
    all->last_value = kept;
  }
}

static void numbers(void **state) {
  gmlake_pool *gone, *pool;
  gmlk_streams *all;
  gmlk_stream *b, *captured;
  gmlake_stream forgotten, capturing;
  (void)state;
  open_faulty(16, 0);
  gone = open_pool(0);
  pool = open_pool(0);
  step(gmlake_pool_destroy(lake, gone));
  all = &lake->streams;
  drop_on(take_on(C, A), A);
  drop_on(take_on(C, B), B);
  forgotten = open_stream();
  drop_on(take_on(512, forgotten), forgotten);
  step(gmlake_forget_stream(lake, forgotten));
  capturing = open_stream();
  step(gmlake_capture_begin(lake, capturing, pool));
  b = number_of(B);
  breaks(gmlake_stream, b->value, (gmlake_stream)(uintptr_t)1,
         "F5: a stream has a value that no stream can have");
  breaks(gmlake_stream, b->value, (gmlake_stream)(uintptr_t)2,
         "F5: a stream has a value that no stream can have");
  breaks(gmlake_stream, b->value, NONE, "F5: a stream has a value that no stream can have");
  breaks(gmlake_stream, b->value, A, "L3: two numbers stand for one stream");
  breaks(uint8_t, b->is_used, 2, "F5: a stream is in no known state");
  breaks(unsigned, b->kind, GMLAKE_STREAM_URGENT + 1, "F5: a stream is of no kind");
  breaks(uint64_t, b->born, lake->records.serial + 1, "F5: a stream is of a time to come");
  breaks(uint8_t, b->is_used, 0, "F5: a stream is in no known state");
  breaks(unsigned, b->capture, 1, "F5: a capture is another stream's");
  breaks(unsigned, b->capture, (unsigned)all->count, "F5: a capture is another");
  captured = number_of(capturing);
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
  step(gmlake_capture_end(lake, capturing));
  all->last = (unsigned)(all->count - 1); /* that of the capture, which serves again */
  assert_false(all->items[all->last]->is_used);
  assert_broken("F5: last is not the number");
  all->last = 0;
  abandon();
}

static void events(void **state) {
  (void)state;
  open_faulty(8, 0);
  gmlake_mock_stream_hold(mock, A);
  drop_on(take_on(512, B), B);
  drop_on(take_on(C, A), A);
  assert_int_equal(number_of(A)->fence_count, 1);
  breaks(uint32_t, number_of(A)->uses, 1,
         "F7: a stream's count of the blocks recorded on it is wrong");
  breaks(uint64_t, number_of(A)->id, 1, "F8: a stream's id was not asked");
  breaks(size_t, lake->streams.event_count, lake->streams.event_capacity, "F5: no room");
  abandon();
}

/* Of three epochs with an event each, and one that is open. */
static void fences(void **state) {
  gmlk_stream *s;
  gmlk_fence *fence;
  void *b[4];
  int i;
  (void)state;
  open_faulty(8, 0);
  drop_on(take_on(512, B), B);
  for (i = 0; i < 4; i++) b[i] = take_on(C, A);
  gmlake_mock_stream_hold(mock, A);
  for (i = 0; i < 3; i++) drop_on(b[i], A);
  s = number_of(A);
  fence = s->fences;
  assert_true(s->fence_head == 0 && s->fence_count == 3 && !s->is_dirty);
  assert_true(fence[0].epoch < fence[1].epoch && fence[1].epoch < fence[2].epoch);
  breaks(uint64_t, fence[0].epoch, 0, "F2: fences out of order");
  breaks(uint64_t, fence[0].epoch, fence[1].epoch, "F2: fences out of order");
  breaks(uint64_t, fence[1].epoch, fence[0].epoch, "F2: fences out of order");
  breaks(uint64_t, fence[1].epoch, fence[2].epoch + 1, "F2: fences out of order");
  breaks(uint64_t, fence[2].epoch, s->epoch, "F2: fences out of order");
  breaks(uint64_t, fence[2].epoch, fence[1].epoch, "F2: fences out of order");
  breaks(void *, fence[1].event, NULL, "F2: a fence has no event");
  breaks(void *, fence[1].event, fence[0].event, "L3: one event is in two places");
  drop_on(b[3], NONE);
  abandon();
}

/* B waits on the device for what A freed. */
static void waits_on_the_device(void **state) {
  gmlk_stream *s;
  void *ptr;
  (void)state;
  open_faulty(2, 0);
  ptr = take_on(2 * C, A);
  gmlake_mock_stream_hold(mock, A);
  drop_on(ptr, A);
  assert_ptr_equal(take_on(2 * C, B), ptr);
  s = number_of(B);
  assert_true(s->wait_count == 1 && lake->streams.items[s->waits[0].stream] == number_of(A));
  breaks(size_t, s->wait_count, s->wait_capacity + 1, "F6: more waits than room");
  breaks(unsigned, s->waits[0].stream, 99, "F6: a wait names no stream");
  breaks(unsigned, s->waits[0].stream, 0, "F6: a wait names no stream");
  breaks(uint64_t, s->waits[0].epoch, number_of(A)->epoch, "F6: a wait is for an epoch to come");
  gmlake_mock_stream_finish(mock, A);
  abandon();
}

/* What is freed carries an epoch that there was; what is closed, one that an event covers. */
static void epochs_and_tags(void **state) {
  gmlk_stream *s;
  gmlk_block *b;
  void *ptr;
  (void)state;
  open_faulty(8, 0);
  drop_on(take_on(512, B), B);
  ptr = take_on(C, A);
  b = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)ptr);
  gmlake_mock_stream_hold(mock, A);
  drop_on(ptr, A);
  s = number_of(A);
  assert_true(b->state == GMLK_FREE && b->ticket < s->epoch && !s->is_dirty);
  breaks(uint64_t, s->done, s->epoch, "F1: epochs are out of order");
  breaks(uint64_t, s->epoch, GMLK_ENDLESS, "F1: epochs are out of order");
  breaks(uint64_t, s->epoch, s->epoch + 1, "F4: an epoch has no fence");
  breaks(uint64_t, b->ticket, 0, "F1: a tag is of an epoch to come");
  breaks(uint64_t, b->ticket, s->epoch + 1, "F1: a tag is of an epoch to come");
  breaks(uint64_t, b->ticket, s->epoch, "F4: no fence is to cover a tag");
  breaks(uint16_t, b->stream, (uint16_t)lake->streams.count, "F1: a tag names no stream");
  abandon();
}

/* An event is of one fence, or idle once. */
static void events_are_had_once(void **state) {
  gmlk_streams *all;
  int i;
  (void)state;
  open_faulty(8, 0);
  drop_on(take_on(512, B), B);
  for (i = 0; i < 2; i++) {
    gmlake_mock_stream_hold(mock, A);
    drop_on(take_on(C, A), A);
    drop_on(take_on(C, B), B);
  }
  gmlake_mock_stream_finish(mock, A);
  all = &lake->streams;
  step(gmlake_trim(lake, 0, NULL));
  assert_true(all->event_count >= 2);
  breaks(void *, all->events[1], all->events[0], "L3: one event is in two places");
  breaks(void *, all->events[0], NULL, "F5: an idle event is NULL");
  drop_on(take_on(C, A), A);
  abandon();
}

static void uses_of_blocks(void **state) {
  gmlake_stream forgotten, capturing;
  gmlk_note *note;
  gmlk_block *b;
  unsigned capture;
  void *ptr, *pending;
  (void)state;
  open_faulty(16, 0);
  ptr = take_on(C, A);
  step(gmlake_record_stream(lake, ptr, B));
  capturing = open_stream();
  step(gmlake_capture_begin(lake, capturing, open_pool(0)));
  capture = number_of(capturing)->capture;
  b = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)ptr);
  note = b->as.live.note;
  breaks(gmlk_block *, note->block, b, "N1: a note names another block");
  breaks(unsigned, note->used[0].stream, 1, "N2: a block is used on no stream");
  breaks(unsigned, note->used[0].stream, 99, "N2: a block is used on no stream");
  breaks(unsigned, note->used[0].stream, capture, "N2: a block is used on no stream");
  step(gmlake_capture_end(lake, capturing));
  breaks(unsigned, note->used[0].stream, capture, "N2: a block is used on no stream");
  breaks(uint16_t, b->stream, capture, "A9");
  forgotten = open_stream();
  drop_on(take_on(512, forgotten), forgotten);
  pending = take_on(C, A);
  step(gmlake_record_stream(lake, pending, B));
  gmlake_mock_stream_hold(mock, B);
  b = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)pending);
  drop_on(pending, A);
  assert_int_equal(b->state, GMLK_PENDING);
  {
    gmlk_note *kept = b->as.live.note;
    b->as.live.note = NULL;
    assert_error(gmlake_check(lake), CORRUPT);
    b->as.live.note = kept;
  }
  note = b->as.live.note;
  breaks(size_t, note->uses_left, 2, "N4: a count of uses in queues is wrong");
  breaks(gmlk_note *, note->used[0].note, NULL, "N4: a pending use is in no queue");
  abandon();
}

/* Two blocks that wait for B, in the order in which they were freed. */
static void queues_of_uses(void **state) {
  gmlk_stream *s;
  gmlk_used *first;
  gmlk_note *newest;
  void *ptr[2];
  size_t i;
  (void)state;
  open_faulty(16, 0);
  for (i = 0; i < 2; i++) step(gmlake_record_stream(lake, ptr[i] = take_on(C, A), B));
  gmlake_mock_stream_hold(mock, B);
  for (i = 0; i < 2; i++) drop_on(ptr[i], A);
  s = number_of(B);
  first = s->uses_first;
  newest = lake->home.pending;
  assert_true(first->next == s->uses_last && first->ticket < s->uses_last->ticket);
  breaks(gmlk_used *, s->uses_first, first->next, "N4: a pending use is in no queue");
  breaks(gmlk_used *, s->uses_last, first, "N4: a queue's end is wrong");
  breaks(gmlk_used *, number_of(A)->uses_first, first,
         "N4: a use stands in another stream's queue");
  breaks(gmlk_note *, newest->next->prev, NULL, "N1: a pending block's neighbour is wrong");
  abandon();
}

/* | A | b | C | d | E | f | G | h | I |  a window of b and d that is idle, one of f and half of h
   that is live, at *out_live. */
static gmlk_window *open_with_windows(void **out_live) {
  void *b[9], *x;
  gmlk_window *idle;
  size_t i;
  open_faulty(16, 0);
  lay(b, 9);
  for (i = 1; i < 8; i += 2) drop(b[i]);
  x = take(2 * C);
  *out_live = take(C + C / 2);
  idle = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)x)->as.live.window;
  assert_non_null(idle);
  drop(x);
  return idle;
}

/* Freed, but used by a stream that is at work: what it was asked for, and a window of it blocks no
   other. */
static void pending_blocks(void **state) {
  gmlk_block *self;
  void *half;
  (void)state;
  (void)open_with_windows(&half);
  self = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)half);
  gmlake_mock_stream_hold(mock, A);
  step(gmlake_record_stream(lake, half, A));
  drop(half);
  assert_int_equal(self->state, GMLK_PENDING);
  breaks(uint8_t, self->flags, GMLK_APART, "A9: a block was asked for in no such way");
  gmlake_mock_stream_finish(mock, A);
  abandon();
}

/* A block that shares its chunk, and a window: what they were asked for, how much, and when. */
static void live_blocks(void **state) {
  gmlk_block *b, *self;
  gmlk_chunk *chunk;
  uint32_t slot;
  void *parts[3], *small, *window;
  (void)state;
  open_faulty(8, 0);
  lay(parts, 3);
  small = take(3000);
  drop(parts[0]);
  drop(parts[2]);
  window = take(2 * C);
  b = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)small);
  self = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)window);
  assert_ptr_equal(self, &self->as.live.window->self);
  breaks(uint8_t, b->flags, 8, "A9: a block was asked for in no such way");
  breaks(uint8_t, b->flags, GMLK_IN_GRAPH, "A9: a block was asked for in no such way");
  breaks(uint8_t, b->flags, GMLAKE_EXCLUSIVE, "A9: an exclusive block shares a chunk");
  breaks(uint8_t, self->flags, GMLAKE_NO_STITCH, "A9: a window is forbidden");
  breaks(uint64_t, b->ticket, 0, "A9: a ticket was never given");
  breaks(uint64_t, b->ticket, lake->records.serial + 1, "A9: a ticket was never given");
  breaks(uint32_t, b->slack, 3072, "A9: a block's rounding is as large as it");
  breaks(uint16_t, b->stream, GMLK_PINNED, "A9: a block is of no stream");
  breaks(uint32_t, b->hole, 6, "A3: an owned block has a hole");
  breaks(uint32_t, b->arena, 1, "A1: a block names another arena");
  slot = gmlk_slot_of(&lake->home, b->at);
  chunk = &lake->home.chunks.items[slot];
  assert_ptr_equal(lake->home.firsts[slot], b);
  breaks(uint64_t, chunk->handle, 0, "A5: a handle and a state differ");
  breaks(gmlk_block *, lake->home.firsts[slot], b->next, "A4: a slot's first block is wrong");
  breaks(uint32_t, chunk->map_count, chunk->map_count + 1,
         "W6, B3: a chunk's mappings do not add up");
  breaks(uint32_t, chunk->place_count, chunk->place_count + 1,
         "B3: a chunk's mappings by buffers do not add up");
  breaks(uint8_t, chunk->is_marked, 1, "P2: a chunk is marked");
  chunk = &lake->home.chunks.items[lake->home.chunks.capacity - 1];
  assert_int_equal(chunk->handle, 0);
  breaks(uint8_t, chunk->is_known, 1, "P6: a graph knows an empty slot");
  chunk = &lake->home.chunks.items[slot];
  breaks(uint8_t, chunk->is_home, 0, "P3: a chunk is not mapped as it is said to be");
  breaks(uint32_t, chunk->behind, 1, "P4: the chunks of a handle differ");
  breaks(uint32_t, chunk->before, 1, "P4: the chunks of a handle differ");
  breaks(size_t, lake->home.chunks.handle_count, 0, "P1: the chunks' totals are wrong");
  breaks(size_t, lake->home.chunks.backed_count, 0, "P1: the chunks' totals are wrong");
  breaks(size_t, lake->home.chunks.stuck_count, 1, "P1: the chunks' totals are wrong");
  breaks(uint32_t, lake->home.chunks.stuck_end, 1, "P1: stuck_end is not");
  breaks(uint64_t, lake->home.free_grains, lake->home.free_grains + 1, "A6: the arena's totals");
  breaks(size_t, lake->index.count, lake->index.count + 1, "I1: the index's count is wrong");
  drop(parts[1]);
  abandon();
}

/* Of everything there is some: no peak is lower than that, and all of it was owned. */
static void peaks_and_pieces(void **state) {
  gmlake_stats *s;
  gmlake_buffer *buffer;
  gmlk_block *tile;
  void *b[3], *window, *pending;
  (void)state;
  open_faulty(16, 0);
  lay(b, 3);
  drop(b[0]);
  drop(b[2]);
  window = take(2 * C);
  buffer = open_buffer(2);
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  pending = take_on(C, A);
  step(gmlake_record_stream(lake, pending, B));
  gmlake_mock_stream_hold(mock, B);
  drop_on(pending, A);
  s = &lake->stats;
  breaks(size_t, lake->desc.limit_bytes, s->reserved_bytes - 1, "L5: a limit or a choice");
  breaks(size_t, lake->desc.driver_free_bytes_min, 1, "L5: a limit or a choice");
  breaks(size_t, lake->desc.stitch_bytes_min, 1, "L5: a limit or a choice");
  breaks(gmlake_cross_stream, lake->desc.cross_stream, 1, "L5: a limit or a choice");
  lake->desc.limit_bytes = s->reserved_bytes - 1;
  lake->seal = gmlk_desc_seal(&lake->desc);
  assert_broken("L4: the limit is exceeded");
  lake->desc.limit_bytes = 0;
  lake->seal = gmlk_desc_seal(&lake->desc);
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
  step(gmlake_reset_peaks(lake)); /* as low as they may be */
  tile = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)window)->as.live.window->spans[0].block;
  breaks(uint64_t, tile->ticket, 0, "A9: a ticket was never given");
  breaks(uint64_t, tile->ticket, lake->records.serial + 1, "A9: a ticket was never given");
  breaks(uint8_t, tile->flags, GMLAKE_NO_GROW, "A9: a block was asked for in no such way");
  tile = gmlk_place_block(buffer->arena, buffer->places);
  assert_int_equal(tile->state, GMLK_COMMITTED);
  breaks(uint64_t, tile->ticket, 0, "A9: a ticket was never given");
  abandon();
}

/* A row that others passed over, as many blocks as it takes. */
static uint64_t *row_passed_over(void) {
  gmlk_index *index = &lake->index;
  size_t row;
  for (row = 0; row < index->row_count; row++)
    if (index->rows[row].address[0] % GMLK_GRAIN) return &index->rows[row].address[0];
  return NULL;
}

static void a_full_row(void **state) {
  uint64_t *first = NULL;
  size_t i;
  (void)state;
  open_faulty(64, 0);
  for (i = 0; i < 500 && !first; i++) {
    (void)take(512 * (1 + i * i * i % 13));
    first = row_passed_over();
  }
  assert_non_null(first);
  breaks(uint64_t, *first, *first - *first % GMLK_GRAIN, "I1: a row counts too few");
  breaks(uint64_t, *first, *first + 1, "I1: a row counts what is not there");
  abandon();
}

/* ---- The index, sorted pools, gaps ----------------------------------------------------------- */

static void the_index(void **state) {
  gmlk_index *index;
  void *ptr;
  size_t row;
  (void)state;
  open_faulty(8, 0);
  ptr = take(C);
  index = &lake->index;
  for (row = 0; index->rows[row].address[0]; row++) {
  }
  index->rows[row].address[0] = GMLK_PASSED_MAX; /* it may stay so: nobody knows how many passed */
  assert_ok(gmlake_check(lake));
  index->rows[row].address[0] = 0;
  breaks(gmlk_block *, index->rows[row].block[0], lake->home.head.next,
         "I1: an address has no block");
  gmlk_index_put(index, (uint64_t)(uintptr_t)ptr + 512, lake->home.head.next);
  assert_broken("L4: the index and the live blocks differ");
  gmlk_index_remove_from(index, gmlk_index_find(index, (uint64_t)(uintptr_t)ptr + 512),
                         gmlk_index_home(index, (uint64_t)(uintptr_t)ptr + 512));
  drop(ptr);
  abandon();
}

/* What is set aside for small blocks. */
static void crumbs(void **state) {
  gmlk_block *c, *before;
  gmlk_arena *a;
  void *ptr;
  (void)state;
  open_faulty(72, 0);
  a = &lake->home;
  (void)take_on((GMLK_CRUMBS_FROM - 1) * C, A);
  ptr = take_on(512, A);
  c = a->crumbs;
  assert_non_null(c);
  breaks(uint32_t, a->crumb_most, 0, "U2: crumb_most is wrong");
  breaks(gmlk_block *, a->crumbs, NULL, "A1: a block is in a state that does not last");
  breaks(gmlk_block *, a->crumbs, c->next, "A1: a block is in a state that does not last");
  breaks(uint64_t, c->ticket, 1, "U1: clean crumbs are of an epoch");
  breaks(uint8_t, c->flags, GMLK_APART, "U1: crumbs have flags");
  drop_on(take_on(512, A), A);
  assert_null(a->crumbs);
  breaks(gmlk_block *, a->crumbs, c, "U1: the crumbs are not there");
  (void)take_on(512, A);
  c = a->crumbs;
  assert_int_equal(c->stream, gmlk_stream_find(&lake->streams, A));
  breaks(uint64_t, c->ticket, GMLK_ENDLESS, "U1: crumbs are of an epoch to come");
  before = c->prev;
  assert_int_equal(before->state, GMLK_LIVE);
  a->crumbs = NULL;
  assert_ok(gmlake_free(lake, (char *)ptr + 512, A));
  a->crumbs = c;
  assert_broken("U1: crumbs are out of place");
  gmlk_crumbs_end(a);
  abandon();
}

static void sorted_pools(void **state) {
  gmlk_bins *clean;
  gmlk_block *b, fake;
  void *ptr, *end;
  int i;
  (void)state;
  open_faulty(8, 0);
  ptr = take_on(C, NONE);
  end = take_on(512, NONE);
  drop_on(ptr, NONE);
  clean = lake->home.bins[GMLK_CLEAN];
  breaks(uint32_t, clean->count, 7, "H4: the count of bins is wrong");
  breaks(uint64_t, clean->bits[0], 3, "H2: a bit is wrong");
  b = lake->home.head.next;
  assert_int_equal(b->state, GMLK_FREE);
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
    if (i == 3) fake.stream = GMLK_PINNED;
    if (i == 4) fake.arena = 7;
    if (i == 2) clean->count++; /* from here on bins and block agree, but it is not theirs */
    if (i == 2) clean->grains += b->hole;
    assert_broken(i < 2 ? "H1" : "A3: bins have another's block");
  }
  clean->count--;
  clean->grains -= b->hole;
  gmlk_link_remove(&fake.as.link);
  assert_ok(gmlake_check(lake));
  breaks(gmlk_link *, b->as.link.prev, &b->as.link, "H3: a ring's links differ");
  breaks(uint64_t, clean->bits[0], clean->bits[0] ^ 8, "H2: a bit is wrong");
  breaks(uint64_t, clean->words, clean->words ^ 8, "H2: a word of bits and its bit differ");
  breaks(uint32_t, clean->none_count, UINT32_MAX, "H5: a hole said to be absent");
  drop_on(end, NONE);
  abandon();
}

static void gaps(void **state) {
  gmlk_block **root, *gap, *other, fake;
  void *b[7];
  size_t i;
  (void)state;
  open_faulty(8, 0);
  lay(b, 7);
  breaks(gmlk_block *, lake->home.gaps, lake->home.head.next,
         "A7: the tree of gaps holds another block");
  for (i = 1; i < 7; i += 2) drop_on(b[i], NONE);
  assert_int_equal(trim_to(0), 3 * C);
  root = &lake->home.gaps;
  gap = *root;
  assert_int_equal(gap->state, GMLK_UNBACKED);
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
  assert_ok(gmlake_check(lake));
  for (gap = *root; gap->as.fork.less;) gap = gap->as.fork.less;
  fake = *gap; /* one that no tile is, below the gap that comes first */
  fake.as.fork.more = NULL;
  for (fake.at = gap->at - 1; !gmlk_tree_above(gap, &fake);) fake.at--;
  breaks(gmlk_block *, gap->as.fork.less, &fake, "A7: the tree of gaps is wrong");
  for (fake.at = gap->at; !gmlk_tree_above(gap, &fake);) fake.at++;
  breaks(gmlk_block *, gap->as.fork.less, &fake, "T1: a block stands on the wrong side");
  for (i = 0; i < 7; i += 2) drop(b[i]);
  abandon();
}

/* A run's second block, and what else may stand in the tree of such. */
static void seconds(void **state) {
  gmlk_block **root, *lead, *second, *third;
  gmlake_stream stream;
  void *b[8];
  size_t i;
  (void)state;
  open_faulty(8, 0);
  stream = open_stream();
  flood(8);
  for (i = 0; i < 8; i++) b[i] = take_on(C, stream);
  for (i = 1; i < 6; i += 2) drop_on(b[i], NONE);
  for (i = 0; i < 6; i += 2) drop_on(b[i], stream);
  lead = lake->home.head.next;
  second = lead->next->next;
  third = second->next->next;
  assert_int_equal(lead->hole, 6 * C / 512);
  root = &lake->home.bins[lead->stream]->seconds;
  assert_ptr_equal(*root, second);
  breaks(gmlk_block *, *root, NULL, "A3: a tree of second blocks is wrong");
  breaks(gmlk_block *, second->as.fork.less, third, "A3: a tree of seconds holds another");
  breaks(gmlk_block *, lake->home.bins[GMLK_CLEAN]->seconds, second, "A3: clean memory makes no");
  breaks(gmlk_block *, lake->home.window_space.holes->seconds, second,
         "V1: free space is in no bin");
  drop(b[6]);
  drop(b[7]);
  for (i = 0; i < 4; i++) b[i] = take_on(C, stream);
  assert_null(*root); /* one block is left, and clean memory */
  breaks(gmlk_block *, *root, lake->home.tail.prev, "A3: a tree of seconds holds another");
  for (i = 0; i < 4; i++) drop_on(b[i], stream);
  abandon();
}

static int keep_apart(void *user, const gmlake_piece *block) {
  (void)user, (void)block;
  return 0;
}

static void neighbours(void **state) {
  gmlake_policy policy;
  gmlk_block *first;
  void *b[3];
  (void)state;
  memset(&policy, 0, sizeof(policy));
  policy.struct_bytes = sizeof(policy);
  policy.coalesce = keep_apart;
  prepare(8);
  desc.policy = &policy;
  open_lake();
  lay(b, 3);
  drop(b[0]);
  drop(b[1]);
  first = lake->home.head.next;
  assert_true(first->flags == GMLK_APART && first->next->flags == GMLK_APART);
  first->flags = 0;
  breaks(uint8_t, first->next->flags, 0, "A2: neighbours of one tag are apart");
  drop(b[2]);
  abandon();
}

static void free_addresses(void **state) {
  gmlk_space *space;
  gmlk_block *va;
  void *b[4];
  (void)state;
  open_faulty(8, 0);
  lay(b, 4);
  drop(b[0]);
  drop(b[2]);
  drop(take(2 * C)); /* a window, so that there are addresses for windows */
  space = &lake->home.window_space;
  va = space->tail.prev;
  assert_int_equal(va->state, GMLK_FREE);
  breaks(gmlk_block *, space->used, va, "V3: the tree holds free addresses");
  breaks(uint64_t, va->ticket, 1, "V1: free address space is somebody's");
  gmlk_bins_remove(space->holes, va);
  va->hole = va->grains;
  assert_broken("V1: free space is in no bin");
  gmlk_bins_insert(space->holes, va, va->grains);
  abandon();
}

static void a_limit(void **state) {
  gmlake_pool *pool;
  (void)state;
  open_faulty(8, 0);
  pool = open_pool(4 * C);
  drop_on(take_from(pool, 2 * C, NONE), NONE);
  breaks(size_t, pool->arena.limit_bytes, C, "L5: a pool's limit has changed");
  breaks(size_t, pool->arena.limit_bytes, 0, "L5: a pool's limit has changed");
  pool->arena.limit_bytes = C;
  pool->arena.seal = gmlk_seal(0, C);
  assert_broken("L4: a pool's limit");
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(gmlake_trim(lake, C, NULL), DRIVER);
  assert_int_equal(pool->arena.chunks.stuck_count, 1);
  pool->arena.limit_bytes = C / 2; /* what the driver keeps may pass it */
  pool->arena.seal = gmlk_seal(0, C / 2);
  assert_ok(gmlake_check(lake));
  abandon();
}

/* ---- Windows and buffers --------------------------------------------------------------------- */

static void windows(void **state) {
  gmlk_window *live;
  gmlk_block fake, *kept, *tile;
  void *half;
  (void)state;
  (void)open_with_windows(&half);
  live = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)half)->as.live.window;
  assert_non_null(live);
  kept = live->spans[1].block;
  live->spans[1].block = live->spans[0].block;
  assert_broken("W4");
  fake = *kept;
  fake.arena = 9;
  live->spans[1].block = &fake;
  assert_broken("W4");
  live->spans[1].block = kept;
  live->spans[1].grains++;
  live->self.grains++;
  assert_broken("W4");
  live->spans[1].grains--;
  live->self.grains--;
  for (tile = lake->home.head.next; tile->state != GMLK_LIVE;) tile = tile->next;
  fake = *tile;
  tile->state = GMLK_PIECE;
  tile->as.live.window = live;
  tile->as.live.note = NULL;
  assert_broken("W4: a piece is of no window");
  *tile = fake;
  abandon();
}

/* An idle one of two whole chunks: where its pieces are, and which window it is. */
/* A window of a tail and a head, with a block between them. */
static void *take_window(void **b) {
  lay(b, 5);
  drop(b[1]);
  drop(b[3]);
  return take(2 * C);
}

static void mappings_of_each_chunk(void **state) {
  void *b[5], *window;
  (void)state;
  start(16);
  window = take_window(b);
  lake->home.chunks.items[1].map_count--; /* the sum stays what it was */
  lake->home.chunks.items[2].map_count++;
  assert_broken("W6");
  lake->home.chunks.items[1].map_count++;
  lake->home.chunks.items[2].map_count--;
  drop(window);
  finish();
}

static void a_chunk_twice_in_a_window(void **state) {
  void *b[5];
  gmlk_window *w;
  (void)state;
  start(16);
  drop(take_window(b));
  w = lake->home.windows.idle_first;
  breaks(uint32_t, w->spans[1].at, w->spans[0].at, "W2");
  finish();
}

static void what_stays_with_the_driver_may_exceed_the_limit(void **state) {
  (void)state;
  start_with_faults(8);
  drop(take(C));
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(gmlake_trim(lake, 0, NULL), DRIVER);
  assert_int_equal(stats().quarantined_bytes, C);
  lake->desc.limit_bytes = C / 2;
  lake->seal = gmlk_desc_seal(&lake->desc);
  finish();
}

static void idle_windows(void **state) {
  const uint32_t half = C / 512 / 2;
  gmlk_window *w;
  gmlk_span kept[2];
  void *b[3];
  (void)state;
  open_faulty(8, 0);
  lay(b, 3);
  drop(b[0]);
  drop(b[2]);
  drop(take(2 * C));
  w = lake->home.windows.idle_first;
  assert_true(w && w->span_count == 2);
  memcpy(kept, w->spans, sizeof(kept));
  breaks(uint32_t, w->spans[0].at, half, "W1: a piece ends inside a chunk");
  breaks(uint32_t, w->spans[1].at, kept[1].at - half, "W1: a piece begins inside a chunk");
  breaks(uint32_t, w->spans[1].at, lake->home.tail.at, "W2: a window's piece lies outside");
  breaks(uint32_t, w->spans[1].grains, 0, "W2: a window's piece lies outside the arena");
  breaks(uint32_t, w->spans[1].grains, half, "W3: a window's pieces do not add up");
  breaks(uint32_t, w->chunk_count, 3, "W2: a window's chunks do not match");
  w->spans[0].at += half;
  w->spans[0].grains = w->spans[1].grains = half;
  w->spans[1].at = kept[0].at; /* before the first, in the same chunk */
  assert_broken("W2: a window's ends share a chunk");
  memcpy(w->spans, kept, sizeof(kept));
  breaks(uint64_t, w->number, 0, "W8: a window is newer than any");
  breaks(uint64_t, lake->home.windows.number, w->number - 1, "W8: a window is newer than any");
  breaks(uint32_t, lake->home.windows.grains_min, 4 * half + 1, "W8: a window is smaller than any");
  breaks(uint64_t, w->address, w->address + C, "W2: a window is not where its address space is");
  breaks(gmlk_window *, lake->home.windows.open, NULL, "W5: an idle window is not where it should");
  breaks(uint64_t, w->key, w->key + 1, "W7: nothing is in a window's way");
  breaks(uint64_t, w->key, GMLK_BLOCKED, "W7: nothing is in a window's way");
  breaks(size_t, lake->home.windows.bytes, 3 * C, "L4: the bytes of an arena's windows are wrong");
  breaks(gmlk_window *, lake->home.windows.idle_last, NULL,
         "W5: the list of idle windows has a wrong end");
  breaks(gmlk_window *, w->idle_prev, w, "W5: an idle window is not where it should be");
  breaks(uint32_t, w->self.arena, 1, "A1: a block names another arena");
  drop(b[1]);
  abandon();
}

static void windows_that_stay(void **state) {
  gmlk_window *w;
  void *b[3];
  (void)state;
  open_faulty(4, 0);
  lay(b, 3);
  drop(b[0]);
  drop(b[2]);
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 1);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 1);
  assert_error(try_on(2 * C, LEGACY), DRIVER);
  memset(faults, 0, sizeof(faults));
  w = lake->home.windows.quarantine;
  assert_non_null(w);
  breaks(uint32_t, w->va->slack, 0, "W2");
  breaks(uint32_t, w->va->slack, w->chunk_count + 1, "W2");
  w->va->slack = w->chunk_count - 1; /* perhaps mapped in part */
  (void)gmlake_check(lake);
  w->va->slack = w->chunk_count;
  abandon();
}

static void ends(void **state) {
  gmlake_buffer *buffer, *other;
  (void)state;
  is_apart = 1;
  open_faulty(8, 0);
  is_apart = 0;
  buffer = open_buffer(2);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, LEGACY));
  breaks(uint32_t, buffer->count, 3, "B1: a buffer's committed places are wrong");
  breaks(uint8_t, buffer->arena->head.next->state, GMLK_PIECE, "B1: a chunk is no buffer's");
  breaks(size_t, buffer->bytes, 2 * C + 1, "B1: a buffer's end is behind its addresses");
  breaks(size_t, buffer->bytes, C, "B1: memory lies behind a buffer's end");
  breaks(gmlake *, buffer->lake, NULL, "B4: a destroyed buffer has memory");
  lake->host.bytes += sizeof(gmlk_place);
  buffer->place_count++; /* more than the addresses that it has */
  assert_broken("B1: places are missing");
  buffer->place_count--;
  lake->host.bytes -= sizeof(gmlk_place);
  step(gmlake_buffer_discard(lake, buffer, 0, C, LEGACY)); /* a hole, and memory behind it */
  breaks(uint8_t, buffer->places[0].state, GMLK_PLACE_COMMITTED,
         "B1: a buffer's committed places are wrong");
  breaks(size_t, buffer->bytes, C, "B1: memory lies behind a buffer's end");
  other = open_buffer(2);
  breaks(gmlk_block *, other->va, buffer->va, "V2: address space is another buffer's");
  breaks(gmlk_block *, buffer->arena->buffer_space.used, NULL, "V3: used address space is not in");
  breaks(gmlake_buffer *, buffer->arena->buffers, buffer, "V2: address space is nobody's");
  breaks(gmlake_pool *, buffer->arena->owner, buffer->arena->pool, "L1: an owner is no pool");
  breaks(gmlake_pool *, lake->home.owner, buffer->arena->pool, "L1: an arena is of no pool");
  abandon();
}

static void while_it_sleeps(gmlk_arena *a, gmlake_buffer *buffer) {
  assert_int_equal(a->chunks.items[0].handle, 0);
  breaks(uint64_t, a->chunks.items[0].handle, 77, "A5: a handle and a state differ");
  breaks(uint8_t, a->chunks.items[0].is_asleep, 0, "A5: a handle and a state differ");
  breaks(size_t, a->chunks.asleep_count, 0, "P1: the chunks' totals are wrong");
  breaks(unsigned, a->sleep, GMLK_AWAKE, "V1: address space is in a state");
  breaks(unsigned, buffer->arena->sleep, GMLK_AWAKE, "B2: a place is in a state");
  breaks(size_t, lake->stats.sleeping_bytes, 0, "L4: sleeping_bytes is not what a walk counts");
  breaks(uint64_t, a->copies[1].offset, 0, "Q1: copies are out of order");
  breaks(uint32_t, a->copies[0].grains, 0, "Q1: a copy lies outside the arena");
  breaks(uint32_t, a->copies[0].at, a->tail.at, "Q1: a copy lies outside the arena");
  breaks(uint32_t, a->copies[0].at, 1, "Q1: a copy is of 2 chunks");
  breaks(size_t, a->vault_bytes, C, "Q1: the vault is not of its size");
  breaks(uint64_t, a->copies[1].offset, 1 << 30, "Q1: a copy lies outside the vault");
  breaks(size_t, a->vault_count, 2, "Q1: more pieces of a vault than room for them");
  breaks(uint64_t, a->vaults[0].offset, 512, "Q1: a piece of the vault is not in its place");
  breaks(void *, a->vaults[0].memory, NULL, "Q1: a piece of the vault is not in its place");
  breaks(size_t, a->copy_count, 1, "Q2: more copies are done than there are");
  breaks(size_t, a->copy_count, a->copy_capacity + 1, "Q1: more copies than room for them");
}

/* A pool that sleeps with a block, a window and a buffer; one chunk could not be released. */
static void sleepers(void **state) {
  gmlake_buffer_desc wanted = buffer_desc(4 * C);
  gmlake_pool *pool;
  gmlake_buffer *buffer;
  gmlk_arena *a;
  gmlk_block *va;
  gmlk_copy copy = {0, 0, 0, 0};
  void *parts[4];
  int i;
  (void)state;
  open_faulty(16, 0);
  pool = open_pool(0);
  a = &pool->arena;
  wanted.pool = pool;
  wanted.chunk_bytes = 2 * C;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  drop_on(take_from(pool, 4 * C, NONE), NONE);
  for (i = 0; i < 4; i++) parts[i] = take_from(pool, C, LEGACY);
  drop(parts[0]);
  drop(parts[2]);
  (void)take_from(pool, 2 * C, LEGACY);
  va = a->window_space.head.next;
  breaks(uint8_t, va->state, GMLK_UNBACKED, "V1: address space is in a state");
  breaks(uint8_t, buffer->places[0].mark, 1, "B2: a place is in a state");
  breaks(unsigned, a->sleep, GMLK_ASLEEP + 1, "E1: a pool's arenas are not in one state");
  breaks(unsigned, buffer->arena->sleep, GMLK_DROWSY, "E1: a pool's arenas are not in one state");
  breaks(size_t, a->copy_count, 1, "Q1: more copies than room for them");
  breaks(size_t, a->vault_bytes, 1, "Q1: the vault is not of its size");
  lake->host.bytes += sizeof(copy);
  a->copy_capacity = 1;
  a->copies = &copy;
  assert_broken("E3: an arena that is awake has copies");
  a->copies = NULL;
  a->copy_capacity = 0;
  lake->host.bytes -= sizeof(copy);
  fail_call(ON_RELEASE, 2, GMLAKE_ERROR_DRIVER, 0);
  step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_KEEP, NULL));
  assert_int_equal(a->chunks.backed_count + buffer->arena->chunks.backed_count, 1);
  while_it_sleeps(a, buffer);
  step(gmlake_pool_wake(lake, pool));
  a->chunks.items[0].is_asleep = 1;
  a->chunks.items[0].handle = 0;
  assert_broken("E2: a chunk of an awake arena is asleep");
  (void)gmlake_destroy(lake);
  gmlake_mock_destroy(mock);
}

/* While no stream is known none can be named, not by a place whose tag is not read yet either. */
static void places(void **state) {
  gmlake_buffer *buffer;
  gmlk_place *place;
  (void)state;
  open_faulty(8, 0);
  buffer = open_buffer(2);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, NONE));
  step(gmlake_buffer_resize(lake, buffer, C, NONE));
  place = buffer->places;
  assert_true(lake->streams.count <= GMLK_FIRST_STREAM);
  breaks(uint16_t, place[0].stream, GMLK_FIRST_STREAM, "B2: a place's tag names no stream");
  breaks(uint16_t, place[1].stream, GMLK_FIRST_STREAM, "B2: a place's tag names no stream");
  breaks(uint32_t, place[0].slot, buffer->arena->slot_count, "B3: a place maps no chunk");
  breaks(uint8_t, place[1].state, GMLK_PLACE_COMMITTED + 1, "B2: a place is in a state");
  breaks(uint8_t, place[0].mark, 1, "B2: a place is in a state");
  breaks(uint64_t, place[1].address, place[1].address + C, "B5: a place is not where");
  abandon();
}

/* What gmlake.h numbers in brackets and gmlake_check tells is told above. */
static int is_of_the_books(const char *name) {
  if (!strncmp(name, "S3", 2)) return 0; /* which calls are made, and when */
  if (!strncmp(name, "N3", 2)) return 0; /* what streams still do */
  return strchr("ABEHILNQRSTUVW", name[0]) != NULL;
}

/* What other processes know: a block, live and freed. */
static void shared_memory(void **state) {
  gmlake_handle handle;
  gmlk_block *b;
  gmlk_chunk *chunk;
  size_t count = 0;
  void *block, *rest;
  (void)state;
  open_faulty(8, 0);
  block = take_flags(C, GMLAKE_EXCLUSIVE);
  rest = take(C);
  step(gmlake_export(lake, block, GMLAKE_HANDLE_POSIX_FD, &handle, 1, &count));
  assert_int_equal(close(handle.fd), 0);
  b = gmlk_index_get(&lake->index, (uint64_t)(uintptr_t)block);
  chunk = &lake->home.chunks.items[gmlk_slot_of(&lake->home, b->at)];
  breaks(uint8_t, chunk->is_shared, 0, "P5: the count of shared chunks is wrong");
  breaks(size_t, lake->home.chunks.shared_count, 2, "P5: the count of shared chunks is wrong");
  breaks(size_t, lake->return_count, 1, "N5: the count of blocks to return is wrong");
  gmlake_mock_stream_hold(mock, A);
  drop_on(block, A);
  breaks(size_t, lake->return_count, 0, "N5: the count of blocks to return is wrong");
  breaks(int, b->as.live.note->is_shared, 0, "N5: the count of blocks to return is wrong");
  breaks(gmlk_note *, lake->returns, lake->home.pending, "N5: a pending block is in another list");
  breaks(gmlk_note *, lake->home.pending, NULL, "N1: a list of pending blocks is wrong");
  gmlake_mock_stream_finish(mock, A);
  (void)trim_to(SIZE_MAX);
  drop_on(rest, A);
  (void)trim_to(SIZE_MAX);
  b = lake->home.head.next;
  while (b->state != GMLK_FREE) b = b->next;
  chunk = &lake->home.chunks.items[gmlk_slot_of(&lake->home, b->at)];
  lake->home.chunks.shared_count = chunk->is_shared = 1;
  assert_broken("P5: a chunk that other processes know is free");
  lake->home.chunks.shared_count = chunk->is_shared = 0;
  abandon();
}

/* A pool that is lent, with a borrower. */
static void loans(void **state) {
  gmlake_alloc_desc wanted = request(C, GMLAKE_TRANSIENT, NULL);
  gmlake_pool *pool;
  void *block;
  (void)state;
  open_faulty(8, 0);
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, A, pool));
  drop_on(take_on(2 * C, A), A);
  step(gmlake_capture_end(lake, A));
  step(gmlake_pool_lend(lake, pool, A));
  block = take_with(&wanted, A);
  breaks(size_t, lake->loan_count, 0, "F5: a capture's number is lost");
  breaks(size_t, pool->loan.count, 9, "G1: more streams borrow than there is room for");
  breaks(unsigned, pool->loan.number, GMLK_FIRST_STREAM, "G1: a loan's number is none");
  breaks(unsigned, pool->loan.number, 0, "A9: a block was asked for in no such way");
  breaks(size_t, pool->capture_count, 1, "G1: what is lent has a capture");
  drop_on(block, A);
  step(gmlake_pool_recall(lake, pool, A));
  abandon();
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
      if (!is_told[(unsigned char)at[0]][at[1] - '0'] && is_of_the_books(at))
        fail_msg("[%.2s] is told nowhere", at);
    }
  }
  (void)fclose(header);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_is_told),
      cmocka_unit_test(sizes_of_tables),
      cmocka_unit_test(the_lake_between_calls),
      cmocka_unit_test(the_shape_of_an_arena),
      cmocka_unit_test(tables_of_streams_to_come),
      cmocka_unit_test(the_largest_table_of_pools),
      cmocka_unit_test(dead_pools),
      cmocka_unit_test(dead_pools_that_never_lived),
      cmocka_unit_test(dead_pools_with_windows),
      cmocka_unit_test(numbers),
      cmocka_unit_test(events),
      cmocka_unit_test(fences),
      cmocka_unit_test(waits_on_the_device),
      cmocka_unit_test(epochs_and_tags),
      cmocka_unit_test(events_are_had_once),
      cmocka_unit_test(uses_of_blocks),
      cmocka_unit_test(queues_of_uses),
      cmocka_unit_test(pending_blocks),
      cmocka_unit_test(live_blocks),
      cmocka_unit_test(peaks_and_pieces),
      cmocka_unit_test(the_index),
      cmocka_unit_test(a_full_row),
      cmocka_unit_test(crumbs),
      cmocka_unit_test(sorted_pools),
      cmocka_unit_test(gaps),
      cmocka_unit_test(seconds),
      cmocka_unit_test(neighbours),
      cmocka_unit_test(free_addresses),
      cmocka_unit_test(a_limit),
      cmocka_unit_test(windows),
      cmocka_unit_test(idle_windows),
      cmocka_unit_test(mappings_of_each_chunk),
      cmocka_unit_test(a_chunk_twice_in_a_window),
      cmocka_unit_test(what_stays_with_the_driver_may_exceed_the_limit),
      cmocka_unit_test(windows_that_stay),
      cmocka_unit_test(ends),
      cmocka_unit_test(sleepers),
      cmocka_unit_test(places),
      cmocka_unit_test(shared_memory),
      cmocka_unit_test(loans),
      cmocka_unit_test(each_invariant_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
