"""One rank of nccl_test.py: collectives of tensors on the fake device over the fake NCCL, by torch's own calls. Without a run of Kintsugi's.
With NCCL_RANK_DEVICE=cuda on a CUDA device, over its NCCL. With KINTSUGI_INNER=torch over an outer group and what torch makes for the device: ProcessGroupNCCL, or the
fake's (fake_device/collectives.cc).

  nccl_rank.py random RANK WORLD FOLDER SEED       a random program, held against sums made here and against Gloo's
  nccl_rank.py beside RANK WORLD FOLDER SEED       the same program over both, to the bit
  nccl_rank.py ordered RANK WORLD FOLDER SEED      sums in the order of the ranks, to the bit
  nccl_rank.py outer RANK WORLD FOLDER 0           an outer group over both inner ones: each tensor goes where it lies
  nccl_rank.py ddp RANK WORLD FOLDER 0             torch's own DistributedDataParallel; then one rank does not come to a step
  nccl_rank.py silent RANK WORLD FOLDER 0          the last rank does not come: the others are woken, and free
  nccl_rank.py held 0 1 FOLDER 0                   stuck within a call of NCCL's (FAKE_NCCL_HOLD), then cut
  nccl_rank.py absent 0 2 FOLDER 0                 a peer that never comes to an init, then cut
  nccl_rank.py race 0 1 FOLDER SEED                launches without pause beside a cut
"""
import ctypes
import datetime
import faulthandler
import os
import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
ON_CUDA = os.environ.get("NCCL_RANK_DEVICE") == "cuda"
if not ON_CUDA:
    import fake_device
else:
    os.environ.setdefault("NCCL_HOSTID", f"rank{sys.argv[2]}")  # NCCL refuses two ranks of a host on one device
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from kintsugi import _core  # noqa: E402
from kintsugi.torch import _build, bits, devices  # noqa: E402

faulthandler.dump_traceback_later(int(os.environ.get("NCCL_RANK_SECONDS", "240")), exit=True)  # one that hangs says where
EXTENSION = _build.load()
DEVICE = torch.device("cuda" if ON_CUDA else "fake", 0)
WHOLE = [torch.uint8, torch.int8, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
MOVED = [*WHOLE, *FLOATS, torch.bool, torch.int16, torch.complex64, torch.float8_e4m3fn]
mode, rank, world, folder, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
INNER = "torch" if devices.is_torchs_own() else "nccl"
WOKEN = "an incident has begun"
if mode == "beside":
    os.environ.update({**bits._NCCL, **os.environ})
if not ON_CUDA and (INNER == "torch" or mode == "beside"):
    dist.Backend.default_device_backend_map[DEVICE.type] = os.environ.get("NCCL_RANK_BACKEND", "fakeccl")
    fake_device.register_collectives()
torchs = devices.TorchBackends(EXTENSION, DEVICE.type) if INNER == "torch" or mode == "beside" else None
nccl = EXTENSION.NcclFunctions(_core.nccl_function)
generation = EXTENSION.NcclGeneration(nccl)
made = []


def cut():
    """As a stop does."""
    if INNER == "nccl":
        return generation.cut()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)(EXTENSION.stop_function())(None, 0)


def is_free():
    """Torch's own backend frees at once."""
    return INNER == "torch" or generation.free(10_000)


def create(options, _=None):
    """A group of torch's whose tensors on the device go over NCCL."""
    own, size, store = options.group_rank, options.group_size, options.store
    if INNER == "torch":
        outer = EXTENSION.OuterGroup(rank=own, size=size, name=options.group_id, timeout_ms=60_000)
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("host", store), own, size, datetime.timedelta(seconds=60))
        outer.connect(gloo, [], 1, torchs.inner(options.group_id, own, size, store, 0, None))
        made.append(outer)
        return outer
    if own == 0:
        store.set("nccl id", nccl.unique_id())
    comm, = generation.connect([(size, own, bytes(store.get("nccl id")))])
    made.append(EXTENSION.NcclCollectives(rank=own, size=size, generation=generation, comm=comm, device=DEVICE, store=store, name=options.group_id,
                                          high_priority=False, ordered=mode == "ordered"))  # fmt: skip
    return made[-1]


def busy(microseconds):
    """The device, with what it was given before."""
    torch.cuda._sleep(1500 * microseconds) if ON_CUDA else fake_device.busy(microseconds)


