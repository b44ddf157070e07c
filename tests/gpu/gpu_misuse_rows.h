/* The rows of gpu_misuse.h: each a function that sets something up and makes one decisive call,
   whose answer it returns. Include after gpu_fixture.h. */
#if !defined(GPU_MISUSE_ROWS_H)
#define GPU_MISUSE_ROWS_H

#define RESERVED_GRANULES 8
#define MAPPINGS_MAX 8
#define NOT_RECORDED (-1)
#define DIED (-2) /* the call ended its process */

/* What every row finds: a reservation, three handles, two streams, an event. */
typedef struct stage {
  gpu_driver gpu;
  gpu_kernels kernels;
  CUdevice device;
  CUcontext context;
  CUmemAllocationProp prop;
  size_t granule;
  CUdeviceptr base;
  CUmemGenericAllocationHandle a, b, wide; /* of 1, 1 and 2 granules; 0: released by the row */
  CUstream stream, other;                  /* they ignore the legacy stream */
  CUevent event;
  struct {
    CUdeviceptr address;
    size_t bytes;
  } mapped[MAPPINGS_MAX];
  size_t mapped_count;
  int broken_line; /* a call that only prepares was refused here; 0: none was */
} stage;

/* A call that prepares the decisive one; where it is refused, that is the row's answer. */
#define PREPARE(call)                 \
  do {                                \
    const CUresult prepared = (call); \
    if (prepared != CUDA_SUCCESS) {   \
      s->broken_line = __LINE__;      \
      return prepared;                \
    }                                 \
  } while (0)

static CUdeviceptr at(const stage *s, size_t granule) { return s->base + granule * s->granule; }

static CUresult map_at(stage *s, CUdeviceptr address, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult code = s->gpu.cuMemMap(address, bytes, offset, handle, flags);
  if (code == CUDA_SUCCESS && s->mapped_count < MAPPINGS_MAX) {
    s->mapped[s->mapped_count].address = address;
    s->mapped[s->mapped_count++].bytes = bytes;
  }
  return code;
}

static CUresult map(stage *s, size_t granule, CUmemGenericAllocationHandle handle, size_t count) {
  return map_at(s, at(s, granule), count * s->granule, 0, handle, 0);
}

static CUresult unmap(stage *s, size_t granule, size_t count) {
  return s->gpu.cuMemUnmap(at(s, granule), count * s->granule);
}

static CUresult grant(stage *s, size_t granule, size_t count) {
  CUmemAccessDesc access;
  memset(&access, 0, sizeof(access));
  access.location = s->prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return s->gpu.cuMemSetAccess(at(s, granule), count * s->granule, &access, 1);
}

static CUresult map_and_grant(stage *s, size_t granule, CUmemGenericAllocationHandle handle,
                              size_t count) {
  const CUresult code = map(s, granule, handle, count);
  return code == CUDA_SUCCESS ? grant(s, granule, count) : code;
}

static CUresult read_word(stage *s, size_t granule) {
  uint32_t word;
  return s->gpu.cuMemcpyDtoH(&word, at(s, granule), sizeof(word));
}

static CUresult create(stage *s, size_t bytes, CUmemGenericAllocationHandle *out) {
  return s->gpu.cuMemCreate(out, bytes, &s->prop, 0);
}

/* A handle that nobody needs: released again where the driver made it. */
static CUresult create_with(stage *s, const CUmemAllocationProp *prop, size_t bytes,
                            unsigned long long flags) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code = s->gpu.cuMemCreate(&handle, bytes, prop, flags);
  if (code == CUDA_SUCCESS) (void)s->gpu.cuMemRelease(handle);
  return code;
}

static CUresult create_bytes(stage *s, size_t bytes) { return create_with(s, &s->prop, bytes, 0); }

static CUresult reserve(stage *s, size_t bytes, size_t alignment, unsigned long long flags) {
  CUdeviceptr address = 0;
  const CUresult code = s->gpu.cuMemAddressReserve(&address, bytes, alignment, 0, flags);
  if (code == CUDA_SUCCESS) (void)s->gpu.cuMemAddressFree(address, bytes);
  return code;
}

/* ---- Mapping --------------------------------------------------------------------------------- */

static CUresult unmap_never_mapped(stage *s) { return unmap(s, 0, 1); }

static CUresult map_part(stage *s) { return map(s, 0, s->wide, 1); }

static CUresult map_offset(stage *s) {
  return map_at(s, s->base, s->granule, s->granule, s->wide, 0);
}

