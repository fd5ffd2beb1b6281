"""A trainer with numpy and nothing else: fits a line; its all-reduce goes over the run's store.

  line.py [--raise STEP] [--early] [--late] [--spoil] [--fork] [--interrupt STEP] [--stop STEP] [--mistakes] [--differ] [--handler raise|hang] [--steps N]
          [--take-over same-rank|rank-zero|derived|turn|broken] [--move] [--gone] [--grid N] [--cut]

--move: the line lies elsewhere after each rebuild. --gone: rank 1 takes a second array out of the state in its first rebuild after
training. --stop: tells all ranks and the launcher, $LAUNCHER, by SIGTERM to leave; the run saves. --early, --late, --spoil: rank 1 fails
before its loop, behind it, or as its interpreter ends (an object cannot travel then). --mistakes: of registration; each is refused, and training goes on.
--differ: rank 1 registers something else. --handler: what rank 1's does in the first incident. --take-over: how the generator goes on
with other ranks; --grid: rank r has cell r modulo N of a row of N; turn: rank r as rank r modulo those that saved; broken: by a function that fails.
--cut: each rank has its rows of two tables, which are one array of its own.
"""

from __future__ import annotations

import argparse
import atexit
import math
import os
import signal
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import kintsugi


class LineError(ValueError):
    """A mistake of the trainer's own."""


