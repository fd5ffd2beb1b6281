"""A step that does not move while its process lives, and a rank that dies at the same step again and again."""
import signal
import subprocess
import sys
import time

from harness import SLOWNESS, Failure, must_be_same, only_incident, reference, script
from live_run import LiveRun

TRAINER = ["--steps", "12"]
QUICK = ["--silence", str(0.3 * SLOWNESS), "--hang-least", str(0.6 * SLOWNESS)]


def hang(spec, paths, ranks):
    """Found, named and repaired; the bits are those of the undisturbed run."""
    def test(runner):
        summary, log = runner.run([*QUICK, "--inject", spec], TRAINER)
        must_be_same(reference(runner.bin, TRAINER), summary, log)
        incident = only_incident(summary)
        if incident["signal"] != "hang" or incident["path"] not in paths or incident["ranks"] != ranks:
            raise Failure(f"{incident['signal']} of {incident['ranks']}, rung {incident['path']}\n{log[-3000:]}")
        if "respawn" in paths and stacks_can_be_taken() and not ("event=stack rank=%d" % ranks[0] in log and "nanosleep" in log):
            raise Failure(f"no stack of the hung thread\n{log[-3000:]}")
        place = f"{spec.split(':')[2].split(',')[0]} of step 5"
        if place not in incident["cause"] or "others wait in" not in incident["cause"]:
            raise Failure(f"the cause does not say where: {incident['cause']}")
    return test


def stacks_can_be_taken():
    """Not where eu-stack is missing, nor in a container that lets nobody look into another process."""
    with subprocess.Popen(["sleep", "10"]) as child:
        try:
            return subprocess.run(["eu-stack", "-p", str(child.pid)], capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False
        finally:
            child.kill()


def never_looked_for(runner):
    """Only the operator ends it: within the grace period, although the step that is waited for never ends."""
    with LiveRun(runner, [*QUICK, "--hang-factor", "0", "--grace", "8", "--inject", "hang:1@5:forward"], TRAINER) as run:
        run.wait_step(4)
        time.sleep(3 * SLOWNESS)  # five times as long as a hang takes to be found
        if run.wait_status(bool, "an answer")["incidents"]:
            raise Failure(f"a hang was looked for\n{run.log()[-3000:]}")
        run.signal(signal.SIGTERM)
        run.finish(expect=75, seconds=30)


def crash_loop(runner):
    """Three deaths of one rank at one step: the state before it is saved, and the run says what it is."""
    options = [word for _ in range(3) for word in ("--inject", "exit:2@5:forward,code=9")]
    saves = runner.folder / "loop"
    summary, log = runner.run([*options, "--save-dir", str(saves)], TRAINER, expect=1)
    if len(summary["incidents"]) != 3 or summary["incidents"][-1]["path"] != "dump":
        raise Failure(f"{[i['path'] for i in summary['incidents']]}\n{log[-3000:]}")
    if "died 3 times at step 5" not in log or "saved step 4" not in log:
        raise Failure(log[-3000:])
    resumed, log = runner.run(["--resume", str(saves), "--save-dir", str(saves)], TRAINER)
    if resumed["final_digest"] != reference(runner.bin, TRAINER)["final_digest"]:
        raise Failure(f"resumed to other bits\n{log[-3000:]}")


def two_deaths_at_a_step(runner):
    options = [word for _ in range(2) for word in ("--inject", "exit:2@5:forward,code=9")]
    summary, log = runner.run(options, TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)


def slow_rank(runner):
    """Told with figures, in the log and by `kintsugi status`; nothing is done about it."""
    steps = ["--steps", "60"]
    with LiveRun(runner, ["--inject", f"slow:1@4,ms={80 * SLOWNESS}"], steps) as run:
        run.wait_status(lambda s: s["ranks"][1]["late_ms"], "the slow rank's figure")
        status = run.status()
        if any(rank["late_ms"] for rank in status["ranks"] if rank["rank"] != 1) or status["ranks"][1]["late_ms"] > 200 * SLOWNESS:
            raise Failure(f"{status['ranks']}")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, steps), summary, log)
    if summary["incidents"] or "slow: " not in log or "behind the median rank" not in log:
        raise Failure(f"{summary['incidents']}\n{log[-3000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("a rank hangs in its forward pass", hang("hang:2@5:forward", ["adopt", "respawn"], [2])),
        ("rank 0 hangs in its update", hang("hang:0@5:update", ["respawn"], [0])),
        ("a rank hangs until it is stopped", hang("hang:1@5:backward,until=stop", ["retry"], [1])),
        ("hangs are not looked for", never_looked_for),
        ("a slow rank is named", slow_rank),
        ("a rank dies three times at one step", crash_loop),
        ("a rank dies twice at one step", two_deaths_at_a_step),
    ]))