def host_waits():
    """How often the host has waited for a stream, an event or the device. Only the fake one counts."""
    return 0 if ON_CUDA else fake_device.counts()[2]


def begin():
    dist.Backend.register_backend("kintsugi-nccl", create, extended_api=True, devices=[DEVICE.type])
    dist.init_process_group(f"cpu:gloo,{DEVICE.type}:kintsugi-nccl", store=dist.FileStore(f"{folder}/store", world), rank=rank, world_size=world)


class Program:
    """All ranks draw the same from `shared`, and know by `values` what each of them has."""

    def __init__(self):
        self.shared = random.Random(seed)
        self.own = random.Random(seed * 1000 + rank)
        self.groups = [(dist.new_group(list(range(world))), list(range(world)))]
        for _ in range(3):
            ranks = sorted(self.shared.sample(range(world), self.shared.randint(1, world)))
            group = dist.new_group(ranks)
            self.groups.append((group, ranks))
        self.pending = []
        self.done = 0
        self.met = set()  # groups whose pairs of ranks have met
        self.read = {}  # what each step has left

    def values(self, member, number, shape, dtype):
        """What a rank has there, as every rank knows it."""
        generator = torch.Generator().manual_seed(seed * 7919 + number * 101 + member)
        drawn = torch.randint(0, 5, shape, generator=generator)
        if dtype == torch.bool:
            return drawn > 2
        if dtype.is_complex:
            return torch.complex(drawn.float(), drawn.float() * 2)
        return (drawn / 4 if dtype in FLOATS else drawn).to(dtype)

    def on_device(self, value):
        """Made there just now, behind something that takes a while: who does not wait for it reads zeros."""
        tensor = torch.zeros(value.shape, dtype=value.dtype, device=DEVICE)
        busy(self.own.choice([0, 0, 500, 3000]))
        tensor.copy_(value.to(DEVICE))
        return tensor

    def expect(self, what, got, expected, work):
        if work is None:
            return self.compare(what, got, expected)
        self.pending.append((what, got, expected, work))
        if len(self.pending) > 3 or self.own.random() < 0.4:
            self.finish()

    def finish(self):
        self.own.shuffle(self.pending)
        for what, got, expected, work in self.pending:
            work.wait()
            if self.own.random() < 0.3:
                work.get_future().wait()
            self.compare(what, got, expected)
        self.pending.clear()

    def compare(self, what, got, expected):
        for one, other in zip(got, expected, strict=True):
            # On the current stream: what is read here comes behind the wait.
            read = one.clone().cpu()
            if read.dtype.itemsize == 1 and read.dtype.is_floating_point:
                read, other = read.view(torch.uint8), other.view(torch.uint8)
            self.read.setdefault(what, []).append(read)
            exact = not other.is_floating_point() or other.dtype == torch.float64
            if not (torch.equal(read, other) if exact else torch.allclose(read.double(), other.double(), rtol=1e-2, atol=1e-3)):
                raise AssertionError(f"seed {seed}, rank {rank}: {what}: {read} where {other} was to be")
        self.done += 1

    def sum_of(self, ranks, number, shape, dtype, op):
        parts = [self.values(member, number, shape, dtype) for member in ranks]
        wide = [part if part.dtype in (torch.float64, torch.bool) or not part.is_floating_point() else part.float() for part in parts]
        total = wide[0].clone()
        for part in wide[1:]:
            if dtype == torch.bool:
                total = total | part if op in ("sum", "max") else total & part
            elif op in ("sum", "avg", "scaled"):
                total = total + part
            elif op == "product":
                total = total * part
            else:
                total = torch.maximum(total, part) if op == "max" else torch.minimum(total, part)
        if op == "avg":
            total = total / len(parts) if total.is_floating_point() else total // len(parts)
        if op == "scaled":
            total = total * 0.5
        return total.to(dtype)

    def op(self, dtype):
        names = ["sum", "max", "min", "product"]
        if dtype.is_floating_point:
            names += ["avg", "scaled"]
        name = self.shared.choice(["sum"] if dtype.is_complex else names)
        return name, {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "product": dist.ReduceOp.PRODUCT,
                      "avg": dist.ReduceOp.AVG, "scaled": dist._make_nccl_premul_sum(0.5)}[name]  # fmt: skip

    def step(self, number):
        shared = self.shared
        group, ranks = shared.choice(self.groups)
        kind = shared.choice(["all_reduce", "all_reduce", "broadcast", "reduce", "all_gather", "uneven_gather", "gather_into", "gather", "scatter",
                              "reduce_scatter", "scatter_tensor", "all_to_all", "all_to_all_lists", "coalesced_sums", "coalesced_gathers",
                              "coalesced_parts", "pairs", "batched", "barrier", "functional"])  # fmt: skip
        dtype = shared.choice([*WHOLE, *FLOATS, torch.bool, torch.complex64]) if "reduce" in kind or "sums" in kind or "scatter_tensor" in kind or "parts" in kind \
            else shared.choice(MOVED)  # fmt: skip
        shape = (shared.choice([1, 2, 4, 300]), shared.choice([1, 3]))
        is_async = shared.random() < 0.5
        root = shared.choice(ranks)
        name, op = self.op(dtype)
        if rank not in ranks:
            return
        me, size = ranks.index(rank), len(ranks)
        mine = self.values(rank, number, shape, dtype)
        every = [self.values(member, number, shape, dtype) for member in ranks]
        what = f"step {number}, {kind} {name} {dtype} {shape} of {ranks}, root {root}, async {is_async}"
        options = {"group": group, "async_op": is_async}
        empty = lambda: torch.zeros(shape, dtype=dtype, device=DEVICE)  # noqa: E731
        if kind == "all_reduce":
            tensor = self.on_device(mine)
            expected = self.sum_of(ranks, number, shape, dtype, name)
            if name in ("sum", "max", "min", "product") and dtype in WHOLE and size > 1:
                by_gloo = mine.clone()
                dist.all_reduce(by_gloo, op, group=group)
                assert torch.equal(by_gloo, expected), what
            self.expect(what, [tensor], [expected], dist.all_reduce(tensor, op, **options))
        elif kind == "broadcast":
            tensor = self.on_device(mine)
            self.expect(what, [tensor], [every[ranks.index(root)]], dist.broadcast(tensor, root, **options))
        elif kind == "reduce":
            tensor = self.on_device(mine)
            work = dist.reduce(tensor, root, op, **options)
            self.expect(what, [tensor] if rank == root else [], [self.sum_of(ranks, number, shape, dtype, name)] if rank == root else [], work)
        elif kind == "all_gather":
            outputs = [empty() for _ in ranks]
            self.expect(what, outputs, every, dist.all_gather(outputs, self.on_device(mine), **options))
        elif kind == "uneven_gather":
            shapes = [(2 + i, 3) for i in range(size)]
            every = [self.values(member, number, shapes[i], dtype) for i, member in enumerate(ranks)]
            outputs = [torch.zeros(one, dtype=dtype, device=DEVICE) for one in shapes]
            self.expect(what, outputs, every, dist.all_gather(outputs, self.on_device(every[me]), **options))
        elif kind == "gather_into":
            output = torch.zeros((size * shape[0], shape[1]), dtype=dtype, device=DEVICE)
            self.expect(what, [output], [torch.cat([one.view(torch.uint8) for one in every]).view(dtype) if dtype.itemsize == 1 else torch.cat(every)],
                        dist.all_gather_into_tensor(output, self.on_device(mine), **options))  # fmt: skip
        elif kind == "gather":
            outputs = [empty() for _ in ranks] if rank == root else None
            self.expect(what, outputs or [], every if rank == root else [], dist.gather(self.on_device(mine), outputs, root, **options))
        elif kind == "scatter":
            parts = [self.values(50 + member, number, shape, dtype) for member in ranks]
            output = empty()
            inputs = [self.on_device(part) for part in parts] if rank == root else None
            self.expect(what, [output], [parts[me]], dist.scatter(output, inputs, root, **options))
        elif kind in ("reduce_scatter", "scatter_tensor"):
            whole = self.sum_of(ranks, number, (size * shape[0], shape[1]), dtype, name)
            expected = whole[me * shape[0] : (me + 1) * shape[0]]
            source = self.on_device(self.values(rank, number, (size * shape[0], shape[1]), dtype))
            output = empty()
            work = (dist.reduce_scatter_tensor(output, source, op, **options) if kind == "scatter_tensor" else
                    dist.reduce_scatter(output, [part.contiguous() for part in source.chunk(size)], op, **options))  # fmt: skip
            self.expect(what, [output], [expected], work)
        elif kind == "all_to_all":
            counts = [[shared_count(number, a, b) for b in ranks] for a in ranks]
            source = self.values(rank, number, (sum(counts[me]), 2), dtype)
            others = [self.values(member, number, (sum(counts[i]), 2), dtype) for i, member in enumerate(ranks)]
            expected = [one[sum(counts[i][:me]) : sum(counts[i][: me + 1])] for i, one in enumerate(others)]
            received = [counts[i][me] for i in range(size)]
            output = torch.zeros((sum(received), 2), dtype=dtype, device=DEVICE)
            work = dist.all_to_all_single(output, self.on_device(source), received, counts[me], **options)
            self.expect(what, [output], [torch.cat([one.reshape(-1, 2).view(torch.uint8) if dtype.itemsize == 1 else one for one in expected]).view(dtype)], work)
        elif kind == "all_to_all_lists":
            sent = [[self.values(200 + member * 10 + i, number, shape, dtype) for i in range(size)] for member in ranks]
            outputs = [empty() for _ in ranks]
            work = dist.all_to_all(outputs, [self.on_device(one) for one in sent[me]], **options)
            self.expect(what, outputs, [sent[i][me] for i in range(size)], work)
        elif kind == "coalesced_sums":
            tensors = [self.on_device(self.values(rank, number + 1000 * i, (i + 1, 2), dtype)) for i in range(3)]
            expected = [self.sum_of(ranks, number + 1000 * i, (i + 1, 2), dtype, name) for i in range(3)]
            with dist._coalescing_manager(group, DEVICE, async_ops=is_async) as manager:
                for tensor in tensors:
                    dist.all_reduce(tensor, op, group=group)
            self.expect(what, tensors, expected, manager if is_async else None) if not is_async else self.managed(what, tensors, expected, manager)
        elif kind == "coalesced_gathers":
            sources = [self.on_device(self.values(rank, number + 1000 * i, shape, torch.int32)) for i in range(3)]
            outputs = [torch.zeros((size * shape[0], shape[1]), dtype=torch.int32, device=DEVICE) for _ in sources]
            expected = [torch.cat([self.values(member, number + 1000 * i, shape, torch.int32) for member in ranks]) for i in range(3)]
            with dist._coalescing_manager(group, DEVICE, async_ops=is_async) as manager:
                for output, source in zip(outputs, sources):
                    dist.all_gather_into_tensor(output, source, group=group)
            self.managed(what, outputs, expected, manager) if is_async else self.compare(what, outputs, expected)
        elif kind == "coalesced_parts":
            sources = [self.on_device(self.values(rank, number + 1000 * i, (size * 2, 3), dtype)) for i in range(2)]
            outputs = [torch.zeros((2, 3), dtype=dtype, device=DEVICE) for _ in sources]
            expected = [self.sum_of(ranks, number + 1000 * i, (size * 2, 3), dtype, name)[2 * me : 2 * me + 2] for i in range(2)]
            with dist._coalescing_manager(group, DEVICE, async_ops=is_async) as manager:
                for output, source in zip(outputs, sources):
                    dist.reduce_scatter_tensor(output, source, op, group=group)
            self.managed(what, outputs, expected, manager) if is_async else self.compare(what, outputs, expected)
        elif kind == "pairs" and size > 1:
            # A pair's first message waits for both, as in plain torch: those are in one order of pairs. Then all send to all at once, in
            # an order of each rank's own: only pairs of their own let that pass.
            others = [member for member in ranks if member != rank]
            for low, high in [(low, high) for low in ranks for high in ranks if low < high and rank in (low, high)]:
                if group not in self.met:
                    (dist.isend(self.on_device(mine), high, group=group) if rank == low else dist.irecv(empty(), low, group=group)).wait()
            self.met.add(group)
            self.own.shuffle(others)
            outputs = {member: empty() for member in others}
            works = [dist.isend(self.on_device(mine), member, group=group) if rank < member else dist.irecv(outputs[member], member, group=group)
                     for member in others]  # fmt: skip
            for member, work in zip(others, works):
                work.wait()
                if member < rank:
                    self.compare(what, [outputs[member]], [self.values(member, number, shape, dtype)])
        elif kind == "batched" and size > 1:
            right, left = ranks[(me + 1) % size], ranks[(me - 1) % size]
            output = empty()
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, self.on_device(mine), right, group),
                                                dist.P2POp(dist.irecv, output, left, group)]):  # fmt: skip
                work.wait()
            self.compare(what, [output], [self.values(left, number, shape, dtype)])
        elif kind == "barrier":
            made_for = group._get_backend(DEVICE)
            made_for.barrier(dist.BarrierOptions()).wait()
            self.done += 1
        elif kind == "functional":
            from torch.distributed import _functional_collectives as functional

            tensor = self.on_device(self.values(rank, number, shape, torch.int64))
            summed = functional.all_reduce(tensor, "sum", group)
            gathered = functional.all_gather_tensor(tensor, 0, group)
            self.compare(what, [summed, gathered], [self.sum_of(ranks, number, shape, torch.int64, "sum"),
                                                    torch.cat([self.values(member, number, shape, torch.int64) for member in ranks])])  # fmt: skip

    def managed(self, what, got, expected, manager):
        manager.wait()
        self.compare(what, got, expected)


