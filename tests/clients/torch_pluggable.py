"""Drives the library of examples/torch_pool, or that of examples/cupy, as torch and CuPy do, over a
driver without a device.

    python3 tests/clients/torch_pluggable.py BUILD
    python3 tests/clients/torch_pluggable.py --case NAME LIBRARY

The first runs all rows below on BUILD's libraries, each in a process of its own, and the second one
case in this process, with the fake driver on the library path."""
import ctypes
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import types
import warnings

MIB = 1 << 20
PREFIX = "gmlake_torch_"
P, N, C = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Library:
    """Its functions, by name."""

    RESULTS = {"malloc": P, "mark_stream": C, "reset_peaks": C, "stats_json": C, "pool_open": P,
               "pool_close": C, "capture_begin": C, "capture_end": C, "usage": C, "lane_open": P,
               "lane_malloc": P}

    def __init__(self, path, prefix=PREFIX):
        self.library, self.prefix = ctypes.CDLL(path), prefix

    def __getattr__(self, name):
        function = self.library[self.prefix + name]
        function.restype = self.RESULTS.get(name)
        return function

    def alloc(self, bytes, stream=None, device=0):
        return self.malloc(N(bytes), device, P(stream))

    def give(self, ptr, bytes, stream=None, device=0):
        self.free(P(ptr), N(bytes), device, P(stream))

    def stats(self, device=0):
        text = ctypes.create_string_buffer(4096)
        assert self.stats_json(device, text, N(4096)) == len(text.value)
        return json.loads(text.value)

    def raised_by(self, function):
        """What it raises. Who is told calls the library: no lock of it may be held."""
        told = []

        @ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_char_p)
        def tell(function, file, line, text):
            assert function == b"gmlake_torch" and b"gmlake_pluggable.c" in file and line
            self.stats_json(0, None, N(0))
            self.alloc(0)
            told.append(text.decode())

        self.set_raise(tell)
        function()
        self.set_raise(None)
        return "".join(told)


# ---- Cases of torch ----


