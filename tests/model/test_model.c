/* Random calls on lakes over memory that aliases for real, against a naive model: who owns which
   512 bytes of which physical memory, and which stream's work last used them. The lake's backend
   is the mock behind a table that watches every call and makes some fail, and so is its host
   memory. The model trusts no promise of the lake: a block handed over, unmapped or released is
   covered only if the stream waits for the events, or an event was seen complete, that stand
   behind every earlier use.

   Each lake is a description and a list of operations with every choice resolved, drawn from one
   seed and performed in a child. A list that breaks a rule, or the child, is cut down to what
   still breaks the same rule, and printed as a test. With --seconds lakes follow each other for so
   long, with seeds from S on: `--seed S` of a lake's own seed repeats it first. */
#define GMLK_UNIT_CHUNKS 1024u /* so that an arena has one extent: the model knows it by that */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
static void assertion_failed(const char *condition);
#undef GMLAKE_ASSERT
#define GMLAKE_ASSERT(condition) ((condition) ? (void)0 : assertion_failed(#condition))
#define GMLK_CRUMB_PART 2u /* small lakes have crumbs, too */
#define GMLK_CRUMBS_PART 2u
#define GMLK_CRUMBS_FROM 1u
#include "gmlake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "judge_map.h"
#include "options.h"
#include "patience.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GRAIN ((size_t)512)
#define GRAINS_MAX 128u /* a granule is 64 KiB at most */
#define DIMS 20 /* streams told apart at a time, forgotten ones with work pending included */
#define FRAMES 512
#define CHUNK_FRAMES 4   /* the most of a chunk, */
#define HANDLE_FRAMES 32 /* and of a handle of several chunks */
#define RANGES 64
#define EVENTS 4096
#define BLOCKS 256
#define PENDING 1024
#define POOLS 4 /* [0] is the default pool */
#define BUFFERS 5
#define BUFFER_CHUNKS 12
#define CAPTURES 512
#define PIECES 512
#define OPERATIONS 8192
#define IMPORTS 3        /* live ones at a time; each is an arena of its own */
#define IMPORT_FRAMES 64 /* the most of one */
#define NO_STREAM (-1)

/* ---- What is performed ----------------------------------------------------------------------- */

#define AS_MEMBER(name) long name;
#define ON_DEVICE(X) X(granule_bytes) X(capacity) X(chunk) X(streams) X(bookkeeping_only)
#define ON_OFF(X) X(single_threaded) X(wait_first) X(has_handler) X(fills) X(guards)
#define BOUNDS(X) X(limit) X(driver_free_min) X(arena) X(windows) X(stitched_max)
#define SIZES(X) X(stitch_min_bytes) X(check_every) X(policy) X(handle_chunks) X(shares)
#define CONFIG_FIELDS(X) ON_DEVICE(X) ON_OFF(X) BOUNDS(X) SIZES(X)

typedef struct config {    /* of a lake; all are numbers, so that they can be made smaller */
  CONFIG_FIELDS(AS_MEMBER) /* sizes without _bytes are in granules */
} config;

enum { /* config.policy: which functions it has, and whether some answers are illegal */
       CHOOSES = 1,
       EVICTS = 2,
       COALESCES = 4,
       LIES = 16
};

enum {
  ALLOC,
  FREE,
  RECORD,
  HOLD,
  FINISH,
  LAG,
  CLOCK,
  FORGET,
  POOL_OPEN,
  POOL_CLOSE,
  CAPTURE_BEGIN,
  CAPTURE_END,
  TRIM,
  BUDGET,
  PEAKS,
  MISUSE,
  QUIESCE,
  VERIFY,
  RESIZE,
  SLEEP,
  WAKE,
  MARK,
  PREWARM,
  LEND,
  RECALL,
  LAUNCH,
  SHARE,
  CLOSE
};

#define WHAT(X) X(kind) X(id) X(stream) X(other) X(pool) X(bytes) X(flags) X(alignment) X(victim)
#define FAULTS(X) X(fault_call) X(fault_result) X(fault_stays) X(host_call) X(host_stays)
#define OP_FIELDS(X) WHAT(X) FAULTS(X)

typedef struct op {
  OP_FIELDS(AS_MEMBER)
  /* id: of the block. other: the stream that uses what STREAM_NONE got; who inherits a forgotten
     stream's blocks; 1: FREE is called twice. pool: 0 is the default one. bytes: also of the pool's
     limit, kept by TRIM, of LAG and CLOCK in ns. flags: POOL_OPEN's chunk in granules.
     RESIZE: id is of the buffer, made where there is none; other: it is destroyed first; flags: 1
     commits, 2 discards so many bytes' chunks from the alignment's on; an odd number of chunks is
     committed with wishes. SLEEP: flags 1 keeps. MARK:
     flags is the kind. PREWARM: bytes are held at most, and stay. LAUNCH: all the
     pool's graphs. SHARE: flags: 1 for the id'th buffer, 2 to import it, too, 4 twice, 8 with room
     for no handle; bytes: number of what is imported.
     victim: freed by the handler. *_call: the how manieth call within the operation fails,
     0: none; *_stays: and those behind it. */
} op;

#define CONFIG_LONGS (sizeof(config) / sizeof(long))
#define OP_LONGS (sizeof(op) / sizeof(long))

typedef struct totals {
  uint64_t operations, lakes, faults, stitches, evictions, waits, refused, lost;
} totals;

static struct shared { /* by the child with its parent */
  char rule[256];      /* the first rule found broken */
  uint64_t seed;       /* of the lake under way */
  config with;
  size_t count; /* operations begun */
  op list[OPERATIONS];
  totals sum;
} * shared;

static void broken(const char *rule) {
  (void)snprintf(shared->rule, sizeof(shared->rule), "%s", rule);
  _exit(1);
}

static void assertion_failed(const char *condition) {
  char rule[256];
  (void)snprintf(rule, sizeof(rule), "assertion: %s", condition);
  broken(rule);
}

static void expect(int holds, const char *rule) {
  if (!holds) broken(rule);
}

/* ---- The model ------------------------------------------------------------------------------- */

typedef struct stamp { /* how much work of each stream */
  uint32_t at[DIMS];
} stamp;

typedef struct frame { /* a granule of physical memory */
  int taken;
  uint32_t mapping_count;
  uint32_t owner[GRAINS_MAX]; /* id of the live block, 0: none */
  uint32_t graph[GRAINS_MAX]; /* the capture whose graph uses it, 0: none */
  int is_lent[GRAINS_MAX];    /* was borrowed since its pool was lent */
  int is_shared;              /* was exported */
  stamp used[GRAINS_MAX];
} frame;

typedef struct handle {
  uint64_t value; /* 0: free record */
  size_t frame_count;
  int released;
  int is_foreign; /* imported: memory that is counted as another process's */
  int range;      /* where it was mapped first: its arena */
  int frames[HANDLE_FRAMES];
} handle;

typedef struct cell { /* a granule of address space */
  int frame;          /* -1: nothing is mapped */
  int in_graph, is_accessible;
  int is_known;    /* [at home] its pool had it when a capture ended */
  stamp used;      /* through this mapping */
  uint64_t stitch; /* number of the window mapped here last, in the order of stitches */
  uint32_t *graph; /* [asleep, at home] of the frame that was there */
} cell;

typedef struct range {
  uint64_t base;
  size_t count;
  int is_home;    /* of an arena; else of windows, */
  int is_buffers; /* or of buffers */
  cell *cells;    /* NULL: free record */
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
  int is_unseen;     /* allocated on no stream: the lake may not know the one that uses it */
  uint32_t recorded; /* mask of streams */
  int was_recorded;
  uint32_t capture; /* allocated in it, 0: none */
  int pool;
  unsigned flags;
  int is_shared;               /* was exported, */
  int is_import;               /* or imported; what it shows is of */
  uint32_t content;            /* this block, */
  uint32_t ids[BUFFER_CHUNKS]; /* or, if ids[0] is not 0, of these chunks */
} block;

typedef struct pending { /* freed with streams recorded on it */
  size_t bytes;
  stamp need;
  int may_serve; /* a stream asked for memory since: it may wait on the device, and have it */
} pending;

typedef struct pool {
  gmlake_pool *value; /* NULL: none, and the default one */
  int range;
  size_t limit_bytes, chunk_bytes;
  int is_asleep, is_kept; /* its blocks, and [0] buffers, have no memory; their contents are kept */
  int is_lent;
  int turn; /* what its graphs' next launch has to be behind: this stream; NO_STREAM: nothing */
} pool;

typedef struct buffer {
  gmlake_buffer *value; /* NULL: none */
  block front;          /* its address, and the one stream that uses it */
  size_t end;
  uint32_t ids[BUFFER_CHUNKS];     /* of what its chunks hold; 0: no memory */
  uint32_t numbers[BUFFER_CHUNKS]; /* of its chunks, less 1, as a commit told last; 0: none did */
} buffer;

typedef struct change { /* chunks that become memory, or are given up */
  int is_commit;
  size_t from, to, end;
} change;

typedef struct capture {
  int pool, active;
} capture;

typedef struct figures { /* what the statistics ought to say */
  size_t requested, active, requested_peak, active_peak, reserved_peak, stitched_peak;
  size_t reserved_most, stitched_most, pending_peak; /* upper bounds of peaks within operations */
  uint64_t allocations, frees, refused, lies, forbidden, stitches, reuses, evictions, windows;
  uint64_t unwoken; /* for want of memory */
  uint64_t stream_waits, host_waits, records;
  uint64_t calls; /* of the backend by the lake, clock and exchange excluded */
} figures;

static struct model {
  config with;
  size_t granule, chunk, capacity, limit;
  gmlake_backend *mock, table;
  gmlake *lake;
  const op *now;
  uint64_t clock_ns;
  int is_caller;  /* the calls under way are the caller's */
  int destroying; /* a lake, or a pool whose graphs are gone */
  int next_is_home, next_is_buffers;
  int is_moving;             /* a pool is put to sleep, or wakes */
  const void *freeing;       /* where what others have too is given up in this call */
  long unchecked;            /* operations since the last gmlake_check */
  size_t handle_frames_most; /* of a handle */
  int is_relaxed;            /* within a stretch of calls */
  /* Faults, in this operation and in this lake's life: */
  long fault_call, host_call;
  uint64_t fault_hits, host_hits, fatal_hits;
  int is_clean, is_stuck; /* no fault yet; giving something back has failed */
  int is_denied;          /* a stream was said to be gone; no wait for the device since */
  int is_pinned;          /* a pool was recalled without host memory: it keeps more than graphs */
  unsigned gone;          /* bits: which were said to be so in this operation */
  gmlake_result lost;
  uint64_t handler_calls;
  size_t host_bytes;
  stamp known; /* work that the lake has seen complete, or the caller has waited for */
  frame frames[FRAMES];
  handle handles[FRAMES];
  range ranges[RANGES];
  int last_range;
  event events[EVENTS];
  stream streams[DIMS];
  size_t dims; /* of them, and of stamps, that were ever used */
  void *own_event;
  block blocks[BLOCKS];
  size_t block_count;
  uint32_t next_id;
  pending pendings[PENDING];
  size_t pending_count;
  pool pools[POOLS + IMPORTS];
  capture captures[CAPTURES];
  uint32_t capture_count;
  buffer buffers[BUFFERS];
  uint32_t buffer_serial;
  gmlake_policy policy;
  uint64_t policy_random;
  int has_lied;        /* the policy, in this operation */
  int is_asked;        /* gmlake_query was, in it */
  size_t asked;        /* what the handler is told of */
  size_t mapped_bytes; /* in windows */
  figures sum;
} m;

static size_t max_of(size_t a, size_t b) { return a > b ? a : b; }
static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

static void stamp_join(stamp *into, const stamp *from) {
  size_t i;
  for (i = 0; i < m.dims; i++)
    if (from->at[i] > into->at[i]) into->at[i] = from->at[i];
}

