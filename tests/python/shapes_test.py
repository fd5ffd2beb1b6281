"""Scripts in the shapes of public ones, plain and protected by a few lines: the bits of plain torch, whatever strikes.

  shapes_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--all] [--oracles ORACLES | --fakes FOLDER] [--only WORD]...

--all: each fault by itself, and each shape told to end. --oracles: those that need a framework, from this folder (./tools/setup --oracles), in place of the others.
--fakes: all that the scripts make lies on the fake device, from this folder with libkintsugi_fake_*.so.
"""
import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from compared import left_in
from door import HERE, Door, Failure, FrameworkDoor, main, skip_without_torch

sys.path.insert(0, str(HERE / "shapes"))
from lines import needed  # noqa: E402

FOLDER = HERE / "shapes"
LINES_MOST = 25
ENDED = ("vision", "fsdp", "trainer", "diffusion")  # in the short suite: an epoch cut within a loader, shards, frameworks
ON_DEVICE = ("nanogpt", "snapshots", "vision", "dcgan")  # the others make tensors of numpy's arrays, or shards over the host
SAVED = 75  # the exit code of a run that was told to end and saved


class Shape:
    """One script in its two forms. `faults`: words of --inject; `strikes`: words of shapes/struck.py; `stop`: the step in which the run is
    told to end. `later`: the script goes on from what it has saved itself; what of that is taken away before it starts once more."""

    def __init__(self, door, name, faults, strikes, stop, options=(), later=None):
        self.name, self.faults, self.strikes, self.later = name, faults, strikes, later
        self._door, self._stop, self._options = door, stop, options
        self._plain = None

    def protected_by_few_lines(self, _):
        counted = needed(FOLDER / f"{self.name}_plain.py", FOLDER / f"{self.name}_protected.py")
        if counted.added > LINES_MOST or counted.moved:
            raise Failure(f"{counted.added} lines added or changed, {LINES_MOST} at most; moved: {counted.moved}")

    def struck(self, faults, strikes):
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                injected = [word for fault in faults for word in ("--inject", fault)]
                summary, log = self._run(folder, [*injected, "--inject-must-strike", *self._options], strikes)
                missed = [word for word in strikes if not Path(folder, f"struck-{word}").exists()]
                if missed or not summary["incidents"]:
                    raise Failure(f"never struck: {missed}; {len(summary['incidents'])} incidents\n{log[-3000:]}")
                self._compare(folder, summary, log)
        return test

    def stopped(self, _):
        """Told to end, and gone on with: nothing else has struck, so the run is undisturbed before and after."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            saves = ["--save-dir", f"{folder}/saves", *self._options]
            self._run(folder, saves, [f"stop-step:0@{self._stop}"], SAVED)
            summary, log = self._run(folder, [*saves, "--resume", f"{folder}/saves"], ())
            if summary["incidents"] or f"step {self._stop}" not in log:
                raise Failure(f"{len(summary['incidents'])} incidents, or not gone on with from step {self._stop}\n{log[-3000:]}")
            self._compare(folder, summary, log)

    def started_later(self, _):
        """It goes on from its own checkpoint, as it does under plain torch, also where its first step there and one behind its next save are struck."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as place:
            folder, saved = Path(place, "here"), Path(place, "saved")
            folder.mkdir()
            self._start_plain(folder)
            for gone in [*folder.glob("rank-*.json"), *(folder / name for name in self.later)]:
                shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
            folder.rename(saved)
            shutil.copytree(saved, folder)
            self._start_plain(folder)
            plain = left_in(folder)
            shutil.rmtree(folder)
            shutil.copytree(saved, folder)
            faults = [word for fault in ("kill:1@1:backward", "throw:0@2:forward", "kill:1@3:update") for word in ("--inject", fault)]
            summary, log = self._run(str(folder), [*faults, "--inject-must-strike", *self._options], ())
            self._compare(str(folder), summary, log, plain)

    def _run(self, folder, options, strikes, expect=0):
        program = [*self._door.script(str(FOLDER / "struck.py")), str(FOLDER / f"{self.name}_protected.py"), folder, *strikes]
        return self._door.run(options, program, nproc=2, expect=expect)

    def _compare(self, folder, summary, log, plain=None):
        if summary.get("inexact"):
            raise Failure(f"inexact: {summary['inexact']}\n{log[-3000:]}")
        plain, found = plain or self._left_by_plain(), left_in(folder)
        wrong = [f"{rank} {name}: plain torch {values['bits']} here {found[rank].get(name, {}).get('bits')}"
                 for rank, of_rank in plain.items() for name, values in of_rank.items() if found[rank].get(name) != values]
        if wrong:
            raise Failure(f"{len(wrong)} differ:\n" + "\n".join(line[:1200] for line in wrong[:12]))

    def _left_by_plain(self):
        if self._plain is None:
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                self._start_plain(folder)
                self._plain = left_in(folder)
        return self._plain

    def _start_plain(self, folder):
        self._door.plain([*self._door.script(str(FOLDER / f"{self.name}_plain.py")), str(folder)], PLAIN="1")


