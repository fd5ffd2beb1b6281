"""Adopting: what a process leaves in memory files is mapped by the one that replaces it; nothing is streamed, the bits are
those of the undisturbed run."""
import json
import os
import signal
import sys

from harness import SLOWNESS, SMALL, Failure, descriptors, must_be_same, only_incident, reference, script
from live_run import LiveRun, wait_until

TRAINER = ["--steps", "12", "--step-delay-us", "5000"]
LONG = ["--steps", "60", "--step-delay-us", "20000", *SMALL]
SINGLE = ["--replicas", "1"]


def expect(incident, path, streamed=None):
    if incident["path"] != path:
        raise Failure(f"rung {incident['path']}, expected {path}: {json.dumps(incident)[:2000]}")
    if streamed is not None and (incident["bytes_streamed"] > 0) != streamed:
        raise Failure(f"{incident['bytes_streamed']} bytes were streamed")


def killed(phase, path, run_args=()):
    def test(runner):
        report = str(runner.folder / "report")
        summary, log = runner.run([*run_args, "--inject", f"kill:2@5:{phase}", "--report", report], TRAINER)
        must_be_same(reference(runner.bin, TRAINER, run_args), summary, log)
        expect(only_incident(summary), path, streamed=path != "adopt")
        explained = runner.tool(["explain", "--report", report]).stdout
        replayed = runner.tool(["replay", "--report", report]).stdout
        if f"{path}" not in explained or "CHOSEN" not in explained or "every decision reproduced" not in replayed:
            raise Failure(f"{explained[-2000:]}{replayed[-2000:]}")
    return test


def off(runner):
    summary, log = runner.run(["--no-adopt", "--inject", "kill:2@5:forward"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    expect(only_incident(summary), "respawn", streamed=True)


def every_rank_once(runner):
    """All four, one after the other, without a second copy of anything anywhere."""
    faults = [word for rank in range(4) for word in ("--inject", f"kill:{rank}@{3 + 2 * rank}:backward")]
    summary, log = runner.run([*SINGLE, *faults], TRAINER)
    must_be_same(reference(runner.bin, TRAINER, SINGLE), summary, log)
    if [i["path"] for i in summary["incidents"]] != ["adopt"] * 4:
        raise Failure(json.dumps(summary["incidents"])[:2000])


def whole_group(runner):
    """Ranks 0 and 2 hold one shard, alone; both die at once."""
    with LiveRun(runner, [], LONG) as run:
        run.wait_step(3)
        run.strike("kill", 0, 2)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    if any(i["path"] != "adopt" for i in summary["incidents"]):
        raise Failure(json.dumps(summary["incidents"])[:2000])


def stopped_and_killed_by_the_controller(runner):
    """The only copy of a shard belongs to a process that the controller itself ends: it waits for what that left."""
    with LiveRun(runner, [*SINGLE, "--silence", str(0.5 * SLOWNESS)], LONG) as run:
        run.wait_step(3)
        run.strike("freeze", 1)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG, SINGLE), summary, log)
    expect(only_incident(summary), "adopt", streamed=False)


def again_and_again(runner):
    """Two replacements are killed before they are in their loops: what they were to adopt is still there."""
    wrapper = runner.folder / "dies_twice"
    wrapper.write_text(f"""#!/bin/sh
[ "$RANK" = 3 ] && case $KINTSUGI_INCARNATION in 2 | 3) kill -KILL $$ ;; esac
exec {runner.byte_lm} "$@"
""")
    wrapper.chmod(0o755)
    line = runner.command(["--run-dir", str(runner.folder / "run-0"), *SINGLE, *inject("kill:3@5:forward")],
                          TRAINER)
    line[line.index(runner.byte_lm)] = str(wrapper)
    with LiveRun(runner, command=line) as run:
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER, SINGLE), summary, log)
    expect(only_incident(summary), "adopt", streamed=False)
    if log.count("event=exited rank=3") != 4:
        raise Failure(log[-12000:])