def shared_count(number, a, b):
    return random.Random(f"{seed} {number} {a} {b}").choice([0, 1, 1, 2, 5])


def refuses(words, call):
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), f"'{words}' is not in: {error}"
        return
    raise AssertionError(f"nothing was refused: {words}")


def mistakes():
    """What cannot be done says what and why, and leaves the group as it was."""
    device = torch.zeros(4, 4, device=DEVICE)
    refuses("takes contiguous tensors, and got one of sizes [4, 4] and strides [1, 4]", lambda: dist.all_reduce(device.t()))
    refuses("NCCL has no bitwise sums", lambda: dist.all_reduce(device.int(), dist.ReduceOp.BAND))
    refuses("NCCL does not add up elements of type", lambda: dist.all_reduce(device.to(torch.int16)))
    refuses("there is no average of bool", lambda: dist.all_reduce(device.bool(), dist.ReduceOp.AVG))
    refuses("complex numbers can be added up", lambda: made[0].allreduce([device.to(torch.complex64)], product_of()))
    refuses("a sum of scaled elements takes floating types", lambda: dist.all_reduce(device.int(), dist._make_nccl_premul_sum(2.0)))
    refuses("gathers 16 elements of type", lambda: made[0]._allgather_base(torch.zeros(3, device=DEVICE), device, dist.distributed_c10d.AllgatherOptions()).wait())
    refuses(f"takes tensors on {DEVICE}, and got one on cpu", lambda: made[0].allreduce([torch.zeros(2)], dist.AllreduceOptions()))
    refuses("receives from a rank that is named", lambda: made[0].recv_anysource([device], 0))
    EXTENSION.set_capturing(True)
    refuses("is refused while a CUDA graph is captured", lambda: dist.all_reduce(device))
    EXTENSION.set_capturing(False)


