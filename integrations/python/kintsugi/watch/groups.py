"""Which marks a process group of the program's has."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from .marks import Marks

UNSEEN = -1
_ON_HOST = {"gloo", "mpi", "kintsugi"}


class Groups:
    def __init__(self, dist: Any, marks: Marks) -> None:
        self._dist, self._marks = dist, marks
        self._of: dict[int, tuple[int, bool, Any]] = {}  # by the group's id, while it lives: its place, whether it is on hosts alone

    def of(self, group: Any) -> int:
        found = self._of.get(id(group))
        return found[0] if found is not None else self.open(group)

    def on_hosts(self, group: Any) -> bool:
        """Without tensors it is not to be seen otherwise where a collective is carried out."""
        found = self._of.get(id(group))
        return found is not None and found[1]

    @staticmethod
    def _is_on_hosts(backend: str) -> bool:
        if backend in _ON_HOST:
            return True
        # One for each kind of device, which a program gets that names none: it is the host's where there is no other.
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        return (backend == "undefined" or ":" in backend) and not (cuda and cuda.is_available())

    def open(self, group: Any) -> int:
        key = id(group)
        try:
            ranks = self._dist.get_process_group_ranks(group)
            described = getattr(group, "group_desc", "")
            name = f"{described} ({group.group_name})" if described not in ("", "undefined") else str(group.group_name)
            place = self._marks.group(name, ranks, self._dist.get_rank())
            on_hosts = self._is_on_hosts(str(self._dist.get_backend(group)))
        except Exception:  # none of the program's own: torch uses one itself before it is named
            place, on_hosts = UNSEEN, False
        self._of[key] = (place, on_hosts, weakref.ref(group, lambda _: self._of.pop(key, None)))
        return place
