"""The ways to write `with run.step()`, and code behind it without a look at `run.again`; a snapshot of the script's own, which is newer for who
comes later; shuffled batches of two loaders in turns, and a sum over them that a section changes in place; loops in calls whose results are added to what is kept.
PLAIN=1: the same under plain torch over Gloo.

  torch_forms.py FOLDER [--wrapped stack|manager|attribute|islice]     --wrapped: in a way that is refused
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from beside import PLAIN, begin, leave

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--wrapped", default="")
options = parser.parse_args()
run: Any = begin() or SimpleNamespace(step=contextlib.nullcontext, range=range, batches=iter, do=lambda function, argument: function(argument))
rank = dist.get_rank()
snapshot: Path = options.folder / "snapshot"
first = int(snapshot.read_text()) if snapshot.exists() else 0
torch.manual_seed(3)
net = torch.nn.Linear(2, 1)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
total = 0.0
sums = torch.zeros(2)
if not PLAIN:
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)
    run.keep(globals(), "total", "sums")


class Record:
    def __init__(self) -> None:
        self.calls: list[int] = []
        self.sum = 0

    def note(self, number: int) -> None:
        self.calls.append(number)
        self.sum += number


calls: list[int] = []
by_kind: dict[str, list[int]] = {"all": []}
record = Record()
if not PLAIN:
    run.keep(globals(), "calls", "by_kind", "record")


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

    if options.wrapped == "islice":
        few = itertools.islice(run.range(4), 2)
        for i in few:
            with run.step():
                body(i)
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


def struck(what: str) -> bool:
    """Once, on rank 1."""
    mark = options.folder / f"struck-{what}"
    strikes = not PLAIN and rank == 1 and not mark.exists()
    if strikes:
        mark.touch()
    return strikes


def summed(sums: torch.Tensor) -> None:
    dist.all_reduce(sums)
    if struck("behind a collective"):
        os.kill(os.getpid(), 9)


def cut_off_when_all_are_done() -> None:
    """Of the next section this rank does not hear any more that all have done it."""
    from kintsugi.sections import Meeting

    agree = Meeting.agree

    def cut_off(*words: Any) -> Any:
        Meeting.agree = agree  # type: ignore[method-assign]
        agree(*words)
        raise RuntimeError("cut off")

    Meeting.agree = cut_off  # type: ignore[method-assign, assignment]


def over_batches() -> None:
    loader = DataLoader(TensorDataset(torch.arange(12.0)), batch_size=4, shuffle=True)
    by_turns = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(9))
    for epoch in range(2):
        for (x,) in run.batches(by_turns):
            with run.step():
                body(int(x[0]))
        sums.zero_()
        for (x,) in run.batches(loader):
            with run.step():
                sums.add_(torch.stack([x[0], x[-1]]) * (rank + 1))
                body(int(x[0]))
        if epoch == 1 and struck("all are done"):
            cut_off_when_all_are_done()
        run.do(summed, sums)
        behind(int(sums.sum()))


def pair_of_steps(number: int) -> int:
    for i in run.range(2):
        with run.step():
            body(i)
        behind(i)
    return number


def in_calls_of_a_statement() -> None:
    """Which has a kept variable in hand before the loop, where a process that takes a lost one's place is given what is kept."""
    for number in range(3):
        calls.append(pair_of_steps(number))
        by_kind["all"].append(pair_of_steps(number))
        record.note(pair_of_steps(number))


if options.wrapped:
    wrapped(run)
# fmt: off
for i in run.range(3):
    with run.step() as k: body(i)  # noqa: E701
    behind(i)
    assert PLAIN or k == i + 1, k
for i in run.range(first, 3):
    with run.step(): body(i)  # noqa: E701
    behind(i)
    if not PLAIN: snapshot.write_text(str(i + 1))  # noqa: E701
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
over_batches()
in_calls_of_a_statement()
left = {"weights": net.weight.tolist(), "momentum": optimizer.state[net.weight]["momentum_buffer"].tolist(), "rate": scheduler.get_last_lr(), "total": total, "sums": sums.tolist(),
        "calls": [calls, by_kind, record.calls, record.sum]}
leave(options.folder, {name: {"bits": str(value)} for name, value in left.items()})
