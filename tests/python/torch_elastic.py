"""Data parallelism that goes on with fewer ranks, and with more again: dropout, running statistics, a schedule that moves behind the update, epochs over a divided data set.

  torch_elastic.py FOLDER [--worlds N,N,...] [--loop train|steps|epochs|stale] [--epochs N] [--samples N] [--accumulate N] [--workers N] [--built] [--no-statistics] [--ask] [--die epoch.N:RANK|step.N:RANK|rebuild:RANK|rollback:RANK|start:LIFE|rebuild:LIFE|amid:LIFE|rollback:LIFE]
                   [--steps N] [--hold STEP:WORLD,...] [--own] [--differ] [--mistake NAME]

FOLDER/steps: "STEP EPOCH WORLD SAMPLE..." a line of each step; FOLDER/rank-N.json: what is left on the rank of that number. --worlds "": offers none.
--built: by run.build. --no-statistics: a batch may have one sample. --ask: a section before each step. --die: the process is killed in a section, or in an incident; LIFE,
RANK.INCARNATION: where the run grows, as it starts, before, amid or behind the move of its state. --hold: held.py. --own: an object that who comes would not have.
--differ: rank 2 offers other worlds. --loop stale: a step that computes with the number of ranks that there were at first, and beside it asks for that of now. --mistake: what cannot follow.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import kintsugi.torch
from dies import Dies
from held import Held

STEPS = 12


class OwnSampler(DistributedSampler[Any]):
    """Of whom nobody knows what else it makes of the number of ranks."""


class Count:
    """Of the script's own, which does not say how it goes on with other ranks."""

    value = 0

    def state_dict(self) -> int:
        return self.value

    def load_state_dict(self, state: int) -> None:
        self.value = state


