/* The allocators to which gpu_bench gives the operations of a trace: the lake on a backend,
   gmlake_bfc.h over cuMemAlloc, cuMemAlloc itself, and cuMemAllocAsync. Functions that can fail
   return NULL if they succeed, else the name of the error. */
#if !defined(GPU_PEERS_H)
#define GPU_PEERS_H

#include "gpu_bench.h"
#include "trace.h"

/* Functions and numbers of the driver's memory pools, which our declarations of the driver do not
   have. If a driver lacks them, cuMemAllocAsync is not measured. */
enum { POOL_RELEASE_THRESHOLD = 4, POOL_RESERVED_HIGH = 6 };
typedef struct pool_functions {
  CUresult (*get_default)(void **pool, CUdevice device); /* cuDeviceGetDefaultMemPool */
  CUresult (*set)(void *pool, int attribute, void *value);
  CUresult (*get)(void *pool, int attribute, void *value);
  CUresult (*trim)(void *pool, size_t keep_bytes);
} pool_functions;

typedef struct setting {
  bench *b;
  const trace *t;
  const gmlake_backend *backend; /* of the lake */
  unsigned flags;
  size_t chunk_bytes, limit_bytes;
  uint64_t release_threshold; /* of the driver's pool */
  gmlake_stream streams[TRACE_STREAMS_MAX];
} setting;

typedef struct counters { /* NAN: not known */
  double reserved_bytes_peak, driver_calls, driver_ns, stitches, stream_waits, chunk_bytes;
} counters;

typedef struct allocator {
  const char *name;
  const char *(*open)(setting *with, void **out_self);
  const char *(*alloc)(void *self, const trace_op *op, void **out_ptr);
  const char *(*free_block)(void *self, const trace_op *op, void *ptr);
  void (*get_counters)(void *self, counters *out);
  void (*close)(void *self);
} allocator;

static void counters_clear(counters *c) {
  c->reserved_bytes_peak = c->driver_calls = c->driver_ns = NAN;
  c->stitches = c->stream_waits = c->chunk_bytes = NAN;
}

/* ---- The lake ---- */

typedef struct lake_run {
  gmlake *lake;
  const gmlake_stream *streams;
} lake_run;

static const char *lake_open(setting *with, void **out_self) {
  static lake_run run;
  gmlake_result result;
  gmlake_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.backend = with->backend;
  desc.flags = with->flags;
  desc.cross_stream = GMLAKE_WAIT_FIRST;
  desc.chunk_bytes = with->chunk_bytes;
  desc.limit_bytes = with->limit_bytes;
  run.streams = with->streams;
  result = gmlake_create(&desc, &run.lake);
  *out_self = &run;
  return result == GMLAKE_OK ? NULL : gmlake_result_name(result);
}

static const char *lake_alloc(void *self, const trace_op *op, void **out_ptr) {
  lake_run *run = (lake_run *)self;
  gmlake_result result = gmlake_alloc(run->lake, op->bytes, run->streams[op->stream], out_ptr);
  return result == GMLAKE_OK ? NULL : gmlake_result_name(result);
}

static const char *lake_free(void *self, const trace_op *op, void *ptr) {
  lake_run *run = (lake_run *)self;
  gmlake_result result = gmlake_free(run->lake, ptr, run->streams[op->stream]);
  return result == GMLAKE_OK ? NULL : gmlake_result_name(result);
}

static void lake_get_counters(void *self, counters *out) {
  gmlake *lake = ((lake_run *)self)->lake;
  gmlake_stats stats;
  gmlake_desc desc;
  memset(&stats, 0, sizeof stats);
  memset(&desc, 0, sizeof desc);
  LAKE(gmlake_get_stats(lake, &stats));
  LAKE(gmlake_get_desc(lake, &desc));
  out->reserved_bytes_peak = (double)stats.reserved_bytes_peak;
  out->driver_calls = (double)stats.driver_call_count;
  out->driver_ns = (double)stats.driver_ns;
  out->stitches = (double)stats.stitch_count;
  out->stream_waits = (double)stats.stream_wait_count;
  out->chunk_bytes = (double)desc.chunk_bytes;
}

