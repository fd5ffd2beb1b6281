"""Hugging Face's Trainer survives: `train(run, trainer)` in place of `trainer.train()`.

    run = kintsugi.torch.join()
    torch.distributed.init_process_group("kintsugi")       # before TrainingArguments
    trainer = Trainer(...)
    done = kintsugi.torch.huggingface.train(run, trainer)

Trainer.train() is called once, and is Trainer's own. Each of its epochs is a loop of the run's; a log line, an evaluation, a save, and what
it does behind the last step are sections. Where a step is void Trainer's epoch is entered again as it resumes from a checkpoint: with the
newest step that is committed, of which everything but its computation and update is done again (`_passes_by`), so that what follows it
(sections that are recorded, the end of an epoch) follows once more. A process that takes a lost one's place comes there the same way.

`train(run, trainer, resume_from_checkpoint=...)` goes on from a checkpoint of Trainer's own. The run's steps are counted from there; a process that
takes a lost one's place loads none (by now there may be a later one), and is told where training began (`Began`).

A step that is left out, since its data was to blame, is to Trainer one whose update a scaler skipped: its batches are taken, nothing is computed of
them, global_step counts it, the schedule does not move, and its loss is no number, of which the log knows (logging_nan_inf_filter).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers  # type: ignore[import-not-found]

from .._errors import Error
from ..abi import Code
from . import off
from .companions import companions_of, functions_of, is_theirs, is_within
from .prepared import Prepared, is_prepared
from .run import TorchRun
from .trainer_state import Began, Own, Shared


def train(run: TorchRun, trainer: Any, *, resume_from_checkpoint: str | bool | None = None) -> Any:
    """Trains to the end, whatever strikes; gives what trainer.train() gives. `trainer`: a transformers.Trainer whose train() was not called.
    `resume_from_checkpoint`: as trainer.train() has it; where the run itself resumes (kintsugi run --resume) it is left aside."""
    if off.is_off():
        given = trainer.train(resume_from_checkpoint=resume_from_checkpoint)
        run.register(model=trainer.model, optimizer=trainer.optimizer, scheduler=trainer.lr_scheduler)
        return given
    _refuse(run, trainer)
    return _Door(run, trainer).train(None if run.replaces or run.resumes else resume_from_checkpoint)


def _refuse(run: TorchRun, trainer: Any) -> None:
    args = trainer.args
    reasons = {
        "this run has trained already, and a run has one training: make the next a run of its own, from what this one saves": run.trains(),
        f"transformers {transformers.__version__} was not tried, 5.23 was: what its loop calls differs between versions":
            not transformers.__version__.startswith("5.23."),
        "DeepSpeed is on: its engine owns model and optimizer": trainer.is_deepspeed_enabled,
        "FSDP is on, which was not tried through Trainer": trainer.is_fsdp_enabled,
        "auto_find_batch_size takes errors for want of memory: set the batch size": args.auto_find_batch_size,
        "model_init makes the model when training begins: pass model": trainer.model_init is not None,
        "ignore_data_skip leaves the batches of a broken epoch out: a run that resumes goes on where it was, leave it out": args.ignore_data_skip,
        "torch_compile was not tried through Trainer: compile the model that you pass": args.torch_compile,
    }  # fmt: skip
    for reason, holds in reasons.items():
        if holds:
            raise Error(f"Trainer cannot be protected: {reason}", Code.INVALID_ARGUMENT)


class _Door:
    """What Trainer calls in place of its own methods, and its callback."""

    # Trainer's method, and ours
    _METHODS = {
        "_init_training_state": "_init_state", "_prepare_for_training": "_prepare", "_run_epoch": "_run_epoch", "get_batch_samples": "_take_batches",
        "training_step": "_compute", "_track_num_input_tokens": "_count_tokens", "_clip_grad_norm": "_clip", "_get_grad_norm": "_grad_norm",
        "_get_learning_rate": "_rate", "_maybe_log_save_evaluate": "_log_save_evaluate", "_evaluate": "_evaluate", "_save_checkpoint": "_save",
        "_finalize_training": "_finalize", "compute_loss": "_compute_loss",
    }  # fmt: skip
    _OF_STEPS = ("training_step", "compute_loss", "get_batch_samples")  # of what a script's own Trainer may have

    _BY_EACH_PROCESS = ("on_init_end", "on_train_begin", "on_epoch_begin")  # also by one that begins later

    def __init__(self, run: TorchRun, trainer: Any) -> None:
        self._run = run
        self._trainer = trainer
        self._trainers: dict[str, Callable[..., Any]] = {name: getattr(trainer, name) for name in self._METHODS}
        self._shared = Shared(trainer)
        self._batches: Any = None
        self._own: Any = None  # what this rank has of Trainer that the others have not
        self._synchronized = False
        self._begins: int | None = None  # the epoch whose first batch is yet to be taken
        self._loss = 0.0
        self._passes_by = False  # the step at hand is committed: neither computed nor updated
        self._leaves_out = False  # ... is left out: neither
        self._computes = False  # the step at hand has begun to
        run.passes_steps_by = True

    def train(self, checkpoint: str | bool | None) -> Any:
        trainer = self._trainer
        for name, ours in self._METHODS.items():
            setattr(trainer, name, getattr(self, ours))
        try:
            return trainer.train(resume_from_checkpoint=checkpoint)
        finally:
            trainer.remove_callback(self)
            for name in self._METHODS:
                delattr(trainer, name)

    def _init_state(self, most_steps: int, steps_per_epoch: int, epochs: int, checkpoint: Any, trial: Any) -> tuple[int, int]:
        trainer = self._trainer
        epoch, passed = self._trainers["_init_training_state"](most_steps, steps_per_epoch, epochs, checkpoint, trial)
        self._shared.began = Began(trainer.state.global_step, trainer.state.num_input_tokens_seen, epoch, passed, checkpoint)
        trainer.add_callback(self)  # behind those that a checkpoint's took the places of
        return epoch, passed

    def _prepare(self, most_steps: int, loader: Any, checkpoint: Any) -> tuple[Any, Any]:
        model, loader = self._trainers["_prepare_for_training"](most_steps, loader, checkpoint)
        if not is_prepared(loader):
            raise Error(f"Trainer cannot be protected: get_train_dataloader gives a {type(loader).__name__}: have it return "
                        "self.accelerator.prepare(loader)", Code.INVALID_ARGUMENT)  # fmt: skip
        trainer = self._trainer
        self._batches = Prepared(loader, "train_dataset", self._run.device)
        self._batches.keep(trainer.args.gradient_accumulation_steps)
        self._run.note_kept(loaders=[loader])
        self._own = Own(trainer, self._batches)
        callbacks = {str(number): one for number, one in enumerate(self._callbacks()) if not self._run.keeps(one)}
        own = companions_of({**callbacks, "compute_metrics": trainer.compute_metrics, "train": trainer}, trainer.model)
        self._run.register(model=model, optimizer=trainer.optimizer, scheduler=trainer.lr_scheduler, accelerator=trainer.accelerator,
                           trainer=self._shared, trainer_of_rank=self._own, **own,
                           take_over={"trainer": "rank-zero", "trainer_of_rank": Own.take_over, **dict.fromkeys(own, "same-rank")})  # fmt: skip
        return model, loader

    # ---- steps ----------------------------------------------------------------------------------------------------------

    def _run_epoch(self, *, epoch: int, **named: Any) -> None:
        trainer, shared = self._trainer, self._shared
        self._run.open()  # a process that comes later knows from here on where training began
        if epoch < shared.began.epoch:
            return
        if not self._synchronized:
            self._synchronized = True
            self._batches.synchronize(lambda function: self._run.do(function, only=0))
        entered = False
        shared.epoch_began = trainer.state.global_step

        def enter(first: int) -> None:
            nonlocal entered
            entered = True
            done = shared.began.step + first - shared.epoch_began
            self._passes_by = done > 0
            if done == 0:
                self._begin_epoch(epoch, named)
            else:
                self._enter_epoch(epoch, done, named)

        self._run.guard(enter, self._codes)
        if not entered:  # others have done it long since, and did not stop there
            trainer.control.should_training_stop = False

    def _begin_epoch(self, epoch: int, named: dict[str, Any]) -> None:
        began = self._shared.began
        self._begins = epoch
        self._trainers["_run_epoch"](epoch=epoch, **{**named, **_resumed(began.checkpoint, began.epoch, began.passed)})

    def _enter_epoch(self, epoch: int, done: int, named: dict[str, Any]) -> None:
        """Behind so many of its steps, with the last of them: it is committed."""
        trainer, self._begins = self._trainer, None
        trainer.state.global_step = self._shared.epoch_began + done - 1
        trainer.control.should_epoch_stop = trainer.control.should_training_stop = False  # as the step's end left them: it is to come
        passed = self._passed_before(epoch) + (done - 1) * trainer.args.gradient_accumulation_steps
        trainer._load_rng_state = lambda _checkpoint: None
        try:
            self._trainers["_run_epoch"](epoch=epoch, **{**named, **_resumed(trainer.args.output_dir, epoch, passed)})
        finally:
            del trainer._load_rng_state

    def _passed_before(self, epoch: int) -> int:
        """Batches of this epoch that the checkpoint of Trainer's own is behind."""
        began = self._shared.began
        return began.passed if epoch == began.epoch else 0

    def _take_batches(self, _iterator: Any, count: int, device: Any) -> tuple[list[Any], Any]:
        """Trainer's iterator is never asked: it would draw, and talk to others, where this rank alone begins anew."""
        if self._passes_by:
            return [{} for _ in range(count)], None
        if self._begins is not None:  # not before: Trainer has put a checkpoint's random numbers back by now
            self._batches.begin(self._begins)
            if passed := self._passed_before(self._begins):
                self._batches.seek(passed)
            self._begins = None
        samples: tuple[list[Any], Any] = self._trainers["get_batch_samples"](self._batches, count, device)
        return samples

    def _compute(self, *args: Any, **named: Any) -> Any:
        if self._passes_by or self._leaves_out:
            self._trainer.accelerator.gradient_state._set_sync_gradients(False)  # optimizer.step() does nothing then
            return torch.full((), 0.0 if self._passes_by else torch.nan, device=self._trainer.args.device)
        loss = self._trainers["training_step"](*args, **named)
        self._loss += float(loss)
        return loss

    def _compute_loss(self, *args: Any, **named: Any) -> Any:
        self._computes = True
        return self._trainers["compute_loss"](*args, **named)

    def _count_tokens(self, inputs: Any) -> None:
        if not self._passes_by:
            self._trainers["_track_num_input_tokens"](inputs)

    def _clip(self, model: Any) -> Any:
        return None if self._passes_by else self._trainers["_clip_grad_norm"](model)

    def _grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        if not self._passes_by:
            norm = self._trainers["_get_grad_norm"](model, grad_norm=grad_norm)
            self._own.grad_norm = norm.item() if isinstance(norm, torch.Tensor) else norm
        return self._own.grad_norm

    def _rate(self) -> Any:
        if not self._passes_by:
            self._own.rate = self._trainers["_get_learning_rate"]()
        return self._own.rate

    # ---- what is the script's own ---------------------------------------------------------------------------------------

    def _callbacks(self) -> Iterator[Any]:
        return (one for one in self._trainer.callback_handler.callbacks if one is not self and not is_theirs(type(one)))

    def _codes(self, error: BaseException | None) -> Iterator[tuple[Any, BaseException | None]]:
        """Callbacks of the newest committed step are called again, wherever a fault has struck."""
        for callback in self._callbacks():
            of_events = (method for method in functions_of(callback) if method.__name__.startswith("on_step_" if error else "on_"))
            yield from ((method, None) for method in of_events if method.__name__ not in self._BY_EACH_PROCESS)
        if error is None or (self._computes and not self._run.has_updated()):
            for method in functions_of(self._trainer):
                if error is None or method.__name__ in self._OF_STEPS:
                    yield method, error if is_within(error, method) else None
            yield from ((code, None) for code in (self._trainer.model, self._trainer.compute_loss_func) if code is not None)
        if error is None:  # else a batch is kept
            yield from ((maker, None) for maker in (self._trainer.data_collator, *self._batches.makers()))

    # ---- sections -------------------------------------------------------------------------------------------------------

    def _log_save_evaluate(self, *args: Any, **named: Any) -> None:
        """Each of the three is a section. The first has no function of its own: the other two are put off."""
        control = self._trainer.control
        if control.should_log:
            later = control.should_evaluate, control.should_save
            control.should_evaluate = control.should_save = False
            self._run.do(self._trainers["_maybe_log_save_evaluate"], *args, **named)
            control.should_evaluate, control.should_save = later
        self._trainers["_maybe_log_save_evaluate"](*args, **named)

    def _evaluate(self, *args: Any, **named: Any) -> Any:
        return self._run.do(self._trainers["_evaluate"], *args, **named)

    def _save(self, *args: Any, **named: Any) -> None:
        self._run.do(self._trainers["_save_checkpoint"], *args, **named)

    def _finalize(self, *args: Any, **named: Any) -> Any:
        return self._run.do(self._trainers["_finalize_training"], *args, **named)

    # ---- Trainer's events -----------------------------------------------------------------------------------------------

    def on_step_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        k = state.global_step + 1 - self._shared.began.step
        if not self._passes_by:
            self._loss, self._computes = 0.0, False
            self._run.begin_step(k)
        self._leaves_out, self._trainer.optimizer._is_overflow = self._run.leaves_out(k), False

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        if self._leaves_out:
            self._trainer.optimizer._is_overflow = True  # as after a scaler has skipped it
        if self._passes_by:
            return
        if not self._leaves_out:
            self._run.report(self._loss)
        self._rate()
        if self._leaves_out:
            self._run.update_nothing()

    def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        passed_by, self._passes_by = self._passes_by, False
        if passed_by or self._leaves_out:
            self._trainer.accelerator.gradient_state._set_sync_gradients(True)
        if self._leaves_out:
            self._leaves_out = self._trainer.optimizer._is_overflow = False
            if (scaler := self._trainer.accelerator.scaler) is not None:
                scaler._per_optimizer_states.clear()  # clipping has noted a step that is not taken
        if passed_by:
            self._run.arrived()
        else:
            self._run.end_step(state.global_step - self._shared.began.step)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # Trainer asks for all events; most are none of ours
            return lambda *_, **__: None
        raise AttributeError(name)


def _resumed(checkpoint: str | None, epoch: int, passed: int) -> dict[str, Any]:
    """How Trainer's epoch is told that it is one of a resumed training."""
    return {"resume_from_checkpoint": checkpoint, "epochs_trained": epoch, "steps_trained_in_current_epoch": passed}
