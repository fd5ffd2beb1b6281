"""A wrapper of a script's own, of which nobody knows what a broken step leaves in it, beside HSDP and a shared optimizer: after a fault
the function that made them all makes them anew.

  torch_built.py [--steps N] [--plain]     --plain: registered as they are, which a fault in the backward pass must not survive
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

WIDTH = 8


class Overlapped(nn.Module):
    """Averages gradients while the backward pass still runs."""

    def __init__(self, module: nn.Module, group: Any) -> None:  # torch says what in each version otherwise
        super().__init__()
        self.module = module
        self.group = group
        self.under_way: list[tuple[Tensor, Any]] = []
        for parameter in module.parameters():
            dist.broadcast(parameter.detach(), 0, group=group)
            parameter.register_post_accumulate_grad_hook(self._reduce)  # type: ignore[no-untyped-call]

    def _reduce(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.under_way.append((parameter, dist.all_reduce(parameter.grad, group=self.group, async_op=True)))

    def forward(self, x: Tensor) -> Tensor:
        if self.under_way:
            raise RuntimeError("a reduction of the batch before was not finished")
        y: Tensor = self.module(x)
        return y

    def finish(self) -> None:
        for parameter, work in self.under_way:
            work.wait()
            assert parameter.grad is not None
            parameter.grad /= dist.get_world_size(self.group)
        self.under_way.clear()


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.BatchNorm1d(2 * WIDTH), nn.Dropout(0.1), nn.Linear(2 * WIDTH, WIDTH))


def make() -> dict[str, Any]:
    """Its groups, too: those of a mesh and of ReplicaOptimizer, and one that some ranks are not in."""
    torch.manual_seed(3)
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("outer", "inner"))
    copied = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, WIDTH))
    fully_shard(copied, mesh=mesh)
    dist.new_group([0, world - 1])
    own = Overlapped(layers(), dist.new_group())
    shared = DistributedDataParallel(layers(), bucket_cap_mb=1e-3)
    parts = kintsugi.torch.ReplicaOptimizer(shared.parameters(), torch.optim.Adam, copies=2, lr=1e-2)
    return {
        "own": own, "copied": copied, "shared": shared, "parts": parts,
        "adam": torch.optim.AdamW(own.parameters(), lr=1e-2), "sgd": torch.optim.SGD(copied.parameters(), lr=1e-2, momentum=0.9),
        "rates": torch.optim.lr_scheduler.StepLR(parts, step_size=3, gamma=0.7),
    }  # fmt: skip


def refused(words: str, function: Callable[..., object], *arguments: object, **named: object) -> None:
    try:
        function(*arguments, **named)
    except kintsugi.torch.Error as error:
        if words not in str(error):
            raise RuntimeError(f"'{words}' is not in '{error}'") from error
        return
    raise RuntimeError(f"not refused: {words}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    built: Any
    if options.plain:
        made = make()
        run.register(**made)
        built = argparse.Namespace(**made)
    else:
        built = run.build(make)
        refused("run.build is called once", run.build, make)
        refused("'late' was made beside the function given to run.build", run.register, late=torch.nn.Linear(1, 1))
    if run.rank == 0 and not run.replaces:
        print(run.plan())
    torch.manual_seed(5 + run.rank)

    def step(k: int) -> None:
        optimizers = (built.adam, built.sgd, built.parts)
        for optimizer in optimizers:
            optimizer.zero_grad()
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * k + run.rank))
        loss = sum((model(x) - x).square().sum() for model in (built.own, built.copied, built.shared))
        loss.backward()
        built.own.finish()
        run.report(loss=loss.item(), samples=[k * run.world_size + run.rank])
        for optimizer in optimizers:
            optimizer.step()
        built.rates.step()

    run.train(step, steps=options.steps)
    print("resets", *(f"{reset.step} {reset.how}" for reset in run.resets))


main()
