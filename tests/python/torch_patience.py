"""A receive waits for a rank that is late as long as the group's timeout says, not as long as connecting may take; and a repair keeps it so.

  torch_patience.py      2 ranks; a fault of the launcher's in step 2
"""

import time

import torch
import torch.distributed as dist

import kintsugi.torch

LATE_SECONDS = 4  # beyond what Gloo's connecting is given at the step timeout of the test

torch.set_num_threads(1)
torch.manual_seed(1)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
run.register(model=layer, optimizer=optimizer)


def step(k: int) -> None:
    optimizer.zero_grad()
    value = torch.full((2,), float(k))
    if run.rank == 0:
        if k in (1, 3):
            time.sleep(LATE_SECONDS)
        dist.send(value, 1)
    else:
        dist.recv(value, 0)
    layer(value).sum().backward()
    optimizer.step()
    run.report(value.sum().item())


run.train(step, steps=4)
