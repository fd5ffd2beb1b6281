#!/usr/bin/env python3
"""Files of torch.save, one for each rank: what DTensors of a real FSDP2, HSDP and tensor parallelism say, joined by us.

    rank_files_test.py KINTSUGI
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import oracle
import states
from checkpoint_formats_test import Kintsugi
from misread_formats_test import refused

WORLD = 4


def build(torch):
    class Model(torch.nn.Module):
        """Sizes that four ranks do not divide; one tensor of fewer rows than ranks; a tied one; buffers."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.up, self.down, self.few = torch.nn.Linear(5, 14), torch.nn.Linear(14, 7), torch.nn.Linear(6, 2)
            self.head = torch.nn.Linear(5, 14, bias=False)
            self.head.weight = self.up.weight
            self.norm = torch.nn.BatchNorm1d(7)
            self.register_buffer("scalar", torch.tensor(2.5, dtype=torch.float64))

        def forward(self, x):
            return self.few(self.norm(self.down(self.head(x) + self.up(x)))[:, :6])

    return Model()


def save(torch, rank, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def whole(value):
        if isinstance(value, dict):
            return {key: whole(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [whole(inner) for inner in value]
        return value.full_tensor() if isinstance(value, DTensor) else value

    def keep(name, files):
        (folder / name).mkdir(exist_ok=True)
        for file, state in files.items():
            torch.save(state, folder / name / file)
            wanted = whole(state)
            if rank == 0:
                torch.save(wanted, folder / f"{name}-{file.split('_')[0]}.full")

    def fsdp(model, mesh):
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(8, 5)).sum().backward()
        optimizer.step()
        return optimizer

    line, grid = init_device_mesh("cpu", (WORLD,)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = build(torch)
    optimizer = fsdp(model, line)
    keep("parameters", {f"p_rank_{rank}.pt": dict(model.named_parameters())})
    torch.manual_seed(rank)
    keep("fsdp", {f"model_world_size_{WORLD}_rank_{rank}.pt": model.state_dict(), f"optim_world_size_{WORLD}_rank_{rank}.pt": optimizer.state_dict()})
    torch.save({"rng": torch.get_rng_state(), "epoch": 2, "worker": rank}, folder / f"fsdp/extra_world_size_{WORLD}_rank_{rank}.pt")
    model = build(torch)
    fsdp(model, grid)  # two copies of two parts
    keep("hsdp", {f"rank-{rank}.pth": {"model": model.state_dict(), "step": 7}})
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel(), "few": ColwiseParallel()}
    model = parallelize_module(build(torch), grid["tp"], plan)
    keep("tensor", {f"checkpoint_{rank}.pt": model.state_dict()})  # a mesh that is a part of the whole
    fully_shard(model, mesh=grid["dp"])
    keep("both", {f"model_rank{rank}.pt": model.state_dict()})
    x = torch.arange(70.).reshape(7, 10)
    kinds = [(Shard(0), Shard(0)), (Shard(1), Shard(0)), (Shard(1), Replicate()), (Replicate(), Replicate())]
    keep("kinds", {f"x_rank_{rank}.pt": {str(i): distribute_tensor(x, grid, kind) for i, kind in enumerate(kinds)}})
    torch.save({"sum": DTensor.from_local(x, line, [torch.distributed.tensor.Partial()]), "w": torch.ones(2)}, folder / f"partial_rank_{rank}.pt")


def run_rank(rank, folder):
    import torch
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    save(torch, rank, pathlib.Path(folder))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def check_joined(torch, kintsugi, folder):
    for name, prefix in (("hsdp", "rank-0.pth"), ("tensor", "checkpoint"), ("both", "model"), ("kinds", "x"), ("parameters", "p")):
        wanted = torch.load(folder / f"{name}-{prefix}.full", weights_only=False)
        found = torch.load(kintsugi.convert(folder / name, folder / f"{name}.pt", "torch", "--format", "torch-ranks"), weights_only=True)
        states.assert_equal_states(torch, wanted, found, name)
        assert "torch-ranks" in kintsugi.run("verify", folder / name, "--format", "torch-ranks").stdout
    # A tied weight is one again.
    model = torch.load(folder / "hsdp.pt")["model"]
    assert model["head.weight"].data_ptr() == model["up.weight"].data_ptr()


def check_families(torch, kintsugi, folder):
    """As verl leaves them: names of the model stay, those of others begin with their family's."""
    found = torch.load(kintsugi.convert(folder / "fsdp", folder / "all.pt", "torch", "--format", "torch-ranks"), weights_only=True)
    model, optimizer = (torch.load(folder / f"fsdp-{name}.full", weights_only=False) for name in ("model", "optim"))
    extra = found.pop("extra")
    assert extra == {"epoch": 2}, extra
    for rank in range(WORLD):
        own = torch.load(folder / f"fsdp/extra_world_size_{WORLD}_rank_{rank}.pt", weights_only=True)
        assert torch.equal(found.pop(f"rank-{rank:05d}/extra.rng"), own["rng"]) and found.pop(f"rank-{rank:05d}/extra.worker") == rank
    states.assert_equal_states(torch, optimizer, found.pop("optim"), "optim")
    states.assert_equal_states(torch, model, found, "model")
    one = torch.load(kintsugi.convert(folder / f"fsdp/optim_world_size_{WORLD}_rank_2.pt", folder / "optim.pt", "torch", "--format", "torch-ranks"))
    states.assert_equal_states(torch, optimizer, one, "optim alone")


def check_refused(torch, kintsugi, folder):
    refused(kintsugi, ("it is one rank's part, [4, 5] at [0, 0] of [14, 5]", "--format torch-ranks"), "convert",
            folder / f"fsdp/model_world_size_{WORLD}_rank_0.pt", folder / "one.pt", "--to", "torch")

    def spoiled(name, change):
        place = folder / "spoiled"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder / name, place)
        change(place)
        return place

    def edit(file, change):
        def edited(place):
            state = torch.load(place / file, weights_only=False)
            change(state)
            torch.save(state, place / file)
        return edited

    refused(kintsugi, ("missing are those of rank 2", "'rank-0.pth'", "4 ranks"), "show",
            spoiled("hsdp", lambda place: os.unlink(place / "rank-2.pth")))
    refused(kintsugi, ("called rank 1's", "is rank 3's"), "show", spoiled("hsdp", lambda place: os.replace(place / "rank-3.pth", place / "rank-1.pth")))
    refused(kintsugi, ("several worlds",), "show",
            spoiled("fsdp", lambda place: shutil.copy(place / "model_world_size_4_rank_0.pt", place / "model_world_size_2_rank_0.pt")))
    refused(kintsugi, ("rank 4's of 4",), "show",
            spoiled("fsdp", lambda place: shutil.copy(place / "model_world_size_4_rank_0.pt", place / "model_world_size_4_rank_4.pt")))
    # A part that another rank holds too, a buffer.
    part = edit("rank-2.pth", lambda state: state["model"]["down.weight"]._local_tensor[0, 3].add_(1))
    refused(kintsugi, ("'model.down.weight'", "'rank-0.pth' and 'rank-2.pth' hold the same part"), "convert", spoiled("hsdp", part),
            folder / "s.pt", "--to", "torch")
    buffer = edit("rank-3.pth", lambda state: state["model"]["norm.running_mean"].add_(1))
    place = spoiled("hsdp", buffer)
    refused(kintsugi, ("'model.norm.running_mean'", "'rank-0.pth' and 'rank-3.pth'", "no DTensor"), "convert", place, folder / "s.pt", "--to", "torch")
    kept = torch.load(kintsugi.convert(place, folder / "kept.pt", "torch", "--only", "model.*.weight"))
    assert "norm.running_mean" not in kept["model"] and kept["model"]["few.weight"].shape == (2, 6), kept
    assert any("left out" in note and "running_mean" in note for note in json.loads(kintsugi.run("show", place).stdout)["notes"])
    # What stands there twice.
    def widen(state):
        spec = state["model"]["down.weight"]._spec
        spec.tensor_meta = spec.tensor_meta._replace(shape=torch.Size([7, 15]))
    shape = edit("rank-1.pth", widen)
    refused(kintsugi, ("a DTensor of [7, 14] whose spec says [7, 15]",), "show", spoiled("hsdp", shape))
    (folder / "partial").mkdir()
    for rank in range(WORLD):
        os.replace(folder / f"partial_rank_{rank}.pt", folder / f"partial/p_rank_{rank}.pt")
    refused(kintsugi, ("tensor 'sum'", "Partial", "redistribute"), "convert", folder / "partial", folder / "p.pt", "--to", "torch")
    assert set(torch.load(kintsugi.convert(folder / "partial", folder / "p.pt", "torch", "--skip-objects"))) == {"w"}


def main():
    if sys.argv[1] == "--rank":
        run_rank(int(sys.argv[2]), sys.argv[3])
        return
    torch, _ = oracle.need("torch", "torch.distributed.tensor")
    kintsugi = Kintsugi(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        ranks = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--rank", str(rank), name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True) for rank in range(WORLD)]
        for process in ranks:
            text, _ = process.communicate(timeout=240)
            assert process.returncode == 0, text
        folder = pathlib.Path(name)
        for check in (check_joined, check_families, check_refused):
            check(torch, kintsugi, folder)
            print(check.__name__, "ok")


if __name__ == "__main__":
    main()
