"""The trainer that every peer of bench torch runs."""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from torch_bench_marks import RANKS, STRUCK_RANK, Marks

WARM_STEPS = 10
STEP_S = 0.02  # stands for the accelerator's work; without it, ranks that go on would starve a newcomer's imports of processors
LIFE_S = 300  # the bench ends its processes long before; this is for those of a bench that was itself killed


class Trainer:
    """One rank's steps, until it is killed from outside. Once all ranks are warm, one of them is struck."""

    def __init__(self, folder: str, fault: str, rank: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.rank, self._fault, self._marks = rank, fault, Marks(folder)
        self.module = torch.nn.Linear(64, 64)
        self.optimizer = torch.optim.AdamW(self.module.parameters())
        self._ends = time.monotonic() + LIFE_S

    def train(self, model: torch.nn.Module, optimizer: Any = None, *, steps_done: Callable[[], int] | None = None,
              each: Callable[[], object] = lambda: None) -> None:
        """`steps_done`: of a peer that may refuse to commit a step; without it, a step that ends is done. `each`: called in every step."""
        optimizer = optimizer or self.optimizer
        own = 0
        while time.monotonic() < self._ends:
            struck_before = self._marks.has("struck")
            before = steps_done() if steps_done else own
            if self.rank == STRUCK_RANK and not struck_before and len(self._marks.of_ranks("warm")) == RANKS:
                self._strike()
            optimizer.zero_grad()
            model(torch.ones(4, 64)).square().mean().backward()
            time.sleep(STEP_S)
            optimizer.step()
            each()
            if steps_done and steps_done() == before:
                continue
            own += 1
            if struck_before:
                self._marks.set(f"stepping{self.rank}")
            elif own >= WARM_STEPS:
                self._marks.set(f"warm{self.rank}")
        sys.exit(f"rank {self.rank}: nobody ended this process within {LIFE_S} s")

    def _strike(self) -> None:
        self._marks.set("struck")
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("struck")
