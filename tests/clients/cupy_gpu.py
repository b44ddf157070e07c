"""Programs of CuPy with its own memory pool and with gmlake_cupy's, side by side, on a GPU.

    python3 tests/clients/cupy_gpu.py [CASE...]

Each case runs twice, in processes of its own, with CuPy's pool and with the lakes (which have to be
installed: python3 -m pip install --no-build-isolation ./examples/cupy). What it returns has to be
equal in both. What it notes is shown, not compared. The exit status is 0 if all cases are equal."""
import gc
import os
import sys
import time

import side_by_side

MIB = 1 << 20


def case_arrays(cupy, pool, note):
    cupy.random.seed(1)
    out = []
    for i in range(30):
        a = cupy.random.rand(100 + 37 * i, 64, dtype=cupy.float32)
        b = cupy.linalg.svd(a.T @ a, compute_uv=False)
        c = cupy.fft.rfft(a, axis=0)
        out.append([round(float(b[0]), 1), round(float(abs(c).sum()), -1)])
        out.append(int(cupy.argsort(a.ravel())[5]))
    note["total_mib"] = pool.total_bytes() // MIB
    return out


def case_streams(cupy, pool, note):
    """Arrays of streams that come and go, and values that other streams use behind events."""
    total = 0.0
    for i in range(100):
        stream, other = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream()
        with stream:
            a = cupy.full(MIB, float(i), dtype=cupy.float32)
            done = stream.record()
        with other:
            other.wait_event(done)
            b = a * 2
            other.synchronize()
            total += float(b[-1])
        del a, b
    note["total_mib"] = pool.total_bytes() // MIB
    return total


def case_external_stream(cupy, pool, note):
    with cupy.cuda.Stream() as own:
        with cupy.cuda.ExternalStream(own.ptr):
            a = cupy.arange(MIB, dtype=cupy.float32)
        b = a + 1
        return float(b.sum())


def case_limit(cupy, pool, note):
    pool.set_limit(size=64 * MIB)
    out = [pool.get_limit()]
    kept = [cupy.zeros(20 * MIB, dtype=cupy.uint8) for _ in range(3)]
    try:
        cupy.zeros(40 * MIB, dtype=cupy.uint8)
        out.append("served")
    except cupy.cuda.memory.OutOfMemoryError as error:
        note["text"] = str(error)
        out.append(str(error).split(" (")[0])
    del kept[0]
    pool.set_limit(size=0)
    kept.append(cupy.zeros(90 * MIB, dtype=cupy.uint8))
    return out + [pool.get_limit(), int(kept[-1].sum())]


def case_hooks(cupy, pool, note):
    seen = []

    class Hook(cupy.cuda.MemoryHook):
        name = "seen"

        def malloc_preprocess(self, device_id, size, mem_size):
            seen.append(["malloc", device_id, size, mem_size])

        def malloc_postprocess(self, device_id, size, mem_size, mem_ptr, pmem_id):
            seen.append(["done", device_id, size, mem_size, mem_ptr > 0, pmem_id > 0])

        def free_preprocess(self, device_id, mem_size, mem_ptr, pmem_id):
            seen.append(["free", device_id, mem_size, mem_ptr > 0])

    with Hook():
        a = cupy.empty(1000, dtype=cupy.uint8)
        b = cupy.empty(5 * MIB, dtype=cupy.uint8)
        del a
        c = a_view(b)
        del b, c
    with cupy.cuda.memory_hooks.LineProfileHook() as profile:
        cupy.ones(MIB)
    with open(os.devnull, "w") as nowhere:
        profile.print_report(nowhere)
    return seen


def a_view(array):
    return array[100:200]


def case_graph(cupy, pool, note):
    """A graph whose memory nobody else gets while it, or its result, exists."""
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(MIB, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    with stream:
        y = cupy.sin(x + 1) * 3 + x  # compiled before the capture
        stream.synchronize()
        stream.begin_capture()
        y = cupy.sin(x + 1) * 3 + x
        graph = stream.end_capture()
    out = []
    for value in (0.5, 1.0, 2.0):
        with stream:
            x.fill(value)
            junk = [cupy.full(MIB, -1.0, dtype=cupy.float32) for _ in range(10)]
            graph.launch(stream)
            stream.synchronize()
            out.append(round(float(y[7]), 4))
            del junk
    held = pool.total_bytes()
    del graph, y
    gc.collect()
    pool.free_all_blocks()
    note["freed_mib"] = (held - pool.total_bytes()) // MIB
    return out


def case_overhead(cupy, pool, note):
    """Nanoseconds of an allocation and a free, warm, with Python's part."""

    def best():
        least = 1e9
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(20000):
                cupy.cuda.alloc(5000)
            least = min(least, (time.perf_counter() - start) / 20000)
        return round(least * 1e9)

    note["pair_ns"] = best()
    with cupy.cuda.Stream(non_blocking=True):
        note["pair_ns_on_a_stream"] = best()
    return True


CASES = {name[5:]: value for name, value in list(globals().items()) if name.startswith("case_")}


def run(case, allocator, note):
    import cupy

    if allocator == "lake":
        import gmlake_cupy

        gmlake_cupy.enable()
    result = case(cupy, cupy.get_default_memory_pool(), note)
    cupy.cuda.Device().synchronize()
    return result


if __name__ == "__main__":
    sys.exit(side_by_side.main(__doc__, CASES, run, 1))
