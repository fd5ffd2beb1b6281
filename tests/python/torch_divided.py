"""Epochs over a data set that a DistributedSampler divides among the ranks; rank 0 writes which samples each step had.

  torch_divided.py FOLDER [--accumulate N] [--shuffled]     FOLDER/steps: "STEP EPOCH SAMPLE..." a line, in the epoch's order
--shuffled: by a RandomSampler instead, whose order is nobody's to divide.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import kintsugi.torch

SAMPLES, EPOCHS = 48, 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--shuffled", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    torch.manual_seed(run.rank)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.arange(SAMPLES, dtype=torch.float32)[:, None])
    loader = DataLoader(data, 2, shuffle=True) if options.shuffled else DataLoader(data, 2, sampler=DistributedSampler(data, seed=3))
    run.register(model=model, optimizer=optimizer)
    seen: list[torch.Tensor] = []

    def write(step: int, epoch: int) -> None:
        mine = torch.cat(seen)
        parts = [torch.empty_like(mine) for _ in range(run.world_size)]
        dist.all_gather(parts, mine)
        if run.rank == 0:
            order = " ".join(str(int(sample)) for row in zip(*parts) for sample in row)
            with open(options.folder / "steps", "a", encoding="utf-8") as steps:
                steps.write(f"{step} {epoch} {order}\n")

    for epoch in range(EPOCHS):
        for i, (x,) in run.enumerate(loader, epoch, accumulate=options.accumulate):
            if i % options.accumulate == 0:
                seen.clear()
            seen.append(x.flatten())
            with run.step() as k:
                (model(x / SAMPLES).square().mean() / options.accumulate).backward()
                if len(seen) == options.accumulate:
                    optimizer.step()
                    optimizer.zero_grad()
            if run.again:
                continue
            if len(seen) == options.accumulate:
                run.do(write, k, epoch)


main()
