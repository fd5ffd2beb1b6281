"""The guard: a thread that asks Kintsugi's agent what comes next, and has the client's handlers called.

| task of the agent | what the client sees | where |
|---|---|---|
| CLEAN | `stop`; then its main thread reports; then `clean`; tft_wait_next_action returns | cleaning.py |
| REBUILD_GROUP | `rebuild_group`, where processes were replaced | repair.py |
| REPAIR | `repair`, on sources and destinations; on all where a checkpoint is loaded (reload.py) | repair.py |
| ROLLBACK | `rollback` | repair.py |
| LOOP | tft_wait_repair_action returns | loop.py |
| SAVE | `stop` and `clean` where that is asked for, `save_ckpt` | dump.py |
| RENAME | `rename`, on this rank or, through the desk, on the one that MindIO would choose | dump.py |
| CLEAN, where the scheduler chose to go on with other ranks | the same; then this rank joins another era, under another guard | cleaning.py |
| REBUILD_GROUP, REPAIR, ROLLBACK of that era's first incident | the zit handlers | journey.py |

Threads: its own; `start` and `close` any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kintsugi import _core
from kintsugi.abi import Code, TaskKind

from .callbacks import CallbackFailed
from .cleaning import Cleaning, Moved, OtherWay
from .codes import MindioError, ReportState
from .dump import Dump
from .journey import Journey
from .leaving import exit_soon
from .limits import PULL_MS, TEXT_MAX
from .log import LOGGER
from .loop import Loop
from .place import Place
from .rank import Rank
from .reload import NoCheckpoint
from .repair import Repair
from .scope import HandlerCalls, Scope
from .stop_watcher import StopWatcher


class Guard:
    """One rank's, in one era. `follow`: joins where the rank has its place by now, under another guard."""

    def __init__(self, rank: Rank, agent: _core.Agent, place: Place, follow: Callable[[], None]) -> None:
        self._rank, self._state, self._agent, self._follow = rank, rank.state, agent, follow
        self._scope = scope = Scope(rank, agent, place, Journey(place, rank.number, agent), HandlerCalls(rank, agent, place))
        self._watcher = StopWatcher(scope)
        self._thread = threading.Thread(target=self._run, name="mindio-guard", daemon=True)
        self._loop = Loop(scope, self._work_off)
        cleaning, repair = Cleaning(scope), Repair(scope)
        dump = Dump(scope, cleaning)
        self._work: dict[int, Callable[[_core.Task], None]] = {
            TaskKind.CLEAN: cleaning.clean, TaskKind.REBUILD_GROUP: repair.rebuild_groups, TaskKind.REPAIR: repair.repair,
            TaskKind.ROLLBACK: repair.roll_back, TaskKind.SAVE: dump.save, TaskKind.RENAME: dump.rename,
        }  # fmt: skip

    def start(self) -> None:
        self._agent.guard_begin()
        self._thread.start()
        self._watcher.start()

    def close(self, limit: float) -> bool:
        """Ends both threads. False: a handler of the client's does not return, and the agent must stay."""
        with self._state.changed:
            self._scope.closing = True
            self._state.changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(limit)
        return self._watcher.end(limit) and not self._thread.is_alive()

    def _run(self) -> None:
        scope = self._scope
        try:
            while not self._state.ended and not scope.closing and not scope.is_elsewhere:
                self._take(self._agent.next(PULL_MS))
            if scope.is_elsewhere and not scope.closing:
                self._watcher.end()
                self._follow()
        except Exception as error:  # whatever it is: without its guard this rank holds up all others
            LOGGER.exception("the guard of rank %d failed", self._rank.number)
            self._state.leave(str(error))
            exit_soon(self._state)

    def _take(self, task: _core.Task) -> None:
        if task.kind == TaskKind.LOOP:
            self._loop.run(task)
        elif task.kind == TaskKind.ENDED:
            self._end(task)
        elif task.kind != TaskKind.NOTHING:
            self._work_off(task)

    def _work_off(self, task: _core.Task) -> None:
        number = self._rank.number
        try:
            self._work[task.kind](task)
        except Moved:
            return  # nothing is answered any more
        except OtherWay:
            self._agent.done(Code.COMM_FAILURE, "the scheduler chose another way")
        except NoCheckpoint as error:
            LOGGER.error("rank %d: %s", number, error)
            self._agent.done(Code.CANCELLED if self._agent.superseded() else Code.DATA_LOSS, str(error)[:TEXT_MAX])
        except (CallbackFailed, MindioError, RuntimeError) as error:
            superseded = self._agent.superseded()
            if not superseded:
                LOGGER.error("rank %d: %s", number, error)
                self._meet(str(error))
            self._agent.done(Code.CANCELLED if superseded else Code.INTERNAL, str(error)[:TEXT_MAX])
        else:
            self._agent.done(Code.OK, "")

    def _meet(self, text: str) -> None:
        """Memory may fail in a handler, too: then this rank's state comes from another's."""
        rank = self._rank
        state, code = rank.faults.classify(text, rank.enable_uce, lambda _: True)
        if state is ReportState.RS_UCE:
            self._state.incident.error = state
            rank.link.tell("report", state=state.name, code=code, text=text[:TEXT_MAX])
            self._agent.report_memory_error([], text[:TEXT_MAX])

    def _end(self, task: _core.Task) -> None:
        """The run has ended, or so it seems where not all came into this era."""
        scope, state, failed = self._scope, self._state, self._agent.exit_code != 0
        if scope.journey.starts and failed:  # somebody did not come: all go elsewhere
            with state.changed:
                state.changed.wait_for(lambda: scope.is_elsewhere or scope.gives_up, self._rank.settings.action_limit)
                if scope.is_elsewhere:
                    return
        with state.changed:
            state.ended = True
            if failed:
                state.leave(task.text)
            state.changed.notify_all()
        if failed:
            LOGGER.warning("the run has ended: %s", task.text)
            exit_soon(state)
