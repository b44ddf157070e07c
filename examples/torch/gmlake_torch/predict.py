"""What would it save me? Of a program that ran without a lake:

    torch.cuda.memory._record_memory_history()               in the program, at its begin
    torch.cuda.memory._dump_snapshot("snapshot.pickle")      at its end

    PYTHONPATH=examples/torch python3 -m gmlake_torch.predict snapshot.pickle

(or without the variable, if gmlake_torch is installed). It needs no GPU, no torch and no lake. It
writes the snapshot as a trace (bench/trace.h has the format), replays that by build/replay, and
prints what was live and what was held for it: by torch as recorded, by torch's rules, by a model of
its expandable segments, by the lake. It draws the lake's memory over time as a page. The file may
also be a log of RMM or a picture of VMA: history.py says which.

Where there is no build/replay, or an old one, programs.py makes one.
"""
import argparse
import json
import os
import subprocess
import sys

from . import history, programs
from .programs import Failed

LABELS = 4096  # more of them say no more
DISAGREES = 0.05  # a part of what torch recorded; of published snapshots none was .01 apart
LAKES = {  # if there are several streams
    "lake, if work ends at once": ("grow", "0"),
    "lake, if it never ends": ("grow", "never"),
    "lake, waiting first": ("wait", "never"),
}


# ---- The trace ----


def lines_of(told, served):
    """The lines of a trace. served: those of told.refused that are asked for all the same."""
    yield "gmtrace 2"
    labels, last = {}, 0
    refused = {}
    for at, size, stream in served:
        refused.setdefault(at, []).append((size, stream))
    for i, event in enumerate(told.events):
        yield from refusals(refused.get(i, ()), i)
        us = event[-2] if event[0] == "a" else event[-1]
        dt, last = us - (last or us), us
        if event[0] == "f":
            yield f"f {event[1]} {event[2]} {dt}"
            continue
        _, address, size, stream, _, label = event
        if label and label not in labels and len(labels) < LABELS:
            labels[label] = len(labels) + 1
            yield f"# label: {labels[label]} {label}"
        yield f"a {address} {size} {stream} {dt}"
        if label in labels:
            yield f"# of: {labels[label]} 0 0"
    yield from refusals(refused.get(len(told.events), ()), len(told.events))


def refusals(requests, at):
    """A request that was refused is asked for, and its memory given back."""
    for i, (size, stream) in enumerate(requests):
        number = (1 << 63) + (at << 16) + i
        yield f"a {number} {size} {stream} 0"
        yield f"f {number} {stream} 0"


def lives(told):
    """Of each refused request, how many bytes were live."""
    sizes, live, found = {}, 0, []
    wanted = iter(told.refused)
    at = next(wanted, None)
    for i, event in enumerate([*told.events, None]):
        while at and at[0] == i:
            found.append(live)
            at = next(wanted, None)
        if at is None:
            return found
        if event[0] == "a":
            sizes[event[1]] = (event[2] + 511) // 512 * 512
            live += sizes[event[1]]
        else:
            live -= sizes.pop(event[1], 0)
    return found


# ---- Replay ----


