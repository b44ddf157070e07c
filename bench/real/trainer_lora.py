"""transformers' Trainer with peft's LoRA of a model of 7B parameters, gradient checkpointing and
two micro-batches a step. With `is_varying` the lengths differ, and it evaluates every ten steps."""
import random
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainerCallback
from transformers import TrainingArguments

ROWS, TOKENS = 4, 1024


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count, vocabulary, is_varying):
        draw = random.Random(7)
        self.lengths = [
            draw.randrange(TOKENS // 8, TOKENS + 1) if is_varying else TOKENS for _ in range(count)
        ]
        self.vocabulary = vocabulary

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        ids = torch.randint(3, self.vocabulary, (self.lengths[i],), generator=generator)
        return {"input_ids": ids, "labels": ids}


def padded(rows):
    pad = torch.nn.utils.rnn.pad_sequence
    ids = pad([row["input_ids"] for row in rows], batch_first=True)
    labels = pad([row["labels"] for row in rows], batch_first=True, padding_value=-100)
    return {"input_ids": ids, "labels": labels, "attention_mask": (labels != -100).long()}


def main(steps, end_step, is_varying=False):
    class Steps(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in logs:
                end_step(logs["loss"])

    config = LlamaConfig()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=ROWS,
            per_device_eval_batch_size=ROWS,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            max_steps=steps,
            learning_rate=1e-4,
            bf16=True,
            logging_steps=1,
            save_strategy="no",
            eval_strategy="steps" if is_varying else "no",
            eval_steps=10,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=Tokens(2 * ROWS * steps, config.vocab_size, is_varying),
            eval_dataset=Tokens(4 * ROWS, config.vocab_size, is_varying) if is_varying else None,
            data_collator=padded,
            callbacks=[Steps()],
        )
        trainer.train()
