"""A torch script that offers smaller worlds loses ranks for good and goes on, also once ranks have come again: with the losses, weights, buffers and draws of a run that was saved at
that step and resumed in that world.

  elastic_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...
"""
import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from door import HERE, Door, Failure, main, skip_without_torch

import grows  # door has made its folder known
from harness import Runner
from live_run import LiveRun, wait_until
from network import Network
from nodes import NodesRun

SAMPLES = 72  # of an epoch

ESSENTIAL = {
    "the lowest rank is lost, whose running statistics count", "another rank is lost as the groups are rebuilt", "within an epoch, to the bit", "a number of ranks in a variable",
    "no sample lost or taken twice: 4, 3, 2 ranks", "numpy without torch, a stream made of all ranks' streams: the lowest rank is lost",
    "within an epoch: a lost rank's place is filled by word", "who comes is lost amid its state", "a program that offers nothing", "ranks that offer different worlds", "types of the trainers", "FSDP2's shards", "a group of some ranks, later",
}  # fmt: skip


class Stage(NamedTuple):
    folder: Path
    losses: list
    left: dict
    steps: list


class Elastic:
    def __init__(self, door, program, tells=True):
        """`tells`: each rank says in the incident's record that batches keep their size."""
        self.door = door
        self.program = str(HERE / program)
        self.words = door.script(self.program)
        self.tells = tells
        self.stages = {}
        self.kept = tempfile.TemporaryDirectory(prefix="kintsugi-test-")

    def run(self, faults, words, nproc=4, expect=0, respawns=0):
        """Its summary, log, what was left by number, and the samples of each step."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            inject = [word for fault in faults for word in ("--inject", fault)]
            summary, log = self.door.run(["--max-respawns", str(respawns), *inject], [*self.words, folder, *words], nproc, expect)
            return summary, log, *found_in(folder)

    def stage(self, words, worlds):
        """A run in the last of these worlds, from where the one before was saved."""
        if (words, worlds) not in self.stages:
            (ranks, begin), before = worlds[-1], worlds[:-1]
            folder = Path(tempfile.mkdtemp(dir=self.kept.name))
            options = ["--save-every", "1", "--keep", "1000", "--save-dir", f"{folder}/saves"]
            if before:
                name = f"step_{begin:010}"
                shutil.copytree(self.stage(words, before).folder / "saves" / name, folder / "rest" / name)
                options += ["--resume", f"{folder}/rest"]
            summary, log = self.door.run(options, [*self.words, str(folder), *words], ranks)
            left, steps = found_in(folder)
            if summary["incidents"] or not summary["losses"] or len(left) != ranks:
                raise Failure(f"the reference: {summary}\n{log[-3000:]}")
            self.stages[words, worlds] = Stage(folder, summary["losses"], left, steps)
        return self.stages[words, worlds]

    def resumed(self, words, worlds):
        """The reference: a run that was saved and resumed at each of these changes, (ranks, step). Its losses, what it left, and the samples of each step."""
        losses, made = [], []
        for i, (_, begin) in enumerate(worlds):
            stage = self.stage(words, worlds[: i + 1])
            end = worlds[i + 1][1] if i + 1 < len(worlds) else 1 << 30
            losses += stage.losses[: end - begin]
            made += [line for line in stage.steps if begin < int(line.split()[0]) <= end]
        return losses, stage.left, made

    def must_be_as_resumed(self, words, worlds, summary, log, found, made):
        losses, expected, steps = self.resumed(words, worlds)
        if summary["losses"] != losses or found != expected or made != steps or summary.get("inexact"):
            differ = [f"{what}: {one}\n  resumed {other}" for what, one, other in
                      (("losses", summary["losses"], losses), ("left", found, expected), ("steps", made, steps)) if one != other]
            raise Failure(f"{worlds}\n" + "\n".join(differ) + f"\n{summary.get('inexact')}\n{log[-3000:]}")
        for before, (ranks, step) in zip(worlds, worlds[1:]):
            told = f"from step {step} on {ranks} ranks train in the place of {before[0]}: each with batches of the size that they had"
            if self.tells and not any(reason["reason"].startswith(told) for incident in summary["incidents"] for reason in incident["reasons"]):
                raise Failure(f"the record does not tell: {[incident['reasons'] for incident in summary['incidents']]}")

    def shrinks(self, *words, fault, saved, ranks=4, smaller=3, left=(1,), die="", respawns=0):
        """To the bit as saved and resumed."""
        def test(_):
            summary, log, found, made = self.run(fault, [*words, "--die", die] if die else words, ranks, respawns=respawns)
            path = [incident["path"] for incident in summary["incidents"]]
            if path != ["shrink"] or summary["incidents"][0]["step"] != saved:
                raise Failure(f"{summary['incidents']}\n{log[-12000:]}")
            if not re.search(rf"event=world_changed world={smaller} of={ranks} left=\"?{','.join(map(str, left))}\"? step={saved}\b", log):
                raise Failure(f"the world's size is not told\n{log[-4000:]}")
            self.must_be_as_resumed(words, ((ranks, 0), (smaller, saved)), summary, log, found, made)
        return test

    def as_undisturbed(self, *words, fault):
        """What each rank leaves."""
        def test(_):
            expected = self.run((), words)[2]
            summary, log, found, _ = self.run([fault], words, respawns=1)
            if found != expected or not summary["incidents"]:
                raise Failure(f"{found}\nundisturbed {expected}\n{summary['incidents']}\n{log[-6000:]}")
        return test

    def lost_alone(self, *words):
        """Nobody else has what the lost rank held: its launcher has it saved with what the others have, and all leave."""
        def test(_):
            summary, log, *_ = self.run(["kill:1@7:forward"], words, expect=75)
            incident = summary["incidents"][0]
            said = [reason["reason"] for reason in incident["reasons"] if reason["rung"] == "shrink"]
            if incident["path"] != "dump" or said != ["those that would stay do not hold every shard at one step"] or "world_changed" in log:
                raise Failure(f"{summary['incidents']}\n{log[-6000:]}")
        return test

    def names_numbers(self, *words, fault, told):
        """What the script goes on to compute with is of the world before: this alone."""
        def test(_):
            summary, log, _, _ = self.run(fault, words, nproc=2)
            if (notes := [note["text"] for note in summary.get("inexact", [])]) != [told]:
                raise Failure(f"{notes}, expected {told}\n{log[-3000:]}")
        return test

    def scales(self, *words, orders, changes, faults=(), die="", respawns=0, paths=None):
        """`kintsugi scale`, once each of `orders`, (step, ranks), is reached; `changes`: (ranks, who left, who came). To the bit as saved and resumed."""
        def test(runner):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                run = Scaled(self, runner, Path(folder), faults, [*words, *(["--die", die] if die else [])], orders, respawns)
                with run.live:
                    for order in orders:
                        run.scale(*order)
                    summary, log = run.live.finish()
                seen = grows.changes(log)
                if [(world, left, came) for world, left, _, came in seen] != changes:
                    raise Failure(f"{seen}, not {changes}\n{log[-6000:]}")
                if paths is not None and [incident["path"] for incident in summary["incidents"]] != paths:
                    raise Failure(f"{summary['incidents']}\n{log[-6000:]}")
                worlds = ((4, 0), *((world, step) for world, _, step, _ in seen))
                left, made = found_in(folder)
                self.must_be_as_resumed(words, worlds, summary, log, left, made)
                if "epochs" in words:
                    must_take_each_once(made, int(words[words.index("--samples") + 1]) if "--samples" in words else SAMPLES, log)
        return test

    def host_comes_back(self, *words):
        """Of two hosts one is lost, and its launcher started again: nobody asks for its ranks."""
        def test(_):
            with Network(2) as net, tempfile.TemporaryDirectory(prefix="kintsugi-test-") as path:
                folder, run = Path(path), Hosts(self, net, path, [*words, "--hold", "4:2,7:4"])
                try:
                    run.wait_step(3)
                    os.kill(run.launcher(1), signal.SIGKILL)
                    (folder / "go-2-4").touch()
                    run.wait_world(2)
                    run.wait_step(6)
                    run.start(1)
                    wait_until(lambda: len([*folder.glob("came-*")]) >= 2, run.logs)
                    (folder / "go-4-7").touch()
                    run.wait_world(4)
                    summary = run.finish()
                    log = run.log(0)
                finally:
                    run.runner.close()
                seen = grows.changes(log)
                if [(world, left, came) for world, left, _, came in seen] != [(2, "2,3", "none"), (4, "none", "2,3")]:
                    raise Failure(f"{seen}\n{log[-6000:]}")
                # Of the steps before the loss some reports went with the launcher, not what the script wrote.
                lost = seen[0][2]
                losses, left, made = self.resumed(words, ((4, 0), *((world, step) for world, _, step, _ in seen)))
                if (summary["losses"][lost:], *found_in(folder)) != (losses[lost:], left, made) or summary.get("inexact"):
                    raise Failure(f"{seen}: {summary['losses']}, {found_in(folder)}\nresumed {losses}, {left}, {made}\n{log[-3000:]}")
        return test

    def all_are_lost(self):
        """Nobody has the state any more: what two ranks saved is loaded into the four that there are by then."""
        def test(runner):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as path:
                folder, words = Path(path), ("--steps", "60")
                options = ["--save-every", "10", "--keep", "100", "--no-adopt", "--save-dir", str(folder / "saves")]
                run = Scaled(self, runner, folder, (), [*words], [(4, 2), (12, 4), (20, 9)], 1, options)
                with run.live:
                    run.scale(4, 2)
                    run.scale(12, 4)
                    for rank in run.live.wait_step(19)["ranks"]:
                        os.kill(rank["pid"], signal.SIGKILL)
                    run.forget(20, 9)
                    summary, log = run.live.finish()
                seen = grows.changes(log)
                path = [incident["path"] for incident in summary["incidents"]]
                if path != ["shrink", "grow", "reload"] or len(seen) != 2 or not seen[0][2] < 10 < seen[1][2] < 20:
                    raise Failure(f"{seen}, {summary['incidents']}\n{log[-6000:]}")
                losses, left, _ = self.resumed(words, ((4, 0), (2, seen[0][2]), (4, 10)))
                if (summary["losses"], found_in(folder)[0]) != (losses, left) or summary.get("inexact"):
                    raise Failure(f"{seen}: {summary['losses']}, {found_in(folder)}\nresumed {losses}, {left}\n{log[-3000:]}")
        return test

    def keeps_away(self, *words, orders):
        """What cannot come is refused by name, `orders`: (step, ranks, what is said; none: it is met), and the run goes on."""
        def test(runner):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                run = Scaled(self, runner, Path(folder), (), words, [order[:2] for order in orders], 0)
                with run.live:
                    for step, ranks, why in orders:
                        if not why:
                            run.scale(step, ranks)
                            continue
                        run.live.wait_step(step - 1)
                        said = run.order(ranks)
                        if why not in said:
                            raise Failure(f"scale --ranks {ranks}: '{why}' is not told\n{said}")
                        run.forget(step, ranks)
                    summary, log = run.live.finish()
                if len(summary["losses"]) != 12 or len(summary["incidents"]) != sum(not why for *_, why in orders):
                    raise Failure(f"{summary}\n{log[-6000:]}")
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
            must_take_each_once(steps, SAMPLES, log)
        return test

    def as_without(self, *words, options=()):
        """What happens today: the others save and leave."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                summary, log = self.door.run(["--max-respawns", "0", *options, "--inject", "kill:1@7:forward", "--save-dir", f"{folder}/saves"],
                                             [*self.words, folder, *words], expect=75)
                if summary["incidents"][0]["path"] != "dump" or "world_changed" in log or not [*Path(folder, "saves").glob("step_*6")]:
                    raise Failure(f"{summary['incidents']}\n{log[-3000:]}")
        return test

    def refused(self, words, *arguments, expect=(1, 3), options=()):
        """By name, before anything is lost. `options`: of `kintsugi run`."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                for code in expect:
                    try:
                        _, log = self.door.run(options, [*self.words, folder, *arguments], expect=code)
                    except Failure as failure:
                        if code == expect[-1] or not str(failure).startswith("exit code"):
                            raise
                    else:
                        break
            if words not in log:
                raise Failure(f"'{words}' is not told\n{log[-4000:]}")
        return test


class Hosts(NodesRun):
    """Two with two ranks each, over Gloo, which is told the host's device."""

    def __init__(self, elastic, net, folder, words):
        os.environ.update(elastic.door.environment())
        runner = Runner(elastic.door.bin)
        runner.command = lambda options, program, nproc: elastic.door.command(["--log-level", "info", "--save-dir", "", *options], program, nproc)
        super().__init__(runner, net, 2, 2, ["--shrink-after", "1.5"], [*elastic.words, folder, *words])

    def line(self, node):
        return ["env", f"GLOO_SOCKET_IFNAME={self.net.device(node)}", *super().line(node)]

    def wait_world(self, ranks):
        return self.wait_status(lambda status: status["phase"] == "RUNNING" and len(status["ranks"]) == ranks, f"a world of {ranks}")


