"""Makes of a lake's snapshot what pytorch.org/memory_viz opens.

    python3 examples/memory_viz.py now.json now.pickle

now.json is of examples/snapshot.h; the program need not use torch. What torch calls a segment is
here a stretch of a home arena between windows, a window, or a stretch of a growing buffer: together
they are what the lake holds, each byte once. What was freed and is still in use is
active_pending_free; holes are inactive. Where torch has a stack of frames, there is the label, and
what else is known: of a hole, who may take it. The history has the segments, then one allocation
for each live block, the oldest first, and the last error if memory ran out. Idle windows have no memory of their own;
the frames of holes name those that would join them."""

import bisect
import json
import pickle
import sys

LARGE = 1 << 20  # torch calls smaller blocks small
NOWHERE = 1 << 52  # chunks that have no address are shown from here on
WHO = {
    "free": "everybody may take it",
    "tagged": "its stream may take it now, others after its work",
    "graph": "captures into its pool alone may take it",
    "quarantined": "nobody may take it: the driver did not take it back",
}


def rows(snapshot, name):
    fields = snapshot["fields"][name]
    return [dict(zip(fields, row)) for row in snapshot[name]]


def frames(*names):
    return [{"name": name, "filename": "gmlake", "line": 0} for name in names if name]


def block(address, size, state, stream, told, requested=None):
    return {
        "address": address,
        "size": size,
        "requested_size": size if requested is None else requested,
        "state": state,
        "frames": told,
        "stream": stream or 0,
    }


def of_block(entry, address=None, size=None):
    """A live or pending block; a window's pieces are one block at the window's address."""
    size = entry["bytes"] if size is None else size
    state = "active_allocated" if entry["state"] == "live" else "active_pending_free"
    user = entry["user_data"] and "user data " + entry["user_data"]
    age = "%d allocations old" % entry["age"]
    told = frames(entry["label"] or "a block without a label", user, age)
    address = entry["address"] if address is None else address
    return block(address, size, state, entry["stream"], told, entry["requested_bytes"])


class Spans:
    """Which idle windows would join a hole."""

    def __init__(self, snapshot):
        sizes = {w["address"]: w["bytes"] for w in rows(snapshot, "windows")}
        self.spans = sorted(
            (s["address"], s["address"] + s["bytes"], sizes[s["owner"]])
            for s in rows(snapshot, "spans")
        )
        self.longest = max((end - begin for begin, end, _ in self.spans), default=0)

    def told(self, begin, end):
        at = bisect.bisect_left(self.spans, (begin - self.longest,))
        for first, last, size in self.spans[at:]:
            if first >= end:
                return
            if last > begin:
                yield "an idle window of %d bytes joins it" % size


def segment(blocks, arena, device, told=None):
    size = sum(b["size"] for b in blocks)
    active = [b for b in blocks if b["state"] != "inactive"]
    stream = next((b["stream"] for b in active), blocks[0]["stream"])
    return {
        "device": device,
        "address": blocks[0]["address"],
        "total_size": size,
        "allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in active),
        "requested_size": sum(b["requested_size"] for b in active),
        "stream": stream,
        "segment_type": "large" if size >= LARGE else "small",
        "segment_pool_id": (0, arena["arena"] if arena["pool"] else 0),
        "is_expandable": True,
        "frames": frames(told, arena["label"] or ("a pool" if arena["pool"] else "the lake")),
        "blocks": blocks,
    }


def home_parts(snapshot, windows):
    """By arena, the blocks and holes that are not pieces of windows."""
    spans = Spans(snapshot)
    parts = {}
    for entry in rows(snapshot, "blocks"):
        if entry["address"] not in windows:
            parts.setdefault(entry["arena"], []).append(of_block(entry))
    for hole in rows(snapshot, "holes"):
        begin, size = hole["address"], hole["bytes"]
        told = frames(WHO[hole["state"]], *spans.told(begin, begin + size))
        parts.setdefault(hole["arena"], []).append(
            block(begin, size, "inactive", hole["stream"], told)
        )
    return parts


