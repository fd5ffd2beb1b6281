"""Stands for torch_npu: a rank's Ascend device, over the CPU. The device and its collectives are in npu and hccl; what else MindSpeed
looks up while it is imported (kernels, profilers) is a name without a content."""
import sys

import torch

from absent import Absent

from . import hccl, npu

torch.npu = npu
torch.Tensor.npu = lambda tensor, *_, **__: tensor
torch.distributed.reinit_process_group = hccl.reinit_process_group
sys.modules["torch.npu"] = npu


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent(f"torch_npu.{name}")
