"""A script that uses whatever torch.distributed has for tensors on the cpu, and prints what it computed; ends with code 7. No rank does anything else
than the others, and none waits for long."""

import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def trained(model):
    """The parameters after three steps, as one number's bits."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        model(torch.full((4, 8), 0.1 * (step + 1))).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return float(sum(p.detach().double().abs().sum() for p in whole)).hex()


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 8))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    said = [trained(torch.nn.parallel.DistributedDataParallel(network()))]
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    said.append(trained(fully_shard(torch.nn.Linear(8, 8), mesh=mesh)))
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3], group_desc="upper")]
    works = [dist.all_reduce(torch.ones(n + 1), group=halves[rank // 2], async_op=True) for n in range(5)]
    for work in reversed(works):
        work.wait()
    gathered = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (10 * rank)})
    given = [gathered]
    dist.broadcast_object_list(given, src=1)
    said.append(len(str(given)))
    out = torch.zeros(world * (rank + 1))
    dist.all_to_all_single(out, torch.full((10,), float(rank)), [rank + 1] * world, [other + 1 for other in range(world)])
    came = torch.zeros(3)
    ring = [dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % world), dist.P2POp(dist.irecv, came, (rank - 1) % world)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    said.append(float(out.sum() + came.sum()))
    said.append(float(functional.all_reduce(torch.ones(4) * rank, "sum", dist.group.WORLD).sum()))
    lost = functional.all_gather_tensor(torch.ones(2), 0, dist.group.WORLD)  # nobody looks at what came of it
    said.append(len(lost))
    cut = distribute_tensor(torch.arange(16.0).reshape(4, 4), mesh, [Shard(0)])
    said.append(float(cut.redistribute(mesh, [Replicate()]).to_local().sum()))
    dist.monitored_barrier()
    everybody = [None] * world if rank == 0 else None
    dist.gather_object(said, everybody, dst=0)
    if rank == 0:
        print(everybody, flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(7)


main()
