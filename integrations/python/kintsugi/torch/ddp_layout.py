"""How DistributedDataParallel adds gradients up, as a part of a run's state: which parameters lie together in a bucket.

A reducer finds that out in its first backward pass (`ddp_layout.h`). Whoever begins later, a rank that replaces another or a run that
resumes, gets it like any other object, and rounds its sums as the undisturbed run does; and a step that is done again begins with the
layout that it had.
"""

from __future__ import annotations

import functools
import pickle
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch.nn import Module

from .._errors import Error
from ..abi import Code
from ..terms import Encoder
from .parallel import wrapped_by_ddp

# Of DistributedDataParallel itself, where its class has them: whether the next forward pass broadcasts buffers, and where it stands
# with its first passes.
_OF_WRAPPER = ("require_forward_param_sync", "_has_rebuilt_buckets", "_static_graph_delay_allreduce_enqueued")
_OF_REDUCER = ("buckets", "is_rebuilt", "ready", "passes", "hooked", "unused", "used", "is_used_known")


class DdpLayouts(Encoder):
    """An object of the run's, which changes in the first passes alone. Threads: the trainer's."""

    def __init__(self, extension: Any) -> None:
        self._extension = extension
        self._wrapped: list[Any] = []
        self._seen: list[Any] = []  # for each wrapper its reducer's layout and its own attributes, as they were encoded
        self._encoded = b""

    def follow(self, models: list[Module]) -> bool:
        """These models' wrappers, in their order. Whether there are any."""
        for model in models:
            refuse(model)  # a hook may have come after the model was registered
        self._wrapped = wrapped_by_ddp(models)
        return bool(self._wrapped)

    def refuse_unsummed(self, step: int) -> None:
        """Of a step that comes to its update, and has called no collective."""
        for wrapped in self._wrapped:
            if wrapped.process_group.size() > 1 and any(parameter.grad is not None for parameter in wrapped.parameters()):
                raise Error(f"step {step}: nothing has summed up the gradients of DistributedDataParallel around {type(wrapped.module).__name__} over its ranks "
                            "(no_sync, LocalSGD): each would have weights of its own from here on, and a rank that takes a lost one's place those of another. End "
                            "a step with a backward pass outside of no_sync()", Code.FAILED_PRECONDITION)  # fmt: skip

    def encode(self) -> bytes:
        now = [(self._extension.layout_of(wrapped.reducer), _attributes_of(wrapped)) for wrapped in self._wrapped]
        if not self._encoded or now != self._seen:
            self._seen, self._encoded = now, pickle.dumps(_state_of(now), protocol=pickle.HIGHEST_PROTOCOL)
        return self._encoded

    def state_dict(self) -> dict[str, Any]:
        return pickle.loads(self.encode())  # type: ignore[no-any-return]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        kept = state["wrapped"]
        if len(kept) != len(self._wrapped):
            raise Error(f"{len(kept)} models of DistributedDataParallel were kept, there are {len(self._wrapped)}", Code.INVALID_ARGUMENT)
        for wrapped, one in zip(self._wrapped, kept):
            layout = self._extension.DdpLayout()
            for name in _OF_REDUCER:
                setattr(layout, name, one[name])
            try:
                self._extension.lay_out(wrapped.reducer, layout)
            except ValueError as error:
                raise Error(f"DistributedDataParallel around {type(wrapped.module).__name__} has other parameters than were kept: {error}",
                            Code.INVALID_ARGUMENT) from error  # fmt: skip
            for name, value in one["wrapper"].items():
                setattr(wrapped, name, value)

    def take_over(self, saved: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
        """With other ranks: as the first of those that had as many parameters as this one, for ranks of one wrapper have the same. Where
        none had, the wrappers begin anew."""
        own = self.state_dict()
        return next((state for state in saved.values() if _counts(state) == _counts(own)), own)


def _attributes_of(wrapped: Any) -> dict[str, Any]:
    return {name: getattr(wrapped, name) for name in _OF_WRAPPER if hasattr(wrapped, name)}


def _state_of(seen: list[Any]) -> dict[str, Any]:
    return {"wrapped": [{"wrapper": attributes, **{name: getattr(layout, name) for name in _OF_REDUCER}} for layout, attributes in seen]}


def _counts(state: dict[str, Any]) -> list[int]:
    return [sum(map(len, one["buckets"])) for one in state["wrapped"]]


# ---- what cannot be kept ------------------------------------------------------------------------------------------------


def refuse(model: Module) -> None:
    """Wrappers that keep what nobody else can know."""
    for wrapped in wrapped_by_ddp([model]):
        name = f"DistributedDataParallel around {type(wrapped.module).__name__}"
        if wrapped._delay_all_reduce_params:
            raise Error(f"{name}: delay_all_reduce_named_params begins a sum that nobody waits for, so that an update may come before it: "
                        "leave it out", Code.INVALID_ARGUMENT)  # fmt: skip
        for hook, state in wrapped._comm_hooks:
            if kept := next(kept_by(hook, state), None):
                raise Error(f"{name}: its communication hook {name_of(hook)} keeps a {kept}, which is no part of what is protected: use one "
                            "without a state (torch.distributed.algorithms.ddp_comm_hooks.default_hooks)",
                            Code.INVALID_ARGUMENT)  # fmt: skip


def hooks_of(models: list[Module]) -> list[str]:
    """For `TorchRun.plan`."""
    return [f"{type(wrapped.module).__name__} reduces its gradients by {name_of(hook)}, which keeps no state"
            for wrapped in wrapped_by_ddp(models) for hook, _ in wrapped._comm_hooks]  # fmt: skip


def name_of(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__name__))


def kept_by(hook: Any, state: Any) -> Iterator[str]:
    """The types of what a hook has beside the gradients it is given, but for groups, plain values and further functions."""
    if state is not None and not isinstance(state, dist.ProcessGroup):
        yield type(state).__name__
    yield from _kept_in(hook)


def _kept_in(thing: Any) -> Iterator[str]:
    if thing is None or isinstance(thing, (dist.ProcessGroup, bool, int, float, str, bytes, type, types.ModuleType, types.BuiltinFunctionType)):
        return
    if isinstance(thing, types.FunctionType):
        for cell in thing.__closure__ or ():
            yield from _kept_in(cell.cell_contents)
    elif isinstance(thing, types.MethodType):
        yield type(thing.__self__).__name__
    elif isinstance(thing, functools.partial):
        for inner in (thing.func, *thing.args, *thing.keywords.values()):
            yield from _kept_in(inner)
    else:
        yield type(thing).__name__
