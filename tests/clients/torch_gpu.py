"""Programs of torch with torch's own allocator and with gmlake_torch's, side by side, on a GPU.

    python3 tests/clients/torch_gpu.py [--jobs N] [--seconds N] [CASE...]

Each case runs twice, in processes of its own, with torch's allocator and with the lakes (which have
to be installed: python3 -m pip install --no-build-isolation ./examples/torch). What it returns has
to be equal in both. What it notes is shown, not compared. A case whose parts the machine lacks is
left out, and said so. The exit status is 0 if all cases are equal or left out."""
import contextlib
import math
import os
import subprocess
import sys
import tempfile
import traceback

import side_by_side

MIB = 1 << 20


# ---- Cases: each returns what has to be equal, and puts figures into `note` ----


def model(torch, width=256, layers=2):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers).cuda()


def case_train(torch, note):
    """A few steps of training, with inputs of varying length."""
    net = model(torch)
    optimizer = torch.optim.AdamW(net.parameters())
    losses = []
    for step in range(12):
        x = torch.randn(8, 32 + 24 * (step % 5), 256, device="cuda")
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(loss.item(), 4))
    note["reserved_mib"] = torch.cuda.max_memory_reserved() // MIB
    note["allocated_mib"] = torch.cuda.max_memory_allocated() // MIB
    return losses


def case_streams(torch, note):
    """Tensors that are used on other streams than their own, and freed early."""
    side = [torch.cuda.Stream() for _ in range(3)]
    sums = []
    for i in range(60):
        stream = side[i % 3]
        x = torch.full((1 << 20,), float(i), device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200000)
            y = x * 2
            x.record_stream(stream)
        del x
        z = torch.full((1 << 20,), -1.0, device="cuda")
        torch.cuda.current_stream().wait_stream(stream)
        y.record_stream(torch.cuda.current_stream())
        sums.append((y.sum() / (1 << 20)).item() + z[5].item())
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    del y, z
    return sums, stats["active.all.current"] >= stats["allocation.all.current"]


def case_external_stream(torch, note):
    """A stream of the driver's own that is destroyed while tensors on it live on."""
    import ctypes

    runtime = ctypes.CDLL(None)
    values = []
    for i in range(20):
        raw = ctypes.c_void_p()
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(raw), 1) == 0
        with torch.cuda.stream(torch.cuda.ExternalStream(raw.value)):
            x = torch.full((MIB,), float(i), device="cuda")
            values.append(x[7].item())
        assert runtime.cudaStreamDestroy(raw) == 0
        del x
    torch.cuda.synchronize()
    return values


def replay(torch, graph, static, value):
    static.fill_(value)
    graph.replay()
    torch.cuda.synchronize()


def case_graph(torch, note):
    net = model(torch).eval()
    x = torch.zeros(4, 64, 256, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            net(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = net(x)
    out = []
    for value in (0.5, -1.0, 2.0):
        junk = [torch.randn(1 << 20, device="cuda") for _ in range(20)]
        replay(torch, graph, x, value)
        with torch.no_grad():
            expected = net(torch.full_like(x, value))
        out.append(torch.allclose(y, expected, atol=1e-4))
        del junk
    before = torch.cuda.memory_reserved()
    del graph, y
    torch.cuda.empty_cache()
    note["freed_mib"] = (before - torch.cuda.memory_reserved()) // MIB
    return out, torch.cuda.memory_reserved() < before


def case_graph_shared_pool(torch, note):
    """Two graphs that share a pool, and reuse each other's memory."""
    x = torch.zeros(1 << 20, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = (x + 1).sin().mul(3) + x
    held = torch.cuda.memory_reserved()
    with torch.cuda.graph(second, pool=first.pool()):
        z = (y + 1).cos().mul(2) + x
    note["grown_mib"] = (torch.cuda.memory_reserved() - held) // MIB
    out = []
    for value in (1.0, 2.0, 3.0):
        x.fill_(value)
        first.replay()
        second.replay()
        y_expected = 3 * math.sin(value + 1) + value
        z_expected = 2 * math.cos(y_expected + 1) + value
        out.append([abs(y[3].item() - y_expected) < 1e-4, abs(z[9].item() - z_expected) < 1e-3])
    return out


def case_graph_side_stream(torch, note):
    """A capture that forks to another stream and joins it again."""
    x = torch.zeros(1 << 18, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        a = x + 1
        side.wait_stream(main)
        with torch.cuda.stream(side):
            b = a * 2
            c = b + 5
            a.record_stream(side)
        d = x * 7
        main.wait_stream(side)
        c.record_stream(main)
        y = c + d
        del a, b, c, d
    out = []
    for value in (1.0, 4.0):
        replay(torch, graph, x, value)
        out.append(y[11].item())
    e = [torch.randn(1 << 18, device="cuda") for _ in range(10)]
    replay(torch, graph, x, 2.0)
    del e
    return out, y[0].item()


def case_graphed_callables(torch, note):
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32)
    ).cuda()
    torch.manual_seed(3)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    head = torch.nn.Linear(32, 8).cuda()
    x = torch.randn(16, 64, device="cuda")
    graphed = torch.cuda.make_graphed_callables(net, (x.clone().requires_grad_(False),))
    optimizer = torch.optim.SGD(list(net.parameters()) + list(head.parameters()), lr=0.1)
    torch.manual_seed(4)
    with torch.no_grad():
        head.weight.normal_(std=0.1)
        head.bias.zero_()
    losses = []
    for _ in range(8):
        optimizer.zero_grad(set_to_none=False)
        loss = head(graphed(torch.randn(16, 64, device="cuda"))).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 4))
    return losses


