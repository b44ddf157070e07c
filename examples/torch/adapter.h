/* What gmlake_pluggable.c and gmlake_torch.cpp have in common: the environment, recordings, and the
   lake's statistics as a text. Include it once, in the file that has the implementation of
   gmlake.h. That file defines lake_of.

   When a lake is created, these environment variables configure it:
     GMLAKE_TORCH_LIMIT_BYTES        the most physical memory that a lake may hold
     GMLAKE_TORCH_DRIVER_FREE_BYTES  memory of the device that it leaves to others
     GMLAKE_TORCH_CHUNK_BYTES        size of a physical chunk
     GMLAKE_TORCH_CROSS_STREAM       grow (the default) or wait: see gmlake_cross_stream
     GMLAKE_TORCH_PEERS              devices that may access the memory, for example 0,1
     GMLAKE_TORCH_LEDGER             NAME: gmlake_torch only, on Linux. The lake shares its device
                                     with those of other processes that name the same file NAME.0
                                     (device 0), best in /dev/shm: see ../ledger.h. Between steps,
                                     and when memory is short, memory that is free, or may leave for
                                     the host, goes to who has less than its share. Devices
                                     have the process's numbers: where CUDA_VISIBLE_DEVICES differs,
                                     name other files;
     GMLAKE_TORCH_LEDGER_FLOOR_BYTES this process is never asked to go below so much, 0;
     GMLAKE_TORCH_LEDGER_WEIGHT      and of the rest it has a part by this weight, 1
     GMLAKE_TORCH_RECORD             NAME: the allocations are recorded, for build/replay, into
                                     NAME.0.gmtrace, NAME.1.gmtrace and so on, one for each device.
                                     They tell which streams used what (record_stream), and when the
                                     device had completed it; not the latter with pool(), since an
                                     event would spoil a graph's capture.
                                     If RANK is set, as torchrun does, the file is
                                     NAME.rankRANK.0.gmtrace. No file is overwritten: if it exists,
                                     from another process or an earlier run, the new name also has
                                     the process's number, and standard error says so
     GMLAKE_TORCH_RECORD_SHARE       to learn what the device has completed takes at most 1/200 of
                                     the time, or of this share; 0: as long as it takes. Where
                                     several streams share memory, 25 makes better recordings
     GMLAKE_TORCH_PROFILE            NAME: the lake begins with the memory that the profile
                                     NAME.0.profile tells of (device 0). If there is none, what this
                                     run learns is written there when it ends: see ../profile.h
     GMLAKE_TORCH_CALLS              FILE: what the calls of the driver took is written there when
                                     the program ends, by kind and step: see calls.h
     GMLAKE_TORCH_RECORD_SESSION     FILE.gmcalls: gmlake_torch only; see session.hpp
   A child of fork, for example a worker of a DataLoader, records nothing and writes no file. */
#if !defined(GMLAKE_TORCH_ADAPTER_H)
#define GMLAKE_TORCH_ADAPTER_H

#include "gmlake.h"

#include "../profile.h"
#include "../record.h"
#include "calls.h"

#include <errno.h>
#include <stdarg.h>

#if defined(__cplusplus)
#define API extern "C" __attribute__((visibility("default")))
#else
#define API __attribute__((visibility("default")))
#endif
#define DEVICES_MAX 64

API void gmlake_torch_mark(const char *label);
API void gmlake_torch_flush(void);

static gmlake *lake_of(int device); /* NULL: none is created yet */

static gmlake_recorder *recorders[DEVICES_MAX]; /* each is set once, when its lake is created */
static unsigned char learns[DEVICES_MAX];       /* 1: its profile is written at the end */
static pid_t own_pid; /* of the process that created the lakes; 0: none yet */

/* ---- The environment ------------------------------------------------------------------------ */

/* Does not change *out if the variable is not set. Returns 0 if its value is wrong. */
static int read_number(const char *name, size_t *out) {
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
  *out = !strcmp(text, "wait") ? GMLAKE_WAIT_FIRST : GMLAKE_GROW_FIRST;
  return *out != GMLAKE_GROW_FIRST || !strcmp(text, "grow");
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
  size_t share = 0;
  if (!read_number("GMLAKE_TORCH_LIMIT_BYTES", &desc->limit_bytes))
    return "GMLAKE_TORCH_LIMIT_BYTES";
  if (!read_number("GMLAKE_TORCH_DRIVER_FREE_BYTES", &desc->driver_free_bytes_min))
    return "GMLAKE_TORCH_DRIVER_FREE_BYTES";
  if (!read_number("GMLAKE_TORCH_CHUNK_BYTES", &desc->chunk_bytes))
    return "GMLAKE_TORCH_CHUNK_BYTES";
  if (!read_cross_stream("GMLAKE_TORCH_CROSS_STREAM", &desc->cross_stream))
    return "GMLAKE_TORCH_CROSS_STREAM";
  if (!read_peers("GMLAKE_TORCH_PEERS", desc->device, peers, &desc->peer_count))
    return "GMLAKE_TORCH_PEERS";
  if (!read_number("GMLAKE_TORCH_RECORD_SHARE", &share) || share > 1000000)
    return "GMLAKE_TORCH_RECORD_SHARE";
  if (desc->peer_count) desc->peer_devices = peers;
  return NULL;
}

