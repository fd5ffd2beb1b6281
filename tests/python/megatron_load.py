"""Checkpoints of one run's in Megatron's own forms, loaded by megatron-core itself, each at a TP x PP x DP of its own.

  megatron_load.py WHOLE.pt DONE CHECKS.json     WHOLE.pt: what the run held after DONE steps, every tensor whole

CHECKS.json lists dictionaries: "folder", an iteration's; "form", "torch_dist" or "legacy" (mp_rank_NN); "ranks"; "way", arguments of
megatron_gpt/train.py; "rng", whether its random states are
those of as many ranks; "saves", where megatron-core then writes what it has, as torch_dist, or nothing. Each rank builds its part of
model and optimizer, loads it by their own functions, and compares every tensor bit by bit, and what the optimizer is set to.
"""
import datetime
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

import numpy
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
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor, apply_factories  # noqa: E402
from megatron.core.dist_checkpointing.strategies import filesystem_async  # noqa: E402
from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator  # noqa: E402
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer  # noqa: E402
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, model_parallel_cuda_manual_seed  # noqa: E402

# What a rank draws from is not compared: a resumed run of Megatron's sets it from here.
RNG = ("random_rng_state", "np_rng_state", "torch_rng_state", "cuda_rng_state", "rng_tracker_states")
METADATA = {"singleton_local_shards": True, "distrib_optim_sharding_type": "fully_reshardable"}
filesystem_async._process_memory = lambda: 0  # psutil's


def innermost(model):
    while hasattr(model, "module"):
        model = model.module
    return model


def sharded(chunks, optimizer, is_loading):
    state = {"model": innermost(chunks[0]).sharded_state_dict(metadata=METADATA)}
    state["optimizer"] = optimizer.sharded_state_dict(state["model"], is_loading=is_loading, metadata=METADATA)
    return state


def keep_counts(part):
    """torch's Adam counts in a tensor of each parameter, Apex's and TransformerEngine's do not. megatron-core 0.16.1 asks every file of a
    DistributedOptimizer for that tensor, those that it wrote itself too: it is what it was."""
    put = part._set_main_param_and_optimizer_states

    def put_all(parameter, tensors):
        group, order = part.model_param_group_index_map[parameter]
        main = part.optimizer.param_groups[group]["params"][order]
        put(parameter, {"step": part.optimizer.state[main]["step"], **tensors})

    part._set_main_param_and_optimizer_states = put_all


def load_legacy(folder, chunks, optimizer, has_rng):
    """As Megatron's load_checkpoint does (megatron/training/checkpointing.py), which megatron-core does not have."""
    tensor, stage = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_pipeline_model_parallel_rank()
    name = f"mp_rank_{tensor:02d}" + (f"_{stage:03d}" if parallel_state.get_pipeline_model_parallel_world_size() > 1 else "")
    state = torch.load(folder / name / "model_optim_rng.pt", map_location="cpu", weights_only=False)
    innermost(chunks[0]).load_state_dict(state["model"], strict=True)
    optimizer.load_state_dict(state["optimizer"])
    part = optimizer.chained_optimizers[0]
    if isinstance(part, DistributedOptimizer):
        part.data_parallel_group_gloo = part.data_parallel_group
        with torch.no_grad():  # shards of float32 parameters are views of what has a gradient
            optimizer.load_parameter_state(str(folder / name / "distrib_optim.pt"))
    if has_rng:
        set_rng(state["rng_state"])
    args = state["args"]
    assert args.tensor_model_parallel_size == parallel_state.get_tensor_model_parallel_world_size(), args
    assert args.pipeline_model_parallel_size == parallel_state.get_pipeline_model_parallel_world_size(), args
    assert state["checkpoint_version"] == 3.0, state["checkpoint_version"]
    return state


def rng_cell():
    stages, tensors = parallel_state.get_pipeline_model_parallel_world_size(), parallel_state.get_tensor_model_parallel_world_size()
    return ShardedObject("rng_state", None, (stages, tensors),
                         (parallel_state.get_pipeline_model_parallel_rank(), parallel_state.get_tensor_model_parallel_rank()),
                         replica_id=parallel_state.get_data_parallel_rank(with_context_parallel=True))  # fmt: skip


def set_rng(state):
    """As Megatron's load_checkpoint does."""
    (one,) = state
    assert set(one) == set(RNG), sorted(one)
    random.setstate(one["random_rng_state"])
    if one["np_rng_state"] is not None:
        numpy.random.set_state(one["np_rng_state"])
    torch.set_rng_state(one["torch_rng_state"])
    torch.cuda.set_rng_state(one["cuda_rng_state"])
    get_cuda_rng_tracker().set_states(one["rng_tracker_states"])
    assert torch.equal(torch.get_rng_state(), one["torch_rng_state"])


