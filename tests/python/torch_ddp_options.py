"""Each option of DistributedDataParallel with a small model and an optimizer of its own, all in one step; torch_layouts.py has those that change
what lies in a bucket. PLAIN=1: the same under plain torch over Gloo. What is left of each, bit for bit, goes to FOLDER/rank-N.json.

  torch_ddp_options.py FOLDER
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from beside import begin, digest, leave

WIDTH, STEPS = 12, 8


class Net(nn.Module):
    """With buffers that each rank's own data move, and a layer that is used in some steps only, where it may be."""

    def __init__(self, sometimes: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.sometimes = sometimes

    def forward(self, x: Tensor, k: int) -> Tensor:
        for number, layer in enumerate(self.layers):
            if not self.sometimes or number != 2 or k % 3:
                x = x + torch.tanh(layer(x))
        y: Tensor = self.norm(x)
        return y


Backward = Callable[[Any, Tensor, int], Tensor]


def whole(model: Any, x: Tensor, k: int) -> Tensor:
    loss: Tensor = (model(x, k) - x).square().mean()
    return loss


def in_two(model: Any, x: Tensor, k: int) -> Tensor:
    """Two micro-batches, of which the first is not summed up."""
    first, second = x.chunk(2)
    with model.no_sync():
        whole(model, first, k).backward()  # type: ignore[no-untyped-call]
    return whole(model, second, k)


def every_second(model: Any, x: Tensor, k: int) -> Tensor:
    """Evaluated before it is trained, which broadcasts buffers once more."""
    with torch.no_grad():
        model(x, k)
    return whole(model, x, k)


def make() -> dict[str, tuple[Any, Backward]]:
    def wrapped(net: nn.Module | None = None, **options: Any) -> Any:
        return DistributedDataParallel(Net() if net is None else net, **{"bucket_cap_mb": 1e-3, **options})

    def hooked() -> Any:
        """A hook that is called before DDP's own, and one behind it, which change what it gets."""
        net = Net()
        model = wrapped(net)
        model.register_forward_pre_hook(lambda _, arguments: (arguments[0] * 0.5, arguments[1]))
        net.register_forward_pre_hook(lambda _, arguments: (arguments[0] + 1.0, arguments[1]))
        return model

    def frozen() -> Any:
        net = Net()
        net.layers[1].requires_grad_(False)
        return wrapped(net)

    return {
        "device_ids, output_device, dim": (wrapped(device_ids=None, output_device=None, dim=0), whole),
        "broadcast_buffers": (wrapped(broadcast_buffers=False), whole),
        "forward_sync_buffers": (wrapped(forward_sync_buffers=True), every_second),
        "init_sync": (wrapped(init_sync=False), whole),
        "process_group": (wrapped(process_group=dist.new_group([0, 1])), whole),
        "device_mesh": (wrapped(device_mesh=init_device_mesh("cpu", (2,))), whole),
        "bucket_cap_mb": (wrapped(bucket_cap_mb=25), whole),
        "bucket_cap_mb_list": (wrapped(bucket_cap_mb=None, bucket_cap_mb_list=[1e-3, 2e-3]), whole),
        "batched_grad_copy": (wrapped(batched_grad_copy=True), whole),
        "find_unused_parameters": (wrapped(Net(sometimes=True), find_unused_parameters=True), whole),
        "skip_all_reduce_unused_params": (wrapped(Net(sometimes=True), find_unused_parameters=True, skip_all_reduce_unused_params=True), whole),
        "gradient_as_bucket_view": (wrapped(gradient_as_bucket_view=True), in_two),
        "static_graph": (wrapped(static_graph=True), whole),
        "check_reduction": (wrapped(check_reduction=True), in_two),
        "forward hooks": (hooked(), whole),
        "frozen": (frozen(), whole),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    run = begin()
    rank = dist.get_rank()
    torch.manual_seed(1)
    tried = make()
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=0.01) for name, (model, _) in tried.items()}
    if run is not None:
        run.register(**{name: model for name, (model, _) in tried.items()}, **{f"{name}.optimizer": optimizer for name, optimizer in optimizers.items()})

    def step(k: int) -> None:
        x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * k + rank))
        for model, loss_of in tried.values():
            loss_of(model, x, k).backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad()

    if run is None:
        for k in range(1, STEPS + 1):
            step(k)
    else:
        run.train(step, STEPS)
    left = {name: {"bits": digest(*model.parameters()), "buffers": digest(*model.buffers()),
                   "states": digest(*(value for state in optimizers[name].state.values() for value in state.values()))}
            for name, (model, _) in tried.items()}  # fmt: skip
    leave(options.folder, left)


if __name__ == "__main__":
    main()
