#!/usr/bin/env python3
"""Writes a llama model of random weights as GGUF, for measuring without a download.

random_model.py OUT SHAPE TYPE VOCABULARY
  SHAPE       tiny, 1b, 3b or 7b
  TYPE        f16, q8_0 or q4_0
  VOCABULARY  a GGUF with a tokenizer: models/ggml-vocab-llama-spm.gguf of llama.cpp
"""

import os
import random
import struct
import sys

# layers, width, width of the feed-forward part, heads, heads of keys and values
SHAPES = {
    "tiny": (3, 256, 512, 4, 2),
    "1b": (16, 2048, 8192, 16, 8),
    "3b": (28, 3072, 8192, 24, 8),
    "7b": (32, 4096, 14336, 32, 8),
}
# number in GGUF, number of the file type, values and bytes of a block
TYPES = {"f32": (0, 0, 1, 4), "f16": (1, 1, 1, 2), "q4_0": (2, 2, 32, 18), "q8_0": (8, 7, 32, 34)}
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def behind(data, at, kind):
    """Where the value of a key ends."""
    if kind == 8:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != 9:
        return at + SIZES[kind]
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in SIZES:
        return at + count * SIZES[inner]
    for _ in range(count):
        at = behind(data, at, inner)
    return at


def tokenizer(path):
    """The tokenizer's keys as they stand in the file, how many, and how many tokens."""
    data = open(path, "rb").read()
    count = struct.unpack_from("<Q", data, 16)[0]
    at, out, number, vocabulary = 24, b"", 0, 0
    for _ in range(count):
        start = at
        size = struct.unpack_from("<Q", data, at)[0]
        key = data[at + 8 : at + 8 + size].decode()
        at += 8 + size
        kind = struct.unpack_from("<I", data, at)[0]
        at += 4
        if key == "tokenizer.ggml.tokens":
            vocabulary = struct.unpack_from("<IQ", data, at)[1]
        at = behind(data, at, kind)
        if key.startswith("tokenizer."):
            out += data[start:at]
            number += 1
    return out, number, vocabulary


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(name) + struct.pack("<If", 6, value)
    return text(name) + struct.pack("<II", 4, value)


def strip_of(kind, width, rng):
    """Blocks of random values of a deviation of about width ** -.5. Tensors are cut out of it."""
    sigma = width**-0.5
    if kind == "f16":
        return struct.pack("<524288e", *(rng.gauss(0, sigma) for _ in range(524288)))
    out = []
    for _ in range(65536):
        if kind == "q4_0":  # values -7 to 7
            body = bytes(rng.randrange(1, 16) | rng.randrange(1, 16) << 4 for _ in range(16))
            scale = sigma / 4.6
        else:
            body, scale = rng.randbytes(32), sigma / 74
        out.append(struct.pack("<e", scale * rng.uniform(0.8, 1.2)) + body)
    return b"".join(out)


def tensors_of(shape, kind, vocabulary):
    layers, width, wide, heads, kv_heads = SHAPES[shape]
    kv = width // heads * kv_heads
    yield "token_embd.weight", (width, vocabulary), kind
    yield "output_norm.weight", (width,), "f32"
    yield "output.weight", (width, vocabulary), kind
    for i in range(layers):
        for name, dims in (
            ("attn_q", (width, width)), ("attn_k", (width, kv)), ("attn_v", (width, kv)),
            ("attn_output", (width, width)), ("ffn_gate", (width, wide)),
            ("ffn_up", (width, wide)), ("ffn_down", (wide, width)),
        ):
            yield "blk.%d.%s.weight" % (i, name), dims, kind
        yield "blk.%d.attn_norm.weight" % i, (width,), "f32"
        yield "blk.%d.ffn_norm.weight" % i, (width,), "f32"


def main():
    out, shape, kind, vocabulary_path = sys.argv[1:5]
    layers, width, wide, heads, kv_heads = SHAPES[shape]
    tokens, token_keys, vocabulary = tokenizer(vocabulary_path)
    keys = [
        key("general.architecture", "llama"), key("general.name", "random " + shape),
        key("general.file_type", TYPES[kind][1]), key("llama.vocab_size", vocabulary),
        key("llama.context_length", 131072), key("llama.embedding_length", width),
        key("llama.block_count", layers), key("llama.feed_forward_length", wide),
        key("llama.rope.dimension_count", width // heads),
        key("llama.attention.head_count", heads), key("llama.attention.head_count_kv", kv_heads),
        key("llama.attention.layer_norm_rms_epsilon", 1e-5),
        key("llama.rope.freq_base", 500000.0),
    ]
    infos, sizes, at = b"", [], 0
    for name, dims, t in tensors_of(shape, kind, vocabulary):
        number, _, values, block = TYPES[t]
        size = dims[0] * (dims[1] if len(dims) > 1 else 1) // values * block
        infos += text(name) + struct.pack("<I", len(dims))
        infos += struct.pack("<%dQIQ" % len(dims), *dims, number, at)
        sizes.append((t, size))
        at += -(-size // 32) * 32
    rng = random.Random(1)
    strip = memoryview(strip_of(kind, width, rng))
    unit = TYPES[kind][3]
    with open(out + ".part", "wb") as f:
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(sizes), len(keys) + token_keys)
        f.write(head + b"".join(keys) + tokens + infos)
        f.write(b"\0" * (-f.tell() % 32))
        for t, size in sizes:
            if t == "f32":
                f.write(struct.pack("<f", 1.0) * (size // 4))
                rest = 0
            else:
                rest = size
            while rest:
                begin = rng.randrange(len(strip) // unit) * unit
                part = strip[begin : begin + rest]
                f.write(part)
                rest -= len(part)
            f.write(b"\0" * (-size % 32))
    os.replace(out + ".part", out)


main()
