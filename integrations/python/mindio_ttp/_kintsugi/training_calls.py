"""What a training process calls from its start to its end: groups, markers, reports, waits and questions.

Threads: the main thread's; markers also another's, with MindSpore.
"""

from __future__ import annotations

import os
from typing import Any

from . import arguments, layout, settings
from .codes import MindioError, NotMapped, ReportState
from .log import LOGGER
from .session import SESSION

_EXPORT_VERSIONS = ("MindSpeed", "MindSpeed-LLM")
_STEP_MAX = (1 << 63) - 1


# ---- markers and registration ---------------------------------------------------------------------------------------------


def tft_start_updating_os(backup_step: int = -1) -> None:
    """Before optimizer.step(). Waits for the gate; raises RuntimeError("FORCE STOP ...") once an incident was stopped."""
    if backup_step != -1:
        arguments.integer("tft_start_updating_os", "backup_step", backup_step, -1, _STEP_MAX)
    SESSION.need_processor("tft_start_updating_os").markers.start_updating()


def tft_start_copy_os() -> None:
    """Needs enable_local_copy, which is not offered."""
    SESSION.need_processor("tft_start_copy_os")
    raise NotMapped("tft_start_copy_os: enable_local_copy is not offered by Kintsugi's mindio_ttp")


def tft_end_updating_os(step: int) -> None:
    """After optimizer.step(): `step` is committed."""
    if type(step) is not int or step < 1:
        arguments.integer("tft_end_updating_os", "step", step, 1, _STEP_MAX)
    SESSION.need_processor("tft_end_updating_os").markers.end_updating(step)


def tft_set_optimizer_replica(rank: int, replica_info: list[dict[str, Any]]) -> None:
    """Who holds which part of the optimizer's state; one entry for each optimizer type."""
    call = "tft_set_optimizer_replica"
    processor = SESSION.need_processor(call)
    own = processor.rank
    arguments.integer(call, "rank", rank, 0, own.world_size - 1)
    if rank != own.number:
        raise MindioError(f"{call}: rank is {rank}, this process is rank {own.number}")
    processor.membership.set_replicas(layout.parse(call, rank, own.world_size, replica_info, settings.current().mindspore))


def tft_set_dp_group_info(rank: int, dp_rank_list: list[int]) -> None:
    """The data-parallel group as the client made it: a downgrade leaves out all ranks at one place of such groups."""
    call = "tft_set_dp_group_info"
    processor = SESSION.need_processor(call)
    own = processor.rank
    arguments.integer(call, "rank", rank, 0, own.world_size - 1)
    if rank != own.number:
        raise MindioError(f"{call}: rank is {rank}, this process is rank {own.number}")
    ranks = arguments.ranks(call, "dp_rank_list", dp_rank_list, own.world_size)
    if rank not in ranks:
        raise MindioError(f"{call}: dp_rank_list is {dp_rank_list}, without rank {rank} itself")
    processor.membership.set_dp_group(ranks)


def tft_set_step_args(args: Any) -> None:
    """What every handler gets as `args`."""
    if SESSION.processor is not None and SESSION.processor.state.saved:
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
    if SESSION.processor is not None and SESSION.processor.started:
        SESSION.processor.rank.link.tell("client", version=framework_type)


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
    SESSION.need_processor(call).reports.report(ReportState(error_type), error_code, ReportState(error_type).name)


def tft_wait_next_action() -> int:
    return SESSION.need_processor("tft_wait_next_action").reports.wait_next_action()


def tft_wait_repair_action() -> int:
    return SESSION.need_processor("tft_wait_repair_action").reports.wait_repair_action()


def tft_get_repair_step() -> int:
    """The step that an incident goes back to; 0: none."""
    return SESSION.processor.state.repair_step if SESSION.processor is not None else 0


def tft_get_repair_type() -> str:
    """"retry", "recover", "dump", else "unknown"; valid in stop, clean and repair."""
    return SESSION.processor.state.repair_type if SESSION.processor is not None else "unknown"


def tft_is_reboot_node() -> bool:
    """Whether this process takes the place of a lost one."""
    return SESSION.need_processor("tft_is_reboot_node").membership.reboot


def tft_get_reboot_type() -> str:
    """"hot switch" where this process came beside the one whose place it takes."""
    return "hot switch" if SESSION.processor is not None and SESSION.processor.membership.came_aside else "arf"


def tft_reset_limit_step() -> None:
    """Frees whom the step lock holds."""
    if SESSION.processor is None:
        LOGGER.error("tft_reset_limit_step: there is no processor")
        return
    SESSION.processor.reports.reset_limit_step()


def tft_report_load_ckpt_step(step: int) -> None:
    """The step of the checkpoint that a repair has loaded."""
    call = "tft_report_load_ckpt_step"
    SESSION.need_processor(call).state.loaded_step = arguments.integer(call, "step", step, 1, _STEP_MAX)


def tft_pause_train(cur_step: int) -> None:
    """At the end of each iteration."""
    processor = SESSION.processor
    if processor is None or not processor.started:
        return
    if type(cur_step) is not int or cur_step < 0:
        LOGGER.error("tft_pause_train(%r): ignored: a step is no negative number", cur_step)
        return
    processor.markers.end_iteration()
