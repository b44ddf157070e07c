/* What gmlake-cuda.cuh uses of ggml's common.cuh and of the CUDA runtime, as of llama.cpp b10361,
   on the driver. tests/clients/ggml_cuda.cpp includes it. */
#pragma once

#include <cuda.h>

#include <stdio.h>

#include <stdexcept>
#include <string>

#define GGML_CUDA_MAX_DEVICES 16
#define GGML_CUDA_CC_VOLTA 700
#define USE_CUDA_GRAPH

static std::string logged;

static char ggml_stub_text[512];
static void ggml_stub_log() { logged += ggml_stub_text; }
[[noreturn]] static void ggml_stub_abort() { throw std::runtime_error(ggml_stub_text); }

#define GGML_STUB_SAY(then, ...) \
  ((void)snprintf(ggml_stub_text, sizeof ggml_stub_text, __VA_ARGS__), then())
#define GGML_LOG_WARN(...) GGML_STUB_SAY(ggml_stub_log, __VA_ARGS__)
#define GGML_LOG_INFO(...) GGML_STUB_SAY(ggml_stub_log, __VA_ARGS__)
#define GGML_ABORT(...) GGML_STUB_SAY(ggml_stub_abort, __VA_ARGS__)
#define CUDA_CHECK(call)                           \
  do {                                             \
    if ((call) != CUDA_SUCCESS) GGML_ABORT(#call); \
  } while (0)

struct ggml_cuda_pool {
  virtual ~ggml_cuda_pool() = default;
  virtual void *alloc(size_t size, size_t *actual_size) = 0;
  virtual void free(void *ptr, size_t size) = 0;
};

struct ggml_cuda_device_info {
  int physical_device_count;
  struct cuda_device_info {
    int physical_device, cc;
  };
  cuda_device_info devices[GGML_CUDA_MAX_DEVICES];
};

static const ggml_cuda_device_info &ggml_cuda_info() {
  static ggml_cuda_device_info info = {};
  if (!info.physical_device_count) {
    if (cuInit(0) || cuDeviceGetCount(&info.physical_device_count))
      throw std::runtime_error("driver");
    for (int i = 0; i < info.physical_device_count; i++) {
      info.devices[i].physical_device = i;
      info.devices[i].cc = GGML_CUDA_CC_VOLTA;
    }
  }
  return info;
}

typedef CUstream cudaStream_t;
#define cudaStreamPerThread ((cudaStream_t) nullptr) /* the fake driver has none */

static void ggml_cuda_set_device(int device) {
  static CUcontext contexts[GGML_CUDA_MAX_DEVICES];
  if (!contexts[device] && cuDevicePrimaryCtxRetain(&contexts[device], device))
    throw std::runtime_error("context");
  if (cuCtxSetCurrent(contexts[device])) throw std::runtime_error("context");
}

#define cudaSuccess CUDA_SUCCESS
static inline CUresult cudaFree(void *ptr) {
  return ptr ? cuMemFree((CUdeviceptr)ptr) : CUDA_SUCCESS;
}
static inline CUresult cudaGetLastError() { return CUDA_SUCCESS; }
static inline CUresult ggml_cuda_device_malloc(void **out, size_t bytes, int device) {
  CUdeviceptr address = 0;
  ggml_cuda_set_device(device);
  const CUresult code = cuMemAlloc(&address, bytes);
  *out = (void *)address;
  return code;
}
static inline CUresult cudaDeviceSynchronize() { return cuCtxSynchronize(); }
static inline CUresult cudaStreamSynchronize(cudaStream_t stream) {
  return cuStreamSynchronize(stream);
}
static inline CUresult cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream) {
  return cuMemsetD8Async((CUdeviceptr)ptr, (unsigned char)value, bytes, stream);
}
static inline CUresult cudaDeviceCanAccessPeer(int *out, int device, int peer) {
  return cuDeviceCanAccessPeer(out, device, peer);
}
