"""The kinds of loaders that can be replayed, each with its own way to stand at a position again; what none of them is, is refused.

A kind fetches batches as plain iteration does. Its mark says, small and picklable, where its pass stands; `go_to` stands there again, in
another process too. What generators are at meanwhile is for the caller to preserve.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from .._errors import Error
from ..abi import Code
from .indices import Indices, behind_in, sampler_of, share_of
from .iterators import of_the_run
from .loader_workers import Parcel, replaced, traced, try_out
from .streams import Streams, World, has_state

Mark = dict[str, Any]


class Kind(Protocol):
    outlasts: bool  # something that a pass has come to is there when the next begins, beside generators
    fetches_here: bool  # in this process, so that its generators may be drawn from

    def begin(self, streams: Streams) -> None:
        """A pass begins, as iter(loader) begins it."""

    def forget(self) -> None:
        """As before the first pass."""

    def fetch(self) -> Any:
        """The next batch; StopIteration at the end."""

    def mark(self) -> Mark: ...

    def first(self, mark: Mark) -> Mark | None:
        """Of the pass's beginning, where it follows from a later one."""

    def go_to(self, streams: Streams, mark: Mark, position: int, ended: bool) -> None:
        """`mark` was taken at `position`, or `jumps` allows another one."""

    def jumps(self, streams: Streams) -> bool:
        """Whether a mark is good for every position of its pass; else only the batches between lead from one to another."""

    def still(self) -> bool:
        """Surely the next fetch draws nothing in this process."""

    def moved_by_indices(self) -> set[str]:
        """The streams from which not the data were drawn in the newest fetch."""

    def skip(self, count: int) -> None:
        """As if so many batches were fetched, for what jumps and fetches here."""

    def try_out(self) -> None:
        """A batch that nobody is given, for what fetches here: what is made for a first one is there then."""


class Listed:
    """A sequence of batches."""

    outlasts = False
    fetches_here = True

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self._at = 0

    def begin(self, streams: Streams) -> None:
        self._at = 0

    def forget(self) -> None:
        self._at = 0

    def fetch(self) -> Any:
        if self._at >= len(self._batches):
            raise StopIteration
        batch = self._batches[self._at]
        self._at += 1
        return batch

    def mark(self) -> Mark:
        return {}

    def first(self, mark: Mark) -> Mark | None:
        return mark

    def go_to(self, streams: Streams, mark: Mark, position: int, ended: bool) -> None:
        self._at = position

    def jumps(self, streams: Streams) -> bool:
        return True

    def still(self) -> bool:
        return isinstance(self._batches, (list, tuple, torch.Tensor))

    def moved_by_indices(self) -> set[str]:
        return set()

    def skip(self, count: int) -> None:
        if self._at + count > len(self._batches):
            raise StopIteration
        self._at += count

    def try_out(self) -> None:
        pass  # nothing here makes batches


