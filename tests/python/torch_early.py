"""Parameters that a step changes before its gate, in the ways of public scripts: momentum encoders that move in the forward pass (MoCo), which optimizers are
given or not, prototypes that each step normalises first (SwAV), and a teacher that follows behind the update, past torch's counts.
PLAIN=1: the same under plain torch over Gloo. What is left, bit for bit, goes to FOLDER/rank-N.json.

  torch_early.py FOLDER [--throw RANK@STEP]      amid the teacher's change
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from beside import begin, digest, leave

STEPS = 12
Move = Callable[[Tensor, Tensor], None]


def assigned(key: Tensor, query: Tensor) -> None:
    key.data = key.data * 0.9 + query.data * 0.1


def uncounted(key: Tensor, query: Tensor) -> None:
    key.data.mul_(0.9).add_(query.data, alpha=0.1)


def counted(key: Tensor, query: Tensor) -> None:
    key.mul_(0.9).add_(query, alpha=0.1)


class Contrast(nn.Module):
    """Both encoders begin alike: the first step moves nothing."""

    def __init__(self, move: Move) -> None:
        super().__init__()
        self.move = move
        self.query, self.key = (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 4)) for _ in range(2))
        self.key.load_state_dict(self.query.state_dict())
        self.key.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for key, query in zip(self.key.parameters(), self.query.parameters()):
                self.move(key, query)
            keys = self.key(x)
        loss: Tensor = (self.query(x) * keys).sum(1).square().mean()
        return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--throw", default="")
    options = parser.parse_args()
    run = begin()
    torch.manual_seed(1)
    ways = {"assigned": assigned, "uncounted": uncounted, "counted": counted}
    models = {name: DistributedDataParallel(Contrast(move)) for name, move in ways.items()}
    models["prototypes"] = DistributedDataParallel(nn.Linear(4, 3, bias=False))
    prototypes = models["prototypes"].module
    teacher = copy.deepcopy(prototypes)
    trained = [p for name, model in models.items() for p in model.parameters() if name != "counted" or p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.5, momentum=0.9)
    if run is not None:
        run.register(**models, teacher=teacher, optimizer=optimizer)
    thrown = [options.throw]

    def step(k: int) -> None:
        rank = dist.get_rank()
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * k + rank))
        with torch.no_grad():
            prototypes.weight.copy_(nn.functional.normalize(prototypes.weight.data.clone() * 1.1, dim=1))
        optimizer.zero_grad()
        loss: Any = sum((models[name](x) for name in ways), models["prototypes"](x).square().mean())
        loss.backward()
        if run is not None:
            run.report(loss=float(loss.detach()), samples=[k * dist.get_world_size() + rank])
        optimizer.step()
        half = teacher.weight.data[0]
        half.mul_(0.9)
        if thrown == [f"{rank}@{k}"]:
            thrown.clear()
            raise RuntimeError("amid the teacher's change")
        half.add_(prototypes.weight.data[0], alpha=0.1)

    if run is None:
        for k in range(1, STEPS + 1):
            step(k)
    else:
        run.train(step, STEPS)
    left = {name: digest(*model.parameters(), *model.buffers()) for name, model in (*models.items(), ("teacher", teacher))}
    leave(options.folder, {name: {"bits": value} for name, value in left.items()})


main()
