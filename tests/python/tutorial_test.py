"""The tutorial's blocks, run as they stand: scripts and commands, and what it says that they print.

  tutorial_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak]     --soak: with the faults that its commands name
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from door import ROOT, Door, Failure, main, skip_without_torch

TUTORIAL = ROOT / "integrations/python/TUTORIAL.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Reader:
    """Somebody who follows the tutorial in a folder of their own."""

    def __init__(self, door, folder):
        self.folder = Path(folder)
        commands = self.folder / "bin"
        commands.mkdir()
        (commands / "kintsugi").symlink_to(door.bin / "kintsugi")
        # A symbolic link would be taken for the interpreter of another environment.
        self._command(commands / "python", f'exec "{door.python}" "$@"')
        self._command(commands / "torchrun", f'exec "{door.python}" -m torch.distributed.run "$@"')
        self.environment = door.environment()
        self.environment["PATH"] = f"{commands}:{os.environ['PATH']}"

    @staticmethod
    def _command(path, line):
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def patch(self, difference, old, new):
        """As `patch` would; that may not be installed."""
        if not difference.startswith(f"--- {old}\n+++ {new}\n"):
            raise Failure(f"not a difference of {old} and {new}:\n{difference[:200]}")
        shutil.copy(self.folder / old, self.folder / new)
        done = subprocess.run(["git", "apply", "-p0", "-"], input=difference.replace(f"--- {old}", f"--- {new}", 1), text=True,
                              cwd=self.folder, capture_output=True)
        if done.returncode != 0:
            raise Failure(f"the difference of {old} and {new} does not fit: {done.stderr}")

    def runs(self, command, tries=1):
        """The lines that the script itself printed. `tries`: where torch alone runs, whose processes end in an abort of its own now and
        then (2.13, once in some fifty times, after all is printed)."""
        done = subprocess.run(["sh", "-ec", command], cwd=self.folder, capture_output=True, text=True, timeout=400,
                              env=self.environment)
        if done.returncode != 0 and tries > 1 and "terminate called without an active exception" in done.stderr:
            return self.runs(command, tries - 1)
        if done.returncode != 0:
            raise Failure(f"'{command.strip()}' ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
        said = dict(re.findall(r"\b(parameters|average): (\S+)$", done.stdout + done.stderr, re.MULTILINE))
        return said, done.stdout + done.stderr


def averaging(plain):
    """The plain script with the average that the tutorial's last one keeps."""
    step = "    loss.backward()\n"
    end = "dist.destroy_process_group()\n"
    return (plain.replace("for k in", "average = 0.0\nfor k in").replace(step, f"{step}    average = 0.9 * average + 0.1 * loss.item()\n")
            .replace(end, f'    print("average:", average)\n{end}'))


def follow(door, struck):
    """As written, or with the faults left out of its commands."""
    def command(text):
        patient = text.replace("kintsugi run", "kintsugi run --silence 8 --hang-least 20")  # busier than it has cores
        return patient if struck else re.sub(r" --inject \S+", "", patient)

    def test(_):
        blocks = BLOCK.findall(TUTORIAL.read_text())
        kinds = [kind for kind, _ in blocks]
        if kinds != ["python", "sh", "diff", "sh", "diff", "sh"]:
            raise Failure(f"the tutorial has other blocks than this test follows: {kinds}")
        plain, launched, to_survive, run, to_average, certified = (text for _, text in blocks)
        changed = [line for line in to_survive.splitlines()[2:] if line[:1] in "+-" and line[1:].strip()]
        if len(changed) > 10:
            raise Failure(f"ten lines are {len(changed)}")
        if not certified.startswith("kintsugi certify --quick"):
            raise Failure(certified)
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            reader = Reader(door, folder)
            (reader.folder / "plain.py").write_text(plain)
            reader.patch(to_survive, "plain.py", "survives.py")
            reader.patch(to_average, "survives.py", "average.py")
            (reader.folder / "plain.py").write_text(averaging(plain))
            for script in ("survives.py", "average.py"):
                door.typed(str(reader.folder / script))(None)
            expected, log = reader.runs(launched, tries=3)
            if set(expected) != {"parameters", "average"}:
                raise Failure(f"the plain script printed {expected}\n{log[-2000:]}")
            # The average twice, in a step that is done again: only there is it seen to be forgotten.
            averaged = "kintsugi run --nproc 2 --inject throw:0@9:gate --inject throw:1@30:gradient-sync -- python average.py"
            for script, text in (("survives.py", run), ("average.py", averaged)):
                if not struck and script == "survives.py":
                    continue  # average.py holds all of it
                printed, log = reader.runs(command(text))
                if printed != {name: expected[name] for name in printed} or "parameters" not in printed:
                    raise Failure(f"{script} ends with {printed}, the plain script with {expected}\n{log[-4000:]}")
    return test


if __name__ == "__main__":
    struck = "--soak" in sys.argv
    if struck:
        sys.argv.remove("--soak")
    door = Door(sys.argv[1:])
    skip_without_torch(door)
    sys.exit(main([("the tutorial, " + ("as written" if struck else "without its faults"), follow(door, struck))], door.bin))
