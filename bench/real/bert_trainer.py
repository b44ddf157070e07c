"""transformers' Trainer: BERT of the large shape learns to classify texts of varying length. All
of it is trained, and it evaluates every eight steps."""
import random
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback
from transformers import TrainingArguments

ROWS = 32


class Texts(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        draw = random.Random(seed)
        lengths = [draw.randrange(32, 385) for _ in range(count)]
        self.rows = [([draw.randrange(5, 30000) for _ in range(n)], n % 2) for n in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def padded(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    labels = torch.tensor([label for _, label in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def main(steps, end_step):
    class Steps(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in logs:
                end_step(logs["loss"])

    shape = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    model = BertForSequenceClassification(BertConfig(**shape, intermediate_size=4096))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=ROWS,
            per_device_eval_batch_size=2 * ROWS,
            max_steps=steps,
            bf16=True,
            logging_steps=1,
            save_strategy="no",
            eval_strategy="steps",
            eval_steps=8,
            report_to=[],
            disable_tqdm=True,
        )
        Trainer(
            model=model,
            args=arguments,
            train_dataset=Texts(ROWS * steps, 3),
            eval_dataset=Texts(4 * ROWS, 4),
            data_collator=padded,
            callbacks=[Steps()],
        ).train()
