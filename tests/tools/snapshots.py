"""usage: snapshots.py FOLDER TRACE
Writes files for test_predict.sh into the folder: snapshots of torch with known answers, one of the
program of a trace of bench/traces, and some that are not to be read."""
import gzip
import json
import os
import pickle
import struct
import sys

if len(sys.argv) != 3:
    sys.exit(__doc__)
OUT = sys.argv[1]
MIB = 1 << 20


def write(name, data):
    with open(os.path.join(OUT, name), "wb") as file:
        file.write(data)


class Program:
    """What a program does on a device, as torch would record it."""

    def __init__(self):
        self.entries, self.segments, self.us = [], [], 0

    def entry(self, action, addr, size, stream=0, **more):
        self.us += 10
        self.entries.append(
            {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": self.us,
             "frames": [], **more}
        )

    def alloc(self, addr, size, stream=0, **more):
        self.entry("alloc", addr, size, stream, **more)

    def free(self, addr, size, stream=0):
        self.entry("free_requested", addr, size, stream)
        self.entry("free_completed", addr, size, stream)

    def segment(self, address, size, blocks=(), pool=(0, 0), stream=0, is_expandable=False):
        """blocks: (bytes, asked, state)"""
        rest = size - sum(block[0] for block in blocks)
        blocks = [*blocks, (rest, 0, "inactive")] if rest else blocks
        keys = ("size", "requested_size", "state")
        self.segments.append(
            {"device": 0, "address": address, "total_size": size, "stream": stream,
             "segment_type": "large", "segment_pool_id": pool, "is_expandable": is_expandable,
             "frames": [], "blocks": [dict(zip(keys, block), frames=[]) for block in blocks]}
        )

    def snapshot(self, **more):
        return {"segments": self.segments, "device_traces": [self.entries], **more}

    def write(self, name, **more):
        write(name, pickle.dumps(self.snapshot(**more), protocol=4))


def small():
    p = Program()
    p.entry("segment_alloc", 1 << 30, 20 * MIB)
    frames = [
        {"name": "empty", "filename": "/x/torch/functional.py", "line": 1},
        {"name": "forward", "filename": "/home/me/my model.py", "line": 42},
    ]
    p.alloc(1 << 30, 3 * MIB, frames=frames)
    p.entry("segment_alloc", 1 << 31, 2 * MIB)
    p.alloc(1 << 31, 1)
    p.free(1 << 31, 1)
    p.segment(1 << 30, 20 * MIB, [(3 * MIB, 3 * MIB, "active_allocated")])
    p.segment(1 << 31, 2 * MIB)
    p.write("small.pickle")
    with gzip.open(os.path.join(OUT, "small.pickle.gz"), "wb") as file:
        file.write(pickle.dumps(p.snapshot(), protocol=2))
    other = p.entries[:2]
    write("two.pickle", pickle.dumps({"segments": [], "device_traces": [other, p.entries, []]}))


def before():
    """Of 100 there is nothing but its free, of 200 nothing at all; 300 is freed twice, and there at
    the end; once the clock goes back."""
    p = Program()
    p.free(100, 4 * MIB)
    p.alloc(100, 512)
    p.alloc(300, 512)
    p.free(300, 512)
    p.entry("free_completed", 300, 512)
    p.alloc(100, 1024)
    p.segment(200, 20 * MIB, [(8 * MIB, 7 * MIB, "active_pending_free")], stream=7)
    p.segment(300, 512, [(512, 512, "active_allocated")])
    p.entries[3]["time_us"] = 0
    p.write("before.pickle")


def late():
    p = Program()
    p.alloc(100, 4 * MIB)
    p.entry("free_requested", 100, 4 * MIB)
    p.alloc(200, 4 * MIB, 5)
    p.entry("free_completed", 100, 4 * MIB)
    p.alloc(300, 8 * MIB)
    p.free(300, 8 * MIB)
    p.alloc(400, 2 * MIB)
    p.entry("free_requested", 400, 2 * MIB)
    p.alloc(500, 512)
    p.entry("free_completed", 400, 2 * MIB)
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64\ud800"}
    p.write("late.pickle", allocator_settings=settings)


def pools():
    p = Program()
    p.alloc(4096, 4 * MIB)
    p.alloc(1 << 30, 4 * MIB)
    p.alloc((1 << 30) + 4 * MIB, 4 * MIB)
    p.segment(4096, 20 * MIB, [(4 * MIB, 4 * MIB, "active_allocated")])
    p.alloc(1 << 29, 4 * MIB)
    p.segment(1 << 30, 20 * MIB, [(4 * MIB, 4 * MIB, "active_allocated")] * 2, (0, 3))
    p.segment(1 << 29, 20 * MIB, [(4 * MIB, 4 * MIB, "active_allocated")], (0, 4))
    p.write("pools.pickle")


def refused(name, asked):
    """Three blocks of 80 MiB come and go, then three of 48 lie where they were."""
    p = Program()
    for i in range(3):
        p.entry("segment_alloc", i << 30, 80 * MIB)
        p.alloc(i << 30, 80 * MIB)
    for i in range(3):
        p.free(i << 30, 80 * MIB)
    for i in range(3):
        p.alloc(i << 30, 48 * MIB)
        p.segment(i << 30, 80 * MIB, [(48 * MIB, 48 * MIB, "active_allocated")])
    p.entry("oom", 0, asked, device_free=MIB)
    del p.entries[-1]["addr"]
    p.write(name)


