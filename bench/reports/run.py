"""Runs patterns of allocations that people have reported, with several allocators.

    make build/replay && python3 bench/reports/run.py            on the mock, without a GPU
    python3 bench/reports/run.py --gpu --out reports.json        on a GPU, with torch

A file beside this one is a report: a loop of empty(bytes), whose results are freed as Python frees
them. On the mock it is recorded as a trace, and build/replay replays that with torch's rules (bfc),
a model of torch's expandable segments, and the lake. On a GPU empty is torch.empty, each run is a
process of its own, and the figures are torch's own peaks. A row: peak GiB live, and for each
allocator what is live by what it holds, at the peaks.
"""
import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REPLAY = os.path.join(os.environ.get("BUILD") or os.path.join(ROOT, "build"), "replay")
NAMES = sorted(
    name[:-3] for name in os.listdir(HERE) if name.endswith(".py") and name != "run.py"
)
MOCK = ("bfc", "expandable", "lake")
GPU = {
    "native": "",
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
    "lake": "",
}


def report(name):
    if HERE not in sys.path:
        sys.path.insert(0, HERE)
    return importlib.import_module(name)


class Block:
    """What empty gives while a trace is recorded."""

    def __init__(self, lines, number, size):
        self.lines, self.number = lines, number
        lines.append(f"a {number} {size} 0 1")

    def __del__(self):
        self.lines.append(f"f {self.number} 0 1")


def recorded(name):
    """The report as lines of a trace."""
    lines = ["gmtrace 2"]
    report(name).main(lambda size: Block(lines, len(lines), size))
    return list(lines)


def on_mock(name, folder):
    path = os.path.join(folder, name + ".gmtrace")
    with open(path, "w") as file:
        file.writelines(line + "\n" for line in recorded(name))
    found = {}
    for allocator in MOCK:
        command = [REPLAY, "--once", "--json", "--allocator", allocator]
        said = json.loads(subprocess.check_output([*command, path], text=True))
        found[allocator] = [said["peak_active_bytes"], said["peak_reserved_bytes"]]
    return found


def work(name, way):
    """One run on a GPU."""
    import torch

    if way == "lake":
        import gmlake_torch

        gmlake_torch.enable()
    report(name).main(lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"))
    stats = torch.cuda.memory_stats()
    active, reserved = (stats[f"{which}_bytes.all.peak"] for which in ("active", "reserved"))
    print(json.dumps([active, reserved]))


def on_gpu(name, _):
    found = {}
    for way, settings in GPU.items():
        environment = dict(os.environ)
        environment.pop("PYTORCH_ALLOC_CONF", None)
        environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
        command = [sys.executable, os.path.abspath(__file__), "--work", way, name]
        done = subprocess.run(command, env=environment, text=True, capture_output=True)
        found[way] = json.loads(done.stdout) if not done.returncode else done.stderr[-300:]
        if done.returncode:
            why = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            print(f"{name}, {way}: {why[-1]}", file=sys.stderr)
    return found


def row(name, found):
    cells = [name]
    live = next((both[0] for both in found.values() if isinstance(both, list)), 0)
    cells.append(f"{live / 2**30:.2f}")
    for both in found.values():
        is_known = isinstance(both, list) and both[1]
        cells.append(f"{both[0] / both[1]:.3f} ({both[1] / 2**30:.2f})" if is_known else "failed")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="REPORT", help=" ".join(NAMES))
    parser.add_argument("--gpu", action="store_true", help="with torch, on this machine's GPU")
    parser.add_argument("--traces", help="a folder where the traces of the mock stay")
    parser.add_argument("--out", help="a file for all results, as JSON")
    parser.add_argument("--work", choices=GPU, help=argparse.SUPPRESS)
    given = parser.parse_args()
    wrong = [name for name in given.names if name not in NAMES]
    if wrong:
        parser.error(f"there is no report {wrong[0]}: {' '.join(NAMES)}")
    if given.work:
        work(given.names[0], given.work)
        return
    if not given.gpu and not os.path.exists(REPLAY):
        parser.error(f"{REPLAY} is not there: make build/replay")
    for folder in filter(None, (given.traces, given.out and os.path.dirname(given.out))):
        if not os.path.isdir(folder):
            parser.error(f"there is no folder {folder}")
    ways = GPU if given.gpu else MOCK
    print("| report | live GiB | " + " | ".join(ways) + " |\n" + "|---" * (2 + len(ways)) + "|")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names or NAMES:
            found = (on_gpu if given.gpu else on_mock)(name, given.traces or folder)
            results[name] = found
            print(row(name, found), flush=True)
    if given.out:
        with open(given.out, "w") as file:
            json.dump({"mock": not given.gpu, "reports": results}, file, indent=1)
    if not any(isinstance(both, list) for found in results.values() for both in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
