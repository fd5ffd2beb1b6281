"""What the processes of one start of a program wrote, read: one Rank for each that trained.

Errors: NotRecorded, whose text says what is wrong and what to do, where there is nothing to compare.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class NotRecorded(Exception):
    """A start of the program left nothing that could be compared."""


Facts = dict[str, dict[str, Any]]  # kind -> name -> what stands for the bits


@dataclass
class Update:
    """One `optimizer.step()`. `start`: the state before its first forward, None where there was no forward since the update before."""

    number: int
    optimizer: int
    step: int
    inputs: list[str]
    batches: list[dict[str, Any]]
    losses: list[dict[str, Any]]
    clips: list[dict[str, Any]]
    gradients: dict[str, str | None]
    groups: dict[str, Any]
    start: Facts | None


@dataclass
class File:
    """A checkpoint that was written or read, after how many updates of this process."""

    path: str
    id: str
    after: int


@dataclass
class Rank:
    rank: int
    size: int
    torch: str
    updates: list[Update] = field(default_factory=list)
    saves: list[File] = field(default_factory=list)
    loads: list[File] = field(default_factory=list)
    end: Facts | None = None

    def steps(self, updates: int) -> int:
        """How many steps so many updates are, as a user counts them: those of the optimizer that stepped first."""
        return sum(update.optimizer == 0 for update in self.updates[:updates])

    def state_before(self, index: int) -> Facts | None:
        """The state before the update at this place of `updates`, behind the last: at the process's end."""
        return self.updates[index].start if index < len(self.updates) else self.end


def read_ranks(folder: Path, what: str) -> list[Rank]:
    """By rank. `what` names the start in errors: "the undisturbed run"."""
    ranks: dict[int, Rank] = {}
    torch_seen, errors = False, []
    files = sorted(folder.glob("*.jsonl"))
    for file in files:
        rank, lines = _read(file)
        torch_seen = torch_seen or any(line["t"] == "torch" for line in lines)
        errors += [line["what"] for line in lines if line["t"] == "error"]
        if rank is None:
            continue
        if rank.rank in ranks:
            raise NotRecorded(f"{what}: two processes trained as rank {rank.rank}, so they cannot be told apart: start them with RANK set, "
                              "or audit one of them, and let nothing restart ranks")  # fmt: skip
        ranks[rank.rank] = rank
    if errors:
        raise NotRecorded(f"{what}: the recorder failed, please report it:\n{errors[0]}")
    if not files:
        raise NotRecorded(f"{what}: no Python process of the program loaded the hook: start it by a Python that reads PYTHONPATH (without -I and -E)")
    if not torch_seen:
        raise NotRecorded(f"{what}: no process imported torch: the audit looks at torch's optimizers. Is it the right interpreter?")
    if not ranks:
        raise NotRecorded(f"{what}: torch was imported and no optimizer made a step: let it train for some steps")
    return [ranks[rank] for rank in sorted(ranks)]


def touched(folder: Path) -> tuple[set[str], set[str]]:
    """The checkpoints that any process of a start wrote, and those that it read, trained or not."""
    lines = [line for file in folder.glob("*.jsonl") for line in _lines(file)]
    return {line["path"] for line in lines if line["t"] == "save"}, {line["path"] for line in lines if line["t"] == "load"}


def _lines(file: Path) -> list[dict[str, Any]]:
    """Without one that the process was killed in."""
    whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def _read(file: Path) -> tuple[Rank | None, list[dict[str, Any]]]:
    lines = _lines(file)
    rank: Rank | None = None
    torch = ""
    last: dict[str, Any] = {}
    waiting: list[tuple[str, File]] = []  # what was read and written before the first update

    def whole(kinds: dict[str, Any] | None) -> Facts | None:
        return None if kinds is None else {kind: _filled(last, kind, facts) for kind, facts in kinds.items()}

    for line in lines:
        kind = line["t"]
        if kind == "torch":
            torch = line["version"]
        elif kind == "rank":
            rank = Rank(line["rank"], line["size"], torch)
            for what, of in waiting:
                (rank.saves if what == "save" else rank.loads).append(of)
        elif kind in ("save", "load"):
            of = File(line["path"], line["id"], line["after"])
            if rank is None:
                waiting.append((kind, of))
            else:
                (rank.saves if kind == "save" else rank.loads).append(of)
        elif kind == "update" and rank is not None:
            start = whole(line["start"])
            rank.updates.append(
                Update(line["number"], line["optimizer"], line["step"], line["inputs"], line["batches"], line["losses"], line["clips"],
                       line["gradients"], _filled(last, "groups", line["groups"]), start))  # fmt: skip
        elif kind == "end" and rank is not None:
            rank.end = whole(line["start"])
    return rank, lines


def _filled(last: dict[str, Any], kind: str, facts: Any) -> Any:
    if facts != "same":
        last[kind] = facts
    return last[kind]
