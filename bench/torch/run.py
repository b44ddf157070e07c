"""Runs workloads.py with each allocator in turn and writes what happened as JSON, after every run.

    python3 -m pip install --no-build-isolation ./examples/torch
    python3 bench/torch/run.py --out h200.json                     every workload of one GPU
    python3 bench/torch/run.py --out h200x2.json --ranks 2 fsdp2-opt-1.3b-R
    python3 bench/torch/run.py --out streams.json --streams        those of several streams
    python3 bench/torch/run.py --out streams2.json --streams --ranks 2
    python3 bench/torch/run.py --out serving.json --serving        CUDA graphs and torch.compile
    python3 bench/torch/run.py --out limit.json --largest          largest batches under 40 GB

An allocator whose name ends in -record is the lake, which records into the folder that --record
names; gmlake-wait has that order of gmlake_cross_stream, gmlake-profile the profile of
an earlier run of three steps. pluggable is the lake by examples/torch_pool. --calls FOLDER writes
what the driver calls of each lake took, by kind and step, for calls.py. --steps N runs the first N
steps; what came before them took `before_seconds`. Each allocator has a process that has imported
torch, and forks for every run; the order of the allocators turns from repeat to repeat. report.py
makes tables and a figure of the files.
"""
import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE]

ENVIRONMENT = {
    "native": {},
    "expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    "async": {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
    "pluggable": {},
    "gmlake": {},
    "gmlake-wait": {"GMLAKE_TORCH_CROSS_STREAM": "wait"},
    "gmlake-record": {},
    "gmlake-wait-record": {"GMLAKE_TORCH_CROSS_STREAM": "wait"},
    "gmlake-profile": {},
    "gmlake-32m": {"GMLAKE_TORCH_CHUNK_BYTES": "33554432"},
    "gmlake-64m-wait": {
        "GMLAKE_TORCH_CHUNK_BYTES": "67108864",
        "GMLAKE_TORCH_CROSS_STREAM": "wait",
    },
}
LONG = ("neox-20b-LR", "gpt2-xl-R-dyn", "llama-7b-LR-dyn", "llama-1b-serve")
WORKLOADS = ("opt-1.3b-N", "opt-1.3b-R", "opt-1.3b-LR", "opt-1.3b-LRO", *LONG)
STREAMS = ("opt-1.3b-LRC-dyn", "pipeline-dyn", "distill-dyn", "prefetch-dyn")
STREAMS_2 = ("fsdp2-llama-7b-LR-dyn", "shard2-llama-1b-R-dyn", "ddp2-llama-1b-dyn")
SERVING = ("llama-1b-graphs", "llama-1b-compile")
# Workload, first guess, distance of the batches that are tried, steps of the workload to run.
LARGEST = (("opt-1.3b-LR", 48, 1, [0, 3]), ("gpt2-xl-R-dyn", 60, 2, [6, 14]))


# ---- The process of an allocator -----------------------------------------------------------------


def child(job, rank, pipe):
    import workloads

    signal.alarm(job["timeout"])
    os.write(pipe, json.dumps(workloads.run({**job, "rank": rank})).encode())


def fork_ranks(job):
    """The first rank's result."""
    reader, writer = os.pipe()
    children = []
    for rank in range(job["ranks"]):
        children.append(os.fork())
        if not children[-1]:
            try:
                child(job, rank, writer if not rank else os.open(os.devnull, os.O_WRONLY))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    status = [os.waitpid(pid, 0)[1] for pid in children]
    if text:
        return json.loads(text)
    return {**job, "error": f"died, status {status}", "seconds": [], "units": [], "losses": []}


def serve_jobs():
    """Reads a job a line, answers a result a line."""
    import workloads  # noqa: F401: what takes long, before the forks

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(fork_ranks(json.loads(line))), file=answers, flush=True)


# ---- The process that gives them work ------------------------------------------------------------


