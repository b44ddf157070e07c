/* One pool for a hundred graphs of different shapes, and eager work of the same stream between
   their launches, by gmlake_pool_lend and gmlake_pool_recall: how much memory that takes, whether
   the graphs compute the same, and how long lend and recall take where nothing is borrowed.

   A graph is a decode step of a batch: twelve layers, each with activations, scores and a widened
   hidden state, whose sizes follow the batch and the length; eager work is a prefill of other
   sizes. Shapes come from fixed seeds. Three runs: graphs alone, eager work alone, and both, where
   the pool is lent between launches. Nothing runs on the mock; there each step stamps what it
   allocates and reads it again. With -DLEND_CUDA fills and copies are captured and launched.

   It also times exports and imports, ten thousand of each within this process, and looks whether
   they leave descriptors, device memory or metadata behind.

     build/lend [SEED [LAUNCHES]]   exits with 1 if memory exceeds 1.1 times the larger part, bytes
                                    differ, or something is left behind */
#define GMLAKE_IMPLEMENTATION
#if !defined(LEND_CUDA)
#define GMLAKE_BACKEND_MOCK
#endif
#include "gmlake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(LEND_CUDA)
#include <cuda.h>
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GRAPHS 100
#define LAYERS 12
#define HIDDEN (8 * KIB) /* of a token */
#define RESULT (64 * KIB)
#define PAIRS 10000 /* of lend and recall, and of export and import, for their times */

typedef struct graph {
  size_t tokens, length;
  unsigned *result; /* a block of its own, not of the pool */
#if defined(LEND_CUDA)
  CUgraphExec exec;
#else
  void *blocks[LAYERS * 5]; /* what the steps of the graph use, in order, */
  size_t bytes[LAYERS * 5]; /* so much of each, */
  int count;
  void *last;           /* and what the result is copied from */
#endif
} graph;

static gmlake_backend *backend;
static gmlake *lake;
static gmlake_stream stream;
static gmlake_pool *pool;
static graph graphs[GRAPHS];
static unsigned seed, launches = 400;

