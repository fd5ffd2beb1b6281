"""megatron-core 0.16 on a machine without CUDA: what it asks of a device is answered by the CPU.

For practice and for tests: Megatron names "cuda" where it makes a tensor, copies it or draws a random number, and asks
`torch.cuda` for streams. `use_cpu()` comes before megatron is imported; where a device is there it does nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Any

import torch

from .._errors import Error
from ..abi import Code

# What makes tensors, and takes device=.
_FACTORIES = ("arange", "as_tensor", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones", "ones_like", "rand", "randint",
              "randn", "tensor", "zeros", "zeros_like")  # fmt: skip
_TYPES = {"torch.FloatTensor": "torch.cuda.FloatTensor", "torch.HalfTensor": "torch.cuda.HalfTensor",
          "torch.BFloat16Tensor": "torch.cuda.BFloat16Tensor"}  # fmt: skip
_PLACE = torch.device("cpu")  # what "cuda" means here


def use_cpu() -> bool:
    """Whether Megatron runs on the CPU from here on; False where torch finds a device."""
    if torch.cuda.is_available():
        return False
    if "megatron.core.tensor_parallel" in sys.modules and not getattr(torch, "_kintsugi_on_cpu", False):
        raise Error("kintsugi.megatron.use_cpu comes before megatron is imported: it keeps what it found of torch.cuda", Code.FAILED_PRECONDITION)
    if not getattr(torch, "_kintsugi_on_cpu", False):
        torch._kintsugi_on_cpu = True  # type: ignore[attr-defined]
        _answer_for_devices()
        _answer_for_tensors()
        _answer_for_randomness()
    return True


def _answer_for_devices() -> None:
    def nothing(name: str) -> Callable[..., None]:
        def function(*_args: Any, **_kwargs: Any) -> None:
            return None

        function.__name__ = name  # torch's compiler keeps one function per name
        return function

    cuda: Any = torch.cuda
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed", "nvtx_range_push"):
        setattr(cuda, name, nothing(name))
    cuda.current_device = lambda: _PLACE
    cuda.Stream, cuda.Event = _Stream, _Event
    cuda.current_stream = lambda *_: _Stream()
    cuda.default_stream = lambda *_: _Stream()
    cuda.stream = lambda _stream: contextlib.nullcontext()
    # Compiling takes longer than a practice run.
    torch.compile = lambda model=None, **_: model if model is not None else (lambda function: function)  # type: ignore[assignment]


def _answer_for_tensors() -> None:
    def is_device(device: Any) -> bool:
        return isinstance(device, int) or str(device).startswith("cuda")

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def make(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("device") is not None and is_device(kwargs["device"]):
                kwargs["device"] = _PLACE
            return function(*args, **kwargs)

        return make

    for name in _FACTORIES:
        setattr(torch, name, made(getattr(torch, name)))
    tensor: Any = torch.Tensor
    own_type, own_to = tensor.type, tensor.to

    def type_of(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        told = own_type(self, *args, **kwargs)
        return _TYPES.get(told, told) if not args and not kwargs else told

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None and is_device(kwargs["device"]):
            kwargs["device"] = _PLACE
        if args and isinstance(args[0], (str, torch.device, int)) and is_device(args[0]):
            args = (_PLACE, *args[1:])
        return own_to(self, *args, **kwargs)

    tensor.type, tensor.to = type_of, to
    tensor.cuda = lambda self, *_args, **_kwargs: own_to(self, _PLACE)
    module: Any = torch.nn.Module
    module.cuda = lambda self, *_args, **_kwargs: module.to(self, _PLACE)


def _answer_for_randomness() -> None:
    cuda: Any = torch.cuda
    cuda.get_rng_state = lambda *_args, **_kwargs: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_args, **_kwargs: torch.set_rng_state(state)
    cuda.manual_seed = lambda seed: torch.manual_seed(seed)

    random: Any = importlib.import_module("megatron.core.tensor_parallel.random")
    random._get_cuda_rng_state = lambda *_args, **_kwargs: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_args, **_kwargs: torch.set_rng_state(state)
    # A fork of the generator is one of the CPU's here: that it moved is what was wanted.
    logging.getLogger(random.__name__).addFilter(lambda record: "CPU RNG state changed" not in record.getMessage())


class _Stream:
    """Work on a CPU is done when it is given."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...

    def wait_stream(self, _other: Any) -> None: ...

    def wait_event(self, _event: Any) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()


class _Event:
    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...

    def record(self, *_args: Any) -> None: ...

    def wait(self, *_args: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True
