"""`kintsugi controller --rendezvous`: processes that lead the launchers of several hosts, and have no ranks. Others stand by."""
import json
import os
import signal
import subprocess
import sys
import time

from chaos_runs import free_port
from harness import Failure, must_be_same, named, reference, script
from live_run import ask, wait_until
from takeovers import LONG, wait_leader

CONTROLLERS = 3
NODES = 2
NPROC = 2
NAMES = [f"node-{node}" for node in range(NODES)] + [f"controller-{number}" for number in range(CONTROLLERS)]  # by node number


class Led:
    """Three controllers and two nodes of two ranks, all on this host."""

    def __init__(self, runner, node_args=()):
        self.runner, self.node_args = runner, list(node_args)
        self.secret = runner.folder / "secret"
        self.secret.write_bytes(os.urandom(32))
        self.secret.chmod(0o600)
        ports = set()
        while len(ports) < CONTROLLERS:
            ports.add(free_port())
        self.places = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.processes = {}
        runner.live.append(self)
        for number in range(CONTROLLERS):
            self.start(f"controller-{number}", self.controller_line(number))
        for node in range(NODES):
            self.start(f"node-{node}", self.node_line(node))

    def controller_line(self, number):
        return [self.runner.kintsugi, "controller", "--rendezvous", self.places, "--controller-rank", str(number), "--nnodes",
                str(NODES), "--nproc", str(NPROC), "--secret-file", str(self.secret), "--save-dir",
                str(self.runner.folder / "checkpoints"), "--json", "-", "--node-wait", "5", "--run-dir",
                str(self.runner.folder / f"controller-{number}")]

    def node_line(self, node):
        return self.runner.command(["--nnodes", str(NODES), "--node-rank", str(node), "--controller", self.places,
                                    "--secret-file", str(self.secret), "--node-wait", "5", "--run-dir",
                                    str(self.runner.folder / f"node-{node}"), *self.node_args], LONG, NPROC)

    def start(self, name, line):
        with open(self.runner.folder / f"{name}.out", "ab") as out, open(self.runner.folder / f"{name}.err", "ab") as err:
            self.processes[name] = subprocess.Popen(line, cwd=self.runner.folder, stdout=out, stderr=err,
                                                    start_new_session=True)

    @property
    def launchers(self):
        return self.processes

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def log(self, name):
        return (self.runner.folder / f"{name}.err").read_text(errors="replace")

    def logs(self):
        return "".join(f"---- {name}\n{self.log(name)[-2500:]}" for name in self.processes)

    def status(self, name):
        return ask(self.runner.folder / name / "control.sock", "status")

    def leader(self, after=0):
        """The name of who leads with a term after that one, and the term. The first controller has the first turn, but on a busy
        machine the next one's may come before it has spoken."""
        node, term = wait_leader(self, after)
        return NAMES[node], term

    def leader_at_step(self, step, after=0):
        """The same, once the run is there."""
        name, term = self.leader(after)

        def look():
            status = self.status(name)
            return status and status["step"] >= step and status["phase"] == "RUNNING"
        wait_until(look, lambda: f"step {step}, led by {name}\n{self.logs()}")
        return name, term

    def wait_log(self, name, text):
        wait_until(lambda: text in self.log(name), lambda: f"'{text}' in the log of {name}\n{self.logs()}")

    def signal(self, name, what):
        self.processes[name].send_signal(what)

    def finish(self, gone=(), by=""):
        """Every process but those ends well, and the run has the bits of an undisturbed one. The summary, by who led last: most often a
        controller, while there is one; a node whose turn comes before a busy controller's may be elected all the same."""
        for name, process in self.processes.items():
            if name in gone:
                continue
            try:
                code = process.wait(120)
            except subprocess.TimeoutExpired:
                raise Failure(f"{name} does not end\n{self.logs()}") from None
            if code != 0:
                raise Failure(f"{name}: exit code {code}\n{self.logs()}")
        orphans = self.runner.orphans()
        if orphans:
            raise Failure(f"left running: {orphans}")
        name, _ = self.leader()
        if name in gone or not name.startswith(by):
            raise Failure(f"{name} led last\n{self.logs()}")
        summary = json.loads((self.runner.folder / f"{name}.out").read_text())
        must_be_same(reference(self.runner.bin, LONG), summary, self.logs())
        return summary


def must_be_undisturbed(led, summary):
    if summary["incidents"]:
        raise Failure(f"{summary['incidents']}\n{led.logs()}")


def an_undisturbed_run(runner):
    led = Led(runner)
    must_be_undisturbed(led, led.finish())


