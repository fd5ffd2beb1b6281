"""A trainer with DistributedDataParallel that is started by torchrun, or by hand.

  agentless.py STEPS [raise|kill|terminate STEP RANK]     what happens once, in the first of torchrun's lives
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

steps = int(sys.argv[1])
what, where, who = (sys.argv[2], int(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) > 2 else ("", 0, 0)
life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
struck = Path("struck")

run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
run.register(model=model, optimizer=optimizer)
began: list[int] = []


def step(k: int) -> None:
    began.append(k)
    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * k + run.rank))
    optimizer.zero_grad()
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    if k == where and run.rank == who and life == 0 and not struck.exists():
        struck.touch()
        if what == "raise":
            raise RuntimeError("as planted")
        os.kill(os.getppid() if what == "terminate" else os.getpid(), signal.SIGTERM if what == "terminate" else signal.SIGKILL)
    loss.backward()
    optimizer.step()
    run.report(loss=loss.item())


run.train(step, steps)
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
print(f"rank {run.rank} life {life} began {began[0]} steps {len(began)} parameters {digest}", flush=True)
