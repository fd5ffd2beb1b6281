"""What is seen of this process once somebody waits for it: where its Python threads stand, and whether Python's lock is to be had.

Nothing runs before that: a thread sleeps, and once it is woken and has the lock it writes a traceback into memory. Without the lock it
must not: frames of a thread that runs change while they are read, and the process would crash. Only where the lock is not to be had, so that
nobody runs, a signal has the traceback written. Who asks is the rank's own agent.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import threading
from functools import partial
from pathlib import Path

from . import _core

_SIGNAL = signal.SIGURG  # ignored where nobody listens: one that comes too early or too late does nothing
_traceback: list[int] = []  # its descriptor, once it is there


def begin() -> None:
    """Once in a process; later calls do nothing. A program that has a use for SIGURG of its own is seen without its Python frames where
    Python's lock is not to be had."""
    if _traceback:
        return
    _traceback.append(os.memfd_create("kintsugi-traceback", os.MFD_CLOEXEC))
    # Each write at the end: who empties the file begins it anew.
    appending = os.open(f"/proc/self/fd/{_traceback[0]}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    is_free = signal.getsignal(_SIGNAL) in (signal.SIG_DFL, signal.SIG_IGN)
    if is_free:
        faulthandler.register(_SIGNAL, file=appending, all_threads=True, chain=False)
    main = threading.main_thread().ident or 0
    _core.show_stacks(fd=_traceback[0], signal=int(_SIGNAL) if is_free else 0, main_thread=main, own_folder=str(Path(__file__).parent))
    atexit.register(_core.stop_answering)
    look = partial(faulthandler.dump_traceback, file=appending, all_threads=True)
    threading.Thread(target=_core.answer_for_python, args=(look,), name="kintsugi-lookout", daemon=True).start()
