/* Memory inside a buffer: ranges of it are given memory and have it taken away again. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

static gmlake_buffer_info info_of(gmlake_buffer *buffer) {
  gmlake_buffer_info info;
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  return info;
}

static unsigned char *page_of(gmlake_buffer *buffer, size_t chunk) {
  return (unsigned char *)info_of(buffer).ptr + chunk * C;
}

/* In chunks. */
static void commit_on(gmlake_buffer *buffer, size_t at, size_t count, gmlake_stream stream) {
  step(gmlake_buffer_commit(lake, buffer, at * C, count * C, stream));
}
static void commit(gmlake_buffer *buffer, size_t at, size_t count) {
  commit_on(buffer, at, count, LEGACY);
}
static void discard_on(gmlake_buffer *buffer, size_t at, size_t count, gmlake_stream stream) {
  step(gmlake_buffer_discard(lake, buffer, at * C, count * C, stream));
}
static void discard(gmlake_buffer *buffer, size_t at, size_t count) {
  discard_on(buffer, at, count, LEGACY);
}
static void resize(gmlake_buffer *buffer, size_t bytes) {
  step(gmlake_buffer_resize(lake, buffer, bytes, LEGACY));
}

/* The whole chunk holds this byte. */
static void stamp(gmlake_buffer *buffer, size_t chunk, int byte) {
  memset(page_of(buffer, chunk), byte, C);
}
static void assert_stamp(gmlake_buffer *buffer, size_t chunk, int byte) {
  const unsigned char *at = page_of(buffer, chunk);
  size_t n;
  for (n = 0; n < C; n++) assert_int_equal(at[n], byte);
}

static int is_memory(gmlake_buffer *buffer, size_t chunk) {
  return gmlk_is_committed(buffer, (uint32_t)chunk);
}

/* One letter for each chunk: m memory, . none. */
static void assert_map(gmlake_buffer *buffer, const char *map) {
  size_t i, count = 0;
  for (i = 0; map[i]; i++) {
    assert_int_equal(is_memory(buffer, i), map[i] == 'm');
    count += map[i] == 'm';
  }
  for (; i < buffer->page_count; i++) assert_false(is_memory(buffer, i));
  assert_int_equal(info_of(buffer).committed_bytes, count * C);
}

static void start_limited(size_t chunks, size_t limit_bytes) {
  prepare(chunks);
  desc.limit_bytes = limit_bytes;
  open_lake();
}

/* ---- One buffer ------------------------------------------------------------------------------ */

static void a_range_becomes_memory_and_the_rest_does_not(void **state) {
  gmlake_buffer *buffer;
  unsigned char *at;
  size_t i;
  (void)state;
  start(16);
  buffer = open_buffer(8);
  at = page_of(buffer, 0);
  commit(buffer, 2, 3);
  assert_map(buffer, "..mmm...");
  assert_int_equal(info_of(buffer).bytes, 5 * C);
  for (i = 2; i < 5; i++) stamp(buffer, i, (int)i);
  assert_true(gmlake_mock_has_access(mock, page_of(buffer, 2), 3 * C, 0));
  assert_false(gmlake_mock_has_access(mock, page_of(buffer, 1), C, 0));
  assert_false(gmlake_mock_has_access(mock, page_of(buffer, 5), C, 0));
  assert_int_equal(stats().reserved_bytes, 3 * C);
  assert_int_equal(stats().buffer_bytes, 3 * C);
  commit(buffer, 0, 8); /* what is memory keeps its contents */
  assert_map(buffer, "mmmmmmmm");
  for (i = 2; i < 5; i++) assert_stamp(buffer, i, (int)i);
  discard(buffer, 3, 1);
  assert_map(buffer, "mmm.mmmm");
  assert_stamp(buffer, 2, 2);
  assert_stamp(buffer, 4, 4);
  assert_ptr_equal(page_of(buffer, 0), at);
  finish();
}

/* On the modelled H200, among other calls: a new chunk, another buffer's, one that takes the place
   of a mapping. */
