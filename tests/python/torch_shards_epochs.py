"""FSDP2 over all ranks, three epochs with an evaluation behind each. Nobody has a second copy: where a process is lost within its update, all go
back to the newest snapshot, which may lie before the loop that the script is in. PLAIN=1: under plain torch over Gloo. What is left, bit for bit,
goes to FOLDER/rank-N.json.

  torch_shards_epochs.py FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from beside import begin, digest, leave

EPOCHS, STEPS = 3, 6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    run = begin()
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    fully_shard(model)
    assert isinstance(model, FSDPModule)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    if run is not None:
        run.register(model=model, optimizer=optimizer, rates=rates)

    def step(k: int) -> None:
        batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * k + rank))
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.no_grad()
    def evaluate() -> float:
        told = model(torch.ones(1, 8)).sum().reshape(1).clone()
        dist.all_reduce(told)
        model.reshard()
        return float(told)

    said = []
    for epoch in range(EPOCHS):
        last = STEPS * (epoch + 1)
        if run is None:
            for k in range(last - STEPS + 1, last + 1):
                step(k)
            said.append(evaluate())
        else:
            run.train(step, last)
            said.append(run.do(evaluate))
        rates.step()
    left = {name: digest(parameter) for name, parameter in model.named_parameters()}
    leave(options.folder, {"model": left, "rest": {"said": said, "rate": optimizer.param_groups[0]["lr"]}})


if __name__ == "__main__":
    main()
