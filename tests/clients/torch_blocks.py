"""Blocks that a model repeats, in sessions that execute their operators again, with the CPU's
memory in place of a GPU's (torch_session.cpp):

    LD_PRELOAD=session.so python3 tests/clients/torch_blocks.py session.so operators.so
"""
import contextlib
import copy
import ctypes
import enum
import gc
import inspect
import io
import random
import sys
import threading
import types
import weakref

import torch
import torch.utils._python_dispatch

import torch_package
from torch_package import refused

WIDTH, LAYERS, LENGTH = 64, 6, 16


class Layer(torch.nn.Module):
    """With dropout, and with arguments as those of transformers' layers."""

    def __init__(self):
        super().__init__()
        self.norm, self.wide = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.back, self.drop = torch.nn.Linear(4 * WIDTH, WIDTH), torch.nn.Dropout(0.1)

    def forward(self, x, scale=None, past_key_values=None, **kwargs):
        y = torch.nn.functional.gelu(self.wide(self.norm(x)))
        if past_key_values is not None:
            y = past_key_values.update(self, y)
        y = self.drop(self.back(y))
        return x + (y if scale is None else y * scale[0])


class Model(torch.nn.Module):
    def __init__(self, layer=Layer, count=LAYERS):
        super().__init__()
        self.embed = torch.nn.Embedding(64, WIDTH)
        self.layers = torch.nn.ModuleList(layer() for _ in range(count))
        self.head = torch.nn.Linear(WIDTH, 64)

    def forward(self, x, *args, **kwargs):
        y = self.embed(x)
        for layer in self.layers:
            y = layer(y, *args, **kwargs)
        return self.head(y)


class Levels(Model):
    def __init__(self):
        super().__init__(count=2)
        self.more = torch.nn.ModuleDict({"a": Layer(), "b": Layer()})
        pairs = ([Layer(), Layer()] for _ in range(3))
        self.levels = torch.nn.ModuleList(torch.nn.ModuleList(pair) for pair in pairs)

    def forward(self, x, *args, **kwargs):
        y = self.embed(x)
        of_levels = (layer for level in self.levels for layer in level)
        for layer in (*self.layers, *self.more.values(), *of_levels):
            y = layer(y, *args, **kwargs)
        return self.head(y)


class Shared(Model):
    """Layers that are used twice, and compute a weight once."""

    def __init__(self):
        super().__init__()
        for layer in self.layers:
            torch.nn.utils.parametrize.register_parametrization(layer.wide, "weight", Squared())

    def forward(self, x):
        with torch.nn.utils.parametrize.cached():
            y = self.embed(x)
            for layer in (*self.layers, *self.layers):
                y = layer(y)
            return self.head(y)


class Squared(torch.nn.Module):
    def forward(self, x):
        return x * x.abs()


class Odd(Layer):
    def __init__(self):
        super().__init__()
        self.children = []

    def __getattr__(self, name):
        for kind in (self._parameters, self._modules):
            if name in kind:
                return kind[name]
        raise KeyError(name)


def losses(model, mark=lambda: None, steps=3, rows=4, **kwargs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    found = []
    for i in range(steps):
        torch.manual_seed(i)
        x = torch.randint(0, 64, (rows, LENGTH))
        with torch.autocast("cpu", torch.bfloat16, enabled=i % 2 == 1):
            made = {name: make() for name, make in kwargs.items()}
            y = model(x, **made)
            loss = torch.nn.functional.cross_entropy(y.flatten(0, 1).float(), x.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mark()
        found.append(loss.item())
        found.extend(c.count for c in made.values() if isinstance(c, DynamicCache))
    found.append(sum(parameter.double().sum().item() for parameter in model.parameters()))
    return found


class Heads(Layer):
    def __init__(self):
        super().__init__()
        heads = (torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH)) for _ in range(3))
        self.heads = torch.nn.ModuleList(heads)

    def forward(self, x):
        return super().forward(x) + sum(head(x) for head in self.heads)


class Nest(Layer):
    def __init__(self, depth=2):
        super().__init__()
        self.inner = torch.nn.ModuleList(Nest(depth - 1) for _ in range(2 if depth else 0))

    def forward(self, x):
        for layer in self.inner:
            x = layer(x)
        return super().forward(x)


class DynamicCache:
    """As transformers': what a layer has seen."""

    def __init__(self):
        self.seen, self.count = {}, 0

    def update(self, layer, y):
        self.count += 1
        self.seen[layer] = y = torch.cat([self.seen[layer], y], 1) if layer in self.seen else y
        return y


def opened(session, paths, limit=1 << 30, **options):
    """A session that executes blocks again."""
    options = {"marks_steps": False, "recomputes": "always", **options}
    return torch_package.opened(session, paths, limit, **options)


def counts(session, paths, make, calls=1, **kwargs):
    """Trains with and without a session that executes blocks again: all operators, or such as are
    not costly. Returns how many blocks are, each of which is called so often."""
    torch.manual_seed(1)
    expected, found = losses(make(), **kwargs), []
    for is_whole in (True, False):
        torch.manual_seed(1)
        with opened(session, paths) as own:
            own._blocks.are_whole = is_whole
            model = make()
            got = losses(model, own.mark, **kwargs)
            stats = own.stats()
            layers = {id(module) for module in model.modules()}
            fits = [f.is_fit for f in own._blocks._forwards if id(f.block()) in layers]
        assert got == expected, (is_whole, got, expected)
        assert not any("forward" in vars(module) for module in model.modules())
        assert stats["region_count"] == calls * fits.count(True), (stats["region_count"], fits)
        found.append(fits.count(True))
    assert found[0] == found[1], found
    return found[0]


