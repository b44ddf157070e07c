"""Runs programs as the documentation of other libraries shows them, with several allocators.

    python3 -m pip install --no-build-isolation ./examples/torch
    python3 bench/real/run.py --out real.json                     every program, in three ways
    python3 bench/real/run.py --out real.json trainer_lora --ways native offload:9 --steps 20
    python3 bench/torch/report.py real.json                       tables of what was written
    python3 bench/real/pairs.py --out pairs.json trainer_lora     step by step with two allocators

They need the libraries that they show: transformers, peft, accelerate, gpytorch, timm, lightning,
torch_geometric. A program whose library is missing says so, and the others run.

A way is `native` (torch as it is), `expandable` (its expandable segments), `tuned` (native with a
largest block to split and a threshold of garbage collection, as people set them against
fragmentation; torch heeds the threshold only where the program sets a memory fraction), `async`
(cudaMallocAsync), `lake`, `lake-wait` (it waits for another stream's memory before it takes new
one), or `offload:GIB`: the whole program inside gmlake_torch.offload with that limit. Each runs in
a process of its own, one after the other, all of them as often as --repeat says. What the
environment says of torch's allocator and of gmlake_torch is not heeded.

The first run of a program on a machine also compiles kernels, 1 s and more for each kind of
attention. CUDA keeps them in a file, so later runs do not: with --repeat compare those.

Written for each: seconds and loss of each step, the most bytes that were live and reserved by
torch's count, the statistics of the lake; for offload also what each step moved, drifted and
planned. And the device, its driver, torch, the date and gmlake's commit.
"""
import argparse
import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = {  # module, how main is called
    "trainer_lora": ("trainer_lora", {}),
    "trainer_lora_varying": ("trainer_lora", {"is_varying": True}),
    "encoder_pairs": ("encoder_pairs", {}),
    "gaussian": ("gaussian", {}),
    "images": ("images", {}),
    "generate": ("generate", {}),
    "point_clouds": ("point_clouds", {}),
    "lightning_gpt": ("lightning_gpt", {}),
    "accelerate_loop": ("accelerate_loop", {}),
    "vision_amp": ("vision_amp", {}),
    "seq2seq": ("seq2seq", {}),
    "bert_trainer": ("bert_trainer", {}),
    "gan": ("gan", {}),
    "unet": ("unet", {}),
}
SETTINGS = {
    "expandable": "expandable_segments:True",
    "tuned": "max_split_size_mb:128,garbage_collection_threshold:0.8",
    "async": "backend:cudaMallocAsync",
}
WAYS = "native expandable tuned async lake lake-wait offload:GIB"
KNOWN_WAY = r"native|expandable|tuned|async|lake|lake-wait|offload:\d+(\.\d+)?"
COUNTED = ("in_bytes", "out_bytes", "demand_in_count", "demand_out_count", "drift_count",
           "plan_count", "iteration_count")


def session_for(way):
    if way in ("native", *SETTINGS):
        return contextlib.nullcontext()
    import gmlake_torch

    gmlake_torch.enable()
    if way.startswith("lake"):
        return contextlib.nullcontext()
    return gmlake_torch.offload(limit_bytes=int(float(way.split(":")[1]) * 2**30))


def lake_driver_ns():
    import gmlake_torch

    return gmlake_torch.stats()["driver_ns"]


