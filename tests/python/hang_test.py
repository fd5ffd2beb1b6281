"""A hang is explained: of seeded divergences, in which one rank does something else than the others, the log names that rank, and no other.

  hang_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--all] [--only WORD]... [--times FILE]

--all: every divergence, over DDP, FSDP2 and tensor parallelism. --times: how long each took to be named, as JSON.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from door import HERE, Door, Failure, main, skip_without_torch
from hang_steps import CALLS, PLACES, STANDS

RANKS = 4
LIMIT_S = 90  # of one divergence, its start included
# What may be said of it beside "missing"; the ranks are the culprit alone, in every case.
WHY = {
    "holds_the_lock_of_python": {"stopped"},
    "saves_where_nobody_reads": {"missing", "stopped"},  # torch opens the file with Python's lock
    "is_stopped": {"no-answer", "stopped", "silence"},
    "other_size": {"other-size"},
    "other_type": {"other-type"},
    "other_root": {"other-root"},
    "reduce_for_all_reduce": {"other-kind"},
    "broadcast_for_all_reduce": {"other-kind"},
    "barrier_for_all_reduce": {"other-kind"},
    "gather_for_all_gather": {"other-kind"},
    "all_to_all_for_all_gather": {"other-kind"},
    "objects_for_tensors": {"other-kind"},
    "a_barrier_more": {"other-kind"},
    "groups_in_other_order": {"other-order"},
}
# Where one is left out, or made more, the culprit is in the next one: of another group, or another kind.
ANY = {"missing", "other-kind", "other-order", "other-size", "other-root", "other-type"}
QUICK = (("ddp", "sleeps"), ("ddp", "holds_the_lock_of_python"), ("ddp", "groups_in_other_order"), ("fsdp", "a_barrier_more"))


def divergences():
    """(mode, fault, culprit): each over DDP, and every third over FSDP2 and tensor parallelism, too."""
    faults = [*STANDS, *(call for call in CALLS if call != "a_barrier_less_for_others"), *PLACES]
    for number, fault in enumerate(faults):
        yield "ddp", fault, number % RANKS
        if number % 3 == 0:
            yield "fsdp", fault, (number + 1) % RANKS
        if number % 3 == 1:
            yield "tp", fault, (number + 2) % RANKS


def told(door, mode, fault, culprit, arguments=("--hang-least", "60", "--silence", "3")):
    """(why, ranks, text, seconds from the fault until it was said) of the first explanation; the run is ended with it."""
    program = [str(HERE / "hang_steps.py"), "--mode", mode, "--fault", fault, "--culprit", str(culprit)]
    with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
        command = [str(door.bin / "kintsugi"), "run", "--nproc", str(RANKS), "--save-dir", "", *door._preload, *arguments, "--", door.python, "-W", "ignore", *program]
        run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=door.environment(), start_new_session=True)
        over = threading.Timer(LIMIT_S, os.killpg, (run.pid, signal.SIGKILL))
        over.start()
        planted, found, log = None, None, []
        try:
            for line in run.stderr:
                log.append(line)
                if stamp := re.search(r"PLANTED ([0-9.]+)", line):
                    planted = float(stamp[1])
                if said := re.search(r"event=hang why=(\S+) ranks=(\S+) text=(.*)", line):
                    found = (said[1], said[2], said[3], time.monotonic() - (planted or time.monotonic()))
                    break
                if said := re.search(r"event=incident .*cause=\"?(silence)[^ ]* (.*)ranks=(\S+)", line):
                    found = (said[1], said[3], line, time.monotonic() - (planted or time.monotonic()))
                    break
        finally:
            over.cancel()
            try:
                os.killpg(run.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            run.wait()
            run.stderr.close()
        if found is None or planted is None:
            raise Failure(f"nothing was said of it\n{''.join(log)[-5000:]}")
    return found


def check(door, mode, fault, culprit, times):
    def test(_):
        why, ranks, text, seconds = told(door, mode, fault, culprit)
        times.append({"mode": mode, "fault": fault, "culprit": culprit, "why": why, "ranks": ranks, "seconds": round(seconds, 3), "text": text.strip()})
        allowed = WHY.get(fault, {"missing"} if fault in STANDS or fault in PLACES[:2] else ANY)
        if ranks != str(culprit) or why not in allowed:
            raise Failure(f"rank {culprit} did it ({'/'.join(sorted(allowed))}); said: {why} of {ranks}: {text}")
    return test


if __name__ == "__main__":
    arguments = sys.argv[1:]
    everything = "--all" in arguments
    file = arguments.pop(arguments.index("--times") + 1) if "--times" in arguments else None
    only = [word for flag, word in zip(arguments, arguments[1:]) if flag == "--only"]
    door = Door(arguments[:3], preload="torch,kintsugi.torch")
    skip_without_torch(door)
    times = []
    wanted = [(mode, fault, culprit) for mode, fault, culprit in divergences() if everything or (mode, fault) in QUICK]
    try:
        code = main([(f"{mode}: {fault.replace('_', ' ')}", check(door, mode, fault, culprit, times)) for mode, fault, culprit in wanted], door.bin, only)
    finally:
        if file:
            with open(file, "w") as out:
                json.dump(times, out, indent=1)
    sys.exit(code)
