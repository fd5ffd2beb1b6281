"""A trainer in C99 survives what strikes it, bit for bit, without a word of C++.

  c_trainer_test.py BIN_DIR TRAINER TRAINER_OF_2 FAKE_GPU FAKE_KERNELS
                                                      the same source, compiled against an older header; fakes of libcuda and libnccl, of kernels
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiproc"))
from harness import Failure, main, same_training  # noqa: E402


def run(bin_dir, trainer, *arguments, options=(), nproc=4, expect=0, environment=None):
    with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
        command = [str(bin_dir / "kintsugi"), "run", "--nproc", str(nproc), *arguments, "--json", "-", "--", trainer, *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120,
                              env=os.environ | (environment or {}))
        kept = sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*"))
    if done.returncode != expect:
        raise Failure(f"exit code {done.returncode}\n{done.stderr[-6000:]}")
    return json.loads(done.stdout or "null"), done.stderr, kept


def same(bin_dir, trainer, arguments, options=(), path=None, words="", without=None, environment=None):
    def test(_):
        if "undisturbed" not in REFERENCE:
            REFERENCE["undisturbed"], log, _ = run(bin_dir, trainer)
            if REFERENCE["undisturbed"]["steps"] != 20 or "y = " not in log:
                raise Failure(log[-3000:])
        summary, log, _ = run(bin_dir, trainer, *arguments, options=options, environment=environment)
        difference = same_training(REFERENCE["undisturbed"], summary)
        if difference:
            raise Failure(f"{difference}\n{log[-3000:]}")
        if path and [incident["path"] for incident in summary["incidents"]] != ([path] if isinstance(path, str) else path):
            raise Failure(json.dumps(summary["incidents"])[:2000])
        if words and words not in json.dumps(summary) + log:
            raise Failure(f"'{words}' is not in the report\n{log[-3000:]}")
        if without and without in log:
            raise Failure(f"'{without}' is in the log\n{log[-3000:]}")
    return test


def saves(bin_dir, trainer):
    """Save points are pulled too: the loop goes on where it stood, and a resumed run ends with the same bits."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            _, log, _ = run(bin_dir, trainer, "--save-every", "7", "--save-dir", f"{folder}/saves")
            shown = subprocess.run([str(bin_dir / "kintsugi"), "ckpt", "show", "--format", "native", f"{folder}/saves"],
                                   capture_output=True, text=True, timeout=60, check=False).stdout
            if '"alias_of": "line"' not in shown:
                raise Failure(f"the tensor's other name is not in the checkpoint\n{shown}")
            summary, resumed_log, _ = run(bin_dir, trainer, "--resume", f"{folder}/saves")
            if "event=saved" not in log and not any(Path(folder, "saves").rglob("*")):
                raise Failure(log[-3000:])
        if summary["final_digest"] != REFERENCE["undisturbed"]["final_digest"]:
            raise Failure(f"another final state after --resume\n{resumed_log[-3000:]}")
    return test


def fitted(without=(), ranks=4, steps=20):
    """What the trainer prints, by a plain loop that never has these steps."""
    slope, offset, drawn = 0.0, 0.0, [17 + rank for rank in range(ranks)]
    for k in range(1, steps + 1):
        if k in without:
            continue
        total = [0.0, 0.0]
        for rank in range(ranks):
            drawn[rank] = (drawn[rank] * 1664525 + 1013904223) % 2**32
            x = (drawn[rank] >> 8) / (1 << 24)
            error = slope * x + offset - (2 * x + 1)
            total = [total[0] + error * x, total[1] + error]
        slope, offset = slope - 0.2 * total[0], offset - 0.2 * total[1]
    return f"y = {slope:.17g} x + {offset:.17g}"


