/* Gives torch its memory from a lake for each device. torch loads this library with
   torch.cuda.memory.CUDAPluggableAllocator; gmlake_torch.py beside this file does that. To build
   it, run `make torch`, which needs no CUDA toolkit, or in the directory of gmlake.h:

   cc -std=c99 -O2 -shared -fPIC -fvisibility=hidden -fexceptions -I. -I/usr/local/cuda/include \
     examples/torch/gmlake_torch.c -o gmlake_torch.so -lpthread -ldl

   A lake is created when its device is first used. It lives as long as the process, because torch
   frees tensors until the very end. Streams and devices are those that torch names. torch's current
   context does not change. When a lake is created, these environment variables configure it:
     GMLAKE_TORCH_LIMIT_BYTES        the most physical memory that a lake may hold
     GMLAKE_TORCH_DRIVER_FREE_BYTES  memory of the device that it leaves to others
     GMLAKE_TORCH_CHUNK_BYTES        size of a physical chunk
     GMLAKE_TORCH_CROSS_STREAM       grow (the default) or wait: see gmlake_cross_stream
     GMLAKE_TORCH_PEERS              devices that may access the memory, for example 0,1
     GMLAKE_TORCH_RECORD             NAME: the allocations are recorded, for build/replay, into
                                     NAME.0.gmtrace, NAME.1.gmtrace and so on, one for each device.
                                     They tell which streams used what (record_stream), and when the
                                     device had completed it; not the latter with pool(), since an
                                     event would spoil a graph's capture.
                                     If RANK is set, as torchrun does, the file is
                                     NAME.rankRANK.0.gmtrace. No file is overwritten: if it exists,
                                     from another process or an earlier run, the new name also has
                                     the process's number, and standard error says so
   If a variable has a wrong value, or a recording cannot be written, no lake is created and the
   allocation fails. A child of fork, for example a worker of a DataLoader, records nothing. All
   functions may be called from any thread. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_STATIC
#include "gmlake.h"

#include "../record.h"

#include <errno.h>
#include <stdarg.h>

#define API __attribute__((visibility("default")))
#define DEVICES_MAX 64

/* A function that throws a C++ exception with the text, as c10::detail::torchCheckFail does. */
typedef void raise_fn(const char *function, const char *file, unsigned line, const char *text);
/* The same with one parameter, as std::__throw_runtime_error. */
typedef void raise_text_fn(const char *text);

API void *gmlake_torch_malloc(size_t bytes, int device, void *stream);
API void gmlake_torch_free(void *ptr, size_t bytes, int device, void *stream);
API void gmlake_torch_record_stream(void *ptr, void *stream);
API void gmlake_torch_empty_cache(void);
API void gmlake_torch_forget_stream(void *stream);
API void gmlake_torch_streams_stay(void);
API void gmlake_torch_refuse_capture(void);
API void gmlake_torch_set_raise(raise_fn *fn);
API void gmlake_torch_set_raise_text(raise_text_fn *fn);
API int gmlake_torch_reset_peaks(int device);
API int gmlake_torch_stats_json(int device, char *buffer, size_t size);
API void gmlake_torch_mark(const char *label);
API void gmlake_torch_flush(void);

static gmlake *lakes[DEVICES_MAX]; /* each is set once, with the mutex held */
static gmlake_recorder *recorders[DEVICES_MAX];
static gmlake_backend *samplers[DEVICES_MAX]; /* by which the recorders sample, and the lakes run */
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

/* ---- The environment ------------------------------------------------------------------------ */

/* Does not change *out if the variable is not set. Returns 0 if its value is wrong. */
static int read_bytes(const char *name, size_t *out) {
  const char *const text = getenv(name);
  char *end;
  unsigned long long value;
  if (!text || !*text) return 1;
  errno = 0;
  value = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno || value > SIZE_MAX) return 0;
  *out = (size_t)value;
  return 1;
}

static int read_cross_stream(const char *name, gmlake_cross_stream *out) {
  const char *const text = getenv(name);
  if (!text || !*text) return 1;
  *out = strcmp(text, "wait") ? GMLAKE_GROW_FIRST : GMLAKE_WAIT_FIRST;
  return *out == GMLAKE_WAIT_FIRST || !strcmp(text, "grow");
}

/* The device's own number is allowed in the list, and left out of *out. */
static int read_peers(const char *name, int device, int *out, size_t *out_count) {
  const char *text = getenv(name);
  if (!text || !*text) return 1;
  while (*out_count < DEVICES_MAX) {
    char *end;
    const long peer = strtol(text, &end, 10);
    if (end == text || peer < 0 || peer >= DEVICES_MAX) return 0;
    if (peer != device) out[(*out_count)++] = (int)peer;
    if (!*end) return 1;
    if (*end != ',') return 0;
    text = end + 1;
  }
  return 0;
}

