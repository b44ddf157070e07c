"""Serving with a static cache: a decoder of 1.5 billion random weights. Prompts are read eagerly,
one batch after the other. Each further token is a step of the same shape: captured as a CUDA graph
for each batch size (`graphed`), or compiled with torch.compile(mode="reduce-overhead")
(`compiled`).
"""
import random

import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, KV_HEADS, INNER, WORDS = 2048, 16, 32, 8, 8192, 128256
HEAD = WIDTH // HEADS
PLACES = 4224  # of the cache: the longest prompt and what is generated
# Batch sizes, and requests.
PROGRAMS = {"llama-1b-graphs": ((1, 2, 4, 8, 16), 24), "llama-1b-compile": ((8,), 16)}


def rotate(x, angles):
    left, right = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.ask = nn.Linear(WIDTH, WIDTH, bias=False)
        self.tell = nn.Linear(WIDTH, 2 * KV_HEADS * HEAD, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(rows, KV_HEADS, PLACES, HEAD))
        self.register_buffer("values", torch.zeros(rows, KV_HEADS, PLACES, HEAD))

    def forward(self, x, places, mask):
        """mask: which places a token sees; None: the tokens are a prompt, from place 0 on."""
        rows, length, _ = x.shape
        speeds = 10000 ** (-torch.arange(0, HEAD, 2, device=x.device) / HEAD)
        angles = places[:, None] * speeds
        h = self.before(x)
        q = rotate(self.ask(h).view(rows, length, HEADS, HEAD).transpose(1, 2), angles)
        k, v = self.tell(h).view(rows, length, 2, KV_HEADS, HEAD).permute(2, 0, 3, 1, 4)
        k = rotate(k, angles)
        self.keys[:rows].index_copy_(2, places, k)
        self.values[:rows].index_copy_(2, places, v)
        if mask is not None:
            k, v = self.keys[:rows], self.values[:rows]
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, WIDTH))
        gate, up = self.up(self.between(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(rows) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens, places, mask=None):
        """The next token of each row."""
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, places, mask)
        return self.head(self.norm(x[:, -1:])).argmax(-1)

    def step(self, tokens, place):
        """The same for one token a row, all at the same place."""
        seen = torch.arange(PLACES, device=tokens.device) <= place
        return self(tokens, place, seen[None, None, None, :].expand(tokens.shape[0], 1, 1, PLACES))


def build(rows):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Decoder(rows)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def requests(job):
    batches, count = PROGRAMS[job["workload"]]
    rng = random.Random(3)
    for _ in range(job.get("requests", count)):
        yield rng.choice(batches), int(2 ** rng.uniform(5, 12)), rng.randrange(32, 97)


class Captured:
    """The step for a number of rows, as a CUDA graph that goes on by itself."""

    def __init__(self, model, rows, pool):
        self.tokens = torch.zeros(rows, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.total = torch.zeros((), dtype=torch.int64, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.advance(model)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.advance(model)

    def advance(self, model):
        self.tokens.copy_(model.step(self.tokens, self.place))
        self.place.add_(1)
        self.total.add_(self.tokens.sum())

    def run(self, token, place, count):
        self.tokens.copy_(token)
        self.place.fill_(place)
        self.total.zero_()
        for _ in range(count):
            self.graph.replay()
        return self.total


def serve(job, record, start):
    """start(model, batches) returns a function that generates `count` tokens for each row."""
    batches, _ = PROGRAMS[job["workload"]]
    model = build(max(batches))
    with torch.no_grad():
        generate = start(model, batches)
        for rows, length, count in requests(job):
            with record(rows * count):
                x = torch.randint(0, WORDS, (rows, length), device="cuda")
                token = model(x, torch.arange(length, device="cuda"))
                record.value(float(generate(token, length, count)))
                del x, token


def graphed(job, record):
    def start(model, batches):
        pool = torch.cuda.graph_pool_handle()
        graphs = {rows: Captured(model, rows, pool) for rows in sorted(batches, reverse=True)}
        return lambda token, place, count: graphs[token.shape[0]].run(token, place, count)

    serve(job, record, start)


def compiled(job, record):
    def start(model, batches):
        for buffer in model.buffers():
            torch._dynamo.mark_static_address(buffer)
        step = torch.compile(model.step, mode="reduce-overhead", dynamic=False)

        def generate(token, place, count):
            place = torch.full((1,), place, device="cuda")
            total = torch.zeros((), dtype=torch.int64, device="cuda")
            for _ in range(count):
                torch.compiler.cudagraph_mark_step_begin()
                token = step(token, place).clone()
                place = place + 1
                total += token.sum()
            return total

        for rows in batches:  # compiles, warms up and captures
            generate(torch.zeros(rows, 1, dtype=torch.int64, device="cuda"), 0, 4)
        return generate

    serve(job, record, start)
