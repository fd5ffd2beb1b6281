"""What elastic_test.py asks of models that all ranks hold alike, of models that the ranks of each replica share out: whole replicas leave and come. Where one
replica takes all ranks (FSDP2, ZeRO-1), its pieces move.

  elastic_cut_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...
"""
import argparse
import sys
import tempfile
from pathlib import Path

from compared import left_in
from door import HERE, Door, Failure, main, skip_without_torch
from elastic_test import Elastic

ESSENTIAL = {
    "tensor parallelism, within an epoch: a replica's place is filled by word",
    "FSDP2 over all ranks: 3, once one that stays is lost amid its new state; one is replaced there; and 4 again", "slices", "a mesh beside run.build", "types of the trainers",
    "FSDP2 beside plain torch: a rank is lost for good, and its shard comes from its snapshot's copy", "FSDP2: who kept the lost rank's snapshot is lost, too",
    "ZeRO-1: a rank is lost, and another amid the new state", "ZeRO-1: of the last step parts are gathered before the script goes on",
    "ZeRO-1 beside plain torch: ZeroRedundancyOptimizer with parameters in buckets, 3 ranks, and 4 again",
}  # fmt: skip


class BesidePlain(Elastic):
    """The reference is plain torch, which saves in the one world and loads in the other by means of its own."""

    def must_be_as_resumed(self, words, worlds, summary, log, found, made):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            for at, (ranks, begin) in enumerate(worlds):
                there = Path(folder, str(at))
                there.mkdir()
                until = worlds[at + 1][1] if at + 1 < len(worlds) else len(summary["losses"])
                loaded = ["--load", f"{folder}/saved-{at - 1}"] if at else []
                self.door.plain([*self.words, str(there), *words, "--steps", str(until), *loaded, "--save", f"{folder}/saved-{at}"], ranks, PLAIN="1")
            expected = left_in(there, ranks)
        if found != expected or summary.get("inexact"):
            raise Failure(f"{worlds}: {found}\nplain torch {expected}\n{summary.get('inexact')}\n{log[-3000:]}")


