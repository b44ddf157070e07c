"""Programs of torch with torch's own allocator and with gmlake_torch's, side by side, on a GPU.

    python3 tests/clients/torch_gpu.py [--list] [--jobs N] [--seconds N] [CASE...]

Each case runs twice, in processes of its own, with torch's allocator and with the lakes (which have
to be installed: python3 -m pip install --no-build-isolation ./examples/torch). What it returns has
to be equal in both. What it notes is shown, not compared. A case whose parts the machine lacks is
left out, and said so. The exit status is 0 if all cases are equal or left out."""
import contextlib
import ctypes
import functools
import gc
import os
import subprocess
import sys
import tempfile
import traceback

import side_by_side

MIB = 1 << 20


def is_lake(torch):
    return torch.cuda.get_allocator_backend() == "gmlake"


def held(torch):
    """Bytes that the allocator still has when it keeps nothing that it may give back."""
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def full(torch, mib, value):
    return torch.full((mib * MIB // 4,), float(value), device="cuda")


def ends(tensor):
    return tensor.min().item(), tensor.max().item()


def model(torch, width=256, layers=2):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers).cuda()


def losses_of(net, optimizer, inputs, digits, before=lambda: None):
    """Trains the net to answer 0."""
    losses = []
    for x in inputs:
        before()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(loss.item(), digits))
    return losses


# ---- Programs, streams ----


def case_train(torch, note):
    """A few steps of training, with inputs of varying length."""
    net = model(torch)
    inputs = (torch.randn(8, 32 + 24 * (step % 5), 256, device="cuda") for step in range(12))
    losses = losses_of(net, torch.optim.AdamW(net.parameters()), inputs, 4)
    note["reserved_mib"] = torch.cuda.max_memory_reserved() // MIB
    note["allocated_mib"] = torch.cuda.max_memory_allocated() // MIB
    return losses


def case_streams(torch, note):
    """Tensors that are used on other streams than their own, and freed early."""
    side, sums = [torch.cuda.Stream() for _ in range(3)], []
    for i in range(60):
        stream = side[i % 3]
        x = full(torch, 4, i)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200000)
            y = x * 2
            x.record_stream(stream)
        del x
        z = full(torch, 4, -1)
        torch.cuda.current_stream().wait_stream(stream)
        y.record_stream(torch.cuda.current_stream())
        sums.append((y.sum() / MIB).item() + z[5].item())
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    return sums, stats["active.all.current"] >= stats["allocation.all.current"]


def make_stream(runtime):
    raw = ctypes.c_void_p()
    assert runtime.cudaStreamCreateWithFlags(ctypes.byref(raw), 1) == 0
    return raw


def case_external_stream(torch, note):
    """A stream of the driver's own that is destroyed while tensors on it live on."""
    runtime, values = ctypes.CDLL(None), []
    for i in range(20):
        raw = make_stream(runtime)
        with torch.cuda.stream(torch.cuda.ExternalStream(raw.value)):
            x = full(torch, 4, i)
            values.append(x[7].item())
        assert runtime.cudaStreamDestroy(raw) == 0
        del x
    torch.cuda.synchronize()
    return values


def case_pinned_loader(torch, note):
    """Workers inherit tensors of the device, by fork."""

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            return torch.full((1000,), float(i))

    keep = full(torch, 4, 1)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    batches = list(loader)
    assert all(batch.is_pinned() for batch in batches)
    return [b.to("cuda", non_blocking=True).sum().item() for b in batches], keep.sum().item()


# ---- Graphs ----


def replay(torch, graph, static, value):
    static.fill_(value)
    graph.replay()
    torch.cuda.synchronize()


def compiled(torch, net):
    return torch.compile(net, mode="reduce-overhead", dynamic=False)


