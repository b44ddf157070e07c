"""Reads what an allocator did from a file, for predict.py. It needs no torch, and runs nothing that
a file has inside. A file is one of

- a snapshot of torch's memory history: a pickle of torch.cuda.memory._dump_snapshot, torch 2.1 on;
- a log of RMM's logging_resource_adaptor: CSV;
- a picture of VMA, by vmaBuildStatsString with detailedMap: JSON. It has no history.

Each may be gzipped.
"""
import bisect
import csv
import gzip
import io
import json
import os
import pickle
import re
import zlib

MOST = 1 << 60  # bytes of one block: more is a mistake
TAKEN = "give a snapshot of torch, a log of RMM or a picture of VMA"
ACTIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")
REFUSED = ("oom", "allocate failure")
MAPS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


class Refused(Exception):
    """The file is not what it should be: why, in words."""


class History:
    """Allocations, frees and refusals in order, those that were there before first."""

    def __init__(self, kind):
        self.kind = kind  # torch, rmm or vma
        self.device = 0
        self.events = []  # ("a", id, bytes, stream, us, label), ("f", id, stream, us)
        self.refused = []  # of each request that failed: (index into events, bytes, stream)
        self.recorded = None  # the most bytes that the allocator held while it recorded
        self.recorded_by = None
        self.limit = None  # bytes that it could have had
        self.notes = []  # what the file does not tell, and what was made of it
        self._streams, self._live, self._before = {}, {}, []
        self._freed, self._odd = set(), 0

    def stream(self, value):
        """A small number for a stream. torch's default stream is 0."""
        if not self._streams and value != 0:
            self._streams[0] = 0
        return self._streams.setdefault(value, len(self._streams))

    def stream_count(self):
        return len({event[3] if event[0] == "a" else event[2] for event in self.events})

    def add(self, address, size, stream, us, label=None):
        if address in self._live:  # its free is not in the file
            self._odd += 1
            self.events.append(("f", address, stream, us))
        self._live[address] = size
        self.events.append(("a", address, size, stream, us, label))

    def free(self, address, size, stream, us):
        if self._live.pop(address, None) is None:
            if address in self._freed:
                self._odd += 1
                return
            self._before.append((address, size, stream))
        self._freed.add(address)
        self.events.append(("f", address, stream, us))

    def refuse(self, size, stream):
        self.refused.append((len(self.events), size, stream))

    def close(self, at_end=()):
        """at_end: the blocks that the file says are there at the end: (address, bytes, stream)."""
        for address, size, stream in at_end:
            if address not in self._live and address not in self._freed:
                self._before.append((address, size, stream))
        first = [("a", *block, 0, None) for block in sorted(self._before)]
        self.events = first + self.events
        self.refused = [(at + len(first), *rest) for at, *rest in self.refused]
        if not self.events:
            raise Refused(f"it has no allocation; {TAKEN}")
        if first:
            size = size_text(sum(event[2] for event in first))
            self.notes.append(
                f"{len(first):,} blocks, {size}, were there when recording began. They are "
                "allocated first, one after the other: how they lay, and what was cached between "
                "them, is not known"
            )
        if self._odd:
            self.notes.append(f"{self._odd:,} events do not fit those before them: some are lost")


def size_text(count):
    if count < 1 << 20:
        return f"{count} bytes"
    return f"{count / 2**30:.2f} GiB" if count >= 1 << 30 else f"{count / 2**20:.1f} MiB"


def _printable(text):
    return re.sub(r"[^!-~]", "_", str(text))


# ---- torch ----


class _Plain(pickle.Unpickler):
    """Numbers, texts, lists, tuples and dicts. Nothing is imported, so nothing is called."""

    def find_class(self, module, name):
        raise Refused(
            f"it asks for {str(module)[:60]}.{str(name)[:60]}. A snapshot is of numbers, texts, "
            "lists and dicts alone; nothing was run"
        )


