/* ONNX Runtime's device memory from a lake, by three options of its CUDA provider, which take the
   addresses of functions as decimal text:

     gmlake_onnxruntime_set(lake, stream);
     char alloc[24], release[24], empty[24];
     const char *keys[] = {"gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache"};
     const char *values[] = {alloc, release, empty};
     gmlake_onnxruntime_options(alloc, release, empty);
     api->UpdateCUDAProviderOptions(options, keys, values, 3);
     api->UpdateCUDAProviderOptionsWithValue(options, "user_compute_stream", stream);

   With them ONNX Runtime has no arena of its own: it allocates and frees each tensor here, and
   frees before the work on its stream is done. The functions have no argument that could name that
   stream, nor a lake. So there is one of each for the process, and the provider has to be given the
   same stream. Written by the documentation of version 1.23. */
#if !defined(GMLAKE_ONNXRUNTIME_H)
#define GMLAKE_ONNXRUNTIME_H

#include "gmlake.h"

#include <stdio.h>

static gmlake *gmlake_onnxruntime_lake;
static gmlake_stream gmlake_onnxruntime_stream;

/* Before the first session. */
static inline void gmlake_onnxruntime_set(gmlake *lake, gmlake_stream stream) {
  gmlake_onnxruntime_lake = lake;
  gmlake_onnxruntime_stream = stream;
}

static inline void *gmlake_onnxruntime_alloc(size_t bytes) {
  void *ptr = NULL;
  (void)gmlake_alloc(gmlake_onnxruntime_lake, bytes, gmlake_onnxruntime_stream, &ptr);
  return ptr; /* NULL: none, and ONNX Runtime reports it */
}
static inline void gmlake_onnxruntime_free(void *ptr) {
  (void)gmlake_free(gmlake_onnxruntime_lake, ptr, gmlake_onnxruntime_stream);
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
