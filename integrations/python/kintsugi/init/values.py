"""What the names of a script stand for, read line by line as they would be run: models, optimizers and their like, objects of classes of its own.

Functions, classes and methods of the script are read where they are called. What a name is under a condition, in a loop or by anything that is not
known here is nothing: Value has no kind.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from .script import Function, Scope, Script, dotted, parameters, stored, walk

DDP = "torch.nn.parallel.DistributedDataParallel"
_LOADER = "torch.utils.data.DataLoader"
_ITSELF = frozenset("to cuda cpu float double half bfloat16 train eval requires_grad_ apply".split())  # a module's methods that give the module
_DEEPEST = 8


@dataclass(eq=False)
class Value:
    """`kind`: model, module (of torch.nn, which may be one or a loss), average, optimizer, scheduler, scaler, loader, rank, local rank, master (true on
    rank 0 alone), object, parameters, tuple."""

    node: ast.AST
    kind: str = ""
    of: list[Value] = field(default_factory=list)  # models of an optimizer or of parameters, what is wrapped, schedulers that another drives
    definition: ast.ClassDef | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    items: list[Value] = field(default_factory=list)  # of a tuple


Names = dict[str, Value]


def given_to(function: Function, call: ast.Call, is_method: bool) -> dict[str, ast.expr]:
    """The arguments by the parameters' names, without self; of arguments that are unpacked nothing is known."""
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return {}
    given = dict(zip(parameters(function)[is_method:], call.args))
    given.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    return given


