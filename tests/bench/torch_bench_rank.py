"""What one rank of bench torch measures of itself; rank 0 prints a line of JSON.

  torch_bench_rank.py collectives | blocked | swap GROUPS | gate | hooks | loops | register MIB
"""

from __future__ import annotations

import datetime
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import kintsugi.torch

RUNS = 7


def microseconds(work: Callable[[], object], count: int, clock: Callable[[], float] = time.perf_counter) -> float:
    begun = clock()
    for _ in range(count):
        work()
    return (clock() - begun) / count * 1e6


def in_turn(works: dict[str, Callable[[], object]], count: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, list[float]]:
    """Each in turn, so that what else the machine does meets all of them."""
    for work in works.values():
        microseconds(work, max(count // 5, 1))
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(RUNS):
        for name, work in works.items():
            found[name].append(microseconds(work, count, clock))
    return found


def collectives() -> dict[str, list[float]]:
    plain = dist.new_group(backend="gloo")
    value = torch.ones(1)
    found = in_turn({"kintsugi": lambda: dist.all_reduce(value), "gloo": lambda: dist.all_reduce(value, group=plain)}, 300)
    alone = {name: dist.new_group([rank], backend=name) for rank in range(dist.get_world_size()) for name in ("kintsugi", "gloo")
             if rank == dist.get_rank() or dist.new_group([rank], backend=name) is None}  # fmt: skip
    found |= {f"{name} alone": times for name, times in
              in_turn({name: lambda group=group: dist.all_reduce(value, group=group) for name, group in alone.items()}, 1000,  # type: ignore[misc]
                      time.process_time).items()}  # of all threads: when the one that waits is woken is the machine's affair
    dist.destroy_process_group(plain)
    return found


def blocked() -> dict[str, list[float]]:
    """Rank 0 stays away; how long after an abort the others are out of their all-reduce. Of all ranks: told through the store."""
    store = dist.distributed_c10d._get_default_store()
    rank, took = dist.get_rank(), []

    def waits(backend: str, limit: float, abort: Callable[[object], object]) -> float:
        group = dist.new_group(backend=backend, timeout=datetime.timedelta(seconds=limit))
        dist.all_reduce(torch.ones(1), group=group)
        began: list[float] = []

        def later() -> None:
            began.append(time.perf_counter())
            abort(group)

        if rank > 0:
            timer = threading.Timer(0.05, later)
            timer.start()
            try:
                dist.all_reduce(torch.ones(1 << 10), group=group)
            except RuntimeError:
                pass
            else:
                raise RuntimeError("nobody was blocked")
            ended = time.perf_counter()
            timer.join()
            out = max(ended - began[0], 0) * 1000  # 0: woken by the others, who closed their side first
            store.set(f"out/{backend}/{len(took)}/{rank}", str(out))
        dist.destroy_process_group(group)
        slowest = max(float(store.get(f"out/{backend}/{len(took)}/{other}")) for other in range(1, dist.get_world_size()))
        return slowest

    for _ in range(20):
        took.append(waits("kintsugi", 60, lambda group: group._get_backend(torch.device("cpu")).close("measured")))  # type: ignore[attr-defined]
    gloo = waits("gloo", 2, lambda group: group._get_backend(torch.device("cpu")).abort())  # type: ignore[attr-defined]
    return {"kintsugi": [max(took)], "median": [statistics.median(took)], "gloo": [gloo]}


def swapped(run: kintsugi.torch.TorchRun, count: int) -> dict[str, list[float]]:
    """What connecting all groups anew takes in an incident; rank 0's, which ends when all are connected, as every rank's does."""
    found: dict[str, list[float]] = {"swap": [], "compared": [], "gloo": []}
    begun = time.perf_counter()
    plain = [dist.new_group(backend="gloo") for _ in range(count)]
    found["gloo"].append((time.perf_counter() - begun) * 1000)
    for group in plain:
        dist.destroy_process_group(group)
    for _ in range(count - 1):
        dist.new_group()
    rebuild, compare = run._groups.rebuild, run._groups._compare

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begun = time.perf_counter()
            answer = function(*arguments)
            if run._guard.released:
                found[name].append((time.perf_counter() - begun) * 1000)
            return answer

        return call

    run._groups.rebuild = timed("swap", rebuild)  # type: ignore[method-assign]
    run._groups._compare = timed("compared", compare)  # type: ignore[method-assign]
    return found


def register(run: kintsugi.torch.TorchRun, mib: int) -> dict[str, list[float]]:
    source = torch.ones(mib << 18)

    def milliseconds(work: Callable[[], object]) -> float:
        return microseconds(work, 1, time.process_time) / 1000  # copies do not wait: processor time, whatever else runs

    warm = [torch.ones_like(source) for _ in range(2)]  # what the host has never given out before costs many times as much
    found = {"memcpy": [milliseconds(lambda: warm[0].copy_(source)) for _ in range(3)]}
    warm.clear()
    found |= {"memcpy into fresh memory": [], "register": []}
    for i in range(3):
        found["memcpy into fresh memory"].append(milliseconds(lambda: torch.empty_like(source).copy_(source)))
        model = torch.nn.Module()
        model.weight = torch.nn.Parameter(source.clone())
        found["register"].append(milliseconds(lambda model=model, i=i: run.register(**{f"large{i}": model})))  # type: ignore[misc]
    return found


def loops(run: kintsugi.torch.TorchRun, layer: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, list[float]]:
    """A step in a loop as people write it, in processor time of its thread, beside the same loop without the run; and an empty section."""
    other = torch.nn.Linear(8, 8)
    plain = torch.optim.SGD(other.parameters(), lr=0.1)

    def step(model: torch.nn.Module, update: torch.optim.Optimizer) -> None:
        model(torch.ones(1, 8)).sum().backward()
        time.sleep(0.0005)  # the gate waits for others, which leaves caches cold: so does this, for both
        update.step()
        update.zero_grad()

    def without() -> None:
        for _ in range(20):
            step(other, plain)

    def within() -> None:
        for _ in run.steps(20):
            with run.step():
                step(layer, optimizer)

    works: dict[str, Callable[[], object]] = {"plain loop": without, "loop": within}
    found = {name: [took / 20 for took in times] for name, times in in_turn(works, 1, time.thread_time).items()}
    dist.barrier()
    return found | in_turn({"do": lambda: run.do(list), "barrier": dist.barrier}, 50)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    what = sys.argv[1]
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    found: dict[str, list[float]] = {}
    layer, other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    optimizer, plain = torch.optim.SGD(layer.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    if what == "register":
        found = register(run, int(sys.argv[2]))
    if what == "collectives":
        found = collectives()
    if what == "blocked":
        found = blocked()
    if what == "swap":
        found = swapped(run, int(sys.argv[2]))
    run.register(model=layer, optimizer=optimizer)
    if what == "loops":
        run.register(scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 100))
        found = loops(run, layer, optimizer)
    clock = time.perf_counter if what == "gate" else time.thread_time  # hooks: without waiting for others
    found |= {"step": [], "plain step": [], "objects": [], "gate": [], "objects at the end": []} if what in ("gate", "hooks") else {}

    real, put, end = run.agent, run._objects.put_at_gate, run._objects.put_at_end

    class Timed:
        """The agent, whose gate is timed: what the gate itself costs, mirroring included."""

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def enter_update(self, at: int) -> int:
            codes: list[int] = []
            found["gate"].append(microseconds(lambda: codes.append(real.enter_update(at)), 1, clock))
            return codes[0]

    def timed_put(at: int) -> None:
        found["objects"].append(microseconds(lambda: put(at), 1, clock))

    def timed_end(at: int) -> None:
        found["objects at the end"].append(microseconds(lambda: end(at), 1, clock))

    if what == "hooks":
        run._objects.put_at_end = timed_end  # type: ignore[method-assign]
    timed = Timed()

    def step(k: int) -> None:
        for module in (layer, other):
            module.zero_grad()
            module(torch.ones(1, 8)).sum().backward()
        # What comes first meets caches that the backward pass has filled; and a clock within would be counted.
        in_order = [("step", optimizer), ("plain step", plain)]
        within = what == "hooks" and k % 4 >= 2
        if within:
            run.agent, run._objects.put_at_gate = timed, timed_put  # type: ignore[assignment, method-assign]
        for name, stepped in in_order if k % 2 else in_order[::-1]:
            if what == "hooks":
                time.sleep(0.0005)  # the gate waits for others, which leaves caches cold: so does this, for both
            took = microseconds(stepped.step, 1, clock)
            if name in found and not within:
                found[name].append(took)
        run.agent, run._objects.put_at_gate = real, put  # type: ignore[method-assign]

    if what != "loops":
        run.train(step, steps=600 if what == "hooks" else 300 if what == "gate" else 14 if what == "swap" else 2)
    if what == "hooks":
        middle = {name: statistics.median(times) for name, times in found.items()}
        found["hooks alone"] = [middle["step"] - middle["plain step"] - middle["objects"] - middle["gate"]]
    if run.rank == 0:
        print("measured", json.dumps({name: statistics.median(times) for name, times in found.items() if times}), flush=True)


main()
