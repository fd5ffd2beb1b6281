"""A model whose modules keep more than parameters and buffers: counters, a hidden state, lists, a generator, an extra state; buffers that come later or get
their shape later; parameters that are frozen and trained again, a layer that is switched to eval and another that drops more, each in one step; one that
torch.compile has made; and a flag of torch's own that a step sets. PLAIN=1: the same under plain torch over Gloo.

  torch_attributes.py FOLDER
"""

from __future__ import annotations

import collections
import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from beside import begin, digest, leave

STEPS = 12


class Cooling(nn.Module):
    """What it has is in its extra state alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = collections.Counter[str]()

    def forward(self, x: Tensor) -> Tensor:
        self.inside["calls"] += 1
        return x * 0.95 ** self.inside["calls"]

    def get_extra_state(self) -> Any:
        return dict(self.inside)

    def set_extra_state(self, state: Any) -> None:
        self.inside = collections.Counter(state)


class Late(nn.Module):
    """Buffers that the first batch gives their shape, or makes."""

    least: Tensor
    mean: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("least", torch.tensor([]))
        self.register_buffer("mean", None)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            now = x.mean(0)
            self.least = now.clone() if self.least.numel() == 0 else torch.minimum(self.least, now)
            self.mean = now if self.mean is None else self.mean * 0.9 + now * 0.1
            if "scale" not in self._buffers:
                self.register_buffer("scale", torch.ones(4))
            self.get_buffer("scale").mul_(0.99)
        return (x - self.mean - self.least) * self.get_buffer("scale")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1)
        self.cell, self.last, self.cooling = nn.GRUCell(8, 8), nn.Linear(8, 4), torch.compile(Cooling(), backend="eager", disable=True)
        self.late = Late()
        self.calls, self.hidden, self.mean = 0, None, torch.zeros(8)
        self.means: list[float] = []
        self.seen: collections.deque[int] = collections.deque(maxlen=3)
        self.noise = numpy.random.default_rng(3)
        self.of_weight = self.last.weight.detach()  # shares its memory

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = self.drop(torch.relu(self.norm(self.first(x)))) + float(self.noise.random())
        hidden: Tensor | None = self.hidden
        self.hidden = hidden = self.cell(x, torch.zeros(len(x), 8) if hidden is None else hidden.detach())
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        self.means.append(float(x.mean()))
        self.seen.append(self.calls)
        return self.late(self.cooling(self.last(hidden + self.mean))) + sum(self.means) * 0.01 + self.of_weight.mean()  # type: ignore[no-any-return]


def main() -> None:
    run = begin()
    torch.manual_seed(1)
    net = Net()
    model = DistributedDataParallel(net, find_unused_parameters=True, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if run is not None:
        run.register(model=model, optimizer=optimizer)
    means = net.means  # a script has it, too
    net.cell.requires_grad_(False)
    torch.manual_seed(2 + dist.get_rank())
    for i in range(STEPS) if run is None else run.range(STEPS):
        with contextlib.nullcontext() if run is None else run.step():
            if i == 2:
                net.cell.requires_grad_(True)
            if i == 4:
                net.norm.eval()
                net.drop.p = 0.3
                torch.use_deterministic_algorithms(True, warn_only=True)
            optimizer.zero_grad()
            scale = 1.5 if torch.are_deterministic_algorithms_enabled() else 1.0
            (model(torch.randn(4, 6)).square().mean() * scale).backward()
            optimizer.step()
    assert means is net.means and len(means) == STEPS and net.hidden is not None
    left = {
        "model": digest(*net.parameters(), *net.buffers()),
        "attributes": str((net.calls, digest(net.hidden, net.mean), means, list(net.seen), net.noise.random(), dict(net.cooling.inside), net.norm.training, net.drop.p)),
        "trained": str([parameter.requires_grad for parameter in net.parameters()]),
        "random": str(torch.rand(1).item()),
    }
    leave(Path(sys.argv[1]), {name: {"bits": value} for name, value in left.items()})


main()