class Mapped:
    """A DataLoader over a data set that gives samples by their indices: the indices are walked, the data stay where they are.

    With workers a pass goes on at a worker's turn: those of the round that is under way are fetched once more, one less than there are
    workers at most. `_worlds` is what the workers' streams have come to, `_round` what they were when the round began, `_began` when the
    pass began (workers that persist draw on), `_made` what the main process's stream was when it drew the workers' seed."""

    def __init__(self, loader: DataLoader[Any], name: str) -> None:
        self._loader = loader
        self._name = name
        self._workers = loader.num_workers
        self._persists = self._workers > 0 and loader.persistent_workers
        self.outlasts = self._persists
        self.fetches_here = self._workers == 0
        self._indices: Indices | None = None
        self._iterator: Iterator[Any] | None = None
        self._count = 0
        self._behind = 0  # samples of the epoch's order that other ranks took, before there were these
        self._worlds: dict[int, World] = {}
        self._round: dict[int, World] = {}
        self._began: dict[int, World] = {}
        self._made: World = {}

    @property
    def share(self) -> int | None:
        """Samples of a batch on all ranks that there are now; None: its order is not one for all of them."""
        return share_of(self._loader)

    def begin(self, streams: Streams) -> None:
        again = self._persists and self._iterator is not None
        if again:
            self._drain()
        if self._indices is None or not again:
            self._indices = Indices(None, streams, self._name)
            self._worlds = {}
        self._indices.sampler, self._indices.streams = behind_in(self._loader, 0), streams
        self._indices.open()
        if not again and self._workers:
            now = streams.take()
            # Of the device that torch.set_default_device names the seed is drawn there.
            sources = ("device", streams.name_of(self._loader.generator))
            self._made = {source: now[source] for source in sources if source in now}
        self._iterator = self._make({})
        self._behind = 0
        self._count = 0
        self._began = self._round = dict(self._worlds)

    def forget(self) -> None:
        self._iterator = None
        if self._persists:
            self._loader._iterator = None  # else it would give the workers that there are, at their streams

    def _make(self, worlds: dict[int, World]) -> Iterator[Any]:
        place = "sampler" if self._loader.batch_sampler is None else "batch_sampler"
        with replaced(self._loader, **{place: self._indices}, **traced(self._loader, worlds, "dataset")):
            return of_the_run(iter(self._loader))  # type: ignore[no-any-return]

    def _drain(self) -> None:
        """What workers that persist were asked for beforehand they fetch, also where the pass was left early: torch drops it, and here is
        read first what they have drawn for it."""
        assert self._iterator is not None and self._indices is not None
        self._indices.close()
        for parcel in self._iterator:
            self._unpack(parcel)

    def _unpack(self, parcel: Any) -> Any:
        if not isinstance(parcel, Parcel):
            return parcel
        if parcel.world:
            self._worlds[parcel.worker] = parcel.world
        return parcel.batch

    def fetch(self) -> Any:
        assert self._iterator is not None
        batch = self._unpack(next(self._iterator))
        self._count += 1
        if self._workers and self._count % self._workers == 0:
            self._round = dict(self._worlds)
        return batch

    def mark(self) -> Mark:
        assert self._indices is not None
        return {"records": dict(self._indices.records), "drawn": self._indices.drawn, "sum": self._indices.sum, "behind": self._behind,
                "share": self.share, "workers": self._workers, "made": self._made, "round": self._round,
                "began": self._began if self._persists else {}}  # fmt: skip

    def first(self, mark: Mark) -> Mark | None:
        return {**mark, "round": mark["began"]}

    def go_to(self, streams: Streams, mark: Mark, position: int, ended: bool) -> None:
        if mark["workers"] != self._workers and mark["round"]:
            raise Error(f"loader '{self._name}' has {self._workers} workers, and had {mark['workers']} when its state was saved, which drew random "
                        f"numbers each: go on with num_workers={mark['workers']}", Code.FAILED_PRECONDITION)  # fmt: skip
        first = position - position % self._workers if self._workers else position
        self.forget()
        self._behind = mark["behind"]
        self._indices = Indices(behind_in(self._loader, self._behind), streams, self._name)
        self._indices.stand(mark["records"], mark["drawn"], mark["sum"], first)
        self._made, self._began = mark["made"], mark["began"]
        self._round, self._worlds = mark["round"], dict(mark["round"])
        if self._made:
            streams.put(self._made)
        self._iterator = self._make(self._round)
        self._count = first
        for _ in range(position - first):
            self.fetch()

    def jumps(self, streams: Streams) -> bool:
        return not self._worlds if self._workers else not streams.names("dataset", "collate_fn")

    def still(self) -> bool:
        return self._workers > 0 and self._indices is not None and self._indices.quiet

    def moved_by_indices(self) -> set[str]:
        assert self._indices is not None
        return self._indices.last_moved

    def skip(self, count: int) -> None:
        assert self._indices is not None
        for _ in range(count):
            next(self._indices)
        self._count += count

    def try_out(self) -> None:
        if self.fetches_here:
            try_out(self._loader)

    def take_over(self, marks: list[Mark], position: int) -> Mark:
        """What is left of the epoch's order, for other ranks than those that began with it."""
        if any(mark["share"] is None for mark in marks) or self.share is None:
            raise Error(f"loader '{self._name}' cannot go on with another number of ranks: the order of its "
                        f"{type(sampler_of(self._loader)).__name__} is not one for all ranks that anybody could divide "
                        "anew, as torch's DistributedSampler's is; resume with as many ranks as saved",
                        Code.INVALID_ARGUMENT)  # fmt: skip
        taken = {mark["behind"] + position * mark["share"] for mark in marks}
        if len(taken) != 1:
            raise Error(f"loader '{self._name}': the ranks that saved had taken {sorted(taken)} samples of the epoch, not one number", Code.INVALID_ARGUMENT)
        return {"records": {}, "drawn": 0, "sum": 0, "behind": taken.pop(), "share": self.share, "workers": self._workers,
                "made": {}, "round": {}, "began": {}}  # fmt: skip