def case_compile(torch, note):
    """torch.compile's graph trees: forward and backward, two shapes, warm-ups and replays."""
    torch.manual_seed(5)
    net = torch.nn.Sequential(
        torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Linear(512, 128)
    ).cuda()
    compiled = torch.compile(net, mode="reduce-overhead", dynamic=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for step in range(14):
        torch.compiler.cudagraph_mark_step_begin()
        torch.manual_seed(step)
        x = torch.randn(64 if step % 7 < 4 else 96, 128, device="cuda")
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(loss.item(), 3))
    note["reserved_mib"] = torch.cuda.memory_reserved() // MIB
    return losses


def case_compile_inference(torch, note):
    """Several graphs in turn, as a decode loop has; outputs that live on."""
    torch.manual_seed(6)
    net = model(torch).eval()
    compiled = torch.compile(net, mode="reduce-overhead", dynamic=False)
    close, kept = [], []
    with torch.no_grad():
        for step in range(12):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(2, (16, 24, 32)[step % 3], 256, device="cuda")
            y = compiled(x)
            close.append(torch.allclose(y, net(x), atol=1e-3))
            kept.append(y.clone())
            if len(kept) > 3:
                kept.pop(0)
    note["reserved_mib"] = torch.cuda.memory_reserved() // MIB
    return close


def case_stats(torch, note):
    """Every statistic that native has, and their peaks and resets."""
    torch.cuda.init()
    before = torch.cuda.memory_allocated()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    y = torch.empty(100, dtype=torch.uint8, device="cuda")
    stats = torch.cuda.memory_stats()
    keys = sorted(stats)
    live = torch.cuda.memory_allocated() - before
    shown = {
        key: stats[key]
        for key in keys
        if key.split(".")[0]
        in ("allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes")
    }
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del x
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    after = torch.cuda.memory_stats()
    assert "Allocated memory" in torch.cuda.memory_summary()
    free, total = torch.cuda.mem_get_info()
    del y
    return (
        keys,
        live,
        shown,
        after["allocated_bytes.all.peak"],
        after["allocation.all.allocated"],
        0 < free < total,
    )


def case_out_of_memory(torch, note):
    texts = []
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.05)
    kept = [torch.empty(int(total * 0.01), dtype=torch.uint8, device="cuda") for _ in range(3)]
    for bytes_ in (int(total * 0.04), 1 << 61, 800 << 40):
        try:
            torch.empty(bytes_, dtype=torch.uint8, device="cuda")
            texts.append("served")
        except torch.OutOfMemoryError as error:
            text = str(error)
            note.setdefault("text", text)
            texts.append(text.split(". ")[0:2] if "more than 1EB" not in text else text[:40])
            assert isinstance(error, RuntimeError)
    stats = torch.cuda.memory_stats()
    texts.append(stats["num_ooms"] >= 1)
    del kept
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)
    x = torch.ones(int(total * 0.06), dtype=torch.uint8, device="cuda")
    return texts, x[-1].item()


def case_oom_observer(torch, note):
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *a: seen.append(a[0]))
    torch.cuda.set_per_process_memory_fraction(0.02)
    try:
        torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        seen.append("raised")
    return seen


