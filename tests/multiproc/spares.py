"""Spares: warm processes that take the place of a rank whose process is gone; the bits stay the same."""
import json
import os
import signal
import sys

from harness import SMALL, Failure, must_be_same, only_incident, reference, script
from live_run import LiveRun, wait_until

TRAINER = ["--steps", "40", "--step-delay-us", "20000", *SMALL]


def wait_spares(run, waiting):
    return run.wait_status(lambda s: s["spares"]["waiting"] == waiting, f"{waiting} waiting spares")


def pids_of(log, event):
    return [int(line.split("pid=")[1].split()[0]) for line in log.splitlines() if f"event={event} " in line]


def wait_pids(run, event, count):
    """The status may show a process before the log does: a thread of its own writes that."""
    def enough():
        pids = pids_of(run.log(), event)
        return pids if len(pids) >= count else None
    return wait_until(enough, f"{count} times {event} in the log")


def rung_of(incident, expected):
    if incident["path"] != expected:
        raise Failure(f"rung {incident['path']}, expected {expected}: {json.dumps(incident)[:1500]}")


def a_spare_takes_the_place(runner):
    report = str(runner.folder / "report")
    with LiveRun(runner, ["--no-adopt", "--spares", "1", "--report", report], TRAINER) as run:
        wait_spares(run, 1)
        (spare,) = wait_pids(run, "spare_started", 1)
        run.signal_rank(2, signal.SIGKILL)
        run.wait_status(lambda s: s["phase"] == "RUNNING" and s["ranks"][2]["pid"] == spare, "the spare as rank 2")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    rung_of(only_incident(summary), "spare")
    replayed = runner.tool(["replay", "--report", report])
    explained = runner.tool(["explain", "--report", report])
    if "every decision reproduced" not in replayed.stdout or "spare   CHOSEN" not in explained.stdout:
        raise Failure(f"{replayed.stdout[-2000:]}{explained.stdout[-2000:]}")
    print(f"        all ranks stepped again {only_incident(summary)['resumed_ms']:.0f} ms after the kill")


def there_is_another_one_afterwards(runner):
    with LiveRun(runner, ["--no-adopt", "--spares", "1"], [*TRAINER[:1], "80", *TRAINER[2:]]) as run:
        for incident in (1, 2):
            wait_spares(run, 1)
            run.signal_rank(incident, signal.SIGKILL)
            run.wait_status(lambda s, n=incident: s["incidents"] == n and s["phase"] == "RUNNING" and
                            all(rank["life"] == "ready" for rank in s["ranks"]), f"the end of incident {incident}")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, [*TRAINER[:1], "80", *TRAINER[2:]]), summary, log)
    for incident in summary["incidents"]:
        rung_of(incident, "spare")


def one_that_froze_just_before_it_was_needed(runner):
    """It looks warm and is given the place; its silence is found long before the join timeout (120 s)."""
    with LiveRun(runner, ["--no-adopt", "--spares", "1"], TRAINER) as run:
        status = wait_spares(run, 1)
        (spare,) = wait_pids(run, "spare_started", 1)
        os.kill(spare, signal.SIGSTOP)
        os.kill(status["ranks"][2]["pid"], signal.SIGKILL)
        summary, log = run.finish(seconds=90)
    must_be_same(reference(runner.bin, TRAINER), summary, log)


def a_replacement_that_freezes_before_it_joins(runner):
    """Stopped as soon as it runs, before it could say anything."""
    with LiveRun(runner, ["--no-adopt"], TRAINER) as run:
        before = run.wait_step(5)["ranks"][1]["pid"]
        os.kill(before, signal.SIGKILL)
        successor = wait_pids(run, "spawned", 5)[4]
        os.kill(successor, signal.SIGSTOP)
        summary, log = run.finish(seconds=90)
    must_be_same(reference(runner.bin, TRAINER), summary, log)


def one_is_not_enough_for_two(runner):
    with LiveRun(runner, ["--no-adopt", "--spares", "1"], TRAINER) as run:
        status = wait_spares(run, 1)
        for rank in (0, 1):
            os.kill(status["ranks"][rank]["pid"], signal.SIGKILL)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    if "spare_took_over" not in log:
        raise Failure(f"the spare was not used\n{log[-3000:]}")
    if not any(incident["path"] == "respawn" for incident in summary["incidents"]):
        raise Failure(f"no respawn: {json.dumps(summary['incidents'])[:1500]}")


def a_dead_spare_is_replaced(runner):
    with LiveRun(runner, ["--no-adopt", "--spares", "1"], TRAINER) as run:
        wait_spares(run, 1)
        (first,) = wait_pids(run, "spare_started", 1)
        os.kill(first, signal.SIGKILL)
        wait_pids(run, "spare_started", 2)
        summary, log = run.finish()
    if summary["incidents"]:
        raise Failure(f"a spare's death is no incident: {summary['incidents']}")
    must_be_same(reference(runner.bin, TRAINER), summary, log)


def a_frozen_spare_is_not_used(runner):
    with LiveRun(runner, ["--no-adopt", "--spares", "1"], TRAINER) as run:
        wait_spares(run, 1)
        (spare,) = wait_pids(run, "spare_started", 1)
        os.kill(spare, signal.SIGSTOP)
        wait_spares(run, 0)
        run.signal_rank(2, signal.SIGKILL)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    rung_of(only_incident(summary), "respawn")


def a_program_that_cannot_be_one(runner):
    wrapper = runner.folder / "needs_rank"
    wrapper.write_text(f'#!/bin/sh\n[ -n "$RANK" ] || {{ echo "which rank am I?" >&2; exit 3; }}\nexec {runner.byte_lm} "$@"\n')
    wrapper.chmod(0o755)
    line = runner.command(["--run-dir", str(runner.folder / "run-0"), "--no-adopt", "--spares", "1", "--inject", "kill:2@20"], TRAINER)
    line[line.index(runner.byte_lm)] = str(wrapper)
    with LiveRun(runner, command=line) as run:
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    rung_of(only_incident(summary), "respawn")
    if len(pids_of(log, "spare_started")) != 3 or "no_more_spares" not in log or "which rank am I?" not in log:
        raise Failure(f"it was tried {len(pids_of(log, 'spare_started'))} times\n{log[-3000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("a spare takes the place of a killed rank", a_spare_takes_the_place),
        ("another spare is started afterwards", there_is_another_one_afterwards),
        ("one that froze just before it was needed", one_that_froze_just_before_it_was_needed),
        ("a replacement that freezes before it joins", a_replacement_that_freezes_before_it_joins),
        ("one spare is not enough for two deaths", one_is_not_enough_for_two),
        ("a spare that dies is replaced", a_dead_spare_is_replaced),
        ("a frozen spare is not used", a_frozen_spare_is_not_used),
        ("a program that needs RANK before it joins is no spare, and runs", a_program_that_cannot_be_one),
    ]))
