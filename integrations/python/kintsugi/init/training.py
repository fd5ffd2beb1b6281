"""What trains in a script, as far as it was found: what there is to register, the loop whose body is a step, the epochs around it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from .script import Scope, Script, dotted, parameters, stored
from .values import Names, given_to, method_of

KEPT = ("model", "average", "optimizer", "scheduler", "scaler")


@dataclass(eq=False)
class Frame:
    """A function as it is called: what its names are in the scope in which the process group is made."""

    function: Scope
    call: ast.Call | None = None
    given: dict[str, ast.expr] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def outer(self, node: ast.AST) -> str:
        """The dotted name that this is there; "": none."""
        name, _, rest = dotted(node).partition(".")
        if self.call is not None and name not in self.names and (name in parameters(self.function) or name in stored(self.function.body)):  # type: ignore[arg-type]
            return ""
        return ".".join(filter(None, (self.names.get(name, name), rest)))


@dataclass
class Training:
    script: Script
    scope: Scope  # where what is registered is made, and the process group or a call of the function that makes it
    group: ast.Call | None = None
    joins: ast.stmt | None = None  # the line of `scope` for the process group
    values: Names = field(default_factory=dict)  # what the names of `scope` are
    guessed: bool = False  # which optimizers there are was not read, but taken from how they are used: good for reasons, not for lines
    things: dict[str, str] = field(default_factory=dict)  # names to be registered: model, optimizer, scheduler, average, scaler
    sharded: bool = False
    path: list[Frame] = field(default_factory=list)  # from `scope` to the function that has the loop
    loop: ast.For | ast.While | None = None  # `while True`
    updates: list[ast.stmt] = field(default_factory=list)
    step: list[ast.stmt] = field(default_factory=list)  # the loop's body up to what has to come behind the step
    behind: list[ast.stmt] = field(default_factory=list)  # ... and from there on: evaluations, saves
    stops: list[ast.If] = field(default_factory=list)  # of these, `if ...: break`
    epochs: ast.For | None = None
    walks: bool = False  # which iterations there are was read
    trains: ast.stmt | None = None  # the statement of `scope` in which training is
    carried: list[str] = field(default_factory=list)
    attributes: dict[str, list[str]] = field(default_factory=dict)  # ... of objects, by their names
    resumes: bool = False  # from a snapshot of the script's own

    @property
    def head(self) -> ast.expr:
        """What the loop walks."""
        assert self.loop is not None
        return self.loop.iter if isinstance(self.loop, ast.For) else self.loop.test

    @property
    def given(self) -> set[str]:
        """Names that the loop itself gives values to."""
        return stored(self.loop.target) if isinstance(self.loop, ast.For) else set()

    @property
    def here(self) -> Frame:
        return self.path[-1] if self.path else Frame(self.scope)

    def kind(self, node: ast.AST, frame: Frame | None = None) -> str:
        name = (frame or self.here).outer(node)
        return self.values[name].kind if name in self.values and self.values[name].kind else self.things.get(name, "")

    def registered(self) -> set[int]:
        """Values, and what these are made around."""
        waiting = [self.values[name] for name in self.things if name in self.values]
        for value in waiting:
            waiting += [inner for inner in value.of if all(inner is not other for other in waiting)]
        return {id(value) for value in waiting}

    def names_of(self, *kinds: str) -> frozenset[str]:
        """In the scope and in the function that has the loop."""
        found = {name for name, value in self.values.items() if value.kind in kinds} | {name for name, kind in self.things.items() if kind in kinds}
        for inner, outer in self.here.names.items():
            found |= {inner + name.removeprefix(outer) for name in found if name == outer or name.startswith(f"{outer}.")}
        return frozenset(found)


def called_in(training: Training, node: ast.Call, frame: Frame) -> Frame | None:
    """The function of the script's own that is called, or the method of an object of its own."""
    function, owner = None, ""
    if isinstance(node.func, ast.Name):
        function = training.script.functions.get(node.func.id)
    elif isinstance(node.func, ast.Attribute) and (owner := frame.outer(node.func.value)) in training.values and training.values[owner].kind == "object":
        function = method_of(training.values[owner].definition, node.func.attr)
    if function is None:
        return None
    given = given_to(function, node, bool(owner))
    names = {name: outer for name, value in given.items() if (outer := frame.outer(value))}
    if owner:
        names[parameters(function)[0]] = owner
    if owner == "" and isinstance(training.script.scope_of(function), ast.FunctionDef) and training.script.scope_of(function) is frame.function:
        names = {**{name: outer for name, outer in frame.names.items() if name not in parameters(function)}, **names}  # it sees those around it
    return Frame(function, node, given, names)


def is_rank_zero(training: Training, test: ast.expr, frame: Frame, kind: str = "rank") -> bool:
    """`rank == 0`, `dist.get_rank() == 0`, or a name for it. `kind`: "local rank"."""
    if dotted(test):
        return kind == "rank" and training.kind(test, frame) == "master"
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    zero, left = test.comparators[0], test.left
    is_rank = training.kind(left, frame) == kind or kind == "rank" and isinstance(left, ast.Call) and training.script.origin(left.func) == "torch.distributed.get_rank"
    return is_rank and isinstance(zero, ast.Constant) and zero.value == 0


def walked_loader(training: Training) -> ast.expr | None:
    """The loader that the loop walks, bare or in enumerate()."""
    walked = training.head
    if isinstance(walked, ast.Call) and isinstance(walked.func, ast.Name) and walked.func.id == "enumerate" and len(walked.args) == 1 and not walked.keywords:
        walked = walked.args[0]
    return walked if training.kind(walked) == "loader" else None


def loops_around(script: Script, node: ast.AST, end: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    while node is not end:
        node = script.parent(node)
        if isinstance(node, (ast.For, ast.While)):
            found.append(node)
    return found


def base_of(node: ast.expr) -> str:
    """The name that a chain of attributes, elements and calls begins with."""
    at: ast.expr = node
    while isinstance(at, (ast.Attribute, ast.Subscript, ast.Call)):
        at = at.func if isinstance(at, ast.Call) else at.value
    return at.id if isinstance(at, ast.Name) else ""
