"""Loops of a script's own, kept whole: `for k in run.steps(n)`, `for batch in run.batches(loader)`, `with run.step()`.

A survivor never leaves its loop. Where a step is void `with run.step()` swallows what ended it, and the loop gives the same step and the same
batch again. A newcomer runs the script from the top: loops that ended before its step give nothing, the one that is under way begins with
the iteration of the newest committed step, whose `with` block is left out; from there on everything happens as it did on the others.

Threads: the trainer's. Errors: Error where a script uses them so that steps could be lost or made twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ._errors import Error
from .abi import Code
from .block import LeftOut
from .guard import begin_anew
from .outside import Outside
from .program import Begun, Numbers, Program
from .source import script_frame

# Functions of the script's own that a framework's loop calls. Without an error all of them; with it those that are called again, and the error where
# that has ended one; none: it was called as a whole.
Codes = Callable[[BaseException | None], Iterable[tuple[Any, BaseException | None]]]

_MOST_AT_REST = 16  # loaders: a state has some 5 KB, and all are part of every step's record
_GONE = "gone"  # in place of such a state


class Batches(Protocol):
    """What a loop walks over, and can walk again (kintsugi/torch/loaders.py)."""

    @property
    def name(self) -> str: ...
    @property
    def is_new(self) -> bool:
        """This process has neither walked it nor put anything back."""

    def begin(self, epoch: int | None) -> None: ...
    def next(self) -> Any: ...
    def position(self) -> int: ...
    def seek(self, position: int) -> None: ...
    def state_dict(self) -> Any: ...
    def rest(self) -> Any:
        """Its state, where another pass begins with what this one has come to; else None."""

    def load_state_dict(self, state: Any, /) -> None: ...
    def load_rest(self, state: Any, others: Iterable[Any], /) -> None:
        """What `others`, which this process has walked, draw from, too, stays as it is."""

    def take_over(self, saved: list[tuple[Any, int]], /) -> Any: ...
    def makers(self) -> list[Callable[..., Any]]: ...


class Turns(Protocol):
    """What loops ask of their run."""

    committed: int  # the newest step that this rank has committed
    crew: tuple[int, ...]  # the ranks that take part; another object where these are others

    @property
    def rank(self) -> int: ...

    @property
    def replaces(self) -> bool: ...

    def open(self) -> None: ...
    def begin_step(self, k: int) -> None: ...
    def end_step(self, k: int) -> None: ...
    def has_updated(self) -> bool: ...
    def settle(self, error: BaseException) -> None: ...
    def note_place(self) -> None: ...
    def note_iteration(self) -> None: ...
    def restore_iteration(self) -> None: ...
    def enter_step(self) -> None: ...
    def arrived(self) -> None: ...
    def leaves_out(self, k: int) -> bool: ...
    def enter_iteration_again(self) -> None: ...
    def leave_loop(self, number: int) -> None: ...
    def note_loop_end(self) -> None: ...
    def note_forgotten(self, k: int, code: Any, arrives: bool, error: BaseException | None = None) -> None: ...


class Loops:
    """The loops of one rank, one after another."""

    def __init__(self, run: Turns, program: Program, outside: Outside) -> None:
        self._run = run
        self._program = program
        self._outside = outside
        self.arriving = False  # a newcomer whose script has yet to come to where the run stands
        self.sections = 0  # that the script is in
        self.place = 0  # another number in each iteration and each section; 0: in neither
        self._places = 0
        self._number = -1  # of the loop under way; -1: none is
        self._base = 0  # the step it began behind
        self._expected = 0  # the step that this iteration makes; 0: none is to come
        self._parts = 1  # blocks of a step, and which of them comes next
        self._part = 0
        self._passed_over = 0  # batches of the step that is left out, before its last
        self._divided: Any = None  # where the pass goes on behind the step that is left out, divided anew among other ranks than began it
        self._left_out = 0  # the step whose block was left out, while the script is behind it
        self._leave_out = False  # the next block is that of a step which is committed
        self._made = False  # this iteration has had its block
        self.function: Callable[[int], object] | None = None  # that makes steps
        self._marks_steps = False  # the loop under way does itself
        self._batches: Batches | None = None  # of the loop under way
        self._walked: Batches | None = None  # in the newest loop that had any
        self._walked_here: list[Batches] = []  # by this process
        self._at_rest: dict[str, Any] = {}  # by name: where others stand, which the loop under way does not walk
        self._at_rest_among: tuple[int, ...] = ()  # the ranks that took part then
        self._inside = False  # in a block of a step's, or in a loop that knows no other code
        self._began: tuple[Any, int] = None, 0  # its state and position where the step began
        self._epoch: int | None = None
        self._crew: tuple[int, ...] = ()  # who takes part in the iteration at hand
        self._divided_among: tuple[int, ...] = ()  # for whom the loader stands where it does
        self._void = False  # the next block is left out: others take part than when its iteration began
        self._again = False
        self._asked = True  # the script has looked at `again`, or need not

    # ---- functions of steps -------------------------------------------------------------------------------------------

    def train(self, step: Callable[[int], object], steps: int) -> None:
        """step(k) for every k up to `steps`."""
        self.function = step
        steps = len(self._enter_numbers(range(steps)))
        if self.arriving:
            if steps < self._run.committed:
                return self._end()
            self._arrive()
            if self._run.committed > 0:
                self._run.note_forgotten(self._run.committed, step, True)
        self._inside = True
        while self._run.committed < steps:
            k = self._run.committed + 1
            self._begin_iteration(k)
            try:
                self._run.begin_step(k)
                if not self._run.leaves_out(k):
                    step(k)
                self._run.end_step(k)
            except BaseException as error:
                self._run.settle(error)
                if self._run.committed < k:
                    self._run.note_forgotten(k, step, False, error)
                self._refuse_to_go_behind(self._base)
        self._end()

    def guard(self, loop: Callable[[int], object], codes: Codes) -> None:
        """A loop that marks its steps itself, from a step on. Sections in it belong to the step that was begun last; where it is entered again
        those of the newest committed step come once more. `codes`: of the script's own, what the loop calls."""
        self._enter()
        self._marks_steps = True
        if self.arriving:
            end = self._program.end_of(self._number)
            if end is not None and end < self._run.committed:
                return self._end()
            self._arrive()
            for code, _ in codes(None) if self._run.committed > 0 else ():
                self._run.note_forgotten(self._run.committed, code, True)
        self._inside = True
        while True:
            self._program.begin_iteration(self._run.committed)
            try:
                loop(self._run.committed)
                break
            except BaseException as error:
                again, is_void = list(codes(error)), not self._run.has_updated()
                self._run.settle(error)
                for code, ended in again:
                    self._run.note_forgotten(self._run.committed + is_void, code, False, ended)
                self._refuse_to_go_behind(self._base)
        self._end()

    def note_step(self, k: int) -> None:
        """A step begins."""
        if self._marks_steps:
            self._program.begin_iteration(k)

    # ---- iterations ---------------------------------------------------------------------------------------------------

    def steps(self, count: int) -> Iterator[int]:
        count = len(self._enter_numbers(range(count)))
        return self._iterate(self._base + count, None, None, 1, lambda _: self._expected)

    def range(self, numbers: range) -> Iterator[int]:
        numbers = self._enter_numbers(numbers)
        return self._iterate(self._base + len(numbers), None, None, 1, lambda _: numbers[self._expected - self._base - 1])

    def batches(self, batches: Batches, epoch: int | None, accumulate: int, give: Callable[[Any], Any]) -> Iterator[Any]:
        self._enter(epoch)
        return self._iterate(None, batches, epoch, accumulate, give)

    @property
    def again(self) -> bool:
        self._asked = True
        return self._again

    def refuse_cut_short(self) -> None:
        """A loop that was left with a step under way: what the script does next is of no step."""
        if self._number < 0 and self._part > 0:
            raise Error(f"the loop was left in the middle of step {self._run.committed + 1}, behind {self._part} of its {self._parts} batches: what they have "
                        "added up would be of no step. Leave it behind the last of them, or make the update there", Code.FAILED_PRECONDITION)  # fmt: skip

    def check_section(self) -> None:
        """Behind a block comes what belongs to its step: not where the step is void."""
        self.refuse_cut_short()
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
                if batches is not None and not self._leave_out and self._divided_among != run.crew:
                    self._divide_anew(batches)
                if self._part == 0 or self._leave_out:
                    self._begin_iteration(self._expected)
                    if self._leave_out:
                        run.enter_iteration_again()
                    else:
                        run.note_iteration()
                    if batches is not None:
                        self._began = batches.state_dict(), batches.position()
                if self._part == 0 and run.leaves_out(self._expected):
                    if not self._pass_by(batches):
                        break
                    continue
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
                self._left_out = 0
                if self._again:
                    run.restore_iteration()
                    self._go_back(batches)
        finally:
            self._left_out = 0
            self._expected, self._again, self._asked, self._batches = 0, False, True, None
            if self._number == number:
                self._end()

    def _pass_by(self, batches: Batches | None) -> bool:
        """The script is not given this iteration: the batches of its step are left out, and the step is empty. False: the pass is over, and the step is
        one of the next."""
        run, k, arrives = self._run, self._expected, self._leave_out
        if batches is not None:
            taken = 0
            with contextlib.suppress(StopIteration):  # the last step of a pass may have fewer
                while taken < (1 if arrives else self._parts):
                    self._next(batches)
                    taken += 1
            if taken == 0 and not arrives:
                return False
        if arrives:
            self._leave_out = False
            self._take_place(batches)
            return True
        self._inside = True
        try:
            run.begin_step(k)
            run.enter_step()
            run.end_step(k)
        except BaseException as error:
            run.settle(error)
        finally:
            self._leave_inside()
        if run.committed < k:
            run.restore_iteration()
            self._go_back(batches)
        return True

    def _take_place(self, batches: Batches | None) -> None:
        """A newcomer is behind the iteration of the newest step."""
        self._arrive()
        if batches is not None and self._divided is not None:
            batches.load_state_dict(self._divided)
        self._divided = None

    def _begin_iteration(self, k: int) -> None:
        self._crew = self._run.crew
        self._program.begin_iteration(k)
        self._enter_place()

    def _enter_place(self) -> None:
        self._places += 1
        self.place = self._places

    @contextlib.contextmanager
    def section(self) -> Iterator[None]:
        """What is called within is made again as a whole, or passed by."""
        around = self.place
        self._enter_place()
        self.sections += 1
        try:
            yield
        finally:
            self.place = around
            self.sections -= 1

    def _set_out(self, batches: Batches | None, epoch: int | None) -> None:
        """The pass begins, or is taken up where the run stands: with the last batch of the step that all have."""
        self._leave_out = self.arriving and self._run.committed > self._base
        if self.arriving and not self._leave_out:
            self._arrive()
        if batches is None:
            return
        self._epoch, self._divided_among = epoch, self._run.crew
        self._change_to(batches)
        if not self._leave_out:
            self._begin_pass(batches, epoch)
        elif self._program.loader is None:
            self._begin_pass(batches, epoch)
            batches.seek((self._run.committed - self._base) * self._parts - 1)
        else:
            self._take_up(batches)

    def _change_to(self, batches: Batches) -> None:
        """A process that comes later goes on with the others, too, from where they stand."""
        if self._at_rest_among != self._run.crew:
            self._at_rest, self._at_rest_among = {}, self._run.crew
        if self._walked is not None and self._walked is not batches:
            self._at_rest.pop(self._walked.name, None)
            self._at_rest[self._walked.name] = self._walked.rest()
            for name in [name for name, state in self._at_rest.items() if state not in (None, _GONE)][:-_MOST_AT_REST]:
                self._at_rest[name] = _GONE
        self._walked = batches

    def _begin_pass(self, batches: Batches, epoch: int | None) -> None:
        if batches.is_new and self._program.has_rest(batches.name):
            rest = self._program.rest_of(batches.name)
            if rest == _GONE:
                raise Error(f"loader '{batches.name}': since it was walked more than {_MOST_AT_REST} others were, and where it stood is not kept: this process, which "
                            "takes a lost one's place, cannot go on with it", Code.FAILED_PRECONDITION)  # fmt: skip
            if rest is not None:
                batches.load_rest(rest, self._walked_here)
            for code in batches.makers():
                self._run.note_forgotten(self._run.committed, code, True)
        batches.begin(epoch)
        self._note_walked(batches)

    def _note_walked(self, batches: Batches) -> None:
        if not any(batches is one for one in self._walked_here):
            self._walked_here.append(batches)

    def _divide_anew(self, batches: Batches) -> None:
        """Others take part than when the pass began here: it goes on behind what all together have had."""
        self._divided_among = self._run.crew
        if self._run.committed == self._base:
            batches.begin(self._epoch)
        else:
            batches.load_state_dict(batches.take_over(self._program.loader))

    def _take_up(self, batches: Batches) -> None:
        noted = self._program.loader
        self._divided_among = self._run.crew
        if isinstance(noted, list):
            self._divided = batches.take_over(noted)
            batches.begin(self._epoch)  # no rank of now had a batch of that step: its iteration is given the pass's first
        else:
            state, self._passed_over = noted
            batches.load_state_dict(state)
        self._note_walked(batches)

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
            if self._at_rest_among == self._run.crew:
                self._program.note_rests(self._at_rest)

    def _go_back(self, batches: Batches | None) -> None:
        """The step of this iteration is void. Most often the one before is committed, and it is made again."""
        self._part = 0
        if self._run.committed == self._expected - 1:
            if batches is not None and self._divided_among == self._run.crew:
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
        self._outside.refuse(f"step {k}")
        self._inside = True
        while not self._leave_out and self._part == 0:
            if self._crew is not self._run.crew:  # what the script has in hand, a batch, is another rank's
                self._void = True
                break
            try:
                self._run.begin_step(k)
                self._run.enter_step()
                break
            except BaseException as error:
                self._run.note_place()  # the script stays here
                self._run.settle(error)
                self._refuse_to_go_behind(k - 1)
        return k, self._leave_out or self._void

    def leave_block(self, error: BaseException | None) -> bool:
        """Whether `error` is swallowed."""
        try:
            return self._leave_block(error)
        finally:
            self._leave_inside()

    def _leave_block(self, error: BaseException | None) -> bool:
        k, self._asked = self._expected, False
        if self._void:
            self._void, self._again = False, True
            return isinstance(error, LeftOut)
        if self._leave_out:
            self._leave_out, self._left_out = False, k
            self._take_place(self._batches)
            for code in (script_frame(), *(self._batches.makers() if self._batches is not None else ())):
                self._run.note_forgotten(k, code, True)
            return isinstance(error, LeftOut)
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
        if self._again:
            self._run.note_forgotten(k, script_frame(), False, error)
        return True

    def describe_place(self) -> str:
        """For an error of the script's own."""
        if not self._left_out:
            return ""
        return (f": behind the block of step {self._left_out}, which was done before this process took a lost one's place and is left out: what the script uses "
                "from it is to be kept (run.keep), and set before the update")  # fmt: skip

    @property
    def marks_steps(self) -> bool:
        """Whether a framework's loop is under way, which does so itself."""
        return self._marks_steps

    @property
    def number(self) -> int:
        """Of the loop under way, in the order of the script."""
        return self._number

    # ---- where the script is ------------------------------------------------------------------------------------------

    @property
    def inside(self) -> bool:
        return self._inside

    def _leave_inside(self) -> None:
        self._inside = False
        self._outside.begin()

    def _enter_numbers(self, numbers: Numbers) -> Numbers:
        begun = self._enter(numbers)
        assert isinstance(begun, Numbers)
        return begun

    def _enter(self, begun: Begun = None) -> Begun:
        """Gives what the run has begun this loop with."""
        self._run.open()
        self._outside.refuse(f"the loop behind step {self._run.committed}")
        if self._number >= 0:
            self._end()  # one that was left, and whose iterator somebody still has
        self.refuse_cut_short()
        self._number, begun = self._program.begin_loop(begun, self.arriving and self._run.replaces)
        base = self._program.base_of(self._number) if self.arriving else self._run.committed
        self._base = self._run.committed if base is None else base
        self._run.note_place()
        return begun

    def _end(self) -> None:
        if self._inside:
            self._leave_inside()
        self._run.leave_loop(self._number)
        self._program.leave_loop()
        self._number, self._marks_steps, self.place = -1, False, 0
        if not self.arriving and self._part == 0:
            self._run.note_loop_end()

    def _arrive(self) -> None:
        self.arriving = False
        self._run.arrived()

    def _refuse_to_go_behind(self, step: int) -> None:
        if self._run.committed < step:
            begin_anew(self._run.rank, self._run.committed)
