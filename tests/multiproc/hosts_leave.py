"""Hosts that leave a run for good, or for a while: it goes on without them, and with them again once they are back; each time the
very losses of a run that was saved at that step and resumed in that world.

  hosts_leave.py BIN_DIR [--full]      --full: leaders that are lost, faults in the midst of a change, orders, and runs that offer nothing
"""
import os
import re
import signal
import sys

import grows
from harness import Failure, script
from live_run import wait_until
from network import Network
from nodes import NodesRun
from takeovers import wait_leader

grows.GLOBAL_BATCH = 24  # of eight ranks, too
# Long enough for a busy machine: a host that is lost is noticed by its connections.
SOON = ["--shrink-after", "1.5", "--silence", "3"]


def must(condition, what):
    if not condition:
        raise Failure(what() if callable(what) else what)


class ElasticRun(NodesRun):
    """So many hosts with two ranks each; every rank holds the whole model."""

    def __init__(self, runner, net, nodes, *run_args, elastic=True, delay_us=150000):
        size = 2 * nodes
        self.began_with = size
        trainer = [*grows.trainer(size), "--step-delay-us", str(delay_us), *(["--elastic"] if elastic else [])]
        super().__init__(runner, net, nodes, run_args=["--replicas", str(size), *SOON, *run_args], trainer_args=trainer)
        self.all_logs = {}

    def kill(self, node):
        """With its ranks; what its log says is kept."""
        self.all_logs[node] = self.all_logs.get(node, "") + self.log(node)
        os.kill(self.launcher(node), signal.SIGKILL)
        self.launchers[node][0].wait()

    def wait_world(self, size, node=0):
        return self.wait_status(lambda s: s["phase"] == "RUNNING" and len(s["ranks"]) == size, f"a world of {size}", node)

    def changes(self):
        """Of all leaders, by the step."""
        logs = "".join(self.log(node) for node in self.launchers) + "".join(self.all_logs.values())
        return sorted(set(grows.changes(logs)), key=lambda change: change[2])

    def order(self, node, ranks, codes=(0,)):
        done = self.runner.tool(["scale", "--run", str(self.run_dir(node)), "--ranks", str(ranks)], timeout=120)
        must(done.returncode in codes, lambda: f"scale --ranks {ranks}: {done.returncode}\n{done.stdout}{done.stderr}{self.logs()}")
        return done.stdout if done.returncode == 0 else done.stderr


def as_if_resumed(run, summary, expected, paths=None, two_lost=False):
    """The run went through these worlds, to the state and the losses of one that was saved and resumed where it changed. What a launcher
    that was killed had not passed on is missing; `two_lost`: also of a step's losses, which are of fewer ranks then."""
    seen = run.changes()
    must([(world, left, came) for world, left, _, came in seen] == expected, lambda: f"{seen}, not {expected}\n{run.logs()}")
    must(grows.told_in(summary) == seen, lambda: f"{summary['worlds']}, not {seen}\n{run.logs()}")
    if paths:
        found = [i["path"] for i in summary["incidents"]]
        must(found == paths, lambda: f"{found}, not {paths}: {summary['incidents']}\n{run.logs()}")
    worlds = [(run.began_with, 0)] + [(world, step) for world, _, step, _ in seen]
    losses, digest = grows.resumed(run.runner, worlds, 1)
    must(digest and summary["final_digest"] == digest, lambda: f"{worlds}: another state\n{run.logs()}")
    must(len(losses) == len(summary["losses"]), "other steps")
    if two_lost:
        return
    told = [(step, loss, other) for step, (loss, other) in enumerate(zip(losses, summary["losses"]), 1) if other is not None]
    must(len(told) >= len(losses) - 10, lambda: f"{len(losses) - len(told)} losses are missing\n{run.logs()}")
    must(all(loss == other for _, loss, other in told), lambda: f"{worlds}: {[each for each in told if each[1] != each[2]][:5]}\n{run.logs()}")


def goes_on_without(runner):
    """Of three, for good: nobody waits for the sixty seconds of --node-wait."""
    with Network(3) as net:
        run = ElasticRun(runner, net, 3)
        run.wait_step(3)
        run.kill(2)
        run.wait_world(4)
        must("event=node_left_out node=2" in run.log(0) and "event=node_left_out node=2" in run.log(1), run.logs)
        must("then the run goes on without it" in run.log(0), run.logs)
        summary = run.finish(nodes=[0, 1])
    as_if_resumed(run, summary, [(4, "4,5", "none")], ["shrink"])


