/* Shows a server with two models and memory for one. Each model has a pool: its weights, and the
   memory of a graph that was captured into the pool. A request for the model that sleeps wakes it.
   Then memory is short, and the out-of-memory handler puts the other model to sleep: its memory
   goes back to the driver, its contents to the host, its addresses stay. The same graph runs
   before and after.

   Compile it in the directory of gmlake.h. On the mock:
     cc -I. examples/two_models.c -o two_models -lpthread -ldl
   On a GPU:
     cc -I. -I/usr/local/cuda/include -DTWO_MODELS_CUDA examples/two_models.c -o two_models \
       -lcuda -lpthread -ldl */
#define GMLAKE_IMPLEMENTATION
#if !defined(TWO_MODELS_CUDA)
#define GMLAKE_BACKEND_MOCK
#endif
#include "gmlake.h"

#include <stdio.h>
#include <string.h>
#if defined(TWO_MODELS_CUDA)
#include <cuda.h>
#endif

#define MIB ((size_t)1 << 20)
#define WEIGHTS (48 * MIB)
#define ANSWER (2 * MIB)
#define LIMIT (64 * MIB) /* of all that the lake may hold */

typedef struct model {
  char name; /* each byte of its weights */
  gmlake_pool *pool;
  void *weights, *answer;
  void *graph; /* copies the end of the weights to the answer */
} model;

static struct server {
  gmlake_backend *backend;
  gmlake *lake;
  gmlake_stream stream;
  model models[2];
  int served; /* the model that the request is for */
} s;

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

static char *end_of_weights(const model *m) { return (char *)m->weights + WEIGHTS - ANSWER; }

/* ---- The device: the mock or CUDA ---- */

#if defined(TWO_MODELS_CUDA)
static CUdevice device;

static CUdeviceptr at(const void *ptr) { return (CUdeviceptr)(uintptr_t)ptr; }

