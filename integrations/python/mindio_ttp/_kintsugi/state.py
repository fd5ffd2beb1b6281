"""Where one rank stands: what its main thread, its guard and the controller's word agree on.

Threads: any. `changed` guards all of it but what a marker without an incident touches (`open` and the steps): that is read and written
under Python's lock alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .codes import ReportState

# Reports of a fault of this rank's own, and those among them by which memory has failed.
FAULTY = (ReportState.RS_UCE, ReportState.RS_UCE_CORRUPTED, ReportState.RS_HCCL_FAILED, ReportState.RS_RETRY)
MEMORY_FAILED = (ReportState.RS_UCE, ReportState.RS_UCE_CORRUPTED)
# Updates may have used what was wrong: back to a checkpoint.
SUSPECT = (ReportState.RS_UCE_CORRUPTED, ReportState.RS_RETRY)


@dataclass
class Incident:
    """What the incident under way means for this rank."""

    error: ReportState | None = None  # what it has reported
    needs_nothing: bool = False  # its memory has failed, and `clean` said that nothing has to be built anew
    reloads: bool = False  # the attempt under way goes back to the client's checkpoint
    unsent: int = 0  # so often its repair handler failed to send what this rank holds

    @property
    def memory_failed(self) -> bool:
        return self.error in MEMORY_FAILED


class RankState:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        # The loop, which is the main thread's while it is open.
        self.open = False
        self.round = 0  # loops that were opened
        self.finished = False  # the trainer's loop is over
        self.parked = False  # in tft_wait_repair_action, or about to be
        self.waits = False  # the main thread is in a wait, which an exit ends
        self.steps_out = False  # the loop is to be left, and so all do
        # Its steps.
        self.offset: int | None = None  # the client's number of a step less Kintsugi's
        self.next = 1  # the step in hand, as Kintsugi counts
        self.begun = 0  # the newest step that was begun
        self.updating = False
        self.marking = False
        self.at_save_point = False
        self.save_point_code: int | None = None
        # The incident.
        self.incident = Incident()
        self.stop_seen = False  # the agent asks for the loop
        self.force_stop = False  # the stop handler has run: markers raise
        self.reported: ReportState | None = None
        self.report_text = ""
        self.clean_done = False
        self.is_clean = True  # stopped and cleaned, and nothing of the client's was called since
        self.rebuilt = False
        self.repair_type = "unknown"
        self.repair_step = 0
        self.loaded_step = 0
        self.saved = False  # a dump has begun
        # Pauses.
        self.sync_at = 0  # all ranks stand at this step in a pause
        self.switching = False  # a hot switch: the pause ends with STEP FINISH
        # The end.
        self.ended = False  # the run has
        self.exiting: str | None = None  # this process leaves, and why

    @property
    def leaves_step(self) -> bool:
        """The main thread is to come out of the step lock."""
        return self.force_stop or self.switching or self.exiting is not None

    def told_step(self, step: int) -> int:
        """Kintsugi's number of a step as the client counts."""
        return step + (self.offset or 0)

    def notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool], limit: float | None = None) -> None:
        """The main thread's, with `changed`: it may be ended here."""
        self.waits = True
        try:
            self.changed.wait_for(condition, limit)
        finally:
            self.waits = False

    def leave(self, why: str) -> None:
        """The first reason stands."""
        with self.changed:
            self.exiting = self.exiting or why
            self.changed.notify_all()

    def open_loop(self, step: int) -> None:
        """All stand at `step`, and nothing of an incident is left."""
        with self.changed:
            self.next, self.begun = step + 1, 0
            self.updating = self.marking = self.force_stop = self.finished = self.parked = self.clean_done = self.rebuilt = False
            self.switching = self.steps_out = self.is_clean = self.stop_seen = False
            self.reported, self.report_text = None, ""
            self.repair_type, self.repair_step, self.incident = "unknown", 0, Incident()
            self.round += 1
            self.open = True
            self.changed.notify_all()

    def close_loop(self, gives_up: Callable[[], bool]) -> None:
        """Returns once the main thread is within no marker and no update: an update is local arithmetic, so it ends, or its exception is
        reported. `gives_up`: nobody waits for it any more."""
        with self.changed:
            self.open = False
            self.changed.notify_all()
            self.changed.wait_for(lambda: gives_up() or not self.marking and
                                  (not self.updating or self.reported is not None or self.exiting is not None))
