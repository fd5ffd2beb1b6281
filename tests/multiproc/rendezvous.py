"""Hosts that meet: others than were expected, in other words, late, never, twice, and again after a reboot."""
import os
import re
import signal
import subprocess
import sys

from harness import SLOWNESS, SMALL, Failure, must_be_same, named, reference, script
from network import Network
from nodes import STEPS, NodesRun, same_bits


def another_launcher_of_the_same_node_is_refused(runner):
    """Requeued twice, or a copied pod: on a third host, while the node's own launcher is there. Nothing happens to the
    run, and the newcomer is told who has its place."""
    with Network(3) as net:
        run = NodesRun(runner, net, 2, trainer_args=STEPS)
        run.wait_step(5)
        line = run.line(1)
        line[line.index("--run-dir") + 1] = str(runner.folder / "copy")
        err = open(runner.folder / "copy.err", "w+b")
        copy = net.popen(2, line, cwd=runner.folder, stdout=subprocess.DEVNULL, stderr=err)
        code = copy.wait(60)
        with open(err.name, errors="replace") as file:
            said = file.read()
        if code != 2 or "node 1 is here already" not in said or net.address(1) not in said:
            raise Failure(f"the copy: code {code}\n{said}")
        summary = same_bits(runner, run)
    if summary["incidents"]:
        raise Failure(f"incidents: {summary['incidents']}")


