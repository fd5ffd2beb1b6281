"""The marks of this process's collectives, as the command reads them: functions of libkintsugi_watch (integrations/python/watched.cc)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

# CollectiveKind's numbers.
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, GATHER, SCATTER, ALL_TO_ALL, BARRIER, SEND, RECEIVE, OTHER = range(1, 13)


class Marks:
    def __init__(self, folder: Path) -> None:
        path = os.environ.get("KINTSUGI_WATCH_LIBRARY") or str(folder / "libkintsugi_watch.so")
        # PyDLL: Python's lock is kept, so that no other thread gets it in the midst of a collective's beginning.
        library = ctypes.PyDLL(path)
        i32, u32, u64, text = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
        self._begin = _function(library, "begin", text, text)
        self._group = _function(library, "group", i32, text, ctypes.POINTER(i32), ctypes.c_size_t, i32)
        self.enter = _function(library, "enter", u64, i32, i32, i32, i32, u64, u32)  # group, kind, type, root, size, parts: a ticket
        self.wait = _function(library, "wait", None, i32, u64)
        self.leave = _function(library, "leave", None, i32, u64, i32)
        self.stacks = _function(library, "stacks", None, i32, i32, u64, text)
        self.answer = _function(library, "answer", u32, u32)
        self.end = _function(library, "end", None, u64)
        self.await_question = _function(ctypes.CDLL(path), "await", u32, u32)  # without Python's lock

    def begin(self, path: Path) -> str:
        """Why there are none; "" where there are."""
        said = self._begin(os.fsencode(path))
        return said.decode(errors="replace") if said else ""

    def group(self, name: str, ranks: list[int], own_rank: int) -> int:
        return int(self._group(name.encode(), (ctypes.c_int32 * len(ranks))(*ranks), len(ranks), own_rank))


def _function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, f"kintsugi_watched_{name}")
    function.restype, function.argtypes = result, list(arguments)
    return function
