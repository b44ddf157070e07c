/* Captures: graphs whose memory comes from a pool, replayed while other streams allocate and
   free, captured while other threads do, and captured again into the same pool. Include after
   gpu_traffic.h. */
#if !defined(GPU_CAPTURE_H)
#define GPU_CAPTURE_H

#define OUT_BYTES (MIB + 512)
#define OUT_SEED 0xC0FFEEu
#define INNER_BLOCKS 6

static const char *const mode_names[] = {"global", "thread-local", "relaxed"};

typedef struct graph {
  gmlake *lake;
  gmlake_pool *pool;
  CUstream stream;
  void *out; /* a block that every replay writes and nobody frees until the graph is gone */
  CUgraph graph;
  CUgraphExec exec;
} graph;

static gmlake_pool *new_pool(gmlake *lake) {
  gmlake_pool_desc desc;
  gmlake_pool *pool = NULL;
  memset(&desc, 0, sizeof(desc));
  ok(gmlake_pool_create(lake, &desc, &pool));
  return pool;
}

static void graph_begin(graph *g, CUstreamCaptureMode mode) {
  ok(gmlake_capture_begin(g->lake, g->stream, g->pool));
  cu(rig.gpu.cuStreamBeginCapture(g->stream, mode));
}

static void graph_end(graph *g) {
  cu(rig.gpu.cuStreamEndCapture(g->stream, &g->graph));
  ok(gmlake_capture_end(g->lake, g->stream));
  require(g->graph != NULL, "a capture without a graph");
}

static void graph_drop(graph *g) {
  if (g->exec) cu(rig.gpu.cuGraphExecDestroy(g->exec));
  cu(rig.gpu.cuGraphDestroy(g->graph));
  g->exec = NULL;
}

/* Kernels on blocks that come and go inside the capture, reusing each other's memory; meanwhile
   runs between any two. */
static void graph_record(graph *g, uint64_t random, size_t count, void (*meanwhile)(void *),
                         void *user) {
  block blocks[INNER_BLOCKS];
  size_t i, at;
  memset(blocks, 0, sizeof(blocks));
  for (i = 0; i < count + INNER_BLOCKS; i++) {
    block *b = &blocks[at = i % INNER_BLOCKS];
    if (b->ptr) {
      verify_on(g->stream, b->ptr, b->bytes, b->seed);
      ok(gmlake_free(g->lake, b->ptr, g->stream));
    }
    if (i >= count) continue;
    b->bytes = random_bytes(&random, 512, scale(16 * MIB, 2 * MIB));
    b->seed = (uint32_t)random_next(&random);
    b->ptr = (char *)take(g->lake, b->bytes, g->stream);
    fill_on(g->stream, b->ptr, b->bytes, b->seed);
    if (meanwhile) meanwhile(user);
  }
}

/* pre: replays of the graph have been queued on its stream. */
static void graph_check_out(const graph *g) {
  uint32_t words[3] = {0, 0, 0};
  await_stream(g->stream);
  cu(rig.gpu.cuMemcpyDtoH(words, (CUdeviceptr)(uintptr_t)g->out + OUT_BYTES - 12, 12));
  require(words[2] == (uint32_t)(OUT_BYTES / 4 - 1) * 2654435761u + OUT_SEED,
          "a replay did not write what was captured");
}

static void graph_replay(const graph *g, int clears_out) {
  if (clears_out)
    cu(rig.gpu.cuMemsetD32Async((CUdeviceptr)(uintptr_t)g->out, 0, OUT_BYTES / 4, g->stream));
  cu(rig.gpu.cuGraphLaunch(g->exec, g->stream));
}

/* Streams that have nothing to do with the legacy stream, which a capture may forbid. */
static void quiet_traffic(traffic *t, gmlake *lake, uint64_t number) {
  size_t i;
  memset(t, 0, sizeof(*t));
  t->lake = lake;
  t->live_max = scale(512 * MIB, 24 * MIB);
  t->bytes_max = scale(32 * MIB, 4 * MIB);
  t->alignment_max = CHUNK;
  t->is_quiet = 1;
  traffic_seed(t, number);
  for (i = 0; i < TRAFFIC_STREAMS; i++) t->streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
}

static void quiet_traffic_end(traffic *t) {
  size_t i;
  traffic_drain(t);
  require_no_wrong_words("traffic beside a graph");
  for (i = 0; i < TRAFFIC_STREAMS; i++) {
    ok(gmlake_forget_stream(t->lake, t->streams[i]));
    cu(rig.gpu.cuStreamDestroy((CUstream)t->streams[i]));
  }
}

static void step_twice(void *user) {
  traffic_step((traffic *)user);
  traffic_step((traffic *)user);
}

