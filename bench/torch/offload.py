"""Trains in less memory with gmlake_torch.offload, beside torch as it is:

    python3 -m pip install --no-build-isolation ./examples/torch
    python3 bench/torch/offload.py --out offload.json                  every program, each limit
    python3 bench/torch/offload.py --out offload.json llama-7b-LR

Each program runs in one process for each way, all at once on one GPU; they take turns of a few
steps, so that all see the same machine. Two of them are torch as it is: how far their losses lie
apart is the program's own spread. `parts` are limits as parts of the memory that torch's tensors
take at most, `gib` limits in GiB; `idle` has a limit that is never reached.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

# Model, batch, sequence, what is switched on; limits.
PROGRAMS = {
    "llama-7b-LR": ("llama-7b", 8, 1024, "lora recompute", {"gib": (9, 6)}),
    "opt-1.3b-L": ("opt-1.3b", 16, 1024, "lora", {"gib": (22,)}),
    "opt-1.3b-LR": ("opt-1.3b", 16, 1024, "lora recompute", {"gib": (22, 14)}),
    "opt-1.3b-N": ("opt-1.3b", 8, 1024, "", {"parts": (0.75,)}),
    "opt-1.3b-N-dyn": ("opt-1.3b", 8, 1024, "dyn", {"parts": (0.6,)}),
    "conv": (None, 64, 384, "", {"parts": (0.6,)}),
}
STEPS = 64  # of which a run takes the first


# ---- A process that trains ----------------------------------------------------------------------


def language_model(name, batch, sequence, how):
    import torch
    import workloads

    model, vocabulary = workloads.build(name)
    if "lora" in how:
        workloads.add_lora(model)
    if "recompute" in how:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False
        if "lora" in how:
            embeddings = model.get_input_embeddings()
            embeddings.register_forward_hook(lambda _, __, out: out.requires_grad_(True))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    for rows, length in workloads.shapes(batch, sequence, STEPS, "dyn" in how):
        yield
        x = torch.randint(0, vocabulary, (rows, length), device="cuda")
        loss = model(input_ids=x, labels=x, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield float(loss.detach())
        del loss, x


def convolutions(batch, side):
    import torch
    from torch import nn
    from workloads import Residual

    layers, channels = [], 3
    for wide in (64, 128, 256, 512):
        layers += [nn.Conv2d(channels, wide, 3, stride=2, padding=1), Residual(wide)]
        layers += [Residual(wide)]
        channels = wide
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    model = nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        yield
        images = torch.rand(batch, 3, side, side, device="cuda", dtype=torch.bfloat16)
        labels = torch.randint(0, 1000, (batch,), device="cuda")
        loss = nn.functional.cross_entropy(model(images).float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield float(loss.detach())
        del images, labels, loss


def training(program):
    """Yields before a step and, with its loss, after it."""
    name, batch, size, how, _ = PROGRAMS[program]
    return language_model(name, batch, size, how) if name else convolutions(batch, size)


def session_for(way, options):
    """What the program runs in: `native`, `native2`, `lake`, or `offload`."""
    if way.startswith("native"):
        return contextlib.nullcontext()
    import gmlake_torch

    gmlake_torch.enable()
    return contextlib.nullcontext() if way == "lake" else gmlake_torch.offload(**options)


def figures(session, way):
    import torch

    found = {"allocated_bytes_peak": torch.cuda.max_memory_allocated()}
    if not way.startswith("native"):
        import gmlake_torch

        found["lake"] = gmlake_torch.stats()
    if way == "offload":
        found["session"] = session.stats()
    return found


def work(program, way, options):
    """Reads how many steps to do, a line each, and answers with their times and losses."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**what):
        print(json.dumps(what), file=answers, flush=True)

    import torch

    torch.manual_seed(0)
    try:
        with session_for(way, options) as session:
            torch.cuda.init()
            steps = training(program)
            next(steps)
            torch.cuda.synchronize()
            answer(ready=True)
            for line in sys.stdin:
                seconds, losses = [], []
                for _ in range(int(line)):
                    start = time.perf_counter()
                    losses.append(next(steps))
                    torch.cuda.synchronize()
                    seconds.append(time.perf_counter() - start)
                    next(steps)
                answer(seconds=seconds, losses=losses, **figures(session, way))
            os._exit(0)  # tensors that are away would all come back
    except Exception as error:
        answer(error=f"{type(error).__name__}: {error}"[:500])
        os._exit(1)


# ---- The process that lets them take turns ------------------------------------------------------


