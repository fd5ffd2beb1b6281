"""What torch is told for the whole process: its default type, whether it is to be deterministic, how exactly it multiplies.

A step may change it (`torch.use_deterministic_algorithms(True)` behind a warm-up): a process that takes a lost one's place would go on with what stands at the
top of the script, and a step that is made again with what it was changed to. So what is another than as training began is an object of the run's.

Threads: the trainer's. Errors: none: what this torch does not say is left as it is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..terms import Encoder

_C: Any = torch._C
_FLAGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "default type": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": (_C._get_deterministic_algorithms,
                      lambda value: torch.use_deterministic_algorithms(value, warn_only=_C._get_deterministic_algorithms_warn_only())),
    "deterministic, or warn": (_C._get_deterministic_algorithms_warn_only,
                               lambda value: torch.use_deterministic_algorithms(_C._get_deterministic_algorithms(), warn_only=value)),
    "precision of products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cudnn benchmark": (_C._get_cudnn_benchmark, _C._set_cudnn_benchmark),
    "cudnn deterministic": (_C._get_cudnn_deterministic, _C._set_cudnn_deterministic),
}  # fmt: skip


class Flags(Encoder):
    def __init__(self) -> None:
        self._first = self._known = _now()
        self._encoded = b""

    def encode(self) -> bytes:
        now = _now()
        if now != self._known or not self._encoded:
            changed = {name: value for name, value in now.items() if value != self._first.get(name, value)}
            self._known, self._encoded = now, pickle.dumps(changed, protocol=pickle.HIGHEST_PROTOCOL)
        return self._encoded

    def state_dict(self) -> Any:
        return pickle.loads(self.encode())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        now = _now()
        for name, value in {**self._first, **state}.items():
            if name in now and now[name] != value:
                _FLAGS[name][1](value)


def _now() -> dict[str, Any]:
    found = {}
    for name, (get, _) in _FLAGS.items():
        try:
            found[name] = get()
        except RuntimeError:  # set in a newer way, of which the older one says nothing
            continue
    return found
