"""How a rank becomes a member of the run: it says hello, waits for a place where it stands aside, and joins Kintsugi's controller, again
in every era.

Threads: the main thread's, but for `follow`, which is the guard's of the era before.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any

from kintsugi import _core

from .callbacks import Kind
from .codes import MindioError, ReportState
from .elastic import HANDLERS
from .layout import Group
from .log import LOGGER
from .place import Place
from .processes import host_name
from .rank import Rank

_ANSWER_LIMIT = 10.0
_REPLICA_TRIES, _REPLICA_LIMIT = 5, 6.0
_GATE_WITHOUT_BARRIER = 2
_READY = (ReportState.RS_INIT_FINISH, ReportState.RS_PREREPAIR_FINISH)


class Membership:
    """`on_join`: it is one from now on, with this agent and place."""

    def __init__(self, rank: Rank, on_join: Callable[[_core.Agent, Place], None]) -> None:
        self._rank, self._state, self._on_join = rank, rank.state, on_join
        self.reboot = False  # its rank had another process before
        self.came_aside = False  # for a hot switch, beside the process that the rank had

    def start(self, host: str, port: int, local: str, tls: ssl.SSLContext | None, tls_files: list[str]) -> None:
        """Raises OSError or MindioError."""
        rank = self._rank
        self._tls_files = tls_files
        rank.link.connect(host, port, local, tls, rank.settings.retry_times)
        try:
            welcome = rank.link.ask("hello", _ANSWER_LIMIT, rank=rank.number, world_size=rank.world_size, pid=os.getpid(), host=host_name())
        except MindioError as error:
            if rank.link.alive:
                raise
            raise MindioError(f"{error}: TLS must be on or off on both sides, and certificates of one authority") from error
        self.reboot = bool(welcome["reboot"])
        self.came_aside = welcome["aside"] == "switch"
        rank.aside = bool(welcome["aside"])
        self._job, self._secret = str(welcome["job"]), bytes.fromhex(str(welcome["secret"]))
        self._state.offset = welcome["offset"]

    # ---- before training --------------------------------------------------------------------------------------------------

    def set_replicas(self, groups: list[Group]) -> None:
        rank = self._rank
        if rank.agent is not None:
            if groups != rank.groups:
                raise MindioError("tft_set_optimizer_replica: training has begun: the groups cannot change any more")
            return
        for attempt in range(1, _REPLICA_TRIES + 1):
            try:
                rank.link.ask("replicas", _REPLICA_LIMIT, groups=[[list(group.ranks), group.replicas] for group in groups])
                break
            except MindioError as error:
                if attempt == _REPLICA_TRIES or "no answer" not in str(error):
                    raise
        rank.groups = groups

    def set_dp_group(self, ranks: list[int]) -> None:
        if self._rank.place is not None and ranks != self._rank.dp:
            raise MindioError("tft_set_dp_group_info: training has begun: the group cannot change any more")
        self._rank.dp = ranks

    # ---- joining ------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Training begins. Without replica groups nothing is protected yet; who is not among those that train stands aside."""
        rank = self._rank
        if rank.agent is not None or not rank.groups:
            return
        if rank.place is None:
            limit = _ANSWER_LIMIT + (4 * rank.settings.scheduler_wait + 20 if self.reboot else 0)
            handlers = [name for name in HANDLERS if rank.callbacks.has(Kind(name))]
            answer = rank.link.ask("begin", limit, dp=rank.dp, handlers=handlers, enabled=rank.enable_zit)
            with self._state.changed:
                if rank.place is None and "place" not in answer:
                    rank.aside = True
                    return
                rank.place = rank.place or Place.read(answer["place"])
        self._join(rank.place)

    def stands(self, state: ReportState, text: str) -> bool:
        """It has joined, once a place is free where it stands aside. False: it is to leave."""
        if self._rank.aside and not self._await_place(state, text):
            return False
        self.begin()
        if self._rank.aside:  # the scheduler has chosen to go on without this rank
            if not self._await_place(state, text):
                return False
            self.begin()
        return True

    def _await_place(self, state: ReportState, text: str) -> bool:
        """A process that stands aside is ready, and waits for the other one's place. False: it is to leave."""
        s = self._state
        with s.changed:
            if state in _READY:
                self._rank.link.tell("ready")
                s.wait(lambda: not self._rank.aside or s.exiting is not None)
            else:
                s.leave(f"it stood aside, and failed: {text}")
            return s.exiting is None

    def follow(self) -> None:
        """This rank goes on elsewhere. Raises RuntimeError where nobody is there."""
        rank, s = self._rank, self._state
        while True:
            assert rank.agent is not None and rank.place is not None
            rank.agent.leave()
            place = rank.place
            try:
                self._join(place)
                return
            except RuntimeError as error:
                LOGGER.warning("rank %d could not join era %d: %s", rank.number, place.era, error)
                with s.changed:
                    s.changed.wait_for(lambda: rank.place is not place or s.exiting is not None, rank.settings.action_limit)
                    if rank.place is place:
                        raise

    def _join(self, place: Place) -> None:
        rank, crew = self._rank, place.crew
        options: dict[str, Any] = {
            "controller": f"{rank.link.remote}:{place.port}", "job": f"{self._job}-{place.era}", "secret": self._secret,
            "rank": crew.number(rank.number), "world_size": len(crew),
        }  # fmt: skip
        if self._tls_files:
            options.update(zip(("tls_certificate", "tls_key", "tls_ca"), self._tls_files))
        agent = _core.Agent(**options)
        rank.agent = agent
        if place.offset is not None:
            self._state.offset = place.offset
        rank.link.tell("joined", era=place.era, incarnation=agent.incarnation)
        if not rank.settings.gate:
            agent.set_gate(_GATE_WITHOUT_BARRIER)
        self._register(agent, place)
        self._on_join(agent, place)

    def _register(self, agent: _core.Agent, place: Place) -> None:
        """A tensor without bytes for each optimizer type stands for the state that the client moves and writes by itself: no rank has
        more of it to write than another, so Kintsugi does not deal out a dump, and the first usable holder of each part is its writer."""
        rank, crew = self._rank, place.crew
        for kind, group in enumerate(rank.groups):
            holders = group.holders(rank.number)
            agent.register_tensor(f"mindio/type-{kind}/of-{holders[0]}", "uint8", [0], [0], [0], (0, 0), 0, 0, kind, 0)
            # Of a smaller world's groups not every part has as many holders.
            here = crew.numbers(holders)
            agent.set_layout(kind, here, len(here))
