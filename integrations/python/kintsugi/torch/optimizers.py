"""What an optimizer holds, as of the step that is committed: its states in registered memory, its settings as an object.

An update changes both, and behind the gate: so what it changes lies in registered memory, plain values too. The object has the settings
as they are at the gate; what the update then changed of them, and which states there are, is read from that memory.

A state begins when the optimizer itself makes it, in the first update that has a gradient for its parameter. What it made is copied to
where it is registered, before the commit.
"""

from __future__ import annotations

import ctypes
import functools
import marshal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from .._errors import Error
from ..abi import Code
from . import dry_step, parallel, sharing
from .dry_step import Member, groups_of, is_plain, memory_of, parameters_of

_NO_SETTINGS = frozenset({"params", "param_names"})
_FIRST_STATES_ARE_ZERO = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)

# Where a plain value is (number of a dictionary, its key), and the value; without one it is gone.
_Change = tuple[int, str] | tuple[int, str, Any]


class State(NamedTuple):
    """Of one parameter, registered as NAME{member}/PARAMETER.key."""

    member: str
    parameter: torch.Tensor
    key: str
    value: torch.Tensor


def refuse(name: str, thing: Any) -> None:
    """By name, what cannot be protected whatever it holds."""
    if isinstance(thing, DataLoader):
        raise Error(f"'{name}' is a {type(thing).__name__}, whose state does not move the iterator that a loop has of it: leave it out of run.register and "
                    f"write `for batch in run.batches({name}, epoch):`", Code.INVALID_ARGUMENT)  # fmt: skip
    if isinstance(thing, torch.optim.LBFGS):
        raise Error("LBFGS evaluates the model within its update, which cannot be split at the gate: use an optimizer that steps on gradients as they are (Adam, "
                    "SGD)", Code.INVALID_ARGUMENT)  # fmt: skip
    if isinstance(thing, torch.optim.SparseAdam):
        raise Error("SparseAdam takes sparse gradients alone: only dense tensors are protected; use Adam", Code.INVALID_ARGUMENT)
    sharing.refuse_other(name, thing)
    hooked = isinstance(thing, Optimizer) and "_optimizer_step_post_hooks" in vars(thing) and hasattr(type(thing).step, "hooked")
    if not hooked and callable(getattr(thing, "step", None)) and hasattr(thing, "param_groups"):
        raise Error(f"'{name}' is a {type(thing).__name__}, which does not call torch.optim.Optimizer.__init__: nobody hears of its steps. Let its "
                    "class do so, or register the optimizer within and call that", Code.INVALID_ARGUMENT)  # fmt: skip


def materialise(
    optimizer: Optimizer, calls: Callable[[], int], has_gradient: Callable[[torch.Tensor], bool] = dry_step.is_trained
) -> None:
    """For a framework that names what an optimizer holds before the first step: those whose states begin with zeros."""
    dampened = any(group.get("dampening") for group in optimizer.param_groups)
    if type(optimizer) not in _FIRST_STATES_ARE_ZERO or dampened:
        raise Error(f"{type(optimizer).__name__}{' with dampening' if dampened else ''} makes its states in its first step, and here they are "
                    "named before: use Adam, AdamW, or SGD without dampening", Code.INVALID_ARGUMENT)  # fmt: skip
    for member in dry_step.learn(optimizer, calls, has_gradient=has_gradient):
        for parameter, values in member.made.items():
            values.update(optimizer.state.get(parameter, {}))
            optimizer.state[parameter].update(values)


