"""Which peers this rank cannot reach, while its groups are being connected."""

import errno
import selectors
import socket
import threading
import time
from collections.abc import Mapping, Sequence


def port_of(place: str) -> int:
    """Of "ADDRESS PORT", as OpenSockets names an end."""
    return int(place.split(" ")[1])


_AT_ONCE = 128  # descriptors are few, ranks may be many


class Roads:
    """Gloo's own errors name an address at most, and only once the time is over, when those who listened may not do so any more. So
    peers are dialed once half of the time is over. Usually all is connected long before, and nobody is."""

    def __init__(self, places: Mapping[int, Sequence[str]], limit_ms: int) -> None:
        """`places`: where each rank listens, as "ADDRESS PORT"."""
        # One of each rank's: what is closed is closed to all ports that were chosen by chance.
        self._places = [((rank, port_of(theirs[0])), theirs[0].split(" ")[0]) for rank, theirs in places.items() if theirs]
        self._unreached: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(limit_ms / 2000, limit_ms / 4000), daemon=True)
        self._thread.start()

    def close(self) -> list[tuple[int, int]]:
        """Rank and port of those who listen and were dialed in vain."""
        self._over.set()
        self._thread.join()
        return self._unreached

    def _look(self, after: float, patience: float) -> None:
        if self._over.wait(after):
            return
        waves = [dict(self._places[at : at + _AT_ONCE]) for at in range(0, len(self._places), _AT_ONCE)]
        for wave in waves:
            self._unreached += _dial(wave, patience / len(waves))


def _dial(places: Mapping[tuple[int, int], str], patience: float) -> list[tuple[int, int]]:
    """All at once; those that do not answer in time."""
    missing = []
    with selectors.DefaultSelector() as waiting:
        for (rank, port), address in places.items():
            dial = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            dial.setblocking(False)
            if dial.connect_ex((address, port)) in (0, errno.EINPROGRESS):
                waiting.register(dial, selectors.EVENT_WRITE, (rank, port))
            else:
                missing.append((rank, port))
                dial.close()
        end = time.monotonic() + patience
        while waiting.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                answered = waiting.unregister(key.fileobj)
                if _close(answered.fileobj):
                    missing.append(answered.data)
        for silent in list(waiting.get_map().values()):
            _close(silent.fileobj)
            missing.append(silent.data)
    return missing


def _close(dial: object) -> int:
    """And why it could not be connected; 0: it was, or is still on its way."""
    assert isinstance(dial, socket.socket)
    with dial:
        return dial.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
