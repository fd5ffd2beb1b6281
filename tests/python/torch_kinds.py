"""Every public class of what scripts train with stands in docs/kinds.md, as kept, refused or inexact. Needs no run."""
import inspect
import re
from pathlib import Path

import torch
from torch.optim import lr_scheduler, swa_utils

page = (Path(__file__).resolve().parents[2] / "integrations/python/docs/kinds.md").read_text()
named = set(re.findall(r"`(\w+)`", page))
for module in (torch.optim, lr_scheduler, swa_utils, torch.amp, torch.utils.data):
    public = {name for name, thing in vars(module).items() if inspect.isclass(thing) and not name.startswith("_") and thing.__module__.startswith("torch.")}
    beside = {"Module", "Tensor"}  # imported there
    missing = sorted(public - named - beside)
    assert not missing, f"docs/kinds.md says nothing of {module.__name__}: {missing}"
for script in re.findall(r"`(\w+\.py)`", page):
    assert (Path(__file__).parent / script).exists(), f"docs/kinds.md names {script}, which is not there"
print("ok")
