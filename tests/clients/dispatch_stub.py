"""Runs dispatch.py, record.py and parts of session.py of gmlake_torch where torch is not: as much
of torch as they touch, and operators that are called as a dispatch mode is called.

    dispatch_stub.py FILE         what the operators of a small program read and write; records FILE
"""
import os
import re
import sys
import types


class Storage:
    def __init__(self, bytes):
        self.bytes, self._cdata = bytes, id(self)

    def nbytes(self):
        return self.bytes


class Tensor:
    def __init__(self, count, storage=None, device="meta"):
        self.count, self.storage = count, storage or Storage(4 * count)
        self.device = types.SimpleNamespace(type=device)

    def data_ptr(self):
        return id(self.storage)

    def untyped_storage(self):
        return self.storage

    def numel(self):
        return self.count

    def element_size(self):
        return 4

    def dim(self):
        return 1

    def is_contiguous(self, **_):
        return True


class StorageWeakRef:
    """Here the test says which storages are gone."""

    gone = set()

    def __init__(self, storage):
        self.storage = storage

    def expired(self):
        return self.storage in self.gone


class Mode:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Fake(Tensor):
    pass


class Wrapper(Tensor):
    def __tensor_flatten__(self):
        return ["inner"], None


class Hook:
    def __init__(self, hooks, function):
        self.hooks, self.function = hooks, function
        hooks.append(function)

    def remove(self):
        self.hooks.remove(self.function)


def argument(text, kwarg_only):
    match = re.match(r"(Tensor)?(\((\w)(!?)\))?(\S*) (\w+)", text)
    alias = types.SimpleNamespace(is_write=bool(match[4])) if match[2] else None
    return types.SimpleNamespace(
        type=(match[1] or "") + match[5], name=match[6], alias_info=alias, kwarg_only=kwarg_only
    )


class Function:
    """An operator by its schema, as torch writes it."""

    def __init__(self, schema, kernel=None):
        name, arguments, returns = re.match(r"([^(]+)\((.*)\) -> (.*)", schema).groups()
        self.name, _, overload = name.partition(".")
        self.text = self.name.replace("::", ".") + "." + (overload or "default")
        self.kernel = kernel
        parsed, kwarg_only = [], False
        for text in filter(None, arguments.split(", ")):
            if text == "*":
                kwarg_only = True
            else:
                parsed.append(argument(text, kwarg_only))
        returned = [argument(returns + " out", False)] if returns != "()" else []
        self._schema = types.SimpleNamespace(
            name=self.name, overload_name=overload, arguments=parsed, returns=returned
        )

    def __str__(self):
        return self.text

    def __call__(self, *args, **kwargs):
        return self.kernel(*args, **kwargs) if self.kernel else None


checkpoint = types.ModuleType("torch.utils.checkpoint")
checkpoint.noop_context_fn = lambda: None
recomputed = []  # what torch would execute in the backward pass


def generator(function, preserve, context, *args):
    """As torch's: it runs before the function, and after it."""
    recomputed.append(lambda: function(*args))
    yield


checkpoint._checkpoint_without_reentrant_generator = generator


def checkpointed(function, *args, context=checkpoint.noop_context_fn):
    around = checkpoint._checkpoint_without_reentrant_generator(function, True, context, *args)
    next(around)
    result = function(*args)
    assert next(around, None) is None
    return result


def module(steps_before, steps_after):
    torch = types.ModuleType("torch")
    torch.__version__, torch.Tensor, torch.channels_last = "stub", Tensor, None
    has_kernel = lambda name, key: name in ("aten::reshape",)  # noqa: E731: that is composite
    torch._C = types.SimpleNamespace(
        _dispatch_has_kernel_for_dispatch_key=has_kernel, TensorBase=Tensor
    )
    optimizer = types.SimpleNamespace(
        register_optimizer_step_pre_hook=lambda function: Hook(steps_before, function),
        register_optimizer_step_post_hook=lambda function: Hook(steps_after, function),
    )
    torch.is_grad_enabled = lambda: True
    torch.utils = types.SimpleNamespace(checkpoint=checkpoint)
    parts = {
        "torch": torch,
        "torch.optim": types.ModuleType("torch.optim"),
        "torch.optim.optimizer": optimizer,
        "torch.utils": types.ModuleType("torch.utils"),
        "torch.utils.checkpoint": checkpoint,
        "torch.utils._python_dispatch": types.SimpleNamespace(TorchDispatchMode=Mode),
        "torch.utils.flop_counter": types.SimpleNamespace(flop_registry={}),
        "torch._subclasses.fake_tensor": types.SimpleNamespace(FakeTensor=Fake),
        "torch.multiprocessing.reductions": types.SimpleNamespace(StorageWeakRef=StorageWeakRef),
    }
    sys.modules.update(parts)


