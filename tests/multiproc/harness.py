"""What the tests with real processes share: running kintsugi, reading its summary, finding orphans."""
import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


# How many times as slow as a release build this one is: 1, more with a sanitizer (CMakeLists.txt).
SLOWNESS = int(os.environ.get("KINTSUGI_TEST_SLOWNESS", "1"))


# A network that costs next to nothing: for runs that are about who is told what and when, over many steps.
SMALL = ["--layers", "1", "--width", "16", "--context", "16"]


class Failure(Exception):
    pass


class Runner:
    """Runs `kintsugi run ... -- byte_lm ...` in a folder of its own and checks that nothing is left behind."""

    def __init__(self, bin_dir):
        self.bin = Path(bin_dir).resolve()
        self.kintsugi = str(self.bin / "kintsugi")
        self.byte_lm = str(self.bin / "byte_lm")
        self.folder = Path(tempfile.mkdtemp(prefix="kintsugi-test-"))
        self.live = []  # runs begun and looked after by live_run.py
        self.before = []  # words in front of the program

    def close(self):
        for run in self.live:
            run.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, run_args, trainer_args, nproc=4):
        saves = [] if "--save-dir" in run_args else ["--save-dir", str(self.folder / "checkpoints")]
        return [self.kintsugi, "run", "--nproc", str(nproc), "--json", "-", "--log-level", "info", *saves, *run_args, "--", *self.before,
                self.byte_lm, "--samples", "0", *trainer_args]

    @contextlib.contextmanager
    def held_at_start(self):
        """While in it, processes that start wait in front of their program, however late the test looks at them. REQUIRES: may_hold."""
        gate = self.folder / "hold"
        gate.touch()
        try:
            yield
        finally:
            gate.unlink()

    def may_hold(self):
        self.before = ["sh", "-c", 'while [ -e hold ]; do sleep 0.05; done; exec "$@"', "sh"]

    def tool(self, args, timeout=60, **options):
        """Any kintsugi command; what it printed and its code."""
        return subprocess.run([self.kintsugi, *args], capture_output=True, text=True, timeout=timeout * SLOWNESS,
                              **{"cwd": self.folder, **options})

    def attempt(self, run_args=(), trainer_args=(), nproc=4, timeout=120):
        """Exit code, summary, log."""
        done = subprocess.run(self.command(run_args, trainer_args, nproc), cwd=self.folder, capture_output=True,
                              text=True, timeout=timeout * SLOWNESS)
        orphans = self.orphans()
        if orphans:
            raise Failure(f"left running: {orphans}")
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

    def run(self, run_args=(), trainer_args=(), nproc=4, timeout=120, expect=0):
        code, summary, log = self.attempt(run_args, trainer_args, nproc, timeout)
        if code != expect:
            raise Failure(f"exit code {code}, expected {expect}\n{log[-6000:]}")
        return summary, log

    def run_struck(self, groups, run_args, trainer_args, expect=0, run=None):
        """A run whose incidents are that the ranks of each group are lost together. Who is struck first may stop another
        before the gate, and then that one goes on: tried again, from nothing. `run`: gives exit code, summary and log."""
        for _ in range(10):
            code, summary, log = run() if run else self.attempt(run_args, trainer_args)
            if [sorted(incident["ranks"]) for incident in summary["incidents"]] == [sorted(group) for group in groups]:
                if code != expect:
                    raise Failure(f"exit code {code}, expected {expect}\n{log[-6000:]}")
                return summary, log
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        raise Failure(f"{groups} were never lost together: {json.dumps(summary['incidents'])[:2000]}\n{log[-6000:]}")

    def orphans(self):
        """Processes that still run our byte_lm."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.readlink(entry / "exe") == os.path.realpath(self.byte_lm):
                    environ = (entry / "environ").read_bytes()
                    if b"KINTSUGI_JOB" in environ and str(self.folder).encode() in os.readlink(entry / "cwd").encode():
                        found.append(int(entry.name))
            except OSError:
                continue
        return found


_references = {}


def reference(bin_dir, trainer_args, run_args=(), nproc=4):
    """The summary of the undisturbed run with these arguments, which sleeps in no step; made once."""
    trainer_args = list(trainer_args)
    if "--step-delay-us" in trainer_args:
        at = trainer_args.index("--step-delay-us")
        del trainer_args[at:at + 2]
    key = (tuple(trainer_args), tuple(run_args), nproc)
    if key not in _references:
        runner = Runner(bin_dir)
        try:
            _references[key], _ = runner.run(run_args, trainer_args, nproc)
        finally:
            runner.close()
    return _references[key]


def must_be_same(expected, summary, log=""):
    difference = same_training(expected, summary)
    if difference:
        raise Failure(f"{difference}\n{json.dumps(summary['incidents'])[:1500]}\n{log[-3000:]}")


class Skip(Exception):
    """A test that cannot run here; says why."""


def same_training(reference, summary, reports_lost=False):
    """Why the two runs differ, or None. `reports_lost`: nodes were lost with what their ranks had reported, so the run's
    book of samples is short, and the losses of some steps are null; the state is not concerned."""
    sums = () if reports_lost else ("samples_digest", "samples_consumed")
    for field in ("final_digest", *sums, "steps"):
        if reference[field] != summary[field]:
            return f"{field}: {reference[field]} undisturbed, {summary[field]} disturbed"
    if len(reference["losses"]) != len(summary["losses"]):
        return f"losses of {len(reference['losses'])} steps undisturbed, of {len(summary['losses'])} disturbed"
    for step, (expected, loss) in enumerate(zip(reference["losses"], summary["losses"]), 1):
        if loss != expected and not (reports_lost and loss is None):
            return f"loss of step {step}: {expected} undisturbed, {loss} disturbed"
    if not summary["final_digest"]:
        return "no final digest"
    return None


def descriptors(pid):
    """(number, what it is) of a process's open files; one that is closed meanwhile is left out."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield int(number), os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            continue


