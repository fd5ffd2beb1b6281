"""Ranks that come back to a run: the very losses of a run that was saved at that step and resumed in the larger world.

  grows.py BIN_DIR [--full]      --full: what is said of orders that cannot be, orders that go both ways, and ranks that are lost again
"""
import os
import re
import shutil
import signal
import sys
import time

from harness import SMALL, Failure, script
from live_run import LiveRun, wait_until

# Twelve windows in every world; steps long enough for an order to come between.
STEPS, GLOBAL_BATCH, SLOW = 60, 12, ["--step-delay-us", "150000"]


def trainer(ranks, tp=1):
    return [*SMALL, "--steps", str(STEPS), "--tp", str(tp), "--batch", str(GLOBAL_BATCH * tp // ranks)]


def must(condition, what):
    if not condition:
        raise Failure(what)


def order(run, ranks, *words, code=0):
    """Where it is to be carried out, it waits until the processes that left have ended."""
    end = time.monotonic() + 60
    while True:
        done = run.runner.tool(["scale", "--run", str(run.run_dir), "--ranks", str(ranks), *words], timeout=120)
        if code != 0 or "is not known to have ended" not in done.stderr or time.monotonic() > end:
            break
        time.sleep(0.1)
    must(done.returncode == code,
         f"kintsugi scale --ranks {ranks}: code {done.returncode}\n{done.stdout}{done.stderr}{run.log()[-5000:]}")
    return done.stdout if code == 0 else done.stderr


def resumed(runner, worlds, tp, copies=None):
    """The losses of a run that goes on with these numbers of ranks from these steps on, each time saved and resumed; and the digest of
    its state at the end. `copies`: words that say how many there are of each shard, whatever the world; without it one for each replica."""
    losses, resume, digest = [], [], None
    for at, (ranks, begin) in enumerate(worlds):
        end = worlds[at + 1][1] if at + 1 < len(worlds) else STEPS
        if end == begin:
            continue
        here = runner.folder / f"reference-{at}"
        saves = ["--save-every", str(end), "--keep", "1000"] if end < STEPS else []
        of_shards = ["--replicas", str(ranks // tp)] if copies is None else copies
        summary, log = runner.run([*resume, *saves, "--silence", "5", "--save-dir", str(here), *of_shards], trainer(ranks, tp), nproc=ranks)
        must(len(summary["losses"]) == STEPS - begin, f"{len(summary['losses'])} losses of the reference\n{log[-3000:]}")
        losses += summary["losses"][:end - begin]
        digest = summary["final_digest"]
        name, root = f"step_{end:010d}", runner.folder / f"half-{at}"
        if end < STEPS:
            shutil.copytree(here / name, root / name)
        resume = ["--resume", str(root)]
        shutil.rmtree(here, ignore_errors=True)
    return losses, digest


def changes(log):
    found = [(int(world), left, int(step), came) for world, left, step, came in re.findall(
        r'event=world_changed world=(\d+) of=\d+ left="?([\d,]+|none)"? step=(\d+) came="?([\d,]+|none)"?', log)]
    # A leader that takes over tells of the world that there is: nobody left it then, and nobody came.
    return [change for change in found if (change[1], change[3]) != ("none", "none")]


def told_in(summary):
    """The same changes, as the summary has them: whoever led when they came."""
    def names(ranks):
        return ",".join(str(rank) for rank in ranks) or "none"
    return [(world["ranks"], names(world["left"]), world["step"], names(world["came"])) for world in summary["worlds"]]


def as_if_resumed(runner, summary, log, expected, tp=1):
    """The run went through these worlds, with the losses of one that was saved and resumed where it changed."""
    seen = changes(log)
    must([(world, left, came) for world, left, _, came in seen] == expected, f"{seen}, not {expected}\n{log[-5000:]}")
    must(told_in(summary) == seen, f"{summary['worlds']}, not {seen}")
    worlds = [(4, 0)] + [(world, step) for world, _, step, _ in seen]
    losses, digest = resumed(runner, worlds, tp)
    must(summary["final_digest"] == digest, f"{worlds}: another state\n{log[-3000:]}")
    must(summary["losses"] == losses, f"{worlds}: losses {summary['losses']}\nresumed {losses}\n{log[-3000:]}")
    must(summary["samples_consumed"] == GLOBAL_BATCH * STEPS, f"{summary['samples_consumed']} samples\n{log[-3000:]}")
    must(not summary.get("reports_lost"), f"{summary.get('reports_lost')} reports are missing")


def elastic(runner, tp=1, *args):
    return LiveRun(runner, ["--max-respawns", "0", "--replicas", str(4 // tp), *args], [*trainer(4, tp), *SLOW, "--elastic"])


def lose(run, rank, world):
    over = run.log().count("event=incident ")
    run.signal_rank(rank, signal.SIGKILL)
    wait_until(lambda: run.log().count("event=incident ") > over, "the end of the incident")
    run.wait_status(lambda s: s["phase"] == "RUNNING" and len(s["ranks"]) == world, f"a world of {world}")


def a_lost_rank_comes_back(tp, lost, smaller, gone):
    def test(runner):
        with elastic(runner, tp) as run:
            run.wait_step(3)
            lose(run, lost, smaller)
            order(run, 4)
            summary, log = run.finish()
        must([i["path"] for i in summary["incidents"]] == ["shrink", "grow"], f"{summary['incidents']}")
        as_if_resumed(runner, summary, log, [(smaller, gone, "none"), (4, "none", gone)], tp)
    return test


def down_and_up_by_word(runner):
    """Nobody is lost: two ranks leave, and two come."""
    with elastic(runner) as run:
        run.wait_step(3)
        must("with 2 ranks" in order(run, 2), "two leave")
        must("with 4 ranks" in order(run, 4), "two come")
        summary, log = run.finish()
    must([i["path"] for i in summary["incidents"]] == ["shrink", "grow"], f"{summary['incidents']}")
    as_if_resumed(runner, summary, log, [(2, "2,3", "none"), (4, "none", "2,3")])


def what_nobody_offers_is_refused(runner):
    with elastic(runner) as run:
        run.wait_step(3)
        for ranks, why in [(4, "has 4 ranks already"), (9, "has 4 places"), (0, "in range")]:
            must(why in order(run, ranks, code=2), f"{ranks}: {why}")
        lose(run, 1, 3)
        must("has 3 ranks already" in order(run, 3, code=2), "there are three")
        summary, log = run.finish()
    as_if_resumed(runner, summary, log, [(3, "1", "none")])
    with LiveRun(runner, ["--max-respawns", "0"], [*trainer(4), *SLOW]) as run:
        run.wait_step(3)
        must("offers no other worlds" in order(run, 2, code=2), "a program that offers nothing")
        summary, log = run.finish()
    must(not summary["incidents"] and "world_changed" not in log, log[-3000:])


def a_newcomer_that_is_lost_costs_nothing(runner):
    """Killed as soon as it starts, and as soon as the run stands for it: the three go on, and the next one comes."""
    runner.may_hold()
    with elastic(runner) as run:
        run.wait_step(3)
        lose(run, 1, 3)
        with runner.held_at_start():  # on a busy machine it would take part before it is seen here
            order(run, 4, "--no-wait")
            pid = wait_until(lambda: spawned(run, 1, 2), "the newcomer's process")
            os.kill(pid, signal.SIGKILL)
            run.wait_log("event=not_scaled")
        must(len(run.status()["ranks"]) == 3 and run.status()["incidents"] == 1, f"{run.status()}")
        told = order(run, 4)
        must(re.match(r"the run goes on with 4 ranks after step \d+, all step again after \d+ ms\n", told), told)
        must(len(run.status()["ranks"]) == 4, "all ranks in the status")
        summary, log = run.finish()
    must([i["path"] for i in summary["incidents"]] == ["shrink", "grow"], f"{summary['incidents']}")
    as_if_resumed(runner, summary, log, [(3, "1", "none"), (4, "none", "1")])


def spawned(run, rank, incarnation):
    found = re.search(rf"spawned rank={rank} incarnation={incarnation} pid=(\d+)", run.log())
    return int(found.group(1)) if found else None


def and_is_lost_again(runner):
    """A rank that came is one as any other: it has its respawns, may be lost for good, and come once more."""
    with elastic(runner) as run:
        run.wait_step(3)
        lose(run, 1, 3)
        order(run, 4)
        lose(run, 1, 3)
        time.sleep(0.2)
        order(run, 4)
        summary, log = run.finish()
    as_if_resumed(runner, summary, log, [(3, "1", "none"), (4, "none", "1")] * 2)


def all_are_lost(runner):
    """Nobody has the state any more: what two ranks saved is loaded into the four that there are by then."""
    saves = runner.folder / "saves"
    args = ["--replicas", "4", "--max-respawns", "1", "--no-adopt", "--save-dir", str(saves), "--save-every", "10", "--keep", "100"]
    with LiveRun(runner, args, [*trainer(4), *SLOW, "--elastic"]) as run:
        run.wait_step(3)
        order(run, 2)
        wait_until(lambda: run.log().count("event=checkpoint step=10 "), "a checkpoint of two ranks")
        order(run, 4)
        for rank in range(4):
            run.signal_rank(rank, signal.SIGKILL)
        summary, log = run.finish()
    must([i["path"] for i in summary["incidents"]] == ["shrink", "grow", "reload"], f"{summary['incidents']}")
    (_, _, left, _), (_, _, came, _) = changes(log)
    must(left < 10 < came < 20, f"left after step {left}, came after {came}")
    losses, digest = resumed(runner, [(4, 0), (2, left), (4, 10)], 1)
    must((summary["losses"], summary["final_digest"]) == (losses, digest), f"losses {summary['losses']}\nresumed {losses}\n{log[-3000:]}")


SHORT = [
    ("TP 2, 4 ranks, 2, and 4 again: a whole slice comes", a_lost_rank_comes_back(2, 3, 2, "2,3")),
    ("a newcomer that is lost costs nothing", a_newcomer_that_is_lost_costs_nothing),
]
FULL = [
    ("TP 1, 4 ranks, 3, and 4 again: bit for bit as if saved and resumed", a_lost_rank_comes_back(1, 1, 3, "1")),
    ("4 ranks, 2 and 4, by word", down_and_up_by_word),
    ("what nobody offers is refused", what_nobody_offers_is_refused),
    ("it is lost again, and comes again", and_is_lost_again),
    ("all are lost: what fewer saved is loaded into the larger world", all_are_lost),
]

if __name__ == "__main__":
    sys.exit(script(__doc__, SHORT, FULL))