class Reader:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._depth = 0
        self._scope: Scope = script.tree
        self._names: Names = {}

    def read(self, scope: Scope) -> Names:
        """By dotted names, those of attributes behind the others; up to where something is stepped."""
        names: Names = {}
        self._scope, self._names = scope, names
        self._run(itertools.takewhile(lambda statement: not self._steps(statement), scope.body), names)
        found = dict(names)
        _add_attributes(found, names.items(), set())
        return found

    def _steps(self, statement: ast.stmt) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        of = self._value(call.func.value, self._names) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) or of is not None and of.kind in ("model", "module"):  # model.train() is torch's
            return False
        return any(isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"
                   for part in (statement, *self._script.reached([statement])) for node in ast.walk(part))  # fmt: skip

    # ---- lines --------------------------------------------------------------------------------------------------------

    def _run(self, body: Iterable[ast.stmt], names: Names) -> Value | None:
        """What is returned."""
        for statement in body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                return self._value(statement.value, names)
            if isinstance(statement, ast.Assign):
                value = self._value(statement.value, names)
                for target in statement.targets:
                    self._store(target, value, names)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._store(statement.target, self._value(statement.value, names), names)
            elif isinstance(statement, ast.Expr):
                self._value(statement.value, names)
            elif isinstance(statement, ast.With):
                self._forget(statement.items, names)
                if (result := self._run(statement.body, names)) is not None:
                    return result
            elif not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                self._forget([statement], names)
                if any(isinstance(node, ast.Return) for node in walk(statement, into_functions=False)):
                    return Value(statement)
        return None

    def _store(self, target: ast.expr, value: Value, names: Names) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            self._value(target.value, names).attributes[target.attr] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            known = value.items if len(value.items) == len(target.elts) else [Value(target)] * len(target.elts)
            for part, item in zip(target.elts, known):
                self._store(part, item, names)

    def _forget(self, what: Iterable[ast.AST], names: Names) -> None:
        """Whatever is assigned here, or in methods that are called here, is not surely so."""
        for part in what:
            for node in walk(part, into_functions=False):
                if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                    self._store(node, Value(node), names)
                if isinstance(node, ast.Call):
                    for name in {name for function in self._script.reached([node]) for name in attributes_stored(function)}:
                        for value in names.values():
                            if name in value.attributes:
                                value.attributes[name] = Value(node)

    # ---- what an expression is ----------------------------------------------------------------------------------------

    def _value(self, node: ast.expr, names: Names) -> Value:
        if isinstance(node, ast.Name):
            return names.get(node.id) or Value(node)
        if isinstance(node, ast.Attribute):
            return self._value(node.value, names).attributes.get(node.attr) or Value(node)
        if isinstance(node, ast.Tuple):
            return Value(node, "tuple", items=[self._value(part, names) for part in node.elts])
        if isinstance(node, ast.Call) and (found := self._result(node, names)) is not None:
            return found
        if isinstance(node, ast.Compare):
            return Value(node, "master" if self._is_zero(node, names) else "")
        if isinstance(node, ast.Call) and (kind := _rank_of_environment(node)):
            return Value(node, kind)
        of = self._parameters_in(node, names)
        return Value(node, "parameters" if of else "", of)

    def _is_zero(self, node: ast.Compare, names: Names) -> bool:
        zero = node.comparators[0]
        is_zero = len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq) and isinstance(zero, ast.Constant) and zero.value == 0
        return is_zero and self._value(node.left, names).kind == "rank"

    def _parameters_in(self, node: ast.AST, names: Names) -> list[Value]:
        """The models whose parameters are spoken of."""
        found: list[Value] = []
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in ("parameters", "named_parameters") and dotted(part.func.value):
                model = self._value(part.func.value, names)
                model.kind = "model" if model.kind in ("", "module") else model.kind
                found.append(model)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in names and names[part.id].kind == "parameters":
                found += names[part.id].of
        return list(dict.fromkeys(found))

    def _result(self, node: ast.Call, names: Names) -> Value | None:
        origin = self._script.origin(node.func)
        if origin:
            return self._of_torch(node, origin, names)
        if isinstance(node.func, ast.Name):
            if node.func.id in self._script.functions:
                return self._call(self._script.functions[node.func.id], node, names, None)
            return self._object(node, self._script.classes[node.func.id], names) if node.func.id in self._script.classes else None
        if not isinstance(node.func, ast.Attribute):
            return None
        base = self._value(node.func.value, names)
        if base.kind in ("model", "module") and node.func.attr in _ITSELF:
            return base
        method = method_of(base.definition, node.func.attr)
        return self._call(method, node, names, base) if method else None

    def _of_torch(self, node: ast.Call, origin: str, names: Names) -> Value | None:
        if origin.startswith("torch.optim.lr_scheduler."):
            inner = dict.fromkeys(self._value(part, names) for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute)))
            return Value(node, "scheduler", [value for value in inner if value.kind == "scheduler"])
        if origin == "torch.optim.swa_utils.AveragedModel":
            return Value(node, "average")
        if origin.startswith("torch.optim."):
            return Value(node, "optimizer", list(dict.fromkeys(model for part in (*node.args, *node.keywords) for model in self._parameters_in(part, names))))
        if origin.rsplit(".", 1)[-1] == "GradScaler" and origin.startswith("torch."):
            return Value(node, "scaler")
        if origin == _LOADER:
            return Value(node, "loader")
        if origin == DDP:
            return Value(node, "model", [self._value(part, names) for part in node.args[:1]])
        if origin.startswith("torch.nn.") or origin == "torch.compile":
            return Value(node, "module")
        kind = {"torch.distributed.get_rank": "rank", "torch.distributed.get_node_local_rank": "local rank"}.get(origin)
        return Value(node, kind) if kind else None

    def _object(self, node: ast.Call, definition: ast.ClassDef, names: Names) -> Value:
        is_model = any(self._script.origin(base) == "torch.nn.Module" for base in definition.bases)
        made = Value(node, "model" if is_model else "object", definition=definition)
        if not is_model and (method := method_of(definition, "__init__")):
            self._call(method, node, names, made)
        return made

    def _call(self, function: Function, node: ast.Call, names: Names, owner: Value | None) -> Value | None:
        if self._depth == _DEEPEST:
            return None
        given = given_to(function, node, owner is not None)
        sees = self._names if self._script.scope_of(function) is self._scope else {}
        local = {name: value for name, value in sees.items() if name not in stored(function.body)}
        local.update((name, self._value(argument, names)) for name, argument in given.items())
        if owner is not None and parameters(function):
            local[parameters(function)[0]] = owner
        self._depth += 1
        try:
            return self._run(function.body, local)
        finally:
            self._depth -= 1


def method_of(definition: ast.ClassDef | None, name: str) -> Function | None:
    """Of a class without bases of the script's own; a property or a static method is none."""
    found = [node for node in definition.body if isinstance(node, ast.FunctionDef) and node.name == name] if definition else []
    return found[0] if len(found) == 1 and not any(dotted(mark) in ("staticmethod", "classmethod", "property") for mark in found[0].decorator_list) else None


def attributes_stored(function: Function) -> set[str]:
    return {name for statement in function.body for name in attributes_stored_in(statement)}


def attributes_stored_in(statement: ast.AST) -> set[str]:
    return {node.attr for node in walk(statement) if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del))}


def _add_attributes(found: Names, values: Iterable[tuple[str, Value]], seen: set[int]) -> None:
    for name, value in [*values]:
        if value.attributes and id(value) not in seen:
            below = [(f"{name}.{attribute}", of) for attribute, of in value.attributes.items()]
            found.update(pair for pair in below if pair[0] not in found)
            _add_attributes(found, below, seen | {id(value)})


def _rank_of_environment(node: ast.Call) -> str:
    """`int(os.environ["RANK"])`."""
    named = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
    return "rank" if "RANK" in named else "local rank" if "LOCAL_RANK" in named else ""
