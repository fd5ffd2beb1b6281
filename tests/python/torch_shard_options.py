"""Each option of fully_shard and each style of parallelize_module with a small model and an optimizer of its own, all in one step. Four ranks, as
two copies of two parts; or (--flat) parts over all ranks, of which nobody has a second copy. PLAIN=1: the same under plain torch over Gloo. What is
left of each, bit for bit, goes to FOLDER/rank-N.json.

  torch_shard_options.py FOLDER [--flat]
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
from torch.distributed.fsdp import CPUOffloadPolicy, DataParallelMeshDims, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, PrepareModuleInputOutput, PrepareModuleOutput, RowwiseParallel,
                                               SequenceParallel, loss_parallel, parallelize_module)  # fmt: skip

from beside import begin, digest, leave

WIDTH, STEPS = 8, 8


class Block(nn.Module):
    def __init__(self, norm: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH) if norm else nn.Identity()
        self.into = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.out(torch.tanh(self.into(self.norm(x))))
        return y


class Net(nn.Module):
    """Two blocks and a layer of the root's own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.head(x)
        return y

    def other(self, x: Tensor) -> Tensor:
        y: Tensor = self(x) * 0.5
        return y


class Tried:
    """A model, and how a step goes on in it."""

    def __init__(self, model: nn.Module, group: Any = None, backward: Callable[[nn.Module, Tensor], Tensor] | None = None, alone: tuple[Tensor, ...] = (),
                 shared_input: bool = False) -> None:  # fmt: skip
        """`group`: over which gradients are averaged by hand, of `alone` or of all. `shared_input`: ranks that share a layer see the same."""
        self.model, self.group, self.alone, self.shared_input = model, group, alone, shared_input
        self._backward = backward or (lambda model, x: model(x).square().mean())
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(self, x: Tensor) -> None:
        loss = self._backward(self.model, x)
        if loss.requires_grad:
            loss.backward()
        if self.group is None:
            return
        for parameter in self.alone or self.model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad, group=self.group)


def sharded(mesh: Any, blocks: dict[str, Any] | None = None, root: dict[str, Any] | None = None, **both: Any) -> Net:
    net = Net()
    for block in net.blocks:
        fully_shard(block, mesh=mesh, **both, **(blocks or {}))
    fully_shard(net, mesh=mesh, **both, **(root or {}))
    return net


def second_dimension(parameter: nn.Parameter) -> Shard | None:
    return Shard(1) if parameter.dim() == 2 else None


