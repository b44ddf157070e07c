/* Gives programs that cannot be changed their stream-ordered memory from lakes: what they take by
   cudaMallocAsync, cuMemAllocAsync or cuMemAllocFromPoolAsync. Linux, glibc.

     make preload
     LD_PRELOAD=$PWD/build/libgmlake_preload.so program

   GMLAKE_PRELOAD=0          nothing is changed
   GMLAKE_PRELOAD_REPORT=1   at exit a line for each device on the standard error output

   The runtime library opens the driver by dlopen and takes its functions by dlsym and
   cuGetProcAddress, also where it is linked statically: both answer with the functions here. A
   program that is linked with the driver gets them from the dynamic linker.

   What goes to the driver as ever: per-thread default streams, streams that are being captured,
   contexts other than the primary ones, pools that can be exported, that are limited, that lie on
   the host, or that other devices may reach, and devices without virtual memory management. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_STATIC
#include "gmlake.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
#define DEVICES_MAX 32
#define POOLS_MAX 256
#define PER_THREAD ((CUstream)(uintptr_t)2)
#define POOL_NONE ((CUmemoryPool)0) /* the device's current pool */

/* The driver's functions that are called here. X(name, exported name, parameters) */
#define REAL_FUNCTIONS(X)                                                                      \
  X(MemAllocAsync, "cuMemAllocAsync", (CUdeviceptr *, size_t, CUstream))                       \
  X(MemAllocFromPoolAsync, "cuMemAllocFromPoolAsync",                                          \
    (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                                           \
  X(MemFreeAsync, "cuMemFreeAsync", (CUdeviceptr, CUstream))                                   \
  X(MemFree, "cuMemFree_v2", (CUdeviceptr))                                                    \
  X(MemGetAddressRange, "cuMemGetAddressRange_v2", (CUdeviceptr *, size_t *, CUdeviceptr))     \
  X(PointerGetAttribute, "cuPointerGetAttribute", (void *, int, CUdeviceptr))                  \
  X(PointerGetAttributes, "cuPointerGetAttributes", (unsigned, int *, void **, CUdeviceptr))   \
  X(StreamDestroy, "cuStreamDestroy_v2", (CUstream))                                           \
  X(StreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, CUstreamCaptureMode))            \
  X(StreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph",                                  \
    (CUstream, CUgraph, const void *, const void *, size_t, CUstreamCaptureMode))              \
  X(StreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph *))                             \
  X(PrimaryCtxReset, "cuDevicePrimaryCtxReset_v2", (CUdevice))                                 \
  X(MemPoolCreate, "cuMemPoolCreate", (CUmemoryPool *, const CUmemPoolProps *))                \
  X(MemPoolDestroy, "cuMemPoolDestroy", (CUmemoryPool))                                        \
  X(MemPoolSetAccess, "cuMemPoolSetAccess", (CUmemoryPool, const CUmemAccessDesc *, size_t))   \
  X(MemPoolGetAttribute, "cuMemPoolGetAttribute", (CUmemoryPool, int, void *))                 \
  X(MemPoolSetAttribute, "cuMemPoolSetAttribute", (CUmemoryPool, int, void *))                 \
  X(MemPoolTrimTo, "cuMemPoolTrimTo", (CUmemoryPool, size_t))                                  \
  X(DeviceSetMemPool, "cuDeviceSetMemPool", (CUdevice, CUmemoryPool))                          \
  X(GetProcAddress, "cuGetProcAddress", (const char *, void **, int, cuuint64_t))              \
  X(GetProcAddress_v2, "cuGetProcAddress_v2", (const char *, void **, int, cuuint64_t, int *)) \
  X(DeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", (CUmemoryPool *, CUdevice))          \
  X(CtxGetCurrent, "cuCtxGetCurrent", (CUcontext *))                                           \
  X(CtxGetDevice, "cuCtxGetDevice", (CUdevice *))                                              \
  X(CtxSynchronize, "cuCtxSynchronize", (void))                                                \
  X(StreamGetCtx, "cuStreamGetCtx", (CUstream, CUcontext *))                                   \
  X(StreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2",                                         \
    (CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const void *, size_t *))      \
  X(UserObjectCreate, "cuUserObjectCreate",                                                    \
    (void **, void *, void(CUDAAPI *)(void *), unsigned, unsigned))                            \
  X(GraphRetainUserObject, "cuGraphRetainUserObject", (CUgraph, void *, unsigned, unsigned))   \
  X(StreamIsCapturing, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus *))             \
  X(StreamSynchronize, "cuStreamSynchronize", (CUstream))                                      \
  X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                     \
  X(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))

typedef void *dlsym_function(void *handle, const char *name);

static struct {
  dlsym_function *find;
  int is_off, reports;
  int is_open; /* the driver is loaded, and its functions stand below */
#define FIELD(name, exported, params) CUresult(CUDAAPI *name) params;
  REAL_FUNCTIONS(FIELD)
} real;

/* One for each device whose primary context took memory. */
typedef struct device {
  CUcontext context; /* NULL: the place is free */
  CUdevice number;
  gmlake *lake;             /* NULL: the device goes to the driver. Read by LAKE without the lock */
  gmlake_pool *of_captures; /* stays empty: what is captured goes to the driver */
} device;

typedef struct pool {
  CUmemoryPool handle; /* NULL: the place is free */
  uint64_t number; /* that no other pool ever had: values of handles come back. Blocks carry it */
  CUdevice device;
  int is_native;
  size_t used_bytes, used_bytes_high;
} pool;

/* A block that a captured free has given to a graph. The driver may hold the record's address until
   the graph has ended, so it lives as long. */
typedef struct held {
  struct held *next;
  gmlake *lake; /* NULL: its device was reset */
  gmlake_map_entry info;
  int has_ended; /* no graph has it any more. Set by a thread of the driver, without the lock */
} held;

#define LAKE(d) __atomic_load_n(&(d)->lake, __ATOMIC_ACQUIRE)

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* protects `real` */
static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;   /* protects all that follows */
static device devices[DEVICES_MAX];
static pool pools[POOLS_MAX];
static CUmemoryPool current_pools[DEVICES_MAX]; /* by the device's number; NULL: its default one */
static CUmemoryPool default_pools[DEVICES_MAX];
static held *holds;
static size_t capture_count; /* that go on */
static uint64_t native_count, held_count, ended_count, pool_count;

/* ---- The driver ------------------------------------------------------------------------------ */

static void report(void) {
  size_t i;
  if (real.is_off) return; /* a child of fork */
  for (i = 0; i < DEVICES_MAX; i++) {
    gmlake_stats stats = {0};
    if (!devices[i].lake || gmlake_get_stats(devices[i].lake, &stats)) continue;
    fprintf(stderr,
            "gmlake_preload: device %d: %llu allocations, peak live %zu MiB, peak held %zu MiB\n",
            devices[i].number, (unsigned long long)stats.allocation_count,
            stats.active_bytes_peak >> 20, stats.reserved_bytes_peak >> 20);
  }
  fprintf(stderr,
          "gmlake_preload: %llu allocations went to the driver, %llu blocks were kept for "
          "graphs that free them, %llu of them until the graph ended\n",
          (unsigned long long)native_count, (unsigned long long)held_count,
          (unsigned long long)ended_count);
}

/* Another thread of the parent may have held a lock, and the lakes are the parent's: all goes to
   the driver, which refuses. */
static void in_child(void) {
  real.is_off = 1;
  (void)pthread_mutex_init(&opening, NULL);
  (void)pthread_mutex_init(&books, NULL);
}

static void find_dlsym(void) {
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
  const char *const off = getenv("GMLAKE_PRELOAD");
  const char *const reports = getenv("GMLAKE_PRELOAD_REPORT");
  size_t i;
  for (i = 0; i < sizeof(versions) / sizeof(versions[0]) && !real.find; i++) {
    void *const found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    memcpy(&real.find, &found, sizeof(found));
  }
  real.is_off = !real.find || (off && strcmp(off, "0") == 0);
  real.reports = reports && strcmp(reports, "1") == 0;
  (void)pthread_atfork(NULL, NULL, in_child);
}

/* Again at each call until the program has loaded the driver. */
static void find_driver(void) {
  void *const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void *found;
  if (real.is_open || !library || !real.find) return;
#define FIND(name, exported, params)    \
  found = real.find(library, exported); \
  memcpy(&real.name, &found, sizeof(found));
  REAL_FUNCTIONS(FIND)
  if (real.reports && !real.is_off) (void)atexit(report);
  __atomic_store_n(&real.is_open, 1, __ATOMIC_RELEASE);
}

static pthread_once_t dlsym_once = PTHREAD_ONCE_INIT;

/* The driver's function. One that is not there answers NOT_SUPPORTED. */
#define CALL(name, arguments)                                      \
  ((void)open_driver(), !real.is_open ? CUDA_ERROR_NOT_INITIALIZED \
                        : real.name   ? real.name arguments        \
                                      : CUDA_ERROR_NOT_SUPPORTED)

static int open_driver(void) {
  pthread_once(&dlsym_once, find_dlsym);
  if (!__atomic_load_n(&real.is_open, __ATOMIC_ACQUIRE)) {
    pthread_mutex_lock(&opening);
    find_driver();
    pthread_mutex_unlock(&opening);
  }
  return !real.is_off;
}

/* ---- Devices and pools ----------------------------------------------------------------------- */

/* All under the books' lock. */
static pool *pool_of(CUmemoryPool handle) {
  size_t i;
  for (i = 0; handle && i < POOLS_MAX; i++)
    if (pools[i].handle == handle) return &pools[i];
  return NULL;
}

static pool *pool_with(uint64_t number) {
  size_t i;
  for (i = 0; i < POOLS_MAX; i++)
    if (pools[i].handle && pools[i].number == number) return &pools[i];
  return NULL;
}

static void pool_add(CUmemoryPool handle, CUdevice number, int is_native) {
  size_t i;
  for (i = 0; i < POOLS_MAX && pools[i].handle; i++) continue;
  if (i == POOLS_MAX) return; /* what is not known is native */
  memset(&pools[i], 0, sizeof(pools[i]));
  pools[i].handle = handle;
  pools[i].number = ++pool_count;
  pools[i].device = number;
  pools[i].is_native = is_native;
}

static device *device_of(CUcontext context) {
  size_t i;
  for (i = 0; i < DEVICES_MAX; i++)
    if (devices[i].context == context) return &devices[i];
  return NULL;
}

/* A lake for this context, if it is the primary one of its device and current. */
static device *device_open(CUcontext context) {
  gmlake_desc desc = {0};
  gmlake_result result;
  CUcontext primary, now;
  CUdevice number;
  gmlake *lake = NULL;
  device *const d = device_of(NULL);
  if (!d || CALL(CtxGetCurrent, (&now)) || now != context || CALL(CtxGetDevice, (&number)) ||
      number >= DEVICES_MAX || CALL(PrimaryCtxRetain, (&primary, number)))
    return NULL;
  if (primary != context) {
    (void)CALL(PrimaryCtxRelease, (number));
    return NULL;
  }
  d->context = context; /* retained: it stays that of the device */
  d->number = number;
  desc.device = number;
  desc.flags = GMLAKE_STREAMS_MAY_END;
  result = gmlake_create(&desc, &lake);
  if (result == GMLAKE_ERROR_UNSUPPORTED) { /* cuStreamDestroy is seen, but not within libraries */
    fputs(
        "gmlake: the driver is older than CUDA 12 and gives streams no ids, so every stream has "
        "to be destroyed by a call that the preloaded library sees\n",
        stderr);
    desc.flags = 0;
    result = gmlake_create(&desc, &lake);
  }
  if (result == GMLAKE_OK && gmlake_pool_create(lake, NULL, &d->of_captures) != GMLAKE_OK) {
    (void)gmlake_destroy(lake);
    lake = NULL;
  }
  if (!CALL(DeviceGetDefaultMemPool, (&default_pools[number], number)) &&
      !pool_of(default_pools[number]))
    pool_add(default_pools[number], number, 0);
  __atomic_store_n(&d->lake, lake, __ATOMIC_RELEASE);
  return d;
}

/* Whether work on the stream may use a lake, and which one; NULL: it is the driver's. */
static device *device_for(CUstream stream) {
  CUstreamCaptureStatus status;
  CUcontext context = NULL;
  device *d;
  if (!open_driver() || stream == PER_THREAD || CALL(StreamIsCapturing, (stream, &status)) ||
      status != CU_STREAM_CAPTURE_STATUS_NONE)
    return NULL;
  if (!stream || stream == CU_STREAM_LEGACY || CALL(StreamGetCtx, (stream, &context)))
    if (CALL(CtxGetCurrent, (&context))) return NULL;
  if (!context) return NULL;
  pthread_mutex_lock(&books);
  d = device_of(context);
  if (!d) d = device_open(context);
  pthread_mutex_unlock(&books);
  return d && LAKE(d) ? d : NULL;
}

/* The lake whose live block the address lies in. */
static device *device_with(CUdeviceptr address, gmlake_map_entry *out_info) {
  size_t i;
  for (i = 0; open_driver() && i < DEVICES_MAX; i++)
    if (LAKE(&devices[i]) && !gmlake_find(devices[i].lake, (void *)(uintptr_t)address, out_info) &&
        out_info->kind == GMLAKE_KIND_BLOCK && out_info->state == GMLAKE_STATE_LIVE)
      return &devices[i];
  return NULL;
}

static CUresult code_of(gmlake_result result) {
  switch (result) {
  case GMLAKE_OK:
    return CUDA_SUCCESS;
  case GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY:
  case GMLAKE_ERROR_LIMIT_REACHED:
  case GMLAKE_ERROR_OUT_OF_HOST_MEMORY:
    return CUDA_ERROR_OUT_OF_MEMORY;
  case GMLAKE_ERROR_SHUTTING_DOWN:
    return CUDA_ERROR_DEINITIALIZED;
  case GMLAKE_ERROR_DEVICE_LOST:
    return CUDA_ERROR_LAUNCH_FAILED;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static CUresult give_back(gmlake *lake, const gmlake_map_entry *info, CUstream stream) {
  const gmlake_result result = gmlake_free(lake, (void *)(uintptr_t)info->address, stream);
  pool *p;
  if (result) return code_of(result);
  pthread_mutex_lock(&books);
  p = pool_with(info->user_data); /* or it is destroyed */
  if (p) p->used_bytes -= info->requested_bytes;
  pthread_mutex_unlock(&books);
  return CUDA_SUCCESS;
}

/* What a captured free has freed is the graph's until it and all that was made of it are destroyed.
   Then the driver lets go of an object that the graph keeps. */
static void CUDAAPI graph_ended(void *record) {
  __atomic_store_n(&((held *)record)->has_ended, 1, __ATOMIC_RELEASE);
}

static int is_held(CUdeviceptr address) {
  const held *h;
  pthread_mutex_lock(&books);
  for (h = holds; h && !(h->lake && h->info.address == address); h = h->next) continue;
  pthread_mutex_unlock(&books);
  return h != NULL;
}

/* If the driver cannot tell of the graph's end, or does not, the block is kept for ever. */
static CUresult hold(gmlake *lake, const gmlake_map_entry *info, CUstream stream) {
  held *const h = (held *)calloc(1, sizeof(*h));
  CUstreamCaptureStatus status;
  CUgraph graph = NULL;
  void *object = NULL;
  if (!h) return CUDA_ERROR_OUT_OF_MEMORY;
  h->lake = lake;
  h->info = *info;
  pthread_mutex_lock(&books);
  h->next = holds;
  holds = h;
  held_count++;
  pthread_mutex_unlock(&books);
  if (!CALL(StreamGetCaptureInfo, (stream, &status, NULL, &graph, NULL, NULL)) && graph &&
      !CALL(UserObjectCreate, (&object, h, graph_ended, 1, 1 /* no synchronisation */)))
    (void)CALL(GraphRetainUserObject, (graph, object, 1, 1 /* the only reference moves */));
  return CUDA_SUCCESS;
}

/* Unlinks what belonged to graphs that have ended: blocks of the lake, and of devices that were
   reset. */
static held *ended_of(const gmlake *lake) {
  held **link = &holds, *out = NULL, *h;
  while ((h = *link) != NULL) {
    if ((h->lake && h->lake != lake) || !__atomic_load_n(&h->has_ended, __ATOMIC_ACQUIRE)) {
      link = &h->next;
      continue;
    }
    *link = h->next;
    h->next = out;
    out = h;
  }
  return out;
}

/* Gives them back to the lake: 1 if there were any. Other work that uses them may still run, so the
   host waits. That would spoil a capture, so there is none, and none begins meanwhile. */
static int take_back(gmlake *lake) {
  held *ended = NULL, *next;
  CUcontext now = NULL;
  const device *d;
  int count = 0;
  (void)CALL(CtxGetCurrent, (&now));
  pthread_mutex_lock(&books);
  d = now ? device_of(now) : NULL;
  if (d && d->lake == lake && !capture_count) ended = ended_of(lake);
  if (ended && CALL(CtxSynchronize, ())) lake = NULL; /* the context is lost, and all with it */
  pthread_mutex_unlock(&books);
  for (; ended; ended = next) {
    next = ended->next;
    if (lake && ended->lake) count += !give_back(lake, &ended->info, (CUstream)GMLAKE_STREAM_NONE);
    free(ended);
  }
  pthread_mutex_lock(&books);
  ended_count += (uint64_t)count;
  pthread_mutex_unlock(&books);
  return count > 0;
}

/* 1: *out_code is the answer; 0: the driver is to be asked. */
static int take(CUdeviceptr *out, size_t bytes, CUmemoryPool handle, CUstream stream,
                CUresult *out_code) {
  gmlake_alloc_desc desc = {0};
  device *const d = out && bytes ? device_for(stream) : NULL;
  gmlake_result result;
  void *ptr;
  pool *p;
  int is_native;
  if (!d) return 0;
  pthread_mutex_lock(&books);
  if (!handle) handle = current_pools[d->number];
  if (!handle) handle = default_pools[d->number];
  p = pool_of(handle);
  is_native = !p || p->is_native || p->device != d->number;
  if (p) desc.user_data = p->number;
  pthread_mutex_unlock(&books);
  if (is_native) return 0;
  desc.bytes = bytes;
  result = gmlake_alloc_with(d->lake, &desc, stream, &ptr);
  if (code_of(result) == CUDA_ERROR_OUT_OF_MEMORY && take_back(d->lake))
    result = gmlake_alloc_with(d->lake, &desc, stream, &ptr);
  if (result == GMLAKE_ERROR_CAPTURING || result == GMLAKE_ERROR_FORKED) return 0;
  *out_code = code_of(result);
  if (result) return 1;
  *out = (CUdeviceptr)(uintptr_t)ptr;
  pthread_mutex_lock(&books);
  p = pool_with(desc.user_data);
  if (p) p->used_bytes += bytes;
  if (p && p->used_bytes > p->used_bytes_high) p->used_bytes_high = p->used_bytes;
  pthread_mutex_unlock(&books);
  return 1;
}

static void count_native(void) {
  if (real.is_off) return;
  pthread_mutex_lock(&books);
  native_count++;
  pthread_mutex_unlock(&books);
}

static CUresult CUDAAPI hook_MemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
  CUresult code;
  if (take(out, bytes, POOL_NONE, stream, &code)) return code;
  count_native();
  return CALL(MemAllocAsync, (out, bytes, stream));
}

static CUresult CUDAAPI hook_MemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes,
                                                   CUmemoryPool handle, CUstream stream) {
  CUresult code;
  if (handle && take(out, bytes, handle, stream, &code)) return code;
  count_native();
  return CALL(MemAllocFromPoolAsync, (out, bytes, handle, stream));
}

/* A free that is captured takes effect when the graph runs, as often as it runs. So the block is
   the graph's until that ends. */
static CUresult CUDAAPI hook_MemFreeAsync(CUdeviceptr address, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  gmlake_map_entry info;
  device *const d = device_with(address, &info);
  CUresult code;
  if (!d || info.address != address) return CALL(MemFreeAsync, (address, stream));
  if (is_held(address)) return CUDA_ERROR_INVALID_VALUE;
  if (!CALL(StreamIsCapturing, (stream, &status)) && status != CU_STREAM_CAPTURE_STATUS_NONE)
    return hold(d->lake, &info, stream);
  if (device_for(stream) == d) return give_back(d->lake, &info, stream);
  code = CALL(StreamSynchronize, (stream)); /* a stream that the lake does not know */
  return code ? code : give_back(d->lake, &info, (CUstream)GMLAKE_STREAM_NONE);
}

static CUresult CUDAAPI hook_MemFree(CUdeviceptr address) {
  gmlake_map_entry info;
  device *const d = device_with(address, &info);
  CUresult code;
  if (!d || info.address != address) return CALL(MemFree, (address));
  if (is_held(address)) return CUDA_ERROR_INVALID_VALUE;
  code = CALL(CtxSynchronize, ());
  return code ? code : give_back(d->lake, &info, (CUstream)GMLAKE_STREAM_NONE);
}

/* The forms for programs whose NULL stream is the thread's own. */
static CUresult CUDAAPI hook_MemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream) {
  return hook_MemAllocAsync(out, bytes, stream ? stream : PER_THREAD);
}

static CUresult CUDAAPI hook_MemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes,
                                                        CUmemoryPool handle, CUstream stream) {
  return hook_MemAllocFromPoolAsync(out, bytes, handle, stream ? stream : PER_THREAD);
}

