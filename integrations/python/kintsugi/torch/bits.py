"""The settings with which a CUDA device computes the same bits again."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from .._errors import Error
from ..abi import Code

# The order of a sum follows from algorithm, protocol and channels. Without these NCCL chooses by size and topology.
_NCCL = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_MIN_CTAS": "4", "NCCL_MAX_CTAS": "4", "NCCL_NVLS_ENABLE": "0", "NCCL_COLLNET_ENABLE": "0"}
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


_SUMS = "KINTSUGI_SUMS"


def sums_are_ordered() -> bool:
    said = os.environ.get(_SUMS, "nccl")
    if said not in ("nccl", "ordered"):
        raise Error(f"{_SUMS} is '{said}': nccl (the order that NCCL takes), or ordered (that of the ranks)", Code.INVALID_ARGUMENT)
    return said == "ordered"


def deterministic(*, ordered_sums: bool = False) -> None:
    """Before the device is used, on all ranks: the same program on the same devices gives the same bits, now and after a repair. It costs speed, and torch
    raises an error where an operator has no such way (torch.use_deterministic_algorithms). What the environment says already stays. Sums over ranks are the
    same where the same devices take part, whichever processes drive them; on others they may not be, unless they are `ordered_sums`: floats of more than two
    ranks are then added up in the order of the ranks, half types in single precision, in two rounds of messages where NCCL has one (KINTSUGI_SUMS=ordered).

    Errors: FAILED_PRECONDITION: the device is in use already, or with ordered sums there is a process group."""
    if ordered_sums and dist.is_initialized():
        raise Error("kintsugi.torch.deterministic(ordered_sums=True) comes before init_process_group", Code.FAILED_PRECONDITION)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise Error("kintsugi.torch.deterministic comes before the first use of the device: cuBLAS and NCCL read their settings once", Code.FAILED_PRECONDITION)
    for name, value in {_CUBLAS: ":4096:8", **_NCCL, **({_SUMS: "ordered"} if ordered_sums else {})}.items():
        os.environ.setdefault(name, value)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
