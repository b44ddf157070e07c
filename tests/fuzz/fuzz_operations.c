/* Fuzz target: the input is a description and public calls, with faults of the device and of host
   memory between them. After each call: the result is one that the manual allows, gmlake_check and
   the figures agree with the target's own accounts, a live block has its contents. At the end
   nothing is left.

   Input: HEADER_BYTES of description, then records of six bytes: operation and its arguments
   a to e. What is short is filled up with zeros. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fuzz.h"
#include "fuzz_backend.h"

#define GRAIN ((size_t)512)
#define SLOTS 24
#define STREAMS 8 /* the legacy stream twice, four of the mock's, NONE, and one that is refused */
#define FIRST_OWN 2
#define LAST_OWN 5
#define AT_NONE 6
#define AT_REFUSED 7
#define POOLS 3
#define OPERATIONS_MAX 400

#define BIT(name) (1u << GMLAKE_ERROR_##name)
#define BIT_OK (1u << GMLAKE_OK)
#define BITS_FATAL (BIT(DEVICE_LOST) | BIT(SHUTTING_DOWN))
#define BITS_MEMORY (BIT(OUT_OF_DEVICE_MEMORY) | BIT(LIMIT_REACHED))

typedef struct block {
  unsigned char *ptr;   /* NULL: none */
  unsigned char *stale; /* freed last */
  size_t requested, bytes;
  uint64_t id;
  int pool; /* -1: the default one */
} block;

typedef struct pool {
  gmlake_pool *value; /* NULL: none */
  size_t chunk_bytes;
} pool;

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
  uint64_t next_id, tick, clock_ns;
  size_t hits_before, refused_before;
  unsigned fatal;     /* bits of fatal results that were injected */
  gmlake_result lost; /* the lake has answered so: it is for good */
#if defined(FUZZ_TRACE)
  gmlake_result told;
#endif
} w;

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

static uint64_t stamp_of(const block *b, size_t offset) {
  return (b->id << 32 | offset) * 0x9E3779B97F4A7C15u;
}

static void fill(const block *b) {
  size_t offset;
  for (offset = 0; w.has_memory && offset < b->bytes; offset += GRAIN) {
    uint64_t stamp = stamp_of(b, offset);
    memcpy(b->ptr + offset, &stamp, sizeof stamp);
    memcpy(b->ptr + offset + GRAIN - sizeof stamp, &stamp, sizeof stamp);
  }
}

static void verify(const block *b) {
  size_t offset;
  for (offset = 0; w.has_memory && b->ptr && offset < b->bytes; offset += GRAIN) {
    uint64_t stamp = stamp_of(b, offset);
    REQUIRE(!memcmp(b->ptr + offset, &stamp, sizeof stamp));
    REQUIRE(!memcmp(b->ptr + offset + GRAIN - sizeof stamp, &stamp, sizeof stamp));
  }
}