def case_compile(torch, note):
    """torch.compile's graph trees: forward and backward, two shapes, warm-ups and replays."""
    torch.manual_seed(5)
    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(128, 512), torch.nn.GELU(), linear(512, 128)).cuda()

    def inputs():
        for step in range(14):
            torch.manual_seed(step)
            yield torch.randn(64 if step % 7 < 4 else 96, 128, device="cuda")

    begin = torch.compiler.cudagraph_mark_step_begin
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = losses_of(compiled(torch, net), optimizer, inputs(), 3, begin)
    note["reserved_mib"] = torch.cuda.memory_reserved() // MIB
    return losses


def case_compile_inference(torch, note):
    """Several graphs in turn, as a decode loop has; outputs that live on."""
    net = model(torch).eval()
    fast, close, kept = compiled(torch, net), [], []
    with torch.no_grad():
        for step in range(12):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(2, (16, 24, 32)[step % 3], 256, device="cuda")
            y = fast(x)
            close.append(torch.allclose(y, net(x), atol=1e-3))
            kept = kept[-2:] + [y.clone()]
    note["reserved_mib"] = torch.cuda.memory_reserved() // MIB
    return close


def fails_to_capture(torch, x, is_illegal=True):
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            y = full(torch, 16, 1) + x.sum()
            if is_illegal:
                y.sum().item()  # no capture allows that
            raise ValueError("the program's own")
    except (RuntimeError, ValueError):
        return "failed"


def capture_well(torch, x):
    """Captures once more; what the graph gives."""
    graph, out = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    junk = full(torch, 16, 7)
    for value in (1.0, 3.0):
        replay(torch, graph, x, value)
        out.append((ends(y), junk.min().item()))
    return out


def case_failed_captures(torch, note):
    """Captures that failed keep no other one from the same stream, and hold nothing once their
    graphs are gone. torch 2.11's own hold it: that is noted, not compared."""

    def settle():
        gc.collect()
        torch.cuda.synchronize()
        return held(torch)

    x, out = full(torch, 4, 0), []
    for is_illegal in (True, False):
        before = settle()
        out += [fails_to_capture(torch, x, is_illegal) for _ in range(5)]
        rest = settle() - before
        note.setdefault("mib_held", []).append(rest / MIB)
        assert not is_lake(torch) or rest <= 4 * MIB, note
        out.append(capture_well(torch, x))
    return out


# ---- Figures, errors ----


def case_stats(torch, note):
    """Every statistic that native has, and their peaks and resets."""
    torch.cuda.init()
    before = torch.cuda.memory_allocated()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    y = torch.empty(100, dtype=torch.uint8, device="cuda")
    stats = torch.cuda.memory_stats()
    live = torch.cuda.memory_allocated() - before
    same = "allocation allocated_bytes requested_bytes active active_bytes".split()
    shown = {key: stats[key] for key in sorted(stats) if key.split(".")[0] in same}
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del x
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    after = torch.cuda.memory_stats()
    assert "Allocated memory" in torch.cuda.memory_summary()
    free, total = torch.cuda.mem_get_info()
    del y
    last = after["allocated_bytes.all.peak"], after["allocation.all.allocated"], 0 < free < total
    return sorted(stats), live, shown, last


