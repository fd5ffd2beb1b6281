"""A rank that trains with torch."""

from __future__ import annotations

import enum
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import _rendezvous_handlers
from torch.distributed.tensor import DTensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from .. import _core
from .._errors import Error, Interrupted
from ..run import _COMM_ERROR, _RAISED, _WAS_INTERRUPTED, Codec, Guarded, Incident, Piece, Run
from ..take_over import TakeOver
from . import _build, agentless, parallel, state, warm
from .framework import Framework
from .groups import Groups, refuse_others
from .randomness import Randomness
from .replica_optimizer import ReplicaOptimizer


def join(**options: Any) -> TorchRun:
    """Joins the run, and makes "kintsugi" a backend of torch's: before torch.distributed.init_process_group("kintsugi").

    Under torchrun, and wherever RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, rank 0 starts the run's controller
    (kintsugi/torch/agentless.py)."""
    if dist.is_initialized():
        raise Error("torch's process group exists already: kintsugi.torch.join comes before init_process_group", 6)
    extension = _build.load()
    if warm.is_spare():
        warm.warm_up()
    alone = "controller" not in options and agentless.is_wanted()
    if alone:
        agentless.find_controller()
    run = TorchRun(_core.Agent(**options), extension)
    if alone:
        agentless.save_before_leaving(run.trains)
    return run


@dataclass(frozen=True)
class _Held:
    key: str
    kind: str
    size: int
    holders: tuple[int, ...]


class _Update(enum.Enum):
    """Where a step stands with its update, and who ends it."""

    TO_COME = enum.auto()
    BY_HOOKS = enum.auto()  # the first optimizer opened it, the last closes it
    BY_TRAINER = enum.auto()  # run.update(): optimizers step within
    COMMITTED = enum.auto()


