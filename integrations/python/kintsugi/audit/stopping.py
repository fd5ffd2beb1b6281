"""How a run is stopped at one step: each rank waits before its next update until the signal has come to it, so that where it stood does
not depend on how fast anything is. `kintsugi audit` sends the signal when all ranks wait.

Threads: the one that trains.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.01
SENT = "signal-sent"  # a file beside the records: from then on a rank that was not killed need not wait
FORWARD_SECONDS = 30.0  # a starter such as torchrun hands the signal on to its ranks; one that does not leaves them running


@dataclass
class Stop:
    after: int  # updates of the first optimizer
    number: int  # of the signal

    def hold(self, folder: Path, ranks: int) -> None:
        """Until the signal has come. `ranks`: how many are to wait together."""
        came = threading.Event()
        restore = _listen(self.number, came)
        (folder / f"held-{os.getpid()}").write_text(str(ranks))
        sent: float | None = None
        # Sleep is left where the signal comes: its handler runs here, in the thread that trains, as it would in the loop.
        while not came.is_set():
            time.sleep(POLL_SECONDS)
            if sent is None and (folder / SENT).exists():
                sent = time.monotonic()
            if sent is not None and time.monotonic() - sent > FORWARD_SECONDS:
                break
        restore()
        self.after = -1


def _listen(number: int, came: threading.Event) -> Any:
    """Sets `came` when the program's own handler of the signal has run. A program without one dies of it; one that ignores it is not kept
    waiting. The result puts the program's handler back."""
    before = signal.getsignal(number) if number != signal.SIGKILL else signal.SIG_DFL
    if before == signal.SIG_IGN:
        came.set()
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        return lambda: None

    def both(received: int, frame: Any) -> None:
        came.set()
        signal.signal(number, before)
        before(received, frame)

    signal.signal(number, both)
    return lambda: signal.signal(number, before)


def from_environment() -> Stop | None:
    word = os.environ.get("KINTSUGI_AUDIT_STOP", "")
    if not word:
        return None
    after, number = word.split(":")
    return Stop(int(after), int(number))
