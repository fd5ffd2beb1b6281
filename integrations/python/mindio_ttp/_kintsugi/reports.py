"""What the main thread reports of its errors, and its waits until training goes on.

Threads: the main thread's.
"""

from __future__ import annotations

from collections.abc import Callable

from .codes import Action, ReportState
from .limits import TEXT_MAX
from .log import LOGGER
from .membership import Membership
from .rank import Rank
from .state import FAULTY, SUSPECT

# An exception may be the echo of another rank's fault, which then shows itself so soon.
_ECHO = 0.3
_STARTS = (ReportState.RS_INIT_FINISH, ReportState.RS_PREREPAIR_FINISH)


class Reports:
    """`begin_step`: of the loop that training goes on with."""

    def __init__(self, rank: Rank, membership: Membership, begin_step: Callable[[], None]) -> None:
        self._rank, self._state, self._membership, self._begin_step = rank, rank.state, membership, begin_step

    def report(self, state: ReportState, code: str, text: str) -> None:
        """Any state of an error; tells the others at once."""
        rank, s = self._rank, self._state
        if not self._membership.stands(state, text):
            return
        if rank.agent is None:
            LOGGER.warning("rank %d reports %s before it has set its replica groups: nothing protects it: %s", rank.number, state.name, text)
            if state is ReportState.RS_UNKNOWN:
                s.exiting = s.exiting or text
            return
        if state is ReportState.RS_UNKNOWN and self._is_echo():
            LOGGER.warning("an incident is under way: this error is taken for its echo: %s", text)
            state = ReportState.RS_NORMAL
        if state is ReportState.RS_UNKNOWN:
            self._report_unknown(code, text)
            return
        if state in FAULTY:
            rank.link.tell("report", state=state.name, code=code, text=text[:TEXT_MAX])
        with s.changed:
            s.reported, s.report_text = state, text
            if state in FAULTY:
                s.incident.error = state
            s.clean_done = s.rebuilt = False
            s.changed.notify_all()
        if not s.open:
            self._add_to_incident(state, text)

    def _add_to_incident(self, state: ReportState, text: str) -> None:
        """The incident of another rank is under way."""
        agent = self._rank.agent
        assert agent is not None
        if state in SUSPECT:
            if not self._state.incident.reloads:  # else all go back to a checkpoint as it is
                agent.report_old_memory_error([], -1, text[:TEXT_MAX])
        elif state is ReportState.RS_UCE:
            agent.report_memory_error([], text[:TEXT_MAX])

    def _is_echo(self) -> bool:
        s = self._state
        with s.changed:
            return bool(s.changed.wait_for(lambda: not s.open or s.stop_seen, _ECHO)) and s.round > 0

    def _report_unknown(self, code: str, text: str) -> None:
        """This process has no more part in the run: what can be saved is saved by others, or another process takes its place."""
        s = self._state
        self._rank.link.tell("report", state=ReportState.RS_UNKNOWN.name, code=code, text=text[:TEXT_MAX])
        with s.changed:
            s.reported, s.report_text = ReportState.RS_UNKNOWN, text
            s.changed.notify_all()
            s.wait(lambda: s.exiting is not None, self._rank.settings.action_limit)
            s.exiting = s.exiting or "the notice to leave did not come"

    def wait_next_action(self) -> int:
        s = self._state
        with s.changed:
            starts, before = s.reported in _STARTS, s.round
            if starts or self._rank.settings.mindspore:
                s.parked = True  # its trainer waits nowhere else
                s.changed.notify_all()
            s.wait(lambda: s.exiting is not None or s.round > before or (s.rebuilt if starts else s.clean_done))
            return Action.EXIT.value if s.exiting is not None else Action.RETRY.value

    def wait_repair_action(self) -> int:
        s = self._state
        with s.changed:
            # A loop that is open after this rank's report was seen is the next one; until then it is the one that was left.
            before = s.round - 1 if s.open and s.reported is None else s.round
            s.parked = True
            s.changed.notify_all()
            # One that the next incident has closed again counts, too: that incident waits for this thread's report, and it is to train for that.
            s.wait(lambda: s.exiting is not None or s.round > before)
            s.parked = False
            if s.exiting is not None:
                return Action.EXIT.value
        self._begin_step()
        return Action.RETRY.value

    def reset_limit_step(self) -> None:
        s = self._state
        with s.changed:
            if not s.open:
                s.force_stop = True
            s.changed.notify_all()
