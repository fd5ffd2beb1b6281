"""Several faults in one run, faults from outside, faults during recovery: always the bits of the undisturbed run."""
import os
import random
import signal
import sys
import time

from harness import SLOWNESS, SMALL, Failure, must_be_same, only_incident, reference, script
from live_run import LiveRun, stop_and_continue

STEPS = 12
TRAINER = ["--steps", str(STEPS)]
LONG = ["--steps", "40", "--step-delay-us", "20000", *SMALL]
RANDOM_ROUNDS = 10
OUTSIDE_KILLS_SEED = 20261121


def injected(specs, incidents=None):
    """The specs in one run; each is one incident where their number is not given."""
    def test(runner):
        options = [word for spec in specs for word in ("--inject", spec)]
        summary, log = runner.run(options, TRAINER)
        must_be_same(reference(runner.bin, TRAINER), summary, log)
        expected = len(specs) if incidents is None else incidents
        if len(summary["incidents"]) != expected:
            raise Failure(f"{len(summary['incidents'])} incidents, expected {expected}\n{log[-3000:]}")
    return test


def settled(run, incidents):
    """Waits until all incidents so far are over and every rank is back."""
    return run.wait_status(lambda s: s["phase"] == "RUNNING" and s["incidents"] >= incidents and
                           all(rank["life"] == "ready" for rank in s["ranks"]), f"the end of incident {incidents}")


def killed_from_outside(runner):
    """Ten kills at random moments; a run that is over too soon is followed by another."""
    chance = random.Random(OUTSIDE_KILLS_SEED)
    expected = reference(runner.bin, LONG)
    rounds = 0
    while rounds < RANDOM_ROUNDS:
        with LiveRun(runner, ["--max-respawns", "100"], LONG) as run:
            kills, first = 0, chance.randrange(4)
            run.wait_step(1)
            while rounds < RANDOM_ROUNDS and run.status()["step"] < 25:
                time.sleep(chance.uniform(0, 0.15))  # the moment is what is random
                # In turn, and a step for each turn: a rank that dies three times in one step, as on a slow machine by chance, is
                # taken for its own fault.
                run.signal_rank((first + kills) % 4, signal.SIGKILL)
                kills += 1
                rounds += 1
                settled(run, kills)
                if kills % 4 == 0:
                    run.wait_step(run.status()["step"] + 1)
            summary, log = run.finish()
        must_be_same(expected, summary, f"seed {OUTSIDE_KILLS_SEED}, {kills} kills\n{log}")
        if len(summary["incidents"]) != kills:
            raise Failure(f"{len(summary['incidents'])} incidents after {kills} kills\n{log[-3000:]}")


def killed_during_recovery(phase, second):
    """A second rank dies while the first one's incident is in `phase`."""
    def test(runner):
        with LiveRun(runner, [], LONG) as run:
            run.wait_step(5)
            run.signal_rank(2, signal.SIGKILL)
            run.wait_log(f"to={phase}")
            run.signal_rank(second, signal.SIGKILL)
            summary, log = run.finish()
        must_be_same(reference(runner.bin, LONG), summary, log)
    return test


def killed_milliseconds_apart(runner):
    trainer = [*TRAINER, *LONG[2:]]
    for gap in (0, 0.002, 0.005, 0.02, 0.05, 0.1, 0.2):
        with LiveRun(runner, [], trainer) as run:
            run.wait_step(3)
            pids = [rank["pid"] for rank in run.status()["ranks"]]
            kill_all([pids[2], pids[1]], gap)
            summary, log = run.finish()
        must_be_same(reference(runner.bin, trainer), summary, f"gap {gap} s\n{log}")


def kill_all(pids, gap):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        time.sleep(gap)  # the distance is what is tested


def replacement_killed(runner):
    with LiveRun(runner, [], LONG) as run:
        run.wait_step(5)
        run.signal_rank(2, signal.SIGKILL)
        run.wait_log("rank=2 incarnation=2 pid=")
        line = next(line for line in run.log().splitlines() if "rank=2 incarnation=2 pid=" in line)
        kill_all([int(line.split("pid=")[1].split()[0])], 0)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    if "rank=2 incarnation=3" not in log:
        raise Failure(f"no third life of rank 2\n{log[-3000:]}")


def silenced_from_outside(runner):
    with LiveRun(runner, ["--silence", str(SLOWNESS)], LONG) as run:
        run.wait_step(5)
        run.signal_rank(2, signal.SIGSTOP)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    incident = only_incident(summary)
    if incident["signal"] != "silence" or incident["path"] not in ("adopt", "respawn") or incident["ranks"] != [2]:
        raise Failure(f"{incident['signal']} of {incident['ranks']}, rung {incident['path']}")


