"""A torch trainer with one mistake, of those that people make, planted in it; without an argument it makes none. It has what trainers
have: layers that are trained, others that only keep running statistics, an average of the weights, noise, a sampler.

  torch_planted.py [tensor|update|random|collective|own-collective|sampler|buffers|fsdp|fsdp-right|door|noise]     fsdp-right: FSDP2, no mistake; noise: seeds of the clock; door: as
if Kintsugi changed what is computed, and one plain process stands still in the interpreter's end (as torch's groups may make it)
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

STEPS = 6
WIDTH = 6


class Position:
    """The samples of one rank, one after the other."""

    def __init__(self, first: int, stride: int) -> None:
        self.next, self.stride = first, stride

    def take(self) -> int:
        self.next += self.stride
        return self.next - self.stride

    def state_dict(self) -> int:
        return self.next

    def load_state_dict(self, state: int) -> None:
        self.next = state


class Together(torch.optim.SGD):
    """Averages gradients within its update."""

    def step(self, closure: Any = None) -> Any:
        dist.all_reduce(self.param_groups[0]["params"][0].grad)
        return super().step(closure)


class Average(nn.Module):
    """Of a few weights over the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(WIDTH), requires_grad=False)

    def update(self, model: nn.Module) -> None:
        self.weights.mul_(0.8).add_(next(model.parameters()).detach().reshape(-1)[:WIDTH], alpha=0.2)


def whole() -> nn.Module:
    return DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2)))


def cut() -> nn.Module:
    """FSDP2 with parameters of the root's own, whose gradients are reduced last."""
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.Tanh(), nn.Linear(WIDTH, WIDTH)), nn.Linear(WIDTH, 2))
    fully_shard(model[1])
    fully_shard(model)
    return model


def leave_stale_gradients() -> None:
    """Switches off what kintsugi.torch does after an abort, but for what torch does itself (before 2.15)."""
    from torch.distributed.fsdp import FSDPModule

    from kintsugi.torch import parallel

    def reset(models: list[nn.Module]) -> None:
        for model in models:
            for group in parallel._sharded_groups(model):
                group._all_gather_result = None
            if isinstance(model, FSDPModule):
                model.reset_iter_state()

    parallel.reset = reset


def main() -> None:
    mistake = sys.argv[1] if len(sys.argv) > 1 else ""
    torch.set_num_threads(1)
    if mistake == "door" and os.environ.get("KINTSUGI") == "0" and os.environ["RANK"] == "1":
        atexit.register(signal.pause)  # before the run's own, so called behind it
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    torch.manual_seed(1)
    model = cut() if mistake.startswith("fsdp") else whole()
    features = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH, momentum=0.3)).requires_grad_(False)
    kind = Together if mistake == "collective" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.05, momentum=0.9)
    averaged = features if mistake.startswith("fsdp") else model  # what all ranks hold alike
    average, noise, position = Average(), torch.Generator().manual_seed(time.time_ns() if mistake == "noise" else 10 + run.rank), Position(run.rank, run.world_size)
    things = {"model": model, "optimizer": optimizer, "features": features, "average": average, "noise": noise, "position": position}
    things.pop({"tensor": "average", "random": "noise", "sampler": "position", "buffers": "features"}.get(mistake, ""), None)
    run.register(**things)
    if mistake == "fsdp":
        leave_stale_gradients()

    def step(k: int) -> None:
        optimizer.zero_grad()
        sample = position.take()
        rows = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(sample))
        features.train()
        features(rows)
        features.eval()
        seen = features(rows)  # through the statistics so far
        if mistake == "door" and os.environ.get("KINTSUGI") != "0":
            seen = seen + 1
        loss = model(seen + 0.05 * torch.randn(seen.shape, generator=noise)).square().mean()
        loss.backward()
        run.report(loss=loss.item() + average.weights.sum().item(), samples=[sample])
        if mistake == "update":
            average.update(averaged)
        with run.update():
            if mistake == "own-collective":
                dist.all_reduce(average.weights)
            optimizer.step()
            if mistake != "update":
                average.update(averaged)

    run.train(step, steps=STEPS)


main()
