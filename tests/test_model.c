/* usage: test_model [OPERATIONS [SEED]]
   Random calls on a lake over memory that aliases for real, against a naive model: who owns which
   512 bytes of which physical memory, and which stream's work last used them. The lake's backend
   is the mock behind a table that watches every call. The model trusts no promise of the lake: a
   block handed over, unmapped or released is covered only if the stream waits for the events, or
   an event was seen complete, that stand behind every earlier use. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GRANULE (64 * KIB)
#define GRAIN ((size_t)512)
#define GRAINS (GRANULE / GRAIN)
#define DIMS 20 /* streams told apart at a time, forgotten ones with work pending included */
#define FRAMES 512
#define HANDLE_FRAMES 4
#define RANGES 32
#define EVENTS 4096
#define BLOCKS 256
#define PENDING 1024
#define POOLS 3
#define CAPTURES 512
#define PIECES 512
#define NO_STREAM (-1)

typedef struct stamp { /* how much work of each stream */
  uint32_t at[DIMS];
} stamp;

typedef struct frame { /* a granule of physical memory */
  int taken;
  uint32_t mapping_count;
  uint32_t owner[GRAINS]; /* id of the live block, 0: none */
  uint32_t graph[GRAINS]; /* the capture whose graph uses it, 0: none */
  stamp used[GRAINS];
} frame;

typedef struct handle {
  uint64_t value; /* 0: free record */
  size_t frame_count;
  int released;
  int range; /* where it was mapped first: its arena */
  int frames[HANDLE_FRAMES];
} handle;

typedef struct cell { /* a granule of address space */
  int frame;          /* -1: nothing is mapped */
  int in_graph;
  stamp used; /* through this mapping */
} cell;

typedef struct range {
  uint64_t base;
  size_t count;
  cell *cells;
} range;

typedef struct event {
  void *value;
  stamp at;
} event;

typedef struct stream {
  int live;
  gmlake_stream value;
  uint32_t capture; /* number of the capture under way, 0: none */
  stamp after;      /* what its next work is ordered behind; own entry: its work so far */
} stream;

typedef struct block {
  uint32_t id;
  unsigned char *ptr;
  size_t requested, bytes;
  int stream;        /* free it on this one, or order another one behind it */
  uint32_t recorded; /* mask of streams */
  int was_recorded;
  uint32_t capture; /* allocated in it, 0: none */
  int pool;         /* -1: the default one */
  unsigned flags;
} block;

typedef struct pending { /* freed with streams recorded on it */
  size_t bytes;
  stamp need;
} pending;

typedef struct pool {
  gmlake_pool *value; /* NULL: none */
  int range;
  size_t limit_bytes, chunk_bytes;
} pool;

typedef struct capture {
  int pool, active;
} capture;

typedef struct scenario {
  size_t capacity_bytes, largest_bytes;
  int stream_count, has_pools, has_captures;
  gmlake_desc desc;
} scenario;

static struct model {
  const scenario *with;
  gmlake_backend *mock, table;
  gmlake *lake;
  uint64_t random, seed, operation, clock_ns;
  const char *broken; /* the first rule found broken */
  int destroying;
  stamp known; /* work that the lake has seen complete, or the caller has waited for */
  frame frames[FRAMES];
  handle handles[FRAMES];
  range ranges[RANGES];
  event events[EVENTS];
  stream streams[DIMS];
  void *own_event;
  block blocks[BLOCKS];
  size_t block_count;
  uint32_t next_id;
  pending pendings[PENDING];
  size_t pending_count;
  pool pools[POOLS];
  capture captures[CAPTURES];
  uint32_t capture_count;
  size_t requested, active, requested_peak, active_peak;
  uint64_t allocations, frees, refused, unmaps, waits;
} m;

static void expect(int holds, const char *rule) {
  if (!holds && !m.broken) m.broken = rule;
}

static void settle(const char *operation) {
  if (!m.broken) return;
  fail_msg("%s: %s (seed %llu, operation %llu)", operation, m.broken, (unsigned long long)m.seed,
           (unsigned long long)m.operation);
}

static void expect_result(gmlake_result result, gmlake_result wanted, const char *call) {
  if (result == wanted) return;
  fail_msg("%s: %s, wanted %s (seed %llu, operation %llu)", call, gmlake_result_name(result),
           gmlake_result_name(wanted), (unsigned long long)m.seed, (unsigned long long)m.operation);
}

