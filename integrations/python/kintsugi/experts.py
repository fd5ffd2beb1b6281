"""Names of experts (callbacks/state/experts.h)."""

from __future__ import annotations

import re

from ._errors import Error
from .abi import Code

_LOCAL = re.compile(r"(.*(?:^|\.)(?:local_)?experts\.)([0-9]+)(?=\.|$)(.*)", re.ASCII | re.DOTALL)


def global_expert_key(key: str, rank: int, experts_per_rank: int) -> str:
    """`key` as it is over all ranks of an expert-parallel group, of which `rank` has experts 0 to `experts_per_rank` - 1 by its own
    count: "experts.0.w" of rank 3 with 4 each is "experts.12.w". A name without an expert's number stays as it is."""
    if rank < 0 or experts_per_rank < 1:
        raise Error(f"'{key}': rank {rank} of an expert-parallel group with {experts_per_rank} experts each is none", Code.INVALID_ARGUMENT)
    found = _LOCAL.fullmatch(key)
    if found is None:
        return key
    if int(found[2]) >= experts_per_rank:
        raise Error(f"'{key}': expert {found[2]} is none of a rank that has experts 0 to {experts_per_rank - 1}: is the name global already?", Code.INVALID_ARGUMENT)
    return f"{found[1]}{rank * experts_per_rank + int(found[2])}{found[3]}"
