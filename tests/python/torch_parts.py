"""What kintsugi.torch does at every step without a loop in Python. Needs no run."""
import pickle
import random
import sys
import tempfile
import threading
from pathlib import Path

import numpy
import torch

import kintsugi
from kintsugi.source import is_the_scripts
from kintsugi.pickled import Pickling
from kintsugi.program import Program
from kintsugi.randomness import Between, Unchanged, numpy_memory, python_memory
from kintsugi.sections import Meeting
from kintsugi.torch import _build, state, warm
from kintsugi.torch.attributes import Attributes
from kintsugi.torch.randomness import Randomness
from kintsugi.torch.run import TorchRun

assert "torch._dynamo" not in sys.modules, "warm_up has nothing to do any more: this torch imports all of itself at once"
extension = _build.load()

# Random generators: whatever is drawn between, the state of a moment comes back; what is asked for is asked for only where it moved.
DRAWS = {
    "nothing": lambda: None,
    "torch": lambda: torch.rand(1),
    "python": random.random,
    "python gauss": lambda: random.gauss(0, 1),
    "numpy": numpy.random.random,
    "numpy normal": numpy.random.standard_normal,  # every second one changes only what is kept for it
    "numpy seed": lambda: numpy.random.seed(5),
    "python seed": lambda: random.seed(5),
}


def drawn():
    return [float(torch.rand(1)), random.random(), random.gauss(0, 1), numpy.random.random(), float(numpy.random.standard_normal())]


generators = Randomness()
assert generators._python._memory is not None, "this Python's generator cannot be looked at: its state is asked for at every step"
for first in DRAWS:
    for second in DRAWS:
        DRAWS[first]()
        kept = pickle.dumps(generators.state_dict())
        expected = drawn()
        DRAWS[second]()
        between = pickle.dumps(generators.state_dict())
        after_between = drawn()
        generators.load_state_dict(pickle.loads(kept))
        assert pickle.dumps(generators.state_dict()) == kept, (first, second)
        assert drawn() == expected, (first, second)
        generators.load_state_dict(pickle.loads(between))
        assert drawn() == after_between, (first, second)

# A state that was put back by hand, equal in its words and not in the number that is kept beside them.
numpy.random.seed(1)
numpy.random.standard_normal()
with_kept = numpy.random.get_state()
numpy.random.standard_normal()
taken = [generators.state_dict()["numpy"]]
numpy.random.set_state(with_kept)
taken.append(generators.state_dict()["numpy"])
assert pickle.loads(taken[0])[3] == 0 and pickle.loads(taken[1])[3] == 1, [pickle.loads(one)[3:] for one in taken]

# With other ranks: seeded alike they stay alike, otherwise they differ; and nothing is drawn again.
def seeded(seed):
    torch.manual_seed(seed), random.seed(seed), numpy.random.seed(seed)
    return generators.state_dict()


def taken_over(seed, saved):
    seeded(seed)
    began = drawn()
    seeded(seed)
    generators.load_state_dict(generators.take_over(saved))
    return began, drawn()


saved = {0: seeded(11), 1: seeded(12)}
began, one = taken_over(1, saved)
assert taken_over(1, {0: saved[0]})[1] == one, "it is the lowest rank that was saved which counts"
for other in (began, taken_over(2, saved)[1], taken_over(1, {0: saved[1]})[1]):
    assert not set(one) & set(other), (one, other)

asked = []
for memory in (numpy_memory(), python_memory()):
    still = Unchanged(lambda: asked.append(1), memory)
    still.pickled(), still.pickled()
assert len(asked) == 2, asked
numpy.random.set_state(numpy.random.RandomState(3).get_state())
other = Unchanged(lambda: asked.append(1), None)
other.pickled(), other.pickled()
assert len(asked) == 4, asked

# Between loops a process that comes later draws what was drawn there; where that is not known any more it says so, if it draws at all.
def lived(between, arriving, places=3):
    found = []
    for place in range(places):
        between.begin(arriving)
        found.append((drawn() if place != 1 else None, between.end(arriving)))
        torch.rand(place + (7 if arriving else 1)), random.random()  # a loop, which is passed by
    return found


seeded(5)
between = Between(generators)
live = lived(between, False)
assert not any(other for _, other in live) and [*between.state_dict()] == [1, 3], "where nothing is drawn nothing is kept"
later = Between(generators)
later.load_state_dict(pickle.loads(between.encode()))
seeded(6)
assert lived(later, True) == live
small = Between(generators)
small.MOST = len(between.state_dict()[3])
seeded(5)
assert lived(small, False) == live and [*small.state_dict()] == [3]
later.load_state_dict(pickle.loads(small.encode()))
later._place = 0
assert [other for _, other in lived(later, True)] == [True, False, False]

