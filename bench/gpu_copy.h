/* Section bandwidth. It makes the same copy between blocks of several kinds. The kinds take turns,
   so that clocks and other programs disturb all in the same way. The kind `plain, again` is equal
   to `plain`; it shows how much two equal kinds differ. */
#if !defined(GPU_COPY_H)
#define GPU_COPY_H

#include "gpu_bench.h"
#include "probe.h"

#define COPY_ROUNDS_MAX 200
#define COPY_SAMPLE_NS 20e6 /* about how long copies run between two readings of the clock */
#define COPY_BATCH_MAX 32

enum { COPY_PLAIN, COPY_AGAIN, COPY_HOME, COPY_WINDOW_16, COPY_WINDOW_2, COPY_KINDS };
enum { COPY_BY_KERNEL, COPY_BY_DRIVER, COPY_WAYS };

static const char *const copy_names[] = {"plain", "plain, again", "home arena",
                                         "window of 16 MiB chunks", "window of 2 MiB chunks"};
static const char *const copy_ways[] = {"kernel", "cuMemcpyDtoDAsync"};

typedef struct copy_kind {
  CUdeviceptr to, from;
  size_t pieces; /* of each block */
  gmlake *lake;  /* NULL: plain */
  probe shuffler;
} copy_kind;

typedef struct copy_bench {
  bench *b;
  size_t bytes;
  CUstream stream;
  gpu_kernels kernels;
  copy_kind kinds[COPY_KINDS];
  size_t batch, rounds;
  double ns[COPY_WAYS][COPY_KINDS][COPY_ROUNDS_MAX]; /* of one copy */
} copy_bench;

/* ---- Blocks of each kind ---- */

static void copy_open_plain(copy_bench *c, copy_kind *k) {
  const gpu_driver *gpu = &c->b->gpu;
  GPU(cuMemAlloc(&k->from, c->bytes));
  GPU(cuMemAlloc(&k->to, c->bytes));
  k->pieces = 1;
}

static CUdeviceptr copy_alloc(copy_bench *c, gmlake *lake, unsigned flags, size_t *out_pieces) {
  gmlake_alloc_desc desc;
  void *ptr;
  memset(&desc, 0, sizeof desc);
  desc.bytes = c->bytes;
  desc.flags = flags;
  LAKE(gmlake_alloc_with(lake, &desc, (gmlake_stream)c->stream, &ptr));
  LAKE(gmlake_get_pieces(lake, ptr, NULL, 0, out_pieces));
  return (CUdeviceptr)(uintptr_t)ptr;
}

static void copy_open_home(copy_bench *c, copy_kind *k) {
  gmlake_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.backend = c->b->backend;
  LAKE(gmlake_create(&desc, &k->lake));
  k->from = copy_alloc(c, k->lake, GMLAKE_NO_STITCH, &k->pieces);
  k->to = copy_alloc(c, k->lake, GMLAKE_NO_STITCH, &k->pieces);
}

/* Memory that is created in order may also lie in order. So the lake gets it in random order. */
static void copy_shuffle(probe *p, size_t chunk_bytes, size_t count) {
  const gmlake_backend *real = p->real;
  uint64_t random = 12345;
  size_t i;
  int code;
  for (i = 0; i < count; i++) {
    uint64_t handle;
    size_t other;
    LAKE(real->create(real->user, chunk_bytes, 0, &handle, &code));
    random = random * 6364136223846793005u + 1442695040888963407u;
    other = (size_t)(random >> 33) % (i + 1);
    p->handles[i] = p->handles[other];
    p->handles[other] = handle;
  }
  p->handle_count = count;
}

/* Makes windows whose pieces are single chunks: every other chunk is free when the blocks are
   allocated. Afterwards the chunks between them go back to the driver. */
