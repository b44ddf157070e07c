"""Trains or infers in less memory of the device than the program needs:

    import gmlake_torch
    gmlake_torch.enable()
    with gmlake_torch.offload(limit_bytes=9 << 30):
        model, optimizer = ...
        for batch in batches:
            train(model, optimizer, batch)

Tensors leave for pinned host memory and come back before they are used, at the same address, while
operators run. For an iteration or two the session learns what the program does; then it plans. An
iteration ends where a step of the first optimizer has ended, or of the next one, if that is gone or
steps no more. Other programs call mark() of what offload returns, or leave it to the session to
find what they repeat. The limit is that of the lake: everything on the device is below it. When the
block ends all tensors come back, which takes as much memory as the program would have taken.

Only what was made inside the block may leave, so make the model there. Small tensors leave if they
last: parameters that a module moves to the device, and what an optimizer makes in its first step or
loads, lie side by side in slabs, which leave together. What also stays: what an
operator never names (a workspace), what record_stream, data_ptr(), DLPack or a Triton kernel got
at, what was sent to another process, what a collective operation has used, and what another thread
than the one that entered the block, or autograd's for it, has used. torch.save, safetensors and
transformers only compare addresses: what they save may leave again. `with
session.compares_pointers():` says so of other code. Not noticed is what uses tensors without
torch's dispatcher: a C++ extension that is no operator of it, a custom operator with tensors that
it was not given. Run the program once with is_checked=True: then what is away has no memory, and a
stray access is an error.

Where moving tensors alone would make an iteration more than a tenth longer, by the plan, what the
blocks that a model repeats make is not held, and made again in the backward pass, as far as that
pays: blocks.py says of which. So it is before there is a plan, if in an iteration's backward passes
more than a sixteenth of the limit has come back: the program waits for each tensor. First only
operators run again that take little time; costly ones, as matrix products, in as many blocks as the
plan says. After some iterations the session decides for each block: what it makes is kept, and may
leave for the host, or is made again. Where sizes vary it does so in each iteration, by the room
that there is. recomputes="always" makes all again from the first iteration on until then, so that
the largest batches fit; "never" makes none.

With keeps_regions=True regions under torch.utils.checkpoint (use_reentrant=False, no context_fn)
are recomputed only as far as that pays, likewise. Without it they are executed as the program says.

A replay of a CUDA graph and a region of torch.compile are one operator each. Before a capture all
tensors come back, and until it has ended none leaves.

print(session.explain()) says on a page what stays, leaves and is recomputed, and where the time
goes; explain(picture="step.svg") draws it, too.
"""
import contextlib
import ctypes
import functools
import json
import os
import sys
import threading
import types
import weakref

import torch
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensor

from . import explain
from .blocks import Blocks
from .dispatch import on_step, tensors_in
from .in_backward import StepInBackward

GROUP_BYTES = 256 << 20  # of parameters that a step of an optimizer updates at once
OTHER_STEPS_MAX = 8  # of another optimizer, until its steps end iterations (a critic takes 5)
ADDED_PART = 10  # a part of an iteration that a plan may add before blocks are executed again,
BACK_PART = 16  # and of the limit that may come back in backward passes before there is a plan
UNPLANNED_MAX = 3  # iterations: so long a plan is waited for until what comes back is judged again
# Modules that take addresses of tensors to tell them apart, and reach their memory by operators.
COMPARERS = (
    "torch.serialization",
    "torch.nn.modules.rnn",
    "torch.distributed.fsdp",
    "safetensors.torch",
    "transformers.modeling_utils",
    "transformers.pytorch_utils",
    "accelerate.utils",
)