static CUresult map_flags(stage *s) { return map_at(s, s->base, s->granule, 0, s->a, 1); }

static CUresult map_unaligned(stage *s) {
  return map_at(s, s->base + s->granule / 2, s->granule, 0, s->a, 0);
}

static CUresult map_past_end(stage *s) { return map(s, RESERVED_GRANULES - 1, s->wide, 2); }

static CUresult map_outside(stage *s) {
  CUdeviceptr address = 0;
  PREPARE(s->gpu.cuMemAddressReserve(&address, s->granule, 0, 0, 0));
  PREPARE(s->gpu.cuMemAddressFree(address, s->granule));
  return map_at(s, address, s->granule, 0, s->a, 0);
}

static CUresult map_twice(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  return map(s, 0, s->b, 1);
}

static CUresult map_overlapping(stage *s) {
  PREPARE(map(s, 1, s->a, 1));
  return map(s, 0, s->wide, 2);
}

static CUresult map_alias(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  return map(s, 1, s->a, 1);
}

static CUresult map_nothing(stage *s) { return map(s, 0, 0, 1); }

static CUresult map_released(stage *s) {
  const CUmemGenericAllocationHandle handle = s->a;
  PREPARE(map(s, 0, s->a, 1));
  PREPARE(s->gpu.cuMemRelease(s->a));
  s->a = 0;
  return map(s, 1, handle, 1);
}

static CUresult unmap_half(stage *s) {
  PREPARE(map(s, 0, s->wide, 2));
  return unmap(s, 0, 1);
}

static CUresult unmap_with_hole(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  return unmap(s, 0, 2);
}

static CUresult read_after_unmap_with_hole(stage *s) {
  PREPARE(map_and_grant(s, 0, s->a, 1));
  PREPARE(unmap(s, 0, 2));
  return read_word(s, 0);
}

static CUresult unmap_two(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  PREPARE(map(s, 1, s->b, 1));
  return unmap(s, 0, 2);
}

static CUresult unmap_straddling(stage *s) {
  PREPARE(map(s, 0, s->wide, 2));
  PREPARE(map(s, 2, s->a, 1));
  return unmap(s, 1, 2);
}

static CUresult unmap_twice(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  PREPARE(unmap(s, 0, 1));
  return unmap(s, 0, 1);
}

/* ---- Access ---------------------------------------------------------------------------------- */

static CUresult read_without_access(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  return read_word(s, 0);
}

static CUresult set_without_access(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  return s->gpu.cuMemsetD32Async(s->base, 1, 16, s->stream);
}

static CUresult grant_half(stage *s) {
  PREPARE(map(s, 0, s->wide, 2));
  return grant(s, 0, 1);
}

static CUresult read_after_grant_half(stage *s) {
  PREPARE(map(s, 0, s->wide, 2));
  (void)grant(s, 0, 1);
  return read_word(s, 0);
}

static CUresult grant_with_hole(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  return grant(s, 0, 2);
}

static CUresult read_after_grant_with_hole(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  (void)grant(s, 0, 2);
  return read_word(s, 0);
}

static CUresult grant_unmapped(stage *s) { return grant(s, 0, 1); }

static CUresult grant_twice(stage *s) {
  PREPARE(map_and_grant(s, 0, s->a, 1));
  return grant(s, 0, 1);
}

static CUresult grant_nobody(stage *s) {
  CUmemAccessDesc access;
  memset(&access, 0, sizeof(access));
  PREPARE(map(s, 0, s->a, 1));
  return s->gpu.cuMemSetAccess(s->base, s->granule, &access, 0);
}

static CUresult read_unmapped(stage *s) { return read_word(s, 0); }

/* ---- Address space --------------------------------------------------------------------------- */

static CUresult unreserve_mapped(stage *s) {
  PREPARE(map(s, 0, s->a, 1));
  return s->gpu.cuMemAddressFree(s->base, RESERVED_GRANULES * s->granule);
}

static CUresult read_after_unreserve_mapped(stage *s) {
  PREPARE(map_and_grant(s, 0, s->a, 1));
  (void)s->gpu.cuMemAddressFree(s->base, RESERVED_GRANULES * s->granule);
  return read_word(s, 0);
}

static CUresult unreserve_part(stage *s) { return s->gpu.cuMemAddressFree(s->base, s->granule); }

