/* In the place of the toolkit's header: the names that examples/nvtx.h uses. Every call tells
   nvtx_told, if that is set. */
#if !defined(NVTX_STUB_H)
#define NVTX_STUB_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE sizeof(nvtxEventAttributes_t)
#define NVTX_MESSAGE_TYPE_ASCII 1
#define NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 1
#define NVTX_EXT_COMPATID_MEM 0x0102
#define NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR 1
#define NVTX_MEM_TYPE_VIRTUAL_ADDRESS 1
#define NVTX_MEM_REGION_REF_TYPE_POINTER 1

typedef struct nvtxDomain *nvtxDomainHandle_t;
typedef struct nvtxHeap *nvtxMemHeapHandle_t;
typedef struct nvtxRegion *nvtxMemRegionHandle_t;
typedef union nvtxMemRegionRef_t {
  const void *pointer;
  nvtxMemRegionHandle_t handle;
} nvtxMemRegionRef_t;

typedef struct nvtxEventAttributes_t {
  uint16_t version, size;
  int messageType, payloadType;
  union {
    const char *ascii;
  } message;
  union {
    uint64_t ullValue;
  } payload;
} nvtxEventAttributes_t;

typedef struct nvtxMemVirtualRangeDesc_t {
  size_t size;
  const void *ptr;
} nvtxMemVirtualRangeDesc_t;

typedef struct nvtxMemHeapDesc_t {
  uint16_t extCompatID, structSize;
  uint32_t usage, type;
  size_t typeSpecificDescSize;
  const void *typeSpecificDesc;
} nvtxMemHeapDesc_t;

typedef struct nvtxMemRegionsRegisterBatch_t {
  uint16_t extCompatID, structSize;
  uint32_t regionType;
  nvtxMemHeapHandle_t heap;
  size_t regionCount, regionDescElementSize;
  const void *regionDescElements;
  nvtxMemRegionHandle_t *regionHandleElementsOut;
} nvtxMemRegionsRegisterBatch_t;

typedef struct nvtxMemRegionsUnregisterBatch_t {
  uint16_t extCompatID, structSize;
  uint32_t refType;
  size_t refCount, refElementSize;
  const nvtxMemRegionRef_t *refElements;
} nvtxMemRegionsUnregisterBatch_t;

typedef enum nvtx_call {
  NVTX_DOMAIN, /* text: its name */
  NVTX_PUSH,   /* text: the range's name; bytes: its payload */
  NVTX_POP,
  NVTX_MARK, /* text: the reason */
  NVTX_HEAP, /* at, bytes */
  NVTX_HEAP_END,
  NVTX_REGION, /* at, bytes, heap */
  NVTX_REGION_END
} nvtx_call;

typedef struct nvtx_event {
  nvtx_call call;
  const char *text;
  uintptr_t at, heap; /* a heap's handle is its address */
  size_t bytes;
} nvtx_event;

static void (*nvtx_told)(const nvtx_event *event);

static inline void nvtx_tell(nvtx_call call, const char *text, const void *at, size_t bytes,
                             const void *heap) {
  nvtx_event event;
  event.call = call;
  event.text = text;
  event.at = (uintptr_t)at;
  event.bytes = bytes;
  event.heap = (uintptr_t)heap;
  if (nvtx_told) nvtx_told(&event);
}

static inline nvtxDomainHandle_t nvtxDomainCreateA(const char *name) {
  nvtx_tell(NVTX_DOMAIN, name, NULL, 0, NULL);
  return (nvtxDomainHandle_t)0;
}
static inline void nvtxDomainDestroy(nvtxDomainHandle_t domain) { (void)domain; }
static inline int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *e) {
  (void)domain;
  nvtx_tell(NVTX_PUSH, e->message.ascii, NULL, (size_t)e->payload.ullValue, NULL);
  return 0;
}
static inline int nvtxDomainRangePop(nvtxDomainHandle_t domain) {
  (void)domain;
  nvtx_tell(NVTX_POP, NULL, NULL, 0, NULL);
  return 0;
}
static inline void nvtxDomainMarkEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *e) {
  (void)domain;
  nvtx_tell(NVTX_MARK, e->message.ascii, NULL, (size_t)e->payload.ullValue, NULL);
}
static inline nvtxMemHeapHandle_t nvtxMemHeapRegister(nvtxDomainHandle_t domain,
                                                      const nvtxMemHeapDesc_t *desc) {
  const nvtxMemVirtualRangeDesc_t *range =
      (const nvtxMemVirtualRangeDesc_t *)desc->typeSpecificDesc;
  (void)domain;
  nvtx_tell(NVTX_HEAP, NULL, range->ptr, range->size, NULL);
  return (nvtxMemHeapHandle_t)(uintptr_t)range->ptr;
}
static inline void nvtxMemHeapUnregister(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
  (void)domain;
  nvtx_tell(NVTX_HEAP_END, NULL, heap, 0, heap);
}
static inline void nvtxMemRegionsRegister(nvtxDomainHandle_t domain,
                                          const nvtxMemRegionsRegisterBatch_t *desc) {
  const nvtxMemVirtualRangeDesc_t *range =
      (const nvtxMemVirtualRangeDesc_t *)desc->regionDescElements;
  (void)domain;
  nvtx_tell(NVTX_REGION, NULL, range->ptr, range->size, desc->heap);
}
static inline void nvtxMemRegionsUnregister(nvtxDomainHandle_t domain,
                                            const nvtxMemRegionsUnregisterBatch_t *desc) {
  (void)domain;
  nvtx_tell(NVTX_REGION_END, NULL, desc->refElements[0].pointer, 0, NULL);
}

#endif
