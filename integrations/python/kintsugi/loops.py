"""Loops of a script's own, kept whole: `for k in run.steps(n)`, `for batch in run.batches(loader)`, `with run.step()`.

A survivor never leaves its loop. Where a step is void `with run.step()` swallows what ended it, and the loop gives the same step and the same
batch again. A newcomer runs the script from the top: loops that ended before its step give nothing, the one that is under way begins with
the iteration of the newest committed step, whose `with` block is left out; from there on everything happens as it did on the others.

Threads: the trainer's. Errors: Error where a script uses them so that steps could be lost or made twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Protocol

from ._errors import Error
from .abi import Code
from .guard import begin_anew
from .program import Program


class Batches(Protocol):
    """What a loop walks over, and can walk again (kintsugi/torch/loaders.py)."""

    def begin(self, epoch: int | None) -> None: ...
    def next(self) -> Any: ...
    def position(self) -> int: ...
    def seek(self, position: int) -> None: ...
    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> None: ...


class Turns(Protocol):
    """What loops ask of their run."""

    committed: int  # the newest step that this rank has committed

    @property
    def rank(self) -> int: ...

    def open(self) -> None: ...
    def begin_step(self, k: int) -> None: ...
    def end_step(self, k: int) -> None: ...
    def has_updated(self) -> bool: ...
    def settle(self, error: BaseException) -> None: ...
    def note_place(self) -> None: ...
    def note_iteration(self) -> None: ...
    def enter_step(self) -> None: ...
    def arrived(self) -> None: ...
    def enter_iteration_again(self) -> None: ...
    def leave_loop(self, number: int) -> None: ...
    def note_loop_end(self) -> None: ...


class _LeftOut(Exception):
    """Raised in the first line of a block that is left out, and swallowed at its end."""


class Loops:
    """The loops of one rank, one after another."""

    def __init__(self, run: Turns, program: Program) -> None:
        self._run = run
        self._program = program
        self.arriving = False  # a newcomer whose script has yet to come to where the run stands
        self._number = -1  # of the loop under way; -1: none is
        self._base = 0  # the step it began behind
        self._expected = 0  # the step that this iteration makes; 0: none is to come
        self._parts = 1  # blocks of a step, and which of them comes next
        self._part = 0
        self._passed_over = 0  # batches of the step that is left out, before its last
        self._leave_out = False  # the next block is that of a step which is committed
        self._made = False  # this iteration has had its block
        self._marks_steps = False  # the loop under way does itself
        self._batches: Batches | None = None  # of the loop under way
        self._began: tuple[Any, int] = None, 0  # its state and position where the step began
        self._again = False
        self._asked = True  # the script has looked at `again`, or need not

    # ---- functions of steps -------------------------------------------------------------------------------------------

    def train(self, step: Callable[[int], object], steps: int) -> None:
        """step(k) for every k up to `steps`."""
        self._enter()
        if self.arriving:
            if steps < self._run.committed:
                return self._end()
            self._arrive()
        while self._run.committed < steps:
            k = self._run.committed + 1
            self._program.begin_iteration(k)
            try:
                self._run.begin_step(k)
                step(k)
                self._run.end_step(k)
            except BaseException as error:
                self._run.settle(error)
                self._refuse_to_go_behind(self._base)
        self._end()

    def guard(self, loop: Callable[[int], object]) -> None:
        """A loop that marks its steps itself, from a step on. Sections in it belong to the step that was begun last; where it is entered again
        those of the newest committed step come once more."""
        self._enter()
        self._marks_steps = True
        if self.arriving:
            end = self._program.end_of(self._number)
            if end is not None and end < self._run.committed:
                return self._end()
            self._arrive()
        while True:
            self._program.begin_iteration(self._run.committed)
            try:
                loop(self._run.committed)
                break
            except BaseException as error:
                self._run.settle(error)
                self._refuse_to_go_behind(self._base)
        self._end()

    def note_step(self, k: int) -> None:
        """A step begins."""
        if self._marks_steps:
            self._program.begin_iteration(k)

    # ---- iterations ---------------------------------------------------------------------------------------------------

    def steps(self, count: int) -> Iterator[int]:
        self._enter()
        return self._iterate(self._base + count, None, None, 1, lambda _: self._expected)

    def batches(self, batches: Batches, epoch: int | None, accumulate: int, give: Callable[[Any], Any]) -> Iterator[Any]:
        self._enter()
        return self._iterate(None, batches, epoch, accumulate, give)

    @property
    def again(self) -> bool:
        self._asked = True
        return self._again

    def check_section(self) -> None:
        """Behind a block comes what belongs to its step: not where the step is void."""
        if self._program.in_loop and self._expected and self._made and not self._asked:
            raise Error(f"run.do behind the `with run.step()` of step {self._expected}: where a fault made that step void it must not be done. "
                        "Write `if run.again: continue` right behind the block", Code.FAILED_PRECONDITION)  # fmt: skip
        if self._again:
            raise Error(f"run.do in an iteration whose step {self._expected} is void: `if run.again: continue` comes before it", Code.FAILED_PRECONDITION)

    def _iterate(self, end: int | None, batches: Batches | None, epoch: int | None, parts: int, give: Callable[[Any], Any]) -> Iterator[Any]:
        run, number = self._run, self._number
        if self.arriving:
            known = end if end is not None else self._program.end_of(number)
            if known is not None and known < run.committed:
                return self._end()
        self._parts, self._part, self._batches = parts, 0, batches
        self._set_out(batches, epoch)
        try:
            while end is None or self._leave_out or run.committed < end or self._part > 0:
                self._expected = run.committed if self._leave_out else run.committed + 1
                if self._part == 0 or self._leave_out:
                    self._program.begin_iteration(self._expected)
                    if self._leave_out:
                        run.enter_iteration_again()
                    else:
                        run.note_iteration()
                    if batches is not None:
                        self._began = batches.state_dict(), batches.position()
                try:
                    item = self._next(batches) if batches is not None else None
                except StopIteration:
                    if self._part == 0 or self._close_step():
                        break
                    self._go_back(batches)
                    continue
                self._made, self._again, self._asked = False, False, True
                yield give(item)
                self._check_made()
                if self._again:
                    self._go_back(batches)
        finally:
            self._expected, self._again, self._asked, self._batches = 0, False, True, None
            if self._number == number:
                self._end()

    def _set_out(self, batches: Batches | None, epoch: int | None) -> None:
        """The pass begins, or is taken up where the run stands: with the last batch of the step that all have."""
        self._leave_out = self.arriving and self._run.committed > self._base
        if self.arriving and not self._leave_out:
            self._arrive()
        if batches is None:
            return
        if not self._leave_out:
            batches.begin(epoch)
        elif self._program.loader is None:
            batches.begin(epoch)
            batches.seek((self._run.committed - self._base) * self._parts - 1)
        else:
            self._take_up(batches)

    def _take_up(self, batches: Batches) -> None:
        state, self._passed_over = self._program.loader
        batches.load_state_dict(state)

    def _next(self, batches: Batches) -> Any:
        for _ in range(self._passed_over):  # of a step that took several
            batches.next()
        self._passed_over = 0
        return batches.next()

    def note_gate(self) -> None:
        """Before the objects are taken: where a newcomer takes up the loader, and how many batches come before the step's last."""
        if self._batches is not None:
            state, position = self._began
            self._program.note_loader((state, self._batches.position() - position - 1))

    def _go_back(self, batches: Batches | None) -> None:
        """The step of this iteration is void. Most often the one before is committed, and it is made again."""
        self._part = 0
        if self._run.committed == self._expected - 1:
            if batches is not None:
                batches.seek(self._began[1])
            return
        self._refuse_to_go_behind(self._base + 1)
        self._leave_out = self.arriving = True
        if batches is not None:
            self._take_up(batches)

    def _close_step(self) -> bool:
        """The loader gives no further batch for the step under way. Whether it is committed."""
        try:
            self._run.end_step(self._expected)
        except BaseException as error:
            self._run.settle(error)
        self._part = 0
        return self._run.committed >= self._expected

    def _check_made(self) -> None:
        if not self._made:
            raise Error(f"an iteration without a `with run.step()`, where step {self._expected} was to come: every iteration makes one, and "
                        "what leaves batches out does so within it", Code.FAILED_PRECONDITION)  # fmt: skip

    # ---- blocks -------------------------------------------------------------------------------------------------------

    def enter_block(self) -> tuple[int, bool]:
        """The step, and whether its block is to be left out."""
        if not self._expected:
            raise Error("run.step() outside of a loop of the run's: write `for k in run.steps(n):` or `for batch in run.batches(loader):` "
                        "around it, which give a step once more where it was void", Code.FAILED_PRECONDITION)  # fmt: skip
        if self._made:
            raise Error(f"a second `with run.step()` in the iteration of step {self._expected}: an iteration makes one step; where one update "
                        "takes several batches, run.batches(loader, accumulate=n) says so", Code.FAILED_PRECONDITION)  # fmt: skip
        self._made = True
        k = self._expected
        while not self._leave_out and self._part == 0:
            try:
                self._run.begin_step(k)
                self._run.enter_step()
                break
            except BaseException as error:
                self._run.note_place()  # the script stays here
                self._run.settle(error)
                self._refuse_to_go_behind(k - 1)
        return k, self._leave_out

    def leave_block(self, error: BaseException | None) -> bool:
        """Whether `error` is swallowed."""
        k, self._asked = self._expected, False
        if self._leave_out:
            self._leave_out = False
            self._arrive()
            return isinstance(error, _LeftOut)
        if error is None:
            self._part += 1
            if self._part < self._parts and not self._run.has_updated():
                return False
            try:
                self._run.end_step(k)
            except BaseException as failed:
                error = failed
        if error is not None:
            self._run.settle(error)
        self._part = 0
        self._again = self._run.committed < k
        return True

    # ---- where the script is ------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        self._run.open()
        if self._number >= 0:
            self._end()  # one that was left, and whose iterator somebody still has
        self._number = self._program.begin_loop()
        base = self._program.base_of(self._number) if self.arriving else self._run.committed
        self._base = self._run.committed if base is None else base
        self._run.note_place()

    def _end(self) -> None:
        self._run.leave_loop(self._number)
        self._program.leave_loop()
        self._number, self._marks_steps = -1, False
        if not self.arriving:
            self._run.note_loop_end()

    def _arrive(self) -> None:
        self.arriving = False
        self._run.arrived()

    def _refuse_to_go_behind(self, step: int) -> None:
        if self._run.committed < step:
            begin_anew(self._run.rank, self._run.committed)


class Block:
    """`with run.step() as k`."""

    def __init__(self, loops: Loops) -> None:
        self._loops = loops
        self._tracer: Any = None

    def __enter__(self) -> int:
        k, leave_out = self._loops.enter_block()
        if leave_out:
            self._leave_out(sys._getframe(1))
        return k

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, _LeftOut):
            sys.settrace(self._tracer)
        return self._loops.leave_block(error)

    def _leave_out(self, frame: FrameType) -> None:
        """Python has no word to leave out the block of a `with`: its first line is made to raise, which `__exit__` takes back. A frame is
        traced only while some function of tracing is set."""

        def stop(*_: Any) -> Any:
            frame.f_trace = None
            raise _LeftOut

        self._tracer = sys.gettrace()
        sys.settrace(lambda *_: None)
        frame.f_trace = stop
