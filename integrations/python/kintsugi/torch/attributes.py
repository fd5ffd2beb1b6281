"""What modules of a registered model keep beside parameters and buffers, or in buffers that come later, and what is said of their parameters.

A counter, a temperature, a hidden state that the next step begins with (`self.calls += 1`): a step that is made again would change it twice, and a
process that takes a lost one's place would begin with the first. So the attributes of all modules are an object of the run's, as far as they are
made of numbers, texts, tensors, arrays and generators: also `training`, whether a parameter is frozen, and what `get_extra_state` gives. Only what
is another than it was at `run.register` is in the object.

Threads: the trainer's. Errors: Error where ranks differ and other ranks are to go on. Units: a tensor has MOST bytes at most; of a larger one that
steps change it is told that it was not kept.
"""

from __future__ import annotations

import collections
import contextlib
import marshal
import operator
import pickle
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.module import register_module_buffer_registration_hook

from .._errors import Error
from ..abi import Code
from ..pickled import Pickling
from ..terms import Encoder
from . import parallel
from .dry_step import is_plain
from .optimizers import packed
from .pickled_tensors import REDUCERS
from .streams import kinds_of_generators, set_state, state_of

MOST = 1 << 20
_BUFFERS = " buffers"  # behind a module's path
_DICTS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_FACTORIES = (None, int, float, list, dict, set)  # of a defaultdict, which can be pickled
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
PLAIN = frozenset(_SCALARS)  # of a list that grows by each step all are looked at in each: at C's speed
_OF_TORCH = frozenset(vars(Module())) - {"training"}
_pickled = Pickling(REDUCERS).dumps

Shares = Callable[[torch.Tensor], bool]


