"""Every kind of loader against plain iteration: two passes, back by one and by many, and on in a process of its own; what is refused.

  torch_loaders.py [WORD]           all but those with 'spawned' workers, or those whose name has the word
  torch_loaders.py --go-on FILE     one process that takes the place of others: goes on from the states in the file

Between the batches a trainer draws from the process's generators, too: their order is part of what is compared. Needs no run.
"""
import pickle
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from torch.utils.data import (BatchSampler, ConcatDataset, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, StackDataset, Subset,
                              SubsetRandomSampler, TensorDataset, WeightedRandomSampler)  # fmt: skip
from torch.utils.data.datapipes.map import SequenceWrapper
from torch.utils.data.distributed import DistributedSampler

import kintsugi
from kintsugi.torch.loaders import Batches
from kintsugi.torch.randomness import Randomness

SAMPLES = 30
AT = (0, 1, 3, 6)  # where a state is taken
PASSES = 3


class Rows(Dataset):
    """Counts what it was asked for."""

    def __init__(self):
        self.asked = 0

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        self.asked += 1
        return {"row": torch.full((3,), float(i)), "label": i}


class Noisy(Rows):
    """Draws from all of the process's generators, for some samples more than for others."""

    def __getitem__(self, i):
        more = [random.random() for _ in range(i % 3)]
        return {**super().__getitem__(i), "noise": torch.randn(2), "more": sum(more), "number": numpy.random.random() if i % 2 else 0.0}


class Jitter:
    def __init__(self):
        self.numbers = numpy.random.default_rng(3)

    def __call__(self, row):
        return row + self.numbers.random()


class OwnNoise(Rows):
    """Draws from generators that it keeps, or holds, or finds."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(9)
        self.transforms = [Jitter()]

    def __getitem__(self, i):
        return {"row": self.transforms[0](super().__getitem__(i)["row"]) + torch.rand(1, generator=self.generator), "found": FOUND.random()}


FOUND = random.Random(4)


class Late(Rows):
    """Makes itself a generator for its first sample, another for its collate function's first batch, and a third in each epoch."""

    numbers = of_epoch = None
    epoch = 0  # which set_epoch forgets

    def set_epoch(self, epoch):
        self.of_epoch = random.Random(epoch)

    def __getitem__(self, i):
        if self.numbers is None:
            self.numbers = numpy.random.default_rng(3)
        noise = self.numbers.random() + (self.of_epoch.random() if self.of_epoch else 0.0)
        return {**super().__getitem__(i), "noise": noise}

    def collate(self, rows):
        if not hasattr(self, "made"):
            self.made = {"masks": seeded(4)}
        return [*rows, torch.rand(2, generator=self.made["masks"])]


def late(**options):
    data = Late()
    return DataLoader(data, 4, collate_fn=data.collate, shuffle=True, **options)


class Counting(Rows):
    """Has a state, which is no generator's."""

    def __getitem__(self, i):
        return {**super().__getitem__(i), "asked": self.asked}

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = state["asked"]


class Stream(IterableDataset):
    """Tells where it stands; a pass goes on where the last state that was loaded was."""

    def __init__(self):
        self.at, self.passes = 0, 0

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        while self.at < SAMPLES // stride:
            self.at += 1
            yield {"row": torch.tensor([float(first + stride * self.at), self.passes, random.random()])}
        self.at = 0
        self.passes += 1

    def state_dict(self):
        return {"at": self.at, "passes": self.passes}

    def load_state_dict(self, state):
        self.at, self.passes = state["at"], state["passes"]


class Mixed(Stream):
    """Shuffles in a window: what it comes to follows from what it draws."""

    def __init__(self):
        super().__init__()
        self.window = []

    def __iter__(self):
        while self.at < SAMPLES or self.window:
            while self.at < SAMPLES and len(self.window) < 8:
                self.window.append(self.at)
                self.at += 1
            yield {"row": torch.tensor([self.window.pop(random.randrange(len(self.window))), self.passes])}
        self.at = 0
        self.passes += 1

    def state_dict(self):
        return {**super().state_dict(), "window": [*self.window]}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.window = [*state["window"]]


