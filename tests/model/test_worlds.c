/* Small worlds, exhaustively: every sequence of calls on an arena of at most four chunks with at
   most three live blocks and two streams, breadth first, each state visited once. After every call:
   gmlake_check; the figures and the mock's census agree with the test's own accounts; no two live
   blocks overlap; no block is handed over, and nothing is unmapped, while work may still use it; no
   limit is passed; nothing is refused that whole free chunks would serve. Before every allocation
   gmlake_query says how it ends. In every state the questions agree, and destroy leaves nothing.
   Where a graph's pool is lent: recall is busy while a borrower lives, and each launch is behind
   the borrowers' work. Where memory is shared: what was exported never serves again.
   With faults: each call of the backend fails in turn, and all of that still holds.

   The lake and the mock allocate from one heap here, so that a state is taken back by copying it. A
   state is written down as what decides its future: tiles, tags, the order within pools, windows,
   fences and the work that is pending, all numbers reduced to their order. --depth goes so deep in
   every world, --full until nothing new is found. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <sys/mman.h>

#undef MADV_WIPEONFORK /* the page that tells a child of fork is none of the heap's */

static void *world_malloc(size_t bytes);
static void world_free(void *ptr);

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLAKE_MALLOC(bytes) world_malloc(bytes)
#define GMLAKE_FREE(ptr) world_free(ptr)
#include "gmlake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "judge_map.h"
#include "options.h"

#define CHUNK ((size_t)4096)
#define CELL (CHUNK / 2) /* sizes are multiples: what blocks can share */
#define CELLS 2          /* in a chunk */
#define SLACK 100        /* less is asked for than a block is rounded to */
#define SLOTS 8          /* of address space for windows, at most */
#define HANDLES 16
#define EVENTS 256
#define BLOCKS 3
#define STREAMS 2
#define PLACES 2 /* of the buffer */
#define GRAPH 3  /* blocks of the graph; the second one stays live */
#define LIVE_ONE 1
#define SIZES 4
#define DEPTH_MAX 64
#define WHOLE (DEPTH_MAX - 1) /* until nothing new is found */

/* ---- The heap -------------------------------------------------------------------------------- */

#define HEAP_BYTES ((size_t)1 << 20)
#define HEAP_LINE ((size_t)64)

typedef struct piece { /* a line before what is handed out */
  size_t bytes;
  struct piece *next; /* [free] */
} piece;

typedef struct heap {
  size_t used, live;
  piece *unused;
  unsigned char bytes[HEAP_BYTES];
} heap;

static heap h;
static unsigned char *heap_base; /* aligned */

static void *world_malloc(size_t bytes) {
  size_t room = (bytes + 2 * HEAP_LINE - 1) & ~(HEAP_LINE - 1);
  piece **link = &h.unused, *found;
  while (*link && (*link)->bytes != room) link = &(*link)->next;
  found = *link;
  if (found) {
    *link = found->next;
  } else {
    if (room > HEAP_BYTES - HEAP_LINE - h.used) return NULL;
    found = (piece *)(void *)(heap_base + h.used);
    h.used += room;
    found->bytes = room;
  }
  h.live++;
  return (unsigned char *)found + HEAP_LINE;
}

static void world_free(void *ptr) {
  piece *gone;
  if (!ptr) return;
  gone = (piece *)(void *)((unsigned char *)ptr - HEAP_LINE);
  gone->next = h.unused;
  h.unused = gone;
  h.live--;
}

/* ---- The world ------------------------------------------------------------------------------- */

typedef struct stamp { /* how much work of each stream */
  uint32_t at[STREAMS];
} stamp;

typedef struct block {
  unsigned char *ptr; /* NULL: none */
  size_t bytes;
  int stream;
  unsigned recorded; /* mask of streams */
  size_t requested;
  int is_borrowed; /* of the pool that is lent */
  int is_imported;
} block;

static struct world { /* what a state consists of, beside the heap */
  gmlake *lake;
  gmlake_backend *mock;
  gmlake_stream streams[STREAMS];
  void *own_event;
  block blocks[BLOCKS];
  int held[STREAMS];
  stamp after[STREAMS]; /* what its next work is ordered behind; own entry: its work so far */
  stamp known;          /* work that the lake has seen complete */
  stamp events[EVENTS];
  struct {
    stamp used[CELLS];
    int owner[CELLS]; /* block + 1 */
    int is_shared;    /* other processes may have it */
  } frames[HANDLES];
  stamp window_used[2 * SLOTS]; /* through the window mapped there; the second half: the pool's */
  gmlake_pool *pool;            /* NULL: the world has none */
  block graph[GRAPH];           /* what the graph in it uses */
  int is_lent, turn;            /* turn: the stream of its last launch or recall */
  gmlake_buffer *buffer;        /* NULL: the world has none */
  block places[PLACES];         /* its chunks; NULL: no memory */
  unsigned char *base;
  stamp place_used[PLACES]; /* through the place */
} w;

typedef struct config {
  const char *name;
  int chunks, streams, blocks, sizes; /* of the device; how many of each may be in use */
  gmlake_cross_stream cross_stream;
  size_t window_slots, limit_chunks, stitched_chunks_max;
  int records, forgets, faults, sleeps, pages, lends, shares;
  int depth; /* in make test; the least there */
} config;

static const config *with;
static gmlake_backend table; /* the mock, watched */
static const char *broken;   /* the first rule found broken */

static void expect(int holds, const char *rule) {
  if (!holds && !broken) broken = rule;
}

static int covers(const stamp *a, const stamp *b) {
  return a->at[0] >= b->at[0] && a->at[1] >= b->at[1];
}

static void join(stamp *into, const stamp *from) {
  int s;
  for (s = 0; s < STREAMS; s++)
    if (from->at[s] > into->at[s]) into->at[s] = from->at[s];
}

static gmlk_mock *mock_of_world(void) { return (gmlk_mock *)w.mock->user; }

/* The mock's number of the handle that is mapped at an address; -1: none is. */
static int frame_at(uint64_t address) {
  gmlk_mock_span span;
  const gmlk_mock_handle *handle = NULL;
  if (gmlk_mock_find_span(mock_of_world(), address & ~(uint64_t)(CHUNK - 1), CHUNK, &span))
    handle = gmlk_mock_mapped(mock_of_world(), &span, span.first);
  return handle ? (int)handle->slot.index : -1;
}

static int slot_in(const gmlk_arena *a, uint64_t address) {
  const gmlk_extent *e = gmlk_area_find(&a->window_space.area, CHUNK, address);
  if (!e) return -1;
  if (address - e->base >= SLOTS * CHUNK) fail_msg("too many windows");
  return (int)((address - e->base) / CHUNK);
}

/* The slot of the windows' address space; -1: the address is none of it. */
static int window_slot(uint64_t address) {
  int slot = slot_in(&w.lake->home, address);
  if (slot >= 0 || !w.pool) return slot;
  slot = slot_in(&w.pool->arena, address);
  return slot < 0 ? -1 : SLOTS + slot;
}

/* The buffer's place; -1: the address is none of it. */
static int place_at(uint64_t address) {
  const uint64_t base = (uint64_t)(uintptr_t)w.base;
  return w.buffer && address >= base && address - base < PLACES * CHUNK
             ? (int)((address - base) / CHUNK)
             : -1;
}

static size_t number_of(const void *event) {
  return (size_t)((uintptr_t)event & GMLK_MOCK_SLOT_MASK) - 1;
}

static const gmlk_mock_event *mock_event(const void *event) {
  return (const gmlk_mock_event *)gmlk_mock_at(&mock_of_world()->events, number_of(event));
}

/* ---- Watched calls --------------------------------------------------------------------------- */

static gmlake_result watch_record(void *user, void *event, gmlake_stream stream, int *code) {
  gmlake_result result = w.mock->event_record(user, event, stream, code);
  if (!result) w.events[number_of(event)] = w.after[stream == w.streams[1]];
  return result;
}

