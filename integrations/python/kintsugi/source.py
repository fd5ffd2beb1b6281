"""The script's source: which files are its own, which of its frames run, where its loops and steps stand.

Threads: any. Errors: what cannot be read raises as `ast` and the file system do, but where it is said otherwise.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import os
import sys
import sysconfig
import types
from collections.abc import Iterator

_LOOPS = frozenset(("batches", "enumerate", "range", "steps"))  # of a run
_LIBRARIES = tuple(os.path.realpath(sysconfig.get_paths()[key]) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))
FRAMEWORKS = frozenset("accelerate builtins lightning lightning_fabric pytorch_lightning torch torchmetrics torchtitan transformers".split())  # wherever they lie
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

Path = tuple[str, ...]


def is_the_scripts(file: str) -> bool:
    """And no library's, wherever that was installed to."""
    real = os.path.realpath(file)
    if not os.path.isfile(real) or real.startswith((*_LIBRARIES, _HERE)) or os.path.abspath(file).startswith(_HERE):
        return False
    own = os.path.dirname(os.path.realpath(getattr(sys.modules["__main__"], "__file__", None) or "."))
    folders = (os.path.realpath(entry) for entry in sys.path if entry)
    return not any(real.startswith(folder + os.sep) and folder != own and _has_libraries(folder) for folder in folders)


@functools.lru_cache(maxsize=None)
def _has_libraries(folder: str) -> bool:
    """As `pip install --target FOLDER` leaves it."""
    with contextlib.suppress(OSError):
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    return False


def tree_of(file: str) -> ast.Module:
    return ast.parse("".join(linecache.getlines(file)))


def loops_in(file: str) -> Iterator[ast.For]:
    """Of a run."""
    return (node for node in ast.walk(tree_of(file)) if isinstance(node, ast.For) and walks_run(node.iter))


def step_in(file: str, line: int) -> tuple[ast.For | None, ast.stmt | None]:
    """The innermost `with` of a step around this line, and its loop."""
    found: tuple[ast.For | None, ast.stmt | None] = None, None

    def look(node: ast.AST, loop: ast.For | None) -> None:
        nonlocal found
        loop = node if isinstance(node, ast.For) else loop
        if isinstance(node, ast.With) and node.lineno <= line <= (node.end_lineno or 0) and any(is_step(item.context_expr) for item in node.items):
            found = loop, node
        for child in ast.iter_child_nodes(node):
            look(child, loop)

    look(tree_of(file), None)
    return found


def is_step(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):  # `nullcontext() if run is None else run.step()`
        return is_step(node.body) or is_step(node.orelse)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"


def function_at(file: str, line: int, name: str) -> ast.FunctionDef | None:
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.FunctionDef) and node.name == name and line in (node.lineno, *(one.lineno for one in node.decorator_list)):
            return node
    return None


def path_of(node: ast.AST) -> Path | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


def is_sliced(frame: types.FrameType) -> bool:
    """Whether itertools.islice stands around the loop of the step there, as far as the source shows it."""
    with contextlib.suppress(Exception):  # the source is not there, or another by now
        file = frame.f_code.co_filename
        loop, _ = step_in(file, frame.f_lineno)
        assert loop is not None
        named = {part.id for part in ast.walk(loop.iter) if isinstance(part, ast.Name)}
        given = (one.value for one in ast.walk(tree_of(file)) if isinstance(one, ast.Assign) and any(isinstance(target, ast.Name) and target.id in named for target in one.targets))
        return any(_slices_run(part) for value in (loop.iter, *given) for part in ast.walk(value))
    return False


def _slices_run(node: ast.AST) -> bool:
    called = path_of(node.func) if isinstance(node, ast.Call) else None
    return called is not None and called[-1] == "islice" and isinstance(node, ast.Call) and any(map(walks_run, node.args))


def walks_run(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr in _LOOPS for part in ast.walk(node))


def script_frame() -> types.FrameType | None:
    """The script's own, nearest to this call."""
    return next(script_frames(), None)


def script_frames() -> Iterator[types.FrameType]:
    """The nearest first."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_the_scripts(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back