def comes_back(runner):
    """Of two, whose launcher is started again with the same command."""
    with Network(2) as net:
        run = ElasticRun(runner, net, 2)
        run.wait_step(3)
        run.kill(1)
        run.wait_step(run.wait_world(2)["step"] + 2)
        run.start(1)
        run.wait_world(4)
        summary = run.finish()
    as_if_resumed(run, summary, [(2, "2,3", "none"), (4, "none", "2,3")], ["shrink", "grow"])


def is_cut_off_and_back(runner):
    """Its ranks live on behind the cut; once the road is open they end, and others come."""
    with Network(3) as net:
        run = ElasticRun(runner, net, 3)
        run.wait_step(3)
        net.isolate(1)
        run.wait_world(4)
        net.heal()
        run.wait_world(6)
        summary = run.finish()
    as_if_resumed(run, summary, [(4, "2,3", "none"), (6, "none", "2,3")], ["shrink", "grow"])


def comes_and_goes_meanwhile(runner):
    """Lost again while its ranks start, it costs the run nothing; then it comes to stay."""
    runner.may_hold()
    with Network(2) as net:
        run = ElasticRun(runner, net, 2)
        run.wait_step(3)
        run.kill(1)
        status = run.wait_world(2)
        must(status["world"] == {"ranks": 2, "places": 4, "wanted": 0}, lambda: f"{status}")
        generation = status["generation"]
        with runner.held_at_start():
            run.start(1)
            run.wait_log(1, "event=spawned rank=2")
            run.kill(1)
            run.wait_log(0, "event=not_scaled")
        status = run.status()
        must(status["incidents"] == 1 and status["generation"] == generation, lambda: f"{status}\n{run.logs()}")
        run.start(1)
        run.wait_world(4)
        summary = run.finish()
    as_if_resumed(run, summary, [(2, "2,3", "none"), (4, "none", "2,3")], ["shrink", "grow"])


def the_leader_is_lost_and_comes_back(runner):
    """Another one leads, and goes on without its ranks; it comes back as one that follows."""
    with Network(3) as net:
        run = ElasticRun(runner, net, 3)
        run.wait_step(3)
        run.kill(0)
        leader, _ = wait_leader(run)
        run.wait_world(4, leader)
        run.start(0)
        run.wait_world(6, leader)
        summary = run.finish(leader=leader)
    as_if_resumed(run, summary, [(4, "0,1", "none"), (6, "none", "0,1")])


def the_leader_is_lost_while_others_come(runner):
    """The one that takes over neither knows of the order nor of who is on the way; the places are filled all the same."""
    with Network(3) as net:
        run = ElasticRun(runner, net, 3)
        run.wait_step(3)
        run.kill(2)
        run.wait_world(4)
        run.start(2)
        run.wait_log(2, "event=spawned rank=4")
        run.kill(0)
        run.start(0)  # node 2 has forgotten its promises: node 1 and its word alone are no majority
        leader, _ = wait_leader(run)
        run.wait_world(6, leader)
        summary = run.finish(leader=leader)
    worlds = [world for world, _, _, _ in run.changes()]
    must(worlds[0] == 4 and worlds[-1] == 6, lambda: f"{worlds}\n{run.logs()}")
    as_if_resumed(run, summary, [(world, left, came) for world, left, _, came in run.changes()], two_lost=True)


def a_second_one_is_lost_meanwhile(runner):
    """While the run waits for the first: of four hosts the two that stay are half, and have rank 0."""
    with Network(4) as net:
        run = ElasticRun(runner, net, 4)
        run.wait_step(3)
        run.kill(3)
        run.wait_log(0, "event=node_lost node=3")
        run.kill(2)
        run.wait_world(4)
        for node in (2, 3):
            run.start(node)
        run.wait_world(8)
        summary = run.finish()
    changes = run.changes()
    must(changes[0][0] in (4, 6) and changes[-1][0] == 8, lambda: f"{changes}\n{run.logs()}")
    as_if_resumed(run, summary, [(world, left, came) for world, left, _, came in changes], two_lost=True)


