/* The questions of what lies where, of what no row of tests/play/question_rows.h can say. */
#include "fixture.h"

#include "judge_map.h"

static void judge(gmlake_pool *pool) {
  const char *wrong = map_wrong(lake, &pool, 1);
  if (wrong) fail_msg("%s", wrong);
}

static gmlake_map_entry found(const void *address) {
  gmlake_map_entry info;
  memset(&info, 0x5A, sizeof(info));
  step(gmlake_find(lake, address, &info));
  return info;
}

static void assert_found(const void *address, gmlake_kind kind, gmlake_state state, const void *ptr,
                         size_t bytes) {
  const gmlake_map_entry info = found(address);
  assert_int_equal(info.kind, kind);
  assert_int_equal(info.state, state);
  assert_int_equal(info.address, (uintptr_t)ptr);
  assert_int_equal(info.bytes, bytes);
}

static void assert_nothing_at(const void *address) {
  gmlake_map_entry info;
  char text[64];
  step_error(gmlake_find(lake, address, &info), UNKNOWN_POINTER);
  (void)snprintf(text, sizeof(text), "address is 0x%llx: no memory of this lake",
                 (unsigned long long)(uintptr_t)address);
  assert_non_null(strstr(last_error().text, text));
  assert_string_equal(last_error().call, "gmlake_find");
}

CASE(buffers_are_found_up_to_where_they_may_grow) {
  gmlake_buffer_desc wanted = buffer_desc(4 * C - 1);
  gmlake_buffer_info info;
  gmlake_buffer *buffer, *second = NULL;
  char *p;
  prepare(16);
  open_lake();
  wanted.label = "keys";
  wanted.user_data = 7;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  step(gmlake_buffer_create(lake, &wanted, &second));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  p = (char *)info.ptr;
  assert_int_equal((uintptr_t)p % C, 0);
  assert_int_equal(info.bytes + info.committed_bytes + stats().reserved_bytes, 0);
  assert_int_equal(info.max_bytes, 4 * C - 1);
  assert_int_equal(info.chunk_bytes, C);
  assert_int_equal(info.user_data, 7);
  assert_string_equal(info.label, "keys");
  assert_int_equal(stats().buffer_count, 2);
  assert_found(p, GMLAKE_KIND_BUFFER, GMLAKE_STATE_LIVE, p, 0);
  judge(NULL);
  step(gmlake_buffer_resize(lake, buffer, C + 1, LEGACY));
  assert_found(p + 2 * C - 1, GMLAKE_KIND_BUFFER, GMLAKE_STATE_LIVE, p, 2 * C);
  assert_found(p + 4 * C - 1, GMLAKE_KIND_BUFFER, GMLAKE_STATE_LIVE, p, 2 * C);
  assert_int_equal(found(p + C).requested_bytes, C + 1);
  assert_int_equal(found(p + C).user_data, 7);
  assert_string_equal(found(p + C).label, "keys");
  step(gmlake_buffer_resize(lake, second, 3 * C, LEGACY));
  judge(NULL);
  step(gmlake_buffer_resize(lake, second, 0, LEGACY));
  step(gmlake_buffer_destroy(lake, buffer, LEGACY));
  assert_nothing_at(p);
  judge(NULL);
  finish();
}

/* ---- The map --------------------------------------------------------------------------------- */

/* The entry of that kind at that address. */
static const gmlake_map_entry *entry_at(const gmlake_map_entry *map, size_t count, gmlake_kind kind,
                                        const void *address) {
  size_t i = 0;
  while (i < count && (map[i].kind != kind || map[i].address != (uintptr_t)address)) i++;
  assert_true(i < count);
  return &map[i];
}

CASE(a_map_tells_arenas_and_pools) {
  const gmlake_map_entry *in, *out;
  gmlake_map_entry map[64];
  gmlake_pool_desc desc = {0};
  gmlake_pool *pool;
  size_t count;
  void *p, *q;
  start(32);
  desc.limit_bytes = 4 * C;
  desc.label = "tenant";
  assert_ok(gmlake_pool_create(lake, &desc, &pool));
  p = take(512);
  q = take_from(pool, 512, LEGACY);
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  out = entry_at(map, count, GMLAKE_KIND_BLOCK, p);
  in = entry_at(map, count, GMLAKE_KIND_BLOCK, q);
  assert_string_equal(in->pool_label, "tenant");
  assert_int_equal(in->pool_limit_bytes, 4 * C);
  assert_null(out->pool_label);
  assert_int_equal(out->pool_limit_bytes, 0);
  assert_int_not_equal(in->arena, out->arena);
  assert_int_equal(entry_at(map, count, GMLAKE_KIND_CHUNK, q)->arena, in->arena);
  finish();
}

