"""A trainer that is held until another world has come, so that an order meets it where it is expected.

Files in its folder: go-WORLD-STEP is written by the test, which looks at came-RANK-INCARNATION, of a process that comes to the run; was-WORLD-STEP: it has come.
"""

from __future__ import annotations

import time
from pathlib import Path

import kintsugi


class Held:
    """`holds`: "STEP:WORLD,...", ascending. From each step on, until so many ranks train, steps take their time, and the first waits for go."""

    def __init__(self, run: kintsugi.Run, folder: Path, holds: str) -> None:
        self._run = run
        self._folder = folder
        self._holds = [tuple(map(int, hold.split(":"))) for hold in holds.split(",") if hold]

    def come(self) -> None:
        """This process stands at training's door."""
        if self._run.replaces:
            (self._folder / f"came-{self._run.agent.rank}-{self._run.agent.incarnation}").touch()

    def wait(self, k: int) -> None:
        """In step k, before its collectives."""
        for step, world in self._holds:
            went, was = self._folder / f"go-{world}-{step}", self._folder / f"was-{world}-{step}"
            if k < step or was.exists():
                continue
            if self._run.world_size == world:
                was.touch()
                continue
            while not went.exists():
                time.sleep(0.01)
            time.sleep(0.1)
            return