# Buffers, of any type and layout, some made anew by the module.
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
model.register_buffer("cut", torch.arange(12).reshape(3, 4).T)
model.register_buffer("nothing", torch.zeros(0))
buffers = state.Buffers(model, extension)
before = {name: value.clone() for name, value in model.named_buffers()}
kept = pickle.loads(pickle.dumps(buffers.state_dict()))
model(torch.randn(5, 3))
model.cut = model.cut.clone() + 1
assert not torch.equal(model[1].running_mean, before["1.running_mean"]) and int(model[1].num_batches_tracked) == 1
buffers.load_state_dict(kept)
for name, value in model.named_buffers():
    assert torch.equal(value, before[name]), name
try:
    extension.unpack([torch.zeros(3)], b"four")
except ValueError as error:
    assert "12 bytes" in str(error), error
else:
    raise AssertionError("filled from too few bytes")

# Where tensors lie, and which parameters there are.
places = extension.Places()
for name, parameter in model.named_parameters():
    places.add(name, parameter, False, parameter.data_ptr())
    places.know(parameter)
for module in model.modules():
    places.watch(module._parameters)
assert places.first_moved() == "" and places.first_unknown() is None
with torch.no_grad():
    model[0].weight.add_(1)
assert places.first_moved() == ""
model[0].bias.data = model[0].bias.data.clone()
assert places.first_moved() == "0.bias", places.first_moved()
model[1].weight = torch.nn.Parameter(torch.ones(4))
assert places.first_unknown() is model[1].weight

# Whether optimizers' states hold the very same.
weight, step = model[0].weight, torch.zeros(1)
values = extension.StateValues()
values.learn([{weight: {"step": step, "count": 3}}, {}])
assert values.same([{weight: {"step": step, "count": 3}}, {}])
for other in ([{weight: {"step": step, "count": 4}}], [{weight: {"count": 3, "step": step}}], [{weight: {"step": torch.zeros(1), "count": 3}}],
              [{weight: {"step": step}}], [{model[0].bias: {"step": step, "count": 3}}], [{weight: {"step": step, "count": 3, "more": 0}}], []):  # fmt: skip
    assert not values.same(other), other

# Tensors in an object's state: the same values are the same bytes wherever they lie, and come back as they were.
pickling = Pickling(TorchRun.REDUCERS)


class Averages:
    def __init__(self, tensors):
        self.tensors = tensors

    def state_dict(self):
        return {"tensors": self.tensors}


tensors = [torch.randn(3, 2), torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.ones(5, dtype=torch.bfloat16), torch.tensor(True),
           torch.zeros(0, 2), torch.randn(4, dtype=torch.complex64).conj(), torch.randn(6, 4)[1:3], torch.nn.Parameter(torch.ones(2)),
           torch.randn(2, requires_grad=True), torch.randn(4, 4)[:, ::2]]  # fmt: skip
data = pickling.bytes_of("averages", Averages(tensors))
for one, other in zip(tensors, pickle.loads(data)["tensors"], strict=True):
    assert type(one) is type(other) and one.requires_grad == other.requires_grad and one.stride() == other.stride() and one.dtype == other.dtype
    assert torch.equal(one, other)
assert pickling.bytes_of("averages", Averages([tensor.clone().detach() for tensor in tensors[:7]])) == pickling.bytes_of("averages", Averages(tensors[:7]))
twice = pickle.loads(pickling.bytes_of("averages", Averages([tensors[0], tensors[0]])))["tensors"]
assert twice[0] is twice[1]

# A spare is warmed before it waits, and draws afterwards what it would have drawn.
torch.manual_seed(7)
expected = torch.rand(1)
torch.manual_seed(7)
warm.warm_up()
assert torch.rand(1) == expected and "torch._dynamo" in sys.modules
print("ok")


# The record of a script: what is over is pickled once, whatever number of loops and sections that is, and goes on as it was.
program = Program()
for epoch in range(3):
    program.begin_loop(range(4), False)
    program.begin_iteration(4 * epoch + 4)
    program.record(program.next_section("within"), 4 * epoch + 3, b"result", b"changes")
    program.leave_loop()
    program.record_end(epoch, 4 * epoch + 4, {"best": b"kept"})
    program.record(program.next_section("behind"), 4 * epoch + 4, b"result", pickle.dumps({"model": b"large", "best": b"kept"}))
