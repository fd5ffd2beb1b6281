"""A pause at a step that all ranks share: Kintsugi's own, which ends with an incident here, as it does in MindIO.

Threads: any; what is shared is under the lock of Ranks.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from kintsugi import _core

from .codes import MindioError
from .desk import Message, Peer
from .eras import Eras
from .log import LOGGER
from .ranks import Ranks


class PauseBroken(MindioError):
    """It did not come about, and may another time: an incident came first, or training is paused already."""


class Pauses:
    def __init__(self, ranks: Ranks, eras: Eras) -> None:
        self._ranks, self._eras = ranks, eras
        self._over = threading.Event()  # the pause that was asked for last
        self._at: int | None = None  # Kintsugi's number of the step at which streams are being synchronized
        self._synced: dict[int, str] = {}

    @property
    def asked(self) -> bool:
        return bool(_ask(self._core(), "status", 10)["pause"]["asked"])

    def pause(self, limit: float) -> threading.Event:
        """Returns once every rank stands there, with what is set when they go on; raises MindioError."""
        core = self._core()
        with self._ranks.lock:
            if self.asked:
                raise PauseBroken("training is paused already: 'continue' comes first")
            self._over = over = threading.Event()
            _ask(core, "pause", limit, wait=False)
        try:
            self._synchronize(int(_ask(core, "pause", limit)["step"]), limit)
        except PauseBroken:
            raise
        except MindioError as error:
            LOGGER.error("the pause failed: %s", error)
            self.drop()
            raise
        return over

    def resume(self) -> None:
        """Raises MindioError where nothing is paused."""
        _ask(self._core(), "continue", 10)
        self._over.set()

    def drop(self) -> None:
        """There is none, whether it was asked for or not: an incident has begun."""
        with self._ranks.changed:
            self._at = None
            self._over.set()
            self._ranks.changed.notify_all()
        try:
            self.resume()
        except MindioError:
            pass  # nothing is paused

    def on_synced(self, peer: Peer, message: Message) -> None:
        with self._ranks.changed:
            if self._at == int(message["step"]):
                self._synced[peer.rank] = str(message["error"])
                self._ranks.changed.notify_all()

    def _synchronize(self, at: int, limit: float) -> None:
        """The client's stream_sync on every rank."""
        ranks = self._ranks
        with ranks.changed:
            self._at, self._synced = at, {}
            asked = set(ranks.broadcast({"do": "sync", "step": at}))
            done = ranks.changed.wait_for(lambda: self._at != at or asked <= set(self._synced), limit)
            broken, self._at = self._at != at, None
            failed = {rank: error for rank, error in self._synced.items() if error}
            late = sorted(asked - set(self._synced))
        if broken:
            raise PauseBroken("an incident came before the pause")
        if not done:
            raise MindioError(f"stream_sync of ranks {late} did not return within {limit:g} s")
        if failed:
            raise MindioError(f"stream_sync failed: {failed}")

    def _core(self) -> _core.Controller:
        with self._ranks.lock:
            era = self._eras.now
        if era is None:
            raise MindioError("no rank has begun to train")
        return era.core


def _ask(core: _core.Controller, command: str, limit: float, **more: Any) -> dict[str, Any]:
    """Raises PauseBroken where it is refused, MindioError where no answer comes in time."""
    try:
        answer: dict[str, Any] = json.loads(core.ask(json.dumps({"command": command, **more}), int(1000 * limit)))
    except RuntimeError as error:
        raise MindioError(str(error)) from error
    if not answer["ok"]:
        raise PauseBroken(str(answer["error"]))
    return answer
