"""Saves that a run makes by itself or when asked, and what is read back from them: same bits, or a clear refusal."""
import os
import shutil
import sys

from harness import Failure, must_be_same, only_incident, reference, script
from live_run import LiveRun

STEPS = 12
TRAINER = ["--steps", str(STEPS)]
SLOW = [*TRAINER, "--step-delay-us", "40000"]
# Ranks 0 and 2 hold the same shard; both die in the same update.
BOTH_REPLICAS = ["--inject", "kill:0@7:update", "--inject", "kill:2@7:update"]


def checkpoints(runner):
    return runner.folder / "checkpoints"


def steps_saved(runner):
    return sorted(int(path.name.split("_")[1]) for path in checkpoints(runner).glob("step_*") if path.suffix == "")


def must_go_on(runner, first, trainer=TRAINER):
    """Resumes what `first` left behind: both together must be the undisturbed run."""
    expected = reference(runner.bin, TRAINER)
    second, log = runner.run(["--resume", str(checkpoints(runner))], trainer)
    if first["losses"] + second["losses"] != expected["losses"]:
        raise Failure(f"losses {first['losses']} + {second['losses']}, undisturbed {expected['losses']}\n{log[-3000:]}")
    if first["samples_consumed"] + second["samples_consumed"] != expected["samples_consumed"]:
        raise Failure("samples do not add up")
    if first["steps"] + second["steps"] != STEPS or len(second["losses"]) != second["steps"]:
        raise Failure(f"steps {first['steps']} + {second['steps']} of {STEPS}")
    if second["final_digest"] != expected["final_digest"]:
        raise Failure(f"final digest {second['final_digest']}, undisturbed {expected['final_digest']}")
    return second, log


def survivors_dump_and_resume(runner):
    first, log = runner.run(["--max-respawns", "0", "--inject", "kill:2@6:update"], TRAINER, expect=75)
    if only_incident(first)["path"] != "dump":
        raise Failure(f"rung {only_incident(first)['path']}")
    if "--resume" not in log:
        raise Failure(f"the message does not say how to resume\n{log[-1500:]}")
    verify_newest(runner)
    must_go_on(runner, first)


def verify_newest(runner):
    newest = checkpoints(runner) / f"step_{max(steps_saved(runner)):010d}"
    done = runner.tool(["ckpt", "verify", str(newest)])
    if done.returncode != 0:
        raise Failure(f"{newest} is not whole: {done.stderr}")


