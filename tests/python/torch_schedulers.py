"""Every schedule of torch.optim.lr_scheduler and swa_utils, and every average of swa_utils, each with a small model and an optimizer of its own, all in
one step and behind its update. PLAIN=1: the same under plain torch over Gloo. What is left of each, bit for bit, goes to FOLDER/rank-N.json.

  torch_schedulers.py FOLDER [--die]     --die: rank 1 is killed within the first update_bn
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler as rates
from torch.optim import swa_utils

from beside import begin, digest, leave

STEPS = 8

Make = Callable[[optim.Optimizer], Any]


def schedules() -> dict[str, Make]:
    def joined(optimizer: optim.Optimizer) -> list[rates.LRScheduler]:
        return [rates.LinearLR(optimizer, 0.1, total_iters=3), rates.ExponentialLR(optimizer, 0.8)]

    found: dict[str, Make] = {
        "LambdaLR": lambda o: rates.LambdaLR(o, lambda k: 1 / (k + 1)),
        "MultiplicativeLR": lambda o: rates.MultiplicativeLR(o, lambda k: 0.9 + 0.01 * k),
        "StepLR": lambda o: rates.StepLR(o, 3),
        "MultiStepLR": lambda o: rates.MultiStepLR(o, [2, 3, 6], 0.5),
        "ConstantLR": lambda o: rates.ConstantLR(o, 0.25, 4),
        "LinearLR": lambda o: rates.LinearLR(o, 0.1, total_iters=5),
        "ExponentialLR": lambda o: rates.ExponentialLR(o, 0.7),
        "SequentialLR": lambda o: rates.SequentialLR(o, joined(o), [3]),
        "PolynomialLR": lambda o: rates.PolynomialLR(o, 6, 2.0),
        "CosineAnnealingLR": lambda o: rates.CosineAnnealingLR(o, 5),
        "ChainedScheduler": lambda o: rates.ChainedScheduler(joined(o), o),
        "ReduceLROnPlateau": lambda o: rates.ReduceLROnPlateau(o, patience=1),
        "CyclicLR": lambda o: rates.CyclicLR(o, 0.001, 0.1, step_size_up=3, mode="exp_range", gamma=0.9),
        "CosineAnnealingWarmRestarts": lambda o: rates.CosineAnnealingWarmRestarts(o, 3, 2),
        "OneCycleLR": lambda o: rates.OneCycleLR(o, 0.2, total_steps=STEPS + 1, three_phase=True),
        "SWALR": lambda o: swa_utils.SWALR(o, 0.01, anneal_epochs=4),
    }
    public = {name for module in (rates, swa_utils) for name, thing in vars(module).items()
              if inspect.isclass(thing) and issubclass(thing, rates.LRScheduler) and not name.startswith("_")}  # fmt: skip
    assert {*found} == public - {"LRScheduler"}, f"schedules that are not tried: {sorted(public ^ {*found})}"
    return found


def averages(model: nn.Module) -> dict[str, swa_utils.AveragedModel]:
    return {
        "average": swa_utils.AveragedModel(model),
        "average of buffers too": swa_utils.AveragedModel(model, use_buffers=True),
        "moving": swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.8), use_buffers=True),  # type: ignore[no-untyped-call]
        "of its own": swa_utils.AveragedModel(model, avg_fn=lambda average, new, count: average + 0.3 * (new - average) / (count + 1)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--die", action="store_true")
    options = parser.parse_args()
    run = begin()
    rank = dist.get_rank()
    torch.manual_seed(1)
    makers = schedules()
    models = {name: nn.Linear(3, 3) for name in makers}
    averaged = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizers = {name: optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for name, model in models.items()}
    last = optim.Adam(averaged.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    off = torch.amp.GradScaler("cpu", enabled=False)
    scheduled = {name: makers[name](optimizer) for name, optimizer in optimizers.items()}
    kept = averages(averaged)
    if run is not None:
        things: dict[str, Any] = {"averaged": averaged, "last": last, "scaler": scaler, "off": off}
        for name in makers:
            things |= {f"{name}.model": models[name], f"{name}.optimizer": optimizers[name], f"{name}.schedule": scheduled[name]}
        run.register(**things, **{f"kept.{number}": average for number, average in enumerate(kept.values())})

    def step(k: int) -> None:
        batch = torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * k + rank))
        for name, model in models.items():
            model(batch).square().mean().backward()
        scaler.scale(off.scale(averaged(batch).square().mean())).backward()
        trained: list[nn.Module] = [*models.values(), averaged]
        for parameter in (parameter for one in trained for parameter in one.parameters()):
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        if k == 5:  # an overflow: the update is left out, of all ranks
            next(averaged.parameters()).grad[0, 0] = float("inf")  # type: ignore[index]
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad()
        scaler.step(last)
        scaler.update()
        off.update()
        last.zero_grad()
        for name, schedule in scheduled.items():
            schedule.step(*([float(k % 3)] if name == "ReduceLROnPlateau" else []))
        for average in kept.values():
            average.update_parameters(averaged)

    def batches(seed: int) -> Iterator[Tensor]:
        for number in range(3):
            if number == 2 and options.die and rank == 1 and not (options.folder / "died").exists():
                (options.folder / "died").touch()
                os.kill(os.getpid(), 9)
            yield torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * seed + number))

    def measure(until: int) -> list[Any]:
        """What the averages have for buffers, each rank its own; what their layers have for means, on data of this rank."""
        averaged_so_far = [digest(*average.buffers()) for average in kept.values()]
        for average in kept.values():
            swa_utils.update_bn(batches(until + rank), average)
            average.train()
        return [*averaged_so_far, *(float(tensor.sum()) for tensor in kept["average"].buffers())]

    said = []
    for until in (STEPS // 2, STEPS):  # training goes on from what was measured
        if run is None:
            for k in range(until - STEPS // 2 + 1, until + 1):
                step(k)
            said.append(measure(until))
        else:
            run.train(step, until)
            said.append(run.do(measure, until))
    left: dict[str, dict[str, Any]] = {}
    for name, model in models.items():
        group = optimizers[name].param_groups[0]
        left[name] = {"bits": digest(*model.parameters()), "rate": group["lr"], "momentum": group["momentum"], "last": getattr(scheduled[name], "last_epoch", None)}
    for name, average in kept.items():
        left[name] = {"bits": digest(*average.parameters()), "buffers": digest(*average.buffers())}
    left["measured"] = {"buffers": said}
    left["scaler"] = {"scale": scaler.state_dict(), "off": off.state_dict(), "bits": digest(*averaged.parameters(), *averaged.buffers())}
    leave(options.folder, left)


if __name__ == "__main__":
    main()
