/* Sleep and wake, of what tests/play/sleep_rows.h and tests/play/fault_rows.h cannot say: other
   tables and hooks, large contents. */
#include "fixture.h"

#define DROP GMLAKE_SLEEP_DROP
#define KEEP GMLAKE_SLEEP_KEEP

static size_t sleep_now(gmlake_pool *pool, gmlake_sleep_mode mode) {
  size_t released = 77;
  step(gmlake_pool_sleep(lake, pool, mode, &released));
  return released;
}

static void wake_now(gmlake_pool *pool) { step(gmlake_pool_wake(lake, pool)); }

static void fill(void *ptr, size_t bytes, int seed) {
  unsigned char *at = (unsigned char *)ptr;
  size_t i;
  for (i = 0; i < bytes; i += 64) at[i] = (unsigned char)(seed + (int)(i / 64));
}

static void assert_filled(const void *ptr, size_t bytes, int seed) {
  const unsigned char *at = (const unsigned char *)ptr;
  size_t i;
  for (i = 0; i < bytes; i += 64) assert_int_equal(at[i], (unsigned char)(seed + (int)(i / 64)));
}

/* A pool with a block of one and a half chunks, and a buffer of 3 pages with a hole in the
   middle. */
static struct full_pool {
  gmlake_pool *pool;
  gmlake_stream stream;
  void *block;
  gmlake_buffer *buffer;
  char *in_buffer;
} full;

static size_t page = C; /* buffers' chunk */

static void fill_pool(int seed) {
  fill(full.block, 3 * C / 2, seed);
  fill(full.in_buffer, page, seed + 20);
  fill(full.in_buffer + 2 * page, page, seed + 21);
}

static void assert_pool(int seed) {
  assert_filled(full.block, 3 * C / 2, seed);
  assert_filled(full.in_buffer, page, seed + 20);
  assert_filled(full.in_buffer + 2 * page, page, seed + 21);
}

static void make_buffer(void) {
  gmlake_buffer_desc wanted = buffer_desc(4 * page);
  gmlake_buffer_info info;
  wanted.pool = full.pool;
  wanted.chunk_bytes = page;
  step(gmlake_buffer_create(lake, &wanted, &full.buffer));
  step(gmlake_buffer_resize(lake, full.buffer, 4 * page, full.stream));
  step(gmlake_buffer_resize(lake, full.buffer, 3 * page, full.stream));
  step(gmlake_buffer_discard(lake, full.buffer, page, page, full.stream));
  assert_ok(gmlake_buffer_get_info(lake, full.buffer, &info));
  full.in_buffer = (char *)info.ptr;
}

static void make_pool(int seed) {
  memset(&full, 0, sizeof(full));
  full.pool = open_pool(0);
  full.stream = open_stream();
  full.block = take_from(full.pool, 3 * C / 2, full.stream);
  make_buffer();
  fill_pool(seed);
}

static void end_pool(void) {
  drop_on(full.block, NONE);
  step(gmlake_buffer_destroy(lake, full.buffer, NONE));
  step(gmlake_pool_destroy(lake, full.pool));
}

static int is_asleep(gmlake_pool *pool) {
  gmlake_alloc_desc wanted = request(C, 0, pool);
  void *ptr;
  gmlake_result result = gmlake_alloc_with(lake, &wanted, NONE, &ptr);
  if (!result) drop_on(ptr, NONE);
  assert_true(!result || result == GMLAKE_ERROR_ASLEEP);
  return result != GMLAKE_OK;
}

/* ---- the backend and the host's memory ------------------------------------------------------ */