static gmlake_result watch_query(void *user, void *event, int *out_done, int *code) {
  gmlake_result result = w.mock->event_query(user, event, out_done, code);
  if (!result && *out_done) join(&w.known, &w.events[number_of(event)]);
  return result;
}

static gmlake_result watch_host_wait(void *user, void *event, int *code) {
  gmlake_result result = w.mock->event_wait(user, event, code);
  if (!result) join(&w.known, &w.events[number_of(event)]);
  return result;
}

static gmlake_result watch_stream_wait(void *user, gmlake_stream stream, void *event, int *code) {
  gmlake_result result = w.mock->stream_wait(user, stream, event, code);
  if (!result) join(&w.after[stream == w.streams[1]], &w.events[number_of(event)]);
  return result;
}

static gmlake_result watch_unmap(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = w.mock->unmap(user, address, bytes, code);
  int first = w.lake ? window_slot(address) : -1, slot;
  const int place = place_at(address);
  if (!result && place >= 0) {
    expect(covers(&w.known, &w.place_used[place]), "a place is unmapped under pending work");
    memset(&w.place_used[place], 0, sizeof(stamp));
  }
  if (result || first < 0) return result;
  for (slot = first; slot < first + (int)(bytes / CHUNK); slot++) {
    expect(covers(&w.known, &w.window_used[slot]), "a window is unmapped under pending work");
    memset(&w.window_used[slot], 0, sizeof(stamp));
  }
  return result;
}

static gmlake_result watch_release(void *user, uint64_t handle, int *code) {
  gmlake_result result = w.mock->release(user, handle, code);
  size_t frame = (size_t)(handle & GMLK_MOCK_SLOT_MASK) - 1, i;
  if (result) return result;
  for (i = 0; i < CELLS; i++)
    expect(covers(&w.known, &w.frames[frame].used[i]), "a chunk is released under pending work");
  memset(&w.frames[frame].used, 0, sizeof(w.frames[frame].used));
  w.frames[frame].is_shared = 0;
  return result;
}

/* The mock has no files here: what is exported is only marked, and what is imported is made up. */
static gmlake_result watch_export(void *user, uint64_t handle, gmlake_handle *out, int *code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  expect(gmlk_mock_find(&mock->handles, handle) && out->bytes == CHUNK,
         "exported what is not there");
  if (!mock->result) w.frames[(size_t)(handle & GMLK_MOCK_SLOT_MASK) - 1].is_shared = 1;
  out->fd = -1;
  return gmlk_mock_leave(mock, 0, code);
}

static gmlake_result watch_import(void *user, const gmlake_handle *in, uint64_t *out, int *code) {
  gmlk_mock *mock = gmlk_mock_enter(user);
  gmlk_mock_handle *handle = NULL;
  if (!mock->result) handle = (gmlk_mock_handle *)gmlk_mock_take(&mock->handles);
  if (gmlk_mock_need(mock, handle != NULL, GMLAKE_ERROR_OUT_OF_HOST_MEMORY)) {
    handle->is_foreign = 1;
    handle->bytes = in->bytes;
    mock->census.handle_count++;
    *out = gmlk_mock_value(&handle->slot);
    w.frames[handle->slot.index].is_shared = 1;
  }
  return gmlk_mock_leave(mock, 0, code);
}

static void watch(void) {
  table = *w.mock;
  table.event_record = watch_record;
  table.event_query = watch_query;
  table.event_wait = watch_host_wait;
  table.event_wait_any = NULL; /* so the lake calls event_wait for every wait */
  table.stream_wait = watch_stream_wait;
  table.unmap = watch_unmap;
  table.release = watch_release;
  table.export_handle = watch_export;
  table.import_handle = watch_import;
}

/* ---- Operations ------------------------------------------------------------------------------ */

enum {
  DO_ALLOC,
  DO_FREE,
  DO_RECORD,
  DO_HOLD,
  DO_FINISH,
  DO_FORGET,
  DO_TRIM,
  DO_SLEEP, /* which: 1 keeps */
  DO_WAKE,
  DO_COMMIT, /* which: the place */
  DO_DISCARD,
  DO_LEND,
  DO_RECALL,
  DO_BORROW,
  DO_LAUNCH,
  DO_EXPORT,
  DO_IMPORT
};

typedef struct operation {
  unsigned char call, which, stream;
} operation;

static const size_t sizes[SIZES] = {2 * CELL, 4 * CELL, CELL, 3 * CELL};

static operation operations[64];
static size_t operation_count;

static void add_operation(int call, int which, int stream) {
  operations[operation_count].call = (unsigned char)call;
  operations[operation_count].which = (unsigned char)which;
  operations[operation_count++].stream = (unsigned char)stream;
}

static void list_operations(void) {
  int i, s;
  operation_count = 0;
  for (s = 0; s < with->streams; s++) {
    for (i = 0; i < with->sizes; i++) add_operation(DO_ALLOC, i, s);
    for (i = 0; i < with->blocks; i++) add_operation(DO_FREE, i, s);
    for (i = 0; i < with->blocks && with->records; i++) add_operation(DO_RECORD, i, s);
    add_operation(DO_HOLD, 0, s);
    add_operation(DO_FINISH, 0, s);
    if (with->forgets) add_operation(DO_FORGET, 0, s);
    for (i = 0; i < PLACES && with->pages; i++) add_operation(DO_COMMIT, i, s);
    for (i = 0; i < PLACES && with->pages; i++) add_operation(DO_DISCARD, i, s);
    for (i = DO_LEND; i <= DO_LAUNCH && with->lends; i++)
      if (i != DO_BORROW) add_operation(i, 0, s);
    for (i = 0; i < with->sizes && with->lends; i++) add_operation(DO_BORROW, i, s);
  }
  for (i = 0; i < with->blocks && with->shares; i++) add_operation(DO_EXPORT, i, 0);
  if (with->shares) add_operation(DO_IMPORT, 0, 0);
  add_operation(DO_TRIM, 0, 0);
  for (i = 0; i < 2 && with->sleeps; i++) add_operation(DO_SLEEP, i, 0);
  if (with->sleeps) add_operation(DO_WAKE, 0, 0);
}

static int is_asleep(void) { return w.lake->home.sleep == GMLK_ASLEEP; }

/* Whether it is a call that a program may make, and that can change anything. */
static int is_possible(const operation *op) {
  const block *b = &w.blocks[op->which % BLOCKS];
  const gmlk_mock *mock = mock_of_world();
  const gmlk_mock_queue *queue = gmlk_mock_find_queue(mock, w.streams[op->stream]);
  int i;
  if (op->call == DO_BORROW && !w.is_lent) return 0;
  switch (op->call) {
  case DO_IMPORT:
    if (mock->census.handle_count == (size_t)with->chunks + BLOCKS) return 0;
    /* fall through */
  case DO_ALLOC:
  case DO_BORROW:
    for (i = 0; i < with->blocks && !is_asleep(); i++)
      if (!w.blocks[i].ptr) return 1;
    return 0;
  case DO_FREE:
    return b->ptr != NULL;
  case DO_RECORD:
    return b->ptr && !(b->recorded >> op->stream & 1) && b->stream != op->stream && !is_asleep();
  case DO_HOLD:
    return !w.held[op->stream];
  case DO_FINISH:
    return w.held[op->stream] || queue->done != queue->last;
  case DO_WAKE:
    return is_asleep();
  case DO_COMMIT:
    return !w.places[op->which].ptr;
  case DO_DISCARD:
    return w.places[op->which].ptr != NULL;
  case DO_LEND:
  case DO_LAUNCH:
    return !w.is_lent;
  case DO_RECALL:
    return w.is_lent;
  case DO_EXPORT:
    return b->ptr && !b->is_imported && !w.frames[frame_at((uint64_t)(uintptr_t)b->ptr)].is_shared;
  default:
    return 1;
  }
}