def _unpickled(data):
    try:
        return _Plain(io.BytesIO(data)).load()
    except Refused:
        raise
    except MemoryError:
        raise Refused("it needs more memory than there is") from None
    except Exception as error:  # a pickle that is damaged raises anything
        why = " ".join(str(error).split())
        raise Refused(f"it is no pickle, or a damaged one: {why}; {TAKEN}") from None


def _field(entry, key, kind, where, default=None):
    value = entry.get(key, default) if isinstance(entry, dict) else None
    if type(value) is not kind or (kind is int and not -(1 << 63) <= value < 1 << 64):
        names = {int: "number", str: "text", list: "list", dict: "dict"}
        raise Refused(f"{where}: {key} is no {names[kind]}")
    return value


def _bytes(entry, key, where):
    value = _field(entry, key, int, where)
    if not 0 <= value < MOST:
        raise Refused(f"{where}: {key} is no number of bytes")
    return value


def _label(entry):
    """The innermost line of Python outside of torch."""
    frames = entry.get("frames")
    for frame in frames if isinstance(frames, list) else ():
        path = frame.get("filename") if isinstance(frame, dict) else None
        if not isinstance(path, str) or not path.endswith(".py") or "/torch/" in path:
            continue
        return _printable(f"{os.path.basename(path)}:{frame.get('line')}")[-63:]
    return None


class _Segments:
    """The segments of a device at the end."""

    def __init__(self, snapshot, device):
        self.all, self.in_pools, self.is_expandable = [], 0, False
        self.blocks, self._pools = [], []
        for i, segment in enumerate(_field(snapshot, "segments", list, "the snapshot")):
            where = f"segment {i}"
            if _field(segment, "device", int, where, 0) == device:
                self._read(segment, where)
        self.total = sum(size for _, size in self.all)
        self._pools.sort()

    def _read(self, segment, where):
        address = _field(segment, "address", int, where)
        size = _bytes(segment, "total_size", where)
        self.all.append((address, size))
        self.is_expandable |= bool(segment.get("is_expandable"))
        pool = segment.get("segment_pool_id", (0, 0))
        if isinstance(pool, tuple) and any(pool):
            self.in_pools += size
            self._pools.append((address, address + size, str(pool)))
        for j, block in enumerate(_field(segment, "blocks", list, where)):
            self._read_block(segment, block, address, f"{where}, block {j}")
            address += _bytes(block, "size", f"{where}, block {j}")

    def _read_block(self, segment, block, address, where):
        if _field(block, "state", str, where) not in ACTIVE:
            return
        asked = "requested_size" if "requested_size" in block else "size"
        at = _field(block, "address", int, where, address)
        self.blocks.append((at, _bytes(block, asked, where), segment.get("stream", 0)))

    def pool_at(self, address):
        """Memory of a graph's pool serves that pool alone: as a stream of its own would have it."""
        at = bisect.bisect_right(self._pools, (address, 1 << 64)) - 1
        begin, end, pool = self._pools[at] if at >= 0 else (0, 0, None)
        return pool if begin <= address < end else None


def _busiest(snapshot, device):
    """The entries of the device; if none is named, of the one with most."""
    traces = _field(snapshot, "device_traces", list, "the snapshot")
    if not any(traces):
        raise Refused(
            "it has no history, so only a moment. Call torch.cuda.memory._record_memory_history() "
            "before what is to be recorded, and torch.cuda.memory._dump_snapshot(path) after it"
        )
    for i, entries in enumerate(traces):
        if not isinstance(entries, list):
            raise Refused(f"the snapshot: device_traces[{i}] is no list")
    if device is None:
        device = max(range(len(traces)), key=lambda i: len(traces[i]))
    if not 0 <= device < len(traces) or not traces[device]:
        raise Refused(f"it has no history of device {device}")
    return device, traces[device]


