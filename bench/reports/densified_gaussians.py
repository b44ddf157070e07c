"""Gaussians that become more, nerfstudio-project/gsplat#444 (#891): each 100 steps there are 5 %
more of them. torch.cat makes each parameter, and both of its moments, anew, a little larger than
what was freed. A step's rendering makes gradients, and buffers whose size depends on the view."""
import random

FLOATS = (3, 3, 4, 1, 3, 45)  # means, scales, rotations, opacities, colours


def main(empty):
    draw = random.Random(3)
    count = 200_000
    tensors = {(width, i): empty(count * width * 4) for i in range(3) for width in FLOATS}
    while count < 6_000_000:
        for _ in range(5):  # of the steps between
            seen = empty(int(count * (0.5 + draw.random()) * 40))
            keys = empty(int(count * (0.5 + draw.random()) * 24))
            gradients = [empty(count * width * 4) for width in FLOATS]
            del seen, keys, gradients
        count = int(count * 1.05)
        for width, i in tensors:
            tensors[width, i] = empty(count * width * 4)  # the old one goes after the copy
