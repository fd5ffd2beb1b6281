"""Nodes of one run that were started with other options, or another program: refused with both values where all must have the same,
else told."""
import subprocess
import sys

from harness import Failure, script
from live_run import wait_until
from observe import kill, several_launchers

TRAINER = ["--steps", "4000", "--step-delay-us", "50000"]


def pair(runner, options):
    """Node 0 without them, and node 1 with them."""
    start = several_launchers(runner, "2", TRAINER)
    return start(0), start(1, *options)


def options_that_must_be_alike(runner):
    """Node 1 is told which, and both values, and ends at once; node 0 says so and goes on waiting for the right one."""
    for options, said in ((["--save-every", "50"], "node 1 has --save-every 50, node 0 0"),
                          (["--silence", "3"], "node 1 has --silence 3, node 0 1"),
                          (["--save-dir", "/tmp/elsewhere"], "node 1 has --save-dir /tmp/elsewhere, node 0 "),
                          (["--keep", "5", "--no-adopt"], "node 1 has --no-adopt given, node 0 none")):
        waits, refused = pair(runner, options)
        refused.wait(2)
        if said not in refused.log():
            raise Failure(f"{options}: '{said}' is not in {refused.log()[-2000:]}")
        wait_until(lambda: "event=node_refused" in waits.log() and said in waits.log(), lambda: f"node 0 says {waits.log()[-2000:]}")
        if waits.process.poll() is not None:
            raise Failure(f"node 0 ended with {waits.process.poll()}")
        kill(waits)


def a_node_that_comes_later(runner):
    """To a run that goes on: a launcher that is started anew, with another option."""
    start = several_launchers(runner, "3", TRAINER)
    runs = [start(node) for node in range(3)]
    runs[0].wait_step(5)
    kill(runs[2])
    runs[0].wait_status(lambda s: s["nodes_away"] == [2], "the loss of node 2")
    anew = start(2, "--save-every", "7")
    anew.wait(2)
    if "node 2 has --save-every 7" not in anew.log():
        raise Failure(anew.log()[-2000:])
    for run in runs[:2]:
        kill(run)


def options_that_may_differ_and_versions(runner):
    """Told on the node that leads, once; status names every node's host and version."""
    leads, other = pair(runner, ["--grace", "7", "--spares", "1"])
    status = leads.wait_step(5)
    log = leads.log()
    for option, has, leader_has in (("--grace", 7, 30), ("--spares", 1, 0)):
        if log.count(f"event=node_differs node=1 host={status['hosts'][1]['host']} option={option} has={has} leader_has={leader_has}") != 1:
            raise Failure(f"{option}: {log[-3000:]}")
    if log.count("event=node_differs") != 2:
        raise Failure(f"more was told: {log[-3000:]}")
    version = subprocess.run([runner.kintsugi, "--version"], capture_output=True, text=True, check=True).stdout.split("\n", maxsplit=1)[0]
    if [f"kintsugi {node['version']}" for node in status["hosts"]] != [version] * 2:
        raise Failure(f"{status['hosts']}, the command is {version}")
    shown = runner.tool(["status", "--run", str(other.run_dir)]).stdout
    if f"node 1  host {status['hosts'][1]['host']}  address 127.0.0.1" not in shown:
        raise Failure(shown)
    other.signal(15)
    for run in (leads, other):
        run.wait(75)


if __name__ == "__main__":
    sys.exit(script(__doc__, [("options that must be alike", options_that_must_be_alike),
                              ("a node that comes later", a_node_that_comes_later),
                              ("options that may differ, and versions", options_that_may_differ_and_versions)]))
