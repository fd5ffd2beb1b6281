"""A model with large buffers of each rank's own: masks that stay what they are, a queue, and one that is written past torch's counters.
PLAIN=1: the same under plain torch over Gloo. What is left, bit for bit, goes to FOLDER/rank-N.json.

  torch_buffers.py FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from beside import begin, digest, leave

STEPS = 12


class Masked(nn.Module):
    masks: Tensor
    queue: Tensor
    past: Tensor

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        # More than one message of a repair had once: 64 MiB for both ranks' objects.
        self.register_buffer("masks", torch.ones(10, 1024, 1024).tril().add_(rank))
        self.register_buffer("queue", torch.zeros(512, 1024))
        self.register_buffer("past", torch.zeros(512, 1024))

    def forward(self, batch: Tensor) -> Tensor:
        return self.norm(self.layer(batch)).sum() * self.masks[0, 0, 0] + self.queue.sum() + self.past.sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    run = begin()
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = Masked(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    if run is not None:
        run.register(model=model, optimizer=optimizer)
        assert "model.buffers/masks: 41,943,040 bytes, sent to the partners only where it has changed" in run.plan(), run.plan()

    def step(k: int) -> None:
        if k % 4 == 0:
            model.queue[k] = k + rank
        model.past.data[k] = k - rank
        loss = model(torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * k + rank)))
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()

    if run is None:
        for k in range(1, STEPS + 1):
            step(k)
    else:
        run.train(step, STEPS)
    left = {name: digest(tensor) for name, tensor in model.state_dict().items()}
    leave(options.folder, {"model": left})


if __name__ == "__main__":
    main()
