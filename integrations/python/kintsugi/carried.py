"""What a script carries from one step to the next in variables that are neither registered nor kept: told where a fault makes that wrong.

A step that is made again adds to a counter twice, and a process that takes a lost one's place begins with its first value. Nothing is looked at before a
fault. Then the source of the step is read: what it adds to (`seen += len(x)`), makes of itself (`mean = 0.9 * mean + ...`), reads before it sets it
(`batch = next_one`), or changes in place (`losses.append`), and does not begin anew within the step; also in functions and methods of the script's own that
it calls, and in a data set's `__getitem__`. What only seems so is left out rather than told: other kinds than numbers, texts, lists, dicts, sets, tensors
and arrays; times; what had not come yet where the step ended; lists and dicts of a data set (caches); what lies in something registered.

Threads: the trainer's. Errors: none; what cannot be read is not told of.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import inspect
import linecache
import numbers
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

_CHANGE = frozenset("append appendleft extend add update insert pop popleft popitem remove discard setdefault sort reverse rotate".split())
_BEGIN_ANEW = frozenset("clear zero_ copy_ fill_ normal_ uniform_ random_ requires_grad_ detach_".split())
_OF_TIME = frozenset("time perf_counter monotonic process_time perf_counter_ns time_ns now Event".split())
_VIEWS = frozenset(("data", "T"))
_DEPTH = 4  # of calls
_MOST = 5  # that are told of
_PLAIN = (numbers.Number, str, bytes, tuple, list, dict, set, collections.deque)
_LIBRARIES = tuple(os.path.realpath(sysconfig.get_paths()[key]) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

_HOLDERS = (list, dict, set, collections.deque)

Path = tuple[str, ...]
Calls = tuple[tuple[str, int], ...]  # function and line of each, the outermost first


class Home(NamedTuple):
    """Of a variable: what has it."""

    owner: Any  # the object, or None
    held: Any  # its variables, by name


class Found(NamedTuple):
    name: str
    file: str
    line: int
    home: Home


def forgotten(code: Any, arrives: bool, error: BaseException | None, is_kept: Callable[[Home, str, Any], bool]) -> str:
    """`code`: the frame that has the `with` of the step, or the function of the step. `arrives`: steps were left out here; else one is made again,
    which `error` ended."""
    try:
        found = list(_forgotten(code, arrives, error, is_kept))
    except Exception:  # the source is not there, or another by now
        return ""
    if not found:
        return ""
    told = ", ".join(f"'{one.name}' ({os.path.basename(one.file)}:{one.line})" for one in found[:_MOST])
    return f"{told}{', ...' if len(found) > _MOST else ''}"


def _forgotten(code: Any, arrives: bool, error: BaseException | None, is_kept: Callable[[Home, str, Any], bool]) -> Iterator[Found]:
    reader = _Reader(None if arrives else _where(error, code))
    if isinstance(code, types.FrameType):
        loop, block = _step_in(code.f_code.co_filename, code.f_lineno)
        if loop is None or block is None:
            return
        body = loop.body if arrives or block not in loop.body else loop.body[: loop.body.index(block) + 1]
        reader.read([ast.Assign([loop.target], ast.Constant(None)), *body], _Scope(code.f_code.co_filename, "", code.f_locals, code.f_globals))
    else:
        reader.is_sample = isinstance(code, types.MethodType) and code.__name__ == "__getitem__"
        _follow(reader, code, (), ())
    known: set[tuple[int, str]] = set()
    for one in reader.found:
        name = one.name.rpartition(".")[2]
        if (id(one.home.held), name) not in known and not is_kept(one.home, name, one.home.held[name]):
            known.add((id(one.home.held), name))
            yield one


class _Scope:
    """Names of a function, or of the script's own code."""

    def __init__(self, file: str, function: str, names: Mapping[str, Any], outer: dict[str, Any], own: Iterable[str] = (),
                 arguments: Mapping[str, tuple[str, Any]] | None = None) -> None:  # fmt: skip
        self.file, self.function = file, function
        self._locals, self._globals = names, outer
        self.own = frozenset(own)  # that begin with each call
        self.arguments = arguments or {}  # what the caller has given, and how that is called there

    def home(self, path: Path) -> Home | None:
        """None: it is no variable that outlives the step."""
        first, *rest = path
        if not rest:
            if first in self.own or first in self.arguments:
                return None
            return Home(None, self._locals) if first in self._locals else Home(None, self._globals)
        owner = self.value(path[:-1])
        held = getattr(owner, "__dict__", None)
        return Home(owner, held) if isinstance(held, dict) and not isinstance(owner, (type, types.ModuleType)) else None

    def value(self, path: Path) -> Any:
        first, *rest = path
        if first in self.arguments:
            thing = self.arguments[first][1]
        elif first in self.own:
            raise LookupError
        else:
            thing = self._locals[first] if first in self._locals else self._globals[first]
        for name in rest:
            held = getattr(thing, "__dict__", {})
            thing = held[name] if name in held else inspect.getattr_static(thing, name)
        return thing

    def described(self, path: Path) -> str:
        first = self.arguments[path[0]][0] if path[0] in self.arguments else path[0]
        return ".".join((first, *path[1:]))


