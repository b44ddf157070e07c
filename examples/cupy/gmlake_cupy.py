"""A lake as CuPy's memory: `make cupy`, then `cupy.cuda.set_allocator(gmlake_cupy.allocator())`, or
for work on a stream `with stream, cupy.cuda.using_allocator(gmlake_cupy.allocator(stream)): ...`.
What such an allocator hands out is freed on its stream. The allocator and its blocks keep the
stream; the lake forgets it when the last of them is gone, before CuPy can destroy it. Of an
ExternalStream's stream this is who destroys it to see to. Run as a program it prints 1.0. The
library is that of `make cupy`, or the file that GMLAKE_CUPY_LIBRARY names."""
import ctypes
import os

import cupy

PATH = os.environ.get("GMLAKE_CUPY_LIBRARY") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../build/gmlake_cupy.so"
)
# Its calls may destroy a stream, and so run Python: unlike those of a CDLL they keep Python's lock.
LIBRARY = ctypes.PyDLL(PATH)
LIBRARY.gmlake_cupy_lane_open.restype = ctypes.c_void_p
LIBRARY.gmlake_cupy_lane_open.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
LIBRARY.gmlake_cupy_lane_close.argtypes = [ctypes.c_void_p]


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


class _Lane:
    """Keeps a stream until this object and the last block are gone: by a reference that the garbage
    collector does not see, since it would destroy a stream before what else is in a cycle."""

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
    else:  # the legacy stream, which nobody destroys
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
