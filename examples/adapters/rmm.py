"""Gives RMM its device memory from a lake, in Python. Build the library with `make torch`, then

    import rmm, gmlake_rmm   # this file, copied under that name
    rmm.mr.set_current_device_resource(gmlake_rmm.resource("build/gmlake_pluggable.so"))

A Python function runs for each allocation and free: for speed use cccl_resource.hpp in C++. Each
memory is freed behind the work of the stream that RMM names, without a wait. Written for RMM 25.02
and later, whose streams tell their address by __cuda_stream__; checked with the text of 26.08.
"""
import ctypes

import rmm


def resource(path, device=0):
    """path: of the library. device: its number in this process."""
    library = ctypes.CDLL(path)
    malloc, free = library.gmlake_torch_malloc, library.gmlake_torch_free
    malloc.restype = ctypes.c_void_p
    malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    free.restype = None
    free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]

    def allocate(size, stream):
        ptr = malloc(size, device, stream.__cuda_stream__()[1])
        if size and not ptr:
            raise MemoryError(f"gmlake has no {size} bytes")
        return ptr or 0

    def deallocate(ptr, size, stream):
        free(ptr, size, device, stream.__cuda_stream__()[1])

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)