/* Work of the stream that uses all of the block. */
static void use(const block *b, int stream) {
  size_t offset;
  uint32_t work = ++w.after[stream].at[stream];
  for (offset = 0; offset < b->bytes; offset += CELL) {
    uint64_t at = (uint64_t)(uintptr_t)b->ptr + offset;
    int slot = window_slot(at), place = place_at(at);
    w.frames[frame_at(at)].used[at % CHUNK / CELL].at[stream] = work;
    if (slot >= 0) w.window_used[slot].at[stream] = work;
    if (place >= 0) w.place_used[place].at[stream] = work;
  }
}

/* Whether the program first makes the operation's stream wait for the block's own. */
static int orders(const operation *op) {
  const block *b = &w.blocks[op->which % BLOCKS];
  if (op->call == DO_RECORD) return 1;
  if (op->call == DO_DISCARD) return op->stream != w.places[op->which].stream;
  if (op->call == DO_LEND || op->call == DO_LAUNCH) return op->stream != w.turn;
  return op->call == DO_FREE && op->stream != b->stream && !(b->recorded >> b->stream & 1);
}

#define ORDER_CALLS 2

static void order(int later, int earlier) {
  int code = 0;
  expect(!table.event_record(table.user, w.own_event, w.streams[earlier], &code) &&
             !table.stream_wait(table.user, w.streams[later], w.own_event, &code),
         "the test's own event");
}

static void own(const block *b, int owner) {
  size_t offset;
  for (offset = 0; offset < b->bytes && !is_asleep(); offset += CELL) {
    uint64_t at = (uint64_t)(uintptr_t)b->ptr + offset;
    w.frames[frame_at(at)].owner[at % CHUNK / CELL] = owner;
  }
}

/* The memory is nobody's, and what used it is done or waited for. */
static void expect_covered(const block *b) {
  stamp cover = w.known;
  size_t offset;
  join(&cover, &w.after[b->stream]);
  for (offset = 0; offset < b->bytes; offset += CELL) {
    uint64_t at = (uint64_t)(uintptr_t)b->ptr + offset;
    int frame = frame_at(at);
    expect(frame >= 0, "a block lies in memory that is not mapped");
    if (frame < 0) return;
    expect(!w.frames[frame].owner[at % CHUNK / CELL], "two live blocks overlap");
    expect(!w.frames[frame].is_shared || b->is_imported, "what was exported serves again");
    expect(covers(&cover, &w.frames[frame].used[at % CHUNK / CELL]),
           "handed over while work may still use it");
  }
}

/* Whether whole chunks, free or still to be created, would do; where address space is short the
   windows that are live may be in the way. */
static int is_servable(size_t bytes) {
  const gmlk_arena *a = &w.lake->home;
  const size_t backed = mock_of_world()->census.physical_bytes / CHUNK;
  size_t slot, chunks = 0;
  if (with->window_slots < SLOTS) return 0;
  for (slot = 0; slot < a->slot_count; slot++) {
    int frame = frame_at(gmlk_slot_home(a, (uint32_t)slot));
    if (frame < 0) continue;
    chunks += !w.frames[frame].owner[0] && !w.frames[frame].owner[1];
  }
  return (chunks + (with->limit_chunks ? with->limit_chunks : (size_t)with->chunks) - backed) *
             CHUNK >=
         bytes;
}

static gmlake_alloc_desc wanted_by(const operation *op) {
  gmlake_alloc_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = sizes[op->which] - SLACK;
  if (op->call == DO_BORROW) wanted.flags = GMLAKE_TRANSIENT;
  if (with->shares) wanted.flags = GMLAKE_EXCLUSIVE;
  return wanted;
}

/* Blocks with GMLAKE_EXCLUSIVE own whole chunks. */
static size_t bytes_by(const operation *op) {
  return with->shares ? (sizes[op->which] + CHUNK - 1) & ~(CHUNK - 1) : sizes[op->which];
}

static int is_of_pool(const void *ptr) {
  gmlake_allocation_info info;
  expect(!gmlake_get_allocation(w.lake, ptr, &info), "gmlake_get_allocation");
  return w.pool && info.pool == w.pool;
}

static gmlake_result do_alloc(const operation *op) {
  block *b = w.blocks;
  void *ptr = &ptr;
  const gmlake_alloc_desc wanted = wanted_by(op);
  gmlake_result result = gmlake_alloc_with(w.lake, &wanted, w.streams[op->stream], &ptr);
  while (b->ptr) b++;
  expect(!result == (ptr != NULL), "the pointer and the result contradict");
  if (result) {
    expect(result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED,
           "another error than for want of memory");
    return result;
  }
  memset(b, 0, sizeof(*b));
  b->ptr = (unsigned char *)ptr;
  b->bytes = bytes_by(op);
  b->requested = wanted.bytes;
  b->stream = op->stream;
  b->is_borrowed = is_of_pool(ptr);
  expect(!b->is_borrowed || op->call == DO_BORROW, "lent to who did not ask for it");
  expect_covered(b);
  if (broken) return result;
  own(b, (int)(b - w.blocks) + 1);
  use(b, b->stream);
  return result;
}

static gmlake_result do_free(const operation *op) {
  block *b = &w.blocks[op->which];
  gmlake_result result;
  int s = op->stream;
  if (orders(op)) order(s, b->stream);
  if (b->is_imported) use(b, s);
  own(b, 0); /* shared memory goes at once, if its work is complete */
  result = gmlake_free(w.lake, b->ptr, w.streams[s]);
  if (result)
    own(b, op->which + 1);
  else
    memset(b, 0, sizeof(*b));
  return result;
}

static gmlake_result do_record(const operation *op) {
  block *b = &w.blocks[op->which];
  gmlake_result result;
  order(op->stream, b->stream);
  result = gmlake_record_stream(w.lake, b->ptr, w.streams[op->stream]);
  if (result) return result;
  use(b, op->stream);
  b->recorded |= 1u << op->stream;
  return result;
}

static gmlake_result do_commit(const operation *op) {
  const size_t offset = op->which * CHUNK;
  const gmlake_result result =
      gmlake_buffer_commit(w.lake, w.buffer, offset, CHUNK, w.streams[op->stream]);
  block *b = &w.places[op->which];
  if (result) {
    expect(result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED,
           "another error than for want of memory");
    return result;
  }
  b->ptr = w.base + offset;
  b->bytes = CHUNK;
  b->stream = op->stream;
  expect_covered(b);
  if (broken) return result;
  own(b, BLOCKS + 1 + op->which);
  use(b, b->stream);
  return result;
}

static gmlake_result do_discard(const operation *op) {
  block *b = &w.places[op->which];
  gmlake_result result;
  if (orders(op)) order(op->stream, b->stream);
  result = gmlake_buffer_discard(w.lake, w.buffer, op->which * CHUNK, CHUNK, w.streams[op->stream]);
  if (result) return result;
  own(b, 0);
  memset(b, 0, sizeof(*b));
  return result;
}

/* Every block is nobody's memory before sleep, and owns what it has after it. */
static void own_all(int owns) {
  int i;
  for (i = 0; i < BLOCKS; i++) {
    if (!w.blocks[i].ptr) continue;
    if (owns && !is_asleep()) expect_covered(&w.blocks[i]);
    if (!broken) own(&w.blocks[i], owns ? i + 1 : 0);
  }
}

/* The program waits for all work first. */
static gmlake_result do_sleep(const operation *op) {
  size_t before = mock_of_world()->census.physical_bytes, released = SIZE_MAX;
  const int slept = is_asleep();
  gmlake_result result;
  int s;
  for (s = 0; s < STREAMS; s++) {
    w.held[s] = 0;
    gmlake_mock_stream_finish(w.mock, w.streams[s]);
    join(&w.known, &w.after[s]);
  }
  own_all(0);
  result =
      gmlake_pool_sleep(w.lake, NULL, op->which ? GMLAKE_SLEEP_KEEP : GMLAKE_SLEEP_DROP, &released);
  own_all(1);
  expect(result || is_asleep(), "it does not sleep");
  expect(!slept || is_asleep(), "it has woken by itself");
  expect(released == before - mock_of_world()->census.physical_bytes,
         "what sleep says it released");
  return result;
}

