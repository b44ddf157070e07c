// Thrust on a lake, on a GPU: arrays come from the memory resource, the temporary memory of a sort
// and of a sum likewise, and the results are those of the host.
//   nvcc -std=c++17 -O1 -arch=native -I. tests/gpu/cccl.cu -o cccl -lcuda && ./cccl
#define GMLAKE_IMPLEMENTATION
#include "gmlake.h"

#include "examples/adapters/cccl_resource.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <vector>

struct temporary { // as Thrust asks for it
  typedef char value_type;
  gmlake_resource *resource;
  cudaStream_t stream;
  char *allocate(std::ptrdiff_t bytes) {
    return static_cast<char *>(resource->allocate(cuda::stream_ref(stream), size_t(bytes)));
  }
  void deallocate(char *ptr, size_t bytes) {
    resource->deallocate(cuda::stream_ref(stream), ptr, bytes);
  }
};

static bool sorts(gmlake_resource &resource, cudaStream_t stream, size_t count, unsigned seed) {
  cuda::mr::async_resource_ref<cuda::mr::device_accessible> ref = resource;
  const size_t bytes = count * sizeof(unsigned);
  std::vector<unsigned> want(count), got(count);
  for (auto &number : want) number = (seed = seed * 1664525 + 1013904223) >> 7;
  unsigned *const array =
      static_cast<unsigned *>(ref.allocate_async(bytes, 256, cuda::stream_ref(stream)));
  cudaMemcpyAsync(array, want.data(), bytes, cudaMemcpyHostToDevice, stream);
  temporary memory = {&resource, stream};
  const thrust::device_ptr<unsigned> first(array);
  thrust::sort(thrust::cuda::par(memory).on(stream), first, first + count);
  const unsigned sum = thrust::reduce(thrust::cuda::par(memory).on(stream), first, first + count);
  cudaMemcpyAsync(got.data(), array, bytes, cudaMemcpyDeviceToHost, stream);
  const bool is_done = cudaStreamSynchronize(stream) == cudaSuccess;
  ref.deallocate_async(array, bytes, 256, cuda::stream_ref(stream));
  std::sort(want.begin(), want.end());
  return is_done && want == got && sum == std::accumulate(want.begin(), want.end(), 0u);
}

int main() {
  gmlake_stats stats = {};
  cudaStream_t stream;
  gmlake *lake;
  int wrong = 0;
  if (cudaFree(0) || cudaStreamCreate(&stream) || gmlake_create(NULL, &lake)) return 1;
  gmlake_resource resource(lake);
  for (unsigned round = 0; round < 50; round++)
    wrong += !sorts(resource, stream, 100000 + 77777 * round, round + 1);
  if (gmlake_get_stats(lake, &stats)) return 1;
  std::printf("%d of 50 wrong; %llu allocations, %zu bytes live, %zu MiB reserved\n", wrong,
              static_cast<unsigned long long>(stats.allocation_count), stats.active_bytes,
              stats.reserved_bytes >> 20);
  return wrong || stats.active_bytes || gmlake_destroy(lake);
}
