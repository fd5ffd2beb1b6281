"""The decorator around a client's training, and the framework's side of the interface in one place: clients look here for all of it."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

from mindio_ttp._kintsugi import arguments, settings
from mindio_ttp._kintsugi.callbacks import devices
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
from mindio_ttp._kintsugi.life import (
    close_processor,
    tft_destroy_controller,
    tft_destroy_processor,
    tft_init_controller,
    tft_init_processor,
    tft_start_controller,
    tft_start_processor,
)
from mindio_ttp._kintsugi.log import LOGGER
from mindio_ttp._kintsugi.processor import Processor
from mindio_ttp._kintsugi.registration import (
    tft_register_clean_handler,
    tft_register_decrypt_handler,
    tft_register_exception_handler,
    tft_register_exit_handler,
    tft_register_rebuild_group_handler,
    tft_register_rename_handler,
    tft_register_repair_handler,
    tft_register_rollback_handler,
    tft_register_save_ckpt_handler,
    tft_register_stop_handler,
    tft_register_stream_sync_handler,
    tft_register_zit_downgrade_rebuild_handler,
    tft_register_zit_upgrade_rebuild_handler,
    tft_register_zit_upgrade_repair_handler,
    tft_register_zit_upgrade_rollback_handler,
)
from mindio_ttp._kintsugi.session import SESSION
from mindio_ttp._kintsugi.training_calls import (
    get_device,
    get_mindio_export_version,
    set_mindio_export_version,
    tft_end_updating_os,
    tft_get_reboot_type,
    tft_get_repair_step,
    tft_get_repair_type,
    tft_is_reboot_node,
    tft_pause_train,
    tft_report_error,
    tft_report_load_ckpt_step,
    tft_reset_limit_step,
    tft_set_dp_group_info,
    tft_set_optimizer_replica,
    tft_set_step_args,
    tft_start_copy_os,
    tft_start_updating_os,
    tft_wait_next_action,
    tft_wait_repair_action,
)
from mindio_ttp.utils.uce_utils import get_l2_hbm_error_time, tft_can_do_uce_repair

__all__ = [
    "Action", "EXIT_WAIT_TIME", "MindioError", "NotMapped", "OptimizerType", "PauseType", "RET_ERROR", "RET_EXCEPTION",
    "RET_K8S", "RET_OK", "RET_PASS", "RepairType", "ReportState", "TTP_MAX_WORLD_SIZE", "get_device",
    "get_l2_hbm_error_time", "get_mindio_export_version", "set_mindio_export_version", "tft_can_do_uce_repair",
    "tft_destroy_controller", "tft_destroy_processor", "tft_end_updating_os", "tft_exception_handler",
    "tft_get_reboot_type", "tft_get_repair_step", "tft_get_repair_type", "tft_init_controller", "tft_init_processor",
    "tft_is_reboot_node", "tft_pause_train", "tft_register_clean_handler", "tft_register_decrypt_handler",
    "tft_register_exception_handler", "tft_register_exit_handler", "tft_register_rebuild_group_handler",
    "tft_register_rename_handler", "tft_register_repair_handler", "tft_register_rollback_handler",
    "tft_register_save_ckpt_handler", "tft_register_stop_handler", "tft_register_stream_sync_handler",
    "tft_register_zit_downgrade_rebuild_handler", "tft_register_zit_upgrade_rebuild_handler",
    "tft_register_zit_upgrade_repair_handler", "tft_register_zit_upgrade_rollback_handler", "tft_report_error",
    "tft_report_load_ckpt_step", "tft_reset_limit_step", "tft_set_dp_group_info", "tft_set_optimizer_replica",
    "tft_set_step_args", "tft_start_controller", "tft_start_copy_os", "tft_start_processor", "tft_start_updating_os",
    "tft_wait_next_action", "tft_wait_repair_action",
]  # fmt: skip


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
        processor = SESSION.need_processor("tft_exception_handler")
        kept: Any = list(args) if SESSION.export_version is None else args
        SESSION.give_args(kept)
        again = False
        while True:
            try:
                # A process that takes another's place has nothing to wait for before it says ARF FINISH.
                if not processor.membership.reboot or again:
                    processor.await_loop()
                result = func(*kept, **kwargs)
                if not processor.finish():
                    again = True
                    continue
                close_processor(done=True)
                if not settings.current().scheduled:
                    tft_destroy_controller()
                return result
            except RuntimeError as error:
                _meet(processor, error)
                again = True
            except Exception as error:
                LOGGER.exception("training failed")
                processor.reports.report(ReportState.RS_UNKNOWN, "", f"{type(error).__name__}: {error}")
                raise

    return wrapper


def _meet(processor: Processor, error: RuntimeError) -> None:
    """Reports an exception, and returns when the function is to be called again."""
    state, code = SESSION.faults.classify(str(error), processor.rank.enable_uce, _memory_is_unused)
    LOGGER.warning("training was left with %s, which means %s", error, state.name, exc_info=state is ReportState.RS_UNKNOWN)
    processor.reports.report(state, code, str(error))
    if state is ReportState.RS_UNKNOWN and processor.state.exiting is not None:
        _leave()
    if state not in (ReportState.RS_PREREPAIR_FINISH, ReportState.RS_STEP_FINISH):
        if processor.reports.wait_next_action() == Action.EXIT.value:
            _leave()
    del error
    _collect()
    if processor.reports.wait_repair_action() == Action.EXIT.value:
        _leave()
    _collect()
