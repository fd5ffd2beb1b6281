"""The peer of bench torch: plain DDP under torchrun, which starts all processes anew where one failed, without what they had learnt.

  torchrun --nproc-per-node 4 --max-restarts 1 torch_bench_peer.py FOLDER exception|kill
"""
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

folder, fault = Path(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
struck = folder / "struck"
again = struck.exists()
for k in range(12):
    if k == 10 and not again and dist.get_rank() == 1:
        struck.write_text(str(time.time()))
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("struck")
    optimizer.zero_grad()
    model(torch.ones(4, 64)).square().mean().backward()
    optimizer.step()
    if again:
        (folder / f"stepping{dist.get_rank()}").write_text(str(time.time()))
        break
