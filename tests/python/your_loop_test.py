"""Each block of docs/your_loop.md, run as it stands: the bits of the same loop under plain torch, undisturbed and where a rank is killed in it.

  your_loop_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...     --soak: each block by itself, each kind of place
"""
import sys

from compared import Compared
from door import main, opened

# Steps of the blocks: two epochs of 7, 6 numbers, 3 of up to three batches, 7 over both loaders.
PLACES = {"epochs": (3, 7, 8, 14), "numbers": (15, 18, 20), "accumulated batches": (21, 22, 23), "two loaders": (24, 27, 30)}

if __name__ == "__main__":
    door, options = opened()
    loops, gan = Compared(door, "your_loop.py"), Compared(door, "your_loop.py", "--gan")

    def matrix():
        yield "all blocks, undisturbed, and gone on with from the middle", loops.resumed(18)
        for block, steps in PLACES.items():
            for step in steps:
                yield (f"{block}: killed in step {step}, and an exception in it once more",
                       loops.same(f"kill:{step % 2}@{step}:{'update' if step % 3 else 'backward'}", f"throw:{step % 2}@{step}:forward", paths=None))
        for phase in ("forward", "backward", "update", "param-sync"):
            yield f"GAN: killed in phase {phase}", gan.same(f"kill:1@3:{phase}", f"throw:0@6:{phase}", paths=None)

    short = [
        ("all blocks: killed in the epochs, over numbers, among accumulated batches, over two loaders",
         loops.same("kill:1@9:backward", "kill:0@18:update", "kill:1@22:backward", "kill:0@27:forward", options=("--inject-must-strike",),
                    paths=[("adopt", "respawn", "adopt", "adopt"), ("adopt",) * 4])),
    ]
    sys.exit(main(list(matrix()) if options.soak else short, door.bin, options.only))
