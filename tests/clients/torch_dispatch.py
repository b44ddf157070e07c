"""Checks what gmlake_torch sees of real programs, with torch and without a GPU:

    python3 tests/clients/torch_dispatch.py FOLDER
    LD_PRELOAD=judge.so python3 tests/clients/torch_dispatch.py FOLDER judge.so operators.so
    LD_PRELOAD=session.so python3 tests/clients/torch_dispatch.py FOLDER session.so operators.so

The first records a small training on the CPU, on meta and with fake tensors. All three have to
execute the same operators on the same storages. The second trains in a session in which each
storage can be accessed only by operators that name it (torch_judge.c): losses have to be the same
as without it. The third trains in half of the memory, with the CPU's memory in place of a GPU's
(torch_session.cpp). operators.so is built from examples/torch/operators.cpp.
"""
import copy
import ctypes
import functools
import gc
import io
import os
import sys
import threading
import time
import warnings
import weakref
import xml.etree.ElementTree

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from torch_package import opened, package, refused
from torch_programs import PROGRAMS


IS_OLD = int(torch.__version__.split(".")[0]) < 2
KEYS = ("CPU", "SparseCPU", "SparseCsrCPU", "NestedTensorCPU")


class Model(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.one = torch.nn.Linear(64, 256, device=device)
        self.two = torch.nn.Linear(256, 64, device=device)

    def forward(self, x):
        y = checkpoint(lambda x: torch.relu(self.one(x)), x, use_reentrant=False)
        return self.two(y).view(-1).square().mean()


def train(device, steps=2):
    model = Model(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for _ in range(steps):
        yield
        x = torch.ones(128, 64, device=device).requires_grad_()
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del x
    yield


def graph(record, folder, device, mode=None):
    path = os.path.join(folder, f"{'fake' if mode else device}.gmgraph")
    with mode or torch.enable_grad():
        with record.Recorder(path, marks_steps=False) as recorder:
            for _ in train(device):
                recorder.mark()
    with open(path) as file:
        lines = [line.split() for line in file if line[0] in "tom"]
    for words in lines:
        if words[0] == "o":
            words[2] = "time"
    return lines


def check_graphs(record, folder):
    graph(record, folder, "cpu")  # a newer torch executes operators when it imports its parts
    cpu = graph(record, folder, "cpu")
    names = [words[1].split(".")[0] for words in cpu if words[0] == "o"]
    kinds = {words[1]: words[3] for words in cpu if words[0] == "t"}
    assert names.count("addmm") == 2 * 3, names  # recomputation is seen, in the backward pass, too
    assert "view" not in names and "t" not in names and "detach" not in names, names
    assert [kinds[str(i)] for i in range(4)] == ["p"] * 4 and "a" in kinds.values(), kinds
    marks = [i for i, words in enumerate(cpu) if words[0] == "m"]
    first, second = cpu[marks[0] + 1 : marks[1]], cpu[marks[1] + 1 : marks[2]]
    assert len(second) > 20 and abs(len(first) - len(second)) < 8, (len(first), len(second))
    assert graph(record, folder, "meta") == cpu
    if not IS_OLD:  # it fails in the optimizer
        assert graph(record, folder, "cpu", FakeTensorMode()) == cpu


# ---- Sessions ----


def judge_of(session, path, path_of_operators):
    """What a session calls, of torch_judge.c's library, which stays at hand."""
    judge = session.Calls(path, path_of_operators)
    judge.library = ctypes.CDLL(path)
    return judge


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inward = torch.nn.LayerNorm(128), torch.nn.Linear(128, 384)
        self.outward, self.drop = torch.nn.Linear(128, 128), torch.nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (4, 32)) for y in self.inward(self.norm(x)).chunk(3, -1))
        weights = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)
        y = torch.einsum("bhqk,bkhd->bqhd", self.drop(weights), v).reshape(x.shape)
        return x + torch.nn.functional.gelu(self.outward(y))


