/* Shows a lake to NVIDIA's tools. It is for copying into your program:

     gmlake_cuda_create(0, &backend);
     desc.backend = backend;
     gmlake_nvtx *nvtx = gmlake_nvtx_attach("gmlake", &desc);   NULL: host memory ran out
     ... gmlake_create, and the program ...
     gmlake_destroy(lake);
     gmlake_nvtx_detach(nvtx);
     gmlake_cuda_destroy(backend);

   It needs nvtx3/nvToolsExtMem.h of the CUDA toolkit, and no library: without a tool a call costs a
   test of a pointer.

   Nsight Systems shows, in a domain of that name, a range around each call of the driver, with its
   name and bytes, and a mark for each step of the lake that takes driver work or a wait, with the
   reason.

   It also tells the tools each live block, as a region of a heap, so that compute-sanitizer could
   find an access behind a block's end, or to a block that was freed, though the memory is mapped:

     compute-sanitizer --tool memcheck --nvtx yes --force-blocking-launches --report-api-errors no \
       PROGRAM

   The sanitizer of CUDA 13.0 does not take them, and finds nothing: it answers nvtxMemHeapRegister
   for mapped memory with "One or more of the parameters is invalid" (H200, driver 580). `sh
   tests/gpu/sanitizer.sh` says whether yours takes them. If it does not, let the lake run in memory
   that is not mapped, to look for such accesses:

     static uint64_t take(void *user, size_t bytes) {  give calls cuMemFree; bytes: 4 GiB, say
       CUdeviceptr address;
       return cuMemAlloc(&address, bytes) ? 0 : (uint64_t)address;
     }
     gmlake_nvtx_memory memory = {take, give, NULL, bytes};
     gmlake_nvtx *nvtx = gmlake_nvtx_attach_plain("gmlake", &desc, &memory);

   The program runs as before, but nothing is stitched, nothing can be exported, and `bytes` are all
   the memory that there is. The lake, the first growing buffer and each pool take so much at once.
   On an H200 the sanitizer then found a kernel that wrote behind a block's end, into its neighbour,
   and into a block that was freed.

   Launches have to block: a free on the host comes before the kernels that are still queued, and
   the sanitizer takes the block for gone at once, also one that gmlake_record_stream named streams
   for. The lake's backend tries what the device refuses when it is created, so errors of the
   driver's calls are not to be reported. Each mapping of a chunk is a heap, each part of a block or
   of a buffer's memory that lies in one is a region of that heap. A region is as long as was asked
   for. Sleeping pools, and memory of other processes, were not tried.

   It is called with locks of the lake held and costs, with a tool, what the tool takes. Use one for
   each lake. Its functions may be called from any thread. */
#if !defined(GMLAKE_NVTX_H)
#define GMLAKE_NVTX_H

#include "gmlake.h"

#include <nvtx3/nvToolsExtMem.h>

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gmlake_nvtx_heap { /* a mapping */
  uint64_t address;
  size_t bytes;
  int is_whole; /* it is a region: memory of a buffer */
  nvtxMemHeapHandle_t handle;
} gmlake_nvtx_heap;

/* Memory that is not mapped: see gmlake_nvtx_attach_plain. */
typedef struct gmlake_nvtx_memory {
  uint64_t (*take)(void *user, size_t bytes); /* as cuMemAlloc, aligned to 256; 0: there is none */
  void (*give)(void *user, uint64_t address); /* what take returned: as cuMemFree */
  void *user;
  size_t bytes; /* what the lake may hold */
} gmlake_nvtx_memory;

typedef struct gmlake_nvtx_space { /* what `take` returned: a heap */
  uint64_t taken, address;         /* of it, and of what the lake has of it */
  nvtxMemHeapHandle_t handle;
} gmlake_nvtx_space;

#define GMLAKE_NVTX_SPACES 64 /* lakes, buffers' and pools': more are refused */

