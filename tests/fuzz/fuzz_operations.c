/* Fuzz target: the input is a description and public calls, with faults of the device and of host
   memory between them. After each call: the result is one that the manual allows, gmlake_check and
   the figures agree with the target's own accounts, a live block has its contents. At the end
   nothing is left.

   Input: a byte that says how (bits 0 and 1: how it ends), six bytes of description, then records
   of six bytes: operation and its arguments a to e. What is short is filled up with zeros.

   Where the upper three bits of how are 011 the mode is extended: a byte more of description says
   which callbacks a policy has and whether there is an observer, records have a byte more, for
   what the policy answers, and there are operations on growing buffers too. The policy's plans are
   right or wrong by construction, so it is known which are to be refused. The observer adds up
   what it is told and compares it with the accounts. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLK_CRUMB_PART 2u /* small lakes have crumbs, too */
#define GMLK_CRUMBS_PART 2u
#define GMLK_CRUMBS_FROM 1u
#include "gmlake.h"

#include <unistd.h>

#include "fuzz.h"
#include "../judge_map.h"
#include "fuzz_backend.h"

#define GRAIN ((size_t)512)
#define SLOTS 24
#define STREAMS 8 /* the legacy stream twice, four of the mock's, NONE, and one that is refused */
#define FIRST_OWN 2
#define LAST_OWN 5
#define AT_NONE 6
#define AT_REFUSED 7
#define POOLS 3
#define BUFFERS 6
#define OPERATIONS_MAX 400
#define SHARED_MAX 160
#define OPERATIONS_PLAIN 32 /* of the table; the others are of the extended mode */

#define BIT(name) (1u << GMLAKE_ERROR_##name)
#define BIT_OK (1u << GMLAKE_OK)
#define BITS_FATAL (BIT(DEVICE_LOST) | BIT(SHUTTING_DOWN))
#define BITS_MEMORY (BIT(OUT_OF_DEVICE_MEMORY) | BIT(LIMIT_REACHED))

typedef struct block {
  unsigned char *ptr;   /* NULL: none */
  unsigned char *stale; /* freed last */
  size_t requested, bytes;
  uint64_t id;
  int pool;           /* -1: the default one */
  size_t chunk_bytes; /* 0, or of the buffer that this is another mapping of */
  int is_exported, is_import;
} block;

typedef struct pool {
  gmlake_pool *value; /* NULL: none */
  size_t chunk_bytes;
} pool;

typedef struct buffer {
  gmlake_buffer *handle; /* NULL: none */
  unsigned char *ptr;
  size_t bytes, committed_bytes, max_bytes, chunk_bytes;
  uint64_t id, holes; /* a bit for each of the first chunks that is a hole before the end */
  int is_exported;    /* as it is */
} buffer;

enum { /* bits of the byte that says what a lake has; 8 is not used */
       HAS_CHOOSE = 1,
       HAS_EVICT = 2,
       HAS_COALESCE = 4,
       HAS_POLICY = 16,
       HAS_OBSERVER = 32,
       HAS_WRONG = 64 /* answers of the policy */
};

static struct world {
  fuzz_input in;
  unsigned a, b, c, d, e; /* arguments of the operation */
  int has_memory, may_handle_oom, handled;
  gmlake_backend *mock;
  gmlake *lake;
  gmlake_desc desc;
  size_t capacity;
  gmlake_stream streams[STREAMS];
  int captured[STREAMS]; /* pool + 1, 0: not being captured */
  block blocks[SLOTS];
  pool pools[POOLS];
  buffer buffers[BUFFERS];
  int is_napping;    /* the handler may be called while a pool sleeps */
  int has_shared;    /* exports or imports have been */
  int has_lost_pool; /* when the lake was lost: it may show it, or sleeps for good */
  uint64_t next_id, tick, clock_ns;
  size_t hits_before, refused_before;
  unsigned fatal;     /* bits of fatal results that were injected */
  gmlake_result lost; /* the lake has answered so: it is for good */
  int is_extended, is_closing;
  unsigned has;
  size_t leak_count;         /* told of at the end */
  size_t granularity, space; /* address space that buffers may have taken */
  gmlake_policy policy;
  uint32_t answers;     /* of the policy: the next one is in the upper byte */
  size_t planned_bytes; /* by the plan asked for last, 0: the built-in policy decides */
  int was_wrong;        /* an answer has been, in this call */
  int is_unsure;        /* whether the lake may stitch what was planned */
#if defined(FUZZ_TRACE)
  gmlake_result told;
#endif
} w;

static struct told {                   /* by the observer's events */
  uint64_t count[GMLAKE_STEP_END + 1]; /* of ALLOC those that were served */
  uint64_t newest;                     /* attempt that is over */
  uint64_t driver_ns;
  size_t reserved_bytes, active_bytes; /* the latter without buffers */
  gmlake_step served;
} told;

/* ---- Accounts -------------------------------------------------------------------------------- */

static int was_hit(void) {
  return gate.hits != w.hits_before || fuzz_host.refused != w.refused_before;
}

/* Results that the faults of this call, or fatal ones before it, explain. */
static unsigned explained(void) {
  unsigned bits = w.fatal;
  if (fuzz_host.refused != w.refused_before) bits |= BIT(OUT_OF_HOST_MEMORY) | BITS_MEMORY;
  if (gate.hits != w.hits_before) bits |= gate.hit_results | BITS_MEMORY;
  if (bits & BIT(INVALID_ARGUMENT)) bits |= BIT(DRIVER);
  return bits & ~BIT(INVALID_ARGUMENT);
}

/* Whether the result is among the allowed ones; returns it. */
static gmlake_result judge(gmlake_result result, unsigned allowed) {
  w.fatal |= gate.hit_results & BITS_FATAL;
  REQUIRE((1u << result) & (allowed | explained()));
  if (w.lost) REQUIRE(result == w.lost || ((1u << result) & (allowed & ~BIT_OK)));
  if ((1u << result) & BITS_FATAL) w.lost = result;
  return result;
}

#if defined(FUZZ_TRACE) /* says what an input does */
static int tell_result(const char *call, gmlake_result result) {
  fprintf(stderr, "  %s: %s%s\n", call, gmlake_result_name(result), was_hit() ? " (fault)" : "");
  return 1;
}
#define judge(call, allowed) (w.told = (call), tell_result(#call, w.told), judge(w.told, allowed))
#endif

/* Functions that answer OK on a lost device too. */
static void judge_question(gmlake_result result) { REQUIRE(result == GMLAKE_OK); }

static uint64_t stamp_of(uint64_t id, size_t offset) {
  return (id << 32 | offset) * 0x9E3779B97F4A7C15u;
}

static void fill(const block *b) {
  size_t offset;
  for (offset = 0; w.has_memory && offset < b->bytes; offset += GRAIN) {
    uint64_t stamp = stamp_of(b->id, offset);
    memcpy(b->ptr + offset, &stamp, sizeof stamp);
    memcpy(b->ptr + offset + GRAIN - sizeof stamp, &stamp, sizeof stamp);
  }
}

static int can_read(void) { return w.has_memory && !w.is_napping; }

/* A stamp at either end of each grain; or of each chunk, of the offset where that ends. */
static void verify(const block *b) {
  const size_t unit = b->chunk_bytes ? b->chunk_bytes : GRAIN;
  size_t offset;
  for (offset = 0; can_read() && b->ptr && offset < b->bytes; offset += unit) {
    uint64_t stamp = stamp_of(b->id, b->chunk_bytes ? offset + unit : offset);
    REQUIRE(!memcmp(b->ptr + offset, &stamp, sizeof stamp));
    REQUIRE(!memcmp(b->ptr + offset + unit - sizeof stamp, &stamp, sizeof stamp));
  }
}

static size_t chunks_for(const buffer *b, size_t bytes) {
  return bytes / b->chunk_bytes + (bytes % b->chunk_bytes != 0);
}

static int has_chunk(const buffer *b, size_t i) {
  return i < chunks_for(b, b->bytes) && !(i < 64 && b->holes >> i & 1);
}

/* Each committed chunk has a stamp at either end, of the offset where it ends. */
static void fill_chunk(const buffer *b, size_t i) {
  const size_t end = (i + 1) * b->chunk_bytes;
  uint64_t stamp = stamp_of(b->id, end);
  if (!w.has_memory) return;
  if (w.desc.flags & GMLAKE_FILL) {
    REQUIRE(b->ptr[end - b->chunk_bytes] == GMLAKE_FILL_NEW);
    REQUIRE(b->ptr[end - 1] == GMLAKE_FILL_NEW);
  }
  memcpy(b->ptr + end - b->chunk_bytes, &stamp, sizeof stamp);
  memcpy(b->ptr + end - sizeof stamp, &stamp, sizeof stamp);
}

static void verify_chunks(const buffer *b) {
  size_t end, i;
  for (i = 0; can_read() && b->handle && i < chunks_for(b, b->bytes); i++) {
    uint64_t stamp = stamp_of(b->id, end = (i + 1) * b->chunk_bytes);
    if (!has_chunk(b, i)) continue;
    REQUIRE(!memcmp(b->ptr + end - b->chunk_bytes, &stamp, sizeof stamp));
    REQUIRE(!memcmp(b->ptr + end - sizeof stamp, &stamp, sizeof stamp));
  }
}

/* Chunks [from, to) become memory, or are given up; then the buffer ends at `end`. */
static void enter_change(buffer *b, size_t from, size_t to, int is_commit, size_t end) {
  const size_t before = chunks_for(b, b->bytes), after = chunks_for(b, end);
  size_t i;
  for (i = from; is_commit && i < to; i++)
    if (!has_chunk(b, i)) fill_chunk(b, i);
  b->bytes = end;
  b->is_exported &= !is_commit || from == to; /* what is new was not */
  for (i = 0; i < 64; i++) {
    const uint64_t bit = (uint64_t)1 << i;
    if (i >= before || (!is_commit && i >= from && i < to)) b->holes |= bit;
    if (i >= after || (is_commit && i >= from && i < to)) b->holes &= ~bit;
  }
  b->committed_bytes = 0;
  for (i = 0; i < after; i++) b->committed_bytes += has_chunk(b, i) ? b->chunk_bytes : 0;
}

