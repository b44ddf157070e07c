"""Sees what torch dispatches: which storages an operator reads, and which it writes.

A view is no access. An operator that writes all of a storage does not read it. What an operator
allocates itself is not named here. Wrapped tensors (DTensor) are seen by what they are made of.
record.py uses this; operators.cpp does the same for sessions, at less cost.
"""
import importlib
import os
import re

import torch
from torch.utils._python_dispatch import TorchDispatchMode



def _listed():
    """{kind: {(operator, argument)}} of operators.inc."""
    found = {}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "operators.inc")) as file:
        for line in re.findall(r'^OPERATOR\((\w+), "(.+?)", "(\w*)"\)$', file.read(), re.M):
            found.setdefault(line[0], set()).add(line[1:])
    return found


LISTED = _listed()
READ, WRITE, OVERWRITE = range(3)


def is_composite(schema):
    """Whether it is made of other operators, and so may copy where its schema says view."""
    name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


class Operator:
    """What the schema says of an operator."""

    def __init__(self, func):
        schema = getattr(func, "_schema", None)
        self.name = str(func)
        self.is_opaque = schema is None  # of higher order: takes tensors anywhere, writes any
        self.positions, self.names = [], []
        if self.is_opaque:
            self.is_quiet = False
            return
        name = schema.name
        for index, argument in enumerate(schema.arguments):
            if "Tensor" not in str(argument.type):
                continue
            how = self._how(name, argument)
            self.names.append((argument.name, how))
            if not argument.kwarg_only:
                self.positions.append((index, how))
        does_write = any(how != READ for _, how in self.names)
        has_tensors = bool(self.names) or any("Tensor" in str(r.type) for r in schema.returns)
        returns_alias = any(r.alias_info is not None for r in schema.returns)
        is_view = returns_alias and not does_write and not is_composite(schema)
        is_view |= (name, "") in LISTED["VIEW"]
        is_allocation = (name, "") in LISTED["ALLOCATION"] and not does_write
        asks = name.startswith("prim::")  # for a tensor's device, and the like
        self.is_quiet = is_view or is_allocation or asks or not has_tensors

    @staticmethod
    def _how(name, argument):
        if argument.alias_info is not None and argument.alias_info.is_write:
            is_out = argument.kwarg_only and name.startswith("aten::")
            is_overwriting = (name, "") in LISTED["OVERWRITES"] and argument.name == "self"
            return OVERWRITE if is_out or is_overwriting else WRITE
        return WRITE if (name, argument.name) in LISTED["UNMARKED"] else READ

    def tensors(self, args, kwargs):
        """Yields (tensor, how) for each tensor among the arguments."""
        if self.is_opaque:
            for value in (*args, *kwargs.values()):
                for tensor in tensors_in(value):
                    yield tensor, WRITE
            return
        count = len(args)
        for index, how in self.positions:
            if index >= count:
                break
            value = args[index]
            if isinstance(value, torch.Tensor):
                yield value, how
            elif value is not None:
                for tensor in tensors_in(value):
                    yield tensor, how
        if kwargs:
            for name, how in self.names:
                for tensor in tensors_in(kwargs.get(name)):
                    yield tensor, how


def tensors_in(value):
    """Yields the tensors in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def storage_of(tensor):
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage().untyped()


def covers(tensor):
    """Whether the tensor is all of its storage, each byte once."""
    if tensor.numel() * tensor.element_size() != storage_of(tensor).nbytes():
        return False
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return True
    return tensor.is_contiguous() or (tensor.dim() == 2 and tensor.t().is_contiguous())


class Dispatch(TorchDispatchMode):
    """Calls operate for each operator that may read or write memory."""

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.known = {}

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def operate(self, func, operator, args, kwargs):
        raise NotImplementedError

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if types and any(is_wrapper(t) for t in types):
            return NotImplemented
        operator = self.known.get(func)
        if operator is None:
            operator = self.known[func] = Operator(func)
        if operator.is_quiet:
            return func(*args, **(kwargs or {}))
        return self.operate(func, operator, args, kwargs or {})


def is_wrapper(cls):
    """Whether its tensors are made of others, on which it calls operators of its own."""
    return hasattr(cls, "__tensor_flatten__")


class _Hooks:
    def __init__(self, handles):
        self.handles = handles

    def remove(self):
        for handle in self.handles:
            handle.remove()


def on_step(before=None, after=None):
    """Calls before(optimizer, args, kwargs) and after(optimizer, args, kwargs) at each step of any
    optimizer, until remove() of what it returns is called. torch 2.0 or older has no such hook."""
    optim = importlib.import_module("torch.optim.optimizer")  # torch.optim may hide it
    handles = []
    if before and hasattr(optim, "register_optimizer_step_pre_hook"):
        handles.append(optim.register_optimizer_step_pre_hook(before))
    if after and hasattr(optim, "register_optimizer_step_post_hook"):
        handles.append(optim.register_optimizer_step_post_hook(after))
    return _Hooks(handles)
