/* Section vmm: what each driver call of the lake costs, and cuMemAlloc for comparison. Each call is
   timed by itself, cheap ones in rounds of VMM_BATCH; the figures are the median and the mean.
   `first` is the very first call, before the warm-up. */
#if !defined(GPU_VMM_H)
#define GPU_VMM_H

#include "gpu_bench.h"

#define VMM_BATCH 64
#define VMM_HANDLES_MAX 64

typedef struct vmm {
  bench *b;
  table rows;
  CUmemAllocationProp prop;
  CUmemAccessDesc access;
  size_t bytes_max; /* the most physical memory that a measurement may hold */
  samples first_of_two, second_of_two;
} vmm;

/* Times are in us. model_ns is what the mock charges for the call; NAN: the mock has no such
   call. */
static void vmm_row(vmm *v, const char *call, const char *form, size_t bytes, size_t handles,
                    samples *s, double model_ns) {
  json *j = v->b->json;
  const double mean = samples_mean(s), middle = median(s->items, s->count);
  table_cell(&v->rows, "%s", call);
  table_cell(&v->rows, "%s", form);
  table_real(&v->rows, 0, bytes ? mib(bytes) : NAN);
  table_real(&v->rows, 0, handles ? (double)handles : NAN);
  table_real(&v->rows, 2, s->first);
  table_real(&v->rows, 2, middle);
  table_real(&v->rows, 2, mean);
  table_real(&v->rows, 2, model_ns / 1e3);
  json_begin(j, NULL, '{');
  json_text(j, "call", call);
  json_text(j, "form", form);
  json_count(j, "bytes", bytes);
  json_count(j, "handles", handles);
  json_count(j, "samples", s->count);
  json_real(j, "first_us", s->first);
  json_real(j, "median_us", middle);
  json_real(j, "mean_us", mean);
  json_real(j, "model_us", model_ns / 1e3);
  json_end(j, '}');
}