typedef struct gmlake_nvtx {
  gmlake_backend table; /* counts nothing: it puts ranges around the inner one's calls */
  const gmlake_backend *inner;
  gmlake_observer next; /* what the description had: it is told of every step, too */
  nvtxDomainHandle_t domain;
  pthread_mutex_t mutex;   /* the lake maps with its books unlocked: it guards what follows */
  gmlake_nvtx_heap *heaps; /* by address */
  size_t count, capacity;
  size_t missed;             /* mappings that are no heap, because host memory ran out */
  gmlake_nvtx_memory memory; /* take NULL: memory is mapped */
  gmlake_nvtx_space spaces[GMLAKE_NVTX_SPACES]; /* by the order of reservations; taken 0: none */
  size_t created_bytes, create_count, reserve_count;
} gmlake_nvtx;

/* ---- Private -------------------------------------------------------------------------------- */

static inline void gmlake_nvtx_attributes(nvtxEventAttributes_t *out, const char *name,
                                          size_t bytes) {
  memset(out, 0, sizeof *out);
  out->version = NVTX_VERSION;
  out->size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  out->messageType = NVTX_MESSAGE_TYPE_ASCII;
  out->message.ascii = name;
  out->payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  out->payload.ullValue = bytes;
}

static inline void gmlake_nvtx_push(const gmlake_nvtx *n, const char *name, size_t bytes) {
  nvtxEventAttributes_t event;
  gmlake_nvtx_attributes(&event, name, bytes);
  (void)nvtxDomainRangePushEx(n->domain, &event);
}

/* ---- Heaps and regions ---- */

