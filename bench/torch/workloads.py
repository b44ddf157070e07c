"""Training and serving programs of torch and transformers, with random weights: nothing is fetched.
Names say the model, and how it is trained: N plainly, L with LoRA, R with recomputation, O with
activations offloaded to the host, C with activations copied there on a stream of their own; dyn:
batch and sequence vary from step to step. fsdp2, shard2 and ddp2 run on two GPUs: classic FSDP,
fully_shard, and DDP. pipeline, distill and prefetch use several streams of one GPU. serving.py has
the programs that serve with CUDA graphs and torch.compile.
"""
import contextlib
import functools
import os
import random
import time

import torch
import serving
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig, OPTConfig

# What AutoModelForCausalLM would else import in every run anew.
from transformers import GPT2LMHeadModel, GPTNeoXForCausalLM  # noqa: F401
from transformers import LlamaForCausalLM, OPTForCausalLM  # noqa: F401

CONFIGS = {
    "opt-1.3b": lambda: OPTConfig(
        hidden_size=2048,
        ffn_dim=8192,
        num_hidden_layers=24,
        num_attention_heads=32,
        word_embed_proj_dim=2048,
    ),
    "opt-0.3b": lambda: OPTConfig(
        hidden_size=1024,
        ffn_dim=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        word_embed_proj_dim=1024,
    ),
    "gpt2-xl": lambda: GPT2Config(n_embd=1600, n_layer=48, n_head=25),
    "gpt-neox-20b": GPTNeoXConfig,
    "llama-7b": LlamaConfig,
    "llama-1b": lambda: LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
    ),
}

# Model, batch, sequence, iterations, and what is switched on.
TRAINING = {
    "opt-1.3b-N": ("opt-1.3b", 8, 1024, 8, ""),
    "opt-1.3b-R": ("opt-1.3b", 16, 1024, 8, "recompute"),
    "opt-1.3b-LR": ("opt-1.3b", 32, 1024, 8, "lora recompute"),
    "opt-1.3b-LRO": ("opt-1.3b", 16, 1024, 6, "lora recompute offload"),
    "neox-20b-LR": ("gpt-neox-20b", 8, 1024, 6, "lora recompute"),
    "gpt2-xl-R-dyn": ("gpt2-xl", 16, 1024, 16, "recompute dyn"),
    "llama-7b-LR-dyn": ("llama-7b", 8, 2048, 16, "lora recompute dyn"),
    "opt-1.3b-LRC-dyn": ("opt-1.3b", 16, 1024, 10, "lora recompute copied dyn"),
    "fsdp2-opt-1.3b-R": ("opt-1.3b", 16, 1024, 6, "recompute sharded"),
    "fsdp2-llama-7b-LR-dyn": ("llama-7b", 8, 2048, 12, "lora recompute sharded dyn"),
    "shard2-llama-1b-R-dyn": ("llama-1b", 8, 2048, 12, "recompute fully_sharded dyn"),
    "ddp2-llama-1b-dyn": ("llama-1b", 4, 1024, 12, "buckets dyn"),
}
SERVING = {"llama-1b-serve": ("llama-1b", 16, 40)}  # model, batch, requests
# Batch, sequence or side of an image, iterations.
OWN = {
    "pipeline-dyn": (4, 1024, 10),
    "distill-dyn": (8, 1024, 10),
    "prefetch-dyn": (64, 384, 16),
}
NAMES = [*TRAINING, *SERVING, *OWN, *serving.PROGRAMS]


class Lora(nn.Module):
    def __init__(self, linear, rank=16):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        like = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        self.a = nn.Parameter(torch.randn(rank, linear.in_features, **like) * 0.01)
        self.b = nn.Parameter(torch.zeros(linear.out_features, rank, **like))

    def forward(self, x):
        return self.linear(x) + (x @ self.a.t()) @ self.b.t()


def add_lora(model):
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and name not in ("lm_head", "embed_out"):
                setattr(module, name, Lora(child))


def build(name):
    config = CONFIGS[name]()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    return model, config.vocab_size


