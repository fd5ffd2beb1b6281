"""A pause at a step that all ranks share: Kintsugi's own, which ends with an incident here, as it does in MindIO.

Threads: the host's; the controller is asked apart, since it answers when all stand.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from .codes import MindioError
from .desk import Message, Peer
from .eras import Eras
from .host import Host
from .log import LOGGER
from .ranks import Ranks

_QUICK = 10.0  # what is answered at once


class PauseBroken(MindioError):
    """It did not come about, and may another time: an incident came first, or training is paused already."""


class Pauses:
    def __init__(self, host: Host, ranks: Ranks, eras: Eras) -> None:
        self._host, self._ranks, self._eras = host, ranks, eras
        self._over = asyncio.Event()  # the pause that was asked for last
        self._over.set()
        self._at: int | None = None  # Kintsugi's number of the step at which streams are being synchronized
        self._synced: dict[int, str] = {}

    @property
    def asked(self) -> bool:
        return not self._over.is_set()

    async def pause(self, limit: float) -> asyncio.Event:
        """Returns once every rank stands there, with what is set when they go on; raises MindioError."""
        if self.asked:
            raise PauseBroken("training is paused already: 'continue' comes first")
        self._over = over = asyncio.Event()
        try:
            at = int((await self._ask("pause", limit))["step"])
            if over.is_set():  # an incident came before Kintsugi had heard of it
                await self._ask("continue", _QUICK)
                raise PauseBroken("an incident came before the pause")
            await self._synchronize(at, limit)
        except MindioError as error:
            LOGGER.error("the pause failed: %s", error)
            if self._over is over:
                await self.drop()
            raise
        return over

    async def resume(self) -> None:
        """Raises MindioError where nothing is paused."""
        await self._ask("continue", _QUICK)
        self._over.set()

    async def drop(self) -> None:
        """There is none, whether it was asked for or not."""
        if not self.asked:
            return
        self._over.set()
        self._at = None
        try:
            await self._ask("continue", _QUICK)
        except MindioError:
            pass  # nothing is paused yet

    def on_synced(self, peer: Peer, message: Message) -> None:
        if self._at == int(message["step"]):
            self._synced[peer.rank] = str(message["error"])

    async def _synchronize(self, at: int, limit: float) -> None:
        """The client's stream_sync on every rank."""
        self._at, self._synced = at, {}
        asked = set(self._ranks.broadcast({"do": "sync", "step": at}))
        done = await self._host.until(lambda: self._at != at or asked <= set(self._synced), limit)
        broken, self._at = self._at != at, None
        failed = {rank: error for rank, error in self._synced.items() if error}
        if broken:
            raise PauseBroken("an incident came before the pause")
        if not done:
            raise MindioError(f"stream_sync of ranks {sorted(asked - set(self._synced))} did not return within {limit:g} s")
        if failed:
            raise MindioError(f"stream_sync failed: {failed}")

    async def _ask(self, command: str, limit: float) -> dict[str, Any]:
        """Raises PauseBroken where it is refused."""
        if self._eras.now is None:
            raise MindioError("no rank has begun to train")
        core = self._eras.now.core
        try:
            answer: dict[str, Any] = json.loads(await self._host.apart(core.ask, json.dumps({"command": command}), int(1000 * limit)))
        except RuntimeError as error:
            raise MindioError(str(error)) from error
        if not answer["ok"]:
            raise PauseBroken(str(answer["error"]))
        return answer
