"""`kintsugi audit` over scripts whose resume is quietly wrong, and over right ones: every fault found, its cause named, no false alarm.

  audit_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--all] [--only WORD]...

--all: every script, by the command itself; a dozen otherwise, whose processes are forked from one that has imported torch.
"""
import argparse
import atexit
import contextlib
import gc
import importlib.util
import io
import json
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from door import HERE, Door, Failure, main

FOLDER = HERE / "audit"
# Script: the cause that is to be named first. What the words mean is in integrations/python/docs/audit.md.
WRONG = {
    "accumulation_cut": "accumulation", "average_behind": "averages", "average_by_hand_behind": "averages", "average_by_hand_lost": "averages",
    "average_lost": "averages", "best_forgotten": "averages", "best_for_last": "weights", "buffers_lost": "buffers", "clip_by_hand": "gradients", "clip_by_mean": "gradients",
    "epoch_anew": "steps", "epoch_left_out": "steps", "eval_mode": "trained", "frozen_forgotten": "trained", "gpt_random_lost": "order of samples", "group_order": "options",
    "last_batch": "order of samples", "masters_half": "weights", "momentum_none": "moments", "moments_half": "moments", "moments_lost": "moments",
    "numpy_lost": "random numbers", "one_cycle_left": "learning rate", "optimizer_before_model": "trained", "optimizer_lost": "moments", "order_new": "order of samples",
    "own_generator": "random numbers", "plateau_lost": "learning rate", "random_lost": "random numbers", "rank_0_random": "random numbers",
    "rank_order": "order of samples", "rate_reset": "learning rate", "replay_lost": "order of samples", "sampler_seed": "order of samples", "scaler_lost": "loss scale",
    "scheduler_before_optimizer": "learning rate", "scheduler_behind": "learning rate", "scheduler_lost": "learning rate", "second_optimizer_lost": "moments",
    "step_doubled": "steps", "step_lost": "steps", "stream_anew": "order of samples", "tied_came_apart": "weights", "warmup_anew": "learning rate",
    "worker_seed": "random numbers",
}
RIGHT = ["right_accumulated", "right_adversary", "right_all", "right_best", "right_by_hand", "right_epochs", "right_forms", "right_generators", "right_gpt", "right_handler",
         "right_plain", "right_ranks", "right_replay", "right_scaler", "right_shards", "right_without_modules", "right_workers"]
SHORT = ["average_behind", "epoch_anew", "masters_half", "moments_lost", "random_lost", "scheduler_lost", "sampler_seed", "scaler_lost", "right_all", "right_by_hand", "right_epochs",
         "right_scaler"]
RANKS = {"rank_0_random": 2, "rank_order": 2, "right_ranks": 2, "right_shards": 2}
STOP_AT, STOPS = 15, {"rank_order": 9, "right_accumulated": 8, "accumulation_cut": 4}
SIGNALS = {"right_handler": "TERM", "average_lost": "TERM", "right_ranks": "TERM"}


def package(folder):
    """The audit's modules, as its command loads them."""
    audit = folder / "kintsugi" / "audit"
    spec = importlib.util.spec_from_file_location("_kintsugi_audit", audit / "__init__.py", submodule_search_locations=[str(audit)])
    sys.modules["_kintsugi_audit"] = importlib.util.module_from_spec(spec)
    return [importlib.import_module(f"_kintsugi_audit.{name}") for name in ("command", "start", "tell")]