/* What others have of it stays as it was; what it has is its own. */
static void check_shares(const gmlake_stats *s) {
  size_t exported = 0, imported = 0, i;
  for (i = 0; i < SLOTS; i++) {
    const block *b = &w.blocks[i];
    exported += b->ptr && b->is_exported ? b->bytes : 0;
    imported += b->ptr && b->is_import ? b->bytes : 0;
  }
  for (i = 0; i < BUFFERS; i++)
    exported += w.buffers[i].is_exported ? w.buffers[i].committed_bytes : 0;
  REQUIRE(s->exported_bytes >= exported && s->imported_bytes >= imported);
  REQUIRE(s->exported_bytes + s->imported_bytes <= s->reserved_bytes);
  REQUIRE(w.has_shared || s->exported_bytes + s->imported_bytes == 0);
}

/* What of it the user asked for: not what lies behind the end. */
static size_t requested_of(const buffer *b) {
  const size_t tail = b->handle ? b->bytes % b->chunk_bytes : 0;
  return b->committed_bytes -
         (tail && has_chunk(b, b->bytes / b->chunk_bytes) ? b->chunk_bytes - tail : 0);
}

static void check_buffer(const buffer *b) {
  gmlake_buffer_info info;
  if (!b->handle) return;
  judge_question(gmlake_buffer_get_info(w.lake, b->handle, &info));
  REQUIRE(info.bytes == b->bytes && info.committed_bytes == b->committed_bytes);
  REQUIRE(info.max_bytes == b->max_bytes && info.chunk_bytes == b->chunk_bytes);
  REQUIRE(info.ptr == (void *)b->ptr && info.user_data == (uint64_t)(b - w.buffers));
  verify_chunks(b);
}

static size_t committed_bytes(void) {
  size_t i, bytes = 0;
  for (i = 0; i < BUFFERS; i++) bytes += w.buffers[i].committed_bytes;
  return bytes;
}

static void check_told(const gmlake_stats *s) {
  if (!(w.has & HAS_OBSERVER)) return;
  REQUIRE(told.count[GMLAKE_STEP_ALLOC] == s->allocation_count);
  REQUIRE(told.count[GMLAKE_STEP_FREE] == s->free_count);
  REQUIRE(told.count[GMLAKE_STEP_SPLIT] == s->split_count);
  REQUIRE(told.count[GMLAKE_STEP_STITCH] == s->stitch_count);
  REQUIRE(told.count[GMLAKE_STEP_REUSE] == s->stitch_reuse_count);
  REQUIRE(told.count[GMLAKE_STEP_EVICT] == s->stitch_evict_count);
  REQUIRE(told.count[GMLAKE_STEP_WAIT] == s->stream_wait_count + s->host_wait_count);
  REQUIRE(told.reserved_bytes == s->reserved_bytes);
  REQUIRE(told.active_bytes == s->active_bytes - s->buffer_bytes);
  REQUIRE(told.driver_ns <= s->driver_ns);
}

static void check_figures(void) {
  gmlake_stats s;
  size_t i, live = 0, requested = 0, active = committed_bytes(), buffers = 0;
  for (i = 0; i < SLOTS; i++) {
    if (!w.blocks[i].ptr) continue;
    live++;
    requested += w.blocks[i].requested;
    active += w.blocks[i].bytes;
  }
  for (i = 0; i < BUFFERS; i++) {
    buffers += w.buffers[i].handle != NULL;
    requested += requested_of(&w.buffers[i]);
  }
  s.struct_bytes = 0;
  judge_question(gmlake_get_stats(w.lake, &s));
  REQUIRE(s.live_count == live && s.requested_bytes == requested && s.active_bytes == active);
  REQUIRE(s.allocation_count - s.free_count == live);
  REQUIRE(s.buffer_count == buffers && s.buffer_bytes == committed_bytes());
  REQUIRE(s.buffer_bytes_peak >= s.buffer_bytes);
  REQUIRE(s.reserved_bytes - s.imported_bytes == gate_census().physical_bytes);
  REQUIRE(s.reserved_bytes + s.sleeping_bytes >= active);
  REQUIRE(s.reserved_bytes - s.imported_bytes <= w.capacity);
  check_shares(&s);
  REQUIRE(!w.desc.limit_bytes || s.reserved_bytes <= w.desc.limit_bytes);
  REQUIRE(s.metadata_bytes == fuzz_host.bytes && s.metadata_bytes_peak >= s.metadata_bytes);
  REQUIRE(s.requested_bytes_peak >= requested && s.active_bytes_peak >= active);
  REQUIRE(s.reserved_bytes_peak >= s.reserved_bytes);
  REQUIRE(s.stitched_bytes_peak >= s.stitched_bytes);
  REQUIRE(s.pending_bytes_peak >= s.pending_bytes);
  REQUIRE(gate.hit_kinds || s.quarantined_bytes == 0);
  check_told(&s);
}

static void check_lake(void) {
  gmlake_error_info info;
  gmlake_result result = gmlake_check(w.lake);
  if (result && result != w.lost) {
    (void)gmlake_get_last_error(w.lake, &info);
    fprintf(stderr, "%s: %s\n", gmlake_result_name(result), info.text);
    REQUIRE(result == w.lost);
  }
}

/* ---- Choices --------------------------------------------------------------------------------- */

static gmlake_stream stream_of(unsigned pick) { return w.streams[pick % STREAMS]; }

static size_t size_of(unsigned pick, unsigned twist) {
  static const size_t huge[8] = {SIZE_MAX,        SIZE_MAX - 511,       SIZE_MAX / 2 + 1,
                                 SIZE_MAX / 512,  (size_t)1 << 41,      ((size_t)1 << 41) - 1024,
                                 (size_t)1 << 40, ((size_t)1 << 31) + 1};
  size_t chunk = w.desc.chunk_bytes, bytes;
  const size_t units[4] = {GRAIN, chunk / 2, chunk, chunk + GRAIN};
  if (twist >= 0xFC) return huge[pick % 8];
  bytes = units[pick & 3] * (pick >> 2);
  if (twist % 4 == 2) bytes++;
  if (twist % 4 == 3) bytes -= bytes != 0;
  return bytes;
}

static block *free_slot(unsigned first) {
  unsigned i;
  for (i = 0; i < SLOTS; i++)
    if (!w.blocks[(first + i) % SLOTS].ptr) return &w.blocks[(first + i) % SLOTS];
  return NULL;
}

static const block *block_at(const void *ptr) {
  size_t i;
  for (i = 0; i < SLOTS; i++)
    if (ptr && w.blocks[i].ptr == ptr) return &w.blocks[i];
  return NULL;
}

static int is_capturing(void) {
  size_t i;
  for (i = 0; i < STREAMS; i++)
    if (w.captured[i]) return 1;
  return 0;
}

/* ---- Operations ------------------------------------------------------------------------------ */

static const char plan_reason[] = "as the input says";

static void note_block(block *b, unsigned char *ptr, size_t requested, const pool *from,
                       unsigned flags) {
  gmlake_allocation_info info;
  size_t unit = flags & GMLAKE_EXCLUSIVE ? w.desc.chunk_bytes : GRAIN;
  if (from && flags & GMLAKE_EXCLUSIVE) unit = from->chunk_bytes;
  b->ptr = ptr;
  b->requested = requested;
  b->bytes = w.planned_bytes ? w.planned_bytes : (requested + unit - 1) / unit * unit;
  b->id = ++w.next_id;
  b->pool = from ? (int)(from - w.pools) : -1;
  b->chunk_bytes = 0;
  b->is_exported = b->is_import = 0;
  if (w.has_memory && w.desc.flags & GMLAKE_FILL) {
    REQUIRE(ptr[0] == GMLAKE_FILL_NEW && ptr[b->bytes - 1] == GMLAKE_FILL_NEW);
  }
  fill(b);
  judge_question(gmlake_get_allocation(w.lake, ptr, &info));
  REQUIRE(info.bytes == b->bytes && info.requested_bytes == requested && info.flags == flags);
  REQUIRE(info.piece_count >= 1 && (info.piece_count == 1 || !(flags & GMLAKE_NO_STITCH)));
  REQUIRE(info.pool == (from ? from->value : NULL) && info.ptr == (void *)ptr);
  if (!(w.has & HAS_OBSERVER)) return;
  REQUIRE(told.served.address == (uint64_t)(uintptr_t)ptr && told.served.bytes == b->bytes);
  REQUIRE(told.served.asked_bytes == requested && told.served.request == told.newest);
  if (w.planned_bytes) REQUIRE(told.served.reason == plan_reason);
}

static void serve(const gmlake_alloc_desc *wanted, int is_plain, unsigned allowed) {
  unsigned at = w.d % STREAMS;
  block *b = free_slot(w.a);
  const pool *from = NULL;
  void *ptr = &ptr;
  unsigned i;
  gmlake_result result;
  if (!b) return;
  result = is_plain ? gmlake_alloc(w.lake, wanted->bytes, stream_of(at), &ptr)
                    : gmlake_alloc_with(w.lake, wanted, stream_of(at), &ptr);
  if (at == AT_REFUSED) allowed = BIT(INVALID_ARGUMENT);
  if (!wanted->bytes && at != AT_REFUSED) allowed = BIT_OK;
  if (w.is_unsure) allowed |= BIT(INVALID_ARGUMENT);
  if (w.was_wrong) allowed = BIT(INVALID_ARGUMENT);
  if (judge(result, allowed) || !wanted->bytes) {
    REQUIRE(!ptr);
    return;
  }
  REQUIRE(ptr && !block_at(ptr));
  REQUIRE(!((uintptr_t)ptr % (wanted->alignment ? wanted->alignment : GRAIN)));
  for (i = 0; i < POOLS; i++)
    if (wanted->pool && w.pools[i].value == wanted->pool) from = &w.pools[i];
  if (w.captured[at]) from = &w.pools[w.captured[at] - 1];
  note_block(b, (unsigned char *)ptr, wanted->bytes, from, wanted->flags);
}

