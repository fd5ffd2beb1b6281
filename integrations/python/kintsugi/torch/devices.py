"""The device that a rank trains on: its state, its stream at the gate, its generator, and NCCL's communicators of its groups.

A rank has one device, which is opened with the first tensor on it that is registered. Communicators are a generation's: all of them are
ended by one flag, and freed once every rank has drained its device.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from .. import _core
from .._errors import Error
from ..abi import Code
from . import bits
from .side_streams import SideStreams

_PIECE_BYTES = 1 << 30
SERVED = {"cuda"}  # kinds of devices whose collectives go over NCCL


def _limit_ms() -> int:
    """In which what is queued on a device is done after an abort."""
    said = os.environ.get("KINTSUGI_DEVICE_LIMIT_MS", "5000")
    if not said.isdecimal() or int(said) == 0:
        raise Error(f"KINTSUGI_DEVICE_LIMIT_MS is '{said}': milliseconds, from 1 on", Code.INVALID_ARGUMENT)
    return int(said)


_LIMIT_MS = _limit_ms()


@functools.cache  # asked at every step
def kind_here() -> str:
    """Of the device that this machine has; "": none that is served."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return found.type if found is not None and found.type in SERVED else ""


def place_in_use() -> torch.device | None:
    """The current one. A process that has not used it yet has drawn nothing there."""
    kind = kind_here()
    return torch.device(kind, torch.accelerator.current_device_index()) if kind and torch.get_device_module(kind).is_initialized() else None


def generator_state(place: torch.device) -> bytes | None:
    """Of the generator that draws there; None: it has none of its own."""
    module = torch.get_device_module(place)
    if not hasattr(module, "get_rng_state"):
        return None
    state = module.get_rng_state(place)
    return ctypes.string_at(state.data_ptr(), state.numel())


def set_generator_state(place: torch.device, state: bytes) -> None:
    torch.get_device_module(place).set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8), place)


class Device:
    """Threads: the trainer's."""

    def __init__(self, agent: _core.Agent, extension: Any) -> None:
        self._agent = agent
        self._extension = extension
        self.place: torch.device | None = None  # once it is open
        self.side = SideStreams(lambda: self.place, self.stream)
        self.has_graphs = False  # captured ones, which know where tensors lie

    def hold(self, key: str, tensor: torch.Tensor) -> int | None:
        """The number of the device that a tensor lies on which is about to be registered; None: the host."""
        if tensor.device.type == "cpu":
            return None
        self.open(key, tensor)
        assert self.place is not None
        return self.place.index or 0

    def open(self, key: str, tensor: torch.Tensor) -> None:
        """A tensor on it is about to be registered as `key`."""
        if self.place is None:
            if mps := [name for name in os.environ if name.startswith("CUDA_MPS_")]:
                raise Error(f"'{key}' is on {tensor.device}, and {mps[0]} is set: under MPS an error of one process ends all that share its device. Start the ranks without "
                            "it", Code.FAILED_PRECONDITION)  # fmt: skip
            missing = self._agent.open_device(tensor.device.index or 0)
            self.place = tensor.device
            if missing:
                print(f"kintsugi: rank {self._agent.rank}, {tensor.device}: {missing}", file=sys.stderr, flush=True)
        if tensor.device != self.place:
            raise Error(f"'{key}' is on {tensor.device}, other state on {self.place}: a rank's state lies on one device, and on the host", Code.INVALID_ARGUMENT)

    def allocate(self, size_bytes: int) -> int:
        """Memory there that outlives the process; its address."""
        return self._agent.allocate_on_device(size_bytes)

    def stream(self) -> int | None:
        """On which the trainer's thread enqueues now; None: there is no device."""
        return None if self.place is None else self._extension.current_stream(self.place)

    def generator(self) -> bytes | None:
        """The state of the generator that draws on the device; None: no device is in use."""
        place = self.place or place_in_use()
        return None if place is None else generator_state(place)

    def set_generator(self, state: bytes) -> None:
        if self.place or kind_here():
            set_generator_state(self._place_of_generator(), state)

    def seeded(self, seed: int) -> bytes:
        """The state of such a generator that begins with `seed`."""
        state = torch.Generator(self._place_of_generator()).manual_seed(seed).get_state()
        return ctypes.string_at(state.data_ptr(), state.numel())

    def _place_of_generator(self) -> torch.device:
        """State may lie on the host alone, and what is computed of it on a device."""
        return self.place or torch.device(kind_here(), torch.accelerator.current_device_index())

    def replace_if_lost(self) -> None:
        """After an error: where the device answers to nothing any more this process can do nothing, and another takes its place."""
        if (place := self.place or place_in_use()) is not None:
            drained(self._extension, place, self._agent)