def case_snapshot(torch, note):
    path = os.path.join(tempfile.mkdtemp(), "snapshot.pickle")
    torch.cuda.memory._record_memory_history(max_entries=1000)
    kept = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._dump_snapshot(path)
    torch.cuda.memory._record_memory_history(enabled=None)
    trace = [e for t in snapshot["device_traces"] for e in t]
    actions = sorted({e["action"] for e in trace} & {"alloc", "free_requested", "free_completed"})
    sizes = sorted(e["size"] for e in trace if e["action"] == "alloc")
    frames = any("torch_gpu.py" in f["filename"] for e in trace for f in e["frames"])
    blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
    live = [b for b in blocks if b["state"] == "active_allocated"]
    assert sum(s["total_size"] for s in snapshot["segments"]) == torch.cuda.memory_reserved()
    assert sum(b["size"] for b in live) == torch.cuda.memory_allocated()
    assert any(b["address"] == kept.data_ptr() and b["frames"] for b in live)
    times = [e["time_us"] for e in trace]
    assert times == sorted(times) and times[0] > 1.6e15
    from torch.cuda import _memory_viz

    assert len(_memory_viz.segsum(snapshot)) and len(_memory_viz.trace_plot(snapshot))
    return actions, sizes, frames, os.path.getsize(path) > 1000, sorted(snapshot)


def case_mempool(torch, note):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((MIB,), 3.0, device="cuda")
        y = x * 2
    z = torch.full((MIB,), 5.0, device="cuda")
    inside = {
        b["address"]
        for s in pool.snapshot()
        for b in s["blocks"]
        if b["state"] == "active_allocated"
    }
    where = [t.data_ptr() in inside for t in (x, y, z)]
    counts = [pool.use_count()]
    value = (x + y + z)[0].item()
    del x, y
    held = torch.cuda.memory_reserved()
    del pool
    torch.cuda.empty_cache()
    note["freed_mib"] = (held - torch.cuda.memory_reserved()) // MIB
    return where, counts, value, torch.cuda.memory_reserved() < held


ALLOCATOR = r"""
#include <dlfcn.h>
#include <stddef.h>
static void *driver(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }
void *take(size_t bytes, int device, void *stream) {
  unsigned long long address = 0;
  return ((int (*)(unsigned long long *, size_t))driver("cuMemAlloc_v2"))(&address, bytes)
             ? NULL
             : (void *)address;
}
void give(void *ptr, size_t bytes, int device, void *stream) {
  (void)((int (*)(unsigned long long))driver("cuMemFree_v2"))((unsigned long long)ptr);
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
            y = torch.full((4 << 20,), float(i), device="cuda")
        torch.cuda.synchronize()
        found.append((y.min().item(), y.max().item()))
        del y
    return found


def case_mempool_allocator(torch, note):
    """A pool with an allocator of its own, and a side stream."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = os.path.join(folder, "a.c"), os.path.join(folder, "a.so")
        with open(source, "w") as file:
            file.write(ALLOCATOR)
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
        )
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give")
        pool = torch.cuda.MemPool(allocator.allocator())
        found = side_stream_pool(torch, pool)
        held = torch.cuda.memory_reserved()
        del pool
        torch.cuda.empty_cache()
        return found, torch.cuda.memory_reserved() < held


NO_NCCL_POOL = "NCCL mem allocator is not supported in this NCCL version"


def case_nccl_pool(torch, note):
    """NCCL's own pool, with a side stream, in a group of one."""
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl",
            init_method="file://" + os.path.join(folder, "store"),
            rank=0,
            world_size=1,
            device_id=torch.device("cuda", 0),
        )
        backend = dist.group.WORLD._get_backend(torch.device("cuda"))
        try:
            pool = torch.cuda.MemPool(backend.mem_allocator)
        except RuntimeError as error:
            if NO_NCCL_POOL not in str(error):
                raise
            dist.destroy_process_group()
            return side_by_side.LEFT_OUT + NO_NCCL_POOL
        found = side_stream_pool(torch, pool)
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(5 << 20, device="cuda")
        backend.register_mem_pool(pool)
        dist.all_reduce(x)
        found.append(x.sum().item())
        backend.deregister_mem_pool(pool)
        del x, pool
        dist.destroy_process_group()
    return found


