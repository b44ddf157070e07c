/* A lake as the device memory handler of NVIDIA's libraries that take a table of two functions:
   cuStateVec, cuTensorNet and cuDSS. Their structs have the same fields under different names:

     custatevecDeviceMemHandler_t handler;
     GMLAKE_SET_MEM_HANDLER(handler, lake);
     custatevecSetDeviceMemHandler(handle, &handler);

   and cutensornetSetDeviceMemHandler, cudssSetDeviceMemHandler likewise. The lake has to outlive
   the library's handle. Written by the documentation of cuQuantum 25.09 and cuDSS 0.7. C99 and
   C++11. */
#if !defined(GMLAKE_DEVICE_MEM_HANDLER_H)
#define GMLAKE_DEVICE_MEM_HANDLER_H

#include "gmlake.h"

#include <string.h>

#if !defined(GMLAKE_RUNTIME_DECLARED)
#include <cuda_runtime_api.h> /* cudaStream_t */
#endif

/* 0, or what was wrong. */
static inline int gmlake_handler_alloc(void *lake, void **ptr, size_t bytes, cudaStream_t stream) {
  return (int)gmlake_alloc((gmlake *)lake, bytes, (gmlake_stream)stream, ptr);
}
static inline int gmlake_handler_free(void *lake, void *ptr, size_t bytes, cudaStream_t stream) {
  (void)bytes;
  return (int)gmlake_free((gmlake *)lake, ptr, (gmlake_stream)stream);
}

#define GMLAKE_SET_MEM_HANDLER(handler, lake)                                                  \
  (memset(&(handler), 0, sizeof(handler)), memcpy((handler).name, "gmlake", sizeof("gmlake")), \
   (handler).device_alloc = gmlake_handler_alloc, (handler).device_free = gmlake_handler_free, \
   (void)((handler).ctx = (lake)))

#endif
