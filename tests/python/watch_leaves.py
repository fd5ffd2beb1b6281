"""Rank 2 is done early and leaves: the others find its connections closed."""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(40):
    if step == 12 and dist.get_rank() == 2:
        sys.exit(0)
    time.sleep(0.02)
    dist.all_reduce(torch.ones(3))
dist.barrier()
