"""timm: ViT-L in float16 under torch's GradScaler, with stochastic depth, a schedule of rates and
two micro-batches a step."""
import timm
import torch


def main(steps, end_step):
    model = timm.create_model("vit_large_patch16_224", num_classes=100, drop_path_rate=0.1).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        for _ in range(2):
            images = torch.randn(32, 3, 224, 224, device="cuda")
            labels = torch.randint(0, 100, (32,), device="cuda")
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(images), labels) / 2
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        schedule.step()
        end_step(loss.item())
