"""Parameters that a program cut by itself: which rule is whose, and what is registered of them and of their optimizer's states."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import torch
from torch.distributed.tensor import DTensor

from .._errors import Error
from ..abi import Code
from ..cuts import Cut, Part, parts_of
from ..terms import Piece


class CutParameters:
    """Threads: the trainer's."""

    def __init__(self) -> None:
        self._rules: dict[str, Cut] = {}  # by pattern of names, as "model/*.weight"
        self.forget()

    def forget(self) -> None:
        """Models are made anew; the rules stay."""
        self._parts: dict[torch.Tensor, list[Part]] = {}
        self.wholes: dict[str, torch.Tensor] = {}  # of registered parts, by key

    @contextlib.contextmanager
    def rules(self, rules: dict[str, Cut], names: Iterable[str]) -> Iterator[None]:
        """More rules, for what is registered within and later, unless that fails. `names`: the parameters that they are for."""
        names = list(names)
        for pattern in rules:
            if pattern in self._rules:
                raise Error(f"cuts names '{pattern}' again: a rule is said once", Code.INVALID_ARGUMENT)
            if not any(fnmatchcase(name, pattern) for name in names):
                raise Error(f"cuts names '{pattern}', as no parameter in this call is called; there are "
                            f"{', '.join(repr(name) for name in names[:4]) or 'none'}{', ...' if len(names) > 4 else ''}", Code.INVALID_ARGUMENT)  # fmt: skip
        self._rules.update(rules)
        try:
            yield
        except BaseException:
            for pattern in rules:
                del self._rules[pattern]
            raise

    @property
    def has_rules(self) -> bool:
        return bool(self._rules)

    def take(self, name: str, key: str, parameter: torch.Tensor, is_shared: bool) -> bool:
        """Whether there is a rule for it, which then says what its parts are; `is_shared`: by its optimizer."""
        rule = next((rule for pattern, rule in self._rules.items() if fnmatchcase(name, pattern)), None)
        if rule is None:
            return False
        if isinstance(parameter, DTensor):
            raise Error(f"cuts names '{name}', a DTensor, which says itself how it is cut: leave it out of cuts", Code.INVALID_ARGUMENT)
        if is_shared:
            raise Error(f"cuts names '{name}', which an optimizer shares out whole: use the optimizer within", Code.INVALID_ARGUMENT)
        if not parameter.is_contiguous():
            raise Error(f"'{name}' is not contiguous (strides {parameter.stride()}), so that no part of it can be protected", Code.INVALID_ARGUMENT)
        self._parts[parameter] = parts_of(key, parameter.size(), rule)
        return True

    def entries(
        self, prefix: str, parameter: torch.Tensor, state: str = "", value: torch.Tensor | None = None
    ) -> Iterator[tuple[str, torch.Tensor, Piece]]:
        """A parameter's parts, or those of a state of its optimizer that has its shape."""
        tensor = parameter if value is None else value
        flat = tensor.detach().view(-1)
        for part in self._parts[parameter]:
            name = f"{prefix}{part.key}{state}"
            self.wholes[name] = tensor
            yield name, flat[part.first : part.first + part.elements()], part.piece

    def cuts(self, parameter: torch.Tensor, value: torch.Tensor) -> bool:
        """Whether a state of the parameter's optimizer is cut as the parameter is."""
        return parameter in self._parts and value.size() == parameter.size()

    def suffixes(self, parameter: torch.Tensor, key: str) -> list[str]:
        """What the names of a parameter's parts, and of what is not cut, have behind its own."""
        return list(dict.fromkeys(["", *(part.key.removeprefix(key) for part in self._parts.get(parameter, ()))]))