class Wide(torch.nn.Module):
    """Tensors of 64 KiB and more, in operators of many kinds."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(256, 128)
        self.layer = Layer()
        self.conv = torch.nn.Conv1d(128, 128, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(128)
        self.head = torch.nn.Linear(128, 256, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        y = self.embed(x)
        y = checkpoint(self.layer, y, use_reentrant=False)
        z = self.norm(self.conv(y.transpose(1, 2)))
        left, right = z.transpose(1, 2).chunk(2, dim=-1)
        y = torch.cat([left.relu(), right * torch.sigmoid(right)], -1) + y
        y[:, 0] = y[:, -1].detach()
        return self.head(y)


def losses(marks, make_optimizer, steps=4, lengths=(64,)):
    torch.manual_seed(3)
    model = Wide()
    optimizer = make_optimizer(model.parameters())
    found = []
    for i in range(steps):
        x = torch.randint(0, 256, (4, lengths[i // 2 % len(lengths)]))
        with torch.autocast("cpu", torch.bfloat16, enabled=i == 3):
            loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1).float(), x.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if i % 2:  # gradients add up
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            marks()
        found.append(loss.item())
    model.eval()
    with torch.inference_mode():
        found.append(model(x).square().mean().item())
    return found


OPTIMIZERS = [
    lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
    lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, foreach=True),
]


def check_session(session, judge):
    for make in OPTIMIZERS:
        expected = losses(lambda: None, make)
        with session.Session(judge, torch.device("cpu"), 1 << 22):
            got = losses(lambda: None, make)
            kept = torch.ones(1 << 16)
            kept.data_ptr()
            before = judge.library.judge_moved()
            torch.ones(1 << 16).add_(1)
            assert kept.data_ptr() and kept.numpy()[5] == 1  # a raw pointer was taken
            closed = judge.library.judge_closed()
            unused = torch.ones(1 << 16)
            torch.ones(8).add_(1)
            assert judge.library.judge_closed() > closed  # what an operator made is named
            del unused
        assert got == expected, (got, expected)
        assert before > 500, before


def check_names(dispatch, judge):
    """dispatch.py and operators.cpp see the same in the same programs. The second sees what
    composite operators are made of, and what fills or copies into a tensor that another operator
    has made."""
    library, log = judge.library, []
    library.judge_log.restype = ctypes.POINTER(ctypes.c_int * 2)

    class Names(dispatch.Dispatch):
        def operate(self, func, operator, args, kwargs):
            if dispatch.is_composite(func._schema):
                with self:
                    return func.decompose(*args, **kwargs)
            counts = [0, 0]
            for tensor, how in operator.tensors(args, kwargs):
                counts[1] += how != dispatch.READ
                counts[0] += how != dispatch.OVERWRITE or not dispatch.covers(tensor)
            if operator.name == "aten._to_copy.default":
                counts = [1, 1]
            log.append(tuple(counts))
            return func(*args, **kwargs)

    for make in OPTIMIZERS:
        log.clear()
        with Names():
            expected = losses(lambda: None, make)
        before = library.judge_steps()
        judge.watch(1, 1, 1 << 40)
        assert losses(lambda: None, make) == expected
        judge.watch(0, 1, 0)
        after, steps = library.judge_steps(), library.judge_log()
        seen = [tuple(steps[i % 4096]) for i in range(before, after)]
        expected_names = [counts for counts in log if counts not in ((0, 0), (0, 1))]
        assert after - before < 4096 and len(expected_names) > 500, (after - before, len(log))
        got = [counts for counts in seen if counts not in ((0, 0), (0, 1))]
        assert got == expected_names


def check_kernels(dispatch, session, judge):
    """Every operator of torch that has a kernel for the CPU's tensors, and may reach memory, is
    seen. Those that are made of others may have one, too."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    count = 0
    with session.Session(judge, torch.device("cpu"), 1 << 22):
        for schema in torch._C._jit_get_all_schemas():
            name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
            if not name.startswith("aten::") or not torch._C._dispatch_has_kernel(name):
                continue
            if any(has_kernel(name, key) for key in KEYS):
                packet = getattr(torch.ops.aten, schema.name[len("aten::") :])
                operator = dispatch.Operator(getattr(packet, schema.overload_name or "default"))
                assert operator.is_quiet or has_kernel(name, "BackendSelect"), name
                count += not operator.is_quiet
    assert count > 500, count
    assert not has_kernel("aten::add.Tensor", "BackendSelect")  # a call costs what it did


def check_foreach(session, judge):
    """Long lists are worked on in parts, with the same results."""
    names = ["a", "b", "c", "d", "e"]
    tensors = {name: [torch.rand(1 << 15) for _ in range(5)] for name in names}
    scalars = [1.0, 2.0, 3.0, 4.0, 5.0]

    def work(a, b, c, d, e):
        sums = torch._foreach_add(a, b)
        torch._foreach_mul_(c, scalars)
        torch._foreach_addcmul_(d, sums, e, value=0.5)
        return [*sums, *c, *d, *torch._foreach_sqrt(torch._foreach_abs(d))]

    copies = {name: [x.clone() for x in tensors[name]] for name in names}
    expected = [x.sum().item() for x in work(**tensors)]
    with session.Session(judge, torch.device("cpu"), 1 << 22):  # 512 KiB at once
        own = {name: [x.clone() for x in copies[name]] for name in names}
        before = judge.library.judge_steps()
        results = work(**own)
        steps = judge.library.judge_steps() - before
        assert [x.sum().item() for x in results] == expected
    assert steps == 3 + 2 + 5 + 2 + 2, steps


