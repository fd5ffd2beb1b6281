"""Steps that are refused before anything changes: the rules of --veto. What follows is the agent's (kintsugi_reject): all make the step again, and what comes
out tells whether the data or a machine is to blame.

Threads: the trainer's. Errors: Rejected, within a step; Error for rules that nobody can read.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ._errors import Error
from .abi import Code

RULES = "KINTSUGI_VETO"
_USUAL = 64  # losses that the next one is compared with
_FEWEST = 16
_SAMPLES_TOLD = 8

Sums = dict[str, list[int]]  # of what this process gave to collectives, by their group, in their order


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


def bits_of(loss: float) -> int:
    """A number for each, and one for all that are none."""
    return int(struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(loss) else loss))[0])


class Rules:
    """Of one rank: what of a step they go by."""

    def __init__(self, veto: Veto) -> None:
        self.veto = veto
        self.usual = Usual()
        self.begin()

    def begin(self) -> None:
        self._loss: float | None = None
        self._samples: list[int] = []

    def note_loss(self, loss: float, samples: Iterable[int]) -> None:
        self._loss, self._samples = loss, list(samples)

    def why(self, norm: Callable[[], float | None]) -> tuple[str, bool]:
        """Before the gate: why the step is refused, and whether in gradients that all ranks have summed up. "": it is not. `norm`: of all gradients; None:
        they have none."""
        veto, loss = self.veto, self._loss
        if veto.spike and loss is None:
            raise Error("--veto spike goes by losses, and the script tells none: run.report(loss), before each update", Code.FAILED_PRECONDITION)
        if veto.nan and loss is not None and not math.isfinite(loss):
            return f"its loss is {loss}{self._of_samples()}", False
        if loss is not None and veto.spike and (above := self.usual.deviations(loss)) > veto.spike:
            return f"its loss {loss:.6g} is {above:.1f} standard deviations above the usual{self._of_samples()}", False
        value = norm() if veto.nan or veto.norm else None
        if value is None and (veto.norm or (veto.nan and loss is None)):
            raise Error(f"--veto {'norm' if veto.norm else 'nan'} has nothing to go by: this update has no gradients that are known"
                        f"{'' if veto.norm else ', and the script tells no loss: run.report(loss), before each update'}", Code.FAILED_PRECONDITION)  # fmt: skip
        if value is not None and veto.nan and not math.isfinite(value):
            return f"the norm of the gradients is {value}", True
        if value is not None and veto.norm and not value <= veto.norm:
            return f"the norm of the gradients is {value:.6g}", True
        return "", False

    def pass_gate(self) -> None:
        """The step is good."""
        if self.veto.spike and self._loss is not None:
            self.usual.note(self._loss)

    def _of_samples(self) -> str:
        if not self._samples:
            return ""
        more = f" and {len(self._samples) - _SAMPLES_TOLD} more" if len(self._samples) > _SAMPLES_TOLD else ""
        return f" (samples {', '.join(map(str, self._samples[:_SAMPLES_TOLD]))}{more})"


def of_environment(said: str | None) -> Veto:
    """`said`: by the script, join(veto=...). Taken out of the environment: the agent refuses what nobody goes by."""
    told = os.environ.pop(RULES, "")
    return Veto.read(told if said is None else said)
