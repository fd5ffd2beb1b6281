"""One task of bench_ckpt in Python, with the libraries themselves.

Prints {"seconds": .., "cpu_seconds": .., "peak_mib": ..}.

    ckpt_peers.py '{"do": "save", "to": "safetensors", "source": FILE, "destination": PATH}'

Imports and what stands before the task are not timed. With "sync" what was written is synced within the time. With "ranks" the
destination is a checkpoint of so many ranks, each holding its part of every tensor, which DCP writes only where there are as many
processes: each reads its parts, and their start and meeting are not timed either.
"""

import json
import os
import pathlib
import resource
import sys
import tempfile
import time
import warnings

warnings.simplefilter("ignore")

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.distributed.tensor import DeviceMesh, DTensor, Shard  # noqa: E402
from torch.distributed.checkpoint.metadata import TensorStorageMetadata  # noqa: E402


def sync(path):
    path = pathlib.Path(path)
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def save(state, to, destination):
    if to == "safetensors":
        if destination.endswith(".safetensors"):
            safetensors.torch.save_file(state, destination)
        else:
            os.makedirs(destination)
            safetensors.torch.save_file(state, destination + "/model.safetensors")
    elif to == "torch":
        torch.save(state, destination)
    else:
        # Its own default syncs every file.
        dcp.save(state, storage_writer=dcp.FileSystemWriter(destination, sync_files=task["sync"]), no_dist=True)


def load(path):
    if os.path.isfile(path):
        return safetensors.torch.load_file(path)
    if os.path.exists(path + "/.metadata"):
        entries = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
        state = {key: torch.empty(entry.size, dtype=entry.properties.dtype) for key, entry in entries.items()
                 if isinstance(entry, TensorStorageMetadata)}
        dcp.load(state, checkpoint_id=path, no_dist=True)
        return state
    state = {}
    for file in sorted(pathlib.Path(path).glob("*.safetensors")):
        state.update(safetensors.torch.load_file(file))
    return state


def parts(path, mesh):
    """This rank's part of every tensor along its first axis, and of the others nothing is read."""
    rank, size = mesh.get_rank(), mesh.size()
    state = {}
    for file in sorted(pathlib.Path(path).glob("*.safetensors")):
        with safetensors.safe_open(file, "pt") as opened:
            for key in opened.keys():
                stored = opened.get_slice(key)
                shape = torch.Size(stored.get_shape())
                each = -(-shape[0] // size)
                local = stored[min(rank * each, shape[0]):min((rank + 1) * each, shape[0])]
                whole = torch.empty(shape, device="meta").stride()
                state[key] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=shape, stride=whole)
    return state


def convert_as(rank, meeting, answers):
    """One rank of a conversion that DCP writes from several processes."""
    ranks = task["ranks"]
    torch.set_num_threads(max(1, os.cpu_count() // ranks))
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    mesh = DeviceMesh("cpu", range(ranks))
    dist.barrier()
    begin, cpu = time.perf_counter(), time.process_time()
    dcp.save(parts(task["source"], mesh), storage_writer=dcp.FileSystemWriter(task["destination"], sync_files=task["sync"]))
    dist.barrier()
    answers.put((time.perf_counter() - begin, time.process_time() - cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    dist.destroy_process_group()


def run_ranks():
    context = mp.get_context("fork")  # after the imports, which are not timed
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=convert_as, args=(rank, f"{folder}/meeting", answers)) for rank in range(task["ranks"])]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
            if rank.exitcode != 0:
                raise SystemExit(f"a rank ended with {rank.exitcode}")
    told = [answers.get() for _ in ranks]
    print(json.dumps({"seconds": max(t[0] for t in told), "cpu_seconds": sum(t[1] for t in told),
                      "peak_mib": sum(t[2] for t in told) / 1024}))


def run():
    state = load(task["source"]) if task["do"] == "save" else None
    if state:
        state = {key: value.clone() for key, value in state.items()}  # in memory, not in a mapping
    begin, cpu = time.perf_counter(), time.process_time()
    save(state or load(task["source"]), task["to"], task["destination"])
    if task["sync"] and task["to"] != "dcp":
        sync(task["destination"])
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_mib": peak_mib}))


task = json.loads(sys.argv[1])
torch.set_num_threads(os.cpu_count())
run_ranks() if task.get("ranks", 1) > 1 else run()
