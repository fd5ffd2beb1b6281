"""The markers of an update, and with them the gate: nobody starts the update after a step at which all are to meet.

Threads: the one that trains, with MindSpore any, one at a time. What runs without an incident takes no lock but Python's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from kintsugi import _core
from kintsugi.abi import Code

from .codes import MindioError
from .marks import MarkThread
from .rank import Rank

_OK, _INTERRUPTED, _PAUSED = map(int, (Code.OK, Code.INTERRUPTED, Code.PAUSED))  # every step compares them


class Markers:
    """`begin`: training begins, where it has not begun yet."""

    def __init__(self, rank: Rank, begin: Callable[[], None]) -> None:
        self._rank, self._state, self._begin = rank, rank.state, begin
        self._last_unprotected = 0

    def use(self, agent: _core.Agent) -> None:
        marks: list[Callable[[int], int]] = [agent.begin_step, agent.begin_update, agent.end_update]
        if self._rank.settings.mindspore:
            thread = MarkThread()
            marks = [functools.partial(thread.call, mark) for mark in marks]
        self._mark_step, self._mark_begin, self._mark_end = marks

    def start_updating(self) -> None:
        s = self._state
        if not s.open or self._rank.agent is None:
            self._enter_update()
            return
        s.marking = True
        if s.open and s.begun == s.next and not s.updating:
            code = self._mark_begin(s.next)
            if code == _OK:
                s.updating = True
                s.marking = False
                if not s.open:
                    s.notify()
                return
            s.marking = False
            if code != _INTERRUPTED:
                raise MindioError(f"tft_start_updating_os: {self._rank.agent.why()}")
            s.notify()
            self._held()
        s.marking = False
        if s.updating:
            raise MindioError(f"tft_start_updating_os: the update of step {s.told_step(s.next)} is under way: tft_end_updating_os ends it")
        self._enter_update()

    def _enter_update(self) -> None:
        s = self._state
        if self._rank.agent is None:
            self._begin()
        if self._rank.agent is None:
            s.updating = True  # unprotected: numbers are kept, nothing else
            return
        if s.updating:
            raise MindioError("tft_start_updating_os: the update before this one is under way: tft_end_updating_os ends it")
        with s.changed:
            if s.round == 0:  # the run's first loop opens when all ranks are there
                s.wait(lambda: s.round > 0 or s.exiting is not None)
            closed = not s.open
        if closed:
            self._held()
        self.begin_step()
        self.start_updating()

    def _held(self) -> None:
        """The step lock. The stop handler frees it."""
        s = self._state
        with s.changed:
            s.changed.notify_all()
            s.wait(lambda: s.force_stop or s.exiting is not None)
            text = s.exiting
        if text is not None:
            raise RuntimeError(f"FORCE STOP: {text}")
        raise RuntimeError("FORCE STOP: an incident has begun, this step is given up")

    def end_updating(self, step: int) -> None:
        s = self._state
        if not s.updating:
            raise MindioError(f"tft_end_updating_os({step}): no update is under way: tft_start_updating_os comes first")
        if self._rank.agent is None:
            self._check_unprotected(step)
            s.updating = False
            return
        if s.offset is None:
            s.offset = step - s.next
            self._rank.link.tell("offset", offset=s.offset)
        elif step != s.next + s.offset:
            raise MindioError(f"tft_end_updating_os({step}): step {s.next + s.offset} is the one under way: steps count up by one")
        s.marking = True
        code = self._mark_end(s.next)
        s.next += 1
        s.updating = False
        s.marking = False
        if code not in (_OK, _INTERRUPTED):
            raise MindioError(f"tft_end_updating_os: {self._rank.agent.why()}")
        if s.open:
            self.begin_step()
        else:
            s.notify()

    def _check_unprotected(self, step: int) -> None:
        if self._last_unprotected and step != self._last_unprotected + 1:
            raise MindioError(f"tft_end_updating_os({step}): step {self._last_unprotected + 1} is the one under way: steps count up by one")
        self._last_unprotected = step

    def begin_step(self) -> None:
        """A save point is the guard's to work off."""
        s, agent = self._state, self._rank.agent
        assert agent is not None
        s.marking = True
        if not s.open or s.begun == s.next:
            s.marking = False
            return
        code = self._mark_step(s.next)
        if code == _OK:
            s.begun = s.next
            s.marking = False
            if not s.open:
                s.notify()
            return
        if code == _PAUSED:
            with s.changed:
                s.at_save_point, s.save_point_code = True, None
                s.changed.notify_all()
                s.wait(lambda: s.save_point_code is not None or s.exiting is not None)
                s.at_save_point = False
                if s.save_point_code == _OK:
                    s.begun = s.next
        s.marking = False
        s.notify()
        if code not in (_INTERRUPTED, _PAUSED):
            raise MindioError(f"the step after {s.told_step(s.next - 1)} cannot begin: {agent.why()}")
