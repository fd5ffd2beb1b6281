"""A script as its syntax tree tells it: what names mean, which functions there are, what calling one may do."""

from __future__ import annotations

import ast
import bisect
import contextlib
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, NoReturn

Function = ast.FunctionDef
Scope = ast.Module | ast.FunctionDef

COLLECTIVES = frozenset(
    "all_reduce all_gather all_gather_into_tensor all_gather_object all_to_all all_to_all_single barrier broadcast broadcast_object_list gather "
    "gather_object monitored_barrier reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list".split()
)
SAVES = frozenset(("torch.save", "torch.distributed.checkpoint.save", "torch.distributed.checkpoint.async_save", "safetensors.torch.save_file"))
# What a section is for: anything else between steps may as well be done twice.
NEEDS_SECTION = frozenset(("collective", "save", "model", "loader"))


class Reason(NamedTuple):
    line: int
    text: str


class NotUnderstood(Exception):
    """`lines`: what was understood all the same, to be written by hand."""

    def __init__(self, reasons: Iterable[Reason], lines: Iterable[Reason] = ()) -> None:
        self.reasons = sorted(set(reasons))
        self.lines = list(lines)
        super().__init__("; ".join(reason.text for reason in self.reasons))


def refuse(node: ast.AST, text: str) -> NoReturn:
    raise NotUnderstood([Reason(getattr(node, "lineno", 1), text)])


