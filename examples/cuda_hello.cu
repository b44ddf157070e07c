// A kernel on memory of a lake, with the CUDA runtime.
//
//   nvcc -I. -x cu examples/cuda_hello.cu -o cuda_hello && ./cuda_hello
//
// The runtime uses the device's primary context, and so does the lake: there is nothing to set up.
#define GMLAKE_IMPLEMENTATION
#include "gmlake.h"

#include <cuda_runtime.h>
#include <stdio.h>

__global__ void add(float *to, const float *from, size_t count) {
  const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < count) to[i] += from[i];
}

// Says what went wrong and ends the program.
#define MUST(call, text)                              \
  do {                                                \
    const int code = (int)(call);                     \
    if (code) {                                       \
      fprintf(stderr, "%s: %s\n", #call, text(code)); \
      return 1;                                       \
    }                                                 \
  } while (0)

static const char *of_cuda(int code) { return cudaGetErrorString((cudaError_t)code); }
static const char *of_lake(int code) { return gmlake_result_name((gmlake_result)code); }

int main() {
  const size_t count = 1 << 24, bytes = count * sizeof(float);
  gmlake *lake;
  gmlake_stats stats = gmlake_stats();
  cudaStream_t stream;
  void *a, *b;
  float last = 0;
  MUST(cudaSetDevice(0), of_cuda);
  MUST(cudaStreamCreate(&stream), of_cuda);
  MUST(gmlake_create(NULL, &lake), of_lake);
  MUST(gmlake_alloc(lake, bytes, stream, &a), of_lake);
  MUST(gmlake_alloc(lake, bytes, stream, &b), of_lake);
  MUST(cudaMemsetAsync(a, 0, bytes, stream), of_cuda);
  MUST(cudaMemsetAsync(b, 0x40, bytes, stream), of_cuda);  // every float is 3.0039
  add<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>((float *)a, (const float *)b, count);
  MUST(gmlake_free(lake, b, stream), of_lake);  // no wait: it is reused behind the kernel
  MUST(cudaMemcpyAsync(&last, (float *)a + count - 1, sizeof(last), cudaMemcpyDeviceToHost, stream),
       of_cuda);
  MUST(cudaStreamSynchronize(stream), of_cuda);
  MUST(gmlake_free(lake, a, stream), of_lake);
  MUST(gmlake_get_stats(lake, &stats), of_lake);
  printf("the last element is %.4f; the lake holds %zu MiB\n", last, stats.reserved_bytes >> 20);
  MUST(gmlake_forget_stream(lake, stream), of_lake);  // before the stream is destroyed
  MUST(gmlake_destroy(lake), of_lake);
  MUST(cudaStreamDestroy(stream), of_cuda);
  return 0;
}
