"""torch's door: a plain script survives by a handful of lines.

    run = kintsugi.torch.join()
    torch.distributed.init_process_group("kintsugi")
    model, optimizer = build()                          # DDP as ever
    run.register(model=model, optimizer=optimizer)
    run.train(step, steps=1000)                         # optimizer.step() inside of step(k) is the gate
"""

import torch as _torch

if not hasattr(_torch, "nn"):
    raise ImportError(f"'torch' is {_torch.__file__ or list(_torch.__path__)}, not PyTorch: a file or folder of that name is found before it. "
                      "Rename it, or start the program from another folder")  # fmt: skip

from .._errors import Error, InjectedFault, Interrupted
from ..terms import Incident
from .bits import deterministic
from .built import Built, Reset
from .replica_optimizer import ReplicaOptimizer
from .run import TorchRun, join

__all__ = ["Built", "Error", "Incident", "InjectedFault", "Interrupted", "ReplicaOptimizer", "Reset", "TorchRun", "deterministic", "join"]