def scaled_on_device():
    scale = torch.full((1,), 0.25, device=DEVICE)
    tensor = torch.full((3,), 2.0, device=DEVICE)
    work = dist.all_reduce(tensor, dist._make_nccl_premul_sum(scale), async_op=True)
    del scale
    work.wait()
    assert torch.equal(tensor.cpu(), torch.full((3,), 0.5 * world)), tensor.cpu()


def dropped():
    """A work that nobody waits for, and its tensors: the memory stays until the stream is past it."""
    for _ in range(20):
        dist.all_reduce(torch.ones(1000, device=DEVICE), async_op=True)
    tensor = torch.ones(1000, device=DEVICE)
    dist.all_reduce(tensor)
    assert float(tensor[7]) == world


def run_random():
    begin()
    before = host_waits()
    program = Program()
    for number in range(int(os.environ.get("STEPS", "60"))):
        program.step(number)
    program.finish()
    if INNER == "nccl":
        mistakes()
    scaled_on_device()
    dropped()
    assert host_waits() == before, "the host waited for a stream, an event or the device"
    dist.barrier()
    print(f"rank {rank}: {program.done} compared", flush=True)


def run_beside():
    """On a CUDA device both are NCCL, with the settings of kintsugi.torch.deterministic: the same bits."""
    global INNER
    begin()
    read = {}
    for INNER in ("nccl", "torch"):
        program = Program()
        for number in range(int(os.environ.get("STEPS", "60"))):
            program.step(number)
        program.finish()
        read[INNER] = program.read
    assert read["nccl"].keys() == read["torch"].keys()
    compared = 0
    for what, ours in read["nccl"].items():
        # The fake's averages and scaled sums are rounded at another place.
        same = torch.equal if ON_CUDA or not (" avg " in what or " scaled " in what) else lambda one, other: torch.allclose(one.double(), other.double(), rtol=1e-2)
        for one, other in zip(ours, read["torch"][what], strict=True):
            assert same(one, other), f"seed {seed}, rank {rank}: {what}: {one} by NcclInner, {other} by torch's"
            compared += 1
    dist.barrier()
    print(f"rank {rank}: {compared} beside torch's", flush=True)


