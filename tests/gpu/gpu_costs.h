/* What commits, sleep and waking cost. `build/gpu_bench vmm` has what the driver alone takes for
   such chunks. Include after gpu_fixture.h. */
#if !defined(GPU_COSTS_H)
#define GPU_COSTS_H

#define ROUNDS 5

static double us_each(uint64_t start, size_t count) {
  return (double)(now_ns() - start) / 1e3 / (double)count;
}

static double seconds_since(uint64_t start) { return (double)(now_ns() - start) / 1e9; }

enum { FRESH, REMAPPED, REPLACED, STILL_MAPPED, COMMITS };

static gmlake_buffer *buffer_of(gmlake *lake, size_t chunks) {
  gmlake_buffer_desc wanted;
  gmlake_buffer *buffer = NULL;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = chunks * CHUNK;
  wanted.chunk_bytes = CHUNK;
  ok(gmlake_buffer_create(lake, &wanted, &buffer));
  return buffer;
}

static double commit_us(gmlake *lake, gmlake_buffer *buffer, size_t count, CUstream stream) {
  const uint64_t start = now_ns();
  size_t i;
  for (i = 0; i < count; i++)
    ok(gmlake_buffer_commit(lake, buffer, i * CHUNK, CHUNK, NULL, stream));
  return us_each(start, count);
}

static void discard_all(gmlake *lake, gmlake_buffer *buffer, size_t count, CUstream stream) {
  ok(gmlake_buffer_discard(lake, buffer, 0, count * CHUNK, stream));
  await_stream(stream);
}

