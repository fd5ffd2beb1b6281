"""Registered parameters that a script changes outside of an update: between steps, in a section, or, unexpected (early.py), before a step's gate.

What an update changes belongs to its step; of anything else the run cannot tell whether a state that travels has it already. Where a fault makes a
script come by such a change once more, it is told as inexact. Found by torch's counts of what is written to a tensor, past which `.data` writes.

Threads: the trainer's. Errors: none.
"""

from __future__ import annotations

from collections.abc import Callable


class Strays:
    def __init__(self, all_versions: Callable[[], int], versions: Callable[[], int], note_inexact: Callable[[str], object]) -> None:
        """`versions`: of those that no step is expected to change before its gate."""
        self._all_versions = all_versions
        self._versions = versions
        self._note = note_inexact
        self._released: int | None = None  # as an incident left them
        self._begun = 0  # as the step in hand began
        self._section = 0  # as the section in hand began
        self.before_gate = False  # of the newest step
        self._draft: int | None = None  # as an optimizer that steps before the gate, on copies, began to

    def note_release(self) -> None:
        """The state has what all ranks had come to; the script goes on towards its next step."""
        self._released = self._all_versions()

    def begin_step(self, k: int, moved: bool) -> None:
        """`moved`: some had other memory, and are others there."""
        if self._released is not None and (moved or self._all_versions() != self._released):
            self._note(f"parameters, changed between steps {k - 1} and {k} by a process that may have been given that change already: change "
                       "them in the step, behind optimizer.step()")  # fmt: skip
        self._released, self._begun, self.before_gate, self._draft = None, self._versions(), False, None

    def begin_draft(self) -> None:
        self._draft = self._versions()

    def end_draft(self) -> None:
        if self._draft is not None:
            self._begun += self._versions() - self._draft
        self._draft = None

    def open_update(self) -> None:
        self.before_gate = self._versions() != self._begun

    def has_changed(self, has_update_begun: bool) -> bool:
        """In the step in hand, before its update."""
        if has_update_begun:
            return self.before_gate
        return (self._versions() if self._draft is None else self._draft) != self._begun

    def make_step_again(self, k: int) -> None:
        self._note(f"parameters, changed in step {k} before its update, and the step is made again: change them in run.update(), or behind "
                   "optimizer.step()")  # fmt: skip

    def begin_section(self) -> None:
        self._section = self._all_versions()

    def make_section_again(self, section: str) -> None:
        if self._all_versions() != self._section:
            self._note(f"parameters, changed in run.do ({section}), which is made again: change them in a step, behind optimizer.step()")
