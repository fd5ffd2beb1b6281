"""torch's AveragedModel: its count, and what of it a rank alone changes behind an update.

Averaged parameters are alike on all ranks, averaged buffers (running statistics) are each rank's own. A process that is new, or was cut off in
the update, has not come to `update_parameters`; where the others have, once, it makes that call itself, from the model that they gave.

Threads: the trainer's. Errors: none; what cannot be made again is told as inexact, as of any object.
"""

from __future__ import annotations

import functools
import pickle
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import Module
from torch.optim.swa_utils import AveragedModel

from .state import Buffers

_notes: weakref.WeakKeyDictionary[Module, Callable[[], None]] = weakref.WeakKeyDictionary()  # to be told of an update
_sources: weakref.WeakKeyDictionary[Module, weakref.ref[Module]] = weakref.WeakKeyDictionary()  # what each was updated from, the last time


class Count(Buffers):
    """How often it was updated, which all ranks count alike, and from which registered model."""

    def __init__(self, average: AveragedModel, extension: Any, models: Callable[[], Mapping[str, Module]], note: Callable[[], None]) -> None:
        """`note`: told of each update, on the stream that it is on."""
        super().__init__(average, extension, ["n_averaged"])
        self._average = average
        self._models = models
        self._of = ""  # as it was put back
        _notes[average] = note
        _watch()

    def state_dict(self) -> dict[str, Any]:
        if self._average in _sources:
            source = _sources[self._average]()
            self._of = next((name for name, model in self._models().items() if source in (model, getattr(model, "module", None))), "")
        return {**super().state_dict(), "of": self._of}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._of = state.get("of", "")
        _sources.pop(self._average, None)

    def make_again(self, newer: bytes) -> None:
        """As far as its buffers go: its parameters are as the others have them already."""
        told = pickle.loads(newer)
        source = self._models().get(told.get("of", ""))
        if source is None:
            return
        buffers = [(buffer, buffer.clone()) for buffer in self._average.buffers()]
        parameters = [(parameter, parameter.detach().clone()) for parameter in self._average.parameters()]
        self._average.update_parameters(source)
        is_all = super().state_dict()["bytes"] == told["bytes"]
        with torch.no_grad():
            for tensor, before in [*parameters, *([] if is_all else buffers)]:
                tensor.copy_(before)


@functools.cache
def _watch() -> None:
    update = AveragedModel.update_parameters

    @functools.wraps(update)
    def updated(average: AveragedModel, model: Module) -> None:
        _sources[average] = weakref.ref(model)
        if note := _notes.get(average):
            note()
        update(average, model)

    AveragedModel.update_parameters = updated  # type: ignore[assignment, method-assign]
