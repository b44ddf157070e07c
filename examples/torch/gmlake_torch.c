/* A lake for each device as torch's allocator, in the form that
   torch.cuda.memory.CUDAPluggableAllocator loads. From the directory of gmlake.h:

   cc -std=c99 -O2 -shared -fPIC -fvisibility=hidden -fexceptions -I. -I/usr/local/cuda/include \
     examples/torch/gmlake_torch.c -o gmlake_torch.so -lpthread -ldl

   or `make torch`, which needs no toolkit. gmlake_torch.py beside this file gives it to torch.

   A lake is made when its device is first used, and lives as long as the process: torch frees
   tensors until the very end. Streams and devices are those that torch names; its current context
   is left as it is. The environment is read then:
     GMLAKE_TORCH_LIMIT_BYTES        physical memory that a lake may hold
     GMLAKE_TORCH_DRIVER_FREE_BYTES  memory of the device that it leaves to others
     GMLAKE_TORCH_CHUNK_BYTES        physical chunk
     GMLAKE_TORCH_CROSS_STREAM       grow (the default) or wait: see gmlake_cross_stream
     GMLAKE_TORCH_PEERS              devices that may reach the memory, as in 0,1
     GMLAKE_TORCH_RECORD             NAME: the allocations are recorded, for build/replay, into
                                     NAME.0.gmtrace, NAME.1.gmtrace and so on, by device; where
                                     RANK is set, as torchrun does, into NAME.rankRANK.0.gmtrace.
                                     What is there is not overwritten: of several processes with
                                     one name, or of a second run, the recording's name gets the
                                     process's number, and standard error tells
   A lake is not made where one of them cannot be read, or its recording not be written. A child of
   fork, as a DataLoader's worker, records nothing. All functions may be called from any thread. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_STATIC
#include "gmlake.h"

#include "../record.h"

#include <errno.h>
#include <stdarg.h>

#define API __attribute__((visibility("default")))
#define DEVICES_MAX 64

/* Throws a C++ exception with the text: c10::detail::torchCheckFail. */
typedef void raise_fn(const char *function, const char *file, unsigned line, const char *text);
/* The same: std::__throw_runtime_error. */
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

static gmlake *lakes[DEVICES_MAX]; /* set once, under the mutex */
static gmlake_recorder *recorders[DEVICES_MAX];
static pthread_mutex_t create_mutex = PTHREAD_MUTEX_INITIALIZER;
static int streams_stay; /* under the mutex */
static raise_fn *raise_error;
static raise_text_fn *raise_text; /* set before raise_error is */

static gmlake *lake_of(int device) {
  if (device < 0 || device >= DEVICES_MAX) return NULL;
  return __atomic_load_n(&lakes[device], __ATOMIC_ACQUIRE);
}

/* torch is told by an exception where it can be, else standard error is. */
static void fail(const char *text) {
  raise_fn *const fn = __atomic_load_n(&raise_error, __ATOMIC_ACQUIRE);
  if (fn) fn("gmlake_torch", __FILE__, __LINE__, text);
  fprintf(stderr, "gmlake_torch: %s\n", text);
}

/* ---- The environment ------------------------------------------------------------------------ */

/* Leaves *out as it is where the variable is not set. 0: it cannot be read. */
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

/* The device itself is no peer. */
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

/* The first variable that cannot be read; NULL: all can. */
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

/* ---- Recordings ----------------------------------------------------------------------------- */

/* NAME.DEVICE, or NAME.rankRANK.DEVICE; where that is there already, with the process's number too.
   NULL: errno says why. */
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

/* pre: as create_lake. Leaves desc as it is where nothing is to be recorded. 0: says why. */
static int start_recording(gmlake_desc *desc, char *why, size_t why_bytes) {
  const char *const name = getenv("GMLAKE_TORCH_RECORD");
  if (!name || !*name) return 1;
  recorders[desc->device] = open_recording(name, desc->device);
  if (recorders[desc->device]) {
    desc->observer = gmlake_recorder_observer(recorders[desc->device]);
    return 1;
  }
  snprintf(why, why_bytes, "GMLAKE_TORCH_RECORD cannot be written: %s: %s", name, strerror(errno));
  return 0;
}

/* As the process ends. Nothing is closed: torch may still free, and so write. */
__attribute__((destructor)) static void flush_recordings(void) {
  int device;
  for (device = 0; device < DEVICES_MAX; device++) {
    const int error = recorders[device] ? gmlake_recorder_flush(recorders[device]) : 0;
    if (error)
      fprintf(stderr, "gmlake_torch: device %d: the recording is not complete: %s\n", device,
              strerror(error));
  }
}

/* ---- Lakes ---------------------------------------------------------------------------------- */

