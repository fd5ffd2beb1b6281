"""Loops as people write them leave under Kintsugi what they leave under plain torch, bit for bit, wherever a fault strikes.

  loops_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...     --soak: each place by itself, each section that stands still for longer than its limit, each thing that is refused
"""
import argparse
import itertools
import re
import sys
import tempfile
from pathlib import Path

from compared import Compared
from door import HERE, Door, Failure, main, skip_without_torch


OUTSIDE = ", outside of `with run.step()` and of run.do"


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


def begins_elsewhere(door):
    """A process that takes a lost one's place and would train other epochs than the others is refused."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            _, log = door.run(["--inject", "kill:1@8:update"], [str(HERE / "torch_loop.py"), folder, "--late"], nproc=2, expect=1)
            if "loop 0 was begun with epoch 0, and this process, which goes on with that run, comes to it with epoch 1" not in log.splitlines()[-1]:
                raise Failure(log[-3000:])
    return test


def alone(door, where, words):
    """What a process that takes a lost one's place could not do with the others is refused, without any fault."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            _, log = door.run((), [str(HERE / "torch_loop.py"), folder, "--alone", where], nproc=2, expect=1)
            if words not in log.splitlines()[-1]:
                raise Failure(log[-3000:])
            if where == "barrier" and not re.search(r"^step [1-9]", log, re.MULTILINE):
                raise Failure(f"the line of progress tells of no step of a script that reports none\n{log[-3000:]}")
    return test


def strays(door):
    """What a script changes outside of updates, and a fault makes it change once more, is told."""
    def test(_):
        for faults, words in (((), ()), (("kill:1@4:update",), ("changed in run.do (AveragedModel.update_parameters",)),
                              (("kill:1@5:update",), ("before its update", "changed between steps 5 and 6"))):
            told, log = door.run([word for fault in faults for word in ("--inject", fault)], [str(HERE / "torch_strays.py")], nproc=2)
            notes = " ".join(note["text"] for note in told.get("inexact", []))
            if bool(notes) != bool(faults) or any(word not in notes for word in words):
                raise Failure(f"{faults}: {notes}\n{log[-3000:]}")
    return test


def wrapped(door, how, words):
    """A step that is entered by something else than a `with` of the script's own could not be left out: refused in the first."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            _, log = door.run((), [str(HERE / "torch_forms.py"), folder, "--wrapped", how], nproc=2, expect=3)
            if words not in log.splitlines()[-1]:
                raise Failure(log[-3000:])
    return test


def undivided(door):
    """An order that is each rank's own cannot be divided anew."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            program = [str(HERE / "torch_divided.py"), folder, "--shuffled"]
            door.run(["--save-every", "9", "--save-dir", f"{folder}/saves"], program, nproc=2)
            _, log = door.run(["--resume", f"{folder}/saves"], program, nproc=1, expect=3)
            if "loader 'number 0' cannot go on with another number of ranks: the order of its RandomSampler is not one for all ranks" not in log:
                raise Failure(log[-3000:])
    return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = Door(options.door, preload="kintsugi.torch")
    skip_without_torch(door)
    loop, parts = Compared(door, "torch_loop.py"), Compared(door, "torch_loop.py", "--accumulate", "2", "--workers", "2", "--composed")

    shards = Compared(door, "torch_shards_epochs.py")
    buffers, forms = Compared(door, "torch_buffers.py"), Compared(door, "torch_forms.py")

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
        ("a step under @contextmanager", wrapped(door, "manager", "which a wrapper (ExitStack, @contextmanager) cannot")),
        ("a step given to an attribute", wrapped(door, "attribute", "gives the step's number to a plain name alone")),
        ("a collective before a step, outside of it", alone(door, "before", f"1 collective before step 3{OUTSIDE}")),
        ("a collective between two epochs, outside of run.do", alone(door, "between", f"1 collective before the loop behind step 5{OUTSIDE}")),
        ("a step that one rank alone makes at the end", alone(door, "step", "has a collective that not all ranks come to: rank 1 stands at the end of its script")),
        ("an object whose state cannot be taken at the end of the script", alone(door, "broken", "ValueError: no state any more")),
        ("an evaluation stands still for longer than its limit behind its collective, in a step's iteration",
         stands("told.-1:0:600", paths=[("respawn",)], replaced=[0])),
        ("an evaluation behind the last step stands still for longer than its limit", stands("evaluate.9:1:600", paths=[("respawn",)], replaced=[1])),
        ("a save stands still for longer than its limit, and the others wait without one",
         stands("save.1:0:600", limits=("--save-limit", "4"), paths=[("respawn",)], replaced=[0])),
        ("an evaluation without a limit, a save, and what stands behind the last step take long", stands("told.0:1:9", "save.1:0:9", "behind:1:9", limits=())),
    ]
    tests = [
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
         stands("evaluate.0:1:600", "save.1:0:9", paths=[("respawn",)], replaced=[1])),
        ("several batches a step, from workers, of a data set that is made of others: killed in the middle of a step, and at an epoch's end",
         parts.same("kill:1@3:backward", "kill:0@5:update", paths=[("adopt", "respawn"), ("adopt", "adopt")])),
        ("saved by four ranks within an epoch, gone on with by three, which lose one", divided(door, sizes=(3,))),
        ("a process that begins at another epoch than the others", begins_elsewhere(door)),
        ("each way to write a step, code behind it without a look at run.again, a newer snapshot, shuffled batches, what a section changes in place",
         forms.same("kill:1@2:forward", "throw:0@3:update", "kill:0@5:backward", "throw:1@6:forward", "kill:1@8:update", "kill:0@11:forward",
                    "throw:1@12:backward", "kill:1@14:param-sync", "kill:0@17:forward",
                    paths=[*itertools.product(*(("adopt", "respawn") if how == "kill" else ("retry", "rebuild")
                    for how in ("kill", "throw", "kill", "throw", "kill", "kill", "throw", "kill", "kill", "kill", "throw")))])),
        ("a step in an ExitStack", wrapped(door, "stack", "which a wrapper (ExitStack, @contextmanager) cannot")),
        ("a collective behind a step, outside of it", alone(door, "behind", f"1 collective before step 4{OUTSIDE}")),
        ("a batch of an iterator of the script's own", alone(door, "iterator", "a data loader's iterator is advanced in a step or a section that it was not made in")),
        ("a section that one rank alone calls at the end", alone(door, "section", "at the end of its script")),
        ("a loop that is left in the middle of a step", alone(door, "cut", "the loop was left in the middle of step 2, behind 1 of its 3 batches")),
        ("averages that are updated outside of updates", strays(door)),
        ("a collective behind everything that one rank alone calls", alone(door, "barrier", "rank 1 stands at the end of its script")),
        ("an order that cannot be divided among other ranks", undivided(door)),
        ("shards without a second copy go back behind an epoch, and by a step within one",
         shards.same("kill:1@7:update", "kill:0@14:update", options=("--snapshot-every", "4"), paths=[("reload", "adopt", "reload")])),
        ("large buffers, most of which stay what they are: killed in a backward pass and in an update, an exception behind one",
         buffers.same("kill:1@5:backward", "throw:1@7:param-sync", "kill:0@9:update", paths=[("adopt", "retry", "respawn"), ("adopt", "retry", "adopt")])),
    ]
    sys.exit(main(soak if options.soak else tests, door.bin, options.only))
