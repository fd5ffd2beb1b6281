"""Steps that are refused: what is left out was never there, to the bit; a machine that computed wrongly is told from data that is bad.

  refuses.py BIN_DIR [--only WORD]...
"""
import json
import sys

from harness import SMALL, Failure, must_be_same, reference, script

TRAINER = [*SMALL, "--steps", "20"]
REJECT = ["--reject-norm", "100"]
LEAVES_OUT = ["--reject-most", "10"]  # and refuses nothing by itself


def steps(option, numbers):
    return [word for number in numbers for word in (option, str(number))]


def refused(bad=(), before=(), faults=(), own=(), options=(), paths=None, words=(), veto=""):
    """`bad`: steps whose batch is no good, `before`: those that go with it. The same as a run that passes these by from the start. `veto`: by these rules, not by the trainer itself."""
    def test(runner):
        rejects, rules = (LEAVES_OUT, ["--veto", veto]) if veto else (REJECT, [])
        summary, log = runner.run([*[word for fault in faults for word in ("--inject", fault)], *rules, *options], [*TRAINER, *own, *rejects, *steps("--poison", bad)])
        must_be_same(reference(runner.bin, [*TRAINER, *own, *steps("--leave-out", [*before, *bad])]), summary, log)
        if bad and summary["final_digest"] == reference(runner.bin, [*TRAINER, *own])["final_digest"]:
            raise Failure(f"nothing was left out\n{log[-3000:]}")
        said = json.dumps(summary["incidents"])
        if paths is not None and [incident["path"] for incident in summary["incidents"]] != list(paths):
            raise Failure(f"{said[:4000]}\n{log[-2000:]}")
        for word in words:
            if word not in said + log:
                raise Failure(f"'{word}' is nowhere: {said[:4000]}\n{log[-2000:]}")
    return test


def goes_on_from_a_save(runner):
    """... behind a step that was left out, without the batch that was no good: it does not come again."""
    runner.run(["--save-every", "8"], [*TRAINER, *REJECT, *steps("--poison", [6, 16])])
    summary, log = runner.run(["--resume", str(runner.folder / "checkpoints")], TRAINER)
    if summary["final_digest"] != reference(runner.bin, [*TRAINER, *steps("--leave-out", [6, 16])])["final_digest"] or summary["incidents"]:
        raise Failure(log[-3000:])


def ends_where_no_more_may_be_left_out(runner):
    summary, log = runner.run((), [*TRAINER, *REJECT, "--reject-most", "1", *steps("--poison", [6, 9])], expect=1)
    if summary["steps"] != 8 or "and 1 have been left out: no more may be" not in log or "saved step 8" not in log:
        raise Failure(log[-4000:])


def says(words, veto, *own, expect=1):
    def test(runner):
        _, log = runner.run(["--veto", veto], [*TRAINER, *own], expect=expect)
        for word in words:
            if word not in log:
                raise Failure(f"'{word}' is nowhere: {log[-3000:]}")
    return test


def goes_on_in_another_layout(runner):
    """The losses by which a spike is told go along where state is cut anew."""
    trainer = ["--steps", "24", "--batch", "3", "--any-layout", *LEAVES_OUT]
    struck = ["--max-respawns", "0", "--inject", "kill:3@18:forward"]
    plain, _ = runner.run(struck, trainer)
    summary, log = runner.run([*struck, "--veto", "spike:1000"], trainer)
    must_be_same(plain, summary, log)
    if [incident["path"] for incident in summary["incidents"]] != ["shrink"]:
        raise Failure(f"{summary['incidents']}\n{log[-3000:]}")


MACHINE = "rank 1 alone computed otherwise than before: its machine is to blame"
TESTS = [
    ("a batch that is no good", refused([6], paths=["retry", "retry"], words=["computed again by the same numbers: the data is to blame"])),
    ("the first and the last step, and two in a row, shards", refused([1, 8, 9, 20], own=["--tp", "2", "--replicas", "1"], paths=["retry"] * 8)),
    ("a rank is killed in the step that is refused", refused([6], faults=["kill:2@6:gradient-sync"])),
    ("a rank is killed behind the step that is left out", refused([6], faults=["kill:1@7:forward"])),
    ("a machine that computes wrongly once", refused(faults=["flip-grad:1@6"], words=[MACHINE, "event=computed_otherwise rank=1 step=6"])),
    ("a machine that nobody may come in the place of", refused(
        faults=["flip-grad:1@6"], options=["--max-respawns", "0"], paths=["retry"], words=["no other process may take its place"])),
    ("a run goes on from a save behind what was left out", goes_on_from_a_save),
    ("no more may be left out", ends_where_no_more_may_be_left_out),
    ("a rule: nan", refused([6], veto="nan", paths=["retry", "retry"], words=["its loss is nan (samples ", "computed again by the same numbers: the data is to blame"])),
    ("a rule: norm, beside one of losses; the first and the last step, shards", refused([1, 20], own=["--tp", "2", "--replicas", "1"], veto="spike:1000,norm:100", paths=["retry"] * 4)),
    ("a rule, and a rank is killed in the step that it refuses", refused([18], faults=["kill:2@18:gradient-sync"], veto="nan,spike:6")),
    ("a rule, and a machine that computes wrongly once", refused(faults=["flip-grad:1@6"], veto="norm:100", words=[MACHINE])),
    ("a rule, and the run goes back to a snapshot", refused(
        [12], [10, 11], own=["--step-delay-us", "30000"], options=["--snapshot-every", "8"], veto="norm:100,back:2",
        words=["steps 10 to 12 are left out", "back to the in-memory snapshot of step 8"])),
    ("... to a checkpoint, and a rank is killed there", refused(
        [12], [10, 11], faults=["kill:1@13:forward"], own=["--step-delay-us", "30000"], options=["--snapshot-every", "11", "--save-every", "8"], veto="norm:100,back:2",
        words=["steps 10 to 12 are left out", "back to the checkpoint of step 8"])),
    ("... and there is nothing to go back to", refused(
        [6], options=["--snapshot-every", "100"], veto="norm:100,back:2", words=["the run cannot go back to before step 4: there is no older checkpoint"])),
    ("as many may be left out as the rule says", says(["step 9 is refused", "and 1 have been left out: no more may be", "saved step 8"], "nan,most:1", *LEAVES_OUT, *steps("--poison", [6, 9]))),
    ("a rule, and a rank is lost for good", goes_on_in_another_layout),
    ("rules are for programs that leave steps out", says(["--veto nan: this program leaves no steps out: call Agent::AllowRejects"], "nan", expect=3)),
    ("a rule that is none", says(["'spike' is no rule"], "spike", *LEAVES_OUT, expect=3)),
]

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
