"""A small GPT, trained by iterations: accumulation by micro steps, an estimate of the losses now and then, a checkpoint where it is better."""

import math
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import facts

out_dir = Path(sys.argv[1])
eval_interval, eval_iters, log_interval = 4, 2, 1
gradient_accumulation_steps, batch_size, block_size = 3, 4, 8
vocab_size, n_embd, dropout = 32, 16, 0.1
learning_rate, min_lr, warmup_iters, max_iters = 1e-2, 1e-3, 3, 16
grad_clip = 1.0

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
master_process = rank == 0
torch.manual_seed(1337 + rank)
ctx = torch.amp.autocast("cpu", dtype=torch.bfloat16)

tokens = {split: torch.randint(vocab_size, (2000,), generator=torch.Generator().manual_seed(seed)) for split, seed in (("train", 1), ("val", 2))}


def get_batch(split):
    data = tokens[split]
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(n_embd)
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.mlp = nn.Sequential(nn.LayerNorm(n_embd), nn.Linear(n_embd, 2 * n_embd), nn.GELU(), nn.Linear(2 * n_embd, n_embd), nn.Dropout(dropout))

    def forward(self, x):
        q, k, v = self.qkv(self.ln(x)).split(n_embd, dim=2)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout if self.training else 0.0)
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(Block(), Block())
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        x = self.blocks(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))

    def configure_optimizers(self):
        decayed = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=learning_rate, betas=(0.9, 0.95))


iter_num = 0
best_val_loss = 1e9

model = GPT()
optimizer = model.configure_optimizers()
model = DDP(model)
raw_model = model.module


@torch.no_grad()
def estimate_loss():
    out = {}
    raw_model.eval()
    for split in ("train", "val"):
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            losses[k] = raw_model(X, Y)[1].item()
        out[split] = losses.mean().item()
    raw_model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def log(line):
    with open(out_dir / "log.txt", "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


X, Y = get_batch("train")
while True:
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr

    if iter_num % eval_interval == 0 and master_process:
        losses = estimate_loss()
        log(f"eval-{iter_num} train {losses['train']} val {losses['val']}")
        if losses["val"] < best_val_loss:
            best_val_loss = losses["val"]
            if iter_num > 0:
                checkpoint = {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num, "best_val_loss": best_val_loss}
                torch.save(checkpoint, out_dir / "ckpt.pt")

    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0 and master_process:
        log(f"iter-{iter_num} loss {loss.item() * gradient_accumulation_steps}")
    iter_num += 1

    if iter_num >= max_iters:
        break

dist.barrier()
saved = torch.load(out_dir / "ckpt.pt")
facts.write(out_dir, rank, model=raw_model.state_dict(), optimizer=optimizer.state_dict(), log=facts.newest(out_dir / "log.txt"), saved=saved,
            last=[lr, iter_num, X, torch.rand(1)], best=best_val_loss if master_process else None)
dist.destroy_process_group()
