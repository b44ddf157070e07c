"""Finds the blocks that a model repeats, such as a transformer's layers, so that a session may
make again what they made, instead of holding it: activation checkpointing that the program does
not ask for.

A block is one of at least three modules of one class that are in ModuleLists, Sequentials or
ModuleDicts of one model, as the residual blocks of a U-Net's levels; of these three classes, in one
list. It has parameters, and modules of its own; of nested ones the outermost is one. But a few that
consist of others, as the stages of a Swin transformer do, are none: these others are. None is what

- has running statistics (batch normalization and the like);
- has a forward that is no function of its class, is compiled, or is sharded by torch.distributed.

The program executes a block once. Its operators are written down, and those that it takes are
executed again for the backward pass: again.hpp tells how, and which blocks are left as they are.
First only what takes little time, in all blocks: what matrix products and the like have made is
held. Where that is not enough, in as many blocks as it takes all that they save is made again. A
block that was so twice in a row is left for good. What else a block does, its attributes, caches
and hooks, is no matter: no code of the program runs again. It is left as it is, too, where
gradients are off, where a backward pass is under way, where a functorch transform, a trace, a
compilation or a stream's capture is active, where hooks of the program's get what is saved for the
backward pass, or where another thread than the session's runs the block.

Where a tensor that the second execution needs, as a parameter or what the block got, was written
meanwhile, it is an error, which says so. What is written to parameter.data is not seen.
"""
import functools
import gc
import inspect
import sys
import threading
import types
import weakref

import torch

ALIKE_MIN = 3  # modules of one class make blocks
STAGES_MAX, STAGE_PART = 5, 0.8  # so few blocks are stages where so much of them is other blocks
MISSES_MAX = 2  # executions in a row that cannot be repeated, until a block is left alone
TRIES_MAX = 3  # searches of a session that find nothing: each looks at every object of the program
CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)


def find_blocks():
    """The blocks of all models that there are."""
    found, former, parents, lists = {}, [], {}, []
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, Forward):
            former.append(thing.block())
        if issubclass(kind, torch.nn.Module) and "_modules" in vars(thing):  # if it is made
            parents.update((id(part), id(thing)) for part in thing._modules.values())
            if issubclass(kind, CONTAINERS):
                lists.append(thing)
    of_model = {}
    for things in lists:
        by_class = {}
        for module in torch.nn.Module.children(things):
            by_class.setdefault(type(module), []).append(module)
        for kind, alike in by_class.items():
            if len(alike) >= ALIKE_MIN:
                found.update((id(m), m) for m in alike if is_block(m))
            if not issubclass(kind, CONTAINERS):
                of_model.setdefault((model_of(id(things), parents), kind), {}).update(
                    (id(module), module) for module in alike
                )
    for alike in of_model.values():
        if len(alike) >= ALIKE_MIN:
            found.update((n, m) for n, m in alike.items() if n in found or is_block(m))
    leave_stages(found, parents)
    outer = [*found.values(), *(block for block in former if block is not None)]
    inner = {id(part) for block in outer for part in block.modules() if part is not block}
    return [block for number, block in found.items() if number not in inner]


def leave_stages(found, parents):
    """Removes the blocks that are stages: few of a class in a model, which consist of other blocks.
    Executed again at once, a stage would need all that these make."""
    alike = {}
    for number, block in found.items():
        alike.setdefault((model_of(number, parents), type(block)), []).append(block)
    for few in alike.values():
        inside = {id(part) for block in few for part in block.modules() if part is not block}
        inside &= found.keys() - {id(block) for block in few}
        others = {number: found[number] for number in inside}
        own = {p: p.numel() for block in few for p in block.parameters()}
        theirs = {p: p.numel() for block in others.values() for p in block.parameters()}
        consist = sum(theirs.values()) >= STAGE_PART * sum(own.values())
        if len(few) <= STAGES_MAX and len(others) >= 2 * len(few) and consist:
            for block in few:
                del found[id(block)]


def model_of(number, parents):
    """The id of the module that a module of that id belongs to, and that belongs to none."""
    seen = set()
    while number in parents and number not in seen:
        seen.add(number)
        number = parents[number]
    return number


def is_block(module):
    if isinstance(module, torch.jit.ScriptModule):
        return False
    function = inspect.getattr_static(type(module), "forward")
    if not isinstance(function, types.FunctionType) or function is torch.nn.Module.forward:
        return False  # what has none, as a list, is never called
    own = vars(module).get("forward")  # its class's, bound: who has replaced it has put it back
    if own and (getattr(own, "__func__", None), getattr(own, "__self__", 0)) != (function, module):
        return False
    if attribute(module, "_get_fsdp_state"):
        return False
    if all(part is None for part in module._modules.values()):
        return False
    parameters = list(module.parameters())
    if not parameters or any(map(torch.nn.parameter.is_lazy, parameters)):  # not made yet
        return False
    return not any(
        attribute(part, "track_running_stats")
        or attribute(part, "_compiled_call_impl")
        or type(part).__module__.startswith("torch.distributed")
        for part in module.modules()
    )


