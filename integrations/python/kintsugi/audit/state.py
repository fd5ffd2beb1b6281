"""A program's state at one moment, as facts: for each kind, names and what stands for the bits under them.

`take` is called on the thread that trains, between two of its calls, and changes nothing.
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

from . import digests
from .seen import Names, Seen

Facts = dict[str, Any]

# What an optimizer does in another way with the same result, or what only a schedule reads.
IGNORED_OPTIONS = ("params", "initial_lr", "foreach", "fused", "capturable", "differentiable")
# Looking for tensors that a program keeps takes tens of milliseconds. Where the first looks find none, the next is behind a checkpoint.
SWEEPS_FIRST = 2
MOST_ROUNDED = 1 << 24  # elements of a tensor that is looked at for numbers of half precision


def number(value: Any) -> Any:
    """An option as JSON has it: a tensor of one element as its number, what has no value as its type."""
    if hasattr(value, "item") and value.numel() == 1:
        return value.item()
    if isinstance(value, (list, tuple)):
        return [number(one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return f"<{type(value).__name__}>"


def options(optimizers: dict[int, Any], names: Names) -> Facts:
    """{group: {"members": names, "options": values}} of all optimizers."""
    found: Facts = {}
    for at, optimizer in optimizers.items():
        for i, group in enumerate(optimizer.param_groups):
            found[f"optimizer {at} group {i}"] = {
                "members": [names.of.get(id(p), f"optimizer {at} group {i} parameter {j}") for j, p in enumerate(group["params"])],
                "options": {key: number(value) for key, value in group.items() if key not in IGNORED_OPTIONS},
            }
    return found


class State:
    """How facts are taken. `optimizers`: those that have made an update, by number."""

    def __init__(self, torch: Any, seen: Seen) -> None:
        self._torch, self._seen = torch, seen
        self.rank = 0
        self._forwarded: set[int] = set()
        self._sweeps_due, self._found = SWEEPS_FIRST, False

    def forwarded(self, module: Any) -> None:
        """A module that was evaluated with gradients is one that is trained, or part of it: no average."""
        self._forwarded.add(id(module))

    def updated(self) -> None:
        self._sweeps_due = 1 if self._found else max(0, self._sweeps_due - 1)

    def saved(self) -> None:
        """A checkpoint was written: what a resumed process begins with is compared with the state that comes next."""
        self._sweeps_due = max(self._sweeps_due, 1)

    def take(self, optimizers: dict[int, Any], names: Names) -> Facts:
        torch = self._torch
        held = {id(p) for optimizer in optimizers.values() for group in optimizer.param_groups for p in group["params"]}
        trained_roots = {id(root) for _, p, root in names.parameters if id(p) in held} | self._forwarded
        facts: Facts = {
            "ties": {" = ".join(tie): "one tensor" for tie in names.ties},
            "trained": {}, "weights": {}, "rounded": {}, "buffers": {}, "moments": {}, "averages": {}, "schedule": {}, "scale": {},
            "random": digests.random_states(torch, self._seen.named_generators()),
        }  # fmt: skip
        for name, parameter, root in names.parameters:
            if id(root) not in trained_roots:
                facts["averages"][name] = digests.tensor(torch, parameter)
                continue
            facts["weights"][name] = digests.tensor(torch, parameter)
            facts["trained"][name] = "in no optimizer" if id(parameter) not in held else "trained" if parameter.requires_grad else "frozen"
            if parameter.numel() <= MOST_ROUNDED and (half := digests.fits_half(torch, parameter)):
                facts["rounded"][name] = half
        for name, buffer, root in names.buffers:
            if self.rank != 0 and _from_rank_0(root):
                continue
            facts["buffers" if id(root) in trained_roots else "averages"][name] = digests.tensor(torch, buffer)
        for at, optimizer in optimizers.items():
            self._add_moments(facts["moments"], at, optimizer, names)
        self._add_schedules(facts["schedule"])
        for i, scaler in enumerate(self._seen.scalers):
            if scaler.is_enabled():
                facts["scale"][f"scaler {i} scale"] = scaler.get_scale()
                facts["scale"][f"scaler {i} growth_tracker"] = scaler._get_growth_tracker()
        if self._sweeps_due:
            facts["kept"] = self._kept(optimizers, names)
            self._found = bool(facts["kept"])
        return facts

    def _add_moments(self, facts: Facts, at: int, optimizer: Any, names: Names) -> None:
        for i, group in enumerate(optimizer.param_groups):
            for j, parameter in enumerate(group["params"]):
                name = names.of.get(id(parameter), f"optimizer {at} group {i} parameter {j}")
                for path, value in digests.leaves(self._torch, optimizer.state.get(parameter, {})):
                    told = f"{name} {path.lstrip('/')}"
                    whole = isinstance(value, self._torch.Tensor) and (value.numel() != 1 or type(value).__name__ == "DTensor")  # of which a rank may have nothing
                    facts[told] = digests.tensor(self._torch, value) if whole else number(value)

    def _add_schedules(self, facts: Facts) -> None:
        for i, schedule in enumerate(self._seen.schedules):
            for key in ("last_epoch", "num_bad_epochs", "best", "cooldown_counter", "T_cur", "T_i"):
                if hasattr(schedule, key):
                    facts[f"{type(schedule).__name__} {i} {key}"] = number(getattr(schedule, key))

    def _kept(self, optimizers: dict[int, Any], names: Names) -> Facts:
        """Copies of the weights that the program keeps by itself, in a dictionary or a list: averages made by hand, the best weights. Under one
        name there may be several, of an average and of a checkpoint that was read."""
        torch = self._torch
        sets = [Counter(tuple(p.shape) for group in optimizer.param_groups for p in group["params"] if p.numel() > 1) for optimizer in optimizers.values()]
        sets = [shapes for shapes in sets if shapes]
        if not sets:
            return {}
        held = {id(p) for optimizer in optimizers.values() for group in optimizer.param_groups for p in group["params"]}
        shapes = set().union(*sets)
        known = {p.data_ptr() for _, p, _ in [*names.parameters, *names.buffers] if digests.has_bytes(torch, p)}
        for optimizer in optimizers.values():
            for state in optimizer.state.values():
                known.update(v.data_ptr() for _, v in digests.leaves(torch, state) if isinstance(v, torch.Tensor) and digests.has_bytes(torch, v))
            known.update(p.grad.data_ptr() for g in optimizer.param_groups for p in g["params"] if p.grad is not None and digests.has_bytes(torch, p.grad))
        # By type alone: asking each object of the process what it is would take longer than everything else here.
        alone = [t for t in gc.get_objects() if type(t) is torch.Tensor]
        found = {id(t): t for t in alone if t.is_floating_point() and digests.has_bytes(torch, t) and tuple(t.shape) in shapes
                 and t.grad_fn is None and t.data_ptr() not in known and id(t) not in names.of and id(t) not in held}  # fmt: skip
        if len(found) < min(_most(of) for of in sets):
            return {}
        facts: Facts = {}
        ours = {id(found), id(alone)}
        for holder in gc.get_referrers(*found.values()):
            if id(holder) in ours or type(holder) not in (dict, list):
                continue
            entries = [(key, value) for key, value in (list(holder.items()) if type(holder) is dict else enumerate(holder)) if id(value) in found and isinstance(key, (str, int))]
            copied = Counter(tuple(value.shape) for _, value in entries)
            if any((copied & of).total() >= _most(of) for of in sets):
                for key, value in entries:
                    facts.setdefault(str(key), []).append(digests.tensor(torch, value))
        return facts


def _from_rank_0(root: Any) -> bool:
    """DistributedDataParallel gives all ranks the buffers of rank 0 before each forward: what others have between two is never used."""
    return bool(getattr(root, "broadcast_buffers", False) and hasattr(root, "require_forward_param_sync"))


def _most(shapes: Counter[tuple[int, ...]]) -> int:
    """How many tensors of these shapes are a copy of what an optimizer trains: a batch may have the shape of one of them."""
    return max(1 if shapes.total() == 1 else 2, (shapes.total() + 1) // 2)
