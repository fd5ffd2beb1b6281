"""What a script trains with and has not registered is refused in the step that changes it; what is registered, or goes on from nothing, is not. Needs no run."""
import random
import types

import numpy
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

import kintsugi
from kintsugi.torch.forgotten import Forgotten, refuse_other_optimizers, variables_here
from kintsugi.torch.streams import generators_of


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
