"""A lake as torch's memory: `make torch`, then, before anything is on a GPU,

    import gmlake_torch
    gmlake_torch.enable()

Every tensor then comes from the lake of its device. Running out raises a RuntimeError whose text
begins with torch's own, `CUDA out of memory.`; torch.cuda.memory_stats() and what builds on it is
not to be had, gmlake_torch.stats() is. CUDA graphs are refused.

    with gmlake_torch.pool():
        ...

leaves torch its allocator, which then takes its segments from the lake for what the thread
allocates inside: running out raises torch.OutOfMemoryError, torch's statistics and graphs work, and
torch's segments lose what they lose. One process uses one of the two.

Streams of torch's own are never destroyed. An external one must outlive the tensors that were
allocated on it, since their memory is freed on it; that it is destroyed then, with work still to
do, is noticed. gmlake_torch.forget_stream(stream) has to be called before only where a tensor that
lives on was recorded on it (Tensor.record_stream), and always with pool().

Environment variables configure the lakes: see gmlake_torch.c.
"""
import contextlib
import ctypes
import json
import os
import warnings

import torch

_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/gmlake_torch.so")
# void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text)
_RAISE = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
# void std::__throw_runtime_error(const char *text)
_RAISE_TEXT = "_ZSt21__throw_runtime_errorPKc"
_loaded = None


def load(path=None):
    """The library, and torch's object for it; only the first call's path counts."""
    global _loaded
    if _loaded is None:
        path = os.path.abspath(path or _LIBRARY)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            path, "gmlake_torch_malloc", "gmlake_torch_free"
        )
        library = ctypes.CDLL(path)
        library.gmlake_torch_stats_json.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
        _loaded = library, allocator
    return _loaded


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def _find(library, name):
    """The function's address; None where the library or the function is not there."""
    try:
        return ctypes.c_void_p(_address(ctypes.CDLL(library)[name]))
    except (OSError, AttributeError):
        return None


def _raise_function(library):
    """The library's setter, and what to call it with, so that errors reach Python. Names of C++ may
    change from one torch to the next."""
    c10 = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
    function = _find(c10, _RAISE)
    if function:
        return library.gmlake_torch_set_raise, function
    function = _find("libstdc++.so.6", _RAISE_TEXT)
    if function:
        warnings.warn(
            f"gmlake_torch: {c10} has no {_RAISE}: running out of memory raises RuntimeError as "
            "ever, but to C++ it is std::runtime_error, no c10::Error, and it carries no C++ stack"
        )
        return library.gmlake_torch_set_raise_text, function
    warnings.warn(
        f"gmlake_torch: neither {_RAISE} in {c10} nor {_RAISE_TEXT} in libstdc++.so.6 was found: "
        "running out of memory does not raise. Standard error says why, and the tensor has address "
        "0: the work that uses it fails. CUDA graphs are not refused either: capture none"
    )
    return library.gmlake_torch_set_raise_text, None


def enable(path=None):
    """Makes the lakes torch's allocator. Raises RuntimeError where torch has used its own."""
    library, allocator = load(path)
    set_raise, function = _raise_function(library)
    hooks = allocator.allocator()
    hooks.set_record_stream_fn(_address(library.gmlake_torch_record_stream))
    hooks.set_reset_fn(_address(library.gmlake_torch_empty_cache))
    hooks.set_begin_allocate_to_pool(_address(library.gmlake_torch_refuse_capture))
    torch.cuda.memory.change_current_allocator(allocator)
    set_raise(function)


@contextlib.contextmanager
def pool(device=None, path=None):
    """What this thread allocates inside, backward passes too, is a torch.cuda.MemPool's."""
    library, allocator = load(path)
    library.gmlake_torch_streams_stay()  # graphs are captured that the lakes are not told of
    mem_pool = torch.cuda.MemPool(allocator.allocator())
    backward_here = torch.autograd.set_multithreading_enabled(False)
    with torch.cuda.use_mem_pool(mem_pool, device), backward_here:
        yield mem_pool


def _index(device):
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def stats(device=None):
    """gmlake_stats of the device's lake, and its utilization; None where there is no lake yet."""
    library = load()[0]
    size = library.gmlake_torch_stats_json(_index(device), None, 0) + 64  # it may grow meanwhile
    buffer = ctypes.create_string_buffer(size)
    if library.gmlake_torch_stats_json(_index(device), buffer, size) < 0:
        return None
    return json.loads(buffer.value)


def forget_stream(stream):
    """To be called before a torch.cuda.ExternalStream's stream is destroyed: the driver gives its
    value to a new one, which would get memory that the former one's work still uses."""
    load()[0].gmlake_torch_forget_stream(ctypes.c_void_p(stream.cuda_stream))


def reset_peaks(device=None):
    load()[0].gmlake_torch_reset_peaks(_index(device))
