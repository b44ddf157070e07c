"""A bi-encoder, trained on pairs in batches of varying length and size: a BERT of 24 layers, mean
pooling, the loss over the pairs of a batch, AdamW of many tensors at once."""
import random

import torch
from transformers import BertConfig, BertModel


def pooled(model, ids, mask):
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


def main(steps, end_step):
    config = BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    model = BertModel(config).to("cuda")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, foreach=True)
    draw = random.Random(3)
    for _ in range(steps):
        rows = draw.randrange(48, 129)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            sides = []
            for _ in range(2):
                tokens = draw.randrange(64, 385)
                ids = torch.randint(5, config.vocab_size, (rows, tokens), device="cuda")
                sides.append(pooled(model, ids, torch.ones_like(ids)))
            scores = sides[0] @ sides[1].t() * 20
            loss = torch.nn.functional.cross_entropy(scores, torch.arange(rows, device="cuda"))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        end_step(loss.item())
