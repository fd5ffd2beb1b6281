"""A small trainer in torchtitan's shape, that survives: the lines of `main` that mention `run` are all that Kintsugi adds.

  kintsugi run --nproc 4 --inject kill:2@5:backward -- python train.py --parallel hsdp
  kintsugi run --nproc 4 --snapshot-every 5 --inject kill:2@8:update -- python train.py --parallel fsdp
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import kintsugi.torch
import kintsugi.torch.titan

TEXT = Path("/usr/share/common-licenses")  # what every Debian system carries
Batch = tuple[dict[str, Tensor], Tensor]


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.attention_norm, self.feed_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in self.qkv(self.attention_norm(x)).chunk(3, dim=-1))
        x = x + self.dropout(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)))
        normed = self.feed_norm(x)
        fed: Tensor = self.dropout(self.down(F.silu(self.gate(normed)) * self.up(normed)))
        return x + fed


class Decoder(nn.Module):
    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(context, width)
        self.layers = nn.Sequential(*(Layer(width, 4) for _ in range(layers)))
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.output(self.norm(self.layers(self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1])))))
        return logits


def parallelize(model: Decoder, how: str) -> nn.Module:
    if how == "ddp":
        return DistributedDataParallel(model, bucket_cap_mb=0.05)
    world = dist.get_world_size()
    shape, names = ((world,), ("shard",)) if how == "fsdp" else ((2, world // 2), ("replicate", "shard"))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


class TextLoader(Stateful):
    """Windows of the text, each once before any twice. An iterator begins where the loader's state says, and counts by itself from there."""

    def __init__(self, batch: int, context: int) -> None:
        text = b"".join(path.read_bytes() for path in sorted(TEXT.iterdir()) if path.is_file())
        self._text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._batch, self._context = batch, context
        self._drawn = 0  # by all ranks

    def __iter__(self) -> Iterator[Batch]:
        windows = (len(self._text) - 1) // self._context
        drawn = self._drawn
        while True:
            first = drawn + dist.get_rank() * self._batch
            drawn += self._batch * dist.get_world_size()
            self._drawn = drawn
            ids = torch.arange(first, first + self._batch)
            places = [number * 7919 % windows * self._context for number in ids.tolist()]
            batch = torch.stack([self._text[at : at + self._context + 1] for at in places]).long()
            yield {"input": batch[:, :-1], "ids": ids}, batch[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self._drawn}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._drawn = state_dict["drawn"]


class OptimizersContainer(Optimizer):
    """Two as one: weights that are matrices decay, the others do not."""

    def __init__(self, parts: list[nn.Module], rate: float) -> None:
        every = [parameter for part in parts for parameter in part.parameters()]
        self.optimizers: list[Optimizer] = [
            torch.optim.AdamW([p for p in every if p.dim() > 1], lr=rate, weight_decay=0.1),
            torch.optim.AdamW([p for p in every if p.dim() <= 1], lr=rate, weight_decay=0.0),
        ]
        super().__init__(every, {"lr": rate})

    def __iter__(self) -> Iterator[Optimizer]:
        return iter(self.optimizers)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)


class LRSchedulersContainer(Stateful):
    def __init__(self, optimizers: OptimizersContainer, warmup: int) -> None:
        self.schedulers = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: min(1.0, (step + 1) / warmup)) for o in optimizers]

    def __iter__(self) -> Iterator[torch.optim.lr_scheduler.LRScheduler]:
        return iter(self.schedulers)

    def step(self) -> None:
        for scheduler in self.schedulers:
            scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return self.schedulers[0].state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for scheduler in self.schedulers:
            scheduler.load_state_dict(state_dict)


class Trainer(Stateful):
    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(1)  # equal weights on all ranks
        self.model_parts = [parallelize(Decoder(options.width, options.layers, options.context), options.parallel)]
        torch.manual_seed(2 + dist.get_rank())
        self.dataloader = TextLoader(options.batch, options.context)
        self.optimizers = OptimizersContainer(self.model_parts, rate=3e-3)
        self.lr_schedulers = LRSchedulersContainer(self.optimizers, warmup=20)
        self.gradient_accumulation_steps = options.accumulate
        self.log_every = options.log_every
        self.last_step = options.steps
        self.step = 0
        self.ntokens_seen = 0

    def batch_generator(self, data_iterable: Iterable[Batch]) -> Iterator[Batch]:
        for input_dict, labels in data_iterable:
            self.ntokens_seen += labels.numel()
            yield input_dict, labels

    def forward_backward_step(self, *, input_dict: dict[str, Tensor], labels: Tensor, global_valid_tokens: Tensor) -> Tensor:
        logits = self.model_parts[0](input_dict["input"])
        total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        loss: Tensor = total / global_valid_tokens * dist.get_world_size()  # gradients are averaged over the ranks
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def train_step(self, data_iterator: Iterator[Batch]) -> None:
        self.optimizers.zero_grad()
        batches = [next(data_iterator) for _ in range(self.gradient_accumulation_steps)]
        tokens = torch.tensor(float(sum(labels.numel() for _, labels in batches)))
        dist.all_reduce(tokens)
        losses = [self.forward_backward_step(input_dict=inputs, labels=labels, global_valid_tokens=tokens) for inputs, labels in batches]
        norm = self.clip_gradients(1.0)
        self.optimizers.step()
        self.lr_schedulers.step()
        if self.step % self.log_every == 0:
            self.log(torch.stack(losses).sum().detach(), norm)

    def clip_gradients(self, most: float) -> Tensor:
        parameters = [parameter for part in self.model_parts for parameter in part.parameters()]
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()  # over all ranks
        torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)
        return norm

    def log(self, loss: Tensor, norm: Tensor) -> None:
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"step {self.step} loss {loss / dist.get_world_size():.4f} norm {norm:.3f} tokens {self.ntokens_seen:,} a rank", flush=True)

    def train(self) -> None:
        """As it is without a run."""
        data_iterator = self.batch_generator(self.dataloader)
        while self.step < self.last_step:
            self.step += 1
            self.train_step(data_iterator)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "ntokens_seen": self.ntokens_seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.step, self.ntokens_seen = state_dict["step"], state_dict["ntokens_seen"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=["ddp", "fsdp", "hsdp"], default="hsdp")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--batch", type=int, default=2, help="samples of a rank in a microbatch")
    parser.add_argument("--accumulate", type=int, default=1, help="microbatches of a step")
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--without-run", action="store_true", help="as under torchrun, with Gloo and nothing of Kintsugi's")
    options = parser.parse_args()
    torch.set_num_threads(1)  # several would add up in another order, now and then

    if options.without_run:
        dist.init_process_group("gloo")
        Trainer(options).train()
        return
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    trainer = Trainer(options)
    kintsugi.torch.titan.train(run, trainer, options.steps, samples=lambda inputs: inputs["ids"].tolist(), take_over="rank-zero")


if __name__ == "__main__":
    main()