def check_region(session, judge):
    """One operator, whatever it does inside."""
    with session.Session(judge, torch.device("cpu"), 1 << 22) as own:
        x = torch.ones(1 << 16)
        before = judge.library.judge_steps()
        y = own._region(5, own._addresses([x]), lambda: x.mul(2).add(1))
        assert judge.library.judge_steps() - before == 1
        assert y.sum().item() == 3 << 16
        assert judge.library.judge_steps() - before == 3
        found = []

        def inside():
            worker = threading.Thread(target=lambda: found.append((x * 2).sum().item()))
            worker.start()
            worker.join()
            return y.relu()

        torch.ones(8).add_(1)
        own._region(6, own._addresses([y]), inside)  # another thread is not in it
        assert found == [2 << 16]


def check_collectives(session, judge, folder):
    """What DDP's reducer gives to a communication stays: its threads are not seen."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    store = "file://" + os.path.join(os.path.abspath(folder), "store")
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)

    def train():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256))
        net = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
        found = []
        for _ in range(3):
            loss = net(torch.ones(128, 256)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            found.append(loss.item())
        return found

    expected, before = train(), judge.library.judge_kept()
    with session.Session(judge, torch.device("cpu"), 1 << 22):
        assert train() == expected
    assert judge.library.judge_kept() - before >= 3
    distributed.destroy_process_group()


def check_offload(session, *paths):
    """Half of the memory, then all of it again."""
    library = ctypes.CDLL(paths[0])
    library.host_peak.restype = ctypes.c_size_t

    def train(limit, make, lengths):
        library.host_reset_peak()
        with opened(session, paths, limit, marks_steps=False) as own:
            found = losses(own.mark, make, 8, lengths)
            stats = own.stats()
            gc.collect()  # newer releases of torch leave models in circles
        return found, library.host_peak(), stats

    for make, lengths in ((OPTIMIZERS[1], (64,)), (OPTIMIZERS[0], (64, 40, 56))):
        expected, whole, _ = train(1 << 34, make, lengths)
        got, peak, stats = train(whole // 2, make, lengths)
        assert expected == got == losses(lambda: None, make, 8, lengths), (expected, got)
        assert whole // 4 < peak <= whole // 2, (peak, whole)
        assert stats["in_count"] > 50 and stats["plan_count"] > 0, stats


def check_programs(session, make_calls, limit):
    """The same numbers inside a session as outside."""
    for program in PROGRAMS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = program()
            gc.collect()  # what is in circles takes room
            with session.Session(make_calls(), torch.device("cpu"), limit):
                got = program()
                gc.collect()
            assert got == expected, program.__name__


def check_error(session, *paths):
    """An operator whose tensors exceed the limit."""
    with opened(session, paths, 1 << 20):
        a, b, c = (torch.ones(1 << 17) for _ in range(3))
        with refused("gmlake_torch.offload: ", torch.cuda.OutOfMemoryError):
            a.addcmul_(b, c)
        del a, b, c


COUNT = 1 << 18  # of numbers in a MiB


def make_calls(session, paths):
    """Those of a session, and the addresses that it keeps."""
    calls, kept = session.Calls(*paths), []
    keep = calls.keep
    calls.keep = lambda address: kept.append(address) or keep(address)
    return calls, kept


def some_tensors(count):
    tensors = [torch.full((COUNT,), float(i)) for i in range(count)]
    for tensor in tensors:
        tensor.mul_(1)
    return tensors


def check_save(session, *paths):
    """A checkpoint in the loop: more than the limit is saved, and leaves again."""
    calls, kept = make_calls(session, paths)
    with session.Session(calls, torch.device("cpu"), 5 << 20) as own:
        tensors = some_tensors(12)
        for step in range(6):
            for tensor in tensors:
                tensor.add_(1)
            if step % 3 == 0:
                file = io.BytesIO()
                torch.save({"all": tensors}, file)
                file.seek(0)
                saved = torch.load(file)["all"]
                assert [x[5].item() for x in saved] == [step + 1 + i for i in range(12)]
                del saved
        assert not kept, len(kept)
        with own.compares_pointers():
            assert len({tensor.data_ptr() for tensor in tensors}) == 12 and not kept
        tensors[0].data_ptr()
        assert len(kept) == 1


def check_resize(session, *paths):
    """A storage that is away, or becomes so, keeps its contents when it is resized."""
    with opened(session, paths, 5 << 20):
        tensors = some_tensors(12)
        for i, tensor in enumerate(tensors):
            storage = tensor.storage()
            storage = storage.untyped() if hasattr(storage, "untyped") else storage
            storage.resize_(6 * COUNT)
            assert storage.nbytes() == 6 * COUNT and tensor.set_(storage)[5] == i
        for i, tensor in enumerate(tensors):
            assert tensor[:COUNT].sum().item() == i * COUNT


def check_ends(session, *paths):
    """What raises when a session begins leaves none open; what has ended leaves nothing changed."""
    names = ("data_ptr", "__dlpack__")
    before = [torch.Tensor.__dict__.get(name) for name in names]
    own = opened(session, paths, 5 << 20)
    watch = own._watch
    own._watch = lambda is_on: 1 / 0 if is_on else watch(is_on)
    with refused("", ZeroDivisionError), own:
        raise AssertionError("it began")
    with opened(session, paths, 5 << 20):
        inner = opened(session, paths, 5 << 20)
        kept = torch.ones(COUNT)
        assert inner._addresses([kept]) and torch.Tensor.data_ptr not in before
    for name, former in zip(names, before):
        assert former is None or torch.Tensor.__dict__.get(name) is former
    # Who asks for what the first session had by itself gets it.
    chunk_bytes = own.stats()["chunk_bytes"]
    with opened(session, paths, chunk_bytes=chunk_bytes):
        pass
    with refused("session on this device had 65536"):
        opened(session, paths, chunk_bytes=2 * chunk_bytes).__enter__()


def check_let_go(session, *paths):
    """A region may let go of its inputs while it runs."""
    with opened(session, paths, 50 << 20) as own:
        inputs = [torch.ones(COUNT) for _ in range(3)]
        refs = [weakref.ref(tensor) for tensor in inputs]

        def compiled(inputs):
            inputs.clear()
            return sum(ref() is not None for ref in refs)

        assert own._region(1, own._addresses(session.tensors_in(inputs)), compiled, inputs) == 0


def check_dlpack(session, *paths):
    """C's way around the dispatcher is not there in a session."""
    torch.Tensor.__dlpack_c_exchange_api__ = mark = object()
    try:
        with opened(session, paths, 5 << 20):
            assert not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        assert torch.Tensor.__dlpack_c_exchange_api__ is mark
    finally:
        del torch.Tensor.__dlpack_c_exchange_api__


