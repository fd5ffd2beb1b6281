"""A script under plain torch, a process of torchrun's: `plain.py SCRIPT [WORD]...`.

It is gone as soon as the script has ended. Torch's own way out can stand still for ever: who frees a Gloo group joins its threads with Python's
lock in hand, and a thread of them may want that lock to free the work of a collective. A reference must not hang by that.
"""

import multiprocessing
import os
import runpy
import sys
from pathlib import Path

import torch.distributed as dist


def main() -> None:
    script = sys.argv[1]
    del sys.argv[0]
    sys.path[0] = str(Path(script).parent)
    dist.destroy_process_group = lambda group=None: None
    try:
        kept = runpy.run_path(script, run_name="__main__")  # noqa: F841  To free its groups is what can stand still.
    except SystemExit as end:
        if end.code:
            raise
    for worker in multiprocessing.active_children():  # of loaders: they would hold on to our output
        worker.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


main()
