"""FSDP2 over all ranks, whose number changes live. Beside it (PLAIN=1) plain torch, which saves in the one world and loads in the other by its own
distributed checkpoint.

  torch_fsdp.py FOLDER [--worlds N,N,...] [--steps N] [--die PHASE:RANK] [--load FOLDER] [--save FOLDER]

--die: as of torch_elastic.py. --load, --save: of plain torch, which makes the steps behind the loaded one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from beside import digest, leave, train_in_worlds
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

SIZES = (3, 11, 7, 13, 5, 1)  # which no number of ranks divides


def make() -> dict[str, Any]:
    torch.manual_seed(3)
    layers = [layer for sizes in zip(SIZES, SIZES[1:]) for layer in (nn.Linear(*sizes), nn.Tanh())]
    model = nn.Sequential(*layers[:-1])
    for module in (model[2], model):
        fully_shard(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    return {"model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)}


class Trainer:
    def __init__(self, made: Callable[[str], Any]) -> None:
        self.made = made

    def step(self, k: int) -> None:
        """Which samples it takes follows from step, rank and world."""
        first = (k * dist.get_world_size() + dist.get_rank()) * 4
        ids = torch.arange(first, first + 4, dtype=torch.float32)
        points = torch.stack((ids % 11 / 11, ids % 5 / 5, ids % 3 / 3), dim=1)
        loss = (self.made("model")(points) - points.prod(1, keepdim=True)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.made("model").parameters(), 0.5, foreach=False)
        self.report(float(loss.detach()), ids.long().tolist())
        self.made("optimizer").step()
        self.made("optimizer").zero_grad()
        self.made("scheduler").step()

    def report(self, loss: float, samples: list[int]) -> None:
        pass

    def left(self) -> dict[str, Any]:
        states = self.made("optimizer").state
        return {"parameters": {name: digest(parameter) for name, parameter in self.made("model").named_parameters()},
                "states": {name: {key: digest(value) for key, value in sorted(states[parameter].items())} for name, parameter in self.made("model").named_parameters()},
                "rate": self.made("scheduler").get_last_lr()}  # fmt: skip


def plain(options: argparse.Namespace) -> None:
    made = make()
    trainer, begun = Trainer(made.__getitem__), 0
    parts = made["model"], made["optimizer"]

    def state(step: int) -> dict[str, Any]:
        model, optimizer = get_state_dict(*parts)
        return {"model": model, "optimizer": optimizer, "scheduler": made["scheduler"].state_dict(), "step": step}

    if options.load:
        saved = state(0)
        load(saved, checkpoint_id=options.load)
        set_state_dict(*parts, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        made["scheduler"].load_state_dict(saved["scheduler"])
        begun = saved["step"]
    for k in range(begun + 1, options.steps + 1):
        trainer.step(k)
    if options.save:
        save(state(options.steps), checkpoint_id=options.save)
    leave(options.folder, trainer.left())


def protected(run: Any, options: argparse.Namespace) -> None:
    from dies import Dies

    run.offer(worlds=[int(size) for size in options.worlds.split(",")])
    built = run.build(make)
    trainer = Trainer(lambda name: getattr(built, name))
    trainer.report = lambda loss, samples: run.report(loss=loss, samples=samples)  # type: ignore[method-assign]
    dies = Dies(run, options.die, lambda: digest(*map(local, built.model.parameters())))
    dies.start()
    run.train(trainer.step, steps=options.steps)
    leave(options.folder, trainer.left())


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


train_in_worlds(plain, protected, die="")
