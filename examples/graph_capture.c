/* Shows how a CUDA graph gets its memory. A graph keeps the addresses that it was captured with, so
   its memory comes from a pool that nobody else uses and that lives as long as the graph. The
   program captures twice into one pool: the second capture reuses the memory of the first, so the
   lake holds no more after it. With CUDA, call the driver's cuStreamBeginCapture and
   cuStreamEndCapture, and cuGraphLaunch, where this program calls the mock.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/graph_capture.c -o graph_capture -lpthread -ldl && ./graph_capture */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdio.h>

#define MIB ((size_t)1 << 20)

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

/* Allocates as a model does: each layer has a temporary that is freed at its end. */
static int run_layers(gmlake *lake, gmlake_stream stream) {
  size_t layer;
  for (layer = 1; layer <= 4; layer++) {
    void *temporary;
    if (failed("alloc", gmlake_alloc(lake, layer * 3 * MIB, stream, &temporary))) return 1;
    if (failed("free", gmlake_free(lake, temporary, stream))) return 1;
  }
  return 0;
}

/* The order is important: first the lake learns of the capture, then the driver begins it; the
   driver ends it, then the lake learns that. Between, allocations on the stream come from the
   pool. */
static int capture(gmlake_backend *backend, gmlake *lake, gmlake_stream stream, gmlake_pool *pool) {
  gmlake_stats stats = {0};
  int status;
  if (failed("capture_begin", gmlake_capture_begin(lake, stream, pool))) return 1;
  status = failed("begin", gmlake_mock_capture_begin(backend, stream));
  if (!status) {
    status = run_layers(lake, stream);
    status |= failed("end", gmlake_mock_capture_end(backend, stream));
  }
  status |= failed("capture_end", gmlake_capture_end(lake, stream));
  status |= failed("get_stats", gmlake_get_stats(lake, &stats));
  printf("captured, reserved %zu MiB\n", stats.reserved_bytes / MIB);
  return status;
}

static int run(gmlake_backend *backend, gmlake *lake) {
  gmlake_stream stream;
  gmlake_pool *pool;
  int i, status = 0;
  if (failed("stream_create", gmlake_mock_stream_create(backend, &stream))) return 1;
  if (failed("pool_create", gmlake_pool_create(lake, NULL, &pool))) return 1;
  for (i = 0; i < 2; i++) status |= capture(backend, lake, stream, pool);
  /* A program launches its graphs here: on one stream, as they share memory. */
  for (i = 0; i < 4; i++)
    status |= failed("launch", gmlake_mock_launch(backend, pool, (uint64_t)i % 2, stream));
  gmlake_mock_stream_finish(backend, stream);
  /* The pool may go when they have run and are destroyed. */
  status |= failed("pool_destroy", gmlake_pool_destroy(lake, pool));
  /* Before a stream is destroyed, the lake must forget it: it would use it later. */
  status |= failed("forget_stream", gmlake_forget_stream(lake, stream));
  gmlake_mock_stream_destroy(backend, stream);
  return status;
}

int main(void) {
  gmlake_mock_desc mock = {0};
  gmlake_desc desc = {0};
  gmlake_backend *backend;
  gmlake *lake;
  int status;
  mock.capacity_bytes = 64 * MIB;
  if (failed("mock_create", gmlake_mock_create(&mock, &backend))) return 1;
  desc.backend = backend;
  status = failed("create", gmlake_create(&desc, &lake));
  if (!status) {
    status = run(backend, lake);
    status |= failed("destroy", gmlake_destroy(lake));
  }
  gmlake_mock_destroy(backend);
  return status;
}
