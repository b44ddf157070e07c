/* Pools that sleep and wake: graphs that replay at the same addresses afterwards, and what giving
   memory back and bringing it again costs. Include after gpu_capture.h. */
#if !defined(GPU_SLEEP_H)
#define GPU_SLEEP_H

static void *take_from_pool(gmlake *lake, gmlake_pool *pool, size_t bytes, CUstream stream) {
  gmlake_alloc_desc wanted;
  void *ptr = NULL;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = bytes;
  wanted.pool = pool;
  ok(gmlake_alloc_with(lake, &wanted, stream, &ptr));
  return ptr;
}

/* One round. pre: nothing is queued that uses the pool's memory. */
static void sleep_and_wake(const graph *g, gmlake_sleep_mode mode) {
  const size_t before = free_memory(), reserved = stats_of(g->lake).reserved_bytes;
  const size_t slack = scale(32 * MIB, 0); /* what the driver takes for the stream that copies */
  size_t released = 0, after;
  ok(gmlake_pool_sleep(g->lake, g->pool, mode, &released));
  require(released > 0 && stats_of(g->lake).reserved_bytes + released == reserved,
          "%zu of %zu bytes released", released, reserved);
  after = free_memory();
  require(after + slack >= before + released, "%zu bytes released, %zu free before, %zu after",
          released, before, after);
  ok(gmlake_check(g->lake));
  ok(gmlake_pool_wake(g->lake, g->pool));
  ok(gmlake_check(g->lake));
}

/* A graph whose kernels use windows and blocks of its pool, which sleeps between replays. */
static void case_sleep(void) {
  const size_t rounds = scale(200, 20), bytes = scale(64 * MIB, 4 * MIB);
  const gmlake_desc desc = small_chunks(0);
  gmlake *lake = new_lake(&desc);
  void *weights;
  size_t i, used = 0;
  graph g;
  graph_open(&g, lake);
  weights = take_from_pool(lake, g.pool, bytes, g.stream);
  fill_on(g.stream, weights, bytes, 11);
  graph_begin(&g, CU_STREAM_CAPTURE_MODE_GLOBAL);
  graph_capture_out(&g);
  graph_record(&g, options.seed, 40, NULL, NULL);
  verify_on(g.stream, weights, bytes, 11);
  graph_end(&g);
  cu(rig.gpu.cuGraphInstantiateWithFlags(&g.exec, g.graph, 0));
  graph_replay(&g, 1);
  graph_check_out(&g);
  for (i = 0; i < rounds; i++) {
    const int keeps = i % 2 == 0;
    sleep_and_wake(&g, keeps ? GMLAKE_SLEEP_KEEP : GMLAKE_SLEEP_DROP);
    if (keeps) verify_on(g.stream, g.out, OUT_BYTES, OUT_SEED); /* before a replay writes it */
    if (!keeps) fill_on(g.stream, weights, bytes, 11);
    graph_replay(&g, 1);
    graph_check_out(&g);
    require_no_wrong_words("a graph that was replayed after sleep");
    if (i == 3) used = free_memory();
  }
  require(free_memory() + 16 * MIB > used, "%zu bytes were free, then %zu", used, free_memory());
  ok(gmlake_free(lake, weights, g.stream));
  tell("%zu rounds of a captured graph", rounds);
  graph_close(&g);
  close_lake(lake);
}

/* Seconds for one sleep and one wake. */
static void time_rounds(gmlake *lake, gmlake_pool *pool, gmlake_sleep_mode mode,
                        double seconds[2]) {
  uint64_t start = now_ns();
  ok(gmlake_pool_sleep(lake, pool, mode, NULL));
  seconds[0] = (double)(now_ns() - start) / 1e9;
  start = now_ns();
  ok(gmlake_pool_wake(lake, pool));
  seconds[1] = (double)(now_ns() - start) / 1e9;
}

/* Bytes a second between the device and pinned memory, by the driver alone: from it, to it. */
static void time_link(double rates[2]) {
  const size_t bytes = scale(GIB, 8 * MIB), times = 8;
  void *host = NULL;
  CUdeviceptr device;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  size_t way, i;
  cu(rig.gpu.cuMemAlloc(&device, bytes));
  cu(rig.gpu.cuMemHostAlloc(&host, bytes, 0));
  for (way = 0; way < 2; way++) {
    const uint64_t start = now_ns();
    for (i = 0; i < times; i++) {
      if (way)
        cu(rig.gpu.cuMemcpyHtoDAsync(device, host, bytes, stream));
      else
        cu(rig.gpu.cuMemcpyDtoHAsync(host, device, bytes, stream));
    }
    await_stream(stream);
    rates[way] = (double)bytes * (double)times / ((double)(now_ns() - start) / 1e9);
  }
  cu(rig.gpu.cuMemFreeHost(host));
  cu(rig.gpu.cuMemFree(device));
  cu(rig.gpu.cuStreamDestroy(stream));
}

/* Blocks of so many bytes in all, in chunks of 16 MiB. */
static void time_blocks(size_t bytes, gmlake_sleep_mode mode, int rounds, double seconds[2]) {
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
    blocks[count] = take_from_pool(lake, pool, each, NULL);
    fill_on(NULL, blocks[count], each, (uint32_t)count);
    count++;
  }
  cu(rig.gpu.cuCtxSynchronize());
  while (rounds--) time_rounds(lake, pool, mode, seconds);
  for (i = 0; i < count && mode == GMLAKE_SLEEP_KEEP; i++)
    verify_on(NULL, blocks[i], each, (uint32_t)i);
  require_no_wrong_words("blocks that were kept");
  for (i = 0; i < count; i++) ok(gmlake_free(lake, blocks[i], NULL));
  cu(rig.gpu.cuCtxSynchronize());
  ok(gmlake_pool_destroy(lake, pool));
  close_lake(lake);
}

/* A buffer of so many bytes, in chunks of 2 MiB. */
static void time_buffer(size_t bytes, double seconds[2]) {
  const gmlake_desc desc = small_chunks(0);
  gmlake_buffer_desc wanted;
  gmlake *lake = new_lake(&desc);
  gmlake_pool *pool = new_pool(lake);
  gmlake_buffer *buffer = NULL;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = bytes;
  wanted.chunk_bytes = CHUNK;
  wanted.pool = pool;
  ok(gmlake_buffer_create(lake, &wanted, &buffer));
  ok(gmlake_buffer_resize(lake, buffer, bytes, NULL));
  time_rounds(lake, pool, GMLAKE_SLEEP_DROP, seconds);
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
  double blocks[2], places[2], first[2], again[2], link[2];
  time_link(link);
  time_blocks(dropped, GMLAKE_SLEEP_DROP, 1, blocks);
  time_buffer(dropped, places);
  time_blocks(kept, GMLAKE_SLEEP_KEEP, 1, first);
  time_blocks(kept, GMLAKE_SLEEP_KEEP, 2, again);
  tell(
      "%zu MiB dropped: sleep %.3f s, wake %.3f s; a buffer's %.3f and %.3f; %zu MiB kept: %.3f "
      "and %.3f, again %.3f and %.3f, %.0f %% and %.0f %% of the link",
      dropped / MIB, blocks[0], blocks[1], places[0], places[1], kept / MIB, first[0], first[1],
      again[0], again[1], 100 * (double)kept / again[0] / link[0],
      100 * (double)kept / again[1] / link[1]);
}

#endif
