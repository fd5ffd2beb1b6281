"""A trainer with numpy and `kintsugi` survives kills, exceptions of its own with type and traceback, and harmless forks; Ctrl-C
ends it.

  numpy_test.py BIN_DIR PACKAGE_FOLDER PYTHON
"""
import re
import subprocess
import sys
import tempfile

from door import HERE, Door, Failure, beside, main

LINE = [str(HERE / "line.py")]


def ctrl_c(door):
    """KeyboardInterrupt comes out of the trainer as in any other program; the rank is replaced, and the run goes on."""
    return door.same(LINE, [], ["--interrupt", "6"], words=("KeyboardInterrupt",))


def leaves(door):
    """A run that is told to leave saves at the next step's end, where a pulled guard is asked within the loop; a resumed one ends
    with the same bits."""
    def test(_):
        undisturbed, _ = door.run((), LINE)
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            _, log = door.run(["--save-dir", f"{folder}/saves"], [*LINE, "--stop", "6"], expect=75)
            if "Traceback" in log:
                raise Failure(log[-4000:])
            resumed, log = door.run(["--resume", f"{folder}/saves"], LINE)
        if resumed["final_digest"] != undisturbed["final_digest"]:
            raise Failure(f"another final state after --resume\n{log[-3000:]}")
    return test


def fails(door, where, expect, words):
    """An exception outside of the loop ends the run at once, and its last words are the exception's."""
    def test(_):
        _, log = door.run((), [*LINE, where], nproc=2, expect=expect)
        last = log.strip().splitlines()[-1]
        if not re.search(words, last) or "incarnation=2" in log:
            raise Failure(f"the last line is '{last}'\n{log[-4000:]}")
    return test


def resized(door):
    """With other ranks an object goes on as it says; one that says nothing, or cannot, is named, and nobody trains."""
    def places(log, words):
        return {int(rank): state for rank, state in re.findall(rf"rank (\d+) {words} with (\d+)", log)}

    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            _, log = door.run(["--save-dir", f"{folder}/saves", "--save-every", "3"], [*LINE, "--steps", "6"])
            saved = places(log, "ends")
            if len(set(saved.values())) != 4:
                raise Failure(f"{saved}\n{log[-3000:]}")
            for way, nproc, source in (("same-rank", 2, lambda r: r), ("rank-zero", 6, lambda r: 0), ("turn", 6, lambda r: r % 4)):
                summary, log = door.run(["--resume", f"{folder}/saves"], [*LINE, "--steps", "9", "--take-over", way], nproc=nproc)
                if places(log, "goes on") != {rank: saved[source(rank)] for rank in range(nproc)} or len(summary["losses"]) != 3:
                    raise Failure(f"{way}: {places(log, 'goes on')}, saved {saved}\n{log[-3000:]}")
            _, log = door.run(["--resume", f"{folder}/saves"], [*LINE, "--steps", "9", "--take-over", "derived"], nproc=2)
            if set(places(log, "goes on").values()) & set(saved.values()):
                raise Failure(log[-3000:])
            for way, words in (((), "object 'random' does not say how it goes on"),
                               (("--take-over", "same-rank"), "object 'random' is to come from rank 4, which saved nothing"),
                               (("--take-over", "broken"), "object 'random': take_over: LineError: nothing fits of [0, 1, 2, 3]")):
                _, log = door.run(["--resume", f"{folder}/saves"], [*LINE, "--steps", "9", *way], nproc=5, expect=3)
                if words not in log:
                    raise Failure(f"'{words}' is nowhere\n{log[-4000:]}")
    return test


def values(door):
    """What was consumed is a number in each checkpoint, and a run of other ranks goes on from any of them."""
    def counts(log):
        return set(re.findall(r"rank \d+ has consumed (\d+), best (\S+)", log))

    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            _, log = door.run(["--save-dir", f"{folder}/saves", "--save-every", "3", "--save-format", "torch,dcp,safetensors,megatron"],
                              [*LINE, "--steps", "6"])
            if {samples for samples, _ in counts(log)} != {"24"}:
                raise Failure(f"{counts(log)}\n{log[-3000:]}")
            saved = counts(log)
            for form in ("", "/torch", "/dcp", "/safetensors", "/megatron"):
                way = [*LINE, "--take-over", "turn", "--steps"]
                _, log = door.run(["--resume", f"{folder}/saves{form}"], [*way, "6"], nproc=3)
                if counts(log) != saved:
                    raise Failure(f"{form}: {counts(log)}, saved {saved}\n{log[-3000:]}")
            _, log = door.run(["--resume", f"{folder}/saves/dcp"], [*way, "9"], nproc=3)
            if {samples for samples, _ in counts(log)} != {"33"}:
                raise Failure(f"{counts(log)}\n{log[-3000:]}")
    return test