/* Returns the name of the first variable whose value is wrong; NULL: none is. */
static const char *read_environment(gmlake_desc *desc, int *peers) {
  if (!read_bytes("GMLAKE_TORCH_LIMIT_BYTES", &desc->limit_bytes))
    return "GMLAKE_TORCH_LIMIT_BYTES";
  if (!read_bytes("GMLAKE_TORCH_DRIVER_FREE_BYTES", &desc->driver_free_bytes_min))
    return "GMLAKE_TORCH_DRIVER_FREE_BYTES";
  if (!read_bytes("GMLAKE_TORCH_CHUNK_BYTES", &desc->chunk_bytes))
    return "GMLAKE_TORCH_CHUNK_BYTES";
  if (!read_cross_stream("GMLAKE_TORCH_CROSS_STREAM", &desc->cross_stream))
    return "GMLAKE_TORCH_CROSS_STREAM";
  if (!read_peers("GMLAKE_TORCH_PEERS", desc->device, peers, &desc->peer_count))
    return "GMLAKE_TORCH_PEERS";
  if (desc->peer_count) desc->peer_devices = peers;
  return NULL;
}

/* What the variable takes, for errors. */
static const char *taken_by(const char *name) {
  if (strstr(name, "BYTES")) return "a number of bytes";
  if (strstr(name, "PEERS")) return "numbers of devices, for example 0,1";
  return "grow or wait";
}

/* ---- Recordings ----------------------------------------------------------------------------- */

/* Opens NAME.DEVICE.gmtrace, or NAME.rankRANK.DEVICE.gmtrace. If that file exists, the name gets
   the process's number too. NULL: errno says why. */
static gmlake_recorder *open_recording(const char *name, int device) {
  const char *const rank = getenv("RANK");
  const int has_rank = rank && *rank && rank[strspn(rank, "0123456789")] == '\0';
  char path[4096], other[4096];
  gmlake_recorder *recorder;
  const int length = snprintf(path, sizeof path, "%s%s%s.%d.gmtrace", name, has_rank ? ".rank" : "",
                              has_rank ? rank : "", device);
  if (length + 24 > (int)sizeof path) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  recorder = gmlake_recorder_open(path);
  if (recorder || errno != EEXIST) return recorder;
  snprintf(other, sizeof other, "%.*s%ld.gmtrace", length - (int)strlen("gmtrace"), path,
           (long)getpid());
  recorder = gmlake_recorder_open(other);
  if (recorder)
    fprintf(stderr, "gmlake_torch: device %d: %s is there already: recording into %s\n", device,
            path, other);
  return recorder;
}

/* Sets desc->observer, and desc->backend, if allocations are to be recorded. Returns 0 if the
   recording cannot be opened, and writes the reason to why. pre: as create_lake. */
static int start_recording(gmlake_desc *desc, char *why, size_t why_bytes) {
  const char *const name = getenv("GMLAKE_TORCH_RECORD");
  gmlake_result result = GMLAKE_OK;
  if (!name || !*name) return 1;
  if (!streams_stay) result = gmlake_cuda_create(desc->device, &samplers[desc->device]);
  if (result) {
    snprintf(why, why_bytes, "device %d: gmlake_cuda_create: %s", desc->device,
             gmlake_result_name(result));
    return 0;
  }
  recorders[desc->device] = open_recording(name, desc->device);
  if (recorders[desc->device]) {
    desc->backend = samplers[desc->device];
    gmlake_recorder_attach(recorders[desc->device], desc);
    return 1;
  }
  snprintf(why, why_bytes, "GMLAKE_TORCH_RECORD cannot be written: %s: %s", name, strerror(errno));
  return 0;
}

/* Gives up what start_recording made, if there will be no lake. */
static void stop_recording(int device) {
  (void)gmlake_recorder_close(recorders[device]);
  recorders[device] = NULL;
  gmlake_cuda_destroy(samplers[device]);
  samplers[device] = NULL;
}

/* Writes into the recordings that a step of the program begins. */
API void gmlake_torch_mark(const char *label) {
  int device;
  for (device = 0; device < DEVICES_MAX; device++)
    if (lake_of(device) && recorders[device]) gmlake_recorder_mark(recorders[device], label);
}

