"""As much of CuPy as gmlake_cupy.py touches, to run it where CuPy is not: streams of the fake
driver, destroyed as soon as Python drops them, and memory that is taken and freed by address."""
import ctypes
import gc
import sys
import types

from fake_driver import cu, destroy_stream, fill, make_current, new_stream, synchronize, word_at


class Graph:
    """Keeps what the stream gathered for it."""

    def __init__(self, graph, kept):
        self.graph, self.kept = graph, kept

    def __del__(self):
        cu("cuGraphDestroy", self.graph)


class BaseStream:
    current = None

    def begin_capture(self, mode=None):
        cu("cuStreamBeginCapture_v2", ctypes.c_void_p(self.ptr), mode or 0)
        self._graph_host_funcargs = []

    def end_capture(self):
        graph, kept = ctypes.c_void_p(), self._graph_host_funcargs
        self._graph_host_funcargs = None
        cu("cuStreamEndCapture", ctypes.c_void_p(self.ptr), ctypes.byref(graph))
        return Graph(graph, kept)

    def is_capturing(self):
        status = ctypes.c_int()
        cu("cuStreamIsCapturing", ctypes.c_void_p(self.ptr), ctypes.byref(status))
        return status.value != 0

    def use(self):
        BaseStream.current = self


class Null(BaseStream):
    ptr = 0


class Stream(BaseStream):
    alive = 0

    def __init__(self):
        self.ptr = new_stream()
        Stream.alive += 1

    def __del__(self):
        destroy_stream(self.ptr)
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
        super().__init__(size, total, limit)


class BaseMemory:
    pass


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class Device:
    def __init__(self, number=0):
        self.number = number

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def synchronize(self):
        synchronize()


hooks, allocators = {}, []


def module():
    Stream.null = BaseStream.current = Null()
    space = types.SimpleNamespace
    return space(
        cuda=space(
            Stream=Stream,
            CFunctionAllocator=CFunctionAllocator,
            Device=Device,
            MemoryPointer=MemoryPointer,
            device=space(get_device_id=lambda: 0),
            get_current_stream=lambda: BaseStream.current,
            memory=space(OutOfMemoryError=OutOfMemoryError, BaseMemory=BaseMemory),
            memory_hook=space(get_memory_hooks=lambda: hooks),
            runtime=space(memGetInfo=lambda: (0, 1 << 30), setDevice=lambda device: None),
            set_allocator=allocators.append,
        )
    )


def streams_come_and_go(allocator):
    """The memory of a stream that Python dropped goes to the stream that has its value now."""
    words, reused = 1 << 18, 0
    for i in range(100):
        stream = Stream()
        value = stream.ptr
        memory = allocator(stream)(words * 4)
        for _ in range(20):
            fill(memory.ptr, 1, words, stream.ptr)
        if i & 1:
            del memory, stream
        else:  # the memory outlives the name of its stream
            del stream
            del memory
        assert Stream.alive == 0
        stream = Stream()
        reused += stream.ptr == value
        memory = allocator(stream)(words * 4)
        fill(memory.ptr, 2, words, stream.ptr)
        assert word_at(memory.ptr) == 2
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


def pool_follows_the_stream(pool):
    """Memory of the stream that is current, which lives as long as it is, or has memory."""
    first, second = Stream(), Stream()
    first.use()
    a = pool.malloc(1 << 20)
    fill(a.ptr, 1, 1 << 18, first.ptr)
    second.use()
    b = pool.malloc(1 << 20)
    fill(b.ptr, 2, 1 << 18, second.ptr)
    assert (word_at(a.ptr), word_at(b.ptr)) == (1, 2) and a.ptr != b.ptr
    assert pool.used_bytes() == 2 << 20 and pool.free_bytes() + (2 << 20) == pool.total_bytes()
    del first
    assert Stream.alive == 2
    del a
    assert Stream.alive == 1
    del b, second
    Stream.null.use()
    assert Stream.alive == 1  # what was current last
    assert pool.malloc(0).ptr == 0
    assert Stream.alive == 0 and pool.used_bytes() == 0
    pool.free_all_blocks()
    assert pool.total_bytes() == 0 and pool.n_free_blocks() == 0


