/* Gives torch its memory from a lake for each device. torch loads this library with
   torch.cuda.memory.CUDAPluggableAllocator; the package gmlake_pool (examples/torch_pool) does
   that. To build the library alone, run `make torch`, which needs no CUDA toolkit, or in the
   directory of gmlake.h:

   cc -std=c99 -O2 -shared -fPIC -fvisibility=hidden -fexceptions -I. -I/usr/local/cuda/include \
     examples/torch/gmlake_pluggable.c -o gmlake_pluggable.so -lpthread -ldl

   A lake is created when its device is first used. It lives as long as the process, because torch
   frees tensors until the very end. Streams and devices are those that torch names. torch's current
   context does not change. adapter.h lists the environment variables that configure the lakes.
   If a variable has a wrong value, or a recording cannot be written, no lake is created and the
   allocation fails. All functions may be called from any thread. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_STATIC
#include "adapter.h"

/* A function that throws a C++ exception with the text, as c10::detail::torchCheckFail does. */
typedef void raise_fn(const char *function, const char *file, unsigned line, const char *text);
/* The same with one parameter, as std::__throw_runtime_error. */
typedef void raise_text_fn(const char *text);

API void *gmlake_torch_malloc(size_t bytes, int device, void *stream);
API void gmlake_torch_free(void *ptr, size_t bytes, int device, void *stream);
API void gmlake_torch_record_stream(void *ptr, void *stream);
API void gmlake_torch_empty_cache(void);
API void gmlake_torch_forget_stream(void *stream);
API int gmlake_torch_mark_stream(int device, void *stream, int kind);
API void gmlake_torch_streams_stay(void);
API void gmlake_torch_refuse_capture(void);
API void gmlake_torch_set_raise(raise_fn *fn);
API void gmlake_torch_set_raise_text(raise_text_fn *fn);
API int gmlake_torch_reset_peaks(int device);
API int gmlake_torch_stats_json(int device, char *buffer, size_t size);

static gmlake *lakes[DEVICES_MAX]; /* each is set once, with the mutex held */
static gmlake_backend
    *samplers[DEVICES_MAX]; /* by which the lakes run where something is measured */
static pthread_mutex_t create_mutex = PTHREAD_MUTEX_INITIALIZER;
static int streams_stay; /* protected by the mutex */
static raise_fn *raise_error;
static raise_text_fn *raise_text; /* set before raise_error is */

static gmlake *lake_of(int device) {
  if (device < 0 || device >= DEVICES_MAX) return NULL;
  return __atomic_load_n(&lakes[device], __ATOMIC_ACQUIRE);
}

/* Reports a failure: by an exception if torch can be reached by one, else on standard error. */
static void fail(const char *text) {
  raise_fn *const fn = __atomic_load_n(&raise_error, __ATOMIC_ACQUIRE);
  if (fn) fn("gmlake_torch", __FILE__, __LINE__, text);
  fprintf(stderr, "gmlake_torch: %s\n", text);
}

/* ---- Lakes ---------------------------------------------------------------------------------- */

/* If it fails, *out is NULL and the reason is in why. pre: the mutex is held, the device has no
   lake. */
static void create_lake(int device, gmlake **out, char *why, size_t why_bytes) {
  int peers[DEVICES_MAX];
  gmlake_desc desc = {0};
  gmlake_result result = GMLAKE_OK;
  desc.device = device;
  /* torch does not report that an external stream is destroyed. A call for a destroyed stream would
     end the process, so the lake must find out by itself. torch's own streams and the legacy stream
     are never destroyed. */
  desc.flags = streams_stay ? 0 : GMLAKE_STREAMS_MAY_END;
  *out = NULL;
  if (!streams_stay && (recording_name() || named_by("GMLAKE_TORCH_CALLS")))
    result = gmlake_cuda_create(device, &samplers[device]);
  if (result != GMLAKE_OK) {
    snprintf(why, why_bytes, "device %d: gmlake_cuda_create: %s", device,
             gmlake_result_name(result));
    return;
  }
  desc.backend = samplers[device];
  result = configure(&desc, peers, why, why_bytes) ? gmlake_create(&desc, out) : GMLAKE_OK;
  if (result == GMLAKE_ERROR_UNSUPPORTED && desc.flags) {
    fprintf(stderr,
            "gmlake_torch: the driver of device %d is older than CUDA 12 and gives streams no ids: "
            "call forget_stream before a stream is destroyed\n",
            device);
    desc.flags = 0;
    result = gmlake_create(&desc, out);
  }
  if (result != GMLAKE_OK)
    snprintf(why, why_bytes, "device %d: gmlake_create: %s", device, gmlake_result_name(result));
  if (*out) begin_profile(*out, device);
  if (*out) return;
  unconfigure(device);
  gmlake_cuda_destroy(samplers[device]);
  samplers[device] = NULL;
}

