"""The runs, compared: is the program deterministic, and does it go on after a stop as it would have gone on without one? Pure.

First the program against itself: up to the stop both runs did the same, or the program is not deterministic and a resume cannot be told from its noise.
Then the resumed process, update by update from where its state says it stands. The first update that differs has the causes in it: what comes after follows
from them, but for what does not depend on weights (the learning rate, the order of samples, how many updates there are).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import dates
from . import differences as d
from .records import File, NotRecorded, Rank


@dataclass
class Finding:
    """One cause. `step`: the number of the step, counted from the start of training; `dated`: after how many steps the undisturbed run had what the
    resumed one has."""

    cause: str
    step: int
    ranks: list[int]
    names: list[str]
    was: str
    now: str
    detail: str
    dated: int | None = None


@dataclass
class Verdict:
    """Numbers are of steps of the first optimizer. `nondeterminism`: where two undisturbed runs of the program part, None where they do not.
    `findings`: causes, the first of them first."""

    steps: int
    ranks: int
    torch: str
    compared: int = 0  # steps that two runs were compared in for determinism
    nondeterminism: Finding | None = None
    stopped_after: int | None = None
    resumed_at: int | None = None
    resumed_steps: int | None = None
    checkpoint: str = ""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return self.nondeterminism is None and not self.findings


# Where several things differ in one update, the one that a reader looks at first: what was lost before what followed from it.
FIRST = (d.ACCUMULATION, d.TRAINED, d.WEIGHTS, d.OPTIONS, d.MOMENTS, d.LEARNING_RATE, d.SCALE, d.AVERAGES, d.BUFFERS, d.STEPS, d.SAMPLES, d.RANDOM, d.GRADIENTS)


def same_program(first: list[Rank], second: list[Rank], verdict: Verdict) -> None:
    """Compares two undisturbed runs, or one with what another did before it was stopped."""
    if len(first) != len(second):
        raise NotRecorded(f"{len(first)} ranks trained in one run and {len(second)} in another: the same command must start as many")
    found = []
    for one, other in zip(first, second):
        reference = d.Reference(one)
        both = min(len(one.updates), len(other.updates))
        verdict.compared = max(verdict.compared, one.steps(both))
        for i in range(both):
            differing = d.between(reference, one.updates[i], other.updates[i])
            if differing:
                found.append((i, one.rank, differing[0]))
                break
    if found:
        at = min(i for i, _, _ in found)
        first_of = next(of for i, _, of in found if i == at)
        verdict.nondeterminism = Finding(first_of.kind, max(1, first[0].steps(at + 1)), [rank for i, rank, _ in found if i == at], first_of.names, first_of.was, first_of.now, first_of.detail)


def whole_runs(first: list[Rank], second: list[Rank], verdict: Verdict) -> None:
    """Of two runs that both ended: as many updates, and the same state at the end."""
    for one, other in zip(first, second):
        if len(one.updates) != len(other.updates) and verdict.nondeterminism is None:
            counts = one.steps(len(one.updates)), other.steps(len(other.updates))
            verdict.nondeterminism = Finding(d.STEPS, min(counts) + 1, [one.rank], ["the number of steps"], str(counts[0]), str(counts[1]), "")
        elif verdict.nondeterminism is None and one.end and other.end and (at_end := d.of_state(d.Reference(one), one.end, other.end)):
            verdict.nondeterminism = Finding(at_end[0].kind, one.steps(len(one.updates)) + 1, [one.rank], at_end[0].names, at_end[0].was, at_end[0].now, "at the end")


def resumed(undisturbed: list[Rank], stopped: list[Rank], again: list[Rank], verdict: Verdict) -> None:
    """Compares the process that was resumed with the run that was never stopped."""
    if len(undisturbed) != len(again):
        raise NotRecorded(f"{len(undisturbed)} ranks trained before the stop and {len(again)} after it: resume with as many, another number changes every sum")
    saves = [save for rank in stopped for save in rank.saves]
    per_rank = [_Resume(one, saves, other) for one, other in zip(undisturbed, again)]
    first = per_rank[0]
    verdict.resumed_at, verdict.resumed_steps = undisturbed[0].steps(first.at), again[0].steps(len(again[0].updates))
    read = [file for file in again[0].loads if file.after == 0 and file.path]
    verdict.checkpoint = read[-1].path if read else ""
    if first.at == 0 and first.saved is None:
        if not saves:
            raise NotRecorded("the resumed run began anew: the stopped one had written no checkpoint that was seen (torch.save, DCP, safetensors); stop it later")
        verdict.findings = [Finding(d.STEPS, 1, [rank.rank for rank in again], ["the whole state"], "", "", f"it began anew and left {saves[-1].path} unread", 0)]
        return
    found = [finding for resume in per_rank for finding in resume.findings()]
    verdict.findings = _merged(found)
    verdict.notes += sorted({note for resume in per_rank for note in resume.notes})


def _merged(found: list[Finding]) -> list[Finding]:
    """One for each cause: the earliest, with all ranks that have it there. Gradients are summed over ranks: where another cause shows in a step, they
    follow from it."""
    first = min((finding.step for finding in found if finding.cause != d.GRADIENTS), default=None)
    found = [finding for finding in found if finding.cause != d.GRADIENTS or first is None or finding.step < first]
    causes: dict[str, Finding] = {}
    for finding in found:
        known = causes.get(finding.cause)
        if known is None or finding.step < known.step:
            causes[finding.cause] = finding
        elif finding.step == known.step and finding.ranks[0] not in known.ranks:
            known.ranks += finding.ranks
    return sorted(causes.values(), key=lambda finding: (finding.step, FIRST.index(finding.cause)))


class _Resume:
    """One rank's two lives."""

    def __init__(self, undisturbed: Rank, saves: list[File], again: Rank) -> None:
        self.was, self.now = undisturbed, again
        self.reference = d.Reference(undisturbed)
        at = dates.resumed_at(undisturbed, saves, again)
        if at is None:
            raise NotRecorded(f"nothing tells where the resumed run goes on: rank {again.rank} read no checkpoint that the stopped run wrote, and nothing "
                              "of its state is the state of a step before")  # fmt: skip
        self.at = at
        self.saved = dates.saved_at(saves, again)
        self.shift = dates.shift_of_samples(undisturbed.updates, again.updates, at)
        self.notes: list[str] = []

    def findings(self) -> list[Finding]:
        first = self._first()
        found = [self._finding(first[0], difference) for difference in first[1]] if first else []
        if first:
            found += self._later(first[0], {finding.cause for finding in found})
        self._count(found)
        self._random(first, found)
        self._schedule(found)
        return found

    def _first(self) -> tuple[int, list[d.Difference]] | None:
        """The first update that differs, counted from the resume, and what differs in it."""
        for j, update in enumerate(self.now.updates):
            if self.at + j >= len(self.was.updates):
                return None
            differing = d.between(self.reference, self.was.updates[self.at + j], update)
            if differing:
                return j, differing
        if self.at + len(self.now.updates) == len(self.was.updates) and self.was.end and self.now.end:
            if at_end := d.of_state(self.reference, self.was.end, self.now.end):
                return len(self.now.updates), at_end
        return None

    def _later(self, j: int, known: set[str]) -> list[Finding]:
        """What parts later and by itself: options of the optimizers, and the samples that samplers choose."""
        found = []
        for k in range(j + 1, min(len(self.now.updates), len(self.was.updates) - self.at)):
            was, now = self.was.updates[self.at + k], self.now.updates[k]
            differing = d.of_groups(self.reference, was.groups, now.groups)
            orders = [[batch["order"] for batch in update.batches[-1:]] for update in (was, now)]
            if None not in orders[0] and orders[0] and orders[0] != orders[1]:
                differing += d.of_feed(self.reference, was, now)
            for difference in differing:
                if difference.kind not in known:
                    known.add(difference.kind)
                    found.append(self._finding(k, difference))
        return found

    def _finding(self, j: int, difference: d.Difference) -> Finding:
        finding = Finding(difference.kind, self._number(self.at + j), [self.was.rank], difference.names, difference.was, difference.now, difference.detail)
        if j == 0:
            date = self._date(difference)
            finding.dated = None if date is None else self.was.steps(date)
        if difference.kind == d.SAMPLES and self.shift:
            there, here = self._number(self.at + self.shift), self._number(self.at)
            finding.detail = f"it goes on with the samples of step {there}, not of step {here}: those of {_steps(there, here)} {'come twice' if self.shift < 0 else 'never come'}"
        return finding

    def _number(self, index: int) -> int:
        """The number of the step that the undisturbed run's update at this place belongs to."""
        return max(1, self.was.steps(index + 1)) if index < len(self.was.updates) else self.was.steps(index) + 1 + index - len(self.was.updates)

    def _date(self, difference: d.Difference) -> int | None:
        kind = {d.WEIGHTS: "weights", d.MOMENTS: "moments", d.SCALE: "scale", d.BUFFERS: "buffers", d.AVERAGES: "averages"}.get(difference.kind)
        start = self.now.updates[0].start if self.now.updates else None
        if difference.kind == d.LEARNING_RATE:
            return self._date_of_rate()
        if kind is None or start is None:
            return None
        facts = {name: start[kind][name] for name in difference.names if name in start.get(kind, {})}
        if kind == "averages" and not facts:
            return self._date_of_kept(difference.names)
        return self._nearest(dates.dates_of(self.was, kind, facts) if facts else [])

    def _nearest(self, found: list[int]) -> int | None:
        """The start of training where it is one of them: what was lost is as it was there."""
        return None if not found else 0 if 0 in found else min(found, key=lambda date: abs(date - self.at))

    def _date_of_kept(self, names: list[str]) -> int | None:
        """Of averages that the program keeps in a container of its own."""
        start = self.now.updates[0].start or {}
        for date in sorted(range(len(self.was.updates) + 1), key=lambda one: abs(one - self.at)):
            state = self.was.state_before(date)
            if state and all(name in state.get("kept", {}) and set(state["kept"][name]) <= set(start.get("kept", {}).get(name, [])) for name in names):
                return date
        return None

    def _date_of_rate(self) -> int | None:
        now = {name: of.get("lr") for name, of in d.options_of(self.now.updates[0].groups).items()}
        found = [i for i, update in enumerate(self.was.updates) if {name: of.get("lr") for name, of in d.options_of(update.groups).items()} == now]
        return self._nearest(found)

    def _count(self, found: list[Finding]) -> None:
        """Did it make as many updates as it should have? Where the samples are shifted by just as many, that is the cause and not their order."""
        total, made = len(self.was.updates), self.at + len(self.now.updates)
        if total == made:
            return
        shifted = self.shift is not None and self.shift == total - made
        samples = [finding for finding in found if finding.cause == d.SAMPLES]
        counts = self.was.steps(total), self.was.steps(self.at) + self.now.steps(len(self.now.updates))
        detail = f"{abs(counts[1] - counts[0])} {'more' if made > total else 'fewer'} than the run that was never stopped"
        if shifted and self.shift:
            detail += f": {_steps(self._number(self.at + self.shift), self._number(self.at))} {'made twice' if self.shift < 0 else 'left out'}"
            for finding in samples:
                found.remove(finding)
        found.append(Finding(d.STEPS, self._number(self.at if shifted else min(total, made)), [self.was.rank], ["the number of steps"], str(counts[0]), str(counts[1]), detail))

    def _random(self, first: tuple[int, list[d.Difference]] | None, found: list[Finding]) -> None:
        """Names the sources of random numbers that a difference came from; those that made none are told apart from findings."""
        was, start = self.was.state_before(self.at), self.now.updates[0].start
        after = self.was.state_before(self.at + 1)
        if not was or not start:
            return
        other = [source for source in was["random"] if source in start["random"] and was["random"][source] != start["random"][source]]
        missing = [source for source in was["random"] if source not in start["random"] and source.startswith("generator")]
        drawn = [source for source in other + missing if after and after["random"].get(source) != was["random"][source]]
        told = ", ".join(_source(source) for source in drawn)
        for finding in found:
            if finding.cause in (d.RANDOM, d.SAMPLES, d.GRADIENTS) and told and first and first[0] == 0:
                finding.detail += ("; " if finding.detail else "") + f"the random numbers of {told} are not those of step {self._number(self.at)}"
        if other and not any(finding.cause in (d.RANDOM, d.SAMPLES) for finding in found):
            self.notes.append(f"The random numbers of {', '.join(_source(one) for one in other)} are not those of the undisturbed run; nothing that was compared came from them.")

    def _schedule(self, found: list[Finding]) -> None:
        was, start = self.was.state_before(self.at), self.now.updates[0].start
        if not was or not start:
            return
        other = [name for name in was["schedule"] if name in start["schedule"] and was["schedule"][name] != start["schedule"][name]]
        if not other:
            return
        told = f"{other[0]}: {was['schedule'][other[0]]} in the undisturbed run, {start['schedule'][other[0]]} after the resume"
        rates = [finding for finding in found if finding.cause == d.LEARNING_RATE]
        if rates:
            rates[0].detail += ("; " if rates[0].detail else "") + told
        else:
            self.notes.append(f"A schedule stands elsewhere, though no learning rate that was compared differs: {told}.")


def _steps(one: int, other: int) -> str:
    """From the lower one to the one before the higher."""
    first, last = min(one, other), max(one, other) - 1
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _source(name: str) -> str:
    return {"python": "Python's random", "numpy": "numpy.random", "torch": "torch"}.get(name, f"torch on {name}" if name.startswith("cuda") else f"a torch.Generator of its own ({name.split()[-1]})")
