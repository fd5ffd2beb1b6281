"""A peer of bench torch: plain DDP with what NVIDIA's resiliency extension puts around it.

  ft_launcher --nproc-per-node 4 --max-restarts 1 ... torch_bench_nvrx.py FOLDER kill launcher     its launcher, with heartbeats
  torch_bench_nvrx.py FOLDER exception in-process GLOO_TIMEOUT_S     one rank of four that somebody started: the train function is
                                                                     called again in the same process. WRAPPER_PORT: of its wrapper
"""

import os
import sys
from datetime import timedelta

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from torch_bench_marks import RANKS
from torch_bench_trainer import Trainer

trainer = Trainer(sys.argv[1], sys.argv[2], int(os.environ["RANK"]))


def with_launcher() -> None:
    from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient

    client = RankMonitorClient()
    client.init_workload_monitoring()
    dist.init_process_group("gloo")
    trainer.train(DistributedDataParallel(trainer.module), each=client.send_heartbeat)


def in_process(timeout: timedelta) -> None:
    from nvidia_resiliency_ext.inprocess import CallWrapper, Wrapper

    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=trainer.rank == 0, wait_for_workers=False)

    @Wrapper(store_kwargs={"port": int(os.environ["WRAPPER_PORT"])})
    def train(call: CallWrapper = None) -> None:  # type: ignore[assignment]
        dist.init_process_group("gloo", store=dist.PrefixStore(str(call.iteration), store), rank=trainer.rank, world_size=RANKS,
                                timeout=timeout)
        trainer.train(DistributedDataParallel(trainer.module), each=call.ping)

    train()


if sys.argv[3] == "launcher":
    with_launcher()
else:
    in_process(timedelta(seconds=float(sys.argv[4])))
