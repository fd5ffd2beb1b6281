"""The blocks of docs/your_loop.md, run as they stand, in a script that has what they name. PLAIN=1: the same loops, as one writes them for plain
torch over Gloo. What is left, bit for bit, goes to FOLDER/rank-N.json.

  your_loop.py FOLDER [--gan]     --gan: the GAN's block, which is a script of its own
"""
import contextlib
import hashlib
import json
import os
import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, StackDataset

PAGE = Path(__file__).resolve().parents[2] / "integrations/python/docs/your_loop.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
folder, is_gan = Path(sys.argv[1]), "--gan" in sys.argv
plain = os.environ.get("PLAIN") == "1"
epochs, target, path = 2, 100.0, folder / "saved"


class Rows(Dataset):
    """Draws, as data sets do that augment."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((6,), index / self.count) + 0.1 * torch.rand(6)


class Net(nn.Module):
    """Gives its loss."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 4))

    def forward(self, batch):
        return self.layers(batch).square().mean()


def build():
    torch.manual_seed(1 + dist.get_rank())
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    return model, optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5), AveragedModel(model)


def evaluate(model):
    model.eval()
    with torch.no_grad():
        total = sum(model(batch) for batch in DataLoader(Rows(9), batch_size=3))
    model.train()
    dist.all_reduce(total)
    return float(total)


def digest(*tensors):
    return hashlib.sha256(b"".join(tensor.detach().contiguous().cpu().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


def save(path):
    path.write_text(digest(*model.parameters()))


def log(line):
    with open(folder / "log", "a", encoding="utf-8") as lines:
        lines.write(line + "\n")


def drawn():
    return torch.randn(4, 6)


def train_plain():
    """The blocks, before there was anything of Kintsugi in them."""
    global model, optimizer, scheduler, average, result, best
    model, optimizer, scheduler, average = build()
    k = 0
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            k += 1
            loss = model(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(model)
            if k % 4 == 0:
                evaluate(model)
        accuracy = evaluate(model)
        scheduler.step(accuracy)
        if dist.get_rank() == 0:
            save(path)
        if accuracy > target:
            break
    best = float("inf")
    for i in range(6):
        if i % 3 == 0 and (found := evaluate(model)) < best:
            best = found
            if dist.get_rank() == 0:
                save(path)
        optimizer.zero_grad()
        loss = model(drawn())
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            log(f"step {i}: {loss.item()}")
    loader.sampler.set_epoch(0)
    for i, batch in enumerate(loader):
        updates = (i + 1) % 3 == 0 or i + 1 == len(loader)
        with contextlib.nullcontext() if updates else model.no_sync():
            (model(batch) / 3).backward()
        if updates:
            optimizer.step()
            optimizer.zero_grad()
    for first, second in DataLoader(StackDataset(data, more), batch_size=4, shuffle=True):
        optimizer.zero_grad()
        (model(first) + model(second)).backward()
        optimizer.step()
    result = evaluate(average)
    if dist.get_rank() == 0:
        save(path)


def train_plain_gan():
    loader.sampler.set_epoch(0)
    for real in loader:
        of_critic.zero_grad()
        fake = generator(torch.randn_like(real))
        (critic(fake.detach()) - critic(real)).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(fake).mean()).backward()
        of_generator.step()


torch.set_num_threads(1)
*loops, gan = BLOCKS
begins, *loops = loops
joins = "".join(begins.splitlines(keepends=True)[:2])
data, more = Rows(26), Rows(26)
if plain:
    dist.init_process_group("gloo")
else:
    import kintsugi.torch

    exec(joins, globals())
torch.manual_seed(1)
rank = dist.get_rank()
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, seed=3))
result, best = 0.0, 0.0
if is_gan:
    generator, critic = (DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, last))) for last in (6, 1))
    of_generator, of_critic = torch.optim.Adam(generator.parameters(), lr=0.01), torch.optim.RMSprop(critic.parameters(), lr=0.01)
    torch.manual_seed(1 + rank)
    train_plain_gan() if plain else exec(compile(gan, f"{PAGE} (GAN)", "exec"), globals())
    left = {"generator": digest(*generator.parameters()), "critic": digest(*critic.parameters())}
else:
    if plain:
        train_plain()
    else:
        exec(compile(begins.removeprefix(joins), f"{PAGE} (begin)", "exec"), globals())
        for number, block in enumerate(loops):
            exec(compile(block, f"{PAGE} (block {number + 1})", "exec"), globals())
    lines = (folder / "log").read_text(encoding="utf-8").splitlines() if rank == 0 else []
    if not plain and run.resumes:  # what was logged behind the step that it goes on from stands there already
        lines = sorted({*lines})
    left = {"model": digest(*model.parameters()), "average": digest(*average.parameters()), "rate": str(optimizer.param_groups[0]["lr"]),
            "random": str(torch.rand(1).item()), "result": str(result), "best": str(best), "log": "\n".join(lines), "saved": path.read_text() if rank == 0 else ""}  # fmt: skip
(folder / f"rank-{rank}.json").write_text(json.dumps({name: {"bits": value} for name, value in left.items()}))
if plain:  # else a thread of the group may outlive the interpreter, which aborts
    dist.destroy_process_group()
