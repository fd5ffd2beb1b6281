"""Mistakes with kintsugi.torch get a sentence. Needs no run: an agent that joined nothing stands in where one is asked for."""
import os

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate

import kintsugi
from kintsugi.torch import ReplicaOptimizer, _build, built, dry_step, groups, optimizers, parallel, state
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
refused("is sparse", state.check, "w", torch.zeros(2, 2).to_sparse())


class Hollow(torch.Tensor):
    """Made of tensors that it does not name."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("not reached")


refused("'w' is a Hollow, which has no memory of its own", state.check, "w", torch.Tensor._make_wrapper_subclass(Hollow, (2, 2)))
parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.5)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
refused("ReduceLROnPlateau", state.Schedule, schedule)
refused("a RandomSampler does not tell how much it has drawn", state.Epoch, torch.utils.data.RandomSampler(range(3)))

# Steps behind the gate are learnt and done again.
rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
kept = state.Schedule(rates)
settings = optimizers.OptimizerGroups(optimizer)
kept.begin_step()
kept.note_gate(True)
at_gate = kept.state_dict(), settings.state_dict()
rates.step()
after = optimizer.param_groups[0]["lr"]
rates.step()
settings.load_state_dict(at_gate[1])
kept.load_state_dict(at_gate[0])
assert optimizer.param_groups[0]["lr"] == after, (optimizer.param_groups[0]["lr"], after)
# Where the update was skipped the step is over when the gate comes: nothing follows.
kept.begin_step()
rates.step()
kept.note_gate(False)
skipped, rate = kept.state_dict(), optimizer.param_groups[0]["lr"]
kept.load_state_dict(skipped)
assert optimizer.param_groups[0]["lr"] == rate, (optimizer.param_groups[0]["lr"], rate)

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
refused("copies must divide", lambda: ReplicaOptimizer(model.parameters(), torch.optim.SGD, copies=2, lr=0.1))
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

# What run.build's function has to be.
for wrong in (lambda: (model, optimizer), lambda: {1: model}):
    refused("it returns what it made by name", built.Builder(wrong, False, groups.Groups.__new__(groups.Groups))._call)
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
