"""The smallest trainer (integrations/examples/minimal) survives a kill in the middle of an update, bit for bit.

  minimal_test.py BIN_DIR
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import Failure, main, only_incident, same_training


def run(bin_dir, *arguments):
    with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
        command = [str(bin_dir / "kintsugi"), "run", "--nproc", "2", *arguments, "--json", "-", "--",
                   str(bin_dir / "minimal_trainer")]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failure(f"exit code {done.returncode}\n{done.stderr[-6000:]}")
    return json.loads(done.stdout), done.stderr


def faults(bin_dir):
    def test(_):
        undisturbed, log = run(bin_dir)
        if undisturbed["steps"] != 100 or undisturbed["incidents"]:
            raise Failure(f"{undisturbed['steps']} steps, {len(undisturbed['incidents'])} incidents\n{log[-3000:]}")
        if "y = 2.0" not in log and "y = 1.9" not in log:
            raise Failure(f"the line was not found\n{log[-3000:]}")
        for spec in ("kill:1@5:update", "kill:0@50:update"):
            disturbed, log = run(bin_dir, "--inject", spec)
            difference = same_training(undisturbed, disturbed)
            if difference:
                raise Failure(f"{spec}: {difference}\n{log[-3000:]}")
            if only_incident(disturbed)["path"] != "respawn":
                raise Failure(f"{spec}: rung {only_incident(disturbed)['path']}, expected respawn")
    return test


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    sys.exit(main([("minimal_trainer loses a rank in an update and ends with the same bits", faults(folder))], folder))
