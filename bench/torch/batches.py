"""The largest batch that trains under a limit, and how fast it trains there:

    python3 -m pip install --no-build-isolation ./examples/torch
    python3 bench/torch/batches.py --out batches.json
    python3 bench/torch/batches.py --plot batches.png batches.json | gnuplot
    python3 bench/torch/batches.py --table batches.json

Ways to train: torch as it is; its saved tensors on the host (torch.autograd.graph.save_on_cpu, with
pinned memory); activation checkpointing; selective checkpointing, which keeps attention and every
other matrix product; checkpointing with the layers' inputs on the host; FSDP2 with checkpointing
and its parameters on the host (CPUOffloadPolicy, one rank, AdamW fused on the CPU);
gmlake_torch.offload, alone, with checkpointing, with the blocks that it finds executed twice as
far as that pays, and so with the optimizer's step inside the backward pass; and managed memory
behind torch's pluggable allocator, while another process holds what is beyond the limit. Each but
the last is bisected: a batch fits if it trains for --steps steps. The processes of a program search
at the same time and are timed one after the other, at their largest batch and at the program's
equal one. torch.compile's offload of activations is not
among them: whoever uses it has to mark what leaves in the compiled graph. Managed memory has no
largest batch: it is timed at the largest of native and of offload. More managed memory than is free
can hang the GPU for all its users: leave it out with --ways where others use the machine.

The file is written after each search and each way that was timed, so a run that is cut off loses
only what it was at. A later run with the same --out adds to it: what is timed there is kept, unless
--ways names it, and what is only searched is only timed.
"""
import argparse
import concurrent.futures
import contextlib
import functools
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
GIB = 1 << 30

# Model, tokens of a row or side of an image, LoRA; the equal batch, with which all are timed that
# can train it; the first batch that each way tries: what fits on an H200 under 24 GiB, but for the
# last one, with which nobody has searched.
PROGRAMS = {
    "opt-1.3b": ("opt-1.3b", 1024, "", 21, (8, 22, 18, 12, 28, 40, 36, 37, 36, 40)),
    "llama-7b-L": ("llama-7b", 1024, "lora", 13, (1, 7, 13, 3, 14, 24, 11, 44, 44, 44)),
    "conv": (None, 384, "", 300, (300, 484, 562, 0, 0, 0, 796, 1297, 796, 796)),
}
WAYS = {  # and what they are called in tables
    "native": "native",
    "host": "save_on_cpu",
    "recompute": "checkpointing",
    "selective": "selective checkpointing",
    "inputs": "checkpointing, inputs on the host",
    "fsdp": "FSDP2 on the host, checkpointing",
    "offload": "gmlake_torch.offload",
    "offload-recompute": "offload, checkpointing",
    "offload-blocks": "offload, blocks",
    "offload-in-backward": "offload, blocks, step in backward",
    "managed": "managed memory",
}
MANAGED = """
#include <cuda_runtime.h>
#include <map>
static std::multimap<size_t, void *> unused; /* torch has one stream here */
static std::map<void *, size_t> sizes;
extern "C" void *take(size_t bytes, int, cudaStream_t) {
  const auto found = unused.lower_bound(bytes);
  void *ptr = nullptr;
  if (found != unused.end() && found->first <= bytes + bytes / 4) {
    ptr = found->second;
    unused.erase(found);
  } else if (cudaMallocManaged(&ptr, bytes, cudaMemAttachGlobal) == cudaSuccess) {
    sizes[ptr] = bytes;
  }
  return ptr;
}
extern "C" void give(void *ptr, size_t, int, cudaStream_t) { unused.emplace(sizes[ptr], ptr); }
"""


# ---- A process that trains ----------------------------------------------------------------------


