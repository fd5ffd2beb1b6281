#!/usr/bin/env python3
"""What torch DCP and Megatron-core take for the cases that bench_plan --peers writes: planning, validation, distribution.

    plan_peers.py CASES RUNS      prints {"versions": {..}, "seconds": {CASE: [..]}}; exit 77 where a module is missing

Only the peers' own functions are timed; what they work on is built before.
"""

import importlib.metadata
import json
import logging
import sys
import time
import warnings

warnings.simplefilter("ignore")
try:
    import torch
    from megatron.core.dist_checkpointing import exchange_utils, mapping, validation
    from torch.distributed.checkpoint import default_planner, metadata, planner_helpers
except ImportError as error:
    print(f"{sys.executable} cannot import a peer: {error}; ./tools/setup --python installs them", file=sys.stderr)
    sys.exit(77)


def timed(runs, body):
    spent = []
    for _ in range(runs):
        began = time.process_time()
        body()
        spent.append(time.process_time() - began)
    return spent


def distribute(case, runs):
    shards = {(key, tuple(offset), None): (size, number) for key, offset, size, number in case["shards"]}
    holders = {name: case["sets"][number] for name, (_, number) in shards.items()}
    sizes = {name: size for name, (size, _) in shards.items()}
    return timed(runs, lambda: exchange_utils.distribute_shards_to_ranks(holders, sizes, case["ranks"], set()))


def chunk(box):
    axes = len(box) // 2
    lengths = [b - a for a, b in zip(box[:axes], box[axes:])]
    return metadata.ChunkStorageMetadata(torch.Size(box[:axes]), torch.Size(lengths))


def plan(case, runs, seconds):
    chunks = [chunk(box) for box in case["stored"]]
    properties = metadata.TensorProperties(dtype=torch.float32)
    stored = metadata.TensorStorageMetadata(properties, torch.Size(case["shape"]), chunks)
    keys = [f"layers.{i}.weight" for i in range(case["keys"])]
    wanted = {}
    for rank, box in case["wanted"]:
        wanted.setdefault(rank, []).append(chunk(box))

    def load():
        for chunks_of_rank in wanted.values():
            for key in keys:
                planner_helpers.create_read_items_for_chunk_list(key, stored, chunks_of_rank)

    seconds["load-plans/" + case["id"]] = timed(runs, load)
    whole = metadata.Metadata({key: stored for key in keys})
    found = []

    def validate():
        found.extend(default_planner._validate_global_plan([None, None], whole))  # pylint: disable=protected-access

    seconds["validate-dcp/" + case["id"]] = timed(runs, validate)
    assert not found, found[:2]


def integrity(case, runs):
    """Every rank's list of Megatron-core's sharded tensors, as all ranks gather them."""
    ranks = [[] for _ in range(case["ranks"])]
    for number in range(case["keys"]):
        for rank, offset, replica in case["shards"]:
            ranks[rank].append(mapping.ShardedTensor(f"layers.{number}.weight", None, torch.float32,
                                                     tuple(case["local"]), tuple(case["shape"]), tuple(offset),
                                                     tuple(case["fragments"]), replica, 0))
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    spent = timed(runs, lambda: validation.validate_sharding_integrity(ranks))
    torch.distributed.destroy_process_group()
    return spent


def main():
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    runs, seconds = int(sys.argv[2]), {}
    for case in cases["distribute"]:
        seconds["distribute/" + case["id"]] = distribute(case, runs)
    for case in cases["plan"]:
        plan(case, runs, seconds)
    for case in cases["integrity"]:
        seconds["validate-megatron/" + case["id"]] = integrity(case, runs)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "megatron-core")}
    print(json.dumps({"versions": versions, "seconds": seconds}))


if __name__ == "__main__":
    main()