static void do_alloc(void) {
  gmlake_alloc_desc wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.bytes = size_of(w.b, w.c);
  serve(&wanted, 1, BIT_OK | BITS_MEMORY);
}

static void do_alloc_with(void) {
  gmlake_alloc_desc wanted;
  unsigned allowed = BIT_OK | BITS_MEMORY, pick = w.e >> 2 & 15, at = w.d % STREAMS;
  const pool *from = w.e % 4 < POOLS ? &w.pools[w.e % 4] : NULL;
  size_t chunk;
  memset(&wanted, 0, sizeof wanted);
  if (from && !from->value) from = NULL;
  if (from && w.captured[at] && from != &w.pools[w.captured[at] - 1]) allowed |= BIT(CAPTURING);
  wanted.bytes = size_of(w.b, w.c);
  wanted.flags = w.d >> 3 & 7;
  wanted.pool = from ? from->value : NULL;
  if (w.captured[at] && !from) from = &w.pools[w.captured[at] - 1];
  chunk = from ? from->chunk_bytes : w.desc.chunk_bytes;
  if (pick) wanted.alignment = GRAIN << (pick - 1) >> 2;
  if (pick == 13) wanted.alignment = chunk;
  if (pick == 14) wanted.alignment = chunk * 2;
  if (pick == 15) wanted.alignment = SIZE_MAX / 2 + 1;
  if (w.d == 0xFF) wanted.flags = 0x80;
  if (w.d == 0xFF || wanted.alignment > chunk) {
    allowed |= BIT(INVALID_ARGUMENT);
    allowed &= ~(BIT_OK | BITS_MEMORY);
  }
  if (w.e >> 6 & 1) wanted.label = "labelled";
  wanted.user_data = w.e >> 7;
  serve(&wanted, 0, allowed);
}

static void free_block(block *b, unsigned at) {
  verify(b);
  if (judge(gmlake_free(w.lake, b->ptr, stream_of(at)),
            at == AT_REFUSED ? BIT(INVALID_ARGUMENT) : BIT_OK))
    return;
  b->stale = b->ptr;
  b->ptr = NULL;
}

/* What is not the start of a live block is refused by everything that takes a pointer. */
static void try_wrong(unsigned char *ptr) {
  gmlake_allocation_info info;
  size_t count;
  if (!ptr || block_at(ptr)) return;
  judge(gmlake_free(w.lake, ptr, w.streams[0]), BIT(DOUBLE_FREE) | BIT(UNKNOWN_POINTER));
  REQUIRE((1u << gmlake_record_stream(w.lake, ptr, w.streams[0])) &
          (BIT(UNKNOWN_POINTER) | BITS_FATAL));
  REQUIRE(gmlake_get_allocation(w.lake, ptr, &info) == GMLAKE_ERROR_UNKNOWN_POINTER);
  REQUIRE(gmlake_get_pieces(w.lake, ptr, NULL, 0, &count) == GMLAKE_ERROR_UNKNOWN_POINTER);
  if (!gmlake_find(w.lake, ptr, &info)) {
    REQUIRE(info.ptr != (void *)ptr || info.state != GMLAKE_STATE_LIVE ||
            info.kind == GMLAKE_KIND_BUFFER);
  }
  (void)gmlake_get_chunks(w.lake, ptr, NULL, 0, &count);
}

static void do_free(void) {
  block *b = &w.blocks[w.a % SLOTS];
  if (b->ptr)
    free_block(b, w.d % STREAMS);
  else
    try_wrong(b->stale);
}

static void do_wrong(void) {
  const block *b = &w.blocks[w.a % SLOTS];
  gmlake_piece pieces[4];
  size_t count = 0;
  unsigned char *ptr = b->ptr ? b->ptr : b->stale;
  if (!ptr) ptr = (unsigned char *)&w;
  switch (w.b % 6) {
  case 0:
    try_wrong(ptr + 1 + w.c);
    break;
  case 1:
    try_wrong(ptr + GRAIN * (1 + w.c));
    break;
  case 2:
    try_wrong(ptr + b->bytes);
    break;
  case 3:
    try_wrong(ptr - GRAIN * (1 + w.c));
    break;
  case 4:
    if (!b->ptr) return;
    judge_question(gmlake_get_pieces(w.lake, b->ptr, pieces, 4, &count));
    try_wrong((unsigned char *)pieces[count < 4 ? count - 1 : w.c % 4].home);
    break;
  default:
    judge_question(gmlake_free(w.lake, NULL, w.streams[0]));
  }
}

static void do_record(void) {
  const block *b = &w.blocks[w.a % SLOTS];
  unsigned at = w.d % STREAMS;
  if (!b->ptr) return;
  judge(gmlake_record_stream(w.lake, b->ptr, stream_of(at)),
        at >= AT_NONE ? BIT(INVALID_ARGUMENT) : BIT_OK);
}

static void do_forget(void) {
  unsigned at = w.d % STREAMS, allowed = BIT_OK;
  if (at >= AT_NONE) allowed = BIT(INVALID_ARGUMENT);
  if (is_capturing()) allowed |= BIT(CAPTURING);
  if (judge(gmlake_forget_stream(w.lake, stream_of(at)), allowed)) return;
  if (at < FIRST_OWN || at > LAST_OWN) return;
  REQUIRE(!w.captured[at]);
  gmlake_mock_stream_destroy(w.mock, w.streams[at]);
  REQUIRE(gmlake_mock_stream_create(w.mock, &w.streams[at]) == GMLAKE_OK);
}

static void do_progress(void) {
  static const uint64_t lags[4] = {0, 1000, 1000000, UINT64_MAX};
  gmlake_stream stream = stream_of(w.d % AT_NONE);
  switch (w.a % 4) {
  case 0:
    gmlake_mock_stream_hold(w.mock, stream);
    break;
  case 1:
    gmlake_mock_stream_finish(w.mock, stream);
    break;
  case 2:
    gmlake_mock_stream_set_lag(w.mock, stream, lags[w.b % 4]);
    break;
  default:
    w.clock_ns += (uint64_t)w.b << (w.c % 16);
    gmlake_mock_set_clock(w.mock, w.clock_ns);
  }
}

static void do_trim(void) {
  size_t before = gate_census().physical_bytes, released = SIZE_MAX, now;
  judge(gmlake_trim(w.lake, size_of(w.b, w.c), &released), BIT_OK);
  now = gate_census().physical_bytes;
  REQUIRE(released == before - now);
}

static size_t imported_bytes(void) {
  gmlake_stats s;
  s.struct_bytes = 0;
  judge_question(gmlake_get_stats(w.lake, &s));
  return s.imported_bytes;
}

static void do_query(void) {
  const size_t before = gate_census().physical_bytes;
  gmlake_query_info info;
  gmlake_alloc_desc wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.bytes = size_of(w.b, w.c);
  wanted.flags = w.e & 7u;
  if (judge(gmlake_query(w.lake, &wanted, w.streams[FIRST_OWN], &info), BIT_OK)) return;
  REQUIRE((1u << info.result) & (BIT_OK | BIT(OUT_OF_DEVICE_MEMORY) | BIT(LIMIT_REACHED)));
  REQUIRE(info.wait <= GMLAKE_HOST_WAIT && gate_census().physical_bytes == before);
}

static void do_budget(void) {
  gmlake_budget budget;
  if (judge(gmlake_get_budget(w.lake, &budget), BIT_OK)) return;
  REQUIRE(budget.total_bytes == w.capacity);
  REQUIRE(budget.driver_free_bytes + budget.reserved_bytes == w.capacity + imported_bytes());
  REQUIRE(budget.idle_bytes + budget.pending_bytes <= budget.reserved_bytes);
  REQUIRE(budget.allocatable_bytes <= w.capacity);
  if (w.a & 1) do_query();
}

static void judge_map(void) {
  gmlake_pool *pools[POOLS];
  unsigned i;
  for (i = 0; i < POOLS; i++) pools[i] = w.pools[i].value;
  if (!w.has_lost_pool) REQUIRE(!map_wrong(w.lake, pools, POOLS));
}

static void do_questions(void) {
  const block *b = &w.blocks[w.a % SLOTS];
  gmlake_piece pieces[64];
  size_t count = 0, i, sum = 0;
  gmlake_stats stats;
  gmlake_error_info info;
  gmlake_desc desc;
  stats.struct_bytes = w.b;
  REQUIRE(!gmlake_get_stats(w.lake, &stats) == (!w.b || w.b >= sizeof(size_t)));
  judge_question(gmlake_get_last_error(w.lake, &info));
  REQUIRE(memchr(info.text, 0, sizeof info.text));
  judge_question(gmlake_get_desc(w.lake, &desc));
  if (w.c & 1) judge_question(gmlake_reset_peaks(w.lake));
  if (w.c & 2) judge_map();
  if (!b->ptr) return;
  judge_question(gmlake_get_pieces(w.lake, b->ptr, pieces, 64, &count));
  REQUIRE(count >= 1);
  for (i = 0; i < count && i < 64; i++) sum += pieces[i].bytes;
  REQUIRE(count > 64 || sum == b->bytes);
}

static void do_pool_create(void) {
  pool *p = &w.pools[w.e % POOLS];
  gmlake_pool_desc desc;
  const size_t chunk = w.desc.chunk_bytes;
  const size_t chunks[8] = {0, 0, chunk, chunk * 2, chunk * 4, chunk / 2, 3, SIZE_MAX / 2 + 1};
  const size_t limits[4] = {0, chunk * 4, chunk * 9 + 1, 1};
  if (p->value) return;
  memset(&desc, 0, sizeof desc);
  desc.chunk_bytes = chunks[w.b % 8];
  desc.limit_bytes = limits[w.c % 4];
  desc.label = "pool";
  if (judge(gmlake_pool_create(w.lake, &desc, &p->value),
            w.b % 8 < 3 ? BIT_OK : BIT_OK | BIT(INVALID_ARGUMENT))) {
    REQUIRE(!p->value);
    return;
  }
  p->chunk_bytes = desc.chunk_bytes ? desc.chunk_bytes : chunk;
}