class Allocator:
    def __init__(self, name):
        self.name = name
        self.profiles = tempfile.mkdtemp() if name.endswith("-profile") else None
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--serve"],
            env={**os.environ, "TRANSFORMERS_VERBOSITY": "error", **ENVIRONMENT[name]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self):
        self.process.stdout.readline()

    def run(self, job):
        record = job.pop("records", None)
        if record and self.name.endswith("-record") and "repeat" in job:
            kind = ".wait" if "-wait" in self.name else ""
            again = f".{job['repeat']}" if job["repeat"] else ""
            job["record"] = os.path.join(record, job["workload"] + kind + again)
        calls = job.pop("calls", None)
        if calls and self.name.startswith("gmlake") and "repeat" in job:
            job["calls"] = os.path.join(
                calls, f"{job['workload']}.{self.name}.{job['repeat']}"
            )
        if self.name.endswith("-profile"):
            job["profile"] = os.path.join(self.profiles, job["workload"])
        print(json.dumps({**job, "allocator": self.name}), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


class Document:
    """The file, written anew after each run."""

    def __init__(self, path):
        self.path, self.runs, self.lock = path, [], threading.Lock()
        self.head = json.loads(
            subprocess.check_output([sys.executable, "-c", HEAD % ROOT], text=True)
        )

    def add(self, run):
        with self.lock:
            self.runs.append(run)
            rows = ",\n".join(json.dumps(run) for run in self.runs)
            with open(self.path + ".new", "w") as file:
                file.write(f'{{"head": {json.dumps(self.head)}, "runs": [\n{rows}\n]}}\n')
            os.replace(self.path + ".new", self.path)
        first, later = run["seconds"][:1], run["seconds"][2:]
        print(
            f"{run['workload']:17s} {run['allocator']:11s} {run.get('batch', '')!s:3s}"
            f" live {run.get('peak_live_bytes', 0) / 2**30:6.2f}"
            f" reserved {run.get('peak_reserved_bytes', 0) / 2**30:6.2f} GiB,"
            f" first {sum(first):.3f} s, later {sum(later) / max(1, len(later)):.4f} s,"
            f" {run.get('wall_seconds', 0):.1f} s in all, {run['error'] or run['losses'][-1:]}",
            flush=True,
        )


HEAD = """
import datetime, json, platform, re, subprocess, torch, transformers
version = re.search(r"gmlake.h - v(\\S+)", open("%s/gmlake.h").read()).group(1)
query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
gpus = subprocess.check_output(query, text=True).splitlines()
name, driver = gpus[0].split(", ")
print(json.dumps({"device": name, "devices": len(gpus), "driver": driver, "gmlake": version,
  "torch": torch.__version__, "transformers": transformers.__version__, "cuda": torch.version.cuda,
  "python": platform.python_version(), "date": datetime.date.today().isoformat()}))
"""


def compare(arguments, allocators, document):
    for workload in arguments.workloads * (not arguments.cold):
        # What is read from disk is in memory afterwards.
        allocators[0].run(job_of(arguments, workload, steps=[0, 1], requests=1))
    for workload in arguments.workloads:
        for allocator in allocators:
            if allocator.profiles:
                allocator.run(job_of(arguments, workload, steps=[0, 3], requests=3))
    for repeat in range(arguments.repeats):
        for workload in arguments.workloads:
            is_long = workload in LONG and not arguments.steps
            if repeat >= (2 if is_long else arguments.repeats):
                continue
            for i in range(len(allocators)):
                allocator = allocators[(i + repeat) % len(allocators)]
                # Of the long ones a second run of the native allocator tells the noise.
                if repeat and is_long and allocator.name != "native":
                    continue
                document.add(allocator.run(job_of(arguments, workload, repeat=repeat)))


def job_of(arguments, workload, **more):
    job = {"workload": workload, "ranks": arguments.ranks}
    if arguments.ranks > 1:
        job["rendezvous"] = os.path.join(tempfile.mkdtemp(), "store")
    if arguments.record:
        job["records"] = arguments.record
    if arguments.calls:
        job["calls"] = arguments.calls
    if arguments.steps:
        job["steps"] = [0, arguments.steps]
    if arguments.requests:
        job["requests"] = arguments.requests
    if arguments.batch:
        steps = next(steps for name, _, _, steps in LARGEST if name == workload)
        job.update(batch=arguments.batch, limit_bytes=arguments.limit_bytes, steps=steps)
    return {**job, "timeout": arguments.timeout, **more}


def largest_batch(arguments, allocator, workload, guess, distance, steps, document):
    """Bisects; every batch that is tried is in the document."""

    def fits(batch, limit_bytes):
        more = {"batch": batch, "limit_bytes": limit_bytes, "steps": steps}
        run = allocator.run(job_of(arguments, workload, **more))
        document.add(run)
        return not run["error"]

    good, bad, batch = 0, None, guess
    while bad is None or bad - good > distance:
        if fits(batch, arguments.limit_bytes):
            good = batch
        else:
            bad = batch
        if bad is None:
            batch = good + 4 * distance
        elif not good:
            batch = max(distance, bad - 4 * distance)
        else:
            batch = good + (bad - good) // (2 * distance) * distance
        if bad == distance:
            break
    if allocator.name == "gmlake":
        fits(bad, 0)  # what the batch that is too large has live at its peak


def largest(arguments, allocators, document):
    with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
        for workload, guess, distance, steps in LARGEST:
            if workload not in arguments.workloads:
                continue
            futures = [
                pool.submit(largest_batch, arguments, a, workload, guess, distance, steps, document)
                for a in allocators
            ]
            for future in futures:
                future.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="result.json")
    parser.add_argument("--allocators", default="native,expandable,async,gmlake")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--requests", type=int, help="of the serving workload, not all of them")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one run")
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--streams", action="store_true", help="the programs of several streams")
    parser.add_argument("--serving", action="store_true", help="with graphs and torch.compile")
    parser.add_argument("--record", metavar="FOLDER", help="where recordings go")
    parser.add_argument("--calls", metavar="FOLDER", help="where the driver's calls are told")
    parser.add_argument("--steps", type=int, help="so many, not all")
    parser.add_argument("--cold", action="store_true", help="no run before the first one")
    parser.add_argument("--batch", type=int, help="one batch under the limit, not the search")
    parser.add_argument("--limit-bytes", type=int, default=40 * 10**9)
    parser.add_argument("--parallel", type=int, default=3, help="runs at a time with --largest")
    parser.add_argument("workloads", nargs="*")
    arguments = parser.parse_args()
    names = arguments.allocators.split(",")
    allocators = [Allocator(name) for name in names]
    document = Document(arguments.out)
    for allocator in allocators:
        allocator.wait_until_ready()
    for folder in filter(None, (arguments.record, arguments.calls)):
        os.makedirs(folder, exist_ok=True)
    if not arguments.workloads:
        arguments.workloads = WORKLOADS
        if arguments.streams:
            arguments.workloads = STREAMS_2 if arguments.ranks > 1 else STREAMS
        elif arguments.serving:
            arguments.workloads = SERVING
    (largest if arguments.largest else compare)(arguments, allocators, document)
    for allocator in allocators:
        allocator.process.stdin.close()
        allocator.process.wait()


if __name__ == "__main__":
    serve_jobs() if sys.argv[1:] == ["--serve"] else main()