def joined(blocks):
    """Lists of blocks that lie side by side."""
    run = []
    for entry in sorted(blocks, key=lambda b: b["address"]):
        if run and run[-1]["address"] + run[-1]["size"] != entry["address"]:
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def segments_of(snapshot):
    device = snapshot["device"]
    arenas = {a["arena"]: a for a in rows(snapshot, "arenas")}
    buffers = {b["address"]: b for b in rows(snapshot, "buffers")}
    windows, parts, bare, unplaced = set(), {}, NOWHERE, {}
    for piece in rows(snapshot, "pieces"):
        owner = buffers.get(piece["owner"])
        if not owner:
            windows.add(piece["owner"])
            continue
        told = frames(owner["label"] or "a growing buffer", "of a growing buffer")
        parts.setdefault(piece["arena"], []).append(
            block(piece["address"], piece["bytes"], "active_allocated", 0, told)
        )
    out = [segment(run, arenas[a], device) for a in parts for run in joined(parts[a])]
    for arena, blocks in home_parts(snapshot, windows).items():
        out += [segment(run, arenas[arena], device) for run in joined(blocks)]
    for entry in rows(snapshot, "blocks"):
        if entry["address"] in windows:
            told = "a window: its pieces lie apart in the arena"
            out.append(segment([of_block(entry)], arenas[entry["arena"]], device, told))
    for chunk in rows(snapshot, "chunks"):
        if chunk["address"] == 0 and chunk["state"] != "live":
            told = frames("a chunk of buffers, which has no address", WHO[chunk["state"]])
            free = block(bare, chunk["bytes"], "inactive", chunk["stream"], told)
            unplaced.setdefault(chunk["arena"], []).append(free)
            bare += chunk["bytes"]
    for arena, blocks in unplaced.items():
        out += [segment(run, arenas[arena], device, "free") for run in joined(blocks)]
    return sorted(out, key=lambda s: s["address"])


def event_of(action, place, size, shown, number):
    event = {"action": action, "addr": place, "size": size, "stream": shown["stream"]}
    return dict(event, time_us=number, frames=shown["frames"])


def history_of(snapshot, segments):
    """The segments; an allocation for each part of a buffer, and for each block, by age; the error,
    if memory has run out. The viewer goes back from the end: it takes each block away again before
    the segment that the block is in, so each one needs an event."""
    out = []
    for entry in segments:
        size = entry["total_size"]
        out.append(event_of("segment_alloc", entry["address"], size, entry, len(out)))
    told = {of_block(entry)["address"] for entry in rows(snapshot, "blocks")}
    for entry in segments:
        for part in entry["blocks"]:
            if part["state"] != "inactive" and part["address"] not in told:
                shown = dict(part, stream=entry["stream"])
                out.append(event_of("alloc", part["address"], part["size"], shown, len(out)))
    for entry in sorted(rows(snapshot, "blocks"), key=lambda b: -b["age"]):
        shown = of_block(entry)
        out.append(event_of("alloc", shown["address"], shown["size"], shown, len(out)))
        if entry["state"] == "pending":
            out.append(dict(out[-1], action="free_requested", time_us=len(out)))
    error = snapshot["error"]
    if error and error["asked_bytes"]:
        told = frames(error["result"], error["text"])
        free = (snapshot["budget"] or {}).get("driver_free_bytes", error["driver_free_bytes"])
        event = {"action": "oom", "device_free": free, "size": error["asked_bytes"], "stream": 0}
        out.append(dict(event, time_us=len(out), frames=told))
    return out


def convert(snapshot):
    told = snapshot if isinstance(snapshot, dict) else {}
    if told.get("format") != "gmlake snapshot" or told.get("version") != 1:
        raise ValueError("not a snapshot of examples/snapshot.h, version 1")
    try:
        return converted(snapshot)
    except KeyError as error:
        raise ValueError("a part of the snapshot is missing: %s" % error) from error
    except (AttributeError, IndexError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError("a part of the snapshot is of another kind: %s" % error) from error


def converted(snapshot):
    if not isinstance(snapshot["device"], int) or not 0 <= snapshot["device"] < 1024:
        raise ValueError("device is %r: it has to be a device's number" % snapshot["device"])
    segments = segments_of(snapshot)
    traces = [[] for _ in range(snapshot["device"])] + [history_of(snapshot, segments)]
    settings = {"gmlake": snapshot["gmlake"], "chunk_bytes": snapshot["chunk_bytes"]}
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": settings,
    }


def main(arguments):
    if len(arguments) != 2:
        print("usage: memory_viz.py SNAPSHOT.json OUT.pickle", file=sys.stderr)
        return 2
    try:
        with open(arguments[0], encoding="utf-8") as file:
            out = convert(json.load(file))
        with open(arguments[1], "wb") as file:
            pickle.dump(out, file, protocol=4)
    except (OSError, RecursionError, ValueError) as error:
        print("memory_viz.py: %s: %s" % (arguments[0], error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