def run_ordered():
    """Numbers of which the order of a sum can be seen in nearly every element."""
    begin()
    program, compared = Program(), 0

    def value(member, number, count, dtype):
        generator = torch.Generator().manual_seed(seed * 7919 + number * 101 + member)
        return (torch.randn(count, generator=generator, dtype=torch.float64) * 2.0 ** torch.randint(-6, 7, (count,), generator=generator)).to(dtype)

    def total(ranks, number, count, dtype, op, part=slice(None)):
        rows = [value(member, number, count, dtype)[part] for member in ranks]
        wide = [row.float() if dtype in (torch.float16, torch.bfloat16) else row for row in rows]
        wide = [row * 0.3 for row in wide] if op == "scaled" else wide
        result = wide[0].clone()
        for row in wide[1:]:
            result = result * row if op == "product" else result + row
        return (result / len(ranks) if op == "avg" else result).to(dtype)

    ops = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "product": dist.ReduceOp.PRODUCT, "scaled": dist._make_nccl_premul_sum(0.3)}
    for number, (group, ranks) in enumerate((group, ranks) for group, ranks in program.groups if rank in ranks and len(ranks) > 2):
        size, me = len(ranks), ranks.index(rank)
        for dtype in FLOATS:
            for name, op in ops.items():
                for count in (1, size - 1, 7 * size + 3):
                    tensor = value(rank, number, count, dtype).to(DEVICE)
                    expected = total(ranks, number, count, dtype, name)
                    busy(program.own.choice([0, 500]))
                    work = dist.all_reduce(tensor, op, group, async_op=program.shared.random() < 0.5)
                    if work is not None:
                        work.wait()
                    assert torch.equal(tensor.cpu(), expected), f"{dtype} {name} of {count}: {tensor.cpu()} where {expected} was to be"
                    tensor = value(rank, number, count, dtype).to(DEVICE)
                    dist.reduce(tensor, ranks[-1], op, group)
                    assert rank != ranks[-1] or torch.equal(tensor.cpu(), expected), f"reduce, {dtype} {name} of {count}"
                    whole, part = value(rank, number, count * size, dtype).to(DEVICE), torch.zeros(count, dtype=dtype, device=DEVICE)
                    expected = total(ranks, number, count * size, dtype, name, slice(me * count, (me + 1) * count))
                    dist.reduce_scatter_tensor(part, whole, op, group)
                    assert torch.equal(part.cpu(), expected), f"reduce_scatter_tensor, {dtype} {name} of {count}"
                    part.zero_()
                    dist.reduce_scatter(part, list(whole.chunk(size)), op, group)
                    assert torch.equal(part.cpu(), expected), f"reduce_scatter, {dtype} {name} of {count}"
                    compared += 4
        tensors = [value(rank, number + i, 5, torch.float32).to(DEVICE) for i in range(3)]
        with dist._coalescing_manager(group, DEVICE, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)
        manager.wait()
        for i, tensor in enumerate(tensors):
            assert torch.equal(tensor.cpu(), total(ranks, number + i, 5, torch.float32, "sum")), f"coalesced, {i}"
        whole = torch.full((9,), 2, dtype=torch.int64, device=DEVICE)  # has no order
        dist.all_reduce(whole, group=group)
        assert whole.cpu().tolist() == [2 * size] * 9
    refuses("NCCL does not add up elements of type", lambda: dist.all_reduce(torch.zeros(4, device=DEVICE).to(torch.float8_e4m3fn)))
    refuses("complex numbers can be added up", lambda: made[0].allreduce([torch.zeros(4, device=DEVICE).to(torch.complex64)], product_of()))
    dist.barrier()
    print(f"rank {rank}: {compared} in order", flush=True)


