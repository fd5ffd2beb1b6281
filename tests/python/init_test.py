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
    "snapshots": (["kill:1@2:update", "throw:0@3:backward", "kill:0@5:forward", "kill:1@8:backward", "throw:1@9:update"], []),
}
REFUSED = {
    "nanogpt": (114, "a save before the update"),
    "ppo": (101, "which is an epoch cannot be read"),
    "trainer": (11, "the loop is transformers's"),
    "diffusion": (11, "the loop is accelerate's"),
}
# In the shape of torch's tutorials: a class that trains, and functions that make what it is given. Samples are shuffled, and no epoch is told.
TRAINER = '''import hashlib
import os

import torch
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def ddp_setup():
    torch.set_num_threads(1)
    init_process_group(backend="gloo")


class Trainer:
    def __init__(self, model: torch.nn.Module, train_data: DataLoader, optimizer: torch.optim.Optimizer, save_every: int, snapshot_path: str) -> None:
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.model = model.to("cpu")
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.epochs_run = 0
        self.losses = 0.0
        self.snapshot_path = snapshot_path
        if os.path.exists(snapshot_path):
            print("Loading snapshot")
            self._load_snapshot(snapshot_path)
        self.model = DDP(self.model)

    def _load_snapshot(self, snapshot_path):
        snapshot = torch.load(snapshot_path)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]
        print(f"Resuming training from snapshot at Epoch {self.epochs_run}")

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.mse_loss(output, targets)
        loss.backward()
        self.losses += loss.item()
        self.optimizer.step()

    def _run_epoch(self, epoch):
        b_sz = len(next(iter(self.train_data))[0])
        print(f"[GPU{self.gpu_id}] Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}")
        for source, targets in self.train_data:
            source = source.to("cpu")
            targets = targets.to("cpu")
            self._run_batch(source, targets)

    def _save_snapshot(self, epoch):
        snapshot = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch}
        torch.save(snapshot, self.snapshot_path + ".new")
        os.replace(self.snapshot_path + ".new", self.snapshot_path)

    def train(self, max_epochs: int):
        self.model.train()
        for epoch in range(self.epochs_run, max_epochs):
            self._run_epoch(epoch)
            if self.gpu_id == 0 and epoch % self.save_every == 0:
                self._save_snapshot(epoch)


def load_train_objs():
    torch.manual_seed(3)
    train_set = TensorDataset(torch.randn(48, 20), torch.randn(48, 1))
    model = torch.nn.Sequential(torch.nn.Linear(20, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    return train_set, model, optimizer


def prepare_dataloader(dataset, batch_size: int):
    return DataLoader(dataset, batch_size=batch_size, shuffle=False, sampler=DistributedSampler(dataset))


def main(save_every: int, total_epochs: int, batch_size: int, snapshot_path: str = "FOLDER/snapshot.pt"):
    ddp_setup()
    dataset, model, optimizer = load_train_objs()
    train_data = prepare_dataloader(dataset, batch_size)
    trainer = Trainer(model, train_data, optimizer, save_every, snapshot_path)
    trainer.train(total_epochs)
    if trainer.gpu_id == 0:
        kept = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(hashlib.sha256(kept).hexdigest(), trainer.losses, torch.rand(1).item(), file=open("FOLDER/last.txt", "w"))
    destroy_process_group()


if __name__ == "__main__":
    main(2, 3, 6)
'''
# The tutorial's script, with a function that nobody calls, and with one thing changed: what, by what, the line that is named, and a word of why.
LOOP, STEP, BACK, ZERO = "for k in range(1, STEPS + 1):\n", "    optimizer.step()\n", "    loss.backward()\n", "    optimizer.zero_grad()\n"
JUDGED = PLAIN.replace(LOOP, "lowest = 9.0\n\n\ndef judge(k):\n    global lowest\n    lowest = min(lowest, k)\n    dist.barrier()\n\n\n" + LOOP)
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
    (LOOP, "if rank == 0:\n    optimizer = None\n" + LOOP, "optimizer = torch", "no optimizer is made by a line of its own"),
    (LOOP, LOOP + "    model = net\n", LOOP, "is assigned again"),
    (ZERO, "    if k == 5:\n        model.load_state_dict({})\n" + ZERO, "        model.load", "a state of its own"),
    (LOOP, "shown = net.state_dict()\nother = nn.Linear(1, 1)\nother.load_state_dict({})\n" + LOOP, "other.load", "not registered"),
    (STEP, "    optimizer.step(lambda: loss)\n", "lambda: loss", "closure"),
    (STEP, "    if k % 2 == 0:\n        optimizer.step()\n", "        optimizer.step()", "under a condition"),
    (STEP, STEP + "    if loss < 0.1:\n        break\n", "    if loss < 0.1", "'loss' goes on"),
    (STEP, "    if k > 9:\n        break\n" + STEP, "        break", "cut short"),
    (STEP, STEP + "    if judge(k):\n        break\n", "    if judge(k)", "stands within a condition"),
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
    (LOOP, "seen = []\n\n\ndef log(what, k):\n    what.append(k)\n\n\n" + LOOP + "    log(seen, k)\n", "    what.append(k)", "what.append"),
    (LOOP, "class Counts:\n    def add(self, k):\n        self.last = k\n\n\ncounts = Counts()\n" + LOOP + "    counts.add(k)\n", "        self.last", "no value before the first"),
    (LOOP, "class Counts:\n    def __init__(self):\n        self.all = []\n\n    def add(self, k):\n        self.all.append(k)\n\n\ncounts = Counts()\n" + LOOP
     + "    counts.add(k)\n", "        self.all.append", "self.all.append"),
    (LOOP, "def train(first):\n    for k in range(first, STEPS + 1):\n        optimizer.zero_grad()\n        model(torch.randn(2, 2)).sum().backward()\n        optimizer.step()\n"
     "    torch.save(first, 'at.pt')\n\n\nfirst = torch.load('at.pt')\nnet.load_state_dict({})\ntrain(first)\nscale = first\n" + LOOP.replace("STEPS", "0"), None, "several places"),
    (LOOP, LOOP.replace("range", "tqdm"), "for k in tqdm", "neither that it is range"),
    (ZERO, "    optimizer.zero_grad(); k\n", "    optimizer.zero_grad(); k", "on one line"),
    (LOOP, "k = 0\nwhile k < STEPS:\n    k = k + 1\n", "while k < STEPS", "no `for`"),
    (LOOP, "k = 0\nwhile True:\n    k = k + 1\n", "while True", "no end that can be read"),
    (LOOP, LOOP + '    """Several\n    lines."""\n', "    lines.", "a text of several lines"),
    (BACK, "    carried = loss if k == 1 else carried + loss\n" + BACK, "    carried = loss", "has no value before the first"),
    ("model.parameters()", "list(model.children())[0].parameters()", "optimizer = ", "not written as those of a model"),
    (LOOP, "def f():\n    global loss\n    loss = 1\n\n\n" + LOOP + "    f()\n", "    global loss", "of another scope"),
    (LOOP, "history = []\n\n\ndef log(k):\n    history.append(k)\n\n\n" + LOOP + "    log(k)\n", "    history.append(k)", "history.append"),
    (STEP, STEP + "    if k % 9 == 0:\n        judge(k)\n", "global lowest", "a section changes lowest"),
    (LOOP, "def evaluate():\n    dist.barrier()\n\n\nevaluate()\n" + LOOP, "evaluate()\n", "before the loop"),
    ("if rank == 0:\n", "if rank == 0:\n    dist.barrier()\n", "if rank == 0", "in more than one call"),
    ("if rank == 0:\n", "if rank == 1:\n    dist.barrier()\n", "if rank == 1", "not all ranks"),
]


