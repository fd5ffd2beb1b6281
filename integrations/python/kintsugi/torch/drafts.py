"""Several updates in one step (a GAN, actor and critic): those before the gate are made in drafts.

What is registered is of the step that is committed until the gate has opened: others copy it, snapshots are taken of it, and it is what is
left of a process that dies. So an optimizer that steps before the gate steps on copies, which its tensors have in the place of their memory.
Behind the gate the copies are written there; where the step is void they are let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class _Draft:
    """Of a storage, with all that share it."""

    def __init__(self, tensor: torch.Tensor, registered: torch.Tensor) -> None:
        self.tensor = tensor  # one of those that lie in it
        self.registered = registered  # its bytes, where it is registered
        self.memory = torch.empty_like(registered)  # kept: it is needed in every step


class Drafts:
    """Threads: the trainer's."""

    def __init__(self, extension: Any) -> None:
        self._place: Callable[[torch.Tensor, int], None] = extension.place  # of a tensor's storage: where it lies from now on
        self._bytes_of: Callable[[torch.Tensor], torch.Tensor] = extension.bytes_of  # of its storage, as it lies now
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
                draft = self._all[storage._cdata] = _Draft(tensor, self._bytes_of(tensor))
            draft.memory.copy_(draft.registered)
            self._place(draft.tensor, draft.memory.data_ptr())
            self._used[storage._cdata] = draft

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """They are not changed before the gate after all. REQUIRES: outside of steps."""
        for tensor in tensors:
            self._all.pop(tensor.untyped_storage()._cdata, None)

    def differs(self, tensor: torch.Tensor) -> bool:
        """Whether what is registered is another than what was drafted last."""
        draft = self._all[tensor.untyped_storage()._cdata]
        return not torch.equal(draft.memory, draft.registered)

    def commit(self) -> bool:
        """Behind the gate: what was drafted is the state. Whether anything was."""
        for draft in self._used.values():
            draft.registered.copy_(draft.memory)
        is_any = bool(self._used)
        self.drop()
        return is_any

    @property
    def in_use(self) -> bool:
        """Whether some tensors lie in drafts."""
        return bool(self._used)

    def drop(self) -> None:
        """The tensors are what is registered, to the bit."""
        for draft in self._used.values():
            self._place(draft.tensor, draft.registered.data_ptr())
        self._used.clear()

    def bytes(self) -> int:
        """What all drafts take."""
        return sum(draft.memory.numel() for draft in self._all.values())


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """What drafts of these would take."""
    return sum({storage._cdata: storage.nbytes() for storage in (tensor.untyped_storage() for tensor in tensors)}.values())
