/* What the programs that need a GPU share: the driver's functions, which are found in its library
   at run time, and four kernels as PTX text. So neither a toolkit nor a compiler for the device is
   needed. It needs __typeof__ (gcc, clang). */
#if !defined(GPU_H)
#define GPU_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define GPU_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) \
  X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDeviceCanAccessPeer) \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxGetCurrent) X(cuCtxSetCurrent) \
  X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxSynchronize) X(cuCtxEnablePeerAccess) \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernel) \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) \
  X(cuStreamWaitEvent) X(cuStreamBeginCapture) X(cuStreamEndCapture) \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy) \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
  X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemAllocAsync) X(cuMemFreeAsync) \
  X(cuMemcpyDtoH) X(cuMemcpyHtoD) X(cuMemcpyDtoDAsync) X(cuMemsetD32Async) \
  X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyDtoHAsync) X(cuMemcpyHtoDAsync) \
  X(cuMemcpyPeerAsync) \
  X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) \
  X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) \
  X(cuMemGetAccess) X(cuMemRetainAllocationHandle)
/* clang-format on */

/* A driver: a pointer to each of its functions. cuda.h renames some functions by macros; the macros
   also rename the fields, so both have the same name. */
#if defined(__cplusplus) /* a name that is looked up may not become a field of the same struct */
#define GPU_MEMBER(name) __typeof__(::name) *name;
#else
#define GPU_MEMBER(name) __typeof__(name) *name;
#endif
typedef struct gpu_driver {
  GPU_FUNCTIONS(GPU_MEMBER)
  void *library;
} gpu_driver;
#undef GPU_MEMBER

/* Opens the library and finds every function. Returns 0 if the library or a function is missing. */
#define GPU_FIND(name)                 \
  symbol = dlsym(gpu->library, #name); \
  if (!symbol) return 0;               \
  memcpy((void *)&gpu->name, &symbol, sizeof(symbol));
#define GPU_FIND_EXPANDED(name) GPU_FIND(name) /* the name after cuda.h's macros */
static int gpu_open(gpu_driver *gpu, const char *path) {
  void *symbol;
  memset((void *)gpu, 0, sizeof(*gpu));
  gpu->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!gpu->library) return 0;
  GPU_FUNCTIONS(GPU_FIND_EXPANDED)
  return 1;
}
#undef GPU_FIND_EXPANDED
#undef GPU_FIND

/* ---- Kernels ---------------------------------------------------------------------------------
   All loop over what there is by the size of the grid.
   fill(u32 *words, u64 count, u32 seed)                word i becomes (u32)i * 2654435761 + seed
   verify(u32 *words, u64 count, u32 seed, u64 *wrong)  adds the number of words that differ
   spin(u64 ns)                                         takes that long, by one thread
   copy(uint4 *to, uint4 *from, u64 count)              count times 16 bytes */

#define GPU_PTX_HEAD(params) params "{ .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %d<16>;\n"
#define GPU_PTX_INDEX /* %d0: index, %d1: stride of the grid */                                 \
  "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n" \
  "mul.wide.u32 %d0, %r0, %r1; cvt.u64.u32 %d2, %r2; add.u64 %d0, %d0, %d2;\n"                  \
  "mul.wide.u32 %d1, %r3, %r1;\n"

