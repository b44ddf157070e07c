"""Scores of an indexer, vllm-project/vllm#56457 and #55569: a prompt of 254,000 tokens comes in
chunks of 4,096; each of 12 layers scores a chunk against a quarter of the tokens so far, in
float32, at most 512 MiB at a time. Each chunk's scores have another size; the cache keeps all."""

MIB = 1 << 20


def main(empty):
    for context in range(4096, 254001, 4096):
        row = context // 4 * 4
        for _ in range(12):
            rows = 4096
            while rows:
                now = min(rows, 512 * MIB // row)
                scores = empty(now * row)
                chosen = empty(now * 2048 * 4)
                rows -= now
                del scores, chosen
