/* Shows the smallest use of a lake: create it, allocate a tensor, write to it, free it, and print
   the statistics. It needs no GPU: it runs on the mock, a device in host memory, so the host can
   write to the tensor with memset. On a GPU, remove GMLAKE_BACKEND_MOCK and all that names the
   mock, and write with kernels and copies.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/hello.c -o hello -lpthread -ldl && ./hello */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdio.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

/* Every call returns a gmlake_result. This program prints those that are not GMLAKE_OK. */
static int failed(const char *what, gmlake_result result) {
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s\n", what, gmlake_result_name(result));
  return 1;
}

static int use_tensor(gmlake *lake) {
  const gmlake_stream stream = NULL; /* CUDA's legacy default stream */
  gmlake_stats stats = {0};
  void *tensor;
  /* The stream on which the tensor is used. With CUDA, queue kernels there in place of memset. */
  if (failed("alloc", gmlake_alloc(lake, 3 * MIB + 100, stream, &tensor))) return 1;
  memset(tensor, 42, 3 * MIB + 100);
  printf("the last byte is %d\n", ((const char *)tensor)[3 * MIB + 99]);

  /* A block is a multiple of 512 bytes. Its memory comes from chunks, here of 2 MiB. */
  if (failed("get_stats", gmlake_get_stats(lake, &stats))) return 1;
  printf("asked for %zu bytes, got %zu, the lake holds %zu in %llu chunks\n", stats.requested_bytes,
         stats.active_bytes, stats.reserved_bytes, (unsigned long long)stats.chunk_count);

  /* The lake keeps the chunks for the next allocation. gmlake_trim would return them. */
  if (failed("free", gmlake_free(lake, tensor, stream))) return 1;
  if (failed("get_stats", gmlake_get_stats(lake, &stats))) return 1;
  printf("after the free: %zu bytes live, %zu kept for the next allocation\n", stats.active_bytes,
         stats.reserved_bytes);
  return 0;
}

int main(void) {
  gmlake_mock_desc mock = {0};
  gmlake_desc desc = {0}; /* 0 means the default in every field */
  gmlake_backend *backend;
  gmlake *lake;
  int status;
  mock.capacity_bytes = 64 * MIB; /* the memory of the device that the mock pretends to be */
  if (failed("mock_create", gmlake_mock_create(&mock, &backend))) return 1;
  desc.backend = backend;
  status = failed("create", gmlake_create(&desc, &lake));
  if (!status) {
    status = use_tensor(lake);
    status |= failed("destroy", gmlake_destroy(lake));
  }
  gmlake_mock_destroy(backend); /* after the lake, which uses it */
  return status;
}