class Forked:
    """A process that was forked here, as subprocess.Popen tells of one."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout=1e9):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a child", timeout)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)


def forking(start):
    """A Start whose program runs in a child of this process: nearly all that a small script takes is the import of torch."""

    class ForkedStart(start.Start):
        def _begin(self, more):
            self.records.mkdir(parents=True, exist_ok=True)
            pid = os.fork()
            if pid:
                return Forked(pid)
            code = 1
            try:
                sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
                random.seed()  # a process that is started has its own
                atexit._clear()  # what is to be done at this process's end is not the child's to do
                out = os.open(self.folder / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
                os.dup2(out, 1)
                os.dup2(out, 2)
                os.chdir(self.work)
                os.environ |= self.environment(more)
                sys.argv = self.command[1:]
                sys.path.insert(0, str(FOLDER))
                importlib.import_module("_kintsugi_audit.hook").install()
                code = run_script(self.command[1])
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)

    return ForkedStart


def run_script(path):
    """As an interpreter does, to its functions at exit."""
    code = 0
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


class Bench:
    """Audits scripts, by the modules (`alone`) or by the command (`whole`)."""

    def __init__(self, door):
        self.door, self.python = door, os.path.abspath(door.python)
        self.command, start, self.tell = package(door.package)
        self.start = forking(start)

    def options(self, folder, script, more=(), resume=True, resume_words=(), **given):
        words = [self.python, str(FOLDER / f"{script}.py")]
        name = Path(script).name
        return self.command.Options.read({
            "program": [*words, *more], "resume": " ".join(resume_words or [*words, "--resume"]) if resume else "", "stop_at": STOPS.get(name, STOP_AT), "signal": SIGNALS.get(name, "KILL"), "runs": 1,
            "report": str(folder), "json": "", "quiet": True, "in_place": False, "seed": None, "limit": 60, "head": "<head></head>", "masthead": "", **given})

    def alone(self, folder, script, **given):
        with contextlib.chdir(folder):
            try:
                verdict = self.command.Audit(self.options(Path(folder) / "report", script, **given), self.start).run()
            except Exception as error:
                raise Failure(f"not audited: {error}") from error
        return self.tell.as_json(verdict, [], [])

    def whole(self, folder, script, options=(), expect=None):
        ranks = RANKS.get(script, 1)
        words = [self.python, *(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []), str(FOLDER / f"{script}.py")]
        found = self.by_command(folder, ["--stop-at", str(STOPS.get(script, STOP_AT)), "--stop-signal", SIGNALS.get(script, "KILL"), "--resume", " ".join([*words, "--resume"]),
                                         *options, "--json", "--", *words])
        if found.returncode not in (0, 1):
            raise Failure(f"exit code {found.returncode}\n{found.stderr[-3000:]}")
        return json.loads(found.stdout)

    def by_command(self, folder, words):
        return subprocess.run([str(self.door.bin / "kintsugi"), "audit", *words], cwd=folder, capture_output=True, text=True, timeout=600, env=self.door.environment())

    def audit(self, script, by_command):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            return self.whole(folder, script) if by_command or script in RANKS else self.alone(folder, script)

    def finds(self, script, by_command=False):
        def test(_):
            found = self.audit(script, by_command)
            if not found["findings"]:
                raise Failure(f"nothing was found: {json.dumps(found)[:3000]}")
            if found["findings"][0]["cause"] != WRONG[script]:
                raise Failure(f"{WRONG[script]} expected: {json.dumps(found)[:3000]}")
        return test

    def is_right(self, script, by_command=False):
        def test(_):
            found = self.audit(script, by_command)
            if found["verdict"] != "exact":
                raise Failure(f"a false alarm: {json.dumps(found)[:3000]}")
        return test

    # --- what cannot be audited

    def refuses(self, script, code, words, **given):
        """By the module that the command starts, without starting an interpreter for it."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder, contextlib.chdir(folder):
                options = self.options(Path(folder) / "report", script, **given)
                errors = io.StringIO()
                with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                    found = self.command.carry_out(options, self.start)
            if found != code or any(word not in errors.getvalue() for word in words):
                raise Failure(f"exit code {found}, expected {code} with {words}\n{errors.getvalue()}")
        return test

    def command_refuses(self, name, code, words, options):
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                found = self.by_command(folder, options)
            if found.returncode != code or any(word not in found.stderr for word in words):
                raise Failure(f"{name}: exit code {found.returncode}, expected {code} with {words}\n{found.stderr}")
        return test

    def digests_tell(self, _):
        """Of a device's tensors, whose bytes stay there: every bit and every place counts, in tensors of any length."""
        digests, generator = importlib.import_module("_kintsugi_audit.digests"), torch.Generator().manual_seed(1)
        digests._CHUNK = 1000
        for length in (1, 3, 4, 7, 4000, 4001, 9999):
            whole = torch.randint(0, 256, (length,), dtype=torch.uint8, generator=generator)
            seen = {digests._on_device(torch, whole)}
            for at in {0, length // 2, length - 1}:
                changed = whole.clone()
                changed[at] ^= 128
                seen.add(digests._on_device(torch, changed))
            if length > 8:
                swapped = whole.clone()
                swapped[:4], swapped[4:8] = whole[4:8], whole[:4]
                seen.add(digests._on_device(torch, swapped))
            expected = 1 + len({0, length // 2, length - 1}) + (length > 8)
            if len(seen) != expected or digests._on_device(torch, whole.clone()) not in seen:
                raise Failure(f"{length} bytes: {len(seen)} digests, expected {expected}")

    def in_one_place(self, _):
        """`--in-place`: a run's files stand where {run} in the command says; and folders of others are left alone."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            place = f"--place={folder}/{{run}}.pt"
            words = [self.python, str(FOLDER / "placed.py"), place]
            found = self.alone(folder, "placed", more=[place], in_place=True, resume_words=[*words, "--resume"])
            again = Path(folder, "report", "audit-runs", "made-by-kintsugi-audit")
            again.unlink()
            try:
                self.alone(folder, "placed", more=[place])
            except Failure as refused:
                if "left alone" not in str(refused):
                    raise
            else:
                raise Failure("a folder that no audit has made was emptied")
            if found["verdict"] != "exact" or not {"stopped.pt", "undisturbed.pt"} <= set(os.listdir(folder)):
                raise Failure(f"{os.listdir(folder)} {json.dumps(found)[:2000]}")

    def shape(self, name, causes):
        """A script that was not written for this, over two ranks of torchrun's; `causes`: None where it has no resume."""
        def test(_):
            words = [self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(HERE / "plain.py"), str(HERE / "shapes" / f"{name}_plain.py"), "."]
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                done = self.by_command(folder, [*(["--resume", " ".join(words)] if causes else []), "--json", "--", *words])
            if done.returncode not in (0, 1):
                raise Failure(f"exit code {done.returncode}\n{done.stderr[-3000:]}")
            found = json.loads(done.stdout)
            if not found["deterministic"] or {finding["cause"] for finding in found["findings"]} != set(causes or ()):
                raise Failure(f"{causes} expected: {done.stdout[:3000]}")
        return test

    def deterministic(self, script, cause, **given):
        """`--runs 2` and no stop."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                found = self.alone(folder, script, resume=False, runs=2, **given)
            if (found["nondeterminism"] or {}).get("cause", "") != cause:
                raise Failure(f"'{cause}' expected: {json.dumps(found)[:2000]}")
        return test

    def leaves_a_report(self, _):
        """The command itself, with its table, its JSON and its page; the program's folder is as it was."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            script = Path(folder, "train.py")
            script.write_text((FOLDER / "warmup_anew.py").read_text())
            shutil.copy(FOLDER / "base.py", folder)
            before = sorted(os.listdir(folder))
            # The place that is stopped at is found: behind the checkpoint of step 12, that in the middle.
            words = [self.python, "train.py"]
            done = self.by_command(folder, ["--resume", " ".join([*words, "--resume"]), "--report", "found", "--json", "found.json", "--", *words])
            if done.returncode != 1:
                raise Failure(f"exit code {done.returncode}\n{done.stderr[-3000:]}")
            found, page = json.loads(Path(folder, "found.json").read_text()), Path(folder, "found", "audit.html").read_text()
            if (found["stopped_after"], found["resumed_after"], found["findings"][0]["cause"]) != (13, 12, "learning rate"):
                raise Failure(json.dumps(found)[:2000])
            for told in (done.stdout, page):
                for word in ("learning rate", "The resume is not exact", "Kintsugi would have kept"):
                    if word not in told:
                        raise Failure(f"'{word}' is not in\n{told[:3000]}")
            if sorted(set(os.listdir(folder)) - {"found", "found.json"}) != before:
                raise Failure(f"the folder has {os.listdir(folder)}")


def mistakes(bench):
    python = [bench.python, "-c", "pass"]
    yield "no torch in the program", bench.command_refuses("no torch", 3, ["no process imported torch"], ["--", *python])
    yield "an interpreter that reads no PYTHONPATH", bench.command_refuses("-I", 3, ["PYTHONPATH"], ["--", bench.python, "-I", "-c", "pass"])
    yield "a program that fails", bench.command_refuses("fails", 3, ["exit code 7"], ["--", bench.python, "-c", "import sys; sys.exit(7)"])
    yield "a program that is not there", bench.command_refuses("missing", 3, ["cannot be started"], ["--", "./no-such-program"])
    yield "--stop-at without --resume", bench.command_refuses("alone", 2, ["--resume"], ["--stop-at", "3", "--", *python])
    yield "--runs 1 alone", bench.command_refuses("runs", 2, ["compares nothing"], ["--runs", "1", "--", *python])
    yield "--stop-at beyond the end", bench.refuses("right_all", 2, ["beyond the end", "24 steps"], stop_at=24)
    yield "--stop-at before a checkpoint", bench.refuses("right_all", 3, ["first one is after step 6"], stop_at=5)
    yield "a program that never steps", bench.refuses("never_steps", 3, ["no optimizer made a step"])
    yield "a program without a checkpoint", bench.refuses("never_saves", 3, ["began anew"])
    yield "... whose stop is to be found", bench.refuses("never_saves", 3, ["no checkpoint was seen"], stop_at=None)
    yield "a resume that fails", bench.refuses("resume_fails", 3, ["the resume failed with exit code 1", "no such checkpoint"])
    yield "a checkpoint that is not read", bench.refuses("resume_ignored", 1, [])
    yield "a checkpoint of the undisturbed run", bench.refuses("one_place", 3, ["{run}"])


def tests(bench, everything):
    yield "the command: table, JSON and page", bench.leaves_a_report
    for script in [name for name in [*WRONG, *RIGHT] if everything or name in SHORT]:
        yield script, (bench.finds if script in WRONG else bench.is_right)(script)
    if everything:
        yield "types are as they say", bench.door.typed("-p", "kintsugi.audit")
        yield "torch's tutorial of DistributedDataParallel", bench.shape("snapshots", ["moments", "random numbers"])
        for name in ("nanogpt", "vision", "fsdp", "ppo", "dcgan"):
            yield f"{name}: deterministic", bench.shape(name, None)
    yield "digests on a device", bench.digests_tell
    yield "--in-place and {run}", bench.in_one_place
    yield "a deterministic program", bench.deterministic("right_all", "")
    yield "one that seeds nothing", bench.deterministic("unseeded", "order of samples")
    yield "... seeded from outside", bench.deterministic("unseeded", "", seed=5)
    yield from mistakes(bench)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs=3)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    try:
        import torch
        import torch._dynamo  # imported by the first optimizer of a process
    except ImportError:
        print(f"SKIPPED: {sys.executable} has no torch; ./tools/setup --python installs it")
        sys.exit(77)
    torch.set_num_threads(1)
    gc.freeze()  # what is there now is no program's
    sys.exit(main(list(tests(Bench(Door(options.places)), options.all)), options.places[0], options.only))
