"""What torch's objects hold: where it lies, and how it is given and taken back."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.data import Sampler
from torch.utils.data.distributed import DistributedSampler

from .._core import StateMemory
from .._errors import Error
from ..abi import Code
from ..take_over import TakeOver
from ..terms import Encoder
from .devices import SERVED, DeviceArena

_ALIGNMENT = 64
_LARGE_BYTES = 1 << 20
_WATCHED_TIMES = 8  # a large buffer is compared whole so often before its version counter is believed
_SLICES = 64  # of a large buffer, one of which is compared each time after that


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def check(key: str, tensor: torch.Tensor) -> None:
    """Refuses by name what cannot be protected."""
    if tensor.is_meta:
        raise Error(f"'{key}' is on the meta device: materialise the model before run.register", Code.INVALID_ARGUMENT)
    if tensor.device.type not in ("cpu", *SERVED):
        raise Error(f"'{key}' is on {tensor.device}: kintsugi.torch protects state on the cpu and on CUDA devices (integrations/python/docs/cuda.md)",
                    Code.INVALID_ARGUMENT)  # fmt: skip
    if tensor.layout != torch.strided:
        raise Error(f"'{key}' is sparse: only dense tensors are protected", Code.INVALID_ARGUMENT)
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if local.numel() > 0 and local.data_ptr() == 0:
        raise Error(f"'{key}' is a {type(local).__name__}, which has no memory of its own: its class must name the tensors that it is "
                    "made of (__tensor_flatten__)", Code.INVALID_ARGUMENT)  # fmt: skip


def unwrapped(thing: Any) -> Any:
    """What is within a wrapper of Accelerate's: those have no hooks of torch's, and call it."""
    for name, kind in (("optimizer", Optimizer), ("scheduler", torch.optim.lr_scheduler.LRScheduler)):
        if type(thing).__module__.startswith("accelerate.") and isinstance(inner := getattr(thing, name, None), kind):
            return inner
    return thing


def take_over_of(thing: Any) -> TakeOver | None:
    """How torch's own objects go on with other ranks: all ranks have the same of these. Of others nothing is known."""
    return "rank-zero" if isinstance(thing, (torch.optim.lr_scheduler.LRScheduler, LossScale, Epoch)) else None


def is_dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)


