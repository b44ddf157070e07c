/* The lakes of gmlake_torch.c in the form that CuPy's CFunctionAllocator calls: its first argument,
   which CuPy passes through, is the stream, or a lane: a stream that is forgotten in time. From the
   directory of gmlake.h:

   cc -std=c99 -O2 -shared -fPIC -fvisibility=hidden -I. -I/usr/local/cuda/include \
     examples/cupy/gmlake_cupy.c -o gmlake_cupy.so -lpthread -ldl

   or `make cupy`, which needs no toolkit. gmlake_cupy.py beside this file gives it to CuPy. */
#include "../torch/gmlake_torch.c"

/* A stream that may be destroyed. It is kept until whoever opened the lane has closed it and the
   last block is freed; it is forgotten then, and the owner let go. */
typedef struct cupy_lane {
  void *stream;
  void *owner; /* that keeps the stream */
  void (*let_go)(void *owner);
  size_t users; /* blocks, and one for who opened it */
} cupy_lane;

API void *gmlake_cupy_malloc(void *stream, size_t bytes, int device);
API void gmlake_cupy_free(void *stream, void *ptr, int device);
API void *gmlake_cupy_lane_open(void *stream, void *owner, void (*let_go)(void *owner));
API void gmlake_cupy_lane_close(void *lane);
API void *gmlake_cupy_lane_malloc(void *lane, size_t bytes, int device);
API void gmlake_cupy_lane_free(void *lane, void *ptr, int device);

API void *gmlake_cupy_malloc(void *stream, size_t bytes, int device) {
  return gmlake_torch_malloc(bytes, device, stream);
}

API void gmlake_cupy_free(void *stream, void *ptr, int device) {
  gmlake_torch_free(ptr, 0, device, stream);
}

/* NULL: no memory. */
API void *gmlake_cupy_lane_open(void *stream, void *owner, void (*let_go)(void *owner)) {
  cupy_lane *const lane = (cupy_lane *)malloc(sizeof(cupy_lane));
  if (!lane) return NULL;
  lane->stream = stream;
  lane->owner = owner;
  lane->let_go = let_go;
  lane->users = 1;
  return lane;
}

/* Once, by who opened it. As lane_free it may let the owner go. */
API void gmlake_cupy_lane_close(void *user) {
  cupy_lane *const lane = (cupy_lane *)user;
  if (__atomic_sub_fetch(&lane->users, 1, __ATOMIC_ACQ_REL)) return;
  gmlake_torch_forget_stream(lane->stream);
  lane->let_go(lane->owner);
  free(lane);
}

API void *gmlake_cupy_lane_malloc(void *user, size_t bytes, int device) {
  cupy_lane *const lane = (cupy_lane *)user;
  void *const ptr = gmlake_torch_malloc(bytes, device, lane->stream);
  if (ptr) __atomic_add_fetch(&lane->users, 1, __ATOMIC_RELAXED);
  return ptr;
}

API void gmlake_cupy_lane_free(void *user, void *ptr, int device) {
  gmlake_torch_free(ptr, 0, device, ((cupy_lane *)user)->stream);
  gmlake_cupy_lane_close(user);
}