def check_results(session, paths):
    """The same results, down to random numbers; one region a block."""
    assert counts(session, paths, Model) == LAYERS
    assert counts(session, paths, Model, scale=lambda: (torch.ones(1),)) == LAYERS
    assert counts(session, paths, lambda: Model(count=2)) == 0
    # What is in a block is none; two of a kind are none; one may be used twice.
    three = lambda: Model(lambda: torch.nn.Sequential(Layer(), Layer(), Layer()), 4)
    assert counts(session, paths, three) == 12  # these four are stages; six are none
    six = lambda: Model(lambda: torch.nn.Sequential(Layer(), Layer(), Layer()), 6)
    assert counts(session, paths, six) == 6
    assert counts(session, paths, lambda: Model(Heads, 4)) == 4  # most of them is no other block
    assert counts(session, paths, lambda: Model(Nest, 3)) == 3  # its parts are of its own class
    assert counts(session, paths, lambda: Model(lambda: torch.nn.Sequential(Layer()), 2)) == 0
    # As many as make blocks may be in several lists of one model, as those of a U-Net's levels.
    pairs = lambda: Model(lambda: torch.nn.Sequential(Layer(), Layer()), 2)
    assert counts(session, paths, pairs) == 4
    assert counts(session, paths, Levels, past_key_values=DynamicCache) == 10
    # Nobody asks modules by functions that they may have replaced.
    assert counts(session, paths, lambda: Model(Odd)) == LAYERS
    odd = lambda: Model(lambda: torch.nn.Sequential(Odd(), Odd()), 2)
    assert counts(session, paths, odd) == 4
    # A weight may be computed once for two executions, and a cache is filled once.
    assert counts(session, paths, Shared, 2) == LAYERS
    assert counts(session, paths, Model, past_key_values=DynamicCache) == LAYERS


class Normed(Layer):
    def __init__(self):
        super().__init__()
        self.running = torch.nn.BatchNorm1d(LENGTH)

    def forward(self, x):
        return self.running(super().forward(x))


class Counts(Layer):
    calls = 0

    def forward(self, x):
        self.calls = self.calls + 1
        return super().forward(x)


class Appends(Layer):
    def __init__(self):
        super().__init__()
        self.log = []

    def forward(self, x):
        self.log.append(1)
        return super().forward(x)


class Buffered(Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        self.mean.lerp_(x.detach().mean((0, 1)).float(), 0.1)
        return super().forward(x)


class Replaces(Buffered):
    def forward(self, x):
        self.mean = x.detach().mean((0, 1)).float()
        return Layer.forward(self, x)


class InPlace(Layer):
    def forward(self, x):
        return super().forward(x.add_(1))


class Frozen(Layer):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)


class Holds(Layer):
    """Changes what is in a container, without a change of its length."""

    def __init__(self):
        super().__init__()
        self.seen = {"count": 0}

    def forward(self, x):
        self.seen["count"] += 1
        return super().forward(x) + self.seen["count"]


class Draws(Layer):
    def forward(self, x):
        return super().forward(x) * random.uniform(1, 2)


class DrawsOwn(Layer):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, x):
        return super().forward(x) * torch.rand(1, generator=self.generator)


class Passes(Layer):
    """Hands on something in a container that it got."""

    def forward(self, x, shared=None):
        y = super().forward(x) * shared["last"].sigmoid()
        shared["last"] = y
        return y


class TrainsOtherwise(Buffered):
    def forward(self, x):
        return super().forward(x) if self.training else Layer.forward(self, x)


class Static(Layer):
    @staticmethod
    def forward(x):
        return x + 1


class Fills(Layer):
    """Memory is filled without torch's dispatcher."""

    def forward(self, x):
        y = super().forward(x)
        made = torch.empty(y.shape)
        made.numpy()[:] = 0.5
        return y * made


class TakesAddress(Layer):
    def forward(self, x):
        y = super().forward(x).exp()
        ctypes.memset(y.data_ptr(), 0, 4)
        return y.sin()


class Sparse(Layer):
    def forward(self, x):
        weight = self.wide.weight[:WIDTH].relu().to_sparse()
        return super().forward(x) * torch.sparse.sum(weight)


def check_effects(session, paths):
    """No code of a block runs twice. One that writes what was there before, or reaches memory by
    itself, is left as it is."""
    for layer in (Counts, Appends, Replaces, Holds, Draws, Frozen):
        random.seed(1)
        state = random.getstate()
        made = lambda layer=layer: (random.setstate(state), Model(layer))[1]
        assert counts(session, paths, made) == LAYERS, layer.__name__
    for layer in (Normed, Buffered, InPlace, DrawsOwn, Static, Fills, TakesAddress, Sparse):
        assert counts(session, paths, lambda layer=layer: Model(layer)) == 0, layer.__name__
    made = lambda: {"last": torch.zeros(1)}
    assert counts(session, paths, lambda: Model(Passes), shared=made) == LAYERS
    with opened(session, paths) as own:
        model = Model(TrainsOtherwise).eval()
        losses(model, own.mark)
        assert own.stats()["region_count"] == LAYERS
        model.train()
        losses(model, own.mark)
        assert own.stats()["region_count"] == 0
        hooked = Model()
        torch.optim.SGD(hooked.parameters(), lr=0.1)
        calls = []
        hooked.layers[0].back.register_forward_hook(lambda *_: calls.append(1))
        for _ in range(3):
            found_in(hooked)
            own.mark()
        assert len(calls) == 3
        assert own.stats()["region_count"] == LAYERS


