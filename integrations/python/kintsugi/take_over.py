"""How an object goes on where a run resumes with other ranks, or in another layout, than those that saved it.

Nothing is guessed: where an object says nothing, such a run ends with its name (replica/resume/take_over.h).
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from . import abi
from ._errors import Error

# "same-rank"  as the same rank saved it; a rank that saved nothing cannot go on
# "rank-zero"  as rank 0 saved it: an object that is the same on all ranks
# "cell"       one cell of a grid (run.register_object(grid=...)), as any rank saved it: cells are moved, never cut or joined
# "derived"    as the script has made it: what follows from the step
_Named = Literal["same-rank", "rank-zero", "derived", "cell"]
# The state of this rank, from {rank: state} of all that saved, ascending. Pure: every rank calls it.
OfAllSaved = Callable[[Mapping[int, Any]], Any]
TakeOver = _Named | OfAllSaved

_NUMBERS = {"same-rank": abi.TakeOver.SAME_RANK, "rank-zero": abi.TakeOver.RANK_ZERO, "derived": abi.TakeOver.DERIVED,
            "cell": abi.TakeOver.CELL}  # fmt: skip
Door = Callable[[list[tuple[int, bytes]]], bytes | str]


def take_over_of(key: str, take_over: TakeOver | None) -> tuple[int, Door | None]:
    """As the C ABI takes it: a number, and a function of bytes where it needs one."""
    if take_over is None:
        return abi.TakeOver.UNSAID, None
    if callable(take_over):
        return abi.TakeOver.OWN, _of_bytes(take_over)
    if take_over not in _NUMBERS:
        named = ", ".join(repr(name) for name in get_args(_Named))
        raise Error(f"object '{key}': take_over is {take_over!r}, which is none of {named}, nor a function of what all ranks saved", abi.Code.INVALID_ARGUMENT)
    return _NUMBERS[take_over], None


def _of_bytes(function: OfAllSaved) -> Door:
    """An exception of the function's is printed as an uncaught one would be; its text reaches the report."""

    def take_over(saved: list[tuple[int, bytes]]) -> bytes | str:
        try:
            return pickle.dumps(function({rank: pickle.loads(state) for rank, state in saved}), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            traceback.print_exception(error)
            sys.stderr.flush()
            return f"take_over: {type(error).__name__}: {error}"[:4000]

    return take_over
