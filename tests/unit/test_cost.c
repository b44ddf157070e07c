/* What the manual says of costs, counted in steps: each case does the same beside few things and
   beside many. Where this is compiled without step_count.c, these are skipped. And what host
   memory the lake takes, counted in bytes and calls. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"
#include "steps.h"

#include <unistd.h>

#define FEW ((size_t)1000)
#define MANY ((size_t)16000)

static void open_large(void) {
  gmlake_mock_desc large;
  prepare(1);
  gmlake_mock_destroy(mock);
  memset(&large, 0, sizeof(large));
  large.capacity_bytes = (size_t)64 << 30;
  large.granularity_bytes = C;
  large.bookkeeping_only = 1;
  assert_ok(gmlake_mock_create(&large, &mock));
  desc.backend = mock;
  open_lake();
}

/* Without gmlake_check behind each. */
static void *get(size_t bytes, gmlake_stream stream) {
  void *ptr = NULL;
  assert_ok(gmlake_alloc(lake, bytes, stream, &ptr));
  return ptr;
}

static void put(void *ptr, gmlake_stream stream) { assert_ok(gmlake_free(lake, ptr, stream)); }

static void **get_many(size_t count, size_t bytes, gmlake_stream stream) {
  void **blocks = (void **)malloc(count * sizeof(void *));
  size_t i;
  assert_non_null(blocks);
  for (i = 0; i < count; i++) blocks[i] = get(bytes, stream);
  return blocks;
}

#define COSTS 4u

typedef struct costs {
  uint64_t steps[COSTS]; /* of each thing that was done */
} costs;

static unsigned long steps_since(uint64_t before) { return step_count - before; }

/* Beside 16 times as much nothing takes twice as long. */
static void compare(void (*measure)(size_t count, costs *out)) {
  costs few, many;
  size_t i;
  need_steps();
  memset(&few, 0, sizeof(few));
  memset(&many, 0, sizeof(many));
  measure(FEW, &few);
  measure(MANY, &many);
  for (i = 0; i < COSTS; i++)
    if (many.steps[i] > 2 * few.steps[i])
      fail_msg("%d: %d steps beside %d, %d beside %d", (int)i, (int)few.steps[i], (int)FEW,
               (int)many.steps[i], (int)MANY);
}

/* ---- Memory that is clean and memory of a stream, in turn ------------------------------------ */

static void measure_run(size_t count, costs *out) {
  gmlake_stream stream, other;
  uint64_t before;
  void **blocks, *ptr;
  size_t i;
  open_large();
  stream = open_stream();
  blocks = get_many(count, 512, stream);
  for (i = 0; i < count; i += 2) put(blocks[i], NONE);
  before = step_count;
  for (i = 1; i < count; i += 2) put(blocks[i], stream);
  out->steps[0] = steps_since(before) / (count / 2);
  assert_ok(gmlake_check(lake));
  before = step_count;
  for (i = 0; i < 16; i++) put(get(512, stream), stream);
  out->steps[1] = steps_since(before);
  before = step_count; /* clean memory out of the middle, and back */
  for (i = 0; i < 16; i++) put(get(512, NONE), NONE);
  out->steps[2] = steps_since(before);
  assert_ok(gmlake_check(lake));
  other = open_stream();
  put(get(512, other), other);
  before = step_count;
  for (i = 0; i < 16; i++) blocks[i] = get(512, other);
  for (i = 0; i < 16; i++) put(blocks[i], other);
  out->steps[3] = steps_since(before);
  ptr = get(count / 2 * 512, stream); /* one range of many pieces */
  put(ptr, stream);
  free(blocks);
  finish();
}

static void runs(void **state) {
  (void)state;
  compare(measure_run);
}

