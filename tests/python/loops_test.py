"""Loops as people write them leave under Kintsugi what they leave under plain torch, bit for bit, wherever a fault strikes.

  loops_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--fakes FOLDER] [--only WORD]...

--soak: each place by itself, each section that stands still for longer than its limit. --fakes: with all that the loops make on the fake device, from this
folder with libkintsugi_fake_*.so.
"""
import itertools
import sys
import tempfile
from pathlib import Path

from compared import Compared
from door import HERE, Failure, beside, main, opened


def divided(door, *more, saved=9, sizes=(2, 3)):
    """Saved by four ranks in the middle of the second epoch and gone on with by fewer: no sample twice, none left out, and each step has
    the next of the epoch's order, which the run of four had to its end. Where it does not come out even it is filled up from its front, as
    torch does."""
    program = str(HERE / "torch_divided.py")

    def epoch_of(lines):
        return [sample for line in lines if line.split()[1] == "1" for sample in line.split()[2:]]

    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            steps, rest = Path(folder, "steps"), Path(folder, "rest")
            rest.mkdir()
            door.run(["--save-every", str(saved), "--save-dir", f"{folder}/saves"], [program, folder, *more])
            Path(folder, "saves", f"step_{saved:010}").rename(rest / f"step_{saved:010}")
            whole = steps.read_text(encoding="utf-8").splitlines()
            for ranks in sizes:
                steps.write_text("".join(f"{line}\n" for line in whole[:saved]), encoding="utf-8")
                faults = ["--inject", f"kill:1@{saved + 1}:forward", "--inject", f"throw:0@{saved + 2}:update"]
                summary, log = door.run(["--resume", str(rest), *faults], [program, folder, *more], nproc=ranks)
                lines = steps.read_text(encoding="utf-8").splitlines()
                order, filled_up = epoch_of(lines)[: len(epoch_of(whole))], epoch_of(lines)[len(epoch_of(whole)) :]
                if order != epoch_of(whole) or filled_up != order[: len(filled_up)] or len(filled_up) >= ranks or len(lines) == len(whole) or len(summary["incidents"]) != 2:
                    raise Failure(f"{ranks} ranks went on with\n" + "\n".join(lines) + f"\n{log[-3000:]}")
    return test


