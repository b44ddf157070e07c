/* What the tests on a GPU share: options, one outcome a case, the driver with device 0's primary
   context and the kernels, and checks that end the case. Include after gmlake.h and gpu.h. */
#if !defined(GPU_FIXTURE_H)
#define GPU_FIXTURE_H

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "patience.h"
#include "splitmix.h"

#if !defined(BUILD)
#define BUILD "build" /* the Makefile's folder */
#endif

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define CHUNK (2 * MIB)
#define MS_NS ((uint64_t)1000000)
#define count_of(array) (sizeof(array) / sizeof((array)[0]))

/* By number: headers before CUDA 11.2 lack the name. */
#define ATTRIBUTE_VMM ((CUdevice_attribute)102)

static struct options {
  uint64_t seed;
  const char *fake_path;
  int prints_table;
} options = {1, BUILD "/fake/libcuda.so.1", 0};

/* ---- The outcome of a case ------------------------------------------------------------------- */

enum { RUNNING, PASSED, FAILED, SKIPPED };

typedef struct outcome {
  int state;
  char text[600];
} outcome;

static outcome *result_of_case; /* shared with the parent, which only reads it */

/* Ends the case from any thread, with its process: nothing needs to be tidied up. */
__attribute__((noreturn, format(printf, 2, 3))) static void end_case(int state, const char *format,
                                                                     ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(result_of_case->text, sizeof(result_of_case->text), format, arguments);
  va_end(arguments);
  result_of_case->state = state;
  _exit(1);
}

/* What the case says of itself where it passes. */
__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...) {
  const size_t used = strlen(result_of_case->text);
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(result_of_case->text + used, sizeof(result_of_case->text) - used, format,
                  arguments);
  va_end(arguments);
}

#define fail(...) end_case(FAILED, __VA_ARGS__)
#define skip(...) end_case(SKIPPED, __VA_ARGS__)

#define require(condition, ...)          \
  do {                                   \
    if (!(condition)) fail(__VA_ARGS__); \
  } while (0)
#define cu(call) check_driver(call, #call, __FILE__, __LINE__)
#define ok(call) check_lake(call, GMLAKE_OK, #call, __FILE__, __LINE__)
#define error(call, name) check_lake(call, GMLAKE_ERROR_##name, #call, __FILE__, __LINE__)

static inline void check_driver(CUresult code, const char *call, const char *file, int line) {
  require(code == CUDA_SUCCESS, "%s:%d: %s answers %d", file, line, call, (int)code);
}