static const char gpu_ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n" GPU_PTX_HEAD(
        ".visible .entry fill(.param .u64 words, .param .u64 count, .param .u32 seed)\n")
        GPU_PTX_INDEX
    "ld.param.u64 %d3, [words]; ld.param.u64 %d4, [count]; ld.param.u32 %r4, [seed];\n"
    "loop: setp.ge.u64 %p0, %d0, %d4; @%p0 bra done;\n"
    "cvt.u32.u64 %r5, %d0; mad.lo.u32 %r5, %r5, 0x9E3779B1, %r4;\n"
    "shl.b64 %d5, %d0, 2; add.u64 %d5, %d3, %d5; st.global.u32 [%d5], %r5;\n"
    "add.u64 %d0, %d0, %d1; bra loop;\n"
    "done: ret; }\n" GPU_PTX_HEAD(
        ".visible .entry verify(.param .u64 words, .param .u64 count, .param .u32 seed,\n"
        "                       .param .u64 wrong)\n") GPU_PTX_INDEX
    "ld.param.u64 %d3, [words]; ld.param.u64 %d4, [count]; ld.param.u32 %r4, [seed];\n"
    "ld.param.u64 %d7, [wrong];\n"
    "mov.u64 %d6, 0;\n"
    "loop: setp.ge.u64 %p0, %d0, %d4; @%p0 bra done;\n"
    "cvt.u32.u64 %r5, %d0; mad.lo.u32 %r5, %r5, 0x9E3779B1, %r4;\n"
    "shl.b64 %d5, %d0, 2; add.u64 %d5, %d3, %d5; ld.global.u32 %r6, [%d5];\n"
    "setp.ne.u32 %p1, %r5, %r6; @%p1 add.u64 %d6, %d6, 1;\n"
    "add.u64 %d0, %d0, %d1; bra loop;\n"
    "done: setp.eq.u64 %p2, %d6, 0; @%p2 ret;\n"
    "red.global.add.u64 [%d7], %d6; ret; }\n" GPU_PTX_HEAD(
        ".visible .entry spin(.param .u64 ns)\n")
    "ld.param.u64 %d0, [ns]; mov.u64 %d1, %globaltimer; add.u64 %d0, %d0, %d1;\n"
    "loop: mov.u64 %d1, %globaltimer; setp.lt.u64 %p0, %d1, %d0; @%p0 bra loop;\n"
    "ret; }\n" GPU_PTX_HEAD(
        ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u64 count)\n")
        GPU_PTX_INDEX
    "ld.param.u64 %d3, [to]; ld.param.u64 %d4, [from]; ld.param.u64 %d5, [count];\n"
    "loop: setp.ge.u64 %p0, %d0, %d5; @%p0 bra done;\n"
    "shl.b64 %d6, %d0, 4; add.u64 %d7, %d4, %d6; add.u64 %d8, %d3, %d6;\n"
    "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d7];\n"
    "st.global.v4.u32 [%d8], {%r4, %r5, %r6, %r7};\n"
    "add.u64 %d0, %d0, %d1; bra loop;\n"
    "done: ret; }\n";

typedef struct gpu_kernels {
  CUmodule module;
  CUfunction fill, verify, spin, copy;
} gpu_kernels;

/* pre: the context in which the kernels are to run is current. */
static inline CUresult gpu_load_kernels(const gpu_driver *gpu, gpu_kernels *out) {
  CUresult code = gpu->cuModuleLoadData(&out->module, gpu_ptx);
  if (code == CUDA_SUCCESS) code = gpu->cuModuleGetFunction(&out->fill, out->module, "fill");
  if (code == CUDA_SUCCESS) code = gpu->cuModuleGetFunction(&out->verify, out->module, "verify");
  if (code == CUDA_SUCCESS) code = gpu->cuModuleGetFunction(&out->spin, out->module, "spin");
  if (code == CUDA_SUCCESS) code = gpu->cuModuleGetFunction(&out->copy, out->module, "copy");
  return code;
}

static inline unsigned gpu_blocks(uint64_t count, unsigned most) {
  const uint64_t blocks = (count + 255) / 256;
  return blocks < most ? (unsigned)blocks : most;
}

static inline CUresult gpu_fill(const gpu_driver *gpu, const gpu_kernels *kernels, CUstream stream,
                                CUdeviceptr words, uint64_t count, uint32_t seed) {
  void *params[3];
  params[0] = &words, params[1] = &count, params[2] = &seed;
  return gpu->cuLaunchKernel(kernels->fill, gpu_blocks(count, 512), 1, 1, 256, 1, 1, 0, stream,
                             params, NULL);
}

static inline CUresult gpu_verify(const gpu_driver *gpu, const gpu_kernels *kernels,
                                  CUstream stream, CUdeviceptr words, uint64_t count, uint32_t seed,
                                  CUdeviceptr wrong) {
  void *params[4];
  params[0] = &words, params[1] = &count, params[2] = &seed, params[3] = &wrong;
  return gpu->cuLaunchKernel(kernels->verify, gpu_blocks(count, 512), 1, 1, 256, 1, 1, 0, stream,
                             params, NULL);
}

static inline CUresult gpu_spin(const gpu_driver *gpu, const gpu_kernels *kernels, CUstream stream,
                                uint64_t ns) {
  void *params[1];
  params[0] = &ns;
  return gpu->cuLaunchKernel(kernels->spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static inline CUresult gpu_copy(const gpu_driver *gpu, const gpu_kernels *kernels, CUstream stream,
                                CUdeviceptr to, CUdeviceptr from, uint64_t count) {
  void *params[3];
  params[0] = &to, params[1] = &from, params[2] = &count;
  return gpu->cuLaunchKernel(kernels->copy, gpu_blocks(count, 4096), 1, 1, 256, 1, 1, 0, stream,
                             params, NULL);
}

#endif
