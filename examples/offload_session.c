/* Trains a small network in half of the memory that it needs, without describing it first. The
   program gets its tensors from a session, and says before each operator what that reads and
   writes. In the end the weights are those that plain C finds, bit for bit.

   Memory comes from a lake. Compile it in the directory of gmlake.h. On mocks:
     cc -I. examples/offload_session.c -o offload_session -lpthread -ldl
   On a GPU:
     nvcc -x cu -I. --fmad=false examples/offload_session.c -o offload_session -lcuda */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_LAKE
#if defined(__CUDACC__)
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#define ANYWHERE __host__ __device__
#else
#define GMLAKE_BACKEND_MOCK
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#define ANYWHERE
#endif
#include "gmlake_offload.h"
#if !defined(__CUDACC__)
#include "mock_lake.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N (1 << 14) /* numbers in each tensor */
#define LAYERS 12
/* The tensors: weights, activations and gradients. */
enum { W, X = LAYERS, D = 2 * LAYERS + 1, TENSORS = 3 * LAYERS + 1 };
#define MUST(call) (void)((call) && (fprintf(stderr, "%s failed\n", #call), exit(1), 0))
#define SESSION(call) (session ? MUST(gmlake_offload_session_##call) : (void)0)

static uint32_t ids[TENSORS];
static float *numbers[TENSORS];         /* these addresses never change */
static float plain[TENSORS][N];         /* the tensors of plain C */
static gmlake_offload_session *session; /* NULL: plain C */
static gmlake_offload_backend *backend;
static gmlake_offload_memory memory;
static gmlake_offload_lake lake;

typedef struct work { /* out = keep * out + scale * a * b, or without a some numbers */
  float *a, *b, *out, keep, scale;
} work;

static ANYWHERE void element(work w, int i) {
  float old = w.keep != 0 ? w.keep * w.out[i] : 0;
  w.out[i] = w.a ? old + w.scale * w.a[i] * w.b[i] : .5f + (float)((i + (int)w.scale) % 64) / 128;
}
static void run(void *user) {
  for (int i = 0; i < N; i++) element(*(work *)user, i);
}

#if defined(__CUDACC__)
static CUstream stream;

static __global__ void kernel(work w) { element(w, (int)(blockIdx.x * 256 + threadIdx.x)); }
static void launch(work *w) { kernel<<<N / 256, 256, 0, stream>>>(*w); }
static void open_device(void) {
  gmlake_offload_cuda_desc desc = {};
  gmlake_desc lake_desc = {0, NULL, 0, GMLAKE_WAIT_FIRST};
  lake.chunk_bytes = 2 << 20;
  MUST(cudaSetDevice(0) || cudaStreamCreate(&stream));
  MUST(gmlake_create(&lake_desc, &lake.lake) || gmlake_offload_cuda_create(&desc, &backend));
}
static void close_device(void) { gmlake_offload_cuda_destroy(backend); }
#else
static gmlake_backend *lake_mock;
static char stream[1]; /* its address names the stream */

/* The mock calls `run` when 10 us of its clock have passed. */
static void launch(work *w) { MUST(gmlake_offload_mock_work(backend, stream, 10000, run, w)); }
static void open_device(void) {
  lake.chunk_bytes = sizeof *plain;
  MUST(gmlake_offload_mock_create(NULL, &backend) || mock_lake_open(&lake, backend, &lake_mock));
}
static void close_device(void) {
  gmlake_mock_destroy(lake_mock);
  gmlake_offload_mock_destroy(backend);
}
#endif

/* One operator, which makes `out`; or, with `keep`, changes it. A tensor made of itself gets some
   numbers. */
static void apply(int a, int b, int out, float keep, float scale) {
  static work works[1024], *last = works; /* the mock reads them when the operators run */
  work w = {a != out ? numbers[a] : NULL, numbers[b], NULL, keep, scale};
  uint32_t reads[] = {ids[a], ids[b]};
  gmlake_offload_step step = {stream, 0, reads, &ids[out], a != out ? 2u : 0u, keep != 0};
  void *ptr = keep != 0 ? numbers[out] : plain[out];
  SESSION(begin(session, &step)); /* what is away comes back */
  if (keep == 0) SESSION(alloc(session, sizeof *plain, stream, &ids[out], &ptr));
  w.out = numbers[out] = (float *)ptr;
  last = works + (last - works + 1) % 1024;
  *last = w;
  session ? launch(last) : run(last);
  SESSION(end(session)); /* tensors leave and come back */
}
static void drop(int t) { SESSION(free(session, ids[t], stream)); }

static void iterate(int seed) { /* the loss is half of the sum of the squares of the last X */
  int i, d = X + LAYERS;
  SESSION(mark(session));
  apply(X, X, X, 0, (float)seed);
  for (i = 0; i < LAYERS; i++) apply(X + i, W + i, X + i + 1, 0, 1);
  for (; i-- > 0; d = D + i) {
    apply(d, W + i, D + i, 0, 1);
    apply(X + i, d, W + i, .999f, -.01f);
    drop(d);
    if (i + 1 < LAYERS) drop(X + i + 1);
  }
  drop(X), drop(d);
}

/* Trains; in a session, with less memory, to the same weights. */
static void train(size_t limit) {
  static float weights[LAYERS][N];
  gmlake_offload_session_desc desc = {0};
  gmlake_offload_session_stats stats = {0};
  desc.backend = backend, desc.memory = &memory, desc.limit_bytes = limit;
  desc.tensor_bytes_min = 1; /* also such small ones leave */
  if (backend) MUST(gmlake_offload_session_create(&desc, &session));
  for (int i = 0; i < LAYERS; i++) apply(W + i, W + i, W + i, 0, (float)i);
  for (int i = 0; i < 10; i++) iterate(i * 99);
  if (!session) return;
  for (int i = 0; i < LAYERS; i++) {
    gmlake_offload_copy copy = {0, 1, numbers[W + i], weights[i], sizeof *plain, 0};
    SESSION(pin(session, ids[W + i], stream));
    MUST(backend->copy(backend->user, &copy, stream));
  }
  MUST(backend->stream_sync(backend->user, stream));
  MUST(memcmp(weights, plain[W], sizeof weights));
  SESSION(get_stats(session, &stats));
  printf("%2zu chunks of memory, %zu copies\n", stats.device_bytes_peak / memory.chunk_bytes,
         (size_t)(stats.out_count + stats.in_count));
  gmlake_offload_session_destroy(session);
}

int main(void) {
  train(0);
  open_device();
  MUST(gmlake_offload_lake_memory(&lake, &memory));
  train(0);
  train((LAYERS + 1) * memory.chunk_bytes);
  MUST(gmlake_destroy(lake.lake));
  close_device();
  printf("the weights are those of plain C, bit for bit\n");
  return 0;
}
