/* Programs that are hard for an allocator that stitches: what memory they need, and that programs
   which repeat themselves need no driver in the end. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "hard.h"

#include "fixture.h"

#define SLOTS_MAX HARD_COMB_SLOTS(2000)
#define CHUNK ((size_t)2 << 20)

static void *blocks[SLOTS_MAX];

static void run(void *user, size_t slot, size_t bytes) {
  (void)user;
  assert_true(slot < SLOTS_MAX);
  if (bytes)
    assert_ok(gmlake_alloc(lake, bytes, LEGACY, &blocks[slot]));
  else
    assert_ok(gmlake_free(lake, blocks[slot], LEGACY));
}

/* A lake on a device of 64 GiB. */
static void open_hard(size_t chunk_bytes) {
  prepare_books((size_t)64 << 30, 0, GMLAKE_MOCK_COSTS_ALONE);
  desc.chunk_bytes = chunk_bytes;
  open_lake();
}

/* However many phases take turns, each gets its own window again. */
CASE(phases_converge) {
  static const size_t counts[] = {1, 9, 12, 40, 200, 1000};
  size_t i, n;
  for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
    uint64_t calls;
    open_hard(CHUNK);
    hard_phases_begin(counts[i], CHUNK, run, NULL);
    for (n = 0; n < 10; n++) hard_phases(counts[i], CHUNK, run, NULL);
    calls = stats().driver_call_count;
    for (n = 0; n < 10; n++) hard_phases(counts[i], CHUNK, run, NULL);
    assert_int_equal(stats().driver_call_count, calls);
    assert_int_equal(stats().window_count, counts[i]);
    assert_int_equal(stats().reserved_bytes, stats().active_bytes_peak);
    finish();
  }
}

/* Where the newest window of a size is taken, and not the oldest, some stitch for ever. */
CASE(random_programs_converge) {
  uint64_t number;
  size_t n;
  for (number = 0; number < 2000; number++) {
    uint64_t calls = 0;
    open_hard(number % 2 ? CHUNK : 8 * CHUNK);
    for (n = 0; n < 20; n++) {
      if (n == 15) calls = stats().driver_call_count;
      hard_random(number, run, NULL);
    }
    if (stats().driver_call_count != calls) print_error("program %d\n", (int)number);
    assert_int_equal(stats().driver_call_count, calls);
    assert_true(stats().window_count <= 64);
    finish();
  }
}

/* Small blocks that stay lie together, so large ones in between leave whole chunks behind. */
CASE(combs_hold_little_more_than_is_live) {
  static const struct {
    size_t chunk, small, pairs;
    double least; /* of live by reserved memory */
  } rows[] = {
      {CHUNK, 64 * K, 2000, .95},
      {8 * CHUNK, 64 * K, 1000, .965},
      {8 * CHUNK, 512, 1000, .965},
      {16 * CHUNK, 4 * K, 500, .94},
  };
  size_t i, n;
  for (i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
    const size_t row = i / 2, pairs = rows[row].pairs;
    const int is_kept = i % 2 != 0;
    uint64_t calls = 0;
    open_hard(rows[row].chunk);
    for (n = 0; n < 10; n++) {
      if (n == 5) calls = stats().driver_call_count;
      hard_comb(pairs, rows[row].chunk, rows[row].small, !is_kept || !n, !is_kept || n == 9, run,
                NULL);
    }
    assert_int_equal(stats().driver_call_count, calls);
    assert_true((double)stats().active_bytes_peak >=
                rows[row].least * (double)stats().reserved_bytes_peak);
    finish();
  }
}

int main(void) { return run_cases("hard"); }
