"""The fault matrix: every kind of fault in every phase of a step, on chosen ranks, with and without tensor parallelism.

After each fault the run must end with the digest, the losses and the samples of the undisturbed run, by the rung that
the issue of the fault calls for, and leave no process behind.

  fault_matrix.py BIN_DIR [--full] [--only WORD]...   --full: 5 kinds x 7 phases x ranks 0 and 2 x tp 1 and 2 (140 runs)
"""
import argparse
import sys

from harness import SLOWNESS, Failure, main, must_be_same, only_incident, reference

KINDS = ["kill", "exit", "throw", "freeze", "uce", "uce-high"]
PHASES = ["forward", "backward", "gradient-sync", "gate", "update", "param-sync", "between"]
STEPS = 10
STRUCK = 5


def expected_rungs(kind, phase):
    if kind in ("kill", "exit", "freeze"):
        # Whole memory outlives its process. A process that the controller ends may be reaped when all is decided.
        return ["respawn"] if phase == "update" else ["adopt", "respawn"][:2 if kind == "freeze" else 1]
    if phase == "update":
        return ["rebuild"]
    return [{"throw": "retry", "uce": "patch", "uce-high": "rebuild"}[kind]]


def spec(kind, rank, phase):
    level = ",level=high" if kind == "uce-high" else ""
    return f"{kind.split('-')[0]}:{rank}@{STRUCK}:{phase}{level}"


def cell(kind, phase, rank, tp):
    def test(runner):
        trainer = ["--steps", str(STEPS), "--tp", str(tp)]
        summary, log = runner.run(["--inject", spec(kind, rank, phase), "--silence", str(0.4 * SLOWNESS)], trainer)
        incident = only_incident(summary)
        must_be_same(reference(runner.bin, trainer), summary, log)
        if incident["path"] not in expected_rungs(kind, phase):
            raise Failure(f"rung {incident['path']}, expected {expected_rungs(kind, phase)}\n{log[-3000:]}")
        if incident["ranks"] != [rank]:
            raise Failure(f"root causes {incident['ranks']}, expected [{rank}]\n{log[-3000:]}")
        if incident["resumed_ms"] is None:
            raise Failure("the incident has no resumption")
    return test


def chosen_cells(full):
    for tp in (1, 2):
        for rank in (0, 2):
            for kind in KINDS:
                for phase in PHASES:
                    # The short form: each kind in its own phase and each phase once, at one rank and one tp each.
                    short = (KINDS.index(kind) + PHASES.index(phase)) % 4 == (tp - 1) + (rank // 2) * 2
                    if full or (short and (PHASES.index(phase) + KINDS.index(kind)) % 3 == 0):
                        yield kind, phase, rank, tp


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    cells = [(f"{kind} {phase} rank {rank} tp {tp}", cell(kind, phase, rank, tp))
             for kind, phase, rank, tp in chosen_cells(options.full)]
    sys.exit(main(cells, options.bin_dir, options.only))
