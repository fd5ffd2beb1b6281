"""A trainer of numpy's whose steps draw from the generators of `random` and of numpy that are nobody's own."""

from __future__ import annotations

import random

import numpy as np

import kintsugi

run = kintsugi.join()
np.random.seed(3 + run.rank)
random.seed(3)
line = run.register("line", np.zeros(8))


def step(k: int) -> None:
    """All ranks draw alike from one, each its own from the other."""
    drawn = random.random()
    run.report(loss=float(np.random.rand()) + drawn)
    run.mark("backward")
    with run.update():
        line.__isub__(0.1 * (line - drawn))


run.train(step, steps=10)
