"""A megatron-core trainer over Gloo survives: same bits, losses and samples as the undisturbed run.

  megatron_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...     --soak: each way to be parallel, each kind of fault, each phase
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from compared import Compared
from door import HERE, ROOT, Failure, main, opened

GPT = [str(ROOT / "integrations/examples/megatron_gpt/train.py"), "--steps", "12"]
WAYS = {
    "TP 2 x DP 2": ("--tensor", "2"),
    "PP 2 x DP 2": ("--pipeline", "2"),
    "PP 2 x DP 2, interleaved, overlapped": ("--pipeline", "2", "--virtual", "2", "--overlap"),
    "TP 2 x DP 2, bf16, overlapped": ("--tensor", "2", "--bf16", "--overlap"),
    "DP 4, DistributedOptimizer": ("--distributed",),
    "DP 4, DistributedOptimizer of 2 instances": ("--distributed", "--instances", "2"),  # where einops is there
    "DP 4, DistributedOptimizer, bf16, overlapped": ("--distributed", "--bf16", "--overlap"),
}


# What one rounding makes of another; between two steps lie 0.002 and more, and a wrong weight moves a loss by 0.1.
ROUNDING = 2e-4


def resized(door, how, goes_on, loads, arguments=("--save-every", "3"), expect=0, nproc=4,
            form="megatron"):
    """A checkpoint in Megatron's own form: megatron-core loads it at another TP x PP x DP, bit for bit what the run held, and a run goes on
    from it there with the losses of the undisturbed one, to the rounding of sums that are added up in another order.

    `goes_on`: (ranks, arguments). `loads`: see by_megatron. With `arguments` a rank is lost for good, and it is the dying gasp that is read."""
    def test(_):
        def program(way):
            return [*GPT[:1], "--steps", "6", "--batch", "24", "--dropout", "0", *way]

        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            saves = Path(folder, "saves")
            if goes_on:
                whole, _ = door.run(("--save-dir", ""), program(how), nproc)
            door.run(("--save-dir", str(saves), "--save-format", form, *arguments), program(how), nproc, expect=expect)
            done = min(int(one.name.removeprefix("step_")) for one in saves.glob("step_*"))
            step, iteration = saves / f"step_{done:010d}", saves / "megatron" / f"iter_{done:07d}"
            convert(door, step, f"{folder}/whole.pt", "torch")
            by_megatron(door, Path(folder), iteration, f"{folder}/whole.pt", done, loads, (train_options(how).tensor, train_options(how).pipeline))
            for ranks, way in goes_on:
                rest, log = door.run(("--resume", str(iteration), "--save-dir", ""), program(way), ranks)
                apart = [abs(a - b) for a, b in zip(whole["losses"][done:], rest["losses"])]
                if len(rest["losses"]) != 6 - done or max(apart) > ROUNDING or rest["incidents"] or "event=resumed_reshaped" not in log:
                    raise Failure(f"{ranks} ranks, {way}: {rest['losses']}, undisturbed {whole['losses'][done:]}\n{log[-4000:]}")
    return test


def convert(door, source, destination, form, *options):
    converted = subprocess.run([str(door.bin / "kintsugi"), "ckpt", "convert", source, destination, "--to", form, *options],
                               capture_output=True, text=True, timeout=60, check=False)
    if converted.returncode != 0:
        raise Failure(f"{options}: {converted.stderr[-2000:]}")
    return destination


def older(door, source, destination, way):
    """Megatron's older files, for such a trainer."""
    options = train_options(way)
    convert(door, source, destination, "megatron-legacy", "--shards", str(options.tensor), "--pipeline", str(options.pipeline),
            *(["--distributed-optimizer"] if options.distributed else []))
    return next(Path(destination).glob("iter_*"))


def train_options(way):
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--pipeline", type=int, default=1)
    parser.add_argument("--distributed", action="store_true")
    return parser.parse_known_args(way)[0]


def by_megatron(door, folder, iteration, whole, done, loads, saved_by):
    """megatron-core loads the checkpoint, and what is made of it. `loads`: (ranks, arguments), of torch_dist; with "legacy" before them, of
    the older files; with "live" between, of those that the run itself saved; with "again", of those made of what megatron-core itself then saves. `saved_by`: its TP and PP."""
    first, second = [], []
    for number, (*form, ranks, way) in enumerate(loads):
        options = train_options(way)
        check = {"form": "torch_dist", "folder": str(iteration), "ranks": ranks, "way": way,
                 "rng": form != ["legacy", "again"] and (options.tensor, options.pipeline) == saved_by}
        if form == ["legacy", "again"]:
            second.append({**check, "form": "legacy", "made_of": str(folder / "again"), "folder": str(folder / f"older-{number}")})
        elif form == ["legacy", "live"]:
            first.append({**check, "form": "legacy", "folder": str(iteration.parent.parent / "megatron-legacy" / iteration.name)})
        elif form == ["legacy"]:
            first.append({**check, "form": "legacy", "folder": str(older(door, iteration, folder / f"older-{number}", way))})
        else:
            first.append(check)
    if second:
        first[0]["saves"] = str(folder / "again" / f"iter_{done:07d}")
    _load(door, folder, whole, done, first)
    for check in second:
        check["folder"] = str(older(door, Path(check.pop("made_of"), f"iter_{done:07d}"), check["folder"], check["way"]))
    if second:
        _load(door, folder, whole, done, second)


