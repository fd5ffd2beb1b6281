"""What the text of a RuntimeError means: patterns in the order in which they are looked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from . import arguments
from .codes import MindioError, ReportState

_CODE = re.compile(r"device error type\s*[:=]?\s*((?:0x)?[0-9a-fA-F]+)")

# Those that memory and network retry serve; without enable_uce they are as unknown as anything else.
_UCE = ("UCE ERROR", "HBM MULTI BIT ECC", "HCCL OP RETRY FAILED", "SUSPECT REMOTE ERROR", "UB LINK ERROR", "HCCS LINK ERROR")


class FaultTable:
    """The patterns of one process."""

    def __init__(self) -> None:
        self._types: dict[str, ReportState] = {
            "UCE ERROR": ReportState.RS_UCE,
            "HBM MULTI BIT ECC": ReportState.RS_UCE,
            "FORCE STOP": ReportState.RS_NORMAL,
            "ARF FINISH": ReportState.RS_PREREPAIR_FINISH,
            "STEP FINISH": ReportState.RS_STEP_FINISH,
            "HCCL OP RETRY FAILED": ReportState.RS_HCCL_FAILED,
            "SUSPECT REMOTE ERROR": ReportState.RS_HCCL_FAILED,
            "UB LINK ERROR": ReportState.RS_HCCL_FAILED,
            "HCCS LINK ERROR": ReportState.RS_HCCL_FAILED,
        }
        self._handles: dict[str, Callable[[str], str]] = {}

    def register(self, pattern: Any, fault_type: Any, handle: Any) -> None:
        call = "tft_register_exception_handler"
        arguments.text(call, "fault_pattern", pattern)
        if not pattern:
            raise MindioError(f"{call}: fault_pattern is empty: every text would match")
        names = [state.name for state in ReportState]
        if fault_type not in names:
            raise MindioError(f"{call}: fault_type is {fault_type!r}: one of {', '.join(names)} is expected")
        arguments.function(call, handle)
        self._types[pattern] = ReportState[fault_type]
        self._handles[pattern] = handle

    def classify(self, text: str, enable_uce: bool, memory_time_check: Callable[[str], bool]) -> tuple[ReportState, str]:
        """The state to report and the error's code. `memory_time_check`: whether no update has used what an ECC error hit."""
        found = _CODE.search(text)
        code = found.group(1)[:15] if found else ""
        for pattern in self._types:
            if pattern not in text:
                continue
            if pattern in _UCE and not enable_uce:
                return ReportState.RS_UNKNOWN, code
            key = self._handles[pattern](text) if pattern in self._handles else pattern
            if key not in self._types:
                raise MindioError(f"the handler of '{pattern}' answered {key!r}, which is no known pattern: {', '.join(self._types)}")
            if key == "HBM MULTI BIT ECC" and not memory_time_check(text):
                return ReportState.RS_UCE_CORRUPTED, code
            return self._types[key], code
        return ReportState.RS_UNKNOWN, code

    def hear(self, text: str) -> None:
        """Another rank has raised this: its pattern's handler reads it here, too. What it answers means nothing on this rank."""
        for pattern in self._types:
            if pattern in text:
                if pattern in self._handles:
                    self._handles[pattern](text)
                return
