"""A rank whose model lies on a device, with what has no place elsewhere: buffers, a scaled loss, dropout, two optimizers, gathered objects, an
error of a kernel. Started by on_device.py.

  device_train.py --device KIND [--steps N] [--kind plain|scaled|two|held|batched|at-once|host-sums] [--dropout P] [--lose RANK@STEP] [--leave RANK@STEP]
      [--among RANK@STEP]... [--caught]
      --lose: an index out of bounds there, once; --leave: an exception behind the optimizer's kernels, which the device has not come to, once
      held: an object whose state has tensors there, the rate is one; batched: ranks send to each other first, more than NCCL holds, and one by one;
      at-once: collectives that torch collects, made on two streams; host-sums: no collective on the device
      --among: an exception among those, once; --caught: the script catches it
"""
import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

parser = argparse.ArgumentParser()
parser.add_argument("--device", required=True)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--kind", choices=("plain", "scaled", "two", "held", "batched", "at-once", "host-sums"), default="plain")
parser.add_argument("--dropout", type=float, default=0)
parser.add_argument("--lose", default="")
parser.add_argument("--leave", default="")
parser.add_argument("--among", action="append", default=[])
parser.add_argument("--caught", action="store_true")
options = parser.parse_args()
torch.set_num_threads(1)
device = torch.device(options.device, int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count())
torch.accelerator.set_device_index(device.index)

run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
torch.manual_seed(3 + dist.get_rank())
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(options.dropout), nn.Linear(64, 4)).to(device)
model.register_buffer("seen", torch.zeros((), dtype=torch.long, device=device))
if options.kind == "host-sums":
    wrapped = model
    for p in model.parameters():
        p.data.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) / 8)
else:
    wrapped = DistributedDataParallel(model, broadcast_buffers=False)
rate = torch.tensor(1e-2, device=device) if options.kind == "held" else 1e-2
optimizer = torch.optim.AdamW(wrapped.parameters() if options.kind != "two" else model[0].parameters(), lr=rate, capturable=options.kind == "held")
things = {"model": wrapped, "optimizer": optimizer}
scaler = other = None
if options.kind == "two":
    other = things["other"] = torch.optim.SGD([p for part in (model[1], model[4]) for p in part.parameters()], lr=1e-2, momentum=0.9)
if options.kind == "scaled":
    scaler = things["scaler"] = torch.amp.GradScaler(options.device, init_scale=2.0**14, growth_interval=3)


class Held:
    def __init__(self):
        self.seen = torch.zeros(3, device=device)

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def left():
    """Whether the step is left here; the device is busy then."""
    global leaves
    was, leaves = leaves, leaves and options.leave != f"{dist.get_rank()}@{run.at}"
    return was and not leaves


def busy(*_):
    if leaves and options.leave == f"{dist.get_rank()}@{run.at}":
        __import__("fake_device").busy(1_500_000)


def leave(*_):
    if left():
        raise RuntimeError("left in the update")


def at_once(k):
    """Sums, and what each rank tells the others from another stream, which writes it late."""
    rank, there = dist.get_rank(), torch.get_device_module(device)
    sums, told = [torch.full((n,), float(rank + n * k), device=device) for n in (2, 300)], [torch.zeros(5, device=device) for _ in range(dist.get_world_size())]
    torch.accelerator.synchronize()
    with dist.distributed_c10d._coalescing_manager(None, device):
        for one in sums:
            dist.all_reduce(one)
        with there.stream(other_stream):
            if options.device == "fake":
                __import__("fake_device").busy(3_000)
            told[rank] += rank + k
            for source, one in enumerate(told):
                dist.broadcast(one, source)
        if f"{rank}@{k}" in options.among:
            options.among.remove(f"{rank}@{k}")
            # Of the same kind three times running would be the program's own.
            raise (ValueError if k < 5 else LookupError)(f"of rank {rank} in step {k}, among what is to be done at once")
    other_stream.wait_stream(there.current_stream())
    world = dist.get_world_size()
    assert [one.unique().tolist() for one in sums] == [[world * (world - 1) / 2 + world * n * k] for n in (2, 300)], sums
    assert [one.unique().tolist() for one in told] == [[source + k] for source in range(world)], told
    return torch.cat([*sums, *told]).mean() / 1000


def send_one(k):
    """From every other rank to the next, by a communicator of the two."""
    rank = dist.get_rank()
    if rank % 2 == 0:
        if k == 1:
            time.sleep(0.3)  # the other one looks for what connects them first
        dist.send(torch.full((3,), float(rank + k), device=device), rank + 1)
    else:
        got = torch.zeros(3, device=device)
        dist.recv(got, rank - 1)
        assert k == 0 or got.unique().tolist() == [rank - 1 + k], got


other_stream = torch.get_device_module(device).Stream()
fresh = leaves = not run.replaces
held = None
if options.kind == "held":
    held = things["held"] = Held()
optimizer.register_step_post_hook(leave)
if options.kind == "batched":
    send_one(0)
run.register(**things, take_over={"held": "same-rank"} if held else None)
optimizer.register_step_pre_hook(busy)  # behind the gate, which waits for the device


def step(k):
    generator = torch.Generator().manual_seed(k * 1000 + dist.get_rank())
    inputs, labels = torch.randn(8, 16, generator=generator).to(device), torch.randint(0, 4, (8,), generator=generator).to(device)
    for each in filter(None, (optimizer, other)):
        each.zero_grad()
    loss = cross_entropy(wrapped(inputs), labels)
    model.seen += 1
    if options.lose == f"{dist.get_rank()}@{k}" and fresh:
        torch.zeros(4, device=device)[torch.tensor([10], device=device)].sum().item()
    if options.kind == "batched":
        send_one(k)
    if options.kind == "batched" and k > 2:
        sent, got = torch.full((1 << 20,), float(dist.get_rank() + k), device=device), torch.empty(1 << 20, device=device)
        other_rank = dist.get_rank() ^ 1
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, other_rank), dist.P2POp(dist.irecv, got, other_rank)]):
            work.wait()
        loss = loss + got.mean() / 100
    if options.kind == "at-once":
        with contextlib.suppress(*[ValueError, LookupError] * options.caught):
            loss = loss + at_once(k)
    (scaler.scale(loss) if scaler else loss).backward()
    mean = loss.detach().clone()
    if options.kind == "host-sums":
        sums = torch.cat([p.grad.reshape(-1) for p in model.parameters()] + [mean.reshape(-1)]).cpu()
        dist.all_reduce(sums, op=dist.ReduceOp.SUM)
        *grads, mean = torch.split(sums / dist.get_world_size(), [p.numel() for p in model.parameters()] + [1])
        for p, grad in zip(model.parameters(), grads):
            p.grad.copy_(grad.view_as(p))
    else:
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    words = [None] * dist.get_world_size()
    dist.all_gather_object(words, k)  # over the host
    assert words == [k] * len(words)
    run.report(loss=mean.item(), samples=range(k, k + 1))
    for each in filter(None, (optimizer, other)):
        scaler.step(each) if scaler else each.step()
    if scaler:
        scaler.update()
    if held:
        held.seen += k


run.train(step, steps=options.steps)
print(f"seen {int(model.seen)}, {int(model[1].num_batches_tracked)}", flush=True)
assert int(model.seen) == int(model[1].num_batches_tracked) == options.steps
assert held is None or held.seen.tolist() == [options.steps * (options.steps + 1) / 2] * 3
