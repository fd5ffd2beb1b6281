"""Native checkpoints of earlier versions: shown, proven, converted, and gone on from.

  checkpoint_test.py BIN_DIR
"""
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "multiproc"))
from harness import Failure, Runner  # noqa: E402

MODEL = ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--batch", "1"]
STEP = 5


def check(runner, version):
    root = runner.folder / version.name
    shutil.copytree(version, root, ignore=shutil.ignore_patterns("*.hex"))
    verified = runner.tool(["ckpt", "verify", str(root)])
    if verified.returncode != 0:
        raise Failure(f"{version.name}: ckpt verify: {verified.stdout}{verified.stderr}")
    shown = json.loads(runner.tool(["ckpt", "show", str(root / f"step_{STEP:010}"), "--format", "native"]).stdout)
    keys = {tensor["key"]: tensor["shape"] for tensor in shown["tensors"]}
    if shown["step"] != STEP or keys.get("optimizer.exp_avg.embedding.token") != [256, 16] or len(shown["objects"]) != 4:
        raise Failure(f"{version.name}: ckpt show: {json.dumps(shown)[:500]}")
    converted = runner.tool(["ckpt", "convert", str(root), str(runner.folder / f"{version.name}.safetensors"), "--to", "safetensors"])
    same = runner.tool(["ckpt", "diff", str(root), str(runner.folder / f"{version.name}.safetensors")])
    if converted.returncode != 0 or same.returncode != 0:
        raise Failure(f"{version.name}: convert and diff: {converted.stderr}{same.stdout}{same.stderr}")

    undisturbed, _ = runner.run([], ["--steps", "10", *MODEL], nproc=2)
    resumed, log = runner.run(["--resume", str(root)], ["--steps", "10", *MODEL], nproc=2)
    told = [line for line in log.splitlines() if "event=resume_sums compared=0" in line and "event=exited" not in line]
    if version.name == "0.1.0" and len(told) != 1:
        raise Failure(f"{version.name}: nothing says, or too much, that there were no sums to compare\n{log[-3000:]}")
    # Another processor may round otherwise than the one that recorded it.
    pairs = list(zip(undisturbed["losses"][STEP:], resumed["losses"], strict=True))
    if len(pairs) != 10 - STEP or any(abs(a - b) > 1e-3 for a, b in pairs):
        raise Failure(f"{version.name}: other losses after the resume: {pairs}")
    print(f"{version.name}: shown, proven, converted, resumed at step {STEP + 1}")


def main():
    versions = sorted(path for path in HERE.iterdir() if path.is_dir() and (path / f"step_{STEP:010}").is_dir())
    if not versions:
        raise Failure(f"no recorded checkpoints in {HERE}")
    runner = Runner(sys.argv[1])
    try:
        for version in versions:
            check(runner, version)
    finally:
        runner.close()


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