static inline void check_lake(gmlake_result result, gmlake_result expected, const char *call,
                              const char *file, int line) {
  require(result == expected, "%s:%d: %s is %s, not %s", file, line, call,
          gmlake_result_name(result), gmlake_result_name(expected));
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* What a child of fork writes there its parent sees. */
static inline void *shared_bytes(size_t bytes) {
  void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (ptr == MAP_FAILED) abort();
  return ptr;
}

/* A child does it. Answers how it ended, as waitpid says. */
static inline int run_apart(void (*run)(void *), void *user) {
  int status = -1;
  pid_t child;
  (void)fflush(stdout);
  child = fork();
  if (child == 0) {
    (void)alarm(patience());
    run(user);
    (void)fflush(stdout);
    _exit(0);
  }
  if (child < 0 || waitpid(child, &status, 0) != child) abort();
  return status;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Log-uniform to a factor of two, uniform inside it: small and large ones alike. */
static inline size_t random_bytes(uint64_t *state, size_t least, size_t most) {
  unsigned doublings = 0;
  size_t bytes;
  while (least << (doublings + 1) <= most) doublings++;
  bytes = least << (size_t)(splitmix64(state) % (doublings + 1));
  bytes += (size_t)(splitmix64(state) % bytes);
  return bytes < most ? bytes : most;
}

static inline uint64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- The driver and the device --------------------------------------------------------------- */

static struct rig {
  gpu_driver gpu;
  gpu_kernels kernels;
  CUdevice device;
  CUcontext context;
  CUdeviceptr wrong; /* words that verify found to differ; memory that no lake has */
  char name[64];
  size_t device_bytes;
  int version, device_count;
  int is_fake; /* the driver without a device: everything smaller */
  int is_open;
} rig;

/* How much memory blocks of a case may have at a time. */
static inline size_t scale(size_t on_device, size_t on_fake) {
  return rig.is_fake ? on_fake : on_device;
}

static inline void fill_on(CUstream stream, const void *ptr, size_t bytes, uint32_t seed) {
  cu(gpu_fill(&rig.gpu, &rig.kernels, stream, (CUdeviceptr)(uintptr_t)ptr, bytes / 4, seed));
}

static inline void verify_on(CUstream stream, const void *ptr, size_t bytes, uint32_t seed) {
  cu(gpu_verify(&rig.gpu, &rig.kernels, stream, (CUdeviceptr)(uintptr_t)ptr, bytes / 4, seed,
                rig.wrong));
}

static inline void spin_on(CUstream stream, uint64_t ns) {
  cu(gpu_spin(&rig.gpu, &rig.kernels, stream, ns));
}

static inline CUstream new_stream(unsigned flags) {
  CUstream stream = NULL;
  cu(rig.gpu.cuStreamCreate(&stream, flags));
  return stream;
}

static inline void await_stream(CUstream stream) { cu(rig.gpu.cuStreamSynchronize(stream)); }

static inline size_t free_memory(void) {
  size_t free_bytes = 0, total_bytes = 0;
  cu(rig.gpu.cuMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes;
}

/* pre: everything queued has completed. */
static inline void require_no_wrong_words(const char *where) {
  uint64_t wrong = 1;
  cu(rig.gpu.cuCtxSynchronize());
  cu(rig.gpu.cuMemcpyDtoH(&wrong, rig.wrong, sizeof(wrong)));
  require(wrong == 0, "%s: %llu wrong words", where, (unsigned long long)wrong);
}

/* Whether there is a driver, a device, and virtual memory management on it. */
static inline int rig_find(void) {
  int value = 0;
  if (!gpu_open(&rig.gpu, "libcuda.so.1") || rig.gpu.cuInit(0) != CUDA_SUCCESS) return 0;
  if (rig.gpu.cuDeviceGetCount(&rig.device_count) != CUDA_SUCCESS || !rig.device_count) return 0;
  if (rig.gpu.cuDeviceGet(&rig.device, 0) != CUDA_SUCCESS) return 0;
  if (rig.gpu.cuDeviceGetAttribute(&value, ATTRIBUTE_VMM, rig.device) != CUDA_SUCCESS) return 0;
  rig.is_fake = dlsym(rig.gpu.library, "fake_cuda_control") != NULL;
  return value != 0;
}

static inline void rig_describe(void) {
  cu(rig.gpu.cuDeviceGetName(rig.name, (int)sizeof(rig.name) - 1, rig.device));
  cu(rig.gpu.cuDeviceTotalMem(&rig.device_bytes, rig.device));
  cu(rig.gpu.cuDriverGetVersion(&rig.version));
}

/* The driver loads a kernel at its first launch, which a capture would not survive. */
static inline void rig_warm_up(void) {
  CUdeviceptr words;
  cu(rig.gpu.cuMemAlloc(&words, 4096));
  fill_on(NULL, (void *)(uintptr_t)words, 2048, 1);
  cu(gpu_copy(&rig.gpu, &rig.kernels, NULL, words + 2048, words, 2048 / 16));
  verify_on(NULL, (void *)(uintptr_t)(words + 2048), 2048, 1);
  spin_on(NULL, 1000);
  cu(rig.gpu.cuMemsetD32Async(words, 0, 1024, NULL));
  require_no_wrong_words("before the test");
  cu(rig.gpu.cuMemFree(words));
}

static inline void rig_open(void) {
  const uint64_t zero = 0;
  if (!rig.is_open) {
    require(rig_find(), "the device is gone");
    rig_describe();
    cu(rig.gpu.cuDevicePrimaryCtxRetain(&rig.context, rig.device));
    cu(rig.gpu.cuCtxSetCurrent(rig.context));
    cu(gpu_load_kernels(&rig.gpu, &rig.kernels));
    cu(rig.gpu.cuMemAlloc(&rig.wrong, sizeof(zero)));
    rig.is_open = 1;
  }
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
  cu(rig.gpu.cuMemcpyHtoD(rig.wrong, &zero, sizeof(zero)));
  rig_warm_up();
}

/* ---- Lakes ----------------------------------------------------------------------------------- */

static inline gmlake *new_lake(const gmlake_desc *desc) {
  gmlake *lake = NULL;
  ok(gmlake_create(desc, &lake));
  return lake;
}

/* A description whose chunks are small, so that windows have several. */
static inline gmlake_desc small_chunks(size_t limit_bytes) {
  gmlake_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.chunk_bytes = CHUNK;
  desc.limit_bytes = limit_bytes;
  return desc;
}

static inline gmlake_pool *new_pool(gmlake *lake) {
  gmlake_pool_desc desc;
  gmlake_pool *pool = NULL;
  memset(&desc, 0, sizeof(desc));
  ok(gmlake_pool_create(lake, &desc, &pool));
  return pool;
}

static inline gmlake_stats stats_of(gmlake *lake) {
  gmlake_stats stats;
  ok(gmlake_get_stats(lake, &stats));
  return stats;
}

static inline void *take(gmlake *lake, size_t bytes, gmlake_stream stream) {
  void *ptr = NULL;
  ok(gmlake_alloc(lake, bytes, stream, &ptr));
  return ptr;
}

static inline void *take_with(gmlake *lake, size_t bytes, unsigned flags, gmlake_pool *pool,
                              gmlake_stream stream) {
  gmlake_alloc_desc wanted;
  void *ptr = NULL;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = bytes;
  wanted.flags = flags;
  wanted.pool = pool;
  ok(gmlake_alloc_with(lake, &wanted, stream, &ptr));
  return ptr;
}

static inline void *take_exclusive(gmlake *lake, size_t bytes, gmlake_stream stream) {
  return take_with(lake, bytes, GMLAKE_EXCLUSIVE, NULL, stream);
}

static inline size_t pieces_of(gmlake *lake, const void *ptr) {
  gmlake_map_entry info;
  ok(gmlake_find(lake, ptr, &info));
  return info.piece_count;
}

/* A block of so many chunks, made of as many holes of one. `keep` gets the blocks between them, to
   be freed by the caller. pre: nothing larger is free in the lake. */
static inline void *take_window(gmlake *lake, gmlake_stream stream, void **keep, size_t count) {
  void *holes[8];
  void *window;
  size_t i;
  require(count <= count_of(holes), "no room");
  for (i = 0; i < count; i++) {
    holes[i] = take_exclusive(lake, CHUNK, stream);
    keep[i] = take_exclusive(lake, CHUNK, stream);
  }
  for (i = 0; i < count; i++) ok(gmlake_free(lake, holes[i], stream));
  window = take(lake, count * CHUNK, stream);
  require(pieces_of(lake, window) > 1, "a block of %zu holes is not a window", count);
  return window;
}

/* Trims to nothing until so many bytes have been returned: an event that the trim itself records is
   complete a moment later only, even where its stream is idle. Answers how many they were. */
static inline size_t trim_until(gmlake *lake, size_t bytes) {
  size_t total = 0, released, tries;
  for (tries = 0; tries < 50 && total < bytes; tries++) {
    if (tries) (void)usleep(1000);
    ok(gmlake_trim(lake, 0, &released));
    total += released;
  }
  return total;
}

/* Everything is free and complete: the device gets it all back. */
static inline void close_lake(gmlake *lake) {
  cu(rig.gpu.cuCtxSynchronize());
  ok(gmlake_check(lake));
  (void)trim_until(lake, stats_of(lake).reserved_bytes);
  require(stats_of(lake).reserved_bytes == 0, "%zu bytes are left after a trim of everything",
          stats_of(lake).reserved_bytes);
  ok(gmlake_destroy(lake));
}

#endif
