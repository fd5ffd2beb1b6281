"""A model that is cut over the ranks of each replica goes on with fewer replicas, and with more again.

  torch_elastic_cut.py FOLDER [--kind hsdp|tp|both|stages|fsdp|zero] [--worlds N,N,...] [--loop train|epochs] [--steps N] [--die PHASE:RANK] [--hold STEP:WORLD,...] [--mistake NAME]

FOLDER/steps, FOLDER/rank-N.json, --die, --hold: as of torch_elastic.py. --kind: FSDP2 over a mesh that also replicates; tensor parallelism beside data
parallelism; FSDP2 over tensor parallelism, both replicated; two stages, each in groups that the script makes; FSDP2 over all ranks, and ZeRO-1, whose pieces move. --mistake: what cannot follow.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import kintsugi.torch
from dies import Dies
from held import Held

WIDTH = 12
UNEVEN = 11
SAMPLES = 72  # of an epoch


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def digest(tensors: Iterator[Tensor]) -> str:
    return hashlib.sha256(b"".join(local(tensor.detach()).contiguous().cpu().numpy().tobytes() for tensor in tensors)).hexdigest()


def layers(norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, WIDTH), norm, nn.Tanh(), nn.Dropout(0.2), nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, 1))


def uneven(norm: nn.Module) -> nn.Sequential:
    """What no number of ranks divides; and two layers have one weight."""
    first, second = nn.Linear(UNEVEN, 7), nn.Linear(UNEVEN, 7)
    second.weight = first.weight
    turned = nn.Linear(7, UNEVEN)
    return nn.Sequential(nn.Linear(2, UNEVEN), norm, nn.Tanh(), nn.Dropout(0.2), first, nn.Tanh(), turned, nn.Tanh(), second, nn.Tanh(), nn.Linear(7, 1))


class Kind:
    """How many ranks have a replica, and what is made anew where their number changes."""

    def __init__(self, kind: str, mistake: str, statistics: bool, copies: int) -> None:
        """`statistics`: a batch may not have one sample then."""
        self.kind = kind
        self.copies = copies
        self.statistics = statistics
        self.mistake = mistake
        self.worlds: list[int] = []  # in which it was made
        self.of_replica = {"hsdp": 2, "tp": 2, "both": 4, "stages": 2, "fsdp": 0, "zero": 0}[kind]  # 0: all

    def make(self) -> dict[str, Any]:
        torch.manual_seed(3)
        replicas = dist.get_world_size() // (self.of_replica or dist.get_world_size())
        things: dict[str, Any] = {}
        model: nn.Module
        if self.kind == "stages":
            number = dist.get_rank()
            pairs = [dist.new_group([2 * at, 2 * at + 1]) for at in range(replicas)]
            alike = [dist.new_group([*range(part, 2 * replicas, 2)]) for part in range(2)]
            whole = layers(nn.LayerNorm(WIDTH))
            model = DistributedDataParallel(whole[:-1] if number % 2 == 0 else whole[-1:], process_group=alike[number % 2])
            things = {"pair": pairs[number // 2]}
        elif self.kind == "hsdp":
            shape = (replicas, self.of_replica)
            if self.mistake == "cut-otherwise" and replicas == 1:
                shape = (self.of_replica, 1)  # the ranks of the replica that is left hold all of it
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=("copies", "parts"))
            model = layers(nn.BatchNorm1d(WIDTH) if self.statistics else nn.LayerNorm(WIDTH))
            for module in (model[4], model):
                fully_shard(module, mesh=mesh)
            things = {"mesh": mesh}
        elif self.kind == "fsdp":
            model = uneven(nn.BatchNorm1d(UNEVEN) if self.statistics else nn.LayerNorm(UNEVEN))
            for module in (model[6], model):
                fully_shard(module)
        elif self.kind == "zero":
            model = DistributedDataParallel(uneven(nn.BatchNorm1d(UNEVEN) if self.statistics else nn.LayerNorm(UNEVEN)))
        else:
            names, parts = (("copies", "parts"), (self.of_replica,)) if self.kind == "tp" else (("copies", "shards", "parts"), (2, 2))
            mesh = init_device_mesh("cpu", (replicas, *parts), mesh_dim_names=names)
            model = parallelize_module(layers(nn.LayerNorm(WIDTH)), mesh["parts"], {"4": ColwiseParallel(), "6": RowwiseParallel()})
            if self.kind == "both":
                fully_shard(model, mesh=mesh["copies", "shards"])
            things = {"mesh": mesh}
        self.worlds.append(dist.get_world_size())
        if self.mistake == "fails-once" and self.worlds in ([4, 2], [4, 3]) and dist.get_rank() == 0:
            raise RuntimeError("it could not be made")
        if self.kind == "zero":
            optimizer: Any = kintsugi.torch.ReplicaOptimizer(model.parameters(), torch.optim.AdamW, copies=self.copies, lr=1e-2, foreach=False)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        return {"model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9), **things}


class Trainer:
    def __init__(self, run: kintsugi.torch.TorchRun, kind: Kind, options: argparse.Namespace) -> None:
        self.run = run
        self.kind = kind
        self.folder = options.folder
        self.held = Held(run, options.folder, options.hold)
        rules = {"model/*": kintsugi.cut(0, [[0, 1], [2, 3]], run.rank)} if kind.mistake == "cuts" else None
        self.made = run.build(kind.make, take_over={"model.attributes": "derived"}, cuts=rules)
        dies = Dies(run, options.die, lambda: digest(self.made.model.parameters()))
        self.taken: list[int] = []  # of a step: its epoch, how many ranks there were, and what they took, in the epoch's order
        run.keep(self, "taken", take_over="rank-zero")
        ids = torch.arange(SAMPLES, dtype=torch.float32)
        data = TensorDataset(torch.stack((ids / SAMPLES, (ids % 7) / 7), dim=1), ids)
        self.loader = DataLoader(data, 2, sampler=DistributedSampler(data, self.shares(), self.share(), seed=3))
        torch.manual_seed(100 + self.share())  # who has a batch in common draws alike
        dies.start()
        self.held.come()
        self.kept = self.made.mesh if kind.mistake == "kept-mesh" else None
        if kind.mistake == "kept-model":
            self.made = kintsugi.torch.Built({name: getattr(self.made, name) for name in ("model", "optimizer", "scheduler", "mesh")})

    def shares(self) -> int:
        return self.run.world_size // {"hsdp": 1, "tp": 2, "both": 2, "stages": 2, "fsdp": 1, "zero": 1}[self.kind.kind]

    def share(self) -> int:
        return self.run.rank * self.shares() // self.run.world_size

    def compute(self, points: Tensor) -> float:
        model = self.made.model
        target = points.prod(1, keepdim=True)
        if self.kind.kind == "stages":
            return self.pass_on(model, points, target)
        loss = (model(points) - target).square().mean()
        loss.backward()
        if self.kind.kind == "tp":
            for parameter in model.parameters():
                dist.all_reduce(local(parameter.grad), group=(self.kept or self.made.mesh).get_group("copies"))
        if self.kind.kind in ("hsdp", "fsdp", "zero"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=False)
        return float(loss.detach())

    def pass_on(self, model: nn.Module, points: Tensor, target: Tensor) -> float:
        """The first of a slice's two ranks has all but the last layer; activations and gradients go between them."""
        peer = self.run.rank ^ 1
        loss = torch.zeros(())
        if self.run.rank % 2 == 0:
            y = model(points)
            dist.send(y.detach(), peer, group=self.made.pair)
            grad = torch.empty_like(y)
            dist.recv(grad, peer, group=self.made.pair)
            y.backward(grad)
        else:
            x = torch.empty(len(points), 2 * WIDTH)
            dist.recv(x, peer, group=self.made.pair)
            x.requires_grad_()
            loss = (model(x) - target).square().mean()
            loss.backward()
            assert x.grad is not None
            dist.send(x.grad, peer, group=self.made.pair)
        loss = loss.detach().clone()
        dist.broadcast(loss, peer | 1, group=self.made.pair)
        return float(loss)

    def update(self) -> None:
        self.made.optimizer.step()
        self.made.optimizer.zero_grad()
        self.made.scheduler.step()

    def function_step(self, k: int) -> None:
        """Which samples it takes follows from step, share and world."""
        self.held.wait(k)
        first = (k * self.shares() + self.share()) * 3
        ids = torch.arange(first, first + 3, dtype=torch.float32)
        loss = self.compute(torch.stack((ids % 11 / 11, ids % 5 / 5), dim=1))
        self.run.report(loss=loss, samples=ids.long().tolist())
        self.update()

    def exchange(self, epoch: int, ids: Tensor) -> None:
        parts = [torch.empty_like(ids) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, ids)
        each = parts[:: self.run.world_size // self.shares()]
        self.taken = [epoch, self.run.world_size, *(int(sample) for row in zip(*each) for sample in row)]

    def write(self, k: int) -> None:
        with open(self.folder / "steps", "a", encoding="utf-8") as steps:
            steps.write(" ".join(map(str, (k, *self.taken))) + "\n")

    def epochs(self, count: int) -> None:
        for epoch in range(count):
            for points, ids in self.run.batches(self.loader, epoch):
                with self.run.step() as k:
                    self.held.wait(k)
                    loss = self.compute(points)
                    self.exchange(epoch, ids)
                    self.run.report(loss=loss, samples=ids.long().tolist())
                    self.update()
                if self.run.again:
                    continue
                self.run.do(self.write, k, only=0)

    def leave(self) -> None:
        states = (value for state in self.made.optimizer.state.values() for value in state.values() if isinstance(value, Tensor))
        left = {"world": [self.run.rank, self.run.world_size, dist.get_rank(), dist.get_world_size()], "parameters": digest(self.made.model.parameters()),
                "states": digest(states), "buffers": digest(self.made.model.buffers()), "rate": self.made.scheduler.get_last_lr(),
                "draws": torch.rand(4).tolist()}  # fmt: skip
        (self.folder / f"rank-{self.run.rank}.json").write_text(json.dumps(left))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", default="hsdp")
    parser.add_argument("--copies", type=int, default=2, help="of each part of ZeRO-1's state")
    parser.add_argument("--worlds", default="2,4")
    parser.add_argument("--loop", default="train")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--die", default="")
    parser.add_argument("--hold", default="")
    parser.add_argument("--mistake", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    kind = Kind(options.kind, options.mistake, options.loop == "train", options.copies)
    kept: Any = None  # noqa: F841
    worlds = [int(size) for size in options.worlds.split(",")]
    if options.mistake == "late-offer":
        run.build(kind.make)
    pair = [run.rank & ~1, run.rank | 1]
    if options.mistake == "lacks-shard":
        pair = [run.rank & 1, (run.rank & 1) + 2]
    run.offer(worlds=worlds, **({"slice": pair} if options.kind == "stages" and options.mistake != "unsaid" or options.mistake == "lacks-shard" else {}))
    if options.mistake == "mesh":
        kept = init_device_mesh("cpu", (run.world_size,))
    elif options.mistake == "group":
        kept = dist.new_group([0, 1])
    if options.mistake == "not-built":
        run.register(**{name: thing for name, thing in kind.make().items() if name != "mesh"})
        run.train(lambda _: None, steps=1)
    trainer = Trainer(run, kind, options)
    if options.loop == "train":
        run.train(trainer.function_step, steps=options.steps)
    else:
        trainer.epochs(2)
    trainer.leave()


main()
