"""The peers of bench torch: how each is started, and how long it takes from a fault until every rank, a replacement too, has finished a
training step that began after the fault. The same trainer and the same marks for all of them (torch_bench_trainer.py).

torchrun is torch's own. The others come from PyPI into build/peers (./tools/setup --peers), a folder that only their own processes have
on their path: torch stays the one of build/python. What is not there is left out.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path

from torch_bench_marks import RANKS, STRUCK_RANK, Marks

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "build/peers"
sys.path.insert(0, str(HERE.parent / "python"))
from mindio_world import free_port  # noqa: E402

LIMIT_S = 120  # for one run: ten times what the slowest takes
GLOO_TIMEOUT_S = 5  # where a peer waits for it


class Failed(Exception):
    """A run in which not all ranks came to step again; says why."""


class Run:
    """The processes of one run and their folder. At its end none of them is left, also of those that they started."""

    TOKEN = "KINTSUGI_BENCH_PEER"

    def __init__(self, environment: dict[str, str]):
        self._held = tempfile.TemporaryDirectory(prefix="kintsugi-bench-")
        self.folder = Path(self._held.name)
        self.marks = Marks(self.folder)
        self._token = uuid.uuid4().hex  # all that descends inherits it, through new sessions and daemons
        self._environment = {**environment, self.TOKEN: self._token, "TMPDIR": str(self.folder), "PYTHONPATH": f"{FOLDER}:{HERE}"}
        self._output = open(self.folder / "output", "ab")
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        while found := self._descendants():
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
        for process in self.processes:
            process.wait()
        self._output.close()
        self._held.cleanup()

    def start(self, *command: object, **environment: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([str(word) for word in command], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   env={**self._environment, **{name: str(value) for name, value in environment.items()}},
                                   stdout=self._output, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def said(self) -> str:
        return (self.folder / "output").read_text(errors="replace")[-3000:]

    def _descendants(self) -> list[int]:
        wanted, found = f"{self.TOKEN}={self._token}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):  # a dead one's is empty
                        found.append(int(entry.name))
                except OSError:
                    pass  # ended meanwhile, or another user's
        return found


class Peer(ABC):
    """One system with one fault and one set of settings. `note`: its version and its settings, for readers of the figure."""

    figure: str
    note: str

    @abstractmethod
    def start(self, run: Run) -> None:
        """Begins the run's processes."""

    def tend(self, run: Run) -> None:
        """Called every few milliseconds: what the one who supervises the processes does."""
        for process in run.processes:
            if process.poll() is not None:
                raise Failed(f"a process ended with {process.returncode} before all ranks stepped again")

    def measure(self, environment: dict[str, str]) -> tuple[float, float]:
        """Milliseconds from the fault until the slowest rank has stepped, and until the slowest of those that were not struck has."""
        with Run(environment) as run:
            try:
                self.start(run)
                self._await(run)
            except Failed as failure:
                raise Failed(f"{failure}\n{run.said()}") from None
            stepping, struck = run.marks.of_ranks("stepping"), run.marks.at("struck")
        others = [at for rank, at in stepping.items() if rank != STRUCK_RANK]
        return (max(stepping.values()) - struck) * 1000, (max(others) - struck) * 1000

    def _await(self, run: Run) -> None:
        ends = time.monotonic() + LIMIT_S
        while len(stepping := run.marks.of_ranks("stepping")) < RANKS:
            if time.monotonic() > ends:
                what = f"of {RANKS} ranks {len(stepping)} stepped again" if run.marks.has("struck") else "the fault was not reached"
                raise Failed(f"killed after {LIMIT_S} s: {what}")
            self.tend(run)
            time.sleep(0.005)


class Torchrun(Peer):
    # Otherwise the ranks that it starts anew may be given the addresses of those it ended.
    ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def __init__(self, fault: str):
        self._fault = fault
        self.figure = f"{fault}/torchrun restarts, all stepping"
        self.note = f"torch {importlib.metadata.version('torch')}, --standalone --max-restarts 1; steps since the last checkpoint are lost besides"

    def start(self, run: Run) -> None:
        run.start(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", RANKS, "--max-restarts", 1,
                  HERE / "torch_bench_torchrun.py", run.folder, self._fault, **self.ENVIRONMENT)


def version_of(package: str) -> str:
    return next(found.version for found in importlib.metadata.distributions(name=package, path=[str(FOLDER)]))