def check_thread(session, *paths):
    """Another thread that needs more than the limit is told why it cannot have that."""
    found = []
    with opened(session, paths, 5 << 20):
        tensors = some_tensors(12)

        def work():
            try:
                sum(tensor.sum().item() for tensor in tensors)
            except torch.cuda.OutOfMemoryError as error:
                found.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(found) == 1 and "another thread than the session's" in found[0], found


class Blocks(torch.nn.Module):
    """Layers of 2 MiB that make 2 MiB each, of next to no arithmetic; each is checkpointed."""

    def __init__(self):
        super().__init__()
        weights = [torch.nn.Parameter(torch.ones(2, COUNT)) for _ in range(8)]
        self.weights = torch.nn.ParameterList(weights)

    def forward(self, x):
        for weight in self.weights:
            x = checkpoint(lambda x, w: torch.tanh(x * w) + x, x, weight, use_reentrant=False)
        return x


def make_blocks():
    model = Blocks()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)


def step_of(own, optimizer):
    if IS_OLD:  # it has no hooks
        own._before_step(optimizer)
    optimizer.step()
    if IS_OLD:
        own._after_step(optimizer)


def check_explain(session, *paths):
    """The page's figures are those of the plan, in the phases that the program has."""
    own = opened(session, paths, 24 << 20, marks_steps=False, keeps_regions=True)
    picture = os.path.join(os.path.dirname(paths[0]), "step.svg")
    with own:
        model, optimizer = make_blocks()
        own.mark()
        page = own.explain()
        assert "it learns what an iteration does" in page and "phase" not in page, page
        with refused("no iteration is planned yet"):
            own.explain(picture=picture)
        for _ in range(8):
            optimizer.zero_grad(set_to_none=True)
            model(torch.ones(2, COUNT)).square().mean().backward()
            step_of(own, optimizer)
            own.mark()
        page, stats, plan = own.explain(picture=picture), own.stats(), own._plan()[0]
    rows = [line.split() for line in page.splitlines()]
    rows = [row for row in rows if row and row[0] in ("forward", "backward", "optimizer")]
    assert [row[0] for row in rows] == ["forward", "backward", "optimizer"], page
    columns = list(zip(*[[float(x) for x in row[1:]] for row in rows]))
    assert sum(columns[0]) == len(plan["steps"]), page
    assert abs(sum(columns[1]) - plan["time_ns"] / 1e6) < 0.02, page
    most = [max(step[i] for step in plan["steps"]) / 2**20 for i in (2, 3)]
    assert [max(columns[4]), max(columns[5])] == [round(bytes, 2) for bytes in most], page
    assert most[1] < most[0] / 2, page
    end = plan["time_ns"]
    for after, is_told in (0, False), (2000, True):
        plan["moves"] = [(0, 0, 0, 1, end - 1000, end + after, 0),
                         (0, 0, 1, 1, end, end + 9000, 0)]
        told = " ".join(session.explain.link(plan, stats))
        assert ("go on for 2.0 us behind the last step" in told) == is_told, told
    assert abs(sum(columns[8]) - stats["plan_out_bytes"] / 2**20) < 0.02, page
    assert abs(sum(columns[9]) - stats["plan_in_bytes"] / 2**20) < 0.02, page
    for stays, there, need in zip(columns[6], columns[5], columns[4]):
        assert stays <= there <= need, page
    assert "The limit is 24.00 MiB" in page, page
    if not IS_OLD:  # else regions are not seen
        assert columns[3][1] > 0 and "Of 8 checkpointed regions" in " ".join(page.split()), page
    root = xml.etree.ElementTree.parse(picture).getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}polygon")) == 6
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"forward", "backward", "out", "in", "wait", "again"} <= set(words), words


