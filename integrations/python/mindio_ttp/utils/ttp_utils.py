"""Constants, also importable as the top-level name `ttp_utils`."""

from mindio_ttp._kintsugi.codes import (
    EXIT_WAIT_TIME,
    RET_ERROR,
    RET_EXCEPTION,
    RET_K8S,
    RET_OK,
    RET_PASS,
    TTP_MAX_WORLD_SIZE,
)

__all__ = ["EXIT_WAIT_TIME", "RET_ERROR", "RET_EXCEPTION", "RET_K8S", "RET_OK", "RET_PASS", "TTP_MAX_WORLD_SIZE"]
