"""A loop as people write it: epochs over a shuffled loader whose data set draws random numbers, a scheduler per epoch, an average of the
weights behind the update, evaluation between, at the head and behind steps, a file that rank 0 writes, and collectives behind the last
step. PLAIN=1: the same under plain torch over Gloo.

  torch_loop.py FOLDER [--accumulate N] [--workers N] [--composed] [--die PLACE:RANK]... [--stand PLACE:RANK:SECONDS]...
               [--limit N] [--save-limit N] [--late] [--alone before|behind|between|iterator|section|step|cut|broken|schedule]
      PLACE: evaluate.E, told.E (behind its collective), save.E, behind. stand: it stands still there once; limit, save-limit: of evaluations, of saves
      composed: the data set is made of several (ConcatDataset, StackDataset, a MapDataPipe), of which some draw, and one has a state
      late: a process that takes a lost one's place begins at a later epoch, as by a newer snapshot of the script's own
      alone: a collective outside of steps and sections, before or behind the third step, or between epochs; iterator: the third step
             takes a batch of one that was made before the loops; section, step: rank 0 alone calls the last one, makes one more; cut: a loop of
             three batches a step is left behind the fourth; broken: rank 0's object has no state as the script ends; schedule: is not registered
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import time
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler, StackDataset, Subset
from torch.utils.data.datapipes.map import SequenceWrapper

from beside import PLAIN, begin, digest, leave

EPOCHS, SAMPLES = 3, 40


class Noisy(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((6,), index / SAMPLES) + torch.rand(6) * 0.1, index


class Warming(Noisy):
    """Each sample is further away than the one before it: has a state."""

    given = 0

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.given += 1
        return super().__getitem__(index)[0] + self.given / 100, index

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


class Composed(Dataset[tuple[Tensor, int]]):
    def __init__(self) -> None:
        halves: ConcatDataset[tuple[Tensor, int]] = ConcatDataset([Subset(Warming(), range(13)), Subset(Noisy(), range(13, SAMPLES))])
        self.parts = StackDataset(halves, SequenceWrapper(list(range(SAMPLES))).map(float))

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        (row, number), more = self.parts[index]
        return row + more / SAMPLES, number


def broken() -> dict[str, int]:
    raise ValueError("no state any more")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--composed", action="store_true")
    parser.add_argument("--die", action="append", default=[])
    parser.add_argument("--alone", default="")
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--stand", action="append", default=[])
    parser.add_argument("--limit", type=float)
    parser.add_argument("--save-limit", type=float)
    options = parser.parse_args()
    if options.alone == "cut":
        options.accumulate = 3
    run = begin()
    rank = dist.get_rank()

    def perhaps_struck(place: str) -> None:
        here = f"{place}:{rank}"
        seconds = next((float(words.rpartition(":")[2]) for words in options.stand if words.rpartition(":")[0] == here), None)
        mark = options.folder / f"struck-{here}"
        if (here not in options.die and seconds is None) or mark.exists():
            return
        mark.touch()
        if seconds is None:
            os.kill(os.getpid(), 9)
        else:
            time.sleep(seconds)

    torch.manual_seed(1 + rank)
    net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 4))
    model = DistributedDataParallel(net)
    average = AveragedModel(net, use_buffers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
    data, held_out = Composed() if options.composed else Noisy(), Noisy()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=3), num_workers=options.workers)
    if run is not None:
        run.register(model=model, average=average, optimizer=optimizer, **({} if options.alone == "schedule" else {"scheduler": scheduler}))

    def evaluate(epoch: int) -> float:
        perhaps_struck(f"evaluate.{epoch}")
        net.eval()
        total = sum(net(x).square().sum() for x, _ in DataLoader(held_out, batch_size=20, num_workers=0))  # its iterator draws a seed
        net.train()
        assert isinstance(total, Tensor)
        total = total.detach()
        dist.all_reduce(total)
        perhaps_struck(f"told.{epoch}")
        return float(total)

    def save(epoch: int) -> str:
        perhaps_struck(f"save.{epoch}")
        with open(options.folder / "saved", "a", encoding="utf-8") as saved:
            saved.write(f"{epoch} {digest(*net.parameters())}\n")
        return f"model-{epoch}"

    own = iter(DataLoader(held_out, batch_size=4))
    order, scale = list(range(6)), numpy.linspace(0.5, 1.5, 6, dtype=numpy.float32)
    random.seed(rank), numpy.random.seed(rank)
    for epoch in range(1 if options.late and run.replaces else 0, EPOCHS):
        if PLAIN:
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        columns = torch.randperm(6)  # between loops, by all three kinds of generators
        random.shuffle(order)
        numpy.random.shuffle(scale)
        for i, (x, _) in enumerate(loader) if PLAIN else run.enumerate(loader, epoch, accumulate=options.accumulate):
            if options.alone == "cut" and i == 4:
                break
            if options.alone == "before" and i == 2:
                dist.barrier()
            noise = torch.randn(6) * 0.01  # an iteration that is made again draws the same before its step
            update = (i + 1) % options.accumulate == 0 or i + 1 == len(loader)
            with contextlib.nullcontext() if PLAIN else run.step():
                if options.alone == "iterator" and i == 2:
                    noise = next(own)[0].mean()
                with contextlib.nullcontext() if update else model.no_sync():
                    loss = model((x + noise)[:, columns][:, order] * torch.tensor(scale)).square().mean() / options.accumulate
                    loss.backward()
                if update:
                    if run is not None:
                        run.report(loss=float(loss.detach()))
                    optimizer.step()
                    optimizer.zero_grad()
                    average.update_parameters(net)
            if run is not None and run.again:
                continue
            if options.alone == "behind" and i == 2:
                dist.all_reduce(torch.ones(1))
            if i == 2:
                evaluate(-epoch) if PLAIN else run.do(evaluate, -epoch, limit=options.limit)
        if options.alone == "between":
            dist.barrier()
        accuracy = evaluate(epoch) if PLAIN else run.do(evaluate, epoch, limit=options.limit)
        scheduler.step(accuracy)
        if PLAIN:
            if rank == 0:
                save(epoch)
        else:
            assert run.do(save, epoch, only=0, limit=options.save_limit) == f"model-{epoch}"
            assert not run.stop_if(accuracy < 0)
    perhaps_struck("behind")
    if options.alone == "step" and rank == 0:
        for _ in run.steps(1):
            with run.step():
                model(x).sum().backward()
    if options.alone == "broken" and rank == 0:
        scheduler.state_dict = broken  # type: ignore[method-assign]
    if options.alone in ("step", "broken"):
        return
    if options.alone == "section" and rank == 1:
        return
    last = evaluate(9) if PLAIN else run.do(evaluate, 9, limit=options.limit)
    if options.alone == "barrier" and rank == 1:
        return
    dist.barrier()
    saved = dict(line.split() for line in (options.folder / "saved").read_text(encoding="utf-8").splitlines())  # the newest of each
    left = {
        "model": digest(*net.parameters(), *net.buffers()),
        "average": digest(*average.parameters(), *average.buffers()) + str(int(average.n_averaged)),
        "rate": str(optimizer.param_groups[0]["lr"]),
        "random": str(torch.rand(1).item()),
        "last": str(last),
        "saved": str(saved),
    }
    leave(options.folder, {name: {"bits": value} for name, value in left.items()})


main()
