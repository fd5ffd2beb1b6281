"""The uneven cases of a step, forced: survivors held at the gate of update K, inside it, or past it while one rank dies.

With the gate, all live ranks meet at S without a repair: S = K where a live rank has begun update K, else K - 1. Without
it they may stand one step apart; then the run is repaired, or goes back to a checkpoint, or ends and says why.

  uneven.py BIN_DIR [--full] [--only WORD]...   --full: every combination, with and without tensor parallelism
"""
import argparse
import itertools
import json
import signal
import sys

from harness import Failure, main, must_be_same, only_incident, reference
from live_run import LiveRun

STEPS = 9
K = 5
VICTIM = 2
SURVIVORS = (0, 1, 3)

# Where a rank can be kept: the point that --hold names, and what the gate word then says.
GATE = ("gate", "at_gate", K)
UPDATE = ("update", "updating", K)
DONE = (None, "committed", K)  # not held: it waits in the parameter sync for those who are
BEFORE = ("gradient-sync", "committed", K - 1)
INSIDE_GATE = (None, "at_gate", K)  # not held: its barrier waits for those who are before it
MIRRORING = (None, "committed", K - 1)  # not held: it waits for its partner's mirrored objects
LETTERS = {"G": GATE, "U": UPDATE, "D": DONE, "B": BEFORE, "I": INSIDE_GATE, "M": MIRRORING}


def trainer(tp, *more):
    return ["--steps", str(STEPS), "--tp", str(tp), *more]


def holds(places):
    return [word for rank, place in places.items() if place[0] for word in ("--hold", f"{place[0]}:{rank}@{K}")]


def stand(status, places):
    return all(status["ranks"][rank].get("gate", {}).get("state") == state and
               status["ranks"][rank]["gate"]["step"] == step for rank, (_, state, step) in places.items())


def killed_while(runner, places, tp, run_args=(), more=(), expect=0):
    """Kills the victim once everybody stands where `places` says."""
    with LiveRun(runner, run_args, trainer(tp, *holds(places), *more)) as run:
        run.wait_status(lambda s: stand(s, places), f"ranks at {places}")
        run.signal_rank(VICTIM, signal.SIGKILL)
        return run.finish(expect)


def with_gate(letters, tp, adopts=False):
    """What the victim had committed counts where its launcher holds it: then S = K even if all others wait at the gate."""
    def test(runner):
        places = {**{rank: LETTERS[letter] for rank, letter in zip(SURVIVORS, letters)}, VICTIM: DONE}
        summary, log = killed_while(runner, places, tp, [] if adopts else ["--no-adopt"])
        must_be_same(reference(runner.bin, trainer(tp)), summary, log)
        incident = only_incident(summary)
        expected = K - 1 if set(letters) == {"G"} and not adopts else K
        rung = "adopt" if adopts else "respawn"
        if incident["step"] != expected or incident["path"] != rung or incident["ranks"] != [VICTIM]:
            raise Failure(f"S = {incident['step']} by {incident['path']} for {incident['ranks']}, expected {expected} by "
                          f"{rung} for [{VICTIM}]\n{log[-3000:]}")
    return test


def before_the_gate(letters):
    """Nobody passes a gate that one rank has not entered: S = K - 1 whichever ranks wait there. Letters: ranks 0 to 3."""
    def test(runner):
        places = dict(enumerate(LETTERS[letter] for letter in letters))
        summary, log = killed_while(runner, places, 1)
        must_be_same(reference(runner.bin, trainer(1)), summary, log)
        if only_incident(summary)["step"] != K - 1:
            raise Failure(f"S = {only_incident(summary)['step']}, expected {K - 1}\n{log[-3000:]}")
    return test


def without_gate(letters, run_args, rung, code=0):
    """Letters: ranks 0 to 3."""
    def test(runner):
        places = dict(enumerate(LETTERS[letter] for letter in letters))
        summary, log = killed_while(runner, places, 1, ["--no-adopt", *run_args], ["--gate", "off"], code)
        incident = only_incident(summary)
        if incident["path"] != rung:
            raise Failure(f"rung {incident['path']}, expected {rung}: {json.dumps(incident['reasons'])}\n{log[-3000:]}")
        if code == 0:
            must_be_same(reference(runner.bin, trainer(1)), summary, log)
        elif not any("no step" in reason["reason"] for reason in incident["reasons"]):
            raise Failure(f"no reason is told: {json.dumps(incident['reasons'])}")
    return test


def gate_off_without_fault(runner):
    summary, log = runner.run([], trainer(1, "--gate", "off"))
    must_be_same(reference(runner.bin, trainer(1)), summary, log)


def gate_off_killed_inside(runner):
    """Wherever the others are by chance: repaired, or back to a checkpoint; never other bits."""
    summary, log = runner.run(["--inject", f"kill:{VICTIM}@{K}:update", "--save-every", "2"], trainer(1, "--gate", "off"))
    must_be_same(reference(runner.bin, trainer(1)), summary, log)
    if only_incident(summary)["path"] not in ("respawn", "reload"):
        raise Failure(f"rung {only_incident(summary)['path']}")


def bad_holds(runner):
    for hold, word in (("gate:0", "POINT:RANK"), ("door:0@5", "no point 'door'"), ("gate:x@5", "ranks are numbered"),
                       ("gate:0@0", "steps are numbered")):
        _, log = runner.run([], trainer(1, "--hold", hold), expect=3)
        if word not in log:
            raise Failure(f"{hold}: no '{word}' in\n{log[-1500:]}")


def tests(full):
    for tp in (1, 2):
        for letters in itertools.product("GUD", repeat=3):
            if "".join(letters) == "DDD":
                continue  # nobody is held: the kill would come at no particular moment
            if full or (tp == 1 and "D" not in letters) or "".join(letters) in ("GUD", "DGG"):
                yield f"{''.join(letters)} tp {tp}", with_gate(letters, tp)
    for letters in ("GGG", "GUD"):
        yield f"{letters}, its memory is held", with_gate(letters, 1, adopts=True)
    for letters in ("BIMI", "BBBB", "IBIM"):
        yield f"{letters} before the gate", before_the_gate(letters)
    yield "gate off: the same bits", gate_off_without_fault
    yield "gate off, killed inside the update", gate_off_killed_inside
    yield "gate off, all have begun the update: repaired", without_gate("UDDU", [], "respawn")
    # Shards: ranks 0 and 2, ranks 1 and 3. Mirrored objects keep partners together: 0 and 2 are behind, 1 and 3 are not.
    yield "gate off, no common step: back to a checkpoint", without_gate("BDMD", ["--save-every", "2"], "reload")
    yield "gate off, no common step and no checkpoint: told", without_gate("BDMD", [], "exit", 1)
    yield "bad holds are refused", bad_holds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    sys.exit(main(tests(options.full), options.bin_dir, options.only))