static CUresult CUDAAPI hook_MemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return hook_MemFreeAsync(address, stream ? stream : PER_THREAD);
}

static CUresult CUDAAPI hook_MemGetAddressRange(CUdeviceptr *base, size_t *bytes,
                                                CUdeviceptr address) {
  gmlake_map_entry info;
  if (!device_with(address, &info)) return CALL(MemGetAddressRange, (base, bytes, address));
  if (base) *base = (CUdeviceptr)info.address;
  if (bytes) *bytes = info.requested_bytes;
  return CUDA_SUCCESS;
}

static void describe(void *out, int attribute, const gmlake_map_entry *info) {
  const CUdeviceptr base = (CUdeviceptr)info->address;
  const unsigned long long none = 0;
  CUmemoryPool handle = NULL;
  const pool *p;
  pthread_mutex_lock(&books);
  p = pool_with(info->user_data);
  if (p) handle = p->handle;
  pthread_mutex_unlock(&books);
  if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) memcpy(out, &none, sizeof(none));
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) memcpy(out, &base, sizeof(base));
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
    memcpy(out, &info->requested_bytes, sizeof(info->requested_bytes));
  if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) memcpy(out, &handle, sizeof(handle));
}

static CUresult CUDAAPI hook_PointerGetAttribute(void *out, int attribute, CUdeviceptr address) {
  const CUresult code = CALL(PointerGetAttribute, (out, attribute, address));
  gmlake_map_entry info;
  if (!code && out && device_with(address, &info)) describe(out, attribute, &info);
  return code;
}

