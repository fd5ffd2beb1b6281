"""What torch makes of the permutes and casts of bench_pack: one thread, results written in place.

  pack_peers.py MIB RUNS     prints {"version": ..., "rates": {id: [GB/s of processor time, ...]}}
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

CASTS = ("float32-bfloat16", "bfloat16-float32", "float32-float16", "float16-float32", "float32-float8_e4m3fn", "float8_e4m3fn-float32",
         "float32-float64", "float64-float32", "float64-bfloat16", "int64-int32", "float32-int32")  # fmt: skip
QUARTER_OF = 4 * 4096


def main() -> None:
    mib, runs = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    size = mib << 20
    quarter = size // QUARTER_OF
    cases: dict[str, tuple[float, Callable[[], object]]] = {}

    def permute(name: str, shape: tuple[int, ...], order: tuple[int, ...], dtype: torch.dtype) -> None:
        source = torch.ones(shape, dtype=dtype)
        view = source.permute(order)
        result = torch.empty(view.shape, dtype=dtype)
        cases[f"permute/{name}"] = source.nbytes, lambda: result.copy_(view)

    permute("2-d/float32", (quarter, 4096), (1, 0), torch.float32)
    permute("2-d/bfloat16", (2 * quarter, 4096), (1, 0), torch.bfloat16)
    permute("4-d-0213/float32", (quarter // 64, 64, 32, 128), (0, 2, 1, 3), torch.float32)
    permute("4-d-3210/float32", (quarter // 64, 64, 32, 128), (3, 2, 1, 0), torch.float32)

    def cast(name: str) -> None:
        from_type, to_type = (getattr(torch, part) for part in name.split("-"))
        count = size // max(from_type.itemsize, to_type.itemsize)
        source, result = torch.ones(count).to(from_type), torch.empty(count, dtype=to_type)
        cases[f"cast/{name}"] = (source.nbytes + result.nbytes) / 2, lambda: result.copy_(source)

    for name in CASTS:
        cast(name)
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for run in range(-1, runs):  # the first round maps pages and is not counted
        for name, (moved, body) in cases.items():
            began = time.thread_time()
            body()
            if run >= 0:
                rates[name].append(moved / (time.thread_time() - began) / 1e9)
    print(json.dumps({"version": torch.__version__, "rates": rates}))


main()