def case_many_mempools(torch, note):
    """10,000 pools that come and go leave nothing behind, and the cache where it is."""
    import time

    cached = torch.empty(64 << 20, device="cuda")
    del cached
    held, times = [], []
    lake = torch.cuda.get_allocator_backend() == "gmlake"
    if lake:
        import gmlake_torch
    for part in range(4):
        begin = time.perf_counter()
        for _ in range(2500):
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                x = torch.zeros(MIB // 4, device="cuda")
            del x, pool
        times.append(round(time.perf_counter() - begin, 2))
        held.append(torch.cuda.memory_reserved())
        if lake:
            note.setdefault("metadata", []).append(gmlake_torch.stats()["metadata_bytes"])
    note["seconds_of_2500"] = times
    if lake:
        assert note["metadata"][3] <= note["metadata"][0] + 65536, note
    return [bytes == held[0] for bytes in held], held[0] >= 256 * MIB


def case_graph_after_failure(torch, note):
    """A capture that failed keeps no other one from the same stream."""
    x, out = torch.zeros(MIB, device="cuda"), []
    for _ in range(3):
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                y = x + 1
                y.sum().item()  # no capture allows that
        except RuntimeError:
            out.append("failed")
        del graph
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2 + 1
        junk = torch.full((4 * MIB,), 7.0, device="cuda")
        for value in (1.0, 3.0):
            replay(torch, graph, x, value)
            out.append((y.min().item(), y.max().item(), junk.min().item()))
        del junk, graph, y
    return out


def case_failed_captures_give_back(torch, note):
    """Captures that failed hold nothing once their graphs are gone. torch 2.11's own hold it: that
    is noted, not compared."""
    import gc

    def settle():
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    def fail(is_illegal):
        x = torch.ones(4 * MIB, device="cuda")
        if is_illegal:
            x.sum().item()  # no capture allows that
        raise ValueError("the program's own")

    x, out = torch.zeros(MIB, device="cuda"), []
    held = settle()
    for is_illegal in (True, False):
        for _ in range(5):
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    fail(is_illegal)
            except (RuntimeError, ValueError):
                out.append("failed")
            del graph
        rest = settle() - held
        note.setdefault("mib_held", []).append(rest / MIB)
        if torch.cuda.get_allocator_backend() == "gmlake":
            assert rest <= 4 * MIB, note
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    for value in (1.0, 3.0):
        replay(torch, graph, x, value)
        out.append((y.min().item(), y.max().item()))
    return out


def case_capture_of_others(torch, note):
    """Frees of blocks of external streams while another library captures."""
    import ctypes

    runtime, tensors = ctypes.CDLL(None), []
    raw, theirs, graph = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    for stream in (raw, theirs):
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
    with torch.cuda.stream(torch.cuda.ExternalStream(raw.value)):
        tensors = [torch.zeros(60 * MIB // 4, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    assert runtime.cudaStreamBeginCapture(theirs, 0) == 0
    tensors.clear()
    ended = runtime.cudaStreamEndCapture(theirs, ctypes.byref(graph))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return ended, torch.cuda.memory_reserved()


ASSERT = """
import torch, sys
side = torch.cuda.Stream()
x = torch.ones(1 << 20, device="cuda")
y = torch.ones(1 << 20, device="cuda")
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
    backend = torch.cuda.get_allocator_backend()
    environment = {**os.environ, "GMLAKE_TORCH": "1" if backend == "gmlake" else "0"}
    done = subprocess.run(
        [sys.executable, "-c", ASSERT], env=environment, capture_output=True, text=True, timeout=100
    )
    note["status"], note["last"] = done.returncode, done.stderr[-300:]
    note["printed"] = done.stdout.split()
    if backend == "gmlake":
        raised = note["printed"]
        assert len(raised) == 3 and raised[0] == "raised" and int(raised[1]) >= 1, note
        assert raised[2] == backend and done.returncode >= 0, note  # below: a signal ended it
    return "done"


def case_find_spec(torch, note):
    """GMLAKE_TORCH=1, where a library asks first whether there is a torch."""
    code = "import importlib.util as u; u.find_spec('torch'); import torch; " + (
        "print(torch.cuda.get_allocator_backend())"
    )
    found = []
    for value in ("0", "1"):
        environment = {**os.environ, "GMLAKE_TORCH": value}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
        found.append(done.stdout.decode().strip())
    return found == ["native", "gmlake"]


def case_pinned_loader(torch, note):
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            return torch.full((1000,), float(i))

    keep = torch.ones(MIB, device="cuda")  # inherited by the workers
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    sums = []
    for batch in loader:
        assert batch.is_pinned()
        sums.append(batch.to("cuda", non_blocking=True).sum().item())
    return sums, keep.sum().item()


def case_raw(torch, note):
    ptr = torch.cuda.caching_allocator_alloc(4 * MIB)
    live = torch.cuda.memory_allocated()
    torch.cuda.caching_allocator_delete(ptr)
    try:
        torch.cuda.caching_allocator_delete(1234)
        text = ""
    except RuntimeError as error:
        text = str(error)[:23]
    return ptr % 512, live, torch.cuda.memory_allocated(), text


def case_profiler(torch, note):
    from torch.profiler import ProfilerActivity, profile

    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True
    ) as profiler:
        x = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
        y = x + 1
        del x, y
    return max(e.device_memory_usage for e in profiler.key_averages()) >= 16 * MIB


def case_threads(torch, note):
    import threading

    out = [0.0] * 8

    def work(k):
        torch.cuda.set_device(0)
        with torch.cuda.stream(torch.cuda.Stream()):
            total = torch.zeros((), device="cuda")
            for i in range(200):
                x = torch.full((1000 * (i % 17 + 1),), float(k), device="cuda")
                total += x[-1]
            out[k] = total.item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out


def case_convolutions(torch, note):
    """cuDNN asks how large a workspace may be."""
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(2)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 5), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3)
    ).cuda()
    out = []
    for size in (64, 80, 96, 64):
        y = net(torch.ones(4, 3, size, size, device="cuda")).mean()
        out.append(round(y.item(), 3))
    return out


def case_disabled(torch, note):
    """torch.cuda.caching_allocator_enable(False)."""
    x = torch.ones(MIB, device="cuda")
    torch.cuda.caching_allocator_enable(False)
    y = torch.ones(MIB, device="cuda")
    del y
    torch.cuda.caching_allocator_enable(True)
    z = x + 1
    return z.sum().item()


def other_process(allocator, tasks, answers):
    """Doubles what it is sent, and answers with tensors of its own."""
    import torch

    if allocator == "lake":
        import gmlake_torch

        gmlake_torch.enable()
    kept = []
    while True:
        x = tasks.get()
        if x is None:
            break
        kept = kept[-2:] + [x * 2]
        answers.put(kept[-1])
        x.fill_(7)
        torch.cuda.synchronize()
        del x
    answers.put("ended")
    tasks.get()  # what it sent lives as long as it does


def case_processes(torch, note):
    """Tensors that go to another process and come back, small, large and many."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    tasks, answers = context.Queue(), context.Queue()
    name = "lake" if torch.cuda.get_allocator_backend() == "gmlake" else "native"
    child = context.Process(target=other_process, args=(name, tasks, answers))
    child.start()
    out = []
    pid = os.getpid()
    for i in range(60):
        x = torch.full(((1 << 18) * (i % 7 + 1) + i,), float(i), device="cuda")
        tasks.put(x)
        y = answers.get(timeout=60)
        out.append(y[-1].item())
        if i % 20 == 0:
            torch.cuda.synchronize()
        del x, y
    tasks.put(None)
    assert answers.get(timeout=60) == "ended"
    note["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
    tasks.put(None)
    child.join(60)
    torch.cuda.ipc_collect()
    live = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    note["descriptors_after"] = len(os.listdir(f"/proc/{pid}/fd"))
    return out, child.exitcode, live


def census(torch):
    """What a process holds."""
    torch.cuda.synchronize()
    torch.cuda.ipc_collect()
    with open("/proc/self/maps") as maps:
        mappings = sum(1 for _ in maps)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": mappings,
        "live": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
    }


def receiver(allocator, tasks, answers):
    """Adds up what it is sent, fifty at a time, and drops it."""
    import torch

    if allocator == "lake":
        import gmlake_torch

        gmlake_torch.enable()
    while True:
        total = 0.0
        for _ in range(50):
            x = tasks.get()
            if isinstance(x, str):
                break
            total += x[-1].item()
            del x
        else:
            answers.put(total)
            continue
        if x == "end":
            break
        answers.put(census(torch))
    answers.put("ended")


def case_many_tensors(torch, note):
    """Ten thousand tensors that go to two other processes and are dropped leave nothing behind."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    name = "lake" if torch.cuda.get_allocator_backend() == "gmlake" else "native"
    queues = [(context.Queue(), context.Queue()) for _ in range(2)]
    children = [context.Process(target=receiver, args=(name, *pair)) for pair in queues]
    for child in children:
        child.start()

    def send(count):
        total = 0.0
        for i in range(0, count, 50):
            for tasks, _ in queues:
                for k in range(50):
                    tasks.put(torch.ones(997 * ((i + k) % 40 + 1), device="cuda"))
            total += sum(answers.get(timeout=60) for _, answers in queues)
        return total

    def ask_all():
        for tasks, _ in queues:
            tasks.put("census")
        return [census(torch)] + [answers.get(timeout=60) for _, answers in queues]

    sums = [send(500)]
    before = ask_all()
    sums.append(send(5000))
    after = ask_all()
    grown = [{key: b[key] - a[key] for key in a} for a, b in zip(before, after)]
    note["before"], note["grown"] = before, grown
    for tasks, _ in queues:
        tasks.put("end")
    ended = [answers.get(timeout=60) for _, answers in queues]
    for child in children:
        child.join(60)
    torch.cuda.ipc_collect()
    live = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    note["reserved_at_end"] = torch.cuda.memory_reserved()
    # torch has a file for each 10,000 reference counts. Its allocator may keep one segment more.
    left = [
        g["descriptors"] > 4 or g["mappings"] > 16 or g["live"] > 0 or g["reserved"] > 2 * MIB
        for g in grown
    ]
    return sums, ended, [child.exitcode for child in children], live, left


# ---- Cases with two devices ----


def case_peers(torch, note):
    """Copies between devices, of memory from before and after peer access; DataParallel."""
    if torch.cuda.device_count() < 2:
        return "one device"
    early = [torch.full((1 << 20,), 3.0, device=f"cuda:{i}") for i in (0, 1)]
    sums = [early[0].to("cuda:1").sum().item(), early[1].to("cuda:0").sum().item()]
    for i in range(12):
        x = torch.full(((i * 37 % 11 + 1) << 21,), float(i), device=f"cuda:{i % 2}")
        y = torch.empty_like(x, device=f"cuda:{1 - i % 2}")
        y.copy_(x, non_blocking=True)
        del x
        sums.append(y[-1].item())
        if i == 6:
            torch.cuda.empty_cache()
    torch.manual_seed(1)
    net = torch.nn.DataParallel(torch.nn.Linear(64, 64).cuda())
    sums.append(round(net(torch.ones(32, 64, device="cuda")).sum().item(), 3))
    import torch.cuda.comm as comm

    parts = comm.broadcast_coalesced([early[0], early[0][:5]], (0, 1))
    return sums + [parts[1][0].sum().item()]


def reduced(torch, dist, rank, x):
    x.fill_(rank + 1)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    return x[0].item(), x[-1].item()


def rank_reduce(torch, dist, rank, note):
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


def rank_reduce_registered(torch, dist, rank, note):
    return rank_reduce(torch, dist, rank, note)


def rank_pools(torch, dist, rank, note):
    """Memory pools that NCCL registers: of its own memory, and of the allocator's."""
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    out = []
    for kind in ("nccl", "own"):
        pool = torch.cuda.MemPool(backend.mem_allocator) if kind == "nccl" else torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(5 << 20, device="cuda")
        backend.register_mem_pool(pool)
        out.append(reduced(torch, dist, rank, x))
        backend.deregister_mem_pool(pool)
        del x, pool
        torch.cuda.empty_cache()
    return out


def rank_symmetric(torch, dist, rank, note):
    """Symmetric memory: torch's own, and of a tensor of the allocator."""
    import torch.distributed._symmetric_memory as symmetric

    x = symmetric.empty(1 << 20, device=torch.device("cuda", rank))
    handle = symmetric.rendezvous(x, dist.group.WORLD)
    x.fill_(rank + 10)
    handle.barrier()
    out = [handle.get_buffer(1 - rank, (1 << 20,), torch.float32)[7].item()]
    handle.barrier()
    try:
        symmetric.rendezvous(torch.ones(1 << 20, device="cuda"), dist.group.WORLD)
        out.append("served")
    except RuntimeError as error:
        note["refusal"] = str(error)[:200]
        out.append("refused")
    return out


def rank_main(allocator, name, rank, path, answers):
    import torch
    import torch.distributed as dist

    note = {}
    try:
        if name == "reduce_registered":
            os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "1"
        if allocator == "lake":
            import gmlake_torch

            gmlake_torch.enable()
        torch.cuda.set_device(rank)
        dist.init_process_group(
            "nccl",
            init_method="file://" + path,
            rank=rank,
            world_size=2,
            device_id=torch.device("cuda", rank),
        )
        result = globals()["rank_" + name](torch, dist, rank, note)
        answers.put((rank, result, note))
        dist.destroy_process_group()
    except BaseException:
        answers.put((rank, traceback.format_exc()[-1500:], note))
        raise


def two_ranks(torch, name, note):
    """What rank_NAME returns on each of two devices."""
    import torch.multiprocessing as mp

    if torch.cuda.device_count() < 2:
        return "one device"
    context = mp.get_context("spawn")
    allocator = "lake" if torch.cuda.get_allocator_backend() == "gmlake" else "native"
    answers, path = context.Queue(), os.path.join(tempfile.mkdtemp(), "store")
    children = [
        context.Process(target=rank_main, args=(allocator, name, rank, path, answers))
        for rank in range(2)
    ]
    for child in children:
        child.start()
    found = sorted(answers.get(timeout=100) for _ in children)
    for child in children:
        child.join(30)
    note["rank0"] = found[0][2]
    return [answer[:2] for answer in found], [child.exitcode for child in children]


def case_nccl(torch, note):
    return two_ranks(torch, "reduce", note)


def case_nccl_registered(torch, note):
    """The same, and NCCL registers what the allocator creates."""
    return two_ranks(torch, "reduce_registered", note)


def case_nccl_pools(torch, note):
    return two_ranks(torch, "pools", note)


def case_symmetric(torch, note):
    return two_ranks(torch, "symmetric", note)


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


# ---- Sessions: with torch's own allocator these are programs as they are ----


@contextlib.contextmanager
def offload(torch, note, limit_mib, **options):
    """In a session, if the allocator is gmlake's."""
    if torch.cuda.get_allocator_backend() != "gmlake":
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


def blocks(torch, count=12, width=2048):
    torch.manual_seed(5)
    parts = []
    for _ in range(count):
        parts += [torch.nn.Linear(width, 4 * width, device="cuda"), torch.nn.GELU()]
        parts += [torch.nn.Linear(4 * width, width, device="cuda")]
    return torch.nn.Sequential(*parts)


def train_blocks(torch, net, optimizer, steps, rows=2048):
    losses = []
    for step in range(steps):
        x = torch.randn(rows - 256 * (step % 3 == 2), 2048, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = (net(x).float() - x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if step % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(f"{loss.item():.6g}")
    return losses


def case_offload(torch, note):
    """Full training in about half of its memory, with autocast, accumulation of gradients, clipping
    and varying rows."""
    with offload(torch, note, 4096):
        net = blocks(torch)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        return train_blocks(torch, net, optimizer, 16)


def case_offload_checkpoint(torch, note):
    from torch.utils.checkpoint import checkpoint_sequential

    with offload(torch, note, 4096):
        net = blocks(torch)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
        again = lambda x: checkpoint_sequential(net, 6, x, use_reentrant=False)  # noqa: E731
        again.parameters = net.parameters
        return train_blocks(torch, again, optimizer, 10)


def case_offload_save(torch, note):
    """A checkpoint saved every third step, under the limit."""
    import io

    with offload(torch, note, 4096) as session:
        net, sums = blocks(torch), []
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        losses = []
        for step in range(9):
            losses += train_blocks(torch, net, optimizer, 2)
            if step % 3 == 2:
                file = io.BytesIO()
                torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
                file.seek(0)
                saved = torch.load(file, map_location="cpu")["net"]
                sums.append(f"{sum(x.double().sum().item() for x in saved.values()):.6g}")
                if session:
                    note.setdefault("out_after_save", []).append(session.stats()["out_count"])
        return losses, sums


def case_offload_resize(torch, note):
    """Storages that are away, and are resized, keep their contents."""
    count = 16 * MIB
    with offload(torch, note, 1024):
        tensors = [torch.full((count,), float(i), device="cuda") for i in range(24)]
        for i, tensor in enumerate(tensors):
            tensor.untyped_storage().resize_(4 * count + 4096)
            assert tensor.untyped_storage().nbytes() == 4 * count + 4096
        return [(x.min().item(), x.max().item()) for x in tensors]


def case_offload_sent(torch, note):
    """A tensor of a session that another process has stays where that process reads it."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    backend = torch.cuda.get_allocator_backend()
    tasks, answers = context.Queue(), context.Queue()
    worker = context.Process(target=reader, args=(backend == "gmlake", tasks, answers))
    worker.start()
    with offload(torch, note, 1024):
        sent = torch.full((16 * MIB,), 5.0, device="cuda")
        tasks.put(sent)
        assert answers.get(timeout=60) == "open"
        others = [torch.full((16 * MIB,), -1.0, device="cuda") for _ in range(24)]
        for _ in range(2):
            for other in others:
                other.add_(1)
        torch.cuda.synchronize()
        tasks.put("read")
        found = answers.get(timeout=60)
        worker.join(60)
        return found, sent.sum().item()


def reader(is_lake, tasks, answers):
    """Opens a tensor, and reads it when it is told to."""
    import torch

    if is_lake:
        import gmlake_torch

        gmlake_torch.enable()
    tensor = tasks.get()
    answers.put("open")
    assert tasks.get() == "read"
    answers.put((tensor.min().item(), tensor.max().item()))
    torch.cuda.synchronize()
    del tensor


def case_offload_checked(torch, note):
    """What is away has no memory: an access that the session does not see is a fault."""
    with offload(torch, note, 4096, is_checked=True):
        net = blocks(torch)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        return train_blocks(torch, net, optimizer, 4)


def case_offload_graph(torch, note):
    """A graph that was captured in the session, replayed after its tensors have been away."""
    found = []
    with offload(torch, note, 4096):
        a, b = (torch.full((64 * MIB,), value, device="cuda") for value in (1.0, 0.0))
        b.copy_(a * 2)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            b.copy_(a * 2)
        net = blocks(torch, 6)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        for value in (5.0, 7.0):
            a.fill_(value)
            found += train_blocks(torch, net, optimizer, 4)
            graph.replay()
            found.append((b.sum() / b.numel()).item())
    return found


def case_offload_compile(torch, note):
    """Regions of torch.compile between operators that make their tensors leave."""
    found = []
    with offload(torch, note, 4096):
        a = torch.linspace(0, 1, 64 * MIB, device="cuda", requires_grad=True)
        region = torch.compile(lambda x: (x * 2 + 1).sin().relu())
        net = blocks(torch, 6)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        for _ in range(3):
            region(a).mean().backward()
            found += train_blocks(torch, net, optimizer, 4)
            found.append(f"{a.grad.double().sum().item():.4g}")
    return found


def case_offload_higher_order(torch, note):
    """Operators that take functions: torch's dispatcher does not know them."""
    from torch.nn.attention.flex_attention import flex_attention

    found = []
    with offload(torch, note, 4096):
        torch.manual_seed(1)
        shape = (2, 4, 256, 64)
        q, k, v = (torch.randn(shape, device="cuda", requires_grad=True) for _ in range(3))
        net = blocks(torch, 10)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        for _ in range(3):
            y = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.01)
            y.square().sum().backward()
            found += train_blocks(torch, net, optimizer, 4)
            found.append(f"{q.grad.double().square().sum().item():.4g}")
    return found


def case_offload_streams(torch, note):
    """Tensors that another stream uses."""
    found, side = [], torch.cuda.Stream()
    with offload(torch, note, 4096):
        a = torch.full((64 * MIB,), 3.0, device="cuda")
        net = blocks(torch, 8)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        for _ in range(3):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                b = a * 2
                a.record_stream(side)
            found += train_blocks(torch, net, optimizer, 4)
            torch.cuda.current_stream().wait_stream(side)
            found.append((b.sum() / b.numel()).item())
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


def case_overhead(torch, note):
    """Nanoseconds of a free and an allocation, warm, without Python."""
    from torch.utils.cpp_extension import load_inline

    include = [
        path
        for path in ("/usr/local/cuda/include",)
        if os.path.exists(path)
    ]
    module = load_inline(
        "gmlake_overhead",
        OVERHEAD,
        functions=["pair_ns"],
        extra_include_paths=include,
        extra_ldflags=["-lc10_cuda"],
    )
    torch.cuda.init()
    for live in (16, 256, 4096):
        note[f"pair_ns_{live}_live"] = round(module.pair_ns(live, 200000, False), 1)
    note["pair_ns_256_live_on_a_side_stream"] = round(module.pair_ns(256, 50000, True), 1)
    return True


CASES = {name[5:]: value for name, value in list(globals().items()) if name.startswith("case_")}


def run(case, allocator, note):
    import torch

    if allocator == "lake":
        import gmlake_torch

        gmlake_torch.enable()
        assert gmlake_torch.is_enabled()
    result = case(torch, note)
    torch.cuda.synchronize()
    if allocator == "lake":
        note["lake"] = {
            key: value
            for key, value in (gmlake_torch.stats() or {}).items()
            if key in ("stitch_count", "host_wait_count", "quarantined_bytes")
        }
    return result


if __name__ == "__main__":
    sys.exit(side_by_side.main(__doc__, CASES, run, 4))
