"""Batches of varying length, pytorch/pytorch#122781: nn.Embedding for 1,024 rows of up to 1,023
tokens, 256 floats a token. Reported were 11,626 MB after 365 batches, where two outputs need 2,046
at most: if a batch is longer than all before, a segment of its size is added, and none goes."""
import random


def main(empty):
    draw, output = random.Random(1), None
    for _ in range(1000):
        length = int(draw.random() * 1024)
        tokens = empty(1024 * length * 8)
        output = empty(1024 * length * 256 * 4)  # the one before lives until now
        del tokens
