"""A peer of bench torch: plain DDP under torchrun, which starts all processes anew where one failed, without what they had learnt.

  torchrun --nproc-per-node 4 --max-restarts 1 torch_bench_torchrun.py FOLDER exception|kill
"""

import sys

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from torch_bench_trainer import Trainer

dist.init_process_group("gloo")
trainer = Trainer(sys.argv[1], sys.argv[2], dist.get_rank())
trainer.train(DistributedDataParallel(trainer.module))