def run_python(code, lake):
    environment = {**os.environ, "GMLAKE_TORCH": "1" if lake else "0"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


ASSERT = """
import torch, sys
side = torch.cuda.Stream()
x, y = (torch.ones(1 << 20, device="cuda") for _ in range(2))
y.record_stream(side)
index = torch.full((8,), 1 << 30, device="cuda")
raised = 0
try:
    x[index].sum().item()
except RuntimeError:
    raised += 1
del y
for _ in range(3):
    try:
        z = torch.ones(1 << 20, device="cuda")
        z.record_stream(side)
        del z
        torch.cuda.synchronize()
    except RuntimeError:
        raised += 1
try:
    torch.cuda.empty_cache()
except RuntimeError:
    pass
print("raised", raised, torch.cuda.get_allocator_backend(), flush=True)
"""


def case_device_assert(torch, note):
    """After an assert in a kernel torch raises, and with the lake its process goes on, and ends by
    itself. With torch's own it may abort (2.11 does): that is noted, not compared."""
    done = run_python(ASSERT, is_lake(torch))
    note["status"], note["last"] = done.returncode, done.stderr[-300:]
    note["printed"] = raised = done.stdout.split()
    if is_lake(torch):
        assert len(raised) == 3 and raised[0] == "raised" and int(raised[1]) >= 1, note
        assert raised[2] == "gmlake" and done.returncode >= 0, note  # below: a signal ended it
    return "done"


# ---- Pools ----


ALLOCATOR = r"""
#include <dlfcn.h>
#include <stddef.h>
typedef unsigned long long address;
static void *driver(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }
void *take(size_t bytes, int device, void *stream) {
  address out = 0;
  int (*const alloc)(address *, size_t) = (int (*)(address *, size_t))driver("cuMemAlloc_v2");
  return alloc(&out, bytes) ? NULL : (void *)out;
}
void give(void *ptr, size_t bytes, int device, void *stream) {
  (void)((int (*)(address))driver("cuMemFree_v2"))((address)ptr);
}
"""


def side_stream_pool(torch, pool):
    """What a side stream uses is not given out again, be it freed in use_mem_pool or outside."""
    side, found = torch.cuda.Stream(), []
    for i in range(40):
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(4 << 20, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
                x.fill_(-1.0)
            x.record_stream(side)
            if i % 2:
                del x
        if not i % 2:
            del x
        with torch.cuda.use_mem_pool(pool):
            y = full(torch, 16, i)
        torch.cuda.synchronize()
        found.append(ends(y))
        del y
    return found


def case_mempool_allocator(torch, note):
    """A pool with an allocator of its own, and a side stream."""
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "a.so")
        command = ["gcc", "-shared", "-fPIC", "-o", library, "-xc", "-", "-ldl"]
        subprocess.run(command, input=ALLOCATOR, text=True, check=True)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give")
        pool = torch.cuda.MemPool(allocator.allocator())
        found = side_stream_pool(torch, pool)
        before = torch.cuda.memory_reserved()
        del pool
        return found, held(torch) < before


# ---- Other processes ----


def in_child(is_lake, name, *arguments):
    """What a process that is spawned does."""
    import torch

    if is_lake:
        import gmlake_torch

        gmlake_torch.enable()
    globals()[name](torch, *arguments)


class Children:
    """Processes that do the function of that name with a queue of tasks and one of answers each."""

    def __init__(self, torch, name, count=1):
        import torch.multiprocessing as mp

        self.torch, context = torch, mp.get_context("spawn")
        self.queues = [(context.Queue(), context.Queue()) for _ in range(count)]
        arguments = [(is_lake(torch), name, *pair) for pair in self.queues]
        self.processes = [context.Process(target=in_child, args=each) for each in arguments]
        for process in self.processes:
            process.start()

    def put(self, task):
        for tasks, _ in self.queues:
            tasks.put(task)

    def get(self):
        return [answers.get(timeout=100) for _, answers in self.queues]

    def end(self):
        """Their exit codes."""
        for process in self.processes:
            process.join(60)
        self.torch.cuda.ipc_collect()
        return [process.exitcode for process in self.processes]


# ---- Several devices, and NCCL ----


def join_group(torch, path, rank, size):
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file://" + path, rank=rank, world_size=size,
                            device_id=torch.device("cuda", rank))
    return dist


def reduced(torch, dist, rank, x):
    x.fill_(rank + 1)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    return x[0].item(), x[-1].item()


def reduced_in_pool(torch, dist, rank, backend, pool):
    """Of a tensor whose memory NCCL knows."""
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(5 << 20, device="cuda")
    backend.register_mem_pool(pool)
    found = reduced(torch, dist, rank, x)
    backend.deregister_mem_pool(pool)
    return found