class Drifting(Counting):
    """The same of a data set that gives samples by their indices."""

    def __getitem__(self, i):
        self.asked += random.randrange(9)
        return super().__getitem__(i)


class Shuffled(Sampler):
    """As many write it: Python's generator, in __iter__ itself."""

    def __iter__(self):
        order = list(range(SAMPLES))
        random.shuffle(order)
        return iter(order)

    def __len__(self):
        return SAMPLES


class Buckets(Sampler):
    """Batches of different sizes, drawn as they come, with a generator of its own."""

    def __init__(self):
        self.generator = random.Random(6)

    def __iter__(self):
        order, at = list(range(SAMPLES)), 0
        self.generator.shuffle(order)
        while at < SAMPLES:
            size = self.generator.randint(2, 6)
            yield order[at : at + size]
            at += size


def seeded(seed=21):
    return torch.Generator().manual_seed(seed)


def with_shared_generator():
    """One generator for what a loader and its sampler draw."""
    generator = seeded()
    return DataLoader(Rows(), 4, sampler=RandomSampler(range(SAMPLES), replacement=True, num_samples=50, generator=generator), generator=generator)


def scaled(number):
    return number * 0.5 + float(torch.rand(1))


def one_behind_another(kind=Noisy):
    return ConcatDataset([Subset(kind(), range(11)), Subset(kind(), range(11, SAMPLES))])


def many():
    """More than a list of samples that is looked into."""
    noise = OwnNoise()
    return ConcatDataset([Subset(noise, [i % SAMPLES]) for i in range(300)])


def pipe():
    return SequenceWrapper(list(range(SAMPLES))).map(scaled)


def worker_began(worker):
    numpy.random.seed(worker)


def distributed(**options):
    return DistributedSampler(range(SAMPLES), num_replicas=2, rank=1, **options)


