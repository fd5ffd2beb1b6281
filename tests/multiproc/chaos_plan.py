"""What one run of chaos is made of. Drawn from a seed and a number, so that a plan can be repeated."""
import random

TRAIN_PHASES = ["forward", "backward", "gradient-sync", "gate", "update", "param-sync", "between"]
RECOVERY_PHASES = ["LOCK", "STOP", "CLEAN", "ADMIT", "REBUILD", "REPAIR", "VERIFY", "ROLLBACK"]

# How often each is drawn: by what is likely in practice, and by what recovers by different rungs.
WEIGHTS = {
    "kill": 6, "stop": 2, "pause": 2, "long-pause": 2, "throw": 3, "exit": 2, "uce": 3, "uce-high": 2, "hang": 2,
    "hang-stop": 1, "flip": 2, "shut-control": 2, "shut-data": 2, "disk-full": 2, "save": 2, "garbage": 1,
    "launcher-pause": 1, "preempt": 1, "launcher-killed": 1,
}
# With several launchers only. `node` is never node 0, which leads first. `controller-killed` strikes the leader, so that
# another takes over, and stands for `launcher-killed`, which ends a run of one launcher.
NODE_WEIGHTS = {"node-killed": 3, "node-and-ranks-killed": 2, "shut-node": 3, "controller-killed": 3}
KINDS = [*WEIGHTS, *NODE_WEIGHTS]
# What a recovery follows at once, so that another fault can strike in it.
PROVOKES = ("kill", "exit", "throw", "uce", "uce-high", "stop", "shut-data", "node-killed", "node-and-ranks-killed", "controller-killed",
            "hang-stop")
ENDS_THE_RUN = ("preempt", "launcher-killed")
LAYOUTS = [(1, 2, 1), (1, 4, 1), (1, 4, 1), (1, 4, 2), (1, 6, 1), (2, 2, 1), (2, 2, 2), (3, 2, 1)]  # nodes, ranks of each, tp


class Fault:
    """One planned fault: a kind, where it strikes, and either a step or a phase of the recovery that is under way."""

    def __init__(self, chance, kind, plan):
        self.kind = kind
        self.rank = chance.randrange(plan.ranks)
        self.node = chance.randrange(1, plan.nodes) if kind in NODE_WEIGHTS else chance.randrange(plan.nodes)
        self.in_recovery = chance.choice(RECOVERY_PHASES) if chance.random() < 0.4 else None
        self.step = chance.randrange(1, max(2, plan.steps - 4))
        self.phase = chance.choice(TRAIN_PHASES)
        self.delay = chance.uniform(0, 0.03)
        self.length = chance.uniform(0.05, 0.2) if kind == "pause" else chance.uniform(0.6, 1.5)
        if kind == "launcher-pause":
            self.length = chance.choice([chance.uniform(0.05, 0.3), chance.uniform(0.6, 1.5)])
        self.share = chance.random()          # of what is left free on a full disk; which connection is shut
        self.heals = chance.random() < 0.7    # the launcher is started again, the disk is emptied

    def __str__(self):
        when = f"in {self.in_recovery}" if self.in_recovery else f"at step {self.step}"
        heals = f" for {self.length:.2f} s" if self.heals else " for good"
        where = {"disk-full": heals, "garbage": "", "save": "", "launcher-pause": f" of node {self.node} for {self.length:.2f} s",
                 "preempt": f" of node {self.node}", "launcher-killed": "", "controller-killed": heals, "shut-node": f" {self.node}",
                 "node-killed": f" {self.node}{heals}", "node-and-ranks-killed": f" {self.node}{heals}"}
        return f"{self.kind}{where.get(self.kind, f' of rank {self.rank}')} {when}"

    def spec(self, step):
        kind = {"uce-high": "uce", "hang-stop": "hang"}.get(self.kind, self.kind)
        key = {"uce-high": ",level=high", "hang-stop": ",until=stop"}.get(self.kind, "")
        return f"{kind}:{self.rank}@{step}:{self.phase}{key}"