def a_newcomer_is_killed(runner):
    """As soon as it starts: the run does not hear of it, and after a while the next one comes."""
    runner.may_hold()
    with Network(2) as net:
        run = ElasticRun(runner, net, 2, delay_us=250000)
        run.wait_step(3)
        run.kill(1)
        run.wait_world(2)
        with runner.held_at_start():
            run.start(1)
            pid = wait_until(lambda: re.findall(r"spawned rank=3 incarnation=\d+ pid=(\d+)", run.log(1)), lambda: run.logs())[0]
            os.kill(int(pid), signal.SIGKILL)
            run.wait_log(0, "event=not_scaled")
        run.wait_world(4)
        summary = run.finish()
    as_if_resumed(run, summary, [(2, "2,3", "none"), (4, "none", "2,3")], ["shrink", "grow"])


def by_word(runner):
    """Two hosts of three by an operator's word. Nobody fills their places but another word; what is away cannot be had."""
    with Network(3) as net:
        run = ElasticRun(runner, net, 3)
        run.wait_step(3)
        must("with 4 ranks" in run.order(0, 4), "two leave")
        step = run.status()["step"]
        run.wait_step(step + 10)
        must(run.status()["world"] == {"ranks": 4, "places": 6, "wanted": 4}, lambda: f"they stay away: {run.status()}")
        must("with 6 ranks" in run.order(1, 6), "two come")
        run.order(0, 4)
        run.kill(2)
        run.wait_log(0, "event=node_lost node=2")
        # Refused at once, or begun and given up where the loss is told meanwhile.
        said = run.order(0, 6, codes=(1, 2))
        must("the node of rank 4 is away" in said or "rank 4 was lost on its way into the run: its node is away" in said, said)
        run.start(2)
        wait_until(lambda: "event=node_back node=2" in run.log(0), "node 2")
        must("with 6 ranks" in run.order(0, 6), "two come")
        summary = run.finish()
    as_if_resumed(run, summary, [(4, "4,5", "none"), (6, "none", "4,5")] * 2)


def one_that_takes_no_part_is_stopped(runner):
    """By SIGTERM: it leaves alone, and the run goes on."""
    with Network(3) as net:
        run = ElasticRun(runner, net, 3)
        run.wait_step(3)
        run.order(0, 4)
        os.kill(run.launcher(2), signal.SIGTERM)
        must(run.launchers[2][0].wait(60) == 0, run.logs)
        summary = run.finish(nodes=[0, 1])
    as_if_resumed(run, summary, [(4, "4,5", "none")], ["shrink"])


def nothing_is_offered(runner):
    """As ever: the node is waited for, and then what is there is saved."""
    with Network(3) as net:
        run = ElasticRun(runner, net, 3, "--node-wait", "4", elastic=False)
        run.wait_step(3)
        run.kill(2)
        summary = run.finish(expect=75, nodes=[0, 1])
    must(summary["incidents"][0]["path"] == "dump" and not run.changes(), lambda: f"{summary['incidents']}\n{run.logs()}")


SHORT = [
    ("3 hosts lose one for good: 4 ranks go on, bit for bit as if saved and resumed", goes_on_without),
    ("2 hosts lose one, and it comes back, at first in vain: 4 ranks, 2, and 4 again", comes_and_goes_meanwhile),
]
FULL = [
    ("2 hosts lose one, and it comes back: 4 ranks, 2, and 4 again", comes_back),
    ("a host that is cut off, and back", is_cut_off_and_back),
    ("the leader's host is lost, and comes back", the_leader_is_lost_and_comes_back),
    ("the leader's host is lost while others come", the_leader_is_lost_while_others_come),
    ("a second host is lost meanwhile", a_second_one_is_lost_meanwhile),
    ("a newcomer is killed, and another one comes", a_newcomer_is_killed),
    ("orders over several hosts", by_word),
    ("a host that takes no part is stopped", one_that_takes_no_part_is_stopped),
    ("a program that offers nothing waits, saves and leaves", nothing_is_offered),
]

if __name__ == "__main__":
    sys.exit(script(__doc__, SHORT, FULL))
