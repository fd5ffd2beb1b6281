"""What a training script leaves, as facts that two runs of it can be compared by."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def bits(value: Any) -> Any:
    """Tensors by their bytes, numbers by all of their digits."""
    if isinstance(value, Tensor):
        local = value.to_local() if hasattr(value, "to_local") else value
        return hashlib.sha256(local.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()).hexdigest()[:16]
    if isinstance(value, dict):
        return {str(key): bits(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(one) for one in value]
    return repr(value)


def newest(path: Path) -> dict[str, str]:
    """Of a log each line of which begins with a name: a step that was made again has several lines."""
    return dict(line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines())


def write(folder: Path, rank: int, **facts: Any) -> None:
    """`newest` is read by all ranks: behind what the others write."""
    left = {name: {"bits": json.dumps(bits(value), sort_keys=True)} for name, value in facts.items()}
    (folder / f"rank-{rank}.json").write_text(json.dumps(left), encoding="utf-8")