class Attributes(Encoder):
    """Of one model."""

    def __init__(self, model: Module) -> None:
        self._model = model
        self._known_buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}  # which the run keeps by themselves
        self._storages: set[int] | None = None  # of parameters and buffers, while it is looked
        # What torch.compile makes of a module has nothing of its own, and passes on what is set there.
        self._modules = {path: OfOne(module, self._shares) for path, module in model.named_modules() if "training" in vars(module)}
        for path, module in model.named_modules(remove_duplicate=False):
            if None in module._buffers.values():
                self._add_late_buffers(path)
        self._paths = {module: path for path, module in model.named_modules()}
        noted = weakref.WeakMethod(self._note_buffer)
        hook = register_module_buffer_registration_hook(lambda *arguments: note(*arguments) if (note := noted()) else None)
        weakref.finalize(self, hook.remove)
        self._extra = {path: module for path, module in model.named_modules() if type(module).get_extra_state is not Module.get_extra_state}
        self._parameters = dict(model.named_parameters())
        self._trained = self._trained_now = self._flags()
        self._extra_now = self._extra_states()
        self._changes: dict[str, dict[str, bytes | None]] = {}  # by path, since run.register
        self._encoded = b""
        self._note_seen()

    def encode(self) -> bytes:
        is_other, flags, extra = self._look(), self._flags(), self._extra_states()
        if not self._encoded or is_other or flags != self._trained_now or extra != self._extra_now:
            self._trained_now, self._extra_now = flags, extra
            trained = {name: flag for name, first, flag in zip(self._parameters, self._trained, flags) if flag != first}
            state = {"changes": {path: some for path, some in self._changes.items() if some}, "trained": trained, "extra": extra}
            self._encoded = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
        self._storages = None
        return self._encoded

    def missed(self) -> str:
        large = [f"{path.removesuffix(_BUFFERS)}.{name}".removeprefix(".") for path, module in self._modules.items() for name in module.too_large()]
        return f"attributes that steps change, each a tensor of more than {MOST >> 20} MiB, which a buffer may be: {', '.join(large)}" if large else ""

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = pickle.loads(self.encode())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._changes = dict(state["changes"])
        for path in self._changes.keys() - self._modules.keys():
            self._add_late_buffers(path.removesuffix(_BUFFERS))
        for path, module in self._modules.items():
            module.become(self._changes.get(path, {}))
        for (name, parameter), first in zip(self._parameters.items(), self._trained):
            if parameter.requires_grad != (flag := state["trained"].get(name, first)):
                parameter.requires_grad_(flag)
        for path, data in state["extra"].items():
            if path in self._extra and _pickled(self._extra[path].get_extra_state()) != data:
                self._extra[path].set_extra_state(pickle.loads(data))
        self._note_seen()
        self._encoded = b""  # is of what was before
        self._storages = None

    @staticmethod
    def take_over(saved: Mapping[int, Any]) -> Any:
        first, *others = saved.values()
        if any(_but_buffers(other) != _but_buffers(first) for other in others):  # buffers are as rank 0 has them
            raise Error("attributes of modules differ from rank to rank: say how they go on with other ranks, "
                        "run.register(model=..., take_over={'model.attributes': ...})", Code.INVALID_ARGUMENT)  # fmt: skip
        return first

    def _note_buffer(self, module: Module, *_: Any) -> None:
        """It gets one."""
        path = self._paths.get(module)
        if path is not None and path + _BUFFERS not in self._modules:
            self._add_late_buffers(path)
            self._note_seen()

    def _add_late_buffers(self, path: str) -> None:
        """Those that the module had not when the model was registered."""
        module = self._model.get_submodule(path)
        known = {name for name in module._buffers if f"{path}.{name}".removeprefix(".") in self._known_buffers}
        self._modules[path + _BUFFERS] = _LateBuffers(module, known, self._shares)

    def _look(self) -> bool:
        """Whether something is another than at the last look. All modules are read at once, since most never change anything."""
        suspects: Iterable[str] = self._modules
        with contextlib.suppress(KeyError, RuntimeError, ValueError):  # what was a number is gone, or became a tensor
            now = self._read()
            others = () if now == self._seen else [path for path, one, seen in zip(self._modules, now, self._seen) if one != seen]
            suspects = dict.fromkeys((*self._moving, *others))
        changed = [path for path in suspects if self._modules[path].look()]
        self._changes.update((path, self._modules[path].changes()) for path in changed)
        if changed:
            self._note_seen()
        return bool(changed)

    def _read(self) -> list[Any]:
        return [(len(home), get(home)) for home, get in self._homes]

    def _note_seen(self) -> None:
        self._homes = [(module.home, module.get_fixed) for module in self._modules.values()]
        self._moving = [path for path, module in self._modules.items() if module.others]
        self._seen = self._read()

    def _flags(self) -> list[bool]:
        return [parameter.requires_grad for parameter in self._parameters.values()]

    def _extra_states(self) -> dict[str, bytes]:
        return {path: _pickled(module.get_extra_state()) for path, module in self._extra.items()}

    def _shares(self, tensor: torch.Tensor) -> bool:
        """Whether it lies in a parameter or a buffer, and is what that is."""
        if self._storages is None:
            buffers = (buffer for name, buffer in self._model.named_buffers(remove_duplicate=False) if name in self._known_buffers)
            known = map(parallel.local_of, (*self._model.parameters(), *buffers))
            self._storages = {one.untyped_storage().data_ptr() for one in known}
        return tensor.untyped_storage().data_ptr() in self._storages