class Stateful:
    """What has a state of its own, or a DataLoader over what has one."""

    outlasts = True

    def __init__(self, loader: Any, holder: Any, name: str) -> None:
        self._loader = loader
        self._name = name
        self._holder = holder
        # torchdata's makes an iterator to tell its state, and draws for it; an empty state makes it begin
        self._initial = pickle.dumps({} if hasattr(loader, "snapshot_every_n_steps") else holder.state_dict())
        self._iterator: Iterator[Any] | None = None
        self._traces = isinstance(loader, DataLoader) and loader.num_workers > 0
        self.fetches_here = not self._traces
        self._worlds: dict[int, World] = {}
        self._persists = self._traces and loader.persistent_workers
        self._at_end = False
        self._ended = False  # the state that was put back is of a pass's end: this loader makes its workers and the next pass at once

    def begin(self, streams: Streams) -> None:
        if self._persists and self._ended:
            self._ended = self._at_end = False
            with streams.preserved(own=False):
                self._make(self._worlds)
            return
        if not (self._persists and self._iterator is not None):
            self._worlds = {}
        elif self._worlds and not self._at_end:
            raise Error(
                f"loader '{self._name}': its workers persist and draw random numbers, and the pass was left before its end: what they drew for batches "
                "that nobody took is nowhere known. persistent_workers=False, or torch.utils.data.DataLoader", Code.FAILED_PRECONDITION)  # fmt: skip
        self._at_end = False
        self._make({})

    def forget(self) -> None:
        self._iterator = None
        self._holder.load_state_dict(pickle.loads(self._initial))

    def _make(self, worlds: dict[int, World]) -> None:
        with replaced(self._loader, **(traced(self._loader, worlds, "data") if self._traces else {})):
            self._iterator = of_the_run(iter(self._loader))

    def fetch(self) -> Any:
        assert self._iterator is not None
        try:
            parcel = next(self._iterator)
        except StopIteration:
            self._at_end = True
            raise
        if not isinstance(parcel, Parcel):
            return parcel
        if parcel.world:
            self._worlds = {**self._worlds, parcel.worker: parcel.world}
        return parcel.batch

    def mark(self) -> Mark:
        return {"state": pickle.dumps(self._holder.state_dict(), protocol=pickle.HIGHEST_PROTOCOL), "worlds": self._worlds}

    def first(self, mark: Mark) -> Mark | None:
        return None

    def go_to(self, streams: Streams, mark: Mark, position: int, ended: bool) -> None:
        self._iterator = None
        self._worlds = mark["worlds"]
        self._holder.load_state_dict(pickle.loads(mark["state"]))
        self._ended = self._at_end = ended
        if not ended or (self._holder is self._loader and isinstance(self._loader, DataLoader) and not self._persists):
            self._make(self._worlds)

    def jumps(self, streams: Streams) -> bool:
        return False

    def still(self) -> bool:
        return False

    def moved_by_indices(self) -> set[str]:
        return set()

    def skip(self, count: int) -> None:
        raise AssertionError("this does not jump")

    def try_out(self) -> None:
        if self.fetches_here:
            next(iter(self._loader), None)
            self.forget()


