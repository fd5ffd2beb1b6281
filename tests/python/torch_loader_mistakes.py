"""Loaders: what is refused and by which words, what a step has written into its batch, what skipping costs, other numbers of ranks. Needs no run."""
import pickle
import random

import numpy
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import kintsugi
from kintsugi.torch.loaders import Batches, makers_of


def refused(words, act):
    try:
        act()
    except kintsugi.Error as error:
        assert words in str(error), f"expected '{words}', found: {error}"
        return error
    raise AssertionError(f"not refused: {words}")


def taken(batches, count):
    return [batches.next() for _ in range(count)]


def begun(loader, position=0, epoch=0, keep=1):
    batches = Batches(loader, "data")
    batches.keep(keep)
    batches.begin(epoch)
    taken(batches, position)
    return batches


class Endless(IterableDataset):
    def __iter__(self):
        yield from range(10)


class WithState(Endless):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Repeating(DataLoader):
    def __iter__(self):
        return super().__iter__()


class Kept(DataLoader):
    state_dict, load_state_dict = WithState.state_dict, WithState.load_state_dict


class Wrapper:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


def batches_of(loader):
    yield from loader


prepared = type("DataLoaderShard", (DataLoader,), {"__module__": "accelerate.data_loader"})
for words, loader in (
    ("loader 'data' cannot be replayed: its data set, a Endless, is an IterableDataset without state_dict", DataLoader(Endless())),
    ("torchdata's StatefulDataLoader in place of DataLoader, or num_workers=0", DataLoader(WithState(), num_workers=2)),
    ("a generator can be walked once: give the DataLoader or the list that it walks", batches_of([1])),
    ("a enumerate can be walked once", enumerate([1])),
    ("several loaders side by side are no loader: walk one of them", zip(DataLoader([1]), DataLoader([2]))),
    ("(torch.utils.data.StackDataset(first, second))", (DataLoader([1]), DataLoader([2]))),
    ("nobody knows what the next iter() of a Wrapper gives", Wrapper([1])),
    ("nobody knows what the next iter() of a dict gives", {"a": 1}),
    ("in_order=False leaves the order of its batches to chance", DataLoader([1], num_workers=1, in_order=False)),
    ("what the workers of a Kept draw is not known to be in its state", Kept(range(4), num_workers=1)),
    ("Repeating iterates in a way of its own", Repeating([1])),
    ("DataLoaderShard is what accelerator.prepare has made", prepared([1])),
):
    assert refused(words, lambda: Batches(loader, "data")).code == kintsugi.abi.Code.INVALID_ARGUMENT  # noqa: B023
peeked = DataLoader(range(4), num_workers=1, persistent_workers=True)
next(iter(peeked))
refused("its persistent workers run already", lambda: Batches(peeked))
refused("begin() comes first", Batches([1]).next)
refused("begin() comes first", lambda: Batches([1]).seek(0))

# A pass's ends.
for loader in (DataLoader(range(6), 2), DataLoader(range(6), 2, num_workers=1), [1, 2, 3]):
    batches = begun(loader)
    batches.seek(3)
    refused("position 4 is behind the last batch of the pass", lambda: batches.seek(4))  # noqa: B023
    refused("there is no position -1", lambda: batches.seek(-1))  # noqa: B023
    assert len(loader) == batches.length_hint() == 3
assert Batches(DataLoader(WithState(), 2)).length_hint() is None

# Whatever a step does to its batch, the step that is done once more gets what it was.


def spoil(batch):
    batch["row"].mul_(3)


def add_and_drop(batch):
    batch["more"] = batch.pop("row").requires_grad_()
    batch["more"].sum().backward()
    batch["list"].append(1)
    batch["array"] += 1


class Rows:
    def __len__(self):
        return 9

    def __getitem__(self, i):
        return {"row": torch.full((2,), float(i)), "array": numpy.full(2, i), "list": [i], "of": (i, None)}


for change in (spoil, add_and_drop):
    for keep in (0, 1, 3):
        batches = begun(DataLoader(Rows(), None, collate_fn=lambda row: row), 3, keep=keep)
        for _ in range(3):
            batches.seek(3)
            batch = batches.next()
            assert type(batch) is dict and list(batch) == ["row", "array", "list", "of"], batch
            assert batch["row"].tolist() == [3, 3] and not batch["row"].requires_grad and batch["row"].grad is None, batch
            assert list(batch["array"]) == [3, 3] and batch["list"] == [3] and batch["of"] == (3, None), batch
            change(batch)
        assert batches.next()["row"].tolist() == [4, 4]