def reload_when_a_shard_is_lost(runner):
    summary, log = runner.run_struck([(0, 2)], [*BOTH_REPLICAS, "--save-every", "3"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    incident = only_incident(summary)
    if incident["path"] != "reload" or incident["step"] != 6 or sorted(incident["ranks"]) != [0, 2]:
        raise Failure(f"rung {incident['path']} at step {incident['step']} for {incident['ranks']}")


def lost_shard_without_respawns(runner):
    first, log = runner.run_struck([(0, 2)], [*BOTH_REPLICAS, "--save-every", "3", "--max-respawns", "0"], TRAINER, expect=75)
    if str(checkpoints(runner)) not in log.splitlines()[-1]:
        raise Failure(f"the last line does not name the checkpoint: {log.splitlines()[-1]}")
    must_go_on(runner, first)


def lost_shard_without_checkpoint(runner):
    _, log = runner.run_struck([(0, 2)], BOTH_REPLICAS, TRAINER, expect=1)
    last = log.splitlines()[-1]
    if "no checkpoint" not in last:
        raise Failure(f"the last line gives no reason: {last}")


def periodic_saves_change_nothing(runner):
    summary, log = runner.run(["--save-every", "4"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    if 12 not in steps_saved(runner) or 8 not in steps_saved(runner):
        raise Failure(f"saved {steps_saved(runner)}")
    verify_newest(runner)


def which_stay(runner):
    """The newest three and every fourth step's, in each format; numbers that cannot be meant are refused by name."""
    summary, log = runner.run(["--save-every", "2", "--keep", "3", "--keep-every", "4", "--save-format", "dcp"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    others = sorted(int(path.name.split("-")[1]) for path in (checkpoints(runner) / "dcp").glob("step-*") if path.is_dir())
    if steps_saved(runner) != [4, 8, 10, 12] or others != [4, 8, 10, 12]:
        raise Failure(f"native {steps_saved(runner)}, dcp {others}\n{log[-2000:]}")
    for words in (["--keep", "0"], ["--keep", "-2"], ["--keep-every", "0"], ["--save-every", "4", "--keep-every", "6"]):
        _, log = runner.run(words, TRAINER, expect=2)
        if words[-2] not in log:
            raise Failure(f"{words}: {log[-1500:]}")
    # Where ranks have it from the environment alone.
    os.environ["KINTSUGI_SAVE_KEEP"] = "all"
    try:
        _, log = runner.run([], TRAINER, expect=3)
    finally:
        del os.environ["KINTSUGI_SAVE_KEEP"]
    if "KINTSUGI_SAVE_KEEP='all'" not in log:
        raise Failure(log[-1500:])


def save_on_request(runner):
    expected = reference(runner.bin, TRAINER)
    with LiveRun(runner, [], SLOW) as run:
        run.wait_step(3)
        done = runner.tool(["save", "--run", str(run.run_dir)])
        # It waits for the outcome: what it names is there.
        if done.returncode != 0 or done.stdout.split()[:3] != ["saved", "step", str(max(steps_saved(runner)))]:
            raise Failure(f"save: {done.stdout}{done.stderr}; there are {steps_saved(runner)}")
        summary, log = run.finish()
    must_be_same(expected, summary, log)
    verify_newest(runner)
    saved = max(steps_saved(runner))
    first = {"losses": expected["losses"][:saved], "steps": saved,
             "samples_consumed": expected["samples_consumed"] * saved // STEPS}
    must_go_on(runner, first)


def request_is_refused_without_folder(runner):
    with LiveRun(runner, ["--save-dir", ""], SLOW) as run:
        run.wait_step(2)
        done = runner.tool(["save", "--run", str(run.run_dir)])
        if done.returncode == 0 or "--save-dir" not in done.stderr:
            raise Failure(f"code {done.returncode}: {done.stderr}")
        run.finish()


def flip_a_byte(folder):
    file = max(folder.glob("*.bin"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def damaged_one_is_passed_over_online(runner):
    """The checkpoint that a reload reads first is found damaged: the one before it serves."""
    slow = [*TRAINER, "--step-delay-us", "300000"]
    faults = ["--inject", "kill:0@8:update", "--inject", "kill:2@8:update"]

    def live():
        with LiveRun(runner, [*faults, "--save-every", "3"], slow) as run:
            run.wait_log("event=checkpoint step=6 ")  # announced: before that the publisher itself may find the damage
            flip_a_byte(checkpoints(runner) / "step_0000000006")
            code = run.process.wait(120)
            return code, *run.finish(expect=code)
    summary, log = runner.run_struck([(0, 2)], faults, slow, run=live)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    incident = only_incident(summary)
    if incident["path"] != "reload" or incident["step"] != 3:
        raise Failure(f"rung {incident['path']} at step {incident['step']}\n{log[-3000:]}")
    if "step_0000000006" not in log:
        raise Failure(f"the damaged one is not named\n{log[-3000:]}")


def damaged_only_one_is_named_online(runner):
    slow = [*TRAINER, "--step-delay-us", "300000"]
    faults = ["--inject", "kill:0@5:update", "--inject", "kill:2@5:update"]

    def live():
        with LiveRun(runner, [*faults, "--save-every", "3"], slow) as run:
            run.wait_log("event=checkpoint step=3 ")
            flip_a_byte(checkpoints(runner) / "step_0000000003")
            code = run.process.wait(120)
            return code, *run.finish(expect=code)
    _, log = runner.run_struck([(0, 2)], faults, slow, expect=1, run=live)
    last = log.splitlines()[-1]
    if "step_0000000003" not in last or "cannot be used" not in last:
        raise Failure(f"the last line does not name the damaged checkpoint: {last}")


def cut_the_manifest(folder):
    file = folder / "manifest.json"
    file.write_bytes(file.read_bytes()[:-40])


def damaged_newest_is_passed_over(damage):
    def test(runner):
        expected = reference(runner.bin, TRAINER)
        runner.run(["--save-every", "4"], TRAINER)
        damage(checkpoints(runner) / "step_0000000012")
        first = {"losses": expected["losses"][:8], "steps": 8,
                 "samples_consumed": expected["samples_consumed"] * 8 // STEPS}
        _, log = must_go_on(runner, first)
        if "passes over" not in log or "step_0000000012" not in log:
            raise Failure(f"nothing was said about the damaged one\n{log[-2000:]}")
    return test


def all_damaged_is_refused(runner):
    runner.run(["--save-every", "4"], TRAINER)
    for folder in checkpoints(runner).glob("step_*"):
        flip_a_byte(folder)
    _, log = runner.run(["--resume", str(checkpoints(runner))], TRAINER, expect=2)
    if "--resume" not in log or "step_0000000012" not in log or "step_0000000008" not in log:
        raise Failure(f"the refusal does not name what is damaged: {log}")


def torn_latest_is_mended(runner):
    runner.run(["--save-every", "4"], TRAINER)
    latest = checkpoints(runner) / "latest"
    for text in (b"", b"step_00", b"\x00" * 40):
        latest.write_bytes(text)
        summary, log = runner.run(["--resume", str(checkpoints(runner))], ["--steps", "13"])
        if summary["steps"] != 1:
            raise Failure(f"latest {text}: {summary['steps']} steps done, 1 expected\n{log[-2000:]}")
        shutil.rmtree(checkpoints(runner) / "step_0000000013", ignore_errors=True)


def misfit_ends_at_once(runner):
    """Another model, whatever the world: no attempt and no process changes that, so there is one of each."""
    runner.run(["--save-every", "4"], TRAINER)
    for nproc in (2, 4):
        _, log = runner.run(["--resume", str(checkpoints(runner))], [*TRAINER, "--width", "96"], nproc, expect=3)
        if log.count("event=spawned") != nproc or "event=incident" in log:
            raise Failure(f"{log.count('event=spawned')} processes for {nproc} ranks\n{log[-3000:]}")
        last = log.splitlines()[-1]
        if "cannot resume from" not in last or "is stored with global shape" not in last:
            raise Failure(f"the last line gives no reason: {last}")


def what_others_try_is_no_checkpoint(runner):
    """Nodes that start together: one looks for something to go on from while another tries whether it may write there."""
    folder = runner.folder / "checkpoints"
    folder.mkdir()
    (folder / ".kintsugi-probe-77").write_bytes(bytes(4096))
    runner.run(["--resume", "auto"], ["--steps", "5"])


def resume_of_nothing(runner):
    _, log = runner.run(["--resume", str(runner.folder / "nowhere")], TRAINER, expect=2)
    if "nowhere" not in log:
        raise Failure(f"the path is not named: {log}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("survivors dump a whole checkpoint and a second run goes on", survivors_dump_and_resume),
        ("what others try in the folder is no checkpoint", what_others_try_is_no_checkpoint),
        ("both replicas lost: reloaded online", reload_when_a_shard_is_lost),
        ("both replicas lost, no respawn left: the checkpoint is named", lost_shard_without_respawns),
        ("both replicas lost, no checkpoint: the reason is told", lost_shard_without_checkpoint),
        ("periodic saves do not change the bits", periodic_saves_change_nothing),
        ("as many checkpoints stay as was said, and every fourth step's", which_stay),
        ("a save on request is whole and does not change the bits", save_on_request),
        ("a save request without a folder is refused", request_is_refused_without_folder),
        ("a checkpoint with a flipped byte is passed over", damaged_newest_is_passed_over(flip_a_byte)),
        ("a checkpoint found damaged in an online reload gives way to the one before", damaged_one_is_passed_over_online),
        ("the only checkpoint found damaged in an online reload is named", damaged_only_one_is_named_online),
        ("a checkpoint with a cut manifest is passed over", damaged_newest_is_passed_over(cut_the_manifest)),
        ("nothing but damaged checkpoints is refused", all_damaged_is_refused),
        ("a torn latest is no hindrance", torn_latest_is_mended),
        ("a resume that does not fit ends at once", misfit_ends_at_once),
        ("a resume from nothing is refused", resume_of_nothing),
    ]))
