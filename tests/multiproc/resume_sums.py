"""What ranks hold after a resume is what was saved, on every rank: told where it is, and an end with a name where it is not.

  resume_sums.py BIN_DIR PLANTED_TRAINER [--only WORD]...
"""
import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness import Failure, main

SAVED = 4


def run(runner, trainer, nproc, mistake, *options, expect=0):
    done = subprocess.run([runner.kintsugi, "run", "--nproc", str(nproc), "--silence", "10", "--hang-least", "30", *options, "--",
                           trainer, mistake], cwd=runner.folder, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != expect:
        raise Failure(f"exit code {done.returncode}, expected {expect}\n{done.stderr[-5000:]}")
    return done.stderr


def saved(runner, trainer):
    """A root that holds step 4 of three ranks alone."""
    run(runner, trainer, 3, "place", "--save-every", str(SAVED), "--save-dir", "saves")
    name = f"step_{SAVED:010d}"
    shutil.copytree(runner.folder / "saves" / name, runner.folder / "half" / name)


def must_say(log, *words):
    for word in words:
        if word not in log:
            raise Failure(f"'{word}' is not said\n{log[-4000:]}")


def what_is_right(trainer):
    def test(runner):
        saved(runner, trainer)
        for nproc in (3, 2, 1):
            log = run(runner, trainer, nproc, "place", "--resume", "half")
            must_say(log, "event=resume_sums compared=2")
            told = [line for line in log.splitlines() if "event=resume_sums" in line and "event=exited" not in line]
            if "not_compared" in log or len(told) != 1:
                raise Failure(f"{nproc} ranks\n{log[-3000:]}")
    return test


def what_is_misplaced(trainer):
    """Every copy is wrong alike, so that nothing else can see it."""
    def test(runner):
        saved(runner, trainer)
        log = run(runner, trainer, 2, "misplace", "--resume", "half", expect=3)
        must_say(log, "tensor 'line': what the ranks hold has the sum", "what was saved", "another checkpoint", f"step_{SAVED:010d}")
        if "event=resume_sums compared" in log:
            raise Failure(log[-3000:])
    return test


def what_one_rank_cannot_load(trainer):
    """The others wait for its sums, and are called off."""
    def test(runner):
        saved(runner, trainer)
        begin = time.monotonic()
        log = run(runner, trainer, 2, "refuse", "--resume", "half", expect=3)
        must_say(log, "one rank alone cannot go on")
        if time.monotonic() - begin > 30:
            raise Failure(f"ended after {time.monotonic() - begin:.0f} s\n{log[-3000:]}")
    return test


def what_is_stored_in_parts(trainer):
    """The line is repaired where it lies, and stored as what its factory makes of it."""
    def test(runner):
        struck = run(runner, trainer, 3, "factory", "--save-every", str(SAVED), "--save-dir", "saves", "--save-format", "dcp",
                     "--inject", "kill:1@3:gate", "--inject", "throw:2@6:update")
        must_say(struck, "rung=adopt", "rung=rebuild")
        if "state_not_held" in struck:
            raise Failure(struck[-4000:])
        name = f"step_{SAVED:010d}"
        shutil.copytree(runner.folder / "saves" / name, runner.folder / "half" / name)
        shown = json.loads(runner.tool(["ckpt", "show", "saves/dcp", "--json"]).stdout)["tensors"]
        if {t["key"]: t["shape"] for t in shown} != {"line.slope": [1], "line.offset": [1], "momentum": [2]}:
            raise Failure(f"{shown}")
        for nproc in (2, 3):
            must_say(run(runner, trainer, nproc, "factory", "--resume", "half"), "event=resume_sums compared=3")
        must_say(run(runner, trainer, 2, "place", "--resume", "half", expect=3), "'line'")
        must_say(run(runner, trainer, 2, "gap", expect=3), "factory of", "1 elements of 2")
    return test


def in_another_format(trainer):
    def test(runner):
        saved(runner, trainer)
        made = runner.tool(["ckpt", "convert", "half", "foreign", "--to", "dcp", "--shards", "2"])
        verified = runner.tool(["ckpt", "verify", "foreign"])
        if made.returncode != 0 or "2 tensors with the sums" not in verified.stdout:
            raise Failure(f"{made.stderr}{verified.stdout}{verified.stderr}")
        must_say(run(runner, trainer, 2, "place", "--resume", "foreign"), "event=resume_sums compared=2")
        log = run(runner, trainer, 2, "misplace", "--resume", "foreign", expect=3)
        must_say(log, "tensor 'line': what the ranks hold has the sum")
    return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin_dir")
    parser.add_argument("trainer")
    parser.add_argument("--only", action="append", default=[], help="only tests with one of these words in the name")
    arguments = parser.parse_args()
    chosen = str(Path(arguments.trainer).resolve())
    sys.exit(main([
        ("the same ranks, fewer, one: what they hold is what was saved", what_is_right(chosen)),
        ("weights at each other's places on every rank: the resume ends and names the tensor", what_is_misplaced(chosen)),
        ("one rank cannot load: the others do not wait for what it holds", what_one_rank_cannot_load(chosen)),
        ("an array that is stored as two tensors: repaired, saved by its parts' names, resumed", what_is_stored_in_parts(chosen)),
        ("the sums go along into another format, and are compared from there", in_another_format(chosen)),
    ], arguments.bin_dir, arguments.only))