/* The same by an event that completes, without GMLAKE_STREAM_NONE. */
static void measure_swept_run(size_t count, costs *out) {
  gmlake_stream stream;
  uint64_t before;
  gmlake_budget budget;
  void **blocks;
  size_t i;
  open_large();
  stream = open_stream();
  blocks = get_many(count, 4096, stream);
  for (i = 0; i < count; i += 2) put(blocks[i], stream);
  before = step_count;
  assert_ok(gmlake_get_budget(lake, &budget));
  out->steps[0] = steps_since(before) / count;
  before = step_count;
  for (i = 1; i < count; i += 2) put(blocks[i], stream);
  out->steps[1] = steps_since(before) / (count / 2);
  before = step_count;
  for (i = 0; i < 16; i++) put(get(4096, stream), stream);
  out->steps[2] = steps_since(before);
  before = step_count;
  assert_ok(gmlake_get_budget(lake, &budget)); /* joins all */
  out->steps[3] = steps_since(before) / count;
  free(blocks);
  finish();
}

static void swept_runs(void **state) {
  (void)state;
  compare(measure_swept_run);
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* Beside many live windows, each of two chunks that do not lie together. */
static void measure_questions(size_t count, costs *out) {
  void **blocks = (open_large(), get_many(2 * count, C, LEGACY)), *wrong;
  gmlake_alloc_desc wanted = request(512, 0, NULL);
  gmlake_allocation_info info;
  gmlake_query_info answer;
  uint64_t before;
  size_t i, parts;
  for (i = 0; i < 2 * count; i += 2) put(blocks[i], LEGACY);
  for (i = 0; i < count / 2; i++) blocks[i] = get(2 * C, LEGACY);
  (void)get(C + 512, LEGACY);
  before = step_count;
  for (i = 0; i < 16; i++)
    assert_ok(gmlake_find(lake, (char *)blocks[i * (count / 32)] + C + i, &info));
  out->steps[0] = steps_since(before);
  before = step_count;
  for (i = 0; i < 16; i++)
    assert_ok(gmlake_get_chunks(lake, (char *)blocks[i * (count / 32)] + C, NULL, 0, &parts));
  out->steps[1] = steps_since(before);
  before = step_count;
  for (i = 0; i < 16; i++) {
    wrong = (char *)blocks[i * (count / 32)] + C;
    assert_error(gmlake_free(lake, wrong, LEGACY), UNKNOWN_POINTER);
  }
  out->steps[2] = steps_since(before);
  before = step_count;
  for (i = 0; i < 16; i++, wanted.bytes = i * C) /* a hole, then growth */
    assert_ok(gmlake_query(lake, &wanted, LEGACY, &answer));
  out->steps[3] = steps_since(before);
  free(blocks);
  finish();
}

static void questions(void **state) {
  (void)state;
  compare(measure_questions);
}

/* What is asked of all is asked of each. */
static void measure_lists(size_t count, costs *out) {
  void **blocks = (open_large(), get_many(2 * count, 512, LEGACY));
  gmlake_map_entry *map;
  gmlake_stats figures;
  uint64_t before;
  size_t i, entries;
  for (i = 0; i < 2 * count; i += 2) put(blocks[i], LEGACY);
  assert_ok(gmlake_get_map(lake, NULL, 0, &entries));
  map = (gmlake_map_entry *)malloc(entries * sizeof(*map));
  assert_non_null(map);
  before = step_count;
  assert_ok(gmlake_get_map(lake, map, entries, &entries));
  out->steps[0] = steps_since(before) / entries;
  figures.struct_bytes = 0;
  before = step_count;
  assert_ok(gmlake_pool_get_stats(lake, NULL, &figures));
  out->steps[1] = steps_since(before) / entries;
  assert_int_equal(figures.live_count, count);
  free(map);
  free(blocks);
  finish();
}

static void lists(void **state) {
  (void)state;
  compare(measure_lists);
}

/* ---- Growth ---------------------------------------------------------------------------------- */

/* Beside gaps that trim left, each of a chunk. */
static void measure_gaps(size_t count, costs *out) {
  gmlake_stream stream;
  gmlake_alloc_desc one_piece = request(2 * C, GMLAKE_NO_STITCH, NULL);
  uint64_t before;
  void **blocks, *ptr;
  size_t i;
  open_large();
  stream = open_stream();
  blocks = get_many(2 * count, C, stream);
  for (i = 0; i < 2 * count; i += 2) put(blocks[i], stream);
  before = step_count;
  assert_ok(gmlake_trim(lake, 0, NULL));
  out->steps[0] = steps_since(before) / count;
  before = step_count;
  for (i = 0; i < 16; i++) blocks[2 * i] = get(C, stream);
  out->steps[1] = steps_since(before);
  before = step_count;
  for (i = 0; i < 16; i++) assert_ok(gmlake_alloc_with(lake, &one_piece, stream, &ptr));
  out->steps[2] = steps_since(before);
  before = step_count; /* a window in two gaps */
  put(blocks[41], stream);
  ptr = get(3 * C, stream);
  out->steps[3] = steps_since(before);
  free(blocks);
  finish();
}

/* Growth sixteen times, each after something has completed on a stream of its own. */
static uint64_t steps_of_growth(gmlake_stream stream, gmlake_stream other) {
  uint64_t before = step_count;
  size_t i;
  for (i = 0; i < 16; i++) {
    void *ptr = get(512, stream);
    assert_ok(gmlake_record_stream(lake, ptr, other));
    put(ptr, stream);
    (void)get(C, stream);
  }
  return steps_since(before);
}

/* Beside frees that wait for a stream whose work goes on. */
static void measure_pending(size_t count, costs *out) {
  gmlake_stream stream, held, other;
  void **blocks;
  size_t i;
  open_large();
  stream = open_stream();
  held = open_stream();
  other = open_stream();
  gmlake_mock_stream_hold(mock, held);
  blocks = get_many(count, 512, stream);
  for (i = 0; i < count; i++) assert_ok(gmlake_record_stream(lake, blocks[i], held));
  for (i = 0; i < count; i++) put(blocks[i], stream);
  assert_int_equal(stats().pending_bytes, count * 512);
  out->steps[0] = steps_of_growth(stream, other);
  assert_int_equal(stats().pending_bytes, count * 512); /* the others are free again */
  assert_ok(gmlake_check(lake));
  gmlake_mock_stream_finish(mock, held);
  (void)get(2 * C, stream);
  assert_int_equal(stats().pending_bytes, 0);
  free(blocks);
  finish();
}

/* Beside free memory of a stream whose work goes on, in many pieces. */
static void measure_held(size_t count, costs *out) {
  gmlake_stream stream, held, other;
  void **blocks;
  size_t i;
  open_large();
  stream = open_stream();
  held = open_stream();
  other = open_stream();
  gmlake_mock_stream_hold(mock, held);
  blocks = get_many(2 * count, 512, held);
  for (i = 0; i < count; i++) put(blocks[2 * i], held);
  out->steps[0] = steps_of_growth(stream, other);
  gmlake_mock_stream_finish(mock, held);
  free(blocks);
  finish();
}

/* Captures and loans of an empty pool, beside frees of other pools' blocks that wait. */
static void measure_captures(size_t count, costs *out) {
  gmlake_stream stream, held;
  gmlake_pool *pool;
  uint64_t before;
  void **blocks;
  size_t i;
  open_large();
  stream = open_stream();
  held = open_stream();
  pool = open_pool(0);
  gmlake_mock_stream_hold(mock, held);
  blocks = get_many(count, 512, stream);
  for (i = 0; i < count; i++) assert_ok(gmlake_record_stream(lake, blocks[i], held));
  for (i = 0; i < count; i++) put(blocks[i], stream);
  before = step_count;
  for (i = 0; i < 16; i++) {
    assert_ok(gmlake_capture_begin(lake, stream, pool));
    assert_ok(gmlake_capture_end(lake, stream));
  }
  out->steps[0] = steps_since(before);
  before = step_count;
  for (i = 0; i < 16; i++) {
    assert_ok(gmlake_pool_lend(lake, pool, stream));
    assert_ok(gmlake_pool_recall(lake, pool, stream));
  }
  out->steps[1] = steps_since(before);
  gmlake_mock_stream_finish(mock, held);
  free(blocks);
  finish();
}

static void captures_beside_pending_frees(void **state) {
  (void)state;
  compare(measure_captures);
}

static void *get_exported(gmlake_stream stream) {
  const gmlake_alloc_desc whole = request(C, GMLAKE_EXCLUSIVE, NULL);
  gmlake_handle handle;
  size_t parts;
  void *ptr;
  assert_ok(gmlake_alloc_with(lake, &whole, stream, &ptr));
  assert_ok(gmlake_export(lake, ptr, GMLAKE_HANDLE_POSIX_FD, &handle, 1, &parts));
  assert_int_equal(close(handle.fd), 0);
  return ptr;
}

/* Frees of exported memory, and trims that return it, beside frees that wait. */
static void measure_returns(size_t count, costs *out) {
  gmlake_stream stream, held, later;
  void **blocks, *exported[32];
  gmlake_budget budget;
  uint64_t before;
  size_t i;
  prepare(2 * count);
  desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  open_lake();
  stream = open_stream();
  held = open_stream();
  later = open_stream();
  gmlake_mock_stream_hold(mock, held);
  for (i = 0; i < 32; i++) exported[i] = get_exported(i < 16 ? stream : later);
  blocks = get_many(count, 512, stream);
  for (i = 0; i < count; i++) assert_ok(gmlake_record_stream(lake, blocks[i], held));
  for (i = 0; i < count; i++) put(blocks[i], stream);
  before = step_count;
  for (i = 0; i < 16; i++) put(exported[i], stream);
  out->steps[0] = steps_since(before);
  assert_ok(gmlake_trim(lake, stats().reserved_bytes, NULL)); /* makes the index smaller */
  gmlake_mock_stream_hold(mock, later);
  for (i = 16; i < 32; i++) put(exported[i], later);
  gmlake_mock_stream_finish(mock, later);
  assert_int_equal(stats().exported_bytes, 16 * C);
  assert_ok(gmlake_get_budget(lake, &budget)); /* sees what has completed */
  before = step_count;
  assert_ok(gmlake_trim(lake, stats().reserved_bytes, NULL));
  out->steps[1] = steps_since(before);
  assert_int_equal(stats().exported_bytes, 0);
  before = step_count;
  assert_ok(gmlake_trim(lake, stats().reserved_bytes, NULL));
  out->steps[1] -= steps_since(before); /* a trim that returns nothing */
  gmlake_mock_stream_finish(mock, held);
  free(blocks);
  finish();
}

static void returns_beside_pending_frees(void **state) {
  (void)state;
  compare(measure_returns);
}

static void growth_beside_a_held_streams_memory(void **state) {
  (void)state;
  compare(measure_held);
}

static void growth_beside_pending_frees(void **state) {
  (void)state;
  compare(measure_pending);
}

static void growth_beside_gaps(void **state) {
  (void)state;
  compare(measure_gaps);
}

/* ---- Best fit -------------------------------------------------------------------------------- */

/* Holes of one bin, all a grain too short: that there is none is found out once. */
static void measure_short_holes(size_t count, costs *out) {
  gmlake_stream stream;
  uint64_t before;
  void **blocks;
  size_t i;
  open_large();
  stream = open_stream();
  blocks = get_many(2 * count, C / 2, stream);
  for (i = 0; i < 2 * count; i++) put(blocks[i], stream);
  for (i = 0; i < count; i++) { /* side by side, a chunk of 128 grains for both */
    blocks[2 * i] = get(8 * 512, stream);
    blocks[2 * i + 1] = get(120 * 512, stream);
  }
  for (i = 0; i < count; i++) put(blocks[2 * i + 1], stream);
  (void)get(121 * 512, stream);
  before = step_count;
  for (i = 0; i < 16; i++) (void)get(121 * 512, stream);
  out->steps[0] = steps_since(before);
  free(blocks);
  finish();
}

static gmlk_block hole_blocks[MANY];

/* Those that are long enough lie behind all others. */
static void measure_last_holes(size_t count, costs *out) {
  gmlk_bins *holes;
  gmlk_host host;
  uint64_t before = 0;
  size_t i;
  memset(&host, 0, sizeof(host));
  memset(hole_blocks, 0, sizeof(hole_blocks));
  holes = gmlk_bins_new(&host);
  assert_non_null(holes);
  for (i = 0; i < count; i++) gmlk_bins_insert(holes, &hole_blocks[i], i < 32 ? 4050 : 4032);
  for (i = 0; i < 32; i++) {
    gmlk_block *b = gmlk_bins_best(holes, 4040);
    assert_non_null(b);
    assert_int_equal(b->hole, 4050);
    gmlk_bins_remove(holes, b);
    if (i == 0) before = step_count;
  }
  out->steps[0] = steps_since(before);
  assert_null(gmlk_bins_best(holes, 4040)); /* reads all once more */
  before = step_count;
  for (i = 0; i < 32; i++) assert_null(gmlk_bins_best(holes, 4040 + i % 8));
  out->steps[1] = steps_since(before);
  gmlk_bins_destroy(holes, &host);
}

static void best_fit_beside_short_holes(void **state) {
  (void)state;
  compare(measure_short_holes);
  compare(measure_last_holes);
}

/* ---- Trim ------------------------------------------------------------------------------------ */

/* Beside places behind buffers' fronts. */
static void measure_trim(size_t count, costs *out) {
  gmlake_buffer *buffers[160];
  gmlake_stream stream;
  uint64_t before;
  size_t i, each = 100;
  open_large();
  stream = open_stream();
  for (i = 0; i < count / each; i++) {
    gmlake_buffer_desc wanted = buffer_desc(each * C);
    assert_ok(gmlake_buffer_create(lake, &wanted, &buffers[i]));
    assert_ok(gmlake_buffer_resize(lake, buffers[i], each * C, stream));
  }
  for (i = 0; i < count / each; i++) assert_ok(gmlake_buffer_resize(lake, buffers[i], 0, stream));
  before = step_count;
  assert_ok(gmlake_trim(lake, 0, NULL));
  out->steps[0] = steps_since(before) / count;
  assert_int_equal(stats().reserved_bytes, 0);
  finish();
}

static void trim_beside_buffers(void **state) {
  (void)state;
  compare(measure_trim);
}

/* ---- Commits --------------------------------------------------------------------------------- */

/* A chunk more and a chunk less, beside other buffers; then of memory that blocks left, beside what
   buffers gave up. */
static void measure_commits(size_t count, costs *out) {
  const gmlake_buffer_desc wanted = buffer_desc(4 * C);
  gmlake_buffer *first = NULL, *last = NULL;
  uint64_t before;
  size_t i;
  void *p;
  open_large();
  for (i = 0; i < count; i++) {
    assert_ok(gmlake_buffer_create(lake, &wanted, &last)); /* without a check of all before it */
    if (!i) first = last;
    assert_ok(gmlake_buffer_resize(lake, last, 2 * C, LEGACY));
  }
  before = step_count;
  for (i = 0; i < 10; i++) {
    assert_ok(gmlake_buffer_resize(lake, i % 2 ? first : last, 3 * C, LEGACY));
    assert_ok(gmlake_buffer_resize(lake, i % 2 ? first : last, 2 * C, LEGACY));
  }
  out->steps[0] = steps_since(before);
  p = get(C, LEGACY);
  put(p, LEGACY);
  assert_ok(gmlake_buffer_resize(lake, last, C, LEGACY));
  before = step_count;
  assert_ok(gmlake_buffer_resize(lake, first, 4 * C, LEGACY));
  out->steps[1] = steps_since(before);
  assert_ok(gmlake_destroy(lake));
  gmlake_mock_destroy(mock);
}

static void commits_beside_buffers(void **state) {
  (void)state;
  compare(measure_commits);
}

/* ---- Host memory ----------------------------------------------------------------------------- */

static size_t metadata(void) { return stats().metadata_bytes; }

/* What many blocks took goes back when they are gone, all of it or as much as is. */
static void trim_gives_host_memory_back(void **state) {
  gmlake_stream stream;
  size_t before, full, left, i;
  void **blocks, *windows[2];
  (void)state;
  open_large();
  stream = open_stream();
  put(get(512, stream), stream);
  before = metadata();
  blocks = get_many(3 * MANY, 512, stream);
  full = metadata();
  assert_true(full > 3 * MANY * 80);
  for (i = 0; i < 3 * MANY; i++)
    if (i % 1000) put(blocks[i], stream);
  step(gmlake_trim(lake, 0, NULL));
  assert_true(metadata() < full / 8); /* a block in each thousand pins a page of 63 */
  for (i = 0; i < 3 * MANY; i += 1000)
    if (i >= 2000) put(blocks[i], stream);
  step(gmlake_trim(lake, 0, NULL));
  left = metadata();
  assert_true(left < before + 40 * K);
  put(blocks[0], stream);
  put(blocks[1000], stream);
  step(gmlake_trim(lake, 0, NULL));
  assert_true(metadata() < left + 4 * K);
  free(blocks);
  for (i = 0; i < 2; i++) { /* and again: nothing is left behind each time */
    blocks = get_many(MANY, 512, stream);
    windows[0] = get(4 * C, stream);
    for (full = 0; full < MANY; full++) put(blocks[full], stream);
    put(windows[0], stream);
    step(gmlake_trim(lake, 0, NULL));
    assert_true(metadata() < before + 40 * K);
    free(blocks);
  }
  finish();
}

/* A window that waits for a block does not ask the block's record when that has gone back. */
static void a_blockers_record_goes(void **state) {
  gmlake_stream stream;
  void **blocks, *b[4], *window, *part;
  size_t i;
  (void)state;
  open_large();
  stream = open_stream();
  flood(4);
  for (i = 0; i < 4; i++) b[i] = take_on(C, stream);
  drop_on(b[0], stream);
  drop_on(b[2], stream);
  window = take_on(2 * C, stream);
  assert_int_equal(piece_count(window), 2);
  drop_on(window, stream);
  blocks = get_many(MANY, 4096, stream); /* takes the window's pieces, too */
  part = take_on(2 * C, stream);
  for (i = 0; i < MANY; i++) put(blocks[i], stream);
  step(gmlake_trim(lake, 6 * C, NULL));
  put(part, stream);
  for (i = 0; i < 3; i++) drop_on(take_on(2 * C, stream), stream);
  free(blocks);
  finish();
}

/* Trim at each low takes nothing that the next high has to ask the host for, but where it is more
   than three times as high. */
static void trim_makes_no_storm(void **state) {
  const long many = 1L << 30;
  gmlake_stream stream;
  void **blocks;
  size_t i, n;
  (void)state;
  open_large();
  stream = open_stream();
  blocks = get_many(MANY, 512, stream);
  for (n = 0; n < 4; n++) {
    for (i = MANY / 3; i < MANY; i++) put(blocks[i], stream);
    step(gmlake_trim(lake, 0, NULL));
    host_fail_in = many;
    for (i = MANY / 3; i < MANY; i++) blocks[i] = get(512, stream);
    assert_true(many - host_fail_in < 8);
    host_fail_in = 0;
  }
  for (i = 0; i < MANY; i++) put(blocks[i], stream);
  free(blocks);
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs),
      cmocka_unit_test(swept_runs),
      cmocka_unit_test(questions),
      cmocka_unit_test(lists),
      cmocka_unit_test(growth_beside_gaps),
      cmocka_unit_test(growth_beside_pending_frees),
      cmocka_unit_test(growth_beside_a_held_streams_memory),
      cmocka_unit_test(captures_beside_pending_frees),
      cmocka_unit_test(returns_beside_pending_frees),
      cmocka_unit_test(best_fit_beside_short_holes),
      cmocka_unit_test(trim_beside_buffers),
      cmocka_unit_test(commits_beside_buffers),
      cmocka_unit_test(trim_gives_host_memory_back),
      cmocka_unit_test(a_blockers_record_goes),
      cmocka_unit_test(trim_makes_no_storm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