/* us of a commit of 2 MiB, by where the chunk comes from. */
static void lake_commits(size_t chunk_bytes, size_t count, double us[COMMITS]) {
  gmlake_desc desc = small_chunks(0);
  gmlake_buffer *first, *second, *third;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  gmlake *lake;
  desc.chunk_bytes = chunk_bytes;
  lake = new_lake(&desc);
  first = buffer_of(lake, count);
  second = buffer_of(lake, count);
  third = buffer_of(lake, count);
  us[FRESH] = commit_us(lake, first, count, stream);
  discard_all(lake, first, count, stream);
  us[STILL_MAPPED] = commit_us(lake, first, count, stream);
  discard_all(lake, first, count, stream);
  us[REMAPPED] =
      commit_us(lake, second, count, stream); /* what the first one had, and maps still */
  (void)commit_us(lake, third, count, stream);
  discard_all(lake, third, count, stream);
  us[REPLACED] = commit_us(lake, first, count, stream); /* what the third one had; its own go */
  ok(gmlake_buffer_destroy(lake, first, stream));
  ok(gmlake_buffer_destroy(lake, second, stream));
  ok(gmlake_buffer_destroy(lake, third, stream));
  close_lake(lake);
  cu(rig.gpu.cuStreamDestroy(stream));
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double middle(double values[ROUNDS]) {
  qsort(values, ROUNDS, sizeof(values[0]), by_value);
  return values[ROUNDS / 2];
}

/* Medians of five rounds that take turns: a lake whose blocks have chunks of 16 MiB, and one in
   which blocks and buffers share chunks. */
static void case_commit_costs(void) {
  static const char *const names[] = {"chunks of its own", "shared with blocks"};
  const size_t count = scale(256, 8);
  double us[2][COMMITS][ROUNDS], one[COMMITS];
  size_t who, kind, round;
  for (round = 0; round < ROUNDS; round++)
    for (who = 0; who < count_of(names); who++) {
      lake_commits(who ? CHUNK : 16 * MIB, count, one);
      for (kind = 0; kind < COMMITS; kind++) us[who][kind][round] = one[kind];
    }
  tell("us for a commit of 2 MiB (new, remapped, another mapping goes first, still mapped):");
  for (who = 0; who < count_of(names); who++)
    tell(" %s %.1f %.1f %.1f %.2f;", names[who], middle(us[who][FRESH]), middle(us[who][REMAPPED]),
         middle(us[who][REPLACED]), middle(us[who][STILL_MAPPED]));
}

/* ---- Sleep ----------------------------------------------------------------------------------- */

/* Seconds for one sleep and one wake. The driver has meanwhile what the lake says, but for what it
   takes for the stream that copies and for pinned memory: 82 MiB beside 40 GiB, on an H100. */
static void time_round(gmlake *lake, gmlake_pool *pool, gmlake_sleep_mode mode, double seconds[2]) {
  const size_t before = free_memory(), slack = scale(128 * MIB, 0);
  uint64_t start = now_ns();
  size_t released = 0;
  ok(gmlake_pool_sleep(lake, pool, mode, &released));
  seconds[0] = seconds_since(start);
  require(released > 0 && free_memory() + slack >= before + released,
          "%zu bytes released, %zu free before, %zu after", released, before, free_memory());
  start = now_ns();
  ok(gmlake_pool_wake(lake, pool));
  seconds[1] = seconds_since(start);
}

/* Blocks of so many bytes in all, in chunks of 16 MiB, two rounds. */
static void time_blocks(size_t bytes, gmlake_sleep_mode mode, double first[2], double second[2]) {
  const size_t each = scale(GIB, 32 * MIB);
  gmlake_desc desc = small_chunks(0);
  gmlake_pool *pool;
  gmlake *lake;
  void *blocks[128];
  size_t count = 0, i;
  desc.chunk_bytes = 16 * MIB;
  lake = new_lake(&desc);
  pool = new_pool(lake);
  while (count < count_of(blocks) && (count + 1) * each <= bytes) {
    blocks[count] = take_with(lake, each, 0, pool, NULL);
    fill_on(NULL, blocks[count], each, (uint32_t)count);
    count++;
  }
  cu(rig.gpu.cuCtxSynchronize());
  time_round(lake, pool, mode, first);
  time_round(lake, pool, mode, second);
  for (i = 0; i < count && mode == GMLAKE_SLEEP_KEEP; i++)
    verify_on(NULL, blocks[i], each, (uint32_t)i);
  require_no_wrong_words("blocks that were kept");
  for (i = 0; i < count; i++) ok(gmlake_free(lake, blocks[i], NULL));
  cu(rig.gpu.cuCtxSynchronize());
  ok(gmlake_pool_destroy(lake, pool));
  close_lake(lake);
}

/* A buffer of so many bytes, in chunks of 2 MiB; blocks have chunks of chunk_bytes. */
static void time_buffer(size_t bytes, size_t chunk_bytes, double seconds[2]) {
  gmlake_desc desc = small_chunks(0);
  gmlake_buffer_desc wanted;
  gmlake *lake;
  gmlake_pool *pool;
  gmlake_buffer *buffer = NULL;
  desc.chunk_bytes = chunk_bytes;
  lake = new_lake(&desc);
  pool = new_pool(lake);
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = bytes;
  wanted.chunk_bytes = CHUNK;
  wanted.pool = pool;
  ok(gmlake_buffer_create(lake, &wanted, &buffer));
  ok(gmlake_buffer_resize(lake, buffer, bytes, NULL));
  time_round(lake, pool, GMLAKE_SLEEP_DROP, seconds);
  ok(gmlake_buffer_destroy(lake, buffer, NULL));
  cu(rig.gpu.cuCtxSynchronize());
  ok(gmlake_pool_destroy(lake, pool));
  close_lake(lake);
}

/* As much as 100 GiB dropped, 40 GiB kept: the second time, which need not pin memory. */
static void case_sleep_costs(void) {
  const size_t room = free_memory() / 10 * 9 / GIB * GIB;
  const size_t dropped = scale(room < 100 * GIB ? room : 100 * GIB, 128 * MIB);
  const size_t kept = scale(room < 40 * GIB ? room : 40 * GIB, 128 * MIB);
  double blocks[2][2], own[2], shared[2], first[2], again[2];
  time_blocks(dropped, GMLAKE_SLEEP_DROP, blocks[0], blocks[1]);
  time_buffer(dropped, 16 * MIB, own);
  time_buffer(dropped, CHUNK, shared);
  time_blocks(kept, GMLAKE_SLEEP_KEEP, first, again);
  tell(
      "seconds to sleep and wake, %zu MiB dropped: %.3f %.3f and %.3f %.3f; a buffer's %.3f %.3f, "
      "where blocks share its chunks %.3f %.3f; %zu MiB kept: %.3f %.3f, again %.3f %.3f",
      dropped / MIB, blocks[0][0], blocks[0][1], blocks[1][0], blocks[1][1], own[0], own[1],
      shared[0], shared[1], kept / MIB, first[0], first[1], again[0], again[1]);
}

#endif
