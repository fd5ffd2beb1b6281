"""What torch scripts save is gone on with: to the bit by as many ranks, to the rounding of sums by others, cut otherwise, under other names.

  torch_saves_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...     --soak: each way to be parallel, more sizes
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from door import HERE, ROOT, Failure, main, opened, same_training, where_newer

GPT = [str(ROOT / "integrations/examples/torch_gpt/train.py"), "--steps", "12"]
CUT = [str(HERE / "torch_cut.py")]  # tensor parallelism without DTensor


def tied(door):
    """A checkpoint has tied weights and their optimizer's state once, under both names."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            door.run(("--save-every", "2", "--save-dir", f"{folder}/saves"), [str(HERE / "torch_tied.py")], nproc=1)
            done = subprocess.run([str(door.bin / "kintsugi"), "ckpt", "show", "--format", "native", f"{folder}/saves"],
                                  capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise Failure(done.stderr[-2000:])
        shown = {t["key"]: t.get("alias_of") for t in json.loads(done.stdout)["tensors"]}
        for name in ("model/{}.weight", "optimizer/{}.weight.exp_avg", "optimizer/{}.weight.step"):
            if shown.get(name.format("output")) != name.format("embedding"):
                raise Failure(f"{name}: {shown}")
    return test


def resumed(door, how, arguments=("--save-every", "4"), expect=0):
    """What a run of cut models left on disk, as it ended or when a rank was lost for good, is what another goes on from."""
    def test(_):
        program, short = [*GPT, "--parallel", how], ["--steps", "6"]
        whole, _ = door.run(("--save-dir", ""), program)
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            saves = ("--save-dir", f"{folder}/saves")
            door.run((*saves, "--save-format", "dcp", *arguments), [*program, *(short if expect == 0 else ())], expect=expect)
            same = subprocess.run([str(door.bin / "kintsugi"), "ckpt", "diff", f"{folder}/saves", f"{folder}/saves/dcp"],
                                  capture_output=True, text=True, timeout=60, check=False)
            rest, log = door.run(("--resume", f"{folder}/saves", "--save-dir", ""), program)
        if same.returncode != 0:
            raise Failure(same.stdout[-2000:] + same.stderr[-2000:])
        done = len(rest["losses"])
        if not 0 < done < len(whole["losses"]):
            raise Failure(f"{done} steps were left to do\n{log[-2000:]}")
        for field, expected in (("losses", whole["losses"][-done:]), ("final_digest", whole["final_digest"])):
            if rest[field] != expected:
                raise Failure(f"{field}: {rest[field]}, undisturbed {expected}\n{log[-3000:]}")
    return test


def laid_out(door, *faults):
    """Sums of gradients are rounded as under torch alone: whatever strikes, and also where a run goes on from what was saved behind its first
    step, before DistributedDataParallel has laid its buckets out."""
    def test(_):
        program = [str(HERE / "torch_layouts.py"), "--digest"]
        inject = [word for fault in faults for word in ("--inject", fault)]
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            def digest(name, *arguments, steps=()):
                _, log = door.run(arguments, [*program, f"{folder}/{name}", *steps])
                return Path(folder, name).read_text(), log
            door.plain([*program, f"{folder}/plain", "--plain"], 4)
            plain = Path(folder, "plain").read_text()
            saves = f"{folder}/saves"
            for name, (found, log) in (("struck", digest("struck", "--save-dir", "", *inject)),
                                       ("saved", digest("first", "--save-dir", saves, "--save-every", "1", steps=("--steps", "1"))),
                                       ("resumed", digest("rest", "--resume", saves, "--save-dir", "", "--inject", "kill:2@6:backward"))):
                if (found == plain) == (name == "saved"):
                    raise Failure(f"{name}: {found}, torch alone {plain}\n{log[-4000:]}")
    return test


# What the mean over 24 samples becomes where it is added up in another order, and a wrong weight, window or rate does not: between two
# steps lie 0.01 and more.
ROUNDING = 1e-4


def resized(door, how, nproc, *sizes):
    """With other ranks, or cut otherwise, a resumed run has the losses of the undisturbed one: to the rounding of sums over ranks, in which
    the gradients of the same samples are added up in another order. `sizes`: (ranks, further arguments)."""
    def test(_):
        steps, half = 12, 6
        program = [*GPT, "--parallel", how, "--global-batch", "24", "--dropout", "0"]
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            whole, _ = door.run(("--save-dir", f"{folder}/saves", "--save-every", str(half)), program, nproc)
            saved = Path(folder, "saves", f"step_{half:010d}").rename(Path(folder, f"step_{half:010d}"))
            for ranks, *more in sizes:
                rest, log = door.run(("--resume", str(saved.parent), "--save-dir", "", "--verify-every", "2"), [*program, *more], ranks)
                apart = [abs(a - b) for a, b in zip(whole["losses"][half:], rest["losses"])]
                if len(rest["losses"]) != steps - half or max(apart) > ROUNDING or rest["incidents"]:
                    raise Failure(f"{ranks} ranks: {rest['losses']}, undisturbed {whole['losses'][half:]}\n{log[-4000:]}")
                if "event=resumed_reshaped step=6" not in log:
                    raise Failure(f"{ranks} ranks: nothing was taken over\n{log[-3000:]}")
    return test


def cut_by_rule(door, *sizes):
    """What a program cut by itself is repaired to the bit, is stored as the tensors that the rules name, and goes on cut otherwise.
    `sizes`: (ranks, of them in a tensor-parallel group)."""
    def test(_):
        half = 6
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            whole, _ = door.run(("--save-dir", f"{folder}/saves", "--save-every", str(half), "--save-format", "dcp"), CUT)
            struck, log = door.run(("--save-dir", "", "--inject", "kill:1@3:backward", "--inject", "throw:2@8:update"),
                                   [*CUT, "--anew", "--mistakes"])
            if difference := same_training(whole, struck):
                raise Failure(f"{difference}\n{log[-4000:]}")
            saved = Path(folder, "saves", "dcp", f"step-{half}")
            shown = subprocess.run([str(door.bin / "kintsugi"), "ckpt", "show", str(saved), "--json"],
                                   capture_output=True, text=True, timeout=60, check=False)
            found = {t["key"]: t["shape"] for t in json.loads(shown.stdout)["tensors"]}
            for name, shape in (("model/w13.gate", [24, 12]), ("optimizer/w13.up.exp_avg", [24, 12]), ("model/w2", [12, 24]), ("model/again", [12, 24]),
                                ("optimizer/again.exp_avg_sq", [12, 24]), ("model/inner.weight", [12, 12]), ("optimizer/w13.step", [1])):
                if found.get(name) != shape:
                    raise Failure(f"{name}: {found}")
            for ranks, tensor in sizes:
                rest, log = door.run(("--resume", str(saved), "--save-dir", "", "--verify-every", "2"), [*CUT, "--tensor", str(tensor)], ranks)
                apart = [abs(a - b) for a, b in zip(whole["losses"][half:], rest["losses"])]
                if len(rest["losses"]) != half or max(apart) > ROUNDING or rest["incidents"]:
                    raise Failure(f"{ranks} ranks: {rest['losses']}, undisturbed {whole['losses'][half:]}\n{log[-4000:]}")
                # As many ranks as saved draw other numbers than these would have: dcp does not say who stood where. That is said, and of no other world.
                if ("not_as_each_rank_had_it=\"'random'\"" in log) != (ranks == 4):
                    raise Failure(f"{ranks} ranks: what is not as each rank had it\n{log[-4000:]}")
    return test


def renamed(door):
    """A weight is stored under another name and turned, and what the optimizer keeps of it follows: there, and back into the run."""
    def test(_):
        program, key = [*GPT, "--parallel", "ddp", "--dropout", "0"], "head.weight"
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            whole, _ = door.run(("--save-dir", f"{folder}/saves", "--save-every", "6"), program, 1)
            Path(folder, "there.aoa").write_text(f"model/{key}^T -> model/turned\n")
            Path(folder, "back.aoa").write_text(f"model/turned^T -> model/{key}\n")
            done = subprocess.run([str(door.bin / "kintsugi"), "ckpt", "convert", f"{folder}/saves/step_0000000006", f"{folder}/there", "--to", "dcp",
                                   "--aoa", f"{folder}/there.aoa"], capture_output=True, text=True, timeout=60, check=False)
            shown = subprocess.run([str(door.bin / "kintsugi"), "ckpt", "show", f"{folder}/there", "--json"],
                                   capture_output=True, text=True, timeout=60, check=False)
            if done.returncode != 0 or shown.returncode != 0:
                raise Failure(done.stderr[-2000:] + shown.stderr[-2000:])
            found = {t["key"]: t["shape"] for t in json.loads(shown.stdout)["tensors"]}
            if f"optimizer/{key}.exp_avg" in found or any(found.get(name) != found["model/turned"] for name in
                                                          ("optimizer/turned.exp_avg", "optimizer/turned.exp_avg_sq")):
                raise Failure(f"{found}")
            rest, log = door.run(("--resume", f"{folder}/there", "--resume-aoa", f"{folder}/back.aoa", "--save-dir", ""), program, 1)
        for field, expected in (("losses", whole["losses"][6:]), ("final_digest", whole["final_digest"])):
            if rest[field] != expected:
                raise Failure(f"{field}: {rest[field]}, undisturbed {expected}\n{log[-3000:]}")
    return test


def alike(door):
    """Ranks that were of two groups and are of one now draw the same numbers for dropout: else what they hold alike would differ."""
    def test(_):
        program = [*GPT, "--parallel", "tp", "--global-batch", "24"]
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            door.run(("--save-dir", f"{folder}/saves", "--save-every", "6"), [*program, "--steps", "6"])
            rest, log = door.run(("--resume", f"{folder}/saves", "--save-dir", "", "--verify-every", "1"), [*program, "--tensor", "4"])
        if len(rest["losses"]) != 6 or rest["incidents"] or "event=resumed_reshaped step=6" not in log:
            raise Failure(f"{rest['losses']} {rest['incidents']}\n{log[-4000:]}")
    return test


def matrix(door):
    for how in ("fsdp", "hsdp", "tp"):
        yield f"{how}, saved and resumed", resumed(door, how)
    for how in ("ddp", "fsdp", "hsdp", "zero"):
        yield f"{how}, saved by 4 ranks, goes on with 2, 6 and 8", resized(door, how, 4, (2,), (6,), (8,))
    yield "ddp, saved by 2 ranks, goes on with 1", resized(door, "ddp", 2, (1,))
    yield ("tp, saved by 4 ranks in pairs, goes on with 2, 6 and 8, cut in four, and whole",
           resized(door, "tp", 4, (2,), (6,), (8,), (8, "--tensor", "4"), (2, "--tensor", "1")))
    yield "cut by rules, saved by 4 ranks in pairs, goes on with 2, 6 and 8", cut_by_rule(door, (2, 1), (6, 3), (8, 4), (2, 2))
    yield "tp, dropout, ranks of two groups become one", alike(door)


def short(door):
    yield ("tensor parallel: a rank is lost for good, a dying gasp is written, a second run goes on from it",
           resumed(door, "tp", ("--max-respawns", "0", "--no-adopt", "--inject", "kill:1@8:backward"), expect=75))
    yield ("DDP with each of its options adds up as torch alone: killed before its buckets are laid out, later, in an update, and resumed",
           where_newer(door, laid_out(door, "kill:1@1:backward", "throw:0@2:forward", "kill:3@3:backward", "kill:2@5:update", "kill:0@7:forward")))
    yield "FSDP2, saved by 2 ranks, goes on with 3", resized(door, "fsdp", 2, (3,))
    yield "a weight that is stored under another name takes its states along, there and back", renamed(door)
    yield "what a program cut by itself: repaired, made anew, and cut in four where it was in two", cut_by_rule(door, (4, 4))
    yield "tied weights are one tensor with two names", tied(door)


if __name__ == "__main__":
    door, options = opened()
    sys.exit(main(list((matrix if options.soak else short)(door)), door.bin, options.only))