/* The first heap that ends behind the address. */
static inline size_t gmlake_nvtx_find(const gmlake_nvtx *n, uint64_t address) {
  size_t low = 0, high = n->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (n->heaps[middle].address + n->heaps[middle].bytes <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static inline nvtxMemHeapHandle_t gmlake_nvtx_register(const gmlake_nvtx *n, uint64_t address,
                                                       size_t bytes) {
  nvtxMemVirtualRangeDesc_t range;
  nvtxMemHeapDesc_t heap;
  memset(&range, 0, sizeof range);
  memset(&heap, 0, sizeof heap);
  range.size = bytes;
  range.ptr = (const void *)(uintptr_t)address;
  heap.extCompatID = NVTX_EXT_COMPATID_MEM;
  heap.structSize = sizeof heap;
  heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
  heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  heap.typeSpecificDescSize = sizeof range;
  heap.typeSpecificDesc = &range;
  return nvtxMemHeapRegister(n->domain, &heap);
}

/* `space` NULL: the mapping is a heap; else it lies in that one. */
static inline void gmlake_nvtx_heap_begin(gmlake_nvtx *n, uint64_t address, size_t bytes,
                                          const gmlake_nvtx_space *space) {
  const size_t capacity = n->capacity ? 2 * n->capacity : 64, at = gmlake_nvtx_find(n, address);
  if (n->count == n->capacity) {
    gmlake_nvtx_heap *grown =
        (gmlake_nvtx_heap *)realloc(n->heaps, capacity * sizeof(gmlake_nvtx_heap));
    if (!grown) {
      n->missed++;
      return;
    }
    n->heaps = grown;
    n->capacity = capacity;
  }
  memmove(n->heaps + at + 1, n->heaps + at, (n->count - at) * sizeof *n->heaps);
  n->heaps[at].address = address;
  n->heaps[at].bytes = bytes;
  n->heaps[at].is_whole = 0;
  n->heaps[at].handle = space ? space->handle : gmlake_nvtx_register(n, address, bytes);
  n->count++;
}

/* One or more mappings are gone. */
static inline void gmlake_nvtx_heaps_end(gmlake_nvtx *n, uint64_t address, size_t bytes) {
  const size_t first = gmlake_nvtx_find(n, address);
  size_t i = first;
  for (; i < n->count && n->heaps[i].address < address + bytes; i++)
    if (!n->memory.take) nvtxMemHeapUnregister(n->domain, n->heaps[i].handle);
  memmove(n->heaps + first, n->heaps + i, (n->count - i) * sizeof *n->heaps);
  n->count -= i - first;
}

static inline void gmlake_nvtx_region(const gmlake_nvtx *n, nvtxMemHeapHandle_t heap,
                                      uint64_t address, size_t bytes) {
  nvtxMemRegionHandle_t handle;
  nvtxMemVirtualRangeDesc_t range;
  nvtxMemRegionsRegisterBatch_t batch;
  memset(&range, 0, sizeof range);
  memset(&batch, 0, sizeof batch);
  range.size = bytes;
  range.ptr = (const void *)(uintptr_t)address;
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  batch.heap = heap;
  batch.regionCount = 1;
  batch.regionDescElementSize = sizeof range;
  batch.regionDescElements = &range;
  batch.regionHandleElementsOut = &handle; /* named by its pointer below */
  nvtxMemRegionsRegister(n->domain, &batch);
}

static inline void gmlake_nvtx_region_end(const gmlake_nvtx *n, uint64_t address) {
  nvtxMemRegionRef_t ref;
  nvtxMemRegionsUnregisterBatch_t batch;
  memset(&batch, 0, sizeof batch);
  ref.pointer = (const void *)(uintptr_t)address;
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  batch.refCount = 1;
  batch.refElementSize = sizeof ref;
  batch.refElements = &ref;
  nvtxMemRegionsUnregister(n->domain, &batch);
}

/* A block is live from now on, or no longer: the part of it in each heap. */
static inline void gmlake_nvtx_block(gmlake_nvtx *n, const gmlake_step *step, int is_live) {
  const uint64_t end = step->address + step->asked_bytes;
  size_t i;
  (void)pthread_mutex_lock(&n->mutex);
  for (i = gmlake_nvtx_find(n, step->address); i < n->count && n->heaps[i].address < end; i++) {
    const gmlake_nvtx_heap *h = &n->heaps[i];
    const uint64_t from = h->address > step->address ? h->address : step->address;
    const uint64_t to = h->address + h->bytes < end ? h->address + h->bytes : end;
    if (is_live)
      gmlake_nvtx_region(n, h->handle, from, (size_t)(to - from));
    else
      gmlake_nvtx_region_end(n, from);
  }
  (void)pthread_mutex_unlock(&n->mutex);
}

/* A range of a buffer has memory, or none. Parts of it may have had that before. Each of its chunks
   is a mapping of its own. */
static inline void gmlake_nvtx_range(gmlake_nvtx *n, const gmlake_step *step, int is_live) {
  const uint64_t end = step->address + step->bytes;
  size_t i;
  (void)pthread_mutex_lock(&n->mutex);
  for (i = gmlake_nvtx_find(n, step->address); i < n->count && n->heaps[i].address < end; i++) {
    gmlake_nvtx_heap *h = &n->heaps[i];
    if (h->is_whole == is_live) continue;
    h->is_whole = is_live;
    if (is_live)
      gmlake_nvtx_region(n, h->handle, h->address, h->bytes);
    else
      gmlake_nvtx_region_end(n, h->address);
  }
  (void)pthread_mutex_unlock(&n->mutex);
}

static inline void gmlake_nvtx_observe(void *user, const gmlake_step *step) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  nvtxEventAttributes_t event;
  switch (step->kind) {
  case GMLAKE_STEP_ALLOC:
    if (step->state != 5) gmlake_nvtx_block(n, step, 1);
    break;
  case GMLAKE_STEP_COMMIT:
    gmlake_nvtx_range(n, step, 1);
    break;
  case GMLAKE_STEP_FREE:
    gmlake_nvtx_block(n, step, 0);
    break;
  case GMLAKE_STEP_DISCARD:
    gmlake_nvtx_range(n, step, 0);
    break;
  case GMLAKE_STEP_STITCH:
  case GMLAKE_STEP_EVICT:
  case GMLAKE_STEP_GROW:
  case GMLAKE_STEP_TRIM:
  case GMLAKE_STEP_WAIT:
    gmlake_nvtx_attributes(&event, step->reason, step->bytes);
    nvtxDomainMarkEx(n->domain, &event);
    break;
  default:
    break;
  }
  if (n->next.fn) n->next.fn(n->next.user, step);
}

/* ---- The table ---- */

/* A function of the table, with a range around the inner one. */
#define GMLAKE_NVTX_CALL(name, bytes, parameters, arguments)  \
  static inline gmlake_result gmlake_nvtx_##name parameters { \
    gmlake_nvtx *const n = (gmlake_nvtx *)user;               \
    gmlake_result result;                                     \
    gmlake_nvtx_push(n, #name, bytes);                        \
    result = n->inner->name arguments;                        \
    (void)nvtxDomainRangePop(n->domain);                      \
    return result;                                            \
  }
/* The same without a range: it takes too short a time, or is called too often. */
#define GMLAKE_NVTX_PASS(name, parameters, arguments)         \
  static inline gmlake_result gmlake_nvtx_##name parameters { \
    const gmlake_nvtx *const n = (const gmlake_nvtx *)user;   \
    return n->inner->name arguments;                          \
  }

