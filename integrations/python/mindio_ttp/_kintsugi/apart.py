"""A handler of the client's on a thread of its own, which can be left behind.

A saver that waits for another one's part is not freed by the client's stop handler where it waits in torch's store, or over Gloo: it would be given up,
and with it a part of the state that nobody else has. So where another attempt has begun, and the handler neither computes nor writes any more,
the guard goes on without it. Only a dump's is run so: its process leaves soon, and no training goes on beside what is left.

Threads: the guard's, and one for each call.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .callbacks import CallbackFailed
from .log import LOGGER

_LOOK_AGAIN = 0.02
_IDLE = 1.0  # a thread that does nothing for so long, and was told to stop, waits for somebody
_IDLE_CPU = 0.05  # what looking again and again may take of that
_TICKS = os.sysconf("SC_CLK_TCK")


class LeftBehind(BaseException):
    """Raised in a handler that is left behind, wherever it wakes up: what it would have done is done by another."""


class Apart:
    """One call."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self._is_left = False
        self._thread = threading.Thread(target=self._run, name="mindio-apart", daemon=True)

    def result(self, is_stopped: Callable[[], bool]) -> Any:
        """What the handler returns or raises; raises CallbackFailed where it is left behind, once `is_stopped`."""
        self._thread.start()
        idle_since, before = time.monotonic(), self._effort()
        while self._thread.is_alive():
            self._thread.join(_LOOK_AGAIN)
            now = self._effort()
            if not is_stopped() or now[0] != before[0] or now[1] - before[1] > _IDLE_CPU:
                idle_since, before = time.monotonic(), now
            elif time.monotonic() - idle_since > _IDLE:
                self._leave()
                raise CallbackFailed("the running handler waits for a rank that is gone, and is left behind")
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._work()
        except LeftBehind:
            pass
        except BaseException as error:
            if self._is_left:
                LOGGER.info("the handler that was left behind has ended: %s", error)
            self._error = error

    def _leave(self) -> None:
        self._is_left = True
        LOGGER.warning("the running handler waits for a rank that is gone: it is left behind")
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(LeftBehind))
        renew_store()

    def _effort(self) -> tuple[int, float]:
        """Bytes that its thread has written, seconds that it has computed. Where the system does not tell, it is never idle."""
        task = Path(f"/proc/self/task/{self._thread.native_id}")
        try:
            written = int(dict(line.split(": ") for line in (task / "io").read_text().splitlines())["wchar"])
            user, system = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
        except (OSError, ValueError, KeyError):
            return time.monotonic_ns(), 0.0
        return written, (int(user) + int(system)) / _TICKS


def renew_store() -> None:
    """torch's groups that are made from here on meet over another connection to its store: a thread that waits there keeps the other one."""
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not module.is_initialized():
        return
    group = module._get_default_group()
    backend, store = module._world.pg_map[group]
    if hasattr(store, "clone"):  # torch 2.9
        module._world.pg_map[group] = (backend, store.clone())
