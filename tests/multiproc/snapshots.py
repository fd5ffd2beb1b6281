"""In-memory snapshots: what no replica holds any more comes back from a partner's memory; the bits stay the same."""
import json
import os
import re
import signal
import sys

from harness import SLOWNESS, Failure, Skip, must_be_same, only_incident, reference, script
from live_run import LiveRun

# Four ranks in two replica groups, {0, 2} and {1, 3}. Kills in the update strike both of a group: a rank that has passed the
# gate finishes its update by itself.
TRAINER = ["--steps", "16", "--step-delay-us", "20000"]
LONG = ["--steps", "60", "--step-delay-us", "20000"]
NOWHERE = ["--no-adopt", "--save-dir", ""]  # what launchers hold would do as well
GROUP_LOST = ["--inject", "kill:0@8:update", "--inject", "kill:2@8:update"]


def totals(log):
    """How many snapshots were made and abandoned, as the run says at its end."""
    found = re.findall(r"event=snapshots made=(\d+) abandoned=(\d+) newest=(\d+)", log)
    if len(found) != 1:
        raise Failure(f"{len(found)} lines of totals\n{log[-3000:]}")
    return tuple(int(number) for number in found[0])


def expect_reload(incident, step, reason):
    text = json.dumps(incident)
    if (incident["path"], incident["step"]) != ("reload", step) or reason not in text:
        raise Failure(f"not a reload of step {step} with '{reason}': {text[:3000]}")


def a_whole_group_is_lost(runner):
    report = str(runner.folder / "report")
    with LiveRun(runner, [*NOWHERE, "--snapshot-every", "3", "--report", report], LONG) as run:
        status = run.wait_step(10)
        for rank in (0, 2):  # both at once
            os.kill(status["ranks"][rank]["pid"], signal.SIGKILL)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    incident = only_incident(summary)
    step = incident["step"]
    expect_reload(incident, step, f"snapshot of step {step}")
    made, _, newest = totals(log)
    if step % 3 or step == 0 or newest <= step:
        raise Failure(f"{made} snapshots, back to {step}, the newest at the end {newest}\n{log[-3000:]}")
    replayed = runner.tool(["replay", "--report", report])
    explained = runner.tool(["explain", "--report", report])
    if "every decision reproduced" not in replayed.stdout or f"snapshot of step {step}" not in explained.stdout:
        raise Failure(f"{replayed.stdout[-2000:]}{explained.stdout[-2000:]}")
    print(f"        all ranks stepped again {incident['resumed_ms']:.0f} ms after the kills")


