"""What torch can do and a run cannot keep: refused by name where it is made, not found out in a wait without end."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn import Module, ModuleDict, ModuleList, Parameter, Sequential
from torch.nn.modules import module

from .._errors import Error
from ..abi import Code
from .ddp_layout import kept_by, name_of
from .devices import Device

_c10d: Any = dist.distributed_c10d


def refuse_environment() -> None:
    """What a word in the environment makes of torch."""
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        raise Error("TORCH_DISTRIBUTED_DEBUG=DETAIL: torch puts a group of its own around each, whose connections nobody mends: use INFO, or OFF; `kintsugi hang` "
                    "and `kintsugi watch` say which rank calls another collective", Code.FAILED_PRECONDITION)  # fmt: skip


def watch(trains: Callable[[], bool], extension: Any, device: Device, is_drafted: Callable[[], bool]) -> None:
    """From now on, in this process. `trains`: whether training has begun and not ended; `is_drafted`: whether parameters lie elsewhere for a step."""
    _watch_groups(trains)
    _watch_join()
    _watch_objects()
    _watch_graphs(extension.set_capturing, device, is_drafted)
    _watch_symmetric_memory()


def watch_parts(changing: Callable[[], bool], models: Callable[[], Mapping[str, Module]]) -> None:
    """From now on, in this process: a step that makes a registered model another. A process that takes a lost one's place passes by it, and keeps the model as
    it was. `changing`: whether a step or a section is in hand, which is passed by later."""

    def add_module(parent: Module, name: str, part: Module | None) -> None:
        before = parent._modules.get(name)
        is_other = type(before) is not type(part) if before is not None else isinstance(parent, (Sequential, ModuleList, ModuleDict))
        if is_other and changing() and (path := _path_of(parent, models())) is not None:
            was = "none" if before is None else f"a {type(before).__name__}"
            raise _made_another(f"{path}.{name}", f"a {type(part).__name__}", was)

    def add_parameter(parent: Module, name: str, parameter: Parameter | None) -> None:
        """One that the model has, under another name (pruning, weight_norm); others are seen elsewhere."""
        if parameter is not None and name not in parent._parameters and changing() and (path := _path_of(parent, models())) is not None:
            raise _made_another(f"{path}.{name}", "a parameter", "none")

    module.register_module_module_registration_hook(add_module)
    module.register_module_parameter_registration_hook(add_parameter)


def _path_of(part: Module, models: Mapping[str, Module]) -> str | None:
    return next((".".join(filter(None, (name, path))) for name, model in models.items() for path, one in model.named_modules() if one is part), None)


def _made_another(path: str, now: str, was: str) -> Error:
    return Error(f"'{path}' becomes {now}, and was {was} at run.register: a process that takes a lost one's place passes by that, and would have the model as it was. "
                 "Make it so before run.register (pruning: a mask is a buffer), or go on with the other model in a run of its own", Code.FAILED_PRECONDITION)  # fmt: skip


def refuse_own_means(groups: list[Any]) -> None:
    """Of FSDP2's groups of parameters: collectives of the script's own, and hooks that keep what nobody else can know."""
    for group in groups:
        name = f"fully_shard of {type(group.modules[0]).__name__.removeprefix('FSDP')}"
        for setter, own in (("set_custom_all_gather", group._all_gather_comm), ("set_custom_reduce_scatter", group._reduce_scatter_comm)):
            if not type(own).__module__.startswith("torch."):
                raise Error(f"{name}: what the {type(own).__name__} of {setter} keeps of a broken step is not known: leave it out", Code.INVALID_ARGUMENT)
        hook = group._all_reduce_hook
        if hook is not None and (kept := next(kept_by(hook, None), None)):
            raise Error(f"{name}: its set_all_reduce_hook {name_of(hook)} keeps a {kept}, which is no part of what is protected: use a function without "
                        "a state", Code.INVALID_ARGUMENT)  # fmt: skip


def is_ours(backend: object) -> bool:
    """Of a backend, or of one for each kind of device ("cpu:kintsugi,cuda:nccl")."""
    return all(part.split(":")[-1] == "kintsugi" for part in str(backend).lower().split(","))


def _watch_groups(trains: Callable[[], bool]) -> None:
    """Groups of torch's own that come before training are found when it begins (`groups.refuse_others`)."""
    make = _c10d._new_process_group_helper

    @functools.wraps(make)
    def checked(size: int, rank: int, ranks: list[int], backend: Any, *rest: Any, **named: Any) -> Any:
        if size > 1 and trains() and not is_ours(backend):
            raise Error(f"a group of backend \"{backend}\" is made while the run trains: a survivor would wait in it until its timeout, and a "
                        'rank that replaces a lost one would not have it. Make groups before training, of backend "kintsugi"; in place of '
                        "torch.distributed.checkpoint.async_save use save, or kintsugi run --save-every", Code.FAILED_PRECONDITION)  # fmt: skip
        return make(size, rank, ranks, backend, *rest, **named)

    _c10d._new_process_group_helper = checked


