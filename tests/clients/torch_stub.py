"""As much of torch as gmlake_pool touches, to run it where torch is not: the allocator's
functions are called by address, as torch calls them."""
import contextlib
import ctypes
import sys
import threading
import types
import warnings


class Hooks:
    def __init__(self):
        self.set = {}

    def __getattr__(self, name):
        return lambda address: self.set.__setitem__(name, address)


class CUDAPluggableAllocator:
    def __init__(self, path, malloc_name, free_name):
        library = ctypes.CDLL(path)
        self.hooks = Hooks()
        self.malloc = library[malloc_name]
        self.malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self.malloc.restype = ctypes.c_void_p
        self.free = library[free_name]
        self.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]

    def allocator(self):
        return self.hooks


class MemPool:
    """Notes what happens to it in `steps`."""

    steps = []

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        self.allocator, self.no_split = allocator, no_split
        self.steps.append("made")

    def __del__(self):
        self.steps.append("gone")


class OldMemPool(MemPool):  # before torch 2.10
    def __init__(self, allocator=None):
        super().__init__(allocator)


@contextlib.contextmanager
def use_mem_pool(pool, device):
    assert device == 0
    MemPool.steps.append("begins")
    try:
        yield
    finally:
        MemPool.steps.append("ends")


class Handle:
    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)

    def remove(self):
        self.hooks.remove(self.hook)


class Optimizer:
    before, after = [], []

    def step(self):
        for hook in (*self.before, *self.after):
            hook(self, (), {})


def optimizer_module():
    found = types.ModuleType("torch.optim.optimizer")
    found.register_optimizer_step_pre_hook = lambda hook: Handle(Optimizer.before, hook)
    found.register_optimizer_step_post_hook = lambda hook: Handle(Optimizer.after, hook)
    return found


def module(path):
    torch = types.ModuleType("torch")
    torch.__file__ = path + "/__init__.py"
    torch.__version__ = "2.11"
    torch.current, torch.is_capturing = None, False
    torch.optim = types.ModuleType("torch.optim")
    torch.optim.optimizer = optimizer_module()
    sys.modules.update({"torch.optim": torch.optim})
    torch.device = lambda name: types.SimpleNamespace(index=int(name.split(":")[1]))
    torch.autograd = types.SimpleNamespace(
        set_multithreading_enabled=lambda on: contextlib.nullcontext(on)
    )
    torch.cuda = types.SimpleNamespace(
        current_device=lambda: 0,
        MemPool=MemPool,
        use_mem_pool=use_mem_pool,
        device=lambda index: contextlib.nullcontext(),
        synchronize=lambda device: MemPool.steps.append("waits"),
        empty_cache=lambda: MemPool.steps.append("empties"),
        is_current_stream_capturing=lambda: torch.is_capturing,
        memory=types.SimpleNamespace(
            CUDAPluggableAllocator=CUDAPluggableAllocator,
            change_current_allocator=lambda allocator: setattr(torch, "current", allocator),
        ),
    )
    return torch


def pools(gmlake_pool):
    """A pool is renewed before an optimizer's first step and after each; torch then has all work
    complete before it ends a pool, and has none when it lets go of it."""
    steps, optimizer = MemPool.steps, Optimizer()
    renewal = ["waits", "ends", "gone", "empties", "made", "begins"]
    with gmlake_pool.pool() as pool:
        assert steps == ["made", "begins"], steps
        assert not pool._mem_pool.no_split and pool._mem_pool.allocator is pool._allocator
        for expected in (2, 1, 1):
            steps.clear()
            optimizer.step()
            assert steps == renewal * expected, steps
        steps.clear()
        torch.is_capturing = True
        pool.renew()
        torch.is_capturing = False
        thread = threading.Thread(target=pool.renew)
        thread.start(), thread.join()
        assert not steps and pool.renewal_count == 4
    assert steps == renewal[:4] and not Optimizer.before and not Optimizer.after, steps
    with gmlake_pool.pool(no_split=True, renews=False) as pool:
        assert pool._mem_pool.no_split
        steps.clear()
        optimizer.step()
        assert not steps
        pool.renew()
        assert steps == renewal
    torch.cuda.MemPool = OldMemPool
    with gmlake_pool.pool():
        pass
    try:
        gmlake_pool.pool(no_split=True).__enter__()
        assert False
    except TypeError as error:
        assert "does not take no_split" in str(error)
    steps.clear()
    gmlake_pool.use()
    assert steps == ["made", "begins"] and len(Optimizer.after) == 1
    gmlake_pool._end()
    assert steps[2:] == renewal[:4] and not Optimizer.after


def segments(gmlake_pool):
    """What torch calls for a pool."""
    allocator = gmlake_pool._allocator("segment_")
    block = allocator.malloc(3 << 20, 0, None)
    assert block and gmlake_pool.stats("cuda:0")["active_bytes"] == 3 << 20
    allocator.free(block, 3 << 20, 0, None)
    assert gmlake_pool.stats(0)["active_bytes"] == 0


def out_of_memory(gmlake_pool, raiser):
    """What a real function throws, that of the stub notes; NULL: standard error has it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gmlake_pool.enable()
    assert not torch.current.malloc(1 << 50, 0, None)
    texts = [str(warning.message) for warning in caught]
    if "libc10" in raiser:
        assert not texts, texts
    else:
        assert len(texts) == 1 and "_ZN3c106detail14torchCheckFail" in texts[0], texts
        assert ("does not raise" in texts[0]) == (not raiser), texts
    if raiser:
        raised = ctypes.CDLL(raiser)
        raised.text.restype = ctypes.c_char_p
        assert raised.text().startswith(b"CUDA out of memory. Tried to allocate"), raised.text()
        ctypes.CFUNCTYPE(None)(torch.current.hooks.set["set_begin_allocate_to_pool"])()
        assert b"gmlake_pool.pool()" in raised.text()


if __name__ == "__main__":
    library, directory, raiser = sys.argv[1:4]
    torch = sys.modules["torch"] = module(directory)
    sys.path.insert(0, "examples/torch_pool")
    import gmlake_pool

    assert gmlake_pool.load(library) is gmlake_pool.load()
    assert gmlake_pool.stats() is None
    pools(gmlake_pool)
    if sys.argv[4:] == ["segments"]:  # a process uses its lakes in one way
        segments(gmlake_pool)
        sys.exit()
    out_of_memory(gmlake_pool, raiser)
    malloc, free = torch.current.malloc, torch.current.free
    block = malloc(3 << 20, 0, None)
    assert block and gmlake_pool.stats("cuda:0")["active_bytes"] == 3 << 20
    hooks = torch.current.hooks.set
    record_stream = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    record_stream(hooks["set_record_stream_fn"])(block, 1)
    free(block, 3 << 20, 0, None)
    gmlake_pool.mark("no recording")
    gmlake_pool.flush()
    gmlake_pool.forget_stream(types.SimpleNamespace(cuda_stream=1))
    ctypes.CFUNCTYPE(None)(hooks["set_reset_fn"])()
    gmlake_pool.reset_peaks(0)
    assert gmlake_pool.stats(0)["reserved_bytes_peak"] == 0, gmlake_pool.stats(0)
