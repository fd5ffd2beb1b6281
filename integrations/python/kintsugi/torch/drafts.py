"""Several updates in one step (a GAN, actor and critic): those before the gate are made in drafts.

What is registered is of the step that is committed until the gate has opened: others copy it, snapshots are taken of it, and it is what is
left of a process that dies. So an optimizer that steps before the gate steps on copies, which its tensors have in the place of their memory.
Behind the gate the copies are written there; where the step is void they are let go.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

import torch


class _Draft:
    """Of a storage, with all that share it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.tensor = tensor  # one of those that lie in it
        self.registered = storage.data_ptr()
        self.size = storage.nbytes()
        self.memory = torch.empty(self.size, dtype=torch.uint8)  # kept: it is needed in every step


class Drafts:
    """Threads: the trainer's."""

    def __init__(self, place: Callable[[torch.Tensor, int], None]) -> None:
        self._place = place  # of a tensor's storage: where it lies from now on
        self._all: dict[int, _Draft] = {}
        self._used: dict[int, _Draft] = {}  # in this step

    def before_step(self, tensors: Iterable[torch.Tensor]) -> None:
        """These are about to be changed, before the gate. What lies in a draft already stays there."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata in self._used or storage.nbytes() == 0:
                continue
            draft = self._all.get(storage._cdata)
            if draft is None:
                draft = self._all[storage._cdata] = _Draft(tensor)
            ctypes.memmove(draft.memory.data_ptr(), draft.registered, draft.size)
            self._place(draft.tensor, draft.memory.data_ptr())
            self._used[storage._cdata] = draft

    def commit(self) -> None:
        """Behind the gate: what was drafted is the state."""
        for draft in self._used.values():
            ctypes.memmove(draft.registered, draft.memory.data_ptr(), draft.size)
        self.drop()

    def drop(self) -> None:
        """The tensors are what is registered, to the bit."""
        for draft in self._used.values():
            self._place(draft.tensor, draft.registered)
        self._used.clear()

    def bytes(self) -> int:
        """What all drafts take."""
        return sum(draft.size for draft in self._all.values())


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """What drafts of these would take."""
    return sum({storage._cdata: storage.nbytes() for storage in (tensor.untyped_storage() for tensor in tensors)}.values())