static int device_open(void) {
  CUcontext context;
  CUstream stream;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
      cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
    return 1;
  s.stream = (gmlake_stream)stream;
  return failed("cuda_create", gmlake_cuda_create(0, &s.backend));
}
/* pre: the lake has forgotten the stream. */
static int device_close(void) {
  gmlake_cuda_destroy(s.backend);
  if (cuStreamDestroy((CUstream)s.stream)) return 1;
  return cuDevicePrimaryCtxRelease(device) != CUDA_SUCCESS;
}
static int fill(const model *m) {
  return cuMemsetD8Async(at(m->weights), (unsigned char)m->name, WEIGHTS, (CUstream)s.stream) !=
         CUDA_SUCCESS;
}
static int capture_begin(void) {
  return cuStreamBeginCapture((CUstream)s.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS;
}
static int capture_end(model *m) {
  CUgraph graph;
  CUgraphExec exec;
  if (cuMemcpyDtoDAsync(at(m->answer), at(end_of_weights(m)), ANSWER, (CUstream)s.stream) ||
      cuStreamEndCapture((CUstream)s.stream, &graph) ||
      cuGraphInstantiateWithFlags(&exec, graph, 0))
    return 1;
  m->graph = (void *)exec;
  return cuGraphDestroy(graph) != CUDA_SUCCESS;
}
/* Waits until the graph has run, as its pool may sleep behind it. */
static int launch(const model *m) {
  return cuGraphLaunch((CUgraphExec)m->graph, (CUstream)s.stream) ||
         cuStreamSynchronize((CUstream)s.stream);
}
static char last_byte(const model *m) {
  char byte = 0;
  (void)cuMemcpyDtoH(&byte, at((char *)m->answer + ANSWER - 1), 1);
  return byte;
}
static int drop_graph(const model *m) {
  return cuGraphExecDestroy((CUgraphExec)m->graph) != CUDA_SUCCESS;
}
#else
static int device_open(void) {
  return failed("mock_create", gmlake_mock_create(NULL, &s.backend)) ||
         failed("stream_create", gmlake_mock_stream_create(s.backend, &s.stream));
}
static int device_close(void) {
  gmlake_mock_stream_destroy(s.backend, s.stream);
  gmlake_mock_destroy(s.backend);
  return 0;
}
static int fill(const model *m) {
  memset(m->weights, m->name, WEIGHTS);
  return 0;
}
static int capture_begin(void) {
  return failed("begin", gmlake_mock_capture_begin(s.backend, s.stream));
}
static int capture_end(model *m) {
  m->graph = NULL;
  return failed("end", gmlake_mock_capture_end(s.backend, s.stream));
}
static int launch(const model *m) {
  memcpy(m->answer, end_of_weights(m), ANSWER);
  return 0;
}
static char last_byte(const model *m) { return ((const char *)m->answer)[ANSWER - 1]; }
static int drop_graph(const model *m) { return m->graph != NULL; }
#endif

/* ---- The models ---- */

/* Called when memory is short: the model that the request is not for has to sleep. All its work has
   been waited for. */
static int make_room(void *user, gmlake *lake, const gmlake_error_info *info) {
  const model *other = &s.models[1 - s.served];
  size_t released = 0;
  (void)user;
  (void)info;
  if (!other->pool ||
      failed("sleep", gmlake_pool_sleep(lake, other->pool, GMLAKE_SLEEP_KEEP, &released)))
    return 0;
  if (released) printf("  model %c sleeps: %zu MiB given back\n", other->name, released / MIB);
  return released != 0;
}

/* The weights, and a graph whose memory is the pool's, too. */
static int load(model *m) {
  gmlake_alloc_desc desc = {0};
  int status;
  if (failed("pool_create", gmlake_pool_create(s.lake, NULL, &m->pool))) return 1;
  desc.bytes = WEIGHTS;
  desc.pool = m->pool;
  if (failed("weights", gmlake_alloc_with(s.lake, &desc, s.stream, &m->weights))) return 1;
  if (fill(m)) return 1;
  if (failed("capture_begin", gmlake_capture_begin(s.lake, s.stream, m->pool))) return 1;
  status = capture_begin();
  status |= failed("answer", gmlake_alloc(s.lake, ANSWER, s.stream, &m->answer));
  status = status || capture_end(m);
  return status | failed("capture_end", gmlake_capture_end(s.lake, s.stream));
}

static int serve(int number) {
  model *m = &s.models[number];
  gmlake_stats stats = {0};
  s.served = number;
  m->name = (char)('a' + number);
  printf("a request for model %c\n", m->name);
  if (!m->pool && load(m)) return 1;
  if (failed("wake", gmlake_pool_wake(s.lake, m->pool)) || launch(m)) return 1;
  if (failed("get_stats", gmlake_get_stats(s.lake, &stats))) return 1;
  printf("  its graph says %c; the lake holds %zu MiB, %zu MiB sleep\n", last_byte(m),
         stats.reserved_bytes / MIB, stats.sleeping_bytes / MIB);
  return last_byte(m) != m->name;
}

/* What sleeps need not wake to be given up. */
static int drop(model *m) {
  return drop_graph(m) | failed("free", gmlake_free(s.lake, m->answer, s.stream)) |
         failed("free", gmlake_free(s.lake, m->weights, s.stream)) |
         failed("pool_destroy", gmlake_pool_destroy(s.lake, m->pool));
}

int main(void) {
  static const int requests[] = {0, 0, 1, 0, 1, 1};
  gmlake_desc desc = {0};
  int status = 0;
  size_t i;
  if (device_open()) return 1;
  desc.backend = s.backend;
  desc.chunk_bytes = 2 * MIB;
  desc.limit_bytes = LIMIT;
  desc.oom.fn = make_room;
  if (failed("create", gmlake_create(&desc, &s.lake))) return 1;
  for (i = 0; i < sizeof(requests) / sizeof(requests[0]) && !status; i++)
    status = serve(requests[i]);
  status = status || drop(&s.models[0]) || drop(&s.models[1]);
  status |= failed("forget_stream", gmlake_forget_stream(s.lake, s.stream));
  status |= failed("destroy", gmlake_destroy(s.lake));
  return device_close() | status;
}
