"""One model of each kind whose state is cut, trained together: a pair of layers over two copies of FSDP2's shards (HSDP), one cut by
tensor parallelism, one whose optimizer is shared out. A fault strikes all of them at once.

  torch_shards.py [--steps N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

WIDTH = 12  # 6 and 3 of it are the parts: uneven alignments


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Dropout(0.1), nn.Linear(2 * WIDTH, WIDTH), nn.LayerNorm(WIDTH))


def refused(words: str, function: Callable[..., object], **arguments: object) -> None:
    try:
        function(**arguments)
    except kintsugi.torch.Error as error:
        if words not in str(error):
            raise RuntimeError(f"'{words}' is not in '{error}'") from error
        return
    raise RuntimeError(f"not refused: {words}")


def use_store(run: kintsugi.torch.TorchRun) -> None:
    """What torch and libraries over it do with the store of the default group."""
    store = dist.distributed_c10d._get_default_store()
    name, large = f"large/{run.rank}", b"x" * 100_000
    count = store.add("ranks", 1)
    store.set(name, large.decode())
    held = [1 <= count <= run.world_size, store.get(name) == large, store.check([name]), not store.check([name, "nobody's"]),
            store.delete_key(name), not store.check([name]), store.compare_set(f"own/{count}", "", str(run.rank)) == str(run.rank).encode()]  # fmt: skip
    if not all(held):
        raise RuntimeError(f"the store does otherwise: {held}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=14)
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    use_store(run)
    torch.manual_seed(3)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    inner = layers()
    copied = nn.Sequential(inner, nn.Linear(WIDTH, 4))
    for module in (inner, copied):
        fully_shard(module, mesh=mesh)
    cut = parallelize_module(layers(), mesh["inner"], {"0": ColwiseParallel(), "3": RowwiseParallel()})
    shared = DistributedDataParallel(layers())
    models = {"copied": copied, "cut": cut, "shared": shared}
    optimizers = {
        "adam": torch.optim.AdamW([*copied.parameters()], lr=1e-2),
        # On a device torch would step lists of them, in which it takes no DTensors beside others.
        "sgd": torch.optim.SGD(cut.parameters(), lr=1e-2, momentum=0.9, foreach=False),
        "parts": kintsugi.torch.ReplicaOptimizer(shared.parameters(), torch.optim.Adam, copies=2, lr=1e-2),
    }
    rates = torch.optim.lr_scheduler.StepLR(optimizers["parts"], step_size=3, gamma=0.7)
    data = mesh.get_group("outer")
    part = mesh.get_local_rank("outer")
    run.register(**models, **optimizers, rates=rates)
    if run.rank == 0 and not run.replaces:
        assert "WITHOUT A SECOND COPY" not in run.plan(), run.plan()
    refused("optimizer.step() outside of run.train", optimizers["sgd"].step)
    refused("comes before init_process_group", kintsugi.torch.join)
    refused("the name 'random' is taken", run.register, random=rates)
    refused("lacks state_dict or load_state_dict", run.register, array=object())
    refused("take_over names late: no such object", run.register, take_over={"late": "derived"})
    refused("say it by name, take_over={'late': ...}", run.register, take_over="derived", late=rates)
    refused("'adam' is registered already, as 'adam'", run.register, adam=optimizers["adam"])
    refused("run.update() outside of run.train", run.begin_update)
    refused("whose model was registered without it", run.register,
            late=kintsugi.torch.ReplicaOptimizer(list(cut.children())[4].parameters(), torch.optim.SGD, copies=2, lr=1.0))  # fmt: skip
    torch.manual_seed(5 + part)  # ranks that share a cut layer draw alike

    def step(k: int) -> None:
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        own = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * k + run.rank))
        pair = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * k + 10 + part))
        loss = copied(own).square().sum() + cut(pair).square().sum() + (shared(own) - own).square().sum()
        loss.backward()
        for parameter in cut.parameters():
            assert parameter.grad is not None
            grad = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
            dist.all_reduce(grad, group=data)
        torch.nn.utils.clip_grad_norm_(shared.parameters(), 5.0)
        torch.nn.utils.clip_grad_norm_(copied.parameters(), 5.0)
        run.report(loss=loss.item(), samples=[k * run.world_size + run.rank])
        for optimizer in optimizers.values():
            optimizer.step()
        rates.step()

    run.train(step, steps=options.steps)


main()
