"""A run that goes on with other ranks, another layout or other names than saved it: the very losses, each sample once."""
import shutil
import sys

from harness import Failure, script

STEPS, SAVED = 12, 6
# The global batch is 12 windows whatever the ranks: a resumed run then sees what the first one would have seen.
TRAINER = ["--steps", str(STEPS), "--tp", "2", "--batch", "6"]
# What one rounding makes of another, and a wrong window, mask or weight does not: between two batches lie 0.02 and more.
ROUNDING = 2e-3


def saved_run(runner):
    """The undisturbed run of 4 ranks, and a root that holds its step 6 alone."""
    first, _ = runner.run(["--save-every", str(SAVED), "--replicas", "2"], TRAINER)
    root = runner.folder / "half"
    root.mkdir()
    name = f"step_{SAVED:010d}"
    shutil.copytree(runner.folder / "checkpoints" / name, root / name)
    return first, root


def must_go_on_alike(first, second, log):
    expected = first["losses"][SAVED:]
    if len(second["losses"]) != STEPS - SAVED:
        raise Failure(f"{len(second['losses'])} losses\n{log[-3000:]}")
    worst = max(abs(a - b) for a, b in zip(expected, second["losses"]))
    if worst > ROUNDING:
        raise Failure(f"losses {second['losses']}, undisturbed {expected}: {worst} apart\n{log[-3000:]}")
    if second["samples_consumed"] * STEPS != first["samples_consumed"] * (STEPS - SAVED):
        raise Failure(f"{second['samples_consumed']} samples of {first['samples_consumed']}")


def other_ranks(runner):
    first, root = saved_run(runner)
    for ranks, tp, batch, replicas in [(2, 2, 12, 1), (6, 2, 4, 3), (8, 2, 3, 2), (4, 1, 3, 2)]:
        trainer = ["--steps", str(STEPS), "--tp", str(tp), "--batch", str(batch)]
        second, log = runner.run(["--resume", str(root), "--replicas", str(replicas)], trainer, nproc=ranks)
        must_go_on_alike(first, second, log)
        if "event=resumed_reshaped" not in log or "beside_the_state=" not in log:
            raise Failure(f"{ranks} ranks: nothing says how the state was taken over\n{log[-3000:]}")
        if "event=resume_sums compared=" not in log or "not_compared=" in log:
            raise Failure(f"{ranks} ranks: not all that they hold was compared with what was saved\n{log[-3000:]}")


def other_names(runner):
    """Through the plan, but into the same layout: nothing is summed in another order, so the very bits."""
    first, root = saved_run(runner)
    program = runner.folder / "names.aoa"
    program.write_text("optimizer.master.head.weight -> optimizer.master.head.weight\n")
    second, log = runner.run(["--resume", str(root), "--replicas", "2", "--resume-aoa", str(program)], TRAINER)
    if second["losses"] != first["losses"][SAVED:] or second["final_digest"] != first["final_digest"]:
        raise Failure(f"other bits: {second['losses']}, undisturbed {first['losses'][SAVED:]}\n{log[-3000:]}")
    if "event=resumed_reshaped" not in log:
        raise Failure(f"the plan was not used\n{log[-3000:]}")


def read_once(runner):
    """Of what several ranks hold, one reads each shard and the others get it from there: in another layout and in the same."""
    first, root = saved_run(runner)
    for ranks, batch, replicas in [(8, 3, 4), (4, 6, 2)]:
        trainer = ["--steps", str(STEPS), "--tp", "2", "--batch", str(batch)]
        second, log = runner.run(["--resume", str(root), "--replicas", str(replicas), "--resume-read", "once"], trainer,
                                 nproc=ranks)
        must_go_on_alike(first, second, log)
        if "event=resume_read_once" not in log:
            raise Failure(f"{ranks} ranks: nothing says that reading was shared\n{log[-3000:]}")


def misfit(runner):
    """What cannot be taken over is named, and the run ends at once."""
    _, root = saved_run(runner)
    _, log = runner.run(["--resume", str(root), "--replicas", "1"], [*TRAINER, "--width", "96"], nproc=2, expect=3)
    if "is stored with global shape" not in log:
        raise Failure(f"the tensor is not named\n{log[-3000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("4 ranks, TP 2, saved: 2, 6 and 8 ranks and TP 1 go on with the very losses", other_ranks),
        ("the same layout by way of a program of names: the same bits", other_names),
        ("each shard read by one rank, exchanged: the very losses", read_once),
        ("a model of another width: refused at once, the tensor named", misfit),
    ]))
