/* What the tests of the lake share: one mock, one lake on it, and shorthands whose every step is
   followed by gmlake_check. It includes the implementation, with the mock. */
#if !defined(FIXTURE_H)
#define FIXTURE_H

#if !defined(GMLAKE_IMPLEMENTATION)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#endif
#include "gmlake.h"

#include "cases.h"
#include "host.h"

#define K ((size_t)1 << 10)
#define C (64 * K) /* a chunk, and the granularity of the mock */
#define LEGACY ((gmlake_stream)NULL)
#define NONE GMLAKE_STREAM_NONE

#define assert_ok(call) assert_int_equal(call, GMLAKE_OK)
#define assert_error(call, name) assert_int_equal(call, GMLAKE_ERROR_##name)
#define step(call)                 \
  do {                             \
    assert_ok(call);               \
    assert_ok(gmlake_check(lake)); \
  } while (0)
#define step_error(call, name)     \
  do {                             \
    assert_error(call, name);      \
    assert_ok(gmlake_check(lake)); \
  } while (0)

static gmlake_backend *mock;
static gmlake *lake;
static gmlake_desc desc;

/* ---- A driver with a test's own functions ---------------------------------------------------- */

static gmlake_backend hooked; /* the mock, but for those */

static inline void use_hooks(void) {
  hooked = *mock;
  desc.backend = &hooked;
}

/* ---- A lake on a mock ------------------------------------------------------------------------ */

static int is_apart; /* blocks have chunks of 2 C: buffers then have an arena of their own */

/* A mock and a description in `desc`, to be changed before open_lake. */
static inline void prepare_on(const gmlake_mock_desc *device) {
  memset(&desc, 0, sizeof(desc));
  host_bytes = 0;
  host_fail_in = host_fails_on = 0;
  assert_ok(gmlake_mock_create(device, &mock));
  desc.backend = mock;
  desc.host.malloc_fn = host_malloc;
  desc.host.free_fn = host_free;
}

/* Of a device with no memory behind its addresses; 0: as the mock has it. */
static inline void prepare_books(size_t capacity_bytes, size_t granule, gmlake_mock_costs costs) {
  gmlake_mock_desc device;
  memset(&device, 0, sizeof(device));
  device.capacity_bytes = capacity_bytes;
  device.granularity_bytes = granule;
  device.bookkeeping_only = 1;
  device.costs = costs;
  prepare_on(&device);
}

/* Of so many chunks. */
static inline void prepare(size_t chunks) {
  gmlake_mock_desc device;
  memset(&device, 0, sizeof(device));
  device.capacity_bytes = chunks * C;
  device.granularity_bytes = C;
  prepare_on(&device);
  desc.chunk_bytes = is_apart ? 2 * C : C;
}

static inline void open_lake(void) {
  lake = NULL;
  assert_ok(gmlake_create(&desc, &lake));
  assert_ok(gmlake_check(lake));
}

static inline void start(size_t chunks) {
  prepare(chunks);
  open_lake();
}

static inline void start_hooked(size_t chunks) {
  prepare(chunks);
  use_hooks();
  open_lake();
}

static inline gmlake_mock_census census(void) {
  gmlake_mock_census now;
  gmlake_mock_get_census(mock, &now);
  return now;
}

/* Nothing of the lake's is left on the mock or on the host; the mock goes. */
static inline void close_mock(void) {
  gmlake_mock_census now = census();
  assert_int_equal(now.handle_count, 0);
  assert_int_equal(now.mapping_count, 0);
  assert_int_equal(now.reservation_count, 0);
  assert_int_equal(now.physical_bytes, 0);
  assert_int_equal(now.reserved_address_bytes, 0);
  assert_int_equal(now.event_count, 0);
  assert_int_equal(now.host_count, 0);
  assert_int_equal(host_bytes, 0);
  gmlake_mock_destroy(mock);
  mock = NULL;
}

static inline void finish(void) {
  assert_ok(gmlake_check(lake));
  assert_ok(gmlake_destroy(lake));
  close_mock();
}

static inline gmlake_stats stats(void) {
  gmlake_stats now;
  assert_ok(gmlake_get_stats(lake, &now));
  return now;
}