static int refuses_unmap, refuses_release; /* so many times from now on */

static gmlake_result unmap_or_not(void *user, uint64_t address, size_t bytes, int *out_code) {
  if (!refuses_unmap) return mock->unmap(user, address, bytes, out_code);
  refuses_unmap--;
  return GMLAKE_ERROR_DRIVER;
}

static gmlake_result release_or_not(void *user, uint64_t handle, int *out_code) {
  return refuses_release ? GMLAKE_ERROR_DRIVER : mock->release(user, handle, out_code);
}

/* Chunks and windows that the driver refuses to take back stay on the map, but for the windows'
   pieces, which are others' by then. */
CASE(a_map_tells_what_is_quarantined) {
  gmlake_map_entry map[64];
  size_t count, i, chunks = 0, windows = 0;
  void *b[8];
  prepare(16);
  use_hooks();
  hooked.unmap = unmap_or_not;
  hooked.release = release_or_not;
  open_lake();
  lay(b, 8);
  drop(b[1]);
  drop(b[3]);
  drop(take(2 * C));
  refuses_unmap = 1;
  (void)gmlake_trim(lake, 0, NULL);
  drop(b[7]);
  refuses_unmap = refuses_release = 1; /* the window is offered again */
  (void)gmlake_trim(lake, 0, NULL);
  refuses_release = 0;
  assert_ok(gmlake_get_map(lake, map, 64, &count));
  for (i = 0; i < count; i++) {
    assert_int_not_equal(map[i].kind, GMLAKE_KIND_IDLE_PIECE);
    if (map[i].state != GMLAKE_STATE_QUARANTINED) continue;
    chunks += map[i].kind == GMLAKE_KIND_CHUNK;
    windows += map[i].kind == GMLAKE_KIND_WINDOW;
  }
  assert_int_equal(chunks, 1);
  assert_int_equal(windows, 1);
  judge(NULL);
  finish();
}

/* Of slots behind an arena's end only those that are quarantined are looked at: the others have no
   block any more. */
CASE(a_map_looks_at_no_block_behind_the_end) {
  static void *blocks[5 * GMLK_SLAB_BLOCKS];
  const size_t most = sizeof(blocks) / sizeof(blocks[0]);
  gmlake_buffer *buffer;
  size_t count, i;
  is_apart = 1;
  prepare(32);
  is_apart = 0;
  use_hooks();
  hooked.release = release_or_not;
  open_lake();
  for (i = 0; i < most; i++) blocks[i] = take(512);
  buffer = open_buffer(8);
  step(gmlake_buffer_resize(lake, buffer, 8 * C, LEGACY));
  step(gmlake_buffer_discard(lake, buffer, C, 6 * C, LEGACY));
  (void)gmlake_trim(lake, 0, NULL); /* six slots are one block without memory */
  step(gmlake_trim(lake, 0, NULL));
  step(gmlake_buffer_resize(lake, buffer, 0, LEGACY)); /* the last slot will join it and go */
  for (i = 0; i < most; i++) drop(blocks[i]);
  refuses_release = 1;
  (void)gmlake_trim(lake, 0, NULL);
  refuses_release = 0;
  assert_int_equal(buffer->arena->slot_count, 0);
  assert_true(buffer->arena->chunks.quarantined_count > 0);
  assert_ok(gmlake_get_map(lake, NULL, 0, &count));
  judge(NULL);
  finish();
}

/* What home would return to a pool, and cannot be counted for want of host memory, is not taken for
   nothing. */
CASE(what_cannot_be_counted_is_told) {
  gmlake_alloc_desc wanted = request(4 * C, 0, NULL);
  gmlake_query_info info;
  long left = 0;
  int failed = 0;
  start(8);
  wanted.pool = open_pool(0);
  drop(take(6 * C));
  while (!left) { /* what could be had stays for the next time */
    gmlake_result result;
    host_fail_in = 1;
    assert_false(gmlk_scratch_ensure(&lake->home, 1000)); /* as where a growth failed */
    host_fail_in = 2;
    result = gmlake_query(lake, &wanted, LEGACY, &info);
    left = host_fail_in;
    host_fail_in = 0;
    failed += result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    assert_true(result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY || (!result && !info.result));
  }
  assert_true(failed >= 2);
  finish();
}

CASE(the_version_is_the_headers) { assert_int_equal(gmlake_version(), GMLAKE_VERSION); }

int main(void) { return run_cases("figures"); }
