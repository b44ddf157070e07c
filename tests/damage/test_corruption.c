/* Damage: every number of every record of a lake is given wrong but plausible values, in lakes in
   which all that can be is, each in a child of its own. gmlake_check has to report it, and to
   return. What it need not report is listed with the reason, and it is shown that the program ends
   well with it. Links and the sizes of tables are believed and not damaged here; what two records
   say of one another is broken in test_invariants.c. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"
#include "patience.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Worlds: lakes in which all that can be is ----------------------------------------------- */

#define WORLDS 2
#define KEPT_MAX 128
#define POOLS_MAX 4
#define BUFFERS_MAX 8
#define STREAMS_MAX 8

typedef struct world {
  gmlake *lake;
  gmlake_backend *mock;
  size_t host_bytes; /* of it alone */
  void *kept[KEPT_MAX];
  size_t kept_count;
  gmlake_pool *pools[POOLS_MAX];
  size_t pool_count;
  gmlake_buffer *buffers[BUFFERS_MAX];
  size_t buffer_count;
  gmlake_stream streams[STREAMS_MAX];
  size_t stream_count;
  gmlake_stream captured; /* NULL: none is */
} world;

static world worlds[WORLDS];
static world *now; /* the one that is being built, or used */

static void *keep(void *ptr) {
  assert_true(now->kept_count < KEPT_MAX);
  return now->kept[now->kept_count++] = ptr;
}

static void *keep_labelled(size_t bytes, unsigned flags, const char *label) {
  gmlake_alloc_desc wanted = request(bytes, flags, NULL);
  wanted.label = label;
  wanted.user_data = 7;
  return keep(take_with(&wanted, LEGACY));
}

static gmlake_pool *add_pool(size_t limit_bytes) {
  return now->pools[now->pool_count++] = open_pool(limit_bytes);
}

/* Of chunks that blocks may take, or of twice as large ones. */
static gmlake_buffer *make_buffer(size_t chunks, size_t chunk_bytes) {
  gmlake_buffer_desc with = buffer_desc(chunks * C);
  gmlake_buffer *buffer = NULL;
  with.label = "a buffer";
  with.chunk_bytes = chunk_bytes;
  step(gmlake_buffer_create(lake, &with, &buffer));
  return buffer;
}

static gmlake_buffer *add_buffer(size_t chunks, size_t chunk_bytes) {
  return now->buffers[now->buffer_count++] = make_buffer(chunks, chunk_bytes);
}

static gmlake_stream add_stream(void) { return now->streams[now->stream_count++] = open_stream(); }

/* Gives so many bytes back to the driver. */
static gmlake_result return_bytes(size_t bytes) {
  gmlake_result result = gmlake_trim(lake, lake->stats.reserved_bytes - bytes, NULL);
  assert_ok(gmlake_check(lake));
  return result;
}

/* Live, idle and quarantined windows, some of a size; one remembers what is in its way. */
static void add_windows(void **b) {
  void *second, *third, *fourth;
  drop(b[1]);
  drop(b[3]);
  keep(take(2 * C));
  drop(b[5]);
  drop(b[7]);
  second = take(2 * C);
  drop(b[9]);
  drop(b[11]);
  third = take(2 * C);
  drop(second);
  drop(third);
  fourth = take(4 * C);
  drop(fourth);
  keep(take(2 * C));
  keep(take(4 * C)); /* not the window, whose pieces are in use: memory is created */
  drop(b[13]);
  drop(b[15]);
  drop(take(2 * C));
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(return_bytes(C), DRIVER);
}

/* Slots without memory between others, and slots that are given up. */
static void add_gaps(void **b) {
  void *ptr = NULL;
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 1);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_alloc(lake, 8 * C, LEGACY, &ptr), DRIVER);
  memset(faults, 0, sizeof(faults));
  drop(b[21]);
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(return_bytes(C), DRIVER);
  drop(b[17]);
  drop(b[19]);
  assert_ok(return_bytes(2 * C));
}

static void forget(gmlake_stream stream) {
  step(gmlake_forget_stream(lake, stream));
  gmlake_mock_stream_destroy(mock, stream);
}

/* Numbers of streams that are forgotten and serve again, and one of a stream that is at work. */
static void add_forgotten(void) {
  gmlake_stream stream;
  void *ptr;
  int i;
  for (i = 0; i < 16; i++) {
    stream = open_stream();
    drop_on(take_on(512, stream), stream);
    forget(stream);
  }
  stream = open_stream();
  ptr = take_on(1024, stream);
  gmlake_mock_stream_hold(mock, stream);
  step(gmlake_record_stream(lake, keep(take(512)), stream));
  drop_on(ptr, stream);
  forget(stream);
}

/* Pools: with a limit, with memory that a graph knows, and two that could not give all back. */
static void add_pools(gmlake_stream captured) {
  gmlake_pool *pool = add_pool(16 * C), *graph = add_pool(0), *dead;
  void *first, *third, *ptr;
  keep(take_from(pool, 3 * C, LEGACY));
  drop(take_from(pool, C / 2, LEGACY));
  step(gmlake_capture_begin(lake, captured, graph));
  first = take_on(C, captured);
  keep(take_on(C, captured));
  third = take_on(C, captured);
  keep(take_on(C, captured));
  drop_on(first, captured);
  drop_on(third, captured);
  ptr = take_on(2 * C, captured);
  drop_on(ptr, captured);
  step(gmlake_capture_end(lake, captured));
  dead = open_pool(0);
  drop(take_from(dead, 2 * C, LEGACY));
  fail_call(ON_UNRESERVE, 1, GMLAKE_ERROR_DRIVER, 0);
  step(gmlake_pool_destroy(lake, dead));
  dead = open_pool(0);
  drop(take_from(dead, 2 * C, LEGACY));
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 0);
  step(gmlake_pool_destroy(lake, dead));
  gmlk_lock_driver(lake);
  gmlk_lock_state(lake);
  assert_ok(gmlk_wait_for_others(lake)); /* what was freed so far is complete, and known to be */
  gmlk_unlock_state(lake);
  gmlk_unlock_driver(lake);
}

/* Buffers: in use, destroyed with work pending; and a place that could not be mapped. */
static void add_buffers(gmlake_stream held) {
  gmlake_buffer *buffer = add_buffer(12, 2 * C);
  step(gmlake_buffer_resize(lake, buffer, 8 * C, LEGACY));
  step(gmlake_buffer_resize(lake, buffer, 4 * C - 100, LEGACY));
  step(gmlake_buffer_commit(lake, buffer, 8 * C, 4 * C, LEGACY));
  step(gmlake_buffer_discard(lake, buffer, 0, 2 * C, LEGACY));
  step(gmlake_buffer_resize(lake, add_buffer(12, 2 * C), 2 * C, held));
  buffer = add_buffer(6, 2 * C);
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_buffer_resize(lake, buffer, C, LEGACY), DRIVER);
  buffer = make_buffer(6, 2 * C);
  step(gmlake_buffer_resize(lake, buffer, 4 * C, held));
  step(gmlake_buffer_destroy(lake, buffer, held));
}

/* Blocks and a window that wait for a stream, and free memory that one still uses. */
static void add_pending(gmlake_stream first, gmlake_stream held) {
  void *run[10], *ptr;
  size_t i;
  gmlake_mock_stream_hold(mock, first);
  gmlake_mock_stream_hold(mock, held);
  step(
      gmlake_mark_stream(lake, first, GMLAKE_STREAM_COMMUNICATION)); /* so that it waits for none */
  ptr = take_on(2 * C, first);
  step(gmlake_record_stream(lake, ptr, held));
  drop_on(ptr, first);
  for (i = 0; i < 3; i++) {
    ptr = take_on(C / 4, first);
    step(gmlake_record_stream(lake, ptr, held));
    step(gmlake_record_stream(lake, ptr, LEGACY));
    drop_on(ptr, first);
  }
  for (i = 0; i < 4; i++) drop_on(take_on(C, first), first);
  keep(take_on(C / 8, first));
  for (i = 0; i < 10; i++) run[i] = take_on(C / 16, first);
  for (i = 0; i < 10; i++) {
    if (i == 5 || i == 9)
      keep(run[i]); /* so that there are two runs, of three blocks of the stream's and of two */
    else
      drop_on(run[i], i % 2 ? NONE : first);
  }
}

