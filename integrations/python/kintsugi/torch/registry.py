"""What a run of torch protects: which models, optimizers and schedulers, under which names, and where their tensors lie.

The same things may be registered once more (`TorchRun.build`): made anew, they take the places of those before them, in the memory and
under the names that the run knows. Nothing of another name, shape or layout can come then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Sampler

from .._errors import Error
from ..abi import Code
from ..cuts import Cut
from ..run import Run
from ..slices import Held
from ..take_over import TakeOver
from ..terms import Codec, Piece
from . import ddp_layout, parallel, state
from .attributes import Attributes
from .averages import Count
from .cut_parameters import CutParameters
from .devices import Device, DeviceArena
from .drafts import Drafts, bytes_of
from .framework import Framework
from .optimizers import KeptOptimizer, refuse
from .sharing import Sharing, sharing_of
from .streams import Drawn, has_state, kinds_of_generators

Entry = tuple[str, torch.Tensor, Piece]
AN_OLD_ONE = "what run.build has made anew since: ask in each step for what it returned (built.model, built.optimizer)"


class Hooks(NamedTuple):
    """What the run wants to be told by torch."""

    before_update: Callable[..., None]
    after_update: Callable[..., None]
    mark: Callable[[str], None]


@dataclass(frozen=True)
class _Held:
    key: str
    kind: str
    size: int
    holders: tuple[int, ...]


class Registry:
    """Threads: the trainer's."""

    def __init__(self, run: Run, extension: Any, device: Device, hooks: Hooks, calls: Callable[[], int]) -> None:
        self._run = run
        self._device = device
        self._extension = extension
        self._hooks = hooks
        self._calls = calls  # collectives so far
        self._arena = state.Arena(run.state_memory, extension.place, DeviceArena(device, extension))
        self._tensors: dict[str, _Held] = {}
        self._also: dict[str, list[str]] = {}  # further names of registered tensors
        self._said: dict[str, TakeOver] = {}  # of objects that are about to be registered
        self._other_shapes: dict[str, bool] = {}  # patterns of tensors that may have been saved in another shape; whether one is called so
        self._large: dict[str, int] = {}  # buffers that are objects of their own, and their bytes
        self._cut = CutParameters()
        self._again: list[list[Entry]] | None = None  # what is being registered once more, as it comes
        self._named_again: list[tuple[str, str]] = []
        # What is registered, where what is here now may be it from the next step on.
        self._before: tuple[dict[str, _Held], dict[str, list[str]], state.Room] | None = None
        self._forget()

    def _forget(self) -> None:
        self._known: dict[int, tuple[str, Any]] = {}  # by identity, and the thing, so that it stays its own
        self.models: list[Module] = []
        self.named_models: dict[str, Module] = {}
        self.sharded: list[Any] = []  # FSDP2's groups of parameters
        self.optimizers: list[Optimizer] = []
        self.kept: dict[Optimizer, KeptOptimizer] = {}
        self.drafts = Drafts(self._extension)
        self.sharing: dict[Optimizer, Sharing] = {}  # those that deal their state out
        self.frameworks: list[Framework] = []
        self.parameters: dict[torch.Tensor, str] = {}
        self._tied: dict[torch.Tensor, list[str]] = {}  # names of a parameter beside its first
        self.together: set[tuple[int, ...]] = set()  # ranks that hold a tensor together
        self._cut_ways: set[tuple[Any, ...]] = set()  # of which these are known
        self.places = self._extension.Places()  # where registered tensors must stay

    # ---- what scripts register ------------------------------------------------------------------------------------------

    def add(self, things: dict[str, Any], take_over: dict[str, TakeOver], rules: dict[str, Cut], other_shapes: Iterable[str] = ()) -> None:
        """`TorchRun.register`."""
        self._said = take_over
        self._other_shapes = dict.fromkeys(other_shapes, False)
        things = {name: state.unwrapped(thing) for name, thing in things.items()}
        for name, thing in things.items():
            refuse(name, thing)
            self._refuse_second(name, thing)
        models = {name: thing for name, thing in things.items() if isinstance(thing, Module)}
        optimizers = {name: thing for name, thing in things.items() if isinstance(thing, Optimizer)}
        for name, optimizer in optimizers.items():
            if (shares := sharing_of(optimizer)) is not None:
                self._share(name, optimizer, shares)
        with self._cut.rules(rules, (f"{name}/{key}" for name, model in models.items() for key, _ in _inner(model).named_parameters())):
            for name, model in models.items():
                self._add_model(name, model)
        for name, optimizer in optimizers.items():
            self._add_optimizer(name, optimizer)
        for name, thing in things.items():
            if name in models or name in optimizers:
                continue
            if isinstance(thing, torch.amp.GradScaler):
                thing = state.LossScale(thing)
            elif isinstance(thing, Sampler) and not hasattr(thing, "state_dict"):
                thing = state.Epoch(thing)
            elif isinstance(thing, kinds_of_generators()) and not has_state(thing):
                thing = Drawn(thing)
            self._add_object(name, thing, state.take_over_of(thing))
        if self._said:
            raise Error(f"take_over names {', '.join(self._said)}: no such object is in this call", Code.INVALID_ARGUMENT)
        if unused := [pattern for pattern, used in self._other_shapes.items() if not used]:
            raise Error(f"allow_shape_mismatch names '{unused[0]}', as no tensor in this call is called (run.plan() shows their names)", Code.INVALID_ARGUMENT)

    def _refuse_second(self, name: str, thing: Any) -> None:
        """Its update would be waited for twice, and comes once."""
        thing = _inner(thing) if isinstance(thing, Module) else thing
        if id(thing) in self._known:
            raise Error(f"'{name}' is registered already, as '{self._known[id(thing)][0]}': register each model, optimizer and object once",
                        Code.INVALID_ARGUMENT)  # fmt: skip
        self._known[id(thing)] = name, thing

    def follow(
        self, framework: Framework, models: Iterable[tuple[str, Module]], entries: Iterable[Entry], take_over: dict[str, TakeOver]
    ) -> None:
        """`TorchRun.follow`."""
        self._said = take_over
        for name, model in models:
            self._know(model)
            if names := [key for key, _ in model.named_buffers()]:
                self._add_buffers(name, model, names, None)  # stages of a pipeline have those of different layers under one name
            else:
                self._add_object(f"{name}.buffers", state.Buffers(model, self._extension), "derived")
            self._accompany(model)
        self._hold(list(entries))
        self.frameworks.append(framework)

    def refuse_target(self, key: str, tensor: torch.Tensor) -> None:
        """Of a reshard: what is registered changes in updates alone. Tensors in the host's memory the agent knows itself."""
        local = parallel.local_of(tensor)
        storage = local.untyped_storage().data_ptr()
        held = itertools.chain(*(model.buffers() for model in self.models))
        if local.device.type != "cpu":
            states = (value for optimizer in self.optimizers for state in optimizer.state.values() for value in state.values())
            held = itertools.chain(held, self.parameters, (value for value in states if isinstance(value, torch.Tensor)))
        if storage and any(parallel.local_of(one).untyped_storage().data_ptr() == storage for one in held):
            raise Error(f"target '{key}' lies in a tensor of a registered model or its optimizer, which changes in steps alone: reshard into memory of its own",
                        Code.INVALID_ARGUMENT)  # fmt: skip

    @property
    def cuts_by_rules(self) -> bool:
        return self._cut.has_rules

    def note_alias(self, alias: str, key: str) -> None:
        self._also.setdefault(key, []).append(alias)

    def change_world(self) -> None:
        """Other ranks hold what all of them hold."""
        holders = self._run.usual_holders()
        self._tensors = {key: replace(held, holders=holders) for key, held in self._tensors.items()}

    def held(self) -> Iterator[Held]:
        """Each tensor, or this rank's part of it."""
        return (Held(held.key, held.kind, held.holders) for held in self._tensors.values())

    def registered(self) -> Iterator[Any]:
        """What scripts registered, and the optimizers within."""
        yield from (thing for _, thing in self._known.values())
        for kept in self.kept.values():
            yield from kept.optimizers()

    def is_registered(self, optimizer: Optimizer) -> bool:
        """By itself, or within another."""
        if optimizer in self.kept or id(optimizer) in self._known:
            return True
        return any(optimizer is one for kept in self.kept.values() for one in kept.optimizers())

    # ---- the same once more ---------------------------------------------------------------------------------------------

    def begin_again(self, things: dict[str, Any]) -> None:
        """All that was registered is made anew: what follows by name takes its place, and its tensors still lie in memory of their
        own, where anything may be done with them."""
        self._forget()
        self._again, self._named_again = [], []
        self._cut.forget()
        self.add(things, {}, {})

    def end_again(self, others: bool = False) -> None:
        """The tensors lie in the run's memory from now on, and what they hold is what that memory holds. `others`: other ranks take part, and hold the
        same pieces."""
        entries, self._again = [*itertools.chain(*(self._again or []))], None
        found = [(key, parallel.local_of(tensor), piece) for key, tensor, piece in entries if _is_held(tensor)]
        held = [self._held_as(key, local, piece)[0] for key, local, piece in found]
        if missing := self._tensors.keys() - {one.key for one in held}:
            raise Error(f"the function given to run.build made '{min(missing)}' before, and does not now", Code.INVALID_ARGUMENT)
        for one in held:
            before = self._tensors.get(one.key)
            if others and before is not None and replace(before, holders=one.holders) == one:
                self._tensors[one.key] = one
            elif others:
                was = "nothing of that name" if before is None else before.kind
                raise Error(f"among {self._run.world_size} ranks the function given to run.build made '{one.key}' as {one.kind} on rank {self._run.rank}, where the "
                            f"rank had {was}: bytes would have to move, which they do not. Offer worlds in which each rank holds the same (run.offer)",
                            Code.FAILED_PRECONDITION)  # fmt: skip
            elif before != one:
                was = "nothing of that name" if before is None else f"{before.kind} of ranks {list(before.holders)}"
                raise Error(f"the function given to run.build made '{one.key}' as {one.kind} of ranks {list(one.holders)}, before it was "
                            f"{was}: it has to make the same again", Code.INVALID_ARGUMENT)  # fmt: skip
        self._arena.bind((key, local) for key, local, _ in found if local.numel())
        self._stay(entries)

    def end_cut_anew(self) -> None:
        """The tensors lie in memory of their own, and are what this rank is to hold among the ranks that take part now."""
        again, self._again = self._again or [], None
        self._before = self._tensors, self._also, self._arena.move_out()
        self._tensors, self._also = {}, {}
        for entries in again:  # in as many pieces of memory as in a process that begins with them, which may adopt it
            self._register(entries)
        for alias, key in self._named_again:
            self._add_alias(alias, key)

    def keep_cut(self) -> None:
        assert self._before is not None
        (_, _, room), self._before = self._before, None
        room.give_up()

    def drop_cut(self) -> None:
        """It came to nothing: what was registered before is what will be made anew."""
        if self._before is not None:
            (self._tensors, self._also, room), self._before = self._before, None
            self._arena.move_back(room)

    # ---- models ---------------------------------------------------------------------------------------------------------

    def _add_model(self, name: str, model: Module) -> None:
        parallel.refuse_flat(name, model)
        ddp_layout.refuse(model)
        inner = _inner(model)
        plain = parallel.plain_holders(model, self._run.usual_holders())
        self._know(inner)
        entries: list[Entry] = []
        for key, parameter in inner.named_parameters():
            owners = next((ranks for shares in self.sharing.values() if (ranks := shares.owners(parameter)) is not None), None)
            if self._cut.take(f"{name}/{key}", key, parameter, owners is not None):
                entries += self._cut.entries(f"{name}/", parameter)
            # What another rank updates is gathered from there: it is no state of this one's.
            elif owners is None or self._run.rank in owners:
                entries += _entries(f"{name}/{key}", parameter, owners or plain)
        self._hold(entries)
        self._add_names_of_tied(name, inner)
        names = [key for key, _ in inner.named_buffers()]
        if isinstance(inner, AveragedModel):  # all ranks count alike, whatever else they have of their own
            count = Count(inner, self._extension, lambda: self.named_models, self._device.side.note)
            self._add_object(f"{name}.count", count, "rank-zero")
            self._run.make_again(f"{name}.count", count.make_again)
            names.remove("n_averaged")
        if names:
            self._add_buffers(name, inner, names, state.Buffers(inner, self._extension, names).take_over)
        self._add_object(f"{name}.attributes", Attributes(inner), Attributes.take_over)
        self.named_models[name] = model
        self._accompany(model)

    def _add_buffers(self, name: str, model: Module, names: list[str], known: TakeOver | None) -> None:
        """Large ones by themselves: a small one that changes at every step does not bring them along."""
        known = self._said.pop(f"{name}.buffers", known)
        large = state.large_buffers(model, names)
        for key in large:
            self._add_object(f"{name}.buffers/{key}", state.LargeBuffer(model, self._extension, key), known)
            self._large[f"{name}.buffers/{key}"] = model.get_buffer(key).nbytes
        if small := [key for key in names if key not in large]:
            self._add_object(f"{name}.buffers", state.Buffers(model, self._extension, small), known)

    def _know(self, inner: Module) -> None:
        """Parameters that come later than these are told."""
        for key, parameter in inner.named_parameters():
            self.parameters[parameter] = key
            self.places.know(parameter)
        for module in inner.modules():
            self.places.watch(module._parameters)

    def _accompany(self, model: Module) -> None:
        """Marks where a step stands in it, and what a broken one leaves in it is dropped."""
        self.models.append(model)
        self.sharded += parallel.sharded_groups(model)
        model.register_forward_pre_hook(lambda *_: self._mark(model, "forward"))
        model.register_forward_hook(lambda *_: self._mark(model, "backward"))

    def _mark(self, model: Module, phase: str) -> None:
        if all(model is not one for one in self.models):
            raise Error(f"a forward pass of {AN_OLD_ONE}", Code.FAILED_PRECONDITION)
        self._device.side.note()
        self._hooks.mark(phase)

    def _add_names_of_tied(self, name: str, model: Module) -> None:
        """Tied parameters are one tensor with several names: registered under the first."""
        firsts = {parameter: key for key, parameter in model.named_parameters()}
        for key, parameter in model.named_parameters(remove_duplicate=False):
            if (first := firsts[parameter]) != key:
                self._tied.setdefault(parameter, []).append(key)
                for part in self._cut.suffixes(parameter, first):
                    self._add_alias(f"{name}/{key}{part}", f"{name}/{first}{part}")

    # ---- optimizers -----------------------------------------------------------------------------------------------------

    def _add_optimizer(self, name: str, optimizer: Optimizer) -> None:
        # What an optimizer of the script's own may change beside the parameters that it has.
        others = (tensor for model in self.models for tensor in itertools.chain(model.parameters(), model.buffers()))
        names = self._names_in(optimizer)
        kept = KeptOptimizer(name, optimizer, names, self._calls, self._extension.StateValues(), others, self.sharing.get(optimizer))
        if any(kept.optimizer is member for known in self.kept.values() for member in known.optimizers()):
            raise Error(f"'{name}' is registered already, or is within another optimizer that is", Code.INVALID_ARGUMENT)
        entries: list[Entry] = []
        for member, parameter, key, value in kept.states():
            if self._cut.cuts(parameter, value):
                entries += self._cut.entries(f"{name}{member}/", parameter, f".{key}", value)
            else:
                entries += _entries(f"{name}{member}/{names[parameter]}.{key}", value, self._whole_holders(parameter))
        usual = self._run.usual_holders()
        for suffix, owner, record in kept.records(lambda parameter: optimizer in self.sharing or self._whole_holders(parameter) != usual):
            entries += _entries(f"{name}{suffix}", record, usual if owner is None else self._whole_holders(owner))
        self._add_object(f"{name}.settings", kept, kept.take_over)
        self._hold(entries)
        kept.begin()
        for member, parameter, key, _ in kept.states():
            first = self.parameters[parameter]
            for other, part in itertools.product(self._tied.get(parameter, ()), self._cut.suffixes(parameter, first)):
                of_model = names[parameter].removesuffix(first)
                self._add_alias(f"{name}{member}/{of_model}{other}{part}.{key}", f"{name}{member}/{of_model}{first}{part}.{key}")
        kept.hook(self._hooks.before_update, self._hooks.after_update)
        self.optimizers.append(kept.optimizer)
        self.kept[kept.optimizer] = kept

    def _names_in(self, optimizer: Optimizer) -> dict[torch.Tensor, str]:
        """Of all parameters; where it has several of one name, those of the later models stand under their model's, too."""
        own = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        found = dict(self.parameters)
        taken: set[str] = set()
        for model, parameter in ((name, p) for name, model in self.named_models.items() for p in _inner(model).parameters() if p in own):
            if found[parameter] in taken:
                found[parameter] = f"{model}/{found[parameter]}"
            taken.add(found[parameter])
        return found

    def draft(self, optimizer: Optimizer) -> None:
        """Before it steps, ahead of the gate."""
        self.drafts.before_step(tensor for tensor in self.kept[optimizer].tensors() if self._arena.holds(tensor))

    @property
    def gathers(self) -> bool:
        """Whether parameters change where ranks gather what others updated."""
        return bool(self.sharing or self.frameworks)

    def is_updated(self, parameter: torch.Tensor) -> bool:
        """By a registered optimizer, as far as it has gradients."""
        return parameter.requires_grad and any(kept.updates(parameter) for kept in self.kept.values())

    def is_held(self, parameter: torch.Tensor) -> bool:
        """In memory of the run's, by itself."""
        return self._arena.holds(parameter) and all(parameter is not whole for whole in self._cut.wholes.values())

    def _share(self, name: str, optimizer: Optimizer, shares: Sharing) -> None:
        """Before its model is registered, of which this rank then holds a part."""
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter in self.parameters:
                raise Error(f"'{name}' shares out '{self.parameters[parameter]}', whose model was registered without it: register "
                            f"model and {type(optimizer).__name__} in one call", Code.FAILED_PRECONDITION)  # fmt: skip
            if isinstance(parameter, DTensor):
                raise Error(f"'{name}' has a DTensor of shape {list(parameter.shape)}, whose optimizer state is cut as it is itself: "
                            "use the optimizer within", Code.INVALID_ARGUMENT)  # fmt: skip
        shares.let_run_gather()
        self.sharing[optimizer] = shares
        self.together.add(tuple(range(self._run.world_size)))  # in another world each has another part

    def _whole_holders(self, parameter: torch.Tensor) -> tuple[int, ...]:
        """Who holds what is not cut as its parameter is: counts of steps."""
        for shares in self.sharing.values():
            if (owners := shares.owners(parameter)) is not None:
                return owners
        if isinstance(parameter, DTensor):
            return parallel.mesh_ranks(parameter)
        for model in self.models:
            if any(known is parameter for known in model.parameters()):
                return parallel.plain_holders(model, self._run.usual_holders())
        return self._run.usual_holders()

    # ---- names and memory -----------------------------------------------------------------------------------------------

    def _add_object(self, key: str, thing: Codec, known: TakeOver | None) -> None:
        """`known`: how it goes on with other ranks, unless the script says otherwise."""
        if self._again is None:
            self._run.register_object(key, thing, self._said.pop(key, known))
        else:
            self._run.exchange_object(key, thing)

    def _add_alias(self, alias: str, key: str) -> None:
        if self._again is not None:
            self._named_again.append((alias, key))
        elif key in self._tensors:
            self._run.register_alias(alias, key)

    def _hold(self, entries: list[Entry]) -> None:
        """Moves tensors, or this rank's parts of them, into memory that outlives the process, and registers them."""
        for key, tensor, _ in entries:
            state.check(key, tensor)
            if isinstance(tensor, DTensor) and (way := (id(tensor.device_mesh), tensor.placements)) not in self._cut_ways:
                self._cut_ways.add(way)
                self.together |= parallel.replicas_of(tensor)
        with torch.no_grad():
            for _, tensor, _ in entries:
                local = parallel.local_of(tensor)
                if not state.is_dense(local):
                    local.data = local.contiguous()
        if self._again is not None:
            self._again.append(entries)
        else:
            self._register(entries)

    def _register(self, entries: list[Entry]) -> None:
        self._arena.take((key, parallel.local_of(tensor)) for key, tensor, _ in entries)
        for key, tensor, piece in entries:
            local = parallel.local_of(tensor)
            if _is_held(tensor):
                held, dtype, shape, piece = self._held_as(key, local, piece)
                self._run.register_memory(key, (local.data_ptr(), held.size), dtype, shape, piece, self._allows_other_shape(key, local),
                                          self._device.hold(key, local))  # fmt: skip
                self._tensors[key] = held
        self._stay(entries)

    def _allows_other_shape(self, key: str, local: torch.Tensor) -> bool:
        patterns = [pattern for pattern in self._other_shapes if fnmatchcase(key, pattern)]
        self._other_shapes.update(dict.fromkeys(patterns, True))
        if patterns and not local.is_contiguous():
            raise Error(f"'{key}' is kept in the order in which it lies (strides {local.stride()}), so that another shape of it could not be found in a "
                        "checkpoint: leave it out of allow_shape_mismatch, or make it contiguous", Code.INVALID_ARGUMENT)  # fmt: skip
        return bool(patterns)

    def _stay(self, entries: Iterable[Entry]) -> None:
        for key, tensor, _ in entries:
            if parallel.local_of(tensor).numel() > 0:
                tensor = self._cut.wholes.get(key, tensor)
                self.places.add(key, tensor, isinstance(tensor, DTensor), parallel.local_of(tensor).data_ptr())

    @staticmethod
    def _held_as(key: str, local: torch.Tensor, piece: Piece) -> tuple[_Held, str, list[int], Piece]:
        """And as what it is registered: type, shape of the part, piece of the whole."""
        shape = list(local.size())
        if piece.box is not None:
            shape = list(piece.box)
        elif not local.is_contiguous() or not shape:
            if tuple(shape) != piece.global_shape:
                raise Error(f"'{key}': a part of a tensor must be contiguous, this one has strides {local.stride()}", Code.INVALID_ARGUMENT)
            shape = [local.numel()]  # in the order in which it lies: all holders have the same
            piece = Piece((local.numel(),), (0,), piece.holders)
        dtype = state.dtype_name(local)
        part = "" if tuple(shape) == piece.global_shape else f" at {list(piece.offset)} of {list(piece.global_shape)}"
        if piece.flat != (0, 0):
            part += f", elements {piece.flat[0]} to {piece.flat[1]} of them"
        return _Held(key, f"{dtype} {shape}{part}", local.numel() * local.element_size(), piece.holders), dtype, shape, piece

    # ---- what it says of itself -----------------------------------------------------------------------------------------

    def plan(self, objects: Iterable[str], built: bool) -> str:
        """What is protected, and how. `built`: models are made by the function given to run.build."""
        lines = []
        tensors = self._tensors.values()
        for holders in sorted({held.holders for held in tensors}, key=lambda ranks: (-len(ranks), ranks)):
            alike = [held for held in tensors if held.holders == holders]
            total = sum(held.size for held in alike)
            whom = f"held alike by ranks {', '.join(map(str, holders))}" if len(holders) > 1 else "WITHOUT A SECOND COPY"
            lines.append(f"{'protected' if len(holders) > 1 else 'this rank alone'}: {len(alike)} tensors, {total:,} bytes, {whom}")
            lines += [f"  {held.key}: {held.kind}" + "".join(f", also {name}" for name in self._also.get(held.key, ())) for held in alike]
        names = list(objects)
        lines.append(f"protected: {len(names)} objects, each rank's own, kept by its partners: {', '.join(names)}")
        lines += [f"  {key}: {size:,} bytes, sent to the partners only where it has changed"
                  for key, size in self._large.items()]  # fmt: skip
        if self._run.world_size == 1:
            lines.append("one rank has no second copy: start with --save-every or --snapshot-every, or more ranks")
        elif any(len(held.holders) == 1 for held in tensors):
            lines.append("shards without a second copy survive exceptions and hangs of communication, but not the loss of a process: "
                         "start with --snapshot-every N, or use a mesh that also replicates (HSDP), or for an optimizer's shards "
                         "kintsugi.torch.ReplicaOptimizer")  # fmt: skip
        if drafted := [kept for kept in self.kept.values()][:-1]:
            lines.append(f"several optimizers: all but the one that steps last in a step work on copies until its gate, up to "
                         f"{bytes_of(tensor for kept in drafted for tensor in kept.tensors()):,} bytes more; with run.update() around "
                         "all of them there are none")  # fmt: skip
        if not self.optimizers and not self.frameworks:
            lines.append("no optimizer is registered: mark the update yourself (run.begin_update, run.end_update)")
        lines += ddp_layout.hooks_of(self.models)
        lines += [f"after a fault {why}: {'it is made anew' if built else 'let run.build make the model'}"
                  for why in ([] if self.frameworks else parallel.not_resettable(self.models))]  # fmt: skip
        return "\n".join(lines)


def _is_held(tensor: torch.Tensor) -> bool:
    """A part without elements is nothing of a tensor that has some; a tensor without any is there with its name and shape."""
    return parallel.local_of(tensor).numel() > 0 or tensor.numel() == 0


def _entries(key: str, tensor: torch.Tensor, plain: tuple[int, ...]) -> list[Entry]:
    return [(place, inner, parallel.piece_of(place, inner, plain)) for place, inner in parallel.inner_tensors(key, tensor)]


def _inner(model: Module) -> Module:
    return model.module if isinstance(model, DistributedDataParallel) else model