static CUresult CUDAAPI hook_PointerGetAttributes(unsigned count, int *attributes, void **out,
                                                  CUdeviceptr address) {
  const CUresult code = CALL(PointerGetAttributes, (count, attributes, out, address));
  gmlake_map_entry info;
  unsigned i;
  if (code || !device_with(address, &info)) return code;
  for (i = 0; i < count; i++) describe(out[i], attributes[i], &info);
  return code;
}

/* ---- Streams and contexts -------------------------------------------------------------------- */

static CUresult CUDAAPI hook_StreamDestroy(CUstream stream) {
  size_t i;
  for (i = 0; open_driver() && i < DEVICES_MAX; i++)
    if (LAKE(&devices[i])) (void)gmlake_forget_stream(devices[i].lake, stream);
  return CALL(StreamDestroy, (stream));
}

static void count_captures(int more) {
  pthread_mutex_lock(&books);
  if (more > 0 || capture_count) capture_count += (size_t)more;
  pthread_mutex_unlock(&books);
}

static device *tell_of_capture(CUstream stream) {
  device *const d = device_for(stream);
  count_captures(1);
  return d && !gmlake_capture_begin(d->lake, stream, d->of_captures) ? d : NULL;
}

/* The driver did not begin it. */
static void tell_of_refusal(device *d, CUstream stream) {
  count_captures(-1);
  if (d) (void)gmlake_capture_end(d->lake, stream);
}

