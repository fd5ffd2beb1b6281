"""A trainer with numpy and nothing else: fits a line; its all-reduce goes over the run's store.

  line.py [--raise STEP] [--fork] [--interrupt STEP] [--stop STEP]     --stop: asks the launcher, $LAUNCHER, to save and leave
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

import numpy as np
import numpy.typing as npt

import kintsugi


class LineError(ValueError):
    """A mistake of the trainer's own."""


class Trainer:
    def __init__(self, run: kintsugi.Run, options: argparse.Namespace) -> None:
        self.run = run
        self.options = options
        self.generation = 0
        self.random = np.random.default_rng(17 + run.rank)
        self.line: npt.NDArray[np.float64] = run.register("line", np.zeros(2))
        run.register_object("random", self)
        run.handler("rebuild", self.rebuild)

    def state_dict(self) -> object:
        return self.random.bit_generator.state

    def load_state_dict(self, state: object) -> None:
        self.random.bit_generator.state = state  # type: ignore[assignment]

    def rebuild(self, incident: kintsugi.Incident) -> None:
        self.store = self.run.agent.open_store(incident.generation)

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
        if k == self.options.stop and self.run.rank == 0:
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
        self.run.report(gradient[2], [k * self.run.world_size + self.run.rank])
        with self.run.update():
            self.line -= 0.2 * gradient[:2]


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
    parser.add_argument("--fork", action="store_true")
    run = kintsugi.join()
    trainer = Trainer(run, parser.parse_args())
    run.train(trainer.step, steps=20)
    print(f"y = {trainer.line[0]:.17g} x + {trainer.line[1]:.17g}")


main()
