"""What one process has: its controller, its processor, its handlers. The interface is a set of functions without an object, so there
is one session to a process."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from . import tls
from .callbacks import Callbacks
from .codes import MindioError
from .faults import FaultTable
from .leaving import before_exit
from .log import LOGGER
from .master import Master
from .processor import Processor

_RESOLVE_TRIES = 3
_LINGER = 3.0


class Session:
    def __init__(self) -> None:
        self.callbacks = Callbacks()
        self.faults = FaultTable()
        self.decrypt: Callable[[str], str] | None = None
        self.export_version: str | None = None
        self.args: Any = None
        self.master: Master | None = None
        self.backs_up = False  # in MindIO its controller would wait to take over
        self.processor: Processor | None = None
        # Device times, in microseconds.
        self.update_start: int = 0
        self.update_end: int = 0
        self.memory_error: int = 0
        before_exit(self._linger)

    def _linger(self) -> None:
        if self.master is not None and self.master.started:
            if self.processor is not None:
                self.processor.rank.link.close()
            self.master.linger(_LINGER)

    def need_processor(self, call: str) -> Processor:
        if self.processor is None:
            raise MindioError(f"{call}: there is no processor: tft_init_processor comes first")
        if not self.processor.started:
            raise MindioError(f"{call}: the processor was not started: tft_start_processor comes first")
        return self.processor

    def give_args(self, args: Any) -> None:
        self.args = args
        if self.processor is not None:
            self.processor.rank.args = args

    def contexts(self, call: str, enable: bool, info: str, server: bool) -> tuple[ssl.SSLContext | None, list[str]]:
        """The desk's TLS, and the files for Kintsugi's own connections."""
        if not enable:
            LOGGER.warning("%s: TLS is off: everybody who reaches the port can join the run", call)
            return None, []
        files = tls.parse(call, info)
        if files.password_file or len(files.authorities) > 1 or files.revoked:
            raise MindioError(f"{call}: tls_info: keys with a password, several authorities and revocation lists are not served by "
                              "Kintsugi's own connections: give a plain key and one tlsCaFile")
        return tls.context(call, files, server, self.decrypt), [files.certificate, files.key, files.authorities[0]]


def resolve(call: str, host: str) -> str:
    """An address of `host`; raises MindioError."""
    for attempt in range(1, _RESOLVE_TRIES + 1):
        try:
            address = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
            break
        except OSError as error:
            if attempt == _RESOLVE_TRIES:
                raise MindioError(f"{call}: '{host}' has no address: {error}") from error
            time.sleep(1)
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        raise MindioError(f"{call}: '{host}' is the address of every interface: name the one that ranks reach")
    return address


def local_address(master: str) -> str:
    """An address of this host that shares its first two octets with the controller's; "" where there is none."""
    try:
        own = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    except OSError:
        return ""
    near = [address for address in sorted(own) if address.split(".")[:2] == master.split(".")[:2]]
    return near[0] if near else ""


SESSION = Session()
