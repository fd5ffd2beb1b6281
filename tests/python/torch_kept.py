"""What an optimizer holds is kept, or refused by name; drafts; gradients that are added up. Needs no run: memory of this process alone."""
import pickle
import random

import torch

import kintsugi
from kintsugi.torch import _build, dry_step
from kintsugi.torch.accumulation import Accumulation
from kintsugi.torch.drafts import Drafts, bytes_of
from kintsugi.torch.optimizers import KeptOptimizer, Record, materialise, refuse

extension = _build.load()


def refused(words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kintsugi.Error as error:
        assert words in str(error), f"'{words}' is not in '{error}'"
        return
    raise AssertionError(f"not refused: {words}")


def kept_of(optimizer, model, hooks=True):
    kept = KeptOptimizer("optimizer", optimizer, {p: name for name, p in model.named_parameters()}, lambda: 0, extension.StateValues())
    assert [name for name, *_ in kept.records(lambda _: False)] == [".values"]
    kept.begin()
    if hooks:
        kept.hook(lambda *_: None, lambda *_: None)
    return kept


def step(model, optimizer, value=1.0):
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value) if parameter.requires_grad else None
    optimizer.step()


class Own(torch.optim.Optimizer):
    def __init__(self, parameters, change, **settings):
        super().__init__(parameters, {"lr": 0.1, **settings})
        self.change = change

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.change(self, group, parameter, self.state[parameter])


# Nothing is left of the dry step: values, gradients, states, groups, attributes, generators, other tensors, the hooks of others.
def everything(optimizer, group, parameter, state):
    parameter.sub_(torch.rand(()) + random.random())
    state["made"], state["count"] = torch.ones(3), state.get("count", 0) + 1
    group["k"] += 1
    group["list"].append(1)
    optimizer.seen["times"] = optimizer.seen.get("times", 0) + 1
    optimizer.new = 5
    other.add_(1)


other = torch.zeros(2)
model = torch.nn.Linear(2, 2)
model.weight.grad = torch.full_like(model.weight, 3.0)
optimizer = Own(model.parameters(), everything, k=0, list=[])
optimizer.seen = {}
told = []
optimizer.register_step_post_hook(lambda *_: told.append(1))
before = [p.detach().clone() for p in model.parameters()]
torch.manual_seed(4), random.seed(4)
drawn = torch.rand(1), random.random()
torch.manual_seed(4), random.seed(4)
members = dry_step.learn(optimizer, lambda: 0, [other])
assert (torch.rand(1), random.random()) == drawn and told == []
assert all(map(torch.equal, before, model.parameters())) and torch.equal(other, torch.zeros(2))
assert model.bias.grad is None and model.weight.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]
assert not optimizer.state and optimizer.param_groups[0]["k"] == 0 and optimizer.param_groups[0]["list"] == []
assert optimizer.seen == {} and not hasattr(optimizer, "new")
assert len(members[0].beside) == 1 and members[0].beside[0] is other, "what is changed beside the parameters goes into drafts, too"
assert members[0].made[model.bias]["made"].tolist() == [0.0] * 3, "what it made is a shape, and no value"

# After any number of updates another process has them all: settings from the object at the gate, the rest from registered memory.
def process():
    torch.manual_seed(1)
    model = torch.nn.Linear(2, 2)
    optimizer = Own(model.parameters(), everything, k=0, list=[0])
    optimizer.seen = {}
    return model, optimizer, kept_of(optimizer, model)


def facts(optimizer):
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups], optimizer.seen, getattr(optimizer, "new", None), [
        {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in state.items()} for state in optimizer.state.values()]  # fmt: skip


