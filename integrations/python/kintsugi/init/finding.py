"""Finds what trains: process group, models, optimizers and their like, the loop, the epochs. What it cannot read it refuses, by line."""

from __future__ import annotations

import ast
import re

from .resume import check_resume
from .script import Function, NotUnderstood, Reason, Script, dotted, refuse, stored, walk
from .step import check_body
from .training import KEPT, Frame, Training, called_in, loops_around, walked_loader
from .values import Reader, attributes_stored

_FRAMEWORKS = {
    "transformers": "kintsugi.torch.huggingface.train(run, trainer) is for its Trainer",
    "accelerate": "its loop is kept as it is, with other lines",
    "lightning": "kintsugi.torch.lightning.fit(run, trainer, model, loader) is for it",
    "pytorch_lightning": "kintsugi.torch.lightning.fit(run, trainer, model, loader) is for it",
    "torchtitan": "kintsugi.torch.titan.train(run, trainer) is for it",
    "megatron": "kintsugi.megatron.protect(run, model, optimizer, opt_param_scheduler) is for it",
    "deepspeed": "its engine is not known",
}
_BACKENDS = ("gloo", "nccl", "cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo")
_CAPTURED = ("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables")


def find(script: Script) -> Training:
    """What there is of it, where `script.reasons` has some in the end: each part goes as far as those before it let it."""
    _refuse_frameworks(script)
    training = Training(script, script.tree)
    for part in (_refuse_others, _find_group, _find_things, _find_loop, _find_epochs, _check_walk, check_body, check_resume):
        with script.collecting():
            part(training)
    return training


def _refuse_frameworks(script: Script) -> None:
    """Nothing else is worth a word then."""
    for module, imported in script.imports():
        root = module.split(".")[0]
        if root in _FRAMEWORKS:
            script.say(imported, f"the loop is {root}'s: {_FRAMEWORKS[root]} (integrations/python/docs/loops.md)")
        if root == "kintsugi":
            script.say(imported, "this script imports kintsugi already")
    if script.reasons:
        raise NotUnderstood(script.reasons)


def _refuse_others(training: Training) -> None:
    script = training.script
    for call in script.calls(script.tree, "torch.multiprocessing.spawn"):
        script.say(call, "mp.spawn starts the ranks; `kintsugi run` does that: call the function once, in each process that it starts")
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Call) and (script.origin(node.func).startswith(_CAPTURED) or script.origin(node.func) == "torch.compile" and _captures(node)):
            script.say(node, "a CUDA graph is captured: it would be replayed on communicators that a repair has taken away (integrations/python/docs/cuda.md)")
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await)):
            script.say(node, "asynchronous functions are not read")


