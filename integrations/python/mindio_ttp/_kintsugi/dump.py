"""The dying gasp: what this rank saves of the state, and the dump's publication.

Threads: the guard's.
"""

from __future__ import annotations

import json
from typing import Any

from kintsugi import _core

from . import settings
from .callbacks import Kind
from .cleaning import Cleaning
from .codes import MindioError
from .scope import Scope

_STORE_LIMIT_MS = 60_000


class Dump:
    """Both raise CallbackFailed, MindioError and RuntimeError."""

    def __init__(self, scope: Scope, cleaning: Cleaning) -> None:
        self._scope, self._rank, self._state, self._cleaning = scope, scope.rank, scope.state, cleaning

    def save(self, task: _core.Task) -> None:
        state = self._state
        if not self._rank.callbacks.has(Kind.SAVE_CKPT):
            raise MindioError("no save_ckpt handler is registered: nothing can be dumped")
        if self._scope.journey.hollow:
            raise MindioError("this rank has come back, and its state was not moved yet: another holder saves")
        with state.changed:
            state.saved = True
        self._scope.begin_repair(task)
        if not state.at_save_point and settings.stops_before_dump():
            self._cleaning.clean_before_save(task)
        written = self._all_entries(task)
        info = self._save_info(task, written)
        self._scope.calls.call_apart(self._scope.agent.superseded, Kind.SAVE_CKPT, state.told_step(task.step), info, self._rank.args)

    def _all_entries(self, task: _core.Task) -> dict[int, list[int]]:
        """Which optimizer types each of the writers writes."""
        store, mine, own = self._scope.store(task), self._rank.number, [kind for kind, _ in task.entries]
        store.set(f"mindio/save/{task.step}/{mine}", json.dumps(own).encode())
        return {rank: own if rank == mine else json.loads(store.get(f"mindio/save/{task.step}/{rank}", _STORE_LIMIT_MS))
                for rank in self._scope.crew.of(task.partners)}

    def _save_info(self, task: _core.Task, written: dict[int, list[int]]) -> list[dict[str, Any]]:
        """One entry for each optimizer type: all of its group's ranks that write a part, in the order of the parts: the first one is the
        client's writer of the file, and the others send it theirs."""
        info = []
        for kind in sorted({kind for kind, _ in task.entries}):
            group = self._rank.groups[kind]
            writers = [rank for rank in written if rank in group.ranks and kind in written[rank]]
            info.append({"type": kind, "ranks": sorted(writers, key=group.part)})
        return info

    def rename(self, task: _core.Task) -> None:
        """On the first writer that is not rank 0."""
        rank, step = self._rank, self._state.told_step(task.step)
        chosen = next((writer for writer in sorted(self._scope.crew.of(task.partners)) if writer != 0), 0)
        if chosen != rank.number:
            rank.link.ask("rename", rank.settings.action_limit, rank=chosen, step=step)
        elif rank.callbacks.has(Kind.RENAME):
            rank.callbacks.rename(step, rank.args, rank.settings.mindspore)
