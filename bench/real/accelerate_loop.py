"""accelerate: a training loop as its documentation shows one, with mixed precision and gradients
that are accumulated over three batches of varying length."""
import random

import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, GPT2Config, get_linear_schedule_with_warmup


def main(steps, end_step):
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=3)
    config = GPT2Config(n_embd=1280, n_layer=36, n_head=20)
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    schedule = get_linear_schedule_with_warmup(optimizer, 2, steps)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    draw = random.Random(17)
    model.train()
    for _ in range(steps):
        total = 0.0
        for _ in range(3):
            tokens = draw.randrange(256, 1025)
            ids = torch.randint(0, config.vocab_size, (8, tokens), device=accelerator.device)
            with accelerator.accumulate(model):
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            total += loss.item()
        end_step(total / 3)