own_memory = torch.zeros(6, 2)
for loader in (list(own_memory), own_memory, DataLoader(TensorDataset(own_memory), batch_size=None, shuffle=True)):
    batches = begun(loader, 1)
    batch = batches.next()
    (batch[0] if isinstance(batch, (list, tuple)) else batch).add_(1)
    batches.seek(1)
    refused("the step has written into batch 1, which is the data set's own memory", batches.next)


# What is kept is handed out without asking, and the rest is walked without the data.
class Asked:
    def __init__(self, size=40):
        self.size, self.asked = size, []

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        self.asked.append(i)
        return i


data = Asked()
batches = begun(DataLoader(data, 1, shuffle=True), 10, keep=4)
first, data.asked = data.asked, []
batches.seek(6)
again = taken(batches, 4)
assert [int(batch) for batch in again] == first[6:] and data.asked == []
batches.seek(5)
assert int(batches.next()) == first[5] and data.asked == [first[5]]
data = Asked(400_000)
state = begun(DataLoader(data, 2, shuffle=True), 1).state_dict()
batches = begun(DataLoader(data, 2, shuffle=True))
batches.seek(100_000)
expected, later, data.asked = batches.next(), batches.state_dict(), []
other = Batches(DataLoader(data, 2, shuffle=True))
other.load_state_dict(pickle.loads(pickle.dumps(later)))
other.seek(100_000)
assert torch.equal(other.next(), expected) and len(data.asked) == 2, data.asked
assert len(pickle.dumps(state)) < 6000 and len(pickle.dumps(later)) < 6000


# An exception of the data set's: the batch comes when it can be had.
class Fails(Rows):
    left, generator = 1, torch.Generator()

    def __getitem__(self, i):
        number = float(torch.rand(1, generator=self.generator))
        if i == 4 and Fails.left:
            Fails.left -= 1
            raise OSError("no such file so far")
        return i, number


for workers in (0, 1):
    Fails.left = 0
    Fails.generator.manual_seed(1)
    expected = taken(begun(DataLoader(Fails(), 2, num_workers=workers)), 5)
    Fails.generator.manual_seed(1)
    Fails.left = 1
    batches = begun(DataLoader(Fails(), 2, num_workers=workers), 2)
    try:
        batches.next()
    except OSError:
        assert batches.position() == 2
    else:
        raise AssertionError("a data set's exception was swallowed")
    Fails.left = 0  # also of the processes that come
    for wanted, found in zip(expected[2:], taken(batches, 3)):
        assert all(torch.equal(a, b) for a, b in zip(wanted, found)), (wanted, found)


# Samplers that give something else when they are walked again.
class GoesOn(Sampler):
    at = 0

    def __iter__(self):
        while True:
            self.at += 1
            yield self.at % 40

    def __len__(self):
        return 40


class DrawsEachTime(Sampler):
    def __iter__(self):
        for _ in range(400):
            yield random.randrange(40)


batches = begun(DataLoader(Asked(), 2, sampler=GoesOn()), 6)
batches.seek(2)
refused("its sampler GoesOn, walked again from the pass's beginning, gives other indices than before", lambda: taken(batches, 6))


def draw_beside():
    batches = begun(DataLoader(Asked(), 2, sampler=DrawsEachTime()))
    for _ in range(90):
        batches.next()
        random.random()


refused("its sampler DrawsEachTime draws again and again from python, which others draw from, too", draw_beside)

# A state of another loader.
state = begun(DataLoader(range(40), 2), 3).state_dict()
refused("that was Mapped of 20 batches, this is Mapped of 10", lambda: Batches(DataLoader(range(40), 4)).load_state_dict(state))
generator = torch.Generator().manual_seed(1)
state = begun(DataLoader(range(40), 2, shuffle=True, generator=generator), 3).state_dict()
refused("a random generator 'generator', and this loader has none", lambda: Batches(DataLoader(range(40), 2, shuffle=True)).load_state_dict(state))


