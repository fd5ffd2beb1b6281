"""What torch's parallel wrappers say: which piece of a tensor a rank holds, with whom, and what a broken step leaves in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, _redistribute
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.nn import Module, Parameter, SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel

from .._errors import Error
from ..abi import Code
from ..terms import Piece


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of this rank's part."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def inner_tensors(key: str, tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """What the tensor is made of, by names: quantized ones are data and scale (`__tensor_flatten__`). Of any other: itself."""
    if isinstance(tensor, DTensor) or not hasattr(tensor, "__tensor_flatten__"):
        return [(key, tensor)]
    names, _ = tensor.__tensor_flatten__()
    return [inner for name in names for inner in inner_tensors(f"{key}.{name}", getattr(tensor, name))]


def piece_of(key: str, tensor: torch.Tensor, plain: tuple[int, ...]) -> Piece:
    """`plain`: the ranks that hold a copy of an ordinary tensor, where torch does not say."""
    if not isinstance(tensor, DTensor):
        return Piece(tuple(tensor.size()), (0,) * tensor.dim(), plain)
    if tensor.numel() == 0:  # no cut is a cut of nothing
        return Piece(tuple(tensor.shape), (0,) * tensor.dim(), mesh_ranks(tensor), tuple(tensor.shape))
    mesh, placements = tensor.device_mesh, tensor.placements
    if any(placement.is_partial() for placement in placements):
        raise Error(f"'{key}' is a DTensor of partial sums ({placements}): no rank holds its value; redistribute it first", Code.INVALID_ARGUMENT)
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    local = tuple(tensor._local_tensor.size())
    if tuple(shape) != local and tensor._local_tensor.numel() > 0:
        raise Error(f"'{key}' ({placements}) is {list(local)} here, where {list(shape)} was expected: uneven pieces of pieces "
                    "cannot be protected; choose sizes that the meshes divide", Code.INVALID_ARGUMENT)  # fmt: skip
    return Piece(tuple(tensor.shape), tuple(offset), holders_of(tensor))


def holders_of(tensor: DTensor) -> tuple[int, ...]:
    """Ranks with the same piece: those that differ in dimensions of the mesh which do not cut the tensor. A mesh that is a slice of
    another has siblings along the other's dimensions: these are copies, as in data parallelism over tensor parallelism."""
    mesh = tensor.device_mesh
    here = mesh.get_coordinate()
    assert here is not None
    index = [at if placement.is_shard() or _is_strided(placement) else slice(None)
             for at, placement in zip(here, tensor.placements)]  # fmt: skip
    return tuple(sorted(_with_siblings(mesh)[(slice(None), *index)].flatten().tolist()))


def mesh_ranks(tensor: DTensor) -> tuple[int, ...]:
    """Ranks that have any piece of it."""
    return tuple(sorted(_with_siblings(tensor.device_mesh).flatten().tolist()))


def replicas_of(tensor: DTensor) -> set[tuple[int, ...]]:
    """Ranks that together hold all of it, once: those that differ in dimensions of the mesh which cut it."""
    whole = _with_siblings(tensor.device_mesh)
    cut = [1 + at for at, placement in enumerate(tensor.placements) if placement.is_shard() or _is_strided(placement)]
    rows = whole.permute(*(at for at in range(whole.dim()) if at not in cut), *cut).flatten(-len(cut)) if cut else whole.unsqueeze(-1)
    return {tuple(sorted(row)) for row in rows.reshape(-1, rows.size(-1)).tolist()}


def forget_meshes() -> None:
    """torch keeps what it has worked out for a mesh, and finds it by the mesh's shape: with one made anew it would go on with groups that are gone."""
    from torch.distributed.tensor import debug  # which imports half of torch

    debug._clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
    _redistribute._gen_transform_infos.cache_clear()
    if hasattr(_redistribute, "clear_redistribute_planner_cache"):
        _redistribute.clear_redistribute_planner_cache()


def _is_strided(placement: Any) -> bool:
    return type(placement).__name__ == "_StridedShard"


def _with_siblings(mesh: Any) -> torch.Tensor:
    whole: torch.Tensor = mesh._layout.remap_to_tensor(mesh._rank_map)
    return whole.reshape(-1, *mesh.shape)


# ---- modules ------------------------------------------------------------------------------------------------------------


def wrapped_by_ddp(models: list[Module]) -> list[Any]:
    """DistributedDataParallel, without its type: what is asked of it here has none. Each once."""
    return list({id(m): m for model in models for m in model.modules() if isinstance(m, DistributedDataParallel)}.values())


def reset(models: list[Module]) -> None:
    """After an abort: nothing of the step that was given up is added to the next, and gathered parameters are gathered anew. How DDP
    lays its gradients out is put back with the objects (`ddp_layout.py`)."""
    for wrapped in wrapped_by_ddp(models):
        wrapped._update_process_group(wrapped.process_group)
    for model in models:
        for group in sharded_groups(model):
            group._all_gather_result = None  # its work has failed: waiting for it would raise again
            for parameter in group.fsdp_params:
                # Gradients of whole parameters that were not reduced yet: torch's own reset leaves them (before 2.15, which
                # has them nowhere but in the whole parameter: what had this name there is read only).
                if "unsharded_accumulated_grad" in vars(parameter):
                    parameter.unsharded_accumulated_grad = None
                if hasattr(parameter, "_unsharded_param"):
                    parameter._unsharded_param.grad = None
        for module in model.modules():
            if isinstance(module, FSDPModule) and module._get_fsdp_state()._is_root:
                _begin_anew(module)
        for parameter in model.parameters():
            parameter.grad = None