GMLAKE_NVTX_PASS(get_properties, (void *user, gmlake_device_properties *a, int *code),
                 (n->inner->user, a, code))
GMLAKE_NVTX_CALL(get_memory_info, 0, (void *user, size_t *a, size_t *b, int *code),
                 (n->inner->user, a, b, code))
GMLAKE_NVTX_CALL(reserve, a, (void *user, size_t a, size_t b, uint64_t *c, int *code),
                 (n->inner->user, a, b, c, code))
GMLAKE_NVTX_CALL(unreserve, b, (void *user, uint64_t a, size_t b, int *code),
                 (n->inner->user, a, b, code))
GMLAKE_NVTX_CALL(create, a, (void *user, size_t a, unsigned b, uint64_t *c, int *code),
                 (n->inner->user, a, b, c, code))
GMLAKE_NVTX_CALL(release, 0, (void *user, uint64_t a, int *code), (n->inner->user, a, code))
GMLAKE_NVTX_CALL(set_access, b,
                 (void *user, uint64_t a, size_t b, const int *c, size_t d, int *code),
                 (n->inner->user, a, b, c, d, code))
GMLAKE_NVTX_PASS(event_create, (void *user, void **a, int *code), (n->inner->user, a, code))
GMLAKE_NVTX_PASS(event_destroy, (void *user, void *a, int *code), (n->inner->user, a, code))
GMLAKE_NVTX_PASS(event_record, (void *user, void *a, gmlake_stream b, int *code),
                 (n->inner->user, a, b, code))
GMLAKE_NVTX_PASS(event_query, (void *user, void *a, int *b, int *code),
                 (n->inner->user, a, b, code))
GMLAKE_NVTX_CALL(event_wait, 0, (void *user, void *a, int *code), (n->inner->user, a, code))
GMLAKE_NVTX_CALL(event_wait_any, 0,
                 (void *user, void *const *a, unsigned b, unsigned *c, int *code),
                 (n->inner->user, a, b, c, code))
GMLAKE_NVTX_CALL(stream_wait, 0, (void *user, gmlake_stream a, void *b, int *code),
                 (n->inner->user, a, b, code))
GMLAKE_NVTX_PASS(capture_exchange, (void *user, int *a, int *code), (n->inner->user, a, code))
GMLAKE_NVTX_PASS(stream_id, (void *user, gmlake_stream a, uint64_t *b, int *code),
                 (n->inner->user, a, b, code))
GMLAKE_NVTX_PASS(is_capturing, (void *user, gmlake_stream a, int *b, int *code),
                 (n->inner->user, a, b, code))
GMLAKE_NVTX_CALL(device_wait, 0, (void *user, int *code), (n->inner->user, code))
GMLAKE_NVTX_CALL(copy, c, (void *user, uint64_t a, void *b, size_t c, int d, int *code),
                 (n->inner->user, a, b, c, d, code))