static CUresult CUDAAPI hook_StreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  device *const d = tell_of_capture(stream);
  const CUresult code = CALL(StreamBeginCapture, (stream, mode));
  if (code) tell_of_refusal(d, stream);
  return code;
}

static CUresult CUDAAPI hook_StreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                                       const void *nodes, const void *edges,
                                                       size_t count, CUstreamCaptureMode mode) {
  device *const d = tell_of_capture(stream);
  const CUresult code = CALL(StreamBeginCaptureToGraph, (stream, graph, nodes, edges, count, mode));
  if (code) tell_of_refusal(d, stream);
  return code;
}

static CUresult CUDAAPI hook_StreamBeginCapture_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return hook_StreamBeginCapture(stream ? stream : PER_THREAD, mode);
}

static CUresult CUDAAPI hook_StreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                            const void *nodes, const void *edges,
                                                            size_t count,
                                                            CUstreamCaptureMode mode) {
  return hook_StreamBeginCaptureToGraph(stream ? stream : PER_THREAD, graph, nodes, edges, count,
                                        mode);
}

/* A capture that was begun untold is not known: that is no error. */
static CUresult CUDAAPI hook_StreamEndCapture(CUstream stream, CUgraph *graph) {
  CUstreamCaptureStatus status, before = CU_STREAM_CAPTURE_STATUS_NONE;
  const int is_unknown = CALL(StreamIsCapturing, (stream, &before)) != CUDA_SUCCESS;
  const CUresult code = CALL(StreamEndCapture, (stream, graph));
  size_t i;
  if (code && !CALL(StreamIsCapturing, (stream, &status)) &&
      status != CU_STREAM_CAPTURE_STATUS_NONE)
    return code;
  if (!is_unknown && before != CU_STREAM_CAPTURE_STATUS_NONE) count_captures(-1);
  for (i = 0; open_driver() && i < DEVICES_MAX; i++)
    if (LAKE(&devices[i])) (void)gmlake_capture_end(devices[i].lake, stream);
  return code;
}

