"""mindio_ttp.utils: device times of updates and memory errors."""

from .uce_utils import get_l2_hbm_error_time, tft_can_do_uce_repair, tft_set_update_end_time, tft_set_update_start_time

__all__ = ["get_l2_hbm_error_time", "tft_can_do_uce_repair", "tft_set_update_end_time", "tft_set_update_start_time"]
