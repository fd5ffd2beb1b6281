"""mindio_ttp.controller_ttp: the scheduler's side."""

from mindio_ttp.framework_ttp.ttp_decorator import (
    tft_destroy_controller,
    tft_init_controller,
    tft_set_dp_group_info,
    tft_start_controller,
)

from .ttp_logger import LOGGER
from .ttp_mindx_api import (
    tft_notify_controller_change_strategy,
    tft_notify_controller_dump,
    tft_notify_controller_on_global_rank,
    tft_notify_controller_prepare_action,
    tft_notify_controller_stop_train,
    tft_query_high_availability_switch,
    tft_register_mindx_callback,
)

__all__ = [
    "LOGGER", "tft_destroy_controller", "tft_init_controller", "tft_notify_controller_change_strategy",
    "tft_notify_controller_dump", "tft_notify_controller_on_global_rank", "tft_notify_controller_prepare_action",
    "tft_notify_controller_stop_train", "tft_query_high_availability_switch", "tft_register_mindx_callback",
    "tft_set_dp_group_info", "tft_start_controller",
]  # fmt: skip