def the_controller_is_killed_while_training(runner):
    """Nothing else is wrong: the ranks go on in their generation, and nobody repairs anything."""
    led = Led(runner)
    first, term = led.leader_at_step(4)
    led.signal(first, signal.SIGKILL)
    second, _ = led.leader(after=term)
    led.wait_log(second, "nothing else is wrong")
    must_be_undisturbed(led, led.finish(gone=[first]))


def two_controllers_one_after_the_other(runner):
    led = Led(runner)
    gone, term = [], 0
    for number in range(2):
        name, term = led.leader_at_step(4 + 10 * number, after=term)
        led.signal(name, signal.SIGKILL)
        gone.append(name)
    led.leader(after=term)
    must_be_undisturbed(led, led.finish(gone=gone))


def killed_within_an_incident(runner):
    """The next one goes on with it."""
    led = Led(runner, node_args=["--inject", "kill:3@6:update"])
    first, term = led.leader()
    led.wait_log(first, "to=LOCK")
    led.signal(first, signal.SIGKILL)
    led.leader(after=term)
    summary = led.finish(gone=[first])
    if [i["path"] for i in summary["incidents"]] != ["respawn"]:
        raise Failure(f"{summary['incidents']}\n{led.logs()}")


def frozen_and_thawed(runner):
    """The classic stale leader: it is refused, leads no more, and stands by."""
    led = Led(runner)
    first, term = led.leader_at_step(4)
    led.signal(first, signal.SIGSTOP)
    led.leader(after=term)
    time.sleep(1)
    led.signal(first, signal.SIGCONT)
    led.wait_log(first, "steps_down")
    led.finish()


def a_controller_started_anew_stands_by(runner):
    led = Led(runner)
    first, term = led.leader_at_step(4)
    led.signal(first, signal.SIGKILL)
    second, term = led.leader(after=term)
    led.wait_log(second, "nothing else is wrong")
    led.processes[first].wait()
    led.start(first, led.controller_line(int(first[-1])))
    led.wait_log(first, f"event=welcomed node={NAMES.index(first)} term={term}")  # who has not followed anybody does not stand
    led.signal(second, signal.SIGKILL)
    led.leader(after=term)
    must_be_undisturbed(led, led.finish(gone=[second]))


def without_any_controller_a_node_leads(runner):
    led = Led(runner)
    _, term = led.leader_at_step(4)
    controllers = NAMES[NODES:]
    for name in controllers:
        led.signal(name, signal.SIGKILL)
    led.leader(after=term)
    led.finish(gone=controllers, by="node")


def a_standby_is_told_to_leave(runner):
    """It is not missed."""
    led = Led(runner)
    first, _ = led.leader_at_step(4)
    standby = next(name for name in reversed(NAMES) if name != first)
    led.signal(standby, signal.SIGTERM)
    if led.processes[standby].wait(30) != 0 or "event=standby_left signal=SIGTERM" not in led.log(standby):
        raise Failure(led.logs())
    must_be_undisturbed(led, led.finish())


def the_one_that_leads_is_told_to_leave(runner):
    """The whole run saves and ends."""
    led = Led(runner)
    first, _ = led.leader_at_step(4)
    led.signal(first, signal.SIGTERM)
    codes = {name: process.wait(60) for name, process in led.processes.items()}
    if set(codes.values()) != {75}:
        raise Failure(f"{codes}\n{led.logs()}")
    saves = runner.folder / "checkpoints"
    done = runner.tool(["ckpt", "verify", str(saves / (saves / "latest").read_text().strip())])
    if done.returncode != 0:
        raise Failure(f"{done.stdout}{done.stderr}{led.logs()}")


def mistakes(runner):
    secret = runner.folder / "other"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    for line, said in (
            (["controller"], "--world-size"),
            (["controller", "--rendezvous", "nowhere", "--nnodes", "2", "--secret-file", str(secret)], "HOST:PORT"),
            (["controller", "--rendezvous", "127.0.0.1:1", "--controller-rank", "1", "--nnodes", "2", "--secret-file",
              str(secret)], "outside 0 to 0"),
            (["run", "--nnodes", "2", "--controller", "127.0.0.1:1", "--rendezvous", "127.0.0.1:1", "--secret-file", str(secret),
              "--", "true"], "either the nodes lead")):
        done = runner.tool(line)
        if done.returncode != 2 or said not in done.stderr:
            raise Failure(f"{line}: code {done.returncode}, expected '{said}' in: {done.stderr}")


SHORT = named(a_controller_started_anew_stands_by, killed_within_an_incident, frozen_and_thawed, without_any_controller_a_node_leads,
              a_standby_is_told_to_leave, the_one_that_leads_is_told_to_leave, mistakes)
FULL = named(an_undisturbed_run, the_controller_is_killed_while_training, two_controllers_one_after_the_other)

if __name__ == "__main__":
    sys.exit(script(__doc__, SHORT, FULL))
