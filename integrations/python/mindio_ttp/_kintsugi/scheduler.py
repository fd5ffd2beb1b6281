"""The scheduler's side (MindX: ClusterD, TaskD): what it is told, and its word on how an incident is met.

Without a scheduler, or where its word does not come in time, the ladder's choice stands.

Threads: the scheduler's calls come on its own; each incident is talked about on a thread of its own; ranks that ask for the word
wait on others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import arguments, settings
from .codes import FAULT_PROCESS, OK, ONLY_EXIT, RETRY_FAILED, MindioError
from .log import LOGGER

if TYPE_CHECKING:
    from .master import Master

ACTIONS = ("report_fault_ranks", "report_stop_complete", "report_strategies", "report_result")
STRATEGIES = ("retry", "recover", "dump", "exit", "downgrade", "upgrade", "continue", "migration")

_REPLACES = ("adopt", "spare", "respawn")  # the rungs on which a process is lost
_GATHER = 0.05  # what comes so soon after the first fault is told with it

_callbacks: dict[str, Callable[..., Any]] = {}


def register(action: Any, function: Any) -> int:
    if action not in ACTIONS or not callable(function):
        LOGGER.error("tft_register_mindx_callback(%r, %r): a callable for one of %s is expected", action, function, ", ".join(ACTIONS))
        return 1
    _callbacks[action] = function
    return 0


class Scheduler:
    """What is agreed with the scheduler about one run."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._callbacks = dict(_callbacks)
        self.present = all(action in self._callbacks for action in ACTIONS)
        if self._callbacks and not self.present:
            missing = [action for action in ACTIONS if action not in self._callbacks]
            LOGGER.warning("the controller runs without a scheduler: %s not registered", ", ".join(missing))
        self._changed = threading.Condition()
        self._rung = ""
        self._talking = False
        self._stopped = False  # stop_train has come
        self._named: dict[int, int] | None = None  # on_global_rank
        self._offered: list[str] = []
        self._strategy = ""
        self._settled = True  # nothing is being agreed on
        self._withdrawn = False
        self._agreed = False  # the incident under way is nobody's fault
        self._fails = False  # a strategy has failed, and the scheduler is asked what follows

    # ---- ranks and controller ------------------------------------------------------------------------------------------

    def on_incident(self) -> None:
        self._master.pauses.drop()
        if not self.present:
            return
        hurt = bool(self._master.ranks.known_faults())
        with self._changed:
            if self._talking and not (self._agreed and hurt):
                return
            self._talking, self._settled, self._agreed = True, False, False
            self._named, self._strategy, self._rung = None, "", ""
        threading.Thread(target=self._talk, name="mindio-scheduler", daemon=True).start()

    def await_word(self, rung: str) -> str:
        """Blocks a rank that knows its rung until the scheduler has spoken. The strategy; "" without a scheduler."""
        if not self.present:
            return ""
        with self._changed:
            self._rung = rung
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._settled)
            return self._strategy

    def await_settled(self) -> None:
        """Until the scheduler has spoken on the incident under way, if there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._settled)

    @property
    def word(self) -> str:
        """The scheduler's on the incident under way; "" where there is none yet."""
        with self._changed:
            return self._strategy if self._talking and self._settled else ""

    @property
    def talks(self) -> bool:
        """An incident is under way."""
        with self._changed:
            return self._talking

    def choose(self, offered: list[str]) -> str:
        """What the scheduler takes of an offer that no fault has led to; "" where it takes nothing, or an incident begins."""
        with self._changed:
            if self._talking:
                return ""
            self._offered, self._strategy, self._withdrawn = list(offered), "", False
        self._tell("report_strategies", {}, list(offered))
        self._await("change_strategy", lambda: self._strategy != "" or self._talking or self._withdrawn, settings.current().scheduler_wait)
        with self._changed:
            return "" if self._talking or self._withdrawn else self._strategy

    def withdraw(self) -> None:
        """The offer that `choose` has made is none any more."""
        with self._changed:
            self._withdrawn = True
            self._changed.notify_all()

    def begin_agreed(self, strategy: str) -> bool:
        """The incident that is about to begin is agreed on. False: another one was faster."""
        with self._changed:
            if self._talking:
                return False
            self._talking, self._settled, self._agreed = True, True, strategy == "upgrade"
            self._strategy = strategy
            return True

    def commit_agreed(self) -> None:
        """From here on a fault is what makes it fail, and no other incident."""
        with self._changed:
            self._agreed = False

    def fail(self, code: int, text: str, strategy: str) -> str:
        """What was chosen has failed: "dump" or "exit", as the scheduler says, and carried out. Where it says nothing, what is held is saved."""
        with self._changed:
            if self._fails:
                self._changed.wait_for(lambda: not self._fails)
                return self._strategy
            self._fails = True
            self._settled, self._strategy, self._offered = False, "", ["exit", "dump"] if code != ONLY_EXIT else ["exit"]
        self.tell_result(code, text, strategy)
        if code != ONLY_EXIT:
            self._await("change_strategy", lambda: self._strategy != "", settings.current().scheduler_wait)
        with self._changed:
            self._strategy = self._strategy or ("dump" if code != ONLY_EXIT else "exit")
            word, self._fails, self._settled, self._agreed = self._strategy, False, True, False
            self._changed.notify_all()
        if word == "dump":
            self._master.save_and_end()
        else:
            self._master.end_all(text)
        return word

    def tell_result(self, code: int, text: str, strategy: str) -> None:
        self._tell("report_result", code, text, self._kinds(), strategy)

    def on_repaired(self, rung: str, faults: dict[int, int]) -> None:
        """`faults`: those with which the run goes on."""
        with self._changed:
            strategy = self._strategy or ("recover" if rung in ("respawn", "adopt", "spare") else "retry")
            self._talking, self._stopped, self._agreed = False, False, False
            self._settled = True
            self._changed.notify_all()
        if self.present:
            self._tell("report_result", OK, "Mindio do repair operation ok", faults, strategy)

    def on_ended(self, exit_code: int, text: str) -> None:
        with self._changed:
            talking, strategy = self._talking, self._strategy or "dump"
            self._talking, self._settled = False, True
            self._changed.notify_all()
        if not self.present or not talking or exit_code == 0:
            return
        if exit_code == 75:
            self._tell("report_result", OK, "Mindio do dump operation ok", {}, strategy)
        else:
            self._tell("report_result", ONLY_EXIT, text, self._kinds(), strategy)

    # ---- the scheduler ----------------------------------------------------------------------------------------------------

    def stop_train(self, fault_ranks: dict[int, int], stop_type: str, timeout: int | None) -> None:
        if stop_type == "pause":
            threading.Thread(target=self._pause, args=(timeout,), name="mindio-pause", daemon=True).start()
            return
        with self._changed:
            self._stopped = True
            under_way = self._talking
            self._changed.notify_all()
        if not under_way:
            for rank, kind in fault_ranks.items():
                if kind == FAULT_PROCESS:
                    self._master.lose(rank, "the scheduler says that it is lost")

    def on_global_rank(self, fault_ranks: dict[int, int]) -> None:
        with self._changed:
            self._named = dict(fault_ranks)
            self._changed.notify_all()

    def change_strategy(self, strategy: str, param: str = "") -> None:
        with self._changed:
            if strategy in ("downgrade", "upgrade") and strategy in self._offered:
                if not param:
                    raise MindioError(f"'{strategy}' needs params: the ranks' handlers are given them")
                if strategy == "downgrade":
                    self._master.zit.choose(param)
            upgrades = strategy == "upgrade" and strategy in self._offered
            if upgrades and self._talking:
                raise MindioError("'upgrade': an incident is under way, which is mended first")
        if upgrades:
            self._master.zit.ask_upgrade(param)
            return
        if strategy == "continue":
            self._master.pauses.resume()
            self._tell("report_result", OK, "Controller continue training success.", {}, "continue")
            return
        with self._changed:
            if strategy not in self._offered:
                offered = list(self._offered)
                self._strategy, self._settled = "exit", True
                self._changed.notify_all()
            else:
                offered = []
                self._strategy = strategy
                self._changed.notify_all()
                return
        self._tell("report_result", ONLY_EXIT, f"{strategy} was not offered: {offered}", self._kinds(), strategy)
        self._master.end_all(f"the scheduler chose {strategy}, offered was {offered}")
        raise MindioError(f"strategy {strategy} was not offered: {offered}")

    # ---- an incident --------------------------------------------------------------------------------------------------------

    def _talk(self) -> None:
        wait = settings.current().scheduler_wait
        time.sleep(_GATHER)
        self._report_faults()
        self._await("stop_train", lambda: self._stopped, wait)
        self._tell("report_stop_complete", OK, "stop ok", self._kinds())
        self._await("on_global_rank", lambda: self._named is not None, wait)
        with self._changed:
            named = self._named or {}
        # Whose process is known to be lost may have another one by now.
        for rank, kind in named.items():
            if kind == FAULT_PROCESS and self._kinds().get(rank) != FAULT_PROCESS:
                self._master.lose(rank, "the scheduler says that it is lost")
        self._report_faults()
        self._await("a choice of the ladder", lambda: self._rung != "", wait)
        offered = self._strategies()
        with self._changed:
            self._offered = list(offered)
        self._tell("report_strategies", self._kinds(), offered)
        self._await("change_strategy", lambda: self._strategy != "", wait)
        with self._changed:
            strategy = self._strategy
        if strategy == "exit":
            self._master.end_all("the scheduler chose exit")
        elif strategy == "dump" and self._rung != "dump":
            self._master.save_and_end()
        elif strategy == "" and self._lacks_process and self._rung == "reload":
            self._master.end_all("nobody takes the place of a lost process, and what it held cannot be saved")
        elif strategy == "" and self._lacks_process:
            strategy = "dump"
            self._master.save_and_end()
        elif strategy == "recover" and self._rung in ("retry", "patch", "rebuild"):
            for rank, kind in self._kinds().items():
                if kind != FAULT_PROCESS:
                    self._master.lose(rank, "the scheduler chose recover")
        with self._changed:
            self._strategy = strategy
            self._settled = True
            self._changed.notify_all()

    @property
    def _replaces(self) -> bool:
        """Another process takes a lost one's place."""
        return self._master.enable_arf and not self._master.zit.shrunk

    @property
    def _lacks_process(self) -> bool:
        """One is lost, and nobody takes its place."""
        lost = self._rung in _REPLACES or self._rung == "reload" and FAULT_PROCESS in self._kinds().values()
        return lost and not self._replaces and self._master.zit.enabled

    def _strategies(self) -> list[str]:
        """The order is part of the interface."""
        offered = ["exit"]
        if self._rung == "exit" or self._rung == "reload" and self._lacks_process:
            return offered
        if self._rung != "reload":  # what is in doubt, or lost, is not dumped
            offered.append("dump")
        if self._rung in ("resume", "retry", "patch", "rebuild", "reload"):
            offered.append("retry")
        if self._replaces and self._rung != "dump":
            offered.append("recover")
        if self._rung in _REPLACES:
            offered += self._master.zit.offers(set(self._master.ranks.known_faults()))
        return offered

    def _pause(self, timeout: int | None) -> None:
        try:
            over = self._master.pauses.pause(settings.current().action_limit)
        except MindioError as error:
            self._tell("report_stop_complete", RETRY_FAILED, str(error), self._kinds())
            return
        self._tell("report_stop_complete", OK, "Controller pause train success!", {})
        if timeout is not None and not over.wait(timeout):
            LOGGER.warning("'continue' did not come within %d s of the pause: training goes on", timeout)
            self._master.pauses.resume()

    def _await(self, what: str, is_there: Callable[[], bool], limit: float) -> None:
        with self._changed:
            if not self._changed.wait_for(is_there, limit):
                LOGGER.warning("no %s from the scheduler within %g s: going on without it", what, limit)

    def _kinds(self) -> dict[int, int]:
        return {rank: kind for rank, (kind, _) in sorted(self._master.ranks.known_faults().items())}

    def _report_faults(self) -> None:
        faults = self._master.ranks.known_faults()
        codes = {rank: code for rank, (_, code) in sorted(faults.items())}
        function = self._callbacks["report_fault_ranks"]
        if arguments.takes(function, 2):
            self._tell("report_fault_ranks", self._kinds(), codes)
        else:
            self._tell("report_fault_ranks", self._kinds())

    def _tell(self, action: str, *given: Any) -> None:
        try:
            self._callbacks[action](*given)
        except Exception:
            LOGGER.exception("the scheduler's %s failed: the run is ended", action)
            self._master.end_all(f"the scheduler's {action} failed")
