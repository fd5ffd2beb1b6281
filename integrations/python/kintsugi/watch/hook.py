"""Waits until the program imports torch.distributed, and begins once it makes its first process group. A look that fails is told once and ends
the looking, never the program."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import functools
import hashlib
import importlib.abc
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable

from .calls import Calls
from .groups import Groups
from .marks import Marks
from .works import Works

_SIGNAL = signal.SIGURG  # ignored where nobody listens


def install() -> None:
    sys.meta_path.insert(0, _Finder({"torch.distributed": _distributed, "torch.distributed._functional_collectives": _functional}))


class _Finder(importlib.abc.MetaPathFinder):
    """Imports what everybody else would, and calls a function when it is there."""

    def __init__(self, wanted: dict[str, Callable[[Any], None]]) -> None:
        self._wanted = wanted

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._wanted:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
                ready, execute = self._wanted.pop(name), spec.loader.exec_module

                def then(module: Any) -> None:
                    execute(module)
                    _guarded(ready, module)

                spec.loader.exec_module = then  # type: ignore[method-assign]
                return spec
        return None


def _guarded(look: Callable[..., None], *arguments: Any) -> None:
    try:
        look(*arguments)
    except Exception:
        _say("this process is not watched, which is a fault of kintsugi watch:\n" + traceback.format_exc())


def _say(text: str) -> None:
    print(f"kintsugi watch: {text}", file=sys.stderr, flush=True)


class _Process:
    """What this process has once it is watched."""

    calls: Calls | None = None
    pid = 0


def _distributed(dist: Any) -> None:
    if not hasattr(dist, "init_process_group"):
        return  # a build of torch without it
    init = dist.init_process_group

    @functools.wraps(init)
    def init_process_group(*arguments: Any, **named: Any) -> Any:
        made = init(*arguments, **named)
        _guarded(_begin, dist)
        return made

    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group


def _functional(functional: Any) -> None:
    if _Process.calls is not None:
        _Process.calls.look_at_functional(functional)


def _begin(dist: Any) -> None:
    """A process group is there. Once in a process; of later ones only the marks begin anew."""
    if _Process.calls is not None:
        return _Process.calls.open(dist.group.WORLD)
    folder = Path(os.environ["KINTSUGI_WATCH_MARKS"])
    rank, size = dist.get_rank(), dist.get_world_size()
    marks = Marks(Path(__file__).resolve().parent)
    trouble = marks.begin(folder / f"{_world()}-{rank}-{size}-{os.getpid()}.marks")
    if trouble:
        return _say(f"rank {rank} is not watched: {trouble}")
    works = Works(marks)
    _Process.pid = os.getpid()
    _Process.calls = calls = Calls(dist, marks, Groups(dist, marks), works, folder)
    calls.look()
    if functional := sys.modules.get("torch.distributed._functional_collectives"):
        calls.look_at_functional(functional)
    calls.open(dist.group.WORLD)
    stacks = _show_stacks(marks)
    atexit.register(_end, marks)
    threading.Thread(target=_answer, args=(marks, stacks), name="kintsugi-watch", daemon=True).start()
    threading.Thread(target=works.settle_for_ever, name="kintsugi-watch-ends", daemon=True).start()


def _world() -> str:
    """Equal in all processes that train together, and another after a restart."""
    parts = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _show_stacks(marks: Marks) -> int:
    """As kintsugi.lookout does in a run of its own."""
    descriptor = os.memfd_create("kintsugi-traceback", os.MFD_CLOEXEC)
    # Each write at the end: who empties the file begins it anew.
    appending = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    is_free = signal.getsignal(_SIGNAL) in (signal.SIG_DFL, signal.SIG_IGN)  # the program has no use for it
    if is_free:
        faulthandler.register(_SIGNAL, file=appending, all_threads=True, chain=False)
    marks.stacks(descriptor, int(_SIGNAL) if is_free else 0, threading.main_thread().ident or 0, os.fsencode(Path(__file__).parent))
    return appending


def _answer(marks: Marks, stacks: int) -> None:
    """Whoever asks wakes this thread, and once it has Python's lock it writes where all threads stand, and answers."""
    asked = marks.answer(0)
    while True:
        asked = marks.await_question(ctypes.c_uint32(asked))
        faulthandler.dump_traceback(file=stacks, all_threads=True)
        marks.answer(asked)


def _end(marks: Marks) -> None:
    if os.getpid() == _Process.pid:  # not a child that was forked
        marks.end(time.monotonic_ns())
