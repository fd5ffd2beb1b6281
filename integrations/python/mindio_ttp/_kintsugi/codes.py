"""Enums and constants of the interface, and what a report means for its rank."""

from __future__ import annotations

import enum


class OptimizerType(enum.Enum):
    ATTENTION = 0
    MOE = 1


class Action(enum.Enum):
    RETRY = 0
    EXIT = 1


class ReportState(enum.Enum):
    RS_NORMAL = 0
    RS_RETRY = 1
    RS_UCE = 2
    RS_UCE_CORRUPTED = 3
    RS_HCCL_FAILED = 4
    RS_INIT_FINISH = 5
    RS_PREREPAIR_FINISH = 6
    RS_STEP_FINISH = 7
    RS_UNKNOWN = 8


class RepairType(enum.Enum):
    RT_SEND = 0
    RT_UCE_HIGHLEVEL = 1
    RT_UCE_LOWLEVEL = 2
    RT_RECV_REPAIR = 3
    RT_ROLLBACK = 4
    RT_LOAD_CKPT = 5
    RT_LOAD_REBUILD = 6


class PauseType(enum.Enum):
    PAUSE = 1
    RAISE = 2


RET_OK = 0
RET_ERROR = 1
RET_K8S = 2  # exit code of a process that the scheduler starts again
RET_PASS = 3
RET_EXCEPTION = 4
EXIT_WAIT_TIME = 10
TTP_MAX_WORLD_SIZE = 100000

# What the clean handler of a rank with damaged memory answers: nothing needs to be built anew.
RET_NO_REBUILD = 2

# Fault types of the scheduler's rank dictionaries.
FAULT_UCE, FAULT_PROCESS, FAULT_NETWORK = 0, 1, 2

# Results that the scheduler is told.
OK, ISOLATED, RETRY_FAILED, MAY_DUMP, ONLY_EXIT = 0, 201, 405, 406, 499


class MindioError(Exception):
    """A call was refused or failed; the text says what to do."""


class NotMapped(MindioError):
    """A flow of the interface that stands on nothing of Kintsugi's yet (README, "What is refused")."""
