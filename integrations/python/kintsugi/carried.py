"""What a script carries from one step to the next in variables that are neither registered nor kept: told where a fault makes that wrong.

A step that is made again adds to a counter twice, and a process that takes a lost one's place begins with its first value. Nothing is looked at before a
fault. Then the source of the step is read: what it adds to (`seen += len(x)`), makes of itself (`mean = 0.9 * mean + ...`), reads before it sets it
(`batch = next_one`), changes in place (`losses.append`), also by an element (`shadow[name] = ...`, `for s in shadow: s.mul_()`), or takes the next of, and
does not begin anew within the step; also in functions and methods of the script's own that it calls, and in a data set's `__getitem__`. Of what libraries
keep it knows metrics (update, compute, reset) and torch's model averagers. What only seems so is left out rather than told: other kinds than numbers, texts,
lists, dicts, sets, tensors, arrays and iterators; times; what had not come yet where the step ended; lists and dicts of a data set, and dicts that are looked
into before they are filled (caches); what lies in something registered.

Threads: the trainer's. Errors: none; what cannot be read is not told of.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import functools
import inspect
import numbers
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .source import FRAMEWORKS, Path, function_at, is_step, is_the_scripts, path_of, script_frame, step_in, tree_of, walks_run

_CHANGE = frozenset("append appendleft extend add update insert pop popleft popitem remove discard setdefault sort reverse rotate".split())
_BEGIN_ANEW = frozenset("clear zero_ copy_ fill_ normal_ uniform_ random_ requires_grad_ detach_".split())
_CHANGE_FIRST = frozenset("heappush heappop heapreplace heappushpop insort insort_left insort_right shuffle at".split())  # what they are given first
_OF_TIME = frozenset("time perf_counter monotonic process_time perf_counter_ns time_ns now Event".split())
_VIEWS = frozenset(("data", "T"))
_COPIES = frozenset(("copy_", "fill_"))  # of those that begin anew: not where they are given what was there
_METRIC = ("update", "compute", "reset")  # has all of these
_COUNTED = {"average_parameters": "step"}  # of torch's model averagers: the attribute that the call counts in
_DEPTH = 4  # of calls
_MOST = 5  # that are told of
_PLAIN = (numbers.Number, str, bytes, tuple, list, dict, set, collections.deque)

_HOLDERS = (list, dict, set, collections.deque)

_ITERATION: Path = ("",)  # of what is another in each step
Calls = tuple[tuple[str, int], ...]  # function and line of each, the outermost first


class Home(NamedTuple):
    """Of a variable: what has it."""

    owner: Any  # the object, or None
    held: Any  # its variables, by name


class Argument(NamedTuple):
    name: str  # as the caller calls it; "": that is not known
    value: Any
    moves: bool = False  # it is another in each step
    home: Home | None = None  # where the caller has it


class Found(NamedTuple):
    name: str
    file: str
    line: int
    home: Home
    hint: str = ""
    is_set: bool = False  # and does not go on: it matters to who reads it elsewhere


def forgotten(code: Any, arrives: bool, error: BaseException | None, is_kept: Callable[[Home, str, Any], bool], is_section: bool = False) -> str:
    """`code`: the frame that has the `with` of the step, or the function of the step or section. `arrives`: steps were left out here, or it is a section
    and was; else one is made again, which `error` ended."""
    try:
        found = list(_forgotten(code, arrives, error, is_kept, is_section))
    except Exception:  # the source is not there, or another by now
        return ""
    if not found:
        return ""
    told = ", ".join(f"'{one.name}' ({os.path.basename(one.file)}:{one.line}{one.hint})" for one in found[:_MOST])
    return f"{told}{', ...' if len(found) > _MOST else ''}"


def _forgotten(code: Any, arrives: bool, error: BaseException | None, is_kept: Callable[[Home, str, Any], bool], is_section: bool) -> Iterator[Found]:
    reader = _Reader(None if arrives else _where(error, code))
    reader.tells_what_is_set = arrives and is_section
    if isinstance(code, types.FrameType):
        loop, block = step_in(code.f_code.co_filename, code.f_lineno)
        if loop is None or block is None:
            return
        yield from _walked_beside(loop, code)
        body = loop.body if arrives or block not in loop.body else loop.body[: loop.body.index(block) + 1]
        reader.read([ast.Assign([loop.target], ast.Name(_ITERATION[0])), *body], _Scope(code.f_code.co_filename, "", code.f_locals, code.f_globals))
    else:
        reader.is_sample = isinstance(code, types.MethodType) and code.__name__ == "__getitem__"
        _follow(reader, code, (), [Argument("", None, True)], type(code).__name__)
    known: set[tuple[Any, ...]] = set()
    for one in reader.found:
        name = one.name.rpartition(".")[2]
        if one.is_set and not reader.reads_elsewhere(one):
            continue
        is_known = not known.isdisjoint(((_identity(one.home), name), (one.name, one.file, one.line)))
        if not is_known and not is_kept(one.home, name, one.home.held.get(name)):
            known |= {(_identity(one.home), name), (one.name, one.file, one.line)}
            yield one


def _identity(home: Home) -> int:
    return id(home.held if home.owner is None else home.owner)


def _walked_beside(loop: ast.For, frame: types.FrameType) -> Iterator[Found]:
    """What Python's own enumerate and zip give beside the run's loop: they go on where that gives something again, and begin with it where it begins later."""
    walk = next((one for one in (loop.iter.body, loop.iter.orelse) if walks_run(one)), loop.iter) if isinstance(loop.iter, ast.IfExp) else loop.iter
    if not isinstance(walk, ast.Call) or not isinstance(walk.func, ast.Name) or not isinstance(loop.target, ast.Tuple):
        return
    beside: list[ast.expr] = loop.target.elts[:1] if walk.func.id == "enumerate" else []
    if walk.func.id == "zip":
        beside = [target for target, one in zip(loop.target.elts, walk.args) if not walks_run(one)]
    for target in beside:
        name = ".".join(path_of(target) or ("...",))
        hint = ": run.enumerate counts right" if walk.func.id == "enumerate" else ": walk one loader, of torch.utils.data.StackDataset"
        yield Found(name, frame.f_code.co_filename, loop.lineno, Home(None, frame.f_locals), hint)


class _Scope:
    """Names of a function, or of the script's own code."""

    def __init__(self, file: str, function: str, names: Mapping[str, Any], outer: dict[str, Any], own: Iterable[str] = (),
                 arguments: Mapping[str, Argument] | None = None, moving: Iterable[str] = ()) -> None:  # fmt: skip
        self.file, self.function = file, function
        self._locals, self._globals = names, outer
        self.own = frozenset(own)  # that begin with each call
        self.arguments = arguments or {}  # what the caller has given, and how that is called there
        self.moving = moving  # names of arguments that are others in each step

    def home(self, path: Path) -> Home | None:
        """None: it is no variable that outlives the step."""
        first, *rest = path
        if not rest:
            if first in self.arguments:
                return self.arguments[first].home
            if first in self.own:
                return None
            return Home(None, self._locals) if first in self._locals else Home(None, self._globals)
        owner = self.value(path[:-1])
        held = getattr(owner, "__dict__", None)
        if isinstance(owner, types.ModuleType):
            return Home(owner, held) if is_the_scripts(getattr(owner, "__file__", None) or "") else None
        if held is None and path[-1] in getattr(type(owner), "__slots__", ()):
            return Home(owner, {path[-1]: getattr(owner, path[-1])})
        return Home(owner, held) if isinstance(held, dict) or isinstance(owner, type) else None

    def value(self, path: Path) -> Any:
        first, *rest = path
        if first in self.arguments:
            thing = self.arguments[first].value
        elif first in self.own:
            raise LookupError
        else:
            thing = self._locals[first] if first in self._locals else self._globals[first]
        for name in rest:
            held = getattr(thing, "__dict__", {})
            owner, thing = thing, held[name] if name in held else inspect.getattr_static(thing, name)
            if isinstance(thing, types.MemberDescriptorType):  # of __slots__
                thing = getattr(owner, name)
        return thing

    def described(self, path: Path) -> str:
        first = self.arguments[path[0]].name if path[0] in self.arguments else path[0]
        return ".".join((first, *path[1:]))