def fsdp(mesh: Any, whole: Any) -> dict[str, Tried]:
    """Each option of `fully_shard`, and what FSDPModule lets be set."""

    def ignoring() -> Tried:
        net = Net()
        fully_shard(net, mesh=mesh, ignored_params={net.head.bias})
        return Tried(net, group=whole, alone=(net.head.bias,))

    def over_whole_mesh() -> Tried:
        """Parameters that lie on the whole mesh already."""
        dims = DataParallelMeshDims(shard=mesh.mesh_dim_names[-1], replicate=mesh.mesh_dim_names[0] if mesh.ndim == 2 else None)
        net = Net()
        for module in net.modules():
            for name, parameter in [*module.named_parameters(recurse=False)]:
                module.register_parameter(name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Replicate()] * mesh.ndim)))
        for part in (*net.blocks, net):
            fully_shard(part, mesh=mesh, dp_mesh_dims=dims)
        return Tried(net, backward=lambda net, x: whole_of(net(DTensor.from_local(x, mesh, [Shard(0)] * mesh.ndim))).square().mean())

    def set_up(act: Callable[[Any], object], backward: Callable[[Any, Tensor], Tensor] | None = None, **options: Any) -> Tried:
        net = sharded(mesh, **options)
        act(net)
        return Tried(net, backward=backward)

    def in_two(net: Any, x: Tensor) -> Tensor:
        """Two micro-batches, of which the first leaves its gradients where they are."""
        for sync, part in zip((False, True), x.chunk(2)):
            net.set_requires_gradient_sync(sync)
            net.set_is_last_backward(sync)
            net(part).square().mean().backward()
        return torch.zeros(())

    def gathered_between(net: Any, x: Tensor) -> Tensor:
        for last, part in zip((False, True), x.chunk(2)):
            net.set_reshard_after_backward(last)
            net(part).square().mean().backward()
        return torch.zeros(())

    def prefetch(net: Any) -> None:
        net.set_modules_to_forward_prefetch([net.blocks[0]])
        net.blocks[1].set_modules_to_backward_prefetch([net.blocks[0]])

    def divided_by_three(net: Any) -> None:  # Gloo knows no other way
        net.set_gradient_divide_factor(3.0)
        net.set_force_sum_reduction_for_comms(True)

    def own_sum(net: Any) -> None:
        net.set_all_reduce_hook(lambda gradients: gradients.mul_(0.5))

    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    half_within = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    uncast = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16, cast_forward_inputs=False)
    divided = mesh.ndim == 1 and mesh.size() == 4
    found = {
        "reshard_after_forward": Tried(sharded(mesh, reshard_after_forward=True)),
        "reshard_after_forward, not": Tried(sharded(mesh, reshard_after_forward=False)),
        "reshard_after_forward, both": Tried(sharded(mesh, blocks={"reshard_after_forward": True}, root={"reshard_after_forward": False})),
        "mp_policy": Tried(sharded(mesh, blocks={"mp_policy": half}, root={"mp_policy": half_within})),
        "mp_policy, reduce_dtype": Tried(sharded(mesh, mp_policy=uncast)),
        "offload_policy": Tried(sharded(mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))),
        "ignored_params": ignoring(),
        "shard_placement_fn": Tried(sharded(mesh, shard_placement_fn=second_dimension)),
        "set_requires_gradient_sync": set_up(lambda net: None, in_two),
        "set_reshard_after_backward": set_up(lambda net: None, gathered_between),
        "set_unshard_in_backward": set_up(lambda net: net.blocks[0].set_unshard_in_backward(False), reshard_after_forward=False),
        "set_reshard_after_forward": set_up(lambda net: net.blocks[0].set_reshard_after_forward(False, recurse=False), reshard_after_forward=True),
        "set_modules_to_prefetch": set_up(prefetch),
        "set_gradient_divide_factor": set_up(divided_by_three),
        "set_reduce_scatter_unused_params": set_up(lambda net: net.set_reduce_scatter_unused_params(True), lambda net, x: net.blocks[0](x).square().mean()),
        "set_separate_reduce_scatter_group": set_up(lambda net: net.set_separate_reduce_scatter_group(True)),
        "set_reduce_scatter_max_input_buffers": set_up(lambda net: net.set_reduce_scatter_max_input_buffers(2)),
        "dp_mesh_dims": over_whole_mesh(),
        "unshard, reshard": set_up(lambda net: None, lambda net, x: (net.unshard(), net(x).square().mean())[1]),
        "register_fsdp_forward_method": set_up(lambda net: register_fsdp_forward_method(net, "other"), lambda net, x: net.other(x).square().mean()),
    }
    if divided:
        found["reshard_after_forward, 2 of 4"] = Tried(sharded(mesh, reshard_after_forward=2))
    else:
        found["set_all_reduce_hook"] = set_up(own_sum)
        found["set_requires_all_reduce"] = set_up(lambda net: None, all_reduced_late)
    return found


def all_reduced_late(net: Any, x: Tensor) -> Tensor:
    for last, part in zip((False, True), x.chunk(2)):
        net.set_requires_all_reduce(last)
        net.set_is_last_backward(last)
        net(part).square().mean().backward()
    return torch.zeros(())


