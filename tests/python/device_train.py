"""A rank whose model lies on a device, with what has no place elsewhere: buffers, a scaled loss, dropout, two optimizers, gathered objects, an
error of a kernel. Started by on_device.py.

  device_train.py --device KIND [--steps N] [--kind plain|scaled|two] [--dropout P] [--lose RANK@STEP]     --lose: an index out of bounds there, once
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

parser = argparse.ArgumentParser()
parser.add_argument("--device", required=True)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--kind", choices=("plain", "scaled", "two"), default="plain")
parser.add_argument("--dropout", type=float, default=0)
parser.add_argument("--lose", default="")
options = parser.parse_args()
torch.set_num_threads(1)
device = torch.device(options.device, int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count())
torch.accelerator.set_device_index(device.index)

run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
torch.manual_seed(3 + dist.get_rank())
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(options.dropout), nn.Linear(64, 4)).to(device)
model.register_buffer("seen", torch.zeros((), dtype=torch.long, device=device))
wrapped = DistributedDataParallel(model, broadcast_buffers=False)
optimizer = torch.optim.AdamW(wrapped.parameters() if options.kind != "two" else model[0].parameters(), lr=1e-2)
things = {"model": wrapped, "optimizer": optimizer}
scaler = other = None
if options.kind == "two":
    other = things["other"] = torch.optim.SGD([p for part in (model[1], model[4]) for p in part.parameters()], lr=1e-2, momentum=0.9)
if options.kind == "scaled":
    scaler = things["scaler"] = torch.amp.GradScaler(options.device, init_scale=2.0**14, growth_interval=3)
run.register(**things)
fresh = not run.replaces


def step(k):
    generator = torch.Generator().manual_seed(k * 1000 + dist.get_rank())
    inputs, labels = torch.randn(8, 16, generator=generator).to(device), torch.randint(0, 4, (8,), generator=generator).to(device)
    for each in filter(None, (optimizer, other)):
        each.zero_grad()
    loss = cross_entropy(wrapped(inputs), labels)
    model.seen += 1
    if options.lose == f"{dist.get_rank()}@{k}" and fresh:
        torch.zeros(4, device=device)[torch.tensor([10], device=device)].sum().item()
    (scaler.scale(loss) if scaler else loss).backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    words = [None] * dist.get_world_size()
    dist.all_gather_object(words, k)  # over the host
    assert words == [k] * len(words)
    run.report(loss=mean.item(), samples=range(k, k + 1))
    for each in filter(None, (optimizer, other)):
        scaler.step(each) if scaler else each.step()
    if scaler:
        scaler.update()


run.train(step, steps=options.steps)
print(f"seen {int(model.seen)}, {int(model[1].num_batches_tracked)}", flush=True)
assert int(model.seen) == int(model[1].num_batches_tracked) == options.steps