class _Reader(ast.NodeVisitor):
    """Goes through statements as they are done."""

    def __init__(self, ended: Calls | None) -> None:
        self._ended = ended  # where the step did; None: it counts as a whole
        self.found: list[Found] = []
        self.depth = 0
        self.is_sample = False  # of a data set, whose lists may be caches
        self.calls: Calls = ()
        self._loaded: set[Path] = set()
        self._begun: set[Path] = set()
        self._begun_places: set[tuple[int, str]] = set()  # by functions that were called, too
        self._times: set[Path] = set()
        self._scope: _Scope

    def read(self, statements: Iterable[ast.stmt], scope: _Scope) -> None:
        before = self._loaded, self._begun, getattr(self, "_scope", scope)
        self._loaded, self._begun, self._scope = set(), set(), scope
        for statement in statements:
            self.visit(statement)
        self._loaded, self._begun, self._scope = before

    # ---- statements -----------------------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._set(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._set(node.target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._set(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if path := _path(_root(node.target)):
            self._tell(path, node, _PLAIN)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._set(node.target, node.iter)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._set(item.optional_vars, item.context_expr)
        for statement in node.body:
            self.visit(statement)

    def _begins(self, node: Any) -> None:
        self._begun.add((node.name,))

    visit_FunctionDef = visit_ClassDef = visit_AsyncFunctionDef = _begins

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Not called here."""

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        self._set(node.target, node.iter)

    def _comprehended(self, node: Any) -> None:
        for one in node.generators:
            self.visit(one)
        self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehended

    # ---- expressions ----------------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        self._loaded.add((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if path := _path(node):
            self._loaded.add(path)
        else:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.visit(argument)
        function = node.func
        if not isinstance(function, ast.Attribute):
            self.visit(function)
        elif (path := _path(_root(function.value))) is None:
            self.visit(function.value)
        elif function.attr in _BEGIN_ANEW:
            self._begin(path)
        elif function.attr in _CHANGE and self.is_sample:
            self.visit(function.value)
        elif function.attr in _CHANGE:
            self._tell(path, node, _HOLDERS, exactly=True, parts=_path(function.value) is None)
        elif function.attr.endswith("_") and not function.attr.endswith("__"):
            self._tell(path, node, (list, dict))
        else:
            self._loaded.add(path)
        if (called := _path(function)) is not None and not self._is_begun(called):
            self._call(called, node)

    def _call(self, called: Path, node: ast.Call) -> None:
        with contextlib.suppress(LookupError, AttributeError):
            thing = self._scope.value(called)
            arguments: list[tuple[str, Any]] = []
            if len(called) > 1 and isinstance(thing, types.FunctionType):
                arguments.append((self._scope.described(called[:-1]), self._scope.value(called[:-1])))
            for argument in node.args:
                path = _path(argument)
                known = path is not None and not self._is_begun(path)
                try:
                    arguments.append((self._scope.described(path), self._scope.value(path)) if path and known else ("", None))
                except (LookupError, AttributeError):
                    arguments.append(("", None))
            _follow(self, thing, (*self.calls, (self._scope.function, node.lineno)), arguments, self._scope.described(called))

    # ---- what is carried ------------------------------------------------------------------------------------------------

    def _set(self, target: ast.expr, value: ast.AST) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._set(one, value)
        elif isinstance(target, ast.Starred):
            self._set(target.value, value)
        elif (path := _path(target)) is not None:
            if _is_time(value) or _path(value) in self._times:
                self._times.add(path)
            elif path in self._loaded:
                self._tell(path, target, _PLAIN, is_set=True)
            self._begin(path)

    def _begin(self, path: Path) -> None:
        self._begun.add(path)
        if (place := self._place(path)) is not None:
            self._begun_places.add(place)

    def _is_begun(self, path: Path) -> bool:
        parts = [path[:length] for length in range(1, len(path) + 1)]
        return any(part in self._begun or self._place(part) in self._begun_places for part in parts)

    def _place(self, path: Path) -> tuple[int, str] | None:
        """The same from wherever it is called."""
        with contextlib.suppress(LookupError, AttributeError):
            home = self._scope.home(path)
            return None if home is None else (id(home.held), path[-1])
        return None

    def _tell(self, path: Path, node: Any, kinds: tuple[type, ...], exactly: bool = False, is_set: bool = False, parts: bool = False) -> None:
        """`exactly`: no tensors. `parts`: what is changed is a part of it."""
        if self._is_begun(path):
            return
        with contextlib.suppress(LookupError, AttributeError):
            home, value = self._scope.home(path), self._scope.value(path)
            if parts and not (isinstance(value, (list, dict)) and value and all(isinstance(one, _HOLDERS) for one in held_in(value))):
                return
            if home is None or isinstance(value, types.ModuleType) or not (isinstance(value, kinds) or (not exactly and _is_numbers(value, is_set))):
                return
            if self._ended is None or _came_before((*self.calls, (self._scope.function, node.lineno)), self._ended):
                self.found.append(Found(self._scope.described(path), self._scope.file, node.lineno, home))


def _follow(reader: _Reader, thing: Any, calls: Calls, arguments: Iterable[tuple[str, Any]], name: str = "") -> None:
    """Into a function of the script's own, or a thing that can be called as one: `name`."""
    arguments = list(arguments)
    if isinstance(thing, types.MethodType):
        arguments.insert(0, (type(thing.__self__).__name__, thing.__self__))
        thing = thing.__func__
    elif not isinstance(thing, (types.FunctionType, type)) and isinstance(call := inspect.getattr_static(type(thing), "__call__", None), types.FunctionType):
        arguments.insert(0, (name, thing))
        thing = call
    thing = inspect.unwrap(thing) if callable(thing) else thing
    if not isinstance(thing, types.FunctionType) or reader.depth >= _DEPTH or not _is_the_scripts(thing.__code__.co_filename):
        return
    code = thing.__code__
    node = _function_at(code.co_filename, code.co_firstlineno, code.co_name)
    if node is None:
        return
    closure = {name: cell.cell_contents for name, cell in zip(code.co_freevars, thing.__closure__ or ()) if _is_full(cell)}
    given = {name: one for name, one in zip(code.co_varnames[: code.co_argcount], arguments) if one[0]}
    own = {*code.co_varnames, *code.co_cellvars} - {*given}
    before, reader.calls = reader.calls, calls
    reader.depth += 1
    reader.read(node.body, _Scope(code.co_filename, code.co_name, closure, thing.__globals__, own, given))
    reader.depth -= 1
    reader.calls = before


