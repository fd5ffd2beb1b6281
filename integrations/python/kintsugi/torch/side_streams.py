"""Streams of a device that a step uses beside the one that is current at its gate.

A script orders its own streams. What the run adds on the current one (copies of drafts, what is packed of buffers and objects, the event behind an
update) has an order with the others here. Which these are is known by the hooks of models, averages and optimizers: a stream that none of them has
seen (an object's own tensors, written on another one) is the script's to wait for, before the gate and before the step ends.

Threads: the trainer's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


class SideStreams:
    def __init__(self, place: Callable[[], torch.device | None], number: Callable[[], int | None]) -> None:
        """`place`: of the device, once it is open; `number`: of the current stream there."""
        self._place = place
        self._number = number
        self._all: dict[int, torch.Stream] = {}
        self._used: set[int] = set()  # since they were gathered last
        self._copied: torch.Event | None = None

    def note(self) -> None:
        """State is about to be read or written on the current one."""
        number = self._number()
        if number is None or number in self._used or self._is_capturing():
            return
        self._used.add(number)
        if number not in self._all:
            self._all[number] = torch.accelerator.current_stream(self._place())
            if self._copied is not None:
                self._all[number].wait_event(self._copied)

    def gather(self) -> None:
        """What is enqueued on the current one from here on comes behind all that the others were given."""
        number = self._number()
        if others := self._used - {number}:
            here = torch.accelerator.current_stream(self._place())
            for other in others:
                here.wait_stream(self._all[other])
        self._used.clear()

    def note_copied(self) -> None:
        """State was copied on the current one: on the others nothing comes before that."""
        number = self._number()
        if number is None:
            return
        if self._copied is None:
            self._copied = torch.Event(self._place())
        self._copied.record(torch.accelerator.current_stream(self._place()))
        for other, stream in self._all.items():
            if other != number:
                stream.wait_event(self._copied)

    def _is_capturing(self) -> bool:
        """Nothing runs then, and what is captured may wait for nothing outside."""
        return bool(getattr(torch.get_device_module(self._place()), "is_current_stream_capturing", lambda: False)())
