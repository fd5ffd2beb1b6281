"""Hooks of the script's own on modules of registered models: where a step adds one that stays (a probe, a mask), a step that is made again adds it twice,
and a process that takes a lost one's place has none.

They are functions, which no process can give another. So what is kept is what they are called, and a process that has others, once it has made a step of
its own behind a fault, is told of as inexact: by then it has those that each process adds for itself.

Threads: the trainer's. Errors: none.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from ..source import FRAMEWORKS, is_the_scripts
from ..terms import Encoder

_KINDS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")

Names = Mapping[str, list[str]]  # by module and kind


class ModuleHooks(Encoder):
    def __init__(self, models: Callable[[], Mapping[str, Module]]) -> None:
        self._models = models
        self._made: tuple[int, ...] = ()  # hooks by all of this process, and which models these are
        self._holders: list[tuple[str, dict[int, Any]]] = []
        self._known: Names = {}
        self._encoded = b""
        self._put_back: tuple[Names, Names] | None = None  # what there were at the step, and what there were here as it was put back

    def encode(self) -> bytes:
        now = self._now()
        if now != self._known or not self._encoded:
            self._known, self._encoded = now, pickle.dumps(now, protocol=pickle.HIGHEST_PROTOCOL)
        return self._encoded

    def state_dict(self) -> Any:
        return pickle.loads(self.encode())

    def load_state_dict(self, state: Names) -> None:
        self._put_back = state, self._now()

    def differing(self) -> str:
        """Asked at the end of a step: of the first behind a fault."""
        if self._put_back is None:
            return ""
        (then, here), self._put_back, now = self._put_back, None, self._now()
        lacking = [f"'{name}' of {place}" for place, names in then.items() for name in names[len(now.get(place, ())) :]]
        twice = [f"'{names[-1]}' of {place}" for place, names in now.items() if len(names) > len(here.get(place, ())) > len(then.get(place, ()))]
        return "; ".join((*([f"not here: {', '.join(lacking)}"] if lacking else ()), *([f"added twice: {', '.join(twice)}"] if twice else ())))

    def _now(self) -> Names:
        """Most steps add none, and then only modules that have some are asked."""
        models = self._models()
        made = (RemovableHandle.next_id, *map(id, models.values()))
        if self._made != made:
            self._made, self._holders = made, [*_holders(models)]
        found = ((place, [_name_of(hook) for hook in held.values() if _is_scripts(hook)]) for place, held in self._holders)
        return {place: names for place, names in found if names}


def _holders(models: Mapping[str, Module]) -> Iterator[tuple[str, dict[int, Any]]]:
    for name, model in models.items():
        for path, module in model.named_modules():
            yield from ((f"{name}/{path}{kind}", held) for kind in _KINDS if (held := getattr(module, kind)))


def _is_scripts(hook: Any) -> bool:
    function = getattr(hook, "__func__", hook)
    code = getattr(function, "__code__", None)
    return code is not None and (function.__module__ or "").partition(".")[0] not in FRAMEWORKS and _is_own(code.co_filename)


@functools.cache
def _is_own(file: str) -> bool:
    return is_the_scripts(file)


def _name_of(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__name__))
