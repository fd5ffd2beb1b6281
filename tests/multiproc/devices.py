"""Faults of devices, simulated, against the real ladder: which rung follows, on which device, and always the same bits."""
import json
import os
import re
import sys

from harness import SMALL, Failure, must_be_same, only_incident, reference, script
from live_run import LiveRun

TRAINER = ["--steps", "12"]
# As on a device: what a process had in its memory is gone with it.
ON_DEVICE = ["--no-adopt"]
LONG = ["--steps", "40", "--step-delay-us", "20000", *SMALL]


def lives(log, rank):
    """The devices of a rank's processes, in order."""
    lines = [line for line in log.splitlines() if "event=spawned " in line and f" rank={rank} " in line]
    return [int(line.split("device=")[1].split()[0]) for line in lines]


def expect(summary, log, rung, ranks, signal, cause):
    incident = only_incident(summary)
    found = (incident["path"], incident["ranks"], incident["signal"])
    if found != (rung, ranks, signal) or cause not in incident["cause"]:
        raise Failure(f"expected {rung} of {ranks} after {signal}: {cause}\n{json.dumps(incident)[:2000]}\n{log[-3000:]}")


def process_is_replaced(xid, words, devices, expected, run_args=ON_DEVICE, rung="respawn"):
    """A fault that ends rank 1's process; `expected` are the devices of its two lives."""
    def test(runner):
        options = ["--inject", f"device:1@5:backward,xid={xid}", *run_args]
        if devices:
            options += ["--devices", str(devices)]
        summary, log = runner.run(options, TRAINER)
        must_be_same(reference(runner.bin, TRAINER), summary, log)
        expect(summary, log, rung, [1], "process_exit", f"Xid {xid}, {words}")
        if lives(log, 1) != expected:
            raise Failure(f"rank 1 lived on devices {lives(log, 1)}, expected {expected}\n{log[-3000:]}")
    return test


