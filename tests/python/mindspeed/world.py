"""Runs of MindSpeed-LLM's client: ranks as children of one process that has imported everything, in a network of their own.

  world.py OUT_FOLDER [--ranks N] [--respawn] [--scheduler PLAN] [--limit S] -- [trainer's options]      prints exit codes
"""
import argparse
import atexit
import ctypes
import os
import signal
import subprocess
import sys
import time
import traceback
import weakref
from pathlib import Path

HERE = Path(__file__).resolve().parent
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
STORE_PORT, CONTROLLER_PORT = 29500, 8000  # the client's own, which cannot be chosen


def enter_own_network():
    """The client's port is fixed: in a network of its own nobody else has it. False: not allowed here."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if user != 0 and libc.unshare(_NEWUSER) == 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    if libc.unshare(_NEWNET) != 0:
        return False
    return subprocess.run(["ip", "link", "set", "lo", "up"], check=False).returncode == 0


class Run:
    """Ranks to their ends."""

    def __init__(self, out, options=(), ranks=4, respawn=False, scheduler=None, limit=240, environment=None):
        self.out, self.options, self.ranks, self.respawn, self.limit = Path(out), list(options), ranks, respawn, limit
        self.scheduler, self.codes, self.respawned = scheduler, {}, 0
        self.environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(STORE_PORT), "WORLD_SIZE": str(ranks),
                            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "GLOO_SOCKET_IFNAME": "lo", "KINTSUGI_MINDIO_SILENCE": "5", **(environment or {})}
        if scheduler:
            self.environment.update(MINDX_TASK_ID="1")
        self.processes = {}  # id -> rank

    def _fork(self, name, work):
        process = os.fork()
        if process:
            self.processes[process] = name
            return
        code = 1
        weakref.finalize._registry.clear()  # temporary folders are the parent's to remove
        try:
            log = os.open(self.out / f"log.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.update(self.environment)
            work()
            code = 0
        except SystemExit as leaves:
            code = leaves.code if isinstance(leaves.code, int) else 0 if leaves.code is None else 1
        except BaseException as error:  # what the interpreter would do at its end
            sys.last_type = type(error)
            traceback.print_exc()
        finally:
            try:
                atexit._run_exitfuncs()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)

    def start(self, rank):
        def work():
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            import trainer

            trainer.main([str(self.out), *self.options])

        self._fork(rank, work)

    def _start_store(self):
        """Torch's rendezvous, as torchrun's agent keeps it: no rank's end takes it away."""
        def work():
            from torch.distributed import TCPStore

            store = TCPStore("127.0.0.1", STORE_PORT, None, True, wait_for_workers=False)  # noqa: F841
            while True:
                time.sleep(3600)

        self._fork("store", work)

    def _start_scheduler(self):
        def work():
            script = HERE.parent / "mindio_scheduler.py"
            given = [str(CONTROLLER_PORT), str(self.ranks), str(self.out), self.scheduler]
            os.execv(sys.executable, [sys.executable, "-W", "ignore", str(script), *given])

        self._fork("scheduler", work)

    def run(self):
        """Exit codes of the ranks; "hangs" where one did not end."""
        self._start_store()
        if self.scheduler:
            self._start_scheduler()
        for rank in range(self.ranks):
            self.start(rank)
        until = time.monotonic() + self.limit
        try:
            while any(isinstance(name, int) for name in self.processes.values()) and time.monotonic() < until:
                ended, status = os.waitpid(-1, os.WNOHANG)
                if not ended:
                    time.sleep(0.01)
                    continue
                name = self.processes.pop(ended, None)
                code = os.waitstatus_to_exitcode(status)
                if isinstance(name, int) and self.respawn and code in (-signal.SIGKILL, 2) and self.respawned < 3:
                    self.respawned += 1
                    self.start(name)
                elif name != "store":
                    self.codes[name] = code
            self._await_scheduler()
        finally:
            for process in self.processes:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        return [self.codes.get(rank, "hangs") for rank in range(self.ranks)]

    def _await_scheduler(self):
        """It ends by itself once no rank is linked any more."""
        process = next((process for process, name in self.processes.items() if name == "scheduler"), None)
        until = time.monotonic() + 20
        while process is not None and time.monotonic() < until:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self.codes[self.processes.pop(process)] = os.waitstatus_to_exitcode(status)
                return
            time.sleep(0.01)

    def told(self):
        """What the scheduler was told and answered."""
        path = self.out / "trace.scheduler"
        return path.read_text().splitlines() if path.exists() else []

    def _log(self, name):
        path = self.out / f"log.{name}"
        return path.read_text(errors="replace") if path.exists() else ""

    def ends(self):
        return [next((line.split()[-1] for line in self._log(rank).splitlines() if line.startswith(f"rank {rank} ends with")), None)
                for rank in range(self.ranks)]

    def _lines(self):
        """What every rank has logged: step, loss and more."""
        paths = [self.out / f"losses.{rank}" for rank in range(self.ranks)]
        return [[line.split() for line in path.read_text().splitlines()] if path.exists() else [] for path in paths]

    def losses(self):
        """Of each step as it was last done, by every rank: they are alike."""
        return [{int(step): loss for step, loss, *_ in lines} for lines in self._lines()]

    def steps(self):
        """As every rank has done them, those that were done again too."""
        return [[int(line[0]) for line in lines] for lines in self._lines()]

    def logs(self, last=2500):
        return "\n".join(f"--- {name}\n{self._log(name)[-last:]}" for name in [*range(self.ranks), "scheduler"] if self._log(name))


if __name__ == "__main__":
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--respawn", action="store_true")
    parser.add_argument("--scheduler")
    parser.add_argument("--limit", type=float, default=240)
    o = parser.parse_args(sys.argv[1:split])
    os.makedirs(o.out, exist_ok=True)
    print("own network:", enter_own_network(), flush=True)
    began = time.monotonic()
    import trainer  # noqa: F401

    print(f"imported in {time.monotonic() - began:.1f} s", flush=True)
    run = Run(o.out, sys.argv[split + 1:], o.ranks, o.respawn, o.scheduler, o.limit)
    print(run.run(), f"{time.monotonic() - began:.1f} s", flush=True)
    print(run.ends())
    for one in run.losses():
        print(one)
