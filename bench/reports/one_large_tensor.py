"""Half of the memory cannot be used, pytorch/pytorch#35901: an iteration makes many activations, of
11 to 18 MiB, then one tensor of 11.6 GB, then frees them all. Lengths vary. In the next iteration
activations are put where the large tensor was, so that it needs another segment."""
import random

LARGE = 11_643_387_904


def main(empty):
    draw = random.Random(4)
    for _ in range(12):
        length = 0.7 + 0.3 * draw.random()
        activations = []
        for i in range(60):
            size = (16_515_072, 11_400_192, 18_191_360)[i % 3]
            activations.append(empty(int(size * length)))
            temporary = empty(int(size * length) // 2)
            del temporary
        large = empty(int(LARGE * length))
        gradients = [empty(int(16_515_072 * length)) for _ in range(20)]
        del large
        activations.clear()
        gradients.clear()
