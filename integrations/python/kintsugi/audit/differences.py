"""What differs between one update of a run and the update of another that should be its equal. Pure.

Kinds are in the order in which one makes another: the state before the forward, what is fed to it, what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .records import Facts, Rank, Update

# Of the state before an update.
TRAINED, WEIGHTS, LEARNING_RATE, OPTIONS, MOMENTS, SCALE, AVERAGES, BUFFERS = (
    "trained", "weights", "learning rate", "options", "moments", "loss scale", "averages", "buffers")  # fmt: skip
# Of what is done with it.
ACCUMULATION, SAMPLES, RANDOM, GRADIENTS, STEPS = "accumulation", "order of samples", "random numbers", "gradients", "steps"
STATE = (TRAINED, WEIGHTS, LEARNING_RATE, OPTIONS, MOMENTS, SCALE, AVERAGES, BUFFERS)


@dataclass
class Difference:
    """`names`: all that differ, the first of them first. `was`, `now`: of the first one, "" where only digests are known."""

    kind: str
    names: list[str]
    was: str = ""
    now: str = ""
    detail: str = ""


class Reference:
    """What the undisturbed run tells of a rank: what changes in it by itself, and so is state that goes on."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        states = [state for i in range(len(rank.updates) + 1) if (state := rank.state_before(i))]
        self.moving = {kind: _moving(states, kind) for kind in ("averages", "kept")}
        self.scheduled = _changing([options_of(update.groups) for update in rank.updates])
        self.feeds_modules = any(update.inputs for update in rank.updates)


def _moving(states: list[Facts], kind: str) -> set[str]:
    """Names whose value changed at least twice: what is built once, or late, is no state that goes on."""
    changes: dict[str, int] = {}
    for before, after in zip(states, states[1:]):
        for name in before.get(kind, {}).keys() & after.get(kind, {}).keys():
            changes[name] = changes.get(name, 0) + (before[kind][name] != after[kind][name])
    return {name for name, count in changes.items() if count >= 2}


def _changing(options: list[dict[str, dict[str, Any]]]) -> set[str]:
    """Options that do not stay: a schedule moves them (OneCycleLR moves the momentum, too)."""
    return {key for before, after in zip(options, options[1:]) for name in before.keys() & after.keys()
            for key in before[name].keys() & after[name].keys() if before[name][key] != after[name][key]}  # fmt: skip


