#!/usr/bin/env python3
"""Boxes against torch DCP's planner: what each rank reads of which stored chunk; and its verdict over wrong tilings.

    dcp_boxes_test.py KINTSUGI
"""

import logging
import random
import sys

import oracle

PLANS = 40
TENSORS = 12
VERDICTS = 250


def draw_shape(rng):
    return [rng.randrange(1, 7) for _ in range(rng.choice([0, 1, 2, 2, 3, 3, 4]))]


def some_box(rng, shape):
    lo = [rng.randrange(0, length) for length in shape]
    return lo, [rng.randrange(a + 1, length + 1) for a, length in zip(lo, shape)]


def chunks_of(torch, metadata, boxes):
    return [metadata.ChunkStorageMetadata(torch.Size(lo), torch.Size(oracle.sizes(lo, hi))) for lo, hi in boxes]


def stored(torch, metadata, shape, boxes):
    return metadata.TensorStorageMetadata(metadata.TensorProperties(dtype=torch.float32), torch.Size(shape),
                                          chunks_of(torch, metadata, boxes))


def read_items(torch, metadata, helpers, key, shape, source, target, holder, reader):
    """(key, from, to, lo, hi) of every read that DCP plans for one rank's chunks."""
    reads = set()
    for item in helpers.create_read_items_for_chunk_list(key, stored(torch, metadata, shape, source),
                                                         chunks_of(torch, metadata, [target])):
        lo = [a + b for a, b in zip(target[0], item.dest_offsets)]
        hi = [a + b for a, b in zip(lo, item.lengths)]
        chunk = next(i for i, (at, end) in enumerate(source) if at == list(item.storage_index.offset))
        assert [a - b for a, b in zip(lo, source[chunk][0])] == list(item.storage_offsets)
        reads.add((key, holder[chunk], reader, tuple(map(tuple, zip(lo, hi)))))
    return reads


def check_plans(torch, metadata, helpers, kintsugi, rng):
    moves = 0
    for case in range(PLANS):
        spec = {"tensors": [], "source": [], "target": []}
        expected = set()
        for number in range(TENSORS):
            key, shape = f"w{number}", draw_shape(rng)
            spec["tensors"].append({"key": key, "dtype": "float32", "global_shape": shape})
            source = oracle.tiling(rng, shape, rng.randrange(1, 12))
            holder = [rng.randrange(6) for _ in source]
            for (lo, hi), rank in zip(source, holder):
                spec["source"].append({"rank": rank, "key": key, "offset": lo, "shape": oracle.sizes(lo, hi)})
            for reader in range(5):
                target = some_box(rng, shape)
                spec["target"].append({"rank": reader, "key": key, "offset": target[0], "shape": oracle.sizes(*target)})
                expected |= read_items(torch, metadata, helpers, key, shape, source, target, holder, reader)
        answer = oracle.ask(kintsugi, "reshard", "plan", spec=spec)
        assert answer["ok"], (case, answer)
        planned = [(m["key"], m["from_rank"], m["to_rank"], tuple(map(tuple, m["target_box"]))) for m in answer["moves"]]
        assert len(planned) == len(set(planned)), case
        assert set(planned) == expected, (case, sorted(set(planned) ^ expected)[:4])
        assert all(m["source_box"] == m["target_box"] for m in answer["moves"])
        own = [m for m in answer["moves"] if 3 in (m["from_rank"], m["to_rank"])]
        assert oracle.ask(kintsugi, "reshard", "plan", "--rank", "3", spec=spec)["moves"] == own, case
        moves += len(planned)
    return moves


def spoil(rng, boxes, shape):
    """A tiling that is probably none any more."""
    boxes = [(list(lo), list(hi)) for lo, hi in boxes]
    lo, hi = boxes[rng.randrange(len(boxes))]
    axis = rng.randrange(len(shape))
    change = rng.randrange(5)
    if change == 0:
        boxes.remove((lo, hi))
    elif change == 1:
        hi[axis] += 1
    elif change == 2 and lo[axis] > 0:
        lo[axis] -= 1
    elif change == 3:
        boxes.append(some_box(rng, shape))
    elif change == 4 and hi[axis] - lo[axis] > 1:
        hi[axis] -= 1
    return boxes


def check_verdicts(torch, metadata, planner, kintsugi, rng):
    wrong = 0
    for case in range(VERDICTS):
        shape = draw_shape(rng) or [1]  # DCP does not look at scalars
        boxes = oracle.tiling(rng, shape, rng.randrange(1, 10))
        if rng.random() < 0.7:
            boxes = spoil(rng, boxes, shape)
        if not boxes:
            continue
        # Equal boxes twice are told as two main replicas here and as an overlap there: a mistake in both.
        judged = metadata.Metadata({"w": stored(torch, metadata, shape, boxes)})
        found = planner._validate_global_plan([None, None], judged)  # pylint: disable=protected-access
        answer = oracle.ask(kintsugi, "reshard", "validate", spec={
            "tensors": [{"key": "w", "dtype": "float32", "global_shape": shape}],
            "source": [{"rank": rank, "key": "w", "offset": lo, "shape": oracle.sizes(lo, hi)}
                       for rank, (lo, hi) in enumerate(boxes)]})
        assert answer["ok"] == (not found), (case, shape, boxes, found, answer)
        wrong += bool(found)
    assert wrong > VERDICTS // 4, wrong
    return wrong


def main():
    torch, metadata, helpers, planner = oracle.need("torch", "torch.distributed.checkpoint.metadata",
                                                    "torch.distributed.checkpoint.planner_helpers",
                                                    "torch.distributed.checkpoint.default_planner")
    logging.disable(logging.CRITICAL)
    rng = random.Random(20261121)
    moves = check_plans(torch, metadata, helpers, sys.argv[1], rng)
    wrong = check_verdicts(torch, metadata, planner, sys.argv[1], rng)
    print(f"{PLANS} plans, {moves} moves as DCP reads them; {VERDICTS} verdicts as DCP's, {wrong} of them refusals")


if __name__ == "__main__":
    main()
