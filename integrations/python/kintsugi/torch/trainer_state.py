"""What Hugging Face's Trainer knows of its training beside model, optimizer and scheduler, as objects of the run's.

Two of them: what changes behind a step's gate is the same on all ranks, so that a rank that is lost there gets it from the others. What a rank
has of its own (sums of its losses, run times in the history, where its loader stands) changes before the gate, or in a section.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

from transformers.trainer_callback import ExportableState  # type: ignore[import-not-found]

from .._errors import Error
from ..abi import Code
from .prepared import Prepared


class Began(NamedTuple):
    """Where training began: at nothing, or at a checkpoint of Trainer's own."""

    step: int = 0
    tokens: int = 0
    epoch: int = 0
    passed: int = 0  # batches of that epoch
    checkpoint: str | None = None


class Shared:
    """Steps, the best metric, Trainer's control, and callbacks that have a state (ExportableState). What a checkpoint of Trainer's own told (`Began`,
    how often is logged, evaluated and saved) a process that comes later has from here."""

    _STATE = ("epoch", "global_step", "num_input_tokens_seen", "total_flos", "best_metric", "best_global_step", "best_model_checkpoint",
              "logging_steps", "eval_steps", "save_steps")  # fmt: skip

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.began = Began()
        self.epoch_began = 0  # the step behind which the epoch at hand did

    def state_dict(self) -> dict[str, Any]:
        return {
            "state": {name: getattr(self._trainer.state, name) for name in self._STATE},
            "control": self._trainer.control.state()["args"],
            "callbacks": [callback.state()["attributes"] for callback in self._exportable()],
            "began": tuple(self.began),
            "epoch_began": self.epoch_began,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state["state"].items():
            setattr(self._trainer.state, name, value)
        for thing, values in ((self._trainer.control, state["control"]), *zip(self._exportable(), state["callbacks"], strict=True)):
            for name, value in values.items():
                setattr(thing, name, value)
        self.began, self.epoch_began = Began(*state["began"]), state["epoch_began"]
        self._trainer._initial_global_step, self._trainer._initial_num_input_tokens_seen = self.began.step, self.began.tokens

    def _exportable(self) -> list[Any]:
        """By their kinds: those that Trainer made of a checkpoint stand in another order."""
        exportable = [callback for callback in self._trainer.callback_handler.callbacks if isinstance(callback, ExportableState)]
        return sorted(exportable, key=lambda callback: type(callback).__name__)


class Own:
    """Of one rank. `_tr_loss` stays the tensor that it is: Trainer's loop has it in hand."""

    _SUMS = ("_total_loss_scalar", "_globalstep_last_logged", "current_flos")

    def __init__(self, trainer: Any, batches: Prepared) -> None:
        self._trainer = trainer
        self._batches = batches
        self._history: tuple[list[Any], int, bytes] = [], -1, b""
        self.grad_norm: float | None = None  # of the newest step
        self.rate: float | None = None  # with which it updated

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "sums": {name: getattr(trainer, name, 0) for name in self._SUMS},
            "loss": float(getattr(trainer, "_tr_loss", 0.0)),
            "grad_norm": self.grad_norm,
            "rate": self.rate,
            "history": self._pickled_history(),
            "callbacks": trainer.state.stateful_callbacks,  # as rank 0 saved them
            "batches": self._batches.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        trainer = self._trainer
        for name, value in state["sums"].items():
            setattr(trainer, name, value)
        trainer._tr_loss.fill_(state["loss"])
        self.grad_norm, self.rate = state["grad_norm"], state["rate"]
        trainer.state.log_history, trainer.state.stateful_callbacks = pickle.loads(state["history"]), state["callbacks"]
        self._batches.load_state_dict(state["batches"])

    def _pickled_history(self) -> bytes:
        """It only grows, and not in most steps, each of which has it in its state."""
        history = self._trainer.state.log_history
        known, length, pickled = self._history
        if known is not history or length != len(history):
            pickled = pickle.dumps(history, protocol=pickle.HIGHEST_PROTOCOL)
            self._history = history, len(history), pickled
        return pickled

    @staticmethod
    def take_over(saved: Mapping[int, Any]) -> Any:
        raise Error("Trainer cannot go on with another number of ranks: how many steps an epoch has follows from it; resume with as many as saved",
                    Code.INVALID_ARGUMENT)  # fmt: skip
