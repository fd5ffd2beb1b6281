"""All that is used of megatron-core, by name: read against 0.16.1, and looked up when it is needed, not when kintsugi is imported."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from .._errors import Error
from ..abi import Code

_VERSIONS = ("0.16.",)
_NAMES = {
    "parallel_state": "megatron.core.parallel_state",
    "random": "megatron.core.tensor_parallel.random",
    "microbatches": "megatron.core.num_microbatches_calculator",
    "rerun": "megatron.core.rerun_state_machine",
    "DistributedDataParallel": "megatron.core.distributed.DistributedDataParallel",
    "Float16Module": "megatron.core.transformer.module.Float16Module",
    "ShardedTensor": "megatron.core.dist_checkpointing.ShardedTensor",
    "ShardedObject": "megatron.core.dist_checkpointing.mapping.ShardedObject",
    "ShardedTensorFactory": "megatron.core.dist_checkpointing.mapping.ShardedTensorFactory",
    "nested_values": "megatron.core.dist_checkpointing.dict_utils.nested_values",
    "MegatronOptimizer": "megatron.core.optimizer.optimizer.MegatronOptimizer",
    "ChainedOptimizer": "megatron.core.optimizer.optimizer.ChainedOptimizer",
    "FP32Optimizer": "megatron.core.optimizer.optimizer.FP32Optimizer",
    "MixedPrecisionOptimizer": "megatron.core.optimizer.optimizer.MixedPrecisionOptimizer",
    "Float16Optimizer": "megatron.core.optimizer.optimizer.Float16OptimizerWithFloat16Params",
    "DistributedOptimizer": "megatron.core.optimizer.distrib_optimizer.DistributedOptimizer",
    "OptimizerParamScheduler": "megatron.core.optimizer_param_scheduler.OptimizerParamScheduler",
}


class Core:
    """megatron-core's names as attributes."""

    def __init__(self) -> None:
        check_version()
        for name, path in _NAMES.items():
            setattr(self, name, _look_up(path))

    def __getattr__(self, name: str) -> Any:  # for the type checker: all of them are set above
        raise AttributeError(name)


def check_version() -> None:
    try:
        version = importlib.metadata.version("megatron-core")
    except importlib.metadata.PackageNotFoundError:
        raise Error("kintsugi.megatron needs megatron-core, which is not installed: pip install megatron-core==0.16.1", Code.FAILED_PRECONDITION) from None
    if not version.startswith(_VERSIONS):
        raise Error(f"megatron-core {version} is not supported: 0.16.1 is; what a broken step leaves in it differs between versions", Code.FAILED_PRECONDITION)


def _look_up(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise  # something that megatron-core itself needs
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise Error(f"this megatron-core has no {path}: is another package of that name installed?", Code.FAILED_PRECONDITION) from error
