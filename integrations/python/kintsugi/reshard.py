"""State between layouts: what a rank holds of tensors and what it asks for, and `run.reshard`.

Threads: the trainer's. Errors: Error, which names the key.
"""

from __future__ import annotations

import ctypes
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._errors import Error, InjectedFault, Interrupted
from .abi import Code
from .aoa import Macro, called
from .arrays import DTYPE_BYTES, dtype_name
from .registered import Registered

# As _core.Agent.reshard takes it: key, element type, global shape, box, offset, flat range, address, bytes, whether another global shape is fine.
Description = tuple[str, str, list[int], list[int], list[int], tuple[int, int], int, int, bool]

_DEFAULT_MS = 600_000
_TIMEOUT_MOST = 1e6  # seconds


@dataclass(frozen=True)
class Shard:
    """A part of a tensor: `array` has the box of its own shape at `offset` in a tensor of `global_shape`. Elements; offset None: 0 everywhere.

    `flat`: the array is one-dimensional and has the elements (start, stop) of the box `box`, counted row-major (ZeRO-1 cuts a parameter so).
    `allow_shape_mismatch`, of a target: the source may have another global shape with as many axes; what both have is taken, the rest is zero."""

    array: Any
    global_shape: Sequence[int]
    offset: Sequence[int] | None = None
    box: Sequence[int] | None = None
    flat: tuple[int, int] | None = None
    allow_shape_mismatch: bool = False


@dataclass(frozen=True)
class Resharded:
    """What a reshard has done on this rank; bytes in the source's types."""

    bytes_sent: int
    bytes_received: int
    bytes_local: int
    unread: tuple[str, ...]  # keys of the source that nobody asks for, where `strict` looks for them
    unfilled: tuple[str, ...]  # keys of the target that have no source: left as they were
    notes: tuple[str, ...]


# By key: an array that is the whole tensor, a Shard, or several of them.
Shards = Mapping[str, Any]


