"""A live run whose optimizer shards are cut anew when its ranks change: the very losses of a run that was saved at that step and
resumed in the other world.

  cuts.py BIN_DIR [--full]
"""
import os
import re
import signal
import sys
import time

from grows import GLOBAL_BATCH, SLOW, STEPS, changes, lose, must, order, resumed, trainer
from harness import script
from live_run import LiveRun, wait_until


def replicas(count):
    return ["--replicas", str(count)] if count else []


def as_if_resumed(runner, summary, log, expected, tp=1, copies=0):
    """The run went through these worlds, with the losses and the state of one that was saved and resumed where it changed."""
    seen = changes(log)
    must([(world, left, came) for world, left, _, came in seen] == expected, f"{seen}, not {expected}\n{log[-5000:]}")
    worlds = [(4, 0)] + [(world, step) for world, _, step, _ in seen]
    losses, digest = resumed(runner, worlds, tp, replicas(copies))
    must(summary["final_digest"] == digest, f"{worlds}: another state\n{log[-3000:]}")
    must(summary["losses"] == losses, f"{worlds}: losses {summary['losses']}\nresumed {losses}\n{log[-3000:]}")
    must(summary["samples_consumed"] == GLOBAL_BATCH * STEPS, f"{summary['samples_consumed']} samples\n{log[-3000:]}")
    must(not summary.get("reports_lost"), f"{summary.get('reports_lost')} reports are missing")


def cutting(runner, copies, *args, tp=1):
    return LiveRun(runner, ["--max-respawns", "0", *replicas(copies), *args], [*trainer(4, tp), *SLOW, "--any-layout"])


def paths(summary):
    return [incident["path"] for incident in summary["incidents"]]


def by_word(worlds, copies=0, tp=1):
    def test(runner):
        with cutting(runner, copies, tp=tp) as run:
            run.wait_step(3)
            expected, present = [], 4
            for world in worlds:
                must(f"with {world} ranks" in order(run, world), f"{world} ranks")
                gone = ",".join(str(rank) for rank in range(min(present, world), max(present, world)))
                expected.append((world, "none", gone) if world > present else (world, gone, "none"))
                present = world
            summary, log = run.finish()
        as_if_resumed(runner, summary, log, expected, tp, copies)
    return test


def a_loss_too(runner):
    """Two copies of each shard: those that are left hold all, and so does who comes back."""
    with cutting(runner, 0) as run:
        run.wait_step(3)
        lose(run, 1, 3)
        order(run, 4)
        summary, log = run.finish()
    must(paths(summary) == ["shrink", "grow"], f"{summary['incidents']}")
    as_if_resumed(runner, summary, log, [(3, "1", "none"), (4, "none", "1")])


def a_lost_piece_of_a_snapshot(runner):
    """One copy alone: what the lost rank held its partner keeps, of the step to which all go back."""
    with cutting(runner, 1, "--snapshot-every", "2") as run:
        run.wait_step(5)
        lose(run, 1, 3)
        summary, log = run.finish()
    must(paths(summary) == ["shrink"] and "the in-memory snapshot of step" in str(summary["incidents"]), f"{summary['incidents']}")
    as_if_resumed(runner, summary, log, [(3, "1", "none")], copies=1)


def a_lost_piece_is_none(runner):
    """One copy alone, and nobody has what the lost rank held: as in a run that offers nothing."""
    with cutting(runner, 1, "--no-adopt") as run:
        run.wait_step(3)
        run.signal_rank(2, signal.SIGKILL)
        summary, log = run.finish(expect=1)
    must("world_changed" not in log, log[-3000:])
    must(paths(summary) != ["shrink"], f"{summary['incidents']}")


def and_then_faults_as_ever(runner):
    """A rank that is lost after a change is replaced, by what the launcher holds of it or from its copies in the new layout."""
    with LiveRun(runner, ["--max-respawns", "2"], [*trainer(4), *SLOW, "--any-layout"]) as run:
        run.wait_step(3)
        order(run, 3)
        run.strike("kill", 1)
        wait_until(lambda: run.log().count("event=incident ") == 2, "the end of the second incident")
        run.strike("throw", 2, place="backward")
        summary, log = run.finish()
    must(paths(summary) == ["shrink", "adopt", "retry"], f"{summary['incidents']}")
    as_if_resumed(runner, summary, log, [(3, "3", "none")])


def a_rank_dies_in_the_change(victim, delay):
    def test(runner):
        """Some milliseconds after all were locked for it: in whatever phase that is, no step and no piece is lost."""
        with LiveRun(runner, ["--max-respawns", "2"], [*trainer(4), *SLOW, "--any-layout"]) as run:
            run.wait_step(3)
            pid = run.status()["ranks"][victim]["pid"]
            order(run, 3, "--no-wait")
            end = time.monotonic() + 30
            while "to=LOCK" not in run.log() and time.monotonic() < end:
                pass
            time.sleep(delay / 1000)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has left
            summary, log = run.finish()
        refused = "event=not_scaled" in log
        must(refused != bool(changes(log)), f"refused: {refused}, changes {changes(log)}\n{log[-4000:]}")
        as_if_resumed(runner, summary, log, [] if refused else [(3, "3", "none")])
    return test


SHORT = [
    ("shards without copies: 4 ranks, 3, and 4 again, by word", by_word([3, 4], copies=1)),
    ("a loss too, where the others hold every piece", a_loss_too),
    ("a lost piece is kept in a snapshot", a_lost_piece_of_a_snapshot),
    ("a lost piece is none: nothing is cut anew", a_lost_piece_is_none),
]
FULL = [
    ("as many copies as fit: 4 ranks, 3, 2, 1 and 4 again", by_word([3, 2, 1, 4])),
    ("TP 2: 4 ranks, 2, and 4 again", by_word([2, 4], copies=1, tp=2)),
    ("faults after a change", and_then_faults_as_ever),
    *[(f"rank {victim} dies in the change, {delay} ms after it began", a_rank_dies_in_the_change(victim, delay))
      for victim in (1, 3) for delay in (0, 8, 16)],
]

if __name__ == "__main__":
    sys.exit(script(__doc__, SHORT, FULL))
