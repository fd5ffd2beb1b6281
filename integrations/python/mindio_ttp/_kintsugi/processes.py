"""Processes behind connections: whether they live, and their end."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

from .desk import Peer


def host_name() -> str:
    """This host, told from others even where their names are alike."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{socket.gethostname()} {file.read().strip()}"
    except OSError:
        return socket.gethostname()


def lives(peer: Peer, host: str) -> bool:
    """Whether the process behind a connection is there for sure."""
    if peer.host != host or not peer.pid:
        return False
    try:
        os.kill(peer.pid, 0)
        with open(f"/proc/{peer.pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def send_away(peer: Peer, why: str) -> None:
    """A process is told to leave; one that does not is killed, where it is one of this host."""
    peer.send({"do": "leave", "text": why})
    threading.Thread(target=_end, args=(peer,), name="mindio-end", daemon=True).start()


def _end(peer: Peer) -> None:
    until = time.monotonic() + 1
    while not peer.gone:
        if time.monotonic() > until:
            if peer.host == host_name() and lives(peer, peer.host):
                os.kill(peer.pid, signal.SIGKILL)
            return
        time.sleep(0.01)
