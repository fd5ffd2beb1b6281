"""A run that loses ranks for good and goes on without them: the very losses of a run that was saved at that step and resumed
in the smaller world."""
import re
import shutil
import signal
import sys

from harness import Failure, only_incident, script
from live_run import LiveRun

STEPS, LOST_IN = 12, 7
SAVED = LOST_IN - 1
# Twelve windows in every world.
GLOBAL_BATCH = 12


def trainer(ranks, tp):
    return ["--steps", str(STEPS), "--tp", str(tp), "--batch", str(GLOBAL_BATCH * tp // ranks)]


def resumed(runner, ranks, smaller, tp):
    """The losses from SAVED on of a run of `ranks` that was saved there and went on with `smaller` ranks."""
    whole, _ = runner.run(["--save-every", str(SAVED), "--replicas", str(ranks // tp)], trainer(ranks, tp), nproc=ranks)
    name = f"step_{SAVED:010d}"
    root = runner.folder / "half"
    shutil.copytree(runner.folder / "checkpoints" / name, root / name)
    shutil.rmtree(runner.folder / "checkpoints")
    second, log = runner.run(["--resume", str(root), "--replicas", str(smaller // tp)], trainer(smaller, tp), nproc=smaller)
    if len(second["losses"]) != STEPS - SAVED:
        raise Failure(f"{len(second['losses'])} losses of the reference\n{log[-3000:]}")
    return whole["losses"][:SAVED] + second["losses"]


def shrinks(ranks, smaller, tp, lost, leaves):
    def test(runner):
        expected = resumed(runner, ranks, smaller, tp)
        summary, log = runner.run(
            ["--max-respawns", "0", "--replicas", str(ranks // tp), "--inject", f"kill:{lost}@{LOST_IN}:forward"],
            [*trainer(ranks, tp), "--elastic"], nproc=ranks)
        incident = only_incident(summary)
        if incident["path"] != "shrink" or incident["step"] != SAVED:
            raise Failure(f"{incident}\n{log[-4000:]}")
        if summary["losses"] != expected:
            raise Failure(f"losses {summary['losses']}\nresumed {expected}\n{log[-3000:]}")
        if summary["samples_consumed"] != GLOBAL_BATCH * STEPS:
            raise Failure(f"{summary['samples_consumed']} samples\n{log[-3000:]}")
        gone = ",".join(str(rank) for rank in sorted([lost, *leaves]))
        if not re.search(rf"event=world_changed world={smaller} of={ranks} left=\"?{gone}\"? step={SAVED}\b", log):
            raise Failure(f"the world's size is not told\n{log[-4000:]}")
    return test


def had_told_of_the_step_before_it_left(runner):
    """All have told of a step and stand at its gate; those that do it again without rank 0 count alone."""
    expected = resumed(runner, 4, 3, 1)
    hold = ["--hold", f"gate:0,1,2,3@{LOST_IN}"]
    with LiveRun(runner, ["--max-respawns", "0", "--replicas", "4", "--hang-factor", "0"], [*trainer(4, 1), "--elastic", *hold]) as run:
        run.wait_status(lambda s: all((rank.get("gate") or {}).get("state") == "at_gate" and rank["gate"]["step"] == LOST_IN for rank in s["ranks"]), "all at the gate")
        run.signal_rank(0, signal.SIGKILL)
        summary, log = run.finish()
    incident = only_incident(summary)
    if (incident["path"], incident["step"]) != ("shrink", SAVED):
        raise Failure(f"{incident}\n{log[-4000:]}")
    if summary["losses"] != expected or summary["samples_consumed"] != GLOBAL_BATCH * STEPS or summary.get("reports_lost"):
        raise Failure(f"losses {summary['losses']}\nresumed {expected}\n{summary['samples_consumed']} samples\n{log[-3000:]}")
    world, = summary["worlds"]
    if (world["ranks"], world["left"], world["came"], world["step"], world["incident"]) != (3, [0], [], SAVED, 1):
        raise Failure(f"{world}")


def never(runner):
    """Forbidden, the run does as if nothing were offered."""
    summary, log = runner.run(
        ["--max-respawns", "0", "--replicas", "4", "--shrink", "never", "--inject", f"kill:1@{LOST_IN}:forward"],
        [*trainer(4, 1), "--elastic"], expect=75)
    if only_incident(summary)["path"] != "dump" or "world_changed" in log:
        raise Failure(f"{summary['incidents']}\n{log[-3000:]}")


def twice(runner):
    """Two losses one after the other: 4, then 3, then 2 ranks; the dead of the second incident is one of those that stayed."""
    summary, log = runner.run(
        ["--max-respawns", "0", "--replicas", "4", "--inject", f"kill:1@{LOST_IN}:forward", "--inject",
         f"kill:3@{LOST_IN + 3}:forward"], [*trainer(4, 1), "--elastic"])
    if [incident["path"] for incident in summary["incidents"]] != ["shrink", "shrink"]:
        raise Failure(f"{summary['incidents']}\n{log[-4000:]}")
    if [(world["ranks"], world["left"]) for world in summary["worlds"]] != [(3, [1]), (2, [3])]:
        raise Failure(f"{summary['worlds']}")
    if len(re.findall("event=world_changed", log)) != 2 or "world=2 of=4" not in log:
        raise Failure(log[-4000:])
    if summary["samples_consumed"] != GLOBAL_BATCH * STEPS:
        raise Failure(f"{summary['samples_consumed']} samples\n{log[-3000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("TP 1, 4 ranks lose one: 3 go on, bit for bit as if saved and resumed", shrinks(4, 3, 1, 1, [])),
        ("TP 2, 4 ranks lose one: its neighbour leaves, 2 go on bit for bit", shrinks(4, 2, 2, 3, [2])),
        ("4 ranks, then 3, then 2", twice),
        ("rank 0 leaves, and had told of the step", had_told_of_the_step_before_it_left),
        ("--shrink never: a dump, and 75", never),
    ]))
