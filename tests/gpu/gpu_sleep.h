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

#endif
