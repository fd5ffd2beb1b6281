"""Runs over several hosts, each a network namespace: one launcher on each, the controller on node 0."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import sockets
from harness import SLOWNESS, Failure, must_be_same, only_incident, reference, same_training, script
from live_run import wait_until
from network import Network

STEPS = ["--steps", "40", "--step-delay-us", "50000"]
PORT = 29400


class NodesRun:
    """`kintsugi run --nnodes N` on the hosts of a network."""

    def __init__(self, runner, net, nodes, nproc=2, run_args=(), trainer_args=(), spares=0):
        self.runner, self.net, self.nodes, self.nproc, self.spares = runner, net, nodes, nproc, spares
        self.port = getattr(net, "port", PORT)
        self.run_args, self.trainer_args = list(run_args), list(trainer_args)
        self.secret = runner.folder / "secret"
        self.secret.write_bytes(os.urandom(32))
        self.secret.chmod(0o600)
        self.launchers = {}
        self.starts = 0
        for node in range(nodes + spares):
            self.start(node)

    def line(self, node):
        nodes = f"{self.nodes}:{self.nodes + self.spares}" if self.spares else str(self.nodes)
        spare = node >= self.nodes and not self.spares  # one that nobody was told of
        rank = ["--spare-node", "--node-rank", str(node - self.nodes)] if spare else ["--node-rank", str(node)]
        line = self.runner.command([*self.run_args, "--nnodes", nodes, *rank, "--rendezvous",
                                    f"{self.net.address(0)}:{self.port}", "--secret-file", str(self.secret), "--run-dir",
                                    str(self.run_dir(node))], self.trainer_args, self.nproc)
        return line

    def run_dir(self, node):
        return self.runner.folder / f"node-{node}"

    def start(self, node):
        self.starts += 1
        err = open(self.runner.folder / f"node-{node}.{self.starts}.err", "w+b")
        out = open(self.runner.folder / f"node-{node}.out", "w+b")
        process = self.net.popen(node, self.line(node), cwd=self.runner.folder, stdout=out, stderr=err)
        self.launchers[node] = (process, err, out)

    def launcher(self, node):
        """The process id of the launcher itself, which `ip` became."""
        return self.launchers[node][0].pid

    def log(self, node):
        with open(self.launchers[node][1].name, errors="replace") as file:
            return "".join(line for line in file if not line.startswith("step "))

    def logs(self):
        return "".join(f"---- node {node}\n{self.log(node)[-3000:]}" for node in self.launchers)

    def status(self, node=0):
        done = self.runner.tool(["status", "--run", str(self.run_dir(node)), "--json"])
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait_status(self, condition, what, node=0):
        def look():
            if self.launchers[node][0].poll() is not None:
                raise Failure(f"the run ended before: {what}\n{self.logs()}")
            status = self.status(node)
            return status if status and condition(status) else None
        return wait_until(look, what)

    def wait_step(self, step, node=0):
        return self.wait_status(lambda s: s["step"] >= step and s["phase"] == "RUNNING", f"step {step}", node)

    def wait_log(self, node, text):
        wait_until(lambda: text in self.log(node), lambda: f"'{text}' in the log of node {node}\n{self.logs()}")

    def finish(self, expect=0, nodes=None, seconds=120, leader=0):
        for node in nodes if nodes is not None else self.launchers:
            process = self.launchers[node][0]
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise Failure(f"node {node} does not end\n{self.logs()}") from None
            if code != expect:
                raise Failure(f"node {node}: exit code {code}, expected {expect}\n{self.logs()}")
        orphans = self.runner.orphans()
        if orphans:
            raise Failure(f"left running: {orphans}")
        # The last leader has the summary.
        with open(self.launchers[leader][2].name) as file:
            text = file.read()
        return json.loads(text) if text.strip() else None


def same_bits(runner, run, trainer_args=STEPS):
    summary = run.finish()
    must_be_same(reference(runner.bin, trainer_args), summary, run.logs())
    return summary


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


def a_launcher_takes_the_place_of_a_silent_one_once(runner):
    """The node's launcher is stopped, and another one, elsewhere, says it is that node: it gets the place after the
    silence limit, and the first one, awake again, is told so and ends."""
    with Network(3) as net:
        run = NodesRun(runner, net, 2, run_args=["--silence", str(SLOWNESS)], trainer_args=STEPS)
        run.wait_step(5)
        first = run.launchers[1][0]
        os.kill(run.launcher(1), signal.SIGSTOP)
        line = run.line(1)
        line[line.index("--run-dir") + 1] = str(runner.folder / "second")
        err, out = open(runner.folder / "second.err", "w+b"), open(runner.folder / "second.out", "w+b")
        second = net.popen(2, line, cwd=runner.folder, stdout=out, stderr=err)
        run.launchers[1] = (second, err, out)
        run.wait_log(1, "event=welcomed")
        os.kill(first.pid, signal.SIGCONT)
        if first.wait(60) == 0:
            raise Failure("the first launcher does not know that it was replaced")
        summary = run.finish()
    # What the first launcher had not told is lost with it.
    difference = same_training(reference(runner.bin, STEPS), summary, reports_lost=True)
    if difference or len(summary["incidents"]) != 1:
        raise Failure(f"{difference} {json.dumps(summary['incidents'])[:1500]}\n{run.logs()}")


def a_run_over_two_hosts_has_the_bits_of_one(runner):
    """Hosts that have been up for so much longer than each other, too: nothing of a clock means something elsewhere."""
    with Network(2, clocks=[0, 500000]) as net:
        summary = same_bits(runner, NodesRun(runner, net, 2, trainer_args=STEPS))
    if summary["incidents"]:
        raise Failure(f"incidents: {summary['incidents']}")


def a_killed_rank_of_another_host_is_replaced_there(runner):
    with Network(2) as net:
        run = NodesRun(runner, net, 2, run_args=["--inject", "kill:3@12:update"], trainer_args=STEPS)
        incident = only_incident(same_bits(runner, run))
        if incident["path"] != "respawn" or incident["ranks"] != [3] or "SIGKILL" not in incident["cause"]:
            raise Failure(f"{incident}")
        if incident["detected_ms"] > 1000:
            raise Failure(f"the injector's stamp came over as a foreign instant: {incident}")


def a_spare_of_another_host_takes_the_place(runner):
    with Network(2) as net:
        run = NodesRun(runner, net, 2, run_args=["--no-adopt", "--spares", "1"], trainer_args=STEPS)
        status = run.wait_status(lambda s: s["spares"]["waiting"] == 2, "a spare on each host")
        os.kill(status["ranks"][3]["pid"], signal.SIGKILL)
        summary = same_bits(runner, run)
        incident = only_incident(summary)
        if incident["path"] != "spare" or "event=spare_took_over rank=3 " not in run.log(1):
            raise Failure(f"{incident}\n{run.logs()}")


def faults_on_every_host(runner):
    faults = ["throw:0@8:forward", "uce:2@14:backward,level=high", "freeze:1@20:gate", "kill:2@27:param-sync"]
    with Network(2) as net:
        run = NodesRun(runner, net, 2, run_args=[x for f in faults for x in ("--inject", f)] + ["--silence", str(0.6 * SLOWNESS)],
                       trainer_args=STEPS)
        summary = same_bits(runner, run)
    if len(summary["incidents"]) != len(faults):
        raise Failure(f"{len(summary['incidents'])} incidents, expected {len(faults)}\n{run.logs()}")


def a_fault_elsewhere_began_when_it_is_told(runner):
    """A rank of another host says when its connection broke, and no launcher has seen that. Its host has not been up for as long as
    the leader's, by less than the run goes on: told raw, the instant would be one of this run, and before the fault."""
    behind = 8
    with Network(2, clocks=[behind, 0]) as net:
        run = NodesRun(runner, net, 2, trainer_args=["--steps", "300", "--step-delay-us", "50000"])
        run.wait_step(1)
        time.sleep(behind + 4)
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


