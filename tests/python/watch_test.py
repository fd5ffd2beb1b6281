"""`kintsugi watch` over plain torch scripts, in which one rank does something else than the others: that rank is named, and no other. Over one that does
all that torch offers on a cpu, undisturbed: nothing is said, and output and exit code are its own.

  watch_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--all] [--only WORD]... [--times FILE] [--peer]

--all: every divergence of hang_steps.py, over DDP, FSDP2 and tensor parallelism. --times: how long each took to be named, as JSON. --peer: what torch
says of the same over FSDP2 (its DETAIL ends DDP over Gloo by SIGSEGV, as of 2.13), without us and with TORCH_DISTRIBUTED_DEBUG=DETAIL, with a timeout
of the groups of 10 s; nothing is checked then.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from door import HERE, Door, Failure, main
from hang_steps import PLACES, STANDS
from hang_test import ANY, RANKS, WHY, divergences

LIMIT_S = 120  # of one divergence, its start included
QUICK = (("ddp", "sleeps"), ("ddp", "groups_in_other_order"), ("ddp", "ends_early"), ("tp", "is_stopped"))
SAID = re.compile(r"event=hang why=(\S+) ranks=(\S+) text=(.*)")


class Watched:
    """A program under `kintsugi watch`, ended with all that it started."""

    def __init__(self, door, program, options=(), watch=True):
        prefix = [str(door.bin / "kintsugi"), "watch", *options, "--"] if watch else []
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.process = subprocess.Popen([*prefix, *program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                        env={**environment, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **door.extra})  # fmt: skip
        self._over = threading.Timer(LIMIT_S, self.kill)
        self._over.start()

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _marks(self):
        """The command's own folder, which it cannot remove where it is killed."""
        try:
            child = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0]
            words = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            return None
        return next((os.fsdecode(word.partition(b"=")[2]) for word in words if word.startswith(b"KINTSUGI_WATCH_MARKS=")), None)

    def end(self):
        self._over.cancel()
        marks = self._marks()
        self.kill()
        if marks:
            shutil.rmtree(marks, ignore_errors=True)
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def whole(self):
        """(exit code, standard output, standard error)"""
        try:
            out, err = self.process.communicate()
            return self.process.returncode, out, err
        finally:
            self._over.cancel()
            self.kill()


def steps(door, mode, fault, culprit):
    return [door.python, "-W", "ignore", str(HERE / "watch_ranks.py"), str(HERE / "hang_steps.py"), "--plain", "--mode", mode, "--fault", fault,
            "--culprit", str(culprit)]  # fmt: skip


def told(door, program):
    """(why, ranks, text, seconds from the fault until it was said), of all that is said of the divergence; the program is ended with the first."""
    watched = Watched(door, program)
    planted, found, log = None, None, []
    try:
        for line in watched.process.stderr:
            log.append(line)
            if stamp := re.search(r"PLANTED ([0-9.]+)", line):
                planted = float(stamp[1])
            if said := SAID.search(line):
                found = (said[1], said[2], said[3].strip(), time.monotonic() - (planted or time.monotonic()))
                break
    finally:
        watched.end()
    if found is None or planted is None:
        raise Failure(f"nothing was said of it\n{''.join(log)[-5000:]}")
    return found


def check(door, mode, fault, culprit, times):
    def test(_):
        why, ranks, text, seconds = told(door, steps(door, mode, fault, culprit))
        times.append({"mode": mode, "fault": fault, "culprit": culprit, "why": why, "ranks": ranks, "seconds": round(seconds, 3), "text": text})
        allowed = WHY.get(fault, {"missing"} if fault in STANDS or fault in PLACES[:2] else ANY)
        if ranks != str(culprit) or why not in allowed:
            raise Failure(f"rank {culprit} did it ({'/'.join(sorted(allowed))}); said: {why} of {ranks}: {text}")
    return test


def is_its_own(door):
    """Nothing is said of a program that is well: its output and its exit code are what they are without us."""
    program = [door.python, "-W", "ignore", str(HERE / "watch_ranks.py"), str(HERE / "watch_plain.py")]
    alone, beside = Watched(door, program, watch=False).whole(), Watched(door, program).whole()
    if alone[0] != 7 or beside[:2] != alone[:2] or "watch" in beside[2]:  # torch's own warnings have times in them
        raise Failure(f"alone: {alone}\nwatched: {beside}")


def under_torchrun(door):
    """As a user starts it: the launcher's processes are no ranks, and its own words stay."""
    launched = [door.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), str(HERE / "hang_steps.py"), "--plain"]
    why, ranks, text, _ = told(door, [*launched, "--fault", "other_size", "--culprit", "2"])
    if (why, ranks) != ("other-size", "2") or "9 float32" not in text:
        raise Failure(f"rank 2 came with other sizes; said: {why} of {ranks}: {text}")


def ends_as_it_did(door):
    """Exit codes and signals are the program's; what it is not told of, it does not get."""
    for program, code in ((["sh", "-c", "exit 5"], 5), (["sh", "-c", "kill -TERM $$"], -15), ([door.python, "-c", "print('no torch here')"], 0)):
        found, out, err = Watched(door, program).whole()
        if found != code or "nothing was watched" not in err:
            raise Failure(f"{program}: {found} for {code}\n{err}")
    # A signal that comes to the command alone is handed on; one more process of its group gets Ctrl-C by itself.
    waiting = Watched(door, ["sh", "-c", "trap 'echo came; exit 9' TERM; echo ready; while :; do sleep 0.05; done"])
    waiting.process.stdout.readline()
    waiting.process.send_signal(signal.SIGTERM)
    found, out, _ = waiting.whole()
    if (found, out) != (9, "came\n"):
        raise Failure(f"a signal was not handed on: {found} {out!r}")