def cells(door):
    """A cell of a grid goes on wherever it is asked for, and a cut array with its rows; a grid of another shape is refused by name."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            line = [*LINE, "--cut", "--take-over", "turn", "--grid"]
            undisturbed, _ = door.run((), [*line, "2"])
            struck, log = door.run(["--inject", "kill:1@4:update", "--inject", "throw:2@6:update"], [*line, "2"])
            if struck["final_digest"] != undisturbed["final_digest"]:
                raise Failure(f"another final state\n{log[-3000:]}")
            door.run(["--save-dir", f"{folder}/saves", "--save-every", "3", "--save-format", "megatron"], [*line, "2", "--steps", "6"])
            for form, nproc in (("", 2), ("", 5), ("/megatron", 6)):
                _, log = door.run(["--resume", f"{folder}/saves{form}"], [*line, "2", "--steps", "7"], nproc=nproc)
                found = re.findall(r"cell (\d) goes on after (\d+)", log)
                if sorted(found) != sorted((str(rank % 2), "6") for rank in range(nproc)):
                    raise Failure(f"{form}, {nproc} ranks: {found}\n{log[-3000:]}")
            # Whichever rank finds out first tells of the cell that it asked for.
            words = r"object 'cell/shard_[012]_3' was saved by no rank: the checkpoint has 'cell/shard_0_2' to 'cell/shard_1_2', and cells"
            _, log = door.run(["--resume", f"{folder}/saves"], [*line, "3", "--steps", "7"], nproc=6, expect=3)
            if not re.search(words, log):
                raise Failure(f"'{words}' is nowhere\n{log[-4000:]}")
    return test


def differs(door):
    """Who should hold the same and does not is told what differs, before training begins."""
    def test(_):
        _, log = door.run((), [*LINE, "--differ"], nproc=2, expect=3)
        for key in ("slopes", "offsets"):
            if f"tensor '{key}' is registered on rank 1 but missing on its replica, rank 0" not in log:
                raise Failure(log[-3000:])
    return test


def mistakes(door):
    """Each is a sentence of a kintsugi.Error, in a process that has joined nothing."""
    code = """
import json
import kintsugi
try:
    kintsugi.join()
except kintsugi.Error as error:
    assert error.code == 5 and "kintsugi run" in str(error), error
else:
    raise SystemExit("joined nothing")
try:
    kintsugi.join(nonsense=1)
except TypeError as error:
    assert "nonsense" in str(error), error
print(kintsugi.__version__)
controller = kintsugi._core.Controller(job="line", secret=bytes(32), world_size=2)
status = json.loads(controller.ask('{"command": "status"}', 10_000))
assert status["ok"] and len(status["ranks"]) == 2, status
assert "not paused" in json.loads(controller.ask('{"command": "continue"}', 10_000))["error"]
try:
    controller.ask("nonsense", 0)
except kintsugi.Error as error:
    assert error.code == 5 and "is not JSON" in str(error), error
else:
    raise SystemExit("asked nonsense")
controller.stop()
"""
    def test(_):
        environment = {k: v for k, v in door.environment().items() if k not in ("RANK", "WORLD_SIZE")}
        done = subprocess.run([door.python, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
        if done.returncode != 0:
            raise Failure(done.stderr[-3000:])
    return test


if __name__ == "__main__":
    door = Door(sys.argv[1:])
    sys.exit(main([
        ("numpy trainer, killed at the gate", door.same(LINE, ["--inject", "kill:1@5:gate"], paths=[["adopt"]])),
        ("numpy trainer, killed in its update", door.same(LINE, ["--inject", "kill:2@7:update"], paths=[["respawn"]])),
        ("numpy trainer, an exception of its own",
         door.same(LINE, [], ["--raise", "6"], paths=[["retry"]],
                   words=("LineError: the line is crooked", "Traceback", "line.py"))),
        ("numpy trainer, an injected exception", door.same(LINE, ["--inject", "throw:0@4:update"])),
        ("numpy trainer, forks a child", door.same(LINE, [], ["--fork"])),
        ("numpy trainer that draws from generators that are nobody's own, killed, an exception",
         door.same([str(HERE / "drawn.py")], ["--inject", "kill:0@4:backward", "--inject", "throw:1@6:backward", "--inject", "kill:1@8:update"], nproc=2)),
        ("numpy trainer, Ctrl-C in one rank", ctrl_c(door)),
        ("numpy trainer, told to save and leave, and resumed", leaves(door)),
        ("numpy trainer, an exception before its loop",
         beside(fails(door, "--early", 3, r"rank 1 exited with code 1; last line of its error output, \d+ s before: LineError: there is no line"))),
        ("numpy trainer, an exception behind its loop", fails(door, "--late", 1, "rank 1 ended the run at step 20: __main__.LineError: the line cannot be written")),
        ("numpy trainer, an error as its interpreter ends", fails(door, "--spoil", 1, "rank 1 ended the run at step 20: kintsugi._errors.Error: object 'random' .Trainer. cannot be pickled")),
        ("numpy trainer, resumed by 2, 5 and 6 ranks, by each way to take over an object", resized(door)),
        ("numpy trainer, cells of a grid and a cut array resumed by 2, 5 and 6 ranks", cells(door)),
        ("numpy trainer, its values resumed by 3 ranks from every format", values(door)),
        ("numpy trainer, mistakes of registration are refused and change nothing", door.same(LINE, [], ["--mistakes"], paths=[[]])),
        ("numpy trainer, a handler raises",
         door.same(LINE, ["--inject", "throw:0@5:gate"], ["--handler", "raise"], paths=[["retry"]],
                   words=("LineError: the handler is crooked", "Traceback"))),
        ("numpy trainer, a handler hangs",
         beside(door.same(LINE, ["--inject", "throw:0@5:gate", "--silence", "4", "--hang-least", "8", "--step-timeout", "8"], ["--handler", "hang"],
                          words=("did not come out of its step within 8000 ms",)))),
        ("numpy trainer that takes an array out of its state, then loses a rank",
         door.same(LINE, ["--inject", "throw:2@4:forward", "--inject", "kill:0@9:forward"], ["--gone"], paths=[["retry", "adopt"]])),
        ("numpy trainer whose state moves, killed at the gate", door.same(LINE, ["--inject", "kill:1@5:gate"], ["--move"], paths=[["respawn"]])),
        ("numpy trainer, ranks register different state", differs(door)),
        ("mistakes are sentences, also what a hosted controller is asked", mistakes(door)),
        ("numbers of the C ABI are the header's", door.alone("abi_numbers.py")),
        ("types are as they say", door.typed(*LINE)),
    ], door.bin))
