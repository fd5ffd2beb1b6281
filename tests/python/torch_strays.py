"""Averages of a model that are updated where no update is: behind the step, in a section. Right without a fault, inexact with one; a parameter that
is changed before its step's gate is not, in a process's first step either.

  torch_strays.py
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import kintsugi.torch

torch.set_num_threads(1)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
torch.manual_seed(1)
net = torch.nn.Linear(4, 4)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
behind, section = (AveragedModel(net) for _ in range(2))
run.register(model=model, optimizer=optimizer, behind=behind, section=section)
for _ in run.steps(8):
    with run.step() as k:
        with torch.no_grad():
            net.bias.mul_(0.5)
        optimizer.zero_grad()
        model(torch.full((2, 4), float(k))).square().mean().backward()
        optimizer.step()
    if run.again:
        continue
    if k % 2:
        behind.update_parameters(net)
    else:
        run.do(section.update_parameters, net)
