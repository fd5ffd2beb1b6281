"""What a loop does that could not be made again, or not in another process, is refused by name, or told of, before a fault makes it wrong.

  loops_refused_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...     --soak: look-alikes of what is refused
"""
import re
import sys
import tempfile

from door import HERE, Failure, main, opened

OUTSIDE = ", outside of `with run.step()` and of run.do"


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
                              (("kill:1@5:update",), ("changed between steps 5 and 6",)), (("throw:1@1:backward",), ())):
            told, log = door.run([word for fault in faults for word in ("--inject", fault)], [str(HERE / "torch_strays.py")], nproc=2)
            notes = " ".join(note["text"] for note in told.get("inexact", []))
            if bool(notes) != bool(words) or any(word not in notes for word in words):
                raise Failure(f"{faults}: {notes}\n{log[-3000:]}")
    return test


def carried(door):
    """What a script carries from step to step and neither registers nor keeps is told where a fault makes it wrong, and what a newcomer makes of its model where
    it passes by: that alone, and not without a fault."""
    def test(_):
        again = "'seen' (torch_carried.py:{0}), 'meter.total' (torch_carried.py:{1}), 'net.meter.total' (torch_carried.py:{1}) of rank {2}, neither registered nor kept (run.keep): changed in step 4,"
        behind = ("'seen' (torch_carried.py:{0}), 'meter.total' (torch_carried.py:{1}), 'net.meter.total' (torch_carried.py:{1}), 'losses' (torch_carried.py:{2}), 'ahead' (torch_carried.py:{3}) of rank 1, "
                  "neither registered nor kept (run.keep): this process goes on from step 3")  # fmt: skip
        of_loader = [f"'{name}' (torch_carried.py:{{}}) of rank 1, neither registered nor kept (run.keep): this process goes on from step 3"
                     for name in ("Visited.visits", "Order.walks", "Together.batches")]  # fmt: skip
        lines = (HERE / "torch_carried.py").read_text().splitlines()
        marks = ("seen +=", "self.total +=", "losses.append", "ahead = batch", "self.visits +=", "self.walks +=", "self.batches +=")
        at = [next(number for number, line in enumerate(lines, 1) if mark in line) for mark in marks]
        asked = [f"a model, {how} for '{name}' (torch_carried.py:{next(number for number, line in enumerate(lines, 1) if line.startswith(name))}) between loops"
                 for how, name in (("asked for its state", "best"), ("copied", "whole"), ("run", "measured"), ("read", "norms"))]  # fmt: skip
        of_section = [number for mark in ("    evaluated += 1", "    found.append") for number, line in enumerate(lines, 1) if line.startswith(mark)]
        asked.append("'evaluated' (torch_carried.py:{}), 'found' (torch_carried.py:{}) of rank 1, neither registered nor kept (run.keep): changed in run.do (evaluate, "
                     "after loop 1, number 0), which this process passes by".format(*of_section))  # fmt: skip
        tally = next(number for number, line in enumerate(lines, 1) if "tally.count" in line)
        hook = "hooks on modules of rank 1, which steps have added, behind step {}: not here: {}'scaled' of model/module_forward_hooks"
        appended = next(number for number, line in enumerate(lines, 1) if "made.append" in line)
        by_own_loop = [*asked, hook.format(12, "'watched' of model/module_forward_hooks, "), *(
            f"'made' (torch_carried.py:{appended}) of rank {rank}, neither registered nor kept (run.keep): {what}"
            for rank, what in ((0, "changed in step 12"), (1, "this process goes on from step 11")))]  # fmt: skip
        asked += [f"'tally.count' (torch_carried.py:{tally}) of rank {rank}, neither registered nor kept (run.keep): {what}"
                  for rank, what in ((0, "changed in step 10"), (1, "this process goes on from step 9"))]  # fmt: skip
        of_loader = [said.format(line) for said, line in zip(of_loader, at[4:])]
        asked.append(hook.format(10, "'watched' of model/module_forward_hooks, "))
        for fault, expected in (((), []), (("throw:1@4:backward",), [again.format(*at[:2], rank) for rank in (0, 1)]),
                                (("kill:1@4:backward",), [again.format(*at[:2], 0), behind.format(*at), *of_loader, hook.format(4, "")]), (("kill:1@10:backward",), asked), (("kill:1@12:backward",), by_own_loop)):
            told, log = door.run([word for one in fault for word in ("--inject", one)], [str(HERE / "torch_carried.py")], nproc=2)
            notes = [note["text"] for note in told.get("inexact", [])]
            if len(notes) != len(expected) or any(not any(note.startswith(one) for note in notes) for one in expected):
                raise Failure(f"{fault}: {notes}, expected {expected}\n{log[-3000:]}")
    return test


