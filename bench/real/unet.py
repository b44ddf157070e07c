"""A diffusion model's U-Net (residual blocks of two a level, as diffusers' tutorials train one),
with automatic mixed precision, a scaler, clipped gradients and an average of the weights."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional

ROWS, SIZE, WIDTHS, TIMES = 32, 64, (128, 256, 512), 512


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(32, inputs), nn.GroupNorm(32, outputs)])
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.of_time = nn.Linear(TIMES, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        made = self.first(functional.silu(self.norms[0](x))) + self.of_time(time)[:, :, None, None]
        return self.second(functional.silu(self.norms[1](made))) + self.shortcut(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        before = (WIDTHS[0], *WIDTHS[:-1])
        self.time = nn.Sequential(nn.Linear(128, TIMES), nn.SiLU(), nn.Linear(TIMES, TIMES))
        self.first = nn.Conv2d(4, WIDTHS[0], 3, padding=1)
        self.down = nn.ModuleList(
            nn.ModuleList([Residual(a, b), Residual(b, b)]) for a, b in zip(before, WIDTHS)
        )
        self.middle = Residual(WIDTHS[-1], WIDTHS[-1])
        self.up = nn.ModuleList(
            nn.ModuleList([Residual(a + b, b), Residual(b, b)])
            for a, b in zip((WIDTHS[-1], *WIDTHS[:0:-1]), reversed(WIDTHS))
        )
        self.last = nn.Conv2d(WIDTHS[0], 4, 3, padding=1)

    def forward(self, x, steps):
        angles = steps[:, None] * torch.exp(torch.arange(64, device=x.device) * -math.log(1e4) / 64)
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x, levels = self.first(x), []
        for first, second in self.down:
            levels.append(second(first(x, time), time))
            x = functional.avg_pool2d(levels[-1], 2)
        x = self.middle(x, time)
        for first, second in self.up:
            x = torch.cat([functional.interpolate(x, scale_factor=2), levels.pop()], 1)
            x = second(first(x, time), time)
        return self.last(x)


def main(steps, end_step):
    model = UNet().cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler("cuda")
    for _ in range(steps):
        clean = torch.randn(ROWS, 4, SIZE, SIZE, device="cuda")
        noise, times = torch.randn_like(clean), torch.rand(ROWS, device="cuda") * 1000
        with torch.autocast("cuda", torch.float16):
            loss = functional.mse_loss(model(clean + noise, times).float(), noise)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters()):
                mean.lerp_(now, 0.001)
        end_step(loss.item())
