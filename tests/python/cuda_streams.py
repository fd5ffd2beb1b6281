"""Steps whose state changes on several streams, and behind the update: two models that train side by side, each on its own, averages of their weights on both.
The streams stand still here and there, so that the host is far ahead of them. With KINTSUGI=0 it is plain torch. Runs on the fake device.

  cuda_streams.py FOLDER [--together]     --together: both optimizers step in run.update()
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
from pathlib import Path
from typing import Any

import fake_device  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import kintsugi.torch
from beside import digest, leave

STEPS = 8
LATE = (5, 7)  # steps: much longer than what follows takes the host

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--together", action="store_true")
options = parser.parse_args()
torch.set_num_threads(1)
device = torch.device("cuda", 0)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
rank = dist.get_rank()


def model(*statistics: nn.Module) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), *statistics, nn.ReLU(), nn.Linear(16, 3)).to(device)


def batch(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * number + rank)
    return torch.randn(8, 6, generator=generator).to(device), torch.randint(0, 3, (8,), generator=generator).to(device)


def gradients(of: Any, number: int) -> None:
    x, y = batch(number)
    of.zero_grad()
    cross_entropy(of(x), y).backward()
    for parameter in of.parameters():
        dist.all_reduce(parameter.grad)


critic, maker = model(nn.BatchNorm1d(16)), model()
of_critic, of_maker = torch.optim.Adam(critic.parameters(), lr=1e-2), torch.optim.Adam(maker.parameters(), lr=1e-2)
average = AveragedModel(critic, multi_avg_fn=get_ema_multi_avg_fn(0.9))
own_average = copy.deepcopy(maker).requires_grad_(False)
run.register(critic=critic, maker=maker, of_critic=of_critic, of_maker=of_maker, average=average, own_average=own_average)
plain = os.environ.get("KINTSUGI") == "0"
main, side = torch.cuda.current_stream(), torch.cuda.Stream()
for k in run.steps(STEPS):
    late_us = 300_000 if k in LATE else 10_000
    with run.step():
        side.wait_stream(main)
        with torch.cuda.stream(side):
            fake_device.busy(late_us)  # before the statistics are written
            gradients(critic, k)
            if not options.together:
                fake_device.busy(late_us)
                of_critic.step()
        gradients(maker, k + STEPS)
        with run.update() if options.together and not plain else contextlib.nullcontext():
            if options.together:
                with torch.cuda.stream(side):
                    fake_device.busy(late_us)
                    of_critic.step()
            of_maker.step()
        with torch.cuda.stream(side):
            fake_device.busy(late_us)
            average.update_parameters(critic)
        fake_device.busy(late_us)
        with torch.no_grad():
            for kept, parameter in zip(own_average.parameters(), maker.parameters()):
                kept.lerp_(parameter, 0.1)
    if run.again:
        continue
torch.cuda.synchronize()
models = {"critic": critic, "maker": maker, "average": average, "own average": own_average}
leave(options.folder, {
    **{name: {key: digest(value) for key, value in of.state_dict().items()} for name, of in models.items()},
    **{f"optimizer {i}": {f"{n}.{key}": digest(value) for n, state in of.state_dict()["state"].items() for key, value in state.items()}
       for i, of in enumerate((of_critic, of_maker))},
})  # fmt: skip
