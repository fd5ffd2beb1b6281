"""A byte-level GPT, data parallel with torch, that survives: the lines that mention `run` are all that Kintsugi adds.

  kintsugi run --nproc 4 --inject kill:2@5:backward -- python train.py --steps 20
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import kintsugi.torch

TEXT = Path("/usr/share/common-licenses")  # what every Debian system carries, as byte_lm's


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.dropout(self.out(mixed))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, context: int, dropout: float) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=["ddp"], default="ddp")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)  # several would add up in another order, now and then

    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1 + rank)  # ranks differ: DDP gives all of them rank 0's parameters, dropout stays each one's own

    text = torch.frombuffer(bytearray(b"".join(p.read_bytes() for p in sorted(TEXT.iterdir()) if p.is_file())), dtype=torch.uint8)
    windows = (len(text) - 1) // options.context
    model = DistributedDataParallel(GPT(options.width, 4, options.layers, options.context, dropout=0.1), bucket_cap_mb=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)
    if rank == 0 and not run.replaces:
        print(run.plan())

    def step(k: int) -> None:
        first = ((k - 1) * world + rank) * options.batch
        samples = [(first + i) * 7919 % windows for i in range(options.batch)]
        batch = torch.stack([text[w * options.context : (w + 1) * options.context + 1] for w in samples]).long()
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 256), batch[:, 1:].reshape(-1))
        loss.backward()  # type: ignore[no-untyped-call]
        run.report(loss=loss.item(), samples=range(first, first + options.batch))
        optimizer.step()
        scheduler.step()

    run.train(step, steps=options.steps)


main()