static gmlake_result do_wake(void) {
  const gmlake_result result = gmlake_pool_wake(w.lake, NULL);
  expect(result ? is_asleep() : w.lake->home.sleep == GMLK_AWAKE, "it wakes, or it does not");
  own_all(1);
  return result;
}

static gmlake_result do_trim(void) {
  const size_t before = mock_of_world()->census.handle_count;
  size_t released = SIZE_MAX;
  gmlake_result result = gmlake_trim(w.lake, 0, &released);
  expect(released == (before - mock_of_world()->census.handle_count) * CHUNK,
         "what trim says it released");
  return result;
}

/* The program has the graph's launches before this point of the stream. */
static gmlake_result do_lend(const operation *op) {
  gmlake_result result;
  if (orders(op)) order(op->stream, w.turn);
  result = gmlake_pool_lend(w.lake, w.pool, w.streams[op->stream]);
  if (!result) w.is_lent = 1;
  return result;
}

static gmlake_result do_recall(const operation *op) {
  const gmlake_result result = gmlake_pool_recall(w.lake, w.pool, w.streams[op->stream]);
  int i, is_borrowed = 0;
  for (i = 0; i < BLOCKS; i++) is_borrowed |= w.blocks[i].ptr && w.blocks[i].is_borrowed;
  expect(!is_borrowed || result == GMLAKE_ERROR_BUSY, "recalled under a borrower");
  expect(is_borrowed || result != GMLAKE_ERROR_BUSY, "busy without a borrower");
  if (result) return result;
  w.is_lent = 0;
  w.turn = op->stream;
  return result;
}

/* The graph uses what it was captured with, behind its last launch, or behind recall. */
static gmlake_result do_launch(const operation *op) {
  int i;
  if (orders(op)) order(op->stream, w.turn);
  expect(!gmlake_mock_launch(w.mock, w.pool, 1, w.streams[op->stream]), "the mock's launch");
  for (i = 0; i < GRAPH && !broken; i++) {
    w.graph[i].stream = op->stream;
    if (i == LIVE_ONE) own(&w.graph[i], 0);
    expect_covered(&w.graph[i]);
    if (broken) break;
    if (i == LIVE_ONE) own(&w.graph[i], BLOCKS + PLACES + 1);
    use(&w.graph[i], op->stream);
  }
  w.turn = op->stream;
  return GMLAKE_OK;
}

static gmlake_result do_export(const operation *op) {
  const block *b = &w.blocks[op->which];
  gmlake_handle handles[SLOTS];
  size_t count = 0;
  const gmlake_result result =
      gmlake_export(w.lake, b->ptr, GMLAKE_HANDLE_POSIX_FD, handles, SLOTS, &count);
  size_t i, shared = 0;
  if (result) { /* what the driver let out before is not known to anybody */
    for (i = 0; i < b->bytes; i += CHUNK)
      w.frames[frame_at((uint64_t)(uintptr_t)b->ptr + i)].is_shared = 0;
    return result;
  }
  for (i = 0; i < b->bytes; i += CHUNK)
    shared += w.frames[frame_at((uint64_t)(uintptr_t)b->ptr + i)].is_shared != 0;
  expect(count == b->bytes / CHUNK && shared == count, "the handles of a block");
  return result;
}

static gmlake_result do_import(const operation *op) {
  block *b = w.blocks;
  gmlake_handle handle;
  void *ptr = &ptr;
  gmlake_result result;
  memset(&handle, 0, sizeof(handle));
  handle.type = GMLAKE_HANDLE_POSIX_FD;
  handle.bytes = CHUNK;
  result = gmlake_import(w.lake, &handle, 1, &ptr);
  expect(!result == (ptr != NULL), "the pointer and the result contradict");
  while (b->ptr) b++;
  if (result) return result;
  memset(b, 0, sizeof(*b));
  b->ptr = (unsigned char *)ptr;
  b->bytes = b->requested = CHUNK;
  b->stream = op->stream;
  b->is_imported = 1;
  expect_covered(b);
  if (broken) return result;
  own(b, (int)(b - w.blocks) + 1);
  return result; /* no stream that the lake knows of uses it before it is freed */
}

static gmlake_result apply(const operation *op) {
  gmlake_stream stream = w.streams[op->stream];
  switch (op->call) {
  case DO_ALLOC:
  case DO_BORROW:
    return do_alloc(op);
  case DO_FREE:
    return do_free(op);
  case DO_RECORD:
    return do_record(op);
  case DO_HOLD:
    w.held[op->stream] = 1;
    gmlake_mock_stream_hold(w.mock, stream);
    return GMLAKE_OK;
  case DO_FINISH:
    w.held[op->stream] = 0;
    gmlake_mock_stream_finish(w.mock, stream);
    return GMLAKE_OK;
  case DO_FORGET: /* its value comes back as the same stream, which is the harder case */
    return gmlake_forget_stream(w.lake, stream);
  case DO_SLEEP:
    return do_sleep(op);
  case DO_WAKE:
    return do_wake();
  case DO_COMMIT:
    return do_commit(op);
  case DO_DISCARD:
    return do_discard(op);
  case DO_LEND:
    return do_lend(op);
  case DO_RECALL:
    return do_recall(op);
  case DO_LAUNCH:
    return do_launch(op);
  case DO_EXPORT:
    return do_export(op);
  case DO_IMPORT:
    return do_import(op);
  default:
    return do_trim();
  }
}

/* ---- What always holds ----------------------------------------------------------------------- */

static void expect_books_balance(void) {
  gmlake_mock_census census;
  gmlake_stats stats;
  size_t i, live = w.pool != NULL, bytes = w.graph[LIVE_ONE].bytes;
  size_t requested = w.graph[LIVE_ONE].requested;
  for (i = 0; i < BLOCKS; i++) {
    const block *b = &w.blocks[i];
    if (!b->ptr) continue;
    live++;
    bytes += b->bytes;
    requested += b->requested;
  }
  if (w.is_lent)
    expect(gmlake_mock_launch(w.mock, w.pool, 1, w.streams[0]) == GMLAKE_ERROR_BUSY,
           "launched while it is lent");
  for (i = 0; i < PLACES; i++) bytes += w.places[i].bytes;
  for (i = 0; i < PLACES; i++) requested += w.places[i].bytes;
  stats.struct_bytes = 0;
  gmlake_mock_get_census(w.mock, &census);
  expect(!gmlake_get_stats(w.lake, &stats), "gmlake_get_stats");
  expect(stats.live_count == live && stats.active_bytes == bytes, "the figures of live blocks");
  expect(stats.requested_bytes == requested, "requested_bytes");
  expect(stats.reserved_bytes == census.physical_bytes + stats.imported_bytes,
         "reserved_bytes and the census");
  expect(census.handle_count * CHUNK == stats.reserved_bytes, "a released chunk is still mapped");
  expect(stats.quarantined_bytes || stats.chunk_count == census.handle_count, "chunk_count");
  expect(!with->limit_chunks || census.handle_count <= with->limit_chunks, "the limit");
  if (gmlake_check(w.lake)) expect(0, w.lake->error.text);
}