def package():
    """gmlake_torch without its __init__, which needs a torch with GPUs."""
    found = types.ModuleType("gmlake_torch")
    found.__path__ = [os.path.join("examples", "torch", "gmlake_torch")]
    sys.modules["gmlake_torch"] = found


def same(count):
    return lambda *_, **__: Tensor(count)


ADD = Function("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha) -> Tensor", same(8))
CACHE = Function("mine::cache(Tensor x, *, Tensor(a!) cache) -> ()")
ADD_OUT = Function(
    "aten::add.out(Tensor self, Tensor other, *, Scalar alpha, Tensor(a!) out) -> Tensor(a!)"
)
ADD_IN_PLACE = Function("aten::add_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)")
VIEW = Function(
    "aten::view(Tensor(a) self, int[] size) -> Tensor(a)", lambda t, n: Tensor(n, t.storage)
)
UNSAFE = Function(
    "aten::_unsafe_view(Tensor self, int[] size) -> Tensor", lambda t, n: Tensor(n, t.storage)
)
RESHAPE = Function("aten::reshape(Tensor(a) self, int[] shape) -> Tensor(a)", same(8))
EMPTY = Function("aten::empty.memory_format(int[] size) -> Tensor", same(8))
RANDN = Function("aten::randn(int[] size) -> Tensor", same(8))
ZERO = Function("aten::zero_(Tensor(a!) self) -> Tensor(a!)")
CAT = Function("aten::cat(Tensor[] tensors, int dim) -> Tensor", same(16))
NORM = Function(
    "aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? running_mean) -> Tensor", same(8)
)
NOTE = Function("profiler::_record_function_enter(str name) -> int")


def seen(dispatch, func, args, kwargs=None):
    """The operator's tensors and how it uses them; None: it is no access."""
    operator = dispatch.Operator(func)
    return None if operator.is_quiet else list(operator.tensors(args, kwargs or {}))


def check_operators(dispatch):
    read, write, overwrite = dispatch.READ, dispatch.WRITE, dispatch.OVERWRITE
    a, b, c = Tensor(8), Tensor(8), Tensor(8)
    assert seen(dispatch, ADD, (a, b)) == [(a, read), (b, read)]
    assert seen(dispatch, ADD, (a,), {"other": b}) == [(a, read), (b, read)]
    assert seen(dispatch, ADD_OUT, (a, b), {"out": c})[2] == (c, overwrite)
    assert seen(dispatch, CACHE, (a,), {"cache": b}) == [(a, read), (b, write)]  # no `out`
    assert seen(dispatch, ADD_IN_PLACE, (a, b)) == [(a, write), (b, read)]
    assert seen(dispatch, ZERO, (a,)) == [(a, overwrite)]
    assert seen(dispatch, CAT, ([a, b], 0)) == [(a, read), (b, read)]
    assert seen(dispatch, NORM, (a, None, b)) == [(a, read), (b, write)]
    assert seen(dispatch, RANDN, (8,)) == []
    for quiet in (VIEW, UNSAFE, EMPTY, NOTE):
        assert seen(dispatch, quiet, (a, 8)) is None, quiet.text
    assert seen(dispatch, RESHAPE, (a, 8)) == [(a, read)]  # it may copy
    assert dispatch.covers(a) and not dispatch.covers(Tensor(4, a.storage))
    opaque = types.SimpleNamespace(_schema=None)
    assert seen(dispatch, opaque, (a, [b]), {"x": {"y": c}}) == [(a, write), (b, write), (c, write)]


