"""Names of torch's process groups that are made in or after an incident.

torch names a group after its ranks and after how many groups there are or were. A process that takes another's place has made fewer than
the survivors, and groups that are made again in each incident meet keys of the ones before in the store. So from the first
incident on a name is made of the ranks, of how often they were asked for since that incident, and of its generation; the same on all ranks.

Threads: any that makes groups. Before the first incident names are torch's own.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any


class GroupNames:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._repair = 0
        self._asked: Counter[str] = Counter()
        self._original: Callable[..., Any] | None = None

    def install(self) -> None:
        """Where torch's groups are loaded; else, and a second time, it does nothing."""
        module: Any = sys.modules.get("torch.distributed.distributed_c10d")
        if module is None or self._original is not None or not hasattr(module, "_process_group_name"):
            return
        self._original = module._process_group_name
        module._process_group_name = self.name

    @property
    def repair(self) -> int:
        """The generation of the last attempt; 0 before the first incident."""
        return self._repair

    def begin(self, generation: int) -> None:
        """An incident's attempt re-makes groups."""
        with self._lock:
            if generation != self._repair:
                self._repair = generation
                self._asked.clear()

    def name(self, ranks: list[int], use_hashed_name: bool) -> Any:
        assert self._original is not None
        original = self._original(ranks, use_hashed_name)
        with self._lock:
            if not self._repair:
                return original
            what = "_".join(map(str, ranks)) if use_hashed_name else "all"
            count = self._asked[what]
            self._asked[what] += 1
            made = hashlib.sha1(f"{what}_{count}".encode(), usedforsecurity=False).hexdigest() if use_hashed_name else str(count)
            return type(original)(f"{made}_{self._repair}")
