"""transformers' generate: prompts of varying length, greedily and by beams; caches that grow."""
import random

import torch
from transformers import AutoModelForCausalLM, LlamaConfig


def main(steps, end_step):
    config = LlamaConfig(
        hidden_size=2048, intermediate_size=5504, num_hidden_layers=24, num_attention_heads=16
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    model.eval()
    draw = random.Random(5)
    for step in range(steps):
        rows, tokens = draw.randrange(4, 17), draw.randrange(64, 1537)
        ids = torch.randint(3, config.vocab_size, (rows, tokens), device="cuda")
        beams = 4 if step % 3 == 2 else 1
        with torch.no_grad():
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=32,
                min_new_tokens=32,
                num_beams=beams,
                do_sample=False,
                pad_token_id=0,
            )
        end_step(float(found[:, tokens:].sum().item()))
