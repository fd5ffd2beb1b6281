"""torch's copy between two tensors of bytes, of one thread, beside bench_stream: into pages that were touched before, and fresh ones.

  stream_peers.py MIB RUNS     prints {"version": ..., "rates": {id: [GB/s, ...]}}
"""

from __future__ import annotations

import json
import sys
import time

import torch


def main() -> None:
    mib, runs = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    source, warm = torch.ones(mib << 20, dtype=torch.uint8), torch.zeros(mib << 20, dtype=torch.uint8)
    rates: dict[str, list[float]] = {"torch/warm": [], "torch/fresh": []}
    for run in range(-1, runs):  # the first round warms caches and is not counted
        for name in rates:
            target = warm if name == "torch/warm" else torch.empty_like(source)
            began = time.perf_counter()
            target.copy_(source)
            if run >= 0:
                rates[name].append(source.nbytes / (time.perf_counter() - began) / 1e9)
    print(json.dumps({"version": torch.__version__, "rates": rates}))


main()
