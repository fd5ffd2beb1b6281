"""`kintsugi audit`, once its words have been understood (tools/cli/audit.cc): starts the runs, compares them, tells what came of it.

Exit codes: 0 exact (or deterministic), 1 not, 2 wrong usage, 3 nothing could be compared.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import compare, folders, page, tell
from .records import NotRecorded, Rank, read_ranks, touched
from .start import Start

MARK = "made-by-kintsugi-audit"
EXACT, DIFFERS, USAGE, NOT_RECORDED = 0, 1, 2, 3


class Usage(Exception):
    """What was asked for cannot be, as the undisturbed run shows."""


@dataclass
class Options:
    program: list[str]
    resume: list[str]
    stop_at: int | None
    number: int
    runs: int
    report: Path
    json: str
    quiet: bool
    in_place: bool
    seed: int | None
    limit_seconds: float
    head: str
    masthead: str

    @staticmethod
    def read(given: dict[str, Any]) -> "Options":
        resume = shlex.split(given["resume"])
        if resume and resume[0].endswith(".py") and not os.access(resume[0], os.X_OK):  # as the command does with the program
            resume = [sys.executable, "-u", *resume]
        return Options(given["program"], resume, given["stop_at"], getattr(signal, f"SIG{given['signal']}"), given["runs"], Path(given["report"]),
                       given["json"], given["quiet"], given["in_place"], given["seed"], given["limit"], given["head"], given["masthead"])  # fmt: skip


class Audit:
    def __init__(self, options: Options, start: type[Start] = Start) -> None:
        self._options, self._kind = options, start
        self._root = options.report.resolve()
        self._runs = self._root / "audit-runs"

    def run(self) -> compare.Verdict:
        if self._runs.exists():
            if not (self._runs / MARK).exists():
                raise Usage(f"'{self._runs}' was not made by an audit and is left alone: name another --report")
            shutil.rmtree(self._runs)
        self._runs.mkdir(parents=True)
        (self._runs / MARK).touch()
        undisturbed = self._undisturbed("undisturbed")
        verdict = compare.Verdict(undisturbed[0].steps(len(undisturbed[0].updates)), len(undisturbed), undisturbed[0].torch)
        for i in range(2, self._options.runs + 1):
            again = self._undisturbed(f"undisturbed-{i}")
            compare.same_program(undisturbed, again, verdict)
            compare.whole_runs(undisturbed, again, verdict)
        if self._options.resume and verdict.nondeterminism is None:
            self._resume(undisturbed, verdict)
        return verdict

    def _start(self, name: str, command: list[str], of: str, seed: int | None) -> Start:
        """`of`: the run that it belongs to, whose folder it works in."""
        work = Path.cwd() if self._options.in_place else self._runs / of / "work"
        if not work.exists():
            folders.mirror(Path.cwd(), work, self._root)
        folder = self._runs / of / name
        folder.mkdir(parents=True)
        self._tell(f"{name} run: {shlex.join(command)}")
        first, *rest = command
        if first.startswith("../"):  # not in the copy of this folder
            first = os.path.abspath(first)
        return self._kind(f"the {name} run", [word.replace("{run}", of) for word in [first, *rest]], work, folder, seed, self._options.limit_seconds)

    def _undisturbed(self, name: str) -> list[Rank]:
        start = self._start(name, self._options.program, name, self._options.seed)
        code = start.run()
        if code != 0:
            raise NotRecorded(f"{start.name} ended with exit code {code}; it printed\n{start.last_words()}")
        return read_ranks(start.records, start.name)

    def _resume(self, undisturbed: list[Rank], verdict: compare.Verdict) -> None:
        options, step = self._options, self._step(undisturbed[0])
        stopped = self._start("stopped", options.program, "stopped", options.seed)
        was_stopped = stopped.run_until(step, options.number)
        self._refuse_foreign(stopped)
        if not was_stopped:
            raise NotRecorded(f"{stopped.name} ended before step {step}, which the undisturbed one reached; it printed\n{stopped.last_words()}")
        before = read_ranks(stopped.records, stopped.name)
        verdict.stopped_after = before[0].steps(len(before[0].updates))
        compare.same_program(undisturbed, before, verdict)
        # Another seed: a process that is started later draws other numbers, unless its checkpoint says which.
        again = self._start("resumed", options.resume, "stopped", None if options.seed is None else options.seed + 1)
        code = again.run()
        self._refuse_foreign(stopped, again)
        if code != 0:
            raise NotRecorded(f"the resume failed with exit code {code}; it printed\n{again.last_words()}")
        after = read_ranks(again.records, again.name)
        compare.resumed(undisturbed, before, after, verdict)

    def _step(self, rank: Rank) -> int:
        """Behind which step of the first optimizer the run is stopped: as asked for, or one behind the checkpoint in the middle."""
        steps = [rank.steps(i) for i in range(len(rank.updates) + 1)]
        saves = sorted({steps[save.after] for save in rank.saves if save.after < len(steps)})
        wanted = self._options.stop_at
        if wanted is None:
            usable = [save for save in saves if 0 < save < steps[-1] - 1]
            if not usable:
                raise NotRecorded(f"no checkpoint was seen to be written before the last of {steps[-1]} steps: let it save more often, or name --stop-at")
            return usable[(len(usable) - 1) // 2] + 1
        if wanted >= steps[-1]:
            raise Usage(f"--stop-at {wanted} is beyond the end: the undisturbed run made {steps[-1]} steps; name one before {steps[-1]}")
        if saves and saves[0] > wanted:
            raise NotRecorded(f"no checkpoint is written before step {wanted}: the first one is after step {saves[0]}; name --stop-at {saves[0] + 1}")
        return wanted

    def _refuse_foreign(self, *starts: Start) -> None:
        """A run that reads what the undisturbed one wrote tells nothing of its own checkpoints."""
        written = touched(self._runs / "undisturbed" / "undisturbed" / "records")[0]
        own = {path for start in starts for path in touched(start.records)[0]}
        foreign = sorted(touched(starts[-1].records)[1] & (written - own))
        if foreign and foreign[0]:
            raise NotRecorded(f"'{foreign[0]}' was written by the undisturbed run and read by another: give each a place by {{run}} in the command, "
                              "which stands for the run's name, or by a path that is relative to the folder it is started in")  # fmt: skip

    def _tell(self, text: str) -> None:
        if not self._options.quiet:
            print(text, file=sys.stderr, flush=True)


def main(text: str) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the program is ended with us, as by Ctrl-C
    return carry_out(Options.read(json.loads(text)))


def carry_out(options: Options, start: type[Start] = Start) -> int:
    """The exit code."""
    try:
        options.report.mkdir(parents=True, exist_ok=True)
        verdict = Audit(options, start).run()
    except Usage as error:
        print(f"kintsugi: {error}", file=sys.stderr)
        return USAGE
    except NotRecorded as error:
        print(f"kintsugi: {error}", file=sys.stderr)
        return NOT_RECORDED
    except KeyboardInterrupt:
        print("kintsugi: stopped by a signal, and the program with it", file=sys.stderr)
        return NOT_RECORDED
    except OSError as error:
        print(f"kintsugi: '{error.filename}': {error.strerror}: name another --report", file=sys.stderr)
        return USAGE
    found = json.dumps(tell.as_json(verdict, options.program, options.resume), indent=2)
    (options.report / "audit.json").write_text(found + "\n", encoding="utf-8")
    (options.report / "audit.html").write_text(page.page(verdict, options.program, options.resume, options.head, options.masthead), encoding="utf-8")
    if options.json and options.json != "-":
        Path(options.json).write_text(found + "\n", encoding="utf-8")
    print(found if options.json == "-" else tell.text(verdict), end="" if options.json != "-" else "\n")
    if not options.quiet:
        print(f"report: {options.report / 'audit.html'}", file=sys.stderr)
    return EXACT if verdict.well else DIFFERS
