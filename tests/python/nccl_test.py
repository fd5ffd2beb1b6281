"""Collectives of tensors on a device over NCCL, without a run: torch's own calls on the fake device (tests/support/fake_device) over the fake
NCCL. What it shows is the host's side; it says nothing about a device or NCCL.

  nccl_test.py BIN_DIR PACKAGE_FOLDER PYTHON FAKES_FOLDER [--soak] [--only WORD]...   FAKES_FOLDER: with libkintsugi_fake_*.so; --soak: more programs, longer races
  nccl_test.py BIN_DIR PACKAGE_FOLDER PYTHON --device cuda [--only WORD]...           those that a CUDA device and its NCCL can show; all ranks share it
"""
import argparse
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from door import HERE, Door, Failure, main

RANK_SECONDS = 300
HELD = ("ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv", "ncclGroupEnd")


class Fakes(Door):
    """Ranks are forked from this process, which has imported what they need: most of what they take would be imports."""

    def __init__(self, arguments):
        super().__init__(arguments.places)
        self.on_cuda = arguments.device == "cuda"
        self.folder = Path(arguments.fakes).resolve()

    def library(self, name):
        return str(self.folder / f"libkintsugi_fake_{name}.so")

    def begin_as_ranks_do(self):
        """With their environment, which torch and the fakes read when they are loaded."""
        fakes = {} if self.on_cuda else {"FAKE_CUDA_GUARDED": "1", "KINTSUGI_CUDA_LIBRARY": self.library("gpu")}
        wanted = {**self.environment(), **fakes, "GLOO_SOCKET_IFNAME": "lo", "NCCL_RANK_DEVICE": "cuda" if self.on_cuda else ""}
        if any(os.environ.get(name) != value for name, value in wanted.items()):
            os.execve(self.python, [self.python, "-W", "ignore", *sys.argv], wanted)
        sys.path.insert(0, str(HERE.parent / "support"))
        if not self.on_cuda:
            import fake_device

            fake_device.register_collectives()  # built here, not in a rank with a limit

        from kintsugi.torch import _build
        _build.load()

    def rank(self, arguments, log, environment):
        child = os.fork()
        if child:
            return child
        try:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            os.environ.update(environment)
            sys.argv = ["nccl_rank.py", *arguments]
            runpy.run_path(str(HERE / "nccl_rank.py"), run_name="__main__")
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def ranks(self, mode, count, world=None, seed=0, nccl="gpu", **more):
        """What all of them printed. One that fails ends the others: they would wait for it."""
        environment = {**({} if self.on_cuda else {"KINTSUGI_NCCL_LIBRARY": self.library(nccl)}), **more}
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            logs = [open(f"{folder}/{rank}.log", "w+") for rank in range(count)]
            ranks = {self.rank([mode, str(rank), str(world or count), folder, str(seed)], log, environment): rank for rank, log in enumerate(logs)}
            failed = self.wait(dict(ranks))
            said = "".join(Path(log.name).read_text() for log in logs)
        if failed:
            raise Failure(f"{mode} seed {seed}, {failed}: {said[-6000:]}")
        return said

    @staticmethod
    def wait(ranks):
        """Why they failed, or nothing; afterwards none of them is there."""
        end, failed = time.monotonic() + RANK_SECONDS, ""
        while ranks and not failed:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child:
                rank = ranks.pop(child)
                failed = f"rank {rank} ended with {os.waitstatus_to_exitcode(status)}" if status else ""
            elif time.monotonic() > end:
                failed = f"ranks {sorted(ranks.values())} did not end"
            else:
                time.sleep(0.005)
        for child in ranks:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return failed


def programs(door, seeds, mode="random", words=" compared", **more):
    def test(_):
        for seed in seeds:
            ranks = 2 if door.on_cuda else 2 + seed % 3  # who share a device take turns, 2 ms each
            said = door.ranks(mode, ranks, seed=seed, **more)
            if said.count(words) != ranks:
                raise Failure(said[-2000:])
    return test


def says(door, words, *arguments, **more):
    def test(_):
        said = door.ranks(*arguments, **more)
        if words not in said:
            raise Failure(f"'{words}' is not in: {said[-3000:]}")
    return test


