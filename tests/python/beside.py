"""What trainers share that run under Kintsugi, and beside it under plain torch over Gloo (PLAIN=1): `compared.py` compares what they leave."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

PLAIN = os.environ.get("PLAIN") == "1"


def begin() -> Any:
    """The run, or None; there is a group behind it."""
    torch.set_num_threads(1)
    if PLAIN:
        dist.init_process_group("gloo")
        return None
    import kintsugi.torch

    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    return run


def digest(*tensors: Tensor) -> str:
    """Of what this rank has of them."""
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return hashlib.sha256(b"".join(tensor.detach().contiguous().cpu().numpy().tobytes() for tensor in local)).hexdigest()[:16]


def leave(folder: Path, left: dict[str, Any]) -> None:
    (folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(left))
    if PLAIN:  # else a thread of the group may outlive the interpreter, which aborts
        dist.destroy_process_group()


def train_in_worlds(plain: Callable[[argparse.Namespace], None], protected: Callable[[Any, argparse.Namespace], None], **words: str) -> None:
    """The main function of a trainer whose number of ranks changes. `words`: options of its own, and what they are where they are not given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    for word, default in {"worlds": "2,3,4", "load": "", "save": "", **words}.items():
        parser.add_argument(f"--{word}", default=default)
    options = parser.parse_args()
    run = begin()
    plain(options) if PLAIN else protected(run, options)
