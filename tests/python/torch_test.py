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

    def struck(fault, *paths):
        arguments = ["--silence", "1"] if fault.startswith("freeze") else []
        return (f"DDP, {fault}", door.same(GPT, ["--inject", fault, *arguments], nproc=4, paths=paths or None))

    sys.exit(main([
        struck("kill:2@5:forward", ["adopt"]),
        struck("kill:0@6:backward", ["adopt"]),
        struck("kill:1@7:update", ["respawn"]),
        struck("throw:3@5:backward", ["retry"]),
        struck("throw:1@6:update", ["rebuild"]),
        struck("freeze:2@5:backward"),
        struck("kill:1@1:backward"),
        ("torch's mistakes are sentences", mistakes(door)),
    ], door.bin))
