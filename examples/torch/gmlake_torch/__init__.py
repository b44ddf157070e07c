"""Gives torch its device memory from lakes. Call this before anything is on a GPU:

    import gmlake_torch
    gmlake_torch.enable()

Or run a program that is not to be edited:

    python3 -m gmlake_torch script.py arguments...

Or set GMLAKE_TORCH=1 in the environment: then importing torch is enough, also in the processes that
torchrun or torch.multiprocessing start. CUDA graphs, memory pools, torch.cuda.memory_stats(),
OutOfMemoryError, snapshots and what is built on them work as ever. The allocator's name
(torch.cuda.get_allocator_backend()) is gmlake.

Environment variables configure the lakes: see adapter.h. torch never destroys its own streams; the
lake never touches an external one that may be gone. Only with a driver before CUDA 12, which gives
streams no ids, call forget_stream(stream) before an external stream is destroyed.
"""
import ctypes
import glob
import json
import os
import re
import warnings

_library = None


def _load():
    """The library that was built with this package."""
    import torch  # here, and below: gmlake_torch.predict needs none

    global _library
    if _library is None:
        found = glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lake*.so"))
        if not found:
            raise ImportError(
                f"{os.path.dirname(os.path.abspath(__file__))} is gmlake_torch's source, which has "
                "no library: run `python3 -m pip install --no-build-isolation ./examples/torch` in "
                "gmlake's directory, and then your program in another one"
            )
        library = ctypes.CDLL(found[0])
        library.gmlake_torch_enable.restype = ctypes.c_char_p
        library.gmlake_torch_built_for.restype = ctypes.c_char_p
        library.gmlake_torch_stats_json.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
        library.gmlake_torch_forget_stream.argtypes = [ctypes.c_void_p]
        built_for = library.gmlake_torch_built_for().decode()
        release, commit = built_for.split(" ")
        is_same = torch.__version__.split("+")[0] == release.split("+")[0]
        if not is_same or commit != torch.version.git_version:
            raise ImportError(
                f"gmlake_torch was built for torch {built_for}, and this is {torch.__version__} "
                f"{torch.version.git_version}: run `python3 -m pip install --no-build-isolation "
                "./examples/torch` in gmlake's directory again"
            )
        _library = library
    return _library


def enable():
    """Makes the lakes torch's allocator. Raises RuntimeError if torch's own is in use already."""
    error = _load().gmlake_torch_enable()
    if error:
        raise RuntimeError(f"gmlake_torch.enable(): {error.decode()}")
    ignored = _ignored_settings()
    if ignored:
        warnings.warn(f"gmlake_torch: these settings of torch's allocator do nothing: {ignored}")


def _ignored_settings():
    """Those of PYTORCH_CUDA_ALLOC_CONF that are for another allocator."""
    settings = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    names = re.findall(r"([a-z_0-9]+):", re.sub(r"\[[^]]*\]", "", settings))
    own = ("per_process_memory_fraction", "pinned_", "use_cuda_host_register")
    return ", ".join(name for name in names if not name.startswith(own))


def is_enabled():
    import torch

    return torch.cuda.get_allocator_backend() == "gmlake"


def _index(device):
    if isinstance(device, int):
        return device
    import torch

    index = None if device is None else torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def stats(device=None):
    """Returns gmlake_stats of the device's lake, and its utilization; None if there is no lake."""
    library = _load()
    # The text may grow until the second call.
    size = library.gmlake_torch_stats_json(_index(device), None, 0) + 64
    buffer = ctypes.create_string_buffer(size)
    if library.gmlake_torch_stats_json(_index(device), buffer, size) < 0:
        return None
    return json.loads(buffer.value)


def reset_peaks(device=None):
    """Resets the peaks that stats() shows, not those of torch.cuda.memory_stats()."""
    _load().gmlake_torch_reset_peaks(_index(device))


def mark(label):
    """Writes into the recordings (GMLAKE_TORCH_RECORD) that a step of the program begins."""
    _load().gmlake_torch_mark(str(label).encode())


def flush():
    """Writes the recordings to their files, for a process that will end by os._exit."""
    _load().gmlake_torch_flush()


def forget_stream(stream):
    """Call it before the stream of a torch.cuda.ExternalStream is destroyed."""
    _load().gmlake_torch_forget_stream(stream.cuda_stream)


def offload(limit_bytes, device=None, **options):
    """For `with`: what runs inside takes at most limit_bytes of the device's memory. session.py
    tells how, and lists the options."""
    import torch

    from .session import Calls, Session

    if not is_enabled():
        raise RuntimeError("gmlake_torch.offload: call gmlake_torch.enable() first")
    device = torch.device("cuda", _index(device))
    torch.empty(1, device=device)  # the lake is made when its device is first used
    return Session(Calls(_load()._name), device, limit_bytes, **options)


def plan(step, limit_bytes, setup=None, device=None, link_bytes_per_s=None, path=None, **options):
    """Before training: what would a step take under a limit, or under each of a list of limits?

        print(gmlake_torch.plan(train_step, [9 << 30, 12 << 30], setup=make_model))

    setup() makes the model and the optimizer, and step(...) gets what it returns; four steps run
    without a limit while the session's calls are recorded. step may be a file of such calls
    instead. They are played on a simulated device and link: planning.py says how. path: where the
    recording is kept. options: those of offload."""
    from . import planning

    if not callable(step):
        return planning.of_file(step, limit_bytes, link_bytes_per_s, **options)
    own = offload(0, device, **options)
    if link_bytes_per_s is None:
        link_bytes_per_s = planning.measured_link(own.device)
    return planning.of_step(own, step, limit_bytes, setup, link_bytes_per_s, path)


def step_in_backward(optimizer):
    """The optimizer updates each parameter as soon as its gradient is there: in_backward.py says
    where that is the same. It needs no GPU and no lake. Returns what has remove()."""
    from .in_backward import StepInBackward

    return StepInBackward(optimizer)


def record_graph(path, **options):
    """For `with`: records what runs inside as a graph for build/offload. See record.py. It needs no
    GPU and no lake."""
    from .record import Recorder

    return Recorder(path, **options)


if os.environ.get("GMLAKE_TORCH") == "1":
    enable()