def harmless_is_watched(runner):
    summary, log = runner.run(["--inject", "device:1@5,xid=63", "--inject", "device:2@6,xid=92"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    if summary["incidents"]:
        raise Failure(f"an incident without need: {json.dumps(summary['incidents'])[:1500]}")
    for words in ("Xid 63, row remapping recorded", "Xid 92, high rate of single-bit memory errors"):
        if words not in log:
            raise Failure(f"'{words}' is not in the log\n{log[-3000:]}")


def damage_is_patched(runner):
    summary, log = runner.run(["--inject", "device:1@5,tensors=*exp_avg*"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    expect(summary, log, "patch", [1], "memory_low", "device memory error")
    if lives(log, 1) != [1]:
        raise Failure(f"rank 1 was started {len(lives(log, 1))} times; a patch needs no new process\n{log[-3000:]}")


def all_ranks_of_a_shared_device(runner):
    """Four ranks on three devices: 0 and 3 share one, which needs a reset."""
    summary, log = runner.run([*ON_DEVICE, "--devices", "3", "--inject", "device:3@5:backward,xid=95"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    for rank in (0, 3):
        if len(lives(log, rank)) != 2 or lives(log, rank)[1] == 0:
            raise Failure(f"rank {rank} lived on devices {lives(log, rank)}\n{log[-3000:]}")
    if any(incident["path"] != "respawn" for incident in summary["incidents"]):
        raise Failure(json.dumps(summary["incidents"])[:2000])


def without_a_device_left(runner):
    """No device is free: the ladder goes on, and what the others hold is saved."""
    summary, log = runner.run(["--devices", "4", "--inject", "device:1@5:backward,xid=79"], TRAINER, expect=75)
    incident = summary["incidents"][-1]
    if incident["path"] != "dump" or "no device is left for it on this node; excluded: device 1 (Xid 79" not in log:
        raise Failure(f"{json.dumps(incident)[:2000]}\n{log[-4000:]}")


def ordered_while_it_runs(runner):
    with LiveRun(runner, ON_DEVICE, LONG) as run:
        step = run.wait_step(5)["step"]
        done = runner.tool(["inject", "--run", str(run.run_dir), f"device:2@{step + 8}:forward,xid=94"])
        if done.returncode != 0:
            raise Failure(done.stderr)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    expect(summary, log, "respawn", [2], "process_exit", "Xid 94, contained memory error")


def found_by_nvml(visible, options, expect, lived, seen, order=None):
    """`visible`: CUDA_VISIBLE_DEVICES, of two devices; `lived`: on which the rank's processes were; `seen`: the list that each was given;
    `order`: CUDA_DEVICE_ORDER."""
    def test(runner):
        environment = {**os.environ, "KINTSUGI_NVML_LIBRARY": str(runner.bin.parent / "lib/libkintsugi_fake_nvml.so")}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        if order:
            environment["CUDA_DEVICE_ORDER"] = order
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        done = runner.tool(["run", "--nproc", "1", *options, "--inject", "device:0@5:backward,xid=95", "--", "sh", "-c",
                            'echo "sees <$CUDA_VISIBLE_DEVICES> in order <$CUDA_DEVICE_ORDER>" >&2; exec "$0" "$@"', runner.byte_lm, *TRAINER], env=environment)  # fmt: skip
        found = re.findall(r"^\[rank 0\] sees <(.*)> in order <(.*)>$", done.stderr, re.MULTILINE)
        if done.returncode != expect or lives(done.stderr, 0) != lived or found != [(one, order or ("PCI_BUS_ID" if options == () else "")) for one in seen]:
            raise Failure(f"exit code {done.returncode}, lived on {lives(done.stderr, 0)}, saw {found}\n{done.stderr[-4000:]}")
    return test


TESTS = {
    "a device that NVML finds fails: the rank finds another where it looked for it": found_by_nvml(None, (), 0, [0, 1], ["", "1,0"]),
    "the same of those that are visible": found_by_nvml("1,0", (), 0, [0, 1], ["1,0", "0,1"]),
    "no other is visible": found_by_nvml("1", (), 1, [0], ["1"]),
    "more devices than are visible": found_by_nvml("1", ("--devices", "2"), 2, [], []),
    "processes number devices in another order: none is watched": found_by_nvml(None, (), 1, [0], [""], "FASTEST_FIRST"),
    "the same, and devices are asked for": found_by_nvml(None, ("--devices", "2"), 2, [], [], "FASTEST_FIRST"),
    "devices are not asked for": found_by_nvml(None, ("--devices", "0"), 1, [0], [""]),
    "Xid 94, contained: a new process on the same device": process_is_replaced(94, "contained memory error", 5, [1, 1]),
    "Xid 94 where nobody counts devices": process_is_replaced(94, "contained memory error", 0, [1, 1]),
    "Xid 94 of a rank whose state lies on the host":
        process_is_replaced(94, "contained memory error", 5, [1, 1], (), "adopt"),
    "Xid 31: a new process on the same device": process_is_replaced(31, "memory management fault", 5, [1, 1]),
    "Xid 95, uncontained: a device that nobody has": process_is_replaced(95, "uncontained memory error", 5, [1, 4]),
    "Xid 79, off the bus: a device that nobody has": process_is_replaced(79, "the device has fallen off the bus", 5, [1, 4]),
    "an Xid that nobody knows: a device that nobody has":
        process_is_replaced(999, "which this version does not know", 5, [1, 4]),
    "harmless Xids are watched": harmless_is_watched,
    "damaged memory of named tensors is patched": damage_is_patched,
    "all ranks of a device that they share": all_ranks_of_a_shared_device,
    "no device is left": without_a_device_left,
    "ordered while the run goes on": ordered_while_it_runs,
}

if __name__ == "__main__":
    sys.exit(script(__doc__, list(TESTS.items())))