GMLAKE_NVTX_CALL(host_alloc, a, (void *user, size_t a, void **b, int *code),
                 (n->inner->user, a, b, code))
GMLAKE_NVTX_CALL(host_free, 0, (void *user, void *a, int *code), (n->inner->user, a, code))

#undef GMLAKE_NVTX_CALL
#undef GMLAKE_NVTX_PASS

static inline uint64_t gmlake_nvtx_clock_ns(void *user) {
  const gmlake_nvtx *const n = (const gmlake_nvtx *)user;
  return n->inner->clock_ns(n->inner->user);
}

static inline gmlake_result gmlake_nvtx_map(void *user, uint64_t address, size_t bytes,
                                            uint64_t handle, int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  gmlake_result result;
  gmlake_nvtx_push(n, "map", bytes);
  result = n->inner->map(n->inner->user, address, bytes, handle, code);
  (void)nvtxDomainRangePop(n->domain);
  if (result) return result;
  (void)pthread_mutex_lock(&n->mutex);
  gmlake_nvtx_heap_begin(n, address, bytes, NULL);
  (void)pthread_mutex_unlock(&n->mutex);
  return result;
}

static inline gmlake_result gmlake_nvtx_unmap(void *user, uint64_t address, size_t bytes,
                                              int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  gmlake_result result;
  (void)pthread_mutex_lock(&n->mutex);
  gmlake_nvtx_heaps_end(n, address, bytes);
  (void)pthread_mutex_unlock(&n->mutex);
  gmlake_nvtx_push(n, "unmap", bytes);
  result = n->inner->unmap(n->inner->user, address, bytes, code);
  (void)nvtxDomainRangePop(n->domain);
  return result;
}

/* Whether the inner table has the entry, which may be missing. */
#define GMLAKE_NVTX_HAS(inner, name) \
  ((inner)->struct_bytes >= offsetof(gmlake_backend, name) + sizeof((inner)->name) && (inner)->name)

static inline void gmlake_nvtx_fill(gmlake_nvtx *n) {
  gmlake_backend *const t = &n->table;
  const gmlake_backend *const b = n->inner;
  t->struct_bytes = offsetof(gmlake_backend, host_free) + sizeof t->host_free;
  t->abi_version = b->abi_version < GMLAKE_BACKEND_ABI ? b->abi_version : GMLAKE_BACKEND_ABI;
  t->user = n;
  t->get_properties = gmlake_nvtx_get_properties;
  t->get_memory_info = gmlake_nvtx_get_memory_info;
  t->reserve = gmlake_nvtx_reserve;
  t->unreserve = gmlake_nvtx_unreserve;
  t->create = gmlake_nvtx_create;
  t->release = gmlake_nvtx_release;
  t->map = gmlake_nvtx_map;
  t->unmap = gmlake_nvtx_unmap;
  t->set_access = gmlake_nvtx_set_access;
  t->event_create = gmlake_nvtx_event_create;
  t->event_destroy = gmlake_nvtx_event_destroy;
  t->event_record = gmlake_nvtx_event_record;
  t->event_query = gmlake_nvtx_event_query;
  t->event_wait = gmlake_nvtx_event_wait;
  t->stream_wait = gmlake_nvtx_stream_wait;
  t->capture_exchange = gmlake_nvtx_capture_exchange;
  t->clock_ns = gmlake_nvtx_clock_ns;
  t->stream_id = GMLAKE_NVTX_HAS(b, stream_id) ? gmlake_nvtx_stream_id : NULL;
  t->device_wait = GMLAKE_NVTX_HAS(b, device_wait) ? gmlake_nvtx_device_wait : NULL;
  t->copy = GMLAKE_NVTX_HAS(b, copy) ? gmlake_nvtx_copy : NULL;
  t->host_alloc = GMLAKE_NVTX_HAS(b, host_alloc) ? gmlake_nvtx_host_alloc : NULL;
  t->host_free = GMLAKE_NVTX_HAS(b, host_free) ? gmlake_nvtx_host_free : NULL;
  t->is_capturing = GMLAKE_NVTX_HAS(b, is_capturing) ? gmlake_nvtx_is_capturing : NULL;
  t->event_wait_any = GMLAKE_NVTX_HAS(b, event_wait_any) ? gmlake_nvtx_event_wait_any : NULL;
}

