"""A checkpoint of a run's in Megatron's own form (`--save-format megatron`), loaded by megatron-core itself at a TP x PP x DP of its own.

  megatron_load.py ITERATION WHOLE.pt RANKS [arguments of megatron_gpt/train.py]     WHOLE.pt: what the run held, every tensor whole

Each rank builds its part of model and optimizer, asks `dist_checkpointing.load` for it, and compares it bit by bit; its scheduler and the
samples consumed come from what all ranks have in common.
"""
import datetime
import importlib.util
import os
import signal
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

TRAIN = Path(__file__).resolve().parent.parent.parent / "integrations/examples/megatron_gpt/train.py"
SAVED_BATCH = 24  # megatron_test.py's
spec = importlib.util.spec_from_file_location("megatron_gpt", TRAIN)
train = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)

from kintsugi.megatron.core import Core  # noqa: E402
from kintsugi.megatron.update import Update  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.dist_checkpointing.dict_utils import nested_values  # noqa: E402
from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories  # noqa: E402
from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402


def be_rank(rank, ranks, meeting, iteration, whole, options):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=120))
    parallel_state.initialize_model_parallel(options.tensor, options.pipeline, create_gloo_process_groups=False,
                                             num_distributed_optimizer_instances=options.instances)
    init_num_microbatches_calculator(rank, None, options.batch, 1, parallel_state.get_data_parallel_world_size())
    torch.manual_seed(100 + rank)  # whatever it holds before, it is not what was saved
    model_parallel_cuda_manual_seed(1)
    chunks, optimizer, scheduler = train.build(options)
    Update(Core(), optimizer).materialise(lambda: 0)  # Megatron names only states that are there
    metadata = {"singleton_local_shards": True, "distrib_optim_sharding_type": "fully_reshardable"}
    model = chunks[0]
    while hasattr(model, "module"):
        model = model.module
    state = {"model": model.sharded_state_dict(metadata=metadata)}
    state["optimizer"] = optimizer.sharded_state_dict(state["model"], is_loading=True, metadata=metadata)
    apply_factories(state)
    asked = {str(i): one for i, one in enumerate(v for v in nested_values(state) if isinstance(v, ShardedTensor))}
    boxes = [(one.key, one.global_shape, one.global_offset, one.local_shape, one.prepend_axis_num) for one in asked.values()]
    found = dist_checkpointing.load(dict(asked), str(iteration))
    common = dist_checkpointing.load_common_state_dict(str(iteration))  # as Megatron's load_checkpoint takes it
    scheduler.load_state_dict(common["opt_param_scheduler"])
    done = int(iteration.name.removeprefix("iter_"))
    assert common["iteration"] == done and common["args"].consumed_train_samples == scheduler.num_steps == done * SAVED_BATCH, common
    held = torch.load(whole, weights_only=True)
    for i, (key, shape, offset, local, prepended) in enumerate(boxes):
        assert key in held, f"'{key}' is not in the checkpoint, which has {sorted(held)[:20]}"
        box = tuple(slice(at, at + length) for at, length in zip(offset, (1,) * prepended + tuple(local)))
        ours, theirs = held[key][box].reshape(local), found[str(i)].detach().reshape(local)
        assert tuple(held[key].shape) == tuple(shape), (key, held[key].shape, shape)
        assert ours.dtype == theirs.dtype, (key, ours.dtype, theirs.dtype)
        assert torch.equal(ours.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8)), (rank, key)
    keys = {key for key, *_ in boxes}
    assert any(key.startswith("optimizer.state.exp_avg_sq.") for key in keys) and any(not key.startswith("optimizer.") for key in keys)
    print(f"rank {rank}: {len(boxes)} parts of {len(keys)} tensors, the very bits", flush=True)
    dist.barrier()


def main():
    iteration, whole, ranks, options = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), train.parse(sys.argv[4:])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="kintsugi-megatron-") as folder:
        children = []
        for rank in range(ranks):
            if (child := os.fork()) == 0:
                try:
                    be_rank(rank, ranks, f"{folder}/meeting", iteration, whole, options)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)
                os._exit(0)
            children.append(child)
        codes = {}
        while children and not any(codes.values()):  # the others would wait for one that failed
            child, status = os.wait()
            children.remove(child)
            codes[child] = os.waitstatus_to_exitcode(status)
        for child in children:
            os.kill(child, signal.SIGKILL)
    sys.exit(any(codes.values()))


main()