def refuses(door):
    for options, program, code, words in (((), [], 2, "program"), ((), ["no-such-program"], 3, "no-such-program' cannot be started"),
                                          (("--least", "5", "--most", "2"), ["true"], 2, "--most is less than --least"),
                                          (("--log-file", "/no/such/folder/log"), ["true"], 2, "/no/such/folder/log")):  # fmt: skip
        found, _, err = Watched(door, program, options).whole()
        if found != code or words not in err:
            raise Failure(f"{options} {program}: {found} for {code}\n{err}")


def goes_on(door):
    """A wait that ends by itself is said to have ended, and is no failure."""
    found, _, err = Watched(door, [door.python, "-W", "ignore", str(HERE / "watch_ranks.py"), str(HERE / "watch_late.py")]).whole()
    if found != 0 or not re.search(r"event=hang why=missing ranks=3 ", err) or "event=hang_over" not in err or "watch_late.py" not in err:
        raise Failure(f"rank 3 was late: {found}\n{err[-4000:]}")


def leaves(door):
    """A rank that ends before the others fail is who they miss, whether they have failed already (it has ended, then) or wait (it may be on its way out)."""
    found, _, err = Watched(door, [door.python, "-W", "ignore", str(HERE / "watch_ranks.py"), str(HERE / "watch_leaves.py")]).whole()
    said = SAID.findall(err)
    if found == 0 or len(said) != 1 or said[0][:2] != ("missing", "2") or "all_reduce 13" not in said[0][2]:
        raise Failure(f"rank 2 left early: {found}, {said}\n{err[-3000:]}")


PLAIN = {"says nothing of a program that is well": is_its_own, "ends as the program did": ends_as_it_did, "refuses what cannot be": refuses,
         "a wait that ends": goes_on, "a rank that leaves early": leaves, "under torchrun": under_torchrun}  # fmt: skip


# ---- torch's own words ----------------------------------------------------------------------------------------------------------

PEER_TIMEOUT_S = 10


def peer(door, mode, fault, culprit):
    """Seconds until the first error, and its line, for each of torch's two ways."""
    rows = []
    for detail in (False, True):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if detail else {})}
        program = [*steps(door, mode, fault, culprit), "--timeout", str(PEER_TIMEOUT_S)]
        process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment)
        over = threading.Timer(LIMIT_S, lambda group=process.pid: os.killpg(group, signal.SIGKILL))
        over.start()
        planted, seconds, text = None, None, ""
        for line in process.stderr:
            if stamp := re.search(r"PLANTED ([0-9.]+)", line):
                planted = float(stamp[1])
            elif seconds is None and planted and re.search(r"^(\[rank\d\]: )?([\w.]*Error\b|terminate called)", line.strip()):
                seconds, text = time.monotonic() - planted, line.strip()
                break
        over.cancel()
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stderr.close()
        rows.append({"detail": detail, "seconds": seconds and round(seconds, 1), "text": text})
    return rows


PEER_FAULTS = ("sleeps", "is_stopped", "holds_the_lock_of_python", "ends_early", "barrier_for_all_reduce", "other_size", "other_root", "groups_in_other_order",
               "a_sum_less")  # fmt: skip


def tell_peers(door, only, file):
    table = []
    for number, fault in enumerate(PEER_FAULTS):
        mode, culprit = "fsdp", 1 + number % (RANKS - 1)
        if only and not any(word in fault.replace("_", " ") for word in only):
            continue
        rows = peer(door, mode, fault, culprit)
        table.append({"mode": mode, "fault": fault, "culprit": culprit, "torch": rows})
        for row in rows:
            print(f"{mode} {fault} (rank {culprit}) {'DETAIL' if row['detail'] else 'plain'}: {row['seconds']} s: {row['text'][:300]}", flush=True)
    if file:
        with open(file, "w") as out:
            json.dump(table, out, indent=1)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    everything = "--all" in arguments
    file = arguments.pop(arguments.index("--times") + 1) if "--times" in arguments else None
    only = [word for flag, word in zip(arguments, arguments[1:]) if flag == "--only"]
    door = Door(arguments[:3])
    door.extra = {}
    if subprocess.run([door.python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"], check=False).returncode:
        print(f"SKIPPED: {door.python} has no torch; ./tools/setup --python installs it")
        sys.exit(77)
    times = []
    wanted = [(mode, fault, culprit) for mode, fault, culprit in divergences() if everything or (mode, fault) in QUICK]
    if "--peer" in arguments:
        tell_peers(door, only, file)
        sys.exit(0)
    cases = [*PLAIN.items(), *((f"{mode}: {fault.replace('_', ' ')}", check(door, mode, fault, culprit, times)) for mode, fault, culprit in wanted)]
    try:
        code = main([(name, (lambda _, test=test: test(door)) if test in PLAIN.values() else test) for name, test in cases], door.bin, only)
    finally:
        if file:
            with open(file, "w") as out:
                json.dump(times, out, indent=1)
    sys.exit(code)
