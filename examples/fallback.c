/* Shows what a program can do where the device has no virtual memory management: gmlake_create
   returns GMLAKE_ERROR_UNSUPPORTED there, and the program uses gmlake_bfc.h in the lake's place.
   The program runs twice, on a mock that can map memory and on one that refuses; segments are host
   memory.

   Compile and run it in the directory of gmlake.h:
     cc -I. examples/fallback.c -o fallback -lpthread -ldl && ./fallback

   With CUDA, leave desc.backend NULL, and let take and give call the driver:
     return cuMemAlloc(&address, bytes) == CUDA_SUCCESS ? (void *)address : NULL;
     cuMemFree((CUdeviceptr)segment); */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"
#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The program's allocator. One of the two exists, the other is NULL. */
typedef struct memory {
  gmlake *lake;
  gmlake_bfc *bfc;
} memory;

/* gmlake_bfc.h divides segments. These two functions get them and give them back. */
static void *take(void *user, size_t bytes) {
  void *segment;
  (void)user;
  return posix_memalign(&segment, 512, bytes) ? NULL : segment;
}

static void give(void *user, void *segment, size_t bytes) {
  (void)user, (void)bytes;
  free(segment);
}

/* Returns 0 if it has made one of the two. It uses the fallback only if the device cannot map
   memory, not after other errors. */
static int memory_create(memory *m, const gmlake_backend *backend) {
  gmlake_desc desc = {0};
  gmlake_bfc_desc fallback = {0};
  desc.backend = backend;
  const gmlake_result result = gmlake_create(&desc, &m->lake);
  printf("gmlake_create: %s\n", gmlake_result_name(result));
  if (result != GMLAKE_ERROR_UNSUPPORTED) return result != GMLAKE_OK;
  fallback.segment_alloc = take;
  fallback.segment_free = give;
  return gmlake_bfc_create(&fallback, &m->bfc) != GMLAKE_BFC_OK;
}

static int memory_alloc(memory *m, size_t bytes, gmlake_stream stream, void **out_ptr) {
  return m->lake ? gmlake_alloc(m->lake, bytes, stream, out_ptr) != GMLAKE_OK
                 : gmlake_bfc_alloc(m->bfc, bytes, stream, out_ptr) != GMLAKE_BFC_OK;
}

static int memory_free(memory *m, void *ptr, gmlake_stream stream) {
  return m->lake ? gmlake_free(m->lake, ptr, stream) != GMLAKE_OK
                 : gmlake_bfc_free(m->bfc, ptr) != GMLAKE_BFC_OK;
}

/* Takes the place of a backend function: it answers as a device without memory mapping does. */
static gmlake_result refuse(void *user, gmlake_device_properties *out, int *out_code) {
  (void)user, (void)out;
  *out_code = 0;
  return GMLAKE_ERROR_UNSUPPORTED;
}

static int run(const gmlake_backend *backend) {
  const size_t bytes = (size_t)3 << 20;
  memory m = {0};
  void *tensor;
  if (memory_create(&m, backend) || memory_alloc(&m, bytes, NULL, &tensor)) return 1;
  memset(tensor, 1, bytes);
  printf("%zu bytes came from %s\n", bytes, m.lake ? "gmlake.h" : "gmlake_bfc.h");
  return memory_free(&m, tensor, NULL) || gmlake_destroy(m.lake) != GMLAKE_OK ||
         gmlake_bfc_destroy(m.bfc) != GMLAKE_BFC_OK;
}

int main(void) {
  gmlake_backend *mock;
  if (gmlake_mock_create(NULL, &mock) != GMLAKE_OK) return 1;
  gmlake_backend old = *mock;
  old.get_properties = refuse;
  const int status = run(mock) || run(&old);
  gmlake_mock_destroy(mock);
  return status;
}
