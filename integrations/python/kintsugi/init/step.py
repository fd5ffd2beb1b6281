"""What a step and the lines beside it change: kept, registered, or refused by line, since a fault would not put it back.

The same for what a section changes, which a process that begins later does not call again; and for ends of the loop that not all ranks would come to.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from .script import NEEDS_SECTION, Function, Reason, loaded, dotted, parameters, stored, walk
from .training import Frame, Training, base_of, called_in, loops_around

_CHANGING = frozenset("append extend insert add update pop popitem remove discard clear setdefault sort reverse appendleft".split())


def check_body(training: Training) -> None:
    if training.loop is not None:
        Body(training).check()


class Body:
    """The loop's body, which may be run again for a step that is void."""

    def __init__(self, training: Training) -> None:
        assert training.loop is not None
        self._training, self._script, self._loop, self._holder = training, training.script, training.loop, training.here.function
        self._registered = training.registered()
        self._what = "a step"
        self._models, self._loaders = training.names_of("model", "average"), training.names_of("loader")

    def check(self) -> None:
        self._divide()
        self._refuse_ends()
        self._refuse_carried()
        if not self._training.guessed:
            self._refuse_changes(self._training.step, self._training.here, stored(self._training.step) | self._training.given, set())
            self._refuse_changes(self._stores(self._training.behind), self._training.here, stored(self._loop.body) | self._training.given, set())
            self._refuse_retold()

    def check_section(self, call: ast.Call, frame: Frame) -> None:
        """A process that begins later does not call it again: what it changes is registered, kept, or refused."""
        self._what = "a section"
        self._refuse_changes([call], frame, stored(frame.function.body), set())

    def _stores(self, body: Sequence[ast.AST]) -> list[ast.AST]:
        return [node for node in walk(body, into_functions=False) if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del))]

    def _refuse_retold(self) -> None:
        """Lines between steps that make something of what steps carry on: a process that begins later comes by them with other values of it."""
        epochs, training = self._training.epochs, self._training
        depth = next((n for n, frame in enumerate(training.path) if epochs is not None and self._script.within(epochs, frame.function)), None)
        if epochs is None or depth is None:
            return
        names, attributes = set(training.carried), {name for found in training.attributes.values() for name in found}
        lines = [(training.path[depth], statement) for statement in epochs.body]
        lines += [(frame, statement) for frame in training.path[depth + 1 :] for statement in frame.function.body]
        parts = [(frame, part) for frame, statement in lines for part in walk(statement, into_functions=False)
                 if isinstance(part, (ast.If, ast.While, ast.Assign, ast.AugAssign, ast.AnnAssign)) and not self._script.within(part, self._loop)]  # fmt: skip
        found = -1
        while found != len(names) + len(attributes):
            found = len(names) + len(attributes)
            for frame, part in parts:
                made_of = part.test if isinstance(part, (ast.If, ast.While)) else part
                read = {node.attr for node in ast.walk(made_of) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
                if not (loaded(made_of) & names or read & attributes):
                    continue
                for name in sorted(stored(part) - names):
                    if not isinstance(frame.function, ast.Module):
                        self._script.say(part, f"'{name}' is made of what steps carry on: put it into an object, and that into run.keep")
                    elif any(name in stored(statement) for statement in self._before()):
                        training.carried.append(name)
                    names.add(name)
                for node in self._stores([part]):
                    if isinstance(node, ast.Attribute) and node.attr not in attributes and self._keep_attribute(node, frame):
                        attributes.add(node.attr)

    def _refuse_ends(self) -> None:
        if isinstance(self._loop, ast.While) and not self._training.stops:
            self._script.say(self._loop, "this loop has no end that can be read, `if ...: break` behind the update")
        for node in walk(self._loop.body):
            ends = isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom))
            if isinstance(node, (ast.Break, ast.Continue)):
                ends = loops_around(self._script, node, self._loop) == [self._loop] and node not in [stop.body[0] for stop in self._training.stops]
            if ends:
                self._script.say(node, "a step is cut short here: all ranks have to decide alike, `if run.stop_if(...): break` behind the step")
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self._script.say(node, "a function or a class is defined in the loop's body")
        for line in self._script.lines_within_texts():
            if self._loop.lineno < line <= (self._loop.end_lineno or 0):
                self._script.reasons.append(Reason(line, "a text of several lines stands in the loop's body: to indent it would change it"))

    def _divide(self) -> None:
        """What a step is, and what is behind it: from the first save, evaluation or collective behind the update on."""
        body = self._loop.body
        last = body.index(self._training.updates[-1])
        stops = [statement for statement in body[last + 1 :] if isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse
                 and isinstance(statement.body[0], ast.Break)]  # fmt: skip
        at = next((n for n in range(last + 1, len(body)) if body[n] in stops or self._script.effects(body[n], self._models, self._loaders) & NEEDS_SECTION), len(body))
        self._training.stops = stops
        self._training.step, self._training.behind = body[:at], body[at:]
        what = {"save": "a save", "loader": "another loader"}
        for statement in body[: last + 1]:
            for effect in sorted(self._script.effects(statement, self._models, self._loaders) & what.keys()):
                self._script.say(statement, f"{what[effect]} before the update, within the step: it belongs before or behind the step, into run.do "
                                     "(integrations/python/docs/your_loop.md)")  # fmt: skip

    def _in_step(self, node: ast.AST) -> bool:
        return any(self._script.within(node, statement) for statement in self._training.step)

    def _refuse_carried(self) -> None:
        epochs = self._training.epochs
        of_step = stored(self._training.step)
        own = of_step | stored(self._training.behind)
        written = self._training.given
        carried: dict[str, ast.AST] = {}
        for statement in self._loop.body:
            for name in sorted(_read_first(statement, own - written)):
                carried.setdefault(name, statement)
            written |= _surely_written(statement)
        for node in ast.walk(self._holder):
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in own) or self._in_step(node):
                continue
            if node.id not in of_step and self._script.within(node, self._loop):
                continue  # behind the step it is written before it is read, or found above
            scope = self._script.scope_of(node)
            inner = scope is not self._holder and not self._has_own(scope, node.id)  # a function that reads it whenever it is called
            if inner or scope is self._holder and (node.lineno > self._loop.lineno or epochs is not None and self._script.within(node, epochs)):
                carried.setdefault(node.id, node)
        for name, node in carried.items():
            if not isinstance(self._holder, ast.Module):
                self._script.say(node, f"'{name}' goes on from step to step, or behind them, and is a variable of a function: put it into an object (`s = "
                                f"types.SimpleNamespace({name}=...)`) and that into run.keep(s, \"{name}\")")  # fmt: skip
            elif not any(name in stored(statement) for statement in self._before()):
                self._script.say(node, f"'{name}' goes on from step to step, or behind them, and has no value before the first")
            else:
                self._training.carried.append(name)

    def _has_own(self, scope: ast.AST, name: str) -> bool:
        while scope is not self._holder:
            arguments = scope.args if isinstance(scope, (ast.FunctionDef, ast.Lambda)) else None
            body = scope.body if isinstance(scope, (ast.FunctionDef, ast.ClassDef)) else []
            if name in stored(body) or arguments is not None and any(node.arg == name for node in ast.walk(arguments) if isinstance(node, ast.arg)):
                return True
            scope = self._script.scope_of(scope)
        return False

    def _before(self) -> list[ast.stmt]:
        assert self._training.trains is not None
        return self._training.scope.body[: self._training.scope.body.index(self._training.trains)]

    def _refuse_changes(self, body: Sequence[ast.AST], frame: Frame, own: set[str], seen: set[object]) -> None:
        """Of things that are neither registered nor made in the step: nobody would put them back."""
        for node in walk(body, into_functions=False):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                self._script.say(node, f"{self._what} changes {', '.join(node.names)} of another scope: a fault would not put that back; see run.keep")
            if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)) and not self._is_kept(node.value, frame, own):
                if not self._keep_attribute(node, frame):
                    self._script.say(node, f"{self._what} changes `{self._script.source(node)}`: a fault would not put that back; see run.keep, or register it")
            if not isinstance(node, ast.Call):
                continue
            if (called := called_in(self._training, node, frame)) is not None:
                self._follow(called, own, seen)
            elif self._what == "a section" and not (isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING):
                continue  # what it draws on, and prints, is its own affair
            elif isinstance(node.func, ast.Name):
                self._refuse_call(node, node.func.id, frame, own)
            elif isinstance(node.func, ast.Attribute) and not self._script.origin(node.func) and not self._is_harmless(node.func, frame, own):
                self._script.say(node, f"{self._what} calls `{self._script.source(node.func)}`, which may change `{base_of(node.func) or 'something'}`: a fault would not "
                                       "put that back; see run.keep, or register it")  # fmt: skip

    def _follow(self, called: Frame, own: set[str], seen: set[object]) -> None:
        assert isinstance(called.function, ast.FunctionDef)
        # A parameter is the function's own where what it is given is the caller's, or made for it.
        others = {name for name, value in called.given.items() if base_of(value) and not isinstance(value, ast.Call) and base_of(value) not in own}
        mine = {*stored(called.function.body), *_locals(called.function), *parameters(called.function)} - others - called.names.keys()
        mine |= {name for name, value in called.given.items() if base_of(value) in own}
        key = (called.function, frozenset(mine), frozenset(called.names.items()))
        if key not in seen:
            self._refuse_changes(called.function.body, called, mine, seen | {key})

    def _refuse_call(self, call: ast.Call, name: str, frame: Frame, own: set[str]) -> None:
        if name in ("next", "setattr", "exec", "eval", "delattr"):
            self._script.say(call, f"a step calls {name}(): what that changes, a fault would not put back")
        elif not (self._is_kept(call.func, frame, own) or name in self._script.classes or hasattr(builtins, name) or self._script.origin(call.func)
                  or self._is_module(call.func, frame)):  # fmt: skip
            self._script.say(call, f"a step calls `{name}`, of which cannot be read what it is")

    def _keep_attribute(self, node: ast.Attribute | ast.Subscript, frame: Frame) -> bool:
        """Of an object that the scope has a name for."""
        name = frame.outer(node.value)
        value = self._training.values.get(name)
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store) or value is None or value.kind != "object":
            return False
        if node.attr not in value.attributes:
            self._script.say(node, f"`{self._script.source(node)}` goes on from step to step, and has no value before the first")
        elif node.attr not in self._training.attributes.setdefault(name, []):
            self._training.attributes[name].append(node.attr)
        return True

    def _is_kept(self, node: ast.expr, frame: Frame, own: set[str]) -> bool:
        """What a chain of attributes, elements and calls begins with is made in the step, or registered."""
        at: ast.expr = node
        while True:
            value = self._training.values.get(frame.outer(at)) if dotted(at) else None
            if value is not None and id(value) in self._registered or frame.outer(at) in self._training.things and dotted(at):
                return True
            if not isinstance(at, (ast.Attribute, ast.Subscript, ast.Call)):
                return isinstance(at, ast.Name) and at.id in own
            at = at.func if isinstance(at, ast.Call) else at.value

    def _is_harmless(self, function: ast.Attribute, frame: Frame, own: set[str]) -> bool:
        """Of what the step made itself, of what is registered, of modules of torch's; or a look at a value."""
        if self._is_kept(function, frame, own) or not base_of(function) or self._is_of_torchs_result(function):
            return True
        return bool(dotted(function)) and self._training.kind(function, frame) == "module" or self._is_module(function.value, frame) and not function.attr.endswith("_")

    def _is_module(self, node: ast.expr, frame: Frame) -> bool:
        """A loss, a tensor: whose calls change nothing but by a method that says so (`add_`)."""
        at = node
        while isinstance(at, (ast.Attribute, ast.Subscript, ast.Call)) and not (dotted(at) and self._training.kind(at, frame) == "module"):
            at = at.func if isinstance(at, ast.Call) else at.value
        if isinstance(at, ast.Attribute):
            return True
        return isinstance(at, ast.Name) and self._made_by_torch(frame.outer(at))

    def _is_of_torchs_result(self, function: ast.Attribute) -> bool:
        """`torch.randn(16, 2).to(device)`."""
        at: ast.expr = function
        while isinstance(at, (ast.Attribute, ast.Subscript, ast.Call)):
            if isinstance(at, ast.Call) and self._script.origin(at.func).startswith("torch."):
                return True
            at = at.func if isinstance(at, ast.Call) else at.value
        return False

    def _made_by_torch(self, name: str) -> bool:
        made = [node.value for scope in (self._training.scope, self._script.tree) for node in scope.body
                if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)]  # fmt: skip
        return len(made) > 0 and all(isinstance(value, ast.Call) and self._script.origin(value.func).startswith(("torch.nn.", "torch.rand", "torch.amp.autocast"))
                                     for value in made)  # fmt: skip