/* What the variable takes, for errors. */
static const char *taken_by(const char *name) {
  if (strstr(name, "BYTES")) return "a number of bytes";
  if (strstr(name, "SHARE")) return "a number up to 1000000";
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

/* What GMLAKE_TORCH_RECORD names; NULL: nothing is to be recorded. */
static const char *recording_name(void) {
  const char *const name = getenv("GMLAKE_TORCH_RECORD");
  return name && *name ? name : NULL;
}

/* Sets desc->observer if allocations are to be recorded; on desc->backend, if it is set, the
   recorder samples. Returns 0 if the recording cannot be opened, and writes the reason to why. */
static int start_recording(gmlake_desc *desc, char *why, size_t why_bytes) {
  const char *const name = recording_name();
  size_t share = GMLAKE_RECORDER_SHARE;
  if (!name) return 1;
  (void)read_number("GMLAKE_TORCH_RECORD_SHARE", &share); /* read_environment has checked it */
  recorders[desc->device] = open_recording(name, desc->device);
  if (recorders[desc->device]) {
    gmlake_recorder_set_sampling(recorders[desc->device], (unsigned)share);
    gmlake_recorder_attach(recorders[desc->device], desc);
    return 1;
  }
  snprintf(why, why_bytes, "GMLAKE_TORCH_RECORD cannot be written: %s: %s", name, strerror(errno));
  return 0;
}

/* ---- Profiles and the driver's calls -------------------------------------------------------- */

/* What an environment variable names; NULL: nothing. */
static const char *named_by(const char *variable) {
  const char *const name = getenv(variable);
  return name && *name ? name : NULL;
}

/* Where the device's profile is. 0: the environment names none, or a too long one. */
static int profile_path(int device, char *out, size_t out_bytes) {
  const char *const name = named_by("GMLAKE_TORCH_PROFILE");
  return name && snprintf(out, out_bytes, "%s.%d.profile", name, device) < (int)out_bytes;
}

/* Creates what the device's profile tells of. Without one the profile is written at the end. A
   profile that cannot be used is reported, and does no harm. */
static void begin_profile(gmlake *lake, int device) {
  char path[4096];
  gmlake_result result = GMLAKE_ERROR_INVALID_ARGUMENT;
  size_t bytes;
  own_pid = getpid();
  if (!profile_path(device, path, sizeof path)) return;
  learns[device] = access(path, F_OK) != 0;
  if (learns[device]) return;
  if (profile_read(path, &bytes)) result = gmlake_reserve(lake, NULL, bytes, NULL);
  if (result != GMLAKE_OK)
    fprintf(stderr, "gmlake_torch: device %d: %s: %s\n", device, path, gmlake_result_name(result));
}

/* Writes what the run learnt, if it is to. */
static void end_profile(int device) {
  char path[4096];
  if (learns[device] && lake_of(device) && profile_path(device, path, sizeof path) &&
      !profile_write(path, lake_of(device)))
    fprintf(stderr, "gmlake_torch: device %d: %s cannot be written\n", device, path);
}

/* The backend that the device's lake is to have in place of `backend`. */
static const gmlake_backend *watched(const gmlake_backend *backend) {
  const gmlake_backend *counting = NULL;
  if (named_by("GMLAKE_TORCH_CALLS") && backend) counting = calls_wrap(backend);
  return counting ? counting : backend;
}

/* Says that a step of the program begins. */
API void gmlake_torch_mark(const char *label) {
  int device;
  calls_begin(label);
  for (device = 0; device < DEVICES_MAX; device++) {
    if (lake_of(device) && recorders[device]) gmlake_recorder_mark(recorders[device], label);
  }
}

/* Writes the recordings and what else is written at the end to their files, for a process that will
   end by _exit. */
API void gmlake_torch_flush(void) {
  const char *const path = named_by("GMLAKE_TORCH_CALLS");
  int device;
  if (own_pid && own_pid != getpid()) return;
  if (path && calls.backend_count && !calls_write(path))
    fprintf(stderr, "gmlake_torch: %s cannot be written\n", path);
  for (device = 0; device < DEVICES_MAX; device++) {
    if (learns[device]) end_profile(device);
    const int error = recorders[device] ? gmlake_recorder_flush(recorders[device]) : 0;
    if (error)
      fprintf(stderr, "gmlake_torch: device %d: the recording is not complete: %s\n", device,
              strerror(error));
  }
}

/* Runs when the process ends. The recordings are not closed: torch may still free, which is
   recorded. */
__attribute__((destructor)) static void flush_at_end(void) { gmlake_torch_flush(); }

/* Sets what the environment says. Returns 0 if it cannot, and writes the reason to why. peers has
   DEVICES_MAX entries, which desc then points to. pre: desc->device is below DEVICES_MAX; one call
   for a device at a time. */
static int configure(gmlake_desc *desc, int *peers, char *why, size_t why_bytes) {
  const char *const unread = read_environment(desc, peers);
  if (!unread && !start_recording(desc, why, why_bytes)) return 0;
  desc->backend = watched(desc->backend); /* the recorder's own calls are not counted */
  if (!unread) return 1;
  snprintf(why, why_bytes, "%s cannot be read: %s (it takes %s)", unread, getenv(unread),
           taken_by(unread));
  return 0;
}

/* There will be no lake: its recording ends. */
static void unconfigure(int device) {
  (void)gmlake_recorder_close(recorders[device]);
  recorders[device] = NULL;
}

/* ---- Statistics ----------------------------------------------------------------------------- */

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
   Returns the length of the whole text without the NUL, as snprintf does, or -1 if there is no
   lake. Names are those of gmlake_stats. utilization is active_bytes_peak divided by
   reserved_bytes_peak, rounded down. */
static int write_stats(gmlake *lake, char *buffer, size_t size) {
  gmlake_stats stats;
  json_text json;
  unsigned utilization;
  memset(&stats, 0, sizeof stats);
  memset(&json, 0, sizeof json);
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

#endif