def sums(torch, dist, rank, note):
    """Sums of tensors in one chunk, over several, stitched, and after memory went and came."""
    out = [reduced(torch, dist, rank, torch.empty(1 << 18, device="cuda"))]
    out.append(reduced(torch, dist, rank, torch.empty(64 << 20, device="cuda")))
    for _ in range(2):
        blocks = [torch.empty(10 << 20, device="cuda") for _ in range(20)]
        del blocks[::2]
        x = torch.empty(90 << 20, device="cuda")
        out.append(reduced(torch, dist, rank, x))
        out.append(reduced(torch, dist, rank, blocks[-1]))
        del x, blocks
        torch.cuda.empty_cache()
    shards = torch.empty(2 << 20, device="cuda")
    dist.all_gather_into_tensor(shards, torch.full((1 << 20,), rank + 5.0, device="cuda"))
    note["reserved_mib"] = torch.cuda.max_memory_reserved() // MIB
    return out + [shards[0].item(), shards[-1].item()]


def sums_in_pools(torch, dist, rank, note):
    """Memory pools that NCCL registers: of its own memory, and of the allocator's."""
    backend, out = dist.group.WORLD._get_backend(torch.device("cuda")), []
    for arguments in ([backend.mem_allocator], []):
        pool = torch.cuda.MemPool(*arguments)
        out.append(reduced_in_pool(torch, dist, rank, backend, pool))
        del pool
        torch.cuda.empty_cache()
    return out


def symmetric(torch, dist, rank, note):
    """Symmetric memory: torch's own, and of a tensor of the allocator."""
    import torch.distributed._symmetric_memory as memory

    x = memory.empty(1 << 20, device=torch.device("cuda", rank))
    handle = memory.rendezvous(x, dist.group.WORLD)
    x.fill_(rank + 10)
    handle.barrier()
    out = [handle.get_buffer(1 - rank, (1 << 20,), torch.float32)[7].item()]
    handle.barrier()
    try:
        memory.rendezvous(torch.ones(1 << 20, device="cuda"), dist.group.WORLD)
        out.append("served")
    except RuntimeError as error:
        note["refusal"] = str(error)[:200]
        out.append("refused")
    return out


def be_rank(torch, tasks, answers):
    name, rank, path, does_register = tasks.get()
    note = {}
    try:
        if does_register:
            os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "1"
        dist = join_group(torch, path, rank, 2)
        answers.put((rank, globals()[name](torch, dist, rank, note), note))
        dist.destroy_process_group()
    except BaseException:
        answers.put((rank, traceback.format_exc()[-1500:], note))
        raise


def two_ranks(name, does_register, torch, note):
    """What the function of that name returns on each of two devices."""
    if torch.cuda.device_count() < 2:
        return side_by_side.LEFT_OUT + "one device"
    path = os.path.join(tempfile.mkdtemp(), "store")
    children = Children(torch, "be_rank", 2)
    for rank, (tasks, _) in enumerate(children.queues):
        tasks.put((name, rank, path, does_register))
    found = children.get()
    note["rank0"] = found[0][2]
    return [answer[:2] for answer in found], children.end()


case_nccl = functools.partial(two_ranks, "sums", False)
case_nccl_registered = functools.partial(two_ranks, "sums", True)
case_nccl_pools = functools.partial(two_ranks, "sums_in_pools", False)
case_symmetric = functools.partial(two_ranks, "symmetric", False)


# ---- Sessions: with torch's own allocator these are programs as they are ----


