"""Four ranks of one program, forked from a process that has imported torch, as launchers of notebooks do: most of what a small script takes is
that import.

  watch_ranks.py SCRIPT ARGUMENTS...

Ends with the first code that is not 0, once all have ended.
"""

import os
import runpy
import socket
import sys

import torch  # noqa: F401
import torch.distributed  # noqa: F401
import torch.distributed.fsdp  # noqa: F401
import torch.distributed.tensor.parallel  # noqa: F401

RANKS = 4


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(RANKS):
        if pid := os.fork():
            ranks.append(pid)
            continue
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        sys.argv = sys.argv[1:]
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit(0)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    sys.exit(next((code & 127 for code in codes if code), 0))


main()
