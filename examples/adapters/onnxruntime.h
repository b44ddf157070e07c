/* ONNX Runtime's device memory from a lake, as an allocator that the sessions of an environment
   share. In C, for device 0:

     api->CreateMemoryInfo("Cuda", OrtDeviceAllocator, 0, OrtMemTypeDefault, &info);
     gmlake_onnxruntime_init(&allocator, lake, stream, info);
     api->RegisterAllocator(env, &allocator.base);
   and for each session, the last of the provider's options:
     api->AddSessionConfigEntry(options, "session.use_env_allocators", "1");
     api->UpdateCUDAProviderOptionsWithValue(cuda_options, "user_compute_stream", stream);

   The sessions then have no arena of their own: they allocate and free each tensor here, and free
   it before the work on their stream is done. No call names that stream, so every session has to
   compute on `stream`. Weights are copied on the legacy stream: `stream` must wait for that one,
   as streams of cudaStreamCreate do and those with cudaStreamNonBlocking do not. The lake, info and
   allocator outlive the environment.

   The provider's options gpu_external_alloc, gpu_external_free and gpu_external_empty_cache, which
   take addresses as decimal text, are for Python: UpdateCUDAProviderOptions of the C API reads them
   and drops them. With them kernels run on the legacy stream, and a user_compute_stream is refused:

     gmlake_onnxruntime_set(lake);                    there is one for the process
     gmlake_onnxruntime_options(alloc, release, empty);

   Written by the source of 1.16 and OrtAllocator of 1.23, compiled with the header of 1.13. C99 and
   C++11. */
#if !defined(GMLAKE_ONNXRUNTIME_H)
#define GMLAKE_ONNXRUNTIME_H

#include "gmlake.h"

#include <stdio.h>
#include <string.h>

#if !defined(GMLAKE_ONNXRUNTIME_DECLARED)
#include <onnxruntime_c_api.h>
#endif

typedef struct gmlake_onnxruntime {
  OrtAllocator base; /* the first: ONNX Runtime gives its address back */
  gmlake *lake;
  gmlake_stream stream;
  const OrtMemoryInfo *info;
} gmlake_onnxruntime;

static inline void *ORT_API_CALL gmlake_onnxruntime_take(OrtAllocator *base, size_t bytes) {
  gmlake_onnxruntime *const a = (gmlake_onnxruntime *)base;
  void *ptr = NULL;
  (void)gmlake_alloc(a->lake, bytes, a->stream, &ptr);
  return ptr; /* NULL: none, and ONNX Runtime reports it */
}
static inline void ORT_API_CALL gmlake_onnxruntime_give(OrtAllocator *base, void *ptr) {
  gmlake_onnxruntime *const a = (gmlake_onnxruntime *)base;
  (void)gmlake_free(a->lake, ptr, a->stream);
}
static inline const OrtMemoryInfo *ORT_API_CALL gmlake_onnxruntime_info(const OrtAllocator *base) {
  return ((const gmlake_onnxruntime *)base)->info;
}

static inline void gmlake_onnxruntime_init(gmlake_onnxruntime *out, gmlake *lake,
                                           gmlake_stream stream, const OrtMemoryInfo *info) {
  memset(out, 0, sizeof *out);
  out->base.version = ORT_API_VERSION;
  out->base.Alloc = gmlake_onnxruntime_take;
  out->base.Free = gmlake_onnxruntime_give;
  out->base.Info = gmlake_onnxruntime_info;
  out->lake = lake;
  out->stream = stream;
  out->info = info;
}

/* ---- Python's options ----------------------------------------------------------------------- */

static gmlake *gmlake_onnxruntime_lake;

/* Before the first session. */
static inline void gmlake_onnxruntime_set(gmlake *lake) { gmlake_onnxruntime_lake = lake; }

static inline void *gmlake_onnxruntime_alloc(size_t bytes) {
  void *ptr = NULL;
  (void)gmlake_alloc(gmlake_onnxruntime_lake, bytes, NULL, &ptr);
  return ptr;
}
static inline void gmlake_onnxruntime_free(void *ptr) {
  (void)gmlake_free(gmlake_onnxruntime_lake, ptr, NULL);
}
static inline void gmlake_onnxruntime_empty_cache(void) {
  (void)gmlake_trim(gmlake_onnxruntime_lake, 0, NULL);
}

/* Each text has room for 24 characters. */
static inline void gmlake_onnxruntime_options(char *alloc, char *release, char *empty) {
  snprintf(alloc, 24, "%llu", (unsigned long long)(uintptr_t)gmlake_onnxruntime_alloc);
  snprintf(release, 24, "%llu", (unsigned long long)(uintptr_t)gmlake_onnxruntime_free);
  snprintf(empty, 24, "%llu", (unsigned long long)(uintptr_t)gmlake_onnxruntime_empty_cache);
}

#endif
