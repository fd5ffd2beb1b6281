"""How often the host waits for its device in an undisturbed step: nowhere for a model without buffers; for one with buffers at the gate, which waits
anyway, and at the step's end. Counted on the fake one: streams and events that are waited for, and what is read of tensors there.

  device_waits.py --device fake [--buffers]
"""
import sys

import fake_device
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

import kintsugi.torch

READS = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default, torch.ops.aten._local_scalar_dense.default)


class Waits(TorchDispatchMode):
    reads = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        left = operator(*args, **(kwargs or {}))
        there = args[1] if operator is READS[1] else args[0] if operator in READS else None
        if isinstance(there, torch.Tensor) and there.device.type == "fake" and not (isinstance(left, torch.Tensor) and left.device.type == "fake"):
            self.reads += 1
        return left

    def so_far(self):
        return self.reads + fake_device.counts()[2]


torch.set_num_threads(1)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
device = torch.device("fake", 0)
torch.manual_seed(5)
with_buffers = "--buffers" in sys.argv
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
if with_buffers:
    model.register_buffer("mask", torch.ones(4))
wrapped = DistributedDataParallel(model.to(device), broadcast_buffers=False)
optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
batches = [(torch.randn(8, 16).to(device), torch.randint(0, 4, (8,)).to(device)) for _ in range(8)]
run.register(model=wrapped, optimizer=optimizer)
counted = []
with Waits() as waits:
    float(torch.ones(1, device=device))
    assert waits.so_far() == 1
    for k in run.steps(len(batches)):
        x, y = batches[k % len(batches)]
        before = waits.so_far()
        with run.step():
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(x), y).backward()
            optimizer.step()
        counted.append(waits.so_far() - before)
expected = 2 if with_buffers else 0  # the first steps look at what they are given
assert counted[3:] == [expected] * 5, f"the host waited for the device {counted} times in its steps, expected {expected}"
