"""The framework's side of the interface: every function that a training process calls."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
from collections.abc import Callable
from typing import Any

from mindio_ttp._kintsugi import arguments, layout, settings
from mindio_ttp._kintsugi.callbacks import Kind, devices
from mindio_ttp._kintsugi.codes import (
    EXIT_WAIT_TIME,
    RET_ERROR,
    RET_EXCEPTION,
    RET_K8S,
    RET_OK,
    RET_PASS,
    TTP_MAX_WORLD_SIZE,
    Action,
    MindioError,
    NotMapped,
    OptimizerType,
    PauseType,
    RepairType,
    ReportState,
)
from mindio_ttp._kintsugi.log import LOGGER
from mindio_ttp._kintsugi.master import Master
from mindio_ttp._kintsugi.processor import Processor, exit_process
from mindio_ttp._kintsugi.session import SESSION, local_address, resolve
from mindio_ttp.utils.uce_utils import get_l2_hbm_error_time, tft_can_do_uce_repair

_PORT_LEAST, _PORT_GREATEST = 1024, 65535
_EXPORT_VERSIONS = ("MindSpeed", "MindSpeed-LLM")


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
    SESSION.master_started = False


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
        if SESSION.master_started:
            raise MindioError(f"{call}: the controller was started already")
        address = resolve(call, bind_ip)
        if SESSION.backs_up:
            LOGGER.warning("%s: this would be a backup of the controller, which Kintsugi's mindio_ttp has none of: nothing is started", call)
            return
        context, files = SESSION.contexts(call, enable_tls, tls_info, server=True)
        SESSION.master.start(address, port, context, files)
        SESSION.master_started = True
    except (MindioError, OSError) as error:
        LOGGER.error("%s", _said(call, error))
        raise SystemExit(RET_K8S) from error


def tft_destroy_controller() -> None:
    """Tells all processors, and stops. Any number of times."""
    master, SESSION.master = SESSION.master, None
    if master is None or not SESSION.master_started:
        return
    SESSION.master_started = False
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
            raise MindioError(f"{call}: this process is rank {SESSION.processor.rank} already")
        settings.current()
        SESSION.processor = Processor(rank, world_size, SESSION.callbacks, SESSION.faults, enable_uce, enable_arf, enable_zit)
        SESSION.processor.args = SESSION.args
        SESSION.processor_tls = (enable_tls, tls_info)
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
        if SESSION.processor_started:
            raise MindioError(f"{call}: the processor was started already")
        address = resolve(call, master_ip)
        context, files = SESSION.contexts(call, *SESSION.processor_tls, server=False)
        SESSION.processor.start(address, port, local_ip or local_address(address), context, files)
        SESSION.processor_started = True
    except (MindioError, OSError) as error:
        _end(call, error)


def tft_destroy_processor() -> None:
    """Training is over. Returns when it is so on every rank. Any number of times."""
    _close_processor(done=True)


def _at_exit() -> None:
    # An exception that ended the program is no end of training.
    _close_processor(done=getattr(sys, "last_type", None) is None)


def _close_processor(done: bool) -> None:
    processor = SESSION.processor
    if processor is None or not SESSION.processor_started:
        return
    SESSION.processor_started = False
    processor.close(done)


# The last one registered runs first: a rank leaves before the controller that it may host.
atexit.register(tft_destroy_controller)
atexit.register(_at_exit)


# ---- markers and registration ---------------------------------------------------------------------------------------------


def tft_start_updating_os(backup_step: int = -1) -> None:
    """Before optimizer.step(). Waits for the gate; raises RuntimeError("FORCE STOP ...") once an incident was stopped."""
    if backup_step != -1:
        arguments.integer("tft_start_updating_os", "backup_step", backup_step, -1, (1 << 63) - 1)
    SESSION.need_processor("tft_start_updating_os").start_updating()


def tft_start_copy_os() -> None:
    """Needs enable_local_copy, which is not offered."""
    SESSION.need_processor("tft_start_copy_os")
    raise NotMapped("tft_start_copy_os: enable_local_copy is not offered by Kintsugi's mindio_ttp")


def tft_end_updating_os(step: int) -> None:
    """After optimizer.step(): `step` is committed."""
    if type(step) is not int or step < 1:
        arguments.integer("tft_end_updating_os", "step", step, 1, (1 << 63) - 1)
    SESSION.need_processor("tft_end_updating_os").end_updating(step)


def tft_set_optimizer_replica(rank: int, replica_info: list[dict[str, Any]]) -> None:
    """Who holds which part of the optimizer's state; one entry for each optimizer type."""
    call = "tft_set_optimizer_replica"
    processor = SESSION.need_processor(call)
    arguments.integer(call, "rank", rank, 0, processor.world_size - 1)
    if rank != processor.rank:
        raise MindioError(f"{call}: rank is {rank}, this process is rank {processor.rank}")
    processor.set_replicas(layout.parse(call, rank, processor.world_size, replica_info, settings.current().mindspore))


