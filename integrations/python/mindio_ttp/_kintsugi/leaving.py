"""How a process leaves for good, without its interpreter's end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from .codes import EXIT_WAIT_TIME, RET_K8S, ReportState
from .log import LOGGER
from .state import RankState

_before_exit: list[Callable[[], None]] = []


def before_exit(function: Callable[[], None]) -> None:
    """Called before the process leaves."""
    _before_exit.append(function)


def exit_process() -> NoReturn:
    for function in _before_exit:
        function()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(RET_K8S)


def leave_now(rank: int, state: RankState) -> NoReturn:
    """The main thread's: this process has no more part in the run."""
    LOGGER.warning("rank %d leaves with exit code %d: %s", rank, RET_K8S, state.exiting)
    exit_process()


def exit_soon(state: RankState) -> NoReturn:
    """Another thread's: once the main thread has had the chance to leave by itself."""
    if state.waits:
        time.sleep(EXIT_WAIT_TIME if state.reported is not ReportState.RS_UNKNOWN else 1)
    exit_process()
