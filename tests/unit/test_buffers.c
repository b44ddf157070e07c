/* Growing buffers, beside the rows of tests/play/rows.h: what they cost the driver, threads,
   records. */
#include "waiters.h"

#include "fixture.h"

#define MIB ((size_t)1 << 20)

static gmlake_buffer_info info_of(gmlake_buffer *buffer) {
  gmlake_buffer_info info;
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  return info;
}

static void resize_on(gmlake_buffer *buffer, size_t bytes, gmlake_stream stream) {
  step(gmlake_buffer_resize(lake, buffer, bytes, stream));
  assert_int_equal(info_of(buffer).bytes, bytes);
  assert_int_equal(info_of(buffer).committed_bytes, (bytes + C - 1) / C * C);
}

static void resize(gmlake_buffer *buffer, size_t bytes) { resize_on(buffer, bytes, LEGACY); }

/* ---- One buffer ------------------------------------------------------------------------------ */

/* On the modelled H200, among other calls: a new chunk, another buffer's, one that takes the place
   of a mapping. */
CASE(a_commit_of_2_mib_costs_what_is_promised) {
  static const char *const kinds[] = {"new", "remapped", "in another's place"};
  static const uint64_t most_ns[] = {60000, 45000, 45000};
  gmlake_buffer_desc wanted = buffer_desc(64 * MIB);
  gmlake_buffer *buffers[3];
  size_t i, kind;
  prepare_books(0, 0, GMLAKE_MOCK_COSTS_REPLAYED);
  open_lake();
  wanted.chunk_bytes = 2 * MIB;
  for (i = 0; i < 3; i++) assert_ok(gmlake_buffer_create(lake, &wanted, &buffers[i]));
  for (kind = 0; kind < 3; kind++) {
    gmlake_buffer *of = kind == 1 ? buffers[1] : buffers[0];
    uint64_t ns = 0;
    if (kind == 2) assert_ok(gmlake_buffer_commit(lake, buffers[2], 0, 64 * MIB, NULL, LEGACY));
    if (kind == 2) assert_ok(gmlake_buffer_discard(lake, buffers[2], 0, 64 * MIB, LEGACY));
    for (i = 0; i < 32; i++) {
      const uint64_t before = census().modelled_ns;
      assert_ok(gmlake_buffer_commit(lake, of, i * 2 * MIB, 2 * MIB, NULL, LEGACY));
      ns = census().modelled_ns - before;
      assert_in_range(ns, 1, most_ns[kind]);
    }
    print_message("a commit of 2 MiB, %s: %.1f us\n", kinds[kind], (double)ns / 1000);
    if (kind == 0) assert_ok(gmlake_buffer_discard(lake, of, 0, 64 * MIB, LEGACY));
  }
  finish();
}

/* 2 MiB at a time on the modelled H200, with costs alone and as replayed; 60 where the chunk is
   mapped for blocks, too. */
