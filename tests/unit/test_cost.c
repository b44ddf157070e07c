/* What the manual says of costs, counted in steps: each row does the same beside few things and
   beside many. Where this is compiled without step_count.c, these are skipped. And what host
   memory the lake takes, counted in bytes and calls. */
#include "fixture.h"
#include "steps.h"

#include <unistd.h>

#define FEW ((size_t)1000)
#define MANY ((size_t)16000)

static gmlake_stream s, held, other;
static void **blocks;

static void open_streams(void) {
  s = open_stream();
  held = open_stream();
  other = open_stream();
}

static void open_large(void) {
  prepare_books((size_t)64 << 30, C, GMLAKE_MOCK_COSTS_ALONE);
  desc.chunk_bytes = C;
  open_lake();
  open_streams();
}

/* Without gmlake_check behind each. */
static void *get(size_t bytes, gmlake_stream stream) {
  void *ptr = NULL;
  assert_ok(gmlake_alloc(lake, bytes, stream, &ptr));
  return ptr;
}

static void put(void *ptr, gmlake_stream stream) { assert_ok(gmlake_free(lake, ptr, stream)); }

static void get_many(size_t count, size_t bytes, gmlake_stream stream) {
  size_t i;
  free(blocks);
  blocks = (void **)malloc(count * sizeof(void *));
  assert_non_null(blocks);
  for (i = 0; i < count; i++) blocks[i] = get(bytes, stream);
}

static void put_every(size_t from, size_t by, size_t end, gmlake_stream stream) {
  for (; from < end; from += by) put(blocks[from], stream);
}

static void get_and_put(size_t bytes, gmlake_stream stream) {
  size_t i;
  for (i = 0; i < 16; i++) put(get(bytes, stream), stream);
}

/* Blocks that wait for the work on `held`. */
static void free_behind_held(size_t count) {
  size_t i;
  gmlake_mock_stream_hold(mock, held);
  get_many(count, 512, s);
  for (i = 0; i < count; i++) assert_ok(gmlake_record_stream(lake, blocks[i], held));
  put_every(0, 1, count, s);
}

#define COSTS 4u

static uint64_t costs[2][COSTS],
    begun; /* beside few and beside many, of each thing that was done */
static size_t side, cost_count;

static void begin(void) { begun = step_count; }

/* What was done since the beginning was done so many times. Begins again. */
static void cost(size_t times) {
  const uint64_t steps = (step_count - begun) / times;
  assert_true(cost_count < COSTS);
  costs[side][cost_count++] = steps;
  begin();
}

/* ---- What a row is --------------------------------------------------------------------------- */

typedef struct row {
  void (*measure)(size_t count);
  int exports; /* on a mock that has memory */
} row;

/* Beside 16 times as much nothing takes twice as long. */
static void a_row(void **state) {
  const row *r = (const row *)*state;
  size_t i;
  need_steps();
  for (side = 0; side < 2; side++) {
    const size_t count = side ? MANY : FEW;
    cost_count = 0;
    if (r->exports) {
      prepare(2 * count);
      desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
      open_lake();
      open_streams();
    } else {
      open_large();
    }
    r->measure(count);
    if (side == 0) assert_ok(gmlake_check(lake));
    assert_ok(gmlake_destroy(lake));
    close_mock();
  }
  for (i = 0; i < cost_count; i++)
    if (costs[1][i] > 2 * costs[0][i])
      fail_msg("%d: %d steps beside %d, %d beside %d", (int)i, (int)costs[0][i], (int)FEW,
               (int)costs[1][i], (int)MANY);
}

#define ROW(name) CASE_OF(row, a_row, (size_t count), name, 0)
#define ROW_OF_EXPORTS(name) CASE_OF(row, a_row, (size_t count), name, 1)

/* ---- Memory that is clean and memory of a stream, in turn ------------------------------------ */

ROW(runs) {
  size_t i;
  get_many(count, 512, s);
  put_every(0, 2, count, NONE);
  begin();
  put_every(1, 2, count, s);
  cost(count / 2);
  assert_ok(gmlake_check(lake));
  begin();
  get_and_put(512, s);
  cost(1);
  get_and_put(512, NONE); /* clean memory out of the middle, and back */
  cost(1);
  assert_ok(gmlake_check(lake));
  put(get(512, other), other);
  begin();
  for (i = 0; i < 16; i++) blocks[i] = get(512, other);
  put_every(0, 1, 16, other);
  cost(1);
  put(get(count / 2 * 512, s), s); /* one range of many pieces */
}