@contextlib.contextmanager
def in_session(torch, note, limit_mib, **options):
    """In a session, if the allocator is gmlake's."""
    if not is_lake(torch):
        yield None
        return
    os.environ["GMLAKE_TORCH_CHUNK_BYTES"] = str(4 * MIB)  # the lake is not made yet
    import gmlake_torch

    with gmlake_torch.offload(limit_mib * MIB, **options) as session:
        yield session
        note["session"] = session.stats()
        note["reserved_mib"] = torch.cuda.max_memory_reserved() // MIB
        assert torch.cuda.max_memory_reserved() <= limit_mib * MIB
        assert note["session"]["in_count"] > 0, "nothing has left"
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class Blocks:
    """Training with autocast, accumulation of gradients, clipping and varying rows, which needs
    about twice what a session has."""

    def __init__(self, torch, count=12, width=2048, **options):
        torch.manual_seed(5)
        parts, linear = [], functools.partial(torch.nn.Linear, device="cuda")
        for _ in range(count):
            parts += [linear(width, 4 * width), torch.nn.GELU(), linear(4 * width, width)]
        self.torch, self.net = torch, torch.nn.Sequential(*parts)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, **options)
        self.call = self.net

    def train(self, steps):
        torch, losses = self.torch, []
        for step in range(steps):
            x = torch.randn(2048 - 256 * (step % 3 == 2), 2048, device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = (self.call(x).float() - x).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            if step % 2:
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            losses.append(f"{loss.item():.6g}")
        return losses


def text_of(tensor):
    return f"{tensor.double().sum().item():.4g}"


def case_offload(torch, note):
    """Full training in about half of its memory."""
    with in_session(torch, note, 4096):
        return Blocks(torch).train(16)


def case_offload_checked(torch, note):
    """What is away has no memory: an access that the session does not see is a fault."""
    with in_session(torch, note, 4096, is_checked=True):
        return Blocks(torch).train(4)


def read(torch, tasks, answers):
    """Opens a tensor, and reads it when it is told to."""
    tensor = tasks.get()
    answers.put("open")
    assert tasks.get() == "read"
    answers.put(ends(tensor))
    torch.cuda.synchronize()
    del tensor


def case_offload_sent(torch, note):
    """A tensor of a session that another process has stays where that process reads it."""
    reader = Children(torch, "read")
    with in_session(torch, note, 1024):
        sent = full(torch, 64, 5)
        reader.put(sent)
        assert reader.get() == ["open"]
        others = [full(torch, 64, -1) for _ in range(24)]
        for _ in range(2):
            for other in others:
                other.add_(1)
        torch.cuda.synchronize()
        reader.put("read")
        return reader.get(), reader.end(), sent.sum().item()


def case_offload_graph(torch, note):
    """A graph that was captured in the session, replayed after its tensors have been away."""
    with in_session(torch, note, 4096):
        a, b, found = full(torch, 256, 1), full(torch, 256, 0), []
        b.copy_(a * 2)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            b.copy_(a * 2)
        blocks = Blocks(torch, 6)
        for value in (5.0, 7.0):
            a.fill_(value)
            found += blocks.train(4)
            graph.replay()
            found.append(ends(b))
        return found


def case_offload_compile(torch, note):
    """Regions of torch.compile between operators that make their tensors leave."""
    with in_session(torch, note, 4096):
        a, found = torch.linspace(0, 1, 64 * MIB, device="cuda", requires_grad=True), []
        region = torch.compile(lambda x: (x * 2 + 1).sin().relu())
        blocks = Blocks(torch, 6)
        for _ in range(3):
            region(a).mean().backward()
            found += [*blocks.train(4), text_of(a.grad)]
        return found


def case_offload_higher_order(torch, note):
    """Operators that take functions: torch's dispatcher does not know them."""
    from torch.nn.attention.flex_attention import flex_attention

    with in_session(torch, note, 4096):
        torch.manual_seed(1)
        shape, found = (2, 4, 256, 64), []
        q, k, v = (torch.randn(shape, device="cuda", requires_grad=True) for _ in range(3))
        blocks = Blocks(torch, 10)
        for _ in range(3):
            y = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.01)
            y.square().sum().backward()
            found += [*blocks.train(4), text_of(q.grad.double().square())]
        return found