def shapes(door):
    """In the places of one run: forward, backward, update, behind it, a section, behind its collectives, the loader, an exception. One rank's loader is never
    struck in the step behind the other's update: it may come there before it is stopped, and the only whole copy would be gone."""
    return [
        Shape(door, "nanogpt", ["kill:1@5:update", "throw:1@7:backward", "kill:0@9:forward", "kill:0@11:backward", "kill:1@14:param-sync"],
              ["kill-section:0@4", "kill-told:0@1"], 10),
        Shape(door, "snapshots", ["kill:1@2:update", "throw:0@3:backward", "kill:0@6:backward", "throw:1@9:update"],
              ["kill-section:0@1", "kill-loader:1@5"], 7, later=()),
        Shape(door, "vision", ["kill:1@2:update", "throw:0@3:backward", "kill:0@6:backward", "kill:1@10:param-sync"],
              ["kill-section:0@2", "kill-told:1@3", "kill-loader:0@5"], 7),
        Shape(door, "fsdp", ["kill:1@3:update", "throw:0@5:backward", "kill:0@6:forward", "throw:1@9:update", "kill:1@11:param-sync"],
              ["kill-told:1@1"], 7, ("--snapshot-every", "2")),  # its shards have no second copy
        Shape(door, "ppo", ["kill:1@3:update", "throw:0@5:forward", "kill:0@8:forward", "throw:1@11:update", "kill:1@14:param-sync"],
              ["kill-told:1@2", "kill-loader:0@2"], 13),
        Shape(door, "dcgan", ["kill:1@2:update", "throw:0@3:backward", "kill:0@6:forward", "throw:1@9:update", "kill:1@10:param-sync"],
              ["kill-section:0@1", "kill-loader:0@2"], 7),
    ]


def framework_shapes(door):
    return [
        Shape(door, "trainer", ["kill:1@2:update", "throw:0@3:backward", "kill:0@6:forward", "throw:1@7:update", "kill:1@10:param-sync", "hang:1@11:backward"],
              ["kill-section:0@2", "kill-told:1@5", "kill-loader:0@5"], 7, later=("trained/checkpoint-12", "trained/checkpoint-16")),
        Shape(door, "diffusion", ["kill:1@2:update", "throw:0@3:backward", "kill:0@5:forward", "throw:1@7:update", "kill:1@9:param-sync", "hang:0@11:backward"],
              ["kill-section:0@2", "kill-told:0@3", "kill-loader:0@4"], 7),
    ]


def tests_of(shape, each):
    yield f"{shape.name}: protected by {LINES_MOST} lines at most, none moved", shape.protected_by_few_lines
    if each or shape.name in ENDED:
        yield f"{shape.name}: told to end, and gone on with", shape.stopped
    if shape.later is not None:
        yield f"{shape.name}: started later, from its own checkpoint", shape.started_later
    if not each:
        yield f"{shape.name}: struck in every place of one run", shape.struck(shape.faults, shape.strikes)
        return
    for fault in shape.faults:
        yield f"{shape.name}: {fault}", shape.struck([fault], [])
    for strike in shape.strikes:
        yield f"{shape.name}: {strike}", shape.struck([], [strike])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--oracles")
    parser.add_argument("--fakes", default="")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    # Most of what the short suite takes is imports; with --all each process is started as a user's is.
    preload = "" if options.all or options.fakes else "kintsugi.torch"
    door = FrameworkDoor([*options.door, options.oracles]) if options.oracles else Door(options.door, preload=preload, fakes=options.fakes)
    skip_without_torch(door)
    if options.oracles:
        door.skip_without("transformers")
    tried = framework_shapes(door) if options.oracles else shapes(door)
    if options.fakes:
        tests = [(f"{shape.name} on a device, struck in every place of one run", shape.struck(shape.faults, shape.strikes)) for shape in tried if shape.name in ON_DEVICE]
    else:
        tests = [test for shape in tried for test in tests_of(shape, options.all)]
    sys.exit(main(tests, door.bin, options.only))
