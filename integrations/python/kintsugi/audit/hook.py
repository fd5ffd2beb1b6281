"""Waits until the program imports torch, and puts a look beside what trains: the program's own functions are called as they were, with
what they were given, and their results are handed on.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any, Callable

from .recorder import Recorder

Look = Callable[..., None]


def install() -> None:
    recorder = Recorder(Path(os.environ["KINTSUGI_AUDIT_RECORDS"]))
    seed = _seed()
    wanted: dict[str, Callable[[Any, Recorder], None]] = {"torch": _torch, "torch.distributed.checkpoint": _distributed_checkpoint, "safetensors.torch": _safetensors}
    if seed is not None:
        random.seed(seed)
        wanted["numpy.random"] = lambda numpy_random, _: numpy_random.seed(seed % (1 << 32))
    for name in [name for name in wanted if name in sys.modules]:  # a process that was forked from one that has imported them
        recorder.guarded(wanted.pop(name), sys.modules[name], recorder)
    sys.meta_path.insert(0, _Watch(wanted, recorder))


def _seed() -> int | None:
    """What was given to --seed, another for each rank. A program that seeds by itself does so later, and wins."""
    word = os.environ.get("KINTSUGI_AUDIT_SEED")
    return None if word is None else int(word) + 1_000_003 * int(os.environ.get("RANK", 0))


class _Watch(importlib.abc.MetaPathFinder):
    """Imports what everybody else would, and calls a function when it is there."""

    def __init__(self, wanted: dict[str, Callable[[Any, Recorder], None]], recorder: Recorder) -> None:
        self._wanted, self._recorder = wanted, recorder

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._wanted:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
                ready, execute = self._wanted.pop(name), spec.loader.exec_module

                def then(module: Any) -> None:
                    execute(module)
                    self._recorder.guarded(ready, module, self._recorder)

                spec.loader.exec_module = then  # type: ignore[method-assign]
                return spec
        return None


def _after(owner: Any, name: str, look: Look, recorder: Recorder) -> None:
    """`look(result, *arguments)` once the function has returned."""
    function = getattr(owner, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        recorder.guarded(lambda: look(result, *arguments, **named))
        return result

    setattr(owner, name, wrapped)


def _before(owner: Any, name: str, look: Look, recorder: Recorder) -> None:
    function = getattr(owner, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        recorder.guarded(lambda: look(*arguments, **named))
        return function(*arguments, **named)

    setattr(owner, name, wrapped)


def _torch(torch: Any, recorder: Recorder) -> None:
    if not hasattr(torch, "optim") or not hasattr(torch, "nn"):
        return  # a folder of this name, not PyTorch
    recorder.begin(torch)
    if (seed := _seed()) is not None:
        torch.manual_seed(seed)
    seen = recorder.seen
    module, optimizer = torch.nn.Module, torch.optim.Optimizer
    _after(module, "__init__", lambda _, made, *a, **k: seen.modules.add(made), recorder)
    _after(module, "__setstate__", lambda _, made, *a, **k: seen.modules.add(made), recorder)  # a copy, or one that was pickled
    _after(optimizer, "__init__", lambda _, made, *a, **k: seen.optimizers.add(made), recorder)
    for schedule in (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        _after(schedule, "__init__", lambda _, made, *a, **k: seen.schedules.add(made), recorder)
    _after(torch.amp.GradScaler, "__init__", lambda _, made, *a, **k: seen.scalers.add(made), recorder)
    for owner in (module, optimizer):
        _after(owner, "load_state_dict", lambda _, made, *a, **k: recorder.loads(type(made).__name__), recorder)
    _before(torch.Tensor, "backward", lambda loss, *a, **k: recorder.backward(loss), recorder)
    for place in (torch.nn.utils, torch.nn.utils.clip_grad):
        _clips(place, recorder)
    torch.Generator = _generators(torch.Generator, recorder)
    _forwards(torch, recorder)
    _updates(torch, recorder)
    _loaders(torch, recorder)
    _after(torch, "save", lambda _, tree, file, *a, **k: recorder.save(_path(file)), recorder)
    _after(torch, "load", lambda _, file, *a, **k: recorder.load(_path(file)), recorder)
    atexit.register(recorder.guarded, recorder.end)


def _path(file: Any) -> str:
    name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", "")
    return os.path.realpath(os.fspath(name)) if isinstance(name, (str, os.PathLike)) and name else ""


def _clips(place: Any, recorder: Recorder) -> None:
    def norms(norm: Any, parameters: Any, max_norm: Any, *a: Any, **k: Any) -> None:
        recorder.clip("norm", max_norm, norm)

    def values(_: Any, parameters: Any, clip_value: Any, *a: Any, **k: Any) -> None:
        recorder.clip("value", clip_value, None)

    _after(place, "clip_grad_norm_", norms, recorder)
    _after(place, "clip_grad_value_", values, recorder)


def _generators(real: Any, recorder: Recorder) -> Any:
    """torch's class of generators, whose own we are told of. Every generator is an instance of it, as before."""

    class Kind(type(real)):  # type: ignore[misc]
        def __instancecheck__(cls, thing: Any) -> bool:
            return isinstance(thing, real)

    def made(cls: Any, *arguments: Any, **named: Any) -> Any:
        generator = real.__new__(cls, *arguments, **named)
        recorder.guarded(recorder.seen.generators.add, generator)
        return generator

    return Kind("Generator", (real,), {"__new__": made, "__module__": real.__module__})


