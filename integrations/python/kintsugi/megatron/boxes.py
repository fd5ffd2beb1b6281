"""Which boxes of which tensors a rank holds, and with whom: read from Megatron's sharded_state_dict and its groups.

`sharded_state_dict()` says key, global shape and offset of every part, and by `replica_id` that others hold the same, but not who.
Who they are follows from the groups: ranks of a grid that differ by a step along a dimension which does not cut the tensor. Each rank
finds them alone (a newcomer has nobody to ask), and what it finds is compared with Megatron's replica_id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from .._errors import Error
from ..abi import Code
from ..terms import Piece
from .core import Core

# One key for each part that a rank has: with layers as a dimension of one tensor, a rank would hold several boxes under one key.
METADATA = {"singleton_local_shards": True}


@dataclass(frozen=True)
class Part:
    """A part of a tensor: `start` to `stop` of the elements of what this rank has in its place."""

    key: str
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    box: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Placed:
    """A parameter, the parts it consists of, and whether tensor parallelism cuts it."""

    parameter: torch.Tensor
    parts: tuple[Part, ...]
    is_cut: bool

    @property
    def name(self) -> str:
        return self.parts[0].key


class Grid:
    """The groups this rank is in, as steps from its own number."""

    def __init__(self, core: Core) -> None:
        state = core.parallel_state
        if not state.is_initialized():
            raise Error("parallel_state.initialize_model_parallel comes before kintsugi.megatron.protect", Code.FAILED_PRECONDITION)
        self.rank = dist.get_rank()
        self.data = self._steps(state.get_data_parallel_group(with_context_parallel=True))
        self.tensor = self._steps(state.get_tensor_model_parallel_group())
        self.expert_data = self._steps(state.get_expert_data_parallel_group())
        # Ranks with the same shard of a DistributedOptimizer.
        several = state.get_inter_distributed_optimizer_instance_group(check_initialized=False)
        self.instances = (0,) if several is None else self._steps(several)
        embedding = state.get_embedding_group(check_initialized=False)
        member = embedding is not None and self.rank in dist.get_process_group_ranks(embedding)
        self.embedding = self._steps(embedding) if member else (0,)

    def _steps(self, group: Any) -> tuple[int, ...]:
        return tuple(rank - self.rank for rank in dist.get_process_group_ranks(group))

    def ranks(self, *dimensions: tuple[int, ...]) -> tuple[int, ...]:
        """All that are reached by one step along each of the dimensions."""
        found = {self.rank}
        for steps in dimensions:
            found = {rank + step for rank in found for step in steps}
        return tuple(sorted(found))

    def holders(self, placed: Placed, is_sharded: bool = False) -> tuple[int, ...]:
        """Who has the same of a parameter, or of this rank's shard of it where an optimizer is distributed."""
        if not getattr(placed.parameter, "allreduce", True):
            return self.ranks(self.instances if is_sharded else self.expert_data)  # an expert's
        data = self.instances if is_sharded else self.data
        return self.ranks(data, *self._beside_data(placed, () if placed.is_cut else self.tensor))

    def holders_of_counts(self, placed: Placed) -> tuple[int, ...]:
        """Who has the same count of steps: also those with other parts of the parameter."""
        if not getattr(placed.parameter, "allreduce", True):
            return self.ranks(self.expert_data)
        return self.ranks(self.data, *self._beside_data(placed, self.tensor))

    def _beside_data(self, placed: Placed, tensor: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if tensor:
            yield tensor
        if getattr(placed.parameter, "shared_embedding", False):
            yield self.embedding

    def check(self, key: str, replica_id: Any, parameter: torch.Tensor, is_cut: bool) -> None:
        """Megatron's (of pipeline, of tensor, of data parallelism) must say what the groups say."""
        if not getattr(parameter, "allreduce", True):
            return
        wanted = (0 if is_cut else self.tensor.index(0), self.data.index(0))
        found = tuple(replica_id)[-2:] if isinstance(replica_id, tuple) else None
        if found != wanted:
            raise Error(
                f"'{key}': its replica_id is {replica_id}, where the groups say that this rank has copy {wanted[0]} of tensor and "
                f"{wanted[1]} of data parallelism: who holds the same cannot be told. Make its sharded tensor with Megatron's "
                "make_sharded_tensor_for_checkpoint or make_tp_sharded_tensor_for_checkpoint",
                Code.INVALID_ARGUMENT,
            )


def placed_parameters(core: Core, grid: Grid, chunks: Iterable[Any]) -> list[Placed]:
    """Every parameter of the model's chunks, as sharded_state_dict has it."""
    found: list[Placed] = []
    keys: set[str] = set()
    for chunk in chunks:
        wanted = {id(parameter): name for name, parameter in chunk.named_parameters()}
        for value in core.nested_values(chunk.sharded_state_dict(metadata=dict(METADATA))):
            if not isinstance(value, (core.ShardedTensor, core.ShardedTensorFactory)) or wanted.pop(id(value.data), None) is None:
                continue  # a buffer, which is protected as one; an object, which is a module's extra state
            placed = _placed(core, grid, value)
            for part in placed.parts:
                if part.key in keys:
                    raise Error(f"'{part.key}' stands twice in this rank's sharded_state_dict: a key names one part of a rank's", Code.INVALID_ARGUMENT)
                keys.add(part.key)
            found.append(placed)
        if wanted:
            raise Error(f"{', '.join(wanted.values())}: in the model, but not in its sharded_state_dict as it is (keep_vars=True)", Code.INVALID_ARGUMENT)
    return found


def _placed(core: Core, grid: Grid, value: Any) -> Placed:
    parameter = value.data
    if not parameter.is_contiguous():
        raise Error(f"'{value.key}' is not contiguous: it has strides {parameter.stride()}", Code.INVALID_ARGUMENT)
    tensors = [value] if isinstance(value, core.ShardedTensor) else list(core.nested_values(_as_nested(value.build())))
    # Cut by tensor parallelism: along a dimension of its own, not along those that stand before it (layers, experts).
    cut = any(whole > own for t in tensors for whole, own in zip(t.global_shape[t.prepend_axis_num :], t.local_shape))
    for tensor in tensors:
        grid.check(tensor.key, tensor.replica_id, parameter, cut)
    parts = tuple(sorted((_part(parameter, tensor) for tensor in tensors), key=lambda part: part.start))
    if [part.start for part in parts] != [0, *(part.stop for part in parts)][:-1] or parts[-1].stop != parameter.numel():
        raise Error(f"'{value.key}': its factory makes parts that are not this rank's tensor one after the other: cannot be protected", Code.INVALID_ARGUMENT)
    return Placed(parameter, parts, cut)


def _as_nested(built: Any) -> Any:
    return built if isinstance(built, (dict, list)) else [built]


def _part(parameter: torch.Tensor, tensor: Any) -> Part:
    data = tensor.data
    if tensor.flattened_range is not None:
        raise Error(f"'{tensor.key}' has a flattened range, which megatron-core 0.16 itself refuses", Code.INVALID_ARGUMENT)
    if not data.is_contiguous() or data.untyped_storage()._cdata != parameter.untyped_storage()._cdata:
        raise Error(f"'{tensor.key}': its factory makes copies of the parameter or cuts it across its rows: cannot be protected", Code.INVALID_ARGUMENT)
    start = data.storage_offset() - parameter.storage_offset()
    box = (1,) * tensor.prepend_axis_num + tuple(tensor.local_shape)
    return Part(tensor.key, tuple(tensor.global_shape), tuple(tensor.global_offset), box, start, start + data.numel())


Entry = tuple[str, torch.Tensor, Piece]


def entries_of(placed: Placed, prefix: str, tensor: torch.Tensor, first: int, holders: tuple[int, ...]) -> Iterator[Entry]:
    """What is registered for `tensor`: elements `first` and following of the parameter, or of a state in its shape."""
    flat = tensor.detach().view(-1)
    last = first + flat.numel()
    for part in placed.parts:
        start, stop = max(part.start, first), min(part.stop, last)
        if start >= stop:
            continue
        whole = (start, stop) == (part.start, part.stop)
        piece = Piece(part.global_shape, part.offset, holders, part.box, (0, 0) if whole else (start - part.start, stop - part.start))
        yield prefix + part.key, flat[start - first : stop - first], piece


# A pipeline's last stage has the output matrix under this name; it is the embedding where both are tied.
_EMBEDDING, _OUTPUT = "embedding.word_embeddings.weight", "output_layer.weight"
_MAIN, _MAIN_OF_DISTRIBUTED = "optimizer.state.fp32_param.", "optimizer.state.param."


def further_names(keys: Iterable[str], chunks: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """(alias, key) of what a checkpoint also has under another name: a tied output matrix and its optimizer's state; and what a
    DistributedOptimizer asks for as `param`, be it a copy in fp32 or the parameter itself."""
    tied = any(getattr(chunk, "share_embeddings_and_output_weights", False) for chunk in chunks)
    known = {*keys}
    for key in sorted(known):
        names = [key]
        if key.startswith(_MAIN):
            names.append(_MAIN_OF_DISTRIBUTED + key.removeprefix(_MAIN))
        elif not key.startswith("optimizer.") and _MAIN + key not in known:
            names.append(_MAIN_OF_DISTRIBUTED + key)
        if tied:
            names += [name.replace(_EMBEDDING, _OUTPUT) for name in names if name.endswith(_EMBEDDING)]
        yield from ((name, key) for name in names[1:])
