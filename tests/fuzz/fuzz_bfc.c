/* Fuzz target: the input is a description of gmlake_bfc and calls of it, with device memory and
   host memory refused between them. After each call gmlake_bfc_check holds, the figures agree with
   the target's own accounts, live blocks lie in segments and do not overlap. At the end nothing is
   left. Device memory is made-up addresses, each segment right behind the one before.

   Input: a description, then records of four bytes: operation and its arguments a to c. What is
   short is filled up with zeros. */
#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#include "fuzz.h"

#define SLOTS 32
#define OPERATIONS_MAX 400
#define SEGMENTS 512
#define DEVICE_BASE ((uintptr_t)1 << 32)
#define DEVICE_BYTES ((size_t)1 << 42)

typedef struct block {
  uintptr_t ptr; /* 0: none */
  uintptr_t stale;
  size_t requested;
} block;

static struct world {
  fuzz_input in;
  unsigned a, b, c;
  gmlake_bfc *bfc;
  gmlake_bfc_desc desc;
  size_t round;    /* of the description, its default filled in */
  int is_ordinary; /* torch's numbers: no sum comes near 64 bits */
  block blocks[SLOTS];
  struct {
    uintptr_t ptr;
    size_t bytes;
  } segments[SEGMENTS];
  size_t device_bytes, segment_count, refused;
  uintptr_t device_end;
  unsigned refuse_in; /* 1: the next segment is refused; 0: none is */
  int refuses_on;
} w;

/* ---- The device ------------------------------------------------------------------------------ */

static void *take_segment(void *user, size_t bytes) {
  size_t i = 0;
  REQUIRE(user == &w && bytes && bytes % w.round == 0);
  if (w.refuse_in && !--w.refuse_in) {
    w.refuse_in = (unsigned)w.refuses_on;
    w.refused++;
    return NULL;
  }
  while (i < SEGMENTS && w.segments[i].ptr) i++;
  if (bytes > DEVICE_BYTES - w.device_end || i == SEGMENTS) {
    w.refused++;
    return NULL;
  }
  w.segments[i].ptr = DEVICE_BASE + w.device_end;
  w.segments[i].bytes = bytes;
  w.device_end += bytes;
  w.device_bytes += bytes;
  w.segment_count++;
  return (void *)w.segments[i].ptr;
}

static void give_segment(void *user, void *segment, size_t bytes) {
  size_t i = 0, n;
  REQUIRE(user == &w);
  while (i < SEGMENTS && w.segments[i].ptr != (uintptr_t)segment) i++;
  REQUIRE(i < SEGMENTS && w.segments[i].bytes == bytes);
  for (n = 0; n < SLOTS && w.bfc; n++) {
    const block *b = &w.blocks[n];
    REQUIRE(!b->ptr || b->ptr - w.segments[i].ptr >= bytes);
  }
  w.segments[i].ptr = 0;
  w.device_bytes -= bytes;
  w.segment_count--;
}

/* ---- Accounts -------------------------------------------------------------------------------- */

static void check_figures(void) {
  gmlake_bfc_stats s;
  size_t i, live = 0, requested = 0;
  for (i = 0; i < SLOTS; i++) {
    live += w.blocks[i].ptr != 0;
    requested += w.blocks[i].ptr ? w.blocks[i].requested : 0;
  }
  s.struct_bytes = 0;
  REQUIRE(gmlake_bfc_check(w.bfc) == GMLAKE_BFC_OK);
  REQUIRE(gmlake_bfc_get_stats(w.bfc, &s) == GMLAKE_BFC_OK);
  REQUIRE(s.live_count == live && s.requested_bytes == requested);
  REQUIRE(s.active_bytes >= requested && s.active_bytes <= s.reserved_bytes);
  REQUIRE(s.reserved_bytes == w.device_bytes && s.segment_count == w.segment_count);
  REQUIRE(s.segment_alloc_count - s.segment_free_count == s.segment_count);
  REQUIRE(s.allocation_count - s.free_count == live);
  REQUIRE(!w.desc.limit_bytes || s.reserved_bytes <= w.desc.limit_bytes);
  REQUIRE(s.metadata_bytes == fuzz_host.bytes && s.metadata_bytes_peak >= s.metadata_bytes);
  REQUIRE(s.reserved_bytes_peak >= s.reserved_bytes && s.active_bytes_peak >= s.active_bytes);
}