static inline gmlake_error_info last_error(void) {
  gmlake_error_info info;
  assert_ok(gmlake_get_last_error(lake, &info));
  return info;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static inline gmlake_result try_on(size_t bytes, gmlake_stream stream) {
  void *ptr = &ptr;
  gmlake_result result = gmlake_alloc(lake, bytes, stream, &ptr);
  assert_ok(gmlake_check(lake));
  if (result) assert_null(ptr);
  return result;
}

static inline void *take_on(size_t bytes, gmlake_stream stream) {
  void *ptr = NULL;
  step(gmlake_alloc(lake, bytes, stream, &ptr));
  assert_non_null(ptr);
  assert_int_equal((uintptr_t)ptr % 512, 0);
  return ptr;
}

static inline void drop_on(void *ptr, gmlake_stream stream) {
  step(gmlake_free(lake, ptr, stream));
}

static inline void *take(size_t bytes) { return take_on(bytes, LEGACY); }
static inline void drop(void *ptr) { drop_on(ptr, LEGACY); }

/* Frees the blocks, in this order. */
#define drop_these(...) drop_until_null(__VA_ARGS__, (void *)NULL)
static inline void drop_until_null(void *ptr, ...) {
  va_list rest;
  va_start(rest, ptr);
  for (; ptr; ptr = va_arg(rest, void *)) drop(ptr);
  va_end(rest);
}

static inline gmlake_alloc_desc request(size_t bytes, unsigned flags, gmlake_pool *pool) {
  gmlake_alloc_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = bytes;
  wanted.flags = flags;
  wanted.pool = pool;
  return wanted;
}

static inline void *take_with(const gmlake_alloc_desc *wanted, gmlake_stream stream) {
  void *ptr = NULL;
  step(gmlake_alloc_with(lake, wanted, stream, &ptr));
  assert_non_null(ptr);
  return ptr;
}

static inline void *take_flags(size_t bytes, unsigned flags) {
  gmlake_alloc_desc wanted = request(bytes, flags, NULL);
  return take_with(&wanted, LEGACY);
}

static inline void *take_from(gmlake_pool *pool, size_t bytes, gmlake_stream stream) {
  gmlake_alloc_desc wanted = request(bytes, 0, pool);
  return take_with(&wanted, stream);
}

/* So many clean chunks side by side, from the arena's base on where the lake is new. */
static inline void flood(size_t chunks) { drop_on(take_on(chunks * C, NONE), NONE); }

/* Fills a new lake with `count` live blocks of one chunk each, in order of address. */
static inline void lay(void **blocks, size_t count) {
  size_t i;
  flood(count);
  for (i = 0; i < count; i++) {
    blocks[i] = take(C);
    if (i) assert_ptr_equal(blocks[i], (char *)blocks[0] + i * C);
  }
}

static inline size_t piece_count(const void *ptr) {
  size_t count = 0;
  assert_ok(gmlake_get_pieces(lake, ptr, NULL, 0, &count));
  return count;
}

static inline gmlake_piece piece(const void *ptr, size_t number) {
  gmlake_piece pieces[16];
  size_t count = 0;
  assert_ok(gmlake_get_pieces(lake, ptr, pieces, 16, &count));
  assert_true(number < count && count <= 16);
  return pieces[number];
}

static inline gmlake_pool *open_pool(size_t limit_bytes) {
  gmlake_pool_desc pool_desc;
  gmlake_pool *pool = NULL;
  memset(&pool_desc, 0, sizeof(pool_desc));
  pool_desc.limit_bytes = limit_bytes;
  step(gmlake_pool_create(lake, &pool_desc, &pool));
  assert_non_null(pool);
  return pool;
}

static inline gmlake_buffer_desc buffer_desc(size_t max_bytes) {
  gmlake_buffer_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = max_bytes;
  wanted.chunk_bytes = C;
  return wanted;
}

static inline gmlake_buffer *open_buffer(size_t max_chunks) {
  gmlake_buffer_desc wanted = buffer_desc(max_chunks * C);
  gmlake_buffer *buffer = NULL;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_non_null(buffer);
  return buffer;
}

static inline gmlake_stream open_stream(void) {
  gmlake_stream stream = NULL;
  assert_ok(gmlake_mock_stream_create(mock, &stream));
  return stream;
}

static inline size_t trim_to(size_t keep_bytes) {
  size_t released = (size_t)-1;
  step(gmlake_trim(lake, keep_bytes, &released));
  return released;
}

#endif /* FIXTURE_H */