/* Adds the time of the call in us, divided by the number of handles. */
#define VMM_TIME(into, handles, call)                                   \
  do {                                                                  \
    const double start_ns = now_ns();                                   \
    const CUresult code = gpu->call;                                    \
    samples_add(into, (now_ns() - start_ns) / 1e3 / (double)(handles)); \
    gpu_must(code, #call);                                              \
  } while (0)

static void vmm_clear(vmm *v) {
  samples_clear(&v->first_of_two);
  samples_clear(&v->second_of_two);
}

static size_t vmm_count(const vmm *v, size_t bytes) {
  const size_t count = v->bytes_max / bytes;
  return count < 1 ? 1 : count < VMM_HANDLES_MAX ? count : VMM_HANDLES_MAX;
}

/* Creates `count` handles one after the other, then releases all. */
static void vmm_measure_create(vmm *v, size_t bytes) {
  const gpu_driver *gpu = &v->b->gpu;
  const size_t count = vmm_count(v, bytes), size_mib = bytes / MIB;
  CUmemGenericAllocationHandle handles[VMM_HANDLES_MAX];
  size_t i, round;
  vmm_clear(v);
  for (round = 0; round <= 4 * v->b->repeat; round++) {
    for (i = 0; i < count; i++)
      VMM_TIME(&v->first_of_two, 1, cuMemCreate(&handles[i], bytes, &v->prop, 0));
    for (i = 0; i < count; i++) VMM_TIME(&v->second_of_two, 1, cuMemRelease(handles[i]));
  }
  vmm_row(
      v, "cuMemCreate", "", bytes, count, &v->first_of_two,
      gmlk_mock_cost_table[0].create +
          (double)(size_mib > 512 ? (size_mib - 512) * gmlk_mock_cost_table[0].create_per_mib : 0));
  vmm_row(v, "cuMemRelease", "", bytes, count, &v->second_of_two,
          gmlk_mock_cost_table[0].release +
              (double)(size_mib * gmlk_mock_cost_table[0].release_per_gib / 1024));
}

static void vmm_measure_alloc(vmm *v, size_t bytes) {
  const gpu_driver *gpu = &v->b->gpu;
  const size_t count = vmm_count(v, bytes) / 4 + 1;
  CUdeviceptr blocks[VMM_HANDLES_MAX];
  size_t i, round;
  vmm_clear(v);
  for (round = 0; round <= 4 * v->b->repeat; round++) {
    for (i = 0; i < count; i++) VMM_TIME(&v->first_of_two, 1, cuMemAlloc(&blocks[i], bytes));
    for (i = 0; i < count; i++) VMM_TIME(&v->second_of_two, 1, cuMemFree(blocks[i]));
  }
  vmm_row(v, "cuMemAlloc", "", bytes, 0, &v->first_of_two, NAN);
  vmm_row(v, "cuMemFree", "", bytes, 0, &v->second_of_two, NAN);
}

/* Returns 0 if the driver has no range of that size. */
static int vmm_measure_reserve(vmm *v, size_t bytes) {
  const gpu_driver *gpu = &v->b->gpu;
  CUdeviceptr address;
  size_t round;
  vmm_clear(v);
  if (gpu->cuMemAddressReserve(&address, bytes, 0, 0, 0) != CUDA_SUCCESS) return 0;
  GPU(cuMemAddressFree(address, bytes));
  for (round = 0; round <= 8 * v->b->repeat; round++) {
    VMM_TIME(&v->first_of_two, 1, cuMemAddressReserve(&address, bytes, 0, 0, 0));
    VMM_TIME(&v->second_of_two, 1, cuMemAddressFree(address, bytes));
  }
  vmm_row(v, "cuMemAddressReserve", "", bytes, 0, &v->first_of_two,
          gmlk_mock_cost_table[0].reserve);
  vmm_row(v, "cuMemAddressFree", "", bytes, 0, &v->second_of_two,
          gmlk_mock_cost_table[0].unreserve);
  return 1;
}

typedef struct vmm_range {
  size_t bytes, count; /* size of each handle, number of handles */
  CUdeviceptr address;
  CUmemGenericAllocationHandle handles[VMM_HANDLES_MAX];
} vmm_range;

static void vmm_map_all(vmm *v, const vmm_range *r, samples *map) {
  const gpu_driver *gpu = &v->b->gpu;
  size_t i;
  for (i = 0; i < r->count; i++)
    VMM_TIME(map, 1, cuMemMap(r->address + i * r->bytes, r->bytes, 0, r->handles[i], 0));
}

/* Measures set access and unmap of the range in one call, or one call for each handle; us per
   handle. */
static void vmm_measure_range(vmm *v, const vmm_range *r, int whole) {
  static samples map;
  const gpu_driver *gpu = &v->b->gpu;
  const size_t step = whole ? r->count : 1, bytes = r->bytes * step;
  const char *form = whole ? "one call for all" : "a call for each";
  size_t i, round;
  vmm_clear(v);
  samples_clear(&map);
  for (round = 0; round <= 8 * v->b->repeat; round++) {
    vmm_map_all(v, r, &map);
    for (i = 0; i < r->count; i += step)
      VMM_TIME(&v->first_of_two, step,
               cuMemSetAccess(r->address + i * r->bytes, bytes, &v->access, 1));
    for (i = 0; i < r->count; i += step)
      VMM_TIME(&v->second_of_two, step, cuMemUnmap(r->address + i * r->bytes, bytes));
  }
  if (whole) vmm_row(v, "cuMemMap", "", r->bytes, r->count, &map, gmlk_mock_cost_table[0].map);
  vmm_row(v, "cuMemSetAccess", form, r->bytes, r->count, &v->first_of_two,
          gmlk_mock_cost_table[0].set_access);
  vmm_row(v, "cuMemUnmap", form, r->bytes, r->count, &v->second_of_two,
          gmlk_mock_cost_table[0].unmap);
}

static void vmm_measure_mapping(vmm *v, size_t bytes, size_t count) {
  const gpu_driver *gpu = &v->b->gpu;
  vmm_range r;
  size_t i;
  if (bytes * count > v->bytes_max) return;
  r.bytes = bytes;
  r.count = count;
  GPU(cuMemAddressReserve(&r.address, bytes * count, 0, 0, 0));
  for (i = 0; i < count; i++) GPU(cuMemCreate(&r.handles[i], bytes, &v->prop, 0));
  vmm_measure_range(v, &r, 1);
  if (count > 1) vmm_measure_range(v, &r, 0);
  for (i = 0; i < count; i++) GPU(cuMemRelease(r.handles[i]));
  GPU(cuMemAddressFree(r.address, bytes * count));
}

/* ---- While copies are under way ---- */

#define VMM_COPY (16 * MIB)
#define VMM_COPIES 4u

typedef struct vmm_copies {
  CUstream stream;
  CUdeviceptr device;
  void *host;
} vmm_copies;

typedef enum vmm_way { VMM_IN, VMM_OUT, VMM_OUT_WITH_GAPS } vmm_way;

/* A gap is a kernel between two copies, which writes what the next one overwrites. */
static void vmm_begin_copies(const gpu_driver *gpu, const vmm_copies *c, vmm_way way) {
  unsigned i;
  for (i = 0; i < VMM_COPIES; i++) {
    if (i != 0 && way == VMM_OUT_WITH_GAPS)
      GPU(cuMemsetD32Async((CUdeviceptr)(uintptr_t)c->host, 0, 1, c->stream));
    if (way != VMM_IN) {
      GPU(cuMemcpyDtoHAsync(c->host, c->device, VMM_COPY, c->stream));
    } else {
      GPU(cuMemcpyHtoDAsync(c->device, c->host, VMM_COPY, c->stream));
    }
  }
}

/* Maps and unmaps one handle behind the begin of copies between the device and pinned memory. */
static void vmm_measure_busy(vmm *v, const vmm_copies *c, vmm_way way) {
  const gpu_driver *gpu = &v->b->gpu;
  static const char *const forms[] = {"during copies in", "during copies out",
                                      "during copies out, gaps"};
  const char *form = forms[way];
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  size_t round;
  vmm_clear(v);
  GPU(cuMemAddressReserve(&address, VMM_COPY, 0, 0, 0));
  GPU(cuMemCreate(&handle, VMM_COPY, &v->prop, 0));
  for (round = 0; round <= 8 * v->b->repeat; round++) {
    GPU(cuMemMap(address, VMM_COPY, 0, handle, 0));
    vmm_begin_copies(gpu, c, way);
    VMM_TIME(&v->first_of_two, 1, cuMemSetAccess(address, VMM_COPY, &v->access, 1));
    GPU(cuStreamSynchronize(c->stream));
    vmm_begin_copies(gpu, c, way);
    VMM_TIME(&v->second_of_two, 1, cuMemUnmap(address, VMM_COPY));
    GPU(cuStreamSynchronize(c->stream));
  }
  GPU(cuMemRelease(handle));
  GPU(cuMemAddressFree(address, VMM_COPY));
  vmm_row(v, "cuMemSetAccess", form, VMM_COPY, 1, &v->first_of_two,
          gmlk_mock_cost_table[0].set_access);
  vmm_row(v, "cuMemUnmap", form, VMM_COPY, 1, &v->second_of_two, gmlk_mock_cost_table[0].unmap);
}

static void vmm_measure_during_copies(vmm *v) {
  const gpu_driver *gpu = &v->b->gpu;
  vmm_copies c;
  GPU(cuStreamCreate(&c.stream, CU_STREAM_NON_BLOCKING));
  GPU(cuMemAlloc(&c.device, VMM_COPY));
  GPU(cuMemHostAlloc(&c.host, VMM_COPY, 0));
  vmm_measure_busy(v, &c, VMM_OUT);
  vmm_measure_busy(v, &c, VMM_OUT_WITH_GAPS);
  vmm_measure_busy(v, &c, VMM_IN);
  GPU(cuMemFreeHost(c.host));
  GPU(cuMemFree(c.device));
  GPU(cuStreamDestroy(c.stream));
}

/* ---- Cheap calls ---- */

typedef struct vmm_cheap {
  const gpu_driver *gpu;
  CUstream stream;
  CUevent events[VMM_BATCH];
} vmm_cheap;

static CUresult vmm_event_create(vmm_cheap *c, size_t i) {
  return c->gpu->cuEventCreate(&c->events[i], CU_EVENT_DISABLE_TIMING);
}

static CUresult vmm_event_record(vmm_cheap *c, size_t i) {
  return c->gpu->cuEventRecord(c->events[i], c->stream);
}

static CUresult vmm_event_query(vmm_cheap *c, size_t i) {
  return c->gpu->cuEventQuery(c->events[i]);
}

static CUresult vmm_event_wait(vmm_cheap *c, size_t i) {
  return c->gpu->cuEventSynchronize(c->events[i]);
}

static CUresult vmm_stream_wait(vmm_cheap *c, size_t i) {
  return c->gpu->cuStreamWaitEvent(c->stream, c->events[i], 0);
}

static CUresult vmm_event_destroy(vmm_cheap *c, size_t i) {
  return c->gpu->cuEventDestroy(c->events[i]);
}

static CUresult vmm_memory_info(vmm_cheap *c, size_t i) {
  size_t free_bytes, total_bytes;
  (void)i;
  return c->gpu->cuMemGetInfo(&free_bytes, &total_bytes);
}

static CUresult vmm_capture_exchange(vmm_cheap *c, size_t i) {
  CUstreamCaptureMode mode = i % 2 ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_RELAXED;
  return c->gpu->cuThreadExchangeStreamCaptureMode(&mode);
}

static CUresult vmm_get_current(vmm_cheap *c, size_t i) {
  CUcontext context;
  (void)i;
  return c->gpu->cuCtxGetCurrent(&context);
}

/* The calls for events, in this order: create, record, query when complete, destroy. */
static const struct {
  const char *name, *form;
  CUresult (*call)(vmm_cheap *c, size_t i);
  const uint32_t *model_ns; /* NULL: none */
} vmm_cheap_calls[] = {
    {"cuEventCreate", "", vmm_event_create, &gmlk_mock_cost_table[0].event_create},
    {"cuEventRecord", "", vmm_event_record, &gmlk_mock_cost_table[0].event_record},
    {"cuEventQuery", "complete", vmm_event_query, &gmlk_mock_cost_table[0].event_query},
    {"cuEventSynchronize", "complete", vmm_event_wait, &gmlk_mock_cost_table[0].event_wait},
    {"cuStreamWaitEvent", "complete", vmm_stream_wait, &gmlk_mock_cost_table[0].stream_wait},
    {"cuEventDestroy", "", vmm_event_destroy, &gmlk_mock_cost_table[0].event_destroy},
    {"cuMemGetInfo", "", vmm_memory_info, &gmlk_mock_cost_table[0].memory_info},
    {"cuThreadExchangeStreamCaptureMode", "", vmm_capture_exchange,
     &gmlk_mock_cost_table[0].capture_exchange},
    {"cuCtxGetCurrent", "", vmm_get_current, NULL}};

#define VMM_CHEAP_COUNT (sizeof vmm_cheap_calls / sizeof vmm_cheap_calls[0])

static void vmm_measure_cheap(vmm *v) {
  static samples times[VMM_CHEAP_COUNT];
  const gpu_driver *gpu = &v->b->gpu;
  vmm_cheap c;
  size_t row, i, round;
  memset(&c, 0, sizeof c);
  c.gpu = gpu;
  GPU(cuStreamCreate(&c.stream, CU_STREAM_NON_BLOCKING));
  for (row = 0; row < VMM_CHEAP_COUNT; row++) samples_clear(&times[row]);
  for (round = 0; round <= 16 * v->b->repeat; round++) {
    for (row = 0; row < VMM_CHEAP_COUNT; row++) {
      const double start_ns = now_ns();
      CUresult code = CUDA_SUCCESS;
      for (i = 0; i < VMM_BATCH && code == CUDA_SUCCESS; i++)
        code = vmm_cheap_calls[row].call(&c, i);
      samples_add(&times[row], (now_ns() - start_ns) / 1e3 / VMM_BATCH);
      gpu_must(code, vmm_cheap_calls[row].name);
      GPU(cuStreamSynchronize(c.stream));
    }
  }
  for (row = 0; row < VMM_CHEAP_COUNT; row++) {
    const uint32_t *model_ns = vmm_cheap_calls[row].model_ns;
    vmm_row(v, vmm_cheap_calls[row].name, vmm_cheap_calls[row].form, 0, 0, &times[row],
            model_ns ? (double)*model_ns : NAN);
  }
}

static void run_vmm(bench *b) {
  static const size_t sizes[] = {2, 8, 16, 32, 128, 512, 2048}, alloc_sizes[] = {2, 32, 512, 2048};
  static const size_t range_sizes[] = {2, 16, 32, 128, 512, 2048}, counts[] = {1, 8, 64};
  static const uint64_t reserve_mib[] = {2, 64, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  static vmm v;
  int can_rdma = 0;
  size_t i, k;
  (void)b->gpu.cuDeviceGetAttribute(
      &can_rdma, (CUdevice_attribute)GMLK_CUDA_ATTRIBUTE_RDMA_WITH_VMM, b->device);
  memset(&v, 0, sizeof v);
  v.b = b;
  v.prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  v.prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  v.prop.location.id = b->device;
  v.prop.allocFlags.gpuDirectRDMACapable = can_rdma > 0; /* as the lake does */
  v.access.location = v.prop.location;
  v.access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  v.bytes_max = gpu_free_bytes(&b->gpu) / 8;
  if (v.bytes_max > 8192 * MIB) v.bytes_max = 8192 * MIB;
  table_open(&v.rows, b->is_markdown, "Driver calls, us (of a call about many handles: per handle)",
             "<call|<form|MiB|handles|first|median|mean|model");
  json_begin(b->json, "vmm", '[');
  show_progress("vmm", "handles");
  for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (sizes[i] * MIB <= v.bytes_max) vmm_measure_create(&v, sizes[i] * MIB);
  for (i = 0; i < sizeof range_sizes / sizeof range_sizes[0]; i++)
    for (k = 0; k < (range_sizes[i] <= 32 ? 3u : 1u); k++)
      vmm_measure_mapping(&v, range_sizes[i] * MIB, counts[k]);
  vmm_measure_during_copies(&v);
  for (i = 0; i < sizeof reserve_mib / sizeof reserve_mib[0]; i++)
    if (!vmm_measure_reserve(&v, (size_t)reserve_mib[i] * MIB)) break;
  for (i = 0; i < sizeof alloc_sizes / sizeof alloc_sizes[0]; i++)
    if (alloc_sizes[i] * MIB <= v.bytes_max / 4) vmm_measure_alloc(&v, alloc_sizes[i] * MIB);
  vmm_measure_cheap(&v);
  clear_progress();
  json_end(b->json, ']');
  table_close(&v.rows);
}

#endif