PERSISTENT = {"num_workers": 2, "persistent_workers": True}
KINDS = {
    "in order": lambda: DataLoader(Rows(), 4),
    "shuffled": lambda: DataLoader(Rows(), 4, shuffle=True),
    "shuffled, a generator": lambda: DataLoader(Rows(), 4, shuffle=True, generator=seeded()),
    "the last dropped": lambda: DataLoader(Rows(), 4, shuffle=True, drop_last=True, collate_fn=list),
    "samples, no batches": lambda: DataLoader(Subset(Rows(), range(14)), batch_size=None, shuffle=True),
    "lists of tensors": lambda: DataLoader(TensorDataset(torch.arange(SAMPLES), torch.rand(SAMPLES, 2, generator=seeded())), 4, shuffle=True),
    "ConcatDataset": lambda: DataLoader(one_behind_another(OwnNoise), 4, shuffle=True),
    "ConcatDataset of many": lambda: DataLoader(many(), 40, shuffle=True),
    "StackDataset": lambda: DataLoader(StackDataset(first=Noisy(), second=Counting()), 4, shuffle=True),
    "MapDataPipe": lambda: DataLoader(pipe(), 4, shuffle=True),
    "workers, one beside and behind another": lambda: DataLoader(StackDataset(one_behind_another(Counting), pipe()), 4, shuffle=True, num_workers=2),
    "batch_sampler": lambda: DataLoader(Rows(), batch_sampler=BatchSampler(RandomSampler(range(SAMPLES)), 3, True)),
    "batches drawn as they come": lambda: DataLoader(Rows(), batch_sampler=Buckets()),
    "DistributedSampler": lambda: DataLoader(Rows(), 2, sampler=distributed()),
    "DistributedSampler in batches": lambda: DataLoader(Rows(), batch_sampler=BatchSampler(distributed(), 2, False)),
    "RandomSampler, replacement": lambda: DataLoader(Rows(), 4, sampler=RandomSampler(range(SAMPLES), replacement=True, num_samples=70)),
    "RandomSampler, more than there are": lambda: DataLoader(Rows(), 4, sampler=RandomSampler(range(SAMPLES), num_samples=60)),
    "RandomSampler, one generator for all": with_shared_generator,
    "WeightedRandomSampler": lambda: DataLoader(Rows(), 4, sampler=WeightedRandomSampler(list(range(1, SAMPLES + 1)), 50)),
    "SubsetRandomSampler": lambda: DataLoader(Rows(), 4, sampler=SubsetRandomSampler(range(0, SAMPLES, 1), generator=seeded())),
    "a sampler that draws by itself": lambda: DataLoader(Rows(), 4, sampler=Shuffled()),
    "noisy": lambda: DataLoader(Noisy(), 4, shuffle=True),
    "noise of its own": lambda: DataLoader(OwnNoise(), 4, shuffle=True),
    "noise made late": late,
    "a data set with a state": lambda: DataLoader(Counting(), 4, shuffle=True),
    "workers": lambda: DataLoader(Rows(), 4, shuffle=True, num_workers=2),
    "workers, a generator": lambda: DataLoader(Rows(), 4, shuffle=True, num_workers=2, prefetch_factor=3, generator=seeded()),
    "workers, a sampler that draws by itself": lambda: DataLoader(Rows(), 4, sampler=Shuffled(), num_workers=2),
    "workers, single samples": lambda: DataLoader(Subset(Noisy(), range(14)), batch_size=None, shuffle=True, num_workers=2),
    "workers, noisy": lambda: DataLoader(Noisy(), 4, shuffle=True, num_workers=2, worker_init_fn=worker_began),
    "three workers, noise of their own": lambda: DataLoader(OwnNoise(), 4, shuffle=True, num_workers=3, prefetch_factor=1),
    "workers, noise made late": lambda: late(num_workers=2),
    "workers, a data set with a state": lambda: DataLoader(Counting(), 4, num_workers=2),
    "workers, DistributedSampler": lambda: DataLoader(Noisy(), 2, sampler=distributed(shuffle=False), num_workers=2),
    "persistent": lambda: DataLoader(Rows(), 4, shuffle=True, **PERSISTENT),
    "persistent, noisy": lambda: DataLoader(Noisy(), 4, shuffle=True, **PERSISTENT),
    "persistent, noise made late": lambda: late(**PERSISTENT),
    "persistent, noise of their own": lambda: DataLoader(OwnNoise(), batch_sampler=Buckets(), **PERSISTENT),
    "a list": lambda: [torch.full((2,), float(i)) for i in range(12)],
    "a tensor": lambda: torch.arange(24.0).reshape(12, 2),
    "a stream with a state": lambda: DataLoader(Stream(), 4),
    "a stream that shuffles": lambda: DataLoader(Mixed(), 4),
    "a data set whose state is drawn": lambda: DataLoader(Drifting(), 4),
}
SPAWNED = {"workers, spawned": lambda: DataLoader(Noisy(), 4, shuffle=True, num_workers=2, multiprocessing_context="spawn")}
try:
    from torchdata.stateful_dataloader import StatefulDataLoader

    KINDS |= {
        "stateful": lambda: StatefulDataLoader(Rows(), 4, shuffle=True),
        "stateful, a generator": lambda: StatefulDataLoader(Noisy(), 4, shuffle=True, generator=seeded()),
        "stateful, DistributedSampler": lambda: StatefulDataLoader(Rows(), 2, sampler=distributed()),
        "stateful stream": lambda: StatefulDataLoader(Stream(), 4),
        "stateful, workers": lambda: StatefulDataLoader(Noisy(), 4, shuffle=True, num_workers=2),
        "stateful stream, workers": lambda: StatefulDataLoader(Stream(), 4, num_workers=2),
        "stateful, persistent": lambda: StatefulDataLoader(Noisy(), 4, shuffle=True, **PERSISTENT),
    }
