"""Carries the faults of a plan out on a live run, and notes in which phase each struck."""
import random
import signal
import socket
import threading
import time
from collections import Counter

import sockets
from chaos_plan import RECOVERY_PHASES
from chaos_runs import POLL_SECONDS, kill, send_signal
from harness import Failure

RECOVERY_WAIT_SECONDS = 3   # a recovery that does not come is not waited for for ever
FLIP_WAIT_SECONDS = 30
FREE_BYTES_MAX = 1 << 20    # left on a full disk: from nothing to more than a checkpoint


class Strike:
    def __init__(self, run, disk=None):
        self.run, self.disk = run, disk
        self.kinds, self.phases, self.skipped = Counter(), Counter(), {}
        self.later = []      # (when, what): what a fault has still to do
        self.status = None   # the newest answer
        self.filled = False  # the disk has been full
        self.node_lost = False

    def over(self):
        return self.run.code() is not None

    def do_later(self, seconds, what):
        self.later.append((time.monotonic() + seconds, what))

    def do_due(self, everything=False):
        now = time.monotonic()
        for entry in [e for e in self.later if everything or e[0] <= now]:
            self.later.remove(entry)
            entry[1]()

    # ---- when ------------------------------------------------------------------------------------------------------

    def wait(self, fault):
        """Until the fault's moment; False when the run ended before."""
        waited_for_recovery = time.monotonic() + RECOVERY_WAIT_SECONDS
        while not self.over():
            self.do_due()
            status = self.status = self.run.ask("status")
            if status:
                if fault.in_recovery and self.has_come_to(fault.in_recovery, status["phase"]):
                    return True
                if fault.kind == "flip" and status["phase"] != "RUNNING":
                    pass
                elif status["step"] >= fault.step and (not fault.in_recovery or time.monotonic() > waited_for_recovery):
                    return True
            time.sleep(0.0005 if fault.in_recovery else POLL_SECONDS)  # a phase of the recovery may last a millisecond
        return False

    @staticmethod
    def has_come_to(wanted, phase):
        """A phase may be over before it is seen: then a later one of the same recovery does."""
        return phase in RECOVERY_PHASES and RECOVERY_PHASES.index(phase) >= RECOVERY_PHASES.index(wanted)

    def carry_out(self, fault):
        if not self.wait(fault):
            return
        if not fault.in_recovery:
            time.sleep(fault.delay)  # the moment within the step is what is random
            self.status = self.run.ask("status")
        if not self.status or self.over():
            return
        try:
            struck = getattr(self, fault.kind.replace("-", "_"), self.injected)(fault, self.status)
        except sockets.Forbidden as why:
            self.skipped[fault.kind] = str(why)
            return
        if struck:
            self.kinds[fault.kind] += 1
            self.phases[self.status["phase"]] += 1

    # ---- what: one function for each kind that is not an injection; false: it could not be done any more ------------

    def injected(self, fault, status):
        node = status["ranks"][fault.rank].get("node", 0)
        return self.run.ask_node(node, "inject", spec=fault.spec(status["step"] + 2)) is not None

    def flip(self, fault, status):
        if not self.injected(fault, status):
            return False
        limit = time.monotonic() + FLIP_WAIT_SECONDS
        while not self.over() and time.monotonic() < limit:
            now = self.run.ask("status")
            if now and now["incidents"] > status["incidents"] and now["phase"] == "RUNNING":
                return True
            time.sleep(POLL_SECONDS)
        if not self.over():
            raise Failure(f"a flip was not found within {FLIP_WAIT_SECONDS} s\n{self.run.log()[-3000:]}")
        return True

    def kill(self, fault, status):
        pid = status["ranks"][fault.rank]["pid"]
        return pid and kill(pid)

    def stop(self, fault, status):
        pid = status["ranks"][fault.rank]["pid"]
        return pid and send_signal(pid, signal.SIGSTOP)

    def pause(self, fault, status):
        return self.stop_for(status["ranks"][fault.rank]["pid"], fault.length)

    long_pause = pause

    def stop_for(self, pid, seconds):
        if not pid or not send_signal(pid, signal.SIGSTOP):
            return False
        # Not do_later: a question to a launcher that is stopped is waited for, and the pause would last as long.
        threading.Timer(seconds, send_signal, (pid, signal.SIGCONT)).start()
        return True

    def launcher_pause(self, fault, _status):
        return self.stop_for(self.run.launcher(fault.node), fault.length)

    def shut_control(self, fault, status):
        """The connection of a rank to its controller, or to its node's relay."""
        return self.shut(fault, status, lambda remote, doors: remote in doors)

    def shut_data(self, fault, status):
        """A connection between two ranks."""
        return self.shut(fault, status, lambda remote, doors: remote not in doors)

    def shut(self, fault, status, wanted):
        rank = status["ranks"][fault.rank]
        doors = sockets.listening_ports(self.run.launcher(rank.get("node", 0)))
        found = [c for c in sockets.connections(rank["pid"]) if c[1] not in doors and wanted(c[2], doors)] if rank["pid"] else []
        return bool(found) and sockets.shut(rank["pid"], found[int(fault.share * len(found))][0])

    def shut_node(self, fault, _status):
        """The connection of a node's launcher to the controller."""
        pid = self.run.launcher(fault.node)
        doors = sockets.listening_ports(self.run.launcher())
        found = [c for c in sockets.connections(pid) if c[2] in doors]
        return bool(found) and sockets.shut(pid, found[0][0])

    def disk_full(self, fault, _status):
        if self.disk.missing:
            self.skipped[fault.kind] = self.disk.missing
            return False
        if fault.share < 0.5:  # in the middle of a save, if one can be had
            self.run.ask("save")
            time.sleep(fault.delay / 10)
        self.disk.fill(int(fault.share * FREE_BYTES_MAX))
        self.filled = True
        if fault.heals:
            self.do_later(fault.length, self.disk.empty)
        return True

    def save(self, _fault, _status):
        return self.run.ask("save") is not None

    def garbage(self, _fault, status):
        host, port = status["address"].rsplit(":", 1)
        try:
            with socket.create_connection((host, int(port)), timeout=2) as connection:
                connection.sendall(random.Random(0).randbytes(300))
            return True
        except OSError:
            return False

    def preempt(self, fault, _status):
        return send_signal(self.run.launcher(fault.node), signal.SIGTERM)

    def launcher_killed(self, _fault, _status):
        return kill(self.run.launcher())

    def node_killed(self, fault, _status):
        """Its ranks die with it: they are its children."""
        self.run.signal(signal.SIGKILL, fault.node)
        return self.comes_back(fault)

    def node_and_ranks_killed(self, fault, status):
        """As a host that is gone at once. Which of them is first is drawn."""
        ranks = [rank["pid"] for rank in status["ranks"] if rank["node"] == fault.node and rank["pid"]]
        everybody = [self.run.launcher(fault.node), *ranks]
        for pid in everybody if fault.share < 0.5 else reversed(everybody):
            kill(pid)
        return self.comes_back(fault)

    def controller_killed(self, fault, _status):
        """The leader: another takes over, if it has a majority; else once this one is back."""
        if self.run.coming:  # two at once may leave nobody who knows the run
            return False
        self.run.ask("status")  # whom the last one named may have been followed by another
        fault.node = self.run.leader
        return self.node_killed(fault, None)

    def comes_back(self, fault):
        self.node_lost = True
        if not fault.heals:
            return True
        self.run.coming.add(fault.node)

        def start():
            self.run.launchers[fault.node].wait()
            others = [process for node, process in self.run.launchers.items() if node != fault.node]
            if any(process.poll() is None for process in others):
                self.run.start(fault.node)
            else:
                self.run.coming.discard(fault.node)
        self.do_later(fault.length, start)
        return True
