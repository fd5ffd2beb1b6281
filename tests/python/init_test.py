"""`kintsugi init`: what it writes trains to the bits of the plain script where a rank is killed; what it does not understand it says, and no more.

  init_test.py BIN_DIR PACKAGE_FOLDER PYTHON FAKES [--only WORD]...      FAKES: with libkintsugi_fake_*.so
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compared import left_in
from door import HERE, ROOT, Door, Failure, main, skip_without_torch

SHAPES = HERE / "shapes"
PLAIN = re.search(r"^```python\n(.*?)^```$", (ROOT / "integrations/python/TUTORIAL.md").read_text(), re.MULTILINE | re.DOTALL)[1]
# The public shapes that it understands, with where they are struck, and what the others get told.
UNDERSTOOD = {
    "vision": (["kill:1@2:update", "throw:0@3:backward", "kill:0@6:backward", "kill:1@10:param-sync"], []),
    "fsdp": (["kill:1@3:update", "throw:0@5:backward", "kill:0@6:forward"], ["--snapshot-every", "2"]),
    "dcgan": (["kill:1@2:update", "throw:0@3:backward", "kill:0@6:forward", "throw:1@9:update"], []),
}
REFUSED = {
    "nanogpt": (70, "no optimizer is made by a line of its own"),
    "snapshots": (41, "a state of its own"),
    "ppo": (101, "which is an epoch cannot be read"),
    "trainer": (11, "the loop is transformers's"),
    "diffusion": (11, "the loop is accelerate's"),
}
# The tutorial's script with one thing changed: what, by what, the line that is named, and a word of why.
LOOP, STEP, BACK, ZERO = "for k in range(1, STEPS + 1):\n", "    optimizer.step()\n", "    loss.backward()\n", "    optimizer.zero_grad()\n"
MISTAKES = [
    ('("gloo")', '("mpi")', 'init_process_group("mpi")', 'neither "gloo" nor "nccl"'),
    ('("gloo")', '("nccl", init_method="tcp://h:1")', "tcp://", "is given init_method"),
    ('("gloo")', '("gloo", rank=0, world_size=2)', "world_size=2", "is given rank, world_size"),
    ('dist.init_process_group("gloo")', 'if True:\n    dist.init_process_group("gloo")', "    dist.init", "within a condition"),
    ('dist.init_process_group("gloo")', "pass", None, "no call of torch.distributed.init_process_group"),
    ("import hashlib\n", "import hashlib\n\nimport deepspeed\n", "import deepspeed", "the loop is deepspeed's"),
    ("import hashlib\n", "import hashlib\n\nimport kintsugi.torch\n", "import kintsugi.torch", "already"),
    (ZERO, "    with torch.cuda.graph(torch.cuda.CUDAGraph()):\n        pass\n" + ZERO, "torch.cuda.graph", "a CUDA graph is captured"),
    ("nn.Linear(32, 1))", "nn.Linear(32, 1))\nnet = torch.compile(net, mode='reduce-overhead')", "reduce-overhead", "a CUDA graph is captured"),
    ("rank = dist", "optimizer = None\nrank = dist", None, "is assigned 2 times"),
    (STEP, "    optimizer.step(lambda: loss)\n", "lambda: loss", "closure"),
    (STEP, "    if k % 2 == 0:\n        optimizer.step()\n", "        optimizer.step()", "under a condition"),
    (STEP, STEP + "    if loss < 0.1:\n        break\n", "        break", "cut short"),
    (STEP, STEP + "    if loss > 9:\n        continue\n    scheduler.get_last_lr()\n", "        continue", "cut short"),
    (STEP, STEP + "    dist.all_reduce(loss)\n", "    dist.all_reduce(loss)", "'loss' goes on"),
    (STEP, "    torch.save(net, 'net.pt')\n" + STEP, "    torch.save(net", "a save before the update"),
    (STEP, STEP + "    found = model(points).sum()\n", "    found = model", "'points' goes on"),
    (STEP, STEP + "    print(model(torch.randn(1, 2)))\n", "    print(model", "no call of a function by itself"),
    (LOOP, "losses = []\n" + LOOP.replace("\n", "\n    losses.append(k)\n"), "    losses.append(k)", "losses.append"),
    (LOOP, "seen = {}\n" + LOOP + "    seen[k] = k\n", "    seen[k] = k", "a step changes `seen[k]`"),
    (LOOP, LOOP + "    nn.seen = k\n", "    nn.seen", "a step changes `nn.seen`"),
    (LOOP, "counts = torch.rand(1)\n" + LOOP + "    counts.add_(1)\n", "    counts.add_(1)", "counts.add_"),
    (LOOP, "points = iter([])\n" + LOOP + "    next(points)\n", "    next(points)", "next()"),
    (LOOP, LOOP.replace("range", "tqdm"), "for k in tqdm", "neither that it is range"),
    (ZERO, "    optimizer.zero_grad(); k\n", "    optimizer.zero_grad(); k", "on one line"),
    (LOOP, "k = 0\nwhile k < STEPS:\n    k = k + 1\n", "while k < STEPS", "no `for`"),
    (LOOP, LOOP + '    """Several\n    lines."""\n', "    lines.", "a text of several lines"),
    (BACK, "    carried = loss if k == 1 else carried + loss\n" + BACK, "    carried = loss", "has no value before the first"),
    ("optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)\n", "def make():\n    return torch.optim.AdamW(model.parameters(), lr=1e-2)\n\n\noptimizer = make()\n",
     "    return torch.optim", "no optimizer is made by a line of its own"),
    ("model.parameters()", "list(model.children())[0].parameters()", "optimizer = ", "not written as those of a model"),
    (LOOP, "def f():\n    global loss\n    loss = 1\n\n\n" + LOOP + "    f()\n", "    global loss", "of another scope"),
    (LOOP, "history = []\n\n\ndef log(k):\n    history.append(k)\n\n\n" + LOOP + "    log(k)\n", "    history.append(k)", "history.append"),
    (LOOP, "def evaluate():\n    dist.barrier()\n\n\nevaluate()\n" + LOOP, "evaluate()\n", "before the loop"),
    ("if rank == 0:\n", "if rank == 0:\n    dist.barrier()\n", "if rank == 0", "in more than one call"),
    ("if rank == 0:\n", "if rank == 1:\n    dist.barrier()\n", "if rank == 1", "not all ranks"),
]


def init(door, path, *options):
    done = subprocess.run([str(door.bin / "kintsugi"), "init", *options, str(path)], capture_output=True, text=True, timeout=60, check=False,
                          env={**door.environment(), "PYTHON_EXEC": door.python})
    return done.returncode, done.stdout, done.stderr


def script_in(folder, text, name="train.py"):
    path = Path(folder, name)
    path.write_text(text)
    return path


def patched(door, plain, folder):
    """The script as the printed difference makes it, which is also what --write makes."""
    path = shutil.copy(plain, folder)
    code, difference, said = init(door, path)
    if code != 0 or Path(path).read_text() != Path(plain).read_text():
        raise Failure(f"exit code {code}, or the script was changed\n{said}")
    by_hand = Path(folder, "by-hand")
    by_hand.mkdir()
    shutil.copy(plain, by_hand)
    name = Path(plain).name
    applied = subprocess.run(["git", "apply", "-p0", "-"], input=difference.replace(str(path), name), text=True, cwd=by_hand, capture_output=True, check=False)
    code, printed, said = init(door, path, "--write")
    if applied.returncode != 0 or code != 0 or printed or (by_hand / name).read_text() != Path(path).read_text():
        raise Failure(f"--write makes another script than the difference: {applied.stderr}{said}")
    if Path(f"{path}.orig").read_text() != Path(plain).read_text():
        raise Failure("what was there is not kept")
    return path


def shape(door, name):
    faults, options = UNDERSTOOD[name]

    def test(_):
        plain = SHAPES / f"{name}_plain.py"
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            path = patched(door, plain, folder)
            shutil.copy(SHAPES / "facts.py", folder)
            for kind in ("plain", "struck"):
                Path(folder, kind).mkdir()
            door.plain([str(plain), f"{folder}/plain"])
            injected = [word for fault in faults for word in ("--inject", fault)]
            summary, log = door.run([*injected, "--inject-must-strike", *options], [path, f"{folder}/struck"], nproc=2)
            expected, found = left_in(f"{folder}/plain"), left_in(f"{folder}/struck")
            if expected != found or summary.get("inexact") or not summary["incidents"]:
                wrong = [f"{rank} {key}" for rank, facts in expected.items() for key, value in facts.items() if found[rank].get(key) != value]
                raise Failure(f"differs in {wrong}; {summary.get('inexact')}, {len(summary['incidents'])} incidents\n{log[-4000:]}")
    return test


def tutorial(door):
    """And with a variable that steps carry on, which is kept, one that is called as ours would be, and what is done behind each fourth step."""
    evaluate = """@torch.no_grad()