def rejects(bin_dir, trainer, *arguments, bad=None, before=(), path=None, words=(), expect=0, how="1"):
    """What is left out was never there; the rank whose machine was wrong is another process."""
    def test(_):
        own = ["--reject", how, *(["--bad", str(bad)] if bad else []), *(["--back", str(len(before)), "--pace", "50"] if before else [])]
        summary, log, _ = run(bin_dir, trainer, *arguments, options=own, expect=expect)
        if path and [incident["path"] for incident in summary["incidents"]] != path:
            raise Failure(f"{json.dumps(summary['incidents'])[:3000]}\n{log[-3000:]}")
        if expect == 0 and fitted([bad, *before]) not in log:
            raise Failure(f"not {fitted([bad, *before])}\n{log[-3000:]}")
        for word in words:
            if word not in json.dumps(summary) + log:
                raise Failure(f"'{word}' is not said\n{json.dumps(summary['incidents'])[:3000]}\n{log[-3000:]}")
    return test


def shrinks(bin_dir, trainer):
    """Without a rank that is lost for good the others go on as a run that was saved at that step and resumed without it."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            whole, _, _ = run(bin_dir, trainer, "--save-every", "14", "--save-dir", f"{folder}/saves")
            resumed, _, _ = run(bin_dir, trainer, "--resume", f"{folder}/saves", "--save-dir", "", nproc=3)
        summary, log, _ = run(bin_dir, trainer, "--max-respawns", "0", "--inject", "kill:3@15:forward", options=["--offer", "1"])
        path = [incident["path"] for incident in summary["incidents"]]
        if path != ["shrink"] or summary["losses"] != whole["losses"][:14] + resumed["losses"] or len(resumed["losses"]) != 6:
            raise Failure(f"{path}, {summary['losses']}\nsaved {whole['losses'][:14]}, resumed {resumed['losses']}\n{log[-3000:]}")
    return test


def resized(bin_dir, trainer, older):
    """With other ranks the generator goes on as its function says; one of an older header, which cannot say it, is named."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            run(bin_dir, trainer, "--save-every", "7", "--save-dir", f"{folder}/saves")
            for ranks in (3, 6):
                summary, log, _ = run(bin_dir, trainer, "--resume", f"{folder}/saves", "--save-dir", "", nproc=ranks)
                turns = [f"rank {rank} goes on as rank {rank % 4} of 4 did" for rank in range(ranks)]
                if len(summary["losses"]) != 6 or any(turn not in log for turn in turns):
                    raise Failure(f"{ranks} ranks: {summary['losses']}\n{log[-3000:]}")
            for program, ranks, words in ((trainer, 5, "object 'drawn': five is one too many"),
                                          (older, 3, "object 'drawn' does not say how it goes on")):
                _, log, _ = run(bin_dir, program, "--resume", f"{folder}/saves", "--save-dir", "", nproc=ranks, expect=3)
                if words not in log:
                    raise Failure(f"'{words}' is nowhere\n{log[-3000:]}")
    return test


def forgets(bin_dir, trainer):
    """A checkpoint from before is reloaded without the tensor, one from after does not have it; so it goes with a layout's only one."""
    def test(_):
        for layout in ("0", "1"):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                summary, log, _ = run(bin_dir, trainer, "--save-every", "5", "--save-dir", f"{folder}/saves", "--inject", "throw:0@7:forward",
                                      options=["--gone", "clean", "--damage", "8", "--old", "1", "--layout", layout])
                if [incident["path"] for incident in summary["incidents"]] != ["retry", "reload"]:
                    raise Failure(f"{json.dumps(summary['incidents'])[:2000]}\n{log[-3000:]}")
                if summary["losses"] != REFERENCE["undisturbed"]["losses"]:
                    raise Failure(f"other losses\n{log[-3000:]}")
                shown = subprocess.run([str(bin_dir / "kintsugi"), "ckpt", "show", "--format", "native", f"{folder}/saves"],
                                       capture_output=True, text=True, timeout=60, check=False).stdout
                if "scratch" in shown or '"line"' not in shown:
                    raise Failure(f"the newest checkpoint\n{shown}")
                resumed, log, _ = run(bin_dir, trainer, "--resume", f"{folder}/saves", "--save-dir", "")
                if layout == "0" and resumed["final_digest"] != REFERENCE["undisturbed"]["final_digest"]:
                    raise Failure(f"another final state after --resume\n{log[-3000:]}")
    return test


