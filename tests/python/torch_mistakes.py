"""Mistakes with kintsugi.torch get a sentence. Needs no run: an agent that joined nothing stands in where one is asked for."""
import contextlib
import os
import types

import torch
from torch.distributed.algorithms import Join
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import prune

import kintsugi
from kintsugi.torch import ReplicaOptimizer, _build, built, ddp_layout, dry_step, groups, optimizers, parallel, registry, refused as where_made, state
from kintsugi.torch.devices import Device
from kintsugi.torch.replica_optimizer import _deal_out


def refused(words, function, *arguments):
    try:
        function(*arguments)
    except kintsugi.Error as error:
        assert words in str(error), f"'{words}' is not in '{error}'"
        return
    raise AssertionError(f"not refused: {words}")


class Elsewhere(torch.optim.SGD):
    pass


refused("meta device", state.check, "w", torch.empty(2, device="meta"))
refused("'w' is on xpu:1: kintsugi.torch protects state on the cpu and on CUDA devices", state.check, "w",
        types.SimpleNamespace(is_meta=False, device=torch.device("xpu", 1)))
refused("is sparse", state.check, "w", torch.zeros(2, 2).to_sparse())


class Hollow(torch.Tensor):
    """Made of tensors that it does not name."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("not reached")


refused("'w' is a Hollow, which has no memory of its own", state.check, "w", torch.Tensor._make_wrapper_subclass(Hollow, (2, 2)))
parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.5)
refused("'train_set' is a DataLoader, whose state does not move the iterator that a loop has of it: leave it out of run.register and write "
        "`for batch in run.batches(train_set, epoch):`", optimizers.refuse, "train_set", torch.utils.data.DataLoader([1]))  # fmt: skip
refused("a RandomSampler does not tell how much it has drawn", state.Epoch, torch.utils.data.RandomSampler(range(3)))

# Groups of another backend, and updates with collectives. A world of one is enough: a group of two that has no second member.
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
groups.refuse_others()
world = torch.distributed.distributed_c10d._world
world.pg_group_ranks[torch.distributed.group.WORLD] = {0: 0, 1: 1}
refused('the default group is of backend "cpu:gloo', groups.refuse_others)
world.pg_group_ranks[torch.distributed.group.WORLD] = {0: 0}
refused("WithCollectives.step() holds 3 collectives", dry_step.refuse_collectives, type("WithCollectives", (), {})(), 3)

# Parts of an optimizer: dealt out alike everywhere, any elementwise or per-parameter optimizer within.
model = torch.nn.Linear(3, 2)
whole = torch.nn.Linear(3, 2)
whole.load_state_dict(model.state_dict())
shared = ReplicaOptimizer(model.parameters(), torch.optim.Adagrad, copies=1, lr=0.5)
plain = torch.optim.Adagrad(whole.parameters(), lr=0.5)
for layer, stepped in ((model, shared), (whole, plain)):
    layer(torch.ones(1, 3)).sum().backward()
    stepped.param_groups[0]["lr"] = 0.25
    stepped.step()
assert torch.equal(model.weight, whole.weight) and torch.equal(model.bias, whole.bias)
dealt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.5)
optimizers.refuse("parts", dealt)
for why, other in (("a Own, a ZeroRedundancyOptimizer with a step of which nobody knows", type("Own", (ZeroRedundancyOptimizer,), {})(model.parameters(), torch.optim.Adam)),
                   ("a ZeroRedundancyOptimizer that updates within the backward pass (overlap_with_ddp)",
                    ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, overlap_with_ddp=True))):  # fmt: skip
    refused(f"'parts' is {why}", optimizers.refuse, "parts", other)
    refused("kintsugi.torch.ReplicaOptimizer(model.parameters(), ", optimizers.refuse, "parts", other)
for copies in (0, 2):
    refused(f"1 ranks cannot keep {copies} copies", lambda copies=copies: ReplicaOptimizer(model.parameters(), torch.optim.SGD, copies=copies, lr=0.1))
refused("none can be added", shared.add_param_group, {"params": [parameter]})
refused("call backward before", shared.step, lambda: None)
assert list(_deal_out([torch.ones(4), torch.ones(9), torch.ones(5)], 2).values()) == [1, 0, 1]

# Sharded tensors of which no rank has the value.
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
partial = DTensor.from_local(torch.ones(2), mesh, [Partial()])
refused("partial sums", parallel.piece_of, "w", partial, (0,))
refused("meta device", state.check, "w", DTensor.from_local(torch.ones(2, device="meta"), mesh, [Replicate()]))

# What a broken step leaves: torch's own wrappers can be reset, what communicates by itself cannot.
class Averaged(torch.nn.Module):
    def __init__(self, **kept):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.__dict__.update(kept)


def reasons(module):
    return " and ".join(parallel.not_resettable([torch.nn.Sequential(module)]))


group = torch.distributed.group.WORLD
for known in (torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)), fully_shard(torch.nn.Linear(2, 2)),
              torch.nn.SyncBatchNorm(2, process_group=group), Averaged(mesh=mesh), Averaged(nothing=[], none=None)):  # fmt: skip
    assert reasons(known) == "", reasons(known)
for kept in ({"group": group}, {"works": [torch.distributed.all_reduce(torch.ones(1), async_op=True)]}, {"groups": {"data": group}}):
    assert f"what Averaged (0) keeps of the broken step is not known, as its '{min(kept)}'" in reasons(Averaged(**kept)), kept
hooked = torch.nn.Linear(2, 2)
hooked.bias.register_post_accumulate_grad_hook(lambda _: None)
assert "the hooks on the gradient of '0.bias'" in reasons(hooked)
refused("is wrapped in FullyShardedDataParallel", parallel.refuse_flat, "w", FullyShardedDataParallel(torch.nn.Linear(2, 2), device_id=torch.device("cpu")))

# What is left gathered behind an update would be computed with as it was before.
kept = fully_shard(torch.nn.Sequential(torch.nn.Linear(2, 2)))
gathered = [*parallel.sharded_groups(kept)]
kept.set_reshard_after_backward(False)
kept(torch.ones(1, 2)).sum().backward()
refused("step 3 left parameters of 'Sequential' gathered behind their update", parallel.refuse_gathered, gathered, 3)
kept.reshard()
parallel.refuse_gathered(gathered, 3)
kept.set_reshard_after_backward(True)
kept(torch.ones(1, 2)).sum().backward()
parallel.refuse_gathered(gathered, 3)

# Collectives of a script's own in FSDP2, and hooks there.
class Gathering:
    def hook(self, gradients: torch.Tensor) -> None:
        raise AssertionError("not reached")


where_made.refuse_own_means(gathered)
kept.set_all_reduce_hook(lambda gradients: gradients.mul_(0.5))
where_made.refuse_own_means(gathered)
kept.set_all_reduce_hook(Gathering().hook)
refused("its set_all_reduce_hook Gathering.hook keeps a Gathering", where_made.refuse_own_means, gathered)
kept.set_custom_reduce_scatter(Gathering())
refused("fully_shard of Sequential: what the Gathering of set_custom_reduce_scatter keeps", where_made.refuse_own_means, gathered)

# Communication hooks of DistributedDataParallel: torch's own without a state go, of those with one it is said what they keep.
class Compressing:
    def compress(self, state: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        raise AssertionError("not reached")


def under(hook, kept=None):
    wrapped = DistributedDataParallel(torch.nn.Linear(2, 2))
    wrapped.register_comm_hook(kept, hook)
    return torch.nn.Sequential(wrapped)


sgd = powerSGD_hook.PowerSGDState(group)
for stateless in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, quantization_hooks.quantization_pertensor_hook,
                  default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)):  # fmt: skip
    for kept in (None, group):
        ddp_layout.refuse(under(stateless, kept))
assert ddp_layout.hooks_of([under(default_hooks.fp16_compress_hook)]) == ["Linear reduces its gradients by fp16_compress_hook, which keeps no state"]
for words, model_of in (("powerSGD_hook keeps a PowerSGDState", under(powerSGD_hook.powerSGD_hook, sgd)),
                        ("keeps a PowerSGDState", under(default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook), sgd)),
                        ("Compressing.compress keeps a Compressing", under(Compressing().compress))):  # fmt: skip
    refused(words, ddp_layout.refuse, model_of)
late = torch.nn.Linear(2, 2)
refused("delay_all_reduce_named_params begins a sum", ddp_layout.refuse, DistributedDataParallel(
    torch.nn.Sequential(late, torch.nn.Linear(2, 2)), delay_all_reduce_named_params=[("0.weight", late.weight)], param_to_hook_all_reduce=late.bias))

# A step under no_sync() alone: ranks would go on with weights of their own.
apart, layouts = DistributedDataParallel(torch.nn.Linear(2, 2)), ddp_layout.DdpLayouts(None)
layouts.follow([apart])
apart.process_group = types.SimpleNamespace(size=lambda: 2)
layouts.refuse_unsummed(3)  # no gradients: no update of theirs
apart.module.weight.grad = torch.ones(2, 2)
refused("step 3: nothing has summed up the gradients of DistributedDataParallel around Linear over its ranks (no_sync, LocalSGD)", layouts.refuse_unsummed, 3)
apart.process_group = group  # of one
layouts.refuse_unsummed(3)

# What is registered a second time would have two updates, and one comes.
books = registry.Registry(type("Run", (), {"agent": None, "state_memory": None})(), _build.load(), None, registry.Hooks(*[lambda *_: None] * 3), lambda: 0)
books._refuse_second("model", late)
refused("'again' is registered already, as 'model'", books._refuse_second, "again", late)

# What torch can do and a run cannot keep is refused where it is made.
trains = []
where_made.watch(lambda: bool(trains), _build.load(), Device(None, _build.load()), lambda: False)
uneven = DistributedDataParallel(torch.nn.Linear(2, 2))
refused("Join (DistributedDataParallel.join) lets ranks end a step", lambda: Join([uneven]))
refused("Join (DistributedDataParallel.join) lets ranks end a step", uneven.join)
uneven.join(enable=False)
torch.distributed.new_group([0], backend="gloo")
trains.append(True)
torch.distributed.new_group([0], backend="gloo")  # alone: nobody waits in it
refused('a group of backend "gloo" is made while the run trains', torch.distributed.distributed_c10d._new_process_group_helper, 2, 0, [0, 1], "gloo", None, "x")
heard = [5]
torch.distributed.broadcast_object_list(heard, src=0)
assert heard == [5]

# A step that makes a registered model another; as it was, with values alone, or one of another model it may be.
steps, growing = [], torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(2, 2)))
where_made.watch_parts(lambda: bool(steps), lambda: {"model": growing})
growing[1] = torch.nn.GELU()
steps.append(True)
growing[1] = torch.nn.GELU()
growing[0].loss = torch.nn.MSELoss()
torch.nn.Sequential(torch.nn.Linear(2, 2)).append(torch.nn.ReLU())
growing[0].weight = torch.nn.Parameter(torch.zeros(2, 2))
refused("'model.1' becomes a ReLU, and was a GELU at run.register", growing.__setitem__, 1, torch.nn.ReLU())
refused("'model.2.1' becomes a ReLU, and was none at run.register", growing[2].append, torch.nn.ReLU())
refused("'model.2.0.weight_orig' becomes a parameter, and was none", prune.l1_unstructured, growing[2][0], "weight", 0.5)
steps.clear()

# A group that answers alone: what others would have sent is zeros, and objects, whose sizes these would be, are refused by name.
alone = _build.load().OuterGroup(1, 2, "alone", 1000)
of_two = torch.distributed.ProcessGroup(torch.distributed.HashStore(), 1, 2)
of_two._register_backend(torch.device("cpu"), torch.distributed.ProcessGroup.BackendType.CUSTOM, alone)
told = [None]
for call, *arguments in ((torch.distributed.broadcast_object_list, told, None, of_two), (torch.distributed.recv_object_list, told, None, of_two),
                         (torch.distributed.scatter_object_list, told, None, None, of_two)):  # fmt: skip
    refused(f"{call.__name__}: this process takes the place of a lost rank", call, *arguments)
told = ["mine"]
torch.distributed.broadcast_object_list(told, group=of_two, group_src=1)
assert told == ["mine"], told
received = torch.full((3,), 7.0)
alone.recv([received], 0, 0).wait()
assert received.tolist() == [0, 0, 0], received
received.fill_(7)
alone.recv_anysource([received], 0).wait()
assert received.tolist() == [0, 0, 0], received
received.fill_(7)
alone.scatter([received], [], torch._C._distributed_c10d.ScatterOptions()).wait()
assert received.tolist() == [0, 0, 0], received
alone.broadcast([received.fill_(7)], torch._C._distributed_c10d.BroadcastOptions()).wait()
assert received.tolist() == [7, 7, 7], "a model keeps what it was made of"
for why in ("an incident has begun", "the run has ended"):
    alone.close(why)
    try:
        alone.broadcast([received], torch._C._distributed_c10d.BroadcastOptions())
    except torch.distributed.DistBackendError as error:
        assert f"BROADCAST is refused: the group is closed, {why}" in str(error), error
    else:
        raise AssertionError("a closed group answers")

# What run.build's function has to be.
for wrong in (lambda: (model, optimizer), lambda: {1: model}):
    refused("it returns what it made by name", built.Builder(wrong, False, types.SimpleNamespace(building=contextlib.nullcontext))._call)
try:
    built.Built({"model": model}).optimizer
except AttributeError as error:
    assert "made no 'optimizer', but model" in str(error), error

version = torch.__version__
torch.__version__ = "1.13.1"
refused("torch 1.13.1 is not supported", _build.load)
torch.__version__ = version
print("ok", flush=True)
# Without the interpreter's end: a thread of Gloo's that lets go of a work meanwhile is ended in a destructor, and torch terminates.
os._exit(0)
