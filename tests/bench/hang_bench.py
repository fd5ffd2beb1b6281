#!/usr/bin/env python3
"""bench hang: what it costs to keep a mark of each collective, and how soon a hang is explained.

  ./tools/bench hang [--json [FILE|-]] [--calls N] [--blocks N] [--explained N]

`mark_us`: what a collective pays, its mark made and ended through the very functions that the groups call, less the same number of calls that do
nothing. Beside it an all_reduce of one float over two ranks: with marks and without, in turns, in the same processes; and under plain torch over
Gloo, started beside, without and with `kintsugi watch`. `watch_us`: what its look costs in Python: processor time of an all_reduce in a group
of one, with it less without it, the least of the blocks. `--explained N`: so many divergences of tests/python/hang_steps.py, a step of 50 ms, from the fault until the log says whose
it is.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUDGET_US = 1.0


def cost_of_a_mark(calls, address):
    """Microseconds, of one mark."""
    begin, enter, wait, leave = (ctypes.c_void_p * 4).from_address(address)
    begin = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t, ctypes.c_int32)(begin)
    enter = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_int32] * 5, ctypes.c_uint64, ctypes.c_uint32)(enter)
    leave = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_uint64, ctypes.c_int32)(leave)

    def block(group):
        start = time.perf_counter()
        for _ in range(calls):
            leave(group, enter(group, 1, 6, 0, -1, 1, 1), 0)
        return (time.perf_counter() - start) / calls * 1e6

    kept = begin(b"bench", (ctypes.c_int32 * 2)(0, 1), 2, 0)
    return statistics.median(block(kept) - block(-1) for _ in range(51))  # -1: a group that is not kept


def rank(options):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    one = torch.ones(1)

    def block(group=None, clock=time.perf_counter):
        begin = clock()
        for _ in range(options.calls):
            dist.all_reduce(one, group=group)
        return (clock() - begin) / options.calls * 1e6

    if options.plain:
        dist.init_process_group("gloo")
        mine = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
        alone = [block(mine, time.thread_time) for _ in range(options.blocks + 1)][1:] if dist.get_rank() == 0 else []
        dist.barrier()
        times = {"together": [block() for _ in range(options.blocks + 1)][1:], "alone": alone}
        if dist.get_rank() == 0:
            Path(options.out).write_text(json.dumps(times))
        dist.destroy_process_group()
        return
    import kintsugi.torch
    from kintsugi import _core
    from kintsugi.torch import _build

    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.register(model=model, optimizer=optimizer)
    times = {"marked": [], "unmarked": []}
    marks = {"marked": _core.mark_calls(), "unmarked": 0}
    block()
    for turn in range(options.blocks):
        for name in (("marked", "unmarked"), ("unmarked", "marked"))[turn % 2]:
            _build.load().mark_by(marks[name])
            times[name].append(block())
    if run.rank == 0:
        Path(options.out).write_text(json.dumps({**times, "mark_us": cost_of_a_mark(options.calls, marks["marked"])}))

    def step(_):
        model(one).sum().backward()
        optimizer.step()

    run.train(step, steps=1)  # a run is one that trains


def measured(command, environment, out):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not Path(out).exists():
        sys.exit(f"bench hang: {' '.join(command)}\n{done.stderr[-4000:]}")
    return json.loads(Path(out).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", nargs="?")
    parser.add_argument("package", nargs="?")
    parser.add_argument("--json", nargs="?", const="-")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--explained", type=int, default=3)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.out:
        return rank(options)
    environment = {**os.environ, "PYTHONPATH": options.package, "OMP_NUM_THREADS": "1", "KINTSUGI_TORCH_CACHE": f"{options.package}/torch-cache"}
    with tempfile.TemporaryDirectory(prefix="kintsugi-bench-") as folder:
        words = [__file__, "--calls", str(options.calls), "--blocks", str(options.blocks), "--out", f"{folder}/times"]
        ours = measured([f"{options.bin}/kintsugi", "run", "--nproc", "2", "--save-dir", "", "--", sys.executable, "-W", "ignore", *words], environment, f"{folder}/times")
        os.remove(f"{folder}/times")
        launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words, "--plain"]
        plain = measured(launched, environment, f"{folder}/times")
        os.remove(f"{folder}/times")
        watched = measured([f"{options.bin}/kintsugi", "watch", "--", *launched], environment, f"{folder}/times")
    cost = ours.pop("mark_us")
    result = {
        "bench": "hang",
        "mark_us": round(cost, 3),
        "budget_us": BUDGET_US,
        "watch_us": round(min(watched["alone"]) - min(plain["alone"]), 2),
        "all_reduce_us": {name: round(statistics.median(times), 2) for name, times in
                          {**ours, "plain": plain["together"], "watched": watched["together"]}.items()},
        "calls": options.calls, "blocks": options.blocks, "bytes": 64,
    }  # fmt: skip
    if options.explained:
        sys.path.insert(0, str(HERE.parent / "python"))
        from door import Door
        from hang_test import divergences, told

        door = Door([options.bin, options.package, sys.executable], preload="torch,kintsugi.torch")
        times = [told(door, *divergence)[3] for divergence in list(divergences())[: options.explained]]
        result["explained_s"] = {"median": round(statistics.median(times), 2), "worst": round(max(times), 2), "of": len(times)}
    text = json.dumps(result, indent=1)
    if options.json and options.json != "-":
        Path(options.json).write_text(text + "\n")
    elif options.json:
        print(text)
    if options.json != "-":
        print(f"a mark costs {result['mark_us']} us (budget {BUDGET_US}) and 64 bytes, a look of kintsugi watch {result['watch_us']} us; an all_reduce of one float {result['all_reduce_us']}")
        if options.explained:
            print(f"a hang is explained within {result['explained_s']['median']} s (median of {options.explained}), at worst {result['explained_s']['worst']}")


if __name__ == "__main__":
    main()