def attribute(module, name):
    """None if it has none: for such a name a class's __getattr__ may raise any error."""
    try:
        return getattr(module, name, None)
    except Exception:
        return None


class Forward:
    """In place of a block's forward."""

    def __init__(self, blocks, block):
        self.blocks, self.block = blocks, weakref.ref(block)
        self.is_fit, self.misses = True, 0  # to be executed again
        # Whether costly operators are, too; what is held as long as they are not.
        self.is_whole, self.held_bytes = blocks.are_whole, 0
        self.__signature__ = inspect.signature(block.forward)
        block.forward = self

    def __call__(self, *args, **kwargs):
        block = self.block()
        own = type(block).forward.__get__(block)
        if not self.is_fit or not self.blocks.may_run():
            return own(*args, **kwargs)
        result, held = self.blocks.run(functools.partial(own, *args, **kwargs), self.is_whole)
        if held is not None:
            self.misses = 0 if held >= 0 else self.misses + 1
            self.is_fit = self.misses < MISSES_MAX
            self.held_bytes = max(0, held)
        return result

    def __reduce__(self):  # a copy of the block, also one in a file, has its class's forward
        return getattr, (self.block(), "forward")


class Blocks:
    """Those of a session, which runs them: run(function, is_whole) is called for each that may be
    executed again, and is the session's. are_whole: costly operators, too, from the begin on."""

    def __init__(self, run, are_whole):
        self.run, self.are_whole = run, are_whole
        self._forwards, self._thread, self._tries = [], threading.get_ident(), 0

    def may_hold_less(self):
        """Whether hold_less may help."""
        if self._forwards:
            return any(f.is_fit and not f.is_whole for f in self._forwards)
        return self._tries < TRIES_MAX

    def hold_less(self, lacking):
        """Finds blocks; if there are some executes costly operators again in so many of them that
        they hold `lacking` bytes less. Whether there are any now."""
        if not self._forwards:
            self.wrap()
            return bool(self._forwards)
        for forward in self._forwards:
            if lacking > 0 and forward.is_fit and not forward.is_whole:
                forward.is_whole = True
                lacking -= forward.held_bytes
        return True

    def wrap(self):
        """Finds blocks. Those that have been found stay."""
        self._tries += 1
        if is_compiled():
            return
        self._forwards += [Forward(self, block) for block in find_blocks()]

    def unwrap(self):
        for forward in self._forwards:
            forward.is_fit = False  # who replaced the block's forward may call this one
            block = forward.block()
            if block is not None and vars(block).get("forward") is forward:
                del block.forward
        self._forwards.clear()

    def part(self, copy):
        """A copy that shares its attributes with a block gets its class's forward."""
        forward = vars(copy).get("forward")
        if isinstance(forward, Forward) and forward.block() is not copy:
            del copy.forward

    def without_forward(self, reduced):
        """What makes a copy of a module: without a forward that would be its own attribute, and
        shared by copies of the copy."""
        if len(reduced) < 3 or type(reduced[2]) is not dict:
            return reduced
        if not isinstance(reduced[2].get("forward"), Forward):
            return reduced
        state = {name: value for name, value in reduced[2].items() if name != "forward"}
        return (*reduced[:2], state, *reduced[3:])

    def may_run(self):
        """Whether a block that is called now may be executed again."""
        return (
            not is_compiling()
            and torch.is_grad_enabled()
            and threading.get_ident() == self._thread
            and not is_in_backward()
            and not is_transformed()
            and not torch.jit.is_tracing()
            and not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
        )


def is_compiled():
    """Whether torch.compile has compiled a module, which may contain blocks."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    kind = getattr(frames, "OptimizedModule", None)
    return kind is not None and any(issubclass(type(x), kind) for x in gc.get_objects())


def is_compiling():
    """Whether torch.compile looks at what is executed now."""
    compiler = getattr(torch, "compiler", None)
    return compiler is not None and compiler.is_compiling()


def is_in_backward():
    graph_task = getattr(torch._C, "_current_graph_task_id", None)
    return graph_task is not None and graph_task() != -1


def is_transformed():
    functorch = getattr(torch._C, "_functorch", None)
    peek = getattr(functorch, "peek_interpreter_stack", None)
    return peek is not None and peek() is not None
