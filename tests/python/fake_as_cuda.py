"""Scripts that name "cuda" run on the fake device: what they ask of torch.cuda is answered by it. `take_place()` comes before their imports."""
import contextlib
import functools
import os
import sys
from pathlib import Path

import torch
from torch.distributed import device_mesh
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils.data import get_worker_info

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import fake_device  # noqa: E402, F401

import kintsugi.megatron  # noqa: E402
from kintsugi.megatron import cpu  # noqa: E402


def _here(device):
    """What a script means by a device: "cuda" is the fake one."""
    return torch.device("fake", 0) if isinstance(device, int) or str(device).startswith("cuda") else device


def _mapped(function, name, position=None):
    """`function`, of whose arguments one is a device."""
    @functools.wraps(function)
    def call(*args, **kwargs):
        if kwargs.get(name) is not None:
            kwargs[name] = _here(kwargs[name])
        elif position is not None and len(args) > position:
            args = (*args[:position], _here(args[position]), *args[position + 1 :])
        return function(*args, **kwargs)
    return call


class _Generators(type):
    def __instancecheck__(cls, thing):
        return isinstance(thing, _Generator)


_Generator = torch.Generator


class Generator(metaclass=_Generators):
    def __new__(cls, device="cpu"):
        return _Generator(_here(device))


def _load(file, map_location=None, **words):
    if isinstance(map_location, dict):
        map_location = {key: str(_here(value)) for key, value in map_location.items()}
    return _own_load(file, map_location=map_location if callable(map_location) or isinstance(map_location, dict) else _here(map_location), **words)


_own_load = torch.load
_CONSTRUCTORS = _device_constructors()  # as they are before others stand in for them


class Stream:
    def __new__(cls, device=None, priority=0, **_):
        return torch.fake.Stream(device, priority)


def _as_kind(begin, kind="cuda"):
    """An autocast for another kind of device. One that is off (torch's checkpoint has such for the host) is none for the fake one."""
    @functools.wraps(begin)
    def call(self, device_type, *args, **kwargs):
        begin(self, device_type.replace(kind, "fake") if kind == "cuda" or kwargs.get("enabled", True) else device_type, *args, **kwargs)
    return call


_own_mesh = device_mesh.init_device_mesh


def _meshes_there(kind):
    """Meshes of this kind of device are of the fake one."""
    device_mesh.init_device_mesh = torch.distributed.init_device_mesh = lambda of, *args, **kwargs: _own_mesh(of.replace(kind, "fake"), *args, **kwargs)


class Event:
    def __new__(cls, enable_timing=False, **_):
        return torch.fake.Event(enable_timing)


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
    for name in ("current_stream", "stream", "synchronize", "is_available", "device_count", "current_device", "manual_seed", "manual_seed_all", "initial_seed",
                 "get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all"):
        setattr(cuda, name, getattr(torch.fake, name))
    cuda.Stream, cuda.Event = Stream, Event
    cuda.default_stream = torch.fake.current_stream
    cuda.get_device_name = lambda *_: "fake"
    cuda.get_device_properties = lambda *_: None
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.is_bf16_supported = lambda *_: True
    cuda.device = lambda _: contextlib.nullcontext()
    cuda.is_initialized = lambda: True
    cuda.is_current_stream_capturing = lambda: False
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats", "ipc_collect"):
        setattr(cuda, name, lambda *_: 0)
    cuda.nvtx.range_push, cuda.nvtx.range_pop = (lambda *_: None), (lambda: None)
    torch.Generator, torch.load = Generator, _load
    for name in ("randperm", "normal", "bernoulli", "empty_strided"):
        setattr(torch, name, _mapped(getattr(torch, name), "device"))
    for name in ("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"):
        setattr(torch.Tensor, name, _mapped(getattr(torch.Tensor, name), "device"))
    torch.set_default_device = _mapped(torch.set_default_device, "device", 0)
    torch.nn.Module.to_empty = _mapped(torch.nn.Module.to_empty, "device")
    torch.autocast.__init__ = _as_kind(torch.autocast.__init__)
    _meshes_there("cuda")
    torch.distributed.init_process_group = _mapped(torch.distributed.init_process_group, "device_id")
    if os.environ.get("KINTSUGI") == "0" or os.environ.get("PLAIN") == "1":
        import plain_on_fake
        plain_on_fake.take_place()
    torch.__future__.set_swap_module_params_on_conversion(True)  # a module that moves to CUDA keeps its parameters' objects; elsewhere they are new ones
    torch.nn.Module.cpu = lambda self: self  # torch cannot swap the parameters of a module that is in use; from CUDA they would move


class _Everywhere(TorchFunctionMode):
    """As torch.set_default_device, but what a generator of the host's draws is drawn there and moved, and workers of loaders stay on the host."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type == "cpu" and args and isinstance(args[0], torch.Tensor) and args[0].device.type == "fake":
            return args[0].copy_(function(args[0].cpu(), *args[1:], **kwargs))  # Tensor.random_ of a loader's, and the like
        if function not in _CONSTRUCTORS or kwargs.get("device") is not None or kwargs.get("out") is not None or get_worker_info() is not None:
            return function(*args, **kwargs)
        if generator is not None and generator.device.type == "cpu":
            return function(*args, **kwargs).to("fake")
        return function(*args, **{**kwargs, "device": "fake"})


def make_everything_there():
    """What is made without a device, and what is made or computed for the host by name."""
    _Everywhere().__enter__()
    _meshes_there("cpu")
    torch.autocast.__init__ = _as_kind(torch.autocast.__init__, "cpu")
    torch.compile = functools.partial(torch.compile, backend="aot_eager")  # there is no compiler for it
