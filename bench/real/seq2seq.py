"""transformers: T5 of the large shape with 12 layers each way, as its page on translation trains it
in a plain loop: lengths vary, two micro-batches a step, and every eight steps it generates."""
import random

import torch
from transformers import T5Config, T5ForConditionalGeneration

ROWS = 12


def main(steps, end_step):
    config = T5Config(
        d_model=1024,
        d_kv=64,
        d_ff=2816,
        num_layers=12,
        num_heads=16,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    draw = random.Random(5)
    for step in range(steps):
        model.train()
        for _ in range(2):
            lengths = draw.randrange(128, 513, 8), draw.randrange(64, 257, 8)
            source, target = (torch.randint(5, 32000, (ROWS, n), device="cuda") for n in lengths)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=source, labels=target).loss / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 8 == 7:
            model.eval()
            with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
                model.generate(source, max_new_tokens=24, do_sample=False)
        end_step(loss.item())