class Script:
    def __init__(self, text: str) -> None:
        self.text = text
        self.reasons: list[Reason] = []
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            raise NotUnderstood([Reason(error.lineno or 1, f"this is no Python of version 3.{_minor()}: {error.msg}")]) from None
        self._bytes = [line.encode() for line in io.StringIO(text)]
        self._starts = [0]
        for line in self._bytes:
            self._starts.append(self._starts[-1] + len(line))
        self._parents = {child: parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)}
        self._imports = dict(_imported(self.tree))
        self.functions: dict[str, Function] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and not isinstance(self._parents[node], ast.ClassDef):
                if node.name in self.functions:
                    self.say(node, f"there are two functions '{node.name}'")
                self.functions[node.name] = node
        self.classes = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)}
        self.methods: dict[str, list[Function]] = {}
        for definition in self.classes.values():
            for node in definition.body:
                if isinstance(node, ast.FunctionDef):
                    self.methods.setdefault(node.name, []).append(node)

    # ---- what is not understood ---------------------------------------------------------------------------------------

    def say(self, node: ast.AST, text: str) -> None:
        self.reasons.append(Reason(getattr(node, "lineno", 1), text))

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """What is refused within ends it, and is told with the rest."""
        try:
            yield
        except NotUnderstood as found:
            self.reasons += found.reasons

    # ---- places -------------------------------------------------------------------------------------------------------

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Of bytes in the text."""
        at = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        return self._starts[at[0] - 1] + at[1], self._starts[at[2] - 1] + at[3]

    def line_start(self, number: int) -> int:
        return self._starts[number - 1]

    def line_number(self, at: int) -> int:
        return bisect.bisect(self._starts, at)

    def line(self, number: int) -> str:
        return self._bytes[number - 1].decode()

    def source(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text.encode()[start:end].decode()

    def lines_within_texts(self) -> set[int]:
        """Those that begin within a text: indenting them would change it."""
        middles = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}  # a string with {} is several tokens from 3.12 on
        return {line for token in tokenize.generate_tokens(io.StringIO(self.text).readline) if token.type in middles
                for line in range(token.start[0] + 1, token.end[0] + 1)}  # fmt: skip

    def parent(self, node: ast.AST) -> ast.AST:
        return self._parents[node]

    def statement_of(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self._parents[node]
        return node

    def scope_of(self, node: ast.AST) -> ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda:
        while True:
            node = self._parents[node]
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                return node

    def within(self, node: ast.AST, outer: ast.AST) -> bool:
        while node is not outer:
            if node not in self._parents:
                return False
            node = self._parents[node]
        return True

    # ---- names --------------------------------------------------------------------------------------------------------

    def uses(self, name: str) -> bool:
        return any(isinstance(node, ast.Name) and node.id == name or isinstance(node, ast.arg) and node.arg == name
                   or isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name for node in ast.walk(self.tree)) or name in self._imports  # fmt: skip

    def origin(self, node: ast.AST) -> str:
        """What a name or an attribute is by the imports, "torch.optim.AdamW"; "": none of these."""
        if isinstance(node, ast.Attribute):
            base = self.origin(node.value)
            return f"{base}.{node.attr}" if base else ""
        return self._imports.get(node.id, "") if isinstance(node, ast.Name) else ""

    def imports(self) -> Iterator[tuple[str, ast.stmt]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or "", node

    def calls(self, what: ast.AST | list[ast.stmt], origin: str) -> list[ast.Call]:
        return [node for node in walk(what) if isinstance(node, ast.Call) and self.origin(node.func) == origin]

    # ---- what is done -------------------------------------------------------------------------------------------------

    def effects(self, what: ast.AST | list[ast.stmt], models: frozenset[str], loaders: frozenset[str], seen: frozenset[str] = frozenset()) -> set[str]:
        """Of NEEDS_SECTION, what running this may do, functions of the script's own included. In these a parameter that is called may be a
        model, one that is walked a loader."""
        found: set[str] = set()
        for node in walk(what, into_functions=False):
            if isinstance(node, (ast.For, ast.comprehension)) and self.mentions(node.iter, loaders):
                found.add("loader")
            if not isinstance(node, ast.Call):
                continue
            origin = self.origin(node.func)
            if origin.startswith("torch.distributed.") and origin.rsplit(".", 1)[1] in COLLECTIVES:
                found.add("collective")
            if origin in SAVES:
                found.add("save")
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr in ("module", "forward"):
                called = called.value
            if dotted(called) in models:
                found.add("model")
            for function in self.called(node):
                is_method = isinstance(node.func, ast.Attribute) and dotted(node.func.value) in models | loaders  # model.train() is torch's
                if function.name not in seen and not is_method:
                    found |= self.effects_of(function, models, loaders, seen)
        return found

    def called(self, node: ast.Call) -> list[Function]:
        """Functions of the script's own that this may call; of methods all that are named so."""
        if isinstance(node.func, ast.Name):
            return [self.functions[node.func.id]] if node.func.id in self.functions else []
        return self.methods.get(node.func.attr, []) if isinstance(node.func, ast.Attribute) and not self.origin(node.func) else []

    def reached(self, what: Sequence[ast.AST], seen: tuple[Function, ...] = ()) -> tuple[Function, ...]:
        """Functions of the script's own that this may call, whatever these call too; what is made of classes of its own, too."""
        for node in walk([*what]):
            if isinstance(node, ast.Call):
                made = self.classes.get(node.func.id) if isinstance(node.func, ast.Name) else None
                begin = [method for method in made.body if isinstance(method, ast.FunctionDef) and method.name == "__init__"] if made else []
                for function in (*self.called(node), *begin):
                    if function not in seen:
                        seen = self.reached(function.body, (*seen, function))
        return seen

    def effects_of(self, function: Function, models: frozenset[str], loaders: frozenset[str], seen: frozenset[str] = frozenset()) -> set[str]:
        given = frozenset(parameters(function))
        return self.effects(function.body, models | given, loaders | given, seen | {function.name})

    def mentions(self, node: ast.expr, names: frozenset[str]) -> bool:
        return any(isinstance(part, ast.expr) and dotted(part) in names for part in ast.walk(node))


def dotted(node: ast.AST) -> str:
    """`model`, `self.model`; "": it is no name."""
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def walk(what: ast.AST | Sequence[ast.AST], into_functions: bool = True) -> Iterator[ast.AST]:
    """As ast.walk, of a list too; `into_functions`: what is defined here and not run is walked, too."""
    waiting: list[ast.AST] = [what] if isinstance(what, ast.AST) else list(what)
    while waiting:
        node = waiting.pop(0)
        yield node
        if into_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def parameters(function: Function) -> list[str]:
    given = function.args
    return [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg)))]


def stored(what: ast.AST | list[ast.stmt]) -> set[str]:
    """Names that are assigned here, and not in functions that are defined here."""
    return {node.id for node in walk(what, into_functions=False) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def loaded(what: ast.AST | list[ast.stmt]) -> set[str]:
    """Names that are read here, in functions that are defined here, too; `x += 1` reads x."""
    found = {node.id for node in walk(what) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return found | {node.target.id for node in walk(what) if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    known = {"torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield alias.asname or alias.name, known.get(name, name)


def _minor() -> int:
    return sys.version_info.minor
