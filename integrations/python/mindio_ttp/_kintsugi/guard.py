"""The guard: a thread that asks Kintsugi's agent what comes next and calls the client's handlers.

| task of the agent | what the client sees |
|---|---|
| CLEAN | `stop`; then its main thread reports; then `clean`; tft_wait_next_action returns |
| REBUILD_GROUP | `rebuild_group`, where processes were replaced |
| REPAIR | `repair`, on sources and destinations |
| ROLLBACK | `rollback` |
| LOOP | tft_wait_repair_action returns |
| SAVE | `stop` and `clean` where that is asked for, `save_ckpt` |
| CLEAN, where the scheduler chose to go on with other ranks | the same; then this rank joins another era, under another guard |
| REBUILD_GROUP, REPAIR, ROLLBACK of that era's first incident | the zit handlers (journey.py) |
| RENAME | `rename`, on this rank or, through the desk, on the one that MindIO would choose |

Threads: the guard's own; a second one, the watcher, waits for the agent's stop event, so that a handler which is stuck in a
collective with a rank that has died is freed by the client's own stop handler.
"""

from __future__ import annotations

import json
import os
import select
import threading
from typing import TYPE_CHECKING, Any

from kintsugi import _core

from . import layout, settings
from .callbacks import CallbackFailed, Kind
from .codes import RET_NO_REBUILD, MindioError, RepairType, ReportState
from .journey import HANDLERS, Journey
from .log import LOGGER
from .place import Place
from .reload import NoCheckpoint, Reload

if TYPE_CHECKING:
    from .processor import Processor

NOTHING = 0
LOOP, CLEAN, REBUILD_GROUP, REPAIR, ROLLBACK, SAVE, RENAME, CONTINUE, UNWIND, ENDED = range(1, 11)
_RELOAD = 8  # the rung
_OK, _CANCELLED, _COMM_FAILURE, _DATA_LOSS, _INTERNAL = 0, 11, 2, 8, 13
_FINISHED, _WAS_INTERRUPTED, _RAISED, _COMM_ERROR, _MEMORY_ERROR = range(5)
_OUTCOME = {
    ReportState.RS_UCE: _MEMORY_ERROR,
    ReportState.RS_HCCL_FAILED: _COMM_ERROR,
    ReportState.RS_NORMAL: _COMM_ERROR,
    ReportState.RS_STEP_FINISH: _COMM_ERROR,
    ReportState.RS_PREREPAIR_FINISH: _COMM_ERROR,
    ReportState.RS_INIT_FINISH: _COMM_ERROR,
}
# Updates may have used what was wrong: back to a checkpoint.
SUSPECT = (ReportState.RS_UCE_CORRUPTED, ReportState.RS_RETRY)
_STORE_LIMIT_MS = 60_000
_PULL_MS = 100
_LOOK_AGAIN = 0.02
_STEP_OUT_LIMIT = 5.0  # ranks that are told to leave a pause do so at once
# Their main thread has reported: nothing needs to be waited for.
_FAULTY = (ReportState.RS_UCE, ReportState.RS_UCE_CORRUPTED, ReportState.RS_HCCL_FAILED, ReportState.RS_RETRY)


class OtherWay(Exception):
    """The scheduler chose another way than the ladder: this attempt is given up."""


class Moved(Exception):
    """This rank goes on under another of Kintsugi's controllers."""