def _load(door, folder, whole, done, checks):
    (folder / "checks.json").write_text(json.dumps(checks))
    loaded = subprocess.run([door.python, "-W", "ignore", str(HERE / "megatron_load.py"), whole, str(done), str(folder / "checks.json")],
                            capture_output=True, text=True, timeout=300, env=door.environment(), check=False)
    if loaded.returncode != 0 or loaded.stdout.count("the very bits") != sum(check["ranks"] for check in checks):
        raise Failure(f"{loaded.stdout[-2000:]}{loaded.stderr[-4000:]}")


def skip_without_megatron(door):
    probe = subprocess.run([door.python, "-c", "from kintsugi.megatron import core; core.check_version()"],
                           capture_output=True, text=True, env=door.environment(), check=False)
    if probe.returncode != 0:
        print(f"SKIPPED: {probe.stderr.strip().splitlines()[-1]}; ./tools/setup --python installs it")
        sys.exit(77)


def has_einops(door):
    """Megatron groups several instances of its DistributedOptimizer with it."""
    return subprocess.run([door.python, "-c", "import einops"], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    door, options = opened()
    skip_without_megatron(door)

    def struck(name, *faults, how, paths, options=(), nproc=4):
        arguments = [*options, *(word for fault in faults for word in ("--inject", fault))]
        return name, door.same([*GPT, *how], arguments, nproc=nproc, paths=paths)

    def left_out(name, *words, how=(), veto="nan", faults=(), nproc=2, paths=None, options=(), replaced=None):
        """Bit for bit what Megatron has without these batches."""
        return name, Compared(door, "megatron_refused.py", *how, *words, nproc=nproc).same(*faults, options=("--veto", veto, *options), paths=paths, replaced=replaced)

    def every_left_out():
        yield left_out("TP 2 x DP 2, a norm that is too large, and a rank is lost in the step that is left out", "--bad", "4:0:large", how=WAYS["TP 2 x DP 2"],
                       veto="norm:100", faults=("kill:3@4:backward",), nproc=4)
        yield left_out("PP 2 x DP 2, interleaved, overlapped: the last stage's loss is no number", "--bad", "3:2", "--bad", "4:3",
                       how=WAYS["PP 2 x DP 2, interleaved, overlapped"], nproc=4, paths=(("retry",) * 4,))
        yield left_out("DP 4, DistributedOptimizer: the first step and the last", "--bad", "1:3", "--bad", "8:0", how=WAYS["DP 4, DistributedOptimizer"], nproc=4,
                       paths=(("retry",) * 4,))
        yield left_out("DP 2, a machine that computes wrongly once", veto="norm:100", faults=("flip-grad:1@3",), replaced=(1,))

    def sizes():
        tensor, bf16, sharded = ("--tensor", "2"), ("--bf16",), ("--distributed",)
        yield ("TP 2 x DP 2, saved as Megatron's: at TP 1, at PP 2, at TP 2 x PP 2 of 8 ranks",
               resized(door, tensor, [(2, ()), (4, ("--pipeline", "2")), (8, (*tensor, "--pipeline", "2"))], [(1, ()), (4, ("--pipeline", "2")), ("legacy", 1, ()), ("legacy", "live", 2, tensor), ("legacy", 4, (*tensor, *sharded)),
                        ("legacy", "again", 4, (*tensor, "--pipeline", "2"))], form="megatron,megatron-legacy"))
        yield ("PP 2 x DP 2, interleaved, saved as Megatron's: at TP 2 of one stage, and at PP 2 that is not",
               resized(door, ("--pipeline", "2", "--virtual", "2"), [(2, tensor), (4, ("--pipeline", "2"))],
                       [(2, tensor), ("legacy", 2, ("--pipeline", "2"))]))
        yield ("DP 4, DistributedOptimizer, bf16, saved as Megatron's: at TP 2 x PP 2, at DP 3, and without it",
               resized(door, (*sharded, *bf16), [(4, (*sharded, *bf16, *tensor, "--pipeline", "2")), (3, (*sharded, *bf16)), (2, bf16)],
                       [(4, (*sharded, *bf16, "--pipeline", "2")), (2, (*bf16, *tensor)), ("legacy", 2, (*bf16, *tensor)),
                        ("legacy", "live", 2, (*sharded, *bf16)), ("legacy", 4, (*sharded, *bf16, *tensor, "--pipeline", "2"))],
                       form="megatron,megatron-legacy"))
        yield ("TP 2 x DP 2, saved as Megatron's: with a DistributedOptimizer",
               resized(door, tensor, [(4, sharded)], [(2, sharded)]))
        yield ("TP 2 x DP 2, a rank is lost for good: the dying gasp is Megatron's too",
               resized(door, tensor, [(2, ())], [(1, ())], ("--max-respawns", "0", "--no-adopt", "--inject", "kill:1@4:backward"), expect=75))

    # A DistributedOptimizer's shards have one copy: memory that was damaged or torn goes back to a snapshot.
    def matrix():
        for how, options in WAYS.items():
            if "--instances" in options and not has_einops(door):
                continue
            single = "--distributed" in options and "--instances" not in options
            with_snapshots = ("--silence", "6", *(("--snapshot-every", "3") if single else ()))
            k = 5 if single else 2  # not before the first snapshot
            # Each rank of a single way keeps a second copy of its neighbour's snapshot. A rank that was replaced has that copy alone until the
            # next snapshot counts, some steps later: the neighbour is not lost before.
            raises, freezes = (0, 1) if single else (2, 0)
            for phase in ("forward", "backward", "gradient-sync", "gate", "update", "param-sync", "between"):
                yield struck(f"{how}, struck by everything in phase {phase}", f"kill:1@{k}:{phase}", f"throw:{raises}@{k + 2}:{phase}",
                             f"exit:3@{k + 4}:{phase}", f"freeze:{freezes}@{k + 6}:{phase}", *(() if single else (f"uce:2@10:{phase},tensors=decoder*",)),
                             how=options, options=with_snapshots, paths=None)
            for first in range(1, 24, 6):
                yield struck(f"{how}, exceptions in collectives {first} to {first + 5} of a step",
                             *(f"throw:{i % 4}@{2 + i},collective={first + i}" for i in range(6)), how=options, paths=None)
            yield struck(f"{how}, damaged tensors", "uce:3@9:backward,tensors=decoder*", "uce:1@11:forward,tensors=optimizer.state.exp*",
                         how=options, options=("--snapshot-every", "5") if single else (), paths=None)

    # Each run imports torch and Megatron in every rank, some 4 s of CPU each: faults share runs.
    short = [
        struck("TP 2 x DP 2: killed in a backward pass, exceptions outside of an update and inside", "kill:2@3:backward",
               "throw:1@6:forward", "throw:3@9:update", how=WAYS["TP 2 x DP 2"],
               paths=[["respawn", "retry", "rebuild"], ["adopt", "retry", "rebuild"]]),
        struck("DistributedOptimizer over 2 ranks, bf16, overlapped: an exception in a backward pass, killed in an update",
               "throw:1@3:backward", "kill:0@7:update", how=WAYS["DP 4, DistributedOptimizer, bf16, overlapped"], nproc=2,
               options=("--snapshot-every", "2"), paths=[["retry", "reload"]]),
        ("bf16, TP 2: what Megatron's own loaders make of its saves, and of the older files made of them",
         resized(door, ("--tensor", "2", "--bf16"), [],
                 [(1, ("--bf16",)), (2, ("--bf16", "--tensor", "2")), ("legacy", "live", 2, ("--bf16", "--tensor", "2")),
                  ("legacy", 2, ("--bf16", "--distributed")),
                  ("legacy", "again", 4, ("--bf16", "--tensor", "2", "--pipeline", "2"))], nproc=2, form="megatron,megatron-legacy")),
        left_out("TP 2: what gradients alone show, a batch that grows, a rank is killed behind a step that is left out", "--bad", "3:1", "--bad", "5:0", "--untold", "--grows",
                 how=("--tensor", "2"), faults=("kill:0@6:forward",)),
        left_out("DistributedOptimizer over 2 ranks, bf16, overlapped: a norm that is too large", "--bad", "4:1:large",
                 how=WAYS["DP 4, DistributedOptimizer, bf16, overlapped"], veto="norm:100", paths=(("retry", "retry"),)),
        ("what is read from Megatron, put back and refused", door.alone("megatron_parts.py")),
    ]
    cases = [*sizes(), *matrix(), *every_left_out(), ("types of the trainer are as they say", door.typed(GPT[0]))] if options.soak else short
    sys.exit(main(cases, door.bin, options.only))
