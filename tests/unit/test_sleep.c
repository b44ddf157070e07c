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

/* ---- the backend and the host's memory ------------------------------------------------------ */

/* Or lack an entry. Where it cannot keep, the pool stays awake, as it was. */
CASE(tables_of_version_1_drop_and_do_not_keep) {
  gmlake_backend old;
  gmlake_pool *pool;
  size_t ends[3], i;
  void *block;
  ends[0] = offsetof(gmlake_backend, stream_id);
  ends[1] = offsetof(gmlake_backend, copy);
  ends[2] = offsetof(gmlake_backend, host_free);
  for (i = 0; i < 5; i++) {
    prepare(64);
    old = *mock;
    if (i < 3) old.abi_version = i < 2 ? 1 : 2;
    if (i < 3) old.struct_bytes = ends[i];
    if (i == 3) old.copy = NULL;
    if (i == 4) old.host_alloc = NULL;
    desc.backend = &old;
    open_lake();
    pool = open_pool(0);
    block = take_from(pool, 3 * C / 2, LEGACY);
    fill(block, 3 * C / 2, 3);
    step_error(gmlake_pool_sleep(lake, pool, KEEP, NULL), UNSUPPORTED);
    assert_filled(block, 3 * C / 2, 3);
    drop(take_from(pool, C, LEGACY));
    assert_int_equal(sleep_now(pool, DROP), 3 * C);
    wake_now(pool);
    drop(block);
    step(gmlake_pool_destroy(lake, pool));
    finish();
  }
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

int main(void) { return run_cases("sleep"); }
