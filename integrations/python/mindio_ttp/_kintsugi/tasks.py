"""What the agent asks of a guard, and what it is answered: numbers of Kintsugi's C ABI."""

from __future__ import annotations

import enum


class TaskKind(enum.IntEnum):
    NOTHING = 0
    LOOP = 1
    CLEAN = 2
    REBUILD_GROUP = 3
    REPAIR = 4
    ROLLBACK = 5
    SAVE = 6
    RENAME = 7
    CONTINUE = 8
    UNWIND = 9
    ENDED = 10


class Rung(enum.IntEnum):
    """Of the ladder, those that make a difference here."""

    RELOAD = 8


class Outcome(enum.IntEnum):
    """How the loop was left."""

    FINISHED = 0
    WAS_INTERRUPTED = 1
    RAISED = 2
    COMM_ERROR = 3
    MEMORY_ERROR = 4


class Code(enum.IntEnum):
    """How a task has ended."""

    OK = 0
    COMM_FAILURE = 2
    DATA_LOSS = 8
    CANCELLED = 11
    INTERNAL = 13


REPLACED = 1  # `joined_as` of an agent that takes a lost one's place
PULL_MS = 100
TEXT_MAX = 1000  # of what the agent is told
