"""Iterators of data loaders that a script keeps itself, beside those that the run walks.

A step that is void is made again, and a process that takes a lost one's place passes by what is done: in both an iterator that was made before
would go on with other batches than it gave. So it is refused where it is advanced in an iteration of the run's, or in a section, that it was
not made in; in runs without any fault too. What is made and walked in one place is made and walked again with it. And a registered object may
have one as an attribute: its `load_state_dict` moves it.

Threads: the trainer's. Errors: Error by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from .._errors import Error
from ..abi import Code

_BORN = "_kintsugi_born"  # on an iterator: the place it was made in
_OF_THE_RUN = -1


def of_the_run(iterator: Any) -> Any:
    """One that the run walks, and moves itself."""
    if isinstance(iterator, _BaseDataLoaderIter):
        setattr(iterator, _BORN, _OF_THE_RUN)
    return iterator


def watch(place: Callable[[], int], registered: Callable[[], Iterable[object]]) -> None:
    """From now on, in this process. `place`: a number for each iteration of the run's loops and for each section; 0 elsewhere, where nothing is
    made again. `registered`: the objects whose state the run keeps."""
    make, advance = DataLoader.__iter__, _BaseDataLoaderIter.__next__

    @functools.wraps(make)
    def made(loader: DataLoader[Any]) -> Any:
        iterator = make(loader)
        setattr(iterator, _BORN, place())
        return iterator

    @functools.wraps(advance)
    def advanced(iterator: _BaseDataLoaderIter) -> Any:
        here = place()
        born = vars(iterator).setdefault(_BORN, here)  # torchdata's loaders make theirs without DataLoader.__iter__
        if here and born not in (here, _OF_THE_RUN) and not any(_has(thing, iterator) for thing in registered()):
            raise Error("a data loader's iterator is advanced in a step or a section that it was not made in: where that is made again, or passed by by a "
                        "process that takes a lost one's place, it would give other batches. Write `for batch in run.batches(loader, epoch):` (several "
                        "loaders as one: torch.utils.data.StackDataset), make the iterator where it is walked to its end, or register the object that has it as an "
                        "attribute, with a state_dict and a load_state_dict that move it", Code.FAILED_PRECONDITION)  # fmt: skip
        try:
            return advance(iterator)
        except StopIteration:
            if born != _OF_THE_RUN:
                delattr(iterator, _BORN)  # workers that persist give torchdata's next pass by the same iterator
            raise

    DataLoader.__iter__ = made  # type: ignore[method-assign]
    _BaseDataLoaderIter.__next__ = advanced  # type: ignore[assignment, method-assign]


def _has(thing: object, iterator: object) -> bool:
    return any(value is iterator for value in getattr(thing, "__dict__", {}).values())