static void do_pool_destroy(void) {
  pool *p = &w.pools[w.e % POOLS];
  unsigned allowed = BIT_OK, i;
  gmlake_result result;
  if (!p->value) return;
  for (i = 0; i < SLOTS; i++)
    if (w.blocks[i].ptr && w.blocks[i].pool == (int)(p - w.pools)) allowed = BIT(INVALID_ARGUMENT);
  if (is_capturing()) allowed |= BIT(CAPTURING);
  result = judge(gmlake_pool_destroy(w.lake, p->value), allowed);
  if (!result || w.lost) p->value = NULL; /* on a lost lake it may be gone */
  w.has_lost_pool |= result && w.lost;
}

static void do_capture_begin(void) {
  unsigned at = w.d % STREAMS, allowed = BIT_OK;
  const pool *p = &w.pools[w.e % POOLS];
  if (at < FIRST_OWN || at > LAST_OWN || !p->value)
    allowed = BIT(INVALID_ARGUMENT);
  else if (w.captured[at])
    allowed = BIT(CAPTURING);
  if (judge(gmlake_capture_begin(w.lake, stream_of(at), p->value), allowed)) return;
  REQUIRE(gmlake_mock_capture_begin(w.mock, w.streams[at]) == GMLAKE_OK);
  w.captured[at] = (int)(p - w.pools) + 1;
}

static void end_capture(unsigned at) {
  gmlake_result ended;
  if (w.captured[at]) {
    ended = gmlake_mock_capture_end(w.mock, w.streams[at]);
    REQUIRE(ended == GMLAKE_OK || gate.hits);
  }
  ended = judge(gmlake_capture_end(w.lake, w.streams[at]),
                w.captured[at] ? BIT_OK : BIT(INVALID_ARGUMENT));
  w.captured[at] = 0;
}

static void do_capture_end(void) { end_capture(w.d % STREAMS); }

static void do_device_fault(void) {
  static const gmlake_result results[16] = {GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                            GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                            GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                            GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                            GMLAKE_ERROR_DRIVER,
                                            GMLAKE_ERROR_DRIVER,
                                            GMLAKE_ERROR_DRIVER,
                                            GMLAKE_ERROR_DRIVER,
                                            GMLAKE_ERROR_INVALID_ARGUMENT,
                                            GMLAKE_ERROR_UNSUPPORTED,
                                            GMLAKE_ERROR_OUT_OF_HOST_MEMORY,
                                            GMLAKE_ERROR_CAPTURING,
                                            GMLAKE_ERROR_NO_DEVICE,
                                            GMLAKE_ERROR_DRIVER,
                                            GMLAKE_ERROR_DEVICE_LOST,
                                            GMLAKE_ERROR_SHUTTING_DOWN};
  gate.kinds = w.a & 1 ? ON_ALL : 1u << (w.a >> 1) % (w.is_extended ? 18 : 16);
  gate.in = w.b % 64 + 1;
  gate.stays = (int)(w.d & 1);
  gate.result = results[w.c % 16];
}

static void do_host_fault(void) {
  fuzz_host.fail_in = w.b % 16 + 1;
  fuzz_host.stays = (int)(w.d & 1);
}

static void do_mend(void) {
  gate.in = 0;
  fuzz_host.fail_in = 0;
}

/* ---- Operations on buffers ------------------------------------------------------------------- */

/* What a chunk size and a maximum must be answered, before memory or addresses lack. */
static unsigned buffer_allowed(const gmlake_buffer_desc *d, size_t chunk) {
  const size_t guard = w.desc.flags & GMLAKE_GUARD ? chunk : 0, most = w.capacity * 32;
  if (!d->max_bytes || chunk & (chunk - 1) || chunk % w.granularity || chunk > w.capacity)
    return BIT(INVALID_ARGUMENT);
  if (d->max_bytes > most - guard) return BIT(OUT_OF_DEVICE_MEMORY);
  w.space += (d->max_bytes + chunk - 1) / chunk * chunk + guard;
  return w.space <= w.capacity ? BIT_OK : BIT_OK | BIT(OUT_OF_DEVICE_MEMORY);
}

static void do_buffer_create(void) {
  buffer *b = &w.buffers[w.a % BUFFERS];
  const size_t chunk = w.desc.chunk_bytes, mib = (size_t)1 << 20;
  const size_t chunks[8] = {chunk,     chunk, w.granularity,     chunk * 2,
                            chunk * 4, 0,     w.granularity / 2, chunk * 3};
  gmlake_buffer_desc desc;
  gmlake_buffer *handle = NULL;
  gmlake_buffer_info info;
  size_t actual;
  if (b->handle) return;
  memset(&desc, 0, sizeof desc);
  desc.chunk_bytes = w.e == 0xFF ? 2048 * mib : chunks[w.e % 8];
  desc.max_bytes = size_of(w.b, w.c);
  desc.user_data = (uint64_t)(b - w.buffers);
  if (w.d & 1) desc.label = "buffer";
  actual = desc.chunk_bytes ? desc.chunk_bytes : 2 * mib;
  if (judge(gmlake_buffer_create(w.lake, &desc, &handle), buffer_allowed(&desc, actual))) {
    REQUIRE(!handle);
    return;
  }
  judge_question(gmlake_buffer_get_info(w.lake, handle, &info));
  REQUIRE((uintptr_t)info.ptr % actual == 0 && info.label == desc.label);
  b->handle = handle;
  b->ptr = (unsigned char *)info.ptr;
  b->bytes = b->committed_bytes = 0;
  b->holes = 0;
  b->max_bytes = desc.max_bytes;
  b->chunk_bytes = actual;
  b->id = ++w.next_id;
  check_buffer(b);
}

/* What a commit or discard of chunks [from, to) may answer. Where the device has memory left and
   nothing else limits the lake there is no shortage. */
static unsigned change_allowed(const buffer *b, size_t from, size_t to, int is_commit,
                               unsigned at) {
  unsigned allowed = BIT_OK;
  size_t i, missing = 0;
  if (at == AT_REFUSED) return BIT(INVALID_ARGUMENT);
  for (i = from; i < to; i++) missing += has_chunk(b, i) != is_commit;
  if (!missing) return BIT_OK;
  if (!is_commit) return w.captured[at] ? BIT(CAPTURING) : BIT_OK;
  if (is_capturing()) allowed |= BIT(CAPTURING);
  if (w.desc.limit_bytes || w.desc.driver_free_bytes_min ||
      (w.desc.arena_bytes && w.desc.arena_bytes < w.capacity) || /* addresses at home */
      missing * b->chunk_bytes > w.capacity - gate_census().physical_bytes)
    allowed |= BITS_MEMORY;
  return allowed;
}

static unsigned resize_allowed(const buffer *b, size_t bytes, unsigned at) {
  if (bytes > b->max_bytes) return BIT(INVALID_ARGUMENT);
  if (bytes > b->bytes)
    return change_allowed(b, b->bytes / b->chunk_bytes, chunks_for(b, bytes), 1, at);
  return change_allowed(b, chunks_for(b, bytes), chunks_for(b, b->bytes), 0, at);
}

static void resize(buffer *b, size_t bytes, unsigned at) {
  unsigned allowed = resize_allowed(b, bytes, at);
  verify_chunks(b);
  if (judge(gmlake_buffer_resize(w.lake, b->handle, bytes, stream_of(at)), allowed)) {
    check_buffer(b);
    return;
  }
  if (bytes > b->bytes) /* the handler may have shrunk it */
    enter_change(b, b->bytes / b->chunk_bytes, chunks_for(b, bytes), 1, bytes);
  else
    enter_change(b, chunks_for(b, bytes), chunks_for(b, b->bytes), 0, bytes);
  check_buffer(b);
}

/* A range of the first chunks; or one that there is not. */
static void do_buffer_range(void) {
  buffer *b = &w.buffers[w.a % BUFFERS];
  const size_t wrong[4] = {1, b->chunk_bytes / 2, SIZE_MAX, SIZE_MAX / 2 + 1};
  const unsigned at = w.d % STREAMS;
  const int is_commit = w.e & 1;
  size_t offset = b->chunk_bytes * (w.b % 24), bytes = b->chunk_bytes * (w.c % 12);
  unsigned allowed = BIT(INVALID_ARGUMENT), i;
  uint32_t chunks[12];
  gmlake_result result;
  if (!b->handle) return;
  if (offset > b->max_bytes) offset = 0;
  if (bytes > b->max_bytes - offset) bytes = b->max_bytes - offset;
  if (w.e >= 0xF8) offset += wrong[w.c % 4];
  if (w.e >= 0xF0 && w.e < 0xF8) bytes = w.c % 4 ? wrong[w.c % 4] : b->max_bytes - offset + 1;
  verify_chunks(b);
  if (offset % b->chunk_bytes == 0 && offset <= b->max_bytes && bytes <= b->max_bytes - offset &&
      (bytes % b->chunk_bytes == 0 || bytes == b->max_bytes - offset))
    allowed =
        change_allowed(b, offset / b->chunk_bytes, chunks_for(b, offset + bytes), is_commit, at);
  if (is_commit && w.c % 2 && w.e < 0xF0) { /* it wants some chunks, also such as are not there */
    for (i = 0; i < 12; i++) chunks[i] = w.c * (i + 1) % 37;
    result = gmlake_buffer_commit_chunks(w.lake, b->handle, offset, bytes, chunks, stream_of(at));
  } else if (is_commit) {
    result = gmlake_buffer_commit(w.lake, b->handle, offset, bytes, stream_of(at));
  } else {
    result = gmlake_buffer_discard(w.lake, b->handle, offset, bytes, stream_of(at));
  }
  if (!judge(result, allowed))
    enter_change(b, offset / b->chunk_bytes, chunks_for(b, offset + bytes), is_commit,
                 is_commit && bytes && offset + bytes > b->bytes ? offset + bytes : b->bytes);
  check_buffer(b);
}

