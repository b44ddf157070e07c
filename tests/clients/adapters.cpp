// The adapters of examples/ that are C++, on the mock: what they promise to the libraries that call
// them. Where the real headers are not at hand, the declarations below say what was there.
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(WITH_CCCL) // the toolkit's headers
#include "examples/adapters/cccl_resource.hpp"
#else
typedef struct CUstream_st *cudaStream_t;
#endif

#define GMLAKE_TENSORRT_DECLARED
namespace nvinfer1 { // as in NvInferRuntime.h of TensorRT 11.1
using AllocatorFlags = uint32_t;
class IGpuAsyncAllocator {
 public:
  virtual ~IGpuAsyncAllocator() = default;
  virtual void *allocateAsync(uint64_t const size, uint64_t const alignment,
                              AllocatorFlags const flags, cudaStream_t stream) noexcept = 0;
  virtual bool deallocateAsync(void *const memory, cudaStream_t stream) noexcept = 0;
};
} // namespace nvinfer1
#include "examples/adapters/tensorrt_allocator.hpp"

#define GMLAKE_RUNTIME_DECLARED
#include "examples/adapters/device_mem_handler.h"

#define GMLAKE_ONNXRUNTIME_DECLARED
#define ORT_API_VERSION 23
#define ORT_API_CALL
struct OrtMemoryInfo;
struct OrtAllocator { // as in onnxruntime_c_api.h of ONNX Runtime 1.23
  uint32_t version;
  void *(*Alloc)(struct OrtAllocator *self, size_t size);
  void (*Free)(struct OrtAllocator *self, void *ptr);
  const struct OrtMemoryInfo *(*Info)(const struct OrtAllocator *self);
  void *(*Reserve)(struct OrtAllocator *self, size_t size);
  void *(*GetStats)(const struct OrtAllocator *self, void **out);
  void *(*AllocOnStream)(struct OrtAllocator *self, size_t size, void *stream);
};
#include "examples/adapters/onnxruntime.h"
#include "examples/gmlake.hpp"