static void copy_open_window(copy_bench *c, copy_kind *k, size_t chunk_bytes) {
  const size_t count = 4 * (c->bytes / chunk_bytes);
  const gmlake_stream stream = (gmlake_stream)c->stream;
  void **blocks = (void **)malloc(count * sizeof(void *));
  gmlake_desc desc;
  size_t i;
  probe_init(&k->shuffler, c->b->backend);
  k->shuffler.handles = (uint64_t *)malloc(count * sizeof(uint64_t));
  if (!blocks || !k->shuffler.handles) abort();
  copy_shuffle(&k->shuffler, chunk_bytes, count);
  memset(&desc, 0, sizeof desc);
  desc.backend = &k->shuffler.table;
  desc.chunk_bytes = chunk_bytes;
  LAKE(gmlake_create(&desc, &k->lake));
  for (i = 0; i < count; i++) LAKE(gmlake_alloc(k->lake, chunk_bytes, stream, &blocks[i]));
  for (i = 0; i < count; i += 2) LAKE(gmlake_free(k->lake, blocks[i], stream));
  k->from = copy_alloc(c, k->lake, GMLAKE_NO_GROW, &k->pieces);
  k->to = copy_alloc(c, k->lake, GMLAKE_NO_GROW, &k->pieces);
  for (i = 1; i < count; i += 2) LAKE(gmlake_free(k->lake, blocks[i], stream));
  LAKE(gmlake_trim(k->lake, 0, NULL));
  free(blocks);
  free(k->shuffler.handles);
}

static void copy_close(copy_bench *c, copy_kind *k) {
  const gpu_driver *gpu = &c->b->gpu;
  if (k->lake) {
    LAKE(gmlake_free(k->lake, (void *)(uintptr_t)k->from, (gmlake_stream)c->stream));
    LAKE(gmlake_free(k->lake, (void *)(uintptr_t)k->to, (gmlake_stream)c->stream));
    LAKE(gmlake_destroy(k->lake));
  } else {
    GPU(cuMemFree(k->from));
    GPU(cuMemFree(k->to));
  }
}

/* ---- Copying ---- */

/* Makes `batch` copies and returns the ns of one. */
static double copy_time(copy_bench *c, const copy_kind *k, int way, size_t batch) {
  const gpu_driver *gpu = &c->b->gpu;
  const double start_ns = now_ns();
  size_t i;
  for (i = 0; i < batch; i++) {
    if (way == COPY_BY_KERNEL)
      gpu_must(gpu_copy(gpu, &c->kernels, c->stream, k->to, k->from, c->bytes / 16), "copy");
    else
      GPU(cuMemcpyDtoDAsync(k->to, k->from, c->bytes, c->stream));
  }
  GPU(cuStreamSynchronize(c->stream));
  return (now_ns() - start_ns) / (double)batch;
}

/* Makes the first copy of each kind. It is not measured; it must copy every word. */
static void copy_check(copy_bench *c, const copy_kind *k, uint32_t seed) {
  const gpu_driver *gpu = &c->b->gpu;
  const uint64_t words = c->bytes / 4;
  uint64_t wrong_count = 0;
  CUdeviceptr wrong;
  int way;
  GPU(cuMemAlloc(&wrong, sizeof wrong_count));
  GPU(cuMemcpyHtoD(wrong, &wrong_count, sizeof wrong_count));
  GPU(cuCtxSynchronize()); /* our stream does not wait for copies from pageable memory */
  for (way = 0; way < COPY_WAYS; way++) {
    seed += 1000;
    gpu_must(gpu_fill(gpu, &c->kernels, c->stream, k->from, words, seed), "fill");
    (void)copy_time(c, k, way, 1);
    gpu_must(gpu_verify(gpu, &c->kernels, c->stream, k->to, words, seed, wrong), "verify");
    GPU(cuStreamSynchronize(c->stream));
  }
  GPU(cuMemcpyDtoH(&wrong_count, wrong, sizeof wrong_count));
  GPU(cuMemFree(wrong));
  if (!wrong_count) return;
  fprintf(stderr, "gpu_bench: %llu words were copied wrongly\n", (unsigned long long)wrong_count);
  exit(1);
}