def product_of():
    product = dist.AllreduceOptions()
    product.reduceOp = dist.ReduceOp.PRODUCT
    return product


def run_outer():
    """One outer group: tensors of the processor go over Gloo, those of the device over NCCL, and a stop ends both."""
    begin()
    store = dist.FileStore(f"{folder}/outer", world)
    on_host = EXTENSION.OuterGroup(rank=rank, size=world, name="host", timeout_ms=60_000)
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("host", store), rank, world)
    on_host.connect(gloo, [], 1)
    refuses(f"has no connections for tensors on {DEVICE}: NCCL was not found when the run was joined",
            lambda: on_host.allreduce([torch.ones(2, device=DEVICE)], dist.AllreduceOptions()))
    both = EXTENSION.OuterGroup(rank=rank, size=world, name="both", timeout_ms=60_000)
    both.connect(dist.ProcessGroupGloo(dist.PrefixStore("both", store), rank, world), [], 1, made[0])
    sums, parts = dist.AllreduceOptions(), dist.ReduceScatterOptions()
    for _ in range(3):
        host, device, part = torch.ones(4), torch.ones(4, device=DEVICE), torch.zeros(2, device=DEVICE)
        works = [both.allreduce([host], sums), both.allreduce([device], sums),
                 both._reduce_scatter_base(part, torch.full((2 * world,), rank + 1.0, device=DEVICE), parts)]
        [work.wait() for work in works]
        assert host.tolist() == device.cpu().tolist() == [world] * 4 and part.cpu().tolist() == [world * (world + 1) / 2] * 2
        outputs = [[torch.zeros(4, device=DEVICE) for _ in range(world)]] if rank == 0 else []
        both.gather(outputs, [device], dist.GatherOptions()).wait()
        assert rank != 0 or outputs[0][world - 1].cpu().tolist() == [world] * 4
        both.barrier(dist.BarrierOptions()).wait()
    sums.asyncOp = False
    assert both.allreduce([device], sums) is None and device.cpu().tolist() == [world * world] * 4  # on the current stream, without a work
    dist.barrier()
    sums.asyncOp = True
    work = both.allreduce([torch.ones(2, device=DEVICE)], sums)
    both.close("a test ends it")
    assert generation.is_void
    refuses("was aborted: an incident has begun", work.wait)
    for tensor in (torch.ones(2), torch.ones(2, device=DEVICE)):
        refuses("ALLREDUCE is refused: the group is closed, a test ends it", lambda tensor=tensor: both.allreduce([tensor], sums))
    assert both.drain(5000) and generation.free(10_000)
    dist.barrier()  # nobody's process ends before the others have begun what they end here
    print(f"rank {rank}: both", flush=True)


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))