def kind_of(loader: Any, name: str) -> Kind:
    """Refuses by name what cannot be replayed."""

    def refused(why: str) -> Error:
        return Error(f"loader '{name}' cannot be replayed: {why}", Code.INVALID_ARGUMENT)

    kind = type(loader)
    if kind.__module__.startswith("accelerate."):
        raise refused(f"{kind.__name__} is what accelerator.prepare has made, it reads a batch ahead and talks to other ranks: give the DataLoader that was "
                      "prepared, with a DistributedSampler, and move batches by accelerate.utils.send_to_device")  # fmt: skip
    if isinstance(loader, DataLoader):
        return _kind_of_data_loader(loader, name, refused)
    if has_state(loader):
        return Stateful(loader, loader, name)
    if kind is zip or isinstance(loader, (tuple, list)) and any(isinstance(part, DataLoader) for part in loader):
        raise refused("several loaders side by side are no loader: walk one of them, whose data set gives the samples of all "
                      "(torch.utils.data.StackDataset(first, second))")  # fmt: skip
    listed = isinstance(loader, (Sequence, torch.Tensor)) or not hasattr(loader, "__iter__")
    if listed and not isinstance(loader, (str, bytes)) and hasattr(loader, "__getitem__") and hasattr(loader, "__len__"):
        return Listed(loader)
    if isinstance(loader, Iterator):
        raise refused(f"a {kind.__name__} can be walked once: give the DataLoader or the list that it walks, not iter(...) or enumerate(...) of it, or give "
                      "an object with __iter__, state_dict and load_state_dict")  # fmt: skip
    raise refused(f"nobody knows what the next iter() of a {kind.__name__} gives: give the DataLoader itself and do in the loop what {kind.__name__} does to "
                  "its batches, or give it state_dict and load_state_dict")  # fmt: skip


def _kind_of_data_loader(loader: Any, name: str, refused: Callable[[str], Error]) -> Kind:
    kind = type(loader)
    if loader.num_workers > 0 and not loader.in_order:
        raise refused("in_order=False leaves the order of its batches to chance: leave it out")
    if loader.num_workers > 0 and loader.persistent_workers and loader._iterator is not None:
        raise refused("its persistent workers run already, and may have drawn: look at a batch in another loader, or make this one anew")
    iterable = isinstance(loader.dataset, IterableDataset)
    if iterable and type(loader.dataset).__module__.startswith("accelerate."):
        raise refused("accelerate gives each rank a part of its IterableDataset, and keeps no state of that: use a data set that gives samples by their indices "
                      "(__getitem__, __len__; load_dataset without streaming=True)")  # fmt: skip
    if iterable and not has_state(loader.dataset):
        raise refused(f"its data set, a {type(loader.dataset).__name__}, is an IterableDataset without state_dict and load_state_dict, which alone could tell "
                      "where it stands: give it these two, or use a data set that gives samples by their indices (__getitem__, __len__)")  # fmt: skip
    if has_state(loader):
        if loader.num_workers > 0 and not hasattr(loader, "snapshot_every_n_steps"):
            raise refused(f"what the workers of a {kind.__name__} draw is not known to be in its state: num_workers=0, or torchdata's StatefulDataLoader")
        if loader.num_workers > 0 and getattr(loader, "snapshot_every_n_steps", 1) != 1:
            raise refused(f"its state is that of every {loader.snapshot_every_n_steps}th batch: snapshot_every_n_steps=1 (the default)")
        if not iterable and not all(_walks_alike(one) for one in (loader.sampler, loader.batch_sampler)):
            raise refused(f"{kind.__name__} does not keep what its {type(loader.sampler).__name__} draws: shuffle=True in its place, or "
                          f"torch.utils.data.DataLoader in place of {kind.__name__}")  # fmt: skip
        return Stateful(loader, loader, name)
    if kind.__iter__ is not DataLoader.__iter__ or kind._get_iterator is not DataLoader._get_iterator:
        raise refused(f"{kind.__name__} iterates in a way of its own: use torch.utils.data.DataLoader, or give it state_dict and load_state_dict")
    if not iterable:
        return Mapped(loader, name)
    if loader.num_workers > 0:
        raise refused("the state of its IterableDataset is in its workers: torchdata's StatefulDataLoader in place of DataLoader, or num_workers=0")
    return Stateful(loader, loader.dataset, name)


def _walks_alike(sampler: Any) -> bool:
    """torchdata's own, what has a state, and what draws from no generator that others draw from."""
    known = sampler is None or type(sampler) in (SequentialSampler, DistributedSampler)
    return known or type(sampler).__module__.startswith("torchdata.") or has_state(sampler)