def check_section(training: Training, call: ast.Call, frame: Frame) -> None:
    if training.loop is not None and not training.guessed:
        Body(training).check_section(call, frame)


def _read_first(statement: ast.stmt, names: set[str]) -> set[str]:
    """Of these names, those that the statement reads before it has surely written them."""
    if isinstance(statement, ast.For):
        within = names - stored(statement.target)
        return (loaded(statement.iter) & names) | _first_in(statement.body, within) | _first_in(statement.orelse, names)
    if isinstance(statement, (ast.If, ast.While)):
        return (loaded(statement.test) & names) | _first_in(statement.body, names) | _first_in(statement.orelse, names)
    if isinstance(statement, ast.With):
        read = {name for item in statement.items for name in loaded(item.context_expr)}
        return (read & names) | _first_in(statement.body, names - {name for item in statement.items for name in stored(item)})
    return (loaded(statement) - _comprehended(statement)) & names


def _first_in(body: list[ast.stmt], names: set[str]) -> set[str]:
    found: set[str] = set()
    written: set[str] = set()
    for statement in body:
        found |= _read_first(statement, names - written)
        written |= _surely_written(statement)
    return found


def _surely_written(statement: ast.stmt) -> set[str]:
    return stored(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else (
        {name for inner in statement.body for name in _surely_written(inner)} if isinstance(statement, ast.With) else set())


def _comprehended(node: ast.AST) -> set[str]:
    return {name for part in ast.walk(node) if isinstance(part, ast.comprehension) for name in stored(part.target)}


def _locals(function: Function) -> set[str]:
    return {node.name for node in function.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