/* The same by an event that completes, without GMLAKE_STREAM_NONE. */
ROW(swept_runs) {
  gmlake_budget budget;
  get_many(count, 4096, s);
  put_every(0, 2, count, s);
  begin();
  assert_ok(gmlake_get_budget(lake, &budget));
  cost(count);
  put_every(1, 2, count, s);
  cost(count / 2);
  get_and_put(4096, s);
  cost(1);
  assert_ok(gmlake_get_budget(lake, &budget)); /* joins all */
  cost(count);
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* Beside many live windows, each of two chunks that do not lie together. */
ROW(questions) {
  gmlake_alloc_desc wanted = request(512, 0, NULL);
  gmlake_map_entry info;
  gmlake_query_info answer;
  void *behind[16];
  size_t i, parts;
  get_many(2 * count, C, LEGACY);
  put_every(0, 2, 2 * count, LEGACY);
  for (i = 0; i < count / 2; i++) blocks[i] = get(2 * C, LEGACY);
  (void)get(C + 512, LEGACY);
  for (i = 0; i < 16; i++) behind[i] = (char *)blocks[i * (count / 32)] + C;
  begin();
  for (i = 0; i < 16; i++) assert_ok(gmlake_find(lake, (char *)behind[i] + i, &info));
  cost(1);
  for (i = 0; i < 16; i++) assert_ok(gmlake_get_chunks(lake, behind[i], NULL, 0, &parts));
  cost(1);
  for (i = 0; i < 16; i++) assert_error(gmlake_free(lake, behind[i], LEGACY), UNKNOWN_POINTER);
  cost(1);
  for (i = 0; i < 16; i++, wanted.bytes = i * C) /* a hole, then growth */
    assert_ok(gmlake_query(lake, &wanted, LEGACY, &answer));
  cost(1);
}

/* What is asked of all is asked of each. */
ROW(lists) {
  gmlake_map_entry *map;
  gmlake_stats figures;
  size_t entries;
  get_many(2 * count, 512, LEGACY);
  put_every(0, 2, 2 * count, LEGACY);
  assert_ok(gmlake_get_map(lake, NULL, 0, &entries));
  map = (gmlake_map_entry *)malloc(entries * sizeof(*map));
  assert_non_null(map);
  begin();
  assert_ok(gmlake_get_map(lake, map, entries, &entries));
  cost(entries);
  assert_ok(gmlake_pool_get_stats(lake, NULL, &figures));
  cost(entries);
  assert_int_equal(figures.live_count, count);
  free(map);
}

/* ---- Growth ---------------------------------------------------------------------------------- */

/* Beside gaps that trim left, each of a chunk. */
ROW(growth_beside_gaps) {
  gmlake_alloc_desc one_piece = request(2 * C, GMLAKE_NO_STITCH, NULL);
  void *ptr;
  size_t i;
  get_many(2 * count, C, s);
  put_every(0, 2, 2 * count, s);
  begin();
  assert_ok(gmlake_trim(lake, 0, NULL));
  cost(count);
  for (i = 0; i < 16; i++) blocks[2 * i] = get(C, s);
  cost(1);
  for (i = 0; i < 16; i++) assert_ok(gmlake_alloc_with(lake, &one_piece, s, &ptr));
  cost(1);
  put(blocks[41], s); /* a window in two gaps */
  (void)get(3 * C, s);
  cost(1);
}

/* Growth sixteen times, each after something has completed on a stream of its own. */
static void grow(void) {
  size_t i;
  begin();
  for (i = 0; i < 16; i++) {
    void *ptr = get(512, s);
    assert_ok(gmlake_record_stream(lake, ptr, other));
    put(ptr, s);
    (void)get(C, s);
  }
  cost(1);
}

/* Beside frees that wait for a stream whose work goes on. */
ROW(growth_beside_pending_frees) {
  free_behind_held(count);
  assert_int_equal(stats().pending_bytes, count * 512);
  grow();
  assert_int_equal(stats().pending_bytes, count * 512); /* the others are free again */
  assert_ok(gmlake_check(lake));
  gmlake_mock_stream_finish(mock, held);
  (void)get(2 * C, s);
  assert_int_equal(stats().pending_bytes, 0);
}

/* Beside free memory of a stream whose work goes on, in many pieces. */
ROW(growth_beside_a_held_streams_memory) {
  gmlake_mock_stream_hold(mock, held);
  get_many(2 * count, 512, held);
  put_every(0, 2, 2 * count, held);
  grow();
  gmlake_mock_stream_finish(mock, held);
}

/* Captures and loans of an empty pool, beside frees of other pools' blocks that wait. */
ROW(captures_beside_pending_frees) {
  gmlake_pool *pool = open_pool(0);
  size_t i;
  free_behind_held(count);
  begin();
  for (i = 0; i < 16; i++) {
    assert_ok(gmlake_capture_begin(lake, s, pool));
    assert_ok(gmlake_capture_end(lake, s));
  }
  cost(1);
  for (i = 0; i < 16; i++) {
    assert_ok(gmlake_pool_lend(lake, pool, s));
    assert_ok(gmlake_pool_recall(lake, pool, s));
  }
  cost(1);
  gmlake_mock_stream_finish(mock, held);
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
ROW_OF_EXPORTS(returns_beside_pending_frees) {
  void *exported[32];
  gmlake_budget budget;
  size_t i;
  for (i = 0; i < 32; i++) exported[i] = get_exported(i < 16 ? s : other);
  free_behind_held(count);
  begin();
  for (i = 0; i < 16; i++) put(exported[i], s);
  cost(1);
  assert_ok(gmlake_trim(lake, stats().reserved_bytes, NULL));
  gmlake_mock_stream_hold(mock, other);
  for (i = 16; i < 32; i++) put(exported[i], other);
  gmlake_mock_stream_finish(mock, other);
  assert_int_equal(stats().exported_bytes, 16 * C);
  assert_ok(gmlake_get_budget(lake, &budget)); /* sees what has completed */
  begin();
  assert_ok(gmlake_trim(lake, stats().reserved_bytes, NULL));
  cost(1);
  assert_int_equal(stats().exported_bytes, 0);
  begin(); /* a trim that returns nothing does not count */
  assert_ok(gmlake_trim(lake, stats().reserved_bytes, NULL));
  costs[side][1] -= step_count - begun;
  gmlake_mock_stream_finish(mock, held);
}

/* ---- Best fit -------------------------------------------------------------------------------- */

/* Holes of one bin, all a grain too short: that there is none is found out once. */
ROW(best_fit_beside_short_holes) {
  size_t i;
  get_many(2 * count, C / 2, s);
  put_every(0, 1, 2 * count, s);
  for (i = 0; i < 2 * count; i++) /* side by side, a chunk of 128 grains for two */
    blocks[i] = get((i % 2 ? 120 : 8) * 512, s);
  put_every(1, 2, 2 * count, s);
  (void)get(121 * 512, s);
  begin();
  for (i = 0; i < 16; i++) (void)get(121 * 512, s);
  cost(1);
}

static gmlk_block hole_blocks[MANY];

/* Those that are long enough lie behind all others. */
ROW(best_fit_behind_short_holes) {
  gmlk_bins *holes;
  gmlk_host host;
  size_t i;
  memset(&host, 0, sizeof(host));
  memset(hole_blocks, 0, sizeof(hole_blocks));
  holes = gmlk_bins_new(&host);
  assert_non_null(holes);
  for (i = 0; i < count; i++) gmlk_bins_insert(holes, &hole_blocks[i], i < 32 ? 4050 : 4032);
  for (i = 0; i < 32; i++) {
    gmlk_block *b = gmlk_bins_best(holes, 4040);
    assert_non_null(b);
    assert_int_equal(b->its.hole, 4050);
    gmlk_bins_remove(holes, b);
    if (i == 0) begin();
  }
  cost(1);
  assert_null(gmlk_bins_best(holes, 4040)); /* reads all once more */
  begin();
  for (i = 0; i < 32; i++) assert_null(gmlk_bins_best(holes, 4040 + i % 8));
  cost(1);
  gmlk_host_free(&host, holes, sizeof(gmlk_bins));
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static gmlake_buffer *new_buffer(size_t max_chunks, size_t chunks) { /* without a check of all */
  const gmlake_buffer_desc wanted = buffer_desc(max_chunks * C);
  gmlake_buffer *buffer = NULL;
  assert_ok(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_ok(gmlake_buffer_resize(lake, buffer, chunks * C, LEGACY));
  return buffer;
}

static void resize(gmlake_buffer *buffer, size_t chunks) {
  assert_ok(gmlake_buffer_resize(lake, buffer, chunks * C, LEGACY));
}

/* Beside places behind buffers' fronts. */
ROW(trim_beside_buffers) {
  gmlake_buffer *buffers[160];
  size_t i, each = 100;
  for (i = 0; i < count / each; i++) buffers[i] = new_buffer(each, each);
  for (i = 0; i < count / each; i++) resize(buffers[i], 0);
  begin();
  assert_ok(gmlake_trim(lake, 0, NULL));
  cost(count);
  assert_int_equal(stats().reserved_bytes, 0);
}

/* A chunk more and a chunk less, beside other buffers; then of memory that blocks left, beside what
   buffers gave up. */
ROW(commits_beside_buffers) {
  gmlake_buffer *first = new_buffer(4, 2), *last = NULL;
  size_t i;
  for (i = 1; i < count; i++) last = new_buffer(4, 2);
  begin();
  for (i = 0; i < 10; i++) {
    resize(i % 2 ? first : last, 3);
    resize(i % 2 ? first : last, 2);
  }
  cost(1);
  put(get(C, LEGACY), LEGACY);
  resize(last, 1);
  begin();
  resize(first, 4);
  cost(1);
}

/* ---- Host memory ----------------------------------------------------------------------------- */

static size_t metadata(void) { return stats().metadata_bytes; }

/* What many blocks took serves as many again. */
CASE(records_serve_again) {
  size_t full, n;
  open_large();
  get_many(MANY, 512, s);
  full = metadata();
  for (n = 0; n < 4; n++) {
    put_every(0, 1, MANY, s);
    step(gmlake_trim(lake, 0, NULL));
    get_many(MANY, 512, s);
    assert_int_equal(metadata(), full);
  }
  put_every(0, 1, MANY, s);
  finish();
}

int main(void) { return run_cases("cost"); }
