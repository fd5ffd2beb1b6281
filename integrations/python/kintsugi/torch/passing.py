"""Models that a process looks into while its script passes by what is done: a copy of the best weights, a file for each epoch, an evaluation that is no section.

Such a process has the newest state from the beginning, so that what it makes of a model between earlier loops is of another step than the others made it of.
That is told as inexact, but for what goes into a variable that is kept: that is as the others had it once the script has come to where they stand. Seen are
forward passes, `state_dict` and copies of parameters, and what else torch reads of these, of registered models.

Threads: the trainer's. Errors: none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import Module, Parameter
from torch.overrides import TorchFunctionMode

from ..carried import Home, asker


_SAY_NOTHING = frozenset(("requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "size", "dim", "numel", "stride", "nelement", "untyped_storage",
                          "data_ptr", "element_size", "is_floating_point", "is_complex", "__hash__", "__repr__", "__len__"))  # fmt: skip


class _Reads(TorchFunctionMode):
    """`own`: of these the values are looked at. Freezing them, or asking what they are, does not."""

    def __init__(self, own: set[torch.Tensor], look: Callable[[], object]) -> None:
        super().__init__()
        self._own, self._see = own, look

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_attribute = func.__name__ in ("__get__", "__set__")
        if func == torch.Tensor.data.__get__ or not (is_attribute or func.__name__ in _SAY_NOTHING):  # type: ignore[attr-defined]
            given = (part for one in args for part in (one if isinstance(one, (list, tuple)) else (one,)))
            if any(isinstance(one, Parameter) and one in self._own for one in given):
                self._see()
        return func(*args, **(kwargs or {}))


class Passing:
    """`passes`: whether the script is on its own, before where the run stands."""

    def __init__(self, passes: Callable[[], bool], is_kept: Callable[[Home, str, Any], bool], note_inexact: Callable[[str], object]) -> None:
        self._passes = passes
        self._is_kept = is_kept
        self._note = note_inexact
        self._told: set[str] = set()
        self._undo: list[Callable[[], object]] = []

    def begin(self, models: Iterable[Module]) -> None:
        own: set[torch.Tensor] = set()
        for module in (module for model in models for module in model.modules()):
            self._undo.append(module.register_forward_pre_hook(lambda *_: self._look("run")).remove)
            asked = module.register_state_dict_pre_hook(lambda *_: self._look("asked for its state"))  # type: ignore[no-untyped-call]
            self._undo.append(asked.remove)
            own.update(module.parameters(recurse=False))
        copy = Parameter.__deepcopy__

        def copied(parameter: Any, memo: Any) -> Any:
            if parameter in own:
                self._look("copied")
            return copy(parameter, memo)  # type: ignore[no-untyped-call]

        Parameter.__deepcopy__ = copied  # type: ignore[method-assign]
        self._undo.append(lambda: setattr(Parameter, "__deepcopy__", copy))
        reads = _Reads(own, lambda: self._look("read"))
        reads.__enter__()  # type: ignore[no-untyped-call]
        self._undo.append(lambda: reads.__exit__(None, None, None))  # type: ignore[no-untyped-call]

    def end(self) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _look(self, how: str) -> None:
        if not self._passes():
            return
        place = asker(self._is_kept)
        if place and place not in self._told:
            self._told.add(place)
            self._note(f"a model, {how} for {place} between loops that this process passes by: it was as it became later. Do that in run.do, or keep the variable "
                       "(run.keep)")  # fmt: skip
