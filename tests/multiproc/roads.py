"""Roads between hosts that are cut, for a while or for good, in one direction, between two of them alone, or slow."""
import json
import re
import sys
import time

import sockets
from harness import SMALL, Failure, must_be_same, named, only_incident, reference, script
from live_run import wait_until
from network import Network
from nodes import STEPS, NodesRun, same_bits


def a_fault_elsewhere_began_when_it_is_told(runner):
    """A rank of another host says when its connection broke, and no launcher has seen that. Its host has not been up for as long as
    the leader's, by less than the run goes on: told raw, the instant would be one of this run, and before the fault."""
    behind = 5
    with Network(2, clocks=[behind, 0]) as net:
        run = NodesRun(runner, net, 2, trainer_args=["--steps", "110", "--step-delay-us", "100000", *SMALL])
        run.wait_step(1)
        time.sleep(behind + 3)
        one, other = (run.status()["ranks"][rank]["pid"] for rank in (2, 3))
        ends = {(remote, local) for _, local, remote in sockets.connections(other)}
        data = [fd for fd, local, remote in sockets.connections(one) if (local, remote) in ends]
        if not data or not sockets.shut(one, data[0]):
            raise Failure("no connection between the ranks of the other host was shut")
        told = [i for i in run.finish()["incidents"] if i["fault"] == "comm_error"]
    if len(told) != 1 or not set(told[0]["ranks"]) <= {2, 3}:
        raise Failure(f"{told}")
    if told[0]["detected_ms"] > 1000 * behind - 1000:
        raise Failure(f"when it began is told by another host's clock: {told}")


def a_short_cut_costs_nothing(runner):
    """Less than the silence limit: TCP sends again, nobody is given up."""
    with Network(2) as net:
        run = NodesRun(runner, net, 2, run_args=["--silence", "3"], trainer_args=STEPS)
        run.wait_step(5)
        net.cut(0, 1)
        time.sleep(0.5)
        net.heal()
        summary = same_bits(runner, run)
    if any(i["path"] != "resume" for i in summary["incidents"]):
        raise Failure(f"a short cut cost a repair: {summary['incidents']}")


def a_node_cut_off_and_back(runner):
    """Its ranks are given up while nobody can reach them; when the road heals they are ended and replaced."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, trainer_args=STEPS)
        run.wait_step(5)
        net.isolate(1)
        run.wait_log(0, "node_lost")
        run.wait_status(lambda s: s["phase"] == "ADMIT", "the ladder waits for replacements")
        net.heal()
        summary = run.finish()
        must_be_same(reference(runner.bin, STEPS, nproc=6), summary, run.logs())


def hosts_cut_off_one_after_another(runner):
    """Each is back before the next is away, and nobody dies by itself; but what was given up meanwhile is ended when its host
    is back, so that for a while some state lies in launchers' memory and on hosts that are away."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, run_args=["--node-wait", "30"], trainer_args=STEPS)
        run.wait_step(5)
        for node in (1, 2, 1, 2):
            lost = run.log(0).count("event=node_lost")
            net.isolate(node)
            wait_until(lambda: run.log(0).count("event=node_lost") > lost, lambda: f"node {node} lost\n{run.logs()}")
            net.heal()
        summary = run.finish()
        must_be_same(reference(runner.bin, STEPS, nproc=6), summary, run.logs())


def a_closed_road_between_two_hosts(runner):
    """Both reach the leader: nobody is lost, and no attempt can succeed. It is known who cannot reach whom; then the run is
    saved, by all."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, run_args=["--step-timeout", "2", "--hang-least", "2"], trainer_args=STEPS)
        run.wait_step(8)
        net.cut(1, 2)
        for node in (0, 1, 2):
            run.wait_log(node, "event=unreachable ")
        said = re.search(r' warning node=0 .* event=unreachable from="rank (\d) on [^"]*" to="rank (\d) on [^"]*" port=(\d+) ', run.log(0))
        if not said or sorted(int(rank) // 2 for rank in said.groups()[:2]) != [1, 2] or int(said[3]) < 1024:
            raise Failure(f"who could not reach whom\n{run.logs()}")
        summary = run.finish(expect=75)
        if len(summary["incidents"]) > 2 or "could not reach rank" not in json.dumps(summary["incidents"]):
            raise Failure(f"{summary['incidents']}")
        net.heal()
        run.run_args += ["--resume", str(runner.folder / "checkpoints")]
        for node in range(3):
            run.start(node)
        second = run.finish()
        expected = reference(runner.bin, STEPS, nproc=6)
        if summary["losses"] + second["losses"] != expected["losses"] or second["final_digest"] != expected["final_digest"]:
            raise Failure(f"other bits\n{run.logs()}")


def one_direction_lost(runner):
    """The controller hears the node, the node does not hear the controller."""
    with Network(2) as net:
        run = NodesRun(runner, net, 2, trainer_args=STEPS)
        run.wait_step(5)
        net.cut(0, 1, both=False)
        run.wait_log(0, "node_lost")
        net.heal()
        same_bits(runner, run)


def a_slow_network(runner):
    """100 ms one way: everything takes longer, nothing is given up."""
    steps = ["--steps", "4", *SMALL]
    with Network(2) as net:
        net.delay(0.1)
        run = NodesRun(runner, net, 2, run_args=["--silence", "2", "--inject", "kill:2@2:update"], trainer_args=steps)
        summary = same_bits(runner, run, steps)
        if only_incident(summary)["path"] != "respawn":
            raise Failure(f"{summary['incidents']}")


SHORT = named(a_fault_elsewhere_began_when_it_is_told, a_short_cut_costs_nothing, a_node_cut_off_and_back, one_direction_lost,
              a_closed_road_between_two_hosts, a_slow_network)
FULL = named(hosts_cut_off_one_after_another)

if __name__ == "__main__":
    sys.exit(script(__doc__, SHORT, FULL))