def memory(torch):
    assert not torch.alloc(0) and fake.calls() == 0  # nothing is opened for nothing
    a = torch.alloc(3 * MIB + 1)
    assert a and a % 512 == 0
    assert fake.given("cuCtxGetCurrent") is None  # there was none, and is none
    context = fake.make_current()
    fake.fill(a, 7, 3 * MIB // 4)
    torch.give(a, 3 * MIB + 1)
    assert torch.alloc(3 * MIB + 1) == a  # its own stream: at once
    assert fake.word_at(a) == fake.word_at(a + 3 * MIB - 4) == 7
    assert fake.given("cuCtxGetCurrent") == context
    torch.give(None, 0)
    stats = torch.stats()
    assert stats["allocation_count"] == 2 and stats["free_count"] == 1


def pass_between_streams(torch):
    """Memory whose work does not end is freed on one stream and asked for on another."""
    fake.make_current()
    one, other = fake.new_stream(), fake.new_stream()
    a = torch.alloc(4 * MIB, one)
    fake.hold(one)
    torch.give(a, 4 * MIB, one)
    assert torch.alloc(4 * MIB, other)
    return torch.stats()["stream_wait_count"], torch.stats()["reserved_bytes"] // MIB


def grow(torch):
    assert pass_between_streams(torch) == (0, 8)


def wait(torch):
    assert pass_between_streams(torch) == (1, 4)


def record_stream(torch):
    fake.make_current()
    side = fake.new_stream()
    torch.record_stream(None, P(side))
    a = torch.alloc(4 * MIB)
    torch.record_stream(P(a), P(side))
    fake.hold(side)
    torch.give(a, 4 * MIB)
    b = torch.alloc(4 * MIB)
    assert b and b != a and torch.stats()["pending_bytes"] == 4 * MIB
    fake.cu("cuStreamSynchronize", P(side))
    torch.record_stream(P(b), P(side))  # names the stream: what is recorded there is asked about
    assert torch.alloc(4 * MIB) == a


def empty_cache(torch):
    def held():
        torch.empty_cache()
        return torch.stats()["reserved_bytes"] // MIB

    torch.empty_cache()  # there is no lake yet
    a, b = torch.alloc(4 * MIB), torch.alloc(4 * MIB)
    torch.give(a, 4 * MIB)
    assert torch.stats()["reserved_bytes"] == 8 * MIB and held() == 4
    torch.give(b, 4 * MIB)
    assert held() == 0


def empty_cache_fails(torch):
    """The first device's memory cannot be returned, which is said; the second's is."""
    a, b = torch.alloc(4 * MIB), torch.alloc(4 * MIB, device=1)
    torch.give(a, 4 * MIB)
    torch.give(b, 4 * MIB, device=1)
    fake.fail("cuMemUnmap", 1)
    torch.empty_cache()
    assert torch.stats()["reserved_bytes"] > 0 and torch.stats(1)["reserved_bytes"] == 0


def untold(torch, forget=lambda stream: None):
    """External streams come and go with work still to do, and their values come back as others.
    Not told, the lake notices."""
    fake.make_current()
    former = fake.new_stream()
    torch.forget_stream(P(former))  # there is no lake yet
    assert torch.mark_stream(0, P(former), 1) and torch.mark_stream(-1, P(former), 1)
    reused = 0
    for _ in range(60):
        former = fake.new_stream()
        a = torch.alloc(MIB, former)
        for _ in range(20):
            fake.fill(a, 1, MIB // 4, former)
        torch.give(a, MIB, former)
        forget(P(former))
        fake.destroy_stream(former)
        following = fake.new_stream()
        reused += following == former
        b = torch.alloc(MIB, following)
        fake.fill(b, 2, MIB // 4, following)
        assert fake.word_at(b) == 2
        torch.give(b, MIB, following)
        forget(P(following))
        fake.destroy_stream(following)
    assert reused
    fake.synchronize()
    torch.empty_cache()
    assert torch.stats()["reserved_bytes"] == 0


def told(torch):
    """Told, it needs not ask."""
    torch.streams_stay()
    untold(torch, torch.forget_stream)


def events(torch):
    """Those that two small blocks need, each freed on a stream of its own."""
    fake.make_current()
    streams = fake.new_stream(), fake.new_stream()
    blocks = [torch.alloc(4096, stream) for stream in streams]
    for block, stream in zip(blocks, streams):
        torch.give(block, 4096, stream)
    return torch.stats()["event_count"]


def streams_end(torch):
    assert events(torch) == 2


def streams_stay(torch):
    torch.streams_stay()
    assert events(torch) == 0


def fork(torch):
    """A DataLoader's worker: a child of fork that lets go of what it inherited, and ends."""
    a = torch.alloc(4 * MIB)
    child = os.fork()
    if not child:
        torch.give(a, 4 * MIB)
        torch.forget_stream(P(16))
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not torch.mark_stream(0, None, 1) and not torch.mark_stream(0, None, 0)
    torch.give(a, 4 * MIB)


def stats(torch):
    whole = ctypes.create_string_buffer(4096)
    assert torch.stats_json(0, whole, N(4096)) == -1 and not whole.value
    assert torch.stats_json(-1, None, N(0)) == -1 == torch.stats_json(64, None, N(0))
    assert torch.reset_peaks(0) == -1
    a = torch.alloc(3 * MIB)
    length = torch.stats_json(0, whole, N(4096))
    assert length == len(whole.value) == torch.stats_json(0, None, N(0))
    found = json.loads(whole.value)
    assert found["utilization"] == 0.75 and found["active_bytes_peak"] == 3 * MIB
    assert found["driver_call_count"] and found["driver_ns"]
    for size in range(1, length + 2):
        part = ctypes.create_string_buffer(b"#" * 4095)
        assert torch.stats_json(0, part, N(size)) == length
        assert part.value == whole.value[: size - 1] and part[size] == b"#"
    torch.give(a, 3 * MIB)
    assert torch.stats()["active_bytes_peak"] == 3 * MIB
    assert torch.reset_peaks(0) == 0 and torch.stats()["active_bytes_peak"] == 0


def devices(torch):
    """Two of three, which may reach each other's memory."""
    a, b = torch.alloc(3 * MIB), torch.alloc(5 * MIB, device=1)
    assert a and b and not torch.alloc(MIB, device=3)
    assert torch.stats()["active_bytes"] == 3 * MIB and torch.stats(1)["active_bytes"] == 5 * MIB
    assert torch.stats_json(2, None, N(0)) == -1
    assert [fake.can_write(a, i) for i in range(3)] == [True, True, False]
    assert fake.can_write(b, 0) and fake.can_write(b, 1)
    torch.record_stream(P(b), P(1))  # finds the second lake
    torch.give(b, 5 * MIB, device=1)
    torch.give(a, 3 * MIB)
    torch.empty_cache()
    assert torch.stats()["reserved_bytes"] == 0


def limit(torch):
    """8 MiB, in chunks of 4."""
    a = torch.alloc(5 * MIB)
    assert a and torch.stats()["reserved_bytes"] == 8 * MIB and torch.stats()["chunk_count"] == 2
    assert not torch.alloc(4 * MIB)  # torch raises by itself
    text = torch.raised_by(lambda: torch.alloc(4 * MIB))
    assert text.startswith("CUDA out of memory. Tried to allocate 4.00 MiB on device 0"), text
    assert "holds 8.00 MiB, 5.00 live, 3.00 free" in text and "limit 8.00" in text, text
    assert torch.raised_by(lambda: torch.alloc((1 << 64) - 6))
    assert torch.raised_by(lambda: torch.alloc(MIB, device=-1))
    assert not torch.raised_by(lambda: torch.alloc(MIB)) and torch.stats()["live_count"] == 2
    assert "use gmlake_torch" in torch.raised_by(torch.refuse_capture)
    assert not torch.alloc(4 * MIB)
    assert torch.stats()["oom_count"] == 4


def raise_text(torch):
    """By a function that takes a text alone. Without one it cannot be raised, but is told."""
    told = []
    tell = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(told.append)
    torch.set_raise_text(tell)
    assert not torch.alloc(9 * MIB) and told[0].startswith(b"CUDA out of memory. Tried")
    torch.set_raise_text(None)
    assert not torch.alloc(10 * MIB) and len(told) == 1


def refused(torch):
    """The environment cannot be read, or there is no such device."""
    assert not torch.alloc(MIB) and torch.stats_json(0, None, N(0)) == -1
    for _ in range(2):
        assert torch.raised_by(lambda: torch.alloc(MIB))


def misuse(torch):
    """Said, and nothing else happens."""
    a = torch.alloc(MIB)
    torch.give(a + 512, 512)
    torch.record_stream(P(a + 512), P(1))
    torch.give(a, MIB, device=1)  # that device has no lake
    torch.give(a, MIB)
    torch.give(a, MIB)
    torch.refuse_capture()
    assert torch.stats()["free_count"] == 1


def threads(torch):
    """They make one lake."""
    blocks = []
    all = [threading.Thread(target=lambda: blocks.append(torch.alloc(MIB))) for _ in range(8)]
    for thread in all:
        thread.start()
    for thread in all:
        thread.join()
    assert len({*blocks} - {None}) == torch.stats()["live_count"] == 8
    assert fake.census()["retains"] == 1


# ---- gmlake_pool, where torch is not ----


class Torch(types.ModuleType):
    """As much of it as gmlake_pool touches."""

    current = None

    def __init__(self, directory):
        super().__init__("torch")
        self.__file__ = directory + "/__init__.py"
        self.device = lambda name: types.SimpleNamespace(index=int(name.split(":")[1]))
        make, change = self.make, lambda allocator: setattr(self, "current", allocator)
        space = types.SimpleNamespace(CUDAPluggableAllocator=make, change_current_allocator=change)
        self.cuda = types.SimpleNamespace(current_device=lambda: 0, memory=space)

    def make(self, path, malloc_name, free_name):
        assert (malloc_name, free_name) == (PREFIX + "malloc", PREFIX + "free")
        return self

    def allocator(self):
        """What sets hooks: by address, as torch has it."""
        self.hooks = hooks = {}
        return type("", (), {"__getattr__": lambda _, name: lambda to: hooks.update({name: to})})()


def run_script(torch):
    """By python3 -m gmlake_pool: the lakes are torch's allocator before the script begins."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        print("import sys, torch; torch.seen = torch.current, *sys.argv", file=script, flush=True)
        sys.argv[:] = ["gmlake_pool", script.name, "argument"]
        runpy.run_module("gmlake_pool", run_name="__main__")
        assert torch.current and torch.seen == (torch.current, script.name, "argument")


def run_out(library, torch, raiser):
    """What a real function throws, that of the stub notes; "": standard error has it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_script(torch)
    assert not library.alloc(1 << 50)
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == ("c10" not in raiser) and all(C10 in text for text in texts), texts
    assert all(("does not raise" in text) == (not raiser) for text in texts), texts
    if raiser:
        raised = ctypes.CDLL(os.path.abspath(raiser))
        raised.text.restype = ctypes.c_char_p
        assert raised.text().startswith(b"CUDA out of memory. Tried to allocate"), raised.text()
        ctypes.CFUNCTYPE(None)(torch.hooks["set_begin_allocate_to_pool"])()
        assert b"use gmlake_torch" in raised.text()


def pool(library):
    torch = sys.modules["torch"] = Torch(os.path.abspath(os.environ["FAKE_TORCH"]))
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../examples/torch_pool"))
    import gmlake_pool

    assert gmlake_pool.load(library.library._name) is gmlake_pool.load()
    assert gmlake_pool.stats() is None
    run_out(library, torch, os.environ["FAKE_RAISER"])
    block = library.alloc(3 * MIB)
    assert block and gmlake_pool.stats("cuda:0")["active_bytes"] == 3 * MIB
    ctypes.CFUNCTYPE(None, P, P)(torch.hooks["set_record_stream_fn"])(block, 1)
    library.give(block, 3 * MIB)
    gmlake_pool.mark("no recording")
    gmlake_pool.flush()
    gmlake_pool.forget_stream(types.SimpleNamespace(cuda_stream=1))
    ctypes.CFUNCTYPE(None)(torch.hooks["set_reset_fn"])()
    gmlake_pool.reset_peaks(0)
    assert gmlake_pool.stats(0)["reserved_bytes_peak"] == 0, gmlake_pool.stats(0)


# ---- Cases of CuPy, which passes the stream first ----


def cupy(library):
    fake.make_current()
    one, other = fake.new_stream(), fake.new_stream()
    used, held = N(), N()
    alloc = lambda bytes, stream=None: library.malloc(P(stream), N(bytes), 0)  # noqa: E731
    library.set_limit(-1, N(1)), library.set_limit(64, N(1))  # no such devices
    assert library.usage(63, ctypes.byref(used), ctypes.byref(held)) == -1
    assert not alloc(0)
    a = alloc(4 * MIB, one)
    assert not library.usage(0, ctypes.byref(used), ctypes.byref(held))
    assert used.value == held.value == 4 * MIB
    fake.hold(one)
    library.free(P(one), P(a), 0)
    b = alloc(4 * MIB, other)
    assert b and b != a  # that stream has work to do
    assert alloc(4 * MIB, one) == a
    assert not alloc(2048 * MIB)
    # What calls answer that gmlake_cupy.py does not look at.
    assert library.pool_close(5, None) == 0
    pool = library.pool_open(0)
    assert pool and not library.capture_begin(0, P(one), P(pool))
    assert library.pool_close(0, P(pool)) != 0
    assert not library.capture_end(0, P(one)) and not library.pool_close(0, P(pool))


def cupy_calls(library):
    """A lake does not ask for streams that stay, also where it asks for others."""
    owner_function = ctypes.CFUNCTYPE(None, P)
    keep, let_go = owner_function(lambda owner: None), owner_function(fake.destroy_stream)
    fake.make_current()

    def calls_of_lane(stays):
        stream = fake.new_stream()
        lane = P(library.lane_open(P(stream), P(stream), keep, let_go, stays))
        alloc = lambda bytes: P(library.lane_malloc(lane, N(bytes), 0))  # noqa: E731
        kept, before = alloc(MIB), fake.calls()
        for _ in range(100):
            library.lane_free(lane, alloc(MIB // 2), 0)
        count = fake.calls() - before
        library.lane_free(lane, kept, 0)
        library.lane_close(lane)
        return count

    calls_of_lane(0)  # creates the lake and its first chunk
    assert calls_of_lane(1) == 0
    assert calls_of_lane(0) >= 200
    assert calls_of_lane(1) == 0


# ---- The rows ----


class Rows:
    def __init__(self, build, folder):
        self.build, self.folder, self.failed, self.err = build, folder, 0, ""

    def run(self, case, variables="", said="", library="gmlake_pluggable.so", path=""):
        """Runs the case with the variables, of which those without FAKE_CUDA_ before them are the
        library's. `said` is a pattern that standard error has; "": it is silent; None: whatever."""
        environment = dict(os.environ, LD_LIBRARY_PATH=f"{self.build}/fake", FAKE_CUDA_GIB="1")
        if path:
            environment["LD_LIBRARY_PATH"] = f"{self.folder}/{path}:{self.build}/fake"
        for pair in variables.split():
            name, _, value = pair.partition("=")
            own = name.startswith("FAKE_") or name == "RANK"
            environment[name if own else "GMLAKE_TORCH_" + name] = value
        command = [sys.executable, "-B", os.path.abspath(__file__), "--case", case.__name__]
        done = subprocess.run([*command, f"{self.build}/{library}"], env=environment,
                              cwd=self.folder, capture_output=True, text=True)
        self.name, self.err = f"{case.__name__} {variables}", done.stderr
        self.expect("passes", done.returncode == 0)
        if said == "":
            self.expect("is silent", not self.err)
        elif said:
            self.expect(f"says {said}", re.search(said, self.err))

    def expect(self, what, is_so):
        if not is_so:
            self.failed += 1
            print(f"FAILED: {self.name}: {what}\n{self.err[-2000:]}", file=sys.stderr)

    def read(self, name):
        with open(os.path.join(self.folder, name)) as file:
            return file.read()

    def recorded(self, name, *expected):
        """It holds those records, without times and what completed."""
        lines = self.read(name + ".gmtrace").splitlines()
        found = [line.rpartition(" ")[0] for line in lines if line[:2] in ("a ", "u ", "f ", "m ")]
        self.expect(f"{name} has {expected}, not {found}", found == list(expected))

    def calls(self, *kinds):
        """How many calls of the driver there were, of each kind, by calls.tsv."""
        rows = [line.split("\t") for line in self.read("calls.tsv").splitlines()[1:]]
        self.expect("each call took time", all(float(row[3]) > 0 for row in rows))
        return [sum(int(row[2]) for row in rows if row[1] == kind) for kind in kinds]


TWICE = "a 0 3145729 0", "f 0 0", "a 1 3145729 0"
GROWN = "a 0 4194304 1", "f 0 1", "a 1 4194304 2"


def streams_and_errors(rows):
    for case in memory, grow, record_stream, empty_cache, stats, threads:
        rows.run(case)
    for case in untold, told, streams_end, streams_stay:
        rows.run(case, "FAKE_CUDA_SEED=1")
    with open(f"{rows.build}/fake/libcuda.so.1", "rb") as file:
        driver = file.read()
    os.mkdir(f"{rows.folder}/old")  # a driver that does not export the function
    with open(f"{rows.folder}/old/libcuda.so.1", "wb") as file:
        file.write(driver.replace(b"cuStreamGetId", b"cuStreamGotId"))
    rows.run(memory, "FAKE_CUDA_SEED=1", "older than CUDA 12 and gives streams no ids", path="old")
    rows.run(empty_cache_fails, "FAKE_CUDA_DEVICES=2",
             r"gmlake_torch: device 0: gmlake_trim: GMLAKE_ERROR_.*driver's code 1\)")
    rows.run(raise_text, "LIMIT_BYTES=8388608",
             r"gmlake_torch: CUDA out of memory. Tried to allocate 10.00 MiB")
    rows.run(misuse, "", "(?s)(gmlake_torch: [^\n]*(UNKNOWN_POINTER|DOUBLE_FREE|use gmlake_torch "
             "or torch)[^\n]*\n){5}$")


def variables(rows):
    rows.run(wait, "CROSS_STREAM=wait")
    rows.run(grow, "CROSS_STREAM=grow")
    rows.run(grow, "LIMIT_BYTES= CROSS_STREAM= PEERS=")
    rows.run(devices, "FAKE_CUDA_DEVICES=3 PEERS=0,1", None)
    rows.run(limit, "LIMIT_BYTES=8388608 CHUNK_BYTES=4194304", None)
    for pair in ("LIMIT_BYTES=8G LIMIT_BYTES=-1 LIMIT_BYTES=99999999999999999999 CHUNK_BYTES=0x10 "
                 "DRIVER_FREE_BYTES=1.5 CROSS_STREAM=soon PEERS=0, PEERS=0,x PEERS=64 PEERS=-1 "
                 "RECORD_SHARE=x RECORD_SHARE=1000001").split():
        said = "GMLAKE_TORCH_{} cannot be read: {}".format(*pair.split("="))
        rows.run(refused, pair, said)
    rows.run(refused, "CHUNK_BYTES=1000", "gmlake_create: GMLAKE_ERROR_INVALID_ARGUMENT")
    rows.run(refused, "FAKE_CUDA_DEVICES=-1", "device 0: gmlake_create: GMLAKE_ERROR_NO_DEVICE")


def recordings(rows):
    rows.run(memory, "RECORD=memory")
    rows.recorded("memory.0", *TWICE)
    rows.run(grow, "RECORD=grow")
    rows.recorded("grow.0", *GROWN)
    rows.run(record_stream, "RECORD=uses")
    rows.recorded("uses.0", "a 0 4194304 0", "u 0 1", "f 0 0", "a 1 4194304 0", "u 1 1",
                  "a 2 4194304 0")
    rows.expect("nothing is left out", "left out" not in rows.read("uses.0.gmtrace"))
    rows.run(devices, "FAKE_CUDA_DEVICES=3 PEERS=0,1 RECORD=devices", None)
    rows.recorded("devices.0", "a 0 3145728 0", "f 0 0")
    rows.recorded("devices.1", "a 0 5242880 0", "u 0 0", "f 0 0")
    # What is there already stays: the second run's recording is named after its process.
    again = r"memory\.0\.gmtrace is there already: recording into (memory\.0\.\S*)\.gmtrace"
    rows.run(grow, "RECORD=memory", again)
    rows.recorded("memory.0", *TWICE)
    rows.recorded(re.search(again, rows.err).group(1), *GROWN)
    rows.run(memory, "RANK=3 RECORD=memory")
    rows.recorded("memory.rank3.0", *TWICE)
    rows.run(fork, "RECORD=fork")
    rows.recorded("fork.0", "a 0 4194304 0", "f 0 0")
    rows.run(refused, "CHUNK_BYTES=1000 RECORD=none", None)
    rows.run(refused, "RECORD=none/run",
             "GMLAKE_TORCH_RECORD cannot be written: none/run: No such file or directory")
    if os.path.exists("/dev/full"):
        os.symlink("/dev/full", os.path.join(rows.folder, "full.0.gmtrace"))
        rows.run(memory, "RECORD=full", "the recording is not complete: No space left on device")


def counts_and_profiles(rows):
    rows.run(memory, "CALLS=calls.tsv")
    rows.expect("two chunks", rows.calls("create", "map", "event_record") == [2, 2, 0])
    rows.run(grow, "CALLS=calls.tsv")
    alone = [line.split("\t")[:3] for line in rows.read("calls.tsv").splitlines()]
    rows.expect("events", rows.calls("event_record")[0] > 0)
    rows.run(grow, "CALLS=calls.tsv RECORD=counted")
    both = [line.split("\t")[:3] for line in rows.read("calls.tsv").splitlines()]
    rows.expect("the same with a recording", alone == both)
    rows.run(memory, "CALLS=none/calls", "gmlake_torch: none/calls cannot be written")
    rows.run(threads, "PROFILE=large")  # learns
    learnt = rows.read("large.0.profile")
    rows.expect("a profile", re.match(r"gmlake profile 2 peak \d+\n", learnt))
    rows.run(memory, "PROFILE=large CALLS=calls.tsv")
    rows.expect("chunks ahead", rows.calls("map")[0] > 2)
    rows.expect("the profile stays", rows.read("large.0.profile") == learnt)
    with open(os.path.join(rows.folder, "bad.0.profile"), "w") as file:
        file.write("nonsense\n")
    rows.run(memory, "PROFILE=bad",
             "gmlake_torch: device 0: bad.0.profile: GMLAKE_ERROR_INVALID_ARGUMENT")
    rows.run(memory, "PROFILE=none/p", "none/p.0.profile cannot be written")


C10 = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
STUBS = {  # libraries that have, or lack, the functions by which gmlake_pool raises
    "torch/lib/libc10.so": C10 + "(const char *function, const char *file, unsigned line, ",
    "other/lib/libc10.so": "nothing(",
    "std/libstdc++.so.6": "_ZSt21__throw_runtime_errorPKc(",
    "none/libstdc++.so.6": "nothing(",
}
STUB = """#include <string.h>
static char raised[1024];
const char *text(void) { return raised; }
void %sconst char *text) { strncpy(raised, text, sizeof raised - 1); }
"""


def pools(rows):
    for path, function in STUBS.items():
        path = os.path.join(rows.folder, path)
        os.makedirs(os.path.dirname(path))
        command = [os.environ.get("CC", "cc"), *"-w -shared -fPIC -xc - -o".split(), path]
        subprocess.run(command, input=STUB % function, text=True, check=True)
    rows.run(pool, "FAKE_TORCH=torch FAKE_RAISER=torch/lib/libc10.so", None, path="none")
    rows.run(pool, "FAKE_TORCH=other FAKE_RAISER=std/libstdc++.so.6", None, path="std")
    rows.run(pool, "FAKE_TORCH=other FAKE_RAISER=", "gmlake_torch: CUDA out of memory. Tried to "
             "allocate", path="none")


def of_cupy(rows):
    rows.run(cupy, library="gmlake_cupy.so", said=None)
    rows.run(cupy_calls, "FAKE_CUDA_SEED=1", library="gmlake_cupy.so")


def main():
    folder = tempfile.mkdtemp()
    rows = Rows(os.path.abspath(sys.argv[1]), folder)
    for part in streams_and_errors, variables, recordings, counts_and_profiles, pools, of_cupy:
        part(rows)
    shutil.rmtree(folder)
    return rows.failed != 0


if __name__ == "__main__":
    if sys.argv[1] != "--case":
        sys.exit(main())
    import fake_driver as fake

    signal.alarm(int(os.environ.get("TEST_TIMEOUT") or 3600) // 4)  # what hangs is ended
    name, path = sys.argv[2:]
    globals()[name](Library(path, "gmlake_cupy_" if name.startswith("cupy") else PREFIX))