class _Reader(ast.NodeVisitor):
    """Goes through statements as they are done."""

    def __init__(self, ended: Calls | None) -> None:
        self._ended = ended  # where the step did; None: it counts as a whole
        self.found: list[Found] = []
        self.depth = 0
        self.is_sample = False  # of a data set, whose lists may be caches
        self.tells_what_is_set = False  # also what does not go on
        self._functions: list[tuple[str, ast.FunctionDef]] = []  # that were read
        self._defaulted: set[Path] = set()  # attributes that may not be there yet
        self.calls: Calls = ()
        self._loaded: set[Path] = set()
        self._begun: set[Path] = set()
        self._begun_places: set[tuple[int, str]] = set()  # by functions that were called, too
        self._times: set[Path] = set()
        self._made_of: dict[Path, frozenset[Path]] = {}  # names, and what their values were made of
        self._elements: dict[str, Path] = {}  # names of what lies in something
        self._perhaps = 0  # branches and loops that a statement stands in
        self._called_modules: list[Any] = []  # whose gradients a backward pass makes
        self._scope: _Scope

    def read(self, statements: Iterable[ast.stmt], scope: _Scope) -> None:
        before = self._loaded, self._begun, self._made_of, self._elements, getattr(self, "_scope", scope)
        self._loaded, self._begun, self._elements, self._scope = set(), set(), {}, scope
        self._made_of = {(name,): frozenset((_ITERATION,)) for name in scope.moving}
        for statement in statements:
            self.visit(statement)
        self._loaded, self._begun, self._made_of, self._elements, self._scope = before

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
        if path := path_of(_root(node.target)):
            whole = self._whole(path)
            if not isinstance(node.target, ast.Name) or (whole == path and not self._is_argument(path)) or (whole != path and self._has_tensors(whole)):
                self._tell(whole, node, _PLAIN)
            elif whole == path:
                self._tell(path, node, (list, dict, set))

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript) and (path := path_of(_root(target))):
                self._tell(self._whole(path), node, (list, dict))

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._set(node.target, node.iter)
        self._note_elements(node.target, node.iter)
        self._visit_perhaps(node.body, node.orelse)

    def visit_While(self, node: ast.While | ast.If) -> None:
        self.visit(node.test)
        self._visit_perhaps(node.body, node.orelse)

    visit_If = visit_While

    def _visit_perhaps(self, *bodies: list[ast.stmt]) -> None:
        self._perhaps += 1
        for body in bodies:
            for statement in body:
                self.visit(statement)
        self._perhaps -= 1

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._set(item.optional_vars, item.context_expr)
                if is_step(item.context_expr) and (path := path_of(item.optional_vars)):
                    self._made_of[path] = frozenset((_ITERATION,))
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
        if path := path_of(node):
            self._loaded.add(path)
        else:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        out = next((keyword.value for keyword in node.keywords if keyword.arg == "out"), None)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords if keyword.value is not out)):
            self.visit(argument)
        if out is not None and (path := path_of(_root(out))):
            self._fill(self._whole(path), node)
        function = node.func
        if not isinstance(function, ast.Attribute):
            self.visit(function)
            if path_of(function) == ("next",) and node.args and (path := path_of(node.args[0])):
                self._tell(path, node, (Iterator,), exactly=True)
            elif path_of(function) == ("getattr",) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and (path := path_of(node.args[0])):
                path = (*path, str(node.args[1].value))
                self._loaded.add(path)
                self._defaulted |= {path} if len(node.args) > 2 else set()
        elif function.attr in _CHANGE_FIRST or (function.attr.startswith("_foreach_") and function.attr.endswith("_")):
            if node.args and (path := path_of(_root(node.args[0]))):
                self._tell(self._whole(path), node, (list, dict))
        elif (path := path_of(_root(function.value))) is None:
            self.visit(function.value)
        elif (path := self._whole(path)) and function.attr in _COPIES:
            self._fill(path, node)
        elif function.attr in _BEGIN_ANEW or (function.attr == "reset" and self._is_metric(path)):
            self._begin(path)
        elif function.attr in _COUNTED:
            self._tell((*path, _COUNTED[function.attr]), node, (int,), exactly=True)
        elif function.attr == "update" and self._is_metric(path):
            self._tell(path, node, (object,), exactly=True)
        elif function.attr in _CHANGE and self.is_sample:
            self.visit(function.value)
        elif function.attr in _CHANGE:
            self._tell(path, node, _HOLDERS, exactly=True, parts=path_of(function.value) is None)
        elif function.attr.endswith("_") and not function.attr.endswith("__"):
            self._tell(path, node, (list, dict))
        else:
            self._loaded.add(path)
        called = path_of(function)
        if isinstance(function, ast.Attribute):
            self._call_hooks(function, node)
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Subscript) and (path := path_of(_root(function.value))):
            self._change_element(self._whole(path), function.attr, node)
        if called is not None and called[0] in self._elements:
            self._call_elements(called, node)
        elif called is not None and not self._is_begun(called):
            if self._is_metric(called):
                self._tell(called, node, (object,), exactly=True)
            self._call(called, node)

    def _call(self, called: Path, node: ast.Call) -> None:
        with contextlib.suppress(LookupError, AttributeError):
            thing = self._scope.value(called)
            arguments = [self._given(argument) for argument in node.args]
            if len(called) > 1 and isinstance(thing, types.FunctionType):
                arguments.insert(0, Argument(self._scope.described(called[:-1]), self._scope.value(called[:-1])))
            keywords = {one.arg: self._given(one.value) for one in node.keywords if one.arg is not None}
            _follow(self, thing, (*self.calls, (self._scope.function, node.lineno)), arguments, self._scope.described(called), keywords)

    def _call_hooks(self, function: ast.Attribute, node: ast.Call) -> None:
        """Of gradients where a backward pass makes them, and of an optimizer's step."""
        hooks: list[Any] = []
        if function.attr == "backward":
            hooks = [hook for module in self._called_modules for hook in _of_gradients(module)]
            self._called_modules = []
        elif function.attr == "step" and (path := path_of(function.value)):
            with contextlib.suppress(LookupError, AttributeError):
                hooks = [hook for kind in ("pre", "post") for hook in getattr(self._scope.value(path), f"_optimizer_step_{kind}_hooks", {}).values()]
        for hook in hooks:
            _follow(self, hook, (*self.calls, (self._scope.function, node.lineno)), ())

    def _change_element(self, path: Path, method: str, node: ast.Call) -> None:
        """`meters[name].update(loss)`. Of a defaultdict that has none yet what it makes is known."""
        with contextlib.suppress(LookupError, AttributeError):
            holder, calls = self._scope.value(path), (*self.calls, (self._scope.function, node.lineno))
            for one in [*held_in(holder)][:_MOST]:
                function = inspect.getattr_static(type(one), method, None)
                if isinstance(function, types.FunctionType):
                    _follow(self, function, calls, [Argument(f"{self._scope.described(path)}[...]", one), *map(self._given, node.args)])
            if not held_in(holder) and _changes_itself(getattr(holder, "default_factory", None), method):
                self._tell(path, node, (dict,), exactly=True)

    def _given(self, argument: ast.expr) -> Argument:
        path, moves = path_of(argument), self._moves(argument)
        if path is not None and not self._is_begun(path):
            with contextlib.suppress(LookupError, AttributeError):
                return Argument(self._scope.described(path), self._scope.value(path), moves, self._scope.home(path))
        return Argument("", None, moves)

    def _call_elements(self, called: Path, node: ast.Call) -> None:
        """Of callbacks, each."""
        with contextlib.suppress(LookupError, AttributeError):
            for one in held_in(self._scope.value(self._elements[called[0]])):
                for thing in held_in(one) or (one,):
                    for name in called[1:]:
                        thing = getattr(thing, name)
                    _follow(self, thing, (*self.calls, (self._scope.function, node.lineno)), (), ".".join(called))

    def note_called(self, module: Any) -> None:
        self._called_modules.append(module)

    def note_function(self, file: str, node: ast.FunctionDef) -> None:
        self._functions.append((file, node))

    def reads_elsewhere(self, found: Found) -> bool:
        """Whether the file has a line that reads such a variable, in none of the functions that were read."""
        name = found.name.rpartition(".")[2]
        kind, what = (ast.Name, "id") if found.home.owner is None else (ast.Attribute, "attr")
        own = [range(function.lineno, (function.end_lineno or 0) + 1) for file, function in self._functions if file == found.file]
        return any(isinstance(one, kind) and isinstance(one.ctx, ast.Load) and getattr(one, what) == name and not any(one.lineno in lines for lines in own)
                   for one in ast.walk(tree_of(found.file)))  # fmt: skip

    # ---- what is carried ------------------------------------------------------------------------------------------------

    def _set(self, target: ast.expr, value: ast.AST) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._set(one, value)
        elif isinstance(target, ast.Starred):
            self._set(target.value, value)
        elif (root := _root(target)) is not target:
            if (path := path_of(root)) is not None:
                self._put(self._whole(path), target, value)
        elif (path := path_of(target)) is not None:
            if _is_time(value) or path_of(value) in self._times:
                self._times.add(path)
            elif path in self._loaded and not self._is_argument(path):
                self._tell(path, target, _PLAIN, may_be_a_loss=self._perhaps > 0 or isinstance(value, ast.IfExp))
            elif self.tells_what_is_set and not self._is_argument(path):
                self._tell(path, target, (*_PLAIN, type(None)), may_be_a_loss=True, is_set=True)
            made_of = self._sources(value)
            self._begin(path)
            self._made_of[path] = made_of
            if len(path) == 1:
                self._elements.pop(path[0], None)
                if isinstance(value, ast.Subscript):
                    self._note_elements(target, value)

    def _put(self, path: Path, target: ast.expr, value: ast.AST) -> None:
        """One of its elements is set. A dict may be a cache."""
        with contextlib.suppress(LookupError, AttributeError):
            goes_on = path in self._loaded and not isinstance(self._scope.value(path), dict)
            indices = (one.slice for one in ast.walk(target) if isinstance(one, ast.Subscript))
            is_added = self._ended is None and path not in self._loaded and any(map(self._moves, indices))
            if goes_on or is_added or self._is_made_of(value, path):
                self._tell(path, target, (list, dict))
            elif self.tells_what_is_set:
                self._tell(path, target, (list, dict), is_set=True)

    def _fill(self, path: Path, node: ast.Call) -> None:
        if any(self._is_made_of(one, path) for one in (*node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "out"))):
            self._tell(path, node, (list, dict))
        elif self.tells_what_is_set:
            self._tell(path, node, (list, dict), is_set=True)
        self._begin(path)

    # ---- what values are made of ----------------------------------------------------------------------------------------

    def _sources(self, value: ast.AST) -> frozenset[Path]:
        found = [*_paths_in(value)]
        return frozenset((*found, *(source for path in found for length in range(1, len(path) + 1) for source in self._made_of.get(path[:length], ()))))

    def _is_made_of(self, value: ast.AST, path: Path) -> bool:
        wholes = {self._whole(source) for source in self._sources(value)}
        return any(source[: len(path)] == path for source in wholes)

    def _moves(self, index: ast.AST) -> bool:
        """Whether it is another in each step."""
        for source in self._sources(index):
            if source == _ITERATION:
                return True
            with contextlib.suppress(LookupError, AttributeError):
                if not self._is_begun(source) and not self._is_argument(source) and self._scope.home(source) is not None and isinstance(self._scope.value(source), numbers.Number):
                    return True
        return False

    def _note_elements(self, target: ast.expr, value: ast.expr) -> None:
        """`for target in value`, or `target = value[...]`."""
        if isinstance(value, ast.Call):
            parts = target.elts if isinstance(target, ast.Tuple) else []
            function = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
            if function == "zip":
                for part, one in zip(parts, value.args):
                    self._note_elements(part, one)
            elif function == "enumerate" and len(parts) == 2 and value.args:
                self._note_elements(parts[1], value.args[0])
            elif isinstance(value.func, ast.Attribute) and function in ("items", "values"):
                self._note_elements(parts[-1] if parts else target, value.func.value)
            if function in ("enumerate", "items", "keys"):  # numbers and names, which most often are the same in each step
                self._made_of.pop(path_of(parts[0] if parts else target) or ("",), None)
        elif isinstance(target, ast.Name) and (path := path_of(_root(value))):
            self._elements[target.id] = self._whole(path)

    def _whole(self, path: Path) -> Path:
        """What has it, where it is an element of something."""
        return self._elements.get(path[0], path) if len(path) == 1 else path

    def _is_argument(self, path: Path) -> bool:
        """A name of the function's, which it may give to another thing."""
        return len(path) == 1 and path[0] in self._scope.arguments

    def _has_tensors(self, path: Path) -> bool:
        with contextlib.suppress(LookupError, AttributeError):
            return any(hasattr(one, "shape") for one in held_in(self._scope.value(path)))
        return False

    def _is_metric(self, path: Path) -> bool:
        """Of a library (torchmetrics', wherever that is): one of the script's own is read."""
        with contextlib.suppress(LookupError, AttributeError, TypeError, OSError):
            thing = self._scope.value(path)
            is_one = all(callable(getattr(thing, name, None)) for name in _METRIC) and not isinstance(thing, type)
            return is_one and ("_defaults" in vars(thing) or not is_the_scripts(inspect.getfile(type(thing))))
        return False

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
            return None if home is None else (_identity(home), self._scope.described(path).rpartition(".")[2])
        return None

    def _tell(self, path: Path, node: Any, kinds: tuple[type, ...], exactly: bool = False, may_be_a_loss: bool = False, parts: bool = False, is_set: bool = False) -> None:
        """`exactly`: no tensors. `parts`: what is changed is a part of it."""
        if self._is_begun(path):
            return
        with contextlib.suppress(LookupError, AttributeError):
            home = self._scope.home(path)
            value = 0 if self._ended is None and path in self._defaulted and home is not None and path[-1] not in home.held else self._scope.value(path)
            if parts and not ((inside := _kinds_in(value)) and all(issubclass(kind, _HOLDERS) for kind in inside)):
                return
            is_one = isinstance(value, kinds) or (not exactly and _is_numbers(value, may_be_a_loss))
            if home is None or isinstance(value, types.ModuleType) or not is_one:
                return
            if self._ended is None or _came_before((*self.calls, (self._scope.function, node.lineno)), self._ended):
                self.found.append(Found(self._scope.described(path), self._scope.file, node.lineno, home, is_set=is_set))