/* The graph's launches are over before the pool goes. */
static void expect_destroyed(void) {
  gmlake_mock_census left;
  int code = 0, s;
  for (s = 0; s < STREAMS && w.pool; s++) {
    gmlake_mock_stream_finish(w.mock, w.streams[s]);
    join(&w.known, &w.after[s]);
  }
  expect(!gmlake_destroy(w.lake), "gmlake_destroy");
  w.lake = NULL;
  expect(!table.event_destroy(table.user, w.own_event, &code), "the test's own event");
  gmlake_mock_get_census(w.mock, &left);
  expect(!left.handle_count && !left.mapping_count && !left.reservation_count && !left.event_count,
         "destroy leaves something on the device");
  gmlake_mock_destroy(w.mock);
  expect(h.live == 0, "destroy leaves host memory");
}

/* ---- A state, written down ------------------------------------------------------------------- */

#define KEY_MAX 8192
#define NUMBERS 32 /* of streams in the lake, forgotten ones too */

static struct key {
  size_t bytes;
  unsigned char text[KEY_MAX];
  unsigned char matters[NUMBERS][GMLK_FENCES + 1]; /* some tag needs the fence of that place */
} key;

static void put(unsigned value) {
  if (key.bytes + 2 > KEY_MAX) fail_msg("a state is too long");
  key.text[key.bytes++] = (unsigned char)value;
  key.text[key.bytes++] = (unsigned char)(value >> 8);
}

static void put_wide(unsigned value) {
  put(value & 0xFFFF);
  put(value >> 16);
}

static const gmlk_stream *stream_at(unsigned number) { return w.lake->streams.items[number]; }

/* Which of the stream's fences covers a ticket first; its count: none. */
static unsigned cover_of(const gmlk_stream *s, uint64_t ticket) {
  unsigned i = 0;
  while (i < s->fence_count && s->fences[(s->fence_head + i) % GMLK_FENCES].epoch < ticket) i++;
  return i;
}

typedef void (*visitor)(unsigned stream, uint64_t ticket);

static void note_fence(unsigned stream, uint64_t ticket) {
  if (stream < GMLK_FIRST_STREAM) return;
  if (stream_at(stream)->done < ticket)
    key.matters[stream][cover_of(stream_at(stream), ticket)] = 1;
}

/* How many fences that matter lie before this one. */
static unsigned rank_of(unsigned stream, unsigned fence) {
  unsigned i, rank = 0;
  for (i = 0; i < fence; i++) rank += key.matters[stream][i];
  return rank;
}

/* A tag: clean, complete but not yet clean, behind a fence, or in the open epoch; and who has been
   made to wait for it. */
static void put_tag(unsigned stream, uint64_t ticket) {
  const gmlk_stream *s = stream < GMLK_FIRST_STREAM ? NULL : stream_at(stream);
  unsigned cover, waited = 0;
  size_t i;
  put(stream);
  if (!s) return;
  cover = cover_of(s, ticket);
  for (i = GMLK_FIRST_STREAM; i < w.lake->streams.count; i++)
    waited |= (unsigned)gmlk_stream_has_waited(&w.lake->streams, (unsigned)i, stream, ticket) << i;
  if (s->done >= ticket) {
    put(0xFFFF);
    return;
  }
  put(cover == s->fence_count ? 0xFFFE : rank_of(stream, cover));
  put_wide(waited);
}

/* The arena of that number; NULL: none, or one of buffers. */
static const gmlk_arena *arena_at(size_t number) {
  const gmlk_arena *a = w.lake->arenas[number];
  return a && !a->is_bare ? a : NULL;
}

static void visit_arena(const gmlk_arena *a, visitor visit) {
  const gmlk_block *b;
  const gmlk_window *window;
  for (b = a->head.next; b != &a->tail; b = b->next)
    if (b->state == GMLK_FREE) visit(b->stream, b->ticket);
  for (window = a->windows.idle_first; window; window = window->idle_next)
    visit(window->self.stream, window->self.ticket);
}

static void visit_tags(visitor visit) {
  const gmlk_note *note;
  size_t i;
  for (i = 0; i < w.lake->arena_count; i++)
    if (arena_at(i)) visit_arena(arena_at(i), visit);
  for (i = 0; w.is_lent && i < w.pool->loan.count; i++)
    visit(w.pool->loan.users[i].stream, w.pool->loan.users[i].epoch);
  for (i = 0; w.buffer && i < w.buffer->place_count; i++)
    if (w.buffer->places[i].state == GMLK_PLACE_MAPPED)
      visit(w.buffer->places[i].stream, w.buffer->places[i].ticket);
  for (i = 0; i < w.lake->arena_count; i++) {
    note = NULL;
    while (arena_at(i) && (note = gmlk_pending_next(w.lake, arena_at(i), note)) != NULL) {
      size_t use;
      visit(note->stream, note->ticket);
      for (use = 0; use < note->used_count; use++)
        visit(note->used[use].stream, note->used[use].ticket);
    }
  }
}

static void put_list(const gmlk_bins *holes) {
  unsigned bin;
  for (bin = 0; holes && bin < GMLK_BINS_EXACT; bin++) {
    const gmlk_block *b = gmlk_bin_first(holes, bin);
    if (!b || !gmlk_bin_next(holes, bin, b)) continue;
    put(bin);
    for (; b; b = gmlk_bin_next(holes, bin, b)) put(b->at);
  }
  put(0xFFFE);
}

static void put_tiles(const gmlk_block *b, const gmlk_block *tail, int are_blocks) {
  size_t i;
  for (; b != tail; b = b->next) {
    const gmlk_note *note = are_blocks && b->state == GMLK_LIVE ? b->as.live.note : NULL;
    put(b->at);
    put((unsigned)b->state);
    if (b->state == GMLK_LIVE) put(b->stream);
    for (i = 0; note && i < note->used_count; i++) put(note->used[i].stream);
  }
  put(b->at);
}

static void put_window(const gmlk_window *window) {
  uint32_t i;
  const gmlk_note *note = window->self.state == GMLK_IDLE ? NULL : window->self.as.live.note;
  put(window->va->at);
  put((unsigned)window->self.state);
  put(window->self.stream);
  for (i = 0; i < window->span_count; i++) put(window->spans[i].at << 8 | window->spans[i].grains);
  for (i = 0; note && i < note->used_count; i++) put(note->used[i].stream);
}

static void put_windows(const gmlk_arena *a) {
  const gmlk_windows *spool = &a->windows;
  const gmlk_space *space = &a->window_space;
  const gmlk_window *window;
  for (window = spool->idle_first; window; window = window->idle_next) {
    const gmlk_window *other;
    unsigned age = 0;
    for (other = spool->idle_first; other; other = other->idle_next)
      age += other->number < window->number;
    put(age);
    put(window->key < GMLK_BLOCKED);
    put_window(window);
  }
  put_tiles(space->head.next, &space->tail, 0);
  put_list(space->holes);
}

static void put_arena(const gmlk_arena *a) {
  size_t i;
  put((unsigned)a->sleep | (unsigned)(a->copy_count != 0) << 2);
  for (i = 0; i < a->slot_count && a->sleep; i++)
    put((unsigned)gmlk_chunk_at(&a->chunks, (uint32_t)i)->is_asleep);
  for (i = 0; i < a->slot_count && with->shares; i++)
    put((unsigned)gmlk_chunk_at(&a->chunks, (uint32_t)i)->is_shared);
  for (i = 0; i < a->slot_count && with->lends; i++)
    put((unsigned)gmlk_chunk_at(&a->chunks, (uint32_t)i)->is_known);
  put_tiles(a->head.next, &a->tail, 1);
  for (i = 0; i < a->bins_capacity; i++) put_list(a->bins[i]);
  put_windows(a);
}

static void put_arenas(void) {
  size_t i;
  for (i = 0; i < w.lake->arena_count; i++) {
    put((unsigned)i);
    if (arena_at(i)) put_arena(arena_at(i));
  }
  put((unsigned)w.turn | (unsigned)w.is_lent << 1);
  for (i = 0; w.buffer && i < w.buffer->place_count; i++) {
    put(w.buffer->places[i].state);
    if (w.buffer->places[i].state) put(w.buffer->places[i].slot);
    put((unsigned)w.places[i].stream);
  }
}