#undef GMLAKE_NVTX_HAS

/* ---- Memory that is not mapped ----

   A reservation is memory from `take`. Handles only count: what is "mapped" lies where it is. So a
   handle cannot be mapped twice, and the lake's windows get no addresses. */

static inline gmlake_result gmlake_nvtx_plain_properties(void *user, gmlake_device_properties *out,
                                                         int *code) {
  const gmlake_nvtx *const n = (const gmlake_nvtx *)user;
  const gmlake_result result = n->inner->get_properties(n->inner->user, out, code);
  out->device_bytes = n->memory.bytes;
  out->handle_types = 0;
  return result;
}

static inline gmlake_result gmlake_nvtx_plain_info(void *user, size_t *out_free, size_t *out_total,
                                                   int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  *code = 0;
  (void)pthread_mutex_lock(&n->mutex);
  *out_free = n->memory.bytes - n->created_bytes;
  (void)pthread_mutex_unlock(&n->mutex);
  *out_total = n->memory.bytes;
  return GMLAKE_OK;
}

/* A lake reserves its arena first, then its windows. */
static inline gmlake_result gmlake_nvtx_plain_reserve(void *user, size_t bytes, size_t alignment,
                                                      uint64_t *out_address, int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  size_t i = 0;
  *code = 0;
  while (i < GMLAKE_NVTX_SPACES && n->spaces[i].taken) i++;
  if (i == GMLAKE_NVTX_SPACES || bytes > n->memory.bytes || ++n->reserve_count == 2)
    return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  n->spaces[i].taken = n->memory.take(n->memory.user, bytes + alignment);
  if (!n->spaces[i].taken) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  n->spaces[i].address = (n->spaces[i].taken + alignment - 1) & ~(uint64_t)(alignment - 1);
  n->spaces[i].handle = gmlake_nvtx_register(n, n->spaces[i].taken, bytes + alignment);
  *out_address = n->spaces[i].address;
  return GMLAKE_OK;
}

static inline gmlake_result gmlake_nvtx_plain_unreserve(void *user, uint64_t address, size_t bytes,
                                                        int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  size_t i = 0;
  (void)bytes;
  *code = 0;
  while (n->spaces[i].address != address) i++;
  nvtxMemHeapUnregister(n->domain, n->spaces[i].handle);
  n->memory.give(n->memory.user, n->spaces[i].taken);
  memset(&n->spaces[i], 0, sizeof n->spaces[i]);
  return GMLAKE_OK;
}

/* A handle is a number that no other has, and its bytes, in units of 4 KiB. */
static inline gmlake_result gmlake_nvtx_plain_create(void *user, size_t bytes, unsigned types,
                                                     uint64_t *out_handle, int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  gmlake_result result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  (void)types;
  *code = 0;
  (void)pthread_mutex_lock(&n->mutex);
  if (bytes <= n->memory.bytes - n->created_bytes) {
    n->created_bytes += bytes;
    *out_handle = (uint64_t)++n->create_count << 32 | bytes >> 12;
    result = GMLAKE_OK;
  }
  (void)pthread_mutex_unlock(&n->mutex);
  return result;
}

static inline gmlake_result gmlake_nvtx_plain_release(void *user, uint64_t handle, int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  *code = 0;
  (void)pthread_mutex_lock(&n->mutex);
  n->created_bytes -= (size_t)(uint32_t)handle << 12;
  (void)pthread_mutex_unlock(&n->mutex);
  return GMLAKE_OK;
}