def on_device(bin_dir, trainer, fakes):
    """State on a device whose memory, kernels and NCCL are fakes: what is tested is the host's side."""
    gpu, kernels = fakes
    one = ["--devices", "1"]  # the fake has one, which all ranks share
    nothing = {"KINTSUGI_NCCL_LIBRARY": "/nowhere/libnccl.so", "KINTSUGI_KERNELS_LIBRARY": "/nowhere/kernels.so", "KINTSUGI_CUDA_LIBRARY": gpu}
    whole = {"KINTSUGI_NCCL_LIBRARY": gpu, "KINTSUGI_KERNELS_LIBRARY": kernels, "KINTSUGI_CUDA_LIBRARY": gpu}
    cases = [
        ("", [], [], None, "opened 7 of device 0, NCCL 22809"),
        (", killed in its update", ["--inject", "kill:1@5:update"], [], "respawn", "launches of NCCL's: "),
        (", killed in its forward pass", ["--inject", "kill:2@9:forward"], [], "respawn", "launches of NCCL's: "),
        (", killed while a spare waits", ["--spares", "1", "--inject", "kill:2@9:forward"], ["--pace", "300"], "spare", "launches of NCCL's: "),
        (", an error of its own", [], ["--raise", "6"], "retry", "LineError"),
        (", an exception in its update", ["--inject", "throw:0@7:update"], [], "rebuild", ""),
        (", damaged memory that it names", [], ["--damage", "6"], "patch", "planted"),
        (", damaged memory since nobody knows when, put back from a snapshot", ["--snapshot-every", "3"],
         ["--damage", "9", "--old", "1", "--pace", "50"], "reload", "planted"),
    ]  # fmt: skip
    made = [(f"C trainer on a device{name}", same(bin_dir, trainer, [*one, *options], ["--device", "7", *own], path, words, environment=whole))
            for name, options, own, path, words in cases]  # fmt: skip
    made.append(("C trainer on a device that is still at the first state when the run begins, killed",
                 same(bin_dir, trainer, [*one, "--inject", "kill:1@5:update"], ["--device", "7"], "respawn",
                      environment=whole | {"FAKE_CUDA_LATE": "300"})))  # fmt: skip
    made.append(("C trainer on a device without NCCL and kernels, killed: by way of the host",
                 same(bin_dir, trainer, [*one, "--inject", "kill:1@5:update"], ["--device", "1"], "respawn",
                      "opened 1 of device 0, NCCL 0; missing: the kernels for CUDA devices could not be loaded (/nowhere/kernels.so: ",
                      environment=nothing)))  # fmt: skip

    def sums(_):
        _, log, _ = run(bin_dir, trainer, *one, "--verify-every", "5", options=["--device", "7"], environment=whole)
        counts = [int(line.split("sums of the device's: ")[1]) for line in log.splitlines() if "sums of the device's: " in line]
        if len(counts) != 4 or min(counts) < 3:
            raise Failure(f"sums made on the device, by each rank: {counts}\n{log[-3000:]}")

    def saved(_):
        """What was saved of a device is what a run on the host resumes from, and the other way round."""
        device = {"options": ["--device", "7"], "environment": whole}
        for first, second in ((device, {}), ({}, device)):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                run(bin_dir, trainer, *one, "--save-every", "7", "--save-dir", f"{folder}/saves", **first)
                summary, log, _ = run(bin_dir, trainer, *one, "--resume", f"{folder}/saves", "--save-dir", "", **second)
            if summary["final_digest"] != REFERENCE["undisturbed"]["final_digest"] or len(summary["losses"]) != 6:
                raise Failure(f"another final state after --resume\n{log[-3000:]}")

    def lacking(_):
        _, log, _ = run(bin_dir, trainer, *one, options=["--device", "5"], environment={**whole, "KINTSUGI_NCCL_LIBRARY": "/nowhere/libnccl.so"}, expect=3)
        if "NCCL could not be loaded (/nowhere/libnccl.so: " not in log or "install NCCL 2.18 or newer" not in log:
            raise Failure(log[-3000:])

    return [*made, ("C trainer on a device, whose kernels make the sums", sums), ("C trainer on a device, saves and resumes", saved),
            ("C trainer on a device that needs NCCL where there is none", lacking)]  # fmt: skip


