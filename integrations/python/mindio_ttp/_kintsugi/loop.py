"""LOOP: the loop changes hands. It is opened for the main thread, and taken back once it is to be left, between two markers.

Threads: the guard's.
"""

from __future__ import annotations

from collections.abc import Callable

from kintsugi import _core
from kintsugi.abi import Outcome, TaskKind

from .codes import ReportState
from .limits import PULL_MS, TEXT_MAX
from .scope import Scope
from .state import SUSPECT

_LOOK_AGAIN = 0.02
_OUTCOME = {
    ReportState.RS_UCE: Outcome.MEMORY_ERROR,
    ReportState.RS_HCCL_FAILED: Outcome.COMM_ERROR,
    ReportState.RS_NORMAL: Outcome.COMM_ERROR,
    ReportState.RS_STEP_FINISH: Outcome.COMM_ERROR,
    ReportState.RS_PREREPAIR_FINISH: Outcome.COMM_ERROR,
    ReportState.RS_INIT_FINISH: Outcome.COMM_ERROR,
}


class Loop:
    """`work_off`: of a task that comes within the loop, at a save point."""

    def __init__(self, scope: Scope, work_off: Callable[[_core.Task], None]) -> None:
        self._scope, self._agent, self._state, self._work_off = scope, scope.agent, scope.state, work_off

    def run(self, task: _core.Task) -> None:
        scope, state = self._scope, self._state
        if scope.journey.under_way:
            self._begin_incident()
            return
        state.open_loop(task.step)
        if state.round == 1:
            scope.rank.link.tell("trains")
        outcome, text = self._await_leaving()
        state.close_loop(lambda: scope.closing)
        self._agent.left_loop(outcome, "", text[:TEXT_MAX])

    def _begin_incident(self) -> None:
        """All are here: what the client does on the way belongs to an incident, so that a fault in it is met as any other."""
        scope, state, journey = self._scope, self._state, self._scope.journey
        lack = journey.lack()
        if lack:
            self._agent.left_loop(Outcome.MEMORY_ERROR, "", lack)
            return
        if journey.begins_it():
            self._agent.left_loop(Outcome.RAISED, "Downgrade", f"the run goes on without ranks {list(scope.place.others)}")
            return
        while not self._locked and not scope.gives_up and not scope.is_elsewhere:
            with state.changed:
                state.changed.wait_for(lambda: state.stop_seen, _LOOK_AGAIN)
                state.stop_seen = False
        self._agent.left_loop(Outcome.WAS_INTERRUPTED, "", "")

    def _await_leaving(self) -> tuple[Outcome, str]:
        scope, state = self._scope, self._state
        while True:
            with state.changed:
                state.changed.wait_for(lambda: state.stop_seen or scope.closing or state.reported is not None or state.finished or
                                       state.steps_out or self._at_save_point or self._locked)
                if scope.closing:
                    return Outcome.WAS_INTERRUPTED, "this process leaves"
                if state.reported is not None:
                    return self._reported(state.reported), state.report_text
                if state.finished and not state.updating:
                    return Outcome.FINISHED, ""
                if state.steps_out:
                    state.steps_out = False
                    return Outcome.RAISED, "the scheduler has asked for all ranks"
                state.stop_seen = False
                save_point = self._at_save_point
            if save_point:
                if self._work_off_save_point():
                    return Outcome.WAS_INTERRUPTED, ""
            elif self._locked:
                return Outcome.WAS_INTERRUPTED, ""

    def _reported(self, reported: ReportState) -> Outcome:
        """With the lock of the state: how the loop is left by a report."""
        if reported is ReportState.RS_UNKNOWN:
            return Outcome.WAS_INTERRUPTED
        if reported in SUSPECT:
            self._agent.report_old_memory_error([], -1, self._state.report_text[:TEXT_MAX])
            return Outcome.WAS_INTERRUPTED
        return _OUTCOME[reported]

    @property
    def _at_save_point(self) -> bool:
        return self._state.at_save_point and self._state.save_point_code is None

    @property
    def _locked(self) -> bool:
        """An incident asks for the loop."""
        return self._agent.poll() != 0

    def _work_off_save_point(self) -> bool:
        """Tasks within the loop. True: the loop is to be left."""
        state = self._state
        while True:
            task = self._agent.next(PULL_MS)
            if task.kind == TaskKind.NOTHING:
                if self._scope.closing:
                    return True
            elif task.kind in (TaskKind.CONTINUE, TaskKind.UNWIND, TaskKind.ENDED):
                with state.changed:
                    state.save_point_code = 0 if task.kind == TaskKind.CONTINUE else 1
                    state.changed.notify_all()
                return task.kind != TaskKind.CONTINUE
            else:
                self._work_off(task)
