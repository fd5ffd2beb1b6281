"""One rank: its markers, its reports and waits.

The client's main thread trains, marks its updates and reports what it meets; the guard (guard.py) is a thread of its own, which asks
Kintsugi's agent what comes next and calls the client's handlers, as MindIO's processor does. A loop that the agent has
opened belongs to the main thread until the guard takes it back; it does so between markers and never within an update.

Threads: `start_updating`, `end_updating`, reports and waits on the main thread, with MindSpore markers on any, one at a time; `_changed` guards what the guard shares with it.
What a marker without an incident touches is read and written under Python's lock alone.
"""

from __future__ import annotations

import functools
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kintsugi import _core

from . import settings
from .callbacks import Callbacks, Kind
from .codes import EXIT_WAIT_TIME, RET_K8S, Action, MindioError, ReportState
from .desk import Link, Message
from .elastic import HANDLERS
from .faults import FaultTable
from .group_names import GroupNames
from .guard import SUSPECT, Guard
from .layout import Group
from .log import LOGGER
from .marks import MarkThread
from .place import Place
from .processes import host_name

OK, INTERRUPTED, PAUSED = 0, 1, 14
_ANSWER_LIMIT = 10.0
# An exception may be the echo of another rank's fault, which then shows itself so soon.
_ECHO = 0.3
_REPLICA_TRIES, _REPLICA_LIMIT = 5, 6.0