def work(program, way, steps, turn=None):
    """One run. Returns what was measured. Of several runs that take turns, each waits for its turn
    before the first step and behind each."""
    import torch

    module, options = PROGRAMS[program]
    seconds, losses, moved = [], [], []
    with session_for(way) as session:
        torch.manual_seed(0)
        torch.cuda.init()

        def count():
            if not session:
                return {}
            stats = session.stats()
            return {name: stats[name] for name in COUNTED} | {"driver_ns": lake_driver_ns()}

        if turn:
            turn.wait()
        before, start = count(), time.perf_counter()

        def end_step(loss):
            nonlocal before, start
            torch.cuda.synchronize()
            seconds.append(round(time.perf_counter() - start, 5))
            losses.append(loss)
            after = count()
            moved.append({name: after[name] - before[name] for name in after})
            if turn:
                turn.tell(seconds[-1])
            before, start = after, time.perf_counter()

        importlib.import_module(module).main(steps, end_step, **options)
        found = {"seconds": seconds, "losses": losses}
        found["peak_live_bytes"] = torch.cuda.memory_stats().get("active_bytes.all.peak")
        found["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        if way.startswith("lake") or session:
            import gmlake_torch

            found["lake"] = gmlake_torch.stats()
        if session:
            found.update(session=session.stats(), moved=moved)
        if turn:
            turn.end(found)
        print(json.dumps(found), flush=True)
        os._exit(0)  # tensors that are away would all come back


def environment_of(way):
    """What a process of that way is given."""
    environment = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    for name in list(environment):
        if name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") or name.startswith("GMLAKE_"):
            del environment[name]
    if way in SETTINGS:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[way]
    if way == "lake-wait":
        environment["GMLAKE_TORCH_CROSS_STREAM"] = "wait"
    return environment


def run(program, way, steps, seconds):
    """A process that works. Returns its answer, or why there is none."""
    arguments = [sys.executable, os.path.abspath(__file__), "--work", way, "--steps", str(steps)]
    try:
        done = subprocess.run(
            [*arguments, program], env=environment_of(way), timeout=seconds, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no end after {seconds} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
    if lines:
        return json.loads(lines[-1])
    said = (done.stdout + done.stderr)[-2000:].splitlines()
    if done.returncode < 0 or not said:  # by a signal: what it said last may be of something else
        said.append(f"ended with status {done.returncode}")
    return {"error": "\n".join(said)}


def said_by(*command):
    """The first line that it prints; empty if it cannot be run."""
    try:
        done = subprocess.run(command, cwd=HERE, text=True, capture_output=True)
    except OSError:
        return ""
    return done.stdout.split("\n")[0].strip()


def machine():
    """What the figures are of."""
    gpu = said_by("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    device, _, driver = gpu.partition(", ")
    return {
        "device": device,
        "driver": driver,
        "torch": said_by(sys.executable, "-c", "import torch; print(torch.__version__)"),
        "gmlake": said_by("git", "describe", "--always", "--dirty"),
        "date": time.strftime("%Y-%m-%d"),
    }


def write(path, results):
    try:
        with open(path, "w") as file:
            json.dump(results, file, indent=1)
    except OSError as error:
        sys.exit(f"--out {path}: {error.strerror}")


def row(program, way, answer):
    if "error" in answer:
        return f"{program:22} {way:12} {answer['error'].splitlines()[-1][:200]}"
    later = sorted(answer["seconds"][4:] or answer["seconds"])
    text = f"{program:22} {way:12} median {later[len(later) // 2]:7.3f} s"
    text += f"  first two {sum(answer['seconds'][:2]):6.2f} s"
    text += f"  live {(answer['peak_live_bytes'] or 0) / 2**30:6.2f} GiB"
    text += f"  reserved {(answer['peak_reserved_bytes'] or 0) / 2**30:6.2f} GiB"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=" ".join(PROGRAMS))
    parser.add_argument(
        "--ways", nargs="+", metavar="WAY", default=["native", "expandable", "lake"],
        help=f"{WAYS}; if none is named, native, expandable and lake",
    )
    parser.add_argument("--steps", type=int, default=24, help="of each run (24)")
    parser.add_argument("--repeat", type=int, default=1, help="how often all is run (1)")
    parser.add_argument("--seconds", type=int, default=600, help="a run may take so long")
    parser.add_argument("--out", help="a file for all results, as JSON")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    wrong = [name for name in given.programs if name not in PROGRAMS]
    if wrong:
        parser.error(f"there is no program {wrong[0]}: {' '.join(PROGRAMS)}")
    wrong = [way for way in given.ways if not re.fullmatch(KNOWN_WAY, way)]
    if wrong:
        parser.error(f"there is no way {wrong[0]}: {WAYS}")
    if given.work:
        work(given.programs[0], given.work, given.steps)
    if given.steps < 1 or given.repeat < 1:
        parser.error("--steps and --repeat take 1 or more")
    results = {**machine(), "runs": [], "failed": []}
    if given.out:
        write(given.out, results)
    for repeat in range(given.repeat):
        for program in given.programs or PROGRAMS:
            for way in given.ways:
                answer = run(program, way, given.steps, given.seconds)
                print(row(program, way, answer), flush=True)
                what = {"workload": program, "allocator": way.replace("lake", "gmlake")}
                kind = "failed" if "error" in answer else "runs"
                results[kind].append({**what, "repeat": repeat, "error": "", **answer})
                if given.out:
                    write(given.out, results)
    if not results["runs"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
