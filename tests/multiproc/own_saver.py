"""A trainer with a checkpoint of its own form saves, is resumed from it with --resume, and ends with the undisturbed bits.

  own_saver.py BIN_DIR OWN_SAVER [--only WORD]...
"""
import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import Failure, main, same_training

STEPS = 40


class Own:
    def __init__(self, bin_dir, trainer):
        self.kintsugi, self.trainer = str(Path(bin_dir).resolve() / "kintsugi"), str(Path(trainer).resolve())

    def line(self, *options, hangs_in=(), nproc=2):
        return [self.kintsugi, "run", "--nproc", str(nproc), "--json", "-", "--save-dir", "saves", *options, "--", self.trainer,
                str(STEPS), *hangs_in]

    def run(self, runner, *options, expect=0, hangs_in=()):
        done = subprocess.run(self.line(*options, hangs_in=hangs_in), cwd=runner.folder, capture_output=True, text=True, timeout=120)
        if done.returncode != expect:
            raise Failure(f"exit code {done.returncode}, expected {expect}\n{done.stderr[-5000:]}")
        return json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

    def must_go_on(self, runner, first, log):
        """What was saved, resumed, makes with it the undisturbed run."""
        if "--resume" not in log.splitlines()[-1]:
            raise Failure(f"the end does not say how to go on\n{log[-2000:]}")
        second, log = self.run(runner, "--resume", "saves")
        undisturbed, _ = self.run(runner)
        both = {**second, "losses": first["losses"] + second["losses"], "steps": first["steps"] + second["steps"],
                "samples_consumed": first["samples_consumed"] + second["samples_consumed"],
                "samples_digest": undisturbed["samples_digest"]}
        difference = same_training(undisturbed, both)
        if difference:
            raise Failure(f"{difference}\n{log[-3000:]}")

    def dumped(self, runner):
        first, log = self.run(runner, "--max-respawns", "0", "--inject", "kill:1@9:update", expect=75)
        self.must_go_on(runner, first, log)

    def stopped(self, runner):
        with open(runner.folder / "out", "w+") as out, open(runner.folder / "err", "w+") as err:
            run = subprocess.Popen(self.line("--log-level", "info", "--save-every", "5"), cwd=runner.folder, stdout=out, stderr=err)
            saved = runner.folder / "saves" / "line-5"
            until = time.monotonic() + 60
            while not saved.exists() and run.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            run.send_signal(signal.SIGTERM)
            code = run.wait(60)
            log = (runner.folder / "err").read_text()
            if code != 75:
                raise Failure(f"exit code {code}, expected 75\n{log[-5000:]}")
            self.must_go_on(runner, json.loads((runner.folder / "out").read_text()), log)

    def stop_while_it_hangs(self, runner, *options, expect, nproc=2):
        """SIGTERM once the save of step 5 hangs in the one rank that writes it: the grace period is shorter than any limit of a save."""
        with open(runner.folder / "out", "w+") as out, open(runner.folder / "err", "w+") as err:
            run = subprocess.Popen(self.line("--log-level", "info", "--save-every", "5", "--grace", "20", *options, hangs_in=["save"], nproc=nproc),
                                   cwd=runner.folder, stdout=out, stderr=err)
            hung = runner.folder / "hung"
            until = time.monotonic() + 60
            while not hung.exists() and run.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            run.send_signal(signal.SIGTERM)
            code = run.wait(60)
        log = (runner.folder / "err").read_text()
        if not hung.exists() or code != expect:
            raise Failure(f"exit code {code}, expected {expect}\n{log[-5000:]}")
        return json.loads((runner.folder / "out").read_text()), log

    def stopped_in_a_save_that_hangs(self, runner):
        """The rank that hangs is given up within the grace period, and the other one writes what both hold."""
        first, log = self.stop_while_it_hangs(runner, expect=75)
        if "was not written within" not in log or first["incidents"][0]["ranks"] != [0]:
            raise Failure(f"{first['incidents']}\n{log[-3000:]}")
        self.must_go_on(runner, first, log)

    def stopped_where_it_alone_holds_the_state(self, runner):
        """Nothing can be saved, and the last words say why."""
        summary, log = self.stop_while_it_hangs(runner, "--no-adopt", nproc=1, expect=1)
        if "was not written within" not in summary["reason"] or "rank 0" not in summary["reason"]:
            raise Failure(f"{summary['reason']}\n{log[-3000:]}")

    def hangs_in_its_repair(self, runner):
        """It costs its own limit, not ten: those would be more than the test has. Then its next process is repaired."""
        struck, log = self.run(runner, "--no-adopt", "--step-timeout", "15", "--inject", "kill:1@9:update", hangs_in=["repair"])
        undisturbed, _ = self.run(runner)
        difference = same_training(undisturbed, struck)
        if difference or struck["incidents"][0]["attempts"] < 2 or not (runner.folder / "hung").exists():
            raise Failure(f"{difference} {json.dumps(struck['incidents'])[:2000]}\n{log[-3000:]}")

    def reloaded(self, runner):
        """The only holders of the state die in their update: the trainer's own loader brings all back."""
        def run():
            shutil.rmtree(runner.folder / "saves", ignore_errors=True)
            return 0, *self.run(runner, "--no-adopt", "--save-every", "6", "--inject", "kill:0@9:update", "--inject",
                                "kill:1@9:update")
        struck, log = runner.run_struck([(0, 1)], (), (), run=run)
        undisturbed, _ = self.run(runner)
        difference = same_training(undisturbed, struck)
        if difference or struck["incidents"][0]["path"] != "reload":
            raise Failure(f"{difference} {json.dumps(struck['incidents'])[:2000]}\n{log[-3000:]}")

    def foreign(self, runner):
        """A folder without anything that the trainer knows ends the start, with its reason and not for a second try."""
        (runner.folder / "saves").mkdir()
        (runner.folder / "saves" / "notes.txt").write_text("nothing")
        _, log = self.run(runner, "--resume", "saves", expect=3)
        if "no line in" not in log:
            raise Failure(log[-3000:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin_dir")
    parser.add_argument("own_saver")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    own = Own(options.bin_dir, options.own_saver)
    sys.exit(main([("a dump of survivors goes on", own.dumped), ("a run that was told to end goes on", own.stopped),
                   ("a save that hangs costs a stop one rank", own.stopped_in_a_save_that_hangs),
                   ("a save that hangs where nobody else holds the state", own.stopped_where_it_alone_holds_the_state),
                   ("a repair that hangs costs one limit", own.hangs_in_its_repair),
                   ("who held the state is lost: its own loader", own.reloaded),
                   ("nothing to load: the start ends", own.foreign)], options.bin_dir, options.only))
