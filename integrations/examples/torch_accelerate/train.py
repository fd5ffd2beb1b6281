"""A loop with Accelerate on data made on the spot; the lines that mention `run` are all that Kintsugi adds.

  kintsugi run --nproc 2 --inject kill:1@5:backward -- python train.py
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

import kintsugi.torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)

    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    accelerator = Accelerator()
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    model, optimizer, scheduler = accelerator.prepare(net, optimizer, scheduler)
    torch.manual_seed(100 + accelerator.process_index)
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)

    def step(k: int) -> None:
        points = torch.randn(16, 2).to(accelerator.device)
        optimizer.zero_grad()
        loss = (model(points) - points.prod(1, keepdim=True)).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        run.report(loss=loss.item(), samples=[k * run.world_size + run.rank])
        optimizer.step()
        scheduler.step()

    run.train(step, steps=options.steps)


main()
