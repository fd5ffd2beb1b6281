"""The controller's process: hosts Kintsugi's controller and the desk, and tells ranks what they ask.

Threads: the desk's runs `_on_line` and `_on_gone`, the event thread `_on_event`; what both touch is under `_lock`.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from kintsugi import _core

from . import settings
from .codes import FAULT_NETWORK, FAULT_PROCESS, FAULT_UCE, MindioError, ReportState
from .desk import DeskServer, Message, Peer
from .layout import Group, World
from .log import LOGGER
from .pause import Pauses
from .scheduler import Scheduler
from .switch import Switch

_PHASE, _NOTICE, _GIVEN_UP, _INCIDENT, _ENDED = 1, 2, 3, 4, 5
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
_RESPAWNS = 1_000_000
_PULL_MS = 50


class Master:
    """One run's."""

    def __init__(self, world_size: int, enable_arf: bool) -> None:
        self.world_size = world_size
        self.enable_arf = enable_arf
        self._settings = settings.current()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._desk = DeskServer(self._on_line, self._on_gone)
        self._bind = ""
        self._job = f"mindio-{secrets.token_hex(8)}"
        self._secret = secrets.token_bytes(32)
        self._tls_files: list[str] = []
        self._core: _core.Controller | None = None
        self._peers: dict[int, Peer] = {}
        self._seen: set[int] = set()  # ranks that have trained
        self._world = World(world_size)
        self._offset: int | None = None
        self._faults: dict[int, tuple[int, str]] = {}  # of the incident under way: rank -> kind, code
        self._rungs: dict[int, str] = {}  # generation -> rung, from CLEAN or DUMP on
        self._ran = False
        self._ended: tuple[int, str] | None = None
        self._stopping = False
        self._over = ""  # everybody was told to leave, and why
        self.pauses = Pauses(self)
        self.scheduler = Scheduler(self)
        self.switch = Switch(self)

    # ---- life -----------------------------------------------------------------------------------------------------------

    def start(self, host: str, port: int, tls: ssl.SSLContext | None, tls_files: list[str]) -> None:
        """Raises OSError."""
        self._bind, self._tls_files = host, tls_files
        self._desk.start(host, port, tls)
        LOGGER.info("controller of %d ranks at %s:%d", self.world_size, host, port)

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            core, self._core = self._core, None
            self._changed.notify_all()
        for peer in list(self._peers.values()):
            peer.send({"do": "closed"})
        self._desk.drain(3)
        self._desk.stop()
        if core is not None:
            self._watcher.join()
            core.stop()

    def linger(self, limit: float) -> None:
        """Before this process leaves: others may still have to be told how the run ended."""
        self._desk.drain(limit)

    # ---- what the scheduler's side asks -----------------------------------------------------------------------------------

    @property
    def linked(self) -> bool:
        with self._lock:
            return bool(self._peers)

    @property
    def faults(self) -> dict[int, tuple[int, str]]:
        with self._lock:
            return dict(self._faults)

    def broadcast(self, message: Message) -> list[int]:
        with self._lock:
            peers = dict(self._peers)
        for peer in peers.values():
            peer.send(message)
        return sorted(peers)

    def save_and_end(self) -> None:
        with self._lock:
            if self._core is None:
                raise MindioError("there is nothing to dump: no rank has begun to train")
            self._core.save_and_end()

    def lose(self, rank: int, why: str) -> None:
        """A process counts as ended, whatever it still does."""
        with self._lock:
            peer = self._peers.get(rank)
            self._faults[rank] = (FAULT_PROCESS, self._faults.get(rank, (0, ""))[1])
        if peer is None or not peer.incarnation:
            return
        self._report_exit(rank, peer.incarnation, why)
        peer.incarnation = 0
        self._leave(peer, why)

    def migrate(self, ranks: set[int]) -> None:
        """All ranks stand in a pause: those that stand aside take their places, and the others leave their step."""
        with self._lock:
            old = [peer for rank, peer in self._peers.items() if rank in ranks]
            others = [peer for rank, peer in self._peers.items() if rank not in ranks]
            self._faults.update({rank: (FAULT_PROCESS, "") for rank in ranks})
        for peer in others:
            peer.send({"do": "switch"})
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
            self._peers[rank] = peer
            offset = self._offset
        peer.send({"do": "take_place", "offset": offset})

    def end_all(self, why: str) -> None:
        """Every process leaves, nothing is saved."""
        with self._lock:
            self._over = why
            peers = list(self._peers.values())
        for peer in peers:
            self._leave(peer, why)

    def give_up(self, rank: int, why: str) -> None:
        """The process of a rank is to be replaced."""
        with self._lock:
            peer = self._peers.get(rank)
        if peer is not None:
            self._leave(peer, why)

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
            other = self._peers.get(rank)
            if self._over and not refused:
                refused = f"the run is over: {self._over}"
            peer.host, peer.pid = str(message["host"]), int(message["pid"])
            aside = other is not None and not refused and self.switch.put_aside(rank, peer)
            if other is not None and not refused and not aside and _lives(other, peer.host):
                refused = f"rank {rank} has a processor already (process {other.pid} on {other.host}): one process is one rank"
            if not refused:
                peer.rank = rank
                reboot = aside or self._ran and self._ended is None
                if not aside:
                    self._peers[rank] = peer
        if refused:
            peer.answer(message, refused=refused)
            return
        if other is not None and not aside:
            self._lost(other, "another process of the rank came")
        peer.answer(message, reboot=reboot, aside=aside, job=self._job, secret=self._secret.hex(), offset=self._offset)
        with self._lock:
            self._changed.notify_all()

    def _on_gone(self, peer: Peer) -> None:
        peer.gone = True
        self.switch.on_gone(peer)
        with self._lock:
            current = self._peers.get(peer.rank) is peer
            if current:
                del self._peers[peer.rank]
        if current and not peer.said_goodbye and not self._stopping:
            self._lost(peer, "its process ended")
            self._promote(peer.rank)
        with self._lock:
            self._changed.notify_all()
        if current:
            self.pauses.on_gone(peer.rank)

    def _lost(self, peer: Peer, cause: str) -> None:
        if not peer.incarnation:
            return
        with self._lock:
            self._faults.setdefault(peer.rank, (FAULT_PROCESS, ""))
        self._report_exit(peer.rank, peer.incarnation, cause)

    def _do_ready(self, peer: Peer, _: Message) -> None:
        self.switch.on_ready(peer)

    def _do_replicas(self, peer: Peer, message: Message) -> None:
        groups = [Group(tuple(ranks), int(count)) for ranks, count in message["groups"]]
        with self._lock:
            error = self._world.add(peer.rank, groups)
        peer.answer(message, **({"refused": f"tft_set_optimizer_replica: {error}"} if error else {}))

    def _do_groups(self, peer: Peer, message: Message) -> None:
        """Which groups other ranks are in. A rank has said so before it joined."""
        with self._lock:
            told = {rank: self._world.told.get(int(rank)) for rank in message["ranks"]}
        unknown = [rank for rank, groups in told.items() if groups is None]
        if unknown:
            peer.answer(message, refused=f"rank {unknown[0]} has not set its replica groups")
            return
        peer.answer(message, groups={str(rank): [[list(g.ranks), g.replicas] for g in groups or []] for rank, groups in told.items()})

    def _do_begin(self, peer: Peer, message: Message) -> None:
        """A rank is about to join: the controller waits for the others from the first one on."""
        with self._lock:
            ends = self._ended is not None or self._stopping or bool(self._over)
            if self._core is None and not ends:
                self._core = self._host()
            core = self._core
        if core is None or ends:
            peer.answer(message, refused="the run has ended")
        else:
            peer.answer(message, port=core.port)

    def _host(self) -> _core.Controller:
        limit = self._settings.action_limit
        core = _core.Controller(
            bind=self._bind, job=self._job, secret=self._secret, world_size=self.world_size,
            max_respawns=_RESPAWNS if self.enable_arf else 0,
            silence_ms=int(self._settings.silence * 1000),
            # Within a handler's time all of the scheduler's waits may lie.
            step_timeout_ms=int(1000 * (limit + 4 * self._settings.scheduler_wait + 30)),
            join_timeout_ms=int(self._settings.respawn_wait * 1000),
            hang_factor=0, save_directory="of the client", tls=self._tls_files,
            reload_directory="the newest periodic checkpoint of the client",
        )  # fmt: skip
        self._watcher = threading.Thread(target=self._watch, args=(core,), name="mindio-events", daemon=True)
        self._watcher.start()
        return core

    def _report_exit(self, rank: int, incarnation: int, cause: str) -> None:
        """Under the lock: while the controller is there."""
        with self._lock:
            if self._core is not None and not self._over:
                self._core.report_exit(rank, incarnation, cause)

    def _do_joined(self, peer: Peer, message: Message) -> None:
        peer.incarnation = int(message["incarnation"])

    def _do_trains(self, peer: Peer, _: Message) -> None:
        with self._lock:
            self._seen.add(peer.rank)
            self._ran = self._ran or len(self._seen) == self.world_size

    def _do_offset(self, peer: Peer, message: Message) -> None:
        """How the client's numbers of steps lie above Kintsugi's, which begin at 0."""
        offset, forced = int(message["offset"]), bool(message.get("forced"))
        with self._lock:
            if self._offset is None or forced:
                self._offset = offset
            known = self._offset
        if known != offset:
            LOGGER.error("rank %d counts its steps %d above the others", peer.rank, offset - known)

    def _do_report(self, peer: Peer, message: Message) -> None:
        state, code = ReportState[str(message["state"])], str(message["code"])
        LOGGER.warning("rank %d reports %s %s: %s", peer.rank, state.name, code, message["text"])
        with self._lock:
            self._faults[peer.rank] = (_FAULT_OF.get(state, FAULT_PROCESS), code)
        if state is ReportState.RS_UNKNOWN:
            if peer.incarnation:
                self._report_exit(peer.rank, peer.incarnation, f"reported {message['text']}")
            peer.incarnation = 0
            if self.enable_arf:
                self._leave(peer, "another process takes its place")

    def _do_clean(self, peer: Peer, message: Message) -> None:
        """A rank asks how the incident of this generation is repaired, before it touches anything."""
        threading.Thread(target=self._tell_strategy, args=(peer, message), name="mindio-strategy", daemon=True).start()

    def _tell_strategy(self, peer: Peer, message: Message) -> None:
        generation = int(message["generation"])
        with self._changed:
            self._changed.wait_for(lambda: generation in self._rungs or self._stopping, 10)
            rung = self._rungs.get(generation, "exit")
        strategy = self.scheduler.await_word(rung)
        with self._lock:
            kind = _TYPE_OF_RUNG.get(rung, "unknown")
            if kind == "retry" and any(fault == FAULT_PROCESS for fault, _ in self._faults.values()):
                kind = "recover"
        # Where the scheduler chose another way than the ladder, this attempt is given up and the ladder asked again.
        other_way = (strategy == "dump" and rung != "dump") or (strategy == "recover" and rung in ("retry", "patch", "rebuild"))
        peer.answer(message, type=kind, other_way=other_way, switch=self.switch.migrates)

    def _do_rename(self, peer: Peer, message: Message) -> None:
        """The rank that publishes the dump is another one than Kintsugi asked."""
        with self._lock:
            other = self._peers.get(int(message["rank"]))
        if other is None:
            peer.answer(message, refused=f"rank {message['rank']} is gone and cannot rename")
        else:
            self._forwarded = (peer, message)
            other.send({"do": "rename", "step": message["step"]})

    def _do_renamed(self, _: Peer, message: Message) -> None:
        peer, request = self._forwarded
        peer.answer(request, **({"refused": message["error"]} if message["error"] else {}))

    def _do_held(self, peer: Peer, message: Message) -> None:
        self.pauses.on_held(peer.rank, int(message["step"]))

    def _do_paused(self, peer: Peer, message: Message) -> None:
        self.pauses.on_paused(peer.rank, str(message["error"]))

    def _do_bye(self, peer: Peer, _: Message) -> None:
        peer.said_goodbye = True

    def _leave(self, peer: Peer, why: str) -> None:
        peer.send({"do": "leave", "text": why})
        threading.Thread(target=_end, args=(peer,), name="mindio-end", daemon=True).start()

    # ---- what Kintsugi's controller says ------------------------------------------------------------------------------------

    def _watch(self, core: _core.Controller) -> None:
        try:
            while not self._stopping:
                event = core.next(_PULL_MS)
                if event.kind:
                    self._on_event(event)
        except Exception as error:  # nobody would hear of anything any more
            LOGGER.exception("the controller's events cannot be followed")
            self.end_all(f"the controller failed: {error}")

    def _on_event(self, event: _core.Event) -> None:
        if event.kind == _PHASE:
            LOGGER.info("phase %s, generation %d: %s", event.phase, event.generation, event.text)
            self._on_phase(event)
        elif event.kind == _NOTICE:
            LOGGER.info("rank %d: %s", event.rank, event.text)
        elif event.kind == _GIVEN_UP:
            LOGGER.warning("rank %d is given up: %s", event.rank, event.text)
            with self._lock:
                self._faults.setdefault(event.rank, (FAULT_PROCESS, ""))
            self.give_up(event.rank, event.text)
        elif event.kind == _INCIDENT:
            LOGGER.warning("rank %d: %s: mended by %s at step %d", event.rank, event.text, event.phase, event.step)
            self.switch.on_over()
            with self._lock:
                self._faults.clear()
                over = bool(self._over)
            if not over:
                self.scheduler.on_repaired(event.phase)
        elif event.kind == _ENDED:
            LOGGER.info("the run has ended with %d: %s", event.exit_code, event.text)
            self.switch.on_over()
            self.switch.stop()
            with self._lock:
                self._ended = (event.exit_code, event.text)
                over = bool(self._over)
            self.broadcast({"do": "ended", "code": event.exit_code, "text": event.text})
            if not over:
                self.scheduler.on_ended(event.exit_code, event.text)

    def _on_phase(self, event: _core.Event) -> None:
        with self._changed:
            if event.phase in ("CLEAN", "DUMP"):
                self._rungs[event.generation] = event.text if event.phase == "CLEAN" else "dump"
                self._changed.notify_all()
        if event.phase == "LOCK":
            self.scheduler.on_incident()


def _lives(peer: Peer, host: str) -> bool:
    """Whether the process behind a connection is there for sure."""
    if peer.host != host or not peer.pid:
        return False
    try:
        os.kill(peer.pid, 0)
        with open(f"/proc/{peer.pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _end(peer: Peer) -> None:
    """A process that was told to leave and does not is killed, where it is one of this host."""
    until = time.monotonic() + 1
    while not peer.gone:
        if time.monotonic() > until:
            if peer.host == host_name() and _lives(peer, peer.host):
                os.kill(peer.pid, signal.SIGKILL)
            return
        time.sleep(0.01)


def host_name() -> str:
    """This host, told from others even where their names are alike."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{socket.gethostname()} {file.read().strip()}"
    except OSError:
        return socket.gethostname()
