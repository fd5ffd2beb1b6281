"""The uneven cases of a step, forced: some ranks inside the update, others held at its gate or before it; gate on and off.

With the gate, all live ranks meet at S without a repair: S = K where a live rank has begun update K, else K - 1. Without
it they may stand one step apart; then the run is repaired, or goes back to a checkpoint, or ends and says why.
"""
import itertools
import json
import sys

from harness import Failure, must_be_same, only_incident, reference, script

STEPS = 9
K = 5
VICTIM = 2
SURVIVORS = (0, 1, 3)


def trainer(tp, *more):
    return ["--steps", str(STEPS), "--tp", str(tp), *more]


def held_at_gate(held, tp):
    """The victim dies inside update K; `held` have passed the gate's barrier but not the gate."""
    def test(runner):
        ranks = ",".join(str(rank) for rank in held)
        summary, log = runner.run(["--inject", f"kill:{VICTIM}@{K}:update"], trainer(tp, "--hold", f"gate:{ranks}@{K}"))
        must_be_same(reference(runner.bin, trainer(tp)), summary, log)
        incident = only_incident(summary)
        expected = K - 1 if held == SURVIVORS else K
        if incident["step"] != expected or incident["path"] != "respawn":
            raise Failure(f"S = {incident['step']} by {incident['path']}, expected {expected} by respawn\n{log[-3000:]}")
    return test


def held_before_gate(held, tp):
    """`held` have all inputs of update K but are not at its gate, so nobody passes it; the victim dies at the gate."""
    def test(runner):
        ranks = ",".join(str(rank) for rank in held)
        summary, log = runner.run(["--inject", f"kill:{VICTIM}@{K}:gate"],
                                  trainer(tp, "--hold", f"gradient-sync:{ranks}@{K}"))
        must_be_same(reference(runner.bin, trainer(tp)), summary, log)
        if only_incident(summary)["step"] != K - 1:
            raise Failure(f"S = {only_incident(summary)['step']}, expected {K - 1}\n{log[-3000:]}")
    return test


def gate_off(run_args, held, accepted):
    """Without the gate: `held` stay at K - 1 while the others update and the victim dies; `accepted`: exit code -> rungs."""
    def test(runner):
        ranks = ",".join(str(rank) for rank in held)
        hold = ["--hold", f"gradient-sync:{ranks}@{K}"] if held else []
        code = next(iter(accepted))
        summary, log = runner.run(["--inject", f"kill:{VICTIM}@{K}:update", *run_args], trainer(1, "--gate", "off", *hold),
                                  expect=code)
        incident = only_incident(summary)
        if incident["path"] not in accepted[code]:
            raise Failure(f"rung {incident['path']}, expected one of {accepted[code]}: {json.dumps(incident['reasons'])}")
        if code == 0:
            must_be_same(reference(runner.bin, trainer(1)), summary, log)
        elif not any("no step" in reason["reason"] for reason in incident["reasons"]):
            raise Failure(f"no reason is told: {json.dumps(incident['reasons'])}")
    return test


def gate_off_without_fault(runner):
    summary, log = runner.run([], trainer(1, "--gate", "off"))
    must_be_same(reference(runner.bin, trainer(1)), summary, log)


def bad_holds(runner):
    for hold, word in (("gate:0", "POINT:RANK"), ("door:0@5", "no point 'door'"), ("gate:x@5", "ranks are numbered"),
                       ("gate:0@0", "steps are numbered")):
        _, log = runner.run([], trainer(1, "--hold", hold), expect=3)
        if word not in log:
            raise Failure(f"{hold}: no '{word}' in\n{log[-1500:]}")


def tests():
    for tp in (1, 2):
        for count in (1, 2, 3):
            for held in itertools.combinations(SURVIVORS, count):
                yield f"others updating, {held} at the gate, tp {tp}", held_at_gate(held, tp)
    for held in ((0,), (1, 3), SURVIVORS):
        yield f"victim at the gate, {held} before it", held_before_gate(held, 1)
    yield "gate off: the same bits", gate_off_without_fault
    # Shards: ranks 0 and 2, ranks 1 and 3. Rank 1 behind: 0 and 3 hold everything at K.
    yield "gate off, a rank behind whose partner is not: repaired", gate_off([], (1,), {0: ["respawn"]})
    # Rank 0 behind, 2 gone: the shard is held at K - 1 only, the other one at K only.
    yield "gate off, no common step: back to a checkpoint", gate_off(["--save-every", "2"], (0,), {0: ["reload"]})
    yield "gate off, no common step and no checkpoint: told", gate_off([], (0,), {1: ["exit"]})
    yield "gate off, nobody held: repaired", gate_off(["--save-every", "2"], (), {0: ["respawn", "reload"]})
    yield "bad holds are refused", bad_holds


if __name__ == "__main__":
    sys.exit(script(__doc__, list(tests())))
