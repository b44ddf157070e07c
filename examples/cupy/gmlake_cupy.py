"""A lake as CuPy's memory: `make cupy`, then `cupy.cuda.set_allocator(gmlake_cupy.allocator())`, or
for work on a stream `with stream, cupy.cuda.using_allocator(gmlake_cupy.allocator(stream)): ...`.
What such an allocator hands out is freed on its stream. Run as a program it prints 1.0."""
import ctypes
import os

import cupy

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/gmlake_cupy.so")
LIBRARY = ctypes.CDLL(PATH)


def allocator(stream=cupy.cuda.Stream.null):
    functions = LIBRARY.gmlake_cupy_malloc, LIBRARY.gmlake_cupy_free
    malloc, free = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
    lake = cupy.cuda.CFunctionAllocator(stream.ptr, malloc, free, (LIBRARY, stream))

    def allocate(size):
        memory = lake.malloc(size)
        if size and not memory.ptr:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return memory

    return allocate


if __name__ == "__main__":
    cupy.cuda.set_allocator(allocator())
    a = cupy.arange(1 << 26, dtype=cupy.float32)
    print(float((a * 2 - a).sum() / a.sum()))