class Arena:
    """Memory that outlives the process. Storages move into it whole, so that everything that shares one goes with it: padded
    shards, views, tied parameters."""

    def __init__(
        self,
        allocate: Callable[[int], StateMemory],
        place: Callable[[torch.Tensor, int], None],
        on_device: DeviceArena,
    ) -> None:
        self._allocate = allocate
        self._place = place  # a tensor's storage, which has what the memory there has
        self._on_device = on_device
        self._room = Room()

    def take(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """The tensors' storages, in one new piece of it."""
        named = [(key, tensor) for key, tensor in tensors if tensor.untyped_storage().nbytes()]
        storages: dict[int, torch.Tensor] = {}
        for _, tensor in named:
            storage = tensor.untyped_storage()
            if storage._cdata in self._room.moved:
                continue
            storages.setdefault(storage._cdata, tensor)
        self._on_device.take([tensor for tensor in storages.values() if tensor.device.type != "cpu"])
        self._room.moved.update(storages)
        storages = {key: tensor for key, tensor in storages.items() if tensor.device.type == "cpu"}
        sizes = [-(-tensor.untyped_storage().nbytes() // _ALIGNMENT) * _ALIGNMENT for tensor in storages.values()]
        if sizes:
            memory = self._allocate(sum(sizes))
            self._room.memory.append(memory)
            at = 0
            for tensor, size in zip(storages.values(), sizes):
                storage = tensor.untyped_storage()
                memory.fill(at, storage.data_ptr(), storage.nbytes())
                self._put(tensor, memory.address + at)  # which lets go of where it was: all of it twice may be too much
                at += size
            memory.finish()
        for key, tensor in named:
            self._room.layouts[key] = tensor.untyped_storage().data_ptr(), _layout_of(tensor)

    def _put(self, tensor: torch.Tensor, address: int) -> None:
        self._place(tensor, address)
        self._room.there.append(weakref.ref(tensor.untyped_storage()))

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._room.moved

    def bind(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Other tensors of the same names in the places of those that were taken: they get what is held there. All or none."""
        found: dict[int, tuple[torch.Tensor, int]] = {}
        for key, tensor in tensors:
            at, layout = self._room.layouts[key]
            storage = tensor.untyped_storage()
            if _layout_of(tensor) != layout or found.setdefault(storage._cdata, (tensor, at))[1] != at:
                raise Error(f"the function given to run.build made '{key}' so that it lies otherwise in memory than before", Code.INVALID_ARGUMENT)
        self._room.there = [one for one in self._room.there if one() is not None]
        for tensor, at in found.values():
            self._put(tensor, at)
        self._room.moved.update(found)

    def move_out(self) -> Room:
        """What is taken from here on has memory of its own. Gives that of before, which stays as it is."""
        before, self._room = self._room, Room()
        return before

    def move_back(self, room: Room) -> None:
        self._room.give_up()
        self._room = room


_Layout = tuple[int, int, tuple[int, ...]]


@dataclass
class Room:
    """Of tensors that are registered together."""

    moved: set[int] = field(default_factory=set)
    layouts: dict[str, tuple[int, _Layout]] = field(default_factory=dict)  # where the storage of a tensor begins, and how the tensor lies in it
    memory: list[StateMemory] = field(default_factory=list)
    there: list[weakref.ref[torch.UntypedStorage]] = field(default_factory=list)  # and have lain

    def give_up(self) -> None:
        """It is no state any more: what a script still has of it stays what it was."""
        self.there = [one for one in self.there if one() is not None]
        for one in self.there:
            weakref.finalize(one(), self._lose).atexit = False
        self._discard_if_empty()

    def _lose(self) -> None:
        self.there.pop()
        self._discard_if_empty()

    def _discard_if_empty(self) -> None:
        for memory in self.memory if not self.there else ():
            memory.discard()


def _layout_of(tensor: torch.Tensor) -> _Layout:
    return tensor.untyped_storage().nbytes(), int(tensor.storage_offset()), tuple(tensor.stride())


class Buffers:
    """A model's buffers: each rank has its own (running statistics), so they travel with it."""

    def __init__(self, model: Module, extension: Any, names: Iterable[str] | None = None) -> None:
        """`names`: these alone."""
        self._model = model
        self._extension = extension
        self._named = [name for name, _ in model.named_buffers()] if names is None else list(names)

    def state_dict(self) -> dict[str, Any]:
        return {"names": [*self._named], "kinds": [*self._kinds()], "bytes": self._extension.pack([*self._now()])}

    def _kinds(self) -> Iterable[list[Any] | None]:
        """Type, shape, and whether the model's state_dict has it: what makes tensors of the bytes where a checkpoint is written for other
        readers (replica/formats/model_buffers.h). Of one that is cut over ranks nothing."""
        for name, buffer in zip(self._named, self._now()):
            owner, _, key = name.rpartition(".")
            kept = key not in self._model.get_submodule(owner)._non_persistent_buffers_set
            yield None if isinstance(buffer, DTensor) else [dtype_name(buffer), [*buffer.shape], kept]

    @property
    def take_over(self) -> TakeOver | None:
        """Each rank has its own, and DistributedDataParallel goes by rank 0's; of buffers that are cut nothing is known."""
        return None if any(isinstance(buffer, DTensor) for buffer in self._now()) else "rank-zero"

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["names"] != [*self._named]:
            raise Error(f"buffers {state['names']} were kept, the model has {[*self._named]}", Code.INVALID_ARGUMENT)
        for name, kind in zip(self._named, state["kinds"]):
            self._give_shape(name, kind)
        self._extension.unpack([*self._now()], state["bytes"])

    def _give_shape(self, name: str, kind: list[Any] | None) -> None:
        """Some begin empty, and get their shape from the first batch (observers of quantization)."""
        buffer = self._model.get_buffer(name)
        if kind is not None and not isinstance(buffer, DTensor) and kind[:2] != [dtype_name(buffer), [*buffer.shape]]:
            owner, _, key = name.rpartition(".")
            self._model.get_submodule(owner)._buffers[key] = buffer.new_empty(kind[1], dtype=getattr(torch, kind[0]))

    def _now(self) -> Iterable[torch.Tensor]:
        """Some modules make new ones instead of changing the old."""
        for name in self._named:
            yield self._model.get_buffer(name)


class LargeBuffer(Buffers, Encoder):
    """One of a megabyte or more, which most often never changes (a mask): it is packed where it did. torch counts what is written to a tensor,
    but not what is written past it (`.data`, numpy): so its bytes are compared too, whole at first, and a slice each time later. One that is
    found to be written uncounted is always compared whole from then on."""

    def __init__(self, model: Module, extension: Any, name: str) -> None:
        super().__init__(model, extension, [name])
        self._name = name
        self._encoded = b""
        self._bytes_at = self._size = 0
        self._seen: tuple[int, int] | None = None
        self._times_alike = 0
        self._is_counted = True
        self._slice = 0

    def encode(self) -> bytes:
        tensor = self._model.get_buffer(self._name)
        seen = None if tensor.is_inference() else (tensor.data_ptr(), tensor._version)
        is_seen = seen is not None and seen == self._seen
        self._seen = seen
        if self._encoded and self._is_as_encoded(tensor, is_seen):
            return self._encoded
        if is_seen:
            self._is_counted = False
        self._times_alike = 0
        state = self.state_dict()
        self._encoded = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
        self._size = len(state["bytes"])
        self._bytes_at = len(self._encoded) - self._size
        while not self._encoded.startswith(state["bytes"], self._bytes_at):
            self._bytes_at -= 1
        return self._encoded

    def missed(self) -> str:
        return "written past torch's counters" if self._has_missed() else ""

    def _has_missed(self) -> bool:
        if not self._is_believed():
            return False
        tensor = self._model.get_buffer(self._name)
        is_seen = not tensor.is_inference() and (tensor.data_ptr(), tensor._version) == self._seen
        if not is_seen or self._holds(tensor, 0, tensor.nbytes):
            return False
        self._is_counted = False
        return True

    def _is_believed(self) -> bool:
        """What torch's counter does not say did not happen."""
        return self._is_counted and self._times_alike >= _WATCHED_TIMES

    def _is_as_encoded(self, tensor: torch.Tensor, is_seen: bool) -> bool:
        if tensor.nbytes != self._size:
            return False
        begin, end = 0, self._size
        if is_seen and self._is_believed():
            size = -(-end // _SLICES)
            begin, end = self._slice * size, min((self._slice + 1) * size, end)
            self._slice = (self._slice + 1) % _SLICES
        self._times_alike += 1
        return self._holds(tensor, begin, end)

    def _holds(self, tensor: torch.Tensor, begin: int, end: int) -> bool:
        """Whether these of its bytes are as encoded. Of what lies on a device they alone come to the host."""
        at = self._bytes_at
        if tensor.device.type != "cpu":
            tensor = tensor.detach().reshape(-1).view(torch.uint8)[begin:end].cpu()
            at, begin, end = at + begin, 0, end - begin
        return bool(self._extension.holds(tensor, self._encoded, at, begin, end))


def large_buffers(model: Module, names: Iterable[str]) -> list[str]:
    """Those of them that are objects of their own."""
    buffers = ((name, model.get_buffer(name)) for name in names)
    return [name for name, buffer in buffers if not isinstance(buffer, DTensor) and buffer.is_contiguous() and buffer.nbytes >= _LARGE_BYTES]




class Epoch:
    """A DistributedSampler: its order follows from its seed and its epoch."""

    def __init__(self, sampler: Sampler[Any]) -> None:
        if not isinstance(sampler, DistributedSampler):
            raise Error(f"a {type(sampler).__name__} does not tell how much it has drawn: use a DistributedSampler, give it state_dict "
                        "and load_state_dict, or draw the data as a function of the step", Code.INVALID_ARGUMENT)  # fmt: skip
        self._sampler = sampler

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._sampler.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._sampler.set_epoch(state["epoch"])


class LossScale:
    """A GradScaler. That a broken step has unscaled gradients is no part of its state, and is forgotten."""

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self._scaler = scaler

    def state_dict(self) -> dict[str, Any]:
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._scaler.is_enabled():  # else it has no state, not even what was unscaled
            self._scaler.load_state_dict(state)
            self._scaler._per_optimizer_states.clear()
