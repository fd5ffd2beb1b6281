"""Hugging Face's Trainer survives: `train(run, trainer)` in place of `trainer.train()`.

    run = kintsugi.torch.join()
    torch.distributed.init_process_group("kintsugi")       # before TrainingArguments
    trainer = Trainer(...)
    kintsugi.torch.huggingface.train(run, trainer)

Trainer's loop is entered again where an incident made a step void: as it resumes from a checkpoint, but model, optimizer and
scheduler stay as they are, and the step is the run's. Batches are skipped by their indices, so a dataset or collator that draws
random numbers of its own draws others after a fault; dropout and the order of the data are the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._errors import Error
from ..abi import Code
from . import state
from .randomness import Randomness
from .run import TorchRun


def train(run: TorchRun, trainer: Any) -> None:
    """Trains to the end, whatever strikes. `trainer`: a transformers.Trainer whose train() was not called."""
    _refuse(trainer)
    _Loop(run, trainer).train()


def _refuse(trainer: Any) -> None:
    args = trainer.args
    reasons = {
        "DeepSpeed is on: its engine owns model and optimizer": trainer.is_deepspeed_enabled,
        "FSDP is on, which was not tried through Trainer": trainer.is_fsdp_enabled,
        "fp16 is on: the state of its scaler is not protected; use bf16": args.fp16,
        "load_best_model_at_end replaces the weights behind the run's back: load them after training": args.load_best_model_at_end,
        "auto_find_batch_size takes errors for want of memory: set the batch size": args.auto_find_batch_size,
        "model_init makes the model anew at each entry of the loop: pass model": trainer.model_init is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise Error(f"Trainer cannot be protected: {reason}", Code.INVALID_ARGUMENT)


class _Progress:
    """What Trainer adds up between two log lines. It begins at nothing whenever the loop is entered."""

    _NAMES = ("_total_loss_scalar", "_globalstep_last_logged", "current_flos")

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._kept: dict[str, float] | None = None

    def state_dict(self) -> dict[str, float]:
        sums = {name: getattr(self._trainer, name, 0) for name in self._NAMES}
        return {**sums, "_tr_loss": float(getattr(self._trainer, "_tr_loss", 0.0))}

    def load_state_dict(self, kept: dict[str, float]) -> None:
        self._kept = kept

    def put_back(self) -> None:
        if self._kept is None:
            return
        for name in self._NAMES:
            setattr(self._trainer, name, self._kept[name])
        self._trainer._tr_loss.fill_(self._kept["_tr_loss"])
        self._trainer._initial_global_step = 0
        self._kept = None


class _Loop:
    """Trainer's callback, and the parts of Trainer that would load or make what the run holds."""

    def __init__(self, run: TorchRun, trainer: Any) -> None:
        self._run = run
        self._trainer = trainer
        self._loss = 0.0
        self._random = Randomness()
        self._at_entry: dict[str, Any] = {}
        self._progress = _Progress(trainer)
        loader = trainer.get_train_dataloader()
        epochs, updates_each, *_, most_steps = trainer.set_initial_training_values(trainer.args, loader)
        trainer._init_training_state(most_steps, updates_each, epochs, None, None)
        trainer.accelerator.free_memory()
        self._model, _ = trainer._prepare_for_training(most_steps, loader, None)
        accelerator = trainer.accelerator
        self._accelerated = accelerator._models, accelerator._optimizers, accelerator._schedulers
        run.register(take_over={"progress": "rank-zero"}, model=self._model, optimizer=trainer.optimizer, scheduler=trainer.lr_scheduler,
                     progress=self._progress)  # fmt: skip
        self._training_step: Callable[..., Any] = trainer.training_step

    def train(self) -> None:
        trainer = self._trainer
        trainer._prepare_for_training = self._stay_prepared
        trainer._load_rng_state = lambda _checkpoint: self._random.load_state_dict(self._at_entry)
        for name in ("_load_from_checkpoint", "_load_optimizer_and_scheduler", "_load_scaler"):
            setattr(trainer, name, lambda *_, **__: None)
        trainer.training_step = self._add_loss
        trainer.add_callback(self)
        self._run.guard(self._enter)

    def _enter(self, first: int) -> None:
        self._at_entry = self._random.state_dict()
        if first == 0:
            self._trainer.train()
            return
        with tempfile.TemporaryDirectory(prefix="kintsugi-") as folder:
            self._trainer.state.global_step = first
            self._trainer.state.save_to_json(str(Path(folder) / "trainer_state.json"))
            self._trainer.train(resume_from_checkpoint=folder)

    def _stay_prepared(self, _most_steps: int, loader: Any, _checkpoint: Any) -> tuple[Any, Any]:
        accelerator = self._trainer.accelerator
        accelerator._models, accelerator._optimizers, accelerator._schedulers = self._accelerated
        self._trainer.callback_handler.train_dataloader = loader
        return self._model, loader

    def _add_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = self._training_step(*args, **kwargs)
        self._loss += float(loss)
        return loss

    # ---- Trainer's events -----------------------------------------------------------------------------------------------

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._progress.put_back()

    def on_step_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        self._loss = 0.0
        self._run.begin_step(state.global_step + 1)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._run.report(self._loss)

    def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        self._run.end_step(state.global_step)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # Trainer asks for all events; most are none of ours
            return lambda *_, **__: None
        raise AttributeError(name)
