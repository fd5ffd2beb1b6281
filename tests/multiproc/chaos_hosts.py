"""Chaos over several hosts (`chaos.py --hosts N`): each launcher in a network namespace with clocks of its own, so that roads can
be cut, hosts switched off, certificates end, and an operator and a batch system give orders at any moment."""
import random
import signal
import threading
import time

import chaos_plan
from chaos_plan import Fault, Plan
from chaos_runs import SeveralLaunchers, kill, send_signal
from chaos_strike import Strike
from network import Network
from tls import Authority

RANKS_WEIGHTS = {"kill": 3, "stop": 1, "pause": 1, "long-pause": 1, "throw": 2, "exit": 1, "uce": 2, "hang": 1, "flip": 1,
                 "disk-full": 1, "save": 2, "launcher-pause": 1}
HOST_WEIGHTS = {"cut-pair": 3, "cut-one-way": 3, "cut-host": 3, "close-door": 2, "slow-roads": 1, "host-off": 4,
                "node-killed": 2, "controller-killed": 2, "order-pause": 2, "order-replace": 2, "order-drain": 1,
                "batch-signal": 1}
KINDS = [*RANKS_WEIGHTS, *HOST_WEIGHTS]
PROVOKES = (*chaos_plan.PROVOKES, "cut-pair", "cut-one-way", "cut-host", "host-off")
ENDS_THE_RUN = ("order-drain", "batch-signal")
WARNINGS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
GO_ON_SECONDS = 0.2
OTHER_CLOCKS = 1_000_000  # seconds that a host may have been up before this one


class HostFault(Fault):
    def __init__(self, chance, kind, plan):
        super().__init__(chance, kind, plan)
        self.node = chance.randrange(plan.nodes + plan.spare_hosts)
        self.other = chance.choice([node for node in range(plan.nodes + plan.spare_hosts) if node != self.node])
        self.signal = chance.choice(WARNINGS)
        if kind in HOST_WEIGHTS:
            self.length = chance.choice([chance.uniform(0.05, 0.3), chance.uniform(0.6, 1.5), chance.uniform(2.5, 5)])

    def __str__(self):
        if self.kind not in HOST_WEIGHTS or self.kind in ("node-killed", "controller-killed"):
            return super().__str__()
        when = f"in {self.in_recovery}" if self.in_recovery else f"at step {self.step}"
        lasts = f" for {self.length:.2f} s" if self.heals else " for good"
        what = {"cut-pair": f" {self.node} - {self.other}{lasts}", "cut-one-way": f" {self.node} -> {self.other}{lasts}",
                "cut-host": f" {self.node}{lasts}", "close-door": f" {self.node} -> {self.other}{lasts}",
                "slow-roads": f" for {self.length:.2f} s", "host-off": f" {self.node}{lasts}",
                "order-pause": f" for {self.length:.2f} s", "order-replace": f" of rank {self.rank}",
                "order-drain": f" of node {self.node}",
                "batch-signal": f" {self.signal.name} to {'all' if self.share < 0.5 else f'node {self.node}'}"}
        return f"{self.kind}{what[self.kind]} {when}"


class HostsPlan(Plan):
    """What one run of a seed is made of, over so many hosts."""

    def __init__(self, seed, number, kinds, hosts):
        chance = random.Random(f"hosts {hosts}/{seed}/{number}")
        self.number, self.nodes, self.nproc = number, hosts, 2
        self.spare_hosts = chance.choice([0, 0, 1])
        self.tp = chance.choice([1, 1, 2])
        self.ranks = self.nodes * self.nproc
        self.steps = chance.randrange(60, 140)
        self.slow = ["--step-delay-us", str(chance.choice([20000, 40000]))]
        self.save_every = chance.choice([0, 0, 10, 25])
        self.verify_every = chance.choice([0, 0, 0, 3])
        self.respawns = chance.choice([100, 100, 1])
        weights = {kind: weight for kind, weight in {**RANKS_WEIGHTS, **HOST_WEIGHTS}.items() if not kinds or kind in kinds}
        drawn = chance.choices(list(weights), list(weights.values()), k=chance.randrange(1, 5))
        drawn = [kind for at, kind in enumerate(drawn) if kind != "flip" or "flip" not in drawn[:at]]
        if "flip" in drawn:
            self.save_every, self.verify_every = self.save_every or 10, self.verify_every or 3
        self.trainer = ["--steps", str(self.steps), "--tp", str(self.tp), "--seed", str(chance.randrange(1, 4))]
        self.faults = [HostFault(chance, kind, self) for kind in drawn]
        for fault in self.faults:
            if fault.kind == "flip":
                fault.in_recovery, fault.step = None, chance.randrange(self.save_every + 1, self.steps - self.verify_every - 8)
        self.faults.sort(key=lambda fault: (fault.kind != "flip", fault.kind in ENDS_THE_RUN, fault.step))
        self.faults[0].in_recovery = None
        for before, fault in zip(self.faults, self.faults[1:]):
            if before.kind not in PROVOKES:
                fault.in_recovery = None
        self.spares = chance.choice([0, 0, 1])
        self.snapshot_every = chance.choice([0, 0, 5])
        self.adopts = chance.random() < 0.6
        self.clocks = [chance.randrange(OTHER_CLOCKS) for _ in range(self.nodes + self.spare_hosts)]
        # None: no TLS. Else when the certificates end, after the start, and whether new ones are written before.
        self.certificates = chance.choice([None, None, (86400, False), (chance.uniform(3, 5), False), (chance.uniform(3, 5), True)])
        self.small_disk = any(fault.kind == "disk-full" for fault in self.faults)

    def __str__(self):
        spare = f", {self.spare_hosts} spare" if self.spare_hosts else ""
        tls = ""
        if self.certificates:
            seconds, renewed = self.certificates
            tls = ", TLS" if seconds > 3600 else f", TLS, certificates end after {seconds:.1f} s{' and are renewed' if renewed else ''}"
        return super().__str__().replace(" ranks, tp", f" ranks on hosts of their own{spare}{tls}, tp", 1)


