"""A rank that trains with torch."""

from __future__ import annotations

import enum
import gc
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import _rendezvous_handlers
from torch.nn import Module
from torch.optim import Optimizer

from .. import _core
from .._errors import Error, Interrupted
from ..abi import Code, Outcome, Phase
from ..aoa import with_macros
from ..carried import Home
from ..cuts import Cut
from ..program import Recorded
from ..reshard import Description, Shard, Staged
from ..run import Run
from ..slices import Held, Slice, slice_with, slices_among
from ..take_over import TakeOver
from ..terms import Incident, Piece
from ..variables import Variable
from ..verdicts import Sums, rules_of
from . import _build, agentless, fewer_ranks, iterators, off, parallel, pickled_tensors, refused, shards, warm
from .accelerated import Counts, accumulated_steps, is_accelerator
from .accumulation import Accumulation
from .attributes import is_kept
from .built import Builder, Built, Make, Reset, registered_of
from .companions import Companion
from .ddp_layout import DdpLayouts
from .devices import Device, kind_here
from .early import Early
from .facts import Facts
from .flags import Flags
from .forgotten import Forgotten, refuse_other_optimizers, variables_here
from .framework import Framework
from .gradients import norm_of_gradients
from .groups import Groups, refuse_others
from .hooks import ModuleHooks
from .loaders import Batches
from .passing import Passing
from .prepared import Prepared, is_prepared
from .randomness import Randomness
from .registry import AN_OLD_ONE, Hooks, Registry
from .strays import Strays
from .streams import generators_of


def join(**options: Any) -> TorchRun:
    """Joins the run, and makes "kintsugi" a backend of torch's: before torch.distributed.init_process_group("kintsugi").

    Under torchrun, and wherever RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, rank 0 starts the run's controller
    (kintsugi/torch/agentless.py). With KINTSUGI=0 nothing is protected, and the script trains as plain torch does (kintsugi/torch/off.py)."""
    if dist.is_initialized():
        raise Error("torch's process group exists already: kintsugi.torch.join comes before init_process_group", Code.FAILED_PRECONDITION)
    if off.is_off():
        return cast(TorchRun, off.join())
    refused.refuse_environment()
    extension = _build.load()
    if warm.is_spare():
        warm.warm_up()
    alone = "controller" not in options and agentless.is_wanted()
    if alone:
        agentless.find_controller()
    rules = rules_of(options.pop("veto", None))
    run = TorchRun(_core.Agent(**with_macros(options)), extension, rules)
    if alone:
        agentless.save_before_leaving(run.trains)
    return run


class _Update(enum.Enum):
    """Where a step stands with its update, and who ends it."""

    TO_COME = enum.auto()
    BY_HOOKS = enum.auto()  # the optimizer that steps last opened it, and closes it; others have stepped on drafts
    BY_TRAINER = enum.auto()  # run.update(): optimizers step within
    COMMITTED = enum.auto()


# By these names: asking an enumeration for a member costs, and a step asks often.
_TO_COME, _BY_HOOKS, _BY_TRAINER, _COMMITTED = _Update
_RANDOM_IS_TAKEN = "the name 'random' is taken: torch's, Python's and numpy's random generators have it, and are always protected"
_GRADIENT_SYNC = int(Phase.GRADIENT_SYNC)