class TorchRun(Run):
    """One rank. Made by `join`."""

    def __init__(self, agent: _core.Agent, extension: Any) -> None:
        super().__init__(agent)
        self._mark_of_ours = str(extension.FAILURE_MARK)
        self._extension = extension
        self._groups = Groups(agent, extension)
        self._arena = state.Arena(agent.allocate, extension.move)
        self._models: list[Module] = []
        self._optimizers: list[Optimizer] = []
        self._sharing: list[ReplicaOptimizer] = []
        self._gather_again = True  # parameters that other ranks own may be those of another step
        self._schedules: list[state.Schedule] = []
        self._frameworks: list[Framework] = []
        self._parameters: dict[torch.Tensor, str] = {}
        self._tied: dict[torch.Tensor, list[str]] = {}  # names of a parameter beside its first
        self._also: dict[str, list[str]] = {}  # further names of registered tensors
        self._places = extension.Places()  # where registered tensors must stay
        self._tensors: list[_Held] = []
        self._said: dict[str, TakeOver] = {}  # of objects that are about to be registered
        self._in_step = False
        self._dry = False  # a newcomer's trial step: nothing of it counts
        self._update = _Update.TO_COME
        self._stepping: set[int] = set()  # optimizers whose update has begun in this step
        self._calls_before = 0
        dist.Backend.register_backend("kintsugi", self._groups.create, extended_api=True, devices=["cpu", "cuda"])
        # init_process_group("kintsugi") asks env:// for a store, and the one it would get dies with rank 0.
        _rendezvous_handlers["env"] = self._groups.rendezvous
        self.handler("clean", self._groups.clean)
        self.handler("rebuild", self._rebuild)

    # ---- state --------------------------------------------------------------------------------------------------------

    def register(self, key: Any = None, array: Any = None, /, take_over: Any = None, **things: Any) -> Any:
        """register(model=..., optimizer=..., scheduler=..., anything=...): what is to be protected, by name.

        Models' parameters and optimizers' states move into memory that outlives the process. Anything else needs state_dict and
        load_state_dict; the random generators are always protected. Optimizers come after their models.

        `take_over`: by name, how an object goes on where a run resumes with other ranks: "same-rank", "rank-zero", "derived", or a
        function of what all ranks saved (kintsugi.TakeOver). Of what is torch's own it is known; of anything else it must be said.
        """
        if key is not None:
            return super().register(key, array)
        if self._begun:
            raise Error(f"{', '.join(things)} registered after training began", 6)
        if "random" in things:
            raise Error("the name 'random' is taken: torch's, Python's and numpy's random generators have it, and are always protected", 5)
        for name, thing in things.items():
            if type(thing).__module__.startswith("megatron.core."):
                raise Error(f"'{name}' is a {type(thing).__name__} of Megatron's: kintsugi.megatron.protect(run, model, optimizer, "
                            "opt_param_scheduler) registers these", 5)  # fmt: skip
        if take_over is not None and not isinstance(take_over, Mapping):
            raise Error(f"take_over is {take_over!r}: say it by name, take_over={{'{next(iter(things), 'data')}': ...}}", 5)
        self._said = dict(take_over or {})
        things = {name: state.unwrapped(thing) for name, thing in things.items()}
        models = {name: thing for name, thing in things.items() if isinstance(thing, Module)}
        optimizers = {name: thing for name, thing in things.items() if isinstance(thing, Optimizer)}
        for name, optimizer in optimizers.items():
            if isinstance(optimizer, ReplicaOptimizer):
                self._share(name, optimizer)
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
            self._add_object(name, thing, state.take_over_of(thing))
        if self._said:
            raise Error(f"take_over names {', '.join(self._said)}: no such object is in this call", 5)
        return None

    def _add_model(self, name: str, model: Module) -> None:
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        plain = parallel.plain_holders(model, self._usual_holders())
        self._know(inner)
        entries = []
        for key, parameter in inner.named_parameters():
            owners = next((ranks for o in self._sharing if (ranks := o.owners(parameter)) is not None), None)
            # What another rank updates is gathered from there: it is no state of this one's.
            if owners is None or self.rank in owners:
                entries.append((f"{name}/{key}", parameter, parallel.piece_of(f"{name}/{key}", parameter, owners or plain)))
        self._hold(entries)
        self._add_names_of_tied(name, inner)
        if any(True for _ in inner.buffers()):
            buffers = state.Buffers(inner, self._extension)
            self._add_object(f"{name}.buffers", buffers, buffers.take_over)
        self._accompany(model)

    def _know(self, inner: Module) -> None:
        """Parameters that come later than these are told."""
        for key, parameter in inner.named_parameters():
            self._parameters[parameter] = key
            self._places.know(parameter)
        for module in inner.modules():
            self._places.watch(module._parameters)

    def _accompany(self, model: Module) -> None:
        """Marks where a step stands in it, and what a broken one leaves in it is dropped."""
        self._models.append(model)
        model.register_forward_pre_hook(lambda *_: self._auto_mark("forward"))
        model.register_forward_hook(lambda *_: self._auto_mark("backward"))

    def follow(
        self,
        framework: Framework,
        models: Iterable[tuple[str, Module]],
        entries: Iterable[tuple[str, torch.Tensor, Piece]],
        take_over: dict[str, TakeOver],
    ) -> None:
        """For a framework that knows itself which parts of which tensors a rank holds, and what its update is (`run.update()`
        around it). `entries`: contiguous tensors, each byte once. Every model's buffers become the object NAME.buffers, which goes on
        with other ranks as `take_over` says; what is used of it is taken out."""
        self._said = take_over
        for name, model in models:
            self._know(model)
            # Stages of a pipeline have buffers of different layers under one name.
            nothing = next(model.buffers(), None) is None
            self._add_object(f"{name}.buffers", state.Buffers(model, self._extension), "derived" if nothing else None)
            self._accompany(model)
        self._hold(list(entries))
        self._frameworks.append(framework)

    def _add_names_of_tied(self, name: str, model: Module) -> None:
        """Tied parameters are one tensor with several names: registered under the first."""
        held = {held.key for held in self._tensors}
        firsts = {parameter: key for key, parameter in model.named_parameters()}
        for key, parameter in model.named_parameters(remove_duplicate=False):
            if (first := firsts[parameter]) != key:
                self._tied.setdefault(parameter, []).append(key)
                if f"{name}/{first}" in held:
                    self.register_alias(f"{name}/{key}", f"{name}/{first}")

    def register_alias(self, alias: str, key: str) -> None:
        super().register_alias(alias, key)
        self._also.setdefault(key, []).append(alias)

    def _add_optimizer(self, name: str, optimizer: Optimizer) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise Error("LBFGS evaluates the model within its update: it cannot be split at the gate", 5)
        if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
            raise Error("ZeroRedundancyOptimizer has collectives inside its update, and one copy of each shard: use "
                        "kintsugi.torch.ReplicaOptimizer", 5)  # fmt: skip
        settings = state.OptimizerGroups(optimizer, self._extension.has_plain_values)
        self._add_object(f"{name}.settings", settings, settings.take_over)
        if isinstance(optimizer, ReplicaOptimizer):
            optimizer = optimizer.local
        state.materialise(optimizer, self._parameters, self._groups.calls)
        entries = []
        for parameter, values in optimizer.state.items():
            for key, value in values.items():
                if isinstance(value, torch.Tensor):
                    place = f"{name}/{self._parameters[parameter]}.{key}"
                    entries.append((place, value, parallel.piece_of(place, value, self._whole_holders(parameter))))
        self._hold(entries)
        held = {held.key for held in self._tensors}
        for parameter, names in self._tied.items():
            for key in optimizer.state.get(parameter, {}):
                if (first := f"{name}/{self._parameters[parameter]}.{key}") in held:
                    for other in names:
                        self.register_alias(f"{name}/{other}.{key}", first)
        optimizer.register_step_pre_hook(self._before_update)
        optimizer.register_step_post_hook(self._after_update)
        self._optimizers.append(optimizer)

    def _share(self, name: str, optimizer: ReplicaOptimizer) -> None:
        """Before its model is registered, of which this rank then holds a part."""
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter in self._parameters:
                raise Error(f"'{name}' shares out '{self._parameters[parameter]}', whose model was registered without it: register "
                            "model and ReplicaOptimizer in one call", 6)  # fmt: skip
            if isinstance(parameter, DTensor):
                raise Error(f"'{name}' has a DTensor of shape {list(parameter.shape)}, whose optimizer state is cut as it is itself: "
                            "use the optimizer within", 5)  # fmt: skip
        optimizer.gathers_itself = False
        self._sharing.append(optimizer)

    def _whole_holders(self, parameter: torch.Tensor) -> tuple[int, ...]:
        """Who holds what is not cut as its parameter is: counts of steps."""
        for optimizer in self._sharing:
            if (owners := optimizer.owners(parameter)) is not None:
                return owners
        if isinstance(parameter, DTensor):
            return parallel.mesh_ranks(parameter)
        for model in self._models:
            if any(known is parameter for known in model.parameters()):
                return parallel.plain_holders(model, self._usual_holders())
        return self._usual_holders()

    def _add_object(self, key: str, thing: Codec, known: TakeOver | None) -> None:
        """`known`: how it goes on with other ranks, unless the script says otherwise."""
        super().register_object(key, thing, self._said.pop(key, known))

    def _hold(self, entries: list[tuple[str, torch.Tensor, Piece]]) -> None:
        """Moves tensors, or this rank's parts of them, into memory that outlives the process, and registers them."""
        for key, tensor, _ in entries:
            state.check(key, tensor)
        with torch.no_grad():
            for _, tensor, _ in entries:
                local = parallel.local_of(tensor)
                if not state.is_dense(local):
                    local.data = local.contiguous()
        self._arena.take(parallel.local_of(tensor) for _, tensor, _ in entries)
        for key, tensor, piece in entries:
            local = parallel.local_of(tensor)
            size = local.numel() * local.element_size()
            if size > 0:
                self._place(key, local, size, piece)
                self._places.add(key, tensor, isinstance(tensor, DTensor), local.data_ptr())

    def _place(self, key: str, local: torch.Tensor, size: int, piece: Piece) -> None:
        shape = list(local.size())
        if piece.box is not None:
            shape = list(piece.box)
        elif not local.is_contiguous() or not shape:
            if tuple(shape) != piece.global_shape:
                raise Error(f"'{key}': a part of a tensor must be contiguous, this one has strides {local.stride()}", 5)
            shape = [local.numel()]  # in the order in which it lies: all holders have the same
            piece = Piece((local.numel(),), (0,), piece.holders)
        dtype = state.dtype_name(local)
        self.register_memory(key, (local.data_ptr(), size), dtype, shape, piece)
        part = "" if tuple(shape) == piece.global_shape else f" at {list(piece.offset)} of {list(piece.global_shape)}"
        if piece.flat != (0, 0):
            part += f", elements {piece.flat[0]} to {piece.flat[1]} of them"
        self._tensors.append(_Held(key, f"{dtype} {shape}{part}", size, piece.holders))

    def plan(self) -> str:
        """What is protected, and how; printed before training, it shows what was forgotten."""
        lines = []
        for holders in sorted({held.holders for held in self._tensors}, key=lambda ranks: (-len(ranks), ranks)):
            alike = [held for held in self._tensors if held.holders == holders]
            total = sum(held.size for held in alike)
            whom = f"held alike by ranks {', '.join(map(str, holders))}" if len(holders) > 1 else "WITHOUT A SECOND COPY"
            lines.append(f"{'protected' if len(holders) > 1 else 'this rank alone'}: {len(alike)} tensors, {total:,} bytes, {whom}")
            lines += [f"  {held.key}: {held.kind}" + "".join(f", also {name}" for name in self._also.get(held.key, ())) for held in alike]
        lines.append(f"protected: {len(self._objects)} objects, each rank's own, kept by its partners: {', '.join(self._objects)}")
        if self.world_size == 1:
            lines.append("one rank has no second copy: start with --save-every or --snapshot-every, or more ranks")
        elif any(len(held.holders) == 1 for held in self._tensors):
            lines.append("shards without a second copy survive exceptions and hangs of communication, but not the loss of a process: "
                         "start with --snapshot-every N, or use a mesh that also replicates (HSDP), or for an optimizer's shards "
                         "kintsugi.torch.ReplicaOptimizer")  # fmt: skip
        if not self._optimizers and not self._frameworks:
            lines.append("no optimizer is registered: mark the update yourself (run.begin_update, run.end_update)")
        return "\n".join(lines)

    # ---- the guard ----------------------------------------------------------------------------------------------------

    def train(self, step: Callable[[int], object], steps: int) -> None:
        self._try_newcomer(lambda: step(1))
        super().train(step, steps)

    def guard(self, loop: Guarded, trial: Callable[[], object] | None = None) -> None:
        """For a loop of one's own. `trial`: one batch forward and backward, which a newcomer does alone before it takes part, so
        that DDP lays out its gradients as on the others; without it DDP begins anew on all ranks, and adds up in another order."""
        if trial is not None:
            self._try_newcomer(trial)
        if not self._begun:
            self._begin_checks()
            random = Randomness()
            super().register_object("random", random, random.take_over)
        super().guard(loop)

    def _try_newcomer(self, trial: Callable[[], object]) -> None:
        if self.replaces and parallel.wrapped_by_ddp(self._models):
            self._begin_checks()
            self._try_dry(trial)

    def _begin_checks(self) -> None:
        if not dist.is_initialized():
            raise Error('torch.distributed.init_process_group("kintsugi") comes before training', 6)
        refuse_others()

    def _try_dry(self, trial: Callable[[], object]) -> None:
        """DDP lays out its buckets after its first backward pass. The others have done so: this process does it alone, in a step
        whose results the repair writes over."""
        self._dry = True
        try:
            trial()
            for wrapped in parallel.wrapped_by_ddp(self._models):
                wrapped.reducer._rebuild_buckets()
        except Exception as error:
            print(f"kintsugi: the trial step of a newcomer failed, DDP begins anew on all ranks: {error}", file=sys.stderr)
            traceback.print_exception(error)
        finally:
            self._dry = False

    def _rebuild(self, incident: Incident) -> None:
        self._in_step = False
        self._gather_again = True
        if not incident.fresh or self.replaces:
            parallel.reset(self._models)
            for framework in self._frameworks:
                framework.reset()
        wrapped = parallel.wrapped_by_ddp(self._models)
        layouts = [parallel.layout_of(module) for module in wrapped]
        told = self._groups.rebuild(incident, {"ddp": layouts})
        if any(other["ddp"] != layouts for other in told.values()):
            # A newcomer has another layout of buckets: a mismatch would end a healthy process within Gloo.
            for module in wrapped:
                parallel.lay_out_anew(module)

    def outcome_of(self, error: BaseException) -> int:
        if isinstance(error, dist.DistBackendError) or self._mark_of_ours in str(error):
            return _COMM_ERROR if self.agent.poll() == 0 else _WAS_INTERRUPTED
        return super().outcome_of(error) if not isinstance(error, dist.DistError) else _RAISED

    def collectives(self) -> int:
        """How many this process has begun."""
        return self._groups.calls()

    # ---- in the loop --------------------------------------------------------------------------------------------------

    def begin_step(self, k: int) -> None:
        self._check_places()
        for schedule in self._schedules:
            schedule.begin_step()
        for framework in self._frameworks:
            framework.begin_step()
        self._stepping.clear()
        self._update = _Update.TO_COME
        super().begin_step(k)
        self._in_step = True
        if self._gather_again:
            self._gather()

    def end_step(self, k: int) -> None:
        if self._update is _Update.TO_COME:
            self._open(_Update.BY_HOOKS, has_update=False)  # no optimizer stepped (a skipped update): an empty one
        if self._update is not _Update.COMMITTED:
            self._close()
        super().end_step(k)
        self._in_step = False

    def mark(self, phase: str) -> None:
        if not self._dry:
            super().mark(phase)

    def report(self, loss: float, samples: Iterable[int] = ()) -> None:
        if not self._dry:
            super().report(float(loss.detach()) if isinstance(loss, torch.Tensor) else loss, samples)

    def begin_update(self) -> None:
        """The trainer's own update: optimizers step within, and what else an update changes is changed here (an average of the
        weights)."""
        if not self._dry:
            self._refuse_update_outside("run.update()")
            if self._update is not _Update.TO_COME:
                raise Error(f"run.update() in step {self.step}, whose update has begun: optimizers step within it, once", 6)
            self._open(_Update.BY_TRAINER)

    def end_update(self) -> None:
        if not self._dry:
            self._close()

    def _open(self, by: _Update, has_update: bool = True) -> None:
        self.mark("gradient-sync")
        for schedule in self._schedules:
            schedule.note_gate(has_update)
        for framework in self._frameworks:
            framework.note_gate(has_update)
        super().begin_update()
        self._update = by
        self._calls_before = self._groups.calls()

    def _close(self) -> None:
        calls = self._groups.calls() - self._calls_before
        if calls > 0:
            raise Error(f"the update of step {self.step} holds {calls} collectives: a rank could not finish it alone. Move them before "
                        "the gate (run.update() or optimizer.step()), or behind it", 6)  # fmt: skip
        self._update = _Update.COMMITTED
        super().end_update()
        self._gather()

    def _refuse_update_outside(self, what: str) -> None:
        if not self._in_step:
            raise Error(f"{what} outside of run.train: an update must be a step's, between its gate and its commit", 6)

    def _gather(self) -> None:
        """Parts that other ranks updated. A fault within, and the next step begins with it."""
        self._gather_again = True
        for optimizer in self._sharing:
            optimizer.gather()
        for framework in self._frameworks:
            framework.gather()
        self._gather_again = False

    def _auto_mark(self, phase: str) -> None:
        if self._in_step and not self._dry and torch.is_grad_enabled():
            self.mark(phase)

    def _before_update(self, _optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._dry:
            return
        self._refuse_update_outside("optimizer.step()")
        if any(argument is not None for argument in args[1:]) or kwargs.get("closure") is not None:
            raise Error("optimizer.step(closure) computes within the update: call backward before step()", 5)
        if self._update is _Update.COMMITTED:
            raise Error(f"a second update in step {self.step}: each optimizer steps once in a step", 6)
        if self._update is _Update.TO_COME:
            self._open(_Update.BY_HOOKS)

    def _after_update(self, optimizer: Optimizer, *_: Any) -> None:
        if self._dry:
            return
        self._stepping.add(id(optimizer))
        if self._update is _Update.BY_HOOKS and len(self._stepping) == len(self._optimizers):
            self._close()

    def _check_places(self) -> None:
        if moved := self._places.first_moved():
            raise Error(f"'{moved}' lies elsewhere than when it was registered: its memory must stay in place", 6)
        if self._places.first_unknown() is None:
            return
        for model in self._models:  # a gathered parameter, or a new one
            for parameter in parallel.parameters_of(model):
                if parameter not in self._parameters:
                    raise Error(f"a parameter of shape {list(parameter.shape)} appeared after run.register", 6)
            for gathered in parallel.gathered_parameters(model):
                self._places.know(gathered)

    def _work_off(self, task: _core.Task) -> None:
        self._in_step = False
        super()._work_off(task)


__all__ = ["Interrupted", "TorchRun", "join"]
