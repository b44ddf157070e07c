/* Gives CuPy its memory from the lakes of gmlake_pluggable.c, in the form that CuPy's
   CFunctionAllocator calls. CuPy passes the first argument through. Here that is a stream, or a
   *lane*: a stream together with the object that owns it, for streams that may be destroyed. To
   build it, run `make cupy`, which needs no CUDA toolkit, or in the directory of gmlake.h:

   cc -std=c99 -O2 -shared -fPIC -fvisibility=hidden -I. -I/usr/local/cuda/include \
     examples/cupy/gmlake_cupy.c -o gmlake_cupy.so -lpthread -ldl

   gmlake_cupy.py beside this file gives it to CuPy. */
#include "../torch/gmlake_pluggable.c"

/* A stream that may be destroyed. The lane keeps it alive until the lane is closed and its last
   block is freed. Then the lakes forget the stream, and the lane lets its owner go, which may
   destroy it. */
typedef struct cupy_lane {
  void *stream;
  void *owner; /* the object that keeps the stream alive */
  void (*let_go)(void *owner);
  size_t users; /* the number of blocks, plus 1 until it is closed */
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

/* Returns NULL if host memory has run out. */
API void *gmlake_cupy_lane_open(void *stream, void *owner, void (*let_go)(void *owner)) {
  cupy_lane *const lane = (cupy_lane *)malloc(sizeof(cupy_lane));
  if (!lane) return NULL;
  lane->stream = stream;
  lane->owner = owner;
  lane->let_go = let_go;
  lane->users = 1;
  return lane;
}

/* Call it once for each lane_open. Like lane_free, it lets the owner go if it was the last user. */
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