def tensor_parallel(mesh: Any, data: Any) -> dict[str, Tried]:
    """Each style of `parallelize_module`, with data parallelism by hand."""
    pair = {"into": ColwiseParallel(), "out": RowwiseParallel()}

    def block(plan: dict[str, Any] | Any, norm: bool = False) -> Tried:
        return Tried(parallelize_module(Block(norm), mesh, plan), data, shared_input=True)

    def sequence() -> Tried:
        """Pieces of the sequence between the layers, as in torch's own examples."""
        net = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH), nn.LayerNorm(WIDTH))
        parallelize_module(net, mesh, {
            "0": SequenceParallel(sequence_dim=0), "1": ColwiseParallel(input_layouts=Shard(0)),
            "2": RowwiseParallel(output_layouts=Shard(0)), "3": SequenceParallel(sequence_dim=0),
        })  # fmt: skip
        return Tried(net, data, lambda net, x: whole_of(net(x)).square().mean(), shared_input=True)

    def prepared() -> Tried:
        inner = nn.Sequential(nn.Linear(WIDTH, WIDTH))
        parallelize_module(inner, mesh, {"0": ColwiseParallel(use_local_output=False)})
        outer = nn.Sequential(inner, nn.Linear(WIDTH, WIDTH))
        parallelize_module(outer, mesh, {
            "0": PrepareModuleOutput(output_layouts=Shard(-1), desired_output_layouts=Replicate(), use_local_output=False),
            "1": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(-1), use_local_output=False),
        })  # fmt: skip
        parallelize_module(outer, mesh, {"1": RowwiseParallel()})
        return Tried(outer, data, lambda net, x: whole_of(net(x)).square().mean(), shared_input=True)

    def in_and_out() -> Tried:
        net = Block(False)
        parallelize_module(net, mesh, PrepareModuleInputOutput(input_layouts=Replicate(), desired_input_layouts=Replicate(), use_local_input=True,
                                                               output_layouts=Replicate(), desired_output_layouts=Replicate()))  # fmt: skip
        parallelize_module(net, mesh, pair)
        return Tried(net, data, lambda net, x: whole_of(net(x)).square().mean(), shared_input=True)

    def cross_entropy(net: nn.Module, x: Tensor) -> Tensor:
        """Over classes that lie apart; its backward pass is within, too."""
        with loss_parallel():
            nn.functional.cross_entropy(net(x), x.argmax(1)).backward()  # type: ignore[no-untyped-call]
        return torch.zeros(())

    def classes() -> Tried:
        net = nn.Sequential(nn.Embedding(16, WIDTH), nn.Linear(WIDTH, 16))
        parallelize_module(net, mesh, {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel(use_local_output=False)})
        return Tried(net, data, lambda net, x: cross_entropy(net, x), shared_input=True)

    def of_rows(net: nn.Module, x: Tensor) -> Tensor:
        with loss_parallel():
            target = (x[:, 0] > 0).long()
            nn.functional.cross_entropy(net(target), target + 3).backward()  # type: ignore[no-untyped-call]
        return torch.zeros(())

    words = classes()
    words._backward = of_rows
    return {"Colwise, Rowwise": block(pair), "SequenceParallel": sequence(), "PrepareModuleInput, Output": prepared(),
            "PrepareModuleInputOutput": in_and_out(), "loss_parallel": words}  # fmt: skip


def whole_of(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--flat", action="store_true")
    options = parser.parse_args()
    run = begin()
    rank = dist.get_rank()
    torch.manual_seed(1)
    if options.flat:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("inner",))
        tried = {**fsdp(mesh, dist.group.WORLD), **tensor_parallel(mesh, None)}
        part = 0
    else:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        tried = {**fsdp(mesh, dist.group.WORLD), **tensor_parallel(mesh["inner"], mesh.get_group("outer"))}
        part = mesh.get_local_rank("outer")
    if run is not None:
        run.register(**{name: one.model for name, one in tried.items()}, **{f"{name}.optimizer": one.optimizer for name, one in tried.items()})

    def step(k: int) -> None:
        own, of_part = (torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * k + number)) for number in (rank, 10 + part))
        for one in tried.values():
            one.train(of_part if one.shared_input else own)
        for one in tried.values():
            one.optimizer.step()
            one.optimizer.zero_grad()

    if run is None:
        for k in range(1, STEPS + 1):
            step(k)
    else:
        run.train(step, STEPS)
    left = {name: {"bits": digest(*one.model.parameters()),
                   "states": digest(*(value for state in one.optimizer.state.values() for value in state.values()))} for name, one in tried.items()}  # fmt: skip
    leave(options.folder, left)


if __name__ == "__main__":
    main()