static void put_streams(void) {
  const gmlk_streams *streams = &w.lake->streams;
  const gmlk_note *note;
  size_t i;
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) {
    const gmlk_stream *s = streams->items[i];
    put((unsigned)(s->value == w.streams[1]) | (unsigned)s->is_used << 1 |
        (unsigned)s->is_forgotten << 2 | (unsigned)s->is_dirty << 3 | (unsigned)s->is_news << 5);
    put((unsigned)(s->freed_bytes > CHUNK ? CHUNK : s->freed_bytes));
  }
  for (i = 0; i < w.lake->arena_count; i++)
    for (note = NULL; arena_at(i) && (note = gmlk_pending_next(w.lake, arena_at(i), note)) != NULL;)
      put(note->block->at);
}

#define QUEUES 8
#define NEEDS_MAX 256

typedef struct need { /* by queue: the last of its pending work that has to be finished, 0: none */
  uint64_t at[QUEUES];
} need;

/* What has to be finished before a queue's work up to a sequence is complete, waits followed. */
static need need_of(const gmlk_mock *mock, size_t queue, uint64_t sequence) {
  need wanted, looked, result;
  size_t i;
  int moved;
  memset(&wanted, 0, sizeof(wanted));
  memset(&result, 0, sizeof(result));
  for (i = 0; i < mock->queue_count; i++) looked.at[i] = mock->queues[i].done;
  wanted.at[queue] = sequence;
  do {
    for (moved = 0, i = 0; i < mock->queue_count; i++) {
      const gmlk_mock_queue *q = &mock->queues[i];
      for (; looked.at[i] < wanted.at[i] && looked.at[i] < q->last; moved = 1) {
        uint64_t at = ++looked.at[i];
        const gmlk_mock_work *work = gmlk_mock_work_at(q, at);
        if (work->awaited_sequence > wanted.at[work->awaited_queue])
          wanted.at[work->awaited_queue] = work->awaited_sequence;
        if (!work->awaited_sequence && work->held && at > q->forced) result.at[i] = at;
      }
    }
  } while (moved);
  return result;
}

/* Of the fences that matter, and of what would be queued on each stream next. */
static size_t list_needs(need *needs) {
  const gmlk_mock *mock = mock_of_world();
  const gmlk_streams *streams = &w.lake->streams;
  size_t i, n, count = 0;
  if (mock->queue_count > QUEUES) fail_msg("too many queues");
  for (i = 0; i < mock->queue_count; i++) {
    needs[count] = need_of(mock, i, mock->queues[i].last);
    needs[count++].at[i] = 0; /* the next one comes behind all of its own queue anyway */
  }
  for (i = GMLK_FIRST_STREAM; i < streams->count; i++) {
    const gmlk_stream *s = streams->items[i];
    for (n = 0; n < s->fence_count; n++) {
      const gmlk_mock_event *event = mock_event(s->fences[(s->fence_head + n) % GMLK_FENCES].event);
      if (!key.matters[i][n]) continue;
      if (count == NEEDS_MAX) fail_msg("too many fences");
      needs[count++] = need_of(mock, event->queue, event->sequence);
    }
  }
  return count;
}

/* Whether no need before it is of the same work in a queue. */
static int is_first_of(const need *needs, size_t at, size_t queue) {
  size_t i = 0;
  while (needs[i].at[queue] != needs[at].at[queue]) i++;
  return i == at && needs[at].at[queue];
}

/* Which streams are held, and what has to be finished for what, in each queue by its order. */
static void put_queues(void) {
  static need needs[NEEDS_MAX];
  size_t count = list_needs(needs), i, n, q;
  put((unsigned)w.held[0] | (unsigned)w.held[1] << 1);
  for (i = 0; i < count; i++)
    for (q = 0; q < mock_of_world()->queue_count; q++) {
      unsigned rank = 0;
      for (n = 0; n < count && needs[i].at[q]; n++)
        rank += is_first_of(needs, n, q) && needs[n].at[q] <= needs[i].at[q];
      put(rank);
    }
}

/* Work that may still use some memory: which streams, and which fences, are behind it. */
static void put_used(const stamp *used) {
  const gmlk_streams *streams = &w.lake->streams;
  size_t i, n;
  int s;
  for (s = 0; s < STREAMS; s++) {
    unsigned bits = 1, bit = 2;
    if (w.known.at[s] >= used->at[s]) {
      put_wide(0);
      continue;
    }
    for (i = 0; i < STREAMS; i++, bit <<= 1) bits |= w.after[i].at[s] >= used->at[s] ? bit : 0;
    for (i = GMLK_FIRST_STREAM; i < streams->count; i++)
      for (n = 0; n < streams->items[i]->fence_count; n++) {
        const gmlk_stream *item = streams->items[i];
        const void *event = item->fences[(item->fence_head + n) % GMLK_FENCES].event;
        if (!key.matters[i][n]) continue;
        if (w.events[number_of(event)].at[s] >= used->at[s]) bits |= bit;
        bit <<= 1;
        if (!bit) fail_msg("too many fences");
      }
    put_wide(bits);
  }
}

static void put_uses(void) {
  size_t i, n, slot;
  for (i = 0; i < w.lake->arena_count; i++)
    for (slot = 0; arena_at(i) && slot < arena_at(i)->slot_count; slot++) {
      int frame = frame_at(gmlk_slot_home(arena_at(i), (uint32_t)slot));
      for (n = 0; frame >= 0 && n < CELLS; n++) put_used(&w.frames[frame].used[n]);
    }
  for (i = 0; i < 2 * SLOTS; i++) put_used(&w.window_used[i]);
  for (i = 0; i < PLACES; i++) put_used(&w.place_used[i]);
}

static void write_key(void) {
  key.bytes = 0;
  memset(key.matters, 0, sizeof(key.matters));
  if (w.lake->streams.count > NUMBERS) fail_msg("too many streams");
  visit_tags(note_fence);
  put_arenas();
  put_streams();
  visit_tags(put_tag);
  put_queues();
  put_uses();
}

/* ---- The search ------------------------------------------------------------------------------ */

typedef struct digest {
  uint64_t a, b; /* 0, 0: an empty place */
} digest;

typedef struct node {
  uint32_t parent;
  unsigned char op, depth;
} node;

static struct search {
  digest *seen;
  node *nodes;
  size_t capacity, count; /* of seen; of nodes, which has room for half as many */
  uint64_t transitions, refusals, faults;
  int depth;
} search;

typedef struct snapshot {
  struct world world;
  size_t used, live;
  piece *unused;
  unsigned char bytes[HEAP_BYTES];
} snapshot;

static snapshot first, base; /* the empty world; the state that is expanded */

static void save(snapshot *s) {
  s->world = w;
  s->used = h.used;
  s->live = h.live;
  s->unused = h.unused;
  memcpy(s->bytes, heap_base, h.used);
}

static void restore(const snapshot *s) {
  w = s->world;
  h.used = s->used;
  h.live = s->live;
  h.unused = s->unused;
  memcpy(heap_base, s->bytes, s->used);
}

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

static digest digest_of_key(void) {
  digest d = {1, 2};
  size_t i;
  for (i = 0; i < key.bytes; i += 2) {
    uint64_t value = (uint64_t)key.text[i] | (uint64_t)key.text[i + 1] << 8;
    d.a = mix(d.a + value + 0x9E3779B97F4A7C15u);
    d.b = mix(d.b * 31 + value + i);
  }
  if (!d.a) d.a = 1;
  return d;
}

static void grow_search(void) {
  digest *old = search.seen;
  size_t old_capacity = search.capacity, i, at;
  search.capacity = old_capacity ? old_capacity * 2 : (size_t)1 << 16;
  search.seen = (digest *)calloc(search.capacity, sizeof(digest));
  search.nodes = (node *)realloc(search.nodes, search.capacity / 2 * sizeof(node));
  assert_true(search.seen && search.nodes);
  for (i = 0; i < old_capacity; i++) {
    if (!old[i].a) continue;
    for (at = (size_t)old[i].b; search.seen[at & (search.capacity - 1)].a;) at++;
    search.seen[at & (search.capacity - 1)] = old[i];
  }
  free(old);
}