def twice(runner):
    """The replacements' own copies count from the next snapshot on."""
    summary, log = runner.run_struck([(0, 2), (1, 3)], [*NOWHERE, "--snapshot-every", "2", *GROUP_LOST, "--inject", "kill:1@14:update",
                               "--inject", "kill:3@14:update"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    if [incident["path"] for incident in summary["incidents"]] != ["reload", "reload"]:
        raise Failure(f"{json.dumps(summary['incidents'])[:3000]}")


ALONE = [*TRAINER, "--replicas", "1"]  # every shard once: rank 0's second copy is with rank 1
KEEPER_LOST = ["--inject", "kill:0@8:update", "--inject", "kill:1@8:update"]


def the_keeper_too(runner):
    summary, log = runner.run_struck([(0, 1)], [*NOWHERE, "--snapshot-every", "3", *KEEPER_LOST], ALONE, expect=1)
    text = json.dumps(summary["incidents"][-1])  # the second may strike when the first was mended
    if "of the in-memory snapshot of step 6 no copy of layout 0 of rank 0 is left" not in text:
        raise Failure(f"{text[:3000]}\n{log[-2000:]}")


def the_keeper_too_with_a_checkpoint(runner):
    summary, log = runner.run_struck([(0, 1)], ["--save-every", "4", "--snapshot-every", "3", *KEEPER_LOST], ALONE)
    must_be_same(reference(runner.bin, ALONE), summary, log)
    expect_reload(summary["incidents"][-1], 4, "no copy of layout 0 of rank 0 is left")


def without_replicas(runner):
    summary, log = runner.run([*NOWHERE, "--snapshot-every", "3", "--inject", "kill:2@8:update"], ALONE)
    must_be_same(reference(runner.bin, ALONE), summary, log)
    expect_reload(only_incident(summary), 6, "snapshot of step 6")


def a_newer_checkpoint_goes_first(runner):
    summary, log = runner.run_struck([(0, 2)], ["--save-every", "7", "--snapshot-every", "3", *GROUP_LOST], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    expect_reload(only_incident(summary), 7, "is not newer")


def a_suspect_step(runner):
    """Copies differ, and nothing tells which is right: all go back to the snapshot on which they agreed."""
    summary, log = runner.run([*NOWHERE, "--verify-every", "4", "--snapshot-every", "3", "--inject",
                               "flip:2@5:backward"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    incident = only_incident(summary)
    if incident["signal"] != "digest_mismatch":
        raise Failure(f"{json.dumps(incident)[:2000]}")
    expect_reload(incident, 3, "snapshot of step 3")


def one_that_the_gate_overtakes(runner):
    """More state than can be copied while a step computes: each attempt is given up, and the run never waits."""
    trainer = ["--steps", "80", "--ballast-mib", "128"]  # long enough for one attempt to end on a machine that is busy
    summary, log = runner.run([*NOWHERE, "--snapshot-every", "1", "--inject", "kill:1@60:update"], trainer, timeout=300)
    must_be_same(reference(runner.bin, trainer), summary, log)
    _, abandoned, _ = totals(log)
    if only_incident(summary)["path"] != "respawn":
        raise Failure(f"{summary['incidents']}")
    if abandoned < 1 and SLOWNESS > 1:
        raise Skip("a step of this build takes longer than the copy")
    if abandoned < 1:
        raise Failure(f"{abandoned} abandoned\n{log[-3000:]}")


def as_often_as_is_cheap(runner):
    summary, log = runner.run_struck([(0, 2)], [*NOWHERE, "--snapshot-every", "auto", *GROUP_LOST], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    if only_incident(summary)["path"] != "reload":
        raise Failure(f"{json.dumps(summary['incidents'])[:2000]}")


def nobody_fits(runner):
    """Two ranks with one shard: there is nobody outside the group."""
    trainer = ["--steps", "10", "--step-delay-us", "20000"]
    summary, log = runner.run(["--snapshot-every", "3"], trainer, nproc=2)
    must_be_same(reference(runner.bin, trainer, nproc=2), summary, log)
    if "no partner for its in-memory snapshots: every other rank is in its replica groups" not in log:
        raise Failure(log[-3000:])
    if totals(log)[0] < 1:
        raise Failure(f"they are kept by their owners alone\n{log[-3000:]}")


def nonsense_is_refused(runner):
    done = runner.tool(["run", "--nproc", "2", "--snapshot-every", "often", "--", "true"])
    if done.returncode != 2 or "often" not in done.stderr:
        raise Failure(f"code {done.returncode}: {done.stderr}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("a whole group is lost without a checkpoint", a_whole_group_is_lost),
        ("both groups are lost, one after the other", twice),
        ("the group and the keeper of its copy are lost", the_keeper_too),
        ("the group and the keeper are lost, there is a checkpoint", the_keeper_too_with_a_checkpoint),
        ("a shard without a replica is lost", without_replicas),
        ("a newer checkpoint goes first", a_newer_checkpoint_goes_first),
        ("a step at which copies differ", a_suspect_step),
        ("a snapshot that the gate overtakes", one_that_the_gate_overtakes),
        ("as often as is cheap", as_often_as_is_cheap),
        ("nobody fits as a partner", nobody_fits),
        ("an interval that is none", nonsense_is_refused),
    ]))
