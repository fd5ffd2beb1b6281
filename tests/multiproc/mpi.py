"""The real Open MPI (Debian's): mpirun starts a launcher on each of two hosts, a rank is killed, a stop saves, a second start goes on.

  mpi.py BIN_DIR [--only WORD]...

The hosts are this one under two names: what mpirun takes for ssh runs its daemon in a UTS namespace. Needs mpirun, unshare and the
rights of root; skipped where they are missing.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

from harness import Failure, Skip, must_be_same, reference, script
from live_run import wait_until

TRAINER = ["--steps", "30"]
HOSTS = ["--host", "n0:8,n1:8", "--map-by", "ppr:1:node"]


class Hosts:
    def __init__(self, runner):
        missing = [name for name in ("mpirun", "unshare") if not shutil.which(name)]
        if missing or os.geteuid() != 0:
            raise Skip("apt install openmpi-bin, as root" if missing else "needs the rights of root")
        self.runner = runner
        shell = runner.folder / "rsh"
        shell.write_text('#!/bin/sh\nhost=$1; shift\nexec unshare --uts sh -c "hostname $host; $*"\n')
        shell.chmod(0o755)
        self.mpirun = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(shell), "--mca", "plm_rsh_no_tree_spawn", "1"]

    def start(self, words, *command):
        return subprocess.Popen([*self.mpirun, *words, *command], cwd=self.runner.folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**os.environ, "KINTSUGI_MEETING_DIR": str(self.runner.folder / "meetings")})

    def run(self, words, *command):
        begun = self.start(words, *command)
        out, err = begun.communicate(timeout=200)
        return begun.returncode, out, err


def two_hosts(runner):
    hosts = Hosts(runner)
    code, out, err = hosts.run(HOSTS, *runner.command(["--inject", "kill:3@9:update", "--node-address", "127.0.0.1"], TRAINER, nproc=2))
    if code != 0:
        raise Failure(f"code {code}\n{err[-5000:]}")
    for node in range(2):
        if not re.search(f"started by mpi: node {node} of 2", err):
            raise Failure(err[:3000])
    must_be_same(reference(runner.bin, TRAINER), json.loads(out), err)


def two_launchers_on_one_host_are_refused(runner):
    code, _, err = Hosts(runner).run(["--host", "n0:8", "-np", "2"], *runner.command([], TRAINER, nproc=2))
    if code == 0 or "OMPI_COMM_WORLD_LOCAL_SIZE" not in err or "ppr:1:node" not in err:
        raise Failure(f"code {code}\n{err[-3000:]}")


def stopped_and_resumed(runner):
    """mpirun passes SIGTERM on to its processes, and gives them time."""
    hosts = Hosts(runner)
    command = runner.command(["--resume", "auto", "--save-every", "2", "--node-address", "127.0.0.1", "--grace", "15"],
                             [*TRAINER, "--step-delay-us", "50000"], nproc=2)
    begun = hosts.start(["--mca", "odls_base_sigkill_timeout", "25", *HOSTS], *command)
    wait_until((runner.folder / "checkpoints" / "latest").exists, "a first checkpoint")
    begun.send_signal(signal.SIGTERM)
    first, err = begun.communicate(timeout=200)
    if begun.returncode == 0:
        raise Failure(f"it did not stop\n{err[-3000:]}")
    code, second, log = hosts.run(HOSTS, *command)
    if code != 0:
        raise Failure(f"code {code}\n{err[-3000:]}\n{log[-3000:]}")
    whole, ended = reference(runner.bin, TRAINER), json.loads(second)
    losses = (json.loads(first)["losses"] if first.strip() else whole["losses"][:-len(ended["losses"])]) + ended["losses"]
    if losses != whole["losses"] or ended["final_digest"] != whole["final_digest"] or len(ended["losses"]) == len(whole["losses"]):
        raise Failure(f"{losses}, undisturbed {whole['losses']}\n{err[-3000:]}\n{log[-3000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [("two hosts, and a killed rank", two_hosts),
                              ("two launchers on one host are refused", two_launchers_on_one_host_are_refused),
                              ("stopped, started again, resumed", stopped_and_resumed)]))