class Processor:
    """This process's rank."""

    def __init__(self, rank: int, world_size: int, callbacks: Callbacks, faults: FaultTable, enable_uce: bool, enable_arf: bool,
                 enable_zit: bool = False) -> None:
        self.rank, self.world_size = rank, world_size
        self.enable_uce, self.enable_arf, self.enable_zit = enable_uce, enable_arf, enable_zit
        self.callbacks, self.faults = callbacks, faults
        self.settings = settings.current()
        self.link = Link(self._on_order, self._on_lost)
        self.groups: list[Group] = []
        self.dp: list[int] = []  # the data-parallel group as the client made it
        self.place: Place | None = None
        self._memory: list[memoryview] = []
        self.is_clean = True  # stopped and cleaned, and nothing of the client's was called since
        self.steps_out = False  # the loop is to be left, and so all do
        self.group_names = GroupNames()
        self.group_names.install()
        self.args: Any = None
        self.agent: _core.Agent | None = None
        self.changed = threading.Condition()
        self.guard: Guard | None = None
        self.reboot = False
        self.came_aside = False  # for a hot switch, beside the process that the rank had
        self.aside = False  # it still stands there
        self.offset: int | None = None  # the client's number of a step less Kintsugi's
        self.repair_type = "unknown"
        self.repair_step = 0
        self.loaded_step = 0
        # The main thread's place.
        self.open = False  # the loop is the main thread's
        self.updating = False
        self.marking = False
        self.next = 1  # the step in hand, as Kintsugi counts
        self.begun = 0  # the newest step that was begun
        self.force_stop = False  # the stop handler has run: markers raise
        self.reported: ReportState | None = None
        self.report_text = ""
        self.parked = False  # in tft_wait_repair_action, or about to be
        self.clean_done = False
        self.rebuilt = False
        self.finished = False
        self.at_save_point = False
        self.save_point_code: int | None = None
        self.round = 0  # loops that were opened
        self.exiting: str | None = None
        self.waits = False  # the main thread is in a wait, which an exit ends
        self.saved = False  # a dump has begun
        # Pauses.
        self.hold = False
        self.pause_at: int | None = None
        self.switching = False  # a hot switch: the pause ends with STEP FINISH
        self.last_step = 0
        self._closed = False

    # ---- life -----------------------------------------------------------------------------------------------------------

    def start(self, host: str, port: int, local: str, tls: ssl.SSLContext | None, tls_files: list[str]) -> None:
        """Raises OSError or MindioError."""
        self.tls_files = tls_files
        self.link.connect(host, port, local, tls, self.settings.retry_times)
        try:
            welcome = self.link.ask("hello", _ANSWER_LIMIT, rank=self.rank, world_size=self.world_size, pid=os.getpid(), host=host_name())
        except MindioError as error:
            if self.link.alive:
                raise
            raise MindioError(f"{error}: TLS must be on or off on both sides, and certificates of one authority") from error
        self.reboot = bool(welcome["reboot"])
        self.came_aside = welcome["aside"] == "switch"
        self.aside = bool(welcome["aside"])
        self.job, self.secret = str(welcome["job"]), bytes.fromhex(str(welcome["secret"]))
        self.offset = welcome["offset"]

    def set_replicas(self, groups: list[Group]) -> None:
        if self.agent is not None:
            if groups != self.groups:
                raise MindioError("tft_set_optimizer_replica: training has begun: the groups cannot change any more")
            return
        for attempt in range(1, _REPLICA_TRIES + 1):
            try:
                self.link.ask("replicas", _REPLICA_LIMIT, groups=[[list(group.ranks), group.replicas] for group in groups])
                break
            except MindioError as error:
                if attempt == _REPLICA_TRIES or "no answer" not in str(error):
                    raise
        self.groups = groups

    def set_dp_group(self, ranks: list[int]) -> None:
        if self.place is not None and ranks != self.dp:
            raise MindioError("tft_set_dp_group_info: training has begun: the group cannot change any more")
        self.dp = ranks

    def begin(self) -> None:
        """Training begins: joins, and starts the guard. Without replica groups nothing is protected yet."""
        if self.agent is not None or not self.groups:
            return
        if self.place is None:
            limit = _ANSWER_LIMIT + (4 * self.settings.scheduler_wait + 20 if self.reboot else 0)
            handlers = [name for name in HANDLERS if self.callbacks.has(Kind(name))]
            answer = self.link.ask("begin", limit, dp=self.dp, handlers=handlers, enabled=self.enable_zit)
            with self.changed:
                if self.place is None and "place" not in answer:
                    self.aside = True
                    return
                self.place = self.place or Place.read(answer["place"])
        self._join(self.place)

    def follow(self) -> None:
        """The guard of the place before: this rank goes on elsewhere. Raises RuntimeError where nobody is there."""
        while True:
            assert self.agent is not None and self.place is not None
            self._memory = []
            self.agent.leave()
            place = self.place
            try:
                self._join(place)
                return
            except RuntimeError as error:
                LOGGER.warning("rank %d could not join era %d: %s", self.rank, place.era, error)
                with self.changed:
                    self.changed.wait_for(lambda: self.place is not place or self.exiting is not None, self.settings.action_limit)
                    if self.place is place:
                        raise

    def _join(self, place: Place) -> None:
        crew = place.crew
        options: dict[str, Any] = {
            "controller": f"{self.link.remote}:{place.port}", "job": f"{self.job}-{place.era}", "secret": self.secret,
            "rank": crew.number(self.rank), "world_size": len(crew),
        }  # fmt: skip
        if self.tls_files:
            options.update(zip(("tls_certificate", "tls_key", "tls_ca"), self.tls_files))
        agent = _core.Agent(**options)
        self.agent = agent
        if place.offset is not None:
            self.offset = place.offset
        self.link.tell("joined", era=place.era, incarnation=agent.incarnation)
        self._use_marks(agent)
        if not self.settings.gate:
            agent.set_gate(2)
        # One byte for each optimizer type stands for the state that the client moves by itself.
        self._memory = [agent.allocate(8) for _ in self.groups]
        for kind, (group, memory) in enumerate(zip(self.groups, self._memory)):
            memory[:8] = b"mindio\0\0"
            holders = group.holders(self.rank)
            key = f"mindio/type-{kind}/of-{holders[0]}"
            agent.register_tensor(key, "uint8", [8], [8], [0], (0, 0), _address(memory), 8, kind, 0)
            # Of a smaller world's groups not every part has as many holders.
            here = crew.numbers(holders)
            agent.set_layout(kind, here, len(here))
        self.guard = Guard(self, agent, place)
        self.guard.start()

    def _use_marks(self, agent: _core.Agent) -> None:
        marks: list[Callable[[int], int]] = [agent.begin_step, agent.begin_update, agent.end_update]
        if self.settings.mindspore:
            thread = MarkThread()
            marks = [functools.partial(thread.call, mark) for mark in marks]
        self._mark_step, self._mark_begin, self._mark_end = marks

    def await_loop(self) -> None:
        """Before training, on the main thread: until the loop is this thread's."""
        self.begin()
        if self.agent is None:
            return
        with self.changed:
            self._wait(lambda: self.open or self.exiting is not None)
        if self.exiting is not None:
            self.leave_now()
        self._begin_step()

    def finish(self) -> bool:
        """The trainer's loop is over. False: an incident wants it to run again. A rank keeps its state until all are done."""
        if self.guard is None:
            return True
        with self.changed:
            before = self.round
            self.finished = self.parked = True
            self.changed.notify_all()
            self._wait(lambda: self.exiting is not None or self.guard is None or self.guard.ended or self.round != before)
            if self.guard is not None and self.round != before and not self.guard.ended:
                return False
        return True

    def close(self, done: bool) -> None:
        """Any number of times. `done`: training is over, and not broken off."""
        if self._closed:
            return
        self._closed = True
        if done and self.exiting is None:
            self.finish()
        if done and self.exiting is None:
            self.link.tell("bye")
        if self.agent is not None and (self.guard is None or self.guard.close(1)):
            self.agent.leave()
        self.link.close()

    def leave_now(self) -> None:
        """This process has no more part in the run."""
        LOGGER.warning("rank %d leaves with exit code %d: %s", self.rank, RET_K8S, self.exiting)
        exit_process()

    # ---- markers ----------------------------------------------------------------------------------------------------------

    def start_updating(self) -> None:
        if not self.open or self.agent is None:
            self._enter_update()
            return
        self.marking = True
        if self.open and self.begun == self.next and not self.updating:
            code = self._mark_begin(self.next)
            if code == OK:
                self.updating = True
                self.marking = False
                if not self.open:
                    self._notify()
                return
            self.marking = False
            if code != INTERRUPTED:
                raise MindioError(f"tft_start_updating_os: {self.agent.why()}")
            self._notify()
            self._held()
        self.marking = False
        if self.updating:
            raise MindioError(f"tft_start_updating_os: the update of step {self._told(self.next)} is under way: tft_end_updating_os ends it")
        self._enter_update()

    def _enter_update(self) -> None:
        if self.agent is None:
            self.begin()
        if self.agent is None:
            if not self.updating:
                self.updating = True  # unprotected: numbers are kept, nothing else
            return
        if self.updating:
            raise MindioError("tft_start_updating_os: the update before this one is under way: tft_end_updating_os ends it")
        with self.changed:
            if self.round == 0:  # the run's first loop opens when all ranks are there
                self._wait(lambda: self.open or self.exiting is not None)
            closed = not self.open
        if closed:
            self._held()
        self._begin_step()
        self.start_updating()

    def _held(self) -> None:
        """The step lock: nobody starts an update after the step at which all meet. The stop handler frees it."""
        with self.changed:
            self.changed.notify_all()
            self._wait(lambda: self.force_stop or self.exiting is not None)
            text = self.exiting
        if text is not None:
            raise RuntimeError(f"FORCE STOP: {text}")
        raise RuntimeError("FORCE STOP: an incident has begun, this step is given up")

    def end_updating(self, step: int) -> None:
        if not self.updating:
            raise MindioError(f"tft_end_updating_os({step}): no update is under way: tft_start_updating_os comes first")
        if self.agent is None:
            self._check_unprotected(step)
            self.updating = False
            return
        if self.offset is None:
            self.offset = step - self.next
            self.link.tell("offset", offset=self.offset)
        elif step != self.next + self.offset:
            raise MindioError(f"tft_end_updating_os({step}): step {self.next + self.offset} is the one under way: steps count up by one")
        self.marking = True
        code = self._mark_end(self.next)
        self.next += 1
        self.updating = False
        self.marking = False
        if code not in (OK, INTERRUPTED):
            raise MindioError(f"tft_end_updating_os: {self.agent.why()}")
        if self.open:
            self._begin_step()
        else:
            self._notify()

    def _check_unprotected(self, step: int) -> None:
        if self.last_unprotected and step != self.last_unprotected + 1:
            raise MindioError(f"tft_end_updating_os({step}): step {self.last_unprotected + 1} is the one under way: steps count up by one")
        self.last_unprotected = step

    last_unprotected = 0

    def _begin_step(self) -> None:
        """Main thread. A save point is the guard's to work off."""
        assert self.agent is not None
        self.marking = True
        if not self.open or self.begun == self.next:
            self.marking = False
            return
        code = self._mark_step(self.next)
        if code == OK:
            self.begun = self.next
            self.marking = False
            if not self.open:
                self._notify()
            return
        if code == PAUSED:
            with self.changed:
                self.at_save_point, self.save_point_code = True, None
                self.changed.notify_all()
                self._wait(lambda: self.save_point_code is not None or self.exiting is not None)
                self.at_save_point = False
                if self.save_point_code == OK:
                    self.begun = self.next
        self.marking = False
        self._notify()
        if code not in (INTERRUPTED, PAUSED):
            raise MindioError(f"the step after {self._told(self.next - 1)} cannot begin: {self.agent.why()}")

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _told(self, step: int) -> int:
        """Kintsugi's number of a step as the client counts."""
        return step + (self.offset or 0)

    def told_step(self, step: int) -> int:
        return self._told(step)

    # ---- reports and waits ------------------------------------------------------------------------------------------------

    def report(self, state: ReportState, code: str, text: str) -> None:
        """Any state of an error; tells the others at once."""
        if not self._stands(state, text):
            return
        if self.guard is None:
            LOGGER.warning("rank %d reports %s before it has set its replica groups: nothing protects it: %s", self.rank, state.name, text)
            if state is ReportState.RS_UNKNOWN:
                self.exiting = self.exiting or text
            return
        if state is ReportState.RS_UNKNOWN and self._is_echo():
            LOGGER.warning("an incident is under way: this error is taken for its echo: %s", text)
            state = ReportState.RS_NORMAL
        if state is ReportState.RS_UNKNOWN:
            self._report_unknown(code, text)
            return
        if state in (ReportState.RS_UCE, ReportState.RS_UCE_CORRUPTED, ReportState.RS_HCCL_FAILED, ReportState.RS_RETRY):
            self.link.tell("report", state=state.name, code=code, text=text[:1000])
        with self.changed:
            self.reported, self.report_text = state, text
            self.clean_done = self.rebuilt = False
            self.changed.notify_all()
        if not self.open and self.agent is not None:  # the incident of another rank is under way: this fault adds to it
            if state in SUSPECT and self.guard.reloads:
                pass  # all go back to a checkpoint as it is
            elif state in SUSPECT:
                self.agent.report_old_memory_error([], -1, text[:1000])
            elif state is ReportState.RS_UCE:
                self.agent.report_memory_error([], text[:1000])

    def _stands(self, state: ReportState, text: str) -> bool:
        """It has joined, once a place is free where it stands aside. False: it is to leave."""
        if self.aside and not self._await_place(state, text):
            return False
        self.begin()
        if self.aside:  # the scheduler has chosen to go on without this rank
            if not self._await_place(state, text):
                return False
            self.begin()
        return True

    def _await_place(self, state: ReportState, text: str) -> bool:
        """A process that stands aside is ready, and waits for the other one's place. False: it is to leave."""
        with self.changed:
            if state in (ReportState.RS_INIT_FINISH, ReportState.RS_PREREPAIR_FINISH):
                self.link.tell("ready")
                self._wait(lambda: not self.aside or self.exiting is not None)
            else:
                self.exiting = self.exiting or f"it stood aside, and failed: {text}"
            return self.exiting is None

    def _is_echo(self) -> bool:
        guard = self.guard
        assert guard is not None
        with self.changed:
            return bool(self.changed.wait_for(lambda: not self.open or guard.stop_seen, _ECHO)) and self.round > 0

    def _report_unknown(self, code: str, text: str) -> None:
        """This process has no more part in the run: what can be saved is saved by others, or another process takes its place."""
        self.link.tell("report", state=ReportState.RS_UNKNOWN.name, code=code, text=text[:1000])
        with self.changed:
            self.reported, self.report_text = ReportState.RS_UNKNOWN, text
            self.changed.notify_all()
            self._wait(lambda: self.exiting is not None, self.settings.action_limit)
            self.exiting = self.exiting or "the notice to leave did not come"

    def wait_next_action(self) -> int:
        with self.changed:
            starts = self.reported in (ReportState.RS_INIT_FINISH, ReportState.RS_PREREPAIR_FINISH)
            if starts or self.settings.mindspore:
                self.parked = True  # its trainer waits nowhere else
                self.changed.notify_all()
            self._wait(lambda: self.exiting is not None or (self.rebuilt if starts else self.clean_done))
            return Action.EXIT.value if self.exiting is not None else Action.RETRY.value

    def wait_repair_action(self) -> int:
        with self.changed:
            # A loop that is open after this rank's report was seen is the next one; until then it is the one that was left.
            before = self.round - 1 if self.open and self.reported is None else self.round
            self.parked = True
            self.changed.notify_all()
            self._wait(lambda: self.exiting is not None or (self.open and self.round > before))
            self.parked = False
            if self.exiting is not None:
                return Action.EXIT.value
        self._begin_step()
        return Action.RETRY.value

    def reset_limit_step(self) -> None:
        with self.changed:
            if not self.open:
                self.force_stop = True
            self.changed.notify_all()

    def _wait(self, condition: Any, limit: float | None = None) -> None:
        """With the changed condition; the main thread may be ended here."""
        self.waits = True
        try:
            self.changed.wait_for(condition, limit)
        finally:
            self.waits = False

    # ---- pauses -----------------------------------------------------------------------------------------------------------

    def pause_train(self, step: int) -> None:
        self.last_step = step
        if not self.hold:
            return
        with self.changed:
            self._wait(lambda: not self.hold or self.pause_at is not None or self.exiting is not None or self.force_stop)
            pauses = self.hold and self.pause_at is not None and step >= self.pause_at
        if self.exiting is not None:
            self.leave_now()
        if not pauses:
            return
        error = ""
        if self.callbacks.has(Kind.STREAM_SYNC):
            try:
                self.callbacks.call_without_ctx(Kind.STREAM_SYNC)
            except Exception as failed:
                error = str(failed)
        self.link.tell("paused", error=error)
        with self.changed:
            self._wait(lambda: not self.hold or self.switching or self.exiting is not None or self.force_stop)
            switches, self.switching = self.switching, False
            stopped = self.force_stop
        if self.exiting is not None:
            self.leave_now()
        if switches:
            raise RuntimeError("STEP FINISH")
        if stopped:
            raise RuntimeError("FORCE STOP: an incident has begun in a pause")

    # ---- the controller's word --------------------------------------------------------------------------------------------

    def _on_order(self, order: Message) -> None:
        do = order["do"]
        if do in ("leave", "ended"):
            self._on_end(do, order)
        elif do == "hold":
            with self.changed:
                self.hold, self.pause_at = True, None
                held = self.last_step
            self.link.tell("held", step=held)
        elif do in ("pause_at", "continue"):
            with self.changed:
                self.hold, self.pause_at = do == "pause_at", order.get("step")
                self.changed.notify_all()
        elif do == "switch":
            with self.changed:
                self.switching = True
                self.changed.notify_all()
        elif do == "take_place":
            with self.changed:
                self.aside, self.offset = False, order["offset"]
                self.changed.notify_all()
        elif do == "place":
            with self.changed:
                self.aside, self.place = False, Place.read(order)
                self.changed.notify_all()
        elif do == "step_out":
            with self.changed:
                self.steps_out = True
                self.changed.notify_all()
        elif do == "rename":
            threading.Thread(target=self._rename, args=(int(order["step"]),), name="mindio-rename", daemon=True).start()

    def _on_end(self, do: str, order: Message) -> None:
        if do == "ended" and int(order["code"]) == 0:
            return  # the agent says so too
        with self.changed:
            # Who still works on the incident hears of its end from the agent, after its last task.
            if do == "leave" or self.reported is ReportState.RS_UNKNOWN:
                self.exiting = self.exiting or str(order["text"])
            self.changed.notify_all()
        if do == "leave":
            self.exit_soon()

    def _rename(self, step: int) -> None:
        error = ""
        try:
            self.callbacks.rename(step, self.args, self.settings.mindspore)
        except Exception as failed:
            error = str(failed)
        self.link.tell("renamed", error=error)

    def _on_lost(self) -> None:
        if not self._closed and (self.guard is None or not self.guard.ended):
            LOGGER.warning("the connection to the controller's process is lost")
        if self.aside:
            with self.changed:
                self.exiting = self.exiting or "it stood aside, and the controller's process is gone"
                self.changed.notify_all()

    def exit_soon(self) -> None:
        """Ends this process, once its main thread has had the chance to leave by itself."""
        if self.waits:
            time.sleep(EXIT_WAIT_TIME if self.reported is not ReportState.RS_UNKNOWN else 1)
        exit_process()


def _address(memory: memoryview) -> int:
    import ctypes

    return ctypes.addressof((ctypes.c_char * 8).from_buffer(memory))


_before_exit: list[Any] = []


def before_exit(function: Any) -> None:
    """Called before a process leaves for good without its interpreter's end."""
    _before_exit.append(function)


def exit_process() -> None:
    for function in _before_exit:
        function()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(RET_K8S)