/* What every call of the driver's would tidy up comes last. */
static void add_last(gmlake_stream first, gmlake_stream captured, void **b) {
  gmlake_pool *pool = add_pool(0);
  gmlake_stream second = add_stream();
  void *ptr, *small[4];
  size_t i;
  drop_on(b[0], NONE);
  drop_on(b[2], NONE);
  assert_ok(return_bytes(4 * C));
  step(gmlake_capture_begin(lake, captured, pool));
  now->captured = captured;
  ptr = take_on(C / 2, captured);
  keep(take_on(C / 2, captured));
  drop_on(ptr, captured);
  for (i = 0; i < 4; i++) small[i] = take_on(512 * (1 + i / 2), i % 3 ? first : LEGACY);
  for (i = 0; i < 4; i++) drop_on(small[i], i % 3 ? first : LEGACY);
  for (i = 0; i < 2; i++) {
    gmlake_stream gone = open_stream();
    gmlake_mock_stream_hold(mock, gone);
    drop_on(take_on(512, gone), gone);
    forget(gone);
  }
  step(gmlake_capture_begin(lake, second, pool)); /* whose number is left over */
  step(gmlake_capture_end(lake, second));
}

static void settle(world *w) {
  w->lake = lake;
  w->mock = mock;
  w->host_bytes = host_bytes;
  memset(faults, 0, sizeof(faults));
}

static int peers[2] = {1, 2};

/* Without locks, so that all host memory is accounted for. */
static void build_rich(world *w) {
  void *b[24];
  gmlake_stream first, held, captured;
  size_t i;
  now = w;
  prepare(256);
  desc.flags = GMLAKE_SINGLE_THREADED | GMLAKE_GUARD;
  desc.cross_stream = GMLAKE_WAIT_FIRST;
  desc.limit_bytes = 200 * C;
  desc.peer_devices = peers;
  desc.peer_count = 2;
  use_faults();
  open_lake();
  lay(b, 24);
  for (i = 0; i < 24; i++)
    if ((i > 2 && i % 2 == 0) || i == 23) keep(b[i]);
  first = add_stream();
  held = add_stream();
  captured = add_stream();
  keep_labelled(C / 2, 0, "one");
  keep_labelled(2 * C, GMLAKE_EXCLUSIVE | GMLAKE_NO_STITCH, "two");
  step(gmlake_record_stream(lake, keep(take(3000)), held));
  add_windows(b);
  add_gaps(b);
  add_forgotten();
  add_pools(captured);
  add_buffers(first);
  add_pending(first, held);
  add_last(first, captured, b);
  settle(w);
}

static void choose_nothing(void *user, const gmlake_view *view, const gmlake_request *asked,
                           gmlake_plan *plan) {
  (void)user;
  (void)view;
  (void)asked;
  (void)plan;
}

static int joins_large(void *user, const gmlake_piece *block) {
  (void)user;
  return block->bytes >= C;
}

static void log_nothing(void *user, int level, const gmlake_error_info *info) {
  (void)user;
  (void)level;
  (void)info;
}

static gmlake_policy policy = {sizeof(gmlake_policy), NULL, choose_nothing, NULL, joins_large};

static void watch_nothing(void *user, const gmlake_step *event) {
  (void)user;
  (void)event;
}

/* With locks, a logger, an observer and a policy that keeps blocks apart. */
static void build_asked(world *w) {
  void *b[6], *small[4];
  size_t i;
  now = w;
  prepare(64);
  desc.policy = &policy;
  desc.logger.fn = log_nothing;
  desc.observer.fn = watch_nothing;
  open_lake();
  for (i = 0; i < 6; i++) b[i] = take(C);
  for (i = 0; i < 4; i++) small[i] = take(C / 4);
  for (i = 1; i < 6; i += 2) drop(b[i]);
  drop(take(2 * C));
  keep(take(2 * C));
  keep(b[0]);
  keep(b[4]);
  drop(b[2]);
  drop(take(2 * C));
  drop(small[1]);
  drop(small[2]);
  keep(small[0]);
  keep(small[3]);
  keep_labelled(1000, 0, "three");
  step(gmlake_buffer_resize(lake, add_buffer(4, C), C, LEGACY));
  settle(w);
}

/* ---- What follows damage that is not reported ------------------------------------------------ */

static int is_strict; /* every call has to succeed, and the lake to stay well */
static int may_leave_notes;

/* Ends a child that found something wrong. */
static void give_up(const char *what) {
  printf("  afterwards, %s\n", what);
  fflush(stdout);
  _exit(1);
}

static void went(const char *call, gmlake_result result) {
  char text[512];
  if (!result || !is_strict) return;
  (void)snprintf(text, sizeof(text), "%s: %s (%s)", call, gmlake_result_name(result),
                 now->lake->error.text);
  give_up(text);
}

#define DO(call) went(#call, call)

static void stay_well(void) {
  went("gmlake_check", is_strict ? gmlake_check(now->lake) : GMLAKE_OK);
}

static void use_some(gmlake *l, gmlake_stream stream) {
  const size_t sizes[] = {512, 1024, 5000, C, 2 * C, 3 * C, 512};
  void *got[7];
  size_t i;
  for (i = 0; i < 7; i++) {
    got[i] = NULL;
    DO(gmlake_alloc(l, sizes[i], stream, &got[i]));
  }
  for (i = 0; i < 7; i += 2) DO(gmlake_free(l, got[i], stream));
  DO(gmlake_alloc(l, 2 * C, stream, &got[0]));
  DO(gmlake_record_stream(l, got[0], LEGACY));
  DO(gmlake_free(l, got[0], stream));
  stay_well();
  for (i = 1; i < 7; i += 2) DO(gmlake_free(l, got[i], stream));
  stay_well();
}

static void use_up_buffers(gmlake *l) {
  size_t i;
  for (i = 0; i < now->buffer_count; i++) {
    DO(gmlake_buffer_resize(l, now->buffers[i], 3 * C, LEGACY));
    DO(gmlake_buffer_resize(l, now->buffers[i], C, LEGACY));
    DO(gmlake_buffer_destroy(l, now->buffers[i], LEGACY));
    stay_well();
  }
}

/* Uses all parts of the lake, then ends it; returns whether nothing is left. */
static void use_up(void) {
  gmlake *l = now->lake;
  gmlake_mock_census left;
  gmlake_budget budget;
  gmlake_stats figures;
  size_t i;
  figures.struct_bytes = 0;
  for (i = 0; i < now->stream_count; i++) gmlake_mock_stream_finish(now->mock, now->streams[i]);
  if (now->captured) DO(gmlake_capture_end(l, now->captured));
  use_some(l, LEGACY);
  for (i = 0; i < now->stream_count; i++) use_some(l, now->streams[i]);
  DO(gmlake_get_budget(l, &budget));
  use_up_buffers(l);
  for (i = 0; i < now->kept_count; i++) DO(gmlake_free(l, now->kept[i], LEGACY));
  stay_well();
  for (i = 0; i < now->pool_count; i++) DO(gmlake_pool_destroy(l, now->pools[i]));
  stay_well();
  DO(gmlake_reset_peaks(l));
  DO(gmlake_get_stats(l, &figures));
  for (i = 0; i < now->stream_count; i++) DO(gmlake_forget_stream(l, now->streams[i]));
  DO(gmlake_trim(l, 0, NULL));
  stay_well();
  went("gmlake_destroy", gmlake_destroy(l));
  gmlake_mock_get_census(now->mock, &left);
  if (is_strict && (left.handle_count || left.mapping_count || left.reservation_count ||
                    left.physical_bytes || left.event_count))
    give_up("the driver has something left");
  if (host_bytes && !may_leave_notes) give_up("host memory is left");
}