/* Whether the state that is written down is new; it then has a node. */
static int enter_state(uint32_t parent, size_t op, int depth) {
  digest d = digest_of_key();
  size_t at = (size_t)d.b;
  node *added;
  if (search.count == search.capacity / 2) grow_search();
  for (;; at++) {
    digest *place = &search.seen[at & (search.capacity - 1)];
    if (place->a == d.a && place->b == d.b) return 0;
    if (place->a) continue;
    *place = d;
    break;
  }
  added = &search.nodes[search.count++];
  added->parent = parent;
  added->op = (unsigned char)op;
  added->depth = (unsigned char)depth;
  return 1;
}

/* The operations that lead to a node. */
static size_t path_to(uint32_t at, unsigned char *ops) {
  size_t depth = search.nodes[at].depth, i = depth;
  while (i) {
    ops[--i] = search.nodes[at].op;
    at = search.nodes[at].parent;
  }
  return depth;
}

static void print_operation(size_t number) {
  static const char *const names[] = {"alloc",  "free",   "record", "hold",   "finish",  "forget",
                                      "trim",   "sleep",  "wake",   "commit", "discard", "lend",
                                      "recall", "borrow", "launch", "export", "import"};
  const operation *op = &operations[number];
  print_message(
      "  %s %d on stream %d\n", names[op->call],
      op->call == DO_ALLOC || op->call == DO_BORROW ? (int)sizes[op->which] : (int)op->which,
      (int)op->stream);
}

/* Fails with the way to the rule that was broken. */
static void settle(uint32_t at, size_t op, uint64_t fault) {
  unsigned char ops[DEPTH_MAX];
  size_t count, i;
  if (!broken) return;
  count = path_to(at, ops);
  for (i = 0; i < count; i++) print_operation(ops[i]);
  print_operation(op);
  fail_msg("%s: %s (call %llu of the last one failed)", with->name, broken,
           (unsigned long long)fault);
}

static void open_buffer(void) {
  gmlake_buffer_desc desc;
  gmlake_buffer_info info;
  memset(&desc, 0, sizeof(desc));
  desc.max_bytes = PLACES * CHUNK;
  desc.chunk_bytes = CHUNK;
  assert_int_equal(gmlake_buffer_create(w.lake, &desc, &w.buffer), GMLAKE_OK);
  assert_int_equal(gmlake_buffer_get_info(w.lake, w.buffer, &info), GMLAKE_OK);
  w.base = (unsigned char *)info.ptr;
}

/* A pool with a graph of three blocks, the second of which stays live. */
static void open_pool(void) {
  gmlake_pool_desc desc;
  const gmlake_stream stream = w.streams[0];
  int i;
  memset(&desc, 0, sizeof(desc));
  assert_int_equal(gmlake_pool_create(w.lake, &desc, &w.pool), GMLAKE_OK);
  assert_int_equal(gmlake_capture_begin(w.lake, stream, w.pool), GMLAKE_OK);
  for (i = 0; i < GRAPH; i++) {
    block *b = &w.graph[i];
    void *ptr;
    b->bytes = CHUNK;
    b->requested = CHUNK - SLACK;
    assert_int_equal(gmlake_alloc(w.lake, b->requested, stream, &ptr), GMLAKE_OK);
    b->ptr = (unsigned char *)ptr;
  }
  for (i = 0; i < GRAPH; i++)
    if (i != LIVE_ONE) assert_int_equal(gmlake_free(w.lake, w.graph[i].ptr, stream), GMLAKE_OK);
  assert_int_equal(gmlake_capture_end(w.lake, stream), GMLAKE_OK);
  own(&w.graph[LIVE_ONE], BLOCKS + PLACES + 1);
}

static void open_world(void) {
  gmlake_mock_desc mock_desc;
  gmlake_desc desc;
  int s, code = 0;
  memset(&w, 0, sizeof(w));
  memset(&h, 0, sizeof(h));
  heap_base = (unsigned char *)(((uintptr_t)h.bytes + HEAP_LINE - 1) & ~(uintptr_t)(HEAP_LINE - 1));
  memset(&mock_desc, 0, sizeof(mock_desc));
  memset(&desc, 0, sizeof(desc));
  mock_desc.capacity_bytes = (size_t)with->chunks * CHUNK;
  mock_desc.granularity_bytes = CHUNK;
  mock_desc.bookkeeping_only = 1;
  assert_int_equal(gmlake_mock_create(&mock_desc, &w.mock), GMLAKE_OK);
  for (s = 0; s < STREAMS; s++)
    assert_int_equal(gmlake_mock_stream_create(w.mock, &w.streams[s]), GMLAKE_OK);
  watch();
  assert_int_equal(table.event_create(table.user, &w.own_event, &code), GMLAKE_OK);
  desc.backend = &table;
  desc.flags = GMLAKE_SINGLE_THREADED;
  desc.chunk_bytes = CHUNK;
  desc.cross_stream = with->cross_stream;
  desc.limit_bytes = with->limit_chunks * CHUNK;
  desc.stitched_bytes_max = with->stitched_chunks_max * CHUNK;
  desc.handle_types = with->shares ? GMLAKE_HANDLE_POSIX_FD : 0;
  desc.arena_bytes = (size_t)(with->chunks + 1) * CHUNK;
  desc.window_bytes = with->window_slots * CHUNK;
  assert_int_equal(gmlake_create(&desc, &w.lake), GMLAKE_OK);
  if (with->pages) open_buffer();
  if (with->lends) open_pool();
  save(&first);
}

static uint64_t call_count(void) { return mock_of_world()->census.call_count; }

/* The operation again and again from the same state, each of its calls failing once. */
static void try_faults(uint32_t at, size_t number, uint64_t calls) {
  const operation *op = &operations[number];
  uint64_t n;
  restore(&base);
  for (n = orders(op) ? ORDER_CALLS + 1 : 1; n <= calls; n++) {
    restore(&base);
    gmlake_mock_fail_at(w.mock, call_count() + n, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 0);
    (void)apply(op);
    gmlake_mock_fail_at(w.mock, 0, GMLAKE_OK, 0);
    expect_books_balance();
    if (!broken) expect_destroyed();
    settle(at, number, n);
    search.faults++;
  }
}

static gmlake_stats stats_now(void) {
  gmlake_stats stats;
  stats.struct_bytes = 0;
  expect(!gmlake_get_stats(w.lake, &stats), "gmlake_get_stats");
  return stats;
}

/* What gmlake_query says of the allocation, from the same state. */
static gmlake_query_info foretell(const operation *op) {
  const size_t physical = mock_of_world()->census.physical_bytes;
  gmlake_alloc_desc wanted;
  gmlake_query_info said;
  wanted = wanted_by(op);
  memset(&said, 0, sizeof(said));
  expect(!gmlake_query(w.lake, &wanted, w.streams[op->stream], &said), "gmlake_query");
  expect(physical == mock_of_world()->census.physical_bytes, "a question has changed memory");
  if (gmlake_check(w.lake)) expect(0, w.lake->error.text);
  restore(&base);
  return said;
}

static void expect_foretold(const gmlake_query_info *said, gmlake_result result,
                            const gmlake_stats *before) {
  const gmlake_stats now = stats_now();
  gmlake_wait wait = GMLAKE_NO_WAIT;
  if (now.stream_wait_count > before->stream_wait_count) wait = GMLAKE_DEVICE_WAIT;
  if (now.host_wait_count > before->host_wait_count) wait = GMLAKE_HOST_WAIT;
  expect(!said->result == !result, "gmlake_query told another result");
  if (result || broken) return;
  expect(said->wait == wait || (said->new_bytes && said->wait == GMLAKE_DEVICE_WAIT && !wait) ||
             (said->wait == GMLAKE_HOST_WAIT && !wait), /* enough is complete by now */
         "gmlake_query told another wait");
  expect(!said->new_bytes == (now.state_count[3] == before->state_count[3]),
         "gmlake_query told another growth");
}

