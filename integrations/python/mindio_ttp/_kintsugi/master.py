"""The controller's process: the desk, and what ranks ask and tell there.

Threads: the desk's runs `_on_line` and `_on_gone`, an era's watcher events.py; what both touch is under the lock of `ranks`.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable

from . import settings
from .codes import FAULT_NETWORK, FAULT_PROCESS, FAULT_UCE, MAY_DUMP, MindioError, ReportState
from .desk import DeskServer, Message, Peer
from .elastic import remaining
from .era import Era
from .eras import Eras
from .events import Events
from .layout import Group
from .log import LOGGER
from .pause import Pauses
from .place import Move, Place
from .processes import lives, send_away
from .ranks import Ranks
from .scheduler import Scheduler
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


class Master:
    """One run's."""

    def __init__(self, world_size: int, enable_arf: bool, enable_zit: bool = False) -> None:
        self.world_size = world_size
        self.enable_arf = enable_arf
        self.ranks = Ranks(world_size)
        self._lock, self._changed = self.ranks.lock, self.ranks.changed
        self._desk = DeskServer(self._on_line, self._on_gone)
        self.eras = Eras(self.ranks, settings.current(), Events(self).on_event, self.end_all)
        self._ended = False
        self._stopping = False
        self._over = ""  # everybody was told to leave, and why
        self.pauses = Pauses(self.ranks, self.eras)
        self.scheduler = Scheduler(self)
        self.switch = Switch(self)
        if enable_zit and not self.scheduler.present:
            LOGGER.warning("enable_zit: nobody would choose downgrade: all four callbacks of a scheduler are registered before the "
                           "controller is made; without them a run does not go on with fewer ranks")
        self.zit = Zit(self, enable_zit and self.scheduler.present)
        self.eras.replaces = enable_arf or self.zit.enabled

    # ---- life -----------------------------------------------------------------------------------------------------------

    def start(self, host: str, port: int, tls: ssl.SSLContext | None, tls_files: list[str]) -> None:
        """Raises OSError."""
        self.eras.bind, self.eras.tls_files = host, tls_files
        self._desk.start(host, port, tls)
        LOGGER.info("controller of %d ranks at %s:%d", self.world_size, host, port)

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._changed.notify_all()
        for peer in [*self.ranks.peers.values(), *self.zit.take_all()]:
            peer.send({"do": "closed"})
        self._desk.drain(3)
        self._desk.stop()
        self.eras.end()

    @property
    def over(self) -> bool:
        """Everybody was told to leave."""
        with self._lock:
            return bool(self._over)

    def note_end(self) -> None:
        """The run has ended by itself."""
        with self._lock:
            self._ended = True

    def linger(self, limit: float) -> None:
        """Before this process leaves: others may still have to be told how the run ended."""
        self._desk.drain(limit)

    # ---- what the scheduler's side asks -----------------------------------------------------------------------------------

    def save_and_end(self) -> None:
        with self._lock:
            if self.eras.now is None:
                raise MindioError("there is nothing to dump: no rank has begun to train")
            self.eras.now.core.save_and_end()

    def lose(self, rank: int, why: str) -> None:
        """A process counts as ended, whatever it still does."""
        with self._lock:
            if rank not in self.eras.crew:
                return
            peer = self.ranks.peers.get(rank)
            self.ranks.note_fault(rank, FAULT_PROCESS, self.ranks.known_faults().get(rank, (0, ""))[1])
        if peer is None or not peer.incarnation:
            return
        self._report_exit(rank, peer.incarnation, why)
        peer.incarnation = 0
        self._leave(peer, why)

    def migrate(self, ranks: set[int]) -> None:
        """All ranks stand in a pause: those that stand aside take the places of these."""
        with self._lock:
            old = [peer for rank, peer in self.ranks.peers.items() if rank in ranks]
            for rank in ranks:
                self.ranks.note_fault(rank, FAULT_PROCESS, "")
        for peer in old:
            self._report_exit(peer.rank, peer.incarnation, "another process takes its place: hot switch")
            peer.incarnation = 0
            self._promote(peer.rank)
            self._leave(peer, "another process has taken its place: hot switch")

    def dismiss(self, peer: Peer, why: str) -> None:
        """A process that stands aside is not needed."""
        self._leave(peer, why)

    def _promote(self, rank: int) -> None:
        """Who stands aside for the rank is its process from now on."""
        peer = self.switch.take(rank)
        if peer is None:
            return
        with self._lock:
            self.ranks.peers[rank] = peer
            offset = self.ranks.offset
        peer.send({"do": "take_place", "offset": offset})

    def end_all(self, why: str) -> None:
        """Every process leaves, nothing is saved."""
        with self._lock:
            self._over = why
            peers = list(self.ranks.peers.values())
        for peer in [*peers, *self.zit.take_all()]:
            self._leave(peer, why)

    def give_up(self, rank: int, why: str) -> None:
        """The process of a rank is to be replaced."""
        with self._lock:
            peer = self.ranks.peers.get(rank)
        if peer is not None:
            self._leave(peer, why)

    # ---- eras -------------------------------------------------------------------------------------------------------------

    def is_current(self, era: Era) -> bool:
        with self._lock:
            return self.eras.now is era and not self._over and not self._ended

    def missing(self) -> tuple[Era | None, set[int]]:
        """The era, None where the run is over; and those of its crew that have no process."""
        with self._lock:
            era = self.eras.now
            if era is None or not self.is_current(era):
                return None, set()
            return era, set(era.crew.ranks) - self.ranks.living

    def may_move(self) -> bool:
        """Nothing is under way."""
        with self._lock:
            era = self.eras.now
            return era is not None and self.is_current(era) and not era.pending and not self.ranks.known_faults()

    def step_out(self) -> None:
        """One rank leaves its loop, and so all do."""
        with self._lock:
            peer = next((self.ranks.peers[rank] for rank in self.eras.crew.ranks if rank in self.ranks.peers), None)
        if peer is not None:
            peer.send({"do": "step_out"})

    def move(self, before: Era, place: Place, back: dict[int, Peer] | None = None) -> None:
        """All of a crew go on in another era. `back`: processes that stood aside until now."""
        with self._lock:
            if not self.is_current(before):
                return
            era = self.eras.next(place)
            self.ranks.offset = place.offset
            self.ranks.peers.update(back or {})
            self.ranks.begin_era(keeps_faults=place.move is not Move.GROW)
            gone = [self.ranks.peers.pop(rank) for rank in list(self.ranks.peers) if rank not in era.crew]
            peers = dict(self.ranks.peers)
            for peer in [*peers.values(), *gone]:
                peer.incarnation = 0
        LOGGER.warning("era %d begins, %s: ranks %s, and %s", era.number, place.move.value, list(era.crew.ranks), list(place.others))
        for peer in gone:
            self._leave(peer, "the run goes on without it: downgrade")
        groups = self.ranks.groups
        for rank, peer in peers.items():
            peer.send({"do": "place", **era.place.message(), "dp": remaining(groups[rank][0].ranks, era.crew.ranks)})

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
        rank, world_size = int(message["rank"]), int(message["world_size"])
        refused = ""
        if world_size != self.world_size or not 0 <= rank < world_size:
            refused = f"rank {rank} of {world_size} does not belong to a controller of {self.world_size} ranks"
        with self._lock:
            other = self.ranks.peers.get(rank)
            if self._over and not refused:
                refused = f"the run is over: {self._over}"
            peer.host, peer.pid = str(message["host"]), int(message["pid"])
            left_out = not refused and self.zit.shrunk
            if left_out and other is None:
                other = self.zit.stands_aside(rank)
            aside = other is not None and not refused and not left_out and self.switch.put_aside(rank, peer)
            if other is not None and not refused and not aside and lives(other, peer.host):
                refused = f"rank {rank} has a processor already (process {other.pid} on {other.host}): one process is one rank"
            if not refused:
                peer.rank = rank
                reboot = aside or self.ranks.ran and not self._ended
                peer.reboot = reboot
                if not aside:
                    self.ranks.peers[rank] = peer
                if left_out:
                    del self.ranks.peers[rank]
        if refused:
            peer.answer(message, refused=refused)
            return
        if other is not None and not aside:
            self._lost(other, "another process of the rank came")
        if left_out:
            self.zit.put_aside(peer)
            self.zit.look()
        peer.answer(message, reboot=reboot, aside="switch" if aside else "upgrade" if left_out else "", job=self.eras.job,
                    secret=self.eras.secret.hex(), offset=self.ranks.offset)
        with self._lock:
            self._changed.notify_all()

    def _on_gone(self, peer: Peer) -> None:
        peer.gone = True
        self.switch.on_gone(peer)
        self.zit.on_gone(peer)
        with self._lock:
            current = self.ranks.peers.get(peer.rank) is peer
            if current:
                del self.ranks.peers[peer.rank]
        if current and not peer.said_goodbye and not self._stopping:
            self._lost(peer, "its process ended")
            self._promote(peer.rank)
        with self._lock:
            self._changed.notify_all()
        if current and self.zit.enabled:
            self.zit.look()

    def _lost(self, peer: Peer, cause: str) -> None:
        if not peer.incarnation:
            return
        self.ranks.count_as_lost([peer.rank])
        self._report_exit(peer.rank, peer.incarnation, cause)

    def _do_ready(self, peer: Peer, _: Message) -> None:
        self.switch.on_ready(peer)
        self.zit.on_ready(peer)

    def _do_client(self, _: Peer, message: Message) -> None:
        self.zit.client = str(message["version"])

    def _do_cleaned(self, peer: Peer, message: Message) -> None:
        self.zit.on_cleaned(peer.rank, int(message["era"]), int(message["generation"]), message["offset"])

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
        self.zit.hear(peer.rank, message)
        if self.zit.enabled and peer.reboot:
            threading.Thread(target=self._begin_again, args=(peer, message), name="mindio-begin", daemon=True).start()
        else:
            self._begin(peer, message)

    def _begin_again(self, peer: Peer, message: Message) -> None:
        """Whether a process takes a lost one's place now is the scheduler's word."""
        self.scheduler.await_settled()
        if self.enable_arf and self.scheduler.word != "downgrade" and peer.rank in self.eras.crew and not self.zit.shrunk:
            self._begin(peer, message)
            return
        with self._lock:
            if self.ranks.peers.get(peer.rank) is peer:
                del self.ranks.peers[peer.rank]
        self.zit.put_aside(peer)
        peer.answer(message, aside=True)

    def _begin(self, peer: Peer, message: Message) -> None:
        with self._lock:
            ends = self._ended or self._stopping or bool(self._over)
            era = None if ends else self.eras.first()
        if era is None:
            peer.answer(message, refused="the run has ended")
        else:
            peer.answer(message, place=era.place.message())

    def _report_exit(self, rank: int, incarnation: int, cause: str) -> None:
        if not self._over:
            self.eras.report_exit(rank, incarnation, cause)

    def _do_joined(self, peer: Peer, message: Message) -> None:
        with self._lock:
            if self.eras.now is not None and self.eras.now.number == int(message["era"]):
                peer.incarnation = int(message["incarnation"])
                self.ranks.rolled_back(peer.rank, 0)

    def _do_rolled_back(self, peer: Peer, message: Message) -> None:
        with self._lock:
            if self.eras.now is not None and self.eras.now.number == int(message["era"]):
                self.ranks.rolled_back(peer.rank, int(message["generation"]))

    def _do_trains(self, peer: Peer, _: Message) -> None:
        self.ranks.trains(peer.rank)

    def _do_offset(self, peer: Peer, message: Message) -> None:
        """How the client's numbers of steps lie above Kintsugi's, which begin at 0."""
        offset = int(message["offset"])
        known = self.ranks.take_offset(offset, bool(message.get("forced")))
        if known != offset:
            LOGGER.error("rank %d counts its steps %d above the others", peer.rank, offset - known)

    def _do_report(self, peer: Peer, message: Message) -> None:
        state, code = ReportState[str(message["state"])], str(message["code"])
        LOGGER.warning("rank %d reports %s %s: %s", peer.rank, state.name, code, message["text"])
        self.ranks.note_fault(peer.rank, _FAULT_OF.get(state, FAULT_PROCESS), code)
        if state is ReportState.RS_UNKNOWN:
            if peer.incarnation:
                self._report_exit(peer.rank, peer.incarnation, f"reported {message['text']}")
            peer.incarnation = 0
            if self.enable_arf or self.zit.enabled:
                self._leave(peer, "the run goes on without this process")

    def _do_cannot_send(self, peer: Peer, message: Message) -> None:
        """No repair comes from this rank, and what it holds is whole: dump, or what the scheduler says."""
        with self._lock:
            current = self.eras.now is not None and self.eras.now.number == int(message["era"])
        LOGGER.error("rank %d cannot send its state: %s", peer.rank, message["text"])
        if current and self.scheduler.present:
            threading.Thread(target=self._ask_what_follows, args=(peer, message), name="mindio-unsent", daemon=True).start()
            return
        if current:
            self.save_and_end()
        peer.answer(message)

    def _ask_what_follows(self, peer: Peer, message: Message) -> None:
        self.scheduler.fail(MAY_DUMP, "do repair failed", self.scheduler.word)
        peer.answer(message)

    def _do_clean(self, peer: Peer, message: Message) -> None:
        """A rank asks how the incident of this generation is repaired, before it touches anything."""
        threading.Thread(target=self._tell_strategy, args=(peer, message), name="mindio-strategy", daemon=True).start()

    def _tell_strategy(self, peer: Peer, message: Message) -> None:
        generation = int(message["generation"])
        with self._changed:
            era = self.eras.now
            if era is None or era.number != int(message["era"]):  # it has another place by now
                peer.answer(message, type="unknown", other_way=False, switch=False, moves=True, opened=True)
                return
            self._changed.wait_for(lambda: generation in era.rungs or self._stopping, 10)
            rung = era.rungs.get(generation, "exit")
            hurt = any(rank in era.crew for rank in self.ranks.known_faults())
        # Until the client's handlers of a move were called there is nothing to stop and to clean.
        if era.move is not Move.NONE and (not era.opened or era.pending and bool(message["clean"]) and not hurt):
            peer.answer(message, type="unknown", other_way=False, switch=False, skip=True, opened=era.opened)
            return
        strategy = self.scheduler.await_word(rung)
        if strategy == "upgrade" and era.move is Move.GROW:
            strategy = self.scheduler.fail(MAY_DUMP, "do repair failed", "upgrade")
        elif strategy == "downgrade" and era.pending and not hurt:  # nobody was lost: it would fail again
            strategy = self.scheduler.fail(MAY_DUMP, "controller do downgrade repair failed", "downgrade")
        with self._lock:
            kind = _TYPE_OF_RUNG.get(rung, "unknown")
            if kind == "retry" and any(fault == FAULT_PROCESS for fault, _ in self.ranks.known_faults().values()):
                kind = "recover"
        moves = strategy in ("downgrade", "upgrade")
        # Where the scheduler chose another way than the ladder, this attempt is given up and the ladder asked again.
        other_way = (strategy == "dump" and rung != "dump") or (strategy == "recover" and rung in ("retry", "patch", "rebuild"))
        peer.answer(message, type="unknown" if moves else kind, other_way=other_way, switch=self.switch.migrates, moves=moves, opened=True)

    def _do_rename(self, peer: Peer, message: Message) -> None:
        """The rank that publishes the dump is another one than Kintsugi asked."""
        with self._lock:
            other = self.ranks.peers.get(int(message["rank"]))
        if other is None:
            peer.answer(message, refused=f"rank {message['rank']} is gone and cannot rename")
        else:
            self._forwarded = (peer, message)
            other.send({"do": "rename", "step": message["step"]})

    def _do_renamed(self, _: Peer, message: Message) -> None:
        peer, request = self._forwarded
        peer.answer(request, **({"refused": message["error"]} if message["error"] else {}))

    def _do_synced(self, peer: Peer, message: Message) -> None:
        self.pauses.on_synced(peer, message)

    def _do_bye(self, peer: Peer, _: Message) -> None:
        peer.said_goodbye = True

    def _leave(self, peer: Peer, why: str) -> None:
        send_away(peer, why)
