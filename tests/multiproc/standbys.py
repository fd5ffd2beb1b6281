"""`kintsugi controller --rendezvous`: processes that lead the launchers of several hosts, and have no ranks. Others stand by."""
import json
import os
import signal
import subprocess
import sys
import time

from chaos_runs import free_port
from harness import Failure, must_be_same, reference, script
from live_run import ask, wait_until
from takeovers import LONG

CONTROLLERS = 3
NODES = 2
NPROC = 2


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

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def log(self, name):
        return (self.runner.folder / f"{name}.err").read_text(errors="replace")

    def logs(self):
        return "".join(f"---- {name}\n{self.log(name)[-2500:]}" for name in self.processes)

    def status(self, number):
        return ask(self.runner.folder / f"controller-{number}" / "control.sock", "status")

    def wait_step(self, number, step):
        def look():
            status = self.status(number)
            return status and status["step"] >= step and status["phase"] == "RUNNING"
        wait_until(look, lambda: f"step {step}, led by controller {number}\n{self.logs()}")

    def wait_step_of_anyone(self, step):
        def look():
            known = [self.status(number) for number in range(CONTROLLERS)]
            return any(status and status["step"] >= step and status["phase"] == "RUNNING" for status in known)
        wait_until(look, lambda: f"step {step}, whoever leads\n{self.logs()}")

    def wait_log(self, name, text):
        wait_until(lambda: text in self.log(name), lambda: f"'{text}' in the log of {name}\n{self.logs()}")

    def signal(self, number, what):
        self.processes[f"controller-{number}"].send_signal(what)

    def finish(self, leader, gone=()):
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
        summary = json.loads((self.runner.folder / f"controller-{leader}.out").read_text())
        must_be_same(reference(self.runner.bin, LONG), summary, self.logs())
        return summary


def an_undisturbed_run(runner):
    led = Led(runner)
    summary = led.finish(leader=0)
    if summary["incidents"]:
        raise Failure(f"{summary['incidents']}")


def the_controller_is_killed_while_training(runner):
    """Nothing else is wrong: the ranks go on in their generation, and nobody repairs anything."""
    led = Led(runner)
    led.wait_step(0, 8)
    led.signal(0, signal.SIGKILL)
    led.wait_log("controller-1", "event=leads node=3 term=2")
    led.wait_log("controller-1", "nothing else is wrong")
    summary = led.finish(leader=1, gone=["controller-0"])
    if summary["incidents"]:
        raise Failure(f"{summary['incidents']}\n{led.logs()}")


def two_controllers_one_after_the_other(runner):
    led = Led(runner)
    for number in range(2):
        led.wait_step(number, 8 + 20 * number)
        led.signal(number, signal.SIGKILL)
    led.wait_log("controller-2", "event=leads node=4")
    summary = led.finish(leader=2, gone=["controller-0", "controller-1"])
    if summary["incidents"]:
        raise Failure(f"{summary['incidents']}\n{led.logs()}")


def killed_within_an_incident(runner):
    """The next one goes on with it."""
    led = Led(runner, node_args=["--inject", "kill:3@12:update"])
    led.wait_log("controller-0", "to=LOCK")
    led.signal(0, signal.SIGKILL)
    led.wait_log("controller-1", "event=leads node=3 term=2")
    summary = led.finish(leader=1, gone=["controller-0"])
    if [i["path"] for i in summary["incidents"]] != ["respawn"]:
        raise Failure(f"{summary['incidents']}\n{led.logs()}")


def frozen_and_thawed(runner):
    """The classic stale leader: it is refused, leads no more, and stands by."""
    led = Led(runner)
    led.wait_step(0, 8)
    led.signal(0, signal.SIGSTOP)
    led.wait_log("controller-1", "event=leads node=3 term=2")
    time.sleep(1)
    led.signal(0, signal.SIGCONT)
    led.wait_log("controller-0", "steps_down")
    led.finish(leader=1)


def a_controller_started_anew_stands_by(runner):
    led = Led(runner)
    led.wait_step(0, 8)
    led.signal(0, signal.SIGKILL)
    led.wait_log("controller-1", "event=leads node=3 term=2")
    led.processes["controller-0"].wait()
    led.start("controller-0", led.controller_line(0))
    led.wait_log("controller-0", "event=welcomed node=2 term=2")  # who has not followed anybody does not stand
    led.signal(1, signal.SIGKILL)
    led.wait_log("controller-0", "event=leads node=2 term=3")
    led.finish(leader=0, gone=["controller-1"])


def without_any_controller_a_node_leads(runner):
    led = Led(runner)
    led.wait_step_of_anyone(8)  # on a busy machine another one than 0 may be the first to stand
    for number in range(CONTROLLERS):
        led.signal(number, signal.SIGKILL)
    led.wait_log("node-0", "event=leads node=0")
    for name in [f"controller-{number}" for number in range(CONTROLLERS)]:
        del led.processes[name]
    for node in range(NODES):
        if led.processes[f"node-{node}"].wait(120) != 0:
            raise Failure(led.logs())
    summary = json.loads((runner.folder / "node-0.out").read_text())
    must_be_same(reference(runner.bin, LONG), summary, led.logs())


def a_standby_is_told_to_leave(runner):
    """It is not missed."""
    led = Led(runner)
    led.wait_step(0, 8)
    led.signal(2, signal.SIGTERM)
    if led.processes["controller-2"].wait(30) != 0 or "event=standby_left signal=SIGTERM" not in led.log("controller-2"):
        raise Failure(led.logs())
    summary = led.finish(leader=0)
    if summary["incidents"]:
        raise Failure(f"{summary['incidents']}\n{led.logs()}")


def the_one_that_leads_is_told_to_leave(runner):
    """The whole run saves and ends."""
    led = Led(runner)
    led.wait_step(0, 8)
    led.signal(0, signal.SIGTERM)
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


TESTS = [(test.__name__.replace("_", " "), test) for test in (
    an_undisturbed_run, the_controller_is_killed_while_training, two_controllers_one_after_the_other,
    killed_within_an_incident, frozen_and_thawed, a_controller_started_anew_stands_by, without_any_controller_a_node_leads,
    a_standby_is_told_to_leave, the_one_that_leads_is_told_to_leave, mistakes)]

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
