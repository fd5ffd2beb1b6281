"""Models whose gradients are ready in other orders than they were made in, each under DistributedDataParallel with other options: how their
sums are rounded tells in which buckets they were added up.

  torch_layouts.py [--steps N] [--plain] [--digest FILE]     --plain: torch alone, over Gloo; FILE: the bits of all parameters at the end
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WIDTH = 24


def layer(inputs: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.Tanh())


class Shuffled(nn.Module):
    """Its layers are used in another order in each step: only the first counts for the buckets. With buffers, which each rank has
    otherwise before they are told rank 0's."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(6))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.frozen = nn.Parameter(torch.rand(WIDTH), requires_grad=False)

    def forward(self, x: Tensor, k: int) -> Tensor:
        for at in torch.randperm(len(self.layers), generator=torch.Generator().manual_seed(k)).tolist():
            x = x + self.layers[at](x)
        y: Tensor = self.norm(x) * self.frozen
        return y


class Repeated(nn.Module):
    """One layer twice, computed again in the backward pass: a static graph alone allows that. And one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.last = layer()
        self.twice = layer()
        self.never = layer()
        self.first = layer()

    def forward(self, x: Tensor, _: int) -> Tensor:
        x = self.first(x)
        for _ in range(2):
            x = x + checkpoint(self.twice, x, use_reentrant=True)
        y: Tensor = self.last(x)
        return y


class Sometimes(nn.Module):
    """Some layers are used in some steps only."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(4))

    def forward(self, x: Tensor, k: int) -> Tensor:
        for number, one in enumerate(reversed(self.layers)):
            if number == 0 or (k + number) % 3:
                x = x + one(x)
        return x


class Larger(nn.Module):
    """DistributedDataParallel inside a module that has more to do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, k: int) -> Tensor:
        y: Tensor = self.inner(x, k) * 0.5
        return y


def make() -> dict[str, nn.Module]:
    torch.manual_seed(3)
    small: dict[str, Any] = {"bucket_cap_mb": 3e-3}
    views = DistributedDataParallel(Shuffled(), gradient_as_bucket_view=True, **small)
    views.register_comm_hook(None, fp16_compress_hook)
    return {
        "shuffled": DistributedDataParallel(Shuffled(), **small),
        "views": views,
        "static": DistributedDataParallel(Repeated(), static_graph=True, **small),
        "sometimes": DistributedDataParallel(Sometimes(), find_unused_parameters=True, **small),
        "late": Larger(DistributedDataParallel(Shuffled(), forward_sync_buffers=False, **small)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--digest", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run: Any = None
    if options.plain:
        dist.init_process_group("gloo")
    else:
        import kintsugi.torch

        run = kintsugi.torch.join()
        dist.init_process_group("kintsugi")
    rank, world = dist.get_rank(), dist.get_world_size()
    models = make()
    optimizers = {f"{name}_updates": torch.optim.AdamW(model.parameters(), lr=1e-2) for name, model in models.items()}
    if run:
        run.register(**models, **optimizers)

    def step(k: int) -> None:
        if run and not run.trains():
            raise SystemExit("a step of the script's was made before this rank took part")
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * k + rank))
        loss = torch.zeros(())
        for name, model in models.items():
            if name != "late" or k > 2:  # the first two steps do not come to it
                loss = loss + (model(x, k) - x).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        if run:
            run.report(loss=loss.item(), samples=[k * world + rank])
        for optimizer in optimizers.values():
            optimizer.step()

    if run:
        run.train(step, steps=options.steps)
    else:
        for k in range(1, options.steps + 1):
            step(k)
    if rank == 0 and options.digest:
        state = b"".join(t.detach().cpu().numpy().tobytes() for model in models.values() for t in (*model.parameters(), *model.buffers()))
        Path(options.digest).write_text(hashlib.sha256(state).hexdigest())


main()