def refuses(pool, size):
    try:
        pool.malloc(size)
    except OutOfMemoryError as error:
        assert error.args == (size, pool.total_bytes(), pool.get_limit())
        return True
    return False


def pool_keeps_its_limit(pool):
    """Free memory is given back before a request is refused."""
    pool.set_limit(size=16 << 20)
    assert pool.get_limit() == 16 << 20
    a, b = pool.malloc(8 << 20), pool.malloc(6 << 20)
    assert refuses(pool, 4 << 20)
    del a
    assert pool.total_bytes() == 14 << 20 and pool.n_free_blocks() == 1
    assert refuses(pool, 12 << 20) and pool.total_bytes() == 6 << 20
    a = pool.malloc(10 << 20)
    assert pool.total_bytes() == 16 << 20 and refuses(pool, 512)
    pool.set_limit(fraction=0.5)
    assert pool.get_limit() == 1 << 29
    pool.set_limit(size=0)
    assert pool.malloc(30 << 20).ptr
    del a, b
    pool.free_all_blocks()


def pool_tells_hooks(pool):
    seen = []

    class Hook:
        def __getattr__(self, name):
            return lambda **told: seen.append((name, told))

    hooks["one"] = Hook()
    a = pool.malloc(1000)
    b = pool.malloc(2000)
    address, identity = a.ptr, id(a.mem)
    del a
    try:
        pool.malloc(1 << 40)
        raise SystemExit("served 1 TiB")
    except OutOfMemoryError:
        pass
    del hooks["one"], b
    names = [name for name, _ in seen]
    whole = ["malloc_preprocess", "alloc_preprocess", "alloc_postprocess", "malloc_postprocess"]
    ends = ["free_preprocess", "free_postprocess"]
    assert names == whole + whole[::3] + ends + whole[::3], names
    assert seen[0][1] == {"device_id": 0, "size": 1000, "mem_size": 1024}
    assert seen[1][1]["mem_size"] == pool.total_bytes()
    assert seen[3][1]["mem_ptr"] == seen[6][1]["mem_ptr"] == address
    assert seen[3][1]["pmem_id"] == seen[6][1]["pmem_id"] == identity
    assert seen[9][1]["mem_ptr"] == 0
    pool.free_all_blocks()


def graphs_keep_their_memory(pool):
    stream = Stream()
    stream.use()
    for is_alive in (True, False):
        stream.begin_capture()
        a = pool.malloc(1 << 20)
        fill(a.ptr, 1, 1 << 18, stream.ptr)
        b = pool.malloc(1 << 20)
        address = b.ptr
        del b
        b = pool.malloc(1 << 20)
        assert b.ptr == address  # used again inside
        del b
        graph = stream.end_capture()
        b = pool.malloc(1 << 20)
        assert b.ptr != address
        del b
        pool.free_all_blocks()
        assert pool.total_bytes() == 2 << 20
        if is_alive:
            del graph
            pool.free_all_blocks()
            assert pool.total_bytes() == 2 << 20  # a lives
        del a
        if not is_alive:
            pool.free_all_blocks()
            assert pool.total_bytes() == 2 << 20  # the graph lives
            del graph
        pool.free_all_blocks()
        assert pool.total_bytes() == 0
    del stream
    Stream.null.use()
    pool.malloc(0)
    assert Stream.alive == 0


if __name__ == "__main__":
    gc.disable()
    make_current()
    sys.modules["cupy"] = module()
    sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else "examples/cupy")
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
    pool = gmlake_cupy.enable()
    assert sys.modules["cupy"]._default_memory_pool is pool is gmlake_cupy.enable()
    assert allocators == [pool.malloc] * 2
    pool.free_all_blocks()
    pool_follows_the_stream(pool)
    pool_keeps_its_limit(pool)
    pool_tells_hooks(pool)
    graphs_keep_their_memory(pool)