def keep_some():
    """For selective checkpointing: attention and every other matrix product are kept."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    counts, operators = {False: 0, True: 0}, torch.ops.aten
    products = {operators.mm.default, operators.addmm.default}
    kinds = ("flash", "efficient", "cudnn")
    attention = {getattr(operators, f"_scaled_dot_product_{k}_attention").default for k in kinds}

    def decide(context, operator, *_, **__):
        counts[context.is_recompute] += operator in products
        is_kept = operator in products and counts[context.is_recompute] % 2 == 0
        if is_kept or operator in attention:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(decide)


def checkpoint_on_host(function, *arguments):
    """Checkpoints a layer whose inputs wait on the host: what this kind of checkpoint saves."""
    import torch
    from torch.utils.checkpoint import checkpoint

    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        return checkpoint(function, *arguments, use_reentrant=True)


def shard_on_host(model):
    """FSDP2 of one rank: parameters, their gradients and the optimizer are the host's."""
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    model.to("cpu")
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList):
            for layer in module:
                fully_shard(layer, offload_policy=CPUOffloadPolicy())
    fully_shard(model, offload_policy=CPUOffloadPolicy())


def language_model(name, length, how):
    """Returns a function that trains with a batch and returns the loss."""
    import torch
    import workloads

    model, vocabulary = workloads.build(name)
    if "lora" in how:
        workloads.add_lora(model)
    if "recompute" in how:
        options = {"use_reentrant": False}
        if "selective" in how:
            options["context_fn"] = keep_some
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    if "inputs" in how:
        for module in model.modules():
            if hasattr(module, "_gradient_checkpointing_func"):
                module._gradient_checkpointing_func = checkpoint_on_host
    if "recompute" in how and "lora" in how:
        embeddings = model.get_input_embeddings()
        embeddings.register_forward_hook(lambda _, __, out: out.requires_grad_(True))
    model.config.use_cache = False
    model.train()
    if "fsdp" in how:
        shard_on_host(model)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def loss_of(batch):
        x = torch.randint(0, vocabulary, (batch, length), device="cuda")
        return model(input_ids=x, labels=x, use_cache=False).loss

    return parameters, loss_of


def convolutions(side, how):
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    from workloads import Residual

    layers, channels = [], 3
    for wide in (64, 128, 256, 512):
        layers += [nn.Conv2d(channels, wide, 3, stride=2, padding=1), Residual(wide)]
        layers += [Residual(wide)]
        channels = wide
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    model = nn.Sequential(*layers).to("cuda", torch.bfloat16)

    def loss_of(batch):
        x = torch.rand(batch, 3, side, side, device="cuda", dtype=torch.bfloat16)
        labels = torch.randint(0, 1000, (batch,), device="cuda")
        for layer in model:
            if "recompute" in how and isinstance(layer, Residual):
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return nn.functional.cross_entropy(x.float(), labels)

    return list(model.parameters()), loss_of


def prepare(way, limit_bytes):
    """What the program runs in, and what its forward passes run in."""
    import torch

    nothing = contextlib.nullcontext
    if way == "managed":
        folder = tempfile.mkdtemp()
        source, library = os.path.join(folder, "managed.cu"), os.path.join(folder, "managed.so")
        with open(source, "w") as file:
            file.write(MANAGED)
        subprocess.check_call(
            ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", library, source], stdout=2
        )
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give")
        torch.cuda.memory.change_current_allocator(allocator)
        return nothing(), nothing
    if way.startswith("offload"):
        import gmlake_torch

        gmlake_torch.enable()
        recomputes = "always" if way in ("offload-blocks", "offload-in-backward") else "never"
        return gmlake_torch.offload(limit_bytes=limit_bytes, recomputes=recomputes), nothing
    torch.cuda.set_per_process_memory_fraction(
        limit_bytes / torch.cuda.get_device_properties(0).total_memory
    )
    if way == "host":
        return nothing(), functools.partial(torch.autograd.graph.save_on_cpu, pin_memory=True)
    return nothing(), nothing


