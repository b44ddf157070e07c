/* The driver's functions that examples/ and bench/lend.c call, found when they are first called. A
   program linked with the driver's library would not even start where there is none; with this file
   in its place it says so. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void find(const char *name, void *out_function) {
  void *const library = dlopen("libcuda.so.1", RTLD_LAZY);
  void *const found = library ? dlsym(library, name) : NULL;
  if (!found) {
    fprintf(stderr,
            "this program needs an NVIDIA GPU and its driver, and here is none (%s): make doctor "
            "says what works on this machine\n",
            dlerror());
    exit(1);
  }
  memcpy(out_function, &found, sizeof(found));
}

/* cuda.h gives some functions another name, which TEXT then sees. */
#define TEXT(name) TEXT_OF(name)
#define TEXT_OF(name) #name
#define LATE(name, parameters, arguments)        \
  CUresult CUDAAPI name parameters {             \
    static CUresult(CUDAAPI *driver) parameters; \
    if (!driver) find(TEXT(name), &driver);      \
    return driver arguments;                     \
  }

LATE(cuInit, (unsigned flags), (flags))
LATE(cuDeviceGet, (CUdevice * out, int number), (out, number))
LATE(cuDevicePrimaryCtxRetain, (CUcontext * out, CUdevice device), (out, device))
LATE(cuDevicePrimaryCtxRelease, (CUdevice device), (device))
LATE(cuCtxSetCurrent, (CUcontext context), (context))
LATE(cuStreamCreate, (CUstream * out, unsigned flags), (out, flags))
LATE(cuStreamDestroy, (CUstream stream), (stream))
LATE(cuStreamSynchronize, (CUstream stream), (stream))
LATE(cuEventCreate, (CUevent * out, unsigned flags), (out, flags))
LATE(cuEventDestroy, (CUevent event), (event))
LATE(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
LATE(cuEventElapsedTime, (float *out_ms, CUevent from, CUevent to), (out_ms, from, to))
LATE(cuModuleLoadData, (CUmodule * out, const void *image), (out, image))
LATE(cuModuleUnload, (CUmodule module), (module))
LATE(cuModuleGetFunction, (CUfunction * out, CUmodule module, const char *name),
     (out, module, name))
LATE(cuLaunchKernel,
     (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
      unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
      void **extra),
     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,
      extra))
LATE(cuStreamBeginCapture, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
LATE(cuStreamEndCapture, (CUstream stream, CUgraph *out), (stream, out))
LATE(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
     (out, graph, flags))
LATE(cuGraphLaunch, (CUgraphExec graph, CUstream stream), (graph, stream))
LATE(cuGraphExecDestroy, (CUgraphExec graph), (graph))
LATE(cuGraphDestroy, (CUgraph graph), (graph))
LATE(cuMemAlloc, (CUdeviceptr * out, size_t bytes), (out, bytes))
LATE(cuMemFree, (CUdeviceptr at), (at))
LATE(cuMemGetInfo, (size_t * out_free, size_t *out_total), (out_free, out_total))
LATE(cuMemcpyDtoH, (void *out, CUdeviceptr at, size_t bytes), (out, at, bytes))
LATE(cuMemcpyDtoDAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
     (to, from, bytes, stream))
LATE(cuMemcpyHtoDAsync, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
     (to, from, bytes, stream))
LATE(cuMemcpyDtoHAsync, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
     (to, from, bytes, stream))
LATE(cuMemsetD8Async, (CUdeviceptr at, unsigned char value, size_t count, CUstream stream),
     (at, value, count, stream))
LATE(cuMemsetD32Async, (CUdeviceptr at, unsigned value, size_t count, CUstream stream),
     (at, value, count, stream))
