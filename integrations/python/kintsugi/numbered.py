"""Numbers of ranks that a script has put into variables of its own, and goes on to compute with where other ranks take part.

`world = dist.get_world_size()` before the loop is a number of before once a rank has left, or come: who stays divides by it, and a process that comes has
another. So where the ranks change, the source is read: names and attributes that were set outside of the step to a rank, to how many there are, or to what
was computed of them, and that the step, its sections, a schedule's function or a forward pass computes with. A comparison (`if rank == 0`) and what
is only said (an f-string) does not count.

Threads: the trainer's. Errors: none; what cannot be read is not told of.
"""

from __future__ import annotations

import ast
import contextlib
import numbers
import os
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .source import Path, function_at, is_the_scripts, loops_in, path_of, tree_of

_ASKED = frozenset(("get_rank", "get_world_size"))
_OF_RUN = frozenset(("rank", "world_size"))
_ENVIRONMENT = frozenset(("RANK", "WORLD_SIZE"))
_DEPTH = 4  # of calls


class _Set(NamedTuple):
    file: str
    line: int


def stale(frames: Iterable[types.FrameType], functions: Iterable[Any]) -> list[str]:
    """`frames`: of the script, the innermost first; `functions`: that a step calls beside what stands in its loop."""
    told: dict[str, None] = {}
    with contextlib.suppress(Exception):  # the source is not there, or another by now
        for frame in frames:
            names = {**frame.f_globals, **frame.f_locals}
            for loop in loops_in(frame.f_code.co_filename):
                if loop.lineno <= frame.f_lineno <= (loop.end_lineno or 0):
                    _Reader(frame.f_code.co_filename, names, told).read(loop)
        for function in functions:
            _follow(function, told, 0)
    return [*told]


class _Reader(ast.NodeVisitor):
    """Goes through a loop's body, or a function's."""

    def __init__(self, file: str, names: dict[str, Any], told: dict[str, None], depth: int = 0) -> None:
        self._file, self._names, self._told, self._depth = file, names, told, depth
        self._set = _numbers_in(file)
        self._own: set[Path] = set()  # set anew here

    def read(self, node: ast.For | ast.FunctionDef) -> None:
        self._own = {path for part in ast.walk(node) for path in _targets(part)}
        if isinstance(node, ast.For):
            for statement in (*node.body, *node.orelse):
                self.visit(statement)
            return
        self._own |= {(one.arg,) for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if one.arg != "self"}
        for statement in node.body:
            self.visit(statement)

    def visit_Compare(self, node: ast.Compare) -> None:
        if not all(isinstance(one, ast.Constant) for one in node.comparators):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Only said."""

    def visit_Name(self, node: ast.Name) -> None:
        self._look((node.id,), node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = path_of(node)
        if path is None or not self._look(path, node.lineno):
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        for one in (node.func, *node.args):  # run.do(evaluate)
            if path := path_of(one):
                _follow(self._value(path), self._told, self._depth + 1)

    def _look(self, path: Path, line: int) -> bool:
        if path not in self._set or path in self._own:
            return False
        if isinstance(self._value(path), numbers.Number) or (len(path) > 1 and path[0] not in self._names):
            name, place = ".".join(path), self._set[path]
            self._told[f"'{name}' ({os.path.basename(place.file)}:{place.line}; {os.path.basename(self._file)}:{line} computes with it)"] = None
        return True

    def _value(self, path: Path) -> Any:
        thing = self._names.get(path[0])
        for name in path[1:]:
            thing = getattr(thing, "__dict__", {}).get(name, getattr(type(thing), name, None))
        return thing


def _follow(thing: Any, told: dict[str, None], depth: int) -> None:
    function = getattr(thing, "__func__", thing)
    if not isinstance(function, types.FunctionType) or depth > _DEPTH or not is_the_scripts(function.__code__.co_filename):
        return
    code = function.__code__
    if (node := function_at(code.co_filename, code.co_firstlineno, code.co_name)) is not None:
        held = dict(zip(code.co_freevars, (_content(cell) for cell in function.__closure__ or ())))
        own = {"self": thing.__self__} if isinstance(thing, types.MethodType) else {}
        _Reader(code.co_filename, {**function.__globals__, **held, **own}, told, depth).read(node)


def _content(cell: Any) -> Any:
    with contextlib.suppress(ValueError):
        return cell.cell_contents
    return None


def _numbers_in(file: str) -> dict[Path, _Set]:
    """Names that the source sets to a rank, to how many there are, or to what is computed of these."""
    found: dict[Path, _Set] = {}
    statements = [node for node in ast.walk(tree_of(file)) if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None]
    for node in sorted(statements, key=lambda one: one.lineno):
        value = node.value
        assert value is not None
        values = [*value.elts] if isinstance(value, ast.Tuple) else [value]
        targets = [one for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                   for one in (target.elts if isinstance(target, ast.Tuple) else [target])]  # fmt: skip
        for i, target in enumerate(targets):
            path = path_of(target)
            if path and _is_number(values[i if len(values) == len(targets) else 0], found):
                found.setdefault(path, _Set(file, node.lineno))
    return found


def _is_number(value: ast.expr, known: dict[Path, _Set]) -> bool:
    """Computed, by operators and int(), max(), min(), round(), of a rank or how many there are."""
    if isinstance(value, ast.BinOp):
        return _is_number(value.left, known) or _is_number(value.right, known)
    if isinstance(value, (ast.UnaryOp,)):
        return _is_number(value.operand, known)
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        if name in ("int", "float", "max", "min", "round", "abs"):
            return any(_is_number(one, known) for one in value.args)
        return name in _ASKED or (name in ("get", "getenv") and _is_of_environment(value.args[:1]))
    if isinstance(value, ast.Subscript):
        return _is_of_environment([value.slice])
    path = path_of(value)
    return path is not None and (path in known or (len(path) > 1 and path[-1] in _OF_RUN and path[-2].endswith("run")))


def _is_of_environment(key: list[ast.expr]) -> bool:
    return bool(key) and isinstance(key[0], ast.Constant) and key[0].value in _ENVIRONMENT


def _targets(node: ast.AST) -> Iterator[Path]:
    """What it sets."""
    if isinstance(node, ast.Assign):
        targets = [*node.targets]
    else:
        targets = [node.target] if isinstance(node, (ast.AnnAssign, ast.For, ast.NamedExpr)) else []
    while targets:
        target = targets.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            targets += target.elts
        elif path := path_of(target):
            yield path