/* The lake of the device, which it creates if there is none. NULL: the failure is reported. */
static gmlake *lake_for(int device) {
  char why[256];
  gmlake *lake = lake_of(device);
  if (lake) return lake;
  if (device < 0 || device >= DEVICES_MAX) {
    snprintf(why, sizeof why, "device %d: a device has a number from 0 to %d", device,
             DEVICES_MAX - 1);
    fail(why);
    return NULL;
  }
  pthread_mutex_lock(&create_mutex);
  lake = lake_of(device);
  if (!lake) {
    create_lake(device, &lake, why, sizeof why);
    __atomic_store_n(&lakes[device], lake, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&create_mutex);
  if (!lake) fail(why);
  return lake;
}

/* Reports that an allocation failed. If torch cannot be reached by an exception and memory has run
   out, nothing is reported: torch may try again, and then raises its own error. */
static void report(gmlake *lake, int device, size_t bytes, gmlake_result result) {
  char text[512];
  gmlake_error_info info;
  const int is_short =
      result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED;
  memset(&info, 0, sizeof info);
  if (is_short && !__atomic_load_n(&raise_error, __ATOMIC_ACQUIRE)) return;
  (void)gmlake_get_last_error(lake, &info);
  if (is_short)
    snprintf(text, sizeof text,
             "CUDA out of memory. Tried to allocate %.2f MiB on device %d (%s): the lake holds "
             "%.2f MiB, %.2f live, %.2f free, %.2f in use by other streams; limit %.2f MiB (0: "
             "none), the driver has %.2f",
             (double)bytes / GMLK_MIB, device, gmlake_result_name(result),
             (double)info.reserved_bytes / GMLK_MIB, (double)info.live_bytes / GMLK_MIB,
             (double)info.free_bytes / GMLK_MIB, (double)info.pending_bytes / GMLK_MIB,
             (double)info.limit_bytes / GMLK_MIB, (double)info.driver_free_bytes / GMLK_MIB);
  else
    snprintf(text, sizeof text, "device %d: %s: %s (%s)", device, gmlake_result_name(result),
             info.text, info.call ? info.call : "");
  fail(text);
}

/* ---- What torch calls ----------------------------------------------------------------------- */

/* Returns NULL for 0 bytes, and on failure. */
API void *gmlake_torch_malloc(size_t bytes, int device, void *stream) {
  void *ptr;
  gmlake *lake;
  gmlake_result result;
  if (!bytes) return NULL;
  lake = lake_for(device);
  if (!lake) return NULL;
  result = gmlake_alloc(lake, bytes, stream, &ptr);
  if (result == GMLAKE_OK) return ptr;
  report(lake, device, bytes, result);
  return NULL;
}

/* torch passes the stream of the allocation. */
API void gmlake_torch_free(void *ptr, size_t bytes, int device, void *stream) {
  gmlake *const lake = lake_of(device);
  gmlake_result result;
  (void)bytes;
  if (!ptr) return;
  result = lake ? gmlake_free(lake, ptr, stream) : GMLAKE_ERROR_UNKNOWN_POINTER;
  if (result != GMLAKE_OK && result != GMLAKE_ERROR_SHUTTING_DOWN)
    fprintf(stderr, "gmlake_torch: device %d: gmlake_free of %p: %s\n", device, ptr,
            gmlake_result_name(result));
}

/* ---- Streams -------------------------------------------------------------------------------- */

/* torch does not say on which device the block is, so each lake is asked. */
API void gmlake_torch_record_stream(void *ptr, void *stream) {
  gmlake_result result = GMLAKE_ERROR_UNKNOWN_POINTER;
  int device;
  if (!ptr) return;
  for (device = 0; device < DEVICES_MAX && result == GMLAKE_ERROR_UNKNOWN_POINTER; device++)
    if (lake_of(device)) result = gmlake_record_stream(lake_of(device), ptr, stream);
  if (result != GMLAKE_OK)
    fprintf(stderr, "gmlake_torch: gmlake_record_stream of %p: %s\n", ptr,
            gmlake_result_name(result));
}

/* Prints the error of a call that cannot return it to torch. */
static void tell(const char *call, int device, gmlake_result result) {
  gmlake_error_info info;
  if (result == GMLAKE_OK || result == GMLAKE_ERROR_SHUTTING_DOWN) return;
  memset(&info, 0, sizeof info);
  (void)gmlake_get_last_error(lake_of(device), &info);
  fprintf(stderr, "gmlake_torch: device %d: %s: %s: %s (%s, driver's code %d)\n", device, call,
          gmlake_result_name(result), info.text, info.call ? info.call : "no call",
          info.driver_code);
}

/* Returns free memory that no pending work uses to the driver, on every device. If that fails on a
   device, standard error says why. */
API void gmlake_torch_empty_cache(void) {
  int device;
  for (device = 0; device < DEVICES_MAX; device++)
    if (lake_of(device)) tell("gmlake_trim", device, gmlake_trim(lake_of(device), 0, NULL));
}

/* Says that the program never destroys a stream, or frees a stream's memory only when no work uses
   it. Lakes that are created after this call then need no event for each free. */
API void gmlake_torch_streams_stay(void) {
  pthread_mutex_lock(&create_mutex);
  streams_stay = 1;
  pthread_mutex_unlock(&create_mutex);
}

/* Call it before a stream is destroyed. In a child of fork it does nothing. */
API void gmlake_torch_forget_stream(void *stream) {
  gmlake_result result;
  int device;
  for (device = 0; device < DEVICES_MAX; device++) {
    if (!lake_of(device)) continue;
    result = gmlake_forget_stream(lake_of(device), stream);
    if (result != GMLAKE_ERROR_FORKED) tell("gmlake_forget_stream", device, result);
  }
}

/* Says what a stream is for, as GMLAKE_STREAM_*. Returns 0, or another number and says why. */
API int gmlake_torch_mark_stream(int device, void *stream, int kind) {
  gmlake *const lake = lake_of(device);
  gmlake_result result = GMLAKE_ERROR_INVALID_ARGUMENT;
  if (!lake) return (int)result;
  result = gmlake_mark_stream(lake, stream, (gmlake_stream_kind)kind);
  tell("gmlake_mark_stream", device, result);
  return (int)result;
}

/* Takes the place of torch's hook that gives a graph its own memory. C cannot express the hook's
   arguments, and a graph without its own memory would share it with everybody. So graphs are
   refused. */
API void gmlake_torch_refuse_capture(void) {
  fail(
      "CUDA graphs and memory pools do not work after gmlake_pool.enable(): use gmlake_torch or "
      "torch's own allocator");
}

/* From now on failures reach torch as exceptions. With NULL, malloc returns NULL and standard error
   has the text. */
API void gmlake_torch_set_raise(raise_fn *fn) {
  __atomic_store_n(&raise_error, fn, __ATOMIC_RELEASE);
}

static void raise_by_text(const char *function, const char *file, unsigned line, const char *text) {
  (void)function, (void)file, (void)line;
  if (raise_text) raise_text(text);
}

/* The same for a torch that lacks the first function. With NULL there is neither: all failures,
   also running out of memory, are printed on standard error. Call one of the two setters. */
API void gmlake_torch_set_raise_text(raise_text_fn *fn) {
  raise_text = fn;
  gmlake_torch_set_raise(raise_by_text);
}

/* ---- Statistics ----------------------------------------------------------------------------- */

/* Returns 0, or -1 if the device has no lake. */
API int gmlake_torch_reset_peaks(int device) {
  gmlake *const lake = lake_of(device);
  return lake && gmlake_reset_peaks(lake) == GMLAKE_OK ? 0 : -1;
}

/* The statistics of the device's lake: see write_stats in adapter.h. */
API int gmlake_torch_stats_json(int device, char *buffer, size_t size) {
  return write_stats(lake_of(device), buffer, size);
}