def _forwards(torch: Any, recorder: Recorder) -> None:
    call = torch.nn.Module.__call__
    depth = threading.local()
    compiling = torch.compiler.is_compiling

    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        if compiling():
            return call(self, *arguments, **named)
        inner = getattr(depth, "inside", False)
        if inner:
            return call(self, *arguments, **named)
        recorder.guarded(recorder.forward, self, (arguments, named))
        depth.inside = True
        try:
            output = call(self, *arguments, **named)
        finally:
            depth.inside = False
        recorder.guarded(recorder.result, self, output)
        return output

    torch.nn.Module.__call__ = wrapped


def _updates(torch: Any, recorder: Recorder) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(lambda optimizer, *_: recorder.guarded(recorder.before_update, optimizer))
    register_optimizer_step_post_hook(lambda optimizer, *_: recorder.guarded(recorder.after_update, optimizer))


def _loaders(torch: Any, recorder: Recorder) -> None:
    from torch.utils.data import dataloader

    def drawn(indices: Any, iterator: Any) -> None:
        iterator.__dict__.setdefault("_kintsugi_audit_indices", []).append(indices)

    def given(batch: Any, iterator: Any) -> None:
        # Workers are told of the batches ahead; they come in the order in which they were drawn.
        waiting = iterator.__dict__.get("_kintsugi_audit_indices", [])
        indices = waiting.pop(0) if waiting else None
        recorder.batch(indices if isinstance(indices, (list, tuple, int)) and indices != [None] * _length(indices) else None, batch)

    _after(dataloader._BaseDataLoaderIter, "_next_index", drawn, recorder)
    _after(dataloader._BaseDataLoaderIter, "__next__", given, recorder)


def _length(indices: Any) -> int:
    return len(indices) if isinstance(indices, (list, tuple)) else 0


def _distributed_checkpoint(module: Any, recorder: Recorder) -> None:
    def path(arguments: Any, named: Any) -> str:
        where = named.get("checkpoint_id") or next((a for a in arguments[1:] if isinstance(a, (str, os.PathLike))), None)
        store = named.get("storage_writer") or named.get("storage_reader") or next((a for a in arguments[1:] if hasattr(a, "path")), None)
        return _path(where or getattr(store, "path", ""))

    for name in ("save", "async_save"):
        _after(module, name, lambda _, *a, **k: recorder.save(path(a, k)), recorder)
    _after(module, "load", lambda _, *a, **k: recorder.load(path(a, k)), recorder)


def _safetensors(module: Any, recorder: Recorder) -> None:
    _after(module, "save_file", lambda _, tensors, file, *a, **k: recorder.save(_path(file)), recorder)
    _after(module, "load_file", lambda _, file, *a, **k: recorder.load(_path(file)), recorder)