needed = {"best": b"kept"}
program.forget_before(8, lambda _: pickle.dumps(needed))
kept = program.state_dict()
program.begin_iteration(9)
program.note_variables({"best": b"newer"})
program.forget_before(8, lambda _: b"again")
assert program.state_dict()["past"] is kept["past"], "what is over is pickled once more"
assert kept["sections"].keys() == {"within, iteration 8, number 0", "within, iteration 12, number 0"}
again = Program()
again.load_state_dict(pickle.loads(pickle.dumps(kept)))
behind = [again.recorded(f"behind, after loop {loop}, number 0") for loop in (1, 2, 3)]
assert [one and pickle.loads(one.changes) for one in behind] == [needed, {"model": b"large", "best": b"kept"}, {"model": b"large", "best": b"kept"}]
assert (again.end_of(2), again.variables_behind(1)) == (12, {"best": b"kept"})
again.forget_after(8, [0])
assert again.recorded("behind, after loop 3, number 0") is None and again.end_of(2) is None and again.end_of(1) == 8
old = {**pickle.loads(kept["past"]), **{key: value for key, value in kept.items() if key not in ("past", "sections")}}
old["sections"] = {**old["sections"], **kept["sections"]}
of_old = Program()
of_old.load_state_dict(old)
assert pickle.loads(of_old.state_dict()["past"]) == pickle.loads(kept["past"]) and of_old.state_dict()["sections"] == kept["sections"]

# What ranks say at an incident comes to each of them, and words grow with the ranks, not with their square.
class Words:
    """The run's store, of 64 ranks."""

    def __init__(self):
        self.kept, self.asked, self.changed = {}, 0, threading.Condition()

    def set(self, key, data):
        with self.changed:
            self.kept[key], self.asked = data, self.asked + 1
            self.changed.notify_all()

    def get(self, key, limit_ms):
        with self.changed:
            self.asked += 1
            assert self.changed.wait_for(lambda: key in self.kept, limit_ms / 1000), key
            return self.kept[key]


class Said:
    def __init__(self, store, rank):
        self.rank, self.crew, self.open_store = rank, [*range(2, 66)], lambda generation: store


for alike in (True, False):
    words, heard = Words(), {}
    fact_of = lambda rank: {"sections": {}, "of": None if alike else [rank, "\u00e9" * 700]}  # noqa: E731, B023
    seats = [threading.Thread(target=lambda rank: heard.__setitem__(rank, Meeting(Said(words, rank), 1).share("news", fact_of(rank), 60_000)), args=(rank,))
             for rank in range(2, 66)]  # fmt: skip
    for seat in seats:
        seat.start()
    for seat in seats:
        seat.join()
    assert all(told == {rank: fact_of(rank) for rank in range(2, 66)} for told in heard.values()) and len(heard) == 64
    parts = sum(key.startswith("news/all/") for key in words.kept)
    assert words.asked == 63 + 63 + parts + 64 * parts and (parts == 1) == alike, (words.asked, parts)

# Attributes of modules: whatever was encoded last, what was put back is encoded next; one that changes is found among many that do not.
net = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(5)))
net[3].seen, net[1].kept = 2, [1.0]
attributes = Attributes(net)
attributes.encode()
moments = []
for seen in (3, 4, 2):
    net[3].seen = seen
    net[1].kept.append(float(seen))
    moments.append(attributes.encode())
for moment in (moments[0], moments[2], moments[1]):
    attributes.load_state_dict(pickle.loads(moment))
    assert pickle.loads(attributes.encode()) == pickle.loads(moment)
assert (net[3].seen, net[1].kept) == (4, [1.0, 3.0, 4.0])
attributes.load_state_dict({"changes": {}, "trained": {}, "extra": {}})
assert (net[3].seen, net[1].kept) == (2, [1.0]) and pickle.loads(attributes.encode())["changes"] == {}

# What is a library's, wherever it was installed to (`pip install --target`), and what the script's own.
with tempfile.TemporaryDirectory() as there:
    (Path(there) / "shown").mkdir()
    shown = Path(there, "shown", "bar.py")
    shown.write_text("")
    sys.path.append(there)
    assert all(map(is_the_scripts, map(str, (shown, Path(__file__)))))
    (Path(there) / "shown-1.0.dist-info").mkdir()
    is_the_scripts.__globals__["_has_libraries"].cache_clear()
    assert [is_the_scripts(str(file)) for file in (shown, Path(__file__), Path(torch.__file__))] == [False, True, False]
    sys.path.remove(there)