static int stamp_covers(const stamp *a, const stamp *b) {
  size_t i;
  for (i = 0; i < m.dims; i++)
    if (a->at[i] < b->at[i]) return 0;
  return 1;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* What an operation may answer instead of success, for what was made to fail in it. */
static int is_excused(gmlake_result result) {
  gmlake_result injected = (gmlake_result)m.now->fault_result;
  if (m.host_hits && result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY) return 1;
  if (injected == GMLAKE_ERROR_INVALID_ARGUMENT) injected = GMLAKE_ERROR_DRIVER;
  return m.fault_hits && result == injected;
}

static void expect_result(gmlake_result result, gmlake_result wanted, const char *call) {
  char rule[256];
  gmlake_error_info info;
  if (result == wanted) return;
  memset(&info, 0, sizeof(info));
  if (m.lake) (void)gmlake_get_last_error(m.lake, &info);
  (void)snprintf(rule, sizeof(rule), "%s: %s, wanted %s (last error: %s)", call,
                 gmlake_result_name(result), gmlake_result_name(wanted), info.text);
  broken(rule);
}

static void expect_last_error(gmlake_result result) {
  gmlake_error_info info;
  expect_result(gmlake_get_last_error(m.lake, &info), GMLAKE_OK, "gmlake_get_last_error");
  expect_result(info.result, result, "the last error");
  expect(info.call && info.text[0], "the last error says nothing");
}

/* Whether the call succeeded; if not, what was made to fail must be why. */
static int succeeded(gmlake_result result, const char *call) {
  if (!result) return 1;
  if (!is_excused(result)) expect_result(result, GMLAKE_OK, call);
  expect_last_error(result);
  return 0;
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static int is_fatal(gmlake_result result) {
  return result == GMLAKE_ERROR_DEVICE_LOST || result == GMLAKE_ERROR_SHUTTING_DOWN;
}

/* What this call of the backend is made to answer. */
static gmlake_result injected(int *code, int gives_back, int is_silent) {
  if (m.is_caller || !m.fault_call || --m.fault_call) return GMLAKE_OK;
  if (m.now->fault_stays) m.fault_call = 1;
  m.fault_hits++;
  m.is_clean = 0;
  m.is_stuck |= gives_back;
  if (is_fatal((gmlake_result)m.now->fault_result) && !is_silent) m.fatal_hits++;
  shared->sum.faults++;
  *code = 1234;
  return (gmlake_result)m.now->fault_result;
}

static gmlake_result watched(int *code, int gives_back) {
  if (!m.is_caller) m.sum.calls++;
  return injected(code, gives_back, 0);
}

static void *host_malloc(void *user, size_t bytes) {
  char *ptr;
  (void)user;
  if (m.host_call && !--m.host_call) {
    if (m.now->host_stays) m.host_call = 1;
    m.host_hits++;
    m.is_clean = 0;
    shared->sum.faults++;
    return NULL;
  }
  ptr = (char *)malloc(bytes + 16);
  assert_non_null(ptr);
  memcpy(ptr, &bytes, sizeof(bytes));
  m.host_bytes += bytes;
  return ptr + 16;
}

static void host_free(void *user, void *ptr) {
  size_t bytes;
  (void)user;
  memcpy(&bytes, (char *)ptr - 16, sizeof(bytes));
  m.host_bytes -= bytes;
  free((char *)ptr - 16);
}

/* ---- Address space and physical memory, as the watched calls tell ---------------------------- */

static int range_of(uint64_t address) {
  int i, n;
  for (n = 0; n <= RANGES; n++) {
    const range *r = &m.ranges[i = n ? n - 1 : m.last_range];
    if (r->cells && address >= r->base && (address - r->base) / m.granule < r->count)
      return m.last_range = i;
  }
  return -1;
}

static cell *cell_at(uint64_t address) {
  int i = range_of(address);
  return i < 0 ? NULL : &m.ranges[i].cells[(address - m.ranges[i].base) / m.granule];
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

static gmlake_mock_census census(void) {
  gmlake_mock_census now;
  gmlake_mock_get_census(m.mock, &now);
  return now;
}

static size_t physical_bytes(void) { return census().physical_bytes; }

/* What the lake holds of other processes. */
static size_t imported_bytes(void) {
  size_t i, frames = 0;
  for (i = 0; i < FRAMES; i++)
    if (m.handles[i].value && m.handles[i].is_foreign) frames += m.handles[i].frame_count;
  return frames * m.granule;
}

static size_t held_now(void) { return physical_bytes() + imported_bytes(); }

static gmlake_result watch_reserve(void *user, size_t bytes, size_t alignment, uint64_t *out,
                                   int *code) {
  gmlake_result result = watched(code, 0);
  size_t i, n;
  if (!result) result = m.mock->reserve(user, bytes, alignment, out, code);
  if (result) return result;
  for (i = 0; i < RANGES && m.ranges[i].cells; i++) continue;
  assert_true(i < RANGES);
  m.ranges[i].base = *out;
  m.ranges[i].count = bytes / m.granule;
  m.ranges[i].is_home = m.next_is_home;
  m.ranges[i].is_buffers = m.next_is_buffers;
  m.ranges[i].cells = (cell *)calloc(m.ranges[i].count, sizeof(cell));
  assert_non_null(m.ranges[i].cells);
  for (n = 0; n < m.ranges[i].count; n++) m.ranges[i].cells[n].frame = -1;
  m.next_is_home = 0;
  return result;
}

static void free_cells(range *r) {
  size_t i;
  for (i = 0; r->cells && i < r->count; i++) free(r->cells[i].graph);
  free(r->cells);
}

static gmlake_result watch_unreserve(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = watched(code, 1);
  int i = range_of(address);
  if (!result) result = m.mock->unreserve(user, address, bytes, code);
  if (result) return result;
  free_cells(&m.ranges[i]);
  memset(&m.ranges[i], 0, sizeof(m.ranges[i]));
  return result;
}

static void handle_enter(uint64_t value, size_t bytes, int is_foreign) {
  handle *h = handle_find(0);
  size_t i, at = 0;
  assert_non_null(h);
  memset(h, 0, sizeof(*h));
  h->value = value;
  h->is_foreign = is_foreign;
  h->range = -1;
  h->frame_count = bytes / m.granule;
  assert_true(h->frame_count <= HANDLE_FRAMES);
  for (i = 0; i < h->frame_count; i++) {
    while (m.frames[at].taken) at++;
    assert_true(at < FRAMES);
    memset(&m.frames[at], 0, sizeof(m.frames[at]));
    m.frames[at].taken = 1;
    h->frames[i] = (int)at;
  }
  m.sum.reserved_most = max_of(m.sum.reserved_most, held_now());
}

static gmlake_result watch_create(void *user, size_t bytes, unsigned types, uint64_t *out,
                                  int *code) {
  gmlake_result result = watched(code, 0);
  if (!result) result = m.mock->create(user, bytes, types, out, code);
  if (result) return result;
  expect(bytes / m.granule <= m.handle_frames_most, "a handle is larger than it may be");
  handle_enter(*out, bytes, 0);
  return result;
}

static gmlake_result watch_export(void *user, uint64_t value, gmlake_handle *out, int *code) {
  gmlake_result result = watched(code, 0);
  return result ? result : m.mock->export_handle(user, value, out, code);
}

static gmlake_result watch_import(void *user, const gmlake_handle *in, uint64_t *out, int *code) {
  gmlake_result result = watched(code, 0);
  if (!result) result = m.mock->import_handle(user, in, out, code);
  if (!result) handle_enter(*out, in->bytes, 1);
  return result;
}

static gmlake_result watch_release(void *user, uint64_t value, int *code) {
  gmlake_result result = watched(code, 1);
  handle *h = handle_find(value);
  if (!result) result = m.mock->release(user, value, code);
  if (result) return result;
  h->released = 1;
  handle_reap(h);
  return result;
}

static int is_for_windows(uint64_t address) {
  const range *r = &m.ranges[range_of(address)];
  return !r->is_home && !r->is_buffers;
}

/* What graphs use moves with the memory of a pool that sleeps: from the frame to the cell at home,
   and back. */
static void keep_graph(cell *c) {
  c->graph = (uint32_t *)realloc(c->graph, sizeof(m.frames[0].graph));
  assert_non_null(c->graph);
  memcpy(c->graph, m.frames[c->frame].graph, sizeof(m.frames[0].graph));
}

static void bring_graph(cell *c) {
  if (c->graph && m.is_moving)
    memcpy(m.frames[c->frame].graph, c->graph, sizeof(m.frames[0].graph));
  free(c->graph);
  c->graph = NULL;
}

static gmlake_result watch_map(void *user, uint64_t address, size_t bytes, uint64_t value,
                               int *code) {
  gmlake_result result = watched(code, 0);
  handle *h = handle_find(value);
  size_t i;
  if (!result) result = m.mock->map(user, address, bytes, value, code);
  if (result) return result;
  if (h->range < 0) h->range = range_of(address);
  for (i = 0; i < h->frame_count; i++) {
    cell *c = cell_at(address + i * m.granule);
    memset(&c->used, 0, sizeof(c->used));
    c->is_accessible = 0;
    c->in_graph &= m.is_moving;
    c->is_known &= m.is_moving;
    c->frame = h->frames[i];
    bring_graph(c);
    m.frames[c->frame].mapping_count++;
  }
  if (!is_for_windows(address) || m.is_moving) return result;
  m.mapped_bytes += bytes;
  m.sum.stitched_most = max_of(m.sum.stitched_most, m.mapped_bytes);
  return result;
}

static gmlake_result watch_access(void *user, uint64_t address, size_t bytes, const int *peers,
                                  size_t peer_count, int *code) {
  gmlake_result result = watched(code, 0);
  size_t i;
  if (!result) result = m.mock->set_access(user, address, bytes, peers, peer_count, code);
  if (result) return result;
  for (i = 0; i < bytes / m.granule; i++) cell_at(address + i * m.granule)->is_accessible = 1;
  if (!is_for_windows(address) || m.is_moving) return result;
  m.sum.stitches++; /* one call a window */
  for (i = 0; i < bytes / m.granule; i++) cell_at(address + i * m.granule)->stitch = m.sum.stitches;
  m.sum.windows++;
  return result;
}

static int is_live_address(uint64_t address, size_t bytes) {
  size_t i;
  for (i = 0; i < m.block_count; i++) {
    uint64_t at = (uint64_t)(uintptr_t)m.blocks[i].ptr;
    if (m.blocks[i].ptr == m.freeing) continue;
    if (at < address + bytes && address < at + m.blocks[i].bytes) return 1;
  }
  for (i = 0; i < BUFFERS * BUFFER_CHUNKS; i++) {
    const buffer *b = &m.buffers[i / BUFFER_CHUNKS];
    const uint64_t at = (uint64_t)(uintptr_t)b->front.ptr + i % BUFFER_CHUNKS * m.granule;
    if (b->front.ptr == m.freeing) continue;
    if (b->value && b->ids[i % BUFFER_CHUNKS] && at < address + bytes && address < at + m.granule)
      return 1;
  }
  return 0;
}

static void forget_cell(cell *c) {
  int covered = stamp_covers(&m.known, &c->used);
  expect(covered || m.lost || m.fatal_hits || (m.now->kind == CLOSE && m.fault_hits),
         "unmapped while work may still use it");
  expect(m.destroying || m.is_moving || !c->in_graph, "unmapped under a graph");
  m.frames[c->frame].mapping_count--;
  c->frame = -1;
}

/* A pool that exists, or the default one. */
static int live_pool(long named) {
  return named > 0 && named < POOLS && m.pools[named].value ? (int)named : 0;
}

/* Whether it is of the pool that is being closed: such windows are not counted as dropped. */
static int is_of_closing_pool(int frame_number) {
  size_t i, n;
  if (m.now->kind != POOL_CLOSE) return 0;
  for (i = 0; i < FRAMES; i++)
    for (n = 0; n < m.handles[i].frame_count && m.handles[i].value; n++)
      if (m.handles[i].frames[n] == frame_number)
        return m.handles[i].range == m.pools[live_pool(m.now->pool)].range;
  return 0;
}

static gmlake_result watch_unmap(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = watched(code, 1);
  size_t i;
  if (!result) result = m.mock->unmap(user, address, bytes, code);
  if (result) return result;
  expect(m.now->kind == CLOSE || m.is_moving || !is_live_address(address, bytes),
         "a live block was unmapped");
  for (i = 0; i < bytes / m.granule && m.is_moving && m.ranges[range_of(address)].is_home; i++)
    keep_graph(cell_at(address + i * m.granule));
  if (is_for_windows(address) && !m.is_moving) {
    m.mapped_bytes -= bytes;
    m.sum.windows -= (uint64_t)cell_at(address)->is_accessible;
    m.sum.evictions +=
        cell_at(address)->is_accessible && !is_of_closing_pool(cell_at(address)->frame);
  }
  for (i = 0; i < bytes / m.granule; i++) forget_cell(cell_at(address + i * m.granule));
  for (i = 0; i < FRAMES; i++)
    if (m.handles[i].value && m.handles[i].released) handle_reap(&m.handles[i]);
  return result;
}

static gmlake_result watch_memory_info(void *user, size_t *out_free, size_t *out_total, int *code) {
  gmlake_result result = watched(code, 0);
  return result ? result : m.mock->get_memory_info(user, out_free, out_total, code);
}

/* The exchange that restores the mode is not asked for its result. Where one fails that begins to
   take a pool down, all of it is given up. */
static gmlake_result watch_exchange(void *user, int *mode, int *code) {
  gmlake_result result = injected(code, m.now->kind == POOL_CLOSE, m.is_relaxed);
  if (!result) result = m.mock->capture_exchange(user, mode, code);
  m.is_relaxed = !m.is_relaxed && !result;
  return result;
}

/* ---- Events and waits ------------------------------------------------------------------------ */

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
  broken("an event that does not exist, or too many");
  return NULL;
}

static gmlake_result watch_event_create(void *user, void **out, int *code) {
  gmlake_result result = watched(code, 0);
  if (!result) result = m.mock->event_create(user, out, code);
  if (!result) event_find(NULL)->value = *out;
  return result;
}

static gmlake_result watch_event_destroy(void *user, void *value, int *code) {
  gmlake_result result = injected(code, 1, 1);
  if (!m.is_caller) m.sum.calls++;
  if (!result) result = m.mock->event_destroy(user, value, code);
  if (!result) event_find(value)->value = NULL;
  return result;
}

/* The lake was told that the stream is gone: from now on no block is used on it that was recorded
   on it before. */
static void end_uses(int on) {
  size_t i;
  m.is_denied = 1;
  if (on) m.gone |= 1u << on; /* the legacy stream is never gone */
  for (i = 0; i < m.block_count; i++) m.blocks[i].recorded &= ~(1u << on);
}

static gmlake_result watch_event_record(void *user, void *value, gmlake_stream on, int *code) {
  gmlake_result result = watched(code, 0);
  stream *s = stream_find(on);
  if (!result) result = m.mock->event_record(user, value, on, code);
  expect(s != NULL, "an event is recorded on a stream that is gone");
  expect(!s->capture, "an event is recorded on a capturing stream");
  if (result == GMLAKE_ERROR_INVALID_ARGUMENT) end_uses((int)(s - m.streams));
  if (result) return result;
  event_find(value)->at = s->after;
  if (!m.is_caller) m.sum.records++;
  return result;
}

static gmlake_result watch_event_query(void *user, void *value, int *done, int *code) {
  gmlake_result result = watched(code, 0);
  if (!result) result = m.mock->event_query(user, value, done, code);
  if (!result && *done) stamp_join(&m.known, &event_find(value)->at);
  return result;
}

static gmlake_result watch_event_wait(void *user, void *value, int *code) {
  gmlake_result result = watched(code, 0);
  if (!m.is_caller) m.sum.host_waits++;
  if (!result) result = m.mock->event_wait(user, value, code);
  if (!result) stamp_join(&m.known, &event_find(value)->at);
  return result;
}

static gmlake_result watch_stream_wait(void *user, gmlake_stream on, void *value, int *code) {
  gmlake_result result = watched(code, 0);
  stream *s = stream_find(on);
  if (!result) result = m.mock->stream_wait(user, on, value, code);
  expect(s != NULL, "a stream that is gone was made to wait");
  if (result) return result;
  stamp_join(&s->after, &event_find(value)->at);
  if (!m.is_caller) m.sum.stream_waits++;
  return result;
}

static gmlake_result watch_device_wait(void *user, int *code) {
  gmlake_result result = watched(code, 0);
  size_t i;
  m.sum.host_waits++;
  if (!result) result = m.mock->device_wait(user, code);
  for (i = 0; i < DIMS && !result; i++) stamp_join(&m.known, &m.streams[i].after);
  if (!result) m.is_denied = 0;
  return result;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* After an error no copy runs. */
static gmlake_result watch_copy(void *user, uint64_t address, void *host, size_t bytes, int to_host,
                                int *code) {
  gmlake_result result = watched(code, 0);
  int ignored = 0;
  expect(!bytes || cell_at(address)->is_accessible, "a copy of memory that is not mapped");
  if (!result) return m.mock->copy(user, address, host, bytes, to_host, code);
  (void)m.mock->copy(user, 0, host, 0, to_host, &ignored);
  return result;
}

static gmlake_result watch_host_alloc(void *user, size_t bytes, void **out, int *code) {
  gmlake_result result = watched(code, 0);
  return result ? result : m.mock->host_alloc(user, bytes, out, code);
}

static gmlake_result watch_host_free(void *user, void *host, int *code) {
  gmlake_result result = watched(code, 1);
  return result ? result : m.mock->host_free(user, host, code);
}

static void watch(gmlake_backend *mock) {
  m.mock = mock;
  m.table = *mock;
  m.table.get_memory_info = watch_memory_info;
  m.table.reserve = watch_reserve;
  m.table.unreserve = watch_unreserve;
  m.table.create = watch_create;
  m.table.export_handle = watch_export;
  m.table.import_handle = watch_import;
  m.table.release = watch_release;
  m.table.map = watch_map;
  m.table.unmap = watch_unmap;
  m.table.set_access = watch_access;
  m.table.event_create = watch_event_create;
  m.table.event_destroy = watch_event_destroy;
  m.table.event_record = watch_event_record;
  m.table.event_query = watch_event_query;
  m.table.event_wait = watch_event_wait;
  m.table.event_wait_any = NULL; /* so the lake calls event_wait for every wait */
  m.table.stream_wait = watch_stream_wait;
  m.table.capture_exchange = watch_exchange;
  m.table.device_wait = watch_device_wait;
  m.table.copy = watch_copy;
  m.table.host_alloc = watch_host_alloc;
  m.table.host_free = watch_host_free;
}

/* ---- What the caller does on the device beside calling the lake ------------------------------ */

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
  m.is_caller = 1;
  expect_result(m.table.event_record(m.table.user, m.own_event, m.streams[s].value, &code),
                GMLAKE_OK, "the caller's event_record");
  m.is_caller = 0;
}

/* Work queued on `later` from now on starts behind the work of `earlier`. */
static void caller_order(int later, int earlier) {
  int code = 0;
  if (later == earlier) return;
  caller_record(earlier);
  m.is_caller = 1;
  expect_result(m.table.stream_wait(m.table.user, m.streams[later].value, m.own_event, &code),
                GMLAKE_OK, "the caller's stream_wait");
  m.is_caller = 0;
}

static void caller_wait(int s) {
  int code = 0;
  caller_record(s);
  m.is_caller = 1;
  expect_result(m.table.event_wait(m.table.user, m.own_event, &code), GMLAKE_OK,
                "the caller's event_wait");
  m.is_caller = 0;
}

/* The kernels of a stream that use a block. */
static void caller_use(const block *b, int s) {
  uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  uint32_t work = ++m.streams[s].after.at[s];
  size_t offset;
  for (offset = 0; offset < b->bytes; offset += GRAIN) {
    cell *c = cell_at(at + offset);
    m.frames[c->frame].used[(at + offset) % m.granule / GRAIN].at[s] = work;
    c->used.at[s] = work;
  }
}

static uint64_t pattern(const block *b, size_t offset) {
  const uint64_t of = b->ids[0] ? b->ids[offset / m.granule] : b->content;
  return (of << 32 | (b->ids[0] ? offset % m.granule : offset)) * 0x9E3779B97F4A7C15u;
}

static void fill(const block *b) {
  size_t offset;
  if (m.with.bookkeeping_only) return;
  for (offset = 0; offset < b->bytes; offset += 64) {
    uint64_t word = pattern(b, offset);
    memcpy(b->ptr + offset, &word, sizeof(word));
  }
}

static int is_intact(const block *b, size_t offset, const unsigned char *at, size_t bytes) {
  size_t i;
  if (m.with.bookkeeping_only) return 1;
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
  if (m.pools[b->pool].is_asleep) return;
  expect(is_intact(b, 0, b->ptr, b->bytes), "contents changed");
  if (m.lost) return;
  expect_result(gmlake_get_pieces(m.lake, b->ptr, pieces, PIECES, &count), GMLAKE_OK,
                "gmlake_get_pieces");
  for (i = 0; i < count && i < PIECES; i++) {
    expect(is_intact(b, offset, (const unsigned char *)pieces[i].home, pieces[i].bytes),
           "a piece shows other contents");
    offset += pieces[i].bytes;
  }
}

/* ---- Handing over: ownership of every 512 bytes, and the order behind their former uses ------ */

static void take_grain(const block *b, frame *f, size_t grain, const stamp *cover) {
  const capture *graph = f->graph[grain] ? &m.captures[f->graph[grain]] : NULL;
  expect(f->owner[grain] == 0, "two live blocks overlap");
  expect(!f->is_shared, "what was exported serves again");
  expect((graph && b->capture) || stamp_covers(cover, &f->used[grain]),
         "handed over while work may still use it"); /* a capture itself uses nothing */
  f->owner[grain] = b->id;
  f->is_lent[grain] |= (b->flags & GMLAKE_TRANSIENT) != 0;
  if (!graph) {
    f->graph[grain] = b->capture;
    return;
  }
  expect(graph->pool == b->pool, "memory of a graph went to another pool");
  if (b->flags & GMLAKE_TRANSIENT) return;
  expect(b->capture != 0, "memory of a graph was handed over outside captures");
  expect(!graph->active || f->graph[grain] == b->capture, "two captures share memory");
  f->graph[grain] = b->capture;
}

static void take(const block *b) {
  uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  stamp cover = m.known;
  size_t offset;
  if (b->stream >= 0 && !b->capture) stamp_join(&cover, &m.streams[b->stream].after);
  for (offset = 0; offset < b->bytes; offset += GRAIN) {
    cell *c = cell_at(at + offset);
    expect(c && c->frame >= 0, "a block lies in memory that is not mapped");
    expect(c->is_accessible, "a block lies in memory without access");
    take_grain(b, &m.frames[c->frame], (at + offset) % m.granule / GRAIN, &cover);
    if (b->capture) c->in_graph = 1;
  }
}

/* Whether other processes may use it: then it is pending when it is freed, and released. */
static int has_others(const block *b) { return b->is_shared || b->is_import; }

static void give(const block *b) {
  uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  size_t offset;
  for (offset = 0; offset < b->bytes && !m.pools[b->pool].is_asleep; offset += GRAIN) {
    frame *f = frame_at(at + offset);
    if (!f && has_others(b)) continue; /* it is released already */
    f->owner[(at + offset) % m.granule / GRAIN] = 0;
  }
}

static int is_of_handle(const handle *h, int number) {
  size_t i = 0;
  while (i < h->frame_count && h->frames[i] != number) i++;
  return h->value && i < h->frame_count;
}

/* Whether two frames are of one handle, which is mapped whole. */
static int are_mapped_together(int one, int other) {
  size_t i;
  for (i = 0; i < FRAMES; i++)
    if (is_of_handle(&m.handles[i], one)) return is_of_handle(&m.handles[i], other);
  return 0;
}

/* Nothing is mapped behind a window and its last handle. */
static void check_guard(const block *b) {
  size_t chunk = m.pools[b->pool].chunk_bytes;
  uint64_t at = (uint64_t)(uintptr_t)b->ptr, end = round_up(at + b->bytes, chunk);
  const cell *last = cell_at(at + b->bytes - 1), *behind = cell_at(end);
  if (!m.with.guards || m.ranges[range_of(at)].is_home) return;
  while (behind && behind->frame >= 0 && are_mapped_together(last->frame, behind->frame))
    behind = cell_at(end += chunk);
  expect(behind && behind->frame < 0, "a window has no guard behind it");
}

/* GMLAKE_FILL: new memory shows its byte. */
static void check_filled(const block *b) {
  size_t i;
  if (!m.with.fills || m.with.bookkeeping_only) return;
  for (i = 0; i < b->bytes; i += 32)
    expect(b->ptr[i] == GMLAKE_FILL_NEW, "new memory is not filled");
}

/* The pieces: homes in the block's arena that show the same physical memory, cut as they may. */
static void check_pieces(const block *b) {
  static gmlake_piece pieces[PIECES];
  uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  size_t count = 0, i, sum = 0, offset, chunk = m.pools[b->pool].chunk_bytes;
  expect_result(gmlake_get_pieces(m.lake, b->ptr, pieces, PIECES, &count), GMLAKE_OK,
                "gmlake_get_pieces");
  expect(count >= 1 && count <= PIECES, "a block has no pieces, or too many");
  expect(count == 1 || !(b->flags & GMLAKE_NO_STITCH), "NO_STITCH was stitched");
  expect(!(b->flags & GMLAKE_NO_STITCH) || pieces[0].home == (void *)b->ptr,
         "NO_STITCH lies away from home");
  for (i = 0; i < count; i++) {
    uint64_t piece = (uint64_t)(uintptr_t)pieces[i].home;
    expect(range_of(piece) == m.pools[b->pool].range, "a piece lies in another arena");
    expect(i == 0 || piece % chunk == 0, "a piece begins inside a chunk");
    expect(i + 1 == count || (piece + pieces[i].bytes) % chunk == 0, "a piece ends inside a chunk");
    expect(!(b->flags & GMLAKE_EXCLUSIVE) || (piece | pieces[i].bytes) % chunk == 0,
           "EXCLUSIVE shares a chunk");
    for (offset = 0; offset < pieces[i].bytes; offset += GRAIN)
      expect(frame_at(piece + offset) == frame_at(at + sum + offset) &&
                 (piece + offset) % m.granule == (at + sum + offset) % m.granule,
             "a piece shows other memory than the block");
    sum += pieces[i].bytes;
  }
  expect(sum == b->bytes, "the pieces do not add up");
}

static void check_info(const block *b, size_t alignment) {
  gmlake_allocation_info info;
  size_t unit = b->flags & GMLAKE_EXCLUSIVE ? m.pools[b->pool].chunk_bytes : GRAIN;
  const int is_known = b->stream >= 0 && !(m.gone >> b->stream & 1u);
  expect_result(gmlake_get_allocation(m.lake, b->ptr, &info), GMLAKE_OK, "gmlake_get_allocation");
  expect(info.ptr == (void *)b->ptr && info.requested_bytes == b->requested, "wrong information");
  expect(info.bytes == b->bytes &&
             (m.with.policy & CHOOSES ? info.bytes >= b->requested && info.bytes % unit == 0
                                      : info.bytes == round_up(b->requested, unit)),
         "wrongly rounded");
  expect((uintptr_t)b->ptr % alignment == 0, "wrongly aligned");
  expect(info.user_data == b->id && info.flags == b->flags, "wrong user data or flags");
  expect(info.pool == m.pools[b->pool].value, "wrong pool");
  expect(info.stream == (is_known ? m.streams[b->stream].value : GMLAKE_STREAM_NONE),
         "wrong stream");
}

/* ---- Whether memory that must be there, or be made, would have served ------------------------ */

/* What is lent is for borrowers alone. */
static int handle_is_free(const handle *h) {
  size_t i, grain;
  if (!h->value || h->is_foreign || m.frames[h->frames[0]].is_shared) return 0;
  for (i = 0; i < POOLS; i++)
    if (m.pools[i].is_lent && m.pools[i].range == h->range) return 0;
  for (i = 0; i < h->frame_count; i++)
    for (grain = 0; grain < m.granule / GRAIN; grain++)
      if (m.frames[h->frames[i]].owner[grain] || m.frames[h->frames[i]].graph[grain]) return 0;
  return 1;
}

static size_t free_chunk_bytes(int of_range, int others) {
  size_t i, bytes = 0;
  for (i = 0; i < FRAMES; i++) {
    const handle *h = &m.handles[i];
    if ((h->range == of_range) != others && handle_is_free(h)) bytes += h->frame_count * m.granule;
  }
  return bytes;
}

static size_t held_bytes(int of_range) {
  size_t i, bytes = 0;
  for (i = 0; i < FRAMES; i++)
    if (m.handles[i].value && m.handles[i].range == of_range)
      bytes += m.handles[i].frame_count * m.granule;
  return bytes;
}

static size_t room_below(size_t limit, size_t held, size_t room) {
  if (!limit) return room;
  limit = limit > held ? limit - held : 0;
  return limit < room ? limit : room;
}

/* Whole chunks that nobody owns, of its arena, or returned to the driver and created again. */
static int is_servable(const block *b) {
  const pool *p = &m.pools[b->pool];
  size_t physical = physical_bytes(), bytes = round_up(b->requested, p->chunk_bytes), room;
  size_t free_bytes = free_chunk_bytes(p->range, 0);
  if (!m.is_clean || m.is_pinned || captures_active() || (b->flags & GMLAKE_NO_STITCH)) return 0;
  if (b->requested < (size_t)m.with.stitch_min_bytes || m.with.windows) return 0;
  if (m.with.policy & CHOOSES) return 0;                                    /* if it wants to */
  if ((m.with.policy & COALESCES) && (b->flags & GMLAKE_NO_GROW)) return 0; /* chunks in parts */
  if (bytes <= free_bytes) return 1;
  if (b->flags & GMLAKE_NO_GROW) return 0;
  room = m.capacity - physical;
  room = room_below(m.capacity - (size_t)m.with.driver_free_min * m.granule, physical, room);
  room = room_below(m.limit, held_now(), room);
  room = (room + free_chunk_bytes(p->range, 1)) / p->chunk_bytes * p->chunk_bytes;
  if (p->limit_bytes)
    room = room_below(p->limit_bytes, held_bytes(p->range), room) / p->chunk_bytes * p->chunk_bytes;
  return bytes <= free_bytes + room;
}

/* ---- Operations: each does what it can of what it was told to -------------------------------- */

static int is_any_asleep(void) {
  size_t i = 0;
  while (i < POOLS && !m.pools[i].is_asleep) i++;
  return i < POOLS;
}

/* A stream that lives, the one named if it does. */
static int live_stream(long named) {
  size_t i = (size_t)named % DIMS;
  if (named < 0) return NO_STREAM;
  while (!m.streams[i].live) i = (i + 1) % DIMS;
  return (int)i;
}

static gmlake_stream stream_value(int s) { return s < 0 ? GMLAKE_STREAM_NONE : m.streams[s].value; }

static block *block_find(long id) {
  size_t i;
  for (i = 0; i < m.block_count; i++)
    if (id && m.blocks[i].id == (uint32_t)id) return &m.blocks[i];
  return NULL;
}

/* The stream to free a block on, once the caller has ordered it behind the block's uses. */
static int order_free(const block *b, int on) {
  if (b->capture && m.streams[b->stream].capture == b->capture) return b->stream;
  if (on == NO_STREAM && captures_active()) on = b->stream;
  if (on == NO_STREAM) { /* the lake waits for those that were recorded */
    caller_wait(b->stream);
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
  memset(p, 0, sizeof(*p));
  p->bytes = b->bytes;
  for (i = 0; i < DIMS; i++)
    if (((b->recorded >> i & 1) && (int)i != on) || (has_others(b) && (int)i == on))
      p->need.at[i] = m.streams[i].after.at[i];
}

static void pendings_may_serve(int on) {
  size_t i;
  for (i = 0; i < m.pending_count && on != NO_STREAM; i++) m.pendings[i].may_serve = 1;
}

/* GMLAKE_FILL: freed memory shows its byte where it lies, unless work recorded on it is pending. */
static void check_emptied(const gmlake_piece *pieces, size_t count) {
  size_t i, offset;
  for (i = 0; i < count && i < PIECES; i++)
    for (offset = 0; offset < pieces[i].bytes; offset += 64)
      expect(((const unsigned char *)pieces[i].home)[offset] == GMLAKE_FILL_FREE,
             "freed memory is not filled");
}

static int do_free(long id, int on, int twice) {
  static gmlake_piece pieces[PIECES];
  block *place = block_find(id), b;
  gmlake_result result;
  size_t count = 0;
  if (!place || m.pending_count == PENDING) return 0;
  verify(place);
  on = order_free(place, on);
  if (m.with.fills && !m.with.bookkeeping_only && !place->was_recorded && !has_others(place) &&
      !m.pools[place->pool].is_asleep)
    (void)gmlake_get_pieces(m.lake, place->ptr, pieces, PIECES, &count);
  b = *place;
  m.freeing = has_others(&b) ? b.ptr : NULL;
  result = gmlake_free(m.lake, b.ptr, stream_value(on));
  m.freeing = NULL;
  if (!succeeded(result, "gmlake_free")) return 0;
  *place = m.blocks[--m.block_count];
  give(&b);
  check_emptied(pieces, count);
  if (b.was_recorded || has_others(&b)) note_pending(&b, on);
  m.sum.frees++;
  m.sum.requested -= b.requested;
  m.sum.active -= b.bytes;
  if (twice && !m.fatal_hits && !has_others(&b))
    expect_result(gmlake_free(m.lake, b.ptr, stream_value(on)), GMLAKE_ERROR_DOUBLE_FREE,
                  "gmlake_free twice");
  return 1;
}

/* What the handler sees and may do: not allocate, but free. */
static int on_oom(void *user, gmlake *lake, const gmlake_error_info *info) {
  const int moving = m.is_moving;
  void *ptr = &ptr;
  int is_freed;
  (void)user;
  m.is_moving = 0;
  m.handler_calls++;
  expect(info->result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ||
             info->result == GMLAKE_ERROR_LIMIT_REACHED,
         "the handler was called for another error");
  expect((moving || info->asked_bytes == m.asked) && info->live_bytes == m.sum.active &&
             info->reserved_bytes == held_now(),
         "the handler was told wrong figures");
  expect_result(gmlake_alloc(lake, 1, NULL, &ptr), GMLAKE_ERROR_INVALID_ARGUMENT,
                "gmlake_alloc in the handler");
  expect(ptr == NULL, "gmlake_alloc in the handler left a pointer");
  is_freed = do_free(m.now->victim, live_stream(m.now->stream), 0);
  m.is_moving = moving;
  m.gone = 0; /* who tries again names the stream again */
  return is_freed;
}

static void fill_request(const block *b, gmlake_alloc_desc *desc) {
  const op *o = m.now;
  memset(desc, 0, sizeof(*desc));
  desc->bytes = b->requested;
  desc->flags = b->flags;
  desc->user_data = b->id;
  desc->alignment = (size_t)o->alignment;
  if (!b->capture || o->pool == b->pool) desc->pool = m.pools[b->pool].value;
}

/* The result is an error: it must be one that the model understands. */
static void check_refusal(const block *b, gmlake_result result) {
  int is_memory = result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ||
                  (result == GMLAKE_ERROR_LIMIT_REACHED &&
                   (m.limit || m.with.driver_free_min || m.pools[b->pool].limit_bytes));
  if (m.has_lied) {
    expect_result(result, GMLAKE_ERROR_INVALID_ARGUMENT, "an illegal plan");
    expect_last_error(result);
    m.sum.lies++;
    return;
  }
  if (m.pools[b->pool].is_asleep) {
    if (!is_excused(result)) expect_result(result, GMLAKE_ERROR_ASLEEP, "gmlake_alloc, asleep");
    expect_last_error(result);
    return;
  }
  if (!is_memory && !is_excused(result)) expect_result(result, GMLAKE_OK, "gmlake_alloc");
  expect(!is_memory || m.fault_hits || m.host_hits || !is_servable(b),
         "refused though whole free chunks would do");
  if (!m.handler_calls) m.sum.refused += (uint64_t)is_memory;
  if (!m.handler_calls) expect_last_error(result);
}

/* The block is the model's. */
static void enter_block(block *b) {
  take(b);
  check_pieces(b);
  check_guard(b);
  check_filled(b);
  m.sum.allocations++;
  m.sum.requested += b->requested;
  m.sum.active += b->bytes;
  m.sum.requested_peak = max_of(m.sum.requested_peak, m.sum.requested);
  m.sum.active_peak = max_of(m.sum.active_peak, m.sum.active);
  fill(b);
  b->is_unseen = b->stream < 0;
  if (b->is_unseen) b->stream = live_stream(m.now->other);
  if (m.streams[b->stream].capture && !b->capture) b->stream = 0; /* not used by that graph */
  if (!b->capture) caller_use(b, b->stream);
  m.blocks[m.block_count++] = *b;
}

static int is_alignment(size_t alignment, size_t chunk_bytes) {
  return (alignment & (alignment - 1)) == 0 && alignment <= chunk_bytes;
}

static size_t bytes_of(const void *ptr) {
  gmlake_allocation_info info;
  expect_result(gmlake_get_allocation(m.lake, ptr, &info), GMLAKE_OK, "gmlake_get_allocation");
  return info.bytes;
}

/* Whether what others have, too, is freed and not released yet. */
static int is_any_share_pending(void) {
  size_t i, grain;
  for (i = 0; i < FRAMES; i++) {
    const handle *h = &m.handles[i];
    const frame *f = &m.frames[h->frames[0]];
    if (!h->value || !(h->is_foreign || f->is_shared)) continue;
    for (grain = 0; grain < m.granule / GRAIN && !f->owner[grain];) grain++;
    if (grain == m.granule / GRAIN) return 1;
  }
  return 0;
}

/* Whether gmlake_query can tell how the allocation ends: it takes what was exported or imported,
   and is pending, for memory that will serve. */
static int is_foretold(void) {
  return !(m.with.shares && is_any_share_pending()) && !m.now->fault_call && !m.now->host_call &&
         !m.with.policy && !m.with.has_handler && !m.lost && !m.is_stuck && m.now->id % 2 &&
         !(m.now->flags & GMLAKE_TRANSIENT);
}

static void foretell(const gmlake_alloc_desc *desc, int stream, gmlake_query_info *out,
                     gmlake_stats *before) {
  size_t physical = physical_bytes();
  gmlake_result result;
  memset(out, 0, sizeof(*out));
  m.is_asked = is_foretold();
  if (!m.is_asked) return;
  result = gmlake_query(m.lake, desc, stream_value(stream), out);
  if (result) out->result = result;
  memset(before, 0, sizeof(*before));
  expect_result(gmlake_get_stats(m.lake, before), GMLAKE_OK, "gmlake_get_stats");
  expect(physical_bytes() == physical, "a question has changed memory");
}

static void check_foretold(gmlake_result result, const gmlake_query_info *said,
                           const gmlake_stats *before) {
  gmlake_stats now;
  gmlake_wait wait = GMLAKE_NO_WAIT;
  char rule[200];
  int is_wait;
  if (!m.is_asked) return;
  memset(&now, 0, sizeof(now));
  expect_result(gmlake_get_stats(m.lake, &now), GMLAKE_OK, "gmlake_get_stats");
  if (now.stream_wait_count > before->stream_wait_count) wait = GMLAKE_DEVICE_WAIT;
  if (now.host_wait_count > before->host_wait_count) wait = GMLAKE_HOST_WAIT;
  if (said->result && captures_active() && wait == GMLAKE_HOST_WAIT)
    return; /* it fears the worst */
  is_wait = said->wait == wait || (said->new_bytes && said->wait == GMLAKE_DEVICE_WAIT && !wait) ||
            (said->wait == GMLAKE_HOST_WAIT && !wait); /* enough is complete by now */
  if (!said->result == !result &&
      (result || (is_wait && !said->new_bytes == (now.state_count[3] == before->state_count[3]))))
    return;
  (void)snprintf(rule, sizeof(rule), "foretold %s wait %d new %zu, and it was %s wait %d new %d",
                 gmlake_result_name(said->result), (int)said->wait, said->new_bytes,
                 gmlake_result_name(result), (int)wait,
                 (int)(now.state_count[3] - before->state_count[3]));
  broken(rule);
}

/* Where a request with GMLAKE_TRANSIENT was served: in a pool that is lent, or as if without it. */
static void find_lender(block *b) {
  gmlake_allocation_info info;
  int i = 1;
  if (!b->ptr || !(b->flags & GMLAKE_TRANSIENT)) return;
  expect_result(gmlake_get_allocation(m.lake, b->ptr, &info), GMLAKE_OK, "gmlake_get_allocation");
  b->flags = info.flags;
  if (!(info.flags & GMLAKE_TRANSIENT)) return;
  expect(!b->capture, "a capture has borrowed");
  expect(!b->pool || m.pools[b->pool].value == info.pool, "borrowed of another pool");
  while (i < POOLS && m.pools[i].value != info.pool) i++;
  expect(i < POOLS && m.pools[i].is_lent, "borrowed of a pool that is not lent");
  b->pool = i;
}

static void do_alloc(void) {
  const op *o = m.now;
  gmlake_alloc_desc desc;
  block b;
  size_t before = physical_bytes();
  uint64_t stitches = m.sum.stitches;
  gmlake_query_info said;
  gmlake_stats stats;
  gmlake_result result;
  void *ptr = &ptr;
  if (!o->bytes || block_find(o->id) || m.block_count == BLOCKS) return;
  memset(&b, 0, sizeof(b));
  b.id = b.content = (uint32_t)o->id;
  b.requested = (size_t)o->bytes;
  b.flags = (unsigned)o->flags;
  b.stream = live_stream(o->stream);
  b.pool = live_pool(o->pool);
  m.asked = b.requested;
  if (b.stream >= 0) b.capture = m.streams[b.stream].capture;
  if (b.capture) b.pool = m.captures[b.capture].pool;
  fill_request(&b, &desc);
  foretell(&desc, b.stream, &said, &stats);
  result = gmlake_alloc_with(m.lake, &desc, stream_value(b.stream), &ptr);
  pendings_may_serve(b.stream);
  check_foretold(result, &said, &stats);
  expect((result == GMLAKE_OK) == (ptr != NULL), "the pointer and the result contradict");
  if (b.flags & GMLAKE_NO_GROW) expect(physical_bytes() <= before, "NO_GROW has grown");
  if (m.with.has_handler) m.sum.refused += m.handler_calls;
  b.ptr = (unsigned char *)ptr;
  find_lender(&b);
  expect(result || !m.pools[b.pool].is_asleep, "a pool that sleeps has served");
  if (!m.pools[b.pool].is_asleep && !is_alignment(desc.alignment, m.pools[b.pool].chunk_bytes)) {
    if (!is_excused(result))
      expect_result(result, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_alloc with a wrong alignment");
    return;
  }
  if (result) {
    check_refusal(&b, result);
    return;
  }
  m.sum.reuses += !m.ranges[range_of((uint64_t)(uintptr_t)ptr)].is_home &&
                  cell_at((uint64_t)(uintptr_t)ptr)->stitch <= stitches;
  expect(!m.has_lied, "an illegal plan was carried out");
  b.bytes = round_up(b.requested, b.flags & GMLAKE_EXCLUSIVE ? m.pools[b.pool].chunk_bytes : GRAIN);
  if (m.with.policy & CHOOSES) b.bytes = bytes_of(ptr);
  if (!m.fatal_hits) check_info(&b, max_of(desc.alignment, GRAIN));
  if (!m.fatal_hits) enter_block(&b);
}

/* ---- Growing buffers: their chunks are owned, used and kept in order as blocks are ----------- */

static block part_of(const buffer *b, size_t i) {
  block part = b->front;
  if (part.ptr) part.ptr += i * m.granule;
  part.bytes = m.granule;
  part.id = part.content = b->ids[i];
  return part;
}

static void check_parts(const buffer *b) {
  size_t i;
  for (i = 0; i < BUFFER_CHUNKS && !m.pools[0].is_asleep; i++) {
    block part = part_of(b, i);
    expect(!b->ids[i] || is_intact(&part, 0, part.ptr, part.bytes), "a buffer's contents changed");
  }
}

static size_t active_of(const buffer *b) {
  size_t i, bytes = 0;
  for (i = 0; i < BUFFER_CHUNKS; i++) bytes += b->ids[i] ? m.granule : 0;
  return bytes;
}

/* What of it the user asked for: not what lies behind the end. */
static size_t requested_of(const buffer *b) {
  size_t tail = b->end % m.granule;
  return active_of(b) - (tail && b->ids[b->end / m.granule] ? m.granule - tail : 0);
}

static int open_buffer(buffer *b, long stream) {
  gmlake_buffer_desc desc;
  gmlake_buffer_info info;
  memset(&desc, 0, sizeof(desc));
  desc.max_bytes = BUFFER_CHUNKS * m.granule;
  desc.chunk_bytes = m.granule;
  m.next_is_buffers = 1;
  (void)succeeded(gmlake_buffer_create(m.lake, &desc, &b->value), "gmlake_buffer_create");
  m.next_is_buffers = 0;
  if (!b->value) return 0;
  expect_result(gmlake_buffer_get_info(m.lake, b->value, &info), GMLAKE_OK,
                "gmlake_buffer_get_info");
  memset(&b->front, 0, sizeof(b->front));
  memset(b->ids, 0, sizeof(b->ids));
  b->end = 0;
  m.buffer_serial++; /* there was one */
  b->front.ptr = (unsigned char *)info.ptr;
  b->front.stream = live_stream(stream < 0 ? 0 : stream);
  return !m.fatal_hits;
}

/* The stream to resize on, once the caller has ordered it behind the buffer's uses. */
static int order_resize(const buffer *b, int on) {
  int last = b->front.stream;
  if (on == NO_STREAM && captures_active()) on = last;
  if (on == last || !is_quiet(last) || (on != NO_STREAM && !is_quiet(on))) return last;
  if (on == NO_STREAM)
    caller_wait(last);
  else
    caller_order(on, last);
  return on;
}

/* A buffer's chunks and what the streams do with them, after a change. */
static void enter_change(buffer *b, const change *c, int on) {
  size_t i;
  m.sum.requested -= requested_of(b);
  m.sum.active -= active_of(b);
  if (on != NO_STREAM) b->front.stream = on;
  b->front.is_unseen = on == NO_STREAM;
  for (i = c->from; i < c->to; i++) {
    block part;
    if ((b->ids[i] != 0) == c->is_commit) continue;
    if (c->is_commit) b->ids[i] = 0x40000000u + ++m.buffer_serial;
    part = part_of(b, i);
    if (on == NO_STREAM) part.stream = NO_STREAM;
    if (!c->is_commit) {
      const frame *f = frame_at((uint64_t)(uintptr_t)part.ptr);
      b->ids[i] = 0;
      part.is_shared = !m.pools[0].is_asleep && (!f || f->is_shared);
      give(&part);
      if (part.is_shared) note_pending(&part, on);
      continue;
    }
    take(&part);
    check_filled(&part);
    fill(&part);
  }
  b->end = c->end;
  m.sum.requested += requested_of(b);
  m.sum.active += active_of(b);
  m.sum.requested_peak = max_of(m.sum.requested_peak, m.sum.requested);
  m.sum.active_peak = max_of(m.sum.active_peak, m.sum.active);
  for (i = 0; i < BUFFER_CHUNKS; i++) {
    const block part = part_of(b, i);
    if (m.streams[b->front.stream].capture || m.pools[0].is_asleep) break;
    if (b->ids[i]) caller_use(&part, b->front.stream);
  }
}

/* Free chunks, wherever they are, and what may be created would do. */
static int is_growable(size_t bytes) {
  size_t physical = physical_bytes(), room = m.capacity - physical;
  if (!m.is_clean || m.is_pinned || captures_active()) return 0;
  room = room_below(m.capacity - (size_t)m.with.driver_free_min * m.granule, physical, room);
  room = room_below(m.limit, held_now(), room);
  return bytes <= room + free_chunk_bytes(-1, 1) + free_chunk_bytes(-1, 0);
}

static void check_resize_refusal(gmlake_result result, size_t grown, int is_captured) {
  int is_memory =
      grown && (result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ||
                (result == GMLAKE_ERROR_LIMIT_REACHED && (m.limit || m.with.driver_free_min)));
  if (result == GMLAKE_ERROR_CAPTURING && (grown ? captures_active() : is_captured)) {
    m.sum.forbidden += grown != 0;
    return;
  }
  if (result == GMLAKE_ERROR_ASLEEP && m.pools[0].is_asleep) return;
  if (!is_memory && !is_excused(result)) expect_result(result, GMLAKE_OK, "gmlake_buffer_resize");
  expect(!is_memory || m.fault_hits || m.host_hits || !is_growable(grown),
         "a buffer was refused though free chunks would do");
  if (!m.handler_calls) m.sum.refused += (uint64_t)is_memory;
  if (!m.handler_calls) expect_last_error(result);
}

static int do_buffer_destroy(buffer *b, int on) {
  change all;
  gmlake_result result;
  m.freeing = m.with.shares ? b->front.ptr : NULL;
  result = gmlake_buffer_destroy(m.lake, b->value, stream_value(on));
  m.freeing = NULL;
  if (result == GMLAKE_ERROR_CAPTURING && m.streams[b->front.stream].capture) return 0;
  if (!succeeded(result, "gmlake_buffer_destroy")) return 0;
  memset(&all, 0, sizeof(all));
  all.to = BUFFER_CHUNKS;
  enter_change(b, &all, on);
  b->value = NULL;
  return 1;
}

/* What the operation asks of the buffer. */
static change change_of(const buffer *b) {
  const size_t bytes = (size_t)m.now->bytes % (BUFFER_CHUNKS * m.granule + 1), g = m.granule;
  change c;
  c.end = b->end;
  c.is_commit = m.now->flags ? m.now->flags == 1 : bytes > b->end;
  if (m.now->flags) {
    c.from = (size_t)m.now->alignment % BUFFER_CHUNKS;
    c.to = c.from + (bytes / g < BUFFER_CHUNKS - c.from ? bytes / g : BUFFER_CHUNKS - c.from);
    if (c.is_commit && c.from < c.to) c.end = max_of(c.end, c.to * g);
    return c;
  }
  c.from = c.is_commit ? b->end / g : round_up(bytes, g) / g;
  c.to = round_up(c.is_commit ? bytes : b->end, g) / g;
  c.end = bytes;
  return c;
}

/* Commits, and wants the chunks that a buffer had at these places when it was asked last, of which
   others may have some now. */
static gmlake_result commit_wanted(buffer *b, const change *c, int on) {
  const buffer *like = m.now->bytes / (long)m.granule % 4 == 1 ? b : &m.buffers[0];
  const size_t offset = c->from * m.granule, bytes = c->to * m.granule - offset;
  uint32_t chunks[BUFFER_CHUNKS] = {0};
  gmlake_result result;
  size_t i, n;
  for (i = c->from; i < c->to; i++) /* 0: never asked */
    chunks[i - c->from] = like->numbers[i] ? like->numbers[i] - 1 : GMLAKE_ANY_CHUNK;
  result = gmlake_buffer_commit_chunks(m.lake, b->value, offset, bytes, chunks, stream_value(on));
  for (i = c->from; i < c->to && !result; i++) {
    for (n = c->from; n < i; n++)
      expect(chunks[i - c->from] != chunks[n - c->from], "two places of a buffer have one chunk");
    b->numbers[i] = chunks[i - c->from] + 1;
  }
  return result;
}

static void do_resize(void) {
  buffer *b = &m.buffers[(size_t)m.now->id % BUFFERS];
  int on = live_stream(m.now->stream), is_captured;
  size_t offset, bytes, i;
  gmlake_result result;
  change c;
  if (!b->value && m.pools[0].is_asleep) return;
  if (b->value && m.now->other && !do_buffer_destroy(b, order_resize(b, on))) return;
  if (!b->value && !open_buffer(b, m.now->stream)) return;
  check_parts(b);
  on = order_resize(b, on);
  is_captured = on >= 0 && m.streams[on].capture;
  c = change_of(b);
  offset = c.from * m.granule;
  bytes = c.to * m.granule - offset;
  for (i = c.from, m.asked = 0; i < c.to; i++) m.asked += b->ids[i] ? 0 : m.granule;
  m.freeing = m.with.shares && !c.is_commit ? b->front.ptr : NULL;
  if (m.now->flags == 1 && m.now->bytes / (long)m.granule % 2)
    result = commit_wanted(b, &c, on);
  else if (m.now->flags == 1)
    result = gmlake_buffer_commit(m.lake, b->value, offset, bytes, stream_value(on));
  else if (m.now->flags)
    result = gmlake_buffer_discard(m.lake, b->value, offset, bytes, stream_value(on));
  else
    result = gmlake_buffer_resize(m.lake, b->value, c.end, stream_value(on));
  if (c.is_commit) pendings_may_serve(on);
  m.freeing = NULL;
  if (m.with.has_handler) m.sum.refused += m.handler_calls;
  if (result)
    check_resize_refusal(result, c.is_commit ? m.asked : 0, is_captured);
  else
    enter_change(b, &c, on);
}

static void do_record(void) {
  block *b = block_find(m.now->id);
  int on = live_stream(m.now->stream);
  if (!b || b->capture || !is_quiet(on) || !is_quiet(b->stream)) return;
  if (m.pools[b->pool].is_asleep) return; /* nothing may use it */
  caller_order(on, b->stream);
  if (!succeeded(gmlake_record_stream(m.lake, b->ptr, stream_value(on)), "gmlake_record_stream"))
    return;
  caller_use(b, on);
  b->recorded |= 1u << on;
  b->was_recorded = 1;
}

static void do_progress(void) {
  int s = live_stream(m.now->stream);
  if (s < 0 || m.streams[s].capture) return;
  if (m.now->kind == HOLD) gmlake_mock_stream_hold(m.mock, stream_value(s));
  if (m.now->kind == LAG)
    gmlake_mock_stream_set_lag(m.mock, stream_value(s), (uint64_t)m.now->bytes);
  if (m.now->kind == CLOCK) gmlake_mock_set_clock(m.mock, m.clock_ns += (uint64_t)m.now->bytes);
  if (m.now->kind == FINISH) gmlake_mock_stream_finish(m.mock, stream_value(s));
}

/* A number for a new stream: no work that an earlier holder did under it is unknown. */
static int fresh_stream(void) {
  int fresh = 0;
  while (fresh < DIMS &&
         (m.streams[fresh].live || m.known.at[fresh] < m.streams[fresh].after.at[fresh]))
    fresh++;
  return fresh;
}

/* The stream is destroyed with work pending on it; its value may come back at once. */
static void do_forget(void) {
  int s = live_stream(m.now->stream), heir = live_stream(m.now->other), fresh = fresh_stream();
  size_t i;
  if (s <= 0 || heir < 0 || heir == s || fresh == DIMS || !is_quiet(s) || !is_quiet(heir)) return;
  if (!succeeded(gmlake_forget_stream(m.lake, stream_value(s)), "gmlake_forget_stream")) return;
  caller_order(heir, s); /* waiting for the heir waits for the lake's last event there, too */
  for (i = 0; i < m.block_count; i++) {
    block *b = &m.blocks[i];
    if (b->stream == s) b->stream = heir;
  }
  for (i = 0; i < BUFFERS; i++)
    if (m.buffers[i].front.stream == s) m.buffers[i].front.stream = heir;
  for (i = 0; i < POOLS; i++)
    if (m.pools[i].turn == s) m.pools[i].turn = heir;
  gmlake_mock_stream_destroy(m.mock, m.streams[s].value);
  m.streams[s].live = 0;
  expect_result(gmlake_mock_stream_create(m.mock, &m.streams[fresh].value), GMLAKE_OK,
                "gmlake_mock_stream_create");
  m.streams[fresh].live = 1;
  m.dims = max_of(m.dims, (size_t)fresh + 1);
  for (i = 0; i < DIMS; i++)
    if ((int)i != fresh) m.streams[fresh].after.at[i] = 0;
  for (i = 0; i < m.block_count; i++) m.blocks[i].recorded &= ~(1u << fresh); /* another one */
}

static void do_pool_open(void) {
  gmlake_pool_desc desc;
  int i = (int)m.now->pool, range = 0;
  pool *p = &m.pools[i > 0 && i < POOLS ? i : 1];
  gmlake_pool *value = NULL;
  if (p->value) return;
  memset(&desc, 0, sizeof(desc));
  desc.chunk_bytes = (size_t)m.now->flags * m.granule;
  desc.limit_bytes = (size_t)m.now->bytes;
  while (m.ranges[range].cells) range++; /* the home arena is reserved first */
  m.next_is_home = 1;
  if (succeeded(gmlake_pool_create(m.lake, &desc, &value), "gmlake_pool_create")) {
    expect(value != NULL, "gmlake_pool_create gave no pool");
    p->value = value;
    p->range = range;
    p->limit_bytes = desc.limit_bytes;
    p->chunk_bytes = desc.chunk_bytes ? desc.chunk_bytes : m.chunk;
    p->turn = NO_STREAM;
  } else {
    expect(value == NULL, "gmlake_pool_create gave a pool, and an error");
  }
  m.next_is_home = 0;
}

static int has_exports(int pool_number, int live);

/* A window whose memory was exported is dropped before its pool closes, which is counted, or with
   it. */
static void follow_evictions(void) {
  gmlake_stats stats;
  memset(&stats, 0, sizeof(stats));
  expect_result(gmlake_get_stats(m.lake, &stats), GMLAKE_OK, "gmlake_get_stats");
  expect(stats.stitch_evict_count >= m.sum.evictions, "evictions are taken back");
  m.sum.evictions = stats.stitch_evict_count;
}

static void do_pool_close(void) {
  int i = live_pool(m.now->pool), exports;
  size_t n, live = 0;
  gmlake_result result;
  if (!i) return;
  for (n = 1; n <= m.capture_count; n++)
    if (m.captures[n].active && m.captures[n].pool == i) return;
  if (m.pools[i].is_lent) {
    result = gmlake_pool_destroy(m.lake, m.pools[i].value);
    if (!is_excused(result)) expect_result(result, GMLAKE_ERROR_BUSY, "gmlake_pool_destroy, lent");
    return;
  }
  if (m.pools[i].turn >= 0 && captures_active()) return;
  if (m.pools[i].turn >= 0) caller_wait(m.pools[i].turn); /* its graphs have run */
  for (n = 0; n < m.block_count; n++) live += m.blocks[n].pool == i;
  exports = has_exports(i, 0);
  m.destroying = !live; /* graphs are gone by the caller's promise, which covers their work only */
  result = gmlake_pool_destroy(m.lake, m.pools[i].value);
  m.destroying = 0;
  if (exports) follow_evictions();
  if (result == GMLAKE_ERROR_CAPTURING && captures_active()) return; /* there is no waiting */
  if (live && !is_excused(result))
    expect_result(result, GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_pool_destroy with live blocks");
  else if (!live)
    (void)succeeded(result, "gmlake_pool_destroy");
  if (!result) memset(&m.pools[i], 0, sizeof(m.pools[i])); /* else it is as it was */
}

static void do_capture_begin(void) {
  int s = live_stream(m.now->stream), p = live_pool(m.now->pool);
  stream *on = &m.streams[s < 0 ? 0 : s];
  if (s <= 0 || !p || on->capture || m.capture_count + 1 == CAPTURES) return;
  if (m.pools[p].is_asleep) {
    const gmlake_result result = gmlake_capture_begin(m.lake, on->value, m.pools[p].value);
    if (!is_excused(result)) expect_result(result, GMLAKE_ERROR_ASLEEP, "a capture, asleep");
    return;
  }
  if (m.pools[p].is_lent) {
    const gmlake_result result = gmlake_capture_begin(m.lake, on->value, m.pools[p].value);
    if (!is_excused(result)) expect_result(result, GMLAKE_ERROR_BUSY, "a capture into a lent pool");
    return;
  }
  if (!succeeded(gmlake_capture_begin(m.lake, on->value, m.pools[p].value), "gmlake_capture_begin"))
    return;
  expect_result(gmlake_mock_capture_begin(m.mock, on->value), GMLAKE_OK,
                "gmlake_mock_capture_begin");
  on->capture = ++m.capture_count;
  m.captures[on->capture].pool = p;
  m.captures[on->capture].active = 1;
}

static void know_chunks(range *home) {
  size_t i;
  for (i = 0; i < home->count; i++) home->cells[i].is_known = home->cells[i].frame >= 0;
}

static void end_capture(stream *on) {
  expect_result(gmlake_mock_capture_end(m.mock, on->value), GMLAKE_OK,
                "the capture, by the driver");
  if (!m.lost)
    expect_result(gmlake_capture_end(m.lake, on->value), GMLAKE_OK, "gmlake_capture_end");
  m.captures[on->capture].active = 0;
  know_chunks(&m.ranges[m.pools[m.captures[on->capture].pool].range]);
  on->capture = 0;
}

static void do_capture_end(void) {
  int s = live_stream(m.now->stream);
  if (s >= 0 && m.streams[s].capture) end_capture(&m.streams[s]);
}

/* ---- Lending: graphs are launched, and others use their memory in between -------------------- */

static int is_captured_into(int pool_number) {
  size_t i;
  for (i = 1; i <= m.capture_count; i++)
    if (m.captures[i].active && m.captures[i].pool == pool_number) return 1;
  return 0;
}

/* The graphs' launches are before this point of the stream. */
static void do_lend(void) {
  const int i = live_pool(m.now->pool), s = live_stream(m.now->stream);
  pool *p = &m.pools[i];
  gmlake_result result, wanted = GMLAKE_OK;
  if (!i || s < 0) return;
  if (p->is_lent) {
    wanted = GMLAKE_ERROR_BUSY;
  } else if (p->is_asleep) {
    wanted = GMLAKE_ERROR_ASLEEP;
  } else if (m.streams[s].capture || is_captured_into(i)) {
    wanted = GMLAKE_ERROR_CAPTURING;
  } else if (p->turn >= 0 && p->turn != s) {
    if (!is_quiet(s) || !is_quiet(p->turn)) return;
    caller_order(s, p->turn);
  }
  result = gmlake_pool_lend(m.lake, p->value, stream_value(s));
  if (result != wanted && !is_excused(result)) expect_result(result, wanted, "gmlake_pool_lend");
  if (result) return;
  p->is_lent = 1;
}

/* Of what was borrowed, chunks that no graph can know are as any free memory; the rest is for
   captures and borrowers from now on, as if of a graph. */
static void keep_borrowed(int pool_number) {
  const range *home = &m.ranges[m.pools[pool_number].range];
  const size_t frames = m.pools[pool_number].chunk_bytes / m.granule, grains = m.granule / GRAIN;
  size_t first, i;
  m.captures[++m.capture_count].pool = pool_number;
  for (first = 0; first + frames <= home->count; first += frames) {
    for (i = 0; i < frames * grains && home->cells[first].frame >= 0; i++) {
      frame *f = &m.frames[home->cells[first + i / grains].frame];
      if (!home->cells[first].is_known)
        f->graph[i % grains] = 0; /* what an earlier recall has kept there */
      else if (f->is_lent[i % grains] && !f->graph[i % grains])
        f->graph[i % grains] = m.capture_count;
      f->is_lent[i % grains] = 0;
    }
  }
}

static void do_recall(void) {
  const int i = live_pool(m.now->pool), s = live_stream(m.now->stream);
  pool *p = &m.pools[i];
  gmlake_result result, wanted = GMLAKE_OK;
  size_t n;
  if (!i || s < 0 || m.capture_count + 1 == CAPTURES) return;
  for (n = 0; n < m.block_count; n++)
    if (m.blocks[n].pool == i && m.blocks[n].flags & GMLAKE_TRANSIENT) wanted = GMLAKE_ERROR_BUSY;
  if (!p->is_lent) wanted = GMLAKE_ERROR_INVALID_ARGUMENT;
  result = gmlake_pool_recall(m.lake, p->value, stream_value(s));
  m.is_pinned |= m.host_hits > 0 || m.pending_count > 0; /* what is pending is kept, too */
  if (result == GMLAKE_ERROR_CAPTURING && !wanted && captures_active()) return;
  if (result != wanted && !is_excused(result)) expect_result(result, wanted, "gmlake_pool_recall");
  if (result) return;
  p->is_lent = 0;
  p->turn = s;
  keep_borrowed(i);
}

/* What the graphs of a pool use, behind their last launch, or behind recall. */
static void use_graphs(int pool_number, int s) {
  const uint32_t work = ++m.streams[s].after.at[s];
  stamp cover = m.known;
  size_t i, grain;
  stamp_join(&cover, &m.streams[s].after);
  for (i = 0; i < FRAMES; i++)
    for (grain = 0; m.frames[i].taken && grain < m.granule / GRAIN; grain++) {
      const uint32_t graph = m.frames[i].graph[grain];
      if (!graph || m.captures[graph].pool != pool_number || m.captures[graph].active) continue;
      expect(m.frames[i].owner[grain] || stamp_covers(&cover, &m.frames[i].used[grain]),
             "a graph is launched while other work may still use its memory");
      m.frames[i].used[grain].at[s] = work;
    }
}

static void do_launch(void) {
  const int i = live_pool(m.now->pool), s = live_stream(m.now->stream);
  pool *p = &m.pools[i];
  gmlake_result result;
  if (!i || s < 0 || !is_quiet(s)) return;
  if (p->turn >= 0 && p->turn != s && !p->is_lent && !p->is_asleep) {
    if (!is_quiet(p->turn)) return;
    caller_order(s, p->turn);
  }
  result = gmlake_mock_launch(m.mock, p->value, 1, stream_value(s));
  expect_result(result,
                p->is_lent     ? GMLAKE_ERROR_BUSY
                : p->is_asleep ? GMLAKE_ERROR_ASLEEP
                               : GMLAKE_OK,
                "gmlake_mock_launch");
  if (result) return;
  use_graphs(i, s);
  p->turn = s;
}

/* ---- Sharing: this process is the other one, too: memory with two addresses ------------------ */

static gmlake_handle handles[IMPORT_FRAMES];

static size_t frames_left(void) {
  size_t i, left = 0;
  for (i = 0; i < FRAMES; i++) left += !m.frames[i].taken;
  return left;
}

static void mark_shared(const unsigned char *ptr, size_t bytes) {
  size_t offset;
  for (offset = 0; offset < bytes; offset += m.granule)
    frame_at((uint64_t)(uintptr_t)ptr + offset)->is_shared = 1;
}

/* Maps what was exported of a block, or of a buffer's chunks. */
static void do_import(const block *of, const uint32_t *ids, size_t bytes, size_t count,
                      uint32_t id) {
  const size_t held = held_now(), live = captures_active() ? 0 : 1;
  gmlake_result result;
  void *ptr = &ptr;
  block b;
  int slot = POOLS;
  size_t i;
  memset(&b, 0, sizeof(b));
  for (i = 0; i < m.block_count; i++)
    if (m.blocks[i].pool == slot) slot++, i = (size_t)-1;
  if (slot == POOLS + IMPORTS || m.block_count == BLOCKS) return;
  if (frames_left() < bytes / m.granule + (m.capacity - physical_bytes()) / m.granule) return;
  m.next_is_home = 1;
  result = gmlake_import(m.lake, handles, count, &ptr);
  m.next_is_home = 0;
  expect((result == GMLAKE_OK) == (ptr != NULL), "the pointer and the result contradict");
  if (result == GMLAKE_ERROR_LIMIT_REACHED && m.limit && held + bytes > m.limit) return;
  if (!live && result == GMLAKE_ERROR_CAPTURING) return;
  if (!succeeded(result, "gmlake_import") || m.fatal_hits) return;
  b.id = id;
  b.ptr = (unsigned char *)ptr;
  b.requested = b.bytes = bytes;
  b.flags = GMLAKE_EXCLUSIVE;
  b.is_import = b.is_unseen = 1;
  b.content = of->content;
  if (ids) memcpy(b.ids, ids, sizeof(b.ids));
  b.pool = slot;
  m.pools[slot].range = range_of((uint64_t)(uintptr_t)ptr);
  m.pools[slot].chunk_bytes = handles[0].bytes;
  take(&b);
  check_pieces(&b);
  m.sum.allocations++;
  m.sum.requested += bytes;
  m.sum.active += bytes;
  m.sum.requested_peak = max_of(m.sum.requested_peak, m.sum.requested);
  m.sum.active_peak = max_of(m.sum.active_peak, m.sum.active);
  b.stream = live_stream(m.now->other);
  if (m.streams[b.stream].capture) b.stream = 0;
  caller_use(&b, b.stream);
  m.blocks[m.block_count++] = b;
  verify(&m.blocks[m.block_count - 1]);
}

/* What an export has to answer. */
static gmlake_result export_result(const block *b, const buffer *from) {
  size_t i, chunks = from ? round_up(from->end, m.granule) / m.granule : 0;
  if (m.pools[b->pool].is_asleep) return GMLAKE_ERROR_ASLEEP;
  if (!m.with.shares) return GMLAKE_ERROR_INVALID_ARGUMENT;
  for (i = 0; i < chunks; i++)
    if (!from->ids[i]) return GMLAKE_ERROR_INVALID_ARGUMENT;
  if (from ? !chunks
           : b->is_import || b->capture || !(b->flags & GMLAKE_EXCLUSIVE) ||
                 (b->flags & GMLAKE_TRANSIENT))
    return GMLAKE_ERROR_INVALID_ARGUMENT;
  return m.with.bookkeeping_only && !(m.now->flags & 8) ? GMLAKE_ERROR_UNSUPPORTED : GMLAKE_OK;
}

static void do_share(void) {
  buffer *from = m.now->flags & 1 ? &m.buffers[(size_t)m.now->id % BUFFERS] : NULL;
  block *place = from ? NULL : block_find(m.now->id), b;
  const size_t room = m.now->flags & 8 ? 0 : IMPORT_FRAMES;
  const uint32_t id = 0x20000000u + (uint32_t)m.now->bytes;
  gmlake_result result, wanted;
  size_t count = 0;
  if (from ? !from->value : !place) return;
  b = from ? from->front : *place;
  if (from) b.bytes = round_up(from->end, m.granule);
  if (b.bytes / m.granule > IMPORT_FRAMES) return;
  wanted = export_result(&b, from);
  result =
      gmlake_export(m.lake, b.ptr, GMLAKE_HANDLE_POSIX_FD, room ? handles : NULL, room, &count);
  if (result != wanted && !is_excused(result)) expect_result(result, wanted, "gmlake_export");
  if (result) return;
  if (!room) return;
  expect(count * handles[0].bytes == b.bytes, "the handles have another size");
  mark_shared(b.ptr, b.bytes);
  if (place) place->is_shared = 1;
  if (m.now->flags & 2) do_import(&b, from ? from->ids : NULL, b.bytes, count, id);
  if (m.now->flags & 4 && !m.fatal_hits)
    do_import(&b, from ? from->ids : NULL, b.bytes, count, id + 0x10000000u);
  while (count) (void)close(handles[--count].fd);
}

/* Whether a chunk that a pool's block, or [0] a buffer, has or had was exported. live: has. */
static int has_exports(int pool_number, int live) {
  size_t i, n, grain;
  for (i = 0; i < FRAMES; i++) {
    const handle *h = &m.handles[i];
    int of = 0, is_owned = 0;
    if (!h->value || h->is_foreign || !m.frames[h->frames[0]].is_shared) continue;
    for (n = 1; n < POOLS; n++)
      if (m.pools[n].value && m.pools[n].range == h->range) of = (int)n;
    for (grain = 0; grain < m.granule / GRAIN; grain++)
      is_owned |= m.frames[h->frames[0]].owner[grain] != 0;
    if (of == pool_number && (is_owned || !live)) return 1;
  }
  return 0;
}

/* ---- Sleep: what sleeps is in no memory, and has its addresses ------------------------------- */

static unsigned sleep_of(int i) { return i ? m.pools[i].value->arena.sleep : m.lake->home.sleep; }

/* A block that was awake all the time, or has the memory of its pool that woke. */
static void take_again(const block *b) {
  const uint64_t at = (uint64_t)(uintptr_t)b->ptr;
  size_t offset;
  for (offset = 0; offset < b->bytes; offset += GRAIN) {
    const cell *c = cell_at(at + offset);
    uint32_t *owner;
    expect(c && c->frame >= 0 && c->is_accessible, "a block has no memory though it is awake");
    owner = &m.frames[c->frame].owner[(at + offset) % m.granule / GRAIN];
    expect(!*owner, "two live blocks overlap after sleep");
    *owner = b->id;
  }
}

static void take_new(const block *b) {
  take_again(b);
  fill(b);
}

static void expect_intact(const block *b) {
  expect(is_intact(b, 0, b->ptr, b->bytes), "contents changed, before sleep or in it");
}

static void take_kept(const block *b) {
  take_again(b);
  expect_intact(b);
}

static void each_of_pool(int pool_number, void (*act)(const block *b)) {
  size_t i;
  for (i = 0; i < m.block_count; i++)
    if (m.blocks[i].pool == pool_number) act(&m.blocks[i]);
  for (i = 0; i < BUFFERS * BUFFER_CHUNKS && !pool_number; i++) {
    const buffer *b = &m.buffers[i / BUFFER_CHUNKS];
    const block part = part_of(b, i % BUFFER_CHUNKS);
    if (b->value && b->ids[i % BUFFER_CHUNKS]) act(&part);
  }
}

/* The caller waits for all work on the device. */
static void caller_synchronise(void) {
  size_t i;
  for (i = 0; i < DIMS; i++) {
    if (!m.streams[i].live) continue;
    gmlake_mock_stream_finish(m.mock, m.streams[i].value);
    caller_wait((int)i);
  }
}

static void do_sleep(void) {
  const int i = m.now->pool ? live_pool(m.now->pool) : 0;
  const size_t before = physical_bytes();
  pool *p = &m.pools[i];
  size_t released = 1;
  gmlake_result result;
  if (captures_active() || m.is_stuck) return;
  caller_synchronise();
  if (p->is_lent) {
    result = gmlake_pool_sleep(m.lake, p->value, GMLAKE_SLEEP_DROP, &released);
    if (!is_excused(result)) expect_result(result, GMLAKE_ERROR_BUSY, "gmlake_pool_sleep, lent");
    return;
  }
  if (has_exports(i, 0) && !p->is_asleep) {
    result = gmlake_pool_sleep(m.lake, p->value, GMLAKE_SLEEP_DROP, &released);
    if (!is_excused(result)) expect_result(result, GMLAKE_ERROR_BUSY, "gmlake_pool_sleep, shared");
    return;
  }
  if (!p->is_asleep) each_of_pool(i, expect_intact);
  if (!p->is_asleep) each_of_pool(i, give);
  m.is_moving = 1;
  result = gmlake_pool_sleep(m.lake, p->value, m.now->flags ? GMLAKE_SLEEP_KEEP : GMLAKE_SLEEP_DROP,
                             &released);
  m.is_moving = 0;
  expect(before - physical_bytes() == released || m.fatal_hits, "sleep tells another figure");
  if (p->is_asleep) {
    p->is_kept &= m.now->flags != 0;
    (void)succeeded(result, "gmlake_pool_sleep, asleep");
    return;
  }
  (void)succeeded(result, "gmlake_pool_sleep");
  p->is_asleep = sleep_of(i) == GMLK_ASLEEP;
  if (m.fatal_hits) return;
  p->is_kept = m.now->flags != 0;
  expect(result || p->is_asleep, "a pool does not sleep");
  if (!p->is_asleep) each_of_pool(i, take_kept); /* as it was */
}

static void do_wake(void) {
  const int i = m.now->pool ? live_pool(m.now->pool) : 0;
  pool *p = &m.pools[i];
  gmlake_result result;
  int is_memory;
  m.is_moving = 1;
  result = gmlake_pool_wake(m.lake, p->value);
  m.is_moving = 0;
  is_memory = p->is_asleep && (result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ||
                               (result == GMLAKE_ERROR_LIMIT_REACHED &&
                                (m.limit || m.with.driver_free_min || p->limit_bytes)));
  m.sum.unwoken += m.handler_calls ? m.handler_calls : (uint64_t)is_memory;
  if (!is_memory) (void)succeeded(result, "gmlake_pool_wake");
  if (m.fatal_hits || !p->is_asleep) return;
  expect((result == GMLAKE_OK) == !sleep_of(i), "a pool wakes, or it does not");
  if (result) return;
  p->is_asleep = 0;
  each_of_pool(i, p->is_kept ? take_kept : take_new);
}

/* Windows that sleep are counted and not mapped: what was watched is not what is told. */
static void follow_windows(void) {
  gmlake_stats stats;
  size_t bytes = 0, i, n;
  memset(&stats, 0, sizeof(stats));
  expect_result(gmlake_get_stats(m.lake, &stats), GMLAKE_OK, "gmlake_get_stats");
  for (i = 0; i < RANGES; i++)
    for (n = 0; n < m.ranges[i].count && !m.ranges[i].is_home && !m.ranges[i].is_buffers; n++)
      bytes += m.ranges[i].cells[n].frame >= 0 ? m.granule : 0;
  expect(is_any_asleep() || m.is_stuck || stats.stitched_bytes == bytes,
         "stitched_bytes after sleep");
  m.mapped_bytes = stats.stitched_bytes;
  m.sum.windows = stats.window_count;
  m.sum.evictions = stats.stitch_evict_count;
  m.sum.stitched_peak = stats.stitched_bytes_peak;
  m.sum.stitched_most = max_of(m.sum.stitched_most, stats.stitched_bytes_peak);
}

static void do_mark(void) {
  const int s = live_stream(m.now->stream);
  if (s < 0) return;
  (void)succeeded(gmlake_mark_stream(m.lake, stream_value(s), (gmlake_stream_kind)m.now->flags),
                  "gmlake_mark_stream");
}

static void do_prewarm(void) {
  const size_t before = physical_bytes(), held = held_bytes(m.pools[0].range);
  gmlake_profile profile;
  gmlake_result result;
  memset(&profile, 0, sizeof(profile));
  profile.peak_bytes = profile.resident_bytes = (size_t)m.now->bytes;
  profile.handle_bytes = max_of(1, (size_t)m.with.handle_chunks) * m.chunk;
  profile.large_percent = 50;
  result = gmlake_prewarm(m.lake, &profile, stream_value(live_stream(m.now->stream)));
  if (result == GMLAKE_ERROR_ASLEEP && m.pools[0].is_asleep) return;
  if (!succeeded(result, "gmlake_prewarm")) {
    expect(physical_bytes() == before || m.is_stuck, "prewarm has failed, and created memory");
    return;
  }
  expect(physical_bytes() == before || m.is_stuck ||
             held + physical_bytes() - before <= round_up(profile.peak_bytes, m.chunk),
         "prewarm created more than the profile tells of");
}

static size_t exported_bytes(void) {
  size_t i, frames = 0;
  for (i = 0; i < FRAMES; i++) frames += m.frames[i].taken && m.frames[i].is_shared;
  return frames * m.granule;
}

/* What was exported and freed goes too, however much is to be kept. */
static void do_trim(void) {
  size_t released = 1, before = held_now(), keep = (size_t)m.now->bytes,
         exported = exported_bytes();
  (void)succeeded(gmlake_trim(m.lake, keep, &released), "gmlake_trim");
  expect(before - held_now() == released, "trim tells another figure than it released");
  exported -= exported_bytes();
  expect(!released || before - released + m.handle_frames_most * m.granule + exported > keep,
         "trim released more than asked");
}

static void do_budget(void) {
  gmlake_budget budget;
  size_t physical = physical_bytes(), sum;
  if (!succeeded(gmlake_get_budget(m.lake, &budget), "gmlake_get_budget")) return;
  expect(budget.total_bytes == m.capacity, "budget: total");
  expect(budget.driver_free_bytes == m.capacity - physical, "budget: driver-free");
  physical = held_now();
  expect(budget.reserved_bytes == physical, "budget: reserved");
  if (is_any_asleep()) return;
  sum = budget.idle_bytes + budget.pending_bytes + m.sum.active;
  expect(m.is_stuck ? sum <= physical : sum == physical,
         "budget: idle, pending and live memory are not what is held");
}

static void do_peaks(void) {
  expect_result(gmlake_reset_peaks(m.lake), GMLAKE_OK, "gmlake_reset_peaks");
  m.sum.requested_peak = m.sum.requested;
  m.sum.active_peak = m.sum.active;
  m.sum.reserved_peak = m.sum.reserved_most = held_now();
  m.sum.stitched_peak = m.sum.stitched_most = m.mapped_bytes;
  m.sum.pending_peak = 0;
}

/* Pointers that are not the start of a live block. */
static void do_misuse(void) {
  const block *b = block_find(m.now->id);
  gmlake_result result;
  if (!b || m.now->fault_call) return;
  expect_result(gmlake_free(m.lake, b->ptr + 1 + (size_t)m.now->bytes % (b->bytes - 1), NULL),
                GMLAKE_ERROR_UNKNOWN_POINTER, "gmlake_free inside a block");
  expect_result(gmlake_free(m.lake, b->ptr, (gmlake_stream)(uintptr_t)2),
                GMLAKE_ERROR_INVALID_ARGUMENT, "gmlake_free on stream 2");
  result = gmlake_free(m.lake, &result, NULL);
  expect_result(result, GMLAKE_ERROR_UNKNOWN_POINTER, "gmlake_free of the host's memory");
}

/* All work is done: nothing may be pending, and trim must find every whole free chunk. */
static void do_quiesce(void) {
  gmlake_stats stats;
  size_t i, n, released;
  if (captures_active()) return;
  for (i = 0; i < DIMS; i++) {
    if (!m.streams[i].live) continue;
    gmlake_mock_stream_finish(m.mock, m.streams[i].value);
    gmlake_mock_stream_set_lag(m.mock, m.streams[i].value, 0);
    caller_wait((int)i);
  }
  gmlake_mock_set_clock(m.mock, m.clock_ns += 10000);
  if (!succeeded(gmlake_trim(m.lake, 0, &released), "gmlake_trim")) return;
  if (m.fault_hits || m.host_hits || m.is_stuck || m.is_denied || m.is_pinned) return;
  memset(&stats, 0, sizeof(stats));
  expect_result(gmlake_get_stats(m.lake, &stats), GMLAKE_OK, "gmlake_get_stats");
  m.pending_count = 0;
  for (i = 0; i < POOLS; i++)
    expect(has_exports((int)i, 0) == has_exports((int)i, 1),
           "trim left what was exported and freed");
  for (i = 0; i < FRAMES; i++) {
    const handle *h = &m.handles[i];
    int in_graph = 0;
    for (n = 0; n < h->frame_count * (m.granule / GRAIN) && h->value; n++)
      in_graph |= m.frames[h->frames[n / (m.granule / GRAIN)]].graph[n % (m.granule / GRAIN)] != 0;
    expect(in_graph || !handle_is_free(h), "trim left a whole free chunk");
  }
  expect(stats.pending_bytes == 0, "blocks are pending though all work is done");
}

static void do_verify(void) {
  const block *b = block_find(m.now->id);
  gmlake_pool *pools[POOLS];
  const char *wrong;
  size_t i;
  for (i = 0; i < POOLS; i++) pools[i] = m.pools[i].value;
  wrong = is_any_asleep() ? NULL : map_wrong(m.lake, pools, POOLS);
  if (wrong) broken(wrong);
  if (b) verify(b);
}

/* With live blocks and pending work. */
static void do_close(void) {
  gmlake_mock_census left;
  gmlake_result result;
  int code = 0;
  size_t i;
  for (i = 0; i < DIMS; i++)
    if (m.streams[i].live && m.streams[i].capture) end_capture(&m.streams[i]);
  for (i = 0; i < m.block_count; i++) {
    verify(&m.blocks[i]);
    if (m.blocks[i].is_unseen) caller_wait(m.blocks[i].stream);
  }
  for (i = 0; i < BUFFERS; i++) {
    const block *front = &m.buffers[i].front;
    if (!m.buffers[i].value) continue;
    check_parts(&m.buffers[i]);
    if (front->is_unseen) caller_wait(front->stream);
  }
  m.destroying = 1;
  result = gmlake_destroy(m.lake);
  if (m.lost)
    expect_result(result, m.lost, "gmlake_destroy of a lost lake");
  else if (result && !is_excused(result))
    expect_result(result, GMLAKE_OK, "gmlake_destroy");
  m.is_caller = 1;
  expect_result(m.table.event_destroy(m.table.user, m.own_event, &code), GMLAKE_OK,
                "the caller's event_destroy");
  expect(m.host_bytes == 0, "host memory is left");
  left = census();
  expect(m.fault_hits || (!left.handle_count && !left.mapping_count && !left.reservation_count &&
                          !left.event_count && !left.physical_bytes),
         "something is left on the device");
  gmlake_mock_destroy(m.mock);
  for (i = 0; i < RANGES; i++) free_cells(&m.ranges[i]);
  m.lake = NULL;
}

/* ---- After each operation -------------------------------------------------------------------- */

static void check_pending(const gmlake_stats *stats) {
  size_t least = 0, most = 0, i;
  for (i = 0; i < m.pending_count; i++) {
    most += m.pendings[i].bytes;
    if (!m.pendings[i].may_serve && !stamp_covers(&m.known, &m.pendings[i].need))
      least += m.pendings[i].bytes;
  }
  expect(stats->pending_bytes >= least && stats->pending_bytes <= most, "pending_bytes");
  m.sum.pending_peak = max_of(m.sum.pending_peak, stats->pending_bytes);
  expect(stats->pending_bytes_peak >= m.sum.pending_peak, "pending_bytes_peak");
  if (stats->pending_bytes == 0) m.pending_count = 0;
}

static void check_live(const gmlake_stats *stats) {
  expect(stats->requested_bytes == m.sum.requested, "requested_bytes");
  expect(stats->active_bytes == m.sum.active, "active_bytes");
  expect(stats->requested_bytes_peak == m.sum.requested_peak, "requested_bytes_peak");
  expect(stats->active_bytes_peak == m.sum.active_peak, "active_bytes_peak");
  expect(stats->live_count == m.block_count, "live_count");
  expect(stats->allocation_count == m.sum.allocations, "allocation_count");
  expect(stats->free_count == m.sum.frees, "free_count");
  expect(stats->oom_count == m.sum.refused + m.sum.unwoken, "oom_count");
  expect(stats->metadata_bytes == m.host_bytes, "metadata_bytes");
  expect(stats->metadata_bytes_peak >= stats->metadata_bytes, "metadata_bytes_peak");
}

/* Figures that agree with the mock's census and the calls that were watched. */
static void check_device(const gmlake_stats *stats) {
  gmlake_mock_census now = census();
  m.sum.reserved_peak = max_of(m.sum.reserved_peak, stats->reserved_bytes);
  expect(stats->reserved_bytes - stats->imported_bytes == now.physical_bytes, "reserved_bytes");
  expect(m.is_stuck || stats->imported_bytes == imported_bytes(), "imported_bytes");
  expect(m.is_stuck || stats->exported_bytes == exported_bytes(), "exported_bytes");
  expect(stats->chunk_count == now.handle_count, "chunk_count");
  expect(stats->reserved_bytes_peak >= m.sum.reserved_peak &&
             stats->reserved_bytes_peak <= m.sum.reserved_most,
         "reserved_bytes_peak");
  expect(!m.limit || m.is_stuck || stats->reserved_bytes <= m.limit, "the limit is exceeded");
  expect(stats->stitch_count == m.sum.stitches, "stitch_count");
  expect(stats->stitch_reuse_count == m.sum.reuses, "stitch_reuse_count");
  expect(stats->stream_wait_count == m.sum.stream_waits, "stream_wait_count");
  if (m.is_stuck) return; /* what cannot be unmapped is out of the figures */
  m.sum.stitched_peak = max_of(m.sum.stitched_peak, m.mapped_bytes);
  expect(stats->quarantined_bytes == 0 || is_any_asleep(), "quarantined_bytes");
  expect(stats->stitched_bytes == m.mapped_bytes, "stitched_bytes");
  expect(stats->stitched_bytes_peak >= m.sum.stitched_peak &&
             stats->stitched_bytes_peak <= m.sum.stitched_most,
         "stitched_bytes_peak");
  expect(stats->window_count == m.sum.windows, "window_count");
  expect(stats->stitch_evict_count == m.sum.evictions, "stitch_evict_count");
}

static void check_buffers(const gmlake_stats *stats) {
  size_t i, bytes = 0, count = 0;
  for (i = 0; i < BUFFERS; i++) {
    if (!m.buffers[i].value) continue;
    count++;
    bytes += active_of(&m.buffers[i]);
  }
  expect(stats->buffer_count == count, "buffer_count");
  expect(stats->buffer_bytes == bytes, "buffer_bytes");
}

static void check_counts(const gmlake_stats *stats) {
  const uint64_t *states = stats->state_count;
  uint64_t served = states[0] + states[1] + states[2] + states[3];
  if (!m.is_clean) return; /* what failed half way is counted here and there */
  expect(m.buffer_serial ? served >= m.sum.allocations : served == m.sum.allocations,
         "state_count"); /* buffers take some chunks back without being served */
  expect(states[4] == m.sum.refused + m.sum.lies + m.sum.forbidden, "state_count of S5");
  expect(m.with.policy & CHOOSES ||
             (stats->split_count >= states[1] && stats->split_count <= states[1] + states[3]),
         "split_count");
  expect(stats->host_wait_count == m.sum.host_waits, "host_wait_count");
  expect(stats->event_count == m.sum.records, "event_count");
  expect(stats->driver_call_count == m.sum.calls, "driver_call_count");
}

static void check_lake(void) {
  gmlake_error_info info;
  gmlake_stats stats;
  char rule[256];
  memset(&stats, 0, sizeof(stats));
  expect_result(gmlake_get_stats(m.lake, &stats), GMLAKE_OK, "gmlake_get_stats");
  check_live(&stats);
  check_buffers(&stats);
  check_pending(&stats);
  check_device(&stats);
  check_counts(&stats);
  if (++m.unchecked < m.with.check_every) return;
  m.unchecked = 0;
  if (!gmlake_check(m.lake)) return;
  (void)gmlake_get_last_error(m.lake, &info);
  (void)snprintf(rule, sizeof(rule), "gmlake_check: %s", info.text);
  broken(rule);
}

/* After a fatal error every call that changes memory answers it, and changes nothing. */
static void check_lost(void) {
  void *ptr = &ptr;
  int nothing = 0;
  gmlake_result result = gmlake_alloc(m.lake, 1, NULL, &ptr);
  expect(is_fatal(result) && !ptr, "the device is lost, and an allocation does not say so");
  expect_result(gmlake_free(m.lake, &nothing, NULL), result, "gmlake_free on a lost device");
  expect_result(gmlake_trim(m.lake, 0, NULL), result, "gmlake_trim on a lost device");
  m.lost = result;
  shared->sum.lost++;
}

static void do_free_now(void) {
  (void)do_free(m.now->id, live_stream(m.now->stream), m.now->other != 0);
}

static void dispatch(void) {
  static void (*const calls[])(void) = {
      [ALLOC] = do_alloc,
      [FREE] = do_free_now,
      [RECORD] = do_record,
      [FORGET] = do_forget,
      [POOL_OPEN] = do_pool_open,
      [POOL_CLOSE] = do_pool_close,
      [CAPTURE_BEGIN] = do_capture_begin,
      [CAPTURE_END] = do_capture_end,
      [TRIM] = do_trim,
      [BUDGET] = do_budget,
      [PEAKS] = do_peaks,
      [MISUSE] = do_misuse,
      [QUIESCE] = do_quiesce,
      [VERIFY] = do_verify,
      [RESIZE] = do_resize,
      [SLEEP] = do_sleep,
      [WAKE] = do_wake,
      [MARK] = do_mark,
      [PREWARM] = do_prewarm,
      [LEND] = do_lend,
      [RECALL] = do_recall,
      [LAUNCH] = do_launch,
      [SHARE] = do_share,
      [CLOSE] = do_close,
  };
  const size_t kind = (size_t)m.now->kind;
  void (*call)(void) = kind < sizeof(calls) / sizeof(calls[0]) ? calls[kind] : NULL;
  if (call)
    call();
  else
    do_progress();
}

static void perform(const op *o) {
  const int slept = m.lake && (is_any_asleep() || o->kind == SLEEP);
  if (!m.lake || (m.lost && o->kind != CLOSE)) return;
  m.now = o;
  m.fault_call = o->fault_call;
  m.host_call = o->host_call;
  m.fault_hits = m.host_hits = m.fatal_hits = m.handler_calls = 0;
  m.has_lied = 0;
  m.gone = 0;
  dispatch();
  m.fault_call = m.host_call = 0;
  shared->sum.operations++;
  if (!m.lake) return;
  if (slept && !m.fatal_hits) follow_windows();
  if (m.fatal_hits)
    check_lost();
  else
    check_lake();
}

/* ---- A policy that decides at random --------------------------------------------------------- */

static uint64_t random_of(uint64_t *state) {
  uint64_t x = *state += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

static size_t policy_below(size_t count) { return (size_t)(random_of(&m.policy_random) % count); }
static int policy_chance(size_t percent) { return policy_below(100) < percent; }

typedef struct wish { /* what a plan is made from */
  const gmlake_view *view;
  const gmlake_request *request;
  gmlake_plan *plan;
  size_t bytes, unit; /* rounded, and to what pieces are */
  int may_stitch, may_grow;
} wish;

static uint64_t home_of(const gmlake_piece *p) { return (uint64_t)(uintptr_t)p->home; }

static void wish_for(wish *w, uint64_t home, size_t bytes) {
  gmlake_piece *p = &w->plan->pieces[w->plan->piece_count++];
  p->home = (void *)(uintptr_t)home;
  p->bytes = bytes;
}

/* Part of a block, or of several side by side; 0: too small. */
static int wish_piece(wish *w) {
  const gmlake_piece *b = w->view->blocks;
  size_t first = policy_below(w->view->block_count), last = first, room, spare;
  uint64_t begin = home_of(&b[first]), end, home, mask = w->request->alignment - 1;
  while (last + 1 < w->view->block_count && policy_chance(70) &&
         home_of(&b[last]) + b[last].bytes == home_of(&b[last + 1]))
    last++;
  end = home_of(&b[last]) + b[last].bytes;
  home = (begin + mask) & ~mask;
  if (end < home || end - home < w->bytes) return 0;
  room = (size_t)(end - home);
  spare = (room - w->bytes) / (size_t)(mask + 1);
  if (spare && policy_chance(50)) home += policy_below(spare + 1) * (mask + 1);
  room = (size_t)(end - home - w->bytes) / w->unit;
  wish_for(w, home, w->bytes + (policy_chance(20) ? policy_below(room + 1) * w->unit : 0));
  w->plan->state = 1 + (unsigned)policy_below(2);
  room = w->plan->pieces[0].bytes;
  w->plan->keeps_former = home == begin && room < b[first].bytes && policy_chance(50) &&
                          (home + room) % w->view->chunk_bytes == 0;
  return 1;
}

static int wish_window(wish *w) {
  const gmlake_window_info *window = &w->view->windows[policy_below(w->view->window_count)];
  if (!window->is_free || window->bytes < w->request->bytes) return 0;
  w->plan->window = window->number;
  w->plan->state = 1 + (unsigned)policy_below(2);
  return 1;
}

/* The last chunk's part of a block that begins inside it: what a window may begin with. */
static size_t wish_tail(wish *w) {
  const gmlake_piece *b = &w->view->blocks[policy_below(w->view->block_count)];
  uint64_t chunk = w->view->chunk_bytes, end = (home_of(b) + chunk - 1) / chunk * chunk, home;
  home = (home_of(b) + w->request->alignment - 1) & ~(uint64_t)(w->request->alignment - 1);
  if (home >= end || end > home_of(b) + b->bytes || end - home >= w->bytes) return 0;
  wish_for(w, home, (size_t)(end - home));
  return (size_t)(end - home);
}

/* Whether a range ends in the chunk that the first piece lies in. */
static int wish_collides(const wish *w, uint64_t end) {
  const size_t chunk = w->view->chunk_bytes;
  return w->plan->piece_count && (end - 1) / chunk == home_of(&w->plan->pieces[0]) / chunk;
}

/* Whole chunks of blocks, from any block on, until there are enough, the last one cut. */
static int wish_stitch(wish *w) {
  const size_t count = w->view->block_count, chunk = w->view->chunk_bytes;
  size_t have = w->request->flags & GMLAKE_EXCLUSIVE || policy_chance(50) ? 0 : wish_tail(w);
  size_t at = policy_below(count), step = policy_chance(50) ? 1 : count - 1, n;
  for (n = 0; n < count && have < w->bytes; n++, at = (at + step) % count) {
    const gmlake_piece *b = &w->view->blocks[at];
    uint64_t home = (home_of(b) + chunk - 1) / chunk * chunk, end = home_of(b) + b->bytes;
    size_t bytes = end > home ? (size_t)(end - home) : 0, left = w->bytes - have;
    if (bytes > left) bytes = left;
    if (bytes < left || wish_collides(w, home + bytes)) bytes = bytes / chunk * chunk;
    if (!bytes) continue;
    wish_for(w, home, bytes);
    have += bytes;
  }
  if (have < w->bytes && (!w->may_grow || policy_chance(30))) return 0;
  if (have < w->bytes) w->plan->grow_bytes = round_up(w->bytes - have, chunk);
  w->plan->state = w->plan->grow_bytes ? 4 : w->plan->piece_count > 1 ? 3 : 2;
  return 1;
}

static int wish_growth(wish *w) {
  if (!w->may_grow) return 0;
  w->plan->grow_bytes = round_up(w->bytes, w->view->chunk_bytes);
  if (policy_chance(10)) w->plan->grow_bytes += w->view->chunk_bytes;
  w->plan->state = 4;
  return 1;
}

/* A plan that no lake may carry out. */
static void wish_wrongly(wish *w) {
  gmlake_plan *plan = w->plan;
  const gmlake_piece *b = w->view->blocks;
  m.has_lied = 1;
  plan->state = 1 + (unsigned)policy_below(3);
  switch (policy_below(7)) {
  case 0:
    return; /* nothing */
  case 1:
    plan->window = UINT64_MAX;
    return;
  case 2:
    plan->piece_count = SIZE_MAX;
    return;
  case 3:
    plan->grow_bytes = w->view->chunk_bytes; /* the state is wrong */
    return;
  case 4:
    wish_for(w, m.block_count ? (uint64_t)(uintptr_t)m.blocks[0].ptr : GRAIN, w->bytes);
    return;
  case 5:
    plan->pieces = (gmlake_piece *)plan;
    plan->piece_count = 1;
    return;
  default: /* too little, past the end, or nothing */
    if (w->view->block_count)
      wish_for(w, home_of(b), w->request->bytes > GRAIN ? GRAIN : b[0].bytes + 1);
  }
}

static void on_choose(void *user, const gmlake_view *view, const gmlake_request *request,
                      gmlake_plan *plan) {
  const gmlk_arena *a = request->pool ? &request->pool->arena : &m.lake->home;
  gmlake_piece *pieces = plan->pieces;
  size_t capacity = plan->piece_capacity, dice = policy_below(100);
  wish w;
  int is_made = 0;
  expect(user == &m, "the policy's user");
  expect(plan->piece_capacity == view->block_count + 1, "the plan's capacity");
  w.view = view;
  w.request = request;
  w.plan = plan;
  w.unit = request->flags & GMLAKE_EXCLUSIVE ? view->chunk_bytes : GRAIN;
  w.bytes = round_up(request->bytes, w.unit);
  w.may_stitch = !(request->flags & GMLAKE_NO_STITCH) && a->window_space.holes &&
                 request->bytes >= view->stitch_bytes_min;
  w.may_grow = !(request->flags & GMLAKE_NO_GROW) && w.bytes <= m.capacity;
  if ((m.with.policy & LIES) && policy_chance(4)) {
    wish_wrongly(&w);
    return;
  }
  if (dice < 40 && view->block_count) is_made = wish_piece(&w);
  if (dice >= 30 && dice < 55 && !is_made && view->window_count) is_made = wish_window(&w);
  if (dice >= 45 && dice < 80 && !is_made && view->block_count && w.may_stitch)
    is_made = wish_stitch(&w);
  if (dice >= 75 && dice < 85 && !is_made && !plan->piece_count) is_made = wish_growth(&w);
  if (is_made) return;
  memset(plan, 0, sizeof(*plan));
  plan->pieces = pieces;
  plan->piece_capacity = capacity;
  if (policy_chance(5)) plan->state = 5;
}

static size_t on_evict(void *user, const gmlake_view *view, size_t mapped_bytes,
                       uint64_t *out_windows) {
  size_t i, count = 0, percent = policy_chance(50) ? 0 : policy_below(100);
  expect(user == &m && mapped_bytes && mapped_bytes % view->chunk_bytes == 0, "evict is told");
  if ((m.with.policy & LIES) && policy_chance(3)) {
    m.has_lied = 1;
    if (view->window_count) out_windows[0] = view->windows[0].number;
    if (view->window_count > 1) out_windows[1] = view->windows[0].number;
    return view->window_count > 1 ? 2 : view->window_count + 1;
  }
  for (i = view->window_count; i--;)
    if (view->windows[i].is_complete && policy_below(100) < percent)
      out_windows[count++] = view->windows[i].number;
  return count;
}

static int on_coalesce(void *user, const gmlake_piece *block) {
  expect(user == &m && block->bytes && block->bytes % GRAIN == 0, "coalesce is told");
  return policy_chance(60);
}

static const gmlake_policy *random_policy(void) {
  gmlake_policy *p = &m.policy;
  p->struct_bytes = sizeof(*p);
  p->user = &m;
  m.policy_random = (uint64_t)m.with.policy;
  if (m.with.policy & CHOOSES) p->choose = on_choose;
  if (m.with.policy & EVICTS) p->evict = on_evict;
  if (m.with.policy & COALESCES) p->coalesce = on_coalesce;
  return p;
}

/* ---- A lake and its list --------------------------------------------------------------------- */

static gmlake_desc description(const config *with) {
  gmlake_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.backend = &m.table;
  desc.flags = with->single_threaded ? GMLAKE_SINGLE_THREADED : 0;
  if (with->fills && !with->bookkeeping_only) desc.flags |= GMLAKE_FILL;
  if (with->guards) desc.flags |= GMLAKE_GUARD;
  desc.cross_stream = (gmlake_cross_stream)with->wait_first;
  desc.chunk_bytes = m.chunk;
  desc.limit_bytes = m.limit;
  desc.driver_free_bytes_min = (size_t)with->driver_free_min * m.granule;
  desc.arena_bytes = (size_t)with->arena * m.granule;
  desc.window_bytes = (size_t)with->windows * m.granule;
  desc.stitched_bytes_max = (size_t)with->stitched_max * m.granule;
  desc.stitch_bytes_min = (size_t)with->stitch_min_bytes;
  desc.handle_bytes = (size_t)with->handle_chunks * m.chunk;
  desc.handle_types = with->shares ? GMLAKE_HANDLE_POSIX_FD : 0;
  desc.host.malloc_fn = host_malloc;
  desc.host.free_fn = host_free;
  if (with->has_handler) desc.oom.fn = on_oom;
  if (with->policy) desc.policy = random_policy();
  return desc;
}

static void open_lake(const config *with) {
  static const op opening;
  gmlake_mock_desc mock_desc;
  gmlake_backend *mock = NULL;
  gmlake_desc desc;
  gmlake_stats stats;
  int i, code = 0;
  memset(&m, 0, sizeof(m));
  m.with = *with;
  m.now = &opening;
  m.is_clean = 1;
  m.granule = (size_t)with->granule_bytes;
  m.capacity = (size_t)with->capacity * m.granule;
  m.chunk = (size_t)with->chunk * m.granule;
  m.limit = (size_t)with->limit * m.granule;
  m.handle_frames_most = CHUNK_FRAMES;
  if (with->handle_chunks > 1)
    m.handle_frames_most = max_of(CHUNK_FRAMES, (size_t)(with->handle_chunks * with->chunk));
  m.pools[0].chunk_bytes = m.chunk;
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.capacity_bytes = m.capacity;
  mock_desc.granularity_bytes = m.granule;
  mock_desc.bookkeeping_only = (int)with->bookkeeping_only;
  expect_result(gmlake_mock_create(&mock_desc, &mock), GMLAKE_OK, "gmlake_mock_create");
  watch(mock);
  desc = description(with);
  m.next_is_home = 1;
  expect_result(gmlake_create(&desc, &m.lake), GMLAKE_OK, "gmlake_create");
  for (i = 0; i < with->streams && i < DIMS; i++) {
    m.streams[i].live = 1;
    if (i) (void)gmlake_mock_stream_create(mock, &m.streams[i].value);
  }
  m.streams[0].live = 1;
  m.dims = max_of(1, (size_t)i);
  m.is_caller = 1;
  expect_result(m.table.event_create(m.table.user, &m.own_event, &code), GMLAKE_OK, "event_create");
  m.is_caller = 0;
  memset(&stats, 0, sizeof(stats));
  expect_result(gmlake_get_stats(m.lake, &stats), GMLAKE_OK, "gmlake_get_stats");
}

/* Adds a lake to the totals. */
static void count_lake(void) {
  shared->sum.lakes++;
  shared->sum.stitches += m.sum.stitches;
  shared->sum.evictions += m.sum.evictions;
  shared->sum.waits += m.sum.stream_waits;
  shared->sum.refused += m.sum.refused;
}

/* Closes the lake too, where the list does not. */
static void perform_list(const config *with, const op *list, size_t count) {
  static const op closing = {.kind = CLOSE};
  size_t i;
  open_lake(with);
  for (i = 0; i < count; i++) {
    shared->count = i + 1;
    perform(&list[i]);
  }
  perform(&closing);
  count_lake();
}

static void open_shared(void) {
  if (shared) return;
  shared = (struct shared *)mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) abort();
}

/* Runs the body in a child; 0 where a rule was broken, or the child died, as shared->rule says. */
static int survives(void (*body)(void), unsigned seconds) {
  int status = 0;
  pid_t child;
  fflush(NULL);
  shared->rule[0] = 0;
  child = fork();
  if (child < 0) abort();
  if (!child) {
    (void)alarm(seconds);
    body();
    exit(0);
  }
  if (waitpid(child, &status, 0) != child) abort();
  if (!status || shared->rule[0]) return !status;
  if (WIFSIGNALED(status))
    (void)snprintf(shared->rule, sizeof(shared->rule), "signal %d%s", WTERMSIG(status),
                   WTERMSIG(status) == SIGALRM ? ": it hangs; " PATIENCE_TEXT : "");
  else
    (void)snprintf(shared->rule, sizeof(shared->rule), "exit status %d", WEXITSTATUS(status));
  return 0;
}

static struct job { /* of the child to come */
  config with;
  const op *list;
  size_t count;
} job;

static void perform_job(void) { perform_list(&job.with, job.list, job.count); }

static int list_survives(const config *with, const op *list, size_t count, unsigned seconds) {
  job.with = *with;
  job.list = list;
  job.count = count;
  return survives(perform_job, seconds);
}

/* For tests that were printed. */
static void replay(const config *with, const op *list, size_t count) {
  open_shared();
  if (!list_survives(with, list, count, patience()))
    fail_msg("operation %zu: %s", shared->count, shared->rule);
}

#if !defined(REPLAY)
/* ---- Lists drawn at random ------------------------------------------------------------------- */

static int has_policies;      /* all lakes */
static uint64_t share_one_in; /* so many lakes one shares memory; 0: none does */

static struct mix { /* what a lake's operations are drawn from */
  uint64_t random;
  size_t operations, allocs, largest_bytes, sizes, usual[6];
  int has_pools, has_captures, has_buffers, has_sleep;
  int closing; /* the pool that is being emptied, 0: none */
  int recalling;
  size_t fault_permille, host_permille;
} mix;

static size_t below(size_t count) { return (size_t)(random_of(&mix.random) % count); }
static int chance(size_t percent) { return below(100) < percent; }

static long any_stream(void) { return live_stream((long)below(DIMS)); }
static long any_block(void) { return m.block_count ? (long)m.blocks[below(m.block_count)].id : 0; }
static long any_pool(void) { return live_pool(1 + (long)below(POOLS - 1)); }

static size_t new_size(void) {
  size_t bytes;
  if (mix.sizes == 0) return GRAIN * (1 + below(16)) - below(GRAIN);
  if (mix.sizes == 1) return m.chunk / 2 * (1 + below(max_of(1, 2 * mix.largest_bytes / m.chunk)));
  bytes = (size_t)1 << below(22);
  bytes += below(bytes);
  return bytes < mix.largest_bytes ? bytes : mix.largest_bytes;
}

static int is_any_lent(void) {
  size_t i = 0;
  while (i < POOLS && !m.pools[i].is_lent) i++;
  return i < POOLS;
}

static void choose_alloc(op *o) {
  o->kind = ALLOC;
  o->id = (long)++m.next_id;
  o->bytes = (long)(chance(30) ? mix.usual[below(6)] : new_size());
  o->stream = chance(4) ? NO_STREAM : any_stream();
  o->other = any_stream();
  o->pool = chance(25) ? any_pool() : 0;
  if (chance(8)) o->flags |= GMLAKE_EXCLUSIVE;
  if (chance(8)) o->flags |= GMLAKE_NO_STITCH;
  if (chance(8)) o->flags |= GMLAKE_NO_GROW;
  if (chance(15)) o->alignment = (long)(GRAIN << below(8));
  if (m.with.has_handler && chance(50)) o->victim = any_block();
  if (!mix.has_captures || m.with.policy & LIES || !chance(is_any_lent() ? 50 : 5)) return;
  o->flags |= GMLAKE_TRANSIENT;
  o->alignment = 0;
}

static void choose_free(op *o) {
  const block *b = block_find(o->id = any_block());
  o->kind = FREE;
  o->stream = b && chance(80) ? b->stream : any_stream();
  if (chance(5)) o->stream = NO_STREAM;
  o->other = chance(10);
}

static void choose_progress(op *o) {
  static const long kinds[] = {HOLD, LAG, CLOCK, FINISH};
  o->kind = kinds[below(4)];
  o->stream = any_stream();
  o->bytes = (long)(o->kind == LAG ? below(2) * below(1000) : below(400));
}

static void choose_resize(op *o) {
  const buffer *b = &m.buffers[o->id = (long)below(BUFFERS)];
  o->kind = RESIZE;
  o->stream = b->value && chance(70) ? b->front.stream : any_stream();
  if (chance(5)) o->stream = NO_STREAM;
  o->bytes = chance(60) && b->value ? (long)(b->end + m.granule)
                                    : (long)below(BUFFER_CHUNKS * m.granule + 1);
  if (chance(60)) {
    o->flags = 1 + (long)below(2);
    o->alignment = (long)below(BUFFER_CHUNKS);
    o->bytes = (long)((1 + below(4)) * m.granule);
  }
  o->other = chance(4);
  if (m.with.has_handler && chance(50)) o->victim = any_block();
}

static void choose_pool(op *o) {
  o->pool = 1 + (long)below(POOLS - 1);
  o->kind = m.pools[o->pool].value ? POOL_CLOSE : POOL_OPEN;
  if (o->kind == POOL_CLOSE && chance(80)) mix.closing = (int)o->pool;
  if (o->kind == POOL_CLOSE) return;
  if (chance(50)) o->flags = 1 << below(3);
  if (chance(50)) o->bytes = (long)(m.capacity / 8);
}

/* Frees a pool's blocks one after the other, and then the pool. */
static void choose_closing(op *o) {
  size_t i;
  o->pool = mix.closing;
  o->kind = POOL_CLOSE;
  for (i = 0; i < m.block_count; i++)
    if (m.blocks[i].pool == mix.closing) {
      o->kind = FREE;
      o->id = (long)m.blocks[i].id;
      o->stream = m.blocks[i].stream;
    }
  if (o->kind == POOL_CLOSE) mix.closing = 0;
}

/* Frees what is borrowed of a pool, and recalls it. */
static void choose_recall(op *o) {
  size_t i;
  o->pool = mix.recalling;
  o->kind = RECALL;
  o->stream = any_stream();
  for (i = 0; i < m.block_count; i++)
    if (m.blocks[i].pool == mix.recalling && m.blocks[i].flags & GMLAKE_TRANSIENT) {
      o->kind = FREE;
      o->id = (long)m.blocks[i].id;
      o->stream = chance(80) ? m.blocks[i].stream : any_stream();
    }
  if (o->kind == RECALL) mix.recalling = 0;
}

static void choose_capture(op *o) {
  o->stream = any_stream();
  o->pool = any_pool();
  if (chance(60)) {
    o->kind = LEND + (long)below(3);
    if (m.pools[o->pool].is_lent && chance(40)) mix.recalling = (int)o->pool;
    return;
  }
  o->kind = m.streams[o->stream].capture ? CAPTURE_END : CAPTURE_BEGIN;
}

/* Above all what may be exported. */
static void choose_share(op *o) {
  size_t tries = 8;
  o->kind = SHARE;
  o->bytes = (long)++m.next_id;
  o->other = any_stream();
  o->flags = (chance(70) ? 2 : 0) | (chance(20) ? 4 : 0) | (chance(5) ? 8 : 0);
  o->id = (long)below(BUFFERS);
  if (mix.has_buffers && chance(30)) {
    o->flags |= 1;
    return;
  }
  do {
    o->id = any_block();
  } while (tries-- && o->id && !(block_find(o->id)->flags & GMLAKE_EXCLUSIVE));
}

static void choose_fault(op *o) {
  static const gmlake_result results[] = {GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                          GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                          GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                          GMLAKE_ERROR_DRIVER,
                                          GMLAKE_ERROR_DRIVER,
                                          GMLAKE_ERROR_INVALID_ARGUMENT,
                                          GMLAKE_ERROR_UNSUPPORTED,
                                          GMLAKE_ERROR_OUT_OF_HOST_MEMORY,
                                          GMLAKE_ERROR_CAPTURING,
                                          GMLAKE_ERROR_DEVICE_LOST,
                                          GMLAKE_ERROR_SHUTTING_DOWN};
  if (below(1000) < mix.fault_permille) {
    o->fault_call = 1 + (long)below(chance(70) ? 8 : 64);
    o->fault_result = results[below(sizeof(results) / sizeof(results[0]) - 2 * !chance(20))];
    o->fault_stays = chance(30);
  }
  if (below(1000) < mix.host_permille) {
    o->host_call = 1 + (long)below(6);
    o->host_stays = chance(30);
  }
}

/* A pool that sleeps, or the default one, wakes soon. */
static void choose_sleep(op *o) {
  size_t i;
  o->kind = SLEEP;
  o->pool = chance(60) ? any_pool() : 0;
  o->flags = chance(70);
  for (i = 0; i < POOLS; i++)
    if (m.pools[i].is_asleep && chance(80)) o->pool = (long)i, o->kind = WAKE;
  if (m.with.has_handler && o->kind == WAKE && chance(50)) o->victim = any_block();
}

static void choose_rare(op *o, size_t dice) {
  o->kind = VERIFY;
  o->id = any_block();
  if (dice < 10) {
    o->kind = TRIM;
    o->bytes = chance(50) ? 0 : (long)below(physical_bytes() + 1);
  } else if (dice < 20) {
    o->kind = BUDGET;
  } else if (dice < 30) {
    o->kind = MISUSE;
    o->bytes = (long)below(m.capacity);
  } else if (dice < 50) {
    o->kind = FORGET;
    o->stream = any_stream();
    o->other = any_stream();
  } else if (dice < 56) {
    o->kind = QUIESCE;
  } else if (dice < 58) {
    o->kind = PEAKS;
  } else if (dice < 60) {
    o->kind = MARK;
    o->stream = any_stream();
    o->flags = (long)below(3);
  } else if (dice < 62) {
    o->kind = PREWARM;
    o->stream = any_stream();
    o->bytes = (long)below(m.capacity);
  } else if (dice < 72 && mix.has_pools) {
    choose_pool(o);
  } else if (dice < 100 && mix.has_captures) {
    choose_capture(o);
  }
}

static void choose(op *o) {
  size_t dice = below(1000);
  int is_full = m.block_count == BLOCKS - 1;
  memset(o, 0, sizeof(*o));
  if (m.pending_count > PENDING - (m.with.shares ? 2 * BUFFER_CHUNKS : 4))
    o->kind = QUIESCE;
  else if (m.with.shares && chance(6))
    choose_share(o);
  else if (mix.closing && chance(70))
    choose_closing(o);
  else if (mix.recalling && chance(70))
    choose_recall(o);
  else if (mix.has_sleep && chance(is_any_asleep() ? 15 : 2))
    choose_sleep(o);
  else if (mix.has_buffers && chance(25))
    choose_resize(o);
  else if (dice < mix.allocs && !is_full)
    choose_alloc(o);
  else if (dice < 780 || is_full)
    choose_free(o);
  else if (dice < 840)
    o->kind = RECORD, o->id = any_block(), o->stream = any_stream();
  else if (dice < 900)
    choose_progress(o);
  else
    choose_rare(o, dice - 900);
  choose_fault(o);
}

static size_t host_page(void) { return max_of(4 * KIB, (size_t)sysconf(_SC_PAGESIZE)); }

static void draw_config(config *with) {
  memset(with, 0, sizeof(*with));
  with->granule_bytes = (long)(chance(75) ? host_page() : 64 * KIB);
  with->capacity = 8 + (long)below(120);
  with->chunk = 1 << below(3);
  with->streams = 1 + (long)below(6);
  with->bookkeeping_only = chance(40);
  with->single_threaded = chance(50);
  with->wait_first = (long)below(3);
  with->has_handler = chance(30);
  with->fills = !with->bookkeeping_only && chance(20);
  with->guards = chance(20);
  with->check_every = chance(30) ? 1 : 1 + (long)below(64); /* it takes most of the time */
  if (chance(40)) with->limit = with->capacity / 2 + (long)below((size_t)with->capacity / 2);
  if (chance(20)) with->driver_free_min = (long)below((size_t)with->capacity / 4 + 1);
  if (chance(50)) with->arena = with->capacity + with->chunk;
  if (chance(30)) with->windows = with->capacity + (long)below((size_t)with->capacity);
  if (chance(40)) with->stitched_max = 1 + (long)below(2 * (size_t)with->capacity);
  if (chance(30)) with->stitch_min_bytes = (long)below(4 * (size_t)with->granule_bytes);
  if (chance(40)) with->handle_chunks = 1 + (long)below(HANDLE_FRAMES / CHUNK_FRAMES);
  if (has_policies || chance(30)) with->policy = (long)below(1 << 16) | 1 << below(3);
}

/* pre: the lake is open. */
static void draw_mix(void) {
  size_t i;
  mix.closing = mix.recalling = 0;
  mix.operations = chance(50) ? 20 + below(200) : 200 + below(1500);
  mix.allocs = 380 + below(120);
  mix.largest_bytes = max_of(m.chunk, m.capacity / (2 + below(16)));
  mix.sizes = below(4);
  mix.has_pools = chance(50);
  mix.has_captures = mix.has_pools && chance(60);
  mix.has_buffers = chance(50);
  mix.has_sleep = chance(40);
  mix.fault_permille = chance(50) ? 0 : 5 + below(100);
  mix.host_permille = chance(60) ? 0 : 5 + below(100);
  for (i = 0; i < 6; i++) mix.usual[i] = max_of(1, new_size());
}

/* Draws and performs operations; the list is the parent's to see. pre: the lake is open. */
static void perform_mix(void) {
  for (shared->count = 0; shared->count < mix.operations && !m.lost;) {
    choose(&shared->list[shared->count]);
    perform(&shared->list[shared->count++]);
  }
  memset(&shared->list[shared->count], 0, sizeof(op));
  shared->list[shared->count].kind = CLOSE;
  choose_fault(&shared->list[shared->count]);
  perform(&shared->list[shared->count++]);
  count_lake();
}

static void perform_seed(uint64_t seed) {
  shared->seed = mix.random = seed;
  shared->count = 0;
  draw_config(&shared->with);
  shared->with.shares = share_one_in && seed % share_one_in == 0;
  open_lake(&shared->with);
  draw_mix();
  perform_mix();
}

/* ---- Cutting a list down --------------------------------------------------------------------- */

typedef int (*breaks_fn)(const config *with, const op *list, size_t count);

static size_t without(const op *list, size_t count, size_t from, size_t length, op *out) {
  memcpy(out, list, from * sizeof(op));
  memcpy(out + from, list + from + length, (count - from - length) * sizeof(op));
  return count - length;
}

/* Leaves out stretches of operations, long ones first. */
static size_t shrink_list(const config *with, op *list, size_t count, breaks_fn breaks) {
  static op tried[OPERATIONS];
  size_t length, from;
  for (length = count > 1 ? count / 2 : 1; length; length /= 2) {
    for (from = 0; from + length <= count;) {
      size_t left = without(list, count, from, length, tried);
      if (!breaks(with, tried, left)) {
        from += length;
        continue;
      }
      memcpy(list, tried, left * sizeof(op));
      count = left;
    }
  }
  return count;
}

/* Makes one number as small as it may be, or round: 0, halves, whole granules, whole grains. */
static int shrink_number(long *number, const config *with, const op *list, size_t count,
                         breaks_fn breaks) {
  long old = *number, best = old, candidates[5];
  size_t i;
  for (;;) {
    candidates[0] = 0;
    candidates[1] = best / 2;
    candidates[2] = best - best % with->granule_bytes;
    candidates[3] = best - best % (long)GRAIN;
    candidates[4] = best > 0 && best <= 32 ? best - 1 : best;
    for (i = 0; i < 5; i++) {
      *number = candidates[i];
      if (candidates[i] != best && breaks(with, list, count)) break;
    }
    if (i == 5) break;
    best = *number;
  }
  *number = best;
  return best != old;
}

static int shrink_numbers(config *with, op *list, size_t count, breaks_fn breaks) {
  int changed = 0;
  size_t i, n;
  for (n = 0; n < CONFIG_LONGS; n++)
    if (&((long *)with)[n] != &with->granule_bytes)
      changed |= shrink_number(&((long *)with)[n], with, list, count, breaks);
  for (i = 0; i < count; i++)
    for (n = 0; n < OP_LONGS; n++)
      if (&((long *)&list[i])[n] != &list[i].kind && &((long *)&list[i])[n] != &list[i].id &&
          ((long *)&list[i])[n])
        changed |= shrink_number(&((long *)&list[i])[n], with, list, count, breaks);
  return changed;
}

static size_t shrink(config *with, op *list, size_t count, breaks_fn breaks) {
  size_t before;
  int changed;
  do {
    before = count;
    count = shrink_list(with, list, count, breaks);
    changed = shrink_numbers(with, list, count, breaks);
  } while (changed || count < before);
  return count;
}

/* ---- What was found -------------------------------------------------------------------------- */

static struct found {
  char rule[256];
  uint64_t seed;
  config with;
  size_t count, drawn;
  op list[OPERATIONS];
  uint64_t runs;
  time_t deadline; /* of shrinking */
} found;

/* Whether the list breaks the rule that was found broken. A list that hangs need not be waited for
   as long as at first: on a busy machine less is cut off. */
static int breaks_found(const config *with, const op *list, size_t count) {
  if (time(NULL) > found.deadline) return 0;
  if (with->capacity < with->chunk || with->chunk < 1 || with->chunk > CHUNK_FRAMES) return 0;
  found.runs++;
  return !list_survives(with, list, count, 10) && strcmp(shared->rule, found.rule) == 0;
}

#define AS_NAME(name) #name,
static const char *const config_names[] = {CONFIG_FIELDS(AS_NAME)};
static const char *const op_names[] = {OP_FIELDS(AS_NAME)};
static const char *const kind_names[] = {
    "ALLOC",  "FREE",      "RECORD",     "HOLD",          "FINISH",      "LAG",   "CLOCK",
    "FORGET", "POOL_OPEN", "POOL_CLOSE", "CAPTURE_BEGIN", "CAPTURE_END", "TRIM",  "BUDGET",
    "PEAKS",  "MISUSE",    "QUIESCE",    "VERIFY",        "RESIZE",      "SLEEP", "WAKE",
    "MARK",   "PREWARM",   "LEND",       "RECALL",        "LAUNCH",      "SHARE", "CLOSE"};

static void print_numbers(const long *numbers, const char *const *names, size_t count) {
  const char *comma = "";
  size_t i;
  for (i = 0; i < count; i++) {
    if (!numbers[i] && (i || names != op_names)) continue;
    if (names == op_names && i == 0)
      printf(".kind = %s", kind_names[numbers[0]]);
    else
      printf("%s.%s = %ld", comma, names[i], numbers[i]);
    comma = ", ";
  }
}

static void print_test(void) {
  size_t i;
  printf("/* %s: %zu of %zu operations of seed %llu, after %llu runs.\n", found.rule, found.count,
         found.drawn, (unsigned long long)found.seed, (unsigned long long)found.runs);
  printf("   cc -std=c99 -I. -Itests this.c -lcmocka -lpthread -ldl */\n");
  printf("#define REPLAY\n#include \"test_model.c\"\n\n");
  printf("static void test_found(void **state) {\n  static const config with = {");
  print_numbers((const long *)&found.with, config_names, CONFIG_LONGS);
  printf("};\n  static const op list[] = {\n");
  for (i = 0; i < found.count; i++) {
    printf("      {");
    print_numbers((const long *)&found.list[i], op_names, OP_LONGS);
    printf("},\n");
  }
  printf("  };\n  (void)state;\n  replay(&with, list, sizeof(list) / sizeof(list[0]));\n}\n\n");
  printf("int main(void) {\n  const struct CMUnitTest tests[] = {cmocka_unit_test(test_found)};\n");
  printf("  return cmocka_run_group_tests(tests, NULL, NULL);\n}\n");
  fflush(stdout);
}

/* The child has died of what shared tells. */
static void report(void) {
  memcpy(found.rule, shared->rule, sizeof(found.rule));
  found.seed = shared->seed;
  found.with = shared->with;
  found.count = found.drawn = shared->count;
  memcpy(found.list, shared->list, found.count * sizeof(op));
  found.runs = 0;
  found.deadline = time(NULL) + 120;
  printf("broken: %s (seed %llu, operation %zu); being cut down\n", found.rule,
         (unsigned long long)found.seed, found.count);
  found.with.bookkeeping_only = 1; /* faster, where it does as well */
  if (!breaks_found(&found.with, found.list, found.count))
    found.with.bookkeeping_only = shared->with.bookkeeping_only;
  if (breaks_found(&found.with, found.list, found.count))
    found.count = shrink(&found.with, found.list, found.count, breaks_found);
  else
    printf("not again: the list below is as it was drawn\n");
  print_test();
}

/* ---- Soak ------------------------------------------------------------------------------------ */

static struct soak {
  uint64_t seed, lakes; /* lakes: 0 where time ends it */
  time_t begin, end, told;
} soak;

static void print_figures(void) {
  const totals *sum = &shared->sum;
  printf(
      "seed %llu: %llu operations, %llu lakes, %llu faults, %llu lost devices, %llu refused, "
      "%llu stitches, %llu evictions, %llu waits, %lld seconds\n",
      (unsigned long long)shared->seed, (unsigned long long)sum->operations,
      (unsigned long long)sum->lakes, (unsigned long long)sum->faults,
      (unsigned long long)sum->lost, (unsigned long long)sum->refused,
      (unsigned long long)sum->stitches, (unsigned long long)sum->evictions,
      (unsigned long long)sum->waits, (long long)(time(NULL) - soak.begin));
  fflush(stdout);
}

/* In a child, which is renewed once a minute. */
static void perform_soak(void) {
  uint64_t lakes = 0;
  time_t start = time(NULL);
  for (; soak.lakes ? lakes < soak.lakes : time(NULL) < soak.end && time(NULL) < start + 60;
       lakes++) {
    (void)alarm(patience());
    perform_seed(soak.seed + lakes);
  }
}

static int run_soak(long seconds, uint64_t seed) {
  open_shared();
  soak.seed = seed;
  soak.begin = time(NULL);
  soak.end = soak.begin + seconds;
  share_one_in = 3;
  do {
    if (!survives(perform_soak, patience())) {
      report();
      print_figures();
      return 1;
    }
    print_figures();
    soak.seed = shared->seed + 1;
  } while (time(NULL) < soak.end);
  return 0;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void run(void (*body)(void)) {
  open_shared();
  if (survives(body, patience())) return;
  report();
  fail_msg("seed %llu, operation %zu: %s", (unsigned long long)found.seed, found.drawn, found.rule);
}

static struct scenario { /* of the tests that name theirs */
  config with;
  size_t operations, largest_bytes, fault_permille, host_permille;
  int has_pools, has_captures, has_buffers, has_sleep;
} scenario;

static void init_scenario(int streams) {
  memset(&scenario, 0, sizeof(scenario));
  scenario.operations = 3000;
  scenario.with.granule_bytes = (long)(64 * KIB);
  scenario.with.capacity = 256;
  scenario.with.chunk = 1;
  scenario.with.streams = streams;
  scenario.with.arena = 1024;
  scenario.with.windows = 0;
  scenario.largest_bytes = 2 * MIB;
}

static void perform_scenario(void) {
  static const size_t usual[6] = {512, 8 * KIB, 64 * KIB, 192 * KIB, 256 * KIB, 520 * KIB};
  shared->seed = mix.random = 1;
  shared->with = scenario.with;
  open_lake(&scenario.with);
  mix.operations = scenario.operations;
  mix.closing = mix.recalling = 0;
  mix.allocs = 430;
  mix.largest_bytes = scenario.largest_bytes;
  mix.sizes = 2;
  memcpy(mix.usual, usual, sizeof(usual));
  mix.has_pools = scenario.has_pools;
  mix.has_captures = scenario.has_captures;
  mix.has_buffers = scenario.has_buffers;
  mix.has_sleep = scenario.has_sleep;
  mix.fault_permille = scenario.fault_permille;
  mix.host_permille = scenario.host_permille;
  perform_mix();
}

static void test_one_stream(void **state) {
  (void)state;
  init_scenario(1);
  run(perform_scenario);
}

static void test_streams_grow_first(void **state) {
  (void)state;
  init_scenario(5);
  run(perform_scenario);
}

static void test_streams_wait_first(void **state) {
  (void)state;
  init_scenario(5);
  scenario.with.wait_first = 1;
  scenario.with.limit = 160;
  scenario.with.chunk = 2;
  run(perform_scenario);
}

static void test_pools(void **state) {
  (void)state;
  init_scenario(4);
  scenario.has_pools = 1;
  scenario.with.limit = 192;
  run(perform_scenario);
}

static void test_captures(void **state) {
  (void)state;
  init_scenario(5);
  scenario.has_pools = scenario.has_captures = 1;
  scenario.with.wait_first = 1;
  run(perform_scenario);
}

static void test_buffers(void **state) {
  (void)state;
  init_scenario(4);
  scenario.has_buffers = scenario.has_pools = scenario.has_captures = 1;
  scenario.with.capacity = 64;
  run(perform_scenario);
}

static void test_sleep(void **state) {
  (void)state;
  init_scenario(4);
  scenario.has_buffers = scenario.has_pools = scenario.has_captures = scenario.has_sleep = 1;
  scenario.with.capacity = 96;
  run(perform_scenario);
}

static void test_sleep_and_faults(void **state) {
  (void)state;
  init_scenario(3);
  scenario.fault_permille = scenario.host_permille = 60;
  scenario.has_buffers = scenario.has_pools = scenario.has_captures = scenario.has_sleep = 1;
  scenario.with.handle_chunks = 4;
  run(perform_scenario);
}

/* Windows are dropped all the time. */
static void test_few_windows(void **state) {
  (void)state;
  init_scenario(3);
  scenario.with.stitched_max = 64;
  scenario.with.stitch_min_bytes = (long)(128 * KIB);
  scenario.with.windows = 384;
  scenario.with.single_threaded = 1;
  run(perform_scenario);
}

static void test_sharing(void **state) {
  (void)state;
  init_scenario(4);
  scenario.has_buffers = scenario.has_pools = scenario.has_captures = scenario.has_sleep = 1;
  scenario.with.shares = 1;
  scenario.with.capacity = 96;
  run(perform_scenario);
}

static void test_sharing_and_faults(void **state) {
  (void)state;
  init_scenario(4);
  scenario.fault_permille = scenario.host_permille = 60;
  scenario.has_buffers = scenario.has_pools = scenario.has_captures = 1;
  scenario.with.shares = 1;
  scenario.with.limit = 80;
  scenario.with.capacity = 96;
  run(perform_scenario);
}

/* Descriptions and operations of all kinds, with exports and imports. */
static void test_many_lakes_share(void **state) {
  (void)state;
  soak.seed = 3000;
  soak.lakes = 150;
  soak.begin = time(NULL);
  share_one_in = 1;
  run(perform_soak);
  share_one_in = 0;
  print_figures();
}

static void test_handler(void **state) {
  (void)state;
  init_scenario(3);
  scenario.with.has_handler = 1;
  scenario.with.capacity = 64;
  scenario.with.driver_free_min = 8;
  run(perform_scenario);
}

static void test_driver_fails(void **state) {
  (void)state;
  init_scenario(4);
  scenario.fault_permille = 60;
  scenario.has_pools = scenario.has_captures = scenario.has_buffers = 1;
  run(perform_scenario);
}

static void test_host_fails(void **state) {
  (void)state;
  init_scenario(4);
  scenario.host_permille = 100;
  scenario.has_pools = scenario.has_captures = scenario.has_buffers = 1;
  run(perform_scenario);
}

static void test_policy(long functions, size_t fault_permille, size_t host_permille) {
  init_scenario(4);
  scenario.with.policy = functions;
  scenario.with.check_every = 1;
  scenario.with.capacity = 96;
  scenario.has_pools = scenario.has_captures = scenario.has_buffers = 1;
  scenario.fault_permille = fault_permille;
  scenario.host_permille = host_permille;
  run(perform_scenario);
}

static void test_policy_chooses(void **state) {
  (void)state;
  test_policy(CHOOSES, 0, 0);
}

static void test_policy_keeps_apart(void **state) {
  (void)state;
  test_policy(COALESCES, 0, 0);
}

static void test_policy_and_liar(void **state) {
  (void)state;
  test_policy(CHOOSES | EVICTS | COALESCES | LIES, 0, 0);
}

static void test_policy_and_faults(void **state) {
  (void)state;
  test_policy(CHOOSES | EVICTS | COALESCES | LIES, 60, 60);
}

/* Descriptions and operations of all kinds, decided at random as well. */
static void test_many_policies(void **state) {
  (void)state;
  soak.seed = 1000;
  soak.lakes = 150;
  soak.begin = time(NULL);
  has_policies = 1;
  run(perform_soak);
  has_policies = 0;
  print_figures();
}

/* Descriptions and operations of all kinds. */
static void test_many_lakes(void **state) {
  (void)state;
  soak.seed = 1;
  soak.lakes = 200;
  soak.begin = time(NULL);
  run(perform_soak);
  print_figures();
}

/* As a printed test is. */
static void test_list(void **state) {
  static const config with = {.granule_bytes = 65536, .capacity = 16, .chunk = 1, .streams = 2};
  static const op list[] = {
      {.kind = ALLOC, .id = 1, .bytes = 200000, .stream = 1},
      {.kind = ALLOC, .id = 2, .bytes = 65536, .flags = GMLAKE_NO_STITCH},
      {.kind = RECORD, .id = 1, .stream = 0},
      {.kind = FREE, .id = 1, .stream = 1, .other = 1},
      {.kind = ALLOC, .id = 3, .bytes = 1 << 20, .host_call = 1},
      {.kind = TRIM, .fault_call = 2, .fault_result = GMLAKE_ERROR_DEVICE_LOST},
  };
  (void)state;
  replay(&with, list, sizeof(list) / sizeof(list[0]));
  assert_int_equal(shared->count, 6);
}

/* Seeds have found it: a stream that the driver says to be gone while a request on it is served.
   The block is of no stream then; but the legacy stream is never gone. */
static void test_stream_gone_meanwhile(void **state) {
  static const config other = {.granule_bytes = 65536, .capacity = 3, .chunk = 1};
  static const op legacy[] = {
      {.kind = ALLOC, .id = 6, .bytes = 1},
      {.kind = FREE, .id = 6},
      {.kind = ALLOC, .id = 9, .stream = -1, .bytes = 65536},
      {.kind = ALLOC, .id = 51, .bytes = 1},
      {.kind = FREE, .id = 51},
      {.kind = ALLOC,
       .id = 81,
       .bytes = 98304,
       .fault_call = 2,
       .fault_result = GMLAKE_ERROR_INVALID_ARGUMENT},
  };
  static const config with = {.granule_bytes = 65536, .capacity = 4, .chunk = 1, .streams = 3};
  static const op list[] = {
      {.kind = ALLOC, .id = 22, .bytes = 1},
      {.kind = FREE, .id = 22},
      {.kind = ALLOC, .id = 24, .stream = 1, .bytes = 1},
      {.kind = FREE, .id = 24, .stream = 2},
      {.kind = ALLOC,
       .id = 26,
       .stream = 2,
       .bytes = 70000,
       .fault_call = 3,
       .fault_result = GMLAKE_ERROR_INVALID_ARGUMENT},
      {.kind = FREE, .id = 26, .stream = 2},
  };
  (void)state;
  replay(&with, list, sizeof(list) / sizeof(list[0]));
  assert_int_equal(shared->count, 6);
  replay(&other, legacy, sizeof(legacy) / sizeof(legacy[0]));
  assert_int_equal(shared->count, 6);
}

/* Seeds have found it: the device is lost while a pool falls asleep, which cannot be undone then.
   What lies in the pool is not looked at any more. */
static void test_lost_while_falling_asleep(void **state) {
  static const config with = {.granule_bytes = 65536, .capacity = 1, .chunk = 1};
  static const config other = {.granule_bytes = 4096, .capacity = 19, .chunk = 1};
  static const op block[] = {
      {.kind = ALLOC, .id = 28, .bytes = 1},
      {.kind = SLEEP,
       .flags = 1,
       .fault_call = 12,
       .fault_result = GMLAKE_ERROR_SHUTTING_DOWN,
       .fault_stays = 1},
  };
  static const op buffers[] = {
      {.kind = RESIZE, .bytes = 49152},
      {.kind = RESIZE, .id = 2, .bytes = 8192},
      {.kind = ALLOC, .id = 7, .bytes = 20480},
      {.kind = SLEEP, .flags = 1, .fault_call = 64, .fault_result = GMLAKE_ERROR_SHUTTING_DOWN},
  };
  (void)state;
  replay(&with, block, sizeof(block) / sizeof(block[0]));
  assert_int_equal(shared->count, 2);
  replay(&other, buffers, sizeof(buffers) / sizeof(buffers[0]));
  assert_int_equal(shared->count, 4);
}

/* Two operations matter: the free of block 7, behind its allocation of 5,000 bytes or more. */
static int breaks_by_example(const config *with, const op *list, size_t count) {
  size_t i, large = 0;
  (void)with;
  for (i = 0; i < count; i++) {
    large |= list[i].kind == ALLOC && list[i].id == 7 && list[i].bytes >= 5000;
    if (list[i].kind == FREE && list[i].id == 7 && large) return 1;
  }
  return 0;
}

static void test_cutting_down(void **state) {
  static op list[100];
  config with;
  size_t i;
  (void)state;
  memset(&with, 0, sizeof(with));
  with.granule_bytes = 4096;
  with.streams = 5;
  for (i = 0; i < 100; i++) {
    list[i].kind = i < 50 ? ALLOC : FREE;
    list[i].id = 1 + (long)i % 50;
    list[i].bytes = 100000 + (long)i;
    list[i].stream = (long)i % 3 - 1;
  }
  assert_int_equal(shrink(&with, list, 100, breaks_by_example), 2);
  assert_int_equal(list[0].kind, ALLOC);
  assert_int_equal(list[0].bytes, 6144); /* halved thrice, then whole grains */
  assert_int_equal(list[0].stream, 0);
  assert_int_equal(list[1].kind, FREE);
  assert_int_equal(list[1].bytes, 0);
  assert_int_equal(with.streams, 0);
}

/* A child that dies is told apart from one that breaks a rule, and its list is found again. */
static void die(void) {
  shared->count = 3;
  abort();
}

static void test_children_that_die(void **state) {
  (void)state;
  open_shared();
  assert_int_equal(survives(die, 10), 0);
  assert_string_equal(shared->rule, "signal 6");
  assert_int_equal(shared->count, 3);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_stream),
      cmocka_unit_test(test_streams_grow_first),
      cmocka_unit_test(test_streams_wait_first),
      cmocka_unit_test(test_pools),
      cmocka_unit_test(test_captures),
      cmocka_unit_test(test_buffers),
      cmocka_unit_test(test_sleep),
      cmocka_unit_test(test_sleep_and_faults),
      cmocka_unit_test(test_few_windows),
      cmocka_unit_test(test_sharing),
      cmocka_unit_test(test_sharing_and_faults),
      cmocka_unit_test(test_many_lakes_share),
      cmocka_unit_test(test_handler),
      cmocka_unit_test(test_driver_fails),
      cmocka_unit_test(test_host_fails),
      cmocka_unit_test(test_policy_chooses),
      cmocka_unit_test(test_policy_keeps_apart),
      cmocka_unit_test(test_policy_and_liar),
      cmocka_unit_test(test_policy_and_faults),
      cmocka_unit_test(test_list),
      cmocka_unit_test(test_stream_gone_meanwhile),
      cmocka_unit_test(test_lost_while_falling_asleep),
      cmocka_unit_test(test_many_lakes),
      cmocka_unit_test(test_many_policies),
      cmocka_unit_test(test_cutting_down),
      cmocka_unit_test(test_children_that_die),
  };
  uint64_t seed = 1, seconds = 0;
  const option_row rows[] = {
      {"seconds", OPTION_COUNT, &seconds, 0, 1e9, "N",
       "lakes follow each other for so long, instead of the tests"},
      {"seed", OPTION_COUNT, &seed, 0, 1e18, "S",
       "with seeds from S on: a lake's own seed repeats it first; default 1"},
      {"policy", OPTION_FLAG, &has_policies, 0, 0, NULL,
       "each of them has a policy that decides at random, else some have"},
  };
  const option_reader reader = {"test_model", "[OPTION]...", "",
                                "",           rows,          sizeof(rows) / sizeof(rows[0])};
  options_alone(&reader, argc, argv);
  if (seconds) return run_soak((long)seconds, seed);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif /* REPLAY */
