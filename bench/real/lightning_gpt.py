"""Lightning's Trainer: full training of a decoder of 1.3B parameters in bfloat16, with clipped
gradients and a validation every ten steps."""
import lightning
import torch
from transformers import AutoModelForCausalLM, OPTConfig

ROWS, TOKENS = 8, 1024


class Module(lightning.LightningModule):
    def __init__(self, end_step):
        super().__init__()
        config = OPTConfig(
            hidden_size=2048, ffn_dim=8192, num_hidden_layers=24, num_attention_heads=32
        )
        self.model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
        self.end_step = end_step

    def training_step(self, batch, _):
        return self.model(input_ids=batch, labels=batch, use_cache=False).loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(input_ids=batch, labels=batch, use_cache=False).loss)

    def on_train_batch_end(self, outputs, *_):
        self.end_step(outputs["loss"].item())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)


def main(steps, end_step):
    def loader(count):
        generator = torch.Generator().manual_seed(count)
        rows = torch.randint(3, 50000, (count * ROWS, TOKENS), generator=generator)
        return torch.utils.data.DataLoader(rows, batch_size=ROWS)

    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="gpu",
        devices=1,
        gradient_clip_val=1.0,
        val_check_interval=min(10, steps),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Module(end_step), loader(steps), loader(2))