static inline gmlake_result gmlake_nvtx_plain_map(void *user, uint64_t address, size_t bytes,
                                                  uint64_t handle, int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  const gmlake_nvtx_space *space = NULL;
  size_t i;
  (void)handle;
  *code = 0;
  (void)pthread_mutex_lock(&n->mutex);
  for (i = 0; i < GMLAKE_NVTX_SPACES; i++) /* the last one that begins before it */
    if (n->spaces[i].taken && n->spaces[i].address <= address &&
        (!space || n->spaces[i].address > space->address))
      space = &n->spaces[i];
  gmlake_nvtx_heap_begin(n, address, bytes, space);
  (void)pthread_mutex_unlock(&n->mutex);
  return GMLAKE_OK;
}

static inline gmlake_result gmlake_nvtx_plain_unmap(void *user, uint64_t address, size_t bytes,
                                                    int *code) {
  gmlake_nvtx *const n = (gmlake_nvtx *)user;
  *code = 0;
  (void)pthread_mutex_lock(&n->mutex);
  gmlake_nvtx_heaps_end(n, address, bytes);
  (void)pthread_mutex_unlock(&n->mutex);
  return GMLAKE_OK;
}

static inline gmlake_result gmlake_nvtx_plain_access(void *user, uint64_t address, size_t bytes,
                                                     const int *peers, size_t count, int *code) {
  (void)user, (void)address, (void)bytes, (void)peers, (void)count;
  *code = 0;
  return GMLAKE_OK;
}

/* ---- The observer --------------------------------------------------------------------------- */

/* Makes the lake that this describes show itself, in a domain of that name: replaces desc->backend,
   which has to be set, and desc->observer, which goes on being told. Both must live longer than
   what this returns. NULL: host memory ran out, or desc->backend is NULL; nothing has changed. */
static inline gmlake_nvtx *gmlake_nvtx_attach(const char *domain, gmlake_desc *desc) {
  gmlake_nvtx *const n = desc->backend ? (gmlake_nvtx *)calloc(1, sizeof(gmlake_nvtx)) : NULL;
  if (!n) return NULL;
  n->inner = desc->backend;
  n->next = desc->observer;
  n->domain = nvtxDomainCreateA(domain);
  (void)pthread_mutex_init(&n->mutex, NULL);
  gmlake_nvtx_fill(n);
  desc->backend = &n->table;
  desc->observer.fn = gmlake_nvtx_observe;
  desc->observer.user = n;
  return n;
}

/* The same for a lake in memory that is not mapped. `take` is called in gmlake_create, and when
   the lake's first buffer or a pool is created; `give` when lake or pool is destroyed. Sets the
   sizes of chunks, arena and windows too. pre: memory->bytes is 4 MiB at least. */
static inline gmlake_nvtx *gmlake_nvtx_attach_plain(const char *domain, gmlake_desc *desc,
                                                    const gmlake_nvtx_memory *memory) {
  gmlake_nvtx *const n = gmlake_nvtx_attach(domain, desc);
  if (!n) return NULL;
  n->memory = *memory;
  n->table.get_properties = gmlake_nvtx_plain_properties;
  n->table.get_memory_info = gmlake_nvtx_plain_info;
  n->table.reserve = gmlake_nvtx_plain_reserve;
  n->table.unreserve = gmlake_nvtx_plain_unreserve;
  n->table.create = gmlake_nvtx_plain_create;
  n->table.release = gmlake_nvtx_plain_release;
  n->table.map = gmlake_nvtx_plain_map;
  n->table.unmap = gmlake_nvtx_plain_unmap;
  n->table.set_access = gmlake_nvtx_plain_access;
  desc->chunk_bytes = desc->window_bytes = (size_t)2 << 20;
  n->memory.bytes &= ~(desc->chunk_bytes - 1);
  desc->arena_bytes = n->memory.bytes;
  return n;
}

/* pre: the lake is destroyed. NULL is fine. */
static inline void gmlake_nvtx_detach(gmlake_nvtx *n) {
  if (!n) return;
  if (n->count) gmlake_nvtx_heaps_end(n, 0, SIZE_MAX);
  nvtxDomainDestroy(n->domain);
  (void)pthread_mutex_destroy(&n->mutex);
  free(n->heaps);
  free(n);
}

#endif
