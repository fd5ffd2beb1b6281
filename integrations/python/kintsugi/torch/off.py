"""KINTSUGI=0: the script trains as if nothing of Kintsugi were in it, over Gloo or NCCL, and with the same bits. No agent, no thread.

What `kintsugi certify` holds a protected run against: so the loops, loaders and sections here are their own, and none of those that protect.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from .._errors import Error
from ..abi import Code
from .built import Built, registered_of
from .facts import Facts

SWITCH = "KINTSUGI"


def is_off() -> bool:
    return os.environ.get(SWITCH) == "0"


def join() -> PlainRun:
    if "KINTSUGI_CONTROLLER" in os.environ:
        raise Error(f"{SWITCH}=0 under `kintsugi run`, whose ranks join it: start the script with torchrun, or without {SWITCH}", Code.FAILED_PRECONDITION)
    if "RANK" not in os.environ:  # by python alone
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    # How torch itself reads the name of a backend: as another word for it, so that whoever asks is told the plain one's.
    setattr(dist.Backend, "KINTSUGI", "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return PlainRun(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


class PlainRun:
    """What a script calls of a run (`TorchRun`), as plain torch does it."""

    replaces = resumes = again = False
    left_out: tuple[int, ...] = ()
    exit_code = 0
    exchange_object = register_values = register_object = register_alias = set_replicas = on_stop = offer = lambda *_, **__: None
    offers = False
    mark = begin_update = end_update = poll = rebind = unregister = report_memory_error = lambda *_, **__: None

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self.at = self.committed = 0
        self.resets: list[Any] = []
        self._facts = Facts(rank)
        self._after: list[Callable[[int], object]] = []
        self._parts = 1  # blocks of a step, and how many there were of this one
        self._part = 0
        atexit.register(self.finish)

    # ---- state ----------------------------------------------------------------------------------------------------------

    def register(self, key: Any = None, array: Any = None, /, take_over: Any = None, cuts: Any = None, allow_shape_mismatch: Any = None, **things: Any) -> Any:
        self._facts.add(things)
        return array if key is not None else None

    def build(self, make: Callable[[], Any], /, **_: Any) -> Built:
        things = dict(make())
        self.register(**registered_of(things))
        return Built(things)

    def follow(self, *_: Any) -> None:
        raise Error(f"{SWITCH}=0: nobody trains a model of Megatron's as if nothing of Kintsugi were in it: leave kintsugi.megatron out", Code.FAILED_PRECONDITION)

    def keep(self, owner: Any, /, *names: str, take_over: Any = None) -> None:
        pass

    def reshard(self, *_: Any, **__: Any) -> None:
        raise Error(f"{SWITCH}=0: run.reshard moves state over the links of a run, and there is none", Code.FAILED_PRECONDITION)

    def plan(self) -> str:
        return f"{SWITCH}=0: nothing is protected"

    def handler(self, kind: str, function: Any = None) -> Any:
        return function if function is not None else lambda handler: handler

    # ---- loops ----------------------------------------------------------------------------------------------------------

    def train(self, step: Callable[[int], object], steps: int) -> None:
        while self.committed < steps:
            k = self.committed + 1
            self.begin_step(k)
            step(k)
            self.end_step(k)

    def guard(self, loop: Callable[[int], object]) -> None:
        loop(self.committed)

    def leaves_out(self, k: int) -> bool:
        return False

    def pass_by(self, k: int) -> None:
        raise RuntimeError(f"run.pass_by({k}): no rank passes this step by")

    def begin_step(self, k: int) -> None:
        self.at = k

    def end_step(self, k: int) -> None:
        self.committed = k
        for function in self._after:
            function(k)

    def steps(self, count: int) -> Iterator[int]:
        self._parts = 1
        yield from range(self.committed + 1, self.committed + count + 1)

    def range(self, *bounds: int) -> Iterator[int]:
        self._parts = 1
        yield from range(*bounds)

    def batches(self, loader: Any, epoch: int | None = None, *, accumulate: int | None = None) -> Iterator[Any]:
        for _, batch in self.enumerate(loader, epoch, accumulate=accumulate):
            yield batch

    def enumerate(self, loader: Any, epoch: int | None = None, start: int = 0, *, accumulate: int | None = None) -> Iterator[tuple[int, Any]]:
        if epoch is not None:
            set_epoch(loader, epoch)
        self._parts, self._part = accumulate or _accelerated_steps(), 0
        for i, batch in enumerate(loader, start):
            yield i, batch
        if self._part:  # the last step of a pass may have fewer
            self._part = 0
            self.end_step(self.at)

    @contextlib.contextmanager
    def step(self) -> Iterator[int]:
        if self._part == 0:
            self.begin_step(self.committed + 1)
        yield self.at
        self._part = (self._part + 1) % self._parts
        if self._part == 0:
            self.end_step(self.at)

    def after(self, function: Callable[[int], object]) -> None:
        self._after.append(function)

    def finish(self) -> None:
        """As of a run: what follows has no groups. Threads of theirs that outlive the interpreter would abort it."""
        atexit.unregister(self.finish)
        self._facts.write()
        if dist.is_initialized():
            dist.destroy_process_group()

    # ---- sections -------------------------------------------------------------------------------------------------------

    def do(self, function: Callable[..., Any], /, *args: Any, only: int | None = None, limit: float | None = None, **kwargs: Any) -> Any:
        if only is None:
            return function(*args, **kwargs)
        told = [function(*args, **kwargs) if only == self.rank else None]
        dist.broadcast_object_list(told, src=only)
        return told[0]

    def stop_if(self, wish: object) -> bool:
        wishes: list[Any] = [None] * self.world_size
        dist.all_gather_object(wishes, bool(wish))
        return any(wishes)

    # ---- in a step ------------------------------------------------------------------------------------------------------

    def report(self, loss: Any, samples: Iterable[int] = ()) -> None:
        self._facts.report(self.at, float(loss))

    def reject(self, reason: str, back: int = 0) -> NoReturn:
        raise RuntimeError(f"step {self.at} is refused: {reason}")  # which nobody makes again

    def update(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def activity(self, _: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def _accelerated_steps() -> int:
    """Batches of an update, as Accelerate has been told; else one."""
    module = sys.modules.get("accelerate.state")
    return int(module.GradientState().num_steps) if module is not None and module.GradientState().initialized else 1


def set_epoch(loader: Any, epoch: int) -> None:
    """Where plain loops do: on a loader that has it, on the loader's sampler, or on what else of it has one."""
    if callable(getattr(loader, "set_epoch", None)):
        return loader.set_epoch(epoch)  # type: ignore[no-any-return]
    batch_sampler = getattr(loader, "batch_sampler", None)
    told: list[Any] = []
    things: list[Any] = [getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None), getattr(loader, "dataset", None)]
    for thing in things:
        if callable(getattr(thing, "set_epoch", None)) and all(thing is not other for other in told):
            told.append(thing)
            thing.set_epoch(epoch)
