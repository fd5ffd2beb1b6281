"""Chaos: random real faults at random moments of steps and of recovery, several in a run, until the time is over.

Every run ends with the bits of the undisturbed run, or with an orderly dump from which a resumed run reaches them. What a
seed draws (layouts, options, faults and when they strike) is the same every time; when exactly they strike is the machine's.

  chaos.py BIN_DIR [--minutes M | --runs N] [--seed S] [--hosts N] [--json [FILE|-]] [--keep DIR] [--kinds K,K]

Exit codes: 0 nothing is broken, 1 something is, 2 wrong usage, 130 interrupted (what was found so far is reported).
"""
import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import chaos_hosts
import chaos_runs
from chaos_plan import KINDS, Plan
from chaos_runs import POLL_SECONDS
from chaos_strike import Strike
from harness import Failure, Runner, reference, same_training

RUN_SECONDS = 180  # a run that takes longer is broken: nothing here waits for more than a few limits


# Of three copies most decide, and the run goes on; what the wrong one gave to the others in the steps before stays.
def said_inexact(log):
    return "event=inexact" in log and "its copy differed from the others' at step" in log


class Chaos:
    def __init__(self, options):
        self.options = options
        self.runs = self.identical = self.resumed = self.lost = self.inexact = 0
        self.broken = []
        self.kinds, self.phases, self.rungs, self.layouts = Counter(), Counter(), Counter(), Counter()
        self.skipped = {}
        self.worst_resume_ms, self.worst_run = 0, None
        self.told = ""  # of the newest run's recoveries

    def one(self, plan):
        runner = Runner(self.options.bin_dir)
        self.told = ""
        try:
            outcome = self.train(runner, plan)
        except (Failure, subprocess.TimeoutExpired, KeyError, OSError, json.JSONDecodeError) as error:
            self.broken.append({"run": plan.number, "plan": str(plan), "why": f"{type(error).__name__}: {str(error)[:600]}"})
            outcome = f"BROKEN: {str(error)[:300]}"
        finally:
            runner.close()
        self.runs += 1
        self.layouts[f"{plan.nodes}x{plan.nproc}" + (f" tp {plan.tp}" if plan.tp > 1 else "")] += 1
        return outcome + self.told

    def train(self, runner, plan):
        expected = reference(runner.bin, plan.trainer, nproc=plan.ranks)
        begin, strikes = (chaos_hosts.HostsRun, chaos_hosts.HostsStrike) if self.options.hosts else (chaos_runs.start, Strike)
        disk = chaos_runs.SmallDisk(runner.folder / "checkpoints") if plan.small_disk else None
        try:
            with begin(runner, plan) as run:
                strike = strikes(run, disk)
                try:
                    for fault in plan.faults:
                        strike.carry_out(fault)
                    self.let_end(run, strike)
                    code, summary = run.code(), run.end()
                finally:
                    strike.do_due(everything=True)
                    self.note(strike)
                log = run.log()
            self.wait_for_orphans(runner)
            self.note_incidents(summary, plan)
            if code == 0:
                # What a node had not told yet is lost with it; the run counts and says it. The state has the same bits.
                lost = bool(strike.node_lost) and "event=reports_lost" in log
                difference = same_training(expected, summary, reports_lost=lost)
                if difference and said_inexact(log):
                    return self.spread()
                if difference:
                    raise Failure(f"{difference}\n{log[-3000:]}")
                self.identical += 1
                return "identical"
            # A launcher that is started anew when all the others have gone finds nobody to tell it of the run.
            if code in (75, -signal.SIGKILL, 1) or (code == 3 and strike.node_lost):
                if disk:
                    disk.empty()
                return self.resume(runner, plan, expected, code, log, strike.filled)
            raise Failure(f"exit code {code}\n{log[-3000:]}")
        except BaseException:
            self.keep(runner, plan)  # before the disk goes
            raise
        finally:
            if disk:
                disk.close()

    def let_end(self, run, strike):
        end = time.monotonic() + RUN_SECONDS
        while not strike.over():
            strike.do_due()
            if time.monotonic() > end:
                raise Failure(f"the run does not end; status {json.dumps(run.status())[:1500]}\n{run.log()[-3000:]}")
            time.sleep(POLL_SECONDS)

    def wait_for_orphans(self, runner):
        end = time.monotonic() + 5
        while runner.orphans():
            if time.monotonic() > end:
                raise Failure(f"left running: {runner.orphans()}")
            time.sleep(POLL_SECONDS)

    def resume(self, runner, plan, expected, code, log, disk_was_full):
        """What was saved leads to the same end; where nothing was saved, it must have been said that nothing is left.
        Who saved without a majority has left `latest` alone; what it saved is found all the same."""
        saves = runner.folder / "checkpoints"
        reasons = ["there is no checkpoint", "nothing was saved", "resume", *(["free space", "No space left"] * disk_was_full)]
        if code == 1 and not any(reason in log for reason in reasons):
            raise Failure(f"exit code 1\n{log[-3000:]}")
        if not (saves / "latest").exists() and "without a majority" not in log:
            if code == 75:
                raise Failure(f"exit code 75 without a checkpoint\n{log[-3000:]}")
            self.lost += 1  # both replicas of a shard gone, the launcher killed or the disk full, and no save was there
            return "nothing was saved to resume from"
        done, _ = runner.run(["--resume", str(saves), "--save-dir", str(saves)], plan.trainer, plan.ranks)
        if done["final_digest"] != expected["final_digest"] or done["losses"] != expected["losses"][-len(done["losses"]):]:
            if said_inexact(log):
                return self.spread()
            raise Failure(f"resumed to other bits: {done['final_digest']} instead of {expected['final_digest']}\n{log[-3000:]}")
        self.resumed += 1
        return f"saved and resumed to the same bits (exit code {code})"

    def spread(self):
        self.inexact += 1
        return "a flipped bit had reached other ranks before it was found, and the run said so"

    def keep(self, runner, plan):
        if self.options.keep:
            shutil.copytree(runner.folder, Path(self.options.keep) / f"run-{plan.number}", dirs_exist_ok=True,
                            ignore_dangling_symlinks=True, ignore=shutil.ignore_patterns("*.sock", "ballast"))

    def note(self, strike):
        self.kinds += strike.kinds
        self.phases += strike.phases
        self.skipped.update(strike.skipped)

    def note_incidents(self, summary, plan):
        incidents = summary["incidents"] if summary else []
        slowest = max((incident["resumed_ms"] or 0 for incident in incidents), default=0)
        if slowest > self.worst_resume_ms:
            self.worst_resume_ms, self.worst_run = slowest, plan.number
        self.told = f"; slowest recovery {slowest:.0f} ms" if slowest else ""
        for incident in incidents:
            self.rungs[incident["path"] or "none"] += 1

    def result(self, minutes):
        return {"schema": 1, "seed": self.options.seed, "hosts": self.options.hosts, "minutes": round(minutes, 2), "runs": self.runs,
                "identical": self.identical, "dumped_and_resumed": self.resumed, "nothing_saved": self.lost, "said_inexact": self.inexact,
                "broken": self.broken, "faults": dict(sorted(self.kinds.items())), "phases": dict(sorted(self.phases.items())),
                "rungs": dict(sorted(self.rungs.items())), "layouts": dict(sorted(self.layouts.items())),
                "skipped": self.skipped, "worst_resume_ms": round(self.worst_resume_ms, 1),
                "worst_run": self.worst_run}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--runs", type=int, default=0, help="so many runs, however long they take")
    parser.add_argument("--first", type=int, default=1, help="number of the first run: repeats one of a longer series")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=0, help="over so many hosts (2 to 8), each a network namespace: needs root")
    parser.add_argument("--json", nargs="?", const="-", help="write the figures to FILE, or to standard output")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[], help="draw only these: " + ", ".join(KINDS))
    parser.add_argument("--keep", help="keep logs and checkpoints of broken runs in this folder")
    options = parser.parse_args()
    if options.minutes <= 0 or options.runs < 0 or options.first < 1:
        parser.error("--minutes must be positive, --runs not negative, --first from 1")
    if options.hosts and not 2 <= options.hosts <= 8:
        parser.error("--hosts is from 2 to 8")
    there = chaos_hosts.KINDS if options.hosts else KINDS
    if set(options.kinds) - set(there):
        parser.error(f"--kinds: there is no {', '.join(sorted(set(options.kinds) - set(there)))}; there are {', '.join(there)}")
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
            plan = (chaos_hosts.HostsPlan(options.seed, number, options.kinds, options.hosts) if options.hosts
                    else Plan(options.seed, number, options.kinds))
            print(plan, file=words, flush=True)
            print(f"  {chaos.one(plan)}", file=words, flush=True)
            number += 1
    except KeyboardInterrupt:
        interrupted = True
    result = chaos.result((time.monotonic() - began) / 60)
    print(f"seed {options.seed}: {chaos.runs} runs, {chaos.identical} identical, {chaos.resumed} saved and resumed, {chaos.lost} "
          f"with nothing saved, {chaos.inexact} inexact by their own word, {len(chaos.broken)} broken; {sum(chaos.kinds.values())} faults; "
          f"slowest recovery {chaos.worst_resume_ms:.0f} ms", file=words, flush=True)
    again = (f" --hosts {options.hosts}" if options.hosts else "") + (f" --kinds {','.join(options.kinds)}" if options.kinds else "")
    for kind, why in chaos.skipped.items():
        print(f"  SKIPPED {kind}: {why}", file=words)
    for broken in chaos.broken:
        print(f"  BROKEN {broken['plan']}\n    {broken['why']}\n    again: --seed {options.seed} --first {broken['run']} --runs 1{again}",
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
