"""Checks what gmlake_torch sees of real programs, with torch and without a GPU:

    python3 tests/clients/torch_dispatch.py FOLDER

records a small training on the CPU, on meta and with fake tensors. All three have to execute the
same operators on the same storages.
"""
import os
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from dispatch_stub import package


class Model(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.one = torch.nn.Linear(64, 256, device=device)
        self.two = torch.nn.Linear(256, 64, device=device)

    def forward(self, x):
        y = checkpoint(lambda x: torch.relu(self.one(x)), x, use_reentrant=False)
        return self.two(y).view(-1).square().mean()


def train(device, steps=2):
    model = Model(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for _ in range(steps):
        yield
        x = torch.ones(128, 64, device=device).requires_grad_()
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del x
    yield


def graph(record, folder, device, mode=None):
    path = os.path.join(folder, f"{'fake' if mode else device}.gmgraph")
    with mode or torch.enable_grad():
        with record.Recorder(path, marks_steps=False) as recorder:
            for _ in train(device):
                recorder.mark()
    with open(path) as file:
        lines = [line.split() for line in file if line[0] in "tom"]
    for words in lines:
        if words[0] == "o":
            words[2] = "time"
    return lines


def check_graphs(record, folder):
    cpu = graph(record, folder, "cpu")
    names = [words[1].split(".")[0] for words in cpu if words[0] == "o"]
    kinds = {words[1]: words[3] for words in cpu if words[0] == "t"}
    assert names.count("addmm") == 2 * 3, names  # recomputation is seen, in the backward pass, too
    assert "view" not in names and "t" not in names and "detach" not in names, names
    assert [kinds[str(i)] for i in range(4)] == ["p"] * 4 and "a" in kinds.values(), kinds
    marks = [i for i, words in enumerate(cpu) if words[0] == "m"]
    first, second = cpu[marks[0] + 1 : marks[1]], cpu[marks[1] + 1 : marks[2]]
    assert len(second) > 20 and abs(len(first) - len(second)) < 8, (len(first), len(second))
    assert graph(record, folder, "meta") == cpu
    if int(torch.__version__.split(".")[0]) >= 2:  # earlier ones fail in the optimizer
        assert graph(record, folder, "cpu", FakeTensorMode()) == cpu


if __name__ == "__main__":
    package()
    from gmlake_torch import record

    check_graphs(record, sys.argv[1])
