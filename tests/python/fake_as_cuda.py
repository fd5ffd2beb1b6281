"""Scripts that name "cuda" run on the fake device: what they ask of torch.cuda is answered by it. For trainers on megatron-core; `take_place()` comes before
their imports."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import fake_device  # noqa: E402, F401

from kintsugi.megatron import cpu  # noqa: E402


def take_place():
    cpu._PLACE = torch.device("fake", 0)
    for name in ("Float", "Half", "BFloat16"):
        cpu._TYPES[f"torch.fake.{name}Tensor"] = f"torch.cuda.{name}Tensor"
    assert cpu.use_cpu()
    for name in ("Stream", "Event", "current_stream", "stream", "synchronize"):
        setattr(torch.cuda, name, getattr(torch.fake, name))
    torch.cuda.default_stream = torch.fake.current_stream
    torch.cuda.current_device = lambda: 0