def unequal(was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [name for name in was if name not in now or was[name] != now[name]] + [name for name in now if name not in was]


def of_state(reference: Reference, was: Facts, now: Facts) -> list[Difference]:
    """Of the state before an update, the options of the optimizers apart (of_groups)."""
    found = []
    ties = [tie for tie in unequal(was["ties"], now["ties"])]
    if ties:
        apart = ties[0] in was["ties"]
        found.append(Difference(WEIGHTS, ties, "one tensor" if apart else "tensors of their own", "tensors of their own" if apart else "one tensor",
                                "tied weights came apart" if apart else "weights became tied"))  # fmt: skip
    trained = [name for name in unequal(was["trained"], now["trained"]) if name in was["trained"] and name in now["trained"]]
    if trained:
        found.append(Difference(TRAINED, trained, was["trained"][trained[0]], now["trained"][trained[0]]))
    weights = unequal(was["weights"], now["weights"])
    if weights and not ties:
        found.append(Difference(WEIGHTS, weights, detail=_rounded(weights, was, now)))
    for kind, key in ((MOMENTS, "moments"), (SCALE, "scale")):
        names = unequal(was[key], now[key])
        if names:
            found.append(Difference(kind, names, _told(was[key].get(names[0], "missing")), _told(now[key].get(names[0], "missing"))))
    averages = [name for name in unequal(was["averages"], now["averages"]) if name in was["averages"] and (name in now["averages"] or name in reference.moving["averages"])]
    moving = [name for name in averages if name in reference.moving["averages"]]
    kept = [name for name in was.get("kept", {}) if "kept" in now and name in reference.moving["kept"] and not set(was["kept"][name]) <= set(now["kept"].get(name, []))]
    if moving or kept:
        found.append(Difference(AVERAGES, [*moving, *kept], detail="" if moving else "copies of the weights that the program keeps by itself"))
    elif averages:
        found.append(Difference(WEIGHTS, averages, detail="of a module that is not trained"))
    buffers = unequal(was["buffers"], now["buffers"])
    if buffers:
        found.append(Difference(BUFFERS, buffers))
    return found


def _rounded(names: list[str], was: Facts, now: Facts) -> str:
    halves = {now["rounded"].get(name, "") for name in names}
    if len(halves) == 1 and (half := halves.pop()) and not any(name in was["rounded"] for name in names):
        return f"every number is one of {half}: they were rounded when they were saved"
    return ""


def _told(value: Any) -> str:
    return value if isinstance(value, str) and len(value) < 16 else "" if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def options_of(groups: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each parameter the options that it is updated with."""
    return {member: group["options"] for group in groups.values() for member in group["members"]}


def of_groups(reference: Reference, was: dict[str, Any], now: dict[str, Any]) -> list[Difference]:
    """Of what the optimizers are told for each parameter: the learning rate and what is scheduled with it, and all else."""
    before, after = options_of(was), options_of(now)
    rates: list[tuple[str, str, Any, Any]] = []
    others: list[tuple[str, str, Any, Any]] = []
    for name in before:
        if name not in after:
            continue  # another set of parameters: TRAINED tells it
        for key in before[name].keys() & after[name].keys():
            if before[name][key] != after[name][key]:
                (rates if key == "lr" or key in reference.scheduled else others).append((name, key, before[name][key], after[name][key]))
    rates.sort(key=lambda of: of[1] != "lr")
    found = []
    for kind, of in ((LEARNING_RATE, rates), (OPTIONS, others)):
        if of:
            name, key, one, other = of[0]
            found.append(Difference(kind, [f"{key} of {n}" for n, key, _, _ in of], _told(one), _told(other)))
    return found


def of_feed(reference: Reference, was: Update, now: Update) -> list[Difference]:
    """Of what was fed to the model, and how often."""
    if len(was.losses) != len(now.losses) or (was.losses and len(was.inputs) != len(now.inputs)):
        parts, others = max(len(was.losses), len(was.inputs)), max(len(now.losses), len(now.inputs))
        return [Difference(ACCUMULATION, ["backward calls in the update"], str(parts), str(others))]
    contents = [batch["content"] for batch in was.batches], [batch["content"] for batch in now.batches]
    if was.inputs == now.inputs and (reference.feeds_modules or contents[0] == contents[1]):
        return []
    orders = [batch["order"] for batch in was.batches], [batch["order"] for batch in now.batches]
    # An evaluation before an update draws from its loader too: the newest batches are the update's.
    newest = min(len(orders[0]), len(orders[1]), max(1, len(was.inputs)))
    ours = [(order[-newest:], content[-newest:]) for order, content in zip(orders, contents)] if newest else []
    if ours and ours[0][1] == ours[1][1]:
        return [Difference(RANDOM, ["the model's input"], detail="the loader gave the same batch, and the model was given another input")]
    if ours and None not in ours[0][0] and ours[0][0] == ours[1][0]:
        return [Difference(RANDOM, ["the loader's batch"], detail="the same samples were drawn and looked otherwise: the loader's workers, or the dataset, drew other random numbers")]
    samples = [[i for batch in update.batches[-newest:] for i in batch.get("samples", [])] if newest else [] for update in (was, now)]
    return [Difference(SAMPLES, ["the model's input"], _few(samples[0]), _few(samples[1]))]


def _few(samples: list[Any]) -> str:
    return "" if not samples else "samples " + ", ".join(str(one) for one in samples[:6]) + (f", ... ({len(samples)})" if len(samples) > 6 else "")


def of_result(was: Update, now: Update) -> list[Difference]:
    """Of what came out: only worth looking at where all that went in was equal."""
    if [loss["digest"] for loss in was.losses] != [loss["digest"] for loss in now.losses]:
        one, other = (next((loss["value"] for loss in update.losses if loss["value"] is not None), None) for update in (was, now))
        return [Difference(RANDOM, ["the loss"], _told(one), _told(other), "all that was seen to go into it was equal")]
    if [(clip["kind"], clip["limit"]) for clip in was.clips] != [(clip["kind"], clip["limit"]) for clip in now.clips]:
        one, other = (_told(update.clips[-1]["limit"]) if update.clips else "not clipped" for update in (was, now))
        return [Difference(GRADIENTS, ["the limit of clipping"], one, other)]
    gradients = unequal(was.gradients, now.gradients)
    if gradients:
        return [Difference(GRADIENTS, [f"gradient of {name}" for name in gradients], detail="the loss was equal: what is done to gradients before the update (clipping, scaling, noise) keeps something")]
    return []


def between(reference: Reference, was: Update, now: Update) -> list[Difference]:
    """Everything between two updates, roots first; [] where they are equal."""
    found = of_state(reference, was.start, now.start) if was.start and now.start else []
    found += of_groups(reference, was.groups, now.groups)
    found.sort(key=lambda difference: STATE.index(difference.kind))
    found += of_feed(reference, was, now)
    if was.start and now.start and was.start.get("mode") != now.start.get("mode"):
        found.append(Difference(TRAINED, ["the model's mode"], detail="some modules are in training mode in one run and in evaluation mode in the other"))
    return found or of_result(was, now)
