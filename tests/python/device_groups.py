"""A rank with many groups on the fake device, each used in every step. Connected anew at incidents, they leave nothing of those before: there is one
communicator a group, as in plain torch, and after further incidents there are no more threads and descriptors than after the first, which is in step 2.

  device_groups.py --device fake
"""
import ctypes
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

GROUPS = 128
torch.set_num_threads(1)
device = torch.device("fake", 0)
nccl = ctypes.CDLL(os.environ["KINTSUGI_NCCL_LIBRARY"])


def held():
    """Communicators, threads and descriptors of this process."""
    return [nccl.fakeNcclMade() - nccl.fakeNcclFreed(), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))]


def settled(most):
    """The same, once what threads of their own take apart is gone: when it does not change any more and is as little as expected, or after a minute."""
    for _ in range(600):
        before = held()
        time.sleep(0.1)
        if held() == before and is_expected(before, most):
            break
    return held()


def is_expected(now, most):
    return now[0] == GROUPS + 1 and all(count <= limit for count, limit in zip(now[1:], most))


run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
rank, world = dist.get_rank(), dist.get_world_size()
groups = [dist.new_group([*range(world)]) for _ in range(GROUPS)]
torch.manual_seed(3)
model = DistributedDataParallel(nn.Linear(8, 4).to(device), broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run.register(model=model, optimizer=optimizer)


def step(k):
    if k == 3:  # before its collectives: at a next incident's stop the other rank's connections are closed
        held.most = settled(UNKNOWN)[1:]
    told = [torch.full((2,), float(rank + number + k), device=device) for number in range(len(groups))]
    for group, one in zip(groups, told):
        dist.all_reduce(one, group=group)
    told = [one.cpu() for one in told]
    assert [one.unique().tolist() for one in told] == [[world * (number + k) + world * (world - 1) / 2] for number in range(len(groups))], told
    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(k * 100 + rank)).to(device)
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    run.report(loss=loss.item(), samples=[k])
    optimizer.step()


UNKNOWN = (float("inf"),) * 2
held.most = UNKNOWN  # of a process that has not seen step 3
run.train(step, steps=7)
now = settled(held.most)
print(f"rank {rank}: communicators, threads, descriptors {now}, at most {held.most}", flush=True)
assert is_expected(now, held.most)
