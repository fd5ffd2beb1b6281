"""What a framework that is built on torch does at a run's turns: the part of a trainer that TorchRun cannot know."""

from __future__ import annotations

from typing import Protocol


class Framework(Protocol):
    """Given to `TorchRun.follow`. Threads: all of it on the trainer's thread."""

    def end_step(self) -> None:
        """A step is over, with all that followed its update: before the objects' state is taken once more."""

    def note_gate(self, has_update: bool) -> None:
        """Before the objects' state is taken at a step's gate. Without an update (it was skipped) nothing of the step comes behind it."""

    def gradient_norm(self) -> float | None:
        """Of all gradients together, before a step's gate, on all ranks; None: they are not known."""

    def gather(self) -> None:
        """Behind the commit, and again as all go on after a fault: parameters that other ranks updated."""

    def reset(self) -> None:
        """After a fault, before the groups are connected anew: nothing of the broken step may be left."""
