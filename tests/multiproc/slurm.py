"""The real Slurm (Debian's daemons, two nodes on this host): srun starts the launchers, a rank is killed, a batch job is
preempted, requeued and goes on from its checkpoint.

  slurm.py BIN_DIR [--only WORD]...

Needs slurmctld, slurmd, srun and munged, and the rights of root; skipped where they are missing.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from chaos_runs import free_port
from harness import Failure, Skip, must_be_same, reference, script
from live_run import wait_until

TRAINER = ["--steps", "30"]
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scancel", "squeue", "munged")


class Cluster:
    """A Slurm of its own in a folder: its key, its socket, its ports."""

    def __init__(self, runner, nodes=2):
        missing = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
        if missing or os.geteuid() != 0:
            raise Skip("apt install slurmctld slurmd slurm-client munge, as root" if missing else "needs the rights of root")
        self.runner, self.folder = runner, runner.folder
        self.meetings = runner.folder / "meetings"
        self.daemons = []
        runner.live.append(self)
        host = socket.gethostname().split(".")[0]
        port = free_port()
        names = [f"n{node}" for node in range(nodes)]
        hosts = "\n".join(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4 State=UNKNOWN" for name in names)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        (self.folder / "state").mkdir()
        (self.folder / "munge").mkdir()
        self.folder.chmod(0o755)
        (self.folder / "slurm.conf").write_text(f"""ClusterName=kintsugi
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool.%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
KillWait=30
SlurmdTimeout=5
JobRequeue=1
{hosts}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"),
                            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "KINTSUGI_MEETING_DIR": str(self.meetings)}
        munge = self.folder / "munge"
        self.start("munged", "-F", "--force", f"--key-file={self.folder}/munge.key", f"--socket={munge}/socket",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        wait_until((munge / "socket").exists, "munged")
        self.start("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
        for name in names:
            self.start("slurmd", "-D", "-N", name, "-f", self.environment["SLURM_CONF"])
        wait_until(lambda: self.run("sinfo", "-h", "-o", "%D %t").stdout.strip() == f"{nodes} idle",
                   lambda: f"{nodes} idle nodes: {self.run('sinfo').stdout}\n{self.text('slurmctld.log')[-3000:]}")

    def start(self, *command):
        log = open(self.folder / f"{command[0]}.out", "a")
        with log:
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True))

    def run(self, *command, timeout=120):
        return subprocess.run(command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=timeout)

    def text(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def left(self, *words):
        """Processes that belong to this Slurm: their environment names its configuration, and has these words."""
        for entry in Path("/proc").iterdir():
            try:
                found = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if {f"SLURM_CONF={self.folder}/slurm.conf".encode(), *(word.encode() for word in words)} <= set(found):
                    yield int(entry.name)
            except OSError:
                continue

    def lose(self, node):
        """As when the power of a host fails: its daemon, the keepers of its steps, its tasks and their ranks are gone at once."""
        tasks = set(self.left(f"SLURM_NODEID={node}"))
        keepers = {int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) for pid in tasks}
        daemon = next(each for each in self.daemons if each.args[:4] == ("slurmd", "-D", "-N", f"n{node}"))
        for pid in {daemon.pid} | (keepers - {1}) | tasks:
            os.kill(pid, signal.SIGKILL)

    def close(self):
        self.run("scancel", "--full", "--signal=KILL", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
        for pid in self.left():  # the keepers of its steps
            os.kill(pid, signal.SIGKILL)


def a_step_of_two_nodes(runner):
    cluster = Cluster(runner)
    command = runner.command(["--inject", "kill:3@9:update", "--node-address", "127.0.0.1"], TRAINER, nproc=2)
    done = cluster.run("srun", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", *command)
    if done.returncode != 0:
        raise Failure(f"code {done.returncode}\n{done.stderr[-5000:]}\n{cluster.text('slurmctld.log')[-2000:]}")
    for node in range(2):
        if not re.search(f"started by slurm: node {node} of 2, 2 ranks here", done.stderr):
            raise Failure(done.stderr[:3000])
    must_be_same(reference(runner.bin, TRAINER), json.loads(done.stdout), done.stderr)


def a_task_for_each_rank_is_refused(runner):
    cluster = Cluster(runner)
    done = cluster.run("srun", "--nodes=2", "--ntasks=4", *runner.command([], TRAINER, nproc=2))
    if done.returncode == 0 or "--ntasks-per-node=1" not in done.stderr:
        raise Failure(f"code {done.returncode}\n{done.stderr[-3000:]}")


def a_node_that_fails_has_a_spare(runner):
    """The third node of the step has no ranks until the second one's host is gone. Slurm takes that node for down, and the step goes on."""
    cluster = Cluster(runner, nodes=3)
    trainer = ["--steps", "150", "--step-delay-us", "100000"]
    command = runner.command(["--spare-nodes", "1", "--spare-after", "1.5", "--node-address", "127.0.0.1"], trainer, nproc=2)
    out, err = cluster.folder / "step.json", cluster.folder / "step.err"
    with open(out, "w") as told, open(err, "w") as log:
        step = subprocess.Popen(["srun", "--nodes=3", "--no-kill", "--ntasks-per-node=1", "--cpus-per-task=2", *command],
                                env=cluster.environment, cwd=cluster.folder, stdout=told, stderr=log, start_new_session=True)
    cluster.daemons.append(step)

    def said():
        return f"{err.read_text()[-6000:]}\n{cluster.run('sinfo', '-N').stdout}{cluster.text('slurmctld.log')[-2000:]}"
    wait_until(lambda: re.search(r"^step [1-9]\d* ", err.read_text(), re.M), said, seconds=60)
    cluster.lose(1)
    wait_until(lambda: "event=spare_node_takes_over node=2" in err.read_text(), said, seconds=60)
    wait_until(lambda: cluster.run("sinfo", "-h", "-n", "n1", "-o", "%T").stdout.startswith("down"), said, seconds=60)
    wait_until(lambda: out.read_text().rstrip().endswith("}"), said, seconds=120)
    must_be_same(reference(runner.bin, trainer[:2]), json.loads(out.read_text()), said())


def preempted_requeued_resumed(runner):
    cluster = Cluster(runner)
    command = " ".join(runner.command(["--resume", "auto", "--save-every", "2", "--node-address", "127.0.0.1"],
                                      [*TRAINER, "--step-delay-us", "100000"], nproc=2))
    batch = cluster.folder / "job.sh"
    page = (Path(__file__).resolve().parents[2] / "integrations/engines/README.md").read_text()
    script_of_the_page = re.search(r"```bash\n(#!/bin/bash\n.*?)```", page, re.S).group(1)
    outputs = f"--output={cluster.folder}/out-$SLURM_RESTART_COUNT.json --error={cluster.folder}/err-%n.$SLURM_RESTART_COUNT"
    for words, ours in (("--nodes=2", f"--nodes=2 --cpus-per-task=2 --output={cluster.folder}/job.out"), ("srun ", f"srun {outputs} "),
                        ("kintsugi run --resume auto -- ./trainer", command), ("exit $code", 'echo "ended with $code"\nexit $code')):
        if words not in script_of_the_page:
            raise Failure(f"the page's script has no '{words}'\n{script_of_the_page}")
        script_of_the_page = script_of_the_page.replace(words, ours, 1)
    batch.write_text(script_of_the_page)
    submitted = cluster.run("sbatch", "--parsable", str(batch))
    job = submitted.stdout.strip()

    def told():
        return "".join(cluster.text(path.name)[-2500:] for path in sorted(cluster.folder.glob("err-*"))) + \
            f"{submitted.stderr}{cluster.text('job.out')}{cluster.run('squeue').stdout}{cluster.text('slurmctld.log')[-1500:]}"
    wait_until((runner.folder / "checkpoints" / "latest").exists, told)
    cluster.run("scancel", "--signal=TERM", f"{job}.0")  # a notice to the step, as preemption gives it
    wait_until(lambda: "ended with 0" in cluster.text("job.out"), told, seconds=120)
    if "ended with 75" not in cluster.text("job.out"):
        raise Failure(told())
    begun, ended = (json.loads(cluster.text(name)) for name in ("out-.json", "out-1.json"))
    whole = reference(runner.bin, TRAINER)
    if begun["losses"] + ended["losses"] != whole["losses"] or ended["final_digest"] != whole["final_digest"]:
        raise Failure(f"{begun['losses']} + {ended['losses']}, undisturbed {whole['losses']}\n{told()}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [("a step of srun on two nodes", a_step_of_two_nodes),
                              ("a task for each rank is refused", a_task_for_each_rank_is_refused),
                              ("a node that fails has a spare", a_node_that_fails_has_a_spare),
                              ("preempted, requeued, resumed", preempted_requeued_resumed)]))
