"""torch_geometric: a graph network over batches of graphs of varying size."""
import random

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATv2Conv, global_mean_pool


class Network(torch.nn.Module):
    def __init__(self, width=512, heads=4, layers=6):
        super().__init__()
        self.first = torch.nn.Linear(64, width)
        self.layers = torch.nn.ModuleList(
            GATv2Conv(width, width // heads, heads=heads) for _ in range(layers)
        )
        self.last = torch.nn.Linear(width, 16)

    def forward(self, data):
        x = self.first(data.x)
        for layer in self.layers:
            x = x + torch.relu(layer(x, data.edge_index))
        return self.last(global_mean_pool(x, data.batch))


def main(steps, end_step):
    draw = random.Random(13)
    model = Network().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        graphs = []
        for _ in range(draw.randrange(8, 33)):
            nodes = draw.randrange(500, 6001)
            edges = torch.randint(0, nodes, (2, nodes * 12))
            label = torch.tensor([draw.randrange(16)])
            graphs.append(Data(x=torch.randn(nodes, 64), edge_index=edges, y=label))
        batch = Batch.from_data_list(graphs).to("cuda")
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
        loss.backward()
        optimizer.step()
        end_step(loss.item())
