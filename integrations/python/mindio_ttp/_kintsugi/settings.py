"""The environment, read once. A variable means what MindIO says it means; one whose value or whose feature is not served gives
one warning that names it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from . import log

# Served by something else than MindIO's own means, or by nothing: told once where they are set.
_NOT_SERVED = {
    "TTP_FRAMEWORK_TYPE": "replicas are laid out by the stride rule, the shift rule is not offered",
    "TTP_ACCLINK_CHECK_PERIOD_HOURS": "certificates are checked at each handshake, not by the clock",
    "TTP_ACCLINK_CERT_CHECK_AHEAD_DAYS": "certificates are checked at each handshake, not by the clock",
}
# Values that mean what is done anyway.
_AS_SERVED = {"TTP_FRAMEWORK_TYPE": "0"}


@dataclass(frozen=True)
class Settings:
    log_path: str = ""
    log_level: str = "INFO"
    log_mode: str = "PER_PROC"
    log_stdout: bool = False
    log_size: int = 10 << 20
    retry_times: int = 10
    scheduler_wait: float = 30.0
    action_limit: float = 180.0
    stop_clean_before_dump: bool = False
    mindspore: bool = False
    scheduled: bool = False  # MINDX_TASK_ID: the scheduler hosts the controller
    gate: bool = True
    silence: float = 1.0
    respawn_wait: float = 600.0
    warnings: tuple[str, ...] = field(default=())


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.warnings: list[str] = []

    def warn(self, name: str, why: str) -> None:
        self.warnings.append(f"{name}={self.environment[name]}: {why}")

    def number(self, name: str, low: float, high: float, default: float) -> float:
        given = self.environment.get(name)
        if given is None:
            return default
        try:
            value = float(given)
        except ValueError:
            value = low - 1
        if low <= value <= high:
            return value
        self.warn(name, f"a number from {low:g} to {high:g} is expected; {default:g} is used")
        return default

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        given = self.environment.get(name)
        if given is None or given in choices:
            return default if given is None else given
        self.warn(name, f"one of {', '.join(choices)} is expected; {default} is used")
        return default


def read(environment: Mapping[str, str]) -> Settings:
    reader = _Reader(environment)
    for name, why in _NOT_SERVED.items():
        if environment.get(name, _AS_SERVED.get(name)) != _AS_SERVED.get(name):
            reader.warn(name, why)
    return Settings(
        log_path=environment.get("TTP_LOG_PATH", ""),
        log_level=reader.choice("TTP_LOG_LEVEL", ("DEBUG", "INFO", "WARNING", "WARN", "ERROR"), "INFO"),
        log_mode=reader.choice("TTP_LOG_MODE", ("PER_PROC", "ONLY_ONE"), "PER_PROC"),
        log_stdout=reader.choice("TTP_LOG_STDOUT", ("0", "1"), "0") == "1",
        log_size=int(reader.number("TTP_LOG_SIZE", 1 << 10, 1 << 40, 10 << 20)),
        retry_times=int(reader.number("TTP_RETRY_TIMES", 1, 300, 10)),
        scheduler_wait=reader.number("MINDIO_WAIT_MINDX_TIME", 1, 3600, 30),
        action_limit=reader.number("TTP_NORMAL_ACTION_TIME_LIMIT", 30, 1800, 180),
        stop_clean_before_dump=reader.choice("TTP_STOP_CLEAN_BEFORE_DUMP", ("0", "1"), "0") == "1",
        mindspore=reader.choice("MINDIO_FOR_MINDSPORE", ("true", "True", "1", "0", "false", "False"), "0")
        in ("true", "True", "1"),
        scheduled="MINDX_TASK_ID" in environment,
        gate=reader.choice("KINTSUGI_MINDIO_GATE", ("on", "off"), "on") == "on",
        silence=reader.number("KINTSUGI_MINDIO_SILENCE", 0.3, 600, 1),
        respawn_wait=reader.number("KINTSUGI_MINDIO_RESPAWN_WAIT", 1, 86400, 600),
        warnings=tuple(reader.warnings),
    )


_settings: Settings | None = None


def current() -> Settings:
    """What the environment said when it was first asked for."""
    global _settings
    if _settings is None:
        _settings = read(os.environ)
        log.begin(_settings.log_level, _settings.log_path, _settings.log_mode, _settings.log_stdout, _settings.log_size)
        for warning in _settings.warnings:
            log.LOGGER.warning("%s", warning)
    return _settings


def stops_before_dump() -> bool:
    """Read again: set_mindio_export_version sets it while a process runs."""
    return current().stop_clean_before_dump or os.environ.get("TTP_STOP_CLEAN_BEFORE_DUMP") == "1"
