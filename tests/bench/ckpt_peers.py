"""One task of bench_ckpt in Python, with the libraries themselves.

Prints {"seconds": .., "cpu_seconds": .., "peak_mib": ..}.

    ckpt_peers.py '{"do": "save", "to": "safetensors", "source": FILE, "destination": PATH}'

Imports and what stands before the task are not timed. With "sync" what was written is synced within the time.
"""

import json
import os
import pathlib
import resource
import sys
import time
import warnings

warnings.simplefilter("ignore")

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
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
run()
