"""The log of the module: standard error, and the file that TTP_LOG_PATH names."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys

LOGGER = logging.getLogger("mindio_ttp")
_FORMAT = "%(asctime)s %(levelname)s mindio_ttp[%(process)d]: %(message)s"
_LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40}


def begin(level: str, folder: str, mode: str, to_stdout: bool, size: int) -> None:
    """Called once, when the environment is read. Without TTP_LOG_PATH nothing is written to a file."""
    LOGGER.setLevel(_LEVELS[level])
    LOGGER.propagate = False
    for handler in list(LOGGER.handlers):
        LOGGER.removeHandler(handler)
    stream = logging.StreamHandler(sys.stdout if to_stdout else sys.stderr)
    if not to_stdout and folder:
        stream.setLevel(logging.WARNING)
    stream.setFormatter(logging.Formatter(_FORMAT))
    LOGGER.addHandler(stream)
    if not folder:
        return
    name = "ttp_log.log" if mode == "ONLY_ONE" else f"ttp_log.log.{os.getpid()}"
    path = os.path.join(folder, name)
    try:
        os.makedirs(folder, mode=0o750, exist_ok=True)
        if os.path.islink(path):
            raise OSError(f"{path} is a symbolic link")
        file = logging.handlers.RotatingFileHandler(path, maxBytes=size, backupCount=5, delay=True)
    except OSError as error:
        LOGGER.warning("TTP_LOG_PATH=%s: no log file is written: %s", folder, error)
        return
    file.setFormatter(logging.Formatter(_FORMAT))
    LOGGER.addHandler(file)
