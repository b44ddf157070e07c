/* A driver without a device: build/fake/libcuda.so.1 has the entry points of the CUDA driver that
   the headers, the tests and the benchmarks use, on a mock of gmlake.h. Beside them it exports what
   is declared here, by which tests choose the devices and make calls fail.

   Streams are asynchronous: a kernel or copy is queued on the mock's stream and takes effect when
   the mock's clock, which every call moves a little, says that it completes, as late as order
   allows. So early reuse, a missing wait or an early unmap shows as it would on a device: as wrong
   words or as a fault. Memsets and copies of memory that is not there are refused in the call.

   Numbers of errors are the driver's where they were measured, and where its manual tells them.
   Where the driver lets misuse of virtual memory pass, this one refuses it, as the mock does.
   When the primary context's last reference goes, its streams, events and modules answer
   INVALID_HANDLE, but stay in the census: they were leaked.

   What differs from a driver: cuMemAlloc takes whole granules; cuMemSetAccess gives a device all
   access or refuses, and what is used in one piece lies in one reservation; kernels are those of
   gpu.h, standin.h and examples/experts.c, known by their names; cuMemcpyHtoDAsync and
   cuMemcpyDtoHAsync want pinned memory; a graph's nodes run one after the other; cuMemAllocAsync
   and cuMemFreeAsync cannot be captured; there is no per-thread default stream; kernels do not
   reach another device's cuMemAlloc memory, whatever cuCtxEnablePeerAccess enabled; at most 8
   devices, and 8 streams in one capture. */
#if !defined(FAKE_CUDA_H)
#define FAKE_CUDA_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fake_cuda_options { /* all zero: one device that can do everything */
  int device_count;                /* 0: one; -1: none, cuInit answers NO_DEVICE */
  size_t device_bytes;             /* 0: 16 GiB */
  size_t granularity_bytes;        /* 0: 2 MiB */
  int no_vmm;                      /* attribute 102 is 0 */
  int no_posix_fd;                 /* attribute 103 */
  int no_rdma;                     /* attribute 110 */
  int fabric;                      /* attribute 128: 0 absent, 1 there, 2 there, but create and
                                      import refuse */
  unsigned seed;                   /* of how long work takes; 0: no time, but for spin, and every
                                      call moves the clock by 1000 ns */
  int bookkeeping_only;            /* no memory behind addresses: kernels and copies only check
                                      that it is mapped, the host reads zeros */
  int integrated;                  /* attribute 18: its memory is the host's */
} fake_cuda_options;

/* Forgets everything (handles, contexts, streams, failures) and starts again. NULL: the defaults.
   The library starts with the environment's FAKE_CUDA_SEED, FAKE_CUDA_DEVICES, FAKE_CUDA_GIB (of
   each device) and FAKE_CUDA_INTEGRATED (1: all devices are so) where they are set. pre: no other
   thread is in a call. */
typedef void fake_cuda_reset_fn(const fake_cuda_options *options);
/* Calls of the driver so far, those that fail too. The functions here and cuGetProcAddress do not
   count. They, and calls in a child of fork, cannot be made to fail. */
typedef uint64_t fake_cuda_calls_fn(void);
/* The nth next call (1: the next; 0: none) of one function, by its exported name, or of any, where
   that is NULL, answers the code and does nothing, and if persistent all behind it. */
typedef void fake_cuda_fail_function_fn(const char *name, uint64_t nth, CUresult code,
                                        int persistent);
/* The name of the call that failed last by that, NULL: none has. */
typedef const char *fake_cuda_failed_fn(void);
/* A fault of a kernel on the device of this thread's current context (none: device 0): from now on
   event records, queries and waits, synchronisation, launches, copies, cuMemAlloc, cuMemFree and
   cuMemGetInfo answer the code, and what is queued has no effect; cuMem* calls of virtual memory,
   context calls and the destruction of events and streams work on, as on a device. It ends with
   the context. */
typedef void fake_cuda_lose_fn(CUresult code);

typedef struct fake_cuda_census {
  size_t handles, mappings, reservations, allocations, events, streams, modules, graphs;
  size_t hosts;                    /* pieces of pinned memory */
  size_t physical_bytes;           /* of device 0 */
  size_t retains;                  /* of the primary context of device 0 */
  size_t pushed;                   /* contexts on this thread's stack */
  size_t pending;                  /* kernels, copies and memsets that have not taken effect yet */
  CUmemAllocationProp last_create; /* of the last cuMemCreate that succeeded */
  size_t last_alignment;           /* asked of the last cuMemAddressReserve that did */
} fake_cuda_census;
typedef void fake_cuda_get_census_fn(fake_cuda_census *out_census);

typedef struct fake_cuda_control { /* found as symbol fake_cuda_control */
  fake_cuda_reset_fn *reset;
  fake_cuda_calls_fn *calls;
  fake_cuda_fail_function_fn *fail_function;
  fake_cuda_failed_fn *failed;
  fake_cuda_lose_fn *lose;
  fake_cuda_get_census_fn *get_census;
  size_t census_bytes; /* for programs that have no cuda.h */
} fake_cuda_control;

#endif
