"""What chaos strikes: a run of one launcher or of several on this host, both with one face, and a disk that can be filled."""
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import time

from harness import Failure
from live_run import LiveRun, ask

POLL_SECONDS = 0.01
DISK_BYTES = 64 << 20
LEAVE_SECONDS = 60  # for the other launchers, once node 0's has ended


class OneLauncher(LiveRun):
    nodes = 1

    def __init__(self, runner, plan):
        super().__init__(runner, plan.options, plan.trainer + plan.slow, plan.nproc)

    def launcher(self, _node=0):
        return self.process.pid

    def ask_node(self, _at, command, /, **fields):
        return self.ask(command, **fields)

    def code(self):
        return self.process.poll()

    def end(self):
        """The summary, once the launcher has ended; None where it could not say anything."""
        with open(self.out.name) as file:
            text = file.read()
        return json.loads(text) if text.strip() else None


def free_port():
    """Outside the range from which connections get theirs, so that none takes it before it is listened on."""
    for _ in range(100):
        port = random.randrange(20000, 30000)
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port
    raise Failure("no free port from 20000 to 30000")


class SeveralLaunchers:
    """`kintsugi run --nnodes N`: the launchers of N nodes, all on this host. Any of them may host the controller."""

    def __init__(self, runner, plan):
        self.runner, self.plan, self.nodes = runner, plan, plan.nodes
        self.rendezvous = self.choose_rendezvous()
        self.secret = runner.folder / "secret"
        self.secret.write_bytes(os.urandom(32))
        self.secret.chmod(0o600)
        self.launchers = {}
        self.leader, self.term = 0, 1  # as far as is known
        self.coming = set()  # nodes whose launcher is gone and will be started anew
        runner.live.append(self)
        for node in range(self.nodes):
            self.start(node)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @staticmethod
    def choose_rendezvous():
        return f"127.0.0.1:{free_port()}"

    def nnodes(self):
        return str(self.nodes)

    def popen(self, _node, line, **options):
        return subprocess.Popen(line, start_new_session=True, **options)

    def line(self, node):
        return self.runner.command([*self.plan.options, "--nnodes", self.nnodes(), "--node-rank", str(node), "--rendezvous",
                                    self.rendezvous, "--secret-file", str(self.secret), "--node-wait", "3", "--join-timeout", "20", "--run-dir",
                                    str(self.run_dir(node))], self.plan.trainer + self.plan.slow, self.plan.nproc)

    def start(self, node):
        self.coming.discard(node)
        err = open(self.runner.folder / f"node-{node}.err", "ab")
        out = open(self.runner.folder / f"node-{node}.out", "ab")
        with err, out:
            self.launchers[node] = self.popen(node, self.line(node), cwd=self.runner.folder, stdout=out, stderr=err)

    def close(self):
        for process in self.launchers.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def run_dir(self, node):
        return self.runner.folder / f"node-{node}"

    def launcher(self, node=None):
        """Of the node that leads, where none is named."""
        return self.launchers[self.leader if node is None else node].pid

    def signal(self, number, node=0):
        self.launchers[node].send_signal(number)

    def ask(self, command, /, **fields):
        """Any launcher passes what is asked on to the one that leads; while there is none, nobody answers."""
        for node in sorted(self.launchers, key=lambda node: node != self.leader):
            answer = self.ask_node(node, command, **fields)
            if answer:
                self.learn_leader(answer.get("term", self.term))
                return answer
        return None

    def learn_leader(self, term):
        """Who answers may be a follower: who leads in a term has said so itself."""
        if term == self.term:
            return
        for node in self.launchers:
            if re.search(rf"event=leads node={node} term={term}\b", self.words(node)):
                self.leader, self.term = node, term

    def ask_node(self, at, command, /, **fields):
        return ask(self.run_dir(at) / "control.sock", command, **fields)

    def status(self):
        return self.ask("status")

    def words(self, node):
        with open(self.runner.folder / f"node-{node}.err", errors="replace") as file:
            return file.read()

    def told(self):
        """Summaries, by node: only who led at its end has one."""
        texts = {node: (self.runner.folder / f"node-{node}.out").read_text() for node in self.launchers}
        return {node: json.loads(text) for node, text in texts.items() if text.strip()}

    def code(self):
        """Of the launcher that led to the end; where there was none, of any that was not killed. None: the run goes on."""
        codes = {node: process.poll() for node, process in self.launchers.items()}
        for node in self.told():
            if codes[node] is not None and codes[node] != -signal.SIGKILL:
                return codes[node]
        if self.coming or any(code is None for code in codes.values()):
            return None
        return next((code for code in codes.values() if code != -signal.SIGKILL), -signal.SIGKILL)

    def end(self):
        limit = time.monotonic() + LEAVE_SECONDS
        for node, process in self.launchers.items():
            try:
                process.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failure(f"the launcher of node {node} does not end\n{self.log()}") from None
        return next(iter(self.told().values()), None)

    def log(self):
        """All nodes' words, the leader's last."""
        parts = []
        for node in sorted(self.launchers, key=lambda node: (node == self.leader, node)):
            words = "".join(line for line in self.words(node).splitlines(True) if not line.startswith("step "))
            parts.append(f"---- node {node}\n{words if node == self.leader else words[-6000:]}")
        return "".join(parts)


def start(runner, plan):
    return SeveralLaunchers(runner, plan) if plan.nodes > 1 else OneLauncher(runner, plan)


class SmallDisk:
    """A file system of its own for the checkpoints, which can be filled. `missing` says why there is none."""

    def __init__(self, folder):
        self.folder = folder
        self.missing = None
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            self.missing = f"no right to mount a small disk: {done.stderr.strip()}"

    def fill(self, free_bytes):
        place = os.statvfs(self.folder)
        size = place.f_bavail * place.f_frsize - free_bytes
        if size <= 0:
            return
        with open(self.folder / "ballast", "wb") as file:
            with contextlib.suppress(OSError):  # a save took the room meanwhile: it is full
                os.posix_fallocate(file.fileno(), 0, size)

    def empty(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder / "ballast")

    def close(self):
        if not self.missing and subprocess.run(["umount", str(self.folder)], capture_output=True).returncode != 0:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False, capture_output=True)


def send_signal(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def kill(pid):
    return send_signal(pid, signal.SIGKILL)