static void lake_close(void *self) { LAKE(gmlake_destroy(((lake_run *)self)->lake)); }

/* ---- cuMemAlloc, and torch's rules over it ---- */

static const char *native_open(setting *with, void **out_self) {
  *out_self = &with->b->gpu;
  return NULL;
}

static const char *native_alloc(void *self, const trace_op *op, void **out_ptr) {
  CUdeviceptr address = 0;
  CUresult code = CUDA_SUCCESS;
  if (op->bytes) code = ((const gpu_driver *)self)->cuMemAlloc(&address, op->bytes);
  *out_ptr = code == CUDA_SUCCESS ? (void *)(uintptr_t)address : NULL;
  return code == CUDA_SUCCESS ? NULL : "cuMemAlloc failed";
}

static const char *native_free(void *self, const trace_op *op, void *ptr) {
  (void)op;
  if (!ptr) return NULL;
  return ((const gpu_driver *)self)->cuMemFree((CUdeviceptr)(uintptr_t)ptr) == CUDA_SUCCESS
             ? NULL
             : "cuMemFree failed";
}

static void no_counters(void *self, counters *out) {
  (void)self;
  (void)out;
}

static void no_close(void *self) { (void)self; }

static void *bfc_segment_alloc(void *user, size_t bytes) {
  CUdeviceptr address = 0;
  CUresult code = ((const gpu_driver *)user)->cuMemAlloc(&address, bytes);
  return code == CUDA_SUCCESS ? (void *)(uintptr_t)address : NULL;
}

static void bfc_segment_free(void *user, void *segment, size_t bytes) {
  const gpu_driver *gpu = (const gpu_driver *)user;
  (void)bytes;
  GPU(cuMemFree((CUdeviceptr)(uintptr_t)segment));
}

static const char *bfc_open(setting *with, void **out_self) {
  gmlake_bfc_desc desc;
  gmlake_bfc_result result;
  gmlake_bfc *bfc = NULL;
  memset(&desc, 0, sizeof desc);
  desc.segment_alloc = bfc_segment_alloc;
  desc.segment_free = bfc_segment_free;
  desc.user = &with->b->gpu;
  result = gmlake_bfc_create(&desc, &bfc);
  *out_self = bfc;
  return result == GMLAKE_BFC_OK ? NULL : gmlake_bfc_result_name(result);
}

static const char *bfc_alloc(void *self, const trace_op *op, void **out_ptr) {
  gmlake_bfc_result result =
      gmlake_bfc_alloc((gmlake_bfc *)self, op->bytes, (void *)(uintptr_t)op->stream, out_ptr);
  return result == GMLAKE_BFC_OK ? NULL : gmlake_bfc_result_name(result);
}

static const char *bfc_free(void *self, const trace_op *op, void *ptr) {
  gmlake_bfc_result result = gmlake_bfc_free((gmlake_bfc *)self, ptr);
  (void)op;
  return result == GMLAKE_BFC_OK ? NULL : gmlake_bfc_result_name(result);
}

static void bfc_get_counters(void *self, counters *out) {
  gmlake_bfc_stats stats;
  memset(&stats, 0, sizeof stats);
  gmlake_bfc_get_stats((gmlake_bfc *)self, &stats);
  out->reserved_bytes_peak = (double)stats.reserved_bytes_peak;
  out->driver_calls = (double)(stats.segment_alloc_count + stats.segment_free_count);
}

static void bfc_close(void *self) { gmlake_bfc_destroy((gmlake_bfc *)self); }

/* ---- cuMemAllocAsync on the device's default pool ---- */

typedef struct async_run {
  const gpu_driver *gpu;
  const gmlake_stream *streams;
  void *pool; /* NULL: the settings of the driver's pool do not change */
  pool_functions fn;
} async_run;

static int pool_find(const gpu_driver *gpu, const char *name, void *out, size_t out_bytes) {
  void *symbol = dlsym(gpu->library, name);
  memcpy(out, &symbol, out_bytes);
  return symbol != NULL;
}

