#!/usr/bin/env python3
"""The commands in tools/ teach: --help explains, a wrong option is exit 2, and the verdict of a test run is honest."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tools"


def run(*command, **variables):
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    return done.returncode, done.stdout, done.stderr


class Commands(unittest.TestCase):
    def test_help_explains_and_builds_nothing(self):
        for name in ["setup", "test", "demo", "bench", "format", "check_arrows", "gpu_check", "package"]:
            with self.subTest(name=name):
                code, output, errors = run(TOOLS / name, "--help")
                self.assertEqual((code, errors), (0, ""))
                self.assertIn(f"./tools/{name}", output)

    def test_a_wrong_option_is_exit_2_with_a_hint(self):
        for command in [["setup", "--pyton"], ["test", "--fast"], ["test", "--jobs", "none"], ["test", "--only"],
                        ["test", "--asan", "--tsan"], ["bench"], ["bench", "no_such_benchmark"], ["format", "--chek"], ["package", "--wheels"]]:
            with self.subTest(command=command):
                code, output, errors = run(TOOLS / command[0], *command[1:])
                self.assertEqual((code, output), (2, ""))
                self.assertIn("--help shows what it takes", errors)

    def test_gpu_check_without_a_device_passes_nothing_and_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, TOOLS / "gpu_check", "--out", folder, "--budget-seconds", "11"]
            code, output, _ = run(*command)
            record = json.loads(Path(folder, "gpu.json").read_text())
            if record["device"]:
                self.skipTest("there is a device here")
            self.assertEqual(code, 0)
            self.assertIn("skipped: no device", output)
            self.assertEqual({step["verdict"] for step in record["steps"]}, {"skipped"})
            self.assertGreater(len(record["steps"]), 3)
            self.assertIn("no device", Path(folder, "gpu.md").read_text())
            self.assertEqual(run(*command[:-1], "5")[0], 2)

    def test_setup_without_debian_names_what_is_needed(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ["bash", "dirname", "basename", "cut", "xargs", "echo"]:
                os.symlink(f"/usr/bin/{name}", Path(folder, name))
            code, _, errors = run("/bin/bash", TOOLS / "setup", PATH=folder)
        self.assertEqual(code, 1, errors)
        self.assertIn("not a Debian system", errors)
        self.assertIn("libgloo-dev", errors)


PASSED = '<testcase name="{}" status="run"><system-out>{}</system-out></testcase>'
FAILED = '<testcase name="{}" status="fail"><failure/><system-out>{}</system-out></testcase>'
SKIPPED = '<testcase name="{}" status="notrun"><skipped/><system-out>{}</system-out></testcase>'


class Verdict(unittest.TestCase):
    def judge(self, *cases, code=0):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "results.xml")
            path.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            return run(sys.executable, TOOLS / "lib" / "verdict.py", path, str(code))[:2]

    def test_all_passed_is_success(self):
        code, output = self.judge(PASSED.format("a", "[==========] 3 tests from 1 test suite ran."), PASSED.format("b", ""))
        self.assertEqual(code, 0)
        self.assertIn("3 GoogleTest cases in 2 ctest entries", output)
        self.assertEqual(output.splitlines()[-1], "2 passed, 0 failed")

    def test_a_failure_is_named(self):
        code, output = self.judge(PASSED.format("a", ""), FAILED.format("bad", ""), code=8)
        self.assertEqual(code, 1)
        self.assertIn("FAILED   bad", output)
        self.assertEqual(output.splitlines()[-1], "1 passed, 1 failed")

    def test_a_skipped_test_counts_as_neither_and_says_why(self):
        code, output = self.judge(PASSED.format("a", ""), SKIPPED.format("guest", "SKIPPED: no torch"))
        self.assertEqual(code, 0)
        self.assertIn("skipped  guest: no torch", output)
        self.assertEqual(output.splitlines()[-1], "1 passed, 0 failed")

    def test_a_case_skipped_inside_a_program_is_listed(self):
        inside = "x.cc:5: Skipped\nneeds a GPU\n\n[  SKIPPED ] Link.MovesBytes (0 ms)\n[  SKIPPED ] 1 test, listed below:\n"
        self.assertIn("skipped  a: Link.MovesBytes: needs a GPU", self.judge(PASSED.format("a", inside))[1])

    def test_nothing_run_or_no_results_is_a_failure(self):
        self.assertEqual(self.judge(code=8)[0], 1)
        self.assertEqual(self.judge()[0], 1)
        self.assertEqual(self.judge(PASSED.format("a", ""), code=1)[0], 1)
        self.assertEqual(run(sys.executable, TOOLS / "lib" / "verdict.py", "/nonexistent/results.xml", "0")[0], 1)


if __name__ == "__main__":
    unittest.main()
