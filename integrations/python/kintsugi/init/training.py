"""What trains in a script: process group, models, optimizers and their like, the loop whose body is a step, the epochs around it.

Whatever could not be kept through a fault is refused here, with its line: variables that steps carry on, things that they change, ends of the
loop that not all ranks would come to.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field

from .script import NEEDS_SECTION, Function, NotUnderstood, Reason, Scope, Script, loaded, parameters, refuse, stored, walk

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
_DDP = "torch.nn.parallel.DistributedDataParallel"
_LOADER = "torch.utils.data.DataLoader"


@dataclass
class Training:
    script: Script
    scope: Scope  # where the process group is made, and what is registered
    group: ast.Call | None = None
    guessed: bool = False  # which optimizers there are was not read, but taken from how they are used: good for reasons, not for lines
    things: dict[str, str] = field(default_factory=dict)  # names to be registered: model, optimizer, scheduler, average, scaler
    loaders: set[str] = field(default_factory=set)
    ranks: set[str] = field(default_factory=set)  # names of this process's rank
    masters: set[str] = field(default_factory=set)  # names that are true on rank 0 alone
    local_ranks: set[str] = field(default_factory=set)
    sharded: bool = False
    holder: Scope | None = None  # the function that has the loop
    call: ast.Call | None = None  # the one call of it, where it is not `scope`
    names: dict[str, str] = field(default_factory=dict)  # a name in `holder`: what it is in `scope`
    loop: ast.For | None = None
    updates: list[ast.stmt] = field(default_factory=list)
    step: list[ast.stmt] = field(default_factory=list)  # the loop's body up to what has to come behind the step
    behind: list[ast.stmt] = field(default_factory=list)  # ... and from there on: evaluations, saves
    epochs: ast.For | None = None
    epoch: str | None = None  # its variable, by its name in `holder`
    walks: bool = False  # which iterations there are was read
    trains: ast.stmt | None = None  # the statement of `scope` in which training is
    carried: list[str] = field(default_factory=list)


def find(script: Script) -> Training:
    """What there is of it, where `script.reasons` has some in the end: each part goes as far as those before it let it."""
    _refuse_frameworks(script)
    training = Training(script, script.tree)
    for part in (_refuse_others, _find_group, _find_things, _find_loop, _find_epochs, _check_walk, _check_body):
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
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict":
            script.say(node, "the script goes on from a state of its own: leave that to `kintsugi run --resume`, or see 'Beside a resume of your own' "
                             "in integrations/python/docs/your_loop.md")  # fmt: skip
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await)):
            script.say(node, "asynchronous functions are not read")


def _find_group(training: Training) -> None:
    script = training.script
    groups = script.calls(script.tree, "torch.distributed.init_process_group")
    if not groups:
        made = _made_optimizers(script)
        scope = script.scope_of(made[0]) if made else script.tree
        training.scope = scope if isinstance(scope, (ast.Module, ast.FunctionDef)) else script.tree
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
    if isinstance(scope, ast.FunctionDef):
        calls = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == scope.name]
        if len(calls) != 1:
            script.say(scope, f"{scope.name} is called {len(calls)} times")
    training.group = group


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
    script, scope = training.script, training.scope
    made = {node.targets[0].id: node.value for node in scope.body
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)}  # fmt: skip
    training.guessed = True
    optimizers: dict[str, ast.Call] = {}
    schedulers: dict[str, ast.Call] = {}
    wrapped: dict[str, str] = {}
    for name, value in made.items():
        if not isinstance(value, ast.Call):
            if is_rank_zero(training, value):
                training.masters.add(name)
            continue
        origin = script.origin(value.func)
        if origin.startswith("torch.optim.lr_scheduler."):
            schedulers[name] = value
        elif origin == "torch.optim.swa_utils.AveragedModel":
            training.things[name] = "average"
        elif origin.startswith("torch.optim."):
            optimizers[name] = value
        elif origin.rsplit(".", 1)[-1] == "GradScaler" and origin.startswith("torch."):
            training.things[name] = "scaler"
        elif origin == _LOADER:
            training.loaders.add(name)
        elif origin == _DDP and value.args and isinstance(value.args[0], ast.Name):
            wrapped[value.args[0].id] = name
        elif origin == "torch.distributed.get_rank" or any(isinstance(node, ast.Constant) and node.value == "RANK" for node in ast.walk(value)):
            training.ranks.add(name)
        elif origin == "torch.distributed.get_node_local_rank" or any(isinstance(node, ast.Constant) and node.value == "LOCAL_RANK" for node in ast.walk(value)):
            training.local_ranks.add(name)
    if not optimizers:
        where = [*_made_optimizers(script), *_guess_optimizers(training), scope]
        refuse(where[0], "no optimizer is made by a line of its own beside init_process_group (`optimizer = torch.optim.AdamW(...)`): "
                         "which one is there cannot be read")  # fmt: skip
    training.guessed = False
    for name, value in optimizers.items():
        models = {node.func.value.id for node in ast.walk(value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                  and node.func.attr in ("parameters", "named_parameters") and isinstance(node.func.value, ast.Name)}  # fmt: skip
        if not models or not models <= made.keys() | wrapped.keys():
            script.say(value, f"the parameters of '{name}' are not written as those of a model, `{name} = ...(model.parameters())`")
        training.things.update({wrapped.get(model, model): "model" for model in sorted(models)})
    training.things.update(dict.fromkeys(optimizers, "optimizer"))
    # One that drives others has their state.
    inner = {node.id for value in schedulers.values() for part in (*value.args, *value.keywords) for node in ast.walk(part)
             if isinstance(node, ast.Name) and node.id in schedulers}  # fmt: skip
    training.things.update(dict.fromkeys((name for name in schedulers if name not in inner), "scheduler"))
    order = ("model", "average", "optimizer", "scheduler", "scaler")
    training.things = dict(sorted(training.things.items(), key=lambda item: order.index(item[1])))
    training.sharded = any(script.origin(node.func).endswith(".fully_shard") for node in ast.walk(script.tree) if isinstance(node, ast.Call))
    for name in training.things:
        times = sum(name in stored(node) for node in scope.body)
        if times != 1 and not (name in wrapped.values() and times == 2 and wrapped.get(name) == name):
            script.say(scope, f"'{name}' is assigned {times} times: which one trains cannot be read")


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


def is_rank_zero(training: Training, test: ast.expr) -> bool:
    """`rank == 0`, `dist.get_rank() == 0`, or a name for it."""
    if isinstance(test, ast.Name):
        return training.names.get(test.id, test.id) in training.masters
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    zero, left = test.comparators[0], test.left
    is_rank = isinstance(left, ast.Name) and training.names.get(left.id, left.id) in training.ranks
    is_rank = is_rank or isinstance(left, ast.Call) and training.script.origin(left.func) == "torch.distributed.get_rank"
    return is_rank and isinstance(zero, ast.Constant) and zero.value == 0



# ---- the loop ------------------------------------------------------------------------------------------------------------


def _find_loop(training: Training) -> None:
    script = training.script
    holders: list[tuple[Scope, ast.Call | None, dict[str, str]]] = [(training.scope, None, {})]
    for node in walk(training.scope.body, into_functions=False):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in script.functions:
            function = script.functions[node.func.id]
            holders.append((function, node, _bound(function, node)))
    found = []
    for holder, call, names in holders:
        for node in walk(holder.body, into_functions=False):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step" and isinstance(node.func.value, ast.Name):
                thing = names.get(node.func.value.id, node.func.value.id)
                given = [argument.id for argument in node.args if isinstance(argument, ast.Name)]
                if training.things.get(thing) == "scaler":
                    found.append((holder, call, names, node, names.get(given[0], given[0]) if given else ""))
                elif training.things.get(thing) == "optimizer":
                    if node.args or node.keywords:
                        script.say(node, "an optimizer that is given a closure evaluates the model in its update: it is refused by kintsugi.torch")
                    found.append((holder, call, names, node, thing))
    if not found:
        steps = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"]
        raise NotUnderstood([Reason(node.lineno, f"`{script.source(node.func)}()` is no update of an optimizer that is made beside init_process_group and called "
                                                 "there, or in a function that is given it there") for node in steps]
                            or [Reason(getattr(training.group, "lineno", 1), "no optimizer's step() is called")])  # fmt: skip
    optimizers = {name for name, kind in training.things.items() if kind == "optimizer"}
    if missing := optimizers - {thing for *_, thing in found}:
        script.say(training.scope, f"the step() of {', '.join(sorted(missing))} is not called where the others' is")
    loops = {_innermost(training, node) for *_, node, _ in found}
    if len(loops) != 1 or len({id(holder) for holder, *_ in found}) != 1:
        raise NotUnderstood(Reason(node.lineno, "optimizers are stepped in several places: a step of the run has one update") for *_, node, _ in found)
    training.holder, training.call, training.names = found[0][:3]
    for inner, outer in training.names.items():
        if inner != outer and (inner in script.functions or outer in script.functions):
            script.say(training.holder, f"its parameter '{inner}' is given '{outer}', and one of them is a function of the script: which is called cannot be read")
    loop = loops.pop()
    if not isinstance(loop, ast.For) or loop.orelse:
        refuse(loop, "the loop is no `for` over numbers or over a DataLoader: which iterations there are cannot be read; "
                     "`for i in run.range(n)` gives numbers")  # fmt: skip
    training.loop = loop
    for *_, node, thing in found:
        statement = script.parent(node)
        if not isinstance(statement, ast.stmt) or statement not in loop.body:
            script.say(node, f"'{thing}' is stepped under a condition, or in a loop within the loop: gradients are added up over several batches, which "
                             "run.batches(loader, epoch, accumulate=N) has to be told")  # fmt: skip
            statement = next(part for part in loop.body if script.within(node, part))
        training.updates.append(statement)
    if training.call is not None:
        name = training.call.func.id  # type: ignore[attr-defined]
        times = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(script.tree))
        if times != 1:
            script.say(training.call, f"{name}, which trains, is named {times} times: it may be called elsewhere")
    anchor: ast.AST = training.call or loop
    training.trains = next(statement for statement in training.scope.body if script.within(anchor, statement))


def _bound(function: Function, call: ast.Call) -> dict[str, str]:
    """Parameters that are given a name, by what that is."""
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(keyword.arg is None for keyword in call.keywords):
        return {}
    given = dict(zip(parameters(function), call.args))
    given.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    return {name: value.id for name, value in given.items() if isinstance(value, ast.Name)}


def _innermost(training: Training, node: ast.AST) -> ast.AST:
    at = node
    while True:
        at = training.script.parent(at)
        if isinstance(at, (ast.For, ast.While)):
            return at
        if isinstance(at, (ast.Module, ast.FunctionDef)):
            refuse(node, "this update stands in no loop")


def _loops_around(training: Training, node: ast.AST, end: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    while node is not end:
        node = training.script.parent(node)
        if isinstance(node, (ast.For, ast.While)):
            found.append(node)
    return found


def _find_epochs(training: Training) -> None:
    if training.loop is None or training.holder is None:
        return
    around = _loops_around(training, training.loop, training.holder)
    if training.call is not None:
        around += _loops_around(training, training.call, training.scope)
    if len(around) > 1:
        refuse(training.loop, f"{len(around)} loops are around this one: which is an epoch cannot be read; one of them may be `for i in run.range(n)`")
    if around:
        epochs = around[0]
        is_range = isinstance(epochs, ast.For) and isinstance(epochs.target, ast.Name) and _is_range(epochs.iter) and not epochs.orelse
        if not is_range:
            refuse(epochs, "the loop around the steps is no `for epoch in range(...)`")
        assert isinstance(epochs, ast.For) and isinstance(epochs.target, ast.Name)
        training.epochs = epochs
        names = {outer: inner for inner, outer in training.names.items()} if training.call is not None else {}
        training.epoch = names.get(epochs.target.id) if training.call is not None and not training.script.within(training.loop, epochs) else epochs.target.id
        for node in walk(epochs.body, into_functions=False):
            if isinstance(node, (ast.Break, ast.Return)) and not training.script.within(node, training.loop):
                training.script.say(node, "the epochs end early: all ranks have to decide alike, `if run.stop_if(...): break`")


def _check_walk(training: Training) -> None:
    if training.loop is None or training.trains is None:
        return
    walked = walked_loader(training)
    if walked is None and not _is_range(training.loop.iter):
        refuse(training.loop, f"it walks `{training.script.source(training.loop.iter)}`, of which can be read neither that it is range(...) nor a DataLoader "
                              "that is made beside init_process_group, bare or in enumerate()")  # fmt: skip
    if walked is None and training.epochs is not None:
        refuse(training.loop, "a loop over numbers within another: give the run one `for i in run.range(n)`")
    if walked is not None and training.epochs is not None and training.epoch is None:
        refuse(training.loop, "the epoch's number is not known where the loader is walked: pass it to the function")
    training.walks = True


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords


def walked_loader(training: Training) -> ast.Name | None:
    """The loader that the loop walks, bare or in enumerate()."""
    assert training.loop is not None
    walked = training.loop.iter
    if isinstance(walked, ast.Call) and isinstance(walked.func, ast.Name) and walked.func.id == "enumerate" and len(walked.args) == 1 and not walked.keywords:
        walked = walked.args[0]
    is_loader = isinstance(walked, ast.Name) and training.names.get(walked.id, walked.id) in training.loaders
    return walked if is_loader and isinstance(walked, ast.Name) else None


def _check_body(training: Training) -> None:
    if training.loop is not None:
        _Body(training).check()


# ---- the step ------------------------------------------------------------------------------------------------------------


class _Body:
    """The loop's body, which may be run again for a step that is void."""

    def __init__(self, training: Training) -> None:
        assert training.loop is not None and training.holder is not None
        self._training, self._script, self._loop, self._holder = training, training.script, training.loop, training.holder
        # A name that is given for another is that other.
        self._known = {inner for inner, outer in training.names.items() if outer in training.things} | set(training.things)
        self._models = frozenset(name for name in self._known if training.things.get(training.names.get(name, name)) in ("model", "average"))
        self._loaders = frozenset(training.loaders)

    def check(self) -> None:
        self._divide()
        self._refuse_ends()
        self._refuse_carried()
        if not self._training.guessed:
            self._refuse_changes(self._training.step, stored(self._training.step) | stored(self._loop.target), set())

    def _refuse_ends(self) -> None:
        for node in walk(self._loop.body):
            ends = isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom))
            if isinstance(node, (ast.Break, ast.Continue)):
                ends = _loops_around(self._training, node, self._loop) == [self._loop]
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
        at = next((n for n in range(last + 1, len(body)) if self._script.effects(body[n], self._models, self._loaders) & NEEDS_SECTION), len(body))
        self._training.step, self._training.behind = body[:at], body[at:]
        what = {"save": "a save", "loader": "another loader"}
        for statement in body[: last + 1]:
            for effect in sorted(self._script.effects(statement, self._models, self._loaders) & what.keys()):
                self._script.say(statement, f"{what[effect]} before the update, within the step: it belongs before or behind the step, into run.do "
                                     "(integrations/python/docs/your_loop.md)")  # fmt: skip

    def _in_step(self, node: ast.AST) -> bool:
        return any(self._script.within(node, statement) for statement in self._training.step)

    def _refuse_carried(self) -> None:
        body, epochs = self._training.step, self._training.epochs
        own = stored(body)
        given = stored(self._loop.target)
        written = set(given)
        carried: dict[str, ast.AST] = {}
        for statement in body:
            for name in sorted(_read_first(statement, own - written)):
                carried.setdefault(name, statement)
            written |= _surely_written(statement)
        for node in ast.walk(self._holder):
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in own) or self._in_step(node):
                continue
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

    def _refuse_changes(self, body: list[ast.stmt], own: set[str], seen: set[str]) -> None:
        """Of things that are neither registered nor made in the step: nobody would put them back."""
        for node in walk(body, into_functions=False):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                self._script.say(node, f"a step changes {', '.join(node.names)} of another scope: a fault would not put that back; see run.keep")
            if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)) and not self._is_kept(_base(node), own):
                self._script.say(node, f"a step changes `{self._script.source(node)}`: a fault would not put that back; see run.keep, or register it")
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name):
                self._follow(node, node.func.id, own, seen)
            elif isinstance(node.func, ast.Attribute) and not self._script.origin(node.func) and not self._is_harmless(node.func, own):
                self._script.say(node, f"a step calls `{self._script.source(node.func)}`, which may change `{_base(node.func) or 'something'}`: a fault would not put "
                                "that back; see run.keep, or register it")  # fmt: skip

    def _follow(self, call: ast.Call, name: str, own: set[str], seen: set[str]) -> None:
        name = self._training.names.get(name, name)
        if name in self._script.functions:
            function = self._script.functions[name]
            if name not in seen:
                self._refuse_changes(function.body, {*stored(function.body), *_locals(function), *parameters(function)}, seen | {name})
        elif name in ("next", "setattr", "exec", "eval", "delattr"):
            self._script.say(call, f"a step calls {name}(): what that changes, a fault would not put back")
        elif not (name in self._known or name in own or name in self._script.classes or hasattr(builtins, name) or self._script.origin(call.func)
                  or self._made_by_torch(name)):  # fmt: skip
            self._script.say(call, f"a step calls `{name}`, of which cannot be read what it is")

    def _is_kept(self, base: str, own: set[str]) -> bool:
        return base in own or base in self._known

    def _is_harmless(self, function: ast.Attribute, own: set[str]) -> bool:
        """Of what the step made itself, of what is registered, of modules of torch's; or a look at a value."""
        base = _base(function)
        if self._is_kept(base, own) or not base or self._is_of_torchs_result(function):
            return True
        return self._made_by_torch(self._training.names.get(base, base)) and not function.attr.endswith("_")

    def _is_of_torchs_result(self, function: ast.Attribute) -> bool:
        """`torch.randn(16, 2).to(device)`."""
        at: ast.expr = function
        while isinstance(at, (ast.Attribute, ast.Subscript, ast.Call)):
            if isinstance(at, ast.Call) and self._script.origin(at.func).startswith("torch."):
                return True
            at = at.func if isinstance(at, ast.Call) else at.value
        return False

    def _made_by_torch(self, name: str) -> bool:
        """A loss, a tensor: whose calls change nothing but by a method that says so (`add_`)."""
        made = [node.value for scope in (self._training.scope, self._script.tree) for node in scope.body
                if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)]  # fmt: skip
        return len(made) > 0 and all(isinstance(value, ast.Call) and self._script.origin(value.func).startswith(("torch.nn.", "torch.rand", "torch.amp.autocast"))
                                     for value in made)  # fmt: skip


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


def _base(node: ast.expr) -> str:
    """The name that a chain of attributes, elements and calls begins with."""
    at: ast.expr = node
    while isinstance(at, (ast.Attribute, ast.Subscript, ast.Call)):
        at = at.func if isinstance(at, ast.Call) else at.value
    return at.id if isinstance(at, ast.Name) else ""
