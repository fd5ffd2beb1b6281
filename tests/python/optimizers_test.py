"""Optimizers under Kintsugi leave what they leave under plain torch: parameters, states and settings, bit for bit.

  optimizers_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--only WORD]...
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from door import HERE, Door, Failure, main, skip_without_torch


def left_in(folder):
    found = {path.name: json.loads(path.read_text()) for path in Path(folder).glob("rank-*.json")}
    if sorted(found) != ["rank-0.json", "rank-1.json"]:
        raise Failure(f"left behind: {sorted(found)}")
    return found


class Compared:
    def __init__(self, door, program):
        self._door = door
        self._program = str(HERE / program)
        self._plain = None

    def plain(self):
        """Under torchrun, over Gloo: nothing of Kintsugi is imported."""
        if self._plain is None:
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                done = subprocess.run([self._door.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", self._program, folder],
                                      capture_output=True, text=True, timeout=300, env={**self._door.environment(), "PLAIN": "1"}, check=False)
                if done.returncode != 0:
                    raise Failure(done.stderr[-6000:])
                self._plain = left_in(folder)
        return self._plain

    def same(self, *faults, more=(), paths=((),)):
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                self._run(folder, [word for fault in faults for word in ("--inject", fault)], more, paths)
        return test

    def resumed(self):
        """From what was saved in the middle of the run."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                self._run(folder, ("--save-every", "3", "--save-dir", f"{folder}/saves"), (), ((),))
                Path(folder, "rest").mkdir()
                middle = Path(folder, "saves", "step_0000000003").rename(Path(folder, "rest", "step_0000000003"))
                _, log = self._run(folder, ("--resume", str(middle.parent), "--save-dir", ""), (), ((),))
            if "step 3" not in log:
                raise Failure(f"nothing was resumed\n{log[-3000:]}")
        return test

    def _run(self, folder, arguments, more, paths):
        plain = self.plain()
        for old in Path(folder).glob("rank-*.json"):
            old.unlink()
        summary, log = self._door.run(arguments, [self._program, folder, *more], nproc=2)
        found = left_in(folder)
        path = tuple(incident["path"] for incident in summary["incidents"])
        if path not in paths:
            raise Failure(f"repaired by {path}, expected one of {paths}\n{log[-4000:]}")
        wrong = [f"{rank} {name}, {what}: plain torch {value} here {found[rank].get(name, {}).get(what)}"
                 for rank, of_rank in plain.items() for name, values in of_rank.items() for what, value in values.items()
                 if found[rank].get(name, {}).get(what) != value]
        if wrong:
            raise Failure(f"{len(wrong)} differ:\n" + "\n".join(line[:600] for line in wrong[:12]))
        return summary, log


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = Door(options.door)
    skip_without_torch(door)
    alone, pair = Compared(door, "torch_optimizers.py"), Compared(door, "torch_gan.py")
    tests = [
        ("one after the other, undisturbed, and gone on with from its middle", alone.resumed()),
        ("one after the other, killed in the first update, an exception in a later one, killed in a forward pass",
         alone.same("kill:1@1:update", "throw:1@3:update", "kill:0@5:forward", paths=[("respawn", "rebuild", "adopt")])),
        ("together, killed in the first step and in the second update",
         alone.same("kill:1@1:backward", "kill:1@2:update", more=["--update"], paths=[("adopt", "respawn")])),
        ("two updates in a step, undisturbed", pair.same()),
        ("two updates in a step, exceptions and kills between them, behind the second, and where the second is left out",
         pair.same("throw:1@2,collective=4", "kill:1@3:gradient-sync", "throw:0@4:update", "kill:0@5:update", "throw:1@6:param-sync",
                   paths=[("retry", "adopt", "rebuild", "respawn", "retry")])),
        ("what an optimizer keeps is kept, or refused by name", door.alone("torch_kept.py")),
        ("types of the trainers are as they say", door.typed(str(HERE / "torch_optimizers.py"), str(HERE / "torch_gan.py"))),
    ]
    sys.exit(main(tests, door.bin, options.only))