REFERENCE = {}

if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    program, older = (str(Path(trainer).resolve()) for trainer in sys.argv[2:4])
    fakes = [str(Path(library).resolve()) for library in sys.argv[4:6]]
    sys.exit(main([
        ("C trainer, killed in its update", same(folder, program, ["--inject", "kill:1@5:update"], path="respawn")),
        ("C trainer, killed in its forward pass", same(folder, program, ["--inject", "kill:2@9:forward"], path="adopt")),
        ("C trainer, an error of its own", same(folder, program, [], ["--raise", "6"], "retry",
                                                "LineError: the line is crooked")),
        ("C trainer, an injected exception in the update", same(folder, program, ["--inject", "throw:0@7:update"])),
        ("C trainer, an injected exception at its first collective",
         same(folder, program, ["--inject", "throw:1@4,collective=1"], path="retry")),
        ("C trainer, killed at its first collective", same(folder, program, ["--inject", "kill:2@6,collective=1"], path="adopt")),
        ("C trainer of header 2, killed in its update", same(folder, older, ["--inject", "kill:1@5:update"], path="respawn")),
        *((f"C trainer whose state moves in {task}, an error of its own",
           same(folder, program, [], ["--raise", "6", "--move", task, "--to", to], "retry"))
          for task, to in (("clean", "agent"), ("rebuild", "heap"), ("rollback", "heap"))),
        ("C trainer whose state moves in the agent's memory, killed: its successor adopts it",
         same(folder, program, ["--inject", "kill:2@9:forward"], ["--move", "rebuild", "--to", "agent"], "adopt")),
        ("C trainer whose state moved more often than its successor's, killed",
         same(folder, program, ["--inject", "throw:1@4:forward", "--inject", "kill:2@9:forward"],
              ["--move", "rollback", "--to", "agent"], ["retry", "adopt"])),
        ("C trainer whose state moves out of the agent's memory, killed: it is streamed",
         same(folder, program, ["--inject", "kill:2@9:forward"], ["--move", "rollback", "--to", "heap"], "respawn")),
        ("C trainer killed while its state moves: what its launcher held of it is adopted by nobody",
         same(folder, program, [], ["--raise", "6", "--move", "clean", "--to", "agent", "--die", "1"], "respawn",
              without="hold different state")),
        ("C trainer whose state moves, damaged memory",
         same(folder, program, ["--inject", "uce:1@7:forward,level=low"], ["--move", "rebuild", "--to", "heap"], "patch")),
        ("C trainer whose state moves beside snapshots",
         same(folder, program, ["--snapshot-every", "1", "--inject", "throw:0@5:update", "--inject", "throw:3@9:forward"],
              ["--move", "clean", "--to", "heap"])),
        *((f"C trainer that takes a tensor out of its state in {task}{', as one rank says' if said else ''}, then others are lost",
           same(folder, program, ["--inject", "throw:0@4:forward", "--inject", "kill:2@9:forward", "--inject", "throw:3@13:update"],
                ["--gone", task, *said], ["retry", repaired, "rebuild"]))
          for task, said, repaired in (("clean", [], "adopt"), ("clean", ["--speaker", "1"], "adopt"),
                                       ("rebuild", ["--speaker", "0"], "adopt"), ("rollback", [], "adopt"))),
        ("C trainer that takes a tensor out of its state beside snapshots",
         same(folder, program, ["--snapshot-every", "3", "--inject", "throw:0@4:forward", "--inject", "kill:2@9:forward"],
              ["--gone", "rebuild", "--damage", "17", "--old", "1", "--pace", "40"], ["retry", "adopt", "reload"])),
        ("C trainer that takes a tensor out of its state in the very incident that goes back to a snapshot",
         same(folder, program, ["--snapshot-every", "3"],
              ["--gone", "clean", "--speaker", "0", "--damage", "9", "--old", "1", "--pace", "50"], ["reload"])),
        ("C trainer that takes a tensor out of its state in the rollback of one rank only",
         same(folder, program, ["--inject", "throw:0@4:forward", "--inject", "kill:2@9:forward"], ["--gone", "rollback", "--speaker", "1"],
              words="was unregistered in ROLLBACK on other ranks, but not on rank")),
        ("C trainer that takes a tensor out of its state, saves and reloads", forgets(folder, program)),
        ("C trainer, damaged memory that it names", same(folder, program, [], ["--damage", "6"], "patch", "planted")),
        ("C trainer, damaged memory since nobody knows when",
         same(folder, program, ["--snapshot-every", "3"], ["--damage", "9", "--old", "1", "--pace", "50"], "reload", "planted")),
        ("C trainer that forks", same(folder, program, [], ["--fork", "3"])),
        ("C trainer whose state lies in a memory file of its own, killed",
         same(folder, program, ["--inject", "kill:2@9:forward"], ["--share", "1"], "adopt")),
        ("C trainer whose device does the updates", same(folder, program, [], ["--fence", "100"])),
        ("C trainer whose device does the updates, and fails in one",
         same(folder, program, [], ["--fence", "8"], "rebuild", "the trainer's fence says that its device failed")),
        ("C trainer whose state may not move", same(folder, program, ["--inject", "kill:2@9:forward"], ["--move", "never"], "adopt")),
        ("C trainer, save points and resume", saves(folder, program)),
        ("C trainer, a rank is lost for good and the others go on", shrinks(folder, program)),
        ("C trainer, a plain loop has its numbers", rejects(folder, program, path=[])),
        ("C trainer whose step is refused, for its data", rejects(folder, program, bad=6, path=["retry", "retry"], words=[
            "a slope like this is none): it is computed again", "computed again by the same numbers: the data is to blame"])),
        ("C trainer that goes back to a snapshot, and leaves two more steps out", rejects(folder, program, "--snapshot-every", "8", bad=12, before=[10, 11], words=[
            "steps 10 to 12 are left out", "back to the in-memory snapshot of step 8"])),
        ("C trainer whose last step is refused, and a rank is killed in it", rejects(folder, program, "--inject", "kill:2@20:forward", bad=20)),
        ("C trainer whose step is refused by a norm that it tells", rejects(folder, program, "--veto", "norm:1e3", bad=6, how="rules", path=["retry", "retry"], words=[
            "the norm of the gradients is 1e+300"])),
        ("C trainer whose loss has a spike on a rank that came a moment before", rejects(
            folder, program, "--veto", "spike:20", "--inject", "kill:1@18:forward", bad=18, how="rules", words=["rank 1: its loss 1e+300 is "])),
        ("C trainer that computes wrongly once", rejects(folder, program, "--inject", "flip-grad:1@6", words=[
            "rank 1 alone computed otherwise than before: its machine is to blame"], path=["retry", "retry", "adopt"])),
        ("C trainer that computes wrongly once, and whose place nobody may take", rejects(
            folder, program, "--inject", "flip-grad:1@6", "--max-respawns", "0", path=["retry"])),
        ("C trainer, resumed by 3 and 6 ranks, and where it refuses", resized(folder, program, older)),
        *on_device(folder, program, fakes),
    ], folder))