def refused(door, library, words, **more):
    def test(_):
        try:
            door.ranks("absent", 1, 2, nccl=library, **more)
        except Failure as failure:
            if words not in str(failure):
                raise
            return
        raise Failure(f"{library} was not refused")
    return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("places", nargs=3)
    parser.add_argument("fakes", nargs="?", default="")
    parser.add_argument("--device", default="fake")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door, soak = Fakes(options), options.soak
    door.begin_as_ranks_do()
    torchs = {"KINTSUGI_INNER": "torch"}
    tests = [
        ("random programs of collectives, on random groups, types and shapes, give what their ranks have", programs(door, range(1, 40 if soak else 5))),
        ("sums in the order of the ranks, to the bit", says(door, " in order", "ordered", 4, seed=3)),
        ("an outer group takes each tensor where it lies, and a stop ends both", says(door, "rank 1: both", "outer", 2)),
        ("DistributedDataParallel trains as one process with all batches does, and wakes where a rank does not come to a step",
         says(door, "rank 0: trained", "ddp", 3)),
        ("a rank that does not come: the others wake in the device, believe nothing, and free their communicators", says(door, "rank 0: woken", "silent", 3)),
        ("the same programs beside what torch makes for the device", programs(door, range(1, 20 if soak else 3), "beside", " beside torch's")),
        ("over what torch makes for the device: random programs", programs(door, range(20, 40 if soak else 22), **torchs)),
        ("... DistributedDataParallel", says(door, "rank 0: trained", "ddp", 3, **torchs)),
        ("... a rank that does not come", says(door, "rank 0: woken", "silent", 3, **torchs)),
        ("an init whose peer never comes is ended", says(door, "absent: out of it", "absent", 1, 2)),
    ]
    if not door.on_cuda:
        tests += [
            ("a peer that is silent as over NVLink", says(door, "rank 0: woken", "silent", 2, FAKE_NCCL_SILENT="1")),
            ("memory that takes long to free is waited for", says(door, "rank 0: woken", "silent", 2, FAKE_NCCL_ABORT_MS="700")),
            *((f"a thread that is stuck in {call} gets out at a cut, and only then is anything freed", says(door, f"{call}: out of it", "held", 1, FAKE_NCCL_HOLD=call))
              for call in HELD),
            ("launches without pause beside a cut at any moment",
             says(door, " launched", "race", 1, seed=11, ROUNDS="500" if soak else "60")),
            ("an NCCL that is too old is named", refused(door, "nccl_2_17", "2.18.0 is needed")),
            ("an NCCL that hangs in an abort is named", refused(door, "nccl_2_25", "NCCL 2.25.1 hangs in an abort")),
            ("... also where torch's own backend would use it", refused(door, "nccl_2_25", "NCCL 2.25.1 hangs in an abort", NCCL_RANK_BACKEND="nccl", **torchs)),
            ("a torch without ProcessGroupNCCL is named", refused(door, "gpu", "has no ProcessGroupNCCL", NCCL_RANK_BACKEND="nccl", **torchs)),
            ("a setting with which ProcessGroupNCCL ends processes is named",
             refused(door, "gpu", "needs TORCH_NCCL_BLOCKING_WAIT=1, and it is '0'", NCCL_RANK_BACKEND="nccl", TORCH_NCCL_BLOCKING_WAIT="0", **torchs)),
            ("a device for which torch has nothing is named", refused(door, "gpu", "makes no process group for tensors on 'fake'", NCCL_RANK_BACKEND="", **torchs)),
            ("ordered sums are refused over torch's own backend", refused(door, "gpu", "leave ordered sums (KINTSUGI_SUMS) out", KINTSUGI_SUMS="ordered", **torchs)),
            ("another word is refused", refused(door, "gpu", "KINTSUGI_INNER is 'gloo'", KINTSUGI_INNER="gloo")),
            ("a function that is missing is named", refused(door, "nccl_without_collectives", "NCCL 2.28.9, has no ncclAllReduce")),
        ]
    sys.exit(main(tests, door.bin, options.only))