static void check_figures(void) {
  gmlake_stats s;
  size_t i, live = 0, requested = 0, active = 0;
  for (i = 0; i < SLOTS; i++) {
    if (!w.blocks[i].ptr) continue;
    live++;
    requested += w.blocks[i].requested;
    active += w.blocks[i].bytes;
  }
  s.struct_bytes = 0;
  judge_question(gmlake_get_stats(w.lake, &s));
  REQUIRE(s.live_count == live && s.requested_bytes == requested && s.active_bytes == active);
  REQUIRE(s.allocation_count - s.free_count == live);
  REQUIRE(s.reserved_bytes == gate_census().physical_bytes);
  REQUIRE(s.reserved_bytes >= active && s.reserved_bytes <= w.capacity);
  REQUIRE(!w.desc.limit_bytes || s.reserved_bytes <= w.desc.limit_bytes);
  REQUIRE(s.metadata_bytes == fuzz_host.bytes && s.metadata_bytes_peak >= s.metadata_bytes);
  REQUIRE(s.requested_bytes_peak >= requested && s.active_bytes_peak >= active);
  REQUIRE(s.reserved_bytes_peak >= s.reserved_bytes);
  REQUIRE(s.stitched_bytes_peak >= s.stitched_bytes);
  REQUIRE(s.pending_bytes_peak >= s.pending_bytes);
  REQUIRE(gate.hit_kinds || s.quarantined_bytes == 0);
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

static void note_block(block *b, unsigned char *ptr, size_t requested, const pool *from,
                       unsigned flags) {
  gmlake_allocation_info info;
  size_t unit = flags & GMLAKE_EXCLUSIVE ? w.desc.chunk_bytes : GRAIN;
  if (from && flags & GMLAKE_EXCLUSIVE) unit = from->chunk_bytes;
  b->ptr = ptr;
  b->requested = requested;
  b->bytes = (requested + unit - 1) / unit * unit;
  b->id = ++w.next_id;
  b->pool = from ? (int)(from - w.pools) : -1;
  if (w.has_memory && w.desc.flags & GMLAKE_FILL) {
    REQUIRE(ptr[0] == GMLAKE_FILL_NEW && ptr[b->bytes - 1] == GMLAKE_FILL_NEW);
  }
  fill(b);
  judge_question(gmlake_get_allocation(w.lake, ptr, &info));
  REQUIRE(info.bytes == b->bytes && info.requested_bytes == requested && info.flags == flags);
  REQUIRE(info.piece_count >= 1 && (info.piece_count == 1 || !(flags & GMLAKE_NO_STITCH)));
  REQUIRE(info.pool == (from ? from->value : NULL) && info.ptr == (void *)ptr);
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

static void do_budget(void) {
  gmlake_budget budget;
  if (judge(gmlake_get_budget(w.lake, &budget), BIT_OK)) return;
  REQUIRE(budget.total_bytes == w.capacity);
  REQUIRE(budget.driver_free_bytes + budget.reserved_bytes == w.capacity);
  REQUIRE(budget.idle_bytes + budget.pending_bytes <= budget.reserved_bytes);
  REQUIRE(budget.allocatable_bytes <= w.capacity);
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
  if (!p->value) return;
  for (i = 0; i < SLOTS; i++)
    if (w.blocks[i].ptr && w.blocks[i].pool == (int)(p - w.pools)) allowed = BIT(INVALID_ARGUMENT);
  if (is_capturing()) allowed |= BIT(CAPTURING);
  if (!judge(gmlake_pool_destroy(w.lake, p->value), allowed)) p->value = NULL;
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
  gate.kinds = w.a & 1 ? ON_ALL : 1u << (w.a >> 1) % 16;
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

static void (*const operations[])(void) = {
    do_alloc,       do_alloc,        do_alloc,        do_alloc, do_alloc_with, do_alloc_with,
    do_free,        do_free,         do_free,         do_free,  do_free,       do_wrong,
    do_record,      do_record,       do_forget,       do_trim,  do_progress,   do_progress,
    do_budget,      do_questions,    do_pool_create,  do_mend,  do_host_fault, do_device_fault,
    do_mend,        do_pool_destroy, do_device_fault, do_mend,  do_alloc,      do_free,
    do_capture_end, do_capture_begin};

static void run_operation(unsigned number) {
  w.hits_before = gate.hits;
  w.refused_before = fuzz_host.refused;
  gate.hit_results = 0;
  w.handled = 0;
#if defined(FUZZ_TRACE)
  fprintf(stderr, "operation %u: %u %u %u %u %u\n", number % 32, w.a, w.b, w.c, w.d, w.e);
#endif
  operations[number % (sizeof operations / sizeof operations[0])]();
  check_lake();
  check_figures();
  verify(&w.blocks[w.tick++ % SLOTS]);
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

static int handle_oom(void *user, gmlake *lake, const gmlake_error_info *info) {
  block *b = &w.blocks[(w.a + (unsigned)w.handled) % SLOTS];
  void *ptr;
  (void)user;
  REQUIRE(lake == w.lake && ((1u << info->result) & BITS_MEMORY));
  REQUIRE(++w.handled <= 8);
  if (!w.fatal) REQUIRE(gmlake_alloc(lake, GRAIN, NULL, &ptr) == GMLAKE_ERROR_INVALID_ARGUMENT);
  if (b->ptr) free_block(b, w.e % AT_NONE);
  if (w.b & 1) judge(gmlake_trim(lake, 0, NULL), BIT_OK);
  return w.c & 1 || b->stale;
}

static void hear(void *user, int level, const gmlake_error_info *info) {
  gmlake_stats stats;
  (void)user;
  REQUIRE(level >= GMLAKE_LOG_ERROR && level <= GMLAKE_LOG_INFO);
  REQUIRE(memchr(info->text, 0, sizeof info->text));
  stats.struct_bytes = 0;
  if (w.lake) judge_question(gmlake_get_stats(w.lake, &stats));
}

/* ---- A world and its end --------------------------------------------------------------------- */

static void read_sizes(gmlake_mock_desc *mock_desc) {
  unsigned sizes = fuzz_byte(&w.in), limits = fuzz_byte(&w.in), spaces = fuzz_byte(&w.in);
  gmlake_desc *d = &w.desc;
  size_t chunk, capacity;
  mock_desc->granularity_bytes = (size_t)4096 << (sizes % 3);
  chunk = d->chunk_bytes = mock_desc->granularity_bytes << (sizes / 4 % 3);
  capacity = w.capacity = chunk * (1 + fuzz_byte(&w.in) % 40);
  mock_desc->capacity_bytes = capacity;
  if (sizes & 0x40) d->small_bytes_max = (sizes & 0x80) ? 4096 : 65536;
  if (limits & 1) d->limit_bytes = chunk * (1 + (limits >> 5) * 3);
  if (limits & 2) d->stitch_bytes_min = chunk * 2;
  if (limits & 4) d->stitched_bytes_max = chunk * 8;
  if (limits & 8) d->driver_free_bytes_min = capacity / 4;
  if (limits & 16) d->cross_stream = GMLAKE_WAIT_FIRST;
  if (spaces & 1) d->arena_bytes = capacity + chunk * (spaces >> 6);
  if (spaces & 2) d->window_bytes = chunk * (1 + (spaces >> 4));
  if (spaces & 4) d->arena_bytes = chunk * (1 + (spaces >> 5));
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
  unsigned i;
  for (i = 0; i < SLOTS; i++) verify(&w.blocks[i]);
  if (how & 1) do_mend();
  for (i = FIRST_OWN; i <= LAST_OWN && how & 2; i++)
    if (w.captured[i]) run_operation(30), end_capture(i);
  w.hits_before = gate.hits;
  w.refused_before = fuzz_host.refused;
  gate.hit_results = gate.hit_kinds = 0;
  result = gmlake_destroy(w.lake);
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
  memset(&fuzz_host, 0, sizeof fuzz_host);
  w.in.at = data;
  w.in.left = size;
  how = fuzz_byte(&w.in);
  open_world();
  for (i = 0; i < OPERATIONS_MAX && w.in.left; i++) {
    operation = fuzz_byte(&w.in);
    w.a = fuzz_byte(&w.in);
    w.b = fuzz_byte(&w.in);
    w.c = fuzz_byte(&w.in);
    w.d = fuzz_byte(&w.in);
    w.e = fuzz_byte(&w.in);
    run_operation(operation);
  }
  close_world(how);
  return 0;
}
