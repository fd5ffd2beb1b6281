"""What is seen of this process once somebody waits for it: where its main thread stands, and whether Python's lock is to be had.

Nothing runs before that: a thread sleeps, and a signal to the main thread has it write its own traceback into memory. Another thread must
not do it: frames of a thread that runs change while they are read, and the process would crash. Who asks is the rank's own agent.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import threading
from pathlib import Path

from . import _core

_SIGNAL = signal.SIGURG  # ignored where nobody listens: one that comes too early or too late does nothing
_traceback: list[int] = []  # its descriptor, once it is there


def begin() -> None:
    """Once in a process; later calls do nothing. A program that has a use for SIGURG of its own is seen without its Python frames."""
    if _traceback:
        return
    _traceback.append(os.memfd_create("kintsugi-traceback", os.MFD_CLOEXEC))
    if signal.getsignal(_SIGNAL) in (signal.SIG_DFL, signal.SIG_IGN):
        # Each write at the end: who empties the file begins it anew.
        appending = os.open(f"/proc/self/fd/{_traceback[0]}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        faulthandler.register(_SIGNAL, file=appending, all_threads=False, chain=False)
        main = threading.main_thread().ident or 0
        _core.show_stacks(fd=_traceback[0], signal=int(_SIGNAL), main_thread=main, own_folder=str(Path(__file__).parent))
    atexit.register(_core.stop_answering)
    threading.Thread(target=_core.answer_for_python, name="kintsugi-lookout", daemon=True).start()
