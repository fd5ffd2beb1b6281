"""`kintsugi run` started by an engine on two hosts, both played by this one: with the engine's variables alone the launchers
find each other, survive a kill and end with the undisturbed bits; mistakes are told."""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys

from harness import Failure, must_be_same, reference, script
from live_run import wait_until

TRAINER = ["--steps", "20"]
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2"}
MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "prterun-host-17@1"}


def free_range(size):
    """The first port of a range whose last `size` are free."""
    for first in range(23000, 31000, 200):
        with contextlib.ExitStack() as taken:
            try:
                for port in range(first + 200 - size, first + 200):
                    taken.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return first
            except OSError:
                continue
    raise Failure("no free range of ports")


class Hosts:
    def __init__(self, runner, common, place):
        self.runner, self.common, self.place = runner, common, place
        self.meetings = runner.folder / "meetings"
        self.processes = []
        runner.live.append(self)

    def start(self, *options, nproc=2, trainer=TRAINER):
        for node in range(2):
            environment = {**os.environ, **self.common, self.place: str(node), "KINTSUGI_MEETING_DIR": str(self.meetings)}
            command = self.runner.command([*options, "--node-address", "127.0.0.1"], trainer, nproc=nproc)
            out, err = (open(self.runner.folder / f"{name}-{node}", "w") for name in ("out", "err"))
            with out, err:
                self.processes.append(subprocess.Popen(command, cwd=self.runner.folder, stdout=out, stderr=err, env=environment))

    def log(self, node):
        return (self.runner.folder / f"err-{node}").read_text()

    def finish(self, expect=0):
        codes = [process.wait(120) for process in self.processes]
        self.processes = []
        if codes != [expect, expect]:
            raise Failure(f"exit codes {codes}\n{self.log(0)[-4000:]}\n----\n{self.log(1)[-4000:]}")
        summaries = [json.loads(text) for node in range(2)
                     if (text := (self.runner.folder / f"out-{node}").read_text().strip())]
        if self.meetings.exists() and list(self.meetings.iterdir()):
            raise Failure(f"left behind: {list(self.meetings.iterdir())}")
        return summaries[0]

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


def two_hosts(common, place, engine):
    def test(runner):
        hosts = Hosts(runner, common, place)
        hosts.start("--inject", "kill:3@9:update")
        summary = hosts.finish()
        must_be_same(reference(runner.bin, TRAINER), summary, hosts.log(0))
        for node in range(2):
            if not re.search(f"started by {engine}: node {node} of 2, 2 ranks here, rendezvous 127.0.0.1:\\d+", hosts.log(node)):
                raise Failure(hosts.log(node)[:2000])
    return test


def the_meeting_is_within_the_ports(runner):
    """The rendezvous that node 0 chooses, with room above it for the other node's own port; mpirun's door is the same."""
    for common, place in ((SLURM, "SLURM_NODEID"), (MPI, "OMPI_COMM_WORLD_RANK")):
        first = free_range(8)
        hosts = Hosts(runner, common, place)
        hosts.start("--ports", f"{first}-{first + 199}")
        hosts.finish()
        port = int(re.search(r"rendezvous 127.0.0.1:(\d+)", hosts.log(0))[1])
        if not first <= port < first + 199:
            raise Failure(f"they met at {port}, outside {first}-{first + 198}")


def preempted_and_requeued(runner):
    """The whole life of a batch job: ended by its scheduler, saved, started again from where it was; then nothing to resume."""
    slow = [*TRAINER, "--step-delay-us", "100000"]
    first = Hosts(runner, SLURM, "SLURM_NODEID")
    first.start("--resume", "auto", "--save-every", "2", trainer=slow)
    wait_until((runner.folder / "checkpoints" / "latest").exists, lambda: f"a checkpoint\n{first.log(0)[-3000:]}")
    for process in first.processes:  # as a scheduler does, to all of them
        process.send_signal(signal.SIGTERM)
    begun = first.finish(expect=75)
    again = Hosts(runner, {**SLURM, "SLURM_RESTART_COUNT": "1"}, "SLURM_NODEID")
    again.start("--resume", "auto")
    ended = again.finish()
    whole = reference(runner.bin, TRAINER)
    if begun["losses"] + ended["losses"] != whole["losses"] or ended["final_digest"] != whole["final_digest"]:
        raise Failure(f"{begun['losses']} + {ended['losses']}\n{again.log(0)[-3000:]}")
    if "start 2" not in again.log(0):
        raise Failure(again.log(0)[:1000])


def mistakes(runner):
    for environment, options, code, said in (
            ({**SLURM, "SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": "8"}, [], 2, "--ntasks-per-node=1"),
            ({**SLURM, "SLURM_NODEID": "zero"}, [], 2, "SLURM_NODEID='zero'"),
            ({}, ["--engine", "slurm"], 2, "nothing here was set by slurm"),
            ({**SLURM, "SLURM_NODEID": "1"}, ["--join-timeout", "0.5"], 3, "node 0 has not come"),
            ({**MPI, "OMPI_COMM_WORLD_RANK": "0", "KINTSUGI_MEETING_DIR": "/proc/none"}, [], 3, "KINTSUGI_MEETING_DIR"),
            ({}, ["--resume", "auto", "--save-dir", ""], 2, "--resume auto")):
        command = runner.command(options, TRAINER)
        done = subprocess.run(command, cwd=runner.folder, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "KINTSUGI_MEETING_DIR": str(runner.folder / "meetings"), **environment})
        if done.returncode != code or said not in done.stderr:
            raise Failure(f"{environment} {options}: code {done.returncode}, expected {code} and '{said}' in: {done.stderr}")


def by_hand(runner):
    """Options beat the engine; --engine none asks nobody."""
    for options in (["--engine", "none"], ["--nnodes", "1"]):
        done = subprocess.run(runner.command(options, ["--steps", "3"], nproc=2), cwd=runner.folder, text=True,
                              capture_output=True, timeout=60, env={**os.environ, **SLURM, "SLURM_NODEID": "1"})
        if done.returncode != 0:
            raise Failure(f"{options}: {done.returncode}\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [("two nodes of srun", two_hosts(SLURM, "SLURM_NODEID", "slurm")),
                              ("two nodes of mpirun", two_hosts(MPI, "OMPI_COMM_WORLD_RANK", "mpi")),
                              ("the meeting is within --ports", the_meeting_is_within_the_ports),
                              ("preempted, requeued, resumed", preempted_and_requeued), ("mistakes", mistakes),
                              ("by hand", by_hand)]))
