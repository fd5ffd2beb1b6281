"""Processes behind connections: whether they live, and their end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

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


async def see_off(peer: Peer) -> None:
    """A process that was told to leave has a second for it, where it is one of this host."""
    await asyncio.sleep(1)
    if not peer.gone and peer.host == host_name() and lives(peer, peer.host):
        os.kill(peer.pid, signal.SIGKILL)
