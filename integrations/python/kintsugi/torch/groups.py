"""Process groups that outlive their connections: outer ones that torch keeps, inner ones of a generation."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from .. import _core, lookout
from .._errors import Error
from ..abi import Code, Joined
from ..long_words import hear, say
from ..terms import Incident
from .devices import Communicators, Device, drained, find_communicators, kind_here, place_in_use
from .refused import is_ours
from .roads import Roads, port_of

_MOST_DEVICES = 8  # more groups than that share their threads
_WAITS_FOR_A_CONNECTION = 5  # times its timeout, Gloo's pair.cc
_FAREWELL_MS = 10_000
_DRAIN_MS = 500  # connections are closed by then: whatever is still stuck gets no more bytes


class RunStore(Store):
    """torch's view of the rendezvous store of one generation: the control plane's, so no rank's death takes it away."""

    def __init__(self, store: _core.Store, timeout_ms: int) -> None:
        super().__init__()
        self._store = store
        self._timeout_ms = timeout_ms

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        return self._store.get(key, self._timeout_ms)

    def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None:
        limit = self._timeout_ms if timeout is None else int(timeout.total_seconds() * 1000)
        for key in keys:
            self._store.wait(key, min(limit, self._timeout_ms))

    def check(self, keys: list[str]) -> bool:
        return all(self._store.check(key, self._timeout_ms) for key in keys)

    def clone(self) -> RunStore:
        return self

    def has_extended_api(self) -> bool:
        return False

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount, self._timeout_ms)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        before, after = (value.encode() if isinstance(value, str) else bytes(value) for value in (expected, desired))
        return self._store.compare_set(key, before, after, self._timeout_ms)

    def delete_key(self, key: str) -> bool:
        return self._store.delete(key, self._timeout_ms)

    deleteKey = delete_key  # as torch's C++ calls it


@dataclass
class Group:
    """One outer group and what is needed to connect it anew."""

    outer: Any
    ranks: list[int]  # in the group's order, as the launcher numbers them: all that it is made of, also where they take no part now
    place: str  # equal on all members: torch's name and how many of that name came before
    timeout: datetime.timedelta
    keep: list[Any] = field(default_factory=list)  # stores of the present inner group
    is_built: bool = False  # by the function given to run.build, of ranks that it has named
    on_device: Any = None  # its collectives there, where this process has a device

    @property
    def place_on_device(self) -> Any:
        """The device that it is connected on; None: on none so far."""
        return self.on_device.device if getattr(self.on_device, "is_connected", False) else None  # torch's own does not say it