def program(call, mark):
    """Two iterations: a weight, a state that the first one makes, and what goes again."""
    weight = call(RANDN, 8)
    mark()
    state, part = None, None
    for i in range(2):
        x = call(RANDN, 8)
        y = call(ADD, call(VIEW, weight, 8), x)
        state = state or call(RANDN, 8)
        call(ADD_IN_PLACE, state, y)
        part = part or Tensor(4, state.storage)
        call(ZERO, part)  # the other half stays: it is read, too
        call(ADD_IN_PLACE, weight, state)
        StorageWeakRef.gone |= {x.storage, y.storage}
        mark()


GRAPH = """\
gmgraph 1
# torch: stub
# times: estimated
t 0 32 p
t 1 32 a
t 2 32 a
t 3 32 a
t 4 32 a
t 5 32 a
o randn.default 2000 r w 0
m iteration 0
o randn.default 2000 r w 1
o add.Tensor 2000 r 0 1 w 2
o randn.default 2000 r w 3
o add_.Tensor 2000 r 3 2 w 3
o zero_.default 2000 r 3 w 3
o add_.Tensor 2000 r 0 3 w 0
m iteration 1
o randn.default 2000 r w 4
o add.Tensor 2000 r 0 4 w 5
o add_.Tensor 2000 r 3 5 w 3
o zero_.default 2000 r 3 w 3
o add_.Tensor 2000 r 0 3 w 0
m iteration 2
"""


def check_record(record, path, steps_after):
    for is_by_steps in (False, True):
        StorageWeakRef.gone = set()
        with record.Recorder(path, marks_steps=is_by_steps) as recorder:
            assert len(steps_after) == is_by_steps
            mark = (lambda: steps_after[0](None, (), {})) if is_by_steps else recorder.mark
            call = lambda func, *args: recorder.__torch_dispatch__(func, (), args)  # noqa: E731
            program(call, mark)
            wrapped = recorder.__torch_dispatch__(ADD, (Wrapper,), (Wrapper(8), Wrapper(8)))
            assert wrapped is NotImplemented
        assert not steps_after
        with open(path) as file:
            text = file.read()
        assert text == GRAPH, text


class Calls:
    """In place of session.Calls. The second region is kept."""

    def __init__(self):
        self.told, self.count = [], 0

    def region(self):
        self.count += 1
        self.told.append(f"region {self.count}")
        return self.count, self.count == 2

    def recompute(self, region):
        self.told.append(f"again {region}")

    def region_end(self):
        self.told.append("end")


def check_regions(session):
    """What of checkpoints the session is told, and when."""
    calls = Calls()
    own = session.Session(calls, None, 1 << 30, keeps_regions=True)
    own._patch_checkpoints()
    told, add = calls.told, lambda a, b: told.append("add") or a + b
    nested = lambda a, b: checkpointed(add, a, b)  # noqa: E731
    assert checkpointed(add, 1, 2) == 3 and told == ["region 1", "add", "end"], told
    told.clear()
    assert checkpointed(add, 1, 2) == 3 and told == ["region 2", "add", "end"], told
    assert len(recomputed) == 1  # the second one saves nothing
    told.clear()
    recomputed.pop()()
    assert told == ["again 1", "add", "end"], told
    told.clear()
    checkpointed(nested, 1, 2)
    assert told == ["region 3", "add", "end"] and len(recomputed) == 2, told
    told.clear()
    recomputed[0]()  # the outer one's, which makes the inner one's again
    assert told == ["again 3", "add", "end"] and len(recomputed) == 3, told
    told.clear()
    recomputed.pop()()
    assert told == ["add"], told
    told.clear()
    checkpointed(add, 1, 2, context=lambda: None)  # it says itself what is kept
    try:
        checkpointed(lambda: 1 / 0)
    except ZeroDivisionError:
        told.append("error")
    assert told == ["add", "region 4", "error", "end"], told  # when nobody has the error any more
    for owner, name, former in own._undo:
        setattr(owner, name, former)
    assert checkpoint._checkpoint_without_reentrant_generator is generator


if __name__ == "__main__":
    before, after = [], []
    module(before, after)
    package()
    from gmlake_torch import dispatch, record, session

    check_regions(session)
    check_operators(dispatch)
    check_record(record, sys.argv[1], after)
