"""Preemption and full disks: how a run leaves when it is asked to, or cannot save."""
import contextlib
import os
import resource
import signal
import subprocess
import sys

from harness import Failure, Skip, must_be_same, reference, script
from live_run import LiveRun
from saves import SLOW, STEPS, TRAINER, must_go_on, steps_saved


def asked_to_leave(number):
    def test(runner):
        with LiveRun(runner, ["--grace", "10"], SLOW) as run:
            run.wait_step(4)
            run.signal(number)
            first, log = run.finish(expect=75)
        if not 4 <= first["steps"] < STEPS:
            raise Failure(f"left after {first['steps']} of {STEPS} steps\n{log[-2000:]}")
        if first["incidents"]:
            raise Failure(f"an orderly end is no incident: {first['incidents']}")
        must_go_on(runner, first)
    return test


def all_processes_are_warned(number, options=()):
    """As a batch system does, some time before it ends a job."""
    def test(runner):
        with LiveRun(runner, ["--grace", "10", *options], SLOW) as run:
            for rank in run.wait_step(4)["ranks"]:
                os.kill(rank["pid"], number)
            run.signal(number)
            first, _ = run.finish(expect=75)
        if first["incidents"]:
            raise Failure(f"a warning is no incident: {first['incidents']}")
        must_go_on(runner, first)
    return test


def a_signal_that_cannot_warn(runner):
    _, log = runner.run(["--signal", "ALRM,KILL"], TRAINER, expect=2)
    if "'KILL' is no signal that can warn of an end: ALRM, HUP" not in log:
        raise Failure(log[-2000:])


def second_signal_ends_at_once(runner):
    # One step takes far longer than the test: only the second signal can have ended the run.
    with LiveRun(runner, ["--grace", "600"], [*TRAINER, "--step-delay-us", "300000000"]) as run:
        run.wait_status(lambda s: s["phase"] == "RUNNING", "the first step")
        run.signal(signal.SIGTERM)
        run.wait_log("stop_requested")
        run.signal(signal.SIGINT)
        _, log = run.finish(expect=1)
    if "second" not in log:
        raise Failure(f"the message does not say why it ended\n{log[-1500:]}")


def asked_inside_an_incident(runner):
    with LiveRun(runner, ["--grace", "20"], SLOW) as run:
        run.wait_step(4)
        run.signal_rank(2, signal.SIGKILL)
        run.wait_log("to=LOCK")
        run.signal(signal.SIGTERM)
        first, log = run.finish(expect=75)
    if len(first["incidents"]) != 1:
        raise Failure(f"{len(first['incidents'])} incidents\n{log[-3000:]}")
    must_go_on(runner, first)


def asked_by_command(runner):
    with LiveRun(runner, [], SLOW) as run:
        run.wait_step(4)
        done = runner.tool(["stop", "--run", str(run.run_dir)])
        if done.returncode != 0 or "75" not in done.stdout:
            raise Failure(f"stop: code {done.returncode}: {done.stdout}{done.stderr}")
        first, _ = run.finish(expect=75)
    must_go_on(runner, first)


def asked_without_a_folder(runner):
    with LiveRun(runner, ["--save-dir", ""], SLOW) as run:
        run.wait_step(2)
        run.signal(signal.SIGTERM)
        _, log = run.finish(expect=1)
    if "nothing was saved" not in log:
        raise Failure(f"the message hides that nothing was saved\n{log[-1500:]}")


def asked_while_starting(runner):
    command = [runner.kintsugi, "run", "--nproc", "2", "--run-dir", str(runner.folder / "run-0"), "--", "sleep", "600"]
    with LiveRun(runner, command=command) as run:
        run.wait_status(lambda s: all(rank["life"] == "starting" for rank in s["ranks"]), "the start")
        run.signal(signal.SIGINT)
        _, log = run.finish(expect=1)
    if "before the run began" not in log:
        raise Failure(f"{log[-1500:]}")


def asked_while_a_resume_loads(runner):
    """Nothing is lost, and the same command begins it again: a batch system is to come back to it."""
    runner.run(["--save-every", "4"], TRAINER)
    for words in (["--resume", str(runner.folder / "checkpoints")], ["--resume", "auto"]):
        command = [runner.kintsugi, "run", "--nproc", "2", "--run-dir", str(runner.folder / f"run-{len(runner.live)}"), "--save-dir",
                   str(runner.folder / "checkpoints"), *words, "--", "sleep", "600"]
        with LiveRun(runner, command=command) as run:
            run.wait_status(lambda s: all(rank["life"] == "starting" for rank in s["ranks"]), "the start")
            run.signal(signal.SIGTERM)
            _, log = run.finish(expect=75)
        if "the same command begins it again" not in log:
            raise Failure(f"{log[-1500:]}")