static void graph_close(graph *g) {
  cu(rig.gpu.cuCtxSynchronize());
  graph_drop(g);
  ok(gmlake_free(g->lake, g->out, g->stream));
  ok(gmlake_forget_stream(g->lake, g->stream));
  cu(rig.gpu.cuStreamDestroy(g->stream));
  cu(rig.gpu.cuCtxSynchronize());
  ok(gmlake_pool_destroy(g->lake, g->pool));
}

static void graph_open(graph *g, gmlake *lake) {
  memset(g, 0, sizeof(*g));
  g->lake = lake;
  g->pool = new_pool(lake);
  g->stream = new_stream(CU_STREAM_NON_BLOCKING);
}

static void graph_capture_out(graph *g) {
  g->out = take(g->lake, OUT_BYTES, g->stream);
  fill_on(g->stream, g->out, OUT_BYTES, OUT_SEED);
}

/* ---- One thread ------------------------------------------------------------------------------ */

static void capture_in(CUstreamCaptureMode mode) {
  static traffic t;
  const gmlake_desc desc = small_chunks(scale(2 * GIB, 160 * MIB));
  gmlake *lake = new_lake(&desc);
  void *early, *idle;
  graph g;
  size_t i;
  graph_open(&g, lake);
  quiet_traffic(&t, lake, 100 + (uint64_t)mode);
  for (i = 0; i < 200; i++) traffic_step(&t);
  early = take(lake, MIB, g.stream);
  fill_on(g.stream, early, MIB, 7);
  verify_on(g.stream, early, MIB, 7);
  graph_begin(&g, mode);
  graph_capture_out(&g);
  graph_record(&g, options.seed, 30, step_twice, &t);
  ok(gmlake_free(lake, early, g.stream)); /* its memory is not the graph's, and waits */
  idle = take(lake, MIB, NULL);
  ok(gmlake_free(lake, idle, NULL));
  ok(gmlake_trim(lake, 0, NULL));
  graph_record(&g, options.seed + 1, 30, step_twice, &t);
  graph_end(&g);
  cu(rig.gpu.cuGraphInstantiateWithFlags(&g.exec, g.graph, 0));
  for (i = 0; i < options.replays; i++) {
    graph_replay(&g, i % 100 == 0);
    step_twice(&t);
    if (i % 100 == 99) ok(gmlake_check(lake));
    if (i % 50 == 49) graph_check_out(&g);
  }
  graph_check_out(&g);
  verify_on(g.stream, g.out, OUT_BYTES, OUT_SEED);
  quiet_traffic_end(&t);
  graph_close(&g);
  close_lake(lake);
}

static void case_capture(void) {
  int mode;
  for (mode = 0; mode < 3; mode++) capture_in((CUstreamCaptureMode)mode);
  tell("%zu replays each of %s, %s, %s", options.replays, mode_names[0], mode_names[1],
       mode_names[2]);
}

/* ---- Streams at work when the capture begins ------------------------------------------------- */

/* Most of the memory was freed on a stream that is still at work, and that frees a little more in
   the capture, in which nothing can be recorded there: what was recorded before is waited for. */
static void capture_beside_work(int on_legacy) {
  const gmlake_desc desc = small_chunks(8 * CHUNK);
  gmlake *lake = new_lake(&desc);
  void *early, *gap, *little;
  CUstream busy;
  graph g;
  graph_open(&g, lake);
  busy = on_legacy ? NULL : g.stream;
  ok(gmlake_free(lake, take(lake, KIB, on_legacy ? g.stream : NULL), NONE)); /* a second stream */
  early = take(lake, 5 * CHUNK, busy);
  gap = take(lake, KIB, busy); /* or the others were neighbours, and one */
  little = take(lake, KIB, busy);
  fill_on(busy, early, 5 * CHUNK, 1);
  spin_on(busy, 50 * MS_NS);
  verify_on(busy, early, 5 * CHUNK, 1);
  ok(gmlake_free(lake, early, busy));
  graph_begin(&g, CU_STREAM_CAPTURE_MODE_GLOBAL);
  ok(gmlake_free(lake, little, busy));
  g.out = take(lake, 4 * CHUNK, g.stream);
  fill_on(g.stream, g.out, 4 * CHUNK, 2);
  verify_on(g.stream, g.out, 4 * CHUNK, 2);
  graph_end(&g);
  cu(rig.gpu.cuGraphInstantiateWithFlags(&g.exec, g.graph, 0));
  graph_replay(&g, 0);
  await_stream(g.stream);
  require_no_wrong_words("a capture beside work");
  tell("%s%llu wait of the host beside work of the %s stream", on_legacy ? ", " : "",
       (unsigned long long)stats_of(lake).host_wait_count, on_legacy ? "legacy" : "captured");
  require(options.is_slow || stats_of(lake).host_wait_count == 1, "nothing was waited for");
  ok(gmlake_free(lake, gap, busy));
  graph_close(&g);
  close_lake(lake);
}

