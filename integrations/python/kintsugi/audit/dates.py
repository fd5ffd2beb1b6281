"""Of which step is what a resumed process has? Each kind of state is looked for in the undisturbed run. Pure.

A checkpoint that was put together from several moments, or in part not loaded, shows by its parts having different dates.
"""

from __future__ import annotations

from typing import Any

from .records import Facts, File, Rank, Update

# How much a kind tells of where the run stands. Weights and moments change with every update; the others are often the thing that is wrong.
VOTES = {"weights": 3.0, "moments": 3.0, "schedule": 2.0, "averages": 1.0, "buffers": 1.0, "random": 1.0}
VOTE_OF_FILE, VOTE_OF_SAMPLES = 3.0, 2.0
LOOKED_AT = 8  # updates whose inputs are compared to find where the samples go on


def dates_of(rank: Rank, kind: str, facts: dict[str, Any]) -> list[int]:
    """After how many updates the undisturbed run had these very facts."""
    return [i for i in range(len(rank.updates) + 1)
            if (state := rank.state_before(i)) and all(state.get(kind, {}).get(name) == value for name, value in facts.items())]  # fmt: skip


def fed(update: Update) -> list[Any]:
    return update.inputs or [batch["content"] for batch in update.batches]


def shift_of_samples(was: list[Update], now: list[Update], resumed_at: int) -> int | None:
    """By how many updates the inputs of a resumed process are ahead of (or behind) those that are due: 0, the least that fits, or None."""
    count = min(LOOKED_AT, len(now))
    if count == 0 or not any(fed(update) for update in now[:count]):
        return None
    for shift in sorted(range(-resumed_at, len(was) - resumed_at), key=abs):
        there = was[resumed_at + shift :][:count]
        if there and all(fed(a) == fed(b) for a, b in zip(there, now)):
            return shift
    return None


def resumed_at(undisturbed: Rank, saves: list[File], resumed: Rank) -> int | None:
    """After how many updates the resumed process goes on: what most kinds of its state say, and the checkpoint that it read. `saves`: what all
    ranks of the stopped run wrote. None where nothing tells."""
    votes: dict[int, float] = {}

    def vote(dates: list[int], weight: float) -> None:
        for date in dates:
            votes[date] = votes.get(date, 0.0) + weight / len(dates)

    start: Facts = resumed.updates[0].start or {}
    for kind, weight in VOTES.items():
        if start.get(kind):
            vote(dates_of(undisturbed, kind, start[kind]), weight)
    vote([i for i in range(len(undisturbed.updates)) if fed(undisturbed.updates[i]) and fed(undisturbed.updates[i]) == fed(resumed.updates[0])], VOTE_OF_SAMPLES)
    if (saved := saved_at(saves, resumed)) is not None:
        vote([saved], VOTE_OF_FILE)
    return max(votes, key=lambda date: (votes[date], date)) if votes else None


def saved_at(saves: list[File], resumed: Rank) -> int | None:
    """After how many updates the checkpoint was written that the resumed process read last, before its first update."""
    read = [file for file in resumed.loads if file.after == 0]
    for file in reversed(read):
        same = [save for save in saves if file.id and save.id == file.id] or [save for save in saves if file.path and save.path == file.path]
        if same:
            return same[-1].after
    return None