static int pool_open(const gpu_driver *gpu, CUdevice device, pool_functions *fn, void **out_pool) {
  return pool_find(gpu, "cuDeviceGetDefaultMemPool", &fn->get_default, sizeof fn->get_default) &&
         pool_find(gpu, "cuMemPoolSetAttribute", &fn->set, sizeof fn->set) &&
         pool_find(gpu, "cuMemPoolGetAttribute", &fn->get, sizeof fn->get) &&
         pool_find(gpu, "cuMemPoolTrimTo", &fn->trim, sizeof fn->trim) &&
         fn->get_default(out_pool, device) == CUDA_SUCCESS;
}

/* Empties the pool and sets its peak back. */
static void pool_reset(async_run *run, uint64_t threshold) {
  const gpu_driver *gpu = run->gpu;
  uint64_t none = 0;
  GPU(cuCtxSynchronize());
  if (!run->pool) return;
  gpu_must(run->fn.trim(run->pool, 0), "cuMemPoolTrimTo");
  gpu_must(run->fn.set(run->pool, POOL_RESERVED_HIGH, &none), "cuMemPoolSetAttribute");
  gpu_must(run->fn.set(run->pool, POOL_RELEASE_THRESHOLD, &threshold), "cuMemPoolSetAttribute");
}

static const char *async_open(setting *with, void **out_self) {
  static async_run run;
  run.gpu = &with->b->gpu;
  run.streams = with->streams;
  run.pool = NULL;
  *out_self = &run;
  if (!pool_open(run.gpu, with->b->device, &run.fn, &run.pool)) {
    run.pool = NULL;
    if (with->release_threshold) return "the driver has no memory pools";
  }
  pool_reset(&run, with->release_threshold);
  return NULL;
}

static const char *async_alloc(void *self, const trace_op *op, void **out_ptr) {
  async_run *run = (async_run *)self;
  CUstream stream = (CUstream)run->streams[op->stream];
  CUdeviceptr address = 0;
  CUresult code = CUDA_SUCCESS;
  if (op->bytes) code = run->gpu->cuMemAllocAsync(&address, op->bytes, stream);
  *out_ptr = code == CUDA_SUCCESS ? (void *)(uintptr_t)address : NULL;
  return code == CUDA_SUCCESS ? NULL : "cuMemAllocAsync failed";
}

static const char *async_free(void *self, const trace_op *op, void *ptr) {
  async_run *run = (async_run *)self;
  CUstream stream = (CUstream)run->streams[op->stream];
  if (!ptr) return NULL;
  return run->gpu->cuMemFreeAsync((CUdeviceptr)(uintptr_t)ptr, stream) == CUDA_SUCCESS
             ? NULL
             : "cuMemFreeAsync failed";
}

static void async_get_counters(void *self, counters *out) {
  async_run *run = (async_run *)self;
  uint64_t bytes = 0;
  if (run->pool && run->fn.get(run->pool, POOL_RESERVED_HIGH, &bytes) == CUDA_SUCCESS)
    out->reserved_bytes_peak = (double)bytes;
}

static void async_close(void *self) { pool_reset((async_run *)self, 0); }

/* ---- Nothing: the cost of the replaying loop itself ---- */

static const char *empty_open(setting *with, void **out_self) {
  *out_self = with;
  return NULL;
}

static const char *empty_alloc(void *self, const trace_op *op, void **out_ptr) {
  (void)op;
  *out_ptr = self;
  return NULL;
}

static const char *empty_free(void *self, const trace_op *op, void *ptr) {
  (void)self;
  (void)op;
  (void)ptr;
  return NULL;
}

static const allocator lake_allocator = {"lake",    lake_open,         lake_alloc,
                                         lake_free, lake_get_counters, lake_close};
static const allocator bfc_allocator = {"bfc over cuMemAlloc", bfc_open, bfc_alloc, bfc_free,
                                        bfc_get_counters,      bfc_close};
static const allocator native_allocator = {"cuMemAlloc", native_open, native_alloc,
                                           native_free,  no_counters, no_close};
static const allocator async_allocator = {"cuMemAllocAsync", async_open,         async_alloc,
                                          async_free,        async_get_counters, async_close};
static const allocator empty_allocator = {"empty",    empty_open,  empty_alloc,
                                          empty_free, no_counters, no_close};

#endif
