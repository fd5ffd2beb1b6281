"""Two hosts that are parted, and a witness on a third: Debian's etcd decides which half goes on."""
import os
import shutil
import signal
import subprocess
import sys

from harness import Failure, Skip, must_be_same, named, reference, script
from live_run import wait_until
from network import Network
from nodes import NodesRun, must_end_alike
from takeovers import LONG

CLIENT_PORT = 2379
ETCD_HOST = 2  # behind the two of the run


class Etcd:
    """One member on a host of the network, its data in the test's folder."""

    def __init__(self, runner, net):
        self.net, self.folder = net, runner.folder / "etcd"
        self.address = f"{net.address(ETCD_HOST)}:{CLIENT_PORT}"
        self.log = open(runner.folder / "etcd.log", "wb")
        self.start()

    def start(self):
        self.process = self.net.popen(
            ETCD_HOST, ["etcd", "--data-dir", str(self.folder), "--listen-client-urls", f"http://{self.address}",
                        "--advertise-client-urls", f"http://{self.address}", "--listen-peer-urls", "http://127.0.0.1:2380",
                        "--initial-advertise-peer-urls", "http://127.0.0.1:2380", "--initial-cluster",
                        "default=http://127.0.0.1:2380", "--log-level", "error"],
            stdout=self.log, stderr=self.log)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class WitnessRun(NodesRun):
    """Two nodes of two ranks; node 1 waits less for its other half than node 0, so that the tests end soon."""

    def __init__(self, runner, net, witness, waits=(60, 60), run_args=()):
        self.waits = waits
        super().__init__(runner, net, 2, run_args=["--witness", witness, *run_args], trainer_args=LONG)

    def line(self, node):
        line = super().line(node)
        return [*line[:2], "--node-wait", str(self.waits[node]), *line[2:]]

    def wait_decided_by(self, rule):
        for node in range(2):
            self.wait_log(node, f"decided_by={rule}")


def world(runner):
    if not shutil.which("etcd"):
        raise Skip("etcd is not installed (Debian: etcd-server)")
    return Network(3)


def must_leave(run, node):
    """It alone; the other half goes on."""
    code = run.launchers[node][0].wait(60)
    if code != 75:
        raise Failure(f"node {node}: exit code {code}, expected 75\n{run.logs()}")


def must_have_left_latest(runner):
    if (runner.folder / "checkpoints" / "latest").exists():
        raise Failure("the half without the witness moved `latest`")


def a_run_that_nothing_happens_to(runner):
    """It meets its witness, and the witness's death and return are no faults."""
    with world(runner) as net:
        etcd = Etcd(runner, net)
        run = WitnessRun(runner, net, etcd.address)
        run.wait_decided_by("witness")
        etcd.kill()
        run.wait_decided_by("lowest-rank")
        etcd.start()
        wait_until(lambda: run.log(0).count("decided_by=witness") == 2, f"the witness again\n{run.logs()}")
        summary = run.finish()
        must_be_same(reference(runner.bin, LONG), summary, run.logs())
        if summary["incidents"]:
            raise Failure(f"{summary['incidents']}\n{run.logs()}")


def the_roads_between_the_halves_are_cut(runner):
    """Exactly one half gets the lease. The other says so, saves without `latest`, and leaves; its host comes back."""
    with world(runner) as net:
        etcd = Etcd(runner, net)
        run = WitnessRun(runner, net, etcd.address, waits=(60, 3))
        run.wait_decided_by("witness")
        run.wait_step(4)
        hold_back(net, 1)
        net.cut(0, 1)
        run.wait_log(0, "event=witness_lease ")
        net.cuts -= {(1, ETCD_HOST), (ETCD_HOST, 1)}
        run.wait_log(1, "event=no_majority")
        must_leave(run, 1)
        if "event=witness_lease " in run.log(1):
            raise Failure(f"both halves had the lease\n{run.logs()}")
        must_have_left_latest(runner)
        net.heal()
        run.start(1)
        must_end_alike(runner, run, run.finish(), LONG, 4)


def hold_back(net, host):
    """The witness is out of this host's reach: the other half asks it first."""
    net.cut(host, ETCD_HOST)


def whoever_asks_first(runner):
    """Both halves reach the witness: one goes on, whichever, and never both."""
    with world(runner) as net:
        etcd = Etcd(runner, net)
        run = WitnessRun(runner, net, etcd.address, waits=(5, 5))
        run.wait_decided_by("witness")
        run.wait_step(4)
        net.cut(0, 1)
        run.finish(expect=75, leader=0)
        leased = [node for node in range(2) if "event=witness_lease " in run.log(node)]
        if len(leased) != 1:
            raise Failure(f"{leased} had the lease\n{run.logs()}")
        if not (runner.folder / "checkpoints" / "latest").exists():
            raise Failure(f"the half with the lease did not mark its checkpoint\n{run.logs()}")
    resumed, _ = runner.run(["--resume", str(runner.folder / "checkpoints")], LONG)
    if resumed["final_digest"] != reference(runner.bin, LONG)["final_digest"]:
        raise Failure("the resumed run has other bits")


