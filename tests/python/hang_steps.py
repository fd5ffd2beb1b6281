"""A training of 50 ms a step, in which one rank does something else than the others at one step, and all wait for it.

  hang_steps.py --mode ddp|fsdp|tp --fault NAME --culprit RANK [--at STEP] [--steps N] [--plain [--timeout SECONDS]]

The culprit writes "PLANTED <seconds of the monotonic clock>" to standard error. --plain: torch alone, over Gloo; --timeout is that of its groups.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import fcntl
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

FOR_EVER = 10_000


class Skipped(Exception):
    """An exception that the culprit swallows."""


class Scene:
    """What the faults have to do with."""

    def __init__(self, dist, torch, rank, world, second):
        self.dist, self.torch, self.rank, self.world, self.second = dist, torch, rank, world, second
        self.lead = torch.tensor([1.0])


# ---- the culprit stands somewhere: `missing`, unless said otherwise ---------------------------------------------------------


def sleeps(_):
    time.sleep(FOR_EVER)


def reads_a_pipe(_):
    os.read(os.pipe()[0], 1)


def writes_to_a_full_pipe(_):
    while True:
        os.write(_FULL[1], b"x" * 65536)


_FULL = os.pipe()


def waits_in_a_queue(_):
    queue.Queue().get()


def takes_a_lock_twice(_):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def joins_a_thread(_):
    thread = threading.Thread(target=time.sleep, args=(FOR_EVER,), daemon=True)
    thread.start()
    thread.join()


def waits_for_an_event(_):
    threading.Event().wait()


def loops(_):
    while True:
        pass


def sleeps_in_c(_):
    ctypes.CDLL(None).sleep(FOR_EVER)


def holds_the_lock_of_python(_):
    ctypes.PyDLL(None).sleep(60)


def is_stopped(_):
    os.kill(os.getpid(), signal.SIGSTOP)


def saves_where_nobody_reads(scene):
    fifo = os.path.join(tempfile.mkdtemp(prefix="kintsugi-test-"), "save")
    os.mkfifo(fifo)
    scene.torch.save(scene.lead, fifo)


def waits_for_a_file_lock(_):
    path = os.path.join(tempfile.mkdtemp(prefix="kintsugi-test-"), "lock")
    held, wanted = open(path, "w"), open(path, "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    fcntl.flock(wanted, fcntl.LOCK_EX)


def waits_for_a_child(_):
    subprocess.run(["sleep", str(FOR_EVER)])


def receives_from_nobody(_):
    here, _there = socket.socketpair()
    here.recv(1)


def accepts_nobody(_):
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.accept()


def selects_nothing(_):
    select.select([], [], [])


def pauses(_):
    signal.pause()


class _NeverGives:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(FOR_EVER)


def waits_for_a_worker(scene):
    from torch.utils.data import DataLoader

    next(iter(DataLoader(_NeverGives(), num_workers=1)))


def waits_for_a_key(scene):
    scene.dist.distributed_c10d._get_default_store().wait(["a key that nobody sets"])


STANDS = {f.__name__: f for f in (
    sleeps, reads_a_pipe, writes_to_a_full_pipe, waits_in_a_queue, takes_a_lock_twice, joins_a_thread, waits_for_an_event, loops, sleeps_in_c,
    holds_the_lock_of_python, is_stopped, saves_where_nobody_reads, waits_for_a_file_lock, waits_for_a_child, receives_from_nobody,
    accepts_nobody, selects_nothing, pauses, waits_for_a_worker, waits_for_a_key)}  # fmt: skip


# ---- it calls something else --------------------------------------------------------------------------------------------------


def metrics(scene, fault):
    """What every step ends with: a sum over the world, one over the second group, a broadcast, a gathering, a ring of messages."""
    dist, torch, world = scene.dist, scene.torch, scene.world
    ones, first = torch.ones(5), torch.ones(3)
    here = fault is not None
    if here and fault in ("a_barrier_more", "a_barrier_less_for_others"):
        dist.barrier()
    if here and fault == "a_sum_more":
        dist.all_reduce(torch.ones(5))
    if here and fault == "groups_in_other_order":
        dist.all_reduce(torch.ones(4), group=scene.second)
        dist.all_reduce(ones)
    else:
        try:
            if here and fault == "other_size":
                dist.all_reduce(torch.ones(9))
            elif here and fault == "other_type":
                dist.all_reduce(torch.ones(5, dtype=torch.float64))
            elif here and fault == "reduce_for_all_reduce":
                dist.reduce(ones, 0)
            elif here and fault == "broadcast_for_all_reduce":
                dist.broadcast(ones, 0)
            elif here and fault == "objects_for_tensors":
                dist.all_gather_object([None] * world, {"rank": scene.rank})
            elif here and fault == "second_group_for_the_first":
                dist.all_reduce(ones, group=scene.second)
            elif here and fault == "barrier_for_all_reduce":
                dist.barrier()
            elif here and fault == "an_exception_swallowed":
                raise Skipped
            elif not (here and fault == "a_sum_less"):
                dist.all_reduce(ones)
            dist.all_reduce(torch.ones(4), group=scene.second)
        except Skipped:
            pass
    if here and fault == "other_root":
        dist.broadcast(first, (scene.rank + 1) % world)
    elif here and fault == "object_list_for_broadcast":
        dist.broadcast_object_list([None, None], 0)
    elif not (here and fault == "a_broadcast_less"):
        dist.broadcast(first, 0)
    if here and fault == "gather_for_all_gather":
        dist.gather(ones, [torch.ones(5) for _ in range(world)] if scene.rank == 0 else None, 0)
    elif here and fault == "all_to_all_for_all_gather":
        dist.all_to_all([torch.ones(5) for _ in range(world)], [torch.ones(5) for _ in range(world)])
    elif not (here and fault == "a_gathering_less"):
        dist.all_gather([torch.ones(5) for _ in range(world)], ones)
    # Even ranks send first.
    right, left = (scene.rank + 1) % world, (scene.rank - 1) % world
    if scene.rank % 2 == 0:
        if not (here and fault == "a_message_less"):
            dist.send(ones, right)
        dist.recv(torch.ones(5), left)
    else:
        dist.recv(torch.ones(5), left)
        if not (here and fault == "a_message_less"):
            dist.send(ones, right)


CALLS = ("a_barrier_more", "a_sum_more", "groups_in_other_order", "other_size", "other_type", "reduce_for_all_reduce", "broadcast_for_all_reduce",
         "objects_for_tensors", "second_group_for_the_first", "barrier_for_all_reduce", "an_exception_swallowed", "a_sum_less", "other_root",
         "object_list_for_broadcast", "a_broadcast_less", "gather_for_all_gather", "all_to_all_for_all_gather", "a_gathering_less",
         "a_message_less")  # fmt: skip
# Where in the step the culprit stands, or what it leaves out.
PLACES = ("in_backward", "before_the_update", "leaves_backward_out", "ends_early")


def build(torch, mode):
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if mode == "fsdp":
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),), mesh_dim_names=("dp",)))
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),), mesh_dim_names=("tp",))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="ddp")
    parser.add_argument("--fault", default="")
    parser.add_argument("--culprit", type=int, default=1)
    parser.add_argument("--at", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--timeout", type=float, help="of --plain's groups, in seconds")
    options = parser.parse_args()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    run = None
    if not options.plain:
        import kintsugi.torch

        run = kintsugi.torch.join()
    limit = datetime.timedelta(seconds=options.timeout) if options.timeout else None
    dist.init_process_group("gloo" if options.plain else "kintsugi", timeout=limit)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(torch, options.mode)
    second = dist.new_group(list(range(world)), group_desc="second")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scene = Scene(dist, torch, rank, world, second)
    if run:
        run.register(model=model, optimizer=optimizer)

    def step(k):
        fault = options.fault if k == options.at and rank == options.culprit else None
        if fault:
            print(f"PLANTED {time.monotonic()}", file=sys.stderr, flush=True)
        time.sleep(0.04)
        if fault in STANDS:
            STANDS[fault](scene)
        out = model(torch.ones(2, 16))
        if fault == "in_backward":
            out.register_hook(sleeps)
        if fault != "leaves_backward_out":
            out.sum().backward()
        if fault != "leaves_backward_out":
            metrics(scene, fault if fault in CALLS else None)
        if fault == "before_the_update":
            sleeps(scene)
        if run or fault != "leaves_backward_out":
            optimizer.step()
        optimizer.zero_grad()

    steps = options.at if options.fault == "ends_early" and rank == options.culprit else options.steps
    if options.fault == "ends_early" and rank == options.culprit:
        print(f"PLANTED {time.monotonic()}", file=sys.stderr, flush=True)
    if run:
        run.train(step, steps=steps)
    else:
        for k in range(1, steps + 1):
            step(k)
        dist.barrier()


if __name__ == "__main__":
    main()
