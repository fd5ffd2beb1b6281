"""A script under plain torch: `plain.py [--ranks N] SCRIPT [WORD]...`, in N processes as torchrun would start them, or as one that torchrun has started.

The N are forked from one that has imported torch, which is most of what a start under torchrun takes. Each is gone as soon as its script has
ended. Torch's own way out can stand still for ever: who frees a Gloo group joins its threads with Python's lock in hand, and a thread of them
may want that lock to free the work of a collective. A reference must not hang by that.
"""

import multiprocessing
import os
import random
import runpy
import signal
import sys
import traceback
from pathlib import Path

import numpy
import torch._dynamo  # half of torch, which its first optimizer imports
import torch.distributed as dist


def run(path: str, words: list[str]) -> None:
    """Ends this process."""
    sys.argv = [path, *words]
    sys.path[0] = str(Path(path).parent)
    dist.destroy_process_group = lambda group=None: None
    code = 0
    try:
        kept = runpy.run_path(path, run_name="__main__")  # noqa: F841  To free its groups is what can stand still.
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever a script raises
        traceback.print_exc()
        code = 1
    for worker in multiprocessing.active_children():  # of loaders: they would hold on to our output
        worker.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve(tell: int) -> None:
    """The store that all meet in, which no rank may take along when it ends. In a process of its own, since it has threads."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(tell, str(store.port).encode())
    while True:
        signal.pause()


def start(ranks: int, path: str, words: list[str]) -> int:
    told, tell = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        serve(tell)
    port = os.read(told, 16).decode()
    processes = set()
    try:
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                                  MASTER_PORT=port, TORCHELASTIC_USE_AGENT_STORE="True")  # fmt: skip
                random.seed()
                numpy.random.seed()
                run(path, words)
            processes.add(child)
        while processes:
            pid, status = os.wait()
            processes.discard(pid)
            if status != 0:
                return 1  # the others would wait for it
        return 0
    finally:
        for pid in (keeper, *processes):
            os.kill(pid, signal.SIGKILL)


if sys.argv[1] == "--ranks":
    sys.exit(start(int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
run(sys.argv[1], sys.argv[2:])
