"""The indices of a pass over a data set, which can be walked again without the data.

A sampler draws from generators that the trainer draws from, too, between its own draws: a walk from the start would meet other numbers.
So the state that a generator had is recorded wherever the sampler drew from it, and a walk alone would have come to another.
RandomSampler draws once: one state. A sampler with a seed of its own (DistributedSampler) needs none. A sum over the indices tells a sampler
that does not give the same again.
"""

from __future__ import annotations

import copy
import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from .._errors import Error
from ..abi import Code
from .streams import Streams, World, moved

_MOST_RECORDS = 64  # a state has some 5 KB, and all are part of every step's state
_MAKING = -1  # the number under which the making of the sampler's iterator is recorded


class Indices:
    """Stands in for a loader's sampler (or batch sampler) while the loader makes an iterator, which keeps it."""

    def __init__(self, sampler: Any, streams: Streams, name: str) -> None:
        self.sampler = sampler
        self.streams = streams
        self.drawn = 0  # indices so far in this pass
        self.records: dict[int, World] = {}
        self.last_moved: set[str] = set()  # by the newest index
        self.sum = 0  # over these indices
        self._name = name
        self._known = 0  # indices below were drawn before, by this process or by the one whose place it takes
        self._known_sum = 0
        self._alone: World = {}  # what a walk without anybody's other draws has come to, of the streams that the sampler draws from
        self._inner: Iterator[Any] = iter(())
        self._stands = False  # an iterator that is made now goes on where this is
        self._quiet = False

    def open(self) -> None:
        """The next iterator begins a pass."""
        self._stands = False

    def close(self) -> None:
        """There are no more."""
        self._inner = iter(())

    def stand(self, records: dict[int, World], known: int, known_sum: int, behind: int) -> None:
        """The next iterator goes on `behind` so many indices. What the generators are at is for the caller to preserve."""
        self.records, self._known, self._known_sum, self.drawn, self.sum = dict(records), known, known_sum, 0, 0
        self.streams.put(self.records.get(_MAKING, {}))
        self._inner = iter(self.sampler)
        for k in range(behind):
            if k in self.records:
                self.streams.put(self.records[k])
            self._count(next(self._inner, None))
        names = {name for k, record in self.records.items() if k < behind for name in record}
        self._alone = {name: state for name, state in self.streams.take().items() if name in names}
        self._stands, self._quiet = True, draws_at_first(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Indices:
        if not self._stands:
            self.drawn, self.sum, self.records, self._known, self._alone = 0, 0, {}, 0, {}
            self._inner = self._draw(_MAKING, lambda: iter(self.sampler))
            self._quiet = draws_at_first(self.sampler)
        return self

    @property
    def quiet(self) -> bool:
        """Nothing will be drawn for the indices that are left."""
        return self._quiet and self.drawn > 0

    def __next__(self) -> Any:
        if self.drawn < self._known:
            index = self._draw_again(self.drawn, self._inner.__next__)
        elif self.quiet:
            self.last_moved.clear()
            index = next(self._inner)
        else:
            index = self._draw(self.drawn, self._inner.__next__)
        self._count(index)
        return index

    def _count(self, index: Any) -> None:
        first = index[0] if type(index) is list and index else index
        if isinstance(first, (int, str)) or index is None:  # what else there is may print as where it lies
            self.sum = zlib.crc32(repr(index).encode(), self.sum)
        self.drawn += 1
        if self.drawn == self._known and self.sum != self._known_sum:
            raise Error(
                f"loader '{self._name}': its sampler {self._kind()}, walked again from the pass's beginning, gives other indices than before: each iter() "
                "of it must begin anew, and follow from its arguments, set_epoch and random generators alone", Code.FAILED_PRECONDITION)  # fmt: skip

    def _kind(self) -> str:
        return type(self.sampler.sampler if type(self.sampler) is BatchSampler else self.sampler).__name__

    def _draw(self, k: int, draw: Callable[[], Any]) -> Any:
        before = self.streams.take()
        try:
            return draw()
        finally:
            drew = moved(before, self.streams.take())
            self.last_moved = set(drew)
            record = {name: before[name] for name in drew if name in before and before[name] != self._alone.get(name)}
            if record:
                self._record(k, record)
            self._alone.update(drew)

    def _record(self, k: int, record: World) -> None:
        if len(self.records) == _MOST_RECORDS:
            raise Error(
                f"loader '{self._name}': its sampler {self._kind()} draws again and again from {', '.join(record)}, which others draw from, too: "
                "it cannot be walked again. Give it a generator of its own, generator=torch.Generator().manual_seed(...)", Code.INVALID_ARGUMENT)  # fmt: skip
        self.records[k] = record

    def _draw_again(self, k: int, draw: Callable[[], Any]) -> Any:
        """As it was: from the streams as they were then, which it leaves as it left them; the others stay as they are."""
        now = self.streams.take()
        self.streams.put({**self._alone, **self.records.get(k, {})})
        then = self.streams.take()
        try:
            return draw()
        finally:
            drew = moved(then, self.streams.take())
            self.last_moved = set(drew)
            self._alone.update(drew)
            self.streams.put({**now, **drew})


def draws_at_first(sampler: Any) -> bool:
    """Whether a sampler draws for its first index or not at all. Of torch's own it is known; of any other each index is looked at."""
    kind = type(sampler)
    if kind in (BatchSampler, DistributedSampler, SequentialSampler, Remainder, SubsetRandomSampler, WeightedRandomSampler):
        return kind is not BatchSampler or draws_at_first(sampler.sampler)
    return kind is RandomSampler and sampler.generator is None  # else it draws from that for more than there are samples, and at the end


class Remainder:
    """What a DistributedSampler's order has left behind its first `behind` samples, for the ranks that there are now."""

    def __init__(self, sampler: DistributedSampler[Any], behind: int) -> None:
        self._sampler = sampler
        self._behind = behind

    def _mine(self) -> list[Any]:
        ranks = self._sampler.num_replicas
        alone = copy.copy(self._sampler)
        alone.num_replicas, alone.rank, alone.num_samples = 1, 0, len(alone.dataset)  # type: ignore[arg-type]
        alone.total_size = alone.num_samples
        order = list(alone)
        rest = order[self._behind :]
        if self._sampler.drop_last:
            rest = rest[: len(rest) // ranks * ranks]
        elif rest:
            rest += list(itertools.islice(itertools.cycle(order), -len(rest) % ranks))  # as DistributedSampler fills up, from the front
        return rest[self._sampler.rank :: ranks]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mine())

    def __len__(self) -> int:
        return len(self._mine())


def sampler_of(loader: Any) -> Any:
    """What gives a loader's samples; its batch sampler where that is one of its own kind."""
    batches = loader.batch_sampler
    return loader.sampler if batches is None else batches.sampler if type(batches) is BatchSampler else batches


def share_of(loader: Any) -> int | None:
    """How many samples of the epoch's order all ranks take together with a batch each; None where its order is not known to be one for
    all of them: it is torch's own DistributedSampler's, with torch's own batches."""
    sampler = sampler_of(loader)
    if type(sampler) is not DistributedSampler:
        return None
    return int(sampler.num_replicas) * (1 if loader.batch_sampler is None else int(loader.batch_sampler.batch_size))


def behind_in(loader: Any, behind: int) -> Any:
    """The sampler that the loader would ask for indices, for what is left behind so many samples."""
    if behind == 0:
        return loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    rest = Remainder(sampler_of(loader), behind)
    if loader.batch_sampler is None:
        return rest
    return BatchSampler(rest, loader.batch_sampler.batch_size, loader.batch_sampler.drop_last)
