"""What a script carries where its steps do not show it themselves: in elements of a dict, a default argument, an attribute that comes late, in hooks of gradients,
modules and optimizers; and what a section sets for later steps. Beside them what is no state: what begins in each call, what nobody reads elsewhere, what is kept.

  torch_carried_within.py
"""
import collections

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch


class Meter:
    def __init__(self):
        self.total = 0.0

    def update(self, value):
        self.total += value


class Evaluator:
    def __call__(self):
        self.summed_up, self.rows_seen = 0.0, []
        for row in table:
            self.add(net(row).item())
        return self.summed_up

    def add(self, value):
        self.summed_up += value
        self.rows_seen.append(value)


def note(value, noted=[], begun=[]):
    noted.append(value)
    begun.clear()
    begun.append(value)


def given(value, taken=[]):
    taken.append(value)


def counted():
    counted.calls = getattr(counted, "calls", 0) + 1
    return counted.calls


def of_gradient(gradient):
    hooked["gradients"] += 1
    return gradient / hooked["gradients"]


def of_module(*_):
    passed["back"] += 1


def behind_step(*_):
    stepped["all"] += 1


def calibrate():
    global threshold, unread
    threshold = net(torch.ones(3)).item()
    unread = threshold
    table[1:] = threshold


torch.set_num_threads(1)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
torch.manual_seed(1)
net = torch.nn.Linear(3, 1)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
run.register(model=model, optimizer=optimizer)
meters, lists, both = collections.defaultdict(Meter), collections.defaultdict(list), {"kept": Meter()}
run.keep(both["kept"], "total")
threshold, unread, table, evaluator = 0.0, 0.0, torch.zeros(4, 3), Evaluator()
hooked, passed, stepped = {"gradients": 0}, {"back": 0}, {"all": 0}
for _ in run.range(4):
    with run.step():
        loss = model(torch.ones(3)).square().mean() / counted()
        optimizer.zero_grad()
        meters["loss"].update(loss.item())
        lists["loss"].append(loss.item())
        both["kept"].update(loss.item())
        note(loss.item())
        given(loss.item(), taken=[])
        loss.backward()
        optimizer.step()
run.do(calibrate)
run.do(evaluator)
net.weight.register_hook(of_gradient)
net.register_full_backward_hook(of_module)
optimizer.register_step_pre_hook(behind_step)
for _ in run.range(4):
    with run.step():
        optimizer.zero_grad()
        (model(table[0] - threshold).square().mean()).backward()
        optimizer.step()
