"""What a script needed to be protected: lines that were added, changed, left out and moved, whatever their indentation."""

from __future__ import annotations

import difflib
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Needed(NamedTuple):
    added: int  # with those that are changed
    left_out: int  # beyond those that are changed
    moved: list[str]


def needed(plain: Path, protected: Path) -> Needed:
    before, after = (_lines(path) for path in (plain, protected))
    added, left_out = 0, 0
    come: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for what, first, last, begin, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what != "equal":
            added += end - begin
            left_out += max(0, (last - first) - (end - begin))
            gone.update(before[first:last])
            come.update(after[begin:end])
    return Needed(added, left_out, sorted((gone & come).elements()))


def _lines(path: Path) -> list[str]:
    return [line for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()) if line]