static void do_buffer_resize(void) {
  buffer *b = &w.buffers[w.a % BUFFERS];
  const size_t ends[4] = {b->max_bytes, b->max_bytes + 1, SIZE_MAX, SIZE_MAX / 2 + 1};
  size_t bytes = b->chunk_bytes * (w.b % 24);
  if (!b->handle) return;
  if (w.c % 4 == 1) bytes++;
  if (w.c % 4 == 2) bytes -= bytes != 0;
  if (w.c % 4 == 3) bytes += b->chunk_bytes / 2;
  if (w.c >= 0xF0) bytes = ends[w.c % 4];
  resize(b, bytes, w.d % STREAMS);
}

/* By some chunks more or fewer. */
static void do_buffer_move(void) {
  buffer *b = &w.buffers[w.a % BUFFERS];
  size_t by = b->chunk_bytes * (w.b % 8);
  if (!b->handle) return;
  if (w.c & 1)
    by = b->bytes - (by < b->bytes ? by : b->bytes);
  else
    by = b->bytes + (by < b->max_bytes - b->bytes ? by : b->max_bytes - b->bytes);
  resize(b, by, w.d % STREAMS);
}

static void do_buffer_destroy(void) {
  buffer *b = &w.buffers[w.a % BUFFERS];
  unsigned at = w.d % STREAMS;
  if (!b->handle) return;
  check_buffer(b);
  if (judge(gmlake_buffer_destroy(w.lake, b->handle, stream_of(at)), resize_allowed(b, 0, at)))
    return;
  b->handle = NULL;
  b->bytes = b->committed_bytes = 0;
  b->holes = 0;
}

/* Contents of what was dropped. */
static void stamp_again(int pool) {
  size_t i, n, end;
  for (i = 0; i < SLOTS; i++)
    if (w.blocks[i].ptr && w.blocks[i].pool == pool && !w.blocks[i].is_import) fill(&w.blocks[i]);
  for (i = 0; i < BUFFERS && pool < 0 && w.has_memory; i++) {
    const buffer *b = &w.buffers[i];
    for (n = 0; b->handle && n < chunks_for(b, b->bytes); n++) {
      uint64_t stamp = stamp_of(b->id, end = (n + 1) * b->chunk_bytes);
      if (!has_chunk(b, n)) continue;
      memcpy(b->ptr + end - b->chunk_bytes, &stamp, sizeof stamp);
      memcpy(b->ptr + end - sizeof stamp, &stamp, sizeof stamp);
    }
  }
}

/* A pool, or what is in none, sleeps and wakes: perhaps not at once, but when nothing fails. */
static void do_nap(void) {
  const int at = (int)(w.e % (POOLS + 1)) - 1;
  gmlake_pool *pool = at < 0 ? NULL : w.pools[at].value;
  const gmlake_sleep_mode mode = w.b & 1 ? GMLAKE_SLEEP_KEEP : GMLAKE_SLEEP_DROP;
  unsigned allowed = BIT_OK, i;
  size_t released = 0;
  gmlake_result result;
  gmlake_stats s;
  if (at >= 0 && !pool) return;
  for (i = 0; i < STREAMS; i++) gmlake_mock_stream_finish(w.mock, w.streams[i]);
  s.struct_bytes = 0;
  judge_question(gmlake_pool_get_stats(w.lake, pool, &s));
  if (s.exported_bytes) allowed = BIT(BUSY);
  for (i = 0; i < STREAMS; i++)
    if (w.captured[i] && w.captured[i] == at + 1) allowed = BIT(CAPTURING);
  w.is_napping = 1;
  result = judge(gmlake_pool_sleep(w.lake, pool, mode, &released), allowed);
  check_lake();
  if (w.b & 2) judge(gmlake_pool_wake(w.lake, pool), BIT_OK);
  do_mend();
  if (judge(gmlake_pool_wake(w.lake, pool), BIT_OK)) {
    REQUIRE(w.lost);
    w.has_memory = 0;
    w.has_lost_pool = 1;
    return;
  }
  w.is_napping = 0;
  if (!result && mode == GMLAKE_SLEEP_DROP) stamp_again(at);
  for (i = 0; i < SLOTS; i++) verify(&w.blocks[i]);
  for (i = 0; i < BUFFERS; i++) verify_chunks(&w.buffers[i]);
}

static void do_mark(void) {
  const unsigned at = w.d % STREAMS, kind = w.c % 5;
  judge(gmlake_mark_stream(w.lake, stream_of(at), (gmlake_stream_kind)kind),
        at >= AT_NONE || kind > GMLAKE_STREAM_STAYS ? BIT(INVALID_ARGUMENT) : BIT_OK);
}

/* Nothing is created beyond the profile, nor after an error. */
static void do_prewarm(void) {
  const size_t before = gate_census().physical_bytes, chunk = w.desc.chunk_bytes;
  gmlake_profile profile;
  unsigned allowed =
      w.e % 128 > 100 || w.d % STREAMS == AT_REFUSED ? BIT(INVALID_ARGUMENT) : BIT_OK;
  memset(&profile, 0, sizeof profile);
  profile.peak_bytes = size_of(w.b, w.c);
  profile.resident_bytes = profile.peak_bytes / (1 + (w.d >> 4));
  profile.handle_bytes = chunk << (w.d >> 3 & 1);
  profile.large_percent = w.e % 128;
  if (judge(gmlake_prewarm(w.lake, &profile, stream_of(w.d % STREAMS)), allowed))
    REQUIRE(was_hit() || gate_census().physical_bytes == before);
  else
    REQUIRE(profile.peak_bytes > w.capacity ||
            gate_census().physical_bytes - before <= profile.peak_bytes + 2 * chunk);
}

static void do_prepare(void) {
  if (w.a & 1)
    do_mark();
  else
    do_prewarm();
}

/* Borrows, of whatever pool is lent, up to three blocks. Without a policy, which is not asked, and
   an observer, which is told of no attempt that another pool then served. */
static void borrow(unsigned at) {
  unsigned i;
  for (i = 0; i < w.a % 4 && !(w.has & (HAS_POLICY | HAS_OBSERVER)); i++) {
    block *b = free_slot(w.a + i);
    gmlake_allocation_info info;
    gmlake_alloc_desc wanted;
    const pool *from = NULL;
    void *ptr = &ptr;
    unsigned n;
    memset(&wanted, 0, sizeof wanted);
    wanted.bytes = size_of(w.b >> 1 ^ i, w.c & 0x7F);
    wanted.flags = GMLAKE_TRANSIENT;
    if (!b || !wanted.bytes) return;
    w.handled = 0;
    if (judge(gmlake_alloc_with(w.lake, &wanted, stream_of(at), &ptr), BIT_OK | BITS_MEMORY)) {
      REQUIRE(!ptr);
      continue;
    }
    REQUIRE(ptr && !block_at(ptr));
    judge_question(gmlake_get_allocation(w.lake, ptr, &info));
    for (n = 0; n < POOLS; n++)
      if (info.pool && w.pools[n].value == info.pool) from = &w.pools[n];
    REQUIRE(!(info.flags & GMLAKE_TRANSIENT) || (from && !w.captured[at]));
    note_block(b, (unsigned char *)ptr, wanted.bytes, from, info.flags & GMLAKE_TRANSIENT);
    check_lake();
  }
}

/* Frees what is borrowed of the pool, in the input's order. Returns whether some is left. */
static int give_back(const pool *p) {
  unsigned i;
  int is_left = 0;
  for (i = 0; i < SLOTS; i++) {
    block *b = &w.blocks[w.b & 2 ? SLOTS - 1 - i : i];
    gmlake_allocation_info info;
    if (!b->ptr || b->pool != (int)(p - w.pools)) continue;
    judge_question(gmlake_get_allocation(w.lake, b->ptr, &info));
    if (!(info.flags & GMLAKE_TRANSIENT)) continue;
    free_block(b, FIRST_OWN + (w.c + i) % (LAST_OWN - FIRST_OWN + 1));
    is_left |= b->ptr != NULL;
  }
  return is_left;
}

/* A pool is lent, which forbids what would end it, borrowed of, and recalled, perhaps not at
   once. */
static void do_loan(void) {
  const int at = (int)(w.e % POOLS);
  const unsigned by = FIRST_OWN + w.d % (LAST_OWN - FIRST_OWN + 1);
  const unsigned to = FIRST_OWN + w.c % (LAST_OWN - FIRST_OWN + 1);
  gmlake_pool *pool = w.pools[at].value;
  unsigned allowed = BIT_OK, i;
  if (!pool) return;
  for (i = 0; i < STREAMS; i++)
    if (w.captured[i] && (w.captured[i] == at + 1 || i == by)) allowed = BIT(CAPTURING);
  if (judge(gmlake_pool_lend(w.lake, pool, stream_of(by)), allowed)) return;
  check_lake();
  judge(gmlake_pool_lend(w.lake, pool, stream_of(to)), BIT(BUSY));
  judge(gmlake_pool_sleep(w.lake, pool, GMLAKE_SLEEP_DROP, NULL), BIT(BUSY));
  judge(gmlake_pool_destroy(w.lake, pool), BIT(BUSY));
  if (w.b & 1) judge(gmlake_trim(w.lake, 0, NULL), BIT_OK);
  borrow(FIRST_OWN + w.a / 4 % (LAST_OWN - FIRST_OWN + 1));
  borrow(to);
  allowed = is_capturing() ? BIT_OK | BIT(CAPTURING) : BIT_OK;
  if (give_back(&w.pools[at])) allowed = BIT(BUSY) | BIT(CAPTURING);
  if (!judge(gmlake_pool_recall(w.lake, pool, stream_of(to)), allowed)) return;
  do_mend();
  if (w.lost) return;
  REQUIRE(!give_back(&w.pools[at]));
  for (i = 0; i < STREAMS; i++)
    if (w.captured[i]) end_capture(i);
  if (judge(gmlake_pool_recall(w.lake, pool, stream_of(by)), BIT_OK)) REQUIRE(w.lost);
}

