"""A loop whose batches are bad here and there. PLAIN=1: plain torch over Gloo, which leaves the bad ones out by
`continue`, as somebody would write it who knew them.

  torch_refused.py FOLDER [--bad ITERATION:RANK[:large]]... [--gone ITERATION]... [--call [BACK]] [--loop batches|range|train|guard|own] [--shards]
                   [--accumulate N] [--dies]
      bad: this rank's batch is not finite there (large: its targets are 1e4 times what is usual), each time it is computed; plain torch leaves it out on all
      gone: plain torch leaves it out, too; the run is asked to, by `back`
      own: as guard, and it passes by what is left out
      call: the script finds out by itself, and calls run.reject
      dies: the last rank, once, where the run has gone back to a snapshot
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from beside import PLAIN, begin, digest, leave

SAMPLES, EPOCHS, OF_BATCH = 96, 2, 4

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--bad", action="append", default=[])
parser.add_argument("--gone", action="append", type=int, default=[])
parser.add_argument("--call", type=int, nargs="?", const=0)
parser.add_argument("--dies", action="store_true")
parser.add_argument("--loop", default="batches")
parser.add_argument("--shards", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
options = parser.parse_args()
bad = {int(word.split(":")[0]): (int(word.split(":")[1]), 1e4 if word.endswith(":large") else float("nan")) for word in options.bad}

left_out = {*bad, *options.gone}

run: Any = begin() or SimpleNamespace(
    step=contextlib.nullcontext, range=range, enumerate=lambda loader, epoch, accumulate: loader.sampler.set_epoch(epoch) or enumerate(loader), report=lambda *_: None)
rank = dist.get_rank()
torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(16, 1))
model: Any = net
if options.shards:
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
else:
    model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=100)
data = TensorDataset(torch.randn(SAMPLES, 6), torch.arange(SAMPLES))
loader = DataLoader(data, batch_size=OF_BATCH, sampler=DistributedSampler(data))
losses: list[float] = []
total = 0.0
if not PLAIN:
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)
    run.keep(globals(), "losses", "total")
    died = options.folder / "died"

    @run.handler("rollback")
    def die(incident: Any) -> None:
        if options.dies and incident.rung == "reload" and rank == run.world_size - 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), 9)


def compute(i: int, x: torch.Tensor, indices: torch.Tensor) -> None:
    target = x[:, :1].sin()
    if i in bad and rank == bad[i][0]:
        if options.gone:
            time.sleep(0.5)  # what snapshots there can be by then there are
        x, target = x * (bad[i][1] if bad[i][1] != 1e4 else 1.0), target * bad[i][1]
    loss = (model(x) - target).square().mean()
    if options.call is not None and not PLAIN and not torch.isfinite(loss):
        run.reject(f"a loss of {float(loss)}", back=options.call)
    (loss / options.accumulate).backward()
    run.report(float(loss), indices.tolist())
    losses.append(float(loss.detach()))


def update() -> None:
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()


def batch_of(i: int) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.randint(0, SAMPLES, (OF_BATCH,), generator=torch.Generator().manual_seed(100 * i + rank))
    return data.tensors[0][drawn], drawn


if options.loop == "batches":
    for epoch in range(EPOCHS):
        for position, (x, indices) in run.enumerate(loader, epoch, accumulate=options.accumulate):
            i = epoch * len(loader) + position
            first = i - i % options.accumulate
            if PLAIN and any(one in left_out for one in range(first, first + options.accumulate)):
                continue
            with run.step():
                compute(i, x, indices)
                if (i + 1) % options.accumulate == 0:
                    update()
            if not PLAIN and run.again:
                continue
            total += i * losses[-1]
elif options.loop == "range":
    for i in run.range(20):
        if PLAIN and i in left_out:
            continue
        with run.step():
            compute(i, *batch_of(i))
            update()
        if not PLAIN and run.again:
            continue
        total += i * losses[-1]
else:
    def step(k: int) -> None:
        compute(k - 1, *batch_of(k - 1))
        update()

    if PLAIN:
        for i in range(20):
            if i not in left_out:
                step(i + 1)
    elif options.loop == "train":
        run.train(step, 20)
    else:
        def loop(first: int) -> None:
            for k in range(first + 1, 21):
                if options.loop == "own" and run.leaves_out(k):
                    run.pass_by(k)
                    continue
                run.begin_step(k)
                step(k)
                run.end_step(k)

        run.guard(loop)
leave(options.folder, {"weights": {"all": digest(*model.parameters())}, "losses": {"all": repr(losses), "total": total},
                       "rate": {"last": scheduler.get_last_lr()[0]}})  # fmt: skip