def tft_set_dp_group_info(rank: int, dp_rank_list: list[int]) -> None:
    """The data-parallel group as the client made it: a downgrade leaves out all ranks at one place of such groups."""
    call = "tft_set_dp_group_info"
    processor = SESSION.need_processor(call)
    arguments.integer(call, "rank", rank, 0, processor.world_size - 1)
    if rank != processor.rank:
        raise MindioError(f"{call}: rank is {rank}, this process is rank {processor.rank}")
    ranks = arguments.ranks(call, "dp_rank_list", dp_rank_list, processor.world_size)
    if rank not in ranks:
        raise MindioError(f"{call}: dp_rank_list is {dp_rank_list}, without rank {rank} itself")
    processor.set_dp_group(ranks)


def tft_set_step_args(args: Any) -> None:
    """What every handler gets as `args`."""
    if SESSION.processor is not None and SESSION.processor.saved:
        raise MindioError("tft_set_step_args: a dump has begun: its handlers rely on the arguments as they are")
    if args is None or SESSION.export_version is not None:
        LOGGER.warning("tft_set_step_args: ignored: %s", "args is None" if args is None else f"the export version is {SESSION.export_version}")
        return
    SESSION.give_args(args)


def set_mindio_export_version(framework_type: str) -> None:
    """The client is MindSpeed: its dumps are made by stopped and cleaned ranks."""
    if framework_type not in _EXPORT_VERSIONS:
        raise MindioError(f"set_mindio_export_version: {framework_type!r}: {' or '.join(_EXPORT_VERSIONS)} is expected")
    SESSION.export_version = framework_type
    os.environ["TTP_STOP_CLEAN_BEFORE_DUMP"] = "1"
    if SESSION.processor is not None and SESSION.processor_started:
        SESSION.processor.link.tell("client", version=framework_type)


def get_mindio_export_version() -> str | None:
    return SESSION.export_version


def get_device() -> Any:
    """The device that was current when the processor was made; None without one."""
    return SESSION.callbacks.device


# ---- reports, waits, queries ----------------------------------------------------------------------------------------------


def tft_report_error(error_type: int, error_code: str = "") -> None:
    """`error_type`: the value of a ReportState."""
    call = "tft_report_error"
    states = [state.value for state in ReportState]
    if isinstance(error_type, bool) or error_type not in states:
        raise MindioError(f"{call}: error_type is {error_type!r}: a value of ReportState ({states[0]} to {states[-1]}) is expected")
    arguments.text(call, "error_code", error_code, 16)
    SESSION.need_processor(call).report(ReportState(error_type), error_code, ReportState(error_type).name)


def tft_wait_next_action() -> int:
    return SESSION.need_processor("tft_wait_next_action").wait_next_action()


def tft_wait_repair_action() -> int:
    return SESSION.need_processor("tft_wait_repair_action").wait_repair_action()


def tft_get_repair_step() -> int:
    """The step that an incident goes back to; 0: none."""
    return SESSION.processor.repair_step if SESSION.processor is not None else 0


def tft_get_repair_type() -> str:
    """"retry", "recover", "dump", else "unknown"; valid in stop, clean and repair."""
    return SESSION.processor.repair_type if SESSION.processor is not None else "unknown"


def tft_is_reboot_node() -> bool:
    """Whether this process takes the place of a lost one."""
    return SESSION.need_processor("tft_is_reboot_node").reboot


def tft_get_reboot_type() -> str:
    """"hot switch" where this process came beside the one whose place it takes."""
    return "hot switch" if SESSION.processor is not None and SESSION.processor.came_aside else "arf"


def tft_reset_limit_step() -> None:
    """Frees whom the step lock holds."""
    if SESSION.processor is None:
        LOGGER.error("tft_reset_limit_step: there is no processor")
        return
    SESSION.processor.reset_limit_step()