static void copy_measure(copy_bench *c) {
  const double once_ns = copy_time(c, &c->kinds[COPY_PLAIN], COPY_BY_DRIVER, 1);
  size_t round, turn;
  int way;
  c->batch = once_ns * COPY_BATCH_MAX < COPY_SAMPLE_NS ? COPY_BATCH_MAX
                                                       : (size_t)(COPY_SAMPLE_NS / once_ns);
  if (!c->batch) c->batch = 1;
  c->rounds = 20 * c->b->repeat;
  if (c->rounds > COPY_ROUNDS_MAX) c->rounds = COPY_ROUNDS_MAX;
  for (round = 0; round < c->rounds; round++) {
    for (turn = 0; turn < COPY_KINDS; turn++) {
      const size_t kind = (turn + round) % COPY_KINDS;
      for (way = 0; way < COPY_WAYS; way++)
        c->ns[way][kind][round] = copy_time(c, &c->kinds[kind], way, c->batch);
    }
  }
}

/* ---- Reporting ---- */

static void copy_row(copy_bench *c, table *t, int way, int kind) {
  json *j = c->b->json;
  double speeds[COPY_ROUNDS_MAX], ratios[COPY_ROUNDS_MAX], speed, ratio;
  size_t i;
  for (i = 0; i < c->rounds; i++) {
    speeds[i] = 2 * (double)c->bytes / c->ns[way][kind][i];
    ratios[i] = c->ns[way][COPY_PLAIN][i] / c->ns[way][kind][i];
  }
  speed = median(speeds, c->rounds);
  ratio = median(ratios, c->rounds);
  table_cell(t, "%s", copy_ways[way]);
  table_cell(t, "%s", copy_names[kind]);
  table_cell(t, "%lu", (unsigned long)c->kinds[kind].pieces);
  table_real(t, 1, speed);
  table_real(t, 4, ratio);
  table_real(t, 4, (ratios[c->rounds * 3 / 4] - ratios[c->rounds / 4]) / ratio);
  json_begin(j, NULL, '{');
  json_text(j, "by", copy_ways[way]);
  json_text(j, "kind", copy_names[kind]);
  json_count(j, "bytes", c->bytes);
  json_count(j, "pieces", c->kinds[kind].pieces);
  json_count(j, "samples", c->rounds);
  json_count(j, "copies_per_sample", c->batch);
  json_real(j, "read_and_written_gb_per_s", speed);
  json_real(j, "ratio_to_plain", ratio);
  json_real(j, "ratio_interquartile_range", ratios[c->rounds * 3 / 4] - ratios[c->rounds / 4]);
  json_end(j, '}');
}

static void copy_open(copy_bench *c) {
  const gpu_driver *gpu = &c->b->gpu;
  const size_t most = gpu_free_bytes(gpu) / 16 & ~(16 * MIB - 1);
  int kind;
  c->bytes = c->b->copy_bytes < most ? c->b->copy_bytes : most;
  GPU(cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING));
  gpu_must(gpu_load_kernels(gpu, &c->kernels), "cuModuleLoadData");
  copy_open_window(c, &c->kinds[COPY_WINDOW_16], 16 * MIB);
  copy_open_window(c, &c->kinds[COPY_WINDOW_2], 2 * MIB);
  copy_open_home(c, &c->kinds[COPY_HOME]);
  copy_open_plain(c, &c->kinds[COPY_PLAIN]);
  copy_open_plain(c, &c->kinds[COPY_AGAIN]);
  for (kind = 0; kind < COPY_KINDS; kind++) copy_check(c, &c->kinds[kind], (uint32_t)kind);
}

static void run_bandwidth(bench *b) {
  static copy_bench c;
  const gpu_driver *gpu = &b->gpu;
  table t;
  int way, kind;
  memset(&c, 0, sizeof c);
  c.b = b;
  show_progress("bandwidth", "copying");
  copy_open(&c);
  copy_measure(&c);
  table_open(&t, b->is_markdown, "Copies: GB read and written a second, ratio to plain memory",
             "<by|<blocks|pieces|GB/s|ratio|interquartile range");
  json_begin(b->json, "bandwidth", '[');
  for (way = 0; way < COPY_WAYS; way++)
    for (kind = 0; kind < COPY_KINDS; kind++) copy_row(&c, &t, way, kind);
  json_end(b->json, ']');
  for (kind = 0; kind < COPY_KINDS; kind++) copy_close(&c, &c.kinds[kind]);
  GPU(cuModuleUnload(c.kernels.module));
  GPU(cuStreamDestroy(c.stream));
  clear_progress();
  table_close(&t);
}

#endif
