"""Finds the blocks that a model repeats, such as a transformer's layers, so that a session may
execute them twice instead of holding what they make: activation checkpointing that the program does
not ask for.

A block is one of at least three modules of one class that are in ModuleLists, Sequentials or
ModuleDicts of one model, as the residual blocks of a U-Net's levels; of these three classes, in one
list. It has parameters, and modules of its own; of nested ones the outermost is one. But a few that
consist of others, as the stages of a Swin transformer do, are none: these others are. Each block is
executed once as the program says, and watched. It stays as it is for good if it

- has running statistics (batch normalization and the like);
- changes a parameter, a gradient of one, a buffer or a tensor that it gets, or puts another one in
  its place; or changes a number, a text, a function or a container among its attributes, its
  modules' or what it gets;
- draws random numbers of Python, of NumPy, or of a torch.Generator that is an attribute;
- has a forward that is no function of its class, is compiled, or is sharded by torch.distributed.

The first execution in training and the first one in evaluation are watched, or the second if the
first one changes something, as one that fills a cache does. Executed once is also what

- gets an object of a kind that is not known here, which it may change. A DynamicCache of
  transformers is known, and an EncoderDecoderCache of two: if it is empty for this block, as it is
  when a model trains, the second execution gets none and computes the same.
- contains a module with forward hooks, or meets hooks of all modules, which may have effects;
- has tensors that are no parameters in the place of some, as torch.func.functional_call puts there.

What else is an effect of a block cannot be seen: one that writes a file does so twice.

From then on it is executed twice, by twice.py. For the second time random numbers are restored,
autocast, what torch was told of data types and of attention's kernels, and the containers that the
block got. It is executed once where gradients are off, where a backward pass is under way, where a
functorch transform, a trace, a compilation, a stream's capture or parametrize's cache is active,
where hooks of the program's get what is saved for the backward pass, or where another thread than
the session's runs the block.

Where a tensor that the block got, a parameter, one of the attributes named above, or what requires
gradients has changed meanwhile, the second execution would make other gradients: it is an error,
which says so. It is also an error if a forward hook was attached meanwhile, to a module in the
block or to all modules. Not seen are changes of attributes of other kinds, as of a configuration;
what is written into a module's __dict__ itself, also by object.__setattr__; and what is written to
parameter.data.
"""
import contextlib
import enum
import functools
import gc
import inspect
import random
import sys
import threading
import types
import weakref

import torch

ALIKE_MIN = 3  # modules of one class make blocks
STAGES_MAX, STAGE_PART = 5, 0.8  # so few blocks are stages where so much of them is other blocks
CHANGES_MAX = 2  # executions that are watched, and change something, until a block is left alone
TRIES_MAX = 3  # searches of a session that find nothing: each looks at every object of the program
CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size,
         enum.Enum)
PLAIN_KINDS = frozenset(PLAIN)  # most things' types: faster to ask than for their subclasses
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, type)  # as an activation is
NOT_COUNTED = float("nan")  # equals no count, nor itself
CONTENTS_MAX, DEPTH_MAX = 64, 4  # of larger and deeper containers only the length is watched
OF_ANY_MODULE = {"forward", *vars(torch.nn.Module())} - {"training"}  # no attributes of its own
CACHES = "DynamicCache", "EncoderDecoderCache"  # transformers', the second of two of the first
POSITIONAL = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def find_blocks():
    """The blocks of all models that there are, each with its index in a list of such blocks, or
    None where a model has blocks of its class in several lists."""
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
        for index, module in enumerate(torch.nn.Module.children(things)):
            by_class.setdefault(type(module), []).append((index, module))
        for kind, alike in by_class.items():
            if len(alike) >= ALIKE_MIN:
                found.update((id(m), (index, m)) for index, m in alike if is_block(m))
            if not issubclass(kind, CONTAINERS):
                of_model.setdefault((model_of(id(things), parents), kind), []).append(alike)
    for of_lists in of_model.values():
        alike = {id(module): module for of_list in of_lists for _, module in of_list}
        if len(alike) >= ALIKE_MIN and len(of_lists) > 1:  # an index is not its layer's number
            found.update((n, (None, m)) for n, m in alike.items() if n in found or is_block(m))
    leave_stages(found, parents)
    outer = [block for _, block in found.values()] + [b for b in former if b is not None]
    inner = {id(part) for block in outer for part in block.modules() if part is not block}
    return [pair for number, pair in found.items() if number not in inner]