/* It lies in a segment, and no other live block in it. */
static void check_place(const block *b) {
  size_t i = 0;
  while (i < SEGMENTS && (!w.segments[i].ptr || b->ptr - w.segments[i].ptr >= w.segments[i].bytes))
    i++;
  REQUIRE(i < SEGMENTS && w.segments[i].bytes - (b->ptr - w.segments[i].ptr) >= b->requested);
  for (i = 0; i < SLOTS; i++) {
    const block *other = &w.blocks[i];
    if (!other->ptr || other == b) continue;
    REQUIRE(b->ptr + b->requested <= other->ptr || other->ptr + other->requested <= b->ptr);
  }
}

/* ---- Operations ------------------------------------------------------------------------------ */

static size_t size_of(unsigned pick, unsigned twist) {
  static const size_t units[8] = {1, 512, 4096, 65536, 1 << 20, 2 << 20, 5 << 20, 100000};
  size_t bytes = units[pick & 7] * (pick >> 3);
  if (twist >= 0xFC) return SIZE_MAX - (size_t)pick * (twist & 3);
  if (twist % 4 == 2) bytes++;
  if (twist % 4 == 3) bytes -= bytes != 0;
  return bytes;
}

static void do_alloc(void) {
  block *b = &w.blocks[w.a % SLOTS];
  size_t bytes = size_of(w.b, w.c), refused = w.refused, host_refused = fuzz_host.refused;
  void *ptr = &ptr;
  gmlake_bfc_result result;
  if (b->ptr) return;
  result = gmlake_bfc_alloc(w.bfc, bytes, (void *)(uintptr_t)(w.c >> 2 & 3), &ptr);
  if (result || !bytes) {
    REQUIRE(!ptr && (!result || bytes));
    if (result == GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY) REQUIRE(fuzz_host.refused > host_refused);
    if (result == GMLAKE_BFC_ERROR_LIMIT_REACHED) REQUIRE(w.desc.limit_bytes);
    if (result == GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY)
      REQUIRE(w.refused > refused || bytes > DEVICE_BYTES || !w.is_ordinary);
    REQUIRE(!result || result == GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY ||
            result == GMLAKE_BFC_ERROR_LIMIT_REACHED ||
            result == GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY);
    return;
  }
  REQUIRE(ptr);
  b->ptr = (uintptr_t)ptr;
  b->requested = bytes;
  check_place(b);
}

static int is_live(uintptr_t ptr) {
  size_t i;
  for (i = 0; i < SLOTS; i++)
    if (w.blocks[i].ptr == ptr) return 1;
  return 0;
}

static void try_wrong(uintptr_t ptr) {
  gmlake_bfc_result result;
  if (!ptr || is_live(ptr)) return;
  result = gmlake_bfc_free(w.bfc, (void *)ptr);
  REQUIRE(result == GMLAKE_BFC_ERROR_UNKNOWN_POINTER || result == GMLAKE_BFC_ERROR_DOUBLE_FREE);
}

static void do_free(void) {
  block *b = &w.blocks[w.a % SLOTS];
  if (!b->ptr) {
    try_wrong(b->stale);
    return;
  }
  b->stale = b->ptr;
  b->ptr = 0; /* before: give_segment looks */
  REQUIRE(gmlake_bfc_free(w.bfc, (void *)b->stale) == GMLAKE_BFC_OK);
}

