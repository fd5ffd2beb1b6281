"""Runs over several hosts, each a network namespace: one launcher on each, the controller on node 0."""
import json
import os
import signal
import subprocess
import sys

from harness import SLOWNESS, SMALL, Failure, must_be_same, named, only_incident, reference, same_training, script
from live_run import ask, wait_until
from network import Network

STEPS = ["--steps", "40", "--step-delay-us", "50000", *SMALL]
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
        return ask(self.run_dir(node) / "control.sock", "status")

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


def a_killed_rank_of_another_host_is_replaced_there(runner):
    """Hosts that have been up for so much longer than each other, too: nothing of a clock means something elsewhere."""
    with Network(2, clocks=[0, 500000]) as net:
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
        run = NodesRun(runner, net, 2, trainer_args=["--steps", "400", "--step-delay-us", "50000", *SMALL])
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


TESTS = named(a_killed_rank_of_another_host_is_replaced_there, a_spare_of_another_host_takes_the_place, faults_on_every_host,
              a_launcher_takes_the_place_of_a_silent_one_once, a_killed_launcher_comes_back, a_host_gone_for_good, asked_on_any_host,
              preemption_of_one_node_stops_all)

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
