"""What a buffer of Python's says of itself: its elements, and an array of its kind over other memory."""

from __future__ import annotations

from typing import Any

from ._errors import Error
from .abi import Code

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1, "uint16": 2, "uint32": 4,
    "uint64": 8, "complex32": 4, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
_FORMATS = {
    "d": "float64", "f": "float32", "e": "float16", "q": "int64", "l": "int64", "i": "int32", "h": "int16", "b": "int8",
    "Q": "uint64", "L": "uint64", "I": "uint32", "H": "uint16", "B": "uint8", "?": "bool", "Zf": "complex64",
    "Zd": "complex128",
}  # fmt: skip


def dtype_name(array: Any, view: memoryview) -> str:
    name = str(getattr(array, "dtype", _FORMATS.get(view.format, view.format)))
    if name not in DTYPE_BYTES:
        raise Error(f"elements of type {name} cannot be protected", Code.INVALID_ARGUMENT)
    return name


def like(array: Any, memory: memoryview, source: memoryview) -> Any:
    used = memory[: source.nbytes]
    if hasattr(array, "dtype") and hasattr(array, "reshape"):
        import numpy

        return numpy.frombuffer(used, dtype=array.dtype).reshape(array.shape)
    return used if source.format == "B" else used.cast("B").cast(source.format, list(source.shape or ()))  # type: ignore[call-overload]
