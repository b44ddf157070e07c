/* Fuzz target: descriptions with any values in them, of the mock, the device, the lake, a pool and
   a request. What is made works for a few calls; what is refused is refused with a result of its
   own, and nothing is left of it.

   Input: for each description a mask of the fields that are set, then their values. What is short
   is filled up with zeros. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fuzz.h"

#define BIT(name) (1u << GMLAKE_ERROR_##name)
#define BIT_OK (1u << GMLAKE_OK)
#define PEERS 4
#define CHUNKS_MAX 2000 /* larger requests take too long */
#define FILLED_MAX ((size_t)1 << 24)

static gmlake_backend *mock,
    table; /* the lake's: the mock's, but for what the device is said to be */

static struct world {
  fuzz_input in;
  gmlake_device_properties device;
  unsigned device_fields; /* which of the mock's properties are replaced */
  gmlake_desc desc, full;
  int peers[PEERS];
  gmlake *lake;
  size_t pool_chunk;
} w;

static gmlake_result lie(void *user, gmlake_device_properties *out, int *code) {
  gmlake_result result = mock->get_properties(user, out, code);
  if (w.device_fields & 1) out->device_bytes = w.device.device_bytes;
  if (w.device_fields & 2) out->granularity_bytes = w.device.granularity_bytes;
  if (w.device_fields & 4) out->handle_types = w.device.handle_types;
  if (w.device_fields & 8) out->is_host_memory = 0;
  return result;
}

static gmlake_mock_census census(void) {
  gmlake_mock_census now;
  gmlake_mock_get_census(mock, &now);
  return now;
}

static void hear(void *user, int level, const gmlake_error_info *info) {
  (void)user;
  REQUIRE(level == GMLAKE_LOG_WARNING || level == GMLAKE_LOG_ERROR);
  REQUIRE(memchr(info->text, 0, sizeof info->text));
}

static void set_size(unsigned mask, unsigned bit, size_t *field) {
  if (mask >> bit & 1) *field = (size_t)fuzz_value(&w.in);
}

/* ---- The lake -------------------------------------------------------------------------------- */

static void read_callbacks(unsigned more) {
  w.desc.host.malloc_fn = more & 16 ? NULL : fuzz_malloc;
  w.desc.host.free_fn = more & 32 ? NULL : fuzz_free;
  if (more & 64) w.desc.logger.fn = hear;
}

static void read_desc(void) {
  unsigned mask = fuzz_byte(&w.in), more = fuzz_byte(&w.in), i;
  gmlake_desc *d = &w.desc;
  set_size(mask, 0, &d->chunk_bytes);
  set_size(mask, 1, &d->stitch_bytes_min);
  set_size(mask, 2, &d->stitched_bytes_max);
  set_size(mask, 4, &d->limit_bytes);
  set_size(mask, 5, &d->driver_free_bytes_min);
  set_size(mask, 6, &d->arena_bytes);
  set_size(mask, 7, &d->window_bytes);
  if (more & 1) d->flags = fuzz_byte(&w.in);
  if (more & 2) d->cross_stream = (gmlake_cross_stream)(fuzz_byte(&w.in) & 3);
  if (more & 4) d->handle_types = fuzz_byte(&w.in) & 31;
  if (more & 8) {
    d->peer_count = fuzz_byte(&w.in) % (PEERS + 1);
    d->peer_devices = fuzz_byte(&w.in) & 1 ? NULL : w.peers;
    for (i = 0; i < PEERS; i++) w.peers[i] = (int)(signed char)fuzz_byte(&w.in);
  }
  if (more & 128) d->device = (int)fuzz_value(&w.in);
  read_callbacks(more);
}

