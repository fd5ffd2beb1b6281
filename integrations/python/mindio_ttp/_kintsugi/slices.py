"""Who is left out of a run, and whether more can be: what all ranks have said of themselves, and elastic.py's word on it.

Threads: the host's.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import elastic
from .desk import Message
from .elastic import CannotShrink, Elastic
from .log import LOGGER
from .ranks import Ranks


class Slices:
    def __init__(self, ranks: Ranks, enabled: bool) -> None:
        self._ranks, self.enabled = ranks, enabled
        self.client = ""  # MindSpeed's handler of a downgrade counts on the whole group: it takes one until the upgrade
        self.left_out: set[int] = set()
        self.down = ""  # the scheduler's parameters of the downgrade it chose last
        self._said: dict[int, Elastic] = {}

    def hear(self, rank: int, message: Message) -> None:
        """What a rank says of itself when its training begins."""
        self._said[rank] = Elastic(tuple(message["dp"]), tuple(message["handlers"]), bool(message["enabled"]))

    def offered(self) -> list[str]:
        """What can be chosen with the faults that are known."""
        if not self.enabled:
            return []
        why = elastic.why_not(self._ranks.world_size, self._ranks.groups, self._said)
        try:
            if not why:
                self.without(self._ranks.known_faults())
        except CannotShrink as error:
            why = str(error)
        if why:
            LOGGER.warning("downgrade is not offered: %s", why)
            return []
        return ["downgrade", "upgrade"]

    def without(self, lost: Iterable[int]) -> set[int]:
        """Who is to be left out where these are lost, too. Raises CannotShrink."""
        if self.left_out and self.client:
            raise CannotShrink(f"{self.client}'s handlers take no second downgrade before the upgrade", may_dump=True)
        return self.all_without(lost)

    def all_without(self, lost: Iterable[int]) -> set[int]:
        """The same where nobody has been told of the others."""
        return elastic.shrink(self._ranks.groups, self._said, self.left_out | set(lost))