def _follow(reader: _Reader, thing: Any, calls: Calls, arguments: Iterable[Argument], name: str = "", keywords: Mapping[str, Argument] | None = None) -> None:
    """Into a function of the script's own, or a thing that can be called as one: `name`."""
    arguments, keywords = list(arguments), keywords or {}
    while isinstance(thing, functools.partial):
        arguments[:0] = [Argument(name, one, home=Home(None, {name: one})) for one in thing.args]
        thing = thing.func
    if isinstance(thing, types.MethodType):
        arguments.insert(0, Argument(type(thing.__self__).__name__, thing.__self__))
        thing = thing.__func__
    elif isinstance(getattr(thing, "_forward_hooks", None), dict):  # a module of torch's
        for part in thing.modules():
            for function in (*part._forward_pre_hooks.values(), part.forward, *part._forward_hooks.values()):
                _follow(reader, function, calls, ())
        for hook in _of_gradients(thing) if not calls else ():  # a framework calls it, and makes the backward pass as well
            _follow(reader, hook, calls, ())
        reader.note_called(thing)
        return
    elif not isinstance(thing, (types.FunctionType, type)) and isinstance(call := inspect.getattr_static(type(thing), "__call__", None), types.FunctionType):
        arguments.insert(0, Argument(name, thing))
        thing = call
    thing = inspect.unwrap(thing) if callable(thing) else thing
    if not isinstance(thing, types.FunctionType) or reader.depth >= _DEPTH or not is_the_scripts(thing.__code__.co_filename):
        return
    if (thing.__module__ or "").partition(".")[0] in FRAMEWORKS:
        return
    code = thing.__code__
    node = function_at(code.co_filename, code.co_firstlineno, code.co_name)
    if node is None:
        return
    closure = {name: cell.cell_contents for name, cell in zip(code.co_freevars, thing.__closure__ or ()) if _is_full(cell)}
    names = code.co_varnames[: code.co_argcount]
    given = {name: one for name, one in zip(names, arguments) if one.name}
    given |= {name: one for name, one in keywords.items() if one.name and name in code.co_varnames}
    for name, default in zip(reversed(names[len(arguments) :]), reversed(thing.__defaults__ or ())):
        if name not in keywords and isinstance(default, _HOLDERS):  # is there but once
            given[name] = Argument(f"{code.co_name}.{name}", default, home=Home(None, {name: default}))
    own = {*code.co_varnames, *code.co_cellvars} - {*given}
    before, reader.calls = reader.calls, calls
    reader.note_function(code.co_filename, node)
    reader.depth += 1
    reader.read(node.body, _Scope(code.co_filename, code.co_name, closure, thing.__globals__, own, given,
                                  [name for name, one in zip(names, arguments) if one.moves]))
    reader.depth -= 1
    reader.calls = before


