"""Registers a Megatron trainer with a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.nn import Module

from .._errors import Error
from ..abi import Code
from ..terms import Codec
from ..take_over import TakeOver
from ..torch.run import TorchRun
from . import objects, resets
from .boxes import METADATA, Grid, further_names, placed_parameters
from .core import Core
from .update import Update


def protect(
    run: TorchRun,
    model: Module | list[Module],
    optimizer: Any,
    opt_param_scheduler: Any = None,
    *,
    consumed_samples: int = 0,
    global_batch_size: int | Callable[[], int] | None = None,
    args: Any = None,
    take_over: Mapping[str, TakeOver] | None = None,
) -> Protected:
    """What `run.register` is for plain torch. `model`: Megatron's DistributedDataParallel, or one for each chunk of an interleaved
    pipeline; `optimizer`: of get_megatron_optimizer. From here on `optimizer.step()` is the gate of the step in hand.

    `consumed_samples`: before the first step. `global_batch_size`: where Megatron's calculator of microbatches does not know it.
    `args`: what the script was told, as Megatron's get_args(); its numbers, texts and truths are in the `args` of Megatron's checkpoints,
    beside what the model's configuration says.
    `take_over`: by name, how objects go on with other ranks where this is not known: "model.buffers".
    """
    if not isinstance(run, TorchRun):
        raise Error(f"run is a {type(run).__name__}: kintsugi.torch.join() makes what kintsugi.megatron.protect takes", Code.INVALID_ARGUMENT)
    return Protected(Core(), run, model if isinstance(model, list) else [model], optimizer, opt_param_scheduler, consumed_samples,
                     global_batch_size, args, dict(take_over or {}))  # fmt: skip


class Protected:
    """A Megatron trainer of a run. Made by `protect`."""

    def __init__(self, core: Core, run: TorchRun, wrapped: list[Module], optimizer: Any, scheduler: Any, consumed: int, batch: Any,
                 args: Any, said: dict[str, TakeOver]) -> None:  # fmt: skip
        for ddp in wrapped:
            if not isinstance(ddp, core.DistributedDataParallel):
                raise Error(f"model is a {type(ddp).__name__}: Megatron's DistributedDataParallel around it is what holds its gradients", Code.INVALID_ARGUMENT)
        if scheduler is not None and not isinstance(scheduler, core.OptimizerParamScheduler):
            raise Error(f"opt_param_scheduler is a {type(scheduler).__name__}, not megatron-core's OptimizerParamScheduler", Code.INVALID_ARGUMENT)
        self._wrapped: list[Any] = list(wrapped)
        self._chunks = [_innermost(core, ddp) for ddp in wrapped]
        _refuse_swapped(core.parallel_state.get_pipeline_model_parallel_world_size(), self._wrapped)
        self._update = Update(core, optimizer)
        size = objects.batch_size(core, batch)
        self._samples = objects.Samples(consumed, size)
        self._scheduler = None if scheduler is None else objects.ParamScheduler(scheduler, size)
        self._core, self._run = core, run
        self._overlaps_gather = any(ddp.ddp_config.overlap_param_gather for ddp in self._wrapped)
        self._broken = False

        self._update.materialise(run.collectives)
        grid = Grid(core)
        entries = list(self._update.entries(placed_parameters(core, grid, self._chunks), grid))
        names = ["model"] if len(self._chunks) == 1 else [f"model{i}" for i in range(len(self._chunks))]
        run.follow(self, zip(names, self._chunks), entries, said)
        for alias, key in further_names((key for key, _, _ in entries), self._chunks):
            run.register_alias(alias, key)
        for key, (thing, known) in self._things(core).items():
            if thing is None:
                continue
            if isinstance(thing, (objects.ParamScheduler, objects.Samples)):
                run.register_values(key, thing)
            else:
                run.register_object(key, thing, said.pop(key, known))
        arguments = {**objects.arguments(core, self._chunks[0], self._wrapped[0].ddp_config), **objects.plain(args)}
        run.register_values("args", objects.Fixed({f"args.{name}": value for name, value in arguments.items()}), "derived")
        run.register_object("megatron.rank", objects.Fixed(objects.rank(core, self._chunks, METADATA)), "derived")
        for key, place, state in objects.extra_states(core, self._chunks, METADATA):
            run.register_object(key, state, said.pop(key, None), grid=place)
        if said:
            raise Error(f"take_over names {', '.join(said)}: this trainer has no such object", Code.INVALID_ARGUMENT)
        self._update.take_apart(run)

    def _things(self, core: Core) -> dict[str, tuple[Codec | None, TakeOver | None]]:
        """What is kept beside tensors, where there is any, and how it goes on with other ranks; in the order in which it is put back:
        the scheduler sets rates in the optimizers' settings."""
        settings = {f"optimizer.{i}.settings": objects.Settings(part.optimizer) for i, part in enumerate(self._update.parts)}
        tracker, machine = objects.rng_tracker(core), objects.rerun(core)
        calculator = objects.microbatches(core, lambda: self._samples.consumed)
        return {
            **{key: (one, one.take_over) for key, one in settings.items()},
            "opt_param_scheduler": (self._scheduler, "rank-zero"),
            "consumed_samples": (self._samples, "rank-zero"),
            "rng_tracker": (tracker, None if tracker is None else tracker.take_over),
            "microbatches": (calculator, None if calculator is None else calculator.take_over),
            "rerun_state_machine": (machine, None if machine is None else machine.take_over),
            "grad_scaler": (objects.Scalers(self._update.parts) or None, "rank-zero"),
        }

    @property
    def consumed_samples(self) -> int:
        """By all ranks, in the steps that are done."""
        return self._samples.consumed

    # ---- torch's Framework: what the run asks ----------------------------------------------------------------------------

    def end_step(self) -> None:
        self._samples.end_step()
        if self._scheduler is not None:
            self._scheduler.end_step()
        self._grow_where_left_out()

    def note_gate(self, has_update: bool) -> None:
        self._grow_where_left_out()
        self._samples.note_gate()
        if self._scheduler is not None:
            self._scheduler.note_gate(has_update)

    def gradient_norm(self) -> float | None:
        return self._update.take_norm()

    def _grow_where_left_out(self) -> None:
        """The script, which tells a growing batch what was consumed, is not called in a step that is left out: such a step has its samples too."""
        if self._run.leaves_out(self._run.at):
            objects.grow(self._core, self._samples.consumed)

    def gather(self) -> None:
        if not self._update.is_distributed or (self._overlaps_gather and not self._broken):
            return  # overlapped: the modules of the next step gather as they are reached
        for ddp in self._wrapped:
            ddp.start_param_sync(force_sync=True)
        self._broken = False

    def reset(self) -> None:
        self._broken = True
        resets.reset(self._wrapped, self._chunks)


def _refuse_swapped(stages: int, chunks: list[Any]) -> None:
    """Of two stages each is before and behind the other. Megatron's batched sends (megatron-core 0.16.1, `_batched_p2p_ops`: the stage before,
    then the one behind, on both sides) then meet the wrong receives: what belongs to one chunk reaches another, and the run trains on it."""
    if len(chunks) > 1 and stages == 2 and chunks[0].config.batch_p2p_comm:
        raise Error("an interleaved pipeline of two stages with batch_p2p_comm mixes up what its chunks send: set batch_p2p_comm=False and "
                    "overlap_p2p_comm=True in the TransformerConfig", Code.INVALID_ARGUMENT)  # fmt: skip


def _innermost(core: Core, module: Any) -> Any:
    while isinstance(module, (core.DistributedDataParallel, core.Float16Module)):
        module = module.module
    return module