static void a_commit_of_2_mib_costs_what_is_promised(void **state) {
  static const char *const kinds[] = {"new", "remapped", "in another's place"};
  static const uint64_t most_ns[] = {60000, 45000, 45000};
  gmlake_mock_desc mock_desc;
  gmlake_buffer *buffers[3];
  uint64_t ns;
  size_t i, kind;
  (void)state;
  prepare(1);
  close_mock();
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.bookkeeping_only = 1;
  mock_desc.costs = GMLAKE_MOCK_COSTS_REPLAYED;
  assert_ok(gmlake_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.chunk_bytes = 0;
  open_lake();
  for (i = 0; i < 3; i++) {
    gmlake_buffer_desc wanted = buffer_desc(64 << 20);
    wanted.chunk_bytes = 2 << 20;
    assert_ok(gmlake_buffer_create(lake, &wanted, &buffers[i]));
  }
  for (kind = 0; kind < 3; kind++) {
    gmlake_buffer *of = kind == 1 ? buffers[1] : buffers[0];
    if (kind == 2) assert_ok(gmlake_buffer_commit(lake, buffers[2], 0, 64 << 20, LEGACY));
    if (kind == 2) assert_ok(gmlake_buffer_discard(lake, buffers[2], 0, 64 << 20, LEGACY));
    for (i = 0; i < 32; i++) {
      ns = census().modelled_ns;
      assert_ok(gmlake_buffer_commit(lake, of, i << 21, 2 << 20, LEGACY));
      ns = census().modelled_ns - ns;
      assert_in_range(ns, 1, most_ns[kind]);
    }
    print_message("a commit of 2 MiB, %s: %.1f us\n", kinds[kind], (double)ns / 1000);
    if (kind == 0) assert_ok(gmlake_buffer_discard(lake, of, 0, 64 << 20, LEGACY));
  }
  finish();
}

static void the_last_chunk_may_end_at_max_bytes(void **state) {
  gmlake_buffer_desc wanted = buffer_desc(3 * C + 5);
  gmlake_buffer *buffer;
  (void)state;
  start(16);
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  step(gmlake_buffer_commit(lake, buffer, 2 * C, C + 5, LEGACY));
  assert_map(buffer, "..mm");
  assert_int_equal(info_of(buffer).bytes, 3 * C + 5);
  assert_int_equal(stats().requested_bytes, C + 5);
  step(gmlake_buffer_discard(lake, buffer, 3 * C, 5, LEGACY));
  assert_map(buffer, "..m");
  step(gmlake_buffer_commit(lake, buffer, 3 * C, 5, LEGACY));
  assert_map(buffer, "..mm");
  step(gmlake_buffer_discard(lake, buffer, 0, 3 * C + 5, LEGACY));
  assert_int_equal(stats().requested_bytes, 0);
  finish();
}

static void assert_refused(gmlake_buffer *buffer, size_t offset, size_t bytes, const char *why) {
  step_error(gmlake_buffer_commit(lake, buffer, offset, bytes, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().call, "gmlake_buffer_commit");
  assert_string_equal(last_error().text, why);
  step_error(gmlake_buffer_discard(lake, buffer, offset, bytes, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().call, "gmlake_buffer_discard");
  assert_string_equal(last_error().text, why);
  assert_map(buffer, "m.m");
}

static void other_ranges_are_refused(void **state) {
  gmlake_buffer_desc wanted = buffer_desc(3 * C + 5);
  gmlake_buffer *buffer;
  (void)state;
  start(16);
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  commit(buffer, 0, 1);
  commit(buffer, 2, 1);
  assert_refused(buffer, 1, C,
                 "offset is 1: pass a multiple of the buffer's chunk_bytes, 65536, up to its "
                 "max_bytes, 196613");
  assert_refused(buffer, 4 * C, 0,
                 "offset is 262144: pass a multiple of the buffer's chunk_bytes, 65536, up to its "
                 "max_bytes, 196613");
  assert_refused(buffer, 0, C - 1,
                 "bytes is 65535: 196613 are left up to max_bytes; pass all of them, or less, in "
                 "multiples of the buffer's chunk_bytes, 65536");
  assert_refused(buffer, C, 3 * C,
                 "bytes is 196608: 131077 are left up to max_bytes; pass all of them, or less, in "
                 "multiples of the buffer's chunk_bytes, 65536");
  assert_refused(buffer, 3 * C, 4,
                 "bytes is 4: 5 are left up to max_bytes; pass all of them, or less, in multiples "
                 "of the buffer's chunk_bytes, 65536");
  assert_error(gmlake_buffer_commit(lake, buffer, C, SIZE_MAX, LEGACY), INVALID_ARGUMENT);
  assert_error(gmlake_buffer_commit(lake, buffer, C, SIZE_MAX - C + 1, LEGACY), INVALID_ARGUMENT);
  assert_error(gmlake_buffer_discard(lake, buffer, SIZE_MAX, SIZE_MAX, LEGACY), INVALID_ARGUMENT);
  assert_true(strlen(last_error().text) < sizeof(last_error().text) - 1);
  finish();
}

/* Who asks what lies where is told of memory, not of holes. */
static void questions_know_the_holes(void **state) {
  gmlake_allocation_info found;
  gmlake_chunk_info parts[8];
  gmlake_map_entry entries[32];
  gmlake_buffer *buffer;
  gmlake_stats all;
  size_t count, i, pieces = 0;
  (void)state;
  start(16);
  buffer = open_buffer(8);
  commit(buffer, 1, 3);
  resize(buffer, 5 * C + 1);
  discard(buffer, 2, 1);
  assert_map(buffer, ".m.mmm");
  assert_ok(gmlake_get_chunks(lake, page_of(buffer, 2), parts, 8, &count));
  assert_int_equal(count, 4);
  for (i = 0; i < 4; i++) {
    const size_t at = i ? i + 2 : 1;
    assert_int_equal(parts[i].address, (uintptr_t)page_of(buffer, at));
    assert_int_equal(parts[i].bytes, C);
  }
  assert_ok(gmlake_find(lake, page_of(buffer, 2), &found));
  assert_ptr_equal(found.ptr, page_of(buffer, 0));
  assert_int_equal(found.bytes, 6 * C);
  assert_int_equal(found.requested_bytes, 3 * C + 1);
  assert_ok(gmlake_get_map(lake, entries, 32, &count));
  assert_true(count <= 32);
  for (i = 0; i < count; i++) {
    if (entries[i].kind != GMLAKE_KIND_PIECE) continue;
    assert_int_equal(entries[i].handle, parts[pieces].handle);
    assert_int_equal(entries[i].address, parts[pieces++].address);
  }
  assert_int_equal(pieces, 4);
  all.struct_bytes = 0;
  assert_ok(gmlake_pool_get_stats(lake, NULL, &all));
  assert_int_equal(all.requested_bytes, 3 * C + 1);
  assert_int_equal(all.buffer_bytes, 4 * C);
  finish();
}

/* ---- Blocks and buffers of one chunk size ---------------------------------------------------- */

/* The home address of a buffer's memory is nobody's. */
static void a_chunk_of_a_buffer_is_no_block_at_home(void **state) {
  gmlake_allocation_info found;
  gmlake_map_entry entries[16];
  gmlake_buffer *buffer;
  uint64_t home;
  size_t count, i;
  (void)state;
  start(8);
  buffer = open_buffer(4);
  drop(take(2 * C));
  commit(buffer, 0, 1);
  home = gmlk_slot_home(&lake->home, buffer->pages[0].slot);
  step_error(gmlake_free(lake, (void *)(uintptr_t)home, LEGACY), UNKNOWN_POINTER);
  step_error(gmlake_find(lake, (void *)(uintptr_t)home, &found), UNKNOWN_POINTER);
  assert_ok(gmlake_get_map(lake, entries, 16, &count));
  assert_int_equal(count, 2 + 1 + 1 + 1); /* two chunks, a hole, the buffer and its piece */
  for (i = 0; i < count; i++)
    if (entries[i].kind == GMLAKE_KIND_HOLE) assert_true(entries[i].address != home);
  finish();
}

/* A policy decides about blocks alone, so buffers then have chunks of their own. */
static void a_policy_decides_about_no_chunk_of_a_buffer(void **state) {
  static gmlake_policy policy;
  gmlake_buffer *buffer;
  (void)state;
  policy.struct_bytes = sizeof(policy);
  prepare(8);
  desc.policy = &policy;
  open_lake();
  buffer = open_buffer(4);
  drop(take(2 * C));
  commit(buffer, 0, 1);
  assert_true(buffer->arena->is_bare);
  assert_int_equal(lake->home.chunks.backed_count, 1); /* it returned the other one */
  finish();
}

/* ---- Buffers of a pool ----------------------------------------------------------------------- */

static gmlake_buffer *open_buffer_in(gmlake_pool *pool, size_t chunk_bytes) {
  gmlake_buffer_desc wanted = buffer_desc(8 * C);
  gmlake_buffer *buffer = NULL;
  wanted.chunk_bytes = chunk_bytes;
  wanted.pool = pool;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_ptr_equal(info_of(buffer).pool, pool);
  return buffer;
}

static gmlake_stats figures_of(gmlake_pool *pool) {
  gmlake_stats now;
  now.struct_bytes = 0;
  assert_ok(gmlake_pool_get_stats(lake, pool, &now));
  return now;
}

/* Blocks and buffers of all chunk sizes count against one limit. */
static void a_pool_is_limited_with_its_buffers(void **state) {
  gmlake_buffer *small, *large;
  gmlake_pool *pool;
  void *block;
  (void)state;
  start(32);
  pool = open_pool(8 * C);
  small = open_buffer_in(pool, C);
  large = open_buffer_in(pool, 2 * C);
  commit(small, 2, 2);
  commit(large, 2, 4);
  block = take_from(pool, 2 * C, LEGACY);
  assert_int_equal(figures_of(pool).reserved_bytes, 8 * C);
  assert_int_equal(figures_of(pool).buffer_bytes, 6 * C);
  assert_int_equal(figures_of(pool).buffer_count, 2);
  assert_int_equal(figures_of(NULL).reserved_bytes, 0);
  assert_error(gmlake_buffer_commit(lake, small, 0, C, LEGACY), LIMIT_REACHED);
  assert_ptr_equal(last_error().pool, pool);
  assert_int_equal(last_error().limit_bytes, 8 * C);
  assert_error(gmlake_buffer_commit(lake, large, 0, 2 * C, LEGACY), LIMIT_REACHED);
  (void)take(C); /* others are not limited */
  drop(block);
  commit(small, 0, 1); /* the pool's blocks give way to its buffers, */
  discard(large, 2, 4);
  block = take_from(pool, 3 * C, LEGACY); /* and its buffers to its blocks */
  assert_true(figures_of(pool).reserved_bytes <= 8 * C);
  drop(block);
  step(gmlake_buffer_destroy(lake, small, LEGACY));
  step(gmlake_buffer_destroy(lake, large, LEGACY));
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void a_pool_with_buffers_is_not_destroyed(void **state) {
  gmlake_buffer *buffer, *large;
  gmlake_pool *pool;
  gmlake_stream stream;
  size_t before;
  (void)state;
  start(32);
  stream = open_stream();
  (void)take(C);
  before = census().handle_count;
  pool = open_pool(0);
  buffer = open_buffer_in(pool, C);
  large = open_buffer_in(pool, 2 * C);
  commit_on(buffer, 0, 2, stream);
  commit_on(large, 0, 2, stream);
  step_error(gmlake_pool_destroy(lake, pool), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "2 buffers of the pool are left: destroy them first");
  step(gmlake_buffer_destroy(lake, large, stream));
  step_error(gmlake_pool_destroy(lake, pool), INVALID_ARGUMENT);
  gmlake_mock_stream_hold(mock, stream);
  step(gmlake_buffer_destroy(lake, buffer, stream));
  step(gmlake_pool_destroy(lake, pool)); /* waits for the work */
  assert_int_equal(census().host_wait_count, 1);
  assert_int_equal(census().handle_count, before);
  assert_int_equal(stats().reserved_bytes, before * C);
  finish();
}

/* What the driver does not take back is told, and offered again when the lake is destroyed. */
static void a_pools_buffers_may_stay_mapped(void **state) {
  static const int kinds[] = {ON_UNMAP, ON_RELEASE, ON_UNRESERVE};
  gmlake_buffer *buffer;
  gmlake_pool *pool;
  size_t i;
  (void)state;
  for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    start_with_faults(32);
    pool = open_pool(0);
    buffer = open_buffer_in(pool, C);
    commit(buffer, 0, 3);
    step(gmlake_buffer_destroy(lake, buffer, LEGACY));
    fail_call(kinds[i], 1, GMLAKE_ERROR_DRIVER, 0);
    step(gmlake_pool_destroy(lake, pool));
    assert_int_equal(stats().quarantined_bytes, census().handle_count * C);
    assert_int_equal(stats().reserved_bytes, census().handle_count * C);
    assert_int_equal(census().handle_count, i == 0 ? 3 : 2 - i); /* all three, one, none */
    finish();
  }
}

static void a_blind_place_goes_with_its_pool(void **state) {
  gmlake_buffer *buffer;
  gmlake_pool *pool;
  (void)state;
  start_with_faults(32);
  pool = open_pool(0);
  buffer = open_buffer_in(pool, C);
  fail_call(ON_ACCESS, is_apart ? 1 : 2, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_buffer_commit(lake, buffer, 0, C, LEGACY), DRIVER);
  assert_int_equal(stats().quarantined_bytes, C);
  assert_int_equal(figures_of(pool).quarantined_bytes, C);
  step(gmlake_buffer_destroy(lake, buffer, LEGACY));
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(stats().quarantined_bytes, 0);
  assert_int_equal(census().handle_count, 0);
  finish();
}

static char leak_text[160];

static void note_leak(void *user, int level, const gmlake_error_info *info) {
  (void)user;
  (void)level;
  memcpy(leak_text, info->text, sizeof(leak_text));
}

static void a_leak_names_the_pool(void **state) {
  gmlake_pool_desc of_pool;
  gmlake_pool *pool;
  (void)state;
  prepare(16);
  desc.logger.fn = note_leak;
  open_lake();
  memset(&of_pool, 0, sizeof(of_pool));
  of_pool.label = "tenant";
  step(gmlake_pool_create(lake, &of_pool, &pool));
  commit(open_buffer_in(pool, C), 3, 2);
  finish();
  assert_non_null(strstr(leak_text, "131072 bytes of a buffer"));
  assert_non_null(strstr(leak_text, "(tenant)"));
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* All or nothing: 4 chunks are to be had, and 5 are missing. */
static void a_commit_that_fails_leaves_the_buffer_as_it_was(void **state) {
  gmlake_buffer *buffer;
  (void)state;
  start_limited(16, 6 * C);
  buffer = open_buffer(12);
  commit(buffer, 1, 1);
  commit(buffer, 4, 1);
  stamp(buffer, 1, 1);
  stamp(buffer, 4, 4);
  assert_error(gmlake_buffer_commit(lake, buffer, 0, 7 * C, LEGACY), LIMIT_REACHED);
  assert_int_equal(last_error().asked_bytes, 5 * C);
  assert_string_equal(last_error().call, "gmlake_buffer_commit");
  assert_ok(gmlake_check(lake));
  assert_map(buffer, ".m..m");
  assert_int_equal(info_of(buffer).bytes, 5 * C);
  assert_stamp(buffer, 1, 1);
  assert_stamp(buffer, 4, 4);
  commit(buffer, 0, 6);
  assert_stamp(buffer, 1, 1);
  assert_stamp(buffer, 4, 4);
  finish();
}

/* Each call of the driver fails once, in the middle of chunks that are memory already. */
static void a_commit_is_undone_whatever_call_fails(void **state) {
  static const int kinds[] = {ON_CREATE, ON_MAP, ON_ACCESS, ON_UNMAP};
  size_t kind;
  long in;
  int is_over;
  (void)state;
  for (kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
    for (in = 1, is_over = 0; !is_over; in++) {
      gmlake_buffer *buffer, *other;
      gmlake_result result;
      start_with_faults(16);
      buffer = open_buffer(8);
      other = open_buffer(8);
      commit(buffer, 0, 8);
      stamp(buffer, 3, 3);
      discard(buffer, 1, 2);
      discard(buffer, 4, 2);
      commit(other, 0, 4); /* all that is still mapped at the holes */
      fail_call(kinds[kind], in, GMLAKE_ERROR_DRIVER, 0);
      result = gmlake_buffer_commit(lake, buffer, 0, 8 * C, LEGACY);
      assert_ok(gmlake_check(lake));
      assert_map(buffer, result ? "m..m..mm" : "mmmmmmmm");
      assert_stamp(buffer, 3, 3);
      is_over = faults[kinds[kind]].in != 0; /* there are not so many calls */
      memset(faults, 0, sizeof(faults));
      commit(buffer, 0, 8);
      assert_stamp(buffer, 3, 3);
      finish();
    }
    assert_true(in > 3); /* calls did fail */
  }
}

static void host_memory_may_lack_anywhere(void **state) {
  long in;
  (void)state;
  for (in = 1;; in++) {
    gmlake_buffer *buffer;
    gmlake_result result;
    start(128);
    buffer = open_buffer(100);
    commit(buffer, 1, 1);
    host_fail_in = in;
    result = gmlake_buffer_commit(lake, buffer, 0, 100 * C, LEGACY);
    if (!result && host_fail_in) break;
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    if (result) {
      assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
      assert_map(buffer, ".m");
    }
    finish();
  }
  host_fail_in = 0;
  assert_true(in > 3);
  finish();
}

static gmlake_buffer *handled;
static gmlake_result handler_results[2];

static int discard_in_handler(void *user, gmlake *of, const gmlake_error_info *info) {
  (void)user;
  (void)info;
  handler_results[0] = gmlake_buffer_commit(of, handled, 0, C, LEGACY);
  handler_results[1] = gmlake_buffer_discard(of, handled, C, 2 * C, LEGACY);
  return 1;
}

static void the_handler_may_discard_and_not_commit(void **state) {
  gmlake_buffer *buffer;
  (void)state;
  prepare(16);
  desc.limit_bytes = 4 * C;
  desc.oom.fn = discard_in_handler;
  open_lake();
  handled = open_buffer(8);
  buffer = open_buffer(8);
  commit(handled, 0, 4);
  commit(buffer, 3, 2);
  assert_int_equal(handler_results[0], GMLAKE_ERROR_INVALID_ARGUMENT);
  assert_int_equal(handler_results[1], GMLAKE_OK);
  assert_map(handled, "m..m");
  assert_map(buffer, "...mm");
  finish();
}

static void fresh_memory_is_filled(void **state) {
  gmlake_buffer *buffer;
  (void)state;
  prepare(16);
  desc.flags = GMLAKE_FILL;
  open_lake();
  buffer = open_buffer(8);
  commit(buffer, 0, 3);
  assert_stamp(buffer, 1, GMLAKE_FILL_NEW);
  stamp(buffer, 0, 1);
  stamp(buffer, 1, 2);
  discard(buffer, 1, 1);
  assert_stamp(buffer, 1, GMLAKE_FILL_FREE);
  commit(buffer, 0, 3);
  assert_stamp(buffer, 0, 1); /* it was memory before */
  assert_stamp(buffer, 1, GMLAKE_FILL_NEW);
  finish();
}

static void commit_chunks(gmlake_buffer *buffer, size_t at, size_t count, uint32_t *chunks) {
  step(gmlake_buffer_commit_chunks(lake, buffer, at * C, count * C, chunks, LEGACY));
}

/* A program that takes turns with chunks maps each of them once at each place. */
static void a_chunk_that_is_wanted_comes(void **state) {
  uint32_t one[3] = {GMLAKE_ANY_CHUNK, GMLAKE_ANY_CHUNK, GMLAKE_ANY_CHUNK}, two[3], again[3];
  gmlake_buffer *a, *b;
  uint64_t calls;
  size_t i;
  (void)state;
  start(3);
  a = open_buffer(4);
  b = open_buffer(4);
  commit_chunks(a, 1, 3, one);
  for (i = 0; i < 3; i++) stamp(a, 1 + i, 10 + (int)i);
  discard(a, 1, 3);
  for (i = 0; i < 3; i++) two[i] = again[i] = one[2 - i];
  commit_chunks(b, 0, 3, two);
  assert_memory_equal(two, again, sizeof two);
  for (i = 0; i < 3; i++) assert_stamp(b, i, 12 - (int)i);
  discard(b, 0, 3);
  calls = census().call_count;
  for (i = 0; i < 5; i++) {
    commit_chunks(a, 1, 3, one);
    discard(a, 1, 3);
    commit_chunks(b, 0, 3, two);
    discard(b, 0, 3);
  }
  assert_int_equal(mapped_count(), 6);
  assert_true(census().call_count - calls <= 5 * 4); /* events */
  finish();
}

static unsigned called;
static void count_call(int kind) {
  (void)kind;
  called++;
}

/* The number behind the last chunk's is none. */
static void a_chunk_that_is_not_there_yet_does_not_come(void **state) {
  uint32_t chunks[2] = {GMLAKE_ANY_CHUNK, GMLAKE_ANY_CHUNK}, wanted;
  gmlake_buffer *a;
  (void)state;
  start(4);
  a = open_buffer(4);
  commit_chunks(a, 0, 2, chunks);
  wanted = 1 + (chunks[0] > chunks[1] ? chunks[0] : chunks[1]);
  commit_chunks(a, 2, 1, &wanted);
  assert_true(wanted != chunks[0] && wanted != chunks[1]);
  finish();
}

/* What is memory already needs no driver, whatever is wanted there. */
static void wishes_for_what_is_there_cost_nothing(void **state) {
  uint32_t chunks[2] = {GMLAKE_ANY_CHUNK, GMLAKE_ANY_CHUNK}, wanted[2];
  gmlake_buffer *a;
  (void)state;
  start_with_faults(2);
  a = open_buffer(4);
  commit_chunks(a, 0, 2, chunks);
  wanted[0] = chunks[1];
  wanted[1] = 1000;
  called = 0;
  before_driver_call = count_call;
  commit_chunks(a, 0, 2, wanted);
  before_driver_call = NULL;
  assert_memory_equal(wanted, chunks, sizeof(chunks));
  assert_int_equal(called, 0);
  finish();
}

static void what_is_not_free_is_not_given(void **state) {
  uint32_t chunks[2] = {GMLAKE_ANY_CHUNK, GMLAKE_ANY_CHUNK}, wanted[2];
  gmlake_buffer *a, *b;
  (void)state;
  start(3);
  a = open_buffer(4);
  b = open_buffer(4);
  commit_chunks(a, 0, 2, chunks);
  stamp(a, 0, 7);
  stamp(a, 1, 8);
  wanted[0] = chunks[1]; /* it is A's */
  commit_chunks(b, 0, 1, wanted);
  assert_int_not_equal(wanted[0], chunks[0]);
  assert_int_not_equal(wanted[0], chunks[1]);
  stamp(b, 0, 9);
  wanted[0] = 1000; /* there is none */
  wanted[1] = chunks[0];
  discard(a, 1, 1);
  commit_chunks(b, 0, 2, wanted); /* the first has memory already */
  assert_int_equal(wanted[1], chunks[1]);
  assert_stamp(a, 0, 7);
  assert_stamp(b, 0, 9);
  assert_stamp(b, 1, 8);
  wanted[0] = wanted[1];
  discard(b, 0, 2);
  wanted[1] = wanted[0]; /* wanted twice: one gets it */
  commit_chunks(b, 0, 2, wanted);
  assert_int_equal(wanted[0], chunks[1]);
  assert_int_not_equal(wanted[1], chunks[1]);
  finish();
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_range_becomes_memory_and_the_rest_does_not),
      cmocka_unit_test(a_commit_of_2_mib_costs_what_is_promised),
      cmocka_unit_test(the_last_chunk_may_end_at_max_bytes),
      cmocka_unit_test(other_ranges_are_refused),
      cmocka_unit_test(questions_know_the_holes),
      cmocka_unit_test(a_pool_is_limited_with_its_buffers),
      cmocka_unit_test(a_pools_buffers_may_stay_mapped),
      cmocka_unit_test(a_blind_place_goes_with_its_pool),
      cmocka_unit_test(a_leak_names_the_pool),
      cmocka_unit_test(a_commit_that_fails_leaves_the_buffer_as_it_was),
      cmocka_unit_test(a_commit_is_undone_whatever_call_fails),
      cmocka_unit_test(host_memory_may_lack_anywhere),
      cmocka_unit_test(the_handler_may_discard_and_not_commit),
      cmocka_unit_test(fresh_memory_is_filled),
      cmocka_unit_test(a_chunk_that_is_wanted_comes),
      cmocka_unit_test(a_chunk_that_is_not_there_yet_does_not_come),
      cmocka_unit_test(wishes_for_what_is_there_cost_nothing),
      cmocka_unit_test(what_is_not_free_is_not_given),
  };
  const struct CMUnitTest with_blocks[] = {
      /* of a chunk */
      cmocka_unit_test(a_chunk_of_a_buffer_is_no_block_at_home),
      cmocka_unit_test(a_policy_decides_about_no_chunk_of_a_buffer),
      cmocka_unit_test(a_pool_with_buffers_is_not_destroyed),
  };
  int failed;
  is_apart = 1;
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  is_apart = 0;
  failed += cmocka_run_group_tests(with_blocks, NULL, NULL);
  return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