/* ---- Fields ---------------------------------------------------------------------------------- */

typedef struct field {
  const char *name;
  size_t offset, bytes, stride, count; /* of an array: of an element, and how many */
} field;

#define SIZE(type, member) sizeof(((type *)0)->member)
#define ONE(type, member) \
  { #member, offsetof(type, member), SIZE(type, member), 0, 1 }
#define MANY(type, member)                                                              \
  {                                                                                     \
#member "[]", offsetof(type, member), SIZE(type, member[0]), SIZE(type, member[0]), \
        SIZE(type, member) / SIZE(type, member[0])                                      \
  }
#define T gmlk_block
static const field block_fields[] = {ONE(T, u.epoch), ONE(T, at),    ONE(T, grains),
                                     ONE(T, hole),    ONE(T, slack), ONE(T, arena),
                                     ONE(T, stream),  ONE(T, state), ONE(T, flags)};
#undef T
#define T gmlk_records
static const field records_fields[] = {ONE(T, unused_count), ONE(T, page_count), ONE(T, serial)};
#undef T
#define T gmlk_bins
static const field holes_fields[] = {ONE(T, words),     MANY(T, bits),      ONE(T, grains),
                                     ONE(T, none_from), ONE(T, none_count), ONE(T, count)};
#undef T
#define T gmlk_row
static const field row_fields[] = {MANY(T, address)};
#undef T
#define T gmlk_index
static const field index_fields[] = {ONE(T, count), ONE(T, shift)};
#undef T
#define T gmlk_fence
static const field fence_fields[] = {ONE(T, epoch), ONE(T, at_ns)};
#undef T
#define T gmlk_stream
static const field stream_fields[] = {
    ONE(T, id),         ONE(T, uses),         ONE(T, born),       ONE(T, epoch),
    ONE(T, done),       ONE(T, freed_bytes),  ONE(T, fence_head), ONE(T, fence_count),
    ONE(T, wait_count), ONE(T, capture),      ONE(T, arena),      ONE(T, is_capture),
    ONE(T, is_used),    ONE(T, is_forgotten), ONE(T, is_dirty),   ONE(T, is_news),
    ONE(T, kind),       ONE(T, stays),        ONE(T, lag_ns)};
#undef T
#define T gmlk_streams
static const field streams_fields[] = {
    ONE(T, count),      ONE(T, capture_count), ONE(T, live_count),
    ONE(T, used_count), ONE(T, is_timed),      ONE(T, lost_count),
    ONE(T, has_none),   ONE(T, last),          ONE(T, event_count)};
#undef T
#define T gmlk_chunk
static const field chunk_fields[] = {ONE(T, handle),   ONE(T, map_count),      ONE(T, page_count),
                                     ONE(T, is_home),  ONE(T, is_quarantined), ONE(T, is_marked),
                                     ONE(T, is_asleep)};
#undef T
#define T gmlk_piece
static const field span_fields[] = {ONE(T, at), ONE(T, grains)};
#undef T
#define T gmlk_windows
static const field spool_fields[] = {ONE(T, count), ONE(T, number), ONE(T, grains_min),
                                     ONE(T, bytes)};
#undef T
#define T gmlk_area
static const field area_fields[] = {ONE(T, count), ONE(T, limit),     ONE(T, most),
                                    ONE(T, unit),  ONE(T, is_scarce), ONE(T, is_full)};
#undef T
#define T gmlk_extent
static const field extent_fields[] = {ONE(T, base), ONE(T, first), ONE(T, end)};
#undef T
#define T gmlk_chunks
static const field chunks_fields[] = {ONE(T, backed_count), ONE(T, quarantined_count),
                                      ONE(T, quarantined_end), ONE(T, asleep_count)};
#undef T
#define T gmlk_arena
static const field arena_fields[] = {
    ONE(T, chunk_bytes), ONE(T, limit_bytes), ONE(T, checksum),      ONE(T, chunk_log),
    ONE(T, number),      ONE(T, slot_count),  ONE(T, free_grains),   ONE(T, live_count),
    ONE(T, keeps_apart), ONE(T, is_bare),     ONE(T, void_count),    ONE(T, sleep),
    ONE(T, sleep_count), ONE(T, copy_count),  ONE(T, copy_capacity), ONE(T, host_copy_bytes),
    ONE(T, small_most)};
#undef T
#define T gmlk_window
static const field window_fields[] = {ONE(T, address), ONE(T, piece_count), ONE(T, chunk_count),
                                      ONE(T, number), ONE(T, key)};
#undef T
#define T gmlk_used
static const field used_fields[] = {ONE(T, stream), ONE(T, epoch)};
#undef T
#define T gmlk_extra
static const field note_fields[] = {ONE(T, used_count), ONE(T, stream), ONE(T, epoch)};
#undef T
#define T gmlake_pool
static const field pool_fields[] = {ONE(T, capture_count), ONE(T, late_uses)};
#undef T
#define T gmlk_page
static const field place_fields[] = {ONE(T, address), ONE(T, epoch), ONE(T, slot), ONE(T, checksum),
                                     ONE(T, stream),  ONE(T, state), ONE(T, mark)};
#undef T
#define T gmlake_buffer
static const field buffer_fields[] = {ONE(T, count), ONE(T, bytes), ONE(T, max_bytes),
                                      ONE(T, is_busy)};
#undef T
#define T gmlk_host
static const field host_fields[] = {ONE(T, bytes), ONE(T, bytes_peak)};
#undef T
#define T gmlake_desc
static const field desc_fields[] = {ONE(T, device),           ONE(T, cross_stream),
                                    ONE(T, stitch_bytes_min), ONE(T, stitched_bytes_max),
                                    ONE(T, limit_bytes),      ONE(T, driver_free_bytes_min)};
#undef T
#define T gmlake_stats
static const field stats_fields[] = {
    ONE(T, requested_bytes),    ONE(T, requested_bytes_peak), ONE(T, active_bytes),
    ONE(T, active_bytes_peak),  ONE(T, reserved_bytes),       ONE(T, reserved_bytes_peak),
    ONE(T, stitched_bytes),     ONE(T, stitched_bytes_peak),  ONE(T, pending_bytes),
    ONE(T, pending_bytes_peak), ONE(T, allocation_count),     ONE(T, free_count),
    ONE(T, chunk_count),        ONE(T, quarantined_bytes),    ONE(T, live_count),
    ONE(T, window_count),       ONE(T, buffer_count),         ONE(T, buffer_bytes),
    ONE(T, buffer_bytes_peak),  ONE(T, sleeping_bytes)};
#undef T
#define T gmlake
static const field lake_fields[] = {ONE(T, checksum), ONE(T, is_restricted), ONE(T, lost),
                                    ONE(T, arena_count), ONE(T, message_count)};
#undef T

/* ---- Records, by what they are used for ------------------------------------------------------ */

/* name, what it is called, its fields, its type */
#define SHAPES(X)                                               \
  X(CLEAN, "clean block", block, gmlk_block)                    \
  X(TAGGED, "tagged block", block, gmlk_block)                  \
  X(SECOND, "second block of a run", block, gmlk_block)         \
  X(IN_RUN, "tagged block in a run", block, gmlk_block)         \
  X(PINNED, "pinned block", block, gmlk_block)                  \
  X(LIVE, "live block", block, gmlk_block)                      \
  X(PIECE, "piece", block, gmlk_block)                          \
  X(PENDING, "pending block", block, gmlk_block)                \
  X(UNBACKED, "gap", block, gmlk_block)                         \
  X(COMMITTED, "committed chunk", block, gmlk_block)            \
  X(UNUSED, "unused record", block, gmlk_block)                 \
  X(EDGE, "edge", block, gmlk_block)                            \
  X(VA_FREE, "free address space", block, gmlk_block)           \
  X(VA_USED, "address space in use", block, gmlk_block)         \
  X(VA_LOST, "address space in quarantine", block, gmlk_block)  \
  X(LIVE_SELF, "live window's block", block, gmlk_block)        \
  X(PENDING_SELF, "pending window's block", block, gmlk_block)  \
  X(IDLE_SELF, "idle window's block", block, gmlk_block)        \
  X(LOST_SELF, "quarantined window's block", block, gmlk_block) \
  X(RECORDS, "gmlk_records", records, gmlk_records)             \
  X(POOL_HOLES, "gmlk_bins", holes, gmlk_bins)                  \
  X(INDEX, "gmlk_index", index, gmlk_index)                     \
  X(ROW, "gmlk_row", row, gmlk_row)                             \
  X(FENCE, "fence", fence, gmlk_fence)                          \
  X(OLD_FENCE, "fence not in use", fence, gmlk_fence)           \
  X(STREAM_USED, "stream", stream, gmlk_stream)                 \
  X(STREAM_CAPTURED, "captured stream", stream, gmlk_stream)    \
  X(STREAM_FORGOTTEN, "forgotten stream", stream, gmlk_stream)  \
  X(STREAM_CAPTURE, "capture", stream, gmlk_stream)             \
  X(STREAM_UNUSED, "number not in use", stream, gmlk_stream)    \
  X(ALL_STREAMS, "gmlk_streams", streams, gmlk_streams)         \
  X(CHUNK, "chunk", chunk, gmlk_chunk)                          \
  X(SLOT, "slot without memory", chunk, gmlk_chunk)             \
  X(STUCK, "quarantined slot", chunk, gmlk_chunk)               \
  X(SLOT_BEHIND, "slot behind the end", chunk, gmlk_chunk)      \
  X(CHUNKS, "an arena's chunks", chunks, gmlk_chunks)           \
  X(LIVE_SPAN, "live window's span", span, gmlk_piece)          \
  X(IDLE_SPAN, "idle window's span", span, gmlk_piece)          \
  X(LOST_SPAN, "quarantined window's span", span, gmlk_piece)   \
  X(SPOOL, "gmlk_windows", spool, gmlk_windows)                 \
  X(AREA, "gmlk_area", area, gmlk_area)                         \
  X(EXTENT, "gmlk_extent", extent, gmlk_extent)                 \
  X(HOME, "gmlk_arena", arena, gmlk_arena)                      \
  X(LIVE_WINDOW, "live window", window, gmlk_window)            \
  X(IDLE_WINDOW, "idle window", window, gmlk_window)            \
  X(LOST_WINDOW, "quarantined window", window, gmlk_window)     \
  X(LIVE_USED, "live block's use", used, gmlk_used)             \
  X(PENDING_USED, "pending block's use", used, gmlk_used)       \
  X(LIVE_NOTE, "live block's note", note, gmlk_extra)           \
  X(PENDING_NOTE, "pending block's note", note, gmlk_extra)     \
  X(LIVE_POOL, "pool", pool, gmlake_pool)                       \
  X(DEAD_POOL, "dead pool", pool, gmlake_pool)                  \
  X(COMMITTED_PLACE, "committed place", place, gmlk_page)       \
  X(KEPT_PLACE, "place still mapped", place, gmlk_page)         \
  X(EMPTY_PLACE, "empty place", place, gmlk_page)               \
  X(LIVE_BUFFER, "buffer", buffer, gmlake_buffer)               \
  X(VOID_BUFFER, "destroyed buffer", buffer, gmlake_buffer)     \
  X(HOST, "gmlk_host", host, gmlk_host)                         \
  X(DESC, "desc", desc, gmlake_desc)                            \
  X(STATS, "stats", stats, gmlake_stats)                        \
  X(LAKE, "gmlake", lake, gmlake)

#define SHAPE_NAME(name, called, fields, type) SHAPE_##name,
typedef enum shape { SHAPES(SHAPE_NAME) SHAPE_COUNT } shape;

static const struct shape_row {
  const char *called;
  const field *fields;
  size_t field_count;
} shapes[] = {
#define SHAPE_ROW(name, called, fields, type) \
  {called, fields##_fields, sizeof(fields##_fields) / sizeof(field)},
    SHAPES(SHAPE_ROW)};

#define INSTANCES_MAX 8

static void *instances[WORLDS][SHAPE_COUNT][INSTANCES_MAX];
static size_t instance_counts[WORLDS][SHAPE_COUNT];
static size_t at_world;

/* One more record of a shape: the first four are taken, and the last four. */
static void found(shape which, const void *record) {
  static size_t rounds;
  size_t *count = &instance_counts[at_world][which], at = *count;
  if (at == INSTANCES_MAX)
    at = 4 + rounds++ % 4;
  else
    ++*count;
  instances[at_world][which][at] = (void *)(uintptr_t)record;
}

static shape shape_of_tile(const gmlk_block *b) {
  switch (b->state) {
  case GMLK_FREE:
    if (b->stream == GMLK_CLEAN) return SHAPE_CLEAN;
    if (b->stream == GMLK_GRAPH_OWNED) return SHAPE_PINNED;
    if (b->hole) return SHAPE_TAGGED;
    return gmlk_before_clean(b)->hole ? SHAPE_SECOND : SHAPE_IN_RUN;
  case GMLK_LIVE:
    return SHAPE_LIVE;
  case GMLK_PIECE:
    return SHAPE_PIECE;
  case GMLK_PENDING:
    return SHAPE_PENDING;
  case GMLK_UNBACKED:
    return SHAPE_UNBACKED;
  default:
    assert_int_equal(b->state, GMLK_COMMITTED);
    return SHAPE_COMMITTED;
  }
}

static void find_note(const gmlk_extra *note, int is_pending) {
  size_t i;
  if (!note) return;
  found(is_pending ? SHAPE_PENDING_NOTE : SHAPE_LIVE_NOTE, note);
  for (i = 0; i < note->used_count; i++)
    found(is_pending ? SHAPE_PENDING_USED : SHAPE_LIVE_USED, &note->used[i]);
}

static void find_window(const gmlk_window *w, shape which, shape self, shape span) {
  found(which, w);
  found(self, &w->self);
  found(span, &w->pieces[0]);
  found(span, &w->pieces[w->piece_count - 1]);
}

static void find_windows(const gmlk_arena *a) {
  const gmlk_block *b;
  const gmlk_window *w;
  for (b = a->head.next; b != &a->tail; b = b->next) {
    w = b->as.live.window;
    if (b->state != GMLK_PIECE || w->pieces[0].block != b) continue;
    find_window(w, SHAPE_LIVE_WINDOW,
                w->self.state == GMLK_LIVE ? SHAPE_LIVE_SELF : SHAPE_PENDING_SELF, SHAPE_LIVE_SPAN);
    find_note(w->self.as.live.extra, w->self.state == GMLK_PENDING);
  }
  for (w = a->windows.idle_first; w; w = w->idle_next)
    find_window(w, SHAPE_IDLE_WINDOW, SHAPE_IDLE_SELF, SHAPE_IDLE_SPAN);
  for (w = a->windows.quarantine; w; w = w->next)
    find_window(w, SHAPE_LOST_WINDOW, SHAPE_LOST_SELF, SHAPE_LOST_SPAN);
}

static void find_holes(const gmlk_bins *holes) { found(SHAPE_POOL_HOLES, holes); }

static void find_chunks(const gmlk_arena *a) {
  size_t slot;
  found(SHAPE_CHUNKS, &a->chunks);
  for (slot = 0; slot < a->chunks.capacity; slot++) {
    const gmlk_chunk *chunk = &a->chunks.items[slot];
    found(chunk->is_quarantined   ? SHAPE_STUCK
          : slot >= a->slot_count ? SHAPE_SLOT_BEHIND
          : chunk->handle         ? SHAPE_CHUNK
                                  : SHAPE_SLOT,
          chunk);
  }
}

static void find_buffers(const gmlk_arena *a) {
  const gmlake_buffer *b;
  uint32_t i;
  for (b = a->buffers; b; b = b->next) {
    found(b->lake ? SHAPE_LIVE_BUFFER : SHAPE_VOID_BUFFER, b);
    for (i = 0; i < b->page_count; i++)
      found(b->pages[i].state == GMLK_PAGE_COMMITTED ? SHAPE_COMMITTED_PLACE
            : b->pages[i].state                      ? SHAPE_KEPT_PLACE
                                                     : SHAPE_EMPTY_PLACE,
            &b->pages[i]);
  }
}

static void find_tables(const gmlk_arena *a) {
  size_t i;
  for (i = 0; i < a->bins_capacity; i++) {
    if (a->bins[i]) find_holes(a->bins[i]);
  }
}

static void find_area(const gmlk_area *area) {
  size_t i;
  if (area->most) found(SHAPE_AREA, area);
  for (i = 0; i < area->count; i++) found(SHAPE_EXTENT, &area->extents[i]);
}

static void find_arena(const gmlk_arena *a) {
  const gmlk_block *b;
  found(SHAPE_HOME, a);
  found(SHAPE_SPOOL, &a->windows);
  find_area(&a->area);
  find_area(&a->window_space.area);
  find_area(&a->buffer_space.area);
  found(SHAPE_EDGE, &a->head);
  found(SHAPE_EDGE, &a->tail);
  for (b = a->head.next; b != &a->tail; b = b->next) {
    found(shape_of_tile(b), b);
    if (b->state == GMLK_LIVE || b->state == GMLK_PENDING)
      find_note(b->as.live.extra, b->state == GMLK_PENDING);
  }
  for (b = a->window_space.head.next; b != &a->window_space.tail; b = b->next)
    found(b->state == GMLK_FREE                            ? SHAPE_VA_FREE
          : gmlk_va_window(b)->self.state == GMLK_UNBACKED ? SHAPE_VA_LOST
                                                           : SHAPE_VA_USED,
          b);
  for (b = a->buffer_space.head.next; b != &a->buffer_space.tail; b = b->next)
    found(b->state == GMLK_FREE ? SHAPE_VA_FREE : SHAPE_VA_USED, b);
  find_windows(a);
  find_tables(a);
  find_chunks(a);
  find_buffers(a);
}

static void find_streams(const gmlk_streams *all) {
  size_t i;
  for (i = 0; i < all->capacity; i++) {
    const gmlk_stream *s = all->items[i];
    unsigned head = s ? s->fence_head : 0;
    if (!s) continue;
    found(!s->is_used       ? SHAPE_STREAM_UNUSED
          : s->is_capture   ? SHAPE_STREAM_CAPTURE
          : s->is_forgotten ? SHAPE_STREAM_FORGOTTEN
          : s->capture      ? SHAPE_STREAM_CAPTURED
                            : SHAPE_STREAM_USED,
          s);
    if (s->fence_count) {
      found(SHAPE_FENCE, &s->fences[head]);
      found(SHAPE_FENCE, &s->fences[(head + s->fence_count - 1) % GMLK_FENCES]);
    }
    found(SHAPE_OLD_FENCE, &s->fences[(head + s->fence_count) % GMLK_FENCES]);
  }
  for (i = 0; i <= all->event_count && i < all->event_capacity; i++) {
  }
}

static void find_lake(gmlake *l) {
  const gmlake_pool *dead;
  const gmlk_block *unused = l->records.unused;
  size_t i;
  for (i = 0; i < l->arena_capacity; i++) {
    if (!l->arenas[i]) continue;
    find_arena(l->arenas[i]);
    if (l->arenas[i]->pool) found(SHAPE_LIVE_POOL, l->arenas[i]->pool);
  }
  for (dead = l->released_pools; dead; dead = dead->next_released) found(SHAPE_DEAD_POOL, dead);
  for (i = 0; i < 3 && unused; i++, unused = unused->next) found(SHAPE_UNUSED, unused);
  for (i = 0; i < l->index.row_count; i++) found(SHAPE_ROW, &l->index.rows[i]);
  find_streams(&l->streams);
  found(SHAPE_RECORDS, &l->records);
  found(SHAPE_INDEX, &l->index);
  found(SHAPE_ALL_STREAMS, &l->streams);
  found(SHAPE_HOST, &l->host);
  found(SHAPE_DESC, &l->desc);
  found(SHAPE_STATS, &l->stats);
  found(SHAPE_LAKE, l);
}

/* ---- What need not be reported --------------------------------------------------------------- */

typedef enum verdict {
  REPORTED,
  HARMLESS, /* nothing depends on it: what follows goes well, to the last byte */
  LEGAL,    /* the state is as legal as the one before, only the user or the driver could tell:
               what follows ends, and leaves no host memory */
  A_CALLS   /* with locks, what is missing may be a note of a call under way: what follows ends */
} verdict;

static const struct exception {
  shape in;
  const char *field; /* a `*` at its end: all that begin so */
  verdict is;
  const char *reason;
} exceptions[] = {
    {SHAPE_CLEAN, "slack", HARMLESS, "not read while nobody owns it"},
    {SHAPE_CLEAN, "flags", LEGAL,
     "what a policy keeps apart may have no neighbour to be joined with"},
    {SHAPE_TAGGED, "slack", HARMLESS, "not read while nobody owns it"},
    {SHAPE_TAGGED, "u.epoch", LEGAL, "any epoch of the stream up to the open one is a tag"},
    {SHAPE_SECOND, "slack", HARMLESS, "not read while nobody owns it"},
    {SHAPE_SECOND, "u.epoch", LEGAL, "any epoch of the stream up to the open one is a tag"},
    {SHAPE_IN_RUN, "slack", HARMLESS, "not read while nobody owns it"},
    {SHAPE_IN_RUN, "u.epoch", LEGAL, "any epoch of the stream up to the open one is a tag"},
    {SHAPE_PINNED, "slack", HARMLESS, "not read while nobody owns it"},
    {SHAPE_LIVE, "u.epoch", HARMLESS,
     "names an ownership: at worst a window that is blocked is asked in vain, or not"},
    {SHAPE_LIVE, "stream", LEGAL, "only tells the user what he asked for"},
    {SHAPE_LIVE, "flags", LEGAL, "what the user asked for"},
    {SHAPE_PIECE, "u.epoch", HARMLESS,
     "names an ownership: at worst a window that is blocked is asked in vain, or not"},
    {SHAPE_PIECE, "flags", LEGAL, "windows that waited for it may be gone"},
    {SHAPE_PIECE, "slack", HARMLESS, "the window's own block has it"},
    {SHAPE_PIECE, "stream", HARMLESS, "overwritten when the window is freed"},
    {SHAPE_PENDING, "u.epoch", HARMLESS,
     "names an ownership: at worst a window that is blocked is asked in vain, or not"},
    {SHAPE_PENDING, "slack", HARMLESS, "not read any more"},
    {SHAPE_PENDING, "stream", HARMLESS, "its note has the tag to come"},
    {SHAPE_PENDING, "flags", HARMLESS,
     "what the user asked for, and what is done with it is decided"},
    {SHAPE_UNBACKED, "u.epoch", HARMLESS, "overwritten when there is memory"},
    {SHAPE_UNBACKED, "slack", HARMLESS, "overwritten when there is memory"},
    {SHAPE_UNBACKED, "stream", HARMLESS, "overwritten when there is memory"},
    {SHAPE_UNBACKED, "flags", HARMLESS, "overwritten when there is memory"},
    {SHAPE_COMMITTED, "u.epoch", HARMLESS, "names an ownership: no window asks for it"},
    {SHAPE_COMMITTED, "slack", HARMLESS, "not read of a chunk"},
    {SHAPE_COMMITTED, "stream", HARMLESS, "overwritten when it is given up"},
    {SHAPE_UNUSED, "u.epoch", HARMLESS, "overwritten when it is taken"},
    {SHAPE_UNUSED, "at", HARMLESS, "overwritten when it is taken"},
    {SHAPE_UNUSED, "grains", HARMLESS, "overwritten when it is taken"},
    {SHAPE_UNUSED, "hole", HARMLESS, "overwritten when it is taken"},
    {SHAPE_UNUSED, "slack", HARMLESS, "overwritten when it is taken"},
    {SHAPE_UNUSED, "arena", HARMLESS, "overwritten when it is taken"},
    {SHAPE_UNUSED, "stream", HARMLESS, "overwritten when it is taken"},
    {SHAPE_UNUSED, "flags", HARMLESS, "overwritten when it is taken"},
    {SHAPE_EDGE, "u.epoch", HARMLESS, "not read of an edge"},
    {SHAPE_EDGE, "grains", HARMLESS, "not read of an edge"},
    {SHAPE_EDGE, "hole", HARMLESS, "not read of an edge"},
    {SHAPE_EDGE, "slack", HARMLESS, "not read of an edge"},
    {SHAPE_EDGE, "arena", HARMLESS, "not read of an edge"},
    {SHAPE_EDGE, "stream", HARMLESS, "not read of an edge"},
    {SHAPE_EDGE, "flags", HARMLESS, "not read of an edge"},
    {SHAPE_VA_FREE, "slack", HARMLESS, "overwritten when it is taken"},
    {SHAPE_VA_FREE, "flags", HARMLESS, "not read of address space"},
    {SHAPE_VA_USED, "flags", HARMLESS, "not read of address space"},
    {SHAPE_VA_LOST, "flags", HARMLESS, "not read of address space"},
    {SHAPE_VA_LOST, "slack", LEGAL, "how much is mapped only the driver can tell"},
    {SHAPE_LIVE_SELF, "at", HARMLESS, "a window's own block is in no tiling and no pool"},
    {SHAPE_LIVE_SELF, "hole", HARMLESS, "a window's own block is in no tiling and no pool"},
    {SHAPE_PENDING_SELF, "at", HARMLESS, "a window's own block is in no tiling and no pool"},
    {SHAPE_PENDING_SELF, "hole", HARMLESS, "a window's own block is in no tiling and no pool"},
    {SHAPE_IDLE_SELF, "at", HARMLESS, "a window's own block is in no tiling and no pool"},
    {SHAPE_IDLE_SELF, "hole", HARMLESS, "a window's own block is in no tiling and no pool"},
    {SHAPE_LIVE_SELF, "u.epoch", HARMLESS, "names an ownership: no window asks for it"},
    {SHAPE_LIVE_SELF, "stream", LEGAL, "only tells the user what he asked for"},
    {SHAPE_LIVE_SELF, "flags", LEGAL, "what the user asked for"},
    {SHAPE_PENDING_SELF, "u.epoch", HARMLESS, "names an ownership: no window asks for it"},
    {SHAPE_PENDING_SELF, "slack", HARMLESS, "not read any more"},
    {SHAPE_PENDING_SELF, "stream", HARMLESS, "its note has the tag to come"},
    {SHAPE_PENDING_SELF, "flags", HARMLESS,
     "what the user asked for, and what is done with it is decided"},
    {SHAPE_IDLE_SELF, "u.epoch", LEGAL, "any epoch of the stream up to the open one is a tag"},
    {SHAPE_IDLE_SELF, "slack", HARMLESS, "overwritten when the window is taken"},
    {SHAPE_IDLE_SELF, "stream", LEGAL, "a window may have been used last on any stream"},
    {SHAPE_IDLE_SELF, "flags", HARMLESS, "overwritten when the window is taken"},
    {SHAPE_LOST_SELF, "u.epoch", HARMLESS, "a quarantined window is never taken again"},
    {SHAPE_LOST_SELF, "at", HARMLESS, "a quarantined window is never taken again"},
    {SHAPE_LOST_SELF, "hole", HARMLESS, "a quarantined window is never taken again"},
    {SHAPE_LOST_SELF, "slack", HARMLESS, "a quarantined window is never taken again"},
    {SHAPE_LOST_SELF, "stream", HARMLESS, "a quarantined window is never taken again"},
    {SHAPE_LOST_SELF, "state", HARMLESS, "a quarantined window is never taken again"},
    {SHAPE_LOST_SELF, "flags", HARMLESS, "a quarantined window is never taken again"},
    {SHAPE_OLD_FENCE, "epoch", HARMLESS, "not read outside the ring"},
    {SHAPE_OLD_FENCE, "at_ns", HARMLESS, "not read outside the ring"},
    {SHAPE_STREAM_USED, "epoch", LEGAL,
     "of a stream on which something was freed any later epoch may be open"},
    {SHAPE_STREAM_USED, "done", LEGAL, "any epoch before the fences may be the last one known"},
    {SHAPE_STREAM_USED, "born", LEGAL, "before the blocks that it has"},
    {SHAPE_STREAM_CAPTURED, "born", LEGAL, "before the blocks that it has"},
    {SHAPE_STREAM_CAPTURE, "born", HARMLESS, "no block has a capture's number"},
    {SHAPE_STREAM_UNUSED, "born", HARMLESS, "not read of a number that is not in use"},
    {SHAPE_STREAM_USED, "freed_bytes", HARMLESS, "at worst an event too early or too late"},
    {SHAPE_STREAM_USED, "fence_head", HARMLESS, "nothing begins where there is no fence"},
    {SHAPE_STREAM_USED, "fence_count", LEGAL,
     "of a stream on which something was freed the last epoch may have no fence"},
    {SHAPE_STREAM_USED, "arena", HARMLESS, "not read but of a stream that is being captured"},
    {SHAPE_STREAM_USED, "is_dirty", HARMLESS, "at worst an event too many"},
    {SHAPE_STREAM_USED, "is_news", HARMLESS, "at worst a walk too many, or later"},
    {SHAPE_STREAM_USED, "kind", LEGAL, "the program may have marked it"},
    {SHAPE_STREAM_USED, "stays", LEGAL, "the program may have marked it"},
    {SHAPE_STREAM_CAPTURED, "kind", LEGAL, "the program may have marked it"},
    {SHAPE_STREAM_CAPTURED, "stays", LEGAL, "the program may have marked it"},
    {SHAPE_STREAM_FORGOTTEN, "kind", LEGAL, "the program may have marked it"},
    {SHAPE_STREAM_FORGOTTEN, "stays", LEGAL, "the program may have marked it"},
    {SHAPE_STREAM_CAPTURE, "kind", HARMLESS, "not read of a capture"},
    {SHAPE_STREAM_CAPTURE, "stays", HARMLESS, "not read of a capture"},
    {SHAPE_STREAM_UNUSED, "kind", HARMLESS, "not read of a number that is not in use"},
    {SHAPE_STREAM_UNUSED, "stays", HARMLESS, "not read of a number that is not in use"},
    {SHAPE_STREAM_CAPTURED, "freed_bytes", HARMLESS, "at worst an event too early or too late"},
    {SHAPE_STREAM_CAPTURED, "fence_head", HARMLESS, "nothing begins where there is no fence"},
    {SHAPE_STREAM_CAPTURED, "is_dirty", HARMLESS, "at worst an event too many"},
    {SHAPE_STREAM_CAPTURED, "is_news", HARMLESS, "at worst a walk too many, or later"},
    {SHAPE_STREAM_FORGOTTEN, "freed_bytes", HARMLESS, "not read of a stream that is forgotten"},
    {SHAPE_STREAM_FORGOTTEN, "born", LEGAL, "before the blocks that it has"},
    {SHAPE_STREAM_FORGOTTEN, "arena", HARMLESS, "not read of a stream that is forgotten"},
    {SHAPE_STREAM_FORGOTTEN, "is_news", HARMLESS, "at worst a walk too many, or later"},
    {SHAPE_STREAM_CAPTURE, "freed_bytes", HARMLESS, "not read of a capture"},
    {SHAPE_STREAM_CAPTURE, "fence_head", HARMLESS, "not read of a capture"},
    {SHAPE_STREAM_CAPTURE, "arena", HARMLESS, "not read of a capture"},
    {SHAPE_STREAM_CAPTURE, "is_news", HARMLESS, "at worst a walk too many"},
    {SHAPE_STREAM_UNUSED, "freed_bytes", HARMLESS, "not read of a number that is not in use"},
    {SHAPE_STREAM_UNUSED, "fence_head", HARMLESS, "not read of a number that is not in use"},
    {SHAPE_STREAM_UNUSED, "arena", HARMLESS, "not read of a number that is not in use"},
    {SHAPE_STREAM_UNUSED, "is_news", HARMLESS, "at worst a walk too many"},
    {SHAPE_ALL_STREAMS, "last", HARMLESS, "at worst the stream is looked for"},
    {SHAPE_ALL_STREAMS, "event_count", LEGAL, "fewer idle events may have been made"},
    {SHAPE_ALL_STREAMS, "has_none", HARMLESS, "at worst an event too many, or too few"},
    {SHAPE_CHUNK, "handle", LEGAL, "the driver's name of memory"},
    {SHAPE_STUCK, "handle", LEGAL, "the driver's name of memory"},
    {SHAPE_STUCK, "is_home", LEGAL, "whether it is mapped only the driver can tell"},
    {SHAPE_HOME, "sleep", LEGAL, "a pool of which nothing is mapped may be in any state"},
    {SHAPE_HOME, "sleep_count", LEGAL, "it may have slept as often"},
    {SHAPE_POOL_HOLES, "none_from", LEGAL, "there may be none of other sizes too"},
    {SHAPE_POOL_HOLES, "none_count", LEGAL, "there may be none of other sizes too"},
    {SHAPE_SPOOL, "number", HARMLESS, "any that is no window's, or larger"},
    {SHAPE_SPOOL, "grains_min", HARMLESS, "at worst a size is looked for in vain"},
    {SHAPE_AREA, "most", LEGAL, "the description may have allowed as much"},
    {SHAPE_AREA, "unit", HARMLESS, "at worst more or less is asked for at a time"},
    {SHAPE_AREA, "is_scarce", HARMLESS, "at worst more or less is asked for at a time"},
    {SHAPE_AREA, "is_full", HARMLESS, "until the driver is asked again"},
    {SHAPE_RECORDS, "serial", HARMLESS, "any that is no block's, or larger"},
    {SHAPE_LIVE_WINDOW, "number", HARMLESS, "only names it to a policy"},
    {SHAPE_LIVE_WINDOW, "key", HARMLESS, "written when the window becomes idle"},
    {SHAPE_LOST_WINDOW, "number", HARMLESS, "only names it to a policy"},
    {SHAPE_LOST_WINDOW, "key", HARMLESS, "nobody asks for it"},
    {SHAPE_LIVE_USED, "stream", HARMLESS, "not read where the number is another's by now"},
    {SHAPE_LIVE_USED, "epoch", HARMLESS, "overwritten when the block is freed"},
    {SHAPE_PENDING_USED, "epoch", LEGAL,
     "any epoch of the stream up to the open one may be waited for"},
    {SHAPE_LIVE_NOTE, "used_count", HARMLESS, "the last use's number may be another's by now"},
    {SHAPE_LIVE_NOTE, "stream", HARMLESS, "overwritten when the block is freed"},
    {SHAPE_LIVE_NOTE, "epoch", HARMLESS, "overwritten when the block is freed"},
    {SHAPE_PENDING_NOTE, "used_count", LEGAL, "the user may have recorded fewer streams"},
    {SHAPE_PENDING_NOTE, "stream", LEGAL, "the block may have been freed on any stream"},
    {SHAPE_PENDING_NOTE, "epoch", LEGAL, "any epoch of the stream up to the open one is a tag"},
    {SHAPE_LIVE_POOL, "late_uses", LEGAL, "any streams may have used a graph's memory"},
    {SHAPE_COMMITTED_PLACE, "epoch", HARMLESS, "overwritten when it is given up"},
    {SHAPE_COMMITTED_PLACE, "checksum", HARMLESS, "overwritten when it is given up"},
    {SHAPE_COMMITTED_PLACE, "stream", HARMLESS, "overwritten when it is given up"},
    {SHAPE_EMPTY_PLACE, "epoch", HARMLESS, "overwritten when it is mapped"},
    {SHAPE_EMPTY_PLACE, "slot", HARMLESS, "overwritten when it is mapped"},
    {SHAPE_EMPTY_PLACE, "checksum", HARMLESS, "overwritten when it is mapped"},
    {SHAPE_EMPTY_PLACE, "stream", HARMLESS, "overwritten when it is mapped"},
    {SHAPE_LIVE_BUFFER, "max_bytes", LEGAL, "the user may have asked for it"},
    {SHAPE_LIVE_BUFFER, "bytes", LEGAL, "what lies before the end may be a hole"},
    {SHAPE_VOID_BUFFER, "max_bytes", HARMLESS, "not read of a buffer that is destroyed"},
    {SHAPE_DEAD_POOL, "late_uses", HARMLESS, "not read of a pool that is destroyed"},
    {SHAPE_HOST, "bytes", HARMLESS,
     "not looked at while the driver keeps a destroyed pool's memory"},
    {SHAPE_HOST, "bytes_peak", HARMLESS, "remembers what was"},
    {SHAPE_STATS, "requested_bytes_peak", HARMLESS, "remembers what was"},
    {SHAPE_STATS, "active_bytes_peak", HARMLESS, "remembers what was"},
    {SHAPE_STATS, "reserved_bytes_peak", HARMLESS, "remembers what was"},
    {SHAPE_STATS, "stitched_bytes_peak", HARMLESS, "remembers what was"},
    {SHAPE_STATS, "pending_bytes_peak", HARMLESS, "remembers what was"},
    {SHAPE_STATS, "buffer_bytes_peak", HARMLESS, "remembers what was"},
    {SHAPE_LAKE, "arena_count", HARMLESS, "an empty place is that of a pool that was destroyed"},
    {SHAPE_LAKE, "message_count", HARMLESS, "the logger is handed an empty message"},
};

static const struct exception *exception_of(shape which, const field *f) {
  size_t i;
  for (i = 0; i < sizeof(exceptions) / sizeof(exceptions[0]); i++) {
    const char *name = exceptions[i].field;
    size_t length = strlen(name);
    if (exceptions[i].in != which) continue;
    if (strcmp(name, "*") == 0 || strcmp(name, f->name) == 0) return &exceptions[i];
    if (length && name[length - 1] == '*' && strncmp(name, f->name, length - 1) == 0)
      return &exceptions[i];
  }
  return NULL;
}

/* ---- Damage ---------------------------------------------------------------------------------- */

#define VALUES_MAX 24

static size_t followed_max = 8; /* damages a field that are followed to the end */

typedef struct damage {
  unsigned char *at;
  size_t bytes;
  uint64_t values[VALUES_MAX]; /* beside the one it has */
  size_t count;
} damage;

static uint64_t read_value(const unsigned char *at, size_t bytes) {
  uint64_t value = 0;
  memcpy(&value, at, bytes); /* of a machine whose lowest byte comes first */
  return value;
}

static void write_value(unsigned char *at, size_t bytes, uint64_t value) {
  memcpy(at, &value, bytes);
}

static void add_value(damage *d, uint64_t value) {
  uint64_t mask = d->bytes == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * d->bytes) - 1;
  size_t i;
  value &= mask;
  if (value == read_value(d->at, d->bytes)) return;
  for (i = 0; i < d->count; i++)
    if (d->values[i] == value) return;
  assert_true(d->count < VALUES_MAX);
  d->values[d->count++] = value;
}

/* Wrong but plausible values for an element of a field. */
static void plan_damage(damage *d, const field *f, unsigned char *record, size_t element) {
  uint64_t value;
  memset(d, 0, sizeof(*d));
  d->at = record + f->offset + element * f->stride;
  d->bytes = f->bytes;
  assert_true(d->bytes <= 8);
  value = read_value(d->at, d->bytes);
  add_value(d, value + 1);
  add_value(d, value - 1);
  add_value(d, 0);
  add_value(d, UINT64_MAX);
  add_value(d, value ^ 4);
  add_value(d, value ^ (uint64_t)1 << (4 * d->bytes + 1));
}

/* Elements of an array that are tried: the first two, the last, and two that are not empty. */
static size_t choose_elements(const field *f, const unsigned char *record, size_t chosen[5]) {
  size_t count = 0, used = 0, i;
  for (i = 0; i < f->count; i++) {
    int is_used = read_value(record + f->offset + i * f->stride, f->bytes) != 0;
    if (i > 1 && i + 1 < f->count && !(is_used && used < 2)) continue;
    if (i > 1 && i + 1 < f->count) used++;
    chosen[count++] = i;
  }
  return count;
}

/* What the children tell. */
static struct tally {
  char where[160];
  size_t damages, reported, harmless, legal;
} * tally;

/* In a child: the world as if this were the process that made it. */
static void enter_world(size_t number) {
  at_world = number;
  now = &worlds[number];
  lake = now->lake;
  mock = now->mock;
  host_bytes = now->host_bytes;
  gmlk_process_init(&lake->process);
}

/* Whether the lake can be used and destroyed with the damage. */
static int ends_well(const struct exception *e) {
  int status = 0;
  pid_t child;
  fflush(stdout);
  child = fork();
  if (child < 0) return 0;
  if (!child) {
    (void)alarm(patience());
    is_strict = e->is == HARMLESS;
    may_leave_notes = e->is == A_CALLS;
    enter_world(at_world);
    use_up();
    _exit(0);
  }
  if (waitpid(child, &status, 0) != child) return 0;
  if (WIFSIGNALED(status)) printf("  afterwards, signal %d\n", WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A text of gmlake_check: the invariant, a colon, what is wrong. */
static int names_an_invariant(const char *text) {
  return text[0] >= 'A' && text[0] <= 'Z' && text[1] >= '0' && text[1] <= '9' &&
         strstr(text, ": ") != NULL;
}

/* One value; returns whether the outcome is as it should be. */
static int do_damage(const damage *d, uint64_t value, const struct exception *e, size_t *followed) {
  const uint64_t before = read_value(d->at, d->bytes);
  size_t length = strlen(tally->where);
  gmlake_result result;
  int is_well = 1;
  (void)snprintf(tally->where + length, sizeof(tally->where) - length, ": 0x%llx instead of 0x%llx",
                 (unsigned long long)value, (unsigned long long)before);
  tally->damages++;
  write_value(d->at, d->bytes, value);
  (void)alarm(patience());
  lake->error.text[0] = '\0';
  result = gmlake_check(lake);
  if (result == GMLAKE_ERROR_CORRUPT && (lake->lost || names_an_invariant(lake->error.text))) {
    tally->reported++;
  } else if (result || !e || (e->is == A_CALLS && !lake->has_locks)) {
    printf("  missed (%s): %s\n", gmlake_result_name(result), tally->where);
    is_well = 0;
  } else {
    *(e->is == HARMLESS ? &tally->harmless : &tally->legal) += 1;
    if (++*followed <= followed_max) is_well = ends_well(e);
    if (!is_well) printf("  with %s\n", tally->where);
  }
  write_value(d->at, d->bytes, before);
  tally->where[length] = '\0';
  return is_well;
}

typedef struct damaged_field {
  shape in;
  const field *what;
} damaged_field;

static int damage_record(const damaged_field *t, const struct exception *e, size_t record,
                         size_t *followed) {
  unsigned char *at = (unsigned char *)instances[at_world][t->in][record];
  size_t chosen[5], count = choose_elements(t->what, at, chosen), i, n;
  int is_well = 1;
  for (i = 0; i < count; i++) {
    damage d;
    plan_damage(&d, t->what, at, chosen[i]);
    for (n = 0; n < d.count; n++) {
      (void)snprintf(tally->where, sizeof(tally->where), "lake %d, record %d, element %d",
                     (int)at_world, (int)record, (int)chosen[i]);
      is_well &= do_damage(&d, d.values[n], e, followed);
    }
  }
  return is_well;
}

/* In a child: all damage of a field. Returns its exit status. */
static int damage_field(const damaged_field *t) {
  const struct exception *e = exception_of(t->in, t->what);
  size_t world, record, followed = 0;
  int is_well = 1;
  for (world = 0; world < WORLDS; world++) {
    enter_world(world);
    for (record = 0; record < instance_counts[world][t->in]; record++)
      is_well &= damage_record(t, e, record, &followed);
    if (gmlake_check(lake)) {
      printf("  the check itself has changed the lake: %s\n", lake->error.text);
      is_well = 0;
    }
  }
  if (e && !followed) {
    printf("  all of it is reported, and need not be said to be harmless\n");
    is_well = 0;
  }
  fflush(stdout);
  return !is_well;
}

static void damage_is_found(void **state) {
  const damaged_field *t = (const damaged_field *)*state;
  const struct rlimit none = {0, 0};
  int status = 0;
  pid_t child;
  fflush(stdout);
  child = fork();
  assert_true(child >= 0);
  if (!child) {
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGSEGV, SIG_DFL);
    (void)signal(SIGABRT, SIG_DFL);
    (void)signal(SIGBUS, SIG_DFL);
    (void)signal(SIGFPE, SIG_DFL);
    _exit(damage_field(t));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) fail_msg("signal %d: %s", WTERMSIG(status), tally->where);
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- That nothing is left out ---------------------------------------------------------------- */

static void every_shape_is_there(void **state) {
  size_t i;
  (void)state;
  for (i = 0; i < SHAPE_COUNT; i++)
    if (!instance_counts[0][i]) fail_msg("no %s", shapes[i].called);
}

static void each_lake_ends_well_undamaged(void **state) {
  const struct exception none = {SHAPE_COUNT, "", HARMLESS, ""};
  size_t i;
  (void)state;
  for (i = 0; i < WORLDS; i++) {
    at_world = i;
    now = &worlds[i];
    assert_true(ends_well(&none));
  }
}

static void build(void **state) {
  (void)state;
  build_rich(&worlds[0]);
  build_asked(&worlds[1]);
  for (at_world = 0; at_world < WORLDS; at_world++) find_lake(worlds[at_world].lake);
}

/* ---- The list -------------------------------------------------------------------------------- */

#define TESTS_MAX 1200

static struct CMUnitTest tests[TESTS_MAX];
static size_t test_count;

static void add_test(const char *name, CMUnitTestFunction function, const void *state) {
  struct CMUnitTest *test = &tests[test_count++];
  assert_true(test_count <= TESTS_MAX);
  test->name = strdup(name);
  test->test_func = function;
  test->initial_state = (void *)(uintptr_t)state;
}

static void add_fields(shape which, damaged_field *fields) {
  const struct shape_row *row = &shapes[which];
  char name[128];
  size_t i;
  for (i = 0; i < row->field_count; i++) {
    const field *f = &row->fields[i];
    fields[i].in = which;
    fields[i].what = f;
    (void)snprintf(name, sizeof(name), "%s: %s", row->called, f->name);
    add_test(name, damage_is_found, &fields[i]);
  }
}

static void say_tally(void **state) {
  (void)state;
  printf("%d damages: %d reported, %d harmless, %d as legal as what was there\n",
         (int)tally->damages, (int)tally->reported, (int)tally->harmless, (int)tally->legal);
  assert_true(tally->reported > 0);
}

/* --full: follows all damage that is not reported, in half a minute. */
int main(int count, char **arguments) {
  static damaged_field fields[SHAPE_COUNT][64];
  size_t i;
  tally = (struct tally *)mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (tally == MAP_FAILED) return 1;
  if (count > 1 && strcmp(arguments[1], "--full") == 0) followed_max = SIZE_MAX;
  add_test("build", build, NULL);
  add_test("every shape is there", every_shape_is_there, NULL);
  add_test("each lake ends well undamaged", each_lake_ends_well_undamaged, NULL);
  for (i = 0; i < SHAPE_COUNT; i++) add_fields((shape)i, fields[i]);
  add_test("tally", say_tally, NULL);
  return _cmocka_run_group_tests("corruption", tests, test_count, NULL, NULL);
}
