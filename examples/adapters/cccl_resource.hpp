/* A lake as a memory resource of CCCL (libcu++, Thrust, CUB), and of RMM, whose resources are
   CCCL's since 25.12. It is a handle: copies are equal and use the same lake, which has to outlive
   them. It allocates on a stream without a wait; without a stream it hands out memory that no
   pending work uses. C++17. Checked with CCCL 3.0 (CUDA 13.0), and with RMM 26.08's concepts by
   their text. */
#if !defined(GMLAKE_CCCL_RESOURCE_HPP)
#define GMLAKE_CCCL_RESOURCE_HPP

#include "gmlake.h"

#if !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE) /* before CCCL 3.1 */
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <new>

class gmlake_resource {
 public:
  static constexpr std::size_t natural = 256; /* alignment, as of cudaMalloc */
  explicit gmlake_resource(gmlake *lake) : lake_(lake) {}

  /* The names since CCCL 3.1: */
  void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = natural) {
    return take(bytes, alignment, stream.get());
  }
  void deallocate(cuda::stream_ref stream, void *ptr, std::size_t, std::size_t = natural) noexcept {
    (void)gmlake_free(lake_, ptr, stream.get());
  }
  void *allocate_sync(std::size_t bytes, std::size_t alignment = natural) {
    return take(bytes, alignment, GMLAKE_STREAM_NONE);
  }
  void deallocate_sync(void *ptr, std::size_t, std::size_t = natural) noexcept {
    (void)gmlake_free(lake_, ptr, GMLAKE_STREAM_NONE);
  }

  /* Those before: */
  void *allocate(std::size_t bytes, std::size_t alignment = natural) {
    return take(bytes, alignment, GMLAKE_STREAM_NONE);
  }
  void deallocate(void *ptr, std::size_t, std::size_t = natural) noexcept {
    (void)gmlake_free(lake_, ptr, GMLAKE_STREAM_NONE);
  }
  void *allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    return take(bytes, alignment, stream.get());
  }
  void *allocate_async(std::size_t bytes, cuda::stream_ref stream) {
    return take(bytes, natural, stream.get());
  }
  void deallocate_async(void *ptr, std::size_t, std::size_t, cuda::stream_ref stream) noexcept {
    (void)gmlake_free(lake_, ptr, stream.get());
  }
  void deallocate_async(void *ptr, std::size_t, cuda::stream_ref stream) noexcept {
    (void)gmlake_free(lake_, ptr, stream.get());
  }

  friend bool operator==(const gmlake_resource &a, const gmlake_resource &b) noexcept {
    return a.lake_ == b.lake_;
  }
  friend bool operator!=(const gmlake_resource &a, const gmlake_resource &b) noexcept {
    return a.lake_ != b.lake_;
  }
  friend constexpr void get_property(const gmlake_resource &,
                                     cuda::mr::device_accessible) noexcept {}

 private:
  void *take(std::size_t bytes, std::size_t alignment, gmlake_stream stream) {
    gmlake_alloc_desc desc = gmlake_alloc_desc();
    void *ptr = nullptr;
    desc.bytes = bytes;
    desc.alignment = alignment;
    if (gmlake_alloc_with(lake_, &desc, stream, &ptr) != GMLAKE_OK) throw std::bad_alloc();
    return ptr;
  }
  gmlake *lake_;
};

#endif