def train_layers(own, optimizer_of, in_backward, change):
    """Trains 8 layers of 1 MiB on one row. The losses, and the sums of the parameters."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(8)])
    optimizer = optimizer_of(model.parameters())
    handle = in_backward.StepInBackward(optimizer) if in_backward else None
    found = []
    for i in range(6):
        change(i, optimizer)
        optimizer.zero_grad(set_to_none=True)
        loss = model(torch.ones(1, 512)).square().mean()
        loss.backward()
        optimizer.step()
        own.mark()
        found.append(loss.item())
    if handle:
        handle.remove()
    return found + [parameter.double().sum().item() for parameter in model.parameters()]


def check_in_backward(session, in_backward, *paths):
    """Steps inside the backward pass: the same results in less memory, and errors elsewhere."""
    peaks = []

    def later(i, optimizer):
        optimizer.param_groups[0]["lr"] = 0.01 / (1 + i)

    for optimizer_of in (torch.optim.AdamW, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)):
        found = []
        for module in (None, in_backward):
            with opened(session, paths, marks_steps=False) as own:
                found.append(train_layers(own, optimizer_of, module, later))
                peaks.append(own.stats()["unplanned_bytes"])
        assert found[0] == found[1], found
    saved = [peaks[0] - peaks[1], peaks[2] - peaks[3]]
    assert min(saved) >= 5 << 20, peaks  # of 8 MiB of gradients

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = in_backward.StepInBackward(optimizer)
    model(torch.ones(1, 2)).sum().backward()
    for act, words in (
        (lambda: model(torch.ones(1, 2)).sum().backward(), "a second backward pass"),
        (lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0), "finds no gradients"),
        (lambda: torch.nn.utils.clip_grad_value_(model.weight, 1.0), "finds no gradients"),
        (lambda: in_backward.StepInBackward(torch.optim.LBFGS(model.parameters())), "LBFGS"),
    ):
        with refused(words, RuntimeError, ValueError):
            act()
    handle.remove()
    optimizer.zero_grad(set_to_none=True)
    before = model.weight.clone()
    model(torch.ones(1, 2)).sum().backward()
    assert torch.equal(model.weight, before) and model.weight.grad is not None
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert not torch.equal(model.weight, before)


def train_small(in_backward, is_before):
    """Trains with a scheduler, made before the optimizer steps inside the backward pass or behind
    that, with a frozen parameter, and loads the optimizer's state. The parameters."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])
    model[1].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    make = functools.partial(torch.optim.lr_scheduler.StepLR, optimizer, 1, 0.5)
    scheduler = make() if is_before else None
    handle = in_backward.StepInBackward(optimizer) if in_backward else None
    scheduler = scheduler or make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(6):
            if i == 2:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if i == 4 and handle:
                handle.remove()
                handle.remove()
            optimizer.zero_grad()
            model(torch.ones(1, 4)).square().mean().backward()
            optimizer.step()
            scheduler.step()
    return [parameter.tolist() for parameter in model.parameters()]


