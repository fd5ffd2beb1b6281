"""A byte-level GPT, parallel with torch, that survives: the lines that mention `run` are all that Kintsugi adds.

  kintsugi run --nproc 4 --inject kill:2@5:backward -- python train.py --steps 20
  kintsugi run --nproc 4 --snapshot-every 5 --inject kill:2@5:backward -- python train.py --parallel fsdp
  kintsugi run --nproc 4 --save-every 50 --save-dir saves -- python train.py --parallel tp --global-batch 48 --steps 50
  kintsugi run --nproc 6 --resume saves -- python train.py --parallel tp --global-batch 48
  kintsugi run --nproc 8 --inject kill:2@5:backward -- python train.py --device cuda
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

TEXT = Path("/usr/share/common-licenses")  # what every Debian system carries, as byte_lm's


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.head_width = width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        split = (batch, length, -1, self.head_width)  # as many heads as this rank has
        normed = self.norm1(x)
        q, k, v = (part(normed).view(split).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.dropout(self.out(mixed))
        widened: Tensor = self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        return x + widened


class GPT(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, context: int, dropout: float) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        logits: Tensor = self.head(self.norm(self.blocks(x)).flatten(0, 1))
        return logits


def device_of(kind: str) -> torch.device:
    """This rank's. Its own, where there are as many as ranks on this host."""
    if kind == "cpu":
        return torch.device(kind)
    number = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(number)
    return torch.device(kind, number)


def parallelize(model: GPT, how: str, tensor: int) -> tuple[nn.Module, int, int, dist.ProcessGroup | None]:
    """The model cut and copied; this rank's number among those with other data, how many these are, and the group over which the
    script itself has to average gradients."""
    rank, world, kind = dist.get_rank(), dist.get_world_size(), model.head.weight.device.type
    if how in ("ddp", "zero"):
        return DistributedDataParallel(model, bucket_cap_mb=0.05), rank, world, None
    if how in ("fsdp", "hsdp"):
        shape, names = ((world,), ("shard",)) if how == "fsdp" else ((2, world // 2), ("copy", "shard"))
        mesh = init_device_mesh(kind, shape, mesh_dim_names=names)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, rank, world, None
    mesh = init_device_mesh(kind, (world // tensor, tensor), mesh_dim_names=("data", "tensor"))
    cut, joined = ColwiseParallel(), RowwiseParallel()
    for block in model.blocks:
        plan = {"query": cut, "key": cut, "value": cut, "out": joined, "up": cut, "down": joined}
        parallelize_module(block, mesh["tensor"], plan)
    return model, mesh.get_local_rank("data"), world // tensor, mesh.get_group("data")


def average_gradients(model: nn.Module, group: dist.ProcessGroup) -> None:
    grads = [g.to_local() if isinstance(g, DTensor) else g for p in model.parameters() if (g := p.grad) is not None]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat, group=group)
    for grad, mean in zip(grads, torch.split(flat / dist.get_world_size(group), [grad.numel() for grad in grads])):
        grad.copy_(mean.view_as(grad))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=["ddp", "fsdp", "hsdp", "tp", "zero"], default="ddp")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--tensor", type=int, default=2, help="tp: ranks that a block is cut over")
    parser.add_argument("--batch", type=int, default=4, help="samples of a step for each rank that has data of its own")
    parser.add_argument("--global-batch", type=int, help="over all ranks instead: the same however many there are")
    options = parser.parse_args()
    torch.set_num_threads(1)  # several would add up in another order, now and then

    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    torch.manual_seed(1)  # equal parameters, where nobody sends them
    device = device_of(options.device)
    whole = GPT(options.width, 4, options.layers, options.context, options.dropout).to(device)
    model, part, parts, data_group = parallelize(whole, options.parallel, options.tensor)
    if options.global_batch is not None:
        if options.global_batch % parts != 0:
            parser.error(f"--global-batch {options.global_batch} cannot be shared out evenly over {parts}")
        options.batch = options.global_batch // parts
    torch.manual_seed(2 + part)  # dropout is as different as the data is

    text = torch.frombuffer(bytearray(b"".join(p.read_bytes() for p in sorted(TEXT.iterdir()) if p.is_file())), dtype=torch.uint8)
    windows = (len(text) - 1) // options.context
    optimizer: torch.optim.Optimizer
    if options.parallel == "zero":
        optimizer = kintsugi.torch.ReplicaOptimizer(model.parameters(), torch.optim.AdamW, copies=2, lr=3e-3)
    else:
        # On a device torch would put cut parameters and whole ones into one call, which takes one kind alone.
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False if options.parallel == "tp" else None)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)
    if run.rank == 0 and not run.replaces:
        print(run.plan())

    def step(k: int) -> None:
        first = ((k - 1) * parts + part) * options.batch
        samples = [(first + i) * 7919 % windows for i in range(options.batch)]
        batch = torch.stack([text[w * options.context : (w + 1) * options.context + 1] for w in samples]).long().to(device)
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits, batch[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        if data_group is not None:
            average_gradients(model, data_group)
        reported = loss.detach().clone()
        if options.global_batch is not None:  # the same number however many ranks there are
            dist.all_reduce(reported, group=data_group)
            reported /= parts
        run.report(loss=reported.item(), samples=range(first, first + options.batch))
        optimizer.step()
        scheduler.step()

    run.train(step, steps=options.steps)


main()