class HostsRun(SeveralLaunchers):
    def __init__(self, runner, plan):
        self.net = Network(plan.nodes + plan.spare_hosts, plan.clocks)
        self.tls, self.renewal = [], None
        if plan.certificates:
            seconds, renewed = plan.certificates
            authority = Authority(runner.folder / "tls")
            self.tls = authority.issue("host", seconds=seconds + 1)
            if renewed:
                self.renewal = threading.Timer(seconds - 2, authority.issue_until, ("host", time.gmtime(time.time() + 86400)))
                self.renewal.start()
        super().__init__(runner, plan)
        for node in range(plan.nodes, plan.nodes + plan.spare_hosts):
            self.start(node)

    def choose_rendezvous(self):
        return f"{self.net.address(0)}:29400"

    def nnodes(self):
        return f"{self.nodes}:{self.nodes + self.plan.spare_hosts}" if self.plan.spare_hosts else str(self.nodes)

    def line(self, node):
        line = super().line(node)
        at = line.index("--nnodes")
        return [*line[:at], *self.tls, *line[at:]]

    def popen(self, node, line, **options):
        return self.net.popen(node, line, **options)

    def code(self):
        """Once all have ended: a part that was cut off ends by itself, and what counts is the part that went on. A spare
        host that a signal sends away leaves with 0, and knows nothing of the run's end."""
        codes = {node: process.poll() for node, process in self.launchers.items()}
        if self.coming or any(code is None for code in codes.values()):
            return None
        codes = [code for node, code in codes.items()
                 if code != -signal.SIGKILL and "event=standby_left" not in self.words(node)]
        return next((code for wanted in (0, 75) for code in codes if code == wanted), codes[0] if codes else -signal.SIGKILL)

    def end(self):
        """The summary of who led to the last step, else any."""
        told = self.told()
        return max(told.values(), key=lambda summary: bool(summary["final_digest"]), default=None)

    def close(self):
        if self.renewal:
            self.renewal.cancel()
            self.renewal.join()
        super().close()
        self.net.close()


class HostsStrike(Strike):
    @property
    def net(self):
        return self.run.net

    def cut(self, fault, roads):
        """A road that is closed may cost a node its place, and what its ranks had not reported."""
        self.node_lost = True
        for road in roads:
            self.net.cut(*road, both=False)
        if fault.heals:
            self.do_later(fault.length, lambda: self.net.mend(roads))
        return True

    def cut_pair(self, fault, _status):
        return self.cut(fault, [(fault.node, fault.other), (fault.other, fault.node)])

    def cut_one_way(self, fault, _status):
        return self.cut(fault, [(fault.node, fault.other)])

    def cut_host(self, fault, _status):
        return self.cut(fault, self.roads_of(fault.node))

    def roads_of(self, node):
        others = [other for other in self.run.launchers if other != node]
        return [(node, other) for other in others] + [(other, node) for other in others]

    def close_door(self, fault, _status):
        self.node_lost = True
        self.net.close_door(fault.node, fault.other)
        if fault.heals:
            self.do_later(fault.length, lambda: self.net.open_door(fault.node, fault.other))
        return True

    def slow_roads(self, fault, _status):
        self.net.delay(fault.share * 0.15)
        self.do_later(fault.length, lambda: self.net.delay(0))
        return True

    def host_off(self, fault, status):
        """Nobody there says good-bye: its roads are cut before its processes are gone."""
        if fault.node in self.run.coming:
            return False
        roads = self.roads_of(fault.node)
        for road in roads:
            self.net.cut(*road, both=False)
        for pid in [self.run.launcher(fault.node), *(rank["pid"] for rank in status["ranks"] if rank.get("node", 0) == fault.node)]:
            if pid:
                kill(pid)
        if fault.heals:
            self.do_later(fault.length, lambda: self.net.mend(roads))
        return self.comes_back(fault)

    def order_pause(self, fault, _status):
        if not self.run.ask("pause", wait=False):
            return False
        self.do_later(fault.length, self.go_on)
        return True

    def go_on(self):
        """Until somebody has taken the order, who may lead only since then."""
        if not self.over() and not self.run.ask("continue"):
            self.do_later(GO_ON_SECONDS, self.go_on)

    def order_replace(self, fault, _status):
        return self.run.ask("replace", rank=fault.rank, wait=False) is not None

    def order_drain(self, fault, _status):
        return self.run.ask("drain", node=fault.node, wait=False) is not None

    def batch_signal(self, fault, _status):
        nodes = list(self.run.launchers) if fault.share < 0.5 else [fault.node]
        return any([send_signal(self.run.launcher(node), fault.signal) for node in nodes])
