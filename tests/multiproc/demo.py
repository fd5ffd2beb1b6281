"""The demo, and its own fault again and again: every run ends with the bits of one undisturbed run.

  demo.py BIN_DIR [--times N]

`kintsugi demo` comes first and gives the reference; the runs after it repeat its faulted half.
"""
import argparse
import json
import subprocess
import sys

from harness import Failure, main, must_be_same

# What `kintsugi demo` does when nothing is asked for; the first run checks that this is still so.
STEPS = 200
FAULT = f"kill:2@{STEPS // 2 + 1}:update"


class Demo:
    """The demo, and the reference that it gives once it has shown its own fault."""

    def __init__(self):
        self.reference = None

    def itself(self, runner):
        done = subprocess.run([runner.kintsugi, "demo", "--json", "-"], cwd=runner.folder, capture_output=True, text=True,
                              timeout=300)
        if done.returncode != 0:
            raise Failure(f"kintsugi demo: exit code {done.returncode}\n{done.stderr[-4000:]}")
        result = json.loads(done.stdout)
        if result["faults_struck"] != 1:
            raise Failure(f"kintsugi demo: {result['faults_struck']} faults struck, it orders 1")
        if not result["bit_identical"] or result["reference"]["steps"] != STEPS:
            raise Failure(f"kintsugi demo: bit_identical {result['bit_identical']}, {result['reference']['steps']} steps")
        struck(result["faulted"])
        self.reference = result["reference"]

    def again(self, runner):
        if not self.reference:
            raise Failure("no reference: the demo itself failed")
        summary, log = runner.run(["--inject", FAULT], ["--steps", str(STEPS), "--seed", "1", "--tp", "1"], timeout=300)
        struck(summary)
        must_be_same(self.reference, summary, log)


def struck(summary):
    """The ordered fault came, and was repaired by a replacement. A busy machine may add a false alarm of its own."""
    kills = [i for i in summary["incidents"] if i["fault"] == "kill"]
    if len(kills) != 1 or kills[0]["ranks"] != [2] or kills[0]["path"] != "respawn" or kills[0]["resumed_ms"] is None:
        raise Failure(f"the fault's incident: {json.dumps(summary['incidents'])[:2000]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    demo = Demo()
    sys.exit(main([("1: the demo itself", demo.itself),
                   *((f"{n}: the demo's fault", demo.again) for n in range(2, options.times + 1))], options.bin_dir))
