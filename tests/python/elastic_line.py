"""Fits a line with numpy and nothing else, and goes on with fewer ranks, and more again: sums go over the run's store, by the numbers that ranks have.

  elastic_line.py FOLDER [--steps N] [--hold STEP:WORLD,...]     FOLDER/rank-N.json: what is left on the rank of that number; held.py
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

import kintsugi
from held import Held


class Noise:
    """A stream of each rank's own; among other ranks a new one, from all of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def state_dict(self) -> object:
        return self.random.getstate()

    def load_state_dict(self, state: object) -> None:
        self.random.setstate(state)  # type: ignore[arg-type]

    @staticmethod
    def take_over(saved: Mapping[int, object]) -> object:
        return random.Random(repr(sorted(saved.items()))).getstate()


class Line:
    def __init__(self, run: kintsugi.Run, held: Held) -> None:
        self.run = run
        self.held = held
        run.offer()
        self.weights: npt.NDArray[np.float64] = run.register("weights", np.zeros(2))
        self.noise = Noise(run.rank)
        run.register_object("noise", self.noise, Noise.take_over)
        self.store = run.agent.open_store(0)
        run.handler("rebuild", self.connect)

    def connect(self, incident: kintsugi.Incident) -> None:
        self.store = self.run.agent.open_store(incident.generation)

    def sum(self, what: str, mine: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        self.store.set(f"{what}/{self.run.rank}", mine.tobytes())
        parts = [np.frombuffer(self.store.get(f"{what}/{rank}", 60_000)) for rank in range(self.run.world_size)]
        total: npt.NDArray[np.float64] = np.sum(parts, axis=0)
        return total

    def step(self, k: int) -> None:
        self.held.wait(k)
        samples = [(k * self.run.world_size + self.run.rank) * 2 + i for i in range(2)]
        x = np.array([sample % 7 / 7 for sample in samples])
        wrong = self.weights[0] * x + self.weights[1] - (2 * x + 1 + 0.1 * self.noise.random.random())
        gradient = self.sum(f"gradient {k}", np.array([(wrong * x).sum(), wrong.sum()])) / self.run.world_size
        self.run.report(loss=float((wrong**2).mean()), samples=samples)
        with self.run.update():
            self.weights -= 0.2 * gradient


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--hold", default="")
    options = parser.parse_args()
    run = kintsugi.join()
    held = Held(run, options.folder, options.hold)
    line = Line(run, held)
    held.come()
    run.train(line.step, steps=options.steps)
    left = {"world": [run.rank, run.world_size], "weights": line.weights.tolist(), "draws": line.noise.random.random()}
    (options.folder / f"rank-{run.rank}.json").write_text(json.dumps(left))


main()