static CUresult unreserve_interior(stage *s) {
  return s->gpu.cuMemAddressFree(at(s, 1), (RESERVED_GRANULES - 1) * s->granule);
}

static CUresult unreserve_twice(stage *s) {
  CUdeviceptr address = 0;
  PREPARE(s->gpu.cuMemAddressReserve(&address, s->granule, 0, 0, 0));
  PREPARE(s->gpu.cuMemAddressFree(address, s->granule));
  return s->gpu.cuMemAddressFree(address, s->granule);
}

static CUresult reserve_odd(stage *s) { return reserve(s, s->granule + 1, 0, 0); }
static CUresult reserve_half(stage *s) { return reserve(s, s->granule / 2, 0, 0); }
static CUresult reserve_nothing(stage *s) { return reserve(s, 0, 0, 0); }
static CUresult reserve_alignment_3(stage *s) { return reserve(s, s->granule, 3, 0); }
static CUresult reserve_alignment_tib(stage *s) { return reserve(s, s->granule, 1024 * GIB, 0); }
static CUresult reserve_too_much(stage *s) { return reserve(s, 122880 * GIB, 0, 0); }
static CUresult reserve_flags(stage *s) { return reserve(s, s->granule, 0, 1); }

/* ---- Handles --------------------------------------------------------------------------------- */

static CUresult release_mapped(stage *s) {
  CUresult code;
  PREPARE(map_and_grant(s, 0, s->a, 1));
  code = s->gpu.cuMemRelease(s->a);
  if (code == CUDA_SUCCESS) s->a = 0;
  return code;
}

static CUresult write_released(stage *s) {
  const uint32_t word = 1;
  PREPARE(map_and_grant(s, 0, s->a, 1));
  PREPARE(s->gpu.cuMemRelease(s->a));
  s->a = 0;
  return s->gpu.cuMemcpyHtoD(s->base, &word, sizeof(word));
}

static CUresult retain_released(stage *s) {
  CUmemGenericAllocationHandle handle = 0;
  CUresult code;
  PREPARE(map_and_grant(s, 0, s->a, 1));
  PREPARE(s->gpu.cuMemRelease(s->a));
  s->a = 0;
  code = s->gpu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)s->base);
  if (code == CUDA_SUCCESS) (void)s->gpu.cuMemRelease(handle);
  return code;
}

static CUresult retain_unmapped(stage *s) {
  CUmemGenericAllocationHandle handle = 0;
  return s->gpu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)s->base);
}

static CUresult release_twice(stage *s) {
  const CUmemGenericAllocationHandle handle = s->a;
  PREPARE(s->gpu.cuMemRelease(s->a));
  s->a = 0;
  return s->gpu.cuMemRelease(handle);
}

static CUresult create_odd(stage *s) { return create_bytes(s, s->granule + s->granule / 2); }
static CUresult create_nothing(stage *s) { return create_bytes(s, 0); }

static CUresult create_too_much(stage *s) {
  size_t total = 0;
  PREPARE(s->gpu.cuDeviceTotalMem(&total, s->device));
  return create_bytes(s, (total / s->granule + 16) * s->granule);
}

static CUresult create_flags(stage *s) { return create_with(s, &s->prop, s->granule, 1); }

static CUresult create_untyped(stage *s) {
  CUmemAllocationProp prop = s->prop;
  prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  return create_with(s, &prop, s->granule, 0);
}

static CUresult create_nowhere(stage *s) {
  CUmemAllocationProp prop = s->prop;
  prop.location.id = 1000;
  return create_with(s, &prop, s->granule, 0);
}

#define FULL_MAX 4096

/* Fills the device by ever smaller handles; ends with the refusal of the smallest. */
static size_t fill_device(stage *s, CUmemGenericAllocationHandle *handles, CUresult *out_code) {
  size_t count = 0, bytes = 2 * GIB;
  *out_code = CUDA_SUCCESS;
  while (count < FULL_MAX && bytes >= s->granule) {
    *out_code = create(s, bytes, &handles[count]);
    if (*out_code == CUDA_SUCCESS)
      count++;
    else
      bytes /= 2;
  }
  return count;
}

static CUresult create_when_full(stage *s) {
  static CUmemGenericAllocationHandle handles[FULL_MAX];
  CUresult code;
  size_t count = fill_device(s, handles, &code);
  while (count) (void)s->gpu.cuMemRelease(handles[--count]);
  return code;
}

