"""A process that is lost in an incident in which the number of ranks changes.

`when`: PHASE:RANK, of one that stays; or PHASE:RANK.INCARNATION, by its life, where the run grows: as it starts, before, amid or behind the move of its state
(start, rebuild, amid, rollback).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import kintsugi


class Dies:
    """`digest`: of what is moved."""

    def __init__(self, run: kintsugi.Run, when: str, digest: Callable[[], str]) -> None:
        self._run = run
        self._when = when
        self._digest = digest
        self._phase = when.partition(":")[0]
        self._me = f"{run.agent.rank}.{run.agent.incarnation}"
        if self._phase in ("rebuild", "rollback"):
            run.handler(self._phase, self._within)
        elif self._phase == "amid":
            run.handler("rebuild", self._amid)

    def start(self) -> None:
        if self._when == f"start:{self._me}":
            os.kill(os.getpid(), signal.SIGKILL)

    def _within(self, incident: kintsugi.Incident) -> None:
        stays = not incident.fresh and not self._run.replaces and self._when == f"{self._phase}:{self._run.agent.rank}"
        if stays or (incident.rung == "grow" and self._when == f"{self._phase}:{self._me}"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _amid(self, incident: kintsugi.Incident) -> None:
        """As soon as a byte of the state has come."""

        def watch(before: str) -> None:
            while self._digest() == before:
                pass
            os.kill(os.getpid(), signal.SIGKILL)

        if self._when == f"amid:{self._me}" and (incident.relayout or self._run.replaces):
            threading.Thread(target=watch, args=[self._digest()], daemon=True).start()