def check_in_backward_programs(in_backward):
    """Around it stands what a program does with an optimizer."""
    for is_before in (True, False):
        assert train_small(in_backward, is_before) == train_small(None, is_before), is_before

    models = [torch.nn.Linear(2, 2) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    handles = [in_backward.StepInBackward(optimizer) for optimizer in optimizers]
    handles[0].remove()
    torch.nn.utils.clip_grad_norm_(models[0].parameters(), 1.0)
    with refused("finds no gradients"):
        torch.nn.utils.clip_grad_norm_(models[1].parameters(), 1.0)
    handles[1].remove()
    for model in models:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    class Slow(torch.optim.SGD):
        def step(self, closure=None):
            time.sleep(0.01)  # other threads run
            super().step(closure)

    optimizer = Slow([p for model in models for p in model.parameters()], lr=0.1)
    handle, groups = in_backward.StepInBackward(optimizer), optimizer.param_groups
    threads = [
        threading.Thread(target=model(torch.ones(1, 2)).sum().backward) for model in models
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert optimizer.param_groups is groups and len(groups[0]["params"]) == 4
    assert all(parameter.grad is None for parameter in groups[0]["params"])
    handle.remove()


def check_optimizers(session, *paths):
    """Steps of the first optimizer end iterations; of the next one, if that is gone or rests."""
    own = opened(session, paths, 24 << 20)
    step = functools.partial(step_of, own)
    with own:
        first, second = make_blocks()[1], make_blocks()[1]
        for _ in range(3):
            step(first)
            step(second)
        assert own.mark_count == 3, own.mark_count
        del first
        for optimizer in (second, make_blocks()[1], second):
            step(optimizer)
        assert own.mark_count == 5, own.mark_count
        each = [make_blocks()[1] for _ in range(session.OTHER_STEPS_MAX + 4)]
        for optimizer in (second, *each, second, *each):  # as where each parameter has its own
            step(optimizer)
        assert own.mark_count == 7, own.mark_count
        for _ in range(session.OTHER_STEPS_MAX + 3):
            step(each[0])
        assert own.mark_count == 7 + 4, own.mark_count
        for optimizer in (each[1], *[each[2]] * (session.OTHER_STEPS_MAX + 3)):
            step(optimizer)  # the first of these rests, too
        assert own.mark_count == 11 + 3, own.mark_count


def check_slabs(session, *paths):
    """Small weights, and what an optimizer keeps of them, leave together. Chunks have 64 KiB."""
    library = ctypes.CDLL(paths[0])
    library.host_peak.restype = ctypes.c_size_t
    library.host_serve.argtypes = [ctypes.c_size_t]

    def train(limit):
        torch.manual_seed(1)
        library.host_reset_peak()
        with opened(session, paths, limit, marks_steps=False) as own:
            layers = [torch.nn.Linear(64, 64) for _ in range(64)]
            model = copy.deepcopy(torch.nn.Sequential(*layers).double())  # weights of 32 KiB
            del layers
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            found = []
            for _ in range(6):
                model(torch.ones(2, 64, dtype=torch.double)).square().mean().backward()
                found.append([float(p.sum()) for p in model.parameters()])
                if IS_OLD:
                    own._before_step(optimizer)  # it has no hooks
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if IS_OLD:
                    own._after_step(optimizer)
                own.mark()
            stats, peak = own.stats(), library.host_peak()
        return found, peak, stats

    library.host_serve(1)
    expected, whole, _ = train(1 << 30)
    got, peak, stats = train(5 << 20)
    library.host_serve(1 << 16)
    assert expected == got
    assert peak <= 5 << 20 and whole > 8 << 20, (peak, whole)
    # 3 * 64 of 32 KiB, and as many of 512 bytes: three and more in a slab of 128 KiB.
    assert stats["tensor_count"] < 100 and stats["in_count"] > 50, stats


def check_biases(session, *paths):
    """One step of an optimizer names the biases of all layers, and does not need all weights."""
    library = ctypes.CDLL(paths[0])
    library.host_serve.argtypes = [ctypes.c_size_t]
    library.host_serve(1)
    with opened(session, paths, 3 << 19, marks_steps=False) as own:
        model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(64)]).double()
        groups = [
            {"params": [p for p in model.parameters() if p.dim() == dim], "weight_decay": decay}
            for dim, decay in ((2, 0.1), (1, 0.0))
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, foreach=True)
        for _ in range(3):
            model(torch.ones(2, 64, dtype=torch.double)).square().mean().backward()
            if IS_OLD:
                own._before_step(optimizer)
            optimizer.step()
            if IS_OLD:
                own._after_step(optimizer)
            own.mark()
    library.host_serve(1 << 16)


def check_lasting(session, in_backward, *paths):
    """What does not last is in no slab: in a closure, in another thread, and behind a step or a
    session that has ended with an error."""
    library = ctypes.CDLL(paths[0])
    library.host_serve.argtypes = [ctypes.c_size_t]
    parameter = torch.nn.Parameter(torch.ones(1000))
    new = functools.partial(torch.optim.Adam, [parameter])
    found = []

    def is_lasting(own):
        served, small = torch.empty(1 << 20), torch.empty(1000)
        return abs(own._data_ptr(served) - own._data_ptr(small)) < 1 << 36

    def step(own, optimizer, *args):
        args, _ = own._before_step(optimizer, (optimizer, *args), {}) or ((optimizer, *args), {})
        found.append(is_lasting(own))
        type(optimizer).step(*args)
        found.append(is_lasting(own))
        own._after_step(optimizer)

    def closure():
        found.append(is_lasting(own))
        parameter.grad = torch.ones(1000)
        return 1

    library.host_serve(1)
    if IS_OLD:  # a newer one calls these itself
        with opened(session, paths, 8 << 20, marks_steps=False) as own:
            optimizer = new()
            step(own, optimizer)  # there are no gradients yet
            step(own, optimizer, closure)
            step(own, optimizer)
            assert found == [True, True, True, False, True, False, False], found
            assert not is_lasting(own)
            own._before_step(new())  # and no other call of this step
            parameter.sum().backward()
            assert not is_lasting(own)
            own._before_step(new())
        with opened(session, paths, 8 << 20, marks_steps=False) as own:
            assert not is_lasting(own)
    with opened(session, paths, 8 << 20, marks_steps=False) as own:
        started, is_seen = threading.Event(), threading.Event()

        def wait():
            started.set()
            is_seen.wait()
            found.append(is_lasting(own))

        thread = threading.Thread(target=own._with_lasting(wait))
        thread.start()
        started.wait()
        assert not is_lasting(own)
        is_seen.set()
        thread.join()
        assert found.pop() and not is_lasting(own)

        class Optimizer(torch.optim.Adam):
            def __setstate__(self, state):
                found.append(is_lasting(own))
                super().__setstate__(state)

        optimizer = Optimizer([parameter])
        optimizer.load_state_dict(optimizer.state_dict())
        assert found.pop() and not is_lasting(own)

        class Watched(torch.optim.Adam):
            def step(self):
                found.append(is_lasting(own))
                super().step()

        handle = in_backward.StepInBackward(Watched([parameter]))
        for _ in range(2):
            parameter.sum().backward()
            handle._optimizer.step()
        handle.remove()
        assert found[-4] and not found[-2], found  # between them are the program's steps
    library.host_serve(1 << 16)