def _watch_graphs(set_capturing: Callable[[bool], None], device: Device, is_drafted: Callable[[], bool]) -> None:
    """Collectives look at it (inner_group.cc). A graph goes on with the addresses that it was captured with."""
    graph: Any = torch.cuda.CUDAGraph
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def checked_begin(*arguments: Any, **named: Any) -> None:
        if is_drafted():
            raise Error("a CUDA graph is captured in a step in which parameters work in drafts (a run's first step, an optimizer that steps before the last one): it would go "
                        "on with memory that is theirs in this step alone. Capture it behind run.register, before training", Code.FAILED_PRECONDITION)  # fmt: skip
        begin(*arguments, **named)
        set_capturing(True)
        device.has_graphs = True

    @functools.wraps(end)
    def checked_end(*arguments: Any, **named: Any) -> None:
        set_capturing(False)
        end(*arguments, **named)

    graph.capture_begin, graph.capture_end = checked_begin, checked_end


def _watch_symmetric_memory() -> None:
    """Its kernels wait for other ranks' memory, and nothing ends them."""
    memory: Any = importlib.import_module("torch.distributed._symmetric_memory")
    for name in ("enable_symm_mem_for_group", "rendezvous"):
        setattr(memory, name, _symmetric_call(name, getattr(memory, name)))


def _symmetric_call(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(*_: Any, **__: Any) -> Any:
        raise Error(f"torch.distributed._symmetric_memory.{name}: a kernel that waits for memory of a rank that is gone is ended by nothing, not even by an abort: use "
                    "collectives", Code.INVALID_ARGUMENT)  # fmt: skip

    return checked


def _watch_join() -> None:
    begin = Join.__init__

    @functools.wraps(begin)
    def checked(self: Join, joinables: list[Any], enable: bool = True, *rest: Any, **named: Any) -> None:
        if enable:
            raise Error("torch.distributed.algorithms.Join (DistributedDataParallel.join) lets ranks end a step at different times, and "
                        "which of them waits for whom is not known after a fault: give all ranks as many batches (DistributedSampler "
                        "pads, or drop_last)", Code.INVALID_ARGUMENT)  # fmt: skip
        begin(self, joinables, enable, *rest, **named)

    Join.__init__ = checked  # type: ignore[method-assign]


def _watch_objects() -> None:
    """A rank that replaces a lost one makes its models alone: what it would be told then nobody tells it. Torch would take what happens to
    lie in memory for the size of it."""
    for name, source_at in (("broadcast_object_list", 1), ("scatter_object_list", 2), ("recv_object_list", None)):
        function = getattr(_c10d, name)
        checked = _object_call(name, function, source_at)
        setattr(_c10d, name, checked)
        setattr(dist, name, checked)


def _object_call(name: str, function: Callable[..., Any], source_at: int | None) -> Callable[..., Any]:
    """`source_at`: where among the arguments the rank is that has the objects; None: it is another."""

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        at = source_at + 1 if source_at is not None else 2
        group = _c10d._group_or_default_group(named.get("group", arguments[at] if len(arguments) > at else None))
        if isinstance(group, dist.ProcessGroup) and group.size() > 1 and _answers_alone(group):
            source = named.get("src", arguments[source_at] if source_at is not None and len(arguments) > source_at else None)
            of_group = named.get("group_src", 0 if source is None else dist.get_group_rank(group, source))
            if source_at is None or of_group != group.rank():
                raise Error(f"{name}: this process takes the place of a lost rank, and makes its models before it takes part: nobody can tell "
                            "it what was told then. Let every rank find it out by itself (a file, the environment), or call it within "
                            "the steps", Code.FAILED_PRECONDITION)  # fmt: skip
        return function(*arguments, **named)

    return checked


def _answers_alone(group: dist.ProcessGroup) -> bool:
    try:
        backend: Any = group._get_backend(torch.device("cpu"))
    except RuntimeError:  # of devices only
        return False
    return getattr(backend, "state", "") == "joining"