class Plan:
    """All that one run of a seed is made of."""

    def __init__(self, seed, number, kinds=()):
        chance = random.Random(f"{seed}/{number}")
        self.number = number
        layouts = [layout for layout in LAYOUTS if layout[0] > 1] if kinds and set(kinds) <= set(NODE_WEIGHTS) else LAYOUTS
        self.nodes, self.nproc, self.tp = chance.choice(layouts)
        self.ranks = self.nodes * self.nproc
        self.steps = chance.randrange(14, 40)
        delay = chance.choice([5000, 20000, 40000])
        self.slow = ["--step-delay-us", str(delay)]
        self.save_every = chance.choice([0, 0, 4, 7])
        self.verify_every = chance.choice([0, 0, 0, 1, 3])
        self.respawns = chance.choice([100, 100, 100, 1, 0])
        weights = {**WEIGHTS, **(NODE_WEIGHTS if self.nodes > 1 else {})}
        if self.nodes > 1:
            del weights["launcher-killed"]
        weights = {kind: weight for kind, weight in weights.items() if not kinds or kind in kinds} or WEIGHTS
        drawn = chance.choices(list(weights), list(weights.values()), k=chance.randrange(1, 5))
        # A second flip before the first is found could hit both copies of one shard, and nobody could tell.
        drawn = [kind for at, kind in enumerate(drawn) if kind != "flip" or "flip" not in drawn[:at]]
        if "flip" in drawn:
            self.steps = max(self.steps, 30)
            self.save_every = self.save_every or 4
            self.verify_every = self.verify_every or 3
        self.trainer = ["--steps", str(self.steps), "--tp", str(self.tp), "--seed", str(chance.randrange(1, 4))]
        self.faults = [Fault(chance, kind, self) for kind in drawn]
        for fault in self.faults:
            if fault.kind == "flip":  # a checkpoint stands before it, a comparison behind it
                fault.in_recovery = None
                fault.step = chance.randrange(self.save_every + 1, self.steps - self.verify_every - 8)
        # The flip is first and found before the next: what happens between would be repaired from the copy that is wrong.
        self.faults.sort(key=lambda fault: (fault.kind != "flip", fault.kind in ENDS_THE_RUN, fault.step))
        self.faults[0].in_recovery = None
        if not kinds:
            self.faults = self.provoked(chance)
        # The last draws: earlier ones stay what they were.
        self.spares = chance.choice([0, 0, 1, 2])
        self.snapshot_every = chance.choice([0, 0, 2, 5])
        self.adopts = chance.random() < 0.6
        self.small_disk = any(fault.kind == "disk-full" for fault in self.faults)

    def provoked(self, chance):
        """What shall strike in a recovery comes right behind something that leads to one."""
        faults = []
        for fault in self.faults:
            if fault.in_recovery and faults[-1].kind not in PROVOKES:
                first = Fault(chance, chance.choice(["kill", "kill", "throw", "uce"]), self)
                first.in_recovery, first.step = None, fault.step
                faults.append(first)
            faults.append(fault)
        return faults

    @property
    def options(self):
        options = ["--silence", "0.4", "--hang-least", "0.8", "--step-timeout", "10", "--grace", "10", "--max-respawns",
                   str(self.respawns)]
        for name, value in (("--save-every", self.save_every), ("--verify-every", self.verify_every), ("--spares", self.spares),
                            ("--snapshot-every", self.snapshot_every)):
            if value:
                options += [name, str(value)]
        return options if self.adopts else [*options, "--no-adopt"]

    def __str__(self):
        layout = f"{self.nodes} nodes of {self.nproc} ranks" if self.nodes > 1 else f"{self.nproc} ranks"
        return (f"run {self.number}: {layout}, tp {self.tp}, {self.steps} steps, {self.respawns} respawns, "
                f"save every {self.save_every}, verify every {self.verify_every}, {self.spares} spares, "
                f"snapshot every {self.snapshot_every}{'' if self.adopts else ', no adopt'}: {'; '.join(map(str, self.faults))}")
