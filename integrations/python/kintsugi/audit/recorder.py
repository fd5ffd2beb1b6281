"""What one process does, update by update, as lines of JSON in a file of its own.

Each line is one object with `t`: "process" (the interpreter's start), "torch" (it was imported), "rank" (before the first update), "update", "save", "load",
"held" (stopped before its next update), "end" (the process leaves), "error" (the recorder itself failed and looks at nothing more).
A fact that is as in the update before is left out of a line; records.py puts it back.

Threads: the one that trains. A child that is forked (a loader's worker) records nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import weakref
from pathlib import Path
from typing import Any, Callable

from . import digests, stopping
from .seen import Names, Seen
from .state import State, options


class Recorder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out = open(folder / f"{os.getpid()}-{time.monotonic_ns()}.jsonl", "w", encoding="utf-8")
        self._pid = os.getpid()
        self._broken = self._busy = self._dry = False
        self._written: dict[str, Any] = {}
        self._updates = 0
        self._alive: list[Any] = []
        self._stop = stopping.from_environment()
        self.seen = Seen()
        self._forget()
        self.write({"t": "process", "argv": sys.argv if hasattr(sys, "argv") else [], "python": sys.version.split()[0]})

    def begin(self, torch: Any) -> None:
        self._torch = torch
        self._state = State(torch, self.seen)
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._counts: dict[int, int] = {}
        self.write({"t": "torch", "version": str(torch.__version__)})

    def write(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def guarded(self, look: Callable[..., None], *arguments: Any) -> None:
        """One look at the program. What goes wrong in it is told, and the program goes on as if nobody looked. A look that makes the
        program call what is looked at (a getter, a copy) is not looked at."""
        if self._broken or self._busy or os.getpid() != self._pid or self._is_captured():
            return
        self._busy = True
        try:
            look(*arguments)
        except Exception:
            self._broken = True
            self.write({"t": "error", "what": traceback.format_exc()})
        finally:
            self._busy = False

    def _is_captured(self) -> bool:
        """A graph of a device's work is made: nothing may be read from the device until it is whole."""
        cuda = getattr(getattr(self, "_torch", None), "cuda", None)
        return cuda is not None and cuda.is_initialized() and bool(cuda.is_current_stream_capturing())

    def _forget(self) -> None:
        """What belongs to no update yet is left out: the program puts another state in place."""
        self._start: dict[str, Any] | None = None
        self._inputs: list[str] = []
        self._used: set[int] = set()  # forwards, by their number, that a backward came through
        self._batches: list[dict[str, Any]] = []
        self._losses: list[dict[str, Any]] = []
        self._clips: list[dict[str, Any]] = []

    def _optimizers(self) -> dict[int, Any]:
        """All that there are, the first to step as 0. Those that have not stepped yet come behind, in the order of their making."""
        numbered = {self._numbers[o]: o for o in self.seen.optimizers if o in self._numbers}
        waiting = [o for o in self.seen.optimizers if o not in self._numbers]
        return dict(sorted(numbered.items())) | {len(self._counts) + i: o for i, o in enumerate(waiting)}

    def names(self) -> Names:
        return Names(list(self.seen.modules))

    # --- what the hook calls

    def forward(self, module: Any, arguments: Any) -> None:
        """An outermost module is called. The state before an update is that before the newest forward that had no backward yet: an evaluation that
        nobody told to go without gradients may stand between the update and what follows it."""
        if not self._is_trained(module):
            return
        self._state.forwarded(module)
        if not self._losses:
            self._state.rank = self._place()[0]
            self._start = self._state.take(self._optimizers(), self.names())
            self._start["mode"] = {"training": digests.text([m.training for m in module.modules()])}
        given = [(path, leaf) for path, leaf in digests.leaves(self._torch, arguments)
                 if not (isinstance(leaf, self._torch.Tensor) and leaf.grad_fn is not None)]  # fmt: skip
        if any(isinstance(leaf, self._torch.Tensor) or digests._is_array(leaf) for _, leaf in given):
            self._inputs.append(digests.tree(self._torch, given))
        else:
            self._inputs.append("")

    def result(self, module: Any, output: Any) -> None:
        """... and has returned. A forward counts as the update's when a backward comes through it."""
        if not self._is_trained(module) or not self._inputs:
            return
        number, used = len(self._inputs) - 1, self._used
        try:
            marked = [leaf.register_hook(lambda _: used.add(number)) for _, leaf in digests.leaves(self._torch, output)
                      if isinstance(leaf, self._torch.Tensor) and leaf.grad_fn is not None]  # fmt: skip
        except RuntimeError:
            marked = []  # a tensor of a transformation (torch.func), which takes no hooks
        if not marked:
            used.add(number)

    def _is_trained(self, module: Any) -> bool:
        """No evaluation, and no loss."""
        return self._torch.is_grad_enabled() and next(module.parameters(), None) is not None

    def batch(self, indices: Any, batch: Any) -> None:
        self._batches.append({"order": None if indices is None else digests.text(indices), "content": digests.tree(self._torch, batch)})
        if isinstance(indices, (list, tuple)) and len(indices) <= 64:
            self._batches[-1]["samples"] = [i if isinstance(i, int) else str(i) for i in indices]

    def backward(self, loss: Any) -> None:
        value = loss.detach()
        self._losses.append({"digest": digests.tensor(self._torch, value), "value": float(value) if value.numel() == 1 else None})

    def clip(self, kind: str, limit: Any, norm: Any) -> None:
        self._clips.append({"kind": kind, "limit": float(limit), "norm": None if norm is None else float(norm)})

    def loads(self, what: str) -> None:
        """A state is put in place (load_state_dict): what went before it was no training."""
        self._forget()
        if what:
            self.write({"t": "restore", "what": what, "after": self._updates})

    def save(self, path: str) -> None:
        self._state.saved()
        if path:
            self.write({"t": "save", "path": path, "id": file_id(path), "after": self._updates})

    def load(self, path: str) -> None:
        if path:  # not one of the bytes that a checkpoint is made of
            self.write({"t": "load", "path": path, "id": file_id(path), "after": self._updates})

    def before_update(self, optimizer: Any) -> None:
        """An update with a rate of 0 and no backward is none: torch makes one to have moments that it can load into (get_state_dict)."""
        if optimizer not in self._numbers:
            if not self._counts:
                rank, size = self._place()
                self.write({"t": "rank", "rank": rank, "size": size})
            self._numbers[optimizer] = len(self._counts)
            self._counts[self._numbers[optimizer]] = 0
        at = self._numbers[optimizer]
        self._dry = not self._losses and all(float(group.get("lr", 1)) == 0 for group in optimizer.param_groups)
        if self._dry:
            return
        if self._stop and at == 0 and self._counts[0] == self._stop.after:
            self.write({"t": "held", "after": self._updates})
            self._stop.hold(self._folder, self._place()[1])
        self._groups = options(self._optimizers(), self.names())
        if self._start is None and not self._inputs and not self._counts[at] and at == 0:
            self._start = self._state.take(self._optimizers(), self.names())

    def after_update(self, optimizer: Any) -> None:
        if self._dry:
            return
        at = self._numbers[optimizer]
        self._counts[at] += 1
        self._updates += 1
        names = self.names()
        gradients: dict[str, str | None] = {}
        for i, group in enumerate(optimizer.param_groups):
            for j, parameter in enumerate(group["params"]):
                name = names.of.get(id(parameter), f"optimizer {at} group {i} parameter {j}")
                gradients[name] = None if parameter.grad is None else digests.tensor(self._torch, parameter.grad)
        self.write({"t": "update", "number": self._updates, "optimizer": at, "step": self._counts[at], "inputs": [given for i, given in enumerate(self._inputs) if given and i in self._used], "batches": self._batches,
                    "losses": self._losses, "clips": self._clips, "gradients": gradients, "groups": self._changed("groups", self._groups),
                    "start": None if self._start is None else {kind: self._changed(kind, facts) for kind, facts in self._start.items()}})  # fmt: skip
        self._forget()
        self._state.updated()
        # A function that trained and returned has let go of all by the time its process ends: until the next update it is kept.
        self._alive = [*names.roots, *self.seen.optimizers, *self.seen.schedules, *self.seen.scalers]

    def end(self) -> None:
        if not self._counts:
            self.write({"t": "end", "start": None})
            return
        state = self._state.take(self._optimizers(), self.names())
        self.write({"t": "end", "start": {kind: self._changed(kind, facts) for kind, facts in state.items()}})

    def _changed(self, kind: str, facts: Any) -> Any:
        """The facts, or "same" where they are what was written last."""
        if self._written.get(kind) == facts:
            return "same"
        self._written[kind] = facts
        return facts

    def _place(self) -> tuple[int, int]:
        """This rank, and how many there are."""
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        distributed = getattr(self._torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            rank, size = distributed.get_rank(), distributed.get_world_size()
        return rank, size


def file_id(path: str) -> str:
    """What a file is known by when it is moved or copied: its length and its ends. An archive of torch's has the checksums of all that is in it at
    its end. "" where there is no such file (any more); a folder is known by its name."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(1 << 20)
            file.seek(max(0, size - (1 << 20)))
            return digests.text((size, head, file.read()))
    except OSError:
        return ""