def expandable(name, by, action):
    p = Program()
    p.entry(action, 1 << 30, 20 * MIB)
    p.alloc(1 << 30, 2 * MIB)
    p.segment(1 << 30, 20 * MIB, [(2 * MIB, 2 * MIB, "active_allocated")], is_expandable=by)
    p.write(name)


def replayed(path):
    """The same program as a recorded trace, of one stream."""
    p, blocks, next_address = Program(), {}, 1 << 40
    with gzip.open(path, "rt") as file:
        for words in map(str.split, file):
            if words[:1] == ["a"] and int(words[2]):
                blocks[words[1]] = (next_address, int(words[2]))
                p.alloc(*blocks[words[1]])
                next_address += int(words[2]) + 512
            elif words[:1] == ["f"] and words[1] in blocks:
                p.free(*blocks.pop(words[1]))
    for address, size in blocks.values():
        p.segment(address, size, [(size, size, "active_allocated")])
    p.write("replayed.pickle")


def wrong():
    text = "touch " + os.path.join(OUT, "executed")
    name = struct.pack("<I", len(text)) + text.encode()
    write("system.bad", b"\x80\x02cposix\nsystem\nX" + name + b"\x85R.")
    write("stack.bad", b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.")
    write("inst.bad", b"(S'1'\nios\nsystem\n.")
    write("extension.bad", b"\x80\x02\x82\x01.")
    write("persistent.bad", b"\x80\x02K\x01Q.")
    write("build.bad", b"\x80\x02}}b.")
    write("cut.bad", pickle.dumps({"segments": [], "device_traces": [[]]})[:-9])
    write("empty.bad", b"")
    write("text.bad", b"hello\n")
    write("gzip.bad", gzip.compress(b"hello")[:-6])
    write("deflate.bad", gzip.compress(b"hello")[:10] + bytes(9))
    write("json.bad", b'{"Total": ')
    write("field.bad", b"Thread,Time,Action,Pointer,Size,Stream\n" + b"1" * (1 << 18))
    write("rows.bad", b"Thread,Time,Action,Pointer,Size,Stream\n1,2,allocate,0x10,many,0\n")

    def bad(name, value):
        write(name + ".bad", pickle.dumps(value))

    entry = {"action": "alloc", "addr": 1, "size": 1, "stream": 0, "time_us": 1}
    bad("list", [1])
    bad("none", {"segments": []})
    bad("no history", {"segments": [], "device_traces": [[], []]})
    bad("trace", {"segments": [], "device_traces": [7]})
    for key, value in (("action", 5), ("addr", "x"), ("size", -1), ("size", 1 << 70),
                       ("size", True), ("stream", None), ("time_us", 1.5)):
        one = dict(entry, **{key: value})
        bad(f"{key} {str(value)[:5]}", {"segments": [], "device_traces": [[one]]})
    bad("entry", {"segments": [], "device_traces": [["x"]]})
    bad("segment", {"segments": ["x"], "device_traces": [[entry]]})
    segment = {"address": 1, "total_size": 1}
    bad("blocks", {"segments": [segment], "device_traces": [[entry]]})
    segment["blocks"] = [{"address": [1], "size": 1, "state": "active_allocated"}]
    bad("address", {"segments": [segment], "device_traces": [[entry]]})


def others():
    rows = ["Thread,Time,Action,Pointer,Size,Stream"]
    rows += ["1,10:00:00:000000,allocate,0x100,4194304,0", "1,10:00:01:000000,free,0x100,4194304,0"]
    rows += ["1,10:00:01.000007,allocate,0x200,8388608,0x2", "1,10:00:01.000008,allocate,0x0,0,0x2"]
    rows += ["1,10:00:02.000000,allocate failure,(nil),99,0x2", "1,1634567890.5,free,0x0,0,0x2"]
    rows += ["1,10:00:00.500000,allocate,0x300,512,0", "1,1634567891.5,free,0x300,512,0"]
    write("rmm.csv", "\n".join(rows).encode())
    night = [rows[0], "1,23:59:59:999990,allocate,0x100,512,0"]
    night += ["1,00:00:00:000010,free,0x100,512,0"]
    write("night.csv", "\n".join(night).encode())
    kept = {"Offset": 0, "Type": "BUFFER", "Size": 4 * MIB, "Name": "my mesh"}
    hole = {"Offset": 4 * MIB, "Type": "FREE", "Size": 60 * MIB}
    block = {"TotalBytes": 64 * MIB, "Suballocations": [kept, hole]}
    image = {"Type": "IMAGE_OPTIMAL", "Size": MIB}
    pool = {"Blocks": {"0": block}, "DedicatedAllocations": [image]}
    write("vma.json", json.dumps({"General": {}, "DefaultPools": {"Type 0": pool}}).encode())


small(), before(), late(), pools(), wrong(), others()
refused("fragments.pickle", 64 * MIB)
refused("too little.pickle", 300 * MIB)
expandable("expandable.pickle", True, "segment_map")
expandable("of a lake.pickle", True, "segment_alloc")
replayed(sys.argv[2])
