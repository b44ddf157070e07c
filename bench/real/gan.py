"""torch's tutorial on generative adversarial networks (DCGAN), with pictures of 128 x 128: two
models, two optimizers, and each step runs one of the models twice."""
import torch
from torch import nn

ROWS, NOISE, WIDTHS = 256, 128, (64, 128, 256, 512, 1024)


def generator():
    layers = [nn.ConvTranspose2d(NOISE, WIDTHS[-1], 4, 1, 0), nn.ReLU()]
    for i in range(len(WIDTHS) - 1, 0, -1):
        layers += [nn.ConvTranspose2d(WIDTHS[i], WIDTHS[i - 1], 4, 2, 1)]
        layers += [nn.BatchNorm2d(WIDTHS[i - 1]), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(WIDTHS[0], 3, 4, 2, 1), nn.Tanh())


def discriminator():
    layers = [nn.Conv2d(3, WIDTHS[0], 4, 2, 1), nn.LeakyReLU(0.2)]
    for i in range(len(WIDTHS) - 1):
        layers += [nn.Conv2d(WIDTHS[i], WIDTHS[i + 1], 4, 2, 1)]
        layers += [nn.BatchNorm2d(WIDTHS[i + 1]), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(WIDTHS[-1], 1, 4))


def main(steps, end_step):
    makes, judges = generator().cuda(), discriminator().cuda()
    of_makes = torch.optim.Adam(makes.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_judges = torch.optim.Adam(judges.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(steps):
        real = torch.rand(ROWS, 3, 128, 128, device="cuda")
        fake = makes(torch.randn(ROWS, NOISE, 1, 1, device="cuda"))
        of_judges.zero_grad()
        found = judges(real), judges(fake.detach())
        loss = criterion(found[0], torch.ones_like(found[0]))
        (loss + criterion(found[1], torch.zeros_like(found[1]))).backward()
        of_judges.step()
        of_makes.zero_grad()
        again = judges(fake)
        loss = criterion(again, torch.ones_like(again))
        loss.backward()
        of_makes.step()
        end_step(loss.item())
