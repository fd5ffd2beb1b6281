"""A plain torch script (DDP over Gloo) survives: same bits, losses and samples as the undisturbed run.

  torch_test.py BIN_DIR PACKAGE_FOLDER PYTHON
"""
import subprocess
import sys

from door import HERE, ROOT, Door, Failure, main

GPT = [str(ROOT / "integrations/examples/torch_gpt/train.py"), "--steps", "12"]


def mistakes(door):
    def test(_):
        done = subprocess.run([door.python, str(HERE / "torch_mistakes.py")], capture_output=True, text=True, timeout=200,
                              env=door.environment())
        if done.returncode != 0:
            raise Failure(done.stdout[-2000:] + done.stderr[-4000:])
    return test


if __name__ == "__main__":
    door = Door(sys.argv[1:])
    probe = subprocess.run([door.python, "-W", "ignore", "-c", "import kintsugi.torch._build as b; b.load()"],
                           capture_output=True, text=True, env=door.environment(), check=False)
    if probe.returncode != 0:
        if "No module named 'torch'" in probe.stderr:
            print(f"SKIPPED: {door.python} has no torch; ./tools/setup --python installs it")
            sys.exit(77)
        print(probe.stderr[-4000:])
        sys.exit(1)

    # A run takes some 17 s of CPU, most of it for importing torch: faults share runs.
    def struck(name, *faults, paths, options=()):
        arguments = [*options, *(word for fault in faults for word in ("--inject", fault))]
        return name, door.same(GPT, arguments, nproc=4, paths=paths)

    sys.exit(main([
        struck("DDP, killed in the first step and in an update, exceptions outside of it and inside",
               "kill:1@1:backward", "throw:3@4:backward", "kill:2@6:update", "throw:1@9:update",
               paths=[["adopt", "retry", "respawn", "rebuild"]]),
        struck("DDP, silent in its backward pass, killed in its forward pass",
               "freeze:2@5:backward", "kill:0@8:forward", options=("--silence", "1"),
               paths=[["respawn", "adopt"], ["adopt", "adopt"]]),
        ("torch's mistakes are sentences", mistakes(door)),
    ], door.bin))