def load_torch_dist(folder, chunks, optimizer, has_rng):
    asked = sharded(chunks, optimizer, True)
    state = dist_checkpointing.load({**asked, "rng_state": rng_cell()} if has_rng else asked, str(folder))
    if has_rng:
        set_rng(state["rng_state"])
    innermost(chunks[0]).load_state_dict(state["model"], strict=True)
    optimizer.load_state_dict(state["optimizer"])
    return state


def compare(rank, chunks, optimizer, held):
    state = sharded(chunks, optimizer, False)
    apply_factories(state)
    parts = [v for v in nested_values(state) if isinstance(v, ShardedTensor)]
    keys = {one.key for one in parts}
    for one in parts:
        assert one.key in held, f"'{one.key}' is not in what the run held: {sorted(held)[:20]}"
        box = tuple(slice(at, at + length) for at, length in zip(one.global_offset, (1,) * one.prepend_axis_num + tuple(one.local_shape)))
        ours, theirs = held[one.key][box].reshape(one.local_shape), one.data.detach().reshape(one.local_shape)
        assert tuple(held[one.key].shape) == tuple(one.global_shape), (one.key, held[one.key].shape, one.global_shape)
        assert ours.dtype == theirs.dtype, (one.key, ours.dtype, theirs.dtype)
        assert torch.equal(ours.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8)), (rank, one.key)
    assert any(key.startswith("optimizer.state.exp_avg_sq.") for key in keys) and any(not key.startswith("optimizer.") for key in keys)
    return len(parts), len(keys)


def be_rank(rank, check, meeting, done, held):
    options, folder = train.parse(check["way"]), Path(check["folder"])
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=check["ranks"],
                            timeout=datetime.timedelta(seconds=120))
    parallel_state.initialize_model_parallel(options.tensor, options.pipeline, create_gloo_process_groups=False,
                                             num_distributed_optimizer_instances=options.instances)
    init_num_microbatches_calculator(rank, None, options.batch, 1, parallel_state.get_data_parallel_world_size())
    torch.manual_seed(100 + rank)  # whatever it holds before, it is not what was saved
    model_parallel_cuda_manual_seed(1)
    chunks, optimizer, scheduler = train.build(options)
    Update(Core(), optimizer).materialise(lambda: 0)  # Megatron names only states that are there
    for part in optimizer.chained_optimizers:
        if isinstance(part, DistributedOptimizer):
            keep_counts(part)
    for group in optimizer.param_groups:
        group["lr"], group["betas"], group["eps"] = -1.0, (0.1, 0.1), 1.0  # as no run has them
    state = (load_legacy if check["form"] == "legacy" else load_torch_dist)(folder, chunks, optimizer, check.get("rng", False))
    parts, keys = compare(rank, chunks, optimizer, held)
    for part in optimizer.chained_optimizers:
        counts = {float(one["step"]) for one in part.optimizer.state.values()}
        assert counts <= {float(done)}, counts
    scheduler.load_state_dict(state["opt_param_scheduler"])
    assert state["iteration"] == done and scheduler.num_steps == done * SAVED_BATCH, state
    assert state["args"].consumed_train_samples == done * SAVED_BATCH and state["args"].num_layers == 4, state["args"]
    rates = [group["lr"] for group in optimizer.param_groups]
    scheduler.step(0)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        assert group["lr"] == rate > 0 and group["betas"] == (0.9, 0.999) and group["eps"] == 1e-8, (rate, group)
    if check.get("saves"):
        if rank == 0:
            Path(check["saves"]).mkdir(parents=True)
        dist.barrier()
        common = {name: state[name] for name in ("args", "iteration", "checkpoint_version", "opt_param_scheduler")}
        dist_checkpointing.save({**common, **sharded(chunks, optimizer, False)}, check["saves"])
    print(f"rank {rank}: {parts} parts of {keys} tensors, the very bits", flush=True)
    dist.barrier()


def in_ranks(check, folder, done, held):
    """Whether all ranks of one check were content."""
    children = []
    for rank in range(check["ranks"]):
        if (child := os.fork()) == 0:
            os.setpgid(0, 0)
            os.environ["TMPDIR"] = tempfile.tempdir = folder  # of what megatron-core starts, which is killed below
            try:
                be_rank(rank, check, f"{folder}/meeting", done, held)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes, waiting = {}, list(children)
    while waiting and not any(codes.values()):  # the others would wait for one that failed
        child, status = os.wait()
        waiting.remove(child)
        codes[child] = os.waitstatus_to_exitcode(status)
    for child in children:
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for child in waiting:
        os.waitpid(child, 0)
    return not any(codes.values())


def main():
    held, done, checks = torch.load(sys.argv[1], weights_only=True), int(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text())
    torch.set_num_threads(1)
    for check in checks:
        print(f"{check['form']} by {check['ranks']} ranks, {' '.join(check['way'])}", flush=True)
        with tempfile.TemporaryDirectory(prefix="kintsugi-megatron-", ignore_cleanup_errors=True) as folder:
            if not in_ranks(check, folder, done, held):
                sys.exit(1)


if __name__ == "__main__":  # megatron-core starts a manager that imports this file again
    main()
