"""Ranks that `kintsugi run` did not start: the real torchrun's, and some that are started by hand.

  agentless_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak]     --soak: the cases that take longest too
"""
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from door import HERE, Door, Failure, main, skip_without_torch

STEPS = 12
SAID = re.compile(r"rank (\d) life (\d) began (\d+) steps (\d+) parameters ([0-9a-f]{16})")
PATIENT = "--silence 8 --hang-least 20"  # on a machine that is busier than it has cores


def started(door, folder, fault=(), options="", words=("--max-restarts", "0"), expect=0, **environment):
    """Runs the trainer under torchrun; what each rank said at its end, and all output."""
    command = [door.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", *words, str(HERE / "agentless.py"), str(STEPS), *fault]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False,
                          env={**door.environment(), "PATH": f"{door.bin}:{os.environ['PATH']}",
                               "KINTSUGI_CONTROLLER_OPTIONS": f"{PATIENT} {options}", **environment})
    output = done.stdout + done.stderr
    if (done.returncode == 0) != (expect == 0):
        raise Failure(f"torchrun ended with {done.returncode}\n{output[-6000:]}")
    return [tuple(found) for found in SAID.findall(output)], output


class Lives:
    def __init__(self, door):
        self.door = door
        self.undisturbed = None

    def reference(self):
        if self.undisturbed is None:
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                said, output = started(self.door, folder)
            if len(said) != 2 or said[0][4] != said[1][4]:
                raise Failure(f"the undisturbed run: {said}\n{output[-4000:]}")
            self.undisturbed = said[0][4]
        return self.undisturbed

    def same(self, fault, options="", words=("--max-restarts", "0"), life="0", began=1):
        """Both ranks end with the undisturbed run's bits, in torchrun's `life`, having begun at `began`. How many steps a rank
        began again is its own: one that was on its way to the step of the fault has not begun it."""
        def test(_):
            expected = {(life, str(began), self.reference())}
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                said, output = started(self.door, folder, fault, options, words)
            if len(said) != 2 or {(life, began, digest) for _, life, began, _, digest in said} != expected:
                raise Failure(f"{said}, expected {expected}\n{output[-6000:]}")
        return test

    def stopped(self, _):
        """torchrun is told to end, as by a scheduler: what is done is saved, and the next run begins there."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            options = "--save-dir saves --resume auto"
            said, output = started(self.door, folder, ("terminate", "5", "0"), options, expect=1)
            if said or not list(Path(folder, "saves").glob("step_*")):
                raise Failure(f"{said}: nothing was saved, or it did not end\n{output[-6000:]}")
            said, output = started(self.door, folder, ("terminate", "5", "0"), options)
            if len(said) != 2 or {rank[4] for rank in said} != {self.reference()} or not 5 <= int(said[0][2]) <= 7:
                raise Failure(f"{said}\n{output[-6000:]}")

    def by_hand(self, _):
        """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are enough, and torch's own store may be at that port too."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            ranks = [subprocess.Popen([self.door.python, str(HERE / "agentless.py"), str(STEPS), "raise", "4", "1"], cwd=folder, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      env={**self.door.environment(), "PATH": f"{self.door.bin}:{os.environ['PATH']}",
                                           "KINTSUGI_CONTROLLER_OPTIONS": PATIENT, "RANK": str(rank), "WORLD_SIZE": "2",
                                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) for rank in range(2)]
            outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
        if [found[-1] for output in outputs for found in SAID.findall(output)] != [self.reference()] * 2:
            raise Failure("\n".join(output[-4000:] for output in outputs))

    def wrong_port(self, _):
        done = subprocess.run([self.door.python, str(HERE / "agentless.py"), "1"], capture_output=True, text=True, timeout=120, check=False,
                              env={**self.door.environment(), "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "x"})
        if done.returncode == 0 or "MASTER_PORT='x' is no number" not in done.stderr:
            raise Failure(f"{done.returncode}\n{done.stderr[-2000:]}")

    def says(self, *words, **started_with):
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                _, output = started(self.door, folder, expect=1, **started_with)
            for word in words:
                if word not in output:
                    raise Failure(f"'{word}' is nowhere\n{output[-4000:]}")
        return test


if __name__ == "__main__":
    door = Door(sys.argv[1:])
    skip_without_torch(door)
    lives = Lives(door)
    saves = {"options": "--save-dir saves --resume auto", "words": ("--max-restarts", "1"), "life": "1"}
    short = [
        ("an exception is repaired in place", lives.same(("raise", "6", "1"))),
        ("a killed rank costs torchrun's restart and no step", lives.same(("kill", "6", "1"), began=6, **saves)),
        ("an option the controller does not know", lives.says("--no-such", "rank 0 could not start a controller", options="--no-such")),
    ]
    long = [
        ("the rank beside the controller is killed", lives.same(("kill", "6", "0"), began=6, **saves)),
        ("a stop saves first", lives.stopped),
        ("ranks started by hand", lives.by_hand),
        ("a port that is no number", lives.wrong_port),
        ("no command", lives.says("neither in the package nor in PATH", PATH="/usr/bin:/bin")),
    ]
    sys.exit(main(short + (long if "--soak" in sys.argv else []), door.bin))
