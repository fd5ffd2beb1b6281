"""A trainer in torchtitan's shape whose batches are bad here and there. PLAIN=1: its own loop under plain torch over Gloo, which draws the batches of such
steps and leaves them out.

  titan_refused.py FOLDER [--parallel ddp|fsdp|hsdp] [--bad STEP:RANK]... [--call]
      bad: this rank's loss is no number there, each time it is computed
      call: the trainer finds out by itself, in front of its first batch's backward pass, and calls run.reject
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import kintsugi.torch.titan
from beside import PLAIN, begin, digest, leave

TRAIN = Path(__file__).resolve().parent.parent.parent / "integrations/examples/torch_titan/train.py"
spec = importlib.util.spec_from_file_location("torch_titan", TRAIN)
assert spec is not None and spec.loader is not None
train: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--parallel", default="hsdp")
parser.add_argument("--bad", action="append", default=[])
parser.add_argument("--call", action="store_true")
said = parser.parse_args()
bad = {int(step): int(rank) for step, _, rank in (word.partition(":") for word in said.bad)}
options = argparse.Namespace(parallel=said.parallel, steps=12, width=32, layers=2, context=32, batch=2, accumulate=2, log_every=100)


class Trainer(train.Trainer):  # type: ignore[misc]
    def forward_backward_step(self, *, global_valid_tokens: torch.Tensor, **named: Any) -> torch.Tensor:
        if self.step in bad and dist.get_rank() == bad[self.step]:
            if said.call:
                run.reject("a batch that this rank knows")
            global_valid_tokens = global_valid_tokens * torch.nan
        loss: torch.Tensor = super().forward_backward_step(global_valid_tokens=global_valid_tokens, **named)
        return loss

    def train(self) -> None:
        batches: Iterator[Any] = self.batch_generator(self.dataloader)
        while self.step < self.last_step:
            self.step += 1
            if self.step in bad:
                for _ in range(self.gradient_accumulation_steps):
                    next(batches)
                continue
            self.train_step(batches)


run = begin()
trainer = Trainer(options)
if PLAIN:
    trainer.train()
else:
    kintsugi.torch.titan.train(run, trainer, options.steps, samples=lambda inputs: inputs["ids"].tolist())
leave(said.folder, {"weights": {"all": digest(*(parameter for part in trainer.model_parts for parameter in part.parameters()))},
                    "moments": {"all": digest(*(value for one in trainer.optimizers for state in one.state.values() for value in state.values()))},
                    "trainer": {"own": trainer.state_dict(), "data": trainer.dataloader.state_dict(), "rates": trainer.lr_schedulers.state_dict()},
                    "random": {"torch": digest(torch.get_rng_state())}})  # fmt: skip
