"""Two workspaces that grow with each step, ggml-org/llama.cpp#22107 (also #23446, #23620): with
flash attention and a quantized cache each step makes f16 copies of all keys and all values, which
are longer than at the step before. No buffer that was given back is ever large enough."""

MIB = 1 << 20


def main(empty):
    for step in range(1, 401):
        keys = empty(step * MIB // 2)
        values = empty(step * MIB // 2)
        del keys, values
