"""CLEAN: the client's stop handler, its main thread's way out of the step, and its clean handler, once the controller's process has said
how the incident is mended. Where the run goes on with other ranks, this rank then waits for its other place.

Threads: the guard's.
"""

from __future__ import annotations

from typing import Any

from kintsugi import _core
from kintsugi.abi import Rung

from .callbacks import Kind
from .codes import RET_NO_REBUILD, MindioError
from .scope import Scope

_LOOK_AGAIN = 0.02
_STEP_OUT_LIMIT = 5.0  # ranks that are told to leave a pause do so at once


class OtherWay(Exception):
    """The scheduler chose another way than the ladder: this attempt is given up."""


class Moved(Exception):
    """This rank goes on under another of Kintsugi's controllers."""


class Cleaning:
    def __init__(self, scope: Scope) -> None:
        self._scope, self._rank, self._state = scope, scope.rank, scope.state

    def clean(self, task: _core.Task) -> None:
        """Raises OtherWay, Moved, CallbackFailed and MindioError."""
        scope, state = self._scope, self._state
        if scope.begins and not scope.journey.under_way:
            return
        state.incident.needs_nothing, state.incident.reloads = False, task.rung == Rung.RELOAD
        word = self._ask(task)
        if word.get("skip"):
            return
        if not (state.is_clean and word.get("moves")):
            self._stop_and_clean(task, bool(word["switch"]))
        if word.get("moves"):
            self._await_elsewhere(task)

    def clean_before_save(self, task: _core.Task) -> None:
        """As the client wants it before a dump: told of no memory error."""
        self._ask(task)
        self._stop()
        self._scope.calls.call(Kind.CLEAN, False, self._rank.args)

    def _ask(self, task: _core.Task) -> dict[str, Any]:
        """How this attempt mends the incident, from the controller's process; held there while a scheduler decides."""
        scope, state = self._scope, self._state
        limit = 4 * self._rank.settings.scheduler_wait + 20
        word = self._rank.link.ask("clean", limit, era=scope.place.era, generation=task.generation, clean=state.is_clean)
        with state.changed:
            state.repair_type = word["type"]
            state.repair_step = state.told_step(task.step)
            state.changed.notify_all()
        scope.journey.on_attempt(bool(word.get("opened")))
        if word["other_way"]:
            raise OtherWay
        return word

    def _stop_and_clean(self, task: _core.Task, switches: bool) -> None:
        state = self._state
        self._scope.begin_repair(task)
        if switches and state.incident.error is None and self._has_stepped_out():
            with state.changed:
                state.clean_done = True
                state.changed.notify_all()
            return
        self._stop()
        if not self._rank.callbacks.has(Kind.CLEAN):
            raise MindioError("no clean handler is registered: this rank cannot be cleaned")
        failed = state.incident.memory_failed
        result = self._scope.calls.call(Kind.CLEAN, failed, self._rank.args)
        state.incident.needs_nothing = failed and result == RET_NO_REBUILD
        if result not in (None, 0) and not state.incident.needs_nothing:
            raise MindioError(f"handler clean returned {result!r}: this rank cannot be cleaned")
        with state.changed:
            state.clean_done = state.is_clean = True
            state.changed.notify_all()

    def _stop(self) -> None:
        """The client's stop handler, and then its main thread's way out of the step."""
        state, limit = self._state, self._rank.settings.action_limit
        if not self._rank.callbacks.has(Kind.STOP):
            raise MindioError("no stop handler is registered: the main thread cannot be brought out of its step")
        self._scope.calls.call(Kind.STOP, self._rank.args)
        with state.changed:
            state.force_stop = True
            state.changed.notify_all()
            if not state.changed.wait_for(lambda: self._has_left_step or state.exiting is not None, limit):
                raise MindioError(f"the main thread did not report within {limit:g} s of the stop handler's return")

    def _has_stepped_out(self) -> bool:
        """In a hot switch: the main thread is told to leave its step, and has done so by itself."""
        state = self._state
        with state.changed:
            state.switching = True
            state.changed.notify_all()
            return bool(state.changed.wait_for(lambda: self._has_left_step, _STEP_OUT_LIMIT))

    @property
    def _has_left_step(self) -> bool:
        return self._state.reported is not None or self._state.finished or self._state.parked

    def _await_elsewhere(self, task: _core.Task) -> None:
        """Stopped and cleaned: the controller's process waits for all to be so. Raises Moved."""
        scope, state = self._scope, self._state
        offset = None if state.offset is None else state.told_step(task.step)
        self._rank.link.tell("cleaned", era=scope.place.era, generation=task.generation, offset=offset)
        while True:
            with state.changed:
                state.changed.wait_for(lambda: scope.is_elsewhere or scope.gives_up, _LOOK_AGAIN)
                if scope.is_elsewhere:
                    raise Moved
                if scope.gives_up:
                    raise MindioError("this process leaves")
            if scope.agent.superseded():
                raise MindioError("another attempt has begun before all were cleaned")
