"""The scheduler's side (MindX: ClusterD, TaskD): what it is told, and its word on how an incident is met.

Without a scheduler, or where its word does not come in time, the ladder's choice stands.

Threads: the host's; the scheduler's own functions are called apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from . import arguments, settings
from .codes import FAULT_PROCESS, OK, ONLY_EXIT, RETRY_FAILED, MindioError
from .log import LOGGER
from .pause import Pauses
from .run import Run
from .slices import Slices

ACTIONS = ("report_fault_ranks", "report_stop_complete", "report_strategies", "report_result")
STRATEGIES = ("retry", "recover", "dump", "exit", "downgrade", "upgrade", "continue", "migration")

_REPLACES = ("adopt", "spare", "respawn")  # the rungs on which a process is lost
_GATHER = 0.05  # what comes so soon after the first fault is told with it

_callbacks: dict[str, Callable[..., Any]] = {}


def is_present() -> bool:
    return all(action in _callbacks for action in ACTIONS)


def register(action: Any, function: Any) -> int:
    if action not in ACTIONS or not callable(function):
        LOGGER.error("tft_register_mindx_callback(%r, %r): a callable for one of %s is expected", action, function, ", ".join(ACTIONS))
        return 1
    _callbacks[action] = function
    return 0


class Scheduler:
    """What is agreed with the scheduler about one run."""

    def __init__(self, run: Run, pauses: Pauses, slices: Slices) -> None:
        self._run, self._ranks, self._host, self._pauses, self._slices = run, run.ranks, run.host, pauses, slices
        self._callbacks = dict(_callbacks)
        self.present = is_present()
        if self._callbacks and not self.present:
            missing = [action for action in ACTIONS if action not in self._callbacks]
            LOGGER.warning("the controller runs without a scheduler: %s not registered", ", ".join(missing))
        self._rung = ""
        self.talks = False  # an incident is under way
        self._stopped = False  # stop_train has come
        self._named: dict[int, int] | None = None  # on_global_rank
        self._offered: list[str] = []
        self._strategy = ""
        self._settled = True  # nothing is being agreed on
        self._withdrawn = False
        self._agreed = False  # the incident under way is nobody's fault
        self._fails = False  # a strategy has failed, and the scheduler is asked what follows

    # ---- ranks and controller ------------------------------------------------------------------------------------------

    async def on_incident(self) -> None:
        hurt = bool(self._ranks.known_faults())
        if self.present and not (self.talks and not (self._agreed and hurt)):
            self.talks, self._settled, self._agreed = True, False, False
            self._named, self._strategy, self._rung = None, "", ""
            self._host.begin(self._talk())
        await self._pauses.drop()

    async def await_word(self, rung: str) -> str:
        """For a rank that knows its rung: once the scheduler has spoken, the strategy; "" without a scheduler."""
        if not self.present:
            return ""
        self._rung = rung
        await self.await_settled()
        return self._strategy

    async def await_settled(self) -> None:
        """Until the scheduler has spoken on the incident under way, if there is one."""
        await self._host.until(lambda: self._settled)

    @property
    def word(self) -> str:
        """The scheduler's on the incident under way; "" where there is none yet."""
        return self._strategy if self.talks and self._settled else ""

    async def choose(self, offered: list[str]) -> str:
        """What the scheduler takes of an offer that no fault has led to; "" where it takes nothing, or an incident begins."""
        if self.talks:
            return ""
        self._offered, self._strategy, self._withdrawn = list(offered), "", False
        await self._tell("report_strategies", {}, list(offered))
        await self._await("change_strategy", lambda: self._strategy != "" or self.talks or self._withdrawn)
        return "" if self.talks or self._withdrawn else self._strategy

    def withdraw(self) -> None:
        """The offer that `choose` has made is none any more."""
        self._withdrawn = True

    def begin_agreed(self, strategy: str) -> bool:
        """The incident that is about to begin is agreed on. False: another one was faster."""
        if self.talks:
            return False
        self.talks, self._settled, self._agreed = True, True, strategy == "upgrade"
        self._strategy = strategy
        return True

    def commit_agreed(self) -> None:
        """From here on a fault is what makes it fail, and no other incident."""
        self._agreed = False

    async def fail(self, code: int, text: str, strategy: str) -> str:
        """What was chosen has failed: "dump" or "exit", as the scheduler says, and carried out. Where it says nothing, what is held is saved."""
        if self._fails:
            await self._host.until(lambda: not self._fails)
            return self._strategy
        self._fails = True
        self._settled, self._strategy, self._offered = False, "", ["exit", "dump"] if code != ONLY_EXIT else ["exit"]
        await self.tell_result(code, text, strategy)
        if code != ONLY_EXIT:
            await self._await("change_strategy", lambda: self._strategy != "")
        self._strategy = self._strategy or ("dump" if code != ONLY_EXIT else "exit")
        self._fails, self._settled, self._agreed = False, True, False
        word = self._strategy
        if word == "dump":
            self._run.save_and_end()
        else:
            self._run.end_all(text)
        return word

    async def tell_result(self, code: int, text: str, strategy: str) -> None:
        await self._tell("report_result", code, text, self._kinds(), strategy)

    async def on_repaired(self, rung: str, faults: dict[int, int]) -> None:
        """`faults`: those with which the run goes on."""
        strategy = self._strategy or ("recover" if rung in _REPLACES else "retry")
        self.talks, self._stopped, self._agreed, self._settled = False, False, False, True
        if self.present:
            await self._tell("report_result", OK, "Mindio do repair operation ok", faults, strategy)

    async def on_ended(self, exit_code: int, text: str) -> None:
        talked, strategy = self.talks, self._strategy or "dump"
        self.talks, self._settled = False, True
        if not self.present or not talked or exit_code == 0:
            return
        if exit_code == 75:
            await self._tell("report_result", OK, "Mindio do dump operation ok", {}, strategy)
        else:
            await self.tell_result(ONLY_EXIT, text, strategy)

    # ---- the scheduler ----------------------------------------------------------------------------------------------------

    def stop_train(self, fault_ranks: dict[int, int], stop_type: str, timeout: int | None) -> None:
        if stop_type == "pause":
            self._host.begin(self._pause(timeout))
            return
        self._stopped = True
        if not self.talks:
            for rank, kind in fault_ranks.items():
                if kind == FAULT_PROCESS:
                    self._run.lose(rank, "the scheduler says that it is lost")

    def on_global_rank(self, fault_ranks: dict[int, int]) -> None:
        self._named = dict(fault_ranks)

    def upgrades(self, strategy: str, param: str) -> bool:
        """Whether its word is that a run with fewer ranks grows back. Raises MindioError."""
        if strategy in ("downgrade", "upgrade") and strategy in self._offered:
            if not param:
                raise MindioError(f"'{strategy}' needs params: the ranks' handlers are given them")
            if strategy == "upgrade" and self.talks:
                raise MindioError("'upgrade': an incident is under way, which is mended first")
            return strategy == "upgrade"
        return False

    async def change_strategy(self, strategy: str, param: str) -> None:
        """Any but an upgrade."""
        if strategy == "continue":
            await self._pauses.resume()
            await self._tell("report_result", OK, "Controller continue training success.", {}, "continue")
            return
        if strategy in self._offered:
            if strategy == "downgrade":
                self._slices.down = param
            self._strategy = strategy
            return
        offered = list(self._offered)
        self._strategy, self._settled = "exit", True
        await self.tell_result(ONLY_EXIT, f"{strategy} was not offered: {offered}", strategy)
        self._run.end_all(f"the scheduler chose {strategy}, offered was {offered}")
        raise MindioError(f"strategy {strategy} was not offered: {offered}")

    # ---- an incident --------------------------------------------------------------------------------------------------------

    async def _talk(self) -> None:
        await asyncio.sleep(_GATHER)
        await self._report_faults()
        await self._await("stop_train", lambda: self._stopped)
        await self._tell("report_stop_complete", OK, "stop ok", self._kinds())
        await self._await("on_global_rank", lambda: self._named is not None)
        # Whose process is known to be lost may have another one by now.
        for rank, kind in (self._named or {}).items():
            if kind == FAULT_PROCESS and self._kinds().get(rank) != FAULT_PROCESS:
                self._run.lose(rank, "the scheduler says that it is lost")
        await self._report_faults()
        await self._await("a choice of the ladder", lambda: self._rung != "")
        self._offered = self._strategies()
        await self._tell("report_strategies", self._kinds(), list(self._offered))
        await self._await("change_strategy", lambda: self._strategy != "")
        self._carry_out()
        self._settled = True

    def _carry_out(self) -> None:
        """The word, or what follows where there is none."""
        if self._strategy == "exit":
            self._run.end_all("the scheduler chose exit")
        elif self._strategy == "dump" and self._rung != "dump":
            self._run.save_and_end()
        elif self._strategy == "" and self._lacks_process and self._rung == "reload":
            self._run.end_all("nobody takes the place of a lost process, and what it held cannot be saved")
        elif self._strategy == "" and self._lacks_process:
            self._strategy = "dump"
            self._run.save_and_end()
        elif self._strategy == "recover" and self._rung in ("retry", "patch", "rebuild"):
            for rank, kind in self._kinds().items():
                if kind != FAULT_PROCESS:
                    self._run.lose(rank, "the scheduler chose recover")

    @property
    def _replaces(self) -> bool:
        """Another process takes a lost one's place."""
        return self._run.enable_arf and not self._slices.left_out

    @property
    def _lacks_process(self) -> bool:
        """One is lost, and nobody takes its place."""
        lost = self._rung in _REPLACES or self._rung == "reload" and FAULT_PROCESS in self._kinds().values()
        return lost and not self._replaces and self._slices.enabled

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
            offered += self._slices.offered()
        return offered

    async def _pause(self, timeout: int | None) -> None:
        try:
            over = await self._pauses.pause(settings.current().action_limit)
        except MindioError as error:
            await self._tell("report_stop_complete", RETRY_FAILED, str(error), self._kinds())
            return
        await self._tell("report_stop_complete", OK, "Controller pause train success!", {})
        if timeout is not None and not await self._host.until(over.is_set, timeout):
            LOGGER.warning("'continue' did not come within %d s of the pause: training goes on", timeout)
            await self._pauses.resume()

    async def _await(self, what: str, is_there: Callable[[], bool]) -> None:
        limit = settings.current().scheduler_wait
        if not await self._host.until(is_there, limit):
            LOGGER.warning("no %s from the scheduler within %g s: going on without it", what, limit)

    def _kinds(self) -> dict[int, int]:
        return {rank: kind for rank, (kind, _) in sorted(self._ranks.known_faults().items())}

    async def _report_faults(self) -> None:
        codes = {rank: code for rank, (_, code) in sorted(self._ranks.known_faults().items())}
        if arguments.takes(self._callbacks["report_fault_ranks"], 2):
            await self._tell("report_fault_ranks", self._kinds(), codes)
        else:
            await self._tell("report_fault_ranks", self._kinds())

    async def _tell(self, action: str, *given: Any) -> None:
        try:
            await self._host.apart(self._callbacks[action], *given)
        except Exception:
            LOGGER.exception("the scheduler's %s failed: the run is ended", action)
            self._run.end_all(f"the scheduler's {action} failed")