def short_pause_is_harmless(runner):
    with LiveRun(runner, ["--silence", "30"], LONG) as run:
        run.wait_step(5)
        pid = run.status()["ranks"][2]["pid"]
        last = []

        def everybody_waits_for_it():
            last.append(run.status()["step"])
            return len(last) > 10 and len(set(last[-10:])) == 1
        stop_and_continue(pid, everybody_waits_for_it)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    if summary["incidents"]:
        raise Failure(f"a short pause is no incident: {summary['incidents']}\n{log[-2000:]}")


def injected_live(spec_of, path):
    def test(runner):
        with LiveRun(runner, [], LONG) as run:
            step = run.wait_step(5)["step"]
            done = runner.tool(["inject", "--run", str(run.run_dir), spec_of(step + 10)])
            if done.returncode != 0:
                raise Failure(f"inject: {done.stderr}")
            summary, log = run.finish()
        must_be_same(reference(runner.bin, LONG), summary, log)
        if only_incident(summary)["path"] != path:
            raise Failure(f"rung {only_incident(summary)['path']}, expected {path}")
    return test


def inject_is_checked(runner):
    with LiveRun(runner, [], LONG) as run:
        run.wait_step(1)
        for spec, word in (("kill:9@50", "no rank 9"), ("kil:1@5", "KIND:RANK@STEP")):
            done = runner.tool(["inject", "--run", str(run.run_dir), spec])
            if done.returncode != 2 or word not in done.stderr:
                raise Failure(f"{spec}: code {done.returncode}: {done.stderr}")
        run.signal(signal.SIGTERM)
        run.finish(expect=75)


FLIP = ["--inject", "flip:2@7:backward"]


def flip_is_undone(runner):
    """Replicas are compared every four steps: back to the last checkpoint, which they agreed on."""
    summary, log = runner.run([*FLIP, "--verify-every", "4", "--save-every", "4"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    incident = only_incident(summary)
    if (incident["signal"], incident["path"], incident["step"]) != ("digest_mismatch", "reload", 4):
        raise Failure(f"{incident}")
    if "0 and 2 hold different state at step 8" not in incident["cause"]:
        raise Failure(f"{incident}")


def flip_is_never_saved(runner):
    """Between two comparisons, at a save of its own step: they are compared before it."""
    summary, log = runner.run([*FLIP, "--verify-every", "100", "--save-every", "3"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    incident = only_incident(summary)
    if (incident["path"], incident["step"]) != ("reload", 6) or "at step 9" not in incident["cause"]:
        raise Failure(f"{incident}")


def flip_without_a_checkpoint(runner):
    """Nothing tells which copy is right: the run stops, and neither is dumped."""
    summary, log = runner.run([*FLIP, "--verify-every", "4"], TRAINER, expect=1)
    if only_incident(summary)["signal"] != "digest_mismatch" or "different state at step 8" not in log:
        raise Failure(f"{summary['incidents']}\n{log[-2000:]}")
    if list((runner.folder / "checkpoints").glob("step*")):
        raise Failure("a state that nobody can vouch for was saved")


def comparing_costs_no_bits(runner):
    summary, log = runner.run(["--verify-every", "1", "--inject", "kill:1@6:update"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    only_incident(summary)


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("two kills, the second of rank 0", injected(["kill:2@4:update", "kill:0@8:backward"])),
        ("an exception, then a kill", injected(["throw:1@4:forward", "kill:3@7:gradient-sync"])),
        ("the same rank killed twice", injected(["kill:2@4:update", "kill:2@8:param-sync"])),
        ("rank 0 killed twice", injected(["kill:0@3:gate", "kill:0@9:update"])),
        ("four kinds in one run", injected(["uce:1@3:backward", "exit:0@5:update", "throw:2@7:update", "kill:3@9"])),
        ("killed from outside at random moments", killed_from_outside),
        ("killed while the others are locked", killed_during_recovery("LOCK", 1)),
        ("killed while groups are rebuilt", killed_during_recovery("REBUILD", 3)),
        ("killed while state moves", killed_during_recovery("REPAIR", 1)),
        ("two killed milliseconds apart", killed_milliseconds_apart),
        ("the replacement is killed", replacement_killed),
        ("stopped from outside", silenced_from_outside),
        ("a pause shorter than the limit", short_pause_is_harmless),
        ("kill injected into a live run", injected_live(lambda step: f"kill:1@{step}:update", "respawn")),
        ("exception injected into a live run", injected_live(lambda step: f"throw:0@{step}:backward", "retry")),
        ("injections into a live run are checked", inject_is_checked),
        ("a silent flip is found and undone", flip_is_undone),
        ("a silent flip is never saved", flip_is_never_saved),
        ("a silent flip without a checkpoint", flip_without_a_checkpoint),
        ("comparing every step costs no bits", comparing_costs_no_bits),
    ]))
