"""What the tests with real processes share: running kintsugi, reading its summary, finding orphans."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


class Failure(Exception):
    pass


class Runner:
    """Runs `kintsugi run ... -- byte_lm ...` in a folder of its own and checks that nothing is left behind."""

    def __init__(self, bin_dir):
        self.bin = Path(bin_dir).resolve()
        self.kintsugi = str(self.bin / "kintsugi")
        self.byte_lm = str(self.bin / "byte_lm")
        self.folder = Path(tempfile.mkdtemp(prefix="kintsugi-test-"))

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, run_args, trainer_args, nproc=4):
        return [self.kintsugi, "run", "--nproc", str(nproc), "--json", "-", "--log-level", "info",
                "--save-dir", str(self.folder / "checkpoints"), *run_args, "--",
                self.byte_lm, "--samples", "0", *trainer_args]

    def run(self, run_args=(), trainer_args=(), nproc=4, timeout=120, expect=0):
        done = subprocess.run(self.command(run_args, trainer_args, nproc), cwd=self.folder, capture_output=True,
                              text=True, timeout=timeout)
        if done.returncode != expect:
            raise Failure(f"exit code {done.returncode}, expected {expect}\n{done.stderr[-6000:]}")
        orphans = self.orphans()
        if orphans:
            raise Failure(f"left running: {orphans}")
        summary = json.loads(done.stdout) if done.stdout.strip() else None
        return summary, done.stderr

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


def same_training(reference, summary):
    """Why the two runs differ, or None."""
    for field in ("final_digest", "samples_digest", "samples_consumed", "steps", "losses"):
        if reference[field] != summary[field]:
            return f"{field}: {reference[field]} undisturbed, {summary[field]} disturbed"
    if not summary["final_digest"]:
        return "no final digest"
    return None


def only_incident(summary):
    if len(summary["incidents"]) != 1:
        raise Failure(f"{len(summary['incidents'])} incidents: {json.dumps(summary['incidents'])[:2000]}")
    return summary["incidents"][0]


def main(tests, bin_dir, chosen=()):
    """Runs the functions; prints one line each and the totals; returns the exit code."""
    failed = 0
    ran = 0
    for name, test in tests:
        if chosen and not any(word in name for word in chosen):
            continue
        ran += 1
        runner = Runner(bin_dir)
        try:
            test(runner)
            print(f"ok      {name}", flush=True)
        except (Failure, subprocess.TimeoutExpired, KeyError, json.JSONDecodeError) as error:
            failed += 1
            print(f"FAILED  {name}: {str(error)[-4000:]}", flush=True)
        finally:
            runner.close()
    print(f"{ran - failed} passed, {failed} failed")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit("a library: run one of its neighbours")