class Calls:
    """The functions of the libraries that a session calls: of sessions, and operators.cpp's, which
    are in one library but in tests."""

    def __init__(self, path, path_of_operators=None):
        library = ctypes.PyDLL(path)  # they are short: the interpreter stays locked
        names = ("open", "close", "step", "made", "mark", "lasting", "keep", "replay", "recompute")
        for name in (*names, "region_end", "record", "plan_json"):
            function = getattr(library, f"gmlake_torch_offload_{name}")
            function.restype = ctypes.c_char_p
            setattr(self, name, function)
        size = ctypes.c_size_t
        self.open.argtypes = [ctypes.c_int, size, size, size, size, ctypes.c_int]
        self.step.argtypes = [ctypes.c_uint64, ctypes.c_void_p, size, size]
        self.made.argtypes = [ctypes.c_void_p, size]
        self.lasting.argtypes = [ctypes.c_int]
        self.forget_graph = library.gmlake_torch_offload_forget_graph
        self.forget_graph.argtypes, self.forget_graph.restype = [ctypes.c_uint64], None
        self.keep.argtypes = self.replay.argtypes = [ctypes.c_uint64]
        self.recompute.argtypes = [ctypes.c_uint64]
        self.record.argtypes = [ctypes.c_char_p]
        self.plan_json.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
        self._region = library.gmlake_torch_offload_region
        self._region.restype = ctypes.c_char_p
        self.begin_capture = library.gmlake_torch_offload_begin_capture
        self.begin_capture.restype = ctypes.c_char_p
        self._end_capture = library.gmlake_torch_offload_end_capture
        self._end_capture.restype = ctypes.c_char_p
        self.stats_json = library.gmlake_torch_offload_stats_json
        self.stats_json.argtypes = [ctypes.c_int, ctypes.c_char_p, size]
        operators = ctypes.PyDLL(path_of_operators) if path_of_operators else library
        self.watch = operators.gmlake_torch_offload_watch
        self.watch.argtypes = [ctypes.c_int, ctypes.c_int, size]
        self.pause = operators.gmlake_torch_offload_pause
        self.look = operators.gmlake_torch_offload_look
        self.watch.restype = self.look.restype = ctypes.c_char_p
        operators.gmlake_torch_offload_again.restype = ctypes.py_object
        self.again = types.SimpleNamespace(**operators.gmlake_torch_offload_again())

    def end_capture(self):
        graph = ctypes.c_uint64()
        check(self._end_capture(ctypes.byref(graph)))
        return graph.value

    def region(self):
        region, is_kept = ctypes.c_uint64(), ctypes.c_int()
        check(self._region(ctypes.byref(region), ctypes.byref(is_kept)))
        return region.value, bool(is_kept.value)


def check(text):
    if text:
        text = text.decode()
        kind = torch.cuda.OutOfMemoryError if "OUT_OF_DEVICE_MEMORY" in text else RuntimeError
        raise kind(f"gmlake_torch.offload: {text}")


