"""What a spare does while it has time: it waits within `join`, before its program has made anything."""

from __future__ import annotations

import os

import torch


def is_spare() -> bool:
    """Whether this process was started to take a place that is not known yet (`kintsugi run --spares N`)."""
    return "KINTSUGI_SPARE_FD" in os.environ


def warm_up() -> None:
    """One step of a tiny trainer: torch imports half of itself with the first optimizer (torch._dynamo, FSDP, DTensor: as long again as
    torch itself takes), and starts threads with the first backward pass. Nothing of it is left, the generator is put back."""
    before = torch.get_rng_state()
    try:
        layer = torch.nn.Linear(2, 2)
        optimizer = torch.optim.AdamW(layer.parameters())
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    finally:
        torch.set_rng_state(before)
