"""The world around clients of mindio_ttp: their processes, the hub of their collectives, a scheduler where one is played."""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def free_port():
    """Below those that connections take for themselves: nobody gets it before it is listened on."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Hub:
    """Sums that are answered once every rank has asked for them, and a mailbox for repairs."""

    def __init__(self, world):
        self.world = world
        self.lock = threading.Lock()
        self.sums, self.mail, self.waiting = {}, {}, {}
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        # A thread that still waits in accept() would take the next hub's connections, once that one has the number of this socket.
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            for line in connection.makefile("rb"):
                self._take(connection, json.loads(line))
        except OSError:
            pass
        with self.lock:
            for table in (self.sums, self.waiting):
                for key in list(table):
                    table[key] = {rank: entry for rank, entry in table[key].items() if entry[1] is not connection}

    def _take(self, connection, message):
        with self.lock:
            key, rank = message["key"], message["rank"]
            if message["op"] == "sum":
                table = self.sums.setdefault(key, {})
                table[rank] = (message["value"], connection)
                if len(table) == message.get("of", self.world):
                    for _, other in table.values():
                        self._answer(other, sum(value for value, _ in table.values()))
                    del self.sums[key]
            elif message["op"] == "send":
                self.mail[key] = message["value"]
                self._answer(connection, None)
                for _, other in self.waiting.pop(key, {}).values():
                    self._answer(other, self.mail.pop(key))
            elif key in self.mail:
                self._answer(connection, self.mail.pop(key))
            else:
                self.waiting.setdefault(key, {})[rank] = (None, connection)

    @staticmethod
    def _answer(connection, value):
        try:
            connection.sendall((json.dumps({"value": value}) + "\n").encode())
        except OSError:
            pass


class World:
    """Runs clients to their ends."""

    def __init__(self, python, path, out, world=4, steps=12, options=(), respawn=False, respawns=None, environment=None, limit=60, scheduler=None, spare=False, hot=False):
        self.python, self.out, self.world, self.steps = python, Path(out), world, steps
        self.options, self.limit = list(options), limit
        self.respawns = respawns or {rank: 3 for rank in range(world) if respawn}  # how often a rank is started again
        self.hub, self.port = Hub(world), free_port()
        self.environment = {**{k: v for k, v in os.environ.items() if not k.startswith(("MINDX", "MINDIO", "TTP"))},
                            "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        self.processes, self.codes, self.respawned = {}, {}, {}
        self.spare = None
        self.has_spare = spare  # a process that has imported everything waits for a rank to take the place of
        self.hot = hot  # another process of rank 2 comes, once the scheduler has said so and the rank trains
        self.scheduler = scheduler
        if scheduler:
            self.environment["MINDX_TASK_ID"] = "1"
            self.options.append("--scheduled")

    def start(self, rank):
        log = open(self.out / f"log.{'spare' if rank < 0 else rank}", "ab")
        command = [self.python, "-W", "ignore", str(HERE / "mindio_client.py"), str(rank), str(self.world), str(self.port), str(self.hub.port),
                   str(self.steps), str(self.out), *self.options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE if rank < 0 else None, stdout=log, stderr=log, env=self.environment)
        log.close()
        if rank < 0:
            self.spare = process
        else:
            self.processes[rank] = process

    def replace(self, rank):
        self.respawned[rank] = self.respawned.get(rank, 0) + 1
        if self.spare is None:
            self.start(rank)
            return
        self.spare.stdin.write(f"{rank}\n".encode())
        self.spare.stdin.close()
        self.processes[rank], self.spare = self.spare, None

    def start_scheduler(self):
        with open(self.out / "log.scheduler", "ab") as log:
            command = [self.python, "-W", "ignore", str(HERE / "mindio_scheduler.py"), str(self.port), str(self.world), str(self.out), self.scheduler]
            self.processes["scheduler"] = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)

    def run(self):
        if self.scheduler:
            self.start_scheduler()
        if self.has_spare:
            self.start(-1)
        for rank in range(self.world):
            self.start(rank)
        return self.wait()

    def wait(self):
        return self.wait_for(self.world)

    def wait_for(self, ranks, ends=()):
        """Exit codes; of those that still run once those of `ends`, or all, have ended: "hangs"."""
        until = time.monotonic() + self.limit
        try:
            while any(rank in self.processes for rank in ends or list(self.processes)):
                if self.hot and (self.out / "prepared").exists() and self.times(2):
                    self.hot = False
                    self.processes["old"] = self.processes.pop(2)
                    self.start(2)
                for rank, process in list(self.processes.items()):
                    code = process.poll()
                    if code is None:
                        continue
                    del self.processes[rank]
                    if code in (-signal.SIGKILL, 2) and self.respawned.get(rank, 0) < self.respawns.get(rank, 0):
                        self.replace(rank)
                    else:
                        self.codes[rank] = code
                if time.monotonic() > until:
                    break
                time.sleep(0.002)
        finally:
            self.codes.update({rank: "hangs" for rank in self.processes})
            for process in [*self.processes.values(), *([self.spare] if self.spare else [])]:
                process.send_signal(signal.SIGKILL)
                process.wait()
            self.hub.close()
        return [self.codes[rank] for rank in range(ranks)]

    def trace(self):
        """Every rank's callbacks, as text."""
        lines = []
        for rank in [*range(self.world), "scheduler"]:
            path = self.out / f"trace.{rank}"
            lines += [f"[{rank}] {line}" for line in path.read_text().splitlines()] if path.exists() else []
        return lines

    def ends(self):
        return [next((line.split()[-1] for line in (self.out / f"log.{rank}").read_text().splitlines() if line.startswith(f"rank {rank} ends with")),
                     None) for rank in range(self.world)]

    def logs(self):
        return "\n".join(f"--- rank {rank}\n" + ((self.out / f"log.{rank}").read_text()[-3000:] if (self.out / f"log.{rank}").exists() else "") 
                         for rank in [*range(self.world), *(["scheduler"] if self.scheduler else [])])

    def times(self, rank):
        """(seconds, what, step)"""
        path = self.out / f"times.{rank}"
        return [(float(a), b, int(c)) for a, b, c in (line.split() for line in path.read_text().splitlines())] if path.exists() else []


if __name__ == "__main__":  # PYTHON PACKAGE_FOLDER [client options]: for trying something out
    with tempfile.TemporaryDirectory() as folder:
        package = sys.argv[2]
        plan = next((o.removeprefix("scheduler=") for o in sys.argv if o.startswith("scheduler=")), None)
        steps = next((int(o.removeprefix("steps=")) for o in sys.argv if o.startswith("steps=")), 12)
        world = World(sys.argv[1], f"{package}:{package}/kintsugi/compat", folder, respawn="--respawn" in sys.argv, scheduler=plan, steps=steps,
                      options=[o for o in sys.argv[3:] if o != "--respawn" and "=" not in o], environment={"MINDIO_WAIT_MINDX_TIME": "2"})
        print(world.run())
        print("\n".join(world.trace()))
        print(world.ends())
        print(world.logs())
