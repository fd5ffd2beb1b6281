"""A script that keeps some of its variables, and forgets others: a counter, a meter, a list, what is read ahead, what a data set counts, and what it makes of its
model between two loops; what a class gives at first, in a block that plain torch has none of. Beside them what is no state: times, sums that begin in each
step, a cache, what is registered.

  torch_carried.py
"""
import contextlib
import copy
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

import kintsugi.torch


class Meter:
    def __init__(self):
        self.total = 0.0

    def update(self, value):
        self.total += value


class Tally:
    count = 0


class Parts:
    """Begins anew in each step, by another function than it is added to."""

    def __init__(self):
        self.all = []

    def begin(self):
        self.all = []

    def add(self, value):
        self.all.append(value)


class Visited(Dataset):
    def __init__(self):
        self.visits, self.cached = 0, []

    def __len__(self):
        return 24

    def __getitem__(self, i):
        self.visits += 1
        self.cached.append(i)
        return torch.full((3,), float(i))


class Order(Sampler):
    walks = 0

    def __iter__(self):
        self.walks += 1
        yield from range(24)


class Together:
    batches = 0

    def __call__(self, rows):
        self.batches += 1
        return torch.stack(rows)


class Average:
    value = 0.0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


torch.set_num_threads(1)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
torch.manual_seed(1)
net = torch.nn.Linear(3, 1)
net.meter = Meter()
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
average, meter, kept, parts, updates, tally = Average(), Meter(), Meter(), Parts(), 0, Tally()
run.register(model=model, optimizer=optimizer, average=average)
kept_best, measured, evaluated, found = None, [], 0, []


def evaluate():
    global evaluated
    evaluated += 1
    found.append(evaluated)
    return net(torch.ones(3)).item()


def scaled(_module, _given, result):
    return result * 0.9


def watched(*_):
    pass


run.keep(globals(), "updates", "kept_best")
run.keep(kept, "total")
run.keep(second := Meter(), "total")  # of the same name
meters = {"kept": kept, "second": second}
loader = DataLoader(Visited(), batch_size=3, sampler=Order(), collate_fn=Together())
seen, losses, ahead, last, end = 0, [], torch.zeros(3), None, time.time()
for batch in run.batches(loader, 0):
    with run.step() as k:
        if k == 2:
            net.register_forward_hook(scaled)
        if watched not in net._forward_hooks.values():  # each process does
            net.register_forward_hook(watched)
        seen += len(batch)
        updates += 1
        took = time.time() - end
        summed = 0.0
        parts.begin()
        for row in batch:
            summed += float(row.sum())
            parts.add(summed)
        meters["kept"].update(summed)
        meters["second"].update(summed)
        meter.update(summed)
        net.meter.update(summed)
        average.value = 0.9 * average.value + summed
        optimizer.zero_grad()
        loss = model(batch + ahead).square().mean()
        loss.backward()
        losses.append(loss.item())
        ahead = batch[0]
        last = loss.item()
        optimizer.step()
        end = time.time()
    if run.again:
        continue
assert updates == 8 and kept.total == second.total
run.do(evaluate)
best = copy.deepcopy(net.state_dict())
whole = copy.deepcopy(net)
kept_best = {name: value.clone() for name, value in net.state_dict().items()}
measured.append(net(torch.ones(3)).item())
norms = [parameter.norm().item() for parameter in net.parameters()]
for parameter in net.parameters():  # which reads nothing
    parameter.requires_grad_(True)
for _ in range(2) if run is None else run.steps(2):
    with contextlib.nullcontext() if run is None else run.step():
        tally.count += 1
        optimizer.zero_grad()
        model(torch.ones(3)).square().mean().backward()
        optimizer.step()
    if run.again:
        continue

made = []


def marks_its_steps(first):
    for k in range(first + 1, 13):
        run.begin_step(k)
        made.append(k)
        optimizer.zero_grad()
        model(torch.ones(3)).square().mean().backward()
        optimizer.step()
        run.end_step(k)


run.guard(marks_its_steps)


def is_alike():
    of_first = [value.clone() for value in kept_best.values()]
    for value in of_first:
        dist.broadcast(value, 0)
    return all(map(torch.equal, of_first, kept_best.values()))


assert run.do(is_alike), "what is kept is as it was made"