def _where(error: BaseException | None, code: Any) -> Calls | None:
    """Where the step ended: its own lines, the outermost first."""
    if error is None:
        return None
    trace, lines = error.__traceback__, []
    first = code.f_code if isinstance(code, types.FrameType) else inspect.unwrap(getattr(code, "__func__", code)).__code__
    while trace is not None and trace.tb_frame.f_code is not first:
        trace = trace.tb_next
    while trace is not None:
        lines.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    return tuple(lines)


def _came_before(place: Calls, ended: Calls) -> bool:
    for (_, line), (_, last) in zip(place, ended):
        if line != last:
            return line < last
    return False


def _root(node: ast.expr) -> ast.expr:
    """Of what is looked up in it, and of views, the thing itself."""
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in _VIEWS):
        node = node.value
    return node


def held_in(thing: Any) -> Iterable[Any]:
    return thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (list, tuple)) else ()


def _path(node: ast.AST) -> Path | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


def _is_time(value: ast.AST) -> bool:
    called = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    return any((one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "")) in _OF_TIME for one in called)


def _is_numbers(value: Any, is_set: bool) -> bool:
    """A tensor or an array. One that is set with a graph is a loss."""
    if type(value).__module__.split(".", 1)[0] not in ("torch", "numpy") or not hasattr(value, "shape"):
        return False
    return not (getattr(value, "requires_grad", False) and (is_set or getattr(value, "grad_fn", None) is None))


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def _is_the_scripts(file: str) -> bool:
    real = os.path.realpath(file)
    return os.path.isfile(real) and not real.startswith((*_LIBRARIES, _HERE)) and not os.path.abspath(file).startswith(_HERE)


def _tree(file: str) -> ast.Module:
    return ast.parse("".join(linecache.getlines(file)))


def _step_in(file: str, line: int) -> tuple[ast.For | None, ast.stmt | None]:
    """The innermost `with` of a step around this line, and its loop."""
    found: tuple[ast.For | None, ast.stmt | None] = None, None

    def look(node: ast.AST, loop: ast.For | None) -> None:
        nonlocal found
        loop = node if isinstance(node, ast.For) else loop
        if isinstance(node, ast.With) and node.lineno <= line <= (node.end_lineno or 0) and any(_is_step(item.context_expr) for item in node.items):
            found = loop, node
        for child in ast.iter_child_nodes(node):
            look(child, loop)

    look(_tree(file), None)
    return found


def _is_step(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"


def _function_at(file: str, line: int, name: str) -> ast.FunctionDef | None:
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.FunctionDef) and node.name == name and line in (node.lineno, *(one.lineno for one in node.decorator_list)):
            return node
    return None


def script_frame() -> types.FrameType | None:
    """The script's own, nearest to this call."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not _is_the_scripts(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