static void case_busy_capture(void) {
  capture_beside_work(0);
  capture_beside_work(1);
}

/* ---- Another thread at work during the capture ----------------------------------------------- */

typedef struct worker {
  traffic t;
  size_t step_count; /* shared */
  int stops;         /* shared */
} worker;

static size_t load_count(const size_t *count) { return __atomic_load_n(count, __ATOMIC_ACQUIRE); }

static void *work(void *user) {
  worker *w = (worker *)user;
  size_t i;
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
  for (i = 0; !__atomic_load_n(&w->stops, __ATOMIC_ACQUIRE); i++) {
    traffic_step(&w->t);
    if (i % 25 == 0) ok(gmlake_trim(w->t.lake, w->t.live_max / 2, NULL));
    __atomic_store_n(&w->step_count, i + 1, __ATOMIC_RELEASE);
  }
  return NULL;
}

/* Waits until the worker has come so much further. */
static void await_worker(worker *w, size_t steps) {
  const size_t until = load_count(&w->step_count) + steps;
  while (load_count(&w->step_count) < until) (void)usleep(100);
}

static void await_some_steps(void *user) { await_worker((worker *)user, 10); }

static void case_other_thread(void) {
  static worker w;
  gmlake_desc desc = small_chunks(scale(768 * MIB, 64 * MIB));
  gmlake_stats before, after;
  pthread_t thread;
  gmlake *lake;
  graph g;
  size_t i;
  desc.cross_stream = GMLAKE_WAIT_FIRST; /* so that streams wait for each other, too */
  lake = new_lake(&desc);
  graph_open(&g, lake);
  quiet_traffic(&w.t, lake, 200);
  w.stops = 0;
  require(pthread_create(&thread, NULL, work, &w) == 0, "no thread");
  await_worker(&w, 50);
  graph_begin(&g, CU_STREAM_CAPTURE_MODE_GLOBAL);
  before = stats_of(lake);
  graph_capture_out(&g);
  graph_record(&g, options.seed, 40, await_some_steps, &w);
  after = stats_of(lake);
  graph_end(&g);
  cu(rig.gpu.cuGraphInstantiateWithFlags(&g.exec, g.graph, 0));
  for (i = 0; i < options.replays / 4 + 1; i++) graph_replay(&g, i == 0);
  graph_check_out(&g);
  __atomic_store_n(&w.stops, 1, __ATOMIC_RELEASE);
  require(pthread_join(thread, NULL) == 0, "no join");
  require(after.stitch_count > before.stitch_count &&
              after.stream_wait_count > before.stream_wait_count,
          "nothing was tested: the other thread did not stitch, or no stream waited");
  tell("%llu driver calls, %llu stitches, %llu stream waits during the capture",
       (unsigned long long)(after.driver_call_count - before.driver_call_count),
       (unsigned long long)(after.stitch_count - before.stitch_count),
       (unsigned long long)(after.stream_wait_count - before.stream_wait_count));
  quiet_traffic_end(&w.t);
  graph_close(&g);
  close_lake(lake);
}

/* ---- Again and again into one pool ----------------------------------------------------------- */

/* pre: shapes: 1 for always the same, 2 for two in turn. */
static size_t recapture(size_t shapes) {
  const gmlake_desc desc = small_chunks(0);
  gmlake *lake = new_lake(&desc);
  size_t second = 0, i;
  graph g;
  graph_open(&g, lake);
  for (i = 0; i < options.recaptures; i++) {
    graph_begin(&g, CU_STREAM_CAPTURE_MODE_GLOBAL);
    graph_record(&g, 1 + i % shapes, 12, NULL, NULL);
    graph_end(&g);
    if (i % 50 < 2) {
      cu(rig.gpu.cuGraphInstantiateWithFlags(&g.exec, g.graph, 0));
      cu(rig.gpu.cuGraphLaunch(g.exec, g.stream));
      await_stream(g.stream);
    }
    graph_drop(&g);
    if (i == 1) second = stats_of(lake).reserved_bytes;
    if (i >= 1) {
      require(stats_of(lake).reserved_bytes == second, "%zu bytes after capture %zu, %zu after 2",
              stats_of(lake).reserved_bytes, i + 1, second);
    }
  }
  require_no_wrong_words("recaptures");
  ok(gmlake_forget_stream(lake, g.stream));
  cu(rig.gpu.cuStreamDestroy(g.stream));
  ok(gmlake_pool_destroy(lake, g.pool));
  close_lake(lake);
  return second;
}

static void case_recapture(void) {
  const size_t same = recapture(1), alternating = recapture(2);
  tell("%zu captures each: %zu and %zu MiB held", options.recaptures, same / MIB,
       alternating / MIB);
}

#endif
