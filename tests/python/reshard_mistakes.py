"""Mistakes in what ranks hold or ask for: the same text on every rank, which names key, rank and remedy, and the run goes on. Mistakes that
are the program's, not a rank's, are refused where they are made."""
import sys

import numpy

import kintsugi
from kintsugi import Shard

run = kintsugi.join()
ranks, rank = run.world_size, run.rank
weights = run.register("weights", numpy.zeros((8, 8), dtype=numpy.float32))
each = 8 // ranks


def rows(at=None, shape=(8, 8), dtype=numpy.float32):
    return Shard(numpy.full((each, 8), rank, dtype=dtype), shape, (each * (rank if at is None else at), 0))


def refused(words, source, target, **options):
    """In a section, from which the text of each rank is brought together by a reshard of its own."""

    def section():
        try:
            run.reshard(source, target, timeout=60, **options)
        except kintsugi.Error as error:
            text = str(error)
        else:
            raise SystemExit(f"rank {rank}: '{words}' was not refused")
        mine = numpy.zeros((1, 2000), dtype=numpy.uint8)
        mine[0, : len(text.encode())] = numpy.frombuffer(text.encode(), dtype=numpy.uint8)
        every = numpy.zeros((ranks, 2000), dtype=numpy.uint8)
        run.reshard({"text": Shard(mine, every.shape, (rank, 0))}, {"text": every})
        if not (every == mine).all():
            raise SystemExit(f"rank {rank}: the ranks are told different things: {[bytes(one[one > 0]) for one in every]}")
        for word in words:
            if word not in text:
                raise SystemExit(f"rank {rank}: '{word}' is not in: {text}")
        return 0

    run.do(section)


def section():
    out = numpy.zeros((8, 8), dtype=numpy.float32)
    whole = {"w": out}
    run.do(lambda: None)
    refused(["'w'", "hole", "pass the shards"], {} if rank == 1 else {"w": rows()}, whole)
    refused(["'w'", "overlap", "its own place"], {"w": [rows(), Shard(numpy.zeros((each, 4), numpy.float32), (8, 8), (0, 2))] if rank == 1 else rows()}, whole)
    refused(["'w'", "global shape", "[8, 9]", "rank 1"], {"w": rows(shape=(8, 9) if rank == 1 else (8, 8))}, whole)
    refused(["'w'", "float64", "rank 1", "one type"], {"w": rows()}, {"w": out.astype(numpy.float64) if rank == 1 else out})
    refused(["'w'", "float64", "ranks 0, 1", "cast"], {"w": rows()}, {"w": out.astype(numpy.float64)})
    refused(["'v'", "asked for by rank 1"], {"w": rows()}, {"v": out} if rank == 1 else {})
    refused(["rank 1", "not contiguous", "memory of its own"], {"w": rows()}, {"w": out.T if rank == 1 else out})
    refused(["rank 1", "[4, 4]", "one length"], {"w": rows()}, {"w": Shard(numpy.zeros((4, 4), numpy.float32), (8, 8), (0,))} if rank == 1 else whole)
    refused(["rank 1", "'weights'", "updates alone"], {"w": rows()}, {"w": weights} if rank == 1 else whole)
    refused(["AOA program", "in: w ->"], {"w": rows()}, whole, program="w ->")
    refused(["rank 1", "same program"], {"w": rows()}, whole, program="w -> w" if rank == 1 else "")
    refused(["rank 1", "object"], {"w": rows()}, {"w": object() if rank == 1 else out})
    refused(["rank 1", "7", "program"], {"w": rows()}, whole, program=7 if rank == 1 else "")
    refused(["rank 1", "3", "no key"], {"w": rows()}, {3: out} if rank == 1 else whole)
    refused(["rank 1", "2**63"], {"w": rows()}, {"w": Shard(out, (8, 8), (1 << 70, 0))} if rank == 1 else whole)
    refused(["rank 1", "flat is (0,)"], {"w": rows()}, {"w": Shard(out.ravel(), (8, 8), flat=(0,))} if rank == 1 else whole)
    refused(["rank 1", "no dictionary"], {"w": rows()}, None if rank == 1 else whole)
    refused(["strict mode", "'loud'"], {"w": rows()}, whole, strict="loud")
    if not (out == 0).all():
        raise SystemExit(f"rank {rank}: a refused reshard has written")

    def right():
        told = run.reshard({"w": rows()}, whole)
        return told.bytes_received + told.bytes_local, run.reshard({"w": rows()}, {}, strict="return_all").unread
    if run.do(right) != (8 * 8 * 4, ("w",)) or not (out == numpy.repeat(numpy.arange(ranks, dtype=numpy.float32), each)[:, None]).all():
        raise SystemExit(f"rank {rank}: {out}")


def step(k):
    with run.update():
        weights[...] += 1
    if k == 2:
        try:
            run.reshard({}, {})
        except kintsugi.Error as error:
            print(f"refused: {error}", file=sys.stderr)


run.train(step, 2)
section()
print(f"rank {rank} is done", file=sys.stderr)