def the_controllers_host_is_gone(runner):
    """The other half, which without a witness would have to leave, takes over and goes on."""
    with world(runner) as net:
        etcd = Etcd(runner, net)
        run = WitnessRun(runner, net, etcd.address)
        run.wait_decided_by("witness")
        run.wait_step(4)
        os.kill(run.launcher(0), signal.SIGKILL)
        run.wait_log(1, "event=leads node=1")
        run.start(0)
        must_end_alike(runner, run, run.finish(leader=1), LONG, 4)


def a_holder_that_slept_is_refused(runner):
    """The half with the lease sleeps until it has run out and the other half has it: it does not act on what it had."""
    with world(runner) as net:
        etcd = Etcd(runner, net)
        run = WitnessRun(runner, net, etcd.address)
        run.wait_decided_by("witness")
        run.wait_step(4)
        hold_back(net, 1)
        net.cut(0, 1)
        run.wait_log(0, "event=witness_lease ")
        run.wait_log(0, "to=ADMIT")
        os.kill(run.launcher(0), signal.SIGSTOP)
        net.cuts -= {(1, ETCD_HOST), (ETCD_HOST, 1)}
        run.wait_log(1, "event=witness_lease ")
        run.wait_log(1, "event=leads node=1")
        os.kill(run.launcher(0), signal.SIGCONT)
        run.wait_log(0, "word is not ours any more")
        net.heal()
        run.wait_log(0, "steps_down")
        must_end_alike(runner, run, run.finish(leader=1), LONG, 4)


def the_witness_is_gone_before_the_split(runner):
    """All agreed that the lowest rank decides; so it does."""
    with world(runner) as net:
        etcd = Etcd(runner, net)
        run = WitnessRun(runner, net, etcd.address, waits=(60, 3))
        run.wait_decided_by("witness")
        etcd.kill()
        run.wait_decided_by("lowest-rank")
        net.cut(0, 1)
        run.wait_log(1, "event=no_majority")
        must_leave(run, 1)
        must_have_left_latest(runner)
        net.heal()
        run.start(1)
        must_end_alike(runner, run, run.finish(), LONG, 4)


def the_witness_and_the_road_go_together(runner):
    """Nobody can tell whether the other half hears the witness: both park, save and leave."""
    with world(runner) as net:
        etcd = Etcd(runner, net)
        run = WitnessRun(runner, net, etcd.address, waits=(3, 3))
        run.wait_decided_by("witness")
        run.wait_step(4)
        etcd.kill()
        net.cut(0, 1)
        run.finish(expect=75)
        must_have_left_latest(runner)


def mistakes(runner):
    """A witness must be every node's, and etcd's TLS is refused by name."""
    with world(runner) as net:
        etcd = Etcd(runner, net)
        for value, said in (("https://10.77.0.3:2379", "TLS to etcd"), ("10.77.0.3", "HOST:PORT")):
            done = runner.tool(["run", "--nnodes", "2", "--node-rank", "0", "--rendezvous", "10.77.0.1:29400", "--secret-file",
                                "none", "--witness", value, "--", "true"])
            if done.returncode != 2 or said not in done.stderr:
                raise Failure(f"code {done.returncode}, expected '{said}' in: {done.stderr}")
        run = WitnessRun(runner, net, etcd.address)
        run.wait_decided_by("witness")
        line = [word for word in run.line(1)]
        at = line.index("--witness")
        del line[at:at + 2]
        line[line.index("--run-dir") + 1] += "-x"
        stranger = net.popen(1, line, cwd=runner.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        _, err = stranger.communicate(timeout=60)
        if stranger.returncode not in (2, 3) or "--witness: give it to every node" not in err:
            raise Failure(f"code {stranger.returncode}: {err}")
        must_be_same(reference(runner.bin, LONG), run.finish(), run.logs())


SHORT = named(a_run_that_nothing_happens_to, the_roads_between_the_halves_are_cut, the_controllers_host_is_gone, a_holder_that_slept_is_refused,
              the_witness_and_the_road_go_together, mistakes)
FULL = named(whoever_asks_first, the_witness_is_gone_before_the_split)

if __name__ == "__main__":
    sys.exit(script(__doc__, SHORT, FULL))