CASE(tables_of_version_1_drop_and_do_not_keep) {
  gmlake_backend old;
  size_t ends[3], i;
  ends[0] = offsetof(gmlake_backend, stream_id);
  ends[1] = offsetof(gmlake_backend, copy);
  ends[2] = offsetof(gmlake_backend, host_free);
  for (i = 0; i < 3; i++) {
    prepare(64);
    old = *mock;
    old.abi_version = i < 2 ? 1 : 2;
    old.struct_bytes = ends[i];
    desc.backend = &old;
    open_lake();
    make_pool(3);
    step_error(gmlake_pool_sleep(lake, full.pool, KEEP, NULL), UNSUPPORTED);
    assert_false(is_asleep(full.pool));
    assert_pool(3);
    (void)sleep_now(full.pool, DROP);
    wake_now(full.pool);
    fill_pool(4);
    end_pool();
    finish();
  }
}

/* The copy would lie in the memory that is to be given back. */
CASE(an_integrated_device_keeps_nothing) {
  gmlake_mock_desc device;
  memset(&device, 0, sizeof(device));
  device.capacity_bytes = 64 * C;
  device.granularity_bytes = C;
  device.available_bytes = 48 * C;
  prepare_on(&device);
  open_lake();
  make_pool(3);
  step_error(gmlake_pool_sleep(lake, full.pool, KEEP, NULL), UNSUPPORTED);
  assert_string_equal(last_error().call, "gmlake_pool_sleep");
  assert_non_null(strstr(last_error().text, "but the device's own; use GMLAKE_SLEEP_DROP"));
  assert_pool(3);
  finish();
}

static size_t pieces_left; /* of host memory: no more can be had */

static gmlake_result alloc_piece(void *user, size_t bytes, void **out_host, int *out_code) {
  if (pieces_left-- == 0) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  return mock->host_alloc(user, bytes, out_host, out_code);
}

/* In pieces: all, or none; and more than was kept the time before. */
CASE(large_contents_are_kept) {
  const size_t bytes = ((size_t)150 << 20) + 5 * C / 2;
  gmlake_pool *pool;
  void *head, *block, *more;
  start_hooked(4096);
  hooked.host_alloc = alloc_piece;
  pool = open_pool(0);
  head = take_from(pool, C / 2, LEGACY);
  block = take_from(pool, bytes, LEGACY);
  drop(take_from(pool, C, LEGACY));
  fill(block, bytes, 7);
  fill(head, C / 2, 8);
  pieces_left = 1;
  step_error(gmlake_pool_sleep(lake, pool, KEEP, NULL), OUT_OF_HOST_MEMORY);
  assert_int_equal(census().host_count, 0);
  pieces_left = SIZE_MAX;
  (void)sleep_now(pool, KEEP);
  wake_now(pool);
  more = take_from(pool, 3 * C, LEGACY);
  fill(more, 3 * C, 9);
  (void)sleep_now(pool, KEEP);
  assert_int_equal(census().host_count, 3);
  wake_now(pool);
  assert_filled(more, 3 * C, 9);
  assert_filled(block, bytes, 7);
  assert_filled(head, C / 2, 8);
  finish();
}

/* By what the calls cost on an H200: 100 GiB in blocks, and in a buffer. */
CASE(a_hundred_gib_sleep_and_wake_in_time) {
  gmlake_buffer_desc wanted;
  gmlake_buffer *buffer;
  uint64_t before;
  int i;
  for (i = 0; i < 2; i++) {
    memset(&wanted, 0, sizeof(wanted));
    prepare_books((size_t)140 << 30, 0, GMLAKE_MOCK_COSTS_REPLAYED);
    open_lake();
    wanted.max_bytes = (size_t)100 << 30;
    if (i) {
      assert_ok(gmlake_buffer_create(lake, &wanted, &buffer));
      assert_ok(gmlake_buffer_resize(lake, buffer, wanted.max_bytes, LEGACY));
    } else {
      (void)take(wanted.max_bytes);
    }
    before = census().modelled_ns;
    assert_int_equal(sleep_now(NULL, DROP), wanted.max_bytes);
    wake_now(NULL);
    assert_in_range(census().modelled_ns - before, 0, i ? 5000000000u : 600000000u);
    finish();
  }
}

int main(void) {
  int failed;
  failed = run_cases("sleep");
  page = 2 * C; /* an arena of their own */
  return failed + run_cases("sleep_apart");
}
