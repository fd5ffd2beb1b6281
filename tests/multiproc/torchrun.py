"""Job scripts written for torchrun: its words, and the variables that its programs read, beside the real torchrun.

  torchrun.py BIN_DIR PYTHON      PYTHON has torch; where there is none, what needs it is left out
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from harness import Failure, Runner

# Writes down what it was told, and waits for its neighbour to have done so: one that ends early ends the run.
PROGRAM = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["FOLDER"])
told = {name: value for name, value in os.environ.items()
        if name.split("_")[0] in ("RANK", "LOCAL", "WORLD", "GROUP", "ROLE", "MASTER", "TORCHELASTIC")}
(folder / f"aside.{os.environ['RANK']}").write_text(json.dumps({"told": told, "words": sys.argv[1:], "name": __name__, "package": __spec__ is not None, "by": os.environ.get("BY")}))
(folder / f"aside.{os.environ['RANK']}").rename(folder / f"rank.{os.environ['RANK']}")
for _ in range(600):
    if all((folder / f"rank.{rank}").exists() for rank in range(int(os.environ["WORLD_SIZE"]))): break
    time.sleep(0.05)
"""
# What differs from run to run, or means nothing here: there is no store of an agent, and no file for errors.
OWN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}
ABSENT = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_USE_AGENT_STORE"}


def told_by(runner, name, words, **environment):
    folder = runner.folder / name
    folder.mkdir()
    subprocess.run(words, cwd=runner.folder, capture_output=True, text=True, timeout=120, check=False,
                   env={**os.environ, "FOLDER": str(folder), **environment})
    ranks = [json.loads((folder / f"rank.{rank}").read_text()) for rank in range(2) if (folder / f"rank.{rank}").exists()]
    if len(ranks) != 2:
        raise Failure(f"{name}: {len(ranks)} of 2 ranks ran under {' '.join(words)}")
    return ranks


def main():
    python = Path(sys.argv[2]).absolute()
    runner = Runner(sys.argv[1])
    try:
        (runner.folder / "train.py").write_text(PROGRAM)
        run = [runner.kintsugi, "run", "--nproc-per-node", "2", "--max-restarts", "0", "--rdzv-id", "mine", "--save-dir", ""]
        ours = told_by(runner, "script", [*run, "train.py", "--lr", "3"])
        module = told_by(runner, "module", [*run, "-m", "train", "--lr", "3"])
        for told, package in ((ours, False), (module, True)):
            for rank in told:
                if (rank["words"], rank["name"], rank["package"]) != (["--lr", "3"], "__main__", package):
                    raise Failure(f"not as Python would run it: {rank}")
        if ours[0]["told"]["TORCHELASTIC_RUN_ID"] != "mine":
            raise Failure(f"--rdzv-id: {ours[0]['told']}")
        print("a script and a module, with torchrun's words")

        interpreter = runner.folder / "interpreter-of-mine"
        interpreter.write_text(f"#!/bin/sh\nBY=mine exec {sys.executable} \"$@\"\n")
        interpreter.chmod(0o755)
        by = [rank["by"] for rank in told_by(runner, "interpreter", [*run, "train.py"], PYTHON_EXEC=str(interpreter))]
        if by != ["mine", "mine"] or ours[0]["by"] is not None:
            raise Failure(f"PYTHON_EXEC names another interpreter than the one that ran: {by}")

        if not python.exists():
            print("the real torchrun: left out, ./tools/setup --python")
            return
        theirs = told_by(runner, "torchrun", [str(python), "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py", "--lr", "3"])
        for mine, their in zip(ours, theirs, strict=True):
            expected = {name: value for name, value in their["told"].items() if name not in OWN | ABSENT}
            got = {name: value for name, value in mine["told"].items() if name not in OWN}
            if got != expected or not OWN <= mine["told"].keys():
                raise Failure(f"told otherwise than by torchrun: {got}\nand by it: {expected}")
        print("the variables are those of the real torchrun")
    finally:
        runner.close()


if __name__ == "__main__":
    started = time.monotonic()
    try:
        main()
    except Failure as failure:
        print(f"FAILED after {time.monotonic() - started:.0f} s: {failure}")
        sys.exit(1)
