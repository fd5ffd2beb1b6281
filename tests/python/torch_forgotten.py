"""What a script trains with and has not registered is refused in the step that changes it; what is registered, or goes on from nothing, is not. Needs no run."""
import bisect
import contextlib
import functools
import heapq
import random
import sys
import types

import numpy
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

import kintsugi
from kintsugi import carried
from kintsugi.torch.forgotten import Forgotten, refuse_other_optimizers, variables_here
from kintsugi.torch.streams import generators_of
from kintsugi.variables import variables_of


def message(variables, change, registered=(), loaders=()):
    watched = Forgotten(variables, registered, lambda: generators_of({str(i): loader for i, loader in enumerate(loaders)}).values())
    watched.refuse_changed(1)
    change()
    try:
        watched.refuse_changed(2)
    except kintsugi.Error as error:
        return str(error)
    return ""


class Center(nn.Module):
    """A new tensor each time, as losses have it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(3))

    def forward(self, x):
        self.center = self.center * 0.9 + x.detach().mean(0) * 0.1
        return (x - self.center).square().mean()


def stepped(*optimizers):
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.ones_like(parameter)
        optimizer.step()


net, other, data = nn.Linear(3, 3), nn.Linear(3, 3), torch.ones(2, 3)
sgd, adam = torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.Adam(other.parameters())
schedule = torch.optim.lr_scheduler.StepLR(sgd, 1)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd)
chained = torch.optim.lr_scheduler.ChainedScheduler([torch.optim.lr_scheduler.ConstantLR(sgd), torch.optim.lr_scheduler.ExponentialLR(sgd, 0.9)])
scaler = torch.amp.GradScaler("cpu")
average, center = AveragedModel(net), Center()
streams = {"torch": torch.Generator(), "python": random.Random(1), "numpy": numpy.random.default_rng(1), "old": numpy.random.RandomState(1)}
changes = {
    "schedule": (schedule, schedule.step),
    "plateau": (plateau, lambda: plateau.step(1.0)),
    "chained": (chained, chained.step),
    "scaler": (scaler, lambda: scaler.scale(torch.ones(1))),
    "average": (average, lambda: average.update_parameters(net)),
    "center": (center, lambda: center(data)),
    "adam": (adam, lambda: stepped(adam)),
    "other": (other, lambda: nn.init.zeros_(other.weight)),
    "streams.torch": (streams["torch"], lambda: torch.rand(1, generator=streams["torch"])),
    "streams.python": (streams["python"], streams["python"].random),
    "streams.numpy": (streams["numpy"], streams["numpy"].random),
    "streams.old": (streams["old"], streams["old"].rand),
}
everything = {name: thing for name, (thing, _) in changes.items() if "." not in name} | {"streams": streams}
for name, (thing, change) in changes.items():
    said = message(everything, change)
    assert said.startswith(f"'{name}' ({type(thing).__name__}) has changed by step 2 and is not registered"), (name, said)
    assert message(everything, change, registered=[thing, other]) == "", name  # which adam changes

# Where it is found: in an object's attributes, in a closure, among the variables of functions that are being called.
holder = types.SimpleNamespace(trainer=types.SimpleNamespace(schedule=schedule))
assert message({"holder": holder}, schedule.step).startswith("'holder.trainer.schedule' (StepLR)")


def closed_over(generator):
    return lambda: torch.rand(1, generator=generator)


draw = closed_over(torch.Generator())
assert message({"draw": draw}, draw).startswith("'draw.generator' (Generator)")


def inner():
    own = center
    return variables_here(), own


found, _ = inner()
assert found["own"] is center and found["changes"] is changes and "kintsugi" in found

# No state that goes on: a frozen model, a wrapper around what is registered, a scale that is off, a generator that is seeded in each step, the process's own.
frozen = nn.BatchNorm1d(3).eval()
assert message({"frozen": frozen}, lambda: frozen(data)) == ""
both = nn.Sequential(net, center)
assert message({"both": both}, lambda: (center(data), nn.init.ones_(net.weight)), registered=[net, center]) == ""
assert message({"both": both}, lambda: center(data), registered=[net]).startswith("'both' (Sequential)")
off = torch.amp.GradScaler("cpu", enabled=False)
assert message({"off": off}, lambda: off.scale(torch.ones(1))) == ""
seeded = torch.Generator()
assert message({"seeded": seeded}, lambda: torch.rand(1, generator=seeded.manual_seed(5))) == ""
assert message({"random": random, "default": torch.default_generator}, lambda: (random.random(), torch.rand(1), numpy.random.rand())) == ""

# What is made behind the first step, in a variable or in an attribute.
for place in ("late", "holder"):
    watched = Forgotten({}, [net], tuple)
    late = AveragedModel(net)
    watched.look_again({"late": late} if place == "late" else {"holder": types.SimpleNamespace(average=late), "net": net, "nn": nn}, [net])
    watched.refuse_changed(1)
    late.update_parameters(net)
    try:
        watched.refuse_changed(2)
    except kintsugi.Error as error:
        assert str(error).startswith(f"'{'late' if place == 'late' else 'holder.average'}' (AveragedModel) has changed by step 2"), error
    else:
        raise AssertionError("what was made later was not found")

# What is kept comes back after a fault as another thing of the same name.
watched = Forgotten({"rng": random.Random(1)}, [net], tuple)
put_back = random.Random(1)
watched.look_again({"rng": put_back}, [net, put_back])
watched.refuse_changed(1)
put_back.random()
watched.refuse_changed(2)

# A copy that run.reshard writes anew in each step.
served = nn.Linear(3, 3)
watched = Forgotten({"served": served}, (), tuple)
for parameter in served.parameters():
    watched.note_filled(parameter)
with torch.no_grad():
    served.weight.zero_()
watched.refuse_changed(1)

# What is kept with something else: schedules within a registered one, what a registered object has, what a loader draws from.
assert message({"first": chained._schedulers[0]}, chained.step, registered=[chained]) == ""
assert message({"holder": holder}, schedule.step, registered=[holder]) == ""
stream = torch.Generator()
loader = DataLoader(TensorDataset(data), shuffle=True, generator=stream)
assert message({"stream": stream}, lambda: list(loader), loaders=[loader]) == ""
assert message({"stream": stream}, lambda: list(loader)).startswith("'stream' (Generator)")

# An optimizer that was made behind it, for what is registered.
names = {parameter: name for name, parameter in net.named_parameters()}
refuse_other_optimizers(lambda: names, lambda one: one is sgd, lambda: True)
stepped(sgd, torch.optim.SGD(other.parameters(), lr=0.1))


class Around(torch.optim.Optimizer):
    """Has another one step."""

    def __init__(self):
        super().__init__(net.parameters(), {})

    def step(self, closure=None):
        sgd.step()


stepped(Around())
try:
    stepped(torch.optim.SGD(net.parameters(), lr=0.1))
except kintsugi.Error as error:
    assert str(error).startswith("an optimizer (SGD) that is not registered has stepped 'weight'"), error
else:
    raise AssertionError("an optimizer of later was not refused")

# What a step's source shows to go on from step to step, read where a step is made again (again) and in a process that comes later (behind). Beside it what
# only seems so: a cache, room that each step fills anew, what is registered.


class Shadow:
    def __init__(self):
        self.by_name, self.all = {"weight": torch.zeros(2)}, [torch.zeros(2)]

    def update(self, parameters):
        for name, parameter in parameters.items():
            new = 0.9 * self.by_name[name] + 0.1 * parameter
            self.by_name[name] = new.clone()
        for one, parameter in zip(self.all, parameters.values()):
            one.mul_(0.9).add_(parameter)


class Sums:
    """As torchmetrics has it."""

    def __init__(self):
        self._defaults = {}

    def update(self, value): ...
    def compute(self): ...
    def reset(self): ...


class Rows(nn.Module):
    def forward(self, x):
        bank[:1] = bank[:1] * 0.5 + x
        return x


def hooked(module, inputs, output):
    features["mean"] = 0.9 * features["mean"] + output.mean()


shadow, sums, anew, held, rows = Shadow(), Sums(), Sums(), {"w": torch.zeros(1)}, Rows()
bank, center_of, flat, hidden, room, history, latest = torch.zeros(4), torch.zeros(1), [torch.zeros(1)], torch.zeros(1), torch.zeros(4), {}, {}
features, cache, kept_list, drawn, averager = {"mean": 0.0}, {}, [torch.zeros(1)], iter(range(9)), types.SimpleNamespace(step=0, average_parameters=len)
rows.register_forward_hook(hooked)
hidden = (hidden.requires_grad_() * 1).sum()


def averages(k):
    shadow.update({"weight": torch.ones(2)})
    torch._foreach_mul_(flat, 0.9)
    center_of.copy_(0.9 * center_of + 0.1)
    raise KeyError("its end")


def modules(k):
    global hidden
    rows(torch.ones(1))
    hidden = hidden.detach()
    raise KeyError("its end")


def others(k):
    next(drawn)
    sums.update(1)
    anew.reset()
    anew.update(1)
    averager.average_parameters([])
    raise KeyError("its end")


def filled(k):
    if k not in cache:
        cache[k] = [0]
    for i in range(4):
        room[i] = i * bank.mean()
    history[k] = 1.0
    for name, one in {"loss": k}.items():
        latest[name] = one
    for one in kept_list:
        one.mul_(0.9)
    for value in held.values():
        value.copy_(room[0])
    bank[k % 4] = 1.0
    raise KeyError("its end")


class Callback:
    def __init__(self):
        self.steps = 0

    def on_step(self, k):
        self.steps += 1


logged = []
callbacks, functions = [Callback()], {"step": []}


def log(k):
    logged.append(k)


functions["step"].append(log)


def called(k):
    for callback in callbacks:
        callback.on_step(k)
    for function in functions["step"]:
        function(k)
    raise KeyError("its end")


class Slots:
    __slots__ = ("steps",)

    def __init__(self):
        self.steps = 0


class OfAll:
    steps = 0


def note(store, k):
    k = k + 1
    store.append(k)


slots, heap, sorted_ones, order, counts, noted, partly, dropped = Slots(), [], [], [1, 2], numpy.zeros(2), [], [], [1, 2, 3, 4]
note_partly = functools.partial(note, partly)


def elsewhere(k):
    slots.steps += 1
    OfAll.steps += 1
    note(noted, k)
    note_partly(k)
    raise KeyError("its end")


def by_library(k):
    heapq.heappush(heap, k)
    bisect.insort(sorted_ones, k)
    random.shuffle(order)
    numpy.add.at(counts, [0], 1)
    del dropped[0]
    raise KeyError("its end")


def told(function, error=None):
    """`error`: that ended the step; none: in a process that comes later."""
    text = carried.forgotten(function, error is None, error, lambda home, name, value: value is kept_list)
    return {part.split("'")[1] for part in text.split(", ")} if text else set()


for function, names, behind in (
    (averages, {"shadow.by_name", "shadow.all", "flat", "center_of"}, set()),
    (modules, {"bank", "features", "hidden"}, set()),
    (others, {"drawn", "sums", "averager.step"}, set()),
    (filled, {"bank"}, {"history"}),
    (called, {"Callback.steps", "logged"}, set()),
    (elsewhere, {"slots.steps", "OfAll.steps", "noted", "note_partly"}, set()),
    (by_library, {"heap", "sorted_ones", "order", "counts", "dropped"}, set()),
):
    assert told(function) == names | behind, (function, told(function))
    try:
        function(1)
    except KeyError as error:
        assert told(function, error) == names, (function, told(function, error))


# What Python's own enumerate and zip give beside a loop of the run's goes on where that gives something again.
class Steps:
    steps, step = staticmethod(lambda count: range(count)), staticmethod(contextlib.nullcontext)


def counted():
    run, found = Steps(), []
    for i, _ in enumerate(run.steps(1)):
        with run.step():
            found.append(carried.forgotten(sys._getframe(), True, None, lambda home, name, value: name == "found"))
    for _, one in zip(run.steps(1), [2]):
        with run.step():
            found.append(carried.forgotten(sys._getframe(), False, None, lambda home, name, value: name == "found"))
    for _ in run.steps(1):
        with run.step():
            found.append(carried.forgotten(sys._getframe(), True, None, lambda home, name, value: name == "found"))
    return found


of_enumerate, of_zip, of_run = counted()
assert of_enumerate.startswith("'i' (") and of_enumerate.endswith(": run.enumerate counts right)"), of_enumerate
assert of_zip.startswith("'one' (") and of_zip.endswith("StackDataset)") and not of_run, (of_zip, of_run)

# What has no variables that could be put back by name is not kept.
for owner in (OfAll, slots):
    try:
        variables_of(owner, ("steps",), sys._getframe())
    except kintsugi.Error as error:
        assert "cannot be put back by name" in str(error), error
    else:
        raise AssertionError(f"{owner} was kept")
