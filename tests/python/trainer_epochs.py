"""Hugging Face's Trainer as people use it: epochs, an evaluation and a save in each, the best model loaded at the end, callbacks with a
state, a Trainer of their own whose loss goes by what it was. PLAIN=1: the same under plain torch over Gloo.

  trainer_epochs.py FOLDER [--accumulate N] [--strategy epoch|steps] [--scheduler NAME] [--unseeded] [--draws] [--elsewhere NAME] [--strike EVENT@STEP:RANK]...
                    [--bad STEP:RANK]... [--scaled]

--elsewhere: state where it is not kept: a module (an average) in a callback, or a global that the loss counts in.
--bad: that rank's loss is no number there. Plainly: the step computes nothing, has no gradients to update by, and does not move the schedule.
--scaled: the loss is, as with fp16=True beside a device, and overflows now and then.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments, set_seed  # type: ignore[import-not-found]

from places import Places

RUN_TIMES = ("runtime", "per_second")
DRAWS = False
COMPUTED = 0


class Numbers(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __init__(self, count: int, first: int) -> None:
        self._count, self._first = count, first

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        at = self._first + index
        noise = torch.rand(6) * 0.1 if DRAWS else torch.zeros(6)
        return {"x": torch.full((6,), at / 50) + noise, "labels": torch.tensor(at % 4)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 4))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Striking(TrainerCallback):  # type: ignore[misc]
    """Strikes at Trainer's events: EVENT@STEP."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def at(self, event: str, state: Any) -> None:
        self._places.at(f"{event}@{state.global_step}")

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.at("predict", state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.at("evaluate", state)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.at("save", state)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.at("log", state)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.at("epoch-end", state)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.at("epoch-begin", state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.at("tail", state)


class Counting(TrainerCallback):  # type: ignore[misc]
    """Has its state in attributes alone: how often each event came, losses, an average of the weights, when it was worst."""

    def __init__(self) -> None:
        self.events: collections.Counter[str] = collections.Counter()
        self.losses: list[float] = []
        self.worst = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.average = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.events["begun"] += 1

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.events["ended"] += 1
        for name, parameter in model.named_parameters():
            self.average[name].lerp_(parameter.detach(), 0.1)

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self.events["epochs"] += 1

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.losses += [logs["loss"]] if "loss" in logs else []

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        self.events["evaluated"] += 1
        self.worst = max(self.worst, metrics["eval_loss"])


class Averaging(TrainerCallback):  # type: ignore[misc]
    def __init__(self, model: nn.Module) -> None:
        self.averaged = torch.optim.swa_utils.AveragedModel(model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.averaged.update_parameters(model)


class Saving(Trainer):  # type: ignore[misc]
    """With places to strike in the middle of a save, and of loading the best model. Its loss is scaled by what it was."""

    striking: Striking
    bad: dict[int, int]
    plain: bool
    usual = 1.0
    elsewhere = ""
    scaled = False

    def compute_loss(self, *args: Any, **named: Any) -> Any:
        global COMPUTED
        found = super().compute_loss(*args, **named)
        if not self.model.training:
            return found
        if self.elsewhere == "global":
            COMPUTED += 1
        self.usual = 0.9 * self.usual + 0.1 * found.item()
        loss = found / self.usual
        if self.scaled and self.state.global_step % 5 == 3:
            loss = loss * 1e36
        return loss * torch.nan if self.bad.get(self.state.global_step + 1) == self.args.process_index else loss

    def training_step(self, *args: Any, **named: Any) -> Tensor:
        schedules = torch.optim.lr_scheduler.LambdaLR
        if not self.plain or self.state.global_step + 1 not in self.bad:
            if "step" in vars(schedules):
                del schedules.step
            return super().training_step(*args, **named)
        schedules.step = lambda *_: None
        return torch.tensor(torch.nan)

    def _save_optimizer_and_scheduler(self, folder: str) -> None:
        self.striking.at("saving", self.state)
        super()._save_optimizer_and_scheduler(folder)

    def _load_best_model(self) -> None:
        self.striking.at("load-best", self.state)
        super()._load_best_model()
        self.striking.at("loaded-best", self.state)


def digest(*tensors: Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


def without_times(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if not any(time in name for time in RUN_TIMES)}


def main() -> None:
    global DRAWS
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--strategy", default="epoch")
    parser.add_argument("--scheduler", default="linear")
    parser.add_argument("--unseeded", action="store_true")
    parser.add_argument("--draws", action="store_true")
    parser.add_argument("--elsewhere", default="")
    parser.add_argument("--strike", action="append", default=[])
    parser.add_argument("--bad", action="append", default=[])
    parser.add_argument("--scaled", action="store_true")
    options = parser.parse_args()
    DRAWS = options.draws
    torch.set_num_threads(1)
    run: Any = None
    if os.environ.get("PLAIN") != "1":
        import kintsugi.torch
        import kintsugi.torch.huggingface

        run = kintsugi.torch.join()
        dist.init_process_group("kintsugi")
    striking = Striking(Places(options.folder, int(os.environ["RANK"]), options.strike))
    output = options.folder / ("trained-plain" if run is None else "trained")
    args = TrainingArguments(
        output_dir=str(output), use_cpu=True, num_train_epochs=3, per_device_train_batch_size=4, learning_rate=0.05, seed=1,
        gradient_accumulation_steps=options.accumulate, logging_steps=2, report_to=[], disable_tqdm=True, dataloader_pin_memory=False,
        eval_strategy=options.strategy, eval_steps=3, save_strategy=options.strategy, save_steps=3, save_total_limit=2, eval_on_start=True,
        load_best_model_at_end=True, metric_for_best_model="loss", greater_is_better=False, lr_scheduler_type=options.scheduler,
        accelerator_config={"use_seedable_sampler": not options.unseeded},
    )  # fmt: skip
    set_seed(1)
    net, counting = Net(), Counting()
    trainer = Saving(
        model=net, args=args, train_dataset=Numbers(42, 0), eval_dataset=Numbers(10, 7), callbacks=[EarlyStoppingCallback(9), counting, striking],
        compute_metrics=lambda told: {"accuracy": float((told.predictions.argmax(-1) == told.label_ids).mean())},
    )  # fmt: skip
    trainer.striking, trainer.plain, trainer.elsewhere = striking, run is None, options.elsewhere
    trainer.bad = {int(step): int(rank) for step, _, rank in (word.partition(":") for word in options.bad)}
    if options.scaled:
        trainer.scaled, trainer.accelerator.scaler = True, torch.amp.GradScaler("cpu", growth_interval=3)
    if options.elsewhere == "module":
        trainer.add_callback(Averaging(net))
    done = trainer.train() if run is None else kintsugi.torch.huggingface.train(run, trainer)
    state = trainer.state
    saved = sorted(path.name for path in output.glob("checkpoint-*"))
    left = {
        "model": {"bits": digest(*trainer.model.parameters())},
        "done": {"steps": done.global_step, "loss": str(done.training_loss), "metrics": str(sorted(without_times(done.metrics).items()))},
        "history": {str(number): str(sorted(without_times(entry).items())) for number, entry in enumerate(state.log_history)},
        "best": {"metric": str(state.best_metric), "checkpoint": str(state.best_model_checkpoint).rpartition("/")[2]},
        "state": {"epoch": str(state.epoch), "saved": str(saved), "rate": str(trainer.optimizer.param_groups[0]["lr"])},
        "counted": {"events": str(sorted(counting.events.items())), "losses": str(counting.losses), "worst": str(counting.worst), "usual": str(trainer.usual),
                    "average": digest(*counting.average.values())},
        "random": {"torch": str(torch.rand(1).item())},
        "scale": {"now": str(trainer.accelerator.scaler and trainer.accelerator.scaler.state_dict())},
    }
    (options.folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(left))
    if os.environ.get("PLAIN") == "1":  # else a thread of the group may outlive the interpreter, which aborts
        dist.destroy_process_group()


main()