class OfOne:
    """Of one module, or of another thing with attributes."""

    def __init__(self, module: Any, shares: Shares) -> None:
        self.home = self._home_of(module)
        self._shares = shares
        self._is_torchs = all(kind.__module__.startswith(("torch.", "builtins")) for kind in type(module).__mro__)
        self._first = {name: data for name in self._names() if (data := self._packed(name)) is not None}
        self._first_large = {name: (self.home[name], self.home[name]._version) for name in self._names() if _is_large(self.home[name])}
        self._first_homes = {name: self.home[name] for name in self._first if type(self.home[name]) in (list, dict)}  # the script may have them, too
        self._learn()

    @staticmethod
    def _home_of(module: Any) -> dict[str, Any]:
        home: dict[str, Any] = vars(module)
        return home

    def _names(self) -> list[str]:
        return [name for name in self.home if name not in _OF_TORCH and not (self._is_torchs and name[0] == "_")]

    def _packed(self, name: str) -> bytes | None:
        """None: it is nothing that is kept."""
        value = self.home[name]
        if is_plain(value):
            return b"m" + packed(value)
        if _is_generator(value):
            return b"g" + state_of(value)
        return b"p" + _pickled(value) if is_kept(value, self._shares) else None

    def _learn(self) -> None:
        fixed = [name for name in self._names() if _is_fixed(self.home[name])]
        self.get_fixed = self._getter(fixed)
        self._fixed = [len(self.home), *self.get_fixed(self.home)]
        self.others = {name: data for name in {*self._names()} - {*fixed} if (data := self._packed(name)) is not None}

    @staticmethod
    def _getter(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
        return operator.itemgetter("training", "training", *names)  # of one name it would give no tuple

    def look(self) -> bool:
        """Whether something is another than at the last look."""
        if self.is_as_seen():
            return False
        self._learn()
        return True

    def is_as_seen(self) -> bool:
        try:
            is_same = [len(self.home), *self.get_fixed(self.home)] == self._fixed
        except (KeyError, RuntimeError, ValueError):  # a number became a tensor
            return False
        return is_same and all(name in self.home and self._packed(name) == data for name, data in self.others.items())

    def changes(self) -> dict[str, bytes | None]:
        """None: it is there no more."""
        now = {name: data for name in self._names() if (data := self._packed(name)) is not None}
        gone = {name: None for name in self._first if name not in self.home}
        return {**{name: data for name, data in now.items() if self._first.get(name) != data}, **gone}

    def too_large(self) -> list[str]:
        """Of what is not kept: other tensors than at first."""
        now = {name: (self.home[name], self.home[name]._version) for name in self._names() if _is_large(self.home[name])}
        return [name for name, (tensor, version) in now.items() if (first := self._first_large.get(name)) is None or first[0] is not tensor or first[1] != version]

    def become(self, changes: Mapping[str, bytes | None]) -> None:
        for name, data in {**dict.fromkeys(self._names()), **self._first, **changes}.items():
            has = self._packed(name) if name in self.home else None
            if data == has:
                continue
            if data is None:
                del self.home[name]
            elif has is not None and _is_generator(self.home[name]):
                set_state(self.home[name], data[1:])
            else:
                self.home[name] = self._given_back(name, marshal.loads(data[1:]) if data[:1] == b"m" else pickle.loads(data[1:]))
        self._learn()

    def _given_back(self, name: str, value: Any) -> Any:
        if name not in self.home or name not in self._first_homes:
            return value
        here = self.home[name]
        if here is not self._first_homes[name] or type(here) is not type(value):
            return value
        here.clear()
        here.extend(value) if isinstance(here, list) else here.update(value)
        return here


class _LateBuffers(OfOne):
    """Of one module, those that it was given late."""

    def __init__(self, module: Module, known: set[str], shares: Shares) -> None:
        self._known = known
        super().__init__(module, shares)

    @staticmethod
    def _home_of(module: Module) -> dict[str, Any]:
        return module._buffers

    def _names(self) -> list[str]:
        return [name for name in self.home if name not in self._known]

    @staticmethod
    def _getter(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
        return lambda home: tuple(home[name] for name in names)


def _but_buffers(state: Mapping[str, Any]) -> dict[str, Any]:
    return {**state, "changes": {path: some for path, some in state["changes"].items() if not path.endswith(_BUFFERS)}}


def _is_fixed(value: Any) -> bool:
    return type(value) in _SCALARS or (type(value) is tuple and all(map(_is_fixed, value)))


def is_kept(value: Any, shares: Shares) -> bool:
    """Tensors that are no parameters, arrays, and what is made of them. A tensor with a graph is kept without it."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is collections.defaultdict and value.default_factory not in _FACTORIES:
        return False
    if kind is torch.Tensor:
        return value.layout == torch.strided and not (value.is_meta or value.is_quantized or value.nbytes > MOST or shares(value))
    if kind in (list, tuple, set, collections.deque):
        return PLAIN.issuperset(map(type, value)) or all(is_kept(one, shares) for one in value)
    if kind in _DICTS:
        return all(type(key) in _SCALARS and is_kept(one, shares) for key, one in value.items())
    numpy = sys.modules.get("numpy")
    return numpy is not None and (isinstance(value, numpy.generic) or (kind is numpy.ndarray and value.dtype != object and value.nbytes <= MOST))


def _is_large(value: Any) -> bool:
    return type(value) is torch.Tensor and value.nbytes > MOST and value.grad_fn is None


def _is_generator(value: Any) -> bool:
    return isinstance(value, kinds_of_generators())