def work(program, way, limit_bytes):
    """Reads a batch and a number of steps a line, and answers with their times, or with what went
    wrong."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    import torch

    def train(optimizer, loss_of, forward, batch, count):
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            with forward():
                loss = loss_of(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            seconds.append(round(time.perf_counter() - start, 5))
        value = float(loss.detach())
        if not math.isfinite(value):
            return {"seconds": seconds, "error": f"the loss is {value}"}
        return {"seconds": seconds, "loss": value}

    torch.manual_seed(0)
    session, forward = prepare(way, limit_bytes)
    with session:
        name, size, how, _, _ = PROGRAMS[program]
        if "recompute" in way or way in ("selective", "inputs", "fsdp"):
            how += f" recompute {way}"
        made = language_model(name, size, how) if name else convolutions(size, how)
        optimizer = torch.optim.AdamW(made[0], lr=1e-5, fused=way == "fsdp" or None)
        if way == "offload-in-backward":
            import gmlake_torch

            gmlake_torch.step_in_backward(optimizer)
        print("{}", file=answers, flush=True)
        for line in sys.stdin:
            try:
                answer = train(optimizer, made[1], forward, *json.loads(line))
            except torch.cuda.OutOfMemoryError as error:
                answer = {"error": str(error)[:300]}
            if "error" in answer:
                optimizer.zero_grad(set_to_none=True)
                gc.collect()
                torch.cuda.empty_cache()
            print(json.dumps(answer), file=answers, flush=True)
        os._exit(0)  # tensors that are away would all come back


class Worker:
    """A process of work(), which is started anew where it has died."""

    def __init__(self, program, way, limit_bytes):
        self.arguments = [sys.executable, os.path.abspath(__file__), "--work"]
        self.arguments += [program, way, str(limit_bytes)]
        self.process = None

    def start(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(self.arguments, **pipes)
        return self.process.stdout.readline()

    def run(self, batch, steps, seconds):
        """Trains; ends the process if that takes longer."""
        if not self.process and not self.start():
            self.end()
            return {"batch": batch, "error": "the process does not start"}
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([batch, steps]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            self.end()
            return {"batch": batch, "error": f"died, or took over {seconds} s"}
        return {"batch": batch, **json.loads(line)}

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


# ---- The process that searches ------------------------------------------------------------------


def search(run, guess):
    """Bisects by run(batch), whose answer has an `error` where the batch does not fit, to within a
    sixteenth. Returns the largest that fits, 0 if none, and all answers."""
    good, bad, batch, answers = 0, None, guess, []
    while bad is None or bad - good > max(1, good // 16):
        answers.append(run(batch))
        if "error" in answers[-1]:
            bad = batch
        else:
            good = batch
        batch = good + max(1, good // 4) if bad is None else (good + bad) // 2
    return good, answers


def tell(what, worker, run):
    """Progress, for somebody who waits."""
    text = run.get("error") or f"{run['seconds'][-1]} s a step"
    print(what, worker.arguments[-2], run["batch"], text[:100], file=sys.stderr, flush=True)


def time_of(worker, batch, arguments):
    """The median step of a run behind the first ones, and the batch; smaller ones where it does not
    fit after all."""
    warm = arguments.warm if worker.arguments[-2].startswith("offload") else 2
    while batch:
        run = worker.run(batch, warm + arguments.timed, 2 * arguments.seconds)
        tell("timed", worker, run)
        if "error" not in run:
            return {**run, "step": sorted(run["seconds"][warm:])[arguments.timed // 2]}
        worker.end()  # what a step has left that found no memory is not to be timed
        batch -= max(1, batch // 16)
    return {"batch": 0, "step": float("inf")}


def hold_all_but(left_bytes):
    """Starts a process that takes all memory of the device but that."""
    text = f"""import torch
free = torch.cuda.mem_get_info()[0] - {left_bytes}
x = torch.empty(free, dtype=torch.uint8, device="cuda")
print("held", flush=True)
input()"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", text], **pipes)
    process.stdout.readline()
    return process


def measure_managed(result, is_named, arguments):
    """Managed memory at the largest batches of native and of offload, a process each. Yields
    whenever the result has more."""
    runs = {run["batch"]: run for run in result.get("managed", ())}
    ways = [result["ways"][way] for way in ("native", "offload") if way in result["ways"]]
    batches = {way["batch"] for way in ways} - {0}
    if not is_named:
        batches -= set(runs)
    if not batches:
        print("managed: nothing to time", file=sys.stderr)
        return
    holder = hold_all_but(arguments.limit_bytes + arguments.context_bytes)
    for batch in sorted(batches):
        worker = Worker(result["program"], "managed", arguments.limit_bytes)
        run = worker.run(batch, arguments.managed_steps, arguments.seconds)
        tell(result["program"], worker, run)
        worker.end()
        if "error" not in run:
            run["step"] = min(run["seconds"])
        runs[batch] = run
        result["managed"] = [runs[key] for key in sorted(runs)]
        yield
    holder.kill()
    holder.wait()