def must_end_alike(runner, run, summary, trainer_args, nproc):
    """What a launcher had not passed on of its ranks' reports when it was killed is lost, so the sums of losses and samples
    may lack a step. The state may not differ."""
    expected = reference(runner.bin, trainer_args, nproc=nproc)
    difference = same_training(expected, summary, reports_lost=True)
    if difference:
        raise Failure(f"{difference}\n{run.logs()}")
    lost = expected["samples_consumed"] - summary["samples_consumed"]
    if not 0 <= lost <= expected["samples_consumed"] // 10:
        raise Failure(f"{lost} samples of {expected['samples_consumed']} are not accounted for\n{run.logs()}")


def a_killed_launcher_comes_back(runner):
    """Its ranks die with it; a launcher started anew for the same node takes them over."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, trainer_args=STEPS)
        run.wait_step(5)
        os.kill(run.launcher(2), signal.SIGKILL)
        # Every log says who is waited for, how long, and what to do.
        for node in (0, 1):
            run.wait_log(node, 'event=node_lost node=2 ')
            line = next(line for line in run.log(node).splitlines() if "event=node_lost" in line)
            if 'waits="60 s for node 2"' not in line or "--node-rank 2" not in line or f"node={node} job=" not in line:
                raise Failure(line)
        run.start(2)
        must_end_alike(runner, run, run.finish(), STEPS, 6)
        if any("event=node_back node=2 " not in run.log(node) for node in (0, 1)):
            raise Failure(run.logs())


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
    """200 ms one way: everything takes longer, nothing is given up."""
    steps = ["--steps", "6"]
    with Network(2) as net:
        net.delay(0.2)
        run = NodesRun(runner, net, 2, run_args=["--silence", "2", "--inject", "kill:2@3:update"], trainer_args=steps)
        summary = same_bits(runner, run, steps)
        if only_incident(summary)["path"] != "respawn":
            raise Failure(f"{summary['incidents']}")


def a_host_gone_for_good(runner):
    """Every shard has a holder elsewhere: the others dump, and the checkpoint resumes to the same bits."""
    with Network(2) as net:
        run = NodesRun(runner, net, 2, run_args=["--node-wait", "1", "--max-respawns", "2"], trainer_args=STEPS)
        run.wait_step(5)
        os.kill(run.launcher(1), signal.SIGKILL)
        summary = run.finish(expect=75, nodes=[0])
        incident = summary["incidents"][-1]
        if incident["path"] != "dump":
            raise Failure(f"{summary['incidents']}\n{run.logs()}")
        why = {reason["rung"]: reason["reason"] for reason in incident["reasons"]}["respawn"]
        if "node 1 did not come back within 1 s" not in why or "replacement of rank" in run.log(0):
            raise Failure(f"{why}\n{run.logs()}")
    resumed, _ = runner.run(["--resume", str(runner.folder / "checkpoints")], STEPS)
    if resumed["final_digest"] != reference(runner.bin, STEPS)["final_digest"]:
        raise Failure("the resumed run has other bits")


def preemption_of_one_node_stops_all(runner):
    with Network(2) as net:
        run = NodesRun(runner, net, 2, trainer_args=STEPS)
        run.wait_step(5)
        os.kill(run.launcher(1), signal.SIGTERM)
        run.finish(expect=75)
    resumed, _ = runner.run(["--resume", str(runner.folder / "checkpoints")], STEPS)
    if resumed["final_digest"] != reference(runner.bin, STEPS)["final_digest"]:
        raise Failure("the resumed run has other bits")


def asked_on_any_host(runner):
    """What only the leader knows is passed on to it, and a fault to the host of its rank."""
    def ask(run, node, *command, expect=0):
        done = runner.tool([command[0], "--run", str(run.run_dir(node)), *command[1:]])
        if done.returncode != expect:
            raise Failure(f"{command} on node {node}: code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    with Network(2) as net:
        run = NodesRun(runner, net, 2, trainer_args=["--steps", "400", "--step-delay-us", "50000"])
        run.wait_step(3, node=1)
        if [rank["node"] for rank in run.status(1)["ranks"]] != [0, 0, 1, 1]:
            raise Failure(f"{run.status(1)}")
        for node, rank in ((1, 0), (0, 3), (1, 2)):
            ahead = run.status(node)["step"] + 10
            ask(run, node, "inject", f"throw:{rank}@{ahead}:forward")
            wanted = run.status(node)["incidents"] + 1
            run.wait_status(lambda s: s["incidents"] >= wanted and s["phase"] == "RUNNING", "the incident", node)
        if "there is no rank 9" not in ask(run, 1, "inject", "throw:9@900", expect=2):
            raise Failure("a rank that is not there was taken")
        if not ask(run, 1, "save").startswith("saved step "):
            raise Failure("no word of the save")
        if "incident 3" not in ask(run, 1, "explain"):
            raise Failure("explain does not know the incidents")
        lines = [sum("event=incident " in line for line in run.log(node).splitlines()) for node in (0, 1)]
        if lines != [3, 3]:
            raise Failure(f"{lines} lines of incidents in the logs\n{run.logs()}")
        ask(run, 1, "stop")
        run.finish(expect=75)


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
        run = NodesRun(runner, net, 2, trainer_args=["--steps", "12"])
        for node in (0, 1):
            run.wait_log(node, "waiting for that to change, 120 s at most")
            if "'trainer-0': " not in run.log(node):
                raise Failure(run.logs())
        for host in (0, 1):
            net.write_hosts(host, f"{place} trainer-0")
        run.wait_log(0, f"no road to {place}")
        net.address = lambda host: place
        net.set_address(0, True)
        must_be_same(reference(runner.bin, ["--steps", "12"]), run.finish(), run.logs())


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
        steps = ["--steps", "60", "--step-delay-us", "30000"]
        with Network(2) as net:
            run = NodesRun(runner, net, 2, run_args=["--restarts", "30", "--resume", "auto", "--save-every", "2", "--node-wait", "1",
                                                     "--join-timeout", str(3 * SLOWNESS)], trainer_args=steps)
            run.wait_step(10)
            stays = 1 - host
            os.killpg(run.launcher(host), signal.SIGKILL)
            run.launchers[host][0].wait()
            run.wait_log(stays, "event=restart start=4 ")  # two starts in vain
            run.start(host)
            run.launchers[host][0].wait(120 * SLOWNESS)
            summary = run.finish(leader=0)
            if summary["final_digest"] != reference(runner.bin, steps)["final_digest"]:
                raise Failure(f"{summary['final_digest']}\n{run.logs()}")
    return test


TESTS = [(test.__name__.replace("_", " "), test) for test in (
    a_run_over_two_hosts_has_the_bits_of_one, a_killed_rank_of_another_host_is_replaced_there,
    a_spare_of_another_host_takes_the_place, faults_on_every_host, a_fault_elsewhere_began_when_it_is_told,
    another_launcher_of_the_same_node_is_refused, a_launcher_takes_the_place_of_a_silent_one_once,
    a_killed_launcher_comes_back, a_short_cut_costs_nothing, a_node_cut_off_and_back, hosts_cut_off_one_after_another,
    one_direction_lost, a_closed_road_between_two_hosts, a_slow_network, a_host_gone_for_good, asked_on_any_host, preemption_of_one_node_stops_all, mistakes,
    nodes_that_do_not_come, a_meeting_that_cannot_succeed, names_and_interfaces_that_come_late, a_name_that_nobody_makes_known)]
TESTS += [(f"host {host} reboots", a_host_that_reboots(host)) for host in (0, 1)]

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
