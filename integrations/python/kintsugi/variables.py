"""The script's own variables, each an object that the run keeps: what it carries from one step to the next.

A process that takes a lost one's place runs the script from the top, and what the script decides on its way (is this the best so far? is it
time to evaluate?) must come out as it did. So their values are also recorded where a loop ended, where the iteration at hand began, and
where a section changed them (`program.py`), and a newcomer is given them there, not those that the run stands at.

A list, a dict, a set, a deque, or an object with plain attributes stays the object that it is, with those that lie in it, where the script has not set
the variable to another: its lines may have the object in hand already (`losses.append(train_epoch())` has it before the loop that a newcomer arrives
in), or under another name. So does a tensor that was changed in place since the iteration or the section at hand began. What the script has set since is
put back as another object: the one at hand may be something else, too.

Threads: the trainer's. Errors: Error where there is no such variable, or none that could be set.
"""

from __future__ import annotations

import collections
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any

from ._errors import Error
from .abi import Code


_OWN_PICKLING = frozenset("__slots__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __getnewargs__ __getnewargs_ex__".split())


class Variable:
    """One, by its name."""

    def __init__(self, held: dict[str, Any], name: str) -> None:
        self._held = held
        self._name = name
        self._own = held[name]  # the object that it is for as long as nobody sets it

    def is_of(self, held: Any, name: str) -> bool:
        return held is self._held and name == self._name

    def state_dict(self) -> Any:
        return self._held[self._name]

    def load_state_dict(self, state: Any) -> None:
        if self._held[self._name] is not self._own or not _refilled(self._own, state):
            self._held[self._name] = self._own = state

    def arrive_at(self, state: Any, is_shared: bool) -> None:
        """On the way of a newcomer, whose script sets it to first values only. `is_shared`: another variable is that object as well."""
        self._own = None if is_shared else self._held[self._name]
        self.load_state_dict(state)

    def return_to(self, then: Any, state: Any) -> None:
        """`then`: the object that it was when this was its state."""
        if self._held[self._name] is not then:
            self._held[self._name] = self._own = state
        elif not _became(then, state):
            self.load_state_dict(state)


def _became(thing: Any, state: Any) -> bool:
    """Whether `thing` could be given the content of `state`, which is of its own making."""
    if _refilled(thing, state):
        return True
    if type(thing) is not type(state) or not hasattr(thing, "shape") or thing.shape != state.shape or thing.dtype != state.dtype or getattr(thing, "requires_grad", False):
        return False
    thing[...] = state  # an array, or a tensor
    return True


def _refilled(thing: Any, state: Any) -> bool:
    """Whether `thing` could be given the content of `state`, and what lies in it too, where it stands alone in both."""
    return _filled(thing, state, set() if _is_tree(state) else None)


def _filled(thing: Any, state: Any, seen: set[int] | None) -> bool:
    """`seen`: those of `thing` that are filled; None: what lies in it is replaced."""
    if type(thing) is not type(state) or not _may_be_filled(thing) or (seen is not None and id(thing) in seen):
        return False

    def kept(old: Any, new: Any) -> Any:
        return old if seen is not None and _filled(old, new, seen) else new

    if seen is not None:
        seen.add(id(thing))
    home = thing if isinstance(thing, (dict, list, collections.deque, set)) else vars(thing)
    if isinstance(home, (list, collections.deque)):
        content = [*map(kept, home, state), *list(state)[len(home) :]]
        home.clear()
        home.extend(content)
    elif isinstance(home, set):
        home.clear()
        home.update(state)
    else:
        values = {name: kept(home[name], new) if name in home else new for name, new in (state if home is thing else vars(state)).items()}
        home.clear()
        for name, value in values.items():
            home[name] = value
    return True


def _may_be_filled(thing: Any) -> bool:
    """What holds others and nothing else, as pickle takes it."""
    kind = type(thing)
    if isinstance(thing, (dict, list, collections.deque, set)):
        return not getattr(thing, "__dict__", None)  # else it is of the script's own, and more than that
    own = {name for one in kind.__mro__ if one is not object for name in vars(one)}
    return hasattr(thing, "__dict__") and not isinstance(thing, type) and own.isdisjoint(_OWN_PICKLING)


def _is_tree(state: Any) -> bool:
    """Nothing in it lies at two places."""
    seen: set[int] = set()
    level = [state]
    while level:
        one = level.pop()
        if not _may_be_filled(one):
            continue
        if id(one) in seen:
            return False
        seen.add(id(one))
        level += one.values() if isinstance(one, dict) else one if isinstance(one, (list, collections.deque, set)) else vars(one).values()
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
