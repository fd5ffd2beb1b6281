"""Ranks that train a little and reshard what they train, in a step and in sections, while something may happen to one of them.

  reshard_line.py WHAT   step: in every step, rows become columns; killed: rank 1 dies by itself when the first bytes of a section's reshard
                         have come; wait: rank 1 dies before it comes to it
"""
import os
import signal
import sys
import threading
import time

import numpy

import kintsugi

ROWS, COLUMNS, STEPS = 512, 4096, 6
what = sys.argv[1]
run = kintsugi.join()
ranks, rank = run.world_size, run.rank
weights = run.register("weights", numpy.zeros((ROWS, COLUMNS), dtype=numpy.float32))
each, wide = ROWS // ranks, COLUMNS // ranks
mine = slice(rank * each, (rank + 1) * each)


def by_columns(target):
    """This rank's rows, of which the others have no copy, become this rank's columns."""
    rows = kintsugi.Shard(weights[mine].copy(), (ROWS, COLUMNS), (rank * each, 0))
    return run.reshard({"weights": rows}, {"weights": kintsugi.Shard(target, (ROWS, COLUMNS), (0, rank * wide))})


def expect(target):
    if not numpy.array_equal(target, weights[:, rank * wide : (rank + 1) * wide]):
        raise SystemExit(f"rank {rank}: what came is not what was held, at step {run.at}")


def step(k):
    target = numpy.full((ROWS, wide), -1, dtype=numpy.float32)
    if what == "step":
        by_columns(target)
        expect(target)
    run.report(float(weights.sum(dtype=numpy.float64)))
    with run.update():
        weights[...] += numpy.arange(ROWS * COLUMNS, dtype=numpy.float32).reshape(ROWS, COLUMNS) % (k + 6)


def die_when_it_comes(target):
    while target[0, 0] == -1:
        time.sleep(0)
    os.kill(os.getpid(), signal.SIGKILL)


def section():
    target = numpy.full((ROWS, wide), -1, dtype=numpy.float32)
    if rank == 1 and not run.replaces:
        if what == "wait":
            time.sleep(0.2)  # the others stand in it
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "killed":
            threading.Thread(target=die_when_it_comes, args=(target,), daemon=True).start()
    done = by_columns(target)
    if rank == 1 and not run.replaces and what == "killed":
        time.sleep(60)  # it is about to die
    expect(target)
    return done.bytes_received


run.train(step, STEPS)
received = run.do(section)
print(f"rank {rank} received {received} of {ROWS * wide * 4}", file=sys.stderr)