static void read_table(void) {
  unsigned pick = fuzz_byte(&w.in);
  table.get_properties = lie;
  if (pick == 1) table.struct_bytes = (size_t)fuzz_value(&w.in);
  if (pick == 2) table.abi_version = fuzz_byte(&w.in);
  w.device_fields = fuzz_byte(&w.in) >> 4; /* none as a rule: the upper half of a byte */
  set_size(w.device_fields, 0, &w.device.device_bytes);
  set_size(w.device_fields, 1, &w.device.granularity_bytes);
  if (w.device_fields & 4) w.device.handle_types = fuzz_byte(&w.in);
}

static int open_mock(void) {
  unsigned mask = fuzz_byte(&w.in);
  gmlake_mock_desc desc;
  gmlake_result result;
  mock = NULL;
  memset(&desc, 0, sizeof desc);
  set_size(mask, 0, &desc.capacity_bytes);
  set_size(mask, 1, &desc.granularity_bytes);
  desc.bookkeeping_only = (mask & 4) == 0;
  result = gmlake_mock_create(&desc, &mock);
  REQUIRE((1u << result) & (BIT_OK | BIT(INVALID_ARGUMENT) | BIT(OUT_OF_HOST_MEMORY)));
  REQUIRE(!result == (mock != NULL));
  if (result) return 0;
  table = *mock;
  return 1;
}

/* Results that a description, or a device that lies, explains. */
static gmlake_result create(void) {
  const unsigned allowed = BIT_OK | BIT(INVALID_ARGUMENT) | BIT(UNSUPPORTED) |
                           BIT(OUT_OF_DEVICE_MEMORY) | BIT(OUT_OF_HOST_MEMORY) | BIT(DRIVER);
  gmlake_result result;
  w.desc.backend = &table;
  result = gmlake_create(&w.desc, &w.lake);
  REQUIRE((1u << result) & allowed);
  REQUIRE(!result == (w.lake != NULL));
  REQUIRE(w.device_fields || result != GMLAKE_ERROR_DRIVER);
  return result;
}

static void check_full(void) {
  gmlake_desc *d = &w.full;
  REQUIRE(gmlake_get_desc(w.lake, d) == GMLAKE_OK);
  REQUIRE(d->chunk_bytes && !(d->chunk_bytes & (d->chunk_bytes - 1)));
  REQUIRE(!w.desc.chunk_bytes || d->chunk_bytes == w.desc.chunk_bytes);
  REQUIRE(d->stitched_bytes_max && d->arena_bytes >= d->chunk_bytes);
  REQUIRE(d->limit_bytes == w.desc.limit_bytes && d->flags == w.desc.flags);
}