#define OK(call)                                                                 \
  do {                                                                           \
    const gmlake_result result_ = (call);                                        \
    if (result_) {                                                               \
      printf("line %d: %s: %s\n", __LINE__, #call, gmlake_result_name(result_)); \
      exit(2);                                                                   \
    }                                                                            \
  } while (0)

static unsigned draw(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

/* ---- The device ---- */

#if defined(LEND_CUDA)
#define DRIVER(call)                                \
  do {                                              \
    if (call) {                                     \
      printf("line %d: %s: no\n", __LINE__, #call); \
      exit(2);                                      \
    }                                               \
  } while (0)
static CUdeviceptr at(const void *ptr) { return (CUdeviceptr)(uintptr_t)ptr; }
static void device_open(void) {
  CUcontext context;
  CUdevice device;
  CUstream made;
  DRIVER(cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
         cuCtxSetCurrent(context) || cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  stream = (gmlake_stream)made;
  OK(gmlake_cuda_create(0, &backend));
}
static void device_close(void) {
  gmlake_cuda_destroy(backend);
  DRIVER(cuStreamDestroy((CUstream)stream));
}
static void fill(void *ptr, size_t bytes, unsigned value) {
  DRIVER(cuMemsetD32Async(at(ptr), value, bytes / sizeof(value), (CUstream)stream));
}
static void copy(void *to, const void *from, size_t bytes) {
  DRIVER(cuMemcpyDtoDAsync(at(to), at(from), bytes, (CUstream)stream));
}
static void capture_begin(graph *g) {
  (void)g;
  DRIVER(cuStreamBeginCapture((CUstream)stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}
static void capture_end(graph *g) {
  CUgraph made;
  DRIVER(cuStreamEndCapture((CUstream)stream, &made));
  DRIVER(cuGraphInstantiateWithFlags(&g->exec, made, 0) || cuGraphDestroy(made));
}
static void launch(const graph *g) { DRIVER(cuGraphLaunch(g->exec, (CUstream)stream)); }
static void destroy_graph(const graph *g) { DRIVER(cuGraphExecDestroy(g->exec)); }
static unsigned result_of(const graph *g, size_t word) {
  unsigned value = 0;
  DRIVER(cuStreamSynchronize((CUstream)stream));
  DRIVER(cuMemcpyDtoH(&value, at(g->result + word), sizeof(value)));
  return value;
}
#else
static graph *captured; /* NULL: no capture is under way */
static void device_open(void) {
  OK(gmlake_mock_create(NULL, &backend));
  OK(gmlake_mock_stream_create(backend, &stream));
}
static void device_close(void) {
  gmlake_mock_stream_destroy(backend, stream);
  gmlake_mock_destroy(backend);
}
/* A word at each end stands for all: the memory is the host's. */
static void stamp(void *ptr, size_t bytes, unsigned value) {
  ((unsigned *)ptr)[0] = ((unsigned *)ptr)[bytes / sizeof(value) - 1] = value;
}
static void fill(void *ptr, size_t bytes, unsigned value) {
  if (captured) {
    captured->blocks[captured->count] = ptr;
    captured->bytes[captured->count++] = bytes;
  } else {
    stamp(ptr, bytes, value);
  }
}
static void copy(void *to, const void *from, size_t bytes) {
  (void)to;
  (void)bytes;
  captured->last = (void *)(uintptr_t)from;
}
static void capture_begin(graph *g) {
  captured = g;
  OK(gmlake_mock_capture_begin(backend, stream));
}
static void capture_end(graph *g) {
  (void)g;
  captured = NULL;
  OK(gmlake_mock_capture_end(backend, stream));
}
static void launch(const graph *g) {
  int i;
  for (i = 0; i < g->count; i++) stamp(g->blocks[i], g->bytes[i], (unsigned)i + 1);
  memcpy(g->result, g->last, RESULT);
}
static void destroy_graph(const graph *g) { (void)g; }
static unsigned result_of(const graph *g, size_t word) { return g->result[word]; }
#endif

/* ---- The load ---- */

static void *take(size_t bytes, unsigned flags) {
  gmlake_alloc_desc desc;
  void *ptr = NULL;
  memset(&desc, 0, sizeof(desc));
  desc.bytes = bytes;
  desc.flags = flags;
  OK(gmlake_alloc_with(lake, &desc, stream, &ptr));
  return ptr;
}

static void drop(void *ptr) { OK(gmlake_free(lake, ptr, stream)); }

/* The layers of a step: each one's temporaries, filled and freed. Returns the last one's output,
   which the caller frees. */
static void *run_layers(size_t tokens, size_t length, unsigned flags) {
  const size_t x = tokens * HIDDEN > RESULT ? tokens * HIDDEN : RESULT;
  const size_t score = tokens * length * 64 + RESULT;
  void *hidden = take(x, flags);
  unsigned step = 0, i;
  fill(hidden, x, ++step);
  for (i = 0; i < LAYERS; i++) {
    void *qkv = take(3 * x / 2, flags), *scores, *wide, *next;
    fill(qkv, 3 * x / 2, ++step);
    scores = take(score, flags);
    fill(scores, score, ++step);
    drop(qkv);
    wide = take(4 * x, flags);
    drop(scores);
    fill(wide, 4 * x, ++step);
    next = take(x, flags);
    fill(next, x, ++step);
    drop(wide);
    drop(hidden);
    hidden = next;
  }
  return hidden;
}

static void capture_all(void) {
  unsigned i;
  for (i = 0; i < GRAPHS; i++) {
    graph *g = &graphs[i];
    void *last;
    g->tokens = 1 + draw(512);
    g->length = 64 + draw(4096);
    OK(gmlake_capture_begin(lake, stream, pool));
    capture_begin(g);
    last = run_layers(g->tokens, g->length, 0);
    copy(g->result, last, RESULT);
    drop(last);
    capture_end(g);
    OK(gmlake_capture_end(lake, stream));
  }
}

/* A prefill that nobody captured. */
static void run_eagerly(unsigned flags) {
  drop(run_layers(16 + draw(500), 64 + draw(4096), flags));
}

static size_t held(void) {
  gmlake_stats stats;
  OK(gmlake_get_stats(lake, &stats));
  return stats.reserved_bytes_peak;
}

/* Opens a lake with what lives throughout: the graphs' results. Returns its bytes. */
static size_t open_lake(void) {
  gmlake_desc desc;
  unsigned i;
  memset(&desc, 0, sizeof(desc));
  desc.backend = backend;
  desc.chunk_bytes = 2 * MIB;
  OK(gmlake_create(&desc, &lake));
  OK(gmlake_pool_create(lake, NULL, &pool));
  memset(graphs, 0, sizeof(graphs));
  for (i = 0; i < GRAPHS; i++) graphs[i].result = (unsigned *)take(RESULT, 0);
  return held();
}

static void close_lake(int has_graphs) {
  unsigned i;
  OK(gmlake_check(lake));
  for (i = 0; i < GRAPHS && has_graphs; i++) destroy_graph(&graphs[i]);
  for (i = 0; i < GRAPHS; i++) drop(graphs[i].result);
  OK(gmlake_pool_destroy(lake, pool));
  OK(gmlake_destroy(lake));
}

/* Runs the load and returns the memory beside what lives throughout. Sums the results. */
static size_t run(int with_graphs, int with_eager, uint64_t *sum) {
  const size_t beside = open_lake();
  size_t most;
  unsigned i, start = seed;
  *sum = 0;
  if (with_graphs) capture_all();
  seed = start * 7 + 1; /* the same launches and prefills in each run */
  for (i = 0; i < launches; i++) {
    const graph *g = &graphs[draw(GRAPHS)];
    const size_t word = draw(RESULT / sizeof(unsigned));
    if (with_graphs) launch(g);
    if (with_graphs && with_eager) OK(gmlake_pool_lend(lake, pool, stream));
    if (with_eager) run_eagerly(with_graphs ? GMLAKE_TRANSIENT : 0);
    if (with_graphs && with_eager) OK(gmlake_pool_recall(lake, pool, stream));
    if (!with_eager) seed = seed * 1664525u + 1013904223u; /* two draws, as run_eagerly makes */
    if (!with_eager) seed = seed * 1664525u + 1013904223u;
    if (with_graphs) *sum = *sum * 31 + result_of(g, word) + result_of(g, 0);
  }
  most = held() - beside;
  close_lake(with_graphs);
  return most;
}

static double seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Microseconds for a lend and a recall, with a hundred graphs in the pool. */
static double time_pairs(void) {
  double begin;
  unsigned i;
  (void)open_lake();
  capture_all();
  begin = seconds();
  for (i = 0; i < PAIRS; i++) {
    OK(gmlake_pool_lend(lake, pool, stream));
    OK(gmlake_pool_recall(lake, pool, stream));
  }
  begin = (seconds() - begin) * 1e6 / PAIRS;
  close_lake(1);
  return begin;
}

/* Returns whether anything was left behind. */
static int share(void) {
  double begin, parts[4] = {0, 0, 0, 0};
  gmlake_budget before, after;
  size_t metadata = 0, count, n;
  gmlake_handle handles[2];
  gmlake_stats stats;
  gmlake_desc desc;
  int fd = -1, is_left;
  unsigned i;
  memset(&desc, 0, sizeof(desc));
  desc.backend = backend;
  desc.chunk_bytes = 2 * MIB;
  desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  OK(gmlake_create(&desc, &lake));
  for (i = 0; i < PAIRS + 10; i++) {
    void *block, *other;
    if (i == 10) { /* warm */
      memset(parts, 0, sizeof(parts));
      OK(gmlake_get_stats(lake, &stats));
      OK(gmlake_get_budget(lake, &before));
      metadata = stats.metadata_bytes;
      (void)close(fd = dup(1));
    }
    block = take(4 * MIB, GMLAKE_EXCLUSIVE);
    begin = seconds();
    OK(gmlake_export(lake, block, GMLAKE_HANDLE_POSIX_FD, handles, 2, &count));
    parts[0] += seconds() - begin;
    begin = seconds();
    OK(gmlake_import(lake, handles, count, &other));
    parts[1] += seconds() - begin;
    for (n = 0; n < count; n++) (void)close(handles[n].fd);
    begin = seconds();
    drop(block);
    parts[2] += seconds() - begin;
    begin = seconds();
    drop(other);
    parts[3] += seconds() - begin;
  }
  is_left = dup(1);
  (void)close(is_left);
  OK(gmlake_get_budget(lake, &after));
  OK(gmlake_get_stats(lake, &stats));
  is_left = is_left != fd || stats.metadata_bytes != metadata || stats.exported_bytes ||
            stats.imported_bytes || after.driver_free_bytes < before.driver_free_bytes;
  printf(
      "two handles of 2 MiB: export %.1f, import %.1f, free %.1f, free of an import %.1f us; left "
      "behind: %s\n",
      parts[0] * 1e6 / PAIRS, parts[1] * 1e6 / PAIRS, parts[2] * 1e6 / PAIRS,
      parts[3] * 1e6 / PAIRS, is_left ? "something" : "nothing");
  OK(gmlake_destroy(lake));
  return is_left;
}

int main(int argc, char **argv) {
  const unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
  uint64_t alone, none, both;
  size_t a, b, c, larger;
  int is_left;
  if (argc > 2) launches = (unsigned)atoi(argv[2]);
  device_open();
  seed = first;
  a = run(1, 0, &alone);
  seed = first;
  b = run(0, 1, &none);
  seed = first;
  c = run(1, 1, &both);
  larger = a > b ? a : b;
  printf("graphs %zu MiB, eager %zu MiB, both %zu MiB: %.3f of the larger; the same bytes: %s\n",
         a / MIB, b / MIB, c / MIB, (double)c / (double)larger, alone == both ? "yes" : "no");
  seed = first;
  printf("lend and recall %.2f us where nothing was borrowed\n", time_pairs());
  is_left = share();
  device_close();
  return alone != both || (double)c > 1.1 * (double)larger || is_left;
}
