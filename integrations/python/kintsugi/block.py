"""`with run.step() as k:`, and how its block is left out where the step is done already.

Python has no word for that. The first instruction behind the call of `__enter__` drops what that gave, or names it; the `with` guards it already,
and no statement of the block's does (a `try` that begins the block is not entered yet, and a block may stand on the same line). There an
exception is raised, which `__exit__` takes back; the name is given here. A frame is traced only while some function of tracing is set.

So it must be a `with` of the script's own that enters the block: one that stands in a wrapper (ExitStack, a function under @contextmanager) would
end the wrapper instead, and is refused in the first step.

Threads: the trainer's. Errors: Error for a wrapper, for a target that is no plain name, and for a loop that something else counts.
"""

from __future__ import annotations

import contextlib
import dis
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol

from ._errors import Error
from .abi import Code
from .source import is_sliced

_NO_STATEMENT = ("NOP", "EXTENDED_ARG", "CACHE")
_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL")
_looked_at: dict[tuple[int, int], CodeType] = {}  # places of `with`, by the identity of their code: its hash is that of all its constants


class LeftOut(BaseException):
    """In the place of a block that is left out."""


class Steps(Protocol):
    def enter_block(self) -> tuple[int, bool]: ...
    def leave_block(self, error: BaseException | None) -> bool: ...


class Block:
    """`steps`: give the step of a block, and whether it is to be left out; decide whether what ended one is swallowed."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._tracer: Any = None

    def __enter__(self) -> int:
        frame = sys._getframe(1)
        place = id(frame.f_code), frame.f_lasti
        if place not in _looked_at:
            _refuse_wrapped(frame)
            _looked_at[place] = frame.f_code
        k, leave_out = self._steps.enter_block()
        if leave_out:
            self._leave_out(frame, k)
        return k

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, LeftOut):
            sys.settrace(self._tracer)
        return self._steps.leave_block(error)

    def _leave_out(self, frame: FrameType, k: int) -> None:
        naming = _naming(frame)

        def stop(_: FrameType, event: str, __: Any) -> Any:
            if event != "opcode" or dis.opname[frame.f_code.co_code[frame.f_lasti]] == "NOP":
                return stop
            frame.f_trace, frame.f_trace_opcodes = None, False
            _name(frame, naming, k)
            raise LeftOut

        self._tracer = sys.gettrace()
        sys.settrace(lambda *_: None)
        frame.f_trace, frame.f_trace_opcodes = stop, True


def _refuse_wrapped(frame: FrameType) -> None:
    behind = frame.f_back.f_code.co_filename if frame.f_back is not None else ""
    if not _is_with(frame) or behind == contextlib.__file__:
        raise Error("run.step() is entered by something else than a `with` around the step: where a process takes a lost one's place that block is left out, "
                    "which a wrapper (ExitStack, @contextmanager) cannot. Write `with run.step():` in the loop itself", Code.FAILED_PRECONDITION)  # fmt: skip
    if _naming(frame).opname not in (*_STORES, "POP_TOP"):
        raise Error("`with run.step() as` gives the step's number to a plain name alone: `with run.step() as k:`", Code.INVALID_ARGUMENT)
    if is_sliced(frame):
        raise Error("itertools.islice around the run's loop counts a batch that is given again, and none that a process taking a lost one's place leaves out: the loop "
                    "would end at another step. Write `for i, batch in run.enumerate(loader, epoch):` and `if i == N: break` before the block", Code.FAILED_PRECONDITION)  # fmt: skip


def _is_with(frame: FrameType) -> bool:
    """Whether the frame's instruction at hand is how a `with` calls `__enter__`: Python 3.10, up to 3.13, and from 3.14 on."""
    *_, before, now = [None, *(one for one in dis.get_instructions(frame.f_code) if one.offset <= frame.f_lasti)]
    assert now is not None
    return now.opname in ("SETUP_WITH", "BEFORE_WITH") or (now.opname == "CALL" and before is not None and before.opname == "LOAD_SPECIAL")


def _naming(frame: FrameType) -> dis.Instruction:
    """What comes first behind `__enter__`."""
    behind = (one for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti)
    return next(one for one in behind if one.opname not in _NO_STATEMENT)


def _name(frame: FrameType, naming: dis.Instruction, k: int) -> None:
    """As that instruction would."""
    if naming.opname == "STORE_GLOBAL":
        frame.f_globals[naming.argval] = k
    elif naming.opname in _STORES:
        frame.f_locals[naming.argval] = k
