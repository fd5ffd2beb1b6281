"""One rank's process: who it is, what it has, and where it stands. Its parts (markers, reports, membership, guard) share this.

Threads: set up on the main thread before training; `agent`, `place` and `aside` change with an era, under `state.changed`.
"""

from __future__ import annotations

from typing import Any

from kintsugi import _core

from .callbacks import Callbacks
from .desk import Link
from .faults import FaultTable
from .group_names import GroupNames
from .layout import Group
from .place import Place
from .settings import Settings
from .state import RankState


class Rank:
    def __init__(self, number: int, world_size: int, callbacks: Callbacks, faults: FaultTable, settings: Settings, link: Link, *,
                 enable_uce: bool, enable_zit: bool) -> None:
        self.number, self.world_size = number, world_size
        self.callbacks, self.faults, self.settings, self.link = callbacks, faults, settings, link
        self.enable_uce, self.enable_zit = enable_uce, enable_zit
        self.group_names = GroupNames()
        self.state = RankState()
        self.args: Any = None  # of the training: every handler gets them
        self.groups: list[Group] = []  # one for each optimizer type; none: nothing is protected
        self.dp: list[int] = []  # the data-parallel group as the client made it
        self.agent: _core.Agent | None = None  # once it has joined
        self.place: Place | None = None
        self.aside = False  # it waits for a place that another process has, or that is not free yet