class BackToSnapshot(BesidePlain):
    """Ranks are lost for good whose pieces no other rank holds: all go back to the newest snapshot, which was made in a step that took its time."""

    SNAPSHOTS = ("--snapshot-every", "2", *(word for step in (3, 5, 7) for word in ("--inject", f"slow:0@{step}:forward,ms=300")))

    def shrinks_back(self, *words, faults=("kill:1@8:forward",), smaller=3, die=""):
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                inject = [word for fault in faults for word in ("--inject", fault)]
                summary, log = self.door.run(["--max-respawns", "0", *self.SNAPSHOTS, *inject], [*self.words, folder, *words, *(["--die", die] if die else [])])
                found = left_in(folder, smaller)
            incident = summary["incidents"][0]
            step = incident["step"]
            if incident["path"] != "shrink" or step not in (2, 4, 6) or f"the in-memory snapshot of step {step}" not in str(incident["reasons"]) or len(summary["incidents"]) != 1:
                raise Failure(f"{summary['incidents']}\n{log[-12000:]}")
            self.must_be_as_resumed(words, ((4, 0), (smaller, step)), summary, log, found, [])
        return test

    def loses_both(self, *words, faults, options, told):
        """Who kept the lost rank's copy is lost, too, or there is none: the others leave, and the record names the piece."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                inject = [word for fault in faults for word in ("--inject", fault)]
                summary, log = self.door.run(["--max-respawns", "0", *options, *inject], [*self.words, folder, *words], expect=75)
            said = [reason["reason"] for incident in summary["incidents"] for reason in incident["reasons"] if reason["rung"] == "shrink"]
            if not said or not all(any(one in reason for reason in said) for one in told) or "world_changed" in log:
                raise Failure(f"{said}\n{log[-6000:]}")
        return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--soak", action="store_true", help="every case; without it those of ESSENTIAL")
    parser.add_argument("--fakes", default="", help="with all that the scripts make on the fake device, from this folder with libkintsugi_fake_*.so")
    options = parser.parse_args()
    door = Door(options.door, preload="kintsugi.torch", fakes=options.fakes)
    skip_without_torch(door)
    elastic, plain, back = Elastic(door, "torch_elastic_cut.py"), BesidePlain(door, "torch_zero.py"), BackToSnapshot(door, "torch_fsdp.py")
    hsdp, tp, stages = (("--kind", kind) for kind in ("hsdp", "tp", "stages"))
    fsdp = ("--kind", "fsdp", "--worlds", "2,3,4")
    zero = ("--kind", "zero", "--worlds", "2,3,4,5")
    there_and_back = [(3, "3", "none"), (4, "none", "3")]
    replica = {"smaller": 2, "left": (0, 1)}
    epochs = ("--loop", "epochs")

    def refilled(*words, die="", orders=((5, 4),), paths=None, steps="60"):
        words = words if "epochs" in words else (*words, "--steps", steps)
        return elastic.scales(*words, faults=["kill:1@3:backward"], orders=[*orders], changes=[(2, "0,1", "none"), (4, "none", "0,1")], die=die, paths=paths)

    def comes_twice(*words, when, paths=None):
        return refilled(*words, die=f"{when}:1.2", orders=((5, 4, True), (8, 4)), paths=paths)

    def moved(*words, orders, die="", faults=()):
        """An order in vain leaves all as it was."""
        return elastic.scales(*fsdp, *words, "--steps", "24", orders=orders, changes=there_and_back, die=die, faults=faults, respawns=1)

    def dealt(*words, orders, changes=there_and_back, die=""):
        return elastic.scales(*zero, *words, "--steps", "24", orders=orders, changes=changes, die=die, respawns=1)

    def mistaken(what, *words, mistake="", expect=(3, 1), options=()):
        return elastic.refused(what, *words, *(("--mistake", mistake) if mistake else ()), expect=expect, options=options)

    def found_at_the_change(what, *words, mistake):
        return mistaken(what, *words, mistake=mistake, expect=(1,), options=("--max-respawns", "0", "--inject", "kill:1@3:backward", "--save-dir", ""))
    tests = [
        ("HSDP: a rank is lost, and its replica leaves", elastic.shrinks(*hsdp, fault=["kill:1@7:forward"], saved=6, **replica)),
        ("tensor parallelism: the same", elastic.shrinks(*tp, fault=["kill:1@7:forward"], saved=6, **replica)),
        ("stages in groups of the script's own: the same", elastic.shrinks(*stages, fault=["kill:1@7:forward"], saved=6, **replica)),
        ("FSDP2 over tensor parallelism, both replicated: the same", elastic.shrinks(
            "--kind", "both", "--worlds", "4,8", fault=["kill:1@7:forward"], saved=6, ranks=8, smaller=4, left=(0, 1, 2, 3))),
        ("HSDP: the higher replica leaves, lost in an update, which the others end", elastic.shrinks(*hsdp, fault=["kill:2@6:update"], saved=6, smaller=2, left=(2, 3))),
        ("tensor parallelism: lost behind an update, before the step's end", elastic.shrinks(*tp, fault=["kill:0@6:param-sync"], saved=6, **replica)),
        ("HSDP, within an epoch", elastic.shrinks(*hsdp, *epochs, fault=["kill:1@4:backward"], saved=3, **replica)),
        ("tensor parallelism, within an epoch", elastic.shrinks(*tp, *epochs, fault=["kill:1@4:backward"], saved=3, **replica)),
        ("of three replicas the middle one leaves", elastic.shrinks(*hsdp, "--worlds", "2,4,6", fault=["kill:2@7:forward"], saved=6, ranks=6, smaller=4, left=(2, 3))),
        ("tensor parallelism: what is made anew fails once, half way", elastic.shrinks(*tp, "--mistake", "fails-once", fault=["kill:1@7:forward"], saved=6, **replica)),
        ("a replica of which a process was replaced after the others had left, then others come", elastic.scales(
            *hsdp, "--steps", "60", faults=["kill:1@2:backward", "kill:1@3:backward", "kill:2@5:backward"], orders=[(8, 4)],
            changes=[(2, "0,1", "none"), (4, "none", "0,1")], respawns=1)),
        ("HSDP: filled by word", refilled(*hsdp, paths=["shrink", "grow"])),
        ("HSDP, within an epoch: filled by word", refilled(*hsdp, *epochs, paths=["shrink", "grow"])),
        ("stages: filled by word", refilled(*stages, paths=["shrink", "grow"])),
        ("tensor parallelism, within an epoch: a replica's place is filled by word", refilled(*tp, *epochs, paths=["shrink", "grow"])),
        ("tensor parallelism, within an epoch: the same, once one that came is lost amid its state", comes_twice(*tp, *epochs, when="amid")),
        ("HSDP: who comes is lost as it starts", comes_twice(*hsdp, when="start", paths=["shrink", "grow"])),
        ("HSDP: who comes is lost before its state is moved", comes_twice(*hsdp, when="rebuild")),
        ("HSDP: who comes is lost amid its state", comes_twice(*hsdp, when="amid")),
        ("tensor parallelism: who comes is lost behind its state", comes_twice(*tp, when="rollback")),
        ("tensor parallelism, by word: 4, 2, 4 and 2 ranks", elastic.scales(
            *tp, "--steps", "24", orders=[(4, 2), (8, 4), (12, 2)], changes=[(2, "2,3", "none"), (4, "none", "2,3"), (2, "2,3", "none")])),
        ("a half replica is not offered", elastic.keeps_away(*hsdp, orders=[(3, 3, "no world of 3 ranks is offered: offered are 2, 4")])),
        ("FSDP2 over all ranks: 3, once one that stays is lost amid its new state; one is replaced there; and 4 again", moved(
            die="amid:1.1", orders=[(4, 3, True), (8, 3), (14, 4)], faults=["kill:2@11:forward"])),
        ("FSDP2 over all ranks, from before the first update on: 3, 4 and 2", elastic.scales(
            *fsdp, "--steps", "24", orders=[(1, 3), (8, 4), (12, 2)], changes=[*there_and_back, (2, "2,3", "none")])),
        ("FSDP2 over all ranks, within an epoch", elastic.scales(*fsdp, *epochs, orders=[(4, 3), (8, 4)], changes=there_and_back)),
        *((f"FSDP2 over all ranks: one that stays is lost in {phase}", moved(die=f"{phase}:{rank}", orders=[(4, 3, True), (8, 3), (12, 4)]))
          for phase, rank in (("rebuild", 0), ("rollback", 2))),
        *((f"FSDP2 over all ranks: who comes is lost, {when}", moved(die=f"{when}:3.2", orders=[(4, 3), (8, 4, True), (12, 4)]))
          for when in ("start", "rebuild", "amid", "rollback")),
        ("FSDP2 over all ranks: what is made anew fails on one", moved("--mistake", "fails-once", orders=[(4, 3, True), (8, 3), (12, 4)])),
        ("FSDP2 beside plain torch: a rank is lost for good, and its shard comes from its snapshot's copy", back.shrinks_back()),
        ("FSDP2 beside plain torch: the same in an update", back.shrinks_back(faults=["kill:2@8:update"])),
        *((f"FSDP2 beside plain torch: the same, and one that stays is lost {when}", back.shrinks_back(die=f"{phase}:{rank}", smaller=2))
          for when, phase, rank in (("as the groups are rebuilt", "rebuild", 3), ("amid its new state", "amid", "3.1"), ("behind it", "rollback", 3))),
        ("FSDP2: who kept the lost rank's snapshot is lost, too", back.loses_both(
            faults=["kill:1@8:forward", "kill:2@8:forward"], options=back.SNAPSHOTS, told=["no rank that lives holds model/", "of rank 1 is left: who kept it is lost too"])),
        ("FSDP2: a rank is lost for good, and no snapshots are made", back.loses_both(
            faults=["kill:1@8:forward"], options=(), told=["no rank that lives holds model/", "of rank 1", "--snapshot-every N keeps a copy of it"])),
        ("ZeRO-1: a rank is lost in a forward pass, and its part is held by another", elastic.shrinks(*zero, fault=["kill:1@7:forward"], saved=6)),
        ("ZeRO-1: the lowest is lost in an update, which the others end", elastic.shrinks(*zero, fault=["kill:0@6:update"], saved=6, left=(0,))),
        ("ZeRO-1: lost behind an update, as parts are gathered", elastic.shrinks(*zero, fault=["kill:2@6:param-sync"], saved=6, left=(2,))),
        ("ZeRO-1, within an epoch", elastic.shrinks(*zero, *epochs, fault=["kill:1@4:backward"], saved=3)),
        ("ZeRO-1: five ranks, which parts do not divide", elastic.shrinks(*zero, fault=["kill:3@7:forward"], saved=6, ranks=5, smaller=4, left=(3,))),
        ("ZeRO-1 beside plain torch, consolidated and loaded: ReplicaOptimizer, of which a rank is lost", plain.shrinks(
            "--how", "replicas", fault=["kill:1@7:forward"], saved=6)),
        *((f"ZeRO-1 beside plain torch: ZeroRedundancyOptimizer{what}, 3 ranks, and 4 again", plain.scales(
            "--how", how, "--steps", "24", orders=[(4, 3), (8, 4)], changes=there_and_back)) for how, what in (("zero", ""), ("views", " with parameters in buckets"))),
        ("ZeRO-1: one copy of each part, and who had it is lost", elastic.lost_alone(*zero, "--copies", "1")),
        ("ZeRO-1: of the last step parts are gathered before the script goes on", elastic.as_undisturbed(*zero, "--steps", "6", fault="kill:2@6:param-sync")),
        ("ZeRO-1, by word: 3, 2 and 4 ranks", dealt(orders=[(4, 3), (8, 2), (12, 4)], changes=[(3, "3", "none"), (2, "2", "none"), (4, "none", "2,3")])),
        ("ZeRO-1, of one copy each: 3 ranks, and 4 again", dealt("--copies", "1", orders=[(1, 3), (8, 4)])),
        ("ZeRO-1, within an epoch: 3 ranks, and 4 again", elastic.scales(*zero, *epochs, orders=[(4, 3), (8, 4)], changes=there_and_back)),
        *((f"ZeRO-1: one that stays is lost in {phase}", dealt(die=f"{phase}:{rank}", orders=[(4, 3, True), (8, 3), (12, 4)]))
          for phase, rank in (("rebuild", 0), ("amid", "1.1"), ("rollback", 2))),
        *((f"ZeRO-1: who comes is lost, {when}", dealt(die=f"{when}:3.2", orders=[(4, 3), (8, 4, True), (12, 4)]))
          for when in ("start", "rebuild", "amid", "rollback")),
        *((f"ZeRO-1: a rank is lost, and another {when}", elastic.shrinks(*zero, fault=["kill:0@7:forward"], saved=6, smaller=2, left=(0, int(lost[0])), die=f"{phase}:{lost}"))
          for when, phase, lost in (("as the groups are rebuilt", "rebuild", "3"), ("amid the new state", "amid", "1.1"), ("behind it", "rollback", "3"))),
        ("FSDP2 over all ranks, and one alone", mistaken("of one alone nobody could tell how its data is divided", "--kind", "fsdp", "--worlds", "1,2,4")),
        ("worlds of half replicas", mistaken("a replica takes 2 ranks, so that worlds have a multiple of them, not 3", *hsdp, "--worlds", "2,3,4")),
        ("a mesh beside run.build", mistaken("run.offer: there is a DeviceMesh", *hsdp, mistake="mesh")),
        ("a group beside run.build", mistaken("run.offer: there is a process group of ranks [0, 1] alone", *hsdp, mistake="group")),
        ("made beside run.build", mistaken("what is cut over ranks is made anew among others. Let run.build make it", *hsdp, mistake="not-built")),
        ("offered behind run.build", mistaken("run.offer comes before run.build", *hsdp, mistake="late-offer")),
        ("stages whose slices are not said", mistaken("nobody says which ranks together hold one replica", *stages, mistake="unsaid")),
        ("rules that name ranks", mistaken("run.offer: a rule of `cuts`, which names ranks that are fixed,", *stages, mistake="cuts")),
        ("a slice lacks a shard", mistaken("does: if the others left, it would be lost", *hsdp, mistake="lacks-shard", expect=(2,))),
        ("a replica that is left is cut otherwise", found_at_the_change("bytes would have to move, which they do not", *hsdp, mistake="cut-otherwise")),
        ("a mesh of before is used", found_at_the_change("a DeviceMesh is used that was made before other ranks took part", *tp, mistake="kept-mesh")),
        ("a model of before is used", found_at_the_change("a forward pass of what run.build has made anew since", *tp, mistake="kept-model")),
        ("slices", door.alone("elastic_slices.py")),
        ("types of the trainers", door.typed(elastic.program, plain.program, str(HERE / "elastic_slices.py"), back.program)),
    ]
    chosen = [test for test in tests if options.soak or options.only or test[0] in ESSENTIAL]
    if missing := ESSENTIAL - {name for name, _ in tests}:
        sys.exit(f"no such cases: {missing}")
    sys.exit(main(chosen, door.bin, options.only))
