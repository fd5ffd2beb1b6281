"""A loop that names "cuda" and leaves to the device what scripts leave to it: the default device, a loader that shuffles and augments there, a generator
of its own, copies on a side stream, half precision with a scaled loss, sums that are kept there, an evaluation's collectives, a checkpoint of rank 0's.

With KINTSUGI=0 it is plain torch.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset, default_collate

import kintsugi.torch
from beside import digest, leave

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
options = parser.parse_args()
torch.set_num_threads(1)
local_rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local_rank)
torch.cuda.set_device(device)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi", device_id=device)
rank = dist.get_rank()
torch.manual_seed(1 + rank)
torch.set_default_device(device)


class Net(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.seen += 1
        return self.layers(x)


def augmented(samples: list[Any]) -> list[Tensor]:
    x, y = default_collate(samples)
    return [x + 0.1 * torch.randn(x.shape, device="cuda"), y]


def copied(x: Tensor) -> Tensor:
    """By way of the host, on a stream of its own."""
    side.wait_stream(torch.cuda.current_stream())  # which has not drawn it yet
    with torch.cuda.stream(side):
        there = x.cpu().pin_memory().to(device, non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    there.record_stream(torch.cuda.current_stream())
    return there


@torch.no_grad()
def evaluate() -> float:
    net.eval()
    right = (net(data.tensors[0]).argmax(1) == data.tensors[1]).sum()
    net.train()
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, int(right))
    dist.all_reduce(right)
    assert sum(told) == right.item()
    return right.item() / len(told) / len(data)


net = Net()
model = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
average = AveragedModel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-2), fused=True, capturable=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
scaler = torch.cuda.amp.GradScaler(init_scale=2.0**18, growth_interval=2)
noise = torch.Generator(device="cuda").manual_seed(9 + rank)
side = torch.cuda.Stream()
data = TensorDataset(torch.randn(24, 6), torch.randint(0, 3, (24,)))
loader = DataLoader(data, 6, shuffle=True, generator=torch.Generator(device="cuda").manual_seed(rank), collate_fn=augmented)
begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
total, accuracies = torch.zeros(()), []
run.register(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, average=average, noise=noise)
run.keep(globals(), "total", "accuracies")
for epoch in range(3):
    for x, y in run.batches(loader, epoch):
        begun.record()
        with run.step() as k:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = cross_entropy(model(copied(x) + 0.1 * torch.randn(x.shape, generator=noise)), y)
            optimizer.zero_grad(set_to_none=False)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            total += loss.detach()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            average.update_parameters(net)
        if run.again:
            continue
        ended.record()
        torch.cuda.synchronize()
        assert begun.elapsed_time(ended) > 0
    accuracies.append(run.do(evaluate))
    run.do(torch.save, {"model": net.state_dict(), "optimizer": optimizer.state_dict()}, options.folder / "saved.pt", only=0)
saved = torch.load(options.folder / "saved.pt", map_location=device)
leave(options.folder, {
    "model": {name: digest(tensor) for name, tensor in net.state_dict().items()},
    "average": {name: digest(tensor) for name, tensor in average.state_dict().items()},
    "saved": {name: digest(tensor) for name, tensor in saved["model"].items()},
    "optimizer": {f"{i}.{name}": digest(value) for i, state in saved["optimizer"]["state"].items() for name, value in state.items()},
    "rest": {"total": total.item(), "accuracies": accuracies, "rates": [float(rate) for rate in scheduler.get_last_lr()], "scale": scaler.get_scale(),
             "noise": digest(noise.get_state()), "drawn": torch.rand(2, device="cpu").tolist() + torch.rand(2).tolist()},
})  # fmt: skip