def measure_ways(result, ways, arguments):
    """Searches in all of them at once, and then times one after the other. Yields whenever the
    result has more."""

    def tries(worker, batch):
        answer = worker.run(batch, arguments.steps, arguments.seconds)
        tell(program, worker, answer)
        return answer

    program, found = result["program"], result["ways"]
    workers = {way: Worker(program, way, arguments.limit_bytes) for way in ways}
    equal, guesses = PROGRAMS[program][-2], dict(zip(WAYS, PROGRAMS[program][-1]))
    with concurrent.futures.ThreadPoolExecutor(len(ways)) as pool:
        futures = {
            pool.submit(search, functools.partial(tries, workers[way]), guesses[way]): way
            for way in ways
            if way not in found or "step" in found[way]
        }
        for future in concurrent.futures.as_completed(futures):
            largest, answers = future.result()
            found[futures[future]] = {"batch": largest, "tried": answers}
            yield
    for way in ways:
        if any("error" in run for run in found[way].get("tried", ())):
            workers[way].end()
        found[way].update(time_of(workers[way], found[way]["batch"], arguments))
        if found[way]["batch"] > equal:
            found[way]["equal"] = time_of(workers[way], equal, arguments)
        workers[way].end()
        yield


def measure(result, arguments):
    """Measures what the result lacks, and what --ways names. Yields whenever it has more."""
    guesses = dict(zip(WAYS, PROGRAMS[result["program"]][-1]))
    ways = arguments.ways or [way for way in WAYS if "step" not in result["ways"].get(way, {})]
    ways = [way for way in ways if guesses.get(way, 1)]  # without a first batch: not for it
    for takes_host in (False, True):  # apart: together their pinned memory might be too much
        group = [way for way in ways if way != "managed" and way.startswith("off") == takes_host]
        if group:
            yield from measure_ways(result, group, arguments)
    if "managed" in ways:
        yield from measure_managed(result, bool(arguments.ways), arguments)


# ---- The file -----------------------------------------------------------------------------------


def load(path):
    with open(path) as file:
        return json.load(file)


def save(results, path):
    """The old file stays until the new one is whole."""
    with open(path + ".new", "w") as file:
        json.dump(results, file, indent=1)
    os.replace(path + ".new", path)


def result_of(program, results, arguments):
    """The program's part of the results."""
    for result in results:
        if result["program"] == program:
            if result["limit_bytes"] != arguments.limit_bytes:
                sys.exit(
                    f"{arguments.out} has {program} under {result['limit_bytes']} bytes, not"
                    f" {arguments.limit_bytes}: name another file with --out"
                )
            return result
    results.append({"program": program, "limit_bytes": arguments.limit_bytes, "ways": {}})
    return results[-1]


# ---- Tables and the plot ------------------------------------------------------------------------


def rows_of(result):
    """Way, batch, step and rate of each run, and batch and rate at the equal batch, or None.
    Without a figure the step says why, the rate is 0."""
    name, length, _, equal, _ = PROGRAMS[result["program"]]

    def rate_of(run):
        return run["batch"] * (length if name else 1) / run["step"]

    ways = [(way, result["ways"][way]) for way in WAYS if way in result["ways"]]
    for way, run in ways + [("managed", run) for run in result.get("managed", ())]:
        if "step" in run and run["batch"]:
            same = run if run["batch"] == equal else run.get("equal")
            at_equal = (same["batch"], rate_of(same)) if same else None
            yield way, run["batch"], f"{run['step']:.5g}", rate_of(run), at_equal
        else:
            is_done = "step" in run or "error" in run
            yield way, run["batch"], "none in time" if is_done else "not timed", 0, None


def native_of(rows):
    """Native's batch and rate; 0 where it has none."""
    return next(((batch, rate) for way, batch, _, rate, _ in rows if way == "native"), (0, 0))


