"""One rank: its parts, its life, and what the controller's process orders.

The client's main thread trains, marks its updates (markers.py) and reports what it meets (reports.py). The guard (guard.py) is a thread of
its own, which asks Kintsugi's agent what comes next and calls the client's handlers, as MindIO's processor does. A loop that the agent has
opened belongs to the main thread until the guard takes it back; it does so between markers and never within an update.

Threads: the main thread's; orders come on the link's.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable

from kintsugi import _core

from . import settings
from .callbacks import Callbacks
from .codes import ReportState
from .desk import Link, Message
from .faults import FaultTable
from .guard import Guard
from .leaving import exit_soon, leave_now
from .log import LOGGER
from .markers import Markers
from .membership import Membership
from .place import Place
from .rank import Rank
from .reports import Reports

_CLOSE_LIMIT = 1.0


class Processor:
    """This process's rank."""

    def __init__(self, number: int, world_size: int, callbacks: Callbacks, faults: FaultTable, enable_uce: bool, enable_zit: bool = False) -> None:
        link = Link(self._on_order, self._on_lost)
        self.rank = Rank(number, world_size, callbacks, faults, settings.current(), link, enable_uce=enable_uce, enable_zit=enable_zit)
        self.state = self.rank.state
        self.rank.group_names.install()
        self.membership = Membership(self.rank, self._on_join)
        self.markers = Markers(self.rank, self.membership.begin)
        self.reports = Reports(self.rank, self.membership, self.markers.begin_step)
        self._guard: Guard | None = None
        self.started = False  # and not closed
        self.tls = (False, "")  # as it was initialized
        self._orders: dict[str, Callable[[Message], None]] = {
            "leave": self._on_leave, "ended": self._on_ended, "take_place": self._on_take_place, "place": self._on_place,
            "step_out": self._on_step_out, "rename": self._on_rename, "sync": self._on_sync,
        }  # fmt: skip

    # ---- life -----------------------------------------------------------------------------------------------------------

    def start(self, host: str, port: int, local: str, tls: ssl.SSLContext | None, tls_files: list[str]) -> None:
        """Raises OSError or MindioError."""
        self.membership.start(host, port, local, tls, tls_files)
        self.started = True

    def _on_join(self, agent: _core.Agent, place: Place) -> None:
        self.markers.use(agent)
        self._guard = Guard(self.rank, agent, place, self.membership.follow)
        self._guard.start()

    def await_loop(self) -> None:
        """Before training: until a loop was this thread's, if only for a moment (reports.py)."""
        s = self.state
        self.membership.begin()
        if self.rank.agent is None:
            return
        with s.changed:
            s.wait(lambda: s.round > 0 or s.exiting is not None)
        if s.exiting is not None:
            self.leave_now()
        self.markers.begin_step()

    def finish(self) -> bool:
        """The trainer's loop is over. False: an incident wants it to run again. A rank keeps its state until all are done."""
        s = self.state
        if self._guard is None:
            return True
        with s.changed:
            before = s.round
            s.finished = s.parked = True
            s.changed.notify_all()
            s.wait(lambda: s.exiting is not None or s.ended or s.round != before)
            return s.round == before or s.ended

    def close(self, done: bool) -> None:
        """Any number of times. `done`: training is over, and not broken off."""
        if not self.started:
            return
        self.started = False
        if done and self.state.exiting is None:
            self.finish()
        if done and self.state.exiting is None:
            self.rank.link.tell("bye")
        if self.rank.agent is not None and (self._guard is None or self._guard.close(_CLOSE_LIMIT)):
            self.rank.agent.leave()
        self.rank.link.close()

    def leave_now(self) -> None:
        leave_now(self.rank.number, self.state)

    # ---- the controller's word --------------------------------------------------------------------------------------------

    def _on_order(self, order: Message) -> None:
        on_order = self._orders.get(str(order["do"]))
        if on_order is not None:
            on_order(order)

    def _on_take_place(self, order: Message) -> None:
        with self.state.changed:
            self.rank.aside, self.state.offset = False, order["offset"]
            self.state.changed.notify_all()

    def _on_place(self, order: Message) -> None:
        with self.state.changed:
            self.rank.aside, self.rank.place = False, Place.read(order)
            self.state.changed.notify_all()

    def _on_step_out(self, _: Message) -> None:
        with self.state.changed:
            self.state.steps_out = True
            self.state.changed.notify_all()

    def _on_sync(self, order: Message) -> None:
        with self.state.changed:
            self.state.sync_at = int(order["step"])
            self.state.changed.notify_all()

    def _on_leave(self, order: Message) -> None:
        self.state.leave(str(order["text"]))
        threading.Thread(target=exit_soon, args=(self.state,), name="mindio-exit", daemon=True).start()

    def _on_ended(self, order: Message) -> None:
        if int(order["code"]) == 0:
            return  # the agent says so too
        # Who still works on the incident hears of its end from the agent, after its last task.
        if self.state.reported is ReportState.RS_UNKNOWN:
            self.state.leave(str(order["text"]))

    def _on_rename(self, order: Message) -> None:
        threading.Thread(target=self._rename, args=(int(order["step"]),), name="mindio-rename", daemon=True).start()

    def _rename(self, step: int) -> None:
        rank, error = self.rank, ""
        try:
            rank.callbacks.rename(step, rank.args, rank.settings.mindspore)
        except Exception as failed:
            error = str(failed)
        rank.link.tell("renamed", error=error)

    def _on_lost(self) -> None:
        if self.started and not self.state.ended:
            LOGGER.warning("the connection to the controller's process is lost")
        if self.rank.aside:
            self.state.leave("it stood aside, and the controller's process is gone")
