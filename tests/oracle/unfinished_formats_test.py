#!/usr/bin/env python3
"""Checkpoints that are not whole: what is there and what is missing is said, and nothing is made of the rest.

    unfinished_formats_test.py KINTSUGI
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

import oracle
from checkpoint_formats_test import Kintsugi
from misread_formats_test import refused


def check_unfinished(torch, dcp, safetensors, kintsugi, folder):
    """A save that was not finished is told as one: what is there, what is missing, which tracker names what."""
    state = {"w": torch.randn(64, 8)}
    dcp.save(state, checkpoint_id=folder / "dcp", no_dist=True)
    os.rename(folder / "dcp/.metadata", folder / "dcp/.metadata.tmp")
    refused(kintsugi, ("no whole checkpoint of dcp", "1 files *.distcp are there", "'.metadata.tmp' is"), "show", folder / "dcp")
    os.unlink(folder / "dcp/.metadata.tmp")
    refused(kintsugi, (".metadata, which is written last, is not", "the save was not finished"), "convert", folder / "dcp", folder / "o.pt", "--to", "torch")
    dcp.save(state, checkpoint_id=folder / "local", no_dist=True, use_collectives=False)
    refused(kintsugi, ("'__0.metadata'", "without collectives"), "show", folder / "local")
    (folder / "hf").mkdir()
    safetensors.save_file(state, folder / "hf/model-00001-of-00002.safetensors")
    refused(kintsugi, ("'model-00001-of-00002.safetensors' is there", "model.safetensors.index.json"), "show", folder / "hf")
    place = folder / "megatron"
    (place / "iter_0000050").mkdir(parents=True)
    tracker = place / "latest_checkpointed_iteration.txt"
    for text, words in (("100", "names 'iter_0000100', which is missing"), ("", "names no iteration: it is torn"), ("release", "names 'release'")):
        tracker.write_text(text)
        refused(kintsugi, (words, "there are 'iter_0000050'"), "show", place)
    (folder / "ds/global_step5").mkdir(parents=True)
    (folder / "ds/latest").write_text("global_step7")
    refused(kintsugi, ("latest' names 'global_step7', which is missing", "there are 'global_step5'"), "show", folder / "ds")
    # Megatron's older backend: the arrays are not read, what lies beside them alone could be.
    (folder / "zarr/model.w").mkdir(parents=True)
    (folder / "zarr/model.w/.zarray").write_text("{}")
    torch.save({"args": None}, folder / "zarr/common.pt")
    refused(kintsugi, ("is zarr (Megatron-core's older backend", "torch_dist", "'common.pt' can be read"), "show", folder / "zarr")
    # Without a tracker, as a Trainer's output folder has none: what is there.
    for step in (7, 9):
        (folder / f"trainer/checkpoint-{step}").mkdir(parents=True)
        safetensors.save_file(state, folder / f"trainer/checkpoint-{step}/model.safetensors")
    refused(kintsugi, ("there are 'checkpoint-7', 'checkpoint-9' in it: name one of them",), "show", folder / "trainer")
    snapshot = folder / "models--o--r/snapshots/abc"
    snapshot.mkdir(parents=True)
    (folder / "models--o--r/blobs").mkdir()
    safetensors.save_file(state, snapshot / "model.safetensors")
    refused(kintsugi, ("Hugging Face's cache", "'snapshots/abc'"), "show", folder / "models--o--r")


def check_ranks(torch, kintsugi, folder):
    """Megatron's older files: a rank that is not there is missed, by the others' names and by what args say."""
    cases = [({"tensor": 1}, ["00"], None), ({"tensor": 2}, ["00", "01"], None), ({"tensor": 2}, ["00"], "tensor_model_parallel_size=2"),
             ({"tensor": 2, "pipeline": 2}, ["00_000", "00_001", "01_000", "01_001"], None), ({"tensor": 2, "pipeline": 2}, ["00_000", "00_001", "01_001"], "not all between"),
             ({"tensor": 2, "pipeline": 4}, ["00_000", "00_001", "01_000", "01_001"], "pipeline_model_parallel_size=4"), ({"tensor": 1}, ["00", "01"], "tensor_model_parallel_size=1"),
             ({"tensor": 1, "expert": 2}, ["00_000", "00_001"], None), ({"tensor": 1, "pipeline": 2, "expert": 2}, ["00_000_000", "00_000_001", "00_001_000", "00_001_001"], None),
             ({"tensor": 1, "expert": 2}, ["00_000"], "expert_model_parallel_size=2"), ({}, ["00", "02"], "not all between"), ({}, ["00"], None)]
    for number, (sizes, ranks, words) in enumerate(cases):
        place = folder / str(number)
        for rank in ranks:
            (place / f"iter_0000007/mp_rank_{rank}").mkdir(parents=True)
            torch.save({"args": argparse.Namespace(**{f"{name}_model_parallel_size": size for name, size in sizes.items()}), "iteration": 7, "model": {"w": torch.ones(2)}},
                       place / f"iter_0000007/mp_rank_{rank}/model_optim_rng.pt")
        (place / "latest_checkpointed_iteration.txt").write_text("7")
        if words:
            refused(kintsugi, (words, "not whole, or mixed"), "show", place)
        else:
            assert len(json.loads(kintsugi.run("show", place).stdout)["tensors"]) == len(ranks), (sizes, ranks)


def main():
    torch, safetensors, dcp = oracle.need("torch", "safetensors.torch", "torch.distributed.checkpoint")
    kintsugi = Kintsugi(sys.argv[1])
    for check, arguments in ((check_unfinished, (torch, dcp, safetensors, kintsugi)), (check_ranks, (torch, kintsugi))):
        with tempfile.TemporaryDirectory() as folder:
            check(*arguments, pathlib.Path(folder))
        print(check.__name__, "ok")


if __name__ == "__main__":
    main()
