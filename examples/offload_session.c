/* Trains a small network in half of the memory that it needs, without describing it first. The
   program gets its tensors from a session, and says before each operator what that reads and
   writes. In the end the weights are those that plain C finds, bit for bit.

   Compile it in the directory of gmlake.h. On the mock:
     cc -I. examples/offload_session.c -o offload_session -lpthread -ldl
   On a GPU, with memory from a lake:
     nvcc -x cu -I. --fmad=false examples/offload_session.c -o offload_session -lcuda */
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#if defined(__CUDACC__)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#define GMLAKE_OFFLOAD_LAKE
#define ANYWHERE __host__ __device__
#else
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#define ANYWHERE
#endif
#include "gmlake_offload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 32 /* every tensor is a matrix of N rows and N columns */
#define BYTES (N * N * sizeof(float))
#define LAYERS 12
#define X(i) (LAYERS + (i))         /* tensors: the weights are 0 to LAYERS - 1, activations, */
#define D(i) (2 * LAYERS + 1 + (i)) /* and gradients */
#define COUNT D(LAYERS)
#define MUST(call) (void)((call) && (fprintf(stderr, "%s failed\n", #call), exit(1), 0))

static float *numbers[COUNT]; /* of each tensor; these addresses never change */
static uint32_t ids[COUNT];
static float plain[COUNT][N * N];
static gmlake_offload_session *session; /* NULL: plain C */
static gmlake_offload_backend *backend;
static gmlake_offload_queues queues;
static gmlake_offload_memory memory;

/* out = keep * out + scale * a * b, where a or b may be transposed. Without a: some numbers. */
typedef struct work {
  float *a, *b, *out, scale, keep;
  int a_row, a_column, b_row, b_column; /* steps in memory */
} work;

static ANYWHERE void element(work w, int row, int column) {
  float sum = 0, *out = &w.out[row * N + column];
  int i, number = row * N + column + (int)w.scale;
  for (i = 0; w.a && i < N; i++)
    sum += w.a[row * w.a_row + i * w.a_column] * w.b[i * w.b_row + column * w.b_column];
  *out = w.a ? (w.keep != 0 ? w.keep * *out : 0) + w.scale * sum : (float)(number * 37 % 64) / 256;
}
static void run(void *user) {
  for (int i = 0; i < N * N; i++) element(*(work *)user, i / N, i % N);
}

#if defined(__CUDACC__)
static gmlake_offload_lake lake = {NULL, 2 << 20};
static CUstream stream;

static __global__ void kernel(work w) { element(w, (int)blockIdx.x, (int)threadIdx.x); }
static void launch(const work *w) { kernel<<<N, N, 0, stream>>>(*w); }
static void open_device(void) {
  gmlake_offload_cuda_desc desc = {};
  gmlake_desc lake_desc = {};
  lake_desc.cross_stream = GMLAKE_WAIT_FIRST;
  MUST(cudaSetDevice(0) || cudaStreamCreate(&stream));
  MUST(gmlake_create(&lake_desc, &lake.lake) || gmlake_offload_lake_memory(&lake, &memory));
  MUST(gmlake_offload_cuda_create(&desc, &backend) ||
       gmlake_offload_cuda_get_queues(backend, &queues));
}
static void close_device(void) { MUST(gmlake_destroy(lake.lake)); }
#else
static char stream[1]; /* its address names the stream */

static void launch(const work *w) { /* the mock calls `run` when 10 us of its clock have passed */
  static work works[1024];
  static unsigned count;
  works[++count % 1024] = *w;
  MUST(gmlake_offload_mock_work(backend, stream, 10000, run, &works[count % 1024]));
}
static void open_device(void) {
  MUST(gmlake_offload_mock_create(NULL, &backend) ||
       gmlake_offload_mock_get_queues(backend, &queues));
  MUST(gmlake_offload_mock_get_memory(backend, BYTES, &memory));
}
static void close_device(void) { gmlake_offload_mock_destroy(backend); }
#endif

static void drop(int t) {
  if (session) MUST(gmlake_offload_session_free(session, ids[t], stream));
}
/* Without `keep`, `out` is a new tensor. */
static void apply(int a, int b, int out, float scale, float keep, int a_flip, int b_flip) {
  work w = {numbers[a],     numbers[b],     NULL,           scale,         keep,
            a_flip ? 1 : N, a_flip ? N : 1, b_flip ? 1 : N, b_flip ? N : 1};
  uint32_t reads[2] = {ids[a], ids[b]};
  gmlake_offload_step step = {stream, 0, reads, &ids[out], a != b ? 2u : 0u, keep != 0};
  void *ptr = session && keep != 0 ? numbers[out] : plain[out];
  if (session) MUST(gmlake_offload_session_begin(session, &step)); /* what is away comes back */
  if (session && keep == 0)
    MUST(gmlake_offload_session_alloc(session, BYTES, stream, &ids[out], &ptr));
  w.out = numbers[out] = (float *)ptr;
  if (a == b) w.a = NULL;
  session ? launch(&w) : run(&w);
  if (session) MUST(gmlake_offload_session_end(session)); /* tensors leave and come back */
}

static void iterate(int seed) {
  int i, d = X(LAYERS);
  if (session) MUST(gmlake_offload_session_mark(session));
  apply(0, 0, X(0), (float)seed, 0, 0, 0);
  for (i = 0; i < LAYERS; i++) apply(X(i), i, X(i + 1), 1, 0, 0, 0);
  for (; i-- > 0; d = D(i)) { /* of half the sum of the squares of the last X */
    apply(d, i, D(i), 1, 0, 0, 1);
    apply(X(i), d, i, -.01f, .999f, 1, 0);
    drop(d);
    if (i + 1 < LAYERS) drop(X(i + 1));
  }
  drop(X(0)), drop(d);
}

/* Trains, and notes the weights. */
static void train(size_t limit, float (*out)[N * N]) {
  static gmlake_offload_session_desc desc;
  gmlake_offload_session_stats stats = {0};
  gmlake_offload_copy copy = {0, 1, NULL, NULL, BYTES};
  int i;
  desc.queues = &queues, desc.memory = &memory, desc.limit_bytes = limit;
  desc.tensor_bytes_min = 1; /* also such small ones leave */
  if (backend) MUST(gmlake_offload_session_create(&desc, &session));
  for (i = 0; i < LAYERS; i++) apply(0, 0, i, (float)i, 0, 0, 0);
  for (i = 0; i < 10; i++) iterate(i * 99);
  for (i = 0; i < LAYERS; drop(i++)) {
    copy.device_ptr = numbers[i], copy.host_ptr = memcpy(out[i], plain[i], BYTES);
    if (session) MUST(gmlake_offload_session_pin(session, ids[i], stream));
    if (session) MUST(queues.copy(queues.user, &copy, stream));
  }
  if (!session) return;
  MUST(queues.stream_sync(queues.user, stream));
  MUST(gmlake_offload_session_get_stats(session, &stats));
  printf("%2zu chunks of memory, %zu copies\n", stats.device_bytes_peak / memory.chunk_bytes,
         (size_t)(stats.out_count + stats.in_count));
  gmlake_offload_session_destroy(session);
}

int main(void) {
  static float want[LAYERS][N * N], all[LAYERS][N * N], half[LAYERS][N * N];
  train(0, want);
  open_device();
  train(0, all);
  train((LAYERS + 1) * memory.chunk_bytes, half);
  close_device();
  MUST(memcmp(all, want, sizeof all) || memcmp(half, want, sizeof all));
  printf("the weights are those of plain C, bit for bit\n");
  return 0;
}