def leave_stages(found, parents):
    """Removes the blocks that are stages: few of a class in a model, which consist of other blocks.
    Executed again at once, a stage would need all that these make."""
    alike = {}
    for number, (_, block) in found.items():
        alike.setdefault((model_of(number, parents), type(block)), []).append(block)
    for few in alike.values():
        inside = {id(part) for block in few for part in block.modules() if part is not block}
        inside &= found.keys() - {id(block) for block in few}
        others = {number: found[number][1] for number in inside}
        own = {p: p.numel() for block in few for p in block.parameters()}
        theirs = {p: p.numel() for block in others.values() for p in block.parameters()}
        consist = sum(theirs.values()) >= STAGE_PART * sum(own.values())
        if len(few) <= STAGES_MAX and len(others) >= 2 * len(few) and consist:
            for block in few:
                del found[id(block)]


def layer_of(modules, index):
    """The number by which a cache knows a block; None: it is not known. Modules of transformers
    have it as an attribute; of other blocks it is the index in their list."""
    numbers = [vars(module).get("layer_idx") for module in modules]
    numbers = [number for number in numbers if number is not None] or [index]
    is_known = all(type(number) is int and number == numbers[0] for number in numbers)
    return numbers[0] if is_known else None


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


def tensors_of(thing, found):
    """Appends an argument's tensors. Whether the argument is of a known kind."""
    if isinstance(thing, torch.Tensor):
        found.append(thing)
        return True
    if isinstance(thing, PLAIN):
        return True
    if type(thing) is dict:
        return all(tensors_of(value, found) for value in thing.values())
    if type(thing) in (tuple, list):
        return all(tensors_of(value, found) for value in thing)
    return False


def is_cache(thing):
    return type(thing).__name__ in CACHES


def is_unused(cache, index):
    """Whether it is empty for block `index`; None: that is not known."""
    if index is None:
        return False
    if type(cache).__name__ == CACHES[0]:
        return cache.get_seq_length(index) == 0
    parts = cache.self_attention_cache, cache.cross_attention_cache
    return all(type(part).__name__ == CACHES[0] and is_unused(part, index) for part in parts)


def copy_of(thing):
    """An argument with containers of its own."""
    if type(thing) is dict:
        return {key: copy_of(value) for key, value in thing.items()}
    if type(thing) in (tuple, list):
        return type(thing)(copy_of(value) for value in thing)
    return thing


def look(thing, tensors, depth=0):
    """What is to stay of a thing. Equal if it has stayed. Its tensors are appended to `tensors`. It
    asks for the thing's type, and not, as isinstance does, for its attribute __class__: some
    configurations execute code for that."""
    kind = type(thing)
    if kind in PLAIN_KINDS or issubclass(kind, PLAIN + FUNCTIONS):
        return thing
    if issubclass(kind, torch.Tensor):
        tensors.append(thing)
    elif issubclass(kind, torch.Generator):
        return bytes(thing.get_state().tolist())
    elif issubclass(kind, (dict, list, tuple, set, frozenset)):
        if len(thing) > CONTENTS_MAX or depth == DEPTH_MAX:
            return len(thing)
        if issubclass(kind, (set, frozenset)):  # nothing else in it is held
            return {value for value in thing if type(value) in PLAIN_KINDS}, len(thing)
        if issubclass(kind, dict):
            return [(look(k, tensors), look(v, tensors, depth + 1)) for k, v in thing.items()]
        return [look(value, tensors, depth + 1) for value in thing]
    return None


def versions_of(tensors):
    """How often somebody has written each."""
    return [None if tensor.is_inference() else tensor._version for tensor in tensors]


def modules_of(block):
    """The block and all modules in it, each once: modules() takes several times as long."""
    found, seen = [block], {block}
    for module in found:
        for part in module._modules.values() if module._modules else ():
            if part is not None and part not in seen:
                seen.add(part)
                found.append(part)
    return found


def parts_of(modules):
    """The ids of what is in each. Containers change that without what Changes counts."""
    return [id(part) for module in modules for part in module._modules.values()]


class Changes:
    """Counts what is set, removed and registered at modules. As long as nothing is, a block's
    attributes need not be looked at again: that took the host a third as long as the block itself.
    What is written into a module's __dict__ is not counted."""

    NAMES = ("__setattr__", "__delattr__", "__setstate__", "register_parameter", "register_buffer",
             "add_module")

    def __init__(self, replace):
        self.count, self._replace = NOT_COUNTED, replace

    def begin(self):
        """Does so once, however often it is called."""
        if self._replace:
            for name in self.NAMES:
                self._replace(torch.nn.Module, name, self._counting)
            self.count, self._replace = 0, None

    def end(self):
        self.count = NOT_COUNTED  # a backward pass may come later

    def _counting(self, former):
        @functools.wraps(former)
        def change(*args, **kwargs):
            self.count += 1
            return former(*args, **kwargs)

        return change


