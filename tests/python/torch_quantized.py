"""A frozen fp8 weight with its scale, into which each update merges what is trained beside it: the weight is a tensor made of two
others, as those of torchao are, and so is a moment of the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

import kintsugi.torch

STEPS = 6
WIDTH = 8


class Scaled(Tensor):
    """fp8 values, and one scale for each row."""

    _data: Tensor
    _scale: Tensor

    @staticmethod
    def __new__(cls, data: Tensor, scale: Tensor) -> Scaled:
        made: Scaled = Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)
        made._data, made._scale = data, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["_data", "_scale"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return cls(args[0]._data, args[0]._scale)
        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))

    def quantize(self, values: Tensor) -> None:
        self._scale.copy_(values.abs().amax(1, keepdim=True) / 448)
        self._data.copy_((values / self._scale).to(self._data.dtype))


def plain(tensor: Any) -> Any:
    return tensor._data.to(tensor._scale.dtype) * tensor._scale if isinstance(tensor, Scaled) else tensor


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        weight = Scaled(torch.zeros(WIDTH, WIDTH, dtype=torch.float8_e4m3fn), torch.zeros(WIDTH, 1))
        weight.quantize(torch.randn(WIDTH, WIDTH))
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        frozen: Tensor = plain(self.weight.detach())
        adapted: Tensor = self.up(self.down(x))
        return x @ frozen.T + adapted

    @torch.no_grad()
    def merge(self) -> None:
        weight = self.weight.detach()
        assert isinstance(weight, Scaled)
        weight.quantize(plain(weight) + self.up.weight @ self.down.weight)


class Momentum(torch.optim.Optimizer):
    """SGD whose momentum is kept in fp8; then `merge`."""

    def __init__(self, parameters: Any, lr: float, merge: Callable[[], None]) -> None:
        super().__init__(parameters, {"lr": lr})
        self._merge = merge

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                held = self.state[parameter]
                if not held:
                    held["momentum"] = Scaled(torch.zeros_like(parameter, dtype=torch.float8_e4m3fn),
                                              torch.ones(len(parameter), 1))  # fmt: skip
                moved = 0.5 * plain(held["momentum"]) + parameter.grad
                if bool(moved.any()):
                    held["momentum"].quantize(moved + 1e-6)
                parameter -= group["lr"] * moved
        self._merge()


torch.manual_seed(5)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
adapted = Adapted()
model = DistributedDataParallel(adapted)
optimizer = Momentum([p for p in adapted.parameters() if p.requires_grad], 0.1, adapted.merge)
run.register(model=model, optimizer=optimizer)
for held in ("model/weight._data: float8_e4m3fn [8, 8]", "model/weight._scale: float32 [8, 1]",
             "optimizer/up.weight.momentum._data: float8_e4m3fn [8, 2]"):  # fmt: skip
    assert held in run.plan(), run.plan()


def step(k: int) -> None:
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(10 * k + dist.get_rank()))
    loss = nn.functional.mse_loss(model(x), x.roll(1, 1))
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    run.report(loss.item(), [k])
    optimizer.step()


run.train(step, STEPS)
