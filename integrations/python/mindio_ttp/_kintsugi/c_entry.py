"""What the C entry points (mindspore_api/c_api.cc) call: the markers, with a code instead of an exception."""

from __future__ import annotations

import _thread
from collections.abc import Callable

from mindio_ttp.framework_ttp import ttp_decorator

from .codes import RET_ERROR, RET_OK
from .log import LOGGER


def updating(backup_step: int) -> int:
    return _coded(ttp_decorator.tft_start_updating_os, backup_step)


def finished(step: int) -> int:
    return _coded(ttp_decorator.tft_end_updating_os, step)


def _coded(marker: Callable[[int], None], step: int) -> int:
    try:
        marker(step)
    except Exception as error:
        LOGGER.error("%s", error)
        return RET_ERROR
    except KeyboardInterrupt:
        _thread.interrupt_main()  # C has no way to pass it on
        return RET_ERROR
    return RET_OK