static CUresult map_when_full(stage *s) {
  static CUmemGenericAllocationHandle handles[FULL_MAX];
  CUresult code;
  size_t count = fill_device(s, handles, &code);
  code = map_and_grant(s, 0, s->a, 1);
  while (count) (void)s->gpu.cuMemRelease(handles[--count]);
  return code;
}

static CUresult use_without_context(stage *s) {
  CUresult code;
  PREPARE(s->gpu.cuCtxSetCurrent(NULL));
  code = create_bytes(s, s->granule);
  if (code == CUDA_SUCCESS) code = reserve(s, s->granule, 0, 0);
  if (code == CUDA_SUCCESS) code = map_and_grant(s, 0, s->a, 1);
  if (code == CUDA_SUCCESS) code = unmap(s, 0, 1);
  (void)s->gpu.cuCtxSetCurrent(s->context);
  return code;
}

/* ---- Events and streams ---------------------------------------------------------------------- */

static CUresult query_unrecorded(stage *s) { return s->gpu.cuEventQuery(s->event); }
static CUresult await_unrecorded(stage *s) { return s->gpu.cuEventSynchronize(s->event); }

static CUresult wait_unrecorded(stage *s) {
  return s->gpu.cuStreamWaitEvent(s->stream, s->event, 0);
}

