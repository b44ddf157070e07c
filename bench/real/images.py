"""timm: EfficientNetV2-M with progressive resizing, an average of the weights, and an evaluation
every ten steps."""
import timm
import timm.loss
import timm.optim
import timm.utils
import torch


def main(steps, end_step):
    model = timm.create_model("tf_efficientnetv2_m", num_classes=1000).cuda()
    average = timm.utils.ModelEmaV3(model, decay=0.999)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    criterion = timm.loss.LabelSmoothingCrossEntropy().cuda()
    for step in range(steps):
        side = (160, 192, 224, 256)[step * 4 // steps]
        model.train()
        images = torch.randn(64, 3, side, side, device="cuda")
        labels = torch.randint(0, 1000, (64,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        average.update(model)
        if step % 10 == 9:
            with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
                average.module.eval()
                average.module(torch.randn(128, 3, 288, 288, device="cuda"))
        end_step(loss.item())