if __name__ == "__main__":
    door, options = opened()
    loop, parts = Compared(door, "torch_loop.py"), Compared(door, "torch_loop.py", "--accumulate", "2", "--workers", "2", "--composed")

    shards = Compared(door, "torch_shards_epochs.py")
    buffers, forms, attributes = (Compared(door, f"torch_{name}.py") for name in ("buffers", "forms", "attributes"))

    def dies(*places):
        return loop.same(more=[word for place in places for word in ("--die", place)], paths=list(itertools.product(("adopt", "respawn"), repeat=len(places))))

    places = {"as an evaluation begins": "evaluate.1:1", "behind the collective of an evaluation": "told.0:0", "in an evaluation behind a step": "told.-2:1",
              "while it saves and the others wait": "save.1:0", "behind the last step": "behind:1"}  # fmt: skip

    # Steps may take 6 s there: what stands still for longer without a limit would be found.
    patient = ("--silence", "3", "--hang-least", "6", "--step-timeout", "6")

    def stands(*places, limits=("--limit", "4"), **expected):
        return loop.same(more=[*limits, *(word for place in places for word in ("--stand", place))], options=patient, **expected)

    soak = [
        *((f"killed {when}", dies(place)) for when, place in places.items()),
        ("killed at the end of an epoch", loop.same("kill:0@10:update", paths=[("respawn",), ("adopt",)])),
        ("killed at the beginning of the next", loop.same("kill:1@11:forward", paths=[("adopt",)])),
        ("saved by four ranks within an epoch, gone on with by two and three, which lose one", divided(door)),
        ("the same with two batches a step", divided(door, "--accumulate", "2", saved=4)),
        ("an evaluation stands still for longer than its limit behind its collective, in a step's iteration",
         stands("told.-1:0:600", paths=[("respawn",)], replaced=[0])),
        ("an evaluation behind the last step stands still for longer than its limit", stands("evaluate.9:1:600", paths=[("respawn",)], replaced=[1])),
        ("a save stands still for longer than its limit, and the others wait without one",
         stands("save.1:0:600", limits=("--save-limit", "4"), paths=[("respawn",)], replaced=[0])),
        ("an evaluation without a limit, a save, and what stands behind the last step take long", stands("told.0:1:9", "save.1:0:9", "behind:1:9", limits=())),
    ]
    compared = [
        ("a loop with KINTSUGI=0", loop.off),
        ("an undisturbed loop, and one gone on with from its middle", loop.resumed(8)),
        ("killed in a forward pass, in an update, behind one", loop.same("kill:1@3:forward", "kill:0@5:update", "kill:1@8:param-sync",
                                                                         paths=[("adopt", "respawn", "adopt"), ("adopt", "respawn", "respawn")])),
        ("exceptions in a backward pass, in an update, behind one, and in the last step of an epoch",
         loop.same("throw:1@2:backward", "throw:0@4:update", "throw:1@7:param-sync", "throw:0@10:update",
                   paths=[("retry", "rebuild", "rebuild", "rebuild")])),
        ("killed at the end of an epoch and at the beginning of the next", loop.same("kill:0@10:update", "kill:1@11:forward", paths=[("respawn", "adopt"), ("adopt", "adopt")])),
        ("killed in each place of one run between its steps and behind them", dies(*places.values())),
        ("an evaluation stands still for longer than its limit, the others wait within it; a save without a limit takes long, and is no hang",
         beside(stands("evaluate.0:1:600", "save.1:0:9", paths=[("respawn",)], replaced=[1]))),
        ("each way to write a step, code behind it without a look at run.again, a newer snapshot, shuffled batches, what a section changes in place, what a statement has in hand before its loop",
         forms.same("kill:1@2:forward", "throw:0@3:update", "kill:0@5:backward", "throw:1@6:forward", "kill:1@8:update", "kill:0@11:forward",
                    "throw:1@12:backward", "kill:1@14:param-sync", "kill:0@19:forward",
                    "kill:1@33:backward", "kill:0@35:forward", "kill:1@37:backward",
                    paths=[*itertools.product(*(("adopt", "respawn") if how == "kill" else ("retry", "rebuild")
                    for how in ("kill", "throw", "kill", "throw", "kill", "kill", "throw", "kill", "kill", "kill", "throw", "kill", "kill", "kill")))])),
        ("what modules keep beside tensors: killed in a forward pass and behind an update, an exception in an update",
         attributes.same("kill:1@3:forward", "throw:1@6:update", "kill:0@8:param-sync", paths=None)),
        ("large buffers, most of which stay what they are: killed in a backward pass and in an update, an exception behind one",
         buffers.same("kill:1@5:backward", "throw:1@7:param-sync", "kill:0@9:update", paths=[("adopt", "retry", "respawn"), ("adopt", "retry", "adopt")])),
        # Behind what runs beside: a snapshot is given up where the processors are too busy to make it within a step.
        ("shards without a second copy go back behind an epoch, and by a step within one",
         shards.same("kill:1@7:update", "kill:0@14:update", options=("--snapshot-every", "4"), paths=[("reload", "adopt", "reload")])),
    ]
    of_host = [
        ("several batches a step, from workers, of a data set that is made of others: killed in the middle of a step, and at an epoch's end",
         parts.same("kill:1@3:backward", "kill:0@5:update", paths=[("adopt", "respawn"), ("adopt", "adopt")])),
        ("saved by four ranks within an epoch, gone on with by three, which lose one", divided(door, sizes=(3,))),
    ]
    sys.exit(main(soak if options.soak else compared if options.fakes else compared + of_host, door.bin, options.only))
