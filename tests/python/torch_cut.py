"""Tensor parallelism that a program does by itself, without DTensor: a gated layer whose gate and up matrix are one parameter.

  torch_cut.py [--steps N] [--tensor N] [--anew] [--mistakes]

The same global batch in each step, whatever the sizes. --anew: run.build makes the model, anew after each fault. --mistakes: of rules;
each is refused, and training goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import kintsugi.torch

WIDTH, HIDDEN, BATCH = 12, 24, 24


class Copied(torch.autograd.Function):
    """What goes into a cut layer: its gradient is the sum over the ranks that have the layer."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Added(torch.autograd.Function):
    """What comes out of it is the sum."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


class Gated(nn.Module):
    def __init__(self, group: Any, place: int, size: int) -> None:
        super().__init__()
        self.group = group
        whole = torch.Generator().manual_seed(1)
        gate, up, down = (torch.randn(*shape, generator=whole) * 0.2 for shape in ((HIDDEN, WIDTH), (HIDDEN, WIDTH), (WIDTH, HIDDEN)))
        first, last = place * HIDDEN // size, (place + 1) * HIDDEN // size
        self.inner = nn.Linear(WIDTH, WIDTH)
        nn.init.eye_(self.inner.weight)
        nn.init.zeros_(self.inner.bias)
        self.w13 = nn.Parameter(torch.cat((gate[first:last], up[first:last])))
        self.w2 = nn.Parameter(down[:, first:last].contiguous())
        self.again = self.w2  # tied

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = Copied.apply(self.inner(x), self.group)  # type: ignore[no-untyped-call]
        gate, up = nn.functional.linear(x, self.w13).chunk(2, dim=-1)
        out = nn.functional.linear(nn.functional.silu(gate) * up, self.again)
        return Added.apply(out, self.group)  # type: ignore[no-untyped-call,no-any-return]


def refused(words: str, function: Callable[..., object], *positional: object, **arguments: object) -> None:
    try:
        function(*positional, **arguments)
    except kintsugi.torch.Error as error:
        if words not in str(error):
            raise RuntimeError(f"'{words}' is not in '{error}'") from error
        return
    raise RuntimeError(f"not refused: {words}")


def be_wrong(run: kintsugi.torch.TorchRun) -> None:
    everyone = [list(range(run.world_size))]
    refused("groups of one size", kintsugi.cut, 0, [[0, 1], [2]], run.rank)
    refused("rank 9 too", kintsugi.cut, 0, everyone, 9)
    refused("a name of its own", kintsugi.cut, 0, everyone, run.rank, ("gate", "gate"))
    refused("cuts names 'late/w', as no parameter in this call is called; there are 'late/weight'",
            run.register, late=nn.Linear(2, 2), cuts={"late/w": kintsugi.cut(0, everyone, run.rank)})
    refused("say it by name, cuts={'late/*.weight': ...}", run.register, late=nn.Linear(2, 2), cuts=kintsugi.cut(0, everyone, run.rank))
    refused("has no axis 2", run.register, late=nn.Linear(2, 2), cuts={"late/*": kintsugi.cut(2, everyone, run.rank)})
    refused("'weight' has 3 rows, which are not 2 tensors (a, b)", run.register, late=nn.Linear(2, 3),
            cuts={"late/weight": kintsugi.cut(0, everyone, run.rank, ("a", "b"))})

    def rule(*parts: kintsugi.Part) -> kintsugi.Cut:
        return lambda key, shape: parts

    def piece(*box: int, offset: tuple[int, ...] = (0, 0)) -> kintsugi.Piece:
        return kintsugi.Piece((4, 2), offset, (run.rank,), box)

    for words, wrong in (
        ("whose name does not begin with it", rule(kintsugi.Part("w", 0, piece(2, 2)))),
        ("say three of one length", rule(kintsugi.Part("weight", 0, piece(4)))),
        ("reaches out of [4, 2]", rule(kintsugi.Part("weight", 0, piece(2, 2, offset=(3, 0))))),
        ("two parts of one name", rule(kintsugi.Part("weight", 0, piece(1, 2)), kintsugi.Part("weight", 2, piece(1, 2)))),
        ("begins at element 3 of 'weight', where element 2 must be next",
         rule(kintsugi.Part("weight.a", 0, piece(1, 2)), kintsugi.Part("weight.b", 3, piece(1, 2)))),
        ("has 4 elements, its parts have 2", rule(kintsugi.Part("weight.a", 0, piece(1, 2)))),
    ):  # fmt: skip
        refused(words, run.register, late=nn.Linear(2, 2), cuts={"late/weight": wrong})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tensor", type=int, default=2)
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--mistakes", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    copies = run.world_size // options.tensor
    cut_over = [[copy * options.tensor + place for place in range(options.tensor)] for copy in range(copies)]
    copy, place = divmod(run.rank, options.tensor)
    cuts = {"model/w13": kintsugi.cut(0, cut_over, run.rank, ("gate", "up")), "model/w?": kintsugi.cut(1, cut_over, run.rank)}
    if options.mistakes:
        be_wrong(run)
    alike = [dist.new_group([group[place] for group in cut_over]) for place in range(options.tensor)][place]
    tensor = [dist.new_group(group) for group in cut_over][copy]

    def make() -> dict[str, Any]:
        model = Gated(tensor, place, options.tensor)
        return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=3e-2)}

    things: Any
    if options.anew:
        things = run.build(make, always=True, cuts=cuts)
    else:
        things = argparse.Namespace(**make())
        run.register(model=things.model, optimizer=things.optimizer, cuts=cuts)
    assert "WITHOUT A SECOND COPY" not in run.plan() or copies == 1, run.plan()

    def step(k: int) -> None:
        things.optimizer.zero_grad()
        batch = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(k))
        own = batch[copy * BATCH // copies : (copy + 1) * BATCH // copies]
        loss = (things.model(own) - own.flip(1)).square().mean() / copies
        loss.backward()
        for parameter in things.model.parameters():
            dist.all_reduce(parameter.grad, group=alike)
        whole = loss.detach().clone()
        dist.all_reduce(whole, group=alike)
        run.report(loss=whole.item(), samples=[] if place else range(k * BATCH + copy * BATCH // copies, k * BATCH + (copy + 1) * BATCH // copies))
        things.optimizer.step()

    run.train(step, steps=options.steps)


main()