class Groups:
    """All groups of this process, in the order of their creation, which all their members share."""

    def __init__(self, agent: _core.Agent, extension: Any, device: Device) -> None:
        self.agent = agent
        self.extension = extension
        self.device = device
        self.all: list[Group] = []
        self.generation = 0
        self.crew = agent.crew  # by whose numbers torch knows the groups
        self.keeps_whole = False  # no group of some ranks alone is made any more, but by the function given to run.build
        self._is_building = self._answers_alone = False
        self._count_before = 0  # by torch, as that begins
        self._counted_there = 0  # by torch, for groups that this function made: on a process that comes later it made other ones
        self._instead: list[Group] | None = None  # whose places the next groups take
        self._farewell: Any = None  # this rank is at the end of its script
        self._communicators: Communicators | None = None
        self._has_looked = False  # for a device
        agent.on_stop(extension.stop_function(), 0)
        extension.tell_collectives(*agent.collective_marker())
        extension.mark_by(_core.mark_calls())
        lookout.begin()
        atexit.register(extension.tell_collectives, 0, 0)  # before the agent goes: later registered, earlier called
        atexit.register(self._return)  # behind the guard's end, and before the process takes apart what it closes

    # ---- torch's side ---------------------------------------------------------------------------------------------------

    def create(self, options: Any, _pg_options: Any = None) -> Any:
        """What torch calls for every group it makes of backend "kintsugi"."""
        if not self._has_looked:
            self._has_looked = True
            self._communicators = find_communicators(self.extension, self.agent.rank)
        size = int(options.group_size)
        numbers = [int(rank) for rank in options.global_ranks_in_group] or list(range(size))
        ranks = [self.crew[number] for number in numbers]
        if self.keeps_whole and not self._is_building and len(ranks) < len(self.crew):
            raise _some_alone(numbers)
        name = str(options.group_id)
        timeout = options.timeout
        outer = self.extension.OuterGroup(
            rank=int(options.group_rank), size=size, name=name, timeout_ms=int(timeout.total_seconds() * 1000)
        )
        if self._instead is not None:
            return self._take_place(outer, ranks)
        if name.isdecimal():  # by torch's count
            name = str(int(name) - (self._count_before if self._is_building else self._counted_there))
        if self._is_building:
            name = f"built.{name}"
        serial = sum(group.place.startswith(f"{name}#") for group in self.all)
        seats = self._seats() if self.keeps_whole and not self._is_building else ranks
        group = Group(outer, seats, f"{name}#{serial}", timeout, is_built=self._is_building)
        outer.mark_as(group.place, ranks)
        self.all.append(group)
        # One that takes a lost rank's place is alone until the groups of the next generation are made.
        if not self._answers_alone and (self.agent.joined_as != Joined.REPLACEMENT or self.generation > 0):
            self._connect_first(group)
        return outer

    def _connect_first(self, group: Group) -> None:
        """As long as torch waits for a rank that is late. Where one was lost meanwhile, the group is of no use until it is connected anew."""
        limit_ms = int(group.timeout.total_seconds() * 1000)
        try:
            self._connect(group, self.generation, f"made/{group.place}", limit_ms)
        except Error as error:
            if error.code == Code.DEADLINE_EXCEEDED:
                raise Error(f"group '{group.place}' of ranks {group.ranks}: not all of them made it within {limit_ms / 1000:g} s, the timeout it "
                            f"was given: {error}", Code.DEADLINE_EXCEEDED) from error  # fmt: skip
            if error.code != Code.CANCELLED:
                raise
            group.outer.close(f"it could not be connected: {error}")

    def answer_alone(self) -> None:
        """Collectives are answered locally until all groups are connected anew."""
        for group in self.all:
            group.outer.answer_alone()

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """The function given to run.build makes groups within."""
        world = dist.distributed_c10d._world
        self._is_building, self._count_before = True, world.group_count
        try:
            yield
        finally:
            self._is_building = False
            self._counted_there += world.group_count - self._count_before

    @contextlib.contextmanager
    def among_others(self) -> Iterator[None]:
        """Groups that are made within are of other ranks than those that were built before, which are gone. They and all others answer
        locally, as a newcomer's, until all are connected anew."""
        self.all = [group for group in self.all if not group.is_built]
        self.answer_alone()
        self._answers_alone = True
        try:
            yield
        finally:
            self._answers_alone = False

    @contextlib.contextmanager
    def instead_of(self, groups: list[Group]) -> Iterator[None]:
        """Groups that are made within take the places of these, in the order of their creation: all ranks know them by their places.
        They and all others answer locally, as a newcomer's, until all are connected anew."""
        self.answer_alone()
        self._instead = list(groups)
        try:
            yield
            if self._instead:
                raise Error(f"the function given to run.build made a group of ranks {self._instead[0].ranks} before, and does not now", Code.INVALID_ARGUMENT)
        finally:
            self._instead = None

    def _take_place(self, outer: Any, ranks: list[int]) -> Any:
        assert self._instead is not None
        if not self._instead or self._members(self._instead[0]) != ranks:
            before = f"one of ranks {self._members(self._instead[0])}" if self._instead else "no further one"
            raise Error(f"the function given to run.build made a group of ranks {ranks}, where it had made {before}: it has to make the "
                        "same groups in the same order", Code.INVALID_ARGUMENT)  # fmt: skip
        taken = self._instead.pop(0)
        outer.mark_as(taken.place, ranks)
        taken.outer = outer
        return outer

    def rendezvous(self, *_args: Any, timeout: datetime.timedelta = dist.default_pg_timeout, **_kwargs: Any) -> Iterator[tuple[Store, int, int]]:
        """torch's env:// within a run: the store is the run's."""
        store = RunStore(self.agent.open_store(self.generation), int(timeout.total_seconds() * 1000))
        self._first_store = store
        yield store, self.agent.number, len(self.agent.crew)

    # ---- other ranks ----------------------------------------------------------------------------------------------------

    def keep_whole(self) -> None:
        """The run may go on with other ranks: then a group of some alone would be of others than the script has named."""
        self.keeps_whole = True
        for group in self.all:
            if group.is_built:
                continue
            if len(group.ranks) < len(self.crew):
                raise _some_alone([self.crew.index(rank) for rank in group.ranks])
            group.ranks = self._seats()

    def _seats(self) -> list[int]:
        return [*range(self.agent.world_size)]

    def follow_crew(self) -> bool:
        """Torch's groups are of the ranks that take part now, each with its number, but for those that run.build makes anew. Whether those
        are others than before."""
        if self.crew == self.agent.crew:
            return False
        self.crew = self.agent.crew
        world = dist.distributed_c10d._world
        named = {name: group for group, name in world.pg_names.items()}
        for group in self.all:
            if group.is_built:
                continue
            members = self._members(group)
            rank, size = members.index(self.agent.rank), len(members)
            known = named[group.outer.group_name]
            self.extension.renumber(known, group.outer, rank, size)
            group.outer.mark_as(group.place, members)
            world.pg_group_ranks[known] = {number: number for number in range(size)}
        return True

    def _members(self, group: Group) -> list[int]:
        return [rank for rank in group.ranks if rank in self.crew]

    # ---- the guard's side -----------------------------------------------------------------------------------------------

    def clean(self, _incident: Incident) -> None:
        self._return()
        # What was to be done at once when an exception came in between: torch would go on collecting, and do none of it.
        dist.distributed_c10d._world.pg_coalesce_state.clear()
        for group in self.all:
            if not group.outer.drain(_DRAIN_MS):
                print(f"kintsugi: group '{group.place}': a collective of the old generation is stuck; its connections are "
                      "closed, nothing can arrive any more", file=sys.stderr)  # fmt: skip
        if self._communicators is not None:
            self._communicators.cut()
        # Whatever is repaired next lies on these: nothing that a broken step has queued there comes behind it.
        for place in {group.place_on_device for group in self.all} | {self.device.place or place_in_use()}:
            if place is not None:
                drained(self.extension, place, self.agent)

    def open_block(self) -> str:
        """What to say where an exception has left a block of calls that were to be done at once. Torch goes on collecting then, and so does the group: without a word."""
        in_torch = dist.distributed_c10d._world.pg_coalesce_state
        name = str(self.extension.collecting()) or (next(iter(in_torch)).group_name if in_torch else "")
        return name and (f"group '{name}': a block of calls that are to be done at once (batch_isend_irecv, _coalescing_manager) is open. An exception has left it, and was caught: "
                         "neither its calls nor those behind it were done. Let that exception leave the step, which is made again")  # fmt: skip

    def refuse_open_block(self) -> None:
        """Where nothing is made again."""
        if left := self.open_block():
            raise Error(left, Code.FAILED_PRECONDITION)

    def leave(self) -> None:
        """This rank calls no collective any more, but for a repair's. Who still waits in one learns it by its connections, as of a process
        that is gone; not at once, since who has just been woken may yet have to look at what came."""
        self._farewell = self.extension.Farewell(_FAREWELL_MS, "this rank is at the end of its script")

    def _return(self) -> None:
        if self._farewell is not None:
            self._farewell.cancel()
        self._farewell = None

    def end(self) -> None:
        """The run is over: whoever calls a collective from now on is told so."""
        self._return()
        for group in self.all:
            group.outer.close("the run has ended: nobody repairs it any more")

    def rebuild(self, incident: Incident) -> None:
        """Connects every group anew, after all ranks have shown that they have the same."""
        began = time.monotonic()
        limit_ms = max(incident.left_ms * 4 // 5, 1000) if incident.left_ms > 0 else 60_000
        wire = _Wire(self.extension, min(len(self.all), _MOST_DEVICES))
        listening, there = self._compare(incident.generation, wire.places, limit_ms)
        self.clean(incident)
        if self.all:
            wire.meet(port for places in listening.values() for port in map(port_of, places))
            # Of the same limit: a rank that is late with its answer is taken for stuck.
            left_ms = max(limit_ms - int(1000 * (time.monotonic() - began)), 1000)
            roads = Roads(listening, left_ms)
            try:
                self._connect_all(wire, incident.generation, left_ms, there)
            except Error:
                for rank, port in roads.close():
                    self.agent.note_unreached(rank, port)
                raise
            finally:
                roads.close()
        self.extension.destroy_drained()
        self.generation = incident.generation

    def _compare(self, generation: int, places: list[str], limit_ms: int) -> tuple[dict[int, list[str]], set[str]]:
        """Where each of the others listens, who have the same groups with this rank as it has with them; and which groups were connected on a
        device."""
        store = self.agent.open_store(generation)
        there = [group.place for group in self.all if group.place_on_device is not None]
        mine: dict[str, Any] = {"groups": [[group.place, self._members(group)] for group in self.all], "listening": places, "on device": there}
        store.set(f"manifest/{self.agent.rank}", json.dumps(mine).encode())
        listening: dict[int, list[str]] = {}
        for rank in self.crew:
            if rank == self.agent.rank:
                continue
            other = json.loads(store.get(f"manifest/{rank}", limit_ms))
            listening[rank] = other["listening"]
            there += other["on device"]
            ours = [entry for entry in mine["groups"] if rank in entry[1]]
            theirs = [entry for entry in other["groups"] if self.agent.rank in entry[1]]
            if ours != theirs:
                raise Error(
                    f"ranks {self.agent.rank} and {rank} have made different process groups: {_difference(ours, theirs)}. "
                    "Make the same groups in the same order on all ranks, before training begins",
                    Code.FAILED_PRECONDITION,
                )
        return listening, set(there)

    def _connect(self, group: Group, generation: int, prefix: str, limit_ms: int) -> None:
        """One group, through a wire of its own."""
        base = RunStore(self.agent.open_store(generation), limit_ms)
        store = PrefixStore(prefix, base)
        rank, size = self._place_in(group), len(self._members(group))
        try:
            wire = _Wire(self.extension, 1)
            base.set(f"{prefix}/listening/{rank}", json.dumps(wire.places))
            wire.meet(port_of(place) for other in range(size) if other != rank for place in json.loads(base.get(f"{prefix}/listening/{other}")))
            inner = wire.constructor(rank, size, datetime.timedelta(milliseconds=limit_ms))(store)
        except RuntimeError as error:
            raise _not_connected(f"group '{group.place}'", generation, error) from error
        self._hand_over(group, inner, [base, store], [*wire.initiated(), *wire.accepted], generation, prefix)

    def _connect_all(self, wire: _Wire, generation: int, limit_ms: int, there: set[str]) -> None:
        """All groups, through one. What they tell their stores is exchanged at once; their connections are made group by group, so
        that who opens one knows whose it is, and tells who accepts it. `there`: groups that are connected on a device, too."""
        me = self.agent.rank
        base = RunStore(self.agent.open_store(generation), limit_ms)
        peers = sorted({rank for group in self.all for rank in self._members(group)} - {me})
        limit = datetime.timedelta(milliseconds=limit_ms)
        where = "the groups"
        try:
            meeting = self.extension.Rendezvous(limit_ms)
            prefixes = [f"g/{group.place}" for group in self.all]
            stores = [PrefixStore(prefix, base) for prefix in prefixes]
            for group, store in zip(self.all, stores):
                meeting.add(group.place, wire.constructor(self._place_in(group), len(self._members(group)), limit), store)
            say(base.set, f"g/said/{me}", meeting.offered())
            for peer in peers:
                meeting.tell(hear(base.get, f"g/said/{peer}"))
            made: list[Any] = []
            opened: list[list[Any]] = []
            for number, group in enumerate(self.all):
                where = f"group '{group.place}'"
                made.append(meeting.finish(number))
                opened.append(wire.initiated())
            where = "the groups"
            # By both ends: one port may have connections to several others.
            names = {group.place: [f"{socket.own} {socket.peer}" for socket in sockets] for group, sockets in zip(self.all, opened)}
            say(base.set, f"g/opened/{me}", json.dumps(names).encode())
            owners: dict[str, str] = {}  # of what others have opened: the place of the group
            for peer in peers:
                for place, theirs in json.loads(hear(base.get, f"g/opened/{peer}")).items():
                    owners.update(dict.fromkeys(theirs, place))
        except RuntimeError as error:
            raise _not_connected(where, generation, error) from error
        accepted: dict[str, list[Any]] = {}
        for socket in (*wire.initiated(), *wire.accepted):
            accepted.setdefault(owners.get(f"{socket.peer} {socket.own}", self.all[0].place), []).append(socket)
        comms = self._connect_on_device(there, base, generation)
        for group, inner, prefix, store, sockets in zip(self.all, made, prefixes, stores, opened):
            self._hand_over(group, inner, [base, store], [*sockets, *accepted.get(group.place, ())], generation, prefix, comms.get(group.place, 0))

    def _connect_on_device(self, there: set[str], base: RunStore, generation: int) -> dict[str, int]:
        """The communicators of these groups, all at once: who is the first in a group tells the others its id."""
        if self._communicators is None:
            return {}
        try:
            self._communicators.begin()
            mine = [group for group in self.all if group.place in there]
            if not mine:
                return {}
            leads = {group.place: self._communicators.unique_id().hex() for group in mine if self._place_in(group) == 0}
            say(base.set, f"nccl/led by {self.agent.rank}", json.dumps(leads).encode())
            told: dict[int, dict[str, str]] = {self.agent.rank: leads}
            members = []
            for group in mine:
                ranks = self._members(group)
                if ranks[0] not in told:
                    told[ranks[0]] = json.loads(hear(base.get, f"nccl/led by {ranks[0]}"))
                members.append((len(ranks), self._place_in(group), bytes.fromhex(told[ranks[0]][group.place])))
            comms = self._communicators.connect(members, self._place())
        except RuntimeError as error:
            raise _not_connected("NCCL", generation, error) from error
        return {group.place: comm for group, comm in zip(mine, comms)}

    def _place(self) -> torch.device:
        """This rank's device: of its state, else of its groups, and of one that has used none yet the current one."""
        places = (place for group in self.all if (place := group.place_on_device) is not None)
        return self.device.place or next(places, None) or torch.device(kind_here(), torch.accelerator.current_device_index())

    def _place_in(self, group: Group) -> int:
        if self.agent.rank not in group.ranks:
            raise Error(f"group '{group.place}' names rank {group.ranks[0]}, this is rank {self.agent.rank}", Code.INVALID_ARGUMENT)
        return self._members(group).index(self.agent.rank)

    def _hand_over(self, group: Group, inner: Any, keep: list[Any], sockets: list[Any], generation: int, prefix: str, comm: int = 0) -> None:
        if self._communicators is not None:
            # Below the prefix of what connects the group now: one that was made before training, and is connected anew as that begins, is so twice in one
            # store. There a rank would find the id, or the address, of the first time, and wait for those who wait elsewhere.
            # A collective waits for its ranks as long as the group's timeout says, however short the time for a repair was.
            run_store = RunStore(self.agent.open_store(generation), int(group.timeout.total_seconds() * 1000))
            store = PrefixStore(f"{prefix}/on device", run_store)
            keep = [*keep, run_store, store]
            place = self._place() if comm else None
            group.on_device = self._communicators.inner(group.place, self._place_in(group), len(self._members(group)), store, comm, place)
        group.keep = keep
        group.outer.connect(inner, [(socket.descriptor, socket.inode) for socket in sockets], generation, group.on_device)


def _some_alone(numbers: list[int]) -> Error:
    return Error(f"run.offer: there is a process group of ranks {numbers} alone, of which nobody knows what it is among fewer ranks: make groups of all ranks, "
                 "let run.build make it behind run.offer, or leave run.offer out", Code.FAILED_PRECONDITION)  # fmt: skip


def _not_connected(what: str, generation: int, error: RuntimeError) -> Error:
    """What a store's refusal becomes on its way through torch; and peers that are gone before they are connected."""
    return error if isinstance(error, Error) else Error(f"{what} of generation {generation} could not be connected: {error}", Code.CANCELLED)


def refuse_others() -> None:
    """Groups of torch's own: survivors would wait in them until their timeout."""
    world = dist.distributed_c10d._world
    for group, config in world.pg_backend_config.items():
        ranks = world.pg_group_ranks[group]
        if len(ranks) > 1 and not is_ours(config):
            name = "the default group" if group is dist.group.WORLD else f"group '{world.pg_names[group]}' of ranks {sorted(ranks)}"
            raise Error(
                f"{name} is of backend \"{config}\": a survivor would wait in it until its timeout. Use "
                'init_process_group("kintsugi"), and no other backend in new_group',
                Code.FAILED_PRECONDITION,
            )


def _difference(ours: list[Any], theirs: list[Any]) -> str:
    for number, (left, right) in enumerate(zip(ours, theirs)):
        if left != right:
            return f"number {number} is '{left[0]}' of {left[1]} here, '{right[0]}' of {right[1]} there"
    return f"{len(ours)} here, {len(theirs)} there"


class _Wire:
    """What groups are connected through: devices of Gloo's, each with a thread and a listening port. By the ports a group's connections
    are told from what else is opened at that time."""

    def __init__(self, extension: Any, count: int) -> None:
        self._sockets = extension.OpenSockets()
        self._devices = [_open_devices() for _ in range(count)]
        self.places = sorted({socket.own for socket in self._sockets.opened() if socket.peer_port == 0})  # "ADDRESS PORT"
        self.ports = {port_of(place) for place in self.places}
        self._peers: set[int] = set()
        self._used = 0
        self.accepted: list[Any] = []  # so far

    def meet(self, ports: Iterable[int]) -> None:
        """At which the others listen."""
        self._peers.update(ports)

    def constructor(self, rank: int, size: int, limit: datetime.timedelta) -> Callable[[Store], Any]:
        """Of a group, over the next of the devices: all ranks take them alike."""
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = self._devices[self._used % len(self._devices)]
        options._threads = 2 * len(options._devices)
        options._timeout = limit / _WAITS_FOR_A_CONNECTION
        self._used += 1
        return lambda store: gloo(store, rank, size, options)

    def initiated(self) -> list[Any]:
        """Connections of this rank's that were made since it was asked before. Others' are in `accepted`."""
        found = []
        for socket in self._sockets.opened():
            if socket.own_port in self.ports and socket.peer_port:
                self.accepted.append(socket)
            elif socket.peer_port in self._peers:
                found.append(socket)
        return found


def _open_devices() -> list[Any]:
    """As ProcessGroupGloo does for itself where it is given none."""
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME")
    if not interfaces:
        return [dist.ProcessGroupGloo.create_default_device()]
    return [dist.ProcessGroupGloo.create_device(interface=name) for name in interfaces.split(",")]
