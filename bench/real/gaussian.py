"""GPyTorch: exact Gaussian processes over data sets of varying size, as its first tutorial trains
one."""
import random

import gpytorch
import torch


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def main(steps, end_step):
    draw = random.Random(11)
    for _ in range(steps):
        points = draw.randrange(6000, 14001)
        x = torch.rand(points, 4, device="cuda")
        y = torch.sin(x.sum(1) * 6) + torch.randn(points, device="cuda") * 0.1
        likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
        model = Exact(x, y, likelihood).cuda()
        model.train()
        likelihood.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        likelihood_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        for _ in range(4):
            optimizer.zero_grad()
            loss = -likelihood_of(model(x), y)
            loss.backward()
            optimizer.step()
        end_step(loss.item())