static CUresult CUDAAPI hook_StreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
  return hook_StreamEndCapture(stream ? stream : PER_THREAD, graph);
}

/* All memory of the context goes, so the lake goes before. */
static CUresult CUDAAPI hook_PrimaryCtxReset(CUdevice number) {
  size_t i;
  open_driver();
  pthread_mutex_lock(&books);
  for (i = 0; i < DEVICES_MAX; i++)
    if (devices[i].context && devices[i].number == number) {
      gmlake *const lake = devices[i].lake;
      held *h;
      for (h = holds; h; h = h->next)
        if (h->lake == lake) h->lake = NULL;
      memset(&devices[i], 0, sizeof(devices[i]));
      (void)gmlake_destroy(lake);
      (void)CALL(PrimaryCtxRelease, (number));
    }
  for (i = 0; i < POOLS_MAX; i++)
    if (pools[i].handle && pools[i].device == number) memset(&pools[i], 0, sizeof(pools[i]));
  if (number >= 0 && number < DEVICES_MAX) current_pools[number] = NULL;
  pthread_mutex_unlock(&books);
  return CALL(PrimaryCtxReset, (number));
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static CUresult CUDAAPI hook_MemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
  const CUresult code = CALL(MemPoolCreate, (out, props));
  if (code || real.is_off) return code;
  pthread_mutex_lock(&books);
  pool_add(*out, props->location.id,
           props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
               props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->maxSize != 0);
  pthread_mutex_unlock(&books);
  return code;
}

