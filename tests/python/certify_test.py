"""kintsugi certify over a Python trainer: the right one passes, and each planted mistake is found and told.

  certify_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--fakes FOLDER] [--only WORD]...

--soak: each mistake, and --quick as a whole on DDP and FSDP2. --fakes: with all that the scripts make on the fake device, from this folder with
libkintsugi_fake_*.so.
"""
import argparse
import json
import subprocess
import sys
import tempfile

from door import HERE, Door, Failure, main, skip_without_torch

PLANTED = str(HERE / "torch_planted.py")


class CertifyDoor(Door):
    def certify(self, mistake, options, expect, quick=True, nproc=2):
        much = ("--quick",) if quick else ()
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            done = subprocess.run([str(self.bin / "kintsugi"), "certify", "--nproc", str(nproc), "--json", "-", *much, "--silence", "8", *options, "--",
                                   self.python, *self.script(PLANTED), *mistake], cwd=folder, capture_output=True, text=True, timeout=3000,
                                  env=self.environment())
        if done.returncode != expect:
            raise Failure(f"exit code {done.returncode}, expected {expect}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
        return json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

    def passes(self, mistake=(), options=()):
        def test(_):
            found, log = self.certify(mistake, options, 0)
            outcomes = {cell["outcome"] for cell in found["cells"]}
            if not found["plain"].startswith("the undisturbed run leaves the same"):
                raise Failure(f"not compared with plain torch: {found['plain']}")
            if not found["deterministic"] or not outcomes <= {"same", "not marked"} or "same" not in outcomes:
                raise Failure(f"{json.dumps(found)[:2000]}\n{log[-3000:]}")
        return test

    def each_collective(self, mistake, at_least, options=()):
        """An exception at each collective of a step in turn; those that the step does not have are no cells."""
        def test(_):
            found, log = self.certify(mistake, ["--only", "exception at collective", *options], 0, quick=False)
            faults = [cell["faults"] for cell in found["cells"]]
            if len(faults) < at_least or faults != [[f"throw:1@3:forward,collective={n + 1}"] for n in range(len(faults))]:
                raise Failure(f"{faults}\n{log[-3000:]}")
            if {cell["outcome"] for cell in found["cells"]} != {"same"}:
                raise Failure(f"{json.dumps(found)[:2000]}\n{log[-3000:]}")
        return test

    def finds(self, mistake, faults, words, options=(), quick=True):
        """Found by one of these faults, with a text that says where to look and a command that does it again."""
        def test(_):
            only = [word for fault in faults for word in ("--only", fault)]
            found, log = self.certify([mistake], [*only, *options], 1, quick)
            if found is None:
                raise Failure(f"no fault was tried\n{log[-5000:]}")
            wrong = [cell for cell in found["cells"] if cell["outcome"] in ("DIFFERENT", "FAILED")]
            if not wrong or found["passed"] or not found["deterministic"]:
                raise Failure(f"not found: {json.dumps(found)[:2000]}\n{log[-3000:]}")
            for word in words:
                if word not in wrong[0]["text"]:
                    raise Failure(f"'{word}' is not said: {wrong[0]['text']}")
            if "--inject" not in wrong[0]["command"] or not wrong[0]["command"].endswith(f"{PLANTED} {mistake}"):
                raise Failure(wrong[0]["command"])
        return test

    def is_not_plain(self, mistake, words):
        """Found before any fault is tried, by what plain torch leaves."""
        def test(_):
            found, log = self.certify([mistake], (), 1)
            if found["cells"] or found["passed"] or words not in found["plain_difference"] or "other numbers" not in found["verdict"]:
                raise Failure(f"{json.dumps(found)[:2000]}\n{log[-3000:]}")
        return test

    def is_not_deterministic(self, mistake, *words):
        """Found before any fault is tried, and blamed on nobody; of one rank as of many."""
        def test(_):
            found, log = self.certify([mistake], (), 1, nproc=1)
            if found["cells"] or found["deterministic"] or found["plain_difference"] or any(word not in found["nondeterminism"] for word in words):
                raise Failure(f"{json.dumps(found)[:2000]}\n{log[-3000:]}")
        return test

    def refuses(self, mistake, words, expect):
        """Refused by name before any fault is tried: certify passes on what the trainer was told, and its exit code."""
        def test(_):
            _, log = self.certify([mistake], (), expect)
            if words not in log or "the undisturbed run ended with exit code" not in log:
                raise Failure(log[-4000:])
        return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("door", nargs=3)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--fakes", default="")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = CertifyDoor(options.door, fakes=options.fakes)
    skip_without_torch(door)
    snapshots = ("--snapshot-every", "2")  # FSDP2's shards have no second copy
    # Each is three or four runs of two ranks that import torch.
    short = [
        ("certify finds a sampler that is not saved", door.finds("sampler", ["exception, rank 1, backward"], ["Samples", "sampler"])),
        ("certify finds a door that changes what is computed", door.is_not_plain("door", "the first loss that differs is that of step 1: ")),
        ("certify tells a program's own noise from a fault's", door.is_not_deterministic("noise", "losses differ from step 1 on", "the first loss that differs is that of step 1",
                                                                                         "in the first run")),
        ("certify tells of a collective within an optimizer", door.refuses("collective", "Together.step() holds 1 collectives", 3)),
    ]
    rest = [
        ("certify passes a torch trainer without mistakes", door.passes()),
        ("certify passes a torch trainer at each collective of its step", door.each_collective([], 1)),
        ("certify passes FSDP2 at each collective of its step", door.each_collective(["fsdp-right"], 5, snapshots)),
        ("certify passes FSDP2", door.passes(["fsdp-right"], snapshots)),
        ("certify tells of a module that is not registered", door.refuses("tensor", "'average' (Average) has changed by step 1 and is not registered", 1)),
        ("certify finds an update outside of the gate", door.finds("update", ["exception, rank 1, gate"], ["update outside of the gate"])),
        ("certify tells of a forgotten random generator", door.refuses("random", "'noise' (Generator) has changed by step 2 and is not registered", 1)),
        ("certify tells of BatchNorm's buffers that are left out", door.refuses("buffers", "'features' (Sequential) has changed by step 1 and is not registered", 1)),
        ("certify tells of a collective within an update of the trainer's own",
         door.refuses("own-collective", "the update of step 1 holds 1 collectives", 1)),
        # Between the two reductions of the backward pass, where no phase is marked.
        ("certify finds FSDP2's stale gradients",
         door.finds("fsdp", ["exception at collective 4,"], ["losses differ"], snapshots, quick=False)),
    ]
    sys.exit(main([*short, *rest] if options.soak else short, door.bin, options.only))
