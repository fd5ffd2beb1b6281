"""How a rank gets into the era of a move (place.py).

The era's start calls nothing of the client's. Then guards begin an incident: of a shrink the crew's first one says that the run goes on
with fewer, of a growth those that came back say that they have no state. Its phases call the client's handlers, and with their
end the rank has arrived.

Threads: the guard's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kintsugi import _core

from .callbacks import Kind
from .codes import MindioError
from .place import Move, Place

Call = Callable[..., Any]  # of a handler: Kind, and what it is given
HANDLERS = (Kind.ZIT_DOWNGRADE_REBUILD, Kind.ZIT_UPGRADE_REBUILD, Kind.ZIT_UPGRADE_REPAIR, Kind.ZIT_UPGRADE_ROLLBACK)


class Journey:
    def __init__(self, place: Place, rank: int, agent: _core.Agent) -> None:
        self._place, self._rank, self._agent = place, rank, agent
        self.under_way = place.move is not Move.NONE
        self.opened = not self.under_way  # the era's start is over
        self.hollow = place.move is Move.GROW and rank in place.others  # this process has no state yet
        self._tells = self.hollow  # which Kintsugi is to be told of

    @property
    def place(self) -> Place:
        return self._place

    @property
    def starts(self) -> bool:
        """Nothing of the client's is called yet."""
        return self.under_way and not self.opened

    @property
    def back(self) -> set[int]:
        """Who comes without state."""
        return set(self._place.others) if self.under_way and self._place.move is Move.GROW else set()

    def lack(self) -> str:
        """What Kintsugi is to be told when the loop is entered; "" for nothing. From then on it knows."""
        self.opened = True
        if not self._tells:
            return ""
        self._tells = False
        return f"rank {self._rank} has come back without its state"

    def begins_it(self) -> bool:
        """Whether this rank begins the incident of a shrink."""
        return self._place.move is Move.SHRINK and self._place.crew.number(self._rank) == 0

    def on_attempt(self, opened: bool) -> None:
        """Where another incident has come first, this attempt is made again with the state as lost: raises MindioError."""
        self.opened = self.opened or opened
        text = self.lack() if self.opened else ""
        if text:
            self._agent.report_memory_error([], text)
            raise MindioError(text)

    def rebuild(self, call: Call, args: Any) -> None:
        place = self._place
        if place.move is Move.SHRINK:
            call(Kind.ZIT_DOWNGRADE_REBUILD, list(place.dp), list(place.crew.ranks), args)
        else:
            call(Kind.ZIT_UPGRADE_REBUILD, list(place.others), args)

    def arrive(self, call: Call, step: int, args: Any) -> None:
        """The incident's last phase."""
        if self._place.move is Move.GROW:
            call(Kind.ZIT_UPGRADE_ROLLBACK, step, args)
        self.under_way = self.hollow = False
