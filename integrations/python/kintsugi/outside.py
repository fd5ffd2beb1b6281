"""Collectives that a script makes between its steps and sections, once the run has begun.

A process that takes a lost one's place passes by what is done: it would make them alone, or with others' collectives of another place. So the
next step, or loop, refuses them by name, in runs without any fault too. Behind the last loop nobody passes by, unless a section follows: that
is said, and not refused, for the training is done.

Threads: the trainer's. Errors: Error.
"""

from __future__ import annotations

from collections.abc import Callable

from ._errors import Error
from .abi import Code


class Outside:
    """`count`: how many this process has begun."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._seen = 0
        self._made = 0

    def begin(self) -> None:
        """The script is on its own from here on."""
        self._seen = self._count()

    def end(self) -> int:
        """A section follows. How many were made; those are still refused where a step follows."""
        made = self._count() - self._seen
        self._made += made
        return made

    def refuse(self, place: str) -> None:
        self.end()
        if self._made:
            raise Error(described(self._made, place), Code.FAILED_PRECONDITION)


def described(made: int, place: str) -> str:
    return (f"{made} {'collective' if made == 1 else 'collectives'} before {place}, outside of `with run.step()` and of run.do: a process that takes a lost "
            "one's place passes by there, and could not make them with the others. Make them in the step, before its update, or in a function for "
            "run.do, which keeps its result (run.do(torch.distributed.barrier))")  # fmt: skip
