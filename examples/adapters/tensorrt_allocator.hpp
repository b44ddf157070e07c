/* TensorRT's memory from a lake: pass one to IRuntime::setGpuAllocator, IBuilder::setGpuAllocator
   or IExecutionContext::setTemporaryStorageAllocator. It has to outlive what uses it, and the lake
   has to outlive it. Compiled against NvInferRuntime.h of TensorRT 11.1; allocateAsync is there
   since 10.

   The contract: no memory, or size 0, is nullptr; a free takes effect behind the work queued on the
   stream; both may be called from several threads. */
#if !defined(GMLAKE_TENSORRT_ALLOCATOR_HPP)
#define GMLAKE_TENSORRT_ALLOCATOR_HPP

#include "gmlake.h"

#if !defined(GMLAKE_TENSORRT_DECLARED)
#include <NvInferRuntime.h>
#endif

class gmlake_tensorrt_allocator : public nvinfer1::IGpuAsyncAllocator {
 public:
  explicit gmlake_tensorrt_allocator(gmlake *lake) : lake_(lake) {}

  void *allocateAsync(uint64_t const size, uint64_t const alignment, nvinfer1::AllocatorFlags const,
                      cudaStream_t stream) noexcept override {
    gmlake_alloc_desc desc = gmlake_alloc_desc();
    void *ptr = nullptr;
    desc.bytes = static_cast<size_t>(size);
    desc.alignment = static_cast<size_t>(alignment);
    if (!size || gmlake_alloc_with(lake_, &desc, stream, &ptr) != GMLAKE_OK) return nullptr;
    return ptr;
  }

  bool deallocateAsync(void *const memory, cudaStream_t stream) noexcept override {
    return gmlake_free(lake_, memory, stream) == GMLAKE_OK; /* NULL is fine */
  }

 private:
  gmlake *lake_;
};

#endif
