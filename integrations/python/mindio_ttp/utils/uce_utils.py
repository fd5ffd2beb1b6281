"""When updates ran and when memory failed, by the device's clock: whether an update can have used damaged data."""

from __future__ import annotations

import re
import time

from mindio_ttp._kintsugi import arguments
from mindio_ttp._kintsugi.callbacks import devices
from mindio_ttp._kintsugi.codes import MindioError
from mindio_ttp._kintsugi.session import SESSION

__all__ = ["get_l2_hbm_error_time", "tft_can_do_uce_repair", "tft_set_update_end_time", "tft_set_update_start_time"]

_TIME = re.compile(r"time us\s*=\s*(\d+)")
_LATEST = (1 << 63) - 1


def _now() -> int:
    """Of the device, once all that it was given is done; of the host where no device is there. Microseconds."""
    module = devices()
    if module is not None:
        event = module.Event(enable_timing=True)
        event.record()
        event.synchronize()
        recorded = getattr(event, "recorded_time", None)
        if recorded is not None:
            return int(recorded())
    return time.time_ns() // 1000


def tft_set_update_start_time(start_time: int | None = None) -> None:
    """An update begins; None: now."""
    if start_time is not None:
        arguments.integer("tft_set_update_start_time", "start_time", start_time, 0, _LATEST)
    SESSION.update_start = _now() if start_time is None else start_time


def tft_set_update_end_time(end_time: int | None = None) -> None:
    """An update has ended; None: now."""
    if end_time is not None:
        arguments.integer("tft_set_update_end_time", "end_time", end_time, 0, _LATEST)
    SESSION.update_end = _now() if end_time is None else end_time


def get_l2_hbm_error_time(text: str) -> int | None:
    """The time that an error's text names; None where it names none."""
    found = _TIME.search(arguments.text("get_l2_hbm_error_time", "text", text))
    return int(found.group(1)) if found else None


def tft_can_do_uce_repair(hbm_error_time: int, start_time: int | None = None, end_time: int | None = None) -> bool:
    """Whether no finished update can have used what failed at `hbm_error_time`. Times that are missing or 0 make it False."""
    if isinstance(hbm_error_time, bool) or not isinstance(hbm_error_time, (int, type(None))):
        raise MindioError(f"tft_can_do_uce_repair: hbm_error_time is {hbm_error_time!r}: a number of microseconds is needed")
    start = SESSION.update_start if start_time is None else start_time
    end = SESSION.update_end if end_time is None else end_time
    if not hbm_error_time or not start or not end:
        return False
    return max(start, end) < hbm_error_time or start < hbm_error_time < end
