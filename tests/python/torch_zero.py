"""ZeRO-1, by torch's own ZeroRedundancyOptimizer or by ReplicaOptimizer, among ranks whose number changes live. Beside it (PLAIN=1) plain
torch, with what that has for it: consolidated and saved in the one world, loaded in the other.

  torch_zero.py FOLDER [--how zero|views|replicas] [--worlds N,N,...] [--steps N] [--hold STEP:WORLD,...] [--load FILE] [--save FILE]

--how: views is torch's with parameters_as_bucket_view, replicas is ReplicaOptimizer. --hold: as of torch_elastic.py. --load, --save: of plain
torch, which makes the steps behind the loaded one.

find_unused_parameters keeps DistributedDataParallel from laying its buckets out anew behind its first step: a run that is resumed in plain torch
begins with the first layout again, and so with other sums.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from beside import PLAIN, digest, leave, train_in_worlds
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

SIZES = (3, 11, 7, 13, 5, 1)


def make_optimizer(how: str, groups: list[dict[str, Any]]) -> Any:
    if how == "replicas" and not PLAIN:
        from kintsugi.torch import ReplicaOptimizer

        return ReplicaOptimizer(groups, torch.optim.AdamW, copies=2, lr=1e-2)
    return ZeroRedundancyOptimizer(groups, torch.optim.AdamW, parameters_as_bucket_view=how == "views", lr=1e-2)


def make(how: str) -> dict[str, Any]:
    torch.manual_seed(3)
    layers = [layer for sizes in zip(SIZES, SIZES[1:]) for layer in (nn.Linear(*sizes), nn.Tanh())]
    model = DistributedDataParallel(nn.Sequential(*layers[:-1]), find_unused_parameters=True)
    parameters = [*model.parameters()]
    optimizer = make_optimizer(how, [{"params": parameters[:3], "weight_decay": 0.1}, {"params": parameters[3:]}])
    return {"model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)}


class Trainer:
    def __init__(self, made: Callable[[str], Any]) -> None:
        self.made = made
        self.losses: list[float] = []

    def step(self, k: int) -> None:
        """Which samples it takes follows from step, rank and world."""
        first = (k * dist.get_world_size() + dist.get_rank()) * 4
        ids = torch.arange(first, first + 4, dtype=torch.float32)
        points = torch.stack((ids % 11 / 11, ids % 5 / 5, ids % 3 / 3), dim=1)
        loss = (self.made("model")(points) - points.prod(1, keepdim=True)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.made("model").parameters(), 0.5)
        self.report(float(loss.detach()), ids.long().tolist())
        self.made("optimizer").step()
        self.made("optimizer").zero_grad()
        self.made("scheduler").step()

    def report(self, loss: float, samples: list[int]) -> None:
        pass

    def states(self) -> dict[str, Any]:
        """Of all parameters, by name, whoever has them."""
        optimizer = self.made("optimizer")
        local = optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer.local
        names = {parameter: name for name, parameter in self.made("model").named_parameters()}
        mine = {names[parameter]: {key: digest(value) for key, value in state.items()} for parameter, state in local.state.items()}
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        found: dict[str, Any] = {}
        for states in every:
            assert all(found.setdefault(name, state) == state for name, state in states.items()), "who has the same part has other numbers"
        return dict(sorted(found.items()))

    def left(self, states: dict[str, Any]) -> dict[str, Any]:
        groups = [[len(group["params"]), group["lr"], group["weight_decay"]] for group in self.made("optimizer").param_groups]
        return {"zero": {"parameters": digest(*self.made("model").parameters()), "states": states, "groups": groups}}


def plain(options: argparse.Namespace) -> None:
    made = make(options.how)
    trainer, begun = Trainer(made.__getitem__), 0
    if options.load:
        saved = torch.load(options.load, weights_only=False)
        begun = saved.pop("step")
        for name, thing in made.items():
            thing.load_state_dict(saved[name])
    for k in range(begun + 1, options.steps + 1):
        trainer.step(k)
    if options.save:
        made["optimizer"].consolidate_state_dict(to=0)
        if dist.get_rank() == 0:
            torch.save({"step": options.steps, **{name: thing.state_dict() for name, thing in made.items()}}, options.save)
    leave(options.folder, trainer.left(trainer.states()))


def protected(run: Any, options: argparse.Namespace) -> None:
    from held import Held

    run.offer(worlds=[int(size) for size in options.worlds.split(",")])
    held = Held(run, options.folder, options.hold)
    built = run.build(lambda: make(options.how))
    trainer = Trainer(lambda name: getattr(built, name))
    trainer.report = lambda loss, samples: run.report(loss=loss, samples=samples)  # type: ignore[method-assign]
    held.come()

    def step(k: int) -> None:
        held.wait(k)
        trainer.step(k)

    run.train(step, steps=options.steps)
    leave(options.folder, trainer.left(run.do(trainer.states)))


warnings.simplefilter("ignore", FutureWarning)
train_in_worlds(plain, protected, how="zero", hold="")
