"""Weights converted layer by layer, vllm-project/vllm#41268 and #41158: GPT-OSS 120B on two
GPUs runs out of memory while it starts. Of each of 36 layers the gate and up weights and the down
weights are loaded (506 and 253 MiB by their shapes), then rewritten in the kernel's layout, padded,
530 and 270 MiB. Native puts the 270 MiB where 506 were, and the rest of 236 serves nobody."""

MIB = 1 << 20


def main(empty):
    loaded = [empty(size) for _ in range(36) for size in (530_841_600, 265_420_800)]
    for i, size in enumerate([530 * MIB, 270 * MIB] * 36):
        loaded[i] = empty(size)  # what was loaded goes after the copy
