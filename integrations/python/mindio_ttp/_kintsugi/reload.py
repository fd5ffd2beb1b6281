"""Going back to the client's own checkpoint, where updates may have used what was wrong, or no copy of some state is left.

Every rank's repair handler loads it, and all go on from the step that they say they have loaded. Which checkpoint it is, the client knows:
the newest, or one that the text of a precision error names, which it reads in the handler of that error's pattern
(tft_register_exception_handler). Its ranks load together, so all must have read the same. Over MindIO each has two seconds to raise
the error by itself before it is stopped. Here a rank may be stopped sooner, so it is told what the others have raised.

Threads: the guard's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kintsugi import _core

from . import layout
from .callbacks import CallbackFailed, Kind
from .codes import RepairType, ReportState
from .place import Crew
from .rank import Rank

_STORE_LIMIT_MS = 60_000
_TEXT_BYTES_MAX = 32 << 10  # of an error, as others are told it


class NoCheckpoint(Exception):
    """The client could not load one, or its ranks loaded different ones."""


class Reload:
    """One rank's part of it. `call`: of a handler, with Kind and what it is given."""

    def __init__(self, rank: Rank, crew: Crew, call: Callable[..., Any]) -> None:
        self._rank, self._state, self._crew, self._call = rank, rank.state, crew, call

    def run(self, task: _core.Task, store: _core.Store, rebuilds: bool) -> None:
        """Raises NoCheckpoint. `rebuilds`: this rank's tensors were replaced, because their memory was damaged."""
        rank, state = self._rank, self._state
        if not rank.callbacks.has(Kind.REPAIR):
            raise NoCheckpoint("no repair handler is registered: no checkpoint can be loaded")
        self._hear_of_it(self._crew.of(task.fault_ranks), store)
        kind = RepairType.RT_LOAD_REBUILD if rebuilds else RepairType.RT_LOAD_CKPT
        info = layout.reload_info(rank.number, len(rank.groups), kind.value, self._crew.ranks)
        state.loaded_step = 0
        try:
            self._call(Kind.REPAIR, state.told_step(task.step), rebuilds, list(info["dst"]), info, rank.args)
        except CallbackFailed as error:
            raise NoCheckpoint(str(error)) from error
        self._agree(task, store)

    def _hear_of_it(self, at_fault: list[int], store: _core.Store) -> None:
        """Who did not raise the precision error hears its text. Those with whom the incident began say what they have raised."""
        rank, state = self._rank, self._state
        raised = state.report_text if state.reported is ReportState.RS_RETRY else ""
        if rank.number in at_fault:
            store.set(_raised_by(rank.number), raised.encode()[:_TEXT_BYTES_MAX])
        if raised:
            return
        for other in sorted(at_fault):
            text = store.get(_raised_by(other), _STORE_LIMIT_MS).decode(errors="ignore")
            if text:
                try:
                    rank.faults.hear(text)
                except Exception as error:  # the client's own
                    raise NoCheckpoint(f"the handler of the error that rank {other} has raised failed: {type(error).__name__}: {error}") from error
                return

    def _agree(self, task: _core.Task, store: _core.Store) -> None:
        """All have loaded the same step, from which they go on."""
        rank, state = self._rank, self._state
        if not state.loaded_step:
            raise NoCheckpoint("the repair handler did not say which step it has loaded (tft_report_load_ckpt_step)")
        mine = str(state.loaded_step).encode()
        first = store.compare_set("mindio/loaded", b"", mine, _STORE_LIMIT_MS)
        if first != mine:
            raise NoCheckpoint(f"rank {rank.number} has loaded step {state.loaded_step}, another rank step {first.decode()}")
        state.offset = state.loaded_step - task.step
        rank.link.tell("offset", offset=state.offset, forced=True)


def _raised_by(rank: int) -> str:
    return f"mindio/raised/{rank}"
