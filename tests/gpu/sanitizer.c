/* usage: sanitizer CASE [bare|plain]
   For tests/gpu/sanitizer.sh: kernels on blocks of a lake that examples/nvtx.h shows to NVIDIA's
   tools. CASE says what they touch: only what is live (fits, window, buffer), or also what is not
   (over: a block's neighbour; rounded: what rounding added; freed; window_over, buffer_over).
   All of it is mapped, so that the device itself sees no error. bare: the lake without nvtx.h.
   plain: the lake in memory of cuMemAlloc, which is not mapped. */
#define GMLAKE_IMPLEMENTATION
#include "gmlake.h"

#include "examples/nvtx.h"

#include <cuda.h>
#include "gpu.h"

#define MIB ((size_t)1 << 20)

static gpu_driver gpu;
static gpu_kernels kernels;
static gmlake *lake;

static void need(const char *what, int code) {
  if (!code) return;
  fprintf(stderr, "%s: %d\n", what, code);
  exit(2);
}

/* Writes the words in [offset, offset + bytes). */
static void touch(void *ptr, size_t offset, size_t bytes) {
  const CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr + offset;
  need("a kernel", (int)gpu_fill(&gpu, &kernels, NULL, at, bytes / 4, 1));
  need("the device", (int)gpu.cuCtxSynchronize());
}

static void *take(size_t bytes) {
  void *ptr;
  need("gmlake_alloc", gmlake_alloc(lake, bytes, NULL, &ptr));
  return ptr;
}

static void blocks(const char *name) {
  void *first = take(1000), *second = take(4096);
  touch(first, 0, strcmp(name, "over") == 0 ? 2000 : strcmp(name, "rounded") == 0 ? 1012 : 1000);
  if (strcmp(name, "freed") == 0) need("gmlake_free", gmlake_free(lake, second, NULL));
  touch(second, 0, 64);
}

static void window(const char *name) {
  void *b[8], *w;
  size_t i;
  for (i = 0; i < 8; i++) b[i] = take(2 * MIB);
  for (i = 0; i < 8; i += 2) need("gmlake_free", gmlake_free(lake, b[i], NULL));
  w = take(7 * MIB);
  touch(w, 0, strcmp(name, "window_over") == 0 ? 7 * MIB + 64 : 7 * MIB);
}

static void buffer(const char *name) {
  gmlake_buffer_desc desc;
  gmlake_buffer_info info;
  gmlake_buffer *b;
  memset(&desc, 0, sizeof(desc));
  desc.max_bytes = 64 * MIB;
  need("gmlake_buffer_create", gmlake_buffer_create(lake, &desc, &b));
  need("gmlake_buffer_resize", gmlake_buffer_resize(lake, b, 10 * MIB, NULL));
  need("gmlake_buffer_get_info", gmlake_buffer_get_info(lake, b, &info));
  touch(info.ptr, 0, 10 * MIB);
  need("gmlake_buffer_resize", gmlake_buffer_resize(lake, b, 4 * MIB, NULL));
  touch(info.ptr, strcmp(name, "buffer_over") == 0 ? 5 * MIB : 0, 64);
}

static uint64_t plain_take(void *user, size_t bytes) {
  CUdeviceptr address = 0;
  (void)user;
  return gpu.cuMemAlloc(&address, bytes) ? 0 : (uint64_t)address;
}

static void plain_give(void *user, uint64_t address) {
  (void)user;
  need("cuMemFree", (int)gpu.cuMemFree((CUdeviceptr)address));
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "fits", *how = argc > 2 ? argv[2] : "";
  const gmlake_nvtx_memory memory = {plain_take, plain_give, NULL, 256 * MIB};
  gmlake_backend *backend = NULL;
  gmlake_nvtx *shown = NULL;
  CUcontext context;
  CUdevice device;
  gmlake_desc desc;
  memset(&desc, 0, sizeof(desc));
  if (!gpu_open(&gpu, "libcuda.so.1") || gpu.cuInit(0) || gpu.cuDeviceGet(&device, 0)) return 3;
  need("the context", (int)gpu.cuDevicePrimaryCtxRetain(&context, device));
  need("the context", (int)gpu.cuCtxSetCurrent(context));
  need("the kernels", (int)gpu_load_kernels(&gpu, &kernels));
  need("gmlake_cuda_create", gmlake_cuda_create(0, &backend));
  desc.backend = backend;
  desc.chunk_bytes = 2 * MIB;
  if (strcmp(how, "plain") == 0)
    shown = gmlake_nvtx_attach_plain("gmlake", &desc, &memory);
  else if (strcmp(how, "bare") != 0)
    shown = gmlake_nvtx_attach("gmlake", &desc);
  need("gmlake_create", gmlake_create(&desc, &lake));
  if (strncmp(name, "window", 6) == 0)
    window(name);
  else if (strncmp(name, "buffer", 6) == 0)
    buffer(name);
  else
    blocks(name);
  need("gmlake_destroy", gmlake_destroy(lake));
  gmlake_nvtx_detach(shown);
  gmlake_cuda_destroy(backend);
  printf("%s: done\n", name);
  return 0;
}
