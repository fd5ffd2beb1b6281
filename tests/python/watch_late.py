"""Rank 3 comes to one barrier some seconds late, by itself: it saves, say."""

import time

import torch.distributed as dist


def saves_for_long():
    time.sleep(6)


dist.init_process_group("gloo")
for _ in range(12):
    dist.barrier()
if dist.get_rank() == 3:
    saves_for_long()
dist.barrier()
dist.destroy_process_group()
