"""Numbers of the C ABI (integrations/c/kintsugi.h): what the agent says and is told. A test compares all with the header.

To ask an enumeration for a member costs 0.2 us (Python 3.11): what is done at every step has the numbers it needs in names of its own.
"""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """How a call has ended. The header says what each means."""

    OK = 0
    INTERRUPTED = 1
    COMM_FAILURE = 2
    DEADLINE_EXCEEDED = 3
    UNAVAILABLE = 4
    INVALID_ARGUMENT = 5
    FAILED_PRECONDITION = 6
    NOT_FOUND = 7
    DATA_LOSS = 8
    RESOURCE_EXHAUSTED = 9
    PERMISSION_DENIED = 10
    CANCELLED = 11
    ENDED = 12
    INTERNAL = 13
    PAUSED = 14
    THROW = 15
    FLIP = 16


class Joined(enum.IntEnum):
    """`joined_as` of an agent: what its rank begins from."""

    FRESH = 0
    REPLACEMENT = 1
    RESUMED = 2


class TaskKind(enum.IntEnum):
    """What the agent asks of its guard."""

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
    """How an incident is mended."""

    RESUME = 0
    RETRY = 1
    PATCH = 2
    REBUILD = 3
    ADOPT = 4
    SPARE = 5
    RESPAWN = 6
    SHRINK = 7
    RELOAD = 8
    DUMP = 9
    EXIT = 10
    GROW = 11


class Outcome(enum.IntEnum):
    """How the loop was left."""

    FINISHED = 0
    WAS_INTERRUPTED = 1
    RAISED = 2
    COMM_ERROR = 3
    MEMORY_ERROR = 4
    REFUSED = 5
    FINISHED_CHANGED = 6


class Phase(enum.IntEnum):
    """Of a step."""

    FORWARD = 1
    BACKWARD = 2
    GRADIENT_SYNC = 3
    GATE = 4
    UPDATE = 5
    PARAM_SYNC = 6
    BETWEEN = 7


class Activity(enum.IntEnum):
    """Within which standing still is no hang."""

    WARMUP = 1
    EVAL = 2
    SAVE = 3
    COMPILE = 4
    WAIT = 5
    SECTION = 6


class TakeOver(enum.IntEnum):
    """How an object goes on where a run resumes with other ranks, or in another layout."""

    UNSAID = 0
    SAME_RANK = 1
    RANK_ZERO = 2
    DERIVED = 3
    OWN = 4
    CELL = 5
