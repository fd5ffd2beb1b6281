"""Bytes of any length under one key of the run's store: in parts that it keeps whole; the first byte of a part tells whether it is the last."""

from __future__ import annotations

import itertools
from collections.abc import Callable

_PART_BYTES = 48 << 10  # the store keeps larger values in pieces, and not many of them


def say(put: Callable[[str, bytes], object], key: str, data: bytes) -> list[str]:
    """The keys of the parts, which are put in their order."""
    parts = range(0, max(len(data), 1), _PART_BYTES)
    keys = [f"{key}/{number}" for number in range(len(parts))]
    for part, at in zip(keys, parts):
        put(part, (b"\1" if at == parts[-1] else b"\0") + data[at : at + _PART_BYTES])
    return keys


def hear(get: Callable[[str], bytes], key: str) -> bytes:
    data = b""
    for number in itertools.count():
        part = get(f"{key}/{number}")
        data += part[1:]
        if part[:1] == b"\1":
            break
    return data
