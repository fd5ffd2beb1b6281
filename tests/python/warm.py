"""A trainer that waits at a step until it is told to go on, and says which process it was started in.

  warm.py FOLDER [--torch]     goes on once FOLDER has a file "go"; --torch: imports torch, which takes its time
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

STARTED = time.monotonic()

import numpy as np  # noqa: E402

import kintsugi  # noqa: E402

if "--torch" in sys.argv:
    import torch  # noqa: E402

    weight = torch.ones(3, requires_grad=True)
    (weight * 2).sum().backward()  # what a forked process must still be able to do, with threads of its own
    assert weight.grad is not None and weight.grad.tolist() == [2.0] * 3

import noisy  # noqa: E402  beside the test's folder: does what a careless module does when it is imported

WAITS_AT, STEPS = 4, 8
IMPORTING_S = time.monotonic() - STARTED


def say(run: kintsugi.Run, numbers: np.ndarray[Any, Any]) -> None:
    said = f"rank {run.rank} life {os.environ['KINTSUGI_INCARNATION']} numbers {numbers.tolist()} imported in {IMPORTING_S:.3f}"
    print(f"{said} noise {noisy.noise()} input {len(sys.stdin.read())} main {__name__} path {sys.path[0] == os.path.dirname(__file__)}")


def main() -> None:
    run = kintsugi.join()
    numbers = run.register("numbers", np.zeros(4))
    go, stopped = Path(sys.argv[1], "go"), threading.Event()
    run.on_stop(lambda _: stopped.set())
    run.handler("rebuild", lambda _: stopped.clear())

    def step(k: int) -> None:
        while k == WAITS_AT and not go.exists():
            if stopped.wait(0.01):
                raise kintsugi.Interrupted
        run.report(float(k), [])
        with run.update():
            numbers[:] += k
        if k == STEPS:
            say(run, numbers)

    run.train(step, steps=STEPS)


if __name__ == "__main__":
    main()
