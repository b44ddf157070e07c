"""As much of torch as gmlake_pool touches, to run it where torch is not: the allocator's
functions are called by address, as torch calls them."""
import ctypes
import runpy
import sys
import tempfile
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
    torch.cuda = types.SimpleNamespace(
        current_device=lambda: 0,
        memory=types.SimpleNamespace(
            CUDAPluggableAllocator=CUDAPluggableAllocator,
            change_current_allocator=lambda allocator: setattr(torch, "current", allocator),
        ),
    )
    return torch


def enable():
    """By python3 -m gmlake_pool: the lakes are torch's allocator before the script begins."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        print("import sys, torch; torch.seen = torch.current, *sys.argv", file=script, flush=True)
        sys.argv[:] = ["gmlake_pool", script.name, "argument"]
        runpy.run_module("gmlake_pool", run_name="__main__")
        assert torch.current and torch.seen == (torch.current, script.name, "argument")


def out_of_memory(raiser):
    """What a real function throws, that of the stub notes; NULL: standard error has it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        enable()
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
        assert b"use gmlake_torch" in raised.text()


if __name__ == "__main__":
    library, directory, raiser = sys.argv[1:]
    torch = sys.modules["torch"] = module(directory)
    sys.path.insert(0, "examples/torch_pool")
    import gmlake_pool

    assert gmlake_pool.load(library) is gmlake_pool.load()
    assert gmlake_pool.stats() is None
    out_of_memory(raiser)
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
