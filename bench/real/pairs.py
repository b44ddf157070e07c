"""Compares steps of a program with several allocators, whose processes take turns on one GPU.

    python3 bench/real/pairs.py --out pairs.json trainer_lora gaussian
    python3 bench/real/pairs.py --out streams.json --ways native lake lake-wait --steps 40 \\
        opt-1.3b-LRC-dyn pipeline-dyn distill-dyn prefetch-dyn
    python3 bench/real/pairs.py --out streams2.json --ranks 2 --ways native lake lake-wait \\
        --steps 40 fsdp2-llama-7b-LR-dyn shard2-llama-1b-R-dyn ddp2-llama-1b-dyn
    python3 bench/real/pairs.py --show pairs.json streams.json        the table again

A machine that is slow for a while is slow for all of them, so the ratio of two times of the same
step says more than two runs one after the other. Who goes first turns from step to step. All of
them build the model and do the first step at the same time; that step is not counted, nor are the
next three. The programs are those of run.py beside this file and those of bench/torch, also on
several GPUs; the GPU has to hold all of them at once.

The table has for each allocator, by native's: the memory held, the sum of the steps, the mean of
the steps' ratios with the ends of its 95 % interval, the median of the ratios with its own, and the
fastest step.
"""
import argparse
import json
import math
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "torch")]

import run  # noqa: E402

WARM = 4  # steps that are not counted


class Turn:
    """A process's end of the two pipes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = os.fdopen(reader), os.fdopen(writer, "w")

    def wait(self):
        if not self.reader.readline():
            os._exit(1)  # who gives the turns is gone

    def tell(self, seconds):
        """A step took so long. Waits for the next turn, also for one behind the last step: what a
        program's end costs is nobody's step."""
        print(seconds, file=self.writer, flush=True)
        self.wait()

    def end(self, found):
        print(json.dumps(found), file=self.writer, flush=True)


def work(job):
    turn = Turn(job["reader"], job["writer"])
    if job["program"] in run.PROGRAMS:
        run.work(job["program"], job["way"], job["steps"], turn)
    import workloads

    if job["program"] not in workloads.NAMES:
        names = " ".join([*run.PROGRAMS, *workloads.NAMES])
        turn.end({"error": f"there is no such program: {names}"})
        os._exit(0)
    allocator = job["way"].replace("lake", "gmlake")
    given = {"workload": job["program"], "allocator": allocator, "count": job["steps"]}
    more = {name: job[name] for name in ("rank", "ranks", "rendezvous")}
    turn.end(workloads.run({**given, **more}, turn))
    os._exit(0)


class Rank:
    """One process: a way's program on one GPU."""

    def __init__(self, job):
        theirs_in, self.writer = os.pipe()
        self.reader, theirs_out = os.pipe()
        job = {**job, "reader": theirs_in, "writer": theirs_out}
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--work", json.dumps(job)],
            env=run.environment_of(job["way"]), pass_fds=(theirs_in, theirs_out),
            stdout=self.said, stderr=subprocess.STDOUT, start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.left = ""

    def give(self):
        try:
            os.write(self.writer, b"\n")
        except BrokenPipeError:
            pass  # it has ended: what it said last is its answer

    def answer(self, until):
        while "\n" not in self.left:
            ready, _, _ = select.select([self.reader], [], [], max(0, until - time.monotonic()))
            more = os.read(self.reader, 1 << 16).decode() if ready else ""
            if not more:
                raise RuntimeError(self.last_words() if ready else "no answer in time")
            self.left += more
        line, self.left = self.left.split("\n", 1)
        return json.loads(line)

    def last_words(self):
        self.said.seek(0)
        return "\n".join(self.said.read()[-2000:].splitlines()) or "ended without a word"

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # and what it has started
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.writer)
        os.close(self.reader)
        self.said.close()


class Way:
    """All ranks of a way."""

    def __init__(self, job, ranks):
        self.folder = tempfile.TemporaryDirectory()
        store = os.path.join(self.folder.name, "store")
        job = {**job, "ranks": ranks, "rendezvous": store}
        self.ranks = [Rank({**job, "rank": rank}) for rank in range(ranks)]
        self.seconds = []

    def give(self):
        for rank in self.ranks:
            rank.give()

    def close(self):
        for rank in self.ranks:
            rank.close()
        self.folder.cleanup()

    def take(self, until):
        """How long the step took."""
        answers = [rank.answer(until) for rank in self.ranks]
        for answer in answers:
            if isinstance(answer, dict):
                raise RuntimeError(answer.get("error") or "it ended before its last step")
        self.seconds.append(max(answers))


