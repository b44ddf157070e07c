"""As much of torch as gmlake_pluggable.py touches, to run it where torch is not: the allocator's
functions are called by address, as torch calls them."""
import contextlib
import ctypes
import sys
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


def module(path):
    torch = types.ModuleType("torch")
    torch.__file__ = path + "/__init__.py"
    torch.current = None
    torch.device = lambda name: types.SimpleNamespace(index=int(name.split(":")[1]))
    torch.autograd = types.SimpleNamespace(
        set_multithreading_enabled=lambda on: contextlib.nullcontext(on)
    )
    torch.cuda = types.SimpleNamespace(
        current_device=lambda: 0,
        MemPool=lambda allocator: types.SimpleNamespace(allocator=allocator),
        use_mem_pool=lambda pool, device: contextlib.nullcontext(pool),
        memory=types.SimpleNamespace(
            CUDAPluggableAllocator=CUDAPluggableAllocator,
            change_current_allocator=lambda allocator: setattr(torch, "current", allocator),
        ),
    )
    return torch


def out_of_memory(gmlake_pluggable, raiser):
    """What a real function throws, that of the stub notes; NULL: standard error has it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gmlake_pluggable.enable()
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
        assert b"gmlake_pluggable.pool()" in raised.text()


if __name__ == "__main__":
    library, directory, raiser = sys.argv[1:]
    torch = sys.modules["torch"] = module(directory)
    sys.path.insert(0, "examples/torch")
    import gmlake_pluggable

    assert gmlake_pluggable.load(library)[1] is gmlake_pluggable.load()[1]
    assert gmlake_pluggable.stats() is None
    with gmlake_pluggable.pool(path=library) as pool:
        assert pool.allocator is gmlake_pluggable._allocators[0].hooks
    out_of_memory(gmlake_pluggable, raiser)
    malloc, free = torch.current.malloc, torch.current.free
    block = malloc(3 << 20, 0, None)
    assert block and gmlake_pluggable.stats("cuda:0")["active_bytes"] == 3 << 20
    hooks = torch.current.hooks.set
    record_stream = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    record_stream(hooks["set_record_stream_fn"])(block, 1)
    free(block, 3 << 20, 0, None)
    gmlake_pluggable.mark("no recording")
    gmlake_pluggable.flush()
    gmlake_pluggable.forget_stream(types.SimpleNamespace(cuda_stream=1))
    ctypes.CFUNCTYPE(None)(hooks["set_reset_fn"])()
    gmlake_pluggable.reset_peaks(0)
    assert gmlake_pluggable.stats(0)["reserved_bytes_peak"] == 0, gmlake_pluggable.stats(0)
