"""The controller's process: its parts, and what ranks ask and tell at the desk.

Threads: the host's, but for `start`, `stop`, `carry_out` and `linger`, which are any other's.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from kintsugi import _core

from . import scheduler, settings
from .codes import FAULT_NETWORK, FAULT_PROCESS, FAULT_UCE, MAY_DUMP, MindioError, ReportState
from .desk import DeskServer, Message, Peer
from .era import Era
from .eras import Eras
from .events import Events
from .host import Host
from .layout import Group
from .log import LOGGER
from .pause import Pauses
from .place import Move
from .processes import lives
from .ranks import Ranks
from .run import Run
from .scheduler import Scheduler
from .slices import Slices
from .switch import Switch
from .zit import Zit

_FAULT_OF = {
    ReportState.RS_UCE: FAULT_UCE,
    ReportState.RS_UCE_CORRUPTED: FAULT_UCE,
    ReportState.RS_HCCL_FAILED: FAULT_NETWORK,
    ReportState.RS_RETRY: FAULT_UCE,
}
# What MindIO calls the rungs of the ladder.
_TYPE_OF_RUNG = {
    "resume": "retry", "retry": "retry", "patch": "retry", "rebuild": "retry", "adopt": "recover", "spare": "recover",
    "respawn": "recover", "reload": "retry", "dump": "unknown", "exit": "unknown",
}  # fmt: skip
_RUNG_LIMIT = 10.0


class Master:
    """One run's."""

    def __init__(self, world_size: int, enable_arf: bool, enable_zit: bool = False) -> None:
        self.started = False
        self.host = Host("mindio-host")
        self.ranks = Ranks(world_size)
        self._desk = DeskServer(self.host, self._on_line, self._on_gone)
        eras = Eras(world_size, settings.current(), self._on_event, self._on_broken)
        self.run = Run(self.host, self.ranks, eras, enable_arf)
        self.pauses = Pauses(self.host, self.ranks, eras)
        if enable_zit and not scheduler.is_present():
            LOGGER.warning("enable_zit: nobody would choose downgrade: all four callbacks of a scheduler are registered before the "
                           "controller is made; without them a run does not go on with fewer ranks")
        self._slices = Slices(self.ranks, enable_zit and scheduler.is_present())
        eras.replaces = enable_arf or self._slices.enabled
        self.scheduler = Scheduler(self.run, self.pauses, self._slices)
        self.switch = Switch(self.run, self.pauses, self.scheduler, self._slices)
        self._zit = Zit(self.run, self.scheduler, self._slices)
        self._events = Events(self.run, self.scheduler, self.switch, self._zit)

    # ---- life -----------------------------------------------------------------------------------------------------------

    def start(self, address: str, port: int, tls: ssl.SSLContext | None, tls_files: list[str]) -> None:
        """Raises OSError."""
        self.run.eras.bind, self.run.eras.tls_files = address, tls_files
        self.host.start()
        self.host.run(self._desk.start(address, port, tls))
        self.started = True
        LOGGER.info("controller of %d ranks at %s:%d", self.ranks.world_size, address, port)

    def stop(self) -> None:
        def close() -> None:
            self.run.stopping = True
            for peer in [*self.ranks.peers.values(), *self.ranks.aside.values()]:
                peer.send({"do": "closed"})

        self.host.call(close)
        self._desk.drain(3)
        self.host.call(self._desk.stop)
        self.run.eras.end()
        self.host.stop()

    def linger(self, limit: float) -> None:
        """Before this process leaves: others may still have to be told how the run ended."""
        self._desk.drain(limit)

    def carry_out(self, function: Callable[[Master], Coroutine[Any, Any, None] | None]) -> None:
        """What the scheduler asks for. Raises what the function does."""
        async def run() -> None:
            done = function(self)
            if inspect.isawaitable(done):
                await done

        self.host.run(run())

    async def change_strategy(self, strategy: str, param: str) -> None:
        """The scheduler's word. Raises MindioError."""
        if self.scheduler.upgrades(strategy, param):
            self._zit.ask_upgrade(param)
        else:
            await self.scheduler.change_strategy(strategy, param)

    # ---- Kintsugi's word, on an era's thread ------------------------------------------------------------------------------

    def _on_event(self, era: Era, event: _core.Event) -> None:
        self.host.run(self._events.on_event(era, event))

    def _on_broken(self, why: str) -> None:
        self.host.call(lambda: self.run.end_all(why))

    # ---- the desk ---------------------------------------------------------------------------------------------------------

    def _on_line(self, peer: Peer, message: Message) -> None:
        do = str(message["do"])
        if do == "hello":
            self._hello(peer, message)
        elif peer.rank < 0:
            raise ValueError(f"'{do}' before hello")
        else:
            handler: Callable[[Peer, Message], None] | None = getattr(self, "_do_" + do, None)
            if handler is None:
                raise ValueError(f"'{do}' is nothing that a rank says")
            handler(peer, message)

    def _hello(self, peer: Peer, message: Message) -> None:
        ranks, rank, world_size = self.ranks, int(message["rank"]), int(message["world_size"])
        peer.host, peer.pid = str(message["host"]), int(message["pid"])
        refused = ""
        if world_size != ranks.world_size or not 0 <= rank < world_size:
            refused = f"rank {rank} of {world_size} does not belong to a controller of {ranks.world_size} ranks"
        elif self.run.over:
            refused = f"the run is over: {self.run.over}"
        if refused:
            peer.answer(message, refused=refused)
            return
        shrunk = bool(self._slices.left_out)
        other = ranks.peers.get(rank) or (ranks.aside.get(rank) if shrunk else None)
        aside = "switch" if other is not None and not shrunk and self.switch.put_aside(rank, peer) else "upgrade" if shrunk else ""
        if other is not None and aside != "switch":
            if lives(other, peer.host):
                peer.answer(message, refused=f"rank {rank} has a processor already (process {other.pid} on {other.host}): one process is one rank")
                return
            ranks.forget(other)
        peer.rank = rank
        peer.reboot = aside == "switch" or ranks.ran and not self.run.ended
        if not aside:
            ranks.peers[rank] = peer
        if other is not None and aside != "switch":
            self.run.on_lost(other, "another process of the rank came")
        if aside == "upgrade":
            ranks.put_aside(peer)
            self._zit.look()
        peer.answer(message, reboot=peer.reboot, aside=aside, job=self.run.eras.job, secret=self.run.eras.secret.hex(), offset=ranks.offset)

    def _on_gone(self, peer: Peer) -> None:
        if not self.ranks.forget(peer):
            return
        if not peer.said_goodbye and not self.run.stopping:
            self.run.on_lost(peer, "its process ended")
            self.switch.promote(peer.rank)
        self._zit.look()

    def _do_bye(self, peer: Peer, _: Message) -> None:
        peer.said_goodbye = True

    # ---- before training ----------------------------------------------------------------------------------------------------

    def _do_ready(self, peer: Peer, _: Message) -> None:
        peer.ready = True
        self._zit.look()
        self._zit.try_to_grow()

    def _do_client(self, _: Peer, message: Message) -> None:
        self._slices.client = str(message["version"])

    def _do_replicas(self, peer: Peer, message: Message) -> None:
        groups = [Group(tuple(ranks), int(count)) for ranks, count in message["groups"]]
        error = self.ranks.add_groups(peer.rank, groups)
        peer.answer(message, **({"refused": f"tft_set_optimizer_replica: {error}"} if error else {}))

    def _do_groups(self, peer: Peer, message: Message) -> None:
        """Which groups other ranks are in. A rank has said so before it joined."""
        known = self.ranks.groups
        told = {rank: known.get(int(rank)) for rank in message["ranks"]}
        unknown = [rank for rank, groups in told.items() if groups is None]
        if unknown:
            peer.answer(message, refused=f"rank {unknown[0]} has not set its replica groups")
            return
        peer.answer(message, groups={str(rank): [[list(g.ranks), g.replicas] for g in groups or []] for rank, groups in told.items()})

    def _do_begin(self, peer: Peer, message: Message) -> None:
        """A rank is about to join: the controller waits for the others from the first one on."""
        self._slices.hear(peer.rank, message)
        if self._slices.enabled and peer.reboot:
            self.host.begin(self._begin_again(peer, message))
        else:
            self._begin(peer, message)

    async def _begin_again(self, peer: Peer, message: Message) -> None:
        """Whether a process takes a lost one's place now is the scheduler's word."""
        await self.scheduler.await_settled()
        takes_place = self.run.enable_arf and self.scheduler.word != "downgrade" and not self._slices.left_out
        if takes_place and peer.rank in self.run.eras.crew:
            self._begin(peer, message)
            return
        self.ranks.forget(peer)
        self.ranks.put_aside(peer)
        peer.answer(message, aside=True)

    def _begin(self, peer: Peer, message: Message) -> None:
        if self.run.is_over:
            peer.answer(message, refused="the run has ended")
        else:
            peer.answer(message, place=self.run.eras.first().place.message())

    # ---- in training ----------------------------------------------------------------------------------------------------------

    def _is_of_now(self, message: Message) -> bool:
        era = self.run.eras.now
        return era is not None and era.number == int(message["era"])

    def _do_joined(self, peer: Peer, message: Message) -> None:
        if self._is_of_now(message):
            peer.incarnation = int(message["incarnation"])
            self.ranks.rolled_back(peer.rank, 0)

    def _do_trains(self, peer: Peer, _: Message) -> None:
        self.ranks.trains(peer.rank)

    def _do_offset(self, peer: Peer, message: Message) -> None:
        """How the client's numbers of steps lie above Kintsugi's, which begin at 0."""
        offset = int(message["offset"])
        known = self.ranks.take_offset(offset, bool(message.get("forced")))
        if known != offset:
            LOGGER.error("rank %d counts its steps %d above the others", peer.rank, offset - known)

    def _do_synced(self, peer: Peer, message: Message) -> None:
        self.pauses.on_synced(peer, message)

    # ---- in an incident -------------------------------------------------------------------------------------------------------

    def _do_report(self, peer: Peer, message: Message) -> None:
        state, code = ReportState[str(message["state"])], str(message["code"])
        LOGGER.warning("rank %d reports %s %s: %s", peer.rank, state.name, code, message["text"])
        self.ranks.note_fault(peer.rank, _FAULT_OF.get(state, FAULT_PROCESS), code)
        if state is ReportState.RS_UNKNOWN:
            self.run.report_exit(peer, f"reported {message['text']}")
            if self.run.enable_arf or self._slices.enabled:
                self.run.leave(peer, "the run goes on without this process")

    def _do_clean(self, peer: Peer, message: Message) -> None:
        """A rank asks how the incident of this generation is repaired, before it touches anything."""
        self.host.begin(self._tell_strategy(peer, message))

    async def _tell_strategy(self, peer: Peer, message: Message) -> None:
        generation, era, word = int(message["generation"]), self.run.eras.now, self.scheduler
        if era is None or not self._is_of_now(message):  # it has another place by now
            peer.answer(message, type="unknown", other_way=False, switch=False, moves=True, opened=True)
            return
        await self.host.until(lambda: generation in era.rungs or self.run.stopping, _RUNG_LIMIT)
        rung = era.rungs.get(generation, "exit")
        hurt = any(rank in era.crew for rank in self.ranks.known_faults())
        # Until the client's handlers of a move were called there is nothing to stop and to clean.
        if era.move is not Move.NONE and (not era.opened or era.pending and bool(message["clean"]) and not hurt):
            peer.answer(message, type="unknown", other_way=False, switch=False, skip=True, opened=era.opened)
            return
        strategy = await word.await_word(rung)
        if strategy == "upgrade" and era.move is Move.GROW:
            strategy = await word.fail(MAY_DUMP, "do repair failed", "upgrade")
        elif strategy == "downgrade" and era.pending and not hurt:  # nobody was lost: it would fail again
            strategy = await word.fail(MAY_DUMP, "controller do downgrade repair failed", "downgrade")
        kind = _TYPE_OF_RUNG.get(rung, "unknown")
        if kind == "retry" and any(fault == FAULT_PROCESS for fault, _ in self.ranks.known_faults().values()):
            kind = "recover"
        moves = strategy in ("downgrade", "upgrade")
        # Where the scheduler chose another way than the ladder, this attempt is given up and the ladder asked again.
        other_way = (strategy == "dump" and rung != "dump") or (strategy == "recover" and rung in ("retry", "patch", "rebuild"))
        peer.answer(message, type="unknown" if moves else kind, other_way=other_way, switch=self.switch.migrates, moves=moves, opened=True)

    def _do_cleaned(self, peer: Peer, message: Message) -> None:
        self._zit.on_cleaned(peer.rank, int(message["era"]), int(message["generation"]), message["offset"])

    def _do_cannot_send(self, peer: Peer, message: Message) -> None:
        """No repair comes from this rank, and what it holds is whole: dump, or what the scheduler says."""
        LOGGER.error("rank %d cannot send its state: %s", peer.rank, message["text"])
        self.host.begin(self._ask_what_follows(peer, message))

    async def _ask_what_follows(self, peer: Peer, message: Message) -> None:
        if self._is_of_now(message) and self.scheduler.present:
            await self.scheduler.fail(MAY_DUMP, "do repair failed", self.scheduler.word)
        elif self._is_of_now(message):
            self.run.save_and_end()
        peer.answer(message)

    def _do_rolled_back(self, peer: Peer, message: Message) -> None:
        if self._is_of_now(message):
            self.ranks.rolled_back(peer.rank, int(message["generation"]))

    def _do_rename(self, peer: Peer, message: Message) -> None:
        """The rank that publishes the dump is another one than Kintsugi asked."""
        other = self.ranks.peers.get(int(message["rank"]))
        if other is None:
            peer.answer(message, refused=f"rank {message['rank']} is gone and cannot rename")
        else:
            self._forwarded = (peer, message)
            other.send({"do": "rename", "step": message["step"]})

    def _do_renamed(self, _: Peer, message: Message) -> None:
        peer, request = self._forwarded
        peer.answer(request, **({"refused": message["error"]} if message["error"] else {}))
