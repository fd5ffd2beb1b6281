"""A recorded run is reproduced by `kintsugi replay`: with a fault, live, after its launcher was killed; damage and another
policy are found."""
import json
import os
import signal
import sys

from alone import Starter
from harness import SMALL, Failure, script
from live_run import LiveRun

TRAINER = ["--steps", "30", "--step-delay-us", "5000", *SMALL]
KILL = ["--inject", "kill:2@12:update"]
SLOW = ["--steps", "400", "--step-delay-us", "20000", *SMALL]


def replay(runner, options, expect=0, words=()):
    done = runner.tool(["replay", *options])
    if done.returncode != expect:
        raise Failure(f"replay {options}: code {done.returncode}, expected {expect}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    for word in words:
        if word not in done.stdout + done.stderr:
            raise Failure(f"no '{word}' in:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    return done


def recorded(runner):
    """A run with a kill, recorded into its report's folder."""
    report = runner.folder / "report"
    summary, _ = runner.run([*KILL, "--report", str(report)], TRAINER)
    return summary, report


def kill_is_reproduced(runner):
    summary, report = recorded(runner)
    replay(runner, ["--report", str(report)], 0,
           ["every decision reproduced", "incident 1: process_exit of rank 2", "respawn CHOSEN", "LOCK", "VERIFY",
            "all ranks step again", "the run ends with code 0 at step 30"])
    told = json.loads(replay(runner, ["--report", str(report), "--json", "-"]).stdout)
    if not told["identical"] or not told["complete"] or told["torn"] or told["ended"]["exit"] != 0:
        raise Failure(json.dumps(told)[:2000])
    for field in ("id", "signal", "ranks", "path", "reasons", "attempts", "step", "generation"):
        if told["incidents"][0][field] != summary["incidents"][0][field]:
            raise Failure(f"{field}: {told['incidents'][0][field]} replayed, {summary['incidents'][0][field]} in the run")
    if abs(told["incidents"][0]["bytes_streamed"] - summary["incidents"][0]["bytes_streamed"]) > 0:
        raise Failure("bytes_streamed differs")
    log = replay(runner, ["--journal", str(report / "run.journal"), "--log"]).stdout
    if "process_exited rank=2" not in log or "-> rank" not in log:
        raise Failure(log[:2000])


def another_policy_decides_otherwise(runner):
    _, report = recorded(runner)
    done = replay(runner, ["--report", str(report), "--policy", "max_respawns=0"], 1, ["differs at record", "other policy"])
    if "reproduced" in done.stdout:
        raise Failure(done.stdout)
    replay(runner, ["--report", str(report), "--policy", "world_size=3"], 2, ["4 ranks"])
    replay(runner, ["--report", str(report), "--policy", "patience=3"], 2, ["patience"])


def damage_is_found(runner):
    _, report = recorded(runner)
    journal = report / "run.journal"
    whole = journal.read_bytes()
    for at in (3, 20, len(whole) // 3, len(whole) // 2, len(whole) - 2):
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        replay(runner, ["--journal", str(journal)], 2, ["run.journal"])
    for length in (len(whole) - 1, len(whole) * 3 // 4):
        journal.write_bytes(whole[:length])
        replay(runner, ["--journal", str(journal)], 0, ["torn", "every decision reproduced"])
    for length in (0, 10, 30):
        journal.write_bytes(whole[:length])
        replay(runner, ["--journal", str(journal)], 2, ["run.journal"])


def scenario_is_written(runner):
    _, report = recorded(runner)
    file = runner.folder / "outage.txt"
    replay(runner, ["--report", str(report), "--incident", "1", "--to-scenario", str(file)])
    text = file.read_text()
    for word in ("# Recorded in", "policy world_size=4", "0.000 start", "process_exited rank=2", "spawn rank=2", "incident_closed"):
        if word not in text:
            raise Failure(f"no '{word}' in:\n{text[:3000]}")
    if len(text.splitlines()) > 600:
        raise Failure(f"{len(text.splitlines())} lines are no story")
    replay(runner, ["--report", str(report), "--incident", "7"], 2, ["no incident 7"])


def live_and_after_a_killed_launcher(runner):
    with LiveRun(runner, [], SLOW) as run:
        run.wait_step(10)
        run.signal_rank(1, signal.SIGKILL)
        run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING" and s["step"] > 40, "the repair")
        replay(runner, ["--run", str(run.run_dir)], 0, ["incident 1: process_exit of rank 1", "has no end"])
        run.signal(signal.SIGKILL)
        run.process.wait()
        replay(runner, ["--run", str(run.run_dir)], 0, ["incident 1: process_exit of rank 1", "every decision reproduced"])


def run_folder_leads_to_the_journal(runner):
    report = runner.folder / "report"
    run_dir = runner.folder / "run"
    runner.run([*KILL, "--report", str(report), "--run-dir", str(run_dir)], TRAINER)
    replay(runner, ["--run", str(run_dir)], 0, ["incident 1"])
    replay(runner, ["--report", str(report)], 0, ["incident 1"])


def own_folder_stays_after_an_incident(runner):
    base = runner.folder / "runtime"
    base.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(base)}
    folder = base / "kintsugi"
    command = ["run", "--nproc", "4", *KILL, "--", runner.byte_lm, "--samples", "0", *TRAINER]
    for _ in range(11):
        done = runner.tool(command, 120, env=environment)
        if done.returncode != 0 or "kintsugi replay --run" not in done.stderr:
            raise Failure(done.stderr[-3000:])
    left = sorted(folder.iterdir())
    if not 8 <= len(left) <= 9 or any(sorted(os.listdir(one)) != ["lock", "run.journal", "run.json"] for one in left):
        raise Failure(f"left: {[(one.name, os.listdir(one)) for one in left]}")
    replay(runner, ["--run", str(left[0])], 0, ["incident 1"])


def nothing_is_recorded_where_nothing_is_wanted(runner):
    report = runner.folder / "report"
    runner.run([*KILL, "--report", str(report), "--journal-mib", "0"], TRAINER)
    replay(runner, ["--report", str(report)], 2, ["run.journal"])


def a_journal_that_cannot_be_written_costs_nothing(runner):
    report = runner.folder / "report"
    (report / "run.journal").mkdir(parents=True)
    _, log = runner.run([*KILL, "--report", str(report)], TRAINER)
    if "event=not_recorded" not in log:
        raise Failure(log[-2000:])


def stand_alone_controller(runner):
    journal = runner.folder / "alone.journal"
    with Starter(runner, "--journal", str(journal)) as starter:
        starter.start_all()
        starter.ranks[1].kill()
        starter.wait_phase("ADMIT", 1)
        starter.start(1)
        for rank in (0, 2, 3, 4):
            starter.ranks[rank].wait(120)
        starter.controller.wait(60)
    replay(runner, ["--journal", str(journal)], 0,
           ["every decision reproduced", "incident 1", "of rank 1", "its ranks come by themselves"])


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("a run with a kill is reproduced and told", kill_is_reproduced),
        ("another policy decides otherwise", another_policy_decides_otherwise),
        ("a damaged journal is refused, a torn one is read", damage_is_found),
        ("an outage becomes a scenario", scenario_is_written),
        ("a live run, and one whose launcher was killed", live_and_after_a_killed_launcher),
        ("the run's folder leads to the report's journal", run_folder_leads_to_the_journal),
        ("journals of runs with incidents are kept, the newest few", own_folder_stays_after_an_incident),
        ("no journal where none is wanted", nothing_is_recorded_where_nothing_is_wanted),
        ("a journal that cannot be written", a_journal_that_cannot_be_written_costs_nothing),
        ("a controller alone is recorded too", stand_alone_controller),
    ]))