except ImportError:
    print("torchdata is not installed: its StatefulDataLoader is not tried")

everything = Randomness()


def begin_anew():
    torch.manual_seed(5), random.seed(6), numpy.random.seed(7)
    FOUND.seed(4)


def trained():
    """What a trainer draws in a step."""
    return float(torch.rand(1)), random.random(), float(numpy.random.standard_normal())


def seen(batch):
    """All of it, and what the trainer draws then."""
    return as_said(batch), trained()


def as_said(part):
    if isinstance(part, torch.Tensor):
        return str(part.dtype), part.tolist()
    if isinstance(part, dict):
        return {key: as_said(value) for key, value in part.items()}
    return [as_said(value) for value in part] if isinstance(part, (list, tuple)) else part


def set_epoch(loader, epoch):
    batch_sampler = getattr(loader, "batch_sampler", None)
    things = getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None), getattr(loader, "dataset", None)
    for thing in {id(thing): thing for thing in things}.values():
        if hasattr(thing, "set_epoch"):
            thing.set_epoch(epoch)


def plain(make, early=None, count=PASSES):
    """Each pass as plain torch gives it. `early`: the second is left after so many batches."""
    begin_anew()
    loader, passes = make(), []
    for epoch in range(count):
        set_epoch(loader, epoch)
        passes.append([])
        for batch in loader:
            passes[-1].append(seen(batch))
            if epoch == 1 and len(passes[-1]) == early:
                break
        trained()
    return passes


class Line:
    """A trainer over a loader: what it has seen, and the state of everything behind each batch."""

    def __init__(self, make, early=None, count=PASSES):
        begin_anew()
        self.batches = Batches(make(), "line")
        self.passes, self.early, self.count = [], early, count
        self.states = {}

    def run(self, keep_states=(), epoch=0, at=0):
        while epoch < self.count:
            if at == 0:
                self.batches.begin(epoch)
            self.passes.append([])
            self.run_pass(epoch, keep_states)
            epoch, at = epoch + 1, 0
        return self.passes

    def run_pass(self, epoch, keep_states=()):
        while True:
            position = self.batches.position()
            if epoch == 1 and position == self.early:
                break
            if position in keep_states:
                self.states[epoch, position] = pickle.dumps((everything.state_dict(), self.batches.state_dict()))
            try:
                batch = self.batches.next()
            except StopIteration:
                break
            self.passes[-1].append(seen(batch))
        if keep_states:
            self.states[epoch, "end"] = pickle.dumps((everything.state_dict(), self.batches.state_dict()))
        trained()

    def go_on(self, epoch, position, state):
        """What is left, in a process that has done nothing so far."""
        world, own = pickle.loads(state)
        self.batches.load_state_dict(own)
        everything.load_state_dict(world)
        if position == "end":
            trained()
            return self.run(epoch=epoch + 1)
        return self.run(epoch=epoch, at=1)


def same(found, expected, what):
    assert found == expected, f"{what}:\n  found    {str(found)[:600]}\n  expected {str(expected)[:600]}"


def rest(passes, epoch, position):
    if position == "end":
        return passes[epoch + 1 :]
    return [passes[epoch][position:], *passes[epoch + 1 :]]


def back_and_forth(make, expected, what):
    """Within one process: each step done once more, some of them from far behind. A fault puts the process's generators back."""
    line = Line(make)
    batches, where = line.batches, {}
    for epoch, of_pass in enumerate(expected[:2]):
        where[0] = everything.state_dict()  # a fault in the first step goes back to before the pass
        batches.begin(epoch)
        for position, wanted in enumerate(of_pass):
            where[position] = everything.state_dict() if position else where[0]
            same(seen(batches.next()), wanted, f"{what}, pass {epoch}, batch {position}")
            for back in (1, position + 1) if position in (3, 6) else (1,):
                there = position + 1 - back
                world = everything.state_dict()
                batches.seek(there)
                same(everything.state_dict(), world, f"{what}, what generators are at behind seek")
                everything.load_state_dict(where[there])
                assert batches.position() == there
                for again in range(there, position + 1):
                    same(seen(batches.next()), of_pass[again], f"{what}, pass {epoch}, batch {again} again, from {there}")
        try:
            batches.next()
        except StopIteration:
            pass
        else:
            raise AssertionError(f"{what}: more than plain iteration gives")
        trained()


