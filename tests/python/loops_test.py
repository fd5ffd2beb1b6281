"""Loops as people write them leave under Kintsugi what they leave under plain torch, bit for bit, wherever a fault strikes.

  loops_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--only WORD]...
"""
import argparse
import sys

from compared import Compared
from door import Door, main, skip_without_torch

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = Door(options.door)
    skip_without_torch(door)
    loop, parts = Compared(door, "torch_loop.py"), Compared(door, "torch_loop.py", "--accumulate", "2", "--workers", "2")

    shards = Compared(door, "torch_shards_epochs.py")
    buffers = Compared(door, "torch_buffers.py")

    def dies(place, path):
        return loop.same(more=["--die", place], paths=[(path,), ("adopt",), ("respawn",)])

    tests = [
        ("a loop with KINTSUGI=0", loop.off),
        ("an undisturbed loop, and one gone on with from its middle", loop.resumed(8)),
        ("killed in a forward pass, in an update, behind one", loop.same("kill:1@3:forward", "kill:0@5:update", "kill:1@8:param-sync",
                                                                         paths=[("adopt", "respawn", "adopt"), ("adopt", "respawn", "respawn")])),
        ("exceptions in a backward pass, in an update, behind one, and in the last step of an epoch",
         loop.same("throw:1@2:backward", "throw:0@4:update", "throw:1@7:param-sync", "throw:0@10:update",
                   paths=[("retry", "rebuild", "rebuild", "rebuild")])),
        ("killed at the end of an epoch", loop.same("kill:0@10:update", paths=[("respawn",), ("adopt",)])),
        ("killed at the beginning of the next", loop.same("kill:1@11:forward", paths=[("adopt",)])),
        ("killed as an evaluation begins", dies("evaluate.1:1", "adopt")),
        ("killed behind the collective of an evaluation", dies("told.0:0", "adopt")),
        ("killed in an evaluation behind a step", dies("told.-2:1", "adopt")),
        ("killed while it saves and the others wait", dies("save.1:0", "adopt")),
        ("killed behind the last step", dies("behind:1", "adopt")),
        ("several batches a step, from workers: killed in the middle of a step, and at an epoch's end",
         parts.same("kill:1@3:backward", "kill:0@5:update", paths=[("adopt", "respawn"), ("adopt", "adopt")])),
        ("shards without a second copy go back behind an epoch, and by a step within one",
         shards.same("kill:1@7:update", "kill:0@14:update", options=("--snapshot-every", "4"), paths=[("reload", "adopt", "reload")])),
        ("large buffers, most of which stay what they are: killed in a backward pass and in an update, an exception behind one",
         buffers.same("kill:1@5:backward", "throw:1@7:param-sync", "kill:0@9:update", paths=[("adopt", "retry", "respawn"), ("adopt", "retry", "adopt")])),
    ]
    sys.exit(main(tests, door.bin, options.only))
