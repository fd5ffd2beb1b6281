"""Steps that are refused: a run whose bad batches are left out has the bits of plain torch that never had them; a machine that computed wrongly is told from
data that is bad.

  refused_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...
"""
import subprocess
import sys
import tempfile
from pathlib import Path

from compared import Compared, left_in
from door import HERE, Failure, main, opened

if __name__ == "__main__":
    door, options = opened()
    nan = ("--veto", "nan")

    def left_out(name, *words, veto=nan, faults=(), paths=None, replaced=None):
        return name, Compared(door, "torch_refused.py", *words).same(*faults, options=veto, paths=paths, replaced=replaced)

    def resumed(behind):
        """From what was saved behind the step that was left out, or the next one."""
        words = ("--bad", "5:1")
        compared = Compared(door, "torch_refused.py", *words)

        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                program = door.script(str(HERE / "torch_refused.py"), folder, *words)
                door.run([*nan, "--save-every", str(behind), "--keep", "20", "--save-dir", f"{folder}/saves"], program, nproc=2)
                rest = Path(folder, "rest")
                rest.mkdir()
                Path(folder, "saves", f"step_{behind:010}").rename(rest / f"step_{behind:010}")
                summary, log = door.run(["--resume", str(rest), "--save-dir", ""], program, nproc=2)  # without the rule: the batch does not come again
                if summary["incidents"] or f"step {behind}" not in log:
                    raise Failure(f"{summary['incidents']}\n{log[-3000:]}")
                compared.compare(folder)
        return test

    def without_torch(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as plain, tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            program = str(HERE / "refused_line.py")
            subprocess.run([door.python, program, plain, "--plain"], check=True, timeout=100)
            for faults in (("kill:1@9:forward",), ("throw:1@7:forward", "kill:1@7:forward")):
                summary, log = door.run([word for fault in faults for word in ("--inject", fault)], [program, folder], nproc=2)
                if left_in(folder) != left_in(plain) or len(summary["incidents"]) < 4:
                    raise Failure(f"{faults}: {left_in(plain)} plainly, {left_in(folder)}\n{log[-3000:]}")

    def ends(code, words, *options, program=("--bad", "5:1"), veto=nan, saved=None):
        """The run ends with this code, and says so."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                save = ["--save-dir", f"{folder}/saves"] if saved is not None else []
                _, log = door.run([*veto, *save, *options], door.script(str(HERE / "torch_refused.py"), folder, *program), nproc=2, expect=code)
                for word in words:
                    if word not in log:
                        raise Failure(f"'{word}' was not said\n{log[-4000:]}")
                if saved is not None and not Path(folder, "saves", f"step_{saved:010}").is_dir():
                    raise Failure(f"step {saved} was not saved\n{log[-3000:]}")
        return test

    def gone(*iterations):
        return [word for i in iterations for word in ("--gone", str(i))]

    def back(name, *words, steps, every, paths=None, veto="nan", options=(), faults=()):
        """`every`: steps between snapshots."""
        return left_out(name, *words, veto=("--veto", f"{veto},back:{steps}", "--snapshot-every", str(every), *options), faults=faults, paths=paths)

    twice = (("retry", "retry"),)
    norm = ("--veto", "norm:100")
    tests = [
        ("rules, and whose fault it is", door.alone("verdicts.py")),
        ("numbers without torch", without_torch),
        left_out("a rank is killed in the step that is refused", "--bad", "5:1", faults=("kill:0@6:backward",), paths=None),
        left_out("a norm that is too large, the first batch and two of the second pass, one after the other", "--bad", "0:0:large", "--bad", "14:1:large", "--bad", "15:1:large",
                 veto=norm, paths=(("retry",) * 6,)),
        left_out("a step of two batches, shards", "--bad", "5:1", "--accumulate", "2", "--shards", paths=twice),
        left_out("a loop that marks its steps itself, and passes by, a rank is killed in it", "--bad", "5:1", "--bad", "6:0", "--loop", "own", faults=("kill:1@8:forward",), paths=None),
        left_out("a machine that computes wrongly once", veto=norm, faults=("flip-grad:1@6",), paths=None, replaced=(1,)),
        ("a run that was saved behind what was left out", resumed(6)),
        back("the run goes back to a snapshot, and leaves three steps out", "--bad", "11:1", *gone(9, 10), steps=2, every=8),
        back("... over the end of a pass, and a rank is killed on the way", "--bad", "14:1", *gone(10, 11, 12, 13), "--dies", steps=4, every=10),
        left_out("a rank is lost behind what was left out, and what is gone back to lies before it", "--bad", "5:1", "--shards",
                 veto=(*nan, "--snapshot-every", "4", "--no-adopt"), faults=("kill:1@7:forward",), paths=(("retry", "retry", "reload"),)),
        ("more than may be left out, with those before it", ends(1, ["rank 1: its loss is nan (samples", "1 have been left out: no more may be"], "--snapshot-every", "4",
                                                                 veto=("--veto", "nan,most:1,back:2"), program=("--bad", "7:1", *gone(5, 6)))),
        ("nothing to go back to", ends(2, ["back:2 goes back to an in-memory snapshot, and none is made: add --snapshot-every"], veto=("--veto", "nan,back:2"))),
        ("more than may be left out", ends(1, ["step 9 is refused (rank 0: its loss is nan (samples", "1 have been left out: no more may be"], veto=("--veto", "nan,most:1"),
                                           program=("--bad", "5:1", "--bad", "8:0"), saved=8)),
        ("a rule that is none", ends(3, ["--veto nan,spike: 'spike' is no rule", "nan,spike:6,norm:1e3"], veto=("--veto", "nan,spike"))),
    ]
    if options.soak:
        tests += [
            left_out("a batch that is not finite, on one rank", "--bad", "5:1", paths=twice),
            back("... as far as there is one", "--bad", "11:1", *gone(8, 9, 10), steps=6, every=8),
            back("... by the script's word, in a loop over numbers, and a rank is killed behind them", "--bad", "11:1", *gone(9, 10), "--call", "2",
                 "--loop", "range", steps=1, every=8, veto="norm:1e9", faults=("kill:0@13:forward",)),
            back("... of a loop that marks its steps itself, shards", "--bad", "11:0", *gone(9, 10), "--loop", "own", "--shards", steps=2, every=8),
            left_out("found by the script, in a loop over numbers", "--bad", "5:1", "--loop", "range", "--call", veto=(), paths=twice),
            left_out("a spike of the loss, the last step of all", "--bad", "19:0:large", "--loop", "train", veto=("--veto", "spike:8"), paths=twice),
            left_out("a rank that is killed behind the step that is left out", "--bad", "5:1", faults=("kill:1@7:forward",), paths=None),
            left_out("... in the step that is left out", "--bad", "5:1", "--bad", "6:0", faults=("kill:1@7:gradient-sync",), paths=None),
            left_out("a machine that nobody may come in the place of", faults=("flip-grad:0@6",), veto=(*norm, "--max-respawns", "0"), paths=(("retry",),), replaced=()),
            ("a run that was saved one step later", resumed(7)),
            ("a loop that marks its steps itself", ends(1, ["rank 1: its loss is nan (samples", "does not leave its batches out"], program=("--bad", "5:1", "--loop", "guard"), saved=5)),
        ]
    sys.exit(main(tests, door.bin, options.only))
