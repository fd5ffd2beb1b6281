"""Process groups that outlive their connections: outer ones that torch keeps, inner ones of a generation."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from .. import _core
from .._errors import Error
from ..terms import Incident

_MOST_DEVICES = 8  # more groups than that share their threads
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
    ranks: list[int]  # of the run, in the group's order
    place: str  # equal on all members: torch's name and how many of that name came before
    timeout: datetime.timedelta
    keep: list[Any] = field(default_factory=list)  # stores of the present inner group


class Groups:
    """All groups of this process, in the order of their creation, which all their members share."""

    def __init__(self, agent: _core.Agent, extension: Any) -> None:
        self.agent = agent
        self.extension = extension
        self.all: list[Group] = []
        self.generation = 0
        self._instead: list[Group] | None = None  # whose places the next groups take
        agent.on_stop(extension.stop_function(), 0)
        extension.tell_collectives(*agent.collective_marker())
        atexit.register(extension.tell_collectives, 0, 0)  # before the agent goes: later registered, earlier called

    # ---- torch's side ---------------------------------------------------------------------------------------------------

    def create(self, options: Any, _pg_options: Any = None) -> Any:
        """What torch calls for every group it makes of backend "kintsugi"."""
        size = int(options.group_size)
        ranks = [int(rank) for rank in options.global_ranks_in_group] or list(range(size))
        name = str(options.group_id)
        timeout = options.timeout
        outer = self.extension.OuterGroup(
            rank=int(options.group_rank), size=size, name=name, timeout_ms=int(timeout.total_seconds() * 1000)
        )
        if self._instead is not None:
            return self._take_place(outer, ranks)
        serial = sum(group.place.startswith(f"{name}#") for group in self.all)
        group = Group(outer, ranks, f"{name}#{serial}", timeout)
        self.all.append(group)
        newcomer = self.agent.joined_as == 1 and self.generation == 0
        if not newcomer:
            try:
                self._connect(group, self.generation, f"made/{group.place}", 60_000)
            except Error as error:
                if error.code not in (3, 11):
                    raise
                # Somebody was lost meanwhile: like a newcomer, until the groups of the next generation are made.
                outer.drain(_DRAIN_MS)
                outer.answer_alone()
        return outer

    @contextlib.contextmanager
    def instead_of(self, groups: list[Group]) -> Iterator[None]:
        """Groups that are made within take the places of these, in the order of their creation: all ranks know them by their places.
        They and all others answer locally, as a newcomer's, until all are connected anew."""
        for group in self.all:
            group.outer.answer_alone()
        self._instead = list(groups)
        try:
            yield
            if self._instead:
                raise Error(f"the function given to run.build made a group of ranks {self._instead[0].ranks} before, and does not now", 5)
        finally:
            self._instead = None

    def _take_place(self, outer: Any, ranks: list[int]) -> Any:
        assert self._instead is not None
        if not self._instead or self._instead[0].ranks != ranks:
            before = f"one of ranks {self._instead[0].ranks}" if self._instead else "no further one"
            raise Error(f"the function given to run.build made a group of ranks {ranks}, where it had made {before}: it has to make the "
                        "same groups in the same order", 5)  # fmt: skip
        self._instead.pop(0).outer = outer
        return outer

    def rendezvous(self, *_args: Any, **_kwargs: Any) -> Iterator[tuple[Store, int, int]]:
        """torch's env:// within a run: the store is the run's."""
        store = RunStore(self.agent.open_store(self.generation), 60_000)
        self._first_store = store
        yield store, self.agent.rank, self.agent.world_size

    # ---- the guard's side -----------------------------------------------------------------------------------------------

    def clean(self, _incident: Incident) -> None:
        for group in self.all:
            if not group.outer.drain(_DRAIN_MS):
                print(f"kintsugi: group '{group.place}': a collective of the old generation is stuck; its connections are "
                      "closed, nothing can arrive any more", file=sys.stderr)  # fmt: skip

    def rebuild(self, incident: Incident, facts: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Connects every group anew, after all ranks have shown that they have the same; what they told of themselves."""
        limit_ms = max(incident.left_ms - 500, 1000) if incident.left_ms > 0 else 60_000
        told = self._compare(incident.generation, facts, limit_ms)
        self.clean(incident)
        if self.all:
            base = RunStore(self.agent.open_store(incident.generation), limit_ms)
            everyone = range(self.agent.world_size)
            wire = _Wire(self.extension, base, "g", self.agent.rank, everyone, min(len(self.all), _MOST_DEVICES))
        for group in self.all:
            self._connect(group, incident.generation, f"g/{group.place}", limit_ms, wire)
        self.generation = incident.generation
        return told

    def _compare(self, generation: int, facts: dict[str, Any], limit_ms: int) -> dict[int, dict[str, Any]]:
        store = self.agent.open_store(generation)
        mine = {"groups": [[group.place, group.ranks] for group in self.all], **facts}
        store.set(f"manifest/{self.agent.rank}", json.dumps(mine).encode())
        told = {self.agent.rank: mine}
        for rank in range(self.agent.world_size):
            if rank == self.agent.rank:
                continue
            other = json.loads(store.get(f"manifest/{rank}", limit_ms))
            told[rank] = other
            ours = [entry for entry in mine["groups"] if rank in entry[1]]
            theirs = [entry for entry in other["groups"] if self.agent.rank in entry[1]]
            if ours != theirs:
                raise Error(
                    f"ranks {self.agent.rank} and {rank} have made different process groups: {_difference(ours, theirs)}. "
                    "Make the same groups in the same order on all ranks, before training begins",
                    6,
                )
        return told

    def _connect(self, group: Group, generation: int, prefix: str, limit_ms: int, wire: _Wire | None = None) -> None:
        """`wire`: shared with other groups; none: one of its own."""
        if len(group.ranks) == 1 and group.ranks[0] != self.agent.rank:
            raise Error(f"group '{group.place}' names rank {group.ranks[0]}, this is rank {self.agent.rank}", 5)
        base = RunStore(self.agent.open_store(generation), limit_ms)
        store = PrefixStore(prefix, base)
        rank, size = group.ranks.index(self.agent.rank), len(group.ranks)
        try:
            wire = wire or _Wire(self.extension, base, prefix, rank, range(size), 1)
            inner, connections = wire.connect(store, rank, size, datetime.timedelta(milliseconds=limit_ms))
        except RuntimeError as error:
            # What a store's refusal becomes on its way through torch; and peers that are gone before they are connected.
            raise error if isinstance(error, Error) else Error(
                f"group '{group.place}' of generation {generation} could not be connected: {error}", 11
            ) from error
        inner._set_default_timeout(group.timeout)
        group.keep = [base, store]
        group.outer.connect(inner, connections, generation)


def refuse_others() -> None:
    """Groups of torch's own: survivors would wait in them until their timeout."""
    world = dist.distributed_c10d._world
    for group, config in world.pg_backend_config.items():
        ranks = world.pg_group_ranks[group]
        if len(ranks) > 1 and any(part.split(":")[-1] != "kintsugi" for part in str(config).split(",")):
            name = "the default group" if group is dist.group.WORLD else f"group '{world.pg_names[group]}' of ranks {sorted(ranks)}"
            raise Error(
                f"{name} is of backend \"{config}\": a survivor would wait in it until its timeout. Use "
                'init_process_group("kintsugi"), and no other backend in new_group',
                6,
            )


def _difference(ours: list[Any], theirs: list[Any]) -> str:
    for number, (left, right) in enumerate(zip(ours, theirs)):
        if left != right:
            return f"number {number} is '{left[0]}' of {left[1]} here, '{right[0]}' of {right[1]} there"
    return f"{len(ours)} here, {len(theirs)} there"


class _Wire:
    """What groups are connected through: devices of Gloo's, each with a thread and a listening port, and the ports at which the ranks
    of these groups listen. By them a group's connections are told from what else is opened at that time.

    `name`, `names`: this rank and all of them, as they are called below `prefix`."""

    def __init__(self, extension: Any, store: RunStore, prefix: str, name: int, names: Sequence[int], count: int) -> None:
        self._sockets = extension.OpenSockets()
        self._devices: list[tuple[list[Any], set[int]]] = []  # and the ports that they listen at
        for _ in range(count):
            devices = _open_devices()
            self._devices.append((devices, {port for _, _, port, peer in self._sockets.opened() if peer == 0}))
        self._own = {port for _, ports in self._devices for port in ports}
        self._unclaimed: list[tuple[int, int, int, int]] = []  # by peers that are ahead, for groups to come
        self._used = 0
        store.set(f"{prefix}/listening/{name}", json.dumps(sorted(self._own)))
        self._peers = {port for other in names if other != name for port in json.loads(store.get(f"{prefix}/listening/{other}"))}

    def connect(self, store: Store, rank: int, size: int, limit: datetime.timedelta) -> tuple[Any, list[tuple[int, int]]]:
        """A group, and its connections: (descriptor, inode)."""
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices, ports = self._devices[self._used % len(self._devices)]
        options._threads = 2 * len(options._devices)
        options._timeout = limit
        self._used += 1
        inner = gloo(store, rank, size, options)
        mine, others = [], []
        for socket in (*self._unclaimed, *self._sockets.opened()):
            descriptor, inode, own, peer = socket
            if peer and (own in ports or (peer in self._peers and own not in self._own)):
                mine.append((descriptor, inode))
            elif peer and own in self._own:
                others.append(socket)
        self._unclaimed = others
        return inner, sorted(mine)


def _open_devices() -> list[Any]:
    """As ProcessGroupGloo does for itself where it is given none."""
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME")
    if not interfaces:
        return [dist.ProcessGroupGloo.create_default_device()]
    return [dist.ProcessGroupGloo.create_device(interface=name) for name in interfaces.split(",")]
