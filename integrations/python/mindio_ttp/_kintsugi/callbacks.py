"""The handlers that a client registers, and how each is called.

Threads: registering on the client's thread before training; calls on the guard's thread, `stop` and `rename` also on others.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from typing import Any

from . import arguments
from .log import LOGGER


class Kind(enum.Enum):
    SAVE_CKPT = "save_ckpt"
    RENAME = "rename"
    EXIT = "exit"
    STOP = "stop"
    CLEAN = "clean"
    REBUILD_GROUP = "rebuild_group"
    REPAIR = "repair"
    ROLLBACK = "rollback"
    STREAM_SYNC = "stream_sync"
    ZIT_DOWNGRADE_REBUILD = "zit_downgrade_rebuild"
    ZIT_UPGRADE_REBUILD = "zit_upgrade_rebuild"
    ZIT_UPGRADE_REPAIR = "zit_upgrade_repair"
    ZIT_UPGRADE_ROLLBACK = "zit_upgrade_rollback"


# Before these the calling thread does not choose the rank's device.
_WITHOUT_DEVICE = {
    Kind.RENAME, Kind.EXIT, Kind.ZIT_DOWNGRADE_REBUILD, Kind.ZIT_UPGRADE_REBUILD, Kind.ZIT_UPGRADE_REPAIR,
    Kind.ZIT_UPGRADE_ROLLBACK,
}  # fmt: skip


_RENAME_TRIES = 3


class CallbackFailed(Exception):
    """A handler raised."""


class SaidFailed(CallbackFailed):
    """A handler returned that it failed."""


def devices() -> Any:
    """torch's module for the devices of this process, where torch is loaded and has some; else None."""
    torch = sys.modules.get("torch")
    for name in ("npu", "cuda"):
        module = getattr(torch, name, None)
        if module is not None and module.is_available():
            return module
    return None


class Callbacks:
    """One process's handlers."""

    def __init__(self) -> None:
        self._handlers: dict[Kind, tuple[Callable[..., Any], Any]] = {}
        self.device: Any = None

    def register(self, kind: Kind, function: Any, ctx: Any) -> None:
        arguments.function(f"tft_register_{kind.value}_handler", function)
        self._handlers[kind] = (function, ctx)

    def has(self, kind: Kind) -> bool:
        return kind in self._handlers

    def remember_device(self) -> None:
        module = devices()
        self.device = module.current_device() if module else None

    def call(self, kind: Kind, *given: Any) -> Any:
        """Calls `kind` with what it is given and its ctx; raises CallbackFailed."""
        function, ctx = self._handlers[kind]
        return self._run(kind, function, (*given, ctx))

    def call_without_ctx(self, kind: Kind, *given: Any) -> Any:
        return self._run(kind, self._handlers[kind][0], given)

    def rename(self, step: int, args: Any, mindspore: bool) -> None:
        """PyTorch's form takes the training's arguments, MindSpore's the ctx, an old one the step alone. Where it says that it failed it is
        called again: what was saved is still there."""
        function, ctx = self._handlers[Kind.RENAME]
        second = ctx if mindspore else args
        given = (step, second) if arguments.takes(function, 2) else (step,)
        for left in reversed(range(_RENAME_TRIES)):
            try:
                self._run(Kind.RENAME, function, given)
                return
            except SaidFailed:
                if not left:
                    raise

    def _run(self, kind: Kind, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        try:
            if self.device is not None and kind not in _WITHOUT_DEVICE:
                devices().set_device(self.device)
            result = function(*given)
        except Exception as error:
            LOGGER.exception("handler %s failed", kind.value)
            raise CallbackFailed(f"handler {kind.value}: {type(error).__name__}: {error}") from error
        if kind is not Kind.CLEAN and (result is False or (type(result) is int and result != 0)):
            LOGGER.error("handler %s returned %r: it counts as failed", kind.value, result)
            raise SaidFailed(f"handler {kind.value} returned {result!r}")
        return result
