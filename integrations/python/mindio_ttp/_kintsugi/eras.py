"""Which of Kintsugi's controllers this process hosts: one after the other, where a run goes on with other ranks.

Threads: the host's; `end` another.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from kintsugi import _core

from .era import Era
from .place import Crew, Place
from .settings import Settings

_RESPAWNS = 1_000_000


class Eras:
    """`on_event`, `on_broken` are called on an era's own thread."""

    def __init__(self, world_size: int, settings: Settings, on_event: Callable[[Era, _core.Event], None],
                 on_broken: Callable[[str], None]) -> None:
        self._world_size, self._settings = world_size, settings
        self._on_event, self._on_broken = on_event, on_broken
        self._retired: list[Era] = []
        self.now: Era | None = None
        self.job = f"mindio-{secrets.token_hex(8)}"
        self.secret = secrets.token_bytes(32)
        self.bind = ""
        self.tls_files: list[str] = []
        self.replaces = False  # where a process is lost, the ladder's first choice is another one

    @property
    def crew(self) -> Crew:
        """Who takes part now."""
        return self.now.crew if self.now is not None else Crew(range(self._world_size))

    def first(self) -> Era:
        if self.now is None:
            self.now = self._host(Place(0, 0, self.crew))
        return self.now

    def next(self, place: Place) -> Era:
        """REQUIRES: there is one."""
        before = self.now
        assert before is not None
        self.now = self._host(replace(place, era=before.number + 1))
        self._retired.append(before)
        before.retire()
        return self.now

    def report_exit(self, rank: int, incarnation: int, cause: str) -> None:
        if self.now is not None and rank in self.now.crew:
            self.now.report_exit(rank, incarnation, cause)

    def end(self) -> None:
        eras = [*self._retired, *([self.now] if self.now is not None else [])]
        self.now, self._retired = None, []
        for era in eras:
            era.end()

    def _host(self, place: Place) -> Era:
        settings = self._settings
        era = Era(place, {
            "bind": self.bind, "job": f"{self.job}-{place.era}", "secret": self.secret,
            "max_respawns": _RESPAWNS if self.replaces else 0,
            "silence_ms": int(settings.silence * 1000),
            # Within a handler's time all of the scheduler's waits may lie.
            "step_timeout_ms": int(1000 * (settings.action_limit + 4 * settings.scheduler_wait + 30)),
            "join_timeout_ms": int(settings.respawn_wait * 1000),
            "hang_factor": 0, "save_directory": "of the client", "tls": self.tls_files,
            "reload_directory": "the newest periodic checkpoint of the client",
        })  # fmt: skip
        era.watch(self._on_event, self._on_broken)
        return era