class Torchft(Peer):
    """Four replica groups of one rank. Who is killed is started anew at once, which no supervisor does faster."""

    TUNED = ("--heartbeat_timeout_ms", 500, "--join_timeout_ms", 500, "--quorum_tick_ms", 10)
    TUNED_TIMEOUT_S = 1

    def __init__(self, tuned: bool):
        self._lighthouse = self.TUNED if tuned else ()
        self._timeout = (self.TUNED_TIMEOUT_S,) if tuned else ()
        self.figure = f"kill/torchft, {'tuned' if tuned else 'defaults'}, all stepping"
        settings = f"lighthouse {' '.join(map(str, self.TUNED))}, timeout of manager and Gloo {self.TUNED_TIMEOUT_S} s" if tuned else \
            "lighthouse, manager and Gloo with their defaults"
        self.note = f"torchft {version_of('torchft')}, 4 replica groups of one rank, {settings}; the killed one is started anew at once"

    def start(self, run: Run) -> None:
        port = free_port()
        run.start(sys.executable, FOLDER / "bin/torchft_lighthouse", "--min_replicas", 1, "--bind", f"127.0.0.1:{port}", *self._lighthouse)
        self._address = f"http://127.0.0.1:{port}"
        replicas = [self._replica(run, rank) for rank in range(RANKS)]
        self._struck: subprocess.Popen[bytes] | None = replicas[STRUCK_RANK]

    def tend(self, run: Run) -> None:
        if self._struck and self._struck.poll() == -signal.SIGKILL:
            run.processes.remove(self._struck)
            self._struck = None
            self._replica(run, STRUCK_RANK)
        super().tend(run)

    def _replica(self, run: Run, rank: int) -> subprocess.Popen[bytes]:
        return run.start(sys.executable, HERE / "torch_bench_torchft.py", run.folder, "kill", rank, *self._timeout,
                         TORCHFT_LIGHTHOUSE=self._address)


class NvrxLauncher(Peer):
    figure = "kill/NVRx ft_launcher restarts, all stepping"

    def __init__(self) -> None:
        self.note = f"nvidia-resiliency-ext {version_of('nvidia-resiliency-ext')}, ft_launcher --standalone --max-restarts 1 with heartbeats, " \
            "without its monitor of network cards; steps since the last checkpoint are lost besides"

    def start(self, run: Run) -> None:
        run.start(sys.executable, FOLDER / "bin/ft_launcher", "--standalone", "--nproc-per-node", RANKS, "--max-restarts", 1,
                  "--ft-enable-nic-monitor", "false", HERE / "torch_bench_nvrx.py", run.folder, "kill", "launcher", **Torchrun.ENVIRONMENT)


class NvrxInProcess(Peer):
    figure = "exception/NVRx in-process, all stepping"

    def __init__(self) -> None:
        self.note = f"nvidia-resiliency-ext {version_of('nvidia-resiliency-ext')}, inprocess.Wrapper with its defaults; of it " \
            f"{GLOO_TIMEOUT_S} s are Gloo's timeout here, which ranks that are blocked wait for"

    def start(self, run: Run) -> None:
        ports = {"MASTER_PORT": free_port(), "WRAPPER_PORT": free_port()}
        for rank in range(RANKS):
            run.start(sys.executable, HERE / "torch_bench_nvrx.py", run.folder, "exception", "in-process", GLOO_TIMEOUT_S,
                      RANK=rank, WORLD_SIZE=RANKS, MASTER_ADDR="127.0.0.1", **ports)


NAMES = ("torchrun", "torchft", "nvrx")


def missing(name: str) -> str:
    """Why a peer cannot be measured here; empty where it can."""
    if name == "torchrun" or (FOLDER / ".ready").exists():
        return ""
    return f"{name} is left out: it is not in build/peers; ./tools/setup --peers installs it"


def peers(name: str, fault: str) -> list[Peer]:
    """What is measured of a peer with a fault; nothing where it has no answer to it of its own. REQUIRES: not missing(name)."""
    if name == "torchrun":
        return [Torchrun(fault)]
    if name == "torchft":
        return [Torchft(tuned=False), Torchft(tuned=True)] if fault == "kill" else []
    return [NvrxLauncher()] if fault == "kill" else [NvrxInProcess()]