def compare(program, names, steps, ranks, seconds):
    """A run for each way."""
    until = time.monotonic() + seconds
    ways = [Way({"program": program, "way": name, "steps": steps}, ranks) for name in names]
    try:
        for way in ways:
            way.give()
        for way in ways:
            way.take(until)
        for step in range(1, steps):
            for i in range(len(ways)):
                way = ways[(i + step) % len(ways)]
                way.give()
                way.take(until)
        found = []
        for way in ways:
            way.give()
            found.append([rank.answer(until) for rank in way.ranks][0])
            if found[-1].get("error"):
                raise RuntimeError(found[-1]["error"])
    finally:
        for way in ways:
            way.close()
    return [
        {**answer, "error": "", "workload": program, "repeat": 0,
         "allocator": name.replace("lake", "gmlake"), "seconds": way.seconds}
        for name, way, answer in zip(names, ways, found)
    ]


def interval_of_mean(values):
    """By Student's t, about: 94 of 100 intervals of six values have the mean, 95 of many."""
    mean = statistics.mean(values)
    far = (1.96 + 2.5 / (len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - far, mean + far


def interval_of_median(values):
    """By ranks: whatever the values' distribution is."""
    values, n = sorted(values), len(values)
    far = 0.98 * math.sqrt(n)
    low, high = max(0, math.floor(n / 2 - far)), min(n - 1, math.ceil(n / 2 + far))
    return statistics.median(values), values[low], values[high]


def rows(runs):
    """The table's rows: allocators by the first one of the same program and repeat."""
    base = {}
    for found in runs:
        first = base.setdefault((found["workload"], found["repeat"]), found)
        live, held = found["peak_live_bytes"], found["peak_reserved_bytes"]
        row = [found["workload"], found["allocator"], f"{held / 2**30:.2f} ({live / held:.3f})"]
        if found is first:
            seconds = found["seconds"][WARM:]
            yield [*row, f"{sum(seconds):.2f} s", "", f"{statistics.median(seconds):.4f} s", ""]
            continue
        pairs = list(zip(found["seconds"][WARM:], first["seconds"][WARM:]))
        ratios = [mine / its for mine, its in pairs]
        mean, median = interval_of_mean(ratios), interval_of_median(ratios)
        total = sum(mine for mine, _ in pairs) / sum(its for _, its in pairs)
        least = min(mine for mine, _ in pairs) / min(its for _, its in pairs)
        row += [f"{total:.3f}"]
        row += ["{:.3f} ({:.3f} to {:.3f})".format(*of) for of in (mean, median)]
        yield [*row, f"{least:.3f}"]


def show(runs):
    head = ["program", "allocator", "held GiB (live by held)"]
    head += ["all steps", "mean", "median", "least"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows(runs):
        print("| " + " | ".join(row) + " |", flush=True)


def read(path):
    """The runs in a file that --out wrote, as repeats of their own."""
    try:
        with open(path) as file:
            runs = json.load(file)["runs"]
        return [{**found, "repeat": (path, found["repeat"])} for found in runs]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"pairs.py: {path} is no file that --out wrote: {type(error).__name__}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = " ".join(run.PROGRAMS) + ", and those of bench/torch/run.py"
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=names)
    parser.add_argument(
        "--ways", nargs="+", metavar="WAY", default=["native", "lake"],
        help=f"{run.WAYS}; if none is named, native and lake",
    )
    parser.add_argument("--steps", type=int, default=24, help="of each program (24)")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs; programs of bench/torch only")
    parser.add_argument("--seconds", type=int, default=600, help="a program may take so long")
    parser.add_argument("--out", help="a file for all results, as JSON")
    parser.add_argument("--show", nargs="+", metavar="FILE", help="only the table of these files")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(json.loads(given.work))
    if given.show:
        show([found for name in given.show for found in read(name)])
        return
    wrong = [way for way in given.ways if not re.fullmatch(run.KNOWN_WAY, way)]
    if wrong:
        parser.error(f"there is no way {wrong[0]}: {run.WAYS}")
    if not given.programs:
        parser.error(f"name a program: {names}")
    if given.steps < WARM + 6:
        parser.error(f"--steps {given.steps}: give 10 or more; the first {WARM} are not counted")
    if given.ranks < 1:
        parser.error(f"--ranks {given.ranks}: at least 1")
    if given.out:
        run.write(given.out, {})
    results = {**run.machine(), "runs": [], "failed": []}
    for program in given.programs:
        try:
            found = compare(program, given.ways, given.steps, given.ranks, given.seconds)
            results["runs"] += found
            show(found)
        except RuntimeError as error:
            results["failed"].append({"workload": program, "error": str(error)})
            print(f"{program}: {error}", flush=True)
        if given.out:
            run.write(given.out, results)
    if results["failed"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
