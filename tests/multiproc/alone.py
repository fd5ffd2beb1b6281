"""`kintsugi controller`: ranks that nobody's launcher started join by themselves, and lost ones are replaced by their starter."""
import os
import re
import signal
import subprocess
import sys

from harness import SLOWNESS, SMALL, Failure, reference, script
from live_run import wait_until

RANKS = 4
STEPS = 40
TRAINER = ["--steps", str(STEPS), "--step-delay-us", "40000", *SMALL]
JOB = "alone"


class Starter:
    """A controller and its ranks, as something else than `kintsugi run` would start them."""

    def __init__(self, runner, *options):
        self.runner = runner
        self.secret = runner.folder / "secret"
        self.secret.write_bytes(os.urandom(32))
        self.secret.chmod(0o600)
        self.log_path = runner.folder / "controller.log"
        self.ranks = []
        with open(self.secret, "rb") as secret, open(self.log_path, "wb") as log:
            self.controller = subprocess.Popen(
                [runner.kintsugi, "controller", "--world-size", str(RANKS), "--port", "0", "--job", JOB,
                 "--secret-fd", str(secret.fileno()), *options],
                cwd=runner.folder, pass_fds=[secret.fileno()], stdout=subprocess.PIPE, stderr=log, text=True)
        self.address = self.controller.stdout.readline().split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [self.controller, *self.ranks]:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.controller.stdout.close()

    def start(self, rank):
        out = open(self.runner.folder / f"rank-{len(self.ranks)}.log", "wb")
        with open(self.secret, "rb") as secret, out:
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank),
                           "KINTSUGI_CONTROLLER": self.address, "KINTSUGI_JOB": JOB,
                           "KINTSUGI_SECRET_FD": str(secret.fileno())}
            self.ranks.append(subprocess.Popen([self.runner.byte_lm, "--samples", "0", *TRAINER], env=environment,
                                               cwd=self.runner.folder, pass_fds=[secret.fileno()], stdout=out,
                                               stderr=subprocess.STDOUT))
        return self.ranks[-1]

    def start_all(self):
        for rank in range(RANKS):
            self.start(rank)
        self.wait_phase("RUNNING", 1)

    def freeze(self, rank):
        """Stops the rank until it is given up; its process. A run begins in ADMIT, without a transition to it."""
        process = self.ranks[rank]
        process.send_signal(signal.SIGSTOP)
        self.wait_phase("ADMIT", 1)
        return process

    def log(self):
        return self.log_path.read_text(errors="replace")

    def phases(self, name):
        return len(re.findall(rf"phase .*to={name}\b", self.log()))

    def wait_phase(self, name, times):
        wait_until(lambda: self.phases(name) >= times or self.controller.poll() is not None, f"{name} the {times}th time")
        if self.controller.poll() is not None:
            raise Failure(f"the controller ended with {self.controller.returncode}\n{self.log()[-3000:]}")

    def must_end_like(self, expected, lost=None):
        """All but the process that was lost end well, in the undisturbed run's final state."""
        for number, rank in enumerate(self.ranks):
            if number != lost and rank.wait(120) != 0:
                raise Failure(f"a rank ended with {rank.returncode}\n{self.log()[-3000:]}")
        if self.controller.wait(60) != 0:
            raise Failure(f"the controller ended with {self.controller.returncode}\n{self.log()[-3000:]}")
        if f"digest={expected['final_digest']}" not in self.log():
            raise Failure(f"another final state than {expected['final_digest']}\n{self.log()[-1500:]}")


def undisturbed(runner):
    with Starter(runner) as starter:
        starter.start_all()
        starter.must_end_like(reference(runner.bin, TRAINER))


def killed_and_started_again(runner):
    with Starter(runner) as starter:
        starter.start_all()
        starter.ranks[1].kill()
        starter.wait_phase("ADMIT", 1)
        starter.start(1)
        starter.must_end_like(reference(runner.bin, TRAINER), lost=1)


def frozen_replaced_and_thawed(runner):
    """The frozen process wakes up when another has its place: it is refused, and leaves."""
    with Starter(runner, "--silence", str(0.5 * SLOWNESS)) as starter:
        starter.start_all()
        frozen = starter.freeze(2)
        starter.start(2)
        starter.wait_phase("RUNNING", 2)
        frozen.send_signal(signal.SIGCONT)
        if frozen.wait(60) == 0:
            raise Failure("the process that was given up ended as if all were well")
        said = (runner.folder / "rank-2.log").read_text(errors="replace")
        if "was given up" not in said:
            raise Failure(f"code {frozen.returncode}, it does not say why it left: {said[-1500:]}")
        starter.must_end_like(reference(runner.bin, TRAINER), lost=2)


def thawed_before_a_replacement(runner):
    """It wakes up while its place is still empty: its state may be behind, so it is refused all the same."""
    with Starter(runner, "--silence", str(0.5 * SLOWNESS)) as starter:
        starter.start_all()
        frozen = starter.freeze(2)
        frozen.send_signal(signal.SIGCONT)
        if frozen.wait(60) == 0:
            raise Failure("the process that was given up ended as if all were well")
        starter.start(2)
        starter.must_end_like(reference(runner.bin, TRAINER), lost=2)


def secret_missing(runner):
    done = runner.tool(["controller", "--world-size", "2"])
    if done.returncode != 2 or "--secret-fd" not in done.stderr:
        raise Failure(f"code {done.returncode}: {done.stderr}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("ranks join by themselves and finish", undisturbed),
        ("a killed rank is started again by its starter", killed_and_started_again),
        ("a frozen rank that was replaced leaves when it wakes up", frozen_replaced_and_thawed),
        ("a frozen rank that wakes up before its replacement leaves too", thawed_before_a_replacement),
        ("a controller without a secret says what it needs", secret_missing),
    ]))
