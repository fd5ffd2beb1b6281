"""Where a rank stands: under which of Kintsugi's controllers, among whom, and what brought it there.

A world of Kintsugi's has a fixed size. Where a run goes on with fewer ranks, or with all again, the controller's process hosts
another one (an era), and those who go on join it anew. Clients keep their numbers; Kintsugi counts a crew from 0.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


class Move(enum.Enum):
    """Why an era began, and so which of the client's handlers come before its loop."""

    NONE = ""
    SHRINK = "shrink"
    GROW = "grow"


class Crew:
    """The ranks of an era, ascending, and their numbers in Kintsugi."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = tuple(sorted(ranks))
        self._numbers = {rank: number for number, rank in enumerate(self.ranks)}

    def __len__(self) -> int:
        return len(self.ranks)

    def __contains__(self, rank: object) -> bool:
        return rank in self._numbers

    def number(self, rank: int) -> int:
        return self._numbers[rank]

    def numbers(self, ranks: Iterable[int]) -> list[int]:
        """Of those that are in it."""
        return [self._numbers[rank] for rank in ranks if rank in self._numbers]

    def rank(self, number: int) -> int:
        return self.ranks[number]

    def of(self, numbers: Iterable[int]) -> list[int]:
        return [self.ranks[number] for number in numbers]


@dataclass(frozen=True)
class Place:
    era: int
    port: int
    crew: Crew
    move: Move = Move.NONE
    offset: int | None = None  # the client's number of the era's step 0, where anybody knows it
    others: tuple[int, ...] = ()  # who was left out, or has come back
    dp: tuple[int, ...] = ()  # who is left of the rank's own group of the first optimizer type
    param: str = ""  # the scheduler's

    def message(self) -> dict[str, Any]:
        return {"era": self.era, "port": self.port, "crew": list(self.crew.ranks), "move": self.move.value, "offset": self.offset,
                "others": list(self.others), "dp": list(self.dp), "param": self.param}

    @staticmethod
    def read(message: dict[str, Any]) -> Place:
        return Place(int(message["era"]), int(message["port"]), Crew(message["crew"]), Move(message["move"]), message["offset"],
                     tuple(message["others"]), tuple(message["dp"]), str(message["param"]))
