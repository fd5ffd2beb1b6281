"""The guard's second thread: it waits for the agent's stop event, so that the guard leaves its wait, and a handler which is stuck in a
collective with a rank that has died is freed by the client's own stop handler.

Threads: its own; `end` any, several times.
"""

from __future__ import annotations

import os
import select
import threading

from .callbacks import CallbackFailed, Kind
from .log import LOGGER
from .scope import Scope


class StopWatcher:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._stop_fd = scope.agent.stop_fd()
        self._quiet, self._wake = os.pipe()
        self._ending = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="mindio-stop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, limit: float = -1) -> bool:
        """Nothing of the agent is looked at any more. False: the stop handler that it calls does not return within the limit (-1: none)."""
        if not self._ending.acquire(timeout=limit):
            return False
        try:
            if not self._ended:
                os.write(self._wake, b".")
                self._thread.join(None if limit < 0 else limit)
                if self._thread.is_alive():
                    return False
                self._ended = True
                os.close(self._quiet)
                os.close(self._wake)
            return True
        finally:
            self._ending.release()

    def _run(self) -> None:
        state, calls, callbacks = self._scope.state, self._scope.calls, self._scope.rank.callbacks
        while True:
            ready, _, _ = select.select([self._stop_fd, self._quiet], [], [])
            if self._quiet in ready:
                return
            try:
                os.read(self._stop_fd, 8)
            except BlockingIOError:
                continue
            with state.changed:
                state.stop_seen = True
                stuck = calls.running not in (None, Kind.STOP) and callbacks.has(Kind.STOP)
                state.changed.notify_all()
            if stuck:
                self._free()

    def _free(self) -> None:
        """A handler may be waiting for a rank that is gone."""
        try:
            if self._scope.agent.superseded():
                LOGGER.warning("an incident has begun while a handler runs: it is stopped")
                self._scope.rank.callbacks.call(Kind.STOP, self._scope.rank.args)
        except (CallbackFailed, RuntimeError) as error:
            LOGGER.error("the running handler could not be stopped: %s", error)
