"""Macros of one's own in AOA programs, and checkpoints under other names by such a program: `kintsugi ckpt convert --aoa` from Python.

    def interleaved(call: MacroCall) -> list[str]:  # W -> A, B, interleaved: every other row each
        rows, columns = call.source_shape(call.left[0])
        ...
        return [f"{call.left[0]} -> {call.left[0]}.t, reshape=[{rows // 2},2,{columns}]", ...]

    convert("saved", "model.safetensors", "safetensors", aoa="rename.aoa", macros={"interleaved": interleaved})

A live run takes them too: `kintsugi.join(macros=...)` for its --save-aoa and --resume-aoa, `run.reshard(..., macros=...)`.

A macro is a word behind the names of a statement, as fused_ffn is. Its function is given the names once ids, arrays and stars have been filled in,
and returns the statements that stand in the statement's place (replica/aoa/docs/language.md).

Threads: what runs a program lets go of Python's lock; macros are called with it, by the thread that runs it: of a conversion, a reshard, or the
run's own loop. They are pure, and the same on all ranks. Errors: Error, with the statement's
place, also where a macro raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from . import _core

Attribute = Union[int, str, "list[int]"]


@dataclass(frozen=True)
class MacroCall:
    left: list[str]
    right: list[str]
    attributes: dict[str, Attribute]
    source_shape: Callable[[str], list[int] | None]  # of a key; None: it is none of that side, or the side is not described
    destination_shape: Callable[[str], list[int] | None]


Macro = Callable[[MacroCall], Sequence[str]]


@dataclass(frozen=True)
class Converted:
    path: str
    step: int
    tensors: int
    objects: int
    notes: list[str]


def convert(source: str | os.PathLike[str], destination: str | os.PathLike[str], to: str, *, aoa: str | Sequence[str] = (),
            macros: Mapping[str, Macro] | None = None, shards: int = 1, overwrite: bool = False) -> Converted:  # fmt: skip
    """Makes a checkpoint of the format `to` of the one at `source`. `aoa`: a program as --aoa names it (a file, or @NAME of one that ships, with its
    values), or its statements."""
    program, statements = (aoa, []) if isinstance(aoa, str) else ("", list(aoa))
    made = _core.convert(os.fspath(source), os.fspath(destination), to, program, statements, called(macros), shards, overwrite)
    return Converted(made.path, made.step, made.tensors, made.objects, made.notes)


def called(macros: Mapping[str, Macro] | None) -> dict[str, Callable[..., list[str]]]:
    """As _core calls them."""
    return {word: _called(macro) for word, macro in (macros or {}).items()}


def _called(macro: Macro) -> Callable[..., list[str]]:
    return lambda *given: list(macro(MacroCall(*given)))


def with_macros(options: dict[str, Any]) -> dict[str, Any]:
    """What `join` is given, as _core.Agent takes it."""
    return {**options, "macros": called(options["macros"])} if "macros" in options else options
