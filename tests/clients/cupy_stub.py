"""As much of CuPy as gmlake_cupy.py touches, to run it where CuPy is not: streams of the fake
driver, destroyed as soon as Python drops them, and memory that is taken and freed by address."""
import ctypes
import gc
import sys
import types

driver = ctypes.CDLL("libcuda.so.1")


def cu(name, *arguments):
    result = getattr(driver, name)(*arguments)
    assert result == 0, (name, result)


class Stream:
    alive = 0

    def __init__(self):
        value = ctypes.c_void_p()
        cu("cuStreamCreate", ctypes.byref(value), 1)
        self.ptr = value.value
        Stream.alive += 1

    def __del__(self):
        cu("cuStreamDestroy_v2", ctypes.c_void_p(self.ptr))
        Stream.alive -= 1


class Memory:
    """Keeps neither the allocator nor the stream, as CuPy's does not."""

    def __init__(self, size, argument, malloc, free):
        call = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self.ptr = call(malloc)(argument, size, 0) or 0
        self.argument = argument
        self.free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(free)

    def __del__(self):
        if self.ptr:
            self.free(self.argument, self.ptr, 0)


class CFunctionAllocator:
    def __init__(self, argument, malloc, free, owner):
        self.functions = argument, malloc, free
        self.owner = owner

    def malloc(self, size):
        return Memory(size, *self.functions)


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit):
        super().__init__(size)


def module():
    Stream.null = types.SimpleNamespace(ptr=0)
    return types.SimpleNamespace(
        cuda=types.SimpleNamespace(
            Stream=Stream,
            CFunctionAllocator=CFunctionAllocator,
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        )
    )


def start():
    context = ctypes.c_void_p()
    cu("cuInit", 0)
    cu("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    cu("cuCtxSetCurrent", context)


def fill(memory, value, words, stream):
    address, handle = ctypes.c_void_p(memory.ptr), ctypes.c_void_p(stream.ptr)
    cu("cuMemsetD32Async", address, value, ctypes.c_size_t(words), handle)


def first_word(memory):
    word = ctypes.c_uint32()
    cu("cuCtxSynchronize")
    cu("cuMemcpyDtoH_v2", ctypes.byref(word), ctypes.c_void_p(memory.ptr), ctypes.c_size_t(4))
    return word.value


def streams_come_and_go(allocator):
    """The memory of a stream that Python dropped goes to the stream that has its value now."""
    words, reused = 1 << 18, 0
    for i in range(100):
        stream = Stream()
        value = stream.ptr
        memory = allocator(stream)(words * 4)
        for _ in range(20):
            fill(memory, 1, words, stream)
        if i & 1:
            del memory, stream
        else:  # the memory outlives the name of its stream
            del stream
            del memory
        assert Stream.alive == 0
        stream = Stream()
        reused += stream.ptr == value
        memory = allocator(stream)(words * 4)
        fill(memory, 2, words, stream)
        assert first_word(memory) == 2
        del memory, stream
    assert reused


def cycles_end(allocator):
    """What the garbage collector finds, in whatever order it takes it."""
    for _ in range(3):
        holder = types.SimpleNamespace(stream=Stream())
        holder.holder = holder
        holder.allocate = allocator(holder.stream)
        holder.memory = [holder.allocate(1 << 20) for _ in range(3)]
        del holder
    assert Stream.alive == 3
    gc.collect()
    assert Stream.alive == 0


if __name__ == "__main__":
    gc.disable()
    start()
    sys.modules["cupy"] = module()
    sys.path.insert(0, "examples/cupy")
    import gmlake_cupy

    null = gmlake_cupy.allocator()
    for allocate in null, gmlake_cupy.allocator(Stream()):
        kept = allocate(4096)
        assert kept.ptr and allocate(0).ptr == 0
        try:
            allocate(1 << 40)
            raise SystemExit("served 1 TiB")
        except OutOfMemoryError:
            pass
    del allocate, kept
    streams_come_and_go(gmlake_cupy.allocator)
    cycles_end(gmlake_cupy.allocator)