class Staged:
    """Copies on the host, in the place of what cannot be read or written where it lies."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed
        self._copies: list[Any] = []
        self._deliveries: list[Callable[[], object]] = []

    def check(self, key: str, why: str) -> None:
        if not self._allowed:
            raise Error(f"'{key}' {why}: pass what lies contiguous on the host, or offload=True, which copies it there", Code.INVALID_ARGUMENT)

    def add(self, copy: Any, deliver: Callable[[], object] | None) -> None:
        """The copy stays until the reshard is done; then `deliver` is called, where it came in."""
        self._copies.append(copy)
        if deliver is not None:
            self._deliveries.append(deliver)

    def deliver(self) -> None:
        for deliver in self._deliveries:
            deliver()


class Resharding(Registered):
    """The part of a run that carries state between layouts."""

    def reshard(self, source: Shards, target: Shards, program: str | Iterable[str] = "", *, reverse: bool = False, cast: bool = False,
                strict: str = "raise_unexpected", timeout: float = 600.0, offload: bool = False, ranks: Iterable[int] = (),
                macros: Mapping[str, Macro] | None = None) -> Resharded:  # fmt: skip
        """What ranks hold in one layout becomes what they ask for in another: all ranks call it in the same order, in a step before its update or in a
        function for run.do. Each says by key what it holds and what is to be filled: an array that is the whole tensor, a Shard, or a list of Shards;
        with kintsugi.torch also tensors, DTensors and Shards of tensors. A rank that has nothing on a side passes {}.

        Of the source every element must be held by some rank; ranks that hold the same box hold copies. The target is any parts, in memory of their
        own: not the source's, and not registered state, which changes in updates alone.

        `program`: statements of AOA that make the target's names, shapes and types of the source's, or "@NAME:VALUES", one that ships; `reverse`: it is
        run backwards. `cast`: elements are cast where types differ and no program says so. `strict`: of keys on one side only, as --resume-strict has
        the modes. `timeout`: seconds. `offload`: what does not lie on the host, or is (of the source) not contiguous, goes through a copy there.
        `ranks`: those that reshard among themselves, and alone call it; without it, all. `macros`: words of the program's own (aoa.py), the same on
        every rank.

        Error: the same on every rank, naming key, ranks and remedy; nothing was written. A fault within makes the step or section void, which is made
        again; until then targets are undefined and sources as they were."""
        if not self.takes_part():
            raise Error("run.reshard outside of a step before its update and of run.do: a process that takes a lost one's place passes by there, and could not "
                        "take part. Write run.do(run.reshard, source, target)", Code.FAILED_PRECONDITION)  # fmt: skip
        if len(self.agent.crew) != self.agent.world_size:
            raise Error(f"run.reshard in a run that ranks have left: it moves between all {self.agent.world_size} that there were", Code.FAILED_PRECONDITION)
        own_error, held, wanted, staged = "", [], [], Staged(offload)
        text, timeout_ms, among = "", _DEFAULT_MS, list[int]()
        words = called(macros)
        try:
            text, timeout_ms, among = _text_of(program), _milliseconds(timeout), [int(rank) for rank in ranks]
            held = [self.describe(key, shard, False, staged) for key, shard in each_shard(source)]
            wanted = [self.describe(key, shard, True, staged) for key, shard in each_shard(target)]
        except Exception as error:  # whatever it is, the others must not wait for this rank
            own_error = str(error) if isinstance(error, Error) else f"what it passes cannot be described: {type(error).__name__}: {error}"
        try:
            told = self.agent.reshard(held, wanted, text, reverse, cast, strict, timeout_ms, own_error, sorted(among), words)
        except Error as error:
            raise as_raised(error) from error
        staged.deliver()
        return Resharded(*told[:3], *(tuple(lines.splitlines()) for lines in told[3:]))

    @abstractmethod
    def takes_part(self) -> bool: ...

    def describe(self, key: str, shard: Shard, is_target: bool, staged: Staged) -> Description:
        """A door to a framework knows more kinds of arrays."""
        return array_described(key, shard, is_target, staged)


def as_raised(error: Error) -> BaseException:
    """What the loop is left by."""
    if error.code == Code.COMM_FAILURE:
        return ConnectionError(str(error))
    if error.code == Code.THROW:
        return InjectedFault(str(error))
    return Interrupted() if error.code in (Code.INTERRUPTED, Code.CANCELLED) else error


def _text_of(program: str | Iterable[str]) -> str:
    lines = [program] if isinstance(program, str) or not isinstance(program, Iterable) else list(program)
    if not all(isinstance(line, str) for line in lines):
        raise Error(f"program is {program!r}: statements of AOA as a text or as a list of texts, or '@NAME:VALUES'", Code.INVALID_ARGUMENT)
    return "\n".join(lines)


def _milliseconds(timeout: float) -> int:
    if not timeout > 0:
        raise Error(f"timeout is {timeout!r}: seconds, more than none", Code.INVALID_ARGUMENT)
    return int(min(timeout, _TIMEOUT_MOST) * 1000)


def each_shard(shards: Shards) -> Iterator[tuple[str, Shard]]:
    """Every shard with its key. An array alone is all of its tensor."""
    if not isinstance(shards, Mapping):
        raise Error(f"{type(shards).__name__} is no dictionary of arrays or Shards by key; a rank that has nothing on a side passes {{}}", Code.INVALID_ARGUMENT)
    for key, given in shards.items():
        if not isinstance(key, str) or not key.isprintable():
            raise Error(f"{key!r} is no key: keys are printable texts", Code.INVALID_ARGUMENT)
        for one in given if isinstance(given, (list, tuple)) else (given,):
            yield key, one if isinstance(one, Shard) else Shard(one, tuple(one.shape) if hasattr(one, "shape") else memoryview(one).shape or ())


def strided_target(key: str, why: str) -> Error:
    """Through a copy it could not be told whether it lies in registered memory, or in another target."""
    return Error(f"target '{key}' {why}: reshard into memory of its own, and copy from there", Code.INVALID_ARGUMENT)


def described(key: str, shard: Shard, dtype: str, shape: Iterable[int], address: int) -> Description:
    """The array has this type and shape and lies there, contiguous, row-major."""
    shape = [int(length) for length in shape]
    whole = [int(length) for length in shard.global_shape]
    box = shape if shard.box is None else [int(length) for length in shard.box]
    offset = [0] * len(whole) if shard.offset is None else [int(place) for place in shard.offset]
    if shard.flat is not None and len(shard.flat) != 2:
        raise Error(f"'{key}': flat is {shard.flat}: the first element of the box, and the one behind the last", Code.INVALID_ARGUMENT)
    flat = (0, 0) if shard.flat is None else (int(shard.flat[0]), int(shard.flat[1]))
    if any(not 0 <= number < 1 << 63 for number in (*whole, *box, *offset, *flat)):
        raise Error(f"'{key}': a box {box} at {offset} of {whole}, elements {flat}: each from 0, below 2**63", Code.INVALID_ARGUMENT)
    if not len(whole) == len(box) == len(offset):
        raise Error(f"'{key}': a box {box} at {offset} of {whole}: say three of one length", Code.INVALID_ARGUMENT)
    if shard.flat is None and shard.box is not None and box != shape:
        raise Error(f"'{key}': an array of shape {shape} is not the box {box}; with flat it may be a range of it", Code.INVALID_ARGUMENT)
    count = math.prod(shape)
    if shard.flat is not None and (shape != [count] or count != flat[1] - flat[0]):
        raise Error(f"'{key}': an array of shape {shape} is not the elements {flat[0]} to {flat[1]} of a box: it has one axis, and so many", Code.INVALID_ARGUMENT)
    if shard.flat is not None and count == 0:
        flat, box = (0, 0), [0] * len(box)  # no element, wherever it is
    return key, dtype, whole, box, offset, flat, address, count * DTYPE_BYTES[dtype], shard.allow_shape_mismatch


def array_described(key: str, shard: Shard, is_target: bool, staged: Staged) -> Description:
    """Of an array of numpy's, or another contiguous buffer."""
    array = shard.array
    if hasattr(array, "__array_interface__"):
        return _numpy_described(key, shard, is_target, staged)
    try:
        view = memoryview(array)
    except TypeError as error:
        raise Error(f"'{key}' ({type(array).__name__}) cannot be resharded: {error}", Code.INVALID_ARGUMENT) from error
    if view.readonly or not view.c_contiguous:
        raise Error(f"'{key}' is read-only or not contiguous, and not of numpy: pass a writable contiguous buffer", Code.INVALID_ARGUMENT)
    address = ctypes.addressof((ctypes.c_char * 0).from_buffer(view)) if view.nbytes else 0
    return described(key, shard, dtype_name(array, view), view.shape or (), address)


def _numpy_described(key: str, shard: Shard, is_target: bool, staged: Staged) -> Description:
    array = shard.array
    if str(array.dtype) not in DTYPE_BYTES:
        raise Error(f"'{key}': elements of type {array.dtype} cannot be resharded", Code.INVALID_ARGUMENT)
    if is_target and not array.flags.writeable:
        raise Error(f"'{key}' is read-only: nothing can be resharded into it", Code.INVALID_ARGUMENT)
    if not array.flags.c_contiguous:
        if is_target:
            raise strided_target(key, "is not contiguous")
        staged.check(key, "is not contiguous")
        array = array.copy(order="C")
        staged.add(array, None)
    address = int(array.__array_interface__["data"][0]) if array.size else 0
    return described(key, shard, str(array.dtype), array.shape, address)
