"""The markers of an update, and with them the gate: nobody starts the update after a step at which all are to meet.

Threads: the one that trains, with MindSpore any, one at a time. What runs without an incident takes no lock but Python's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from kintsugi import _core
from kintsugi.abi import Code

from .callbacks import Kind
from .codes import MindioError
from .leaving import leave_now
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
        if s.begun != s.next and not s.updating:
            self.begin_step()
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
        """The step lock. The stop handler frees it; in a hot switch nobody is stopped."""
        s = self._state
        with s.changed:
            s.changed.notify_all()
            s.wait(lambda: s.leaves_step)
            text, switches = s.exiting, s.switching
        if text is not None:
            raise RuntimeError(f"FORCE STOP: {text}")
        if switches:
            raise RuntimeError("STEP FINISH")
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
        if not s.open:
            s.notify()

    def _check_unprotected(self, step: int) -> None:
        if self._last_unprotected and step != self._last_unprotected + 1:
            raise MindioError(f"tft_end_updating_os({step}): step {self._last_unprotected + 1} is the one under way: steps count up by one")
        self._last_unprotected = step

    def end_iteration(self) -> None:
        """Of the client's: what follows in it belongs to the next step."""
        s = self._state
        if s.open and s.begun != s.next and not s.updating:
            self.begin_step()

    def begin_step(self) -> None:
        """The one before it is over. Where all are to meet there, this thread stands still."""
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
        goes_on = code == _PAUSED and self._stand_still()
        if goes_on:
            s.begun = s.next
        s.marking = False
        s.notify()
        if code == _PAUSED and not goes_on:
            self._held()
        if code not in (_INTERRUPTED, _PAUSED):
            raise MindioError(f"the step after {s.told_step(s.next - 1)} cannot begin: {agent.why()}")

    def _stand_still(self) -> bool:
        """A save point, which is the guard's to work off, or a pause. False: an incident has begun, for which the step is left."""
        s, at, synced = self._state, self._state.next - 1, False
        with s.changed:
            s.at_save_point, s.save_point_code = True, None
            s.changed.notify_all()
        while True:
            with s.changed:
                s.wait(lambda: s.save_point_code is not None or s.leaves_step or s.sync_at == at and not synced)
                if s.save_point_code is not None or s.force_stop or s.switching:
                    s.at_save_point = False
                    return s.save_point_code == _OK
            if s.exiting is not None:
                leave_now(self._rank.number, s)
            synced = True
            self._rank.link.tell("synced", step=at, error=self._sync_streams())

    def _sync_streams(self) -> str:
        """What went wrong; "" for nothing."""
        callbacks = self._rank.callbacks
        if callbacks.has(Kind.STREAM_SYNC):
            try:
                callbacks.call_without_ctx(Kind.STREAM_SYNC)
            except Exception as failed:
                return str(failed)
        return ""
