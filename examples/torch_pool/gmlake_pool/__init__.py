"""Gives torch its memory from a lake for each device, without torch's headers: one wheel for torch
2.3 and later, by the names of the hooks that it sets; only 2.11 was run.

    import gmlake_pool
    gmlake_pool.enable()         # before anything is on a GPU

or, for a script that you do not want to edit, python3 -m gmlake_pool script.py arguments...

Every tensor of every thread is then a block of the lake. What does not work:

- CUDA graphs and torch's memory pools: they are refused.
- torch.cuda.memory_stats() and what is made of it, snapshots, memory history: stats() has the
  lake's figures.
- OutOfMemoryError: if memory runs out, a RuntimeError is raised whose text begins with torch's own,
  `CUDA out of memory.`
- Tensors cannot be sent to other processes.

gmlake_torch, built for one torch, has all of these.

Environment variables configure the lakes, as GMLAKE_TORCH_LIMIT_BYTES: examples/torch/adapter.h of
the sources lists them.
"""
import ctypes
import json
import os
import sys
import warnings

try:
    import torch
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        f"gmlake_pool needs torch 2.3 or later, which {sys.executable} does not have"
    ) from None

_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lake.so")
# void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text)
_RAISE = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
# void std::__throw_runtime_error(const char *text)
_RAISE_TEXT = "_ZSt21__throw_runtime_errorPKc"
_loaded = None


def load(path=None):
    """Returns the library, and its path. Only the path of the first call is used."""
    global _loaded
    if _loaded is None:
        path = os.path.abspath(path or _LIBRARY)
        if not os.path.exists(path):
            raise ImportError(
                f"there is no {path}: run `python3 -m pip install --no-build-isolation "
                "./examples/torch_pool` in gmlake's directory, and then your program in another one"
            )
        library = ctypes.CDLL(path)
        library.gmlake_torch_stats_json.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
        _loaded = library, path
    return _loaded


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def _find(library, name):
    """Returns the function's address; None if the library or the function does not exist."""
    try:
        return ctypes.c_void_p(_address(ctypes.CDLL(library)[name]))
    except (OSError, AttributeError):
        return None


def _raise_function(library):
    """Returns the library's setter and its argument, so that errors reach Python as exceptions. The
    names of C++ functions may change from one version of torch to the next."""
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
    """Makes the lakes torch's allocator. Raises RuntimeError if torch's own is already in use."""
    library, path = load(path)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        path, "gmlake_torch_malloc", "gmlake_torch_free"
    )
    set_raise, function = _raise_function(library)
    hooks = allocator.allocator()
    hooks.set_record_stream_fn(_address(library.gmlake_torch_record_stream))
    hooks.set_reset_fn(_address(library.gmlake_torch_empty_cache))
    hooks.set_begin_allocate_to_pool(_address(library.gmlake_torch_refuse_capture))
    torch.cuda.memory.change_current_allocator(allocator)
    set_raise(function)


def _index(device):
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def stats(device=None):
    """Returns gmlake_stats of the device's lake, and its utilization; None if there is no lake."""
    library = load()[0]
    # The text may grow until the second call.
    size = library.gmlake_torch_stats_json(_index(device), None, 0) + 64
    buffer = ctypes.create_string_buffer(size)
    if library.gmlake_torch_stats_json(_index(device), buffer, size) < 0:
        return None
    return json.loads(buffer.value)


def forget_stream(stream):
    """Call it before the stream of a torch.cuda.ExternalStream is destroyed. The driver may give
    the stream's value to a new one, which would get memory that the old one's work still uses."""
    load()[0].gmlake_torch_forget_stream(ctypes.c_void_p(stream.cuda_stream))


PLAIN, COMMUNICATION, URGENT = range(3)


def mark_stream(stream, kind=COMMUNICATION):
    """Says what a torch.cuda.Stream is for. The lake never makes a stream for COMMUNICATION wait
    for memory: other processes wait for its work. So mark the streams on which a program gathers
    and scatters, as those of FSDP, and its own streams for NCCL. Call it once the stream's device
    has served an allocation."""
    if load()[0].gmlake_torch_mark_stream(stream.device_index, ctypes.c_void_p(stream.cuda_stream),
                                          kind):
        raise ValueError("the stream cannot be marked: has its device served an allocation?")


def mark(label):
    """Notes in the recordings, if there are any, that a step of the program begins."""
    load()[0].gmlake_torch_mark(label.encode())


def flush():
    """Writes the recordings to their files. Call it before a process ends by os._exit, which runs
    no destructor."""
    load()[0].gmlake_torch_flush()


def reset_peaks(device=None):
    load()[0].gmlake_torch_reset_peaks(_index(device))
