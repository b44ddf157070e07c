"""Finds the blocks that a model repeats, such as a transformer's layers, so that a session may
execute them twice instead of holding what they make: activation checkpointing that the program does
not ask for.

A block is one of at least three modules of one class in a ModuleList, Sequential or ModuleDict. It
has parameters, and modules of its own; of nested ones the outermost is one. Each is executed once
as the program says, and watched. It stays as it is for good if it

- has running statistics (batch normalization and the like);
- changes a parameter, a buffer or a tensor that it gets, or puts another one in its place; or
  changes a number, a text or the length of a container among its attributes or its modules';
- gets an object of a kind that is not known here, which it may change. A DynamicCache of
  transformers is known: if it is empty for this block, as it is when a model trains, the second
  execution gets none and computes the same.
- has a forward of its own, is compiled, or is sharded by torch.distributed.

What else is an effect of a block cannot be seen: one that writes a file does so twice.

From then on torch's non-reentrant checkpoint runs the block, with its random numbers and autocast
restored for the second time, unless gradients are off, a backward pass is under way, a functorch
transform or a stream's capture is active, or another thread than the session's runs it.
"""
import gc
import inspect
import sys
import threading
import weakref

import torch
import torch.utils.checkpoint

ALIKE_MIN = 3  # modules of one class make blocks
TRIES_MAX = 3  # searches of a session that find nothing: each looks at every object of the program
CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
COUNTED = (list, dict, set, tuple)
CACHE = "DynamicCache"


def find_blocks():
    """The blocks of all models that there are."""
    found, former = {}, []
    for thing in gc.get_objects():
        if issubclass(type(thing), Forward):
            former.append(thing.block())
        if issubclass(type(thing), CONTAINERS):
            by_class = {}
            for index, module in enumerate(thing.children()):
                by_class.setdefault(type(module), []).append((index, module))
            for alike in by_class.values():
                if len(alike) >= ALIKE_MIN:
                    found.update((id(m), (index, m)) for index, m in alike if is_block(m))
    outer = [block for _, block in found.values()] + [b for b in former if b is not None]
    inner = {id(part) for block in outer for part in block.modules() if part is not block}
    return [pair for number, pair in found.items() if number not in inner]


def is_block(module):
    if isinstance(module, torch.jit.ScriptModule) or "forward" in vars(module):
        return False
    if getattr(module, "_compiled_call_impl", None) or hasattr(module, "_get_fsdp_state"):
        return False
    if next(module.children(), None) is None or next(module.parameters(), None) is None:
        return False
    return not any(getattr(part, "track_running_stats", False) for part in module.modules())


def tensors_of(thing, index, found):
    """Appends an argument's tensors. Whether the argument is of a known kind, for block `index`."""
    if isinstance(thing, torch.Tensor):
        found.append(thing)
        return True
    if isinstance(thing, PLAIN):
        return True
    if type(thing).__name__ == CACHE:
        return thing.get_seq_length(index) == 0
    if isinstance(thing, dict):
        return all(tensors_of(value, index, found) for value in thing.values())
    if isinstance(thing, (tuple, list)):
        return all(tensors_of(value, index, found) for value in thing)
    return False


def version(tensor):
    return None if tensor.is_inference() else tensor._version


def state_of(block, tensors):
    """What a block's execution must not change."""
    state = [(id(tensor), version(tensor)) for tensor in tensors]
    for module in block.modules():
        for name, value in sorted(vars(module).items()):
            if isinstance(value, PLAIN):
                state.append((name, value))
            elif isinstance(value, torch.Tensor):
                state.append((name, id(value), version(value)))
            elif isinstance(value, COUNTED):
                state.append((name, len(value)))
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                state.append((id(tensor), version(tensor)))
    return state


class Forward:
    """In place of a block's forward."""

    def __init__(self, blocks, index, block):
        self.blocks, self.index, self.block = blocks, index, weakref.ref(block)
        self.is_fit = None  # to be executed twice; None: not executed yet
        parameters = inspect.signature(block.forward).parameters.values()
        self.optional = {p.name for p in parameters if p.default is None}
        block.forward = self

    def __call__(self, *args, **kwargs):
        block = self.block()
        own = type(block).forward.__get__(block)
        if self.is_fit is False or not self.blocks.may_run():
            return own(*args, **kwargs)
        tensors = []
        is_known = tensors_of((args, kwargs), self.index, tensors)
        gets_none = [k for k, v in kwargs.items() if type(v).__name__ == CACHE]
        if any(type(value).__name__ == CACHE for value in args):
            is_known = False
        is_known = is_known and self.optional.issuperset(gets_none)
        if not is_known or not any(
            tensor.requires_grad for tensor in (*tensors, *block.parameters())
        ):
            return own(*args, **kwargs)
        if self.is_fit is None:
            before = state_of(block, tensors)
            result = own(*args, **kwargs)
            self.is_fit = state_of(block, tensors) == before
            return result
        again = {**kwargs, **dict.fromkeys(gets_none)}
        return self.blocks.run(own, args, kwargs, again)

    def __reduce__(self):  # a copy of the block, also one in a file, has its class's forward
        return getattr, (self.block(), "forward")


class Blocks:
    """Those of a session, which runs them: run(forward, args, kwargs, kwargs of the second time) is
    called for each that may be executed twice."""

    def __init__(self, run):
        self.run = run
        self._forwards, self._thread = [], threading.get_ident()
        self._tries = 0

    def may_find(self):
        """Whether none has been found, and it is worth looking."""
        return not self._forwards and self._tries < TRIES_MAX

    def wrap(self):
        """Finds blocks. Those that have been found stay."""
        self._tries += 1
        if is_compiled():
            return
        for index, block in find_blocks():
            self._forwards.append(Forward(self, index, block))

    def unwrap(self):
        for forward in self._forwards:
            block = forward.block()
            if block is not None and vars(block).get("forward") is forward:
                del block.forward
        self._forwards.clear()

    def may_run(self):
        """Whether a block that is called now may be executed twice."""
        return (
            torch.is_grad_enabled()
            and threading.get_ident() == self._thread
            and not is_in_backward()
            and not is_transformed()
            and not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
        )


def is_compiled():
    """Whether torch.compile has compiled a module, which may contain blocks."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    kind = getattr(frames, "OptimizedModule", None)
    return kind is not None and any(issubclass(type(x), kind) for x in gc.get_objects())


def is_in_backward():
    graph_task = getattr(torch._C, "_current_graph_task_id", None)
    return graph_task is not None and graph_task() != -1


def is_transformed():
    functorch = getattr(torch._C, "_functorch", None)
    peek = getattr(functorch, "peek_interpreter_stack", None)
    return peek is not None and peek() is not None
