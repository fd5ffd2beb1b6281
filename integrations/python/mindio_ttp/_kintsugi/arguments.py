"""Checks of arguments: what was given, what was expected, where."""

from __future__ import annotations

import inspect
from typing import Any

from .codes import TTP_MAX_WORLD_SIZE, MindioError


def integer(call: str, name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise MindioError(f"{call}: {name} is {value!r} ({type(value).__name__}): an integer is needed")
    if not low <= value <= high:
        raise MindioError(f"{call}: {name} is {value}: it must lie in {low} to {high}")
    return value


def flag(call: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise MindioError(f"{call}: {name} is {value!r} ({type(value).__name__}): True or False is needed")
    return value


def text(call: str, name: str, value: Any, longest: int | None = None) -> str:
    if not isinstance(value, str):
        raise MindioError(f"{call}: {name} is {value!r} ({type(value).__name__}): a string is needed")
    if longest is not None and len(value) >= longest:
        raise MindioError(f"{call}: {name} has {len(value)} characters: fewer than {longest} are allowed")
    return value


def world(call: str, world_size: Any) -> int:
    return integer(call, "world_size", world_size, 1, TTP_MAX_WORLD_SIZE)


def ranks(call: str, name: str, value: Any, world_size: int) -> list[int]:
    if not isinstance(value, list) or not value:
        raise MindioError(f"{call}: {name} is {value!r}: a list of ranks is needed")
    for rank in value:
        integer(call, f"a rank of {name}", rank, 0, world_size - 1)
    if len(set(value)) != len(value):
        raise MindioError(f"{call}: {name} is {value!r}: a rank is named twice")
    return sorted(value)


def function(call: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{call}: {value!r} ({type(value).__name__}) is not callable")


def takes(handler: Any, count: int) -> bool:
    """Whether `handler` can be called with so many positional arguments; what cannot be looked into can."""
    try:
        inspect.signature(handler).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True