static gmlake_handle handles[SHARED_MAX];

static void close_handles(size_t count) {
  while (count) REQUIRE(!close(handles[--count].fd));
}

/* What the export of a block or buffer may answer; b and f may both be NULL. */
static unsigned export_allowed(const block *b, const buffer *f, unsigned type) {
  gmlake_allocation_info info;
  if (type == GMLAKE_HANDLE_WIN32) return BIT(UNSUPPORTED);
  if (type != GMLAKE_HANDLE_POSIX_FD && type != GMLAKE_HANDLE_FABRIC) return BIT(INVALID_ARGUMENT);
  if (!b && !f) return BIT(UNKNOWN_POINTER);
  if (!(w.desc.handle_types & type) || (b && b->is_import)) return BIT(INVALID_ARGUMENT);
  if (f && (!f->bytes || f->committed_bytes != chunks_for(f, f->bytes) * f->chunk_bytes))
    return BIT(INVALID_ARGUMENT);
  if (!b) return w.has_memory ? BIT_OK : BIT(UNSUPPORTED);
  judge_question(gmlake_get_allocation(w.lake, b->ptr, &info));
  if (!(info.flags & GMLAKE_EXCLUSIVE)) return BIT(INVALID_ARGUMENT);
  if (b->pool >= 0 && !b->is_exported) /* a graph may know it */
    return BIT(INVALID_ARGUMENT) | (w.has_memory ? BIT_OK : BIT(UNSUPPORTED));
  return w.has_memory ? BIT_OK : BIT(UNSUPPORTED);
}

/* Exports it, after asking how many handles it has. Returns that; 0: it is not exported. */
static size_t export_one(block *b, buffer *f, const void *ptr, unsigned type) {
  const unsigned allowed = export_allowed(b, f, type);
  size_t count = 0, asked = 0, before = w.has_shared ? 0 : 1;
  gmlake_stats s;
  s.struct_bytes = 0;
  if (judge(gmlake_export(w.lake, ptr, type, NULL, 0, &asked),
            allowed & BIT(UNSUPPORTED) ? allowed | BIT_OK : allowed))
    return 0;
  REQUIRE(asked && asked <= SHARED_MAX);
  judge_question(gmlake_get_stats(w.lake, &s));
  REQUIRE(!before || !s.exported_bytes); /* to ask changes nothing */
  if (judge(gmlake_export(w.lake, ptr, type, handles, SHARED_MAX, &count), allowed)) return 0;
  REQUIRE(count == asked && count * handles[0].bytes == (b ? b->bytes : f->committed_bytes));
  w.has_shared = 1;
  if (b) b->is_exported = 1;
  if (f) f->is_exported = 1;
  return count;
}

/* Changes a handle, or the count, so that the import has to answer what is returned. */
static unsigned spoil_handles(size_t *count, unsigned how) {
  gmlake_handle *one = &handles[w.c % *count];
  switch (how) {
  case 1:
    one->bytes *= *count > 1 ? 2 : 3;
    return BIT(INVALID_ARGUMENT);
  case 2:
    one->type = w.d;
    return w.d == GMLAKE_HANDLE_POSIX_FD ? BIT_OK
           : w.d == GMLAKE_HANDLE_FABRIC ? BIT(UNSUPPORTED)
                                         : BIT(INVALID_ARGUMENT);
  case 3:
    *count = 0;
    return BIT(INVALID_ARGUMENT);
  default:
    return BIT_OK;
  }
}

/* Maps what was exported, as another process does. */
static void import_all(const block *b, const buffer *f, size_t count, unsigned how) {
  const size_t bytes = count * handles[0].bytes;
  gmlake_allocation_info info;
  gmlake_handle kept[SHARED_MAX];
  block *to = free_slot(w.a);
  unsigned allowed;
  void *ptr = &ptr;
  size_t all = count;
  if (!to) return;
  memcpy(kept, handles, sizeof kept);
  allowed = spoil_handles(&all, how);
  if (w.desc.limit_bytes && allowed != BIT(INVALID_ARGUMENT)) allowed |= BIT(LIMIT_REACHED);
  if (judge(gmlake_import(w.lake, handles, all, &ptr), allowed)) {
    REQUIRE(!ptr || !all);
  } else {
    REQUIRE(ptr && !block_at(ptr));
    to->ptr = (unsigned char *)ptr;
    to->requested = to->bytes = bytes;
    to->id = b ? b->id : f->id;
    to->pool = -1;
    to->chunk_bytes = f ? f->chunk_bytes : 0;
    to->is_import = 1;
    to->is_exported = 0;
    verify(to);
    judge_question(gmlake_get_allocation(w.lake, ptr, &info));
    REQUIRE(info.ptr == ptr && info.bytes == bytes && info.requested_bytes == bytes);
    REQUIRE(info.flags == GMLAKE_EXCLUSIVE && !info.pool && info.piece_count == 1);
  }
  memcpy(handles, kept, sizeof kept);
}

/* A block or buffer, or what is neither, is exported, and imported by the same lake: memory with
   two addresses. What was freed before it was let go stays as it was. */
static void do_share(void) {
  static const unsigned types[8] = {1, 1, 1, 1, 1, 2, 8, 3};
  block *b = w.b & 1 ? NULL : &w.blocks[w.a % SLOTS];
  buffer *f = w.b & 1 ? &w.buffers[w.a % BUFFERS] : NULL;
  const void *ptr = b ? b->ptr : f->ptr;
  const unsigned type = types[w.e % 8];
  size_t count, at;
  unsigned i, imports = 0;
  if ((b && !b->ptr) || (f && !f->handle)) return;
  for (i = 0; i < SLOTS; i++) imports += w.blocks[i].ptr && w.blocks[i].is_import;
  if (w.b & 0x80) b = NULL, f = NULL, ptr = (const unsigned char *)ptr + 1 + w.c;
  count = export_one(b, f, ptr, type);
  check_lake();
  at = count;
  if (count && imports < 3) import_all(b, f, count, w.b >> 1 & 7);
  if (count && imports < 2 && w.e & 0x80) import_all(b, f, count, 0);
  close_handles(at);
}

/* Addresses that are no block's. */
static void do_buffer_wrong(void) {
  const buffer *b = &w.buffers[w.a % BUFFERS];
  if (b->handle) try_wrong(b->ptr + b->chunk_bytes * (w.b % 8) + w.c % 2);
  if (b->handle) try_wrong(b->ptr + b->committed_bytes);
}

static void (*const operations[])(void) = {
    do_alloc, do_alloc, do_alloc, do_alloc, do_alloc_with, do_alloc_with, do_free, do_free, do_free,
    do_free, do_free, do_wrong, do_record, do_record, do_forget, do_trim, do_progress, do_progress,
    do_budget, do_questions, do_pool_create, do_mend, do_host_fault, do_device_fault, do_mend,
    do_pool_destroy, do_device_fault, do_mend, do_alloc, do_free, do_capture_end, do_capture_begin,
    /* of the extended mode alone: */
    do_buffer_create, do_buffer_create, do_nap, do_buffer_resize, do_buffer_resize, do_buffer_range,
    do_buffer_resize, do_buffer_range, do_buffer_move, do_buffer_range, do_buffer_move,
    do_buffer_range, do_buffer_destroy, do_buffer_destroy, do_buffer_wrong, do_prepare, do_loan,
    do_share};

