"""What a client registers before it trains: its handlers, patterns of errors, what decrypts a password.

Threads: the main thread's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import arguments
from .callbacks import Kind
from .session import SESSION


def _registers(kind: Kind) -> Callable[..., None]:
    def register(func: Callable[..., Any], ctx: Any = None) -> None:
        SESSION.callbacks.register(kind, func, ctx)

    register.__name__ = register.__qualname__ = f"tft_register_{kind.value}_handler"
    return register


tft_register_save_ckpt_handler = _registers(Kind.SAVE_CKPT)
tft_register_rename_handler = _registers(Kind.RENAME)
tft_register_exit_handler = _registers(Kind.EXIT)
tft_register_stop_handler = _registers(Kind.STOP)
tft_register_clean_handler = _registers(Kind.CLEAN)
tft_register_rebuild_group_handler = _registers(Kind.REBUILD_GROUP)
tft_register_repair_handler = _registers(Kind.REPAIR)
tft_register_rollback_handler = _registers(Kind.ROLLBACK)
tft_register_stream_sync_handler = _registers(Kind.STREAM_SYNC)
tft_register_zit_downgrade_rebuild_handler = _registers(Kind.ZIT_DOWNGRADE_REBUILD)
tft_register_zit_upgrade_rebuild_handler = _registers(Kind.ZIT_UPGRADE_REBUILD)
tft_register_zit_upgrade_repair_handler = _registers(Kind.ZIT_UPGRADE_REPAIR)
tft_register_zit_upgrade_rollback_handler = _registers(Kind.ZIT_UPGRADE_ROLLBACK)


def tft_register_exception_handler(fault_pattern: str, fault_type: str, fault_handle: Callable[[str], str]) -> None:
    SESSION.faults.register(fault_pattern, fault_type, fault_handle)


def tft_register_decrypt_handler(decryptor: Callable[[str], str] | None) -> None:
    if decryptor is None:
        return
    arguments.function("tft_register_decrypt_handler", decryptor)
    SESSION.decrypt = decryptor
