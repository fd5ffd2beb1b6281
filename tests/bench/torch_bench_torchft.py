"""A peer of bench torch: one of torchft's replica groups, of one rank. Its supervisor starts it anew where it was killed.

  torch_bench_torchft.py FOLDER kill RANK [TIMEOUT_S]      TIMEOUT_S: of its manager and of its group of Gloo's; without it, its defaults

TORCHFT_LIGHTHOUSE is the address of its lighthouse.
"""

import sys
from datetime import timedelta

from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from torch_bench_trainer import Trainer

trainer = Trainer(sys.argv[1], sys.argv[2], int(sys.argv[3]))
limit = {"timeout": timedelta(seconds=float(sys.argv[4]))} if len(sys.argv) > 4 else {}
store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


def state() -> dict[str, object]:
    return {"model": trainer.module.state_dict(), "optimizer": trainer.optimizer.state_dict()}


def load(given: dict[str, dict[str, object]]) -> None:
    trainer.module.load_state_dict(given["model"])
    trainer.optimizer.load_state_dict(given["optimizer"])


manager = Manager(pg=ProcessGroupGloo(**limit), load_state_dict=load, state_dict=state, min_replica_size=1, rank=0, world_size=1,
                  store_addr="localhost", store_port=store.port, hostname="localhost", replica_id=f"replica{trainer.rank}", **limit)
trainer.train(DistributedDataParallel(manager, trainer.module), Optimizer(manager, trainer.optimizer), steps_done=manager.current_step)
