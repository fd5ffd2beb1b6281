"""The script's own variables, each an object that the run keeps: what it carries from one step to the next.

A process that takes a lost one's place runs the script from the top, and what the script decides on its way (is this the best so far? is it
time to evaluate?) must come out as it did. So their values are also recorded where a loop ended, where the iteration at hand began, and
where a section changed them (`program.py`), and a newcomer is given them there, not those that the run stands at.

What is put back is another object, unless a list, a dict, a set or a tensor was changed in place since the iteration or the section at hand began:
then it is that very one, since the script may have it elsewhere too (an argument of a section that is done again).

Threads: the trainer's. Errors: Error where there is no such variable, or none that could be set.
"""

from __future__ import annotations

from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any

from ._errors import Error
from .abi import Code


class Variable:
    """One, by its name."""

    def __init__(self, held: dict[str, Any], name: str) -> None:
        self._held = held
        self._name = name

    def is_of(self, held: Any, name: str) -> bool:
        return held is self._held and name == self._name

    def state_dict(self) -> Any:
        return self._held[self._name]

    def load_state_dict(self, state: Any) -> None:
        self._held[self._name] = state

    def return_to(self, then: Any, state: Any) -> None:
        """`then`: the object that it was when this was its state."""
        if self._held[self._name] is not then or not _became(then, state):
            self.load_state_dict(state)


def _became(thing: Any, state: Any) -> bool:
    """Whether `thing` could be given the content of `state`, which is of its own making."""
    if type(thing) is not type(state):
        return False
    if isinstance(thing, list):
        thing[:] = state
    elif isinstance(thing, (dict, set)):
        thing.clear()
        thing.update(state)
    elif not hasattr(thing, "shape") or thing.shape != state.shape or thing.dtype != state.dtype or getattr(thing, "requires_grad", False):
        return False
    else:
        thing[...] = state  # an array, or a tensor
    return True


def variables_of(owner: Any, names: tuple[str, ...], caller: FrameType) -> dict[str, Variable]:
    """`owner`: globals(), or an object that has them as attributes."""
    held = owner if isinstance(owner, dict) else getattr(owner, "__dict__", None)
    if not isinstance(held, dict):
        raise Error(f"{', '.join(names)} of {'class ' + owner.__name__ if isinstance(owner, type) else 'a ' + type(owner).__name__} cannot be put back by name: keep "
                    "attributes of an object that has no __slots__ (types.SimpleNamespace), or register it, with state_dict and load_state_dict", Code.INVALID_ARGUMENT)  # fmt: skip
    if caller.f_code.co_flags & CO_OPTIMIZED and held is caller.f_locals:
        raise Error(f"locals() of the function '{caller.f_code.co_name}' is a copy: nothing can be put back there. Keep {', '.join(names)} as attributes of an "
                    "object (types.SimpleNamespace), and give that", Code.INVALID_ARGUMENT)  # fmt: skip
    if missing := [name for name in names if name not in held]:
        raise Error(f"there is no variable {', '.join(missing)} yet: run.keep comes behind their first values", Code.INVALID_ARGUMENT)
    return {name: Variable(held, name) for name in names}
