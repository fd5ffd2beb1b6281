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

PROGRAM = str(HERE / "torch_optimizers.py")


def left_in(folder):
    found = {path.name: json.loads(path.read_text()) for path in Path(folder).glob("rank-*.json")}
    if sorted(found) != ["rank-0.json", "rank-1.json"]:
        raise Failure(f"left behind: {sorted(found)}")
    return found


class Compared:
    def __init__(self, door):
        self._door = door
        self._plain = None

    def plain(self):
        """Under torchrun, over Gloo: nothing of Kintsugi is imported."""
        if self._plain is None:
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                done = subprocess.run([self._door.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", PROGRAM, folder],
                                      capture_output=True, text=True, timeout=300, env={**self._door.environment(), "PLAIN": "1"}, check=False)
                if done.returncode != 0:
                    raise Failure(done.stderr[-6000:])
                self._plain = left_in(folder)
        return self._plain

    def same(self, *faults, more=(), path=()):
        def test(_):
            plain = self.plain()
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                summary, log = self._door.run([word for fault in faults for word in ("--inject", fault)], [PROGRAM, folder, *more], nproc=2)
                found = left_in(folder)
            paths = [incident["path"] for incident in summary["incidents"]]
            if paths != list(path):
                raise Failure(f"repaired by {paths}, expected {list(path)}\n{log[-4000:]}")
            wrong = [f"{rank} {name} {what}: {one} there {value[what] if isinstance(value, dict) else value}"
                     for rank, of_rank in plain.items() for name, value in found[rank].items()
                     for what, one in (of_rank[name].items() if isinstance(value, dict) else [("", of_rank[name])])
                     if one != (value[what] if isinstance(value, dict) else value)]
            if wrong or any(found[rank].keys() != of_rank.keys() for rank, of_rank in plain.items()):
                raise Failure(f"{len(wrong)} differ from plain torch:\n" + "\n".join(line[:600] for line in wrong[:12]))
        return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = Door(options.door)
    skip_without_torch(door)
    compared = Compared(door)
    tests = [
        ("one after the other, undisturbed", compared.same()),
        ("one after the other, killed in the first update, an exception in a later one, killed in a forward pass",
         compared.same("kill:1@1:update", "throw:1@3:update", "kill:0@4:forward", path=["respawn", "rebuild", "adopt"])),
        ("together, killed in the first step and in the second update",
         compared.same("kill:1@1:backward", "kill:1@2:update", more=["--update"], path=["adopt", "respawn"])),
        ("types of the trainer are as they say", door.typed(PROGRAM)),
    ]
    sys.exit(main(tests, door.bin, options.only))
