"""Tensors of torch between layouts: a trained model cut for FSDP2 becomes another cut, whole copies, other names; in place for autograd, and
by way of the host where it does not lie there as it is sent.

  torch_reshard.py [once]    in every step, where a fault may strike; once: what is looked at once
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import kintsugi.torch

run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
mesh = init_device_mesh("cpu", (2, run.world_size // 2), mesh_dim_names=("copies", "parts"))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
run.register(model=model, optimizer=optimizer)
served = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
served.requires_grad_(False)


def serve():
    """A whole copy on rank 0, of what no rank has whole."""
    return run.reshard(dict(model.named_parameters()), dict(served.named_parameters()) if run.rank == 0 else {})


def expect_served():
    for name, parameter in model.named_parameters():
        whole = parameter.full_tensor()
        if run.rank == 0 and not torch.equal(served.get_parameter(name), whole):
            raise SystemExit(f"'{name}' is not what was trained")


def step(k):
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(k)
    loss = model(torch.randn(4, 12, generator=generator)).square().mean()
    loss.backward()
    serve()
    expect_served()
    run.report(loss.item())
    optimizer.step()


def refused(words, source, target, **options):
    try:
        run.reshard(source, target, **options)
    except kintsugi.Error as error:
        if not all(word in str(error) for word in words):
            raise SystemExit(f"{words} are not in: {error}") from error
    else:
        raise SystemExit(f"{words}: not refused")


def once():
    done = serve()
    if (done.bytes_received > 0) != (run.rank == 0):
        raise SystemExit(f"rank {run.rank}: {done}")
    expect_served()
    whole = torch.arange(60.0).reshape(10, 6)
    flat = init_device_mesh("cpu", (run.world_size,))
    rows = distribute_tensor(whole, flat, [Shard(0)])  # 10 rows over 4: the last rank has one
    columns = DTensor.from_local(torch.full((5, 3), -1.0), mesh, [Shard(0), Shard(1)])
    run.reshard({"w": rows}, {"w": columns})
    if not torch.equal(columns.full_tensor(), whole):
        raise SystemExit(f"{columns}")
    copies = DTensor.from_local(torch.full((6, 10), -1.0, dtype=torch.bfloat16), flat, [Replicate()], run_check=False)
    run.reshard({"w": columns}, {"t": copies}, ["w^T -> t, dtype='bfloat16'"])
    if not torch.equal(copies.to_local(), whole.T.to(torch.bfloat16)):
        raise SystemExit(f"{copies}")
    # Changed in place, as far as autograd is concerned.
    parameter = torch.zeros(10, 6, requires_grad=True)
    kept = (parameter * parameter).sum()
    run.reshard({"w": rows}, {"w": parameter})
    try:
        kept.backward()
    except RuntimeError as error:
        if "inplace" not in str(error):
            raise
    else:
        raise SystemExit("autograd does not know that a target has changed")
    # A transposed view and a conjugated one as sources; as a target a view may be part of what is registered.
    view = torch.full((6, 10), -1.0).T
    for offload in (False, True):
        refused(["not contiguous", "memory of its own"], {"w": rows}, {"w": view}, offload=offload)
    refused(["not contiguous", "offload"], {"w": whole.T.contiguous().T}, {"w": torch.empty_like(whole)})
    out = torch.empty_like(whole)
    run.reshard({"w": whole.T.contiguous().T}, {"w": out}, offload=True)
    if not torch.equal(out, whole):
        raise SystemExit(f"{out}")
    value = torch.complex(whole, -whole)
    refused(["conjugated", "offload"], {"c": value.conj()}, {"c": torch.empty_like(value)})
    got = torch.empty_like(value)
    run.reshard({"c": value.conj()}, {"c": got}, offload=True)
    if not torch.equal(got, torch.complex(whole, whole)):
        raise SystemExit(f"{got}")
    # As ZeRO-1 cuts a flattened parameter, and padded to other rows.
    part, bounds = torch.empty(15), (15 * run.rank, 15 * run.rank + 15)
    run.reshard({"w": rows}, {"w": kintsugi.Shard(part, (10, 6), box=(10, 6), flat=bounds)})
    if not torch.equal(part, whole.flatten()[slice(*bounds)]):
        raise SystemExit(f"{part}")
    padded = torch.full((3, 6), -1.0)
    run.reshard({"w": rows}, {"w": kintsugi.Shard(padded, (12, 6), (3 * run.rank, 0), allow_shape_mismatch=True)})
    if not torch.equal(padded, torch.nn.functional.pad(whole, (0, 0, 0, 2))[3 * run.rank : 3 * run.rank + 3]):
        raise SystemExit(f"{padded}")
    # Pairs of ranks by themselves: what one of them holds, the other gets.
    pair = [run.rank // 2 * 2, run.rank // 2 * 2 + 1]
    mine, theirs = torch.full((4,), float(run.rank)), torch.empty(4)
    run.reshard({"p": mine} if run.rank % 2 == 0 else {}, {"p": theirs} if run.rank % 2 else {}, ranks=pair)
    if run.rank % 2 and not torch.equal(theirs, mine - 1):
        raise SystemExit(f"{theirs}")
    refused(["meta"], {"w": rows}, {"w": torch.empty(10, 6, device="meta")})
    refused(["knows its place"], {"w": rows}, {"w": kintsugi.Shard(columns, (10, 6), (0, 0))})
    refused(["registered tensor 'model/0.weight'"], {"0.weight": torch.zeros(16, 12)}, {"0.weight": model[0].weight})


run.train(step, 1 if sys.argv[1:] == ["once"] else 5)
if sys.argv[1:] == ["once"]:
    run.do(once)
    print(f"rank {run.rank} is done", file=sys.stderr)
