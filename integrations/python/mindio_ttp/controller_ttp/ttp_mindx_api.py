"""The scheduler's calls, also importable as the top-level name `ttp_mindx_api`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from mindio_ttp._kintsugi import arguments, scheduler
from mindio_ttp._kintsugi.codes import MindioError
from mindio_ttp._kintsugi.log import LOGGER
from mindio_ttp._kintsugi.master import Master
from mindio_ttp._kintsugi.session import SESSION

__all__ = [
    "tft_notify_controller_change_strategy", "tft_notify_controller_dump", "tft_notify_controller_on_global_rank",
    "tft_notify_controller_prepare_action", "tft_notify_controller_stop_train", "tft_query_high_availability_switch",
    "tft_register_mindx_callback",
]  # fmt: skip


def _answered(call: str, function: Callable[[Master], Coroutine[Any, Any, None] | None]) -> int:
    """0, or 1 with a line in the log."""
    try:
        if SESSION.master is None or not SESSION.master.started:
            raise MindioError("there is no controller: tft_init_controller and tft_start_controller come first")
        SESSION.master.carry_out(function)
    except MindioError as error:
        LOGGER.error("%s: %s", call, error)
        return 1
    return 0


def _faults(call: str, value: Any, world_size: int) -> dict[int, int]:
    if not isinstance(value, dict):
        raise MindioError(f"{call}: fault_ranks is {value!r}: a dictionary of rank and fault type is needed")
    for rank, kind in value.items():
        arguments.integer(call, "a rank of fault_ranks", rank, 0, world_size - 1)
        arguments.integer(call, f"the fault type of rank {rank}", kind, 0, 2)
    return dict(value)


def tft_register_mindx_callback(action: str, func: Callable[..., Any]) -> int:
    """All four before the controller starts, else it runs without a scheduler."""
    if SESSION.master is not None and SESSION.master.started:
        LOGGER.error("tft_register_mindx_callback(%r): the controller has started: callbacks are registered before", action)
        return 1
    return scheduler.register(action, func)


def tft_notify_controller_stop_train(fault_ranks: dict[int, int], stop_type: str = "stop", timeout: int | None = None) -> int:
    """"stop": stop at once; "pause": at a step that all share, until "continue" or for `timeout` seconds."""
    call = "tft_notify_controller_stop_train"

    def stop(master: Master) -> None:
        if stop_type not in ("stop", "pause"):
            raise MindioError(f"stop_type is {stop_type!r}: 'stop' or 'pause' is expected")
        if timeout is not None:
            arguments.integer(call, "timeout", timeout, 1, 1 << 31)
        master.scheduler.stop_train(_faults(call, fault_ranks, master.ranks.world_size), stop_type, timeout)

    return _answered(call, stop)


def tft_notify_controller_on_global_rank(fault_ranks: dict[int, int], time: int = 1) -> int:
    """The final list of faults."""
    call = "tft_notify_controller_on_global_rank"

    def name(master: Master) -> None:
        arguments.integer(call, "time", time, 1, 3600)
        master.scheduler.on_global_rank(_faults(call, fault_ranks, master.ranks.world_size))

    return _answered(call, name)


def tft_notify_controller_change_strategy(strategy: str, params: str = "") -> int:
    """One of those that were reported last."""
    call = "tft_notify_controller_change_strategy"

    async def change(master: Master) -> None:
        if strategy not in scheduler.STRATEGIES:
            raise MindioError(f"strategy is {strategy!r}: one of {', '.join(scheduler.STRATEGIES)} is expected")
        arguments.text(call, "params", params, 1024)
        await master.change_strategy(strategy, params)

    return _answered(call, change)


def tft_notify_controller_prepare_action(action: str, fault_ranks: dict[int, int] | None = None) -> int:
    """"hot switch": other processes will come for these ranks, and take their places once "migration" is chosen; "stop switch": not so."""
    call = "tft_notify_controller_prepare_action"

    def prepare(master: Master) -> None:
        if action not in ("hot switch", "stop switch"):
            raise MindioError(f"action is {action!r}: 'hot switch' or 'stop switch' is expected")
        ranks = _faults(call, {} if fault_ranks is None else fault_ranks, master.ranks.world_size)
        if action == "hot switch":
            master.switch.prepare(set(ranks))
        else:
            master.switch.stop()

    return _answered(call, prepare)


def tft_notify_controller_dump() -> int:
    """Stop, dump, exit."""
    return _answered("tft_notify_controller_dump", lambda master: master.run.save_and_end())


def tft_query_high_availability_switch() -> bool:
    """Whether at least one processor is linked."""
    return SESSION.master is not None and SESSION.master.ranks.linked
