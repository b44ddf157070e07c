"""Blocks that a model repeats, in sessions that execute them twice, with the CPU's memory in place
of a GPU's (torch_session.cpp):

    LD_PRELOAD=session.so python3 tests/clients/torch_blocks.py session.so operators.so
"""
import copy
import ctypes
import gc
import io
import sys
import weakref

import torch

from torch_package import package

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


class DynamicCache:
    """As transformers': what a layer has seen, by its index."""

    def __init__(self):
        self.seen, self.count = {}, 0

    def get_seq_length(self, index):
        return self.seen.get(index, 0)

    def update(self, layer, y):
        self.count += 1
        self.seen[len(self.seen)] = y.shape[1]
        return y


class Other(DynamicCache):
    """A class that nobody knows."""


def counts(session, paths, make, **kwargs):
    """Trains with and without a session that executes blocks twice. Returns how many were."""
    torch.manual_seed(1)
    expected = losses(make(), **kwargs)
    torch.manual_seed(1)
    own = session.Session(
        session.Calls(*paths), torch.device("cpu"), 1 << 30, marks_steps=False, recomputes="always"
    )
    with own:
        model = make()
        got = losses(model, own.mark, **kwargs)
        stats = own.stats()
        layers = {id(module) for module in model.modules()}
        fits = [f.is_fit for f in own._blocks._forwards if id(f.block()) in layers]
    assert got == expected, (got, expected)
    assert not any("forward" in vars(module) for module in model.modules())
    assert stats["region_count"] == fits.count(True), (stats["region_count"], fits)
    return fits.count(True)


def check_results(session, paths):
    """The same results, down to random numbers; one region a block."""
    assert counts(session, paths, Model) == LAYERS
    assert counts(session, paths, Model, scale=lambda: (torch.ones(1),)) == LAYERS
    assert counts(session, paths, lambda: Model(count=2)) == 0
    # What is in a block is none; two of a kind are none; one may be used twice.
    three = lambda: Model(lambda: torch.nn.Sequential(Layer(), Layer(), Layer()), 4)
    assert counts(session, paths, three) == 4
    assert counts(session, paths, lambda: Model(lambda: torch.nn.Sequential(Layer()), 2)) == 0
    # A cache that is empty for a block is filled once.
    assert counts(session, paths, Model, past_key_values=DynamicCache) == LAYERS
    assert counts(session, paths, Model, past_key_values=Other) == 0
    assert counts(session, paths, Model, past_key_values=lambda: filled(2)) == 2


def filled(layers):
    cache = DynamicCache()
    cache.seen.update({index: 1 for index in range(LAYERS) if index >= layers})
    return cache


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


class Embeds(Model):
    """Nothing in front of the blocks is trained."""

    def __init__(self):
        super().__init__(Frozen)
        self.embed.requires_grad_(False)


def check_effects(session, paths):
    """Blocks with effects are executed once."""
    for layer in (Normed, Counts, Appends, Buffered, Replaces, InPlace):
        assert counts(session, paths, lambda layer=layer: Model(layer)) == 0, layer.__name__
    assert counts(session, paths, Embeds) == 0  # and such that keep nothing
    assert counts(session, paths, lambda: Model(Frozen)) == LAYERS


def check_copies(session, paths):
    """A copy of a block, or one that was saved, is no block; what a session found may go."""
    own = session.Session(
        session.Calls(*paths), torch.device("cpu"), 1 << 30, marks_steps=False, recomputes="always"
    )
    with own:
        model = Model()
        losses(model, own.mark, 2)
        assert all("forward" in vars(layer) for layer in model.layers)
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (twin, torch.load(file)):
            for mine, its in zip(model.layers, other.layers):
                assert its.forward.__self__ is its and its.forward.__func__ is Layer.forward
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

    with session.Session(
        session.Calls(*paths), torch.device("cpu"), 1 << 30, recomputes="always"
    ) as own:
        model = Model()
        losses(model, own.mark, 2)
        forward, ran = own._blocks._forwards[0], []
        own._blocks.run = lambda own, args, kwargs, _: ran.append(1) or own(*args, **kwargs)
        x = torch.zeros(1, LENGTH, WIDTH)
        forward(x)
        assert len(ran) == 1
        with torch.no_grad():
            forward(x)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(forward, x).result()
        assert len(ran) == 1