def _find_group(training: Training) -> None:
    script = training.script
    groups = script.calls(script.tree, "torch.distributed.init_process_group")
    if not groups:
        made = _made_optimizers(script)
        scope = script.scope_of(made[0]) if made else script.tree
        training.scope = scope if isinstance(scope, (ast.Module, ast.FunctionDef)) else script.tree
        training.values = Reader(script).read(training.scope)
        where = f"at the start of {training.scope.name}" if isinstance(training.scope, ast.FunctionDef) else "behind the imports"
        refuse(script.tree, "there is no call of torch.distributed.init_process_group: one process trains alone. To keep it so, write "
                            f'torch.distributed.init_process_group("gloo") {where}, `kintsugi init` again, and start it by `kintsugi run --nproc 1 --save-every N` '
                            "(a lost process goes back to what was saved: nobody else has a copy). How several would share its batches is yours to say: make it a "
                            "script of DistributedDataParallel first")  # fmt: skip
    for call in groups[1:]:
        script.say(call, "a process group is made here, too")
    group = groups[0]
    statement, scope = script.parent(group), script.scope_of(group)
    if isinstance(scope, (ast.Module, ast.FunctionDef)):
        training.scope = scope
    if not isinstance(scope, (ast.Module, ast.FunctionDef)) or statement not in scope.body:
        script.say(group, "init_process_group stands within a condition or a class; it is looked for as a line of the script or of a function")
    backend = [*group.args[:1], *(keyword.value for keyword in group.keywords if keyword.arg == "backend")]
    others = [keyword.arg for keyword in group.keywords if keyword.arg not in ("backend", "timeout", "device_id") and not _is_environment(keyword)]
    others += ["an argument"] * (len(group.args) - 1)
    if len(backend) != 1 or not _is_backend(backend[0]):
        script.say(group, 'the backend is neither "gloo" nor "nccl", written so')
    if others:
        script.say(group, f"init_process_group is given {', '.join(map(str, others))}: who the ranks are is said by who starts them")
    training.group, training.joins = group, script.statement_of(group)
    training.values = Reader(script).read(training.scope)
    # A function that does nothing but set up: what trains is made beside the call of it.
    while isinstance(training.scope, ast.FunctionDef):
        calls = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == training.scope.name]
        if len(calls) != 1:
            script.say(training.scope, f"{training.scope.name} is called {len(calls)} times")
        outer = script.scope_of(calls[0]) if len(calls) == 1 else None
        has_optimizer = any(value.kind == "optimizer" for value in training.values.values())
        if has_optimizer or not isinstance(outer, (ast.Module, ast.FunctionDef)) or script.statement_of(calls[0]) not in outer.body:
            break
        training.scope, training.joins = outer, script.statement_of(calls[0])
        training.values = Reader(script).read(outer)


def _is_backend(node: ast.expr) -> bool:
    """One that ours stands in for; "nccl" if a device is there, else "gloo"."""
    return isinstance(node, ast.Constant) and node.value in _BACKENDS or isinstance(node, ast.IfExp) and _is_backend(node.body) and _is_backend(node.orelse)


def _is_environment(keyword: ast.keyword) -> bool:
    return keyword.arg == "init_method" and isinstance(keyword.value, ast.Constant) and keyword.value.value == "env://"


def _captures(compiled: ast.Call) -> bool:
    modes = [keyword.value for keyword in compiled.keywords if keyword.arg == "mode"]
    return any(not isinstance(mode, ast.Constant) or mode.value in ("reduce-overhead", "max-autotune") for mode in modes)


# ---- what is registered --------------------------------------------------------------------------------------------------


def _find_things(training: Training) -> None:
    script, scope, values = training.script, training.scope, training.values
    names: dict[int, str] = {}  # the first of each
    for name, value in values.items():
        names.setdefault(id(value), name)
    of_kind = {kind: [value for value in dict.fromkeys(values.values()) if value.kind == kind] for kind in (*KEPT, "loader")}
    training.guessed = True
    if not of_kind["optimizer"]:
        where = [*_made_optimizers(script), *_guess_optimizers(training), scope]
        refuse(where[0], "no optimizer is made by a line of its own beside init_process_group (`optimizer = torch.optim.AdamW(...)`): "
                         "which one is there cannot be read")  # fmt: skip
    training.guessed = False
    wrapped = {id(model.of[0]): model for model in of_kind["model"] if model.of}
    models: dict[int, str] = {}
    for optimizer in of_kind["optimizer"]:
        outermost = []
        for model in optimizer.of:
            while id(model) in wrapped:
                model = wrapped[id(model)]
            outermost.append(model)
        if not outermost or not all(id(model) in names for model in outermost):
            called = names[id(optimizer)]
            script.say(optimizer.node, f"the parameters of '{called}' are not written as those of a model, `{called} = ...(model.parameters())`")
            training.guessed = True
        models.update((id(model), names[id(model)]) for model in outermost if id(model) in names)
    training.things.update(dict.fromkeys(sorted(models.values()), "model"))
    inner = {id(value) for scheduler in of_kind["scheduler"] for value in scheduler.of}  # one that drives others has their state
    for kind in KEPT[1:]:
        training.things.update((names[id(value)], kind) for value in of_kind[kind] if id(value) not in inner)
    training.sharded = any(script.origin(node.func).endswith(".fully_shard") for node in ast.walk(script.tree) if isinstance(node, ast.Call))


