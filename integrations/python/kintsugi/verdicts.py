"""Steps that are refused before anything changes: `run.reject`, the rules of --veto; and whether the data or a machine is to blame.

Before its gate nobody has begun a step's update: where a rank refuses it, all make it again, from the same state, with the same batches and random
numbers. What is refused twice by the same numbers is the data's fault, and its batches are left out on all ranks, as a loop does it by `continue`. Where
a rank computes otherwise than before and the others do not, its machine is to blame, and a new process takes its place, if one may.

Each rank keeps what it has computed with: its loss, and a sum of what it gave to each collective. All tell each other in REBUILD (run.py) what they found,
and judge by the same rule.

Threads: the trainer's. Errors: Rejected, within a step; Error for rules that nobody can read.
"""

from __future__ import annotations

import math
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ._errors import Error
from .abi import Code

RULES = "KINTSUGI_VETO"
_PLACES = "KINTSUGI_MAX_RESPAWNS"
_USUAL = 64  # losses that the next one is compared with
_FEWEST = 16
_SAMPLES_TOLD = 8

Figures = dict[str, list[int]]  # by what they are of, in the order of the step


class Rejected(BaseException):
    """A step is refused: let it out of the loop. As Interrupted, no Exception that a trainer would swallow."""


@dataclass(frozen=True)
class Veto:
    """Which steps are refused by themselves."""

    nan: bool = False  # a reported loss, or a gradient, is no finite number
    spike: float = 0.0  # a reported loss is so many standard deviations above those of the last 64 steps (16 at least); 0: no such rule
    norm: float = 0.0  # the norm of all gradients is above it; 0: no such rule
    most: int = 10  # steps may be left out, in the whole run

    @staticmethod
    def read(text: str) -> Veto:
        said: dict[str, Any] = {}
        for word in filter(None, (word.strip() for word in text.split(","))):
            name, _, number = word.partition(":")
            if word == "nan":
                said["nan"] = True
            elif name in ("spike", "norm") and (value := _number(number)) > 0:
                said[name] = value
            elif name == "most" and number.isdecimal():
                said["most"] = int(number)
            else:
                raise Error(f"--veto {text}: '{word}' is no rule: nan, spike:DEVIATIONS, norm:LIMIT and most:STEPS are, as in nan,spike:6,norm:1e3",
                            Code.INVALID_ARGUMENT)  # fmt: skip
        return Veto(**said)


def _number(text: str) -> float:
    """0 where it is none, or not finite."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


class Usual:
    """Losses of the newest steps, by which a spike is told. An object of the rank's."""

    def __init__(self) -> None:
        self._losses: list[float] = []

    def state_dict(self) -> list[float]:
        return self._losses

    def load_state_dict(self, state: list[float]) -> None:
        self._losses = list(state)

    def note(self, loss: float) -> None:
        self._losses = [*self._losses[1 - _USUAL :], loss]

    def deviations(self, loss: float) -> float:
        """How many it is above the mean; 0 while too few are known."""
        if (count := len(self._losses)) < _FEWEST:
            return 0.0
        mean = sum(self._losses) / count
        deviation = math.sqrt(sum((known - mean) ** 2 for known in self._losses) / count)
        return (loss - mean) / deviation if deviation > 0 else math.inf if loss > mean else 0.0


class Verdict(NamedTuple):
    says: Literal["again", "data", "machine"]
    refused_by: dict[int, str]  # why, by rank
    to_blame: tuple[int, ...] = ()  # whose machines
    is_exact: bool = True  # computed again, the numbers were the same


def judge(told: Mapping[int, Mapping[str, Any]]) -> Verdict | None:
    """Of one step, by what each rank says of it: "why" it refused it (empty: it did not), how many "times" it knows the step to have been refused
    before, whether its numbers "differ" from those then (None: it has none). None: nobody has refused it."""
    refused_by = {rank: str(facts["why"]) for rank, facts in sorted(told.items()) if facts["why"]}
    if not refused_by:
        return None
    if max(facts["times"] for facts in told.values()) == 0:
        return Verdict("again", refused_by)
    compared = [rank for rank, facts in sorted(told.items()) if facts["differ"] is not None]
    differing = tuple(rank for rank in compared if told[rank]["differ"])
    if differing and len(differing) < len(compared):
        return Verdict("machine", refused_by, differing)
    return Verdict("data", refused_by, is_exact=not differing)