def carried_within(door):
    """The same where other code than the step shows it, and what a section sets for steps that a newcomer makes."""
    names = {"meters": "meters[", "lists": "lists[", "note.noted": "noted.append", "counted.calls": "counted.calls =", "hooked": 'hooked["gradients"] +=',
             "passed": 'passed["back"] +=', "stepped": 'stepped["all"] +=', "threshold": "threshold = net", "table": "table[1:] =", "total": "self.total +="}  # fmt: skip
    lines = (HERE / "torch_carried_within.py").read_text().splitlines()
    at = {name: next(number for number, line in enumerate(lines, 1) if line.strip().startswith(mark)) for name, mark in names.items()}

    def words(*those):
        return {f"'{name}' (torch_carried_within.py:{at[name.rpartition('.')[2] if name.endswith('.total') else name]})" for name in those}

    def test(_):
        again = words("counted.calls", "meters[...].total", "lists", "note.noted"), "of rank 0", "changed in step 3,"
        first = words("counted.calls", "meters", "lists", "note.noted"), "of rank 1", "goes on from step 2"
        hooks = words("hooked", "passed", "stepped")
        late = (hooks - words("stepped"), "of rank 0", "changed in step 7,"), (hooks, "of rank 1", "goes on from step 6"), (words("threshold", "table"), "of rank 1", "passes by")
        for fault, expected in (((), ()), (("kill:1@3:backward",), (again, first)), (("kill:1@7:backward",), late)):
            told, log = door.run([word for one in fault for word in ("--inject", one)], [str(HERE / "torch_carried_within.py")], nproc=2)
            notes = [note["text"] for note in told.get("inexact", [])]
            found = [(set(re.findall(r"'[\w.\[\]]+' \(\w+\.py:\d+\)", note)), note) for note in notes]
            if len(found) != len(expected) or any(not any(those == of_note and rank in note and what in note for of_note, note in found) for those, rank, what in expected):
                raise Failure(f"{fault}: {notes}, expected {expected}\n{log[-3000:]}")
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
    door, options = opened()
    soak = [
        ("a step under @contextmanager", wrapped(door, "manager", "which a wrapper (ExitStack, @contextmanager) cannot")),
        ("a step given to an attribute", wrapped(door, "attribute", "gives the step's number to a plain name alone")),
        ("a loop in itertools.islice", wrapped(door, "islice", "counts a batch that is given again")),
        ("a collective before a step, outside of it", alone(door, "before", f"1 collective before step 3{OUTSIDE}")),
        ("a collective between two epochs, outside of run.do", alone(door, "between", f"1 collective before the loop behind step 5{OUTSIDE}")),
        ("a step that one rank alone makes at the end", alone(door, "step", "has a collective that not all ranks come to: rank 1 stands at the end of its script")),
        ("an object whose state cannot be taken at the end of the script", alone(door, "broken", "ValueError: no state any more")),
    ]
    tests = [
        ("a process that begins at another epoch than the others", begins_elsewhere(door)),
        ("a step in an ExitStack", wrapped(door, "stack", "which a wrapper (ExitStack, @contextmanager) cannot")),
        ("a collective behind a step, outside of it", alone(door, "behind", f"1 collective before step 4{OUTSIDE}")),
        ("a batch of an iterator of the script's own", alone(door, "iterator", "a data loader's iterator is advanced in a step or a section that it was not made in")),
        ("a section that one rank alone calls at the end", alone(door, "section", "at the end of its script")),
        ("a loop that is left in the middle of a step", alone(door, "cut", "the loop was left in the middle of step 2, behind 1 of its 3 batches")),
        ("a schedule that is not registered", alone(door, "schedule", "'scheduler' (ReduceLROnPlateau) has changed by step 6 and is not registered")),
        ("averages that are updated outside of updates", strays(door)),
        ("variables that nobody keeps", carried(door)),
        ("variables that nobody keeps, where other code than the step shows them", carried_within(door)),
        ("a collective behind everything that one rank alone calls", alone(door, "barrier", "rank 1 stands at the end of its script")),
        ("an order that cannot be divided among other ranks", undivided(door)),
    ]
    sys.exit(main(soak if options.soak else tests, door.bin, options.only))
