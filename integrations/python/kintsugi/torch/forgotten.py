"""What a script trains with and has not registered: refused in the step in which it changes, in runs without any fault too.

An optimizer, a schedule, a model or an average, a loss with buffers, a scale, a random generator: after a fault a process that takes a lost one's
place would begin with a new one, and a survivor would have moved its own on twice. They are looked for once, as the first step begins, among the
variables of the functions that lead to it and in what these hold; then each is held against what it was.

What it makes later is looked for as each loop begins, where a variable or an attribute of one has it. What hides deeper (in C, behind more things than are
looked at) is not found, but for an optimizer that steps what is registered; nor a number or a list of its own (carried.py).

Threads: the trainer's. Errors: Error, which names the variable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import torch
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .._errors import Error
from ..abi import Code
from .streams import below, kinds_of_generators, state_of

_NOT_THE_SCRIPTS = ("kintsugi", "torch", "runpy", "importlib", "contextlib", "threading", "functools")


_KINDS = (Optimizer, LRScheduler, Module, torch.amp.GradScaler)


class _Watched(NamedTuple):
    path: str
    thing: Any
    has_changed: Callable[[], bool]


class Forgotten:
    """`variables`: of the script. `registered`: things whose insides are kept with them. `others`: generators that loaders know by now."""

    def __init__(self, variables: Mapping[str, Any], registered: Iterable[Any], others: Callable[[], Iterable[Any]]) -> None:
        known = self._known = _identities(registered)
        own = {path: thing for path, thing in _found(variables).items() if id(thing) not in known}
        self._others = others
        self._watched = self._to_watch(own, known)
        self._filled: list[torch.Tensor] = []  # so that their identities stay theirs
        self._looked_at = {id(thing): thing for thing in own.values()}

    def look_again(self, variables: Mapping[str, Any], registered: Iterable[Any]) -> None:
        """Another loop begins. What is kept may have been put back since, as another thing."""
        known = self._known | _identities(registered)
        near = {**variables, **{f"{path}.{name}": part for path, thing in variables.items() if not isinstance(thing, (type, ModuleType, *_KINDS))
                                for name, part in getattr(thing, "__dict__", {}).items()}}  # fmt: skip
        kinds = (*_KINDS, *kinds_of_generators())
        for path, thing in near.items():
            if issubclass(type(thing), kinds) and id(thing) not in self._looked_at and id(thing) not in known:
                self._looked_at[id(thing)] = thing
                self._watched += self._to_watch({found: one for found, one in _found({path: thing}).items() if id(one) not in known}, known)

    def _to_watch(self, things: Mapping[str, Any], known: set[int]) -> list[_Watched]:
        """Without generators of loaders: what a loader makes itself on the way is another thing where it goes back."""
        drawn = any(isinstance(thing, kinds_of_generators()) for thing in things.values())
        of_loaders = {id(other) for other in self._others()} if drawn else ()
        return [_Watched(path, thing, has_changed) for path, thing in things.items()
                if id(thing) not in of_loaders and (has_changed := _watch(thing, known)) is not None]  # fmt: skip

    def note_filled(self, tensor: torch.Tensor) -> None:
        """run.reshard writes the whole of it: what it was before is nothing that goes on."""
        if id(tensor) not in self._known:
            self._known.add(id(tensor))
            self._filled.append(tensor)

    def refuse_changed(self, k: int) -> None:
        changed = [one for one in self._watched if one.has_changed()]
        if not changed:
            return
        of_loaders = {id(other) for other in self._others()}  # which costs a walk; what a loader knows it knows for good
        for one in changed:
            if id(one.thing) not in of_loaders:
                raise Error(f"'{one.path}' ({type(one.thing).__name__}) has changed by step {k} and is not registered: a process that takes a lost one's place "
                            "would begin with a new one. Make it before the first step, and give it to run.register, by a name", Code.FAILED_PRECONDITION)  # fmt: skip
            self._watched.remove(one)


def refuse_other_optimizers(parameters: Callable[[], Mapping[torch.Tensor, str]], is_registered: Callable[[Optimizer], bool], trains: Callable[[], bool]) -> None:
    """Those that step a registered parameter themselves and are not registered, whenever they were made."""
    stepped = 0  # steps of registered ones
    before: list[int] = []

    def begin(*_: Any) -> None:
        before.append(stepped)

    def end(optimizer: Optimizer, *_: Any) -> None:
        nonlocal stepped
        of_others = stepped - (before.pop() if before else stepped)
        if is_registered(optimizer):
            stepped += 1
        elif not of_others and trains():
            own = (parameter for group in optimizer.param_groups for parameter in group["params"])
            if name := next((parameters()[parameter] for parameter in own if parameter in parameters()), ""):
                raise Error(f"an optimizer ({type(optimizer).__name__}) that is not registered has stepped '{name}': a process that takes a lost one's place would "
                            "begin with a new one. Make it before run.register, and give it to that, also where it steps in later epochs alone",
                            Code.FAILED_PRECONDITION)  # fmt: skip

    register_optimizer_step_pre_hook(begin)
    register_optimizer_step_post_hook(end)


def variables_here() -> dict[str, Any]:
    """Of the functions of the script that are being called; the inner ones' names hide those of the outer."""
    found: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".", 1)[0] not in _NOT_THE_SCRIPTS:
            for names in (frame.f_locals, frame.f_globals):
                found.update((name, thing) for name, thing in names.items() if name not in found and not name.startswith("__"))
        frame = frame.f_back
    return found


