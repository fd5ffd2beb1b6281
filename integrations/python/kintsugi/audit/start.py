"""One start of the program, with the hook in each of its Python processes; ended or killed where it must be.

Threads: one. Errors: NotRecorded where the program cannot be started, or takes longer than its limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .records import NotRecorded
from .stopping import POLL_SECONDS, SENT

SITE = Path(__file__).resolve().parents[1] / "site"
LEAVE_SECONDS = 60.0  # for a program that was asked to end
TOGETHER_SECONDS = 30.0  # between the first rank that waits for its end and the last
LAST_WORDS_BYTES = 3000


@dataclass
class Start:
    """What is started, and where. `seed`: of what the program leaves unseeded."""

    name: str
    command: list[str]
    work: Path
    folder: Path  # for the records and the log
    seed: int | None
    limit_seconds: float

    @property
    def records(self) -> Path:
        return self.folder / "records"

    def run(self) -> int:
        """To its end. The exit code; the negative number of a signal that ended it."""
        process = self._begin({})
        try:
            return process.wait(self.limit_seconds)
        except subprocess.TimeoutExpired:
            raise NotRecorded(f"{self.name} took longer than {self.limit_seconds:g} s: take fewer steps, or name a longer --limit") from None
        finally:
            kill_tree(process)

    def run_until(self, step: int, number: int) -> bool:
        """Until its ranks wait behind `step`, then ends it with the signal. False: it ended before."""
        process = self._begin({"KINTSUGI_AUDIT_STOP": f"{step}:{number}"})
        try:
            if not self._await_ranks(process):
                return False
            if number == signal.SIGKILL:
                return True  # as a host that is lost: all of it at once
            process.send_signal(number)  # as a scheduler does, to what it has started
            (self.records / SENT).touch()
            try:
                process.wait(LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                pass  # as a scheduler does, after its time of grace
            return True
        finally:
            kill_tree(process)

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        before = os.environ.get("PYTHONPATH", "")
        environment = {**os.environ, "PYTHONPATH": f"{SITE}{os.pathsep}{before}" if before else str(SITE), "KINTSUGI_AUDIT_RECORDS": str(self.records), **more}
        if self.seed is not None:
            environment |= {"KINTSUGI_AUDIT_SEED": str(self.seed), "PYTHONHASHSEED": str(self.seed % (1 << 32))}
        return environment

    def last_words(self) -> str:
        log = self.folder / "log"
        return log.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace") if log.exists() else ""

    def _begin(self, more: dict[str, str]) -> subprocess.Popen[bytes]:
        self.records.mkdir(parents=True, exist_ok=True)
        environment = self.environment(more)
        try:
            with open(self.folder / "log", "wb") as log:
                return subprocess.Popen(self.command, cwd=self.work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        except OSError as error:
            raise NotRecorded(f"{self.name}: '{self.command[0]}' cannot be started: {error.strerror}") from None

    def _await_ranks(self, process: subprocess.Popen[bytes]) -> bool:
        """Until as many wait as there are ranks. Those that train nothing never come: for them it is not waited for long."""
        end = time.monotonic() + self.limit_seconds
        first: float | None = None
        while process.poll() is None:
            held = [file.read_text() for file in self.records.glob("held-*")]
            if held and first is None:
                first = time.monotonic()
            if held and (len(held) >= int(held[0] or len(held)) or time.monotonic() - (first or 0) > TOGETHER_SECONDS):
                return True
            if time.monotonic() > end:
                raise NotRecorded(f"{self.name} did not come to the step it is to be stopped after within {self.limit_seconds:g} s")
            time.sleep(POLL_SECONDS)
        return False


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            found.setdefault(parent, []).append(int(entry.name))
    return found


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """The process and all that came of it, at once. Its ranks have sessions of their own, so a group's signal would miss them."""
    if process.poll() is not None:
        return
    children, tree = _children(), [process.pid]
    for pid in tree:
        tree += children.get(pid, [])
    for pid in tree:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