class Scaled:
    """A live run, held by its trainer where an order is due."""

    def __init__(self, elastic, runner, folder, faults, words, orders, respawns, saves=("--save-dir", "")):
        os.environ.update(elastic.door.environment())
        self.runner, self.folder = runner, folder
        inject = [word for fault in faults for word in ("--inject", fault)]
        hold = ",".join(f"{step}:{ranks}" for step, ranks, *_ in orders)
        options = ["--run-dir", str(folder / "run"), *saves, "--max-respawns", str(respawns), *inject]
        self.live = LiveRun(runner, command=elastic.door.command(options, [*elastic.words, str(folder), *words, "--hold", hold]))
        self.live.run_dir = folder / "run"

    def scale(self, step, ranks, in_vain=False):
        """`in_vain`: a process dies on its way, and the run goes on as it was."""
        before = len(self.live.wait_step(step - 1)["ranks"])
        change = f"event=world_changed world={ranks} "
        changed, ended = self.live.log().count(change), self.live.log().count("event=exited ") + max(before - ranks, 0)
        came, refused = len([*self.folder.glob("came-*")]), self.live.log().count("event=not_scaled")
        if why := self.order(ranks):
            raise Failure(f"scale --ranks {ranks}: {why}{self.live.log()[-5000:]}")

        def is_over():
            return self.live.log().count("event=not_scaled") > refused
        awaited = came + max(ranks - before, 0)
        wait_until(lambda: len([*self.folder.glob("came-*")]) >= awaited or is_over(), lambda: f"{ranks} ranks\n{self.live.log()[-5000:]}")
        (self.folder / f"go-{ranks}-{step}").touch()
        if in_vain:
            wait_until(is_over, lambda: f"an order in vain\n{self.live.log()[-12000:]}")
            self.forget(step, ranks)
            return
        # A place that is left may be filled once its process has ended.
        wait_until(lambda: self.live.log().count(change) > changed and self.live.log().count("event=exited ") >= ended, lambda: f"a world of {ranks}\n{self.live.log()[-12000:]}")

    def order(self, ranks):
        """Why it is refused. A place is free once the process that left it has ended."""
        def tried():
            done = self.runner.tool(["scale", "--run", str(self.live.run_dir), "--ranks", str(ranks), "--no-wait"])
            return None if "is not known to have ended" in done.stderr else done
        done = wait_until(tried, f"free places for {ranks} ranks")
        return done.stderr or f"code {done.returncode}" if done.returncode != 0 else ""

    def forget(self, step, ranks):
        """It does not come about."""
        for what in ("was", "go"):
            (self.folder / f"{what}-{ranks}-{step}").touch()