class Replay:
    def __init__(self, trace, limit):
        self.program, self.root = programs.find("replay", "predict")
        self.trace = os.path.abspath(trace)
        self.limit = ["--limit-mib", str(limit >> 20)] if limit else []

    def __call__(self, *options):
        """What it prints as JSON; where an allocator fails, {"error": ...}."""
        done = subprocess.run(
            [self.program, "--once", "--json", *self.limit, *options, self.trace],
            cwd=self.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
        if done.returncode == 1:
            return {"error": done.stderr.strip().split(": ", 1)[-1]}
        raise Failed(done.stderr.strip() or f"replay ended with status {done.returncode}")


def replayed(replay, stream_count):
    """By name, what replay says of each allocator."""
    found = {
        "native, by torch's rules": replay("--allocator", "bfc"),
        "expandable segments, a model": replay("--allocator", "expandable"),
    }
    lakes = LAKES if stream_count > 1 else {"lake": ("grow", "0")}
    for name, (order, lag) in lakes.items():
        found[name] = replay("--cross-stream", order, "--stream-lag-us", lag)
    return found


# ---- What is printed ----


def rows_of(told, found):
    """(name, bytes or None, why there are none)"""
    live = next((said["peak_active_bytes"] for said in found.values() if "error" not in said), None)
    yield "live", live, "every allocator fails"
    if told.recorded:
        yield f"recorded: {told.recorded_by}", told.recorded, None
    for name, said in found.items():
        yield name, said.get("peak_reserved_bytes"), said.get("error")


def counted(count, what):
    return f"{count:,} {what}{'s'[count == 1:]}"


def say_refusals(told, served, limit):
    if not told.refused:
        return
    size, live = told.refused[0][1], lives(told)[0]
    text = f"Memory ran out {counted(len(told.refused), 'time')}. First {history.size_text(size)} "
    text += f"were asked for while {history.size_text(live)} were live"
    if limit:
        text += f", of {history.size_text(limit)} that there were: "
        text += "enough, but for fragments" if live + size <= limit else "too little for anybody"
    print(text + ".")
    if served:
        print(f"{len(served)} of these requests are asked for in the replay, too.")


def note_disagreement(told, found):
    """Where replay of torch's rules does not give what torch recorded, as of a hand-made file."""
    held = found["native, by torch's rules"].get("peak_reserved_bytes")
    if told.recorded and held and told.recorded_by == "native":
        part = abs(held / told.recorded - 1)
        if part > DISAGREES:
            told.notes.append(
                f"torch's rules do not give what was recorded ({part:.0%} apart): take the other "
                "rows with care"
            )


def say(told, found, served, limit):
    count, streams = sum(event[0] == "a" for event in told.events), told.stream_count()
    print(f"{counted(count, 'allocation')}, {counted(streams, 'stream')}, device {told.device}.")
    print(f"{'At most':32} {'GiB':>9}   live by it")
    rows = list(rows_of(told, found))
    live = rows[0][1]
    for name, size, error in rows:
        by = f"{live / size:.3f}" if live and size and name != "live" else ""
        print(f"{name:32} {size / 2**30:9.3f}   {by}" if size else f"{name:32} fails: {error}")
    if limit:
        print(f"Each allocator had {history.size_text(limit)}.")
    say_refusals(told, served, limit)
    for note in told.notes:
        print(f"- {note}.")


def gib(text):
    """Bytes, as many as replay takes."""
    if not 1 / 1024 <= float(text) <= 1024:  # which nan is not, either
        raise argparse.ArgumentTypeError(f"it takes a number from 1/1024 to 1024, not '{text}'")
    return int(float(text) * 2**30)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="gmlake_torch.predict",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("file", help="snapshot.pickle, or a log of RMM, or JSON of VMA; may be .gz")
    parser.add_argument("--device", type=int, help="if not the one with the longest history")
    parser.add_argument("--limit-gib", type=gib, help="memory of the device, at most 1024")
    parser.add_argument("--trace", help="where the trace is written (FILE.gmtrace)")
    parser.add_argument("--html", help="where the page is written (FILE.html)")
    parser.add_argument("--json", action="store_true", help="prints one JSON object")
    given = parser.parse_args(arguments)
    try:
        predict(given)
    except history.Refused as error:
        sys.exit(f"predict: {given.file}: {error}")
    except (Failed, OSError) as error:
        sys.exit(f"predict: {error}")


def predict(given):
    told = history.read(given.file, given.device)
    if told.stream_count() > 1:
        told.notes.append(
            "when work on a stream has ended is not told: what a lake that grows first holds lies "
            "between its two rows"
        )
    limit = given.limit_gib or told.limit
    served = [one for one, live in zip(told.refused, lives(told)) if live + one[1] <= (limit or 0)]
    trace, page = given.trace or given.file + ".gmtrace", given.html or given.file + ".html"
    with open(trace, "w") as file:
        file.writelines(line + "\n" for line in lines_of(told, served))
    replay = Replay(trace, limit)
    found = replayed(replay, told.stream_count())
    note_disagreement(told, found)
    if given.json:
        rows = {name: error if size is None else size
                for name, size, error in rows_of(told, found)}
        print(json.dumps({"bytes": rows, "limit": limit, "notes": told.notes}))
    else:
        say(told, found, served, limit)
    lake_fails = any("error" in said for name, said in found.items() if name.startswith("lake"))
    drawn = replay("--html", os.path.abspath(page))
    if "error" in drawn and not lake_fails:
        raise Failed(f"{page}: {drawn['error']}")
    if not given.json:
        print(f"Trace: {trace}\nPage: {'none: the lake fails' if 'error' in drawn else page}")


if __name__ == "__main__":
    main()
