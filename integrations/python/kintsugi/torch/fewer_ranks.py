"""What torch has of the world's size beside its groups: samplers that divide a data set, and what cannot follow where ranks leave.

Whatever of it a script keeps is found among all objects of the process: that happens once, and at an incident that leaves ranks out.

Threads: the trainer's. Errors: Error, which names what cannot follow.
"""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data.distributed import DistributedSampler

from .._errors import Error
from ..abi import Code
from .registry import Registry

_Kind = TypeVar("_Kind")


def refuse_kinds(kept: str, registry: Registry, world_size: int, is_built: bool) -> None:
    """What shares state out among ranks, or counts them, by itself. `kept`: what else does. `is_built`: by the function given to run.build."""
    for optimizer in registry.sharing if not is_built else ():
        raise Error(f"run.offer: a {type(optimizer).__name__} deals state out among the ranks that there are as it is made: let run.build make it, with "
                    "its model, or leave run.offer out", Code.FAILED_PRECONDITION)  # fmt: skip
    if registry.frameworks:
        kept = "a framework that cuts its own state"
    elif some := [optimizer for optimizer, shares in registry.sharing.items() if len(shares.ranks) < world_size]:
        kept = f"a {type(some[0]).__name__} over a group of some ranks"
    elif registry.cuts_by_rules:
        kept = "a rule of `cuts`, which names ranks that are fixed,"
    if kept:
        raise Error(f"run.offer: {kept} cannot go on with fewer ranks: leave run.offer out", Code.FAILED_PRECONDITION)


def meshes() -> list[DeviceMesh]:
    return [*_all(DeviceMesh)]


def others(found: list[DeviceMesh], known: list[DeviceMesh]) -> list[DeviceMesh]:
    """Without those that are known, and what was cut out of these. Equal ones are not the same."""
    ids = {*map(id, known)}
    return [mesh for mesh in found if id(mesh) not in ids and id(mesh._get_root_mesh()) not in ids]


class _Gone(DeviceMesh):
    """Made before other ranks took part. Some of its groups may be the default one, which is of others by now: it would be used, and nobody would notice."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise Error("a DeviceMesh is used that was made before other ranks took part: ask in the step for the one that run.build has made anew (built.mesh)",
                    Code.FAILED_PRECONDITION)  # fmt: skip

    get_group = get_all_groups = get_local_rank = get_rank = get_coordinate = size = __getitem__ = _refuse


def retire(known: list[DeviceMesh]) -> None:
    for mesh in known:
        mesh.__class__ = _Gone


def refuse_fixed(world_size: int, built: list[DeviceMesh]) -> None:
    """What names ranks, or divides by their number in a way of its own. `built`: by the function given to run.build, which makes them anew."""
    for mesh in others(meshes(), built):
        raise Error(f"run.offer: there is a {mesh}, whose ranks are fixed: leave run.offer out, or the mesh, or let run.build make it behind run.offer",
                    Code.FAILED_PRECONDITION)  # fmt: skip
    for sampler in _all(DistributedSampler):
        if type(sampler) is not DistributedSampler and sampler.num_replicas == world_size > 1:
            raise Error(f"run.offer: a {type(sampler).__name__} divides its data among {world_size} ranks in a way of its own: only "
                        "torch's DistributedSampler itself is told another number", Code.FAILED_PRECONDITION)  # fmt: skip


class Share(NamedTuple):
    part: int
    parts: int

    def __str__(self) -> str:
        return f"part {self.part} of {self.parts}"


def divide_among(before: list[Share], now: list[Share]) -> None:
    """Samplers that divided among all ranks, or slices, do so among those that there are now, as if they were made now."""
    became = dict(zip((share.parts for share in before), now))
    for sampler in _all(DistributedSampler):
        if type(sampler) is DistributedSampler and sampler.num_replicas in became:
            sampler.rank, parts = became[sampler.num_replicas]
            sampler.num_replicas = parts
            count = len(sampler.dataset)  # type: ignore[arg-type]
            shares = count - parts if sampler.drop_last and count % parts != 0 else count
            sampler.num_samples = math.ceil(shares / parts)
            sampler.total_size = sampler.num_samples * parts


def described(before: int, now: int, step: int) -> str:
    return (f"from step {step} on {now} ranks train in the place of {before}: each with batches of the size that they had, so that all together take {now} samples "
            f"where they took {before}")  # fmt: skip


def _all(kind: type[_Kind]) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some objects warn where they are looked at
        found = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
    return iter(found)
