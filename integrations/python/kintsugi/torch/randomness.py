"""The random generators that a trainer draws from without making one of its own: torch's, beside Python's and numpy's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .. import randomness
from .devices import Device


class Randomness(randomness.Randomness):
    """All of them, as one object of the run's."""

    def __init__(self, device: Device | None = None, number: Callable[[], int] = lambda: 0) -> None:
        """`device`: whose generator is one of them. `number`: this rank's by now."""
        super().__init__(number)
        self._device = device

    def state_dict(self) -> dict[str, bytes]:
        state = {"torch": _torch_state(), **super().state_dict()}
        if self._device is not None and (drawn := self._device.generator()) is not None:
            state["device"] = drawn
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
        super().load_state_dict(state)
        if "device" in state and self._device is not None:
            self._device.set_generator(state["device"])

    def _begun_anew(self, seeds: Mapping[str, int]) -> dict[str, bytes]:
        state = {"torch": torch.Generator().manual_seed(seeds["torch"]).get_state().numpy().tobytes(), **super()._begun_anew(seeds)}
        if "device" in seeds and self._device is not None:
            state["device"] = self._device.seeded(seeds["device"])
        return state


def _torch_state() -> bytes:
    state = torch.get_rng_state()
    return ctypes.string_at(state.data_ptr(), state.numel())  # a fifth of what numpy's way to bytes takes