@contextlib.contextmanager
def full_disk(folder):
    """A disk of 64 KiB: less than any checkpoint."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        raise Skip("no right to mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def what_is_visible(folder):
    return sorted(os.listdir(folder))


def full_disk_costs_the_save_only(runner):
    with full_disk(runner.folder / "small") as small:
        summary, log = runner.run(["--save-dir", str(small), "--save-every", "4"], TRAINER)
        left = what_is_visible(small)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    if summary["incidents"]:
        raise Failure(f"a save that fails is no incident: {summary['incidents']}")
    if "free space" not in log:
        raise Failure(f"nothing was said about the full disk\n{log[-2000:]}")
    if left:
        raise Failure(f"left on the disk: {left}")
    failed = [line for line in log.splitlines() if "event=save_failed" in line]
    if len(failed) != summary["saves"]["failed"] or len(failed) != STEPS // 4 or summary["saves"]["made"]:
        raise Failure(f"{summary['saves']}, {len(failed)} lines\n{log[-2000:]}")
    if not all(" warning " in line and "last_good_age_s=none" in line for line in failed):
        raise Failure(f"{failed}")


def full_disk_is_told_to_who_asks(runner):
    """`kintsugi save` waits for the outcome and returns it; status tells it to everybody else."""
    with full_disk(runner.folder / "small") as small:
        with LiveRun(runner, ["--save-dir", str(small)], [*TRAINER, "--step-delay-us", "200000"]) as run:
            run.wait_step(3)
            done = runner.tool(["save", "--run", str(run.run_dir)])
            if done.returncode != 1 or "free space" not in done.stderr:
                raise Failure(f"save: code {done.returncode}: {done.stdout}{done.stderr}")
            saves = run.status()["saves"]
            if saves["failed"] != 1 or "free space" not in saves["last_failure"]["why"]:
                raise Failure(f"status: {saves}")
            run.finish()


def files_that_may_not_grow_cost_the_save_only(runner):
    """ulimit -f, which comes with a signal of its own."""
    with LiveRun(runner, [], SLOW) as run:
        for pid in [run.pid, *(rank["pid"] for rank in run.wait_step(3)["ranks"])]:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        done = runner.tool(["save", "--run", str(run.run_dir)])
        if done.returncode != 1 or "File too large" not in done.stderr:
            raise Failure(f"save: code {done.returncode}: {done.stdout}{done.stderr}")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, SLOW), summary, log)


def full_disk_at_the_dump(runner):
    with full_disk(runner.folder / "small") as small:
        _, log = runner.run(["--save-dir", str(small), "--max-respawns", "0", "--inject", "kill:2@6:update"], TRAINER,
                            expect=1)
        left = what_is_visible(small)
    if "free space" not in log.splitlines()[-1]:
        raise Failure(f"the last line does not name the full disk: {log.splitlines()[-1]}")
    if left:
        raise Failure(f"left on the disk: {left}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("SIGTERM: the step is finished, saved, resumed to the same bits", asked_to_leave(signal.SIGTERM)),
        ("SIGINT: the same", asked_to_leave(signal.SIGINT)),
        ("SIGUSR1 to every process of the job: the same", all_processes_are_warned(signal.SIGUSR1)),
        ("--signal: one that was named, to every process: the same",
         all_processes_are_warned(signal.SIGRTMIN + 3, ["--signal", "ALRM,RTMIN+3"])),
        ("--signal KILL is refused, and says what is known", a_signal_that_cannot_warn),
        ("kintsugi stop: the same", asked_by_command),
        ("a second signal ends at once", second_signal_ends_at_once),
        ("SIGTERM inside an incident", asked_inside_an_incident),
        ("SIGTERM where nothing can be saved", asked_without_a_folder),
        ("SIGINT while the ranks start", asked_while_starting),
        ("SIGTERM while the ranks of a resumed run start", asked_while_a_resume_loads),
        ("files that may not grow cost a save, not the run", files_that_may_not_grow_cost_the_save_only),
        ("a full disk costs a periodic save, not the run", full_disk_costs_the_save_only),
        ("a full disk is told to who asks for a save", full_disk_is_told_to_who_asks),
        ("a full disk at the last save ends with code 1 and says so", full_disk_at_the_dump),
    ]))
