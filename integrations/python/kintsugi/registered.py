"""What a rank registers: arrays and memory, objects, values. Works with any array that has a buffer.

Threads: the trainer's. Errors: Error, which names what is registered.
"""

from __future__ import annotations

import ctypes
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from . import _core
from ._errors import Error
from .abi import Code
from .arrays import DTYPE_BYTES, dtype_name, like
from .cuts import Cut, parts_of
from .objects import Objects
from .pickled import Pickling, Reducer
from .program import Program
from .slices import Held, Slice
from .take_over import TakeOver, take_over_of
from .terms import FIRST_OF_HOLDERS, Codec, Incident, Piece
from .values import NamedValues, Values
from .variables import Variable, variables_of


class _Tensor(NamedTuple):
    dtype: str
    whole: list[int]
    box: list[int]
    offset: list[int]
    flat: tuple[int, int]
    size_bytes: int
    layout: int
    address: int  # as it was registered
    may_differ: bool


@dataclass
class _Cut:
    """How the state is cut among those that take part."""

    layouts: dict[int, tuple[int, ...]] = field(default_factory=dict)  # number -> who holds the same
    tensors: dict[str, _Tensor] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


class Registered:
    """The part of a run that is its state."""

    REDUCERS: Mapping[type, Reducer] = {}  # of what its arrays are made of, where they pickle with more than their values

    def __init__(self, agent: _core.Agent, program: Program) -> None:
        self.agent = agent
        self._pickling = Pickling(self.REDUCERS)
        self._objects = Objects(agent, program, self._pickling, agent.note_inexact)
        self.crew = tuple(agent.crew)  # the ranks that take part, as the launcher numbers them: every step looks at it
        self._replicas: tuple[list[int], int] | None = None
        self._cut = _Cut()
        self._before: _Cut | None = None  # what is registered, where `_cut` is what may be it from the next step on
        self._cut_in = 0  # the generation in which that was said
        self._keep: list[Any] = []  # arrays that registered memory belongs to
        self._addresses: set[int] = set()  # where what is registered begins

    @property
    def rank(self) -> int:
        """This rank's number, 0 to world_size - 1: its place among those that take part. Another one once ranks below it have left (`offer`)."""
        return self.agent.number

    @property
    def world_size(self) -> int:
        """How many ranks take part."""
        return len(self.crew)

    # ---- arrays and memory --------------------------------------------------------------------------------------------

    def register(self, key: str, array: Any, /, *, cuts: Cut | None = None, allow_shape_mismatch: bool = False) -> Any:
        """Protects an array (numpy's, or any writable contiguous buffer) that every rank holds alike.

        It is copied into memory that outlives a killed process; the copy is returned, of the same type and shape for numpy,
        and must be used in its place.

        `cuts`: ranks hold parts of something larger, or what is one array is stored as several tensors: the rule that says so
        (kintsugi.cut). With other ranks a run goes on from what was saved, each with its parts.

        `allow_shape_mismatch`: where the run resumes from an array of another shape with as many axes (of the whole, where it is cut), what both
        have is taken, and the rest is zero: a table padded to another number of rows. Else such a run ends with the array's name.
        """
        try:
            source = memoryview(array)
        except (TypeError, ValueError) as error:
            raise Error(f"array '{key}' cannot be protected: {error}", Code.INVALID_ARGUMENT) from error
        if not source.c_contiguous:
            raise Error(f"array '{key}' is not contiguous: register a contiguous copy", Code.INVALID_ARGUMENT)
        dtype = dtype_name(array, source)
        shape = list(source.shape or ())
        parts = None if cuts is None else parts_of(key, shape, cuts)
        state = self.state_memory(max(source.nbytes, 1))
        state.fill_with(0, source)
        state.finish()
        memory = state.view()
        if parts is None:
            self.register_memory(key, memory, dtype, shape, allow_shape_mismatch=allow_shape_mismatch)
        for part in parts or ():
            if count := part.elements():
                first = part.first * source.itemsize
                used = memory[first : first + count * source.itemsize]
                self.register_memory(part.key, used, dtype, part.piece.box or (), part.piece, allow_shape_mismatch)
        return like(array, memory, source)

    def state_memory(self, size_bytes: int) -> _core.StateMemory:
        """Memory that outlives a killed process, to be filled with what is registered then."""
        return _core.StateMemory(self.agent, size_bytes)

    def register_memory(
        self, key: str, memory: Any, dtype: str, shape: Iterable[int], piece: Piece | None = None, allow_shape_mismatch: bool = False,
        device: int | None = None,
    ) -> None:  # fmt: skip
        """The same for memory that is in its place already: a writable buffer, or (address, bytes). `piece`: it is part of a
        larger tensor, or held by other ranks than set_replicas says. `allow_shape_mismatch`: as of register. `device`: the number of the device
        (agent.open_device) that it lies on; None: the host."""
        local = list(shape)
        box = local if piece is None or piece.box is None else list(piece.box)
        address, size = self._place_of(memory)
        count = 1
        for length in local:
            count *= length
        flat = (0, 0) if piece is None else piece.flat
        if flat != (0, 0):
            count = flat[1] - flat[0]
        bytes_used = count * DTYPE_BYTES[dtype] if dtype in DTYPE_BYTES else size
        layout = self._layout_for(key, piece)
        whole = local if piece is None else list(piece.global_shape)
        offset = [0] * len(local) if piece is None else list(piece.offset)
        if self._before is None:
            self.agent.register_tensor(key, dtype, whole, box, offset, flat, address, bytes_used, layout, 0 if device is None else device + 1, allow_shape_mismatch)
        self._cut.tensors[key] = _Tensor(dtype, whole, box, offset, flat, bytes_used, layout, address, allow_shape_mismatch)
        self._addresses.add(address)

    def _lies_registered(self, value: Any) -> bool:
        """An array, or a tensor."""
        if hasattr(value, "data_ptr"):
            return value.data_ptr() in self._addresses
        return hasattr(value, "__array_interface__") and value.__array_interface__["data"][0] in self._addresses

    def rebind(self, key: str, memory: Any) -> None:
        """What is registered as `key` lies in `memory` from now on: a writable buffer, or (address, bytes), that holds its bytes
        already. In handlers (clean, rebuild, rollback) only; what the old place holds is nobody's any more."""
        if key not in self._cut.tensors:
            raise Error(f"no array '{key}' is registered that could be rebound", Code.NOT_FOUND)
        one = self._cut.tensors[key]
        address, given = self._place_of(memory)
        if given < one.size_bytes:
            raise Error(f"array '{key}' of {one.size_bytes} bytes cannot be rebound to {given}", Code.INVALID_ARGUMENT)
        self.agent.rebind_tensor(key, one.dtype, one.whole, one.box, one.offset, one.flat, address, one.size_bytes, one.layout, 0)

    def unregister(self, key: str) -> None:
        """What is registered as `key` is no part of the state any more, on no rank: it is not repaired, compared or saved from then
        on. In handlers (clean, rebuild, rollback) only; in clean and rebuild one rank that says so is enough, in rollback every one
        that registered it must. Nothing happens where it is gone already."""
        self.agent.unregister_tensor(key)

    def holds(self, key: str) -> bool:
        """Whether `key` is part of this rank's state: registered, and not unregistered here or on another rank."""
        return self.agent.has_tensor(key)

    def _place_of(self, memory: Any) -> tuple[int, int]:
        """Address and size; a buffer is kept."""
        if isinstance(memory, tuple):
            return memory
        view = memoryview(memory)
        holder = (ctypes.c_char * 0).from_buffer(view)
        self._keep.append((memory, holder))
        return ctypes.addressof(holder), view.nbytes

    def _layout_for(self, key: str, piece: Piece | None) -> int:
        """The number of a set of holders: one that all of them find without asking. Where ranks may leave, or come, it has to be found among others,
        too, where the holders have other numbers: by the first that they hold alone."""
        usual = self.usual_holders()
        if piece is None or piece.holders == usual:
            self._cut.layouts[0] = usual
            return 0
        if self.offers and (known := [number for number, holders in self._cut.layouts.items() if number != 0 and holders == piece.holders]):
            return known[0]
        name = repr((key, piece.offset, piece.flat) if self.offers else piece.holders)
        number = FIRST_OF_HOLDERS + (zlib.crc32(name.encode()) & 0x3FFFFFFF)
        if self._cut.layouts.setdefault(number, piece.holders) != piece.holders:
            raise Error(f"ranks {piece.holders} and {self._cut.layouts[number]} have one layout number: register them apart", Code.INTERNAL)
        return number

    def _layouts_of_crew(self) -> Iterator[tuple[int, list[int], int]]:
        """Number, who shares it as the launcher numbers them, and how many of them hold the same."""
        crew = self.agent.crew
        ranks, replicas = self._replicas or (list(range(self.world_size)), self.world_size)
        if not self._cut.layouts or 0 in self._cut.layouts:
            yield 0, [crew[rank] for rank in ranks], replicas
        for number, holders in self._cut.layouts.items():
            if number != 0:
                yield number, [crew[rank] for rank in holders], len(holders)

    def set_replicas(self, ranks: Iterable[int], replicas: int) -> None:
        """Which ranks share this one's state, and how many hold the same. Default: all ranks hold the same."""
        if self._cut.layouts:
            raise Error("set_replicas comes before what it is about is registered", Code.FAILED_PRECONDITION)
        said, default = (sorted(ranks), replicas), ([*range(self.world_size)], self.world_size)
        self._replicas = said if said != default else None

    def usual_holders(self) -> tuple[int, ...]:
        """Who holds the same as this rank where no piece says otherwise."""
        ranks, replicas = self._replicas or (list(range(self.world_size)), self.world_size)
        stride = max(len(ranks) // replicas, 1)
        return tuple(ranks[ranks.index(self.rank) % stride :: stride]) if self.rank in ranks else (self.rank,)

    # ---- state that is cut anew ----------------------------------------------------------------------------------------

    @contextmanager
    def _cutting_anew(self, generation: int) -> Iterator[None]:
        """What is registered within is what this rank is to hold among those that take part now. It is filled in REPAIR and used from ROLLBACK on; what
        was registered before counts until all have gone on, and stays as it is."""
        self._before, self._cut, self._cut_in = self._cut, _Cut(), generation
        try:
            yield
            shards = [(key, one.dtype, one.whole, one.box, one.offset, one.flat, one.address, one.size_bytes, one.may_differ) for key, one in self._cut.tensors.items()]
            self.agent.cut_anew(shards, [one.layout for one in self._cut.tensors.values()], [*self._layouts_of_crew()], self._cut.aliases)
        except BaseException:
            self._drop_cut()
            raise

    def _settle_cut(self, incident: Incident) -> None:
        """As the agent does it (runtime/core/next_fate.h)."""
        if self._before is None:
            return
        if incident.registered_in == self._cut_in:
            self._keep_cut()
        elif incident.generation != self._cut_in:
            self._drop_cut()

    def _keep_cut(self) -> None:
        """It is what is registered from here on."""
        self._before = None

    def _drop_cut(self) -> None:
        """The change came to nothing."""
        assert self._before is not None
        self._cut, self._before = self._before, None

    @property
    def offers(self) -> bool:
        """Whether the run may go on with other ranks."""
        return False

    def held_alone(self) -> Iterable[Held]:
        """What not all ranks hold alike, by number."""
        everybody = tuple(range(self.world_size))
        for key, one in self._cut.tensors.items():
            holders = self._cut.layouts[one.layout] if one.layout != 0 else self.usual_holders()
            if holders != everybody:
                part = f", elements {one.flat[0]} to {one.flat[1]} of them" if one.flat != (0, 0) else ""
                yield Held(key, f"{one.box} at {one.offset} of {one.whole}{part}", holders)

    def slice_of(self) -> Slice:
        """The ranks that together hold one replica of all that is registered, by number, this one among them."""
        for held in self.held_alone():
            raise Error(f"run.offer: '{held.key}' is held by ranks {', '.join(map(str, held.holders))} alone, and the others lack it: only what all ranks hold alike "
                        "can go on with fewer. Leave run.offer out", Code.FAILED_PRECONDITION)  # fmt: skip
        return (self.rank,)

    def register_alias(self, alias: str, key: str) -> None:
        """One more name of a registered array (tied weights): it is held and repaired once, checkpoints have both names, and a run
        resumes from one that has either."""
        if self._before is None:
            self.agent.register_alias(alias, key)
        self._cut.aliases[alias] = key

    # ---- objects and values -------------------------------------------------------------------------------------------

    def register_object(
        self, key: str, thing: Codec, take_over: TakeOver | None = None, *, grid: tuple[Sequence[int], Sequence[int]] | None = None
    ) -> None:
        """Protects what is no array: anything with state_dict and load_state_dict. Its state at the gate of each step is kept
        by the replica partners, and put back where a step begins anew.

        `take_over`: how it goes on where a run resumes with other ranks ("same-rank", "rank-zero", "derived", or a function of what
        all ranks saved; see TakeOver). Nothing is guessed: unless it is said, such a run ends with the object's name.

        `grid`: (place, shape) where it is one cell of a grid of objects under this key (Megatron's ShardedObject), as ((0, 1), (2, 2)).
        Ranks with the same place hold the same. In checkpoints the cell is called "KEY/shard_0.1_2.2"; with other ranks a run takes
        it over from wherever it was, if the grid has the same shape."""
        if not (callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))):
            raise Error(f"object '{key}' ({type(thing).__name__}) lacks state_dict or load_state_dict", Code.INVALID_ARGUMENT)
        if grid is not None:
            key, take_over = _cell_key(key, *grid), "cell" if take_over is None else take_over
        how, function = take_over_of(key, take_over)
        self._pickling.bytes_of(key, thing)  # what cannot travel is told here
        self.agent.register_object(key, True, how, function)
        self._objects.add(key, thing, (how, function))

    def keep(self, owner: Any, /, *names: str, take_over: TakeOver | None = None) -> None:
        """Protects variables of the script's own, which change from step to step or decide what it does: `run.keep(globals(), "best", "x")`,
        or attributes of an object, `run.keep(trainer, "best")`. Each is an object with its name, the second of a name NAME.2. `take_over`: as of
        register_object."""
        for name, variable in variables_of(owner, names, sys._getframe(1)).items():
            same = sum(isinstance(self._objects.thing(key), Variable) for key in self._objects if key == name or key.startswith(f"{name}."))
            self.register_object(f"{name}.{same + 1}" if same else name, variable, take_over)

    def register_values(self, key: str, thing: NamedValues, take_over: Literal["rank-zero", "derived"] = "rank-zero") -> None:
        """The same for small numbers and texts that are equal on all ranks: `thing.state_dict()` gives them by name ("consumed_samples",
        "opt_param_scheduler.num_steps": dots are dictionaries within each other). A checkpoint of any format has each of them under
        its name, as a number, where the format's own readers look for it; a run with other ranks takes them over from there, or, where they
        never change in a run, goes on with its own ("derived")."""
        values = Values(key, thing, never_changes=take_over == "derived")
        values.encode()  # what is no value is told here
        how = take_over_of(key, take_over)
        self.agent.register_object(key, True, *how)
        self._objects.add(key, values, how)

    def exchange_object(self, key: str, thing: Codec) -> None:
        """Another in the place of a registered object: from now on it is its state that is kept, and put back."""
        if key not in self._objects:
            raise Error(f"object '{key}' was not registered, so nothing can take its place", Code.INVALID_ARGUMENT)
        self._objects.exchange(key, thing)


def _cell_key(key: str, place: Sequence[int], shape: Sequence[int]) -> str:
    """As Megatron-core names it (callbacks/state/key.h, GridName)."""
    if not shape or len(place) != len(shape) or any(not 0 <= at < size for at, size in zip(place, shape)):
        raise Error(f"object '{key}': {tuple(place)} is no place in a grid of {tuple(shape)}: along each axis from 0, below how many there are", Code.INVALID_ARGUMENT)
    return f"{key}/shard_{'.'.join(map(str, place))}_{'.'.join(map(str, shape))}"
