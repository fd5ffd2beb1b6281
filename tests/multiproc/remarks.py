"""What a save has to remark on a checkpoint that is whole: a state that was not registered is told before it is missed.

  remarks.py BIN_DIR PLANTED_TRAINER [--only WORD]...
"""
import argparse
import subprocess
import sys
from pathlib import Path

from harness import Failure, main


def run(runner, trainer, *arguments, options=(), expect=0):
    done = subprocess.run([runner.kintsugi, "run", "--nproc", "2", "--save-dir", "saves", "--log-level", "info", "--silence", "10",
                           "--hang-least", "30", *options, "--", trainer, *arguments],
                          cwd=runner.folder, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != expect:
        raise Failure(f"exit code {done.returncode}, expected {expect}\n{done.stderr[-5000:]}")
    return done.stderr


def remarks(log):
    return [line for line in log.splitlines() if "event=save_remark" in line]


def whole(runner):
    done = runner.tool(["ckpt", "verify", "saves"])
    if done.returncode != 0:
        raise Failure(done.stdout[-2000:] + done.stderr[-2000:])


def a_state_lacks(trainer):
    """Each save is made; the remark is told once, at warning level, for all that say the same."""
    def test(runner):
        log = run(runner, trainer, "state", options=("--save-every", "2"))
        told = remarks(log)
        if len(told) != 1 or " warning " not in told[0] or "optimizer.b' lacks the optimizer's 'exp_avg_sq'" not in told[0]:
            raise Failure(f"{told}\n{log[-4000:]}")
        whole(runner)
    return test


def a_dying_gasp(trainer):
    """What is the last save of a run is not refused for it."""
    def test(runner):
        log = run(runner, trainer, "state", options=("--max-respawns", "0", "--inject", "kill:1@5:update"), expect=75)
        if len(remarks(log)) != 1:
            raise Failure(log[-4000:])
        whole(runner)
    return test


def nothing_to_say(trainer):
    def test(runner):
        log = run(runner, trainer, options=("--save-every", "2"))
        if remarks(log):
            raise Failure(f"{remarks(log)}")
        whole(runner)
    return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin_dir")
    parser.add_argument("trainer")
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    planted = str(Path(given.trainer).resolve())
    sys.exit(main([
        ("a state that lacks is told once, and saved without", a_state_lacks(planted)),
        ("a dying gasp is told of it too", a_dying_gasp(planted)),
        ("nothing is told where nothing lacks", nothing_to_say(planted)),
    ], given.bin_dir, given.only))
