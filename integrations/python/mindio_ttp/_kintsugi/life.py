"""The beginning and end of a process's controller and processor, as the interface has them.

Threads: the main thread's, before and after training, and the interpreter's at its end.
"""

from __future__ import annotations

import atexit
import sys

from . import arguments, settings
from .codes import RET_K8S, MindioError, NotMapped
from .leaving import exit_process
from .log import LOGGER
from .master import Master
from .processor import Processor
from .session import SESSION, local_address, resolve

_PORT_LEAST, _PORT_GREATEST = 1024, 65535


def _refuse_unmapped(call: str, enable_local_copy: bool, enable_zit: bool) -> None:
    if enable_local_copy:
        raise NotMapped(f"{call}: enable_local_copy is not offered by Kintsugi's mindio_ttp: the gate keeps ranks at one step without a copy")
    if enable_zit and settings.current().mindspore:
        raise NotMapped(f"{call}: enable_zit is not offered for MindSpore: it has no handlers for it")


# ---- the controller -------------------------------------------------------------------------------------------------------


def tft_init_controller(rank: int, world_size: int, enable_local_copy: bool, enable_arf: bool = False, enable_zit: bool = False) -> None:
    """rank -1: the scheduler's process hosts it."""
    call = "tft_init_controller"
    arguments.world(call, world_size)
    arguments.integer(call, "rank", rank, -1, world_size - 1)
    for name, value in (("enable_local_copy", enable_local_copy), ("enable_arf", enable_arf), ("enable_zit", enable_zit)):
        arguments.flag(call, name, value)
    _refuse_unmapped(call, enable_local_copy, enable_zit)
    settings.current()
    if SESSION.master is not None:
        raise MindioError(f"{call}: there is a controller already: tft_destroy_controller comes first")
    SESSION.backs_up = rank > 0
    SESSION.master = Master(world_size, enable_arf, enable_zit)


def tft_start_controller(bind_ip: str, port: int, enable_tls: bool = True, tls_info: str = "") -> None:
    """Ends the process with exit code 2 where it cannot listen."""
    call = "tft_start_controller"
    try:
        arguments.text(call, "bind_ip", bind_ip)
        arguments.integer(call, "port", port, _PORT_LEAST, _PORT_GREATEST)
        arguments.flag(call, "enable_tls", enable_tls)
        arguments.text(call, "tls_info", tls_info)
        if SESSION.master is None:
            raise MindioError(f"{call}: there is no controller: tft_init_controller comes first")
        if SESSION.master.started:
            raise MindioError(f"{call}: the controller was started already")
        address = resolve(call, bind_ip)
        if SESSION.backs_up:
            LOGGER.warning("%s: this would be a backup of the controller, which Kintsugi's mindio_ttp has none of: nothing is started", call)
            return
        context, files = SESSION.contexts(call, enable_tls, tls_info, server=True)
        SESSION.master.start(address, port, context, files)
    except (MindioError, OSError) as error:
        LOGGER.error("%s", _said(call, error))
        raise SystemExit(RET_K8S) from error


def tft_destroy_controller() -> None:
    """Tells all processors, and stops. Any number of times."""
    master, SESSION.master = SESSION.master, None
    if master is None or not master.started:
        return
    try:
        master.stop()
    except Exception:
        LOGGER.exception("tft_destroy_controller")


# ---- the processor --------------------------------------------------------------------------------------------------------


def _said(call: str, error: Exception) -> str:
    return str(error) if str(error).startswith(call) else f"{call}: {error}"


def _end(call: str, error: Exception) -> None:
    LOGGER.error("%s: this process ends with exit code %d", _said(call, error), RET_K8S)
    exit_process()


def tft_init_processor(
    rank: int, world_size: int, enable_local_copy: bool, enable_tls: bool = True, tls_info: str = "", enable_uce: bool = True,
    enable_arf: bool = False, enable_zit: bool = False,
) -> None:  # fmt: skip
    """Ends the process with exit code 2 where an argument is wrong."""
    call = "tft_init_processor"
    try:
        arguments.world(call, world_size)
        arguments.integer(call, "rank", rank, 0, world_size - 1)
        flags = {"enable_local_copy": enable_local_copy, "enable_tls": enable_tls, "enable_uce": enable_uce, "enable_arf": enable_arf,
                 "enable_zit": enable_zit}
        for name, value in flags.items():
            arguments.flag(call, name, value)
        arguments.text(call, "tls_info", tls_info)
        _refuse_unmapped(call, enable_local_copy, enable_zit)
        if SESSION.processor is not None:
            raise MindioError(f"{call}: this process is rank {SESSION.processor.rank.number} already")
        settings.current()
        SESSION.processor = Processor(rank, world_size, SESSION.callbacks, SESSION.faults, enable_uce, enable_zit)
        SESSION.processor.rank.args = SESSION.args
        SESSION.processor.tls = (enable_tls, tls_info)
        SESSION.callbacks.remember_device()
    except (MindioError, OSError) as error:
        _end(call, error)


def tft_start_processor(master_ip: str, port: int, local_ip: str = "") -> None:
    """Connects; ends the process with exit code 2 where it cannot."""
    call = "tft_start_processor"
    try:
        arguments.text(call, "master_ip", master_ip)
        arguments.integer(call, "port", port, _PORT_LEAST, _PORT_GREATEST)
        arguments.text(call, "local_ip", local_ip)
        if SESSION.processor is None:
            raise MindioError(f"{call}: there is no processor: tft_init_processor comes first")
        if SESSION.processor.started:
            raise MindioError(f"{call}: the processor was started already")
        address = resolve(call, master_ip)
        context, files = SESSION.contexts(call, *SESSION.processor.tls, server=False)
        SESSION.processor.start(address, port, local_ip or local_address(address), context, files)
    except (MindioError, OSError) as error:
        _end(call, error)


def tft_destroy_processor() -> None:
    """Training is over. Returns when it is so on every rank. Any number of times."""
    close_processor(done=True)


def _at_exit() -> None:
    # An exception that ended the program is no end of training.
    close_processor(done=getattr(sys, "last_type", None) is None)


def close_processor(done: bool) -> None:
    if SESSION.processor is not None and SESSION.processor.started:
        SESSION.processor.close(done)


# The last one registered runs first: a rank leaves before the controller that it may host.
atexit.register(tft_destroy_controller)
atexit.register(_at_exit)
