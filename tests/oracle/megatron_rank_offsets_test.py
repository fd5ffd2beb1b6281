#!/usr/bin/env python3
"""Rank offsets against Megatron-core's ShardedTensor.from_rank_offsets: the same box for every rank of random grids.

    megatron_rank_offsets_test.py KINTSUGI

Wrong offsets are refused by both; where Megatron-core has a hole (an axis named twice, a prepended axis in part), the test
knows and says so.
"""

import itertools
import random
import sys

import oracle

GRIDS = 400
MISTAKES = 120


def upstream(torch, mapping, key, shape, offsets, prepended):
    return mapping.ShardedTensor.from_rank_offsets(key, torch.empty(shape, dtype=torch.float16),
                                                   *[tuple(offset) for offset in offsets], prepend_axis_num=prepended)


def draw_grid(rng):
    """Local shape, prepended axes, and per cut axis its number of fragments."""
    prepended = rng.choice([0, 0, 0, 1, 2])
    shape = [rng.choice([1, 2, 3, 5]) for _ in range(rng.randrange(0, 4))]
    axes = list(range(prepended + len(shape)))
    # A prepended axis that is not cut has length 1.
    return shape, prepended, {axis: rng.randrange(1, 4) for axis in axes if rng.random() < 0.6}


def check_grids(torch, mapping, kintsugi, rng):
    tensors, shards, expected = [], [], []
    for number in range(GRIDS):
        shape, prepended, cuts = draw_grid(rng)
        key = f"grid.{number}"
        cells = list(itertools.product(*[range(count) for count in cuts.values()]))
        for rank, cell in enumerate(cells):
            offsets = [[axis, at, count] for (axis, count), at in zip(cuts.items(), cell)]
            rng.shuffle(offsets)
            made = upstream(torch, mapping, key, shape, offsets, prepended)
            if rank == 0:
                tensors.append({"key": key, "dtype": "float16", "global_shape": list(made.global_shape)})
            shards.append({"rank": rank, "key": key, "shape": shape, "rank_offsets": offsets, "prepend_axis_num": prepended})
            expected.append((rank, key, list(made.global_shape), list(made.global_offset), [1] * prepended + shape))
    answer = oracle.ask(kintsugi, "reshard", "validate", "--shards", spec={"tensors": tensors, "source": shards})
    assert answer["ok"], answer
    held = [(s["rank"], s["key"], s["global_shape"], s["offset"], s["shape"]) for s in answer["held"]]
    assert sorted(held) == sorted(expected), [pair for pair in zip(sorted(held), sorted(expected)) if pair[0] != pair[1]][:3]
    # The boxes as they come out, given as boxes, are the same layout.
    boxes = [{"rank": r, "key": k, "offset": offset, "shape": shape} for r, k, _, offset, shape in expected]
    again = oracle.ask(kintsugi, "reshard", "validate", "--shards", spec={"tensors": tensors, "source": boxes})
    assert again["ok"] and again["held"] == answer["held"]
    return len(expected)


def check_mistakes(torch, mapping, kintsugi, rng):
    refused = 0
    for _ in range(MISTAKES):
        shape = [rng.choice([1, 2, 4]) for _ in range(rng.randrange(1, 4))]
        offset = [rng.randrange(-1, len(shape) + 1), rng.randrange(-1, 4), rng.randrange(0, 4)]
        try:
            made = upstream(torch, mapping, "w", shape, [offset], 0)
            global_shape = list(made.global_shape)
        except Exception as error:  # pylint: disable=broad-except
            assert "Invalid rank offsets" in str(error) or isinstance(error, IndexError), error
            made, global_shape = None, shape
        answer = oracle.ask(kintsugi, "reshard", "validate", spec={
            "tensors": [{"key": "w", "dtype": "float16", "global_shape": global_shape}],
            "source": [{"rank": 0, "key": "w", "shape": shape, "rank_offsets": [offset]}]})
        if made is None:
            refused += 1
            assert answer["error"]["code"] in ("axis", "rank_offset"), (shape, offset, answer)
        else:  # One cell alone is right exactly where it is the whole.
            assert answer["ok"] == (offset[2] == 1), (shape, offset, answer)
    twice = {"rank": 0, "key": "w", "shape": [2], "rank_offsets": [[0, 0, 2], [0, 1, 2]]}
    assert list(upstream(torch, mapping, "w", [2], twice["rank_offsets"], 0).global_offset) == [2]  # the last one, silently
    answer = oracle.ask(kintsugi, "reshard", "validate", spec={
        "tensors": [{"key": "w", "dtype": "float16", "global_shape": [4]}], "source": [twice]})
    assert answer["error"]["code"] == "axis_twice", answer
    return refused


def main():
    torch, mapping = oracle.need("torch", "megatron.core.dist_checkpointing.mapping")
    rng = random.Random(20261121)
    shards = check_grids(torch, mapping, sys.argv[1], rng)
    refused = check_mistakes(torch, mapping, sys.argv[1], rng)
    print(f"{GRIDS} grids, {shards} shards: boxes as Megatron-core makes them; {refused} mistakes refused by both")


if __name__ == "__main__":
    main()
