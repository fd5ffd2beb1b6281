"""What the peers of bench torch and the bench tell each other: files in a folder of the run, each with a reading of the clock that all
processes of a host share. Without torch, which the bench itself does not load."""

import os
import time
from pathlib import Path

RANKS = 4
STRUCK_RANK = 1


class Marks:
    def __init__(self, folder: str | Path):
        self._folder = Path(folder)

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def set(self, name: str) -> None:
        """Whole or not there, and only the first time."""
        if not self.has(name):
            part = self._folder / f".{name}.{os.getpid()}"
            part.write_text(str(time.monotonic()))
            part.rename(self._folder / name)

    def of_ranks(self, name: str) -> dict[int, float]:
        """Those that are there."""
        return {rank: self.at(f"{name}{rank}") for rank in range(RANKS) if self.has(f"{name}{rank}")}

    def at(self, name: str) -> float:
        """REQUIRES: has(name)."""
        return float((self._folder / name).read_text())
