"""Saves in other formats beside the native one: whole, equal to it, found by their readers, and resumed from."""
import json
import shutil
import sys
from pathlib import Path

from harness import Failure, must_be_same, only_incident, reference, script

STEPS, SAVED = 12, 6
TRAINER = ["--steps", str(STEPS)]
# A busy machine must not look like a silent rank: an incident at step 6 would take the place of its save.
CALM = ["--silence", "10", "--hang-least", "30"]

def place(format_name, step):
    """Where the format's readers look for a step, which file says that it is the newest, and how."""
    return {
        "safetensors": (f"checkpoint-{step}", "latest", f"checkpoint-{step}\n"),
        "torch": (f"step-{step}.pt", "latest", f"step-{step}.pt\n"),
        "dcp": (f"step-{step}", "latest", f"step-{step}\n"),
        "megatron": (f"iter_{step:07d}", "latest_checkpointed_iteration.txt", f"{step}"),
    }[format_name]


FORMATS = ["safetensors", "torch", "dcp", "megatron"]


def must_do(runner, *args):
    done = runner.tool(list(map(str, args)))
    if done.returncode != 0:
        raise Failure(f"{args}: code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def must_hold(runner, format_name, step, log=""):
    """The tracker names the step, every byte is as written, and the tensors are those of the native checkpoint."""
    root = runner.folder / "checkpoints"
    name, tracker, text = place(format_name, step)
    if not (root / format_name / tracker).exists():
        raise Failure(f"{format_name}: no {tracker}\n{log[-3000:]}")
    found = (root / format_name / tracker).read_text()
    if found != text:
        raise Failure(f"{format_name}: the tracker says {found!r} instead of {text!r}")
    path = root / format_name / name
    must_do(runner, "ckpt", "verify", path)
    must_do(runner, "ckpt", "diff", root / f"step_{step:010d}", path)
    left = [str(entry) for entry in Path(root / format_name).iterdir() if ".unfinished-" in entry.name]
    if left:
        raise Failure(f"left behind: {left}")
    return path


def must_go_on(runner, resume, losses):
    expected = reference(runner.bin, TRAINER)
    second, log = runner.run([*CALM, "--resume", str(resume)], TRAINER)
    if losses + second["losses"] != expected["losses"]:
        raise Failure(f"{resume}: losses {second['losses']}, undisturbed {expected['losses']}\n{log[-3000:]}")
    if second["final_digest"] != expected["final_digest"]:
        raise Failure(f"{resume}: another final digest\n{log[-3000:]}")


def every_format(runner):
    summary, log = runner.run([*CALM, "--save-every", str(SAVED), "--save-format", ",".join(FORMATS)], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    for name in FORMATS:
        must_hold(runner, name, STEPS, log)
        # Of two that are kept the older one: from its own place.
        must_go_on(runner, runner.folder / "checkpoints" / name / place(name, SAVED)[0], summary["losses"][:SAVED])


def one_step_by_name(runner):
    """A native step's own folder is gone on from; what it lacks is said with the folder that holds the others."""
    summary, _ = runner.run([*CALM, "--save-every", str(SAVED)], TRAINER)
    root = runner.folder / "checkpoints"
    step = root / f"step_{SAVED:010d}"
    must_go_on(runner, f"{step}/", summary["losses"][:SAVED])
    for torn in ("part-00000.json", "manifest.json"):
        (step / torn).unlink()
        _, log = runner.run([*CALM, "--resume", str(step)], TRAINER, expect=2)
        if torn not in log or f"--resume {root} takes the newest whole one" not in log:
            raise Failure(f"{torn}: {log[-2000:]}")


def dying_gasp(runner):
    """Two survivors of four write what four held; the run goes on from what the tracker names."""
    faults = ["--max-respawns", "0", "--inject", "kill:2@6:update"]
    first, log = runner.run([*CALM, *faults, "--save-format", "dcp,safetensors"], TRAINER, expect=75)
    if only_incident(first)["path"] != "dump":
        raise Failure(f"rung {only_incident(first)['path']}")
    for name in ("dcp", "safetensors"):
        must_hold(runner, name, only_incident(first)["step"], log)
    must_go_on(runner, runner.folder / "checkpoints" / "dcp", first["losses"])


def files_beside(runner):
    """What a model is no use without goes with every checkpoint, from format to format, and a run resumes from there."""
    config = runner.folder / "config.json"
    config.write_text('{"layers": 2}\n')
    summary, log = runner.run([*CALM, "--save-every", str(SAVED), "--save-format", "safetensors,torch,dcp", "--save-with",
                               str(config)], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    root = runner.folder / "checkpoints"
    places = [root / f"step_{STEPS:010d}" / "side.config.json", root / "safetensors" / "checkpoint-12" / "config.json",
              root / "dcp" / "step-12" / "config.json"]
    must_do(runner, "ckpt", "convert", root / "dcp" / "step-12", runner.folder / "hf", "--to", "safetensors")
    must_do(runner, "ckpt", "convert", runner.folder / "hf", runner.folder / "native", "--to", "native")
    places += [runner.folder / "hf" / "config.json", next((runner.folder / "native").glob("step_*")) / "side.config.json"]
    for place_of_it in places:
        if place_of_it.read_bytes() != config.read_bytes():
            raise Failure(f"{place_of_it}: another configuration\n{log[-3000:]}")
        must_do(runner, "ckpt", "verify", place_of_it.parent)
    if "event=save_format_remark" not in log or "format=torch" not in log or "'config.json' is left out" not in log:
        raise Failure(f"nothing says that a .pt has no place for it\n{log[-3000:]}")
    must_do(runner, "ckpt", "convert", root, runner.folder / "bare", "--to", "dcp", "--no-side-files")
    if (runner.folder / "bare" / "config.json").exists():
        raise Failure("--no-side-files took one along")
    must_go_on(runner, root / "safetensors" / "checkpoint-6", summary["losses"][:SAVED])
    _, log = runner.run(["--save-with", "absent.json"], TRAINER, expect=2)
    if "absent.json" not in log:
        raise Failure(f"the file is not named\n{log[-1000:]}")


def other_names(runner):
    """A tensor gets another name; a parameter does, and its three states follow it: there and back."""
    for written, read, shown in [("optimizer.master.head.weight -> lm_head.weight", "lm_head.weight -> optimizer.master.head.weight", ["lm_head.weight"]),
                                 ("head.weight^T -> out.weight", "out.weight^T -> head.weight",
                                  [f"optimizer.{state}.out.weight" for state in ("master", "exp_avg", "exp_avg_sq")])]:
        shutil.rmtree(runner.folder / "checkpoints", ignore_errors=True)
        there_and_back(runner, written, read, shown)


def there_and_back(runner, written, read, names):
    program = runner.folder / "names.aoa"
    program.write_text(written + "\n")
    back = runner.folder / "back.aoa"
    back.write_text(read + "\n")
    save = ["--save-every", str(SAVED), "--save-format", "safetensors", "--save-aoa", str(program)]
    first, log = runner.run([*CALM, *save], TRAINER)
    path = runner.folder / "checkpoints" / "safetensors" / "checkpoint-6"
    shown = runner.tool(["ckpt", "show", str(path)])
    if any(name not in shown.stdout for name in names):
        raise Failure(f"not all of {names}\n{shown.stdout[-2000:]}{log[-2000:]}")
    second, log = runner.run([*CALM, "--resume", str(path), "--resume-aoa", str(back)], TRAINER)
    if second["losses"] != first["losses"][SAVED:]:
        raise Failure(f"losses {second['losses']}, before {first['losses'][SAVED:]}\n{log[-3000:]}")


def mistakes_are_told_at_the_start(runner):
    """Not by the first save: no rank is started."""
    program = runner.folder / "bad.aoa"
    program.write_text("head.weight -> 0.weight\n")
    runner.run([*CALM, "--save-every", str(SAVED)], TRAINER)
    root = runner.folder / "checkpoints"
    for options in (["--save-format", "dcp", "--save-aoa"], ["--resume", str(root), "--resume-aoa"]):
        summary, log = runner.run([*options, str(program)], TRAINER, expect=2)
        if "bad.aoa': statement 1, column 17" not in log or "event=spawned" in log:
            raise Failure(f"{options}: the program's mistake is not told, or ranks ran\n{log[-1000:]}")


def names_that_nobody_registered(runner):
    """A program that parses and reads what no rank has: refused before the first step, by statement and name."""
    program = runner.folder / "absent.aoa"
    program.write_text("head.weight -> out.weight\nabsent.weight -> other.weight\n")
    runner.run([*CALM, "--save-every", str(SAVED)], TRAINER)
    root = runner.folder / "checkpoints"
    for options in (["--save-format", "dcp", "--save-aoa"], ["--resume", str(root), "--resume-aoa"]):
        summary, log = runner.run([*CALM, *options, str(program)], TRAINER, expect=2)
        if options[-1] not in log or "statement 2" not in log or "absent.weight" not in log:
            raise Failure(f"{options}: option, statement or name are not told\n{log[-2000:]}")
        if summary["losses"]:
            raise Failure(f"{options}: {len(summary['losses'])} steps were trained\n{log[-2000:]}")


def model_alone(runner):
    """Parameters without an optimizer's states and without objects; a run does not take such a folder for one to resume from."""
    summary, log = runner.run([*CALM, "--save-every", str(SAVED), "--save-format", "safetensors,dcp", "--save-only", "model", "--max-shard-size", "1MB"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    root = runner.folder / "checkpoints"
    native = tensors_of(runner, root / f"step_{SAVED:010d}")
    for name in ("safetensors", "dcp"):
        path = root / name / place(name, SAVED)[0]
        must_do(runner, "ckpt", "verify", path)
        found = tensors_of(runner, path)
        # byte_lm keeps master weights alone: they are its parameters.
        if found != {key.removeprefix("optimizer.master.") for key in native if key.startswith("optimizer.master.")} or not found:
            raise Failure(f"{name}: {sorted(found)} of {sorted(native)}")
    for name in ("safetensors", "dcp"):
        _, log = runner.run([*CALM, "--resume", str(root / name)], TRAINER, expect=2)
        if "for readers" not in log or "no optimizer's state" not in log or "event=spawned" in log:
            raise Failure(f"what it is for is not said\n{log[-2000:]}")
    for words in (["--save-only", "model"], ["--max-shard-size", "1MB"], ["--save-format", "dcp", "--save-only", "weights"],
                  ["--save-format", "safetensors", "--max-shard-size", "large"]):
        _, log = runner.run(words, TRAINER, expect=2)
        if words[-2] not in log or "event=spawned" in log:
            raise Failure(f"{words}: {log[-1000:]}")


def tensors_of(runner, path):
    return {tensor["key"] for tensor in json.loads(runner.tool(["ckpt", "show", str(path), "--json"]).stdout)["tensors"]}


def failure_takes_nothing_back(runner):
    """A foreign checkpoint that cannot be written is told; the run and its native saves go on."""
    root = runner.folder / "checkpoints"
    root.mkdir()
    (root / "dcp").write_text("in the way")
    summary, log = runner.run([*CALM, "--save-every", str(SAVED), "--save-format", "dcp"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    if "event=save_format_failed" not in log or "in the way" != (root / "dcp").read_text():
        raise Failure(f"the failure is not told\n{log[-3000:]}")
    must_do(runner, "ckpt", "verify", root / f"step_{STEPS:010d}")
    _, log = runner.run(["--save-format", "zarr"], TRAINER, expect=2)
    if "zarr" not in log:
        raise Failure(f"the format is not named\n{log[-1000:]}")


def damaged_is_refused(runner):
    runner.run([*CALM, "--save-every", str(SAVED), "--save-format", "torch"], TRAINER)
    path = runner.folder / "checkpoints" / "torch" / "step-6.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    _, log = runner.run([*CALM, "--resume", str(path)], TRAINER, expect=2)
    if "step-6.pt" not in log or "checksum" not in log:
        raise Failure(f"the damage is not named\n{log[-2000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("every format is written, equal to the native one, and gone on from to the same bits", every_format),
        ("one step's own folder is gone on from, or said to lie in another", one_step_by_name),
        ("survivors dump in other formats, and the run goes on from there", dying_gasp),
        ("files beside the state go along, from format to format", files_beside),
        ("other names by a program, there and back", other_names),
        ("a program that is none ends the run before it begins", mistakes_are_told_at_the_start),
        ("a program that reads what no rank registered ends the run before its first step", names_that_nobody_registered),
        ("the model alone, and the largest file that is said", model_alone),
        ("a format that cannot be written takes nothing back", failure_takes_nothing_back),
        ("a damaged file of another format is refused before a rank starts", damaged_is_refused),
    ]))
