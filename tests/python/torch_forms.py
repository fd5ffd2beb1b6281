"""The ways to write `with run.step()`, and code behind it without a look at `run.again`. PLAIN=1: the same under plain torch over Gloo.

  torch_forms.py FOLDER [--wrapped stack|manager|attribute]     --wrapped: in a way that is refused
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from beside import PLAIN, begin, leave

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--wrapped", default="")
options = parser.parse_args()
run: Any = begin() or SimpleNamespace(step=contextlib.nullcontext, range=range)
torch.manual_seed(3)
net = torch.nn.Linear(2, 1)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
total = 0.0
if not PLAIN:
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)
    run.keep(globals(), "total")


def body(i: int) -> None:
    optimizer.zero_grad()
    (model(torch.rand(4, 2)).square().mean() * (i + 1)).backward()
    optimizer.step()


def behind(i: int) -> None:
    """Once for each step, also where a step is void: what the run keeps is put back."""
    global total
    scheduler.step()
    total += i + float(torch.rand(1))


def wrapped(run: Any) -> None:
    @contextlib.contextmanager
    def manager() -> Iterator[int]:
        with run.step() as k:
            yield k

    for i in run.range(2):
        if options.wrapped == "stack":
            with contextlib.ExitStack() as stack:
                stack.enter_context(run.step())
                body(i)
        elif options.wrapped == "manager":
            with manager():
                body(i)
        else:
            place = SimpleNamespace()
            with run.step() as place.k:
                body(i)


def in_a_function() -> None:
    for i in run.range(3):
        with run.step() as k:
            (lambda: k)()
            body(i)
        behind(i)
        assert PLAIN or k == 9 + i + 1, k
    for i in run.range(1, 7, 2):
        with torch.enable_grad(), run.step(): body(i)  # noqa: E701
        behind(i)


if options.wrapped:
    wrapped(run)
# fmt: off
for i in run.range(3):
    with run.step() as k: body(i)  # noqa: E701
    behind(i)
    assert PLAIN or k == i + 1, k
for i in run.range(3):
    with run.step(): body(i)  # noqa: E701
    behind(i)
for i in run.range(3):
    with run.step() as k, torch.enable_grad():
        try:
            body(i)
        except ValueError:
            raise
    behind(i)
    assert PLAIN or k == 6 + i + 1, k
# fmt: on
in_a_function()
left = {"weights": net.weight.tolist(), "momentum": optimizer.state[net.weight]["momentum_buffer"].tolist(), "rate": scheduler.get_last_lr(), "total": total}
leave(options.folder, {name: {"bits": str(value)} for name, value in left.items()})