def case_offload_streams(torch, note):
    """Tensors that another stream uses."""
    found, side = [], torch.cuda.Stream()
    with in_session(torch, note, 4096):
        a, blocks = full(torch, 256, 3), Blocks(torch, 8)
        for _ in range(3):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                b = a * 2
                a.record_stream(side)
            found += blocks.train(4)
            torch.cuda.current_stream().wait_stream(side)
            found.append(ends(b))
            b.record_stream(torch.cuda.current_stream())
            del b
    return found


def case_record_graph(torch, note):
    """The same operators on a GPU and on meta."""
    from gmlake_torch.record import Recorder

    graphs = []
    for device in ("cuda", "meta"):
        with tempfile.NamedTemporaryFile("r", suffix=".gmgraph") as file:
            with Recorder(file.name):
                net = torch.nn.Linear(1024, 1024, device=device)
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
                for _ in range(3):
                    net(torch.ones(512, 1024, device=device)).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
            lines = [line.split() for line in file if line[0] in "tom"]
        times = [int(words.pop(2)) for words in lines if words[0] == "o"]
        note[device] = {"operators": len(times), "ms": sum(times) / 1e6}
        graphs.append(lines)
    assert graphs[0] == graphs[1]
    return len(graphs[0])


# ---- What an allocation costs ----

OVERHEAD = r"""
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <chrono>
#include <optional>
#include <vector>
double pair_ns(int64_t live, int64_t count, bool on_side) {
  std::optional<c10::cuda::CUDAStreamGuard> guard;
  if (on_side) guard.emplace(c10::cuda::getStreamFromPool());
  std::vector<void *> blocks(live, nullptr);
  uint64_t seed = 88172645463325252ull;
  std::chrono::steady_clock::time_point start;
  double best = 1e30;
  for (int pass = 0; pass < 5; pass++) {
    start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; i++) {
      seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
      void *&slot = blocks[seed % live];
      if (slot) c10::cuda::CUDACachingAllocator::raw_delete(slot);
      const size_t bytes = ((seed >> 20) % 64 + 1) << ((seed >> 40) % 14);
      slot = c10::cuda::CUDACachingAllocator::raw_alloc(bytes);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    if (took.count() / count < best) best = took.count() / count;
  }
  for (void *block : blocks) if (block) c10::cuda::CUDACachingAllocator::raw_delete(block);
  return best;
}
"""


def case_overhead(torch, note):
    """Nanoseconds of a free and an allocation, warm, without Python."""
    from torch.utils.cpp_extension import load_inline

    toolkit = "/usr/local/cuda/include"
    module = load_inline("gmlake_overhead", OVERHEAD, functions=["pair_ns"],
                         extra_include_paths=[toolkit] if os.path.exists(toolkit) else [],
                         extra_ldflags=["-lc10_cuda"])
    torch.cuda.init()
    for live in (16, 256, 4096):
        note[f"pair_ns_{live}_live"] = round(module.pair_ns(live, 200000, False), 1)
    note["pair_ns_256_live_on_a_side_stream"] = round(module.pair_ns(256, 50000, True), 1)
    return True


# Each takes torch and a dictionary for notes, and returns what has to be equal.
CASES = {name[5:]: value for name, value in list(globals().items()) if name.startswith("case_")}


def run(function, allocator, note):
    import torch

    if allocator == "lake":
        import gmlake_torch

        gmlake_torch.enable()
        assert gmlake_torch.is_enabled()
    result = function(torch, note)
    torch.cuda.synchronize()
    if allocator == "lake":
        stats = gmlake_torch.stats() or {}
        shown = "stitch_count host_wait_count quarantined_bytes".split()
        note["lake"] = {key: stats[key] for key in shown if key in stats}
    return result


if __name__ == "__main__":
    sys.exit(side_by_side.main(__doc__, CASES, run, 4))