class Attributes:
    """Those of a block's modules. No module is held: a program may replace it."""

    __slots__ = ("count", "modules", "parts", "layer", "values", "others", "holders")

    def __init__(self, count, modules, index):
        setters = {type(module).__setattr__ for module in modules}  # others may count nothing
        self.count = count if setters == {torch.nn.Module.__setattr__} else NOT_COUNTED
        self.modules = [weakref.ref(module) for module in modules]
        self.parts, self.layer = parts_of(modules), layer_of(modules, index)
        self.values, self.others = [], []  # those that cannot change, and where others are
        for module, ref in zip(modules, self.modules):
            for name, value in vars(module).items():
                if name in OF_ANY_MODULE:
                    continue
                self.values.append(name)
                if is_constant(value):
                    self.values.append(value)
                else:
                    self.others.append((ref, name))
        self.holders = [r for r, m in zip(self.modules, modules) if m._parameters or m._buffers]

    def __eq__(self, other):
        return self is other or (
            [id(ref()) for ref in self.modules] == [id(ref()) for ref in other.modules]
            and self.values == other.values
        )

    def are_now(self, count):
        """Whether nobody has changed them since, nor are modules gone or others there."""
        if self.count != count:
            return False
        modules = [ref() for ref in self.modules]
        return all([module is not None for module in modules]) and self.parts == parts_of(modules)

    def tensors(self):
        """Parameters and buffers."""
        found = []
        for ref in self.holders:
            module = ref()
            found += module._parameters.values()
            found += module._buffers.values()
        return [tensor for tensor in found if tensor is not None]

    def is_plain(self):
        """Whether nothing is attached to the block now that has effects, or that goes away."""
        of_all = torch.nn.modules.module
        if of_all._global_forward_hooks or of_all._global_forward_pre_hooks:
            return False
        inner = [ref() for ref in self.modules[1:]]
        if any([module._forward_hooks or module._forward_pre_hooks for module in inner]):
            return False
        parameters = [p for ref in self.holders for p in ref()._parameters.values()]
        return all([p is None or isinstance(p, torch.nn.Parameter) for p in parameters])

    def has_gradients(self):
        return any([tensor.requires_grad for tensor in self.tensors()])


def is_constant(value):
    """Whether it cannot change."""
    return type(value) in PLAIN_KINDS or (
        type(value) is tuple and PLAIN_KINDS.issuperset(map(type, value))
    )


class State:
    """What a block's execution must not change, nor anybody between its two executions: the
    attributes of its modules, and tensors. Equal to one that refers to the same tensors, while they
    are there. An id alone could be another's later; what held the tensors might be held by them,
    through their graph, for ever. In few lists: Python's garbage collector counts containers."""

    __slots__ = ("attributes", "values", "ids", "versions", "tensors")

    def __init__(self, attributes, tensors, things=()):
        found = list(tensors)
        self.attributes = attributes
        self.values = [look(thing, found) for thing in things]
        for module, name in attributes.others:
            self.values.append(look(vars(module()).get(name), found))
        found += attributes.tensors()
        self.values += [tensor.requires_grad for tensor in found]
        self.ids = list(map(id, found))
        self.versions = versions_of(found)
        self.tensors = list(map(weakref.ref, found))

    def __eq__(self, other):
        return (
            self.ids == other.ids
            and self.versions == other.versions
            and self.values == other.values
            and self.attributes == other.attributes
            and all([tensor() is not None for tensor in self.tensors])
        )

    def is_written(self):
        """Whether somebody has written its tensors since."""
        there = [(tensor(), version) for tensor, version in zip(self.tensors, self.versions)]
        there = [(tensor, version) for tensor, version in there if tensor is not None]
        return versions_of([tensor for tensor, _ in there]) != [version for _, version in there]


def settings():
    """What torch is told of all operators: values, each with the function that sets it."""
    cuda = torch.backends.cuda
    found = [(torch.get_default_dtype(), torch.set_default_dtype)]
    for kind in ("flash", "mem_efficient", "math", "cudnn"):
        set_value = getattr(cuda, f"enable_{kind}_sdp", None)
        if set_value:
            found.append((getattr(cuda, f"{kind}_sdp_enabled")(), set_value))
    return found


@contextlib.contextmanager
def set_back(former):
    """For `with`: the settings are those."""
    changed = [(now, before) for now, before in zip(settings(), former) if now != before]
    for _, (value, set_value) in changed:
        set_value(value)
    try:
        yield
    finally:
        for (value, set_value), _ in changed:
            set_value(value)


def random_state():
    """That of the generators that a checkpoint does not set back."""
    numbers = sys.modules.get("numpy.random")
    return random.getstate(), str(numbers.get_state()) if numbers else None


def gradients_of(modules):
    """Which gradients the parameters have, and how often somebody has written each. A block that
    calls backward() itself, as for a loss of its own, adds to them."""
    found = [p.grad for module in modules for p in module._parameters.values() if p is not None]
    return [None if gradient is None else (id(gradient), gradient._version) for gradient in found]