def flat(model):
    return torch.cat([parameter.detach().cpu().reshape(-1) for parameter in model.parameters()])


def run_ddp():
    """What it wants of a group: broadcasts in its constructor, buckets reduced while backward runs, futures."""
    torch.set_num_threads(1)
    begin()
    model = model_of(rank).to(DEVICE)  # other values on each rank: DDP gives all of them rank 0's
    alone = model_of(0).to(DEVICE)
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
    assert torch.equal(flat(model), flat(alone))
    optimizer, other = (torch.optim.AdamW(each.parameters(), lr=1e-2) for each in (model, alone))
    before = host_waits()

    def batch(step, member):
        generator = torch.Generator().manual_seed(step * 100 + member)
        return torch.randn(16, 8, generator=generator), torch.randint(0, 4, (16,), generator=generator)

    def step(number):
        inputs, labels = batch(number, rank)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(wrapped(inputs.to(DEVICE)), labels.to(DEVICE))
        loss.backward()
        optimizer.step()
        return loss

    for number in range(10):
        step(number)
        inputs, labels = zip(*(batch(number, member) for member in range(world)))
        other.zero_grad()
        torch.nn.functional.cross_entropy(alone(torch.cat(inputs).to(DEVICE)), torch.cat(labels).to(DEVICE)).backward()
        other.step()
    assert host_waits() == before, "the host waited for a stream, an event or the device"
    every = [None] * world
    dist.all_gather_object(every, flat(model).tolist())
    assert all(one == every[0] for one in every), "ranks have other parameters"
    assert torch.allclose(flat(model), flat(alone), atol=1e-4), (flat(model) - flat(alone)).abs().max()
    dist.barrier()
    if rank == world - 1:
        return dist.barrier()  # lives, and does not come
    threading.Timer(0.5, cut).start()
    loss = step(10)  # the host is ahead of the device
    float(sum(parameter.grad.sum() for parameter in model.parameters()) + loss.detach())  # woken; gradients are anything
    refuses(WOKEN, lambda: step(11))
    assert is_free(), "its memory was not freed"
    dist.barrier()
    print(f"rank {rank}: trained", flush=True)


