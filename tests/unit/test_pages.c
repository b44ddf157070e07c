/* Memory inside a buffer: what no row of tests/play says. Odd ends and texts, questions, costs. */
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
static void commit(gmlake_buffer *buffer, size_t at, size_t count) {
  step(gmlake_buffer_commit(lake, buffer, at * C, count * C, LEGACY));
}
static void discard(gmlake_buffer *buffer, size_t at, size_t count) {
  step(gmlake_buffer_discard(lake, buffer, at * C, count * C, LEGACY));
}

/* One letter for each chunk: m memory, . none. */
static void assert_map(gmlake_buffer *buffer, const char *map) {
  size_t i, count = 0;
  for (i = 0; i < buffer->page_count; i++) {
    const int is_memory = *map == 'm';
    assert_int_equal(gmlk_is_committed(buffer, (uint32_t)i), is_memory);
    count += (size_t)is_memory;
    map += *map != 0;
  }
  assert_int_equal(info_of(buffer).committed_bytes, count * C);
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

static gmlake_buffer *open_odd_buffer(void) {
  gmlake_buffer_desc wanted = buffer_desc(3 * C + 5);
  gmlake_buffer *buffer;
  start(16);
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  return buffer;
}

static void the_last_chunk_may_end_at_max_bytes(void **state) {
  gmlake_buffer *buffer = open_odd_buffer();
  (void)state;
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

#define OFFSET(said) \
  "offset is " said  \
  ": pass a multiple of the buffer's chunk_bytes, 65536, up to its max_bytes, 196613"
#define BYTES(said, left)                                                  \
  "bytes is " said ": " left                                               \
  " are left up to max_bytes; pass all of them, or less, in multiples of " \
  "the buffer's chunk_bytes, 65536"

#define HALF ((size_t)1 << 63)

static const struct range {
  size_t offset, bytes;
  const char *why;
} refused[] = {
    {1, C, OFFSET("1")},
    {512, C, OFFSET("512")},
    {HALF, HALF, OFFSET("9223372036854775808")},
    {4 * C, 0, OFFSET("262144")},
    {SIZE_MAX, SIZE_MAX, OFFSET("18446744073709551615")},
    {0, 1, BYTES("1", "196613")},
    {0, C - 1, BYTES("65535", "196613")},
    {0, C + 1, BYTES("65537", "196613")},
    {C, 3 * C, BYTES("196608", "131077")},
    {3 * C, 4, BYTES("4", "5")},
    {C, SIZE_MAX, BYTES("18446744073709551615", "131077")},
    {C, SIZE_MAX - C + 1, BYTES("18446744073709486080", "131077")},
};

static void other_ranges_are_refused(void **state) {
  gmlake_buffer *buffer = open_odd_buffer();
  size_t i;
  int discards;
  (void)state;
  commit(buffer, 0, 1);
  commit(buffer, 2, 1);
  for (i = 0; i < 2 * sizeof(refused) / sizeof(refused[0]); i++) {
    const struct range *r = &refused[i / 2];
    discards = i % 2;
    step_error((discards ? gmlake_buffer_discard : gmlake_buffer_commit)(lake, buffer, r->offset,
                                                                         r->bytes, LEGACY),
               INVALID_ARGUMENT);
    assert_string_equal(last_error().call,
                        discards ? "gmlake_buffer_discard" : "gmlake_buffer_commit");
    assert_memory_equal(last_error().text, r->why, strnlen(r->why, sizeof(last_error().text) - 1));
    assert_map(buffer, "m.m");
  }
  finish();
}

/* On the modelled H200, among other calls: a new chunk, another buffer's, one that takes the place
   of a mapping. */
static void a_commit_of_2_mib_costs_what_is_promised(void **state) {
  static const char *const kinds[] = {"new", "remapped", "in another's place"};
  static const uint64_t most_ns[] = {60000, 45000, 45000};
  gmlake_buffer_desc wanted = buffer_desc(64 << 20);
  gmlake_buffer *buffers[3];
  size_t i, kind;
  (void)state;
  prepare_books(0, 0, GMLAKE_MOCK_COSTS_REPLAYED);
  open_lake();
  wanted.chunk_bytes = 2 << 20;
  for (i = 0; i < 3; i++) assert_ok(gmlake_buffer_create(lake, &wanted, &buffers[i]));
  for (kind = 0; kind < 3; kind++) {
    gmlake_buffer *of = kind == 1 ? buffers[1] : buffers[0];
    uint64_t ns = 0;
    if (kind == 2) assert_ok(gmlake_buffer_commit(lake, buffers[2], 0, 64 << 20, LEGACY));
    if (kind == 2) assert_ok(gmlake_buffer_discard(lake, buffers[2], 0, 64 << 20, LEGACY));
    for (i = 0; i < 32; i++) {
      const uint64_t before = census().modelled_ns;
      assert_ok(gmlake_buffer_commit(lake, of, i << 21, 2 << 20, LEGACY));
      ns = census().modelled_ns - before;
      assert_in_range(ns, 1, most_ns[kind]);
    }
    print_message("a commit of 2 MiB, %s: %.1f us\n", kinds[kind], (double)ns / 1000);
    if (kind == 0) assert_ok(gmlake_buffer_discard(lake, of, 0, 64 << 20, LEGACY));
  }
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
  step(gmlake_buffer_resize(lake, buffer, 5 * C + 1, LEGACY));
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
    assert_int_equal(entries[i].owner, (uintptr_t)page_of(buffer, 0));
    assert_int_equal(entries[i].bytes, C);
  }
  assert_int_equal(pieces, 4);
  all.struct_bytes = 0;
  assert_ok(gmlake_pool_get_stats(lake, NULL, &all));
  assert_int_equal(all.requested_bytes, 3 * C + 1);
  assert_int_equal(all.buffer_bytes, 4 * C);
  finish();
}

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_chunk_may_end_at_max_bytes),
      cmocka_unit_test(other_ranges_are_refused),
      cmocka_unit_test(a_commit_of_2_mib_costs_what_is_promised),
      cmocka_unit_test(questions_know_the_holes),
      cmocka_unit_test(a_chunk_of_a_buffer_is_no_block_at_home),
  };
  int failed;
  is_apart = 1; /* the last case is of blocks that have a buffer's chunks */
  failed =
      _cmocka_run_group_tests("apart", tests, sizeof(tests) / sizeof(tests[0]) - 1, NULL, NULL);
  is_apart = 0;
  return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
