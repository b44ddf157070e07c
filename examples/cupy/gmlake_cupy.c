/* The lakes of gmlake_torch.c in the form that CuPy's CFunctionAllocator calls: its first argument,
   which CuPy passes through, is the stream. From the directory of gmlake.h:

   cc -std=c99 -O2 -shared -fPIC -fvisibility=hidden -I. -I/usr/local/cuda/include \
     examples/cupy/gmlake_cupy.c -o gmlake_cupy.so -lpthread -ldl

   or `make cupy`, which needs no toolkit. gmlake_cupy.py beside this file gives it to CuPy. */
#include "../torch/gmlake_torch.c"

API void *gmlake_cupy_malloc(void *stream, size_t bytes, int device);
API void gmlake_cupy_free(void *stream, void *ptr, int device);

API void *gmlake_cupy_malloc(void *stream, size_t bytes, int device) {
  return gmlake_torch_malloc(bytes, device, stream);
}

API void gmlake_cupy_free(void *stream, void *ptr, int device) {
  gmlake_torch_free(ptr, 0, device, stream);
}
