"""The real Ray, a cluster of several nodes on this host: launchers in actors, a killed rank, a node that is lost, a second start.

  ray_test.py BIN_DIR PACKAGE_FOLDER PYTHON ORACLES      ORACLES: the folder with Ray (./tools/setup --oracles)
"""
import os
import re
import subprocess
import sys
import tempfile

from door import Door, Failure, main
from harness import Runner

STEPS = "40"
DRIVER = """
import concurrent.futures, json, os, sys, time
import ray, kintsugi.ray
from kintsugi import Error
from ray.cluster_utils import Cluster
from pathlib import Path

case, trainer = sys.argv[1], [sys.argv[2], "--samples", "0", "--steps", sys.argv[3], "--step-delay-us", "100000"]
words = ["--save-dir", os.path.abspath("saves"), "--silence", "8", "--hang-least", "20"]

def refused(**arguments):
    try:
        kintsugi.ray.run(**{"command": trainer, **arguments})
    except Error as error:
        print("refused:", error)

def launcher(index):
    # By its words; its ranks do not have them.
    for entry in Path("/proc").iterdir():
        try:
            told = (entry / "cmdline").read_bytes().split(b"\\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if b"--node-rank" in told and told[told.index(b"--node-rank") + 1] == str(index).encode() and os.path.abspath("saves").encode() in told:
            return int(entry.name)

def saved():
    while not (Path("saves") / "latest").exists() and not running.done():
        time.sleep(0.05)

if case == "mistakes":
    refused()
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
second = cluster.add_node(num_cpus=2)
ray.init(address=cluster.address, log_to_driver=case != "mistakes")
restarts, strike = 0, lambda: None
if case == "mistakes":
    refused(command="train.py")
    refused(options=["--nnodes", "2"])
    refused(nodes=3, nproc=2, placement_seconds=2)
    sys.exit()
if case == "kill":
    words += ["--inject", "kill:3@9:update"]
if case == "node":
    def strike():
        saved()
        cluster.add_node(num_cpus=2)
        cluster.remove_node(second, allow_graceful=False)
    words += ["--save-every", "5", "--node-wait", "120"]
if case == "again":
    def strike():
        saved()
        os.kill(launcher(0), 15)
    words += ["--save-every", "5"]
    restarts = 1
with concurrent.futures.ThreadPoolExecutor() as beside:  # Ray makes a node on the main thread only
    running = beside.submit(kintsugi.ray.run, trainer, nodes=2, nproc=2, options=words, restarts=restarts)
    strike()
    result = running.result()
summary = result.summary or {}
print("ended:", json.dumps({"code": result.exit_code, "starts": result.starts, "digest": summary.get("final_digest"),
                           "rungs": [incident["path"] for incident in summary.get("incidents", [])]}))
"""


class RayDoor(Door):
    def __init__(self, arguments):
        super().__init__(arguments[:3])
        self.ray = os.path.abspath(arguments[3])
        self.digest = None

    def environment(self):
        environment = super().environment()
        return {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{self.ray}", "PATH": f"{self.bin}:{os.environ['PATH']}",
                "RAY_USAGE_STATS_ENABLED": "0"}

    def drive(self, case):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            done = subprocess.run([self.python, "-W", "ignore", "-c", DRIVER, case, str(self.bin / "byte_lm"), STEPS], cwd=folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500, env=self.environment(), check=False)
        if done.returncode != 0:
            raise Failure(f"{case}: {done.returncode}\n{done.stdout[-6000:]}")
        return done.stdout

    def undisturbed(self):
        if self.digest is None:
            runner = Runner(self.bin)
            try:
                self.digest = runner.run([], ["--steps", STEPS], 4)[0]["final_digest"]
            finally:
                runner.close()
        return self.digest

    def same(self, case, starts=1, rungs=()):
        def test(_):
            output = self.drive(case)
            ended = re.search(r"^ended: (.*)$", output, re.MULTILINE)
            for part in ('"code": 0', f'"starts": {starts}', f'"digest": "{self.undisturbed()}"', *rungs):
                if not ended or part not in ended[1]:
                    raise Failure(f"{case}: {ended and ended[1]}, expected {part}\n{output[-8000:]}")
        return test

    def mistakes(self, _):
        output = self.drive("mistakes")
        for words in ("Ray is not connected: call ray.init() first", "give the program and its arguments as a list",
                      "options hold --nnodes, which kintsugi.ray says by itself", "the cluster had not 3 nodes with {'CPU': 2.0} free within 2 s"):
            if words not in output:
                raise Failure(f"'{words}' is nowhere\n{output[-4000:]}")


if __name__ == "__main__":
    door = RayDoor(sys.argv[1:])
    if subprocess.run([door.python, "-W", "ignore", "-c", "import ray"], env=door.environment(), capture_output=True, check=False).returncode != 0:
        print(f"SKIPPED: there is no Ray in {door.ray}; ./tools/setup --oracles installs it")
        sys.exit(77)
    sys.exit(main([
        ("a killed rank is replaced in memory", door.same("kill", rungs=["respawn"])),
        ("a node is lost, its launcher starts again on a third", door.same("node", rungs=['"rungs": ["'])),
        ("a run that had to leave begins again from what it saved", door.same("again", starts=2)),
        ("mistakes", door.mistakes),
    ], door.bin))
