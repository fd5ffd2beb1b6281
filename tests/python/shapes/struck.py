"""Runs a protected script and strikes where `kintsugi run --inject` has no word: in a section, in a loader. And ends a run by a signal.

  struck.py SCRIPT FOLDER WHAT...     WHAT: HOW-WHERE:RANK@N, once in a run: HOW is kill or throw, at the N-th (from 1) WHERE of that rank:
      section (before its function), told (behind it, when all its collectives are made), loader (when it has given the N-th batch).
      stop-step:RANK@N sends the launcher SIGTERM in step N, before its update
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kintsugi.torch
from kintsugi.torch.loaders import Batches


class Strikes:
    def __init__(self, folder: Path, ordered: list[str]) -> None:
        self._folder = folder
        self._ordered = ordered
        self._counted: dict[str, int] = {}

    def at(self, where: str, number: int | None = None) -> None:
        """Of this process the next `where`, or the one of this number."""
        count = self._counted[where] = self._counted.get(where, 0) + 1
        for word in self._ordered:
            how, place = word.split("-", 1)
            mark = self._folder / f"struck-{word}"
            if place != f"{where}:{os.environ['RANK']}@{number or count}" or mark.exists():
                continue
            mark.touch()
            if how == "throw":
                raise RuntimeError(f"struck: {word}")
            os.kill(int(os.environ["LAUNCHER"]) if how == "stop" else os.getpid(), signal.SIGTERM if how == "stop" else signal.SIGKILL)


def main() -> None:
    script, folder, ordered = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    strikes = Strikes(folder, ordered)
    do, fetch, report = kintsugi.torch.TorchRun.do, Batches.next, kintsugi.torch.TorchRun.report

    # Wrapped, so that what is read of a step and of sections is the script's own.
    @functools.wraps(do)
    def struck_do(run: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        @functools.wraps(function)
        def struck(*args: Any, **kwargs: Any) -> Any:
            strikes.at("section")
            result = function(*args, **kwargs)
            strikes.at("told")
            return result

        return do(run, struck, *args, **kwargs)

    @functools.wraps(fetch)
    def struck_next(batches: Batches) -> Any:
        batch = fetch(batches)
        strikes.at("loader")
        return batch

    @functools.wraps(report)
    def struck_report(run: Any, *args: Any, **kwargs: Any) -> None:
        report(run, *args, **kwargs)
        strikes.at("step", run.at)

    kintsugi.torch.TorchRun.do = struck_do  # type: ignore[method-assign]
    kintsugi.torch.TorchRun.report = struck_report  # type: ignore[method-assign]
    Batches.next = struck_next  # type: ignore[method-assign]
    sys.argv[:] = [script, str(folder)]
    sys.path[0] = str(Path(script).parent)
    module = sys.modules["__main__"] = types.ModuleType("__main__")  # until the process ends, as if it were alone
    module.__dict__["__file__"] = script
    exec(compile(Path(script).read_text(encoding="utf-8"), script, "exec"), module.__dict__)


main()
