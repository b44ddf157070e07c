"""Records what a program of torch executes as a graph for build/offload:

    import gmlake_torch
    with gmlake_torch.record_graph("step.gmgraph"):
        model, optimizer = ...       # on a GPU, on the device meta, or of fake tensors
        for batch in batches:        # two are enough
            train(model, optimizer, batch)

An iteration ends where a step of an optimizer has ended. A program without optimizer says
record_graph(path, marks_steps=False), and calls mark() of what that returns before each iteration
and after the last one.

On a GPU, operators are timed by events. Elsewhere their times are estimates from their arithmetic
and their bytes, so that a batch which fits no GPU can be recorded.
"""
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef

from .dispatch import OVERWRITE, READ, Dispatch, covers, on_step, storage_of, tensors_in

# What an H200 does in matrix products and in elementwise operators, by the times in
# bench/graphs/llama-7b-lora-b8-1k.gmgraph.gz.
FLOPS_PER_S = 600e12
BYTES_PER_S = 2.5e12
LAUNCH_NS = 2000


class _Storage:
    def __init__(self, storage, number, is_born):
        self.weak = StorageWeakRef(storage)  # while it exists, no other storage has this address
        self.number, self.bytes = number, storage.nbytes()
        self.is_born = is_born  # an operator made it, else it was there before
        self.is_persistent = True


class Recorder(Dispatch):
    """What record_graph returns."""

    def __init__(self, path, marks_steps=True, flops_per_s=FLOPS_PER_S, bytes_per_s=BYTES_PER_S):
        super().__init__()
        self._path, self._marks_steps = path, marks_steps
        self._flops_per_s, self._bytes_per_s = flops_per_s, bytes_per_s
        self._flops = _flop_formulas()
        self._storages, self._by_address = [], {}
        self._lines, self._times, self._mark_count = [], [], 0
        self._hook = None

    def mark(self, label=None):
        """An iteration begins here, or the last one ends."""
        for storage in self._storages:
            storage.is_persistent &= not storage.weak.expired()
        self._lines.append(f"m {label or f'iteration {self._mark_count}'}")
        self._mark_count += 1

    # ---- What torch calls ----

    def __enter__(self):
        if self._marks_steps:
            self._hook = on_step(after=lambda *_: self.mark())
        return super().__enter__()

    def __exit__(self, kind, error, trace):
        super().__exit__(kind, error, trace)
        if self._hook:
            self._hook.remove()
        if kind is None:
            self._write()

    def operate(self, func, operator, args, kwargs):
        reads, writes, example = {}, {}, None
        for example, how in operator.tensors(args, kwargs):
            number = self._number(example, False)
            if how != OVERWRITE or not covers(example):
                reads[number] = None
            if how != READ:
                writes[number] = None
        before = _event(example)
        result = func(*args, **kwargs)
        for example in tensors_in(result):
            if storage_of(example)._cdata not in self._by_address:
                writes[self._number(example, True)] = None
        after = _event(example)
        if after is None:
            self._times.append(self._estimate(func, operator, args, kwargs, result))
        else:
            self._times.append((before or after, after))
        name = operator.name[5:] if operator.name[:5] == "aten." else operator.name
        self._lines.append((name.replace(" ", "_"), [*reads], [*writes]))
        return result

    # ---- Storages and times ----

    def _number(self, tensor, is_born):
        storage = storage_of(tensor)
        known = self._by_address.get(storage._cdata)
        if known is None:
            known = _Storage(storage, len(self._storages), is_born and self._mark_count > 0)
            self._by_address[storage._cdata] = known
            self._storages.append(known)
        known.bytes = max(known.bytes, storage.nbytes())
        return known.number

    def _estimate(self, func, operator, args, kwargs, result):
        tensors = [tensor for tensor, _ in operator.tensors(args, kwargs)]
        tensors += tensors_in(result)
        bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        formula = self._flops.get(getattr(func, "overloadpacket", None))
        flops = formula(*args, **kwargs, out_val=result) if formula else 0
        return LAUNCH_NS + int(1e9 * max(flops / self._flops_per_s, bytes / self._bytes_per_s))

    # ---- The file ----

    def _write(self):
        is_timed = any(isinstance(time, tuple) for time in self._times)
        if is_timed:
            torch.cuda.synchronize()
        times = iter(self._times)
        with open(self._path, "w") as file:
            print("gmgraph 1", file=file)
            print(f"# torch: {torch.__version__}", file=file)
            print(f"# times: {'measured' if is_timed else 'estimated'}", file=file)
            for storage in self._storages:
                kind = "p" if storage.is_persistent and not storage.is_born else "a"
                print("t", storage.number, storage.bytes, kind, file=file)
            for line in self._lines:
                if isinstance(line, str):
                    print(line, file=file)
                else:
                    name, reads, writes = line
                    print("o", name, _ns(next(times)), "r", *reads, "w", *writes, file=file)


def _event(tensor):
    """An event behind what is queued for the tensor's device; None: it is not a GPU."""
    if tensor is None or tensor.device.type != "cuda" or isinstance(tensor, FakeTensor):
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(tensor.device))
    return event


def _ns(time):
    return time if isinstance(time, int) else int(1e6 * time[0].elapsed_time(time[1]))


def _flop_formulas():
    try:
        from torch.utils.flop_counter import flop_registry
    except ImportError:  # torch 2.0 or older: bytes alone
        return {}
    return flop_registry