def table(results):
    yield "| program | way | largest batch | s a step | tokens or images a second | by native's |"
    yield "|---|---|---|---|---|---|"
    for result in results:
        rows = list(rows_of(result))
        native = native_of(rows)[1]
        for way, batch, step, rate, _ in rows:
            by = f"{rate / native:.2f}" if rate and native else ""
            head = f"| {result['program']} | {WAYS[way]} | {batch} | {step} | "
            yield head + (f"{rate:.1f} | {by} |" if rate else "| |")
    yield ""
    yield "| program | way | equal batch | tokens or images a second |"
    yield "|---|---|---|---|"
    for result in results:
        for way, _, _, _, at_equal in rows_of(result):
            if at_equal:
                batch, rate = at_equal
                yield f"| {result['program']} | {WAYS[way]} | {batch} | {rate:.1f} |"


COLOURS = {  # of bench/style.gp
    "native": "native",
    "host": "async",
    "recompute": "expandable",
    "selective": "other",
    "inputs": "ink",
    "fsdp": "peer",
    "offload": "lake",
    "offload-recompute": "lake_more",
    "offload-blocks": "paper",
    "offload-in-backward": "lake_less",
    "managed": "live",
}


def plot(results, path):
    """A point a run: its batch and its rate, by native's. A colour a way, a form a program."""
    points, forms = [], {}
    for result in results:
        rows = list(rows_of(result))
        batch, rate = native_of(rows)
        if not rate:
            continue
        form = forms.setdefault(result["program"], (7, 5, 9)[len(forms)])
        points += [(way, x / batch, y / rate, form) for way, x, _, y, _ in rows if y]
    for way in WAYS:
        yield f"${way.replace('-', '_')} << END"
        for name, x, y, form in points:
            if name == way:
                yield f"{x:.4f} {y:.4f} {form}"
        yield "END"
    yield f"""load "bench/style.gp"
set terminal pngcairo size 1400,760 noenhanced font "DejaVu Sans,17" background "#ffffff"
set output "{path}"
set lmargin 11
set tmargin 5
set logscale x
set xtics (1, 2, 4, 8, 16, 32)
set xrange [.9:56]
set yrange [0:*]
set xlabel "largest batch, by native's"
set ylabel "tokens or images a second, by native's"
set key outside right top Left reverse samplen 1 spacing 1.3
set label 1 "Largest batches under 24 GiB: right and high is better" at screen .02, .95"""
    used = [way for way in WAYS if any(point[0] == way for point in points)]
    draws = [
        f"${way.replace('-', '_')} using 1:2:3 with points pt variable ps 2.2 lc rgb {COLOURS[way]}"
        f" notitle, NaN with lines lw 9 lc rgb {COLOURS[way]} title '{WAYS[way]}'"
        for way in used
    ]
    for name, form in forms.items():
        draws.append(f"NaN with points pt {form} ps 2 lc rgb ink title '{name}'")
    yield "plot " + ", ".join(draws)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="batches.json", help="is added to if it is there")
    parser.add_argument("--table", metavar="FILE", help="prints the table of an earlier run")
    parser.add_argument("--plot", metavar="PNG", help="prints gnuplot's commands; needs a file")
    parser.add_argument("--limit-bytes", type=int, default=24 * GIB)
    parser.add_argument("--context-bytes", type=int, default=600 << 20, help="of CUDA in a process")
    parser.add_argument(
        "--ways",
        type=lambda text: text.split(","),
        help=f"of {','.join(WAYS)}: measured, and again where the file has a figure; none: all that"
        " the file has no figure of",
    )
    parser.add_argument("--steps", type=int, default=3, help="that a batch has to train to fit")
    parser.add_argument("--warm", type=int, default=12, help="steps before it is timed")
    parser.add_argument("--timed", type=int, default=5)
    parser.add_argument("--managed-steps", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=60, help="that a batch may take to fit")
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    arguments = parser.parse_args()
    if arguments.table or arguments.plot:
        results = load(arguments.table or arguments.programs[0])
        print("\n".join(plot(results, arguments.plot) if arguments.plot else table(results)))
        return
    unknown = set(arguments.ways or ()) - set(WAYS)
    if unknown:
        parser.error(f"--ways {','.join(sorted(unknown))}: there are {', '.join(WAYS)}")
    results = load(arguments.out) if os.path.exists(arguments.out) else []
    for program in arguments.programs:
        for _ in measure(result_of(program, results, arguments), arguments):
            save(results, arguments.out)
    print("\n".join(table(results)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