def drained(extension: Any, place: torch.device, agent: _core.Agent) -> None:
    """Until what is queued there is done. A context that an error has ended, or a kernel that nothing ends, is the process's end: a new one
    takes its place, since none can have a second context. Nobody takes over the memory that it leaves: the kernel may have written anywhere."""
    try:
        why = "" if extension.await_device(place, _LIMIT_MS) else f"what is queued on it was not done within {_LIMIT_MS / 1000:g} s (KINTSUGI_DEVICE_LIMIT_MS)"
    except RuntimeError as error:
        why = str(error).splitlines()[0]
    if why:
        agent.report_memory_error([], f"{place} is lost: {why}")
        print(f"kintsugi: rank {agent.rank}: {place} is lost: {why}; a new process takes over", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


class DeviceArena:
    """Memory of a device that outlives the process: what is registered moves there, in pieces, so that little of it is there twice."""

    def __init__(self, device: Device, extension: Any) -> None:
        self._device = device
        self._extension = extension
        self._is_refused = False

    def take(self, tensors: list[torch.Tensor]) -> None:
        """Their storages, each once. Where the device has no such memory they stay where they lie, for good: a killed rank's are sent then."""
        piece: list[torch.Tensor] = []
        size = 0
        if tensors and self._device.has_graphs:
            raise Error("a CUDA graph was captured before run.register, which moves what is registered: the graph would go on with the memory that it had. Capture it behind "
                        "run.register", Code.FAILED_PRECONDITION)  # fmt: skip
        for tensor in tensors:
            self._device.open("a registered tensor", tensor)
            piece.append(tensor)
            size += _room(tensor)
            if size >= _PIECE_BYTES:
                self._move(piece, size)
                piece, size = [], 0
        self._move(piece, size)

    def _move(self, piece: list[torch.Tensor], size: int) -> None:
        if not piece:
            return
        at = 0
        if not self._is_refused:
            try:
                at = self._device.allocate(size)
            except Error as error:
                self._is_refused = True
                print(f"kintsugi: tensors on {piece[0].device} stay where they are, and are lost with their process: {error}", file=sys.stderr, flush=True)
        for tensor in piece:
            if not at:
                self._extension.keep_in_place(tensor)
                continue
            self._extension.move_to(tensor, at)
            at += _room(tensor)
        if not self._is_refused:
            getattr(torch.get_device_module(piece[0].device), "empty_cache", lambda: None)()


def _room(tensor: torch.Tensor) -> int:
    """Of its storage, as a device aligns."""
    return -(-tensor.untyped_storage().nbytes() // 256) * 256


class Communicators:
    """NCCL's, of this process's groups, for one generation after the other."""

    def __init__(self, extension: Any, rank: int) -> None:
        self._extension = extension
        self._rank = rank
        self._nccl = extension.NcclFunctions(_core.nccl_function)
        self._generation: Any = None
        self._before: Any = None  # whose memory is being freed
        self.begin()

    def begin(self) -> None:
        """A new generation: the communicators of the one before are freed, on a thread of their own, since that takes NCCL half a second. All ranks
        have drained theirs."""
        if self._before is not None and not self._before.free(0):
            print(f"kintsugi: rank {self._rank}: memory of NCCL's communicators has not been freed since the incident before, and is left behind", file=sys.stderr, flush=True)
        self._before = self._generation
        if self._before is not None:
            self._before.cut()
            self._before.free(0)
        self._generation = self._extension.NcclGeneration(self._nccl)
        self._extension.cut_at_stop(self._generation)

    def cut(self) -> None:
        """Ends what is under way."""
        self._generation.cut()

    def unique_id(self) -> bytes:
        return bytes(self._nccl.unique_id())

    def connect(self, members: list[tuple[int, int, bytes]], place: torch.device) -> list[int]:
        """(ranks, this one's number, id) of each group, all at once."""
        with _current(place):
            return list(self._generation.connect(members))

    def inner(self, name: str, rank: int, size: int, store: Store, comm: int, device: torch.device | None) -> Any:
        """Of one group. `comm`: 0: it is made at the group's first collective on a device, which all its ranks make."""
        return self._extension.NcclCollectives(rank=rank, size=size, generation=self._generation, comm=comm, device=device,
                                               store=PrefixStore("nccl", store), name=name, ordered=bits.sums_are_ordered())  # fmt: skip


@contextlib.contextmanager
def _current(place: torch.device) -> Iterator[None]:
    before = torch.accelerator.current_device_index()
    torch.accelerator.set_device_index(place.index or 0)
    try:
        yield
    finally:
        torch.accelerator.set_device_index(before)


# With the first ProcessGroupNCCL has neither a watchdog nor a monitor, which would end the process behind a repair's back; a wait of its own would block the
# host, and is not used. The recorder keeps events that the watchdog alone lets go of.
_QUIET = {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
          "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0", "TORCH_NCCL_PROPAGATE_ERROR": "0", "TORCH_NCCL_USE_COMM_NONBLOCKING": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0",
          "TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "0", "ENABLE_INTRA_NODE_COMM": "0"}  # fmt: skip


class TorchBackends(Communicators):
    """What torch itself makes for the device, in the place of ours: to compare the two (KINTSUGI_INNER=torch), and for devices whose library it knows.
    Each group's connects at its first collective."""

    def __init__(self, extension: Any, kind: str) -> None:
        if bits.sums_are_ordered():
            raise Error("KINTSUGI_INNER=torch adds up as torch's backend does: leave ordered sums (KINTSUGI_SUMS) out", Code.INVALID_ARGUMENT)
        self._name = dist.Backend.default_device_backend_map.get(kind, "")
        if self._name == "nccl":
            extension.NcclFunctions(_core.nccl_function)  # refuses versions that hang in an abort
            for name, value in _QUIET.items():
                if os.environ.setdefault(name, value) != value:
                    raise Error(f"KINTSUGI_INNER=torch needs {name}={value}, and it is '{os.environ[name]}': ProcessGroupNCCL would end the process, or wait, of itself",
                                Code.INVALID_ARGUMENT)  # fmt: skip
            if not dist.is_nccl_available():
                raise Error(f"KINTSUGI_INNER=torch: torch {torch.__version__} has no ProcessGroupNCCL", Code.FAILED_PRECONDITION)
        elif self._name.upper() not in dist.Backend._plugins:
            raise Error(f"KINTSUGI_INNER=torch: torch {torch.__version__} makes no process group for tensors on '{kind}'", Code.FAILED_PRECONDITION)

    def begin(self) -> None:
        """They are made with their groups, and ended with them."""

    cut = begin

    def inner(self, name: str, rank: int, size: int, store: Store, comm: int, device: torch.device | None) -> Any:
        store = PrefixStore("torch", store)
        if self._name == "nccl":
            nccl: Any = dist.ProcessGroupNCCL
            return nccl(store, rank, size, nccl.Options())
        plugin: Any = dist.Backend._plugins[self._name.upper()]
        if not plugin.extended_api:
            return plugin.creator_fn(store, rank, size, dist.default_pg_timeout)
        inside: Any = dist.distributed_c10d
        options = inside._DistributedBackendOptions()
        options.store, options.group_rank, options.group_size, options.group_id, options.timeout = store, rank, size, name, dist.default_pg_timeout
        options.global_ranks_in_group = [*range(size)]
        return plugin.creator_fn(options, None)


def is_torchs_own() -> bool:
    said = os.environ.get("KINTSUGI_INNER", "nccl")
    if said not in ("nccl", "torch"):
        raise Error(f"KINTSUGI_INNER is '{said}': nccl (collectives of ours), or torch (its own backend, for comparison)", Code.INVALID_ARGUMENT)
    return said == "torch"


def find_communicators(extension: Any, rank: int) -> Communicators | None:
    """None: no device is served here. One that is there without an NCCL is told of: its collectives are refused."""
    if not kind_here():
        return None
    # Sums within the switch: no kernel of theirs is ended by an abort in every version, and their order is not that of others.
    if os.environ.setdefault("NCCL_NVLS_ENABLE", "0") != "0":
        print(f"kintsugi: rank {rank}: NCCL_NVLS_ENABLE={os.environ['NCCL_NVLS_ENABLE']}: an abort may not end sums within NVLink's switch; a rank that stays in one is replaced",
              file=sys.stderr, flush=True)  # fmt: skip
    if is_torchs_own():
        return TorchBackends(extension, kind_here())
    try:
        return Communicators(extension, rank)
    except (Error, RuntimeError) as error:
        print(f"kintsugi: rank {rank}: collectives of tensors on a device are refused: {error}", file=sys.stderr, flush=True)
        return None