def check_smaller(session, *paths):
    """A session that is opened again for smaller tensors than before lets them leave."""
    library = ctypes.CDLL(paths[0])
    library.host_serve.argtypes = [ctypes.c_size_t]
    with opened(session, paths):
        pass
    library.host_serve(1)
    with opened(session, paths, 20 << 16, tensor_bytes_min=1 << 12):  # of 20 chunks
        made = [torch.ones(1 << 11).add_(i) for i in range(60)]
        assert [float(tensor[5]) for tensor in made] == [*range(1, 61)]
        made.clear()
    library.host_serve(1 << 16)


def check_figures(explain):
    """By hand: three steps of 10, 20 and 30 ns and a wait of 5 behind the second. Tensor 0 is away
    behind step 0 until step 2; its copies take 8 ns each. Tensor 1 leaves without one behind step
    2, and what fetches it goes on in the next iteration."""
    plan = {
        "time_ns": 65,
        "steps": [[0, 10, 6, 6, -1, 0], [10, 20, 7, 5, 0, 0], [35, 30, 5, 5, 0, 1]],
        "tensors": [[0, 3, 2, 2], [0, 3, 3, 1], [1, 2, 1, 1], [0, 0, 9, 9]],
        "moves": [[0, 0, 0, 1, 10, 18, 1], [0, 0, 0, 0, 18, 18, 0], [0, 1, 1, 1, 27, 35, 0],
                  [1, 2, 0, 0, 65, 65, 0], [1, 2, 1, 1, 60, 68, 0]],
    }
    phases = explain.Phases()
    phases.mark(7)
    for name, count in (("backward", 8), ("forward", 9), ("optimizer", 9)):
        phases.note(name, count)
    phases.mark(10)
    found = phases.of(3)
    assert found == [("forward", 0, 1), ("backward", 1, 2), ("optimizer", 2, 3)], found
    assert [x.name for x in phases.of(2)] == ["steps 0-0", "steps 1-1"]
    a, b, c = explain.rows_of(plan, found)
    assert (a.ns, a.wait_ns, a.again_ns, a.need, a.there) == (10, 0, 0, 6, 6)
    assert (b.ns, b.wait_ns, b.again_ns, b.need, b.there) == (25, 5, 0, 7, 5)
    assert (c.ns, c.wait_ns, c.again_ns, c.need, c.there) == (30, 0, 30, 5, 5)
    assert (a.stays, b.stays, c.stays) == (0, 1, 1)
    assert (a.leaves, a.copied, a.back, b.back) == (2, 2, 0, 2)
    assert (c.leaves, c.copied, c.back) == (3, 0, 1)
    assert (a.out_ns, b.out_ns, c.out_ns, a.in_ns, b.in_ns, c.in_ns) == (0, 8, 0, 3, 8, 5)
    assert [*explain.longest_waits(plan, found)] == [
        "The longest waits: 0.0 us before step 2 (optimizer)."
    ]
    many = explain.rows_of(plan, found * 5)
    assert [row.name for row in many] == ["forward", "backward", "optimizer"]
    assert (many[1].ns, many[1].need, many[1].stays, many[1].back) == (125, 7, 1, 10)
    assert explain.columns([(0, 5), (60, 65), (65, 69)], 65, 13) == [1, *[0] * 11, 1]
    assert explain.columns([(5, 11), (62.5, 67.5)], 65, 13) == [0.5, 1, 0.2, *[0] * 9, 0.5]
    assert explain.size(3 << 29) == "1.50 GiB" and explain.took(1.5e6) == "1.500 ms"


