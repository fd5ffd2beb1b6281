"""What a step of a GPT of 124 million parameters takes on a device, alone and under a run: one rank, bfloat16, AdamW.

  device_step.py [--steps 60] [--optimizer fused|foreach] [--read]      plain torch; --read: the loss is read on the host in every step
  kintsugi run --nproc 1 -- python device_step.py --protected           the same under a run, which reads it for run.report

Prints one line of JSON: the median step in ms and its quartiles, on rank 0.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary=50304, width=768, heads=12, layers=12, context=512):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.norm(self.blocks(self.token(tokens) + self.position.weight[: tokens.shape[1]]))
        return x @ self.token.weight.T


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--optimizer", default="fused", choices=("fused", "foreach"))
parser.add_argument("--read", action="store_true")
parser.add_argument("--protected", action="store_true")
options = parser.parse_args()
run = None
if options.protected:
    import torch.distributed as dist

    import kintsugi.torch
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
torch.manual_seed(1)
model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **{options.optimizer: True})
tokens = torch.randint(0, 50000, (8, 513), device="cuda")
times = []


def step(k):
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    if run is not None:
        run.report(loss=loss)
    elif options.read:
        loss.item()
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter())


if run is not None:
    run.register(model=model, optimizer=optimizer)
    run.train(step, steps=options.steps)
else:
    for number in range(options.steps):
        step(number)
torch.cuda.synchronize()
each = [1000 * (b - a) for a, b in zip(times[10:], times[11:])]
print(json.dumps({"what": "protected" if run else "read" if options.read else "plain", "optimizer": options.optimizer, "step_ms": round(statistics.median(each), 3),
                  "quartiles": [round(q, 3) for q in statistics.quantiles(each)], "steps": len(each), "device": torch.cuda.get_device_name()}), flush=True)
