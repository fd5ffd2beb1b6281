"""Training loops that others wrote survive through their own hooks: same bits and losses as the undisturbed run.

  frameworks_test.py BIN_DIR PACKAGE_FOLDER PYTHON ORACLES      ORACLES: the folder with the frameworks (./tools/setup --oracles)
"""
import os
import subprocess
import sys

from door import ROOT, Door, Skip, main, skip_without_torch

EXAMPLES = ROOT / "integrations/examples"


class FrameworkDoor(Door):
    def __init__(self, arguments):
        super().__init__(arguments[:3])
        self.frameworks = os.path.abspath(arguments[3])

    def environment(self):
        environment = super().environment()
        return {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{self.frameworks}", "HF_HUB_OFFLINE": "1"}

    def has(self, module):
        return subprocess.run([self.python, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"],
                              env=self.environment(), check=False).returncode == 0


if __name__ == "__main__":
    door = FrameworkDoor(sys.argv[1:])
    skip_without_torch(door)
    if not door.has("transformers"):
        print(f"SKIPPED: there is no transformers in {door.frameworks}; ./tools/setup --oracles installs it")
        sys.exit(77)
    trainer = [str(EXAMPLES / "torch_huggingface/train.py")]
    loop = [str(EXAMPLES / "torch_accelerate/train.py")]
    # Eight steps are an epoch: a step that is done again before, at and after its end, in old and in new processes.
    at_ends = ["throw:0@1:backward", "throw:1@8:between", "kill:0@16:gate", "kill:1@17:forward"]
    faults = ["throw:0@3:gate", "kill:1@5:backward", "throw:1@9:gate", "kill:0@11:update"]
    struck = [word for fault in faults for word in ("--inject", fault)]
    slow = ["--join-timeout", "400", "--silence", "8", "--hang-least", "20"]
    lightning = [str(EXAMPLES / "torch_lightning/train.py")]

    def with_lightning(test):
        def run(arguments):
            if not door.has("lightning"):
                raise Skip(f"there is no lightning in {door.frameworks}; ./tools/setup --oracles installs it")
            test(arguments)
        return run

    sys.exit(main([
        ("Hugging Face's Trainer: exceptions at the gate, killed in its backward pass and in its update",
         door.same(trainer, [*slow, *struck], nproc=2, paths=[["retry", "adopt", "retry", "respawn"]])),
        ("Hugging Face's Trainer, accumulating gradients, an exception in the gradient sync",
         door.same([*trainer, "--accumulate", "2", "--steps", "6"], [*slow, "--inject", "throw:1@3:gradient-sync"], nproc=2,
                   paths=[["retry"]])),
        ("a loop with Accelerate, an exception after the update, killed in its backward pass",
         door.same(loop, [*slow, "--inject", "throw:0@3:param-sync", "--inject", "kill:1@6:backward"], nproc=2,
                   paths=[["retry", "adopt"]])),
        ("Lightning's Trainer: exceptions at the gate, killed in its backward pass and in its update", with_lightning(
            door.same(lightning, [*slow, *struck], nproc=2, paths=[["retry", "adopt", "retry", "respawn"]]))),
        ("Lightning's Trainer, struck in forward, behind an epoch's last update and in its first step, killed at an epoch's end and start",
         with_lightning(door.same(lightning, [*slow, *(word for fault in at_ends for word in ("--inject", fault))], nproc=2,
                                  paths=[["retry", "retry", "adopt", "adopt"]]))),
        ("Lightning's Trainer, accumulating gradients, killed between two batches of a step, an exception in the gradient sync",
         with_lightning(door.same([*lightning, "--accumulate", "3"], [*slow, "--inject", "kill:1@2:backward", "--inject", "throw:0@5:gradient-sync"],
                                  nproc=2, paths=[["adopt", "retry"]]))),
        ("what is not protected of Lightning is refused by name", with_lightning(door.alone("lightning_mistakes.py"))),
    ], door.bin))
