"""Chaos: random real faults at random moments of steps and of recovery, several in a run, until the time is over.

Every run ends with the bits of the undisturbed run, or with an orderly dump from which a resumed run reaches them. What a
seed draws (layouts, options, faults and when they strike) is the same every time; when exactly they strike is the machine's.

  chaos.py BIN_DIR [--minutes M | --runs N] [--seed S] [--json [FILE|-]] [--keep DIR]

Exit codes: 0 nothing is broken, 1 something is, 2 wrong usage, 130 interrupted (what was found so far is reported).
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from harness import Failure, Runner, reference, same_training
from live_run import LiveRun

POLL_SECONDS = 0.01
RUN_SECONDS = 180  # a run that takes longer is broken: nothing here waits for more than a few limits
TRAIN_PHASES = ["forward", "backward", "gradient-sync", "gate", "update", "param-sync", "between"]
RECOVERY_PHASES = ["LOCK", "STOP", "CLEAN", "ADMIT", "REBUILD", "REPAIR", "VERIFY", "ROLLBACK"]
# Weighted: what is likely in practice, and what recovers by different rungs.
KINDS = (["kill"] * 6 + ["stop"] * 2 + ["pause"] * 2 + ["long-pause"] * 2 + ["throw"] * 3 + ["exit"] * 2 + ["uce"] * 3 +
         ["uce-high"] * 2 + ["hang"] * 2 + ["hang-stop"] + ["save"] * 2 + ["garbage"] + ["preempt"] + ["launcher-killed"])
ENDS_THE_RUN = ("preempt", "launcher-killed")


class Fault:
    """One planned fault: a kind, a rank, and either a step or a phase of the recovery that is under way."""

    def __init__(self, chance, kind, ranks, steps):
        self.kind = kind
        self.rank = chance.randrange(ranks)
        self.in_recovery = chance.choice(RECOVERY_PHASES) if chance.random() < 0.4 else None
        self.step = chance.randrange(1, max(2, steps - 4))
        self.phase = chance.choice(TRAIN_PHASES)
        self.delay = chance.uniform(0, 0.03)
        self.length = chance.uniform(0.05, 0.2) if kind == "pause" else chance.uniform(0.6, 1.5)

    def __str__(self):
        when = f"in {self.in_recovery}" if self.in_recovery else f"at step {self.step}"
        return f"{self.kind} of rank {self.rank} {when}"

    def spec(self, step):
        kind = {"uce-high": "uce", "hang-stop": "hang"}.get(self.kind, self.kind)
        key = {"uce-high": ",level=high", "hang-stop": ",until=stop"}.get(self.kind, "")
        return f"{kind}:{self.rank}@{step}:{self.phase}{key}"


class Plan:
    """All that one run of a seed is made of."""

    def __init__(self, seed, number):
        chance = random.Random(f"{seed}/{number}")
        self.number = number
        self.nproc, self.tp = chance.choice([(2, 1), (4, 1), (4, 1), (4, 2), (6, 1)])
        self.steps = chance.randrange(14, 40)
        self.trainer = ["--steps", str(self.steps), "--tp", str(self.tp), "--seed", str(chance.randrange(1, 4))]
        delay = chance.choice([5000, 20000, 40000])
        self.slow = ["--step-delay-us", str(delay)]
        self.save_every = chance.choice([0, 0, 4, 7])
        self.respawns = chance.choice([100, 100, 100, 1, 0])
        self.options = ["--silence", "0.4", "--hang-least", "0.8", "--step-timeout", "10", "--grace", "10",
                        "--max-respawns", str(self.respawns)]
        if self.save_every:
            self.options += ["--save-every", str(self.save_every)]
        count = chance.randrange(1, 5)
        self.faults = [Fault(chance, chance.choice(KINDS), self.nproc, self.steps) for _ in range(count)]
        self.faults[0].in_recovery = None
        self.faults.sort(key=lambda fault: (fault.kind in ENDS_THE_RUN, fault.step))
        self.spares = chance.choice([0, 0, 1, 2])
        self.options += ["--spares", str(self.spares)]

    def __str__(self):
        return (f"run {self.number}: {self.nproc} ranks, tp {self.tp}, {self.steps} steps, {self.respawns} respawns, "
                f"{self.spares} spares, "
                f"save every {self.save_every}: {'; '.join(map(str, self.faults))}")


class Strike:
    """Carries the faults of a plan out on a live run, and notes in which phase each struck."""

    def __init__(self, run, phases, kinds):
        self.run, self.phases, self.kinds = run, phases, kinds
        self.to_continue = []  # (when, pid)
        self.status = None     # the newest answer

    def over(self):
        return self.run.process.poll() is not None

    def continue_due(self, everybody=False):
        now = time.monotonic()
        for entry in [e for e in self.to_continue if everybody or e[0] <= now]:
            self.to_continue.remove(entry)
            try:
                os.kill(entry[1], signal.SIGCONT)
            except ProcessLookupError:
                pass

    def wait(self, fault):
        """Until the fault's moment; False when the run ended before."""
        waited_for_recovery = time.monotonic() + 3
        while not self.over():
            self.continue_due()
            status = self.status = self.run.ask("status")
            if status:
                if fault.in_recovery and status["phase"] == fault.in_recovery:
                    return True
                # A recovery that does not come is not waited for for ever.
                if status["step"] >= fault.step and (not fault.in_recovery or time.monotonic() > waited_for_recovery):
                    return True
            time.sleep(0.0005 if fault.in_recovery else POLL_SECONDS)  # a phase of the recovery may last a millisecond
        return False

    def carry_out(self, fault):
        if not self.wait(fault):
            return
        if not fault.in_recovery:
            time.sleep(fault.delay)  # the moment within the step is what is random
            self.status = self.run.ask("status")
        if self.status and not self.over() and self.strike(fault, self.status):
            self.kinds[fault.kind] += 1
            self.phases[self.status["phase"]] += 1

    def strike(self, fault, status):
        pid = status["ranks"][fault.rank]["pid"]
        if fault.kind in ("kill", "stop", "pause", "long-pause"):
            if not pid:
                return False
            try:
                os.kill(pid, signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
            except ProcessLookupError:
                return False
            if fault.kind in ("pause", "long-pause"):
                self.to_continue.append((time.monotonic() + fault.length, pid))
            return True
        if fault.kind == "save":
            return self.run.ask("save") is not None
        if fault.kind == "garbage":
            return self.garbage(status["address"])
        if fault.kind == "preempt":
            self.run.signal(signal.SIGTERM)
            return True
        if fault.kind == "launcher-killed":
            self.run.signal(signal.SIGKILL)
            return True
        return self.run.ask("inject", spec=fault.spec(status["step"] + 2)) is not None

    def garbage(self, address):
        host, port = address.rsplit(":", 1)
        try:
            with socket.create_connection((host, int(port)), timeout=2) as connection:
                connection.sendall(random.Random(0).randbytes(300))
            return True
        except OSError:
            return False


class Chaos:
    def __init__(self, options):
        self.options = options
        self.runs = self.identical = self.resumed = self.lost = 0
        self.broken = []
        self.kinds, self.phases, self.rungs = Counter(), Counter(), Counter()
        self.worst_resume_ms = 0

    def one(self, plan):
        runner = Runner(self.options.bin_dir)
        keep = True
        try:
            outcome = self.train(runner, plan)
            self.runs += 1
            keep = False
            return outcome
        except (Failure, subprocess.TimeoutExpired, KeyError, OSError, json.JSONDecodeError) as error:
            self.runs += 1
            self.broken.append({"run": plan.number, "plan": str(plan), "why": f"{type(error).__name__}: {str(error)[:600]}"})
            return f"BROKEN: {str(error)[:300]}"
        finally:
            if keep and self.options.keep:
                shutil.copytree(runner.folder, Path(self.options.keep) / f"run-{plan.number}", dirs_exist_ok=True,
                                ignore_dangling_symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
            runner.close()

    def train(self, runner, plan):
        expected = reference(runner.bin, plan.trainer, nproc=plan.nproc)
        saves = runner.folder / "checkpoints"
        with LiveRun(runner, plan.options, plan.trainer + plan.slow, plan.nproc) as run:
            strike = Strike(run, self.phases, self.kinds)
            try:
                for fault in plan.faults:
                    strike.carry_out(fault)
                self.let_end(run, strike)
            finally:
                strike.continue_due(everybody=True)
            code = run.process.returncode
            if code == -signal.SIGKILL:
                self.wait_for_orphans(runner)
                summary = None
            else:
                summary, _ = run.finish(expect=code)
                self.note(summary)
            log = run.log()
        if code == 0:
            difference = same_training(expected, summary)
            if difference:
                raise Failure(f"{difference}\n{log[-3000:]}")
            self.identical += 1
            return "identical"
        if code in (75, -signal.SIGKILL, 1):
            return self.resume(runner, plan, expected, code, saves, log)
        raise Failure(f"exit code {code}\n{log[-3000:]}")

    def let_end(self, run, strike):
        end = time.monotonic() + RUN_SECONDS
        while run.process.poll() is None:
            strike.continue_due()
            if time.monotonic() > end:
                raise Failure(f"the run does not end; status {json.dumps(run.status())[:1500]}\n{run.log()[-3000:]}")
            time.sleep(POLL_SECONDS)

    def wait_for_orphans(self, runner):
        end = time.monotonic() + 5
        while runner.orphans():
            if time.monotonic() > end:
                raise Failure(f"left running by a killed launcher: {runner.orphans()}")
            time.sleep(POLL_SECONDS)

    def resume(self, runner, plan, expected, code, saves, log):
        """What was saved leads to the same end; where nothing was saved, it must have been said that nothing is left."""
        if not (saves / "latest").exists():
            if code == 75:
                raise Failure(f"exit code 75 without a checkpoint\n{log[-3000:]}")
            # Both replicas of a shard gone, or the launcher killed, and no save was asked for.
            if code == 1 and "there is no checkpoint" not in log and "nothing was saved" not in log:
                raise Failure(f"exit code 1\n{log[-3000:]}")
            self.lost += 1
            return "nothing was saved to resume from"
        if code == 1 and "resume" not in log:
            raise Failure(f"exit code 1\n{log[-3000:]}")
        done, _ = runner.run(["--resume", str(saves), "--save-dir", str(saves)], plan.trainer, plan.nproc)
        if done["final_digest"] != expected["final_digest"] or done["losses"] != expected["losses"][-len(done["losses"]):]:
            raise Failure(f"resumed to other bits: {done['final_digest']} instead of {expected['final_digest']}\n{log[-3000:]}")
        self.resumed += 1
        return f"saved and resumed to the same bits (exit code {code})"

    def note(self, summary):
        for incident in summary["incidents"] if summary else []:
            self.rungs[incident["path"] or "none"] += 1
            if incident["resumed_ms"]:
                self.worst_resume_ms = max(self.worst_resume_ms, incident["resumed_ms"])

    def result(self, minutes):
        return {"schema": 1, "seed": self.options.seed, "minutes": round(minutes, 2), "runs": self.runs,
                "identical": self.identical, "dumped_and_resumed": self.resumed, "nothing_saved": self.lost,
                "broken": self.broken, "faults": dict(sorted(self.kinds.items())), "phases": dict(sorted(self.phases.items())),
                "rungs": dict(sorted(self.rungs.items())), "worst_resume_ms": round(self.worst_resume_ms, 1)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--runs", type=int, default=0, help="so many runs, however long they take")
    parser.add_argument("--first", type=int, default=1, help="number of the first run: repeats one of a longer series")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", nargs="?", const="-", help="write the figures to FILE, or to standard output")
    parser.add_argument("--keep", help="keep logs and checkpoints of broken runs in this folder")
    options = parser.parse_args()
    if options.minutes <= 0 or options.runs < 0 or options.first < 1:
        parser.error("--minutes must be positive, --runs not negative, --first from 1")
    if not (Path(options.bin_dir) / "kintsugi").exists():
        parser.error(f"there is no kintsugi in {options.bin_dir}: build it first")
    return options


def main():
    options = parse()
    words = sys.stderr if options.json == "-" else sys.stdout
    chaos = Chaos(options)
    began = time.monotonic()
    number = options.first
    interrupted = False
    try:
        while chaos.runs < options.runs if options.runs else time.monotonic() - began < 60 * options.minutes:
            plan = Plan(options.seed, number)
            print(plan, file=words, flush=True)
            print(f"  {chaos.one(plan)}", file=words, flush=True)
            number += 1
    except KeyboardInterrupt:
        interrupted = True
    result = chaos.result((time.monotonic() - began) / 60)
    print(f"seed {options.seed}: {chaos.runs} runs, {chaos.identical} identical, {chaos.resumed} saved and resumed, {chaos.lost} "
          f"with nothing saved, {len(chaos.broken)} broken; {sum(chaos.kinds.values())} faults; slowest recovery "
          f"{chaos.worst_resume_ms:.0f} ms", file=words, flush=True)
    for broken in chaos.broken:
        print(f"  BROKEN {broken['plan']}\n    {broken['why']}\n    again: --seed {options.seed} --first {broken['run']} --runs 1",
              file=words)
    if options.json:
        text = json.dumps(result, indent=1)
        if options.json == "-":
            print(text)
        else:
            Path(options.json).write_text(text + "\n")
    return 130 if interrupted else 1 if chaos.broken else 0


if __name__ == "__main__":
    sys.exit(main())