class Many(Layer):
    """Operators of many kinds: lists, none in them, several results, views, in-place ones."""

    def __init__(self):
        super().__init__()
        self.conv, self.rnn = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.LSTM(WIDTH, WIDTH)

    def forward(self, x):
        x = super().forward(x)
        a, b = torch.stack([x, x.sin(), x.exp().clamp(max=2)], -1).unbind(-1)[:2]
        most, where = a.topk(8, -1)
        b = b.clone()
        b[:, :, where[0, 0]] = most[:, :, :1].sigmoid()
        table = torch.zeros(WIDTH)
        table[::2].add_(1.5)
        table = torch.view_as_real(torch.view_as_complex(b.view(*b.shape[:2], -1, 2)) * 2j)
        b = b + table.flatten(2).masked_fill(a > 1, 0)
        image = b.view(-1, 4, LENGTH // 4, WIDTH).contiguous(memory_format=torch.channels_last)
        image = torch.nn.functional.relu(self.conv(image), inplace=True)
        b = b + torch.cat(image.split(2, 1)[::-1], 1).reshape_as(b)
        weights = torch.nn.functional.dropout(torch.softmax(b @ a.transpose(1, 2), -1), 0.2)
        b = b + torch.einsum("bij,bjk->bik", weights, a) + torch.randn_like(a)
        if b.sum().item() > 1e9:
            b = b * 0
        mask = torch.rand(b.shape[1]) < 0.5
        return torch.where(mask[:, None], self.rnn(b)[0], b * torch.tensor(0.5)).tanh()


class Leaves(torch.autograd.Function):
    """Of the program's own: keeps some itself, and saves an output."""

    @staticmethod
    def forward(ctx, x, weight):
        y = (x * weight).sigmoid_()
        ctx.own = x.detach() * 2
        ctx.save_for_backward(y, weight, x)
        return y

    @staticmethod
    def backward(ctx, gradient):
        y, weight, x = ctx.saved_tensors
        y, weight, x = ctx.saved_tensors  # nobody may say how often
        own = gradient * y * (1 - y)
        return own * weight + 0 * ctx.own, (own * x).sum((0, 1))


class OfItsOwn(Layer):
    def forward(self, x):
        return Leaves.apply(super().forward(x), self.norm.weight)


class Overwrites(Layer):
    """Writes what it made, behind an operator that has saved it and one that has not."""

    def forward(self, x):
        y = super().forward(x)
        z = y * 2
        part = z[:, 1:].cos().sum()
        z = z.detach().clone()
        z[:, ::2] += 1
        z.mul_(part.detach())
        return (y + z).sin_()


def check_operators(session, paths):
    for layer in (Many, OfItsOwn, Overwrites):
        assert counts(session, paths, lambda layer=layer: Model(layer)) == LAYERS, layer.__name__


def check_costly(session, paths):
    """What products have made is held where that is enough; in more blocks it is not, if not."""

    def again(own, model, count):
        """How often the backward pass executes a linear layer again."""
        for forward in own._blocks._forwards:
            forward.is_whole = False
        found_in(model)
        held = {forward.held_bytes for forward in own._blocks._forwards}
        own._blocks.hold_less(count * max(held) - 1)
        loss = model(batch()).square().mean()
        with torch.autograd.profiler.profile() as profile:
            loss.backward()
        own.mark()
        assert own._blocks.may_hold_less() == (count < LAYERS)
        names = [event.name for event in profile.function_events]
        assert names.count("aten::gelu") == LAYERS
        return names.count("aten::addmm"), held

    with opened(session, paths) as own:
        model = Model()
        torch.optim.SGD(model.parameters(), lr=0.1)
        wide = 4 * LENGTH * 4 * WIDTH * 4  # bytes: gelu saves what `wide` has made
        for count in range(LAYERS + 1):
            assert again(own, model, count) == (count, {wide}), count


def check_copies(session, paths):
    """A copy of a block, or one that was saved, is no block; what a session found may go."""
    with opened(session, paths) as own:
        model = Model()
        losses(model, own.mark, 2)
        assert all("forward" in vars(layer) for layer in model.layers)
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (twin, torch.load(file, weights_only=False)):
            for mine, its in zip(model.layers, other.layers):
                assert its.forward.__self__ is its and its.forward.__func__ is Layer.forward
                assert "forward" not in vars(its)  # a copy of it would execute it with `its`
                its.back.bias.data.fill_(7)
            x = torch.zeros(1, LENGTH, dtype=torch.long)
            assert not torch.equal(other.eval()(x), model.eval()(x))
        gone = weakref.ref(model.layers[0])
        del model, mine
        gc.collect()
        assert gone() is None
        second = Model()
        losses(second, own.mark, 2)
        assert "forward" in vars(second.layers[0])


def check_thread_and_gradients(session, paths):
    """Without gradients, in a backward pass and in another thread a block is what it was."""
    from concurrent.futures import ThreadPoolExecutor

    with opened(session, paths, marks_steps=True) as own:
        model = Model()
        losses(model, own.mark, 2)
        forward, ran = own._blocks._forwards[0], []
        own._blocks.run = lambda function, is_whole: (ran.append(1) or function(), None)
        x = torch.zeros(1, LENGTH, WIDTH)
        forward(x)
        assert len(ran) == 1
        with torch.no_grad():
            forward(x)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(forward, x).result()
        former = getattr(torch, "compiler", None)
        torch.compiler = types.SimpleNamespace(is_compiling=lambda: True)
        forward(x)
        torch.compiler = former
        torch.jit.trace(model.layers[0], x, check_trace=False)
        assert len(ran) == 1
        forward(x)
        assert len(ran) == 2


def batch(rows=4):
    return torch.randint(0, 64, (rows, LENGTH))


def found_in(model, make_loss=lambda model: model(batch()).square().mean()):
    """The gradients of a model, and what random numbers are next."""
    torch.manual_seed(7)
    model.zero_grad(set_to_none=True)
    make_loss(model).backward()
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return gradients, torch.rand(1)


def are_equal(some, others):
    return all(
        (a is None and b is None) or torch.equal(a, b)
        for a, b in zip((*some[0], some[1]), (*others[0], others[1]))
    )


def check_arguments(session, paths):
    """A second execution gets what the first one got, whatever the program did to containers."""

    def refills(model):
        scale, y = [None], model.embed(batch())
        for i, layer in enumerate(model.layers):
            scale[0] = torch.tensor(0.5 + i)
            y = layer(x=y, scale=scale)
        return model.head(y).square().mean()

    torch.manual_seed(1)
    model = Model()
    expected = found_in(model, refills)
    with opened(session, paths) as own:
        torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            assert are_equal(found_in(model, refills), expected)


class Mode(enum.Enum):
    FAST, EXACT = "fast", "exact"


class Scaled(Layer):
    def __init__(self):
        super().__init__()
        self.scales, self.names, self.mode = [1.0], {"a", 1}, Mode.FAST
        self.inner, self.act = torch.nn.ModuleList([torch.nn.Tanh()]), torch.relu


def check_changes(session, paths):
    """What a program changes between a block and its backward pass is no matter, or it is an error,
    as without a session: also where what is written is not saved, but needed again."""

    def eval_(model, x):
        model.eval()

    def argument(model, x):
        x.add_(1)

    def parameter(model, x):
        with torch.no_grad():
            model.layers[1].norm.weight.add_(1)

    def needed(model, x):
        with torch.no_grad():
            model.layers[1].wide.bias.add_(1)

    def not_needed(model, x):
        with torch.no_grad():
            model.layers[1].back.bias.add_(1)

    def replaced(model, x):
        model.layers[1].norm.weight = torch.nn.Parameter(torch.ones(WIDTH))

    def data(model, x):
        model.layers[1].wide.weight.data = torch.ones(4 * WIDTH, WIDTH)

    def frozen(model, x):
        model.layers[1].norm.requires_grad_(False)

    def rate(model, x):
        model.layers[1].drop.p = 0.5

    def inside(model, x):
        model.layers[1].scales[0] = 2.0
        model.layers[1].names.remove("a")

    def attributes(model, x):
        model.layers[1].mode, model.layers[1].act = Mode.EXACT, torch.tanh

    def module(model, x):
        model.layers[1].back = copy.deepcopy(model.layers[1].back)

    def inserted(model, x):
        model.layers[1].inner.insert(0, torch.nn.Sigmoid())

    def hook(model, x):
        model.layers[1].back.register_forward_hook(lambda *_: 1 / 0)

    def default(model, x):
        torch.set_default_dtype(torch.float64)

    def seed(model, x):
        torch.manual_seed(3)

    def gone(model, x):
        del model.layers[1]

    def answer(model, change):
        torch.manual_seed(7)
        x = torch.rand(2, LENGTH, WIDTH)
        y, parameters = x, list(model.parameters())
        for layer in model.layers:
            y = layer(y)
        change(model, x)
        try:
            y.sum().backward()
        except RuntimeError as error:
            return str(error), None
        finally:
            torch.set_default_dtype(torch.float32)
        return None, [p.grad for p in parameters if p.grad is not None]

    changes = eval_, argument, parameter, replaced, data, frozen, rate, inside, attributes, module
    for change in (*changes, inserted, hook, default, seed, gone, needed, not_needed):
        torch.manual_seed(1)
        expected, wanted = answer(Model(Scaled), change)
        with opened(session, paths) as own:
            torch.manual_seed(1)
            model = Model(Scaled)
            torch.optim.SGD(model.parameters(), lr=0.1)
            own.mark()
            why, got = answer(model, change)
            own.mark()
            if not why:
                assert own.stats()["region_count"] == LAYERS
        if expected or change is needed:
            assert why and 'recomputes="never"' in why, (change.__name__, why)
        else:
            assert not why and len(got) == len(wanted), (change.__name__, why)
            assert all(map(torch.equal, got, wanted)), change.__name__


class Caches(Layer):
    """Keeps what it has computed of the longest batch until now."""

    def __init__(self):
        super().__init__()
        self.table = torch.zeros(0)

    def forward(self, x):
        if x.shape[1] > len(self.table):
            self.table = torch.arange(x.shape[1]) * 0.1
        return super().forward(x) * self.table[: x.shape[1], None]


class Writes(Layer):
    """Writes what it has saved before."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(1))

    def forward(self, x):
        y = super().forward(x) * self.mean
        self.mean.add_(1)
        return y


class WritesMade(Layer):
    def forward(self, x):
        y = super().forward(x).exp()
        return y.add_(1)


def check_caches(session, paths):
    """A table that is computed once; what was saved and is written is an error, as in torch."""

    def longer(model):
        return sum(model(torch.ones(1, n, dtype=torch.long)).square().mean() for n in (9, 5))

    torch.manual_seed(1)
    model = Model(Caches)
    expected = found_in(model, longer)
    for layer in model.layers:
        layer.table = torch.zeros(0)
    with opened(session, paths) as own:
        torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            assert are_equal(found_in(model, longer), expected)
            own.mark()
        assert own.stats()["region_count"] == LAYERS * 2
    for layer in (Writes, WritesMade):
        with opened(session, paths):
            model = Model(layer)
            torch.optim.SGD(model.parameters(), lr=0.1)
            with refused("was written since"):
                model(batch()).square().mean().backward()


class Fails(Layer):
    is_failing = False

    def forward(self, x):
        y = super().forward(x)
        if Fails.is_failing:
            raise ValueError("as if memory had run out")
        return y


class CheckpointedLayers(Model):
    def forward(self, x):
        y = self.embed(x)
        for layer in self.layers:
            y = torch.utils.checkpoint.checkpoint(layer, y, use_reentrant=False)
        return self.head(y)


def check_errors(session, paths):
    """Behind an error in a block the session is as before, also while its traceback lives."""
    is_new = hasattr(torch.utils.checkpoint, "_checkpoint_without_reentrant_generator")
    for is_own in (False, True)[: 1 + is_new]:
        torch.manual_seed(1)
        model = (CheckpointedLayers if is_own else Model)(Fails)
        expected = found_in(model)
        with opened(session, paths, keeps_regions=is_own) as own:
            torch.optim.SGD(model.parameters(), lr=0.1)
            found_in(model)
            errors = []
            Fails.is_failing = True
            try:
                model(batch())
            except ValueError as error:
                errors.append(error)
            Fails.is_failing = False
            if is_own:  # torch's own hooks stay until its generator goes
                errors.clear()
                gc.collect()
            assert own._region_now is None
            for _ in range(2):
                own.mark()
                assert are_equal(found_in(model), expected)
                own.mark()
                assert own.stats()["region_count"] == LAYERS
                errors.clear()
                gc.collect()
                assert own._region_now is None


def check_told(session, paths):
    """The session is told of each second execution, and when it has ended."""
    with opened(session, paths) as own:
        model = Model()
        torch.optim.SGD(model.parameters(), lr=0.1)
        found_in(model)
        told, calls = [], own._calls

        def telling(name):
            former = getattr(calls, name)

            def call(*args):
                told.append((name, *args))
                return former(*args)

            setattr(calls, name, call)

        telling("recompute")
        telling("region_end")
        found_in(model)
        ends = [("region_end",)] * LAYERS
        assert told[:LAYERS] == ends and told[LAYERS + 1 :: 2] == ends, told
        assert [name for name, _ in told[LAYERS::2]] == ["recompute"] * LAYERS
        assert len(set(told[LAYERS::2])) == LAYERS  # each region once


def check_search(session, paths):
    """A container in the making is no obstacle; a forward that was put back is no other one."""
    unmade = torch.nn.ModuleList.__new__(torch.nn.ModuleList)
    with opened(session, paths) as own:
        model = Model()
        model.layers[0].forward = model.layers[0].forward
        model.layers[1].forward = model.layers[0].forward
        model.layers[2].forward = lambda x: x
        torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            found_in(model)
            own.mark()
        assert own.stats()["region_count"] == LAYERS - 2
    assert [i for i, layer in enumerate(model.layers) if "forward" in vars(layer)] == [1, 2]
    del unmade


def check_ends(session, paths):
    """A session ends between forward and backward; a wrapper of a block's forward stays."""
    torch.manual_seed(1)
    model = Model()
    expected = found_in(model)
    classes = torch.nn.Module, torch.nn.Parameter, torch.Tensor, torch.optim.Optimizer
    as_before = [dict(vars(of_torch)) for of_torch in classes]

    def wrapped(model):
        former = model.layers[0].forward
        model.layers[0].forward = lambda *args, **kwargs: former(*args, **kwargs)
        return former

    with opened(session, paths) as own:
        torch.optim.SGD(model.parameters(), lr=0.1)
        found_in(model)
        former = wrapped(model)
        torch.manual_seed(7)
        model.zero_grad(set_to_none=True)
        loss = model(batch()).square().mean()
    with opened(session, paths):
        loss.backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        assert are_equal((gradients, torch.rand(1)), expected)
        del loss
    assert [dict(vars(of_torch)) for of_torch in classes] == as_before
    assert not former.is_fit  # it is executed once from now on
    assert are_equal(found_in(model), expected)


def check_replicas(session, paths):
    """Shallow copies of blocks, as DataParallel's, compute with their own parameters."""
    with opened(session, paths) as own:
        model = Model()
        losses(model, own.mark, 2)
        layer, x = model.layers[0], torch.ones(1, LENGTH, WIDTH)
        for twin in (copy.copy(layer), layer._replicate_for_data_parallel()):
            assert "forward" not in vars(twin) and "forward" in vars(layer)
            twin._modules = {**twin._modules, "back": torch.nn.Linear(4 * WIDTH, WIDTH)}
            assert not torch.equal(twin.eval()(x), layer.eval()(x))
            layer.train()
        assert "scale" in inspect.signature(layer.forward).parameters


def check_gradients(session, paths):
    """Shared blocks, several calls of each, autograd.grad, double backward, retained graphs."""

    class Shared(Model):
        def forward(self, x):
            y = self.embed(x)
            for layer in (*self.layers, *self.layers):
                y = layer(y)
            return self.head(y)

    def twice(model):
        loss = model(batch()).square().mean()
        loss.backward(retain_graph=True)
        return loss

    def penalty(model):
        y = model.embed(batch()).detach().requires_grad_()
        found = y
        for layer in model.layers:
            found = layer(found)
        (gradient,) = torch.autograd.grad(found.square().mean(), y, create_graph=True)
        return gradient.square().sum() * 1e3 + found.mean()

    for make, make_loss in ((Shared, found_in.__defaults__[0]), (Model, twice), (Model, penalty)):
        torch.manual_seed(1)
        model = make()
        expected = found_in(model, make_loss)
        with opened(session, paths) as own:
            torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                assert are_equal(found_in(model, make_loss), expected), make_loss
                own.mark()


class Energy(Layer):
    """Asks for gradients itself, as of an energy, which gradients flow through."""

    def forward(self, x):
        y = super().forward(x)
        (gradient,) = torch.autograd.grad(self.norm(y).square().sum(), y, create_graph=True)
        return y - 0.1 * gradient


class OwnLoss(Layer):
    def forward(self, x):
        y = super().forward(x)
        self.back(y.detach().sigmoid().repeat(1, 1, 4)).square().mean().backward()
        return self.norm(y)


class Lazy(Layer):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.LazyLinear(4 * WIDTH)


def check_own_gradients(session, paths):
    """A block may ask for gradients while it is executed, and holds nothing for that behind it."""
    assert counts(session, paths, lambda: Model(Energy)) == LAYERS
    assert counts(session, paths, lambda: Model(OwnLoss)) == LAYERS

    def function():
        y = weight.sigmoid().exp()
        return torch.autograd.grad(y.sin().sum(), y, create_graph=True)[0] * y

    def held():
        return sum(type(x) is torch.Tensor and x.shape == (3, 777) for x in gc.get_objects())

    with opened(session, paths) as own:
        weight = torch.nn.Parameter(torch.rand(3, 777))
        result, held_bytes = own._run_block(function, True)
        assert held_bytes == 0 and held() == 1, held()
        expected = torch.autograd.grad(function().sum(), weight)[0]
        assert torch.equal(torch.autograd.grad(result.sum(), weight)[0], expected)


class Ends(torch.autograd.Function):
    """Saves what it makes. Its apply is a function of Python, as each is from torch 2 on."""

    made = []

    @classmethod
    def apply(cls, *args):
        return super().apply(*args)

    @staticmethod
    def forward(ctx, x):
        y = x.sin()
        Ends.made.append(weakref.ref(y))
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


def check_own_functions(session, paths):
    """What an autograd.Function at a block's end has made goes without the garbage collector."""
    weight = torch.nn.Parameter(torch.rand(3))
    gc.disable()
    try:
        with opened(session, paths) as own:
            own._run_block(lambda: Ends.apply(weight.exp()), True)[0].sum().backward()
        assert [made() for made in Ends.made] == [None]
    finally:
        gc.enable()


def check_hooks(session, paths):
    """The program's hooks get what a block saves for the backward pass, and it may allow none."""
    graph = torch.autograd.graph

    def half(tensor):
        return tensor / 2 if tensor.is_floating_point() else tensor

    def halves(model):
        with graph.saved_tensors_hooks(half, lambda tensor: tensor):
            return model(batch()).square().mean()

    def without(model):
        with graph.disable_saved_tensors_hooks("no hooks"):
            return model(batch()).square().mean()

    own_loss = found_in.__defaults__[0]
    for make_loss in (halves, without)[: 1 + hasattr(graph, "disable_saved_tensors_hooks")]:
        torch.manual_seed(1)
        model = Model()
        expected, plain = found_in(model, make_loss), found_in(model)
        with opened(session, paths) as own:
            torch.optim.SGD(model.parameters(), lr=0.1)
            own.mark()
            for ask, wanted, count in (
                (own_loss, plain, LAYERS), (make_loss, expected, 0), (own_loss, plain, LAYERS)
            ):
                assert are_equal(found_in(model, ask), wanted), make_loss
                own.mark()
                assert own.stats()["region_count"] == count


def seeded(run, weight):
    def block():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            noise = torch.randn(8, 8)
        return torch.nn.functional.dropout((noise * weight).exp() * torch.rand(8, 8)).exp()

    return run(block)


def of_inference(run, weight):
    with torch.inference_mode():
        mask = torch.ones(8, 8)
    y = run(lambda: weight * mask.clone())
    with torch.inference_mode():
        mask.add_(1)
    return y


def refused_operator(run, weight):
    def block():
        y = weight.exp()
        with contextlib.suppress(RuntimeError):
            torch.cat([y, y, torch.ones(3, 3)])
        return y.sin().exp()

    return run(block)


def asks_and_writes(run, weight):
    total = torch.zeros(8, 8)

    def block():
        y = weight.exp().sin().exp()
        (gradient,) = torch.autograd.grad(y.sum(), weight, retain_graph=True)
        total.add_(gradient)
        return y * gradient

    return run(block)


def without_hooks(run, weight):
    def block():
        y = weight.exp()
        with torch.autograd.graph.disable_saved_tensors_hooks("as functorch's transforms do"):
            y = y.sin()
        return y.exp()

    return run(block)


def of_dtype(run, weight):
    torch.set_default_dtype(torch.float64)
    y = run(lambda: (torch.rand(8) * (torch.arange(8) / 3) * weight).exp())
    torch.set_default_dtype(torch.float32)
    return y


def of_short_dtypes(run, weight):
    torch.set_default_dtype(torch.bfloat16)
    y = run(lambda: (torch.full((8,), 0.5) * weight.bfloat16()).tanh())
    torch.set_default_dtype(torch.float16)
    y.sum().backward(retain_graph=True)
    torch.set_default_dtype(torch.float32)
    return y.float()


def nested(run, weight):
    def block():
        ragged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
        return weight.exp().exp() * torch.nested.to_padded_tensor(ragged * 2, 0.0).sum()

    return run(block)


def several_out(run, weight):
    def block():
        y = weight.exp()
        most, places = torch.empty(8, 8), torch.empty(8, 8, dtype=torch.long)
        torch.sort(y.detach(), out=(most, places))
        return (y * most * places).sin()

    return run(block)


def in_other_thread(run, weight):
    @torch.jit.script
    def forked(x):
        return torch.jit.wait(torch.jit.fork(torch.sin, x)).exp()

    return run(lambda: forked(weight.exp()) * weight)


def written_meanwhile(run, weight):
    table = torch.ones(8, 8)

    def block():
        y = weight * (table * 2).sin()
        thread = threading.Thread(target=table.add_, args=(1,))
        thread.start()
        thread.join()
        return y.exp()

    return run(block)


def batched(run, weight):
    y = run(lambda: torch.nn.functional.dropout(weight.sin()).exp())
    ways = torch.eye(64).view(64, 8, 8)
    torch.autograd.grad(y, weight, ways, is_grads_batched=True, retain_graph=True)
    return y


KEPT = torch.ones(8, 8)
LIBRARY = "DEF" if torch.__version__.startswith("1.") else "FRAGMENT"
libraries = [torch.library.Library(name, LIBRARY) for name in ("c10d_functional", "blocks")]
for library, function in zip(libraries, (lambda x: x + 1, lambda x: KEPT)):
    library.define("of_test(Tensor x) -> Tensor")
    library.impl("of_test", function, "CPU")


def filled_behind_torch(run, weight):
    def block():
        y, z = torch.zeros(8, 8), torch.zeros_like(weight)
        y.numpy()[:] = z.numpy()[:] = 0.5  # as a kernel of an extension does
        return (weight * (y + 1) * z).exp()

    return run(block)


def of_processes(run, weight):
    operator = torch.ops.c10d_functional.of_test
    return run(lambda: (weight * operator(weight.detach())).exp())


class Doubles(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + result if function is torch.ops.aten.sin.default else result


def mode_in_block(run, weight):
    def block():
        with Doubles():
            y = weight.exp().sin().exp()
        return y.exp()

    return run(block)


def mode_behind(run, weight):
    y = run(lambda: weight.exp().sin().exp())
    with Doubles():
        y.sum().backward(retain_graph=True)
    return y


def check_functions(session, paths):
    """Blocks that do what is rare: the same gradients, and whether they are executed again."""
    spoilt = (
        refused_operator, of_inference, asks_and_writes, nested, written_meanwhile, mode_in_block,
        of_processes,
    )
    others = (
        seeded, without_hooks, of_dtype, of_short_dtypes, several_out, in_other_thread, batched,
        mode_behind, filled_behind_torch,
    )

    def answer(function, run):
        torch.manual_seed(1)
        weight = torch.nn.Parameter(torch.rand(8, 8))
        function(run, weight).sum().backward()
        return weight.grad, torch.rand(1)

    for function in (*spoilt, *others):
        expected, are_fit = answer(function, lambda block: block()), []
        with opened(session, paths) as own:

            def run(block):
                result, held = own._run_block(block, is_whole)
                are_fit.append(held >= 0)
                return result

            for is_whole in (True, False):
                assert all(map(torch.equal, answer(function, run), expected)), function.__name__
        assert set(are_fit) == {function not in spoilt}, function.__name__


def check_outside(session, paths):
    """What was there before a block is not read if it has no memory any more, or was written, also
    where an operator returned it."""
    with opened(session, paths) as own:
        weight, x = torch.nn.Parameter(torch.rand(8, 8)), torch.rand(1 << 16)
        y = own._run_block(lambda: (x * 2).sin().sum() * weight, True)[0]
        x.storage().resize_(0)
        with refused('recomputes="never"'):
            y.sum().backward()
        y = own._run_block(lambda: (weight + torch.ops.blocks.of_test(x).exp()).exp(), True)[0]
        KEPT.add_(1)
        with refused('recomputes="never"'):
            y.sum().backward()
        zeros = []

        def block():
            zeros.append(torch.zeros(8, 8))
            return (weight + (zeros[0] + 1).exp()).sin()

        y = own._run_block(block, True)[0]
        zeros[0].add_(1)
        with refused('recomputes="never"'):
            y.sum().backward()


def check_release(session, paths):
    """In a backward pass what a block that is left as it is has saved goes as it is used."""
    library, held = ctypes.CDLL(paths[0]), []
    library.host_peak.restype = ctypes.c_size_t

    def note(gradient):
        library.host_reset_peak()
        held.append(library.host_peak())

    def block():
        y = weight * 1
        y.register_hook(note)
        for _ in range(8):
            y = y.sin().exp()
        total.add_(1)
        return y

    with opened(session, paths) as own:
        weight, total = torch.nn.Parameter(torch.rand(1 << 16)), torch.zeros(1)
        for run in (lambda: block(), lambda: own._run_block(block, True)[0]):
            run().sum().backward()
            weight.grad = None
    assert held[0] == held[1], held


def check_lazy(session, paths):
    """A module whose parameters its first call makes is no block until then."""
    assert counts(session, paths, lambda: Model(Lazy)) == LAYERS


def check_rule(session, paths):
    """Blocks are looked for when moving tensors alone makes an iteration a tenth longer; before
    there is a plan, when a sixteenth of the limit comes back in backward passes."""
    told = {
        (11, "auto"): 6, (10, "auto"): 0, (99, "never"): 0,
        ((1 << 26) + 1, "auto"): 6, (1 << 26, "auto"): 0,
    }
    for (figure, recomputes), wanted in told.items():
        stats = {"plan_added_ns": figure, "step_ns": 100, "plan_count": 1, "in_bytes": 1 << 30}
        stats["unplanned_bytes"] = 1 << 30
        came = 0
        if figure >= 1 << 26:
            stats.update(plan_added_ns=0, plan_count=0)
            came = figure

        def told_next(stats=stats, came=came):
            stats["in_bytes"] += came
            return stats

        with opened(session, paths, marks_steps=True, recomputes=recomputes) as own:
            model = Model()
            if own._blocks is not None:
                own.stats = told_next
            losses(model, own.mark, steps=1)
            found = sum("forward" in vars(layer) for layer in model.layers)
            assert found == wanted, (figure, recomputes, found)
    del model
    gc.collect()
    with torch_package.opened(session, paths) as own:
        own.stats = lambda: {**stats, "plan_count": 1, "plan_added_ns": 99}
        losses(Model(count=2), own.mark, steps=5)
        assert own._blocks._tries == 3  # what has no blocks is not searched for ever
    # Then each plan says for how many blocks even costly operators are executed again.
    with opened(session, paths, recomputes="auto") as own:
        own.stats = lambda: stats
        stats.update(plan_added_ns=99, plan_count=1, unplanned_bytes=own._open[0])
        model, wholes = Model(), []
        for more, added in ((0, 99), (0, 99), (0, 10), (3, 99), (9, 10), (99, 99), (99, 99)):
            losses(model, own.mark, steps=1)
            stats["plan_count"] += len(wholes) != 0  # the second one was judged
            stats["plan_added_ns"] = added
            held = max((vars(x)["forward"].held_bytes for x in model.layers), default=0)
            stats["unplanned_bytes"] = own._open[0] + more * held
            own.mark()
            wholes.append([layer.forward.is_whole for layer in model.layers].count(True))
        assert wholes == [0, 1, 1, 4, 4, 6, 6], wholes
        assert not own._blocks.may_hold_less()
    # Where there is none yet, what comes back is more than what lacks: it says so in time.
    with opened(session, paths, recomputes="auto") as own:

        def without_plan():
            stats["in_bytes"] += own._open[0]
            return {**stats, "plan_count": 0}

        own.stats = without_plan
        model, wholes = Model(), []
        for _ in range(6):
            losses(model, own.mark, steps=1)
            blocks = own._blocks._forwards
            wholes.append((len(blocks) > 0, all(block.is_whole for block in blocks)))
        assert wholes == [(True, False)] * 4 + [(True, True)] * 2, wholes
    with refused("recomputes is True", ValueError):
        opened(session, paths, recomputes=True)


def check_one_thread(session, paths):
    """backward() runs in the thread that calls it."""
    modes = torch.autograd.grad_mode
    former, ran = getattr(modes, "set_multithreading_enabled", None), []

    @contextlib.contextmanager
    def enabled(mode):
        ran.append(mode)
        with former(mode) if former else contextlib.nullcontext():
            yield

    modes.set_multithreading_enabled = enabled
    try:
        with opened(session, paths, marks_steps=True, recomputes="never") as own:
            losses(Model(), own.mark, 2)
        assert ran == [False] * 2, ran
    finally:
        if former:
            modes.set_multithreading_enabled = former
        else:
            del modes.set_multithreading_enabled


def check_memory(session, paths):
    """With blocks executed again the limit is held, and most of what they make never leaves."""
    library, moved = ctypes.CDLL(paths[0]), {}
    library.host_peak.restype = ctypes.c_size_t
    for recomputes in ("never", "always"):
        library.host_reset_peak()
        with opened(session, paths, 20 << 20, marks_steps=True, recomputes=recomputes) as own:
            torch.manual_seed(1)
            before = own.stats()["out_bytes"]
            found = losses(Model(), own.mark, 4, rows=256)
            moved[recomputes] = found, own.stats()["out_bytes"] - before
        assert library.host_peak() <= 20 << 20
    assert moved["never"][0] == moved["always"][0]
    assert moved["always"][1] < moved["never"][1] / 2, moved  # its first iteration counts, too


def check_room(session, paths):
    """While sizes vary a block is kept where there is room for what it makes: little moves."""

    def train(mark):
        torch.manual_seed(1)
        model, draw = Model(), random.Random(3)
        found = [losses(model, mark, 1, rows=draw.randrange(10, 65)) for _ in range(24)]
        return found, draw.getstate()

    expected, kept, moved = train(lambda: None), [], []
    own = opened(session, paths, 8 << 20)

    def mark():
        own.mark()
        stats = own.stats()
        kept.append(stats["kept_region_count"])
        moved.append((stats["drift_count"], stats["out_bytes"]))

    with own:
        before = own.stats()["out_bytes"]
        assert train(mark) == expected
    assert moved[-1][0] == moved[1][0] and moved[-1][1] - before < 7 << 18, moved
    assert {1, 2, 4}.issubset(kept) and max(kept) < LAYERS, kept


class Checkpointed(torch.nn.Module):
    """Its layer is under a checkpoint of the program's own."""

    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)


def newer_checkpoint():
    """torch.utils.checkpoint as from 2.1 on, as far as sessions know it, where it is older."""
    own = torch.utils.checkpoint
    if hasattr(own, "_checkpoint_without_reentrant_generator"):
        return

    def generator(function, context_fn, *args, **kwargs):
        packed, found = [], {}
        random = torch.get_rng_state()
        is_autocast = torch.is_autocast_cpu_enabled()

        def pack(tensor):
            packed.append(None)
            return len(packed) - 1

        def pack_again(tensor):
            found[len(found)] = tensor.detach()

        def unpack(number):
            if not found:
                with torch.random.fork_rng(devices=[]), torch.enable_grad():
                    torch.set_rng_state(random)
                    hooks = torch.autograd.graph.saved_tensors_hooks(pack_again, lambda _: 1 / 0)
                    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
                        function(*args, **kwargs)
            return found[number]

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield

    def checkpoint(function, *args, use_reentrant, **kwargs):
        running = own._checkpoint_without_reentrant_generator(
            function, own.noop_context_fn, *args, **kwargs
        )
        next(running)
        result = function(*args, **kwargs)
        assert next(running, None) is None
        return result

    own._checkpoint_without_reentrant_generator = generator
    own.noop_context_fn = lambda: None
    own.checkpoint = checkpoint


def check_checkpoints(session, paths):
    """What the program checkpoints is a region if it asks for that; blocks inside are none."""
    newer_checkpoint()
    assert counts(session, paths, lambda: Model(Checkpointed)) == LAYERS
    torch.manual_seed(1)
    expected = losses(CheckpointedLayers(), steps=4)
    for keeps_regions in (False, True):
        with opened(session, paths, keeps_regions=keeps_regions) as own:
            torch.manual_seed(1)
            assert losses(CheckpointedLayers(), own.mark, 4) == expected
            assert own.stats()["region_count"] == keeps_regions * LAYERS


if __name__ == "__main__":
    torch_package.package()
    from gmlake_torch import session

    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check(session, sys.argv[1:])