class Session:
    """What offload returns."""

    def __init__(
        self,
        calls,
        device,
        limit_bytes,  # of all that the lake holds
        tensor_bytes_min=0,  # smaller ones stay; 0: half a chunk, and those that last share chunks
        # These three are those of the process's first session on the device: a later one that asks
        # for something else is refused.
        host_bytes_max=0,  # of pinned memory; 0: half of what the host has available
        chunk_bytes=0,  # in which tensors get memory; 0: that of the lake's chunks
        is_checked=False,  # what is away has no memory, so that a stray access is an error; slow
        marks_steps=True,  # a step of an optimizer ends an iteration; else the program may mark()
        keeps_regions=False,  # what torch.utils.checkpoint would recompute is kept where that pays
        recomputes="auto",  # blocks that repeat: "auto", "always", "never"
    ):
        if recomputes not in ("auto", "always", "never"):
            raise ValueError(f'recomputes is {recomputes!r}: give "auto", "always" or "never"')
        self._calls, self.device, self._marks_steps = calls, device, marks_steps
        self._open = limit_bytes, tensor_bytes_min, host_bytes_max, chunk_bytes, is_checked
        self.split_for(limit_bytes)
        self._thread = OfThread()
        self._keeps_regions, self._is_open = keeps_regions, False
        self._region_now = None  # an object while a region's steps are told; none begins in it
        self._recomputes, self._blocks = recomputes, None
        self._marker = no_optimizer  # refers to the one whose steps end iterations
        self._steps = weakref.WeakKeyDictionary()  # how often each has stepped since
        self._known = weakref.WeakSet()  # optimizers that have made what they keep
        self.mark_count = 0
        # What had come back when this iteration's first backward pass began; how many it has.
        self._back_before, self._pass_count = None, 0
        # Plans that there were when blocks were made to hold less; iterations without one since.
        self._judged_count, self._unplanned_count = 0, UNPLANNED_MAX
        self._phases, self._backward_depth = explain.Phases(), 0
        self._split, self._undo, self._hooks = {}, [], None
        # Another session may have replaced that of torch.Tensor.
        self._data_ptr = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        self._data_ptr = self._data_ptr.data_ptr

    def mark(self):
        """An iteration begins."""
        check(self._calls.mark())
        self.mark_count += 1
        self._phases.mark(self._steps_begun())
        if self._blocks is not None and self._blocks.may_hold_less():
            stats = self.stats()
            lacking = self._lacking(stats)
            if lacking or self._recomputes == "always":
                if self._blocks.hold_less(lacking):
                    self._judged_count, self._unplanned_count = stats["plan_count"], 0

    def _lacking(self, stats):
        """How many bytes more would be needed, if moving tensors alone takes too long: by the plan,
        or before there is one by what came back in a backward pass of this iteration: the program
        waited for it. Each plan is judged once."""
        before, count = self._back_before, self._pass_count
        self._back_before, self._pass_count = None, 0
        limit = self._open[0]
        if stats["plan_count"]:
            is_new = stats["plan_count"] != self._judged_count
            is_held_up = is_new and stats["plan_added_ns"] * ADDED_PART > stats["step_ns"]
            return max(1, stats["unplanned_bytes"] - limit) if is_held_up else 0
        self._unplanned_count += 1
        came_back = stats["in_bytes"] - before if before is not None else 0
        is_held_up = self._unplanned_count > UNPLANNED_MAX and 0 < limit < came_back * BACK_PART
        return came_back // count if is_held_up else 0

    def explain(self, picture=None):
        """Returns a page of text: the limit and what is needed, what stays, leaves and is
        recomputed in which phase, how busy the link is, where the time goes, what is pinned.
        picture: a file for the same as an SVG. Times are those of the plan, as simulated. What is
        not known yet is left out; there is no picture before there is a plan. It costs the host
        time, for each phase linear in steps and copies."""
        plan, why = self._plan()
        phases = self._phases.of(len(plan["steps"])) if plan else []
        stats, limit = self.stats(), self._open[0]
        if picture is not None:
            check(why)
            with open(picture, "w", encoding="utf-8") as file:
                file.write(explain.picture(plan, stats, phases, limit, self.device))
        return explain.page(plan, stats, phases, limit, self._phases.seconds, self.device)

    def split_for(self, limit_bytes):
        """So much at once is worked on in updates of optimizers and in other long lists."""
        self._foreach_bytes = max(1, limit_bytes // 8)
        self._group_bytes = min(GROUP_BYTES, max(1, limit_bytes // 32))

    def record(self, path):
        """Writes the calls of the session into that file, which may not exist, until it is None."""
        check(self._calls.record(os.fsencode(path) if path else None))

    def _steps_begun(self):
        return Session.stats(self)["step_count"]

    def _plan(self):
        """The plan, or None and why there is none."""
        text = ctypes.c_char_p()
        why = self._calls.plan_json(self.device.index or 0, ctypes.byref(text))
        if why:
            return None, why
        plan = json.loads(text.value)
        plan["time_ns"] = max(1, plan["time_ns"])  # there may be no work for the device
        return plan, None

    @contextlib.contextmanager
    def compares_pointers(self):
        """For `with`: this thread takes addresses of tensors only to compare them."""
        former = self._thread.compares
        self._thread.compares = True
        try:
            yield
        finally:
            self._thread.compares = former

    def stats(self):
        """Returns gmlake_offload_session_stats as a dict."""
        size = self._calls.stats_json(self.device.index or 0, None, 0) + 64
        buffer = ctypes.create_string_buffer(size)
        self._calls.stats_json(self.device.index or 0, buffer, size)
        return json.loads(buffer.value)

    # ---- Begin and end ----

    def __enter__(self):
        check(self._calls.open(self.device.index or 0, *self._open))
        try:
            self._hooks = on_step(self._before_step, self._after_step)
            if self._recomputes != "never":
                self._blocks = Blocks(self._run_block, self._recomputes == "always")
            self._patch()
            self._is_open = True
            check(self._watch(True))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind, error, trace):
        text = self._end()
        if kind is None:
            check(text)

    def _end(self):
        self._is_open = False
        self._tell_first_step(False)  # it may have ended with an error
        text = self._watch(False)
        if self._blocks is not None:
            self._blocks.unwrap()
        for owner, name, former in reversed(self._undo):
            if former is None:
                delattr(owner, name)
            else:
                setattr(owner, name, former)
        self._undo.clear()
        if self._hooks:
            self._hooks.remove()
        for optimizer, *_ in [*self._split.values()]:
            self._join_groups(optimizer)
        return self._calls.close() or text

    # ---- Operators ----

    def _watch(self, is_on):
        """Whether this thread's operators are seen. Returns None, or why not."""
        return self._calls.watch(is_on, self.device.type == "cpu", self._foreach_bytes)

    def _region(self, key, seen, function, *args, **kwargs):
        """Runs what is one operator, whatever it does inside. seen: the addresses of its tensors,
        which it may let go of while it runs."""
        if self._depth:
            return function(*args, **kwargs)
        both = (ctypes.c_uint64 * (2 * len(seen)))(*seen, *seen)
        check(self._calls.step(key, both, len(seen), len(seen)))
        self._thread.depth = 1
        was_paused = self._calls.pause(True)
        try:
            result = function(*args, **kwargs)
        finally:
            self._calls.pause(was_paused)
            self._thread.depth = 0
        made = self._addresses(tensors_in(result))
        check(self._calls.made((ctypes.c_uint64 * len(made))(*made), len(made)))
        return result

    def _addresses(self, tensors):
        return [self._data_ptr(tensor) for tensor in tensors if self._is_here(tensor)]

    @property
    def _depth(self):
        return self._thread.depth

    def _is_here(self, tensor):
        return tensor.device.type == self.device.type and type(tensor) is not FakeTensor

    def _keep(self, tensor):
        if not self._depth and self._is_here(tensor):
            self._calls.again.spoil()
            check(self._calls.keep(self._data_ptr(tensor)))

    def _take(self, address):
        """Somebody takes an address. Who only compares it reaches the memory by operators; but a
        CPU's, from where a file is written before the next operator."""
        if self._depth:
            return
        if not (self._thread.compares or is_comparer(sys._getframe(2))):
            self._calls.again.spoil()
            check(self._calls.keep(address))
        elif self.device.type == "cpu":
            check(self._calls.step(0, (ctypes.c_uint64 * 1)(address), 1, 0))

    # ---- Optimizers ----

    def _before_step(self, optimizer, args=(), kwargs=None):
        """Makes many small groups of the parameters, so that each has what it needs at once. What
        it returns takes the place of the arguments."""
        self._phases.note("optimizer", self._steps_begun())
        self._split_groups(optimizer)
        if optimizer in self._known:
            return None
        self._tell_first_step(True)
        outside = self._outside_of_step
        kwargs = {key: outside(value) for key, value in (kwargs or {}).items()}
        return (*args[:1], *map(outside, args[1:])), kwargs

    def _split_groups(self, optimizer):
        self._join_groups(optimizer)  # the step before may have ended with an error
        is_known = type(optimizer).__module__.startswith("torch.optim")
        if not is_known or type(optimizer).__name__ == "LBFGS":
            return
        parts, of_groups = [], []
        for group in optimizer.param_groups:
            sizes = [p.numel() * p.element_size() for p in group["params"]]
            ends = ends_of(sizes, self._group_bytes)
            of_groups.append(len(parts))
            for first, end in zip([0, *ends], ends):
                parts.append({**group, "params": group["params"][first:end]})
        if len(parts) > len(optimizer.param_groups):
            firsts = [parts[place] for place in of_groups]
            self._split[id(optimizer)] = optimizer, optimizer.param_groups, firsts
            optimizer.param_groups = parts

    def _join_groups(self, optimizer):
        """The optimizer has its groups back, with what was written to the first part of each."""
        _, groups, firsts = self._split.pop(id(optimizer), (None, (), ()))
        for group, part in zip(groups, firsts):
            group.update((key, value) for key, value in part.items() if key != "params")
        if groups:
            optimizer.param_groups = groups

    def _after_step(self, optimizer, *_):
        self._tell_first_step(False)
        self._join_groups(optimizer)
        if optimizer.state or any(p.grad is not None for p in parameters_of(optimizer)):
            self._known.add(optimizer)
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        if self._marker() is None or self._steps[optimizer] > OTHER_STEPS_MAX:
            self._marker = weakref.ref(optimizer)
        is_marker = self._marker() is optimizer
        if is_marker:
            self._steps.clear()
        if is_marker and self._marks_steps:
            self.mark()
        else:
            self._phases.note("forward", self._steps_begun())

    # ---- What lasts ----

    def _tell_lasting(self):
        """Small tensors that last share chunks, and travel together. Only the thread's own do."""
        own = self._thread
        check(self._calls.lasting(own.is_first_step or own.lasting_depth > 0))

    def _tell_first_step(self, is_first_step):
        """An optimizer makes what it keeps."""
        self._thread.is_first_step = is_first_step
        self._tell_lasting()

    def _outside_of_step(self, value):
        """A closure's activations and gradients do not last, although it runs inside the step."""
        if not isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            return value

        @functools.wraps(value)
        def closure(*args, **kwargs):
            self._tell_first_step(False)
            result = value(*args, **kwargs)
            self._tell_first_step(True)
            return result

        return closure

    def _with_lasting(self, former):
        """A function that makes what lasts: parameters of a module that moves, or of one that is
        copied; states of an optimizer that loads them."""

        def make(*args, **kwargs):
            self._thread.lasting_depth += 1
            self._tell_lasting()
            try:
                return former(*args, **kwargs)
            finally:
                self._thread.lasting_depth -= 1
                self._tell_lasting()

        return make

    # ---- What is not dispatched ----

    def _replace(self, owner, name, make):
        former = getattr(owner, name)
        self._undo.append((owner, name, vars(owner).get(name)))  # None: it is inherited
        setattr(owner, name, make(former))

    def _patch(self):
        def data_ptr(former):
            def data_ptr(tensor):
                if self._is_here(tensor):
                    self._take(self._data_ptr(tensor))
                return former(tensor)

            return data_ptr

        def storage_data_ptr(former):
            def data_ptr(storage):
                address = former(storage)
                if storage.device.type == self.device.type:
                    self._take(address)
                return address

            return data_ptr

        def resize(former):
            def resize_(storage, *args):  # copies without the dispatcher
                is_here = storage.device.type == self.device.type
                seen = [self._storage_ptr(storage)] if is_here else []
                self._region(1, seen, former, storage, *args)
                if is_here and not self._depth:
                    address = self._storage_ptr(storage)
                    check(self._calls.made((ctypes.c_uint64 * 1)(address), 1))
                return storage

            return resize_

        def dlpack(former):
            def dlpack(tensor, *args, **kwargs):
                self._keep(tensor)
                return former(tensor, *args, **kwargs)

            return dlpack

        self._replace(torch.Tensor, "data_ptr", data_ptr)
        self._replace(torch.Tensor, "__dlpack__", dlpack)
        self._replace(torch.utils.dlpack, "to_dlpack", dlpack)
        self._replace(torch, "to_dlpack", dlpack)
        # Consumers in C take addresses by it; without it they call __dlpack__.
        if "__dlpack_c_exchange_api__" in torch.Tensor.__dict__:
            self._undo.append(
                (torch.Tensor, "__dlpack_c_exchange_api__", torch.Tensor.__dlpack_c_exchange_api__)
            )
            del torch.Tensor.__dlpack_c_exchange_api__
        self._storage_ptr = torch.UntypedStorage.data_ptr
        self._replace(torch.UntypedStorage, "data_ptr", storage_data_ptr)
        self._replace(torch.UntypedStorage, "resize_", resize)
        self._replace(torch._ops._OpNamespace, "__getattr__", self._looking)
        self._replace(torch.nn.Module, "_apply", self._with_lasting)
        self._replace(torch.nn.Parameter, "__deepcopy__", self._with_lasting)
        self._replace(torch.optim.Optimizer, "load_state_dict", self._with_lasting)
        self._replace(StepInBackward, "_make", self._with_lasting)
        self._patch_graphs()
        self._patch_regions()
        self._replace(torch.autograd, "backward", self._noting_backward)
        if self._keeps_regions or self._blocks is not None:
            self._patch_checkpoints()
        if self._blocks is not None:
            self._patch_copies()
            self._patch_saving()
        if self._recomputes == "always":
            self._replace(torch.optim.Optimizer, "__init__", self._with_blocks)

    def _looking(self, former):
        """An operator is looked up for the first time: it may have been defined just now."""

        def getattr(namespace, name):
            found = former(namespace, name)
            check(self._calls.look())
            return found

        return getattr

    def _noting_backward(self, former):
        """For explain: which steps are those of a backward pass. Such a pass may be inside another
        one, also in another thread. It runs in the thread that calls it, which costs the host less
        (measured: bench/NOTES.md, "What the host costs"); and what torch has planned there for an
        attention of that shape is planned once."""
        one_thread = getattr(
            torch.autograd.grad_mode, "set_multithreading_enabled", contextlib.nullcontext
        )

        def backward(*args, **kwargs):
            if self._thread.is_first_step:  # it has ended with an error
                self._tell_first_step(False)
            if not self._backward_depth:
                self._phases.note("backward", self._steps_begun())
                self._pass_count += 1
                if self._back_before is None and self._blocks and self._blocks.may_hold_less():
                    self._back_before = self.stats()["in_bytes"]
            self._backward_depth += 1
            try:
                with one_thread(False):
                    return former(*args, **kwargs)
            finally:
                self._backward_depth -= 1
                if not self._backward_depth:
                    self._phases.note("forward", self._steps_begun())

        return backward

    def _patch_graphs(self):
        def capture_begin(former):
            def capture_begin(graph, *args, **kwargs):
                self._calls.again.spoil()
                check(self._calls.begin_capture())
                try:
                    return former(graph, *args, **kwargs)
                except BaseException:
                    self._calls.forget_graph(self._calls.end_capture())
                    raise

            return capture_begin

        def capture_end(former):
            def capture_end(graph, *args, **kwargs):
                try:
                    return former(graph, *args, **kwargs)
                finally:
                    graph._gmlake_number = number = self._calls.end_capture()
                    weakref.finalize(graph, self._calls.forget_graph, number).atexit = False

            return capture_end

        def replay(former):
            def replay(graph, *args, **kwargs):
                if not self._depth:
                    check(self._calls.replay(getattr(graph, "_gmlake_number", 0)))
                return former(graph, *args, **kwargs)

            return replay

        self._replace(torch.cuda.CUDAGraph, "capture_begin", capture_begin)
        self._replace(torch.cuda.CUDAGraph, "capture_end", capture_end)
        self._replace(torch.cuda.CUDAGraph, "replay", replay)

    def _patch_regions(self):
        try:
            from torch._inductor.output_code import CompiledFxGraph
        except ImportError:  # no Triton, or torch 2.5 or older
            return

        def call(former):
            def call(graph, inputs):
                key = hash(graph.cache_key) & 0xFFFFFFFF
                seen = self._addresses(tensors_in(inputs))
                return self._region(key, seen, former, graph, inputs)

            return call

        self._replace(CompiledFxGraph, "__call__", call)

    @contextlib.contextmanager
    def _inside(self):
        """For `with`: the steps are those of the region that has begun."""
        self._region_now = object()
        try:
            yield
        finally:
            self._region_now = None
            check(self._calls.region_end())

    def _again(self, function, region):
        """What a checkpoint calls to execute a region for the second time, or a part of it."""

        def again(*args, **kwargs):
            if self._region_now or not self._is_open:
                return function(*args, **kwargs)
            check(self._calls.recompute(region))
            with self._inside():
                return function(*args, **kwargs)

        return again

    def _run_block(self, function, is_whole):
        """A block, whose operators may be executed again: with is_whole all, else only such as are
        no costly ones; see blocks.py and again.hpp. Returns what the function returns, and how many
        bytes are held that would not be if it were whole; -1: it cannot be executed again; None:
        that is not known."""
        if self._depth or self._region_now or self._is_saving():
            return function(), None
        region, is_kept = self._calls.region()
        with self._inside():
            if is_kept:
                return function(), None
            own = self._calls.again
            own.begin(self._again(own.execute, region), self.device.index or 0, is_whole)
            try:
                with torch.autograd.graph.saved_tensors_hooks(own.save, own.load):
                    self._thread.has_own_hooks = True
                    result = function()
            finally:
                self._thread.has_own_hooks = False
                held = own.end()
            return result, held

    def _with_blocks(self, former):
        """A model was made, since it gets an optimizer."""

        def init(optimizer, *args, **kwargs):
            former(optimizer, *args, **kwargs)
            self._blocks.wrap()

        return init

    def _patch_copies(self):
        """Of modules: DataParallel's, those of copy.copy and deepcopy, and those in files."""

        def replicate(former):
            def replicate(module):
                copy = former(module)
                self._blocks.part(copy)
                return copy

            return replicate

        def setstate(former):
            def setstate(module, state):
                former(module, state)
                self._blocks.part(module)

            return setstate

        def reduce(former):
            def reduce(module, protocol):
                return self._blocks.without_forward(former(module, protocol))

            return reduce

        self._replace(torch.nn.Module, "_replicate_for_data_parallel", replicate)
        self._replace(torch.nn.Module, "__setstate__", setstate)
        self._replace(torch.nn.Module, "__reduce_ex__", reduce)

    def _patch_saving(self):
        """What torch is told of hooks that get what is saved for the backward pass."""

        def adding(number):
            def make(former):
                def change(*args):
                    former(*args)
                    depth = self._thread.saving_depth + number
                    self._thread.saving_depth = max(0, depth)  # some may be older than the session

                return change

            return make

        def disabling(former):
            def disable(*args, **kwargs):  # as functorch's transforms do; not with hooks below
                if self._thread.has_own_hooks and self._thread.saving_depth == 1:
                    own._pop_saved_tensors_default_hooks()
                return former(*args, **kwargs)

            return disable

        def enabling(former):
            def enable():
                former()
                if self._thread.has_own_hooks and not self._thread.saving_depth:
                    own._push_saved_tensors_default_hooks(again.save, again.load)

            return enable

        own, again = torch._C._autograd, self._calls.again
        self._replace(own, "_push_saved_tensors_default_hooks", adding(1))
        self._replace(own, "_pop_saved_tensors_default_hooks", adding(-1))
        if hasattr(own, "_saved_tensors_hooks_disable"):  # from torch 1.13 on
            self._replace(own, "_saved_tensors_hooks_disable", disabling)
            self._replace(own, "_saved_tensors_hooks_enable", enabling)

    def _is_saving(self):
        """Whether hooks of the program get what is saved, or torch allows no hooks: a block that is
        executed twice needs hooks of its own."""
        is_enabled = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", None)
        return self._thread.saving_depth > 0 or (is_enabled is not None and not is_enabled())

    def _patch_checkpoints(self):
        """Non-reentrant checkpoints: torch runs such a generator up to its only yield, then the
        function, then the rest; and the function that the generator was given once more when a
        saved tensor is needed. Of nested ones only the outermost is a region. What the program
        checkpoints is no region without keeps_regions, and blocks in it are as they are."""
        own = torch.utils.checkpoint
        name, no_context = "_checkpoint_without_reentrant_generator", "noop_context_fn"
        if not hasattr(own, name) or not hasattr(own, no_context):  # torch 2.0 or older
            return

        @contextlib.contextmanager
        def alone():
            was, mine = self._region_now, object()
            self._region_now = mine
            try:
                yield
            finally:
                if self._region_now is mine:  # else it ends late: a region has raised an error
                    self._region_now = was

        def generator(former):
            def generator(function, *args, **kwargs):
                has_context = not any(
                    value is own.noop_context_fn for value in (*args, *kwargs.values())
                )
                is_plain = self._depth or self._region_now or not torch.is_grad_enabled()
                if is_plain or has_context or not self._keeps_regions:
                    with alone():
                        yield from former(alone()(function), *args, **kwargs)
                    return
                region, is_kept = self._calls.region()
                with self._inside():
                    if is_kept:
                        yield
                    else:
                        yield from former(self._again(function, region), *args, **kwargs)

            return generator

        self._replace(own, name, generator)


class OfThread(threading.local):
    """What a session knows of each thread."""

    depth = 0  # of regions inside which no operator is seen
    compares = False  # addresses of tensors
    lasting_depth, is_first_step = 0, False  # what it makes lasts
    saving_depth = 0  # hooks for what is saved for the backward pass
    has_own_hooks = False  # the outermost of them are a block's


def no_optimizer():
    """A reference to none."""


def parameters_of(optimizer):
    return (p for group in optimizer.param_groups for p in group["params"])


def is_comparer(frame):
    """Whether the code that asks for an address, perhaps by torch's storages, only compares it."""
    while frame and frame.f_globals.get("__name__") in ("torch.storage", "torch._tensor"):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").startswith(COMPARERS)


def ends_of(sizes, bytes_max):
    """Cuts a list into parts of at most that many bytes, or of one item. Returns where they end."""
    ends, sum_bytes = [], 0
    for i, size in enumerate(sizes):
        if i and sum_bytes + size > bytes_max:
            ends.append(i)
            sum_bytes = 0
        sum_bytes += size
    return [*ends, len(sizes)]
