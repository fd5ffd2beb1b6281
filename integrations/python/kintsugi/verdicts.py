"""Steps that are refused before anything changes. The rules of --veto are the library's (_core.StepRules), which programs of C and C++ go by too. What follows
is the agent's (kintsugi_reject): all make the step again, and what comes out tells whether the data or a machine is to blame.

Threads: the trainer's. Errors: Rejected, within a step; Error for rules that nobody can read.
"""

from __future__ import annotations

import math
import os
import struct

from . import _core

RULES = "KINTSUGI_VETO"
MOST = 10  # steps may be left out in a run, where the rules do not say it

Sums = dict[str, list[int]]  # of what this process gave to collectives, by their group, in their order


class Rejected(BaseException):
    """A step is refused: let it out of the loop. As Interrupted, no Exception that a trainer would swallow."""


class Losses:
    """Of the newest good steps, by which a spike is told, as an object of the rank's."""

    def __init__(self, rules: _core.StepRules) -> None:
        self._rules = rules

    def state_dict(self) -> list[float]:
        return self._rules.losses

    def load_state_dict(self, state: list[float]) -> None:
        self._rules.losses = list(state)


def bits_of(loss: float) -> int:
    """A number for each, and one for all that are none."""
    return int(struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(loss) else loss))[0])


def rules_of(said: str | None) -> _core.StepRules:
    """`said`: by the script, join(veto=...). Taken out of the environment: the agent goes by what stands there by itself."""
    told = os.environ.pop(RULES, "")
    return _core.StepRules(told if said is None else said)