def _made_optimizers(script: Script) -> list[ast.Call]:
    return [node for node in ast.walk(script.tree) if isinstance(node, ast.Call) and re.fullmatch(r"torch\.optim\.[A-Z]\w*", script.origin(node.func))]


def _guess_optimizers(training: Training) -> list[ast.AST]:
    """What has its gradients zeroed and is stepped, or is what a scaler steps; where it is made."""
    zeroed: set[str] = set()
    stepped: set[str] = set()
    for node in ast.walk(training.script.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = {part.id for part in (node.func.value, *node.args) if isinstance(part, ast.Name)}
            zeroed |= named if node.func.attr == "zero_grad" else set()
            stepped |= named if node.func.attr == "step" else set()
    training.things.update(dict.fromkeys(zeroed & stepped, "optimizer"))
    return [node for node in ast.walk(training.script.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in zeroed & stepped]


# ---- the loop ------------------------------------------------------------------------------------------------------------


def _find_loop(training: Training) -> None:
    script = training.script
    found: list[tuple[list[Frame], ast.Call, str]] = []
    for path in _paths(training, [Frame(training.scope)]):
        for node in walk(path[-1].function.body, into_functions=False):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
                kind = training.kind(node.func.value, path[-1])
                if kind == "scaler":
                    found.append((path, node, path[-1].outer(node.args[0]) if node.args else ""))
                elif kind == "optimizer":
                    if node.args or node.keywords:
                        script.say(node, "an optimizer that is given a closure evaluates the model in its update: it is refused by kintsugi.torch")
                    found.append((path, node, path[-1].outer(node.func.value)))
    if not found:
        steps = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"]
        raise NotUnderstood([Reason(node.lineno, f"`{script.source(node.func)}()` is no update of an optimizer that is made beside init_process_group and called "
                                                 "there, or in a function that is given it there") for node in steps]
                            or [Reason(getattr(training.group, "lineno", 1), "no optimizer's step() is called")])  # fmt: skip
    stepped = {id(training.values.get(thing)) for *_, thing in found}
    if missing := [name for name, kind in training.things.items() if kind == "optimizer" and name in training.values and id(training.values[name]) not in stepped]:
        script.say(training.scope, f"the step() of {', '.join(sorted(missing))} is not called where the others' is")
    # The loop is in the function that has the update, or in one that calls it.
    places = [_loop_of(script, path, node) for path, node, _ in found]
    if len({loop for _, loop, _ in places}) != 1:
        raise NotUnderstood(Reason(node.lineno, "optimizers are stepped in several places: a step of the run has one update") for _, node, _ in found)
    depth, loop, _ = places[0]
    training.path = found[0][0][: depth + 1]
    anchor: ast.AST = loop
    for frame in reversed(found[0][0][1:]):
        function, call = frame.function, frame.call
        assert isinstance(function, ast.FunctionDef) and call is not None
        if (times := _times_named(training, function)) != 1:
            script.say(call, f"{function.name}, which trains, is named {times} times: it may be called elsewhere")
        for inner, outer in frame.names.items():
            if inner != outer and (inner in script.functions or outer in script.functions):
                script.say(function, f"its parameter '{inner}' is given '{outer}', and one of them is a function of the script: which is called cannot be read")
    if len(training.path) > 1:
        anchor = training.path[1].call or loop
    training.trains = next(statement for statement in training.scope.body if script.within(anchor, statement))
    if not (isinstance(loop, ast.For) or isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and loop.test.value is True) or loop.orelse:
        refuse(loop, "the loop is no `for` over numbers or over a DataLoader, and no `while True`: which iterations there are cannot be read; "
                     "`for i in run.range(n)` gives numbers")  # fmt: skip
    training.loop = loop
    for (path, node, thing), (_, _, within) in zip(found, places):
        if not _is_always_done(script, path, node, within, loop):
            script.say(node, f"'{thing}' is stepped under a condition, or in a loop within the loop: gradients are added up over several batches, which "
                             "run.batches(loader, epoch, accumulate=N) has to be told")  # fmt: skip
        training.updates.append(next(part for part in loop.body if script.within(within, part)))
    training.updates.sort(key=lambda statement: statement.lineno)
    behind = training.scope.body[training.scope.body.index(training.trains) :]
    for name in training.things:
        base, _, attribute = name.rpartition(".")
        if not training.guessed and name in stored(behind) or base and any(attribute in attributes_stored(function) for function in script.reached(behind)):
            script.say(training.trains, f"'{name}' is assigned again from here on: which one trains cannot be read")


def _paths(training: Training, path: list[Frame]) -> list[list[Frame]]:
    """Of calls from function to function of the script's own, each function once."""
    found = [path]
    for node in walk(path[-1].function.body, into_functions=False):
        if isinstance(node, ast.Call) and (frame := called_in(training, node, path[-1])) is not None and all(frame.function is not other.function for other in path):
            found += _paths(training, [*path, frame])
    return found


def _times_named(training: Training, function: Function) -> int:
    """`model.train()` is torch's."""
    script, models = training.script, training.names_of("model", "module", "average")
    if isinstance(script.parent(function), ast.ClassDef):
        return sum(isinstance(node, ast.Attribute) and node.attr == function.name and dotted(node.value) not in models for node in ast.walk(script.tree))
    return sum(isinstance(node, ast.Name) and node.id == function.name for node in ast.walk(script.tree))


def _loop_of(script: Script, path: list[Frame], node: ast.Call) -> tuple[int, ast.AST, ast.AST]:
    """In which frame, which loop, and what in it has the update."""
    at: ast.AST = node
    for depth in range(len(path) - 1, -1, -1):
        if loops := loops_around(script, at, path[depth].function):
            return depth, loops[0], at
        at = path[depth].call or at
    refuse(node, "this update stands in no loop")


def _is_always_done(script: Script, path: list[Frame], node: ast.Call, within: ast.AST, loop: ast.For | ast.While) -> bool:
    """In each iteration, once: a line of the loop, and of each function that is called for it."""
    at: ast.AST = node
    for frame in reversed(path):
        statement = script.parent(at)
        body = loop.body if at is within else frame.function.body
        if not isinstance(statement, ast.stmt) or statement not in body:
            return False
        if at is within:
            return True
        if any(isinstance(part, ast.Return) for before in body[: body.index(statement)] for part in walk(before, into_functions=False)):
            return False
        at = frame.call or at
    return False


def _find_epochs(training: Training) -> None:
    if training.loop is None:
        return
    around: list[ast.AST] = []
    at: ast.AST = training.loop
    for frame in reversed(training.path):
        around += loops_around(training.script, at, frame.function)
        at = frame.call or at
    if len(around) > 1:
        refuse(training.loop, f"{len(around)} loops are around this one: which is an epoch cannot be read; one of them may be `for i in run.range(n)`")
    if around:
        epochs = around[0]
        if not (isinstance(epochs, ast.For) and isinstance(epochs.target, ast.Name) and is_range(epochs.iter) and not epochs.orelse):
            refuse(epochs, "the loop around the steps is no `for epoch in range(...)`")
        training.epochs = epochs
        for node in walk(epochs.body, into_functions=False):
            if isinstance(node, (ast.Break, ast.Return)) and not training.script.within(node, training.loop):
                training.script.say(node, "the epochs end early: all ranks have to decide alike, `if run.stop_if(...): break`")


def _check_walk(training: Training) -> None:
    if training.loop is None or training.trains is None:
        return
    walked = walked_loader(training)
    if walked is None and not is_range(training.head) and not isinstance(training.loop, ast.While):
        refuse(training.loop, f"it walks `{training.script.source(training.head)}`, of which can be read neither that it is range(...) nor a DataLoader "
                              "that is made beside init_process_group, bare or in enumerate()")  # fmt: skip
    if walked is None and training.epochs is not None:
        refuse(training.loop, "a loop over numbers, or without end, within another: give the run one `for i in run.range(n)`")
    training.walks = True


def is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords
