"""Gives CuPy its memory from lakes. Install it once, `python3 -m pip install
--no-build-isolation ./examples/cupy`, and call this before anything is on a GPU:

    import gmlake_cupy
    gmlake_cupy.enable()

Arrays then come from the lake of the current device, on the stream that is current. What
cupy.get_default_memory_pool() returns, and the hooks of cupy.cuda.MemoryHook, work on lakes; graphs
(Stream.begin_capture) have memory of their own as long as they, or arrays in it, exist. For one
stream alone there is

    with stream, cupy.cuda.using_allocator(gmlake_cupy.allocator(stream)): ...

Memory is freed on the stream that was current when it was taken. Its blocks, and what was current
last, keep the stream object alive. When nothing does, the lakes forget the stream, before CuPy can
destroy it. The stream of an ExternalStream is not CuPy's: whoever destroys it must wait that long,
and each allocation and free there asks the driver whether it is still the same stream.

Without the package, the library is that of `make cupy`, or the file that GMLAKE_CUPY_LIBRARY names.
Environment variables configure the lakes: see ../torch/adapter.h. Run as a program, this file
computes something on the GPU and prints 1.0.
"""
import ctypes
import glob
import os
import sys
import threading

import cupy


def _path():
    here = os.path.dirname(os.path.abspath(__file__))
    installed = glob.glob(os.path.join(here, "_gmlake_cupy*.so"))
    built = os.path.join(here, "../../build/gmlake_cupy.so")
    return os.environ.get("GMLAKE_CUPY_LIBRARY") or (installed + [built])[0]


# Its calls may destroy a stream, which runs Python code. So they must keep Python's lock, which a
# PyDLL does and a CDLL does not.
LIBRARY = ctypes.PyDLL(_path())
_ADDRESS, _SIZE = ctypes.c_void_p, ctypes.c_size_t
for _name, _result, *_arguments in (
    ("lane_open", _ADDRESS, _ADDRESS, ctypes.py_object, _ADDRESS, _ADDRESS, ctypes.c_int),
    ("lane_close", None, _ADDRESS),
    ("set_limit", None, ctypes.c_int, _SIZE),
    ("usage", ctypes.c_int, ctypes.c_int, ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE)),
    ("free_block_count", _SIZE, ctypes.c_int),
    ("pool_open", _ADDRESS, ctypes.c_int),
    ("pool_close", ctypes.c_int, ctypes.c_int, _ADDRESS),
    ("capture_begin", ctypes.c_int, ctypes.c_int, _ADDRESS, _ADDRESS),
    ("capture_end", ctypes.c_int, ctypes.c_int, _ADDRESS),
):
    _function = getattr(LIBRARY, "gmlake_cupy_" + _name)
    _function.restype, _function.argtypes = _result, _arguments


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


# ---- Memory of a stream ----


class _Lane:
    """Keeps a stream alive until this object and the last block are gone. It holds a reference that
    the garbage collector does not see: in a cycle, the collector could destroy the stream first."""

    _close = LIBRARY.gmlake_cupy_lane_close  # __del__ may run after the module's names are gone
    address = None

    def __init__(self, stream):
        keep, let_go = map(_address, (ctypes.pythonapi.Py_IncRef, ctypes.pythonapi.Py_DecRef))
        # CuPy destroys its own streams with their object. Those of others may end at any time.
        stays = isinstance(stream, cupy.cuda.Stream)
        stays = stays and getattr(stream, "_foreign_stream_ref", None) is None
        self.address = LIBRARY.gmlake_cupy_lane_open(stream.ptr, stream, keep, let_go, stays)
        if not self.address:
            raise MemoryError

    def __del__(self):
        if self.address:
            self._close(self.address)


def _allocator_on(stream):
    if stream.ptr == 2:
        raise ValueError("gmlake_cupy: the per-thread default stream is several: use others")
    if stream.ptr:
        owner = _Lane(stream)
        argument = owner.address
        functions = LIBRARY.gmlake_cupy_lane_malloc, LIBRARY.gmlake_cupy_lane_free
    else:  # the legacy stream, which is never destroyed
        owner, argument = stream, 0
        functions = LIBRARY.gmlake_cupy_malloc, LIBRARY.gmlake_cupy_free
    malloc, free = map(_address, functions)
    return cupy.cuda.CFunctionAllocator(argument, malloc, free, (LIBRARY, owner))


def _usage(device):
    """Bytes that are used, and held."""
    used, held = _SIZE(), _SIZE()
    LIBRARY.gmlake_cupy_usage(device, ctypes.byref(used), ctypes.byref(held))
    return used.value, held.value


def _device():
    return cupy.cuda.device.get_device_id()


def _fail(size):
    device = _device()
    raise cupy.cuda.memory.OutOfMemoryError(size, _usage(device)[1], _limits.get(device, 0))


def _serve(lake, size):
    memory = lake.malloc(size)
    return memory if memory.ptr or not size else _fail(size)


def allocator(stream=cupy.cuda.Stream.null):
    lake = _allocator_on(stream)
    return lambda size: _serve(lake, size)


# ---- The pool ----

_limits = {}  # bytes by device


class _Hooked(cupy.cuda.memory.BaseMemory):
    """Memory whose end is told to the hooks that are in place then."""

    def __init__(self, inner, size):
        self.inner, self.size, self.ptr = inner, size, inner.ptr
        self.device_id = _device()

    def __del__(self):
        if sys.is_finalizing():
            return
        hooks = list(_memory_hooks().values())
        told = {
            "device_id": self.device_id,
            "mem_size": self.size,
            "mem_ptr": self.ptr,
            "pmem_id": id(self),
        }
        for hook in hooks:
            hook.free_preprocess(**told)
        self.inner = None
        for hook in hooks:
            hook.free_postprocess(**told)


_current_stream = cupy.cuda.get_current_stream  # found once: these run for each allocation
_memory_hooks = cupy.cuda.memory_hook.get_memory_hooks


class _Thread(threading.local):
    last = None, None  # the stream that was current last, and its allocator

    def __init__(self):
        # Without a context in the thread, CUDA's runtime takes a microsecond to name the device.
        cupy.cuda.runtime.setDevice(_device())