def leave_out(make, expected, what):
    """A process that takes a lost one's place leaves out a batch that the others have had; its generators are what they came to behind that."""
    line = Line(make)
    line.run(keep_states=range(6))
    for position in (0, 1, 4):
        other, behind = Line(make), pickle.loads(line.states[0, position + 1])[0]
        other.batches.load_state_dict(pickle.loads(line.states[0, position])[1])
        everything.load_state_dict(behind)
        other.batches.next()
        everything.load_state_dict(behind)
        same(other.run(at=1), rest(expected, 0, position + 1), f"{what}, behind batch {position}, which is left out")


def go_on_elsewhere(lines):
    """By kind, what a new process sees from each of its states on."""
    with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
        file = Path(folder, "states")
        file.write_bytes(pickle.dumps({kind: states for kind, (states, _) in lines.items()}))
        done = subprocess.run([sys.executable, "-W", "ignore", __file__, "--go-on", str(file)], check=False)
        assert done.returncode == 0, "the other process failed"
        found = pickle.loads(file.read_bytes())
    for kind, (states, wanted) in lines.items():
        for early, epoch, position in states:
            same(found[kind][early, epoch, position], rest(wanted[early], epoch, position), f"{kind}, left early at {early}, on from {epoch}, {position}")


def go_on(file):
    found = {}
    for kind, states in pickle.loads(file.read_bytes()).items():
        make, count = (KINDS | SPAWNED)[kind], 1 if kind in SPAWNED else PASSES
        found[kind] = {where: Line(make, where[0], count).go_on(where[1], where[2], state) for where, state in states.items()}
    file.write_bytes(pickle.dumps(found))


def main(word=""):
    lines = {}
    for kind, make in KINDS.items():
        if word not in kind:
            continue
        print(kind, flush=True)
        works = "worker" in kind or "persistent" in kind
        states, wanted = {}, {}
        left = ("persistent" in kind and "stateful" not in kind) or kind == "shuffled, a generator"
        for early in (None, 3) if left else (None,):
            wanted[early] = plain(make, early)
            line = Line(make, early)
            same(line.run(keep_states=(1, 3) if works else AT), wanted[early], f"{kind}, undisturbed, left early at {early}")
            states |= {(early, *where): state for where, state in line.states.items() if not works or where == (0, 3) or where[0] == 1 or where == (2, 1)}
        back_and_forth(make, wanted[None], kind)
        if not works:
            leave_out(make, wanted[None], kind)
        lines[kind] = states, wanted
    if lines:
        go_on_elsewhere(lines)
    if "stateful, persistent" in lines:
        try:
            Line(KINDS["stateful, persistent"], early=3).run()
        except kintsugi.Error as error:
            assert "the pass was left before its end" in str(error), error
        else:
            raise AssertionError("what the workers of a pass that was left had drawn is not known, and was not asked")
    for kind, make in SPAWNED.items() if word == "spawned" else ():  # each worker imports torch
        wanted, line = plain(make, count=1), Line(make, count=1)
        same(line.run(keep_states=(3,)), wanted, f"{kind}, undisturbed")
        go_on_elsewhere({kind: ({(None, 0, 3): line.states[0, 3]}, {None: wanted})})
    print("ok")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--go-on"]:
        go_on(Path(sys.argv[2]))
    else:
        main(*sys.argv[1:])