def _bits(loss: float) -> int:
    """One number for each, and one for all that are none."""
    return int.from_bytes(struct.pack("<d", math.nan if math.isnan(loss) else loss), "little")


def differ(before: Figures, now: Figures) -> bool:
    """As far as both attempts came."""
    return any(one != other for name in before.keys() & now.keys() for one, other in zip(before[name], now[name]))


class _Case(NamedTuple):
    """A step that was refused."""

    step: int
    times: int
    figures: Figures | None  # of this rank, the last time


class Verdicts:
    """Of one rank. `sums`: of what this process gave to collectives since it was asked last."""

    def __init__(self, veto: Veto, sums: Callable[[], Figures], may_be_replaced: bool) -> None:
        self.veto = veto
        self.usual = Usual()
        self._sums = sums
        self._may_be_replaced = may_be_replaced
        self._step = 0  # that is made, or was
        self._loss: float | None = None
        self._samples: list[int] = []
        self._why = ""
        self._finds_of_all = False  # in gradients that all ranks have summed up
        self._figures: Figures | None = None  # once it is over
        self._case: _Case | None = None
        self._before: _Case | None = None  # ... as the step in hand began: what is told of it is the same in each attempt at an incident
        self._verdict: Verdict | None = None

    # ---- in a step ----------------------------------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        self._step, self._loss, self._samples, self._why, self._figures = step, None, [], "", None
        self._finds_of_all = False
        self._sums()
        if self._case is not None and self._case.step != step:
            self._case = self._verdict = None
        self._before = self._case

    def note_loss(self, loss: float, samples: Iterable[int]) -> None:
        self._loss, self._samples = loss, list(samples)

    def refuse(self, why: str) -> Rejected:
        self._why = why
        return Rejected(f"step {self._step} is refused: {why}")

    def why_by_rules(self, norm: Callable[[], float | None]) -> str:
        """Before the gate. `norm`: of all gradients; None: they have none."""
        veto, loss = self.veto, self._loss
        if self._why:
            return self._why  # the script caught what run.reject raised
        if veto.spike and loss is None:
            raise Error("--veto spike goes by losses, and the script tells none: run.report(loss), before each update", Code.FAILED_PRECONDITION)
        if veto.nan and loss is not None and not math.isfinite(loss):
            return f"its loss is {loss}{self._of_samples()}"
        if loss is not None and veto.spike and (above := self.usual.deviations(loss)) > veto.spike:
            return f"its loss {loss:.6g} is {above:.1f} standard deviations above the usual{self._of_samples()}"
        value = norm() if veto.nan or veto.norm else None
        if value is None and (veto.norm or (veto.nan and loss is None)):
            raise Error(f"--veto {'norm' if veto.norm else 'nan'} has nothing to go by: this update has no gradients that are known"
                        f"{'' if veto.norm else ', and the script tells no loss: run.report(loss), before each update'}", Code.FAILED_PRECONDITION)  # fmt: skip
        if value is not None and veto.nan and not math.isfinite(value):
            return self._of_all(f"the norm of the gradients is {value}")
        if value is not None and veto.norm and not value <= veto.norm:
            return self._of_all(f"the norm of the gradients is {value:.6g}")
        return ""

    def patience(self, rank: int) -> float:
        """Seconds for which a rank that refuses a step waits for another one to do so: all may find the same, and who has found it in what is its own
        can say more. One failure is told, not one of each."""
        if self._finds_of_all:
            return 0.3 if rank == 0 else 1.0
        return 0.0 if rank == 0 else 0.05

    def _of_all(self, why: str) -> str:
        self._finds_of_all = True
        return why

    def pass_gate(self) -> None:
        """The step is good. Where its first attempt was not, and this rank computed otherwise then, its machine is to blame."""
        if self.veto.spike and self._loss is not None:
            self.usual.note(self._loss)
        if self._before is not None and self._before.figures is not None:
            self.close()
            if differ(self._before.figures, self._figures or {}):
                self._give_way("the second time it is good")

    def close(self) -> None:
        """It is over, or broken: nothing more belongs to it."""
        if self._figures is None:
            self._figures = {**self._sums(), "loss": [] if self._loss is None else [_bits(self._loss)]}

    # ---- at an incident -----------------------------------------------------------------------------------------------

    def facts(self, step: int) -> dict[str, Any]:
        """Of the step behind `step`, for the others."""
        case = self._before if self._before is not None and self._before.step == step + 1 else None
        told: dict[str, Any] = {"why": "", "times": case.times if case else 0, "differ": None}
        if self.leaves_out(step + 1) and self._verdict is not None:
            told["left out"] = self._verdict.refused_by
        if self._step != step + 1:
            return told
        self.close()
        before = case.figures if case else None
        return {**told, "why": self._why, "differ": None if before is None else differ(before, self._figures or {})}

    def learn(self, step: int, told: Mapping[int, Mapping[str, Any]]) -> str:
        """For the incident's record."""
        times = max(facts["times"] for facts in told.values())
        verdict = judge(told)
        if verdict is None:  # another fault: what has been agreed on stays, also for who has come since
            for facts in told.values():
                if refused_by := facts.get("left out"):
                    self._verdict = Verdict("data", {int(rank): why for rank, why in refused_by.items()})
                    self._case = _Case(step + 1, times, None)
            return ""
        self._verdict = verdict
        own = self._figures if self._step == step + 1 else None
        self._case = _Case(step + 1, times + 1, own or (self._before.figures if self._before else None))
        who = "; ".join(f"rank {rank}: {why}" for rank, why in self._verdict.refused_by.items())
        then = {
            "again": "it is computed again",
            "data": f"computed again {'by the same numbers' if self._verdict.is_exact else 'by other numbers on all ranks, as programs do that are not deterministic'}: "
                    "the data is to blame, and its batches are left out",
            "machine": f"of all, rank {', '.join(map(str, self._verdict.to_blame))} alone computed otherwise than before: its machine is to blame",
        }[self._verdict.says]  # fmt: skip
        return f"step {step + 1} is refused ({who}): {then}"

    def leaves_out(self, step: int) -> bool:
        """What all have agreed on."""
        return self._case is not None and self._case.step == step and self._verdict is not None and self._verdict.says == "data"

    def why_left_out(self) -> str:
        return "; ".join(f"rank {rank}: {why}" for rank, why in self._verdict.refused_by.items()) if self._verdict else ""

    def leave_if_guilty(self, rank: int) -> None:
        if self._verdict is not None and self._verdict.says == "machine" and rank in self._verdict.to_blame:
            self._give_way("the others computed as before")

    def _give_way(self, why: str) -> None:
        place = "a new process takes its place" if self._may_be_replaced else "no other process may take its place (--max-respawns), and it goes on"
        print(f"kintsugi: step {self._step}: this rank computed otherwise than the first time, when the step was refused, and {why}: its machine "
              f"({os.uname().nodename}) is to blame: {place}", file=sys.stderr, flush=True)  # fmt: skip
        self._verdict = None
        if self._may_be_replaced:
            sys.stdout.flush()
            os.kill(os.getpid(), 9)

    def _of_samples(self) -> str:
        if not self._samples:
            return ""
        more = f" and {len(self._samples) - _SAMPLES_TOLD} more" if len(self._samples) > _SAMPLES_TOLD else ""
        return f" (samples {', '.join(map(str, self._samples[:_SAMPLES_TOLD]))}{more})"


def of_environment(said: str | None) -> Veto:
    """`said`: by the script, join(veto=...). Taken out of the environment: the agent refuses what nobody goes by."""
    told = os.environ.pop(RULES, "")
    return Veto.read(told if said is None else said)


def may_be_replaced(incarnation: int) -> bool:
    """Whether another process may come in this one's place. Known where `kintsugi run` says how many may."""
    return incarnation <= int(os.environ.get(_PLACES, "0"))
