"""One step of an optimizer of which nothing is left: it shows what the optimizer keeps, and where.

What a state is before the first step, nobody but the optimizer knows: often zero, and often not. So only names, types and shapes are
learnt here; the values are made by the optimizer's own first step.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn import Module
from torch.optim import Optimizer, optimizer as torch_optimizer

from .._errors import Error
from ..abi import Code
from . import parallel
from .devices import SERVED, generator_state, set_generator_state
from .randomness import Randomness
from .replica_optimizer import ReplicaOptimizer

# Attributes of every optimizer of torch's that are no state: what it is made of, and notes for a warning and for a scaled loss.
OF_TORCH = frozenset({"param_groups", "state", "defaults", "grad_scale", "found_inf", "_opt_called", "_zero_grad_profile_name"})
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes})
_DEPTH = 5  # of things within things that are looked at


@dataclass
class Member:
    """An optimizer that is registered, or one within it (Lookahead's)."""

    path: str  # of attributes, as ".base"; "": the registered one
    optimizer: Optimizer
    made: dict[torch.Tensor, dict[str, Any]] = field(default_factory=dict)  # by the dry step: tensors are blank
    beside: list[torch.Tensor] = field(default_factory=list)  # of the registered one: what the step changed that is no parameter of its own


def members_of(optimizer: Optimizer) -> list[Member]:
    """Each state once."""
    members = [Member("", optimizer)]
    states = {id(optimizer.state)}
    for member in members:
        for name, value in vars(member.optimizer).items():
            several = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else [("", value)]
            for place, one in several:
                if isinstance(one, Optimizer) and id(one.state) not in states:
                    states.add(id(one.state))
                    members.append(Member(f"{member.path}.{name}{f'.{place}' if place != '' else ''}", one))
    return members


def groups_of(members: Iterable[Member]) -> list[dict[str, Any]]:
    """Each once: an optimizer around another often has the other's."""
    return list({id(group): group for member in members for group in member.optimizer.param_groups}.values())


def parameters_of(members: Iterable[Member]) -> list[torch.Tensor]:
    return list(dict.fromkeys(p for group in groups_of(members) for p in group["params"]))


def is_plain(value: Any) -> bool:
    """Whether it is made of numbers and texts alone."""
    kind = type(value)
    if kind in (list, tuple):
        return all(map(is_plain, value))
    return kind in _SCALARS or (kind is dict and all(map(is_plain, value)) and all(map(is_plain, value.values())))


def is_trained(parameter: torch.Tensor) -> bool:
    return parameter.requires_grad


def learn(
    optimizer: Optimizer, calls: Callable[[], int], others: Iterable[torch.Tensor] = (), has_gradient: Callable[[torch.Tensor], bool] = is_trained
) -> list[Member]:
    """What the optimizer, and those within it, will make of each parameter that `has_gradient`. `calls` counts collectives: an update
    that holds one cannot be finished alone behind the gate. `others`: tensors that an optimizer of the script's own may change too."""
    members = members_of(optimizer)
    parameters = parameters_of(members)
    others = list(others)
    kept = [member.optimizer.state for member in members]
    touched = [*parameters, *others, *(v for state in kept for values in state.values() if isinstance(values, dict)
                                       for v in values.values() if isinstance(v, torch.Tensor))]  # fmt: skip
    with contextlib.ExitStack() as put_back:
        put_back.enter_context(torch.no_grad())
        for context in (_tensors(touched), _gradients(parameters), _dictionaries(members), _without_hooks(members), _random(parameters)):
            put_back.enter_context(context)
        before = _facts(members, parameters)
        for parameter in parameters:
            parameter.grad = _gradient(parameter) if has_gradient(parameter) else None
        beside = [(one, one._version) for one in memory_of(others) if not one.is_inference()]
        begun = calls()
        try:
            with torch.enable_grad():
                optimizer.step()
        except Error:
            raise
        except Exception as error:
            raise Error(f"run.register makes one step of {type(optimizer).__name__} on gradients of ones, to learn what it keeps, and {type(error).__name__} came of "
                        f"it: {error}. Register the optimizer whose step() the steps of the script call (of SAM its base_optimizer)", Code.INVALID_ARGUMENT) from error  # fmt: skip
        refuse_collectives(optimizer, calls() - begun)
        members[0].beside += [one for one, version in beside if one._version != version]
        _refuse_hidden(optimizer, before, _facts(members, parameters))
        for member in members:
            _note_made(member, parameters, let_go=True)
    for member in members:  # of a state that was loaded there may be more
        _note_made(member, parameters, let_go=False)
    return members


def refuse_collectives(optimizer: Optimizer, calls: int) -> None:
    if calls > 0:
        raise Error(
            f"{type(optimizer).__name__}.step() holds {calls} collectives: a rank could not finish its update alone. Use an "
            "optimizer whose step is local arithmetic, or kintsugi.torch.ReplicaOptimizer around one",
            Code.INVALID_ARGUMENT,
        )


def memory_of(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """What has the values of tensors: this rank's parts, and what tensors are made of."""
    return (parallel.local_of(inner) for tensor in tensors for _, inner in parallel.inner_tensors("", tensor))


def blank(tensor: torch.Tensor) -> torch.Tensor:
    """Another of the same kind, with nothing in it. One of a class that cannot be made anew is emptied."""
    kind: Any = type(tensor)
    if isinstance(tensor, DTensor):
        return kind(blank(tensor._local_tensor), tensor._spec, requires_grad=False)  # type: ignore[no-any-return]
    if hasattr(tensor, "__tensor_flatten__"):
        names, context = tensor.__tensor_flatten__()
        if hasattr(kind, "__tensor_unflatten__"):
            inner = {name: blank(getattr(tensor, name)) for name in names}
            return kind.__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())  # type: ignore[no-any-return]
        for memory in memory_of([tensor]):
            memory.zero_()
        return tensor
    if tensor.is_meta or tensor.layout != torch.strided:
        return tensor  # which is refused where it is registered
    return torch.zeros_like(tensor, requires_grad=False)


def _note_made(member: Member, parameters: list[torch.Tensor], let_go: bool) -> None:
    """`let_go`: of what the dry step made, as all of it twice may be too much."""
    known = set(parameters)
    for parameter, values in member.optimizer.state.items():
        if not isinstance(parameter, torch.Tensor) or parameter not in known or not isinstance(values, dict):
            raise Error(f"{type(member.optimizer).__name__} keeps state under {_shown(parameter)}, which is no parameter: keep it with a "
                        "parameter, or as a number in a group", Code.INVALID_ARGUMENT)  # fmt: skip
        made = member.made.setdefault(parameter, {})
        for name, value in values.items():
            if name not in made:
                made[name] = blank(value) if isinstance(value, torch.Tensor) else value
        if let_go:
            values.clear()


def _shown(key: Any) -> str:
    return f"a tensor of shape {list(key.shape)}" if isinstance(key, torch.Tensor) else repr(key)


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Not zero: where nothing is to be done an optimizer may stop early."""
    zeros = torch.zeros_like(parameter)
    plain = type(parameter) in (torch.Tensor, torch.nn.Parameter)
    return zeros.fill_(1) if plain and (parameter.is_floating_point() or parameter.is_complex()) else zeros


# ---- put back ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _tensors(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    memory = list({id(one): one for one in memory_of(dict.fromkeys(tensors)) if not one.is_meta and one.layout == torch.strided}.values())
    saved = [one.detach().clone() for one in memory]
    try:
        yield
    finally:
        with torch.no_grad():
            for one, value in zip(memory, saved):
                one.detach().copy_(value)


@contextlib.contextmanager
def _gradients(parameters: list[torch.Tensor]) -> Iterator[None]:
    saved = [parameter.grad for parameter in parameters]
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, saved):
            parameter.grad = gradient


@contextlib.contextmanager
def _dictionaries(members: list[Member]) -> Iterator[None]:
    """Groups, states and attributes: what is in them, and what is in what is plain there."""
    states = [(member.optimizer.state, {p: dict(v) if isinstance(v, dict) else v for p, v in member.optimizer.state.items()}) for member in members]
    things = [*groups_of(members), *(vars(member.optimizer) for member in members)]
    lists = [*(g["params"] for g in groups_of(members)), *(member.optimizer.param_groups for member in members)]
    saved = [(thing, dict(thing), {k: deepcopy(v) for k, v in thing.items() if type(v) in (list, dict) and is_plain(v)}) for thing in things]
    orders = [(one, list(one)) for one in lists]
    try:
        yield
    finally:
        for thing, values, insides in saved:
            for name, inside in insides.items():
                value = values[name]
                value.clear()
                value.extend(inside) if isinstance(value, list) else value.update(inside)
            called = thing.get("_opt_called")
            thing.clear()
            thing.update(values)
            if called is not None:
                thing["_opt_called"] = called  # schedulers warn where nothing was stepped before them
        for one, order in orders:
            one[:] = order
        for state, of_parameters in states:
            state.clear()
            state.update(of_parameters)


@contextlib.contextmanager
def _without_hooks(members: list[Member]) -> Iterator[None]:
    """Those of others may count steps: an average of the weights."""
    hooks = [vars(member.optimizer)[name] for member in members for name in _HOOKS if name in vars(member.optimizer)]
    hooks += [torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks]
    saved = [dict(one) for one in hooks]
    for one in hooks:
        one.clear()
    try:
        yield
    finally:
        for one, values in zip(hooks, saved):
            one.update(values)


@contextlib.contextmanager
def _random(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    generators = Randomness()
    saved = generators.state_dict()
    places = {one.device for one in memory_of(parameters) if one.device.type in SERVED}
    there = {place: state for place in places if (state := generator_state(place)) is not None}
    try:
        yield
    finally:
        generators.load_state_dict(saved)
        for place, state in there.items():
            set_generator_state(place, state)


# ---- what is kept elsewhere -------------------------------------------------------------------------------------------------


def _facts(members: list[Member], parameters: list[torch.Tensor]) -> dict[str, Any]:
    """What optimizers have beside groups and states, by path: plain values, and tensors with their versions."""
    found: dict[str, Any] = {}
    seen = {id(p) for p in parameters} | {id(member.optimizer) for member in members}
    seen |= {id(v) for member in members for values in member.optimizer.state.values() if isinstance(values, dict) for v in values.values()}
    for member in members:
        for name, value in vars(member.optimizer).items():
            if name not in OF_TORCH and name not in _HOOKS and not is_plain(value):
                _look(value, f"{member.path}.{name}".removeprefix("."), seen, found, _DEPTH)
    for number, group in enumerate(groups_of(members)):
        for name, value in group.items():
            if name != "params" and not is_plain(value):
                _look(value, f"group {number}'s {name}", seen, found, _DEPTH)
    return found


def _look(thing: Any, path: str, seen: set[int], found: dict[str, Any], depth: int) -> None:
    if type(thing) in _SCALARS:
        found[path] = thing
        return
    if id(thing) in seen or depth == 0 or isinstance(thing, (type, Module, Optimizer, ModuleType, FunctionType, MethodType, BuiltinFunctionType)):
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        found[path] = _Tensor(thing)
    elif isinstance(thing, dict):
        for name, value in thing.items():
            _look(value, f"{path}[{name if isinstance(name, (str, int)) else '...'}]", seen, found, depth - 1)
    elif isinstance(thing, (list, tuple, set, deque)):
        for number, value in enumerate(thing):
            _look(value, f"{path}[{number}]", seen, found, depth - 1)
    elif not type(thing).__module__.startswith("torch") and hasattr(thing, "__dict__"):
        for name, value in vars(thing).items():
            _look(value, f"{path}.{name}", seen, found, depth - 1)


class _Tensor:
    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._version = 0 if tensor.is_inference() else tensor._version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tensor) and self._tensor is other._tensor and self._version == other._version


def _refuse_hidden(optimizer: Optimizer, before: dict[str, Any], after: dict[str, Any]) -> None:
    for path, value in after.items():
        if path not in before or (before[path] is not value and before[path] != value):
            raise Error(f"{type(optimizer).__name__}.step() changes what it keeps in '{path}', of which nobody knows: keep tensors in "
                        "optimizer.state, and numbers in a group or in an attribute of the optimizer's own", Code.INVALID_ARGUMENT)  # fmt: skip
