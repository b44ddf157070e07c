/* What stands in front of a program of tests/play that is played over the CUDA backend, on the
   driver without a device (cuda_device.h). */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* gmlake.h wants it, and is not the first header here */
#endif
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

#include "fake_cuda.h"
#include "gpu.h"

#if !defined(BUILD)
#define BUILD "build" /* the Makefile's folder */
#endif
/* The fake, by its path: there may be a real driver on the machine. */
#define DRIVER_PATH BUILD "/fake/libcuda.so.1"
static void *open_fake(int flags) { return dlopen(DRIVER_PATH, flags); }
#define dlopen(name, flags) open_fake(flags)
/* What the system has available, where the device is integrated: see cuda_device.h. */
static FILE *open_meminfo(const char *name, const char *mode);
#define fopen(name, mode) open_meminfo(name, mode)
#define HAS_MEMINFO
#define GMLAKE_BACKEND_CUDA
#define PLAY_DEVICE "../gpu/cuda_device.h"