static void do_wrong(void) {
  const block *b = &w.blocks[w.a % SLOTS];
  uintptr_t ptr = b->ptr ? b->ptr : b->stale;
  if (!ptr) ptr = DEVICE_BASE;
  if (w.b & 1)
    try_wrong(ptr + 1 + w.c);
  else
    try_wrong(ptr + w.round * (w.b >> 1) - w.round * (w.c & 63));
}

static void do_trim(void) {
  size_t before = w.device_bytes, released = 1;
  REQUIRE(gmlake_bfc_trim(w.bfc, w.a & 1 ? &released : NULL) == GMLAKE_BFC_OK);
  REQUIRE(!(w.a & 1) || released == before - w.device_bytes);
}

static void do_refuse(void) {
  w.refuse_in = w.a % 8 + 1;
  w.refuses_on = (int)(w.b & 1);
}

static void do_host_fault(void) {
  fuzz_host.fail_in = w.a % 8 + 1;
  fuzz_host.stays = (int)(w.b & 1);
}

static void do_mend(void) {
  w.refuse_in = 0;
  fuzz_host.fail_in = 0;
}

static void (*const operations[16])(void) = {
    do_alloc, do_alloc, do_alloc, do_alloc, do_alloc, do_free, do_free,   do_free,
    do_free,  do_wrong, do_trim,  do_mend,  do_mend,  do_mend, do_refuse, do_host_fault};

/* ---- The target ------------------------------------------------------------------------------ */

/* Torch's rules, or any numbers, most of which are refused. */
static void read_desc(void) {
  unsigned flags = fuzz_byte(&w.in), i;
  size_t *fields[9];
  fields[0] = &w.desc.limit_bytes;
  fields[1] = &w.desc.round_bytes;
  fields[2] = &w.desc.small_bytes_max;
  fields[3] = &w.desc.small_segment_bytes;
  fields[4] = &w.desc.large_segment_bytes;
  fields[5] = &w.desc.large_request_min;
  fields[6] = &w.desc.large_round_bytes;
  fields[7] = &w.desc.small_remainder_min;
  fields[8] = &w.desc.large_remainder_min;
  w.is_ordinary = !(flags & 1);
  for (i = 0; i < 9 && flags & 1; i++) *fields[i] = (size_t)fuzz_value(&w.in);
  if (flags & 2) w.desc.limit_bytes = (size_t)(flags >> 4) << 21;
  if (flags & 4) w.desc.flags = GMLAKE_BFC_SINGLE_THREADED;
  if (flags & 8) fuzz_host.fail_in = 1 + (flags >> 4);
  w.desc.segment_alloc = take_segment;
  w.desc.segment_free = give_segment;
  w.desc.user = &w;
  w.desc.malloc_fn = fuzz_malloc;
  w.desc.free_fn = fuzz_free;
  w.round = w.desc.round_bytes ? w.desc.round_bytes : 512;
}

static int open_world(void) {
  gmlake_bfc_result result;
  read_desc();
  result = gmlake_bfc_create(&w.desc, &w.bfc);
  if (!result) return 1;
  REQUIRE(!w.bfc && !fuzz_host.bytes);
  REQUIRE(result == GMLAKE_BFC_ERROR_INVALID_ARGUMENT || fuzz_host.refused);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  gmlake_bfc *bfc;
  unsigned i, operation;
  memset(&w, 0, sizeof w);
  memset(&fuzz_host, 0, sizeof fuzz_host);
  w.in.at = data;
  w.in.left = size;
  if (!open_world()) return 0;
  for (i = 0; i < OPERATIONS_MAX && w.in.left; i++) {
    operation = fuzz_byte(&w.in);
    w.a = fuzz_byte(&w.in);
    w.b = fuzz_byte(&w.in);
    w.c = fuzz_byte(&w.in);
    operations[operation % 16]();
    check_figures();
  }
  bfc = w.bfc;
  w.bfc = NULL; /* destroy gives live blocks back too */
  REQUIRE(gmlake_bfc_destroy(bfc) == GMLAKE_BFC_OK);
  REQUIRE(!w.device_bytes && !w.segment_count && !fuzz_host.bytes);
  return 0;
}
