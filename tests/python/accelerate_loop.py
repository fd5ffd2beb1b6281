"""A loop with Accelerate as people write it: prepared loaders, accumulate(), clipping, a scheduler that Accelerate steps, an evaluation with
gather_for_metrics and check_trigger, save_state and wait_for_everyone. PLAIN=1: the same under plain torch over Gloo.

  accelerate_loop.py FOLDER [--accumulate N] [--seedable] [--draws] [--scaled] [--workers N] [--strike PLACE:RANK[:throw]]...

--scaled: the loss is, as with mixed_precision="fp16" beside a device, and overflows now and then.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator  # type: ignore[import-not-found]
from accelerate.utils import DataLoaderConfiguration  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from places import Places

EPOCHS = 3


class Numbers(Dataset[tuple[Tensor, int]]):
    def __init__(self, count: int, draws: bool) -> None:
        self._count, self._draws = count, draws

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.rand(6) * 0.1 if self._draws else torch.zeros(6)
        return torch.full((6,), index / self._count) + noise, index % 4


def digest(*tensors: Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seedable", action="store_true")
    parser.add_argument("--draws", action="store_true")
    parser.add_argument("--scaled", action="store_true")
    parser.add_argument("--strike", action="append", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    run: Any = None
    if os.environ.get("PLAIN") != "1":
        import kintsugi.torch

        run = kintsugi.torch.join()
        dist.init_process_group("kintsugi")
    configuration = DataLoaderConfiguration(use_seedable_sampler=options.seedable)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=options.accumulate, dataloader_config=configuration)
    rank = accelerator.process_index
    if options.scaled:
        accelerator.scaler = torch.amp.GradScaler("cpu", growth_interval=3)

    places = Places(options.folder, rank, options.strike)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
    loader = DataLoader(Numbers(42, options.draws), batch_size=4, shuffle=True, num_workers=options.workers)
    evaluated = DataLoader(Numbers(10, False), batch_size=3)
    model, optimizer, scheduler, loader, evaluated = accelerator.prepare(net, optimizer, scheduler, loader, evaluated)
    torch.manual_seed(100 + rank)
    if run is not None:
        run.register(model=model, optimizer=optimizer, scheduler=scheduler, accelerator=accelerator)
    told: list[str] = []

    def evaluate(epoch: int) -> list[float]:
        model.eval()
        right: list[Tensor] = []
        for i, (x, label) in enumerate(evaluated):
            places.at(f"evaluate.{epoch}.{i}")
            with torch.no_grad():
                guess = model(x).argmax(-1)
            right.append(accelerator.gather_for_metrics((guess == label).float()))
        model.train()
        triggered = accelerator.check_trigger()
        places.at(f"evaluated.{epoch}")
        return [float(triggered), float(len(torch.cat(right))), float(torch.cat(right).mean())]

    def save(epoch: int) -> None:
        accelerator.save_state(str(options.folder / f"state-{epoch}"))
        places.at(f"save.{epoch}")
        accelerator.wait_for_everyone()

    for epoch in range(EPOCHS):
        for i, batch in enumerate(loader) if run is None else run.enumerate(loader, epoch):
            with contextlib.nullcontext() if run is None else run.step():
                with accelerator.accumulate(model):
                    x, label = batch
                    loss = nn.functional.cross_entropy(model(x), label)
                    if options.scaled and accelerator.step % 5 == 3:
                        loss = loss * 1e36
                    if rank == 1 and epoch == 1 and i == 1:
                        accelerator.set_trigger()
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
            if run is not None and run.again:
                continue
            if accelerator.gradient_state.end_of_dataloader:
                told.append(f"{epoch} {accelerator.gradient_state.remainder}")
        accuracy = evaluate(epoch) if run is None else run.do(evaluate, epoch)
        told.append(str(accuracy))
        save(epoch) if run is None else run.do(save, epoch)
    left = {
        "model": {"bits": digest(*net.parameters())},
        "rate": {"now": str(scheduler.get_last_lr()), "state": str(sorted(scheduler.state_dict().items()))},
        "accelerator": {"step": str(accelerator.step), "sync": str(accelerator.sync_gradients), "in": str(accelerator.gradient_state.in_dataloader)},
        "scale": {"now": str(accelerator.scaler and accelerator.scaler.state_dict())},
        "told": {"all": str([line for line in told if line[0] == "["])},
        "saved": {path.name: str(len(list(path.iterdir()))) for path in sorted(options.folder.glob("state-*"))},
        "random": {"torch": str(torch.rand(1).item())},
    }
    (options.folder / f"rank-{rank}.json").write_text(json.dumps(left))
    if os.environ.get("PLAIN") == "1":  # else a thread of the group may outlive the interpreter, which aborts
        dist.destroy_process_group()


main()