def evaluate(k):
    net.eval()
    found = model(torch.randn(4, 2)).sum()
    net.train()
    dist.all_reduce(found)
    return found + k


average = 0.0
"""
    behind = """    scheduler.step()
    # Behind the step.
    if k % 4 == 0:
        found = evaluate(k)
        if rank == 0:
            torch.save(found, f'FOLDER/found-{k}')
"""
    end = """if rank == 0:
    print("found:", *(torch.load(f'FOLDER/found-{k}').item() for k in (4, 8, 12)))
    print("average:", average)
"""

    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            text = PLAIN
            for before, after in ((LOOP, evaluate + LOOP), (BACK, BACK + "    average = 0.9 * average + 0.1 * loss.item()\n"), ("    scheduler.step()\n", behind),
                                  ("if rank == 0:\n    digest", end + "    digest"), ("STEPS = 60", "STEPS = 12\nrun = 'a name of the script'")):  # fmt: skip
                if before not in text:
                    raise Failure(f"the tutorial has no {before!r} any more")
                text = text.replace(before, after, 1)
            plain = script_in(folder, text.replace("FOLDER", folder), "plain.py")
            expected = door.plain([str(plain)])
            Path(folder, "changed").mkdir()
            path = patched(door, plain, Path(folder) / "changed")
            for line in ('kintsugi_run.keep(globals(), "average")\n', "    # Behind the step.\n    if kintsugi_run.again:\n        continue\n",
                         f"        kintsugi_run.do(torch.save, found, f'{folder}/found-{{k}}', only=0)\n"):  # fmt: skip
                if line not in Path(path).read_text():
                    raise Failure(f"'{line}' is not in\n{Path(path).read_text()}")
            summary, log = door.run(["--inject", "kill:1@4:backward", "--inject", "throw:0@8:update", "--inject-must-strike"], [path], nproc=2)
            printed = [dict(re.findall(r"\b(parameters|average|found): (.+)$", said, re.MULTILINE)) for said in (expected, log)]
            if printed[0] != printed[1] or len(printed[0]) != 3 or not summary["incidents"]:
                raise Failure(f"plain {printed[0]}, struck {printed[1]}\n{log[-4000:]}")
    return test


def cuda(door, device):
    """The script as it is for a device, with half precision: struck as undisturbed. There is no NCCL here that a plain run could be on."""
    changes = (('dist.init_process_group("gloo")\n', 'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", init_method="env://")\n'
                'local = int(os.environ["LOCAL_RANK"])\ntorch.cuda.set_device(local)\ndevice = torch.device("cuda", local)\n'),
               ("import hashlib\n", "import hashlib\nimport os\n"), (", nn.Dropout(0.1)", ""), ("nn.Linear(32, 1))\n", "nn.Linear(32, 1)).cuda()\n"),
               ("DistributedDataParallel(net)", "DistributedDataParallel(net, device_ids=[local])"), ("torch.randn(16, 2)", "torch.randn(16, 2).to(device, non_blocking=True)"),
               ("optimizer = ", "scaler = torch.amp.GradScaler('cuda', init_scale=2.0**14)\noptimizer = "), ("    loss = ", "    with torch.autocast('cuda', enabled=False):\n        loss = "),
               (BACK, "    scaler.scale(loss).backward()\n"), (STEP, "    scaler.step(optimizer)\n    scaler.update()\n"), ("p.detach().numpy()", "p.detach().cpu().numpy()"),
               ("STEPS = 60", "STEPS = 10"))  # fmt: skip

    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            text = PLAIN
            for before, after in changes:
                if before not in text:
                    raise Failure(f"the tutorial has no {before!r} any more")
                text = text.replace(before, after, 1)
            path = patched(door, script_in(folder, text, "plain.py"), Path(Path(folder, "changed").mkdir() or folder, "changed"))
            program = device.names_cuda(str(path))
            found = []
            for faults in ((), ("--inject", "kill:1@4:backward", "--inject", "throw:0@8:update", "--inject-must-strike")):
                summary, log = device.run(faults, program, nproc=2)
                found.append((re.findall(r"\bparameters: (.+)$", log, re.MULTILINE), len(summary["incidents"])))
            if found[0][0] != found[1][0] or len(found[0][0]) != 1 or found[0][1] != 0 or found[1][1] != 2:
                raise Failure(f"undisturbed {found[0]}, struck {found[1]}\n{log[-4000:]}")
    return test


def must_be_refused(door, path, line, why):
    code, difference, said = init(door, path, "--write")
    named = [text for text in said.splitlines() if text.startswith(f"{path}:") and why in text]
    if code != 1 or difference or not named or line and not named[0].startswith(f"{path}:{line}:"):
        raise Failure(f"exit code {code}, expected line {line} and '{why}'\n{difference[:500]}\n{said}")
    if Path(f"{path}.orig").exists():
        raise Failure("it was written")


def other_shapes(door):
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            for name, (line, why) in REFUSED.items():
                must_be_refused(door, shutil.copy(SHAPES / f"{name}_plain.py", folder), line, why)
        covered = {path.name.removesuffix("_plain.py") for path in SHAPES.glob("*_plain.py")}
        if covered != {*UNDERSTOOD, *REFUSED}:
            raise Failure(f"shapes that are neither: {covered ^ {*UNDERSTOOD, *REFUSED}}")
    return test


def mistakes(door):
    def test(_):
        wrong = []
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            for number, (before, after, line, why) in enumerate(MISTAKES):
                text = PLAIN.replace(before, after, 1)
                if text == PLAIN:
                    raise Failure(f"the tutorial has no {before!r} any more")
                at = next((n for n, found in enumerate(text.splitlines(keepends=True), 1) if line in found), 0) if line else None
                try:
                    must_be_refused(door, script_in(folder, text, f"train-{number}.py"), at, why)
                except Failure as failure:
                    wrong.append(f"{after!r}: {failure}")
        if wrong:
            raise Failure("\n\n".join(wrong))
    return test


def all_at_once(door):
    """Every reason that can be found, by line, and then what was understood, as lines to be written by hand; one process alone is told what it lacks."""
    changes = (('("gloo")', '("mpi")'), (STEP, "    if k % 2 == 0:\n        optimizer.step()\n"), (LOOP, "seen = {}\n" + LOOP + "    seen[k] = k\n"), ("if rank == 0:\n", "if rank == 1:\n    dist.barrier()\n"))  # fmt: skip
    expected = ['("mpi")', "    seen[k] = k", "        optimizer.step()", "if rank == 1"]
    by_hand = [("run = kintsugi.torch.join()", "dist.init"), ('in place of this line: dist.init_process_group("kintsugi")', "dist.init"),
               ("run.register(model=model, optimizer=optimizer, scheduler=scheduler)", LOOP), ("in place of this line: for k in run.range(1, STEPS + 1):", LOOP), ("with run.step():", "    seen[k]")]  # fmt: skip

    def test(_):
        text = PLAIN
        for before, after in changes:
            text = text.replace(before, after, 1)
        line_of = lambda word: next(n for n, line in enumerate(text.splitlines(keepends=True), 1) if word in line)  # noqa: E731
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            path = script_in(folder, text)
            code, difference, said = init(door, path)
            told = [line.removeprefix(f"{path}:").split(": ", 1) for line in said.splitlines() if line.startswith(f"{path}:")]
            reasons = [int(number) for number, what in told if not what.startswith("by hand")]
            lines = {(int(number), what) for number, what in told if what.startswith("by hand")}
            if code != 1 or difference or reasons != [line_of(word) for word in expected]:
                raise Failure(f"exit code {code}, reasons in lines {reasons}\n{difference}{said}")
            for what, at in by_hand:
                if not any(number == line_of(at) and what in line for number, line in lines):
                    raise Failure(f"'{what}' is not said of line {line_of(at)}\n{said}")
            alone = script_in(folder, PLAIN.replace('dist.init_process_group("gloo")\n', "").replace("DistributedDataParallel(net)", "net").replace("rank = dist.get_rank()", "rank = 0"), "alone.py")
            must_be_refused(door, alone, 1, '("gloo") behind the imports')
            if "by hand" in init(door, alone)[2]:
                raise Failure("lines by hand that come before there is a process group")
    return test


def words(door):
    """A file that is not there, a kept copy that would be lost, a Python without the package."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            path = script_in(folder, PLAIN)
            script_in(folder, "kept", "train.py.orig")
            checks = [(init(door, f"{folder}/none.py"), 2, "cannot be read"), (init(door, path, "--write"), 2, "the only copy"),
                      (init(door, script_in(folder, "x = (", "broken.py")), 1, "no Python"),
                      (init(door, script_in(folder, "x = 1\r\n", "dos.py")), 1, "dos2unix")]  # fmt: skip
            bare = {**os.environ, "PYTHON_EXEC": "/usr/bin/python3", "PYTHONPATH": ""}
            done = subprocess.run([str(door.bin / "kintsugi"), "init", str(path)], capture_output=True, text=True, env=bare, timeout=60, check=False)
            checks.append(((done.returncode, done.stdout, done.stderr), 1, "PYTHON_EXEC"))
            for (code, printed, said), expected, word in checks:
                if code != expected or word not in said or printed:
                    raise Failure(f"exit code {code}, expected {expected} and '{word}'\n{printed}{said}")
            if path.read_text() != PLAIN or Path(folder, "train.py.orig").read_text() != "kept":
                raise Failure("something was written")
    return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("fakes")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = Door(options.door, preload="kintsugi.torch")
    tests = [("other shapes are refused, by line", other_shapes(door)), ("one thing that is not understood, each by its line", mistakes(door)),
             ("all of several things, and what was understood", all_at_once(door)), ("files and interpreters", words(door))]
    skip_without_torch(door)
    tests += [("the tutorial's script, with an average", tutorial(door)), ("the tutorial's script for a device", cuda(door, Door(options.door, fakes=options.fakes))), *((f"{name}, written by init and struck", shape(door, name)) for name in UNDERSTOOD)]
    sys.exit(main(tests, door.bin, options.only))
