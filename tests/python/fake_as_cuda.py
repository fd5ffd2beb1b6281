"""Scripts that name "cuda" run on the fake device: what they ask of torch.cuda is answered by it. `take_place()` comes before their imports."""
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import fake_device  # noqa: E402, F401

import kintsugi.megatron  # noqa: E402
from kintsugi.megatron import cpu  # noqa: E402


class Stream:
    def __new__(cls, device=None, priority=0, **_):
        return torch.fake.Stream(device, priority)


class Event:
    def __new__(cls, enable_timing=False, **_):
        return torch.fake.Event()


def take_place():
    os.environ["LOCAL_RANK"] = "0"  # each rank is as if alone on its host, where there is one device
    os.environ["ACCELERATE_TORCH_DEVICE"] = "fake:0"
    cpu._PLACE = torch.device("fake", 0)
    for name in ("Float", "Half", "BFloat16"):
        cpu._TYPES[f"torch.fake.{name}Tensor"] = f"torch.cuda.{name}Tensor"
    cpu._answer_for_devices()
    cpu._answer_for_tensors()
    kintsugi.megatron.use_cpu = cpu._answer_for_randomness  # Megatron's own generators are the host's
    cuda = torch.cuda
    for name in ("current_stream", "stream", "synchronize", "is_available", "device_count", "current_device"):
        setattr(cuda, name, getattr(torch.fake, name))
    cuda.Stream, cuda.Event = Stream, Event
    cuda.default_stream = torch.fake.current_stream
    cuda.get_device_name = lambda *_: "fake"
    cuda.get_device_properties = lambda *_: None
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.is_bf16_supported = lambda *_: True
    cuda.manual_seed_all = lambda _seed: None
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    cuda.set_rng_state_all = lambda states: torch.set_rng_state(states[0])
    torch.__future__.set_swap_module_params_on_conversion(True)  # a module that moves to CUDA keeps its parameters' objects; elsewhere they are new ones
    torch.nn.Module.cpu = lambda self: self  # torch cannot swap the parameters of a module that is in use; from CUDA they would move