def must_take_each_once(steps, count, log):
    """In both epochs, but for what fills their ends up."""
    lines = [[int(word) for word in line.split()] for line in steps]
    for epoch in range(2):
        samples = [sample for _, of, _, *taken in lines if of == epoch for sample in taken]
        filled_up = samples[count:]
        if sorted(samples[:count]) != [*range(count)] or filled_up != samples[: len(filled_up)] or len(filled_up) >= 4:
            raise Failure(f"epoch {epoch} has {sorted(samples)}\n" + "\n".join(steps) + f"\n{log[-3000:]}")


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
    parser.add_argument("--fakes", default="", help="with all that the scripts make on the fake device, from this folder with libkintsugi_fake_*.so")
    options = parser.parse_args()
    door = Door(options.door, preload="kintsugi.torch", fakes=options.fakes)
    skip_without_torch(door)
    elastic, line = Elastic(door, "torch_elastic.py"), Elastic(door, "elastic_line.py", tells=False)
    epochs = ("--loop", "epochs")

    def comes_twice(when, paths, words=("--steps", "60")):
        return elastic.scales(*words, faults=["kill:1@3:backward"], orders=[(5, 4, True), (8, 4)], changes=[(3, "1", "none"), (4, "none", "1")],
                              die=f"{when}:1.2", paths=paths)  # fmt: skip
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
        ("within an epoch: a lost rank's place is filled by word", elastic.scales(
            *epochs, "--no-statistics", faults=["kill:1@3:backward"], orders=[(5, 4)], changes=[(3, "1", "none"), (4, "none", "1")], paths=["shrink", "grow"])),
        ("by word: 4, 2, 3, 4 and 2 ranks", elastic.scales(
            "--steps", "24", orders=[(4, 2), (8, 3), (12, 4), (16, 2)], changes=[(2, "2,3", "none"), (3, "none", "2"), (4, "none", "3"), (2, "2,3", "none")])),
        ("who comes is lost as it starts", comes_twice("start", ["shrink", "grow"])),
        ("who comes is lost before its state is moved", comes_twice("rebuild", None)),
        ("who comes is lost amid its state", comes_twice("amid", None)),
        ("who comes is lost behind its state", comes_twice("rollback", None)),
        ("within an epoch: the same", comes_twice("rollback", None, (*epochs, "--no-statistics"))),
        ("a rank that stays is lost as another comes", elastic.scales(
            "--steps", "60", orders=[(4, 3), (8, 4, True), (12, 4)], changes=[(3, "3", "none"), (4, "none", "3")], die="rollback:1.1", respawns=1)),
        ("by models that run.build makes, in blocks of steps", elastic.scales(
            "--built", "--loop", "steps", "--steps", "24", orders=[(4, 3), (8, 4)], changes=[(3, "3", "none"), (4, "none", "3")])),
        ("two batches a step, from workers, a section before each", elastic.scales(
            *epochs, "--no-statistics", "--ask", "--samples", "144", "--accumulate", "2", "--workers", "2", orders=[(3, 2), (6, 4), (10, 3)],
            changes=[(2, "2,3", "none"), (4, "none", "2,3"), (3, "3", "none")])),
        ("who leaves is another than who came: a lost one's place is filled, then the highest leaves", elastic.scales(
            "--steps", "24", faults=["kill:0@3:backward"], orders=[(5, 4), (9, 2)], changes=[(3, "0", "none"), (4, "none", "0"), (2, "2,3", "none")])),
        ("a host is lost, and comes back by itself", elastic.host_comes_back("--steps", "60")),
        ("all are lost: what fewer saved is loaded into the larger world", elastic.all_are_lost()),
        ("an object that who comes would not have, a world that is not offered", elastic.keeps_away("--worlds", "2,4", "--own", orders=[
            (3, 3, "no world of 3 ranks is offered: offered are 2, 4"), (5, 2, ""), (7, 4, "object 'count' is each rank's own, as its take_over says")])),
        ("a script that offers nothing", elastic.keeps_away("--worlds", "", orders=[(3, 3, "the program offers no other worlds (Agent::OfferWorlds, run.offer)")])),
        ("numpy without torch, by word", line.scales("--steps", "24", orders=[(4, 2), (8, 3), (12, 4)], changes=[(2, "2,3", "none"), (3, "none", "2"), (4, "none", "3")])),
        ("numpy without torch, a stream made of all ranks' streams: the lowest rank is lost", line.shrinks(fault=["kill:0@7:forward"], saved=6, left=(0,))),
        ("a program that offers nothing", elastic.as_without("--worlds", "")),
        ("--shrink never", elastic.as_without(options=("--shrink", "never"))),
        ("ranks that offer different worlds", elastic.refused("rank 0 offers worlds of 1, 2, 3, 4 ranks, rank 2 worlds of 1, 2, 3 ranks (run.offer)", "--differ", expect=(2,))),
        ("worlds that there are not", elastic.refused("run.offer(worlds=[0, 5]): numbers of ranks from 1 on", "--worlds", "0,5")),
        ("types of the trainers", door.typed(elastic.program, line.program)),
        ("a number of ranks in a variable", elastic.names_numbers("--loop", "stale", "--no-statistics", fault=["kill:1@4:backward"], told=(
            "'self.among' (torch_elastic.py:{}; torch_elastic.py:{} computes with it): set among 2 ranks, and from step 3 on 1 take part. Ask run.rank and run.world_size "
            "there").format(*(number for mark in ("self.among, ", "* self.among") for number, line in enumerate(Path(elastic.program).read_text().splitlines(), 1) if mark in line)))),
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
