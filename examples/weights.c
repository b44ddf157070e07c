/* Shows weights that give way under pressure. A model's layers lie in one buffer, each at an
   address that stays. When a large batch needs memory, the lake calls the program's handler, which
   discards the layer that is needed last from now on. Before a layer runs, its owner loads it again
   if it gave way. Neither waits for the device: the stream orders who uses the memory.

   The buffer's chunks are of the size that the lake's blocks have. So a batch takes what a layer
   gave up without a driver call, and nothing is created or returned.

   Compile it in the directory of gmlake.h. On the mock:
     cc -I. examples/weights.c -o weights -lpthread -ldl
   On a GPU:
     cc -I. -I/usr/local/cuda/include -DWEIGHTS_CUDA examples/weights.c -o weights \
       -lcuda -lpthread -ldl */
#define GMLAKE_IMPLEMENTATION
#if !defined(WEIGHTS_CUDA)
#define GMLAKE_BACKEND_MOCK
#endif
#include "gmlake.h"

#include <stdio.h>
#include <string.h>
#if defined(WEIGHTS_CUDA)
#include <cuda.h>
#endif

#define MIB ((size_t)1 << 20)
#define CHUNK (2 * MIB)
#define LAYERS 6
#define LAYER (8 * MIB)
#define LIMIT (64 * MIB) /* of all that the lake may hold */
#define PART (MIB / 2)   /* of a layer's output in the batch */

static struct model {
  gmlake_backend *backend;
  gmlake *lake;
  gmlake_stream stream;
  gmlake_buffer *weights;
  char *base;
  int is_loaded[LAYERS];
  int next; /* the layer that runs next */
  int loads, gave_way;
} m;

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

static char *layer_at(int layer) { return m.base + (size_t)layer * LAYER; }

/* ---- The device: the mock or CUDA. A layer holds its number, and copies it to its output ---- */

#if defined(WEIGHTS_CUDA)
static CUdevice device;

static CUdeviceptr at(const void *ptr) { return (CUdeviceptr)(uintptr_t)ptr; }

static int device_open(void) {
  CUcontext context;
  CUstream stream;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
      cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
    return 1;
  m.stream = (gmlake_stream)stream;
  return failed("cuda_create", gmlake_cuda_create(0, &m.backend));
}
/* pre: the lake is gone. */
static int device_close(void) {
  gmlake_cuda_destroy(m.backend);
  if (cuStreamDestroy((CUstream)m.stream)) return 1;
  return cuDevicePrimaryCtxRelease(device) != CUDA_SUCCESS;
}
static int load(int layer) {
  return cuMemsetD8Async(at(layer_at(layer)), (unsigned char)layer, LAYER, (CUstream)m.stream) !=
         CUDA_SUCCESS;
}
static int compute(int layer, char *output) {
  return cuMemcpyDtoDAsync(at(output), at(layer_at(layer) + LAYER - PART), PART,
                           (CUstream)m.stream) != CUDA_SUCCESS;
}
static int is_right(int layer, const char *output) {
  char first = -1;
  return !cuStreamSynchronize((CUstream)m.stream) && !cuMemcpyDtoH(&first, at(output), 1) &&
         first == layer;
}
#else
static int device_open(void) {
  if (failed("mock_create", gmlake_mock_create(NULL, &m.backend))) return 1;
  return failed("stream_create", gmlake_mock_stream_create(m.backend, &m.stream));
}
static int device_close(void) {
  gmlake_mock_stream_destroy(m.backend, m.stream);
  gmlake_mock_destroy(m.backend);
  return 0;
}
static int load(int layer) {
  memset(layer_at(layer), layer, LAYER);
  return 0;
}
static int compute(int layer, char *output) {
  memcpy(output, layer_at(layer) + LAYER - PART, PART);
  return 0;
}
static int is_right(int layer, const char *output) { return output[0] == layer; }
#endif

/* ---- The weights ---- */

/* The handler: gives up the layer that is needed last from now on. The lake calls it without a
   lock, and tries again if it returns 1. What the stream does before still has the memory. */
static int give_way(void *user, gmlake *lake, const gmlake_error_info *info) {
  int steps = LAYERS, layer = 0;
  (void)user;
  (void)info;
  while (steps-- && !m.is_loaded[layer = (m.next + steps) % LAYERS]) continue;
  if (!m.is_loaded[layer] ||
      gmlake_buffer_discard(lake, m.weights, (size_t)layer * LAYER, LAYER, m.stream))
    return 0;
  m.is_loaded[layer] = 0;
  m.gave_way++;
  return 1;
}

/* The owner: loads the layer if it is not there. */
static int need(int layer) {
  if (m.is_loaded[layer]) return 0;
  if (failed("commit",
             gmlake_buffer_commit(m.lake, m.weights, (size_t)layer * LAYER, LAYER, NULL, m.stream)))
    return 1;
  m.is_loaded[layer] = 1;
  m.loads++;
  return load(layer);
}

static int run_batch(size_t bytes) {
  char *batch;
  gmlake_stats stats = {0};
  m.loads = m.gave_way = m.next = 0;
  if (failed("alloc", gmlake_alloc(m.lake, bytes, m.stream, (void **)&batch))) return 1;
  for (; m.next < LAYERS; m.next++)
    if (need(m.next) || compute(m.next, batch + (size_t)m.next * PART)) return 1;
  while (m.next--)
    if (!is_right(m.next, batch + (size_t)m.next * PART)) return 1;
  if (failed("get_stats", gmlake_get_stats(m.lake, &stats))) return 1;
  printf("batch of %2zu MiB: %d layers gave way, %d were loaded; %zu MiB held\n", bytes / MIB,
         m.gave_way, m.loads, stats.reserved_bytes / MIB);
  return failed("free", gmlake_free(m.lake, batch, m.stream));
}

static int run(void) {
  static const size_t batches[] = {8, 8, 40, 40, 8, 8};
  gmlake_buffer_desc desc = {0};
  gmlake_buffer_info info;
  size_t i;
  desc.max_bytes = LAYERS * LAYER;
  desc.chunk_bytes = CHUNK;
  if (failed("buffer_create", gmlake_buffer_create(m.lake, &desc, &m.weights))) return 1;
  if (failed("get_info", gmlake_buffer_get_info(m.lake, m.weights, &info))) return 1;
  m.base = (char *)info.ptr;
  for (i = 0; i < sizeof(batches) / sizeof(batches[0]); i++)
    if (run_batch(batches[i] * MIB)) return 1;
  return failed("buffer_destroy", gmlake_buffer_destroy(m.lake, m.weights, m.stream));
}

int main(void) {
  gmlake_desc desc = {0};
  int status;
  if (device_open()) return 1;
  desc.backend = m.backend;
  desc.chunk_bytes = CHUNK;
  desc.limit_bytes = LIMIT;
  desc.oom.fn = give_way;
  if (failed("create", gmlake_create(&desc, &m.lake))) return 1;
  status = run();
  if (failed("forget", gmlake_forget_stream(m.lake, m.stream))) status = 1;
  if (failed("destroy", gmlake_destroy(m.lake))) status = 1;
  return status | device_close();
}
