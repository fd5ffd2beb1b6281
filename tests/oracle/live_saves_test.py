#!/usr/bin/env python3
"""What a run saves in other formats, read by the libraries whose formats they are: the very same tensors from each.

    live_saves_test.py KINTSUGI

Four ranks of byte_lm, tensor-parallel, with ZeRO shards, save in every format that is written.
"""

import pathlib
import subprocess
import sys
import tempfile

import oracle

STEP = 4


def load_dcp(torch, folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    metadata = dcp.FileSystemReader(folder).read_metadata()
    state = {key: torch.empty(entry.size, dtype=entry.properties.dtype)
             for key, entry in metadata.state_dict_metadata.items() if isinstance(entry, TensorStorageMetadata)}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def check_values(torch, safetensors, folder, found):
    """The place in the data: a number where each library's readers look for it."""
    import torch.distributed.checkpoint as dcp

    file = next((folder / "safetensors" / f"checkpoint-{STEP}").glob("*.safetensors"))
    with safetensors.safe_open(file, "pt") as opened:
        samples = int(opened.metadata()["consumed_samples"])
    assert samples > 0
    assert found["torch"]["consumed_samples"] == samples and found["torch"]["data_step"] == STEP
    state = {"consumed_samples": -1, "data_step": -1}
    dcp.load(state, checkpoint_id=folder / "dcp" / f"step-{STEP}", no_dist=True)
    assert state == {"consumed_samples": samples, "data_step": STEP}, state
    common = torch.load(folder / "megatron" / f"iter_{STEP:07d}" / "common.pt", weights_only=False)
    assert common["iteration"] == STEP and common["checkpoint_version"] == 3.0
    assert vars(common["args"]) == {"consumed_train_samples": samples}, common["args"]


def main():
    torch, safetensors = oracle.need("torch", "safetensors.torch")
    kintsugi = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="kintsugi-oracle-") as name:
        folder = pathlib.Path(name)
        done = subprocess.run(
            [kintsugi, "run", "--nproc", "4", "--save-dir", folder, "--save-every", str(STEP), "--save-format",
             "safetensors,torch,dcp,megatron", "--", kintsugi.parent / "byte_lm", "--steps", str(STEP), "--tp", "2"],
            capture_output=True, text=True, timeout=120, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr[-4000:]
        found = {}
        flat = {}
        for file in sorted((folder / "safetensors" / f"checkpoint-{STEP}").glob("*.safetensors")):
            flat.update(safetensors.load_file(file))
        found["torch"] = torch.load(folder / "torch" / f"step-{STEP}.pt", weights_only=True, mmap=True)
        found["dcp"] = load_dcp(torch, folder / "dcp" / f"step-{STEP}")
        tracker = (folder / "megatron" / "latest_checkpointed_iteration.txt").read_text()
        found["megatron"] = load_dcp(torch, folder / "megatron" / f"iter_{int(tracker):07d}")
        assert len(flat) > 20 and int(tracker) == STEP
        for source, state in found.items():
            tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
            assert set(tensors) == set(flat), (source, sorted(set(tensors) ^ set(flat))[:5])
            for key, value in tensors.items():
                assert value.dtype == flat[key].dtype and value.shape == flat[key].shape, (source, key)
                assert torch.equal(value.contiguous().view(torch.uint8), flat[key].view(torch.uint8)), (source, key)
        check_values(torch, safetensors, folder, found)
    print(f"ok: {len(flat)} tensors of a run, the same from safetensors, torch, DCP and torch_dist")


if __name__ == "__main__":
    main()