def check_plan(session, planning, *paths):
    """Four steps, recorded without a limit, say what one takes in less memory."""
    made = []

    def new():
        made.append(opened(session, paths, 0))
        return made[-1]

    def step(model, optimizer):
        made[-1]._region(777, [], time.sleep, 0.05)  # a step of its own, the first one
        optimizer.zero_grad(set_to_none=True)  # the graph that is planned begins behind this
        model(torch.ones(2, COUNT)).square().mean().backward()
        optimizer.step()
        if len(made) > 1:
            raise KeyError("in the step")

    folder = os.path.dirname(paths[0])
    path = os.path.join(folder, "step.gmcalls")
    plan = planning.of_step(new(), step, [96 << 20, 40 << 20, 1 << 20], make_blocks, 5e9, path)
    with open(path) as file:
        lines = [line.split() for line in file]
    marks = [i for i, words in enumerate(lines) if words[0] == "mark"]
    assert len(marks) == 5 and [words[0] for words in lines].count("others") == 1
    keys = [words[2] for words in lines[marks[3] : marks[4]] if words[0] == "begin"]
    times = [int(words[2]) for words in lines if words[0] == "time"]
    assert len(times) == len(keys) and all(times), (len(times), len(keys))
    middle = sorted(times[1:])[len(times) // 2]  # others are held up where the machine is busy
    assert keys.index("777") == 0 and times[0] >= 5e7 and middle < times[0], times
    whole, half, none = plan.rows
    assert plan.native_bytes > 48 << 20 and plan.native_seconds >= sum(times) / 1.1e9, str(plan)
    assert whole.error is None and whole.in_bytes == 0, str(plan)
    assert abs(whole.seconds / plan.native_seconds - 1) < 0.02, str(plan)
    assert half.error is None and half.in_bytes > 0 and half.pinned_bytes > 0, str(plan)
    assert "this step needs" in none.error and none.error in str(plan), none
    again = planning.of_file(path, 40 << 20, 5e9, chunk_bytes=2 << 20)
    assert again.rows == [half], (again.rows, half)
    with refused("in the step", KeyError):
        planning.of_step(new(), step, 40 << 20, make_blocks)
    for wrong in (os.path.join(folder, "none.gmcalls"), os.path.join(folder, "step.txt")):
        with refused(wrong, planning.Failed, OSError):
            planning.of_file(wrong, 40 << 20)


def check_groups(session, judge):
    """An optimizer updates few parameters at a time, and has its groups back afterwards."""
    parameters = [torch.nn.Parameter(torch.ones(1 << 14)) for _ in range(8)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    own = session.Session(judge, torch.device("cpu"), 32 * 3 << 16)
    own._before_step(optimizer)
    assert [len(group["params"]) for group in optimizer.param_groups] == [3, 3, 2]
    own._after_step(optimizer)
    assert [len(group["params"]) for group in optimizer.param_groups] == [8]
    assert own.mark_count == 1
    own._before_step(optimizer)  # it ends with an error, and a scheduler sets the rate
    optimizer.param_groups[0]["lr"] = 0.01
    own._before_step(optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01] * 3
    own._after_step(optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01]
    own._before_step(other := torch.optim.SGD(parameters[:1], lr=0.1))
    own._after_step(other)
    assert own.mark_count == 2  # only the first optimizer ends iterations
    assert session.ends_of([5, 5, 5, 20, 1], 10) == [2, 3, 4, 5]
    assert session.ends_of([], 10) == [0]


if __name__ == "__main__":
    package()
    from gmlake_torch import dispatch, explain, in_backward, planning, record, session

    if len(sys.argv) == 2:
        check_graphs(record, sys.argv[1])
    elif hasattr(ctypes.CDLL(sys.argv[2]), "judge_log"):
        judge = judge_of(session, *sys.argv[2:])
        check_session(session, judge)
        check_groups(session, judge)
        if IS_OLD:  # a newer one executes other operators where a mode is on
            check_names(dispatch, judge)
        check_kernels(dispatch, session, judge)
        check_foreach(session, judge)
        check_region(session, judge)
        check_programs(session, lambda: judge, 1 << 22)
        check_collectives(session, judge, sys.argv[1])
    else:
        check_offload(session, *sys.argv[2:])
        check_programs(session, lambda: session.Calls(*sys.argv[2:]), 5 << 20)
        check_error(session, *sys.argv[2:])
        for check in (check_save, check_resize, check_ends, check_let_go):
            check(session, *sys.argv[2:])
        check_dlpack(session, *sys.argv[2:])
        check_thread(session, *sys.argv[2:])
        check_figures(explain)
        check_explain(session, *sys.argv[2:])
        check_optimizers(session, *sys.argv[2:])
        check_slabs(session, *sys.argv[2:])
        check_biases(session, *sys.argv[2:])
        check_lasting(session, in_backward, *sys.argv[2:])
        check_smaller(session, *sys.argv[2:])
        check_in_backward(session, in_backward, *sys.argv[2:])
        check_in_backward_programs(in_backward)
        check_plan(session, planning, *sys.argv[2:])