def check_rule(session, paths):
    """Blocks are looked for when moving tensors alone makes an iteration a tenth longer."""
    for added, recomputes, wanted in ((11, "auto", 6), (10, "auto", 0), (99, "never", 0)):
        own = session.Session(
            session.Calls(*paths), torch.device("cpu"), 1 << 30, recomputes=recomputes
        )
        with own:
            model = Model()
            if own._blocks is not None:
                own.stats = lambda: {"plan_added_ns": added, "step_ns": 100}
            losses(model, own.mark, steps=1)
            found = sum("forward" in vars(layer) for layer in model.layers)
            assert found == wanted, (added, recomputes, found)
    del model
    gc.collect()
    tries = []
    with session.Session(session.Calls(*paths), torch.device("cpu"), 1 << 30) as own:
        own.stats = lambda: tries.append(1) or {"plan_added_ns": 99, "step_ns": 100}
        losses(Model(count=2), own.mark, steps=5)
        assert len(tries) == 3, tries  # what has no blocks is not searched for ever
    try:
        session.Session(session.Calls(*paths), torch.device("cpu"), 1 << 30, recomputes=True)
    except ValueError as error:
        assert "recomputes is True" in str(error)
    else:
        raise AssertionError("no error")


def check_memory(session, paths):
    """With blocks executed twice the limit is held, and most of what they make never leaves."""
    library, moved = ctypes.CDLL(paths[0]), {}
    library.host_peak.restype = ctypes.c_size_t
    for recomputes in ("never", "always"):
        library.host_reset_peak()
        with session.Session(
            session.Calls(*paths), torch.device("cpu"), 20 << 20, recomputes=recomputes
        ) as own:
            torch.manual_seed(1)
            before = own.stats()["out_bytes"]
            found = losses(Model(), own.mark, 4, rows=256)
            moved[recomputes] = found, own.stats()["out_bytes"] - before
        assert library.host_peak() <= 20 << 20
    assert moved["never"][0] == moved["always"][0]
    assert moved["always"][1] < moved["never"][1] / 2, moved  # its first iteration counts, too


class Checkpointed(torch.nn.Module):
    """Its layer is under a checkpoint of the program's own."""

    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)


class CheckpointedLayers(Model):
    def forward(self, x):
        y = self.embed(x)
        for layer in self.layers:
            y = torch.utils.checkpoint.checkpoint(layer, y, use_reentrant=False)
        return self.head(y)


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
    """What the program checkpoints is a region if it asks for that; blocks inside are none. All
    above, too, by the newer way to checkpoint."""
    newer_checkpoint()
    check_results(session, paths)
    assert counts(session, paths, lambda: Model(Checkpointed)) == LAYERS
    torch.manual_seed(1)
    expected = losses(CheckpointedLayers(), steps=4)
    for keeps_regions in (False, True):
        own = session.Session(
            session.Calls(*paths),
            torch.device("cpu"),
            1 << 30,
            marks_steps=False,
            keeps_regions=keeps_regions,
            recomputes="always",
        )
        with own:
            torch.manual_seed(1)
            assert losses(CheckpointedLayers(), own.mark, 4) == expected
            assert own.stats()["region_count"] == keeps_regions * LAYERS


if __name__ == "__main__":
    package()
    from gmlake_torch import session

    for check in (
        check_results,
        check_effects,
        check_copies,
        check_thread_and_gradients,
        check_rule,
        check_memory,
        check_checkpoints,
    ):
        check(session, sys.argv[1:])