def shard(model):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    layer = next(type(m) for m in model.modules() if type(m).__name__.endswith("DecoderLayer"))
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer})
    device = torch.cuda.current_device()
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, device_id=device, use_orig_params=True
    )


def shard_fully(model):
    from torch.distributed.fsdp import fully_shard

    for module in list(model.modules()):
        if type(module).__name__.endswith("DecoderLayer"):
            fully_shard(module)
    return fully_shard(model)


class Copied:
    """Activations leave for the host on a stream of their own, and come back on it."""

    def __init__(self, model):
        self.stream = torch.cuda.Stream()
        self.kept = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def leave(self, tensor):
        is_kept = tensor.untyped_storage().data_ptr() in self.kept
        if is_kept or not tensor.is_cuda or tensor.numel() < 2**18:
            return tensor
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self.stream)
        return tensor.device, host

    def come_back(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        device, host = packed
        with torch.cuda.stream(self.stream):
            tensor = host.to(device, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.stream)
        tensor.record_stream(torch.cuda.current_stream())
        return tensor

    def hooks(self):
        return torch.autograd.graph.saved_tensors_hooks(self.leave, self.come_back)


def shapes(batch, sequence, count, is_dynamic, scale_to=None):
    """Batch and sequence of each step; scale_to: as if the workload's batch were that one."""
    rng = random.Random(7)
    for _ in range(count):
        length = rng.randrange(sequence // 8, sequence + 1) if is_dynamic else sequence
        rows = rng.randrange(max(1, batch // 2), batch + 1) if is_dynamic else batch
        yield (max(1, rows * scale_to // batch) if scale_to else rows), length


def train(job, record):
    name, batch, sequence, iterations, how = TRAINING[job["workload"]]
    model, vocabulary = build(name)
    if "lora" in how:
        add_lora(model)
    if "recompute" in how:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False
        if "lora" in how:
            embeddings = model.get_input_embeddings()
            embeddings.register_forward_hook(lambda _, __, out: out.requires_grad_(True))
    if "fully_sharded" in how:
        model = shard_fully(model)
    elif "sharded" in how:
        model = shard(model)
    if "buckets" in how:
        model = nn.parallel.DistributedDataParallel(
            model, device_ids=[torch.cuda.current_device()], bucket_cap_mb=25
        )
    copied = Copied(model) if "copied" in how else None
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    count = job.get("count", iterations)
    steps = shapes(batch, sequence, count, "dyn" in how, job.get("batch"))
    for rows, length in list(steps)[slice(*job.get("steps", [None]))]:
        with record(rows * length):
            x = torch.randint(0, vocabulary, (rows, length), device="cuda")
            saved = contextlib.nullcontext()
            if "offload" in how:
                saved = torch.autograd.graph.save_on_cpu(pin_memory=True)
            if copied:
                saved = copied.hooks()
            with saved:
                loss = model(input_ids=x, labels=x, use_cache=False).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            record.value(float(loss.detach()))
            del loss, x


def serve(job, record):
    name, batch, requests = SERVING[job["workload"]]
    model, vocabulary = build(name)
    model.eval()
    rng = random.Random(3)
    with torch.inference_mode():
        for _ in range(job.get("requests", requests)):
            rows, length = rng.randrange(1, batch + 1), int(2 ** rng.uniform(5, 12))
            tokens = rng.randrange(8, 40)
            with record(rows * tokens):
                x = token = torch.randint(0, vocabulary, (rows, length), device="cuda")
                cache, total = None, 0
                for _ in range(tokens):
                    out = model(input_ids=token, past_key_values=cache, use_cache=True)
                    cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
                    del out
                    total = total + token.sum()
                record.value(float(total))
                del cache, token, x, total


def own_shapes(job):
    batch, size, iterations = OWN[job["workload"]]
    steps = shapes(batch, size, job.get("count", iterations), True, job.get("batch"))
    return list(steps)[slice(*job.get("steps", [None]))]


def pipeline(job, record, micro_batches=6):
    """Two stages, each on its stream. A micro batch goes forward while the one before it goes
    back."""

    def stage():
        options = {"device": "cuda", "dtype": torch.bfloat16}
        layers = (
            nn.TransformerEncoderLayer(
                2048, 16, 8192, dropout=0, batch_first=True, norm_first=True, **options
            )
            for _ in range(8)
        )
        return nn.Sequential(*layers)

    stages, streams = [stage(), stage()], [torch.cuda.Stream(), torch.cuda.Stream()]
    optimizer = torch.optim.AdamW([p for s in stages for p in s.parameters()], lr=1e-5)

    def forward(rows, length):
        with torch.cuda.stream(streams[0]):
            x = torch.randn(rows, length, 2048, device="cuda", dtype=torch.bfloat16)
            middle = stages[0](x)
        streams[1].wait_stream(streams[0])
        middle.record_stream(streams[1])
        with torch.cuda.stream(streams[1]):
            return stages[1](middle).float().square().mean()

    def backward(loss):
        with torch.cuda.stream(streams[1]):
            loss.backward()
            return loss.detach()

    for rows, length in own_shapes(job):
        with record(rows * length * micro_batches):
            for stream in streams:
                stream.wait_stream(torch.cuda.current_stream())
            losses, before = [], None
            for _ in range(micro_batches):
                loss = forward(rows, length)
                if before is not None:
                    losses.append(backward(before))
                before = loss
            losses.append(backward(before))
            del loss, before
            for stream in streams:
                torch.cuda.current_stream().wait_stream(stream)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            record.value(sum(float(loss) for loss in losses) / micro_batches)


def distill(job, record):
    """A model learns from a larger one, which runs one batch ahead on a stream of its own."""
    teacher, vocabulary = build("opt-1.3b")
    student, _ = build("opt-0.3b")
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5)
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()

    def ask(shape):
        x = torch.randint(0, vocabulary, shape, device="cuda")
        side.wait_stream(main)
        x.record_stream(side)
        with torch.cuda.stream(side), torch.no_grad():
            logits = teacher(input_ids=x, use_cache=False).logits
        return x, logits

    steps = own_shapes(job)
    ahead = None
    for i, shape in enumerate(steps):
        with record(shape[0] * shape[1]):
            x, target = ahead or ask(shape)
            logits = student(input_ids=x, use_cache=False).logits
            main.wait_stream(side)
            target.record_stream(main)
            ahead = ask(steps[i + 1]) if i + 1 < len(steps) else None
            loss = nn.functional.kl_div(
                logits.float().log_softmax(-1), target.float().softmax(-1), reduction="batchmean"
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            record.value(float(loss.detach()) / shape[1])
            del x, target, logits, loss


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


def prefetch(job, record):
    """A convolutional network whose images, of varying size, come from the host on a stream of
    their own, two batches ahead."""
    layers, channels = [], 3
    for wide in (64, 128, 256, 512):
        layers += [nn.Conv2d(channels, wide, 3, stride=2, padding=1), Residual(wide)]
        layers += [Residual(wide)]
        channels = wide
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    model = nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch, side, _ = OWN[job["workload"]]
    host = torch.randint(0, 256, (batch * 3 * side * side,), dtype=torch.uint8).pin_memory()
    copies, main = torch.cuda.Stream(), torch.cuda.current_stream()
    steps = own_shapes(job)
    waiting = []

    def fetch():
        if steps:
            rows, size = steps.pop(0)
            size = max(32, size // 32 * 32)
            with torch.cuda.stream(copies):
                raw = host[: rows * 3 * size * size].to("cuda", non_blocking=True)
                images = raw.view(rows, 3, size, size).to(torch.bfloat16).div_(255)
            waiting.append(images)

    fetch(), fetch()
    while waiting:
        images = waiting.pop(0)
        with record(images.shape[0]):
            main.wait_stream(copies)
            images.record_stream(main)
            fetch()
            labels = torch.randint(0, 1000, (images.shape[0],), device="cuda")
            loss = nn.functional.cross_entropy(model(images).float(), labels)
            del images
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            record.value(float(loss.detach()))
            del loss, labels


class Record:
    """Times steps, each between two synchronisations."""

    def __init__(self):
        self.seconds, self.units, self.values = [], [], []
        self.mark = None  # is told of each step
        self.turn = None  # waits before the first step, and when it is told how long one took
        self.begun = None  # when the first one began

    def value(self, value):
        self.values.append(value)

    @contextlib.contextmanager
    def __call__(self, units):
        torch.cuda.synchronize()
        if self.turn and not self.seconds:
            self.turn.wait()
        if self.mark:
            self.mark(f"step {len(self.seconds)}")
        start = time.perf_counter()
        self.begun = self.begun or start
        yield
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - start)
        self.units.append(units)
        if self.turn:
            self.turn.tell(self.seconds[-1])


def use_allocator(job, record):
    limit = job.get("limit_bytes", 0)
    if job["allocator"] == "pluggable":
        import gmlake_pool

        os.environ["GMLAKE_TORCH_LIMIT_BYTES"] = str(limit)
        gmlake_pool.enable()
    elif job["allocator"].startswith("gmlake"):
        import gmlake_torch

        os.environ["GMLAKE_TORCH_LIMIT_BYTES"] = str(limit)
        os.environ["GMLAKE_TORCH_RECORD"] = job.get("record", "")
        os.environ["GMLAKE_TORCH_PROFILE"] = job.get("profile", "")
        os.environ["GMLAKE_TORCH_CALLS"] = ""
        if job.get("calls"):
            os.environ["GMLAKE_TORCH_CALLS"] = f"{job['calls']}.{job['rank']}.tsv"
        gmlake_torch.enable()
        record.mark = gmlake_torch.mark
    elif limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(limit / total)


def memory(job):
    if job["allocator"].startswith("gmlake"):
        import gmlake_torch

        stats = gmlake_torch.stats()
        return stats["active_bytes_peak"], stats["reserved_bytes_peak"], stats
    if job["allocator"] == "pluggable":
        import gmlake_pool

        stats = gmlake_pool.stats()
        return stats["active_bytes_peak"], stats["reserved_bytes_peak"], stats
    stats = torch.cuda.memory_stats()
    keep = ("num_alloc_retries", "num_device_alloc", "num_device_free", "num_sync_all_streams")
    kept = {name: stats[name] for name in keep if name in stats}
    kept["backend"] = torch.cuda.get_allocator_backend()
    live = stats.get("active_bytes.all.peak") or stats["allocated_bytes.all.peak"]
    return live, stats["reserved_bytes.all.peak"], kept


def program_of(workload):
    own = {"pipeline-dyn": pipeline, "distill-dyn": distill, "prefetch-dyn": prefetch}
    own.update({"llama-1b-graphs": serving.graphed, "llama-1b-compile": serving.compiled})
    return own.get(workload) or (serve if workload in SERVING else train)


def run(job, turn=None):
    """What happened, as a dict for JSON. Meant for a process of its own."""
    result = {**job, "error": None}
    for name in ("rendezvous", "rank", "record", "profile", "calls"):
        result.pop(name, None)
    record, start = Record(), time.perf_counter()
    record.turn = turn
    try:
        use_allocator(job, record)
        torch.cuda.set_device(job["rank"])
        if job["ranks"] > 1:
            torch.distributed.init_process_group(
                "nccl",
                init_method="file://" + job["rendezvous"],
                rank=job["rank"],
                world_size=job["ranks"],
                device_id=torch.device("cuda", job["rank"]),
            )
        torch.manual_seed(0)
        program_of(job["workload"])(job, record)
    except Exception as error:  # one program that fails does not stop the others
        result["error"] = f"{type(error).__name__}: {error}"[:300]
    result["wall_seconds"] = round(time.perf_counter() - start, 3)
    result["before_seconds"] = round((record.begun or start) - start, 5)
    result["seconds"] = [round(x, 5) for x in record.seconds]
    result["units"], result["losses"] = record.units, record.values
    try:
        live, reserved, stats = memory(job)
        result.update(peak_live_bytes=live, peak_reserved_bytes=reserved, stats=stats)
        if job["allocator"].startswith("gmlake"):
            import gmlake_torch

            gmlake_torch.flush()
    except (RuntimeError, TypeError) as error:
        result["error"] = result["error"] or str(error)[:300]
    return result
