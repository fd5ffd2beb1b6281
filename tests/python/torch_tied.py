"""A model whose output matrix is its embedding, trained alone: the matrix is protected once, under two names."""
import torch
import torch.distributed as dist
from torch import nn

import kintsugi.torch


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.middle = nn.Embedding(16, 8), nn.Linear(8, 8)
        self.output = nn.Linear(8, 16, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(torch.tanh(self.middle(self.embedding(tokens))))


torch.manual_seed(3)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
model = Tied()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
run.register(model=model, optimizer=optimizer)
assert "model/embedding.weight" in run.plan() and "also model/output.weight" in run.plan(), run.plan()


def step(k):
    tokens = torch.arange(16)
    loss = nn.functional.cross_entropy(model(tokens), tokens.roll(1))
    optimizer.zero_grad()
    loss.backward()
    run.report(loss, [k])
    optimizer.step()


run.train(step, 2)
assert model.output.weight is model.embedding.weight