static CUresult CUDAAPI hook_MemPoolDestroy(CUmemoryPool handle) {
  const CUresult code = CALL(MemPoolDestroy, (handle));
  pool *p;
  size_t i;
  if (code) return code;
  pthread_mutex_lock(&books);
  p = pool_of(handle);
  if (p) p->handle = NULL;
  for (i = 0; i < DEVICES_MAX; i++)
    if (current_pools[i] == handle) current_pools[i] = NULL;
  pthread_mutex_unlock(&books);
  return code;
}

/* Memory of the lake stays with its device. */
static CUresult CUDAAPI hook_MemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *descs,
                                              size_t count) {
  const CUresult code = CALL(MemPoolSetAccess, (handle, descs, count));
  size_t i;
  pool *p;
  pthread_mutex_lock(&books);
  p = pool_of(handle);
  for (i = 0; p && !code && i < count; i++)
    if (descs[i].location.id != p->device && descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
      p->is_native = 1;
  pthread_mutex_unlock(&books);
  return code;
}

static CUresult CUDAAPI hook_DeviceSetMemPool(CUdevice number, CUmemoryPool handle) {
  const CUresult code = CALL(DeviceSetMemPool, (number, handle));
  if (code || number >= DEVICES_MAX) return code;
  pthread_mutex_lock(&books);
  current_pools[number] = handle;
  pthread_mutex_unlock(&books);
  return code;
}

/* A copy of what is known of the pool, and its device's lake; 0: the driver's alone. */
static int look_up(CUmemoryPool handle, pool *out, gmlake **out_lake) {
  pool *p;
  size_t i;
  *out_lake = NULL;
  if (!open_driver()) return 0;
  pthread_mutex_lock(&books);
  p = pool_of(handle);
  if (p) *out = *p;
  for (i = 0; p && i < DEVICES_MAX; i++)
    if (devices[i].context && devices[i].number == p->device) *out_lake = devices[i].lake;
  pthread_mutex_unlock(&books);
  return p && *out_lake;
}

/* What the driver counts, of captures for instance, and what the lake counts. All pools of a device
   share the lake: each is said to hold what the lake holds. */
static CUresult CUDAAPI hook_MemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value) {
  const CUresult code = CALL(MemPoolGetAttribute, (handle, attribute, value));
  gmlake_stats stats = {0};
  gmlake *lake;
  uint64_t sum; /* of the attributes that are bytes */
  pool p;
  if (code || !look_up(handle, &p, &lake) || gmlake_get_stats(lake, &stats)) return code;
  if (attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    return code;
  memcpy(&sum, value, sizeof(sum));
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) sum += stats.reserved_bytes;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) sum += stats.reserved_bytes_peak;
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) sum += p.used_bytes;
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) sum += p.used_bytes_high;
  memcpy(value, &sum, sizeof(sum));
  return code;
}

