// gmlake_bfc_pool.h on ggml's CUDA backend, also where that is built for HIP or MUSA. Included by
// ggml-cuda.cu alone, behind ggml_cuda_device_malloc.
//   GGML_CUDA_GMLAKE_BFC=1  devices that cannot map memory use it, in place of ggml_cuda_pool_leg
#pragma once

#include "common.cuh"

#define GMLAKE_BFC_STATIC
#define GMLAKE_BFC_IMPLEMENTATION
#if !defined(GMLAKE_GGML_ABORT)
#define GMLAKE_GGML_ABORT(text) GGML_ABORT("gmlake: %s", text)
#endif
#include "gmlake_bfc_pool.h"

#include <stdlib.h>
#include <string.h>

static bool gmlake_bfc_is_used() {
  static const char *const value = getenv("GGML_CUDA_GMLAKE_BFC");
  return value && strcmp(value, "1") == 0;
}

// Whether graphs may have addresses of the device's pool: as ggml says, from Volta on.
static bool gmlake_bfc_keeps(int device) {
#if defined(USE_CUDA_GRAPH)
  return getenv("GGML_CUDA_DISABLE_GRAPHS") == nullptr &&
         ggml_cuda_info().devices[device].cc >= GGML_CUDA_CC_VOLTA;
#else
  (void)device;
  return false;
#endif
}

static void *gmlake_bfc_take(int device, size_t bytes) {
  void *ptr = nullptr;
  ggml_cuda_set_device(device);
  if (ggml_cuda_device_malloc(&ptr, bytes, device) == cudaSuccess) return ptr;
  (void)cudaGetLastError();
  return nullptr;
}

static void gmlake_bfc_give(int device, void *ptr) {
  ggml_cuda_set_device(device);
  CUDA_CHECK(cudaFree(ptr));
}

static gmlake_bfc_source gmlake_bfc_source_of(int device) {
  const gmlake_bfc_source source = {device, gmlake_bfc_take, gmlake_bfc_give};
  return source;
}
