"""Megatron-core trainers survive: state, keys and copies as Megatron itself says, `optimizer.step()` as the gate.

    run = kintsugi.torch.join()
    torch.distributed.init_process_group("kintsugi")       # every group that parallel_state makes is of it
    parallel_state.initialize_model_parallel(...)
    model, optimizer, opt_param_scheduler = build()         # DistributedDataParallel and get_megatron_optimizer, as ever
    state = kintsugi.megatron.protect(run, model, optimizer, opt_param_scheduler)
    run.train(step, steps=1000)

megatron-core is imported when `protect` is called. On a machine without CUDA `kintsugi.megatron.use_cpu()` comes before it is
imported: for practice and tests.
"""

from __future__ import annotations

from .cpu import use_cpu
from .protected import Protected, protect

__all__ = ["Protected", "protect", "use_cpu"]