static void check_lake(void) {
  gmlake_error_info info;
  gmlake_stats stats;
  if (gmlake_check(w.lake)) {
    (void)gmlake_get_last_error(w.lake, &info);
    fprintf(stderr, "%s\n", info.text);
    REQUIRE(info.result != GMLAKE_ERROR_CORRUPT);
  }
  stats.struct_bytes = 0;
  REQUIRE(gmlake_get_stats(w.lake, &stats) == GMLAKE_OK);
  REQUIRE(stats.reserved_bytes == census().physical_bytes);
  REQUIRE(!w.desc.limit_bytes || stats.reserved_bytes <= w.desc.limit_bytes);
  REQUIRE(w.desc.host.malloc_fn == NULL || stats.metadata_bytes == fuzz_host.bytes);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static gmlake_pool *read_pool(void) {
  unsigned mask = fuzz_byte(&w.in);
  gmlake_pool_desc desc;
  gmlake_pool *pool = NULL;
  gmlake_result result;
  if (!(mask & 1)) return NULL;
  memset(&desc, 0, sizeof desc);
  set_size(mask, 1, &desc.chunk_bytes);
  set_size(mask, 2, &desc.limit_bytes);
  result = gmlake_pool_create(w.lake, mask & 8 ? NULL : &desc, &pool);
  REQUIRE(!result == (pool != NULL));
  w.pool_chunk = !(mask & 8) && desc.chunk_bytes ? desc.chunk_bytes : w.full.chunk_bytes;
  check_lake();
  return pool;
}

static void read_request(gmlake_alloc_desc *wanted, gmlake_pool *pool) {
  unsigned mask = fuzz_byte(&w.in);
  memset(wanted, 0, sizeof *wanted);
  wanted->bytes = (size_t)fuzz_value(&w.in);
  set_size(mask, 0, &wanted->alignment);
  if (mask & 2) wanted->flags = fuzz_byte(&w.in);
  if (mask & 4) wanted->pool = pool;
  if (mask & 8) wanted->user_data = 1;
  if (mask & 16) wanted->bytes = w.full.chunk_bytes * (mask >> 5);
}

/* Small enough, or larger than any limit of an arena. */
static int is_quick(const gmlake_alloc_desc *wanted) {
  size_t chunk = wanted->pool ? w.pool_chunk : w.full.chunk_bytes;
  if (w.full.flags & GMLAKE_FILL && (wanted->bytes | chunk) > FILLED_MAX) return 0;
  return wanted->bytes / chunk <= CHUNKS_MAX || wanted->bytes >= (size_t)1 << 41;
}

static void check_request(const gmlake_alloc_desc *wanted, gmlake_result result, void *ptr) {
  gmlake_allocation_info info;
  REQUIRE((result == GMLAKE_OK && wanted->bytes) == (ptr != NULL));
  REQUIRE(result != GMLAKE_ERROR_UNKNOWN_POINTER && result != GMLAKE_ERROR_DOUBLE_FREE);
  if (!ptr) return;
  REQUIRE(!((uintptr_t)ptr % (wanted->alignment ? wanted->alignment : 512)));
  REQUIRE(gmlake_get_allocation(w.lake, ptr, &info) == GMLAKE_OK);
  REQUIRE(info.requested_bytes == wanted->bytes && info.bytes >= wanted->bytes);
  REQUIRE(info.flags ==
          (wanted->flags & ~GMLAKE_TRANSIENT)); /* no pool is lent: nothing borrowed */
  REQUIRE(info.user_data == wanted->user_data);
}

static void use_lake(void) {
  gmlake_pool *pool = read_pool();
  gmlake_alloc_desc wanted;
  gmlake_result result;
  void *ptrs[8];
  size_t i, released;
  for (i = 0; i < 8; i++) {
    ptrs[i] = NULL;
    read_request(&wanted, pool);
    if (!is_quick(&wanted)) continue;
    result = gmlake_alloc_with(w.lake, &wanted, NULL, &ptrs[i]);
    check_request(&wanted, result, ptrs[i]);
    check_lake();
    if (i % 3 != 2) continue;
    REQUIRE(gmlake_free(w.lake, ptrs[i - 1], NULL) == GMLAKE_OK);
    ptrs[i - 1] = NULL;
    check_lake();
  }
  for (i = 0; i < 8; i += 2) REQUIRE(gmlake_free(w.lake, ptrs[i], NULL) == GMLAKE_OK);
  (void)gmlake_trim(w.lake, (size_t)fuzz_value(&w.in), &released);
  check_lake();
}

/* ---- The target ------------------------------------------------------------------------------ */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  gmlake_mock_census left;
  gmlake_result result;
  memset(&w, 0, sizeof w);
  memset(&fuzz_host, 0, sizeof fuzz_host);
  w.in.at = data;
  w.in.left = size;
  if (!open_mock()) return 0;
  read_table();
  read_desc();
  if (!create()) {
    check_full();
    check_lake();
    use_lake();
    result = gmlake_destroy(w.lake);
    REQUIRE(result == GMLAKE_OK || w.device_fields);
  }
  REQUIRE(fuzz_host.bytes == 0);
  left = census();
  REQUIRE(!left.handle_count && !left.mapping_count && !left.reservation_count &&
          !left.physical_bytes && !left.event_count);
  gmlake_mock_destroy(mock);
  return 0;
}