class OptimizerGroups:
    """An optimizer's settings alone: learning rates and so on."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        return {"groups": [_settings_of(group) for group in self._optimizer.param_groups]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for group, saved in zip(self._optimizer.param_groups, state["groups"]):
            put_back(group, saved)


class Record:
    """Plain values in a tensor: as bytes that are the same wherever the values are."""

    def __init__(self, room: int) -> None:
        self.tensor = torch.zeros(room, dtype=torch.uint8, device="cpu")  # whatever torch.set_default_device says
        self._written: bytes | None = None

    def write(self, values: Any) -> None:
        data = packed(values)
        if data == self._written:
            return
        size = self.tensor.numel()
        if len(data) > size:
            raise Error(f"an optimizer keeps {len(data)} bytes of numbers and texts, for which run.register took {size}: keep what grows in "
                        "a tensor", Code.FAILED_PRECONDITION)  # fmt: skip
        ctypes.memmove(self.tensor.data_ptr(), data.ljust(size, b"\0"), size)
        self._written = data

    def read(self) -> Any:
        self._written = None
        data = ctypes.string_at(self.tensor.data_ptr(), self.tensor.numel())
        return marshal.loads(data)  # which stops at the end of what was written


class KeptOptimizer:
    """An object of the run's: the settings. And the memory of the rest."""

    def __init__(
        self,
        name: str,
        optimizer: Optimizer,
        names: Mapping[torch.Tensor, str],
        calls: Callable[[], int],
        known: Any,
        others: Iterable[torch.Tensor] = (),
        shares: sharing.Sharing | None = None,
    ) -> None:
        """`names`: of the parameters that are registered. `known`: the extension's StateValues. `others`: tensors beside the parameters, which
        an optimizer that is not torch's may change in its step. `shares`: how the optimizer deals its state out."""
        self._name = name
        self._sharing = shares
        self.optimizer = shares.local if shares is not None else optimizer  # whose step is the update
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter not in names:
                raise Error(f"an optimizer's parameter of shape {list(parameter.shape)} belongs to no model that is registered: register its "
                            "model too; where it has none (a temperature), make it a parameter of a module, torch.nn.ParameterList([...]), give the "
                            "optimizer that one's parameters and register both", Code.INVALID_ARGUMENT)  # fmt: skip
        self._names = names
        known_to_torch = type(self.optimizer).__module__.startswith("torch.optim")
        self._members = dry_step.learn(self.optimizer, calls, () if known_to_torch else others)
        self._parameters = parameters_of(self._members)
        self._shape = self._shape_now()
        self._attributes = [deepcopy(dict(_attributes_of(member))) for member in self._members]
        self._known = known
        self._has_lists = any(isinstance(v, (list, dict)) for m in self._members for values in m.made.values() for v in values.values())
        self._version = 0  # counts updates that changed settings
        self._base = 0  # the version that the newest settings have
        self._changed: dict[tuple[int, str], _Change] = {}  # since then
        self._before: list[dict[str, Any]] = []
        self._insides = _Insides()
        self._inside: dict[tuple[int, str], Any] = {}
        self._depth = 0
        self._records: dict[torch.Tensor | None, Record] = {}  # None: of all that have none of their own

    # ---- what is registered -----------------------------------------------------------------------------------------------------

    def states(self) -> Iterator[State]:
        for member in self._members:
            for parameter, values in member.made.items():
                for key, value in values.items():
                    if isinstance(value, torch.Tensor):
                        yield State(member.path, parameter, key, value)

    def optimizers(self) -> list[Optimizer]:
        """The registered one, and those within it."""
        return [member.optimizer for member in self._members]

    def records(self, has_own: Callable[[torch.Tensor], bool]) -> Iterator[tuple[str, torch.Tensor | None, torch.Tensor]]:
        """(name, parameter, tensor). `has_own`: its state is held by other ranks than what belongs to no parameter."""
        own = [p for p in self._parameters if has_own(p) and any(p in member.made for member in self._members)]
        plain = [(number, key, value) for number, home in enumerate(self._homes()) for key, value in home.items()
                 if key not in _NO_SETTINGS and is_plain(value)]  # fmt: skip
        self._records.update((owner, Record(0)) for owner in (None, *own))
        for owner, record in self._records.items():
            of_states = [self._packable(p, member.made.get(p, {})) for member in self._members for p in self._recorded(owner)]
            size = len(packed((0, 0, plain, of_states) if owner is None else of_states))
            record.tensor = Record(1 << (4 * size + 64).bit_length()).tensor
            yield ".values" if owner is None else f"/{self._names[owner]}.values", owner, record.tensor

    def begin(self) -> None:
        """All of it lies where it is registered."""
        self._take_states()

    def updates(self, parameter: torch.Tensor) -> bool:
        return any(parameter is one for one in self._parameters)

    def tensors(self) -> Iterator[torch.Tensor]:
        """All memory that an update changes."""
        yield from memory_of(self._parameters)
        yield from self._members[0].beside
        yield from memory_of(state.value for state in self.states())
        yield from (record.tensor for record in self._records.values())

    # ---- around an update -------------------------------------------------------------------------------------------------------

    def hook(self, before: Callable[..., None], after: Callable[..., None]) -> None:
        """`before`, `after`: of the run. A class that calls its parent's step() is told twice: only the outer one counts."""

        def pre(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self._depth = self._depth + 1 if self._depth and _steps_running(optimizer) > 1 else 1
            if self._depth == 1:
                self._refuse_others()
                before(optimizer, args, kwargs)
                self.before_step()

        def post(optimizer: Optimizer, *arguments: Any) -> None:
            self._depth -= 1
            if self._depth == 0:
                self.after_step()
                after(optimizer, *arguments)

        self.optimizer.register_step_pre_hook(pre)
        self.optimizer.register_step_post_hook(post)

    def before_step(self) -> None:
        homes = self._homes()
        self._before = [dict(home) for home in homes]
        self._inside = self._insides.now(homes)

    def after_step(self) -> None:
        if self._note_changes(self._homes()) or self._has_lists or not self._known.same([member.optimizer.state for member in self._members]):
            self._take_states()

    def _homes(self) -> list[dict[str, Any]]:
        """The dictionaries that have plain values which an update may change. Asked for anew: loading a state makes other groups."""
        return [*groups_of(self._members), *(vars(member.optimizer) for member in self._members)]

    def _note_changes(self, homes: list[dict[str, Any]]) -> bool:
        inside, now = self._inside, self._insides.now(homes)
        if inside == now and not _differ(self._before, homes):
            return False
        groups = len(groups_of(self._members))
        found: dict[tuple[int, str], _Change] = {}
        for number, (home, before) in enumerate(zip(homes, self._before)):
            for key in {**before, **home}:
                if key in _NO_SETTINGS or (number >= groups and not _is_attribute(key)):
                    continue
                if key in before and key in home and _equal(before[key], home[key]) and inside.get((number, key)) == now.get((number, key)):
                    continue
                if key not in home:
                    found[number, key] = number, key
                elif is_plain(home[key]):
                    found[number, key] = number, key, home[key]
                elif number < groups or isinstance(home[key], torch.Tensor):
                    raise Error(f"'{self._name}': the update changes '{key}' of {f'group {number}' if number < groups else 'the optimizer'}, a "
                                f"{type(home[key]).__name__}: keep tensors in optimizer.state, and here numbers", Code.INVALID_ARGUMENT)  # fmt: skip
        if found:
            self._changed.update(found)
            self._version += 1
        return bool(found)

    def _take_states(self) -> None:
        """What the optimizer has newly made lies where it is registered from now on."""
        with torch.no_grad():
            for member in self._members:
                for parameter, values in member.optimizer.state.items():
                    for key, value in values.items() if isinstance(values, dict) else (("", values),):
                        if isinstance(value, torch.Tensor) or parameter not in member.made:
                            values[key] = self._taken(member, parameter, key, value)
        for owner, record in self._records.items():
            states = [self._packable(p, member.optimizer.state.get(p, {})) for member in self._members for p in self._recorded(owner)]
            record.write((self._base, self._version, [*self._changed.values()], states) if owner is None else states)
        self._known.learn([member.optimizer.state for member in self._members])

    def _taken(self, member: Member, parameter: Any, key: str, value: Any) -> torch.Tensor:
        held: Any = member.made.get(parameter, {}).get(key)
        if not isinstance(held, torch.Tensor):
            raise self._refusal(member, parameter, key, value)
        if id(held) != id(value):
            self._copy(held, value, key, self._names[parameter])
        return held

    def _copy(self, held: torch.Tensor, value: torch.Tensor, key: str, parameter: str) -> None:
        for (_, to), (_, source) in zip(parallel.inner_tensors("", held), parallel.inner_tensors("", value)):
            to, source = parallel.local_of(to), parallel.local_of(source)
            if (to.dtype, to.size(), to.device) != (source.dtype, source.size(), source.device) or source.layout != torch.strided:
                kind = "sparse" if source.layout != torch.strided else f"{source.dtype} {list(source.size())} on {source.device}"
                raise Error(f"'{self._name}' made '{key}' of '{parameter}' as {kind}, and at run.register, for a dense gradient, as "
                            f"{to.dtype} {list(to.size())} on {to.device}: it must be the same", Code.INVALID_ARGUMENT)  # fmt: skip
            to.copy_(source)

    def _refusal(self, member: Member, parameter: Any, key: str, value: Any) -> Error:
        if not isinstance(parameter, torch.Tensor) or parameter not in self._names or not isinstance(value, torch.Tensor) and key == "":
            return Error(f"'{self._name}' keeps state under {parameter if isinstance(parameter, str) else type(parameter).__name__}, which is no "
                         "parameter: keep it with a parameter, or as a number in a group", Code.INVALID_ARGUMENT)  # fmt: skip
        which = self._names[parameter]
        if parameter in member.made:
            return Error(f"'{self._name}' makes '{key}' of '{which}' in a later step than its first: make it in the first, where run.register "
                         "finds it", Code.FAILED_PRECONDITION)  # fmt: skip
        return Error(f"'{which}' was frozen when '{self._name}' was registered, and is trained now: there is no memory for its state. Let it "
                     "have requires_grad True at run.register and freeze it behind that, or train it from the start with lr 0",
                     Code.FAILED_PRECONDITION)  # fmt: skip

    def _packable(self, parameter: torch.Tensor, values: Mapping[str, Any]) -> list[Any]:
        """(key,) of a tensor, which is registered; (key, value) of anything else."""
        for key, value in values.items():
            if not isinstance(value, torch.Tensor) and not is_plain(value):
                raise Error(f"'{self._name}' keeps '{key}' of '{self._names[parameter]}' as a {type(value).__name__}: only tensors, and what is made "
                            "of numbers and texts, are protected", Code.INVALID_ARGUMENT)  # fmt: skip
        return [(str(key),) if isinstance(value, torch.Tensor) else (str(key), value) for key, value in values.items()]

    def _shape_now(self) -> list[int]:
        return [len(group["params"]) for group in groups_of(self._members)]

    def _refuse_others(self) -> None:
        """Parameters that were added: before they are updated."""
        if self._shape_now() == self._shape:
            return
        known = set(self._parameters)
        added = [self._names.get(p, f"of shape {list(p.shape)}") for p in parameters_of(self._members) if p not in known]
        if added:
            raise Error(f"'{added[0]}' was added to '{self._name}' after run.register (add_param_group): there is no memory for its state. Give "
                        "it to the optimizer from the start, with requires_grad True at run.register, and lr 0 until it is trained",
                        Code.FAILED_PRECONDITION)  # fmt: skip
        raise Error(f"the groups of '{self._name}' have other parameters than at run.register", Code.FAILED_PRECONDITION)

    # ---- the object -------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        if self._sharing is not None:
            self._sharing.share_settings()
        self._base = self._version
        self._changed.clear()
        attributes = [{key: value for key, value in _attributes_of(member) if key not in first or not _equal(first[key], value)}
                      for first, member in zip(self._attributes, self._members)]  # fmt: skip
        return {"groups": [_settings_of(group) for group in groups_of(self._members)], "attributes": attributes, "version": self._version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._depth = 0
        for group, saved in zip(groups_of(self._members), state["groups"]):
            put_back(group, saved)
        for member, first, saved in zip(self._members, self._attributes, state["attributes"]):
            for noted in ("grad_scale", "found_inf"):  # by a GradScaler, of a fused update that broke: the next would divide by it once more
                vars(member.optimizer).pop(noted, None)
            for key in [key for key, _ in _attributes_of(member) if key not in first and key not in saved]:
                del vars(member.optimizer)[key]
            vars(member.optimizer).update({**deepcopy(first), **saved})
        kept = {parameter: record.read() for parameter, record in self._records.items()}
        base, version, changes, _ = kept[None]
        if version > state["version"]:
            if base > state["version"]:
                raise Error(f"'{self._name}': settings of version {state['version']} were kept, and what updates changed from {base} on", Code.INTERNAL)
            homes = self._homes()
            for number, key, *value in changes:
                homes[number].pop(key, None)
                if value:
                    homes[number][key] = value[0]
        self._version = self._base = max(version, state["version"])
        self._changed.clear()
        for member in self._members:
            member.optimizer.state.clear()
        for parameter, read in kept.items():
            places = [(member, p) for member in self._members for p in self._recorded(parameter)]
            for (member, p), values in zip(places, read[3] if parameter is None else read):
                if values:
                    member.optimizer.state[p] = {key: value[0] if value else member.made[p][key] for key, *value in values}
        self._known.learn([member.optimizer.state for member in self._members])
        if self._sharing is not None:
            self._sharing.take_settings()

    @property
    def take_over(self) -> Callable[[Mapping[int, dict[str, Any]]], dict[str, Any]]:
        """Settings are the same on all ranks; what is kept of parameters lies in registered memory. It knows nothing of this optimizer, which may be made
        anew."""
        return functools.partial(_first_of, len(groups_of(self._members)))

    def _recorded(self, parameter: torch.Tensor | None) -> list[torch.Tensor]:
        return [parameter] if parameter is not None else [p for p in self._parameters if p not in self._records]


def _first_of(groups: int, saved: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    first: dict[str, Any] = next(iter(saved.values()))
    if len(first["groups"]) != groups:
        raise Error(f"{len(first['groups'])} parameter groups were saved, this optimizer has {groups}", Code.INVALID_ARGUMENT)
    return first


def put_back(group: dict[str, Any], saved: dict[str, Any]) -> None:
    """A group's settings, whole. A rate that is a tensor stays the tensor that others may know."""
    for key in [key for key in group if key not in saved and key not in _NO_SETTINGS]:
        del group[key]
    for key, value in saved.items():
        old = group.get(key)
        if isinstance(old, torch.Tensor) and isinstance(value, torch.Tensor) and (old.dtype, old.size()) == (value.dtype, value.size()):
            with torch.no_grad():
                old.copy_(value)
        else:
            group[key] = value


def packed(values: Any) -> bytes:
    """Format 2 has no references, which would tell of objects and not of values."""
    return marshal.dumps(values, 2)


def _settings_of(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in _NO_SETTINGS}


@functools.cache  # asked at every step
def _is_attribute(key: str) -> bool:
    return key not in dry_step.OF_TORCH and not key.startswith("_optimizer_")


def _attributes_of(member: Member) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in vars(member.optimizer).items() if _is_attribute(key) and is_plain(value))


class _Insides:
    """Of values that can be changed in place. Which these are is found anew where a dictionary has other keys or types than before."""

    def __init__(self) -> None:
        self._found: list[tuple[list[str], list[type], list[str]]] = []

    def now(self, homes: list[dict[str, Any]]) -> dict[tuple[int, str], Any]:
        """What is in them: versions of tensors, bytes of lists."""
        self._found += [([], [], [])] * (len(homes) - len(self._found))
        inside: dict[tuple[int, str], Any] = {}
        for number, home in enumerate(homes):
            keys, types, found = self._found[number]
            if keys != [*home] or types != [*map(type, home.values())]:
                found = [key for key, value in home.items() if isinstance(value, torch.Tensor)
                         or (type(value) in (list, dict) and key not in _NO_SETTINGS and _is_attribute(key))]  # fmt: skip
                self._found[number] = [*home], [*map(type, home.values())], found
            for key in found:
                value = home[key]
                if isinstance(value, torch.Tensor):
                    inside[number, key] = value._version
                elif is_plain(value):
                    inside[number, key] = packed(value)
        return inside


def _differ(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    try:
        return one != other
    except (RuntimeError, ValueError):  # tensors and arrays that are others
        return True


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and not isinstance(one, torch.Tensor) and bool(one == other)


def _steps_running(optimizer: Optimizer) -> int:
    """How many calls of its step() this is in: torch's wrapper is one frame for each."""
    found, frame = 0, sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "wrapper" and frame.f_locals.get("self") is optimizer:
            found += 1
        frame = frame.f_back  # type: ignore[assignment]
    return found