/* pre: the mutex is held and the device has no lake. On failure *out is NULL and says why. */
static void create_lake(int device, gmlake **out, char *why, size_t why_bytes) {
  int peers[DEVICES_MAX];
  gmlake_desc desc = {0};
  const char *unread;
  gmlake_result result;
  desc.device = device;
  /* Nobody tells when an external stream is destroyed. torch's and the legacy one never are. */
  desc.flags = streams_stay ? 0 : GMLAKE_STREAMS_MAY_END;
  *out = NULL;
  unread = read_environment(&desc, peers);
  if (unread) {
    snprintf(why, why_bytes, "%s cannot be read: %s", unread, getenv(unread));
    return;
  }
  if (!start_recording(&desc, why, why_bytes)) return;
  result = gmlake_create(&desc, out);
  if (result == GMLAKE_OK) return;
  snprintf(why, why_bytes, "device %d: gmlake_create: %s", device, gmlake_result_name(result));
  (void)gmlake_recorder_close(recorders[device]);
  recorders[device] = NULL;
}

static gmlake *lake_for(int device) {
  char why[256];
  gmlake *lake = lake_of(device);
  if (lake) return lake;
  if (device < 0 || device >= DEVICES_MAX) {
    fail("no such device");
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

/* An allocation failed. Where torch is not told by an exception, running out is left to it: it may
   try again, and then raises an error of its own. */
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

/* NULL for 0 bytes, and on failure. */
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

/* stream is that of the allocation. */
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

/* torch does not say which device. */
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

/* What a call for streams or memory that has nothing to return came to. */
static void tell(const char *call, int device, gmlake_result result) {
  gmlake_error_info info;
  if (result == GMLAKE_OK || result == GMLAKE_ERROR_SHUTTING_DOWN) return;
  memset(&info, 0, sizeof info);
  (void)gmlake_get_last_error(lake_of(device), &info);
  fprintf(stderr, "gmlake_torch: device %d: %s: %s: %s (%s, driver's code %d)\n", device, call,
          gmlake_result_name(result), info.text, info.call ? info.call : "no call",
          info.driver_code);
}

/* Returns what is free, and used by no pending work, to the driver. Where it cannot, standard error
   says why; the other devices' memory is returned. */
API void gmlake_torch_empty_cache(void) {
  int device;
  for (device = 0; device < DEVICES_MAX; device++)
    if (lake_of(device)) tell("gmlake_trim", device, gmlake_trim(lake_of(device), 0, NULL));
}

/* From now on lakes are made for a client whose streams are never destroyed, or that frees their
   memory only when no work uses it: frees need no fence then. */
API void gmlake_torch_streams_stay(void) {
  pthread_mutex_lock(&create_mutex);
  streams_stay = 1;
  pthread_mutex_unlock(&create_mutex);
}

/* To be called before a stream is destroyed. A child of fork has none to forget. */
API void gmlake_torch_forget_stream(void *stream) {
  gmlake_result result;
  int device;
  for (device = 0; device < DEVICES_MAX; device++) {
    if (!lake_of(device)) continue;
    result = gmlake_forget_stream(lake_of(device), stream);
    if (result != GMLAKE_ERROR_FORKED) tell("gmlake_forget_stream", device, result);
  }
}

/* In place of torch's hook that gives a graph its own memory, whose arguments C cannot express: a
   graph captured without it would share its memory with everybody. */
API void gmlake_torch_refuse_capture(void) {
  fail("graphs and memory pools need torch's own allocator with gmlake_torch.pool()");
}

/* From now on failures reach torch as exceptions; NULL: as NULL and on standard error. */
API void gmlake_torch_set_raise(raise_fn *fn) {
  __atomic_store_n(&raise_error, fn, __ATOMIC_RELEASE);
}

static void raise_by_text(const char *function, const char *file, unsigned line, const char *text) {
  (void)function, (void)file, (void)line;
  if (raise_text) raise_text(text);
}

/* The same with the other function, for a torch that has not the first; NULL: there is none
   either, all failures are told on standard error. Call one of the two. */
API void gmlake_torch_set_raise_text(raise_text_fn *fn) {
  raise_text = fn;
  gmlake_torch_set_raise(raise_by_text);
}

/* ---- Statistics ----------------------------------------------------------------------------- */

/* 0, or -1 where the device has no lake. */
API int gmlake_torch_reset_peaks(int device) {
  gmlake *const lake = lake_of(device);
  return lake && gmlake_reset_peaks(lake) == GMLAKE_OK ? 0 : -1;
}

typedef struct json_text {
  char *buffer;
  size_t size, length; /* what does not fit is only counted */
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
   Returns the length of the whole text without the NUL, as snprintf does; -1 where the device has
   no lake. Names are those of gmlake_stats; utilization is active_bytes_peak by
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