def after_the_cut(work):
    """Nothing of the old generation is believed."""
    refuses(WOKEN, work.wait)
    assert work.is_completed() and not work.is_success()
    refuses(WOKEN, lambda: dist.all_reduce(torch.ones(2, device=DEVICE)))
    assert is_free(), "its memory was not freed"


def run_silent():
    begin()
    ones = torch.ones(1000, device=DEVICE)
    dist.all_reduce(ones)
    assert float(ones[0]) == world
    dist.barrier()
    if rank == world - 1:
        return dist.barrier()  # over Gloo: it lives, and never comes to the collective
    works = [dist.all_reduce(torch.ones(1000, device=DEVICE), async_op=True) for _ in range(20)]
    pairs = dist.irecv(torch.ones(1, device=DEVICE), world - 2) if rank == 0 and world > 2 else None
    if rank == world - 2 and world > 2:
        dist.isend(torch.ones(1, device=DEVICE), 0)
    works[0].wait()
    threading.Timer(0.3, cut).start()
    float(ones[0])  # behind the first sum, on the current stream: the host wakes in CUDA, not in a call of ours
    after_the_cut(works[-1])
    del pairs
    dist.barrier()
    print(f"rank {rank}: woken", flush=True)


def run_held():
    call = os.environ["FAKE_NCCL_HOLD"]
    begin()
    threading.Timer(0.3, generation.cut).start()
    device = torch.ones(4, 4, device=DEVICE)
    calls = {"ncclAllReduce": lambda: dist.all_reduce(device), "ncclReduce": lambda: dist.reduce(device, 0), "ncclBroadcast": lambda: dist.broadcast(device, 0),
             "ncclAllGather": lambda: dist.all_gather_into_tensor(torch.ones(4, 4, device=DEVICE), device),
             "ncclReduceScatter": lambda: dist.reduce_scatter_tensor(torch.ones(4, 4, device=DEVICE), device),
             "ncclSend": lambda: dist.all_to_all_single(torch.ones(4, 4, device=DEVICE), device),
             "ncclRecv": lambda: dist.all_to_all_single(torch.ones(4, 4, device=DEVICE), device), "ncclGroupEnd": lambda: dist.all_reduce(device)}  # fmt: skip
    refuses("was aborted: an incident has begun", calls[call])
    refuses("was aborted: an incident has begun", lambda: dist.all_reduce(device))
    assert generation.free(10_000), "its memory was not freed"
    float(device[0][0])
    print(f"{call}: out of it", flush=True)


def run_absent():
    threading.Timer(0.3, generation.cut).start()
    refuses("was aborted: an incident has begun", lambda: generation.connect([(2, 0, nccl.unique_id())]))
    assert generation.free(10_000), "its memory was not freed"
    refuses("was aborted: an incident has begun", lambda: generation.connect([(1, 0, nccl.unique_id())]))
    print("absent: out of it", flush=True)


def run_race():
    """Cut at any moment, beside a thread that launches: freed only when it is out, and it learns it by an exception."""
    drawn = random.Random(seed)
    device = torch.ones(8, device=DEVICE)
    launched = 0
    for _ in range(int(os.environ.get("ROUNDS", "40"))):
        own = EXTENSION.NcclGeneration(nccl)
        comm, = own.connect([(1, 0, nccl.unique_id())])
        group = EXTENSION.NcclCollectives(rank=0, size=1, generation=own, comm=comm, device=DEVICE, store=dist.HashStore(), name="race", high_priority=False)
        pause = drawn.choice([0, 0.0002, 0.001, 0.003])
        freed = []

        def cut(own=own, pause=pause, freed=freed):
            time.sleep(pause)
            own.cut()
            freed.append(own.free(10_000))

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            while True:
                group.allreduce([device], dist.AllreduceOptions()).wait()
                launched += 1
        except RuntimeError as error:
            assert "was aborted" in str(error), error
        thread.join()
        assert freed == [True], "its memory was not freed"
    print(f"race: {launched} launched", flush=True)


globals()[f"run_{mode}"]()
sys.stdout.flush()
os._exit(0)
