"""byte_lm whose state lies in device memory, struck and mended: the bits are those of the undisturbed run.

    gpu_trainer.py BIN_DIR [--emulated LIBRARY] [--json FILE] [--ranks N] [--only WORD]... [--budget-seconds S]

On a GPU all ranks share one device. With --emulated the program is byte_lm_emulated over the fake device in LIBRARY: the
host's side of the same path. --json: where the time of each recovery went, as figures. Tests that the budget leaves no time
for are skipped and say so.
"""
import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

from harness import Failure, Runner, Skip, main, must_be_same, only_incident

SMALL = ["--steps", "10", "--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--batch", "2"]
ROOT = Path(__file__).resolve().parents[2]
DEVICE = ["--steps", "30", "--data", str(ROOT / "runtime")]  # text that is there on any machine
QUICK = ["--hang-least", "2"]
POINTS = ["detected", "parked", "rebuilt", "repaired", "resumed"]
SECONDS_PER_RUN = 60  # what a run on a device may take; several ranks take turns on it


class World:
    """How runs of this call look, and what they showed."""

    def __init__(self, options):
        self.options = options
        self.trainer = ["--device", "cuda", "--timings", *(SMALL if options.emulated else DEVICE)]
        self.end = time.monotonic() + options.budget_seconds
        self.undisturbed = None
        self.figures = []

    def run(self, runner, run_args=(), trainer_args=(), expect=0):
        if self.options.emulated:
            runner.byte_lm = str(runner.bin / "byte_lm_emulated")
        left = self.end - time.monotonic()
        if left < 10:
            raise Skip("no time left")
        return runner.run(["--devices", "1", "--no-adopt", *run_args], [*self.trainer, *trainer_args],
                          nproc=self.options.ranks, timeout=min(left, 4 * SECONDS_PER_RUN), expect=expect)

    def reference(self):
        """The undisturbed run, made once."""
        if self.undisturbed is None:
            runner = Runner(self.options.bin_dir)
            try:
                self.undisturbed, _ = self.run(runner)
            finally:
                runner.close()
        return self.undisturbed

    def record(self, name, incident, log):
        # What a new process spends before it joins, and all ranks on their groups: the last of each is the incident's.
        for event in ("device_opened", "groups_connected"):
            times = re.findall(rf"event={event}\b.*?elapsed_ms=([0-9.e+]+)", log)
            if times:
                self.figures.append({"id": f"trainer/{name}/{event}", "value": float(times[-1]), "unit": "ms", "ok": True})
        for point in POINTS:
            value = incident.get(point + "_ms")
            if value is not None:
                self.figures.append({"id": f"trainer/{name}/{point}", "value": value, "unit": "ms", "ok": True})


def struck(world, name, spec, paths, run_args=(), trainer_args=()):
    """One fault; the rungs that may mend it."""
    def test(runner):
        expected = world.reference()  # `trainer_args` change times alone
        summary, log = world.run(runner, ["--inject", spec, *run_args], trainer_args)
        must_be_same(expected, summary, log)
        incident = only_incident(summary)
        if incident["path"] not in paths:
            raise Failure(f"rung {incident['path']}, expected {paths}\n{json.dumps(incident)[:2000]}\n{log[-3000:]}")
        world.record(name, incident, log)
    return test


def twice_the_same(world):
    def test(runner):
        expected = world.reference()
        summary, log = world.run(runner)
        must_be_same(expected, summary, log)
        if summary["incidents"]:
            raise Failure(f"an incident without a fault: {json.dumps(summary['incidents'])[:2000]}")
    return test


def tests_of(world):
    last = world.options.ranks - 1
    return [
        ("two undisturbed runs give the same bits", twice_the_same(world)),
        ("killed in a backward pass", struck(world, "kill", f"kill:{last}@4:backward", ["respawn"])),
        ("killed within an update", struck(world, "kill-in-update", f"kill:{last}@5:update", ["respawn"])),
        ("an exception within an update", struck(world, "throw", "throw:1@5:update", ["rebuild", "patch"])),
        ("an exception outside of one", struck(world, "throw-outside", "throw:1@5:forward", ["retry"])),
        ("damaged device memory of named tensors",
         struck(world, "damaged", "uce:1@5:backward,tensors=*exp_avg*", ["patch"])),
        ("hangs beside a collective that the others are in",
         # Steps long enough that several are seen: what a step takes is learnt.
         struck(world, "hang", "hang:1@7:forward", ["respawn"], QUICK, ["--step-delay-us", "50000"])),
        ("a spare with a context takes the place of a killed rank",
         struck(world, "spare", f"kill:{last}@8:backward", ["spare"], ["--spares", "1"],
                ["--step-delay-us", "200000"])),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--emulated", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--budget-seconds", type=float, default=540)
    chosen = parser.parse_args()
    if chosen.emulated:
        for library in ("CUDA", "NCCL", "CUBLAS"):
            os.environ[f"KINTSUGI_{library}_LIBRARY"] = str(chosen.emulated.resolve())
    world = World(chosen)
    code = main(tests_of(world), chosen.bin_dir, chosen.only)
    if chosen.json:
        chosen.json.write_text(json.dumps({"name": "gpu_trainer", "figures": world.figures}, indent=1) + "\n")
    sys.exit(code)