class Guard:
    """One rank's, in one era."""

    def __init__(self, processor: Processor, agent: _core.Agent, place: Place) -> None:
        self._p, self._agent, self._place = processor, agent, place
        self._crew = place.crew
        self._changed = processor.changed
        self._stop_fd = agent.stop_fd()
        self._quiet, self._wake = os.pipe()
        self.stop_seen = False
        self.ended = False
        self._handler: Kind | None = None  # of the client's, which this thread is in
        self._closing = False
        self._low = False  # of this rank: clean said that nothing needs to be built anew
        self.reloads = False  # the attempt under way goes back to the client's checkpoint
        self._error: ReportState | None = None  # what this rank reported in the incident under way
        self._journey = Journey(place, processor.rank, agent)

    def start(self) -> None:
        self._agent.guard_begin()
        self._threads = [threading.Thread(target=target, name=name, daemon=True)
                         for target, name in ((self._run, "mindio-guard"), (self._watch, "mindio-stop"))]
        for thread in self._threads:
            thread.start()

    def close(self, limit: float) -> bool:
        """Ends both threads. False: a handler of the client's does not return, and the agent must stay."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        os.write(self._wake, b".")
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(limit)
        return not any(thread.is_alive() for thread in self._threads)

    # ---- the watcher --------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            ready, _, _ = select.select([self._stop_fd, self._quiet], [], [])
            if self._quiet in ready:
                return
            try:
                os.read(self._stop_fd, 8)
            except BlockingIOError:
                continue
            with self._changed:
                self.stop_seen = True
                stuck = self._handler not in (None, Kind.STOP) and self._p.callbacks.has(Kind.STOP)
                self._changed.notify_all()
            if stuck:
                self._free()

    def _free(self) -> None:
        """A handler may be waiting for a rank that is gone."""
        try:
            if self._agent.superseded():
                LOGGER.warning("an incident has begun while a handler runs: it is stopped")
                self._p.callbacks.call(Kind.STOP, self._p.args)
        except (CallbackFailed, RuntimeError) as error:
            LOGGER.error("the running handler could not be stopped: %s", error)

    # ---- tasks --------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self.ended and not self._closing and not self._is_elsewhere:
                task = self._agent.next(_PULL_MS)
                if task.kind == NOTHING:
                    continue
                if task.kind == LOOP:
                    self._loop(task)
                elif task.kind == ENDED:
                    self._end(task)
                else:
                    self._work_off(task)
            if self._is_elsewhere and not self._closing:
                self._retire()
                self._p.follow()
        except Exception as error:  # whatever it is: without its guard this rank holds up all others
            LOGGER.exception("the guard of rank %d failed", self._p.rank)
            with self._changed:
                self._p.exiting = self._p.exiting or str(error)
                self._changed.notify_all()
            self._p.exit_soon()

    @property
    def _is_elsewhere(self) -> bool:
        return self._p.place is not self._place

    def _retire(self) -> None:
        """Its watcher looks at nothing of the agent any more."""
        os.write(self._wake, b".")
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _work_off(self, task: _core.Task) -> None:
        p = self._p
        try:
            work = {CLEAN: self._clean, REBUILD_GROUP: self._rebuild, REPAIR: self._repair, ROLLBACK: self._rollback,
                    SAVE: self._save, RENAME: self._rename}[task.kind]
            work(task)
        except Moved:
            return  # nothing is answered any more
        except OtherWay:
            self._agent.done(_COMM_FAILURE, "the scheduler chose another way")
        except NoCheckpoint as error:
            LOGGER.error("rank %d: %s", p.rank, error)
            self._agent.done(_CANCELLED if self._agent.superseded() else _DATA_LOSS, str(error)[:1000])
        except (CallbackFailed, MindioError, RuntimeError) as error:
            superseded = self._agent.superseded()
            if not superseded:
                LOGGER.error("rank %d: %s", p.rank, error)
                self._meet(error)
            self._agent.done(_CANCELLED if superseded else _INTERNAL, str(error)[:1000])
        else:
            self._agent.done(_OK, "")

    def _meet(self, error: Exception) -> None:
        """Memory may fail in a handler, too: then this rank's state comes from another's."""
        state, code = self._p.faults.classify(str(error), self._p.enable_uce, lambda _: True)
        if state is ReportState.RS_UCE:
            self._error = state
            self._p.link.tell("report", state=state.name, code=code, text=str(error)[:1000])
            self._agent.report_memory_error([], str(error)[:1000])

    def _call(self, kind: Kind, *given: Any) -> Any:
        with self._changed:
            self._handler = kind
            self._p.is_clean = self._p.is_clean and kind in (Kind.STOP, Kind.CLEAN)
        try:
            if kind in HANDLERS:
                return self._p.callbacks.call_without_ctx(kind, *given, self._place.param)
            return self._p.callbacks.call(kind, *given)
        finally:
            with self._changed:
                self._handler = None

    @property
    def _begins(self) -> bool:
        """No loop was ever opened in this run, or in an era that a move began: nothing of the client's is called."""
        if self._journey.under_way:
            return self._journey.starts
        return self._p.round == 0 and self._agent.joined_as != 1

    def _ask(self, task: _core.Task) -> dict[str, Any]:
        """How this attempt mends the incident, from the controller's process; held there while a scheduler decides."""
        p = self._p
        limit = 4 * p.settings.scheduler_wait + 20
        word = p.link.ask("clean", limit, era=self._place.era, generation=task.generation, clean=p.is_clean)
        with self._changed:
            p.repair_type = word["type"]
            p.repair_step = p.told_step(task.step)
            self._changed.notify_all()
        self._journey.on_attempt(bool(word.get("opened")))
        if word["other_way"]:
            raise OtherWay
        return word

    def _clean(self, task: _core.Task) -> None:
        p = self._p
        if self._begins and not self._journey.under_way:
            return
        self._low = False
        self.reloads = task.rung == _RELOAD
        word = self._ask(task)
        if word.get("skip"):
            return
        if not (p.is_clean and word.get("moves")):
            self._stop_and_clean(task, word)
        if word.get("moves"):
            self._await_elsewhere(task)

    def _await_elsewhere(self, task: _core.Task) -> None:
        """Stopped and cleaned: the controller's process waits for all to be so. Raises Moved."""
        p = self._p
        offset = None if p.offset is None else p.told_step(task.step)
        p.link.tell("cleaned", era=self._place.era, generation=task.generation, offset=offset)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_elsewhere or self._closing or p.exiting is not None, _LOOK_AGAIN)
                if self._is_elsewhere:
                    raise Moved
                if self._closing or p.exiting is not None:
                    raise MindioError("this process leaves")
            if self._agent.superseded():
                raise MindioError("another attempt has begun before all were cleaned")

    def _stop_and_clean(self, task: _core.Task, word: dict[str, Any]) -> None:
        p = self._p
        p.group_names.begin(self._repair_id(task))
        if word["switch"] and self._error is None and self._has_stepped_out():
            with self._changed:
                p.clean_done = True
                self._changed.notify_all()
            return
        self._stop(task)
        if p.callbacks.has(Kind.CLEAN):
            is_uce = self._error in (ReportState.RS_UCE, ReportState.RS_UCE_CORRUPTED)
            result = self._call(Kind.CLEAN, is_uce, p.args)
            self._low = is_uce and result == RET_NO_REBUILD
            if result not in (None, 0) and not self._low:
                raise MindioError(f"handler clean returned {result!r}: this rank cannot be cleaned")
        else:
            raise MindioError("no clean handler is registered: this rank cannot be cleaned")
        with self._changed:
            p.clean_done = p.is_clean = True
            self._changed.notify_all()

    def _stop(self, task: _core.Task) -> None:
        """The client's stop handler, and then its main thread's way out of the step."""
        p = self._p
        if not p.callbacks.has(Kind.STOP):
            raise MindioError("no stop handler is registered: the main thread cannot be brought out of its step")
        self._call(Kind.STOP, p.args)
        limit = p.settings.action_limit
        with self._changed:
            p.force_stop = True
            self._changed.notify_all()
            came = self._changed.wait_for(lambda: p.reported is not None or p.finished or p.parked or p.exiting is not None, limit)
        if not came:
            raise MindioError(f"the main thread did not report within {limit:g} s of the stop handler's return")

    def _has_stepped_out(self) -> bool:
        """In a hot switch: the main thread was told to leave its step, and has done so by itself."""
        p = self._p
        with self._changed:
            return bool(self._changed.wait_for(lambda: p.reported is not None or p.finished or p.parked, _STEP_OUT_LIMIT))

    def _await_parked(self) -> None:
        p = self._p
        with self._changed:
            if not self._changed.wait_for(lambda: p.parked or p.exiting is not None, p.settings.action_limit):
                raise MindioError(f"the main thread is not parked within {p.settings.action_limit:g} s")

    def _repair_id(self, task: _core.Task) -> int:
        """Of this attempt, in the run: a new era counts anew."""
        return (self._place.era << 32) + task.generation

    def _rebuild(self, task: _core.Task) -> None:
        p = self._p
        if self._begins:
            return
        p.group_names.begin(self._repair_id(task))
        if p.round == 0 and (self._agent.joined_as == 1 or self._journey.hollow):
            self._await_parked_newcomer()
        replaced = self._crew.of(task.replaced_ranks)
        if replaced or self._journey.under_way:
            p.repair_step = p.told_step(task.step)
        if self._journey.under_way:
            self._journey.rebuild(self._call, p.args)
        elif replaced and p.callbacks.has(Kind.REBUILD_GROUP):
            self._call(Kind.REBUILD_GROUP, sorted(replaced), p.args)
        with self._changed:
            p.rebuilt = True
            self._changed.notify_all()

    def _await_parked_newcomer(self) -> None:
        """Its groups are built with its main thread out of the way, and with the arguments of the training in hand."""
        p = self._p
        with self._changed:
            came = self._changed.wait_for(lambda: p.reported is not None or p.exiting is not None, p.settings.action_limit)
        if not came:
            raise MindioError("this process takes the place of a lost one, and its training did not report ARF FINISH or RS_INIT_FINISH")

    def _repair(self, task: _core.Task) -> None:
        p = self._p
        if self._begins:
            return
        self._await_parked()
        replaced = set(self._crew.of(task.replaced_ranks))
        if p.rank in replaced:
            with self._changed:
                p.repair_type = "recover"
        if task.rung == _RELOAD:
            replaced_memory = self._error in (ReportState.RS_UCE, ReportState.RS_UCE_CORRUPTED) and not self._low
            Reload(p, self._crew, self._call).run(task, self._store(task), replaced_memory)
            return
        moves = [(kind, self._crew.rank(destination), self._crew.of(sources)) for kind, destination, sources in task.moves]
        replaced |= self._journey.back
        low = self._low_ranks(task, {move[1] for move in moves} - replaced)
        found = self._pairs([move for move in moves if move[1] not in low])
        received = RepairType.RT_RECV_REPAIR if p.rank in replaced else RepairType.RT_UCE_HIGHLEVEL
        kind = Kind.ZIT_UPGRADE_REPAIR if self._journey.under_way else Kind.REPAIR
        for info in layout.repair_infos(found, p.rank, (RepairType.RT_SEND.value, received.value)):
            if not p.callbacks.has(kind):
                raise MindioError(f"no {kind.value} handler is registered: the state of a rank cannot be moved")
            rebuilds = info["repair_type"] == RepairType.RT_UCE_HIGHLEVEL.value
            self._call(kind, p.told_step(task.step), rebuilds, list(info["dst"]), info, p.args)

    def _low_ranks(self, task: _core.Task, destinations: set[int]) -> set[int]:
        """Those whose clean handler said that their memory needs nothing from anybody. Each says so itself, to all alike: what the
        controller's process knows of an incident when one rank asks is not what it knows when the next one does."""
        p, store = self._p, self._store(task)
        if p.rank in destinations:
            store.set(f"mindio/low/{p.rank}", b"1" if self._low else b"0")
        return {rank for rank in sorted(destinations) if store.get(f"mindio/low/{rank}", _STORE_LIMIT_MS) == b"1"}

    def _pairs(self, moves: list[tuple[int, int, list[int]]]) -> list[layout.Pair]:
        """The moves of all groups: ranks of several may have to meet in one."""
        groups = self._p.groups
        others = sorted({rank for kind, rank, _ in moves if rank not in groups[kind].ranks})
        told = self._p.link.ask("groups", self._p.settings.action_limit, ranks=others)["groups"] if others else {}

        def group_of(kind: int, rank: int) -> layout.Group:
            ranks, replicas = told[str(rank)][kind]
            return layout.Group(tuple(ranks), replicas)

        return layout.pairs(groups, moves, group_of)

    def _rollback(self, task: _core.Task) -> None:
        p = self._p
        if self._begins:
            return
        self._await_parked()
        p.repair_step = p.told_step(task.step)
        if self._journey.under_way:
            self._journey.arrive(self._call, p.told_step(task.step), p.args)
        elif p.callbacks.has(Kind.ROLLBACK):
            self._call(Kind.ROLLBACK, p.told_step(task.step), p.args)

    def _store(self, task: _core.Task) -> _core.Store:
        return self._agent.open_store(task.generation)

    # ---- the dying gasp -----------------------------------------------------------------------------------------------------

    def _save(self, task: _core.Task) -> None:
        p = self._p
        if not p.callbacks.has(Kind.SAVE_CKPT):
            raise MindioError("no save_ckpt handler is registered: nothing can be dumped")
        if self._journey.hollow:
            raise MindioError("this rank has come back, and its state was not moved yet: another holder saves")
        with self._changed:
            p.saved = True
        if not p.at_save_point and settings.stops_before_dump():
            self._ask(task)
            self._stop(task)
            self._call(Kind.CLEAN, False, p.args)
        written = self._all_entries(task)
        self._call(Kind.SAVE_CKPT, p.told_step(task.step), self._save_info(task, written), p.args)

    def _all_entries(self, task: _core.Task) -> dict[int, list[int]]:
        """Which optimizer types each of the writers writes."""
        store, mine = self._store(task), [kind for kind, _ in task.entries]
        store.set(f"mindio/save/{task.step}/{self._p.rank}", json.dumps(mine).encode())
        return {rank: mine if rank == self._p.rank else
                json.loads(store.get(f"mindio/save/{task.step}/{rank}", _STORE_LIMIT_MS)) for rank in self._crew.of(task.partners)}

    def _save_info(self, task: _core.Task, written: dict[int, list[int]]) -> list[dict[str, Any]]:
        """One entry for each optimizer type: all of its group's ranks that write a part."""
        info = []
        for kind in sorted({kind for kind, _ in task.entries}):
            group = self._p.groups[kind].ranks
            info.append({"type": kind, "ranks": [rank for rank in sorted(written) if rank in group and kind in written[rank]]})
        return info

    def _rename(self, task: _core.Task) -> None:
        """On the first writer that is not rank 0."""
        p = self._p
        step = p.told_step(task.step)
        chosen = next((rank for rank in sorted(self._crew.of(task.partners)) if rank != 0), 0)
        if chosen != p.rank:
            p.link.ask("rename", p.settings.action_limit, rank=chosen, step=step)
        elif p.callbacks.has(Kind.RENAME):
            p.callbacks.rename(step, p.args, p.settings.mindspore)

    # ---- the loop -----------------------------------------------------------------------------------------------------------

    def _loop(self, task: _core.Task) -> None:
        p = self._p
        if self._journey.under_way:
            self._begin_incident()
            return
        with self._changed:
            p.next, p.begun = task.step + 1, 0
            p.updating = p.marking = p.force_stop = p.finished = p.parked = p.clean_done = p.rebuilt = False
            p.switching = p.steps_out = p.is_clean = False
            p.reported, p.report_text = None, ""
            p.repair_type, p.repair_step, self._error = "unknown", 0, None
            self.reloads = False
            self.stop_seen = False
            p.last_step = p.told_step(task.step)
            p.round += 1
            p.open = True
            self._changed.notify_all()
        if p.round == 1:
            p.link.tell("trains")
        outcome, text = self._await_leaving()
        with self._changed:
            p.open = False
            self._changed.notify_all()
            # An update is local arithmetic: it ends, or its exception is reported.
            self._changed.wait_for(lambda: self._closing or not p.marking and (not p.updating or p.reported is not None or p.exiting is not None))
        self._agent.left_loop(outcome, "", text[:1000])

    def _begin_incident(self) -> None:
        """All are here: what the client does on the way belongs to an incident, so that a fault in it is met as any other."""
        p, journey = self._p, self._journey
        lack = journey.lack()
        if lack:
            self._agent.left_loop(_MEMORY_ERROR, "", lack)
            return
        if journey.begins_it():
            self._agent.left_loop(_RAISED, "Downgrade", f"the run goes on without ranks {list(self._place.others)}")
            return
        while not self._agent_locked() and not self._closing and p.exiting is None and not self._is_elsewhere:
            with self._changed:
                self._changed.wait_for(lambda: self.stop_seen, _LOOK_AGAIN)
                self.stop_seen = False
        self._agent.left_loop(_WAS_INTERRUPTED, "", "")

    def _await_leaving(self) -> tuple[int, str]:
        p = self._p
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.stop_seen or self._closing or p.reported is not None or p.finished or p.steps_out or
                                       (p.at_save_point and p.save_point_code is None) or self._agent_locked())
                if self._closing:
                    return _WAS_INTERRUPTED, "this process leaves"
                if p.reported is not None:
                    if p.reported is ReportState.RS_UNKNOWN:
                        return _WAS_INTERRUPTED, p.report_text
                    self._error = p.reported if p.reported in _FAULTY else None
                    if p.reported in SUSPECT:
                        self._agent.report_old_memory_error([], -1, p.report_text[:1000])
                        return _WAS_INTERRUPTED, p.report_text
                    return _OUTCOME[p.reported], p.report_text
                if p.finished and not p.updating:
                    return _FINISHED, ""
                if p.steps_out:
                    p.steps_out = False
                    return _RAISED, "the scheduler has asked for all ranks"
                self.stop_seen = False
                save_point = p.at_save_point and p.save_point_code is None
            if save_point:
                if self._work_off_save_point():
                    return _WAS_INTERRUPTED, ""
            elif self._agent_locked():
                return _WAS_INTERRUPTED, ""

    def _agent_locked(self) -> bool:
        return self._agent.poll() != 0

    def _work_off_save_point(self) -> bool:
        """Tasks within the loop. True: the loop is to be left."""
        p = self._p
        while True:
            task = self._agent.next(_PULL_MS)
            if task.kind == NOTHING:
                if self._closing:
                    return True
                continue
            if task.kind in (CONTINUE, UNWIND, ENDED):
                with self._changed:
                    p.save_point_code = 0 if task.kind == CONTINUE else 1
                    self._changed.notify_all()
                return task.kind != CONTINUE
            self._work_off(task)

    def _end(self, task: _core.Task) -> None:
        p = self._p
        if self._journey.starts and self._agent.exit_code != 0:  # somebody did not come: all go elsewhere
            with self._changed:
                self._changed.wait_for(lambda: self._is_elsewhere or self._closing or p.exiting is not None, p.settings.action_limit)
                if self._is_elsewhere:
                    return
        with self._changed:
            self.ended = True
            if self._agent.exit_code != 0:
                p.exiting = p.exiting or task.text
            self._changed.notify_all()
        if self._agent.exit_code != 0:
            LOGGER.warning("the run has ended: %s", task.text)
            p.exit_soon()
