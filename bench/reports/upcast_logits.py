"""Logits and their copies in float32, huggingface/transformers#30860 (#33902): batches of varying
length, a vocabulary of 128,256. The model makes logits in bfloat16, then .float(), then a shifted
copy that is contiguous; the backward pass makes gradients of two of them."""
import random

VOCABULARY = 128256


def main(empty):
    draw = random.Random(2)
    weights = empty(2 << 30)
    for _ in range(200):
        tokens = 256 + int(draw.random() * 3840)
        hidden = [empty(tokens * 4096 * 2) for _ in range(16)]
        logits = empty(tokens * VOCABULARY * 2)
        floats = empty(tokens * VOCABULARY * 4)
        del logits
        shifted = empty((tokens - 1) * VOCABULARY * 4)
        gradient = empty((tokens - 1) * VOCABULARY * 4)
        del shifted
        half = empty(tokens * VOCABULARY * 2)
        del floats, gradient, half
        while hidden:
            gradient = empty(tokens * 4096 * 2)
            hidden.pop()
        del gradient
    del weights
