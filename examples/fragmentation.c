/* Shows what fragmentation costs. It fills a device with tensors of 10.5 MiB, frees some until 80 %
   of the device is live, and asks for 15 % in one piece. It does so with three allocators:
   cuMemAlloc, which takes pages of 2 MiB from the device; a best-fit caching allocator over it; and
   the lake. For each it prints what is live, what is held, and whether the large request was
   served.

   It needs a GPU that no other program uses. Compile and run it in the directory of gmlake.h:
     cc -I. -I/usr/local/cuda/include examples/fragmentation.c -o fragmentation \
       -lcuda -lpthread -ldl
     ./fragmentation */
#define GMLAKE_IMPLEMENTATION
#include "gmlake.h"
#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)
#define TENSOR (10 * MIB + MIB / 2)

/* The allocator of the current run. If both are NULL, it is cuMemAlloc. */
static gmlake *lake;
static gmlake_bfc *bfc;

static void *device_alloc(void *user, size_t bytes) {
  CUdeviceptr address = 0;
  (void)user;
  return cuMemAlloc(&address, bytes) == CUDA_SUCCESS ? (void *)(uintptr_t)address : NULL;
}

static void device_free(void *user, void *ptr, size_t bytes) {
  (void)user, (void)bytes;
  (void)cuMemFree((CUdeviceptr)(uintptr_t)ptr);
}

/* Returns NULL if there is no memory. No kernel runs, so all blocks can be on the legacy stream. */
static void *take(size_t bytes) {
  void *ptr = NULL;
  if (lake) return gmlake_alloc(lake, bytes, NULL, &ptr) == GMLAKE_OK ? ptr : NULL;
  if (bfc) return gmlake_bfc_alloc(bfc, bytes, NULL, &ptr) == GMLAKE_BFC_OK ? ptr : NULL;
  return device_alloc(NULL, bytes);
}

static int give(void *ptr) {
  if (lake) return gmlake_free(lake, ptr, NULL) != GMLAKE_OK;
  if (bfc) return gmlake_bfc_free(bfc, ptr) != GMLAKE_BFC_OK;
  return device_free(NULL, ptr, 0), 0;
}

/* Allocates 86.5 % of what is free, then frees 9 neighbours of every 120, so that many small ranges
   are free. Then it asks for the large piece. At the end it frees the rest. */
static int run(const char *name) {
  size_t all, left, total, i;
  gmlake_map_entry info;
  if (cuMemGetInfo(&all, &total)) return 1;
  const size_t count = all / 1000 * 865 / TENSOR, freed = count / 120 * 9;
  void **tensors = (void **)calloc(count, sizeof(void *)), *large;
  for (i = 0; i < count; i++)
    if (!(tensors[i] = take(TENSOR))) return 1;
  for (i = 0; i < freed; i++)
    if (give(tensors[i / 9 * 120 + i % 9])) return 1;
  if (cuMemGetInfo(&left, &total)) return 1;
  large = take(all / 100 * 15);
  printf("%-10s %6zu MiB live (%zu %%), %6zu held; asked for %zu more: %s\n", name,
         (count - freed) * TENSOR / MIB, (count - freed) * TENSOR / (all / 100), (all - left) / MIB,
         all / 100 * 15 / MIB, large ? "served" : "out of memory");
  if (lake && large && !gmlake_find(lake, large, &info))
    printf("           in %zu pieces\n", info.piece_count);
  if (large && give(large)) return 1;
  for (i = 0; i < count; i++)
    if ((i % 120 >= 9 || i / 120 >= count / 120) && give(tensors[i])) return 1;
  return free(tensors), 0;
}

int main(void) {
  const gmlake_bfc_desc desc = {.segment_alloc = device_alloc, .segment_free = device_free};
  CUcontext context;
  CUdevice device;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device)) return 1;
  if (cuCtxSetCurrent(context) || run("cuMemAlloc")) return 1;
  if (gmlake_bfc_create(&desc, &bfc) || run("best fit") || gmlake_bfc_destroy(bfc)) return 1;
  bfc = NULL;
  if (gmlake_create(NULL, &lake) || run("lake") || gmlake_destroy(lake)) return 1;
  return cuDevicePrimaryCtxRelease(device) != CUDA_SUCCESS;
}
