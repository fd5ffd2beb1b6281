"""Every optimizer of torch.optim in its variants, and some that scripts write themselves, each with a small model of its own, all in one
step. PLAIN=1: the same under plain torch over Gloo. What is left of each, bit for bit, goes to FOLDER/rank-N.json.

  torch_optimizers.py FOLDER [--update]     --update: all step within run.update(), not one after the other
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn, optim

from beside import PLAIN, begin, digest, leave

STEPS = 6
LATE = 3  # the step in which some parameters have their first gradient


# ---- as scripts write them --------------------------------------------------------------------------------------------------


class Own(optim.Optimizer):
    """`settings` are a group's."""

    def __init__(self, parameters: Any, **settings: Any) -> None:
        super().__init__(parameters, {"lr": 0.05, **settings})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            self.begin(group)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.change(group, parameter, self.state[parameter])

    def begin(self, group: dict[str, Any]) -> None:
        pass

    def change(self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
        """Of one parameter, by its gradient."""


class FirstNotZero(Own):
    """Pulled back to where it began, by a scale that begins with two."""

    def change(self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
        if not state:
            state["scale"], state["first"] = torch.full_like(parameter, 2.0), parameter.clone()
        state["scale"].mul_(0.9)
        parameter.sub_(group["lr"] * (parameter.grad * state["scale"] + 0.1 * (parameter - state["first"])))


class Counting(Own):
    """Counts in its group, in an attribute, in a list of its group, and in each state."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, k=0, best=float("inf"), kept=[0, 0.5, None])
        self.updates = 0

    def begin(self, group: dict[str, Any]) -> None:
        group["k"] += 1
        group["best"] = min(group["best"], 1.0 / group["k"])
        group["kept"][group["k"] % 3] = group["k"]
        self.updates += 1

    def change(self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
        state["step"] = state.get("step", 0) + 1
        rate = group["lr"] * group["best"] / (self.updates + state["step"] + (group["kept"][0] or 0))
        parameter.sub_(rate * parameter.grad)


class ScheduleFree(Own):
    """After Defazio et al.: the average of all weights is trained on; where z stands is the state, how much weighs is the group's."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, k=0, weight_sum=0.0, lr_max=-1.0)

    def begin(self, group: dict[str, Any]) -> None:
        group["k"] += 1
        group["lr_max"] = max(group["lr"] * min(1.0, group["k"] / 3), group["lr_max"])
        group["weight_sum"] += group["lr_max"] ** 2

    def change(self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
        if "z" not in state:
            state["z"] = parameter.clone()
        state["z"].sub_(group["lr_max"] * parameter.grad)
        parameter.lerp_(state["z"], group["lr_max"] ** 2 / group["weight_sum"])


class Distance(Own):
    """After Prodigy: the rate grows with the distance to where it began. With nothing to be done it stops early."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, d=1e-2)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if any(bool(p.grad.any()) for group in self.param_groups for p in group["params"] if p.grad is not None):
            super().step()

    def change(self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
        if not state:
            state["first"] = parameter.clone()
        parameter.sub_(group["d"] * parameter.grad)
        group["d"] = max(group["d"], 0.5 * float((parameter - state["first"]).norm()))


class Replacing(Own):
    """Makes its state anew at each step."""

    def change(self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
        state["m"] = 0.9 * state["m"] + parameter.grad if "m" in state else parameter.grad.clone()  # type: ignore[union-attr]
        parameter.sub_(group["lr"] * state["m"])


class Mapped(Own):
    """A state of 4 bits, in the steps of a map that all states share."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.map = torch.linspace(-1, 1, 16)

    def change(self, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
        if not state:
            state["places"], state["map"] = torch.full_like(parameter, 8, dtype=torch.uint8), self.map
        moment = 0.5 * state["map"][state["places"].long()] + parameter.grad.clamp(-1, 1) / 2  # type: ignore[union-attr]
        state["places"].copy_((moment[..., None] - state["map"]).abs().argmin(-1))
        parameter.sub_(group["lr"] * moment)


class CallsParent(optim.SGD):
    """Does something behind its parent's step."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.99)


class Lookahead(optim.Optimizer):
    """Around another, whose groups are its own; its slow weights are its state."""

    def __init__(self, base: optim.Optimizer) -> None:
        super().__init__([p for group in base.param_groups for p in group["params"]], {})
        self.base = base
        self.param_groups = base.param_groups
        self.state = defaultdict(dict)
        for group in self.param_groups:
            group["counter"] = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.base.step()
        for group in self.param_groups:
            for parameter in group["params"]:
                slow = self.state[parameter].setdefault("slow", parameter.clone())
                if group["counter"] % 2 == 1:
                    parameter.copy_(slow.lerp_(parameter, 0.5))
            group["counter"] += 1


def loaded(parameters: list[Tensor]) -> optim.Optimizer:
    """With a state of its own from before."""
    before = optim.Adam([nn.Parameter(p.detach().clone()) for p in parameters], lr=0.01)
    for k in (1, 2):
        for p in before.param_groups[0]["params"]:
            p.grad = torch.full_like(p, float(k))
        before.step()
    optimizer = optim.Adam(parameters, lr=0.5)
    optimizer.load_state_dict(before.state_dict())
    return optimizer


def parts_or_whole(parameters: list[Tensor]) -> optim.Optimizer:
    """With copies everywhere, a part is the whole."""
    settings: dict[str, Any] = {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}
    if PLAIN:
        return optim.SGD(parameters, **settings)
    import kintsugi.torch

    return kintsugi.torch.ReplicaOptimizer(parameters, optim.SGD, copies=dist.get_world_size(), **settings)


Make = Callable[[list[Tensor]], optim.Optimizer]


def of_torch(name: str, **settings: Any) -> tuple[str, Make]:
    kind = getattr(optim, name)
    return f"{name} {settings}", lambda parameters: kind(parameters, **settings)


def cases() -> dict[str, Make]:
    rate = torch.tensor(0.02)
    everywhere: dict[str, list[dict[str, Any]]] = {
        "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.5}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1},
                {"momentum": 0.9, "dampening": 0.5, "fused": True}, {"lr": rate.clone()}],
        "Adam": [{}, {"amsgrad": True}, {"weight_decay": 0.1}, {"fused": True}, {"lr": rate.clone(), "foreach": False}],
        "AdamW": [{}, {"amsgrad": True}, {"fused": True}],
        "NAdam": [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
        "RAdam": [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
        "Adagrad": [{}, {"initial_accumulator_value": 0.5, "lr_decay": 0.1}, {"fused": True}],
        "RMSprop": [{}, {"centered": True}, {"momentum": 0.9}, {"centered": True, "momentum": 0.5, "weight_decay": 0.1}],
        "Rprop": [{}, {"etas": (0.3, 1.5)}],
        "ASGD": [{}, {"lambd": 0.1, "t0": 2.0}],
        "Adadelta": [{}, {"weight_decay": 0.1}],
        "Adamax": [{}, {"weight_decay": 0.1}],
        "Adafactor": [{}, {"weight_decay": 0.1}],
        "Muon": [{}, {"nesterov": False, "weight_decay": 0.0}],
    }  # fmt: skip
    found = dict(of_torch(name, **{"lr": 0.02, **settings}) for name, several in everywhere.items() for settings in several)
    for name in everywhere:
        if name != "Muon":
            found.update([of_torch(name, lr=0.02, maximize=True, foreach=name != "ASGD")])
    return {
        **found,
        "first not zero": FirstNotZero,
        "counting": Counting,
        "schedule-free": ScheduleFree,
        "distance": Distance,
        "replacing": Replacing,
        "mapped": Mapped,
        "calls its parent": lambda parameters: CallsParent(parameters, lr=0.05, momentum=0.9, dampening=0.5),
        "around another": lambda parameters: Lookahead(optim.SGD(parameters, lr=0.05, momentum=0.9, dampening=0.5)),
        "around a counting one": lambda parameters: Lookahead(Counting(parameters)),
        "loaded": loaded,
        "in parts": parts_or_whole,
        "scheduled": lambda parameters: optim.SGD(parameters, lr=0.05, momentum=0.9, dampening=0.5),
        "late": lambda parameters: optim.NAdam(parameters, lr=0.05),
        "late, counting": Counting,
    }


class Models(nn.ModuleDict):
    """One beside the other."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[bool] = []

    def forward(self, k: int) -> Tensor:
        generator = torch.Generator().manual_seed(10 * k + dist.get_rank())
        total = torch.zeros(())
        for late, model in zip(self.late, self.values()):
            assert isinstance(model, nn.Sequential)
            hidden = model[0](torch.randn(6, 5, generator=generator))
            total = total + (hidden if late and k < LATE else model[2](torch.tanh(hidden))).square().mean()
        return total


# ---- the run ----------------------------------------------------------------------------------------------------------------


def bits(value: Any) -> str:
    if isinstance(value, Tensor):
        return digest(value)
    if isinstance(value, dict):
        return str({str(key): bits(one) for key, one in value.items()})
    return str([bits(one) for one in value]) if isinstance(value, (list, tuple)) else repr(value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    run = begin()
    torch.manual_seed(1)
    models, optimizers = Models(), {}
    for number, (name, make) in enumerate(cases().items()):
        bias = not name.startswith("Muon")
        model = nn.Sequential(nn.Linear(5, 4, bias=bias), nn.Tanh(), nn.Linear(4, 3, bias=bias))
        models[str(number)] = model
        models.late += [name.startswith("late")]
        optimizers[name] = make([*model.parameters()])
    rates = optim.lr_scheduler.StepLR(optimizers["scheduled"], step_size=2, gamma=0.5)
    drawn = float(torch.rand(1))  # trying the optimizers draws nothing
    if run is not None:
        run.register(models=models, rates=rates, **{f"of{number}": one for number, one in enumerate(optimizers.values())})
        if run.rank == 0 and not run.replaces:
            print(run.plan().splitlines()[-1], flush=True)

    def step(k: int) -> None:
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        total = models(k)
        total.backward()
        gradients = [p.grad for p in models.parameters() if p.grad is not None]
        flat = torch.cat([one.reshape(-1) for one in gradients])
        dist.all_reduce(flat)
        for one, part in zip(gradients, torch.split(flat, [one.numel() for one in gradients])):
            one.copy_(part.view_as(one) / dist.get_world_size())
        if run is not None:
            run.report(loss=float(total.detach()), samples=[k * dist.get_world_size() + dist.get_rank()])
        with run.update() if run is not None and options.update else nullcontext():
            for optimizer in optimizers.values():
                optimizer.step()
        rates.step()

    if run is None:
        for k in range(1, STEPS + 1):
            step(k)
    else:
        run.train(step, STEPS)
    left: dict[str, Any] = {"generators": {"drawn": drawn}}
    for (name, optimizer), trained in zip(optimizers.items(), models.values()):
        attributes = {key: value for key, value in vars(optimizer).items() if type(value) in (int, float) and not key.startswith(("_", "part"))}
        inner = getattr(optimizer, "base", optimizer)
        left[name] = {"parameters": bits(dict(trained.named_parameters())), "state": bits(optimizer.state_dict()["state"]),
                      "inner": bits(inner.state_dict()["state"]), "attributes": bits({**attributes, **({"updates": inner.updates} if isinstance(inner, Counting) else {})}),
                      "groups": bits([{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups])}  # fmt: skip
    leave(options.folder, left)


main()