for updates in range(4):
    model, optimizer, kept = process()
    gate = pickle.dumps(kept.state_dict())
    for number in range(updates):
        optimizer.param_groups[0]["lr"] = 0.5**number  # a scheduler's
        gate = pickle.dumps(kept.state_dict())
        step(model, optimizer)
    other_model, other_optimizer, other_kept = process()
    step(other_model, other_optimizer)  # whatever it has been through
    for mine, theirs in zip(other_kept.tensors(), kept.tensors()):
        mine.detach().copy_(theirs)
    other_kept.load_state_dict(pickle.loads(gate))
    assert facts(other_optimizer) == facts(optimizer), (updates, facts(other_optimizer), facts(optimizer))
    assert len(other_optimizer.state) == (2 if updates else 0)
    # At the end of the step the object has all of it, and nothing is added twice.
    other_kept.load_state_dict(pickle.loads(pickle.dumps(kept.state_dict())))
    assert facts(other_optimizer) == facts(optimizer), updates
    step(model, optimizer), step(other_model, other_optimizer)
    assert facts(other_optimizer) == facts(optimizer), updates
    records = [[*one.tensors()][-1] for one in (kept, other_kept)]
    kept.state_dict(), other_kept.state_dict()
    step(model, optimizer), step(other_model, other_optimizer)
    assert torch.equal(*records), "ranks would differ in their memory"
assert kept.take_over({1: pickle.loads(gate)}) == pickle.loads(gate)
refused("2 parameter groups were saved, this optimizer has 1", kept.take_over, {0: {"groups": [{}, {}]}})

# A rate that is a tensor stays the one that others know.
rate = torch.tensor(0.5)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=rate)
kept = kept_of(optimizer, model)
saved = pickle.loads(pickle.dumps(kept.state_dict()))
rate.fill_(0.25)
kept.load_state_dict(saved)
assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.5

# In memory of its own, on the very tensors that are registered.
held = {id(state.value) for state in kept.states()}
step(model, optimizer)
assert {id(value) for state in optimizer.state.values() for value in state.values()} == held
optimizer.load_state_dict(optimizer.state_dict())
step(model, optimizer)
assert {id(value) for state in optimizer.state.values() for value in state.values()} == held

# A record has no room for what grows without end.
record = Record(64)
record.write([1, None, (2.5, "text")])
assert record.read() == [1, None, (2.5, "text")]
refused("for which run.register took 64", record.write, "x" * 64)


# ---- refused by name --------------------------------------------------------------------------------------------------------


def own(change, **attributes):
    model = torch.nn.Linear(2, 2)
    optimizer = Own(model.parameters(), change)
    vars(optimizer).update(attributes)
    return optimizer, model


class Helper:
    def __init__(self):
        self.count = 0


def counts(optimizer, *_):
    optimizer.helper.count += 1


refused("changes what it keeps in 'helper.count', of which nobody knows", kept_of, *own(counts, helper=Helper()))
refused("changes what it keeps in 'sums[0]'", kept_of, *own(lambda o, *_: o.sums[0].add_(1), sums=[torch.zeros(1)]))
refused("changes what it keeps in 'late'", kept_of, *own(lambda o, *_: setattr(o, "late", torch.zeros(1)), late=None))
refused("keeps state under 'all', which is no parameter", kept_of, *own(lambda o, *_: o.state["all"].update(k=1)))
refused("keeps 'set' of 'weight' as a set: only tensors", kept_of, *own(lambda o, g, p, state: state.update(set={1})))
refused("Own on gradients of ones, to learn what it keeps, and ZeroDivisionError came of it", kept_of, *own(lambda *_: 1 / 0))
refused("of shape [2, 2] belongs to no model", KeptOptimizer, "optimizer", own(counts)[0], {}, lambda: 0, None)
calls = iter(range(9))
refused("Own.step() holds 1 collectives", dry_step.learn, own(lambda *_: None)[0], lambda: next(calls))
refused("SparseAdam takes sparse gradients", refuse, "it", torch.optim.SparseAdam(model.parameters()))
refused("LBFGS evaluates the model", refuse, "it", torch.optim.LBFGS(model.parameters()))


class NoOptimizer:
    param_groups = []

    def step(self):
        pass


refused("'it' is a NoOptimizer, which does not call torch.optim.Optimizer.__init__", refuse, "it", NoOptimizer())
refuse("it", torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters()), 1))
refused("SGD with dampening makes its states in its first step", materialise, torch.optim.SGD(model.parameters(), momentum=0.5, dampening=0.5), lambda: 0)
refused("Rprop makes its states in its first step", materialise, torch.optim.Rprop(model.parameters()), lambda: 0)

