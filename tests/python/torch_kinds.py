"""Every public class of what scripts train with, and every option of torch's wrappers, stands in docs/kinds.md, as kept, refused or inexact.
Needs no run."""
import inspect
import re
from pathlib import Path

import torch
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import parallel
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler, swa_utils

page = (Path(__file__).resolve().parents[2] / "integrations/python/docs/kinds.md").read_text()
named = set(re.findall(r"`(?:FSDPModule\.)?(\w+)`", page))
for module in (torch.optim, lr_scheduler, swa_utils, torch.amp, torch.utils.data):
    public = {name for name, thing in vars(module).items() if inspect.isclass(thing) and not name.startswith("_") and thing.__module__.startswith("torch.")}
    beside = {"Module", "Tensor"}  # imported there
    missing = sorted(public - named - beside)
    assert not missing, f"docs/kinds.md says nothing of {module.__name__}: {missing}"
options = {f"{wrap.__qualname__}({name})": name for wrap in (DistributedDataParallel.__init__, fully_shard) for name in inspect.signature(wrap).parameters}
options |= {f"FSDPModule.{name}": name for name in vars(FSDPModule) if not name.startswith("_")}
options |= {f"torch.distributed.tensor.parallel.{name}": name for name in parallel.__all__}
missing = sorted(where for where, name in options.items() if name not in named and name != "self")
assert not missing, f"docs/kinds.md says nothing of {missing}"
for script in re.findall(r"`(\w+\.py)`", page):
    assert (Path(__file__).parent / script).exists(), f"docs/kinds.md names {script}, which is not there"
print("ok")
