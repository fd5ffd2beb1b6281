"""A rank's part in a pause (pause.py): it holds at the end of an iteration until it knows the step of the pause.

Threads: `pause_train` the main thread's, the orders the link's.
"""

from __future__ import annotations

from collections.abc import Callable

from .callbacks import Kind
from .desk import Message
from .rank import Rank


class RankPause:
    """`leave_now`: this process leaves."""

    def __init__(self, rank: Rank, leave_now: Callable[[], None]) -> None:
        self._rank, self._state, self._leave_now = rank, rank.state, leave_now

    def pause_train(self, step: int) -> None:
        s = self._state
        s.last_step = step
        if not s.hold:
            return
        with s.changed:
            s.wait(lambda: not s.hold or s.pause_at is not None or s.exiting is not None or s.force_stop)
            pauses, pause = s.hold and s.pause_at is not None and step >= s.pause_at, s.pauses
        if s.exiting is not None:
            self._leave_now()
        if pauses:
            self._stand_still(pause)

    def _stand_still(self, pause: int) -> None:
        """Until this pause is over: the next may be asked for before this thread has seen that."""
        s = self._state
        self._rank.link.tell("paused", error=self._sync_streams())
        with s.changed:
            s.wait(lambda: not s.hold or s.pauses != pause or s.switching or s.exiting is not None or s.force_stop)
            switches, s.switching = s.switching, False
            stopped = s.force_stop
        if s.exiting is not None:
            self._leave_now()
        if switches:
            raise RuntimeError("STEP FINISH")
        if stopped:
            raise RuntimeError("FORCE STOP: an incident has begun in a pause")

    def _sync_streams(self) -> str:
        """What went wrong; "" for nothing."""
        callbacks = self._rank.callbacks
        if callbacks.has(Kind.STREAM_SYNC):
            try:
                callbacks.call_without_ctx(Kind.STREAM_SYNC)
            except Exception as failed:
                return str(failed)
        return ""

    # ---- orders -------------------------------------------------------------------------------------------------------------

    def on_hold(self, _: Message) -> None:
        s = self._state
        with s.changed:
            s.hold, s.pause_at, s.pauses = True, None, s.pauses + 1
            s.changed.notify_all()
            held = s.last_step
        self._rank.link.tell("held", step=held)

    def on_pause_at(self, order: Message) -> None:
        self._set(True, int(order["step"]))

    def on_continue(self, _: Message) -> None:
        self._set(False, None)

    def _set(self, hold: bool, at: int | None) -> None:
        s = self._state
        with s.changed:
            s.hold, s.pause_at = hold, at
            s.changed.notify_all()

    def on_switch(self, _: Message) -> None:
        s = self._state
        with s.changed:
            s.switching = True
            s.changed.notify_all()
