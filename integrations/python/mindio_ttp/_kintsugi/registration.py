"""What a client registers before it trains: its handlers, patterns of errors, what decrypts a password.

Threads: the main thread's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import arguments
from .callbacks import Kind
from .session import SESSION


def tft_register_save_ckpt_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.SAVE_CKPT, func, ctx)


def tft_register_rename_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.RENAME, func, ctx)


def tft_register_exit_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.EXIT, func, ctx)


def tft_register_stop_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.STOP, func, ctx)


def tft_register_clean_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.CLEAN, func, ctx)


def tft_register_rebuild_group_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.REBUILD_GROUP, func, ctx)


def tft_register_repair_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.REPAIR, func, ctx)


def tft_register_rollback_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ROLLBACK, func, ctx)


def tft_register_stream_sync_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.STREAM_SYNC, func, ctx)


def tft_register_zit_downgrade_rebuild_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ZIT_DOWNGRADE_REBUILD, func, ctx)


def tft_register_zit_upgrade_rebuild_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ZIT_UPGRADE_REBUILD, func, ctx)


def tft_register_zit_upgrade_repair_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ZIT_UPGRADE_REPAIR, func, ctx)


def tft_register_zit_upgrade_rollback_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ZIT_UPGRADE_ROLLBACK, func, ctx)


def tft_register_exception_handler(fault_pattern: str, fault_type: str, fault_handle: Callable[[str], str]) -> None:
    SESSION.faults.register(fault_pattern, fault_type, fault_handle)


def tft_register_decrypt_handler(decryptor: Callable[[str], str] | None) -> None:
    if decryptor is None:
        return
    arguments.function("tft_register_decrypt_handler", decryptor)
    SESSION.decrypt = decryptor
