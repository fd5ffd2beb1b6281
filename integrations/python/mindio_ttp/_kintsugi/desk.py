"""The desk: one line of JSON after the other between the process that hosts the controller and each rank's.

It carries what MindIO's interface has and Kintsugi's protocol does not: where the controller is, which replica groups there
are, what kind of fault a rank met, pauses, the scheduler's word. What decides about steps and state goes through Kintsugi.
A line is {"do": name, ...}; one with "id" is answered by {"id": ..., ...}.

Threads: the server's is the host's. A link has a host of its own, on whose thread `on_order` is called; a rank asks and tells on any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Callable
from typing import Any

from .codes import MindioError
from .host import Host
from .log import LOGGER

Message = dict[str, Any]
_LINE_MAX = 64 << 20
_HELLO_LIMIT = 10.0
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
        self._host = Host("mindio-link")
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, Message | None] = {}
        self._next = 0
        self.alive = False

    def connect(self, host: str, port: int, local: str, tls: ssl.SSLContext | None, tries: int) -> None:
        """Raises OSError when nobody answered for as long as so many tries take, between which 1, 2, 4 .. 10 seconds lie. Asked
        more often than that: what starts this process starts the controller's at the same time."""
        self._host.start()
        limit = sum(min(1 << attempt, _PAUSE_MAX) for attempt in range(tries - 1))
        try:
            self._host.run(self._connect(host, port, (local, 0) if local else None, tls, limit))
        except (OSError, asyncio.TimeoutError) as error:
            raise OSError(f"no controller at {host}:{port} in the time of TTP_RETRY_TIMES={tries}: {error}") from error

    async def _connect(self, host: str, port: int, local: tuple[str, int] | None, tls: ssl.SSLContext | None, limit: float) -> None:
        until, pause = time.monotonic() + limit, _PAUSE_FIRST
        while not self.alive:
            try:
                opened = asyncio.open_connection(host, port, local_addr=local, ssl=tls, limit=_LINE_MAX)
                reader, self._writer = await asyncio.wait_for(opened, _HELLO_LIMIT)
                self.alive = True
            except (OSError, asyncio.TimeoutError) as error:
                if time.monotonic() + pause > until:
                    raise
                if pause == _PAUSE_FIRST:
                    LOGGER.info("no controller at %s:%d yet: %s", host, port, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1)
        self._host.begin(self._read(reader))

    @property
    def remote(self) -> str:
        assert self._writer is not None
        return str(self._writer.get_extra_info("peername")[0])

    def tell(self, what: str, **more: Any) -> None:
        """What is lost with the connection is lost: Kintsugi notices the same by its own means."""
        if self.alive:
            self._host.call(lambda: self._write({"do": what, **more}))

    def ask(self, what: str, limit: float, **more: Any) -> Message:
        """Raises MindioError when no answer comes, or the answer is a refusal."""
        answer = self._host.run(self._ask(what, limit, more)) if self.alive else None
        if answer is None:
            why = f"no answer within {limit:g} s" if self.alive else "the connection is lost"
            raise MindioError(f"'{what}' to the controller: {why}")
        if "refused" in answer:
            raise MindioError(str(answer["refused"]))
        return answer

    async def _ask(self, what: str, limit: float, more: Message) -> Message | None:
        self._next += 1
        number = self._next
        self._answers[number] = None
        self._write({"do": what, "id": number, **more})
        await self._host.until(lambda: self._answers[number] is not None or not self.alive, limit)
        return self._answers.pop(number)

    def close(self) -> None:
        """Any number of times."""
        if self.alive:
            self.alive = False
            self._host.run(self._close())
            self._host.stop()

    async def _close(self) -> None:
        assert self._writer is not None
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1)

    def _write(self, message: Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write((json.dumps(message) + "\n").encode())

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                number = message.get("id")
                if number is None:
                    self._on_order(message)
                elif number in self._answers:
                    self._answers[number] = message
                self._host.changed()
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass  # gone, which is told below
        finally:
            lost, self.alive = self.alive, False
            self._host.changed()
            if lost:
                self._on_lost()