class Progress:
    """What a checkpoint of any format carries as numbers."""

    def __init__(self) -> None:
        self.samples = 0
        self.best = math.inf

    def state_dict(self) -> dict[str, kintsugi.Value]:
        return {"consumed_samples": self.samples, "progress.best_loss": self.best, "progress.name": "Linie №1"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.samples, self.best = state["consumed_samples"], state["progress.best_loss"]


class Cell:
    """What ranks of one place hold alike: place and steps."""

    def __init__(self, place: int) -> None:
        self.place, self.steps = place, 0

    def state_dict(self) -> object:
        return {"place": self.place, "steps": self.steps}

    def load_state_dict(self, state: Any) -> None:
        require(state["place"] == self.place, f"place {self.place} was given {state}")
        self.steps = state["steps"]
        print(f"cell {self.place} goes on after {self.steps}")


class Trainer:
    def __init__(self, run: kintsugi.Run, options: argparse.Namespace) -> None:
        self.run = run
        self.options = options
        self.generation = 0
        self.is_spoilt = False
        self.random = np.random.default_rng(17 + run.rank)
        self.line: npt.NDArray[np.float64] = run.register("line", np.zeros(2))
        ways: dict[str, kintsugi.TakeOver] = {"turn": self.take_turns, "broken": self.take_nothing}
        way: kintsugi.TakeOver | None = ways.get(options.take_over, options.take_over)
        run.register_object("random", self, take_over=way)
        self.progress = Progress()
        run.register_values("progress", self.progress)
        self.cell = Cell(run.rank % max(options.grid, 1))
        if options.grid:
            run.register_object("cell", self.cell, grid=((self.cell.place,), (options.grid,)))
        self.rows: npt.NDArray[np.int64] = np.zeros((0, 2), np.int64)
        if options.cut:
            self.share_rows()
        run.handler("rebuild", self.rebuild)
        if options.gone:
            self.scratch: npt.NDArray[np.float64] = run.register("scratch", np.zeros(3))
        if options.differ and run.rank == 1:
            run.register("slopes", np.zeros(3))
            run.register("offsets", np.zeros(2))

    def share_rows(self) -> None:
        """60 rows of each table over all ranks; of four ranks over each half of them, so that each has a second copy."""
        world, rank = self.run.world_size, self.run.rank
        half = world // 2 if world == 4 else world
        groups = [[*range(first, first + half)] for first in range(0, world, half)]
        own = np.arange(60).reshape(half, -1)[rank % half]
        rule = kintsugi.cut(0, groups, rank, ("odd", "even"))
        refused("'rows' is cut into 'columns'", self.run.register, "rows", np.zeros(2), cuts=lambda key, shape: [kintsugi.Part("columns", 0, piece())])
        self.rows = self.run.register("rows", np.array([(2 * row + odd, 0) for odd in (1, 0) for row in own]), cuts=rule)

    def state_dict(self) -> object:
        return (lambda: None) if self.is_spoilt else self.random.bit_generator.state

    def load_state_dict(self, state: object) -> None:
        self.random.bit_generator.state = state  # type: ignore[assignment]
        print(f"rank {self.run.rank} goes on with {self.place()}")

    def place(self) -> object:
        return self.random.bit_generator.state["state"]["state"]

    def take_turns(self, saved: Mapping[int, object]) -> object:
        return saved[self.run.rank % len(saved)]

    def take_nothing(self, saved: Mapping[int, object]) -> object:
        raise LineError(f"nothing fits of {sorted(saved)}")

    def rebuild(self, incident: kintsugi.Incident) -> None:
        if self.run.rank == 1 and not self.run.replaces and not incident.fresh:
            wrong, self.options.handler = self.options.handler, ""
            if wrong == "raise":
                raise LineError("the handler is crooked")
            if wrong == "hang":
                time.sleep(3600)
        if self.options.move:
            self.move()
        if self.options.gone and self.run.rank == 1 and self.run.holds("scratch") and not incident.fresh:
            self.forget()
        self.store = self.run.agent.open_store(incident.generation)
        self.use_store()

    def move(self) -> None:
        elsewhere = self.line.copy()
        self.run.rebind("line", elsewhere)
        self.line.fill(np.nan)
        self.line = elsewhere
        refused("no array 'circle' is registered", self.run.rebind, "circle", elsewhere)
        refused("array 'line' of 16 bytes cannot be rebound to 8", self.run.rebind, "line", elsewhere[:1])
        refused("is an alias: rebind 'line'", self.run.agent.rebind_tensor, "regression", "float64", [2], [2], [0], (0, 0), 8, 16, 0, 0)

    def forget(self) -> None:
        refused("'circle' cannot be unregistered", self.run.unregister, "circle")
        self.run.unregister("scratch")
        self.run.unregister("scratch")

    def use_store(self) -> None:
        """All ranks at once: tickets differ, one is the first, and its large value is everybody's until it is deleted."""
        world, store = self.run.world_size, self.store
        tickets = [store.add("tickets", 1, 60_000) for _ in range(5)]
        for ticket in tickets:
            own = f"{self.run.rank}".encode()
            require(store.compare_set(f"ticket/{ticket}", b"", own, 60_000) == own, f"ticket {ticket} was given out twice")
        require(tickets == sorted(tickets) and tickets[-1] <= 5 * world, f"tickets {tickets}")
        large = bytes(range(256)) * 1000
        first = store.compare_set("first", b"", f"{self.run.rank}".encode(), 60_000) == f"{self.run.rank}".encode()
        if first:
            require(not store.check("large", 60_000), "a key that nobody set is there")
            store.set("large", large)
        require(store.get("large", 60_000) == large, "a large value came out otherwise")
        if store.add("read", 1, 60_000) == world:
            require(store.delete("large", 60_000) and not store.delete("large", 60_000), "delete says what it did otherwise")
            store.set("deleted", b"")
        store.wait("deleted", 60_000)
        require(not store.check("large", 60_000), "a deleted key is there")

    def all_reduce(self, step: int, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Added up in rank order, so that all get the same bits."""
        self.store.set(f"sum/{step}/{self.run.rank}", values.tobytes())
        parts = [self.store.get(f"sum/{step}/{rank}", 60_000) for rank in range(self.run.world_size)]
        total: npt.NDArray[np.float64] = np.sum([np.frombuffer(part) for part in parts], axis=0)
        return total

    def step(self, k: int) -> None:
        if k == self.options.stray and self.run.rank == 0 and not self.run.replaces:
            self.options.stray = 0
            os.kill(os.getpid(), signal.SIGINT)
        if k == self.options.stop:
            os.kill(os.getpid(), signal.SIGTERM)  # as an engine tells all processes of a job: it is the launcher's
            if self.run.rank == 0:
                os.kill(int(os.environ["LAUNCHER"]), signal.SIGTERM)
        if k >= self.options.stop > 0:
            time.sleep(0.05)
        if self.options.fork and k == 3:
            fork_harmlessly(self.run)
        x = self.random.random()
        error = self.line[0] * x + self.line[1] - (2 * x + 1)
        if k == self.options.wrong and self.run.rank == 1 and not self.run.replaces:
            self.options.wrong = 0
            raise LineError("the line is crooked")
        try:
            gradient = self.all_reduce(k, np.array([error * x, error, error * error]))
        except kintsugi.Error as failed:
            if failed.code == 11:  # a newer generation has begun
                raise kintsugi.Interrupted from failed
            raise
        self.progress.samples += self.run.world_size
        self.cell.steps += 1
        self.progress.best = min(self.progress.best, float(gradient[2]))
        self.run.report(gradient[2], [k * self.run.world_size + self.run.rank])
        with self.run.update():
            self.line -= 0.2 * gradient[:2]
            self.rows[:, 1] += self.rows[:, 0]
            require(bool((self.rows[:, 1] == k * self.rows[:, 0]).all()), f"rows after step {k}: {self.rows.tolist()}")
            if self.options.gone:  # what would differ, were it compared
                self.scratch[:] = k if self.run.holds("scratch") else self.run.rank


def piece() -> kintsugi.Piece:
    return kintsugi.Piece((2,), (0,), (0,), (2,))


class Odd:
    """Its state cannot travel."""

    def state_dict(self) -> object:
        return lambda: None

    def load_state_dict(self, state: object) -> None:
        pass


class Named(Odd):
    def __init__(self, state: object) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state


class Even(Odd):
    def state_dict(self) -> object:
        return 2


def refused(words: str, function: Callable[..., object], *arguments: object, **options: object) -> None:
    try:
        function(*arguments, **options)
    except kintsugi.Error as error:
        if words not in str(error):
            raise RuntimeError(f"'{words}' is not in '{error}'") from error
        return
    raise RuntimeError(f"not refused: {words}")


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuntimeError(otherwise)


def make_mistakes(run: kintsugi.Run) -> None:
    store = run.agent.open_store(0)
    refused("keys have up to 900", store.set, "k" * 901, b"")
    refused("do not begin with byte 1 or 2", store.get, "\x01k", 0)
    refused("the store is for addresses and ids", store.set, "k", bytes(5 << 20))
    refused("compare_set takes", store.compare_set, "k", b"", bytes(70_000), 1000)
    if run.rank == 0:
        store.set("word", b"seven")
        refused("'word' holds no number", store.add, "word", 1, 60_000)
    refused("has joined already", kintsugi.join)
    fixed = np.arange(12.0).reshape(3, 4)
    fixed.flags.writeable = False  # what is registered is a copy
    memory = run.state_memory(fixed.nbytes + 8)
    memory.fill_with(8, fixed)
    memory.fill(0, fixed.ctypes.data + 8, 8)
    refused("8 bytes at 100 do not fit into 104", memory.fill, 100, fixed.ctypes.data, 8)
    memory.finish()
    refused("was filled and finished", memory.fill_with, 0, fixed)
    require(bytes(memory.view()) == fixed.tobytes()[8:16] + fixed.tobytes(), "memory does not hold what it was filled with")
    refused("while the trainer is outside the guard", run.rebind, "line", np.zeros(2))
    refused("object 'odd' (Odd) cannot be pickled", run.register_object, "odd", Odd())
    refused("object 'odd' (int) lacks state_dict", run.register_object, "odd", 5)
    refused("take_over is 'rank 0', which is none of 'same-rank'", run.register_object, "odd", Even(), "rank 0")
    for place in ((2, 0), (0,), (-1, 0)):
        try:
            run.register_object("odd", Even(), grid=(place, (2, 2)))
        except kintsugi.Error as error:
            require("is no place in a grid of (2, 2)" in str(error), str(error))
        else:
            raise RuntimeError(f"not refused: a cell at {place}")
    refused("object 'odd' is taken over as a cell of a grid, which its key must name", run.register_object, "odd", Even(), "cell")
    refused("values 'odd': state_dict gives a function", run.register_values, "odd", Odd())
    refused("values 'odd': 'a' is a list: only int", run.register_values, "odd", Named({"a": [1]}))
    refused("values 'odd': 'a' is 9223372036854775808, beyond 63 bits", run.register_values, "odd", Named({"a": 2**63}))
    refused("values 'odd': 'a..b' is no name", run.register_values, "odd", Named({"a..b": 1}))
    refused("values 'odd': 'a.b' would be within 'a'", run.register_values, "odd", Named({"a.b": 1, "a": 1}))
    refused("expert 4 is none of a rank that has experts 0 to 3", kintsugi.global_expert_key, "experts.4.w", 1, 4)
    for key, wanted in (("experts.0.w", "experts.12.w"), ("a.mlp.experts.local_experts.3.w", "a.mlp.experts.local_experts.15.w"),
                        ("my_experts.0.w", "my_experts.0.w"), ("experts.0.experts.1", "experts.0.experts.13")):  # fmt: skip
        require(kintsugi.global_expert_key(key, 3, 4) == wanted, f"{key} became {kintsugi.global_expert_key(key, 3, 4)}")
    refused("there is no handler 'repair'", run.handler, "repair")
    refused("not contiguous", run.register, "odd", np.zeros((4, 4))[:, 1])
    refused("cannot be protected", run.register, "odd", np.zeros(3, dtype="datetime64[s]"))


def register_unsigned(run: kintsugi.Run) -> None:
    arrays = (array("B", range(5)), array("H", range(5)), array("I", range(5)), array("Q", range(5)))
    for kind, plain in zip(("uint8", "uint16", "uint32", "uint64"), arrays):
        wanted = np.arange(5, dtype=kind)
        found = run.register(f"kind.{kind}", wanted)
        buffer = run.register(f"buffer.{kind}", plain)
        if found.dtype != wanted.dtype or found.tobytes() != wanted.tobytes() or bytes(buffer) != wanted.tobytes():
            raise RuntimeError(f"registered as {kind}, it is {found}, {buffer.tolist()}")


def fork_harmlessly(run: kintsugi.Run) -> None:
    """A child of a rank is none: its calls are refused, and its end is nobody's."""
    child = os.fork()
    if child == 0:
        try:
            run.report(1.0, [])
        except kintsugi.Error as refused:
            sys.exit(0 if refused.code == 6 else 3)
        os._exit(4)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise RuntimeError("the forked child was not refused, or could not leave")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--raise", dest="wrong", type=int, default=0)
    parser.add_argument("--interrupt", dest="stray", type=int, default=0)
    parser.add_argument("--stop", type=int, default=0)
    parser.add_argument("--early", action="store_true")
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--spoil", action="store_true")
    parser.add_argument("--fork", action="store_true")
    parser.add_argument("--mistakes", action="store_true")
    parser.add_argument("--differ", action="store_true")
    parser.add_argument("--handler", default="")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--take-over")
    parser.add_argument("--move", action="store_true")
    parser.add_argument("--gone", action="store_true")
    parser.add_argument("--grid", type=int, default=0)
    parser.add_argument("--cut", action="store_true")
    options = parser.parse_args()
    if options.early and os.environ["RANK"] == "1":
        atexit.register(time.sleep, 11)  # last of all: taking a program down may last longer than --silence
    run = kintsugi.join()
    trainer = Trainer(run, options)
    if options.move:
        run.register_alias("regression", "line")
    register_unsigned(run)
    if options.mistakes:
        make_mistakes(run)
    if options.early and run.rank == 1:
        raise LineError("there is no line")
    run.train(trainer.step, steps=options.steps)
    if options.late and run.rank == 1:
        raise LineError("the line cannot be written")
    print(f"rank {run.rank} has consumed {trainer.progress.samples}, best {trainer.progress.best!r}")
    print(f"rank {run.rank} ends with {trainer.place()}")
    trainer.is_spoilt = options.spoil and run.rank == 1
    print(f"y = {trainer.line[0]:.17g} x + {trainer.line[1]:.17g}")


main()