/* Writes the recordings to their files, for a process that will end by _exit. */
API void gmlake_torch_flush(void) {
  int device;
  for (device = 0; device < DEVICES_MAX; device++) {
    const int error = recorders[device] ? gmlake_recorder_flush(recorders[device]) : 0;
    if (error)
      fprintf(stderr, "gmlake_torch: device %d: the recording is not complete: %s\n", device,
              strerror(error));
  }
}

/* Runs when the process ends. The recordings are not closed: torch may still free, which is
   recorded. */
__attribute__((destructor)) static void flush_at_end(void) { gmlake_torch_flush(); }

/* ---- Lakes ---------------------------------------------------------------------------------- */

/* If it fails, *out is NULL and the reason is in why. pre: the mutex is held, the device has no
   lake. */
static void create_lake(int device, gmlake **out, char *why, size_t why_bytes) {
  int peers[DEVICES_MAX];
  gmlake_desc desc = {0};
  const char *unread;
  gmlake_result result;
  desc.device = device;
  /* torch does not report that an external stream is destroyed. A call for a destroyed stream would
     end the process, so the lake must find out by itself. torch's own streams and the legacy stream
     are never destroyed. */
  desc.flags = streams_stay ? 0 : GMLAKE_STREAMS_MAY_END;
  *out = NULL;
  unread = read_environment(&desc, peers);
  if (unread) {
    snprintf(why, why_bytes, "%s cannot be read: %s (it takes %s)", unread, getenv(unread),
             taken_by(unread));
    return;
  }
  result = start_recording(&desc, why, why_bytes) ? gmlake_create(&desc, out) : GMLAKE_OK;
  if (result != GMLAKE_OK)
    snprintf(why, why_bytes, "device %d: gmlake_create: %s", device, gmlake_result_name(result));
  if (!*out) stop_recording(device);
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

/* Takes the place of torch's hook that gives a graph its own memory. C cannot express the hook's
   arguments, and a graph without its own memory would share it with everybody. So graphs are
   refused. */
API void gmlake_torch_refuse_capture(void) {
  fail(
      "CUDA graphs and memory pools do not work after gmlake_torch.enable(): use `with "
      "gmlake_torch.pool():` in its place");
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

typedef struct json_text {
  char *buffer;
  size_t size, length; /* length counts what does not fit, too */
} json_text;

static void put(json_text *json, const char *format, ...) {
  const size_t used = json->length < json->size ? json->length : json->size;
  va_list arguments;
  va_start(arguments, format);
  json->length += (size_t)vsnprintf(json->size ? json->buffer + used : NULL, json->size - used,
                                    format, arguments);
  va_end(arguments);
}

/* Writes the lake's statistics as one JSON object, as much as fits, and a NUL if size is not 0.
   Returns the length of the whole text without the NUL, as snprintf does, or -1 if the device has
   no lake. Names are those of gmlake_stats. utilization is active_bytes_peak divided by
   reserved_bytes_peak, rounded down. */
API int gmlake_torch_stats_json(int device, char *buffer, size_t size) {
  gmlake *const lake = lake_of(device);
  gmlake_stats stats = {0};
  json_text json = {0};
  unsigned utilization;
  if (size) buffer[0] = '\0';
  if (!lake || gmlake_get_stats(lake, &stats) != GMLAKE_OK) return -1;
  json.buffer = buffer;
  json.size = size;
  utilization = stats.reserved_bytes_peak
                    ? (unsigned)(stats.active_bytes_peak * 10000 / stats.reserved_bytes_peak)
                    : 0;
  put(&json, "{\"utilization\": %u.%04u", utilization / 10000, utilization % 10000);
#define PUT(field) put(&json, ", \"%s\": %llu", #field, (unsigned long long)stats.field)
  PUT(requested_bytes), PUT(requested_bytes_peak);
  PUT(active_bytes), PUT(active_bytes_peak);
  PUT(reserved_bytes), PUT(reserved_bytes_peak);
  PUT(pending_bytes), PUT(pending_bytes_peak);
  PUT(allocation_count), PUT(free_count), PUT(live_count);
  PUT(split_count), PUT(stitch_count), PUT(stitch_reuse_count), PUT(stitch_evict_count);
  PUT(chunk_count), PUT(window_count), PUT(driver_call_count), PUT(driver_ns);
  PUT(stream_wait_count), PUT(host_wait_count), PUT(event_count), PUT(oom_count);
  PUT(quarantined_bytes), PUT(metadata_bytes), PUT(metadata_bytes_peak);
#undef PUT
  put(&json, "}");
  return (int)json.length;
}
