"""A loop as people write it: epochs over a shuffled loader whose data set draws random numbers, a scheduler per epoch, an average of the
weights behind the update, evaluation between, at the head and behind steps, a file that rank 0 writes, and collectives behind the last
step. PLAIN=1: the same under plain torch over Gloo.

  torch_loop.py FOLDER [--accumulate N] [--workers N] [--die PLACE:RANK]   PLACE: evaluate.E, told.E (behind its collective), save.E, behind
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
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

EPOCHS, SAMPLES = 3, 40


class Noisy(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((6,), index / SAMPLES) + torch.rand(6) * 0.1, index


def digest(*tensors: Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--die", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain = os.environ.get("PLAIN") == "1"
    run: Any = None
    if plain:
        dist.init_process_group("gloo")
    else:
        import kintsugi.torch

        run = kintsugi.torch.join()
        dist.init_process_group("kintsugi")
    rank = dist.get_rank()

    def perhaps_die(place: str) -> None:
        mark = options.folder / "died"
        if options.die == f"{place}:{rank}" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 9)

    torch.manual_seed(1 + rank)
    net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 4))
    model = DistributedDataParallel(net)
    average = AveragedModel(net, use_buffers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
    data = Noisy()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=3), num_workers=options.workers)
    if run is not None:
        run.register(model=model, average=average, optimizer=optimizer, scheduler=scheduler)

    def evaluate(epoch: int) -> float:
        perhaps_die(f"evaluate.{epoch}")
        net.eval()
        total = sum(net(x).square().sum() for x, _ in DataLoader(data, batch_size=20, num_workers=0))  # its iterator draws a seed
        net.train()
        assert isinstance(total, Tensor)
        total = total.detach()
        dist.all_reduce(total)
        perhaps_die(f"told.{epoch}")
        return float(total)

    def save(epoch: int) -> str:
        perhaps_die(f"save.{epoch}")
        with open(options.folder / "saved", "a", encoding="utf-8") as saved:
            saved.write(f"{epoch} {digest(*net.parameters())}\n")
        return f"model-{epoch}"

    for epoch in range(EPOCHS):
        if plain:
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for i, (x, _) in enumerate(loader) if plain else run.enumerate(loader, epoch, accumulate=options.accumulate):
            noise = torch.randn(6) * 0.01  # an iteration that is made again draws the same before its step
            update = (i + 1) % options.accumulate == 0 or i + 1 == len(loader)
            with contextlib.nullcontext() if plain else run.step():
                with contextlib.nullcontext() if update else model.no_sync():
                    loss = model(x + noise).square().mean() / options.accumulate
                    loss.backward()
                if update:
                    if run is not None:
                        run.report(loss=float(loss.detach()))
                    optimizer.step()
                    optimizer.zero_grad()
                    average.update_parameters(net)
            if run is not None and run.again:
                continue
            if i == 2:
                evaluate(-epoch) if plain else run.do(evaluate, -epoch)
        accuracy = evaluate(epoch) if plain else run.do(evaluate, epoch)
        scheduler.step(accuracy)
        if plain:
            if rank == 0:
                save(epoch)
        else:
            assert run.do(save, epoch, only=0) == f"model-{epoch}"
            assert not run.stop_if(accuracy < 0)
    perhaps_die("behind")
    last = evaluate(9) if plain else run.do(evaluate, 9)
    dist.barrier()
    saved = dict(line.split() for line in (options.folder / "saved").read_text(encoding="utf-8").splitlines())  # the newest of each
    left = {
        "model": digest(*net.parameters(), *net.buffers()),
        "average": digest(*average.parameters(), *average.buffers()) + str(int(average.n_averaged)),
        "rate": str(optimizer.param_groups[0]["lr"]),
        "random": str(torch.rand(1).item()),
        "last": str(last),
        "saved": str(saved),
    }
    (options.folder / f"rank-{rank}.json").write_text(json.dumps({name: {"bits": value} for name, value in left.items()}))
    if os.environ.get("PLAIN") == "1":  # else a thread of the group may outlive the interpreter, which aborts
        dist.destroy_process_group()


main()
