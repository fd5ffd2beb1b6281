"""What the parts of a guard share: one rank in one era.

Threads: the guard's, `calls.running` also the watcher's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kintsugi import _core
from kintsugi.abi import Joined

from .apart import Apart
from .callbacks import CallbackFailed, Kind
from .codes import MindioError
from .journey import HANDLERS, Journey
from .place import Crew, Place
from .rank import Rank
from .state import RankState


class HandlerCalls:
    """The guard's calls of the client's handlers."""

    def __init__(self, rank: Rank, agent: _core.Agent, place: Place) -> None:
        self._rank, self._agent, self._place = rank, agent, place
        self.running: Kind | None = None

    def call(self, kind: Kind, *given: Any) -> Any:
        """Raises CallbackFailed."""
        callbacks = self._rank.callbacks
        with self._as_running(kind):
            if kind in HANDLERS:
                return callbacks.call_without_ctx(kind, *given, self._place.param)
            return callbacks.call(kind, *given)

    def call_apart(self, is_stopped: Callable[[], bool], kind: Kind, *given: Any) -> Any:
        """The same, and CallbackFailed too where the handler is left behind (apart.py)."""
        with self._as_running(kind):
            return Apart(lambda: self._rank.callbacks.call(kind, *given)).result(is_stopped)

    @contextlib.contextmanager
    def _as_running(self, kind: Kind) -> Iterator[None]:
        state = self._rank.state
        with state.changed:
            self.running = kind
            state.is_clean = state.is_clean and kind in (Kind.STOP, Kind.CLEAN)
        try:
            # The watcher frees what it sees running: what it was too early for does not begin.
            if self._agent.superseded():
                raise CallbackFailed(f"handler {kind.value} is not called: another attempt has begun")
            yield
        finally:
            with state.changed:
                self.running = None


@dataclass
class Scope:
    rank: Rank
    agent: _core.Agent
    place: Place
    journey: Journey
    calls: HandlerCalls
    closing: bool = False  # the guard is to end

    @property
    def state(self) -> RankState:
        return self.rank.state

    @property
    def crew(self) -> Crew:
        return self.place.crew

    @property
    def is_elsewhere(self) -> bool:
        """The rank has another place by now."""
        return self.rank.place is not self.place

    @property
    def gives_up(self) -> bool:
        """Nobody waits for this guard any more."""
        return self.closing or self.state.exiting is not None

    @property
    def begins(self) -> bool:
        """No loop was ever opened in this run, or in an era that a move began: nothing of the client's is called."""
        if self.journey.under_way:
            return self.journey.starts
        return self.state.round == 0 and self.agent.joined_as != Joined.REPLACEMENT

    def store(self, task: _core.Task) -> _core.Store:
        return self.agent.open_store(task.generation)

    def begin_repair(self, task: _core.Task) -> None:
        """Groups that are made from here on are those of this attempt, a dump too. A new era counts its attempts anew."""
        self.rank.group_names.begin((self.place.era << 32) + task.generation)

    def await_parked(self) -> None:
        """The main thread is out of the way. Raises MindioError."""
        state, limit = self.state, self.rank.settings.action_limit
        with state.changed:
            if not state.changed.wait_for(lambda: state.parked or state.exiting is not None, limit):
                raise MindioError(f"the main thread is not parked within {limit:g} s")
