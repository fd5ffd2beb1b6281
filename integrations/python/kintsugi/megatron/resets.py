"""What a step that was given up leaves in megatron-core 0.16.1, and how it is made as before it."""

from __future__ import annotations

import gc
from typing import Any


def reset(wrapped: list[Any], chunks: list[Any]) -> None:
    """`wrapped`: Megatron's DistributedDataParallel, one for each chunk of the model. All ranks do it, the groups' works are over."""
    # Contexts that a schedule entered by hand (no_sync) end when they are collected, and would do so in the midst of a later step.
    gc.collect()
    for ddp in wrapped:
        for group in (*ddp.bucket_groups, *ddp.expert_parallel_bucket_groups):
            group.grad_reduce_handle = None
            group.param_gather_handle = None
            group.param_gather_dispatched = False
            group.per_param_grad_ready_counts = {}
            group.is_last_microbatch = True
            # A newcomer has not seen a batch, and would reduce in another order than those who have: all learn it again.
            group.golden_per_param_grad_ready_counts = {}
            group.is_first_batch = True
        ddp.force_all_reduce = False
        ddp.zero_grad_buffer()
    for chunk in chunks:
        for parameter in chunk.parameters():
            parameter.grad = None
            if getattr(parameter, "main_param", None) is not None:
                parameter.main_param.grad = None
        for module in chunk.modules():
            # Deferred gradients of the embedding (defer_embedding_wgrad_compute).
            for name in ("embedding_activation_buffer", "grad_output_buffer"):
                if isinstance(waiting := getattr(module, name, None), list):
                    waiting.clear()
        _stop_timers(getattr(chunk.config, "timers", None))


def _stop_timers(timers: Any) -> None:
    """A timer that runs refuses to be started."""
    for timer in getattr(timers, "_timers", {}).values():
        timer._started = False