def a_flipped_bit_is_not_adopted(runner):
    """Its replica's digest differs: the state is streamed after all."""
    summary, log = runner.run(["--inject", "flip:2@5:forward", "--inject", "kill:2@5:backward"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    incident = only_incident(summary)
    expect(incident, "respawn", streamed=True)
    if incident["attempts"] < 2 or "hold different state" not in log:
        raise Failure(f"{json.dumps(incident)[:1500]}\n{log[-2000:]}")


def a_crash_alone_is_not_trusted(runner):
    """SIGSEGV, and no replica to compare with: there is nothing to go on from."""
    with LiveRun(runner, SINGLE, LONG) as run:
        run.wait_status(lambda s: s["step"] >= 5, "some steps")
        run.signal_rank(1, signal.SIGSEGV)
        summary, log = run.finish(expect=1)
    if "no replica can vouch" not in json.dumps(summary["incidents"]):
        raise Failure(json.dumps(summary["incidents"])[:2000])


def a_spare_adopts(runner):
    with LiveRun(runner, ["--spares", "1"], LONG) as run:
        run.wait_status(lambda s: s["spares"]["waiting"] == 1, "a warm spare")
        run.strike("kill", 2)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    expect(only_incident(summary), "adopt", streamed=False)
    if "event=spare_took_over" not in log:
        raise Failure(log[-3000:])


def nothing_is_held_for_ever(runner):
    """Once the replacement runs its host has the state once: the launcher has let go of every memory file but those."""
    def held(run):
        return sum("kintsugi-state" in target for _, target in descriptors(run.pid))
    with LiveRun(runner, [], LONG) as run:
        run.wait_step(3)
        before = held(run)
        run.strike("kill", 2)
        run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING", "the end of the incident")
        wait_until(lambda: held(run) == before, f"{before} memory files in the launcher again")
        summary, _ = run.finish()
    if before == 0:
        raise Failure("the launcher holds no state at all")
    expect(only_incident(summary), "adopt")


def inject(*specs):
    return [word for spec in specs for word in ("--inject", spec)]


def both_copies(specs, run_args=()):
    """Both ranks that hold a shard are lost in one step, and one left its memory: it is adopted, and gives the other its
    state. The one that strikes first may stop the other before it strikes; then it is tried again."""
    def test(runner):
        for _ in range(10):
            summary, log = runner.run([*run_args, *inject(*specs)], TRAINER)
            must_be_same(reference(runner.bin, TRAINER), summary, log)
            if any(i["path"] in ("adopt", "respawn") for i in summary["incidents"]):
                return
        raise Failure(json.dumps(summary["incidents"])[:2000])
    return test


def is_stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


def stand_still(run, *ranks):
    """The processes of these ranks, stopped in one place, so that none is in its update; what is sent to them strikes all."""
    pids = [run.status()["ranks"][rank]["pid"] for rank in ranks]
    run.strike("freeze", *ranks)
    wait_until(lambda: all(is_stopped(pid) for pid in pids), "the ranks to stand still")
    return pids


def one_killed_one_crashed(runner):
    """Both copies of a shard: what the killed one left vouches for what the crashed one left."""
    with LiveRun(runner, ["--silence", "20"], LONG) as run:
        run.wait_step(3)
        pids = stand_still(run, 0, 2)
        os.kill(pids[1], signal.SIGSEGV)  # strikes a stopped process once it goes on
        os.kill(pids[0], signal.SIGKILL)
        os.kill(pids[1], signal.SIGCONT)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    if "killed by SIGSEGV" not in log:
        raise Failure(f"nothing crashed\n{log[-3000:]}")


def saved_by_who_comes_to_save(runner):
    """No respawn is left, and a shard lies in the launcher's memory alone: processes are started that adopt and save it."""
    with LiveRun(runner, ["--max-respawns", "0", "--silence", "20"], LONG) as run:
        run.wait_step(3)
        for pid in stand_still(run, 0, 2):
            os.kill(pid, signal.SIGKILL)
        summary, log = run.finish(expect=75)
    if summary["incidents"][-1]["path"] != "dump" or "started to save it" not in log:
        raise Failure(f"{json.dumps(summary['incidents'])[:1500]}\n{log[-3000:]}")
    resumed, log = runner.run(["--resume", str(runner.folder / "checkpoints")], LONG)
    if resumed["final_digest"] != reference(runner.bin, LONG)["final_digest"]:
        raise Failure(f"what was saved goes on to other bits\n{log[-3000:]}")


def a_flipped_survivor_is_not_believed(runner):
    """With --verify-every the copy that outlived its process counts as much as the one that lives: neither is right for
    certain, and the run goes back to what was compared."""
    strike = inject("flip:0@4:forward", "kill:2@5:backward")  # a step apart: the flip is there first on any machine
    summary, log = runner.run(["--verify-every", "3", "--save-every", "3", *strike], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    expect(only_incident(summary), "reload")
    summary, log = runner.run(["--verify-every", "100", "--save-dir", str(runner.folder / "none"), *strike], TRAINER,
                              expect=1)
    if list(runner.folder.glob("none/step*")) or "hold different state" not in log:
        raise Failure(f"{json.dumps(summary['incidents'])[:1500]}\n{log[-3000:]}")


def a_lone_copy_is_named(runner):
    report = str(runner.folder / "report")
    summary, log = runner.run(["--no-adopt", "--verify-every", "100", "--report", report, *inject("kill:2@5:forward")],
                              TRAINER)
    explained = runner.tool(["explain", "--report", report]).stdout
    if "comes from rank 0 alone" not in explained:
        raise Failure(f"{json.dumps(summary['incidents'])[:1500]}\n{explained[-3000:]}")


TESTS = [
    ("killed in its forward pass", killed("forward", "adopt")),
    ("killed at the gate", killed("gate", "adopt")),
    ("killed in its update: torn, so it is streamed", killed("update", "respawn")),
    ("killed after its update", killed("param-sync", "adopt")),
    ("killed, and no replica anywhere", killed("backward", "adopt", SINGLE)),
    ("switched off", off),
    ("every rank in turn, without replicas", every_rank_once),
    ("a whole replica group at once", whole_group),
    ("ended by the controller, and the only copy", stopped_and_killed_by_the_controller),
    ("replacements that are killed too", again_and_again),
    ("a flipped bit", a_flipped_bit_is_not_adopted),
    ("a crash without a replica", a_crash_alone_is_not_trusted),
    ("a spare adopts", a_spare_adopts),
    ("nothing is held for ever", nothing_is_held_for_ever),
    ("killed, and its replica's memory damaged", both_copies(["kill:0@5:forward", "uce:2@5:forward,level=high"])),
    ("killed, and its replica's update threw", both_copies(["kill:0@5:param-sync", "throw:2@5:update"])),
    ("one killed, one crashed", one_killed_one_crashed),
    ("saved by processes that come to save", saved_by_who_comes_to_save),
    ("a flipped survivor", a_flipped_survivor_is_not_believed),
    ("a lone copy is named", a_lone_copy_is_named),
]

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