def make(statistics: bool = True) -> dict[str, Any]:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16) if statistics else nn.LayerNorm(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))
    model = DistributedDataParallel(net, bucket_cap_mb=1e-4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return {"model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)}


def digest(tensors: Iterator[torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(tensor.detach().cpu().numpy().tobytes() for tensor in tensors)).hexdigest()


class Trainer:
    def __init__(self, run: kintsugi.torch.TorchRun, options: argparse.Namespace) -> None:
        self.run = run
        self.folder = options.folder
        self.accumulate = options.accumulate
        self.die, self.asks = options.die, options.ask
        self.held = Held(run, options.folder, options.hold)
        if options.built:
            self.made: Any = run.build(make)
        else:
            self.made = argparse.Namespace(**make(not options.no_statistics))
            run.register(**vars(self.made))
        if options.own:
            run.register(count=Count(), take_over={"count": "same-rank"})
        dies = Dies(run, options.die, lambda: digest(self.made.model.parameters()))
        self.seen: list[torch.Tensor] = []
        self.taken: list[int] = []  # of a step: its epoch, how many ranks there were, and what they took, in the epoch's order
        self.passes = 0
        self.among, self.number = run.world_size, run.rank
        run.keep(self, "passes", "taken", take_over="rank-zero")
        data = torch.arange(options.samples, dtype=torch.float32)
        data_set = TensorDataset(torch.stack((data / options.samples, (data % 7) / 7), dim=1), data)
        self.loader = DataLoader(data_set, 2, sampler=DistributedSampler(data_set, seed=3), num_workers=options.workers)
        torch.manual_seed(100 + run.rank)
        dies.start()
        self.held.come()

    def compute(self, points: torch.Tensor, ids: torch.Tensor, parts: int = 1) -> float:
        """One batch forward and backward."""
        loss = (self.made.model(points) - points.prod(1, keepdim=True)).square().mean() / parts
        loss.backward()
        self.seen.append(ids)
        return float(loss.detach())

    def update(self) -> None:
        self.made.optimizer.step()
        self.made.optimizer.zero_grad()
        self.made.scheduler.step()

    def function_step(self, k: int) -> None:
        """Which samples it takes follows from step, number and world."""
        self.held.wait(k)
        self.seen = []
        first = (k * self.run.world_size + self.run.rank) * 3
        ids = torch.arange(first, first + 3, dtype=torch.float32)
        loss = self.compute(torch.stack((ids % 11 / 11, ids % 5 / 5), dim=1), ids)
        self.run.report(loss=loss, samples=ids.long().tolist())
        self.update()

    def stale_step(self, k: int) -> None:
        if self.number == 0:
            print(f"step {k}: {self.number}")
        ids = torch.arange(3, dtype=torch.float32) + k * self.among + self.run.rank
        self.compute(torch.stack((ids % 11 / 11, ids % 5 / 5), dim=1), ids)
        self.update()

    def exchange(self, epoch: int) -> None:
        mine = torch.cat(self.seen)
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        self.taken = [epoch, len(parts), *(int(sample) for row in zip(*parts) for sample in row)]

    def write(self, k: int) -> None:
        with open(self.folder / "steps", "a", encoding="utf-8") as steps:
            steps.write(" ".join(map(str, (k, *self.taken))) + "\n")

    def evaluate(self, when: str) -> float:
        if self.die == f"{when}:{self.run.agent.rank}":
            os.kill(os.getpid(), signal.SIGKILL)
        total = torch.ones(1)
        dist.all_reduce(total)
        return total.item() / self.run.world_size

    def epochs(self, count: int) -> None:
        for epoch in range(count):
            loss = 0.0
            for i, (points, ids) in self.run.enumerate(self.loader, epoch, accumulate=self.accumulate):
                if self.asks:
                    self.run.do(self.evaluate, f"step.{self.run.committed + 1}")
                with self.run.step() as k:
                    if i % self.accumulate == 0:
                        self.held.wait(k)
                        self.seen, loss = [], 0.0
                    loss += self.compute(points, ids, self.accumulate)
                    if len(self.seen) == self.accumulate:
                        self.exchange(epoch)
                        self.run.report(loss=loss, samples=torch.cat(self.seen).long().tolist())
                        self.update()
                if self.run.again:
                    continue
                if (i + 1) % self.accumulate == 0:
                    self.run.do(self.write, k, only=0)
            assert self.run.do(self.evaluate, f"epoch.{epoch}") == 1.0
            self.passes += 1

    def leave(self) -> None:
        net = self.made.model.module
        left = {"world": [self.run.rank, self.run.world_size, dist.get_rank(), dist.get_world_size()], "passes": self.passes,
                "parameters": digest(net.parameters()), "buffers": digest(net.buffers()), "rate": self.made.scheduler.get_last_lr(),
                "draws": torch.rand(4).tolist()}  # fmt: skip
        (self.folder / f"rank-{self.run.rank}.json").write_text(json.dumps(left))


def make_mistake(run: kintsugi.torch.TorchRun, name: str) -> None:
    """Each is refused as training begins."""
    net = nn.Linear(4, 4)
    things: dict[str, Any] = {}
    kept: Any = None  # noqa: F841
    if name == "shards":
        fully_shard(net)
    elif name == "mesh":
        kept = init_device_mesh("cpu", (run.world_size,))
    elif name == "group":
        dist.new_group([0, 1])
    elif name == "wrapped":
        net = DistributedDataParallel(net, process_group=[dist.new_group([0, 1]), dist.new_group([2, 3])][run.rank // 2])  # type: ignore[assignment]
    elif name == "object":
        things = {"count": Count()}
    elif name == "own-sampler":
        things = {"sampler": OwnSampler(TensorDataset(torch.zeros(8)))}
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    if name == "shared":
        optimizer = kintsugi.torch.ReplicaOptimizer(net.parameters(), torch.optim.SGD, copies=2, lr=0.1)
    run.register(model=net, optimizer=optimizer, **things)
    data: Any = range(8)
    loader = DataLoader(data, 2, shuffle=True) if name == "loader" else DataLoader(data, 2, sampler=DistributedSampler(data))
    for _ in run.batches(loader):
        with run.step():
            if name == "late-group":
                dist.new_group([0, 1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--worlds", default="1,2,3,4")
    parser.add_argument("--loop", default="train")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=72)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--no-statistics", action="store_true")
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--die", default="")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--hold", default="")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--differ", action="store_true")
    parser.add_argument("--mistake", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    if options.worlds:
        worlds = [int(size) for size in options.worlds.split(",")]
        run.offer(worlds=worlds[:-1] if options.differ and run.rank == 2 else worlds)
    if options.mistake:
        return make_mistake(run, options.mistake)
    trainer = Trainer(run, options)
    if options.loop in ("train", "stale"):
        run.train(trainer.stale_step if options.loop == "stale" else trainer.function_step, steps=options.steps)
    elif options.loop == "steps":
        for _ in run.range(options.steps):
            with run.step() as k:
                trainer.function_step(k)
    else:
        trainer.epochs(options.epochs)
    trainer.leave()


main()
