"""A trainer in torchtitan's shape survives: `train(run, trainer)` in place of `trainer.train()`.

    run = kintsugi.torch.join()
    torch.distributed.init_process_group("kintsugi")       # before the trainer, which then makes no group of its own
    trainer = Trainer(...)
    kintsugi.torch.titan.train(run, trainer)

The loop is the run's; each step is the trainer's own train_step. Its gate is the last optimizer's step(), so that clipping lies before
it; those before step on drafts. An iterator over data cannot be taken back: after an incident a new one is made from the loader's state.

torchtitan is not needed: what is used of a trainer is what `_USED` and `_refuse` name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.distributed._composable.contract import _get_registry
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from .._errors import Error
from ..abi import Code
from ..take_over import TakeOver
from . import off
from .companions import functions_of, is_within
from .parallel import local_of
from .run import TorchRun

SamplesOf = Callable[[dict[str, Any]], Iterable[int]]

_USED = ("model_parts", "optimizers", "lr_schedulers", "dataloader", "step", "batch_generator", "forward_backward_step", "train_step",
         "state_dict", "load_state_dict")  # fmt: skip


def train(
    run: TorchRun, trainer: Any, steps: int | None = None, *, samples: SamplesOf | None = None, take_over: TakeOver | None = None
) -> None:
    """Trains to step `steps` (training.steps of the trainer's config), whatever strikes. `samples`: which samples a batch has, from its
    dictionary of inputs, for the run's record. `take_over`: how the data loader goes on where a run resumes with other ranks."""
    if off.is_off():
        return trainer.train()  # type: ignore[no-any-return]
    _refuse(trainer)
    last = _setting(trainer, "training.steps") if steps is None else steps
    if last is None:
        raise _refusal("its config has no training.steps: pass steps")
    _Loop(run, trainer, int(last), samples).train(take_over)


def _refusal(reason: str) -> Error:
    return Error(f"the torchtitan trainer cannot be protected: {reason}", Code.INVALID_ARGUMENT)


def _setting(trainer: Any, path: str) -> Any:
    """Of its config, which torchtitan calls config, and called job_config before."""
    found = getattr(trainer, "job_config", None) or getattr(trainer, "config", None)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _refuse(trainer: Any) -> None:
    for name in _USED:
        if not hasattr(trainer, name):
            raise _refusal(f"{type(trainer).__name__} has no {name}")
    for name in ("optimizers", "lr_schedulers"):
        if not isinstance(getattr(trainer, name), Iterable):
            raise _refusal(f"its {name} cannot be gone through: each one that it holds is protected by itself")
    loader, optimizers = trainer.dataloader, trainer.optimizers
    pipeline = getattr(getattr(trainer, "parallel_dims", None), "pp_enabled", False) or hasattr(trainer, "pp_has_first_stage")
    # Each does something to weights, or among ranks, at places where no step of the run's is.
    reasons = {
        "it has several pipeline stages (pp_has_first_stage): their schedule was not tried": pipeline,
        "torchft is on (fault_tolerance): it and the run would both repair; switch it off": _setting(trainer, "fault_tolerance.enable")
        or getattr(getattr(trainer, "ft_manager", None), "enabled", False),
        "validation is on, which a fault would leave half done: validate what is saved": _setting(trainer, "validation.enable")
        or _setting(trainer, "validator.enable"),
        "its checkpointer is on: a fault would leave a save half done; let the run save, kintsugi run --save-every": getattr(
            getattr(trainer, "checkpointer", None), "enable", False
        ),
        "profiling is on, and this loop has no profiler: switch it off": any(
            _setting(trainer, f"{group}.{name}")
            for group in ("profiling", "profiler")
            for name in ("enable_profiling", "enable_memory_snapshot")
        ),
        f"its step is {trainer.step}, so it was trained or loaded: give it before, and resume with kintsugi run --resume": trainer.step != 0,
        f"its dataloader ({type(loader).__name__}) has no state_dict and load_state_dict: nobody knows where the data stands": not (
            callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None))
        ),
        f"{type(optimizers).__name__} updates in the backward pass, before a fault in it can be known": any(
            "InBackward" in kind.__name__ for kind in type(optimizers).__mro__
        ),
        f"{type(optimizers).__name__} has step_post_hooks: what they do behind an update is not done again": _hooks_behind(optimizers),
        "precompute_float8_dynamic_scale_for_fsdp keeps scales behind an update, which a new process has not: switch it off": _setting(
            trainer, "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"
        ),
        "a model part is under replicate(), which makes its DistributedDataParallel within the first step: wrap it in "
        "DistributedDataParallel, or use fully_shard": any(
            "replicate" in (_get_registry(module) or ()) and not isinstance(module, FSDPModule)
            for part in trainer.model_parts
            for module in part.modules()
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise _refusal(reason)
    for name, kind in (("optimizers", Optimizer), ("lr_schedulers", LRScheduler)):
        for held in getattr(trainer, name):
            if not isinstance(held, kind):
                raise _refusal(f"its {name} hold a {type(held).__name__}, which is no {kind.__name__} of torch's")


def _hooks_behind(optimizers: Any) -> bool:
    """Other than torchtitan's own, which every trainer of 0.2 has for its converters, and of which only float8's does anything."""
    hooks = getattr(optimizers, "_optimizer_step_post_hooks", {}).values()
    return any(not str(hook.__module__).startswith("torchtitan.") for hook in hooks)


class _Position:
    """Of the trainer's loader, which is walked anew after an incident: its state says where."""

    def __init__(self, loader: Any) -> None:
        self.state_dict, self.load_state_dict = loader.state_dict, loader.load_state_dict


class _Loop:
    """The trainer's loop within the guard. Threads: the trainer's."""

    def __init__(self, run: TorchRun, trainer: Any, steps: int, samples: SamplesOf | None) -> None:
        self._run = run
        self._trainer = trainer
        self._steps = steps
        self._samples_of = samples
        self._losses: list[Any] = []  # of the step's batches so far
        self._samples: list[int] = []
        self._compute: Callable[..., Any] = trainer.forward_backward_step
        self._drawn = 0  # batches of the step at hand, or the one before
        self._took: set[int] = set()  # so many have whole steps taken

    def train(self, take_over: TakeOver | None) -> None:
        trainer = self._trainer
        things = _numbered("model", trainer.model_parts) | _numbered("optimizer", trainer.optimizers)
        self._run.register(take_over={"progress": "rank-zero", "data": take_over} if take_over else {"progress": "rank-zero"},
                           **things, **_numbered("scheduler", trainer.lr_schedulers), data=_Position(trainer.dataloader), progress=trainer)  # fmt: skip
        self._run.keep_world("torchtitan's trainer")
        self._run.passes_steps_by = True
        trainer.forward_backward_step = self._add_loss
        self._run.guard(self._enter, self._codes)

    def _codes(self, error: BaseException | None) -> Iterator[tuple[Any, BaseException | None]]:
        if error is None or not self._run.has_updated():
            for method in functions_of(self._trainer):
                if error is None or method.__name__ in ("train_step", "forward_backward_step"):
                    yield method, error if is_within(error, method) else None
            yield from ((part, None) for part in self._trainer.model_parts)

    def _enter(self, first: int) -> None:
        batches = self._batches()
        for k in range(first + 1, self._steps + 1):
            self._run.begin_step(k)
            if self._run.leaves_out(k):
                self._pass_by(k, batches)
            else:
                self._step(k, batches)
            self._run.end_step(k)

    def _step(self, k: int, batches: Iterator[Any]) -> None:
        self._losses.clear()
        self._samples.clear()
        self._drawn = 0
        self._trainer.step = k
        if (collector := getattr(self._trainer, "gc_handler", None)) is not None:
            collector.run(k)
        self._trainer.train_step(batches)
        self._took.add(self._drawn)

    def _pass_by(self, k: int, batches: Iterator[Any]) -> None:
        """Step k is left out: its batches are drawn, so that they count, and nothing is computed."""
        count = int(getattr(self._trainer, "gradient_accumulation_steps", 1))
        if others := (self._took or {self._drawn} - {0}) - {count}:
            raise Error(f"step {k} is refused ({self._run.agent.left_out(k)}), and how many batches to leave out is not known: gradient_accumulation_steps is {count}, "
                        f"and steps have taken {', '.join(map(str, sorted(others)))}", Code.FAILED_PRECONDITION)  # fmt: skip
        self._trainer.step = k
        for _ in range(count):
            next(batches)

    def _batches(self) -> Iterator[Any]:
        """From where the loader's state says."""
        for inputs, labels in self._trainer.batch_generator(self._trainer.dataloader):
            if self._samples_of is not None:
                self._samples.extend(self._samples_of(inputs))
            self._drawn += 1
            yield inputs, labels

    def _add_loss(self, *args: Any, **kwargs: Any) -> Any:
        """The trainer's forward_backward_step. Every batch of a step reports what there is so far: which is the last, it need not say."""
        loss = self._compute(*args, **kwargs)
        self._losses.append(local_of(loss.detach()))
        self._run.report(float(sum(self._losses)), self._samples)
        return loss


def _numbered(name: str, things: Iterable[Any]) -> dict[str, Any]:
    """By their numbers, where there are several."""
    several = list(things)
    return {name: several[0]} if len(several) == 1 else {f"{name}{number}": thing for number, thing in enumerate(several)}
