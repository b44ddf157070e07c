"""Training and serving programs of torch and transformers, with random weights: nothing is fetched.
Names say the model, and how it is trained: N plainly, L with LoRA, R with recomputation, O with
activations offloaded to the host; dyn: batch and sequence vary from step to step.
"""
import contextlib
import functools
import os
import random
import time

import torch
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
    "fsdp2-opt-1.3b-R": ("opt-1.3b", 16, 1024, 6, "recompute sharded"),
}
SERVING = {"llama-1b-serve": ("llama-1b", 16, 40)}  # model, batch, requests
NAMES = [*TRAINING, *SERVING]


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
    if "sharded" in how:
        model = shard(model)
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    steps = shapes(batch, sequence, iterations, "dyn" in how, job.get("batch"))
    for rows, length in list(steps)[slice(*job.get("steps", [None]))]:
        with record(rows * length):
            x = torch.randint(0, vocabulary, (rows, length), device="cuda")
            saved = contextlib.nullcontext()
            if "offload" in how:
                saved = torch.autograd.graph.save_on_cpu(pin_memory=True)
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


class Record:
    """Times steps, each between two synchronisations."""

    def __init__(self):
        self.seconds, self.units, self.values = [], [], []

    def value(self, value):
        self.values.append(value)

    @contextlib.contextmanager
    def __call__(self, units):
        torch.cuda.synchronize()
        start = time.perf_counter()
        yield
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - start)
        self.units.append(units)


def use_allocator(job):
    limit = job.get("limit_bytes", 0)
    if job["allocator"].startswith("gmlake"):
        import gmlake_torch

        os.environ["GMLAKE_TORCH_LIMIT_BYTES"] = str(limit)
        gmlake_torch.enable(job["library"])
    elif limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(limit / total)


def memory(job):
    if job["allocator"].startswith("gmlake"):
        import gmlake_torch

        stats = gmlake_torch.stats()
        return stats["active_bytes_peak"], stats["reserved_bytes_peak"], stats
    stats = torch.cuda.memory_stats()
    keep = ("num_alloc_retries", "num_device_alloc", "num_device_free", "num_sync_all_streams")
    kept = {name: stats[name] for name in keep if name in stats}
    kept["backend"] = torch.cuda.get_allocator_backend()
    live = stats.get("active_bytes.all.peak") or stats["allocated_bytes.all.peak"]
    return live, stats["reserved_bytes.all.peak"], kept


def run(job):
    """What happened, as a dict for JSON. Meant for a process of its own."""
    result = {**job, "error": None}
    for name in ("library", "rendezvous", "rank"):
        result.pop(name, None)
    record, start = Record(), time.perf_counter()
    try:
        use_allocator(job)
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
        (serve if job["workload"] in SERVING else train)(job, record)
    except (RuntimeError, torch.OutOfMemoryError) as error:
        result["error"] = f"{type(error).__name__}: {error}"[:300]
    result["wall_seconds"] = round(time.perf_counter() - start, 3)
    result["seconds"] = [round(x, 5) for x in record.seconds]
    result["units"], result["losses"] = record.units, record.values
    try:
        live, reserved, stats = memory(job)
        result.update(peak_live_bytes=live, peak_reserved_bytes=reserved, stats=stats)
    except (RuntimeError, TypeError) as error:
        result["error"] = result["error"] or str(error)[:300]
    return result
