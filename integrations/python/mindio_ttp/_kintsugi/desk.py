"""The desk: one line of JSON after the other between the process that hosts the controller and each rank's.

It carries what MindIO's interface has and Kintsugi's protocol does not: where the controller is, which replica groups there
are, what kind of fault a rank met, pauses, the scheduler's word. What decides about steps and state goes through Kintsugi.
A line is {"do": name, ...}; one with "id" is answered by {"id": ..., ...}.

Threads: the server's is the host's; a link has one that reads, and calls `on_order`. A link sends on any thread.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from .codes import MindioError
from .host import Host
from .log import LOGGER

Message = dict[str, Any]
_LINE_MAX = 64 << 20
_HELLO_LIMIT = 10.0
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_PAUSE_FIRST, _PAUSE_MAX = 0.02, 10


class Peer:
    """One rank's connection, as the server sees it. On the host's thread."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.rank = -1
        self.host = ""
        self.pid = 0
        self.incarnation = 0  # as Kintsugi counts; 0: it has not joined, or counts no more
        self.reboot = False  # its rank had another process before
        self.ready = False  # it stands aside, and may take a place
        self.said_goodbye = False
        self.gone = False

    def send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write((json.dumps(message) + "\n").encode())

    def answer(self, request: Message, **what: Any) -> None:
        self.send({"id": request["id"], **what})


class DeskServer:
    """Listens for ranks."""

    def __init__(self, host: Host, on_line: Callable[[Peer, Message], None], on_gone: Callable[[Peer], None]) -> None:
        self._host, self._on_line, self._on_gone = host, on_line, on_gone
        self._server: asyncio.AbstractServer | None = None
        self._open = 0

    async def start(self, address: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Raises OSError."""
        self._server = await asyncio.start_server(self._serve, address, port, ssl=tls, limit=_LINE_MAX, reuse_address=True)

    def drain(self, limit: float) -> None:
        """Any other thread. Waits until every rank has hung up."""
        until = time.monotonic() + limit
        while self._open and time.monotonic() < until:
            time.sleep(0.005)

    def stop(self) -> None:
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(writer)
        self._open += 1
        try:
            line = await asyncio.wait_for(reader.readline(), _HELLO_LIMIT)
            while line:
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError("no object")
                self._on_line(peer, message)
                self._host.changed()
                line = await reader.readline()
        except (ValueError, KeyError, TypeError) as error:
            LOGGER.warning("a line that makes no sense came from %s: %s: %s", writer.get_extra_info("peername"),
                           type(error).__name__, error)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            pass  # gone, which is told below
        finally:
            self._open -= 1
            writer.close()
            peer.gone = True
            self._on_gone(peer)
            self._host.changed()


class Link:
    """A rank's connection to the desk."""

    def __init__(self, on_order: Callable[[Message], None], on_lost: Callable[[], None]) -> None:
        self._on_order, self._on_lost = on_order, on_lost
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._answers: dict[int, Message | None] = {}
        self._next = 0
        self._closed = True

    def connect(self, host: str, port: int, local: str, tls: ssl.SSLContext | None, tries: int) -> None:
        """Raises OSError when nobody answered for as long as so many tries take, between which 1, 2, 4 .. 10 seconds lie. Asked
        more often than that: what starts this process starts the controller's at the same time."""
        until = time.monotonic() + sum(min(1 << attempt, _PAUSE_MAX) for attempt in range(tries - 1))
        pause = _PAUSE_FIRST
        while True:
            try:
                made = socket.create_connection((host, port), 10, (local, 0) if local else None)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket = tls.wrap_socket(made) if tls else made
                self._socket.setblocking(False)  # one that speaks TLS is for one thread at a time
                break
            except OSError as error:
                if time.monotonic() + pause > until:
                    raise OSError(f"no controller at {host}:{port} in the time of TTP_RETRY_TIMES={tries}: {error}") from error
                if pause == _PAUSE_FIRST:
                    LOGGER.info("no controller at %s:%d yet: %s", host, port, error)
                time.sleep(pause)
                pause = min(2 * pause, 1)
        self._closed = False
        threading.Thread(target=self._read, name="mindio-link", daemon=True).start()

    @property
    def remote(self) -> str:
        assert self._socket is not None
        return str(self._socket.getpeername()[0])

    @property
    def alive(self) -> bool:
        return not self._closed

    def tell(self, what: str, **more: Any) -> None:
        """What is lost with the connection is lost: Kintsugi notices the same by its own means."""
        self._send({"do": what, **more})

    def ask(self, what: str, limit: float, **more: Any) -> Message:
        """Raises MindioError when no answer comes, or the answer is a refusal."""
        with self._lock:
            self._next += 1
            number = self._next
            self._answers[number] = None
        self._send({"do": what, "id": number, **more})
        with self._changed:
            self._changed.wait_for(lambda: self._answers[number] is not None or self._closed, limit)
            answer = self._answers.pop(number)
        if answer is None:
            why = "the connection is lost" if self._closed else f"no answer within {limit:g} s"
            raise MindioError(f"'{what}' to the controller: {why}")
        if "refused" in answer:
            raise MindioError(str(answer["refused"]))
        return answer

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        assert self._socket is not None
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _send(self, message: Message) -> None:
        data = (json.dumps(message) + "\n").encode()
        try:
            with self._lock:
                while data and not self._closed and self._socket is not None:
                    try:
                        data = data[self._socket.send(data) :]
                    except _NOT_NOW:
                        select.select([], [self._socket], [], 1)
        except OSError as error:
            LOGGER.warning("the controller cannot be told '%s': %s", message["do"], error)

    def _read(self) -> None:
        assert self._socket is not None
        rest = b""
        try:
            while True:
                select.select([self._socket], [], [])
                with self._lock:
                    got = self._received()
                if got is None:
                    break
                *lines, rest = (rest + got).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except (OSError, ValueError):
            pass  # gone, which is told below
        with self._lock:
            lost = not self._closed
            self._closed = True
            self._changed.notify_all()
        if lost:
            self._on_lost()

    def _received(self) -> bytes | None:
        """With the lock: whatever is there now; None: the other side has hung up."""
        assert self._socket is not None
        got = b""
        while not self._closed:
            try:
                part = self._socket.recv(1 << 16)
            except _NOT_NOW:
                return got
            if not part:
                return got or None
            got += part
        return None

    def _take(self, message: Message) -> None:
        number = message.get("id")
        if number is None:
            self._on_order(message)
            return
        with self._lock:
            if number in self._answers:
                self._answers[number] = message
                self._changed.notify_all()
