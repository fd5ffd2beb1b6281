"""Runs a trainer as it is; where it takes a lost process's place it says what its processor time went into until its first step.

  torch_bench_newcomer.py SCRIPT ARGUMENTS...     KINTSUGI_BENCH_WAIT: the third step waits for so many seconds, for others to be ready
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path

import torch._dynamo  # what torch itself imports with the first optimizer
import torch.distributed.fsdp
import torch.distributed.tensor.parallel  # noqa: F401

imported = time.process_time()

from kintsugi.torch.run import TorchRun  # noqa: E402

begin_step = TorchRun.begin_step


def told(run: TorchRun, k: int) -> None:
    begin_step(run, k)
    if k < 3 and not run.replaces:
        return
    time.sleep(0 if run.replaces else float(os.environ.get("KINTSUGI_BENCH_WAIT", "0")))
    TorchRun.begin_step = begin_step  # type: ignore[method-assign, assignment]
    if run.replaces:
        own = time.process_time() - imported
        print("newcomer", json.dumps({"imports": imported * 1000, "own": own * 1000}), flush=True)


TorchRun.begin_step = told  # type: ignore[method-assign, assignment]
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
