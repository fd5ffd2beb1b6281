"""The thread that marks, where a client marks an update's start on one thread and its end on another, as MindSpore does: the loop and
its marks belong to one thread of Kintsugi's agent.

Threads: `call` any; what is called runs on the one thread, one after the other.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

_Answer = tuple[Any, Exception | None]


class MarkThread:
    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], queue.SimpleQueue[_Answer]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="mindio-marks", daemon=True).start()

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._calls.put((function, given, answers))
        result, error = answers.get()
        if error is not None:
            raise error
        return result

    def _run(self) -> None:
        while True:
            function, given, answers = self._calls.get()
            try:
                answers.put((function(*given), None))
            except Exception as error:
                answers.put((None, error))