CHANGED = (
    "gmlake_torch.offload: a block of class {} is executed for the second time, and a tensor that "
    "it got, a parameter, an attribute or a hook of it has changed since: open the session with "
    'recomputes="never", or change it after the backward pass'
)


class Forward:
    """In place of a block's forward."""

    def __init__(self, blocks, index, block):
        self.blocks, self.index, self.block = blocks, index, weakref.ref(block)
        self.is_fit = None  # to be executed twice; None: not executed yet
        self.watched, self.changes = set(), 0  # block.training; executions that changed something
        self.attributes = None  # as they were last
        self.__signature__ = inspect.signature(block.forward)
        parameters = self.__signature__.parameters.values()
        self.names = [p.name for p in parameters if p.kind in POSITIONAL]
        self.optional = {p.name for p in parameters if p.default is None}
        block.forward = self

    def __call__(self, *args, **kwargs):
        block = self.block()
        own = type(block).forward.__get__(block)
        if self.is_fit is False or not self.blocks.may_run():
            return own(*args, **kwargs)
        attributes, tensors = self.attributes_now(), []
        again = self.for_second(args, kwargs, attributes.layer)
        if again is None or not tensors_of(again, tensors) or not attributes.is_plain():
            return own(*args, **kwargs)
        if not (any([t.requires_grad for t in tensors]) or attributes.has_gradients()):
            return own(*args, **kwargs)
        if block.training not in self.watched:
            return self.watch(own, args, kwargs, again, tensors)
        before, again = State(attributes, tensors), copy_of(again)
        was_set, after = settings(), None

        def first():
            nonlocal before, after
            result = own(*args, **kwargs)
            after = self.state(tensors)  # it may have filled a cache
            if before == after:
                before = after  # fewer objects for the garbage collector
            return result

        def second():
            if after is not None:
                is_same = after == self.state(tensors) and self.attributes.is_plain()
                if not is_same or before.is_written():
                    raise RuntimeError(CHANGED.format(type(block).__name__))
            with set_back(was_set):
                return own(*again[0], **again[1])

        return self.blocks.run(first, second, tensors)

    def for_second(self, args, kwargs, layer):
        """What the second execution gets: no cache. None: there is one that is in use."""
        given = *zip(self.names, args), *kwargs.items()
        caches = [(name, value) for name, value in given if is_cache(value)]
        if not caches:
            return args, kwargs
        if not all(k in self.optional and is_unused(v, layer) for k, v in caches):
            return None
        named = [None if is_cache(value) else value for value in args[: len(self.names)]]
        args = (*named, *args[len(named) :])
        return args, {k: None if is_cache(value) else value for k, value in kwargs.items()}

    def attributes_now(self):
        if self.attributes is None or not self.attributes.are_now(self.blocks.changes.count):
            modules = modules_of(self.block())
            self.attributes = Attributes(self.blocks.changes.count, modules, self.index)
        return self.attributes

    def state(self, tensors, things=()):
        return State(self.attributes_now(), tensors, things)

    def watch(self, own, args, kwargs, again, tensors):
        is_training = self.block().training

        def effects():
            self.attributes = None  # the block may write into a module's __dict__
            gradients = gradients_of(modules_of(self.block()))
            return self.state(tensors, again), gradients, random_state()

        before = effects()
        result = own(*args, **kwargs)
        after = effects()
        if before == after:
            self.is_fit = True
            self.watched.add(is_training)
        else:
            self.changes += 1
            if self.changes == CHANGES_MAX:
                self.is_fit = False
        return result

    def __reduce__(self):  # a copy of the block, also one in a file, has its class's forward
        return getattr, (self.block(), "forward")


class Blocks:
    """Those of a session, which runs them: run(first, second, tensors) is called for each that may
    be executed twice. It returns what first returns; tensors are what the block gets. replace: the
    session's, which puts a function in an attribute's place until the session ends."""

    def __init__(self, run, replace):
        self.run = run
        self._forwards, self._thread = [], threading.get_ident()
        self._tries, self.changes = 0, Changes(replace)

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
        if self._forwards:
            self.changes.begin()

    def unwrap(self):
        self.changes.end()
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
        """Whether a block that is called now may be executed twice."""
        return (
            not is_compiling()
            and torch.is_grad_enabled()
            and threading.get_ident() == self._thread
            and not is_in_backward()
            and not is_transformed()
            and not torch.jit.is_tracing()
            and not is_caching()
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


def is_caching():
    """Whether one execution of a block uses what another one computed of a parameter."""
    parametrize = sys.modules.get("torch.nn.utils.parametrize")
    return bool(getattr(parametrize, "_cache_enabled", 0))


def is_transformed():
    functorch = getattr(torch._C, "_functorch", None)
    peek = getattr(functorch, "peek_interpreter_stack", None)
    return peek is not None and peek() is not None