CASE(growing_by_2_mib_takes_less_than_40_us) {
  gmlake_buffer_desc wanted;
  gmlake_buffer *buffer;
  uint64_t ns, most;
  size_t i;
  int costs;
  for (costs = GMLAKE_MOCK_COSTS_ALONE; costs <= GMLAKE_MOCK_COSTS_REPLAYED; costs++) {
    most = 0;
    prepare_books(0, 0, (gmlake_mock_costs)costs);
    desc.chunk_bytes = is_apart ? 16 * MIB : 2 * MIB;
    open_lake();
    memset(&wanted, 0, sizeof(wanted));
    wanted.max_bytes = 256 * MIB;
    assert_ok(gmlake_buffer_create(lake, &wanted, &buffer));
    assert_int_equal(info_of(buffer).chunk_bytes, 2 * MIB);
    for (i = 1; i <= 128; i++) {
      ns = census().modelled_ns;
      assert_ok(gmlake_buffer_resize(lake, buffer, i * 2 * MIB, LEGACY));
      ns = census().modelled_ns - ns;
      assert_in_range(ns, 1, is_apart ? 39999 : 59999);
      if (ns > most) most = ns;
    }
    print_message("growing by 2 MiB%s: %.1f us at most\n",
                  is_apart ? "" : " of chunks that blocks share", (double)most / 1000);
    assert_ok(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
    ns = census().modelled_ns;
    for (i = 1; i <= 128; i++) assert_ok(gmlake_buffer_resize(lake, buffer, i * 2 * MIB, LEGACY));
    assert_int_equal(census().modelled_ns, ns);
    finish();
  }
}

CASE(chunks_are_2_mib_or_the_granularity) {
  gmlake_buffer_desc wanted;
  gmlake_mock_desc mock_desc;
  gmlake_buffer *buffer, *other;
  start(128);
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = 3 * MIB;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_int_equal(info_of(buffer).chunk_bytes, 2 * MIB);
  step(gmlake_buffer_resize(lake, buffer, 1, LEGACY));
  assert_int_equal(info_of(buffer).committed_bytes, 2 * MIB);
  step(gmlake_buffer_resize(lake, buffer, 3 * MIB, LEGACY));
  assert_int_equal(info_of(buffer).committed_bytes, 4 * MIB);
  other = open_buffer(2); /* of C: from another arena */
  resize(other, C);
  assert_int_equal(stats().reserved_bytes, 4 * MIB + C);
  assert_int_equal(stats().chunk_count, 3);
  finish();
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.granularity_bytes = 4 * MIB;
  assert_ok(gmlake_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.chunk_bytes = 0;
  open_lake();
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_int_equal(info_of(buffer).chunk_bytes, 4 * MIB);
  finish();
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Another thread that shrinks the buffer while it grows, in the middle of a driver call. */
static struct rival {
  gmlake_buffer *buffer;
  pthread_t thread;
  int is_done;
} rival;

static void *shrink_it(void *argument) {
  (void)argument;
  if (gmlake_buffer_resize(lake, rival.buffer, 0, LEGACY)) abort();
  __atomic_store_n(&rival.is_done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static gmlake_result create_and_meet(void *user, size_t bytes, unsigned handle_types,
                                     uint64_t *out_handle, int *out_code) {
  hooked.create = mock->create;
  assert_int_equal(start_waiter(&rival.thread, shrink_it, NULL), 0);
  assert_int_equal(__atomic_load_n(&rival.is_done, __ATOMIC_ACQUIRE), 0);
  return mock->create(user, bytes, handle_types, out_handle, out_code);
}

CASE(a_growing_buffer_is_not_shrunk_meanwhile) {
  start_hooked(8);
  memset(&rival, 0, sizeof(rival));
  rival.buffer = open_buffer(8);
  resize(rival.buffer, C);
  hooked.create = create_and_meet;
  assert_ok(gmlake_buffer_resize(lake, rival.buffer, 4 * C, LEGACY));
  assert_int_equal(pthread_join(rival.thread, NULL), 0);
  assert_int_equal(rival.is_done, 1);
  assert_ok(gmlake_check(lake));
  assert_int_equal(info_of(rival.buffer).committed_bytes, 0);
  assert_int_equal(census().handle_count, 4);
  finish();
}

/* ---- Records --------------------------------------------------------------------------------- */

/* A change makes the records that it needs, however many are unused. */
CASE(records_are_made_before_they_are_taken) {
  gmlake_buffer *buffer, *other = NULL;
  gmlake_buffer_desc wanted = buffer_desc(2 * C);
  start(16);
  buffer = open_buffer(3);
  resize(buffer, 3 * C);
  resize(buffer, 0);
  lake->records.set_aside = lake->records.unused_count;
  assert_ok(gmlake_buffer_commit(lake, buffer, C, C, NULL, LEGACY)); /* amidst a hole */
  lake->records.set_aside = 0;
  assert_ok(gmlake_check(lake));
  lake->records.set_aside = lake->records.unused_count;
  assert_ok(gmlake_buffer_create(lake, &wanted, &other));
  lake->records.set_aside = 0;
  resize(other, 2 * C);
  finish();
}

/* One free range is cut into chunks again, for which there are records, whoever took those that
   were left over when the chunks became one. */
CASE(growing_again_has_its_records) {
  gmlake_buffer *buffer;
  int i;
  start(128);
  buffer = open_buffer(100);
  step(gmlake_buffer_resize(lake, buffer, 100 * C, LEGACY));
  step(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
  for (i = 0; i < 140; i++) (void)take(512);
  step(gmlake_buffer_resize(lake, buffer, 100 * C, LEGACY));
  assert_ok(gmlake_destroy(lake));
  close_mock();
}

int main(void) {
  int failed;
  is_apart = 1;
  failed = run_cases("buffers_apart");
  is_apart = 0;
  return failed + run_cases("buffers");
}