#define CHECK(holds)                                                                 \
  do {                                                                               \
    if (!(holds)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

namespace {

const size_t MIB = size_t(1) << 20;
cudaStream_t const FIRST = reinterpret_cast<cudaStream_t>(uintptr_t(0x1000));

size_t live(gmlake *lake) {
  gmlake_stats stats = gmlake_stats();
  CHECK(gmlake_get_stats(lake, &stats) == GMLAKE_OK);
  return stats.live_count;
}

gmlake_desc small() {
  gmlake_desc desc = gmlake_desc();
  desc.limit_bytes = 64 * MIB;
  return desc;
}

gmlake_result told;
void tell(const char *, gmlake_result result) { told = result; }

void test_raii() {
  gmlake_unique lake = gmlake_make(small());
  {
    gmlake_block<float> block = gmlake_make_block<float>(lake, MIB, FIRST), other;
    CHECK(block && reinterpret_cast<uintptr_t>(block.get()) % 512 == 0);
    CHECK(live(lake.get()) == 1);
    other = std::move(block);
    CHECK(!block && live(lake.get()) == 1);
    other.get_deleter().stream = nullptr;
  }
  CHECK(live(lake.get()) == 0);
  try {
    gmlake_make_block<char>(lake, 100 * MIB, nullptr);
    CHECK(!"it is more than the limit");
  } catch (const gmlake_error &error) {
    const gmlake_error copy = error;
    CHECK(copy.result() == GMLAKE_ERROR_LIMIT_REACHED);
    CHECK(std::strstr(copy.what(), "gmlake_alloc"));
  }
  try {
    gmlake_make_block<double>(lake, static_cast<size_t>(-1) / 4, nullptr);
    CHECK(!"the product does not fit");
  } catch (const std::bad_alloc &error) {
    CHECK(std::strcmp(error.what(), "GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY") == 0);
  }
  {
    gmlake_unique_pool pool = gmlake_make_pool(lake);
    gmlake_alloc_desc in_pool = gmlake_alloc_desc();
    gmlake_buffer_desc desc = gmlake_buffer_desc();
    in_pool.pool = pool.get();
    desc.max_bytes = 16 * MIB;
    gmlake_unique_buffer buffer = gmlake_make_buffer(lake, desc, nullptr);
    CHECK(gmlake_buffer_resize(lake.get(), buffer.get(), 2 * MIB, nullptr) == GMLAKE_OK);
    gmlake_block<char> block = gmlake_make_block<char>(lake, MIB, FIRST, in_pool);
    CHECK(live(lake.get()) == 1);
  }
  gmlake_on_refusal() = tell;
  gmlake *kept = lake.get();
  gmlake_block<char> late = gmlake_make_block<char>(lake, MIB, nullptr);
  char *ptr = late.release();
  gmlake_block<char>(ptr, gmlake_block_deleter{kept, nullptr}).reset();
  CHECK(told == GMLAKE_OK);
  gmlake_block<char>(ptr, gmlake_block_deleter{kept, nullptr}).reset();
  CHECK(told == GMLAKE_ERROR_DOUBLE_FREE);
}

// What every adapter promises: memory up to the limit, and the same again behind its own work,
// without a wait.
template <class Alloc, class Free>
void serves(gmlake *lake, Alloc alloc, Free give) {
  gmlake_stats stats = gmlake_stats();
  void *const ptr = alloc(3 * MIB);
  CHECK(ptr && reinterpret_cast<uintptr_t>(ptr) % 256 == 0);
  CHECK(!alloc(100 * MIB));
  give(ptr);
  CHECK(live(lake) == 0 && alloc(3 * MIB) == ptr);
  give(ptr);
  CHECK(gmlake_get_stats(lake, &stats) == GMLAKE_OK && stats.host_wait_count == 0);
}

void test_tensorrt() {
  gmlake_unique lake = gmlake_make(small());
  gmlake_tensorrt_allocator adapter(lake.get());
  nvinfer1::IGpuAsyncAllocator &allocator = adapter;
  serves(
      lake.get(), [&](size_t bytes) { return allocator.allocateAsync(bytes, 256, 0, FIRST); },
      [&](void *ptr) { CHECK(allocator.deallocateAsync(ptr, FIRST)); });
  CHECK(!allocator.allocateAsync(0, 0, 0, FIRST));
  CHECK(allocator.deallocateAsync(nullptr, FIRST));
  CHECK(!allocator.deallocateAsync(&lake, FIRST));
}

// As custatevecDeviceMemHandler_t, cutensornetDeviceMemHandler_t and cudssDeviceMemHandler_t are
// documented for cuQuantum 25.09 and cuDSS 0.7.
struct mem_handler {
  void *ctx;
  int (*device_alloc)(void *ctx, void **ptr, size_t bytes, cudaStream_t stream);
  int (*device_free)(void *ctx, void *ptr, size_t bytes, cudaStream_t stream);
  char name[64];
};

void test_mem_handler() {
  gmlake_unique lake = gmlake_make(small());
  mem_handler handler;
  GMLAKE_SET_MEM_HANDLER(handler, lake.get());
  CHECK(std::strcmp(handler.name, "gmlake") == 0);
  serves(
      lake.get(),
      [&](size_t bytes) {
        void *ptr = nullptr;
        return handler.device_alloc(handler.ctx, &ptr, bytes, FIRST) == 0 ? ptr : nullptr;
      },
      [&](void *ptr) { CHECK(handler.device_free(handler.ctx, ptr, 3 * MIB, FIRST) == 0); });
}

void test_onnxruntime() {
  gmlake_unique lake = gmlake_make(small());
  const OrtMemoryInfo *const info = reinterpret_cast<const OrtMemoryInfo *>(&lake);
  gmlake_onnxruntime adapter;
  std::memset(&adapter, 0x5A, sizeof adapter);
  gmlake_onnxruntime_init(&adapter, lake.get(), FIRST, info);
  OrtAllocator *const allocator = &adapter.base;
  CHECK(allocator->version == 23 && allocator->Info(allocator) == info);
  CHECK(!allocator->Reserve && !allocator->GetStats && !allocator->AllocOnStream); // optional
  serves(
      lake.get(), [=](size_t bytes) { return allocator->Alloc(allocator, bytes); },
      [=](void *ptr) { allocator->Free(allocator, ptr); });
}

void test_onnxruntime_options() {
  gmlake_unique lake = gmlake_make(small());
  char alloc[24], release[24], empty[24];
  gmlake_onnxruntime_set(lake.get());
  gmlake_onnxruntime_options(alloc, release, empty);
  serves(lake.get(), reinterpret_cast<void *(*)(size_t)>(std::strtoull(alloc, nullptr, 10)),
         reinterpret_cast<void (*)(void *)>(std::strtoull(release, nullptr, 10)));
  reinterpret_cast<void (*)()>(std::strtoull(empty, nullptr, 10))();
}

#if defined(WITH_CCCL)
void test_cccl() {
  static_assert(cuda::mr::async_resource_with<gmlake_resource, cuda::mr::device_accessible>, "");
  gmlake_unique lake = gmlake_make(small()), second = gmlake_make(small());
  gmlake_resource resource(lake.get());
  cuda::mr::async_resource_ref<cuda::mr::device_accessible> ref = resource;
  void *ptr = ref.allocate_async(MIB, 256, cuda::stream_ref(FIRST));
  CHECK(ptr && live(lake.get()) == 1);
  ref.deallocate_async(ptr, MIB, 256, cuda::stream_ref(FIRST));
  ptr = ref.allocate(MIB, 256);
  ref.deallocate(ptr, MIB, 256);
  ptr = resource.allocate(cuda::stream_ref(FIRST), MIB);
  resource.deallocate(cuda::stream_ref(FIRST), ptr, MIB);
  ptr = resource.allocate_sync(MIB);
  resource.deallocate_sync(ptr, MIB);
  CHECK(live(lake.get()) == 0);
  CHECK(resource == gmlake_resource(lake.get()) && resource != gmlake_resource(second.get()));
  try {
    ptr = ref.allocate(100 * MIB, 256);
    CHECK(!"it is more than the limit");
  } catch (const std::bad_alloc &) {
  }
}
#endif

} // namespace

int main() {
  test_raii();
  test_tensorrt();
  test_mem_handler();
  test_onnxruntime();
  test_onnxruntime_options();
#if defined(WITH_CCCL)
  test_cccl();
#endif
  std::puts("the adapters serve");
  return 0;
}
