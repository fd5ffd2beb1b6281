"""The module's log, also importable as the top-level name `ttp_logger`."""

from mindio_ttp._kintsugi.log import LOGGER

__all__ = ["LOGGER"]