def _found(roots: Mapping[str, Any]) -> dict[str, Any]:
    """Each thing that may be watched, by the shortest path to it."""
    kinds = (*_KINDS, *kinds_of_generators())
    return {path: thing for path, thing in below(roots, kinds) if issubclass(type(thing), kinds)}


def _identities(registered: Iterable[Any]) -> set[int]:
    """Tensors' too."""
    known: set[int] = set()
    for thing in _found({str(i): thing for i, thing in enumerate(registered)}).values():
        parts = [*thing.modules()] if isinstance(thing, Module) else [thing, *getattr(thing, "_schedulers", ())]
        known.update(map(id, parts), *(map(id, _tensors_of(part)) for part in parts if isinstance(part, Module)))
    return known


def _watch(thing: Any, known: set[int]) -> Callable[[], bool] | None:
    """None: it has nothing of its own that could change."""
    if isinstance(thing, Module):
        return _watch_module(thing, known)
    if isinstance(thing, Optimizer):
        return _watch_optimizer(thing)
    if isinstance(thing, LRScheduler):
        schedules = [one for one in (thing, *getattr(thing, "_schedulers", ())) if hasattr(one, "last_epoch")]
        return _differs(lambda: [(one.last_epoch, getattr(one, "_step_count", 0)) for one in schedules])
    if isinstance(thing, torch.amp.GradScaler):
        return _differs(lambda: [_version(thing._scale), _version(thing._growth_tracker)]) if thing.is_enabled() else None
    return _watch_generator(thing)


def _differs(look: Callable[[], Any]) -> Callable[[], bool]:
    first = look()
    return lambda: look() != first


def _watch_module(module: Module, known: set[int]) -> Callable[[], bool] | None:
    parts = [part for part in module.modules() if id(part) not in known and _tensors_of(part)]

    def versions() -> dict[int, Any]:
        return {id(tensor): _version(tensor) for part in parts for tensor in _tensors_of(part) if id(tensor) not in known}

    first = versions()
    return (lambda: any(first.get(tensor, "new") != version for tensor, version in versions().items())) if parts else None


def _tensors_of(module: Module) -> list[torch.Tensor | None]:
    return [*module._parameters.values(), *module._buffers.values()]


def _watch_optimizer(optimizer: Optimizer) -> Callable[[], bool] | None:
    if "_optimizer_step_post_hooks" not in vars(optimizer):
        return None  # around another one, of Accelerate's
    stepped: list[bool] = []
    optimizer.register_step_post_hook(lambda *_: stepped.append(True))
    return lambda: bool(stepped)


def _watch_generator(generator: Any) -> Callable[[], bool]:
    """One that got another seed since is none that goes on."""
    last: list[Any] = []

    def has_changed() -> bool:
        now = generator.initial_seed() if isinstance(generator, torch.Generator) else 0, state_of(generator)
        before = last.pop() if last else now
        last.append(now)
        return before[0] == now[0] and before[1] != now[1]

    return has_changed


def _version(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None or tensor.is_inference() else (id(tensor), tensor._version)