class _Torch:
    """Turns the entries of a device into a history."""

    def __init__(self, snapshot, device):
        self.out = History("torch")
        self.out.device, entries = _busiest(snapshot, device)
        self.segments = _Segments(snapshot, self.out.device)
        self.requested = {}  # frees that are not complete: address to index and bytes
        self.late = self.late_bytes = self.late_peak = 0
        self.actions, self.us = {}, 0
        self.held = self.segments.total - sum(
            MAPS[entry["action"]] * _bytes(entry, "size", "a segment")
            for entry in entries
            if isinstance(entry, dict) and entry.get("action") in tuple(MAPS)
        )
        self.peak = self.held
        for i, entry in enumerate(entries):
            self._take(entry, i)
        self._finish(snapshot)

    def _stream(self, entry, address):
        pool = self.segments.pool_at(address) if self.segments.in_pools else None
        stream = entry.get("stream", 0)
        if not isinstance(stream, int):
            raise Refused("the stream of an entry is no number")
        return self.out.stream((stream, pool) if pool else stream)

    def _take(self, entry, i):
        where = f"entry {i}"
        action = _field(entry, "action", str, where)
        self.actions[action] = self.actions.get(action, 0) + 1
        self.us = max(self.us, _field(entry, "time_us", int, where, 0))
        if action in MAPS:
            self.held += MAPS[action] * _bytes(entry, "size", where)
            self.peak = max(self.peak, self.held)
        elif action == "oom":
            free = _bytes(entry, "device_free", where)
            self.out.limit = max(self.out.limit or 0, self.held + free)
            self.out.refuse(_bytes(entry, "size", where), self._stream(entry, 0))
        elif action in ("alloc", "free_requested", "free_completed"):
            address, size = _field(entry, "addr", int, where), _bytes(entry, "size", where)
            self._move(action, address, size, entry, i)

    def _move(self, action, address, size, entry, i):
        stream = self._stream(entry, address)
        if action == "alloc":
            self.out.add(address, size, stream, self.us, _label(entry))
        elif action == "free_requested":
            self.requested[address] = (i, size)
            self.late_bytes += size
        else:
            at, known = self.requested.pop(address, (i - 1, 0))
            self.late_bytes -= known
            self.late += i > at + 1
            self.out.free(address, size, stream, self.us)
        waits = self.late_bytes - (size if action == "free_requested" else 0)
        self.late_peak = max(self.late_peak, waits)

    def _finish(self, snapshot):
        out, segments = self.out, self.segments
        at_end = [
            (at, size, self._stream({"stream": stream}, at)) for at, size, stream in segments.blocks
        ]
        out.close(at_end)
        out.recorded = self.peak
        by = "native"
        if "segment_map" in self.actions or "segment_unmap" in self.actions:
            by = "expandable segments"
        elif segments.is_expandable:
            by = "a lake" if "segment_alloc" in self.actions else "expandable segments"
        out.recorded_by = by
        self._note(snapshot)

    def _note(self, snapshot):
        notes = self.out.notes
        if self.late:
            notes.append(
                f"{self.late:,} frees were of blocks that recorded streams still used, at most "
                f"{size_text(self.late_peak)} at once. Which streams is not told: such a block "
                "counts as live until torch saw that they had finished"
            )
        if self.segments.in_pools:
            notes.append(
                f"{size_text(self.segments.in_pools)} belong to pools of graphs or to MemPools. "
                "Each pool is replayed as a stream of its own"
            )
        settings = snapshot.get("allocator_settings")
        settings = settings.get("PYTORCH_CUDA_ALLOC_CONF") if isinstance(settings, dict) else None
        if isinstance(settings, str) and settings.strip():
            settings = _printable(settings)[:200]
            notes.append(
                f"it was recorded with PYTORCH_CUDA_ALLOC_CONF={settings}; what replays has "
                "no such settings"
            )


# ---- RMM ----


DAY_US = 24 * 3600 * 10**6


