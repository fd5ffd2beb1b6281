"""What a loader's worker processes draw: each tells, with a batch, what its streams of random numbers have come to.

So a worker that takes another's place goes on in the stream, and nothing needs to be fetched again for it. torch's loader passes
`collate_fn` and `worker_init_fn` to its workers: `Traced` is put in their place while the iterator is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from .streams import Streams, World, moved


class Parcel(NamedTuple):
    """What a worker sends. torch pins the tensors of a named tuple, and leaves the rest."""

    batch: Any
    worker: int
    world: World  # of the streams that were drawn from since the worker was seeded


class Traced:
    """In a worker: the loader's `collate_fn`, and by `begin` its `worker_init_fn`."""

    def __init__(self, data: str, loader: Any, worlds: Mapping[int, World]) -> None:
        self._data = data
        self._collate: Callable[[Any], Any] = loader.collate_fn
        self._begin: Callable[[int], Any] | None = loader.worker_init_fn
        self._batches = loader.batch_sampler is not None
        self._size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 1
        self._worlds = worlds
        self._worker = -1
        self._looks = True

    def begin(self, worker: int) -> None:
        if self._begin is not None:
            self._begin(worker)
        info = get_worker_info()
        data: Any = info.dataset if info else None
        self._streams = Streams({self._data: data, "collate_fn": self._collate, "worker_init_fn": self._begin})
        self._seeded = self._streams.take()
        world = self._worlds.get(worker, {})
        if self._streams.lacks(world) and not isinstance(data, IterableDataset):
            with self._streams.preserved():
                indices = range(min(self._size, len(data)))
                _fetch(data, self._collate, [*indices] if self._batches else 0, self._batches)
        self._streams.put(world)
        self._worker = worker

    def __call__(self, samples: Any) -> Parcel:
        batch = self._collate(samples)
        if self._looks:
            self._looks = False
            self._streams.look()
        return Parcel(batch, self._worker, moved(self._seeded, self._streams.take()))


class Undrawn(Traced):
    """In a worker that goes on into the next pass, which is walked anew from its begin: nothing may be drawn."""

    def __call__(self, samples: Any) -> Any:
        parcel = super().__call__(samples)
        if parcel.world:
            raise RuntimeError("a loader's workers persist and draw random numbers: where they stood as an epoch began is nowhere known. Leave "
                               "persistent_workers out")  # fmt: skip
        return parcel.batch


@contextlib.contextmanager
def replaced(loader: Any, **attributes: Any) -> Iterator[None]:
    """The loader's attributes are others while it makes an iterator. It guards some of them against being set for good."""
    before = {name: loader.__dict__[name] for name in attributes}
    loader.__dict__.update(attributes)
    try:
        yield
    finally:
        loader.__dict__.update(before)


def undrawn(loader: Any) -> None:
    """From its next iterator on."""
    trace = Undrawn("data", loader, {})
    loader.__dict__.update(collate_fn=trace, worker_init_fn=trace.begin)


def traced(loader: Any, worlds: Mapping[int, World], data: str) -> dict[str, Any]:
    """For `replaced`; nothing where the loader has no workers. `data`: the root's name for what is looked into (Streams)."""
    if loader.num_workers == 0:
        return {}
    trace = Traced(data, loader, worlds)
    return {"collate_fn": trace, "worker_init_fn": trace.begin}


def try_out(loader: Any) -> None:
    """A batch that nobody is given: generators that data set, collate function and sampler make themselves for their first one are there then."""
    if isinstance(loader.dataset, IterableDataset):
        next(iter(loader), None)
    elif loader.batch_sampler is None:
        _fetch(loader.dataset, loader.collate_fn, next(iter(loader.sampler)), False)
    else:
        _fetch(loader.dataset, loader.collate_fn, next(iter(loader.batch_sampler)), True)


def _fetch(data: Any, collate: Callable[[Any], Any], indices: Any, batches: bool) -> None:
    fetcher: Any = _MapDatasetFetcher(data, batches, collate, False)
    fetcher.fetch(indices)
