"""Places in a script of a test where a rank is struck, once in a run: PLACE:RANK is killed there, PLACE:RANK:throw throws, PLACE:RANK:9 stands still
for nine seconds."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Places:
    def __init__(self, folder: Path, rank: int, strikes: list[str]) -> None:
        self._folder, self._rank = folder, rank
        self._strikes = [strike.split(":") for strike in strikes]

    def at(self, place: str) -> None:
        for number, (where, rank, *what) in enumerate(self._strikes):
            mark = self._folder / f"struck-{number}"
            if where != place or int(rank) != self._rank or mark.exists():
                continue
            mark.touch()
            if not what:
                os.kill(os.getpid(), 9)
            if what == ["throw"]:
                raise RuntimeError(f"struck in {place}")
            time.sleep(float(what[0]))