def mistakes(runner):
    """Each is told where it was made, and harms nobody."""
    with Network(2) as net:
        run = NodesRun(runner, net, 2, trainer_args=STEPS)
        run.wait_step(3)

        def intruder(change, said):
            line = [re.sub("node-1$", "node-x", word) for word in change(run.line(1))]
            child = net.popen(1, line, cwd=runner.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            _, err = child.communicate(timeout=60)
            if child.returncode not in (2, 3) or said not in err:
                raise Failure(f"code {child.returncode}, expected '{said}' in:\n{err}")

        def with_value(option, value):
            return lambda line: [value if line[max(at - 1, 0)] == option else word for at, word in enumerate(line)]

        other = runner.folder / "other-secret"
        other.write_bytes(os.urandom(32))
        other.chmod(0o600)
        intruder(with_value("--secret-file", str(other)), "secret")
        intruder(with_value("--nproc", "4"), "--nproc 4")
        intruder(with_value("--nnodes", "4"), "--nnodes 4")
        intruder(with_value("--rendezvous", "nowhere"), "HOST:PORT")
        intruder(with_value("--node-rank", "7"), "outside 0 to 1")
        other.chmod(0o644)
        intruder(with_value("--secret-file", str(other)), "chmod 600")
        other.write_bytes(b"short")
        other.chmod(0o600)
        intruder(with_value("--secret-file", str(other)), "32")
        summary = same_bits(runner, run)
        if summary["incidents"]:
            raise Failure(f"strangers caused incidents: {summary['incidents']}")


def nodes_that_do_not_come(runner):
    """Who waits says for whom, and what it saw."""
    with Network(3) as net:
        run = NodesRun(runner, net, 0, run_args=["--join-timeout", "7"], trainer_args=STEPS)
        run.nodes = 3
        run.start(0)
        if run.launchers[0][0].wait(60) != 3:
            raise Failure(run.logs())
        for said in ('event=waits_for_nodes missing="1, 2"', "node 1 (and others: 1, 2) did not come within 7 s"):
            if said not in run.log(0):
                raise Failure(f"'{said}' in\n{run.logs()}")
        run.start(1)
        if run.launchers[1][0].wait(60) != 3:
            raise Failure(run.logs())
        for said in (f"event=waits_for_leader place={net.address(0)}:{run.port}", "Connection refused", "the host answers, and nobody"):
            if said not in run.log(1):
                raise Failure(f"'{said}' in\n{run.logs()}")


def a_meeting_that_cannot_succeed(runner):
    """Another --nnodes ends node 0, too, at once; a rendezvous that no other host can reach is told while it waits."""
    with Network(2) as net:
        run = NodesRun(runner, net, 0, trainer_args=STEPS)
        run.nodes = 2
        run.start(0)
        run.nodes = 3
        run.start(1)
        for node in (0, 1):
            if run.launchers[node][0].wait(60) != 2 or "--nnodes" not in run.log(node):
                raise Failure(run.logs())
        net.address = lambda host: "127.0.0.1"
        run.nodes, run.run_args = 2, ["--join-timeout", "6"]
        run.start(0)
        run.wait_log(0, "the rendezvous is 127.0.0.1, which no other host can reach")
        if run.launchers[0][0].wait(60) != 3:
            raise Failure(run.logs())


def names_and_interfaces_that_come_late(runner):
    """As in a cluster whose hosts start together: the name of node 0 is not known yet, its interface not up."""
    with Network(2) as net:
        for host in (0, 1):
            net.write_hosts(host, "127.0.0.1 localhost")
        net.set_address(0, False)
        place = net.address(0)
        net.address = lambda host: "trainer-0" if host == 0 else f"10.77.0.{host + 1}"
        run = NodesRun(runner, net, 2, trainer_args=["--steps", "12", *SMALL])
        for node in (0, 1):
            run.wait_log(node, "waiting for that to change, 120 s at most")
            if "'trainer-0': " not in run.log(node):
                raise Failure(run.logs())
        for host in (0, 1):
            net.write_hosts(host, f"{place} trainer-0")
        run.wait_log(0, f"no road to {place}")
        net.address = lambda host: place
        net.set_address(0, True)
        must_be_same(reference(runner.bin, ["--steps", "12", *SMALL]), run.finish(), run.logs())


def a_name_that_nobody_makes_known(runner):
    """A batch system is to come back to it where the same command goes on from what was saved."""
    for resume, code in (([], 3), (["--resume", "auto"], 75)):
        line = runner.command([*resume, "--nnodes", "2", "--node-rank", "1", "--rendezvous", "nobody.invalid:29400", "--secret-file",
                               str(runner.folder / "secret"), "--join-timeout", "1"], STEPS, 2)
        (runner.folder / "secret").write_bytes(os.urandom(32))
        (runner.folder / "secret").chmod(0o600)
        done = subprocess.run(line, cwd=runner.folder, capture_output=True, text=True, timeout=60 * SLOWNESS)
        if done.returncode != code or "'nobody.invalid'" not in done.stderr or "--join-timeout" not in done.stderr:
            raise Failure(f"code {done.returncode}, expected {code}\n{done.stderr}")


def a_host_that_reboots(host):
    def test(runner):
        """It is down for longer than the others wait for it: their launchers begin again until it is back."""
        steps = ["--steps", "60", "--step-delay-us", "30000", *SMALL]
        with Network(2) as net:
            run = NodesRun(runner, net, 2, run_args=["--restarts", "30", "--resume", "auto", "--save-every", "2", "--node-wait", "1",
                                                     "--join-timeout", str(3 * SLOWNESS)], trainer_args=steps)
            run.wait_step(10)
            stays = 1 - host
            os.killpg(run.launcher(host), signal.SIGKILL)
            run.launchers[host][0].wait()
            run.wait_log(stays, "event=restart start=3 ")  # one start in vain
            run.start(host)
            run.launchers[host][0].wait(120 * SLOWNESS)
            summary = run.finish(leader=0)
            if summary["final_digest"] != reference(runner.bin, steps)["final_digest"]:
                raise Failure(f"{summary['final_digest']}\n{run.logs()}")
    return test


TESTS = named(another_launcher_of_the_same_node_is_refused, mistakes, nodes_that_do_not_come, a_meeting_that_cannot_succeed,
              names_and_interfaces_that_come_late, a_name_that_nobody_makes_known)
TESTS += [(f"host {host} reboots", a_host_that_reboots(host)) for host in (0, 1)]

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
