"""PyTorch Lightning's Trainer as people use it: epochs, a validation and a checkpoint in each, the best one known at the end, a callback and a module that
count in attributes, a loader with a generator of its own. PLAIN=1: the same under plain torch over Gloo.

  lightning_epochs.py FOLDER [--accumulate N] [--every N] [--strike PLACE:RANK[:throw|:SECONDS]]... [--bad STEP:RANK]... [--half]

--bad: that rank's loss is no number there. Plainly: the step's batches are not given to the model, as where training_step gives None.
--half: precision="16-mixed", whose scaled loss overflows now and then.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import lightning  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
import torchmetrics  # type: ignore[import-not-found]
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint  # type: ignore[import-not-found]
from lightning.pytorch.loops.optimization.automatic import ClosureResult  # type: ignore[import-not-found]
from lightning.pytorch.plugins import MixedPrecision  # type: ignore[import-not-found]
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from places import Places


def waves(count: int, seed: int) -> TensorDataset:
    points = torch.rand(count, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, torch.sin(points * 6).sum(dim=1, keepdim=True))


class Network(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, places: Places, bad: dict[int, int]) -> None:
        super().__init__()
        self.places, self.bad = places, bad
        self.begun, self.ended, self.epochs, self.usual = 0, 0, 0, 1.0
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1))
        self.mean, self.all = torchmetrics.MeanMetric(), torchmetrics.CatMetric()

    def on_train_batch_start(self, *_: Any) -> None:
        self.begun += 1

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        if self.bad.get(self.global_step + 1) == self.global_rank:
            loss = loss * torch.nan
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        self.mean(loss)  # as it is, with its graph
        self.all(loss)
        self.log("mean", self.mean, on_step=True, on_epoch=True)
        self.log("all", self.all.compute().sum())
        self.usual = 0.9 * self.usual + 0.1 * loss.item()
        overflows = getattr(self.trainer.precision_plugin, "scaler", None) is not None and self.global_step % 5 == 3
        return loss / self.usual * (1e36 if overflows else 1.0)

    def on_train_batch_end(self, *_: Any) -> None:
        self.ended += 1

    def on_train_epoch_end(self) -> None:
        self.epochs += 1
        self.all.reset()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.places.at(f"validate@{self.global_step}.{batch_idx}")
        self.log("validation", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.2)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "validation"}}


class Saving(ModelCheckpoint):  # type: ignore[misc]
    def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
        trainer.lightning_module.places.at(f"save@{trainer.global_step}")
        super()._save_checkpoint(trainer, filepath)
        trainer.lightning_module.places.at(f"saved@{trainer.global_step}")


class Told(Callback):  # type: ignore[misc]
    """What was known at the end of each validation."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def on_validation_end(self, trainer: Any, model: Any) -> None:
        if not trainer.sanity_checking:
            self.lines[str(trainer.global_step)] = str(sorted((name, float(value)) for name, value in trainer.callback_metrics.items()))

    def state_dict(self) -> dict[str, str]:
        return dict(self.lines)

    def load_state_dict(self, state: dict[str, str]) -> None:
        self.lines = dict(state)


class Counting(Callback):  # type: ignore[misc]
    """Has its state in attributes alone: how often each hook was called, losses, an average of the weights."""

    def __init__(self) -> None:
        self.hooks: dict[str, int] = {}
        self.losses: list[float] = []

    def count(self, hook: str) -> None:
        self.hooks[hook] = self.hooks.get(hook, 0) + 1

    def on_train_start(self, trainer: Any, model: Any) -> None:
        self.average = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def on_train_batch_start(self, *_: Any) -> None:
        self.count("batch begun")

    def on_train_batch_end(self, trainer: Any, model: Any, *_: Any) -> None:
        self.count("batch ended")
        self.losses.append(float(trainer.callback_metrics["loss_step"]))
        for name, parameter in model.named_parameters():
            self.average[name].lerp_(parameter.detach(), 0.1)

    def on_train_epoch_start(self, *_: Any) -> None:
        self.count("epoch begun")

    def on_validation_end(self, *_: Any) -> None:
        self.count("validated")

    def on_train_epoch_end(self, *_: Any) -> None:
        self.count("epoch ended")


def digest(*tensors: Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--strike", action="append", default=[])
    parser.add_argument("--bad", action="append", default=[])
    parser.add_argument("--half", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run: Any = None
    if os.environ.get("PLAIN") != "1":
        import kintsugi.torch
        import kintsugi.torch.lightning

        run = kintsugi.torch.join()
        dist.init_process_group("kintsugi")
    torch.manual_seed(1)
    counting = Counting()
    told, saving = Told(), Saving(dirpath=options.folder / "saved", monitor="validation", save_top_k=2, filename="{step}")
    plugins = [] if run is None else [kintsugi.torch.lightning.Environment(run)]
    if options.half:
        plugins.append(MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", growth_interval=3)))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", plugins=plugins, max_epochs=3,
        accumulate_grad_batches=options.accumulate, gradient_clip_val=1.0, default_root_dir=options.folder, logger=False,
        callbacks=[EarlyStopping("validation", patience=5), counting, saving, told], val_check_interval=options.every,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    bad = {int(step): int(rank) for step, _, rank in (word.partition(":") for word in options.bad)}
    model = Network(Places(options.folder, int(os.environ["RANK"]), options.strike), bad)
    loaders = DataLoader(waves(96, seed=1), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(4)), DataLoader(waves(32, seed=2), batch_size=8)
    if run is None:
        automatic = trainer.fit_loop.epoch_loop.automatic_optimization
        given = automatic._training_step
        automatic._training_step = lambda batch: ClosureResult(None) if trainer.global_step + 1 in bad else given(batch)
        trainer.fit(model, *loaders)
    else:
        kintsugi.torch.lightning.fit(run, trainer, model, *loaders)
    left = {
        "model": {"bits": digest(*model.parameters())},
        "told": told.lines,
        "end": {name: str(float(value)) for name, value in trainer.callback_metrics.items()},
        "best": {"score": str(saving.best_model_score), "path": Path(saving.best_model_path).name.replace("-v1", "")},
        "counted": {"hooks": str(sorted(counting.hooks.items())), "losses": str(counting.losses), "average": digest(*counting.average.values()),
                    "module": str([model.begun, model.ended, model.epochs, model.usual])},
        "scale": {"now": str(trainer.precision_plugin.state_dict())},
        "counts": {"step": str(trainer.global_step), "epoch": str(trainer.current_epoch), "rate": str(trainer.optimizers[0].param_groups[0]["lr"])},
    }
    (options.folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(left))
    if os.environ.get("PLAIN") == "1":  # else a thread of the group may outlive the interpreter, which aborts
        dist.destroy_process_group()


main()