def _of_gradients(module: Any) -> Iterator[Any]:
    """Hooks of a module of torch's and of its parameters, which a backward pass calls."""
    for thing in (*module.modules(), *module.parameters()):
        for name in ("_backward_pre_hooks", "_backward_hooks", "_post_accumulate_grad_hooks"):
            yield from (getattr(thing, name, None) or {}).values()


def _kinds_in(holder: Any) -> set[type]:
    """Of what lies in it, and of what a defaultdict makes."""
    made = getattr(holder, "default_factory", None)
    return {*map(type, held_in(holder)), *((made,) if isinstance(made, type) else ())}


def _changes_itself(kind: type | None, method: str) -> bool:
    """Whether a method of the script's own changes an attribute of its object, and does not set it anew alone."""
    function = inspect.getattr_static(kind, method, None)
    if not isinstance(function, types.FunctionType) or not is_the_scripts(function.__code__.co_filename):
        return False
    code = function.__code__
    node = function_at(code.co_filename, code.co_firstlineno, code.co_name)
    own = code.co_varnames[0] if code.co_argcount else ""

    def is_own(one: ast.expr) -> bool:
        path = path_of(_root(one))
        return path is not None and len(path) > 1 and path[0] == own

    return node is not None and any(
        (isinstance(one, ast.AugAssign) and is_own(one.target))
        or (isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in _CHANGE and is_own(one.func.value))
        or (isinstance(one, ast.Assign) and any(is_own(target) and path_of(target) in [*_paths_in(one.value)] for target in one.targets))
        for one in ast.walk(node)
    )


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


