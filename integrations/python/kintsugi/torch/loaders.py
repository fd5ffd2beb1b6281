"""A data loader of a script, of which any batch of the pass can be had again, bit for bit: in a step that is done once more, in a process
that takes a lost one's place, in a run that resumes.

What draws, and when, is as in plain torch. A loader's sampler draws when the iterator is made or at the first batch; then the indices are
walked without the data (`indices.py`). A data set that draws in this process draws from what the process has come to: whoever goes back
to an earlier step puts back the process's generators, as the run does, and the data set draws the same. Workers draw from streams of their
own, which are part of the state (`loader_workers.py`). Generators that a sampler or data set keeps are found and are part of the state,
too (`streams.py`).

What it costs to stand at position n: without workers, n index lists (about 1 us and what the sampler takes); with workers besides their start and
less than one batch each. Without a saved state, where workers or a data set's own generators have drawn, n batches, fetched and dropped: exact, not
fast. Something else than a generator that a data set changes as it goes (a count, an open file) is nowhere known: give it a state_dict.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, IterableDataset

from .._errors import Error
from ..abi import Code
from ..source import FRAMEWORKS
from .devices import Device
from .fewer_ranks import Share
from .indices import sampler_of
from .kept_batches import KeptBatch
from .loader_kinds import Mapped, Mark, kind_of
from .streams import SHARED, Streams, World, has_state, kept, moved


class _Place(NamedTuple):
    """What is needed to stand before a batch again."""

    mark: Mark
    own: World  # generators of the loader's own


class _Entry(NamedTuple):
    """A batch that was handed out."""

    batch: KeptBatch
    before: _Place
    moved: World  # what it left the streams at that it drew from


class Batches:
    """One data loader of the script, kept for the whole run; each pass over it begins with `begin`.

    A batch that is handed out once more leaves all generators that it was drawn from as it left them the first time."""

    def __init__(self, loader: Any, name: str = "loader", device: Device | None = None) -> None:
        self._loader = loader
        self._device = device
        self._name = name
        self._kind = kind_of(loader, name)
        self._keep = 1
        self._kept: collections.deque[_Entry] = collections.deque(maxlen=1)
        self._streams = Streams(self._parts(), self._device)
        self._epochs: list[int | None] = []
        self._place: _Place | None = None  # before the first pass: none
        self._first: _Place | None = None  # of the pass, where it began in this process
        self._stands = False  # the iterator is there, and where it should be
        self._looks = True  # behind the next batch, for generators that were made for it
        self._position = 0
        self._fetched = 0  # by the iterator; less the position, so many of the kept ones come first
        self._begun: World = {}  # what the making of the iterator left the streams at that it drew from
        self._tried = False  # the first batch was asked for
        self._start: World = {}  # the process's generators as a pass's first batch is asked for, from which its sampler may draw
        self._draws = False  # a data set with a state has drawn from the process's generators: what it comes to follows from them
        self._due: World = {}  # what these are to be as the next batch is fetched
        self._ended: World | None = None  # what asking behind the last batch left of the streams that it drew from

    # ---- a pass ---------------------------------------------------------------------------------------------------------

    def begin(self, epoch: int | None = None) -> None:
        """A pass begins, as `iter(loader)` begins it. `epoch`: for `set_epoch` of sampler, batch sampler and data set; None: they stay as they are."""
        self._scan()
        if self._place is not None and not self._stands and self._kind.outlasts:
            self._stand()
        if epoch is not None:
            for thing in self._with_epochs():
                thing.set_epoch(epoch)
            self._streams.look()
        self._epochs = [getattr(thing, "epoch", None) if epoch is None else epoch for thing in self._with_epochs()]
        self._stands, self._looks, self._due = False, True, {}
        before = self._streams.take()
        self._kind.begin(self._streams)
        self._start = self._streams.take()
        self._begun = moved(before, self._start)
        self._first = self._place = self._here()
        self._enter(0, False)
        self._stands, self._tried = True, False

    def next(self) -> Any:
        """The next batch, as plain iteration gives it; StopIteration behind the last."""
        if self._position < self._fetched:
            entry = self._kept[self._position - self._fetched]
            batch = entry.batch.again()
            if batch is not None:
                self._streams.put(entry.moved)
                self._position += 1
                return batch
            return self._fetch_changed(entry)
        return self._fetch()

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_new(self) -> bool:
        return self._place is None

    def position(self) -> int:
        """How many batches of this pass were handed out."""
        return self._position

    def keep(self, count: int) -> None:
        """So many of the newest batches stay in memory: going back by as many asks nobody. One, if nothing is said."""
        self._keep = count
        self._kept = collections.deque(self._kept, maxlen=count)

    def makers(self) -> list[Callable[..., Any]]:
        return makers_of(self._loader)

    def length_hint(self) -> int | None:
        """Batches in a pass, where the loader says so."""
        try:
            return len(self._loader)
        except TypeError:
            return None

    def seek(self, position: int) -> None:
        """Stand behind `position` batches of this pass, backward or forward. The process's generators stay as they are: where a data set draws
        from them, the caller puts them back to what they were there."""
        place = self._in_pass()
        if 0 <= self._fetched - position <= len(self._kept):
            self._position = position
            return
        if position < 0:
            raise Error(f"loader '{self._name}': there is no position {position}", Code.INVALID_ARGUMENT)
        jump = self._kind.jumps(self._streams)
        with self._streams.preserved(own=jump):
            try:
                if position > self._fetched:
                    if not self._stands:
                        self._go_to(place, self._fetched)
                    self._pass_over(position - self._fetched, jump)
                elif jump:
                    self._go_to(place, position)
                else:
                    self._go_to(self._beginning(place), 0)
                    self._pass_over(position, jump)
            except StopIteration:
                self._stands = False
                raise Error(f"loader '{self._name}': position {position} is behind the last batch of the pass", Code.INVALID_ARGUMENT) from None
            except BaseException:
                self._stands = False
                raise
            self._place = self._here()
        self._enter(position, False)

    def refuse_undivided(self, shares: list[Share]) -> None:
        """Where ranks may leave: an order that is not one for all of them could not be divided anew. `shares`: as which this rank's may be divided."""
        if not isinstance(self._kind, Mapped) or self._kind.share is None:
            raise Error(f"loader '{self._name}' cannot go on with fewer ranks, which run.offer says: only the order of torch's DistributedSampler is one for all "
                        "ranks. Use it, or draw data as a function of step, rank and world_size, or leave run.offer out", Code.INVALID_ARGUMENT)  # fmt: skip
        sampler = sampler_of(self._loader)
        if (sampler.rank, sampler.num_replicas) not in shares:
            raise Error(f"loader '{self._name}' divides its data among {sampler.num_replicas} ranks, and gives this one part {sampler.rank}: with fewer ranks "
                        f"(run.offer) nobody knows among how many. Known are {' and '.join(map(str, shares))}", Code.INVALID_ARGUMENT)  # fmt: skip

    # ---- another process --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What another process of this rank needs to go on here; some kilobytes, and as many more for each worker that draws random numbers."""
        place = self._kept[self._position - self._fetched].before if self._position < self._fetched else self._place
        if place is None:
            return {"kind": type(self._kind).__name__, "length": self.length_hint(), "own": self._streams.take_own()}
        return {"kind": type(self._kind).__name__, "epochs": self._epochs, "position": self._position, "mark": place.mark, "own": place.own,
                "ended": self._ended is not None and self._position == self._fetched, "length": self.length_hint(),
                "start": {name: self._start[name] for name in SHARED if name in self._start} if self._position == 0 else {},
                "due": {name: state for name, state in self._streams.take().items() if name in SHARED} if self._draws else {}}  # fmt: skip

    def rest(self) -> dict[str, Any] | None:
        state = self.state_dict()
        return state if state["own"] or self._kind.outlasts else None

    def load_rest(self, state: Mapping[str, Any], others: Iterable[Any]) -> None:
        with kept(one for other in others for one in other.generators()):
            self.load_state_dict(state)

    def generators(self) -> list[Any]:
        """Of its own, and data sets that have a state."""
        return self._streams.own()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stands where the state was taken; the iterator is made when it is needed."""
        if state["kind"] != type(self._kind).__name__ or state["length"] != self.length_hint():
            raise Error(f"loader '{self._name}' is not the one that was saved: that was {state['kind']} of {state['length']} batches, this is "
                        f"{type(self._kind).__name__} of {self.length_hint()}", Code.FAILED_PRECONDITION)  # fmt: skip
        self._start, self._due = state.get("start", {}), state.get("due", {})  # none before the first pass
        self._stands, self._first, self._place, self._begun, self._tried = False, None, None, self._start, bool(self._start)
        self._enter(0, False)
        self._scan()
        if "mark" not in state:
            self._kind.forget()
            self._streams.put_back(state["own"])
            return
        self._epochs = list(state["epochs"])
        self._place = _Place(state["mark"], state["own"])
        self._put_back_own(state["own"])
        self._enter(state["position"], state["ended"])

    def take_over(self, saved: list[tuple[Mapping[str, Any], int]]) -> dict[str, Any]:
        """The state of this rank, from those of all ranks that saved, of which there were more or fewer, each with how many batches less one it
        has had since. With torch's DistributedSampler the pass goes on behind the samples that they all together have had, each once; positions
        count from there. Whatever else divides data among ranks is refused by name."""
        states = [{**state, "position": state["position"] + passed_over + 1} for state, passed_over in saved]
        where = {(tuple(state["epochs"]), state["position"]) for state in states}
        if len(where) != 1 or not isinstance(self._kind, Mapped):
            why = "the ranks that saved stood at different batches" if len(where) != 1 else "only torch's DistributedSampler can be divided anew"
            raise Error(f"loader '{self._name}' cannot go on with another number of ranks: {why}; resume with as many ranks as saved", Code.INVALID_ARGUMENT)
        mark = self._kind.take_over([state["mark"] for state in states], states[0]["position"])
        return {**states[0], "position": 0, "mark": mark, "own": {}, "start": {}, "due": {}, "length": self.length_hint()}

    # ---- within -----------------------------------------------------------------------------------------------------------

    def _fetch(self) -> Any:
        self._in_pass()
        if self._ended is not None:
            self._streams.put(self._ended)
            raise StopIteration
        if not self._stands:
            self._stand()
        if self._position == 0 and self._tried:
            self._streams.put(self._begun)
        elif self._due:
            self._streams.put(self._due)
        self._due = {}
        still, place = self._kind.still(), self._in_pass()
        before = {} if still else self._streams.take()
        first, self._tried = self._position == 0, True
        try:
            batch = self._kind.fetch()
        except StopIteration:
            self._ended = {} if still else moved(before, self._streams.take())
            self._place = self._here()
            raise
        except BaseException:
            self._stands = False  # a sampler may be ahead: the next fetch is of this batch again
            self._streams.put_back(place.own)
            raise
        if self._looks and self._kind.fetches_here:
            self._looks = False
            self._streams.look()
        drew = {} if still else moved(before, self._streams.take())
        if self._keep:
            self._kept.append(_Entry(KeptBatch(batch), place, {**self._begun, **drew} if first else drew))
        self._draws |= not drew.keys().isdisjoint(SHARED) and self._has_state()
        self._place = self._here()
        self._position = self._fetched = self._position + 1
        return batch

    def _has_state(self) -> bool:
        """What is fetched here leaves more behind than generators."""
        return self._kind.fetches_here and (self._kind.outlasts or any(name.endswith("state_dict()") for name in self._streams.names("dataset")))

    def _fetch_changed(self, entry: _Entry) -> Any:
        """The step has written into the batch: it is fetched once more."""
        position = self._position
        self._place, self._stands = entry.before, False
        self._streams.put_back(entry.before.own)
        self._looks = True
        self._enter(position, False)
        batch = self._fetch()
        if entry.batch.is_memory_of(batch):
            raise Error(f"loader '{self._name}': the step has written into batch {position}, which is the data set's own memory: what it was is lost. "
                        "Write into a copy of it, batch.clone()", Code.FAILED_PRECONDITION)  # fmt: skip
        return batch

    def _pass_over(self, count: int, jump: bool) -> None:
        if jump and self._kind.fetches_here:
            self._kind.skip(count)
            return
        for _ in range(count):
            before = self._streams.take()
            self._kind.fetch()
            drew = {name for name in moved(before, self._streams.take()) if name in SHARED} - self._kind.moved_by_indices()
            if self._kind.fetches_here and drew:
                raise Error(f"loader '{self._name}': its data set draws from the process's {', '.join(sorted(drew))} generator as well as from what it keeps "
                            "itself: only load_state_dict() of a state that was taken there goes there", Code.FAILED_PRECONDITION)  # fmt: skip
        self._streams.look()

    def _beginning(self, place: _Place) -> _Place:
        mark = self._kind.first(place.mark)
        if self._first is None and (mark is None or self._kind.fetches_here):
            raise Error(f"loader '{self._name}' was loaded within a pass, and cannot go back further: load_state_dict() a state that was taken there",
                        Code.FAILED_PRECONDITION)  # fmt: skip
        own = self._first.own if self._first is not None else {}
        self._streams.put_back(own)
        return _Place(mark if mark is not None or self._first is None else self._first.mark, own)  # type: ignore[arg-type]

    def _stand(self) -> None:
        with self._streams.preserved():
            self._go_to(self._in_pass(), self._fetched)

    def _go_to(self, place: _Place, position: int) -> None:
        self._set_epochs()
        self._stands, self._looks = False, True
        self._kind.go_to(self._streams, place.mark, position, self._ended is not None)
        self._stands = True

    def _set_epochs(self) -> None:
        for thing, epoch in zip(self._with_epochs(), self._epochs):
            if epoch is not None:
                thing.set_epoch(epoch)
        self._streams.look()

    def _put_back_own(self, own: World) -> None:
        """What its parts make as an epoch begins, or for a first batch, a new process makes so, too."""
        if self._streams.lacks(own):
            self._set_epochs()
        if self._streams.lacks(own):
            with self._streams.preserved():
                self._kind.try_out()
        self._streams.put_back(own)

    def _enter(self, position: int, ended: bool) -> None:
        self._position = self._fetched = position
        self._kept.clear()
        self._ended = {} if ended else None

    def _here(self) -> _Place:
        return _Place(self._kind.mark(), self._streams.take_own())

    def _in_pass(self) -> _Place:
        if self._place is None:
            raise Error(f"loader '{self._name}': begin() comes first", Code.FAILED_PRECONDITION)
        return self._place

    def _parts(self) -> dict[str, Any]:
        """What may draw in this process. The data set comes first: what it has in common with a sampler counts as its own."""
        if not isinstance(self._loader, DataLoader):
            return {"loader": self._loader} if self._kind.outlasts else {}
        loader = self._loader
        data = "dataset" if isinstance(self._kind, Mapped) else "data"  # else its state is told by the kind
        here = {data: loader.dataset, "collate_fn": loader.collate_fn} if self._kind.fetches_here else {}
        return {**here, "generator": loader.generator, "sampler": loader.sampler, "batch_sampler": loader.batch_sampler}

    def _scan(self) -> None:
        self._streams.begin(self._parts())

    def _with_epochs(self) -> list[Any]:
        """What wants to know the epoch, each once."""
        batch_sampler = getattr(self._loader, "batch_sampler", None)
        things = [getattr(self._loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None), getattr(self._loader, "dataset", None)]
        return [thing for i, thing in enumerate(things) if callable(getattr(thing, "set_epoch", None)) and all(thing is not other for other in things[:i])]


def makers_of(loader: Any) -> list[Callable[..., Any]]:
    """What makes samples, of data sets that do not give their state, and batches of them; what gives their order, where the loader has no state that would
    tell of it."""
    found: list[Callable[..., Any]] = []
    for sampler in () if has_state(loader) else _samplers_of(loader):
        if isinstance(walk := getattr(sampler, "__iter__", None), MethodType) and not _is_of_framework(walk):
            found.append(walk)
    if callable(collate := getattr(loader, "collate_fn", None)):
        found.append(collate)
    level = [getattr(loader, "dataset", None)]
    while level:
        thing = level.pop()
        if thing is None or hasattr(thing, "state_dict"):
            continue
        parts = getattr(thing, "datasets", ())
        level += [getattr(thing, "dataset", None), *(parts.values() if isinstance(parts, dict) else parts)]
        place = "__iter__" if isinstance(thing, IterableDataset) else "__getitem__"
        if isinstance(maker := getattr(thing, place, None), MethodType):
            found.append(maker)
    return found


def _samplers_of(loader: Any) -> list[Any]:
    """A script's own is often within others: in a BatchSampler, in those by which Accelerate and Lightning divide its order among ranks."""
    found: list[Any] = []
    level = [getattr(loader, place, None) for place in ("sampler", "batch_sampler")]
    while level:
        thing = level.pop(0)
        if thing is None or any(thing is one for one in found):
            continue
        found.append(thing)
        level += [getattr(thing, "sampler", None), getattr(thing, "batch_sampler", None), getattr(getattr(thing, "dataset", None), "_sampler", None)]
    return found


def _is_of_framework(method: MethodType) -> bool:
    return str(method.__func__.__module__).partition(".")[0] in FRAMEWORKS
