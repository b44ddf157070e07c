/* As much of CUDA's runtime as examples/torch/gmlake_torch.cpp calls; torch_stub.hpp
   has it over the driver. */
#pragma once

#include <cuda.h>

enum cudaError_t { cudaSuccess = 0, cudaErrorPeerAccessAlreadyEnabled = 704, cudaErrorOther = 999 };
using cudaStream_t = CUstream;
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 };

inline cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
inline cudaError_t cudaDeviceSynchronize();
inline cudaError_t cudaFree(void *ptr);
inline cudaError_t cudaGetLastError();
inline cudaError_t cudaMalloc(void **out, size_t bytes);
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream);
inline cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                       size_t bytes, cudaStream_t stream);
inline cudaError_t cudaMemGetInfo(size_t *out_free, size_t *out_total);
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *out);
