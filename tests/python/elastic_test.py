"""A torch script that offers smaller worlds loses ranks for good and goes on: with the losses, weights, buffers and draws of a run that was saved at
that step and resumed in that world.

  elastic_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--only WORD]...
"""
import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from door import HERE, Door, Failure, main, skip_without_torch

SAMPLES = 72  # of an epoch

ESSENTIAL = {
    "the lowest rank is lost, whose running statistics count", "another rank is lost as the groups are rebuilt", "within an epoch, to the bit",
    "no sample lost or taken twice: 4, 3, 2 ranks", "numpy without torch, a stream made of all ranks' streams: the lowest rank is lost",
    "a program that offers nothing", "ranks that offer different worlds", "types of the trainers", "FSDP2's shards", "a group of some ranks, later",
}  # fmt: skip


class Elastic:
    def __init__(self, door, program, tells=True):
        """`tells`: each rank says in the incident's record that batches keep their size."""
        self.door = door
        self.program = str(HERE / program)
        self.tells = tells
        self.references = {}

    def run(self, faults, words, nproc=4, expect=0, respawns=0):
        """Its summary, log, what was left by number, and the samples of each step."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            inject = [word for fault in faults for word in ("--inject", fault)]
            summary, log = self.door.run(["--max-respawns", str(respawns), *inject], [self.program, folder, *words], nproc, expect)
            return summary, log, *found_in(folder)

    def resumed(self, words, saved, smaller):
        """The reference: 4 ranks save at `saved`, `smaller` go on from there."""
        key = (*words, saved, smaller)
        if key not in self.references:
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                saves, rest = f"{folder}/saves", Path(folder, "rest")
                rest.mkdir()
                whole, _ = self.door.run(["--save-every", str(saved), "--keep", "100", "--save-dir", saves], [self.program, folder, *words])
                Path(saves, f"step_{saved:010}").rename(rest / f"step_{saved:010}")
                before = Path(folder, "steps").read_text().splitlines()[:saved] if Path(folder, "steps").exists() else []
                for old in (*Path(folder).glob("rank-*.json"), *Path(folder).glob("steps")):
                    old.unlink()
                summary, log = self.door.run(["--resume", str(rest), "--save-dir", ""], [self.program, folder, *words], smaller)
                left, steps = found_in(folder)
                if summary["incidents"] or not summary["losses"] or len(left) != smaller:
                    raise Failure(f"the reference: {summary}\n{log[-3000:]}")
                self.references[key] = whole["losses"][:saved] + summary["losses"], left, before + steps
        return self.references[key]

    def shrinks(self, *words, fault, saved, smaller=3, left=(1,), die="", respawns=0):
        """To the bit as saved and resumed."""
        def test(_):
            losses, expected, steps = self.resumed(words, saved, smaller)
            summary, log, found, made = self.run(fault, [*words, "--die", die] if die else words, respawns=respawns)
            path = [incident["path"] for incident in summary["incidents"]]
            if path != ["shrink"] or summary["incidents"][0]["step"] != saved:
                raise Failure(f"{summary['incidents']}\n{log[-6000:]}")
            if not re.search(rf"event=world_changed world={smaller} of=4 left=\"?{','.join(map(str, left))}\"? step={saved}\b", log):
                raise Failure(f"the world's size is not told\n{log[-4000:]}")
            told = f"from step {saved} on {smaller} ranks train in the place of 4: each with batches of the size that they had"
            if self.tells and not any(reason["reason"].startswith(told) for reason in summary["incidents"][0]["reasons"]):
                raise Failure(f"the record does not tell: {summary['incidents'][0]['reasons']}")
            if summary["losses"] != losses or found != expected or made != steps or summary.get("inexact"):
                differ = [f"{what}: {one}\n  resumed {other}" for what, one, other in
                          (("losses", summary["losses"], losses), ("left", found, expected), ("steps", made, steps)) if one != other]
                raise Failure("\n".join(differ) + f"\n{summary.get('inexact')}\n{log[-3000:]}")
        return test

    def each_once(self, *words, faults, worlds, respawns=0, paths=None):
        """Every epoch has each sample once, but for those that fill its end up."""
        def test(_):
            summary, log, found, steps = self.run(faults, ["--loop", "epochs", "--no-statistics", *words], respawns=respawns)
            lines = [[int(word) for word in line.split()] for line in steps]
            changes = [world for k, (_, _, world, *_) in enumerate(lines) if k == 0 or world != lines[k - 1][2]]
            if [k for k, *_ in lines] != [*range(1, len(lines) + 1)] or changes != worlds or len(found) != worlds[-1]:
                raise Failure(f"worlds {changes}, expected {worlds}\n" + "\n".join(steps) + f"\n{log[-6000:]}")
            if paths is not None and [incident["path"] for incident in summary["incidents"]] not in paths:
                raise Failure(f"{summary['incidents']}\n{log[-4000:]}")
            for epoch in range(2):
                samples = [sample for _, of, _, *taken in lines if of == epoch for sample in taken]
                filled_up = samples[SAMPLES:]
                if sorted(samples[:SAMPLES]) != [*range(SAMPLES)] or filled_up != samples[: len(filled_up)] or len(filled_up) >= worlds[0]:
                    raise Failure(f"epoch {epoch} has {sorted(samples)}\n" + "\n".join(steps) + f"\n{log[-3000:]}")
        return test

    def as_without(self, *words, options=()):
        """What happens today: the others save and leave."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                summary, log = self.door.run(["--max-respawns", "0", *options, "--inject", "kill:1@7:forward", "--save-dir", f"{folder}/saves"],
                                             [self.program, folder, *words], expect=75)
                if summary["incidents"][0]["path"] != "dump" or "world_changed" in log or not [*Path(folder, "saves").glob("step_*6")]:
                    raise Failure(f"{summary['incidents']}\n{log[-3000:]}")
        return test

    def refused(self, words, *arguments, expect=(1, 3)):
        """By name, before anything is lost."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                for code in expect:
                    try:
                        _, log = self.door.run((), [self.program, folder, *arguments], expect=code)
                    except Failure as failure:
                        if code == expect[-1] or not str(failure).startswith("exit code"):
                            raise
                    else:
                        break
            if words not in log:
                raise Failure(f"'{words}' is not told\n{log[-4000:]}")
        return test


def found_in(folder):
    left = {path.name: json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank-*.json"))}
    steps = Path(folder, "steps")
    lines = steps.read_text().splitlines() if steps.exists() else []
    return left, [line for line, before in zip(lines, ["", *lines]) if line != before]  # a section may be done again


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--soak", action="store_true", help="every case; without it those of ESSENTIAL, which reach each part once")
    options = parser.parse_args()
    door = Door(options.door, preload="kintsugi.torch")
    skip_without_torch(door)
    elastic, line = Elastic(door, "torch_elastic.py"), Elastic(door, "elastic_line.py", tells=False)
    epochs = ("--loop", "epochs")
    tests = [
        ("a function of steps: 4 ranks lose one in a forward pass", elastic.shrinks(fault=["kill:1@7:forward"], saved=6)),
        ("the lowest rank is lost, whose running statistics count", elastic.shrinks(fault=["kill:0@7:backward"], saved=6, left=(0,))),
        ("lost in an update, which the others end", elastic.shrinks(fault=["kill:2@6:update"], saved=6, left=(2,))),
        ("lost at a gate, before others come to it", elastic.shrinks(fault=["kill:3@7:gate"], saved=6, left=(3,))),
        ("lost behind an update, before the step's end", elastic.shrinks(fault=["kill:0@6:param-sync"], saved=6, left=(0,))),
        ("before the first step", elastic.shrinks(fault=["kill:1@2:forward"], saved=1)),
        ("blocks of steps, and only two ranks are offered beside four: another leaves", elastic.shrinks(
            "--loop", "steps", "--worlds", "1,2,4", fault=["kill:1@7:forward"], saved=6, smaller=2, left=(1, 3))),
        ("another rank is lost as the groups are rebuilt", elastic.shrinks(fault=["kill:0@7:forward"], saved=6, smaller=2, left=(0, 3), die="rebuild:3")),
        ("another rank is lost once it is one of fewer", elastic.shrinks(fault=["kill:0@7:forward"], saved=6, smaller=2, left=(0, 3), die="rollback:3")),
        ("the lowest that stays is lost once it is one of fewer", elastic.shrinks(fault=["kill:0@7:forward"], saved=6, smaller=2, left=(0, 1), die="rollback:1")),
        ("models that run.build makes", elastic.shrinks("--built", fault=["kill:1@7:forward"], saved=6)),
        ("within an epoch, to the bit", elastic.shrinks(*epochs, fault=["kill:1@4:backward"], saved=3)),
        ("as an epoch begins, to the bit", elastic.shrinks(*epochs, fault=["kill:0@10:forward"], saved=9, left=(0,))),
        ("two batches a step, from workers", elastic.shrinks(
            *epochs, "--samples", "96", "--accumulate", "2", "--workers", "2", fault=["kill:2@4:backward"], saved=3, left=(2,))),
        ("no sample lost or taken twice: 4, 3, 2 ranks", elastic.each_once(faults=["kill:1@3:backward", "kill:3@6:update"], worlds=[4, 3, 2], paths=[["shrink", "shrink"]])),
        ("the same where a rank is lost in a section between epochs", elastic.each_once("--die", "epoch.0:2", faults=[], worlds=[4, 3], paths=[["shrink"]])),
        ("in a section before a step, whose batch is in hand", elastic.each_once("--ask", "--die", "step.5:1", faults=[], worlds=[4, 3], paths=[["shrink"]])),
        ("a process that is replaced after the world has become smaller, and one at once behind it", elastic.each_once(
            faults=["kill:1@2:forward", "kill:1@3:forward", "kill:3@4:backward", "kill:2@8:update"], worlds=[4, 3], respawns=1)),
        ("numpy without torch, a stream made of all ranks' streams: the lowest rank is lost", line.shrinks(fault=["kill:0@7:forward"], saved=6, left=(0,))),
        ("a program that offers nothing", elastic.as_without("--worlds", "")),
        ("--shrink never", elastic.as_without(options=("--shrink", "never"))),
        ("ranks that offer different worlds", elastic.refused("rank 0 offers worlds of 1, 2, 3, 4 ranks, rank 2 worlds of 1, 2, 3 ranks (run.offer)", "--differ", expect=(2,))),
        ("worlds that there are not", elastic.refused("run.offer(worlds=[0, 5]): numbers of ranks from 1 on", "--worlds", "0,5")),
        ("types of the trainers", door.typed(elastic.program, line.program)),
        ("FSDP2's shards", elastic.refused("run.offer: 'model/weight' is held by ranks ", "--mistake", "shards")),
        ("a mesh", elastic.refused("run.offer: there is a DeviceMesh", "--mistake", "mesh")),
        ("a group of some ranks", elastic.refused("run.offer: there is a process group of ranks [0, 1] alone", "--mistake", "group")),
        ("a group of some ranks, later", elastic.refused("run.offer: there is a process group of ranks [0, 1] alone", "--mistake", "late-group")),
        ("DistributedDataParallel in a group of some", elastic.refused("run.offer: ", "--mistake", "wrapped")),
        ("an object that does not say how it goes on", elastic.refused("run.offer: object 'count' does not say how it goes on with fewer ranks", "--mistake", "object")),
        ("a sampler of one's own", elastic.refused("run.offer: a OwnSampler divides its data among 4 ranks in a way of its own", "--mistake", "own-sampler")),
        ("an optimizer that is shared out", elastic.refused("run.offer: a ReplicaOptimizer", "--mistake", "shared")),
        ("a loader in an order of each rank's own", elastic.refused("cannot go on with fewer ranks, which run.offer says", "--mistake", "loader")),
    ]
    chosen = [test for test in tests if options.soak or options.only or test[0] in ESSENTIAL]
    if missing := ESSENTIAL - {name for name, _ in tests}:
        sys.exit(f"no such cases: {missing}")
    sys.exit(main(chosen, door.bin, options.only))