static CUresult CUDAAPI hook_MemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value) {
  const CUresult code = CALL(MemPoolSetAttribute, (handle, attribute, value));
  gmlake *lake;
  pool p, *own;
  if (code || !look_up(handle, &p, &lake)) return code;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) (void)gmlake_reset_peaks(lake);
  if (attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH) return code;
  pthread_mutex_lock(&books);
  own = pool_of(handle);
  if (own) own->used_bytes_high = own->used_bytes;
  pthread_mutex_unlock(&books);
  return code;
}

static CUresult CUDAAPI hook_MemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  const CUresult code = CALL(MemPoolTrimTo, (handle, keep_bytes));
  gmlake *lake;
  pool p;
  if (code || !look_up(handle, &p, &lake)) return code;
  (void)take_back(lake);
  return code_of(gmlake_trim(lake, keep_bytes, NULL));
}

/* ---- How programs find the driver's functions ------------------------------------------------ */

static CUresult CUDAAPI hook_GetProcAddress(const char *name, void **out, int version,
                                            cuuint64_t flags);
static CUresult CUDAAPI hook_GetProcAddress_v2(const char *name, void **out, int version,
                                               cuuint64_t flags, int *status);

typedef void any_function(void);
/* X(hook, name in cuGetProcAddress, exported name, first version of that form) */
#define HOOKS(X)                                                                                   \
  X(MemAllocAsync, "cuMemAllocAsync", "cuMemAllocAsync", 0)                                        \
  X(MemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 0)                \
  X(MemFreeAsync, "cuMemFreeAsync", "cuMemFreeAsync", 0)                                           \
  X(MemAllocAsync_ptsz, "cuMemAllocAsync_ptsz", "cuMemAllocAsync_ptsz", 0)                         \
  X(MemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync_ptsz", "cuMemAllocFromPoolAsync_ptsz", 0) \
  X(MemFreeAsync_ptsz, "cuMemFreeAsync_ptsz", "cuMemFreeAsync_ptsz", 0)                            \
  X(StreamBeginCapture_ptsz, "cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2_ptsz", 0)       \
  X(StreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph_ptsz",                            \
    "cuStreamBeginCaptureToGraph_ptsz", 0)                                                         \
  X(StreamEndCapture_ptsz, "cuStreamEndCapture_ptsz", "cuStreamEndCapture_ptsz", 0)                \
  X(MemFree, "cuMemFree", "cuMemFree_v2", 3020)                                                    \
  X(MemGetAddressRange, "cuMemGetAddressRange", "cuMemGetAddressRange_v2", 3020)                   \
  X(PointerGetAttribute, "cuPointerGetAttribute", "cuPointerGetAttribute", 0)                      \
  X(PointerGetAttributes, "cuPointerGetAttributes", "cuPointerGetAttributes", 0)                   \
  X(StreamDestroy, "cuStreamDestroy", "cuStreamDestroy_v2", 4000)                                  \
  X(StreamBeginCapture, "cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010)                  \
  X(StreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph", 0)    \
  X(StreamEndCapture, "cuStreamEndCapture", "cuStreamEndCapture", 0)                               \
  X(PrimaryCtxReset, "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", 11000)               \
  X(MemPoolCreate, "cuMemPoolCreate", "cuMemPoolCreate", 0)                                        \
  X(MemPoolDestroy, "cuMemPoolDestroy", "cuMemPoolDestroy", 0)                                     \
  X(MemPoolSetAccess, "cuMemPoolSetAccess", "cuMemPoolSetAccess", 0)                               \
  X(MemPoolGetAttribute, "cuMemPoolGetAttribute", "cuMemPoolGetAttribute", 0)                      \
  X(MemPoolSetAttribute, "cuMemPoolSetAttribute", "cuMemPoolSetAttribute", 0)                      \
  X(MemPoolTrimTo, "cuMemPoolTrimTo", "cuMemPoolTrimTo", 0)                                        \
  X(DeviceSetMemPool, "cuDeviceSetMemPool", "cuDeviceSetMemPool", 0)                               \
  X(GetProcAddress_v2, "cuGetProcAddress", "cuGetProcAddress_v2", 12000)                           \
  X(GetProcAddress, "cuGetProcAddress", "cuGetProcAddress", 0)

