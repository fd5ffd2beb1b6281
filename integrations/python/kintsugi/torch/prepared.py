"""A loader that Accelerate has prepared (`DataLoaderShard`), walked so that any batch can be had again.

Plain iteration of it reads a batch ahead, which tells it where its pass ends; it says so to Accelerate's GradientState, on which `accumulate()`
and `gather_for_metrics()` rely, and synchronises the sampler's generator over all ranks first. Here the DataLoader within is walked
(loaders.py), a batch ahead too, and GradientState told the same. The generator is made the same on all ranks once, in a section: a
process that comes later could not take part in a collective, and on ranks that all walk the loader it stays the same.

A data set that draws from the process's generators draws for the batch ahead: what they were before that is part of the state. Where a step is made
again its first batch was drawn before it began (but for the first of a pass): reading that once more moves no generator of the process.

Threads: the trainer's. Errors: Error by name for what else Accelerate makes of loaders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset

from .._errors import Error
from ..abi import Code
from .devices import Device
from .loaders import Batches
from .streams import Streams, World, kept, moved, set_state, state_of

_NOTHING = object()


def is_prepared(loader: Any) -> bool:
    return type(loader).__module__.startswith("accelerate.")


class Prepared:
    """As `Batches`, for one prepared loader."""

    def __init__(self, loader: Any, name: str = "loader", device: Device | None = None) -> None:
        _refuse(loader, name)
        _give_generator(loader)
        self._loader = loader
        self._gradients = loader.gradient_state
        self._inner = Batches(loader.base_dataloader, name, device)
        self._name = name
        self._keep = 1
        self._process = Streams({}, device)
        self._ahead: Any = _NOTHING  # the batch that was read ahead
        self._drawn_before = False  # the next one was read ahead before the state was taken
        self._drawn_already = False  # the next one was read ahead by this process, before the step that is made again
        self._worlds: dict[int, World] = {}  # by position: the process's generators before a batch was read, where it drew from them
        self._in_pass = False
        self._begun = False  # a pass, by this process or by the one whose place it takes
        self._loaded = False
        self.keep(1)

    def makers(self) -> list[Callable[[int], Any]]:
        return self._inner.makers()

    def synchronize(self, section: Callable[[Callable[[], bytes]], bytes]) -> None:
        """Once, before the first pass. `section`: what gives rank 0's result of a function on all ranks."""
        generator = self._loader.synchronized_generator
        if generator is not None and "generator" in (self._loader.rng_types or ()):
            state = section(lambda: state_of(generator))
            if not self._begun:  # else this process goes on with what others have made of it since
                set_state(generator, state)

    # ---- a pass ---------------------------------------------------------------------------------------------------------

    def begin(self, epoch: int | None = None) -> None:
        if epoch is not None:
            self._loader.set_epoch(epoch)
        self._loader.begin()
        self._loader.set_epoch(self._loader.iteration)
        self._in_pass = self._begun = True
        self._loaded = False
        self._forget_ahead()
        self._worlds = {}
        self._inner.begin()

    def next(self) -> Any:
        if self._ahead is _NOTHING:
            self._read_ahead()
        batch = self._ahead
        if batch is _NOTHING:
            self._end()
            raise StopIteration
        self._read_ahead()
        return batch

    def __iter__(self) -> Prepared:
        return self

    __next__ = next

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_new(self) -> bool:
        return not self._begun

    def position(self) -> int:
        return self._inner.position() - (self._ahead is not _NOTHING)

    def keep(self, count: int) -> None:
        self._keep = count
        self._inner.keep(count + 1)

    def length_hint(self) -> int | None:
        return self._inner.length_hint()

    def seek(self, position: int) -> None:
        self._forget_ahead()
        self._drawn_already = 0 < position < self._inner.position()
        self._loader.end_of_dataloader = False
        self._inner.seek(position)

    # ---- another process --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        inner = self._inner
        if self._ahead is _NOTHING:
            state = inner.state_dict()
        else:
            behind = inner.position()
            inner.seek(behind - 1)
            state = inner.state_dict()
            inner.seek(behind)
        return {"inner": state, "iteration": self._loader.iteration, "in_pass": self._in_pass, "begun": self._begun,
                "world": self.world()}  # fmt: skip

    rest = state_dict

    def load_rest(self, state: Mapping[str, Any], others: Iterable[Any]) -> None:
        with kept(one for other in others for one in other.generators()):
            self.load_state_dict(state)

    def generators(self) -> list[Any]:
        return self._inner.generators()

    def world(self) -> World:
        """What the process's generators were at before the batch ahead was drawn; empty: nothing was drawn from them."""
        return self._worlds.get(self.position(), {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._loader.set_epoch(state["iteration"])
        self._in_pass, self._begun = state["in_pass"], state["begun"]
        self._forget_ahead()
        self._inner.load_state_dict(state["inner"])
        self._worlds = {self._inner.position(): state["world"]} if state["world"] else {}
        self._drawn_before = bool(state["world"])
        self._loaded = True
        self.tell()

    @property
    def foreign(self) -> bool:
        """It was read ahead here, after the state that this came from was taken: with other random numbers, if the data set draws any."""
        return self._loaded and self._ahead is not _NOTHING

    def correct(self, state: Mapping[str, Any]) -> None:
        """With a newer state, which tells what was drawn for the batch ahead."""
        self.load_state_dict(state)
        self._loaded = False

    @property
    def in_pass(self) -> bool:
        return self._in_pass

    def take_over(self, saved: list[tuple[Mapping[str, Any], int]]) -> dict[str, Any]:
        raise Error(f"loader '{self._name}' cannot go on with another number of ranks: accelerate divides its order among as many as there are; "
                    "resume with as many ranks as saved", Code.INVALID_ARGUMENT)  # fmt: skip

    # ---- within -----------------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """GradientState knows of this pass what it would in plain iteration. One that was broken off is still in it."""
        self._gradients._remove_dataloader(self._loader)
        self._loader.reset()
        if self._in_pass:
            self._loader.begin()
            self._loader.end_of_dataloader = self._ahead is _NOTHING and self._inner.position() > 0 and self._is_behind_last()

    def is_of(self, loader: Any) -> bool:
        return self._loader is loader

    def _is_behind_last(self) -> bool:
        length = self.length_hint()
        return length is not None and self._inner.position() >= length

    def _read_ahead(self) -> None:
        self._ahead = _NOTHING
        position = self._inner.position()
        if self._drawn_before:
            batch = self._as_drawn_before(self._worlds[position])
        elif self._drawn_already:
            self._drawn_already = False
            with self._process.preserved():
                batch = self._inner.next()
        else:
            before = self._process.take()
            try:
                batch = self._inner.next()
            except StopIteration:
                self._loader.end_of_dataloader = True
                self._loader.set_epoch(self._loader.iteration)  # at its end the sampler has moved on to the next
                return
            self._note_drawn(position, before)
        self._ahead = self._moved_to_device(batch)

    def _as_drawn_before(self, world: World) -> Any:
        """As by the process that the state is of, whatever the generators have come to since."""
        self._drawn_before = False
        with self._process.preserved():
            self._process.put(world)
            return self._inner.next()

    def _note_drawn(self, position: int, before: World) -> None:
        drew = moved(before, self._process.take())
        if drew and position not in self._worlds:  # else it was kept, and is given once more
            self._worlds[position] = {name: before[name] for name in drew}
        for old in [old for old in self._worlds if old < position - self._keep]:
            del self._worlds[old]

    def _moved_to_device(self, batch: Any) -> Any:
        from accelerate.utils import send_to_device  # type: ignore[import-not-found]

        device = self._loader.device
        return batch if device is None else send_to_device(batch, device, non_blocking=self._loader._non_blocking)

    def _forget_ahead(self) -> None:
        self._ahead, self._drawn_before, self._drawn_already = _NOTHING, False, False

    def _end(self) -> None:
        if self._in_pass:
            self._in_pass = False
            self._loader.set_epoch(self._loader.iteration + 1)
            self._loader.end()


def _give_generator(loader: Any) -> None:
    """A SeedableRandomSampler makes itself one in its first pass, and seeds it in each: here it has it from the beginning, on all ranks."""
    sampler = loader.get_sampler()
    if type(sampler).__name__ == "SeedableRandomSampler" and sampler.generator is None:
        sampler.generator = torch.Generator()


def _refuse(loader: Any, name: str) -> None:
    kind = type(loader).__name__
    reason = ""
    if kind == "DataLoaderDispatcher":
        remedy = "dispatch_batches=False (in DataLoaderConfiguration, or TrainingArguments' accelerator_config)"
        if isinstance(loader.dataset, IterableDataset):
            remedy = "use a data set that gives samples by their indices (__getitem__, __len__; load_dataset without streaming=True), which is not dispatched"
        reason = f"on rank 0 alone it reads, and tells the others by collectives: {remedy}"
    elif kind != "DataLoaderShard":
        reason = "only what accelerator.prepare makes of a DataLoader was tried"
    elif loader.skip_batches:
        reason = "it skips batches: give the one that was prepared; a run that resumes goes on where it was"
    elif others := set(map(str, loader.rng_types or ())) - {"generator"}:
        reason = f"its rng_types {', '.join(sorted(others))} are made the same on all ranks as each pass begins: leave rng_types out"
    if reason:
        raise Error(f"loader '{name}' cannot be replayed: it is a {kind} of Accelerate's, and {reason}", Code.INVALID_ARGUMENT)