class TorchRun(Run):
    """One rank. Made by `join`."""

    REDUCERS = pickled_tensors.REDUCERS

    def __init__(self, agent: _core.Agent, extension: Any, rules: _core.StepRules | None = None) -> None:
        judges = rules is not None and rules.any
        extension.sum_collectives(judges)
        self._sums_of_collectives: Callable[[], Sums] = extension.sums_of_collectives if judges else dict
        super().__init__(agent, rules)
        self._mark_of_ours = str(extension.FAILURE_MARK)
        self.device = Device(agent, extension)
        self._groups = Groups(agent, extension, self.device)
        self._calls: Callable[[], int] = extension.calls  # collectives so far
        self._versions_of: Callable[[dict[torch.Tensor, str]], int] = extension.versions
        self._registry = Registry(self, extension, self.device, Hooks(self._before_update, self._after_update, self._auto_mark), self._calls)
        self._ddp = DdpLayouts(extension)
        self._builder: Builder | None = None
        self._built_meshes: list[Any] = []  # until training begins
        self._made_in: list[int] = []  # who took part as run.build made what there is; none: it was not finished
        self._has_old_cut = False  # what was made before is not needed any more, and has memory of its own
        self._said_slice: Slice = ()  # as the launcher numbers them
        self._shares_of_before: list[fewer_ranks.Share] = []
        self._loaders: list[tuple[Any, Batches | Prepared]] = []
        self._has_accelerator = False
        self.resets: list[Reset] = []  # one for each incident, where run.build made the models
        self._left_over = False  # a step has been in these models: it may have left something
        self._gather_again = True  # parameters that other ranks own may be those of another step
        self._update = _TO_COME
        self._stopped = False  # an incident began behind this step's update
        self._at_commit = self._at_end = 0  # versions of all parameters there
        self._fenced = 0  # up to where the device has to have come, until the update counts as done
        self._early = Early(self._registry)
        self._hooks = ModuleHooks(lambda: self._registry.named_models)
        self._strays = Strays(self._own_versions, self._late_versions, agent.note_inexact)
        self._passing = Passing(lambda: self._loops.arriving and not self._program.in_loop, self._is_kept, agent.note_inexact)
        self._changes_behind = False  # whether parameters changed behind the update of the newest step that was ended
        self._forgotten: Forgotten | None = None
        self._looked_in = 0  # which loop that was
        self._stepping: set[int] = set()  # optimizers that have stepped in this step
        self._accumulation = Accumulation()
        self._calls_before = 0
        self._calls_at_begin = 0  # of the step in hand
        self._facts = Facts(self.rank)
        self._kept_by_doors: list[Any] = []
        self._walked_by_doors: list[Any] = []  # loaders
        self._keeps_world = ""  # what else trains here, and knows of no other number of ranks
        dist.Backend.register_backend("kintsugi", self._groups.create, extended_api=True, devices=["cpu", kind_here() or "cuda"])
        # init_process_group("kintsugi") asks env:// for a store, and the one it would get dies with rank 0.
        _rendezvous_handlers["env"] = self._groups.rendezvous
        refused.watch(self.trains, extension, self.device, lambda: self._registry.drafts.in_use)
        refused.watch_parts(self._makes_steps, lambda: {} if self._registry.frameworks else self._registry.named_models)
        iterators.watch(lambda: self._loops.place, self._objects.things)
        self.handler("clean", self._groups.clean)
        self.handler("rebuild", self._rebuild)

    # ---- state --------------------------------------------------------------------------------------------------------

    def register(self, key: Any = None, array: Any = None, /, take_over: Any = None, cuts: Any = None, allow_shape_mismatch: Any = None, **things: Any) -> Any:
        """register(model=..., optimizer=..., scheduler=..., anything=...): what is to be protected, by name.

        Models' parameters and optimizers' states move into memory that outlives the process. Anything else needs state_dict and
        load_state_dict, or is a random generator (torch's, Python's, numpy's); those that are nobody's own are always protected. Optimizers come
        after their models.

        `take_over`: by name, how an object goes on where a run resumes with other ranks: "same-rank", "rank-zero", "derived", or a
        function of what all ranks saved (kintsugi.TakeOver). Of what is torch's own it is known; of anything else it must be said.

        `cuts`: by the names that `plan` shows, with * and ?, the rules for parameters that the program cut by itself (not those of
        DTensor, which are known): {"model/*.w13.weight": kintsugi.cut(0, groups, run.rank, ("gate", "up"))}. Their optimizer's states
        are cut alike.

        `allow_shape_mismatch`: by such names, tensors that a run may resume from where they were saved in another shape, with as many axes: what
        both have is taken, the rest is zero. ["*/embedding.weight*"] is a vocabulary padded to other rows, with its optimizer's states.
        """
        if key is not None:
            return super().register(key, array, cuts=cuts, allow_shape_mismatch=bool(allow_shape_mismatch))
        if self._guard.begun:
            raise Error(f"{', '.join(things)} registered after training began", Code.FAILED_PRECONDITION)
        if "random" in things:
            raise Error(_RANDOM_IS_TAKEN, Code.INVALID_ARGUMENT)
        for name, thing in things.items():
            if type(thing).__module__.startswith("megatron.core."):
                raise Error(f"'{name}' is a {type(thing).__name__} of Megatron's: kintsugi.megatron.protect(run, model, optimizer, "
                            "opt_param_scheduler) registers these", Code.INVALID_ARGUMENT)  # fmt: skip
        if take_over is not None and not isinstance(take_over, Mapping):
            raise Error(f"take_over is {take_over!r}: say it by name, take_over={{'{next(iter(things), 'data')}': ...}}", Code.INVALID_ARGUMENT)
        if self._builder is not None:
            for name, thing in things.items():
                if isinstance(thing, (Module, Optimizer, torch.optim.lr_scheduler.LRScheduler)):
                    raise Error(f"'{name}' was made beside the function given to run.build, and would go on with what that has made before: "
                                "make it there", Code.FAILED_PRECONDITION)  # fmt: skip
        if cuts is not None and not isinstance(cuts, Mapping):
            raise Error(f"cuts is {cuts!r}: say it by name, cuts={{'{next(iter(things), 'model')}/*.weight': ...}}", Code.INVALID_ARGUMENT)
        said = dict(take_over or {})
        for name in [name for name, thing in things.items() if is_accelerator(thing)]:
            counts = things[name] = Counts(things[name], self._prepared_loaders)
            said.setdefault(name, counts.take_over)
            self._has_accelerator = True
            if counts.scaler is not None and counts.scaler not in things.values():
                things[f"{name}_scaler"] = counts.scaler
        self._registry.add(things, said, dict(cuts or {}), [allow_shape_mismatch] if isinstance(allow_shape_mismatch, str) else allow_shape_mismatch or ())
        self._facts.add(things)
        return None

    def build(
        self, make: Make, /, *, always: bool = False, take_over: Mapping[str, TakeOver] | None = None,
        cuts: Mapping[str, Cut] | None = None,
    ) -> Built:  # fmt: skip
        """Registers what `make` makes, {"model": ..., "optimizer": ...}, and lets it be made anew after a fault.

        Most of what a broken step leaves in models is reset in place. In wrappers that communicate by themselves nobody knows what it is
        (`plan` names them): there `make` is called again, on all ranks, and what it makes takes the places of what it made before, with
        the state that is held. `always`: not only there. What trains takes its things from what this returns, `built.model`, each time.
        `take_over`, `cuts`: as `register` has them.

        `make` makes the same each time, in the same order, groups too; its collectives are answered locally. All models, optimizers and
        schedulers are made by it. Meshes and groups may be among what it returns: `built.mesh` is of the ranks that take part."""
        if self._guard.begun:
            raise Error("run.build comes before training", Code.FAILED_PRECONDITION)
        if self._builder is not None:
            raise Error("run.build is called once: let one function make everything", Code.FAILED_PRECONDITION)
        if self._registry.models or self._registry.optimizers:
            raise Error("run.build comes before run.register: models, optimizers and schedulers are all made by its function", Code.FAILED_PRECONDITION)
        builder = Builder(make, always, self._groups)
        before = fewer_ranks.meshes() if self.offers else []
        builder.make()
        self._built_meshes = fewer_ranks.others(fewer_ranks.meshes(), before) if self.offers else []
        self.register(take_over=take_over, cuts=cuts, **registered_of(builder.things))
        self._builder, self._made_in = builder, self.agent.crew
        return Built(builder.things)

    def offer(self, worlds: Iterable[int] | None = None, *, slice: Iterable[int] | None = None) -> None:
        """As of any run (kintsugi.Run.offer). What is cut over ranks goes on among others where `run.build` makes it, behind this call: whole slices
        leave and come, ranks that together hold one replica. DTensors say which these are; `slice`, with this rank, where something else is cut."""
        if any(number != 0 for number in self._cut.layouts):
            raise Error("run.offer comes before run.build and run.register, where ranks hold parts of tensors", Code.FAILED_PRECONDITION)
        super().offer(worlds)
        if slice is None:
            return
        numbers = [*slice]
        if self.rank not in numbers or len({*numbers}) < len(numbers) or not all(0 <= number < self.world_size for number in numbers):
            raise Error(f"run.offer(slice={numbers}) on rank {self.rank} of {self.world_size}: the ranks, each once, that together hold one replica, this one "
                        "among them", Code.INVALID_ARGUMENT)  # fmt: skip
        self._said_slice = tuple(sorted(self.agent.crew[number] for number in numbers))

    def held_alone(self) -> Iterable[Held]:
        everybody = tuple(range(self.world_size))
        return (held for held in self._registry.held() if held.holders != everybody)

    def slice_of(self) -> Slice:
        if self._said_slice:
            return tuple(self.agent.crew.index(rank) for rank in self._said_slice)
        found = slice_with(self.rank, self._slices())
        for held in self.held_alone() if found == (self.rank,) else ():
            raise Error(f"run.offer: '{held.key}' is held by ranks {', '.join(map(str, held.holders))} alone, and the others lack it: nobody says which ranks "
                        "together hold one replica. Say it, run.offer(slice=...), or leave run.offer out", Code.FAILED_PRECONDITION)  # fmt: skip
        return found

    def follow(
        self,
        framework: Framework,
        models: Iterable[tuple[str, Module]],
        entries: Iterable[tuple[str, torch.Tensor, Piece]],
        take_over: dict[str, TakeOver],
    ) -> None:
        """For a framework that knows itself which parts of which tensors a rank holds, and what its update is (`run.update()`
        around it). `entries`: contiguous tensors, each byte once. Every model's buffers become the object NAME.buffers, which goes on
        with other ranks as `take_over` says; what is used of it is taken out."""
        if self._builder is not None:
            raise Error("run.build does not make what another framework registers: use one of the two", Code.FAILED_PRECONDITION)
        self._registry.follow(framework, models, entries, take_over)

    def register_alias(self, alias: str, key: str) -> None:
        super().register_alias(alias, key)
        self._registry.note_alias(alias, key)

    def plan(self) -> str:
        """What is protected, and how; printed before training, it shows what was forgotten."""
        return self._registry.plan(self._objects, self._builder is not None)

    # ---- the guard ----------------------------------------------------------------------------------------------------

    def batches(self, loader: Any, epoch: int | None = None, *, accumulate: int | None = None) -> Iterator[Any]:
        """`for batch in run.batches(loader, epoch):` gives what `for batch in loader:` does, and the same batch once more where a fault
        made its step void; a newcomer goes on with the batch that the others are at. Each iteration has one `with run.step():`.

        `loader`: a DataLoader, or anything else that can be walked again (kintsugi/torch/loaders.py). `epoch`: given to the sampler's
        set_epoch. `accumulate`: so many batches make one step, if nothing is said one, or as many as Accelerate was told; the last of a pass
        may have fewer."""
        return self._walk(loader, epoch, accumulate, lambda _, batch: batch)

    def enumerate(self, loader: Any, epoch: int | None = None, start: int = 0, *, accumulate: int | None = None) -> Iterator[tuple[int, Any]]:
        """`enumerate` over `run.batches`: a batch that is given once more has the number that it had."""
        return self._walk(loader, epoch, accumulate, lambda position, batch: (position - 1 + start, batch))

    def _walk(self, loader: Any, epoch: int | None, accumulate: int | None, give: Callable[[int, Any], Any]) -> Iterator[Any]:
        told = accumulated_steps()
        if accumulate is None:
            accumulate = told
        if accumulate < 1:
            raise Error(f"accumulate={accumulate}: a step takes one batch at least", Code.INVALID_ARGUMENT)
        if told not in (1, accumulate):
            raise Error(f"accumulate={accumulate}, and accelerate's gradient_accumulation_steps is {told}: leave accumulate out", Code.INVALID_ARGUMENT)
        batches = self.walked(loader)
        batches.keep(accumulate)
        return self._loops.batches(batches, epoch, accumulate, lambda batch: give(batches.position(), batch))

    def walked(self, loader: Any) -> Batches | Prepared:
        """How the run walks a loader, the same for all its passes."""
        for thing, known in self._loaders:
            if thing is loader:
                return known
        name = f"number {len(self._loaders)}"
        if not is_prepared(loader):
            found = Batches(loader, name, self.device)
            if self.offers:
                found.refuse_undivided(self._shares())
            self._loaders.append((loader, found))
            return found
        if not self._has_accelerator:
            raise Error(f"loader '{name}' is one of Accelerate's, which counts its batches: register(accelerator=accelerator, ...), too", Code.INVALID_ARGUMENT)
        prepared = Prepared(loader, name, self.device)
        self._loaders.append((loader, prepared))
        prepared.synchronize(lambda function: self.do(function, only=0))
        return prepared

    def _prepared_loaders(self) -> dict[str, Prepared]:
        return {f"number {i}": known for i, (_, known) in enumerate(self._loaders) if isinstance(known, Prepared)}

    def finish(self) -> None:
        super().finish()
        self._groups.end()

    def _leave_script(self) -> None:
        self._facts.write()
        super()._leave_script()
        self._groups.leave()

    def _begin(self) -> None:
        self._begin_checks()
        if self._ddp.follow(self._registry.models):
            self.register_object("ddp.layout", self._ddp, self._ddp.take_over)
        if "random" in self._objects:
            raise Error(_RANDOM_IS_TAKEN, Code.INVALID_ARGUMENT)
        self.register_object("torch.flags", Flags(), "rank-zero")
        self.register_object("torch.hooks", self._hooks, "rank-zero")
        if self.offers:
            self._refuse_fixed()
        super()._begin()

    def _is_cut_anew(self) -> bool:
        """As DTensors and optimizers say: all ranks together hold one replica."""
        is_one = bool(self._registry.together) and len(self._slices()) == 1
        return is_one and self._builder is not None and not self._said_slice and self._worlds.offered != [self.agent.world_size]

    def _make_randomness(self) -> Randomness:
        return Randomness(self.device, lambda: self.rank)

    def note_kept(self, *things: Any, loaders: Iterable[Any] = ()) -> None:
        """For doors to frameworks: what is theirs to put back; and loaders that they walk, whose generators are, too."""
        self._kept_by_doors += things
        self._walked_by_doors += loaders

    def keeps(self, thing: Any) -> bool:
        return any(thing is one for one in self._kept_things())

    def _kept_things(self) -> Iterator[Any]:
        yield from self._kept_by_doors
        yield from self._registry.registered()
        for thing in self._objects.things():
            yield thing.state_dict() if isinstance(thing, Variable) else thing

    def _registered_things(self) -> Iterable[Any]:
        yield from super()._registered_things()
        yield from self._kept_by_doors
        for thing in self._registry.registered():
            yield from thing.modules() if isinstance(thing, Module) else (thing,)

    def _is_kept(self, home: Home, name: str, value: Any) -> bool:
        return super()._is_kept(home, name, value) or any(isinstance(thing, Companion) and thing.is_of(home.held, name) for thing in self._registered_things())

    def _functions_of_steps(self) -> Iterator[Any]:
        yield from super()._functions_of_steps()
        yield from (module.forward for model in self._registry.models for module in model.modules())

    def _kept_within(self, thing: Any) -> Iterable[Any]:
        """Of what a module has its attributes are kept, and no things in them."""
        if not isinstance(thing, Module):
            return super()._kept_within(thing)
        return [value for value in vars(thing).values() if isinstance(value, (list, dict, set)) and is_kept(value, lambda _: False)]

    def _loaders_generators(self) -> Iterable[Any]:
        return generators_of({str(i): loader for i, loader in enumerate((*(known[0] for known in self._loaders), *self._walked_by_doors))}).values()

    def keep_world(self, what: str) -> None:
        """For doors to frameworks: `what` trains here, and cannot go on with fewer ranks."""
        self._keeps_world = what
        if self.offers:
            self._refuse_fixed()

    def _refuse_fixed(self) -> None:
        kept = self._keeps_world or ("an Accelerator, which counts ranks," if self._has_accelerator else "")
        fewer_ranks.refuse_kinds(kept, self._registry, self.world_size, self._builder is not None)
        self.slice_of()
        for held in self.held_alone() if self._builder is None else ():
            raise Error(f"run.offer: '{held.key}' is held by ranks {', '.join(map(str, held.holders))} alone, and the others lack it: what is cut over ranks is "
                        "made anew among others. Let run.build make it, or leave run.offer out", Code.FAILED_PRECONDITION)  # fmt: skip
        for _, known in self._loaders:
            if isinstance(known, Batches):
                known.refuse_undivided(self._shares())
        fewer_ranks.refuse_fixed(self.world_size, self._built_meshes)
        self._built_meshes, self._shares_of_before = [], self._shares()
        self._groups.keep_whole()

    def _shares(self) -> list[fewer_ranks.Share]:
        """As which of how many parts of the data a sampler may give this rank's: one for each rank, or one for each slice."""
        each = fewer_ranks.Share(self.rank, self.world_size)
        slices = self._slices()
        return [each] if self._said_slice else [each, fewer_ranks.Share(slices.index(slice_with(self.rank, slices)), len(slices))]

    def _slices(self) -> list[Slice]:
        """As DTensors say."""
        return slices_among(self.world_size, self._registry.together)

    def _begin_checks(self) -> None:
        if not dist.is_initialized():
            raise Error('torch.distributed.init_process_group("kintsugi") comes before training', Code.FAILED_PRECONDITION)
        if accumulated_steps() > 1 and not self._has_accelerator:
            raise Error("Accelerate accumulates gradients, and counts batches in its Accelerator: register(accelerator=accelerator, ...), too",
                        Code.FAILED_PRECONDITION)  # fmt: skip
        refuse_others()
        refused.refuse_own_means(self._registry.sharded)

    def _rebuild(self, incident: Incident) -> str:
        self._early.drop()
        self._registry.drafts.drop()
        self._accumulation.forget()
        self._gather_again = True
        if self._groups.follow_crew() and self._builder is None:
            self._registry.change_world()
        said = self._tell_world(incident.step)
        if not incident.fresh or self.replaces:
            said = "; ".join(filter(None, (said, self._reset(incident))))
        if self.offers and (shares := self._shares()) != self._shares_of_before:
            fewer_ranks.divide_among(self._shares_of_before, shares)
            self._shares_of_before = shares
        self._groups.rebuild(incident)
        return said

    def _tell_world(self, step: int) -> str:
        """Other ranks take part than those that trained."""
        trained = self._worlds.ran_in
        if not trained or trained == self.agent.crew:
            return ""
        said = fewer_ranks.described(len(trained), self.world_size, step)
        print(f"kintsugi: rank {self.agent.rank}, number {self.rank} by now: {said}", file=sys.stderr, flush=True)
        return said

    def _reset(self, incident: Incident) -> str:
        """Nothing of the broken step is left in the models; how, for the record."""
        are_others = self._made_in != self.agent.crew
        builder = self._builder if self._left_over or are_others else None
        why = builder.why_anew(self._registry.models) if builder else ""
        if builder and are_others:
            why = "other ranks take part" if self._made_in else "that was not finished before"
        if not why:
            try:
                parallel.reset(self._registry.models)
            except Exception as error:
                if not builder:
                    raise
                why = f"the reset raised {type(error).__name__}: {error}"
        if builder and why:
            self._make_anew(builder, incident)
            parallel.reset(self._registry.models)
        for framework in self._registry.frameworks:
            framework.reset()
        self._left_over = False
        if not builder:
            return ""
        self.resets.append(Reset(incident.step, "made anew" if why else "in place", why))
        said = f"after step {incident.step} the models were {f'made anew: {why}' if why else 'reset in place'}"
        print(f"kintsugi: rank {self.agent.rank}: {said}", file=sys.stderr, flush=True)
        return said

    def _keep_cut(self) -> None:
        super()._keep_cut()
        self._registry.keep_cut()
        self._has_old_cut = True

    def _drop_cut(self) -> None:
        super()._drop_cut()
        self._registry.drop_cut()
        self._made_in = []

    def _make_anew(self, builder: Builder, incident: Incident) -> None:
        """As a newcomer does it, but for the state: that is in the memory in which the new tensors come to lie."""
        others = self._made_in != self.agent.crew
        self._made_in = []
        before = fewer_ranks.meshes() if others else []
        builder.make_anew(incident, others)
        fewer_ranks.retire(before)
        self._registry.begin_again(registered_of(builder.things))
        if others and incident.relayout:
            with self._cutting_anew(incident.generation):
                self._registry.end_cut_anew()
        else:
            self._registry.end_again(others)
        self._ddp.follow(self._registry.models)
        self._made_in = self.agent.crew
        gc.collect()  # what was made before is full of cycles

    def _versions(self) -> int:
        return self._versions_of(self._registry.parameters)

    def _own_versions(self) -> int:
        """Where ranks gather what others updated, that counts too, and in forward passes: nothing can be told then."""
        return 0 if self._registry.gathers else self._versions()

    def _late_versions(self) -> int:
        return 0 if self._registry.gathers else self._versions_of(self._early.others)

    def _makes_steps(self) -> bool:
        return self._in_step or self._loops.sections > 0

    def _is_changed(self) -> bool:
        return self.committed > 0 and self._versions() != self._at_end

    def outcome_of(self, error: BaseException) -> int:
        if isinstance(error, Error):
            return super().outcome_of(error)
        if isinstance(error, torch.AcceleratorError):
            self.device.replace_if_lost()
        if self._in_step and self._update is _COMMITTED and (self._changes_behind or self._versions() != self._at_commit):
            return Outcome.MEMORY_ERROR  # cut off behind its update, where an average follows: what it has is of no step
        if isinstance(error, dist.DistBackendError) or self._mark_of_ours in str(error):
            return Outcome.COMM_ERROR if self.agent.poll() == 0 else Outcome.WAS_INTERRUPTED
        return super().outcome_of(error) if not isinstance(error, dist.DistError) else Outcome.RAISED

    def sums_of_collectives(self) -> Sums:
        return self._sums_of_collectives()

    def gradient_norm(self) -> float | None:
        if not self._registry.frameworks:
            return norm_of_gradients(self._registry.parameters)
        norms = [framework.gradient_norm() for framework in self._registry.frameworks]
        known = [norm for norm in norms if norm is not None]
        return math.hypot(*known) if known else None

    def collectives(self) -> int:
        """How many this process has begun."""
        return int(self._calls())

    def describe(self, key: str, shard: Shard, is_target: bool, staged: Staged) -> Description:
        if isinstance(shard.array, torch.Tensor):
            if is_target:
                self._registry.refuse_target(key, shard.array)
                if self._forgotten is not None:
                    self._forgotten.note_filled(shard.array)
            return shards.described_tensor(key, shard, is_target, staged)
        return super().describe(key, shard, is_target, staged)

    # ---- in the loop --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        is_new = not self._guard.begun
        super().open()
        if is_new and self._loops.arriving:
            self._strays.note_release()
            self._passing.begin(self._registry.models)

    def arrived(self) -> None:
        self._passing.end()
        super().arrived()

    def settle(self, error: BaseException) -> None:
        if self._in_step and self._update is _COMMITTED and self._registry.places.first_moved():
            self._early.bring_home()
        again = self._in_step and self._update is not _COMMITTED and self._strays.has_changed(self._update is not _TO_COME)
        k = self.at
        super().settle(error)
        if again:
            self._strays.make_step_again(k)
        self._strays.note_release()

    def _do(self, section: str, name: str, call: Callable[[], Any], only: int | None, limit: float | None, wish: bool) -> Recorded:
        self._strays.begin_section()

        def gathered() -> Any:
            try:
                given = call()
            finally:
                self.device.side.gather()
            self._groups.refuse_open_block()
            return given

        return super()._do(section, name, gathered, only, limit, wish)

    def _make_section_again(self, section: str) -> None:
        self._strays.make_section_again(section)

    def begin_step(self, k: int) -> None:
        self._groups.refuse_open_block()
        if self._has_old_cut:
            self._has_old_cut = False
            gc.collect()  # it is full of cycles, and what ended the step before held it
        self.device.side.gather()
        moved = self._check_places()
        if self._early.begin_step(looks=self._strays.before_gate):
            self.device.side.note_copied()
        self._strays.begin_step(k, moved)
        if self._forgotten is None and not self._registry.frameworks:
            self._forgotten = Forgotten(variables_here(), self._kept_things(), self._loaders_generators)
            self._looked_in = self._loops.number
            refuse_other_optimizers(lambda: self._registry.parameters, self._registry.is_registered, self.trains)
        elif self._forgotten is not None and self._looked_in != self._loops.number:
            self._looked_in = self._loops.number
            self._forgotten.look_again(variables_here(), self._kept_things())
        self._accumulation.begin_step()
        self._stepping.clear()
        self._update = _TO_COME
        self._stopped = False
        self._extend_update()
        super().begin_step(k)
        self._calls_at_begin = self._calls()
        self._left_over = True

    def end_step(self, k: int) -> None:
        self._groups.refuse_open_block()
        has_none = self._update is _TO_COME and not self._stepping
        if self._update is _TO_COME:
            self._open(_BY_HOOKS, has_update=False)  # no optimizer stepped (a skipped update), or not all: nothing follows behind it
        if self._update is not _COMMITTED:
            self._close()
        self._accumulation.end_step(k, self._registry.models if has_none else (), self._registry.parameters)
        if not has_none:
            parallel.refuse_gathered(self._registry.sharded, k)
        if self._forgotten is not None:
            self._forgotten.refuse_changed(k)
        if told := self._hooks.differing():
            self.agent.note_inexact(f"hooks on modules of rank {self.rank}, which steps have added, behind step {k}: {told}. Add them before the first step")
        for framework in self._registry.frameworks:
            framework.end_step()
        self._early.end_step()
        self.device.side.gather()
        self._extend_update(self._early.moves_behind)
        super().end_step(k)
        self._at_end = self._versions()
        self._changes_behind = self._early.moves_behind or self._at_end != self._at_commit
        if self._stopped:
            raise Interrupted

    def report(self, loss: float, samples: Iterable[int] = ()) -> None:
        loss = float(loss.detach()) if isinstance(loss, torch.Tensor) else loss
        self._facts.report(self.at, loss)
        super().report(loss, samples)

    def begin_update(self) -> None:
        """The trainer's own update: optimizers step within, and what else an update changes is changed here (an average of the
        weights)."""
        self._refuse_update_outside("run.update()")
        if self._update is not _TO_COME:
            raise Error(f"run.update() in step {self.at}, whose update has begun: optimizers step within it, once", Code.FAILED_PRECONDITION)
        self._open(_BY_TRAINER)

    def end_update(self) -> None:
        self._close()

    def update_nothing(self) -> None:
        """Of a framework's step that is left out, where its update would be: the gate and the commit."""
        self._open(_BY_HOOKS, has_update=False)
        self._close()

    def _extend_update(self, uncounted: bool = False) -> None:
        """What was changed behind the update belongs to what is saved, kept and left behind here: the device has to have come here for that.
        `uncounted`: also past torch's counts."""
        if (stream := self.device.stream()) is not None and (uncounted or self._versions() != self._fenced):
            self._check(self.agent.extend_update(stream))
            self._fenced = self._versions()

    def _open(self, by: _Update, has_update: bool = True) -> None:
        # The gate and the commit wait for others, behind which every call of Python's is a cold one: few of them here.
        if code := self.agent.mark(self.at, _GRADIENT_SYNC):
            self._check(code)
        for framework in self._registry.frameworks:
            framework.note_gate(has_update)
        if left := self._groups.open_block():
            raise RuntimeError(left)
        self.device.side.gather()
        if has_update:
            if self._calls() == self._calls_at_begin and not self.device.has_graphs:  # a graph's are not counted
                self._ddp.refuse_unsummed(self.at)
            self._judge_step()
        self._loops.note_gate()
        self._objects.put_at_gate(self.at)
        if code := self.agent.enter_update(self.at, self.device.stream()):
            self._check_gate(code)
        self._update = by
        self._strays.open_update()
        self._early.open_update()
        if self._registry.drafts.commit():
            self.device.side.note_copied()
        self._calls_before = self._calls()

    def _close(self) -> None:
        calls = self._calls() - self._calls_before
        if calls > 0:
            raise Error(f"the update of step {self.at} holds {calls} collectives: a rank could not finish it alone. Move them before "
                        "the gate (run.update() or optimizer.step()), or behind it", Code.FAILED_PRECONDITION)  # fmt: skip
        self._early.end_update()
        self.device.side.gather()
        self._update = _COMMITTED
        code = self.agent.leave_update(self.at, self.device.stream())
        self.committed = self.at
        self._at_commit = self._fenced = self._versions()
        # An incident has begun. What follows the update on this rank alone is done first: the step is all there then. But not an average
        # of parameters that could not be gathered any more.
        gathers = self._registry.gathers
        self._stopped = code in (Code.INTERRUPTED, Code.CANCELLED)
        if code and not (self._stopped and not (gathers and self._changes_behind)):
            self._check(code)
        if self._stopped:
            self._gather_again = True
        elif gathers:
            try:
                self._gather()
            except Exception as error:
                self._at_commit = self._versions()
                if self.outcome_of(error) not in (Outcome.COMM_ERROR, Outcome.WAS_INTERRUPTED):
                    raise
                self._stopped = True  # parameters are gathered again as all go on
            self._at_commit = self._fenced = self._versions()  # what is gathered is others' state

    def _refuse_update_outside(self, what: str) -> None:
        if not self._in_step:
            raise Error(f"{what} outside of run.train: an update must be a step's, between its gate and its commit", Code.FAILED_PRECONDITION)

    def _went_on(self) -> None:
        """Nothing of the script comes before what was not gathered: it may make no further step."""
        super()._went_on()
        self._in_step = False
        if self._gather_again:
            before = self._versions()
            self._gather()
            self._at_end += self._versions() - before  # the script has changed nothing

    def _gather(self) -> None:
        """Parts that other ranks updated. A fault within, and all begin with it as they go on."""
        self._gather_again = True
        for shares in self._registry.sharing.values():
            shares.gather()
        for framework in self._registry.frameworks:
            framework.gather()
        self._gather_again = False

    def _auto_mark(self, phase: str) -> None:
        if self._in_step and torch.is_grad_enabled():
            self.mark(phase)

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._refuse_update_outside("optimizer.step()")
        self.device.side.note()
        if optimizer not in self._registry.kept:
            raise Error(f"optimizer.step() of {AN_OLD_ONE}", Code.FAILED_PRECONDITION)
        if (len(args) > 1 or kwargs) and (any(argument is not None for argument in args[1:]) or kwargs.get("closure") is not None):
            raise Error("optimizer.step(closure) computes within the update: call backward before step()", Code.INVALID_ARGUMENT)
        if self._update is _COMMITTED:
            raise Error(f"a second update in step {self.at}: the step of the last optimizer ended it; the others step before", Code.FAILED_PRECONDITION)
        if self._update is _TO_COME:
            if len(self._stepping | {id(optimizer)}) < len(self._registry.optimizers):
                self._strays.begin_draft()
                self._registry.draft(optimizer)
            else:
                self._open(_BY_HOOKS)

    def _after_update(self, optimizer: Optimizer, *_: Any) -> None:
        self.device.side.note()
        self._strays.end_draft()
        self._stepping.add(id(optimizer))
        if self._update is _BY_HOOKS and len(self._stepping) == len(self._registry.optimizers):
            self._close()

    def _check_places(self) -> bool:
        """Whether some were given other memory since the last step, and are others there."""
        is_other, moved = False, self._registry.places.first_moved()
        if moved:
            is_other, moved = self._early.bring_home(), self._registry.places.first_moved()
        if moved:
            raise Error(f"'{moved}' lies elsewhere than when it was registered: its memory must stay in place", Code.FAILED_PRECONDITION)
        if self._registry.places.first_unknown() is None:
            return is_other
        for model in self._registry.models:  # a gathered parameter, or a new one
            for parameter in parallel.parameters_of(model):
                if parameter not in self._registry.parameters:
                    raise Error(f"a parameter of shape {list(parameter.shape)} appeared after run.register", Code.FAILED_PRECONDITION)
            for gathered in parallel.gathered_parameters(model):
                self._registry.places.know(gathered)
        return is_other


__all__ = ["Interrupted", "TorchRun", "join"]