/* Each hook under the driver's name, for programs that are linked with the driver. */
#define ALIAS(hook, base, exported, version)                                \
  extern EXPORTED __typeof__(hook_##hook) exported_##hook __asm__(exported) \
      __attribute__((alias("hook_" #hook)));
HOOKS(ALIAS)

static const struct {
  const char *base, *exported;
  int version;
  any_function *function;
} hooks[] = {
#define ROW(hook, base, exported, version) {base, exported, version, (any_function *)hook_##hook},
    HOOKS(ROW)};

static any_function *hook_for(const char *name, int version, cuuint64_t flags) {
  size_t i;
  char of_thread[64];
  if (flags & 2) { /* the NULL stream is the thread's own */
    (void)snprintf(of_thread, sizeof(of_thread), "%s_ptsz", name);
    for (i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
      if (strcmp(hooks[i].base, of_thread) == 0) return hooks[i].function;
  }
  for (i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
    if (strcmp(hooks[i].base, name) == 0 && version >= hooks[i].version) return hooks[i].function;
  return NULL;
}

static void replace(const char *name, void **out, int version, cuuint64_t flags) {
  any_function *const hook =
      name && out && *out && !real.is_off ? hook_for(name, version, flags) : NULL;
  if (hook) memcpy(out, &hook, sizeof(hook));
}

static CUresult CUDAAPI hook_GetProcAddress(const char *name, void **out, int version,
                                            cuuint64_t flags) {
  const CUresult code = CALL(GetProcAddress, (name, out, version, flags));
  if (!code) replace(name, out, version, flags);
  return code;
}

static CUresult CUDAAPI hook_GetProcAddress_v2(const char *name, void **out, int version,
                                               cuuint64_t flags, int *status) {
  const CUresult code = CALL(GetProcAddress_v2, (name, out, version, flags, status));
  if (!code) replace(name, out, version, flags);
  return code;
}

/* Other names are found as if this function were not there: the call in the last line is a jump, so
   the linker sees the caller's own address, which RTLD_NEXT depends on. The names above are the
   driver's: who asks all libraries for one finds nothing before the driver is there. */
EXPORTED void *dlsym(void *handle, const char *name) {
  any_function *hook = NULL;
  void *found, *own, *ours, *library;
  size_t i;
  pthread_once(&dlsym_once, find_dlsym);
  if (real.find && handle != RTLD_NEXT && name[0] == 'c' && name[1] == 'u') {
    for (i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
      if (strcmp(hooks[i].exported, name) == 0) hook = hooks[i].function;
    if (hook) {
      library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
      own = library ? real.find(library, name) : NULL;
      memcpy(&ours, &hook, sizeof(ours));
      found = real.find(handle, name); /* from here on dlerror is the caller's */
      if (found == ours) found = real.find(RTLD_NEXT, name);
      if (found && found == own && !real.is_off) found = ours;
      return found;
    }
  }
  return real.find ? real.find(handle, name) : NULL;
}
