"""A rank that trains with torch."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from .. import _core
from .._errors import Error, Interrupted
from ..run import _COMM_ERROR, _RAISED, _WAS_INTERRUPTED, Codec, Guarded, Incident, Run
from . import _build, state
from .groups import Groups


def join(**options: Any) -> TorchRun:
    """Joins the run, and makes "kintsugi" a backend of torch's: before torch.distributed.init_process_group("kintsugi")."""
    if dist.is_initialized():
        raise Error("torch's process group exists already: kintsugi.torch.join comes before init_process_group", 6)
    extension = _build.load()
    return TorchRun(_core.Agent(**options), extension)


class TorchRun(Run):
    """One rank. Made by `join`."""

    def __init__(self, agent: _core.Agent, extension: Any) -> None:
        super().__init__(agent)
        self._mark_of_ours = str(extension.FAILURE_MARK)
        self._groups = Groups(agent, extension)
        self._arena = state.Arena(agent.allocate)
        self._models: list[Module] = []
        self._optimizers: list[Optimizer] = []
        self._schedules: list[state.Schedule] = []
        self._parameters: dict[torch.Tensor, str] = {}
        self._placed: dict[str, tuple[torch.Tensor, int]] = {}  # key -> tensor and where it must stay
        self._plan: list[tuple[str, str, int]] = []
        self._in_step = False
        self._dry = False  # a newcomer's trial step: nothing of it counts
        self._stepping: set[int] = set()  # optimizers whose update has begun in this step
        self._committed = False
        dist.Backend.register_backend("kintsugi", self._groups.create, extended_api=True, devices=["cpu", "cuda"])
        # init_process_group("kintsugi") asks env:// for a store, and the one it would get dies with rank 0.
        handlers = dist.rendezvous.__globals__["_rendezvous_handlers"]
        handlers["env"] = self._groups.rendezvous
        self.handler("clean", self._groups.clean)
        self.handler("rebuild", self._rebuild)

    # ---- state --------------------------------------------------------------------------------------------------------

    def register(self, key: Any = None, array: Any = None, **things: Any) -> Any:
        """register(model=..., optimizer=..., scheduler=..., anything=...): what is to be protected, by name.

        Models' parameters and optimizers' states move into memory that outlives the process. Anything else needs state_dict and
        load_state_dict; the random generators are always protected. Optimizers come after their models.
        """
        if key is not None:
            return super().register(key, array)
        if self._begun:
            raise Error(f"{', '.join(things)} registered after training began", 6)
        models = {name: thing for name, thing in things.items() if isinstance(thing, Module)}
        optimizers = {name: thing for name, thing in things.items() if isinstance(thing, Optimizer)}
        for name, model in models.items():
            self._add_model(name, model)
        for name, optimizer in optimizers.items():
            self._add_optimizer(name, optimizer)
        for name, thing in things.items():
            if name in models or name in optimizers:
                continue
            if isinstance(thing, (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)):
                thing = state.Schedule(thing)
                self._schedules.append(thing)
            self._add_object(name, thing)
        return None

    def _add_model(self, name: str, model: Module) -> None:
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        named = list(inner.named_parameters())
        for key, parameter in named:
            state.check(f"{name}/{key}", parameter)
        for (key, parameter), copy in zip(named, self._arena.take(p for _, p in named)):
            parameter.data = copy
            self._parameters[parameter] = key
            self._place(f"{name}/{key}", copy)
        self._models.append(model)
        if any(True for _ in inner.buffers()):
            self._add_object(f"{name}.buffers", state.Buffers(inner))
        model.register_forward_pre_hook(lambda *_: self._auto_mark("forward"))
        model.register_forward_hook(lambda *_: self._auto_mark("backward"))

    def _add_optimizer(self, name: str, optimizer: Optimizer) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise Error("LBFGS evaluates the model within its update: it cannot be split at the gate", 5)
        if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
            raise Error("ZeroRedundancyOptimizer has collectives inside its update: it cannot be split at the gate yet", 5)
        state.materialise(optimizer, self._parameters)
        held = [
            (f"{name}/{self._parameters[parameter]}.{key}", entries, key, value)
            for parameter, entries in optimizer.state.items()
            for key, value in entries.items()
            if isinstance(value, torch.Tensor)
        ]
        for place, _, _, value in held:
            state.check(place, value)
        for (place, entries, key, _), copy in zip(held, self._arena.take(value for _, _, _, value in held)):
            entries[key] = copy
            self._place(place, copy)
        self._add_object(f"{name}.settings", state.OptimizerGroups(optimizer))
        optimizer.register_step_pre_hook(self._before_update)
        optimizer.register_step_post_hook(self._after_update)
        self._optimizers.append(optimizer)

    def _add_object(self, key: str, thing: Codec) -> None:
        super().register_object(key, thing)
        self._plan.append((key, "object", 0))

    def _place(self, key: str, tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        shape = list(tensor.size()) if tensor.is_contiguous() and tensor.dim() else [tensor.numel()]
        self.register_memory(key, (tensor.data_ptr(), size), state.dtype_name(tensor), shape)
        self._placed[key] = (tensor, tensor.data_ptr())
        self._plan.append((key, f"{state.dtype_name(tensor)} {list(tensor.size())}", size))

    def plan(self) -> str:
        """What is protected, and how; printed before training, it shows what was forgotten."""
        tensors = [entry for entry in self._plan if entry[1] != "object"]
        objects = [entry[0] for entry in self._plan if entry[1] == "object"]
        total = sum(size for _, _, size in tensors)
        lines = [
            f"protected: {len(tensors)} tensors, {total:,} bytes, held alike by {self.world_size} ranks",
            *(f"  {key}: {kind}" for key, kind, _ in tensors),
            f"protected: {len(objects)} objects, each rank's own, kept by its partners: {', '.join(objects)}",
        ]
        if self.world_size == 1:
            lines.append("one rank has no second copy: start with --save-every or --snapshot-every, or more ranks")
        if not self._optimizers:
            lines.append("no optimizer is registered: mark the update yourself (run.begin_update, run.end_update)")
        return "\n".join(lines)

    # ---- the guard ----------------------------------------------------------------------------------------------------

    def train(self, step: Callable[[int], object], steps: int) -> None:
        if self.replaces and self._wrapped():
            self._begin_checks()
            self._try_dry(step)
        super().train(step, steps)

    def guard(self, loop: Guarded) -> None:
        if not self._begun:
            self._begin_checks()
            super().register_object("random", state.Randomness())
        super().guard(loop)

    def _begin_checks(self) -> None:
        if not dist.is_initialized():
            raise Error('torch.distributed.init_process_group("kintsugi") comes before training', 6)
        if dist.get_backend() != "kintsugi":
            raise Error(
                f'the default group is of backend "{dist.get_backend()}": a survivor would wait in it until its timeout. Use '
                'init_process_group("kintsugi")',
                6,
            )

    def _wrapped(self) -> list[DistributedDataParallel]:
        return [m for model in self._models for m in model.modules() if isinstance(m, DistributedDataParallel)]

    def _try_dry(self, step: Callable[[int], object]) -> None:
        """DDP lays out its buckets after its first backward pass. The others have done so: this process does it alone, in a step
        whose results the repair writes over."""
        self._dry = True
        try:
            step(1)
            for wrapped in self._wrapped():
                wrapped.reducer._rebuild_buckets()
        except Exception as error:
            print(f"kintsugi: the trial step of a newcomer failed, DDP begins anew on all ranks: {error}", file=sys.stderr)
            traceback.print_exception(error)
        finally:
            self._dry = False

    def _rebuild(self, incident: Incident) -> None:
        self._in_step = False
        if not incident.fresh or self.replaces:
            for wrapped in self._wrapped():
                wrapped._update_process_group(wrapped.process_group)
        layouts = [_layout_of(wrapped) for wrapped in self._wrapped()]
        told = self._groups.rebuild(incident, {"ddp": layouts})
        if any(other["ddp"] != layouts for other in told.values()):
            # A newcomer has another layout of buckets: a mismatch would end a healthy process within Gloo.
            for wrapped in self._wrapped():
                _lay_out_anew(wrapped)

    def outcome_of(self, error: BaseException) -> int:
        if isinstance(error, dist.DistBackendError) or self._mark_of_ours in str(error):
            return _COMM_ERROR if self.agent.poll() == 0 else _WAS_INTERRUPTED
        return super().outcome_of(error) if not isinstance(error, dist.DistError) else _RAISED

    # ---- in the loop --------------------------------------------------------------------------------------------------

    def begin_step(self, k: int) -> None:
        self._check_places()
        for schedule in self._schedules:
            schedule.begin_step()
        self._stepping.clear()
        self._committed = False
        super().begin_step(k)
        self._in_step = True

    def end_step(self, k: int) -> None:
        if not self._committed:
            if not self._stepping:
                self.begin_update()  # no optimizer stepped (a skipped update): an empty one
            self.end_update()
        super().end_step(k)
        self._in_step = False

    def mark(self, phase: str) -> None:
        if not self._dry:
            super().mark(phase)

    def report(self, loss: float, samples: Iterable[int] = ()) -> None:
        if not self._dry:
            super().report(float(loss.detach()) if isinstance(loss, torch.Tensor) else loss, samples)

    def begin_update(self) -> None:
        super().begin_update()
        for schedule in self._schedules:
            schedule.note_gate()

    def end_update(self) -> None:
        self._committed = True
        super().end_update()

    def _auto_mark(self, phase: str) -> None:
        if self._in_step and not self._dry and torch.is_grad_enabled():
            self.mark(phase)

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._dry:
            return
        if not self._in_step:
            raise Error("optimizer.step() outside of run.train: an update must be a step's, between its gate and its commit", 6)
        if any(argument is not None for argument in args[1:]) or kwargs.get("closure") is not None:
            raise Error("optimizer.step(closure) computes within the update: call backward before step()", 5)
        if self._committed:
            raise Error(f"a second update in step {self.step}: each optimizer steps once in a step", 6)
        if not self._stepping:
            self.mark("gradient-sync")
            self.begin_update()
        self._stepping.add(id(optimizer))

    def _after_update(self, *_: Any) -> None:
        if not self._dry and len(self._stepping) == len(self._optimizers):
            self.end_update()

    def _check_places(self) -> None:
        for key, (tensor, address) in self._placed.items():
            if tensor.data_ptr() != address:
                raise Error(f"'{key}' lies elsewhere than when it was registered: its memory must stay in place", 6)
        for model in self._models:
            for parameter in model.parameters():
                if parameter not in self._parameters:
                    raise Error(f"a parameter of shape {list(parameter.shape)} appeared after run.register", 6)

    def _work_off(self, task: _core.Task) -> None:
        self._in_step = False
        super()._work_off(task)


def _layout_of(wrapped: DistributedDataParallel) -> list[list[int]]:
    return [[p.numel() for p in bucket.parameters()] for bucket in wrapped.reducer._get_zeros_like_grad_buckets()]


def _lay_out_anew(wrapped: DistributedDataParallel) -> None:
    """As DDP does where it is unpickled: a reducer with the layout of the first step."""
    parameters, sparse = wrapped._build_params_for_reducer()
    names = wrapped._build_debug_param_to_name_mapping(parameters)
    wrapped._ddp_init_helper(parameters, sparse, names, wrapped.static_graph)


__all__ = ["Interrupted", "TorchRun", "join"]