def tft_report_load_ckpt_step(step: int) -> None:
    """The step of the checkpoint that a repair has loaded."""
    call = "tft_report_load_ckpt_step"
    SESSION.need_processor(call).loaded_step = arguments.integer(call, "step", step, 1, (1 << 63) - 1)


def tft_pause_train(cur_step: int) -> None:
    """At the end of each iteration."""
    if SESSION.processor is None or not SESSION.processor_started:
        return
    if type(cur_step) is not int or cur_step < 0:
        LOGGER.error("tft_pause_train(%r): ignored: a step is no negative number", cur_step)
        return
    SESSION.processor.pause_train(cur_step)


# ---- handlers -------------------------------------------------------------------------------------------------------------


def tft_register_save_ckpt_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.SAVE_CKPT, func, ctx)


def tft_register_rename_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.RENAME, func, ctx)


def tft_register_exit_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.EXIT, func, ctx)


def tft_register_stop_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.STOP, func, ctx)


def tft_register_clean_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.CLEAN, func, ctx)


def tft_register_rebuild_group_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.REBUILD_GROUP, func, ctx)


def tft_register_repair_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.REPAIR, func, ctx)


def tft_register_rollback_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ROLLBACK, func, ctx)


def tft_register_stream_sync_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.STREAM_SYNC, func, ctx)


def tft_register_zit_downgrade_rebuild_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ZIT_DOWNGRADE_REBUILD, func, ctx)


def tft_register_zit_upgrade_rebuild_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ZIT_UPGRADE_REBUILD, func, ctx)


def tft_register_zit_upgrade_repair_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ZIT_UPGRADE_REPAIR, func, ctx)


def tft_register_zit_upgrade_rollback_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    SESSION.callbacks.register(Kind.ZIT_UPGRADE_ROLLBACK, func, ctx)


def tft_register_exception_handler(fault_pattern: str, fault_type: str, fault_handle: Callable[[str], str]) -> None:
    SESSION.faults.register(fault_pattern, fault_type, fault_handle)


def tft_register_decrypt_handler(decryptor: Callable[[str], str] | None) -> None:
    if decryptor is None:
        return
    arguments.function("tft_register_decrypt_handler", decryptor)
    SESSION.decrypt = decryptor


# ---- the decorator --------------------------------------------------------------------------------------------------------


def _memory_is_unused(text: str) -> bool:
    return tft_can_do_uce_repair(get_l2_hbm_error_time(text) or 0)


def _collect() -> None:
    gc.collect()
    module = devices()
    if module is not None:
        module.empty_cache()


def _leave() -> None:
    assert SESSION.processor is not None
    SESSION.processor.leave_now()


def tft_exception_handler(func: Callable[..., Any]) -> Callable[..., Any]:
    """Calls `func` again where an incident was repaired; leaves the process where it was not."""
    arguments.function("tft_exception_handler", func)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not SESSION.processor_started:
            raise MindioError("tft_exception_handler: the processor was not started: tft_start_processor comes first")
        processor = SESSION.need_processor("tft_exception_handler")
        kept: Any = list(args) if SESSION.export_version is None else args
        SESSION.give_args(kept)
        again = False
        while True:
            try:
                # A process that takes another's place has nothing to wait for before it says ARF FINISH.
                if not processor.reboot or again:
                    processor.await_loop()
                result = func(*kept, **kwargs)
                if not processor.finish():
                    again = True
                    continue
                _close_processor(done=True)
                if not settings.current().scheduled:
                    tft_destroy_controller()
                return result
            except RuntimeError as error:
                _meet(processor, error)
                again = True
            except Exception as error:
                LOGGER.exception("training failed")
                processor.report(ReportState.RS_UNKNOWN, "", f"{type(error).__name__}: {error}")
                raise

    return wrapper


def _meet(processor: Processor, error: RuntimeError) -> None:
    """Reports an exception, and returns when the function is to be called again."""
    state, code = SESSION.faults.classify(str(error), processor.enable_uce, _memory_is_unused)
    LOGGER.warning("training was left with %s, which means %s", error, state.name, exc_info=state is ReportState.RS_UNKNOWN)
    processor.report(state, code, str(error))
    if state is ReportState.RS_UNKNOWN and processor.exiting is not None:
        _leave()
    if state not in (ReportState.RS_PREREPAIR_FINISH, ReportState.RS_STEP_FINISH):
        if processor.wait_next_action() == Action.EXIT.value:
            _leave()
    del error
    _collect()
    if processor.wait_repair_action() == Action.EXIT.value:
        _leave()
    _collect()