def only_incident(summary):
    if len(summary["incidents"]) != 1:
        raise Failure(f"{len(summary['incidents'])} incidents: {json.dumps(summary['incidents'])[:2000]}")
    return summary["incidents"][0]


def spent():
    """Seconds, and processor seconds of this process and of those that it has waited for."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.monotonic(), sum(one.ru_utime + one.ru_stime for one in times)


def beside(test):
    """A test that mostly waits for a limit to pass: it runs beside the others of its file."""
    def run(runner):
        test(runner)
    run.beside = True
    return run


def part_of(tests):
    """Those that this ctest entry has of a file's tests: KINTSUGI_TEST_PART=K/N, the Kth of N stretches (CMakeLists.txt)."""
    part, parts = (int(number) for number in os.environ.get("KINTSUGI_TEST_PART", "1/1").split("/"))
    return tests[len(tests) * (part - 1) // parts:len(tests) * part // parts]


def attempt(name, test, bin_dir):
    """Runs it, and prints a line; "ok", "skipped" or "failed". The processors' seconds are also those of what runs beside it."""
    runner = Runner(bin_dir)
    began = spent()
    try:
        test(runner)
        seconds, processor = (now - then for now, then in zip(spent(), began))
        line, outcome = f"ok      {name} ({seconds:.1f} s, {processor:.1f} s of processors)", "ok"
    except Skip as reason:
        line, outcome = f"SKIPPED: {name}: {reason}", "skipped"
    except (Failure, subprocess.TimeoutExpired, KeyError, OSError, json.JSONDecodeError) as error:
        line, outcome = f"FAILED  {name}: {type(error).__name__} {str(error)[-12000:]}", "failed"
    finally:
        runner.close()
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return outcome


def main(tests, bin_dir, chosen=()):
    """Runs the functions; prints one line each and the totals; returns the exit code, 77 where all were skipped."""
    tests = [(name, test) for name, test in part_of(list(tests)) if not chosen or any(word in name for word in chosen)]
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(attempt, name, test, bin_dir) for name, test in tests if hasattr(test, "beside")]
        outcomes = [attempt(name, test, bin_dir) for name, test in tests if not hasattr(test, "beside")]
        outcomes += [one.result() for one in waiting]
    failed, skipped = outcomes.count("failed"), outcomes.count("skipped")
    print(f"{outcomes.count('ok')} passed, {failed} failed, {skipped} skipped")
    if failed or not outcomes:
        return 1
    return 77 if skipped == len(outcomes) else 0


def named(*tests):
    """Functions as tests that are called as these are."""
    return [(test.__name__.replace("_", " "), test) for test in tests]


def script(description, tests, rest=()):
    """The main program of a file of tests: SCRIPT BIN_DIR [--full] [--only WORD]..., --full for the `rest` in place of the others."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--only", action="append", default=[])
    if rest:
        parser.add_argument("--full", action="store_true", help="those that take minutes, in place of the others")
    options = parser.parse_args()
    return main(rest if rest and options.full else tests, options.bin_dir, options.only)


if __name__ == "__main__":
    sys.exit("a library: run one of its neighbours")
