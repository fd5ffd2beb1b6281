"""Named numbers and texts as the bytes of an object, in the form that every format of checkpoint opens (callbacks/state/values.h)."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any, Protocol

from ._errors import Error
from .abi import Code
from .terms import Encoder

Value = int | float | bool | str | None

_MARK = b"kintsugi.values 1\n"
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class NamedValues(Protocol):
    """Anything whose state is small numbers and texts by name."""

    def state_dict(self) -> dict[str, Value]: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


class Values(Encoder):
    """The state of a thing as such bytes, and back."""

    def __init__(self, key: str, thing: NamedValues, *, never_changes: bool = False) -> None:
        self._key = key
        self._thing = thing
        self._encoded = self._written() if never_changes else None

    def encode(self) -> bytes:
        return self._written() if self._encoded is None else self._encoded

    def _written(self) -> bytes:
        state = self._thing.state_dict()
        if not isinstance(state, dict):
            raise Error(f"values '{self._key}': state_dict gives a {type(state).__name__}, not a dictionary of names", Code.INVALID_ARGUMENT)
        named = {name: self._checked(name, value) for name, value in state.items()}
        for name in named:
            for end in range(len(name)):
                if name[end] == "." and name[:end] in named:
                    raise Error(f"values '{self._key}': '{name}' would be within '{name[:end]}', a value: rename one of them", Code.INVALID_ARGUMENT)
        return _MARK + json.dumps(named, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    def decode(self, data: bytes) -> None:
        if data.startswith(_MARK):
            state = {name: _SPECIAL[value["float"]] if isinstance(value, dict) else value
                     for name, value in json.loads(data[len(_MARK) :]).items()}  # fmt: skip
        else:
            state = pickle.loads(data)  # of a version that registered it as an object
        self._thing.load_state_dict(state)

    def _checked(self, name: object, value: object) -> object:
        if not isinstance(name, str) or not all(name.split(".")):
            raise Error(f"values '{self._key}': {name!r} is no name: parts that are not empty, joined by dots", Code.INVALID_ARGUMENT)
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise Error(f"values '{self._key}': '{name}' is {value}, beyond 63 bits", Code.INVALID_ARGUMENT)
        if value is not None and not isinstance(value, (int, float, str)):
            raise Error(f"values '{self._key}': '{name}' is a {type(value).__name__}: only int, float, bool, str and None are values; "
                        "register anything else with register_object", Code.INVALID_ARGUMENT)  # fmt: skip
        return value
