"""The demo's own fault fifty times in a row: every run ends with the bits of one undisturbed run.

  demo_fifty.py BIN_DIR [--times N]

`kintsugi demo` comes first and gives the reference; the runs after it repeat its faulted half.
"""
import argparse
import json
import subprocess
import sys

from harness import Failure, Runner, main, same_training

# What `kintsugi demo` does when nothing is asked for; the first run checks that this is still so.
STEPS = 200
FAULT = f"kill:2@{STEPS // 2 + 1}:update"


def demo(bin_dir):
    """The reference of the demo, once it has shown its own fault."""
    runner = Runner(bin_dir)
    try:
        done = subprocess.run([runner.kintsugi, "demo", "--json", "-"], cwd=runner.folder, capture_output=True, text=True,
                              timeout=300)
        if done.returncode != 0:
            raise Failure(f"kintsugi demo: exit code {done.returncode}\n{done.stderr[-4000:]}")
        result = json.loads(done.stdout)
        if not result["bit_identical"] or result["reference"]["steps"] != STEPS:
            raise Failure(f"kintsugi demo: bit_identical {result['bit_identical']}, {result['reference']['steps']} steps")
        struck(result["faulted"])
        return result["reference"]
    finally:
        runner.close()


def struck(summary):
    """The ordered fault came, and was repaired by a replacement. A busy machine may add a false alarm of its own."""
    kills = [i for i in summary["incidents"] if i["fault"] == "kill"]
    if len(kills) != 1 or kills[0]["ranks"] != [2] or kills[0]["path"] != "respawn" or kills[0]["resumed_ms"] is None:
        raise Failure(f"the fault's incident: {json.dumps(summary['incidents'])[:2000]}")


def again(reference):
    def test(runner):
        summary, log = runner.run(["--inject", FAULT], ["--steps", str(STEPS), "--seed", "1", "--tp", "1"], timeout=300)
        struck(summary)
        difference = same_training(reference, summary)
        if difference:
            raise Failure(f"{difference}\n{log[-3000:]}")
    return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--times", type=int, default=50)
    options = parser.parse_args()
    try:
        undisturbed = demo(options.bin_dir)
    except (Failure, subprocess.TimeoutExpired, KeyError, json.JSONDecodeError) as error:
        sys.exit(f"FAILED  the demo itself: {error}")
    print("ok      1: the demo itself", flush=True)
    sys.exit(main([(f"{n}: the demo's fault", again(undisturbed)) for n in range(2, options.times + 1)], options.bin_dir))
