"""Names of torch's process groups, alike on all their members though some of them have made fewer other groups.

Members of a group find each other in the store under its name. torch's own tell how many groups a process has made or has: a hashed name, which is
asked for where only the members call, has the number of all groups in it. A process that takes another's place makes fewer than the survivors did
(MindSpeed-LLM's leaves its Gloo groups out), and groups that are made again in each incident would meet keys of the ones before. So from
tft_init_processor on a hashed name is made of the ranks, of how often these ranks were asked for with a hashed name since the last repair, and of
that repair's number, which is 0 until this process has a part in one. Other names are torch's own until then, and are counted from the repair on.

Threads: any that makes groups.
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
        self._hashed: Counter[str] = Counter()  # by the ranks
        self._others = 0
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
                self._repair, self._others = generation, 0
                self._hashed.clear()

    def name(self, ranks: list[int], use_hashed_name: bool) -> Any:
        assert self._original is not None
        original = self._original(ranks, use_hashed_name)
        with self._lock:
            made = self._hashed_name(ranks) if use_hashed_name else self._other_name(original)
        return type(original)(made)

    def _hashed_name(self, ranks: list[int]) -> str:
        who = "_".join(map(str, ranks))
        count = self._hashed[who]
        self._hashed[who] += 1
        return f"{hashlib.sha1(f'{who}_{count}'.encode(), usedforsecurity=False).hexdigest()}_{self._repair}"

    def _other_name(self, original: str) -> str:
        if not self._repair:
            return original
        self._others += 1
        return f"{self._others - 1}_{self._repair}"
