"""Gives torch its segments from a lake, below torch's own allocator: for every torch that has
torch.cuda.MemPool, without torch's headers.

    import gmlake_pool
    gmlake_pool.use()            # from here on, what this thread allocates

    with gmlake_pool.pool():     # or: what it allocates inside
        ...

or, for a script that you do not want to edit, python3 -m gmlake_pool script.py arguments...

torch's allocator stays what it is: memory_stats(), OutOfMemoryError, CUDA graphs, snapshots. It
takes segments from the lake and cuts them. Where a step of an optimizer begins for the first time,
and where each one ends, the pool is renewed: torch gives what is free back to the lake, which makes
the segments of the next step of it, stitched where it does not lie together. pool.renew() does so
elsewhere, for example between a server's requests.

What to know:
- Inside of the pool torch gives nothing back by itself, also when memory runs out, before the pool
  is renewed. To renew waits for the device.
- Memory that record_stream named waits for the next renewal, too.
- Only this thread's allocations come from the pool. So backward passes run in this thread.
- Tensors cannot be sent to other processes: they need torch's own segments.
- no_split=True: torch does not cut segments, so each tensor is one. Up to 1 MiB it then takes 2
  MiB, up to 10 MiB 20. It is for programs whose tensors are all large. It needs a torch whose
  MemPool takes no_split.

enable() is another way, for a torch that gmlake_torch is not for: every tensor is a block of the
lake, of every thread, without torch's allocator above it. Call it before anything is on a GPU. Then
memory_stats() and CUDA graphs do not work; if memory runs out, a RuntimeError is raised whose text
begins with torch's own, `CUDA out of memory.` A process uses one of the two.

Environment variables configure the lakes: see adapter.h.
"""
import atexit
import contextlib
import ctypes
import inspect
import json
import os
import threading
import warnings

import torch

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


_allocators = {}


def _allocator(kind, path=None):
    """torch's object for the library's functions. It lives as long as the process."""
    if kind not in _allocators:
        _allocators[kind] = torch.cuda.memory.CUDAPluggableAllocator(
            load(path)[1], f"gmlake_torch_{kind}malloc", f"gmlake_torch_{kind}free"
        )
    return _allocators[kind]


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
    library = load(path)[0]
    allocator = _allocator("", path)
    set_raise, function = _raise_function(library)
    hooks = allocator.allocator()
    hooks.set_record_stream_fn(_address(library.gmlake_torch_record_stream))
    hooks.set_reset_fn(_address(library.gmlake_torch_empty_cache))
    hooks.set_begin_allocate_to_pool(_address(library.gmlake_torch_refuse_capture))
    torch.cuda.memory.change_current_allocator(allocator)
    set_raise(function)


class Pool:
    """torch's pools over the lake, one after the other: a new one begins with each renewal."""

    def __init__(self, device, path, no_split):
        self._allocator = _allocator("segment_", path).allocator()
        self._options = {}
        if no_split:
            if "no_split" not in inspect.signature(torch.cuda.MemPool.__init__).parameters:
                raise TypeError(f"MemPool of torch {torch.__version__} does not take no_split")
            self._options["no_split"] = True
        self._device = torch.cuda.current_device() if device is None else _index(device)
        self._thread = threading.get_ident()
        self._mem_pool = self._route = None
        self._stepped = set()  # the optimizers that have made a step
        self.renewal_count = 0

    def _open(self):
        with torch.cuda.device(self._device):  # a MemPool is the current device's
            self._mem_pool = torch.cuda.MemPool(self._allocator, **self._options)
        self._route = torch.cuda.use_mem_pool(self._mem_pool, self._device)
        self._route.__enter__()

    def _close(self):
        # What record_stream was told inside of a pool torch forgets when the pool ends, as if a
        # graph had been captured. So all work has to be complete by then.
        try:
            torch.cuda.synchronize(self._device)
        finally:
            route, self._route = self._route, None
            route.__exit__(None, None, None)
        self._mem_pool = None  # gives back what is free in it,
        torch.cuda.empty_cache()  # and this what is free in former ones

    def renew(self):
        """torch gives back what is free. Nothing happens in another thread, or while a graph is
        captured."""
        if (
            self._route is None
            or self._thread != threading.get_ident()
            or torch.cuda.is_current_stream_capturing()
        ):
            return
        self._close()
        self._open()
        self.renewal_count += 1

    def _before_step(self, optimizer, *_):
        """The states, which stay, are not to lie between what activations left."""
        if id(optimizer) not in self._stepped:
            self._stepped.add(id(optimizer))
            self.renew()

    def _after_step(self, *_):
        self.renew()


@contextlib.contextmanager
def pool(device=None, path=None, no_split=False, renews=True):
    """What this thread allocates inside, in backward passes too, comes from a pool over the lake.
    renews=False: steps of optimizers do not renew it."""
    from torch.optim import optimizer

    made = Pool(device, path, no_split)
    with contextlib.ExitStack() as stack:
        if renews:
            before = optimizer.register_optimizer_step_pre_hook(made._before_step)
            stack.callback(before.remove)
            stack.callback(optimizer.register_optimizer_step_post_hook(made._after_step).remove)
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        made._open()
        stack.callback(lambda: made._close() if made._route else None)
        yield made


_used = contextlib.ExitStack()


def use(**options):
    """What this thread allocates from here on comes from a pool over the lake, as inside of
    `with pool(**options)`. Returns the pool."""
    made = _used.enter_context(pool(**options))
    atexit.register(_end)
    return made


def _end():
    """A program that ends by an error on the device is not to end by another one here."""
    with contextlib.suppress(RuntimeError):
        _used.close()


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
