"""A closed road between two hosts of a torch run: who could not reach whom is told, and the run goes on on a spare host or saves and leaves.

  roads_test.py BIN_DIR PACKAGE_FOLDER PYTHON
"""
import os
import re
import subprocess
import sys

from door import ROOT, Door, Failure, main

from harness import Runner  # door has made its folder known
from network import Network
from nodes import NodesRun

SCRIPT = str(ROOT / "integrations/examples/torch_gpt/train.py")


class TorchRun(NodesRun):
    """One rank of the example on each host, with Gloo told which device is the host's."""

    def __init__(self, door, net, nodes, run_args, spares=0):
        self.door = door
        runner = Runner(door.bin)
        runner.command = lambda options, trainer, nproc: [runner.kintsugi, "run", "--nproc", str(nproc), "--json", "-", "--log-level", "info", "--save-dir",
                                                          str(runner.folder / "checkpoints"), *options, "--", door.python, SCRIPT, *trainer]  # fmt: skip
        os.environ.update(door.environment())
        super().__init__(runner, net, nodes, 1, run_args, ["--steps", "2000"], spares)

    def line(self, node):
        return ["env", f"GLOO_SOCKET_IFNAME={self.net.device(node)}", *super().line(node)]


def told_and_saved(door):
    def test(_):
        with Network(2) as net:
            run = TorchRun(door, net, 2, ["--silence", "8", "--hang-least", "8", "--step-timeout", "8"])
            try:
                run.wait_step(5)
                net.close_door(0, 1)
                net.close_door(1, 0)
                run.runner.tool(["inject", "--run", str(run.run_dir(0)), f"throw:0@{run.status()['step'] + 40}:backward"])
                run.finish(expect=75)
                log = run.log(0)
                told = [line for line in log.splitlines() if "event=unreachable " in line]
                if not 1 <= len(told) <= 2 or not all(re.search(r'from="rank [01] on .* to="rank [01] on .* port=[1-9]', line) for line in told):
                    raise Failure(f"told: {told}\n{log[-4000:]}")
                if not (run.runner.folder / "checkpoints/latest").exists():
                    raise Failure(f"nothing was saved\n{log[-4000:]}")
            finally:
                run.runner.close()
    return test


if __name__ == "__main__":
    door = Door(sys.argv[1:4])
    # It may have to be built: no rank is waited for that long.
    subprocess.run([door.python, "-c", "from kintsugi.torch import _build; _build.load()"], env=door.environment(), check=True)
    sys.exit(main([("a closed road is told by the first attempt, and after three the run saves and leaves", told_and_saved(door))], door.bin))
