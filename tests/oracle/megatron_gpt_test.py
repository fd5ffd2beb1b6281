#!/usr/bin/env python3
"""A checkpoint that megatron-core itself writes of a GPT cut in four (tensor parallel 2, pipeline parallel 2), read by us.

    megatron_gpt_test.py KINTSUGI

Every rank says which box of which tensor it holds; what `kintsugi ckpt convert` makes of the folder is compared with these
bit by bit.
"""

import datetime
import json
import os
import pathlib
import signal
import sys
import tempfile

import oracle
import states
from checkpoint_formats_test import Kintsugi

WORLD = 4


def be_rank(torch, rank, folder):
    """Builds this rank's part of the model, saves it through megatron-core, and beside it what it holds."""
    # pylint: disable=import-outside-toplevel
    dist = torch.distributed
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.dict_utils import dict_list_map_inplace
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    # What it asks of a GPU and of psutil, where there is neither.
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    filesystem_async._process_memory = lambda: 0  # pylint: disable=protected-access
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD,
                            timeout=datetime.timedelta(seconds=240))
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
    config = TransformerConfig(num_layers=4, hidden_size=16, num_attention_heads=4, use_cpu_initialization=True,
                               tensor_model_parallel_size=2, pipeline_model_parallel_size=2, pipeline_dtype=torch.float32,
                               gated_linear_unit=True)
    torch.manual_seed(rank)
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=32, max_sequence_length=8,
                     pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage(), share_embeddings_and_output_weights=False)
    sharded = model.sharded_state_dict(prefix="model.")
    held = []
    apply_factories(sharded)

    def look(value):
        if isinstance(value, ShardedTensor) and value.replica_id in (0, (0, 0, 0)):
            held.append((value.key, value.global_shape, value.global_offset, value.data.detach().clone()))
        return value

    dict_list_map_inplace(look, sharded)
    torch.save(held, folder / f"held-{rank}.pt")
    (folder / "saved").mkdir(exist_ok=True)
    dist.barrier()
    dist_checkpointing.save({**sharded, "iteration": 5, "args": {"lr": 0.5}}, str(folder / "saved"))
    dist.barrier()
    os._exit(0)


def save_with_megatron(torch, folder):
    """One process imports everything, and becomes four."""
    children = []
    for rank in range(WORLD):
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.environ["TMPDIR"] = tempfile.tempdir = str(folder)  # of what it starts, which is killed below
            try:
                be_rank(torch, rank, folder)
            except BaseException:  # pylint: disable=broad-exception-caught
                sys.excepthook(*sys.exc_info())
            os._exit(1)
        children.append(child)
    codes = []
    for child in children:
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        # megatron-core's manager outlives its rank, and with it our output would stay open: ctest waits for its end.
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert codes == [0] * WORLD, f"ranks of Megatron ended with {codes}"


def check(torch, kintsugi, folder):
    found = torch.load(kintsugi.convert(folder / "saved", folder / "ours.pt", "torch"), weights_only=True)
    flat = {key: value for key, value in states.leaves(torch, found) if isinstance(value, torch.Tensor)}
    covered = {}
    for rank in range(WORLD):
        for key, shape, offset, data in torch.load(folder / f"held-{rank}.pt", weights_only=True):
            assert tuple(flat[key].shape) == tuple(shape), (key, flat[key].shape, shape)
            own = data.reshape([1] * (len(shape) - data.dim()) + list(data.shape))
            box = tuple(slice(at, at + length) for at, length in zip(offset, own.shape))
            states.assert_equal_tensors(torch, own, flat[key][box], (rank, key, offset))
            covered[key] = covered.get(key, 0) + own.numel()
    assert covered == {key: value.numel() for key, value in flat.items()}, (covered, sorted(flat))
    assert found["iteration"] == 5 and found["args"]["lr"] == 0.5, sorted(found)
    shown = json.loads(kintsugi.run("show", folder / "saved").stdout)
    pieces = {tensor["key"]: tensor["pieces"] for tensor in shown["tensors"]}
    assert max(pieces.values()) >= 8, pieces  # four layers in one tensor, two parts each
    # And back into Megatron's form at another size.
    again = kintsugi.convert(folder / "saved", folder / "again", "megatron", "--shards", "3")
    kintsugi.equal(folder / "saved", again)
    return len(flat)


def main():
    torch, _ = oracle.need("torch", "megatron.core")
    torch.set_num_threads(1)
    kintsugi = Kintsugi(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="kintsugi-megatron-gpt-") as name:
        folder = pathlib.Path(name)
        save_with_megatron(torch, folder)
        tensors = check(torch, kintsugi, folder)
    print(f"torch_dist of a GPT at TP 2 x PP 2: {tensors} tensors read bit for bit")


if __name__ == "__main__":  # megatron-core starts a manager that imports this file again
    main()
