"""Gives CuPy its memory from a lake. Run `make cupy`, then for the legacy stream

    cupy.cuda.set_allocator(gmlake_cupy.allocator())

or for the work on another stream

    with stream, cupy.cuda.using_allocator(gmlake_cupy.allocator(stream)): ...

Memory from such an allocator is freed on the allocator's stream. The allocator and its blocks keep
the stream object alive. When the last of them is gone, the lake forgets the stream, before CuPy can
destroy it. The stream of an ExternalStream is not CuPy's: whoever destroys it must wait that long.

The library is that of `make cupy`, or the file that GMLAKE_CUPY_LIBRARY names. Run as a program,
this file computes something on the GPU and prints 1.0.
"""
import ctypes
import os

import cupy

PATH = os.environ.get("GMLAKE_CUPY_LIBRARY") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../build/gmlake_cupy.so"
)
# Its calls may destroy a stream, which runs Python code. So they must keep Python's lock, which a
# PyDLL does and a CDLL does not.
LIBRARY = ctypes.PyDLL(PATH)
LIBRARY.gmlake_cupy_lane_open.restype = ctypes.c_void_p
LIBRARY.gmlake_cupy_lane_open.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
LIBRARY.gmlake_cupy_lane_close.argtypes = [ctypes.c_void_p]


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


class _Lane:
    """Keeps a stream alive until this object and the last block are gone. It holds a reference that
    the garbage collector does not see: in a cycle, the collector could destroy the stream first."""

    _close = LIBRARY.gmlake_cupy_lane_close  # __del__ may run after the module's names are gone
    address = None

    def __init__(self, stream):
        let_go = _address(ctypes.pythonapi.Py_DecRef)
        self.address = LIBRARY.gmlake_cupy_lane_open(stream.ptr, stream, let_go)
        if not self.address:
            raise MemoryError
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))

    def __del__(self):
        if self.address:
            self._close(self.address)


def allocator(stream=cupy.cuda.Stream.null):
    if stream.ptr:
        owner = _Lane(stream)
        argument = owner.address
        functions = LIBRARY.gmlake_cupy_lane_malloc, LIBRARY.gmlake_cupy_lane_free
    else:  # the legacy stream, which is never destroyed
        owner, argument = stream, 0
        functions = LIBRARY.gmlake_cupy_malloc, LIBRARY.gmlake_cupy_free
    malloc, free = map(_address, functions)
    lake = cupy.cuda.CFunctionAllocator(argument, malloc, free, (LIBRARY, owner))

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
