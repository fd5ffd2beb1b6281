"""A thread on which all happens that belongs together: what others say comes there one after the other, so nothing of it needs a lock. The
controller's process has one for all that it does, a rank one for its connection.

Threads: `run` and `call` any other; all else on the loop's own. What may block runs on threads that touch nothing of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .log import LOGGER

T = TypeVar("T")


class Host:
    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._waiting: set[asyncio.Future[None]] = set()
        self._wakes = False  # what comes at once is looked at together
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        def end() -> None:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.call_soon(self.loop.stop)

        self.loop.call_soon_threadsafe(end)
        self._thread.join(5)

    # ---- other threads ------------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What it returns or raises."""
        assert self._thread is not threading.current_thread(), "this thread would wait for itself"
        return asyncio.run_coroutine_threadsafe(self._told(work), self.loop).result()

    def call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return self.run(run())

    # ---- the loop's -----------------------------------------------------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Goes on by itself."""
        async def run() -> None:
            try:
                await self._told(work)
            except Exception:
                LOGGER.exception("what nobody waits for has failed")

        task = self.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until(self, is_so: Callable[[], bool], limit: float | None = None) -> bool:
        """Whether it became so in time."""
        self.changed()
        by = None if limit is None else self.loop.time() + limit
        while not is_so():
            left = None if by is None else by - self.loop.time()
            if left is not None and left <= 0:
                return False
            waiting: asyncio.Future[None] = self.loop.create_future()
            self._waiting.add(waiting)
            await asyncio.wait({waiting}, timeout=left)
            self._waiting.discard(waiting)
        return True

    async def apart(self, function: Callable[..., T], *given: Any) -> T:
        """What may block, on a thread of its own, which keeps no interpreter from its end."""
        self.changed()
        done: asyncio.Future[T] = self.loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, error = None, None
            try:
                result = function(*given)
            except Exception as failed:
                error = failed
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=run, name="mindio-outside", daemon=True).start()
        return await done

    def changed(self) -> None:
        """Whoever waits looks again. Said by itself wherever something gives way to others."""
        if not self._wakes:
            self._wakes = True
            self.loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wakes = False
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def _told(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        finally:
            self.changed()