# In the step that adds, before its update is committed.
for frozen, add, words in ((True, False, "'0.weight' was frozen when 'optimizer' was registered, and is trained now"),
                           (False, True, "'1.weight' was added to 'optimizer' after run.register (add_param_group)")):  # fmt: skip
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    model[0].requires_grad_(not frozen)
    optimizer = torch.optim.AdamW(model[0].parameters() if add else model.parameters())
    kept = kept_of(optimizer, model, hooks=False)
    closed = []
    kept.hook(lambda *_: None, lambda *_: closed.append(1))
    step(model, optimizer)
    assert closed == [1]
    model.requires_grad_(True)
    if add:
        optimizer.add_param_group({"params": [model[1].weight]})
    for _ in range(2):
        refused(words, step, model, optimizer)
    assert closed == [1]


def late(optimizer, group, parameter, state):
    state["steps"] = state.get("steps", 0) + 1
    if state["steps"] == 2:
        state["second"] = torch.ones(1)


def other_shape(optimizer, group, parameter, state):
    state["sum"] = parameter.grad.sum() if parameter.grad.flatten()[0] == 1 else parameter.grad.clone()


def in_group(optimizer, group, parameter, state):
    if parameter.grad.flatten()[0] == 2:
        group["sum"] = torch.ones(1)


for change, words in ((late, "makes 'second' of 'weight' in a later step than its first"), (in_group, "the update changes 'sum' of group 0, a Tensor"),
                      (other_shape, "made 'sum' of 'weight' as torch.float32 [2, 2] on cpu, and at run.register, for a dense gradient, as torch.float32 []")):  # fmt: skip
    optimizer, model = own(change)
    kept_of(optimizer, model)
    step(model, optimizer)
    refused(words, step, model, optimizer, 2.0)


# ---- drafts -----------------------------------------------------------------------------------------------------------------

registered = [torch.arange(6.0), torch.ones(3, 2)]
memory = [one.clone() for one in registered]  # stands for memory that is shared
for tensor, place in zip(registered, memory):
    extension.place(tensor, place.data_ptr())
drafts = Drafts(extension)
view = registered[0][2:4]
for committed in (True, False, True):
    was = [one.clone() for one in memory]
    drafts.before_step(registered)
    registered[0].add_(1), view.mul_(2)
    drafts.before_step([view])  # a second step of the same, or of one that shares it
    registered[1].sub_(1)
    assert all(map(torch.equal, was, memory)), "what is registered changed before the gate"
    now = [one.clone() for one in registered]
    drafts.commit() if committed else drafts.drop()
    assert all(map(torch.equal, registered, now if committed else was)) and all(map(torch.equal, registered, memory))
    assert [one.data_ptr() for one in registered] == [one.data_ptr() for one in memory] and view.tolist() == memory[0][2:4].tolist()
assert drafts.bytes() == bytes_of([*registered, view]) == 48

# ---- gradients that are added up --------------------------------------------------------------------------------------------

model = torch.nn.Linear(2, 1)
names = {p: name for name, p in model.named_parameters()}


def backward(value=1.0):
    model(torch.full((1, 2), value)).sum().backward()


def none():
    model.zero_grad()


for clear in (none, lambda: model.zero_grad(set_to_none=False)):
    sums = Accumulation()
    backward(), sums.end_step(1, [model], names)
    clear(), sums.begin_step(), backward(), sums.end_step(2, (), names)
    backward(), sums.end_step(3, [model], names)
    loss = model(torch.ones(1, 2)).sum()
    clear(), loss.backward(), backward(), sums.forget()
    assert all(not p._backward_hooks for p in model.parameters())
    clear()
sums = Accumulation()
backward(), backward(), sums.end_step(1, (), names)  # within a step, and left behind by an update
backward(), sums.end_step(2, [model], names)
refused("is added to what step 2 left behind without an update, and a fault would drop that", backward)
none()
refused("put all micro-batches of one update into one step", sums.begin_step)
print("ok")