/* The map, what is found where, chunks and figures of pools. */
static void expect_answers(void) {
  const char *wrong = map_wrong(w.lake, &w.pool, w.pool != NULL);
  if (wrong) expect(0, wrong);
}

static int may_refuse(const operation *op) {
  if (op->call == DO_ALLOC || op->call == DO_BORROW) return !is_servable(bytes_by(op));
  if (op->call == DO_COMMIT) return !is_servable(CHUNK);
  return op->call == DO_RECALL; /* do_recall knows */
}

static void try_operation(uint32_t at, size_t number) {
  const operation *op = &operations[number];
  gmlake_query_info said;
  gmlake_stats figures;
  uint64_t before;
  gmlake_result result;
  restore(&base);
  if (!is_possible(op)) return;
  if (op->call == DO_ALLOC) said = foretell(op);
  figures = stats_now();
  before = call_count();
  result = apply(op);
  if (op->call == DO_ALLOC && !broken) expect_foretold(&said, result, &figures);
  search.transitions++;
  search.refusals += result != GMLAKE_OK;
  if (result) expect(may_refuse(op), "refused");
  if (!broken) expect_books_balance();
  settle(at, number, 0);
  write_key();
  if (!enter_state(at, number, search.nodes[at].depth + 1)) return;
  if (!is_asleep()) expect_answers();
  before = call_count() - before;
  expect_destroyed();
  settle(at, number, 0);
  if (with->faults && op->call != DO_HOLD && op->call != DO_FINISH && op->call != DO_LAUNCH)
    try_faults(at, number, before);
}

/* Comes back to a node's state by its operations from the first one. */
static void rebuild(uint32_t at) {
  unsigned char ops[DEPTH_MAX];
  size_t count = path_to(at, ops), i;
  restore(&first);
  for (i = 0; i < count; i++) (void)apply(&operations[ops[i]]);
  save(&base);
}

static int asked_depth;

static void explore(const config *c) {
  uint32_t at;
  size_t i;
  int limit = asked_depth ? asked_depth : c->depth, deepest = 0;
  with = c;
  broken = NULL;
  memset(&search, 0, sizeof(search));
  grow_search();
  list_operations();
  open_world();
  write_key();
  (void)enter_state(0, 0, 0);
  for (at = 0; at < search.count && search.nodes[at].depth < limit; at++) {
    deepest = search.nodes[at].depth + 1;
    assert_true(deepest < DEPTH_MAX);
    rebuild(at);
    for (i = 0; i < operation_count; i++) try_operation(at, i);
  }
  print_message("%s: %lu states, %llu calls (%llu refused), %llu faults, depth %d%s\n", c->name,
                (unsigned long)search.count, (unsigned long long)search.transitions,
                (unsigned long long)search.refusals, (unsigned long long)search.faults, deepest,
                at == search.count ? ", nothing new beyond" : "");
  free(search.seen);
  free(search.nodes);
}

static const config configs[] = {
    {"one stream", 3, 1, 2, 2, GMLAKE_GROW_FIRST, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 22},
    {"two streams", 2, 2, 2, 1, GMLAKE_GROW_FIRST, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, WHOLE},
    {"two sizes", 2, 2, 2, 2, GMLAKE_GROW_FIRST, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7},
    {"grow first", 4, 2, 3, 4, GMLAKE_GROW_FIRST, SLOTS, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5},
    {"wait first", 4, 2, 3, 4, GMLAKE_WAIT_FIRST, SLOTS, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5},
    {"limit", 4, 2, 3, 4, GMLAKE_WAIT_FIRST, SLOTS, 3, 0, 0, 0, 0, 0, 0, 0, 0, 4},
    {"few windows", 4, 2, 3, 4, GMLAKE_GROW_FIRST, SLOTS, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4},
    {"records", 4, 2, 3, 4, GMLAKE_GROW_FIRST, SLOTS, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4},
    {"forgets", 4, 2, 3, 4, GMLAKE_WAIT_FIRST, SLOTS, 0, 0, 1, 1, 0, 0, 0, 0, 0, 4},
    {"faults", 4, 2, 3, 4, GMLAKE_WAIT_FIRST, SLOTS, 0, 0, 1, 0, 1, 0, 0, 0, 0, 4},
    {"sleep", 3, 2, 2, 2, GMLAKE_GROW_FIRST, 4, 0, 0, 1, 0, 0, 1, 0, 0, 0, 6},
    {"sleep and faults", 3, 2, 2, 2, GMLAKE_WAIT_FIRST, 4, 0, 0, 0, 0, 1, 1, 0, 0, 0, 4},
    {"pages", 3, 2, 2, 2, GMLAKE_GROW_FIRST, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 5},
    {"pages waiting first", 3, 2, 2, 2, GMLAKE_WAIT_FIRST, SLOTS, 0, 0, 1, 0, 1, 0, 1, 0, 0, 4},
    {"lending", 5, 2, 2, 2, GMLAKE_GROW_FIRST, SLOTS, 0, 0, 0, 0, 0, 0, 0, 1, 0, 5},
    {"lending and faults", 5, 2, 2, 4, GMLAKE_WAIT_FIRST, SLOTS, 0, 0, 1, 0, 1, 0, 0, 1, 0, 4},
    {"sharing", 4, 2, 3, 2, GMLAKE_GROW_FIRST, SLOTS, 0, 0, 0, 0, 0, 0, 0, 0, 1, 5},
    {"sharing and faults", 3, 2, 2, 2, GMLAKE_GROW_FIRST, SLOTS, 0, 0, 1, 0, 1, 0, 0, 0, 1, 4},
};

#define CONFIGS (sizeof(configs) / sizeof(configs[0]))

static void test_world(void **state) { explore((const config *)*state); }

static int is_named(const char *name, char **words) {
  if (!*words) return 1;
  for (; *words; words++)
    if (!strcmp(name, *words)) return 1;
  return 0;
}

/* Returns the place of the first world that is named. */
static int parse_arguments(int argc, char **argv) {
  uint64_t depth = 0;
  int is_full = 0, first;
  const option_row rows[] = {
      {"depth", OPTION_COUNT, &depth, 1, DEPTH_MAX - 1, "N", "so many calls deep in every world"},
      {"full", OPTION_FLAG, &is_full, 0, 0, NULL, "until nothing new is found"},
  };
  const option_reader reader = {"test_worlds", "[OPTION]... [WORLD]...", "", "", rows, 2};
  first = options_read(&reader, argc, argv);
  asked_depth = is_full ? WHOLE : (int)depth;
  return first;
}

int main(int argc, char **argv) {
  struct CMUnitTest tests[CONFIGS];
  config chosen[CONFIGS];
  const int first = parse_arguments(argc, argv);
  size_t i, count = 0;
  memset(tests, 0, sizeof(tests));
  for (i = 0; i < CONFIGS; i++) {
    if (!is_named(configs[i].name, argv + first)) continue;
    chosen[count] = configs[i];
    tests[count].name = configs[i].name;
    tests[count].test_func = test_world;
    tests[count].initial_state = &chosen[count];
    count++;
  }
  if (!count || (first < argc && count < (size_t)(argc - first))) {
    fprintf(stderr, "test_worlds: there are no other worlds than");
    for (i = 0; i < CONFIGS; i++) fprintf(stderr, "%s '%s'", i ? "," : "", configs[i].name);
    fprintf(stderr, "\n");
    return 2;
  }
  return _cmocka_run_group_tests("worlds", tests, count, NULL, NULL);
}
