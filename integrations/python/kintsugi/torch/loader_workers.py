"""What a loader's worker processes draw: each tells, with a batch, what its streams of random numbers have come to.

So a worker that takes another's place goes on in the stream, and nothing needs to be fetched again for it. torch's loader passes
`collate_fn` and `worker_init_fn` to its workers: `Traced` is put in their place while the iterator is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from .streams import Streams, World, moved


class Parcel(NamedTuple):
    """What a worker sends. torch pins the tensors of a named tuple, and leaves the rest."""

    batch: Any
    worker: int
    world: World  # of the streams that were drawn from since the worker was seeded


class Traced:
    """In a worker: the loader's `collate_fn`, and by `begin` its `worker_init_fn`."""

    def __init__(self, data: str, collate: Callable[[Any], Any], begin: Callable[[int], Any] | None, worlds: Mapping[int, World]) -> None:
        self._data = data
        self._collate = collate
        self._begin = begin
        self._worlds = worlds
        self._worker = -1

    def begin(self, worker: int) -> None:
        if self._begin is not None:
            self._begin(worker)
        info = get_worker_info()
        self._streams = Streams({self._data: info.dataset if info else None, "collate_fn": self._collate, "worker_init_fn": self._begin})
        self._seeded = self._streams.take()
        self._streams.put(self._worlds.get(worker, {}))
        self._worker = worker

    def __call__(self, samples: Any) -> Parcel:
        batch = self._collate(samples)
        return Parcel(batch, self._worker, moved(self._seeded, self._streams.take()))


@contextlib.contextmanager
def replaced(loader: Any, **attributes: Any) -> Iterator[None]:
    """The loader's attributes are others while it makes an iterator. It guards some of them against being set for good."""
    before = {name: loader.__dict__[name] for name in attributes}
    loader.__dict__.update(attributes)
    try:
        yield
    finally:
        loader.__dict__.update(before)


def traced(loader: Any, worlds: Mapping[int, World], data: str) -> dict[str, Any]:
    """For `replaced`; nothing where the loader has no workers. `data`: the root's name for what is looked into (Streams)."""
    if loader.num_workers == 0:
        return {}
    trace = Traced(data, loader.collate_fn, loader.worker_init_fn, worlds)
    return {"collate_fn": trace, "worker_init_fn": trace.begin}