class Worker:
    def __init__(self, program, way, **options):
        self.way, self.options, self.answers = way, options, []
        arguments = [sys.executable, os.path.abspath(__file__), "--work", program, way]
        self.process = subprocess.Popen(
            [*arguments, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self):
        text = self.process.stdout.readline()
        self.answers.append(json.loads(text) if text else {"error": "died"})
        return self.answers[-1]

    def run(self, steps):
        if "error" not in self.answers[-1]:
            print(steps, file=self.process.stdin, flush=True)
            self.read()
        return self.answers[-1]

    def end(self):
        """Returns by how much the device's used memory gets less, in MiB."""
        before = device_mib()
        self.process.stdin.close()
        self.process.wait()
        return before - device_mib()


def device_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i"]
    query.append(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])
    return int(subprocess.check_output(query, text=True).split()[0])


def result_of(worker):
    answers = [answer for answer in worker.answers if "seconds" in answer]
    joined = {"way": worker.way, **worker.options, "device_mib": worker.end()}
    joined["seconds"] = [round(s, 5) for answer in answers for s in answer["seconds"]]
    joined["losses"] = [loss for answer in answers for loss in answer["losses"]]
    for answer in worker.answers[-1:]:
        joined.update({k: v for k, v in answer.items() if k not in ("seconds", "losses", "ready")})
    return joined


def limits_of(program, native_bytes, gib):
    limits = {"gib": gib} if gib else PROGRAMS[program][-1]
    found = [int(gib * 2**30) for gib in limits.get("gib", ())]
    return found + [int(part * native_bytes) for part in limits.get("parts", ())]


def measure(program, arguments):
    native = Worker(program, "native")
    others = [Worker(program, way) for way in arguments.ways.split(",") if way]
    native.read()
    first = native.run(arguments.warm)
    gib = [float(gib) for gib in arguments.gib.split(",") if gib]
    limits = limits_of(program, first.get("allocated_bytes_peak", 1 << 34), gib)
    if arguments.idle:
        limits.append(4 * first.get("allocated_bytes_peak", 1 << 34))
    for chunk in arguments.chunk_mib.split(","):
        more = {"chunk_bytes": int(chunk) << 20} if chunk else {}
        others += [Worker(program, "offload", limit_bytes=limit, **more) for limit in limits]
        if arguments.keeps_regions and "recompute" in PROGRAMS[program][3]:
            more["keeps_regions"] = True
            others += [Worker(program, "offload", limit_bytes=limit, **more) for limit in limits]
    for worker in others:
        worker.read()
        worker.run(arguments.warm)
    for _ in range(arguments.turns):
        for worker in (native, *others):
            worker.run(arguments.steps)
    return {"program": program, "runs": [result_of(worker) for worker in (native, *others)]}


def median(values):
    return sorted(values)[len(values) // 2] if values else float("nan")


def print_result(result, warm):
    print(result["program"])
    native = median(result["runs"][0]["seconds"][warm:])
    for run in result["runs"]:
        step, session = median(run["seconds"][warm:]), run.get("session", {})
        bound, chunk = session.get("link_bound_ns", 0) / 1e9, run.get("chunk_bytes", 0) >> 20
        print(
            f"  {run['way']:8s} {run.get('limit_bytes', 0) / 2**30:6.2f} GiB"
            f"{' by %d MiB' % chunk if chunk else ''}: {step:.4f} s,"
            f" {step / max(native, bound):.3f} of max({native:.4f}, {bound:.4f});"
            f" device {run['device_mib'] / 1024:.2f}, lake"
            f" {run.get('lake', {}).get('reserved_bytes_peak', 0) / 2**30:.2f} GiB;"
            f" regions kept {session.get('kept_region_count', 0)} of"
            f" {session.get('region_count', 0)};"
            f" loss {run['losses'][-1:]} {run.get('error', '')}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="offload.json")
    parser.add_argument("--warm", type=int, default=16, help="steps before it is measured")
    parser.add_argument("--steps", type=int, default=3, help="steps in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ways", default="native2,lake", help="beside native and offload")
    parser.add_argument("--chunk-mib", default="", help="sizes to compare; none: the lake's")
    parser.add_argument("--gib", default="", help="limits in place of the program's")
    parser.add_argument(
        "--keeps-regions", action="store_true", help="also sessions that recompute less"
    )
    parser.add_argument("--idle", action="store_true", help="also a limit that is never reached")
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    arguments = parser.parse_args()
    results = []
    for program in arguments.programs:
        results.append(measure(program, arguments))
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)
        print_result(results[-1], arguments.warm)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
    else:
        main()
