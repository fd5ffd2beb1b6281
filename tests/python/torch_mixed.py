"""What trainers use beside a model and its optimizer, all in one step: mixed precision with a scaled loss and a step that overflows,
activations that are computed again, gradients of several batches, data from worker processes, a compiled forward pass.

  torch_mixed.py [--steps N] [--compile] [--fused]     --fused: the optimizer divides by the scale itself
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import kintsugi.torch

WIDTH, BATCH, ACCUMULATED, SAMPLES = 16, 4, 2, 96
GROWTH = 3  # updates, after which the scale is doubled
OVERFLOWS = 5  # the scaler leaves this step's update out


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.dropout, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH)

    def inner(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.dropout(torch.tanh(self.up(x))))
        return y

    def forward(self, x: Tensor) -> Tensor:
        return x + checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]


class Numbers(Dataset[tuple[int, Tensor]]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        return index, torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))


class Data:
    """Batches from worker processes, which read ahead: where the data stands is how many batches were taken, and the sampler's epoch."""

    def __init__(self, sampler: DistributedSampler[tuple[int, Tensor]]) -> None:
        self.sampler, self.taken = sampler, 0
        self.batches: Iterator[Any] | None = None

    def take(self) -> tuple[Tensor, Tensor]:
        place = self.taken % (len(self.sampler) // BATCH)
        if place == 0 and self.taken > 0:
            self.sampler.set_epoch(self.sampler.epoch + 1)
        if self.batches is None or place == 0:
            rest = list(self.sampler)[place * BATCH :]
            # Its iterator takes the workers' seed from its generator: from the global one, dropout would go on with other numbers.
            self.batches = iter(DataLoader(Numbers(), BATCH, sampler=rest, num_workers=2, generator=torch.Generator()))
        self.taken += 1
        indices, batch = next(self.batches)
        return indices, batch

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken, self.batches = state["taken"], None


def scale_of(step: int) -> float:
    scale, good = 2.0**10, 0
    for k in range(1, step):
        good = 0 if k == OVERFLOWS else good + 1
        scale *= 0.5 if k == OVERFLOWS else 2 if good == GROWTH else 1
        good %= GROWTH
    return scale


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--fused", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(Block(), nn.LayerNorm(WIDTH), Block()))
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=options.fused)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10, growth_interval=GROWTH)
    sampler: DistributedSampler[tuple[int, Tensor]] = DistributedSampler(Numbers(), seed=7)
    data = Data(sampler)
    own: dict[str, Any] = {"noise": torch.Generator().manual_seed(8 + run.rank), "chance": random.Random(8 + run.rank), "gauss": np.random.default_rng(8 + run.rank)}
    run.register(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, sampler=sampler, data=data, **own)
    forward: Any = torch.compile(model) if options.compile else model
    torch.manual_seed(5 + run.rank)

    def step(k: int) -> None:
        if scaler.get_scale() != scale_of(k):
            raise RuntimeError(f"step {k}: the loss is scaled by {scaler.get_scale()}, not by {scale_of(k)}")
        optimizer.zero_grad()
        total, samples = 0.0, []
        for micro in range(ACCUMULATED):
            indices, x = data.take()
            samples += indices.tolist()
            x = x.to(device) + 0.05 * (torch.randn(WIDTH, generator=own["noise"]) + own["chance"].random() + own["gauss"].normal())
            with nullcontext() if micro == ACCUMULATED - 1 else model.no_sync():
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = nn.functional.mse_loss(forward(x).float(), x.roll(1, 1)) / ACCUMULATED
                scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        if k == OVERFLOWS:
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, torch.inf)
        run.report(total, samples)
        if not options.fused:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        scaler.step(optimizer)
        left_out = all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
        if left_out != (k == OVERFLOWS):
            raise RuntimeError(f"step {k}: the update was {'left out' if left_out else 'made'}")
        scaler.update()
        scheduler.step()

    run.train(step, options.steps)
    print(f"scale {scaler.get_scale()}, {data.taken} batches")


main()
