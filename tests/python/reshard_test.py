"""run.reshard in real runs: every element where it is asked for, mistakes told alike on all ranks, and a fault within makes it again; and a
resume into other shapes.

  reshard_test.py BIN_DIR PACKAGE_FOLDER PYTHON [WORD]...     those whose names hold a word
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from door import HERE, Door, Failure, beside, main, skip_without_torch

LINE = [str(HERE / "reshard_line.py")]
MODEL = ["-W", "ignore", str(HERE / "torch_reshard.py")]
STRUCK = ("event=incident id=1",)  # the fault has come


def dies_within(door, when):
    """Rank 1 dies in a section's reshard: another process takes its place, and all have what they asked for."""
    def test(_):
        summary, log = door.run((), [*LINE, when])
        if [incident["ranks"] for incident in summary["incidents"]] != [[1]]:
            raise Failure(f"{summary['incidents']}\n{log[-4000:]}")
        for rank in range(4):
            if f"rank {rank} received" not in log:
                raise Failure(f"rank {rank} has not come to its end\n{log[-4000:]}")
    return test


def ends(door, program, nproc):
    """What the script itself holds to be right."""
    def test(_):
        summary, log = door.run((), program, nproc)
        if summary["incidents"] or any(f"rank {rank} is done" not in log for rank in range(nproc)):
            raise Failure(f"{summary['incidents']}\n{log[-4000:]}")
        return log
    return test


def outside(door):
    def test(_):
        log = ends(door, [str(HERE / "reshard_mistakes.py")], 2)(_)
        if "refused: run.reshard outside of a step before its update and of run.do" not in log:
            raise Failure(log[-4000:])
    return test


def own_words(door):
    """A word of the script's own stands in a reshard's program, in that of its saves, and in that of its resume."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            script = str(HERE / "reshard_macros.py")
            there, back = Path(folder, "there.aoa"), Path(folder, "back.aoa")
            there.write_text("weights -> even, odd, of=[2], striped\n")
            back.write_text("even, odd -> weights, of=[2], striped\n")
            saves = ["--save-dir", f"{folder}/saves", "--save-every", "2", "--save-format", "safetensors", "--save-aoa", str(there)]
            whole, log = door.run(saves, [script, "4"], 2)
            if "save_format_failed" in log or whole["incidents"]:
                raise Failure(log[-4000:])
            saved = f"{folder}/saves/safetensors/checkpoint-2"
            shown = subprocess.run([str(door.bin / "kintsugi"), "ckpt", "show", saved, "--json"], capture_output=True, text=True, timeout=60, check=False)
            if {tensor["key"]: tensor["shape"] for tensor in json.loads(shown.stdout)["tensors"]} != {"even": [4, 6], "odd": [4, 6]}:
                raise Failure(shown.stdout + shown.stderr)
            rest, log = door.run(["--resume", saved, "--resume-aoa", str(back), "--save-dir", ""], [script, "4"], 2)
            if rest["final_digest"] != whole["final_digest"]:
                raise Failure(f"{rest['final_digest']}, undisturbed {whole['final_digest']}\n{log[-4000:]}")
            _, log = door.run(saves, [script, "4", "wrong"], 2, expect=3)
            if "AOA program" not in log or "striped" not in log:
                raise Failure(f"a word that nobody knows is not named\n{log[-4000:]}")
    return test


def padded(door):
    """A vocabulary of 100 rows over two ranks goes on padded to 104, or cut to 96, where that is said; else it is refused with the remedy."""
    def rows(log, words):
        return sorted(set(re.findall(rf"rank (\d) {words} (\S+) (\S+) zero=(\w+)", log)))

    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            script = ["-W", "ignore", str(HERE / "torch_padded.py")]
            _, saved = door.run(["--save-dir", f"{folder}/saves", "--save-every", "3"], [*script, "100", "3"], 2)
            again = ["--resume", f"{folder}/saves"]
            for words in ("words", "exp_avg_sq", "counts"):
                if len(rows(saved, words)) != 2:
                    raise Failure(saved[-3000:])
            for how, options in (([], []), (["strict"], ["--resume-shapes", "*/words*,counts"])):
                _, log = door.run([*again, *options], [*script, "104", "4", *how], 2)
                for words in ("words", "exp_avg_sq", "counts"):
                    if rows(log, words) != rows(saved, words):  # also that what is behind them is zero
                        raise Failure(f"{words}: {rows(log, words)}, saved {rows(saved, words)}\n{log[-3000:]}")
            _, log = door.run(again, [*script, "96", "4"], 2)
            for words in ("words", "exp_avg_sq", "counts"):
                if [row[:2] for row in rows(log, words)] != [row[:2] for row in rows(saved, words)]:
                    raise Failure(f"{words}: {rows(log, words)}, saved {rows(saved, words)}\n{log[-3000:]}")
            for options in ([], ["--resume-shapes", "*/word,count"]):
                _, log = door.run([*again, *options], [*script, "104", "4", "strict"], 2, expect=3)
                if not re.search(r"is stored with global shape \[100, \d\], but asked for with \[104, \d\]; to take what both have, and zeros: --resume-shapes", log):
                    raise Failure(log[-3000:])
    return test


if __name__ == "__main__":
    door = Door(sys.argv[1:4], preload="kintsugi.torch")
    skip_without_torch(door)
    sys.exit(main([
        ("in every step rows become columns: a rank is frozen as it comes to it, another killed, one throws there, and a step is made again",
         beside(door.same([*LINE, "step"], [word for fault in ("freeze:0@2", "kill:1@3", "throw:2@4") for word in ("--inject", f"{fault},collective=1")],
                          words=("event=incident id=3",)))),
        ("a rank dies before it comes to a section's reshard", dies_within(door, "wait")),
        ("a rank dies when the first bytes have come", dies_within(door, "killed")),
        ("mistakes of one rank are told alike on all, and the run goes on", outside(door)),
        ("tensors and DTensors, programs, views, autograd", ends(door, [*MODEL, "once"], 4)),
        ("a word of the script's own in a reshard, a save and a resume", own_words(door)),
        ("a vocabulary goes on with other rows", padded(door)),
        ("a model cut for FSDP2 is served whole from one rank while another is killed",
         door.same(MODEL, ["--inject", "kill:2@3:backward"], words=STRUCK)),
    ], sys.argv[1], sys.argv[4:]))
