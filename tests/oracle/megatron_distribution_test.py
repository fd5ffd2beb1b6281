#!/usr/bin/env python3
"""Work distribution against Megatron-core itself: the same list of shards, the same rank for every one.

    megatron_distribution_test.py KINTSUGI
"""

import random
import sys

import oracle

CASES = 250


def draw(rng):
    ranks = rng.choice([1, 2, 3, 8, 24, 64])
    sizes = [rng.choice([0, 1, 4, 4, 100, 4096, rng.randrange(1, 10**9)]) for _ in range(5)]
    shards = []
    for index in range(rng.randrange(0, 80)):
        # Few keys and offsets, so that all fields of the order decide somewhere; a shard's id is there once.
        flat = None if index % 3 else [index, index + rng.randrange(1, 5)]
        shards.append({"key": f"layer.{rng.randrange(4)}.{'flat' if flat else 'whole'}", "offset": [index // 6, index % 6],
                       "flat": flat, "bytes": rng.choice(sizes), "cross_group": rng.random() < 0.2,
                       "holders": sorted(rng.sample(range(ranks), rng.randrange(1, ranks + 1)))})
    rng.shuffle(shards)
    return {"ranks": ranks, "shards": shards}


def megatron(exchange, spec):
    def name(shard):
        return shard["key"], tuple(shard["offset"]), tuple(shard["flat"]) if shard["flat"] else None

    chosen = exchange.distribute_shards_to_ranks({name(s): s["holders"] for s in spec["shards"]},
                                                 {name(s): s["bytes"] for s in spec["shards"]}, spec["ranks"],
                                                 {name(s) for s in spec["shards"] if s["cross_group"]})
    return [chosen[name(s)] for s in spec["shards"]]


def main():
    exchange, = oracle.need("megatron.core.dist_checkpointing.exchange_utils")
    kintsugi = sys.argv[1]
    rng = random.Random(20261121)
    shards = 0
    for case in range(CASES):
        spec = draw(rng)
        answer = oracle.ask(kintsugi, "reshard", "distribute", "--policy", "megatron", spec=spec)
        expected = megatron(exchange, spec)
        assert answer["assignment"] == expected, (case, spec, answer["assignment"], expected)
        load = [0] * spec["ranks"]
        for rank, shard in zip(expected, spec["shards"]):
            load[rank] += shard["bytes"]
        assert answer["load"] == load, (case, spec, answer["load"], load)
        balanced = oracle.ask(kintsugi, "reshard", "distribute", "--policy", "balanced", spec=spec)
        assert max(balanced["load"]) <= max(load), (case, spec, balanced["load"], load)
        shards += len(expected)
    print(f"{CASES} lists, {shards} shards: every one on the rank that Megatron-core chooses")


if __name__ == "__main__":
    main()