static void run_operation(unsigned number) {
  unsigned count =
      w.is_extended ? (unsigned)(sizeof operations / sizeof operations[0]) : OPERATIONS_PLAIN;
  w.hits_before = gate.hits;
  w.refused_before = fuzz_host.refused;
  gate.hit_results = 0;
  w.handled = 0;
  w.planned_bytes = 0;
  w.was_wrong = w.is_unsure = 0;
#if defined(FUZZ_TRACE)
  fprintf(stderr, "operation %u: %u %u %u %u %u\n", number % count, w.a, w.b, w.c, w.d, w.e);
#endif
  operations[number % count]();
  check_lake();
  check_figures();
  check_buffer(&w.buffers[w.tick % BUFFERS]);
  verify(&w.blocks[w.tick++ % SLOTS]);
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

/* A handler may shrink buffers, also the one whose growth it is asked about, and grow none. */
static void make_room_of(buffer *b) {
  if (!b->handle) return;
  if (!w.fatal && b->bytes < b->max_bytes)
    REQUIRE(gmlake_buffer_resize(w.lake, b->handle, b->bytes + 1, NULL) ==
            GMLAKE_ERROR_INVALID_ARGUMENT);
  if (w.e & 0x80) resize(b, b->bytes / 2, w.e / 8 % AT_NONE);
}

static int handle_oom(void *user, gmlake *lake, const gmlake_error_info *info) {
  block *b = &w.blocks[(w.a + (unsigned)w.handled) % SLOTS];
  void *ptr;
  (void)user;
  REQUIRE(lake == w.lake && ((1u << info->result) & BITS_MEMORY));
  REQUIRE(++w.handled <= 8);
  if (!w.fatal) REQUIRE(gmlake_alloc(lake, GRAIN, NULL, &ptr) == GMLAKE_ERROR_INVALID_ARGUMENT);
  if (b->ptr) free_block(b, w.e % AT_NONE);
  if (w.is_extended) make_room_of(&w.buffers[w.e % BUFFERS]);
  if (w.b & 1) judge(gmlake_trim(lake, 0, NULL), BIT_OK);
  return w.c & 1 || b->stale;
}

static void hear(void *user, int level, const gmlake_error_info *info) {
  gmlake_stats stats;
  (void)user;
  REQUIRE(level >= GMLAKE_LOG_ERROR && level <= GMLAKE_LOG_INFO);
  REQUIRE(memchr(info->text, 0, sizeof info->text));
  stats.struct_bytes = 0;
  w.leak_count += level == GMLAKE_LOG_WARNING && w.is_closing && strstr(info->text, "never freed");
  if (w.lake) judge_question(gmlake_get_stats(w.lake, &stats));
}

/* ---- A policy -------------------------------------------------------------------------------- */

static unsigned answer(void) {
  unsigned now = w.answers >> 24;
  w.answers = w.answers * 0x9E3779B1u + 0x7F4A7C15u;
  return now;
}

static int is_to_be_wrong(unsigned number) {
  if (!(w.has & HAS_WRONG) || (number & 0x30) != 0x30) return 0;
  return w.was_wrong = 1;
}

static uintptr_t up(uintptr_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/* A policy may not call the lake. */
static void try_barred(void) {
  void *ptr = &ptr;
  size_t released = 1, i;
  if (w.fatal || gate.hit_results & BITS_FATAL) return;
  REQUIRE(gmlake_alloc(w.lake, GRAIN, NULL, &ptr) == GMLAKE_ERROR_INVALID_ARGUMENT && !ptr);
  REQUIRE(gmlake_trim(w.lake, 0, &released) == GMLAKE_ERROR_INVALID_ARGUMENT && !released);
  REQUIRE(gmlake_check(w.lake) == GMLAKE_ERROR_INVALID_ARGUMENT);
  for (i = 0; i < SLOTS; i++)
    if (w.blocks[i].ptr)
      REQUIRE(gmlake_free(w.lake, w.blocks[i].ptr, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT);
  for (i = 0; i < BUFFERS; i++)
    if (w.buffers[i].handle)
      REQUIRE(gmlake_buffer_resize(w.lake, w.buffers[i].handle, 0, NULL) ==
              GMLAKE_ERROR_INVALID_ARGUMENT);
}

/* What is shown as free is nobody's. */
static void check_piece(const gmlake_piece *piece) {
  uintptr_t home = (uintptr_t)piece->home;
  size_t i;
  REQUIRE(piece->bytes && (home | piece->bytes) % GRAIN == 0);
  for (i = 0; i < SLOTS; i++) {
    const block *b = &w.blocks[i];
    if (b->ptr)
      REQUIRE(home + piece->bytes <= (uintptr_t)b->ptr || home >= (uintptr_t)b->ptr + b->bytes);
  }
}

static void check_request(const gmlake_request *r) {
  REQUIRE(r->bytes && r->alignment >= GRAIN && !(r->alignment & (r->alignment - 1)));
  if (w.has & HAS_OBSERVER) REQUIRE(r->number == told.newest + 1);
}

static void check_view(const gmlake_view *view) {
  gmlake_stats s;
  size_t i;
  for (i = 0; i < view->block_count; i++) {
    const gmlake_piece *p = &view->blocks[i];
    check_piece(p);
    if (i) REQUIRE((uintptr_t)p[-1].home + p[-1].bytes <= (uintptr_t)p->home);
  }
  for (i = 0; i < view->window_count; i++) {
    const gmlake_window_info *info = &view->windows[i];
    REQUIRE(info->number && info->bytes && info->bytes <= info->mapped_bytes);
    REQUIRE(info->piece_count >= 1);
  }
  s.struct_bytes = 0;
  judge_question(gmlake_get_stats(w.lake, &s));
  REQUIRE(view->window_count <= s.window_count);
}

static int may_stitch(const gmlake_view *view, const gmlake_request *r) {
  return !(r->flags & GMLAKE_NO_STITCH) && r->bytes >= view->stitch_bytes_min;
}

static int plan_window(const gmlake_view *view, const gmlake_request *r, gmlake_plan *plan) {
  size_t first = view->window_count ? answer() % view->window_count : 0, i;
  for (i = first; i < view->window_count; i++) {
    const gmlake_window_info *info = &view->windows[i];
    if (!info->is_free || info->bytes < r->bytes) continue;
    plan->window = info->number;
    plan->state = 1 + (answer() & 1);
    w.planned_bytes = info->bytes;
    return 1;
  }
  return 0;
}

/* A range from within a free block or several side by side, perhaps longer than it must be. */
static int plan_piece(const gmlake_view *view, const gmlake_request *r, gmlake_plan *plan) {
  size_t unit = r->flags & GMLAKE_EXCLUSIVE ? view->chunk_bytes : GRAIN, bytes = up(r->bytes, unit);
  size_t i = view->block_count ? answer() % view->block_count : 0, more = answer() % 4 * unit;
  const gmlake_piece *b = &view->blocks[i];
  uintptr_t home, end, block_end;
  if (!view->block_count) return 0;
  home = up((uintptr_t)b->home, r->alignment > unit ? r->alignment : unit);
  end = block_end = (uintptr_t)b->home + b->bytes;
  while (answer() & 1 && ++i < view->block_count && (uintptr_t)view->blocks[i].home == end)
    end += view->blocks[i].bytes;
  if (home > end || bytes > end - home) return 0;
  if (more <= end - home - bytes) bytes += more;
  plan->pieces[0].home = (void *)home;
  plan->pieces[0].bytes = bytes;
  plan->piece_count = 1;
  plan->state = 1 + (answer() & 1);
  plan->keeps_former = home == (uintptr_t)b->home && home + bytes < block_end &&
                       (home + bytes) % view->chunk_bytes == 0 && answer() & 1;
  w.planned_bytes = bytes;
  return 1;
}

/* Memory to be created, for what pieces do not cover. */
static int plan_growth(const gmlake_view *view, const gmlake_request *r, size_t missing,
                       gmlake_plan *plan) {
  size_t most = up(w.capacity, view->chunk_bytes), bytes;
  gmlake_desc desc;
  judge_question(gmlake_get_desc(w.lake, &desc));
  if (!r->pool) most = desc.arena_bytes;
  if (r->flags & GMLAKE_NO_GROW || missing > most) return 0;
  bytes = up(missing, view->chunk_bytes);
  if (bytes > most) return 0;
  plan->grow_bytes = bytes;
  w.planned_bytes += bytes;
  return 1;
}

/* Whole chunks, but where the first piece begins and the last one ends. */
static int plan_chunks(const gmlake_view *view, const gmlake_request *r, gmlake_plan *plan) {
  size_t chunk = view->chunk_bytes, have = 0, need, i, parts;
  int is_whole = (r->flags & GMLAKE_EXCLUSIVE) != 0;
  need = up(r->bytes, is_whole ? chunk : GRAIN);
  for (i = 0; i < view->block_count && have < need; i++) {
    uintptr_t home = (uintptr_t)view->blocks[i].home, end = home + view->blocks[i].bytes;
    unsigned how = answer();
    if (plan->piece_count || is_whole || home % r->alignment || how & 4) home = up(home, chunk);
    end = end / chunk * chunk;
    if (end <= home || !(how & 3) || (have && !may_stitch(view, r))) continue;
    plan->pieces[plan->piece_count].home = (void *)home;
    plan->pieces[plan->piece_count++].bytes = end - home;
    have += end - home;
  }
  if (have < need && !may_stitch(view, r)) have = plan->piece_count = 0;
  if (have > need) plan->pieces[plan->piece_count - 1].bytes -= have - need;
  w.planned_bytes = have < need ? have : need;
  if (have < need && !plan_growth(view, r, need - have, plan)) {
    plan->piece_count = w.planned_bytes = 0;
    return 0;
  }
  parts = plan->piece_count + (plan->grow_bytes != 0);
  plan->state = plan->grow_bytes ? 4 : parts > 1 ? 3 : 1;
  w.is_unsure |= parts > 1 && r->pool && gate.hit_kinds & ON_RESERVE;
  return 1;
}

/* Breaks a rule that a piece has to keep; 0: there is none to break. */
static int spoil_piece(const gmlake_request *r, gmlake_plan *plan, unsigned how) {
  gmlake_piece *first = plan->pieces;
  if (!plan->piece_count) return 0;
  switch (how) {
  case 0:
    first->bytes++;
    return 1;
  case 1:
    first->bytes = 0;
    return 1;
  case 2:
    first->home = NULL;
    return 1;
  case 3:
    first->home = w.blocks[w.a % SLOTS].ptr;
    return 1;
  case 4:
    first[plan->piece_count++] = *first;
    plan->state = plan->grow_bytes ? 4 : 3;
    return 1;
  default:
    if (plan->piece_count > 1 || plan->grow_bytes || r->bytes <= GRAIN) return 0;
    first->bytes = GRAIN;
    return 1;
  }
}

/* Makes a plan illegal, whatever it was. */
static void spoil(const gmlake_view *view, const gmlake_request *r, gmlake_plan *plan) {
  size_t parts = plan->piece_count + (plan->grow_bytes != 0);
  const gmlake_piece *first = plan->pieces;
  int is_cut_at_chunk = !parts || ((uintptr_t)first->home + first->bytes) % view->chunk_bytes == 0;
  unsigned how = answer() % 12;
  if (!plan->state) plan->state = 1;
  if (how < 6 && spoil_piece(r, plan, how)) return;
  if (how == 6)
    plan->state = 6;
  else if (how == 7)
    plan->piece_count = plan->piece_capacity + 1;
  else if (how == 8)
    plan->grow_bytes = view->chunk_bytes + GRAIN;
  else if (how == 9)
    plan->piece_count = plan->grow_bytes = plan->window = 0;
  else if (how == 10 && (plan->window || plan->grow_bytes || parts > 1 || !is_cut_at_chunk))
    plan->keeps_former = 1;
  else if (how == 11 && !plan->window)
    plan->pieces = (gmlake_piece *)(void *)&w;
  else
    plan->window = UINT64_MAX;
}

static void choose(void *user, const gmlake_view *view, const gmlake_request *r,
                   gmlake_plan *plan) {
  unsigned how = answer(), kind = how % 8;
  REQUIRE(user == &w && plan->piece_capacity > view->block_count);
  check_request(r);
  check_view(view);
  if (how & 0x80) try_barred();
  w.planned_bytes = 0;
  plan->reason = plan_reason;
  if (kind == 1) plan->state = 5;
  if (kind > 1 && !(kind < 4 && plan_window(view, r, plan)) &&
      !(kind < 6 && plan_piece(view, r, plan)))
    (void)plan_chunks(view, r, plan);
  if (kind != 1 && is_to_be_wrong(how)) spoil(view, r, plan);
}

static size_t evict(void *user, const gmlake_view *view, size_t mapped_bytes, uint64_t *out) {
  size_t count = 0, i;
  unsigned how = answer();
  REQUIRE(user == &w && mapped_bytes && mapped_bytes % view->chunk_bytes == 0);
  if (how & 0x80) try_barred();
  for (i = 0; i < view->window_count; i++)
    if (view->windows[i].is_complete && answer() & 1) out[count++] = view->windows[i].number;
  if (!is_to_be_wrong(how)) return count;
  for (i = 0; i < view->window_count && view->windows[i].is_complete;) i++;
  if (how & 1 && i < view->window_count) {
    out[0] = view->windows[i].number; /* work uses it */
    return count ? count : 1;
  }
  if (how & 2 && count > 1) {
    out[count - 1] = out[0];
    return count;
  }
  if (how & 4 && view->window_count) {
    out[0] = how & 8 ? 0 : UINT64_MAX;
    return count ? count : 1;
  }
  return view->window_count + 1;
}

static int coalesce(void *user, const gmlake_piece *piece) {
  const block *b = block_at(piece->home);
  unsigned how = answer();
  REQUIRE(user == &w && b && b->bytes == piece->bytes);
  if (how & 0x80) try_barred();
  return how & 1;
}

static void open_policy(void) {
  if (!(w.has & HAS_POLICY)) return;
  w.policy.struct_bytes = sizeof w.policy;
  w.policy.user = &w;
  if (w.has & HAS_CHOOSE) w.policy.choose = choose;
  if (w.has & HAS_EVICT) w.policy.evict = evict;
  if (w.has & HAS_COALESCE) w.policy.coalesce = coalesce;
  w.desc.policy = &w.policy;
}

/* ---- An observer ----------------------------------------------------------------------------- */

static void hear_of_attempt(const gmlake_step *e) {
  REQUIRE(e->state >= 1 && e->state <= 5 && (e->state == 5) == !e->address);
  REQUIRE(e->request == ++told.newest && e->asked_bytes);
  if (!e->address) return;
  REQUIRE(!block_at((void *)(uintptr_t)e->address) && e->asked_bytes <= e->bytes);
  told.served = *e;
  told.active_bytes += e->bytes;
}

static void hear_of_free(const gmlake_step *e) {
  const block *b = block_at((void *)(uintptr_t)e->address);
  REQUIRE(b && b->bytes == e->bytes && b->requested == e->asked_bytes && !e->request);
  told.active_bytes -= e->bytes;
}

static void observe(void *user, const gmlake_step *e) {
  REQUIRE(user == &told && e->kind >= GMLAKE_STEP_ALLOC && e->kind <= GMLAKE_STEP_END);
  REQUIRE(!w.is_closing || e->kind == GMLAKE_STEP_WAIT);
  REQUIRE(e->reason && *e->reason && e->bytes % GRAIN == 0);
  told.count[e->kind] += e->kind != GMLAKE_STEP_ALLOC || e->address;
  if (e->kind == GMLAKE_STEP_ALLOC) {
    hear_of_attempt(e);
  } else {
    REQUIRE(!e->state && (!e->request || e->request == told.newest + 1));
    told.driver_ns += e->driver_ns;
  }
  if (e->kind == GMLAKE_STEP_FREE) hear_of_free(e);
  if (e->kind == GMLAKE_STEP_GROW) told.reserved_bytes += e->bytes;
  if (e->kind == GMLAKE_STEP_TRIM) told.reserved_bytes -= e->bytes;
  REQUIRE(e->reserved_bytes == told.reserved_bytes);
  /* Of a buffer it is told before the call returns, and before its own size is known here. */
  REQUIRE(e->kind >= GMLAKE_STEP_BUFFER ||
          e->active_bytes == told.active_bytes + committed_bytes());
}

/* ---- A world and its end --------------------------------------------------------------------- */

static void read_sizes(gmlake_mock_desc *mock_desc) {
  unsigned sizes = fuzz_byte(&w.in), limits = fuzz_byte(&w.in), spaces = fuzz_byte(&w.in);
  gmlake_desc *d = &w.desc;
  size_t chunk, capacity;
  mock_desc->granularity_bytes = w.granularity = (size_t)4096 << (sizes % 3);
  chunk = d->chunk_bytes = mock_desc->granularity_bytes << (sizes / 4 % 3);
  capacity = w.capacity = chunk * (1 + fuzz_byte(&w.in) % 40);
  mock_desc->capacity_bytes = capacity;
  if (limits & 1) d->limit_bytes = chunk * (1 + (limits >> 5) * 3);
  if (limits & 2) d->stitch_bytes_min = chunk * 2;
  if (limits & 4) d->stitched_bytes_max = chunk * 8;
  if (limits & 8) d->driver_free_bytes_min = capacity / 4;
  if (limits & 16) d->cross_stream = GMLAKE_WAIT_FIRST;
  if (spaces & 1) d->arena_bytes = capacity + chunk * (spaces >> 6);
  if (spaces & 2) d->window_bytes = chunk * (1 + (spaces >> 4));
  if (spaces & 4) d->arena_bytes = chunk * (1 + (spaces >> 5));
  if (spaces & 16) d->cross_stream = GMLAKE_WAIT_IF_SOON;
  if (spaces & 8) d->handle_bytes = chunk * (2 + (spaces >> 6));
}

static void open_world(void) {
  unsigned flags = fuzz_byte(&w.in), i;
  gmlake_mock_desc mock_desc;
  memset(&mock_desc, 0, sizeof mock_desc);
  w.has_memory = flags & 1;
  mock_desc.bookkeeping_only = !w.has_memory;
  if (flags & 2) w.desc.flags |= GMLAKE_SINGLE_THREADED;
  if (flags & 4 && w.has_memory) w.desc.flags |= GMLAKE_FILL;
  if (flags & 8) w.desc.flags |= GMLAKE_GUARD;
  if (flags & 16) w.desc.oom.fn = handle_oom;
  if (flags & 32) w.desc.logger.fn = hear;
  read_sizes(&mock_desc);
  if (w.is_extended) w.has = fuzz_byte(&w.in);
  if (w.is_extended && flags & 64) w.desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  open_policy();
  if (w.has & HAS_OBSERVER) w.desc.observer.fn = observe;
  w.desc.observer.user = &told;
  REQUIRE(gmlake_mock_create(&mock_desc, &w.mock) == GMLAKE_OK);
  gate_open(w.mock);
  w.desc.backend = &gate.table;
  w.desc.host.malloc_fn = fuzz_malloc;
  w.desc.host.free_fn = fuzz_free;
  w.streams[1] = (gmlake_stream)(uintptr_t)1;
  for (i = FIRST_OWN; i <= LAST_OWN; i++)
    REQUIRE(gmlake_mock_stream_create(w.mock, &w.streams[i]) == GMLAKE_OK);
  w.streams[AT_NONE] = GMLAKE_STREAM_NONE;
  w.streams[AT_REFUSED] = (gmlake_stream)(uintptr_t)2;
  REQUIRE(gmlake_create(&w.desc, &w.lake) == GMLAKE_OK);
}

static void close_world(unsigned how) {
  gmlake_result result;
  size_t left = 0;
  unsigned i;
  for (i = 0; i < SLOTS; i++) verify(&w.blocks[i]);
  if (how & 1) do_mend();
  for (i = FIRST_OWN; i <= LAST_OWN && how & 2; i++)
    if (w.captured[i]) run_operation(30), end_capture(i);
  w.hits_before = gate.hits;
  w.refused_before = fuzz_host.refused;
  gate.hit_results = gate.hit_kinds = 0;
  for (i = 0; i < SLOTS; i++) left += w.blocks[i].ptr != NULL;
  for (i = 0; i < BUFFERS; i++) {
    left += w.buffers[i].handle != NULL;
    check_buffer(&w.buffers[i]);
  }
  w.is_closing = 1;
  result = gmlake_destroy(w.lake);
  REQUIRE(w.leak_count == (w.desc.logger.fn ? left : 0));
#if defined(FUZZ_TRACE)
  tell_result("destroy", result);
#endif
  w.fatal |= gate.hit_results & BITS_FATAL;
  REQUIRE((1u << result) & (BIT_OK | explained()));
  REQUIRE(was_hit() || result == w.lost || (w.fatal && !w.lost));
  REQUIRE(fuzz_host.bytes == 0);
  gate_require_empty(gate.hit_kinds);
  gmlake_mock_destroy(w.mock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned how, i, operation;
  memset(&w, 0, sizeof w);
  memset(&told, 0, sizeof told);
  memset(&fuzz_host, 0, sizeof fuzz_host);
  w.in.at = data;
  w.in.left = size;
  how = fuzz_byte(&w.in);
  w.is_extended = how >> 5 == 3;
  open_world();
  for (i = 0; i < OPERATIONS_MAX && w.in.left; i++) {
    operation = fuzz_byte(&w.in);
    w.a = fuzz_byte(&w.in);
    w.b = fuzz_byte(&w.in);
    w.c = fuzz_byte(&w.in);
    w.d = fuzz_byte(&w.in);
    w.e = fuzz_byte(&w.in);
    if (w.is_extended) w.answers = (uint32_t)fuzz_byte(&w.in) << 24;
    run_operation(operation);
  }
  close_world(how);
  return 0;
}
