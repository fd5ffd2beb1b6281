"""A rank between its steps: what the agent asks of it, until it goes on.

The guard begins where a script first needs the run: at its first step or section. From then on the script runs *within* it, wherever it is;
a step or a section that is broken comes here, works off what the incident asks for, and goes on from the step that all have agreed on. It
ends with the script (`finish`): until then groups live, and this rank's state is there for others.

Threads: the trainer's. Errors: leaves the process with the run's exit code where the run ends before the script.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from . import _core
from ._errors import Error
from ._modules import report_modules
from .abi import Code, Outcome, TaskKind
from .terms import HANDLERS, RUNGS, Handler, Incident
from .verdicts import Rejected


class Guard:
    """`put_back`: the registered objects as of a step. `outcome_of`: what an exception means. `describe_place`: where the script is, for an error.
    `went_on`: called where all go on."""

    def __init__(self, agent: _core.Agent, put_back: Callable[[int], object], outcome_of: Callable[[BaseException], int],
                 is_changed: Callable[[], bool], leave_script: Callable[[], object], describe_place: Callable[[], str],
                 went_on: Callable[[], object]) -> None:  # fmt: skip
        self._agent = agent
        self._put_back = put_back
        self._outcome_of = outcome_of
        self._is_changed = is_changed
        self._leave_script = leave_script
        self._describe_place = describe_place
        self._went_on = went_on
        self._handlers: dict[TaskKind, list[Handler]] = {kind: [] for kind in HANDLERS.values()}
        self.begun = False
        self.released = False  # has ever been let into its loop
        self.ended = False
        self.leaves = False  # the script asked to leave the process, within a step or a section
        self.generation = 0
        self.step = 0  # all stand at it, or go on from it

    def add(self, kind: str, handler: Handler) -> None:
        self._handlers[HANDLERS[kind]].append(handler)

    def begin(self) -> int:
        """Returns once all ranks are there; the step to go on from."""
        self.begun = True
        self._agent.guard_begin()
        atexit.register(self._finish_at_exit)  # before the agent leaves: later registered, earlier called
        self._hook = sys.excepthook
        sys.excepthook = self._on_uncaught
        return self._await_release()

    def settle(self, error: BaseException) -> int:
        """A step or a section ended by this: the incident is worked off. The step to go on from."""
        self._leave(error)
        return self._await_release()

    def work_off(self, task: _core.Task) -> None:
        """A task of an incident's or a save's, on this thread."""
        kind = TaskKind(task.kind)
        if kind not in self._handlers:
            self._agent.default()
            return
        self.generation = task.generation
        incident = Incident(task.step, task.generation, RUNGS[task.rung], task.left_ms, tuple(task.partners), not self.released, task.relayout, task.registered_in)
        try:
            if kind == TaskKind.ROLLBACK:
                self._put_back(task.step)
            said = [text for handler in self._handlers[kind] if isinstance(text := handler(incident), str)]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            superseded = self._agent.superseded()
            if not superseded:
                traceback.print_exception(error)
                sys.stderr.flush()
            self._agent.done(Code.CANCELLED if superseded else _code_of(kind, error), f"{kind.name}: {type(error).__name__}: {error}"[:4000])
        else:
            self._agent.done(Code.OK, "; ".join(said)[:4000])

    def finish(self) -> None:
        """The script needs the run no more: waits until that is so on all ranks. Meanwhile it repairs others. Leaves the process
        where the run did not end well."""
        if not self.begun or self.ended or self.leaves:
            return
        mine = self.step
        while not self.ended:
            self._leave_script()
            self._agent.left_loop(Outcome.FINISHED_CHANGED if self._is_changed() else Outcome.FINISHED, "", "")
            self._work_until_loop()
            if not self.ended and self.step < mine:
                begin_anew(self._agent.rank, self.step)

    def _finish_at_exit(self) -> None:
        """Python takes no notice of what is raised this late."""
        try:
            return self.finish()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except KeyboardInterrupt:
            code = 130
        except BaseException as error:
            traceback.print_exception(error)
            self._give_up(error)
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _await_release(self) -> int:
        self._work_until_loop()
        if self.ended:
            sys.exit(self._agent.exit_code)
        return self.step

    def _work_until_loop(self) -> None:
        while True:
            task = self._agent.next()
            self.step = task.step
            if task.kind == TaskKind.LOOP:
                if self._goes_on():
                    return
                continue
            if task.kind == TaskKind.ENDED:
                break
            self.work_off(task)
        self.ended = True
        if self._agent.exit_code != 0:
            print(f"kintsugi: rank {self._agent.rank}: {task.text}", file=sys.stderr, flush=True)
            sys.exit(self._agent.exit_code)

    def _goes_on(self) -> bool:
        """What all do then may be struck, too."""
        if not self.released:
            report_modules()
        self.released = True
        try:
            self._went_on()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._leave(error)
            return False
        return True

    def _leave(self, error: BaseException) -> None:
        """Type and text reach the report; the traceback is printed, as an uncaught one would be."""
        outcome = self._outcome_of(error)
        if isinstance(error, Rejected):
            return self._agent.left_loop(outcome, "", str(error))  # where it was raised says nothing: not the same place three times
        if outcome in (Outcome.RAISED, Outcome.REFUSED):
            traceback.print_exception(error)
            sys.stderr.flush()
        self._agent.left_loop(outcome, *described(error))

    def _on_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        """The script ends by an exception, outside of steps and sections: nothing can take it up again."""
        self._hook(kind, error, trace)
        sys.excepthook = self._hook
        if self.ended or issubclass(kind, KeyboardInterrupt):
            self.ended = True  # nothing to wait for
            return
        self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        """Outside of steps and sections: nothing can be done again."""
        sys.stderr.flush()
        name, text = described(error)
        text += self._describe_place()
        if self._agent.poll() != 0 and not isinstance(error, Error):
            text += ": an incident has begun, and this was outside of a step and of run.do, where nothing can be done again"
        self._agent.left_loop(Outcome.REFUSED, name, text)
        try:
            self._work_until_loop()
        except SystemExit:
            pass
        self.ended = True


def described(error: BaseException) -> tuple[str, str]:
    where = traceback.extract_tb(error.__traceback__)
    place = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return name, f"{error}{place}"[:4000]


def _code_of(kind: TaskKind, error: BaseException) -> Code:
    """Of a handler's end. A connection that could not be made may be another rank's fault; ranks that want different things do not come
    to want the same by being started again."""
    kept = (Code.COMM_FAILURE, Code.CANCELLED, *((Code.INVALID_ARGUMENT,) if kind == TaskKind.REBUILD_GROUP else ()))
    return Code(error.code) if isinstance(error, Error) and error.code in kept else Code.INTERNAL


def begin_anew(rank: int, step: int) -> None:
    """This process cannot go back in its script: one that begins at the top takes its place, and passes by what is done."""
    print(f"kintsugi: rank {rank}: the run goes on from step {step}, which lies before this place of the script: a new process takes over",
          file=sys.stderr, flush=True)  # fmt: skip
    sys.stdout.flush()
    os.kill(os.getpid(), 9)
