/* Allocates a tensor, writes to it, frees it and prints the statistics. It runs on the mock, a
   device in host memory whose addresses the host can use; on a GPU define GMLAKE_BACKEND_CUDA
   instead and write with kernels and copies. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdio.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

static int use_tensor(gmlake *lake) {
  const gmlake_stream stream = NULL; /* the legacy stream */
  gmlake_stats stats = {0};
  void *tensor;
  if (failed("alloc", gmlake_alloc(lake, 3 * MIB + 100, stream, &tensor))) return 1;
  memset(tensor, 42, 3 * MIB + 100);
  printf("the last byte is %d\n", ((const char *)tensor)[3 * MIB + 99]);

  if (failed("get_stats", gmlake_get_stats(lake, &stats))) return 1;
  printf("asked for %zu bytes, got %zu, the lake holds %zu in %llu chunks\n", stats.requested_bytes,
         stats.active_bytes, stats.reserved_bytes, (unsigned long long)stats.chunk_count);

  if (failed("free", gmlake_free(lake, tensor, stream))) return 1;
  if (failed("get_stats", gmlake_get_stats(lake, &stats))) return 1;
  printf("after the free: %zu bytes live, %zu kept for the next allocation\n", stats.active_bytes,
         stats.reserved_bytes);
  return 0;
}

int main(void) {
  gmlake_mock_desc mock = {0};
  gmlake_desc desc = {0}; /* zero is the default of every field */
  gmlake_backend *backend;
  gmlake *lake;
  int status;
  mock.capacity_bytes = 64 * MIB;
  if (failed("mock_create", gmlake_mock_create(&mock, &backend))) return 1;
  desc.backend = backend;
  status = failed("create", gmlake_create(&desc, &lake));
  if (!status) {
    status = use_tensor(lake);
    status |= failed("destroy", gmlake_destroy(lake));
  }
  gmlake_mock_destroy(backend);
  return status;
}
