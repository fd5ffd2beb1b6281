"""Spare nodes: hosts without ranks that take those of a host which stays away; the bits stay the same.

The first scenario is four launchers on this host; the others (--full) give each host a network of its own."""
import os
import signal
import socket
import subprocess
import sys

from harness import SMALL, Failure, must_be_same, named, reference, same_training, script
from network import Network
from nodes import NodesRun, must_end_alike
from takeovers import wait_leader

TRAINER = ["--steps", "40", "--step-delay-us", "100000", *SMALL]
LONG = ["--steps", "100", "--step-delay-us", "100000", *SMALL]
SPARE = ["--spare-after", "1.5"]


class OneHost:
    """All launchers on this host, in place of a network."""

    def __init__(self):
        self.children = []
        with socket.socket() as probe:  # the launchers take the ports above it, or others
            probe.bind(("127.0.0.1", 0))
            self.port = min(probe.getsockname()[1], 65000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    @staticmethod
    def address(_):
        return "127.0.0.1"

    def popen(self, _, line, **options):
        self.children.append(subprocess.Popen(line, start_new_session=True, **options))
        return self.children[-1]


def wait_warm(run, spares, node=0):
    """The spare nodes are here, and their processes have loaded their program."""
    warm = len(spares) * run.nproc
    return run.wait_status(lambda s: s["spare_nodes"] == spares and s["spares"]["waiting"] >= warm and s["step"] >= 5,
                           f"{warm} warm processes on the nodes {spares}", node)


def wait_place(run, rank, node, leader=0):
    return run.wait_status(lambda s: s["phase"] == "RUNNING" and s["ranks"][rank]["node"] == node,
                           f"rank {rank} on node {node}", leader)


def taken_over(run, leader, node, ranks):
    line = f'event=spare_node_takes_over node={node} '
    found = [each for each in run.log(leader).splitlines() if line in each]
    if len(found) != 1 or f'ranks="{ranks}"' not in found[0]:
        raise Failure(f"{line}: {found}\n{run.logs()}")


def a_lost_host_does_not_end_the_run(runner):
    """One of three is gone for good, with its launcher and its ranks: the spare has its ranks, in processes that waited."""
    with OneHost() as net:
        run = NodesRun(runner, net, 3, run_args=SPARE, trainer_args=TRAINER, spares=1)
        wait_warm(run, [3])
        os.kill(run.launcher(2), signal.SIGKILL)
        status = wait_place(run, 4, 3)
        if status["nodes_away"] != [2] or status["spare_nodes"]:
            raise Failure(f"nodes away {status['nodes_away']}, spare {status['spare_nodes']}\n{run.logs()}")
        summary = run.finish(nodes=[0, 1, 3])
        must_end_alike(runner, run, summary, TRAINER, 6)
        taken_over(run, 0, 3, "4 to 5")
        paths = [incident["path"] for incident in summary["incidents"]]
        if paths != ["spare"] or "spare_took_over rank=4" not in run.log(3):
            raise Failure(f"{paths}\n{run.logs()}")


def a_host_that_was_cut_off_returns_as_the_spare(runner):
    """Its ranks live on behind the cut. When the road heals they are ended, and their node takes the ranks of the next one
    that is lost: of the one that took its own."""
    with Network(4) as net:
        run = NodesRun(runner, net, 3, run_args=SPARE, trainer_args=LONG, spares=1)
        wait_warm(run, [3])
        net.isolate(2)
        wait_place(run, 4, 3)
        net.heal()
        wait_warm(run, [2])
        os.kill(run.launcher(3), signal.SIGKILL)
        wait_place(run, 5, 2)
        summary = run.finish(nodes=[0, 1, 2])
        must_end_alike(runner, run, summary, LONG, 6)


def a_host_that_another_cannot_reach_loses_its_ranks(runner):
    """Its launcher is here, and so are its ranks; only the road between it and another host is closed."""
    with Network(4) as net:
        run = NodesRun(runner, net, 3, run_args=[*SPARE, "--step-timeout", "3", "--hang-least", "2"], trainer_args=LONG, spares=1)
        wait_warm(run, [3])
        net.cut(1, 2)
        wait_place(run, 4, 3)
        summary = run.finish(nodes=[0, 1, 2, 3])
        must_end_alike(runner, run, summary, LONG, 6)
        taken_over(run, 0, 3, "4 to 5")
        if "event=node_cut_off node=2 " not in run.log(0) or "event=unreachable " not in run.log(3):
            raise Failure(run.logs())


def the_leaders_host_is_lost(runner):
    """First another one leads, then the spare has the ranks."""
    with Network(4) as net:
        run = NodesRun(runner, net, 3, run_args=SPARE, trainer_args=LONG, spares=1)
        wait_warm(run, [3])
        os.kill(run.launcher(0), signal.SIGKILL)
        leader, _ = wait_leader(run)
        summary = run.finish(nodes=[1, 2, 3], leader=leader)
        must_end_alike(runner, run, summary, LONG, 6)
        taken_over(run, leader, 3, "0 to 1")


def the_leader_dies_while_a_spare_takes_over(runner):
    """What was decided and not yet agreed on is taken up by the one that leads next. Of each shard the third host has a
    copy."""
    copies = ["--replicas", "3"]
    with Network(4) as net:
        run = NodesRun(runner, net, 3, run_args=[*SPARE, *copies], trainer_args=LONG, spares=1)
        wait_warm(run, [3])
        os.kill(run.launcher(2), signal.SIGKILL)
        run.wait_log(0, "event=spare_node_takes_over")
        os.kill(run.launcher(0), signal.SIGKILL)
        run.start(0)  # else nobody has a majority: four of six ranks have ended
        leader, _ = wait_leader(run)
        summary = run.finish(nodes=[0, 1, 3], leader=leader)
        difference = same_training(reference(runner.bin, LONG, copies, 6), summary, reports_lost=True)
        if difference:
            raise Failure(f"{difference}\n{run.logs()}")


def two_hosts_are_lost_and_two_spares_have_their_ranks(runner):
    with Network(6) as net:
        run = NodesRun(runner, net, 4, nproc=1, run_args=SPARE, trainer_args=LONG, spares=2)
        wait_warm(run, [4, 5])
        for lost, spare in ((3, 4), (2, 5)):
            os.kill(run.launcher(lost), signal.SIGKILL)
            wait_place(run, lost, spare)
        summary = run.finish(nodes=[0, 1, 4, 5])
        must_end_alike(runner, run, summary, LONG, 4)


def a_spare_that_dies_with_the_ranks_it_took(runner):
    """Of two spares the second takes over what the first one had."""
    with Network(5) as net:
        run = NodesRun(runner, net, 3, run_args=SPARE, trainer_args=LONG, spares=2)
        wait_warm(run, [3, 4])
        os.kill(run.launcher(2), signal.SIGKILL)
        run.wait_log(0, "event=spare_node_takes_over")
        os.kill(run.launcher(3), signal.SIGKILL)
        wait_place(run, 4, 4)
        summary = run.finish(nodes=[0, 1, 4])
        must_end_alike(runner, run, summary, LONG, 6)


def a_spare_that_comes_when_the_host_is_lost(runner):
    """Nothing was said of spares before; the run waits for its host."""
    with Network(4) as net:
        run = NodesRun(runner, net, 3, run_args=SPARE, trainer_args=LONG)
        run.wait_step(5)
        os.kill(run.launcher(1), signal.SIGKILL)
        run.wait_log(0, "event=node_lost node=1 ")
        run.start(3)
        wait_place(run, 2, 3)
        summary = run.finish(nodes=[0, 2, 3])
        must_end_alike(runner, run, summary, LONG, 6)


def a_second_launcher_of_a_spare_is_refused(runner):
    with OneHost() as net:
        run = NodesRun(runner, net, 3, run_args=SPARE, trainer_args=TRAINER, spares=1)
        wait_warm(run, [3])
        line = run.line(3)
        line[line.index("--run-dir") + 1] = str(runner.folder / "copy")
        copy = net.popen(3, line, cwd=runner.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = copy.communicate(timeout=60)[1].decode(errors="replace")
        if copy.returncode != 2 or "node 3 is here already" not in said:
            raise Failure(f"the copy: code {copy.returncode}\n{said}")
        summary = run.finish()
        must_be_same(reference(runner.bin, TRAINER, nproc=6), summary, run.logs())


def drain(runner, run, node, asked_at=0, expect=0):
    done = runner.tool(["drain", "--run", str(run.run_dir(asked_at)), "--node", str(node)], timeout=120)
    if done.returncode != expect:
        raise Failure(f"drain --node {node}: code {done.returncode}\n{done.stdout}{done.stderr}\n{run.logs()}")
    return done.stdout + done.stderr


def leaves(run, node):
    """The launcher of a node that has no ranks any more."""
    os.kill(run.launcher(node), signal.SIGTERM)
    code = run.launchers[node][0].wait(60)
    if code != 0:
        raise Failure(f"node {node} left with {code}\n{run.logs()}")


def a_drained_node_is_free_of_its_ranks(runner):
    """First one that follows, asked for on another; then the one that leads, whose ranks the first one's new launcher takes. Both
    launchers leave with 0, and the bits are the undisturbed ones."""
    trainer = ["--steps", "150", "--step-delay-us", "50000", *SMALL]  # a drain waits for the end of a step, for no long one
    with OneHost() as net:
        run = NodesRun(runner, net, 3, run_args=SPARE, trainer_args=trainer, spares=1)
        wait_warm(run, [3])
        told = drain(runner, run, 2, asked_at=1)
        if "drained node 2" not in told:
            raise Failure(told)
        status = run.status()
        if [rank["node"] for rank in status["ranks"]] != [0, 0, 1, 1, 3, 3] or status["nodes_away"] or status["spare_nodes"]:
            raise Failure(f"{status}")
        if "has no ranks" not in drain(runner, run, 2):
            raise Failure("drained twice")
        leaves(run, 2)
        run.start(2)
        wait_warm(run, [2])
        if "drained node 0" not in drain(runner, run, 0):
            raise Failure("node 0")
        wait_place(run, 0, 2)
        leaves(run, 0)
        leader, _ = wait_leader(run)
        summary = run.finish(nodes=[1, 2, 3], leader=leader)
        must_end_alike(runner, run, summary, trainer, 6)
        if any(incident["steps_lost"] for incident in summary["incidents"]):
            raise Failure(f"steps were lost: {summary['incidents']}")


def without_a_spare_the_run_saves_and_leaves(runner):
    with OneHost() as net:
        run = NodesRun(runner, net, 2, trainer_args=LONG)
        run.wait_step(5)
        told = drain(runner, run, 7, expect=2)
        if "there is no node 7" not in told:
            raise Failure(told)
        if "no spare node is here" not in drain(runner, run, 1):
            raise Failure("it does not say that it leaves")
        run.finish(expect=75)
    if not (runner.folder / "checkpoints/latest").exists():
        raise Failure("nothing was saved")


SHORT = named(a_lost_host_does_not_end_the_run, a_drained_node_is_free_of_its_ranks, without_a_spare_the_run_saves_and_leaves)
FULL = named(a_host_that_was_cut_off_returns_as_the_spare, a_host_that_another_cannot_reach_loses_its_ranks,
             the_leaders_host_is_lost, the_leader_dies_while_a_spare_takes_over,
             two_hosts_are_lost_and_two_spares_have_their_ranks, a_spare_that_dies_with_the_ranks_it_took,
             a_spare_that_comes_when_the_host_is_lost, a_second_launcher_of_a_spare_is_refused)

if __name__ == "__main__":
    sys.exit(script(__doc__, SHORT, FULL))