# Other ranks: no sample twice, none left out, in the epoch's order.
def sharded(size, ranks, rank, batch=2, drop_last=False, whole=False):
    sampler = DistributedSampler(range(size), num_replicas=ranks, rank=rank, drop_last=drop_last, seed=4)
    return DataLoader(range(size), batch, sampler=sampler) if not whole else DataLoader(range(size), batch_sampler=BatchSampler(sampler, batch, drop_last))


def all_of(batches):
    found = []
    try:
        while True:
            found.append(batches.next().tolist())
    except StopIteration:
        return found


def interleaved(ranks):
    """The epoch's order again, from what each rank has had."""
    lines = [[sample for batch in rank for sample in batch] for rank in ranks]
    return [sample for row in zip(*lines) for sample in row]


for size, drop_last in ((48, False), (50, False), (51, True)):
    for counts in ((4, 2), (2, 3), (3, 1), (2, 4, 3)):
        order, had, states = interleaved([all_of(begun(sharded(size, 1, 0), epoch=1))]), [], None
        for turn, ranks in enumerate(counts):
            lines = [Batches(sharded(size, ranks, rank, drop_last=drop_last)) for rank in range(ranks)]
            for batches in lines:
                if states is None:
                    batches.begin(1)
                else:
                    batches.load_state_dict(pickle.loads(pickle.dumps(batches.take_over(states))))
            last = turn == len(counts) - 1
            had += interleaved([all_of(batches) if last else [b.tolist() for b in taken(batches, 2)] for batches in lines])
            states = [(batches.state_dict(), -1) for batches in lines]
        if drop_last:
            assert had == order[: len(had)] and len(order) - len(had) < max(counts), (size, counts)
        else:
            assert had[: len(order)] == order and len(had) - len(order) < max(counts), (size, counts, had, order)
        for batches, rank in zip(lines, range(ranks)):
            batches.begin(2)
            assert all_of(batches) == all_of(begun(sharded(size, ranks, rank, drop_last=drop_last), epoch=2)), "the next pass is a whole one"

# A set_epoch that was forgotten, or is the script's own.
forgotten = sharded(48, 2, 1)
batches = Batches(forgotten)
for epoch in (None, None, 3):
    if epoch is not None:
        forgotten.sampler.set_epoch(epoch)
    plain = [batch.tolist() for batch in forgotten]
    batches.begin(None)
    assert [batch.tolist() for batch in taken(batches, 5)] == plain[:5]
    other = Batches(sharded(48, 2, 1))
    other.load_state_dict(batches.state_dict())
    assert all_of(other) == plain[5:]

# What gives an order, or samples, is read for what it carries from pass to pass, wherever it lies; a loader that has a state keeps it itself.
class Counting(Sampler):
    def __iter__(self):
        yield from range(8)

    def state_dict(self):
        return {}

    load_state_dict = state_dict


def read(loader):
    return {maker.__qualname__ for maker in makers_of(loader) if hasattr(maker, "__self__")}


within = DataLoader(range(8), batch_sampler=BatchSampler(Counting(), 2, False))
assert read(within) == read(DataLoader(range(8), sampler=Counting())) == {"Counting.__iter__"}
assert read(DataLoader(Endless())) == {"Endless.__iter__"} and read(DataLoader(range(8), shuffle=True)) == set()
within.state_dict = within.load_state_dict = dict
assert read(within) == set()

states = [(begun(sharded(48, 2, rank, whole=True), 2, epoch=2).state_dict(), 0) for rank in range(2)]
one = Batches(sharded(48, 1, 0, whole=True), "data")
one.load_state_dict(one.take_over(states))
assert interleaved([all_of(one)]) == interleaved([all_of(begun(sharded(48, 1, 0), epoch=2))])[12:]
states[1] = begun(sharded(48, 2, 1, whole=True), 4, epoch=2).state_dict(), 0
refused("loader 'data' cannot go on with another number of ranks: the ranks that saved stood at different batches", lambda: one.take_over(states))
for loader in (DataLoader(range(40), 2, shuffle=True), [1, 2, 3]):
    refused("loader 'data' cannot go on with another number of ranks", lambda: Batches(loader, "data").take_over([(begun(loader, 2).state_dict(), 0)]))  # noqa: B023
print("ok")
