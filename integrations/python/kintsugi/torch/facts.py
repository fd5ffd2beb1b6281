"""What a run of torch leaves, so that two can be compared: with KINTSUGI_FACTS=FOLDER each rank writes FOLDER/rank-N.json as it ends,
{"values": {name: value or digest of a tensor's bytes}, "losses": {step: what was reported}, "device": what a model lies on, "": the host}.

Taken from the script's own objects, by torch's names: what holds or moves them does not matter. `kintsugi certify` compares these of a
protected run with those of the same script under KINTSUGI=0.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from .state import unwrapped
from .streams import has_state, kinds_of_generators, state_of

FOLDER = "KINTSUGI_FACTS"


class Facts:
    def __init__(self, rank: int) -> None:
        self._folder = os.environ.get(FOLDER)
        self._rank = rank
        self._things: dict[str, Any] = {}
        self._losses: dict[int, float] = {}

    def add(self, things: Mapping[str, Any]) -> None:
        if self._folder:
            self._things.update(things)

    def report(self, step: int, loss: float) -> None:
        if self._folder:
            self._losses[step] = loss

    def write(self) -> None:
        if not self._folder:
            return
        values = {name: value for key, thing in self._things.items() for name, value in _values(key, thing)}
        path = Path(self._folder, f"rank-{self._rank}.json")
        places = {str(parameter.device) for thing in self._things.values() if isinstance(thing, Module) for parameter in thing.parameters()}
        path.with_suffix(".part").write_text(json.dumps({"values": values, "losses": {str(step): repr(loss) for step, loss in self._losses.items()},
                                                         "device": min(places - {"cpu", "meta"}, default="")}))  # fmt: skip
        path.with_suffix(".part").replace(path)


def _values(key: str, thing: Any) -> Iterator[tuple[str, str]]:
    thing = unwrapped(thing)
    if isinstance(thing, Module):
        module = thing.module if isinstance(thing, DistributedDataParallel) else thing
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            yield f"{key}/{name}", _text(tensor)
    elif isinstance(thing, Optimizer):
        parameters = [parameter for group in thing.param_groups for parameter in group["params"]]
        for i, parameter in enumerate(parameters):
            yield from _leaves(f"{key}/{i}", thing.state.get(parameter, {}))
        for i, group in enumerate(thing.param_groups):
            yield from _leaves(f"{key}/group {i}", {name: value for name, value in group.items() if name != "params"})
    elif has_state(thing):
        yield from _leaves(key, thing.state_dict())
    elif isinstance(thing, kinds_of_generators()):
        yield key, hashlib.sha256(state_of(thing)).hexdigest()[:16]


def _leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{key}/{name}", inner)
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _leaves(f"{key}/{i}", inner)
    elif isinstance(value, (bool, int, float, str, torch.Tensor)) or value is None:
        yield key, _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    local = (value.to_local() if isinstance(value, DTensor) else value).detach().cpu().contiguous()
    digest = hashlib.sha256(local.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:16] if local.numel() else "empty"
    return f"{str(local.dtype).removeprefix('torch.')} {list(local.shape)} {digest}"
