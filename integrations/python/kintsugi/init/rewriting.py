"""The script with Kintsugi's lines: edits of its text, so that whatever is not touched stays as it was."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .finding import find
from .script import NEEDS_SECTION, NotUnderstood, Reason, Script, dotted, parameters, refuse, stored
from .step import check_section
from .training import Frame, Training, is_rank_zero, walked_loader


class Rewritten(NamedTuple):
    text: str
    notes: list[str]  # for who reads the difference


def rewritten(text: str) -> Rewritten:
    """Raises NotUnderstood."""
    script = Script(text)
    training = find(script)
    editing = _Editing(training)
    editing.edit()
    if script.reasons:
        raise NotUnderstood(script.reasons, sorted(editing.by_hand(), key=lambda line: line.line))
    result = editing.result()
    ast.parse(result)  # a mistake of ours is no difference to print
    return Rewritten(result, list(_notes(training)))


def _notes(training: Training) -> Iterator[str]:
    kept = ", ".join((*training.things, *training.carried, *(f"{name}.{of_it}" for name, found in training.attributes.items() for of_it in found)))
    yield f"kept through faults: {kept}, and the random generators. Whatever else steps change must be registered, or named to run.keep"
    if training.resumes:
        yield "a process that begins later reads the script's own snapshot while others may write it: torch.save to another name, then os.replace"
    if training.sharded:
        yield "fully_shard keeps no second copy: kintsugi run --snapshot-every N goes back N steps where a process is lost"
    yield "practise, and compare with the plain script: kintsugi certify --quick --nproc 2 -- python SCRIPT"


class _Editing:
    def __init__(self, training: Training) -> None:
        self._training, self._script = training, training.script
        self._run = "run" if not self._script.uses("run") else "kintsugi_run"
        self._edits: list[tuple[int, int, str]] = []
        self._models, self._loaders = training.names_of("model", "average"), training.names_of("loader")
        self._frame = training.here

    def edit(self) -> None:
        training = self._training
        found = training.trains is not None
        for part, is_known in ((self._join, training.group is not None), (self._sections, training.loop is not None),
                               (self._register, found and not training.guessed), (self._loop, training.walks)):
            if is_known:
                with self._script.collecting():
                    part()

    def by_hand(self) -> Iterator[Reason]:
        """Of the edits, by line, what is new; without a process group they would come too early."""
        changed: dict[int, list[tuple[int, int, str]]] = {}
        for start, end, new in sorted(self._edits, key=lambda edit: edit[:2]) if self._training.group else ():
            number = self._script.line_number(start)
            if new.endswith(".step():\n"):
                yield Reason(number, f"around this line and those up to {self._training.step[-1].end_lineno}: {new.strip()}")
            elif new.endswith("\n"):
                yield from (Reason(number, f"before this line: {line.strip()}") for line in new.splitlines())
            elif new.strip():
                changed.setdefault(number, []).append((start, end, new))
        for number, edits in changed.items():
            start, end = self._script.line_start(number), self._script.line_start(number + 1)
            yield Reason(number, f"in place of this line: {_edited(self._script.text, edits, start, max(end, edits[-1][1])).strip()}")

    def result(self) -> str:
        return _edited(self._script.text, self._edits, 0, len(self._script.text.encode()))

    # ---- lines --------------------------------------------------------------------------------------------------------

    def _indent(self, node: ast.AST) -> str:
        line = self._script.line(node.lineno)  # type: ignore[attr-defined]
        return line[: len(line) - len(line.lstrip())]

    def _insert_before(self, node: ast.stmt, *lines: str) -> None:
        at = self._script.line_start(node.lineno)
        self._edits.append((at, at, "".join(f"{self._indent(node)}{line}\n" for line in lines)))

    def _replace(self, node: ast.AST, new: str) -> None:
        self._edits.append((*self._script.span(node), new))

    def _join(self) -> None:
        group = self._training.group
        assert group is not None
        statement = self._training.joins
        assert statement is not None
        in_module = isinstance(self._training.scope, ast.Module)
        imports = [node for node in self._script.tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) and not (in_module and node.lineno >= statement.lineno)]
        if not imports:
            refuse(self._script.tree, "the script has no imports before anything else, where `import kintsugi.torch` would stand")
        at = self._script.line_start((imports[-1].end_lineno or 0) + 1)
        self._edits.append((at, at, "import kintsugi.torch\n"))
        self._insert_before(statement, f"{self._run} = kintsugi.torch.join()")
        backend = group.args[0] if group.args else next(keyword.value for keyword in group.keywords if keyword.arg == "backend")
        self._replace(backend, '"kintsugi"')

    def _register(self) -> None:
        assert self._training.trains is not None
        last = [name.rpartition(".")[2] for name in self._training.things]
        words = [short if last.count(short) == 1 else name.replace(".", "_") for name, short in zip(self._training.things, last)]
        lines = [f"{self._run}.register({', '.join(f'{word}={name}' for word, name in zip(words, self._training.things))})"]
        if self._training.carried:
            names = ", ".join(f'"{name}"' for name in self._training.carried)
            lines.append(f"{self._run}.keep(globals(), {names})")
        for name, found in self._training.attributes.items():
            lines.append(f"{self._run}.keep({name}, {', '.join(f'{chr(34)}{of_it}{chr(34)}' for of_it in found)})")
        self._insert_before(self._training.trains, *lines)

    def _loop(self) -> None:
        training, script, loop = self._training, self._script, self._training.loop
        assert loop is not None
        head = training.head
        loader = walked_loader(training)
        if loader is None:
            if isinstance(head, ast.Call):
                self._replace(head.func, f"{self._run}.range")
            else:
                self._edits.append((script.span(loop)[0], script.span(head)[1], f"for _ in {self._run}.range(1 << 40)"))  # it breaks before
        else:
            self._replace(head, f"{self._run}.{'batches' if head is loader else 'enumerate'}({script.source(loader)})")
        for stop in training.stops:
            self._replace(stop.test, f"{self._run}.stop_if({script.source(stop.test)})")
        first = loop.body[0].lineno
        if shared := self._first_that_shares([head, *loop.body]):
            raise NotUnderstood([Reason(shared, "two parts of the loop stand on one line")])
        outer, inner = self._indent(loop), self._indent(loop.body[0])
        step = inner[len(outer) :]
        # Comments between the head and the first line of the body belong to it.
        begin = (head.end_lineno or loop.lineno) + 1
        at = script.line_start(begin)
        self._edits.append((at, at, f"{inner}with {self._run}.step():\n"))
        if loss := _loss(loop.body, training.updates[-1]):
            at = script.line_start(training.updates[-1].lineno)
            self._edits.append((at, at, f"{inner}{step}{self._run}.report(loss={loss}.item())\n"))
        for number in range(begin, (training.step[-1].end_lineno or first) + 1):
            if script.line(number).strip():
                at = script.line_start(number)
                self._edits.append((at, at, step))
        if training.behind:
            at = script.line_start(training.behind[0].lineno)
            self._edits.append((at, at, f"{inner}if {self._run}.again:\n{inner}{step}continue\n"))
        if training.resumes and training.epochs is not None:
            assert isinstance(training.epochs.iter, ast.Call)
            opens = script.span(training.epochs.iter.func)[1] + 1
            self._replace(training.epochs.iter.func, f"{self._run}.do")
            self._edits.append((opens, opens, "range, "))
        for frame in training.path[1:]:
            if not script.within(frame.function, training.scope):
                self._pass_run(frame)

    def _first_that_shares(self, parts: Sequence[ast.expr | ast.stmt]) -> int:
        """The first line on which one of these ends and the next begins; 0: there is none."""
        return next((after.lineno for before, after in itertools.pairwise(parts) if after.lineno <= (before.end_lineno or 0)), 0)

    def _pass_run(self, frame: Frame) -> None:
        """A function that trains and stands apart is given the run, behind its own object if it is a method."""
        function, call = frame.function, frame.call
        assert isinstance(function, ast.FunctionDef) and call is not None
        is_method = isinstance(self._script.parent(function), ast.ClassDef)
        text = self._script.text.encode()
        for node, given in ((call, bool(call.args or call.keywords)), (function, len(parameters(function)) > is_method)):
            start = self._script.span(node.func)[1] if isinstance(node, ast.Call) else self._script.span(node)[0]
            at = text.index(b"(", start) + 1
            if node is function and is_method:
                at = self._script.span([*function.args.posonlyargs, *function.args.args][0])[1]
                self._edits.append((at, at, f", {self._run}"))
            else:
                self._edits.append((at, at, f"{self._run}{', ' if given else ''}"))

    # ---- between steps ------------------------------------------------------------------------------------------------

    def _sections(self) -> None:
        training = self._training
        assert training.trains is not None
        body = training.scope.body
        trains = body.index(training.trains)
        made = max(index for index, statement in enumerate(body) if any(name.partition(".")[0] in stored(statement) for name in training.things))
        for statement in body[made + 1 : trains]:
            if self._effects(statement):
                self._script.say(statement, "this is done before the loop, and would have to come behind run.register: as a section, `run.do(f)`")
        self._between(training.behind)
        self._frame = training.path[0]
        self._between(body[trains:])
        for frame in training.path[1:]:
            self._frame = frame
            self._between(frame.function.body)

    def _collective(self, what: ast.AST) -> bool:
        return "collective" in self._script.effects(what, self._models, self._loaders)

    def _effects(self, what: ast.AST | list[ast.stmt]) -> set[str]:
        return self._script.effects(what, self._models, self._loaders) & NEEDS_SECTION

    def _between(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if statement is self._training.loop or isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                continue
            if any(part is frame.call for part in ast.walk(statement) for frame in self._training.path[1:]) and not isinstance(statement, (ast.For, ast.If, ast.With)):
                continue
            elif statement in self._training.stops:
                if self._effects(statement.test):
                    self._script.say(statement, "this is done between steps, and stands within a condition: give it a line of its own, as `x = f(...)`")
            elif isinstance(statement, ast.If):
                self._condition(statement)
            elif isinstance(statement, (ast.For, ast.While, ast.With)):
                for head in (getattr(statement, "iter", None), getattr(statement, "test", None), *(item.context_expr for item in getattr(statement, "items", ()))):
                    if head is not None and self._effects(head):
                        self._script.say(head, "this is done between steps, and stands within a statement: give it a line of its own, as `x = f(...)`")
                if isinstance(statement, ast.For) and self._script.mentions(statement.iter, self._loaders):
                    self._script.say(statement, "a loader is walked here, beside the steps: make it a function, which run.do calls")
                else:
                    self._between([*statement.body, *getattr(statement, "orelse", ())])
            elif self._effects(statement):
                self._section(statement)

    def _condition(self, statement: ast.If) -> None:
        tests = statement.test.values if isinstance(statement.test, ast.BoolOp) and isinstance(statement.test.op, ast.And) else [statement.test]
        others = [test for test in tests if not is_rank_zero(self._training, test, self._frame)]
        local = [test for test in tests if is_rank_zero(self._training, test, self._frame, "local rank")]
        if len(others) == len(tests) and not local:
            if self._effects(statement.test):
                self._script.say(statement, "this is done between steps, and stands within a condition: give it a line of its own, as `x = f(...)`")
            elif self._tells_ranks_apart(statement.test) and self._effects([*statement.body, *statement.orelse]):
                self._script.say(statement, "not all ranks do this: a section is called by all of them, one of which may be the only one to act, `run.do(f, only=0)`")
                return
            self._between([*statement.body, *statement.orelse])
            return
        if not self._effects([*statement.body, *statement.orelse]):
            return  # a line that is printed, say
        call = statement.body[0].value if len(statement.body) == 1 and isinstance(statement.body[0], ast.Expr) and not statement.orelse else None
        section = self._as_section(call, only=True) if isinstance(call, ast.Call) else ""
        if local and isinstance(call, ast.Call):  # one for each machine, so all ranks enter
            others = [test for test in others if test not in local]
            section = f"{self._run}.do(lambda: {self._script.source(local[0])} and {self._script.source(call)})" if section and not self._collective(call) else ""
        if not section:
            self._script.say(statement, "rank 0 alone does this between steps, in more than one call: make it a function, which `run.do(f, only=0)` calls")
            return
        indent = self._indent(statement)
        condition = " and ".join(self._script.source(test) for test in others)
        deeper = self._indent(statement.body[0])[len(indent) :] or "    "
        self._replace(statement, f"if {condition}:\n{indent}{deeper}{section}" if others else section)

    def _tells_ranks_apart(self, test: ast.expr) -> bool:
        training = self._training
        return any(dotted(node) and training.kind(node, self._frame) in ("rank", "local rank", "master")
                   or isinstance(node, ast.Call) and self._script.origin(node.func).endswith("_rank") for node in ast.walk(test))  # fmt: skip

    def _section(self, statement: ast.stmt) -> None:
        value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        section = self._as_section(value, only=False) if isinstance(value, ast.Call) else ""
        if section and value is not None:
            self._replace(value, section)
        else:
            self._script.say(statement, "this is done between steps, and is no call of a function by itself: give it a line of its own, as `x = f(...)`, which becomes "
                                 "`x = run.do(f, ...)`")  # fmt: skip

    def _as_section(self, call: ast.Call, only: bool) -> str:
        """"": it is no call of one function, with arguments that are values."""
        if any(self._effects(part) for part in (*call.args, *(keyword.value for keyword in call.keywords))):
            return ""
        check_section(self._training, call, self._frame)
        inner = self._script.text.encode()[self._script.span(call.func)[1] : self._script.span(call)[1]].decode().strip()[1:-1].strip().rstrip(",")
        words = [self._script.source(call.func), *([inner] if inner else []), *(["only=0"] if only else [])]
        return f"{self._run}.do({', '.join(words)})"


def _edited(script: str, edits: list[tuple[int, int, str]], start: int, end: int) -> str:
    text = script.encode()[:end]
    # From the end, so that places stay what they are; of two at one place the first comes first.
    for at, until, new in reversed(sorted(edits, key=lambda edit: edit[:2])):
        text = text[:at] + new.encode() + text[until:]
    return text[start:].decode()


def _loss(body: list[ast.stmt], before: ast.stmt) -> str:
    """The name of what the last backward pass before this is of; "": it has none."""
    found = ""
    for statement in body[: body.index(before)]:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
            of = call.func.value
            if isinstance(of, ast.Call) and len(of.args) == 1:  # scaler.scale(loss)
                of = of.args[0]
            found = of.id if isinstance(of, ast.Name) else ""
    return found