def _paths_in(node: ast.AST) -> Iterator[Path]:
    """All that it names, each as a whole."""
    if path := path_of(node):
        yield path
        return
    for child in ast.iter_child_nodes(node):
        yield from _paths_in(child)


def held_in(thing: Any) -> Iterable[Any]:
    return thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (list, tuple)) else ()


def _is_time(value: ast.AST) -> bool:
    called = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    return any((one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "")) in _OF_TIME for one in called)


def _is_numbers(value: Any, may_be_a_loss: bool) -> bool:
    """A tensor or an array. A loss has a graph."""
    if type(value).__module__.split(".", 1)[0] not in ("torch", "numpy") or not hasattr(value, "shape"):
        return False
    return not (getattr(value, "requires_grad", False) and (may_be_a_loss or getattr(value, "grad_fn", None) is None))


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def asker(is_kept: Callable[[Home, str, Any], bool]) -> str:
    """For what the script does something now: the variable and its line. Nothing: it is kept."""
    place, frame = "", script_frame()
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if is_the_scripts(file):
            named, are_kept = False, True
            scope = _Scope(file, "", frame.f_locals, frame.f_globals)
            for path in _given_to(file, line):
                home = scope.home(path)
                named = True
                are_kept &= home is not None and is_kept(home, path[-1], home.held.get(path[-1]))
                place = f"'{'.'.join(path)}' ({os.path.basename(file)}:{line})"
            if named and are_kept:
                return ""
            place = place or f"{os.path.basename(file)}:{line}"
        frame = frame.f_back if frame.f_code.co_name != "<module>" else None
    return place


def _given_to(file: str, line: int) -> Iterator[Path]:
    """What the statement there sets or changes."""
    with contextlib.suppress(Exception):  # the source is not there, or another by now
        around = [node for node in ast.walk(tree_of(file)) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)]
        node = min(around, key=lambda one: (one.end_lineno or 0) - one.lineno)
        targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(call := node.value.func, ast.Attribute) and call.attr in _CHANGE:
            targets = [call.value]
        for target in targets:
            for one in target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,):
                if path := path_of(_root(one)):
                    yield path
