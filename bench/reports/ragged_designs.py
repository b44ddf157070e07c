"""One design after the other, RosettaCommons/RFdiffusion#451: a protein of 470 to 519 residues,
each time of another length, so pairs of residues take other sizes in each design. Reported: from 7
to 13 GB over hundreds of designs."""
import random


def main(empty):
    draw = random.Random(5)
    weights = empty(500 << 20)
    for _ in range(300):
        length = 470 + int(draw.random() * 50)
        pairs = length * length * 4
        state = empty(pairs * 128)
        for _ in range(4):  # blocks of a step
            update = empty(pairs * 128)
            heads = empty(pairs * 4)
            left, right = empty(pairs * 64), empty(pairs * 64)
            product = empty(pairs * 128)
            del left, right, heads
            state = empty(pairs * 128)
            del update, product
        templates = empty(pairs * 88)
        del templates, state
    del weights
