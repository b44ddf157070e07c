/* What the sections of gpu_bench share: the device, the options, and a macro for driver calls. */
#if !defined(GPU_BENCH_H)
#define GPU_BENCH_H

#include "gpu.h"
#include "measure.h"

#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define REPEAT_MAX 99

typedef struct bench {
  gpu_driver gpu; /* its primary context is current */
  CUdevice device;
  gmlake_backend *backend; /* the CUDA backend of gmlake.h */
  gmlake_device_properties properties;
  char driver_version[64];
  json *json;
  int is_markdown;
  int failed; /* a measurement did not succeed */
  uint64_t repeat;
  uint64_t peer_op_count; /* the most operations of a trace for cuMemAlloc */
  size_t chunk_bytes;     /* of the lake; 0: its own choice */
  size_t limit_bytes;     /* 0: 8 and 24 GiB */
  size_t copy_bytes;
  char **paths; /* of the traces */
  size_t path_count;
} bench;

/* A driver call that must succeed. pre: a gpu_driver *gpu is in scope. */
#define GPU(call) gpu_must(gpu->call, #call)
static void gpu_must(CUresult code, const char *call) {
  if (code == CUDA_SUCCESS) return;
  fprintf(stderr, "gpu_bench: %s: CUDA error %d\n", call, (int)code);
  exit(1);
}

#define LAKE(call) lake_must(call, #call)
static void lake_must(gmlake_result result, const char *call) {
  if (result == GMLAKE_OK) return;
  fprintf(stderr, "gpu_bench: %s: %s\n", call, gmlake_result_name(result));
  exit(1);
}

static size_t gpu_free_bytes(const gpu_driver *gpu) {
  size_t free_bytes, total_bytes;
  GPU(cuMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes;
}

static double gib(double bytes) { return bytes / (1024.0 * 1024.0 * 1024.0); }
static double mib(size_t bytes) { return (double)bytes / (double)MIB; }

static void show_progress(const char *section, const char *what) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K%s: %s ...", section, what);
}

static void clear_progress(void) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

#endif