def _begin_anew(root: Any) -> None:
    """What `reset_iter_state` does, which torch has from 2.13 on. On the host: there are no events to wait for."""
    if hasattr(root, "reset_iter_state"):
        root.reset_iter_state()
        return
    state = root._get_fsdp_state()
    state._comm_ctx.all_gather_state = state._comm_ctx.reduce_scatter_state = None
    state._comm_ctx.post_forward_order.clear()
    for member in state._state_ctx.all_states:
        member._modules_to_run_forward.clear()
        member._training_state = type(member._training_state).IDLE
        for group in _groups_of(member):
            group._all_gather_result = group._post_reduce_event = group._all_reduce_state = None
            group._reshard_after_forward_event = group._partial_reduce_output = None
            group._post_forward_indices.clear()
            group._training_state = type(group._training_state).IDLE
            group._to_sharded()
    state._state_ctx.iter_forward_root = None
    state._state_ctx.post_backward_final_callback_queued = False


def not_resettable(models: list[Module]) -> list[str]:
    """Wrappers in which a broken step may leave what `reset` knows nothing of: those that communicate by means of their own."""
    reasons = []
    for model in models:
        for path, module in model.named_modules():
            if not isinstance(module, (DistributedDataParallel, FSDPModule, SyncBatchNorm)) and (kept := _means_of(module)):
                name = f"{type(module).__name__}{f' ({path})' if path else ''}"
                reasons.append(f"what {name} keeps of the broken step is not known, as its '{kept}' has to do with other ranks")
        hooked = [path for path, parameter in model.named_parameters() if parameter._post_accumulate_grad_hooks or parameter._backward_hooks]
        if hooked:
            reasons.append(f"what the hooks on the gradient of '{hooked[0]}' keep of the broken step is not known")
    return reasons


def _means_of(module: Module) -> str:
    """The attribute in which a module keeps a process group or a work."""
    for name, value in vars(module).items():
        several = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else (value,)
        if any(isinstance(one, (dist.ProcessGroup, dist.Work)) for one in several):
            return name
    return ""


def refuse_flat(name: str, model: Module) -> None:
    """A flat parameter's pieces are its wrapper's secret: taken for a whole one, another rank's would be repaired into it."""
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise Error(f"'{name}' is wrapped in FullyShardedDataParallel, whose flat parameters do not say which piece of what a rank has: use "
                    "torch.distributed.fsdp.fully_shard", Code.INVALID_ARGUMENT)  # fmt: skip


def gathered_parameters(model: Module) -> Iterator[Parameter]:
    """What stands in the place of cut parameters while they are gathered."""
    for group in sharded_groups(model):
        yield from (p._unsharded_param for p in group.fsdp_params if hasattr(p, "_unsharded_param"))


def parameters_of(model: Module) -> Iterator[Parameter]:
    """Those that hold the state, also while some are gathered."""
    gathered = {id(p._unsharded_param): p.sharded_param for group in sharded_groups(model) for p in group.fsdp_params
                if hasattr(p, "_unsharded_param")}  # fmt: skip
    for parameter in model.parameters():
        yield gathered.get(id(parameter), parameter)


def sharded_parameters(model: Module) -> Iterator[Any]:
    """FSDP2's own, of which each knows the parameter that is cut, and the gathered one."""
    for group in sharded_groups(model):
        yield from group.fsdp_params


def plain_holders(model: Module, default: tuple[int, ...]) -> tuple[int, ...]:
    """Who holds the ordinary tensors of a model: those that DDP keeps alike, else everybody."""
    if isinstance(model, DistributedDataParallel):
        return tuple(sorted(dist.get_process_group_ranks(model.process_group)))
    return default


def refuse_gathered(groups: list[Any], step: int) -> None:
    """Behind an update: what is still gathered has the values of before it, and torch would go on with these."""
    for group in groups:
        if not group.is_sharded and any(parameter.sharded_param.requires_grad for parameter in group.fsdp_params):
            name = group._module_fqn or type(group.modules[0]).__name__.removeprefix("FSDP")
            raise Error(f"step {step} left parameters of '{name}' gathered behind their update, so that torch would go on with the values of before it: "
                        "set_reshard_after_backward(True) before the last backward pass of a step, or model.reshard() in the step", Code.FAILED_PRECONDITION)  # fmt: skip


def sharded_groups(model: Module) -> Iterator[Any]:
    for module in model.modules():
        if isinstance(module, FSDPModule):
            yield from _groups_of(module._get_fsdp_state())


def _groups_of(state: Any) -> list[Any]:
    if hasattr(state, "_fsdp_param_groups"):
        groups: list[Any] = state._fsdp_param_groups
        return groups
    return [state._fsdp_param_group] if state._fsdp_param_group else []  # until torch 2.12