# And of the trainer.
MISTAKEN_TRAINERS = [
    ("            self._run_epoch(epoch)\n", "            self._run_epoch(epoch)\n            low = self.losses\n", "            low = self.losses", "made of what steps carry on"),
    ("            self._run_epoch(epoch)\n", "            self._run_epoch(epoch)\n            self._load_snapshot(self.snapshot_path)\n", "        self.model.load_state_dict", "a state of its own"),
    ('        self.snapshot_path = snapshot_path\n', '        self.snapshot_path = snapshot_path\n        if save_every > 1:\n            self.optimizer = None\n', "        self.optimizer.step()", "is no update"),
    ('        torch.save(snapshot, ', '        self.model = None\n        torch.save(snapshot, ', "    trainer.train(", "is assigned again"),
    ('        torch.save(snapshot, ', '        self.saved = epoch\n        torch.save(snapshot, ', "        self.saved", "no value before the first"),
    ("        self.losses += loss.item()\n", "        if loss > 9:\n            return\n        self.losses += loss.item()\n", "        self.optimizer.step()", "under a condition"),
    ("        for epoch in range(self.epochs_run, max_epochs):\n", "        first = self.epochs_run\n        for epoch in range(first, max_epochs):\n", "        first = self", "is read between steps"),
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


def later(door):
    """From the snapshot that the script itself made: struck in its first steps from there, it goes on as the plain script does."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            plain = SHAPES / "snapshots_plain.py"
            path = patched(door, plain, folder)
            shutil.copy(SHAPES / "facts.py", folder)
            saved = Path(folder, "saved")
            saved.mkdir()
            door.plain([str(plain), str(saved)])
            for gone in saved.glob("rank-*.json"):
                gone.unlink()
            for kind in ("plain", "struck"):
                shutil.copytree(saved, Path(folder, kind))
            door.plain([str(plain), f"{folder}/plain"])
            faults = [word for fault in ("kill:1@1:backward", "throw:0@2:forward", "kill:1@3:update") for word in ("--inject", fault)]
            summary, log = door.run([*faults, "--inject-must-strike"], [path, f"{folder}/struck"], nproc=2)
            if left_in(f"{folder}/plain") != left_in(f"{folder}/struck") or summary.get("inexact") or not summary["incidents"]:
                raise Failure(f"{summary.get('inexact')}, {len(summary['incidents'])} incidents\n{log[-4000:]}")
    return test


def trainer(door):
    """torch's own tutorial of a trainer that can be stopped: group, things and loader each by a function, one that saves on each machine."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            plain = script_in(folder, TRAINER.replace("FOLDER", folder), "plain.py")
            door.plain([str(plain)])
            expected = torch_file(folder, "last.txt")
            Path(folder, "snapshot.pt").unlink()
            Path(folder, "changed").mkdir()
            path = patched(door, plain, Path(folder) / "changed")
            for line in ("    run.register(model=trainer.model, optimizer=optimizer)\n    run.keep(trainer, \"losses\")\n", "for source, targets in run.batches(self.train_data):\n",
                         "for epoch in run.do(range, self.epochs_run, max_epochs):\n", "run.do(lambda: self.gpu_id == 0 and self._save_snapshot(epoch))\n"):  # fmt: skip
                if line not in Path(path).read_text():
                    raise Failure(f"'{line}' is not in\n{Path(path).read_text()}")
            faults = ("kill:1@2:update", "throw:0@4:backward", "kill:0@5:forward", "kill:1@9:backward")
            summary, log = door.run([*(word for fault in faults for word in ("--inject", fault)), "--inject-must-strike"], [path], nproc=2)
            if torch_file(folder, "last.txt") != expected or summary.get("inexact") or not summary["incidents"]:
                raise Failure(f"{summary.get('inexact')}, {len(summary['incidents'])} incidents\n{expected}\n{log[-4000:]}")
    return test


def torch_file(folder, name):
    text = Path(folder, name).read_text()
    Path(folder, name).unlink()
    return text


def tutorial(door):
    """And with a variable that steps carry on, which is kept, one that is called as ours would be, and what is done behind each fourth step."""
    evaluate = """@torch.no_grad()
def evaluate(k):
    net.eval()
    found = model(torch.randn(4, 2)).sum()
    net.train()
    dist.all_reduce(found)
    return found + k


average = highest = 0.0
"""
    behind = """    scheduler.step()
    # Behind the step.
    if k % 4 == 0:
        found = evaluate(k)
        highest = max(highest, found.item())
        if rank == 0:
            torch.save(found, f'FOLDER/found-{k}')
"""
    end = """if rank == 0:
    print("found:", *(torch.load(f'FOLDER/found-{k}').item() for k in (4, 8, 12)))
    print("average:", average, highest)
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
            for line in ('kintsugi_run.keep(globals(), "average", "highest")\n', "    # Behind the step.\n    if kintsugi_run.again:\n        continue\n",
                         f"        kintsugi_run.do(torch.save, found, f'{folder}/found-{{k}}', only=0)\n"):  # fmt: skip
                if line not in Path(path).read_text():
                    raise Failure(f"'{line}' is not in\n{Path(path).read_text()}")
            summary, log = door.run(["--inject", "kill:1@4:backward", "--inject", "throw:0@8:update", "--inject", "kill:0@10:backward", "--inject-must-strike"], [path], nproc=2)
            printed = [dict(re.findall(r"\b(parameters|average|found): (.+)$", said, re.MULTILINE)) for said in (expected, log)]
            if printed[0] != printed[1] or len(printed[0]) != 3 or not summary["incidents"]:
                raise Failure(f"plain {printed[0]}, struck {printed[1]}\n{log[-4000:]}")
    return test


def endless(door):
    """A loop without a head, a counter, gradients of several parts in one step."""
    loop = """k = 0
while True:
    optimizer.zero_grad()
    for part in range(3):
        model.require_backward_grad_sync = part == 2
        points = torch.randn(16, 2)
        loss = (model(points) - points.prod(1, keepdim=True)).square().mean() / 3
        loss.backward()
    optimizer.step()
    scheduler.step()
    k += 1
    if k >= STEPS:
        break
"""

    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            text = replaced(PLAIN, "STEPS = 60", "STEPS = 12")
            text = text[: text.index(LOOP)] + loop + text[text.index("\nif rank == 0:") :]
            plain = script_in(folder, text, "plain.py")
            expected = door.plain([str(plain)])
            Path(folder, "changed").mkdir()
            path = patched(door, plain, Path(folder) / "changed")
            for line in ('run.keep(globals(), "k")\nfor _ in run.range(1 << 40):\n    with run.step():\n', "    if run.again:\n        continue\n    if run.stop_if(k >= STEPS):\n        break\n"):
                if line not in Path(path).read_text():
                    raise Failure(f"'{line}' is not in\n{Path(path).read_text()}")
            faults = ("kill:1@4:backward", "throw:0@8:update", "kill:0@12:backward", "kill:1@12:update")
            summary, log = door.run([*(word for fault in faults for word in ("--inject", fault)), "--inject-must-strike"], [path], nproc=2)
            printed = [re.findall(r"\bparameters: (.+)$", said, re.MULTILINE) for said in (expected, log)]
            if printed[0] != printed[1] or len(printed[0]) != 1 or summary.get("inexact") or not summary["incidents"]:
                raise Failure(f"plain {printed[0]}, struck {printed[1]}; {summary.get('inexact')}\n{log[-4000:]}")
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


def replaced(text, before, after):
    if before not in text:
        raise Failure(f"there is no {before!r} any more")
    return text.replace(before, after, 1)


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
            for number, (of, (before, after, line, why)) in enumerate([(JUDGED, mistake) for mistake in MISTAKES] + [(TRAINER, mistake) for mistake in MISTAKEN_TRAINERS]):
                text = replaced(of, before, after)
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
            said = init(door, SHAPES / "nanogpt_plain.py")[2]
            if not re.search(r"if run\.again:\n.*: continue\n", said):
                raise Failure(f"lines of one place are not in their order\n{said}")
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
    tests += [("the tutorial's script, with an average", tutorial(door)), ("a loop without a head, in parts", endless(door)), ("a trainer's snapshot, from which it starts", later(door)), ("torch's tutorial of a trainer", trainer(door)),
              ("the tutorial's script for a device", cuda(door, Door(options.door, fakes=options.fakes))), *((f"{name}, written by init and struck", shape(door, name)) for name in UNDERSTOOD)]
    sys.exit(main(tests, door.bin, options.only))
