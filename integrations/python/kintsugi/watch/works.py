"""The ends of collectives. Who waits for one sees its end at once; the others are looked at when the program comes by, and by a thread of ours."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

from .marks import Marks

_LOOK_EVERY_S = 0.02


class Works:
    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._open: dict[int, tuple[Any, int, int]] = {}  # by the work's id: it, its group, its ticket
        self._messages: dict[int, tuple[Any, int, int]] = {}  # sends and receives end where they are waited for, or given up
        self._some = threading.Event()
        self._wait: Any = None  # torch's own

    def begun(self, work: Any, group: int, ticket: int) -> None:
        self._open[id(work)] = (work, group, ticket)
        if not self._some.is_set():  # each call of set wakes the thread
            self._some.set()

    def message(self, work: Any, group: int, ticket: int) -> None:
        key = id(work)

        def dropped(_: Any) -> None:
            if self._messages.pop(key, None):
                self._marks.leave(group, ticket, 0)

        self._messages[key] = (weakref.ref(work, dropped), group, ticket)

    def settle(self) -> None:
        """Those that are over. The program's thread and ours may both come: who takes one out marks it."""
        for key, (work, group, ticket) in list(self._open.items()):
            if work.is_completed() and self._open.pop(key, None):
                self._marks.leave(group, ticket, 0 if self._is_well(work) else 1)

    def _is_well(self, work: Any) -> bool:
        try:
            self._wait(work)  # of one that is over: it returns at once, or says what went wrong
        except Exception:
            return False
        return True

    def settle_for_ever(self) -> None:
        while True:
            self._some.wait()
            time.sleep(_LOOK_EVERY_S)
            self._some.clear()
            self.settle()
            if self._open:
                self._some.set()

    def watch_waits(self, kind: Any) -> None:
        """`kind`: torch's class of works."""
        original, marks, of_all = kind.wait, self._marks, self._open
        self._wait = original

        def wait(self: Any, *arguments: Any, **named: Any) -> Any:
            key = id(self)
            found = of_all.get(key) or messages.get(key)
            if found is None:
                return original(self, *arguments, **named)
            _, group, ticket = found
            marks.wait(group, ticket)
            failed = 1
            try:
                result = original(self, *arguments, **named)
                failed = 0
                return result
            finally:
                if of_all.pop(key, None) or messages.pop(key, None):
                    marks.leave(group, ticket, failed)

        messages = self._messages
        wait.__doc__ = original.__doc__
        kind.wait = wait