static uint64_t random_next(void) {
  uint64_t x = m.random += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

static size_t below(size_t count) { return (size_t)(random_next() % count); }
static int chance(size_t percent) { return below(100) < percent; }

static void stamp_join(stamp *into, const stamp *from) {
  size_t i;
  for (i = 0; i < DIMS; i++)
    if (from->at[i] > into->at[i]) into->at[i] = from->at[i];
}

static int stamp_covers(const stamp *a, const stamp *b) {
  size_t i;
  for (i = 0; i < DIMS; i++)
    if (a->at[i] < b->at[i]) return 0;
  return 1;
}

/* Address space and physical memory, as the watched calls tell. */

static int range_of(uint64_t address) {
  int i;
  for (i = 0; i < RANGES; i++)
    if (m.ranges[i].cells && address >= m.ranges[i].base &&
        (address - m.ranges[i].base) / GRANULE < m.ranges[i].count)
      return i;
  return -1;
}

static cell *cell_at(uint64_t address) {
  int i = range_of(address);
  return i < 0 ? NULL : &m.ranges[i].cells[(address - m.ranges[i].base) / GRANULE];
}

/* The physical memory behind an address, or NULL. */
static frame *frame_at(uint64_t address) {
  const cell *c = cell_at(address);
  return c && c->frame >= 0 ? &m.frames[c->frame] : NULL;
}

static handle *handle_find(uint64_t value) {
  size_t i;
  for (i = 0; i < FRAMES; i++)
    if (m.handles[i].value == value) return &m.handles[i];
  return NULL;
}

static void handle_reap(handle *h) {
  size_t i;
  for (i = 0; i < h->frame_count; i++)
    if (m.frames[h->frames[i]].mapping_count) return;
  for (i = 0; i < h->frame_count; i++) m.frames[h->frames[i]].taken = 0;
  h->value = 0;
}

static gmlake_result watch_reserve(void *user, size_t bytes, size_t alignment, uint64_t *out,
                                   int *code) {
  gmlake_result result = m.mock->reserve(user, bytes, alignment, out, code);
  size_t i, n;
  if (result) return result;
  for (i = 0; i < RANGES && m.ranges[i].cells; i++) continue;
  assert_true(i < RANGES);
  m.ranges[i].base = *out;
  m.ranges[i].count = bytes / GRANULE;
  m.ranges[i].cells = (cell *)calloc(m.ranges[i].count, sizeof(cell));
  assert_non_null(m.ranges[i].cells);
  for (n = 0; n < m.ranges[i].count; n++) m.ranges[i].cells[n].frame = -1;
  return result;
}

static gmlake_result watch_unreserve(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = m.mock->unreserve(user, address, bytes, code);
  int i = range_of(address);
  if (result || i < 0) return result;
  free(m.ranges[i].cells);
  memset(&m.ranges[i], 0, sizeof(m.ranges[i]));
  return result;
}

static gmlake_result watch_create(void *user, size_t bytes, unsigned types, uint64_t *out,
                                  int *code) {
  gmlake_result result = m.mock->create(user, bytes, types, out, code);
  handle *h = handle_find(0);
  size_t i, at = 0;
  if (result) return result;
  assert_non_null(h);
  memset(h, 0, sizeof(*h));
  h->value = *out;
  h->range = -1;
  h->frame_count = bytes / GRANULE;
  assert_true(h->frame_count <= HANDLE_FRAMES);
  for (i = 0; i < h->frame_count; i++) {
    while (m.frames[at].taken) at++;
    memset(&m.frames[at], 0, sizeof(m.frames[at]));
    m.frames[at].taken = 1;
    h->frames[i] = (int)at;
  }
  return result;
}

static gmlake_result watch_release(void *user, uint64_t value, int *code) {
  handle *h = handle_find(value);
  gmlake_result result = m.mock->release(user, value, code);
  if (result || !h) return result;
  h->released = 1;
  handle_reap(h);
  return result;
}

static gmlake_result watch_map(void *user, uint64_t address, size_t bytes, uint64_t value,
                               int *code) {
  handle *h = handle_find(value);
  gmlake_result result = m.mock->map(user, address, bytes, value, code);
  size_t i;
  if (result || !h) return result;
  if (h->range < 0) h->range = range_of(address);
  for (i = 0; i < h->frame_count; i++) {
    cell *c = cell_at(address + i * GRANULE);
    memset(c, 0, sizeof(*c));
    c->frame = h->frames[i];
    m.frames[c->frame].mapping_count++;
  }
  return result;
}

static int is_live_address(uint64_t address, size_t bytes) {
  size_t i;
  for (i = 0; i < m.block_count; i++) {
    uint64_t at = (uint64_t)(uintptr_t)m.blocks[i].ptr;
    if (at < address + bytes && address < at + m.blocks[i].bytes) return 1;
  }
  return 0;
}

static gmlake_result watch_unmap(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = m.mock->unmap(user, address, bytes, code);
  size_t i;
  if (result) return result;
  m.unmaps++;
  expect(m.destroying || !is_live_address(address, bytes), "a live block was unmapped");
  for (i = 0; i < bytes / GRANULE; i++) {
    cell *c = cell_at(address + i * GRANULE);
    expect(stamp_covers(&m.known, &c->used), "unmapped while work may still use it");
    expect(m.destroying || !c->in_graph, "unmapped under a graph");
    m.frames[c->frame].mapping_count--;
    c->frame = -1;
  }
  for (i = 0; i < FRAMES; i++)
    if (m.handles[i].value && m.handles[i].released) handle_reap(&m.handles[i]);
  return result;
}

/* Events and waits. */

static stream *stream_find(gmlake_stream value) {
  size_t i;
  for (i = 0; i < DIMS; i++)
    if (m.streams[i].live && m.streams[i].value == value) return &m.streams[i];
  return NULL;
}

static event *event_find(const void *value) {
  size_t i;
  for (i = 0; i < EVENTS; i++)
    if (m.events[i].value == value) return &m.events[i];
  fail_msg("too many events");
  return NULL;
}

static gmlake_result watch_event_create(void *user, void **out, int *code) {
  gmlake_result result = m.mock->event_create(user, out, code);
  if (!result) event_find(NULL)->value = *out;
  return result;
}

static gmlake_result watch_event_destroy(void *user, void *value, int *code) {
  event_find(value)->value = NULL;
  return m.mock->event_destroy(user, value, code);
}

static gmlake_result watch_event_record(void *user, void *value, gmlake_stream on, int *code) {
  stream *s = stream_find(on);
  gmlake_result result = m.mock->event_record(user, value, on, code);
  expect(s != NULL, "an event is recorded on a stream that is gone");
  expect(!s || !s->capture, "an event is recorded on a capturing stream");
  if (!result && s) event_find(value)->at = s->after;
  return result;
}

static gmlake_result watch_event_query(void *user, void *value, int *done, int *code) {
  gmlake_result result = m.mock->event_query(user, value, done, code);
  if (!result && *done) stamp_join(&m.known, &event_find(value)->at);
  return result;
}

static gmlake_result watch_event_wait(void *user, void *value, int *code) {
  gmlake_result result = m.mock->event_wait(user, value, code);
  if (!result) stamp_join(&m.known, &event_find(value)->at);
  return result;
}

static gmlake_result watch_stream_wait(void *user, gmlake_stream on, void *value, int *code) {
  stream *s = stream_find(on);
  gmlake_result result = m.mock->stream_wait(user, on, value, code);
  expect(s != NULL, "a stream that is gone was made to wait");
  if (!result && s) stamp_join(&s->after, &event_find(value)->at);
  m.waits++;
  return result;
}

static void watch(gmlake_backend *mock) {
  m.mock = mock;
  m.table = *mock;
  m.table.reserve = watch_reserve;
  m.table.unreserve = watch_unreserve;
  m.table.create = watch_create;
  m.table.release = watch_release;
  m.table.map = watch_map;
  m.table.unmap = watch_unmap;
  m.table.event_create = watch_event_create;
  m.table.event_destroy = watch_event_destroy;
  m.table.event_record = watch_event_record;
  m.table.event_query = watch_event_query;
  m.table.event_wait = watch_event_wait;
  m.table.stream_wait = watch_stream_wait;
}

/* What the caller does on the device beside calling the lake. */

static int captures_active(void) {
  size_t i;
  for (i = 0; i < DIMS; i++)
    if (m.streams[i].live && m.streams[i].capture) return 1;
  return 0;
}

/* Whether events may be recorded on it: the legacy stream is not while others are captured. */
static int is_quiet(int s) {
  return s >= 0 && !m.streams[s].capture && (s != 0 || !captures_active());
}

static void caller_record(int s) {
  int code = 0;
  expect_result(m.table.event_record(m.table.user, m.own_event, m.streams[s].value, &code),
                GMLAKE_OK, "the caller's event_record");
}

/* Work queued on `later` from now on starts behind the work of `earlier`. */
static void caller_order(int later, int earlier) {
  int code = 0;
  if (later == earlier) return;
  caller_record(earlier);
  expect_result(m.table.stream_wait(m.table.user, m.streams[later].value, m.own_event, &code),
                GMLAKE_OK, "the caller's stream_wait");
}

static void caller_wait(int s) {
  int code = 0;
  caller_record(s);
  expect_result(m.table.event_wait(m.table.user, m.own_event, &code), GMLAKE_OK,
                "the caller's event_wait");
}

/* The kernels of a stream that use a block. */
static void caller_use(const block *b, int s) {
  uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  uint32_t work = ++m.streams[s].after.at[s];
  size_t offset;
  for (offset = 0; offset < b->bytes; offset += GRAIN) {
    frame_at(at + offset)->used[(at + offset) % GRANULE / GRAIN].at[s] = work;
    cell_at(at + offset)->used.at[s] = work;
  }
}

static uint64_t pattern(const block *b, size_t offset) {
  return ((uint64_t)b->id << 32 | offset) * 0x9E3779B97F4A7C15u;
}

static void fill(const block *b) {
  size_t offset;
  for (offset = 0; offset < b->bytes; offset += 64) {
    uint64_t word = pattern(b, offset);
    memcpy(b->ptr + offset, &word, sizeof(word));
  }
}

static int is_intact(const block *b, size_t offset, const unsigned char *at, size_t bytes) {
  size_t i;
  for (i = 0; i < bytes; i += 64) {
    uint64_t wanted = pattern(b, offset + i), word;
    memcpy(&word, at + i, sizeof(word));
    if (word != wanted) return 0;
  }
  return 1;
}

/* Through its own address, and through its pieces' home addresses. */
static void verify(const block *b) {
  static gmlake_piece pieces[PIECES];
  size_t count = 0, i, offset = 0;
  expect(is_intact(b, 0, b->ptr, b->bytes), "contents changed");
  expect_result(gmlake_get_pieces(m.lake, b->ptr, pieces, PIECES, &count), GMLAKE_OK,
                "gmlake_get_pieces");
  for (i = 0; i < count && i < PIECES; i++) {
    expect(is_intact(b, offset, (const unsigned char *)pieces[i].home, pieces[i].bytes),
           "a piece shows other contents");
    offset += pieces[i].bytes;
  }
  settle("verify");
}

/* Handing over: ownership of every 512 bytes, and the order behind their former uses. */

static size_t chunk_of(const block *b) {
  return b->pool < 0 ? m.with->desc.chunk_bytes : m.pools[b->pool].chunk_bytes;
}

static void take_grain(const block *b, frame *f, size_t grain, const stamp *cover) {
  const capture *graph = f->graph[grain] ? &m.captures[f->graph[grain]] : NULL;
  expect(f->owner[grain] == 0, "two live blocks overlap");
  expect(stamp_covers(cover, &f->used[grain]), "handed over while work may still use it");
  f->owner[grain] = b->id;
  if (!graph) {
    f->graph[grain] = b->capture;
    return;
  }
  expect(b->capture != 0, "memory of a graph was handed over outside captures");
  expect(graph->pool == b->pool, "memory of a graph went to another pool");
  expect(!graph->active || f->graph[grain] == b->capture, "two captures share memory");
  f->graph[grain] = b->capture;
}

static void take(const block *b) {
  uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  stamp cover = m.known;
  size_t offset;
  if (b->stream >= 0 && !b->capture) stamp_join(&cover, &m.streams[b->stream].after);
  for (offset = 0; offset < b->bytes && !m.broken; offset += GRAIN) {
    frame *f = frame_at(at + offset);
    expect(f != NULL, "a block lies in memory that is not mapped");
    if (!f) return;
    take_grain(b, f, (at + offset) % GRANULE / GRAIN, &cover);
    if (b->capture) cell_at(at + offset)->in_graph = 1;
  }
}

static void give(const block *b) {
  uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  size_t offset;
  for (offset = 0; offset < b->bytes; offset += GRAIN)
    frame_at(at + offset)->owner[(at + offset) % GRANULE / GRAIN] = 0;
}

/* The pieces: homes in the block's arena that show the same physical memory, cut as they may. */
static void check_pieces(const block *b) {
  static gmlake_piece pieces[PIECES];
  uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  size_t count = 0, i, sum = 0, offset, chunk = chunk_of(b);
  int home = m.pools[b->pool < 0 ? 0 : b->pool].range;
  if (b->pool < 0) home = 0;
  expect_result(gmlake_get_pieces(m.lake, b->ptr, pieces, PIECES, &count), GMLAKE_OK,
                "gmlake_get_pieces");
  expect(count >= 1 && count <= PIECES, "a block has no pieces, or too many");
  expect(count == 1 || !(b->flags & GMLAKE_NO_STITCH), "NO_STITCH was stitched");
  expect(!(b->flags & GMLAKE_NO_STITCH) || pieces[0].home == (void *)b->ptr,
         "NO_STITCH lies away from home");
  for (i = 0; i < count && i < PIECES; i++) {
    uint64_t piece = (uint64_t)(uintptr_t)pieces[i].home;
    expect(range_of(piece) == home, "a piece lies in another arena");
    expect(i == 0 || piece % chunk == 0, "a piece begins inside a chunk");
    expect(i + 1 == count || (piece + pieces[i].bytes) % chunk == 0, "a piece ends inside a chunk");
    expect(!(b->flags & GMLAKE_EXCLUSIVE) || (piece | pieces[i].bytes) % chunk == 0,
           "EXCLUSIVE shares a chunk");
    for (offset = 0; offset < pieces[i].bytes && !m.broken; offset += GRAIN)
      expect(frame_at(piece + offset) == frame_at(at + sum + offset) &&
                 (piece + offset) % GRANULE == (at + sum + offset) % GRANULE,
             "a piece shows other memory than the block");
    sum += pieces[i].bytes;
  }
  expect(sum == b->bytes, "the pieces do not add up");
}

static void check_info(const block *b, size_t alignment) {
  gmlake_allocation_info info;
  size_t unit = b->flags & GMLAKE_EXCLUSIVE ? chunk_of(b) : GRAIN;
  expect_result(gmlake_get_allocation(m.lake, b->ptr, &info), GMLAKE_OK, "gmlake_get_allocation");
  expect(info.ptr == (void *)b->ptr && info.requested_bytes == b->requested, "wrong information");
  expect(info.bytes == (b->requested + unit - 1) / unit * unit, "wrongly rounded");
  expect((uintptr_t)b->ptr % alignment == 0, "wrongly aligned");
  expect(info.user_data == b->id && info.flags == b->flags, "wrong user data or flags");
  expect(info.pool == (b->pool < 0 ? NULL : m.pools[b->pool].value), "wrong pool");
}

/* Random choices. */

static int any_stream(void) {
  size_t i = below(DIMS);
  while (!m.streams[i].live) i = (i + 1) % DIMS;
  return (int)i;
}

static int any_pool(void) {
  size_t i, first = below(POOLS);
  for (i = 0; i < POOLS; i++)
    if (m.pools[(first + i) % POOLS].value) return (int)((first + i) % POOLS);
  return -1;
}

static size_t any_size(void) {
  static const size_t usual[6] = {512, 8 * KIB, 64 * KIB, 192 * KIB, 256 * KIB, 520 * KIB};
  size_t bytes;
  if (chance(25)) return usual[below(6)];
  bytes = (size_t)1 << below(21);
  bytes += below(bytes);
  return bytes < m.with->largest_bytes ? bytes : m.with->largest_bytes;
}

/* Whether memory that must be there, or be made, would have served a request that failed: whole
   chunks that nobody owns, of its arena or returned to the driver and created again. */

static int handle_is_free(const handle *h) {
  size_t i, grain;
  if (!h->value) return 0;
  for (i = 0; i < h->frame_count; i++)
    for (grain = 0; grain < GRAINS; grain++)
      if (m.frames[h->frames[i]].owner[grain] || m.frames[h->frames[i]].graph[grain]) return 0;
  return 1;
}

static size_t free_chunk_bytes(int of_range, int others) {
  size_t i, bytes = 0;
  for (i = 0; i < FRAMES; i++) {
    const handle *h = &m.handles[i];
    if ((h->range == of_range) != others && handle_is_free(h)) bytes += h->frame_count * GRANULE;
  }
  return bytes;
}

static size_t held_bytes(int of_range) {
  size_t i, bytes = 0;
  for (i = 0; i < FRAMES; i++)
    if (m.handles[i].value && m.handles[i].range == of_range)
      bytes += m.handles[i].frame_count * GRANULE;
  return bytes;
}

static int is_servable(const block *b, size_t bytes) {
  size_t chunk = chunk_of(b), room, limit = m.with->desc.limit_bytes, free_bytes;
  int home = b->pool < 0 ? 0 : m.pools[b->pool].range;
  gmlake_mock_census census;
  if (captures_active() || (b->flags & GMLAKE_NO_STITCH)) return 0;
  if (bytes < m.with->desc.stitch_bytes_min) return 0;
  bytes = (bytes + chunk - 1) / chunk * chunk;
  free_bytes = free_chunk_bytes(home, 0);
  if (bytes <= free_bytes) return 1;
  if (b->flags & GMLAKE_NO_GROW) return 0;
  gmlake_mock_get_census(m.mock, &census);
  room = m.with->capacity_bytes - census.physical_bytes;
  if (limit && limit - census.physical_bytes < room) room = limit - census.physical_bytes;
  room = (room + free_chunk_bytes(home, 1)) / chunk * chunk;
  if (b->pool >= 0 && m.pools[b->pool].limit_bytes) {
    limit = m.pools[b->pool].limit_bytes - held_bytes(home);
    if (limit < room) room = limit / chunk * chunk;
  }
  return bytes <= free_bytes + room;
}

/* Operations. */

static void choose_request(block *b, gmlake_alloc_desc *desc) {
  memset(b, 0, sizeof(*b));
  memset(desc, 0, sizeof(*desc));
  b->id = ++m.next_id;
  b->stream = chance(4) ? NO_STREAM : any_stream();
  b->pool = chance(25) ? any_pool() : -1;
  if (b->stream >= 0 && m.streams[b->stream].capture) {
    b->capture = m.streams[b->stream].capture;
    b->pool = m.captures[b->capture].pool;
  }
  if (chance(8)) b->flags |= GMLAKE_EXCLUSIVE;
  if (chance(8)) b->flags |= GMLAKE_NO_STITCH;
  if (chance(8)) b->flags |= GMLAKE_NO_GROW;
  b->requested = any_size();
  desc->bytes = b->requested;
  desc->flags = b->flags;
  desc->user_data = b->id;
  desc->alignment = chance(15) ? GRAIN << below(8) : 0;
  if (b->pool >= 0 && !(b->capture && chance(50))) desc->pool = m.pools[b->pool].value;
}

static size_t physical_bytes(void) {
  gmlake_mock_census census;
  gmlake_mock_get_census(m.mock, &census);
  return census.physical_bytes;
}

static void op_alloc(void) {
  gmlake_alloc_desc desc;
  block *b = &m.blocks[m.block_count];
  size_t unit, before = physical_bytes();
  gmlake_result result;
  void *ptr;
  choose_request(b, &desc);
  result = gmlake_alloc_with(m.lake, &desc,
                             b->stream < 0 ? GMLAKE_STREAM_NONE : m.streams[b->stream].value, &ptr);
  settle("gmlake_alloc");
  expect((result == GMLAKE_OK) == (ptr != NULL), "the pointer and the result contradict");
  if (b->flags & GMLAKE_NO_GROW) expect(physical_bytes() <= before, "NO_GROW has grown");
  if (result) {
    m.refused++;
    if (result != GMLAKE_ERROR_LIMIT_REACHED)
      expect_result(result, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, "gmlake_alloc");
    expect(!is_servable(b, b->requested), "refused though whole free chunks would do");
    return;
  }
  unit = b->flags & GMLAKE_EXCLUSIVE ? chunk_of(b) : GRAIN;
  b->ptr = (unsigned char *)ptr;
  b->bytes = (b->requested + unit - 1) / unit * unit;
  check_info(b, desc.alignment ? desc.alignment : GRAIN);
  take(b);
  if (!m.broken) check_pieces(b);
  settle("gmlake_alloc");
  m.block_count++;
  m.allocations++;
  m.requested += b->requested;
  m.active += b->bytes;
  if (m.requested > m.requested_peak) m.requested_peak = m.requested;
  if (m.active > m.active_peak) m.active_peak = m.active;
  fill(b);
  if (b->stream < 0) b->stream = any_stream();
  if (m.streams[b->stream].capture && !b->capture) b->stream = 0; /* not used by that graph */
  if (!b->capture) caller_use(b, b->stream);
}

/* Which stream a block is freed on, once the caller has ordered it behind the block's uses. */
static int choose_free(const block *b) {
  int on = chance(80) ? b->stream : any_stream();
  size_t i;
  if (b->capture && m.streams[b->stream].capture == b->capture) return b->stream;
  if (chance(5) && !captures_active()) on = NO_STREAM;
  if (on == NO_STREAM) {
    for (i = 0; i < DIMS; i++)
      if ((b->recorded >> i & 1 && m.streams[i].live) || (int)i == b->stream) caller_wait((int)i);
    return NO_STREAM;
  }
  if (on == b->stream) return on;
  if (b->recorded >> b->stream & 1) return on; /* the lake was told of the other stream */
  if (!is_quiet(on) || !is_quiet(b->stream)) return b->stream;
  caller_order(on, b->stream);
  return on;
}

static void note_pending(const block *b, int on) {
  pending *p = &m.pendings[m.pending_count++];
  size_t i;
  assert_true(m.pending_count < PENDING);
  memset(p, 0, sizeof(*p));
  p->bytes = b->bytes;
  for (i = 0; i < DIMS; i++)
    if ((b->recorded >> i & 1) && (int)i != on) p->need.at[i] = m.streams[i].after.at[i];
}

static void op_free(void) {
  size_t i;
  block b;
  int on;
  if (!m.block_count) return;
  i = below(m.block_count);
  verify(&m.blocks[i]);
  on = choose_free(&m.blocks[i]);
  b = m.blocks[i];
  m.blocks[i] = m.blocks[--m.block_count];
  give(&b);
  if (b.was_recorded && on != NO_STREAM) note_pending(&b, on);
  expect_result(
      gmlake_free(m.lake, b.ptr, on == NO_STREAM ? GMLAKE_STREAM_NONE : m.streams[on].value),
      GMLAKE_OK, "gmlake_free");
  m.frees++;
  m.requested -= b.requested;
  m.active -= b.bytes;
}

static void op_record(void) {
  block *b = m.block_count ? &m.blocks[below(m.block_count)] : NULL;
  int on = any_stream();
  if (!b || b->capture || !is_quiet(on) || !is_quiet(b->stream)) return;
  caller_order(on, b->stream);
  caller_use(b, on);
  expect_result(gmlake_record_stream(m.lake, b->ptr, m.streams[on].value), GMLAKE_OK,
                "gmlake_record_stream");
  b->recorded |= 1u << on;
  b->was_recorded = 1;
}

static void op_progress(void) {
  int s = any_stream();
  gmlake_stream value = m.streams[s].value;
  if (m.streams[s].capture) return;
  switch (below(4)) {
  case 0:
    gmlake_mock_stream_hold(m.mock, value);
    break;
  case 1:
    gmlake_mock_stream_set_lag(m.mock, value, chance(50) ? 0 : below(1000));
    break;
  case 2:
    gmlake_mock_set_clock(m.mock, m.clock_ns += below(400));
    break;
  default:
    gmlake_mock_stream_finish(m.mock, value);
  }
}

/* The stream is destroyed with work pending on it; its value may come back at once. */
static void op_forget(void) {
  int s = any_stream(), heir, fresh = 0;
  size_t i;
  if (s == 0 || m.with->stream_count < 3 || !is_quiet(s)) return;
  for (heir = any_stream(); heir == s;) heir = any_stream();
  if (!is_quiet(heir)) return;
  while (fresh < DIMS &&
         (m.streams[fresh].live || m.known.at[fresh] < m.streams[fresh].after.at[fresh]))
    fresh++;
  if (fresh == DIMS) return;
  expect_result(gmlake_forget_stream(m.lake, m.streams[s].value), GMLAKE_OK,
                "gmlake_forget_stream");
  caller_order(heir, s); /* waiting for the heir waits for the lake's last event there, too */
  for (i = 0; i < m.block_count; i++)
    if (m.blocks[i].stream == s) m.blocks[i].stream = heir;
  gmlake_mock_stream_destroy(m.mock, m.streams[s].value);
  m.streams[s].live = 0;
  expect_result(gmlake_mock_stream_create(m.mock, &m.streams[fresh].value), GMLAKE_OK,
                "gmlake_mock_stream_create");
  m.streams[fresh].live = 1;
  for (i = 0; i < DIMS; i++)
    if ((int)i != fresh) m.streams[fresh].after.at[i] = 0;
  for (i = 0; i < m.block_count; i++) m.blocks[i].recorded &= ~(1u << fresh); /* another one */
}

static void op_pool(void) {
  gmlake_pool_desc desc;
  size_t i = below(POOLS), n, live = 0;
  pool *p = &m.pools[i];
  gmlake_result result;
  if (!p->value) {
    memset(&desc, 0, sizeof(desc));
    desc.chunk_bytes = chance(50) ? GRANULE << below(3) : 0;
    desc.limit_bytes = chance(50) ? 2 * MIB : 0;
    for (n = 0; m.ranges[n].cells;) n++;
    p->range = (int)n; /* the home arena is reserved first */
    p->limit_bytes = desc.limit_bytes;
    p->chunk_bytes = desc.chunk_bytes ? desc.chunk_bytes : m.with->desc.chunk_bytes;
    expect_result(gmlake_pool_create(m.lake, &desc, &p->value), GMLAKE_OK, "gmlake_pool_create");
    return;
  }
  for (n = 1; n <= m.capture_count; n++)
    if (m.captures[n].active && m.captures[n].pool == (int)i) return;
  for (n = 0; n < m.block_count; n++) live += m.blocks[n].pool == (int)i;
  m.destroying = !live; /* graphs are gone by the caller's promise, which covers their work only */
  result = gmlake_pool_destroy(m.lake, p->value);
  m.destroying = 0;
  if (result == GMLAKE_ERROR_CAPTURING && captures_active()) return; /* work cannot be waited for */
  expect_result(result, live ? GMLAKE_ERROR_INVALID_ARGUMENT : GMLAKE_OK, "gmlake_pool_destroy");
  if (!live) p->value = NULL;
}

static void op_capture(void) {
  int s = any_stream(), p = any_pool();
  stream *on = &m.streams[s];
  if (on->capture) {
    expect_result(gmlake_mock_capture_end(m.mock, on->value), GMLAKE_OK,
                  "the capture, by the driver");
    expect_result(gmlake_capture_end(m.lake, on->value), GMLAKE_OK, "gmlake_capture_end");
    m.captures[on->capture].active = 0;
    on->capture = 0;
    return;
  }
  if (s == 0 || p < 0 || m.capture_count + 1 == CAPTURES) return;
  expect_result(gmlake_capture_begin(m.lake, on->value, m.pools[p].value), GMLAKE_OK,
                "gmlake_capture_begin");
  expect_result(gmlake_mock_capture_begin(m.mock, on->value), GMLAKE_OK,
                "gmlake_mock_capture_begin");
  on->capture = ++m.capture_count;
  m.captures[on->capture].pool = p;
  m.captures[on->capture].active = 1;
}

static void op_trim(void) {
  size_t released = 0, before = physical_bytes(), keep = chance(50) ? 0 : below(before + 1);
  expect_result(gmlake_trim(m.lake, keep, &released), GMLAKE_OK, "gmlake_trim");
  expect(before - physical_bytes() == released, "trim tells another figure than it released");
  expect(!released || before - released + 4 * GRANULE > keep, "trim released more than asked");
}

static void op_budget(void) {
  gmlake_budget budget;
  size_t physical = physical_bytes();
  expect_result(gmlake_get_budget(m.lake, &budget), GMLAKE_OK, "gmlake_get_budget");
  expect(budget.total_bytes == m.with->capacity_bytes, "budget: total");
  expect(budget.driver_free_bytes == m.with->capacity_bytes - physical, "budget: driver-free");
  expect(budget.reserved_bytes == physical, "budget: reserved");
  expect(budget.idle_bytes + budget.pending_bytes + m.active == physical,
         "budget: idle, pending and live memory are not what is held");
}

/* Pointers that are not the start of a live block. */
static void op_misuse(void) {
  const block *b = m.block_count ? &m.blocks[below(m.block_count)] : NULL;
  gmlake_result result;
  if (!b) return;
  expect_result(gmlake_free(m.lake, b->ptr + 1 + below(b->bytes - 1), m.streams[0].value),
                GMLAKE_ERROR_UNKNOWN_POINTER, "gmlake_free inside a block");
  expect_result(gmlake_free(m.lake, b->ptr, (gmlake_stream)(uintptr_t)2),
                GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_free on stream 2");
  result = gmlake_free(m.lake, &result, m.streams[0].value);
  expect_result(result, GMLAKE_ERROR_UNKNOWN_POINTER, "gmlake_free of the host's memory");
}

/* All work is done: nothing may be pending, and trim must find every whole free chunk. */
static void op_quiesce(void) {
  gmlake_stats stats;
  size_t i, released;
  if (captures_active()) return;
  for (i = 0; i < DIMS; i++) {
    if (!m.streams[i].live) continue;
    gmlake_mock_stream_finish(m.mock, m.streams[i].value);
    gmlake_mock_stream_set_lag(m.mock, m.streams[i].value, 0);
    caller_wait((int)i);
  }
  gmlake_mock_set_clock(m.mock, m.clock_ns += 10000);
  expect_result(gmlake_trim(m.lake, 0, &released), GMLAKE_OK, "gmlake_trim");
  memset(&stats, 0, sizeof(stats));
  expect_result(gmlake_get_stats(m.lake, &stats), GMLAKE_OK, "gmlake_get_stats");
  m.pending_count = 0;
  for (i = 0; i < FRAMES; i++) {
    int in_graph = 0;
    size_t n;
    for (n = 0; n < m.handles[i].frame_count * GRAINS && m.handles[i].value; n++)
      in_graph |= m.frames[m.handles[i].frames[n / GRAINS]].graph[n % GRAINS] != 0;
    expect(in_graph || !handle_is_free(&m.handles[i]), "trim left a whole free chunk");
  }
  expect(stats.pending_bytes == 0, "blocks are pending though all work is done");
}

static void check_stats(void) {
  size_t least = 0, most = 0, i;
  gmlake_stats stats;
  memset(&stats, 0, sizeof(stats));
  expect_result(gmlake_get_stats(m.lake, &stats), GMLAKE_OK, "gmlake_get_stats");
  for (i = 0; i < m.pending_count; i++) {
    most += m.pendings[i].bytes;
    if (!stamp_covers(&m.known, &m.pendings[i].need)) least += m.pendings[i].bytes;
  }
  expect(stats.requested_bytes == m.requested, "requested_bytes");
  expect(stats.active_bytes == m.active, "active_bytes");
  expect(stats.requested_bytes_peak == m.requested_peak, "requested_bytes_peak");
  expect(stats.active_bytes_peak == m.active_peak, "active_bytes_peak");
  expect(stats.reserved_bytes == physical_bytes(), "reserved_bytes");
  expect(stats.quarantined_bytes == 0, "quarantined_bytes");
  expect(stats.live_count == m.block_count, "live_count");
  expect(stats.allocation_count == m.allocations && stats.free_count == m.frees, "counts");
  expect(stats.oom_count == m.refused, "oom_count");
  expect(stats.pending_bytes >= least && stats.pending_bytes <= most, "pending_bytes");
  expect(!m.with->desc.limit_bytes || stats.reserved_bytes <= m.with->desc.limit_bytes,
         "the limit is exceeded");
  if (stats.pending_bytes == 0) m.pending_count = 0;
}

static void check(void) {
  gmlake_error_info info;
  check_stats();
  if (gmlake_check(m.lake)) {
    (void)gmlake_get_last_error(m.lake, &info);
    fail_msg("gmlake_check: %s (seed %llu, operation %llu)", info.text, (unsigned long long)m.seed,
             (unsigned long long)m.operation);
  }
  settle("after an operation");
}

static void step(void) {
  size_t dice = below(1000);
  int is_full = m.block_count == BLOCKS - 1 || m.pending_count > PENDING - 2;
  if (dice < 430 && !is_full)
    op_alloc();
  else if (dice < 800 || is_full)
    op_free();
  else if (dice < 860)
    op_record();
  else if (dice < 920)
    op_progress();
  else if (dice < 930)
    op_trim();
  else if (dice < 940)
    op_budget();
  else if (dice < 950)
    op_misuse();
  else if (dice < 970)
    op_forget();
  else if (dice < 975)
    op_quiesce();
  else if (dice < 980 && m.with->has_pools)
    op_pool();
  else if (dice < 995 && m.with->has_captures)
    op_capture();
  else if (m.block_count)
    verify(&m.blocks[below(m.block_count)]);
  if (m.pending_count > PENDING - 2) op_quiesce();
  check();
}

static void open_lake(const scenario *with, uint64_t seed) {
  gmlake_mock_desc mock_desc;
  gmlake_backend *mock;
  gmlake_desc desc = with->desc;
  int i, code = 0;
  memset(&m, 0, sizeof(m));
  m.with = with;
  m.seed = m.random = seed;
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.capacity_bytes = with->capacity_bytes;
  mock_desc.granularity_bytes = GRANULE;
  expect_result(gmlake_mock_create(&mock_desc, &mock), GMLAKE_OK, "gmlake_mock_create");
  watch(mock);
  desc.backend = &m.table;
  expect_result(gmlake_create(&desc, &m.lake), GMLAKE_OK, "gmlake_create");
  m.streams[0].live = 1;
  for (i = 1; i < with->stream_count; i++) {
    m.streams[i].live = 1;
    expect_result(gmlake_mock_stream_create(mock, &m.streams[i].value), GMLAKE_OK,
                  "gmlake_mock_stream_create");
  }
  expect_result(m.table.event_create(m.table.user, &m.own_event, &code), GMLAKE_OK, "event_create");
}

/* With live blocks and pending work. */
static void close_lake(void) {
  gmlake_mock_census census;
  int code = 0;
  size_t i;
  for (i = 0; i < DIMS; i++)
    if (m.streams[i].live && m.streams[i].capture) {
      expect_result(gmlake_mock_capture_end(m.mock, m.streams[i].value), GMLAKE_OK,
                    "the capture, by the driver");
      expect_result(gmlake_capture_end(m.lake, m.streams[i].value), GMLAKE_OK,
                    "gmlake_capture_end");
      m.streams[i].capture = 0;
    }
  for (i = 0; i < m.block_count; i++) verify(&m.blocks[i]);
  m.destroying = 1;
  expect_result(gmlake_destroy(m.lake), GMLAKE_OK, "gmlake_destroy");
  settle("gmlake_destroy");
  (void)m.table.event_destroy(m.table.user, m.own_event, &code);
  gmlake_mock_get_census(m.mock, &census);
  assert_int_equal(census.handle_count, 0);
  assert_int_equal(census.mapping_count, 0);
  assert_int_equal(census.reservation_count, 0);
  assert_int_equal(census.event_count, 0);
  assert_int_equal(census.physical_bytes, 0);
  gmlake_mock_destroy(m.mock);
}

static uint64_t operations = 6000, seed_of_all = 1;

static void run(const scenario *with) {
  gmlake_stats stats;
  open_lake(with, seed_of_all);
  for (m.operation = 1; m.operation <= operations; m.operation++) step();
  memset(&stats, 0, sizeof(stats));
  expect_result(gmlake_get_stats(m.lake, &stats), GMLAKE_OK, "gmlake_get_stats");
  print_message(
      "seed %llu: %llu blocks, %llu refused, %llu stitches, %llu reuses, %llu waits, "
      "%llu unmaps\n",
      (unsigned long long)m.seed, (unsigned long long)m.allocations, (unsigned long long)m.refused,
      (unsigned long long)stats.stitch_count, (unsigned long long)stats.stitch_reuse_count,
      (unsigned long long)m.waits, (unsigned long long)m.unmaps);
  close_lake();
}

static void init_scenario(scenario *with, int stream_count) {
  memset(with, 0, sizeof(*with));
  with->capacity_bytes = 16 * MIB;
  with->largest_bytes = 2 * MIB;
  with->stream_count = stream_count;
  with->desc.chunk_bytes = GRANULE;
  with->desc.arena_bytes = 64 * MIB;
  with->desc.window_bytes = 256 * MIB;
}

static void test_one_stream(void **state) {
  scenario with;
  (void)state;
  init_scenario(&with, 1);
  run(&with);
}

static void test_streams_grow_first(void **state) {
  scenario with;
  (void)state;
  init_scenario(&with, 5);
  run(&with);
}

static void test_streams_wait_first(void **state) {
  scenario with;
  (void)state;
  init_scenario(&with, 5);
  with.desc.cross_stream = GMLAKE_WAIT_FIRST;
  with.desc.limit_bytes = 10 * MIB;
  with.desc.chunk_bytes = 2 * GRANULE;
  run(&with);
}

static void test_pools(void **state) {
  scenario with;
  (void)state;
  init_scenario(&with, 4);
  with.has_pools = 1;
  with.desc.limit_bytes = 12 * MIB;
  with.desc.small_bytes_max = 64 * KIB;
  run(&with);
}

static void test_captures(void **state) {
  scenario with;
  (void)state;
  init_scenario(&with, 5);
  with.has_pools = with.has_captures = 1;
  with.desc.cross_stream = GMLAKE_WAIT_FIRST;
  run(&with);
}

/* Windows are dropped all the time. */
static void test_few_windows(void **state) {
  scenario with;
  (void)state;
  init_scenario(&with, 3);
  with.desc.stitched_bytes_max = 4 * MIB;
  with.desc.stitch_bytes_min = 128 * KIB;
  with.desc.window_bytes = 24 * MIB;
  with.desc.flags = GMLAKE_SINGLE_THREADED;
  with.desc.small_bytes_max = 8 * KIB;
  run(&with);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_stream),         cmocka_unit_test(test_streams_grow_first),
      cmocka_unit_test(test_streams_wait_first), cmocka_unit_test(test_pools),
      cmocka_unit_test(test_captures),           cmocka_unit_test(test_few_windows),
  };
  if (argc > 1) operations = strtoull(argv[1], NULL, 10);
  if (argc > 2) seed_of_all = strtoull(argv[2], NULL, 10);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
