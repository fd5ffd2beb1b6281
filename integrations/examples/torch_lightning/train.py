"""PyTorch Lightning's Trainer with a small network on data made on the spot; the lines that mention `run` are all that Kintsugi adds.

  kintsugi run --nproc 2 --inject kill:1@5:backward -- python train.py
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import kintsugi.torch
import kintsugi.torch.lightning


def waves(count: int, seed: int) -> TensorDataset:
    """Points, and how high a wave stands there."""
    points = torch.rand(count, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, torch.sin(points * 6).sum(dim=1, keepdim=True))


class Network(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)
        )

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        self.log("validation", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.7)]  # once in two epochs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)

    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(1)
        trainer = lightning.Trainer(
            accelerator="auto", devices=run.world_size, strategy="ddp", plugins=[kintsugi.torch.lightning.Environment(run)],
            max_epochs=options.epochs, accumulate_grad_batches=options.accumulate, gradient_clip_val=1.0, default_root_dir=folder,
            callbacks=[EarlyStopping("loss_epoch", patience=2), ModelCheckpoint(monitor="validation")], logger=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        loader = DataLoader(waves(128, seed=1), batch_size=8, shuffle=True)
        kintsugi.torch.lightning.fit(run, trainer, Network(), loader, DataLoader(waves(32, seed=2), batch_size=8))


main()
