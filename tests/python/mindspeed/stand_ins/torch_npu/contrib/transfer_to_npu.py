"""Stands for torch_npu's switch that sends what a program gives to "cuda" to the NPU: here both are the host's memory."""
import functools

import torch
import torch_npu

_FACTORIES = ("tensor", "as_tensor", "empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "eye",
              "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "empty_strided")
_METHODS = ("to", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")


def _host(device):
    kind = device.type if isinstance(device, torch.device) else device
    return "cpu" if isinstance(kind, int) or isinstance(kind, str) and kind.startswith(("cuda", "npu")) else device


def _on_host(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        if kwargs.get("device") is not None:
            kwargs["device"] = _host(kwargs["device"])
        return function(*args, **kwargs)
    return call


def _moved(method):
    """`x.to("cuda")`, `x.to(0)`, `x.to("cuda", torch.bfloat16)`: a device may also come by place."""
    @functools.wraps(method)
    def call(self, *args, **kwargs):
        args = tuple(_host(a) if isinstance(a, (str, torch.device)) or type(a) is int else a for a in args)
        return _on_host(method)(self, *args, **kwargs)
    return call


def _named(method):
    @functools.wraps(method)
    def call(self, *args, **kwargs):
        answer = method(self, *args, **kwargs)
        return answer.replace("torch.", "torch.cuda.") if isinstance(answer, str) and "cuda" not in answer else answer
    return call


def _backend(function):
    @functools.wraps(function)
    def call(backend=None, *args, **kwargs):
        return function("hccl" if backend == "nccl" else backend, *args, **kwargs)
    return call


def _apply():
    for name in _FACTORIES:
        setattr(torch, name, _on_host(getattr(torch, name)))
    for name in _METHODS:
        original = getattr(torch.Tensor, name)
        setattr(torch.Tensor, name, _moved(original) if name == "to" else _on_host(original))
    torch.Tensor.cuda = torch.Tensor.npu
    torch.Tensor.type = _named(torch.Tensor.type)
    torch.nn.Module.to = _moved(torch.nn.Module.to)
    npu = torch_npu.npu
    for name in ("is_available", "is_initialized", "device_count", "current_device", "set_device", "empty_cache", "synchronize", "Event", "Stream",
                 "current_stream", "default_stream", "set_stream", "stream", "memory_stats", "manual_seed", "manual_seed_all", "get_rng_state",
                 "set_rng_state", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "default_generators"):
        setattr(torch.cuda, name, getattr(npu, name))
    torch.cuda.random.get_rng_state, torch.cuda.random.set_rng_state = npu.get_rng_state, npu.set_rng_state
    torch.cuda._lazy_call, torch.cuda._lazy_init = lambda call, **_: call(), lambda: None
    torch_npu.hccl.register()
    torch.distributed.init_process_group = _backend(torch.distributed.init_process_group)


_apply()
