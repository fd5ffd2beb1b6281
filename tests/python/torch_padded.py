"""A vocabulary whose rows are cut over two ranks and padded to what they divide: 100 rows of a checkpoint become 104, and fewer again.

  torch_padded.py ROWS STEPS [strict|all]     strict: nothing is said of other shapes; all: the head, too
"""
import sys

import numpy
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import kintsugi.torch

ROWS, STEPS, HOW = int(sys.argv[1]), int(sys.argv[2]), (sys.argv[3:] or [""])[0]
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
mesh = init_device_mesh("cpu", (run.world_size,))
torch.manual_seed(3)
words = torch.nn.Embedding(100, 8).weight.detach()
words = torch.cat([words, torch.full((max(ROWS - 100, 0), 8), 9.0)])[:ROWS]
model = torch.nn.Module()
model.words = torch.nn.Parameter(distribute_tensor(words, mesh, [Shard(0)]))
model.head = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
run.register(model=model, optimizer=optimizer, allow_shape_mismatch=None if HOW == "strict" else ["*/words*", "model/head"] if HOW == "all" else "*/words*")

counts = run.register("counts", numpy.full((ROWS, 2), 5, dtype=numpy.int64), allow_shape_mismatch=HOW != "strict")  # the same on all ranks


def step(k):
    global told
    if not told:  # as it was loaded
        told = True
        tell()
    optimizer.zero_grad()
    loss = (model.words.to_local() * model.head).square().mean()
    loss.backward()
    dist.all_reduce(model.head.grad)
    run.report(loss.item())
    with run.update():
        optimizer.step()
        counts[...] += 1


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def tell():
    """What the rows of the smallest vocabulary are, the next ones, and whether those behind 100 are zero."""
    for name, tensor in (("words", model.words), ("exp_avg_sq", optimizer.state[model.words]["exp_avg_sq"])):
        rows = whole(tensor.detach())
        print(f"rank {run.rank} {name} {rows[:96].double().sum().item():.9e} {rows[96:100].double().sum().item():.9e} zero={not rows[100:].any()}", file=sys.stderr)
    print(f"rank {run.rank} counts {counts[:96].sum()} {counts[96:100].sum()} zero={not counts[100:].any()}", file=sys.stderr)


told = not run.resumes
run.train(step, STEPS)
run.do(tell) if not run.resumes else None