class Pool:
    """What a cupy.cuda.MemoryPool offers, on the lakes: of the current device, on the current
    stream. Blocks of all streams share the memory. Hooks of allocations from the device are called
    when the lake has grown, with the bytes by which it grew."""

    def __init__(self):
        self._thread = _Thread()

    def malloc(self, size):
        stream = _current_stream()
        if _captures:
            _join_capture(stream)
        last = self._thread.last
        if last[0] is not stream:
            last = self._thread.last = stream, _allocator_on(stream)
        hooks = _memory_hooks()
        if hooks:
            return self._malloc_with(list(hooks.values()), last[1], size)
        memory = last[1].malloc(size)
        return memory if memory.ptr or not size else _fail(size)

    def _malloc_with(self, hooks, lake, size):
        where = {"device_id": _device()}
        told = {**where, "size": size, "mem_size": (size + 511) // 512 * 512}
        memory, held = None, self.total_bytes()
        for hook in hooks:
            hook.malloc_preprocess(**told)
        try:
            inner = _serve(lake, size)
            memory = cupy.cuda.MemoryPointer(_Hooked(inner, told["mem_size"]), 0)
            grown = self.total_bytes() - held
            for hook in hooks if grown > 0 else ():
                hook.alloc_preprocess(mem_size=grown, **where)
                hook.alloc_postprocess(mem_size=grown, mem_ptr=memory.ptr, **where)
        finally:
            address = memory.ptr if memory else 0
            identity = id(memory.mem) if memory else 0
            for hook in hooks:
                hook.malloc_postprocess(mem_ptr=address, pmem_id=identity, **told)
        return memory

    def free_all_blocks(self, stream=None):
        """Waits for the device, and gives free memory back to the driver: of all streams."""
        if not _captures:
            cupy.cuda.Device().synchronize()
            _close_pools()
        LIBRARY.gmlake_torch_empty_cache()

    free_all_free = free_all_blocks

    def n_free_blocks(self):
        return LIBRARY.gmlake_cupy_free_block_count(_device())

    def used_bytes(self):
        return _usage(_device())[0]

    def free_bytes(self):
        used, held = _usage(_device())
        return held - used

    def total_bytes(self):
        return _usage(_device())[1]

    def set_limit(self, size=None, fraction=None):
        """As of MemoryPool: of the current device; 0 removes it."""
        if (size is None) == (fraction is None):
            raise ValueError("either size or fraction must be specified")
        if fraction is not None:
            if not 0 <= fraction <= 1:
                raise ValueError(f"limit fraction out of range: {fraction}")
            size = int(fraction * cupy.cuda.runtime.memGetInfo()[1])
        if size < 0:
            raise ValueError(f"limit size out of range: {size}")
        _limits[_device()] = size
        LIBRARY.gmlake_cupy_set_limit(_device(), size)

    def get_limit(self):
        return _limits.get(_device(), 0)


# ---- Graphs ----


class _GraphMemory:
    """A pool of the lake, for what a graph's capture allocates. The graph keeps this object."""

    pool = None

    def __init__(self, device):
        self.device = device
        self.pool = LIBRARY.gmlake_cupy_pool_open(device)
        if not self.pool:
            raise MemoryError

    def __del__(self):
        if self.pool and not sys.is_finalizing():
            _closing.append((self.device, self.pool))
            if not _captures:
                _close_pools()


class _Capture:
    def __init__(self, memory):
        self.memory, self.streams = memory, []

    def add(self, stream):
        lane = _Lane(stream)
        result = LIBRARY.gmlake_cupy_capture_begin(
            self.memory.device, stream.ptr, self.memory.pool
        )
        if result:
            raise RuntimeError(f"gmlake_capture_begin answers {result}: see standard error")
        self.streams.append((stream.ptr, lane))

    def end(self):
        for ptr, _ in self.streams:
            LIBRARY.gmlake_cupy_capture_end(self.memory.device, ptr)


_captures = {}  # under way, by the value of the stream that each began on
_closing = []  # devices and pools whose graphs are gone
_kept = []  # memory of graphs that end unseen


def _close_pools():
    """Pools with live arrays stay until a later call."""
    for entry in list(_closing):
        with cupy.cuda.Device(entry[0]) as device:
            device.synchronize()  # the graph may still run
        if LIBRARY.gmlake_cupy_pool_close(*entry) == 0:
            _closing.remove(entry)


def _join_capture(stream):
    """Tells the lake of a stream that joined a capture by an event."""
    told = [ptr for capture in _captures.values() for ptr, _ in capture.streams]
    if not stream.ptr or stream.ptr in told or not stream.is_capturing():
        return
    if len(_captures) > 1:
        raise RuntimeError("gmlake_cupy: a stream joined one of several captures: which one?")
    for capture in _captures.values():
        capture.add(stream)


def _graphs_on_lakes():
    streams = next(c for c in cupy.cuda.Stream.__mro__ if "begin_capture" in vars(c))
    begin, end = streams.begin_capture, streams.end_capture

    def begin_capture(self, mode=None):
        if not self.ptr or self.ptr in _captures:
            return begin(self, mode)  # which refuses it
        capture = _Capture(_GraphMemory(_device()))
        capture.add(self)
        try:
            begin(self, mode)
        except BaseException:
            capture.end()
            raise
        _captures[self.ptr] = capture

    def end_capture(self):
        capture = _captures.get(self.ptr)
        if capture:  # the graph gets CuPy's list; a CuPy without it does not tell when graphs end
            getattr(self, "_graph_host_funcargs", _kept).append(capture.memory)
        try:
            return end(self)
        finally:
            if capture:
                del _captures[self.ptr]
                capture.end()

    streams.begin_capture, streams.end_capture = begin_capture, end_capture


_pool = None


def enable():
    """Makes the lakes CuPy's allocator and default memory pool. Returns the pool."""
    global _pool
    if _pool is None:
        _pool = Pool()
        _graphs_on_lakes()
        cupy._default_memory_pool = _pool
    cupy.cuda.set_allocator(_pool.malloc)
    return _pool


if __name__ == "__main__":
    enable()
    a = cupy.arange(1 << 26, dtype=cupy.float32)
    print(float((a * 2 - a).sum() / a.sum()))