def _clock_us(text):
    """HH:MM:SS and microseconds, or seconds. 0: neither."""
    found = re.fullmatch(r"(\d+):(\d+):(\d+)[:.](\d+)", text)
    if found:
        hours, minutes, seconds, rest = found.groups()
        whole = (int(hours[:6]) * 60 + int(minutes[:6])) * 60 + int(seconds[:6])
        return whole * 10**6 + int(rest[:6].ljust(6, "0"))
    found = re.fullmatch(r"(\d{1,12})(?:\.(\d+))?", text)
    return int(found[1]) * 10**6 + int((found[2] or "0")[:6].ljust(6, "0")) if found else 0


def _read_rmm(text):
    out, us, begin, before, days = History("rmm"), 0, None, 0, 0
    for i, row in enumerate(csv.DictReader(io.StringIO(text))):
        where = f"row {i + 1}"
        try:
            action, size = row["Action"].strip(), int(row["Size"])
            pointer, stream = row["Pointer"].strip(), row["Stream"].strip()
            address = 0 if pointer == "(nil)" else int(pointer, 16)
            now = _clock_us(row["Time"].strip())
        except (KeyError, ValueError, TypeError, AttributeError):
            raise Refused(f"{where}: it has no action, pointer, size, time and stream") from None
        if not 0 <= size < MOST or not 0 <= address < 1 << 64:
            raise Refused(f"{where}: a size or pointer is out of range")
        if now < before - DAY_US // 2 and before < DAY_US:  # the time of day has begun again
            days += 1
        before = now
        begin = now - 1 if begin is None else begin  # 0 is no time
        us = max(us, now + days * DAY_US - begin)
        number = out.stream(0 if stream in ("0", "0x0", "default", "(nil)") else stream)
        if action == "allocate" and size:
            out.add(address, size, number, us)
        elif action in ("free", "deallocate") and size:
            out.free(address, size, number, us)
        elif action in REFUSED:
            out.refuse(size, number)
    out.close()
    out.notes.append("what the resource below the log held is not in it")
    return out


# ---- VMA ----


def _read_vma(told):
    out, held = History("vma"), 0
    queue, address = [told], 1
    while queue:
        item = queue.pop()
        if isinstance(item, dict):
            if type(item.get("TotalBytes")) is int and "Suballocations" in item:
                held += item["TotalBytes"]
            dedicated = item.get("DedicatedAllocations")
            for entry in dedicated if isinstance(dedicated, list) else ():
                held += _bytes(entry, "Size", "a dedicated allocation")
        if isinstance(item, dict) and "Size" in item and "Type" in item:
            if item["Type"] != "FREE":
                size = _bytes(item, "Size", "an allocation")
                name = item.get("Name") or item.get("Type")
                out.add(address, size, 0, 0, _printable(name)[:63])
                address += 1
            continue
        inside = list(item.values()) if isinstance(item, dict) else item
        queue += reversed(inside if isinstance(inside, list) else [])
    out.close()
    out.recorded, out.recorded_by = held, "VMA"
    out.notes.append(
        "a picture of VMA is of one moment. What is live there is allocated once; what comes and "
        "goes, which makes fragments, is not in it. Torch's rules are shown for comparison"
    )
    return out


# ---- Any of them ----


def read(path, device=None):
    """The file's history. Raises Refused, or OSError."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise Refused(f"its gzip is damaged: {error}") from None
    if data[:1] in b"{ \n" and data.lstrip()[:1] == b"{":
        try:
            return _read_vma(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise Refused(f"it is no JSON: {error}") from None
    if data[:13] == b"Thread,Time,A":
        try:
            return _read_rmm(data.decode("utf-8", "replace"))
        except csv.Error as error:
            raise Refused(f"it is no CSV: {error}") from None
    snapshot = _unpickled(data)
    if not isinstance(snapshot, dict):
        raise Refused("it is no snapshot: those of torch 2.1 and later are a dict")
    return _Torch(snapshot, device).out
