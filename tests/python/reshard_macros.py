"""Programs with a word of the script's own: in a reshard, in a save of another format, and in a resume from it.

  reshard_macros.py STEPS [wrong]     wrong: it has no such word
"""
import sys

import numpy

import kintsugi
from kintsugi.aoa import MacroCall

ROWS, COLUMNS = 8, 6


def striped(call: MacroCall) -> list[str]:
    """W -> A, B, striped: every other row each; and back."""
    if call.attributes.get("of") != [2]:
        raise ValueError(f"it says {call.attributes}")
    if len(call.right) == 1:
        first, second = call.left
        rows, columns = call.source_shape(first)
        return [f"{first} -> {first}.r, reshape=[{rows},1,{columns}]", f"{second} -> {second}.r, reshape=[{rows},1,{columns}]",
                f"{first}.r, {second}.r -> {first}.both, axis=1", f"{first}.both -> {call.right[0]}, reshape=[{2 * rows},{columns}]"]
    rows, columns = call.source_shape(call.left[0])
    flat = f", reshape=[{rows // 2},{columns}]"
    return [f"{call.left[0]} -> t, reshape=[{rows // 2},2,{columns}]", "t -> t.0, t.1, axis=1", f"t.0 -> {call.right[0]}{flat}", f"t.1 -> {call.right[1]}{flat}"]


words = {} if sys.argv[2:] == ["wrong"] else {"striped": striped}
run = kintsugi.join(macros=words)
weights = run.register("weights", numpy.zeros((ROWS, COLUMNS), dtype=numpy.float32))


def step(k):
    with run.update():
        weights[...] += numpy.arange(ROWS * COLUMNS, dtype=numpy.float32).reshape(ROWS, COLUMNS) * k


def section():
    half = ROWS // run.world_size
    mine = kintsugi.Shard(weights[run.rank * half : (run.rank + 1) * half].copy(), (ROWS, COLUMNS), (run.rank * half, 0))
    even, odd = (numpy.full((ROWS // 2, COLUMNS), -1, dtype=numpy.float32) for _ in range(2))
    run.reshard({"weights": mine}, {"even": even, "odd": odd}, "weights -> even, odd, of=[2], striped", macros=words)
    if not (numpy.array_equal(even, weights[::2]) and numpy.array_equal(odd, weights[1::2])):
        raise SystemExit(f"rank {run.rank}: {even} and {odd} are not every other row")
    try:
        run.reshard({"weights": mine}, {"even": even, "odd": odd}, "weights -> even, odd, striped", macros=words)
    except kintsugi.Error as error:
        assert "the macro 'striped' says: it says {}" in str(error), error
    else:
        raise SystemExit("what the word refuses was taken")


run.train(step, int(sys.argv[1]))
run.do(section)
print(f"rank {run.rank} has {weights.sum():.0f} {weights[1, 2]:.0f}", file=sys.stderr)