static CUresult destroy_pending_event(stage *s) {
  CUevent event = NULL;
  PREPARE(s->gpu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  PREPARE(gpu_spin(&s->gpu, &s->kernels, s->stream, 2 * MS_NS));
  PREPARE(s->gpu.cuEventRecord(event, s->stream));
  PREPARE(s->gpu.cuStreamWaitEvent(s->other, event, 0));
  return s->gpu.cuEventDestroy(event);
}

static CUresult destroy_busy_stream(stage *s) {
  CUstream stream = NULL;
  PREPARE(s->gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  PREPARE(gpu_spin(&s->gpu, &s->kernels, stream, 2 * MS_NS));
  return s->gpu.cuStreamDestroy(stream);
}

static CUresult query_event_of_destroyed_stream(stage *s) {
  CUstream stream = NULL;
  PREPARE(s->gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  PREPARE(gpu_spin(&s->gpu, &s->kernels, stream, 2 * MS_NS));
  PREPARE(s->gpu.cuEventRecord(s->event, stream));
  PREPARE(s->gpu.cuStreamDestroy(stream));
  return s->gpu.cuEventSynchronize(s->event);
}

/* The driver's manual promises no answer to these: each has a process of its own, which may end. */
static CUresult record_on_destroyed_stream(stage *s) {
  CUstream stream = NULL;
  PREPARE(s->gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  PREPARE(s->gpu.cuStreamDestroy(stream));
  return s->gpu.cuEventRecord(s->event, stream);
}

static CUresult wait_on_destroyed_stream(stage *s) {
  CUstream stream = NULL;
  PREPARE(s->gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  PREPARE(s->gpu.cuEventRecord(s->event, s->other));
  PREPARE(s->gpu.cuStreamDestroy(stream));
  return s->gpu.cuStreamWaitEvent(stream, s->event, 0);
}

/* ---- Captures -------------------------------------------------------------------------------- */

static CUresult begin(stage *s, CUstreamCaptureMode mode) {
  return s->gpu.cuStreamBeginCapture(s->stream, mode);
}

/* The capture may be spoilt by then. */
static CUresult end(stage *s) {
  CUgraph graph = NULL;
  const CUresult code = s->gpu.cuStreamEndCapture(s->stream, &graph);
  if (graph) (void)s->gpu.cuGraphDestroy(graph);
  return code;
}

/* Ends the capture and answers what came before. */
static CUresult ended(stage *s, CUresult code) {
  (void)end(s);
  return code;
}

static CUresult drive_memory(stage *s) {
  CUresult code = create_bytes(s, s->granule);
  if (code == CUDA_SUCCESS) code = reserve(s, s->granule, 0, 0);
  if (code == CUDA_SUCCESS) code = map_and_grant(s, 0, s->a, 1);
  if (code == CUDA_SUCCESS) code = unmap(s, 0, 1);
  return code;
}

static CUresult memory_in(stage *s, CUstreamCaptureMode mode) {
  CUresult code;
  PREPARE(begin(s, mode));
  code = drive_memory(s);
  return code == CUDA_SUCCESS ? end(s) : ended(s, code);
}

static CUresult memory_in_global(stage *s) { return memory_in(s, CU_STREAM_CAPTURE_MODE_GLOBAL); }
static CUresult memory_in_thread_local(stage *s) {
  return memory_in(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
static CUresult memory_in_relaxed(stage *s) { return memory_in(s, CU_STREAM_CAPTURE_MODE_RELAXED); }

static CUresult query_in(stage *s, CUstreamCaptureMode mode) {
  PREPARE(s->gpu.cuEventRecord(s->event, s->other));
  PREPARE(begin(s, mode));
  return ended(s, s->gpu.cuEventQuery(s->event));
}

static CUresult query_in_global(stage *s) { return query_in(s, CU_STREAM_CAPTURE_MODE_GLOBAL); }
static CUresult query_in_thread_local(stage *s) {
  return query_in(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
static CUresult query_in_relaxed(stage *s) { return query_in(s, CU_STREAM_CAPTURE_MODE_RELAXED); }

static CUresult alloc_in(stage *s, CUstreamCaptureMode mode) {
  CUdeviceptr address = 0;
  CUresult code;
  PREPARE(begin(s, mode));
  code = s->gpu.cuMemAlloc(&address, 1024);
  (void)end(s);
  if (code == CUDA_SUCCESS) (void)s->gpu.cuMemFree(address);
  return code;
}

static CUresult alloc_in_global(stage *s) { return alloc_in(s, CU_STREAM_CAPTURE_MODE_GLOBAL); }
static CUresult alloc_in_thread_local(stage *s) {
  return alloc_in(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}
static CUresult alloc_in_relaxed(stage *s) { return alloc_in(s, CU_STREAM_CAPTURE_MODE_RELAXED); }

static CUresult end_after_query(stage *s) {
  PREPARE(s->gpu.cuEventRecord(s->event, s->other));
  PREPARE(begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  (void)s->gpu.cuEventQuery(s->event);
  return end(s);
}

static CUresult await_event_in_global(stage *s) {
  PREPARE(s->gpu.cuEventRecord(s->event, s->other));
  PREPARE(begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  return ended(s, s->gpu.cuEventSynchronize(s->event));
}

/* A query under the exchange, with the capture's own end as the answer. */
static CUresult query_under_exchange(stage *s) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUresult code;
  PREPARE(s->gpu.cuEventRecord(s->event, s->other));
  PREPARE(begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  code = s->gpu.cuThreadExchangeStreamCaptureMode(&mode);
  if (code == CUDA_SUCCESS) code = s->gpu.cuEventQuery(s->event);
  if (code == CUDA_SUCCESS) code = s->gpu.cuThreadExchangeStreamCaptureMode(&mode);
  return code == CUDA_SUCCESS ? end(s) : ended(s, code);
}

typedef struct elsewhere { /* one call on another thread */
  stage *s;
  CUresult (*call)(stage *s);
  CUresult code;
} elsewhere;

static void *run_elsewhere(void *user) {
  elsewhere *e = (elsewhere *)user;
  e->code = e->s->gpu.cuCtxSetCurrent(e->s->context);
  if (e->code == CUDA_SUCCESS) e->code = e->call(e->s);
  return NULL;
}

static CUresult on_other_thread(stage *s, CUresult (*call)(stage *s)) {
  elsewhere e;
  pthread_t thread;
  e.s = s;
  e.call = call;
  e.code = CUDA_ERROR_UNKNOWN;
  if (pthread_create(&thread, NULL, run_elsewhere, &e) == 0) (void)pthread_join(thread, NULL);
  return e.code;
}

static CUresult query_on_other_thread(stage *s, CUstreamCaptureMode mode) {
  PREPARE(s->gpu.cuEventRecord(s->event, s->other));
  PREPARE(begin(s, mode));
  return ended(s, on_other_thread(s, query_unrecorded));
}

static CUresult query_elsewhere_in_global(stage *s) {
  return query_on_other_thread(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
static CUresult query_elsewhere_in_thread_local(stage *s) {
  return query_on_other_thread(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static CUresult memory_elsewhere_in(stage *s, CUstreamCaptureMode mode) {
  CUresult code;
  PREPARE(begin(s, mode));
  code = on_other_thread(s, drive_memory);
  return code == CUDA_SUCCESS ? end(s) : ended(s, code);
}

static CUresult memory_elsewhere_in_global(stage *s) {
  return memory_elsewhere_in(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
static CUresult memory_elsewhere_in_thread_local(stage *s) {
  return memory_elsewhere_in(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static CUresult begin_twice(stage *s) {
  PREPARE(begin(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  return ended(s, begin(s, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static CUresult begin_legacy(stage *s) {
  CUgraph graph = NULL;
  const CUresult code = s->gpu.cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (code == CUDA_SUCCESS) (void)s->gpu.cuStreamEndCapture(NULL, &graph);
  return code;
}

static CUresult end_without_begin(stage *s) { return end(s); }

static CUresult await_captured_stream(stage *s) {
  PREPARE(begin(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  return ended(s, s->gpu.cuStreamSynchronize(s->stream));
}

static CUresult query_captured_stream(stage *s) {
  PREPARE(begin(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  return ended(s, s->gpu.cuStreamQuery(s->stream));
}

static CUresult query_captured_event(stage *s) {
  PREPARE(begin(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  (void)s->gpu.cuEventRecord(s->event, s->stream);
  return ended(s, s->gpu.cuEventQuery(s->event));
}

static CUresult wait_for_outside_in_capture(stage *s) {
  PREPARE(s->gpu.cuEventRecord(s->event, s->other));
  PREPARE(begin(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  return ended(s, s->gpu.cuStreamWaitEvent(s->stream, s->event, 0));
}

/* A blocking stream is captured: the legacy stream would have to wait for it. */
static CUresult use_legacy_in_capture(stage *s) {
  CUstream stream = NULL;
  CUgraph graph = NULL;
  CUresult code;
  PREPARE(s->gpu.cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  code = s->gpu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (code == CUDA_SUCCESS) code = s->gpu.cuEventRecord(s->event, NULL);
  (void)s->gpu.cuStreamEndCapture(stream, &graph);
  if (graph) (void)s->gpu.cuGraphDestroy(graph);
  (void)s->gpu.cuStreamDestroy(stream);
  return code;
}

static CUresult exchange_mode_7(stage *s) {
  CUstreamCaptureMode mode = (CUstreamCaptureMode)7;
  return s->gpu.cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- Rows that end their process ------------------------------------------------------------- */

static CUresult create_before_init(stage *s) {
  s->granule = CHUNK;
  return create_bytes(s, s->granule);
}

static CUresult reserve_before_init(stage *s) { return reserve(s, CHUNK, 0, 0); }

static CUresult in_forked_child(stage *s, CUresult (*call)(stage *s)) {
  int *answer =
      (int *)mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child;
  if ((void *)answer == MAP_FAILED) return CUDA_ERROR_UNKNOWN;
  *answer = CUDA_ERROR_UNKNOWN;
  child = fork();
  if (child == 0) {
    *answer = (int)call(s);
    _exit(0);
  }
  if (child > 0) (void)waitpid(child, NULL, 0);
  return (CUresult)*answer;
}

static CUresult init_again(stage *s) { return s->gpu.cuInit(0); }
static CUresult create_one(stage *s) { return create_bytes(s, s->granule); }
static CUresult reserve_one(stage *s) { return reserve(s, s->granule, 0, 0); }
static CUresult create_forked(stage *s) { return in_forked_child(s, create_one); }
static CUresult reserve_forked(stage *s) { return in_forked_child(s, reserve_one); }
static CUresult init_forked(stage *s) { return in_forked_child(s, init_again); }

static CUresult unmap_running(stage *s) {
  PREPARE(map_and_grant(s, 0, s->wide, 2));
  PREPARE(gpu_spin(&s->gpu, &s->kernels, s->stream, 50 * MS_NS));
  PREPARE(gpu_fill(&s->gpu, &s->kernels, s->stream, s->base, 2 * s->granule / 4, 1));
  PREPARE(unmap(s, 0, 2));
  return s->gpu.cuStreamSynchronize(s->stream);
}

static CUresult fault(stage *s) {
  PREPARE(gpu_fill(&s->gpu, &s->kernels, s->stream, 0, 16, 1));
  return s->gpu.cuStreamSynchronize(s->stream);
}

static CUresult query_after_fault(stage *s) {
  PREPARE(s->gpu.cuEventRecord(s->event, s->other));
  (void)fault(s);
  return s->gpu.cuEventQuery(s->event);
}

static CUresult info_after_fault(stage *s) {
  size_t free_bytes, total_bytes;
  (void)fault(s);
  return s->gpu.cuMemGetInfo(&free_bytes, &total_bytes);
}

static CUresult memory_after_fault(stage *s) {
  (void)fault(s);
  return drive_memory(s);
}

#endif
