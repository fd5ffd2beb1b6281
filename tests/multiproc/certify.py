"""kintsugi certify: a trainer that does all right passes, each planted mistake is found and told, and what is cut short leaves a
certificate of what was done.

  certify.py BIN_DIR PLANTED_TRAINER [--only WORD]...
"""
import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path

from harness import Failure, main


class Certify:
    def __init__(self, bin_dir, trainer):
        self.kintsugi, self.trainer = str(Path(bin_dir).resolve() / "kintsugi"), str(Path(trainer).resolve())

    def command(self, *options, mistake=()):
        return [self.kintsugi, "certify", "--nproc", "2", "--json", "-", *options, "--", self.trainer, *mistake]

    def run(self, runner, *options, mistake=(), expect):
        done = subprocess.run(self.command(*options, mistake=mistake), cwd=runner.folder, capture_output=True, text=True,
                              timeout=400)
        if done.returncode != expect:
            raise Failure(f"exit code {done.returncode}, expected {expect}\n{done.stderr[-5000:]}")
        return json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

    def whole(self, runner):
        """Nothing is wrong: every phase that is marked is tried, and both files are there."""
        found, _ = self.run(runner, "--quick", expect=0)
        outcomes = {cell["name"]: cell["outcome"] for cell in found["cells"]}
        if set(outcomes.values()) != {"same", "not marked"} or outcomes["kill, rank 1, update"] != "same":
            raise Failure(json.dumps(outcomes, indent=1))
        if outcomes["exception, rank 1, param-sync"] != "not marked" or "same" not in outcomes["kills of two ranks in two steps"]:
            raise Failure(json.dumps(outcomes, indent=1))
        folder = runner.folder / "kintsugi-certify"
        page = (folder / "certify.html").read_text()
        if json.loads((folder / "certify.json").read_text()) != found or "kills of two ranks in two steps" not in page:
            raise Failure("certify.json or certify.html is not what was found")
        if "<script" in page:
            raise Failure("the page has a script")

    def planted(self, mistake, fault, words):
        """Found by this fault, with a text that says where to look and a command that does it again."""
        def test(runner):
            found, _ = self.run(runner, "--quick", "--only", fault, mistake=[mistake], expect=1)
            wrong = [cell for cell in found["cells"] if cell["outcome"] in ("DIFFERENT", "FAILED")]
            if not wrong or found["passed"]:
                raise Failure(f"not found: {json.dumps(found)[:3000]}")
            for word in words:
                if word not in wrong[0]["text"]:
                    raise Failure(f"'{word}' is not said: {wrong[0]['text']}")
            if "--inject" not in wrong[0]["command"] or not wrong[0]["command"].endswith(f"{self.trainer} {mistake}"):
                raise Failure(wrong[0]["command"])
            log = runner.folder / "kintsugi-certify" / wrong[0]["folder"] / "log"
            if not log.exists():
                raise Failure(f"{log} is not there")
        return test

    def undetermined(self, runner):
        found, log = self.run(runner, "--quick", mistake=["clock"], expect=1)
        if found["deterministic"] or "losses differ from step 1 on" not in log or found["cells"]:
            raise Failure(log[-3000:])

    def no_trainer(self, runner):
        done = subprocess.run([self.kintsugi, "certify", "--", "sh", "-c", "echo no luck >&2; exit 4"], cwd=runner.folder,
                              capture_output=True, text=True, timeout=200)
        if done.returncode not in (1, 3) or "no luck" not in done.stderr:
            raise Failure(f"exit code {done.returncode}\n{done.stderr[-3000:]}")

    def cut_short(self, runner):
        """Ctrl-C and a spent budget leave a certificate of what was done."""
        child = subprocess.Popen(self.command(), cwd=runner.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = []
        for line in child.stderr:
            lines.append(line)
            if line.startswith("[2/"):
                break
        child.send_signal(signal.SIGINT)
        out, rest = child.communicate(timeout=120)
        found = json.loads(out)
        outcomes = [cell["outcome"] for cell in found["cells"]]
        if child.returncode != 1 or "signal" not in found["stopped"] or "not done" not in outcomes or "same" not in outcomes:
            raise Failure(f"{child.returncode}: {found['stopped']} {outcomes}\n{''.join(lines) + rest}")
        found, _ = self.run(runner, "--budget-minutes", "0.0001", expect=1)
        if "budget" not in found["stopped"] or found["passed"]:
            raise Failure(found["stopped"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("trainer")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    certify = Certify(options.bin_dir, options.trainer)
    sys.exit(main([
        ("certify passes a trainer without mistakes", certify.whole),
        ("certify finds a tensor that is not registered",
         certify.planted("tensor", "kill, rank 1, backward", ["losses differ", "only what is registered"])),
        ("certify finds an update outside of the gate",
         # Ends in other losses or, where the other rank had not got so far, in replicas that differ: either is told.
         certify.planted("update", "exception, rank 1, gate", [])),
        ("certify finds a forgotten random generator",
         certify.planted("random", "exception, rank 1, backward", ["random generator"])),
        ("certify finds a sampler that is not saved",
         certify.planted("sampler", "exception, rank 1, backward", ["Samples", "sampler"])),
        ("certify tells a trainer that is not deterministic", certify.undetermined),
        ("certify tells of a program that does not train", certify.no_trainer),
        ("certify that is cut short leaves what it found", certify.cut_short),
    ], options.bin_dir, options.only))
