"""A resume of the script's own: it is over before training, and what training has from it is told to a process that reads another snapshot later."""

from __future__ import annotations

import ast

from .script import Function, Script, dotted, parameters, stored, walk
from .training import KEPT, Frame, Training, walked_loader
from .values import attributes_stored, attributes_stored_in

_RESUME = ("the script goes on from a state of its own, and not before training, or of something that is not registered: leave that to `kintsugi run --resume`, or see "
           "'Beside a resume of your own' in integrations/python/docs/your_loop.md")  # fmt: skip
_READ_BETWEEN = ("`{0}` comes from the snapshot, and is read between steps: a process that begins later reads another snapshot. `x = run.do(lambda: {0})` tells it "
                 "to all")  # fmt: skip


def check_resume(training: Training) -> None:
    """It reads before training, and what training has from it is told to a process that reads another one later."""
    script = training.script
    loads = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict"]
    if not loads or training.trains is None or training.loop is None:
        return
    at = training.scope.body.index(training.trains)
    before, behind = training.scope.body[:at], training.scope.body[at:]
    early, late = script.reached(before), script.reached(behind)
    for load in loads:
        scope = script.scope_of(load)
        is_before = any(script.within(load, statement) for statement in before) and scope is training.scope or scope in early and scope not in late
        if not is_before or not _is_of_registered(training, load, scope):
            script.say(load, _RESUME)
    training.resumes = True
    names, attributes = _from_snapshots(script, before, early)
    assert training.epochs is None or isinstance(training.epochs.iter, ast.Call)
    told = [node for part in ([training.epochs.iter] if training.epochs is not None else []) for node in ast.walk(part)]
    told += [node for node in ast.walk(training.head)] if walked_loader(training) is None else []
    on_path = [frame.function for frame in training.path[1:]]
    for node in (node for part in (*behind, *late) for node in ast.walk(part) if node not in told):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names and training.kind(node, Frame(training.scope)) not in KEPT:
            within = script.scope_of(node)
            if within is not training.scope and isinstance(within, ast.FunctionDef) and node.id in {*stored(within.body), *parameters(within)}:
                continue  # a variable of its own
            if not script.within(node, training.loop) and (within is training.scope or within in on_path):
                script.say(node, _READ_BETWEEN.format(node.id))
                continue
            if not isinstance(training.scope, ast.Module) or training.kind(node, Frame(training.scope)):
                script.say(node, f"'{node.id}' comes from the snapshot: a process that begins later reads another one. Put it into an object (`s = "
                                 f"types.SimpleNamespace({node.id}=...)`) and that into run.keep(s, \"{node.id}\")")  # fmt: skip
            elif node.id not in training.carried:
                training.carried.append(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in attributes:
            if not script.within(node, training.loop) and script.scope_of(node) in (training.scope, *on_path):
                script.say(node, _READ_BETWEEN.format(script.source(node)))
                continue
            owners = {name for name, value in training.values.items() if value.kind == "object" and node.attr in value.attributes}
            if len(owners) != 1 or training.values[f"{min(owners)}.{node.attr}"].kind:
                script.say(node, f"`{script.source(node)}` comes from the snapshot: a process that begins later reads another one; see run.keep")
            elif node.attr not in training.attributes.setdefault(min(owners), []):
                training.attributes[min(owners)].append(node.attr)


def _is_of_registered(training: Training, load: ast.Call, scope: ast.AST) -> bool:
    """`model.load_state_dict`, `self.model.load_state_dict` of a class of which the scope has one object, `model.module.load_state_dict`."""
    assert isinstance(load.func, ast.Attribute)
    of = load.func.value
    if isinstance(of, ast.Attribute) and of.attr == "module":
        of = of.value
    name = dotted(of)
    if scope is not training.scope:
        owner = training.script.parent(scope)
        objects = {id(value): value for value in training.values.values() if value.kind == "object" and value.definition is owner}
        first, _, attribute = name.partition(".")
        if len(objects) != 1 or not isinstance(scope, ast.FunctionDef) or [first] != parameters(scope)[:1]:
            return False
        (of_it,) = objects.values()
        return attribute in of_it.attributes and id(of_it.attributes[attribute]) in training.registered()
    return name in training.values and id(training.values[name]) in training.registered()


def _from_snapshots(script: Script, before: list[ast.stmt], early: tuple[Function, ...]) -> tuple[set[str], set[str]]:
    """Names of the scope, and attributes of objects, that a snapshot has a say in: what is assigned beside where it is read, and what comes of that."""
    names: set[str] = set()
    attributes: set[str] = set()

    def reads(what: ast.AST) -> bool:
        called = [node.func for node in ast.walk(what) if isinstance(node, ast.Call)]
        return any(script.origin(function) == "torch.load" or isinstance(function, ast.Attribute) and function.attr == "load_state_dict" for function in called)

    readers = [function for function in early if reads(function)]
    for function in readers:
        attributes |= attributes_stored(function)
    for body, is_scope in ((before, True), *((function.body, False) for function in early)):
        local = names if is_scope else set[str]()
        found = -1
        while found != len(local) + len(attributes):
            found = len(local) + len(attributes)
            for statement in body:
                for part in walk(statement, into_functions=False):
                    if not isinstance(part, ast.stmt) or isinstance(part, (ast.FunctionDef, ast.ClassDef)):
                        continue
                    of_it = reads(part) or any(function in readers for node in ast.walk(part) if isinstance(node, ast.Call) for function in script.called(node))
                    of_it = of_it or any(isinstance(node, ast.Name) and node.id in local or isinstance(node, ast.Attribute) and node.attr in attributes
                                         for node in ast.walk(part) if isinstance(getattr(node, "ctx", None), ast.Load))  # fmt: skip
                    if of_it:
                        local |= stored(part)
                        attributes |= attributes_stored_in(part)
    return names, attributes
