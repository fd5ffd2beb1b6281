#!/usr/bin/env python3
"""How ./tools/gpu_check carries out a step: time limits, verdicts, figures."""

import importlib.machinery
import importlib.util
import json
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "gpu_check"
loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)


class Steps(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.check = gpu_check.Check(Path(self.folder.name), 1000)

    def step(self, name, script, **options):
        passed = self.check.run(name, ["/bin/sh", "-c", script], **options)
        return passed, self.check.steps[-1]

    def test_an_exit_code_is_a_verdict_and_the_last_line_its_reason(self):
        self.assertTrue(self.step("good", "echo fine")[0])
        passed, step = self.step("bad", "echo first; echo why; exit 3")
        self.assertEqual((passed, step["verdict"], step["exit_code"], step["reason"]), (False, "failed", 3, "why"))
        self.assertIn("first", Path(self.folder.name, "bad.log").read_text())

    def test_a_program_that_skipped_has_not_passed(self):
        for words in ("[  SKIPPED ] 3 tests", "SKIPPED: no device", "bench_cuda_staging: no device: none"):
            passed, step = self.step("skips", f"echo '{words}'", judge=gpu_check.skipped_is_no_pass)
            self.assertEqual((passed, step["verdict"]), (False, "skipped"), words)

    def test_a_step_that_takes_too_long_ends_with_all_that_it_started(self):
        marker = Path(self.folder.name, "late")
        passed, step = self.step("slow", f"(sleep 2; touch {marker}) & sleep 60", limit_seconds=0.5)
        self.assertEqual((passed, step["verdict"], step["reason"]), (False, "failed", "ran out of its time"))
        time.sleep(2.5)
        self.assertFalse(marker.exists(), "a process of the step lived on")

    def test_a_step_that_cannot_start_fails(self):
        self.assertFalse(self.check.run("absent", ["/nowhere/program"]))
        self.assertIn("No such file", self.check.steps[-1]["reason"])

    def test_what_does_not_fit_into_the_budget_is_skipped(self):
        late = gpu_check.Check(Path(self.folder.name), gpu_check.RESERVE_SECONDS + 3)
        self.assertFalse(late.run("long", ["/bin/true"], need_seconds=60))
        self.assertEqual(late.steps[-1]["reason"], "no time left")

    def test_every_step_of_a_run_is_bounded_named_once_and_keeps_its_figures_apart(self):
        steps = gpu_check.steps_of(Path("/build"), Path("/out"), Path("/kintsugi.whl"))
        names = [step.name for step in steps]
        self.assertEqual(len(names), len(set(names)))
        files = [step.figures for step in steps if step.figures]
        self.assertEqual(len(files), len(set(files)))
        for step in steps:
            if "check" not in step.name:
                self.assertIsNotNone(step.limit, step.name)
                self.assertLess(step.limit, 540, step.name)

    def test_figures_are_gathered_and_a_file_that_is_not_there_is_none(self):
        path = Path(self.folder.name, "figures.json")
        self.check.take_figures(path)
        path.write_text(json.dumps({"figures": [{"id": "a", "value": 1}]}))
        self.check.take_figures(path)
        self.assertEqual(self.check.figures, [{"id": "a", "value": 1}])


if __name__ == "__main__":
    unittest.main()
